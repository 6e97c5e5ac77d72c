"""Has it changed? One score a day in, an alarm with a proven false-alarm rate out. Standard library only.

The statistic is the rank Shiryaev-Roberts sum of Gordon and Pollak (1994), with a tolerance. For each day on which a
change could have begun, the tolerance is subtracted from that day and all later ones, all days are ranked, and a
likelihood ratio is computed from the ranks: the later days come from a distribution shifted upwards, against all days
are exchangeable. The sum of these ratios over the candidate days is compared with a threshold.

*Why it can be trusted.* If the days are exchangeable, whatever their distribution, each ratio is a martingale of mean 1
of the ranks, and subtracting a tolerance can only lower it, path by path. So the probability that the sum reaches a
threshold A within T days is at most T / A, however often one looks. No mean of the baseline is estimated, and no shape
of a distribution is assumed. Days that resemble their neighbours are not exchangeable: `next_day_rank_correlation`
measures how far the baseline is from that, and `can_alarm` refuses an alarm beyond a limit found by simulation.

*The day is the unit.* Batches of one day share whatever that day does to an endpoint, so they are averaged, and more
calls a day do not make more days.
"""

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from operator import getitem
from statistics import fmean, variance

from msgspec import Struct

from pramana.watch_request import BASELINE_DAYS as BASELINE_DAYS  # noqa: PLC0414 - the rule was measured with this default

LEHMANN_EXPONENTS = (2.0, 5.0, 20.0, 100.0)
"""Exponents of Lehmann's alternative over which each ratio is averaged: from a small shift of a day to a large one."""
MAX_CANDIDATE_DAYS = 40
"""How many days back a change may have begun. An older one was seen long ago, or will never be."""
FIRST_DAYS_WEIGHT = 0.9995
"""The share of the sum that the likeliest first days of a change make up. In simulated changes, days with 95 % of the
sum had the true first day in only 84 % in the worst setting, as the statistic is read on the day that it is high."""
MIN_ANSWERED_SHARE = 0.8
"""The share of a day's planned prompts that must have an answer; with fewer, the day has no score."""
MIN_TOLERANCE = 0.02
MAX_RANK_CORRELATION = 0.5
"""Beyond this correlation of a baseline day with the next one, the days say too little about the model for an alarm."""
MONTH_DAYS = 30


class AlertLevel(Struct, frozen=True):
    """How sure a finding has to be: at most `MONTH / threshold` of all months reach it though nothing changed."""

    name: str
    threshold: float

    def false_alarm_share(self, days: int = MONTH_DAYS) -> float:
        """Return the largest share of periods of that many days that reach this level by chance.

        >>> NOTICE.false_alarm_share(), ALARM.false_alarm_share()
        (0.01, 0.0003)
        """
        return min(1.0, days / self.threshold)


NOTICE = AlertLevel("notice", 100.0 * MONTH_DAYS)
ALARM = AlertLevel("alarm", 100_000.0)


class ChangeStatistic(Struct, frozen=True):
    """The statistic of one day: its `value`, and the ratio of each day on which a change could have begun."""

    value: float
    likelihood_ratio_by_day: Mapping[int, float]
    """By the position of the day among the scores."""

    @property
    def likeliest_first_day(self) -> int | None:
        """The likeliest position of the first changed day; None before any day after the baseline."""
        return max(self.likelihood_ratio_by_day, key=lambda day: self.likelihood_ratio_by_day[day], default=None)

    def likeliest_first_days(self, weight: float = FIRST_DAYS_WEIGHT) -> tuple[int, int] | None:
        """Return the earliest and latest of the likeliest first days that together make up this share of the sum.

        In at least 94 % of simulated changes of every setting, the true first day is between them, at the first notice
        or alarm (`benchmarks/interval_coverage.py`).
        """
        reached, chosen = 0.0, []
        for day in sorted(
            self.likelihood_ratio_by_day, key=lambda day: self.likelihood_ratio_by_day[day], reverse=True
        ):
            chosen.append(day)
            reached += self.likelihood_ratio_by_day[day]
            if reached >= weight * self.value:
                break
        return (min(chosen), max(chosen)) if chosen else None


