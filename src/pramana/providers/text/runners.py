"""Where the functions of users run: plain ones in reused threads, coroutines in an event loop of their own.

All threads are daemons: none keeps the process from ending, however long it hangs. An abandoned call is left behind
with its thread. Any exception is captured as a value, even one that a future cannot carry (`StopIteration`) or that
would end an event loop (`SystemExit`).
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

THREAD_NAME = "pramana-function"


@dataclass(frozen=True, slots=True)
class FunctionCallOutcome:
    """The outcome of a call: a value or an exception."""

    value: Any = None
    error: BaseException | None = None


class ThreadRunner:
    """Threads for plain functions, with a limit on concurrent calls; abandoned threads do not count.

    Functions see the caller's context variables, which tracing needs.
    """

    def __init__(self, max_calls: int) -> None:
        self._free_slots = asyncio.Semaphore(max_calls)
        self._idle_threads: list[_WorkerThread] = []

    async def call(self, function: Callable[[], Any]) -> FunctionCallOutcome:
        """Call a function in a thread."""
        async with self._free_slots:
            thread = self._idle_threads.pop() if self._idle_threads else _WorkerThread()
            try:
                ended = await thread.call(partial(copy_context().run, function))
            except BaseException:
                thread.stop()
                raise
            self._idle_threads.append(thread)
            return ended

    def close(self) -> None:
        """Stop the idle threads without waiting for the busy ones."""
        while self._idle_threads:
            self._idle_threads.pop().stop()


class _WorkerThread:
    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], _CrossThreadFuture] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=THREAD_NAME, daemon=True).start()

    def call(self, function: Callable[[], Any]) -> "asyncio.Future[FunctionCallOutcome]":
        told = _CrossThreadFuture()
        self._calls.put((function, told))
        return told.future

    def stop(self) -> None:
        self._calls.put(None)

    def _run(self) -> None:
        while given := self._calls.get():
            function, told = given
            try:
                ended = FunctionCallOutcome(function())
            except BaseException as error:  # noqa: BLE001 - passed on as a value
                ended = FunctionCallOutcome(error=error)
            told(ended)
            del given, function, told, ended  # otherwise an idle thread would keep its last references alive


class CoroutineRunner:
    """Runs coroutines with the caller's context variables, in the given event loop or in a separate one in a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._given_loop, self._loop = loop, loop

    async def call(self, function: Callable[[], Awaitable[Any]]) -> FunctionCallOutcome:
        """Call a function and await its result."""
        told, loop = _CrossThreadFuture(), self._start_loop()
        task: asyncio.Task[None] | None = None

        async def run_coroutine() -> None:
            try:
                ended = FunctionCallOutcome(await function())
            except BaseException as error:  # noqa: BLE001 - passed on as a value
                ended = FunctionCallOutcome(error=error)
            told(ended)

        def start() -> None:
            nonlocal task
            task = loop.create_task(run_coroutine())

        def cancel() -> None:
            if task:
                task.cancel()

        loop.call_soon_threadsafe(start, context=copy_context())
        try:
            return await told.future
        except asyncio.CancelledError:
            with suppress(RuntimeError):  # the loop is closed: nothing is left to cancel
                loop.call_soon_threadsafe(cancel)
            raise

    def close(self) -> None:
        """Cancel what runs in the separate loop and stop it, without waiting for what resists cancellation."""
        if self._loop and self._loop is not self._given_loop:
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._loop = None

    def _start_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_run_loop, args=(self._loop,), name=THREAD_NAME, daemon=True).start()
        return self._loop


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    while tasks := asyncio.all_tasks(loop):
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.wait(tasks))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


class _CrossThreadFuture:
    """A future of the event loop that creates it; any thread may set its result."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[FunctionCallOutcome] = self._loop.create_future()

    def __call__(self, outcome: FunctionCallOutcome) -> None:
        with suppress(RuntimeError):  # the loop is closed: no one is waiting
            self._loop.call_soon_threadsafe(self._set_result, outcome)

    def _set_result(self, outcome: FunctionCallOutcome) -> None:
        if not self.future.done():
            self.future.set_result(outcome)
