"""Documents on their way in: what is wrong with each, alone and among the others.

They may have many megabytes. What looks through them runs in a thread, so that nobody else's page waits for it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pramana.errors import Problem
from pramana.show.web.kit.yaml_editor import Checked, as_lines


@dataclass(slots=True, eq=False)
class Document:
    """A document on its way in."""

    name: str
    checked: Checked

    @property
    def text(self) -> str:
        return self.checked.text


class Looked(NamedTuple):
    """A document, with what is wrong with it because of the others."""

    document: Document
    elsewhere: list[Problem]

    @property
    def problems(self) -> list[Problem]:
        """All that is wrong with it."""
        return [*self.document.checked.problems, *self.elsewhere]


async def decoded(data: bytes) -> str:
    """Return the text of a file, with the line breaks an editor counts by."""
    return await asyncio.to_thread(lambda: as_lines(data.decode()))


async def looked_through(documents: Sequence[Document]) -> list[Looked]:
    """Return what is wrong with each document; of an id that stands in two, only one can be kept."""
    return await asyncio.to_thread(_look_through, documents)


def _look_through(documents: Sequence[Document]) -> list[Looked]:
    first: dict[str, Document] = {}
    found = []
    for document in documents:
        elsewhere = []
        for each in document.checked.read:
            earlier = first.setdefault(each.scenario.id, document)
            if earlier is not document:
                said = f"id {each.scenario.id} stands in {earlier.name} too; only one of them can be kept"
                elsewhere.append(Problem(said, "id", each.line, each.column))
        found.append(Looked(document, elsewhere))
    return found
