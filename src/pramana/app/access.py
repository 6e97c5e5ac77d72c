"""Who asks, what they may do, and how often: the one place where that is decided.

A front end hands over a `Credential`, never a role. Every use case is declared with `use_case(role)`, which looks up
whose credential it is at each call, so that a token which was revoked, has expired or has lost its role ends with the
next call; `streams` looks again for whatever is open.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import wraps
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from pramana import clock
from pramana.errors import Hint, PramanaError, StoreFailed
from pramana.store.engine import timestamp
from pramana.store.preferences import Preferences
from pramana.store.store import Store
from pramana.store.tokens import ROLES, Role, hashed, looks_like_one, new_secret

FRESH_S = 2.0
"""How long the answer to whose token it is is believed before it is looked up again."""
CONCURRENT_LOOKUPS = 4
"""Each takes a connection to the store."""
INVALID_TOKEN = "nobody knows this token; it may have been revoked"
NO_TOKEN = "this needs a token: send it as Authorization: Bearer TOKEN"
NONE_LEFT = "this needs a token, and every token of this server is revoked or expired"
MAX_REMEMBERED = 10_000
"""Tokens and addresses: a stranger who invents some must not fill our memory."""
RULES: dict[str, Role] = {}
"""Of each use case, by its module and name, the role it needs. A test walks them."""
OPEN_WHEN: dict[str, Callable[[Preferences], bool]] = {}
"""The use cases that a setting opens to strangers, and whether it does."""
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_Rest = ParamSpec("_Rest")


class Forbidden(PramanaError, code="forbidden", http_status=403, exit_code=2):
    """Whoever asks may not do this."""


class Unauthorized(PramanaError, code="unauthorized", http_status=401, exit_code=2):
    """There is no valid token."""


class TooManyRequests(PramanaError, code="rate_limited", http_status=429, exit_code=3):
    """A token or an address has asked too often lately."""

    def __init__(self, bucket: "Bucket") -> None:
        super().__init__(f"more than {bucket.limit:,} requests a minute; wait {bucket.wait_s:.0f} s")
        self.retry_after_s = max(1, round(bucket.wait_s + 0.5))


class Credential(Struct, frozen=True):
    """What a front end knows of whoever asks; it says nothing of what they may do."""

    secret: str | None = None
    """The token that they show."""
    session: str | None = None
    """The secret of a browser's session."""
    own_account: bool = False
    """Whether the connection comes from the account on this machine that the server runs as."""
    address: str = "?"
    """Where they are, for counting how often strangers ask."""


class User(Struct, frozen=True):
    """Whoever asks."""

    name: str
    role: Role | None
    """None: a stranger."""
    token_id: str | None = None
    session: str | None = None
    """The hash of their session's secret, where a browser asks."""

    def may(self, role: Role) -> bool:
        """Return whether they may do what a role may."""
        return self.role is not None and ROLES.index(self.role) >= ROLES.index(role)


OWNER = User("local", "admin")
"""The account that the server runs as; with --no-auth, everyone."""
STRANGER = User("anonymous", None)
STARTUP_ID = "start-up"
"""Stands for the id of the token that a server prints when it starts."""


class Bucket(NamedTuple):
    """How many more requests a token or an address may make; it fills by the minute."""

    limit: int
    left: int
    full_in_s: float
    wait_s: float
    """Until the next request is served; 0 where this one is."""


class Host(Protocol):
    """What access is decided for: the `App`."""

    open_to_all: bool
    tokens_ended: bool
    store: Store
    access: "Access"

    @property
    def trusts_own_account(self) -> bool: ...

    def preferences(self) -> Preferences: ...


_App = TypeVar("_App", bound=Host)


