"""Requests that take too long are cancelled.

All requests of one account have the same time, so whoever began first is first to end, and one timer serves them all; a
timer for each, as `asyncio.timeout` and aiohttp have it, costs a seventh of a whole request.
"""

import asyncio
from typing import Any


class Deadlines:
    """Watches over tasks, each from its `begin` to its `end`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._ends: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> asyncio.Task[Any]:
        """Watch over the task that calls, and return it."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None  # noqa: S101 - requests are made in tasks
        self._ends[task] = loop.time() + self.seconds
        if self._timer is None:
            self._timer = loop.call_later(self.seconds, self._cancel_late, loop)
        return task

    def end(self, task: asyncio.Task[Any]) -> None:
        """Watch over the task no longer."""
        self._ends.pop(task, None)
        if task in self._late:  # whom it asked took no notice of the end, and has answered after all
            self._late.discard(task)
            task.uncancel()
        if self._timer and not self._ends:  # another event loop needs a timer of its own
            self._timer.cancel()
            self._timer = None

    def has_expired(self, task: asyncio.Task[Any]) -> bool:
        """Tell whether it was we who cancelled the task, and nobody else did."""
        if task not in self._late:
            return False
        self._late.discard(task)
        return task.uncancel() == 0

    def _cancel_late(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for task, end in list(self._ends.items()):
            if end > now:
                self._timer = loop.call_at(end, self._cancel_late, loop)
                return
            del self._ends[task]
            self._late.add(task)
            task.cancel()
