"""The providers of a run, each opened once: clients by target, limiters by account, one budget and one stop for all.

Two clients of one account (a vendor's chat and its responses API, a model and the judge) share its limiter, because the
provider counts them together. As a context manager, it closes every provider on exit.
"""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, cast

from msgspec.structs import replace

from pramana import settings
from pramana.errors import InvalidInput, quote_text
from pramana.model import EmbeddingProvider, Plan, Provider, Target
from pramana.providers.accounts import Accounts, CommandLine, FindRegistered, PassedFunctions
from pramana.providers.kinds import VARIABLES_BY_KIND
from pramana.providers.names import is_voice_agent, open_provider
from pramana.providers.prices import FUNCTION_KIND
from pramana.providers.voice.cascade import RecognitionByLanguage, make_embedded_cascade
from pramana.providers.voice.embedded import (
    MAX_CALLS_PER_PROCESS,
    BenchRecognition,
    EmbeddedRecognition,
    process_slots,
)
from pramana.providers.voice.vocabulary import VoiceProvider
from pramana.request import Limits
from pramana.run.asking import (
    Budget,
    CostFunction,
    EmbeddingAdapter,
    RecognitionAdapter,
    RecognitionClient,
    ReplyCache,
    TargetClient,
)
from pramana.run.call import Patience, StageCounter
from pramana.run.calling import CallProvider, VoiceClient
from pramana.run.engine import Stop
from pramana.run.limiter import Limiter
from pramana.run.speech import StoreBlob

if TYPE_CHECKING:
    from pramana.providers.text.function import FunctionProvider

STUCK_CALL_MARGIN_S = 1800.0
"""Added to the maximum length of a call, for dialling, what the caller says and storing it: a call limits its own time,
and this only ends a stuck one."""
UNCACHED_PROVIDERS = ("python", "command")
"""A user's function or command may change tomorrow under the same name."""


def find_uncached_models(plan: Plan) -> list[str]:
    """Return the models of a plan, judge included, whose replies are never cached, as typed.

    >>> agent, fake = Target("python:shop:agent", "python", "shop:agent"), Target("fake:echo", "fake", "echo")
    >>> find_uncached_models(Plan("cases", None, (agent, fake), 1))
    ['python:shop:agent']
    """
    return list(
        dict.fromkeys(each.typed for each in (*plan.targets, *plan.judges) if each.provider in UNCACHED_PROVIDERS)
    )


@dataclass(frozen=True, slots=True)
class ProviderAccess:
    """What a run may access; a server allows less than the command line on one's own machine."""

    find_registered_provider: FindRegistered | None = field(default=None, repr=False)
    """Looks up providers before the environment does: the store's."""
    is_for_other_users: bool = False
    """Whether other users than this machine's choose the models: then no code and no file of this machine is used, and
    no key of the environment is sent to a typed address."""
    allow_private_addresses: bool = True
    """Whether these users may name private addresses."""
    passed_functions: PassedFunctions = field(default_factory=PassedFunctions, repr=False)
    """The functions that a Python caller passed as models."""
    free_models_only: bool = False
    """Whether scorers may use only models that cost nothing."""

    def explain_unavailable_judge(self, judge: Target) -> str:
        """Return why a function of another program cannot judge, and what to do; empty for any other judge."""
        from pramana.providers.text.function import is_importable

        if (
            judge.provider != FUNCTION_KIND
            or is_importable(judge.model)
            or judge.model in self.passed_functions.models_by_path
        ):
            return ""
        return (
            f"{judge.typed} cannot judge: it exists only in the program that started the run; name another judge, "
            "or put the function in a module"
        )


