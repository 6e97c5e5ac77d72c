"""The address guard against real servers on loopback: no private address is connected to, nothing hangs or floods."""

import asyncio
import datetime as dt
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import IPv4Network, ip_network
from pathlib import Path
from typing import Any

import pytest

from pramana import settings
from pramana.errors import InvalidInput, NotFound, PramanaError, Unavailable
from pramana.providers import guard
from pramana.providers.guard import describe_private_address, fetch

pytestmark = pytest.mark.usefixtures("virtual_time")
LIMIT = 1_000_000


@pytest.fixture(autouse=True)
def _without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)


Answer = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers each path by a function, and records the requests."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[str] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self.connections = self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.tasks += filter(None, [asyncio.current_task()])
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.asked.append(head)
                await self.answer(head.split()[1], writer)
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        finally:
            writer.transport.abort()


@asynccontextmanager
async def serving(answer: Answer, host: str = "127.0.0.1", port: int = 0, **more: Any) -> AsyncIterator[Server]:
    server = Server(answer)
    listening = await asyncio.start_server(server.serve, host, port, family=socket.AF_INET, **more)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in server.tasks:
            task.cancel()
        await asyncio.gather(*server.tasks, return_exceptions=True)
        await listening.wait_closed()


def answer_with(body: bytes, status: str = "200 OK", **headers: str) -> Answer:
    async def answer(_path: str, writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    return answer


def redirect_to(*places: str) -> Answer:
    """Redirect /0 to the first, /1 to the second …; any other path is the sound."""

    async def answer(path: str, writer: asyncio.StreamWriter) -> None:
        number = path.strip("/").partition("?")[0]
        if number.isdigit() and int(number) < len(places):
            writer.write(f"HTTP/1.1 302 Found\r\nLocation: {places[int(number)]}\r\nContent-Length: 0\r\n\r\n".encode())
        else:
            await answer_with(b"sound")(path, writer)

    return answer


async def expect_refusal(url: str, *, allow_private: bool = False, limit: int = LIMIT) -> PramanaError:
    with pytest.raises(PramanaError) as caught:
        await fetch(url, limit_bytes=limit, allow_private=allow_private)
    return caught.value


# ── Which addresses are public ──


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        *(("127.0.0.1", "loopback"), ("127.255.255.254", "loopback"), ("::1", "loopback"), ("0.0.0.0", "unspecified")),  # noqa: S104
        *(("0.1.2.3", "unspecified"), ("::", "unspecified"), ("10.0.0.1", "private"), ("172.16.0.1", "private")),
        *(("172.31.255.255", "private"), ("192.168.1.1", "private"), ("fd00:ec2::254", "private")),
        *(("fec0::1", "private"), ("169.254.169.254", "link-local"), ("fe80::1", "link-local")),
        *(("fe80::1%eth0", "link-local"), ("100.64.0.1", "shared by customers of a carrier (100.64.0.0/10)"), ("224.0.0.1", "multicast")),
        *(("100.127.255.255", "shared by customers of a carrier (100.64.0.0/10)"), ("239.255.255.255", "multicast"), ("ff02::1", "multicast")),
        *(("240.0.0.1", "reserved"), ("255.255.255.255", "reserved"), ("192.0.0.8", "reserved")),
        *(("192.0.2.1", "reserved"), ("198.18.0.1", "reserved"), ("198.51.100.1", "reserved"), ("203.0.113.1", "reserved")),
        *(("2001:db8::1", "reserved"), ("2001::1", "reserved"), ("3fff::1", "reserved"), ("5f00::1", "reserved")),
        *(("::ffff:127.0.0.1", "loopback"), ("::ffff:10.0.0.1", "private"), ("::ffff:0.0.0.0", "unspecified")),
        *(("64:ff9b::7f00:1", "loopback"), ("64:ff9b::a9fe:a9fe", "link-local"), ("64:ff9b:1::1", "reserved")),
        *(("2002:7f00:1::", "loopback"), ("2002:c0a8:101::1", "private"), ("2002:a00:1:ffff::", "private")),
        *(("::7f00:1", "reserved"), ("::ffff:0:7f00:1", "reserved"), ("100::1", "reserved"), ("4000::1", "reserved")),
        *(("localhost", "no address"), ("", "no address"), ("1.2.3", "no address"), ("٣.1.1.1", "no address")),
    ],
)  # fmt: skip
def test_non_public_addresses_are_classified(address: str, kind: str) -> None:
    assert describe_private_address(address) == kind