def measure_change_statistic(scores: Sequence[float], baseline_days: int, tolerance: float) -> ChangeStatistic:
    """Return the statistic of the last day of `scores`, of which the first `baseline_days` are the baseline.

    A higher score is what the watch looks for: a larger share of failures, more changed replies, a longer latency. Of
    equal scores the later day is ranked lower, which can only lower the statistic.

    >>> quiet = [0.10, 0.12, 0.08, 0.11, 0.09, 0.10, 0.13, 0.07, 0.11, 0.10, 0.12, 0.09, 0.08, 0.11]
    >>> measure_change_statistic([*quiet, 0.10, 0.11], 14, 0.02).value < NOTICE.threshold
    True
    >>> changed = measure_change_statistic([*quiet, 0.11, 0.55, 0.60, 0.58, 0.57, 0.61], 14, 0.02)
    >>> changed.value > NOTICE.threshold, changed.likeliest_first_day
    (True, 15)
    """
    first_candidate = max(baseline_days, len(scores) - MAX_CANDIDATE_DAYS)
    earlier, ratios = sorted(scores[:first_candidate]), {}
    for first in range(first_candidate, len(scores)):
        earlier_below = sorted(bisect_left(earlier, score - tolerance) for score in scores[first:])
        ratios[first] = _likelihood_ratio(len(scores), earlier_below)
        insort(earlier, scores[first])
    return ChangeStatistic(math.fsum(ratios.values()), ratios)


def iterate_change_statistics(
    scores: Iterable[float], baseline_days: int, tolerance: float
) -> Iterator[ChangeStatistic]:
    """Yield the statistic of each day after the baseline: what `measure_change_statistic` returns day by day, faster.

    >>> [round(each.value, 2) for each in iterate_change_statistics([1.0, 2.0, 3.0, 9.0, 8.0], 3, 0.0)]
    [2.87, 7.1]
    """
    seen: list[float] = []
    candidates: dict[int, tuple[list[float], list[int]]] = {}
    for day, score in enumerate(scores):
        if day >= baseline_days:
            candidates[day] = (seen.copy(), [])
            candidates.pop(day - MAX_CANDIDATE_DAYS, None)
            for earlier, earlier_below in candidates.values():
                insort(earlier_below, bisect_left(earlier, score - tolerance))
            ratios = {first: _likelihood_ratio(day + 1, below) for first, (_, below) in candidates.items()}
            yield ChangeStatistic(math.fsum(ratios.values()), ratios)
        insort(seen, score)


def _likelihood_ratio(days: int, earlier_below: Sequence[int]) -> float:
    """Return the ratio for one first day; `earlier_below` has how many earlier days are below each later one, sorted.

    The denominator multiplies, over all ranks, the rank plus (exponent - 1) times the later days up to it. Between two
    later days only the rank grows, so the product of such a stretch is a ratio of two factorials.
    """
    later = len(earlier_below)
    length = 1 << (days - later).bit_length()
    ratio = 0.0
    for exponent, constant in zip(LEHMANN_EXPONENTS, _compute_order_independent_log_terms(days, later), strict=True):
        gained = math.fsum(map(getitem, _tabulate_log_gains(exponent, length), earlier_below))
        ratio += math.exp(constant + gained)
    return ratio / len(LEHMANN_EXPONENTS)


@lru_cache(maxsize=1 << 16)
def _compute_order_independent_log_terms(days: int, later: int) -> tuple[float, ...]:
    """Return the part of each logarithm that does not depend on the order of the days, by exponent."""
    log_orders = math.lgamma(days + 1)
    return tuple(
        log_orders + later * math.log(exponent) - math.lgamma(days + (exponent - 1) * later + 1)
        for exponent in LEHMANN_EXPONENTS
    )


@cache
def _tabulate_log_gains(exponent: float, length: int) -> tuple[tuple[float, ...], ...]:
    """Return by how much each later day divides the denominator, by its rank among the later and the earlier days."""
    return tuple(
        tuple(
            math.lgamma(rank + (exponent - 1) * later_rank) - math.lgamma(rank + (exponent - 1) * (later_rank - 1))
            for rank in range(later_rank, later_rank + length)
        )
        for later_rank in range(1, MAX_CANDIDATE_DAYS + 1)
    )


# ── From the calls of a day to its score ──


