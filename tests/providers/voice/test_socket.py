"""The WebSocket transport against a hostile server: messages before the call is ready, and redaction of keys."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web

from pramana.errors import BrokenReply, ProviderError, Unavailable, Unreachable
from pramana.providers.accounts import Account
from pramana.providers.http import HttpTransport
from pramana.providers.voice import socket as seam
from pramana.providers.voice.realtime import RealtimeWire
from pramana.providers.voice.socket import SocketChannel, connect
from pramana.providers.voice.vocabulary import CallSetup, Event

from ...virtual_time import real_time

pytestmark = pytest.mark.usefixtures("virtual_time")
KEY = "sk-secret-ABCDEFGHIJKLMNOP0123456789"
Serve = Callable[[web.WebSocketResponse], Awaitable[None]]


def serve_call(serve: Serve, use: Callable[[SocketChannel], Awaitable[Any]] | None = None, key: str = KEY) -> Any:
    """Serve one call with a custom handler, and use it."""

    async def handle(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        with suppress(ConnectionError, RuntimeError):  # the caller has gone
            await serve(socket)
        return socket

    async def go() -> Any:
        app = web.Application()
        app.router.add_get("/", handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        http = HttpTransport("Desk", Account(f"http://{host}:{port}", key))
        try:
            channel = await connect(http, f"ws://{host}:{port}/", {}, RealtimeWire(CallSetup("m")))
            try:
                return await use(channel) if use else None
            finally:
                await channel.close()
        finally:
            await http.close()
            await runner.cleanup()

    return asyncio.run(asyncio.wait_for(go(), 20))


async def drain(socket: web.WebSocketResponse) -> None:
    async for _ in socket:
        pass


# ── Before the call is ready ──


@real_time()  # a server that never rests leaves virtual time no moment to move in
def test_endless_messages_before_the_call_is_ready_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "MAX_EARLY_EVENTS", 50)
    monkeypatch.setattr(seam, "CLOSE_TIMEOUT_S", 0.1)  # it does not listen to a goodbye either
    sent = 0

    async def send_messages(socket: web.WebSocketResponse) -> None:
        nonlocal sent
        while True:
            await socket.send_str('{"type":"some.thing"}')
            sent += 1
            await asyncio.sleep(0)

    with pytest.raises(
        BrokenReply, match=r"Desk \(127.0.0.1:\d+\) sent too many or too large messages before the call was established"
    ):
        serve_call(send_messages)
    assert sent >= 50


def test_endless_bytes_before_the_call_is_ready_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "MAX_EARLY_BYTES", 1 << 20)
    big = json.dumps({"type": "response.output_audio.delta", "item_id": "i", "delta": "AAAA" * 100_000})

    async def send_bytes(socket: web.WebSocketResponse) -> None:
        for _ in range(200):
            await socket.send_str(big)

    with pytest.raises(BrokenReply, match="sent too many or too large messages before the call was established"):
        serve_call(send_bytes)


def test_early_messages_within_bounds_are_read_once_the_call_is_ready() -> None:
    async def send_greeting(socket: web.WebSocketResponse) -> None:
        await socket.send_json({"type": "session.created", "session": {"id": "s"}})
        await socket.receive()
        await socket.send_json({"type": "response.output_audio.delta", "item_id": "i", "delta": "AAA="})
        await socket.send_json({"type": "session.updated", "session": {"id": "s"}})
        await drain(socket)

    async def kinds(channel: SocketChannel) -> list[str]:
        return [event.kind for _ in range(3) for event in (await channel.receive()).events]

    assert serve_call(send_greeting, kinds) == ["unknown", "agent_audio", "ready"]


def test_a_silent_server_is_distinguished_from_other_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "HANDSHAKE_TIMEOUT_S", 0.2)
    with pytest.raises(Unavailable, match=r"was not ready for the call within 0\.2 s") as caught:
        serve_call(drain)
    assert isinstance(caught.value.__cause__, TimeoutError)

    async def close_at_once(socket: web.WebSocketResponse) -> None:
        await socket.close(code=1011, message=b"busy")

    with pytest.raises(ProviderError) as other:
        serve_call(close_at_once)
    assert other.value.__cause__ is None


def test_a_refused_connection_is_reported_with_the_system_message() -> None:
    async def go() -> None:
        await connect(
            HttpTransport("Desk", Account("http://127.0.0.1:1")), "ws://127.0.0.1:1/", {}, RealtimeWire(CallSetup("m"))
        )

    with pytest.raises(Unreachable) as caught:
        asyncio.run(go())
    assert str(caught.value) == "cannot reach Desk (127.0.0.1:1): Connection refused"


# ── Keys ──


def redact_event(key: str, event: Event) -> Event:
    nothing: Any = None
    return SocketChannel(HttpTransport("Desk", Account("http://h", key)), nothing, nothing, nothing)._redact(event)


def test_a_numeric_key_is_redacted_where_it_appears_as_a_number() -> None:
    number = 1234567890123456
    found = redact_event(
        str(number), Event("unknown", detail={"ms": number, "many": [{"n": -number}], "yes": True, "f": 1.5})
    )
    assert found.detail == {"ms": "[key]", "many": [{"n": "[key]"}], "yes": True, "f": 1.5}


def test_a_key_with_quotes_and_backslashes_is_redacted() -> None:
    key = 'abc"def\\ghijklmnopq'
    found = redact_event(key, Event("agent_text", f"it is {key}", detail={"a": key, key: {"x": [key]}}))
    assert found.text == "it is [key]"
    assert found.detail == {"a": "[key]", "[key]": {"x": ["[key]"]}}


def test_events_without_the_key_are_unchanged() -> None:
    detail = {"a": 1, "b": [None, "text", 2.5, {"c": False}]}
    assert redact_event(KEY, Event("unknown", "words", detail=detail)) == Event("unknown", "words", detail=detail)


def test_a_key_spoken_in_pieces_is_detected() -> None:
    nothing: Any = None
    channel = SocketChannel(HttpTransport("Desk", Account("http://h", KEY)), nothing, nothing, nothing)
    assert channel.is_key_in_text(f"so {KEY}.")
    assert not channel.is_key_in_text(KEY[:20])
