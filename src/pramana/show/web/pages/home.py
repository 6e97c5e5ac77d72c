"""Home: what needs attention, the newest runs, and how models do over time; in an empty store, the way to a first run.

It grows as runs arrive, from whomever.
"""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from nicegui import ui

from pramana.app.models import HistoryRequest, HistoryView, RunPointView, model_history
from pramana.app.runs import RunFilter, create_run, list_runs
from pramana.app.views import RunView
from pramana.app.weights import WeightsView, list_weights
from pramana.report.figures import between, duration, percent
from pramana.report.markup import Safe, foreign, join, link, tag, when
from pramana.report.pictures import Point, rate_trend, time_trend
from pramana.show.web.kit import Desk, address, frame, parts
from pramana.show.web.pages import welcome
from pramana.show.web.pages.runs import Table, passed, status

NEWEST = 8
LOOKED_AT = 50
"""Of how many of the newest runs trouble is still news."""
MODELS = 6
"""How many models are shown over time: those of the newest runs."""
PAST = 30
"""Runs of a model that are drawn."""
_series = attrgetter("cases_digest", "variant", "setup_digest")
"""What points of a trend have in common."""


@frame.page("/", "Home")
async def home(desk: Desk) -> None:
    """Show what is new."""
    beside = frame.head("Pramana", "Test language models and voice agents: quality, comparison, change over time.")
    news = _News(desk, beside)
    news.show(await news.read())
    desk.when_new({"run"}, news.again)


class _Read(NamedTuple):
    """All that the page shows."""

    runs: list[RunView]
    weights: list[WeightsView]
    pasts: list[HistoryView]


class _News:
    """What stands on the page. All is read before any of it changes, and what is the same is not drawn anew."""

    def __init__(self, desk: Desk, beside: ui.element) -> None:
        self._desk, self._beside = desk, beside
        self._place = ui.element("div")
        self._welcome: welcome.Welcome | None = None
        """Of an empty store; None while there are runs."""
        self._offered: welcome.Welcome | None = None
        """What nobody has tried, beside the runs."""
        self._drawn: tuple[_Attention, Table, _Cards] | None = None

    async def read(self) -> _Read:
        wanted = RunFilter(page_size=LOOKED_AT, outcomes=True)
        found, weights = await asyncio.gather(self._desk.call(list_runs, wanted), self._desk.call(list_weights))
        names = list(dict.fromkeys(model for run in found.items for model in run.models))[:MODELS]
        wished = (HistoryRequest(model=name, limit=PAST) for name in names)
        pasts = await asyncio.gather(*(self._desk.call(model_history, each) for each in wished))
        return _Read(found.items, weights, [past.history for past in pasts])

    async def again(self) -> None:
        """Show what is new. What is refused leaves the page as it is, until there is news again."""
        if not self._busy():
            found = await self.read()
            if not self._busy() and not self._place.is_deleted:
                self.show(found)

    def _busy(self) -> bool:
        return any(each.busy for each in (self._welcome, self._offered) if each)  # what it tells would be gone

    def show(self, found: _Read) -> None:
        if not found.runs:
            if self._welcome is None:
                self._drawn = self._offered = None
                self._welcome = welcome.Welcome(self._desk)
                with parts.redrawn(self._place):
                    self._welcome.show(found.weights)
            return
        if self._drawn is None:
            self._welcome, self._drawn = None, self._draw()
            with self._place:
                self._rest = parts.Panel()
        attention, newest, cards = self._drawn
        attention.put(found)
        newest.put({run.id: _row(run) for run in found.runs[:NEWEST]})
        cards.put(found.pasts)
        untried = welcome.untried(found.runs) if welcome.may_try(self._desk) else ()
        self._rest.show(untried, partial(self._offer, untried))

    def _offer(self, untried: tuple[str, ...]) -> None:
        self._offered = welcome.Welcome(self._desk)
        if untried:
            self._offered.show_rest(untried)

    def _draw(self) -> "tuple[_Attention, Table, _Cards]":
        if self._desk.may(create_run) and not self._beside.default_slot.children:
            with self._beside:
                parts.link_button("New run", "/runs/new", "primary")
        with parts.redrawn(self._place):
            attention = _Attention(self._desk)
            parts.heading("Newest runs")
            newest = Table("Newest runs", ("Run", "Models", "Status", "Passed", "Results", "Started (UTC)"))
            parts.show(tag("p", link("/runs", "All runs"), class_="pager"))
            return attention, newest, _Cards()


def _row(run: RunView) -> tuple[Safe, ...]:
    return (
        link(address(f"/runs/{run.id}"), foreign(run.suite, 80)),
        tag("span", join((foreign(each, 80) for each in run.models), ", ")),
        status(run),
        passed(run),
        tag("span", f"{run.stored:,} of {run.expected:,}", class_="number"),
        when(run.created_at),
    )


