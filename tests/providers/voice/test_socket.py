"""The WebSocket seam against a hostile server: what it sends before a call stands, and what it says of a key."""

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
from pramana.providers.voice.vocabulary import Dial, Event

from ...virtual_time import real_time

pytestmark = pytest.mark.usefixtures("virtual_time")
KEY = "sk-secret-ABCDEFGHIJKLMNOP0123456789"
Serve = Callable[[web.WebSocketResponse], Awaitable[None]]


def called(serve: Serve, use: Callable[[SocketChannel], Awaitable[Any]] | None = None, key: str = KEY) -> Any:
    """Serve one call in a way of one's own, and use it."""

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
            channel = await connect(http, f"ws://{host}:{port}/", {}, RealtimeWire(Dial("m")))
            try:
                return await use(channel) if use else None
            finally:
                await channel.close()
        finally:
            await http.close()
            await runner.cleanup()

    return asyncio.run(asyncio.wait_for(go(), 20))


async def drained(socket: web.WebSocketResponse) -> None:
    async for _ in socket:
        pass


# ── Before the call stands ──


@real_time()  # a server that never rests leaves virtual time no moment to move in
def test_who_sends_messages_without_end_before_the_call_stands_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "MAX_EARLY_EVENTS", 50)
    monkeypatch.setattr(seam, "CLOSE_S", 0.1)  # it does not listen to a goodbye either
    sent = 0

    async def chatters(socket: web.WebSocketResponse) -> None:
        nonlocal sent
        while True:
            await socket.send_str('{"type":"some.thing"}')
            sent += 1
            await asyncio.sleep(0)

    with pytest.raises(BrokenReply, match=r"Desk \(127.0.0.1:\d+\) sent too much before the call was established"):
        called(chatters)
    assert sent >= 50


def test_who_sends_bytes_without_end_before_the_call_stands_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "MAX_EARLY_BYTES", 1 << 20)
    big = json.dumps({"type": "response.output_audio.delta", "item_id": "i", "delta": "AAAA" * 100_000})

    async def floods(socket: web.WebSocketResponse) -> None:
        for _ in range(200):
            await socket.send_str(big)

    with pytest.raises(BrokenReply, match="sent too much before the call was established"):
        called(floods)


def test_what_comes_early_and_in_bounds_is_heard_once_the_call_stands() -> None:
    async def greets(socket: web.WebSocketResponse) -> None:
        await socket.send_json({"type": "session.created", "session": {"id": "s"}})
        await socket.receive()
        await socket.send_json({"type": "response.output_audio.delta", "item_id": "i", "delta": "AAA="})
        await socket.send_json({"type": "session.updated", "session": {"id": "s"}})
        await drained(socket)

    async def kinds(channel: SocketChannel) -> list[str]:
        return [event.kind for _ in range(3) for event in (await channel.receive()).events]

    assert called(greets, kinds) == ["unknown", "agent_audio", "ready"]


def test_who_takes_the_connection_and_says_nothing_is_told_from_other_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "READY_S", 0.2)
    with pytest.raises(Unavailable, match=r"was not ready for the call within 0\.2 s") as caught:
        called(drained)
    assert isinstance(caught.value.__cause__, TimeoutError)

    async def refuses(socket: web.WebSocketResponse) -> None:
        await socket.close(code=1011, message=b"busy")

    with pytest.raises(ProviderError) as other:
        called(refuses)
    assert other.value.__cause__ is None


def test_a_server_that_refuses_is_told_in_the_words_of_the_system() -> None:
    async def go() -> None:
        await connect(
            HttpTransport("Desk", Account("http://127.0.0.1:1")), "ws://127.0.0.1:1/", {}, RealtimeWire(Dial("m"))
        )

    with pytest.raises(Unreachable) as caught:
        asyncio.run(go())
    assert str(caught.value) == "cannot reach Desk (127.0.0.1:1): Connection refused"


# ── Keys ──


def safe(key: str, event: Event) -> Event:
    nothing: Any = None
    return SocketChannel(HttpTransport("Desk", Account("http://h", key)), nothing, nothing, nothing)._redact(event)


def test_a_key_of_digits_is_blanked_where_it_comes_as_a_number() -> None:
    number = 1234567890123456
    found = safe(str(number), Event("unknown", detail={"ms": number, "many": [{"n": -number}], "yes": True, "f": 1.5}))
    assert found.detail == {"ms": "[key]", "many": [{"n": "[key]"}], "yes": True, "f": 1.5}


def test_a_key_with_quotes_and_backslashes_is_blanked() -> None:
    key = 'abc"def\\ghijklmnopq'
    found = safe(key, Event("agent_text", f"it is {key}", detail={"a": key, key: {"x": [key]}}))
    assert found.text == "it is [key]"
    assert found.detail == {"a": "[key]", "[key]": {"x": ["[key]"]}}


def test_what_holds_no_key_is_left_as_it_is() -> None:
    detail = {"a": 1, "b": [None, "text", 2.5, {"c": False}]}
    assert safe(KEY, Event("unknown", "words", detail=detail)) == Event("unknown", "words", detail=detail)


def test_a_channel_knows_a_key_that_was_said_in_pieces() -> None:
    nothing: Any = None
    channel = SocketChannel(HttpTransport("Desk", Account("http://h", KEY)), nothing, nothing, nothing)
    assert channel.holds_key(f"so {KEY}.")
    assert not channel.holds_key(KEY[:20])
