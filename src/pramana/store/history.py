"""A model over time: what its runs amount to, run by run, kept in memory once it was counted.

Results are only ever added, so that what a run of so many results and scorings amounts to never changes: whoever looks
again only counts what is new. Times are kept as they are, a few bytes each, so that those of a day can be put together.
"""

import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from sqlalchemy import Connection, func, select

from pramana.model import SEVERITY, Outcome, Run
from pramana.store.engine import Database
from pramana.store.schema import results, run_cases, runs
from pramana.store.scoring import finished_scorings, levels
from pramana.store.text import restored, stored

KEPT_TIMES = 4_000_000
"""Of all runs together: 32 MB."""
_KEPT_SUMS = 10_000


class Measured(Struct, frozen=True):
    """What a model did in a run, asked in one way."""

    outcomes: Mapping[Outcome, int]
    times_s: "array[float]"
    """How long each reply took that was written and not taken from the cache, in order."""


_Measured = Mapping[str, Measured]
"""By variant."""
_Key = tuple[int, str, int, tuple[int, ...]]


class History:
    """The runs of a store, as a model's past."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._known: OrderedDict[_Key, _Measured] = OrderedDict()
        self._distinct: OrderedDict[frozenset[str], int] = OrderedDict()
        self._times = 0

    def measured(self, of: Sequence[Run], model: str) -> list[_Measured]:
        """Return what a model, as it was typed, did in each of some runs; of one that is gone, nothing."""
        found: list[_Measured] = []
        for run in of:
            with self._database.reading() as connection:
                query = select(runs.c.run_no, runs.c.stored).where(runs.c.id == run.id)
                row = connection.execute(query).first()
                if row is None:
                    found.append({})
                    continue
                among = tuple(finished_scorings(connection, row.run_no))
                key = (row.run_no, model, row.stored, among)
                with self._lock:
                    known = self._known.get(key)
                    if known is not None:
                        self._known.move_to_end(key)
                if known is None:
                    known = _measure(connection, row.run_no, model, among)
                    self._keep(key, known)
            found.append(known)
        return found

    def distinct_cases(self, run_ids: Iterable[str]) -> int:
        """Return how many different cases some runs have: a case that several of them asked counts once."""
        ids = frozenset(run_ids)
        with self._lock:
            known = self._distinct.get(ids)
        if known is not None:
            return known
        mine = select(runs.c.run_no).where(runs.c.id.in_(ids))
        query = select(func.count(run_cases.c.case_no.distinct())).where(run_cases.c.run_no.in_(mine))
        with self._database.reading() as connection:
            counted = int(connection.execute(query).scalar_one())
        with self._lock:
            self._distinct[ids] = counted
            if len(self._distinct) > _KEPT_SUMS:
                self._distinct.popitem(last=False)
        return counted

    def _keep(self, key: _Key, measured: _Measured) -> None:
        with self._lock:
            if key not in self._known:
                self._known[key] = measured
                self._times += _size(measured)
            while self._known and (self._times > KEPT_TIMES or len(self._known) > _KEPT_SUMS):
                _, dropped = self._known.popitem(last=False)
                self._times -= _size(dropped)


def _size(measured: _Measured) -> int:
    return sum(len(each.times_s) for each in measured.values())


def _measure(connection: Connection, run_no: int, model: str, among: Sequence[int]) -> _Measured:
    mine = (results.c.run_no == run_no, results.c.model == stored(model))
    outcomes: dict[str, dict[Outcome, int]] = {}
    if list(among) == [0]:
        counted = select(results.c.variant, results.c.outcome, func.count()).where(*mine)
        for variant, outcome, number in connection.execute(counted.group_by(results.c.variant, results.c.outcome)):
            outcomes.setdefault(variant, {})[Outcome(outcome)] = number
    else:
        judged = levels(run_no, among).subquery()
        joined = results.join(judged, judged.c.seq == results.c.seq)
        again = select(results.c.variant, judged.c.level, func.count()).select_from(joined).where(*mine)
        for variant, level, number in connection.execute(again.group_by(results.c.variant, judged.c.level)):
            outcomes.setdefault(variant, {})[SEVERITY[level]] = number
    timed = select(results.c.total_s).where(*mine, results.c.variant == "text", results.c.cached.is_(False))
    timed = timed.where(results.c.total_s.is_not(None)).order_by(results.c.total_s)
    times = array("d", connection.scalars(timed)) if "text" in outcomes else array("d")
    return {
        restored(variant): Measured(counts, times if variant == "text" else array("d"))
        for variant, counts in outcomes.items()
    }
