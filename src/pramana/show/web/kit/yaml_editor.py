"""An editor for a YAML document: what is wrong is marked on its line as one types, and told below with its place.

The page that holds one hears of every check. What was typed and not kept is asked about before the page is left, and is
there again when the page is reloaded.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nicegui import ui

from pramana.app.scenarios import ReadScenario, validate_document
from pramana.errors import Problem
from pramana.report.markup import Safe, foreign, join, marked, tag
from pramana.show.web.kit import parts
from pramana.show.web.kit.desk import Desk, Refused

SETTLED_S = 0.3
"""How long nothing is typed before it is checked."""
LONGEST = 250_000
"""Characters of a document here: a message from a browser may have a megabyte, and a character three bytes or more."""
MOST_TOLD = 200
"""Of what is wrong, below the editor; its lines are marked all."""
_SCRIPT = Path(__file__).with_name("yaml_editor.js").read_text(encoding="utf-8")
_GO = """(event) => {
  const found = event.target.closest("button[data-line]");
  if (found) pramanaEditor.go(%d, Number(found.dataset.line), Number(found.dataset.column));
}"""


@dataclass(frozen=True, slots=True)
class Checked:
    """What a document is worth."""

    text: str
    problems: Sequence[Problem] = ()
    read: Sequence[ReadScenario] = ()
    """Its valid scenarios."""
    also: Sequence[Problem] = ()
    """What only the page knows to be wrong."""

    @property
    def every(self) -> Sequence[Problem]:
        return [*self.problems, *self.also]

    @property
    def valid(self) -> bool:
        return not any(map(is_error, self.every))


def is_error(problem: Problem) -> bool:
    """Tell whether a problem is more than a warning."""
    return problem.severity == "error"


async def check(desk: Desk, text: str) -> Checked:
    """Return what a document is worth; what is not even looked at is a problem too."""
    try:
        found = await desk.call(validate_document, text)
    except Refused as error:
        return Checked(text, [Problem(str(error))])
    return Checked(text, found.problems, found.read)


class YamlEditor:
    """One such editor on a page."""

    def __init__(
        self,
        desk: Desk,
        label: str,
        text: str,
        heard: Callable[[Checked], Awaitable[None]],
        *,
        also: Callable[[Checked], Awaitable[list[Problem]]] | None = None,
        touched: Callable[[], None] = lambda: None,
        may_be_empty: bool = False,
    ) -> None:
        """Put an editor; `also` finds what only the page knows to be wrong, `touched` hears of every change at once."""
        self._desk, self._heard, self._also, self._touched = desk, heard, also, touched
        self._may_be_empty = may_be_empty
        self._turn = self._puts = 0
        self.kept = text
        ui.add_body_html(f"<script>{_SCRIPT}</script>")
        self._notice = ui.element("div")
        self._box = ui.codemirror(
            text, language="YAML", indent="  ", line_wrapping=True, on_change=lambda _: self._typed()
        ).classes("yaml")
        hint = parts.paragraph(
            "Tab indents; Escape, then Tab, leaves the editor. Comments are not kept.",
            quiet=True,
        ).classes("small")
        with parts.box("problems-box", role="status"):
            self._summary = ui.html("")
        self._list = ui.html("").classes("problems")
        self._list.on("click", js_handler=_GO % self._box.id)
        self._box.on("toolong", lambda _: parts.tell(_TOO_LONG, "negative"))
        self._box.on("draft", lambda _: self._say_of_draft())
        named = {"label": label, "hint": f"c{hint.id}", "most": LONGEST}
        ui.run_javascript(f"pramanaEditor.begin({self._box.id}, {json.dumps(named)})")

    @property
    def text(self) -> str:
        """What stands in it."""
        return self._box.value or ""

    @property
    def is_kept(self) -> bool:
        return self.text == self.kept

    def keep(self, text: str) -> None:
        """Take what is kept now: from here on only what differs from it is unsaved."""
        self.kept = text
        self._box.client.run_javascript(f"pramanaEditor.keep({self._box.id}, {json.dumps(text)})")
        self._notice.clear()

    async def put(self, text: str) -> None:
        """Put another document in the place of this one, and check it."""
        clean = as_lines(text)
        if clean != self.text:
            self._puts += 1
            self._box.set_value(clean)
        await self.check()

    async def check(self) -> None:
        """Check what stands in it, mark what is wrong, and tell the page."""
        text = self.text
        found = await self.examine(text)
        if text == self.text:  # else somebody types, and it is checked again
            self.show(found)
            await self._heard(found)

    async def examine(self, text: str) -> Checked:
        """Return what a text is worth."""
        if self._may_be_empty and not text.strip():
            return Checked(text)
        found = await check(self._desk, text)
        return replace(found, also=await self._also(found)) if self._also else found

    def show(self, found: Checked) -> None:
        """Mark what is wrong, and tell it below."""
        every = found.every
        marks = [{**_place(each), "message": each.message, "warned": not is_error(each)} for each in every if each.line]
        self._box.client.run_javascript(f"pramanaEditor.mark({self._box.id}, {json.dumps(marks)})")
        self._summary.set_content(_summary(found))
        more = len(every) - MOST_TOLD
        told = [
            listed(every[:MOST_TOLD]),
            tag("p", f"and {more:,} more", class_="quiet") if more > 0 else None,
        ]
        self._list.set_content(join(told))

    async def _typed(self) -> None:
        if self._puts:  # nobody has typed: it was put, and is being checked
            self._puts -= 1
            return
        if len(self._box.value or "") > LONGEST:  # no browser of ours sends so much
            await self.put(self.kept)
            return
        self._touched()
        self._turn += 1
        turn = self._turn
        await asyncio.sleep(SETTLED_S)
        if turn == self._turn:
            await self.check()

    def _say_of_draft(self) -> None:
        async def forget() -> None:
            await self.put(self.kept)
            self.keep(self.kept)

        with self._notice, parts.box("warn row spread", role="status"):
            parts.paragraph("What you had typed before this page was loaded again is back. It is not saved.")
            parts.button("Forget it", forget, small=True)


_TOO_LONG = f"This would be longer than {LONGEST:,} characters, which is too much for this page: import it as a file"


def as_lines(text: str) -> str:
    """Return a document with the line breaks an editor counts by.

    >>> as_lines("a\\r\\nb\\rc")
    'a\\nb\\nc'
    """
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def listed(problems: Sequence[Problem], *, buttons: bool = True) -> Safe:
    """Return problems with their places; as buttons, they lead to their lines."""
    return tag("ul", (tag("li", _problem(each, button=buttons)) for each in problems)) if problems else Safe("")


def counted(problems: Sequence[Problem]) -> str:
    """Return how many errors and warnings there are.

    >>> counted([Problem("a"), Problem("b", severity="warning")])
    '1 error, 1 warning'
    """
    errors = sum(map(is_error, problems))
    both = ((errors, "error"), (len(problems) - errors, "warning"))
    return ", ".join(f"{count:,} {word}{'' if count == 1 else 's'}" for count, word in both if count)


def _summary(found: Checked) -> Safe:
    if not found.text.strip() and not found.every:
        return Safe("")
    if not found.every:
        return marked("✓", "Nothing is wrong", "passed")
    sign, look = ("!", "errored") if found.valid else ("✗", "failed")
    return marked(sign, counted(found.every), look)


def _problem(each: Problem, *, button: bool) -> Safe:
    place = _place(each)
    where = f"{place['line']}:{place['column']}" if place["line"] else ""
    words = join(
        [
            tag("span", where, class_="mono") if where else None,
            " warning: " if not is_error(each) else " ",
            foreign(each.message),
        ]
    )
    if not (button and where):
        return words
    return tag(
        "button", words, type="button", class_="native plain", data_line=place["line"], data_column=place["column"]
    )


def _place(each: Problem) -> dict[str, int]:
    return {"line": each.line, "column": each.column or 1}