class RunClients:
    """Clients for each target, within the run's limits."""

    def __init__(
        self,
        limits: Limits,
        budget: Budget,
        cost_of: CostFunction,
        stop: Stop,
        reach: ProviderAccess,
        cache: ReplyCache | None = None,
        patience: Patience | None = None,
        *,
        is_judging_stopped: bool = False,
    ) -> None:
        """Open clients; with `is_judging_stopped`, a stop also ends the calls of judges that have not begun."""
        self._is_judging_stopped = is_judging_stopped
        self._limits, self._budget, self._cost_of, self._stop = limits, budget, cost_of, stop
        self._cache, self._patience = cache, patience or Patience()
        self._stack = AsyncExitStack()
        # No timeout here: `TargetClient` enforces it, for every provider alike.
        self._sources = make_accounts(reach, None)
        self._providers: dict[tuple[str, str, str], Provider] = {}
        self._limiters: dict[tuple[str, str, str], Limiter] = {}
        self._target_clients: dict[str, TargetClient] = {}
        self._voice_clients: dict[str, VoiceClient] = {}
        self._recognitions: dict[str, RecognitionClient] = {}
        self.stages = StageCounter()
        """The stages of the calls in flight, of all targets."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def get_text_client(self, target: Target) -> TargetClient:
        """Return the text client of a target, opening its provider on first use."""
        if target.typed not in self._target_clients:
            cache = None if target.provider in UNCACHED_PROVIDERS else self._cache
            asking = self._make_target_client(target, self._open_provider(target), cache)
            if target.provider == "local":
                asking.process_slot = process_slots.engine_work
            self._target_clients[target.typed] = asking
        return self._target_clients[target.typed]

    def refuse_missing_parameters(self, target: Target, parameters: Mapping[str, Any]) -> None:
        """Raise `InvalidInput` if the target is a function with a required parameter that would not be sent."""
        if target.provider == "python":
            cast("FunctionProvider", self._open_provider(target)).refuse_missing_parameters(parameters)

    def get_embedding_client(self, target: Target) -> TargetClient:
        """Return the client for a target's embeddings, which are never cached."""
        name = f"{target.typed} (embedder)"
        if name not in self._target_clients:
            embedding = EmbeddingAdapter(cast("EmbeddingProvider", self._open_provider(target)))
            self._target_clients[name] = self._make_target_client(target, embedding, None)
        return self._target_clients[name]

    def get_voice_client(self, target: Target, store_blob: StoreBlob, stt: Target | None) -> VoiceClient:
        """Return the voice client of a target: a voice agent, or a text model with speech recognition and a voice."""
        name = f"{target.typed} (called)"
        if name not in self._voice_clients:
            voice = self._open_voice_provider(target)
            calls = CallProvider(
                voice,
                target.provider,
                store_blob,
                self._make_recognition_by_language(stt, BenchRecognition()),
                self._patience,
                stages=self.stages,
            )
            asking = self._make_target_client(target, calls, None, calls.patience.max_call_s + STUCK_CALL_MARGIN_S)
            if voice.capabilities.is_embedded:
                asking.limiter, asking.process_slot = (
                    self._get_limiter(target, "embedded calls", 1),
                    process_slots.embedded_call,
                )
            else:
                asking.limiter, asking.process_slot = (
                    self._get_limiter(target, "calls", MAX_CALLS_PER_PROCESS),
                    process_slots.call,
                )
            self._target_clients[name], self._voice_clients[name] = asking, VoiceClient(asking, calls)
        return self._voice_clients[name]

    def make_recording_recognition(self, stt: Target | None) -> RecognitionByLanguage:
        """Return the speech recognition of recordings: the named model, then the embedded one."""
        return self._make_recognition_by_language(stt, EmbeddedRecognition("bench"))

    def _make_recognition_by_language(self, stt: Target | None, embedded: EmbeddedRecognition) -> RecognitionByLanguage:
        return (
            RecognitionByLanguage(self._get_recognition_client(stt), embedded)
            if stt
            else RecognitionByLanguage(embedded)
        )

    def _get_recognition_client(self, stt: Target) -> RecognitionClient:
        if stt.typed not in self._recognitions:
            account = self._sources.find_account(stt)
            if account is None:
                raise InvalidInput(
                    f"{quote_text(stt.typed)} is not a speech-to-text model; name a speech-to-text model "
                    "of OpenAI or of a compatible server"
                )
            from pramana.providers.voice.speech import RecognitionEndpoint

            named = RecognitionEndpoint(account, stt.model, vendor=stt.provider)
            self._stack.push_async_callback(named.close)
            asking = self._make_target_client(stt, RecognitionAdapter(named), None)
            # Its own limits: its errors must not slow the agent, and its cost is not counted.
            asking.limiter, asking.budget = self._get_limiter(stt, "recognition"), Budget()
            self._target_clients[f"{stt.typed} (stt)"] = asking
            self._recognitions[stt.typed] = RecognitionClient(named, asking)
        return self._recognitions[stt.typed]

    def agent_understands_language(self, target: Target, language: str) -> bool:
        """Return whether a called target understands a language, as far as it states."""
        return self._open_voice_provider(target).capabilities.supports_language(language)

    def remaining_rate_limit_wait_s(self) -> float:
        """Return the seconds left until a provider's rate limit ends."""
        return max((limiter.remaining_rate_limit_wait_s() for limiter in self._limiters.values()), default=0.0)

    def make_request_statistics(self) -> dict[str, Any]:
        """Return notes for the run's record: how the limits changed, and how many retries there were."""
        return {
            "limits": {
                name: [[change.at_s, change.limit, change.cause] for change in asking.limiter.history]
                for name, asking in self._target_clients.items()
            },
            "retries": {name: asking.retry_count for name, asking in self._target_clients.items()},
        }

    def omitted_parameters(self) -> Mapping[str, list[str]]:
        """Return the parameters left out for each target, because it rejected them."""
        return {
            name: sorted(asking.omitted_parameters)
            for name, asking in self._target_clients.items()
            if asking.omitted_parameters
        }

    def _open_voice_provider(self, target: Target) -> VoiceProvider:
        opened: Any = self._open_provider(target)
        voice: VoiceProvider = opened if is_voice_agent(target) else make_embedded_cascade(opened)
        return voice

    def _make_target_client(
        self,
        target: Target,
        provider: Provider | EmbeddingAdapter | RecognitionAdapter,
        cache: ReplyCache | None,
        timeout_s: float | None = None,
    ) -> TargetClient:
        return TargetClient(
            target,
            provider,
            self._get_limiter(target),
            self._budget,
            self._cost_of,
            cache,
            self._stop,
            self._limits.timeout_s if timeout_s is None else timeout_s,
            self._find_account_address(target),
            is_judging_stopped=self._is_judging_stopped,
        )

    def _open_provider(self, target: Target) -> Provider:
        # A provider with an account serves all of its models; a function or a plugin may be one model only.
        of_one_model = "" if target.provider in VARIABLES_BY_KIND else target.model
        key = (target.provider, of_one_model, str(sorted(target.arguments.items())))
        if key not in self._providers:
            shared_machine = target.provider == "local" and settings.is_ci()
            opened = replace(target, arguments={**target.arguments, "threads": 1}) if shared_machine else target
            provider = open_provider(opened, self._sources)
            self._stack.push_async_callback(provider.close)
            self._providers[key] = provider
        return self._providers[key]

    def _get_limiter(
        self, target: Target, request_kind: str = "requests", max_concurrency: int | None = None
    ) -> Limiter:
        account = self._sources.find_account(target)
        who = (account.base_url, str(account.variable)) if account else (target.provider, str(target.arguments))
        key = (*who, request_kind)
        if key not in self._limiters:
            ceiling = min(self._limits.concurrency, max_concurrency or self._limits.concurrency)
            limiter = Limiter(1 if target.provider in ("local", "local-voice") else ceiling)
            self._stop.add_callback(limiter.stop_waiting_for_rate_limits)
            self._limiters[key] = limiter
        return self._limiters[key]

    def _find_account_address(self, target: Target) -> str:
        account = self._sources.find_account(target)
        return account.base_url if account else ""


def make_accounts(reach: ProviderAccess, timeout_s: float | None) -> Accounts:
    """Return the sources of keys and addresses: the store, then this machine's settings."""
    return Accounts(
        settings.read_variable,
        timeout_s,
        {} if reach.is_for_other_users else read_configured_commands(),
        reach.passed_functions,
        may_run_code=not reach.is_for_other_users,
        proxy_for=settings.find_proxy,
        find_registered_provider=reach.find_registered_provider or (lambda _: None),
        allow_private_addresses=reach.allow_private_addresses,
        is_for_other_users=reach.is_for_other_users,
    )


def read_configured_commands() -> dict[str, CommandLine]:
    """Return the commands of the local configuration file."""
    return {
        name: CommandLine(tuple(stated["argv"]), float(stated.get("timeout_s", 120)))
        for name, stated in settings.read_agent_command_settings().items()
    }
