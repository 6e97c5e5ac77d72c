"""The scores of a watch's days in, what is known about its model out: collecting, quiet, notice, alarm, or cannot tell.

Two statements are kept apart. *The model has changed* speaks of days: it is the rank statistic of `drift` over all days
since the baseline, with the thresholds times the number of instruments, so that the false-alarm rate is that of the
whole watch. *Today is outside the tolerance* speaks of the calls of one day, given that day, and proves nothing about
the next one. Pure functions.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Literal

from msgspec import Struct

from pramana.analyse.drift import ALARM, MONTH_DAYS, NOTICE, measure_change_statistic
from pramana.analyse.instruments import INSTRUMENTS, Instrument, MeasuredDay, ScoredDays, score_days

Level = Literal["collecting", "cannot_tell", "quiet", "notice", "alarm"]
LEVELS: tuple[Level, ...] = ("collecting", "cannot_tell", "quiet", "notice", "alarm")
"""From the least to the most that is known."""
MAX_P_VALUE_OF_DAY_OUTSIDE_TOLERANCE = 0.01 / MONTH_DAYS
"""How unlikely the calls of one day have to be for "today is outside the tolerance": once in a hundred months."""
MAX_EXACT_CALLS = 3_000
"""Beyond this number of calls, their exact distribution takes too long and a bound is used, which is never smaller."""


class Baseline(Struct, frozen=True):
    """The scores of the baseline's days."""

    days: int
    first_day: str
    last_day: str
    mean: float
    low: float
    high: float
    day_standard_deviation: float
    next_day_rank_correlation: float


class TodayCheck(Struct, frozen=True):
    """Whether the last day is outside the tolerance, given what that day did."""

    is_outside: bool
    p_value: float | None
    """Of an exact test over the day's calls; None where none exists, and the day is compared with the baseline's."""


class InstrumentFinding(Struct, frozen=True):
    """What one instrument says on the last day of a period."""

    instrument: str
    level: Level
    collected_days: int
    needed_days: int
    days: tuple[str, ...]
    """Days with a score."""
    scores: tuple[float, ...]
    """With the tie-breaks of the days: what is ranked."""
    scores_without_tie_breaks: tuple[float, ...]
    """Without them: what users see."""
    baseline: Baseline | None = None
    notice_statistic: float = 0.0
    alarm_statistic: float = 0.0
    notice_threshold: float = NOTICE.threshold
    alarm_threshold: float = ALARM.threshold
    notice_tolerance: float = 0.0
    alarm_tolerance: float = 0.0
    first_day: str | None = None
    """The likeliest first day of a change."""
    first_days: tuple[str, str] | None = None
    """The earliest and the latest day on which it may have begun: its 95 % interval."""
    today: TodayCheck | None = None

    @property
    def score(self) -> float | None:
        """The score of the last day."""
        return self.scores_without_tie_breaks[-1] if self.scores_without_tie_breaks else None


def find_instrument_findings(
    instruments: Sequence[str], days: Sequence[MeasuredDay], baseline_days: int
) -> dict[str, InstrumentFinding]:
    """Return what each instrument says on the last of the days of a period."""
    return {
        name: _make_finding(INSTRUMENTS[name], score_days(INSTRUMENTS[name], days, baseline_days), len(instruments))
        for name in instruments
        if name in INSTRUMENTS
    }


def find_highest_level(levels: Sequence[Level]) -> Level:
    """Return the level of a watch: the highest of its instruments.

    >>> find_highest_level(["quiet", "collecting"]), find_highest_level([])
    ('quiet', 'collecting')
    """
    return max(levels, key=LEVELS.index, default="collecting")


