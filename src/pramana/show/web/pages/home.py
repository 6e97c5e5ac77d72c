"""Home: runs that need attention, the newest runs, and models over time; in an empty store, the steps to a first run.

Updates live as runs arrive, including those of other users.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from nicegui import ui

from pramana.analyse.numbers import pluralise
from pramana.app.models import HistoryRequest, HistoryView, RunPointView, model_history
from pramana.app.runs import RunFilter, create_run, list_runs
from pramana.app.views import RunView
from pramana.app.weights import WeightsView, list_weights
from pramana.report.figures import format_duration, format_interval, format_percent
from pramana.report.markup import Safe, join, render_foreign_text, render_link, render_time, tag
from pramana.report.pictures import TrendPoint, draw_rate_trend, draw_time_trend
from pramana.show.web.kit import PageContext, frame, make_url, parts
from pramana.show.web.pages import welcome
from pramana.show.web.pages.runs import LiveTable, render_passed, render_status

NEWEST_RUNS = 8
RUNS_CHECKED_FOR_TROUBLE = 50
"""Newest runs that are checked for trouble."""
MAX_MODELS = 6
"""Models shown over time, taken from the newest runs."""
RUNS_PER_MODEL = 30
"""Runs drawn for each model."""
_series_key = attrgetter("cases_digest", "variant", "setup_digest")
"""The key that all points of one trend share."""


@frame.register_page("/", "Home")
async def home(context: PageContext) -> None:
    """Show the home page."""
    beside = frame.add_page_heading(
        "Pramana", "Test language models and voice agents: quality, comparison, change over time."
    )
    news = _HomePage(context, beside)
    news.show(await news.read())
    context.on_change({"run"}, news.refresh)


class _HomeData(NamedTuple):
    """All data of the page."""

    runs: list[RunView]
    weights: list[WeightsView]
    pasts: list[HistoryView]


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

    async def read(self) -> _HomeData:
        wanted = RunFilter(page_size=RUNS_CHECKED_FOR_TROUBLE, outcomes=True)
        found, weights = await asyncio.gather(self._context.call(list_runs, wanted), self._context.call(list_weights))
        names = list(dict.fromkeys(model for run in found.items for model in run.models))[:MAX_MODELS]
        wished = (HistoryRequest(model=name, limit=RUNS_PER_MODEL) for name in names)
        pasts = await asyncio.gather(*(self._context.call(model_history, each) for each in wished))
        return _HomeData(found.items, weights, [past.history for past in pasts])

    async def refresh(self) -> None:
        """Update the page. After an error it stays as it is until the next change."""
        if not self._busy():
            found = await self.read()
            if not self._busy() and not self._place.is_deleted:
                self.show(found)

    def _busy(self) -> bool:
        return any(each.busy for each in (self._welcome, self._untried_panel) if each)  # keep its progress

    def show(self, data: _HomeData) -> None:
        if not data.runs:
            if self._welcome is None:
                self._drawn = self._untried_panel = None
                self._welcome = welcome.WelcomePanel(self._context)
                with parts.redraw(self._place):
                    self._welcome.show(data.weights)
            return
        if self._drawn is None:
            self._welcome, self._drawn = None, self._draw()
            with self._place:
                self._rest = parts.Panel()
        attention, newest, cards = self._drawn
        attention.put(data)
        newest.put({run.id: _run_row(run) for run in data.runs[:NEWEST_RUNS]})
        cards.put(data.pasts)
        untried = welcome.find_untried(data.runs) if welcome.may_try(self._context) else ()
        self._rest.show(untried, partial(self._offer, untried))

    def _offer(self, untried: tuple[str, ...]) -> None:
        self._untried_panel = welcome.WelcomePanel(self._context)
        if untried:
            self._untried_panel.show_untried_steps(untried)

    def _draw(self) -> "tuple[_AttentionPanel, LiveTable, _ModelCards]":
        if self._context.may(create_run) and not self._heading_box.default_slot.children:
            with self._heading_box:
                parts.add_link_button("New run", "/runs/new", "primary")
        with parts.redraw(self._place):
            attention = _AttentionPanel(self._context)
            parts.add_heading("Newest runs")
            newest = LiveTable("Newest runs", ("Run", "Models", "Status", "Passed", "Results", "Started (UTC)"))
            parts.add_markup(tag("p", render_link("/runs", "All runs"), class_="pager"))
            return attention, newest, _ModelCards()


def _run_row(run: RunView) -> tuple[Safe, ...]:
    return (
        render_link(make_url(f"/runs/{run.id}"), render_foreign_text(run.suite, 80)),
        tag("span", join((render_foreign_text(each, 80) for each in run.models), ", ")),
        render_status(run),
        render_passed(run),
        tag("span", f"{run.stored:,} of {run.expected:,}", class_="number"),
        render_time(run.created_at),
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

    def put(self, pasts: Sequence[HistoryView]) -> None:
        self._whole.set_visibility(bool(pasts))
        cards = {past.model: _model_card(past) for past in pasts}
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


def _model_card(past: HistoryView) -> Safe:
    """Return the trend of a model over its newest runs of the same cases with the same setup; others do not compare.

    Unfinished runs are left out too: the cases they lack may be the hard ones.
    """
    finished = [each for each in past.runs if each.status == "finished"]
    if not finished:
        return _card_with_title(past, [tag("p", "No run has finished yet.", class_="quiet")])
    newest = finished[-1]
    same = [each for each in finished if _series_key(each) == _series_key(newest)]
    rated = [
        _point(each, each.pass_rate, *(each.interval or (None, None))) for each in same if each.pass_rate is not None
    ]
    timed = [
        (_point(each, each.latency_ms.median / 1000), each.latency_ms.count)
        for each in same
        if each.latency_ms.median is not None
    ]
    way = "" if newest.variant == "text" else f", {newest.variant}"
    count = "one run" if len(same) == 1 else f"{len(same):,} runs"
    drawn: list[Safe] = []
    if rated:
        last = rated[-1]
        ends = None if last.low is None or last.high is None else (last.low, last.high)
        drawn += [
            _card_figure("Pass rate", format_percent(last.value), f"95 % interval {format_interval(ends)}"),
            draw_rate_trend(rated),
        ]
    else:
        drawn.append(tag("p", "No result has a verdict yet.", class_="quiet"))
    if timed:
        median, of = timed[-1]
        drawn += [
            _card_figure("Latency", format_duration(median.value), f"median of {pluralise(of, 'measured time')}"),
            draw_time_trend([each for each, _ in timed]),
        ]
    about = tag("p", render_foreign_text(newest.suite, 80), f"{way}, {count}", class_="quiet small")
    return _card_with_title(past, [about, *drawn])


def _point(run: RunPointView, value: float, low: float | None = None, high: float | None = None) -> TrendPoint:
    return TrendPoint(value, low, high, datetime.fromisoformat(run.created_at), make_url(f"/runs/{run.run}"))


def _card_with_title(past: HistoryView, tiles: Sequence[Safe]) -> Safe:
    return tag(
        "section",
        tag(
            "h3",
            render_link(make_url("/runs", model=past.model), render_foreign_text(past.model, 80)),
            class_="card-title",
        ),
        tiles,
        class_="card stack",
        aria_label=past.model[:80],
    )


def _card_figure(name: str, value: str, note: str) -> Safe:
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
                self._lines = parts.add_markup(Safe(""))
        self._missing: dict[tuple[str, str | None], ui.element] = {}

    def put(self, data: _HomeData) -> None:
        lines = [line for run in data.runs if (line := _run_trouble(run))]
        missing = {
            (each.name, each.pull.status if each.pull else None): each
            for each in data.weights
            if not each.present and not each.optional
        }
        self._whole.set_visibility(bool(lines or missing))
        self._lines.set_visibility(bool(lines))
        more = (
            f"And {len(lines) - NEWEST_RUNS:,} more among the last {len(data.runs):,} runs."
            if len(lines) > NEWEST_RUNS
            else None
        )
        listed = tag("ul", (tag("li", line) for line in lines[:NEWEST_RUNS]), class_="lines")
        self._lines.set_content(join([listed, tag("p", more, class_="quiet") if more else None]))
        for gone in self._missing.keys() - missing.keys():
            self._missing.pop(gone).delete()
        for key, weights in missing.items():
            if key not in self._missing:
                with self._box, ui.element("div") as self._missing[key]:
                    welcome.offer_download(self._context, weights)


def _run_trouble(run: RunView) -> Safe | None:
    """Return the trouble of a run and what to do about it, in one line; None if there is none."""
    named = render_link(make_url(f"/runs/{run.id}"), render_foreign_text(run.suite, 80))
    about = join([named, " on ", join((render_foreign_text(each, 60) for each in run.models[:3]), ", ")])
    if run.status == "interrupted":
        return join([about, " was interrupted. Resume it on its page; stored results are kept."])
    if run.status == "stopped":
        why = join([": ", render_foreign_text(run.reason.rstrip(" ."), 300)]) if run.reason else None
        return join([about, " has stopped", why, ". Fix it, then resume the run on its page."])
    errored = run.outcomes.errored if run.outcomes else 0
    if errored:
        said = "1 result errored" if errored == 1 else f"{errored:,} results errored"
        to = render_link(make_url(f"/runs/{run.id}", outcome="errored") + "#results", "See why")
        return join([about, f": {said}, which counts neither for nor against the model. ", to, "."])
    return None