# ── Models over time ──


class _Cards:
    """A card for each model; one that has nothing new stays as it is."""

    def __init__(self) -> None:
        self._whole = ui.element("div")
        with self._whole:
            parts.heading("Models over time")
            self._grid = ui.element("div").classes("grid even")
        self._shown: dict[str, ui.html] = {}

    def put(self, pasts: Sequence[HistoryView]) -> None:
        self._whole.set_visibility(bool(pasts))
        cards = {past.model: _card(past) for past in pasts}
        for gone in self._shown.keys() - cards.keys():
            self._shown.pop(gone).delete()
        for place, (model, card) in enumerate(cards.items()):
            if model not in self._shown:
                with self._grid:
                    self._shown[model] = parts.show(card)
            made = self._shown[model]
            made.set_content(card)
            if self._grid.default_slot.children[place] is not made:
                made.move(target_index=place)


def _card(past: HistoryView) -> Safe:
    """Return how a model did in its newest runs of the same cases, asked in the same way: others are no measure.

    Nor are runs that did not finish: the cases they lack may be the hard ones.
    """
    finished = [each for each in past.runs if each.status == "finished"]
    if not finished:
        return _titled(past, [tag("p", "No run has finished yet.", class_="quiet")])
    newest = finished[-1]
    same = [each for each in finished if _series(each) == _series(newest)]
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
        drawn += [_figure("Pass rate", percent(last.value), f"95 % interval {between(ends)}"), rate_trend(rated)]
    else:
        drawn.append(tag("p", "No result has a verdict yet.", class_="quiet"))
    if timed:
        median, of = timed[-1]
        drawn += [
            _figure("Latency", duration(median.value), f"median of {of:,}"),
            time_trend([each for each, _ in timed]),
        ]
    about = tag("p", foreign(newest.suite, 80), f"{way}, {count}", class_="quiet small")
    return _titled(past, [about, *drawn])


def _point(run: RunPointView, value: float, low: float | None = None, high: float | None = None) -> Point:
    return Point(value, low, high, datetime.fromisoformat(run.created_at), address(f"/runs/{run.run}"))


def _titled(past: HistoryView, told: Sequence[Safe]) -> Safe:
    return tag(
        "section",
        tag("h3", link(address("/runs", model=past.model), foreign(past.model, 80)), class_="card-title"),
        told,
        class_="card stack",
        aria_label=past.model[:80],
    )


def _figure(name: str, value: str, note: str) -> Safe:
    return tag("p", name, " ", tag("strong", value, class_="number"), " ", tag("span", note, class_="quiet small"))


# ── What needs attention ──


class _Attention:
    """Runs with trouble, and weights that are missing; a download that is watched here goes on being watched."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._whole = ui.element("div")
        with self._whole:
            parts.heading("Needs attention")
            with parts.box("stack") as self._box:
                self._lines = parts.show(Safe(""))
        self._missing: dict[tuple[str, str | None], ui.element] = {}

    def put(self, found: _Read) -> None:
        lines = [line for run in found.runs if (line := _trouble(run))]
        missing = {
            (each.name, each.pull.status if each.pull else None): each
            for each in found.weights
            if not each.present and not each.optional
        }
        self._whole.set_visibility(bool(lines or missing))
        self._lines.set_visibility(bool(lines))
        more = (
            f"And {len(lines) - NEWEST:,} more among the last {len(found.runs):,} runs."
            if len(lines) > NEWEST
            else None
        )
        listed = tag("ul", (tag("li", line) for line in lines[:NEWEST]), class_="lines")
        self._lines.set_content(join([listed, tag("p", more, class_="quiet") if more else None]))
        for gone in self._missing.keys() - missing.keys():
            self._missing.pop(gone).delete()
        for key, weights in missing.items():
            if key not in self._missing:
                with self._box, ui.element("div") as self._missing[key]:
                    welcome.offer_download(self._desk, weights)


def _trouble(run: RunView) -> Safe | None:
    """Return what is wrong with a run and what to do, in a line; None where all is well."""
    named = link(address(f"/runs/{run.id}"), foreign(run.suite, 80))
    about = join([named, " on ", join((foreign(each, 60) for each in run.models[:3]), ", ")])
    if run.status == "interrupted":
        return join([about, " was interrupted. Resume it on its page; stored results are kept."])
    if run.status == "stopped":
        why = join([": ", foreign(run.reason.rstrip(" ."), 300)]) if run.reason else None
        return join([about, " has stopped", why, ". Fix it, then resume the run on its page."])
    errored = run.outcomes.errored if run.outcomes else 0
    if errored:
        said = "1 result is an error" if errored == 1 else f"{errored:,} results are errors"
        to = link(address(f"/runs/{run.id}", outcome="errored") + "#results", "See why")
        return join([about, f": {said}, and no verdict on the model. ", to, "."])
    return None
