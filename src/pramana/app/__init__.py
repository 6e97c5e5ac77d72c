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
from pramana.app.judge_marks import JudgeMarks
from pramana.app.known_suites import KnownSuites
from pramana.app.pulls import Downloads
from pramana.app.rejudging_jobs import RejudgingJobs
from pramana.app.spending import LocalProgramSettings
from pramana.app.tail import EventTail
from pramana.errors import PramanaError
from pramana.store.preferences import Preferences
from pramana.store.store import Store
from pramana.store.tokens import Role
from pramana.store.watches import Watch

__all__ = [
    "App",
    "Credential",
    "RequestTooLarge",
    "ServerBusy",
    "User",
    "is_loopback",
    "require_allowed_user",
    "use_case",
]
log = logging.getLogger("pramana.app")
_Return = TypeVar("_Return")
_Params = ParamSpec("_Params")
ThreadLane = Literal["event_loop", "store", "heavy", "network", "runs"]
"""Where a use case runs: on the event loop, or in the threads for store access, long work, requests to other hosts, or
runs."""
ROLE_BY_USE_CASE: dict[str, Role] = {}
"""The role that each use case needs, by module and name."""
ALLOW_ANONYMOUS_WHEN: dict[str, Callable[[Preferences], bool]] = {}
"""The use cases that a setting can open to anonymous callers, each with a function that reads the setting."""
PROBE_VALID_S, PROBE_TIMEOUT_S = 1.0, 3.0
"""How long a successful read counts as proof that the store is available, and the timeout of a new probe."""
MAX_RUNNING_REQUESTS, MAX_WAITING_REQUESTS = 4, 16
"""How many long requests run at the same time, and how many more may wait; the rest are refused as busy."""


class ServerBusy(PramanaError, code="busy", http_status=503):
    """The queue for long requests is full; retry later."""

    retry_after_s = 5


class RequestTooLarge(PramanaError, code="too_large", http_status=413):
    """One request sent more bytes than the settings allow."""


