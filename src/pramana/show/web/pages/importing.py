"""Scenarios brought in from files, folders or the clipboard, with a preview of what would change.

Every document is checked before anything is imported. Then all of them are imported together, or none is. Whatever is
refused stays on the page as it was brought.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from msgspec.structs import asdict
from nicegui import ui

from pramana.analyse.numbers import counted as many
from pramana.app.documents import Document as Brought
from pramana.app.scenarios import ImportedView, ScenarioPage, import_documents, list_scenarios
from pramana.errors import Problem
from pramana.report.markup import Safe, foreign, join, link, marked, tag
from pramana.show.web.kit import Desk, Refused, frame, parts
from pramana.show.web.kit.forms import MOST_BYTES, Pick, picker
from pramana.show.web.kit.yaml_editor import LONGEST, Checked, YamlEditor, as_lines, check, counted, is_error, listed
from pramana.show.web.pages.scenarios import library, page_of
from pramana.store.scenarios import Mode

ENDINGS = (".yaml", ".yml")
MODES = {
    "skip": "Skip: import only new IDs",
    "update": "Replace the existing scenario; fields the file omits get their defaults",
    "fail": "Fail: import nothing if any ID exists",
}
NOTHING = tag("p", "Nothing yet: choose files, or paste a document.", class_="quiet")
MOST_SHOWN = 100
"""Of ids, and of what is wrong with a document."""
MOST_LISTED = 50
"""Of documents, each with its buttons; those with errors come first."""
PASTED = "what was pasted"
_FIELDS = {
    "name": "name", "type": "type", "prompt": "prompt", "expected_outcome": "expected outcome", "tags": "tags",
    "prompt_audio_url": "recording", "language": "language", "difficulty": "difficulty", "assert_": "assertions",
    "reference": "reference", "turns": "turns", "conditions": "conditions",
}  # fmt: skip


# ── Documents on their way in ──


@dataclass(slots=True, eq=False)
class Document:
    """A document on its way in."""

    name: str
    checked: Checked


class Looked(NamedTuple):
    """A document, with what is wrong with it because of the others."""

    document: Document
    elsewhere: list[Problem]

    @property
    def problems(self) -> list[Problem]:
        """All that is wrong with it."""
        return [*self.document.checked.problems, *self.elsewhere]


async def looked_through(documents: Sequence[Document]) -> list[Looked]:
    """Return what is wrong with each document; of an id that stands in two, only one can be kept.

    They may have many megabytes: in a thread, so that nobody else's page waits for it.
    """
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


# ── The page ──


@frame.page("/scenarios/import", "Import scenarios", import_documents)
async def importing(desk: Desk) -> None:
    """Bring scenarios in."""
    page = _Importing(desk)
    frame.head(
        "Import scenarios",
        "Everything is checked first, and you see what would change. If anything is invalid, nothing is imported.",
        crumbs=(("/scenarios", "Scenarios"),),
    )
    await page.begin()
    await library(desk)


class _Importing:
    """The page: what was brought, which of it stands in the editor, and what an import would do."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._documents: list[Document] = []
        """Those from files; what was pasted is `_pasted`."""
        self._pasted = Document(PASTED, Checked(""))
        self._in_hand = self._pasted
        self._left_out: Sequence[tuple[str, str]] = ()
        """Of the last choice: names, and why."""
        self._mode: Mode = "skip"
        self._done = NOTHING
        """What was imported last; it stays until something is brought again."""
        self._turn = self._listing = self._picks = 0
        self._picked_last: dict[str, int] = {}
        """By which pick a file of a name came last."""
        self._rows: dict[Document, parts.Panel] = {}

    async def begin(self) -> None:
        parts.heading("What to import")
        with parts.box("stack"):
            with parts.box("row"):
                picker("Choose files", ENDINGS, self._picked)
                picker("Choose a folder", ENDINGS, self._picked, folder=True)
                parts.paragraph("or write and paste below. Only .yaml and .yml files are read.", quiet=True)
            self._files_heading = ui.element("div")
            self._files = ui.element("div")
            self._files_more = ui.element("div")
            self._omitted = ui.element("div")
            self._editor = YamlEditor(
                self._desk, "YAML to import", "", self._heard, also=self._elsewhere, may_be_empty=True
            )
        parts.heading("If an ID already exists")
        modes = ui.radio(MODES, value=self._mode, on_change=lambda event: self._chosen(event.value)).classes("modes")
        modes.props('aria-label="If an ID already exists"')
        parts.heading("What would change")
        with parts.box("stack"):
            self._preview = parts.show(NOTHING).props("role=status")
            with parts.box("row"):
                parts.button("Import", self._import, "primary").props("data-saves")

    # ── What was brought ──

    async def _picked(self, pick: Pick) -> None:
        """Take files beside those that are here; one of the same name replaces the earlier."""
        if len(pick.files) > 1:
            with parts.redrawn(self._files_more):
                parts.paragraph(f"Checking {len(pick.files):,} files …", quiet=True)
        self._picks += 1
        turn = self._picks
        self._picked_last |= dict.fromkeys((each.name for each in pick.files), turn)
        read = {each.name: Document(each.name, await self._read(each.data)) for each in pick.files}
        # One that was picked again meanwhile was corrected: the later stands, whichever was checked first.
        brought = {name: each for name, each in read.items() if self._picked_last[name] == turn}
        stay = [each for each in self._documents if each.name not in brought]
        if sum(len(each.checked.text) for each in (*stay, *brought.values())) > MOST_BYTES:
            parts.tell(f"All of it together has more than {MOST_BYTES >> 20} MB; import some of it first", "negative")
            await self._list_files()
            return
        self._documents = [*stay, *brought.values()]
        self._list_left_out([*((name, "it is no .yaml or .yml file") for name in pick.ignored), *pick.failed])
        if not pick.files:
            parts.tell("There is no .yaml or .yml file in what you chose", "warning")
        await self._take_in_hand(brought.get(self._in_hand.name, self._in_hand))

    async def _read(self, data: bytes) -> Checked:
        try:
            return await check(self._desk, await asyncio.to_thread(lambda: as_lines(data.decode())))
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            return Checked("", [Problem("this is no text in UTF-8", "", line, 1)])

    async def _list_files(self) -> None:
        self._listing += 1
        turn = self._listing
        found = await looked_through(self._all())
        if turn != self._listing:
            return  # what is newer is listed
        if len(found) > MOST_LISTED:
            found = sorted(found, key=lambda each: not any(map(is_error, each.problems)))
        with parts.redrawn(self._files_heading):
            if self._documents:
                parts.heading("Selected files", 3)
        self._list_rows(found[:MOST_LISTED] if self._documents else [])
        with parts.redrawn(self._files_more):
            if len(found) > MOST_LISTED:
                parts.paragraph(f"and {len(found) - MOST_LISTED:,} more", quiet=True)

    def _list_rows(self, found: Sequence[Looked]) -> None:
        """Draw the rows that changed. The others keep their buttons: a button that is replaced loses a press."""
        for gone in self._rows.keys() - {each.document for each in found}:
            self._rows.pop(gone).place.delete()
        for index, each in enumerate(found):
            document, problems = each.document, each.problems
            if document not in self._rows:
                with self._files:
                    self._rows[document] = parts.Panel("file")
            row = self._rows[document]
            shows = (_verdict(document, problems), problems, document is self._in_hand, len(document.checked.text))
            row.show(shows, partial(self._list_file, document, problems))
            if list(self._files)[index] is not row.place:
                row.place.move(target_index=index)

    def _list_left_out(self, left_out: Sequence[tuple[str, str]]) -> None:
        """Say which files were not taken, apart from the list of the others."""
        self._left_out = left_out
        with parts.redrawn(self._omitted):
            if left_out:
                named = (tag("li", foreign(name, 200), f": {why}") for name, why in left_out[:MOST_SHOWN])
                said = tag("summary", f"{len(left_out):,} left out")
                parts.show(tag("details", said, tag("ul", named, class_="ids small")))

    def _list_file(self, document: Document, problems: Sequence[Problem]) -> None:
        async def leave_out() -> None:
            self._documents = [each for each in self._documents if each is not document]
            if document is self._pasted:
                self._pasted = Document(PASTED, Checked(""))
            await self._take_in_hand(self._pasted if document is self._in_hand else self._in_hand)

        parts.show(_verdict(document, problems))
        with parts.box("row"):
            if document is self._in_hand:
                parts.show(tag("span", "in the editor", class_="quiet small"))
            elif 0 < len(document.checked.text) <= LONGEST:
                opened = partial(self._take_in_hand, document)
                parts.button("Open in the editor", opened, small=True, label=f"Open {document.name} in the editor")
            parts.button("Leave out", leave_out, "plain", small=True, label=f"Leave {document.name} out")
        if document is not self._in_hand and problems:
            parts.show(listed(problems[:MOST_SHOWN], buttons=False)).classes("problems small")

    async def _take_in_hand(self, document: Document) -> None:
        """Let a document stand in the editor; what was typed last goes to the one that stood there."""
        await self._editor.check()
        if document is not self._in_hand:
            self._in_hand = document
            await self._editor.put(document.checked.text)

    async def _heard(self, checked: Checked) -> None:
        """Take what stands in the editor now."""
        self._in_hand.checked = replace(checked, also=())
        await self._list_files()
        await self._tried()

    def _all(self) -> list[Document]:
        return [each for each in (self._pasted, *self._documents) if _holds_anything(each)]

    async def _elsewhere(self, checked: Checked) -> list[Problem]:
        """Return what is wrong with what stands in the editor because of the other documents."""
        mine, as_typed = self._in_hand, Document(self._in_hand.name, checked)
        every = [as_typed if each is mine else each for each in (self._pasted, *self._documents)]
        found = await looked_through([each for each in every if _holds_anything(each)])
        return next((each.elsewhere for each in found if each.document is as_typed), [])

    # ── What would change, and doing it ──

    async def _chosen(self, mode: Mode) -> None:
        self._mode = mode
        await self._tried()

    async def _tried(self) -> None:
        """Show what an import would do."""
        self._turn += 1
        turn = self._turn
        shown = await self._what_would_change()
        if turn == self._turn:
            self._preview.set_content(shown)

    async def _what_would_change(self) -> Safe:
        documents = self._all()
        if not documents:
            return self._done
        self._done = NOTHING
        found = await looked_through(documents)
        if wrong := [each.document.name for each in found if any(map(is_error, each.problems))]:
            named = join([*(foreign(each) for each in wrong[:10]), *(["…"] if len(wrong) > 10 else [])], ", ")
            return tag("p", "Not ready to import: fix ", named, " first.")
        try:
            would = await self._imported(documents, dry_run=True)
        except Refused as error:
            return _refused(error)
        return _changes(would, await self._differences(would))

    async def _imported(self, documents: Sequence[Document], *, dry_run: bool) -> ImportedView:
        brought = [Brought(each.name, each.checked.text) for each in documents]
        return await self._desk.call(import_documents, brought, self._mode, dry_run=dry_run)

    async def _differences(self, would: ImportedView) -> dict[str, list[str]]:
        """Return what differs in each scenario that would be replaced."""
        ids = would.updated[:MOST_SHOWN]
        if not ids:
            return {}
        found = await self._desk.call(list_scenarios, ScenarioPage(id=ids, page_size=MOST_SHOWN))
        there = {each.id: asdict(each) for each in found.items}
        now = {each.id: asdict(each) for each in would.scenarios if each.id in there}
        return {
            which: [words for name, words in _FIELDS.items() if each[name] != there[which][name]]
            for which, each in now.items()
        }

    async def _import(self) -> None:
        await self._editor.check()
        brought, left_out = self._all(), self._left_out
        documents = [Document(each.name, each.checked) for each in brought]  # as they are now, whatever is typed next
        if not documents:
            parts.tell("There is nothing to import: choose files, or paste a document", "warning")
            return
        if any(is_error(each) for looked in await looked_through(documents) for each in looked.problems):
            parts.tell("Nothing was imported. Fix the marked errors first.", "negative")
            return
        try:
            done = await self._imported(documents, dry_run=False)
        except Refused as error:
            self._preview.set_content(_refused(error))
            raise
        self._done = _done(done)
        if self._left_out is left_out:
            self._list_left_out(())
        await self._take_away({each: copy.checked.text for each, copy in zip(brought, documents, strict=True)})
        parts.tell("Imported", "positive")

    async def _take_away(self, sent: Mapping[Document, str]) -> None:
        """Take away what was imported; what was picked or typed since then stays."""
        over = [each for each in (self._pasted, *self._documents) if self._is_over(each, sent)]
        self._documents = [each for each in self._documents if each not in over]
        if self._pasted in over:
            self._pasted = Document(PASTED, Checked(""))
        self._editor.keep("")
        if self._in_hand in over:
            self._in_hand = self._pasted
            await self._editor.put(self._pasted.checked.text)
        else:
            await self._editor.check()

    def _is_over(self, document: Document, sent: Mapping[Document, str]) -> bool:
        """Tell whether nothing of a document is left to import: it stands as it was sent, or there is nothing in it."""
        text = self._editor.text if document is self._in_hand else document.checked.text
        if document in sent:
            return text == sent[document]
        return not text.strip() and not document.checked.problems