@pytest.mark.parametrize(
    "address",
    [
        *("8.8.8.8", "93.184.215.14", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.167.0.1"),
        *("2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"),
    ],
)  # fmt: skip
def test_public_addresses_are_allowed(address: str) -> None:
    assert describe_private_address(address) is None


def test_addresses_that_python_calls_private_are_never_public() -> None:
    """The standard library's own lists are an independent referee; where we are stricter is our choice."""
    for first in range(256):
        for rest in ("0.0.1", "64.0.1", "168.0.1", "18.5.5", "254.1.1", "0.2.9", "51.100.9", "31.9.9", "255.255.255"):
            address = ip_network(f"{first}.{rest}").network_address
            judged = describe_private_address(str(address))
            if address.is_private or address.is_multicast or address.is_reserved or address.is_loopback:
                assert judged, address


# ── What is refused before and at the socket ──


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.0.0.1.", "2130706433", "0x7f000001", "0X7F.1", "0177.0.0.1", "127.1", "017700000001"),
        *("[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::]", "0.0.0.0", "0"),  # noqa: S104
        *("localhost", "LOCALHOST", "localhost.", "a.localhost", "１２７.0.0.1", "①②⑦.0.0.1", "127。0。0。1"),
        *("[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[fe80::1%25lo]"),
    ],
)  # fmt: skip
def test_no_spelling_of_localhost_is_connected_to(host: str) -> None:
    async def go() -> tuple[PramanaError, int]:
        async with serving(answer_with(b"secret"), "127.0.0.1") as server:
            return await expect_refusal(f"http://{host}:{server.port}/a.wav?token=hidden"), server.connections

    error, connections = asyncio.run(go())
    assert isinstance(error, InvalidInput)
    assert "is not fetched" in str(error)
    assert "PRAMANA_ALLOW_PRIVATE_ADDRESSES=1 allows it" in str(error)
    assert "/a.wav" in str(error)
    assert "hidden" not in str(error)
    assert connections == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
def test_a_setting_allows_private_addresses(host: str) -> None:
    async def go() -> bytes:
        async with serving(answer_with(b"sound")) as server:
            return await fetch(f"http://{host}:{server.port}/a.wav?b=c", limit_bytes=LIMIT, allow_private=True)

    assert asyncio.run(go()) == b"sound"


@pytest.mark.parametrize(("stated", "allowed"), [(None, False), ("", False), ("0", False), ("1", True)])
def test_the_setting_is_off_unless_it_equals_1(
    monkeypatch: pytest.MonkeyPatch, stated: str | None, allowed: bool
) -> None:
    monkeypatch.delenv("PRAMANA_ALLOW_PRIVATE_ADDRESSES", raising=False)
    if stated is not None:
        monkeypatch.setenv("PRAMANA_ALLOW_PRIVATE_ADDRESSES", stated)
    assert settings.are_private_addresses_allowed() is allowed


def test_a_misspelled_setting_allows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAMANA_ALLOW_PRIVATE_ADDRESSES", "false")
    with pytest.raises(InvalidInput, match='is "false"; expected 1 or 0'):
        settings.are_private_addresses_allowed()


