"""An editor for a YAML document: problems are marked on their lines as the user types, and listed below.

The page that contains it receives the result of every check. Leaving the page with unsaved text asks for confirmation,
and reloading the page restores that text.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nicegui import ui

from pramana.app.scenarios import LocatedValidScenario, validate_document
from pramana.errors import Problem
from pramana.report.markup import SafeHtml, join_html, render_untrusted_text, render_with_sign, tag
from pramana.show.web.kit import parts
from pramana.show.web.kit.page_context import PageContext, UseCaseRefused

CHECK_DEBOUNCE_S = 0.3
"""Seconds without typing before the text is checked."""
MAX_DOCUMENT_CHARS = 250_000
"""Maximum length in characters: a browser's message may have 1 MB, and a character takes three bytes or more."""
MAX_LISTED_PROBLEMS = 200
"""Problems listed below the editor; all are marked on their lines."""
_EDITOR_SCRIPT = Path(__file__).with_name("yaml_editor.js").read_text(encoding="utf-8")
_JUMP_TO_LINE_HANDLER = """(event) => {
  const found = event.target.closest("button[data-line]");
  if (found) pramanaEditor.go(%d, Number(found.dataset.line), Number(found.dataset.column));
}"""


@dataclass(frozen=True, slots=True)
class CheckedDocument:
    """A document with the results of its check."""

    text: str
    problems: Sequence[Problem] = ()
    valid_scenarios: Sequence[LocatedValidScenario] = ()
    """Its valid scenarios."""
    page_problems: Sequence[Problem] = ()
    """Problems that only the page can find."""

    @property
    def all_problems(self) -> Sequence[Problem]:
        return [*self.problems, *self.page_problems]

    @property
    def is_valid(self) -> bool:
        return not any(map(is_error, self.all_problems))


def is_error(problem: Problem) -> bool:
    """Return whether a problem is an error, not a warning."""
    return problem.severity == "error"


async def check_document(context: PageContext, text: str) -> CheckedDocument:
    """Check a document; a refusal to check it is returned as a problem too."""
    try:
        found = await context.call(validate_document, text)
    except UseCaseRefused as error:
        return CheckedDocument(text, [Problem(str(error))])
    return CheckedDocument(text, found.problems, found.valid_scenarios)


