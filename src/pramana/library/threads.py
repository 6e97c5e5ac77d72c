"""Threads and event loops of the library: work that a caller waits for, and the loop of passed coroutine functions."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

from pramana.errors import InvalidInput
from pramana.run.engine import INTERRUPTED_BY_USER_REASON, Stop

POLL_INTERVAL_S = 0.2
"""How often a waiting thread wakes, so that Ctrl-C reaches it on every system."""
END_TIMEOUT_S = 10.0
"""How long requests under way may take to finish after an interrupt."""
CANCEL_TIMEOUT_S = 5.0
"""How long cancelled work may take to store what it has."""
_Made = TypeVar("_Made")


def run_in_thread(
    done: Future[_Made], work: Callable[[], Coroutine[Any, Any, _Made]], on_end: Callable[[], None] = lambda: None
) -> None:
    """Run a coroutine in a new thread and event loop, with the caller's context variables.

    `done` receives the result or the exception; if it is cancelled before the thread starts, the coroutine never runs.
    `on_end` is called in that thread at the end.
    """

    def run() -> None:
        if done.set_running_or_notify_cancel():  # from now on, waiters can no longer cancel it
            try:
                done.set_result(asyncio.run(work()))
            except BaseException as error:  # noqa: BLE001 - passed on to the waiting thread
                done.set_exception(error)
        on_end()

    threading.Thread(target=copy_context().run, args=(run,), name="pramana-evaluate", daemon=True).start()


class CancellableTask:
    """The task of a session, so that another thread can cancel it."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, work: Coroutine[Any, Any, _Made]) -> _Made:
        self._task, self._loop = asyncio.current_task(), asyncio.get_running_loop()
        return await work

    def cancel(self) -> None:
        if self._loop and self._task:
            with suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._task.cancel)


_functions_loop: tuple[int, asyncio.AbstractEventLoop] | None = None
_loop_lock = threading.Lock()


def get_functions_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop for coroutine functions passed to `evaluate`.

    There is one per process, because clients keep connections that belong to the loop in which they were opened: with a
    new loop per run, a client used in two runs would fail in the second. After a fork, a new one is created.
    """
    global _functions_loop  # noqa: PLW0603
    with _loop_lock:
        if _functions_loop is None or _functions_loop[0] != os.getpid() or _functions_loop[1].is_closed():
            loop = asyncio.new_event_loop()
            threading.Thread(target=_keep_loop_running, args=(loop,), name="pramana-functions", daemon=True).start()
            _functions_loop = os.getpid(), loop
        return _functions_loop[1]


def _keep_loop_running(loop: asyncio.AbstractEventLoop) -> None:
    """Run the loop of coroutine functions, and go on if one of them stops it: others wait for it."""
    asyncio.set_event_loop(loop)
    while not loop.is_closed():
        loop.run_forever()


def is_in_functions_loop() -> bool:
    """Return whether the caller runs in the loop of coroutine functions, which must not be blocked."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return False
    return _functions_loop is not None and running is _functions_loop[1]


def was_raised_by_work(done: Future[Any], error: BaseException) -> bool:
    """Return whether the work itself raised the exception."""
    return done.done() and not done.cancelled() and done.exception() is error


def wait_for_work(work: Callable[[Stop], Coroutine[Any, Any, _Made]]) -> _Made:
    """Run a coroutine in a separate thread and wait for it; any exception in the waiting thread stops it."""
    if is_in_functions_loop():
        raise InvalidInput(
            "a coroutine function cannot wait for judges: it would block the event loop that all coroutine functions "
            "share; call this from your main program"
        )
    stop, running = Stop(), CancellableTask()
    done: Future[_Made] = Future()
    try:
        run_in_thread(done, lambda: running.run(work(stop)))
        while not wait((done,), POLL_INTERVAL_S).done:
            pass
        return done.result()
    except BaseException as error:
        if was_raised_by_work(done, error):
            raise
        stop(INTERRUPTED_BY_USER_REASON)
        if not done.cancel():
            try:
                wait((done,), END_TIMEOUT_S)
            finally:  # a second Ctrl-C ends it at once
                if not done.done():
                    running.cancel()
                    wait((done,), CANCEL_TIMEOUT_S)
        raise
