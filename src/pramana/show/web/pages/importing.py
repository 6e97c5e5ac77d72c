"""Import scenarios from files, folders or the clipboard, with a preview of the changes.

Every document is checked first; then all are imported together or none is. A document that is refused stays on the page
unchanged.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from msgspec.structs import asdict
from nicegui import ui

from pramana.analyse.numbers import pluralise as many
from pramana.app.documents import Document as Brought
from pramana.app.scenarios import ImportedView, ScenarioPage, import_documents, list_scenarios
from pramana.errors import Problem
from pramana.report.markup import SafeHtml, join_html, render_link, render_untrusted_text, render_with_sign, tag
from pramana.show.web.kit import PageContext, UseCaseRefused, frame, parts
from pramana.show.web.kit.forms import MAX_SELECTION_BYTES, FileSelection, add_file_picker
from pramana.show.web.kit.yaml_editor import (
    MAX_DOCUMENT_CHARS,
    CheckedDocument,
    YamlEditor,
    check_document,
    describe_problem_counts,
    is_error,
    normalise_line_breaks,
    render_problems,
)
from pramana.show.web.pages.scenarios import make_scenario_url, show_library_section
from pramana.store.scenarios import ImportMode

YAML_EXTENSIONS = (".yaml", ".yml")
MODE_LABELS = {
    "skip": "Skip: import only new IDs",
    "update": "Replace the existing scenario; fields the file omits get their defaults",
    "fail": "Fail: import nothing if any ID exists",
}
NOTHING_SELECTED_NOTE = tag("p", "Nothing selected yet: choose files, or paste a document.", class_="quiet")
MAX_SHOWN_IDS_OR_PROBLEMS = 100
"""Maximum number of ids shown, and of problems per document."""
MAX_LISTED_DOCUMENTS = 50
"""Maximum number of documents listed, each with its buttons; those with errors come first."""
PASTED_NAME = "pasted text"
_FIELD_LABELS = {
    "name": "name", "type": "type", "prompt": "prompt", "expected_outcome": "expected outcome", "tags": "tags",
    "prompt_audio_url": "recording", "language": "language", "difficulty": "difficulty", "assert_": "assertions",
    "reference": "reference", "turns": "turns", "conditions": "conditions",
}  # fmt: skip


# ── Documents to import ──


@dataclass(slots=True, eq=False)
class Document:
    """A document to import."""

    name: str
    checked: CheckedDocument


class CheckedImport(NamedTuple):
    """A document with its conflicts with the other documents."""

    document: Document
    conflicts: list[Problem]

    @property
    def problems(self) -> list[Problem]:
        """All problems of the document."""
        return [*self.document.checked.problems, *self.conflicts]


async def find_conflicts(documents: Sequence[Document]) -> list[CheckedImport]:
    """Return each document with its conflicts: of an id that occurs in two documents, only one can be kept.

    Documents may have many megabytes, so the check runs in a thread and blocks no other page.
    """
    return await asyncio.to_thread(_find_conflicts_sync, documents)


def _find_conflicts_sync(documents: Sequence[Document]) -> list[CheckedImport]:
    first: dict[str, Document] = {}
    found = []
    for document in documents:
        elsewhere = []
        for each in document.checked.valid_scenarios:
            earlier = first.setdefault(each.scenario.id, document)
            if earlier is not document:
                said = f"id {each.scenario.id} is also used in {earlier.name}; an ID can be imported only once"
                elsewhere.append(Problem(said, "id", each.line, each.column))
        found.append(CheckedImport(document, elsewhere))
    return found


# ── The page ──


@frame.register_page("/scenarios/import", "Import scenarios", import_documents)
async def show_import_page(context: PageContext) -> None:
    """Show the import page."""
    page = _ImportPage(context)
    frame.add_page_heading(
        "Import scenarios",
        "All documents are checked first, and you see the changes before the import. If any document is invalid, "
        "nothing is imported.",
        crumbs=(("/scenarios", "Scenarios"),),
    )
    await page.build()
    await show_library_section(context)


class _ImportPage:
    """The page: its documents, the one in the editor, and the preview of the import."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._documents: list[Document] = []
        """Documents from files; pasted text is in `_pasted`."""
        self._pasted = Document(PASTED_NAME, CheckedDocument(""))
        self._edited = self._pasted
        self._left_out: Sequence[tuple[str, str]] = ()
        """Files of the last selection that were left out, with the reason."""
        self._mode: ImportMode = "skip"
        self._done = NOTHING_SELECTED_NOTE
        """The result of the last import, shown until more documents are added."""
        self._turn = self._listing = self._picks = 0
        self._last_pick: dict[str, int] = {}
        """The number of the latest selection that contained a file of this name."""
        self._rows: dict[Document, parts.Panel] = {}

    async def build(self) -> None:
        parts.add_heading("Files to import")
        with parts.open_box("stack"):
            with parts.open_box("row"):
                add_file_picker("Choose files", YAML_EXTENSIONS, self._on_files_picked)
                add_file_picker("Choose a folder", YAML_EXTENSIONS, self._on_files_picked, picks_folder=True)
                parts.add_paragraph("or write and paste below. Only .yaml and .yml files are read.", quiet=True)
            self._files_heading = ui.element("div")
            self._files = ui.element("div")
            self._files_more = ui.element("div")
            self._omitted = ui.element("div")
            self._editor = YamlEditor(
                self._context,
                "YAML to import",
                "",
                self._on_check,
                extra_check=self._find_conflicts_of_edited,
                may_be_empty=True,
            )
        parts.add_heading("If an ID already exists")
        modes = ui.radio(
            MODE_LABELS, value=self._mode, on_change=lambda event: self._on_mode_chosen(event.value)
        ).classes("modes")
        modes.props('aria-label="If an ID already exists"')
        parts.add_heading("Changes")
        with parts.open_box("stack"):
            self._preview = parts.add_markup(NOTHING_SELECTED_NOTE).props("role=status")
            with parts.open_box("row"):
                parts.add_button("Import", self._import_documents, "primary").props("data-saves")

    # ── Adding documents ──

    async def _on_files_picked(self, selection: FileSelection) -> None:
        """Add picked files; a file replaces the earlier one of the same name."""
        if len(selection.files) > 1:
            with parts.redraw(self._files_more):
                parts.add_paragraph(f"Checking {len(selection.files):,} files …", quiet=True)
        self._picks += 1
        turn = self._picks
        self._last_pick |= dict.fromkeys((each.name for each in selection.files), turn)
        read = {each.name: Document(each.name, await self._decode_and_check(each.data)) for each in selection.files}
        # A file that was picked again meanwhile was corrected: the later pick wins, whichever check ended first.
        brought = {name: each for name, each in read.items() if self._last_pick[name] == turn}
        stay = [each for each in self._documents if each.name not in brought]
        if sum(len(each.checked.text) for each in (*stay, *brought.values())) > MAX_SELECTION_BYTES:
            parts.show_notification(
                f"The files have more than {MAX_SELECTION_BYTES >> 20} MB in total; import fewer at once", "negative"
            )
            await self._update_file_list()
            return
        self._documents = [*stay, *brought.values()]
        self._draw_left_out_files(
            [*((name, "not a .yaml or .yml file") for name in selection.ignored_names), *selection.failures]
        )
        if not selection.files:
            parts.show_notification("Your selection contains no .yaml or .yml file", "warning")
        await self._edit_document(brought.get(self._edited.name, self._edited))

    async def _decode_and_check(self, data: bytes) -> CheckedDocument:
        try:
            return await check_document(
                self._context, await asyncio.to_thread(lambda: normalise_line_breaks(data.decode()))
            )
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            return CheckedDocument("", [Problem("the file is not UTF-8 text", "", line, 1)])

    async def _update_file_list(self) -> None:
        self._listing += 1
        turn = self._listing
        found = await find_conflicts(self._collect_documents())
        if turn != self._listing:
            return  # a newer list has been drawn
        if len(found) > MAX_LISTED_DOCUMENTS:
            found = sorted(found, key=lambda each: not any(map(is_error, each.problems)))
        with parts.redraw(self._files_heading):
            if self._documents:
                parts.add_heading("Selected files", 3)
        self._update_file_rows(found[:MAX_LISTED_DOCUMENTS] if self._documents else [])
        with parts.redraw(self._files_more):
            if len(found) > MAX_LISTED_DOCUMENTS:
                parts.add_paragraph(f"and {len(found) - MAX_LISTED_DOCUMENTS:,} more", quiet=True)

    def _update_file_rows(self, checked_imports: Sequence[CheckedImport]) -> None:
        """Redraw only the rows that changed: a button that is replaced while it is clicked loses the click."""
        for gone in self._rows.keys() - {each.document for each in checked_imports}:
            self._rows.pop(gone).place.delete()
        for index, each in enumerate(checked_imports):
            document, problems = each.document, each.problems
            if document not in self._rows:
                with self._files:
                    self._rows[document] = parts.Panel("file")
            row = self._rows[document]
            shows = (
                _render_document_status(document, problems),
                problems,
                document is self._edited,
                len(document.checked.text),
            )
            row.redraw_if_changed(shows, partial(self._draw_file_row, document, problems))
            if list(self._files)[index] is not row.place:
                row.place.move(target_index=index)

    def _draw_left_out_files(self, names_with_reasons: Sequence[tuple[str, str]]) -> None:
        """List the files that were left out, apart from the others."""
        self._left_out = names_with_reasons
        with parts.redraw(self._omitted):
            if names_with_reasons:
                named = (
                    tag("li", render_untrusted_text(name, 200), f": {why}")
                    for name, why in names_with_reasons[:MAX_SHOWN_IDS_OR_PROBLEMS]
                )
                said = tag("summary", f"{len(names_with_reasons):,} left out")
                parts.add_markup(tag("details", said, tag("ul", named, class_="ids small")))

    def _draw_file_row(self, document: Document, problems: Sequence[Problem]) -> None:
        async def leave_out() -> None:
            self._documents = [each for each in self._documents if each is not document]
            if document is self._pasted:
                self._pasted = Document(PASTED_NAME, CheckedDocument(""))
            await self._edit_document(self._pasted if document is self._edited else self._edited)

        parts.add_markup(_render_document_status(document, problems))
        with parts.open_box("row"):
            if document is self._edited:
                parts.add_markup(tag("span", "in the editor", class_="quiet small"))
            elif 0 < len(document.checked.text) <= MAX_DOCUMENT_CHARS:
                opened = partial(self._edit_document, document)
                parts.add_button(
                    "Open in the editor", opened, small=True, accessible_label=f"Open {document.name} in the editor"
                )
            parts.add_button("Leave out", leave_out, "plain", small=True, accessible_label=f"Leave {document.name} out")
        if document is not self._edited and problems:
            parts.add_markup(render_problems(problems[:MAX_SHOWN_IDS_OR_PROBLEMS], as_buttons=False)).classes(
                "problems small"
            )

    async def _edit_document(self, document: Document) -> None:
        """Open a document in the editor; the previous document keeps the text typed last."""
        await self._editor.check()
        if document is not self._edited:
            self._edited = document
            await self._editor.replace_text(document.checked.text)

    async def _on_check(self, checked: CheckedDocument) -> None:
        """Store the checked text of the editor in its document."""
        self._edited.checked = replace(checked, page_problems=())
        await self._update_file_list()
        await self._preview_import()

    def _collect_documents(self) -> list[Document]:
        return [each for each in (self._pasted, *self._documents) if _is_not_empty(each)]

    async def _find_conflicts_of_edited(self, checked: CheckedDocument) -> list[Problem]:
        """Return the conflicts of the text in the editor with the other documents."""
        mine, as_typed = self._edited, Document(self._edited.name, checked)
        every = [as_typed if each is mine else each for each in (self._pasted, *self._documents)]
        found = await find_conflicts([each for each in every if _is_not_empty(each)])
        return next((each.conflicts for each in found if each.document is as_typed), [])

    # ── Preview and import ──

    async def _on_mode_chosen(self, mode: ImportMode) -> None:
        self._mode = mode
        await self._preview_import()

    async def _preview_import(self) -> None:
        """Show a preview of the import."""
        self._turn += 1
        turn = self._turn
        shown = await self._render_preview()
        if turn == self._turn:
            self._preview.set_content(shown)

    async def _render_preview(self) -> SafeHtml:
        documents = self._collect_documents()
        if not documents:
            return self._done
        self._done = NOTHING_SELECTED_NOTE
        found = await find_conflicts(documents)
        if wrong := [each.document.name for each in found if any(map(is_error, each.problems))]:
            named = join_html(
                [*(render_untrusted_text(each) for each in wrong[:10]), *(["…"] if len(wrong) > 10 else [])], ", "
            )
            return tag("p", "Not ready to import: fix ", named, " first.")
        try:
            would = await self._call_import(documents, dry_run=True)
        except UseCaseRefused as error:
            return _render_refusal(error)
        return _render_import_preview(would, await self._find_changed_fields(would))

    async def _call_import(self, documents: Sequence[Document], *, dry_run: bool) -> ImportedView:
        brought = [Brought(each.name, each.checked.text) for each in documents]
        return await self._context.call(import_documents, brought, self._mode, dry_run=dry_run)

    async def _find_changed_fields(self, preview: ImportedView) -> dict[str, list[str]]:
        """Return the differences in each scenario that would be replaced."""
        ids = preview.updated[:MAX_SHOWN_IDS_OR_PROBLEMS]
        if not ids:
            return {}
        found = await self._context.call(list_scenarios, ScenarioPage(id=ids, page_size=MAX_SHOWN_IDS_OR_PROBLEMS))
        there = {each.id: asdict(each) for each in found.items}
        now = {each.id: asdict(each) for each in preview.scenarios if each.id in there}
        return {
            which: [words for name, words in _FIELD_LABELS.items() if each[name] != there[which][name]]
            for which, each in now.items()
        }

    async def _import_documents(self) -> None:
        await self._editor.check()
        brought, left_out = self._collect_documents(), self._left_out
        documents = [Document(each.name, each.checked) for each in brought]  # copies, as the text may change meanwhile
        if not documents:
            parts.show_notification("Nothing to import: choose files, or paste a document", "warning")
            return
        if any(is_error(each) for looked in await find_conflicts(documents) for each in looked.problems):
            parts.show_notification("Nothing was imported. Fix the marked errors first.", "negative")
            return
        try:
            done = await self._call_import(documents, dry_run=False)
        except UseCaseRefused as error:
            self._preview.set_content(_render_refusal(error))
            raise
        self._done = _render_import_result(done)
        if self._left_out is left_out:
            self._draw_left_out_files(())
        await self._remove_imported({each: copy.checked.text for each, copy in zip(brought, documents, strict=True)})
        parts.show_notification("Imported", "positive")

    async def _remove_imported(self, sent_texts: Mapping[Document, str]) -> None:
        """Remove the imported documents; whatever was picked or typed since then stays."""
        over = [each for each in (self._pasted, *self._documents) if self._is_fully_imported(each, sent_texts)]
        self._documents = [each for each in self._documents if each not in over]
        if self._pasted in over:
            self._pasted = Document(PASTED_NAME, CheckedDocument(""))
        self._editor.mark_saved("")
        if self._edited in over:
            self._edited = self._pasted
            await self._editor.replace_text(self._pasted.checked.text)
        else:
            await self._editor.check()

    def _is_fully_imported(self, document: Document, sent_texts: Mapping[Document, str]) -> bool:
        """Return whether nothing of a document is left to import: its text was sent as it is, or it is empty."""
        text = self._editor.text if document is self._edited else document.checked.text
        if document in sent_texts:
            return text == sent_texts[document]
        return not text.strip() and not document.checked.problems