def fake_name_server(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    """Make models.example resolve to one address after another, and then always to the last."""
    real, left = socket.getaddrinfo, list(answers)

    def resolve(host: Any, *rest: Any, **more: Any) -> Any:
        if host != "models.example":
            return real(host, *rest, **more)
        return real(left.pop(0) if len(left) > 1 else left[0], *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.1.2.3", "169.254.169.254", "::ffff:127.0.0.1"])
def test_a_name_that_resolves_to_a_private_address_is_refused_on_connect(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    fake_name_server(monkeypatch, address)

    async def go() -> tuple[PramanaError, int]:
        async with serving(answer_with(b"secret")) as server:
            return await expect_refusal(f"http://models.example:{server.port}/a.wav"), server.connections

    error, connections = asyncio.run(go())
    assert isinstance(error, InvalidInput)
    assert f"models.example leads to {address}, which is " in str(error)
    assert connections == 0


@pytest.fixture
def second_is_public(monkeypatch: pytest.MonkeyPatch) -> str:
    """Take 127.0.0.2 for a public address, so that a guarded fetch has somewhere to go; 127.0.0.1 stays loopback."""
    monkeypatch.setattr(guard, "_NON_PUBLIC_IPV4_KINDS", {IPv4Network("127.0.0.1/32"): "loopback"})
    return "127.0.0.2"


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "localhost", "2130706433", "[::ffff:127.0.0.1]", "models.example"]
)
def test_a_redirect_to_this_machine_is_not_followed(
    monkeypatch: pytest.MonkeyPatch, second_is_public: str, host: str
) -> None:
    fake_name_server(monkeypatch, "127.0.0.1")

    async def go() -> tuple[PramanaError, int, int]:
        async with (
            serving(answer_with(b"secret")) as inside,
            serving(redirect_to(f"http://{host}:{inside.port}/key"), second_is_public) as outside,
        ):
            error = await expect_refusal(f"http://{second_is_public}:{outside.port}/0")
            return error, outside.connections, inside.connections

    error, outside, inside = asyncio.run(go())
    assert isinstance(error, InvalidInput)
    assert "/key is not fetched" in str(error)
    assert (outside, inside) == (1, 0)


def test_dns_rebinding_is_refused(monkeypatch: pytest.MonkeyPatch, second_is_public: str) -> None:
    fake_name_server(monkeypatch, second_is_public, "127.0.0.1")

    async def go() -> tuple[PramanaError, int, int]:
        async with (
            serving(redirect_to("/1", "/2"), second_is_public) as outside,
            serving(answer_with(b"secret"), port=outside.port) as inside,
        ):
            return (
                await expect_refusal(f"http://models.example:{outside.port}/0"),
                outside.connections,
                inside.connections,
            )

    error, outside, inside = asyncio.run(go())
    assert "models.example leads to 127.0.0.1, which is loopback" in str(error)
    assert (outside, inside) == (1, 0)


def test_a_public_answer_beside_a_private_one_is_used(monkeypatch: pytest.MonkeyPatch, second_is_public: str) -> None:
    real = socket.getaddrinfo

    def resolve(host: Any, *rest: Any, **more: Any) -> Any:
        both = ("127.0.0.1", second_is_public) if host == "models.example" else (host,)
        return [found for each in both for found in real(each, *rest, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)

    async def go() -> tuple[bytes, int]:
        async with (
            serving(answer_with(b"sound"), second_is_public) as outside,
            serving(answer_with(b"no"), port=outside.port) as inside,
        ):
            url = f"http://models.example:{outside.port}/a.wav"
            return await fetch(url, limit_bytes=LIMIT, allow_private=False), inside.connections

    assert asyncio.run(go()) == (b"sound", 0)


# ── Redirects, limits and whatever servers do ──


def test_at_most_five_redirects_are_followed() -> None:
    async def go(count: int) -> bytes:
        places = [f"/{number + 1}?session=hidden" for number in range(count - 1)] + ["sound.wav"]
        async with serving(redirect_to(*places)) as server:
            return await fetch(f"http://127.0.0.1:{server.port}/0", limit_bytes=LIMIT, allow_private=True)

    assert asyncio.run(go(5)) == b"sound"
    with pytest.raises(InvalidInput, match="redirects more than 5 times; the last redirect goes to") as caught:
        asyncio.run(go(6))
    assert "hidden" not in str(caught.value)


def test_a_redirect_loop_ends() -> None:
    async def go() -> tuple[PramanaError, int]:
        async with serving(redirect_to("/0?again")) as server:
            return await expect_refusal(f"http://127.0.0.1:{server.port}/0", allow_private=True), server.connections

    error, connections = asyncio.run(go())
    assert "redirects more than 5 times" in str(error)
    assert connections == 6


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("ftp://127.0.0.1/a", "redirects to what is not an http(s) URL: ftp://127.0.0.1/a"),
        ("file:///etc/passwd", "redirects to what is not an http(s) URL: file:///etc/passwd"),
        ("data:audio/wav;base64,AAAA", "redirects to what is not an http(s) URL"),
        ("javascript:alert(1)", "redirects to what is not an http(s) URL"),
        ("http://[::1", "redirects to what is not an http(s) URL"),
        ("http://127.0.0.1:99999/", "redirects to what is not an http(s) URL"),
        (
            "http://user:hidden@127.0.0.1/",
            "contains a user name or a password, which are never sent; remove them from the URL",
        ),
        ("", "answered 302"),
    ],
)
def test_an_invalid_redirect_is_our_own_error(place: str, message: str) -> None:
    async def go() -> PramanaError:
        async with serving(redirect_to(place)) as server:
            return await expect_refusal(f"http://127.0.0.1:{server.port}/0", allow_private=True)

    error = asyncio.run(go())
    assert message in str(error)
    assert "hidden" not in str(error)


