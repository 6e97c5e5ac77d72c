"""Same: are two endpoints the same model? The form of a test, earlier tests, and one answer with its evidence."""

from collections.abc import Mapping, Sequence
from typing import Any

from nicegui import ui

from pramana.app.runs import cancel_run, read_progress, resume_run
from pramana.app.sameness import SameListView, SameView, list_tests, read_test, start_test
from pramana.app.suites import list_suites
from pramana.app.views import PageRequest
from pramana.report.markup import (
    Column,
    HtmlChild,
    SafeHtml,
    join_html,
    render_link,
    render_table,
    render_time,
    render_untrusted_text,
    render_with_sign,
    tag,
)
from pramana.request import Limits
from pramana.sameness import SamenessRequest
from pramana.show.web.kit import PageContext, frame, make_url, parts
from pramana.show.web.kit.forms import Field, Form, add_model_field, add_suggestions, add_unclamped_number_field
from pramana.show.web.pages.model_suggestions import ALWAYS_SUGGESTED_MODELS, MODEL_NAMES_HINT, suggest_models
from pramana.show.web.pages.run_controls import ask_limits_and_resume, find_reached_limit
from pramana.show.web.pages.runs import SIGNS_BY_STATUS
from pramana.show.web.pages.same_markup import render_answer, render_evidence, render_examples, render_progress
from pramana.store.queue import ACTIVE_STATUSES

MAX_LISTED_TESTS = 50
DEFAULT_CALLS = 400
POLL_INTERVAL_S = 1.0
"""How often the answer of a test under way is read again."""
RESUMABLE_STATUSES = ("stopped", "interrupted", "cancelled")


@frame.register_page("/same", "Same")
async def show_same_page(context: PageContext) -> None:
    """Show the form of a test, and earlier tests."""
    frame.add_page_heading(
        "Same",
        "Are two endpoints the same model? Both get the same calls in pairs, in random order; the answer comes today.",
    )
    if context.may(start_test):
        await _SameForm(context).draw()
    found = await context.call(list_tests, PageRequest(page_size=MAX_LISTED_TESTS))
    if not found.items and context.may(start_test):
        return
    parts.add_heading("Earlier tests")
    if not found.items:
        parts.add_paragraph("No tests yet.", quiet=True)
        return
    parts.add_markup(_render_tests(found.items))


def _render_tests(tests: Sequence[SameListView]) -> SafeHtml:
    columns = (
        Column("Test", is_row_header=True),
        Column("Status"),
        Column("Calls", is_numeric=True),
        Column("Started (UTC)"),
    )
    rows: list[tuple[HtmlChild, ...]] = []
    for each in tests:
        models = join_html((render_untrusted_text(model, 120) for model in each.models), " and ")
        name = tag("small", render_untrusted_text(each.name, 200), class_="quiet") if each.name else None
        sign, look = SIGNS_BY_STATUS[each.status]
        rows.append(
            (
                tag("div", render_link(make_url(f"/same/{each.run}"), models), name, class_="cell"),
                render_with_sign(sign, each.status, look),
                f"{each.calls:,} of at most {each.max_calls:,}",
                render_time(each.created_at),
            )
        )
    return render_table("Tests of two endpoints, newest first", columns, rows, hide_caption=True)


class _SameForm:
    """The form of a new test."""

    def __init__(self, context: PageContext) -> None:
        self._context = context

    async def draw(self) -> None:
        query = self._context.query
        suites = {suite.version: suite for suite in await self._context.call(list_suites)}
        tiers = {f"{version}/{tier}": f"{version}, {tier}" for version, suite in suites.items() for tier in suite.tiers}
        with Form(self._start) as self._form:
            with parts.open_box("fields"):
                self._first = add_model_field("First model", query.get("first", ""))
                self._second = add_model_field("Second model", query.get("second", ""))
            suggest = [add_suggestions(each, ALWAYS_SUGGESTED_MODELS) for each in (self._first, self._second)]
            parts.add_paragraph(MODEL_NAMES_HINT, quiet=True).classes("small")
            suggest_models(self._context, *suggest)
            with parts.open_box("fields"):
                self._calls = add_unclamped_number_field("Calls, at most", DEFAULT_CALLS, "Of both models together")
                self._budget = add_unclamped_number_field("Budget (USD, optional)", None, "Ends the test early")
                self._tier = parts.add_select("Prompts", tiers, next(iter(tiers), None))
                self._name = parts.add_text_field("Name (optional)")
            parts.add_paragraph(
                "The test ends as soon as a difference is proven, so a clear one costs less. A quarter of the calls "
                "looks for prompts whose one-word answer varies; these show a change best.",
                quiet=True,
            ).classes("small")
            with parts.open_box("row"):
                self._form.add_submit_button("Start test")

    async def _start(self) -> None:
        fields: dict[str, Field] = {
            "models": self._first if not str(self._first.value or "").strip() else self._second,
            "models[0]": self._first,
            "models[1]": self._second,
            "calls": self._calls,
            "limits.max_cost_usd": self._budget,
            "limits": self._budget,
            "name": self._name,
        }
        with self._form.show_errors_at(fields):
            suite, _, tier = str(self._tier.value or "").partition("/")
            request = SamenessRequest(
                models=tuple(str(each.value or "").strip() for each in (self._first, self._second)),
                calls=_to_int(self._calls.value),
                suite=suite or None,
                tier=tier or None,
                name=str(self._name.value or "").strip() or None,
                limits=Limits(max_cost_usd=self._budget.value),
            )
            made = await self._context.call(start_test, request)
            ui.navigate.to(make_url(f"/same/{made.run}"))


