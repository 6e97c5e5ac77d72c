"""The editor of one scenario as YAML, with problems marked on their lines as the user types.

Saving stores exactly one scenario and never changes its id: another id means another scenario. A concurrent change by
another user is reported and never overwritten silently.
"""

from collections.abc import Awaitable, Callable

import msgspec
from nicegui import ui

from pramana.app.documents import Document
from pramana.app.runs import create_run
from pramana.app.scenarios import (
    LocatedValidScenario,
    ScenarioFilter,
    ScenarioView,
    change_scenario,
    copy_scenario,
    delete_scenario,
    export_scenarios,
    import_documents,
    restore_scenario,
)
from pramana.errors import Problem
from pramana.report.markup import SafeHtml, render_link, render_time, render_untrusted_text, tag
from pramana.show.web.kit import PageContext, UseCaseRefused, frame, make_url, parts
from pramana.show.web.kit.yaml_editor import CheckedDocument, YamlEditor
from pramana.show.web.pages import case_markup
from pramana.show.web.pages.scenarios import duplicate_scenario, make_scenario_url, read_scenario_or_none

NEW_SCENARIO_TEXT = """\
# One scenario: what a caller says, and what a good agent does.
version: "1.0"
scenarios:
  # Lower-case letters, digits and hyphens. It never changes once it is saved.
  - id: library-late-book
    name: A book that is late
    # task-completion: something gets done. information-retrieval: a question is answered.
    # conversation-flow: it takes several turns.
    type: conversation-flow
    # easy, medium or hard
    difficulty: medium
    language: en
    tags: [domain:library, task:renewal]
    # What the caller says first.
    prompt: >-
      Hi, I still have the book about lighthouses, and I think it was due last week.
    # What a good agent does. A judge reads this beside the answer.
    expected_outcome: >-
      Offers to renew the book, says what the delay costs, and asks for the card number.
    # What the caller says afterwards; leave it out for a single question.
    turns:
      - say: The number on my card is four four seven one.
        # Checks on the answer, in addition to the judge.
        assert:
          type: contains_any
          ideal: ["4471", four four seven one]
          case_sensitive: false
"""


@frame.register_page("/scenarios/new", "New scenario", import_documents)
async def show_new_scenario_page(context: PageContext) -> None:
    """Create a scenario."""
    await _EditorPage(context, None, NEW_SCENARIO_TEXT).build()


@frame.register_page("/scenarios/id/{scenario_id}", "Scenario")
@frame.register_page("/scenarios/{scenario_id}", "Scenario")
async def show_editor_page(context: PageContext) -> None:
    """Edit a scenario."""
    wanted = context.path["scenario_id"]
    found = await read_scenario_or_none(context, wanted)
    if found is None:
        frame.add_page_heading("No such scenario", crumbs=(("/scenarios", "Scenarios"),))
        parts.add_paragraph(
            "There is no scenario ",
            render_untrusted_text(wanted, 80),
            ". It may have been deleted, or the ID is mistyped.",
        )
        parts.add_paragraph(
            render_link("/scenarios/deleted", "Recently deleted"), ", ", render_link("/scenarios", "all scenarios")
        )
        return
    frame.set_window_title(found.name)
    await _EditorPage(context, found, await _export_yaml(context, wanted)).build()


async def _export_yaml(context: PageContext, scenario_id: str) -> str:
    return "".join(await context.call(export_scenarios, ScenarioFilter(id=(scenario_id,))))


