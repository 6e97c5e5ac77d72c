"""`/api/scenarios` and `/api/library`: scenarios kept, changed, imported from YAML and exported to it."""

from collections.abc import Mapping
from itertools import chain
from typing import Annotated, Any, NamedTuple, get_args

import msgspec
from fastapi import APIRouter, Depends, HTTPException, Query, Request, Response
from fastapi import Body as Sent
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import Field, ValidationError

from pramana import model
from pramana.app import App
from pramana.app.views import ScenarioFieldsView, ScenarioView
from pramana.errors import InvalidInput, Problem, did_you_mean, quote
from pramana.load.problems import Problems, one_of
from pramana.load.scenario import CAMEL_CASE, Scenario, ScenarioType, collector_paused, write_yaml
from pramana.model import Difficulty
from pramana.request import Selection
from pramana.show import scenarios as keeping
from pramana.show.api.envelope import (
    Body,
    Detail,
    PageNumber,
    PageSize,
    Shape,
    answer,
    as_detail,
    documented,
    page_meta,
    refuse,
)
from pramana.show.api.serving import Editor, Here, Viewer
from pramana.store.scenarios import Deleted, IdsExist, Imported, Mode, StoredScenario

router = APIRouter(tags=["scenarios"])

MOST_NAMED = 100
"""Of one kind of filter."""
LONGEST_TEXT = 1_000
_YAML = "application/yaml"
_YAML_KINDS = frozenset((_YAML, "application/x-yaml", "text/yaml", "text/x-yaml", "text/plain"))
_JSON_KINDS = frozenset(("", "application/json"))


# ── Shapes ──


class TurnShape(Shape):
    """What the caller says after the prompt."""

    say: str
    audio_url: str | None
    barge_in: float | None
    assert_: list[dict[str, Any]] | None = Field(alias="assert", description="In the names of suite files")
    reference: str | None


class FieldsShape(Shape):
    """What a scenario says."""

    id: str
    name: str
    type: ScenarioType
    prompt: str
    expected_outcome: str
    prompt_audio_url: str | None
    tags: list[str]
    language: str
    difficulty: Difficulty
    assert_: list[dict[str, Any]] | None = Field(alias="assert", description="In the names of suite files")
    reference: str | None
    turns: list[TurnShape] | None
    conditions: str | None


class ScenarioShape(FieldsShape):
    """A scenario that is kept."""

    created_at: str
    updated_at: str


class DeletedShape(Shape):
    """A scenario that can be restored."""

    scenario: ScenarioShape
    deleted_at: str
    restorable_until: str


class ImportedShape(Shape):
    """What an import did."""

    imported: list[str]
    updated: list[str]
    skipped: list[str]
    scenarios: list[ScenarioShape] = Field(description="Those that were imported or updated")


class ValidatedShape(Shape):
    """What a document is worth."""

    valid: bool
    scenarios: int = Field(description="How many of its scenarios are valid")
    problems: list[Detail] = Field(description="Errors, and warnings of what is valid all the same")
    read: list[FieldsShape] | None = Field(None, description="Those that are valid, where they were asked for")


class FacetsShape(Shape):
    """How many scenarios have what they can be chosen by."""

    type: dict[str, int]
    difficulty: dict[str, int]
    language: dict[str, int]
    tag: dict[str, int]


class LibraryShape(Shape):
    """A file of the built-in library."""

    file: str
    ids: list[str]
    languages: list[str]
    imported: int = Field(description="How many of its ids are in the store")


# ── What is sent ──


class YamlBody(Body):
    """A YAML document."""

    yaml: str = Field(description="VoiceBench scenarios, as in a file")


class ImportBody(YamlBody):
    """A YAML document to import."""

    mode: Mode | None = Field(None, description="What becomes of existing ids; skip when it is not said")
    dry_run: bool | None = Field(None, description="Only say what would change")


class LibraryBody(Body):
    """Which files of the library to import."""

    files: list[str] | None = Field(None, min_length=1, max_length=1_000, description="All when none is named")
    mode: Mode = "skip"
    dry_run: bool = False


class _Raw(NamedTuple):
    data: bytes
    is_yaml: bool


