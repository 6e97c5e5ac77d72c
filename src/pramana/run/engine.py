"""Cases in, a stream of results out: bounded workers send requests and judge replies, and results come in batches.

There are as many tasks as concurrent requests, never one per case: work is drawn when a worker is free, so a run of a
million cases needs no more memory than one of a thousand. A failed request is a result with a failure; only an error
that affects every further request (a wrong key, a spent budget) ends the stream early. The engine does not know that a
database exists.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Generic, TypeVar

from msgspec import Struct

from pramana.errors import PramanaError, Stopped
from pramana.model import Result

INTERRUPTED_BY_USER_REASON = "interrupted by the user"
"""The reason of a run that was stopped by Ctrl-C, or by a function that raised `KeyboardInterrupt`."""


class Stop:
    """Ends a run early: no new work starts, requests in flight finish, waits end at once."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.error: PramanaError | None = None
        self._interrupt: KeyboardInterrupt | None = None
        self._stopped = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._callbacks: list[Callable[[], None]] = []

    def __call__(self, reason: str, error: PramanaError | None = None) -> None:
        """Stop, with the first reason given. Safe to call from a signal handler, from any thread, and after the run."""
        if self.reason is None:
            self.reason, self.error = reason, error
            if self._loop:
                with suppress(RuntimeError):  # the run has just ended, and its event loop with it
                    self._loop.call_soon_threadsafe(
                        self._call_callbacks
                    )  # a signal handler does not wake a sleeping loop

    def __bool__(self) -> bool:
        return self.reason is not None

    def interrupt(self, error: KeyboardInterrupt) -> None:
        """Stop because a user's function raised this; `reraise_user_interrupt` raises it once the work has ended."""
        self._interrupt = error
        self(INTERRUPTED_BY_USER_REASON)

    def reraise_user_interrupt(self) -> None:
        """Raise again the `KeyboardInterrupt` that a user's function raised, if any."""
        if self._interrupt is not None:
            raise self._interrupt

    def add_callback(self, callback: Callable[[], None]) -> None:
        """Register a callback for the stop, on this event loop; if already stopped, it is called soon."""
        self._loop = asyncio.get_running_loop()
        self._callbacks.append(callback)
        if self:  # it may have been stopped before it knew this loop
            self._loop.call_soon(callback)

    async def sleep(self, seconds: float) -> None:
        """Sleep, but no longer than until the stop."""
        self._loop = asyncio.get_running_loop()
        if self:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            return

    def _call_callbacks(self) -> None:
        self._stopped.set()
        for do in self._callbacks:
            do()


# ── The stream ──

Work = TypeVar("Work")
Asked = TypeVar("Asked")
MAX_BUFFERED_RESULTS = 1_000
BATCH_SIZE = 64
"""Results are finished in batches: between two requests the processor's instruction cache goes cold, and the same steps
take three times as long."""
MAX_BATCH_WAIT_S = 0.02
"""How long the first result of a batch may wait for the others."""


class WorkFeed(Generic[Work]):
    """Draws work in chunks: fetching a chunk may block, so a thread does it; the event loop uses its items.

    A chunk may be lazy. The cost of creating an item belongs on the event loop, where no other thread competes for the
    interpreter's lock: in a thread it costs three times as much. While one chunk is used, the next is fetched.
    """

    def __init__(self, chunks: Iterator[Iterable[Work]]) -> None:
        self._chunks = chunks
        self._chunk: Iterator[Work] = iter(())
        self._ready: list[Work] = []
        self._next_chunk: asyncio.Task[Iterable[Work] | None] | None = None
        self._is_exhausted = False

    def next_ready(self) -> Work | None:
        """Return the next item if one is available without waiting, else None."""
        if not self._ready:
            self._ready = list(islice(self._chunk, BATCH_SIZE))
            self._ready.reverse()
        return self._ready.pop() if self._ready else None

    async def next(self) -> Work | None:
        """Return the next item, or None if there are no more."""
        while True:
            if (work := self.next_ready()) is not None:
                return work
            if self._is_exhausted:
                return None
            coming = self._next_chunk = self._next_chunk or self._read_next_chunk()
            await asyncio.wait((coming,))
            if self._next_chunk is coming:  # otherwise another worker has taken it
                chunk = coming.result()
                self._is_exhausted, self._next_chunk = chunk is None, None if chunk is None else self._read_next_chunk()
                self._chunk = iter(chunk or ())

    async def close(self) -> None:
        """Wait for the chunk being fetched, and discard it."""
        if self._next_chunk:
            await asyncio.gather(self._next_chunk, return_exceptions=True)

    def _read_next_chunk(self) -> "asyncio.Task[Iterable[Work] | None]":
        return asyncio.create_task(asyncio.to_thread(next, self._chunks, None))


