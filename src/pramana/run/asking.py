"""From a request to a reply, within all limits: cache, budget, limiter, retries, then the provider.

One `TargetClient` serves one provider account, for cases and judges alike; a second, with the same limiter and budget,
serves embeddings; one with its own limiter serves speech recognition. Retries are bounded, typed and jittered: only
temporary failures are retried. A parameter that the model rejects is left out from then on and named in the reply.
Nothing here judges a reply.

The cache keeps one small file per reply, so that an identical request costs nothing; drift never uses it. The name of a
file is the hash of provider, arguments, address, model, turns, parameters and repeat: if any differs, a request is
sent. A file that cannot be read counts as missing, and failed writes are ignored.
"""

import asyncio
import hashlib
import json
import os
import random
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict, astuple, replace

from pramana import clock
from pramana.errors import (
    BudgetSpent,
    NotAnApi,
    OutOfCredit,
    PramanaError,
    ProviderError,
    RateLimited,
    Rejected,
    Stopped,
    Unavailable,
    Unreachable,
    describe_exception,
)
from pramana.jsonl import to_canonical_json
from pramana.model import (
    Ask,
    EmbeddingProvider,
    Line,
    Provider,
    Reply,
    Request,
    Speech,
    Spent,
    Target,
    ToolCall,
    Turn,
    Usage,
    Utterance,
)
from pramana.providers.deadlines import Deadlines
from pramana.providers.prices import FUNCTION_KIND
from pramana.providers.voice.vocabulary import SpeechRecognition
from pramana.replies import describe_invalid_reply, drop_invalid_token_counts
from pramana.request import format_cost_limit
from pramana.run.engine import Stop
from pramana.run.limiter import Limiter
from pramana.settings import make_private_folder

if TYPE_CHECKING:
    from pramana.audio import Samples


MAX_ATTEMPTS = 10
MAX_ATTEMPTS_BEFORE_FIRST_REPLY = 4
"""Until a first reply arrives, the mistake is more likely the user's (an address, a port) than the provider's."""
FIRST_RETRY_WAIT_S = 0.5
MAX_RETRY_WAIT_S = 60.0
"""Doubling each time, the waits of ten attempts add up to two to three minutes: vendors count per minute."""
MAX_RETRY_AFTER_S = 900.0
"""A provider that asks for a longer pause has used up a daily quota: better to stop, and to resume when it is back."""
NEVER_OMITTED_PARAMETERS = ("max_tokens",)
"""Without it a reply could cost without limit; a value that is too high must be reported to the user."""


UNKNOWN_COST_REASON = (
    "the run has a cost limit, and a reply has no token counts or no price, so its cost is unknown; a function can "
    "state it: pramana.Reply(…, cost_usd=0.01)"
)


