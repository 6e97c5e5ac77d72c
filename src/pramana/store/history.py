"""Outcomes of runs, and a model's results over time: counted run by run and cached in memory.

Results are only ever added, so the counts for a given number of results and a given set of scorings never change, and
only new results need counting. Times are kept individually, at a few bytes each, so that those of one day can be
merged.
"""

import hashlib
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import ColumnElement, Connection, Select, String, and_, cast, func, literal, select

from pramana.hash import HASH_PREFIX
from pramana.model import Outcome, Run
from pramana.store.engine import CHUNK_ROWS, Database, StorePart
from pramana.store.records import escape_text, unescape_text
from pramana.store.schema import cases, results, run_cases, runs, scorings
from pramana.store.scoring import (
    SCORING_PRECEDENCE_COLUMNS,
    ScoringPrecedence,
    VerdictJudge,
    count_outcomes,
    count_verdicts_by_judge,
    list_scorings_in_effect,
)

_CacheKey = TypeVar("_CacheKey")
_CacheValue = TypeVar("_CacheValue")
MAX_CACHED_DURATIONS = 4_000_000
"""Limit for all runs together: 32 MB."""
_MAX_CACHED_ENTRIES = 10_000


class ModelVariantMeasurements(Struct, frozen=True):
    """Outcomes and times of one model in one variant of a run."""

    outcome_counts: Mapping[Outcome, int]
    reply_durations_s: "array[float]"
    """Durations of replies that were not read from the cache, sorted."""


class RunOutcomeCounts(Struct, frozen=True):
    """Outcomes of a run, as counted so far."""

    outcome_counts: Mapping[Outcome, int]
    """Counts over all models."""
    scored_model_variants: frozenset[tuple[str, str]]
    """Pairs of model and variant that have a verdict: a case has that many results per repeat."""
    stored_count: int
    """Number of results in the run at the time of counting."""
    last_seq: int
    """Sequence number of the last counted result."""
    by_model: Mapping[str, Mapping[Outcome, int]] = {}
    """Counts of each model, if the run has several."""
    judges: frozenset[VerdictJudge] = frozenset()
    """The judges of the verdicts; empty where no model judged."""


_MeasurementsByVariant = Mapping[str, ModelVariantMeasurements]
"""Measurements by variant."""
_ModelCacheKey = tuple[int, str, int, tuple[int, ...]]
_RunCacheKey = tuple[int, tuple[int, ...]]
"""A run and its finished scorings."""
_NO_RESULTS = RunOutcomeCounts({}, frozenset(), 0, 0)


class _CountCache(Generic[_CacheKey, _CacheValue]):
    """A cache of counts, limited by entries and by the times in them; the oldest entries are evicted first."""

    def __init__(self, times_in: Callable[[_CacheValue], int] = lambda _: 0) -> None:
        self._lock, self._count_times = threading.Lock(), times_in
        self._entries: OrderedDict[_CacheKey, _CacheValue] = OrderedDict()
        self._total_times = 0

    def get_many(self, keys: Iterable[_CacheKey]) -> dict[_CacheKey, _CacheValue]:
        """Return the cached entries among the keys."""
        with self._lock:
            return {each: self._entries[each] for each in keys if each in self._entries}

    def put(self, entries: Mapping[_CacheKey, _CacheValue]) -> None:
        with self._lock:
            for of, sums in entries.items():
                self._total_times += self._count_times(sums) - (
                    self._count_times(self._entries[of]) if of in self._entries else 0
                )
                self._entries[of] = sums
                self._entries.move_to_end(of)
            while self._entries and (
                self._total_times > MAX_CACHED_DURATIONS or len(self._entries) > _MAX_CACHED_ENTRIES
            ):
                self._total_times -= self._count_times(self._entries.popitem(last=False)[1])


