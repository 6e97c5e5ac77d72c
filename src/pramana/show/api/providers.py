"""`/api/providers`: registered providers. Keys are accepted and never returned."""

from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import Field

from pramana.app import Credential, providers
from pramana.app.providers import NewProvider, ProbeResultView, ProviderView
from pramana.providers.names import MAX_ADDRESS_OR_MODEL_LENGTH, REGISTRABLE_KINDS
from pramana.show.api.envelope import (
    AppDependency,
    Body,
    Detail,
    DocumentedResponse,
    document_route,
    make_error_response,
    make_success_response,
    problem_to_detail,
    public_message,
    require_caller,
)

router = APIRouter(tags=["providers"])
MAX_KEY_LENGTH = 8_192


class ProviderArgumentsBody(Body):
    """Further settings of a provider."""

    model: str | None = Field(None, max_length=MAX_ADDRESS_OR_MODEL_LENGTH)
    description: str | dict[str, Any] | None = Field(
        None, description="Description of a WebSocket agent, as YAML or JSON"
    )


class ProviderChangeBody(Body):
    """The fields to change; null removes a value, fields left out stay as they are."""

    base_url: str | None = Field(None, max_length=MAX_ADDRESS_OR_MODEL_LENGTH)
    arguments: ProviderArgumentsBody | None = None
    api_key: str | None = Field(None, min_length=1, max_length=MAX_KEY_LENGTH)

    def sent_fields(self) -> dict[str, Any]:
        """Return the fields that were sent; arguments are replaced as a whole."""
        found = {name: getattr(self, name) for name in self.model_fields_set}
        if "arguments" in found:
            arguments: ProviderArgumentsBody | None = found.pop("arguments")
            found |= arguments.model_dump() if arguments else dict.fromkeys(ProviderArgumentsBody.model_fields)
        return found


class ProviderBody(ProviderChangeBody):
    """A provider to register."""

    id: str = Field(max_length=64, description="Name to type before the colon: id:MODEL")
    kind: str = Field(max_length=64, description=f"One of {', '.join(REGISTRABLE_KINDS)}")


class DescriptionBody(Body):
    """An agent description to validate."""

    description: str | dict[str, Any]


class DescriptionCheckShape(DocumentedResponse):
    """The result of validating an agent description."""

    valid: bool
    problems: list[Detail]


class RotatedShape(DocumentedResponse):
    """The number of re-encrypted keys."""

    rotated: int


class ProbeBody(Body):
    """The options of a provider test."""

    model: str | None = Field(None, min_length=1, max_length=MAX_ADDRESS_OR_MODEL_LENGTH)


@router.get("/api/providers", summary="List providers", **document_route(list[ProviderView]))
async def list_providers(
    app: AppDependency, caller: Annotated[Credential, require_caller(providers.list_providers)]
) -> Response:
    """Return all registered providers, by id; never a key.

    `meta.environment` lists the variables for keys in the server's environment, whether each is set, and the provider
    kinds that use it; never a value.
    """
    found = await providers.list_providers(app, caller)
    return make_success_response(found.items, {"environment": found.environment})


@router.post("/api/providers", summary="Register a provider", **document_route(ProviderView, 409, status=201))
async def create_provider(
    body: ProviderBody, app: AppDependency, caller: Annotated[Credential, require_caller(providers.create_provider)]
) -> Response:
    """Register a provider under an id; its key is stored encrypted. Providers that run code cannot be registered."""
    return make_success_response(
        await providers.create_provider(app, caller, NewProvider(**body.sent_fields())), status=201
    )


@router.post("/api/providers/rotate", summary="Re-encrypt all stored keys", **document_route(RotatedShape))
async def rotate_keys(
    app: AppDependency, caller: Annotated[Credential, require_caller(providers.reencrypt_provider_keys)]
) -> Response:
    """Re-encrypt every stored key with the newest key of PRAMANA_SECRET_KEY; the older ones can then be removed."""
    return make_success_response({"rotated": await providers.reencrypt_provider_keys(app, caller)})


@router.post("/api/providers/validate", summary="Check a description", **document_route(DescriptionCheckShape))
async def validate_description(
    body: DescriptionBody,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(providers.check_agent_description)],
) -> Response:
    """Return the problems of an agent description, each with its line and column; nothing is stored."""
    found = await providers.check_agent_description(app, caller, body.description)
    return make_success_response(
        {"valid": found.valid, "problems": [problem_to_detail(each) for each in found.problems]}
    )


@router.get("/api/providers/{provider_id}", summary="Read a provider", **document_route(ProviderView, 404))
async def read_provider(
    provider_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(providers.read_provider)]
) -> Response:
    """Return one provider; never its key."""
    return make_success_response(await providers.read_provider(app, caller, provider_id))


@router.patch("/api/providers/{provider_id}", summary="Change a provider", **document_route(ProviderView, 404))
async def change_provider(
    provider_id: str,
    body: ProviderChangeBody,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(providers.change_provider)],
) -> Response:
    """Change the given fields of a provider. Runs made with it do not change."""
    return make_success_response(await providers.change_provider(app, caller, provider_id, body.sent_fields()))


@router.delete("/api/providers/{provider_id}", summary="Delete a provider", **document_route(ProviderView, 404))
async def delete_provider(
    provider_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(providers.delete_provider)]
) -> Response:
    """Delete a provider and its key, and return its last state. Runs made with it do not change."""
    return make_success_response(await providers.delete_provider(app, caller, provider_id))


@router.post("/api/providers/{provider_id}/test", summary="Test a provider", **document_route(ProbeResultView, 404))
async def probe_provider(
    provider_id: str,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(providers.probe_provider)],
    body: ProbeBody | None = None,
) -> Response:
    """Test a provider: request its list of models, or call an agent and hang up. 200 on success, else 503.

    The 503 has the reason. To call an agent, give a model unless the provider has one.
    """
    found = await providers.probe_provider(app, caller, provider_id, body.model if body else None)
    if found.failure is None:
        return make_success_response(
            ProbeResultView(status="healthy", latency_ms=found.latency_ms, models=found.models)
        )
    said = public_message(found.failure)
    detail = {"path": provider_id, "message": said, "latencyMs": found.latency_ms}
    return make_error_response(503, said, code=found.failure.code, details=[detail], latencyMs=found.latency_ms)
