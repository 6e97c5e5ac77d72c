"""How soon a watch sees a change: an assumed model in, days until a notice and an alarm out, from simulated months.

Each simulated month has a baseline, by default of 28 days, five more days without a change, and 30 days on which the
model's pass rate is lower. The scores of the days go through the shipped rule of `drift`. Simulations are seeded: the
same question has the same answer. Plans and the reports of watches both ask here, so that they never disagree.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from random import Random
from statistics import NormalDist, variance
from typing import NamedTuple

from msgspec import Struct

from pramana.analyse.drift import (
    ALARM,
    BASELINE_DAYS,
    MAX_RANK_CORRELATION,
    MIN_TOLERANCE,
    MONTH_DAYS,
    NOTICE,
    iterate_change_statistics,
    measure_change_statistic,
    next_day_rank_correlation,
)
from pramana.analyse.power import AssumedModel, find_crossing, logistic

SIMULATED_MONTHS = 100
"""Of each delay: an answer takes less than a second, and half of the months is known to within ten in a hundred."""
DAYS_BEFORE_CHANGE = 5
"""Days after the baseline before the change; the longer a watch has run, the sooner it sees one."""
MAX_DRAWN_CALLS = 200
"""Up to so many calls a day, each reply is drawn; beyond, the passes of a day are taken as normal."""
MAX_REPRESENTED_CASES = 200
"""A longer suite is represented by so many of its cases."""
_GRID_STEPS, _GRID_REACH = 60, 6.0
"""Points, and standard deviations to either side, at which the passes of a day are computed; linear in between."""
_DAY_NODES = [(step / 2, NormalDist().pdf(step / 2) / 2) for step in range(-8, 9)]
"""Points and weights of the mean over days."""


class LevelDelay(Struct, frozen=True):
    """How soon one level, a notice or an alarm, is reached after a change."""

    median_days: int | None
    """None: half of the months do not reach it within 30 days."""
    seen_share: float
    """The share of months that reach it within 30 days."""


class WatchDelay(Struct, frozen=True):
    """How soon a watch sees a change."""

    notice: LevelDelay
    alarm: LevelDelay


@lru_cache(maxsize=256)
def simulate_watch_delay(
    model: AssumedModel,
    cases: int | None,
    repeats: int,
    loss: float,
    *,
    instruments: int = 1,
    baseline_days: int = BASELINE_DAYS,
    months: int = SIMULATED_MONTHS,
    seed: int = 42,
) -> WatchDelay:
    """Return how soon a watch with these calls a day sees a loss of the pass rate.

    Without `cases`, the number of calls is not limited: what remains is how the days differ by themselves. A watch with
    several `instruments` needs that many times the evidence.

    >>> seen = simulate_watch_delay(AssumedModel(2.5, 2.0), 75, 5, 0.2, months=20)
    >>> seen.notice.median_days, seen.alarm.median_days
    (4, 6)
    """
    logits = _represent_suite(model, cases or MAX_REPRESENTED_CASES)
    rate = _mean_over_days(logits, model.day_spread)
    shift = find_crossing(
        lambda shift: rate - _mean_over_days([logit - shift for logit in logits], model.day_spread) < loss, 0.0, 60.0
    )
    calls = cases * repeats if cases else None
    before = _Days(logits, calls, model.day_spread)
    after = _Days([logit - shift for logit in logits], calls, model.day_spread)
    rng = Random(seed)
    ends = [_simulate_month(rng, before, after, instruments, baseline_days) for _ in range(months)]
    return WatchDelay(_summarise([end.notice for end in ends]), _summarise([end.alarm for end in ends]))


def _represent_suite(model: AssumedModel, cases: int) -> list[float]:
    """Return the logits of a suite whose cases spread evenly, with the model's pass rate as the mean over days."""
    count = min(cases, MAX_REPRESENTED_CASES)
    spread = [model.case_spread * NormalDist().inv_cdf((case + 0.5) / count) for case in range(count)]
    wanted = AssumedModel(model.mean_logit, model.case_spread).pass_rate()
    reach = 6 * model.case_spread + 30
    mean = find_crossing(
        lambda mean: _mean_over_days([mean + each for each in spread], model.day_spread) < wanted, -reach, reach
    )
    return [mean + each for each in spread]


def _mean_over_days(logits: Sequence[float], day_spread: float) -> float:
    """Return the mean pass rate of some cases over all days."""
    if not day_spread:
        return math.fsum(map(logistic, logits)) / len(logits)
    return math.fsum(
        weight * math.fsum(logistic(logit + day_spread * node) for logit in logits) for node, weight in _DAY_NODES
    ) / len(logits)


