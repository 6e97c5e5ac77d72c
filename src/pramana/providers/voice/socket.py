"""The one WebSocket seam: sends a wire format's messages and returns its events with their arrival times.

Every failure before the call is open raises a `ProviderError`, as in `http`. After that a failure is an event, because
a call that was cut off has been recorded up to there. Never retries, and never puts the key into an event.
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
from pramana.providers.accounts import CONNECT_TIMEOUT_S
from pramana.providers.http import HttpTransport
from pramana.providers.redaction import REDACTED, Secrets
from pramana.providers.voice.vocabulary import (
    ChannelCapabilities,
    ErrorClass,
    Event,
    Format,
    Message,
    ReceivedEvents,
    Wire,
)

MAX_MESSAGE_BYTES = 16 << 20
HANDSHAKE_TIMEOUT_S = 30.0
"""Timeout for the handshake, from the first message to `ready`."""
CLOSE_TIMEOUT_S = 2.0
MAX_EARLY_EVENTS, MAX_EARLY_BYTES = 1_000, 32 << 20
"""Limits on messages and their bytes before a call is open: an agent that sends more is broken, since it has no
listener yet."""

_ERROR_TYPE_BY_CLASS: Mapping[ErrorClass, Callable[[str], ProviderError]] = {
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


def make_error_from_event(http: HttpTransport, event: Event) -> ProviderError:
    """Return the error for an `error` or `closed` event before the call is open."""
    kind = event.error or "provider"
    said = http.failures.quote_safely(event.text)
    hint = f"; set {http.failures.variable}" if kind == "auth" else ""
    return _ERROR_TYPE_BY_CLASS[kind](
        f"{http.failures.provider_label} refused the call{': ' + said if said else ''}{hint}"
    )


class SocketChannel:
    """Implements `Channel`."""

    def __init__(
        self, http: HttpTransport, wire: Wire, session: aiohttp.ClientSession, socket: aiohttp.ClientWebSocketResponse
    ) -> None:
        self._http, self._wire, self._session, self._socket = http, wire, session, socket
        self._early_events: deque[ReceivedEvents] = deque()
        """Events received before or together with the end of `do_handshake`."""
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

    def is_key_in_text(self, text: str) -> bool:
        """Return whether a text contains a key, for instance one that arrived in pieces."""
        return self._http.failures.secrets.occur_in(text)

    async def send(self, frame: bytes) -> None:
        """Send one frame of sound."""
        await self._send(self._wire.sound_messages(frame))

    async def receive(self) -> ReceivedEvents:
        """Return the next events."""
        if self._early_events:
            return self._early_events.popleft()
        heard = await self._receive_message()
        for event in heard.events:
            await self._send(event.messages_to_send)
        return heard

    async def interrupt(self, played_s: float) -> None:
        """Notify the agent that the caller interrupted it."""
        await self._send(self._wire.interruption_messages(played_s))

    async def close(self) -> None:
        """Hang up as the wire format requires, and close the connection."""
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._send(self._wire.closing_messages())
                await self._socket.close()
        except (aiohttp.ClientError, OSError):
            pass
        finally:
            await self._session.close()

    async def do_handshake(self) -> None:
        """Perform the handshake, which must complete before the call begins."""
        await self._send(self._wire.opening_messages())
        if self._wire.capabilities.ready_on_connect:
            self._early_events.append(ReceivedEvents(clock.monotonic(), (Event("ready"),)))
            return
        while True:
            heard = await self._receive_message()
            self._early_events.append(heard)
            if len(self._early_events) > MAX_EARLY_EVENTS or self._early_bytes > MAX_EARLY_BYTES:
                raise BrokenReply(
                    f"{self._http.failures.provider_label} sent too many or too large messages before the call was "
                    "established"
                )
            for event in heard.events:
                await self._send(event.messages_to_send)
                if event.kind in ("error", "closed"):
                    raise make_error_from_event(self._http, event)
            if any(event.kind == "ready" for event in heard.events):
                return

    async def _receive_message(self) -> ReceivedEvents:
        message = await self._socket.receive()
        at = clock.monotonic()
        if message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
            self._early_bytes += len(message.data)
            try:
                events = self._wire.read_events(message.data)
            except ProviderError as error:
                events = [Event("error", str(error), error="protocol")]
            return ReceivedEvents(at, tuple(self._redact(event) for event in events))
        code, reason = self._socket.close_code or 1006, ""
        if message.type is aiohttp.WSMsgType.CLOSE:
            code, reason = message.data or 1005, message.extra or ""
        elif message.type is aiohttp.WSMsgType.ERROR:
            return ReceivedEvents(
                at, (Event("closed", f"the WebSocket connection broke: {message.data}", error="protocol"),)
            )
        return ReceivedEvents(at, (self._redact(self._wire.read_close(code, reason)),))

    async def _send(self, messages: "list[Message] | tuple[Message, ...]") -> None:
        for message in messages:
            try:
                if isinstance(message, str):
                    await self._socket.send_str(message)
                else:
                    await self._socket.send_bytes(message)
            except (aiohttp.ClientError, OSError):
                return  # the receiving side reports the closed connection

    def _redact(self, event: Event) -> Event:
        secrets = self._http.failures.secrets
        if not secrets.long_secrets:
            return event
        detail = _redact_data(dict(event.detail), secrets) if event.detail else event.detail
        return replace(event, text=secrets.redact(event.text), detail=detail)


async def connect(http: HttpTransport, url: str, headers: Mapping[str, str], wire: Wire) -> SocketChannel:
    """Open a WebSocket, perform the handshake and return the call."""
    own = {**headers, **http.account.headers}
    tracing = aiohttp.TraceConfig()
    tracing.on_request_redirect.append(_make_redirect_refuser(http))
    guard = http.make_guard(_parse_address(http, url))
    session = aiohttp.ClientSession(
        connector=guard.make_connector() if guard else None,
        trace_configs=[tracing],
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers={"User-Agent": "pramana"},
    )
    socket: aiohttp.ClientWebSocketResponse | None = None
    try:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            socket = await session.ws_connect(
                url, headers=own, max_msg_size=MAX_MESSAGE_BYTES, proxy=http.account.proxy, autoping=True, compress=0
            )
            channel = SocketChannel(http, wire, session, socket)
            await channel.do_handshake()
    except BaseException as error:
        if socket is not None:
            with suppress(aiohttp.ClientError, OSError):
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await socket.close()
        await session.close()
        if isinstance(error, aiohttp.WSServerHandshakeError):
            raise http.failures.make_status_error(error.status, "") from None
        if isinstance(error, TimeoutError):
            # The cause marks an agent that was never ready for any call, so that no other call waits for it again.
            raise Unavailable(
                f"{http.failures.provider_label} was not ready for the call within {HANDSHAKE_TIMEOUT_S:g} s"
            ) from error
        if isinstance(error, aiohttp.InvalidURL):
            raise _make_address_error(http, url) from None
        if isinstance(error, aiohttp.ClientError | OSError):
            raise http.failures.make_unreachable_error(error, guard) from None
        raise
    return channel


def _parse_address(http: HttpTransport, url: str) -> URL:
    try:
        return URL(url)
    except ValueError:
        raise _make_address_error(http, url) from None


def _make_address_error(http: HttpTransport, url: str) -> Rejected:
    shown = http.failures.secrets.redact_message(url.partition("?")[0])
    return Rejected(f"{http.failures.provider_label}: {shown} is not a WebSocket address")


def _make_redirect_refuser(
    http: HttpTransport,
) -> Callable[[Any, Any, aiohttp.TraceRequestRedirectParams], Awaitable[None]]:
    # The only way in aiohttp to keep `ws_connect` from following a redirect, which would send the key's header along.
    async def refuse(_session: Any, _context: Any, params: aiohttp.TraceRequestRedirectParams) -> None:
        params.response.close()
        raise http.failures.make_redirect_error(params.response.status)

    return refuse


def _redact_data(value: Any, secrets: Secrets) -> Any:
    """Return plain data with keys blanked in every text, name and number."""
    if isinstance(value, str):
        return secrets.redact(value)
    if isinstance(value, Mapping):
        return {secrets.redact(str(name)): _redact_data(each, secrets) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_data(each, secrets) for each in value]
    if isinstance(value, int | float) and not isinstance(value, bool) and secrets.occur_in(str(value)):
        return REDACTED
    return value
