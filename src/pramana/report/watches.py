"""Watches for the terminal: views in, lines of at most 80 columns out."""

import re
from collections.abc import Iterator, Sequence

from pramana.analyse.instruments import INSTRUMENT_GROUPS
from pramana.analyse.labels import SideLabels
from pramana.analyse.numbers import format_duration, format_percent, pluralise
from pramana.analyse.summary import KnownTotal
from pramana.analyse.watch_family import MAX_FALSE_DISCOVERY_RATE, expect_false_notices
from pramana.app.watch_calibrations import format_calibration
from pramana.app.watch_calls import name_instrument_groups
from pramana.app.watch_reports import (
    ChangeReportView,
    ConfirmationView,
    EndpointView,
    WatchReportView,
)
from pramana.app.watches import InstrumentView, WatchAlertView, WatchDetailView, WatchView
from pramana.errors import escape_control_characters
from pramana.report.figures import format_cost
from pramana.report.reply_pairs import render_reply_pair
from pramana.report.terminal import fit_to_width, pad_to_width, wrap_text

SPARKS = "▁▂▃▄▅▆▇█"
SHOWN_DAYS = 60
MAX_SHOWN_CATEGORIES = 8
_INDENT = "  "
_COLUMNS = 80
_SIDES = SideLabels("baseline", "last day")
_GROUP_BY_INSTRUMENT = {name: group for group, names in INSTRUMENT_GROUPS.items() for name in names}


def render_started(view: WatchDetailView) -> str:
    """Return what a new watch will do."""
    lines = [
        f"Watch {view.id}: {escape_control_characters(view.model)}, with a baseline of {view.baseline_days} days.",
        f"Instruments: {'; '.join(each.title for each in view.findings)}.",
    ]
    if view.forecast:
        lines.append(view.forecast.sentence)
    next_step = f"Measure a day: pramana drift check {_format_reference(view)}"
    wrapped = [wrap_text(each, other_prefix=_INDENT) for each in (*lines, next_step)]
    warnings = list[str]()
    for warning in view.warnings:
        sentence, *example = map(escape_control_characters, warning.splitlines())
        warnings += [wrap_text(f"Warning: {sentence}", other_prefix=_INDENT), *example]
    return "\n".join((*wrapped[:-1], *_render_calls(view), wrapped[-1], *warnings))


def _render_calls(view: WatchDetailView) -> Iterator[str]:
    """Yield what the instruments take a day: in calls, and in cost where it is known."""
    yield "Calls and cost a day:"
    for each in view.calls:
        names = ", ".join(name_instrument_groups(each.instruments)) or "test cases, which no instrument uses"
        why = "the cases or the model cannot be read here" if each.is_estimate else "a run of the last day was deleted"
        taken = f"unknown ({why})"
        if each.calls is not None:
            cost = _format_call_cost(each.cost_usd, is_estimate=each.is_estimate)
            taken = f"{pluralise(each.calls, 'call')}, {cost}"
        search = ""
        if each.first_day_calls:
            cost = _format_call_cost(each.first_day_cost_usd, is_estimate=each.is_estimate)
            when = "on the first day up to" if each.is_estimate else "and"
            search = f" ({when} {each.first_day_calls:,} more, {cost}, to find its prompts)"
        yield wrap_text(f"{taken}: {names}{search}", _COLUMNS, _INDENT, 2 * _INDENT)


def _format_call_cost(cost_usd: float | None, *, is_estimate: bool) -> str:
    if cost_usd is None:
        return "price unknown"
    return f"{'about ' if is_estimate and cost_usd else ''}{format_cost(KnownTotal(cost_usd, 0))}"


def render_list(views: Sequence[WatchView]) -> str:
    """Return a list of watches: its names and days, and below them its state; then what holds for all together."""
    lines = [line for each in views for line in _render_listed(each)]
    if sentence := describe_family(views):
        lines += ["", wrap_text(sentence)]
    return "\n".join(lines)


