"""Virtual time for tests: an event loop that jumps to the next timer instead of waiting for it.

A call at the pace of a microphone then takes only as long as its computation. Time moves only when the loop has nothing
else to do: it stops while a thread of an executor or a child process works, and while something is on its way
through a socket of this process. A thread that waits for a coroutine of the loop does not work.
`clock.monotonic()` and `loop.time()` are the same number.
"""

import asyncio
import asyncio.futures
import selectors
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch

from pramana import clock

GRACE_S = 0.0002
"""How long the kernel may take to pass bytes from one socket of this process to another."""
POLL_S = 0.05
"""How often work outside the loop is polled; its end also wakes the loop at once."""
TIMER_LATENESS_S = 0.000001
"""How late each timer fires: as on any machine, a wait is never shorter than requested."""
STUCK_AFTER_S = 300.0
"""Real seconds after which a thread or process is assumed to wait for the loop."""
REAL_LOOP = asyncio.events.new_event_loop


class VirtualClock(clock.Clock):
    """Only `advance` and `sleep` move it."""

    def __init__(self) -> None:
        self._seconds, self._began = time.monotonic(), datetime.now(UTC)
        self._start = self._seconds
        self._lock = threading.Lock()

    def now(self) -> datetime:
        return self._began + timedelta(seconds=self._seconds - self._start)

    def monotonic(self) -> float:
        return self._seconds

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.001))  # another thread or process may be what it waits for
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._seconds += max(0.0, seconds)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop on a virtual clock."""

    def __init__(self, virtual: VirtualClock) -> None:
        self.virtual, self.working = virtual, 0
        """Number of executor jobs and child processes that work outside the loop."""
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self.virtual.monotonic()

    async def subprocess_exec(self, *arguments: Any, **options: Any) -> Any:
        transport, protocol = await super().subprocess_exec(*arguments, **options)
        ends: Any = transport
        self.watch(asyncio.ensure_future(ends._wait(), loop=self))
        return transport, protocol

    def watch(self, ends: "asyncio.Future[Any]") -> None:
        """Stop the clock until a future is done."""
        self.working += 1
        ends.add_done_callback(lambda _: self._end_work())

    async def await_for_thread(self, coroutine: Any) -> Any:
        """Await a coroutine for a thread, which does no work meanwhile."""
        self.working -= 1
        try:
            return await coroutine
        finally:
            self.working += 1

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as asyncio has it
        """Join the executor's threads, which newer Pythons give five minutes on the loop's clock."""
        self.working += 1
        try:
            await super().shutdown_default_executor(*(() if timeout is None else (timeout,)))
        finally:
            self.working -= 1

    def _end_work(self) -> None:
        self.working -= 1


class _Selector(selectors.SelectSelector):
    """Advances the clock instead of waiting. `select` because its timeouts are exact; epoll rounds up to 1 ms."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if found or (timeout is not None and timeout <= 0):
            return found
        began = time.monotonic()
        while self._loop.working > 0 and not found:
            found = super().select(POLL_S)
            if not found and time.monotonic() - began > STUCK_AFTER_S:
                raise RuntimeError("virtual time stands still: does a thread wait for this loop? Use real_time()")
        if found or timeout is None:
            return found or super().select(POLL_S)
        if len(self.get_map()) > 1 and (found := super().select(GRACE_S)):  # one is how threads wake the loop
            return found
        self._loop.virtual.advance(timeout + TIMER_LATENESS_S)
        return []


@contextmanager
def virtual_time() -> Iterator[VirtualClock]:
    """Put every event loop created in this block, and the program's clock, on virtual time."""
    virtual, wrap, submit = VirtualClock(), asyncio.futures.wrap_future, asyncio.run_coroutine_threadsafe

    def wrap_watched_future(future: Any, *, loop: Any = None) -> Any:
        loop = loop or asyncio.get_running_loop()
        found = wrap(future, loop=loop)
        if isinstance(loop, VirtualLoop):
            loop.watch(found)
        return found

    def submit_for_thread(coroutine: Any, loop: Any) -> Any:
        return submit(loop.await_for_thread(coroutine) if isinstance(loop, VirtualLoop) else coroutine, loop)

    with (
        clock.use_clock(virtual),
        patch.object(asyncio.events, "new_event_loop", lambda: VirtualLoop(virtual)),
        patch.object(asyncio.futures, "wrap_future", wrap_watched_future),
        patch.object(asyncio, "wrap_future", wrap_watched_future),
        patch.object(asyncio, "run_coroutine_threadsafe", submit_for_thread),
    ):
        yield virtual


@contextmanager
def real_time() -> Iterator[None]:
    """Use the machine's time within a block or, as a decorator, for one test of a module that runs on virtual time.

    For tests in which a separate thread waits for the event loop: virtual time would stop for both.
    """
    with clock.use_clock(clock.Clock()), patch.object(asyncio.events, "new_event_loop", REAL_LOOP):
        yield
