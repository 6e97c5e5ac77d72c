"""Cases in, a stream of results out: bounded workers, each asks, scores, then yields.

There are as many tasks as requests may be under way and never one a case: work is drawn when a worker is free, so a run
of a million cases needs no more memory than one of a thousand. An answer that cannot be had is a result with a failure;
only what makes further asking pointless (a wrong key, a spent budget) ends the stream early. The engine does not know
that a database exists.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass

from pramana.errors import PramanaError
from pramana.model import Case, Key, Result

Work = tuple[Key, Case]
BUFFER = 1_000


class Stop:
    """Ends a stream early: no new work is begun, what is under way is finished."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self.error: PramanaError | None = None

    def __call__(self, reason: str, error: PramanaError | None = None) -> None:
        """Stop, for the first reason given."""
        if self.reason is None:
            self.reason, self.error = reason, error

    def __bool__(self) -> bool:
        return self.reason is not None


class Feed:
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
class Pool:
    """The workers of one model: a slow or limited provider never keeps the others waiting."""

    feed: Feed
    workers: int
    do: Callable[[Key, Case], Awaitable[Result]]
    """Ask and score; a `PramanaError` that leaves it ends the whole stream."""


async def stream(pools: Sequence[Pool], stop: Stop) -> AsyncIterator[Result]:
    """Yield each result as soon as it is scored, until all work is done or someone says stop."""
    results: asyncio.Queue[Result | None] = asyncio.Queue(BUFFER)

    async def work(pool: Pool) -> None:
        while not stop and (piece := await pool.feed.next()):
            try:
                result = await pool.do(*piece)
            except PramanaError as error:
                stop(str(error), error)
                return
            await results.put(result)

    async def all_work() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for pool in pools:
                    for _ in range(pool.workers):
                        group.create_task(work(pool))
        finally:
            await results.put(None)

    working = asyncio.create_task(all_work())
    try:
        while (result := await results.get()) is not None:
            yield result
        await working
    finally:
        if not working.done():
            working.cancel()
            while not working.done():  # a worker may wait for room in the queue
                if not results.empty():
                    results.get_nowait()
                await asyncio.sleep(0)
