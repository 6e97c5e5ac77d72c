"""Markup of a watch: its state, the chart of each measurement, its days and alerts. Views in, markup out."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import NamedTuple

from pramana import clock
from pramana.analyse.instruments import INSTRUMENT_GROUPS, INSTRUMENTS
from pramana.analyse.numbers import pluralise
from pramana.analyse.summary import KnownTotal
from pramana.analyse.watch import Level
from pramana.app.watch_calls import InstrumentCallsView, name_instrument_groups
from pramana.app.watches import InstrumentView, WatchAlertView, WatchDayView, WatchDetailView, WatchView
from pramana.report.figures import format_cost
from pramana.report.markup import (
    Column,
    HtmlChild,
    SafeHtml,
    join_html,
    render_facts,
    render_link,
    render_meter,
    render_table,
    render_time,
    render_untrusted_text,
    render_with_sign,
    tag,
)
from pramana.report.series import MarkKind, Series, SeriesLimit, SeriesPoint, draw_series
from pramana.report.watches import format_value
from pramana.show.web.kit import make_url, quote_path_part

SIGNS_BY_LEVEL: Mapping[Level, tuple[str, str]] = {
    "alarm": ("✗", "failed"),
    "notice": ("!", "errored"),
    "quiet": ("✓", "passed"),
    "collecting": ("…", "skipped"),
    "cannot_tell": ("?", "unscored"),
}
WORDS_BY_LEVEL: Mapping[Level, str] = {
    "alarm": "Alarm",
    "notice": "Notice",
    "quiet": "Quiet",
    "collecting": "Collecting",
    "cannot_tell": "Cannot tell",
}
GROUP_TITLES: Mapping[str, str] = {
    "pass_rate": "Pass rate",
    "replies": "New replies",
    "length": "Length of replies",
    "latency": "Latency",
    "refusals": "Refusals",
    "answers": "Answers to border prompts",
    "logprobs": "Logprobs of first tokens",
    "voice_to_voice": "Voice to voice",
    "leading_silence": "Leading silence",
    "word_errors": "Word errors",
    "speech_rate": "Speech rate",
    "quality": "Speech quality",
}
MIN_SPAN_BY_UNIT: Mapping[str, float] = {
    "share": 0.1,
    "rate": 0.1,
    "words": 10.0,
    "seconds": 0.2,
    "words_a_minute": 20.0,
    "points": 0.5,
    "nats": 0.1,
}
"""The least that the scale of each unit spans."""
MAX_VALUE_BY_UNIT: Mapping[str, float] = {"share": 1.0}
NEWEST_DAYS = 14
"""Days that are listed at once; earlier ones are folded."""


def make_watch_url(view: WatchView, **query: str | None) -> str:
    """Return the address of a watch's page."""
    return make_url(f"/drift/{quote_path_part(view.id)}", **query)


def render_level(view: WatchView) -> SafeHtml:
    """Return the state of a watch as a sign and a word; a stopped watch says so too."""
    sign, look = SIGNS_BY_LEVEL[view.level]
    shown = render_with_sign(sign, WORDS_BY_LEVEL[view.level], look)
    return shown if view.is_active else join_html([shown, tag("small", " (stopped)", class_="quiet")])


def format_day_cost(view: WatchView) -> str:
    """Return what the last day has cost."""
    if view.last_day_cost_usd is None:
        return "–"
    return format_cost(KnownTotal(view.last_day_cost_usd, int(view.is_last_day_cost_unknown)))


def format_budget(view: WatchView) -> str:
    """Return the budget of a day."""
    return "no limit" if view.budget_usd_per_day is None else f"of ${view.budget_usd_per_day:,.2f} a day"


def describe_next_due(view: WatchView) -> str:
    """Return when the next day is measured, in UTC."""
    if not view.is_active:
        return "stopped"
    now = clock.now()
    today, at = now.date(), view.at or "00:00"
    if view.last_day is None or view.last_day < today.isoformat():
        return f"today, {at} UTC" if f"{now:%H:%M}" < at else "due now"
    return f"{today + timedelta(days=1)}, {at} UTC"


