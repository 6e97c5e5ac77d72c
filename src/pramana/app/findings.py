"""Caches of run summaries and comparisons, which pages and API clients request repeatedly.

For a run in progress, only the results stored since the last request are read and added. A rescored run is summarised
and compared anew.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pramana.analyse.spread import RunTimes, SpreadTally
from pramana.analyse.summary import Summary, Tally
from pramana.app.access import put_in_cache
from pramana.model import Run
from pramana.store.store import Store

_Value = TypeVar("_Value")
MAX_RUNS = 32
"""Runs whose summaries are cached."""
MAX_COMPARISONS = 16
"""Comparisons that are cached, since the pages of one are requested one after the other."""


@dataclass(slots=True)
class _RunSums:
    tally: Tally
    spread: SpreadTally
    scorings: tuple[int, ...]
    lock: threading.Lock
    last_seq: int = 0
    result: tuple[Summary, RunTimes] | None = None


class RunSummaries:
    """The cached summaries of a store's runs. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: OrderedDict[str, _RunSums] = OrderedDict()
        self._lock = threading.Lock()

    def summarise(self, run: Run) -> tuple[Summary, RunTimes]:
        """Return the current summary of a run, and the distribution of its times."""
        scorings = tuple(self._store.scorings.list(run))
        with self._lock:
            sums = self._cache.get(run.reference)
            if sums is None or sums.scorings != scorings:
                sums = _RunSums(Tally.for_run(run), SpreadTally.for_run(run), scorings, threading.Lock())
            put_in_cache(self._cache, run.reference, sums, MAX_RUNS)
        with sums.lock:
            for seq, case, result in self._store.results.iterate_numbered_with_cases(run, sums.last_seq):
                sums.tally.add(case, result)
                sums.spread.add(result)
                sums.last_seq, sums.result = seq, None
            if sums.result is None:
                sums.result = sums.tally.summary(), sums.spread.times()
            return sums.result


@dataclass(slots=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    value: Any = None


class ComputationCache:
    """A cache of the latest computed values; each is computed once, even if several threads request it."""

    def __init__(self) -> None:
        self._cache: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], _Value]) -> _Value:
        """Return the value of a key; compute it if it is not cached."""
        with self._lock:
            entry = self._cache.get(key) or _Entry()
            put_in_cache(self._cache, key, entry, MAX_COMPARISONS)
        with entry.lock:
            if entry.value is None:
                entry.value = compute()
            found: _Value = entry.value
            return found
