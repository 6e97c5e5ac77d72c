"""Attacks through the socket of a page, without a browser: the role of the session decides about every message.

A page is opened as a program would, its parts are read from its markup, and messages are sent as NiceGUI's script would
send them: also for buttons that are hidden, inert, or of somebody else's page.
"""

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
from playwright.sync_api import Browser
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from pramana.store import open_store

from ...credentials import TOKEN_ENDS, TokenEnd, end_token
from ..api.served import Client
from .closed import TokenBench, serve_with_tokens
from .conftest import create_session
from .test_roles import fill_store, read_everything

SOCKET = "/_nicegui_ws/socket.io/?EIO=4&transport=polling"
ESCAPED = (("&#36;", "$"), ("&#96;", "`"), ("&gt;", ">"), ("&lt;", "<"), ("&amp;", "&"))
TYPED = {"Name": "intruder", "Id": "intruder"}
"""What is typed into fields, so that forms would be taken."""


@pytest.fixture(scope="module")
def token_bench(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[TokenBench]:
    with serve_with_tokens(tmp_path_factory.mktemp("closed"), browser) as found:
        fill_store(found.client("admin"), found.bench.home)
        found.client("admin").patch("/api/settings", {"requestsPerMinute": 100_000})
        yield found


def make_session_client(door: TokenBench, token: str) -> Client:
    """Return a client with the cookie of a new session."""
    session = create_session(door.bench.client, token)
    return replace(door.bench.client, headers={"Cookie": f"pramana_session={session}"})


@dataclass
class OpenPage:
    """A page and a socket connected to it."""

    client: Client
    client_id: str
    parts: dict[int, Any]
    socket: str = ""

    def socket_path(self, transport: str) -> str:
        query = f"&implicit_handshake=true&client_id={self.client_id}&tab_id=t&document_id=d&next_message_id=0"
        return SOCKET.replace("polling", transport) + query

    def join(self, client: Client | None = None) -> bytes:
        """Open a socket, optionally as another client; return the server's answer."""
        client = client or self.client
        opened = client.get(self.socket_path("polling"))
        if opened.status != 200:
            return opened.body
        self.socket = f"{SOCKET}&sid={json.loads(opened.body[1:])['sid']}"
        assert client.call("POST", self.socket, body=b"40").status == 200
        return client.get(self.socket).body

    def event(self, part: int, listener: str, *arguments: Any) -> str:
        """Return the message for an event of a part of the page."""
        event = {"client_id": self.client_id, "id": part, "listener_id": listener}
        return "42" + json.dumps(["event", {**event, "args": [json.dumps(each) for each in arguments]}])

    def send(self, part: int, listener: str, *arguments: Any, client: Client | None = None) -> int:
        """Send an event of a part of the page; return the status."""
        message = self.event(part, listener, *arguments).encode()
        return (client or self.client).call("POST", self.socket, body=message).status

    def listeners(self, *kinds: str) -> Iterator[tuple[int, str, str]]:
        for part, each in self.parts.items():
            for listener in each.get("events", ()):
                if listener["type"] in kinds:
                    yield part, listener["listener_id"], each.get("props", {}).get("label", "")

    def press_everything(self, client: Client | None = None) -> int:
        """Fill in every field and press every button; return how many."""
        for part, listener, label in self.listeners("update:value"):
            assert self.send(part, listener, TYPED.get(label, "1"), client=client) == 200
        pressed = list(self.listeners("click"))
        for part, listener, _ in pressed:
            assert self.send(part, listener, client=client) == 200
        return len(pressed)


def open_page(client: Client, path: str) -> OpenPage:
    page = client.get(path)
    assert page.status == 200, page
    markup = page.body.decode()
    client_id = re.search(r"'client_id': '([\w-]+)'", markup)
    found = re.search(r"parseElements\(String\.raw`(.*?)`\)", markup, re.DOTALL)
    assert client_id
    assert found
    text = found[1]
    for escape, character in ESCAPED:
        text = text.replace(escape, character)
    return OpenPage(client, client_id[1], {int(part): each for part, each in json.loads(text).items()})


def wait_until_unchanged(client: Client) -> dict[str, Any]:
    """Wait until nothing changes any more; return everything that a user could have changed."""
    before = read_everything(client)
    while True:
        time.sleep(0.5)
        if (now := read_everything(client)) == before:
            return now
        before = now


def list_tokens(door: TokenBench) -> list[str]:
    return [each["name"] for each in door.client("admin").get("/api/tokens").data]


PAGES = (
    "/settings/tokens", "/settings/server", "/settings/providers", "/settings/prices?model=gpt-5", "/runs/latest",
    "/settings/new-provider?kind=openai", "/runs/new?model=fake", "/scenarios/new", "/scenarios/kept", "/suites", "/",
)  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
def test_a_viewers_socket_changes_nothing(token_bench: TokenBench, path: str) -> None:
    before = wait_until_unchanged(token_bench.client("admin"))
    page = open_page(make_session_client(token_bench, token_bench.tokens["viewer"]), path)
    assert not page.join().startswith(b"44")
    assert page.press_everything() >= 1
    assert wait_until_unchanged(token_bench.client("admin")) == before


def test_the_same_messages_take_effect_for_an_administrator(token_bench: TokenBench) -> None:
    page = open_page(make_session_client(token_bench, token_bench.tokens["admin"]), "/settings/tokens")
    assert not page.join().startswith(b"44")
    (name, listener), *_ = [(part, each) for part, each, label in page.listeners("update:value") if label == "Name"]
    page.send(name, listener, "by socket")
    (make, press), *_ = [(part, each) for part, each, label in page.listeners("click") if label == "Create token"]
    page.send(make, press)
    give_up = time.monotonic() + 20
    while "by socket" not in list_tokens(token_bench):
        assert time.monotonic() < give_up
        time.sleep(0.1)


@pytest.mark.parametrize("role", ["viewer", "admin"])  # another user, and the same user in another browser
def test_a_socket_of_another_session_cannot_join_or_control_a_page(token_bench: TokenBench, role: str) -> None:
    page = open_page(make_session_client(token_bench, token_bench.tokens["admin"]), "/settings/tokens")
    other = make_session_client(token_bench, token_bench.tokens[role])
    before = wait_until_unchanged(token_bench.client("admin"))
    assert page.join(other).startswith(b"44"), "refused"
    own = open_page(other, "/runs")
    assert not own.join().startswith(b"44")
    page.socket = own.socket  # an open socket, with messages that name another user's page
    page.press_everything(other)
    assert wait_until_unchanged(token_bench.client("admin")) == before
    assert other.call("POST", f"/_nicegui/client/{page.client_id}/upload/1", body=b"x").status == 404
    stranger = replace(token_bench.bench.client, headers={})
    assert b"a token is required" in page.join(stranger)


@pytest.mark.parametrize("how", TOKEN_ENDS)
def test_a_socket_ends_within_seconds_of_its_token_and_does_nothing_more(
    token_bench: TokenBench, how: TokenEnd
) -> None:
    """Over a WebSocket, which passes the gate only once; the test's end does not follow the redirect."""
    made = token_bench.client("admin").post("/api/tokens", {"name": how, "role": "admin"}).data
    client = make_session_client(token_bench, made["token"])
    page = open_page(client, "/settings/tokens")
    address = f"{client.url.replace('http', 'ws', 1)}{page.socket_path('websocket')}"
    with connect(address, additional_headers=client.headers, proxy=None) as socket:
        socket.send("40")
        while not str(socket.recv(10)).startswith("40"):
            pass
        for part, each, label in page.listeners("update:value"):
            if label == "Name":
                socket.send(page.event(part, each, "intruder"))
        with closing(open_store(f"sqlite:///{token_bench.bench.home}/pramana.sqlite3")) as store:
            end_token(store, made["id"], how)
        press = [(part, each) for part, each, label in page.listeners("click") if label == "Create token"]
        began, ended = time.monotonic(), False
        while not ended:
            assert time.monotonic() - began < 5, "the socket did not end"
            try:
                with suppress(TimeoutError):
                    socket.recv(0.2)
                    continue
                socket.send("40")  # it tries to reopen the closed socket
                if time.monotonic() - began > 2.1:  # no longer accepted, whether or not the socket is open
                    socket.send(page.event(*press[0]))
            except ConnectionClosed:
                ended = True
        assert time.monotonic() - began < 5
    before = wait_until_unchanged(token_bench.client("admin"))
    assert "intruder" not in list_tokens(token_bench), "nobody has made one"
    if how == "demoted":  # a viewer can open the page again, but nothing more
        assert not page.join().startswith(b"44")
        page.press_everything()
    else:
        assert b"a token is required" in page.join()
    assert wait_until_unchanged(token_bench.client("admin")) == before
    assert client.get("/api/tokens").status == (403 if how == "demoted" else 401)