def _holds_anything(document: Document) -> bool:
    return bool(document.checked.text and not document.checked.text.isspace()) or bool(document.checked.problems)


def _refused(error: Refused) -> Safe:
    said = tag("p", "Nothing would be imported: ", foreign(str(error)), class_="warn trouble")
    places = [
        tag("li", foreign(each.file), f", line {each.line:,}: ", foreign(each.message))
        for each in error.problems[:MOST_SHOWN]
    ]
    return join([said, tag("ul", places, class_="ids small")]) if places else said


# ── Words ──


def _verdict(document: Document, problems: Sequence[Problem]) -> Safe:
    count = len(document.checked.read)
    wrong = any(map(is_error, problems))
    said = counted(problems) if wrong else many(count, "scenario")
    verdict = marked("✗", said, "failed") if wrong else marked("✓", said, "passed")
    return join([foreign(document.name, 200), verdict], " ")


def _changes(would: ImportedView, differences: dict[str, list[str]]) -> Safe:
    notes = {
        scenario_id: f" ({', '.join(changed)})" if changed else " (nothing differs)"
        for scenario_id, changed in differences.items()
    }
    return join(
        [
            _some("would be new", would.imported),
            _some("would be replaced", would.updated, notes),
            _some("would stay as it is", would.skipped, plural="would stay as they are"),
        ]
    )


def _done(done: ImportedView) -> Safe:
    return join(
        [
            tag("p", tag("b", "Done. "), link("/scenarios", "See all scenarios")),
            _some("is new", done.imported, plural="are new", links=True),
            _some("was replaced", done.updated, plural="were replaced", links=True),
            _some("stayed as it was", done.skipped, plural="stayed as they were", links=True),
        ]
    )


def _some(
    words: str,
    ids: Sequence[str],
    notes: Mapping[str, str] | None = None,
    *,
    plural: str | None = None,
    links: bool = False,
) -> Safe:
    """Return how many scenarios something is said of, and which."""
    if not ids:
        return Safe("")

    def named(each: str) -> Safe:
        found = tag("span", foreign(each, 120), class_="mono")
        return tag("li", link(page_of(each), found) if links else found, (notes or {}).get(each))

    head = f"1 scenario {words}" if len(ids) == 1 else f"{len(ids):,} scenarios {plural or words}"
    more = tag("li", f"and {len(ids) - MOST_SHOWN:,} more") if len(ids) > MOST_SHOWN else None
    return join([tag("p", tag("b", head)), tag("ul", map(named, ids[:MOST_SHOWN]), more, class_="ids small")])
