"""Statistics: numbers in; p-values, percentiles and intervals out. Standard library only, no I/O, no randomness.

Three rules run through this module. *Pairs are compared, not totals*: two runs have the same cases, and cases differ
far more than models do. *The case is the unit*: five replies to one case are not five cases; at temperature 0 they are
nearly one, so repeats shrink the noise within a case and never count as more cases. *Tests are exact* wherever that is
affordable; where an approximation is used, its limit is named.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from statistics import NormalDist

from msgspec import Struct

CONFIDENCE = 0.95
MAX_FLIPS_SUMMED_IN_INTEGERS = 1_000
"""McNemar's test is summed in integers up to this many flips; beyond, in floating point, accurate to 1e-9."""
MAX_BYTES_FOR_COUNTING_SIGNS = 2_000_000_000
"""Bytes that counting all assignments of signs may touch (about a second); beyond, the normal approximation is used."""
MIN_CLUSTERS = 6
"""With fewer clusters, no exact test at 5 % could tell two runs apart, so an approximation should not either."""
MIN_CASES_OF_MEAN = 8
"""With fewer cases, the coverage of `skewed_mean_interval` falls below 94 %."""
RATIO_TAIL_FACTOR = 0.8
"""The interval of a ratio leaves out this much less than it says, 4 % instead of 5 %: its coverage is approximate."""
MAX_DEGREES_OF_FREEDOM_OF_EXACT_QUANTILE = 200
"""Student's quantile is exact up to this many degrees of freedom; beyond, a series is accurate to 1e-8."""
MAX_EXPECTED_FLIPS_OF_EXACT_POWER = 1_000
"""The power of McNemar's test is enumerated up to this many expected flips; beyond, the normal distribution is used."""
MAX_EXPECTED_UNFLIPPED_CASES_OF_EXACT_POWER = 10
"""It is enumerated, too, if at most so many are expected not to flip: odd and even counts of flips then differ."""


class Interval(Struct, frozen=True):
    """A closed interval from `low` to `high`."""

    low: float
    high: float

    def is_within(self, margin: float) -> bool:
        """Return whether the whole interval lies within ±`margin`."""
        return -margin <= self.low and self.high <= margin


def normal_quantile(confidence: float) -> float:
    """Return the normal quantile of a two-sided confidence.

    >>> round(normal_quantile(0.95), 4)
    1.96
    """
    return NormalDist().inv_cdf((1 + confidence) / 2)


Z95 = normal_quantile(CONFIDENCE)


def mcnemar_p_value(lost: int, gained: int) -> float:
    """Return the exact two-sided p-value of McNemar's test, whose null hypothesis is that losses and gains are equal.

    Only flipped cases carry evidence. Under "no difference" each flip is the toss of a fair coin, so the smaller side
    is binomial: p = 2·P(Bin(lost + gained, ½) ≤ the smaller), at most 1.

    >>> mcnemar_p_value(8, 1)
    0.0390625
    """
    flips, fewer = lost + gained, min(lost, gained)
    if 2 * fewer >= flips - 1:  # both tails together cover everything
        return 1.0
    if flips <= MAX_FLIPS_SUMMED_IN_INTEGERS:
        return min(1.0, 2 * sum(math.comb(flips, each) for each in range(fewer + 1)) / (1 << flips))
    log_term = math.lgamma(flips + 1) - math.lgamma(fewer + 1) - math.lgamma(flips - fewer + 1)
    relative = term = 1.0
    for each in range(fewer, 0, -1):  # outwards from the largest term, until the rest is negligible
        term *= each / (flips - each + 1)
        relative += term
        if term < relative * 1e-17:
            break
    return min(1.0, 2 * math.exp(log_term - flips * math.log(2) + math.log(relative)))


