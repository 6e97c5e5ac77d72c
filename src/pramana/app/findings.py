"""What a run amounts to, and what came of comparing two, kept for pages and answers that are asked for again and again.

Of a run that grows, only what was stored since somebody last asked is read and added up. A run that was judged again is
added up and compared anew.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from pramana.analyse.spread import RunTimes, SpreadTally
from pramana.analyse.summary import Summary, Tally
from pramana.app.access import remember
from pramana.app.comparison_views import WholeComparisonView, whole_view
from pramana.app.sides import Source, compared
from pramana.model import Run
from pramana.store.store import Store

KEPT = 32
"""Runs whose sums are kept."""
KEPT_COMPARISONS = 16
"""Pages of one comparison are asked for one after the other."""


@dataclass(slots=True)
class _Sums:
    tally: Tally
    spread: SpreadTally
    scorings: tuple[int, ...]
    lock: threading.Lock
    last: int = 0
    made: tuple[Summary, RunTimes] | None = None


class Findings:
    """The sums of the runs of a store. Safe to share among threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[str, _Sums] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, run: Run) -> tuple[Summary, RunTimes]:
        """Return the summary of a run as it stands, and how its times are spread."""
        scorings = tuple(self._store.scorings.list(run))
        with self._lock:
            sums = self._kept.get(run.id)
            if sums is None or sums.scorings != scorings:
                sums = _Sums(Tally.of(run), SpreadTally.of(run), scorings, threading.Lock())
            remember(self._kept, run.id, sums, KEPT)
        with sums.lock:
            for seq, case, result in self._store.results.numbered_pairs(run, sums.last):
                sums.tally.add(case, result)
                sums.spread.add(result)
                sums.last, sums.made = seq, None
            if sums.made is None:
                sums.made = sums.tally.summary(), sums.spread.times()
            return sums.made


@dataclass(slots=True)
class _Made:
    lock: threading.Lock = field(default_factory=threading.Lock)
    view: WholeComparisonView | None = None


class Comparisons:
    """Comparisons that were made, each until one of its runs grows or is judged again. Safe to share among threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: OrderedDict[tuple[Any, ...], _Made] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, before: Source, after: Source, *, any_suite: bool, any_judge: bool) -> WholeComparisonView:
        """Return what came of comparing two stored runs."""
        key = (before.name, after.name, any_suite, any_judge, *map(self._state, (before, after)))
        with self._lock:
            made = self._kept.get(key) or _Made()
            remember(self._kept, key, made, KEPT_COMPARISONS)
        with made.lock:  # who asks for the same waits for it, and does not work it out beside
            if made.view is None:
                made.view = whole_view(compared(before, after, any_suite=any_suite, any_judge=any_judge))
            return made.view

    def _state(self, source: Source) -> tuple[Any, ...]:
        run = self._store.runs.read(source.where)
        return run.stored, run.status, run.finished, *self._store.scorings.list(run)