class Budget(Spent, kw_only=True):
    """What a whole run may spend, and has spent; judges and embedders count like cases.

    Requests in flight when a limit is reached finish and are paid for. To keep that small, fewer requests are started
    near the limit: only as many as fit into the rest, at the average cost of the replies so far.
    """

    max_cost_usd: float | None = None
    max_total_tokens: int | None = None
    reply_count: int = 0
    """Counted in this sitting only."""
    requests_in_flight: int = 0
    _spent_before: tuple[float, int] = (0.0, 0)
    _request_end_futures: list[asyncio.Future[None]] = []  # noqa: RUF012 - a struct copies the default

    def __post_init__(self) -> None:
        self._spent_before = (self.cost_usd, self.tokens)

    def check(self) -> None:
        """Raise `BudgetSpent` if no more requests may be sent.

        >>> Budget(max_total_tokens=50, tokens=120).check()
        Traceback (most recent call last):
            ...
        pramana.errors.BudgetSpent: the run's limit of 50 tokens is reached
        """
        if over := self._explain_cost_stop():
            raise BudgetSpent(over, "max_cost_usd")
        if over := self._explain_token_stop():
            raise BudgetSpent(over, "max_total_tokens")

    def _explain_cost_stop(self) -> str:
        """Return the reason without the amount spent, which grows while requests in flight finish."""
        if self.max_cost_usd is None:
            return ""
        if self.cost_usd >= self.max_cost_usd:
            return f"the run's limit of {format_cost_limit(self.max_cost_usd)} is reached"
        if self.unknown_cost:
            return UNKNOWN_COST_REASON
        return ""

    def _explain_token_stop(self) -> str:
        if self.max_total_tokens is None:
            return ""
        if self.tokens >= self.max_total_tokens:
            return f"the run's limit of {self.max_total_tokens:,} token{'s' * (self.max_total_tokens > 1)} is reached"
        if self.unknown_tokens:
            return "the run has a token limit, and a reply has no token counts, so the tokens used are unknown"
        return ""

    def begin_request(self) -> None:
        """Count a request as in flight, or raise; call `end_request` afterwards."""
        self.check()
        self.requests_in_flight += 1

    def end_request(self) -> None:
        """Count a request as no longer in flight."""
        self.requests_in_flight -= 1
        if self._request_end_futures:
            waiting, self._request_end_futures = self._request_end_futures, []
            for each in waiting:
                if not each.done():
                    each.set_result(None)

    def may_requests_in_flight_reach_limit(self) -> bool:
        """Return whether the requests in flight may reach a limit; False without any, so that no request waits forever.

        >>> near = Budget(max_total_tokens=100, tokens=0, requests_in_flight=2)
        >>> near.may_requests_in_flight_reach_limit()
        False
        >>> near.add_reply(Reply("", Usage(40, 0)))
        >>> near.may_requests_in_flight_reach_limit()
        True
        """
        if self.max_cost_usd is None and self.max_total_tokens is None:
            return False
        if (
            not self.requests_in_flight
            or not self.reply_count
            or (self._explain_cost_stop() or self._explain_token_stop())
        ):
            return False
        cost, tokens = self._spent_before
        of_all = self.requests_in_flight / self.reply_count
        return (
            self.max_cost_usd is not None and self.cost_usd + of_all * (self.cost_usd - cost) >= self.max_cost_usd
        ) or (
            self.max_total_tokens is not None and self.tokens + of_all * (self.tokens - tokens) >= self.max_total_tokens
        )

    async def wait_for_request_end(self) -> None:
        """Wait until a request in flight has ended."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._request_end_futures.append(ended)
        await ended

    def add_reply(self, reply: Reply) -> None:
        usage = reply.usage
        self.reply_count += 1
        if reply.cost_usd is None:
            self.unknown_cost = True
        else:
            self.cost_usd += reply.cost_usd
        if usage.input_tokens is None and usage.output_tokens is None:
            self.unknown_tokens = True
        self.tokens += (usage.input_tokens or 0) + (usage.output_tokens or 0)


_UNREADABLE_FILE_ERRORS = (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
"""The errors that a file may raise, whatever it holds and wherever it is."""


class ReplyCache:
    """Replies in a folder, by request."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, target: Target, account_address: str, request: Request) -> Reply | None:
        """Return the stored reply to a request, marked as cached and free, or None."""
        try:
            kept = json.loads(self._path(target, account_address, request).read_text(encoding="utf-8"))
            usage, raw = Usage(**kept.pop("usage")), kept.pop("raw")
            calls = tuple(ToolCall(*each) for each in kept.get("tool_calls", ()))
            several = {"dropped": tuple(kept["dropped"]), "vectors": (), "answers": (), "tool_calls": calls}
            known = Reply(**{**kept, **several, "usage": drop_invalid_token_counts(usage)})
            raw = None if raw is None else raw.encode("utf-8", "surrogatepass")
            known = replace(known, raw=raw, cached=True, cost_usd=0.0)
        except _UNREADABLE_FILE_ERRORS:
            return None
        return None if describe_invalid_reply(known) else known

    def put(self, target: Target, account_address: str, request: Request, reply: Reply) -> None:
        """Store a reply if possible, atomically: concurrent readers see all of it or nothing."""
        with suppress(*_UNREADABLE_FILE_ERRORS):
            path = self._path(target, account_address, request)
            raw = None if reply.raw is None else reply.raw.decode("utf-8", "surrogatepass")
            calls = [astuple(each) for each in reply.tool_calls]
            plain = {**asdict(reply), "usage": asdict(reply.usage), "raw": raw, "call": None, "tool_calls": calls}
            content = json.dumps(plain)
            make_private_folder(path.parent)
            handle, name = tempfile.mkstemp(dir=path.parent)
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(content)
                Path(name).replace(path)
            except OSError:
                Path(name).unlink()  # on a full disk, not even the temporary file may stay

    def _path(self, target: Target, account_address: str, request: Request) -> Path:
        asked = {
            "provider": target.provider,
            "arguments": dict(target.arguments),
            "where": account_address,
            "model": request.model,
            "turns": [[turn.role, turn.text] for turn in request.turns],
            "parameters": dict(request.parameters),
            "sample": request.sample,
        }
        digest = hashlib.sha256(b"pramana reply 2" + to_canonical_json(asked)).hexdigest()
        return self.folder / digest[:2] / f"{digest[2:]}.json"