def describe_family(views: Sequence[WatchView]) -> str:
    """Return how many false notices to expect of several active watches, and which watches stand out; "" for one."""
    active = [each for each in views if each.is_active]
    if len(active) < 2:
        return ""
    expected = (
        f"{len(active)} active watches: while no model changes, expect at most {expect_false_notices(len(active)):g} "
        "false notices a month in all."
    )
    compared = [each for each in active if each.adjusted_p_value is not None]
    named = [
        f"{escape_control_characters(each.shown_name)} (p = {each.adjusted_p_value:.2g})"
        for each in sorted(compared, key=lambda each: each.adjusted_p_value or 0.0)
        if each.adjusted_p_value is not None and each.adjusted_p_value <= MAX_FALSE_DISCOVERY_RATE
    ]
    if not compared:
        return expected
    found = f"standing out among all: {', '.join(named)}" if named else "none stands out among all"
    return f"{expected} With p-values adjusted for their number (Benjamini-Yekutieli), {found}."


def _render_listed(view: WatchView) -> Iterator[str]:
    state = "" if view.is_active else "  (stopped)"
    name = f"  {fit_to_width(view.name, 24)}" if view.name else ""
    days = f"{pluralise(view.measured_days, 'day')}, last {view.last_day or 'none'}"
    days += f", {format_calibration(view.calibration)}" if view.calibration else ""
    yield wrap_text(f"{view.id}{name}  {fit_to_width(view.model, 28)}{state}  {days}", other_prefix=_INDENT)
    yield wrap_text(view.sentence, _COLUMNS, _INDENT, _INDENT)


def _format_reference(view: WatchView) -> str:
    """Return what names a watch in a command: its name if it needs no quotes, else its ID."""
    return view.name if view.name and re.fullmatch(r"[\w.-]+", view.name) else view.id


def render_report(view: WatchReportView) -> str:
    """Return the report of a watch."""
    return "\n".join(_render_report_lines(view))


def _render_report_lines(view: WatchReportView) -> Iterator[str]:
    watch = view.watch
    yield wrap_text(watch.sentence)
    if sentence := describe_today(watch.findings):
        yield wrap_text(sentence)
    if watch.level == "collecting":
        yield wrap_text("To compare two endpoints today, without a baseline: pramana same MODEL_A MODEL_B")
    if watch.forecast is not None:
        yield wrap_text(watch.forecast.sentence)
    yield wrap_text(f"Proven: {watch.proof}")
    yield ""
    name = f" {escape_control_characters(watch.name)}" if watch.name else ""
    stopped = f", stopped {watch.stopped_at[:10]}" if watch.stopped_at else ""
    yield wrap_text(f"Watch {watch.id}{name}: {escape_control_characters(watch.model)}{stopped}", other_prefix=_INDENT)
    yield from _render_days(watch)
    if watch.calibration:
        yield f"A model judges the replies ({watch.calibration})."
    yield from _render_calls(watch)
    for each in view.reported_changes:
        yield wrap_text(escape_control_characters(each), other_prefix=_INDENT)
    yield ""
    shown = set[str]()
    for finding in watch.findings:
        group = _GROUP_BY_INSTRUMENT.get(finding.name, finding.name)
        yield from _render_instrument(finding, with_days=group not in shown)
        shown.add(group)
    if watch.alerts or watch.alerts_to:
        yield ""
        yield from _render_alerts(watch)
    if view.hash_consistency is not None:
        found = view.hash_consistency
        yield ""
        yield wrap_text(
            f"Hash consistency, the community's measure: {found.equal:,} of {found.compared:,} replies of the last day "
            f"({format_percent(found.share)}) equal the baseline's usual reply to the letter: {found.word}. It does "
            "not distinguish a change from chance."
        )
    if view.endpoint is not None:
        yield ""
        yield from _render_endpoint(view.endpoint)
    for batch in view.confirmations:
        yield ""
        yield from _render_confirmation(batch)
    if view.change is not None:
        yield ""
        yield from _render_change(view.change)
        yield ""
        yield from _render_next_steps(watch)


def _render_alerts(view: WatchDetailView) -> Iterator[str]:
    channel = view.alerts_to
    if channel is None:
        yield "Alerts are sent nowhere; name a webhook or a command when you start a watch."
    else:
        signed = "signed" if channel.is_signed else "not signed"
        what = f"the command {channel.name}" if channel.kind == "command" else f"a webhook at {channel.name}, {signed}"
        yield wrap_text(f"Alerts are sent to {escape_control_characters(what)}.", other_prefix=_INDENT)
    for each in view.alerts:
        yield wrap_text(f"{each.day}  {each.level} {each.id}: {_describe_delivery(each, view)}", other_prefix=_INDENT)


