"""What use cases return: typed, and the same for every front end.

Names are snake_case here and camelCase in JSON, which the serialiser makes at the edge; units are in the names. What is
said of a field is its description in the documentation of the API.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from pramana.store.tokens import Role


class View(Struct, frozen=True, kw_only=True, rename="camel"):
    """What every view is."""


class MeView(View, frozen=True, kw_only=True):
    """Whoever asks."""

    name: str
    role: Role
    tokens_required: Annotated[bool, Meta(description="Whether everybody needs a token here")]


class ServerView(View, frozen=True, kw_only=True):
    """What the server is."""

    version: str
    database: Literal["sqlite", "postgresql"]
    address: Annotated[str, Meta(description="Where it listens")]
    allowed_hosts: Annotated[tuple[str, ...], Meta(description="Names by which it is reached besides")]
    for_this_machine_alone: Annotated[bool, Meta(description="Whether nobody else can reach it")]
    tokens_required: bool
    private_addresses_allowed: Annotated[
        bool, Meta(description="Whether models and recordings may be at private addresses now")
    ]
    runs_here: Annotated[bool, Meta(description="Whether this process carries runs out, or leaves that to another")]


class TokenView(View, frozen=True, kw_only=True):
    """What is known of a token; itself, nobody can show again."""

    id: str
    name: str
    role: Role
    created_at: str
    last_used: Annotated[str | None, Meta(description="The day it was last seen")]
    revoked_at: str | None


class NewTokenView(TokenView, frozen=True, kw_only=True):
    """A token, shown this once."""

    token: str


class SettingsView(View, frozen=True, kw_only=True):
    """What was decided for everyone."""

    anonymous_submission: bool
    refuse_unverified: bool
    allow_private_addresses: bool
    requests_per_minute: int
    largest_body_mb: int
    largest_upload_mb: int
    cors_origins: tuple[str, ...]