class _EditorPage:
    """The editor page of a new or an existing scenario."""

    def __init__(self, context: PageContext, scenario: ScenarioView | None, text: str) -> None:
        self._context, self._scenario, self._text = context, scenario, text
        self._saving = False
        self._may_save = context.may(import_documents)
        self._taken_ids: set[str] = set()
        """Ids that a new scenario cannot have."""

    async def build(self) -> None:
        self._top = ui.element("div")
        self._draw_heading()
        self._notice = parts.Panel("notices")
        with parts.open_box("halves editing"):
            with parts.open_box("stack"):
                with parts.open_box("row spread"):
                    self._state = parts.add_markup(SafeHtml("")).props("role=status")
                    if self._may_save:
                        save = parts.add_button("Save", self._save_document, "primary")
                        save.props("data-saves aria-keyshortcuts=Control+S")
                self._editor = YamlEditor(
                    self._context,
                    "Scenario as YAML",
                    self._text,
                    self._on_check,
                    extra_check=self._find_page_problems,
                    on_touch=self._show_save_state,
                )
            with parts.open_box("card", role="region", label="Preview"):
                parts.add_heading("Preview")
                self._preview = parts.add_markup(SafeHtml(""))
        await self._editor.check()
        if self._scenario:
            self._context.on_change({"scenario"}, self._handle_external_change)

    def _draw_heading(self) -> None:
        """Draw the heading, again after every change, since the name may have changed."""
        found, crumbs = self._scenario, (("/scenarios", "Scenarios"),)
        if found is None:
            about = "Edit the example, then save it."
            with self._top:
                frame.add_page_heading("New scenario", about, crumbs)
            return
        name = tag("span", render_untrusted_text(found.id, 120), class_="mono")
        about = tag("span", name, ", changed ", render_time(found.updated_at))
        with parts.redraw(self._top), frame.add_page_heading(render_untrusted_text(found.name), about, crumbs):
            if self._context.may(create_run):
                parts.add_link_button("Run", make_url("/runs/new", scenario=found.id))
            parts.add_link_button("Export", make_url("/api/scenarios/export", id=found.id))
            if self._context.may(copy_scenario):
                parts.add_button("Duplicate", lambda: duplicate_scenario(self._context, found.id))
            if self._context.may(delete_scenario):
                parts.add_button("Delete", lambda: self._delete(found.id), "danger")

    # ── Live checks ──

    async def _on_check(self, checked: CheckedDocument) -> None:
        self._show_save_state()
        if checked.valid_scenarios:
            self._preview.set_content(case_markup.render_scenario(checked.valid_scenarios[0].scenario))
        elif not self._preview.content:
            self._preview.set_content(tag("p", "The preview appears once the YAML is valid.", class_="quiet"))

    def _show_save_state(self) -> None:
        if not self._may_save:
            self._state.set_content(tag("span", "Read-only: saving needs the role editor.", class_="quiet"))
            return
        is_new = self._scenario is None
        said = "Not saved yet" if is_new else "All changes are saved" if self._editor.is_saved else "Unsaved changes"
        self._state.set_content(tag("span", said, class_="quiet"))

    async def _find_page_problems(self, checked: CheckedDocument) -> list[Problem]:
        """Return the problems that only this page can find: more than one scenario, a changed id, an id that exists."""
        if not checked.is_valid or not checked.valid_scenarios:
            return []
        if len(checked.valid_scenarios) > 1:
            message = (
                f"the document has {len(checked.valid_scenarios):,} scenarios, but this page saves only one; use "
                "Import for "
                "several"
            )
            return [_make_problem_at_id(message, checked.valid_scenarios[1])]
        stated = checked.valid_scenarios[0].scenario.id
        message = ""
        if self._scenario and stated != self._scenario.id:
            message = (
                f'the ID of a scenario cannot change: restore "{self._scenario.id}", or duplicate the scenario and '
                "delete this one"
            )
        elif stated in self._taken_ids:
            message = f'a scenario "{stated}" already exists; choose another ID'
        return [_make_problem_at_id(message, checked.valid_scenarios[0])] if message else []

    # ── Saving ──

    async def _save_document(self) -> None:
        checked = await self._editor.check_text(self._editor.text)
        if not checked.is_valid or not checked.valid_scenarios:
            self._editor.show_problems(checked)
            parts.show_notification("Not saved. Fix the marked errors first.", "negative")
            return
        if self._scenario is None:
            await self._save_new(checked)
        else:
            await self._save_existing(checked, self._scenario)

    async def _save_new(self, checked: CheckedDocument) -> None:
        try:
            done = await self._context.call(import_documents, [Document("", checked.text)], "fail")
        except UseCaseRefused as error:
            if error.status != 409:
                raise
            self._taken_ids.add(checked.valid_scenarios[0].scenario.id)
            await self._editor.check()
            parts.show_notification("Not saved: a scenario with this ID already exists; choose another ID", "negative")
            return
        self._editor.mark_saved(checked.text)
        ui.navigate.to(make_scenario_url(done.imported[0]))

    async def _save_existing(self, checked: CheckedDocument, stored_scenario: ScenarioView) -> None:
        fields = msgspec.to_builtins(checked.valid_scenarios[0].scenario)
        self._saving = True
        try:
            done = await self._context.call(
                change_scenario,
                stored_scenario.id,
                fields,
                replace_whole_scenario=True,
                seen_updated_at=stored_scenario.updated_at,
            )
        except UseCaseRefused as error:
            self._saving = False
            if error.status not in (404, 409):
                raise
            parts.show_notification(
                "Not saved: another user has changed or deleted this scenario; your text is still in the editor",
                "negative",
            )
            await self._handle_external_change()
            return
        self._set_scenario(done)
        self._saving = False
        self._editor.mark_saved(checked.text)
        self._show_save_state()
        parts.show_notification("Saved", "positive")

    def _set_scenario(self, scenario: ScenarioView) -> None:
        self._scenario = scenario
        self._show_notice()
        self._draw_heading()
        frame.set_window_title(scenario.name)

    # ── Changes by other users ──

    async def _handle_external_change(self) -> None:
        """Check whether another user changed or deleted the scenario; reload the text if it has no unsaved changes."""
        before = self._scenario
        if before is None or self._saving:
            return
        now = await read_scenario_or_none(self._context, before.id)
        if self._scenario is not before:  # it was saved or replaced here meanwhile
            return
        if now is None:
            self._show_notice(
                "Another user has deleted this scenario. Only the text in this editor is left.",
                ("Restore it", self._restore_deleted),
            )
            return
        if now.updated_at == before.updated_at:
            return
        text = await _export_yaml(self._context, before.id) if self._editor.is_saved else None
        if self._scenario is not before:
            return
        if text is not None and self._editor.is_saved:  # check again: the user may have typed during the export
            await self._show_saved_version(now, text)
            parts.show_notification("Another user has changed this scenario; the editor now shows the new version")
        else:
            self._show_notice(
                tag(
                    "span",
                    "Another user changed this scenario at ",
                    render_time(now.updated_at),
                    ", while you were editing.",
                ),
                ("Use their version", self._take_their_version), ("Keep my version", self._keep_own_version),
            )  # fmt: skip

    def _show_notice(self, message: str | SafeHtml = "", *buttons: tuple[str, Callable[[], Awaitable[None]]]) -> None:
        """Show a notice with buttons above the editor; without words, remove it."""

        def draw() -> None:
            with parts.open_box("warn row spread", role="alert"):
                parts.add_paragraph(message)
                with parts.open_box("row"):
                    for name, act in buttons:
                        parts.add_button(name, act, small=True)

        self._notice.redraw_if_changed((message, buttons), draw if message else lambda: None)

    async def _take_their_version(self) -> None:
        if self._scenario and (found := await read_scenario_or_none(self._context, self._scenario.id)):
            await self._show_saved_version(found, await _export_yaml(self._context, found.id))

    async def _show_saved_version(self, scenario: ScenarioView, text: str) -> None:
        """Replace the text with the version that another user saved."""
        self._set_scenario(scenario)
        self._editor.mark_saved(text)
        await self._editor.replace_text(text)

    async def _keep_own_version(self) -> None:
        """Keep the text: the next save overwrites the other user's version."""
        if self._scenario and (found := await read_scenario_or_none(self._context, self._scenario.id)):
            self._set_scenario(found)
            parts.show_notification("When you save, your version replaces theirs")

    # ── Deleting ──

    async def _delete(self, scenario_id: str) -> None:
        if not self._editor.is_saved and not await parts.ask_confirmation(
            "Delete the scenario and your unsaved changes?",
            "The scenario can be restored for one day; unsaved changes cannot be restored.",
            "Delete",
        ):
            return
        await self._context.call(delete_scenario, scenario_id)
        self._editor.mark_saved(self._editor.text)
        ui.navigate.to(make_url("/scenarios", deleted=scenario_id))

    async def _restore_deleted(self) -> None:
        if self._scenario:
            self._set_scenario(await self._context.call(restore_scenario, self._scenario.id))


def _make_problem_at_id(message: str, scenario: LocatedValidScenario) -> Problem:
    return Problem(message, "id", scenario.line, scenario.column)
