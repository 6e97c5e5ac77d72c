"""Home: watches, runs that need attention, the newest runs, models over time; in an empty store, the first steps.

Updates live as runs arrive, including those of other users.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from nicegui import ui

from pramana.analyse.numbers import pluralise
from pramana.app.models import HistoryRequest, HistoryView, RunPointView, read_model_history
from pramana.app.runs import RunFilter, create_run, list_runs
from pramana.app.views import RunView
from pramana.app.watches import WatchView, list_all
from pramana.app.weights import WeightsView, list_weights
from pramana.report.figures import format_duration, format_interval, format_percent
from pramana.report.markup import SafeHtml, join_html, render_link, render_time, render_untrusted_text, tag
from pramana.report.pictures import TrendPoint, draw_rate_trend, draw_time_trend
from pramana.show.web.kit import PageContext, UseCaseRefused, frame, make_url, parts
from pramana.show.web.pages import welcome
from pramana.show.web.pages.drift import sort_by_severity
from pramana.show.web.pages.runs import LiveTable, render_pass_rates, render_result_count, render_status
from pramana.show.web.pages.watch_markup import make_watch_url, render_level

MAX_NEWEST_RUNS, MAX_SHOWN_WATCHES = 8, 6
MAX_RUNS_CHECKED_FOR_PROBLEMS = 50
"""Newest runs that are checked for trouble."""
MAX_MODEL_CARDS = 6
"""Models shown over time, taken from the newest runs."""
MAX_RUNS_PER_MODEL = 30
"""Runs drawn for each model."""
_get_trend_key = attrgetter("cases_digest", "variant", "setup_digest")
"""The key that all points of one trend share."""


@frame.register_page("/", "Home")
async def show_home_page(context: PageContext) -> None:
    """Show the home page."""
    beside = frame.add_page_heading(
        "Pramana", "Test language models and voice agents: quality, comparison, change over time."
    )
    watches = _WatchesPanel(context)
    await watches.refresh()
    context.on_change({"watch"}, watches.refresh)
    news = _HomePage(context, beside)
    news.show_data(await news.read_data())
    context.on_change({"run"}, news.refresh)


class _HomeData(NamedTuple):
    """All data of the page."""

    runs: list[RunView]
    weights: list[WeightsView]
    histories: list[HistoryView]


class _HomePage:
    """The content of the page. All data is read before anything is redrawn, and unchanged parts stay as they are."""

    def __init__(self, context: PageContext, beside: ui.element) -> None:
        self._context, self._heading_box = context, beside
        self._place = ui.element("div")
        self._welcome: welcome.WelcomePanel | None = None
        """Shown in an empty store; None while there are runs."""
        self._untried_panel: welcome.WelcomePanel | None = None
        """Offers what has not been tried yet, below the runs."""
        self._drawn: tuple[_AttentionPanel, LiveTable, _ModelCards] | None = None

    async def read_data(self) -> _HomeData:
        wanted = RunFilter(page_size=MAX_RUNS_CHECKED_FOR_PROBLEMS, outcomes=True)
        found, weights = await asyncio.gather(self._context.call(list_runs, wanted), self._context.call(list_weights))
        rated = [run for run in found.items if not run.is_endpoint_test]
        names = list(dict.fromkeys(model for run in rated for model in run.models))[:MAX_MODEL_CARDS]
        wished = (HistoryRequest(model=name, limit=MAX_RUNS_PER_MODEL) for name in names)
        pasts = await asyncio.gather(*(self._context.call(read_model_history, each) for each in wished))
        return _HomeData(found.items, weights, [past.history for past in pasts])

    async def refresh(self) -> None:
        """Update the page. After an error it stays as it is until the next change."""
        if not self._is_welcome_step_under_way():
            found = await self.read_data()
            if not self._is_welcome_step_under_way() and not self._place.is_deleted:
                self.show_data(found)

    def _is_welcome_step_under_way(self) -> bool:
        return any(each.busy for each in (self._welcome, self._untried_panel) if each)  # keep its progress

    def show_data(self, data: _HomeData) -> None:
        if not data.runs:
            if self._welcome is None:
                self._drawn = self._untried_panel = None
                self._welcome = welcome.WelcomePanel(self._context)
                with parts.redraw(self._place):
                    self._welcome.show_question_and_call_steps(data.weights)
            return
        if self._drawn is None:
            self._welcome, self._drawn = None, self._draw_panels()
            with self._place:
                self._rest = parts.Panel()
        attention, newest, cards = self._drawn
        attention.update(data)
        newest.update_rows({run.id: _render_run_row(run) for run in data.runs[:MAX_NEWEST_RUNS]})
        cards.update(data.histories)
        untried = welcome.find_untried_models(data.runs) if welcome.may_try_steps(self._context) else ()
        self._rest.redraw_if_changed(untried, partial(self._draw_untried_panel, untried))

    def _draw_untried_panel(self, untried_models: tuple[str, ...]) -> None:
        self._untried_panel = welcome.WelcomePanel(self._context)
        if untried_models:
            self._untried_panel.show_untried_steps(untried_models)

    def _draw_panels(self) -> "tuple[_AttentionPanel, LiveTable, _ModelCards]":
        if self._context.may(create_run) and not self._heading_box.default_slot.children:
            with self._heading_box:
                parts.add_link_button("New run", "/runs/new", "primary")
        with parts.redraw(self._place):
            attention = _AttentionPanel(self._context)
            parts.add_heading("Newest runs")
            newest = LiveTable("Newest runs", ("Run", "Models", "Status", "Passed", "Results", "Started (UTC)"))
            parts.add_markup(tag("p", render_link("/runs", "All runs"), class_="pager"))
            return attention, newest, _ModelCards()


def _render_run_row(run: RunView) -> tuple[SafeHtml, ...]:
    return (
        render_link(make_url(f"/runs/{run.id}"), render_untrusted_text(run.suite, 80)),
        tag("span", join_html((render_untrusted_text(each, 80) for each in run.models), ", ")),
        render_status(run),
        render_pass_rates(run),
        render_result_count(run),
        render_time(run.created_at),
    )


# ── Watches ──


class _WatchesPanel:
    """The state of the watches, alarms first; nothing while there are none."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._lines = parts.add_markup(SafeHtml())

    async def refresh(self) -> None:
        """Read the watches again. After an error, those shown stay."""
        with suppress(UseCaseRefused):
            found = await self._context.call(list_all, active_only=True)
            if not self._lines.is_deleted:
                self._lines.set_content(_render_watches(sort_by_severity(found)))


