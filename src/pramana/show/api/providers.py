"""`/api/providers`: who may be asked under which name; keys go in, and never out."""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import Field

from pramana.app import Credential, providers
from pramana.app.providers import HealthyView, NewProvider, ProviderView
from pramana.providers.names import KINDS, LONGEST
from pramana.show.api.envelope import (
    Body,
    Detail,
    Here,
    Shape,
    answer,
    as_detail,
    caller_of,
    documented,
    public_message,
    refuse,
)

router = APIRouter(tags=["providers"])
LONGEST_KEY = 8_192


class ArgumentsBody(Body):
    """What else is said of a provider."""

    model: str | None = Field(None, max_length=LONGEST)
    description: str | dict[str, Any] | None = Field(None, description="Of a WebSocket agent: YAML or JSON")


class ChangeBody(Body):
    """What changes; null takes something away, what is left out stays."""

    base_url: str | None = Field(None, max_length=LONGEST)
    arguments: ArgumentsBody | None = None
    api_key: str | None = Field(None, min_length=1, max_length=LONGEST_KEY)

    def stated(self) -> dict[str, Any]:
        """Return the fields that were sent; arguments are replaced as a whole."""
        found = {name: getattr(self, name) for name in self.model_fields_set}
        if "arguments" in found:
            arguments: ArgumentsBody | None = found.pop("arguments")
            found |= arguments.model_dump() if arguments else dict.fromkeys(ArgumentsBody.model_fields)
        return found


class ProviderBody(ChangeBody):
    """A provider to be registered."""

    id: str = Field(max_length=64, description="What is typed before the colon: id:MODEL")
    kind: str = Field(max_length=64, description=f"One of {', '.join(KINDS)}")


class DescriptionBody(Body):
    """A description that is only looked at."""

    description: str | dict[str, Any]


class WorthShape(Shape):
    """What a description is worth."""

    valid: bool
    problems: list[Detail]


class RotatedShape(Shape):
    """Keys that were locked anew."""

    rotated: int


class ProbeBody(Body):
    """What to test it with."""

    model: str | None = Field(None, min_length=1, max_length=LONGEST)


@router.get("/api/providers", summary="List providers", **documented(list[ProviderView]))
async def list_providers(here: Here, caller: Annotated[Credential, caller_of(providers.list_providers)]) -> Response:
    """Return every registered provider, by id; never a key.

    `meta.environment` says which keys of the server's own environment are set, by the name of the variable, and for
    which kinds they are; never a value.
    """
    found = await providers.list_providers(here, caller)
    return answer(found.items, {"environment": found.environment})


@router.post("/api/providers", summary="Register a provider", **documented(ProviderView, 409, status=201))
async def create_provider(
    body: ProviderBody, here: Here, caller: Annotated[Credential, caller_of(providers.create_provider)]
) -> Response:
    """Register a provider under an id; its key is stored encrypted. Providers that run code cannot be registered."""
    return answer(await providers.create_provider(here, caller, NewProvider(**body.stated())), status=201)


@router.post("/api/providers/rotate", summary="Lock all keys anew", **documented(RotatedShape))
async def rotate_keys(here: Here, caller: Annotated[Credential, caller_of(providers.rotate_keys)]) -> Response:
    """Lock every stored key anew by the newest key of PRAMANA_SECRET_KEY; the older ones can then be dropped."""
    return answer({"rotated": await providers.rotate_keys(here, caller)})


@router.post("/api/providers/validate", summary="Check a description", **documented(WorthShape))
async def validate_description(
    body: DescriptionBody, here: Here, caller: Annotated[Credential, caller_of(providers.check_description)]
) -> Response:
    """Say what is wrong with the description of an agent, each problem at its line and column; nothing is kept."""
    found = await providers.check_description(here, caller, body.description)
    return answer({"valid": found.valid, "problems": [as_detail(each) for each in found.problems]})


@router.get("/api/providers/{provider_id}", summary="Read a provider", **documented(ProviderView, 404))
async def read_provider(
    provider_id: str, here: Here, caller: Annotated[Credential, caller_of(providers.read_provider)]
) -> Response:
    """Return one provider; never its key."""
    return answer(await providers.read_provider(here, caller, provider_id))


@router.patch("/api/providers/{provider_id}", summary="Change a provider", **documented(ProviderView, 404))
async def change_provider(
    provider_id: str,
    body: ChangeBody,
    here: Here,
    caller: Annotated[Credential, caller_of(providers.change_provider)],
) -> Response:
    """Change what is named. Runs that were made with it stay as they are."""
    return answer(await providers.change_provider(here, caller, provider_id, body.stated()))


@router.delete("/api/providers/{provider_id}", summary="Delete a provider", **documented(ProviderView, 404))
async def delete_provider(
    provider_id: str, here: Here, caller: Annotated[Credential, caller_of(providers.delete_provider)]
) -> Response:
    """Forget a provider and its key; return what it was. Runs that were made with it stay as they are."""
    return answer(await providers.delete_provider(here, caller, provider_id))


@router.post("/api/providers/{provider_id}/test", summary="Ask a provider", **documented(HealthyView, 404))
async def probe_provider(
    provider_id: str,
    here: Here,
    caller: Annotated[Credential, caller_of(providers.probe_provider)],
    body: ProbeBody | None = None,
) -> Response:
    """Ask a provider what it offers, or call an agent and hang up: 200 when it answered, else 503 with the reason.

    An agent that is called needs a model, unless the provider has one.
    """
    found = await providers.probe_provider(here, caller, provider_id, body.model if body else None)
    if found.failure is None:
        return answer(HealthyView(status="healthy", latency_ms=found.latency_ms, models=found.models))
    said = public_message(found.failure)
    detail = {"path": provider_id, "message": said, "latencyMs": found.latency_ms}
    return refuse(503, said, code=found.failure.code, details=[detail], latencyMs=found.latency_ms)