async def _raw(request: Request) -> _Raw:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _YAML_KINDS and kind not in _JSON_KINDS:
        raise HTTPException(415, f'send JSON ({{"yaml": …}}) as application/json, or the YAML itself as {_YAML}')
    return _Raw(await request.body(), kind in _YAML_KINDS)


def _body(model: type[YamlBody], raw: _Raw) -> Any:
    """Return what was sent as JSON; read here and not by the framework, which would do it on the event loop."""
    try:
        return model.model_validate_json(raw.data)
    except ValidationError as wrong:
        found = wrong.errors(include_url=False)
        if found[0]["type"] == "json_invalid":
            raise InvalidInput.of([Problem(f"this is no JSON: {found[0]['ctx']['error']}", "body")]) from None
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in found]) from None


def _either(model: type[YamlBody]) -> dict[str, Any]:
    """Return what a route says of a body that is JSON or YAML."""
    kinds = {"application/json": {"schema": _inlined(model.model_json_schema())}, _YAML: {"schema": {"type": "string"}}}
    return {"requestBody": {"required": True, "content": kinds}}


def _inlined(schema: Any, definitions: Mapping[str, Any] | None = None) -> Any:
    """Return a JSON Schema without references: where it is going to stand there is nothing to refer to."""
    if isinstance(schema, list):
        return [_inlined(each, definitions) for each in schema]
    if not isinstance(schema, dict):
        return schema
    known = schema.get("$defs", {}) if definitions is None else definitions
    if "$ref" in schema:
        return _inlined(known[schema["$ref"].rpartition("/")[2]], known)
    return {name: _inlined(each, known) for name, each in schema.items() if name != "$defs"}


def _scenario_body(*required: str) -> dict[str, Any]:
    """Return what a route says of a scenario that is sent: the rules of files, in camelCase."""
    schema = _inlined(Scenario.model_json_schema(by_alias=True))
    camel = {field: spelling for spelling, field in CAMEL_CASE.items()}
    schema["properties"] = {camel.get(name, name): each for name, each in schema["properties"].items()}
    schema["required"] = list(required)
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


_Fields = Annotated[dict[str, Any], Sent()]
_NEEDED = ("name", "type", "prompt", "expectedOutcome")
_Seen = Annotated[
    str | None,
    Query(alias="ifUpdatedAt", max_length=40, description="Only if its updatedAt is still this; else 409"),
]


_NAMED: dict[str, tuple[str, tuple[str, ...], str]] = {
    "id": ("ids", (), "Any of these"),
    "type": ("categories", get_args(ScenarioType), "Any of these"),
    "difficulty": ("difficulties", get_args(Difficulty), "Any of these"),
    "language": ("languages", (), "Any of these"),
    "tag": ("tags", (), "Any of these; a tag that ends in a colon stands for its branch: `domain:`"),
    "allTags": ("all_tags", (), "All of these, or one of each branch"),
}
_PAGES = {"page": (1, 1_000_000), "pageSize": (50, 500)}
"""What is usual, and the most: as of every list."""
_TEXT = "Has this in its id, name, prompt or expected outcome, in capitals or not"


def _wanted(request: Request) -> Selection:
    """Return which scenarios are wanted; read here, since the framework takes longer for the fields than the store."""
    query = request.query_params
    wanted: dict[str, Any] = {}
    for name, (field, known, _) in _NAMED.items():
        if name in query:
            values = query.getlist(name)
            if len(values) > MOST_NAMED:
                raise InvalidInput.of([Problem(f"at most {MOST_NAMED} can be named at once", name)])
            for each in values:
                if known and each not in known:
                    said = f"there is no {name} {quote(each)}{did_you_mean(each, known)}; expected {one_of(known)}"
                    raise InvalidInput.of([Problem(said, name)])
            wanted[field] = tuple(values)
    if (text := query.get("text", "")) and len(text) > LONGEST_TEXT:
        raise InvalidInput.of([Problem(f"a text to look for may have {LONGEST_TEXT:,} characters at most", "text")])
    return Selection(**wanted, text=text)


