"""Intervals of a mean over cases: one value of each case, within known bounds, in; an interval of the true mean out.

One rule serves pass rates, differences of pass rates and pass@k. Each case gets a random share of the whole, as in the
Bayesian bootstrap, and one more case is imagined at the far end of the scale; an end of the interval is where all but
2.5 % of the weighted means lie (Gaffke's bounds). If every case passes or fails, that is Clopper and Pearson's exact
interval of a proportion. If a case has several replies, their agreement decides: replies that always agree give the
interval of one reply, replies that vary give a narrower one. No spread is estimated, so that a few cases which happen
to agree never look precise. Pure functions, standard library only, and nothing is random: the chance that a weighted
mean exceeds a limit is computed.
"""

import cmath
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

from pramana.analyse.intervals import CONFIDENCE, Interval, find_smallest

MAX_DISTINCT_VALUES = 100
"""Values that are kept apart; more are rounded to so many steps of the scale."""
_STEP, _NEGLIGIBLE, _TOLERANCE = 0.2, 1e-7, 1e-6
"""Of the integral and of the limits found with it, which are accurate to 0.00001 of the scale."""
_BETA_TOLERANCE = 1e-12
_NORMAL = NormalDist()

_WeightedValues = tuple[tuple[float, float], ...]
"""Values in ascending order, and how many cases have each."""


def case_mean_interval(
    values: Iterable[float], low: float = 0.0, high: float = 1.0, *, confidence: float = CONFIDENCE
) -> Interval:
    """Return the interval of the mean of which the cases' values, each from `low` to `high`, are a sample.

    >>> found = case_mean_interval([1.0] * 9 + [0.0])
    >>> round(found.low, 3), round(found.high, 3)
    (0.555, 0.997)
    >>> case_mean_interval([])
    Interval(low=0.0, high=1.0)
    """
    counts = Counter(min(max(round(each, 9), low), high) for each in values)
    if len(counts) > MAX_DISTINCT_VALUES:
        step = (high - low) / MAX_DISTINCT_VALUES
        rounded: Counter[float] = Counter()
        for value, count in counts.items():
            rounded[low + round((value - low) / step) * step] += count
        counts = rounded
    return _find_interval(tuple(sorted(counts.items())), low, high, (1 - confidence) / 2)


def rate_interval(passed: float, total: float, *, confidence: float = CONFIDENCE) -> Interval:
    """Return Clopper and Pearson's interval of a proportion; without observations, 0 to 1.

    Counts may be fractions: for `k` replies to each of `n` cases, pass the share times `n`, out of `n`.

    >>> found = rate_interval(9, 10)
    >>> round(found.low, 3), round(found.high, 3)
    (0.555, 0.997)
    """
    passed = min(max(passed, 0.0), total)
    return _find_interval(((0.0, total - passed), (1.0, passed)), 0.0, 1.0, (1 - confidence) / 2)


def rate_lower_bound(passed: float, total: float, confidence: float) -> float:
    """Return the exact one-sided lower bound of a proportion (Clopper and Pearson's).

    >>> round(rate_lower_bound(20, 20, 0.95), 4), rate_lower_bound(0, 5, 0.95)
    (0.8609, 0.0)
    """
    return rate_interval(passed, total, confidence=2 * confidence - 1).low


def cases_to_exclude_loss(loss: float, differences: Sequence[float], *, alpha: float = 0.05, power: float = 0.8) -> int:
    """Return how many cases give an interval that ends above -`loss`, if nothing changed but cases flip as these do.

    The interval is that of `case_mean_interval`. With the probability `power`, the mean difference is not further below
    zero than in the sample that is tried here: as large a share of cases flips, and more of them downwards.

    >>> cases_to_exclude_loss(0.05, [0.0] * 20), cases_to_exclude_loss(0.05, [-1.0] + [0.0] * 19)
    (72, 215)
    """
    sizes = Counter(round(abs(each), 9) for each in differences)
    shares = {size: times / len(differences) for size, times in sizes.items()}
    return count_cases_to_exclude_loss(loss, shares, alpha=alpha, power=power)


def count_cases_to_exclude_loss(
    loss: float, share_by_size: Mapping[float, float], *, alpha: float = 0.05, power: float = 0.8
) -> int:
    """Return what `cases_to_exclude_loss` returns, from the share of the cases with each size of a difference.

    >>> count_cases_to_exclude_loss(0.05, {0.0: 0.95, 1.0: 0.05})
    215
    """
    size = sum(each * share for each, share in share_by_size.items())
    square = sum(each * each * share for each, share in share_by_size.items())

    def excludes(cases: int) -> bool:
        lean = min(1.0, NormalDist().inv_cdf(power) * math.sqrt(square / cases) / size) if size else 0.0
        weighted: dict[float, float] = {}
        for each, share in share_by_size.items():
            for value, part in ((-each, (1 + lean) / 2), (each, (1 - lean) / 2)):
                weighted[value] = weighted.get(value, 0.0) + share * cases * part
        return _find_interval(tuple(sorted(weighted.items())), -1.0, 1.0, alpha / 2).low > -loss

    return find_smallest(excludes)


@lru_cache(maxsize=10_000)
def _find_interval(weighted: _WeightedValues, low: float, high: float, tail: float) -> Interval:
    """Return the interval whose ends a weighted mean misses with the probability `tail` each."""
    present = tuple(each for each in weighted if each[1] > 0)
    if not present:
        return Interval(low, high)
    mirrored = tuple((low + high - value, count) for value, count in reversed(present))
    return Interval(low + high - _upper_bound(mirrored, high, tail), _upper_bound(present, high, tail))


