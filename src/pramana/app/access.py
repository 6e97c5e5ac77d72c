"""Authentication and rate limits: resolves credentials to users and roles, and counts their requests.

A front end passes a `Credential`, never a role. `use_case` resolves it again at every call, so a token that is
revoked, expired or demoted stops working with the next call. `OpenStreams` holds the open event streams and the
WebSockets of pages; one task checks every two seconds whether their tokens and sessions are still valid, and closes
those that are not.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import anyio.to_thread
from msgspec import Struct
from msgspec.structs import replace

from pramana import clock
from pramana.errors import Hint, PramanaError, StoreFailed
from pramana.store.engine import timestamp
from pramana.store.preferences import Preferences
from pramana.store.store import Store
from pramana.store.tokens import ROLES, Role, hash_secret, looks_like_token, make_secret

LOOKUP_CACHE_S = 2.0
"""How long the result of a token lookup is cached."""
CONCURRENT_LOOKUPS = 4
"""Each lookup takes one connection to the store."""
INVALID_TOKEN = "invalid token: it is unknown, expired or revoked"
NO_TOKEN = "a token is required: send the header Authorization: Bearer TOKEN"
ALL_TOKENS_ENDED = "a token is required, and every token of this server is revoked or expired"
MAX_CACHED_CALLERS = 10_000
"""Most tokens and addresses kept in memory, so that made-up ones cannot fill it."""
MAX_STREAMS_PER_TOKEN = 100
MAX_STREAMS_PER_PROCESS = 1_000
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Forbidden(PramanaError, code="forbidden", http_status=403, exit_code=2):
    """The caller's role does not allow this."""


class Unauthorized(PramanaError, code="unauthorized", http_status=401, exit_code=2):
    """The request has no valid token."""


class TooManyRequests(PramanaError, code="rate_limited", http_status=429, exit_code=3):
    """A token or an address has exceeded its rate limit."""

    def __init__(self, bucket: "RateLimitBucket") -> None:
        super().__init__(f"more than {bucket.requests_per_minute:,} requests a minute; wait {bucket.wait_s:.0f} s")
        self.retry_after_s = max(1, round(bucket.wait_s + 0.5))


class Credential(Struct, frozen=True):
    """What a front end knows about a caller; permissions are decided here."""

    token_secret: str | None = None
    """A token."""
    session_secret: str | None = None
    """The secret of a browser's session."""
    is_from_server_account: bool = False
    """Whether the connection comes from the account on this machine that the server runs as."""
    address: str = "?"
    """The IP address, against which requests without a token are counted."""


class User(Struct, frozen=True):
    """The caller, once their credential is resolved."""

    name: str
    role: Role | None
    """None: anonymous."""
    token_id: str | None = None
    session_hash: str | None = None
    """The hash of the session's secret, for a browser."""

    def has_role(self, role: Role) -> bool:
        """Return whether the user has at least this role."""
        return self.role is not None and ROLES.index(self.role) >= ROLES.index(role)


LOCAL_OWNER = User("local", "admin")
"""The account that the server runs as; with --no-auth, every caller."""
ANONYMOUS = User("anonymous", None)
STARTUP_TOKEN_ID = "start-up"
"""The token id of the start-up token, which is not in the store."""


class RateLimitBucket(NamedTuple):
    """How many more requests a token or an address may make; it refills continuously."""

    requests_per_minute: int
    requests_left: int
    full_in_s: float
    wait_s: float
    """Until the next request is allowed; 0 if this one was."""


class AccessSettings(Protocol):
    """What `Access` needs from the `App`."""

    open_to_all: bool
    have_all_tokens_ended: bool
    store: Store

    @property
    def trusts_server_account(self) -> bool: ...

    def preferences(self) -> Preferences: ...


