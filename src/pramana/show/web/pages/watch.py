"""One watch: its state in a sentence, a dated chart of each measurement, its days, and what can be done about it.

The days shown and the open day are in the address, so that a view can be shared. Updated live as days are measured.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, timedelta
from functools import partial
from typing import Any

from nicegui import background_tasks, ui

from pramana import clock
from pramana.analyse.numbers import pluralise
from pramana.app.watch_alerts import check_now, send_test, set_public
from pramana.app.watch_reports import WatchReportView, read_report
from pramana.app.watches import WatchDetailView, accept, confirm, read, stop
from pramana.report.markup import SafeHtml, join_html, render_untrusted_text, tag
from pramana.show.web.kit import PageContext, UseCaseRefused, frame, parts
from pramana.show.web.pages.watch_markup import (
    group_instruments,
    make_watch_url,
    render_about,
    render_alerts_and_periods,
    render_day,
    render_days,
    render_legend,
    render_measurement,
    render_state,
)
from pramana.show.web.pages.watch_report_markup import render_change, render_facts_beside_statistic

DEFAULT_SHOWN_DAYS = 90
MAX_SHOWN_DAYS = 400
MIN_SHOWN_DAYS = 7
REPORT_PATIENCE_S = 2.0
"""How long a page waits for the report of a watch before it is shown without it."""
ZOOMS = ((30, "30 days"), (90, "90 days"))
_OPEN_DAY_HANDLER = """(event) => {
  const day = event.target.closest("a[data-day]");
  if (!day || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  emit(day.dataset.day);
}"""
_MOVE_FOCUS_HANDLER = """(event) => {
  const plot = event.target.closest?.(".series-plot"), days = plot ? [...plot.querySelectorAll("a.day")] : [];
  const at = days.indexOf(event.target), last = days.length - 1;
  const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  const next = days[Math.max(0, Math.min(last, to))];
  days[at].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}"""
"""One day of each chart is reached by Tab; arrow keys move to its neighbours."""
_ZOOM_HANDLER = """(event) => {
  const plot = event.target.closest(".series-plot");
  if (!plot || event.button || event.pointerType === "touch" || event.target.closest("a")) return;
  const box = plot.getBoundingClientRect(), from = event.clientX, range = document.createElement("div");
  const day = (x) => Math.floor(Math.max(0, Math.min(0.9999, (x - box.left) / box.width)) * plot.dataset.days);
  const place = (x) => {
    range.style.left = `${Math.max(0, Math.min(from, x) - box.left)}px`;
    range.style.width = `${Math.min(box.right, Math.max(from, x)) - Math.max(box.left, Math.min(from, x))}px`;
  };
  range.className = "series-range";
  const move = (each) => { if (!range.isConnected) plot.append(range); place(each.clientX); };
  const end = (each) => {
    document.removeEventListener("pointermove", move);
    range.remove();
    if (each.type === "pointerup" && Math.abs(each.clientX - from) > 8)
      emit([plot.dataset.first, ...[day(from), day(each.clientX)].sort((a, b) => a - b)]);
  };
  document.addEventListener("pointermove", move);
  document.addEventListener("pointerup", end, { once: true });
}"""
"""Dragging over a chart shows those days only."""


@frame.register_page("/drift/{watch_id}", "Watch")
async def show_watch_page(context: PageContext) -> None:
    """Show a watch."""
    page = _WatchPage(context, await context.call(read, context.path["watch_id"]))
    await page.build()
    context.on_change({"watch"}, page.refresh)


class _WatchPage:
    """The page of a watch."""

    def __init__(self, context: PageContext, view: WatchDetailView) -> None:
        self._context, self._view = context, view
        self._day = context.query.get("day")
        self._first, self._last = self._parse_range_or_newest(context.query.get("from"), context.query.get("to"))
        self._is_default_range = "from" not in context.query

    # ── Drawing ──

    async def build(self) -> None:
        view = self._view
        frame.set_window_title(view.shown_name)
        with frame.add_page_heading(render_untrusted_text(view.shown_name, 200), crumbs=(("/drift", "Drift"),)):
            self._buttons = parts.Panel("row")
        self._busy = parts.add_markup(SafeHtml()).props("role=status")
        self._state = parts.add_markup(SafeHtml())
        self._about = parts.add_markup(SafeHtml())
        self._change = parts.add_markup(SafeHtml())
        with ui.element("div").classes("below").props("id=day tabindex=-1") as self._day_box:
            pass
        parts.add_heading("Measurements")
        self._zoom = parts.Panel("row")
        parts.add_markup(render_legend(), classes="below")
        self._charts = parts.add_markup(SafeHtml(), classes="halves below")
        self._charts.on("click", parts.notify_on_error(self._on_day_clicked), js_handler=_OPEN_DAY_HANDLER)
        self._charts.on("keydown", js_handler=_MOVE_FOCUS_HANDLER)
        self._charts.on("pointerdown", parts.notify_on_error(self._on_range_dragged), js_handler=_ZOOM_HANDLER)
        parts.add_heading("Days")
        self._days = parts.add_markup(SafeHtml())
        self._beside = parts.add_markup(SafeHtml())
        self._history = parts.add_markup(SafeHtml())
        self._draw()
        loading = self._start_loading_report()
        if view.level in ("notice", "alarm"):  # what changed is above the charts, and would move them later
            await asyncio.wait([loading], timeout=REPORT_PATIENCE_S)

    def _draw(self) -> None:
        view = self._view
        self._state.set_content(render_state(view))
        self._about.set_content(render_about(view))
        shown = (view.is_active, view.is_public, view.measured_days, self._is_today_measured(), view.alerts_to)
        self._buttons.redraw_if_changed(shown, self._draw_actions)
        measuring = [each.day for each in view.days[-1:] if each.status == "measuring"]
        busy = tag("p", f"{measuring[0]} is being measured.", class_="warn") if measuring else SafeHtml()
        self._busy.set_content(busy)
        self._draw_day()
        self._draw_range()
        self._history.set_content(render_alerts_and_periods(view))

    def _draw_range(self) -> None:
        view, first, last = self._view, self._first, self._last
        charts = (
            render_measurement(group, view, first, last, lambda day: make_watch_url(view, day=day.isoformat()) + "#day")
            for group in group_instruments(view.findings)
        )
        self._charts.set_content(join_html(charts))
        shown = [each for each in view.days if first.isoformat() <= each.day <= last.isoformat()]
        self._days.set_content(
            render_days(view, shown) if shown else tag("p", "No day was measured in this range.", class_="quiet")
        )
        self._zoom.redraw_if_changed((first, last, len(view.days)), self._draw_zoom)

    def _draw_zoom(self) -> None:
        parts.add_markup(tag("span", f"{self._first} to {self._last}", class_="number small", role="status"))
        for days, words in ZOOMS:
            parts.add_button(words, partial(self._show_newest_days, days), small=True)
        parts.add_button("All", partial(self._show_newest_days, MAX_SHOWN_DAYS), small=True)
        parts.add_button("Earlier", partial(self._shift_range_by_half, -1), small=True)
        parts.add_button("Later", partial(self._shift_range_by_half, 1), small=True)
        parts.add_markup(
            tag("span", "Drag over a chart to zoom; choose a day to see its replies.", class_="quiet small screen-only")
        )

    def _draw_day(self) -> None:
        day = next((each for each in self._view.days if each.day == self._day), None)
        with parts.redraw(self._day_box):
            if day is None:
                if self._day:
                    parts.add_paragraph(f"{self._day[:20]} was not measured.", quiet=True)
                return
            with parts.open_card(day.day):
                parts.add_markup(render_day(self._view, day))
                with parts.open_box("row"):
                    parts.add_button("Close", self._close_day, small=True)

    def _draw_actions(self) -> None:
        view, may = self._view, self._context.may
        if may(set_public):
            words = "Make private" if view.is_public else "Make public"
            parts.add_button(words, partial(self._publish, not view.is_public))
        if not view.is_active:
            return
        if may(check_now) and not self._is_today_measured():
            parts.add_button("Check today", self._check, "primary")
        if may(confirm) and view.measured_days:
            parts.add_button("Confirm", self._confirm)
        if may(accept) and view.measured_days:
            parts.add_button("Accept as new baseline", self._accept)
        if may(send_test) and view.alerts_to and view.alerts_to.kind == "webhook":
            parts.add_button("Send test alert", self._send_test)
        if may(stop):
            parts.add_button("Stop", self._stop, "danger")

    def _is_today_measured(self) -> bool:
        today = clock.now().date().isoformat()
        return any(each.day == today and each.status != "measuring" for each in self._view.days[-1:])

    # ── The days shown ──

    def _parse_range_or_newest(self, first: str | None, last: str | None) -> tuple[date, date]:
        """Return the days of an address, or the newest ones."""
        begin, end = _parse_day(first), _parse_day(last)
        if begin and end and begin <= end and (end - begin).days < MAX_SHOWN_DAYS:
            return begin, end
        return self._make_newest_range(DEFAULT_SHOWN_DAYS)

    def _make_newest_range(self, days: int) -> tuple[date, date]:
        measured = _list_days_of_current_period(self._view)
        if not measured:
            today = _parse_day(self._view.created_at[:10]) or date.min
            return today, today + timedelta(days=MIN_SHOWN_DAYS - 1)
        last = max(measured[-1], measured[0] + timedelta(days=MIN_SHOWN_DAYS - 1))
        return max(measured[0], last - timedelta(days=days - 1)), last

    def _show_range(self, first: date, last: date) -> None:
        self._first, self._last, self._is_default_range = first, last, False
        self._draw_range()
        self._update_address()

    def _show_newest_days(self, days: int) -> None:
        self._show_range(*self._make_newest_range(days))

    def _shift_range_by_half(self, direction: int) -> None:
        days = (self._last - self._first).days + 1
        shift = timedelta(days=direction * max(1, days // 2))
        self._show_range(self._first + shift, self._last + shift)

    async def _on_range_dragged(self, event: Any) -> None:
        begin, first, last = event.args
        origin = _parse_day(str(begin))
        if origin is None:
            return
        self._show_range(origin + timedelta(days=int(first)), origin + timedelta(days=max(int(last), int(first) + 2)))

    def _update_address(self) -> None:
        chosen = {} if self._is_default_range else {"from": self._first.isoformat(), "to": self._last.isoformat()}
        ui.navigate.history.replace(make_watch_url(self._view, **chosen, day=self._day))

    # ── One day ──

    async def _on_day_clicked(self, event: Any) -> None:
        self._open_day(str(event.args))

    def _open_day(self, day: str) -> None:
        self._day = day
        self._draw_day()
        self._update_address()
        ui.run_javascript(_FOCUS_DAY_SCRIPT)

    def _close_day(self) -> None:
        day, self._day = self._day, None
        self._draw_day()
        self._update_address()
        ui.run_javascript(f"document.querySelector('a.day[data-day={json.dumps(day)}]')?.focus()")

    # ── Updates and actions ──

    async def refresh(self) -> None:
        """Read the watch again, and show what has changed."""
        found = await self._context.call(read, self._view.id)
        if not self._charts.is_deleted:
            self._show_view(found)

    def _start_loading_report(self) -> "asyncio.Task[None]":
        """Read the report in the background: the forecasts of an endpoint's days take a second."""
        return background_tasks.create(self._load_report(), name="load the report of a watch", context=self._beside)

    async def _load_report(self) -> None:
        try:
            report = await self._context.call(read_report, self._view.id)
        except UseCaseRefused as error:
            if not self._beside.is_deleted:
                self._beside.set_content(parts.render_refusal(error))
            return
        if not self._beside.is_deleted:
            self._show_report(report)

    def _show_report(self, report: WatchReportView) -> None:
        self._change.set_content(render_change(report.change) if report.change else SafeHtml())
        self._beside.set_content(render_facts_beside_statistic(report))

    def _show_view(self, view: WatchDetailView) -> None:
        is_new = view.days != self._view.days or view.alerts != self._view.alerts
        self._view = view
        if is_new:
            self._start_loading_report()
        if self._is_default_range:
            self._first, self._last = self._make_newest_range(DEFAULT_SHOWN_DAYS)
        self._draw()

    async def _check(self) -> None:
        self._show_view(await self._context.call(check_now, self._view.id))
        parts.show_notification("Today is being measured; this page updates by itself.", "positive")

    async def _publish(self, is_public: bool) -> None:
        if is_public:
            shown = "Anyone who has the address can then read its state, its charts and its alerts, but no reply."
            if not await parts.ask_confirmation("Make this watch public?", shown, "Make public"):
                return
        self._show_view(await self._context.call(set_public, self._view.id, is_public=is_public))

    async def _send_test(self) -> None:
        sent = await self._context.call(send_test, self._view.id)
        parts.show_notification(f"A test alert has arrived at {sent.sent_to}.", "positive")

    async def _confirm(self) -> None:
        calls = pluralise(self._count_case_calls(), "call")
        budget = self._view.budget_usd_per_day
        cost = "" if budget is None else f", at most ${budget:,.2f}"
        consequence = f"It sends the same cases once more: {calls}{cost}. The statistic does not use it."
        if await parts.ask_confirmation("Run a confirming batch?", consequence, "Run batch"):
            with self._show_busy("Running a confirming batch"):
                self._show_view(await self._context.call(confirm, self._view.id))
            parts.show_notification("The confirming batch is below, beside the baseline.", "positive")

    def _count_case_calls(self) -> int:
        """Return the planned calls of the cases on the last day, 0 before it: a confirming batch sends only these."""
        return next((each.planned for each in reversed(self._view.days) if each.planned), 0)

    @contextmanager
    def _show_busy(self, doing: str) -> Iterator[None]:
        count = self._count_case_calls()
        calls = f": {pluralise(count, 'call')}" if count else ""
        self._busy.set_content(tag("p", f"{doing}{calls}. You can leave this page.", class_="warn"))
        try:
            yield
        finally:
            self._busy.set_content(SafeHtml())

    async def _accept(self) -> None:
        note = await _ask_note(self._view)
        if note is not None:
            self._show_view(await self._context.call(accept, self._view.id, note or None))
            parts.show_notification("A new baseline begins with the next day.", "positive")

    async def _stop(self) -> None:
        consequence = (
            "No day is measured any more, and a stopped watch cannot be started again. Its days and runs are kept."
        )
        if await parts.ask_confirmation("Stop this watch?", consequence, "Stop watch"):
            self._show_view(await self._context.call(stop, self._view.id))


_FOCUS_DAY_SCRIPT = """
const box = document.getElementById("day");
box?.scrollIntoView({ block: "start" });
box?.focus({ preventScroll: true });
"""


async def _ask_note(view: WatchDetailView) -> str | None:
    """Ask for confirmation of a new baseline, with a note; None if the user cancels."""
    with ui.context.client, ui.dialog() as dialog, ui.card() as card:
        card.props["role"], card.props["aria-label"] = "dialog", "Accept as new baseline"
        parts.add_markup(tag("h2", "Accept the model as it is now?"))
        parts.add_paragraph(
            f"A new baseline of {view.baseline_days} days begins with the next day. Until it is complete, a change "
            "cannot be told from chance. Earlier days are kept."
        )
        note = parts.add_text_field("Note (optional)", hint="Such as: moved to the version of November")
        with parts.open_box("row"):
            parts.add_button("Accept", lambda: dialog.submit(note.value or ""), "primary")
            parts.add_button("Cancel", lambda: dialog.submit(None))
    answer: str | None = await dialog
    dialog.delete()
    return answer


def _parse_day(text: str | None) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        return None


def _list_days_of_current_period(view: WatchDetailView) -> list[date]:
    """Return the days of the current period."""
    period = view.days[-1].period if view.days else None
    return [date.fromisoformat(each.day) for each in view.days if each.period == period]
