"""Open streams of one process: whose they are, how many there may be, and that they end when their token does.

A stream is answered once, when it is opened; so that a token which is revoked hears no more by those that it has open,
one task looks for all of them, as often as the gate would look whose token it is.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import suppress

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from pramana.app import App
from pramana.app.access import FRESH_S, User
from pramana.errors import PramanaError

OF_A_TOKEN = 100
OF_A_PROCESS = 1_000
LAST_WORD_S = 1.0
"""How long who does not read may keep a stream open that has ended."""


class TooManyStreams(PramanaError):
    """A token has as many streams open as it may."""

    code = "rate_limited"
    http_status = 429
    exit_code = 1


class NoRoom(PramanaError):
    """A process has as many streams open as it may."""

    code = "unavailable"
    http_status = 503
    exit_code = 1


class Streams:
    """The open streams of a process."""

    def __init__(self, serving: App) -> None:
        self._serving = serving
        self._open: set[Stream] = set()
        self._of_tokens: Counter[str] = Counter()
        self._watching: asyncio.Task[None] | None = None

    def answer(self, events: AsyncIterator[bytes], who: User) -> "Stream":
        """Return the answer that is a stream; raises where there are too many."""
        if who.token_id and self._of_tokens[who.token_id] >= OF_A_TOKEN:
            raise TooManyStreams(f"this token has {OF_A_TOKEN:,} streams open, and may have no more; close some")
        if len(self._open) >= OF_A_PROCESS:
            raise NoRoom(f"this server has {OF_A_PROCESS:,} streams open, and takes no more; try again later")
        return Stream(self, events, who.token_id)

    def add(self, stream: "Stream") -> None:
        self._open.add(stream)
        if stream.token_id:
            self._of_tokens[stream.token_id] += 1
            if self._watching is None or self._watching.done():
                self._watching = asyncio.create_task(self._watch())

    def drop(self, stream: "Stream") -> None:
        self._open.discard(stream)
        if stream.token_id:
            self._of_tokens[stream.token_id] -= 1
            self._of_tokens += Counter()  # those of which there is none are forgotten

    async def _watch(self) -> None:
        """End the streams of tokens that are revoked, for as long as there are streams of tokens."""
        while self._of_tokens:
            await asyncio.sleep(FRESH_S)
            with suppress(PramanaError):  # the store will be back, and until then nothing is told either
                asked = set(self._of_tokens)  # a stream that is opened meanwhile waits for the next look
                revoked = asked - set(await asyncio.to_thread(self._serving.store.tokens.holding, list(asked)))
                for stream in self._open:
                    if stream.token_id in revoked:
                        stream.end()


class Stream(StreamingResponse):
    """Server-sent events to one listener."""

    def __init__(self, streams: Streams, events: AsyncIterator[bytes], token_id: str | None) -> None:
        # Proxies hold back what is meant for now, unless they are told not to.
        super().__init__(events, 200, {"x-accel-buffering": "no"}, "text/event-stream")
        self.token_id = token_id
        self._streams, self._limit, self._ended = streams, asyncio.timeout(None), False

    def end(self) -> None:
        """End it now, in the middle of whatever it does."""
        if self._ended:
            return
        self._ended = True
        self._limit.reschedule(asyncio.get_running_loop().time())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send what there is until it is over."""
        self._streams.add(self)
        try:
            with suppress(TimeoutError):
                async with self._limit:
                    await super().__call__(scope, receive, send)
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORD_S):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._streams.drop(self)
