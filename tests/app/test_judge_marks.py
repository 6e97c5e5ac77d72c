"""Marks of judged runs in lists: those that a report of each run has, without reading its verdicts."""

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from pramana.analyse import calibration
from pramana.analyse.judges import describe_calibrations_briefly
from pramana.app.calibrations import calibrate_judges, list_judged_replies
from pramana.app.judge_marks import JudgeMarks
from pramana.bench import run_sync
from pramana.library.listing import list_runs
from pramana.model import Assertion, Case, JudgeCalibration, Run
from pramana.planning import create_run
from pramana.report.run_list import read_runs, render_runs
from pramana.request import Limits, RunRequest
from pramana.store import open_store
from pramana.store.labels import Label, Labels
from pramana.store.store import Store

from ..judged_runs import add_judged_run, judge_again, make_judged_case
from ..stores import sqlite_store

VERDICTS = [True, True, False, True, False] * 16


@pytest.fixture(name="store")
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(calibration, "DRAWS", 200)
    with closing(open_store(sqlite_store(tmp_path / "store.sqlite3"))) as store:
        yield store


def label_replies(store: Store, run: Run, count: int, wrong_every: int = 10, scoring: int | None = 0) -> None:
    """Label the first replies; every n-th label differs from the judge's verdict."""
    given = [
        Label(
            each.seq, each.criterion, "ann", "yes" if each.passed == bool(at % wrong_every) else "no", scoring=scoring
        )
        for at, each in enumerate(list_judged_replies(store, run)[:count])
    ]
    store.labels.save(run, given)


def describe(store: Store, *runs: Run, marks: JudgeMarks | None = None) -> list[str | None]:
    return (marks or JudgeMarks(store)).describe(runs, store.history.count_run_outcomes(runs))


def describe_as_reported(store: Store, run: Run) -> str | None:
    """Return the mark by the calibrations that a report of the run has."""
    keys = {(each.source.check, each.source.version, each.source.by) for each in list_judged_replies(store, run)}
    known = {(each.check, each.version, each.judge): each for each in calibrate_judges(store, run)}
    return describe_calibrations_briefly(known.get(key, JudgeCalibration(*key)) for key in keys)


def test_marks_are_those_of_reports_by_own_and_other_labels(store: Store) -> None:
    labelled = add_judged_run(store, VERDICTS)
    few = add_judged_run(store, VERDICTS[::-1])
    without = add_judged_run(store, VERDICTS[:40])
    other = add_judged_run(store, VERDICTS, judge="openai:gpt-4")
    assert describe(store, labelled, without, other) == ["uncalibrated"] * 3
    label_replies(store, labelled, 60)
    label_replies(store, few, 20, wrong_every=2)
    runs = (labelled, few, without, other)
    found = describe(store, *runs)
    assert found == [describe_as_reported(store, run) for run in runs]
    assert found[-1] == "uncalibrated"
    assert all(each and each.startswith("judge agrees ") for each in found[:3])
    assert found[0] != found[2]  # one is by its own labels, the other by those of two runs


def test_marks_follow_rescorings_panels_and_new_labels(store: Store) -> None:
    first, second = (add_judged_run(store, VERDICTS) for _ in range(2))
    marks = JudgeMarks(store)
    label_replies(store, first, 70)
    before = describe(store, first, second, marks=marks)
    judge_again(store, first, [not each for each in VERDICTS[:40]] + VERDICTS[40:], "openai:gpt-5")
    after = describe(store, first, second, marks=marks)  # strata are pairs of verdicts now
    assert after == [describe_as_reported(store, run) for run in (first, second)] != before
    judge_again(store, second, VERDICTS, "openai:gpt-5 + openai:gpt-4")
    assert describe(store, second, marks=marks) == ["uncalibrated"] == [describe_as_reported(store, second)]
    label_replies(store, second, 60, scoring=1)
    assert describe(store, second, marks=marks) == [describe_as_reported(store, second)] != ["uncalibrated"]