@pytest.mark.parametrize(
    "url",
    [
        *("", "a.wav", "/audio/a.wav", "//host/a.wav", "ftp://host/a", "file:///etc/passwd", "http:", "http://", "http:///a"),
        *("http://[::1", "http://host:0/", "http://host:99999/", "http://host:x/", "http://a\0b/", "http://a b/", "http://\ud800/"),
        *("http://" + "a" * 300 + "/", "http://.../", "http://xn--/", "http://%00/", "javascript:alert(1)", "HTTP//x", "\n"),
    ],
)  # fmt: skip
def test_an_invalid_address_is_our_own_error(url: str) -> None:
    for allowed in (True, False):
        error = asyncio.run(expect_refusal(url, allow_private=allowed))
        assert isinstance(error, InvalidInput)
        assert "is not an http(s) URL" in str(error)
        assert len(str(error)) < 300
        assert str(error).isprintable()


def test_no_credentials_cookies_or_keys_are_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password hidden\n")
    monkeypatch.setenv("NETRC", str(netrc))

    async def go() -> list[str]:
        async def answer(path: str, writer: asyncio.StreamWriter) -> None:
            if path == "/0":
                writer.write(b"HTTP/1.1 307 On\r\nLocation: /a\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n")
            else:
                await answer_with(b"sound")(path, writer)

        async with serving(answer) as server:
            await fetch(f"http://127.0.0.1:{server.port}/0", limit_bytes=LIMIT, allow_private=True)
            error = await expect_refusal(f"http://me:hidden@127.0.0.1:{server.port}/a", allow_private=True)
            assert "which are never sent" in str(error)
            assert "hidden" not in str(error)
            return server.asked

    asked = asyncio.run(go())
    assert len(asked) == 2
    for head in asked:
        names = {line.partition(":")[0].lower() for line in head.split("\r\n")[1:] if line}
        assert names == {"host", "user-agent", "accept", "accept-encoding", "connection"}
        assert "Accept-Encoding: identity" in head


def test_a_body_up_to_the_limit_is_read_and_a_larger_one_refused() -> None:
    async def go(size: int) -> bytes:
        async with serving(answer_with(b"x" * size)) as server:
            return await fetch(f"http://127.0.0.1:{server.port}/a?b", limit_bytes=70_000, allow_private=True)

    assert len(asyncio.run(go(70_000))) == 70_000
    with pytest.raises(InvalidInput, match=r"/a is larger than 70,000 bytes"):
        asyncio.run(go(70_001))


async def send_endless_chunks(_path: str, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b"\0" * 65536 + b"\r\n")
        await writer.drain()


