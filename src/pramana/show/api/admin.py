"""`/api/me`: who asks; `/api/server`: whom. `/api/tokens` and `/api/settings`: what only an administrator decides."""

import re
from importlib.metadata import version
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Response
from pydantic import AfterValidator, Field

from pramana.errors import InvalidInput
from pramana.show.api.envelope import Body, Shape, answer, camel, documented
from pramana.show.api.serving import Admin, Here, Viewer
from pramana.store.preferences import ORIGIN, Preferences
from pramana.store.tokens import LONGEST_NAME, Token

router = APIRouter(tags=["administration"])
_Role = Literal["viewer", "editor", "admin"]


def _checked_origin(said: str) -> str:
    if not re.fullmatch(ORIGIN, said):
        raise ValueError("it is no address of a page's server; expected https://HOST, with a port perhaps, and no path")
    return said


_Origin = Annotated[str, Field(max_length=300), AfterValidator(_checked_origin)]


class MeShape(Shape):
    """Whoever asks."""

    name: str
    role: _Role
    tokens_required: bool = Field(description="Whether everybody needs a token here")


class ServerShape(Shape):
    """What the server is."""

    version: str
    database: Literal["sqlite", "postgresql"]
    address: str = Field(description="Where it listens")
    allowed_hosts: list[str] = Field(description="Names by which it is reached besides")
    for_this_machine_alone: bool = Field(description="Whether nobody else can reach it")
    tokens_required: bool
    private_addresses_allowed: bool = Field(description="Whether models and recordings may be at private addresses now")
    runs_here: bool = Field(description="Whether this process carries runs out, or leaves that to another")


class TokenShape(Shape):
    """What is known of a token; itself, nobody can show again."""

    id: str
    name: str
    role: _Role
    created_at: str
    last_used: str | None = Field(description="The day it was last seen")
    revoked_at: str | None


class NewToken(TokenShape):
    """A token, shown this once."""

    token: str


class TokenBody(Body):
    """The token that is wanted."""

    name: str = Field(min_length=1, max_length=LONGEST_NAME)
    role: _Role


class Settings(Shape):
    """What was decided for everyone."""

    anonymous_submission: bool
    refuse_unverified: bool
    allow_private_addresses: bool
    requests_per_minute: int
    largest_body_mb: int
    largest_upload_mb: int
    cors_origins: list[str]


class SettingsBody(Body):
    """What is decided anew; null takes a decision back, what is left out stays."""

    anonymous_submission: bool | None = None
    refuse_unverified: bool | None = None
    allow_private_addresses: bool | None = None
    requests_per_minute: int | None = Field(None, ge=1, le=1_000_000)
    largest_body_mb: int | None = Field(None, ge=1, le=1_024)
    largest_upload_mb: int | None = Field(None, ge=1, le=10_240)
    cors_origins: list[_Origin] | None = Field(None, max_length=100)


@router.get("/api/me", summary="Who I am", **documented(MeShape))
async def me(here: Here, who: Viewer) -> Response:
    """Return who asks, and what they may do: a viewer reads, an editor changes, an admin decides."""
    return answer({"name": who.name, "role": who.role, "tokensRequired": here.tokens_required})


@router.get("/api/server", summary="What the server is", **documented(ServerShape))
async def server(here: Here, _: Viewer) -> Response:
    """Return what this process is and who can reach it; `/api/health` says whether it can do its work."""
    host = f"[{here.host}]" if ":" in here.host else here.host
    return answer(
        {
            "version": version("pramana"),
            "database": here.store.kind,
            "address": f"{host}:{here.port}",
            "allowedHosts": list(here.allowed_hosts),
            "forThisMachineAlone": here.for_this_machine_alone,
            "tokensRequired": here.tokens_required,
            "privateAddressesAllowed": here.private_addresses_allowed(),
            "runsHere": not here.api_only,
        }
    )


@router.get("/api/tokens", summary="List tokens", **documented(list[TokenShape]))
def list_tokens(here: Here, _: Admin) -> Response:
    """Return what is known of every token, the revoked ones too; never a token itself."""
    return answer([_token(each) for each in here.store.tokens.list()])


@router.post("/api/tokens", summary="Make a token", **documented(NewToken, status=201))
def create_token(body: TokenBody, here: Here, _: Admin) -> Response:
    """Make a token for somebody; it is shown this once."""
    made, secret = here.store.tokens.create(body.name, body.role)
    return answer({**_token(made), "token": secret}, status=201)


@router.delete("/api/tokens/{token_id}", summary="Revoke a token", **documented(TokenShape, 404))
def revoke_token(token_id: str, here: Here, _: Admin) -> Response:
    """End a token; within seconds nobody can use it any more."""
    return answer(_token(here.store.tokens.revoke(token_id)))


@router.get("/api/settings", summary="Read the settings", **documented(Settings))
def read_settings(here: Here, _: Admin) -> Response:
    """Return what holds now; `meta.defaults` is what would, had nobody decided."""
    return answer(_settings(here.store.decisions.read()), {"defaults": _settings(Preferences())})


@router.patch("/api/settings", summary="Change settings", **documented(Settings))
def change_settings(body: SettingsBody, here: Here, _: Admin) -> Response:
    """Decide anew about those that are named."""
    changed: dict[str, Any] = {name: getattr(body, name) for name in body.model_fields_set}
    if not changed:
        raise InvalidInput("no setting is named; send at least one, such as requestsPerMinute")
    decided = here.store.decisions.write(changed)
    here.decided(decided)
    return answer(_settings(decided))


def _token(token: Token) -> dict[str, Any]:
    return {
        "id": token.id,
        "name": token.name,
        "role": token.role,
        "createdAt": token.created,
        "lastUsed": token.used,
        "revokedAt": token.revoked,
    }


def _settings(decided: Preferences) -> dict[str, Any]:
    found: dict[str, Any] = camel(msgspec.to_builtins(decided))
    return found
