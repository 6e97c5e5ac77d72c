"""The one WebSocket seam: a wire format's messages go out, its events come back, with the moment of each.

Every failure before the call stands leaves as a `ProviderError`, as in `http`; from then on what goes wrong is an
event, because a call that was cut off has been recorded until there. Never a retry, never the key in an event.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import aiohttp
from msgspec.structs import replace
from yarl import URL

from pramana import clock
from pramana.errors import (
    AuthenticationFailed,
    BrokenReply,
    OutOfCredit,
    ProviderError,
    RateLimited,
    Rejected,
    Unavailable,
    Unreachable,
)
from pramana.providers.accounts import CONNECT_S
from pramana.providers.http import Http
from pramana.providers.redaction import BLANK, Secrets
from pramana.providers.voice.vocabulary import ChannelCapabilities, ErrorClass, Event, Format, Heard, Message, Wire

LARGEST_MESSAGE = 16 << 20
READY_S = 30.0
"""For the handshake, from the first message to `ready`."""
CLOSE_S = 2.0
MOST_EARLY, MOST_EARLY_BYTES = 1_000, 32 << 20
"""Messages, and bytes of them, before a call stands: who sends more has not understood that nobody listens yet."""

_ERRORS: Mapping[ErrorClass, Callable[[str], ProviderError]] = {
    "auth": AuthenticationFailed,
    "rate_limit": RateLimited,
    "quota": OutOfCredit,
    "bad_request": Rejected,
    "unsupported_format": Rejected,
    "timeout": Unavailable,
    "provider": Unavailable,
    "network": Unreachable,
    "protocol": BrokenReply,
}


def as_error(http: Http, event: Event) -> ProviderError:
    """Return what an `error` or `closed` event means where there is no call yet."""
    kind = event.error or "provider"
    said = http.failures.quoted(event.text)
    hint = f"; set {http.failures.variable}" if kind == "auth" else ""
    return _ERRORS[kind](f"{http.failures.who} refused the call{': ' + said if said else ''}{hint}")


class SocketChannel:
    """Implements `Channel`."""

    def __init__(
        self, http: Http, wire: Wire, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse
    ) -> None:
        self._http, self._wire, self._session, self._socket = http, wire, session, socket
        self._early: deque[Heard] = deque()
        """What came with or before `ready`."""
        self._early_bytes = 0

    @property
    def uplink(self) -> Format:
        return self._wire.uplink

    @property
    def downlink(self) -> Format:
        return self._wire.downlink

    @property
    def capabilities(self) -> ChannelCapabilities:
        return self._wire.capabilities

    def holds_key(self, text: str) -> bool:
        """Tell whether a text holds a key, as when one was said in pieces."""
        return self._http.failures.secrets.held_in(text)

    async def send(self, frame: bytes) -> None:
        """Send one frame of sound."""
        await self._send(self._wire.speak(frame))

    async def receive(self) -> Heard:
        """Return what happens next."""
        if self._early:
            return self._early.popleft()
        heard = await self._next()
        for event in heard.events:
            await self._send(event.send)
        return heard

    async def interrupt(self, played_s: float) -> None:
        """Tell the agent that it was talked into."""
        await self._send(self._wire.interrupted(played_s))

    async def close(self) -> None:
        """Hang up, as the format has it, and close the connection."""
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._send(self._wire.bye())
                await self._socket.close()
        except (aiohttp.ClientError, OSError):
            pass
        finally:
            await self._session.close()

    async def ready(self) -> None:
        """Do the handshake: until `ready`, nothing of the call has happened."""
        await self._send(self._wire.hello())
        if self._wire.capabilities.ready_on_connect:
            self._early.append(Heard(clock.monotonic(), (Event("ready"),)))
            return
        while True:
            heard = await self._next()
            self._early.append(heard)
            if len(self._early) > MOST_EARLY or self._early_bytes > MOST_EARLY_BYTES:
                raise BrokenReply(f"{self._http.failures.who} sent too much before the call was established")
            for event in heard.events:
                await self._send(event.send)
                if event.kind in ("error", "closed"):
                    raise as_error(self._http, event)
            if any(event.kind == "ready" for event in heard.events):
                return

    async def _next(self) -> Heard:
        message = await self._socket.receive()
        at = clock.monotonic()
        if message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
            self._early_bytes += len(message.data)
            try:
                events = self._wire.read(message.data)
            except ProviderError as error:
                events = [Event("error", str(error), error="protocol")]
            return Heard(at, tuple(self._safe(event) for event in events))
        code, reason = self._socket.close_code or 1006, ""
        if message.type is aiohttp.WSMsgType.CLOSE:
            code, reason = message.data or 1005, message.extra or ""
        elif message.type is aiohttp.WSMsgType.ERROR:
            return Heard(at, (Event("closed", f"not a WebSocket any more: {message.data}", error="protocol"),))
        return Heard(at, (self._safe(self._wire.closed(code, reason)),))

    async def _send(self, messages: "list[Message] | tuple[Message, ...]") -> None:
        for message in messages:
            try:
                if isinstance(message, str):
                    await self._socket.send_str(message)
                else:
                    await self._socket.send_bytes(message)
            except (aiohttp.ClientError, OSError):
                return  # the end of the connection is told by what is received

    def _safe(self, event: Event) -> Event:
        secrets = self._http.failures.secrets
        if not secrets.long:
            return event
        detail = _blanked(dict(event.detail), secrets) if event.detail else event.detail
        return replace(event, text=secrets.blank(event.text), detail=detail)


async def connect(http: Http, url: str, headers: Mapping[str, str], wire: Wire) -> SocketChannel:
    """Open a WebSocket, do the format's handshake and return the call."""
    own = {**headers, **http.account.headers}
    tracing = aiohttp.TraceConfig()
    tracing.on_request_redirect.append(_refused_redirect(http))
    guard = http.guard_for(_address(http, url))
    session = aiohttp.ClientSession(
        connector=guard.connector() if guard else None,
        trace_configs=[tracing],
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "pramana"},
    )
    socket: aiohttp.ClientWebSocketResponse | None = None
    try:
        async with asyncio.timeout(READY_S):
            socket = await session.ws_connect(
                url, headers=own, max_msg_size=LARGEST_MESSAGE, proxy=http.account.proxy, autoping=True, compress=0
            )
            channel = SocketChannel(http, wire, session, socket)
            await channel.ready()
    except BaseException as error:
        if socket is not None:
            with suppress(aiohttp.ClientError, OSError):
                async with asyncio.timeout(CLOSE_S):
                    await socket.close()
        await session.close()
        if isinstance(error, aiohttp.WSServerHandshakeError):
            raise http.failures.refusal(error.status, "") from None
        if isinstance(error, TimeoutError):
            # Its cause tells it from other trouble: who has never been ready for anyone is not waited for again.
            raise Unavailable(f"{http.failures.who} was not ready for a call within {READY_S:g} s") from error
        if isinstance(error, aiohttp.InvalidURL):
            raise _no_address(http, url) from None
        if isinstance(error, aiohttp.ClientError | OSError):
            raise http.failures.unreached(error, guard) from None
        raise
    return channel


def _address(http: Http, url: str) -> URL:
    try:
        return URL(url)
    except ValueError:
        raise _no_address(http, url) from None


def _no_address(http: Http, url: str) -> Rejected:
    shown = http.failures.secrets.blank_message(url.partition("?")[0])
    return Rejected(f"{http.failures.who}: {shown} is not a WebSocket address")


def _refused_redirect(http: Http) -> Callable[[Any, Any, aiohttp.TraceRequestRedirectParams], Awaitable[None]]:
    # aiohttp has no other way to not follow one from `ws_connect`, and it would send the key's header along.
    async def refuse(_session: Any, _context: Any, params: aiohttp.TraceRequestRedirectParams) -> None:
        params.response.close()
        raise http.failures.redirected(params.response.status)

    return refuse


def _blanked(value: Any, secrets: Secrets) -> Any:
    """Return plain data without a key, in whatever text, name or number one stands."""
    if isinstance(value, str):
        return secrets.blank(value)
    if isinstance(value, Mapping):
        return {secrets.blank(str(name)): _blanked(each, secrets) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_blanked(each, secrets) for each in value]
    if isinstance(value, int | float) and not isinstance(value, bool) and secrets.held_in(str(value)):
        return BLANK
    return value