def describe_next_step(view: WatchView) -> str:
    """Return what the user can do next."""
    if not view.is_active:
        return "Its days and runs are kept."
    match view.level:
        case "alarm":
            return "Read what changed; then accept a new baseline, or go back to the earlier model."
        case "notice":
            return "Confirm it with a batch now, or wait for the next day."
        case "collecting":
            return "Wait for the days of the baseline."
        case "cannot_tell":
            return "Start a watch with other cases, other instruments or more calls a day."
        case "quiet":
            return "Nothing to do."


def render_judge(calibration: str | None) -> SafeHtml | None:
    """Return how far the judges of a watch's verdicts agree with people; None if no model judged."""
    if calibration is None:
        return None
    return tag("p", f"A model judges the replies ({calibration}).", class_="quiet small")


def render_state(view: WatchDetailView) -> SafeHtml:
    """Return the state as one sentence, what is proven, and how far the baseline is."""
    sign, look = SIGNS_BY_LEVEL[view.level]
    heading = tag("h2", render_with_sign(sign, WORDS_BY_LEVEL[view.level], look), class_="verdict")
    collecting = [each for each in view.findings if each.baseline is None]
    first = min(collecting, key=lambda each: each.needed_days - each.collected_days, default=None)
    meter = (
        render_meter("Days of the baseline", first.collected_days, first.needed_days)
        if first and view.level == "collecting"
        else None
    )
    return tag(
        "section",
        heading,
        tag("p", render_untrusted_text(view.sentence, 2000)),
        meter,
        tag("p", view.proof, class_="quiet small"),
        render_judge(view.calibration),
        class_="card stack",
        aria_label="State of the watch",
    )


# ── Charts ──


class InstrumentGroup(NamedTuple):
    """One measurement with its directions: the pass rate, down and up."""

    name: str
    title: str
    instruments: tuple[InstrumentView, ...]


def group_instruments(instruments: Sequence[InstrumentView]) -> list[InstrumentGroup]:
    """Return the instruments by measurement, so that both directions share a chart; those with alarms come first."""
    by_name = {each.name: each for each in instruments}
    groups, left = [], dict(by_name)
    for group, names in INSTRUMENT_GROUPS.items():
        mine = tuple(left.pop(name) for name in names if name in left)
        if mine:
            groups.append(InstrumentGroup(group, GROUP_TITLES.get(group, mine[0].title.capitalize()), mine))
    groups += [InstrumentGroup(each.name, each.title.capitalize(), (each,)) for each in left.values()]
    severity = list(SIGNS_BY_LEVEL)
    return sorted(groups, key=lambda each: min(severity.index(instrument.level) for instrument in each.instruments) > 1)


def make_series(group: InstrumentGroup, view: WatchDetailView) -> Series:
    """Return what the chart of a measurement shows."""
    main = group.instruments[0]
    marks = _find_marks_by_day(group, view)
    names = {each.name for each in group.instruments}
    points = tuple(SeriesPoint(date.fromisoformat(each.day), each.value, marks.get(each.day)) for each in main.scores)
    changed = next((each.first_days for each in group.instruments if each.level in ("notice", "alarm")), None)
    mine = [each for each in view.days if each.period == view.period]
    measured = [each.day for each in mine if each.status == "measured"]
    reference = measured[: INSTRUMENTS[main.name].reference_days] if main.name in INSTRUMENTS else []
    return Series(
        group.title,
        points,
        lambda value: format_value(main.unit, value),
        MIN_SPAN_BY_UNIT.get(main.unit, 0.0),
        MAX_VALUE_BY_UNIT.get(main.unit, math.inf),
        main.baseline_band,
        tuple(_list_tolerance_limits(group)),
        tuple(map(date.fromisoformat, reference)),
        (date.fromisoformat(main.baseline.first_day), date.fromisoformat(main.baseline.last_day))
        if main.baseline
        else None,
        tuple(_list_missing_days(mine)),
        (date.fromisoformat(changed[0]), date.fromisoformat(changed[1])) if changed and names else None,
    )