def _is_not_empty(document: Document) -> bool:
    return bool(document.checked.text and not document.checked.text.isspace()) or bool(document.checked.problems)


def _render_refusal(error: UseCaseRefused) -> SafeHtml:
    said = tag("p", "Nothing would be imported: ", render_untrusted_text(str(error)), class_="warn trouble")
    places = [
        tag("li", render_untrusted_text(each.file), f", line {each.line:,}: ", render_untrusted_text(each.message))
        for each in error.problems[:MAX_SHOWN_IDS_OR_PROBLEMS]
    ]
    return join_html([said, tag("ul", places, class_="ids small")]) if places else said


# ── Markup ──


def _render_document_status(document: Document, problems: Sequence[Problem]) -> SafeHtml:
    count = len(document.checked.valid_scenarios)
    wrong = any(map(is_error, problems))
    said = describe_problem_counts(problems) if wrong else many(count, "scenario")
    verdict = render_with_sign("✗", said, "failed") if wrong else render_with_sign("✓", said, "passed")
    return join_html([render_untrusted_text(document.name, 200), verdict], " ")


def _render_import_preview(preview: ImportedView, differences: dict[str, list[str]]) -> SafeHtml:
    notes = {
        scenario_id: f" ({', '.join(changed)})" if changed else " (no changes)"
        for scenario_id, changed in differences.items()
    }
    return join_html(
        [
            _render_ids("would be new", preview.imported),
            _render_ids("would be replaced", preview.updated, notes),
            _render_ids("would not change", preview.skipped, plural_phrase="would not change"),
        ]
    )


