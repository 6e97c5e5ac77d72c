"""Statistics: counts in; intervals, p-values and percentiles out. Standard library only, no I/O, no randomness.

Three rules run through this module. *Pairs are compared, not totals*: two runs have the same cases, and cases differ
far more than models do. *The case is the unit*: five replies to one case are not five cases; at temperature 0 they are
nearly one, so repeats shrink the noise within a case and never count as more cases. *Tests are exact* wherever that is
affordable; where an approximation is used, its limit is named.
"""

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

from msgspec import Struct

CONFIDENCE = 0.95
EXACT_DISCORDANT = 1_000
"""McNemar's test is summed in integers up to this many flips; beyond, in floating point, accurate to 1e-9."""
EXACT_WORK = 2_000_000_000
"""Bytes that counting all assignments of signs may touch (about a second); beyond, the normal approximation is used."""
MIN_CLUSTERS = 6
"""With fewer clusters, no exact test at 5 % could tell two runs apart, so an approximation should not either."""


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


def wilson_interval(passed: float, total: float, z: float = Z95) -> Interval:
    """Return Wilson's interval of a proportion; without observations, 0 to 1.

    Counts may be fractions: for `k` replies to each of `n` cases, pass the share times `n`, out of `n`.

    >>> wilson_interval(9, 10)
    Interval(low=0.5958..., high=0.9821...)
    """
    if total <= 0:
        return Interval(0.0, 1.0)
    share, spread = passed / total, z * z / total
    centre = (share + spread / 2) / (1 + spread)
    half = z / (1 + spread) * math.sqrt(share * (1 - share) / total + spread / (4 * total))
    return Interval(
        0.0 if passed <= 0 else max(0.0, centre - half),
        1.0 if passed >= total else min(1.0, centre + half),
    )


def exact_lower_bound(passed: int, total: int, confidence: float) -> float:
    """Return the exact one-sided lower bound of a proportion (Clopper and Pearson's).

    Its coverage is at least the stated confidence for every proportion; Wilson's falls short for proportions near one.

    >>> round(exact_lower_bound(20, 20, 0.95), 4), exact_lower_bound(0, 5, 0.95)
    (0.8609, 0.0)
    """
    if passed <= 0:
        return 0.0

    def chance_of_as_many(share: float) -> float:
        """Return the probability of at least `passed` if this were the proportion."""
        if share <= 0 or share >= 1:
            return float(share >= 1)
        odds, term = share / (1 - share), 0.0
        log_term = (
            math.lgamma(total + 1)
            - math.lgamma(passed + 1)
            - math.lgamma(total - passed + 1)
            + passed * math.log(share)
            + (total - passed) * math.log1p(-share)
        )
        term = tail = math.exp(log_term)
        for each in range(passed, total):
            term *= (total - each) / (each + 1) * odds
            tail += term
        return tail

    return _find_crossing(lambda share: chance_of_as_many(share) <= 1 - confidence, 0.0, passed / total)


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
    if flips <= EXACT_DISCORDANT:
        return min(1.0, 2 * sum(math.comb(flips, each) for each in range(fewer + 1)) / (1 << flips))
    log_term = math.lgamma(flips + 1) - math.lgamma(fewer + 1) - math.lgamma(flips - fewer + 1)
    relative = term = 1.0
    for each in range(fewer, 0, -1):  # outwards from the largest term, until the rest is negligible
        term *= each / (flips - each + 1)
        relative += term
        if term < relative * 1e-17:
            break
    return min(1.0, 2 * math.exp(log_term - flips * math.log(2) + math.log(relative)))


def paired_difference_interval(lost: int, gained: int, pairs: int, z: float = Z95) -> Interval:
    """Return Tango's score interval of the difference (new minus base) of two paired proportions.

    Chosen over Newcombe's hybrid because runs of one suite have few flips or none. Newcombe's width depends on the
    correlation of the two outcomes, and shrinks towards zero if all pairs agree; Tango's is then z²/(n + z²), close to
    the rule of three. It also inverts McNemar's own score test: wherever `mcnemar_p_value` is at most 0.05, the 95 %
    interval excludes zero, so interval and verdict cannot contradict each other (a test covers all tables).
    """
    if pairs <= 0:
        return Interval(-1.0, 1.0)

    def distance(difference: float) -> float:
        """Return how many standard errors the data lie above a hypothetical difference."""
        above = gained - lost - pairs * difference
        linear = (2 * pairs + lost - gained) * difference - lost - gained
        constant = -lost * difference * (1 - difference)
        # The maximum-likelihood probability of a loss under this difference.
        chance = (math.sqrt(max(0.0, linear * linear - 8 * pairs * constant)) - linear) / (4 * pairs)
        variance = pairs * (2 * chance + difference * (1 - difference))
        if variance <= 0:
            return 0.0 if above == 0 else math.copysign(math.inf, above)
        return above / math.sqrt(variance)

    estimate = (gained - lost) / pairs
    return Interval(
        -1.0 if estimate <= -1 else _find_crossing(lambda at: distance(at) >= z, -1.0, estimate),
        1.0 if estimate >= 1 else _find_crossing(lambda at: distance(at) > -z, estimate, 1.0),
    )


