"""Documents on their way in: what is wrong with each, alone and among the others, and where their ids stand.

They may have many megabytes. What looks through them runs in a thread, so that nobody else's page waits for it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pramana.app.scenarios import ScenarioFieldsView
from pramana.load.scenario import write_yaml
from pramana.model import Scenario
from pramana.show.web.kit.yaml_editor import Checked, as_lines

Place = tuple[int, int]
"""Line and column, from 1."""
Found = Sequence[tuple["Document", Sequence[dict[str, Any]]]]
"""Documents, each with all that is wrong with it."""


@dataclass(slots=True, eq=False)
class Document:
    """A document on its way in."""

    name: str
    checked: Checked
    _places: tuple[str, dict[str, Place]] = field(default=("", {}), init=False)
    """Of the ids in a text, and the text."""

    @property
    def text(self) -> str:
        return self.checked.text

    def place(self, scenario_id: str) -> dict[str, int]:
        """Return where an id stands; a text is looked through once, for all that stand in it."""
        of, found = self._places
        if of is not (text := self.text):
            self._places = _, found = text, places(text)
        line, column = found.get(scenario_id, (1, 1))
        return {"line": line, "column": column}


async def decoded(data: bytes) -> str:
    """Return the text of a file, with the line breaks an editor counts by."""
    return await asyncio.to_thread(lambda: as_lines(data.decode()))


async def joined(documents: Sequence[Document]) -> str:
    """Return one document with the scenarios of all."""
    return await asyncio.to_thread(_joined, documents)


def _joined(documents: Sequence[Document]) -> str:
    views = msgspec.convert(
        [scenario for each in documents for scenario in each.checked.read], list[ScenarioFieldsView]
    )
    return "".join(write_yaml([msgspec.convert(views, list[Scenario], from_attributes=True)]))


async def looked_through(documents: Sequence[Document]) -> Found:
    """Return all that is wrong with each document; of an id that stands in two, only one can be kept."""
    return await asyncio.to_thread(_look_through, documents)


def _look_through(documents: Sequence[Document]) -> Found:
    first: dict[str, Document] = {}
    found = []
    for document in documents:
        problems = list(document.checked.problems)
        for scenario in document.checked.read:
            earlier = first.setdefault(scenario["id"], document)
            if earlier is not document:
                said = f"id {scenario['id']} stands in {earlier.name} too; only one of them can be kept"
                problems.append({"message": said, "elsewhere": True, **document.place(scenario["id"])})
        found.append((document, problems))
    return found


def places(text: str) -> dict[str, Place]:
    """Return where each id first stands, as well as one can tell without reading YAML.

    >>> places("scenarios:\\n- id: a\\n- id: b\\n")
    {'a': (2, 3), 'b': (3, 3)}
    """
    found: dict[str, Place] = {}
    number, counted, at = 1, 0, text.find("id")
    while at >= 0:  # from one to the next, and never all lines at once: that would hold up every other thread
        start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        end = len(text) if end < 0 else end
        key, colon, value = text[start:end].partition(":")
        if colon and key.strip("- \t\"'") == "id":
            number, counted = number + text.count("\n", counted, start), start
            found.setdefault(value.partition(" #")[0].strip(" \t\"'"), (number, key.index("id") + 1))
        at = text.find("id", end)
    return found
