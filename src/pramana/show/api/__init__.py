"""The HTTP API: one module of routes per noun, one envelope, and one gate before all of them.

`make_app()` joins them. A route only translates: a request into a call of a use case, and the view that it returns into
the envelope. It decides nothing that the command line would decide differently.
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
    judging,
    models,
    plans,
    providers,
    runs,
    same,
    scenarios,
    suites,
    watches,
)
from pramana.show.api.gate import Gate

THREADS_BY_STORE_KIND = {"sqlite": 40, "postgresql": 16}
"""Threads for routes. Each may hold a connection; the pool has more, for tokens, settings, health and runs."""
ROUTERS = (
    scenarios.router,  # first: routes are matched in this order, and these are requested most often
    admin.health_router,
    admin.router,
    audio.router,
    suites.router,
    providers.router,
    models.prices_router,
    models.router,
    community.router,
    runs.router,
    judging.router,
    events.router,
    runs.compare_router,
    plans.router,
    same.router,
    models.weights_router,
    watches.router,
)


def make_app(serving: App) -> ASGIApp:
    """Return the ASGI application of a server: the API behind the gate."""
    return Gate(make_app_without_gate(serving), serving)


def make_app_without_gate(serving: App) -> FastAPI:
    """Return the API without the gate."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS_BY_STORE_KIND[
            serving.store.database_kind
        ]
        await serving.refresh_settings_if_readable()
        fresh = asyncio.create_task(serving.refresh_settings_periodically())
        jobs = scheduler = None
        if not serving.api_only:
            from pramana.jobs import Jobs
            from pramana.show.api.watch_scheduler import make_scheduler

            jobs = Jobs(serving.store, allow_private=serving.allows_private_addresses)
            jobs.on_call = serving.event_tail.notify_call_stage
            serving.event_tail.calls = jobs.count_calls
            jobs.start()
            serving.on_run_queued = jobs.wake
            scheduler = make_scheduler(serving)
            scheduler.start()
            serving.on_watch_started, serving.request_watch_check = scheduler.wake, scheduler.request_measurement
            serving.request_watch_confirmation = scheduler.request_confirmation
        try:
            yield
        finally:
            serving.closing.set()
            fresh.cancel()
            serving.downloads.close()
            closed = [asyncio.to_thread(each.close) for each in (jobs, scheduler, serving.rejudging_jobs) if each]
            await asyncio.gather(*closed)

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
    serving.store.on_commit(serving.event_tail.wake)
    envelope.install_error_handlers(app, [route for router in ROUTERS for route in router.routes])
    for router in ROUTERS:
        app.include_router(router)
    documentation.install_documentation(app)
    return app