def _find_crossing(before: Callable[[float], bool], low: float, high: float) -> float:
    """Return where a condition that holds from `low` on stops holding."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if before(middle) else (low, middle)
    return (low + high) / 2


def clustered_difference_interval(differences: Sequence[float], z: float = Z95) -> Interval:
    """Return the interval of a mean of per-case differences, each from -1 to 1.

    The standard error is that of cases (a case's repeats are one observation), after adding two pseudo-cases, one at +1
    and one at -1. With one repeat this is Bonett and Price's interval; the pseudo-cases keep a handful of cases without
    any difference from proving that there is none. Approximate: simulated coverage is 95 % or more from 10 cases up,
    whether a case's repeats agree or not, and close to 100 % where differences are rare or small.
    """
    if not differences:
        return Interval(-1.0, 1.0)
    cases = len(differences) + 2
    mean = math.fsum(differences) / cases
    square = (math.fsum(each * each for each in differences) + 2) / cases
    half = z * math.sqrt(max(0.0, square - mean * mean) / cases)
    return Interval(max(-1.0, mean - half), min(1.0, mean + half))


def sign_flip_p_value(differences: Sequence[int]) -> float:
    """Return the two-sided p-value of the sign-flip test, a paired permutation test.

    Differences are integers: a case's passes in the new run minus those in the base, over equally many repeats. If the
    runs do not differ, swapping the two sides of a case (all its repeats at once, so they may be dependent) changes
    nothing, and every assignment of signs is equally likely; p is the share of assignments whose sum is at least as far
    from zero. All are counted exactly within `EXACT_WORK`: 1,500 changed cases of five repeats. Beyond, the sum is
    treated as normal with a continuity correction, accurate to 0.001 there. With one repeat this is McNemar's test.

    >>> sign_flip_p_value([-3, -2, -3, -1, -2, -3])
    0.03125
    """
    sizes = [abs(each) for each in differences if each]
    seen, most = abs(sum(differences)), sum(sizes)
    if not seen:
        return 1.0
    slot = len(sizes) // 8 + 1  # bytes that hold any count up to 2 to the number of cases
    if len(sizes) * (most + 1) * slot > EXACT_WORK:
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

    Uses Connor's formula for McNemar's test. The share that flips is at least the difference itself.

    >>> cases_needed(0.05, 0.2)
    626
    """
    flipping = min(1.0, max(flipping, abs(difference)))
    by_chance, by_effect = normal_quantile(1 - alpha), NormalDist().inv_cdf(power)
    spread = by_chance * math.sqrt(flipping) + by_effect * math.sqrt(max(0.0, flipping - difference * difference))
    return math.ceil((spread / difference) ** 2)


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


def ratio_difference_interval(rows: Sequence[tuple[int, int, int, int]], alpha: float = 0.05) -> Interval | None:
    """Return the interval of a difference of two pooled rates (new minus base); None for fewer than six clusters.

    A row is a cluster: errors and words of the base, then of the new side. The standard error is the linearised one of
    a ratio of sums, with clusters as the units; the quantile is Student's. Approximate: too narrow for few, unequal
    clusters.
    """
    count = len(rows)
    words = sum(row[1] for row in rows), sum(row[3] for row in rows)
    if count < MIN_CLUSTERS or not all(words):
        return None
    before, now = sum(row[0] for row in rows) / words[0], sum(row[2] for row in rows) / words[1]
    spread = math.fsum(
        ((row[2] - now * row[3]) / words[1] - (row[0] - before * row[1]) / words[0]) ** 2 for row in rows
    )
    half = student_quantile(1 - alpha, count - 1) * math.sqrt(spread * count / (count - 1))
    return Interval(now - before - half, now - before + half)


def student_quantile(confidence: float, freedom: int) -> float:
    """Return Student's two-sided quantile by the Cornish-Fisher series, to 0.003 from five degrees of freedom on.

    >>> round(student_quantile(0.95, 5), 2), round(student_quantile(0.95, 30), 3)
    (2.57, 2.042)
    """
    z = normal_quantile(confidence)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


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
