"""Caches of run summaries and comparisons, which pages and API clients request repeatedly.

For a run in progress, only the results stored since the last request are read and added. A rescored run is summarised
and compared anew. How far judges agree with people is computed again after each new label.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pramana.analyse.spread import RunTimes, SpreadTally
from pramana.analyse.summary import ResultTally, Summary
from pramana.app.access import put_in_cache
from pramana.app.calibrations import calibrate_judges
from pramana.model import Run
from pramana.store.store import Store

_Value = TypeVar("_Value")
MAX_CACHED_RUNS = 32
"""Runs whose summaries are cached."""
MAX_CACHED_COMPARISONS = 16
"""Comparisons that are cached, since the pages of one are requested one after the other; as many watches of a
community."""


@dataclass(slots=True)
class _CachedSummary:
    result_tally: ResultTally
    spread_tally: SpreadTally
    scoring_numbers: tuple[int, ...]
    lock: threading.Lock
    last_seq: int = 0
    calibration_state: Hashable = None
    """The state of the labels and the last result at the last calibration, which is stale once they differ."""
    summary_and_times: tuple[Summary, RunTimes] | None = None


class RunSummaries:
    """The cached summaries of a store's runs. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cache: OrderedDict[str, _CachedSummary] = OrderedDict()
        self._lock = threading.Lock()

    def summarise(self, run: Run) -> tuple[Summary, RunTimes]:
        """Return the current summary of a run, and the distribution of its times."""
        scorings = tuple(self._store.scorings.read_scoring_labels(run))
        with self._lock:
            sums = self._cache.get(run.reference)
            if sums is None or sums.scoring_numbers != scorings:
                sums = _CachedSummary(ResultTally.for_run(run), SpreadTally.for_run(run), scorings, threading.Lock())
            put_in_cache(self._cache, run.reference, sums, MAX_CACHED_RUNS)
        with sums.lock:
            for seq, case, result in self._store.results.iterate_numbered_with_cases(run, sums.last_seq):
                sums.result_tally.add(case, result)
                sums.spread_tally.add(result)
                sums.last_seq, sums.summary_and_times = seq, None
            if sums.result_tally.has_judges:
                labels = self._store.labels.read_state()
                if sums.calibration_state != (labels, sums.last_seq):
                    sums.calibration_state = labels, sums.last_seq
                    sums.result_tally.set_calibrations(calibrate_judges(self._store, run))
                    sums.summary_and_times = None
            if sums.summary_and_times is None:
                sums.summary_and_times = sums.result_tally.summary(), sums.spread_tally.summarise_times()
            return sums.summary_and_times


@dataclass(slots=True)
class _CacheEntry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    value: Any = None


class ComputationCache:
    """A cache of the latest computed values; each is computed once, even if several threads request it.

    A computation that fails is not cached, and removes nothing from the cache.
    """

    def __init__(self) -> None:
        self._cache: OrderedDict[Hashable, _CacheEntry] = OrderedDict()
        self._computing: dict[Hashable, _CacheEntry] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], _Value]) -> _Value:
        """Return the value of a key; compute it if it is not cached."""
        with self._lock:
            entry = self._cache.get(key) or self._computing.setdefault(key, _CacheEntry())
        with entry.lock:
            try:
                if entry.value is None:
                    entry.value = compute()
            finally:
                with self._lock:
                    if self._computing.get(key) is entry:
                        del self._computing[key]
            with self._lock:
                put_in_cache(self._cache, key, entry, MAX_CACHED_COMPARISONS)
            found: _Value = entry.value
            return found
