"""The application layer: one typed function per use case, the same for every front end.

Front ends (command line, API, pages, Python) await a use case with the `App`, a `Credential` and its request, and get a
view, which they only render. `use_case` checks the caller's role and runs the function in a thread, so a use case is
plain synchronous code that may read the store. One module per noun.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial, wraps
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import anyio.to_thread

from pramana import clock
from pramana.app.access import LOOKUP_CACHE_S, Access, Credential, OpenStreams, User, require_role
from pramana.app.findings import ComputationCache, RunSummaries
from pramana.app.known_suites import KnownSuites
from pramana.app.pulls import Downloads
from pramana.app.spending import LocalProgram
from pramana.app.tail import Tail
from pramana.errors import PramanaError
from pramana.store.preferences import Preferences
from pramana.store.store import Store
from pramana.store.tokens import Role

__all__ = ["App", "Credential", "ServerBusy", "TooLarge", "User", "allowed_user", "is_loopback", "use_case"]
log = logging.getLogger("pramana.app")
_Made = TypeVar("_Made")
_Given = ParamSpec("_Given")
Lane = Literal["here", "work", "heavy", "outside", "runs"]
"""Where a use case runs: on the event loop (`here`), or in the threads for store access, long work, requests to other
hosts, or runs."""
RULES: dict[str, Role] = {}
"""The role that each use case needs, by module and name."""
OPEN_WHEN: dict[str, Callable[[Preferences], bool]] = {}
"""The use cases that a setting can open to anonymous callers, each with a function that reads the setting."""
PROBE_VALID_S, PROBE_TIMEOUT_S = 1.0, 3.0
"""How long a successful read counts as proof that the store is available, and the timeout of a new probe."""
MAX_RUNNING_REQUESTS, MAX_WAITING_REQUESTS = 4, 16
"""How many long requests run at the same time, and how many more may wait; the rest are refused as busy."""


class ServerBusy(PramanaError, code="busy", http_status=503):
    """The queue for long requests is full; retry later."""

    retry_after_s = 5


class TooLarge(PramanaError, code="too_large", http_status=413):
    """One request sent more bytes than the settings allow."""


@dataclass(slots=True)
class _WorkQueue:
    """A few threads for one kind of request, with a bounded queue."""

    threads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(MAX_RUNNING_REQUESTS))
    request_count: int = 0

    async def run(self, work: Callable[[], _Made]) -> _Made:
        if self.request_count >= MAX_RUNNING_REQUESTS + MAX_WAITING_REQUESTS:
            raise ServerBusy("too many requests of this kind are waiting; try again in a few seconds")
        self.request_count += 1
        try:
            return await anyio.to_thread.run_sync(work, limiter=self.threads)
        finally:
            self.request_count -= 1


@dataclass(slots=True)
class App:
    """State that all use cases of one process share: the store, the server settings and the thread limits."""

    store: Store
    host: str = "127.0.0.1"
    port: int = 3000
    tokens_required: bool = False
    """Whether even the account that the server runs as needs a token."""
    open_to_all: bool = False
    """Whether everyone who can reach the server may do everything: --no-auth."""
    api_only: bool = False
    allowed_hosts: tuple[str, ...] = ()
    """Host names that clients may use for the server, besides its address."""
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    """Proxies whose forwarding headers are trusted for the client's address."""
    started_at: float = field(default_factory=clock.timestamp)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server is about to stop; open event streams end."""
    on_queued: Callable[[], None] = lambda: None
    """Called when this process queues a run, so that `jobs` starts it without polling the store."""
    tokens_existed: bool = False
    """Whether a token was ever created, valid or not: if so, others may be using this server."""
    tokens_ended: bool = False
    """Whether tokens exist and all of them are revoked or expired."""
    _preferences: Preferences = field(default_factory=Preferences)
    _changes: int = 0
    _store_is_unreadable: bool = False
    _probe: "asyncio.Task[int] | None" = None
    _probed: float = float("-inf")
    _heavy_queue: _WorkQueue = field(default_factory=_WorkQueue)
    _network_queue: _WorkQueue = field(default_factory=_WorkQueue)
    _run_queue: _WorkQueue = field(default_factory=_WorkQueue)
    access: Access = field(init=False)
    findings: RunSummaries = field(init=False)
    """Summaries of runs, cached and updated as results arrive."""
    comparisons: ComputationCache = field(default_factory=ComputationCache)
    tail: Tail = field(init=False)
    """Publishes new results and changes to the event streams."""
    known_suites: KnownSuites = field(init=False)

    local: LocalProgram | None = None
    """Set in a program that only this account's user can reach; enables the use cases of `app.local`."""
    pulls: Downloads = field(default_factory=Downloads)
    """Downloads of weights by this process."""
    streams: OpenStreams = field(init=False)
    """The open event streams and the WebSockets of pages."""

    def __post_init__(self) -> None:
        self.access, self.findings = Access(self), RunSummaries(self.store)
        self.tail, self.known_suites = Tail(self.store, self.closing), KnownSuites(self.store)
        self.streams = OpenStreams(self.access)

    # ── Server settings ──

    def preferences(self) -> Preferences:
        """Return the server settings, at most some seconds old; while the store is unavailable, the last known ones."""
        return self._preferences

    def set_preferences(self, preferences: Preferences) -> None:
        """Apply settings that this process has just stored, without waiting for the next refresh."""
        self._changes += 1
        self._preferences = preferences

    def refresh(self) -> None:
        """Read the settings and whether there are tokens. Blocks: never call it on the event loop."""
        self.tokens_existed = self.store.tokens.has_ever_existed()
        self.tokens_ended = self.tokens_existed and not self.store.tokens.has_valid_token()
        before = self._changes
        found = self.store.preferences.read()
        if before == self._changes:  # settings changed during the read are newer than what was read
            self._preferences = found

    async def refresh_if_readable(self) -> None:
        """Read the settings; if the store cannot be read, keep the last known ones."""
        try:
            await anyio.to_thread.run_sync(self.refresh, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))
        except Exception as error:  # noqa: BLE001 - the server must go on after any error
            if not self._store_is_unreadable:
                log.warning("the settings cannot be read, so the previous ones stay in effect: %s", error)
            self._store_is_unreadable = True
        else:
            self._store_is_unreadable = False

    async def refresh_periodically(self) -> None:
        """Read the settings every few seconds, in a thread, for as long as the server runs."""
        while True:
            await asyncio.sleep(LOOKUP_CACHE_S)
            await self.refresh_if_readable()

    # ── Store and threads ──

    async def is_store_available(self) -> bool:
        """Return whether the store can be read; concurrent callers share one probe, which runs in a reserved thread."""
        now = clock.monotonic()
        if self._probe is None or (self._probe.done() and now - self._probed > PROBE_VALID_S):
            asked = anyio.to_thread.run_sync(
                self.store.changes.last, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
            )
            self._probe, self._probed = asyncio.ensure_future(asked), now
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await asyncio.shield(self._probe)
        except (PramanaError, TimeoutError):
            return False
        return True

    async def run_in_thread(self, work: Callable[[], _Made]) -> _Made:
        """Run store access in a thread, since nothing may block the event loop."""
        return await anyio.to_thread.run_sync(work)

    async def run_in_heavy_thread(self, work: Callable[[], _Made]) -> _Made:
        """Run long work in one of a few separate threads, so that it delays nothing else."""
        return await self._heavy_queue.run(work)

    async def run_in_network_thread(self, work: Callable[[], _Made]) -> _Made:
        """Run requests to other hosts, which may be slow, in separate threads."""
        return await self._network_queue.run(work)

    async def run_in_run_thread(self, work: Callable[[], _Made]) -> _Made:
        """Run an evaluation run in this process, in one of a few separate threads."""
        return await self._run_queue.run(work)

    def check_size(self, *sent: str | bytes) -> None:
        """Raise `TooLarge` if the documents together exceed the size limit of one request."""
        most = self.preferences().largest_body_mb
        sizes = (len(each if isinstance(each, bytes) else each.encode(errors="surrogatepass")) for each in sent)
        if sum(sizes) > most << 20:
            raise TooLarge(f"a request may have at most {most} MB; send a smaller request")

    # ── Reachability ──

    @property
    def trusts_own_account(self) -> bool:
        """Whether connections from the account that the server runs as need no token.

        Only on loopback, and not behind a proxy or under another host name: a proxy may run as the same account, and
        then every user would appear to be that account.
        """
        known_elsewhere = self.allowed_hosts or self.trusted_proxies or self.tokens_required
        return is_loopback(self.host) and not known_elsewhere

    @property
    def is_local_only(self) -> bool:
        """Whether only this machine can use the server: no token was ever created, no host name or proxy is set."""
        return self.trusts_own_account and not self.tokens_existed

    def private_addresses_allowed(self) -> bool:
        """Whether URLs that users enter may point to private addresses."""
        return self.is_local_only or self.preferences().allow_private_addresses