# ── Clients ──

CostFunction = Callable[[Target, str | None, Usage], float | None]


class EmbeddingAdapter(Struct, frozen=True):
    """An embedding provider as a `Provider`, so that the same limits apply to it."""

    provider: EmbeddingProvider

    async def ask(self, request: Request) -> Reply:
        return await self.provider.embed(request)


class RecognitionAdapter(Struct, frozen=True):
    """Speech recognition as a `Provider`, so that limits and retries apply to it."""

    recognition: SpeechRecognition

    async def ask(self, request: Request) -> Reply:
        assert request.speech is not None  # noqa: S101 - only spoken requests come here
        (said,) = request.speech.utterances
        return Reply(await self.recognition.transcribe(said.samples, request.speech.language))


class RecognitionClient(Struct, frozen=True):
    """Speech recognition within its limits; implements `SpeechRecognition`.

    Errors are raised to the caller, which has a call that was paid for and goes on without words. An error that every
    other clip would hit too, such as a wrong key, also stops the run: later calls would have no words either.
    """

    recognition: SpeechRecognition
    limited_client: "TargetClient"

    def supports_language(self, language: str) -> bool:
        return self.recognition.supports_language(language)

    async def transcribe(self, samples: "Samples", language: str) -> str:
        clip = Speech((Utterance(Line(""), samples, ""),), language)
        try:
            # Purpose "judge": the call is already paid for, so it is transcribed even while the run stops.
            return (await self.limited_client(Request(self.limited_client.target.model, (), {}, "judge", 0, clip))).text
        except ProviderError as error:
            if error.fatal:
                self.limited_client.stop(str(error), error)
            raise