def _make_finding(instrument: Instrument, scored: ScoredDays, instrument_count: int) -> InstrumentFinding:
    spread, count = scored.spread, scored.baseline_count
    if spread is None or len(scored.scores) == count:  # no day to compare with the baseline yet
        return InstrumentFinding(
            instrument.name,
            "collecting",
            scored.collected_days,
            scored.needed_days,
            scored.days,
            scored.scores,
            scored.scores_without_tie_breaks,
        )
    baseline_scores = scored.scores_without_tie_breaks[:count]
    thresholds = (NOTICE.threshold * instrument_count, ALARM.threshold * instrument_count)
    tolerances = (instrument.min_tolerance, spread.tolerance)
    notice, alarm = (measure_change_statistic(scored.scores, count, tolerance) for tolerance in tolerances)
    level: Level = "quiet"
    if not spread.can_alarm:
        level = "cannot_tell"
    elif alarm.value >= thresholds[1]:
        level = "alarm"
    elif notice.value >= thresholds[0]:
        level = "notice"
    decisive = alarm if level == "alarm" else notice
    first, among = decisive.likeliest_first_day, decisive.likeliest_first_days()
    return InstrumentFinding(
        instrument.name,
        level,
        scored.collected_days,
        scored.needed_days,
        scored.days,
        scored.scores,
        scored.scores_without_tie_breaks,
        Baseline(
            count,
            scored.days[0],
            scored.days[count - 1],
            fmean(baseline_scores),
            min(baseline_scores),
            max(baseline_scores),
            spread.day_standard_deviation,
            spread.next_day_rank_correlation,
        ),
        notice.value,
        alarm.value,
        *thresholds,
        *tolerances,
        None if first is None else scored.days[first],
        None if among is None else (scored.days[among[0]], scored.days[among[1]]),
        _check_today(instrument, scored),
    )


# ── Today alone ──


def _check_today(instrument: Instrument, scored: ScoredDays) -> TodayCheck | None:
    """Compare the last day with the baseline, if it is not part of the baseline."""
    if not scored.latest_results or len(scored.scores) <= scored.baseline_count:
        return None
    if instrument.unit != "share":
        highest = max(scored.scores_without_tie_breaks[: scored.baseline_count])
        return TodayCheck(scored.scores_without_tie_breaks[-1] - instrument.min_tolerance > highest, None)
    hits, rates = 0, list[float]()
    for key, (result, calls) in scored.latest_results.items():
        if key in scored.prompt_means:
            hits += round(result * calls)
            rates += [min(1.0, scored.prompt_means[key] + instrument.min_tolerance)] * calls
    p_value = poisson_binomial_tail(rates, hits)
    return TodayCheck(p_value <= MAX_P_VALUE_OF_DAY_OUTSIDE_TOLERANCE, p_value)


def poisson_binomial_tail(rates: Sequence[float], hits: int) -> float:
    """Return the chance of at least so many hits among calls that hit with these rates, each independent of the others.

    For more than 3,000 calls it is Chernoff's bound, which is never smaller than the chance.

    >>> round(poisson_binomial_tail([0.5, 0.5], 1), 6), poisson_binomial_tail([0.1], 0), poisson_binomial_tail([], 1)
    (0.75, 1.0, 0.0)
    """
    if hits <= 0:
        return 1.0
    if hits > len(rates):
        return 0.0
    if len(rates) > MAX_EXACT_CALLS:
        return _bound_tail(rates, hits)
    chances, reached = [1.0, *(0.0 for _ in range(hits - 1))], 0.0  # of 0, 1, … hits so far; of as many as asked
    for rate in rates:
        reached += chances[-1] * rate
        chances = [miss * (1 - rate) + hit * rate for miss, hit in zip(chances, [0.0, *chances], strict=False)]
    return min(1.0, reached)


def _bound_tail(rates: Sequence[float], hits: int) -> float:
    """Return Chernoff's bound, minimised by bisection on its slope."""
    if math.fsum(rates) >= hits:
        return 1.0
    low, high = 0.0, 50.0
    for _ in range(60):
        middle = (low + high) / 2
        growth = math.exp(middle)
        slope = math.fsum(rate * growth / (1 - rate + rate * growth) for rate in rates)
        low, high = (middle, high) if slope < hits else (low, middle)
    growth = math.exp(low)
    return min(1.0, math.exp(math.fsum(math.log(1 - rate + rate * growth) for rate in rates) - low * hits))


# ── The state of a watch ──


class ReachedLevel(Struct, frozen=True):
    """A level that a period has reached, on which day and by which instruments."""

    level: Level
    day: str
    instruments: tuple[str, ...] = ()
    first_day: str | None = None
    first_days: tuple[str, str] | None = None


def decide_state(
    findings: Mapping[str, InstrumentFinding], reached: Sequence[ReachedLevel], unusable: Collection[str] = ()
) -> Level:
    """Return the state of a watch: a level that its period has reached stays until a new period begins.

    `reached` are the alerts of the period, and `unusable` the instruments that found nothing to measure.
    """
    if findings and not reached and all(name in unusable for name in findings):
        return "cannot_tell"
    levels = [*(each.level for each in findings.values()), *(each.level for each in reached)]
    return find_highest_level(levels)
