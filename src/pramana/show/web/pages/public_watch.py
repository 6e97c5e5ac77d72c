"""The public page of a watch: its state, its charts and its alerts for anyone, without a token, scripts or controls."""

from collections.abc import Iterator, Sequence
from datetime import date, timedelta

import nicegui
from starlette.requests import Request
from starlette.responses import Response

from pramana.analyse.instruments import INSTRUMENT_GROUPS
from pramana.app.watch_alerts import PublicInstrumentView, PublicWatchView, read_public
from pramana.report.markup import SafeHtml, render_facts, render_untrusted_text, render_with_sign, tag
from pramana.report.series import Series, SeriesPoint, draw_series
from pramana.report.watches import format_value
from pramana.show.web.kit import PageContext, UseCaseRefused
from pramana.show.web.kit.style import render_plain_page
from pramana.show.web.pages.watch_markup import (
    GROUP_TITLES,
    MAX_VALUE_BY_UNIT,
    MIN_SPAN_BY_UNIT,
    SIGNS_BY_LEVEL,
    WORDS_BY_LEVEL,
    render_judge,
    render_legend,
)

SHOWN_DAYS = 180
PUBLIC_LEGEND = ("a day", "lowest to highest day of the baseline", "when the change may have begun", "missing day")
"""What the charts of a public watch show."""


@nicegui.app.get("/public/drift/{watch_id}", include_in_schema=False)
async def show_public_watch(request: Request, watch_id: str) -> Response:
    """Show a public watch; any other address is answered as if there were no such page."""
    try:
        view = await PageContext(request).call(read_public, watch_id)
    except UseCaseRefused as error:
        if error.status == 404:
            words = tag("p", "There is no public watch at this address. It may not be public any more.")
            return render_plain_page(request, "No such page", tag("h1", "Page not found"), words, status=404)
        return render_plain_page(
            request, "Not available", tag("h1", "Not available"), tag("p", str(error)), status=error.status
        )
    return render_plain_page(request, f"{view.name or view.model}", *_render_watch(view), is_wide=True)


def _render_watch(view: PublicWatchView) -> Iterator[SafeHtml]:
    sign, look = SIGNS_BY_LEVEL[view.level]
    yield tag("h1", render_untrusted_text(view.name or view.model, 200))
    yield tag(
        "section",
        tag("h2", render_with_sign(sign, WORDS_BY_LEVEL[view.level], look), class_="verdict"),
        tag("p", render_untrusted_text(view.sentence, 2000)),
        tag("p", view.proof, class_="quiet small"),
        render_judge(view.calibration),
        None if view.is_active else tag("p", "This watch was stopped.", class_="warn"),
        class_="card stack below",
        aria_label="State of the watch",
    )
    missing = f", {view.missing_days:,} missing" if view.missing_days else ""
    yield render_facts(
        [
            ("Model", render_untrusted_text(view.model, 200)),
            ("Days measured", f"{view.measured_days:,}{missing}"),
            ("Last day", view.last_day or "none yet"),
            ("Baseline", f"{view.baseline_days} days"),
        ],
        "sheet",
    )
    yield tag("h2", "Measurements")
    yield render_legend(PUBLIC_LEGEND)
    yield tag("div", (_render_measurement(each, view) for each in _list_measurements(view)), class_="halves below")
    if view.alerts:
        listed = (tag("li", tag("strong", each.day), " ", each.sentence) for each in reversed(view.alerts))
        yield tag("section", tag("h2", "Alerts"), tag("ul", listed, class_="lines"))
    yield tag("p", "Measured by Pramana. No prompt and no reply is shown here.", class_="quiet small foot")


def _list_measurements(view: PublicWatchView) -> list[tuple[str, PublicInstrumentView]]:
    """Return one instrument of each measurement: both directions have the same values."""
    group_by_name = {name: group for group, names in INSTRUMENT_GROUPS.items() for name in names}
    found: dict[str, PublicInstrumentView] = {}
    for each in view.instruments:
        found.setdefault(group_by_name.get(each.name, each.name), each)
    return [(GROUP_TITLES.get(group, each.title.capitalize()), each) for group, each in found.items()]


def _render_measurement(titled: tuple[str, PublicInstrumentView], view: PublicWatchView) -> SafeHtml:
    title, instrument = titled
    days = [date.fromisoformat(each.day) for each in instrument.scores]
    last = days[-1] if days else date.fromisoformat(view.created_at[:10])
    first = max(min(days, default=last), last - timedelta(days=SHOWN_DAYS - 1))
    return tag(
        "section",
        tag("h3", title),
        _render_latest(instrument),
        draw_series(_make_series(title, instrument, view), first, max(last, first + timedelta(days=6))),
        class_="card instrument",
        aria_label=title,
    )


def _render_latest(instrument: PublicInstrumentView) -> SafeHtml:
    band = " to ".join(format_value(instrument.unit, each) for each in instrument.baseline_band or ())
    about = (
        f"baseline {band}" if band else f"{instrument.collected_days} of {instrument.needed_days} days of the baseline"
    )
    if not instrument.scores:
        return tag("p", about, class_="quiet small")
    latest = instrument.scores[-1]
    value = tag("strong", format_value(instrument.unit, latest.value), class_="number")
    return tag("p", value, " ", tag("span", f"on {latest.day}, {about}", class_="quiet small"))


def _make_series(title: str, instrument: PublicInstrumentView, view: PublicWatchView) -> Series:
    first = instrument.scores[0].day if instrument.scores else ""
    return Series(
        title,
        tuple(SeriesPoint(date.fromisoformat(each.day), each.value) for each in instrument.scores),
        lambda value: format_value(instrument.unit, value),
        MIN_SPAN_BY_UNIT.get(instrument.unit, 0.0),
        MAX_VALUE_BY_UNIT.get(instrument.unit, float("inf")),
        instrument.baseline_band,
        missing_days=tuple(
            date.fromisoformat(each.day) for each in view.days if each.status == "missing" and each.day >= first
        ),
        change_began_between=_parse_first_and_last_day(instrument.first_days)
        if instrument.level in ("notice", "alarm")
        else None,
    )


def _parse_first_and_last_day(days: Sequence[str] | None) -> tuple[date, date] | None:
    return (date.fromisoformat(days[0]), date.fromisoformat(days[1])) if days else None
