"""A webhook receiver on loopback, for tests: it records what it gets, and answers as it is told."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Answer = Callable[[int], int]
"""Returns the status of the answer to the request with this number."""


class Receiver:
    """What arrived at a webhook."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[dict[str, str], bytes]] = []
        self.status: Answer = lambda _: 200
        self.headers: dict[str, str] = {}
        """Headers of every answer."""

    @property
    def payloads(self) -> list[dict[str, Any]]:
        return [json.loads(body) for _, body in self.requests]

    @property
    def ids(self) -> list[str]:
        return [each["id"] for each in self.payloads]

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append((dict(request.headers), await request.read()))
        status = self.status(len(self.requests))
        if status == 0:  # it hangs
            await asyncio.sleep(3_600)
        return web.Response(status=status or 200, headers=self.headers)


@asynccontextmanager
async def receive_webhooks() -> AsyncIterator[Receiver]:
    """Serve a webhook in this event loop."""
    receiver, app = Receiver(), web.Application()
    app.router.add_post("/hook/s3cret-path", receiver.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        receiver.url = f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}/hook/s3cret-path"  # type: ignore[union-attr]
        yield receiver
    finally:
        await runner.cleanup()
