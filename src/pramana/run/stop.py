"""Ending a run early: one reason, told once, and nobody goes on waiting."""

import asyncio
from collections.abc import Callable

from pramana.errors import PramanaError


class Stop:
    """Ends a run early: no new work is begun, what is under way is finished, waiting ends at once."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.error: PramanaError | None = None
        self._told = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._then: list[Callable[[], None]] = []

    def __call__(self, reason: str, error: PramanaError | None = None) -> None:
        """Stop, for the first reason given; may be called by a signal's handler."""
        if self.reason is None:
            self.reason, self.error = reason, error
            if self._loop:
                self._loop.call_soon_threadsafe(self._tell)  # a handler does not wake a loop that sleeps

    def __bool__(self) -> bool:
        return self.reason is not None

    def then(self, do: Callable[[], None]) -> None:
        """Have something done, on this event loop, when told to stop."""
        self._loop = asyncio.get_running_loop()
        self._then.append(do)

    async def sleep(self, seconds: float) -> None:
        """Sleep that long, or until told to stop."""
        self._loop = asyncio.get_running_loop()
        if self:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._told.wait()
        except TimeoutError:
            return

    def _tell(self) -> None:
        self._told.set()
        for do in self._then:
            do()
