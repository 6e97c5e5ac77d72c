"""A public watch: the failures that each contributor reported by day in, one state of the model for everyone out.

Each contributor has their own baseline and their own statistic, by the rule of every watch. The public statistic
ignores the largest values, so that three contributors in ten may report what they like
(`combine_contributor_statistics`). Nothing here knows who a contributor is.

*Contributors come and stay.* A contributor counts from the day after their baseline is complete, and then on every day.
Each day has its own number m of contributors that count, and ignores its own three in ten. The level is the highest of
all days in order, so nobody who comes later changes what an earlier day has shown.

*Why false alarms stay rare while m grows.* Of the m contributors that count on a day, let h be honest, and assume that
at most three in ten lie, on every day. If the public statistic reaches a threshold A, some honest contributor's own
statistic M is at least m * A, and so at least max(h, 5) * A: liars who join only raise what M has to reach. Without a
change, M grows by at most 1 a day in expectation, given the days before; and h never falls. Chow's inequality for such
sums and rising thresholds bounds the probability that one contributor ever gets there by the sum, over their days, of
1 / (max(h, 5) * A). Over all honest contributors, each day adds h / (max(h, 5) * A), which is at most 1 / A. So at most
T / A in T days, counted from the first complete baseline: the bound of one watch, however many take part. It assumes
that honest people do not decide by the scores when to join or whether to submit; liars may.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

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
    last_baseline_day: str | None = None
    """None: the baseline is not complete."""
    can_alarm: bool = True
    """Whether the days of the baseline are independent enough to count."""
    notice: Mapping[str, float] = {}
    alarm: Mapping[str, float] = {}

    @property
    def is_complete(self) -> bool:
        """Whether the baseline is complete, so that the contributor counts from the next day on."""
        return self.last_baseline_day is not None


class PublicFinding(Struct, frozen=True, kw_only=True):
    """What all contributors together say."""

    level: PublicLevel
    contributors: int
    complete_contributors: int
    """Contributors whose baseline is complete: those that count."""
    contributors_at_level: int = 0
    """Contributors that counted on the day on which the level was reached; 0 without a notice or an alarm."""
    notice_statistic: float = 0.0
    """Of the last day."""
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
        return ContributorSeries(len(scored.days))
    last_baseline_day = days[baseline_days - 1].day  # every day has results, so the first ones are the baseline
    if not scored.spread.can_alarm:
        return ContributorSeries(len(scored.days), last_baseline_day, can_alarm=False)
    count = scored.baseline_count
    later = scored.days[count:]
    notice, alarm = (
        {
            day: each.value
            for day, each in zip(later, iterate_change_statistics(scored.scores, count, tolerance), strict=True)
        }
        for tolerance in (INSTRUMENTS[INSTRUMENT].min_tolerance, scored.spread.tolerance)
    )
    return ContributorSeries(len(scored.days), last_baseline_day, notice=notice, alarm=alarm)


def decide_public_watch(contributors: Sequence[ContributorSeries]) -> PublicFinding:
    """Return what all contributors together say, and the first days on which they reached a level.

    A contributor counts from the day after their baseline is complete; on a day without results, their statistic stays
    as it was. A level that was reached stays, whoever joins later.
    """
    notice = _combine_by_day(contributors, [each.notice for each in contributors])
    alarm = _combine_by_day(contributors, [each.alarm for each in contributors])
    notice_day = next((day for day, found in notice.items() if found.statistic >= NOTICE.threshold), None)
    alarm_day = next((day for day, found in alarm.items() if found.statistic >= ALARM.threshold), None)
    complete = sum(each.is_complete for each in contributors)
    level: PublicLevel = "collecting" if complete < MIN_CONTRIBUTORS else "quiet"
    at_level = 0
    if alarm_day is not None:
        level, at_level = "alarm", alarm[alarm_day].contributors
    elif notice_day is not None:
        level, at_level = "notice", notice[notice_day].contributors
    last = max(notice, default=None)
    return PublicFinding(
        level=level,
        contributors=len(contributors),
        complete_contributors=complete,
        contributors_at_level=at_level,
        notice_statistic=notice[last].statistic if last else 0.0,
        alarm_statistic=alarm[last].statistic if last else 0.0,
        notice_day=notice_day,
        alarm_day=alarm_day,
        last_day=last,
    )


class _PublicDay(NamedTuple):
    """The public statistic of one day, and the number of contributors that counted on it."""

    statistic: float
    contributors: int


def _combine_by_day(
    contributors: Sequence[ContributorSeries], statistics: Sequence[Mapping[str, float]]
) -> dict[str, _PublicDay]:
    """Return each day, in order, on which anybody has a statistic, with the contributors that counted on that day."""
    current = [0.0] * len(statistics)
    combined = {}
    for day in sorted({day for each in statistics for day in each}):
        current = [each.get(day, before) for each, before in zip(statistics, current, strict=True)]
        counted = [
            value
            for value, each in zip(current, contributors, strict=True)
            if each.last_baseline_day is not None and each.last_baseline_day < day
        ]
        combined[day] = _PublicDay(combine_contributor_statistics(counted), len(counted))
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
            return f"Notice since {finding.notice_day}: {_describe_drop(finding)} {unproven}"
        case "alarm":
            return f"Alarm since {finding.alarm_day}: {_describe_drop(finding)}"


def _describe_drop(finding: PublicFinding) -> str:
    then, now = finding.contributors_at_level, finding.complete_contributors
    fell = f"the pass rate fell for more than three in ten of {then} contributors."
    return fell if then == now else f"{fell} Now {now} contributors count."