class History(StorePart):
    """Outcomes and times of past runs."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._known: _CountCache[_ModelCacheKey, _MeasurementsByVariant] = _CountCache(
            lambda measured: sum(len(each.reply_durations_s) for each in measured.values())
        )
        self._distinct: _CountCache[frozenset[str], int] = _CountCache()
        self._asked: _CountCache[str, str] = _CountCache()
        self._ended: _CountCache[_RunCacheKey, RunOutcomeCounts] = _CountCache()

    def count_run_outcomes(self, run_records: Sequence[Run]) -> list[RunOutcomeCounts | None]:
        """Return the outcomes of each run by its newest checks; None for a deleted run."""
        with self._database.read_transaction() as connection:
            rows = _read_cache_keys(connection, run_records)
            known = self._ended.get_many(key for key, _ in rows.values())
            plans = {rows[run.id][0]: run.plan for run in run_records if run.id in rows}
            several = {key for key, plan in plans.items() if len(plan.targets) * len(plan.variants) > 1}
            grown = {key: number for key, number in rows.values() if known.get(key, _NO_RESULTS).stored_count != number}
            found = known | _count_new_results(connection, grown, known, several)
        self._ended.put(found)
        return [found.get(rows[run.id][0], _NO_RESULTS) if run.id in rows else None for run in run_records]

    def measure_model(self, run_records: Sequence[Run], model: str) -> list[_MeasurementsByVariant]:
        """Return a model's measurements in each run; empty for a deleted run. `model` is the name as typed."""
        found: list[_MeasurementsByVariant] = []
        with self._database.read_transaction() as connection:
            rows = _read_cache_keys(connection, run_records)
        for run in run_records:
            if run.id not in rows:
                found.append({})
                continue
            (run_no, among), number = rows[run.id]
            key = (run_no, model, number, among)
            known = self._known.get_many([key])
            if key not in known:
                with self._database.read_transaction() as connection:
                    known[key] = _measure_run(connection, run_no, model, among)
            self._known.put(known)
            found.append(known[key])
        return found

    def count_distinct_cases(self, run_ids: Iterable[str]) -> int:
        """Return the number of distinct cases in some runs; a case that several of them share counts once."""
        ids = frozenset(run_ids)
        known = self._distinct.get_many([ids])
        if ids not in known:
            mine = select(runs.c.run_no).where(runs.c.id.in_(ids))
            query = select(func.count(run_cases.c.case_no.distinct())).where(run_cases.c.run_no.in_(mine))
            known[ids] = int(self._fetch_value(query))
            self._distinct.put(known)
        return known[ids]

    def hash_cases(self, run_records: Sequence[Run]) -> list[str | None]:
        """Return a digest of each run's cases, equal for equal cases; None for a deleted run.

        Neither models nor the order of cases matter. The cases of a run never change, so each run is read once.
        """
        found = self._asked.get_many(run.id for run in run_records)
        alike: dict[bytes, str] = {}  # runs in a list mostly share their cases, which are then read once
        for run in run_records:
            if run.id not in found:
                with self._database.read_transaction() as connection:
                    if digest := _hash_cases(connection, run.number, alike):
                        found[run.id] = digest
        self._asked.put(found)
        return [found.get(run.id) for run in run_records]

    def list_rescoring_labels(self, run_records: Sequence[Run]) -> list[tuple[str, ...]]:
        """Return the labels of the rescorings that each run is read by, in order.

        The first scoring, which came with the replies, is left out.

        Empty if the run is read by its own verdicts.
        """
        query = select(runs.c.id, scorings.c.label, *SCORING_PRECEDENCE_COLUMNS)
        query = query.join_from(scorings, runs, scorings.c.run_no == runs.c.run_no)
        query = query.where(
            runs.c.id.in_([escape_text(run.id) for run in run_records]), scorings.c.finished.is_not(None)
        )
        every: dict[str, dict[ScoringPrecedence, str]] = {}
        for run_id, label, *link in self._fetch_rows(query.order_by(scorings.c.scoring)):
            every.setdefault(run_id, {})[ScoringPrecedence(*link)] = unescape_text(label)
        found: dict[str, list[str]] = {}
        for run_id, labels in every.items():
            used = set(list_scorings_in_effect(list(labels))) - {0}
            found[run_id] = [label for link, label in labels.items() if link.number in used]
        # Two rescorings in a row by the same judge count as one.
        return [tuple(label for label, _ in groupby(found.get(run.id, ()))) for run in run_records]


