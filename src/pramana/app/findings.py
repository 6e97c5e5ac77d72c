"""What a run amounts to, kept while it grows: only what was stored since somebody last asked is read and added up.

For pages and answers that are asked for again and again. A run that was judged again is added up anew.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass

from pramana.analyse.spread import RunTimes, SpreadTally
from pramana.analyse.summary import Summary, Tally
from pramana.model import Run
from pramana.store.runs import Store

KEPT = 32
"""Runs whose sums are kept."""


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
        scorings = tuple(self._store.scorings(run.id))
        with self._lock:
            sums = self._kept.get(run.id)
            if sums is None or sums.scorings != scorings:
                sums = _Sums(Tally.of(run), SpreadTally.of(run), scorings, threading.Lock())
            self._kept[run.id] = sums
            self._kept.move_to_end(run.id)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        with sums.lock:
            for seq, case, result in self._store.numbered_pairs(run.id, sums.last):
                sums.tally.add(case, result)
                sums.spread.add(result)
                sums.last, sums.made = seq, None
            if sums.made is None:
                sums.made = sums.tally.summary(), sums.spread.times()
            return sums.made
