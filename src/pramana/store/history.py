"""How runs ended, and a model over time: what is counted run by run, and kept in memory once it was counted.

Results are only ever added, so that what a run of so many results and scorings amounts to never changes: whoever looks
again only counts what is new. Times are kept as they are, a few bytes each, so that those of a day can be put together.
"""

import hashlib
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Generic, TypeVar

from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, Select, String, cast, func, literal, select

from pramana.hash import PREFIX
from pramana.model import Outcome, Run
from pramana.store.engine import CHUNK_ROWS, Database, StorePart
from pramana.store.records import escape_text, unescape_text
from pramana.store.schema import cases, results, run_cases, runs, scorings
from pramana.store.scoring import LINK_COLUMNS, Link, count_outcomes, read_by

_Of = TypeVar("_Of")
_Sums = TypeVar("_Sums")
KEPT_TIMES = 4_000_000
"""Of all runs together: 32 MB."""
_KEPT_SUMS = 10_000


class RunMeasurements(Struct, frozen=True):
    """What a model did in a run, asked in one way."""

    outcomes: Mapping[Outcome, int]
    times_s: "array[float]"
    """How long each reply took that was written and not taken from the cache, in order."""


class EndedCounts(Struct, frozen=True):
    """How the results of a run ended."""

    outcomes: Mapping[Outcome, int]
    """Of all its models together."""
    ways: frozenset[tuple[str, str]]
    """Each model and variant that has a verdict: so many results of a case there are in every repeat."""
    stored: int
    """How many results the run had when they were counted."""
    last: int
    """The number of the last of them."""
    by_model: Mapping[str, Mapping[Outcome, int]] = {}
    """Of each model, where the run has several."""


_Measured = Mapping[str, RunMeasurements]
"""By variant."""
_Key = tuple[int, str, int, tuple[int, ...]]
_Judged = tuple[int, tuple[int, ...]]
"""A run, and its finished scorings."""
_NO_RESULTS = EndedCounts({}, frozenset(), 0, 0)


class _CountCache(Generic[_Of, _Sums]):
    """What was counted lately, up to a number of sums and of times in them; the oldest go first."""

    def __init__(self, times_in: Callable[[_Sums], int] = lambda _: 0) -> None:
        self._lock, self._times_in = threading.Lock(), times_in
        self._kept: OrderedDict[_Of, _Sums] = OrderedDict()
        self._times = 0

    def get_many(self, keys: Iterable[_Of]) -> dict[_Of, _Sums]:
        """Return those of what is wanted that are kept."""
        with self._lock:
            return {each: self._kept[each] for each in keys if each in self._kept}

    def put(self, new_sums: Mapping[_Of, _Sums]) -> None:
        with self._lock:
            for of, sums in new_sums.items():
                self._times += self._times_in(sums) - (self._times_in(self._kept[of]) if of in self._kept else 0)
                self._kept[of] = sums
                self._kept.move_to_end(of)
            while self._kept and (self._times > KEPT_TIMES or len(self._kept) > _KEPT_SUMS):
                self._times -= self._times_in(self._kept.popitem(last=False)[1])


