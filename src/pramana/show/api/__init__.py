"""The HTTP API: routes by noun, one envelope, one gate before all of them.

`make_app()` joins them. A route translates: a request into a call of the store or of `jobs`, what comes back into the
API's words. It decides nothing that the command line would decide otherwise.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import anyio.to_thread
from fastapi import FastAPI
from starlette.types import ASGIApp

from pramana.app import App
from pramana.show.api import (
    admin,
    audio,
    community,
    documentation,
    envelope,
    events,
    models,
    providers,
    runs,
    scenarios,
    suites,
)
from pramana.show.api.gate import Gate

THREADS = {"sqlite": 40, "postgresql": 16}
"""Of the routes. Each may hold a connection, and the pool has some to spare for tokens, settings, health and runs."""
ROUTERS = (
    scenarios.router,  # first: routes are tried in this order, and nothing is asked for more often
    admin.health,
    admin.router,
    audio.router,
    suites.router,
    providers.router,
    models.prices,
    models.router,
    community.router,
    runs.router,
    events.router,
    runs.compare,
    models.weights,
)


def make_app(serving: App) -> ASGIApp:
    """Return the API of a server, with the gate before it."""
    return Gate(make_routes(serving), serving)


def make_routes(serving: App) -> FastAPI:
    """Return the API alone."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS[serving.store.kind]
        await serving.look()
        fresh = asyncio.create_task(serving.refresh_periodically())
        jobs = None
        if not serving.api_only:
            from pramana.jobs import Jobs

            jobs = Jobs(serving.store, allow_private=serving.private_addresses_allowed)
            jobs.on_call = serving.tail.notify_call_stage
            serving.tail.calls = jobs.count_calls
            jobs.start()
            serving.on_queued = jobs.wake
        try:
            yield
        finally:
            serving.closing.set()
            fresh.cancel()
            serving.pulls.close()
            if jobs:
                await asyncio.to_thread(jobs.close)

    app = FastAPI(
        title="Pramana",
        version=version("pramana"),
        description="Evidence about language models and voice agents: how good is it, which is better, has it changed?",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,
        redirect_slashes=False,
    )
    app.state.serving = serving
    serving.store.on_commit(serving.tail.wake)
    envelope.install_error_handlers(app, [route for router in ROUTERS for route in router.routes])
    for router in ROUTERS:
        app.include_router(router)
    documentation.install_documentation(app)
    return app
