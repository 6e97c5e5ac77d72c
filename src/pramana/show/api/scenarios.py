"""`/api/scenarios` and `/api/library`: store and change scenarios, import and export them as YAML."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi import Body as Sent
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import Field, ValidationError

from pramana.app import Credential, scenarios
from pramana.app.documents import Document
from pramana.app.scenarios import (
    DeletedScenarioView,
    FacetsView,
    ImportedView,
    LibraryFileView,
    ScenarioFieldsView,
    ScenarioFilter,
    ScenarioPage,
    ScenarioView,
)
from pramana.app.views import PageRequest
from pramana.errors import InvalidInput, Problem
from pramana.load.problems import MAX_ERRORS
from pramana.load.scenario import FIELD_BY_CAMEL_CASE_KEY, Scenario
from pramana.show.api.envelope import (
    AppDependency,
    Body,
    Detail,
    DocumentedResponse,
    PageNumber,
    PageSize,
    document_query,
    document_route,
    inline_references,
    make_documentation_model,
    make_page_meta,
    make_pramana_error_response,
    make_success_response,
    problem_to_detail,
    read_query,
    require_caller,
)
from pramana.store.scenarios import ImportMode, ScenarioIdsExist

router = APIRouter(tags=["scenarios"])

_YAML_MEDIA_TYPE = "application/yaml"
_YAML_MEDIA_TYPES = frozenset((_YAML_MEDIA_TYPE, "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain"))
_JSON_MEDIA_TYPES = frozenset(("", "application/json"))


if TYPE_CHECKING:
    _FieldsShape = DocumentedResponse
else:
    _FieldsShape = make_documentation_model(ScenarioFieldsView)


class ValidatedShape(DocumentedResponse):
    """The result of validating a document."""

    valid: bool
    scenarios: int = Field(description="Number of valid scenarios in the document")
    problems: list[Detail] = Field(description="Errors and warnings")
    read: list[_FieldsShape] | None = Field(None, description="The valid scenarios, if requested with `read`")


# ── Bodies ──


class YamlBody(Body):
    """A YAML document."""

    yaml: str = Field(description="VoiceBench scenarios, as in a file")


class ImportBody(YamlBody):
    """A YAML document to import."""

    mode: ImportMode | None = Field(None, description="Action for IDs that already exist; default: skip")
    dry_run: bool | None = Field(None, description="Only report what would change")


class LibraryBody(Body):
    """The files of the library to import."""

    files: list[str] | None = Field(
        None, min_length=1, max_length=1_000, description="Files to import; if omitted, all"
    )
    mode: ImportMode = "skip"
    dry_run: bool = False


class _RawBody(NamedTuple):
    data: bytes
    is_yaml: bool


async def _read_raw_body(request: Request) -> _RawBody:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _YAML_MEDIA_TYPES and kind not in _JSON_MEDIA_TYPES:
        raise HTTPException(
            415, f'send JSON ({{"yaml": …}}) as application/json, or the YAML itself as {_YAML_MEDIA_TYPE}'
        )
    return _RawBody(await request.body(), kind in _YAML_MEDIA_TYPES)


def _parse_body(body_type: type[YamlBody], raw: _RawBody) -> Any:
    """Return a JSON body; parsed here, since the framework would parse it on the event loop."""
    try:
        return body_type.model_validate_json(raw.data)
    except ValidationError as wrong:
        found = wrong.errors(include_url=False)
        if found[0]["type"] == "json_invalid":
            raise InvalidInput.from_problems([Problem(f"not valid JSON: {found[0]['ctx']['error']}", "body")]) from None
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in found]) from None


def _document_json_or_yaml_body(body_type: type[YamlBody]) -> dict[str, Any]:
    """Return the documentation of a body that is JSON or YAML."""
    kinds = {
        "application/json": {"schema": inline_references(body_type.model_json_schema())},
        _YAML_MEDIA_TYPE: {"schema": {"type": "string"}},
    }
    return {"requestBody": {"required": True, "content": kinds}}


def _document_scenario_body(*required_fields: str) -> dict[str, Any]:
    """Return the documentation of a scenario body: the rules of files, in camelCase."""
    schema = inline_references(Scenario.model_json_schema(by_alias=True))
    camel = {field: spelling for spelling, field in FIELD_BY_CAMEL_CASE_KEY.items()}
    schema["properties"] = {camel.get(name, name): each for name, each in schema["properties"].items()}
    schema["required"] = list(required_fields)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


_ScenarioFields = Annotated[dict[str, Any], Sent()]
_REQUIRED_FIELDS = ("name", "type", "prompt", "expectedOutcome")
_IfUpdatedAt = Annotated[
    str | None,
    Query(
        alias="ifUpdatedAt",
        max_length=40,
        description="Delete or change only if `updatedAt` still has this value; otherwise 409",
    ),
]


def _document_import(*error_statuses: int) -> dict[str, Any]:
    """Return the documentation of an import's responses: 201 if it was done, 200 for a dry run."""
    told = document_route(
        ImportedView,
        *error_statuses,
        status=201,
        description="The import is complete, even if every scenario was skipped",
    )
    told["responses"][200] = {**told["responses"][201], "description": "Changes that the import would make (dryRun)"}
    return told