# ── Digests of cases ──


def _hash_cases(connection: Connection, run_no: int, digest_by_cases: dict[bytes, str]) -> str | None:
    """Return the digest of a run's cases; `digest_by_cases` caches digests by the numbers of the cases."""
    mine = run_cases.c.run_no == run_no
    listed = select(func.aggregate_strings(cast(run_cases.c.case_no, String), ",")).where(mine)
    numbers: str | None = connection.execute(listed).scalar()
    if numbers is None:
        return None
    key = hashlib.sha256(",".join(sorted(numbers.split(","))).encode()).digest()
    if key not in digest_by_cases:
        query = select(cases.c.digest).join_from(run_cases, cases).where(mine)
        digest = hashlib.sha256()
        ordered = query.order_by(cases.c.digest).execution_options(yield_per=CHUNK_ROWS)
        for each in connection.scalars(ordered):
            digest.update(each.encode())
        digest_by_cases[key] = HASH_PREFIX + digest.hexdigest()
    return digest_by_cases[key]


# ── Outcomes of runs ──


def _read_cache_keys(connection: Connection, run_records: Sequence[Run]) -> dict[str, tuple[_RunCacheKey, int]]:
    """Return the cache key and the number of results of each run; deleted runs are left out."""
    finished = and_(scorings.c.run_no == runs.c.run_no, scorings.c.finished.is_not(None))
    query = select(runs.c.id, runs.c.run_no, runs.c.stored, *SCORING_PRECEDENCE_COLUMNS).join_from(
        runs, scorings, finished, isouter=True
    )
    query = query.where(runs.c.id.in_([escape_text(run.id) for run in run_records])).order_by(scorings.c.scoring)
    as_of = {run.id: run.scoring for run in run_records}
    stored: dict[tuple[str, int], int] = {}
    links: dict[int, list[ScoringPrecedence]] = {}
    for run_id, run_no, stored_count, *link in connection.execute(query):
        stored[run_id, run_no] = stored_count
        if link[0] is not None:
            links.setdefault(run_no, []).append(ScoringPrecedence(*link))
    return {
        run_id: ((run_no, tuple(list_scorings_in_effect(links.get(run_no, ()), as_of.get(run_id)))), stored_count)
        for (run_id, run_no), stored_count in stored.items()
    }


def _count_new_results(
    connection: Connection,
    stored_counts: Mapping[_RunCacheKey, int],
    earlier_counts: Mapping[_RunCacheKey, RunOutcomeCounts],
    multi_variant_runs: Container[_RunCacheKey],
) -> dict[_RunCacheKey, RunOutcomeCounts]:
    """Count the results of runs that have new ones: uncounted runs together, others from where counting stopped.

    Rescored runs are counted from the start. `multi_variant_runs` holds the runs with more than one model or variant.
    """
    found = dict.fromkeys(stored_counts, _NO_RESULTS)

    def add(rows: Iterable[Sequence[Any]], keys: Iterable[_RunCacheKey]) -> None:
        by_run = {key[0]: key for key in keys}
        for run_no, model, variant, outcome, number, last in rows:
            key, typed = by_run[run_no], unescape_text(model)
            sums, ended = found[key], Outcome(outcome)
            found[key] = RunOutcomeCounts(
                _add_count(sums.outcome_counts, ended, number),
                sums.scored_model_variants | {(model, variant)}
                if ended in (Outcome.PASSED, Outcome.FAILED)
                else sums.scored_model_variants,
                stored_counts[key],
                max(sums.last_seq, last),
                {**sums.by_model, typed: _add_count(sums.by_model.get(typed, {}), ended, number)},
                sums.judges,
            )

    once = [key for key in stored_counts if key[1] == (0,)]
    for many in (False, True):
        if beginners := [key for key in once if key not in earlier_counts and (key in multi_variant_runs) is many]:
            of_them = results.c.run_no.in_([run_no for run_no, _ in beginners])
            add(connection.execute(_make_count_query(of_them, by_variant=many)).all(), beginners)
    for key in stored_counts:
        if key[1] != (0,):
            add(count_outcomes(connection, *key, results.c.run_no, results.c.model, results.c.variant), [key])
        elif key in earlier_counts:
            found[key] = earlier_counts[key]
            new = _make_count_query(
                results.c.run_no == key[0],
                results.c.seq > earlier_counts[key].last_seq,
                by_variant=key in multi_variant_runs,
            )
            add(connection.execute(new).all(), [key])
    return _add_judges(connection, found, earlier_counts)


