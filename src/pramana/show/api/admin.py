"""`/api/me`, `/api/server` and `/api/health`; for administrators, `/api/tokens` and `/api/settings`."""

import re
from importlib.metadata import version
from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import AfterValidator, Field

from pramana import clock
from pramana.app import Credential, server
from pramana.app.server import CallerView, NewTokenView, ServerView, SettingsView, TokenView
from pramana.show.api.envelope import (
    AppDependency,
    Body,
    DocumentedResponse,
    add_fields_of,
    document_route,
    make_error_response,
    make_success_response,
    require_caller,
)
from pramana.store.preferences import ORIGIN_PATTERN, Preferences
from pramana.store.tokens import EXPIRES_DAYS, MAX_DAYS, MAX_NAME_LENGTH, Role

router = APIRouter(tags=["administration"])
health_router = APIRouter(tags=["health"])


def _check_origin(origin: str) -> str:
    if not re.fullmatch(ORIGIN_PATTERN, origin):
        raise ValueError("not an origin; expected https://HOST or https://HOST:PORT, without a path")
    return origin


_Origin = Annotated[str, Field(max_length=300), AfterValidator(_check_origin)]


class TokenBody(Body):
    """A token to create."""

    name: str = Field(min_length=1, max_length=MAX_NAME_LENGTH)
    role: Role
    expires_in_days: int | None = Field(EXPIRES_DAYS, ge=1, le=MAX_DAYS, description="null: never")


@add_fields_of(Preferences, partial=True, cors_origins=(list[_Origin] | None, Field(None, max_length=100)))
class SettingsBody(Body):
    """The settings to change; null restores a default, fields left out stay as they are."""


class Health(DocumentedResponse):
    """The health of the server."""

    status: Literal["healthy"]
    version: str
    uptime_seconds: float
    database: Literal["sqlite", "postgresql"]
    api_only: bool


@health_router.get("/api/health", name="health", summary="Health check", **document_route(Health))
@health_router.head("/api/health", include_in_schema=False)
async def check_health(app: AppDependency) -> Response:
    """Report whether the store can be read, however many other requests are waiting."""
    if not await app.is_store_available():
        return make_error_response(503, "the store cannot be reached; see the server's log", code="store_failed")
    return make_success_response(
        {
            "status": "healthy",
            "version": version("pramana"),
            "uptimeSeconds": round(clock.timestamp() - app.started_at, 3),
            "database": app.store.database_kind,
            "apiOnly": app.api_only,
        }
    )


@router.get("/api/me", summary="Get the current user", **document_route(CallerView))
async def me(
    app: AppDependency, caller: Annotated[Credential, require_caller(server.describe_current_user)]
) -> Response:
    """Return the current user and role: a viewer reads, an editor also changes data, an admin manages the server."""
    return make_success_response(await server.describe_current_user(app, caller))


@router.get("/api/server", name="server", summary="Get the server's status", **document_route(ServerView))
async def describe_server(
    app: AppDependency, caller: Annotated[Credential, require_caller(server.describe_server)]
) -> Response:
    """Return what this process is and from where it can be reached; `/api/health` reports whether it works."""
    return make_success_response(await server.describe_server(app, caller))


@router.get("/api/tokens", summary="List tokens", **document_route(list[TokenView]))
async def list_tokens(
    app: AppDependency, caller: Annotated[Credential, require_caller(server.list_tokens)]
) -> Response:
    """Return the metadata of all tokens, including revoked and expired ones; never a secret."""
    return make_success_response(await server.list_tokens(app, caller))


@router.post("/api/tokens", summary="Create a token", **document_route(NewTokenView, status=201))
async def create_token(
    body: TokenBody, app: AppDependency, caller: Annotated[Credential, require_caller(server.create_token)]
) -> Response:
    """Create a token; its secret is returned only here."""
    wanted = server.TokenRequest(name=body.name, role=body.role, expires_in_days=body.expires_in_days)
    return make_success_response(await server.create_token(app, caller, wanted), status=201)


@router.delete("/api/tokens/{token_id}", summary="Revoke a token", **document_route(TokenView, 404))
async def revoke_token(
    token_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(server.revoke_token)]
) -> Response:
    """Revoke a token; it stops working within seconds."""
    return make_success_response(await server.revoke_token(app, caller, token_id))


@router.get("/api/settings", summary="Read the settings", **document_route(SettingsView))
async def read_settings(
    app: AppDependency, caller: Annotated[Credential, require_caller(server.read_settings)]
) -> Response:
    """Return the server settings; `meta.defaults` has their defaults."""
    found = await server.read_settings(app, caller)
    return make_success_response(found.current, {"defaults": found.defaults})


@router.patch("/api/settings", summary="Change settings", **document_route(SettingsView))
async def change_settings(
    body: SettingsBody, app: AppDependency, caller: Annotated[Credential, require_caller(server.change_settings)]
) -> Response:
    """Change the given settings."""
    changed = {name: getattr(body, name) for name in body.model_fields_set}
    return make_success_response(await server.change_settings(app, caller, changed))
