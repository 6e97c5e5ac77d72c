"""Checks by scoring: the newest are shown, and the cost of all of them is counted."""

import asyncio
from types import TracebackType
from typing import Any

import pytest
from msgspec.structs import replace

from pramana.errors import NotFound
from pramana.model import Check, Outcome
from pramana.store.scoring import Rescoring, VerdictJudge
from pramana.store.store import Store

from ..judged_runs import add_judged_run, judge_again
from .samples import add_scoring, list_pending, make_cases, make_check, make_plan, make_result


def make_checks(by: str, cost: float | None, tokens: int | None) -> tuple[Check, ...]:
    return (replace(make_check(name="llm_judge"), evidence={"judge": by, "cost_usd": cost, "tokens": tokens}),)


def start_run(store: Store, count: int, checks: tuple[Check, ...]) -> tuple[str, list[Any]]:
    run = store.runs.create(make_plan(), make_cases(count))
    keys = [found for found, _ in list_pending(store, run.id)]

    async def write() -> None:
        async with store.results.make_writer(run.id, lambda _: None) as writer:
            await writer.put([replace(make_result(each), checks=checks) for each in keys])

    asyncio.run(write())
    return run.id, keys


def read_other_costs(store: Store, run_id: str) -> list[Any]:
    return [each.checks[0].evidence.get("other_scorings") for _, each in store.results.iterate(run_id)]


def test_the_newest_check_states_the_cost_of_the_others(store: Store) -> None:
    run_id, keys = start_run(store, 3, make_checks("a", 0.5, 100))
    assert read_other_costs(store, run_id) == [None] * 3
    add_scoring(store, run_id, "b", [(each, make_checks("b", 0.25, 10)) for each in keys[:2]])
    add_scoring(store, run_id, "c", [(keys[0], make_checks("c", None, 1))])
    first, second, third = (each.checks[0].evidence for _, each in store.results.iterate(run_id))
    assert (first["judge"], first["other_scorings"]) == ("c", {"cost_usd": 0.75, "tokens": 110})
    assert (second["judge"], second["other_scorings"]) == ("b", {"cost_usd": 0.5, "tokens": 100})
    assert third == make_checks("a", 0.5, 100)[0].evidence
    then = [each.checks[0].evidence for _, each in store.results.iterate(run_id, scoring=0)]
    assert [each["judge"] for each in then] == ["a"] * 3
    assert then[0]["other_scorings"] == {"cost_usd": None, "tokens": 11}, "an unknown price makes the sum unknown"


def test_checks_that_cost_nothing_are_not_mentioned(store: Store) -> None:
    run_id, keys = start_run(store, 1, (make_check(),))
    add_scoring(store, run_id, "again", [(keys[0], (make_check(Outcome.FAILED),))])
    assert read_other_costs(store, run_id) == [None]


