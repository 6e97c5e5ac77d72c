"""Cancels requests that take too long.

All requests of an account have the same timeout, so the oldest always expires first, and one timer serves them all. A
timer per request, as in `asyncio.timeout` and aiohttp, costs a seventh of a whole request.
"""

import asyncio
from typing import Any


class Deadlines:
    """Applies a timeout to tasks, from `start_timeout` to `stop_timeout`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end_times: dict[asyncio.Task[Any], float] = {}
        self._expired_tasks: set[asyncio.Task[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def start_timeout(self) -> asyncio.Task[Any]:
        """Start the timeout of the current task, and return the task."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None  # noqa: S101 - requests always run in a task
        self._end_times[task] = loop.time() + self.seconds
        if self._timer is None:
            self._timer = loop.call_later(self.seconds, self._cancel_expired_tasks, loop)
        return task

    def stop_timeout(self, task: asyncio.Task[Any]) -> None:
        """Stop the timeout of the task."""
        self._end_times.pop(task, None)
        if task in self._expired_tasks:  # the cancellation was swallowed, and the request completed after all
            self._expired_tasks.discard(task)
            task.uncancel()
        if self._timer and not self._end_times:  # another event loop needs its own timer
            self._timer.cancel()
            self._timer = None

    def has_expired(self, task: asyncio.Task[Any]) -> bool:
        """Return whether the task was cancelled by its timeout and by nothing else."""
        if task not in self._expired_tasks:
            return False
        self._expired_tasks.discard(task)
        return task.uncancel() == 0

    def _cancel_expired_tasks(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for task, end in list(self._end_times.items()):
            if end > now:
                self._timer = loop.call_at(end, self._cancel_expired_tasks, loop)
                return
            del self._end_times[task]
            self._expired_tasks.add(task)
            task.cancel()