def _describe_delivery(alert: WatchAlertView, view: WatchDetailView) -> str:
    if alert.delivered_at:
        return f"delivered {alert.delivered_at[:16].replace('T', ' ')} UTC"
    if view.alerts_to is None:
        return "not sent"
    if not alert.attempts:
        return "not delivered yet: the scheduler sends it (pramana drift serve)"
    again = f"tried again at {alert.next_attempt_at[11:16]} UTC" if alert.next_attempt_at else "not tried again"
    tried = f"not delivered after {pluralise(alert.attempts, 'attempt')}"
    return f"{tried}: {escape_control_characters(alert.error or 'the process that sent it was stopped')}; {again}"


def describe_today(findings: Sequence[InstrumentView]) -> str:
    """Return a sentence about the calls of the last day alone; empty if they are within the tolerance."""
    outside = [each for each in findings if each.is_today_outside and each.latest]
    if not outside or outside[0].latest is None:
        return ""
    named = "; ".join(each.title + _format_p_value(each.today_p_value) for each in outside)
    return (
        f"{outside[0].latest.day} alone is outside the tolerance: {named}. This speaks of the calls of that day, "
        "not of the model."
    )


def _format_p_value(p_value: float | None) -> str:
    if p_value is None:
        return ""
    return " (p < 0.0001)" if p_value < 0.0001 else f" (p = {p_value:.2g})"


def _render_days(view: WatchDetailView) -> Iterator[str]:
    missing = [each for each in view.days if each.status == "missing" and each.period == view.period]
    period = next(each for each in view.periods if each.number == view.period)
    why = "" if len(view.periods) == 1 else f" since {period.begins} ({period.reason})"
    also = f", {len(missing)} missing" if missing else ""
    yield wrap_text(
        f"{pluralise(view.measured_days, 'day')} measured{why}{also}; last: {view.last_day or 'none'}.",
        other_prefix=_INDENT,
    )
    if missing:
        last = missing[-1]
        yield wrap_text(f"{last.day} does not count: {last.reason}.", other_prefix=_INDENT)


def _render_instrument(view: InstrumentView, *, with_days: bool) -> Iterator[str]:
    value = format_value(view.unit, view.latest.value) if view.latest else "–"
    if view.baseline is None:
        state = "not measured" if view.note else f"{view.collected_days} of {view.needed_days} days"
    else:
        band = _format_range(view.unit, *(view.baseline_band or (0.0, 0.0)))
        state = f"{pad_to_width(view.level.replace('_', ' '), 12)} baseline {band}"
    yield f"{pad_to_width(view.title, 19)} {pad_to_width(value, 12)} {state}"
    if view.note:
        yield wrap_text(f"{_INDENT}{view.note}", other_prefix=_INDENT)
    if view.baseline is not None and view.level == "cannot_tell":
        correlation = view.baseline.next_day_rank_correlation
        yield f"{_INDENT}days resemble the day before: rank correlation {correlation:.2f}, the limit is 0.5"
    elif view.baseline is not None:
        yield (
            f"{_INDENT}statistic {_format_statistic(view.notice_statistic)} of {view.notice_threshold:,.0f} for a "
            f"notice, {_format_statistic(view.alarm_statistic)} of {view.alarm_threshold:,.0f} for an alarm"
        )
    if view.scores and with_days:
        yield f"{_INDENT}{draw_sparkline([each.value for each in view.scores[-SHOWN_DAYS:]])}"


def _format_statistic(value: float) -> str:
    """Return a statistic in a few characters.

    >>> [_format_statistic(each) for each in (0.02, 3.14159, 5812.3, 4.2e9)]
    ['0.02', '3.1', '5,812', '4.2e+09']
    """
    if value >= 10_000_000:
        return f"{value:.1e}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _format_range(unit: str, lowest: float, highest: float) -> str:
    """Return two values, with their unit once.

    >>> _format_range("words", 12, 15), _format_range("seconds", 0.5, 1.5), _format_range("share", 0, 0)
    ('12.0 to 15.0 words', '500 ms to 1.50 s', '0 %')
    """
    low, high = (format_value(unit, each) for each in (lowest, highest))
    number, _, noun = low.partition(" ")
    return low if low == high else f"{number if high.endswith(f' {noun}') else low} to {high}"


