"""Checks by scoring: what is shown is the newest, and what any of them cost was paid, seen or not."""

import asyncio
from types import TracebackType
from typing import Any

import pytest
from msgspec.structs import replace

from pramana.errors import NotFound
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
    return [each.checks[0].evidence.get("other_scorings") for _, each in store.results.iterate(run_id)]


def test_the_newest_check_says_what_the_others_cost(store: Store) -> None:
    run_id, keys = begun(store, 3, judged("a", 0.5, 100))
    assert paid(store, run_id) == [None] * 3
    rescore(store, run_id, "b", [(each, judged("b", 0.25, 10)) for each in keys[:2]])
    rescore(store, run_id, "c", [(keys[0], judged("c", None, 1))])
    first, second, third = (each.checks[0].evidence for _, each in store.results.iterate(run_id))
    assert (first["judge"], first["other_scorings"]) == ("c", {"cost_usd": 0.75, "tokens": 110})
    assert (second["judge"], second["other_scorings"]) == ("b", {"cost_usd": 0.5, "tokens": 100})
    assert third == judged("a", 0.5, 100)[0].evidence
    then = [each.checks[0].evidence for _, each in store.results.iterate(run_id, scoring=0)]
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
    first, second = (each.checks[0].evidence for _, each in store.results.iterate(run_id))
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
    assert [each.checks[0].evidence["judge"] for _, each in store.results.iterate(run_id)] == ["b"]


# ── Judged again without a verdict ──


def unscored(by: str, cost: float) -> tuple[Check, ...]:
    return (replace(judged(by, cost, 10)[0], outcome=Outcome.UNSCORED),)


def test_checks_without_a_verdict_hide_no_earlier_one_and_are_paid(store: Store) -> None:
    run_id, keys = begun(store, 3, judged("a", 0.5, 100))
    with store.scorings.begin(run_id, "b") as scoring:
        scoring.add([(keys[0], judged("b", 0.25, 10))])
        scoring.add_failed([(keys[1], unscored("b", 0.125))])
    first, second, third = (each.checks[0].evidence for _, each in store.results.iterate(run_id))
    assert [each["judge"] for each in (first, second, third)] == ["b", "a", "a"]
    assert second["other_scorings"] == {"cost_usd": 0.125, "tokens": 10}
    assert "other_scorings" not in third
    assert store.results.count_outcomes(run_id)[Outcome.PASSED] == 3
    run = store.runs.find(run_id)
    found = list(store.results.iterate_rescored(run, scoring.number))
    assert [(each.before.key, each.attempt and each.attempt.outcome) for each in found] == [
        (keys[0], None),
        (keys[1], Outcome.UNSCORED),
    ]
    assert [each.checks[0].evidence["judge"] for pair in found for each in pair[:2]] == ["a", "b", "a", "a"]


def test_a_rescoring_that_only_failed_is_not_seen_and_the_next_one_has_another_number(store: Store) -> None:
    run_id, keys = begun(store, 1, judged("a", 0.5, 100))
    for number in (1, 2):
        with store.scorings.begin(run_id, "b") as scoring:
            scoring.add_failed([(keys[0], unscored("b", 0.125))])
        assert scoring.number == number
    assert list(store.scorings.list(run_id)) == [0]
    assert paid(store, run_id) == [{"cost_usd": 0.25, "tokens": 20}]


# ── An earlier scoring ──


def test_a_run_that_is_found_with_a_scoring_is_read_as_that_left_it(store: Store) -> None:
    run_id, keys = begun(store, 2, (check(),))
    rescore(store, run_id, "again", [(keys[0], (check(Outcome.FAILED),))])
    rescore(store, run_id, "once more", [(keys[1], (check(Outcome.FAILED),))])
    failed = []
    for scoring in (0, 1, 2):
        run = store.runs.find_scored(f"{run_id}@{scoring}")
        assert (run.id, run.scoring, run.reference) == (run_id, scoring, f"{run_id}@{scoring}")
        seq = next(seq for seq, each in store.results.iterate(run) if each.key == keys[0])
        failed.append(
            [
                store.results.count_outcomes(run)[Outcome.FAILED],
                sum(each.outcome is Outcome.FAILED for _, each in store.results.iterate(run)),
                sum(each.outcome is Outcome.FAILED for _, each in store.results.iterate_with_cases(run)),
                store.results.page(run, outcome=Outcome.FAILED)[1],
                store.results.count_outcomes_by_model(run, scoring)[keys[0].model][Outcome.FAILED],
            ]
        )
        assert store.results.read(run, seq)[1].outcome is (Outcome.FAILED if scoring else Outcome.PASSED)
    assert failed == [[0] * 5, [1] * 5, [2] * 5]
    assert store.runs.find_scored(run_id).scoring is None
    assert [each.label for each in store.scorings.describe(run_id)] == ["run", "again", "once more"]
    for wrong in ("3", "-1", "", "1.0", "x"):
        with pytest.raises(NotFound):
            store.runs.find_scored(f"{run_id}@{wrong}")