class Access:
    """Resolves tokens and sessions to users, and counts requests."""

    def __init__(self, app: AccessSettings) -> None:
        self._app = app
        self._known: OrderedDict[str, tuple[float, User | None]] = OrderedDict()
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lookups, self._notes = anyio.CapacityLimiter(CONCURRENT_LOOKUPS), anyio.CapacityLimiter(1)
        self._note_tasks: dict[str, asyncio.Task[None]] = {}
        self._startup_users: dict[str, User] = {}
        """The start-up token and its sessions, by hash; valid until the process ends."""

    async def find_user(self, credential: Credential) -> User:
        """Return the user of a credential; raises `Unauthorized` for an invalid token.

        A token takes precedence over everything else, even an invalid one. A session that has ended is ignored: the
        server's own account does not need one, and anyone else is anonymous.
        """
        if self._app.open_to_all:
            return LOCAL_OWNER
        if credential.token_secret is not None:
            if holder := await self._find_cached_user(credential.token_secret, is_session=False):
                return holder
            raise self.make_unauthorized(INVALID_TOKEN)
        found = (
            await self._find_cached_user(credential.session_secret, is_session=True)
            if credential.session_secret
            else None
        )
        return found or (LOCAL_OWNER if self._is_owner(credential) else ANONYMOUS)

    async def authenticate_and_count(
        self, credential: Credential, report_bucket: Callable[[RateLimitBucket], None] = lambda _: None
    ) -> User:
        """Return the user of a credential and count the request.

        `report_bucket` receives the bucket with the requests left.
        """
        if not self._is_known_without_lookup(credential):
            self._count_request(
                ANONYMOUS, credential, report_bucket
            )  # made-up tokens are counted before they are looked up
        user = await self.find_user(credential)
        if user is not LOCAL_OWNER:
            self._count_request(user, credential, report_bucket)
        return user

    def _is_owner(self, credential: Credential) -> bool:
        return self._app.open_to_all or (credential.is_from_server_account and self._app.trusts_server_account)

    def _is_known_without_lookup(self, credential: Credential) -> bool:
        shown = credential.token_secret or credential.session_secret
        return shown is None or self._is_owner(credential) or self._known.get(shown, (0.0, None))[1] is not None

    def make_unauthorized(self, reason: str) -> Unauthorized:
        """Return the error for a refused caller; if every token has ended, with advice on how to get a new one."""
        return (
            Unauthorized(ALL_TOKENS_ENDED, hint=Hint("create_token"))
            if self._app.have_all_tokens_ended
            else Unauthorized(reason)
        )

    async def _find_cached_user(self, secret: str, *, is_session: bool) -> User | None:
        until, found = self._known.get(secret, (0.0, None))
        if until < clock.monotonic():
            found = await self._look_up_user(secret, is_session=is_session) if looks_like_token(secret) else None
        return found if found is None or (found.session_hash is not None) is is_session else None

    async def _look_up_user(self, secret: str, *, is_session: bool) -> User | None:
        now, session = clock.monotonic(), hash_secret(secret) if is_session else None
        found, token = self._startup_users.get(hash_secret(secret)), None
        if found is None:
            tokens = self._app.store.tokens
            look_up = tokens.find_by_session_secret if is_session else tokens.find_by_secret
            token = await anyio.to_thread.run_sync(look_up, secret, limiter=self._lookups)
            found = None if token is None else User(token.name, token.role, token.id, session)
        put_in_cache(self._known, secret, (now + LOOKUP_CACHE_S, found))
        if token and token.used != timestamp()[:10] and token.id not in self._note_tasks:
            self._note_tasks[token.id] = asyncio.create_task(self._note_token_use(token.id))
        return found

    # ── Sessions ──

    def make_startup_token(self, role: Role = "admin", name: str = "start-up token") -> str:
        """Return a token that is valid until the process ends and is never stored."""
        secret = make_secret()
        self._startup_users[hash_secret(secret)] = User(name, role, STARTUP_TOKEN_ID)
        return secret

    def is_startup_token(self, secret: str) -> bool:
        """Return whether this is the token that the server printed at start-up."""
        found = self._startup_users.get(hash_secret(secret))
        return found is not None and found.session_hash is None

    def begin_session(self, user: User) -> str:
        """Start a session for the user's token and return its secret. Writes to the store."""
        if user.token_id is None or user.session_hash is not None:
            raise Forbidden("a session needs a token; sign in with a token")
        if user.token_id != STARTUP_TOKEN_ID:
            return self._app.store.tokens.begin_session(user.token_id)
        secret = make_secret()
        self._startup_users[hash_secret(secret)] = replace(user, session_hash=hash_secret(secret))
        return secret

    def end_session(self, user: User) -> None:
        """End the user's session: at once in this process, within seconds in others. Writes to the store."""
        if user.session_hash is None:
            return
        self._known = OrderedDict()  # not clear(): the event loop may be about to use an entry
        if self._startup_users.pop(user.session_hash, None) is None:
            self._app.store.tokens.end_session(user.session_hash)

    async def find_ended_users(self, users: Collection[User]) -> set[User]:
        """Return the users whose token or session has ended, or whose role was lowered."""
        stored = {each for each in users if each.token_id not in (None, STARTUP_TOKEN_ID)}
        ids, sessions = (
            {str(each.token_id) for each in stored},
            {each.session_hash for each in stored if each.session_hash},
        )

        def look() -> tuple[dict[str, Role], set[str]]:
            tokens = self._app.store.tokens
            return tokens.read_roles(ids), tokens.find_open_sessions(sessions) if sessions else set()

        roles, still_open = await anyio.to_thread.run_sync(look, limiter=self._lookups) if ids else ({}, set())
        still_open |= self._startup_users.keys()
        return {
            each
            for each in users
            if (
                each in stored and not replace(each, role=roles.get(str(each.token_id))).has_role(each.role or "viewer")
            )
            or (each.session_hash is not None and each.session_hash not in still_open)
        }

    async def _note_token_use(self, token_id: str) -> None:
        """Record that a token was used today. Runs in the background, since it waits for other writers."""
        try:
            with suppress(StoreFailed):
                await anyio.to_thread.run_sync(
                    self._app.store.tokens.record_use, token_id, abandon_on_cancel=True, limiter=self._notes
                )
        finally:
            del self._note_tasks[token_id]

    def _count_request(
        self, user: User, credential: Credential, report_bucket: Callable[[RateLimitBucket], None]
    ) -> None:
        """Count a request against its token or address; raises `TooManyRequests`."""
        limit, now = self._app.preferences().requests_per_minute, clock.monotonic()
        key = user.token_id or f"address {credential.address}"
        left, at = self._buckets.get(key, (float(limit), now))
        left = min(float(limit), left + (now - at) * limit / 60)
        enough = left >= 1
        left -= enough  # a refused request is not counted, so waiting for the reported time is enough
        put_in_cache(self._buckets, key, (left, now))
        wait_s = 0.0 if enough else (1 - left) * 60 / limit
        report_bucket(bucket := RateLimitBucket(limit, int(left), (limit - left) * 60 / limit, wait_s))
        if wait_s:
            raise TooManyRequests(bucket)