class Access:
    """Whose tokens and sessions these are, and how often each has asked lately."""

    def __init__(self, app: Host) -> None:
        self._app = app
        self._known: OrderedDict[str, tuple[float, User | None]] = OrderedDict()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lookups, self._notes = anyio.CapacityLimiter(CONCURRENT_LOOKUPS), anyio.CapacityLimiter(1)
        self._noting: dict[str, asyncio.Task[None]] = {}
        self._of_this_start: dict[str, User] = {}
        """The start-up token and its sessions, by their hashes; they end with the process."""

    async def user(self, credential: Credential) -> User:
        """Return whose credential it is; raises `Unauthorized` for a token that is nobody's.

        A token that is shown counts, valid or not. A session that has ended is no session: whoever has the server's own
        account needs none, and others are strangers.
        """
        if self._app.open_to_all:
            return OWNER
        if credential.secret is not None:
            if holder := await self._find(credential.secret, is_session=False):
                return holder
            raise self.refusal(INVALID_TOKEN)
        found = await self._find(credential.session, is_session=True) if credential.session else None
        return found or (OWNER if self._is_owner(credential) else STRANGER)

    async def admit(self, credential: Credential, note: Callable[[Bucket], None] = lambda _: None) -> User:
        """Return whose credential it is, and count that they ask; `note` is called with what is left to them."""
        if not self._is_known(credential):
            self._count(STRANGER, credential, note)  # who invents tokens is counted before any is looked up
        user = await self.user(credential)
        if user is not OWNER:
            self._count(user, credential, note)
        return user

    def _is_owner(self, credential: Credential) -> bool:
        return self._app.open_to_all or (credential.own_account and self._app.trusts_own_account)

    def _is_known(self, credential: Credential) -> bool:
        shown = credential.secret or credential.session
        return shown is None or self._is_owner(credential) or self._known.get(shown, (0.0, None))[1] is not None

    def refusal(self, why: str) -> Unauthorized:
        """Return why somebody is refused; when no token is valid any more, how to get in."""
        return Unauthorized(NONE_LEFT, hint=Hint("create_token")) if self._app.tokens_ended else Unauthorized(why)

    async def _find(self, secret: str, *, is_session: bool) -> User | None:
        until, found = self._known.get(secret, (0.0, None))
        if until < clock.monotonic():
            found = await self._look_up(secret, is_session=is_session) if looks_like_one(secret) else None
        return found if found is None or (found.session is not None) is is_session else None

    async def _look_up(self, secret: str, *, is_session: bool) -> User | None:
        now, session = clock.monotonic(), hashed(secret) if is_session else None
        found, token = self._of_this_start.get(hashed(secret)), None
        if found is None:
            tokens = self._app.store.tokens
            look_up = tokens.session_holder if is_session else tokens.holder
            token = await anyio.to_thread.run_sync(look_up, secret, limiter=self._lookups)
            found = None if token is None else User(token.name, token.role, token.id, session)
        remember(self._known, secret, (now + FRESH_S, found))
        if token and token.used != timestamp()[:10] and token.id not in self._noting:
            self._noting[token.id] = asyncio.create_task(self._note(token.id))
        return found

    # ── Sessions, and what is open ──

    def make_startup_token(self) -> str:
        """Return a token of an administrator that is valid until the process ends; it is stored nowhere."""
        secret = new_secret()
        self._of_this_start[hashed(secret)] = User("start-up token", "admin", STARTUP_ID)
        return secret

    def is_startup_token(self, secret: str) -> bool:
        """Return whether it is the token that was printed when the server started."""
        found = self._of_this_start.get(hashed(secret))
        return found is not None and found.session is None

    async def begin_session(self, user: User) -> str:
        """Return the secret of a new session of whoever shows a token."""
        if user.token_id is None or user.session is not None:
            raise Forbidden("a session begins with a token")
        token_id = user.token_id
        if token_id != STARTUP_ID:
            return await anyio.to_thread.run_sync(self._app.store.tokens.begin_session, token_id)
        secret = new_secret()
        self._of_this_start[hashed(secret)] = replace(user, session=hashed(secret))
        return secret

    async def end_session(self, user: User) -> None:
        """End the session of whoever asks, at once in this process and within seconds in others."""
        if user.session is None:
            return
        session = user.session
        self._known.clear()
        if self._of_this_start.pop(session, None) is None:
            await anyio.to_thread.run_sync(self._app.store.tokens.end_session, session)

    async def ended(self, users: Collection[User]) -> set[User]:
        """Return those of some users whose token or session has ended, or whose role is less than it was."""
        stored = {each for each in users if each.token_id not in (None, STARTUP_ID)}
        ids, sessions = {str(each.token_id) for each in stored}, {each.session for each in stored if each.session}

        def look() -> tuple[dict[str, Role], set[str]]:
            tokens = self._app.store.tokens
            return tokens.roles(ids), tokens.open_sessions(sessions) if sessions else set()

        roles, still_open = await anyio.to_thread.run_sync(look, limiter=self._lookups) if ids else ({}, set())
        still_open |= self._of_this_start.keys()
        return {
            each
            for each in users
            if (each in stored and not replace(each, role=roles.get(str(each.token_id))).may(each.role or "viewer"))
            or (each.session is not None and each.session not in still_open)
        }

    async def _note(self, token_id: str) -> None:
        """Store that a token was used today; nobody waits for that, as a writer may have to."""
        try:
            with suppress(StoreFailed):
                await anyio.to_thread.run_sync(
                    self._app.store.tokens.seen, token_id, abandon_on_cancel=True, limiter=self._notes
                )
        finally:
            del self._noting[token_id]

    def _count(self, user: User, credential: Credential, note: Callable[[Bucket], None]) -> None:
        """Count a request against its token or address; raises `TooManyRequests`."""
        limit, now = self._app.preferences().requests_per_minute, clock.monotonic()
        key = user.token_id or f"address {credential.address}"
        left, at = self._buckets.get(key, (float(limit), now))
        left = min(float(limit), left + (now - at) * limit / 60)
        enough = left >= 1
        left -= enough  # who is refused has not been served, and who waits as told is
        remember(self._buckets, key, (left, now))
        wait_s = 0.0 if enough else (1 - left) * 60 / limit
        note(bucket := Bucket(limit, int(left), (limit - left) * 60 / limit, wait_s))
        if wait_s:
            raise TooManyRequests(bucket)


