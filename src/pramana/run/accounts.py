"""Who is asked, opened once: providers by target, limiters by account, and one budget and one stop for all of them.

Two ways into one account (a vendor's chat and its responses, a model and the judge) share its limiter, because the
provider counts them together. Whoever opens this as a context closes every provider with it.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, cast

from msgspec.structs import replace

from pramana import settings
from pramana.errors import InvalidInput, quote
from pramana.model import Embeds, Plan, Provider, Target
from pramana.providers.accounts import Accounts, CommandLine, Functions, Lookup
from pramana.providers.kinds import VARIABLES
from pramana.providers.names import is_called, open_provider
from pramana.providers.voice.cascade import Hearing, around
from pramana.providers.voice.embedded import CALLS_AT_ONCE, EmbeddedEars, PatientEars, machine
from pramana.providers.voice.vocabulary import Voice
from pramana.request import Limits
from pramana.run.asking import Asking, Budget, CostOf, Dictating, Embedding, Recognising, ReplyCache
from pramana.run.call import Patience, Stages
from pramana.run.calling import Calling, Calls
from pramana.run.engine import Stop
from pramana.run.limiter import Limiter
from pramana.run.speech import Keep

if TYPE_CHECKING:
    from pramana.providers.text.function import Function

BESIDE_A_CALL_S = 1800.0
"""For dialling, for what the caller says, and for storing it: a call keeps its own time, and this only ends a stuck
one."""
NEVER_CACHED = ("python", "command")
"""A function or a command of the user's may be another tomorrow, under the same name."""


def models_never_cached(plan: Plan) -> list[str]:
    """Return the models and the judge of a plan whose replies are never cached, as they were typed.

    >>> agent, fake = Target("python:shop:agent", "python", "shop:agent"), Target("fake:echo", "fake", "echo")
    >>> models_never_cached(Plan("cases", None, (agent, fake), 1))
    ['python:shop:agent']
    """
    judges = () if plan.judge is None else (plan.judge,)
    return list(dict.fromkeys(each.typed for each in (*plan.targets, *judges) if each.provider in NEVER_CACHED))


@dataclass(frozen=True, slots=True)
class Reach:
    """Whom a run may reach, and by whose word; a server allows less than the command line of one's own machine."""

    registered: Lookup | None = field(default=None, repr=False)
    """Where providers are looked up before the environment is: the store's."""
    for_others: bool = False
    """Whether others than this machine's user say who is asked: nothing that runs code here, no file of this machine,
    and no key of the environment to an address that was typed."""
    allow_private: bool = True
    """Whether what they name may be at a private address."""
    functions: Functions = field(default_factory=Functions, repr=False)
    """What a Python caller passed as models."""
    free_models_only: bool = False
    """Whether a scorer may ask only models that cost nothing."""