# ── Lists; first, since they are requested most often ──


@router.get(
    "/api/scenarios",
    summary="List scenarios",
    openapi_extra=document_query(ScenarioPage),
    **document_route(list[ScenarioView]),
)
async def list_scenarios(
    request: Request, caller: Annotated[Credential, require_caller(scenarios.list_scenarios)]
) -> Response:
    """Return a page of the scenarios that match, by id. Within one filter any value matches, except in `allTags`."""
    wanted = read_query(ScenarioPage, request)
    found = await scenarios.list_scenarios(request.app.state.serving, caller, wanted)
    return make_success_response(found.items, make_page_meta(wanted.page, wanted.page_size, found.total))


# ── Documents; before the routes of one scenario, whose id might be one of these words ──


@router.post(
    "/api/scenarios/validate",
    summary="Check a YAML document",
    openapi_extra=_document_json_or_yaml_body(YamlBody),
    **document_route(ValidatedShape, 415),
)
async def validate_scenarios(
    raw: Annotated[_RawBody, Depends(_read_raw_body)],
    app: AppDependency,
    caller: Annotated[Credential, require_caller(scenarios.validate_document)],
    read: Annotated[bool, Query(description="Also return the scenarios as parsed")] = False,
) -> Response:
    """Return whether a document could be imported, and all of its problems, each with its place."""
    data = raw.data if raw.is_yaml else (await app.run_in_thread(lambda: _parse_body(YamlBody, raw))).yaml
    found = await scenarios.validate_document(app, caller, data)
    valid = not any(each.severity == "error" for each in found.problems)
    details = [problem_to_detail(each) for each in found.problems]
    said = {"valid": valid, "scenarios": len(found.valid_scenarios), "problems": details}
    understood = [each.scenario for each in found.valid_scenarios] if read else []
    views = msgspec.convert(understood, list[ScenarioFieldsView], from_attributes=True)
    return make_success_response({**said, "read": views} if read else said)


@router.post(
    "/api/scenarios/import",
    summary="Import a YAML document",
    openapi_extra=_document_json_or_yaml_body(ImportBody),
    **_document_import(409, 415),
)
async def import_scenarios(
    app: AppDependency,
    caller: Annotated[Credential, require_caller(scenarios.import_documents)],
    raw: Annotated[_RawBody, Depends(_read_raw_body)],
    mode: Annotated[
        ImportMode, Query(description="The same as in the JSON body, for requests that send YAML")
    ] = "skip",
    dry_run: Annotated[bool, Query(alias="dryRun")] = False,
) -> Response:
    """Import the scenarios of a document, all or none; with `dryRun`, only return what would change, with status 200.

    If an ID already exists, `skip` keeps the stored scenario, `update` replaces all of it except `createdAt`, and
    `fail` refuses the whole document.
    """
    data: str | bytes = raw.data
    if not raw.is_yaml:
        body: ImportBody = await app.run_in_thread(lambda: _parse_body(ImportBody, raw))
        data, mode = body.yaml, body.mode or mode
        dry_run = dry_run if body.dry_run is None else body.dry_run
    given = [Document("", data)]
    return await _import_response(
        scenarios.import_documents(app, caller, given, mode, dry_run=dry_run), dry_run=dry_run
    )


async def _import_response(importing: Awaitable[ImportedView], *, dry_run: bool) -> Response:
    try:
        done = await importing
    except (InvalidInput, ScenarioIdsExist) as error:
        return make_pramana_error_response(error, MAX_ERRORS)
    counts = {"imported": done.imported, "updated": done.updated, "skipped": done.skipped}
    meta: dict[str, Any] = {"totalParsed": sum(map(len, counts.values()))}
    meta |= {f"total{name.capitalize()}": len(ids) for name, ids in counts.items()}
    return make_success_response(done, {**meta, "dryRun": True} if dry_run else meta, status=200 if dry_run else 201)


class _YamlResponse(Response):
    media_type = _YAML_MEDIA_TYPE


@router.get(
    "/api/scenarios/export",
    summary="Export as YAML",
    openapi_extra=document_query(ScenarioFilter),
    **document_route(
        str,
        status_200={
            "description": "YAML that can be imported again unchanged",
            "content": {_YAML_MEDIA_TYPE: {"schema": {"type": "object", "required": ["version", "scenarios"]}}},
        },
    )
    | {"response_class": _YamlResponse},
)
async def export_scenarios(
    request: Request, app: AppDependency, caller: Annotated[Credential, require_caller(scenarios.export_scenarios)]
) -> Response:
    """Return the matching scenarios as one YAML document, which imports to the same scenarios."""
    pieces = await scenarios.export_scenarios(app, caller, read_query(ScenarioFilter, request))
    disposition = {"Content-Disposition": 'attachment; filename="scenarios.yaml"'}
    return StreamingResponse(pieces, headers=disposition, media_type=_YAML_MEDIA_TYPE)


