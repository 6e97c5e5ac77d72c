"""A user's code, called away from the event loop: a function goes in, what it returned or raised comes out.

Plain functions run in threads that are used again, coroutines in one event loop of their own, so that code which blocks
holds up nobody else. All are daemon threads: none keeps the process from ending, however long it hangs. A call that is
given up is left behind, and its thread with it. Whatever is raised comes back as a value, also what a future cannot
carry (`StopIteration`) and what would end an event loop (`SystemExit`).
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

NAME = "pramana-function"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended."""

    value: Any = None
    error: BaseException | None = None


class Threads:
    """Threads for plain functions, at most so many at work; those left behind do not count."""

    def __init__(self, most: int) -> None:
        self._room = asyncio.Semaphore(most)
        self._idle: list[_Thread] = []

    async def call(self, function: Callable[[], Any]) -> Ended:
        """Call a function."""
        async with self._room:
            thread = self._idle.pop() if self._idle else _Thread()
            try:
                ended = await thread.call(function)
            except BaseException:
                thread.leave()
                raise
            self._idle.append(thread)
            return ended

    def close(self) -> None:
        """Let the threads end; who still works is not waited for."""
        while self._idle:
            self._idle.pop().leave()


class _Thread:
    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], _Told] | None] = SimpleQueue()
        threading.Thread(target=self._work, name=NAME, daemon=True).start()

    def call(self, function: Callable[[], Any]) -> "asyncio.Future[Ended]":
        told = _Told()
        self._calls.put((function, told))
        return told.future

    def leave(self) -> None:
        self._calls.put(None)

    def _work(self) -> None:
        while given := self._calls.get():
            function, told = given
            try:
                ended = Ended(function())
            except BaseException as error:  # noqa: BLE001 - a value from here on
                ended = Ended(error=error)
            told(ended)
            del given, function, told, ended  # or an idle thread would keep what it was last given


class Coroutines:
    """An event loop in a thread of its own, for coroutines."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None

    async def call(self, function: Callable[[], Awaitable[Any]]) -> Ended:
        """Call a function and await what it returns."""
        told, loop = _Told(), self._started()
        task: asyncio.Task[None] | None = None

        async def work() -> None:
            try:
                ended = Ended(await function())
            except BaseException as error:  # noqa: BLE001 - a value from here on
                ended = Ended(error=error)
            told(ended)

        def begin() -> None:
            nonlocal task
            task = loop.create_task(work())

        def give_up() -> None:
            if task:
                task.cancel()

        loop.call_soon_threadsafe(begin)
        try:
            return await told.future
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # the loop is closed: there is nothing left to give up
                loop.call_soon_threadsafe(give_up)
            raise

    def close(self) -> None:
        """Cancel what is under way and let the loop end; who will not be cancelled is not waited for."""
        if self._loop:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_live, args=(self._loop,), name=NAME, daemon=True).start()
        return self._loop


def _live(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    while tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


class _Told:
    """A future of the event loop that makes it, which any thread may tell how a call ended."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Ended] = self._loop.create_future()

    def __call__(self, ended: Ended) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._tell, ended)

    def _tell(self, ended: Ended) -> None:
        if not self.future.done():
            self.future.set_result(ended)