async def send_until_closed(_path: str, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        writer.write(b"\0" * 65536)
        await writer.drain()


@pytest.mark.parametrize("answer", [send_endless_chunks, send_until_closed])
def test_an_endless_body_is_aborted_at_the_limit(answer: Answer) -> None:
    async def go() -> PramanaError:
        async with serving(answer) as server:
            return await expect_refusal(f"http://127.0.0.1:{server.port}/", allow_private=True)

    assert "is larger than 1,000,000 bytes" in str(asyncio.run(go()))


async def send_slowly(_path: str, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    while True:
        writer.write(b"x")
        await writer.drain()
        await asyncio.sleep(0.02)


async def send_nothing(_path: str, writer: asyncio.StreamWriter) -> None:
    del writer
    await asyncio.sleep(3600)


async def redirect_slowly(_path: str, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(0.15)
    writer.write(b"HTTP/1.1 302 On\r\nLocation: /\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize("answer", [send_slowly, send_nothing, redirect_slowly])
def test_the_timeout_covers_the_whole_download(monkeypatch: pytest.MonkeyPatch, answer: Answer) -> None:
    assert guard.FETCH_TIMEOUT_S == 30
    monkeypatch.setattr(guard, "FETCH_TIMEOUT_S", 0.3)

    async def go() -> PramanaError:
        async with serving(answer) as server:
            return await expect_refusal(f"http://127.0.0.1:{server.port}/a?token=hidden", allow_private=True)

    error = asyncio.run(asyncio.wait_for(go(), 5))
    assert isinstance(error, Unavailable)
    assert "/a took longer than 0.3 s" in str(error)
    assert "hidden" not in str(error)


async def send_truncated(_path: str, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort")


async def send_ssh_banner(_path: str, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.9\r\n")


async def send_huge_headers(_path: str, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 1_000_000 + b"\r\n\r\n")


async def close_at_once(_path: str, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def send_negative_length(_path: str, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n")


@pytest.mark.parametrize(
    "answer", [send_truncated, send_ssh_banner, send_huge_headers, close_at_once, send_negative_length]
)
def test_malformed_responses_are_our_own_errors(answer: Answer) -> None:
    async def go() -> PramanaError:
        async with serving(answer) as server:
            return await expect_refusal(f"http://127.0.0.1:{server.port}/a?token=hidden", allow_private=True)

    error = asyncio.run(asyncio.wait_for(go(), 5))
    assert isinstance(error, Unavailable)
    assert "/a cannot be fetched" in str(error)
    assert "hidden" not in str(error)
    assert len(str(error)) < 500


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("404 No", NotFound),
        ("403 No", NotFound),
        ("304 Same", NotFound),
        ("500 No", Unavailable),
        ("429 No", Unavailable),
    ],
)
def test_a_failure_status_is_reported(status: str, kind: type[PramanaError]) -> None:
    async def go() -> PramanaError:
        async with serving(answer_with(b"", status)) as server:
            return await expect_refusal(f"http://127.0.0.1:{server.port}/a?token=hidden", allow_private=True)

    error = asyncio.run(go())
    assert type(error) is kind
    assert f"/a answered {status[:3]}" in str(error)


def test_a_compressed_body_is_refused() -> None:
    async def go() -> PramanaError:
        async with serving(answer_with(b"\x1f\x8b", Content_Encoding="gzip")) as server:
            return await expect_refusal(f"http://127.0.0.1:{server.port}/a", allow_private=True)

    assert '/a was served compressed ("gzip"); serve it uncompressed' in str(asyncio.run(go()))


def test_a_closed_port_is_unavailable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        error = asyncio.run(
            expect_refusal(f"http://127.0.0.1:{unused.getsockname()[1]}/a?token=hidden", allow_private=True)
        )
    assert isinstance(error, Unavailable)
    assert "cannot be fetched: " in str(error)
    assert "hidden" not in str(error)
    error = asyncio.run(expect_refusal("http://nowhere.invalid/a"))
    assert isinstance(error, Unavailable)


# ── Proxies ──


def test_names_go_through_the_proxy_and_private_addresses_never(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> list[str]:
        async with serving(answer_with(b"sound")) as proxy:
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
            url = "http://models.example/a.wav"
            assert await fetch(url, limit_bytes=LIMIT, allow_private=False) == b"sound"
            for host in ("10.0.0.1", "169.254.169.254", "2852039166", "[fd00::1]", "127.0.0.1", "localhost", "[::1]"):
                assert "is not fetched" in str(await expect_refusal(f"http://{host}/a.wav"))
            return [head.split("\r\n")[0] for head in proxy.asked]

    assert asyncio.run(go()) == ["GET http://models.example/a.wav HTTP/1.1"]


@pytest.mark.parametrize(
    ("url", "message"),
    [("http://models.example/a", "requires a user name"), ("https://models.example/a", "the proxy answered 407")],
)
def test_a_proxy_that_refuses_is_named(monkeypatch: pytest.MonkeyPatch, url: str, message: str) -> None:
    async def go() -> PramanaError:
        async with serving(answer_with(b"", "407 No")) as proxy:
            monkeypatch.setenv("all_proxy", f"http://me:hidden@127.0.0.1:{proxy.port}")
            return await expect_refusal(url)

    error = asyncio.run(go())
    assert isinstance(error, Unavailable)
    assert message in str(error)
    assert "hidden" not in str(error)


# ── TLS ──

FETCH = """
import asyncio, sys
from pramana.errors import PramanaError
from pramana.providers.guard import fetch

try:
    print(asyncio.run(fetch(sys.argv[1], limit_bytes=1000, allow_private=True)).decode())
except PramanaError as error:
    print(error)
"""


def make_certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """Return a self-signed certificate of localhost, and the TLS context of a server with it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return path, context


def test_https_is_verified_and_never_redirected_to_http(tmp_path: Path) -> None:
    path, context = make_certificate(tmp_path)

    async def fetch_in_process(url: str, **environment: str) -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            FETCH,
            url,
            stdout=-1,
            env={**os.environ, **environment},  # noqa: TID251
        )
        return (await process.communicate())[0].decode().strip()

    async def go() -> tuple[tuple[str, str, str], int]:
        async with (
            serving(answer_with(b"secret")) as plain,
            serving(
                redirect_to(f"http://localhost:{plain.port}/?q=hidden", "/sound"), "localhost", ssl=context
            ) as safe,
        ):
            trusted = {"SSL_CERT_FILE": str(path)}
            url = f"https://localhost:{safe.port}"
            said = await asyncio.gather(
                fetch_in_process(f"{url}/1", **trusted),
                fetch_in_process(f"{url}/0", **trusted),
                fetch_in_process(f"{url}/1"),
            )
            return said, plain.connections

    (followed, downgraded, untrusted), plain = asyncio.run(go())
    assert followed == "sound"
    assert "redirects from https to http" in downgraded
    assert "hidden" not in downgraded
    assert "its certificate is not trusted (self-signed certificate)" in untrusted
    assert plain == 0
