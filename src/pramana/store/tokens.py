"""Tokens and browser sessions, stored by their SHA-256; the secrets themselves are never stored.

A secret has 256 random bits, so that a plain hash is safe: it cannot be guessed. A token is shown once, when it is
created. A session ends when its token is revoked or expires.
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
"""In ascending order: each role includes the rights of those before it."""
TOKEN_PREFIX = "pramana_"
"""A fixed prefix, so that people and secret scanners recognise a leaked token."""
_SECRET_BYTES = 32
_TOKEN_LENGTH = len(TOKEN_PREFIX) + 43
"""The random bytes have 43 characters in base64."""
MAX_NAME_LENGTH = 100
EXPIRES_DAYS, MAX_DAYS = 90, 3_650
"""The default and the maximum number of days until a token expires."""
SESSION_DAYS = 30


class Token(msgspec.Struct, frozen=True):
    """A token, without its secret."""

    id: str
    name: str
    role: Role
    created: str
    used: str | None = None
    """The day of its last use."""
    revoked: str | None = None
    expires: str | None = None
    """None: never."""


class Tokens(StorePart):
    """The tokens of a store."""

    def create(self, name: str, role: str, expires_in_days: int | None = EXPIRES_DAYS) -> tuple[Token, str]:
        """Create a token; return it and its secret, which cannot be shown again.

        With `days=None` it never expires.
        """
        name = name.strip()
        if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
            message = f"a token needs a name of 1 to {MAX_NAME_LENGTH} printable characters, found {quote_text(name)}"
            raise InvalidInput(message, [Problem(message, "name")])
        if role not in ROLES:
            raise InvalidInput(
                f"unknown role {quote_text(role)}{suggest_similar(role, ROLES)}; expected one of {', '.join(ROLES)}"
            )
        if expires_in_days is not None and not 1 <= expires_in_days <= MAX_DAYS:
            raise InvalidInput(f"a token expires after 1 to {MAX_DAYS:,} days, or never; found {expires_in_days}")
        secret = make_secret()
        expires = None if expires_in_days is None else _format_days_from_now(expires_in_days)
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
        """Return all tokens, oldest first, including revoked and expired ones."""
        return [_row_to_token(row) for row in self._fetch_rows(select(tokens).order_by(tokens.c.created, tokens.c.id))]

    def has_valid_token(self) -> bool:
        """Return whether any token is valid."""
        return bool(self._fetch_rows(select(tokens.c.id).where(_make_valid_condition()).limit(1)))

    def has_ever_had_token(self) -> bool:
        """Return whether any token was ever created."""
        return bool(self._fetch_rows(select(tokens.c.id).limit(1)))

    def revoke(self, token_id: str) -> Token:
        """Revoke a token; do nothing if it is revoked already."""
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
        """Return the token of a secret; None if there is none, or if it was revoked or has expired."""
        found = self._fetch_rows(select(tokens).where(tokens.c.hash == hash_secret(secret), _make_valid_condition()))
        return _row_to_token(found[0]) if found else None

    def read_roles(self, token_ids: Collection[str]) -> dict[str, Role]:
        """Return the roles of those tokens that are valid, by ID."""
        rows = self._fetch_rows(
            select(tokens.c.id, tokens.c.role).where(tokens.c.id.in_(token_ids), _make_valid_condition())
        )
        return {row.id: row.role for row in rows}

    # ── Sessions ──

    def begin_session(self, token_id: str) -> str:
        """Create a session of a token and return its secret; delete expired sessions."""
        secret = make_secret()
        row = {"hash": hash_secret(secret), "token_id": token_id, "expires": _format_days_from_now(SESSION_DAYS)}
        with self._database.write_transaction() as connection:
            connection.execute(delete(sessions).where(sessions.c.expires <= timestamp()))
            connection.execute(insert(sessions), row)
        return secret

    def end_session(self, session_hash: str) -> None:
        """End a session, by the hash of its secret."""
        with self._database.write_transaction() as connection:
            connection.execute(delete(sessions).where(sessions.c.hash == session_hash))

    def find_by_session_secret(self, secret: str) -> Token | None:
        """Return the token of a session's secret; None if the session or its token has ended."""
        joined = select(tokens).join_from(tokens, sessions)
        mine = (sessions.c.hash == hash_secret(secret), sessions.c.expires > timestamp())
        found = self._fetch_rows(joined.where(*mine, _make_valid_condition()))
        return _row_to_token(found[0]) if found else None

    def find_open_sessions(self, secret_hashes: Collection[str]) -> set[str]:
        """Return those sessions that have not ended, by the hashes of their secrets."""
        query = select(sessions.c.hash).where(sessions.c.hash.in_(secret_hashes), sessions.c.expires > timestamp())
        return {row.hash for row in self._fetch_rows(query)}

    def record_use(self, token_id: str) -> None:
        """Record that a token was used today. It waits for other writers, so a request should not wait for it."""
        with self._database.write_transaction() as connection:
            connection.execute(update(tokens).where(tokens.c.id == token_id), {"used": timestamp()[:10]})


def make_secret() -> str:
    """Return a random secret for a token or a session."""
    return TOKEN_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def looks_like_token(secret: str) -> bool:
    """Return whether a text has the form of a token; any other needs no query.

    >>> looks_like_token("pramana_" + "x" * 43), looks_like_token("x" * 51), looks_like_token("pramana_x")
    (True, False, False)
    """
    return len(secret) == _TOKEN_LENGTH and secret.startswith(TOKEN_PREFIX)


def hash_secret(secret: str) -> str:
    """Return the hash by which a secret is stored."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _row_to_token(row: Any) -> Token:
    return Token(row.id, unescape_text(row.name), row.role, row.created, row.used, row.revoked, row.expires)


def _make_valid_condition() -> ColumnElement[bool]:
    return and_(tokens.c.revoked.is_(None), or_(tokens.c.expires.is_(None), tokens.c.expires > timestamp()))


def _format_days_from_now(days: int) -> str:
    return (clock.now() + timedelta(days=days)).isoformat(timespec="milliseconds")
