"""Drift: all watches with their state, and what each needs next; alarms first."""

from collections.abc import Sequence

from nicegui import ui

from pramana.app.watch_calibrations import format_calibration
from pramana.app.watches import WatchView, list_all, start
from pramana.report.markup import SafeHtml, render_link, render_untrusted_text, tag
from pramana.report.watches import describe_family
from pramana.show.web.kit import PageContext, frame, parts
from pramana.show.web.pages.runs import LiveTable
from pramana.show.web.pages.watch_markup import (
    SIGNS_BY_LEVEL,
    describe_next_due,
    describe_next_step,
    format_budget,
    format_day_cost,
    make_watch_url,
    render_level,
)

COLUMN_HEADINGS = ("Watch", "State", "Last day", "Calls a day", "Cost a day", "Next")
_LEVELS_WORST_FIRST = list(SIGNS_BY_LEVEL)


@frame.register_page("/drift", "Drift")
async def show_drift_page(context: PageContext) -> None:
    """Show all watches."""
    about = "Watches ask a model the same cases every day, and raise an alarm when the model has changed."
    with frame.add_page_heading("Drift", about):
        parts.add_link_button("Compare two models today", "/same")
        if context.may(start):
            parts.add_link_button("Start a watch", "/drift/new", "primary")
    page = _WatchList(context)
    page.show(await context.call(list_all))
    context.on_change({"watch"}, page.refresh)


class _WatchList:
    """The list, updated in place."""

    def __init__(self, context: PageContext) -> None:
        self._context = context
        self._place = ui.element("div")
        self._shown: tuple[LiveTable, ui.label] | None = None

    async def refresh(self) -> None:
        found = await self._context.call(list_all)
        if not self._place.is_deleted:
            self.show(found)

    def show(self, watches: Sequence[WatchView]) -> None:
        if not watches:
            self._shown = None
            with parts.redraw(self._place):
                draw_empty_state(self._context)
            return
        if self._shown is None:
            with parts.redraw(self._place):
                table = LiveTable("Watches, alarms first", COLUMN_HEADINGS, name="watches")
                self._shown = table, ui.label().classes("quiet below")
        table, family = self._shown
        family.set_text(describe_family(watches))
        table.update_rows({each.id: _render_watch_row(each) for each in sort_by_severity(watches)})


def sort_by_severity(watches: Sequence[WatchView]) -> list[WatchView]:
    """Return active watches before stopped ones, alarms first; otherwise in their order."""
    return sorted(watches, key=lambda each: (not each.is_active, _LEVELS_WORST_FIRST.index(each.level)))


def draw_empty_state(context: PageContext) -> None:
    """Say what a watch is, and how to start one."""
    about = "A watch asks a model the same cases every day. After its baseline, it tells whether the model has changed."
    with parts.open_empty_state("No watches yet", about):
        if context.may(start):
            parts.add_link_button("Start a watch", "/drift/new", "primary")
        command = tag("code", "pramana drift start MODEL", class_="mono")
        parts.add_markup(tag("span", "or, in a terminal: ", command, class_="quiet"))


def _render_watch_row(view: WatchView) -> tuple[SafeHtml, ...]:
    name = render_link(make_watch_url(view), render_untrusted_text(view.shown_name, 120))
    model = tag("small", render_untrusted_text(view.model, 120), class_="quiet")
    note = tag("small", render_untrusted_text(view.note, 200), class_="quiet clip") if view.note else None
    sentence = tag("small", render_untrusted_text(view.sentence, 300), class_="quiet clip")
    judge = tag("small", format_calibration(view.calibration), class_="quiet") if view.calibration else None
    return (
        tag("div", name, model, note, class_="cell"),
        tag("div", render_level(view), sentence, judge, class_="cell"),
        tag("span", view.last_day or "none yet", class_="number"),
        tag("span", "–" if view.calls_per_day is None else f"{view.calls_per_day:,}", class_="number"),
        tag(
            "div",
            tag("span", format_day_cost(view), class_="number"),
            tag("small", format_budget(view), class_="quiet"),
            class_="cell",
        ),
        tag(
            "div",
            tag("span", describe_next_due(view)),
            tag("small", describe_next_step(view), class_="quiet"),
            class_="cell",
        ),
    )