def format_value(unit: str, value: float) -> str:
    """Return a score as users see it.

    >>> format_value("share", 0.875), format_value("words", 12.31), format_value("seconds", 0.42)
    ('87.5 %', '12.3 words', '420 ms')
    >>> format_value("words_a_minute", 151.2), format_value("points", 3.412)
    ('151 wpm', '3.41')
    """
    match unit:
        case "share":
            return format_percent(min(1.0, max(0.0, value)))
        case "rate":
            return f"{100 * value:.1f} %"
        case "words":
            return f"{value:.1f} words"
        case "words_a_minute":
            return f"{value:.0f} wpm"
        case "seconds":
            return format_duration(value)
        case _:
            return f"{value:.2f}"


def draw_sparkline(values: Sequence[float]) -> str:
    """Return one character a value, from the lowest to the highest.

    >>> draw_sparkline([0.0, 0.5, 1.0]), draw_sparkline([0.3, 0.3])
    ('▁▅█', '▁▁')
    """
    low, high = min(values), max(values)
    if high - low < 1e-9:
        return SPARKS[0] * len(values)
    return "".join(SPARKS[round((each - low) / (high - low) * (len(SPARKS) - 1))] for each in values)


def _render_endpoint(view: EndpointView) -> Iterator[str]:
    so_far = "" if view.is_baseline_complete else " so far"
    calls = pluralise(view.prompts * view.repeats, "call")
    yield wrap_text(
        f"This endpoint's own days ({pluralise(view.days, 'day')}{so_far}): the pass rate of a day has a standard "
        f"deviation of {100 * view.call_standard_deviation:.1f} points from its {calls}, and of "
        f"{100 * view.day_standard_deviation:.1f} points beyond that; the correlation of a day with the next is "
        f"{view.next_day_rank_correlation:.2f}."
    )
    yield "Days until a drop of the pass rate is seen, in half of all cases (simulated):"
    for each in view.delays:
        notice, alarm = (_format_delay(days) for days in (each.notice_days, each.alarm_days))
        yield f"{_INDENT}{f'{100 * each.change:.0f} points':10} notice {notice}, alarm {alarm}"


def _format_delay(days: int | None) -> str:
    return "not within 30 days" if days is None else f"after {pluralise(days, 'day')}"


def render_confirmation(view: ConfirmationView) -> str:
    """Return what a confirming batch measured."""
    return "\n".join(_render_confirmation(view))


def _render_confirmation(view: ConfirmationView) -> Iterator[str]:
    answered = f"{view.answered:,} of {pluralise(view.planned, 'call')} answered"
    yield wrap_text(f"Confirming batch of {view.day} (run {view.run}, {answered}); the statistic does not use it:")
    for each in view.values:
        low, high = each.baseline_band or (0.0, 0.0)
        band = f"baseline {_format_range(each.unit, low, high)}" if each.baseline_band else ""
        outside = f"outside the tolerance{_format_p_value(each.p_value)}" if each.is_outside else ""
        facts = ", ".join(filter(None, (band, outside)))
        yield f"{_INDENT}{pad_to_width(each.title, 19)} {pad_to_width(format_value(each.unit, each.value), 12)} {facts}"


def _render_change(view: ChangeReportView) -> Iterator[str]:
    if view.categories:
        yield "What changed, by category (mean of the baseline, and since the change):"
        for each in view.categories[:MAX_SHOWN_CATEGORIES]:
            before, since = (format_percent(min(1.0, max(0.0, value))) for value in (each.before, each.since))
            prompts = pluralise(each.prompts, "prompt")
            yield f"{_INDENT}{pad_to_width(each.category, 24)} {before} → {since}  ({prompts})"
        if (more := len(view.categories) - MAX_SHOWN_CATEGORIES) > 0:
            yield f"{_INDENT}… and {more:,} more"
    if view.comparison and view.base_run and view.new_run:
        yield wrap_text(
            f"The last day (run {view.new_run}) compared with a day of the baseline (run {view.base_run}): "
            f"{escape_control_characters(view.comparison)}"
        )
    for pair in view.examples:
        yield f"{_INDENT}{fit_to_width(pair.case, 76)}"
        yield from render_reply_pair(pair, _SIDES, _COLUMNS)
    if view.unchanged:
        yield wrap_text(f"No change seen: {'; '.join(view.unchanged)}.")


def _render_next_steps(view: WatchDetailView) -> Iterator[str]:
    name = _format_reference(view)
    yield "Next steps:"
    yield f"{_INDENT}pramana drift confirm {name}   ask the same cases once more, beside the statistic"
    yield f"{_INDENT}pramana drift accept {name}    take the model as it is now: a new baseline"
