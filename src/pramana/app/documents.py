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
from pramana.errors import Hint, InvalidInput, NotFound, Problem, did_you_mean, quote
from pramana.load import LIBRARY
from pramana.load.problems import Problems, spelled
from pramana.load.scenario import (
    Located,
    Scenario,
    examine,
    parse_scenarios,
    read_bounded,
    read_scenarios,
    write_scenarios,
)
from pramana.store.scenarios import IdsExist, Imported, Mode
from pramana.store.store import Store

LONGEST_ID = 1_000
"""What an index of either store takes; the format itself sets no bound."""
LONGEST_MADE_ID = 60
_TOO_LONG = f"id must be {LONGEST_ID:,} characters or less to be kept"
_SET_HERE = frozenset(("createdAt", "created_at", "updatedAt", "updated_at"))
"""What an answer holds and a request need not: it may be sent back as it came."""


class Document(NamedTuple):
    """A YAML document that is to be kept."""

    name: str
    """Of its file; empty for one that was sent alone."""
    data: str | bytes


def read(data: str | bytes, problems: Problems, file: str = "") -> list[Located]:
    """Read a YAML document that is to be kept; what does not fit goes to `problems`."""
    found = parse_scenarios(data, problems, file) if isinstance(data, str) else read_scenarios(data, problems, file)
    for each in found:
        if len(each.id) > LONGEST_ID:
            problems.add(each.problem(_TOO_LONG))
    return found


def read_all(documents: Iterable[Document], problems: Problems) -> list[Located]:
    """Read documents that are to be kept together: an id stands once in all of them."""
    first: dict[str, Located] = {}
    for document in documents:
        for each in read(document.data, problems, document.name):
            before = first.setdefault(each.id, each)
            if before is not each:
                where = f"{before.file}:{before.at('id').line}"
                problems.add(
                    each.problem(f"id {quote(each.id)} is also used at {where}; only one of them can be stored")
                )
    return list(first.values())


def open_files(paths: Iterable[Path], problems: Problems) -> Iterator[Document]:
    """Yield files as documents; one that cannot be read goes to `problems`."""
    for path in paths:
        try:
            yield Document(str(path), read_bounded(path))
        except OSError as error:
            problems.add(Problem(f"cannot be read: {error.strerror}", file=str(path)))


def keep(store: Store, placed: Sequence[Located], mode: Mode, *, dry_run: bool = False) -> Imported:
    """Import scenarios, all or none; `IdsExist` has the places of ids that must not be there and are."""
    try:
        return store.scenarios.import_([each.scenario.plain() for each in placed], mode, dry_run=dry_run)
    except IdsExist as error:
        there = set(error.ids)
        places = [each.problem(f"id {quote(each.id)} exists already") for each in placed if each.id in there]
        raise IdsExist(error.ids, places) from None


def checked(values: Mapping[str, Any]) -> model.Scenario:
    """Return one scenario as a store keeps it, from a request; `InvalidInput` with everything that is wrong."""
    scenario, findings = examine({name: value for name, value in values.items() if name not in _SET_HERE})
    wrong = [Problem(each.message, spelled(each.path)) for each in findings if each.severity == "error"]
    if scenario is not None and len(scenario.id) > LONGEST_ID:
        wrong.append(Problem(_TOO_LONG, "id"))
    if scenario is None or wrong:
        raise InvalidInput.of(wrong)
    _refuse_what_no_file_holds(scenario)
    return scenario.plain()


def _refuse_what_no_file_holds(scenario: Scenario) -> None:
    """Refuse what an export could not give back: JSON nests deeper than our YAML may."""
    problems = Problems()
    read_back = parse_scenarios(write_scenarios([scenario]), problems)
    if problems.errors:
        raise InvalidInput.of([Problem(f"no YAML file can hold it: {problems.kept[0].message}", "assert")])
    if [each.scenario for each in read_back] != [scenario]:
        raise InvalidInput.of([Problem("no YAML file can hold it as it is", "assert")])


def made_id(name: object) -> str:
    """Return an id made from a name.

    >>> made_id("Café  order: two!"), made_id("東京")
    ('cafe-order-two', 'scenario')
    """
    letters = unicodedata.normalize("NFKD", name if isinstance(name, str) else "").encode("ascii", "ignore").decode()
    return re.sub(r"[^a-z0-9]+", "-", letters.lower()).strip("-")[:LONGEST_MADE_ID].strip("-") or "scenario"


# ── The library ──


@cache
def library() -> Mapping[str, list[Located]]:
    """Return the scenarios of the built-in library by the paths of their files within it."""
    found = {}
    for path in sorted(LIBRARY.rglob("*.yaml")):
        name = path.relative_to(LIBRARY).as_posix()
        found[name] = read(path.read_bytes(), Problems(), name)
    return found


def from_library(files: Sequence[str] | None) -> list[Located]:
    """Return the scenarios of some files of the library; of all when none is named."""
    known = library()
    for each in files or ():
        if each not in known:
            raise NotFound(
                f"the library has no file {quote(each)}{did_you_mean(each, known)}", hint=Hint("list_library")
            )
    return [placed for each in dict.fromkeys(known if files is None else files) for placed in known[each]]