@pytest.mark.parametrize("judge", ['a "judge": "b" \\ c', "判官 é", "x" * 300, 'fake:fixed="YES"', "tab\tand\x00nul"])
def test_the_name_of_a_judge_is_found_however_it_is_spelt(store: Store, judge: str) -> None:
    run = add_judged_run(store, VERDICTS, judge=judge)
    (counts,) = store.history.count_run_outcomes([run])
    assert counts
    assert [each.judge for each in counts.judges] == [judge]
    label_replies(store, run, 60)
    assert describe(store, run) == [describe_as_reported(store, run)] != ["uncalibrated"]


def test_a_list_reads_only_labelled_replies(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    labelled = add_judged_run(store, VERDICTS)
    others = [add_judged_run(store, VERDICTS) for _ in range(5)]
    label_replies(store, labelled, 40)
    read: list[int] = []
    real = Labels.iterate_checks

    def record(self: Labels, run: Run, scoring: int | None = None, *, seqs: Sequence[int] | None = None) -> object:
        assert seqs is not None, "every verdict of a run was read"
        read.extend(seqs)
        return real(self, run, scoring, seqs=seqs)

    monkeypatch.setattr(Labels, "iterate_checks", record)
    marks = JudgeMarks(store)
    assert None not in describe(store, labelled, *others, marks=marks)
    assert len(read) == 40
    describe(store, labelled, *others, marks=marks)
    assert len(read) == 40  # nothing is read again until another label is given


def test_a_run_without_a_judge_has_no_mark_and_a_judged_one_is_marked_in_every_list(store: Store) -> None:
    judged = add_judged_run(store, VERDICTS)
    plain = run_sync(store, create_run(store, RunRequest(cases=(_make_plain_case(),), models=("fake:echo",))), Limits())
    assert describe(store, judged, plain) == ["uncalibrated", None]
    text = render_runs(read_runs(store), 80)
    assert text.count("%), uncalibrated  ") == 1
    assert all(len(line) <= 80 for line in text.splitlines())
    assert [each.calibration for each in list_runs(store, 10, None, None, None)] == [None, "uncalibrated"]
    label_replies(store, judged, 60)
    assert "judge agrees 90 %" in render_runs(read_runs(store), 160)
    assert "% passed, judge agrees 90 %  judged" in str(list_runs(store, 10, None, None, None))


def _make_plain_case() -> Case:
    return replace(make_judged_case(1), assertion=Assertion("contains"), ideals=("Ask",))


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_run_that_is_deleted_while_a_list_is_described_does_not_fail_the_list(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_listed: bool
) -> None:
    labelled, gone, listed = (add_judged_run(store, VERDICTS) for _ in range(3))
    label_replies(store, labelled, 60)
    label_replies(store, gone, 60)
    runs = [listed, labelled, *([gone] if is_listed else [])]
    counts = store.history.count_run_outcomes(runs)
    real = Labels.list_labelled_run_ids

    def list_and_delete(self: Labels) -> list[str]:
        found = real(self)
        assert gone.id in found
        store.runs.delete(gone.id)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(Labels, "list_labelled_run_ids", list_and_delete)
        found = JudgeMarks(store).describe(runs, counts)
    assert found[:2] == [describe_as_reported(store, run) for run in (listed, labelled)]
    assert all(each and each.startswith("judge agrees ") for each in found)


def test_lists_read_the_store_at_the_same_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    labelled = add_judged_run(store, VERDICTS)
    label_replies(store, labelled, 60)
    counts = store.history.count_run_outcomes([labelled])
    both_read = threading.Barrier(2, timeout=30)
    real = Labels.list_labelled_run_ids

    def wait_for_the_other(self: Labels) -> list[str]:
        both_read.wait()
        return real(self)

    marks = JudgeMarks(store)
    with monkeypatch.context() as patched, ThreadPoolExecutor(2) as threads:
        patched.setattr(Labels, "list_labelled_run_ids", wait_for_the_other)
        first, second = (each.result() for each in [threads.submit(marks.describe, [labelled], counts) for _ in "ab"])
    assert first == second == [describe_as_reported(store, labelled)]
