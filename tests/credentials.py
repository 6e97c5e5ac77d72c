"""Ends of tokens, for tests: revoked, expired, or with a lesser role, as another process would write it."""

from typing import Literal

from sqlalchemy import update

from pramana.store.schema import tokens
from pramana.store.store import Store

End = Literal["revoked", "expired", "demoted"]
ENDS: tuple[End, ...] = ("revoked", "expired", "demoted")


def end_token(store: Store, token_id: str, how: End) -> None:
    """End a token, or take away all but a viewer's role."""
    long_ago = "2020-01-01T00:00:00.000+00:00"
    changed = {"revoked": {"revoked": long_ago}, "expired": {"expires": long_ago}, "demoted": {"role": "viewer"}}
    with store._database.write_transaction() as connection:
        connection.execute(update(tokens).where(tokens.c.id == token_id), changed[how])