def _upper_bound(weighted: _WeightedValues, high: float, tail: float) -> float:
    """Return the limit that a weighted mean exceeds with the probability `tail`, one more case at `high` included."""
    below = [each for each in weighted if each[0] < high]
    if not below:
        return high
    at_high = 1 + sum(count for value, count in weighted if value >= high)
    terms = [*below, (high, at_high)]
    cases = sum(count for _, count in terms)
    mean = sum(value * count for value, count in terms) / cases
    variance = sum((value - mean) ** 2 * count for value, count in terms) / cases / (cases + 1)
    start = (mean * cases - high) / (cases - 1)  # the mean without the imagined case
    search = _Search(tail, start, high, mean, math.sqrt(variance))
    if len(below) == 1:
        value, count = below[0]
        width = high - value
        return search.find(lambda limit: beta_tail((limit - value) / width, at_high, count), _BETA_TOLERANCE * width)
    return search.find(lambda limit: _chance_above(terms, limit), _TOLERANCE * (high - below[0][0]))


class _Search(NamedTuple):
    """The search for the limit between `start` and `end` that is exceeded with the probability `tail`."""

    tail: float
    start: float
    end: float
    mean: float
    deviation: float

    def find(self, chance_above: Callable[[float], float], tolerance: float) -> float:
        """Return the limit: by secants on the normal scale, where such chances are almost linear, within a bracket."""
        start, end, wanted = self.start, self.end, _NORMAL.inv_cdf(self.tail)
        point, slope = self.mean - wanted * self.deviation, -1 / self.deviation
        before: tuple[float, float] | None = None
        for _ in range(200):
            if not start < point < end:
                point = (start + end) / 2
            score = _NORMAL.inv_cdf(min(max(chance_above(point), 1e-300), 1 - 1e-16)) - wanted
            start, end = (point, end) if score > 0 else (start, point)
            if before and point != before[0]:
                slope = (score - before[1]) / (point - before[0])
            before = point, score
            point = point - score / slope if slope < 0 else math.inf
            if abs(point - before[0]) <= tolerance or end - start <= tolerance:
                break
        return min(max(point, start), end)


# ── Cases that pass or fail ──


def beta_tail(limit: float, first: float, second: float) -> float:
    """Return how probably a beta variable with these two parameters exceeds the limit.

    >>> round(beta_tail(0.5, 3, 3), 9), round(beta_tail(0.25, 1, 2), 9)
    (0.5, 0.5625)
    """
    if limit <= 0 or limit >= 1:
        return float(limit <= 0)
    if limit < (first + 1) / (first + second + 2):  # where the fraction converges faster
        return 1 - _beta_fraction(limit, first, second)
    return _beta_fraction(1 - limit, second, first)


def _beta_fraction(limit: float, first: float, second: float) -> float:
    """Return the chance of at most `limit` by the continued fraction, evaluated by the method of Lentz."""
    log_front = (
        math.lgamma(first + second)
        - math.lgamma(first)
        - math.lgamma(second)
        + first * math.log(limit)
        + second * math.log1p(-limit)
    )
    fraction = numerator = 1.0
    denominator = 1 / (1 - (first + second) * limit / (first + 1))
    fraction = denominator
    for each in range(1, 10_000):
        double = first + 2 * each
        for factor in (
            each * (second - each) * limit / ((double - 1) * double),
            -(first + each) * (first + second + each) * limit / (double * (double + 1)),
        ):
            denominator = 1 / (1 + factor * denominator)
            numerator = 1 + factor / numerator
            fraction *= denominator * numerator
        if abs(denominator * numerator - 1) < 1e-15:
            break
    return math.exp(log_front) * fraction / first


# ── Cases with several replies ──


def _chance_above(terms: list[tuple[float, float]], limit: float) -> float:
    """Return how probably a mean of values with Dirichlet weights, whose parameters are the counts, exceeds the limit.

    It does if a sum of gamma variables, each times its value's distance from the limit, is positive. That chance is an
    integral of the moment generating function along a vertical line, here through the saddle point.
    """
    scale = max(abs(value - limit) for value, _ in terms)
    scaled = [((value - limit) / scale, count) for value, count in terms if value != limit]
    farthest = max(distance for distance, _ in scaled)
    if farthest <= 0 or min(distance for distance, _ in scaled) >= 0:
        return float(farthest > 0)
    saddle = _find_saddle_point(scaled, 1 / farthest)
    curvature = sum(count * (each / (1 - each * saddle)) ** 2 for each, count in scaled) + 1 / saddle**2
    spread = 1 / math.sqrt(curvature)
    log_height = sum(count * math.log1p(-each * saddle) for each, count in scaled) + math.log(saddle)
    total, place = 0.5, 0.0
    while True:
        place += _STEP
        point = complex(saddle, spread * math.sinh(place))
        power = log_height - cmath.log(point)
        for each, count in scaled:
            power -= count * cmath.log(1 - each * point)
        term = cmath.exp(power) * math.cosh(place)
        total += term.real
        if abs(term) < _NEGLIGIBLE:
            break
    return min(1.0, math.exp(-log_height) * spread * total * _STEP / math.pi)


def _find_saddle_point(scaled: list[tuple[float, float]], end: float) -> float:
    """Return where the integrated function is smallest between 0 and `end`: Newton's method within a bracket."""
    start, point = 0.0, end / 2
    for _ in range(60):
        slope, curvature = -1 / point, 1 / point**2
        for each, count in scaled:
            ratio = each / (1 - each * point)
            slope += count * ratio
            curvature += count * ratio * ratio
        start, end = (point, end) if slope < 0 else (start, point)
        better = point - slope / curvature
        if not start < better < end:
            better = (start + end) / 2
        if abs(better - point) <= 1e-6 * point:
            break
        point = better
    return point
