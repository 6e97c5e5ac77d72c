"""`/api/providers`: who may be asked under which name; keys go in, and never out."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Literal

from fastapi import APIRouter, Response
from pydantic import Field

from pramana import clock, settings
from pramana.app import App
from pramana.errors import InvalidInput, PramanaError, Problem, Unavailable, visible
from pramana.load.agent import parse_agent, plain
from pramana.load.problems import Problems
from pramana.model import Target
from pramana.providers.accounts import Accounts, Registered
from pramana.providers.destination import destination
from pramana.providers.kinds import CALLED, VARIABLES, WITHOUT_ACCOUNT
from pramana.providers.names import open_provider, resolve
from pramana.providers.registered import KINDS, LONGEST, checked
from pramana.providers.voice.description import Description
from pramana.providers.voice.vocabulary import Dial
from pramana.run.accounts import Reach, accounts_of
from pramana.show.api.envelope import Body, Detail, Shape, answer, as_detail, documented, refuse
from pramana.show.api.serving import Admin, Editor, Here, Viewer
from pramana.store.providers import Known

router = APIRouter(tags=["providers"])
PROBE_S = 20.0
LONGEST_KEY = 8_192
Kind = Literal[KINDS]  # type: ignore[valid-type] # one list for the program and its documentation


class Arguments(Shape):
    """What else is said of a provider."""

    model: str | None = Field(description="The one that is meant where the id stands alone")
    description: dict[str, Any] | None = Field(description="Of an agent of the kind websocket")


class ProviderShape(Shape):
    """A registered provider. Its key, nobody can show."""

    id: str
    kind: Kind
    base_url: str | None = Field(description="None: the vendor's own")
    arguments: Arguments
    key_set: bool
    created_at: str
    updated_at: str


class HealthyShape(Shape):
    """A provider that answered."""

    status: Literal["healthy"]
    latency_ms: float
    models: list[str] = Field(description="What it offers, where it says so")


class RotatedShape(Shape):
    """Keys that were locked anew."""

    rotated: int


class ArgumentsBody(Body):
    """What else is said of a provider."""

    model: str | None = Field(None, max_length=LONGEST)
    description: str | dict[str, Any] | None = Field(None, description="Of a WebSocket agent: YAML or JSON")


class ProviderBody(Body):
    """A provider to be registered."""

    id: str = Field(max_length=64, description="What is typed before the colon: id:MODEL")
    kind: str = Field(max_length=64, description=f"One of {', '.join(KINDS)}")
    base_url: str | None = Field(None, max_length=LONGEST)
    arguments: ArgumentsBody | None = None
    api_key: str | None = Field(None, min_length=1, max_length=LONGEST_KEY)


class ChangeBody(Body):
    """What changes; null takes something away, what is left out stays."""

    base_url: str | None = Field(None, max_length=LONGEST)
    arguments: ArgumentsBody | None = None
    api_key: str | None = Field(None, min_length=1, max_length=LONGEST_KEY)


class DescriptionBody(Body):
    """A description that is only looked at."""

    description: str | dict[str, Any]


class WorthShape(Shape):
    """What a description is worth."""

    valid: bool
    problems: list[Detail]


class ProbeBody(Body):
    """What to test it with."""

    model: str | None = Field(None, min_length=1, max_length=LONGEST)


def reach_of(serving: App) -> Reach:
    """Return whom a server may reach for those who use it."""
    return Reach(serving.store.providers.registered, for_others=True, allow_private=serving.private_addresses_allowed())


@router.get("/api/providers", summary="List providers", **documented(list[ProviderShape]))
def list_providers(here: Here, _: Viewer) -> Response:
    """Return every registered provider, by id; never a key.

    `meta.environment` says which keys of the server's own environment are set, by the name of the variable, and for
    which kinds they are; never a value.
    """
    return answer([_provider(each) for each in here.store.providers.list()], {"environment": _environment()})


@router.post("/api/providers", summary="Register a provider", **documented(ProviderShape, 409, status=201))
def create_provider(body: ProviderBody, here: Here, _: Admin) -> Response:
    """Register a provider under an id; its key is stored encrypted. Providers that run code cannot be registered."""
    said = body.arguments or ArgumentsBody(model=None, description=None)
    made = checked(
        body.id,
        body.kind,
        base_url=body.base_url,
        model=said.model,
        description=_described(said.description),
        has_key=body.api_key is not None,
    )
    return answer(_provider(here.store.providers.create(made, _checked_key(body.api_key))), status=201)


@router.post("/api/providers/rotate", summary="Lock all keys anew", **documented(RotatedShape))
def rotate_keys(here: Here, _: Admin) -> Response:
    """Lock every stored key anew by the newest key of PRAMANA_SECRET_KEY; the older ones can then be dropped."""
    return answer({"rotated": here.store.providers.rotate()})


@router.post("/api/providers/validate", summary="Check a description", **documented(WorthShape))
def validate_description(body: DescriptionBody, _: Viewer) -> Response:
    """Say what is wrong with the description of an agent, each problem at its line and column; nothing is kept."""
    problems = Problems()
    found = _parsed(body.description, problems)
    return answer({"valid": found is not None, "problems": [as_detail(each) for each in problems.kept]})


@router.get("/api/providers/{provider_id}", summary="Read a provider", **documented(ProviderShape, 404))
def read_provider(provider_id: str, here: Here, _: Viewer) -> Response:
    """Return one provider; never its key."""
    return answer(_provider(here.store.providers.read(provider_id)))


@router.patch("/api/providers/{provider_id}", summary="Change a provider", **documented(ProviderShape, 404))
def change_provider(provider_id: str, body: ChangeBody, here: Here, _: Admin) -> Response:
    """Change what is named. Runs that were made with it stay as they are."""
    named = body.model_fields_set
    if not named:
        raise InvalidInput("nothing is named that should change; send baseUrl, arguments or apiKey")
    said = body.arguments or ArgumentsBody(model=None, description=None)
    description = _described(said.description)

    def make(known: Known) -> Registered:
        made = checked(
            known.id,
            known.kind,
            base_url=body.base_url if "base_url" in named else known.base_url,
            model=said.model if "arguments" in named else known.model,
            description=description if "arguments" in named else known.description,
            has_key=body.api_key is not None if "api_key" in named else known.key_set,
        )
        if known.key_set and "api_key" not in named and _goes_to(made) != _goes_to(known):
            raise _wrong_key(
                "its address changes, and a key goes only to the address that it was given for; send apiKey as well, "
                "the same or a new one, or null for none"
            )
        return made

    key = _checked_key(body.api_key) if "api_key" in named else True
    return answer(_provider(here.store.providers.change(provider_id, make, key=key)))


@router.delete("/api/providers/{provider_id}", summary="Delete a provider", **documented(ProviderShape, 404))
def delete_provider(provider_id: str, here: Here, _: Admin) -> Response:
    """Forget a provider and its key; return what it was. Runs that were made with it stay as they are."""
    found = here.store.providers.read(provider_id)
    here.store.providers.delete(provider_id)
    return answer(_provider(found))


@router.post("/api/providers/{provider_id}/test", summary="Ask a provider", **documented(HealthyShape, 404))
def probe_provider(provider_id: str, here: Here, _: Editor, body: ProbeBody | None = None) -> Response:
    """Ask a provider what it offers, or call an agent and hang up: 200 when it answered, else 503 with the reason.

    An agent that is called needs a model, unless the provider has one.
    """
    reach = reach_of(here)
    known = here.store.providers.read(provider_id)
    target = _target(known, body.model if body else None, reach)
    began = clock.monotonic()
    try:
        models = asyncio.run(_probe(target, accounts_of(reach, PROBE_S)))
    except PramanaError as error:
        said = visible(str(error))
        taken = _since(began)
        detail = {"path": provider_id, "message": said, "latencyMs": taken}
        return refuse(503, said, code=error.code, details=[detail], latencyMs=taken)
    return answer({"status": "healthy", "latencyMs": _since(began), "models": models})


def _target(known: Known, model: str | None, reach: Reach) -> Target:
    wanted = model or known.model
    if wanted is None and known.kind in CALLED and known.kind not in ("openai-realtime", "gemini-live", "websocket"):
        raise InvalidInput("an agent that is called needs a model to be tested with; send model")
    if known.kind in WITHOUT_ACCOUNT or known.kind == "websocket":
        typed = f"{known.id}:{wanted}" if wanted else known.id
    else:
        typed = f"{known.id}:{wanted or 'any'}"
    return resolve(typed, registered=reach.registered)


async def _probe(target: Target, accounts: Accounts) -> list[str]:
    provider: Any = open_provider(target, accounts)
    try:
        async with asyncio.timeout(PROBE_S):
            if target.provider in CALLED and target.provider != "cascade" and target.model != "any":
                channel = await provider.dial(Dial(target.model))
                await channel.close()
                return []
            return sorted(map(str, await provider.models()))
    except TimeoutError:
        raise Unavailable(f"no answer within {PROBE_S:g} s") from None
    finally:
        await provider.close()


def _since(began: float) -> float:
    return round((clock.monotonic() - began) * 1000, 1)


def _described(given: str | dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the description of an agent as plain data; raises `InvalidInput` with every problem at its place."""
    if given is None:
        return None
    problems = Problems()
    found = _parsed(given, problems)
    if found is None:
        raise InvalidInput.of(problems.kept or [Problem("it does not fit", "description")], problems.errors)
    return plain(found)


