"""Labelling: the replies of a run, one at a time and blind, for a person to judge with buttons or keys.

Shows the prompt, the criterion and the reply, and never the judge's verdict or the model. Every label is saved at once,
so labelling continues where it ended, also in another tab.
"""

import json
from collections.abc import Mapping
from functools import partial

from nicegui import ui

from pramana.analyse.labelling import DEFAULT_LABEL_COUNT
from pramana.app.judging import (
    LabellingRequest,
    LabellingView,
    LabelRequest,
    LabelTaskView,
    read_labelling,
    save_label,
)
from pramana.report.markup import SafeHtml, join_html, render_link, render_meter, render_untrusted_text, tag
from pramana.report.prose import render_plain_prose, render_reply
from pramana.show.web.kit import PageContext, frame, make_url, parts
from pramana.store.labels import LabelVerdict

MAX_MORE_REPLIES_TO_DRAW = 40
"""How many more replies the page offers to draw once all are labelled."""
VERDICTS_AND_CAPTIONS_BY_KEY: Mapping[str, tuple[LabelVerdict, str]] = {
    "y": ("yes", "Meets it"),
    "n": ("no", "Does not meet it"),
    "u": ("unsure", "Unsure"),
}
"""The verdict and the caption of the button of each key."""
_PRESS_KEY_HANDLER = """(event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target.closest?.("input, textarea, select, [contenteditable], [role=dialog]")) return;
  if (document.querySelector("#label-keys [role=checkbox]")?.getAttribute("aria-checked") !== "true") return;
  const button = document.querySelector(`button[aria-keyshortcuts="${event.key.toLowerCase()}"]`);
  if (!button || button.disabled) return;
  event.preventDefault();
  button.click();
}"""
_LISTEN_SCRIPT = f"document.addEventListener('keydown', {_PRESS_KEY_HANDLER})"


@frame.register_page("/judges/{judged_id}/label", "Label replies", read_labelling, save_label)
async def show_labelling_page(context: PageContext) -> None:
    """Show the next reply of a run to label."""
    page = _LabellingPage(context)
    page.build(await page.read())