def _render_watches(watches: Sequence[WatchView]) -> SafeHtml:
    """Return the most urgent watches, each with its state in a sentence."""
    if not watches:
        return SafeHtml()
    lines = (
        tag(
            "li",
            render_level(each),
            " ",
            render_link(make_watch_url(each), render_untrusted_text(each.shown_name, 120)),
            ": ",
            render_untrusted_text(each.sentence, 300),
            class_="warn trouble" if each.level == "alarm" else None,
        )
        for each in watches[:MAX_SHOWN_WATCHES]
    )
    more = render_link(
        "/drift", "All watches" if len(watches) <= MAX_SHOWN_WATCHES else f"All {len(watches):,} watches"
    )
    return tag(
        "section",
        tag("h2", "Watches"),
        tag("ul", lines, class_="lines"),
        tag("p", more, class_="pager"),
        aria_label="Watches",
    )


# ── Models over time ──


class _ModelCards:
    """One card per model; unchanged cards stay as they are."""

    def __init__(self) -> None:
        self._whole = ui.element("div")
        with self._whole:
            parts.add_heading("Models over time")
            self._grid = ui.element("div").classes("grid even")
        self._cards_by_model: dict[str, ui.html] = {}

    def update(self, histories: Sequence[HistoryView]) -> None:
        self._whole.set_visibility(bool(histories))
        cards = {past.model: _render_model_card(past) for past in histories}
        for gone in self._cards_by_model.keys() - cards.keys():
            self._cards_by_model.pop(gone).delete()
        for place, (model, card) in enumerate(cards.items()):
            if model not in self._cards_by_model:
                with self._grid:
                    self._cards_by_model[model] = parts.add_markup(card)
            made = self._cards_by_model[model]
            made.set_content(card)
            if self._grid.default_slot.children[place] is not made:
                made.move(target_index=place)