def _find_crossing(before: Callable[[float], bool], low: float, high: float) -> float:
    """Return where a condition that holds from `low` on stops holding."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if before(middle) else (low, middle)
    return (low + high) / 2


def align_with_test(interval: Interval, estimate: float, *, significant: bool) -> Interval:
    """Return the interval, cut or extended at zero, so that zero lies inside it exactly if the test does not reject.

    If the test rejects, an end at zero does not belong to the interval.

    >>> align_with_test(Interval(-0.2, -0.01), -0.1, significant=False)
    Interval(low=-0.2, high=0.0)
    """
    low, high = interval.low, interval.high
    if not significant:
        return Interval(min(low, 0.0), max(high, 0.0))
    return Interval(low, min(high, 0.0)) if estimate < 0 else Interval(max(low, 0.0), high)


def sign_flip_p_value(differences: Sequence[int]) -> float:
    """Return the two-sided p-value of the sign-flip test, a paired permutation test.

    Differences are integers: a case's passes in the new run minus those in the base, over equally many repeats. If the
    runs do not differ, swapping the two sides of a case (all its repeats at once, so they may be dependent) changes
    nothing, and every assignment of signs is equally likely; p is the share of assignments whose sum is at least as
    far from zero. All are counted exactly within `MAX_BYTES_FOR_COUNTING_SIGNS`: 1,500 changed cases of five repeats.
    Beyond, the sum is treated as normal with a continuity correction, accurate to 0.001 there. With one repeat this is
    McNemar's test.

    >>> sign_flip_p_value([-3, -2, -3, -1, -2, -3])
    0.03125
    """
    sizes = [abs(each) for each in differences if each]
    seen, most = abs(sum(differences)), sum(sizes)
    if not seen:
        return 1.0
    slot = len(sizes) // 8 + 1  # bytes that hold any count up to 2 to the number of cases
    if len(sizes) * (most + 1) * slot > MAX_BYTES_FOR_COUNTING_SIGNS:
        deviation = math.sqrt(math.fsum(each * each for each in sizes))
        return min(1.0, 2 * NormalDist().cdf(-(seen - math.gcd(*sizes)) / deviation))
    # One big integer holds, in slots, how many assignments give the positive signs each total.
    counts = 1
    for size in sizes:
        counts += counts << (8 * slot * size)
    packed = counts.to_bytes((most + 1) * slot, "little")
    lowest = (most - seen) // 2  # positive totals up to here are as extreme as the observed one
    tail = sum(int.from_bytes(packed[at * slot : (at + 1) * slot], "little") for at in range(lowest + 1))
    return min(1.0, 2 * tail / (1 << len(sizes)))


def cases_needed(difference: float, flipping: float, *, alpha: float = 0.05, power: float = 0.8) -> int:
    """Return how many pairs detect a difference of this size if this share of cases flips in either direction.

    McNemar's exact test rejects with a probability of at least `power`, by `mcnemar_power`. The share that flips is at
    least the difference itself.

    >>> cases_needed(0.05, 0.2)
    658
    """
    flipping = min(1.0, max(flipping, abs(difference)))
    return find_smallest(lambda cases: mcnemar_power(cases, difference, flipping, alpha=alpha) >= power)


def mcnemar_power(cases: int, difference: float, flipping: float, *, alpha: float = 0.05) -> float:
    """Return how probably the exact McNemar test finds a difference of this size, in its direction.

    Exact while at most `MAX_EXPECTED_FLIPS_OF_EXACT_POWER` cases are expected to flip, or at most
    `MAX_EXPECTED_UNFLIPPED_CASES_OF_EXACT_POWER` not to; otherwise accurate to 0.003.

    >>> round(mcnemar_power(100, 0.1, 0.2), 3), round(mcnemar_power(1_000_000, 0.0014, 0.2), 3)
    (0.544, 0.879)
    """
    if flipping <= 0:
        return 0.0
    if (
        cases * flipping > MAX_EXPECTED_FLIPS_OF_EXACT_POWER
        and cases * (1 - flipping) > MAX_EXPECTED_UNFLIPPED_CASES_OF_EXACT_POWER
    ):
        size = abs(difference)
        return sign_flip_power(cases, (size, flipping, size, flipping), alpha=alpha)
    fewer = (1 - abs(difference) / flipping) / 2  # the share of flips in the other direction
    reach = 8 * math.sqrt(cases * flipping * (1 - flipping)) + 40 * (1 - flipping)
    least, most = max(0, math.floor(cases * flipping - reach)), min(cases, math.ceil(cases * flipping + reach))
    return math.fsum(
        _binomial_chance(flips, cases, flipping) * _chance_of_at_most(allowed, flips, fewer)
        for flips in range(least, most + 1)
        if (allowed := _find_max_rarer_flips_to_reject(flips, alpha)) is not None
    )


def sign_flip_power(cases: int, moments: tuple[float, float, float, float], *, alpha: float = 0.05) -> float:
    """Return how probably the sign-flip test finds a difference in its direction, with both of its sums as normal.

    `moments` are the means over cases of a case's difference, which is positive on average, and of its second to fourth
    powers, in steps of one pass. The test rejects if the sum is 1.96 times the root of the sum of squares, with a
    continuity correction.

    >>> round(sign_flip_power(658, (0.05, 0.2, 0.05, 0.2)), 2)
    0.8
    """
    mean, square, third, fourth = moments
    quantile, spread = normal_quantile(1 - alpha), fourth - square * square
    slope = quantile / (2 * math.sqrt(cases * square))
    variance = square - mean * mean - 2 * slope * (third - mean * square) + slope * slope * spread
    bound = quantile * (math.sqrt(cases * square) - spread / (8 * square**1.5 * math.sqrt(cases)))
    return NormalDist().cdf((cases * mean - 1 - bound) / math.sqrt(cases * max(variance, 1e-12)))


@lru_cache(maxsize=1 << 14)
def _find_max_rarer_flips_to_reject(flips: int, alpha: float) -> int | None:
    """Return how many of the flips may at most go in the rarer direction for McNemar's test to reject; None: none may.

    It starts ten standard deviations below the middle, where the probability of fewer is negligible.
    """
    rarer = max(0, math.floor(flips / 2 - 5 * math.sqrt(flips)))
    tail = chance = _binomial_chance(rarer, flips, 0.5)
    if 2 * tail > alpha:
        return None
    while 2 * tail <= alpha:
        chance *= (flips - rarer) / (rarer + 1)
        rarer += 1
        tail += chance
    return rarer - 1


def _chance_of_at_most(hits: int, total: int, share: float) -> float:
    """Return the probability of at most so many hits: the sum of the terms on the shorter side."""
    if share <= 0:
        return 1.0
    odds = share / (1 - share)
    if hits > total * share:
        return 1 - math.fsum(_iterate_terms(hits + 1, total, odds, _binomial_chance(hits + 1, total, share)))
    term, found = _binomial_chance(hits, total, share), 0.0
    for each in range(hits, -1, -1):
        found += term
        if term <= found * 1e-17:
            break
        term *= each / (total - each + 1) / odds
    return found


def _iterate_terms(hits: int, total: int, odds: float, term: float) -> Iterator[float]:
    """Yield the probabilities of so many and of more hits, until they are negligible."""
    while hits <= total and term > 1e-18:
        yield term
        term *= (total - hits) / (hits + 1) * odds
        hits += 1


def _binomial_chance(hits: int, total: int, share: float) -> float:
    if share >= 1:
        return float(hits == total)
    log_ways = math.lgamma(total + 1) - math.lgamma(hits + 1) - math.lgamma(total - hits + 1)
    return math.exp(log_ways + hits * math.log(share) + (total - hits) * math.log1p(-share))


def find_smallest(suffices: Callable[[int], bool]) -> int:
    """Return the smallest count that suffices, if every larger one does."""
    most = 1
    while not suffices(most):
        most *= 2
    least = most // 2  # does not suffice
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if suffices(middle) else (middle, most)
    return most


def adjust_p_values(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values: at most 5 % of families without any difference have one of 0.05 or less.

    >>> adjust_p_values([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = largest
    return adjusted


def median_p_value(ranges: Sequence[tuple[float, float]]) -> float:
    """Return the p-value of the sign test that the median is zero; `median_interval` inverts it.

    It is at most alpha exactly where that interval excludes zero: differences of zero, and those whose sign is not
    known, count against the more frequent sign.

    >>> median_p_value([(each, each) for each in (1.0, 2.0, 3.0, 4.0, 5.0, 9.0)])
    0.03125
    """
    alike = max(sum(1 for low, _ in ranges if low > 0), sum(1 for _, high in ranges if high < 0))
    return mcnemar_p_value(len(ranges) - alike, alike) if 2 * alike > len(ranges) else 1.0


def median_interval(ranges: Sequence[tuple[float, float]], alpha: float = 0.05) -> Interval | None:
    """Return an interval of the median with a confidence of at least 1 - alpha; None for too few values.

    It inverts the sign test: it runs between the k-th smallest and the k-th largest value, with the largest k for which
    at most alpha/2 of all samples have fewer than k values on that side of the median. Exact for any distribution. For
    values only known to lie in a range, the lower ends give the lower bound and the upper ends the upper one.

    >>> median_interval([(each, each) for each in (1.0, 2.0, 3.0, 4.0, 5.0, 9.0)])
    Interval(low=1.0, high=9.0)
    >>> median_interval([(1.0, 1.0)] * 5)
    """
    count = len(ranges)
    within, beyond = 0, count // 2 + 1  # how many values may be dropped at each end
    while beyond - within > 1:
        middle = (within + beyond) // 2
        within, beyond = (
            (middle, beyond) if mcnemar_p_value(middle - 1, count - middle + 1) <= alpha else (within, middle)
        )
    if not within:
        return None
    return Interval(sorted(low for low, _ in ranges)[within - 1], sorted(high for _, high in ranges)[count - within])


def ratio_difference_interval(
    rows: Sequence[tuple[int, int, int, int]], confidence: float = CONFIDENCE
) -> Interval | None:
    """Return the interval of a difference of two pooled rates (new minus base); None for fewer than six clusters.

    A row is a cluster: errors and words of the base, then of the new side. The standard error comes from leaving out
    each cluster once, which allows for one that is much longer than the others; the quantile is Student's, of a
    slightly higher confidence. Simulated coverage is 94 % or more from six clusters up.
    """
    count = len(rows)
    base_errors, base_words, new_errors, new_words = (
        (sum(column) for column in zip(*rows, strict=True)) if rows else (0,) * 4
    )
    if count < MIN_CLUSTERS or any(row[1] >= base_words or row[3] >= new_words for row in rows):
        return None
    difference = new_errors / new_words - base_errors / base_words
    without = [
        (new_errors - row[2]) / (new_words - row[3]) - (base_errors - row[0]) / (base_words - row[1]) for row in rows
    ]
    centre = math.fsum(without) / count
    spread = math.fsum((each - centre) ** 2 for each in without) * (count - 1) / count
    half = student_quantile(1 - RATIO_TAIL_FACTOR * (1 - confidence), count - 1) * math.sqrt(spread)
    return Interval(difference - half, difference + half)


def skewed_mean_interval(
    cases: float, mean: float, variance: float, skewness: float, confidence: float = CONFIDENCE
) -> Interval | None:
    """Return the interval of a mean of numbers without known bounds; None for fewer than eight cases or equal values.

    It covers Student's interval and Hall's, which corrects for skewness. Variance and skewness are those of the sample.
    Simulated coverage is 94 % or more from eight cases up, for distributions as skewed as the exponential one.

    >>> skewed_mean_interval(25, 10.0, 4.0, 0.0)
    Interval(low=9.174..., high=10.825...)
    """
    if cases < MIN_CASES_OF_MEAN or not 0 < variance < math.inf:
        return None
    error, quantile = math.sqrt(variance / cases), student_quantile(confidence, math.floor(cases) - 1)
    lean = skewness / math.sqrt(cases)

    def correct(quantile: float) -> float:
        """Return the quantile of the mean's error whose corrected value is this quantile."""
        return quantile if abs(lean) < 1e-6 else 3 / lean * (math.cbrt(1 + lean * (quantile - lean / 6)) - 1)

    return Interval(mean - error * max(quantile, correct(quantile)), mean - error * min(-quantile, correct(-quantile)))