def _filtered(*, pages: bool = False) -> dict[str, Any]:
    """Return what a route says of its filters, and of its pages."""
    told: list[dict[str, Any]] = []
    for name, (_, known, meaning) in _NAMED.items():
        each = {"type": "string", **({"enum": list(known)} if known else {})}
        several = {"type": "array", "items": each, "maxItems": MOST_NAMED}
        told.append({"name": name, "in": "query", "description": meaning, "schema": several})
    text = {"type": "string", "maxLength": LONGEST_TEXT}
    told.append({"name": "text", "in": "query", "description": _TEXT, "schema": text})
    for name, (usual, most) in _PAGES.items() if pages else ():
        whole = {"type": "integer", "minimum": 1, "maximum": most, "default": usual}
        told.append({"name": name, "in": "query", "schema": whole})
    return {"parameters": told}


def _importing(*errors: int) -> dict[str, Any]:
    """Return what a route says of an import: 201 when it is done, 200 when it was only tried."""
    told = documented(ImportedShape, *errors, status=201, description="Done, also when every scenario was skipped")
    told["responses"][200] = {**told["responses"][201], "description": "What would change, of a dry run"}
    return told


# ── Lists; first, since they are asked for most ──


@router.get(
    "/api/scenarios", summary="List scenarios", openapi_extra=_filtered(pages=True), **documented(list[ScenarioShape])
)
def list_scenarios(request: Request, _: Viewer) -> Response:
    """Return a page of the scenarios that match, by id. Within one filter any value matches, but for `allTags`."""
    serving: App = request.app.state.serving
    page, size = _whole(request, "page"), _whole(request, "pageSize")
    found, total = serving.store.scenarios.page(_wanted(request), (page - 1) * size, size)
    return answer(_views(found), page_meta(page, size, total))


def _whole(request: Request, name: str) -> int:
    usual, most = _PAGES[name]
    stated = request.query_params.get(name)
    if stated is None:
        return usual
    if not (stated.isascii() and stated.isdigit() and len(stated) < 10 and 1 <= int(stated) <= most):
        raise InvalidInput.of([Problem(f"expected a whole number from 1 to {most:,}, found {quote(stated)}", name)])
    return int(stated)


# ── Documents; before the routes of one scenario, whose ids might be these words ──


@router.post(
    "/api/scenarios/validate",
    summary="Check a YAML document",
    openapi_extra=_either(YamlBody),
    **documented(ValidatedShape, 415),
)
def validate_scenarios(
    raw: Annotated[_Raw, Depends(_raw)],
    _: Viewer,
    read: Annotated[bool, Query(description="Also answer with the scenarios, as they were understood")] = False,
) -> Response:
    """Say whether a document could be imported, and everything that is wrong with it, each at its place."""
    problems = Problems()
    data = raw.data if raw.is_yaml else _body(YamlBody, raw).yaml
    placed = keeping.read(data, problems)
    details = [as_detail(each) for each in _sorted(problems)]
    found = {"valid": problems.errors == 0, "scenarios": len(placed), "problems": details}
    return answer({**found, "read": _read(keeping.plain(placed))} if read else found)


@router.post(
    "/api/scenarios/import",
    summary="Import a YAML document",
    openapi_extra=_either(ImportBody),
    **_importing(409, 415),
)
def import_scenarios(
    here: Here,
    _: Editor,
    raw: Annotated[_Raw, Depends(_raw)],
    mode: Annotated[Mode, Query(description="As in the body, for YAML that is sent as it is")] = "skip",
    dry_run: Annotated[bool, Query(alias="dryRun")] = False,
) -> Response:
    """Import the scenarios of a document, all or none; with `dryRun` only say, by 200, what would change.

    Of ids that exist already, `skip` leaves what is there, `update` replaces all of it but `createdAt`, and `fail`
    refuses the whole document.
    """
    problems = Problems()
    data: str | bytes = raw.data
    if not raw.is_yaml:
        body: ImportBody = _body(ImportBody, raw)
        data, mode = body.yaml, body.mode or mode
        dry_run = dry_run if body.dry_run is None else body.dry_run
    with collector_paused():
        placed = keeping.read(data, problems)
        if problems.errors:
            return refuse(400, "YAML validation failed", code=InvalidInput.code, details=_details(problems))
        return _import(here, placed, mode, dry_run=dry_run)


