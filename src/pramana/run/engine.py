"""Cases in, a stream of results out: bounded workers, each asks, scores, then yields.

There are as many tasks as requests may be under way and never one a case: work is drawn when a worker is free, so a run
of a million cases needs no more memory than one of a thousand. An answer that cannot be had is a result with a failure;
only what makes further asking pointless (a wrong key, a spent budget) ends the stream early. The engine does not know
that a database exists.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pramana.errors import PramanaError, Stopped
from pramana.model import Result
from pramana.run.stop import Stop

Work = TypeVar("Work")
BUFFER = 1_000


class Feed(Generic[Work]):
    """Draws work from a blocking iterator in a thread, a chunk at a time: the event loop never waits for it."""

    CHUNK = 256

    def __init__(self, work: Iterator[Work]) -> None:
        self._work = work
        self._chunk: list[Work] = []
        self._lock = asyncio.Lock()
        self._over = False

    async def next(self) -> Work | None:
        """Return the next piece of work, None when there is no more."""
        while not self._chunk:
            if self._over:
                return None
            async with self._lock:
                if not self._chunk and not self._over:
                    self._chunk = await asyncio.to_thread(self._draw)
        return self._chunk.pop()

    def _draw(self) -> list[Work]:
        drawn = [work for _, work in zip(range(self.CHUNK), self._work, strict=False)]
        self._over = len(drawn) < self.CHUNK
        drawn.reverse()  # popped from the end
        return drawn


@dataclass(frozen=True, slots=True)
class Pool(Generic[Work]):
    """The workers of one model: a slow or limited provider never keeps the others waiting."""

    feed: Feed[Work]
    workers: int
    do: Callable[[Work], Awaitable[Result]]
    """Ask and score; a `PramanaError` that leaves it ends the whole stream."""


async def stream(pools: Sequence[Pool[Any]], stop: Stop) -> AsyncGenerator[list[Result]]:
    """Yield results as soon as they are scored, those together that came together, until all is done or told to stop.

    A list at a time, because a queue's coming and going costs more than the rest of the engine.
    """
    results: list[Result] = []
    news, room = asyncio.Event(), asyncio.Event()

    async def work(pool: Pool[Any]) -> None:
        while not stop and (piece := await pool.feed.next()):
            try:
                result = await pool.do(piece)
            except Stopped:
                return
            except PramanaError as error:
                stop(str(error), error)
                return
            results.append(result)
            news.set()
            while len(results) >= BUFFER:  # whoever consumes is slower than we are
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
        while not working.done() or results:
            await news.wait()
            news.clear()
            together, results[:] = results[:], ()
            room.set()
            if together:
                yield together
        await working
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
