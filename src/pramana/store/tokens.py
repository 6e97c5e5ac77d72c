"""Tokens and the sessions of browsers, each by its SHA-256, never the secrets themselves.

A secret is 256 random bits, so that a plain hash guards it: there is nothing to guess. Its holder sees a token once,
when it is made. A session ends with its token: when that is revoked or expires.
"""

import hashlib
import secrets
from collections.abc import Collection
from datetime import timedelta
from typing import Any, Literal, get_args

import msgspec
from sqlalchemy import ColumnElement, and_, delete, insert, or_, select, update

from pramana import clock
from pramana.errors import Hint, InvalidInput, NotFound, Problem, quote_text, suggest_similar
from pramana.store.engine import StorePart, timestamp
from pramana.store.records import escape_text, unescape_text
from pramana.store.schema import sessions, tokens

Role = Literal["viewer", "editor", "admin"]
ROLES: tuple[Role, ...] = get_args(Role)
"""Each may do what those before it may."""
TOKEN_PREFIX = "pramana_"
"""So that whoever finds one in a file knows what it is, and scanners of secrets find it."""
_RANDOM_BYTES = 32
_TOKEN_LENGTH = len(TOKEN_PREFIX) + 43
"""What that many bytes are in base64."""
MAX_NAME_LENGTH = 100
EXPIRES_DAYS, MOST_DAYS = 90, 3_650
"""After how many days a token expires unless its maker says otherwise, and the most that can be said."""
SESSION_DAYS = 30


class Token(msgspec.Struct, frozen=True):
    """What is known of a token."""

    id: str
    name: str
    role: Role
    created: str
    used: str | None = None
    """The day it was last seen."""
    revoked: str | None = None
    expires: str | None = None
    """None: never."""


class Tokens(StorePart):
    """The tokens of a store."""

    def create(self, name: str, role: str, days: int | None = EXPIRES_DAYS) -> tuple[Token, str]:
        """Make a token; return what is known of it, and the token itself, which nobody can show again.

        Without a number of days it never expires.
        """
        name = name.strip()
        if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
            message = f"a token needs a name of 1 to {MAX_NAME_LENGTH} printable characters, found {quote_text(name)}"
            raise InvalidInput(message, [Problem(message, "name")])
        if role not in ROLES:
            raise InvalidInput(
                f"there is no role {quote_text(role)}{suggest_similar(role, ROLES)}; there are {', '.join(ROLES)}"
            )
        if days is not None and not 1 <= days <= MOST_DAYS:
            raise InvalidInput(f"a token expires after 1 to {MOST_DAYS:,} days, or never; found {days}")
        secret = make_secret()
        expires = None if days is None else _days_from_now(days)
        made = Token(f"t{secrets.token_hex(4)}", name, role, timestamp(), expires=expires)
        row = {
            "id": made.id,
            "name": escape_text(name),
            "role": role,
            "hash": hash_secret(secret),
            "created": made.created,
        }
        with self._database.write_transaction() as connection:
            connection.execute(insert(tokens), {**row, "expires": expires})
        return made, secret

    def list(self) -> list[Token]:
        """Return all of them, oldest first; the revoked and expired ones too."""
        return [_row_to_token(row) for row in self._rows(select(tokens).order_by(tokens.c.created, tokens.c.id))]

    def has_valid_token(self) -> bool:
        """Tell whether a token is valid."""
        return bool(self._rows(select(tokens.c.id).where(_is_valid_condition()).limit(1)))

    def has_ever_existed(self) -> bool:
        """Tell whether there has been a token."""
        return bool(self._rows(select(tokens.c.id).limit(1)))

    def revoke(self, token_id: str) -> Token:
        """End a token; one that was ended already stays so."""
        with self._database.write_transaction() as connection:
            mine = tokens.c.id == escape_text(token_id)
            row = connection.execute(select(tokens).where(mine)).first()
            if row is None:
                raise NotFound(f"there is no token {quote_text(token_id)}", hint=Hint("list_tokens"))
            found = _row_to_token(row)
            if found.revoked is None:
                found = msgspec.structs.replace(found, revoked=timestamp())
                connection.execute(update(tokens).where(mine), {"revoked": found.revoked})
        return found

    def find_by_secret(self, secret: str) -> Token | None:
        """Return whose token it is; None when it is nobody's, was revoked or has expired."""
        found = self._rows(select(tokens).where(tokens.c.hash == hash_secret(secret), _is_valid_condition()))
        return _row_to_token(found[0]) if found else None

    def roles(self, token_ids: Collection[str]) -> dict[str, Role]:
        """Return the roles of those of some tokens that are valid."""
        rows = self._rows(select(tokens.c.id, tokens.c.role).where(tokens.c.id.in_(token_ids), _is_valid_condition()))
        return {row.id: row.role for row in rows}

    # ── Sessions ──

    def begin_session(self, token_id: str) -> str:
        """Return the secret of a new session of a token; those that have expired are deleted."""
        secret = make_secret()
        row = {"hash": hash_secret(secret), "token_id": token_id, "expires": _days_from_now(SESSION_DAYS)}
        with self._database.write_transaction() as connection:
            connection.execute(delete(sessions).where(sessions.c.expires <= timestamp()))
            connection.execute(insert(sessions), row)
        return secret

    def end_session(self, session: str) -> None:
        """End a session, by the hash of its secret."""
        with self._database.write_transaction() as connection:
            connection.execute(delete(sessions).where(sessions.c.hash == session))

    def find_by_session(self, secret: str) -> Token | None:
        """Return whose session it is; None when there is no such session, or when it or its token has ended."""
        joined = select(tokens).join_from(tokens, sessions)
        mine = (sessions.c.hash == hash_secret(secret), sessions.c.expires > timestamp())
        found = self._rows(joined.where(*mine, _is_valid_condition()))
        return _row_to_token(found[0]) if found else None

    def open_sessions(self, hashes: Collection[str]) -> set[str]:
        """Return those of some sessions that have not ended."""
        query = select(sessions.c.hash).where(sessions.c.hash.in_(hashes), sessions.c.expires > timestamp())
        return {row.hash for row in self._rows(query)}

    def record_use(self, token_id: str) -> None:
        """Write down that a token was used today. It waits for other writers, so nobody should wait for it."""
        with self._database.write_transaction() as connection:
            connection.execute(update(tokens).where(tokens.c.id == token_id), {"used": timestamp()[:10]})


def make_secret() -> str:
    """Return a secret that nobody can guess, for a token or a session."""
    return TOKEN_PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def looks_like_token(secret: str) -> bool:
    """Tell whether a text could be a token; of any other nobody need look whose it is.

    >>> looks_like_token("pramana_" + "x" * 43), looks_like_token("x" * 51), looks_like_token("pramana_x")
    (True, False, False)
    """
    return len(secret) == _TOKEN_LENGTH and secret.startswith(TOKEN_PREFIX)


def hash_secret(secret: str) -> str:
    """Return what is stored of a token."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _row_to_token(row: Any) -> Token:
    return Token(row.id, unescape_text(row.name), row.role, row.created, row.used, row.revoked, row.expires)


def _is_valid_condition() -> ColumnElement[bool]:
    return and_(tokens.c.revoked.is_(None), or_(tokens.c.expires.is_(None), tokens.c.expires > timestamp()))


def _days_from_now(days: int) -> str:
    return (clock.now() + timedelta(days=days)).isoformat(timespec="milliseconds")
