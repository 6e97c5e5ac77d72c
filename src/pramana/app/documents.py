"""Scenarios on their way into a store: documents read, requests checked, the built-in library offered.

Use cases and the command line share this, so that they refuse the same in the same words. What comes out are scenarios
as a store keeps them.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pramana import model
from pramana.errors import Hint, InvalidInput, NotFound, Problem, quote_text, suggest_similar
from pramana.load import LIBRARY
from pramana.load.problems import Problems, format_path
from pramana.load.scenario import (
    LocatedScenario,
    Scenario,
    examine_scenario,
    parse_scenarios,
    read_bounded_file,
    read_scenarios,
    write_scenarios,
)
from pramana.store.scenarios import ImportResult, Mode, ScenarioIdsExist
from pramana.store.store import Store

MAX_ID_LENGTH = 1_000
"""What an index of either store takes; the format itself sets no bound."""
MAX_GENERATED_ID_LENGTH = 60
_ID_TOO_LONG = f"id must be {MAX_ID_LENGTH:,} characters or less to be kept"
_SERVER_FIELDS = frozenset(("createdAt", "created_at", "updatedAt", "updated_at"))
"""What an answer holds and a request need not: it may be sent back as it came."""


class Document(NamedTuple):
    """A YAML document that is to be kept."""

    name: str
    """Of its file; empty for one that was sent alone."""
    data: str | bytes


def read_document(data: str | bytes, problems: Problems, file: str = "") -> list[LocatedScenario]:
    """Read a YAML document that is to be kept; what does not fit goes to `problems`."""
    found = parse_scenarios(data, problems, file) if isinstance(data, str) else read_scenarios(data, problems, file)
    for each in found:
        if len(each.id) > MAX_ID_LENGTH:
            problems.add(each.make_problem(_ID_TOO_LONG))
    return found


def read_documents(documents: Iterable[Document], problems: Problems) -> list[LocatedScenario]:
    """Read documents that are to be kept together: an id stands once in all of them."""
    first: dict[str, LocatedScenario] = {}
    for document in documents:
        for each in read_document(document.data, problems, document.name):
            before = first.setdefault(each.id, each)
            if before is not each:
                where = f"{before.file}:{before.place_of('id').line}"
                problems.add(
                    each.make_problem(
                        f"id {quote_text(each.id)} is also used at {where}; only one of them can be stored"
                    )
                )
    return list(first.values())


def open_files(paths: Iterable[Path], problems: Problems) -> Iterator[Document]:
    """Yield files as documents; one that cannot be read goes to `problems`."""
    for path in paths:
        try:
            yield Document(str(path), read_bounded_file(path))
        except OSError as error:
            problems.add(Problem(f"cannot be read: {error.strerror}", file=str(path)))


def import_located(
    store: Store, scenarios: Sequence[LocatedScenario], mode: Mode, *, dry_run: bool = False
) -> ImportResult:
    """Import scenarios, all or none; `ScenarioIdsExist` has the places of ids that must not be there and are."""
    try:
        return store.scenarios.import_([each.scenario.to_stored() for each in scenarios], mode, dry_run=dry_run)
    except ScenarioIdsExist as error:
        there = set(error.ids)
        places = [
            each.make_problem(f"id {quote_text(each.id)} exists already") for each in scenarios if each.id in there
        ]
        raise ScenarioIdsExist(error.ids, places) from None


def check_scenario_fields(values: Mapping[str, Any]) -> model.Scenario:
    """Return one scenario as a store keeps it, from a request; `InvalidInput` with everything that is wrong."""
    scenario, findings = examine_scenario({name: value for name, value in values.items() if name not in _SERVER_FIELDS})
    wrong = [Problem(each.message, format_path(each.path)) for each in findings if each.severity == "error"]
    if scenario is not None and len(scenario.id) > MAX_ID_LENGTH:
        wrong.append(Problem(_ID_TOO_LONG, "id"))
    if scenario is None or wrong:
        raise InvalidInput.from_problems(wrong)
    _refuse_unexportable(scenario)
    return scenario.to_stored()


def _refuse_unexportable(scenario: Scenario) -> None:
    """Refuse what an export could not give back: JSON nests deeper than our YAML may."""
    problems = Problems()
    read_back = parse_scenarios(write_scenarios([scenario]), problems)
    if problems.errors:
        raise InvalidInput.from_problems([Problem(f"no YAML file can hold it: {problems.kept[0].message}", "assert")])
    if [each.scenario for each in read_back] != [scenario]:
        raise InvalidInput.from_problems([Problem("no YAML file can hold it as it is", "assert")])


def make_id(name: object) -> str:
    """Return an id made from a name.

    >>> make_id("Café  order: two!"), make_id("東京")
    ('cafe-order-two', 'scenario')
    """
    letters = unicodedata.normalize("NFKD", name if isinstance(name, str) else "").encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", letters.lower()).strip("-")[:MAX_GENERATED_ID_LENGTH].strip("-") or "scenario"


# ── The library ──


@cache
def read_library() -> Mapping[str, list[LocatedScenario]]:
    """Return the scenarios of the built-in library by the paths of their files within it."""
    found = {}
    for path in sorted(LIBRARY.rglob("*.yaml")):
        name = path.relative_to(LIBRARY).as_posix()
        found[name] = read_document(path.read_bytes(), Problems(), name)
    return found


def read_library_files(files: Sequence[str] | None) -> list[LocatedScenario]:
    """Return the scenarios of some files of the library; of all when none is named."""
    known = read_library()
    for each in files or ():
        if each not in known:
            raise NotFound(
                f"the library has no file {quote_text(each)}{suggest_similar(each, known)}", hint=Hint("list_library")
            )
    return [placed for each in dict.fromkeys(known if files is None else files) for placed in known[each]]