class _Days:
    """The days of one suite: each has an effect on all its cases, and a number of replies that pass."""

    def __init__(self, logits: Sequence[float], calls: int | None, day_spread: float) -> None:
        self.calls, self._logits, self._day_spread = calls, logits, day_spread
        steps = _GRID_STEPS if day_spread else 0
        effects = [day_spread * _GRID_REACH * (2 * at / steps - 1) for at in range(steps + 1)] if steps else [0.0]
        by_effect = [[logistic(logit + effect) for logit in logits] for effect in effects]
        self._means = [math.fsum(rates) / len(rates) for rates in by_effect]
        self._variances = [math.fsum(rate * (1 - rate) for rate in rates) / len(rates) for rates in by_effect]

    @cached_property
    def variance_from_calls(self) -> float:
        """The variance of a day's pass rate that its number of calls explains."""
        if self.calls is None:
            return 0.0
        rates = [_mean_over_days([logit], self._day_spread) for logit in self._logits]
        return math.fsum(rate * (1 - rate) for rate in rates) / len(rates) / self.calls

    def draw_failure_share(self, rng: Random) -> float:
        """Return the share of a day's replies that fail."""
        deviations = max(-_GRID_REACH, min(_GRID_REACH, rng.gauss(0.0, 1.0))) if self._day_spread else 0.0
        if self.calls is not None and self.calls <= MAX_DRAWN_CALLS:
            effect, draw, repeats = self._day_spread * deviations, rng.random, self.calls // len(self._logits)
            rates = [logistic(logit + effect) for logit in self._logits]
            return sum(draw() > rate for rate in rates for _ in range(repeats)) / self.calls
        mean, within = self._interpolate(self._means, deviations), self._interpolate(self._variances, deviations)
        if self.calls is None:
            return 1 - mean
        passes = round(rng.gauss(self.calls * mean, math.sqrt(self.calls * within)))
        return 1 - min(self.calls, max(0, passes)) / self.calls

    def _interpolate(self, values: Sequence[float], deviations: float) -> float:
        if len(values) == 1:
            return values[0]
        place = (deviations / _GRID_REACH + 1) / 2 * _GRID_STEPS
        below = min(int(place), _GRID_STEPS - 1)
        return values[below] + (values[below + 1] - values[below]) * (place - below)


class _Reached(NamedTuple):
    """The days of a change, counted from 1, on which a level was first reached; None: not within 30 days."""

    notice: int | None
    alarm: int | None


def _simulate_month(rng: Random, before: _Days, after: _Days, instruments: int, baseline_days: int) -> _Reached:
    tie = 0.5 / before.calls if before.calls else 0.0
    baseline = [before.draw_failure_share(rng) for _ in range(baseline_days)]
    by_calls = before.variance_from_calls * baseline_days / (baseline_days - 1)  # as a baseline estimates it
    tolerance = max(MIN_TOLERANCE, math.sqrt(max(0.0, variance(baseline) - by_calls)))
    scores = [share + rng.uniform(-tie, tie) for share in baseline]
    can_alarm = next_day_rank_correlation(scores) <= MAX_RANK_CORRELATION

    def days() -> Iterator[float]:
        yield from scores.copy()
        for day in range(DAYS_BEFORE_CHANGE + MONTH_DAYS):
            scores.append(
                (before if day < DAYS_BEFORE_CHANGE else after).draw_failure_share(rng) + rng.uniform(-tie, tie)
            )
            yield scores[-1]

    notice = None
    statistics = iterate_change_statistics(days(), baseline_days, MIN_TOLERANCE)
    for day, found in enumerate(statistics, 1 - DAYS_BEFORE_CHANGE):
        if day < 1:
            continue
        if notice is None and found.value >= instruments * NOTICE.threshold:
            notice = day
        if found.value < instruments * ALARM.threshold or not can_alarm:
            continue  # a larger tolerance only lowers the statistic
        if measure_change_statistic(scores, baseline_days, tolerance).value >= instruments * ALARM.threshold:
            return _Reached(notice, day)
    return _Reached(notice, None)


def _summarise(days: Sequence[int | None]) -> LevelDelay:
    reached = sorted(day for day in days if day is not None)
    middle = (len(days) - 1) // 2
    return LevelDelay(reached[middle] if middle < len(reached) else None, len(reached) / len(days))
