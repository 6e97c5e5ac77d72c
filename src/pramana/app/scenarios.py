"""Scenarios: store and change them, import and export them as YAML, and import the built-in library."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from pramana.app import App, User, documents, use_case
from pramana.app.documents import Document
from pramana.app.views import ListPage, PageRequest, View
from pramana.errors import InvalidInput, Problem
from pramana.load.problems import Problems
from pramana.load.scenario import (
    FIELD_BY_CAMEL_CASE_KEY,
    LocatedScenario,
    ScenarioType,
    iterate_scenarios_yaml,
    pause_garbage_collector,
)
from pramana.model import Difficulty, Scenario, StatedAssertion
from pramana.request import PageNumber, PageSize, Selection
from pramana.store.scenarios import DeletedScenario, ImportMode, ImportResult, StoredScenario
from pramana.store.store import Store

MAX_FILTER_VALUES = 100
"""Most values of one filter."""
MAX_SEARCH_TEXT_CHARS = 1_000
MAX_NAME_CHARS, MAX_STEM_CHARS = 255, documents.MAX_ID_LENGTH - 10
_ANY = Meta(max_length=MAX_FILTER_VALUES, description="Any of these")


# ── Views ──


class ScenarioTurnView(View, frozen=True, kw_only=True):
    """What the caller says after the prompt."""

    say: str
    audio_url: str | None
    barge_in: Annotated[
        float | None,
        Meta(
            description="Seconds after the agent's answer becomes audible at which this turn begins; null: after the "
            "answer"
        ),
    ]
    assert_: Annotated[
        tuple[StatedAssertion, ...] | None, Meta(description="Checks, with the same fields as in suite files")
    ] = field(name="assert")
    reference: Annotated[str | None, Meta(description="The exact words that the agent must say in answer to this turn")]


class ScenarioFieldsView(View, frozen=True, kw_only=True):
    """The fields of a scenario."""

    id: str
    name: str
    type: ScenarioType
    prompt: str
    expected_outcome: str
    prompt_audio_url: str | None
    tags: tuple[str, ...]
    language: str
    difficulty: Difficulty
    assert_: Annotated[
        tuple[StatedAssertion, ...] | None, Meta(description="Checks, with the same fields as in suite files")
    ] = field(name="assert")
    reference: Annotated[
        str | None, Meta(description="The exact words that the agent must say in answer to the prompt")
    ]
    turns: tuple[ScenarioTurnView, ...] | None
    conditions: str | None


class ScenarioView(ScenarioFieldsView, frozen=True, kw_only=True):
    """A stored scenario."""

    created_at: str
    updated_at: str


class DeletedScenarioView(View, frozen=True, kw_only=True):
    """A deleted scenario that can be restored."""

    scenario: ScenarioView
    deleted_at: str
    restorable_until: str


class ImportedView(View, frozen=True, kw_only=True):
    """The result of an import."""

    imported: tuple[str, ...]
    updated: tuple[str, ...]
    skipped: tuple[str, ...]
    scenarios: Annotated[tuple[ScenarioView, ...], Meta(description="The imported or updated scenarios")]


class FacetsView(View, frozen=True, kw_only=True):
    """The number of scenarios for each value of a filter."""

    type: Mapping[str, int]
    difficulty: Mapping[str, int]
    language: Mapping[str, int]
    tag: Mapping[str, int]


class LibraryFileView(View, frozen=True, kw_only=True):
    """A file of the built-in library."""

    file: str
    ids: tuple[str, ...]
    languages: tuple[str, ...]
    imported: Annotated[int, Meta(description="Number of scenarios of this file that are already stored")]


# ── Requests ──


class ScenarioFilter(Struct, frozen=True, kw_only=True, rename="camel"):
    """Filters for scenarios, which are listed by id. Within one filter any value matches, except in `all_tags`."""

    id: Annotated[tuple[str, ...], _ANY] = ()
    type: Annotated[tuple[ScenarioType, ...], _ANY] = ()
    difficulty: Annotated[tuple[Difficulty, ...], _ANY] = ()
    language: Annotated[tuple[str, ...], _ANY] = ()
    tag: Annotated[
        tuple[str, ...],
        Meta(
            max_length=MAX_FILTER_VALUES,
            description="Any of these tags; a tag that ends in a colon matches every tag that starts with it: "
            "`domain:`",
        ),
    ] = ()
    all_tags: Annotated[
        tuple[str, ...],
        Meta(
            max_length=MAX_FILTER_VALUES,
            description="All of these tags; a tag that ends in a colon matches every tag that starts with it",
        ),
    ] = ()
    text: Annotated[
        str,
        Meta(
            max_length=MAX_SEARCH_TEXT_CHARS,
            description="Text in the ID, name, prompt or expected outcome, ignoring case",
        ),
    ] = ""

    def selection(self) -> Selection:
        """Return the filters as a `Selection`."""
        return Selection(
            ids=self.id,
            categories=self.type,
            difficulties=self.difficulty,
            languages=self.language,
            tags=self.tag,
            all_tags=self.all_tags,
            text=self.text,
        )


class ScenarioPage(ScenarioFilter, frozen=True, kw_only=True):
    """A page of the scenarios that match."""

    page: PageNumber = 1
    page_size: PageSize = 50


class LocatedValidScenario(NamedTuple):
    """A valid scenario of a document, and the place of its id."""

    scenario: Scenario
    line: int
    column: int


class DocumentValidation(NamedTuple):
    """The result of validating a document."""

    valid_scenarios: list[LocatedValidScenario]
    """Its valid scenarios."""
    problems: list[Problem]
    """Errors and warnings, in the order of their places."""


# ── Scenarios ──


@use_case("viewer")
def list_scenarios(app: App, _: User, wanted: ScenarioPage) -> ListPage[ScenarioView]:
    """Return a page of the scenarios that match, by id."""
    return scenario_views(app.store, wanted.selection(), (wanted.page - 1) * wanted.page_size, wanted.page_size)


@use_case("viewer")
def list_facets(app: App, _: User) -> FacetsView:
    """Return the number of scenarios per type, difficulty, language and tag."""
    return FacetsView(**app.store.scenarios.count_facets())


@use_case("viewer")
def read_scenario(app: App, _: User, scenario_id: str) -> ScenarioView:
    """Return a scenario."""
    return _scenario_view(app.store.scenarios.read(scenario_id))


@use_case("editor")
def create_scenario(app: App, _: User, fields: Mapping[str, Any]) -> ScenarioView:
    """Store a new scenario, from fields in the names of files or requests; a missing id is made from the name."""
    wish = fields.get("id") is None
    stated = {**fields, "id": documents.make_scenario_id(fields.get("name"))} if wish else fields
    return _scenario_view(app.store.scenarios.create(documents.make_scenario_from_fields(stated), may_rename=wish))


@use_case("editor")
def copy_scenario(app: App, _: User, scenario_id: str) -> ScenarioView:
    """Copy a scenario under the next free id."""
    found = msgspec.convert(app.store.scenarios.read(scenario_id), Scenario, from_attributes=True)
    name = f"{found.name[: MAX_NAME_CHARS - 7]} (copy)"
    copy = replace(found, id=f"{scenario_id[:MAX_STEM_CHARS]}-copy", name=name)
    return _scenario_view(app.store.scenarios.create(copy, may_rename=True))


@use_case("editor")
def change_scenario(
    app: App,
    _: User,
    scenario_id: str,
    fields: Mapping[str, Any],
    *,
    replace_whole_scenario: bool,
    seen_updated_at: str | None = None,
) -> ScenarioView:
    """Change the given fields of a scenario, where None restores a default; or, with `replace_whole_scenario`, all.

    With `seen_updated_at`, the time of the version that the caller read, change it only if that is still the stored
    version.
    """
    if fields.get("id", scenario_id) not in (None, scenario_id):
        raise InvalidInput("the ID of a scenario cannot be changed; create a new scenario and delete this one")
    stated = {**fields, "id": scenario_id}

    def apply_fields(before: Scenario) -> Scenario:
        named = {FIELD_BY_CAMEL_CASE_KEY.get(name, name) for name in stated}
        rest = {} if replace_whole_scenario else msgspec.to_builtins(before)
        return documents.make_scenario_from_fields(
            {name: value for name, value in rest.items() if name not in named} | stated
        )

    return _scenario_view(app.store.scenarios.change(scenario_id, apply_fields, unchanged_since=seen_updated_at))


@use_case("editor")
def delete_scenario(app: App, _: User, scenario_id: str) -> DeletedScenarioView:
    """Delete a scenario; it can be restored for a day."""
    return _deleted_view(app.store.scenarios.delete(scenario_id))


@use_case("editor")
def restore_scenario(app: App, _: User, scenario_id: str) -> ScenarioView:
    """Restore a scenario that was deleted within the last day."""
    return _scenario_view(app.store.scenarios.restore(scenario_id))


@use_case("viewer")
def list_deleted_scenarios(app: App, _: User, page_request: PageRequest) -> ListPage[DeletedScenarioView]:
    """Return the scenarios that can be restored, last deleted first."""
    found, total = app.store.scenarios.list_deleted(page_request.offset, page_request.page_size)
    return ListPage([_deleted_view(each) for each in found], total)


# ── Documents ──


@use_case("viewer")
def validate_document(app: App, _: User, data: str | bytes) -> DocumentValidation:
    """Return the valid scenarios of a YAML document and all of its problems, each with its place."""
    app.check_request_size(data)
    problems, read = Problems(), []
    for each in documents.read_document(data, problems):
        place = each.find_field_position("id")
        read.append(LocatedValidScenario(each.scenario.to_model_scenario(), place.line, place.column))
    return DocumentValidation(read, sorted(problems, key=lambda each: (each.line, each.column)))


@use_case("editor")
def import_documents(
    app: App, _: User, yaml_documents: Sequence[Document], mode: ImportMode = "skip", *, dry_run: bool = False
) -> ImportedView:
    """Import the scenarios of YAML documents, all or none; in a dry run, only return what would change.

    If an id already exists, `skip` keeps the stored scenario, `update` replaces all of it except its creation time, and
    `fail` refuses the whole import.
    """
    app.check_request_size(*(each.data for each in yaml_documents))
    problems = Problems()
    with pause_garbage_collector():
        placed = documents.read_documents(yaml_documents, problems)
        if problems.errors:
            wrong = InvalidInput.from_problems([each for each in problems if each.severity == "error"])
            raise InvalidInput("YAML validation failed", wrong.problems)
        return _import_scenarios(app, placed, mode, dry_run)


@use_case("viewer")
def export_scenarios(app: App, _: User, wanted: ScenarioFilter) -> Iterator[str]:
    """Return the matching scenarios as pieces of one YAML document, which imports to the same scenarios."""
    pieces = iterate_scenarios_yaml(app.store.scenarios.iterate_chunks(wanted.selection()))
    begun = [next(pieces), next(pieces)]  # raises at once if the store cannot be read
    return chain(begun, pieces)


# ── The library ──


@use_case("viewer")
def list_library(app: App, _: User) -> list[LibraryFileView]:
    """Return the files of the built-in library; none is in the store until it is imported."""
    files = documents.read_library()
    there = app.store.scenarios.find_existing([placed.id for some in files.values() for placed in some])
    return [
        LibraryFileView(
            file=file,
            ids=tuple(placed.id for placed in some),
            languages=tuple(sorted({placed.scenario.language for placed in some})),
            imported=sum(placed.id in there for placed in some),
        )
        for file, some in files.items()
    ]


@use_case("editor")
def import_library(
    app: App, _: User, files: Sequence[str] | None = None, mode: ImportMode = "skip", *, dry_run: bool = False
) -> ImportedView:
    """Import files of the built-in library, or all files if none is named, as `import_documents` does."""
    return _import_scenarios(app, documents.read_library_files(files), mode, dry_run)


# ── For the command line ──


def scenario_views(store: Store, wanted: Selection, offset: int, limit: int) -> ListPage[ScenarioView]:
    """Return a page of a store's scenarios that match, by id."""
    found, total = store.scenarios.read_page(wanted, offset, limit)
    return ListPage(msgspec.convert(found, list[ScenarioView], from_attributes=True), total)