def student_quantile(confidence: float, freedom: int) -> float:
    """Return Student's two-sided quantile, exact up to `MAX_DEGREES_OF_FREEDOM_OF_EXACT_QUANTILE` degrees of freedom.

    >>> round(student_quantile(0.95, 1), 3), round(student_quantile(0.95, 30), 3)
    (12.706, 2.042)
    """
    if freedom <= MAX_DEGREES_OF_FREEDOM_OF_EXACT_QUANTILE:
        angle = _find_crossing(lambda angle: _student_chance(angle, freedom) < confidence, 0.0, math.pi / 2)
        return math.sqrt(freedom) * math.tan(angle)
    z = normal_quantile(confidence)  # Cornish and Fisher's series
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def _student_chance(angle: float, freedom: int) -> float:
    """Return how probably Student's variable lies within ±√freedom·tan(angle), by the finite sum for whole freedom."""
    odd = freedom % 2
    term = math.sin(angle) * (math.cos(angle) if odd else 1.0)
    total = angle if odd else 0.0
    for each in range(2 + odd, freedom + 1, 2):
        total += term
        term *= math.cos(angle) ** 2 * (each - 1) / each
    return total * 2 / math.pi if odd else total


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """Return the value below which that share of sorted values lies; None without values.

    Interpolates linearly between the two nearest ranks (type 7; the default of numpy and most tools): with n values,
    the share p is at rank p·(n - 1), counted from zero.

    >>> percentile([1.0, 2.0, 4.0, 8.0], 0.5)
    3.0
    """
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    below = min(int(place), len(ordered) - 1)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def bound_percentile(ordered: Sequence[float], units: float, share: float) -> float | None:
    """Return the one-sided upper bound of a percentile at 95 % confidence; None for too few independent units.

    >>> bound_percentile(range(100), 100, 0.95), bound_percentile(range(58), 58, 0.95)
    (98, None)
    """
    rank = percentile_bound_rank(len(ordered), units, share)
    return None if rank is None else ordered[rank]


def percentile_bound_rank(count: int, units: float, share: float, confidence: float = CONFIDENCE) -> int | None:
    """Return the rank, from 0, of the sorted value that is a one-sided upper bound of a percentile; None if too few.

    It is an order statistic, so the bound holds for any distribution: p95 needs 59 independent values, p99 299. Values
    of one case depend on each other, so `units` is the number of cases; the rank is then that of as many values.

    >>> percentile_bound_rank(59, 59, 0.95), percentile_bound_rank(58, 58, 0.95), percentile_bound_rank(400, 400, 0.99)
    (58, None, 399)
    """
    whole = min(count, math.floor(units + 1e-9))
    if whole < 1:
        return None
    beyond, above = 1 - share, 0.0
    for dropped in range(whole):  # how many of the largest values may lie above the bound
        above += _binomial_chance(dropped, whole, beyond)
        if above > 1 - confidence:
            return None if not dropped else min(count, math.ceil((whole - dropped + 1) / whole * count)) - 1
    return 0
