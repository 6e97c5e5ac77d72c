"""The workbench: web pages beside the API, on the same port. The API can do everything that a page does.

`make_app()` puts both behind one gate. Pages call use cases with the user's own credential (`PageContext`), so roles,
limits and messages are those of the API. They are built of labelled controls (`parts`) in one design (`style`).
NiceGUI keeps its state in module globals, so a process can have only one workbench.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module

from fastapi import FastAPI
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pramana.app import App
from pramana.show.api import make_app_without_gate
from pramana.show.api.gate import Gate

PAGE_MODULES = (
    "home",
    "runs",
    "new_run",
    "run",
    "results",
    "compare",
    "comparison_table",
    "judges",
    "labelling",
    "drift",
    "new_watch",
    "watch",
    "same",
    "scenarios",
    "importing",
    "editor",
    "suites",
    "settings",
    "providers",
    "prices",
)
"""Page modules, in the order in which their routes are matched: the catch-all /scenarios/ID comes last."""
_API_PATHS = ("/api", "/audio", "/docs", "/openapi.json")
_CONTENT_SECURITY_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Pages load nothing from other hosts. NiceGUI needs inline and evaluated scripts; foreign text is always escaped."""


def make_app(serving: App) -> ASGIApp:
    """Return the API and the workbench of a server, behind the gate."""
    routes = make_app_without_gate(serving)
    pages = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    _install_pages(pages, routes)
    of_routes = routes.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with of_routes(app), pages.router.lifespan_context(pages):
            yield

    routes.router.lifespan_context = lifespan
    return Gate(_Dispatcher(routes, pages), serving)


def _install_pages(pages: FastAPI, api_app: FastAPI) -> None:
    """Register the pages and everything they need."""
    import nicegui

    from pramana.show.web.kit import frame, sockets, style

    nicegui.app.state.app_layer = api_app.state.serving
    style.install_style()
    frame.install_not_found_page_and_scroll_restore()
    sockets.install_socket_rules(api_app.state.serving)
    for name in (*PAGE_MODULES, "sign_in", "public_watch"):
        import_module(f"pramana.show.web.pages.{name}")
    nicegui.ui.run_with(
        pages,
        title="Pramana",
        favicon=style.FAVICON_SVG,
        dark=None,
        language="en-US",
        tailwind=False,
        binding_refresh_interval=None,
        reconnect_timeout=10.0,
        show_welcome_message=False,
    )


def _is_api_path(path: str) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in _API_PATHS)


class _Dispatcher:
    """Route requests to the API or the pages; unknown paths below /api get the API's error envelope."""

    def __init__(self, routes: ASGIApp, pages: ASGIApp) -> None:
        self._routes, self._pages = routes, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or _is_api_path(scope["path"]):
            await self._routes(scope, receive, send)
        else:
            from pramana.show.web.kit.sockets import is_request_allowed

            if not is_request_allowed(scope):
                scope = {**scope, "path": "/no-such-page"}
            await self._pages(scope, receive, _wrap_send_with_policy(send))


def _wrap_send_with_policy(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["content-security-policy"] = _CONTENT_SECURITY_POLICY
            # Without any referrer, browsers also hide the origin of a form post, which the gate checks.
            headers["referrer-policy"] = "same-origin"
        await send(message)

    return sending