def _list_missing_days(days: Sequence[WatchDayView]) -> Iterator[date]:
    """Yield the days between the first and the last one that do not count; days without any call are not stored."""
    if not days:
        return
    counted = {each.day for each in days if each.status != "missing"}
    day, last = date.fromisoformat(days[0].day), date.fromisoformat(days[-1].day)
    while day <= last:
        if day.isoformat() not in counted:
            yield day
        day += timedelta(days=1)


def _find_marks_by_day(group: InstrumentGroup, view: WatchDetailView) -> dict[str, MarkKind]:
    """Return the days on which this measurement first reached a level, from the alerts."""
    names = {each.name for each in group.instruments}
    found: dict[str, MarkKind] = {}
    for alert in view.alerts:
        named = alert.body.get("instruments", ())
        if any(isinstance(each, Mapping) and each.get("instrument") in names for each in named):
            found[alert.day] = "alarm" if alert.level == "alarm" else "notice"
    return found


def _list_tolerance_limits(group: InstrumentGroup) -> Iterator[SeriesLimit]:
    """Yield where the tolerance of each direction ends, in the unit that users see."""
    for each in group.instruments:
        if each.baseline is not None and each.name in INSTRUMENTS:
            end = INSTRUMENTS[each.name].to_shown(each.baseline.high + each.alarm_tolerance)
            yield SeriesLimit("tolerance", min(1.0, max(0.0, end)) if each.unit == "share" else end)


def render_measurement(
    group: InstrumentGroup, view: WatchDetailView, first: date, last: date, make_day_url: Callable[[date], str] | None
) -> SafeHtml:
    """Return the chart of a measurement with its latest value and what each direction says."""
    main = group.instruments[0]
    latest = format_value(main.unit, main.latest.value) if main.latest else "–"
    band = " to ".join(format_value(main.unit, each) for each in main.baseline_band or ())
    about = f"baseline {band}" if band else f"{main.collected_days} of {main.needed_days} days of the baseline"
    if main.note:
        return tag(
            "section", tag("h3", group.title), tag("p", main.note), class_="card instrument", aria_label=group.title
        )
    return tag(
        "section",
        tag("h3", group.title),
        tag(
            "p",
            tag("strong", latest, class_="number"),
            " ",
            tag("span", f"on {main.latest.day}, " if main.latest else "", about, class_="quiet small"),
        ),
        draw_series(make_series(group, view), first, last, make_day_url),
        tag("ul", (tag("li", _render_direction(each)) for each in group.instruments), class_="lines small"),
        *(tag("p", _describe_today(each), class_="warn") for each in group.instruments if each.is_today_outside),
        class_="card instrument",
        aria_label=group.title,
    )


def _render_direction(view: InstrumentView) -> SafeHtml:
    sign, look = SIGNS_BY_LEVEL[view.level]
    state = render_with_sign(sign, f"{view.title}: {WORDS_BY_LEVEL[view.level].lower()}", look)
    if view.baseline is None:
        return state
    return join_html([state, tag("span", f" · {_describe_statistics(view)}", class_="quiet")])


def _describe_statistics(view: InstrumentView) -> str:
    """Return how far the statistics are from their thresholds."""
    if view.alarm_statistic >= view.alarm_threshold:
        return f"its statistic is over {view.alarm_threshold:,.0f}, the threshold of an alarm"
    alarm = f"{_format_statistic(view.alarm_statistic)} of {view.alarm_threshold:,.0f} for an alarm"
    if view.notice_statistic >= view.notice_threshold:
        return f"its statistic is over {view.notice_threshold:,.0f}, the threshold of a notice; {alarm}"
    return f"statistic {_format_statistic(view.notice_statistic)} of {view.notice_threshold:,.0f} for a notice, {alarm}"