class History(StorePart):
    """The runs of a store, as a model's past."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._known: _CountCache[_Key, _Measured] = _CountCache(
            lambda measured: sum(len(each.times_s) for each in measured.values())
        )
        self._distinct: _CountCache[frozenset[str], int] = _CountCache()
        self._asked: _CountCache[str, str] = _CountCache()
        self._ended: _CountCache[_Judged, EndedCounts] = _CountCache()

    def count_ended(self, run_records: Sequence[Run]) -> list[EndedCounts | None]:
        """Return how the results of each of some runs ended, by their newest checks; of a run that is gone, None."""
        with self._database.read_transaction() as connection:
            rows = _run_rows(connection, [run.id for run in run_records])
            known = self._ended.get_many(key for key, _ in rows.values())
            plans = {rows[run.id][0]: run.plan for run in run_records if run.id in rows}
            several = {key for key, plan in plans.items() if len(plan.targets) * len(plan.variants) > 1}
            grown = {key: number for key, number in rows.values() if known.get(key, _NO_RESULTS).stored != number}
            found = known | _count_runs(connection, grown, known, several)
        self._ended.put(found)
        return [found.get(rows[run.id][0], _NO_RESULTS) if run.id in rows else None for run in run_records]

    def measure_model(self, run_records: Sequence[Run], model: str) -> list[_Measured]:
        """Return what a model, as it was typed, did in each of some runs; of one that is gone, nothing."""
        found: list[_Measured] = []
        with self._database.read_transaction() as connection:
            rows = _run_rows(connection, [run.id for run in run_records])
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

    def distinct_cases(self, run_ids: Iterable[str]) -> int:
        """Return how many different cases some runs have: a case that several of them asked counts once."""
        ids = frozenset(run_ids)
        known = self._distinct.get_many([ids])
        if ids not in known:
            mine = select(runs.c.run_no).where(runs.c.id.in_(ids))
            query = select(func.count(run_cases.c.case_no.distinct())).where(run_cases.c.run_no.in_(mine))
            known[ids] = int(self._value(query))
            self._distinct.put(known)
        return known[ids]

    def cases_digests(self, run_records: Sequence[Run]) -> list[str | None]:
        """Return a digest of the cases of each of some runs, equal where the cases are; of a run that is gone, None.

        Neither models nor the order of the cases matter. A run never changes its cases: each is read once.
        """
        found = self._asked.get_many(run.id for run in run_records)
        alike: dict[bytes, str] = {}  # most runs in a list ask what others in it do, and only one of those is read
        for run in run_records:
            if run.id not in found:
                with self._database.read_transaction() as connection:
                    if digest := _cases_digest(connection, run.number, alike):
                        found[run.id] = digest
        self._asked.put(found)
        return [found.get(run.id) for run in run_records]

    def rescoring_labels(self, run_records: Sequence[Run]) -> list[tuple[str, ...]]:
        """Return how each of some runs was judged again, in turn: the labels of the scorings it is read by.

        Without the first, which came with the replies.

        Empty where the verdicts are those that the run itself made.
        """
        query = select(runs.c.id, scorings.c.label, *LINK_COLUMNS)
        query = query.join_from(scorings, runs, scorings.c.run_no == runs.c.run_no)
        query = query.where(
            runs.c.id.in_([escape_text(run.id) for run in run_records]), scorings.c.finished.is_not(None)
        )
        every: dict[str, dict[Link, str]] = {}
        for run_id, label, *link in self._rows(query.order_by(scorings.c.scoring)):
            every.setdefault(run_id, {})[Link(*link)] = unescape_text(label)
        found: dict[str, list[str]] = {}
        for run_id, labels in every.items():
            used = set(read_by(list(labels))) - {0}
            found[run_id] = [label for link, label in labels.items() if link.number in used]
        # Twice in a row by the same judge is as once.
        return [tuple(label for label, _ in groupby(found.get(run.id, ()))) for run in run_records]


# ── Which cases runs have ──


def _cases_digest(connection: Connection, run_no: int, alike: dict[bytes, str]) -> str | None:
    """Return the digest of a run's cases; `alike` has those that are known, by the numbers of the cases."""
    mine = run_cases.c.run_no == run_no
    listed = select(func.aggregate_strings(cast(run_cases.c.case_no, String), ",")).where(mine)
    numbers: str | None = connection.execute(listed).scalar()
    if numbers is None:
        return None
    key = hashlib.sha256(",".join(sorted(numbers.split(","))).encode()).digest()
    if key not in alike:
        query = select(cases.c.digest).join_from(run_cases, cases).where(mine)
        digest = hashlib.sha256()
        ordered = query.order_by(cases.c.digest).execution_options(yield_per=CHUNK_ROWS)
        for each in connection.scalars(ordered):
            digest.update(each.encode())
        alike[key] = PREFIX + digest.hexdigest()
    return alike[key]


# ── How runs ended ──


