"""Ends tokens in the database, as another process would: revoked, expired, or demoted to a lesser role."""

from typing import Literal

from sqlalchemy import update

from pramana.store.schema import tokens
from pramana.store.store import Store

TokenEnd = Literal["revoked", "expired", "demoted"]
TOKEN_ENDS: tuple[TokenEnd, ...] = ("revoked", "expired", "demoted")


def end_token(store: Store, token_id: str, how: TokenEnd) -> None:
    """End a token, or take away all but a viewer's role."""
    long_ago = "2020-01-01T00:00:00.000+00:00"
    changed = {"revoked": {"revoked": long_ago}, "expired": {"expires": long_ago}, "demoted": {"role": "viewer"}}
    with store._database.write_transaction() as connection:
        connection.execute(update(tokens).where(tokens.c.id == token_id), changed[how])
