"""What a run amounts to, and what came of comparing two, kept for pages and answers that are asked for again and again.

Of a run that grows, only what was stored since somebody last asked is read and added up. A run that was judged again is
added up and compared anew.
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
"""Runs whose sums are kept."""
MAX_COMPARISONS = 16
"""Pages of one comparison are asked for one after the other."""


@dataclass(slots=True)
class _RunSums:
    tally: Tally
    spread: SpreadTally
    scorings: tuple[int, ...]
    lock: threading.Lock
    last: int = 0
    result: tuple[Summary, RunTimes] | None = None


class RunSummaries:
    """The sums of the runs of a store. Safe to share among threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[str, _RunSums] = OrderedDict()
        self._lock = threading.Lock()

    def summarise(self, run: Run) -> tuple[Summary, RunTimes]:
        """Return the summary of a run as it stands, and how its times are spread."""
        scorings = tuple(self._store.scorings.list(run))
        with self._lock:
            sums = self._kept.get(run.id)
            if sums is None or sums.scorings != scorings:
                sums = _RunSums(Tally.for_run(run), SpreadTally.for_run(run), scorings, threading.Lock())
            put_in_cache(self._kept, run.id, sums, MAX_RUNS)
        with sums.lock:
            for seq, case, result in self._store.results.iterate_numbered_with_cases(run, sums.last):
                sums.tally.add(case, result)
                sums.spread.add(result)
                sums.last, sums.result = seq, None
            if sums.result is None:
                sums.result = sums.tally.summary(), sums.spread.times()
            return sums.result


@dataclass(slots=True)
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    value: Any = None


class ComputationCache:
    """The last values that were computed: each of them once, however many threads want it at the same time."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], _Value]) -> _Value:
        """Return the value of a key, computed now or before."""
        with self._lock:
            entry = self._kept.get(key) or _Entry()
            put_in_cache(self._kept, key, entry, MAX_COMPARISONS)
        with entry.lock:
            if entry.value is None:
                entry.value = compute()
            found: _Value = entry.value
            return found