def is_loopback(host: str) -> bool:
    """Return whether a listen address is on loopback.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def use_case(
    role: Role, lane: Lane = "work", open_when: Callable[[Preferences], bool] | None = None
) -> Callable[
    [Callable[Concatenate[App, User, _Given], _Made]], Callable[Concatenate[App, Credential, _Given], Awaitable[_Made]]
]:
    """Declare a use case: the role that it needs and where it runs (a thread pool, or `here` if it never waits).

    Callers await it with a credential; the function gets the user. With `open_when`, anonymous callers are allowed
    while that function returns true for the settings.
    """

    def declare(
        function: Callable[Concatenate[App, User, _Given], _Made],
    ) -> Callable[Concatenate[App, Credential, _Given], Awaitable[_Made]]:
        RULES[_use_case_name(function)] = role
        if open_when:
            OPEN_WHEN[_use_case_name(function)] = open_when

        @wraps(function)
        async def call_with_credential(
            app: App, credential: Credential, /, *given: _Given.args, **named: _Given.kwargs
        ) -> _Made:
            user = await allowed_user(app, credential, call_with_credential)
            work = partial(function, app, user, *given, **named)
            match lane:
                case "here":
                    return work()
                case "work":
                    return await app.run_in_thread(work)
                case "heavy":
                    return await app.run_in_heavy_thread(work)
                case "outside":
                    return await app.run_in_network_thread(work)
                case "runs":
                    return await app.run_in_run_thread(work)

        return call_with_credential

    return declare


async def allowed_user(app: App, credential: Credential, use_case: Callable[..., Any]) -> User:
    """Return the user of a credential; raises if they may not call a use case."""
    user, name = await app.access.find_user(credential), _use_case_name(use_case)
    if not (name in OPEN_WHEN and OPEN_WHEN[name](app.preferences())):
        require_role(user, RULES[name])
    return user


def role_of(use_case: Callable[..., Any]) -> Role:
    """Return the role that a use case needs."""
    return RULES[_use_case_name(use_case)]


def _use_case_name(use_case: Callable[..., Any]) -> str:
    return f"{use_case.__module__.rpartition('.')[2]}.{use_case.__name__}"
