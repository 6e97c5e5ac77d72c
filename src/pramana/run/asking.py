"""From a request to a reply, through every limit there is: cache, budget, limiter, retries, then the provider.

One `Asking` serves one provider account and is handed to cases and judges alike. Retries are bounded, typed and
jittered: what may pass is asked again, what cannot is not. A parameter the model rejects is left out from then on and
named in the reply. It never decides what an answer is worth.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from pramana.errors import PramanaError, ProviderError, RateLimited, Rejected
from pramana.model import Provider, Reply, Request, Target, Usage
from pramana.run.limiter import Limiter

ATTEMPTS = 6
FIRST_WAIT_S = 0.5
LONGEST_WAIT_S = 60.0
NEVER_DROPPED = ("max_tokens",)
"""Without it a reply may cost without end; whoever set it too high wants to know."""


class BudgetSpent(PramanaError):
    """The run may spend no more."""

    code = "budget_spent"
    exit_code = 3


@dataclass(slots=True)
class Budget:
    """What a whole run may spend; judges count as cases do."""

    max_cost_usd: float | None = None
    max_tokens: int | None = None
    cost_usd: float = 0.0
    tokens: int = 0
    unknown_cost: bool = False
    """Some reply's cost is unknown, so the sum is a lower bound."""

    def check(self) -> None:
        """Raise when nothing more may be asked."""
        if self.max_cost_usd is not None and self.cost_usd >= self.max_cost_usd:
            raise BudgetSpent(f"the run has cost ${self.cost_usd:.4f} and may cost ${self.max_cost_usd:g} (--max-cost)")
        if self.max_tokens is not None and self.tokens >= self.max_tokens:
            raise BudgetSpent(f"the run has used {self.tokens:,} tokens of {self.max_tokens:,} (--max-total-tokens)")

    def add(self, reply: Reply) -> None:
        if reply.cost_usd is None:
            self.unknown_cost = True
        else:
            self.cost_usd += reply.cost_usd
        self.tokens += (reply.usage.input_tokens or 0) + (reply.usage.output_tokens or 0)


class ReplyCache(Protocol):
    """Replies by what was asked."""

    def get(self, target: Target, request: Request) -> Reply | None: ...

    def put(self, target: Target, request: Request, reply: Reply) -> None: ...


CostOf = Callable[[Target, str | None, Usage], float | None]


@dataclass(slots=True)
class Asking:
    """Ask one target; implements `Ask`."""

    target: Target
    provider: Provider
    limiter: Limiter
    budget: Budget
    cost_of: CostOf
    cache: ReplyCache | None = None
    jitter: random.Random = field(default_factory=lambda: random.Random(42))
    dropped: dict[str, frozenset[str]] = field(default_factory=dict)
    """Of each model, the parameters it has rejected."""
    retries: int = 0

    async def __call__(self, request: Request) -> Reply:
        """Return the reply, or raise what could not be overcome."""
        if self.cache and (known := self.cache.get(self.target, request)):
            return known
        attempt = 0
        while True:
            self.budget.check()
            rejected = self.dropped.get(request.model, frozenset())
            asked = request
            if rejected:
                kept = {name: value for name, value in request.parameters.items() if name not in rejected}
                asked = replace(request, parameters=kept)
            try:
                return await self._once(request, asked)
            except Rejected as refusal:
                named = refusal.parameter or ""
                if named not in asked.parameters or named in NEVER_DROPPED:
                    raise
                self.dropped[request.model] = rejected | {named}
            except ProviderError as error:
                attempt += 1
                if not error.transient or attempt >= ATTEMPTS:
                    raise
                self.retries += 1
                await self._wait(attempt, error)

    async def _once(self, request: Request, asked: Request) -> Reply:
        async with self.limiter:
            start = time.perf_counter()
            try:
                reply = await self.provider.ask(asked)
            except RateLimited as error:
                self.limiter.rate_limited(error.retry_after)
                raise
            except ProviderError:
                self.limiter.troubled()
                raise
            self.limiter.succeeded()
        left_out = request.parameters.keys() - asked.parameters.keys()
        reply = replace(
            reply,
            cost_usd=self.cost_of(self.target, reply.served_model, reply.usage),
            dropped=tuple(sorted({*reply.dropped, *left_out})) if left_out or reply.dropped else (),
            total_s=reply.total_s or time.perf_counter() - start,
        )
        self.budget.add(reply)
        if self.cache:
            self.cache.put(self.target, request, reply)
        return reply

    async def _wait(self, attempt: int, error: ProviderError) -> None:
        if error.retry_after is not None:  # the limiter holds everyone back; this one need not wait twice
            await asyncio.sleep(0 if isinstance(error, RateLimited) else min(error.retry_after, LONGEST_WAIT_S))
            return
        longest = min(FIRST_WAIT_S * 2 ** (attempt - 1), LONGEST_WAIT_S)
        await asyncio.sleep(self.jitter.uniform(longest / 2, longest))
