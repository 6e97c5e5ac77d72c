"""`/api/me`, `/api/server`, `/api/health`: who asks, and whom; `/api/tokens` and `/api/settings` for administrators."""

import re
from importlib.metadata import version
from typing import Annotated, Literal

from fastapi import APIRouter, Response
from pydantic import AfterValidator, Field

from pramana import clock
from pramana.app import Credential, server
from pramana.app.server import MeView, NewTokenView, ServerView, SettingsView, TokenView
from pramana.show.api.envelope import Body, Here, Shape, answer, caller_of, documented, refuse, with_fields_of
from pramana.store.preferences import ORIGIN, Preferences
from pramana.store.tokens import EXPIRES_DAYS, LONGEST_NAME, MOST_DAYS, Role

router = APIRouter(tags=["administration"])
health = APIRouter(tags=["health"])


def _checked_origin(said: str) -> str:
    if not re.fullmatch(ORIGIN, said):
        raise ValueError("it is no address of a page's server; expected https://HOST, with a port perhaps, and no path")
    return said


_Origin = Annotated[str, Field(max_length=300), AfterValidator(_checked_origin)]


class TokenBody(Body):
    """The token that is wanted."""

    name: str = Field(min_length=1, max_length=LONGEST_NAME)
    role: Role
    expires_in_days: int | None = Field(EXPIRES_DAYS, ge=1, le=MOST_DAYS, description="null: never")


@with_fields_of(Preferences, partial=True, cors_origins=(list[_Origin] | None, Field(None, max_length=100)))
class SettingsBody(Body):
    """What is decided anew; null takes a decision back, what is left out stays."""


class Health(Shape):
    """How the server is."""

    status: Literal["healthy"]
    version: str
    uptime_seconds: float
    database: Literal["sqlite", "postgresql"]
    api_only: bool


@health.get("/api/health", name="health", summary="Whether the server can do its work", **documented(Health))
@health.head("/api/health", include_in_schema=False)
async def check_health(here: Here) -> Response:
    """Read from the store, and say so; however many requests of other kinds wait."""
    if not await here.store_answers():
        return refuse(503, "the store cannot be reached; the server's log says more", code="store_failed")
    return answer(
        {
            "status": "healthy",
            "version": version("pramana"),
            "uptimeSeconds": round(clock.timestamp() - here.began, 3),
            "database": here.store.kind,
            "apiOnly": here.api_only,
        }
    )


@router.get("/api/me", summary="Who I am", **documented(MeView))
async def me(here: Here, caller: Annotated[Credential, caller_of(server.who_am_i)]) -> Response:
    """Return who asks, and what they may do: a viewer reads, an editor changes, an admin decides."""
    return answer(await server.who_am_i(here, caller))


@router.get("/api/server", name="server", summary="What the server is", **documented(ServerView))
async def describe_server(here: Here, caller: Annotated[Credential, caller_of(server.describe_server)]) -> Response:
    """Return what this process is and who can reach it; `/api/health` says whether it can do its work."""
    return answer(await server.describe_server(here, caller))


@router.get("/api/tokens", summary="List tokens", **documented(list[TokenView]))
async def list_tokens(here: Here, caller: Annotated[Credential, caller_of(server.list_tokens)]) -> Response:
    """Return what is known of every token, the revoked and expired ones too; never a token itself."""
    return answer(await server.list_tokens(here, caller))


@router.post("/api/tokens", summary="Make a token", **documented(NewTokenView, status=201))
async def create_token(
    body: TokenBody, here: Here, caller: Annotated[Credential, caller_of(server.create_token)]
) -> Response:
    """Make a token for somebody; it is shown this once."""
    wanted = server.TokenRequest(name=body.name, role=body.role, expires_in_days=body.expires_in_days)
    return answer(await server.create_token(here, caller, wanted), status=201)


@router.delete("/api/tokens/{token_id}", summary="Revoke a token", **documented(TokenView, 404))
async def revoke_token(
    token_id: str, here: Here, caller: Annotated[Credential, caller_of(server.revoke_token)]
) -> Response:
    """End a token; within seconds nobody can use it any more."""
    return answer(await server.revoke_token(here, caller, token_id))


@router.get("/api/settings", summary="Read the settings", **documented(SettingsView))
async def read_settings(here: Here, caller: Annotated[Credential, caller_of(server.read_settings)]) -> Response:
    """Return what holds now; `meta.defaults` is what would, had nobody decided."""
    found = await server.read_settings(here, caller)
    return answer(found.now, {"defaults": found.defaults})


@router.patch("/api/settings", summary="Change settings", **documented(SettingsView))
async def change_settings(
    body: SettingsBody, here: Here, caller: Annotated[Credential, caller_of(server.change_settings)]
) -> Response:
    """Decide anew about those that are named."""
    changed = {name: getattr(body, name) for name in body.model_fields_set}
    return answer(await server.change_settings(here, caller, changed))