def require(user: User, role: Role) -> None:
    """Raise unless a user may do what a role may."""
    if user.may(role):
        return
    if user.role is None:
        raise Unauthorized(NO_TOKEN)
    raise Forbidden(f"this needs the role {role}, and the token {user.name} has the role {user.role}")


def use_case(
    role: Role, open_when: Callable[[Preferences], bool] | None = None
) -> "Callable[[Callable[Concatenate[_App, User, _Rest], Awaitable[_Value]]], Callable[Concatenate[_App, Credential, _Rest], Awaitable[_Value]]]":  # noqa: E501 - one type
    """Declare which role a use case needs: it is called with a credential, and gets the user whose it is.

    With `open_when`, strangers may do it too, as long as that holds of the settings.
    """

    def declare(
        function: "Callable[Concatenate[_App, User, _Rest], Awaitable[_Value]]",
    ) -> "Callable[Concatenate[_App, Credential, _Rest], Awaitable[_Value]]":
        RULES[_name_of(function)] = role
        if open_when:
            OPEN_WHEN[_name_of(function)] = open_when

        @wraps(function)
        async def checked(app: _App, credential: Credential, /, *given: _Rest.args, **named: _Rest.kwargs) -> _Value:
            return await function(app, await allowed_user(app, credential, checked), *given, **named)

        return checked

    return declare


async def allowed_user(app: Host, credential: Credential, use_case: Callable[..., Awaitable[object]]) -> User:
    """Return whose credential it is; raises for who may not do a use case."""
    user, name = await app.access.user(credential), _name_of(use_case)
    if not (name in OPEN_WHEN and OPEN_WHEN[name](app.preferences())):
        require(user, RULES[name])
    return user


def _name_of(use_case: Callable[..., Awaitable[object]]) -> str:
    return f"{use_case.__module__.rpartition('.')[2]}.{use_case.__name__}"


def remember(kept: OrderedDict[_Key, _Value], key: _Key, value: _Value, most: int = MAX_REMEMBERED) -> None:
    """Keep a value, and forget the one that was used longest ago when there are too many."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)
