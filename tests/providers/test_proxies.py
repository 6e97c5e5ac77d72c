"""Proxies from the environment: a real proxy on loopback gets the right requests, and no password is shown."""

import asyncio
import base64
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from pramana import settings
from pramana.errors import AuthenticationFailed, InvalidInput, ProviderError, Unavailable
from pramana.model import Request, Turn
from pramana.providers.accounts import Account, Accounts
from pramana.providers.http import HttpTransport
from pramana.providers.names import open_provider, resolve_target

from ..loopback.openai import OpenAIWire
from ..loopback.server import Loopback

pytestmark = pytest.mark.usefixtures("virtual_time")
PASSWORD = "hunter2"
REQUEST = Request("m", (Turn("user", "Is it so?"),))
ELSEWHERE = "http://models.example:8000/v1"
"""An unassigned address, which only a proxy can reach."""


@pytest.fixture
def proxied_host(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a host name that resolves to this machine; only the DNS answer is faked."""
    real = socket.getaddrinfo

    def resolve(host: Any, *rest: Any, **more: Any) -> Any:
        return real("127.0.0.1" if host == "models.example" else host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return "models.example"


@pytest.fixture(autouse=True)
def _without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)


class Proxy:
    """Forwards every request to one server, whatever host it names; without the right user it answers 407."""

    def __init__(self, forward_to: int, user: str | None = None) -> None:
        self.forward_to, self.user = forward_to, user
        self.asked: list[str] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *headers = head.split("\r\n")[:-2]
            named = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in headers)}
            self.asked.append(line)
            known = f"Basic {base64.b64encode(self.user.encode()).decode()}" if self.user else None
            if known and named.get("proxy-authorization") != known:
                said = f"You are not {self.user}".encode()
                writer.write(b"HTTP/1.1 407 No\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))
            elif line.startswith("CONNECT"):
                writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
            else:
                method, url, version = line.split()
                path = "/" + url.split("/", 3)[3]
                kept = [each for each in headers if not each.lower().startswith(("proxy-", "connection"))]
                onward, back = await asyncio.open_connection("127.0.0.1", self.forward_to)
                request = "\r\n".join([f"{method} {path} {version}", *kept, "Connection: close", "", ""])
                back.write(request.encode() + await reader.readexactly(int(named.get("content-length", "0"))))
                while data := await onward.read(65536):
                    writer.write(data)
                back.close()
            await writer.drain()
        writer.close()


@asynccontextmanager
async def proxying(server: Loopback, user: str | None = None) -> AsyncIterator[Proxy]:
    proxy = Proxy(int(server.url.split(":")[2].removesuffix("/v1")), user)
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    credentials = f"{user}@" if user else ""
    proxy.url = f"http://{credentials}127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        listening.close()


async def ask(url: str) -> str:
    provider = open_provider(
        resolve_target(f"{url}#m"), Accounts(settings.read_variable, proxy_for=settings.find_proxy)
    )
    try:
        return (await provider.ask(REQUEST)).text
    finally:
        await provider.close()


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_a_request_goes_through_the_proxy(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    async def go() -> tuple[str, list[str]]:
        async with Loopback(OpenAIWire("Through it.")) as server, proxying(server) as proxy:
            monkeypatch.setenv(name, proxy.url)
            return await ask(ELSEWHERE), proxy.asked

    text, asked = asyncio.run(go())
    assert text == "Through it."
    assert asked == [f"POST {ELSEWHERE}/chat/completions HTTP/1.1"]


def test_hosts_in_no_proxy_are_reached_directly(monkeypatch: pytest.MonkeyPatch, proxied_host: str) -> None:
    async def go() -> tuple[list[str], list[str], list[str]]:
        async with Loopback(OpenAIWire("Here.")) as server, proxying(server) as proxy:
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            named = server.url.replace("127.0.0.1", proxied_host)
            said = [await ask(named)]
            first = list(proxy.asked)
            monkeypatch.setenv("NO_PROXY", f"example.org,{proxied_host}")
            said += [await ask(named), await ask(server.url)]
            return said, first, proxy.asked

    said, before, after = asyncio.run(go())
    assert said == ["Here."] * 3
    assert len(before) == 1
    assert after == before


def test_localhost_is_always_reached_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> list[str]:
        async with Loopback(OpenAIWire("Here.")) as server, proxying(server) as proxy:
            monkeypatch.setenv("ALL_PROXY", proxy.url)
            for host in ("127.0.0.1", "localhost"):
                assert await ask(server.url.replace("127.0.0.1", host)) == "Here."
            return proxy.asked

    assert asyncio.run(go()) == []


@pytest.mark.parametrize("password", [PASSWORD, "p@ss/w%rd"])
def test_proxy_credentials_are_sent_and_never_shown(monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    from urllib.parse import quote

    async def go() -> tuple[str, ProviderError]:
        async with Loopback(OpenAIWire("Known.")) as server, proxying(server, f"me:{password}") as proxy:
            written = proxy.url.replace(f"me:{password}", f"me:{quote(password, safe='')}")
            monkeypatch.setenv("HTTP_PROXY", written)
            text = await ask(ELSEWHERE)
            proxy.user = f"you:{password}"  # who it no longer knows, and it says so
            with pytest.raises(AuthenticationFailed) as caught:
                await ask(ELSEWHERE)
            return text, caught.value

    text, error = asyncio.run(go())
    assert text == "Known."
    assert "the proxy 127.0.0.1:" in str(error)
    assert "requires a user and a password (407)" in str(error)
    assert password not in f"{error} {error!r}"


def test_an_unreachable_proxy_is_reported_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> list[str]:
        said = []
        async with Loopback(OpenAIWire()) as server, proxying(server, f"me:{PASSWORD}") as proxy:
            monkeypatch.setenv("HTTPS_PROXY", proxy.url)
            for user, kind in ((proxy.user, Unavailable), ("you:else", AuthenticationFailed)):
                proxy.user = user
                with pytest.raises(ProviderError) as caught:
                    await ask("https://models.example/v1")
                assert type(caught.value) is kind
                said.append(str(caught.value))
        monkeypatch.setenv("HTTP_PROXY", f"http://me:{PASSWORD}@127.0.0.1:1")
        with pytest.raises(Unavailable) as caught:
            await ask(ELSEWHERE)
        return [*said, str(caught.value)]

    tunnel, stranger, absent = asyncio.run(go())
    assert "could not connect to the server (models.example): 502" in tunnel
    assert "(407)" in stranger
    assert "cannot reach the server (models.example:8000)" in absent
    assert PASSWORD not in tunnel + stranger + absent


def test_a_reply_containing_the_proxy_password_is_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> str:
        async with (
            Loopback(OpenAIWire(f"The film has {PASSWORD}.")) as server,
            proxying(server, f"me:{PASSWORD}") as proxy,
        ):
            monkeypatch.setenv("HTTP_PROXY", proxy.url)
            return await ask(ELSEWHERE)

    assert asyncio.run(go()) == f"The film has {PASSWORD}."


def test_accounts_and_refusals_never_show_the_proxy_password() -> None:
    account = Account(ELSEWHERE, proxy=f"http://me:{PASSWORD}@proxy:3128")
    accounts = Accounts(lambda _: None, proxy_for=lambda _: account.proxy)
    http = HttpTransport("the server", account)
    said = http.failures.make_status_error(400, {"error": f"bad gateway http://me:{PASSWORD}@proxy:3128/ {PASSWORD}"})
    assert PASSWORD not in f"{account!r} {http!r} {accounts!r} {said}"
    with pytest.raises(InvalidInput) as caught:
        HttpTransport("the server", Account(ELSEWHERE, proxy=f"http://me:{PASSWORD}@"))
    assert PASSWORD not in str(caught.value)


# What the environment says


@pytest.mark.parametrize(
    ("url", "variables", "proxy"),
    [
        ("http://a.org/v1", {}, None),
        ("http://a.org/v1", {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
        ("http://a.org/v1", {"HTTP_PROXY": "http://p:1", "http_proxy": "http://q:2"}, "http://q:2"),
        ("http://a.org/v1", {"HTTP_PROXY": "p:1"}, "http://p:1"),
        ("https://a.org/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("https://a.org/v1", {"HTTPS_PROXY": "http://p:1", "ALL_PROXY": "socks5://s:2"}, "http://p:1"),
        ("https://a.org/v1", {"ALL_PROXY": "http://p:1"}, "http://p:1"),
        ("https://a.org/v1", {"ALL_PROXY": "http://p:1", "NO_PROXY": "a.org"}, None),
        ("https://b.a.org/v1", {"ALL_PROXY": "http://p:1", "no_proxy": ".a.org"}, None),
        ("https://ba.org/v1", {"ALL_PROXY": "http://p:1", "NO_PROXY": "a.org"}, "http://p:1"),
        ("https://a.org:8443/v1", {"ALL_PROXY": "http://p:1", "NO_PROXY": "a.org:8443"}, None),
        ("https://me:pw@a.org/v1", {"ALL_PROXY": "http://p:1", "NO_PROXY": "a.org"}, None),
        ("https://a.org/v1", {"ALL_PROXY": "http://p:1", "NO_PROXY": "*"}, None),
        ("http://10.1.2.3:8000/v1", {"ALL_PROXY": "http://p:1", "NO_PROXY": "c.org, 10.0.0.0/8"}, None),
        ("http://11.1.2.3:8000/v1", {"ALL_PROXY": "http://p:1", "NO_PROXY": "c.org, 10.0.0.0/8"}, "http://p:1"),
        ("http://[fd00::7]:8000/v1", {"ALL_PROXY": "http://p:1", "NO_PROXY": "fd00::/8"}, None),
        ("http://localhost:8000/v1", {"ALL_PROXY": "http://p:1"}, None),
        ("http://127.0.0.1:8000/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://127.9.9.9/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://[::1]:8000/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://api.localhost/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("", {"ALL_PROXY": "http://p:1"}, None),
        ("http://[bad", {"ALL_PROXY": "http://p:1"}, None),
    ],
)
def test_the_proxy_is_chosen_by_scheme_and_host(
    monkeypatch: pytest.MonkeyPatch, url: str, variables: dict[str, str], proxy: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert settings.find_proxy(url) == proxy


def test_an_unsupported_proxy_type_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", f"socks5://me:{PASSWORD}@p:1")
    with pytest.raises(InvalidInput, match="of the type socks5, which is not supported; set HTTPS_PROXY") as caught:
        settings.find_proxy("https://a.org/v1")
    assert PASSWORD not in str(caught.value)
    assert settings.find_proxy("http://localhost:8000/v1") is None
