"""A server for tests: in this process with its own store, or as the real program; and a plain client."""

import asyncio
import http.client
import json
import re
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette.routing import BaseRoute

from pramana.app import App
from pramana.show.api import make_app
from pramana.show.api.connection import Connection
from pramana.store import open_store
from pramana.store.store import Store

from ... import programs
from ...stores import sqlite_store


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def data(self) -> Any:
        """The data of a successful response; any other response fails the test and is shown."""
        assert self.json["success"] is True, self.body[:2000]
        return self.json["data"]

    @property
    def error(self) -> str:
        assert self.json["success"] is False, self.body[:2000]
        assert self.json.keys() >= {"error", "code", "details"}
        found: str = self.json["error"]
        return found


@dataclass
class Client:
    """An HTTP client of one server, with a new connection per request."""

    url: str
    token: str | None = None
    store: Store | None = None
    """Of a server in this process."""
    serving: App | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def call(
        self,
        method: str,
        path: str,
        value: Any = None,
        *,
        body: bytes | Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 60,
    ) -> Answer:
        parts = urlsplit(self.url)
        assert parts.hostname
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        sent = dict(self.headers)
        if self.token:
            sent["Authorization"] = f"Bearer {self.token}"
        if value is not None:
            body, sent["Content-Type"] = json.dumps(value).encode(), "application/json"
        try:
            connection.request(method, path, body, {**sent, **(headers or {})})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def get(self, path: str, **given: Any) -> Answer:
        return self.call("GET", path, **given)

    def post(self, path: str, value: Any = None, **given: Any) -> Answer:
        return self.call("POST", path, value, **given)

    def put(self, path: str, value: Any = None, **given: Any) -> Answer:
        return self.call("PUT", path, value, **given)

    def patch(self, path: str, value: Any = None, **given: Any) -> Answer:
        return self.call("PATCH", path, value, **given)

    def delete(self, path: str, **given: Any) -> Answer:
        return self.call("DELETE", path, **given)

    def with_token(self, role: str) -> "Client":
        """Return a client with a new token of a role."""
        assert self.store
        return Client(self.url, self.store.tokens.create(role, role)[1], self.store, self.serving)


class _Server(uvicorn.Server):
    """Shuts down at once; uvicorn itself polls ten times a second and then waits another tenth."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def end(self) -> None:
        """Stop the server, from another thread."""
        self.should_exit = True
        if self._loop and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ending.set)

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):  # which writes the Date header
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), 1)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for each in sockets or ():
            each.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - uvicorn tells nobody
                    await asyncio.sleep(0.005)
        for task in self.server_state.tasks:
            task.cancel()
        await self.lifespan.shutdown()


_INCLUDED: dict[int, BaseRoute] = {}
_DESCRIBED: dict[tuple[int, ...], dict[str, Any]] = {}


@contextmanager
def _share_routes(app: Any) -> Iterator[None]:
    """Make FastAPI analyse and describe the routes once per process instead of once per server.

    It takes over 100 ms at the first request, with the same result for every application.
    """
    routers = []
    for place, route in enumerate(app.router.routes):
        if router := getattr(route, "original_router", None):
            app.router.routes[place] = _INCLUDED.setdefault(id(router), route)
            routers.append(id(router))
    app.openapi_schema = _DESCRIBED.get(tuple(routers))
    yield
    if app.openapi_schema:
        _DESCRIBED[tuple(routers)] = app.openapi_schema


@contextmanager
def serve(database_url: str, **given: Any) -> Iterator[Client]:
    """Serve in this process, on a free port, until the context ends."""
    if database_url.startswith("sqlite:///"):
        sqlite_store(Path(database_url.removeprefix("sqlite:///")))
    store = open_store(database_url)
    serving = App(store, **given)
    listening = socket.create_server(("127.0.0.1", 0))
    serving.port = listening.getsockname()[1]
    gate = make_app(serving)
    config = uvicorn.Config(
        gate, http=Connection, log_level="warning", access_log=False, lifespan="on", ws="none", proxy_headers=False
    )
    config.timeout_graceful_shutdown = 2
    server = _Server(config)

    async def work() -> None:
        serving.closing = asyncio.Event()
        await server.serve([listening])

    thread = threading.Thread(target=lambda: asyncio.run(work()), daemon=True)
    with _share_routes(gate._app):  # type: ignore[attr-defined]
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive(), "the server did not start"
                thread.join(0.002)
            yield Client(f"http://127.0.0.1:{serving.port}", store=store, serving=serving)
        finally:
            server.end()
            thread.join(20)
            listening.close()
            store.close()
            assert not thread.is_alive(), "the server did not end"


@dataclass
class Program:
    """`pramana serve` as a process."""

    process: programs.Process
    client: Client
    token: str | None = None
    """The start-up token that it has printed."""

    def kill(self) -> None:
        """Kill the process, as a power cut would."""
        self.process.kill()
        self.process.wait(20)


@contextmanager
def start_program(*options: str, **environment: str) -> Iterator[Program]:
    """Start `pramana serve` on a free port; it inherits the data folder of the test."""
    import os

    process = programs.start(
        ["-m", "pramana", "serve", "--port", "0", *options],
        env={**os.environ, **environment},  # noqa: TID251 - a child gets what a child gets
    )
    assert process.stdout
    try:
        said = process.stdout.readline()
        found = re.search(r"http://\S+:\d+", said)
        assert found, said + process.stdout.read()
        token = re.search(r"token=(\S+)", said)
        yield Program(process, Client(found[0]), token and token[1])
    finally:
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
        process.stdout.close()


def read_submissions(server: Client) -> list[dict[str, Any]]:
    """Return the community results stored by a server of this process, oldest first."""
    from sqlalchemy import select

    from pramana.store.schema import submission_series, submissions

    assert server.store
    joined = select(submissions, submission_series).join_from(submissions, submission_series)
    with server.store._database.read_transaction() as connection:
        return [dict(row) for row in connection.execute(joined.order_by(submissions.c.submission_no)).mappings()]
