"""Tokens: who has one, a new one, and the end of one; and the sessions of browsers that have shown one."""

from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict

from pramana.app import App
from pramana.app.access import User, use_case
from pramana.app.views import NewTokenView, TokenView
from pramana.store.tokens import EXPIRES_DAYS, MOST_DAYS, Token


class TokenRequest(Struct, frozen=True, kw_only=True):
    """The token that is wanted."""

    name: str
    role: str
    expires_in_days: Annotated[int, Meta(ge=1, le=MOST_DAYS)] | None = EXPIRES_DAYS
    """None: it never expires."""


@use_case("admin")
async def list_tokens(app: App, _: User) -> list[TokenView]:
    """Return what is known of every token, the revoked and expired ones too; never a token itself."""
    return [_view(each) for each in await app.work(app.store.tokens.list)]


@use_case("admin")
async def create_token(app: App, _: User, wanted: TokenRequest) -> NewTokenView:
    """Create a token for somebody; it is shown this once."""
    create = app.store.tokens.create
    made, secret = await app.work(lambda: create(wanted.name, wanted.role, wanted.expires_in_days))
    app.tokens_existed, app.tokens_ended = True, False
    return NewTokenView(**asdict(_view(made)), token=secret)


@use_case("admin")
async def revoke_token(app: App, _: User, token_id: str) -> TokenView:
    """End a token; within seconds nobody can use it any more."""
    return _view(await app.work(lambda: app.store.tokens.revoke(token_id)))


@use_case("viewer")
async def begin_session(app: App, user: User) -> str:
    """Return the secret of a new session, for a browser that has shown a token and need not keep it."""
    return await app.access.begin_session(user)


@use_case("viewer")
async def end_session(app: App, user: User) -> None:
    """End the session of whoever asks; what it has open ends within seconds."""
    await app.access.end_session(user)


def _view(token: Token) -> TokenView:
    return TokenView(
        id=token.id,
        name=token.name,
        role=token.role,
        created_at=token.created,
        last_used=token.used,
        revoked_at=token.revoked,
        expires_at=token.expires,
    )