class OpenAccounts:
    """How each target is asked, within the limits."""

    def __init__(
        self,
        limits: Limits,
        budget: Budget,
        cost_of: CostOf,
        stop: Stop,
        reach: Reach,
        cache: ReplyCache | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._limits, self._budget, self._cost_of, self._stop = limits, budget, cost_of, stop
        self._cache, self._patience = cache, patience or Patience()
        self._stack = AsyncExitStack()
        # No time here: `Asking` keeps it, for every provider alike.
        self._sources = accounts_of(reach, None)
        self._providers: dict[tuple[str, str, str], Provider] = {}
        self._limiters: dict[tuple[str, str, str], Limiter] = {}
        self._askings: dict[str, Asking] = {}
        self._callings: dict[str, Calling] = {}
        self._recognitions: dict[str, Dictating] = {}
        self.stages = Stages()
        """Where the calls under way are, of all targets."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def asking(self, target: Target) -> Asking:
        """Return how a target is asked, opening its provider on first use."""
        if target.typed not in self._askings:
            cache = None if target.provider in NEVER_CACHED else self._cache
            asking = self._within_limits(target, self._provider(target), cache)
            if target.provider == "local":
                asking.place = machine.work
            self._askings[target.typed] = asking
        return self._askings[target.typed]

    def refuse_missing_parameters(self, target: Target, parameters: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` if the target is a function that requires a parameter that it would not be sent."""
        if target.provider == "python":
            cast("Function", self._provider(target)).refuse_missing(parameters)

    def embedding(self, target: Target) -> Asking:
        """Return how a target is asked for embeddings; they are never cached."""
        name = f"{target.typed} (embedder)"
        if name not in self._askings:
            embedding = Embedding(cast("Embeds", self._provider(target)))
            self._askings[name] = self._within_limits(target, embedding, None)
        return self._askings[name]

    def calling(self, target: Target, keep: Keep, stt: Target | None) -> Calling:
        """Return how a target is called: a voice agent itself, a text model with ears and a mouth around it."""
        name = f"{target.typed} (called)"
        if name not in self._callings:
            voice = self._voice(target)
            calls = Calls(
                voice,
                target.provider,
                keep,
                self._hearing(stt, PatientEars()),
                self._patience,
                stages=self.stages,
            )
            asking = self._within_limits(target, calls, None, calls.patience.longest_s + BESIDE_A_CALL_S)
            if voice.capabilities.embedded:
                asking.limiter, asking.place = self._limiter(target, "embedded calls", 1), machine.alone
            else:
                asking.limiter, asking.place = self._limiter(target, "calls", CALLS_AT_ONCE), machine.call
            self._askings[name], self._callings[name] = asking, Calling(asking, calls)
        return self._callings[name]

    def ears(self, stt: Target | None) -> Hearing:
        """Return who hears what was recorded: the one that was named, then the embedded one."""
        return self._hearing(stt, EmbeddedEars("bench"))

    def _hearing(self, stt: Target | None, embedded: EmbeddedEars) -> Hearing:
        return Hearing(self._recognition(stt), embedded) if stt else Hearing(embedded)

    def _recognition(self, stt: Target) -> Dictating:
        if stt.typed not in self._recognitions:
            account = self._sources.account(stt)
            if account is None:
                raise InvalidInput(
                    f"{quote(stt.typed)} is not a speech-to-text model; name one of OpenAI or of a compatible server"
                )
            from pramana.providers.voice.speech import Recognition

            named = Recognition(account, stt.model, vendor=stt.provider)
            self._stack.push_async_callback(named.close)
            asking = self._within_limits(stt, Recognising(named), None)
            # Limits of its own: its troubles are not the agent's, and what it costs nobody counts.
            asking.limiter, asking.budget = self._limiter(stt, "recognition"), Budget()
            self._askings[f"{stt.typed} (stt)"] = asking
            self._recognitions[stt.typed] = Dictating(named, asking)
        return self._recognitions[stt.typed]

    def understands(self, target: Target, language: str) -> bool:
        """Tell whether a target that is called understands a language, as far as it says."""
        return self._voice(target).capabilities.covers(language)

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

    def _voice(self, target: Target) -> Voice:
        opened: Any = self._provider(target)
        voice: Voice = opened if is_called(target) else around(opened)
        return voice

    def _within_limits(
        self,
        target: Target,
        provider: Provider | Embedding | Recognising,
        cache: ReplyCache | None,
        timeout_s: float | None = None,
    ) -> Asking:
        return Asking(
            target,
            provider,
            self._limiter(target),
            self._budget,
            self._cost_of,
            cache,
            self._stop,
            self._limits.timeout_s if timeout_s is None else timeout_s,
            self._where(target),
        )

    def _provider(self, target: Target) -> Provider:
        # What has an account serves all of its models; a function, or an installed provider, may be one model only.
        of_one_model = "" if target.provider in VARIABLES else target.model
        key = (target.provider, of_one_model, str(sorted(target.arguments.items())))
        if key not in self._providers:
            shared_machine = target.provider == "local" and settings.in_ci()
            opened = replace(target, arguments={**target.arguments, "threads": 1}) if shared_machine else target
            provider = open_provider(opened, self._sources)
            self._stack.push_async_callback(provider.close)
            self._providers[key] = provider
        return self._providers[key]

    def _limiter(self, target: Target, what: str = "requests", most: int | None = None) -> Limiter:
        account = self._sources.account(target)
        who = (account.base_url, str(account.variable)) if account else (target.provider, str(target.arguments))
        key = (*who, what)
        if key not in self._limiters:
            ceiling = min(self._limits.concurrency, most or self._limits.concurrency)
            limiter = Limiter(1 if target.provider in ("local", "local-voice") else ceiling)
            self._stop.then(limiter.hurry)
            self._limiters[key] = limiter
        return self._limiters[key]

    def _where(self, target: Target) -> str:
        account = self._sources.account(target)
        return account.base_url if account else ""


def accounts_of(reach: Reach, timeout_s: float | None) -> Accounts:
    """Return where keys and addresses come from: the store, then this machine's own settings."""
    return Accounts(
        settings.variable,
        timeout_s,
        {} if reach.for_others else commands(),
        reach.functions,
        code=not reach.for_others,
        proxy_for=settings.proxy_for,
        registered=reach.registered or (lambda _: None),
        allow_private=reach.allow_private,
        for_others=reach.for_others,
    )


def commands() -> dict[str, CommandLine]:
    """Return the commands of the local configuration."""
    return {
        name: CommandLine(tuple(stated["argv"]), float(stated.get("timeout_s", 120)))
        for name, stated in settings.commands().items()
    }