class YamlEditor:
    """A YAML editor with live checks."""

    def __init__(
        self,
        context: PageContext,
        label: str,
        text: str,
        on_check: Callable[[CheckedDocument], Awaitable[None]],
        *,
        extra_check: Callable[[CheckedDocument], Awaitable[list[Problem]]] | None = None,
        on_touch: Callable[[], None] = lambda: None,
        may_be_empty: bool = False,
    ) -> None:
        """Add an editor; `extra_check` finds problems only the page can know, `on_touch` is called at every change."""
        self._context, self._on_check, self._extra_check, self._on_touch = context, on_check, extra_check, on_touch
        self._may_be_empty = may_be_empty
        self._turn = self._puts = 0
        self.saved_text = text
        ui.add_body_html(f"<script>{_EDITOR_SCRIPT}</script>")
        self._notice = ui.element("div")
        self._box = ui.codemirror(
            text, language="YAML", indent="  ", line_wrapping=True, on_change=lambda _: self._on_input()
        ).classes("yaml")
        hint = parts.add_paragraph(
            "Tab indents; Escape, then Tab, leaves the editor. Comments are not kept.",
            quiet=True,
        ).classes("small")
        with parts.open_box("problems-box", role="status"):
            self._summary = ui.html("")
        self._list = ui.html("").classes("problems")
        self._list.on("click", js_handler=_JUMP_TO_LINE_HANDLER % self._box.id)
        self._box.on("toolong", lambda _: parts.show_notification(_TOO_LONG_MESSAGE, "negative"))
        self._box.on("draft", lambda _: self._show_restored_draft_notice())
        named = {"label": label, "hint": f"c{hint.id}", "most": MAX_DOCUMENT_CHARS}
        ui.run_javascript(f"pramanaEditor.begin({self._box.id}, {json.dumps(named)})")

    @property
    def text(self) -> str:
        """The text in the editor."""
        return self._box.value or ""

    @property
    def is_saved(self) -> bool:
        return self.text == self.saved_text

    def mark_saved(self, text: str) -> None:
        """Set the saved version: only text that differs from it counts as unsaved."""
        self.saved_text = text
        self._box.client.run_javascript(f"pramanaEditor.keep({self._box.id}, {json.dumps(text)})")
        self._notice.clear()

    async def replace_text(self, text: str) -> None:
        """Replace the document and check it."""
        clean = normalise_line_breaks(text)
        if clean != self.text:
            self._puts += 1
            self._box.set_value(clean)
        await self.check()

    async def check(self) -> None:
        """Check the text, mark its problems and notify the page."""
        text = self.text
        found = await self.check_text(text)
        if text == self.text:  # otherwise it has changed meanwhile and will be checked again
            self.show_problems(found)
            await self._on_check(found)

    async def check_text(self, text: str) -> CheckedDocument:
        """Return a text with the results of its check."""
        if self._may_be_empty and not text.strip():
            return CheckedDocument(text)
        found = await check_document(self._context, text)
        return replace(found, page_problems=await self._extra_check(found)) if self._extra_check else found

    def show_problems(self, checked: CheckedDocument) -> None:
        """Mark the problems and list them below."""
        every = checked.all_problems
        marks = [
            {**_make_marker_position(each), "message": each.message, "warned": not is_error(each)}
            for each in every
            if each.line
        ]
        self._box.client.run_javascript(f"pramanaEditor.mark({self._box.id}, {json.dumps(marks)})")
        self._summary.set_content(_render_summary(checked))
        more = len(every) - MAX_LISTED_PROBLEMS
        told = [
            render_problems(every[:MAX_LISTED_PROBLEMS]),
            tag("p", f"and {more:,} more", class_="quiet") if more > 0 else None,
        ]
        self._list.set_content(join_html(told))

    async def _on_input(self) -> None:
        if self._puts:  # set by `replace_text`, which checks it itself
            self._puts -= 1
            return
        if len(self._box.value or "") > MAX_DOCUMENT_CHARS:  # our script never sends this much
            await self.replace_text(self.saved_text)
            return
        self._on_touch()
        self._turn += 1
        turn = self._turn
        await asyncio.sleep(CHECK_DEBOUNCE_S)
        if turn == self._turn:
            await self.check()

    def _show_restored_draft_notice(self) -> None:
        async def discard() -> None:
            await self.replace_text(self.saved_text)
            self.mark_saved(self.saved_text)

        with self._notice, parts.open_box("warn row spread", role="status"):
            parts.add_paragraph("Your unsaved changes from before the page was reloaded are restored.")
            parts.add_button("Discard changes", discard, small=True)


_TOO_LONG_MESSAGE = (
    f"The text would exceed the limit of {MAX_DOCUMENT_CHARS:,} characters for this page: import it as a file"
)


def normalise_line_breaks(text: str) -> str:
    """Return a document with line breaks as the editor counts them.

    >>> normalise_line_breaks("a\\r\\nb\\rc")
    'a\\nb\\nc'
    """
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def render_problems(problems: Sequence[Problem], *, as_buttons: bool = True) -> SafeHtml:
    """Return problems with their places; as buttons, they jump to their lines."""
    return (
        tag("ul", (tag("li", _render_problem(each, as_button=as_buttons)) for each in problems))
        if problems
        else SafeHtml("")
    )


def describe_problem_counts(problems: Sequence[Problem]) -> str:
    """Return how many errors and warnings there are.

    >>> describe_problem_counts([Problem("a"), Problem("b", severity="warning")])
    '1 error, 1 warning'
    """
    errors = sum(map(is_error, problems))
    both = ((errors, "error"), (len(problems) - errors, "warning"))
    return ", ".join(f"{count:,} {word}{'' if count == 1 else 's'}" for count, word in both if count)


def _render_summary(checked: CheckedDocument) -> SafeHtml:
    if not checked.text.strip() and not checked.all_problems:
        return SafeHtml("")
    if not checked.all_problems:
        return render_with_sign("✓", "No errors", "passed")
    sign, look = ("!", "errored") if checked.is_valid else ("✗", "failed")
    return render_with_sign(sign, describe_problem_counts(checked.all_problems), look)


def _render_problem(problem: Problem, *, as_button: bool) -> SafeHtml:
    place = _make_marker_position(problem)
    where = f"{place['line']}:{place['column']}" if place["line"] else ""
    words = join_html(
        [
            tag("span", where, class_="mono") if where else None,
            " warning: " if not is_error(problem) else " ",
            render_untrusted_text(problem.message),
        ]
    )
    if not (as_button and where):
        return words
    return tag(
        "button", words, type="button", class_="native plain", data_line=place["line"], data_column=place["column"]
    )


def _make_marker_position(problem: Problem) -> dict[str, int]:
    return {"line": problem.line, "column": problem.column or 1}