def _add_judges(
    connection: Connection,
    counts: Mapping[_RunCacheKey, RunOutcomeCounts],
    earlier_counts: Mapping[_RunCacheKey, RunOutcomeCounts],
) -> dict[_RunCacheKey, RunOutcomeCounts]:
    """Add the judges of new results to counts: of runs that were never counted together, of others one by one."""
    judges: dict[int, set[VerdictJudge]] = {}
    once = [run_no for run_no, among in counts if among == (0,) and (run_no, among) not in earlier_counts]
    for run_no, judge, _, _ in count_verdicts_by_judge(connection, once, (0,)) if once else ():
        judges.setdefault(run_no, set()).add(judge)
    for key in counts:
        run_no, among = key
        if among and (among != (0,) or key in earlier_counts):
            after = earlier_counts[key].last_seq if among == (0,) else 0
            judges[run_no] = {judge for _, judge, _, _ in count_verdicts_by_judge(connection, [run_no], among, after)}
    return {
        key: replace(each, judges=each.judges | judges[key[0]]) if judges.get(key[0]) else each
        for key, each in counts.items()
    }


def _add_count(counts: Mapping[Outcome, int], outcome: Outcome, increment: int) -> Mapping[Outcome, int]:
    return {**counts, outcome: counts.get(outcome, 0) + increment}


def _make_count_query(*conditions: ColumnElement[bool], by_variant: bool) -> Select[Any]:
    """Return the query that counts outcomes; if `by_variant` is not set, an index alone answers it."""
    ways = [results.c.model, results.c.variant] if by_variant else [literal(""), literal("")]
    query = select(results.c.run_no, *ways, results.c.outcome, func.count(), func.max(results.c.seq)).where(*conditions)
    return query.group_by(results.c.run_no, results.c.outcome, *(ways if by_variant else ()))


# ── A model over time ──


def _measure_run(
    connection: Connection, run_no: int, model: str, scoring_numbers: Sequence[int]
) -> _MeasurementsByVariant:
    mine = (results.c.run_no == run_no, results.c.model == escape_text(model))
    outcomes: dict[str, dict[Outcome, int]] = {}
    for variant, outcome, number, _ in count_outcomes(
        connection, run_no, scoring_numbers, results.c.variant, conditions=mine[1:]
    ):
        outcomes.setdefault(variant, {})[outcome] = number
    timed = select(results.c.total_s).where(*mine, results.c.variant == "text", results.c.cached.is_(False))
    timed = timed.where(results.c.total_s.is_not(None)).order_by(results.c.total_s)
    times = array("d", connection.scalars(timed)) if "text" in outcomes else array("d")
    return {
        unescape_text(variant): ModelVariantMeasurements(counts, times if variant == "text" else array("d"))
        for variant, counts in outcomes.items()
    }
