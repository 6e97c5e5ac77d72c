"""The list of runs: newest first, with filters, updated live as runs arrive and progress.

Filters are in the address, so a list can be shared. Updates change the existing rows in place, so reading position and
keyboard focus stay where they are.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import asdict
from nicegui import ui

from pramana.analyse.labels import label_models
from pramana.app.runs import RunFilter, create_run, list_runs
from pramana.app.views import ListPage, RunView
from pramana.report.figures import describe_selection
from pramana.report.markup import (
    SafeHtml,
    join_html,
    render_link,
    render_meter,
    render_outcome,
    render_pager,
    render_rate_bar,
    render_rate_text,
    render_time,
    render_untrusted_text,
    render_with_sign,
    tag,
)
from pramana.show.api.envelope import make_page_meta
from pramana.show.web.kit import PageContext, UseCaseRefused, frame, make_url, parts
from pramana.show.web.kit.forms import add_suggestions
from pramana.store.queue import ACTIVE_STATUSES

PAGE_SIZE = 50
POLL_INTERVAL_S = 1.0
"""How often the list is read again while a run on it is under way."""
SEARCH_DEBOUNCE_MS = 400
"""How long to wait after the last key before searching."""
SIGNS_BY_STATUS: Mapping[str, tuple[str, str]] = {
    "queued": ("…", ""),
    "running": ("▸", "running"),
    "finished": ("✓", ""),
    "stopped": ("!", "errored"),
    "interrupted": ("!", "errored"),
    "cancelled": ("–", "skipped"),
}
"""The sign and the colour class of each status; its word is always shown too."""
FILTER_NAMES = ("text", "status", "model", "suite")
MAX_SHOWN_MODELS = 4
"""The most models listed per run."""
MAX_MODELS_WITH_SHOWN_RATES = 3
"""The most models of a run whose rates are listed."""
MAX_MODEL_NAME_CHARS = 28
"""Characters of a model's name beside its rate."""
COLUMN_HEADINGS = ("Run", "Models", "Status", "Passed", "Results", "Started (UTC)")


@frame.register_page("/runs", "Runs")
async def show_runs_page(context: PageContext) -> None:
    """Show the runs that match the filters of the address."""
    listed = _RunList(context)
    found = await listed.read_page()
    with frame.add_page_heading("Runs", "All runs from the command line, the API and this workbench."):
        if context.may(create_run):
            parts.add_link_button("New run", "/runs/new", "primary")
    listed.draw(found)
    context.on_change({"run"}, listed.refresh)


