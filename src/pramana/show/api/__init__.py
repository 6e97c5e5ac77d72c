"""The HTTP API: routes by noun, one envelope, one gate before all of them.

`make_app()` joins them. A route translates: a request into a call of the store or of `jobs`, what comes back into the
API's words. It decides nothing that the command line would decide otherwise.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp

from pramana.show.api import admin, audio, documentation, envelope, health
from pramana.show.api.gate import Gate
from pramana.show.api.serving import Serving

ROUTERS = (
    health.router,
    admin.router,
    audio.router,
)


def make_app(serving: Serving) -> ASGIApp:
    """Return the API of a server, with the gate before it."""
    return Gate(make_routes(serving), serving)


def make_routes(serving: Serving) -> FastAPI:
    """Return the API alone."""

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        yield

    app = FastAPI(
        title="Pramana",
        version=version("pramana"),
        description="Evidence about language models and voice agents: how good is it, which is better, has it changed?",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=running,
        redirect_slashes=False,
    )
    app.state.serving = serving
    envelope.install(app)
    for router in ROUTERS:
        app.include_router(router)
    documentation.install(app)
    return app


def described(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI description of the routes."""
    return documentation.describe(app)
