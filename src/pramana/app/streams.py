"""What is open now: streams of events and sockets of pages, how many there may be, and that each ends with its user.

A stream is admitted once, when it is opened. One task looks every two seconds for all of them whether their tokens and
sessions are still valid and have the role that they had, and ends those that do not.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

from pramana.app.access import FRESH_S, Access, User
from pramana.errors import PramanaError

OF_A_TOKEN = 100
OF_A_PROCESS = 1_000


class TooManyStreams(PramanaError, code="rate_limited", http_status=429, exit_code=1):
    """A token has as many streams open as it may."""


class NoRoom(PramanaError, code="unavailable", http_status=503, exit_code=1):
    """A process has as many streams open as it may."""


@dataclass(frozen=True, slots=True, eq=False)
class _Open:
    user: User
    end: Callable[[], None]
    is_counted: bool


class OpenStreams:
    """The open streams of a process."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._open: set[_Open] = set()
        self._watching: asyncio.Task[None] | None = None

    def check_room(self, user: User) -> None:
        """Raise where a token, or the process, has as many streams open as it may."""
        counts = Counter(each.user.token_id for each in self._open if each.is_counted)
        if user.token_id and counts[user.token_id] >= OF_A_TOKEN:
            raise TooManyStreams(f"this token has {OF_A_TOKEN:,} streams open, and may have no more; close some")
        if counts.total() >= OF_A_PROCESS:
            raise NoRoom(f"this server has {OF_A_PROCESS:,} streams open, and takes no more; try again later")

    @contextmanager
    def watched(self, user: User, end: Callable[[], None], *, is_counted: bool = False) -> Iterator[None]:
        """Have `end` called, while the context lasts, when the user's token or session ends or loses its role.

        It may be called again until the context ends. Only streams of events are counted, not the sockets of pages.
        """
        opened = _Open(user, end, is_counted)
        self._open.add(opened)
        if user.token_id and (self._watching is None or self._watching.done()):
            self._watching = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self._open.discard(opened)

    @asynccontextmanager
    async def until_ended(
        self, user: User, grace_s: float = 0.0, *, is_counted: bool = False
    ) -> AsyncIterator[asyncio.Timeout]:
        """Cancel what is done within the context when the user's token or session ends; `expired()` tells of it."""
        limit = asyncio.timeout(None)

        def end() -> None:
            if limit.when() is None:
                limit.reschedule(asyncio.get_running_loop().time() + grace_s)

        try:
            async with limit:
                with self.watched(user, end, is_counted=is_counted):
                    yield limit
        except TimeoutError:
            if not limit.expired():
                raise

    async def _watch(self) -> None:
        while users := {each.user for each in self._open if each.user.token_id}:
            await asyncio.sleep(FRESH_S)
            with suppress(PramanaError):  # the store will be back, and until then nothing is sent either
                ended = await self._access.ended(users)  # a stream that is opened meanwhile waits for the next look
                for each in [each for each in self._open if each.user in ended]:
                    each.end()
