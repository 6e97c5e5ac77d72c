"""A public watch: the failures that each contributor reported by day in, one state of the model for everyone out.

Each contributor has their own baseline and their own statistic, by the rule of every watch. The public statistic
ignores the largest values, so that three contributors in ten may report what they like
(`combine_contributor_statistics`). Nothing here knows who a contributor is.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from pramana.analyse.drift import (
    ALARM,
    BASELINE_DAYS,
    MIN_CONTRIBUTORS,
    NOTICE,
    combine_contributor_statistics,
    iterate_change_statistics,
)
from pramana.analyse.instruments import INSTRUMENTS, DayFeatures, MeasuredDay, PromptDay, score_days

PublicLevel = Literal["collecting", "quiet", "notice", "alarm"]
INSTRUMENT = "pass_rate_down"


class ContributorSeries(Struct, frozen=True):
    """The statistic of one contributor by day."""

    measured_days: int
    is_complete: bool
    """Whether the baseline is complete."""
    can_alarm: bool = True
    """Whether the days of the baseline are independent enough to count."""
    notice: Mapping[str, float] = {}
    alarm: Mapping[str, float] = {}


class PublicFinding(Struct, frozen=True, kw_only=True):
    """What all contributors together say."""

    level: PublicLevel
    contributors: int
    complete_contributors: int
    """Contributors whose baseline is complete: those that count."""
    notice_statistic: float = 0.0
    alarm_statistic: float = 0.0
    notice_day: str | None = None
    """The first day on which the statistic reached a notice."""
    alarm_day: str | None = None
    last_day: str | None = None


def make_contributor_days(seed: str, counts: Mapping[str, Mapping[str, tuple[int, int]]]) -> list[MeasuredDay]:
    """Return the days of one contributor in order, from scored results and passes by day and prompt.

    `seed` decides between days with equal counts, always the same way.
    """
    return [
        MeasuredDay(
            day,
            _draw_tie_break(f"{seed} {day}"),
            DayFeatures(
                tuple(
                    PromptDay(prompt, prompt, planned=results, answered=results, verdicts=results, passes=passes)
                    for prompt, (results, passes) in counts[day].items()
                )
            ),
        )
        for day in sorted(counts)
    ]


def _draw_tie_break(seed: str) -> float:
    """Return a number from -½ to ½ that the seed decides.

    >>> -0.5 <= _draw_tie_break("a") <= 0.5, _draw_tie_break("a") == _draw_tie_break("a")
    (True, True)
    """
    return int.from_bytes(hashlib.sha256(seed.encode("utf-8", "surrogatepass")).digest()[:8]) / 2**64 - 0.5


def measure_contributor(days: Sequence[MeasuredDay], baseline_days: int = BASELINE_DAYS) -> ContributorSeries:
    """Return the statistic of one contributor on each day after their baseline."""
    scored = score_days(INSTRUMENTS[INSTRUMENT], days, baseline_days)
    if scored.spread is None:
        return ContributorSeries(len(scored.days), is_complete=False)
    if not scored.spread.can_alarm:
        return ContributorSeries(len(scored.days), is_complete=True, can_alarm=False)
    count = scored.baseline_count
    later = scored.days[count:]
    notice, alarm = (
        {
            day: each.value
            for day, each in zip(later, iterate_change_statistics(scored.scores, count, tolerance), strict=True)
        }
        for tolerance in (INSTRUMENTS[INSTRUMENT].min_tolerance, scored.spread.tolerance)
    )
    return ContributorSeries(len(scored.days), is_complete=True, notice=notice, alarm=alarm)


def decide_public_watch(contributors: Sequence[ContributorSeries]) -> PublicFinding:
    """Return what all contributors together say, and the first days on which they reached a level.

    On a day without results, a contributor's statistic stays as it was. A level that was reached stays.
    """
    counted = [each for each in contributors if each.is_complete]
    notice = _combine_by_day([each.notice for each in counted])
    alarm = _combine_by_day([each.alarm for each in counted])
    notice_day = next((day for day, value in notice.items() if value >= NOTICE.threshold), None)
    alarm_day = next((day for day, value in alarm.items() if value >= ALARM.threshold), None)
    level: PublicLevel = "collecting" if len(counted) < MIN_CONTRIBUTORS else "quiet"
    if level == "quiet" and notice_day is not None:
        level = "notice"
    if level != "collecting" and alarm_day is not None:
        level = "alarm"
    last = max(notice, default=None)
    return PublicFinding(
        level=level,
        contributors=len(contributors),
        complete_contributors=len(counted),
        notice_statistic=notice[last] if last else 0.0,
        alarm_statistic=alarm[last] if last else 0.0,
        notice_day=notice_day,
        alarm_day=alarm_day,
        last_day=last,
    )


def _combine_by_day(series: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the combined statistic of each day on which anybody has one."""
    current = [0.0] * len(series)
    combined = {}
    for day in sorted({day for each in series for day in each}):
        current = [each.get(day, before) for each, before in zip(series, current, strict=True)]
        combined[day] = combine_contributor_statistics(current)
    return combined


def describe_public_finding(finding: PublicFinding) -> str:
    """Return the state of a public watch as one sentence.

    >>> describe_public_finding(PublicFinding(level="collecting", contributors=3, complete_contributors=2))
    'Collecting: 2 of at least 5 contributors have 28 days with results.'
    """
    count = finding.complete_contributors
    match finding.level:
        case "collecting":
            needed = f"at least {MIN_CONTRIBUTORS} contributors have {BASELINE_DAYS} days with results"
            return f"Collecting: {count} of {needed}."
        case "quiet":
            return f"Quiet: {count} contributors together see no drop of the pass rate."
        case "notice":
            unproven = "It is not proven well enough for an alarm."
            return f"Notice since {finding.notice_day}: {_describe_drop(count)} {unproven}"
        case "alarm":
            return f"Alarm since {finding.alarm_day}: {_describe_drop(count)}"


def _describe_drop(contributors: int) -> str:
    return f"the pass rate fell for more than three in ten of {contributors} contributors."