def delete_scenarios(store: Store, ids: Sequence[str]) -> list[DeletedScenarioView]:
    """Delete scenarios, or none if an id is unknown; they can be restored for a day."""
    store.scenarios.require_existing(ids)
    return [_deleted_view(store.scenarios.delete(each)) for each in dict.fromkeys(ids)]


def restore_scenarios(store: Store, ids: Sequence[str]) -> list[ScenarioView]:
    """Restore scenarios that were deleted within the last day."""
    return [_scenario_view(store.scenarios.restore(each)) for each in dict.fromkeys(ids)]


# ── Shared parts ──


def _import_scenarios(app: App, scenarios: Sequence[LocatedScenario], mode: ImportMode, dry_run: bool) -> ImportedView:
    done: ImportResult = documents.import_located_scenarios(app.store, scenarios, mode, dry_run=dry_run)
    return msgspec.convert(done, ImportedView, from_attributes=True)


def _scenario_view(stored: StoredScenario) -> ScenarioView:
    return msgspec.convert(stored, ScenarioView, from_attributes=True)


def _deleted_view(deleted: DeletedScenario) -> DeletedScenarioView:
    return DeletedScenarioView(
        scenario=_scenario_view(deleted.scenario), deleted_at=deleted.deleted, restorable_until=deleted.restorable_until
    )