def score_day(
    mean_results: Mapping[str, float], baseline_means: Mapping[str, float], tie_break: float = 0.0
) -> float | None:
    """Return the score of a day, or None if too few of its prompts were answered.

    `mean_results` has the mean result of each answered prompt, `baseline_means` that of each planned prompt over the
    baseline. An unanswered prompt counts as at its baseline, so that a prompt which is always difficult cannot move the
    day by being absent. `tie_break` is a number from -½ to ½, drawn once a day and stored: it decides between days with
    equal counts.

    >>> score_day({"a": 1.0, "b": 0.0}, {"a": 0.5, "b": 0.0})
    0.5
    >>> score_day({"a": 1.0}, {"a": 0.5, "b": 0.0}) is None
    True
    """
    answered = [prompt for prompt in baseline_means if prompt in mean_results]
    if not baseline_means or len(answered) < MIN_ANSWERED_SHARE * len(baseline_means):
        return None
    moved = math.fsum(mean_results[prompt] - baseline_means[prompt] for prompt in answered) / len(baseline_means)
    return fmean(baseline_means.values()) + moved + tie_break


class BaselineSpread(Struct, frozen=True):
    """How much the days of a baseline differ from each other although nothing changed."""

    day_standard_deviation: float
    """Standard deviation of the days beyond what the number of calls explains."""
    next_day_rank_correlation: float
    """Of a day with the next one, between their ranks."""
    min_tolerance: float = MIN_TOLERANCE
    """The tolerance of a notice: two points, or as much on the scale of what is measured."""

    @property
    def tolerance(self) -> float:
        """The tolerance of an alarm: as large as the days differ by themselves, and at least that of a notice."""
        return max(self.min_tolerance, self.day_standard_deviation)

    @property
    def can_alarm(self) -> bool:
        """Whether the days are independent enough for an alarm."""
        return self.next_day_rank_correlation <= MAX_RANK_CORRELATION


def measure_baseline_spread(
    scores: Sequence[float], prompt_rates: Mapping[str, float], calls_per_day: int
) -> BaselineSpread:
    """Return the spread of the baseline's days.

    `prompt_rates` are the shares of each prompt over the baseline, `calls_per_day` its calls a day: a day's mean over
    them varies by itself, and that part is subtracted.
    """
    days, prompts = len(scores), len(prompt_rates)
    by_calls = (
        math.fsum(rate * (1 - rate) for rate in prompt_rates.values()) / prompts**2 / calls_per_day * days / (days - 1)
    )
    return BaselineSpread(math.sqrt(max(0.0, variance(scores) - by_calls)), next_day_rank_correlation(scores))


def next_day_rank_correlation(scores: Sequence[float]) -> float:
    """Return the correlation between the ranks of each day and the next; 0 when all are equal.

    >>> [round(next_day_rank_correlation(each), 2) for each in ([1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 5.0, 2.0, 4.0, 3.0])]
    [0.4, -0.7]
    >>> next_day_rank_correlation([0.5, 0.5, 0.5])
    0.0
    """
    ordered = sorted(scores)
    # Equal scores share the middle of their ranks: in their order, they would look like a rising series.
    ranks = [(bisect_left(ordered, each) + bisect_right(ordered, each) - len(scores)) / 2 for each in scores]
    total = math.fsum(rank * rank for rank in ranks)
    return math.fsum(one * other for one, other in pairwise(ranks)) / total if total else 0.0


# ── Several contributors to one public watch ──

MIN_CONTRIBUTORS = 5
MAX_IGNORED_CONTRIBUTOR_SHARE = 0.3


def combine_contributor_statistics(contributor_values: Sequence[float]) -> float:
    """Return one statistic from those of the contributors to a public watch, or 0 for fewer than five.

    Up to three in ten may report what they like: as many of the largest values are ignored, and the next one counts,
    divided by the number of contributors. It reaches a threshold only if some honest contributor's own statistic
    reaches it times that number, so the union bound keeps the false-alarm rate.

    >>> combine_contributor_statistics([1e9, 1e9, 1e9, 3.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    0.3
    """
    if len(contributor_values) < MIN_CONTRIBUTORS:
        return 0.0
    ignored = math.floor(MAX_IGNORED_CONTRIBUTOR_SHARE * len(contributor_values))
    return sorted(contributor_values, reverse=True)[ignored] / len(contributor_values)