# ── Open streams ──


class TooManyStreams(PramanaError, code="rate_limited", http_status=429, exit_code=1):
    """A token has reached its limit of open streams."""


class TooManyServerStreams(PramanaError, code="unavailable", http_status=503, exit_code=1):
    """The process has reached its limit of open streams."""


@dataclass(frozen=True, slots=True, eq=False)
class _OpenStream:
    user: User
    end_stream: Callable[[], None]
    is_counted: bool


class OpenStreams:
    """The open streams of one process."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._open: set[_OpenStream] = set()
        self._watching: asyncio.Task[None] | None = None

    def check_capacity(self, user: User) -> None:
        """Raise if the token or the process has reached its limit of open streams."""
        counts = Counter(each.user.token_id for each in self._open if each.is_counted)
        if user.token_id and counts[user.token_id] >= MAX_STREAMS_PER_TOKEN:
            raise TooManyStreams(
                f"this token has {MAX_STREAMS_PER_TOKEN:,} streams open, which is the limit; close a stream first"
            )
        if counts.total() >= MAX_STREAMS_PER_PROCESS:
            raise TooManyServerStreams(
                f"this server has {MAX_STREAMS_PER_PROCESS:,} streams open, which is the limit; try again later"
            )

    @contextmanager
    def register_stream(
        self, user: User, end_stream: Callable[[], None], *, is_counted: bool = False
    ) -> Iterator[None]:
        """Call `end_stream` if the user's token or session ends or its role is lowered while the context is open.

        `end_stream` may be called more than once. Only event streams are counted, not the WebSockets of pages.
        """
        opened = _OpenStream(user, end_stream, is_counted)
        self._open.add(opened)
        if user.token_id and (self._watching is None or self._watching.done()):
            self._watching = asyncio.create_task(self._end_streams_of_ended_users())
        try:
            yield
        finally:
            self._open.discard(opened)

    @asynccontextmanager
    async def cancel_when_ended(
        self, user: User, grace_s: float = 0.0, *, is_counted: bool = False
    ) -> AsyncIterator[asyncio.Timeout]:
        """Cancel the body of the context when the user's token or session ends; `expired()` then returns true."""
        limit = asyncio.timeout(None)

        def cancel() -> None:
            if limit.when() is None:
                limit.reschedule(asyncio.get_running_loop().time() + grace_s)

        try:
            async with limit:
                with self.register_stream(user, cancel, is_counted=is_counted):
                    yield limit
        except TimeoutError:
            if not limit.expired():
                raise

    async def _end_streams_of_ended_users(self) -> None:
        while users := {each.user for each in self._open if each.user.token_id}:
            await asyncio.sleep(LOOKUP_CACHE_S)
            with suppress(PramanaError):  # the store may come back; until then, nothing is sent either
                ended = await self._access.find_ended_users(
                    users
                )  # a stream opened during the lookup is checked by the next one
                for each in [each for each in self._open if each.user in ended]:
                    each.end_stream()


# ── Shared parts ──


def require_role(user: User, role: Role) -> None:
    """Raise unless the user has at least this role."""
    if user.has_role(role):
        return
    if user.role is None:
        raise Unauthorized(NO_TOKEN)
    raise Forbidden(f"this request needs the role {role}, and the token {user.name} has the role {user.role}")


def put_in_cache(
    cache: OrderedDict[_Key, _Value], key: _Key, value: _Value, max_entries: int = MAX_CACHED_CALLERS
) -> None:
    """Cache a value and evict the least recently used one when the cache is full."""
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > max_entries:
        cache.popitem(last=False)
