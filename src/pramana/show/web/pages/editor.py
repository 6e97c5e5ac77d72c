"""One scenario as YAML, with what is wrong marked on its line as one types.

What is saved is one scenario under the id it has; whoever wants another id writes another scenario. A change of
somebody else in between is told, and never lost without a word.
"""

from collections.abc import Awaitable, Callable

import msgspec
from nicegui import ui

from pramana.app.documents import Document
from pramana.app.runs import create_run
from pramana.app.scenarios import (
    ReadScenario,
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
from pramana.report.markup import Safe, foreign, link, tag, when
from pramana.show.web.kit import Desk, Refused, address, frame, parts
from pramana.show.web.kit.yaml_editor import Checked, YamlEditor
from pramana.show.web.pages import asking
from pramana.show.web.pages.scenarios import duplicate, page_of, read

START = """\
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
        # What must hold of the answer, whatever a judge thinks.
        assert:
          type: contains_any
          ideal: ["4471", four four seven one]
          case_sensitive: false
"""


@frame.page("/scenarios/new", "New scenario", import_documents)
async def new(desk: Desk) -> None:
    """Write a scenario."""
    await _Editing(desk, None, START).begin()


@frame.page("/scenarios/id/{scenario_id}", "Scenario")
@frame.page("/scenarios/{scenario_id}", "Scenario")
async def edit(desk: Desk) -> None:
    """Change a scenario."""
    wanted = desk.path["scenario_id"]
    found = await read(desk, wanted)
    if found is None:
        frame.head("No such scenario", crumbs=(("/scenarios", "Scenarios"),))
        parts.paragraph("There is no scenario ", foreign(wanted, 80), ". It may have been deleted, or never been here.")
        parts.paragraph(link("/scenarios/deleted", "Recently deleted"), ", ", link("/scenarios", "all scenarios"))
        return
    frame.titled(found.name)
    await _Editing(desk, found, await _exported(desk, wanted)).begin()


async def _exported(desk: Desk, scenario_id: str) -> str:
    return "".join(await desk.call(export_scenarios, ScenarioFilter(id=(scenario_id,))))


class _Editing:
    """A page that edits a scenario, or a new one."""

    def __init__(self, desk: Desk, found: ScenarioView | None, text: str) -> None:
        self._desk, self._found, self._text = desk, found, text
        self._saving = False
        self._may_save = desk.may(import_documents)
        self._taken: set[str] = set()
        """Ids that a new scenario cannot have."""

    async def begin(self) -> None:
        self._top = ui.element("div")
        self._head()
        self._notice = parts.Panel("notices")
        with parts.box("halves editing"):
            with parts.box("stack"):
                with parts.box("row spread"):
                    self._state = parts.show(Safe("")).props("role=status")
                    if self._may_save:
                        save = parts.button("Save", self._saved, "primary")
                        save.props("data-saves aria-keyshortcuts=Control+S")
                self._editor = YamlEditor(
                    self._desk, "Scenario as YAML", self._text, self._heard, also=self._wrong, touched=self._say_state
                )
            with parts.box("card", role="region", label="Preview"):
                parts.heading("Preview")
                self._preview = parts.show(Safe(""))
        await self._editor.check()
        if self._found:
            self._desk.when_new({"scenario"}, self._look_again)

    def _head(self) -> None:
        """Put the heading; again after every change, which may be one of the name."""
        found, crumbs = self._found, (("/scenarios", "Scenarios"),)
        if found is None:
            about = "Edit the example, then save it."
            with self._top:
                frame.head("New scenario", about, crumbs)
            return
        name = tag("span", foreign(found.id, 120), class_="mono")
        about = tag("span", name, ", changed ", when(found.updated_at))
        with parts.redrawn(self._top), frame.head(foreign(found.name), about, crumbs):
            if self._desk.may(create_run):
                parts.link_button("Run", address("/runs/new", scenario=found.id))
            parts.link_button("Export", address("/api/scenarios/export", id=found.id))
            if self._desk.may(copy_scenario):
                parts.button("Duplicate", lambda: duplicate(self._desk, found.id))
            if self._desk.may(delete_scenario):
                parts.button("Delete", lambda: self._deleted(found.id), "danger")

    # ── While somebody types ──

    async def _heard(self, checked: Checked) -> None:
        self._say_state()
        if checked.read:
            self._preview.set_content(asking.of_scenario(checked.read[0].scenario))
        elif not self._preview.content:
            self._preview.set_content(tag("p", "The preview appears once the YAML is valid.", class_="quiet"))

    def _say_state(self) -> None:
        if not self._may_save:
            self._state.set_content(tag("span", "Read-only: saving needs the role editor.", class_="quiet"))
            return
        is_new = self._found is None
        said = "Not saved yet" if is_new else "All changes are saved" if self._editor.is_kept else "Unsaved changes"
        self._state.set_content(tag("span", said, class_="quiet"))

    async def _wrong(self, checked: Checked) -> list[Problem]:
        """Return what only this page knows: one scenario is saved, under the id it has."""
        if not checked.valid or not checked.read:
            return []
        if len(checked.read) > 1:
            message = (
                f"here stand {len(checked.read):,} scenarios, and this page saves one; import several at once instead"
            )
            return [_at_id(message, checked.read[1])]
        stated = checked.read[0].scenario.id
        message = ""
        if self._found and stated != self._found.id:
            message = (
                f'the id of a scenario never changes: write "{self._found.id}" again, or make a duplicate and '
                "delete this one"
            )
        elif stated in self._taken:
            message = f'there is a scenario "{stated}" already; choose another id'
        return [_at_id(message, checked.read[0])] if message else []

    # ── Saving ──

    async def _saved(self) -> None:
        checked = await self._editor.examine(self._editor.text)
        if not checked.valid or not checked.read:
            self._editor.show(checked)
            parts.tell("Not saved. Fix the marked errors first.", "negative")
            return
        if self._found is None:
            await self._created(checked)
        else:
            await self._changed(checked, self._found)

    async def _created(self, checked: Checked) -> None:
        try:
            done = await self._desk.call(import_documents, [Document("", checked.text)], "fail")
        except Refused as error:
            if error.status != 409:
                raise
            self._taken.add(checked.read[0].scenario.id)
            await self._editor.check()
            parts.tell("Not saved: there is a scenario with this id already; choose another", "negative")
            return
        self._editor.keep(checked.text)
        ui.navigate.to(page_of(done.imported[0]))

    async def _changed(self, checked: Checked, before: ScenarioView) -> None:
        fields = msgspec.to_builtins(checked.read[0].scenario)
        self._saving = True
        try:
            done = await self._desk.call(change_scenario, before.id, fields, whole=True, seen=before.updated_at)
        except Refused as error:
            self._saving = False
            if error.status not in (404, 409):
                raise
            parts.tell("Not saved: somebody else has changed or deleted it; what you wrote is still here", "negative")
            await self._look_again()
            return
        self._take(done)
        self._saving = False
        self._editor.keep(checked.text)
        self._say_state()
        parts.tell("Saved", "positive")

    def _take(self, found: ScenarioView) -> None:
        self._found = found
        self._say()
        self._head()
        frame.titled(found.name)

    # ── Somebody else ──

    async def _look_again(self) -> None:
        """See whether somebody else has changed or deleted it; what nobody here has touched is shown anew."""
        before = self._found
        if before is None or self._saving:
            return
        now = await read(self._desk, before.id)
        if self._found is not before:  # what was chosen here while it was read is newer
            return
        if now is None:
            self._say(
                "Somebody has deleted this scenario. What stands here is all there is of it.",
                ("Restore it", self._restored),
            )
            return
        if now.updated_at == before.updated_at:
            return
        text = await _exported(self._desk, before.id) if self._editor.is_kept else None
        if self._found is not before:
            return
        if text is not None and self._editor.is_kept:  # still: nobody has typed here while it was read
            await self._show(now, text)
            parts.tell("Somebody else has changed this scenario: this is what it is now")
        else:
            self._say(
                tag("span", "Somebody else has changed this scenario at ", when(now.updated_at), ", while you did."),
                ("Take theirs", self._theirs), ("Keep mine", self._mine),
            )  # fmt: skip

    def _say(self, words: str | Safe = "", *choices: tuple[str, Callable[[], Awaitable[None]]]) -> None:
        """Say something above the editor, and what can be done about it; without words, nothing."""

        def draw() -> None:
            with parts.box("warn row spread", role="alert"):
                parts.paragraph(words)
                with parts.box("row"):
                    for name, act in choices:
                        parts.button(name, act, small=True)

        self._notice.show((words, choices), draw if words else lambda: None)

    async def _theirs(self) -> None:
        if self._found and (found := await read(self._desk, self._found.id)):
            await self._show(found, await _exported(self._desk, found.id))

    async def _show(self, found: ScenarioView, text: str) -> None:
        """Put what somebody else wrote in the place of what stands here."""
        self._take(found)
        self._editor.keep(text)
        await self._editor.put(text)

    async def _mine(self) -> None:
        """Let what stands here replace what somebody else wrote, when it is saved."""
        if self._found and (found := await read(self._desk, self._found.id)):
            self._take(found)
            parts.tell("Saving replaces their change with yours")

    # ── Deleting ──

    async def _deleted(self, scenario_id: str) -> None:
        if not self._editor.is_kept and not await parts.confirm(
            "Delete it, with unsaved changes?",
            "The scenario can be restored for a day, what you have not saved cannot.",
            "Delete",
        ):
            return
        await self._desk.call(delete_scenario, scenario_id)
        self._editor.keep(self._editor.text)
        ui.navigate.to(address("/scenarios", deleted=scenario_id))

    async def _restored(self) -> None:
        if self._found:
            self._take(await self._desk.call(restore_scenario, self._found.id))


def _at_id(message: str, read: ReadScenario) -> Problem:
    return Problem(message, "id", read.line, read.column)