def _to_int(value: float | None) -> int:
    """Return a number as an integer, since number fields return floats; 0 for an empty field."""
    return 0 if value is None else int(value)


# ── One test ──


@frame.register_page("/same/{same_id}", "Test of two endpoints")
async def show_same_answer_page(context: PageContext) -> None:
    """Show the answer of a test, updated while it is under way."""
    page = _AnswerPage(context, await context.call(read_test, context.path["same_id"]))
    page.build()
    context.on_change({"run"}, page.refresh)


class _AnswerPage:
    """The answer, its evidence, and the replies of both endpoints."""

    def __init__(self, context: PageContext, view: SameView) -> None:
        self._context, self._view = context, view

    def build(self) -> None:
        first, second = self._view.models
        frame.set_window_title(f"{first[:36]} and {second[:36]}")
        title = join_html([render_untrusted_text(first, 120), " and ", render_untrusted_text(second, 120)])
        with frame.add_page_heading(title, crumbs=(("/same", "Same"),)):
            self._buttons = parts.Panel("row")
        self._progress = parts.add_markup(SafeHtml())
        self._answer = parts.add_markup(SafeHtml())
        self._evidence = parts.add_markup(SafeHtml())
        self._examples = parts.add_markup(SafeHtml())
        self._clock = ui.timer(POLL_INTERVAL_S, self._poll, active=False, immediate=False)
        self._draw()

    def _draw(self) -> None:
        view, active = self._view, self._view.status in ACTIVE_STATUSES
        self._progress.set_content(render_progress(view) if active else SafeHtml())
        self._answer.set_content(render_answer(view))
        self._evidence.set_content(render_evidence(view))
        self._examples.set_content(render_examples(view))
        self._buttons.redraw_if_changed(view.status, self._draw_actions)
        self._clock.active = active

    def _draw_actions(self) -> None:
        active = self._view.status in ACTIVE_STATUSES
        if active and self._context.may(cancel_run):
            parts.add_button("Cancel", self._cancel)
        if self._view.status in RESUMABLE_STATUSES and self._context.may(resume_run):
            parts.add_button("Resume", self._resume, "primary")
        parts.add_link_button("All replies", make_url(f"/runs/{self._view.run}"))
        if not active and self._context.may(start_test):
            first, second = self._view.models
            parts.add_link_button("Test again", make_url("/same", first=first, second=second.removesuffix(" (2)")))

    async def _poll(self) -> None:
        await parts.notify_on_error(self.refresh)()

    async def refresh(self) -> None:
        """Read the answer again."""
        found = await self._context.call(read_test, self._view.run, self._view.models)
        if not self._answer.is_deleted:
            self._view = found
            self._draw()

    async def _cancel(self) -> None:
        await self._context.call(cancel_run, self._view.run)
        parts.show_notification("Cancelling. Stored calls are kept, and you can resume the test.")
        await self.refresh()

    async def _resume(self) -> None:
        """Resume the test; if a limit ended it, with the limits that the user enters."""
        run = await self._context.call(read_progress, self._view.run)
        if reached := find_reached_limit(run):
            await ask_limits_and_resume(run, reached, self._resume_with_limits)
        else:
            await self._resume_with_limits(None)

    async def _resume_with_limits(self, limits: Mapping[str, Any] | None) -> None:
        await self._context.call(resume_run, self._view.run, limits)
        await self.refresh()