def _format_statistic(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _describe_today(view: InstrumentView) -> str:
    p = f" (p = {view.today_p_value:.2g})" if view.today_p_value is not None else ""
    day = view.latest.day if view.latest else "today"
    return (
        f"The calls of {day} alone are outside the tolerance: {view.title}{p}. This says nothing about other days; "
        "an alarm needs several days."
    )


LEGEND: Sequence[tuple[str, str, str]] = (
    ("dot", "a day", ""),
    ("band", "lowest to highest day of the baseline", "band"),
    ("baseline", "days of the baseline", "baseline-days"),
    (
        "reference",
        "reference days: their replies are compared with later days, so they have no value of their own",
        "reference-days",
    ),
    ("changed", "when the change may have begun", "changed-days"),
)


def render_legend(shown: Collection[str] | None = None) -> SafeHtml:
    """Return what the shapes of the charts mean: all of them, or those with the named meanings."""
    drawn = [(words, _draw_sample(kind, class_)) for kind, words, class_ in LEGEND]
    drawn.append(("limit of the tolerance", tag("path", class_="limit", d="M0 7H28")))
    drawn.append(("missing day", tag("path", class_="missing-days", d="M14 14V4")))
    samples = [(words, tag("svg", each, viewBox="0 0 28 14", aria_hidden="true")) for words, each in drawn]
    samples += [
        (f" first day of {words}", tag("b", sign, aria_hidden="true"))
        for sign, words in (("!", "a notice"), ("✗", "an alarm"))
    ]
    items = (tag("li", sample, words) for words, sample in samples if shown is None or words in shown)
    return tag("ul", items, class_="legend", aria_label="Legend")


def _draw_sample(kind: str, class_: str) -> SafeHtml:
    if kind == "dot":
        return join_html([tag("path", class_="stroke", d="M0 7H28"), tag("circle", class_="dot", cx=14, cy=7, r=4)])
    return tag("rect", class_=class_, width=28, height=14)


# ── Days ──


def render_days(view: WatchDetailView, days: Sequence[WatchDayView]) -> SafeHtml:
    """Return days as a table, newest first, with links to their replies; earlier ones are folded."""
    newest, earlier = days[-NEWEST_DAYS:], days[:-NEWEST_DAYS]
    shown = _render_days_table(view, newest, "Newest days, newest first")
    if not earlier:
        return shown
    folded = tag("summary", f"{pluralise(len(earlier), 'earlier day')}")
    return join_html([shown, tag("details", folded, _render_days_table(view, earlier, "Earlier days, newest first"))])


def _render_days_table(view: WatchDetailView, days: Sequence[WatchDayView], caption: str) -> SafeHtml:
    groups = group_instruments(view.findings)
    columns = (
        Column("Day", is_row_header=True),
        Column("State"),
        Column("Calls answered", is_numeric=True),
        *(Column(each.title, is_numeric=True) for each in groups),
        Column("Replies"),
    )
    values = {
        (each.name, score.day): format_value(main.unit, score.value)
        for each in groups
        for main in each.instruments[:1]
        for score in main.scores
    }
    rows = (
        (
            render_link(make_watch_url(view, day=each.day) + "#day", each.day),
            render_day_state(each),
            f"{each.answered:,} of {each.planned:,}" if each.planned else "–",
            *(values.get((group.name, each.day), "–") for group in groups),
            render_run_links(each),
        )
        for each in reversed(days)
    )
    return render_table(caption, columns, rows, hide_caption=True)


def render_day_state(day: WatchDayView) -> SafeHtml:
    """Return the state of a day: its level, or why it does not count."""
    if day.status == "missing":
        return tag(
            "span", "– missing", tag("small", render_untrusted_text(day.reason, 300), class_="quiet"), class_="cell"
        )
    if day.status == "measuring":
        return render_with_sign("▸", "measuring", "running")
    level: Level = day.level or "collecting"
    sign, look = SIGNS_BY_LEVEL[level]
    return render_with_sign(sign, WORDS_BY_LEVEL[level].lower(), look)


def render_run_links(day: WatchDayView) -> SafeHtml:
    """Return links to the runs of a day, where its replies are."""
    links = [_render_replies_link(each, f"Replies of {day.day}", place) for place, each in enumerate(day.runs)]
    links += [
        _render_replies_link(each, f"Confirming batch of {day.day}", place)
        for place, each in enumerate(day.confirming_runs)
    ]
    return tag("span", join_html(links, ", ")) if links else tag("span", "–", class_="quiet")


def _render_replies_link(run_id: str, label: str, index: int) -> SafeHtml:
    words = "Confirming batch" if label.startswith("Confirming") else "Replies"
    number = f" {index + 1}" if index else ""
    return tag("a", f"{words}{number}", href=make_url(f"/runs/{run_id}"), aria_label=f"{label}{number}")


def render_day(view: WatchDetailView, day: WatchDayView) -> SafeHtml:
    """Return one day: its state, its values beside the baseline, and its replies."""
    rows: list[tuple[HtmlChild, ...]] = []
    for group in group_instruments(view.findings):
        main = group.instruments[0]
        value = next((each.value for each in main.scores if each.day == day.day), None)
        if value is not None:
            band = " to ".join(format_value(main.unit, each) for each in main.baseline_band or ()) or "–"
            rows.append((group.title, format_value(main.unit, value), band))
    columns = (
        Column("Measured", is_row_header=True),
        Column("Value", is_numeric=True),
        Column("Baseline", is_numeric=True),
    )
    before = _find_comparable_run(view, day)
    compared = (
        tag(
            "a",
            "Compare with the last day of the baseline",
            class_="btn",
            href=make_url("/compare", base=before, new=day.runs[-1], anySuite=True),
        )
        if before and day.runs
        else None
    )
    return tag(
        "div",
        tag(
            "p",
            render_day_state(day),
            f" · {day.answered:,} of {day.planned:,} calls answered" if day.planned else None,
        ),
        *(_render_day_alert(each, view) for each in view.alerts if each.day == day.day),
        render_table(f"Values of {day.day}", columns, rows, hide_caption=True) if rows else None,
        tag("div", *_list_run_links_of_day(day), compared, class_="row below"),
        class_="stack",
    )


def _render_day_alert(alert: WatchAlertView, view: WatchDetailView) -> SafeHtml:
    """Return why an alert was raised on a day, and where its replies are compared."""
    named = [each for each in alert.body.get("instruments", ()) if isinstance(each, Mapping)]
    reached = [
        f"{INSTRUMENTS[each['instrument']].title}: statistic {_format_statistic(each['statistic'])}, "
        f"over the threshold of {each['threshold']:,.0f}"
        for each in named
        if each.get("instrument") in INSTRUMENTS and each.keys() >= {"statistic", "threshold"}
    ]
    is_current = alert.period == view.period and view.level in ("notice", "alarm")
    return tag(
        "div",
        tag("p", render_untrusted_text(alert.sentence, 500)),
        tag("p", f"{'; '.join(reached)}.".capitalize(), class_="small quiet") if reached else None,
        tag("p", tag("a", "What changed", href="#change")) if is_current else None,
        class_="warn trouble" if alert.level == "alarm" else "warn",
    )


def _list_run_links_of_day(day: WatchDayView) -> Iterator[SafeHtml]:
    for place, run in enumerate(day.runs):
        words = "Show the replies" if not place else f"Show the replies, run {place + 1}"
        yield tag("a", words, class_="btn primary", href=make_url(f"/runs/{run}"))
    for run in day.confirming_runs:
        yield tag("a", "Show the confirming batch", class_="btn", href=make_url(f"/runs/{run}"))


def _find_comparable_run(view: WatchDetailView, day: WatchDayView) -> str | None:
    """Return the run of the last day of the baseline, if the day comes after it."""
    last = max((each.baseline.last_day for each in view.findings if each.baseline), default=None)
    if last is None or day.day <= last:
        return None
    return next((each.runs[-1] for each in view.days if each.day == last and each.runs), None)


# ── Periods and alerts ──


def render_alerts_and_periods(view: WatchDetailView) -> SafeHtml:
    """Return the alerts and the periods of a watch."""
    return join_html([_render_alerts(view), _render_periods(view)])


def _render_alerts(view: WatchDetailView) -> SafeHtml | None:
    if not view.alerts:
        return None
    columns = (
        Column("Alert", is_row_header=True),
        Column("Day"),
        Column("What changed"),
        Column("Raised (UTC)"),
        Column("Delivered (UTC)"),
    )
    rows = (
        (
            render_with_sign(*_choose_alert_sign(each.level)),
            tag("span", render_link(make_watch_url(view, day=each.day) + "#day", each.day), class_="number"),
            render_untrusted_text(each.sentence, 500),
            render_time(each.created_at),
            _render_delivery(each, view),
        )
        for each in reversed(view.alerts)
    )
    return tag("section", tag("h2", "Alerts"), render_table("Alerts, newest first", columns, rows, hide_caption=True))


def _choose_alert_sign(level: str) -> tuple[str, str, str]:
    sign, look = SIGNS_BY_LEVEL["alarm" if level == "alarm" else "notice"]
    return sign, level, look


def _render_delivery(alert: WatchAlertView, view: WatchDetailView) -> SafeHtml:
    """Return when an alert was delivered, or why it was not yet."""
    if alert.delivered_at:
        return render_time(alert.delivered_at)
    if alert.error:
        again = f"; tried again at {alert.next_attempt_at[11:16]}" if alert.next_attempt_at else ""
        return tag("span", render_untrusted_text(alert.error, 300), again)
    return tag("span", "waiting" if view.alerts_to else "sent nowhere", class_="quiet")


def _render_periods(view: WatchDetailView) -> SafeHtml | None:
    if len(view.periods) < 2:
        return None
    columns = (
        Column("Began", is_row_header=True),
        Column("Why"),
        Column("Note"),
        Column("Days measured", is_numeric=True),
    )
    rows = (
        (each.begins, render_untrusted_text(each.reason, 300), render_untrusted_text(each.note, 300), f"{each.days:,}")
        for each in reversed(view.periods)
    )
    return tag(
        "section",
        tag("h2", "Baselines"),
        tag("p", "Days are compared only within a period; each period has its own baseline.", class_="quiet small"),
        render_table("Periods, newest first", columns, rows, hide_caption=True),
    )


def render_instrument_calls(calls: Sequence[InstrumentCallsView]) -> SafeHtml:
    """Return the calls and the cost a day of each instrument."""
    columns = (
        Column("Instruments", is_row_header=True),
        Column("Calls a day", is_numeric=True),
        Column("Cost a day", is_numeric=True),
    )
    rows = []
    for each in calls:
        names = ", ".join(
            GROUP_TITLES.get(group.replace(" ", "_"), group) for group in name_instrument_groups(each.instruments)
        )
        when = "first day: up to" if each.is_estimate else "and"
        once = f" ({when} {each.first_day_calls:,} more, to find its prompts)" if each.first_day_calls else ""
        is_unknown = each.calls is None and not each.is_estimate  # a run was deleted
        cost = "–" if is_unknown else format_cost(KnownTotal(each.cost_usd or 0.0, int(each.cost_usd is None)))
        rows.append((f"{names or 'Test cases'}{once}", "–" if each.calls is None else f"{each.calls:,}", cost))
    return render_table("Calls and cost of the instruments", columns, rows)


def render_about(view: WatchDetailView) -> SafeHtml:
    """Return the facts of a watch."""
    limit = "no limit" if view.budget_usd_per_day is None else f"${view.budget_usd_per_day:,.2f} a day"
    facts: list[tuple[str, HtmlChild]] = [
        ("Model", render_untrusted_text(view.model, 300)),
        (
            "Days measured",
            f"{view.measured_days:,}" + (f", {view.missing_days:,} missing" if view.missing_days else ""),
        ),
        ("Last day", view.last_day or "none yet"),
        ("Budget", limit),
        ("Measured at", f"{view.at} UTC" if view.at else "any time of the day"),
        ("Baseline", pluralise(view.baseline_days, "day")),
        ("Started", render_time(view.created_at)),
    ]
    if view.stopped_at:
        facts.append(("Stopped", render_time(view.stopped_at)))
    if view.alerts_to:
        facts.append(("Alerts to", render_untrusted_text(view.alerts_to.name, 100)))
    if view.is_public:
        links = [
            render_link(make_url(f"/public/drift/{quote_path_part(view.id)}"), "public page"),
            render_link(make_url(f"/api/public/watches/{quote_path_part(view.id)}/badge"), "badge"),
        ]
        facts.append(("Public", join_html(links, ", ")))
    if view.creator:
        facts.append(("Started by", render_untrusted_text(view.creator, 100)))
    return tag("div", render_facts(facts, "sheet"), render_instrument_calls(view.calls), class_="stack")
