"""Who is asked, opened once: providers by target, limiters by account, and one budget and one stop for all of them.

Two ways into one account (a vendor's chat and its responses, a model and the judge) share its limiter, because the
provider counts them together. Whoever opens this as a context closes every provider with it.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, cast

from msgspec.structs import replace

from pramana import settings
from pramana.model import Embeds, Provider, Target
from pramana.providers.names import Accounts, CommandLine, open_provider
from pramana.run.asking import Asking, Budget, CostOf, Embedding, ReplyCache
from pramana.run.limiter import Limiter
from pramana.run.stop import Stop

NEVER_CACHED = ("python", "command")
"""A function or a command of the user's may be another tomorrow, under the same name."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may spend and how hard it may press; not part of the plan, so a resumed run may have others."""

    concurrency: int = 32
    """The ceiling of requests under way at one provider account."""
    max_cost_usd: float | None = None
    max_total_tokens: int | None = None
    deadline_s: float | None = None
    cache: ReplyCache | None = None
    timeout_s: float = 120.0
    """Of one request."""


class OpenAccounts:
    """How each target is asked, within the limits."""

    def __init__(self, limits: Limits, budget: Budget, cost_of: CostOf, stop: Stop) -> None:
        self._limits, self._budget, self._cost_of, self._stop = limits, budget, cost_of, stop
        self._stack = AsyncExitStack()
        # No time here: `Asking` keeps it, for every provider alike.
        self._sources = Accounts(settings.variable, None, commands(), proxy_for=settings.proxy_for)
        self._providers: dict[tuple[str, str], Provider] = {}
        self._limiters: dict[tuple[str, str], Limiter] = {}
        self._askings: dict[str, Asking] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def asking(self, target: Target) -> Asking:
        """Return how a target is asked, opening its provider on first use."""
        if target.typed not in self._askings:
            cache = None if target.provider in NEVER_CACHED else self._limits.cache
            self._askings[target.typed] = self._within_limits(target, self._provider(target), cache)
        return self._askings[target.typed]

    def embedding(self, target: Target) -> Asking:
        """Return how a target is asked for embeddings; they are never cached."""
        name = f"{target.typed} (embedder)"
        if name not in self._askings:
            embedding = Embedding(cast("Embeds", self._provider(target)))
            self._askings[name] = self._within_limits(target, embedding, None)
        return self._askings[name]

    def held_s(self) -> float:
        """Return for how many more seconds a provider wants nobody to ask."""
        return max((limiter.held_s() for limiter in self._limiters.values()), default=0.0)

    def notes(self) -> dict[str, Any]:
        """Return what happened, for the record: how the limits moved, and how often someone was asked again."""
        return {
            "limits": {
                name: [[change.at_s, change.limit, change.cause] for change in asking.limiter.history]
                for name, asking in self._askings.items()
            },
            "retries": {name: asking.retries for name, asking in self._askings.items()},
        }

    def left_out(self) -> Mapping[str, list[str]]:
        """Return, of each target, the parameters that it was asked without."""
        return {name: sorted(asking.left_out) for name, asking in self._askings.items() if asking.left_out}

    def _within_limits(self, target: Target, provider: Provider | Embedding, cache: ReplyCache | None) -> Asking:
        limiter = self._limiter(target)
        timeout_s, where = self._limits.timeout_s, self._where(target)
        return Asking(target, provider, limiter, self._budget, self._cost_of, cache, self._stop, timeout_s, where)

    def _provider(self, target: Target) -> Provider:
        key = (target.provider, str(sorted(target.arguments.items())))
        if key not in self._providers:
            shared_machine = target.provider == "local" and settings.in_ci()
            opened = replace(target, arguments={**target.arguments, "threads": 1}) if shared_machine else target
            provider = open_provider(opened, self._sources)
            self._stack.push_async_callback(provider.close)
            self._providers[key] = provider
        return self._providers[key]

    def _limiter(self, target: Target) -> Limiter:
        account = self._sources.account(target)
        key = (account.base_url, str(account.variable)) if account else (target.provider, str(target.arguments))
        if key not in self._limiters:
            limiter = Limiter(1 if target.provider == "local" else self._limits.concurrency)
            self._stop.then(limiter.hurry)
            self._limiters[key] = limiter
        return self._limiters[key]

    def _where(self, target: Target) -> str:
        account = self._sources.account(target)
        return account.base_url if account else ""


def commands() -> dict[str, CommandLine]:
    """Return the commands of the local configuration."""
    return {
        name: CommandLine(tuple(stated["argv"]), float(stated.get("timeout_s", 120)))
        for name, stated in settings.commands().items()
    }
