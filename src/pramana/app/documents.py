"""Prepare scenarios for a store: YAML documents, request fields or library files in, storable scenarios out.

Use cases and the command line share this module, so that both report the same errors with the same messages.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pramana import model
from pramana.errors import Hint, InvalidInput, NotFound, Problem, quote_text, suggest_similar
from pramana.load import BUILT_IN_SCENARIOS_FOLDER
from pramana.load.problems import Problems, format_path
from pramana.load.scenario import (
    LocatedScenario,
    Scenario,
    format_scenarios,
    parse_scenario_with_problems,
    parse_scenarios,
    read_bounded_file,
    read_scenarios,
)
from pramana.store.scenarios import ImportMode, ImportResult, ScenarioIdsExist
from pramana.store.store import Store

MAX_ID_LENGTH = 1_000
"""The limit of an index in SQLite and PostgreSQL; the format itself has none."""
MAX_GENERATED_ID_LENGTH = 60
_ID_TOO_LONG = f"id must have at most {MAX_ID_LENGTH:,} characters"
_SERVER_FIELDS = frozenset(("createdAt", "created_at", "updatedAt", "updated_at"))
"""Fields of a response that a request may omit; they are ignored, so a response can be sent back unchanged."""


class Document(NamedTuple):
    """A YAML document to import."""

    name: str
    """The name of its file; empty for one that was sent in a request."""
    data: str | bytes


def read_document(data: str | bytes, problems: Problems, file: str = "") -> list[LocatedScenario]:
    """Return the scenarios of a YAML document; errors are added to `problems`."""
    found = parse_scenarios(data, problems, file) if isinstance(data, str) else read_scenarios(data, problems, file)
    for each in found:
        if len(each.id) > MAX_ID_LENGTH:
            problems.add(each.make_problem(_ID_TOO_LONG))
    return found


def read_documents(documents: Iterable[Document], problems: Problems) -> list[LocatedScenario]:
    """Return the scenarios of several documents; an id used twice among them is a problem."""
    first: dict[str, LocatedScenario] = {}
    for document in documents:
        for each in read_document(document.data, problems, document.name):
            before = first.setdefault(each.id, each)
            if before is not each:
                where = f"{before.file}:{before.find_field_position('id').line}"
                problems.add(
                    each.make_problem(
                        f"id {quote_text(each.id)} is also used at {where}; only one of them can be stored"
                    )
                )
    return list(first.values())


def iterate_file_documents(paths: Iterable[Path], problems: Problems) -> Iterator[Document]:
    """Yield files as documents; a file that cannot be read is added to `problems`."""
    for path in paths:
        try:
            yield Document(str(path), read_bounded_file(path))
        except OSError as error:
            problems.add(Problem(f"cannot be read: {error.strerror}", file=str(path)))


def import_located_scenarios(
    store: Store, scenarios: Sequence[LocatedScenario], mode: ImportMode, *, dry_run: bool = False
) -> ImportResult:
    """Import scenarios, all or none; raises `ScenarioIdsExist` with the places of ids that already exist."""
    try:
        return store.scenarios.import_([each.scenario.to_model_scenario() for each in scenarios], mode, dry_run=dry_run)
    except ScenarioIdsExist as error:
        there = set(error.ids)
        places = [
            each.make_problem(f"id {quote_text(each.id)} already exists") for each in scenarios if each.id in there
        ]
        raise ScenarioIdsExist(error.ids, places) from None


def make_scenario_from_fields(values: Mapping[str, Any]) -> model.Scenario:
    """Return a storable scenario from the fields of a request; raises `InvalidInput` with all problems."""
    scenario, findings = parse_scenario_with_problems(
        {name: value for name, value in values.items() if name not in _SERVER_FIELDS}
    )
    wrong = [Problem(each.message, format_path(each.path)) for each in findings if each.severity == "error"]
    if scenario is not None and len(scenario.id) > MAX_ID_LENGTH:
        wrong.append(Problem(_ID_TOO_LONG, "id"))
    if scenario is None or wrong:
        raise InvalidInput.from_problems(wrong)
    _refuse_unexportable(scenario)
    return scenario.to_model_scenario()


def _refuse_unexportable(scenario: Scenario) -> None:
    """Refuse a scenario that an export could not reproduce: JSON may nest deeper than our YAML."""
    problems = Problems()
    read_back = parse_scenarios(format_scenarios([scenario]), problems)
    if problems.errors:
        raise InvalidInput.from_problems(
            [Problem(f"the scenario cannot be written as a YAML file: {problems.kept[0].message}", "assert")]
        )
    if [each.scenario for each in read_back] != [scenario]:
        raise InvalidInput.from_problems([Problem("the scenario cannot be written as a YAML file", "assert")])


def make_scenario_id(name: object) -> str:
    """Return an id made from a name.

    >>> make_scenario_id("Café  order: two!"), make_scenario_id("東京")
    ('cafe-order-two', 'scenario')
    """
    letters = unicodedata.normalize("NFKD", name if isinstance(name, str) else "").encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", letters.lower()).strip("-")[:MAX_GENERATED_ID_LENGTH].strip("-") or "scenario"


# ── The library ──


@cache
def read_library() -> Mapping[str, list[LocatedScenario]]:
    """Return the scenarios of the built-in library by the paths of their files within it."""
    found = {}
    for path in sorted(BUILT_IN_SCENARIOS_FOLDER.rglob("*.yaml")):
        name = path.relative_to(BUILT_IN_SCENARIOS_FOLDER).as_posix()
        found[name] = read_document(path.read_bytes(), Problems(), name)
    return found


def read_library_files(files: Sequence[str] | None) -> list[LocatedScenario]:
    """Return the scenarios of the named library files, or of all files."""
    known = read_library()
    for each in files or ():
        if each not in known:
            raise NotFound(
                f"the library has no file {quote_text(each)}{suggest_similar(each, known)}", hint=Hint("list_library")
            )
    return [placed for each in dict.fromkeys(known if files is None else files) for placed in known[each]]
