"""How late a process runs: a task that wakes up again and again and does nothing else."""

import asyncio
from collections import deque
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

from pramana import clock

MAX_KEPT_TICKS = 20_000
IDLE_TIMER_LATENESS_S = 0.001
"""How late a timer fires on an idle machine."""
TICK_S = 0.005
PROCESSOR_WAIT_LOOKBACK_S = 0.1
"""How long before an event a wait may begin and still delay it."""
SCHEDSTAT_FILE = Path("/proc/thread-self/schedstat")
"""Where Linux reports how long a thread has run and how long it has waited for a processor."""


class Ticker:
    """Records for each tick how late it is and how long the thread has waited for a processor so far; in seconds."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._ticks: deque[tuple[float, float, float]] = deque(maxlen=MAX_KEPT_TICKS)
        """When each tick was due, when it ran, and the thread's total wait for a processor by then."""

    @property
    def list_lateness_s(self) -> list[float]:
        """Return how late other processes made each tick; its whole lateness where the system reports no waits."""
        late = [came - due for due, came, _ in self._ticks]
        if not SCHEDSTAT_FILE.exists():
            return late
        totals = [waited for _, _, waited in self._ticks]
        waits = [now - before for before, now in pairwise([totals[0] if totals else 0.0, *totals])]
        return [min(each, wait + IDLE_TIMER_LATENESS_S) for each, wait in zip(late, waits, strict=True)]

    def processor_wait_s(self, since: float, until: float) -> float:
        """Return how long this thread was runnable but waited for a processor between two moments.

        Delays it causes itself, such as a lock or its own work, do not count; 0 where the system reports no waits.
        """
        after = before = read_processor_wait_s()
        for _, came, waited in reversed(self._ticks):
            if came >= until:
                after = waited
            before = waited
            if came <= since:
                break
        return after - before

    async def __aenter__(self) -> Self:
        self._ticking = asyncio.create_task(self._record_ticks())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ticking.cancel()
        with suppress(asyncio.CancelledError):
            await self._ticking

    async def _record_ticks(self) -> None:
        due = clock.monotonic()
        while True:
            now = clock.monotonic()
            self._ticks.append((due, now, read_processor_wait_s()))
            due += (int((now - due) / self._period_s) + 1) * self._period_s
            await asyncio.sleep(max(0.0, due - clock.monotonic()))


def read_processor_wait_s() -> float:
    """Return how long this thread has waited for a processor since it began; 0 where the system does not report it."""
    try:
        return int(SCHEDSTAT_FILE.read_bytes().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