class ResultBackpressure:
    """Holds back new work while too many results are in flight or not yet taken.

    Work is drawn when there is room; call `record_taken` when a result is used, from any thread. A run that stops does
    not wait.
    """

    def __init__(self, size: int) -> None:
        self._size, self._begun_count, self._taken_count = size, 0, 0
        self._room = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def draw_when_free(self, feed: WorkFeed[Work], stop: Stop) -> Work | None:
        """Return the next item once there is room; None if there are no more, or the run stops."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            stop.add_callback(self._room.set)
        while not stop and self._begun_count - self._taken_count >= self._size:
            self._room.clear()
            if (
                self._begun_count - self._taken_count >= self._size
            ):  # also true after clearing the event: nothing was taken
                await self._room.wait()
        self._begun_count += 1
        piece = None if stop else feed.next_ready() or await feed.next()
        if piece is None:
            self._begun_count -= 1
            self._room.set()
        return piece

    def record_taken(self) -> None:
        """Record that one more result was taken."""
        self._taken_count += 1
        if self._loop:
            with suppress(RuntimeError):  # the run has ended, and its event loop with it
                self._loop.call_soon_threadsafe(self._room.set)


class WorkerPool(Struct, Generic[Work, Asked], frozen=True):
    """The workers of one model: a slow or limited provider never delays the others."""

    feed: WorkFeed[Work]
    worker_count: int
    ask: Callable[[Work], Awaitable[Asked]]
    """The part that waits; a `PramanaError` raised here ends the whole stream."""
    finish: Callable[[Asked], Result]
    """The part that does not wait."""


def identity(result: Result) -> Result:
    """Return the result unchanged: nothing is left to finish."""
    return result


async def stream_results(
    pools: Sequence[WorkerPool[Any, Any]], stop: Stop, backpressure: ResultBackpressure | None = None
) -> AsyncGenerator[list[Result]]:
    """Yield results in batches soon after their requests, until all is done or the run is stopped.

    With `backpressure`, no request starts while too many results are not yet taken. Results come in lists, because
    passing each through a queue would cost more than the rest of the engine.
    """
    asked: list[tuple[Callable[[Any], Result], Any]] = []
    news, room = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    soon: asyncio.TimerHandle | None = None

    async def run_worker(pool: WorkerPool[Any, Any]) -> None:
        nonlocal soon
        feed, ask, finish = pool.feed, pool.ask, pool.finish
        while not stop and (
            piece := await backpressure.draw_when_free(feed, stop)
            if backpressure
            else feed.next_ready() or await feed.next()
        ):
            try:
                asked.append((finish, await ask(piece)))
            except Stopped:
                return
            except PramanaError as error:
                stop(str(error), error)
                return
            except KeyboardInterrupt as error:  # of a user's function; out of a task, it would end the event loop
                stop.interrupt(error)
                return
            if len(asked) >= BATCH_SIZE:
                news.set()
            elif soon is None:
                soon = loop.call_later(MAX_BATCH_WAIT_S, news.set)
            while len(asked) >= MAX_BUFFERED_RESULTS:  # the consumer is slower than the workers
                room.clear()
                await room.wait()

    async def run_all_workers() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for pool in pools:
                    for _ in range(pool.worker_count):
                        group.create_task(run_worker(pool))
        finally:
            news.set()

    working = asyncio.create_task(run_all_workers())
    try:
        while not working.done() or asked:
            await news.wait()
            news.clear()
            if soon:
                soon.cancel()
                soon = None
            together, asked[:] = asked[:], ()
            room.set()
            if together:
                yield [finish(each) for finish, each in together]
        await working
        stop.reraise_user_interrupt()
    finally:
        working.cancel()
        await asyncio.gather(working, *(pool.feed.close() for pool in pools), return_exceptions=True)