@dataclass(slots=True)
class TargetClient:
    """The client of one target; implements `Ask`."""

    target: Target
    provider: Provider | EmbeddingAdapter | RecognitionAdapter
    limiter: Limiter
    budget: Budget
    cost_of: CostFunction
    cache: ReplyCache | None = None
    stop: Stop = field(default_factory=Stop)
    timeout_s: float = 120.0
    """Timeout per attempt, whatever the provider."""
    account_address: str = ""
    """The address of the account, which a target does not include; the cache uses it to keep servers apart."""
    process_slot: AbstractAsyncContextManager[None] = field(default_factory=nullcontext)
    """A place on the machine, for providers that need one; the wait for it does not count toward the timeout."""
    is_judging_stopped: bool = False
    """Whether a stop also ends calls of judges that have not begun; in a run, replies in flight are still judged."""
    agent_was_ready: asyncio.Event | None = None
    """Set once an agent has been ready for a call; None for text models."""
    jitter: random.Random = field(default_factory=random.Random)
    rejected_parameters: dict[str, frozenset[str]] = field(default_factory=dict)
    """The parameters that each model has rejected."""
    omitted_parameters: set[str] = field(default_factory=set)
    """All parameters left out of some reply, by a rule of the adapter or because the model rejected them."""
    retry_count: int = 0
    _deadlines: Deadlines = field(init=False)
    _trusts_stated_cost: bool = field(init=False)
    """A cost that a reply states counts, in place of what its tokens cost by the price list."""
    _is_provider_from_pramana: bool = field(init=False)
    """Whether the provider belongs to this package, so that its replies need no validation."""

    def __post_init__(self) -> None:
        self._deadlines = Deadlines(self.timeout_s)
        asked = self.provider.provider if isinstance(self.provider, EmbeddingAdapter) else self.provider
        self._is_provider_from_pramana = type(asked).__module__.startswith("pramana.")
        self._trusts_stated_cost = not self._is_provider_from_pramana or self.target.provider == FUNCTION_KIND

    async def __call__(self, request: Request) -> Reply:
        """Return the reply; raise the error that retries could not overcome."""
        if self.cache:
            with suppress(Exception):  # a cache that cannot be read counts as empty
                if known := self.cache.get(self.target, self.account_address, request):
                    self.omitted_parameters.update(known.dropped)
                    return known
        attempt = 0
        while True:
            rejected = self.rejected_parameters.get(request.model, frozenset())
            asked = request
            if rejected:
                kept = {name: value for name, value in request.parameters.items() if name not in rejected}
                asked = replace(request, parameters=kept)
            try:
                return await self._ask_once(request, asked, attempt)
            except Rejected as refusal:
                named = refusal.parameter or ""
                if named not in asked.parameters or named in NEVER_OMITTED_PARAMETERS:
                    raise
                self.rejected_parameters[request.model] = self.rejected_parameters.get(request.model, frozenset()) | {
                    named
                }
            except ProviderError as error:
                attempt += 1
                answered = self.limiter.has_answered
                if error.transient and self.stop and request.purpose == "case":
                    raise Stopped(str(self.stop.reason)) from error  # not a failure: a resumed run sends it
                silent = not answered and self._is_agent_silent(error)
                last = attempt >= (MAX_ATTEMPTS if answered else MAX_ATTEMPTS_BEFORE_FIRST_REPLY)
                if not error.transient or self.stop or last or silent:
                    if silent or (not answered and isinstance(error, Unreachable | NotAnApi)):
                        error.fatal = True
                    raise
                self.retry_count += 1
                await self._wait_before_retry(attempt, error)

    def _is_agent_silent(self, error: ProviderError) -> bool:
        """Return whether an agent accepts connections but stays silent until the timeout, in every call so far."""
        return (
            self.agent_was_ready is not None
            and not self.agent_was_ready.is_set()
            and isinstance(error.__cause__, TimeoutError)
        )

    async def _ask_once(self, request: Request, sent_request: Request, attempt: int) -> Reply:
        if not self.limiter.try_enter():
            await self.limiter.enter()
        try:
            async with self.process_slot:
                while self.budget.may_requests_in_flight_reach_limit():
                    await self.budget.wait_for_request_end()
                # Checked only now: while this request waited, the state may have changed.
                if self.stop and (attempt or request.purpose == "case" or self.is_judging_stopped):
                    raise Stopped(str(self.stop.reason))
                start = clock.monotonic()
                self.budget.begin_request()
                task = self._deadlines.start_timeout()
                try:
                    reply = await self.provider.ask(sent_request)
                except RateLimited as error:
                    self.limiter.apply_rate_limit(error.retry_after)
                    raise
                except ProviderError as error:
                    if error.transient:
                        self.limiter.pause_growth()
                    raise
                except PramanaError:
                    raise
                except asyncio.CancelledError:
                    if self._deadlines.has_expired(task):
                        self.limiter.pause_growth()
                        late = f"no complete reply from {self.target.typed} within {self.timeout_s:g} s"
                        raise Unavailable(late) from None
                    if not task.cancelling():
                        raise ProviderError(f"the provider {self.target.provider} cancelled the request") from None
                    raise
                except (KeyboardInterrupt, GeneratorExit):
                    raise
                except BaseException as error:  # even an error that would end the process affects only this request
                    raise ProviderError(
                        f"the provider {self.target.provider} failed: {describe_exception(error)}"
                    ) from error
                finally:
                    self._deadlines.stop_timeout(task)
                    self.budget.end_request()  # no await in between: waiters go on after the reply was counted
                self.limiter.record_success()
        finally:
            self.limiter.leave()
        return self._account_for_reply(request, sent_request, reply, start)

    def _account_for_reply(self, request: Request, sent_request: Request, reply: Reply, started_at_s: float) -> Reply:
        """Return the reply with its cost and the parameters left out; add it to the budget and the cache."""
        if not self._is_provider_from_pramana:
            if wrong := describe_invalid_reply(reply):
                what = f"the provider {self.target.provider} returned an invalid reply: {wrong}"
                raise ProviderError(what)
            reply = replace(reply, usage=drop_invalid_token_counts(reply.usage))
        cost = reply.cost_usd if self._trusts_stated_cost else None
        if cost is None:
            cost = self.cost_of(self.target, reply.served_model, reply.usage)
        if cost != reply.cost_usd or not reply.total_s:
            reply = replace(reply, cost_usd=cost, total_s=reply.total_s or clock.monotonic() - started_at_s)
        if sent_request is not request or reply.dropped:
            left_out = request.parameters.keys() - sent_request.parameters.keys()
            reply = replace(reply, dropped=tuple(sorted({*reply.dropped, *left_out})))
            self.omitted_parameters.update(reply.dropped)
        self.budget.add_reply(reply)
        if self.cache:
            with suppress(Exception):  # a failed write is ignored
                self.cache.put(self.target, self.account_address, request, reply)
        return reply

    async def _wait_before_retry(self, attempt: int, error: ProviderError) -> None:
        longest = min(FIRST_RETRY_WAIT_S * 2 ** (attempt - 1), MAX_RETRY_WAIT_S)
        seconds = self.jitter.uniform(longest / 2, longest)
        if error.retry_after:
            if error.retry_after > MAX_RETRY_AFTER_S:
                raise OutOfCredit(
                    f"{error}; the provider asks to wait {error.retry_after:,.0f} s: resume the run after that"
                )
            # After a rate limit the limiter already makes every request wait; this one need not wait twice.
            seconds = 0 if isinstance(error, RateLimited) else error.retry_after
        await self.stop.sleep(seconds)


async def ask_lines_in_turn(ask: Ask, request: Request, script: Sequence[Line]) -> Reply:
    """Send each line of a script after the answer to the previous one; return all answers as one reply."""
    turns, replies = list(request.turns[:-1]), []
    for line in script:
        turns.append(Turn("user", line.text))
        replies.append(await ask(replace(request, turns=tuple(turns))))
        turns.append(Turn("assistant", replies[-1].text))
    counts = [(each.usage.input_tokens, each.usage.output_tokens, each.usage.cached_tokens) for each in replies]
    costs = [each.cost_usd for each in replies]
    return replace(
        replies[-1],
        text="\n".join(each.text for each in replies),
        usage=Usage(*(None if None in column else sum(column) for column in zip(*counts, strict=True))),
        first_token_s=replies[0].first_token_s,
        total_s=sum(each.total_s for each in replies),
        raw=b"[" + b",".join(each.raw or b"null" for each in replies) + b"]",
        dropped=tuple(sorted({name for each in replies for name in each.dropped})),
        cost_usd=None if None in costs else sum(costs),
        cached=all(each.cached for each in replies),
        answers=tuple(each.text for each in replies),
        tool_calls=tuple(call for each in replies for call in each.tool_calls),
    )
