"""Addresses and code in requests to a server: no private address is called and no user code is run."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from .served import Client, serve

NAME = "models.example"
CASE = {
    "id": "say-it",
    "name": "Say it",
    "type": "information-retrieval",
    "prompt": "Say it.",
    "expectedOutcome": "It is said.",
}
LOCAL_ONLY = ("python:os:getcwd", "command:mine", "websocket:/etc/hostname")


class LocalServer:
    """A server on loopback that must not be reachable from outside; it counts connections."""

    def __init__(self) -> None:
        self.connections = 0
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]

    def listen(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listening.accept()
                self.connections += 1
                with connection, suppress(OSError):
                    connection.recv(65_536)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@contextmanager
def run_local_server() -> Iterator[LocalServer]:
    inner = LocalServer()
    thread = threading.Thread(target=inner.listen, daemon=True)
    thread.start()
    try:
        yield inner
    finally:
        inner.listening.shutdown(socket.SHUT_RDWR)
        inner.listening.close()
        thread.join(10)


@pytest.fixture
def _public_name_of_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a public host name resolve to this machine, as a hostile name server could."""
    real = socket.getaddrinfo

    def resolve(host: Any, *rest: Any, **given: Any) -> Any:
        return real("127.0.0.1" if host in (NAME, NAME.encode()) else host, *rest, **given)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    for name in ("http", "https", "all", "no"):
        monkeypatch.delenv(f"{name}_proxy", raising=False)
        monkeypatch.delenv(f"{name.upper()}_PROXY", raising=False)


def run_and_read_outcome(client: Client, body: dict[str, Any]) -> str:
    """Execute a run; return its reason and the details of its results as text."""
    run = client.post("/api/runs", {"limits": {"timeoutSeconds": 5}, **body}).data["id"]
    give_up = time.monotonic() + 60
    while (now := client.get(f"/api/runs/{run}?summary=false").data)["status"] in ("queued", "running"):
        assert time.monotonic() < give_up, now
        time.sleep(0.02)
    paths = [f"/api/runs/{run}/results/{each['seq']}" for each in client.get(f"/api/runs/{run}/results").data]
    return f"{now['reason']} {[client.get(path).data for path in paths]}"


def make_bodies(base: str) -> dict[str, dict[str, Any]]:
    """Return run requests that name an address, each in another field."""
    cases: dict[str, Any] = {"scenarios": ["say-it"]}
    return {
        "model": {**cases, "models": [f"http://{base}/v1#m"]},
        "judge": {**cases, "models": ["fake:echo"], "judge": f"http://{base}/v1#m"},
        "voice agent": {**cases, "models": [f"pipecat:ws://{base}/ws"]},
        "registered": {**cases, "models": ["mine:m"]},
        "embedder": {"scenarios": ["alike"], "models": ["fake:echo"], "embedder": f"http://{base}/v1#m"},
        "recording": {"scenarios": ["recorded"], "models": ["fake-voice"]},
    }


def prepare(admin: Client, base: str) -> None:
    alike = {"assert": {"type": "semantic_similarity", "ideal": "It is said.", "threshold": 0.5}}
    for more in ({}, {"id": "alike", **alike}, {"id": "recorded", "promptAudioUrl": f"http://{base}/a.wav"}):
        assert admin.post("/api/scenarios", {**CASE, **more}).status == 201
    mine = {"id": "mine", "kind": "compatible", "baseUrl": f"http://{base}/v1", "apiKey": "sk-0123456789abcdef"}
    assert admin.post("/api/providers", mine).status == 201


@pytest.mark.parametrize("field", make_bodies(""))
@pytest.mark.parametrize("host", ["127.0.0.1", NAME])
@pytest.mark.usefixtures("_public_name_of_loopback")
def test_no_route_connects_to_a_private_address_unless_allowed(sqlite_url: str, host: str, field: str) -> None:
    with (
        run_local_server() as inner,
        serve(sqlite_url, server_account_needs_token=True, allowed_hosts=("bench.example",)) as found,
    ):
        base = f"{host}:{inner.port}"
        editor, admin = found.with_token("editor"), found.with_token("admin")
        prepare(admin, base)
        said = run_and_read_outcome(editor, make_bodies(base)[field])
        assert "is loopback" in said, said
        assert inner.connections == 0
        assert admin.patch("/api/settings", {"allowPrivateAddresses": True}).status == 200
        said = run_and_read_outcome(editor, make_bodies(base)[field])
        assert inner.connections > 0, said


@pytest.mark.usefixtures("_public_name_of_loopback")
def test_testing_a_provider_never_connects_to_a_private_address(sqlite_url: str) -> None:
    with (
        run_local_server() as inner,
        serve(sqlite_url, server_account_needs_token=True, allowed_hosts=("bench.example",)) as found,
    ):
        admin = found.with_token("admin")
        prepare(admin, f"{NAME}:{inner.port}")
        refused = admin.post("/api/providers/mine/test")
        assert (refused.status, refused.json["code"]) == (503, "address_refused")
        assert admin.get("/api/models?refresh=true").status == 200
        assert inner.connections == 0
        assert admin.patch("/api/settings", {"allowPrivateAddresses": True}).status == 200
        admin.post("/api/providers/mine/test")
        assert inner.connections == 1


@pytest.mark.parametrize("typed", LOCAL_ONLY)
@pytest.mark.parametrize("field", ["models", "judge", "stt", "embedder"])
@pytest.mark.parametrize("dry", [False, True])
def test_no_route_accepts_a_model_that_runs_local_code(client: Client, typed: str, field: str, dry: bool) -> None:
    named = {field: [typed] if field == "models" else typed}
    refused = client.post("/api/runs", {"tier": "cheap", "models": ["fake"], "dryRun": dry, **named})
    assert refused.status == 400, refused.body
    assert typed in refused.error
    assert client.get("/api/runs").data == []


@pytest.mark.parametrize("kind", ["python", "command"])
def test_providers_that_run_code_cannot_be_registered(client: Client, kind: str) -> None:
    refused = client.post("/api/providers", {"id": "mine", "kind": kind, "arguments": {"model": "os:getcwd"}})
    assert (refused.status, client.get("/api/providers").data) == (400, [])