def _import(here: App, placed: list[keeping.Placed], mode: Mode, *, dry_run: bool) -> Response:
    try:
        done = here.store.scenarios.import_(keeping.plain(placed), mode, dry_run=dry_run)
    except IdsExist as error:
        there = keeping.existing(placed, error.ids)[: Problems().limit]
        return refuse(409, str(error), code=error.code, details=[as_detail(each) for each in there])
    return _imported(done, dry_run=dry_run)


def _imported(done: Imported, *, dry_run: bool) -> Response:
    data = {
        "imported": done.imported,
        "updated": done.updated,
        "skipped": done.skipped,
        "scenarios": _views(done.scenarios),
    }
    meta = {
        "totalParsed": len(done.imported) + len(done.updated) + len(done.skipped),
        "totalImported": len(done.imported),
        "totalUpdated": len(done.updated),
        "totalSkipped": len(done.skipped),
    }
    return answer(data, {**meta, "dryRun": True} if dry_run else meta, status=200 if dry_run else 201)


class _AsYaml(Response):
    media_type = _YAML


def _exporting() -> dict[str, Any]:
    told = documented(str)
    told["responses"][200] = {
        "description": "YAML that imports to the same",
        "content": {_YAML: {"schema": {"type": "object", "required": ["version", "scenarios"]}}},
    }
    return {**told, "response_class": _AsYaml}


@router.get("/api/scenarios/export", summary="Export as YAML", openapi_extra=_filtered(), **_exporting())
def export_scenarios(request: Request, here: Here, _: Viewer) -> Response:
    """Return the scenarios that are wanted as one YAML document, which imports to the same."""
    pieces = write_yaml(here.store.scenarios.chunks(_wanted(request)))
    begun = [next(pieces), next(pieces)]  # a store that cannot be read says so before anything is out
    disposition = {"Content-Disposition": 'attachment; filename="scenarios.yaml"'}
    return StreamingResponse(chain(begun, pieces), headers=disposition, media_type=_YAML)


# ── Scenarios ──


@router.post(
    "/api/scenarios",
    summary="Create a scenario",
    openapi_extra=_scenario_body(*_NEEDED),
    **documented(ScenarioShape, 409, status=201),
)
def create_scenario(body: _Fields, here: Here, _: Editor) -> Response:
    """Keep a new scenario; an id that is left out is made from the name."""
    wish = body.get("id") is None
    plain = keeping.checked({**body, "id": keeping.made_id(body.get("name"))} if wish else body)
    return answer(_view(here.store.scenarios.create(plain, wish=wish)), status=201)


@router.get("/api/scenarios/{scenario_id}", summary="Read a scenario", **documented(ScenarioShape, 404))
def read_scenario(scenario_id: str, here: Here, _: Viewer) -> Response:
    """Return a scenario."""
    return answer(_view(here.store.scenarios.read(scenario_id)))


@router.put(
    "/api/scenarios/{scenario_id}",
    summary="Replace a scenario",
    openapi_extra=_scenario_body(*_NEEDED),
    **documented(ScenarioShape, 404, 409),
)
def replace_scenario(scenario_id: str, body: _Fields, here: Here, _: Editor, seen: _Seen = None) -> Response:
    """Replace all of a scenario: what is left out gets its default."""
    _same_id(scenario_id, body)
    return _changed(here, scenario_id, {**body, "id": scenario_id}, seen, whole=True)


@router.patch(
    "/api/scenarios/{scenario_id}",
    summary="Change a scenario",
    openapi_extra=_scenario_body(),
    **documented(ScenarioShape, 404, 409),
)
def change_scenario(scenario_id: str, body: _Fields, here: Here, _: Editor, seen: _Seen = None) -> Response:
    """Change the fields that are named; null gives a field its default."""
    _same_id(scenario_id, body)
    return _changed(here, scenario_id, {**body, "id": scenario_id}, seen, whole=False)


