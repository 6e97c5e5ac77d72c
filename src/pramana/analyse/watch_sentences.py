"""What a watch found, in sentences: findings in, text out. The same sentences for alerts, terminal and pages."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pramana.analyse.drift import ALARM, MAX_RANK_CORRELATION, NOTICE
from pramana.analyse.instruments import INSTRUMENTS
from pramana.analyse.numbers import pluralise
from pramana.analyse.watch import InstrumentFinding, Level, ReachedLevel

MAX_MEASURED_DAY_CORRELATION = 0.65
"""The day-to-day correlation up to which the false alarms were measured; it holds for alarms only."""


def describe_state(
    level: Level,
    findings: Mapping[str, InstrumentFinding],
    reached: Sequence[ReachedLevel] = (),
    unusable: Collection[str] = (),
) -> str:
    """Return the state of a watch as one sentence; `unusable` are the instruments that found nothing to measure."""
    if findings and not reached and all(name in unusable for name in findings):
        return _describe_nothing_to_measure(findings)
    measured = {name: each for name, each in findings.items() if name not in unusable} or findings
    match level:
        case "collecting":
            return _describe_collecting(measured)
        case "cannot_tell":
            return _describe_unknown(measured)
        case "quiet":
            since = max(
                (len(each.scores) - each.baseline.days for each in findings.values() if each.baseline), default=0
            )
            return f"Quiet: no change seen in the {pluralise(since, 'day')} since the baseline.{_name_silent(measured)}"
        case "notice" | "alarm":
            return _describe_change(level, findings, reached)


def _describe_nothing_to_measure(findings: Mapping[str, InstrumentFinding]) -> str:
    names = " and ".join(name.replace("_", " ") for name in findings)
    which = f"the only instrument, {names}," if len(findings) == 1 else f"all instruments, {names},"
    return (
        f"Nothing can be measured: {which} found nothing to measure on this model. Stop this watch, and start one with "
        "other instruments, such as pass-rate and length."
    )


def _describe_collecting(findings: Mapping[str, InstrumentFinding]) -> str:
    if not findings:
        return "Collecting the baseline: no day was measured yet."
    first = min(findings.values(), key=lambda each: each.needed_days - each.collected_days)
    if first.collected_days == first.needed_days:
        return f"The baseline of {pluralise(first.needed_days, 'day')} is complete; the next day is compared with it."
    return (
        f"Collecting the baseline: {first.collected_days} of {pluralise(first.needed_days, 'day')}. Until then, "
        "a change cannot be distinguished from chance."
    )


def _describe_unknown(findings: Mapping[str, InstrumentFinding]) -> str:
    worst = max(each.baseline.next_day_rank_correlation for each in findings.values() if each.baseline)
    return (
        "Cannot tell: each day of the baseline resembles the day before it too much to distinguish a change from "
        f"chance (rank correlation {worst:.2f}; the limit is {MAX_RANK_CORRELATION:g})."
    )


def _name_silent(findings: Mapping[str, InstrumentFinding]) -> str:
    """Name the instruments that cannot tell anything yet, or not at all."""
    collecting = [INSTRUMENTS[name].title for name, each in findings.items() if each.level == "collecting"]
    unknown = [INSTRUMENTS[name].title for name, each in findings.items() if each.level == "cannot_tell"]
    return "".join(
        (
            f" Still collecting: {'; '.join(collecting)}." if collecting else "",
            f" Cannot tell: {'; '.join(unknown)}." if unknown else "",
        )
    )


def _describe_change(level: Level, findings: Mapping[str, InstrumentFinding], reached: Sequence[ReachedLevel]) -> str:
    past = next((each for each in reached if each.level == level), None)
    current = {name: each for name, each in findings.items() if each.level == level}
    names = [*current, *(name for name in (past.instruments if past else ()) if name not in current)]
    what = " and ".join(INSTRUMENTS[name].finding for name in names if name in INSTRUMENTS)
    since = f" since {past.day}" if past else ""
    begins = f"Alarm{since}: the model has changed: {what}." if level == "alarm" else f"Notice{since}: {what}."
    dated = next((each for each in current.values() if each.first_day), past)
    ends = "" if level == "alarm" else " It is not proven well enough for an alarm."
    if dated is None or dated.first_day is None:
        return begins + ends
    day, among = dated.first_day, dated.first_days
    between = f" (95 % interval: {among[0]} to {among[1]})" if among and among[0] != among[1] else ""
    return f"{begins} It probably began on {day}{between}.{ends}"


def describe_alert(level: str, day: str, body: Mapping[str, Any]) -> str:
    """Return a stored alert as one sentence.

    >>> describe_alert("notice", "2026-11-19", {"instruments": [{"instrument": "pass_rate_down"}]})[:25]
    'Notice since 2026-11-19: '
    """
    reached = read_reached_level(level, day, body)
    return _describe_change(reached.level, {}, [reached])


def read_reached_level(level: str, day: str, body: Mapping[str, Any]) -> ReachedLevel:
    """Return the level that an alert was raised for."""
    named = [each for each in body.get("instruments", []) if isinstance(each, Mapping)]
    first = named[0] if named else {}
    among: Sequence[str] = first.get("first_days") or ()
    return ReachedLevel(
        "alarm" if level == "alarm" else "notice",
        day,
        tuple(str(each.get("instrument")) for each in named),
        first.get("first_day"),
        (among[0], among[1]) if len(among) == 2 else None,
    )


def describe_proof(instrument_count: int, correlation: float | None) -> str:
    """Return what is proven about false alarms, for all instruments of a watch together.

    >>> print(describe_proof(2, 0.12)[:77])
    Without a change, at most 1 % of the months have a notice, and 0.03 % an alar
    """
    own = "" if correlation is None else f"; this endpoint's own is {correlation:.2f}"
    together = "" if instrument_count == 1 else f" (all {instrument_count} instruments together)"
    notices, alarms = (format_share(each.false_alarm_share()) for each in (NOTICE, ALARM))
    return (
        f"Without a change, at most {notices} of the months have a notice, and {alarms} an alarm{together}, if "
        "days are exchangeable; alarms were measured up to a day-to-day correlation of "
        f"{MAX_MEASURED_DAY_CORRELATION}{own}."
    )


def format_share(share: float) -> str:
    """Return a small share as a percentage.

    >>> format_share(0.01), format_share(0.0003)
    ('1 %', '0.03 %')
    """
    return f"{share * 100:g} %"