# ── Scenarios ──


@router.post(
    "/api/scenarios",
    summary="Create a scenario",
    openapi_extra=_document_scenario_body(*_REQUIRED_FIELDS),
    **document_route(ScenarioView, 409, status=201),
)
async def create_scenario(
    body: _ScenarioFields, app: AppDependency, caller: Annotated[Credential, require_caller(scenarios.create_scenario)]
) -> Response:
    """Store a new scenario; a missing ID is made from the name."""
    return make_success_response(await scenarios.create_scenario(app, caller, body), status=201)


@router.get("/api/scenarios/{scenario_id}", summary="Read a scenario", **document_route(ScenarioView, 404))
async def read_scenario(
    scenario_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(scenarios.read_scenario)]
) -> Response:
    """Return a scenario."""
    return make_success_response(await scenarios.read_scenario(app, caller, scenario_id))


@router.put(
    "/api/scenarios/{scenario_id}",
    summary="Replace a scenario",
    openapi_extra=_document_scenario_body(*_REQUIRED_FIELDS),
    **document_route(ScenarioView, 404, 409),
)
async def replace_scenario(
    scenario_id: str,
    body: _ScenarioFields,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(scenarios.change_scenario)],
    seen_updated_at: _IfUpdatedAt = None,
) -> Response:
    """Replace a scenario; fields left out get their defaults."""
    return make_success_response(
        await scenarios.change_scenario(
            app,
            caller,
            scenario_id,
            body,
            replace_whole_scenario=True,
            seen_updated_at=_restore_plus_sign(seen_updated_at),
        )
    )


@router.patch(
    "/api/scenarios/{scenario_id}",
    summary="Change a scenario",
    openapi_extra=_document_scenario_body(),
    **document_route(ScenarioView, 404, 409),
)
async def change_scenario(
    scenario_id: str,
    body: _ScenarioFields,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(scenarios.change_scenario)],
    seen_updated_at: _IfUpdatedAt = None,
) -> Response:
    """Change the given fields of a scenario; null restores a default."""
    return make_success_response(
        await scenarios.change_scenario(
            app,
            caller,
            scenario_id,
            body,
            replace_whole_scenario=False,
            seen_updated_at=_restore_plus_sign(seen_updated_at),
        )
    )


def _restore_plus_sign(timestamp: str | None) -> str | None:
    return timestamp and timestamp.replace(" ", "+")  # an unquoted plus in a URL arrives as a space


@router.delete("/api/scenarios/{scenario_id}", summary="Delete a scenario", **document_route(DeletedScenarioView, 404))
async def delete_scenario(
    scenario_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(scenarios.delete_scenario)]
) -> Response:
    """Delete a scenario; it can be restored for a day."""
    return make_success_response(await scenarios.delete_scenario(app, caller, scenario_id))


@router.post(
    "/api/scenarios/{scenario_id}/restore",
    summary="Restore a deleted scenario",
    **document_route(ScenarioView, 404, 409),
)
async def restore_scenario(
    scenario_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(scenarios.restore_scenario)]
) -> Response:
    """Restore a scenario that was deleted within the last day."""
    return make_success_response(await scenarios.restore_scenario(app, caller, scenario_id))


@router.get("/api/deleted-scenarios", summary="List deleted scenarios", **document_route(list[DeletedScenarioView]))
async def list_deleted_scenarios(
    app: AppDependency,
    caller: Annotated[Credential, require_caller(scenarios.list_deleted_scenarios)],
    page: PageNumber = 1,
    page_size: PageSize = 50,
) -> Response:
    """Return the scenarios that can be restored, last deleted first."""
    found = await scenarios.list_deleted_scenarios(app, caller, PageRequest(page=page, page_size=page_size))
    return make_success_response(found.items, make_page_meta(page, page_size, found.total))


@router.get("/api/scenario-facets", summary="List filter values of scenarios", **document_route(FacetsView))
async def list_facets(
    app: AppDependency, caller: Annotated[Credential, require_caller(scenarios.list_facets)]
) -> Response:
    """Return the number of scenarios per type, difficulty, language and tag."""
    return make_success_response(await scenarios.list_facets(app, caller))


# ── The library ──


@router.get("/api/library", summary="List the built-in scenarios", **document_route(list[LibraryFileView]))
async def list_library(
    app: AppDependency, caller: Annotated[Credential, require_caller(scenarios.list_library)]
) -> Response:
    """Return the files of the built-in library; none is in the store until it is imported."""
    return make_success_response(await scenarios.list_library(app, caller))


@router.post(
    "/api/library/import",
    summary="Import built-in scenarios",
    **_document_import(404, 409),
)
async def import_library(
    body: LibraryBody, app: AppDependency, caller: Annotated[Credential, require_caller(scenarios.import_library)]
) -> Response:
    """Import files of the built-in library, as /api/scenarios/import does."""
    importing = scenarios.import_library(app, caller, body.files, body.mode, dry_run=body.dry_run)
    return await _import_response(importing, dry_run=body.dry_run)