# ── The current scoring ──


def failures(store: Store, run_id: str) -> list[bool]:
    """Return of each result whether it failed, and check that every way of reading a run agrees."""
    run = store.runs.read(run_id)
    found = [each.outcome is Outcome.FAILED for _, each in store.results.iterate(run)]
    assert store.results.count_outcomes(run)[Outcome.FAILED] == sum(found)
    assert store.results.page(run, outcome=Outcome.FAILED)[1] == sum(found)
    (ended,) = store.history.count_ended([run])
    assert ended is not None
    assert ended.outcomes.get(Outcome.FAILED, 0) == sum(found)
    return found


def current(store: Store, run_id: str) -> list[int]:
    return [each.number for each in store.scorings.describe(run_id) if each.current]


def test_an_earlier_scoring_is_made_current_and_the_newest_again(store: Store) -> None:
    run_id, keys = begun(store, 2, (check(),))
    rescore(store, run_id, "again", [(keys[0], (check(Outcome.FAILED),))])
    assert (current(store, run_id), failures(store, run_id)) == ([1], [True, False])
    store.scorings.use(run_id, 0)
    assert (current(store, run_id), failures(store, run_id)) == ([0], [False, False])
    assert list(store.scorings.list(run_id)) == [0]
    assert store.history.rescoring_labels([store.runs.read(run_id)]) == [()]
    assert store.results.count_outcomes(run_id, scoring=1)[Outcome.FAILED] == 1, "RUN@1 is what it was"
    store.scorings.use(run_id, 1)
    assert (current(store, run_id), failures(store, run_id)) == ([1], [True, False])
    assert store.history.rescoring_labels([store.runs.read(run_id)]) == [("again",)]
    with pytest.raises(NotFound, match="the run has no scoring 2; it has 0, 1"):
        store.scorings.use(run_id, 2)
    assert current(store, run_id) == [1]


def test_a_scoring_is_added_to_the_one_that_was_chosen_and_is_then_current(store: Store) -> None:
    run_id, keys = begun(store, 3, (check(),))
    rescore(store, run_id, "worse", [(each, (check(Outcome.FAILED),)) for each in keys[:2]])
    store.scorings.use(run_id, 0)
    rescore(store, run_id, "better", [(keys[2], (check(Outcome.FAILED),))])
    assert (current(store, run_id), failures(store, run_id)) == ([2], [False, False, True])
    assert list(store.scorings.list(run_id)) == [0, 2]
    (changed,) = store.results.iterate_rescored(store.runs.read(run_id), 2)
    assert (changed.before.outcome, changed.after.outcome) == (Outcome.PASSED, Outcome.FAILED)
    store.scorings.use(run_id, 1)
    assert failures(store, run_id) == [True, True, False]
    rescore(store, run_id, "last", [(keys[2], (check(Outcome.FAILED),))])
    assert (current(store, run_id), failures(store, run_id)) == ([3], [True, True, True])


def test_a_rescoring_that_fails_leaves_the_chosen_scoring_current(store: Store) -> None:
    run_id, keys = begun(store, 1, (check(),))
    rescore(store, run_id, "worse", [(keys[0], (check(Outcome.FAILED),))])
    store.scorings.use(run_id, 0)
    with store.scorings.begin(run_id, "broken") as scoring:
        scoring.add_failed([(keys[0], (check(Outcome.UNSCORED),))])
    assert (current(store, run_id), failures(store, run_id)) == ([0], [False])
    (kept,) = store.results.iterate_rescored(store.runs.read(run_id), scoring.number)
    assert kept.before.outcome is kept.after.outcome is Outcome.PASSED