class _RunList:
    """One page of the list."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._wanted: dict[str, str | None] = {name: context.query.get(name) for name in (*FILTER_NAMES, "page")}
        self._asked = 0

    def read_filter(self, name: str) -> str:
        return self._wanted[name] or ""

    def make_list_url(self, **changed: Any) -> str:
        """Return the address of this list with parameters replaced."""
        return make_url("/runs", **{**self._wanted, **changed})

    async def read_page(self) -> ListPage[RunView]:
        wanted = self._context.read_request(RunFilter, self._wanted, page_size=PAGE_SIZE, outcomes=True)
        return await self._context.call(list_runs, wanted)

    async def change_filter(self, name: str, value: str | None) -> None:
        """Change a filter and the address, and return to the first page."""
        value = (value or "").strip() or None
        if value != self._wanted[name]:
            self._wanted |= {name: value, "page": None}
            ui.navigate.history.replace(self.make_list_url())
            await self.refresh()

    # ── Page ──

    def draw(self, page: ListPage[RunView]) -> None:
        """Draw the filters and the list."""
        self._filters = _draw_filters(self, page.items)
        self._stale = parts.add_markup(SafeHtml("")).props("role=status")
        self._place = ui.element("div")
        self._table: LiveTable | None = None
        self._pager = parts.add_markup(SafeHtml("")).props("aria-live=polite")
        self._clock = ui.timer(POLL_INTERVAL_S, self.refresh, active=False, immediate=False)
        self._show_page(page)

    async def refresh(self) -> None:
        """Read the list again and show what has changed; an older response never replaces a newer one."""
        self._asked += 1
        asked = self._asked
        try:
            found = await self.read_page()
        except UseCaseRefused as error:
            if asked == self._asked:
                self._stale.set_content(
                    tag("p", render_untrusted_text(parts.describe_refusal(error)), class_="warn trouble")
                )
            return
        if asked == self._asked and not self._place.is_deleted:
            self._stale.set_content("")
            self._show_page(found)

    def _show_page(self, page: ListPage[RunView]) -> None:
        if page.items:
            if self._table is None:
                with parts.redraw(self._place):
                    self._table = LiveTable("Runs, newest first", COLUMN_HEADINGS, "Compare")
            self._table.update_rows({run.id: _render_run_row(run) for run in page.items})
        else:
            self._table = None
            with parts.redraw(self._place):
                self._draw_empty_state(page.total)
        self._filters.set_visibility(bool(page.total or any(self._wanted[name] for name in FILTER_NAMES)))
        self._pager.set_content(
            render_pager(
                make_page_meta(int(self._wanted["page"] or 1), PAGE_SIZE, page.total), self.make_list_url, "runs"
            )
            if page.items
            else ""
        )
        self._clock.active = any(run.status in ACTIVE_STATUSES for run in page.items)

    def _draw_empty_state(self, total_count: int) -> None:
        if total_count:
            with parts.open_empty_state("This page is empty", f"There are {total_count:,} runs, on earlier pages."):
                parts.add_link_button("First page", self.make_list_url(page=None))
        elif any(self._wanted[name] for name in FILTER_NAMES):
            with parts.open_empty_state("No runs match", "No run matches all of these filters."):
                parts.add_link_button("Clear filters", "/runs")
        else:
            about = "A run sends test cases or scenarios to models and checks their replies."
            with parts.open_empty_state("No runs yet", about):
                if self._context.may(create_run):
                    parts.add_link_button("New run", "/runs/new", "primary")
                command = tag("code", "pramana run", class_="mono")
                parts.add_markup(tag("span", "or, in a terminal: ", command, class_="quiet"))


def _draw_filters(run_list: _RunList, runs_: Sequence[RunView]) -> ui.element:
    with parts.open_box("filters", role="search", label="Runs") as made:
        searched = partial(run_list.change_filter, "text")
        parts.add_text_field("Search", run_list.read_filter("text"), searched).props(f"debounce={SEARCH_DEBOUNCE_MS}")
        chosen = partial(run_list.change_filter, "status")
        parts.add_select(
            "Status", list(SIGNS_BY_STATUS), run_list.read_filter("status") or None, chosen, clearable=True
        )
        _add_filter_with_suggestions(run_list, "model", "Model", (model for run in runs_ for model in run.models))
        _add_filter_with_suggestions(run_list, "suite", "Suite", (run.suite for run in runs_))
    return made


def _add_filter_with_suggestions(run_list: _RunList, filter_name: str, label: str, suggestions: Iterable[str]) -> None:
    """Add a filter for a name as typed in runs; names on the page are suggested."""
    made = parts.add_text_field(label, run_list.read_filter(filter_name))
    made.on("change", lambda event: parts.notify_on_error(run_list.change_filter)(filter_name, event.args))
    add_suggestions(made, suggestions)


# ── Table ──


class LiveTable:
    """A table that updates in place: only cells that differ are redrawn.

    `aside` labels a last column without a visible header, for screen readers; `name` is the class of its widths.
    """

    def __init__(self, caption: str, columns: Sequence[str], aside: str | None = None, name: str = "runs") -> None:
        self._columns = columns
        self._rows: dict[str, tuple[ui.element, list[ui.html]]] = {}
        with ui.element("table").classes(f"data folds {name}"):
            ui.html(caption, tag="caption").classes("visually-hidden")
            with ui.element("thead"), ui.element("tr"):
                for each in columns:
                    ui.html(each, tag="th").props("scope=col")
                if aside:
                    ui.html(tag("span", aside, class_="visually-hidden"), tag="th").props("scope=col")
            self._body = ui.element("tbody")

    def update_rows(self, rows: Mapping[str, Sequence[SafeHtml]]) -> None:
        """Show these rows in this order; existing rows keep theirs."""
        for gone in self._rows.keys() - rows.keys():
            self._rows.pop(gone)[0].delete()
        for place, (key, cells) in enumerate(rows.items()):
            if key in self._rows:
                for shown, cell in zip(self._rows[key][1], cells, strict=True):
                    shown.set_content(cell)
                continue
            with self._body, ui.element("tr") as row:
                self._rows[key] = row, [self._add_cell(at, cell) for at, cell in enumerate(cells)]
            if place < len(self._rows) - 1:
                row.move(target_index=place)

    def _add_cell(self, column_index: int, cell: SafeHtml) -> ui.html:
        if column_index == 0:
            return ui.html(cell, tag="th").props("scope=row")
        made = ui.html(cell, tag="td")
        if column_index < len(self._columns):
            made.props["data-label"] = self._columns[column_index]
        return made


def _render_run_row(run: RunView) -> tuple[SafeHtml, ...]:
    compared = f"Compare {run.id} with another run"
    chosen = describe_selection(run.selection)
    by = render_untrusted_text(run.creator, 80) if run.creator else "the command line"
    return (
        _render_stacked_cell(
            render_link(make_url(f"/runs/{run.id}"), render_untrusted_text(run.name or run.suite, 200)),
            tag("small", render_untrusted_text(run.suite, 200), class_="quiet clip") if run.name else None,
            tag("small", render_untrusted_text(run.note, 200), class_="quiet clip") if run.note else None,
            tag("small", render_untrusted_text(chosen, 200), class_="quiet clip") if chosen else None,
            tag("small", run.id, class_="mono quiet"),
        ),
        _render_models(run),
        render_status(run),
        render_pass_rates(run),
        _render_progress(run),
        _render_stacked_cell(render_time(run.created_at), tag("small", "by ", by, class_="quiet")),
        tag("a", "Compare", href=make_url("/compare", new=run.id), aria_label=compared),
    )


def _render_models(run: RunView) -> SafeHtml:
    how = (
        []
        if run.variants == ("text",)
        else [join_html((render_untrusted_text(each, 80) for each in run.variants), ", ")]
    )
    if run.repeats > 1:
        how.append(SafeHtml(f"{run.repeats:,} repeats"))
    return _render_stacked_cell(
        *(render_untrusted_text(each, 200) for each in run.models[:MAX_SHOWN_MODELS]),
        f"and {len(run.models) - MAX_SHOWN_MODELS} more" if len(run.models) > MAX_SHOWN_MODELS else None,
        tag("small", join_html(how, "; "), class_="quiet") if how else None,
    )


def render_status(run: RunView) -> SafeHtml:
    """Return the status of a run: sign, word, and the reason if it ended early."""
    return _render_stacked_cell(
        render_status_inline(run),
        tag("small", render_untrusted_text(run.reason, 300), class_="quiet") if run.reason else None,
    )


def render_status_inline(run: RunView) -> SafeHtml:
    """Return the status of a run as inline text: sign and word."""
    named = str(run.status)
    sign, colour = SIGNS_BY_STATUS[named]
    word = "cancelling" if run.cancel_requested and named in ACTIVE_STATUSES else named
    return render_with_sign(sign, word, colour)


def render_pass_rates(run: RunView) -> SafeHtml:
    """Return the pass rate of a run; with several models the rate of each, since rates of several are never pooled."""
    if run.is_endpoint_test:
        return render_link(make_url(f"/same/{run.id}"), "Test of two endpoints")
    counts = asdict(run.outcomes) if run.outcomes else {}
    if not any(counts.values()):
        return tag("span", "–", class_="quiet")
    undecided = [render_outcome(name, counts[name]) for name in ("errored", "unscored", "skipped") if counts[name]]
    rates: list[SafeHtml | None]
    if len(run.models) > 1:
        rates = [*_render_model_rates(run)]
    else:
        bar = render_rate_bar(run.pass_rate, run.interval) if run.pass_rate is not None else None
        rates = [render_rate_text(run.pass_rate, run.interval), bar]
    return _render_stacked_cell(
        *rates,
        tag("small", run.calibration, class_="quiet") if run.calibration else None,
        tag("small", join_html(undecided, " "), class_="undecided") if undecided else None,
    )


def _render_model_rates(run: RunView) -> list[SafeHtml]:
    """Return the pass rate of each model, in their order; of more than a few, a link to the run, which has them."""
    found = run.model_rates or ()
    if len(found) > MAX_MODELS_WITH_SHOWN_RATES:
        return [render_link(make_url(f"/runs/{run.id}"), f"{len(found):,} models")]
    names = label_models([each.model for each in found], MAX_MODEL_NAME_CHARS)
    return [
        tag(
            "div",
            tag("small", render_untrusted_text(names[each.model]), class_="quiet"),
            render_rate_text(each.pass_rate, each.interval),
            class_="model-rate",
        )
        for each in found
    ]


def render_result_count(run: RunView) -> SafeHtml:
    """Return how many results a run has, and of how many unless it is a test of two endpoints that has its answer."""
    is_complete = run.is_endpoint_test and run.status == "finished"
    return tag("span", f"{run.stored:,}" if is_complete else f"{run.stored:,} of {run.expected:,}", class_="number")


def _render_progress(run: RunView) -> SafeHtml:
    counted = render_result_count(run)
    if run.status not in ACTIVE_STATUSES:
        return counted
    return _render_stacked_cell(counted, render_meter(f"Results of {run.id}", round(100 * run.progress)))


def _render_stacked_cell(*lines: SafeHtml | str | None) -> SafeHtml:
    """Return items stacked in a table cell."""
    return tag("div", (tag("div", each) for each in lines if each is not None), class_="cell")
