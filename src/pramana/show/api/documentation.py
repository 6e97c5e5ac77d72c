"""`/openapi.json` and `/docs`: the API's own documentation; the page loads nothing from other hosts."""

from pathlib import Path
from typing import Any

from fastapi import FastAPI, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

from pramana.show.api.envelope import AppDependency

_DOCS_CONTENT_POLICY = (
    "default-src 'none'; connect-src 'self'; img-src 'self' data:; script-src 'self' 'unsafe-inline'; "
    "style-src 'self' 'unsafe-inline'; frame-ancestors 'none'"
)
_EVENT_SCHEMA = {
    "title": "Event",
    "type": "object",
    "properties": {"id": {"type": "string"}, "event": {"type": "string"}, "data": {"type": "string"}},
    "required": ["event", "data"],
    "description": "One event of the stream; its data is JSON",
}


def install_documentation(app: FastAPI) -> None:
    """Add both routes to an application."""
    import fastapi_offline

    app.mount("/docs/assets", StaticFiles(directory=Path(fastapi_offline.__file__).parent / "static"))

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi(serving: AppDependency) -> Response:
        from starlette.responses import JSONResponse

        # The first call takes half a second, during which the event loop would be blocked.
        return JSONResponse(await serving.run_in_heavy_thread(lambda: make_openapi_description(app)))

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        page = get_swagger_ui_html(
            openapi_url="/openapi.json",
            title="Pramana: the API",
            swagger_js_url="/docs/assets/swagger-ui-bundle.js",
            swagger_css_url="/docs/assets/swagger-ui.css",
            swagger_favicon_url="/docs/assets/favicon.png",
        )
        page.headers["content-security-policy"] = _DOCS_CONTENT_POLICY
        return page


def _correct_response_media_type(status: int, response: dict[str, Any]) -> None:
    """Correct the framework's description: errors are JSON whatever a route returns, and streams are of events."""
    content = response.get("content", {})
    if status >= 400 and content:
        response["content"] = {"application/json": next(iter(content.values()))}
    elif "text/event-stream" in content:
        response["content"] = {"text/event-stream": {"schema": _EVENT_SCHEMA}}


def make_openapi_description(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI description, without responses that the framework lists and this API never sends."""
    if app.openapi_schema is None:
        found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for path in found.get("paths", {}).values():
            for operation in path.values():
                answers = operation.get("responses", {})
                answers.pop("422", None)
                for status, said in answers.items():
                    _correct_response_media_type(int(status), said)
        components = found.setdefault("components", {})
        for unused in ("HTTPValidationError", "ValidationError"):
            components.get("schemas", {}).pop(unused, None)
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        found["security"] = [{"token": []}, {}]
        app.openapi_schema = found
    return app.openapi_schema
