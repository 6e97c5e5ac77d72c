"""Judged runs in lists: runs and their outcomes in; how far their judges agree with people, in a few words, out.

A list must stay fast with thousands of runs, so no verdict is read unless a person labelled its reply: the store counts
the others. The agreement is the one that a report of the run has (`calibrations`), without its interval.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from pramana.analyse.calibration import Stratum
from pramana.analyse.judge_report import (
    combine_labels,
    estimate_accuracy,
    group_by_source,
    make_strata,
    pool_strata,
)
from pramana.analyse.judges import canonical_judge_name, describe_accuracies_briefly
from pramana.analyse.labelling import list_verdicts
from pramana.analyse.pairing import VerdictSource
from pramana.app.calibrations import MAX_OTHER_RUNS, given_label, read_labelled_verdicts
from pramana.errors import NotFound
from pramana.model import Run
from pramana.store.history import RunOutcomeCounts
from pramana.store.scoring import VerdictJudge
from pramana.store.store import Store

_StrataBySource = Mapping[VerdictSource, Sequence[Stratum]]


class JudgeMarks:
    """How far the judges of runs agree with people, in a few words. Thread-safe.

    What was read of labelled runs is kept until another label is given. The lock is never held while the store is read,
    so two lists that are asked for at once may read the same run twice.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._labels: object = None
        self._strata: dict[tuple[Any, ...], _StrataBySource] = {}

    def describe(self, run_records: Sequence[Run], counts: Sequence[RunOutcomeCounts | None]) -> list[str | None]:
        """Return the mark of each run by its outcomes so far: `uncalibrated`, `judge agrees 92 %`, or None."""
        if not any(each and each.judges for each in counts):
            return [None] * len(run_records)
        labels = self._store.labels.read_state()
        with self._lock:
            if labels != self._labels:
                self._labels, self._strata = labels, {}
            strata = self._strata  # of these labels; a later one replaces the dictionary, and never changes it
        return _RunListDescriber(self._store, strata, has_labels=bool(labels.label_count)).describe(run_records, counts)


class _RunListDescriber:
    """Describes the runs of one list; each labelled run is looked up once."""

    def __init__(self, store: Store, cache: dict[tuple[Any, ...], _StrataBySource], *, has_labels: bool) -> None:
        self._store, self._cache = store, cache
        self._labelled_ids = store.labels.list_labelled_run_ids() if has_labels else []
        self._by_run: dict[str, _StrataBySource] = {}
        self._accuracy_by_others: dict[VerdictSource, float | None] = {}

    def describe(self, run_records: Sequence[Run], counts: Sequence[RunOutcomeCounts | None]) -> list[str | None]:
        labelled = set(self._labelled_ids)
        return [
            describe_accuracies_briefly(
                [self._find_accuracy(run, _make_source(judge), is_labelled=run.id in labelled) for judge in each.judges]
            )
            if each
            else None
            for run, each in zip(run_records, counts, strict=True)
        ]

    def _find_accuracy(self, run: Run, source: VerdictSource, *, is_labelled: bool) -> float | None:
        """Return a judge's accuracy by the labels of the run itself, else by those of other runs."""
        if not is_labelled:
            if source not in self._accuracy_by_others:
                self._accuracy_by_others[source] = self._pool_accuracy(source, "")
            return self._accuracy_by_others[source]
        own = estimate_accuracy(self._read_own_strata(run).get(source, ()))
        return self._pool_accuracy(source, run.id) if own is None else own

    def _pool_accuracy(self, source: VerdictSource, without_run_id: str) -> float | None:
        others = [each for each in self._labelled_ids if each != without_run_id][:MAX_OTHER_RUNS]
        return estimate_accuracy(pool_strata(self._read_other_strata(each).get(source, ()) for each in others))

    def _read_other_strata(self, run_id: str) -> _StrataBySource:
        if run_id not in self._by_run:
            try:
                self._by_run[run_id] = self._read_strata(self._store.runs.read(run_id))
            except NotFound:  # deleted after the list of labelled runs was read
                self._by_run[run_id] = {}
        return self._by_run[run_id]

    def _read_own_strata(self, run: Run) -> _StrataBySource:
        try:
            return self._read_strata(run)
        except NotFound:  # deleted after the list of runs was read
            return {}

    def _read_strata(self, run: Run) -> _StrataBySource:
        key = (run.reference, run.stored, *self._store.scorings.read_scoring_labels(run))
        if key not in self._cache:
            self._cache[key] = _read_strata(self._store, run)
        return self._cache[key]


def _make_source(judge: VerdictJudge) -> VerdictSource:
    return VerdictSource(judge.check, judge.version, canonical_judge_name(judge.judge), "")


def _read_strata(store: Store, run: Run) -> _StrataBySource:
    """Return the strata of each judge of a run; only verdicts on labelled replies are read."""
    labels = store.labels.list_of_run(run)
    current = max(store.scorings.read_scoring_labels(run), default=0)
    opinions = combine_labels(map(given_label, labels)).verdicts
    if any(each.scoring not in (None, current) for each in labels):  # then strata are pairs of verdicts
        whole = read_labelled_verdicts(store, run)
        return {
            source: make_strata(replies, opinions, whole.draw_verdicts)
            for source, replies in group_by_source(whole.replies).items()
        }
    labelled = group_by_source(
        verdict
        for each in store.labels.iterate_checks(run, seqs=sorted({label.seq for label in labels}))
        for verdict in list_verdicts(each.seq, each.case_digest, each.model, each.checks, canonical_judge_name)
    )
    counts: dict[VerdictSource, dict[bool, int]] = {}
    for judge, passed, count in store.labels.count_verdicts(run):
        by_verdict = counts.setdefault(_make_source(judge), {})
        by_verdict[passed] = by_verdict.get(passed, 0) + count
    found: dict[VerdictSource, Sequence[Stratum]] = {}
    for source, by_verdict in counts.items():
        known = {each.judge_passed: each for each in make_strata(labelled.get(source, ()), opinions)}
        found[source] = [
            Stratum(
                judge_passed=passed,
                reply_count=count,
                yes_labels=known[passed].yes_labels if passed in known else 0,
                no_labels=known[passed].no_labels if passed in known else 0,
            )
            for passed, count in sorted(by_verdict.items())
        ]
    return found
