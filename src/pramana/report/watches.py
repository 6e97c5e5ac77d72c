"""Watches for the terminal: views in, lines out, at most 80 columns wide."""

from collections.abc import Iterator, Sequence

from pramana.analyse.numbers import format_duration, format_percent, pluralise
from pramana.app.watches import InstrumentView, WatchAlertView, WatchDetailView, WatchView
from pramana.errors import escape_control_characters
from pramana.report.terminal import fit_to_width, pad_to_width, wrap_text

SPARKS = "▁▂▃▄▅▆▇█"
SHOWN_DAYS = 60
_INDENT = "  "


def render_started(view: WatchDetailView) -> str:
    """Return what a new watch will do."""
    name = escape_control_characters(view.shown_name)
    lines = [
        f"Watch {view.id}: {escape_control_characters(view.model)}, with a baseline of {view.baseline_days} days.",
        f"Instruments: {'; '.join(each.title for each in view.findings)}.",
        "Measure a day: pramana drift check" + (f" {name}" if view.name else ""),
    ]
    return "\n".join(wrap_text(each, other_prefix=_INDENT) for each in lines)


def render_list(views: Sequence[WatchView]) -> str:
    """Return a list of watches: two lines each."""
    return "\n".join(line for each in views for line in _render_listed(each))


def _render_listed(view: WatchView) -> Iterator[str]:
    state = "" if view.is_active else "  (stopped)"
    name = f"  {fit_to_width(view.name, 24)}" if view.name else ""
    days = f"{pluralise(view.measured_days, 'day')}, last {view.last_day or 'none'}"
    yield f"{view.id}{name}  {fit_to_width(view.model, 28)}{state}  {days}"
    yield wrap_text(view.sentence, 80, _INDENT, _INDENT)


def render_watch(view: WatchDetailView) -> str:
    """Return a watch in full."""
    return "\n".join(_render_lines(view))


def _render_lines(view: WatchDetailView) -> Iterator[str]:
    yield wrap_text(view.sentence)
    yield wrap_text(view.proof)
    yield ""
    name = f" {escape_control_characters(view.name)}" if view.name else ""
    yield wrap_text(f"Watch {view.id}{name}: {escape_control_characters(view.model)}", other_prefix=_INDENT)
    missing = f", {view.missing_days} missing" if view.missing_days else ""
    yield f"{pluralise(view.measured_days, 'day')} measured in this period{missing}; last {view.last_day or 'none'}."
    yield ""
    for each in view.findings:
        yield from _render_instrument(each)
    if view.alerts or view.alerts_to:
        yield ""
        yield from _render_alerts(view)


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
    return f"{tried}: {escape_control_characters(alert.error or 'its process was stopped')}; {again}"


def _render_instrument(view: InstrumentView) -> Iterator[str]:
    value = format_value(view.unit, view.latest.value) if view.latest else "–"
    if view.baseline is None:
        state = f"{view.collected_days} of {view.needed_days} days"
    else:
        band = "–".join(format_value(view.unit, each) for each in view.baseline_band or ())
        state = f"{view.level.replace('_', ' ')}, baseline {band}"
    yield f"{pad_to_width(view.title, 20)} {pad_to_width(value, 10)} {state}"
    if view.baseline is not None:
        yield (
            f"{_INDENT}statistic {view.notice_statistic:.3g} of {view.notice_threshold:,.0f} (notice), "
            f"{view.alarm_statistic:.3g} of {view.alarm_threshold:,.0f} (alarm)"
        )
    if view.scores:
        yield f"{_INDENT}{draw_sparkline([each.value for each in view.scores[-SHOWN_DAYS:]])}"


def format_value(unit: str, value: float) -> str:
    """Return a score as users see it.

    >>> format_value("share", 0.875), format_value("words", 12.31), format_value("seconds", 0.42)
    ('87.5 %', '12.3 words', '420 ms')
    """
    if unit == "share":
        return format_percent(min(1.0, max(0.0, value)))
    return f"{value:.1f} words" if unit == "words" else format_duration(value)


def draw_sparkline(values: Sequence[float]) -> str:
    """Return one character a value, from the lowest to the highest.

    >>> draw_sparkline([0.0, 0.5, 1.0]), draw_sparkline([0.3, 0.3])
    ('▁▅█', '▁▁')
    """
    low, high = min(values), max(values)
    if high <= low:
        return SPARKS[0] * len(values)
    return "".join(SPARKS[round((each - low) / (high - low) * (len(SPARKS) - 1))] for each in values)
