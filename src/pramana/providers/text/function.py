"""A user's Python function as a provider: a request comes in, the function is called, its text goes out.

`python:package.module:function`. The function is given the prompt as text; when it has a parameter called `messages`,
it is given them instead, as a list of `{"role", "content"}`; with one called `parameters`, also temperature, seed and
whatever else was asked for, which otherwise the reply lists as dropped. It may be a coroutine; each kind runs away from
the bench's own event loop: plain functions in threads that are used again, coroutines in one event loop of their own,
so that code which blocks holds up nobody else. All are daemon threads: none keeps the process from ending, however long
it hangs. A call that is given up is left behind, and its thread with it. Whatever is raised comes back as a value, also
what a future cannot carry (`StopIteration`) and what would end an event loop (`SystemExit`), and ends as a
`ProviderError` with type and message: one of ours passes as it is, so that a function can say `RateLimited`. No key of
the environment leaves in an answer or a message. A module in the current folder is found, after all that are installed.
"""

import asyncio
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NoReturn

from pramana import clock
from pramana.errors import InvalidInput, KeyInAnswer, ProviderError, quote, told
from pramana.model import Reply, Request, Target, Turn, raw_json
from pramana.providers import redaction

THREADS = 64
"""Of one function at once; the limiter's ceiling is usually lower."""
MESSAGE_LIMIT = 300


class Function:
    """A function, found by its path."""

    def __init__(self, path: str) -> None:
        self._path, self._function = path, _find(path)
        takes = _parameters(self._function)
        self._messages, self._parameters = "messages" in takes, "parameters" in takes
        called = self._function if inspect.isroutine(self._function) else getattr(self._function, "__call__", None)  # noqa: B004
        self._asynchronous = inspect.iscoroutinefunction(called)
        self._threads, self._coroutines = Threads(THREADS), Coroutines()
        self._keys = redaction.of_environment()

    @classmethod
    def open(cls, target: Target, account: object = None) -> "Function":  # noqa: ARG003 - it has no account
        """Return the provider for the target."""
        return cls(target.model)

    async def ask(self, request: Request) -> Reply:
        """Call the function and return what it says."""
        start = clock.monotonic()
        call = self._call(request)
        ended = await (self._coroutines.call(call) if self._asynchronous else self._threads.call(call))
        if inspect.isawaitable(ended.value):
            awaited = ended.value
            ended = await self._coroutines.call(lambda: awaited)
        if ended.error is not None:
            self._raise(ended.error)
        if not isinstance(said := ended.value, str):
            raise ProviderError(f"{self._path} returned {type(said).__name__}; expected text (str)")
        said = str.__str__(said)  # of a class of its own, it would be no plain data
        if self._keys.held_in(said):
            raise KeyInAnswer(redaction.held(f"the answer of {self._path}"))
        dropped = (
            () if self._parameters else tuple(name for name, value in request.parameters.items() if value is not None)
        )
        return Reply(
            said,
            served_model=self._path,
            total_s=clock.monotonic() - start,
            raw=raw_json({"text": said}),
            dropped=dropped,
        )

    async def models(self) -> list[str]:
        """Return the path: it is the only model there is."""
        return [self._path]

    async def close(self) -> None:
        """Let the threads end; a function that still runs is not waited for."""
        self._threads.close()
        self._coroutines.close()

    def _raise(self, error: BaseException) -> NoReturn:
        """Raise what a function's error is to us."""
        if isinstance(error, ProviderError) and self._keys.held_in(str(error)):
            error.args = (self._keys.blank(str(error)),)
        if isinstance(error, ProviderError | KeyboardInterrupt):  # whoever pressed Ctrl-C means all of us
            raise error
        raise ProviderError(f"{self._path} raised {self._keys.blank(told(error))[:MESSAGE_LIMIT]}") from error

    def _call(self, request: Request) -> Callable[[], Any]:
        more = {"parameters": dict(request.parameters)} if self._parameters else {}
        if self._messages:
            messages = [{"role": turn.role, "content": turn.text} for turn in request.turns]
            return partial(self._function, messages=messages, **more)
        return partial(self._function, prompt_text(request.turns), **more)


def prompt_text(turns: Iterable[Turn]) -> str:
    """Return a conversation as one text: the turns, with an empty line between them.

    >>> prompt_text([Turn("system", "Be brief."), Turn("user", "Is it so?")])
    'Be brief.\\n\\nIs it so?'
    """
    return "\n\n".join(turn.text for turn in turns)


def _find(path: str) -> Callable[..., Any]:
    module, colon, attribute = path.partition(":")
    if not module or not colon or not attribute:
        raise InvalidInput(f"python:{path} names no function; write python:package.module:function")
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # last, so that no file of the folder hides an installed module
    try:
        found: Any = import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        why = redaction.of_environment().blank(told(error))[:MESSAGE_LIMIT]
        raise InvalidInput(
            f"python:{path} cannot be loaded: {why}; check the name, and that the module is installed or in the "
            "current folder"
        ) from error
    if not callable(found):
        raise InvalidInput(f"python:{path} is {quote(type(found).__name__)}, which cannot be called")
    function: Callable[..., Any] = found
    return function


def _parameters(function: Callable[..., Any]) -> Iterable[str]:
    try:
        return inspect.signature(function).parameters.keys()
    except (TypeError, ValueError):  # some built-ins say nothing of themselves
        return ()


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
