"""Registered providers: list, add, change, test and delete them. Keys are accepted and never returned."""

import asyncio
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct, to_builtins

from pramana import clock, settings
from pramana.app import App, User, use_case
from pramana.app.views import View
from pramana.errors import InvalidInput, PramanaError, Problem, Unavailable
from pramana.load.agent import parse_agent
from pramana.load.problems import Problems
from pramana.model import Target
from pramana.providers.accounts import Accounts, RegisteredProvider, find_key_destination
from pramana.providers.kinds import KINDS_WITHOUT_ACCOUNT, VARIABLES_BY_KIND, VOICE_AGENT_KINDS_WITH_ACCOUNT
from pramana.providers.names import REGISTRABLE_KINDS, check_provider_registration, open_provider, resolve_target
from pramana.providers.voice.description import Description
from pramana.providers.voice.vocabulary import CallSetup
from pramana.run.accounts import ProviderAccess, make_accounts
from pramana.store.providers import StoredProvider

PROBE_TIMEOUT_S = 20.0
RegistrableKind = Literal[REGISTRABLE_KINDS]  # type: ignore[valid-type] # one list for the program and its documentation


class NewProvider(Struct, frozen=True, kw_only=True):
    """A provider to register."""

    id: str
    kind: str
    base_url: str | None = None
    model: str | None = None
    description: str | Mapping[str, Any] | None = None
    """The description of a WebSocket agent: YAML, JSON, or plain data."""
    api_key: str | None = None


class ProviderArgumentsView(View, frozen=True, kw_only=True):
    """Further settings of a provider."""

    model: Annotated[str | None, Meta(description="Model used if a run names only the provider")]
    description: Annotated[Mapping[str, Any] | None, Meta(description="Description of an agent of the kind websocket")]


class ProviderView(View, frozen=True, kw_only=True):
    """A registered provider, without its key."""

    id: str
    kind: RegistrableKind
    base_url: Annotated[str | None, Meta(description="Address of the server; null: the vendor's own address")]
    arguments: ProviderArgumentsView
    key_set: bool
    created_at: str
    updated_at: str


class VariableView(View, frozen=True, kw_only=True):
    """An environment variable of the server for a key, and the provider kinds that use it."""

    variable: str
    set: bool
    kinds: tuple[str, ...]


class ProbeResultView(View, frozen=True, kw_only=True):
    """A provider that answered."""

    status: Literal["healthy"]
    latency_ms: float
    models: Annotated[tuple[str, ...], Meta(description="Models that the provider lists, if it lists any")]


class ProviderList(NamedTuple):
    """All registered providers, by id, and the keys that the environment has."""

    items: list[ProviderView]
    environment: list[VariableView]


class CheckedDescription(NamedTuple):
    """Whether an agent description is valid, and its problems."""

    valid: bool
    problems: list[Problem]


class ProbeOutcome(NamedTuple):
    """The result of testing a provider: what it offers, or why the test failed."""

    latency_ms: float
    models: tuple[str, ...]
    failure: PramanaError | None = None


def make_server_reach(app: App) -> ProviderAccess:
    """Return which hosts and providers the server may reach for its users."""
    return ProviderAccess(
        app.store.providers.find_registered,
        is_for_other_users=True,
        allow_private_addresses=app.allows_private_addresses(),
    )


@use_case("viewer")
def list_providers(app: App, _: User) -> ProviderList:
    """Return all registered providers, and which keys are set in the server's environment; never a key."""
    return ProviderList([_provider_view(each) for each in app.store.providers.list()], _list_key_variable_views())


@use_case("viewer")
def read_provider(app: App, _: User, provider_id: str) -> ProviderView:
    """Return one provider; never its key."""
    return _provider_view(app.store.providers.read(provider_id))


@use_case("admin")
def create_provider(app: App, _: User, new: NewProvider) -> ProviderView:
    """Register a provider under an id; its key is stored encrypted. Providers that run code cannot be registered."""
    made = check_provider_registration(
        new.id,
        new.kind,
        base_url=new.base_url,
        model=new.model,
        description=_parse_description_fields(new.description),
        has_key=new.api_key is not None,
    )
    return _provider_view(app.store.providers.create(made, _check_api_key(new.api_key)))


@use_case("admin")
def change_provider(app: App, _: User, provider_id: str, changed: Mapping[str, Any]) -> ProviderView:
    """Change the given fields of `NewProvider`; None removes one. Runs made with the provider do not change."""
    if not changed:
        raise InvalidInput("nothing to change; send baseUrl, arguments or apiKey")
    said = {**changed, "description": _parse_description_fields(changed.get("description"))}
    keeps_key = "api_key" not in changed

    def make(known: StoredProvider) -> RegisteredProvider:
        stays = {
            name: said[name] if name in changed else getattr(known, name)
            for name in ("base_url", "model", "description")
        }
        has_key = known.key_set if keeps_key else changed["api_key"] is not None
        made = check_provider_registration(known.id, known.kind, **stays, has_key=has_key)
        if known.key_set and keeps_key and _list_key_destinations(made) != _list_key_destinations(known):
            raise _make_key_error(
                "this changes the address, and a key is only sent to the address that it was set for; also send "
                "apiKey: the same key, a new one, or null for none"
            )
        return made

    key = True if keeps_key else _check_api_key(changed["api_key"])
    return _provider_view(app.store.providers.change(provider_id, make, key=key))


