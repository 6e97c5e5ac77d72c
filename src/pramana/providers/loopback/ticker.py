"""How late a process is: a task that wants to run again and again, and does nothing else."""

import asyncio
from collections import deque
from contextlib import suppress
from types import TracebackType
from typing import Self

from pramana import clock

KEPT = 50_000


class Ticker:
    """Notes the lateness of each tick for as long as the context lasts; seconds."""

    def __init__(self, period_s: float) -> None:
        self._period_s = period_s
        self._ticks: deque[tuple[float, float]] = deque(maxlen=KEPT)
        """When each was due, and when it came."""
        self._due = 0.0

    @property
    def lateness(self) -> list[float]:
        return [came - due for due, came in self._ticks]

    def worst(self, since: float, until: float) -> float:
        """Return the lateness of the latest tick that was due or came in a span of time, or is overdue now."""
        ticks = [*self._ticks, (self._due, clock.monotonic())]
        return max((came - due for due, came in ticks if came >= since and due <= until), default=0.0)

    async def __aenter__(self) -> Self:
        self._due = clock.monotonic() + self._period_s
        self._ticking = asyncio.create_task(self._tick())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ticking.cancel()
        with suppress(asyncio.CancelledError):
            await self._ticking

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(max(0.0, self._due - clock.monotonic()))
            now = clock.monotonic()
            self._ticks.append((self._due, now))
            missed = int((now - self._due) / self._period_s)
            self._due += (missed + 1) * self._period_s