def _changed(here: App, scenario_id: str, fields: dict[str, Any], seen: str | None, *, whole: bool) -> Response:
    def alter(before: model.Scenario) -> model.Scenario:
        named = {CAMEL_CASE.get(name, name) for name in fields}
        rest = {} if whole else msgspec.to_builtins(before)
        return keeping.checked({name: value for name, value in rest.items() if name not in named} | fields)

    as_written = seen and seen.replace(" ", "+")  # what a plus becomes in an address that nobody quoted
    return answer(_view(here.store.scenarios.change(scenario_id, alter, seen=as_written)))


def _same_id(scenario_id: str, body: Mapping[str, Any]) -> None:
    if body.get("id", scenario_id) not in (None, scenario_id):
        raise InvalidInput("the id of a scenario cannot be changed; create another one, and delete this")


@router.delete("/api/scenarios/{scenario_id}", summary="Delete a scenario", **documented(DeletedShape, 404))
def delete_scenario(scenario_id: str, here: Here, _: Editor) -> Response:
    """Delete a scenario; for a day it can be restored."""
    return answer(_deleted(here.store.scenarios.delete(scenario_id)))


@router.post(
    "/api/scenarios/{scenario_id}/restore",
    summary="Restore a deleted scenario",
    **documented(ScenarioShape, 404, 409),
)
def restore_scenario(scenario_id: str, here: Here, _: Editor) -> Response:
    """Bring back a scenario that was deleted within the last day."""
    return answer(_view(here.store.scenarios.restore(scenario_id)))


@router.get("/api/deleted-scenarios", summary="List deleted scenarios", **documented(list[DeletedShape]))
def list_deleted_scenarios(here: Here, _: Viewer, page: PageNumber = 1, page_size: PageSize = 50) -> Response:
    """Return what can be restored, what was deleted last first."""
    found, total = here.store.scenarios.deleted((page - 1) * page_size, page_size)
    return answer([_deleted(each) for each in found], page_meta(page, page_size, total))


@router.get("/api/scenario-facets", summary="What scenarios can be chosen by", **documented(FacetsShape))
def list_facets(here: Here, _: Viewer) -> Response:
    """Return how many of all scenarios have each type, difficulty, language and tag that there is."""
    return answer(here.store.scenarios.facets())


# ── The library ──


@router.get("/api/library", summary="List the built-in scenarios", **documented(list[LibraryShape]))
def list_library(here: Here, _: Viewer) -> Response:
    """Return the files of the built-in library; none of them is in the store before somebody imports it."""
    files = keeping.library().values()
    there = here.store.scenarios.which([placed.id for each in files for placed in each.placed])
    return answer(
        [
            {
                "file": each.file,
                "ids": [placed.id for placed in each.placed],
                "languages": sorted({placed.located.scenario.language for placed in each.placed}),
                "imported": sum(placed.id in there for placed in each.placed),
            }
            for each in files
        ]
    )


@router.post(
    "/api/library/import",
    summary="Import built-in scenarios",
    **_importing(404, 409),
)
def import_library(body: LibraryBody, here: Here, _: Editor) -> Response:
    """Import files of the built-in library, as by /api/scenarios/import."""
    return _import(here, keeping.from_library(body.files), body.mode, dry_run=body.dry_run)


# ── Parts of answers ──


def _view(scenario: StoredScenario) -> ScenarioView:
    return msgspec.convert(scenario, ScenarioView, from_attributes=True)


def _views(scenarios: list[StoredScenario]) -> list[ScenarioView]:
    return msgspec.convert(scenarios, list[ScenarioView], from_attributes=True)


def _read(scenarios: list[model.Scenario]) -> list[ScenarioFieldsView]:
    return msgspec.convert(scenarios, list[ScenarioFieldsView], from_attributes=True)


def _deleted(found: Deleted) -> dict[str, Any]:
    return {"scenario": _view(found.scenario), "deletedAt": found.deleted, "restorableUntil": found.until}


def _sorted(problems: Problems) -> list[Any]:
    return sorted(problems, key=lambda each: (each.line, each.column))


def _details(problems: Problems) -> list[dict[str, Any]]:
    return [as_detail(each) for each in _sorted(problems) if each.severity == "error"]