class _LabellingPage:
    """The page: a reply at a time, buttons that stay where they are, and what was skipped in this tab."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._run_id = context.path["judged_id"]
        asked = context.query.get("count", "")
        self._count = int(asked) if asked.isascii() and asked.isdigit() and int(asked[:7]) > 0 else DEFAULT_LABEL_COUNT
        self._shown: list[str] = []
        """Replies shown before, for going back."""
        self._skipped: list[str] = []
        self._view: LabellingView | None = None

    async def read(self, task: str | None = None) -> LabellingView:
        """Return the next reply without a label, or the named one."""
        request = LabellingRequest(count=self._count, task=task, skip=tuple(self._skipped[-1000:]))
        return await self._context.call(read_labelling, self._run_id, request)

    def build(self, view: LabellingView) -> None:
        """Draw the page around the first reply."""
        crumbs = (("/judges", "Judges"), (make_url(f"/judges/{view.run_id}"), view.suite))
        frame.add_page_heading(
            "Label replies",
            "Judge each reply by its criterion. You see neither the model nor the judge's verdict.",
            crumbs,
        )
        self._progress = parts.add_markup(SafeHtml()).props("role=status")
        self._reply = parts.add_markup(SafeHtml(), classes="label-task").props("id=label-task tabindex=-1")
        with parts.open_box("label-bar stack") as self._bar:
            with parts.open_box("row"):
                for key, (label, words) in VERDICTS_AND_CAPTIONS_BY_KEY.items():
                    self._add_key_button(key, words, partial(self._label, label))
                self._add_key_button("s", "Skip", self._skip, "plain")
                self._add_key_button("b", "Back", self._go_back, "plain")
            self._note = parts.add_text_field("Note (optional)").classes("wide").props("maxlength=2000")
        with parts.open_box("", label="Keys") as keys:
            keys.props("id=label-keys")
            parts.add_checkbox("Use the keys y, n, u, s and b", value=True)
        self._end = ui.element("div")
        ui.run_javascript(_LISTEN_SCRIPT)
        self._keys = keys
        self._show(view)

    def _add_key_button(self, key: str, words: str, handler: parts.ButtonHandler, kind: parts.ButtonKind = "") -> None:
        made = parts.add_button(f"{words} ({key})", handler, kind)
        made.props["aria-keyshortcuts"] = key

    def _show(self, view: LabellingView) -> None:
        self._view = view
        self._progress.set_content(_render_progress(view))
        self._bar.set_visibility(view.task is not None)
        self._keys.set_visibility(view.task is not None)
        self._note.set_value(view.task.note if view.task else "")
        self._reply.set_content(_render_task(view.task) if view.task else SafeHtml())
        with parts.redraw(self._end):
            if view.task is None:
                self._draw_end(view)
        ui.run_javascript(
            "window.scrollTo(0, Math.min(scrollY, document.getElementById('label-task').offsetTop - 16));"
            f"document.title = {json.dumps(_describe_progress(view))}"
        )

    def _draw_end(self, view: LabellingView) -> None:
        skipped = view.drawn - view.labelled
        words = f"{skipped:,} skipped." if skipped else "Every drawn reply has your label."
        with parts.open_empty_state("No reply is left", words):
            parts.add_link_button("Report on the judge", make_url(f"/judges/{view.run_id}"), "primary")
            if skipped:
                parts.add_button("Show the skipped replies", self._show_skipped)
            if view.drawn < view.judged:
                more = min(MAX_MORE_REPLIES_TO_DRAW, view.judged - view.drawn)
                parts.add_link_button(f"Draw {more:,} more", self._context.make_page_url(count=view.drawn + more))

    # ── Actions ──

    async def _label(self, label: LabelVerdict) -> None:
        if self._view is None or self._view.task is None:
            return
        task = self._view.task.task
        request = LabelRequest(task=task, label=label, note=str(self._note.value or "").strip())
        await self._context.call(save_label, self._run_id, request)
        self._skipped = [each for each in self._skipped if each != task]
        self._shown.append(task)
        self._show(await self.read())

    async def _skip(self) -> None:
        if self._view and self._view.task:
            self._shown.append(self._view.task.task)
            self._skipped.append(self._view.task.task)
            self._show(await self.read())

    async def _go_back(self) -> None:
        if not self._shown:
            parts.show_notification("This is the first reply of this visit.")
            return
        self._show(await self.read(self._shown.pop()))

    async def _show_skipped(self) -> None:
        self._skipped.clear()
        self._show(await self.read())


# ── Markup ──


def _describe_progress(view: LabellingView) -> str:
    return f"{view.labelled:,} of {view.drawn:,} labelled · Pramana"


def _render_progress(view: LabellingView) -> SafeHtml:
    unsure = f", {view.unsure:,} of them unsure" if view.unsure else ""
    drawn = f"drawn from {view.judged:,} judged replies, half of them from those that the judge failed"
    return tag(
        "div",
        render_meter("Replies labelled", view.labelled, view.drawn),
        tag(
            "p",
            f"{view.labelled:,} of {view.drawn:,} labelled by ",
            render_untrusted_text(view.rater, 100),
            f"{unsure}; {drawn if view.drawn < view.judged else 'these are all judged replies'}.",
            class_="small quiet",
        ),
        class_="stack",
    )


def _render_task(task: LabelTaskView) -> SafeHtml:
    prompt = [
        join_html([tag("h3", each.role.capitalize()), render_plain_prose(each.text, f"Message of the {each.role}")])
        for each in task.turns
    ]
    again = tag("p", f"Your label so far: {task.label}.", class_="warn") if task.label else None
    sound = tag("p", render_link(task.recording, "Recording of the call"), class_="small") if task.recording else None
    called = [
        tag("p", "Tool call: ", render_untrusted_text(f"{each.name}({each.arguments})", 2000), class_="mono small")
        for each in task.tool_calls
    ]
    right = [
        join_html(
            [tag("h3", "Example of a right reply"), render_plain_prose(each, f"Example {number} of a right reply")]
        )
        for number, each in enumerate(task.ideals, 1)
    ]
    return tag(
        "div",
        again,
        tag("section", tag("h2", task.heading), render_plain_prose(task.question, task.heading)),
        tag(
            "div",
            tag("section", tag("h2", "Prompt"), prompt),
            tag("section", tag("h2", "Reply"), render_reply(task.reply, "Reply"), called, sound, right),
            class_="halves",
        ),
        tag("p", "Case ", render_untrusted_text(task.case_id, 200), class_="small quiet below"),
    )