def test_costs_of_a_killed_rescoring_are_counted(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id, keys = start_run(store, 2, make_checks("a", 0.5, 100))

    def skip_exit(
        self: Rescoring, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self, kind, error, trace

    monkeypatch.setattr(Rescoring, "__exit__", skip_exit)
    add_scoring(store, run_id, "b", [(keys[0], make_checks("b", 0.25, 10))])
    first, second = (each.checks[0].evidence for _, each in store.results.iterate(run_id))
    assert (first["judge"], first["other_scorings"]) == ("a", {"cost_usd": 0.25, "tokens": 10})
    assert second == make_checks("a", 0.5, 100)[0].evidence


def test_ctrl_c_at_the_end_of_a_rescoring_loses_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id, keys = start_run(store, 1, make_checks("a", 0.5, 100))
    end, calls = Rescoring._record_end, []

    def interrupt_once(self: Rescoring) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        end(self)

    monkeypatch.setattr(Rescoring, "_record_end", interrupt_once)
    with pytest.raises(KeyboardInterrupt):
        add_scoring(store, run_id, "b", [(keys[0], make_checks("b", 0.25, 10))])
    assert [each.checks[0].evidence["judge"] for _, each in store.results.iterate(run_id)] == ["b"]


# ── Judged again without a verdict ──


def make_unscored(by: str, cost: float) -> tuple[Check, ...]:
    return (replace(make_checks(by, cost, 10)[0], outcome=Outcome.UNSCORED),)


def test_checks_without_a_verdict_hide_no_earlier_one_and_their_cost_counts(store: Store) -> None:
    run_id, keys = start_run(store, 3, make_checks("a", 0.5, 100))
    with store.scorings.begin_rescoring(run_id, "b") as scoring:
        scoring.add([(keys[0], make_checks("b", 0.25, 10))])
        scoring.add_checks_without_verdict([(keys[1], make_unscored("b", 0.125))])
    first, second, third = (each.checks[0].evidence for _, each in store.results.iterate(run_id))
    assert [each["judge"] for each in (first, second, third)] == ["b", "a", "a"]
    assert second["other_scorings"] == {"cost_usd": 0.125, "tokens": 10}
    assert "other_scorings" not in third
    assert store.results.count_outcomes(run_id)[Outcome.PASSED] == 3
    run = store.runs.find(run_id)
    found = list(store.results.iterate_rescored(run, scoring.number))
    assert [(each.before.key, each.undecided_attempt and each.undecided_attempt.outcome) for each in found] == [
        (keys[0], None),
        (keys[1], Outcome.UNSCORED),
    ]
    assert [each.checks[0].evidence["judge"] for pair in found for each in pair[:2]] == ["a", "b", "a", "a"]


def test_a_completely_failed_rescoring_is_hidden_and_its_number_not_reused(store: Store) -> None:
    run_id, keys = start_run(store, 1, make_checks("a", 0.5, 100))
    for number in (1, 2):
        with store.scorings.begin_rescoring(run_id, "b") as scoring:
            scoring.add_checks_without_verdict([(keys[0], make_unscored("b", 0.125))])
        assert scoring.number == number
    assert list(store.scorings.read_scoring_labels(run_id)) == [0]
    assert read_other_costs(store, run_id) == [{"cost_usd": 0.25, "tokens": 20}]


# ── An earlier scoring ──


def test_a_run_can_be_read_as_of_an_earlier_scoring(store: Store) -> None:
    run_id, keys = start_run(store, 2, (make_check(),))
    add_scoring(store, run_id, "again", [(keys[0], (make_check(Outcome.FAILED),))])
    add_scoring(store, run_id, "once more", [(keys[1], (make_check(Outcome.FAILED),))])
    failed = []
    for scoring in (0, 1, 2):
        run = store.runs.find_as_of_scoring(f"{run_id}@{scoring}")
        assert (run.id, run.scoring, run.reference) == (run_id, scoring, f"{run_id}@{scoring}")
        seq = next(seq for seq, each in store.results.iterate(run) if each.key == keys[0])
        failed.append(
            [
                store.results.count_outcomes(run)[Outcome.FAILED],
                sum(each.outcome is Outcome.FAILED for _, each in store.results.iterate(run)),
                sum(each.outcome is Outcome.FAILED for _, each in store.results.iterate_with_cases(run)),
                store.results.read_page(run, outcome=Outcome.FAILED)[1],
                next(
                    each.outcome_counts.get(Outcome.FAILED, 0)
                    for each in store.history.count_run_outcomes([run])
                    if each
                ),
            ]
        )
        assert store.results.read(run, seq)[1].outcome is (Outcome.FAILED if scoring else Outcome.PASSED)
    assert failed == [[0] * 5, [1] * 5, [2] * 5]
    assert store.runs.find_as_of_scoring(run_id).scoring is None
    assert [each.label for each in store.scorings.list_finished(run_id)] == ["run", "again", "once more"]
    for wrong in ("3", "-1", "", "1.0", "x"):
        with pytest.raises(NotFound):
            store.runs.find_as_of_scoring(f"{run_id}@{wrong}")


# ── The current scoring ──


def read_failures(store: Store, run_id: str) -> list[bool]:
    """Return of each result whether it failed, and check that every way of reading a run agrees."""
    run = store.runs.read(run_id)
    found = [each.outcome is Outcome.FAILED for _, each in store.results.iterate(run)]
    assert store.results.count_outcomes(run)[Outcome.FAILED] == sum(found)
    assert store.results.read_page(run, outcome=Outcome.FAILED)[1] == sum(found)
    (ended,) = store.history.count_run_outcomes([run])
    assert ended is not None
    assert ended.outcome_counts.get(Outcome.FAILED, 0) == sum(found)
    return found


def list_current(store: Store, run_id: str) -> list[int]:
    return [each.number for each in store.scorings.list_finished(run_id) if each.is_current]


def test_an_earlier_scoring_and_then_the_newest_can_be_made_current(store: Store) -> None:
    run_id, keys = start_run(store, 2, (make_check(),))
    add_scoring(store, run_id, "again", [(keys[0], (make_check(Outcome.FAILED),))])
    assert (list_current(store, run_id), read_failures(store, run_id)) == ([1], [True, False])
    store.scorings.make_current(run_id, 0)
    assert (list_current(store, run_id), read_failures(store, run_id)) == ([0], [False, False])
    assert list(store.scorings.read_scoring_labels(run_id)) == [0]
    assert store.history.list_rescoring_labels([store.runs.read(run_id)]) == [()]
    assert store.results.count_outcomes(run_id, scoring=1)[Outcome.FAILED] == 1, "RUN@1 is what it was"
    store.scorings.make_current(run_id, 1)
    assert (list_current(store, run_id), read_failures(store, run_id)) == ([1], [True, False])
    assert store.history.list_rescoring_labels([store.runs.read(run_id)]) == [("again",)]
    with pytest.raises(NotFound, match="the run has no scoring 2; it has 0, 1"):
        store.scorings.make_current(run_id, 2)
    assert list_current(store, run_id) == [1]


def test_a_new_scoring_builds_on_the_chosen_one_and_becomes_current(store: Store) -> None:
    run_id, keys = start_run(store, 3, (make_check(),))
    add_scoring(store, run_id, "worse", [(each, (make_check(Outcome.FAILED),)) for each in keys[:2]])
    store.scorings.make_current(run_id, 0)
    add_scoring(store, run_id, "better", [(keys[2], (make_check(Outcome.FAILED),))])
    assert (list_current(store, run_id), read_failures(store, run_id)) == ([2], [False, False, True])
    assert list(store.scorings.read_scoring_labels(run_id)) == [0, 2]
    (changed,) = store.results.iterate_rescored(store.runs.read(run_id), 2)
    assert (changed.before.outcome, changed.after.outcome) == (Outcome.PASSED, Outcome.FAILED)
    store.scorings.make_current(run_id, 1)
    assert read_failures(store, run_id) == [True, True, False]
    add_scoring(store, run_id, "last", [(keys[2], (make_check(Outcome.FAILED),))])
    assert (list_current(store, run_id), read_failures(store, run_id)) == ([3], [True, True, True])


def test_a_rescoring_that_fails_leaves_the_chosen_scoring_current(store: Store) -> None:
    run_id, keys = start_run(store, 1, (make_check(),))
    add_scoring(store, run_id, "worse", [(keys[0], (make_check(Outcome.FAILED),))])
    store.scorings.make_current(run_id, 0)
    with store.scorings.begin_rescoring(run_id, "broken") as scoring:
        scoring.add_checks_without_verdict([(keys[0], (make_check(Outcome.UNSCORED),))])
    assert (list_current(store, run_id), read_failures(store, run_id)) == ([0], [False])
    (kept,) = store.results.iterate_rescored(store.runs.read(run_id), scoring.number)
    assert kept.before.outcome is kept.after.outcome is Outcome.PASSED


def test_of_two_rescorings_at_once_the_one_that_ends_last_ends_an_earlier_choice(store: Store) -> None:
    run_id, keys = start_run(store, 1, make_checks("a", 0.5, 100))
    slow = store.scorings.begin_rescoring(run_id, "slow")
    with slow:
        add_scoring(store, run_id, "fast", [(keys[0], make_checks("b", 0.5, 100))])
        store.scorings.make_current(run_id, 0)
        slow.add([(keys[0], make_checks("c", 0.5, 100))])
        assert [each.is_current for each in store.scorings.list_finished(run_id)] == [True, False]
    assert [(each.label, each.is_current) for each in store.scorings.list_finished(run_id)][1:] == [
        ("slow", False), ("fast", True),
    ]  # fmt: skip


def test_verdicts_are_counted_by_judge_and_by_the_newest_scoring(store: Store) -> None:
    judge = 'openai:"gpt" \\ 5'
    run = add_judged_run(store, [True, True, False], judge=judge)
    typed = VerdictJudge("llm_judge", "1", judge)
    assert sorted(store.labels.count_verdicts(run)) == [(typed, False, 1), (typed, True, 2)]
    (counts,) = store.history.count_run_outcomes([run])
    assert counts
    assert counts.judges == {typed}
    judge_again(store, run, [False, False, False], "openai:gpt-4")
    other = VerdictJudge("llm_judge", "1", "openai:gpt-4")
    assert store.labels.count_verdicts(run) == [(other, False, 3)]
    for scoring, judges in ((None, {other}), (0, {typed}), (1, {other})):
        (counts,) = store.history.count_run_outcomes([replace(run, scoring=scoring)])
        assert counts
        assert counts.judges == judges


def test_a_judge_deeper_in_the_evidence_of_a_scorer_is_no_judge(store: Store) -> None:
    """On both engines: only the key of the evidence itself counts, wherever it stands and however it is spelt."""
    run = add_judged_run(store, [True] * 6)
    judge = 'openai:"gpt" \\ 5\0'
    evidences: list[dict[str, Any]] = [
        {"case_law": {"judge": "Smith J"}},
        {"quotes": ['a "judge":"b"'], "panel": [{"judge": "Smith J"}]},
        {"before": {"judge": "Smith J"}, "judge": judge},
        {"half": "\ud83d", "number": float("nan"), "big": 1 << 70, "judge": judge},
        {"judge": {"judge": "Smith J"}},
        {"before": {"judge": "Smith J"}, "judge": 7},
    ]
    with store.scorings.begin_rescoring(run.id, "by a scorer") as scoring:
        scoring.add(
            [
                (result.key, (Check("law", "1", Outcome.PASSED, "", evidence=evidence),))
                for (_, result), evidence in zip(store.results.iterate(run), evidences, strict=True)
            ]
        )
    (counts,) = store.history.count_run_outcomes([run])
    assert counts
    assert counts.judges == {VerdictJudge("law", "1", judge)}
    assert store.labels.count_verdicts(run) == [(VerdictJudge("law", "1", judge), True, 2)]