@dataclass(slots=True)
class _WorkQueue:
    """A few threads for one kind of request, with a bounded queue."""

    threads: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(MAX_RUNNING_REQUESTS))
    request_count: int = 0

    async def run(self, work: Callable[[], _Return]) -> _Return:
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
    server_account_needs_token: bool = False
    """Whether even the account that the server runs as needs a token."""
    open_to_all: bool = False
    """Whether everyone who can reach the server may do everything: --no-auth."""
    api_only: bool = False
    """Whether another process executes the runs and measures the watches: --api-only."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names that clients may use for the server, besides its address."""
    trusted_proxies: tuple[IPv4Network | IPv6Network, ...] = ()
    """Proxies whose forwarding headers are trusted for the client's address."""
    started_at: float = field(default_factory=clock.timestamp)
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server is about to stop; open event streams end."""
    on_run_queued: Callable[[], None] = lambda: None
    """Called when this process queues a run, so that `jobs` starts it without polling the store."""
    on_watch_started: Callable[[], None] = lambda: None
    """Called when this process starts a watch, so that its scheduler need not wait for its next look."""
    request_watch_check: Callable[[Watch], bool] = lambda _: False
    """Has the scheduler of this process measure a watch's day now; returns False if there is no such scheduler."""
    request_watch_confirmation: Callable[[Watch], bool] = lambda _: False
    """The same for a confirming batch."""
    has_had_tokens: bool = False
    """Whether a token was ever created, valid or not: if so, others may be using this server."""
    have_all_tokens_ended: bool = False
    """Whether tokens exist and all of them are revoked or expired."""
    _preferences: Preferences = field(default_factory=Preferences)
    _preference_change_count: int = 0
    _store_is_unreadable: bool = False
    _probe_task: "asyncio.Task[int] | None" = None
    _probe_started_at: float = float("-inf")
    _heavy_queue: _WorkQueue = field(default_factory=_WorkQueue)
    _network_queue: _WorkQueue = field(default_factory=_WorkQueue)
    _run_queue: _WorkQueue = field(default_factory=_WorkQueue)
    access: Access = field(init=False)
    run_summaries: RunSummaries = field(init=False)
    """Summaries of runs, cached and updated as results arrive."""
    comparison_cache: ComputationCache = field(default_factory=ComputationCache)
    community_watch_cache: ComputationCache = field(default_factory=ComputationCache)
    """Apart from the comparisons, which strangers must not push out."""
    judge_marks: JudgeMarks = field(init=False)
    event_tail: EventTail = field(init=False)
    """Publishes new results and changes to the event streams."""
    known_suites: KnownSuites = field(init=False)

    local_program: LocalProgramSettings | None = None
    """Set in a program that only this account's user can reach; enables the use cases of `app.local`."""
    downloads: Downloads = field(default_factory=Downloads)
    """Downloads of weights by this process."""
    rejudging_jobs: RejudgingJobs = field(default_factory=RejudgingJobs)
    """Judges that this process asks again."""
    streams: OpenStreams = field(init=False)
    """The open event streams and the WebSockets of pages."""

    def __post_init__(self) -> None:
        self.access, self.run_summaries = Access(self), RunSummaries(self.store)
        self.judge_marks = JudgeMarks(self.store)
        self.event_tail, self.known_suites = EventTail(self.store, self.closing), KnownSuites(self.store)
        self.streams = OpenStreams(self.access)

    # ── Server settings ──

    def preferences(self) -> Preferences:
        """Return the server settings, at most some seconds old; while the store is unavailable, the last known ones."""
        return self._preferences

    def set_preferences(self, preferences: Preferences) -> None:
        """Apply settings that this process has just stored, without waiting for the next refresh."""
        self._preference_change_count += 1
        self._preferences = preferences

    def refresh_settings(self) -> None:
        """Read the settings and whether there are tokens. Blocks: never call it on the event loop."""
        self.has_had_tokens = self.store.tokens.has_ever_had_token()
        self.have_all_tokens_ended = self.has_had_tokens and not self.store.tokens.has_valid_token()
        before = self._preference_change_count
        found = self.store.preferences.read()
        if before == self._preference_change_count:  # settings changed during the read are newer than what was read
            self._preferences = found

    async def refresh_settings_if_readable(self) -> None:
        """Read the settings; if the store cannot be read, keep the last known ones."""
        try:
            await anyio.to_thread.run_sync(
                self.refresh_settings, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
            )
        except Exception as error:  # noqa: BLE001 - the server must go on after any error
            if not self._store_is_unreadable:
                log.warning("the settings cannot be read, so the previous ones stay in effect: %s", error)
            self._store_is_unreadable = True
        else:
            self._store_is_unreadable = False

    async def refresh_settings_periodically(self) -> None:
        """Read the settings every few seconds, in a thread, for as long as the server runs."""
        while True:
            await asyncio.sleep(LOOKUP_CACHE_S)
            await self.refresh_settings_if_readable()

    # ── Store and threads ──

    async def is_store_available(self) -> bool:
        """Return whether the store can be read; concurrent callers share one probe, which runs in a reserved thread."""
        now = clock.monotonic()
        if self._probe_task is None or (self._probe_task.done() and now - self._probe_started_at > PROBE_VALID_S):
            asked = anyio.to_thread.run_sync(
                self.store.changes.last_number, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
            )
            self._probe_task, self._probe_started_at = asyncio.ensure_future(asked), now
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                await asyncio.shield(self._probe_task)
        except (PramanaError, TimeoutError):
            return False
        return True

    async def run_in_thread(self, work: Callable[[], _Return]) -> _Return:
        """Run store access in a thread, since nothing may block the event loop."""
        return await anyio.to_thread.run_sync(work)

    async def run_in_heavy_thread(self, work: Callable[[], _Return]) -> _Return:
        """Run long work in one of a few separate threads, so that it delays nothing else."""
        return await self._heavy_queue.run(work)

    async def run_in_network_thread(self, work: Callable[[], _Return]) -> _Return:
        """Run requests to other hosts, which may be slow, in separate threads."""
        return await self._network_queue.run(work)

    async def run_in_run_thread(self, work: Callable[[], _Return]) -> _Return:
        """Run an evaluation run in this process, in one of a few separate threads."""
        return await self._run_queue.run(work)

    def check_request_size(self, *documents: str | bytes) -> None:
        """Raise `RequestTooLarge` if the documents together exceed the size limit of one request."""
        most = self.preferences().largest_body_mb
        sizes = (len(each if isinstance(each, bytes) else each.encode(errors="surrogatepass")) for each in documents)
        if sum(sizes) > most << 20:
            raise RequestTooLarge(f"a request may have at most {most} MB; send a smaller request")

    # ── Reachability ──

    @property
    def trusts_server_account(self) -> bool:
        """Whether connections from the account that the server runs as need no token.

        Only on loopback, and not behind a proxy or under another host name: a proxy may run as the same account, and
        then every user would appear to be that account.
        """
        known_elsewhere = self.allowed_hosts or self.trusted_proxies or self.server_account_needs_token
        return is_loopback(self.host) and not known_elsewhere

    @property
    def is_local_only(self) -> bool:
        """Whether only this machine can use the server: no token was ever created, no host name or proxy is set."""
        return self.trusts_server_account and not self.has_had_tokens

    def allows_private_addresses(self) -> bool:
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
    role: Role, lane: ThreadLane = "store", allow_anonymous_when: Callable[[Preferences], bool] | None = None
) -> Callable[
    [Callable[Concatenate[App, User, _Params], _Return]],
    Callable[Concatenate[App, Credential, _Params], Awaitable[_Return]],
]:
    """Declare a use case: the role that it needs and where it runs (threads, or the event loop if it never waits).

    Callers await it with a credential; the function gets the user. With `allow_anonymous_when`, anonymous callers are
    allowed while that function returns true for the settings.
    """

    def declare(
        function: Callable[Concatenate[App, User, _Params], _Return],
    ) -> Callable[Concatenate[App, Credential, _Params], Awaitable[_Return]]:
        ROLE_BY_USE_CASE[_use_case_name(function)] = role
        if allow_anonymous_when:
            ALLOW_ANONYMOUS_WHEN[_use_case_name(function)] = allow_anonymous_when

        @wraps(function)
        async def call_with_credential(
            app: App, credential: Credential, /, *given: _Params.args, **named: _Params.kwargs
        ) -> _Return:
            user = await require_allowed_user(app, credential, call_with_credential)
            work = partial(function, app, user, *given, **named)
            match lane:
                case "event_loop":
                    return work()
                case "store":
                    return await app.run_in_thread(work)
                case "heavy":
                    return await app.run_in_heavy_thread(work)
                case "network":
                    return await app.run_in_network_thread(work)
                case "runs":
                    return await app.run_in_run_thread(work)

        return call_with_credential

    return declare


async def require_allowed_user(app: App, credential: Credential, use_case: Callable[..., Any]) -> User:
    """Return the user of a credential; raises if they may not call a use case."""
    user, name = await app.access.find_user(credential), _use_case_name(use_case)
    if not (name in ALLOW_ANONYMOUS_WHEN and ALLOW_ANONYMOUS_WHEN[name](app.preferences())):
        require_role(user, ROLE_BY_USE_CASE[name])
    return user


def required_role(use_case: Callable[..., Any]) -> Role:
    """Return the role that a use case needs."""
    return ROLE_BY_USE_CASE[_use_case_name(use_case)]


def _use_case_name(use_case: Callable[..., Any]) -> str:
    return f"{use_case.__module__.rpartition('.')[2]}.{use_case.__name__}"