def _parsed(given: str | dict[str, Any], problems: Problems) -> Description | None:
    return parse_agent(given if isinstance(given, str) else json.dumps(given), problems, "description")


def _checked_key(key: str | None) -> str | None:
    if key is not None and not (key.isascii() and key.isprintable() and key == key.strip()):
        raise _wrong_key("the key has a line break, a blank at its end or a letter that no key has; copy it again")
    return key


def _wrong_key(message: str) -> InvalidInput:
    return InvalidInput(message, [Problem(message, "apiKey")])


def _goes_to(one: Known | Registered) -> tuple[Any, ...]:
    """Return where a provider's key goes."""
    described: Mapping[str, Any] = one.description or {}
    where = destination(one.kind, one.base_url, one.description, one.model)
    return one.base_url, described.get("base_url"), described.get("url"), where


def _environment() -> list[dict[str, Any]]:
    """Return the variables that hold keys of those that need no registering, and whether each is set."""
    kinds: dict[str, list[str]] = {}
    for kind, known in VARIABLES.items():
        for variable in known.keys:
            kinds.setdefault(variable, []).append(kind)
    return [
        {"variable": name, "set": settings.variable(name) is not None, "kinds": some} for name, some in kinds.items()
    ]


def _provider(known: Known) -> dict[str, Any]:
    return {
        "id": known.id,
        "kind": known.kind,
        "baseUrl": known.base_url,
        "arguments": {"model": known.model, "description": known.description},
        "keySet": known.key_set,
        "createdAt": known.created,
        "updatedAt": known.updated,
    }