@use_case("admin")
def delete_provider(app: App, _: User, provider_id: str) -> ProviderView:
    """Delete a provider and its key, and return its last state. Runs made with it do not change."""
    found = app.store.providers.read(provider_id)
    app.store.providers.delete(provider_id)
    return _provider_view(found)


@use_case("admin")
def reencrypt_provider_keys(app: App, _: User) -> int:
    """Re-encrypt every stored key with the newest key of PRAMANA_SECRET_KEY; return how many there are."""
    return app.store.providers.reencrypt_keys()


@use_case("viewer")
def check_agent_description(_app: App, _: User, description: str | Mapping[str, Any]) -> CheckedDescription:
    """Return the problems of an agent description, each with its line and column; nothing is stored."""
    problems = Problems()
    found = _parse_description(description, problems)
    return CheckedDescription(found is not None, problems.kept)


@use_case("editor", "network")
def probe_provider(app: App, _: User, provider_id: str, model: str | None = None) -> ProbeOutcome:
    """Request a provider's list of models, or call an agent and hang up.

    To call an agent, give a model unless the provider has one.
    """
    reach = make_server_reach(app)
    target = _resolve_probe_target(app.store.providers.read(provider_id), model, reach)
    began = clock.monotonic()
    try:
        models, failure = asyncio.run(_request_models_or_call(target, make_accounts(reach, PROBE_TIMEOUT_S))), None
    except PramanaError as error:
        models, failure = [], error
    return ProbeOutcome(round((clock.monotonic() - began) * 1000, 1), tuple(models), failure)


# ── Adding and changing ──


def _parse_description_fields(description: str | Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return an agent description as plain data; raises `InvalidInput` with every problem and its place."""
    if description is None:
        return None
    problems = Problems()
    found = _parse_description(description, problems)
    if found is None:
        raise InvalidInput.from_problems(problems.kept or [Problem("it does not fit", "description")], problems.errors)
    described: dict[str, Any] = to_builtins(found)
    return described


def _parse_description(description: str | Mapping[str, Any], problems: Problems) -> Description | None:
    return parse_agent(
        description if isinstance(description, str) else json.dumps(description), problems, "description"
    )


def _check_api_key(key: str | None) -> str | None:
    if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
        raise _make_key_error(
            "the key contains a line break, a trailing space or another invalid character; copy it again"
        )
    return key


def _make_key_error(message: str) -> InvalidInput:
    return InvalidInput(message, [Problem(message, "apiKey")])


def _list_key_destinations(provider: StoredProvider | RegisteredProvider) -> tuple[Any, ...]:
    """Return the destination to which a provider's key is sent."""
    described: Mapping[str, Any] = provider.description or {}
    where = find_key_destination(provider.kind, provider.base_url, provider.description, provider.model)
    return provider.base_url, described.get("base_url"), described.get("url"), where


# ── Testing ──


def _resolve_probe_target(known: StoredProvider, model: str | None, reach: ProviderAccess) -> Target:
    wanted = model or known.model
    if (
        wanted is None
        and known.kind in VOICE_AGENT_KINDS_WITH_ACCOUNT
        and known.kind not in ("openai-realtime", "gemini-live", "websocket")
    ):
        raise InvalidInput("testing a voice agent needs a model; send model")
    if known.kind in KINDS_WITHOUT_ACCOUNT or known.kind == "websocket":
        typed = f"{known.id}:{wanted}" if wanted else known.id
    else:
        typed = f"{known.id}:{wanted or 'any'}"
    return resolve_target(typed, find_registered_provider=reach.find_registered_provider)


async def _request_models_or_call(target: Target, accounts: Accounts) -> list[str]:
    provider: Any = open_provider(target, accounts)
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            if (
                target.provider in VOICE_AGENT_KINDS_WITH_ACCOUNT
                and target.provider != "cascade"
                and target.model != "any"
            ):
                channel = await provider.dial(CallSetup(target.model))
                await channel.close()
                return []
            return sorted(map(str, await provider.models()))
    except TimeoutError:
        raise Unavailable(f"no answer within {PROBE_TIMEOUT_S:g} s") from None
    finally:
        await provider.close()


# ── Views ──


def _list_key_variable_views() -> list[VariableView]:
    """Return the environment variables for keys of providers that need no registration, and whether each is set."""
    kinds: dict[str, list[str]] = {}
    for kind, known in VARIABLES_BY_KIND.items():
        for variable in known.key_variables:
            kinds.setdefault(variable, []).append(kind)
    return [
        VariableView(variable=name, set=settings.read_variable(name) is not None, kinds=tuple(some))
        for name, some in kinds.items()
    ]


def _provider_view(known: StoredProvider) -> ProviderView:
    return ProviderView(
        id=known.id,
        kind=known.kind,
        base_url=known.base_url,
        arguments=ProviderArgumentsView(model=known.model, description=known.description),
        key_set=known.key_set,
        created_at=known.created,
        updated_at=known.updated,
    )
