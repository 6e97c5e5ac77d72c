"""The server itself: the current user, tokens and sessions, server information, and server settings."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import asdict, fields

from pramana.app import App, User, use_case
from pramana.app.views import View
from pramana.errors import InvalidInput, Problem
from pramana.request import describe_type_mismatch
from pramana.store.engine import timestamp
from pramana.store.preferences import Preferences
from pramana.store.tokens import EXPIRES_DAYS, MAX_DAYS, Role, Token


class CallerView(View, frozen=True, kw_only=True):
    """The current user."""

    name: str
    role: Role
    tokens_required: Annotated[bool, Meta(description="Whether the account that runs the server needs a token too")]


class ServerView(View, frozen=True, kw_only=True):
    """Information about the server."""

    version: str
    database: Literal["sqlite", "postgresql"]
    address: Annotated[str, Meta(description="Address on which the server listens")]
    allowed_hosts: Annotated[tuple[str, ...], Meta(description="Further host names that the server accepts")]
    for_this_machine_alone: Annotated[bool, Meta(description="Whether only this machine can reach the server")]
    tokens_required: Annotated[bool, Meta(description="Whether the account that runs the server needs a token too")]
    private_addresses_allowed: Annotated[
        bool, Meta(description="Whether models and recordings may be at private addresses")
    ]
    runs_here: Annotated[
        bool, Meta(description="Whether this process executes runs, or leaves them to another process")
    ]


class TokenView(View, frozen=True, kw_only=True):
    """A token's metadata; its secret cannot be shown again."""

    id: str
    name: str
    role: Role
    created_at: str
    last_used: Annotated[str | None, Meta(description="Day on which the token was last used")]
    revoked_at: str | None
    expires_at: Annotated[str | None, Meta(description="Time at which the token expires or expired; null: never")]

    @property
    def is_valid(self) -> bool:
        """Whether the token is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > timestamp())


class NewTokenView(TokenView, frozen=True, kw_only=True):
    """A new token with its secret, which is shown only once."""

    token: str


class SettingsView(View, frozen=True, kw_only=True):
    """The server settings."""

    anonymous_submission: bool
    refuse_unverified: Annotated[
        bool,
        Meta(
            description="Whether results of suites that this server does not know are refused, instead of stored "
            "separately"
        ),
    ]
    allow_private_addresses: bool
    requests_per_minute: int
    largest_body_mb: int
    largest_upload_mb: int
    cors_origins: tuple[str, ...]


class Settings(NamedTuple):
    """The current settings, and their defaults."""

    current: SettingsView
    defaults: SettingsView


class TokenRequest(Struct, frozen=True, kw_only=True):
    """A token to create."""

    name: str
    role: str
    expires_in_days: Annotated[int, Meta(ge=1, le=MAX_DAYS)] | None = EXPIRES_DAYS
    """None: it never expires."""


@use_case("viewer", "event_loop")
def describe_current_user(app: App, user: User) -> CallerView:
    """Return the current user and role: a viewer reads, an editor also changes data, an admin manages the server."""
    assert user.role is not None  # noqa: S101 - a viewer always has a role
    return CallerView(name=user.name, role=user.role, tokens_required=app.server_account_needs_token)


@use_case("viewer", "event_loop")
def describe_server(app: App, _: User) -> ServerView:
    """Return what this process is and from where it can be reached."""
    host = f"[{app.host}]" if ":" in app.host else app.host
    return ServerView(
        version=version("pramana"),
        database=app.store.database_kind,
        address=f"{host}:{app.port}",
        allowed_hosts=app.allowed_hosts,
        for_this_machine_alone=app.is_local_only,
        tokens_required=app.server_account_needs_token,
        private_addresses_allowed=app.allows_private_addresses(),
        runs_here=not app.api_only,
    )


# ── Settings ──


@use_case("admin")
def read_settings(app: App, _: User) -> Settings:
    """Return the server settings and their defaults."""
    return Settings(_settings_view(app.store.preferences.read()), _settings_view(Preferences()))


@use_case("admin")
def change_settings(app: App, _: User, changed: Mapping[str, Any]) -> SettingsView:
    """Change the given settings; None restores a default."""
    if not changed:
        raise InvalidInput("nothing to change; send at least one setting, such as requestsPerMinute")
    types = {each.name: each.type for each in fields(Preferences)}
    found = {name: describe_type_mismatch(value, types[name]) for name, value in changed.items() if value is not None}
    if problems := [Problem(message, name) for name, message in found.items() if message]:
        raise InvalidInput.from_problems(problems)
    decided = app.store.preferences.write(dict(changed))
    app.set_preferences(decided)
    return _settings_view(decided)


def _settings_view(preferences: Preferences) -> SettingsView:
    return SettingsView(**asdict(preferences))


# ── Tokens and sessions ──


@use_case("admin")
def list_tokens(app: App, _: User) -> list[TokenView]:
    """Return the metadata of all tokens, including revoked and expired ones; never a secret."""
    return [_token_view(each) for each in app.store.tokens.list()]


@use_case("admin")
def create_token(app: App, _: User, wanted: TokenRequest) -> NewTokenView:
    """Create a token; its secret is returned only here."""
    made, secret = app.store.tokens.create(wanted.name, wanted.role, wanted.expires_in_days)
    app.has_had_tokens, app.have_all_tokens_ended = True, False
    return NewTokenView(**asdict(_token_view(made)), token=secret)


@use_case("admin")
def revoke_token(app: App, _: User, token_id: str) -> TokenView:
    """Revoke a token; it stops working within seconds."""
    return _token_view(app.store.tokens.revoke(token_id))


@use_case("viewer")
def begin_session(app: App, user: User) -> str:
    """Return the secret of a new session, so that the browser need not keep the token."""
    return app.access.begin_session(user)


@use_case("viewer")
def end_session(app: App, user: User) -> None:
    """End the caller's session; its open pages and streams end within seconds."""
    app.access.end_session(user)


def _token_view(token: Token) -> TokenView:
    return TokenView(
        id=token.id,
        name=token.name,
        role=token.role,
        created_at=token.created,
        last_used=token.used,
        revoked_at=token.revoked,
        expires_at=token.expires,
    )