def _run_rows(connection: Connection, run_ids: Sequence[str]) -> dict[str, tuple[_Judged, int]]:
    """Return by what the sums of some runs are kept, and how many results each has; without those that are gone."""
    query = select(runs.c.id, runs.c.run_no, runs.c.stored).where(
        runs.c.id.in_([escape_text(each) for each in run_ids])
    )
    rows = connection.execute(query).all()
    finished = select(scorings.c.run_no, *LINK_COLUMNS).where(
        scorings.c.run_no.in_([row.run_no for row in rows]), scorings.c.finished.is_not(None)
    )
    links: dict[int, list[Link]] = {}
    for run_no, *link in connection.execute(finished.order_by(scorings.c.scoring)):
        links.setdefault(run_no, []).append(Link(*link))
    return {row.id: ((row.run_no, tuple(read_by(links.get(row.run_no, ())))), row.stored) for row in rows}


def _count_runs(
    connection: Connection,
    grown: Mapping[_Judged, int],
    known: Mapping[_Judged, EndedCounts],
    several: Container[_Judged],
) -> dict[_Judged, EndedCounts]:
    """Count runs that have so many results now: those that nobody has counted yet together, of others what is new.

    What was judged again is counted anew; `several` says which have more than one model or way of asking.
    """
    found = dict.fromkeys(grown, _NO_RESULTS)

    def add(rows: Iterable[Sequence[Any]], keys: Iterable[_Judged]) -> None:
        by_run = {key[0]: key for key in keys}
        for run_no, model, variant, outcome, number, last in rows:
            key, typed = by_run[run_no], unescape_text(model)
            sums, ended = found[key], Outcome(outcome)
            found[key] = EndedCounts(
                _plus(sums.outcomes, ended, number),
                sums.ways | {(model, variant)} if ended in (Outcome.PASSED, Outcome.FAILED) else sums.ways,
                grown[key],
                max(sums.last, last),
                {**sums.by_model, typed: _plus(sums.by_model.get(typed, {}), ended, number)},
            )

    once = [key for key in grown if key[1] == (0,)]
    for many in (False, True):
        if beginners := [key for key in once if key not in known and (key in several) is many]:
            of_them = results.c.run_no.in_([run_no for run_no, _ in beginners])
            add(connection.execute(_count_query(of_them, many=many)).all(), beginners)
    for key in grown:
        if key[1] != (0,):
            add(count_outcomes(connection, *key, results.c.run_no, results.c.model, results.c.variant), [key])
        elif key in known:
            found[key] = known[key]
            new = _count_query(results.c.run_no == key[0], results.c.seq > known[key].last, many=key in several)
            add(connection.execute(new).all(), [key])
    return found


def _plus(counts: Mapping[Outcome, int], outcome: Outcome, number: int) -> Mapping[Outcome, int]:
    return {**counts, outcome: counts.get(outcome, 0) + number}


def _count_query(*conditions: ColumnElement[bool], many: bool) -> Select[Any]:
    """Return the query of how results ended; unless there are many ways of asking, the index alone answers it."""
    ways = [results.c.model, results.c.variant] if many else [literal(""), literal("")]
    query = select(results.c.run_no, *ways, results.c.outcome, func.count(), func.max(results.c.seq)).where(*conditions)
    return query.group_by(results.c.run_no, results.c.outcome, *(ways if many else ()))


# ── A model over time ──


def _measure_run(connection: Connection, run_no: int, model: str, among: Sequence[int]) -> _Measured:
    mine = (results.c.run_no == run_no, results.c.model == escape_text(model))
    outcomes: dict[str, dict[Outcome, int]] = {}
    for variant, outcome, number, _ in count_outcomes(connection, run_no, among, results.c.variant, where=mine[1:]):
        outcomes.setdefault(variant, {})[outcome] = number
    timed = select(results.c.total_s).where(*mine, results.c.variant == "text", results.c.cached.is_(False))
    timed = timed.where(results.c.total_s.is_not(None)).order_by(results.c.total_s)
    times = array("d", connection.scalars(timed)) if "text" in outcomes else array("d")
    return {
        unescape_text(variant): RunMeasurements(counts, times if variant == "text" else array("d"))
        for variant, counts in outcomes.items()
    }
