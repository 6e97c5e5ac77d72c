"""Cases in, a stream of results out: bounded workers ask and judge, results are finished many at a time.

There are as many tasks as requests may be under way and never one a case: work is drawn when a worker is free, so a run
of a million cases needs no more memory than one of a thousand. An answer that cannot be had is a result with a failure;
only what makes further asking pointless (a wrong key, a spent budget) ends the stream early. The engine does not know
that a database exists.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Generic, TypeVar

from msgspec import Struct

from pramana.errors import PramanaError, Stopped
from pramana.model import Result


class Stop:
    """Ends a run early: no new work is begun, what is under way is finished, waiting ends at once."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.error: PramanaError | None = None
        self._told = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._then: list[Callable[[], None]] = []

    def __call__(self, reason: str, error: PramanaError | None = None) -> None:
        """Stop, for the first reason given; may be called by a signal's handler, in any thread, and after the run."""
        if self.reason is None:
            self.reason, self.error = reason, error
            if self._loop:
                with suppress(RuntimeError):  # the run has just ended, and its event loop with it
                    self._loop.call_soon_threadsafe(self._tell)  # a handler does not wake a loop that sleeps

    def __bool__(self) -> bool:
        return self.reason is not None

    def then(self, do: Callable[[], None]) -> None:
        """Have something done, on this event loop, when told to stop; soon, if that has happened already."""
        self._loop = asyncio.get_running_loop()
        self._then.append(do)
        if self:  # whoever stopped it may not have known this loop
            self._loop.call_soon(do)

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


# ── The stream ──

Work = TypeVar("Work")
Asked = TypeVar("Asked")
BUFFER = 1_000
TOGETHER = 64
"""What is done to each of many is done to as many in a row: between one request and the next, the processor has
forgotten all it knew of the code, and the same steps take three times as long."""
LINGER_S = 0.02
"""How long the first of them may wait for the others."""


class Feed(Generic[Work]):
    """Draws work a chunk at a time: to come by a chunk may block, so that happens in a thread; what is in it, here.

    A chunk may be lazy. What it takes to make a piece of work should be spent on the event loop, where nobody else
    wants the interpreter's lock: in a thread it costs three times as much. While one chunk is used the next is drawn.
    """

    def __init__(self, chunks: Iterator[Iterable[Work]]) -> None:
        self._chunks = chunks
        self._chunk: Iterator[Work] = iter(())
        self._ready: list[Work] = []
        self._coming: asyncio.Task[Iterable[Work] | None] | None = None
        self._over = False

    def now(self) -> Work | None:
        """Return the next piece of work if it is at hand, else None."""
        if not self._ready:
            self._ready = list(islice(self._chunk, TOGETHER))
            self._ready.reverse()
        return self._ready.pop() if self._ready else None

    async def next(self) -> Work | None:
        """Return the next piece of work, None when there is no more."""
        while True:
            if (work := self.now()) is not None:
                return work
            if self._over:
                return None
            coming = self._coming = self._coming or self._draw()
            await asyncio.wait((coming,))
            if self._coming is coming:  # else another worker has taken it
                chunk = coming.result()
                self._over, self._coming = chunk is None, None if chunk is None else self._draw()
                self._chunk = iter(chunk or ())

    async def close(self) -> None:
        """Wait for what is being drawn; nobody wants it any more."""
        if self._coming:
            await asyncio.gather(self._coming, return_exceptions=True)

    def _draw(self) -> "asyncio.Task[Iterable[Work] | None]":
        return asyncio.create_task(asyncio.to_thread(next, self._chunks, None))


class Window:
    """Bounds how many results there are that nobody has taken yet, requests under way included.

    Work is drawn when there is room; `take` is called when a result is used, in any thread. A run that stops does not
    wait.
    """

    def __init__(self, size: int) -> None:
        self._size, self._begun, self._taken = size, 0, 0
        self._room = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def draw(self, feed: Feed[Work], stop: Stop) -> Work | None:
        """Return the next piece of work once there is room for it; None when there is no more, or the run stops."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            stop.then(self._room.set)
        while not stop and self._begun - self._taken >= self._size:
            self._room.clear()
            if self._begun - self._taken >= self._size:  # nothing was taken before the event was cleared
                await self._room.wait()
        self._begun += 1
        piece = None if stop else feed.now() or await feed.next()
        if piece is None:
            self._begun -= 1
            self._room.set()
        return piece

    def take(self) -> None:
        """Count a result that was used."""
        self._taken += 1
        if self._loop:
            with suppress(RuntimeError):  # the run has ended, and its event loop with it
                self._loop.call_soon_threadsafe(self._room.set)


class Pool(Struct, Generic[Work, Asked], frozen=True):
    """The workers of one model: a slow or limited provider never keeps the others waiting."""

    feed: Feed[Work]
    workers: int
    ask: Callable[[Work], Awaitable[Asked]]
    """Whatever takes waiting; a `PramanaError` that leaves it ends the whole stream."""
    finish: Callable[[Asked], Result]
    """The rest, which takes none."""


def as_it_is(result: Result) -> Result:
    """Finish what is a result already."""
    return result


async def stream(
    pools: Sequence[Pool[Any, Any]], stop: Stop, window: Window | None = None
) -> AsyncGenerator[list[Result]]:
    """Yield results soon after they were asked for, many together, until all is done or told to stop.

    With a `window`, no request is begun while it is full.
    A list at a time, because a queue's coming and going costs more than the rest of the engine.
    """
    asked: list[tuple[Callable[[Any], Result], Any]] = []
    news, room = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    soon: asyncio.TimerHandle | None = None

    async def work(pool: Pool[Any, Any]) -> None:
        nonlocal soon
        feed, ask, finish = pool.feed, pool.ask, pool.finish
        while not stop and (piece := await window.draw(feed, stop) if window else feed.now() or await feed.next()):
            try:
                asked.append((finish, await ask(piece)))
            except Stopped:
                return
            except PramanaError as error:
                stop(str(error), error)
                return
            if len(asked) >= TOGETHER:
                news.set()
            elif soon is None:
                soon = loop.call_later(LINGER_S, news.set)
            while len(asked) >= BUFFER:  # whoever consumes is slower than we are
                room.clear()
                await room.wait()

    async def all_work() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for pool in pools:
                    for _ in range(pool.workers):
                        group.create_task(work(pool))
        finally:
            news.set()

    working = asyncio.create_task(all_work())
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
    finally:
        working.cancel()
        await asyncio.gather(working, *(pool.feed.close() for pool in pools), return_exceptions=True)