def _render_import_result(import_result: ImportedView) -> SafeHtml:
    return join_html(
        [
            tag("p", tag("b", "Done. "), render_link("/scenarios", "See all scenarios")),
            _render_ids("is new", import_result.imported, plural_phrase="are new", as_links=True),
            _render_ids("was replaced", import_result.updated, plural_phrase="were replaced", as_links=True),
            _render_ids("was skipped", import_result.skipped, plural_phrase="were skipped", as_links=True),
        ]
    )


def _render_ids(
    singular_phrase: str,
    ids: Sequence[str],
    notes: Mapping[str, str] | None = None,
    *,
    plural_phrase: str | None = None,
    as_links: bool = False,
) -> SafeHtml:
    """Return how many scenarios something applies to, and their ids."""
    if not ids:
        return SafeHtml("")

    def render_id(each: str) -> SafeHtml:
        found = tag("span", render_untrusted_text(each, 120), class_="mono")
        return tag("li", render_link(make_scenario_url(each), found) if as_links else found, (notes or {}).get(each))

    head = (
        f"1 scenario {singular_phrase}"
        if len(ids) == 1
        else f"{len(ids):,} scenarios {plural_phrase or singular_phrase}"
    )
    more = (
        tag("li", f"and {len(ids) - MAX_SHOWN_IDS_OR_PROBLEMS:,} more")
        if len(ids) > MAX_SHOWN_IDS_OR_PROBLEMS
        else None
    )
    return join_html(
        [tag("p", tag("b", head)), tag("ul", map(render_id, ids[:MAX_SHOWN_IDS_OR_PROBLEMS]), more, class_="ids small")]
    )
