"""Checks by scoring: what is shown is the newest, and what any of them cost was paid, seen or not."""

import asyncio
from types import TracebackType
from typing import Any

import pytest
from msgspec.structs import replace

from pramana.model import Check, Outcome
from pramana.store.scoring import Rescoring
from pramana.store.store import Store

from .samples import check, pending, plan, rescore, result, some_cases


def judged(by: str, cost: float | None, tokens: int | None) -> tuple[Check, ...]:
    return (replace(check(name="llm_judge"), evidence={"judge": by, "cost_usd": cost, "tokens": tokens}),)


def begun(store: Store, count: int, checks: tuple[Check, ...]) -> tuple[str, list[Any]]:
    run = store.runs.create(plan(), some_cases(count))
    keys = [found for found, _ in pending(store, run.id)]

    async def write() -> None:
        async with store.results.writer(run.id, lambda _: None) as writer:
            await writer.put([replace(result(each), checks=checks) for each in keys])

    asyncio.run(write())
    return run.id, keys


def paid(store: Store, run_id: str) -> list[Any]:
    return [each.checks[0].evidence.get("other_scorings") for _, each in store.results.each(run_id)]


def test_the_newest_check_says_what_the_others_cost(store: Store) -> None:
    run_id, keys = begun(store, 3, judged("a", 0.5, 100))
    assert paid(store, run_id) == [None] * 3
    rescore(store, run_id, "b", [(each, judged("b", 0.25, 10)) for each in keys[:2]])
    rescore(store, run_id, "c", [(keys[0], judged("c", None, 1))])
    first, second, third = (each.checks[0].evidence for _, each in store.results.each(run_id))
    assert (first["judge"], first["other_scorings"]) == ("c", {"cost_usd": 0.75, "tokens": 110})
    assert (second["judge"], second["other_scorings"]) == ("b", {"cost_usd": 0.5, "tokens": 100})
    assert third == judged("a", 0.5, 100)[0].evidence
    then = [each.checks[0].evidence for _, each in store.results.each(run_id, scoring=0)]
    assert [each["judge"] for each in then] == ["a"] * 3
    assert then[0]["other_scorings"] == {"cost_usd": None, "tokens": 11}, "an unknown price makes the sum unknown"


def test_checks_that_cost_nothing_are_not_mentioned(store: Store) -> None:
    run_id, keys = begun(store, 1, (check(),))
    rescore(store, run_id, "again", [(keys[0], (check(Outcome.FAILED),))])
    assert paid(store, run_id) == [None]


def test_what_a_killed_rescoring_had_paid_is_not_forgotten(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id, keys = begun(store, 2, judged("a", 0.5, 100))

    def killed(
        self: Rescoring, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self, kind, error, trace

    monkeypatch.setattr(Rescoring, "__exit__", killed)
    rescore(store, run_id, "b", [(keys[0], judged("b", 0.25, 10))])
    first, second = (each.checks[0].evidence for _, each in store.results.each(run_id))
    assert (first["judge"], first["other_scorings"]) == ("a", {"cost_usd": 0.25, "tokens": 10})
    assert second == judged("a", 0.5, 100)[0].evidence


def test_ctrl_c_while_a_rescoring_ends_loses_none_of_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id, keys = begun(store, 1, judged("a", 0.5, 100))
    end, calls = Rescoring._end, []

    def interrupted(self: Rescoring) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        end(self)

    monkeypatch.setattr(Rescoring, "_end", interrupted)
    with pytest.raises(KeyboardInterrupt):
        rescore(store, run_id, "b", [(keys[0], judged("b", 0.25, 10))])
    assert [each.checks[0].evidence["judge"] for _, each in store.results.each(run_id)] == ["b"]
