"""Connections before authentication: request heads that are too large, too slow or never arrive."""

import os
import re
import resource
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, closing, suppress
from urllib.parse import urlsplit

import pytest

from pramana.show.api import connection
from pramana.show.api.connection import (
    HEAD_TIMEOUT_S,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    RESERVED_FILE_DESCRIPTORS,
    max_connections,
)

from .served import Client

REQUEST = b"GET /api/health HTTP/1.1\r\nHost: localhost\r\n"


def open_connection(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def read_to_end(line: socket.socket) -> bytes:
    """Return everything received until the server closes the connection."""
    found = b""
    with suppress(ConnectionResetError):  # closed by the server while we were still sending
        while piece := line.recv(65536):
            found += piece
    return found


def test_a_head_of_normal_size_is_accepted(client: Client) -> None:
    headers = b"".join(b"X-Header-%d: %b\r\n" % (number, b"x" * 600) for number in range(MAX_HEADERS - 5))
    with closing(open_connection(client.url)) as line:
        line.sendall(REQUEST + headers + b"Connection: close\r\n\r\n")
        assert read_to_end(line).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "head",
    [
        b"".join(b"a%d: b\r\n" % number for number in range(MAX_HEADERS + 1)),
        b"X: " + b"x" * (MAX_HEAD_BYTES + 300_000),
        b"a:\r\n" * 300_000,
    ],
    ids=["headers", "one that does not end", "very many"],
)
def test_a_head_that_is_too_large_is_refused_early(client: Client, head: bytes) -> None:
    with closing(open_connection(client.url)) as line:
        with suppress(BrokenPipeError, ConnectionResetError):
            line.sendall(REQUEST + head)
        said = read_to_end(line)
    assert said.startswith(b"HTTP/1.1 431 ") or not said  # empty if it was reset while we were sending
    assert client.get("/api/health").status == 200


def test_a_request_line_that_is_too_long_is_refused(client: Client) -> None:
    with closing(open_connection(client.url)) as line:
        line.sendall(b"GET /" + b"a" * (MAX_HEAD_BYTES + 10))
        assert read_to_end(line).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize("sent", [b"", b"GET /api/hea", REQUEST])
def test_a_connection_without_a_head_is_closed_after_a_timeout(
    client: Client, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert HEAD_TIMEOUT_S == 10
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.4)
    with closing(open_connection(client.url)) as line:
        line.sendall(sent)
        began = time.monotonic()
        assert read_to_end(line).startswith(b"HTTP/1.1 408 ")
        assert time.monotonic() - began > 0.2


def test_a_slowly_sent_head_gets_no_extra_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.4)
    with closing(open_connection(client.url)) as line:
        line.settimeout(0.05)
        until = time.monotonic() + 20
        said = b""
        while not said:
            assert time.monotonic() < until
            line.send(b"G")
            try:
                said = line.recv(100)
            except TimeoutError:
                continue
    assert said.startswith((b"HTTP/1.1 408 ", b"HTTP/1.1 400 "))


def test_a_body_can_take_longer_than_a_head(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.3)
    with closing(open_connection(client.url)) as line:
        head = b"PATCH /api/settings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        line.sendall(head + b"Content-Length: 2\r\nConnection: close\r\n\r\n")
        time.sleep(0.8)
        line.sendall(b"{}")
        assert read_to_end(line).startswith(b"HTTP/1.1 400 ")  # no settings were given, but the body was read


def test_limits_apply_to_every_request_on_a_connection(client: Client) -> None:
    with closing(open_connection(client.url)) as line:
        line.sendall(REQUEST + b"\r\n")
        assert line.recv(65536).startswith(b"HTTP/1.1 200")
        line.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * (MAX_HEAD_BYTES + 10))
        assert b"HTTP/1.1 431 " in read_to_end(line)


def test_the_oldest_idle_connection_is_closed_when_connections_run_out(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "max_connections", lambda: 5)
    with ExitStack() as stack:
        idle = [stack.enter_context(closing(open_connection(client.url))) for _ in range(5)]
        assert client.get("/api/health").status == 200
        assert read_to_end(idle[0]) == b""
        idle[-1].sendall(REQUEST + b"Connection: close\r\n\r\n")
        assert read_to_end(idle[-1]).startswith(b"HTTP/1.1 200")


def test_the_connection_limit_follows_the_open_file_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert max_connections() == 1024 - RESERVED_FILE_DESCRIPTORS
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert max_connections() == connection.MAX_CONNECTIONS


def test_more_idle_connections_than_open_files_do_not_block_the_server() -> None:
    most, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("NOT PROVEN here: this process may not open 2,048 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(most, 2048), hard))
    command = f"ulimit -n 1024; exec {sys.executable} -m pramana serve --port 0"
    try:
        with (
            subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True, env=_environment()) as process,
            ExitStack() as stack,
        ):
            try:
                assert process.stdout
                found = re.search(r"http://\S+:\d+", process.stdout.readline())
                assert found
                for _ in range(1100):
                    stack.enter_context(closing(open_connection(found[0])))
                began = time.monotonic()
                assert Client(found[0]).get("/api/health").status == 200
                assert (
                    time.monotonic() - began < HEAD_TIMEOUT_S / 2
                )  # idle connections were closed before their timeout
            finally:
                process.terminate()
                process.wait(20)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _environment() -> dict[str, str]:
    return dict(os.environ)  # noqa: TID251 - a child gets what a child gets
