"""Who may do what: tokens by their SHA-256, never the tokens themselves.

A token is 256 random bits, so that a plain hash guards it: there is nothing to guess. Its holder sees it once, when it
is made.
"""

import hashlib
import secrets
from collections.abc import Sequence
from typing import Literal, get_args

import msgspec
from sqlalchemy import RowMapping, insert, select, update

from pramana.errors import Hint, InvalidInput, NotFound, Problem, did_you_mean, quote
from pramana.store.engine import Database
from pramana.store.schema import tokens
from pramana.store.scoring import timestamp
from pramana.store.text import restored, stored

Role = Literal["viewer", "editor", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Each may do what those before it may."""
BEGINNING = "pramana_"
"""So that whoever finds one in a file knows what it is, and scanners of secrets find it."""
_RANDOM_BYTES = 32
_LENGTH = len(BEGINNING) + 43
"""What that many bytes are in base64."""
LONGEST_NAME = 100


class Token(msgspec.Struct, frozen=True):
    """What is known of a token."""

    id: str
    name: str
    role: Role
    created: str
    used: str | None = None
    """The day it was last seen."""
    revoked: str | None = None


class Tokens:
    """The tokens of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def create(self, name: str, role: str) -> tuple[Token, str]:
        """Make a token; return what is known of it, and the token itself, which nobody can show again."""
        name = name.strip()
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            message = f"a token needs a name of 1 to {LONGEST_NAME} printable characters, found {quote(name)}"
            raise InvalidInput(message, [Problem(message, "name")])
        if role not in ROLES:
            raise InvalidInput(
                f"there is no role {quote(role)}{did_you_mean(role, ROLES)}; there are {', '.join(ROLES)}"
            )
        secret = BEGINNING + secrets.token_urlsafe(_RANDOM_BYTES)
        made = Token(f"t{secrets.token_hex(4)}", name, role, timestamp())
        row = {"id": made.id, "name": stored(name), "role": role, "hash": hashed(secret), "created": made.created}
        with self._database.writing() as connection:
            connection.execute(insert(tokens), row)
        return made, secret

    def list(self) -> list[Token]:
        """Return all of them, oldest first; the revoked ones too."""
        with self._database.reading() as connection:
            rows = connection.execute(select(tokens).order_by(tokens.c.created, tokens.c.id)).mappings()
            return [_token(row) for row in rows]

    def any(self) -> bool:
        """Tell whether somebody has a token that holds."""
        with self._database.reading() as connection:
            return (
                connection.execute(select(tokens.c.id).where(tokens.c.revoked.is_(None)).limit(1)).first() is not None
            )

    def revoke(self, token_id: str) -> Token:
        """End a token; one that was ended already stays so."""
        with self._database.writing() as connection:
            mine = tokens.c.id == stored(token_id)
            row = connection.execute(select(tokens).where(mine)).mappings().first()
            if row is None:
                raise NotFound(f"there is no token {quote(token_id)}", hint=Hint("list_tokens"))
            found = _token(row)
            if found.revoked is None:
                found = msgspec.structs.replace(found, revoked=timestamp())
                connection.execute(update(tokens).where(mine), {"revoked": found.revoked})
        return found

    def holder(self, secret: str) -> Token | None:
        """Return whose token it is; None when it is nobody's, or was revoked."""
        with self._database.reading() as connection:
            row = connection.execute(select(tokens).where(tokens.c.hash == hashed(secret))).mappings().first()
        return None if row is None or row["revoked"] else _token(row)

    def holding(self, token_ids: Sequence[str]) -> set[str]:
        """Return those of some tokens that hold still."""
        query = select(tokens.c.id).where(tokens.c.id.in_(token_ids), tokens.c.revoked.is_(None))
        with self._database.reading() as connection:
            return set(connection.scalars(query))

    def seen(self, token_id: str) -> None:
        """Write down that a token was used today. It waits for other writers, so nobody should wait for it."""
        with self._database.writing() as connection:
            connection.execute(update(tokens).where(tokens.c.id == token_id), {"used": timestamp()[:10]})


def looks_like_one(secret: str) -> bool:
    """Tell whether a text could be a token; of any other nobody need look whose it is.

    >>> looks_like_one("pramana_" + "x" * 43), looks_like_one("x" * 51), looks_like_one("pramana_x")
    (True, False, False)
    """
    return len(secret) == _LENGTH and secret.startswith(BEGINNING)


def hashed(secret: str) -> str:
    """Return what is stored of a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _token(row: RowMapping) -> Token:
    return Token(row["id"], restored(row["name"]), row["role"], row["created"], row["used"], row["revoked"])
