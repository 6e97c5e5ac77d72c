"""Tokens: who has one, a new one, and the end of one."""

from pramana.app import App
from pramana.app.access import User, use_case
from pramana.app.views import NewTokenView, TokenView
from pramana.store.tokens import Token


@use_case("admin")
async def list_tokens(app: App, _: User) -> list[TokenView]:
    """Return what is known of every token, the revoked ones too; never a token itself."""
    return [_view(each) for each in await app.work(app.store.tokens.list)]


@use_case("admin")
async def create_token(app: App, _: User, name: str, role: str) -> NewTokenView:
    """Create a token for somebody; it is shown this once."""
    made, secret = await app.work(lambda: app.store.tokens.create(name, role))
    return NewTokenView(
        id=made.id,
        name=made.name,
        role=made.role,
        created_at=made.created,
        last_used=made.used,
        revoked_at=made.revoked,
        token=secret,
    )


@use_case("admin")
async def revoke_token(app: App, _: User, token_id: str) -> TokenView:
    """End a token; within seconds nobody can use it any more."""
    return _view(await app.work(lambda: app.store.tokens.revoke(token_id)))


def _view(token: Token) -> TokenView:
    return TokenView(
        id=token.id,
        name=token.name,
        role=token.role,
        created_at=token.created,
        last_used=token.used,
        revoked_at=token.revoked,
    )