def _render_model_card(history: HistoryView) -> SafeHtml:
    """Return the trend of a model over its newest runs of the same cases with the same setup; others do not compare.

    Unfinished runs are left out too: the cases they lack may be the hard ones.
    """
    finished = [each for each in history.runs if each.status == "finished"]
    if not finished:
        return _wrap_in_model_card(history, [tag("p", "No run has finished yet.", class_="quiet")])
    newest = finished[-1]
    same = [each for each in finished if _get_trend_key(each) == _get_trend_key(newest)]
    rated = [
        _make_trend_point(each, each.pass_rate, *(each.interval or (None, None)))
        for each in same
        if each.pass_rate is not None
    ]
    timed = [
        (_make_trend_point(each, each.latency_ms.median / 1000), each.latency_ms.count)
        for each in same
        if each.latency_ms.median is not None
    ]
    way = "" if newest.variant == "text" else f", {newest.variant}"
    count = "one run" if len(same) == 1 else f"{len(same):,} runs"
    drawn: list[SafeHtml] = []
    if rated:
        last = rated[-1]
        ends = (
            None if last.interval_low is None or last.interval_high is None else (last.interval_low, last.interval_high)
        )
        drawn += [
            _render_card_figure("Pass rate", format_percent(last.value), _make_rate_note(ends, same)),
            draw_rate_trend(rated),
        ]
    else:
        drawn.append(tag("p", "No result has a verdict yet.", class_="quiet"))
    if timed:
        median, of = timed[-1]
        drawn += [
            _render_card_figure(
                "Latency", format_duration(median.value), f"median of {pluralise(of, 'measured time')}"
            ),
            draw_time_trend([each for each, _ in timed]),
        ]
    about = tag("p", render_untrusted_text(newest.suite, 80), f"{way}, {count}", class_="quiet small")
    return _wrap_in_model_card(history, [about, *drawn])


def _make_rate_note(ends: tuple[float, float] | None, runs: Sequence[RunPointView]) -> str:
    """Return the interval of the newest rate, and how far the judge of a trend's rates agrees with people."""
    marks = list(dict.fromkeys(each.calibration for each in runs if each.calibration))
    return ", ".join([f"95 % interval {format_interval(ends)}", *marks])


def _make_trend_point(
    run: RunPointView, value: float, low: float | None = None, high: float | None = None
) -> TrendPoint:
    return TrendPoint(value, low, high, datetime.fromisoformat(run.created_at), make_url(f"/runs/{run.run}"))


def _wrap_in_model_card(history: HistoryView, contents: Sequence[SafeHtml]) -> SafeHtml:
    return tag(
        "section",
        tag(
            "h3",
            render_link(make_url("/runs", model=history.model), render_untrusted_text(history.model, 80)),
            class_="card-title",
        ),
        contents,
        class_="card stack",
        aria_label=history.model[:80],
    )


def _render_card_figure(name: str, value: str, note: str) -> SafeHtml:
    return tag("p", name, " ", tag("strong", value, class_="number"), " ", tag("span", note, class_="quiet small"))


# ── Needs attention ──


class _AttentionPanel:
    """Runs with trouble and missing weights; a download shown here continues to be shown."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._whole = ui.element("div")
        with self._whole:
            parts.add_heading("Needs attention")
            with parts.open_box("stack") as self._box:
                self._lines = parts.add_markup(SafeHtml(""))
        self._missing: dict[tuple[str, str | None], ui.element] = {}

    def update(self, data: _HomeData) -> None:
        lines = [line for run in data.runs if (line := _render_run_problem(run))]
        missing = {
            (each.name, each.pull.status if each.pull else None): each
            for each in data.weights
            if not each.present and not each.optional
        }
        self._whole.set_visibility(bool(lines or missing))
        self._lines.set_visibility(bool(lines))
        more = (
            f"And {len(lines) - MAX_NEWEST_RUNS:,} more among the last {len(data.runs):,} runs."
            if len(lines) > MAX_NEWEST_RUNS
            else None
        )
        listed = tag("ul", (tag("li", line) for line in lines[:MAX_NEWEST_RUNS]), class_="lines")
        self._lines.set_content(join_html([listed, tag("p", more, class_="quiet") if more else None]))
        for gone in self._missing.keys() - missing.keys():
            self._missing.pop(gone).delete()
        for key, weights in missing.items():
            if key not in self._missing:
                with self._box, ui.element("div") as self._missing[key]:
                    welcome.add_download_card(self._context, weights)


def _render_run_problem(run: RunView) -> SafeHtml | None:
    """Return the trouble of a run and what to do about it, in one line; None if there is none."""
    named = render_link(make_url(f"/runs/{run.id}"), render_untrusted_text(run.suite, 80))
    about = join_html([named, " on ", join_html((render_untrusted_text(each, 60) for each in run.models[:3]), ", ")])
    if run.status == "interrupted":
        return join_html([about, " was interrupted. Resume it on its page; stored results are kept."])
    if run.status == "stopped":
        why = join_html([": ", render_untrusted_text(run.reason.rstrip(" ."), 300)]) if run.reason else None
        return join_html([about, " has stopped", why, ". Fix it, then resume the run on its page."])
    errored = run.outcomes.errored if run.outcomes else 0
    if errored:
        said = "1 result errored" if errored == 1 else f"{errored:,} results errored"
        to = render_link(make_url(f"/runs/{run.id}", outcome="errored") + "#results", "See why")
        return join_html([about, f": {said}, which counts neither for nor against the model. ", to, "."])
    return None
