"""What a comparison of two runs can detect: assumptions on a model in, cases, repeats and power out. Nothing is sent.

The assumed model passes each case with a probability of its own, whose logits are normal over the cases; replies to a
case are independent. A change lowers the logits of all cases alike. How far the cases' logits spread decides how many
cases flip between two runs of the unchanged model, so that share is what a user states or measures: no flips mean that
a case always passes or always fails, and repeats then add nothing. A day adds a normal effect to all logits.
"""

import math
from collections.abc import Callable
from functools import cache, lru_cache
from operator import mul
from statistics import NormalDist

from msgspec import Struct

from pramana.analyse.intervals import MIN_CLUSTERS, cases_needed, find_smallest, mcnemar_power, sign_flip_power
from pramana.analyse.mean_bounds import count_cases_to_exclude_loss

POWER = 0.8
"""How probably a change of the size in question is found."""
DEFAULT_CASE_SPREAD_LOGITS = 2.0
"""Standard deviation of the cases' logits where the share that flips is not known: most cases nearly always pass."""
MAX_CASE_SPREAD_LOGITS = 50.0
"""Beyond it, fewer than one case in a hundred flips by chance."""
MAX_CASES = 1_000_000
RELATIVE_TOLERANCE_OF_DETECTABLE_LOSS = 0.001
"""How precisely the smallest detectable loss is found, as a share of it."""
MAX_SUMMED_REPEATS = 30
"""More repeats than these change in hardly any more cases."""
GRID_STEPS_PER_LOGIT = 0.75
_INTEGRATED_STANDARD_DEVIATIONS = 6.0
"""How many standard deviations of the cases an integral covers to either side."""


def logistic(logit: float) -> float:
    """Return the probability of a logit.

    >>> logistic(0.0), logistic(-1000.0)
    (0.5, 0.0)
    """
    return 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0


@cache
def _make_normal_grid(steps_per_deviation: int) -> tuple[list[float], list[float]]:
    """Return points and weights of the integral over a normal distribution: the trapezoidal rule, accurate to 1e-6."""
    steps = max(4, steps_per_deviation)
    nodes = [
        step / steps
        for step in range(
            -round(_INTEGRATED_STANDARD_DEVIATIONS * steps), round(_INTEGRATED_STANDARD_DEVIATIONS * steps) + 1
        )
    ]
    return nodes, [NormalDist().pdf(node) / steps for node in nodes]


class AssumedModel(Struct, frozen=True):
    """How the pass rates of cases and days vary: all in logits."""

    mean_logit: float
    case_spread: float
    """Standard deviation between cases."""
    day_spread: float = 0.0
    """Standard deviation between days on which nothing changed."""

    def case_mean(self, function: Callable[[float], float]) -> float:
        """Return the mean over the cases of a function of a case's logit."""
        nodes, weights = _make_normal_grid(math.ceil(GRID_STEPS_PER_LOGIT * self.case_spread))
        return math.fsum(
            weight * function(self.mean_logit + self.case_spread * node)
            for node, weight in zip(nodes, weights, strict=True)
        )

    def case_means(self, function: Callable[[float], tuple[float, ...]]) -> list[float]:
        """Return the means over the cases of several values of a case's logit."""
        nodes, weights = _make_normal_grid(math.ceil(GRID_STEPS_PER_LOGIT * self.case_spread))
        values = [function(self.mean_logit + self.case_spread * node) for node in nodes]
        return [math.fsum(map(mul, weights, each)) for each in zip(*values, strict=True)]

    def pass_rate(self, shift: float = 0.0) -> float:
        """Return the pass rate after all logits fall by `shift`."""
        return self.case_mean(lambda logit: logistic(logit - shift))

    def flip_share(self) -> float:
        """Return the share of cases whose verdict differs between two runs of the unchanged model on one day."""
        return self.case_mean(lambda logit: 2 * logistic(logit) * (1 - logistic(logit)))

    def shift_for_loss(self, loss: float) -> float:
        """Return by how much all logits fall when the pass rate falls by `loss`, a share below the pass rate."""
        before = self.pass_rate()
        most = 1.0
        while before - self.pass_rate(most) < loss and most < 2**10:
            most *= 2
        return find_crossing(lambda shift: before - self.pass_rate(shift) < loss, 0.0, most, steps=26)

    def day_difference(self) -> float:
        """Return the standard deviation of the difference of the pass rates of two days without a change."""
        if not self.day_spread:
            return 0.0
        # A day's effect of one standard deviation to either side, which covers the slope where most days lie.
        low, high = (self.pass_rate(sign * self.day_spread) for sign in (1.0, -1.0))
        return math.sqrt(2) * (high - low) / 2


def find_crossing(before: Callable[[float], bool], low: float, high: float, *, steps: int = 34) -> float:
    """Return where a condition that holds from `low` on stops holding, by halving the range so many times."""
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if before(middle) else (low, middle)
    return (low + high) / 2


def fit_model(pass_rate: float, flip_share: float | None = None, day_spread: float = 0.0) -> AssumedModel:
    """Return the model with this pass rate, of which this share of cases flips by chance; None: not known.

    A share that no spread of cases explains is bounded: at most all cases have one probability, and at least their
    logits spread by `MAX_CASE_SPREAD_LOGITS`.

    >>> model = fit_model(0.9, 0.1)
    >>> round(model.pass_rate(), 4), round(model.flip_share(), 4)
    (0.9, 0.1)
    """

    def with_spread(spread: float) -> AssumedModel:
        reach = 6 * spread + 30
        mean = find_crossing(lambda mean: AssumedModel(mean, spread).pass_rate() < pass_rate, -reach, reach)
        return AssumedModel(mean, spread, day_spread)

    if flip_share is None:
        return with_spread(DEFAULT_CASE_SPREAD_LOGITS)
    if flip_share >= 2 * pass_rate * (1 - pass_rate):
        return with_spread(0.0)
    if with_spread(MAX_CASE_SPREAD_LOGITS).flip_share() >= flip_share:
        return with_spread(MAX_CASE_SPREAD_LOGITS)
    low, high = 0.0, MAX_CASE_SPREAD_LOGITS
    for _ in range(24):
        middle = (low + high) / 2
        low, high = (middle, high) if with_spread(middle).flip_share() > flip_share else (low, middle)
    return with_spread((low + high) / 2)


def find_day_spread(pass_rate: float, flip_share: float, deviation: float) -> float:
    """Return the day spread, in logits, with which the pass rates of days have this standard deviation; at most 5.

    >>> round(find_day_spread(0.9, 0.13, fit_model(0.9, 0.13, 0.5).day_difference() / math.sqrt(2)), 3)
    0.5
    """
    if deviation <= 0:
        return 0.0
    model = fit_model(pass_rate, flip_share)

    def is_less(spread: float) -> bool:
        found = AssumedModel(model.mean_logit, model.case_spread, spread)
        return found.day_difference() / math.sqrt(2) < deviation

    return find_crossing(is_less, 0.0, 5.0)


class CaseDifference(Struct, frozen=True):
    """How the passes of one case fall between two runs with a change between them, over the cases of a suite."""

    loss: float
    """The share of the pass rate that is lost."""
    flip_share: float
    """The share of cases that flip in either direction, with one reply each."""
    repeats: int
    changed_share: float
    """The share of cases whose number of passes differs."""
    moments: tuple[float, float, float, float]
    """The means of the lost passes of a case, over all its repeats, and of their second, third and fourth powers."""

    def power(self, cases: int, alpha: float = 0.05) -> float:
        """Return how probably the test of a comparison finds the loss with that many cases.

        With one repeat it is McNemar's test. Otherwise it is the sign-flip test over cases, whose sums are taken as
        normal; and at least six cases have to change, since fewer never reject. In simulations, the power of the
        shipped test was from equal to 5 points above, the most for large losses in few cases.
        """
        if self.repeats == 1:
            return mcnemar_power(cases, self.loss, self.flip_share, alpha=alpha)
        if cases < MIN_CLUSTERS or self.moments[1] <= 0:
            return 0.0
        by_sum = sign_flip_power(cases, self.moments, alpha=alpha)
        return min(by_sum, chance_of_at_least(MIN_CLUSTERS, cases, self.changed_share))


def measure_case_difference(model: AssumedModel, loss: float, repeats: int) -> CaseDifference:
    """Return how the cases of two runs differ if the model's pass rate falls by `loss` between them."""
    shift = model.shift_for_loss(loss)

    summed = min(repeats, MAX_SUMMED_REPEATS)

    def describe(logit: float) -> tuple[float, ...]:
        before, after = logistic(logit), logistic(logit - shift)
        flips = before * (1 - after) + after * (1 - before)
        changed = flips if repeats == 1 else 1 - _chance_of_equal_counts(before, after, summed)
        return flips, changed, *_lost_passes_moments(before, after, repeats)

    flip_share, changed_share, first, second, third, fourth = model.case_means(describe)
    return CaseDifference(loss, flip_share, repeats, changed_share, (first, second, third, fourth))


def chance_of_at_least(count: int, total: int, share: float) -> float:
    """Return the probability of at least `count` of `total` cases.

    >>> round(chance_of_at_least(6, 78, 0.1), 3)
    0.804
    """
    if share >= 1:
        return float(total >= count)
    term = (1 - share) ** total
    fewer = term
    for each in range(count - 1):
        term *= (total - each) / (each + 1) * share / (1 - share)
        fewer += term
    return max(0.0, 1 - fewer)


def _chance_of_equal_counts(before: float, after: float, repeats: int) -> float:
    """Return the probability that two binomial counts are equal."""
    before, after = (min(1 - 1e-15, max(1e-15, rate)) for rate in (before, after))
    term = ((1 - before) * (1 - after)) ** repeats
    if term < 1e-250:  # counted from the other end
        before, after = 1 - before, 1 - after
        term = ((1 - before) * (1 - after)) ** repeats
    same, odds = term, before / (1 - before) * after / (1 - after)
    for each in range(repeats):
        term *= ((repeats - each) / (each + 1)) ** 2 * odds
        same += term
    return same


def _lost_passes_moments(before: float, after: float, repeats: int) -> tuple[float, float, float, float]:
    """Return the first four moments of the difference of two binomial counts, from their cumulants."""
    variances = before * (1 - before), after * (1 - after)
    first = repeats * (before - after)
    second = repeats * (variances[0] + variances[1])
    third = repeats * (variances[0] * (1 - 2 * before) - variances[1] * (1 - 2 * after))
    fourth = repeats * math.fsum(each * (1 - 6 * each) for each in variances)
    return (
        first,
        second + first**2,
        third + 3 * second * first + first**3,
        fourth + 4 * third * first + 3 * second**2 + 6 * second * first**2 + first**4,
    )


def cases_to_detect(model: AssumedModel, loss: float, repeats: int = 1) -> int | None:
    """Return how many cases find a loss with a probability of 80 %.

    None: more than `MAX_CASES`, or the loss is larger than the pass rate.

    >>> cases_to_detect(fit_model(0.9), 0.05), cases_to_detect(fit_model(0.9), 0.05, repeats=5)
    (518, 109)
    """
    if loss > model.pass_rate():
        return None
    difference = measure_case_difference(model, loss, repeats)
    if repeats == 1:
        found = cases_needed(loss, difference.flip_share, power=POWER)
        return found if found <= MAX_CASES else None
    if difference.power(MAX_CASES) < POWER:
        return None
    return find_smallest(lambda cases: difference.power(cases) >= POWER)


@lru_cache(maxsize=4096)
def detectable_loss(model: AssumedModel, cases: int, repeats: int = 1) -> float | None:
    """Return the smallest loss that so many cases find with a probability of 80 %; None: not even a total loss.

    It is found to a thousandth of itself.

    >>> round(detectable_loss(fit_model(0.9), 518) or 0, 3)
    0.05
    >>> round(detectable_loss(fit_model(0.9), 1_000_000) or 0, 5)
    0.00101
    """
    low, high = 0.0, model.pass_rate() * 0.999

    def finds(loss: float) -> bool:
        return measure_case_difference(model, loss, repeats).power(cases) >= POWER

    if not finds(high):
        return None
    while high - low > RELATIVE_TOLERANCE_OF_DETECTABLE_LOSS * high:
        middle = (low + high) / 2
        low, high = (low, middle) if finds(middle) else (middle, high)
    return high


def cases_to_exclude(model: AssumedModel, margin: float, repeats: int = 1) -> int:
    """Return how many cases exclude a loss of the margin with a probability of 80 % if nothing changed."""
    unchanged = measure_case_difference(model, 0.0, repeats)
    changed, mean_square = unchanged.changed_share, unchanged.flip_share / repeats
    size = min(1.0, math.sqrt(mean_square / changed)) if changed else 0.0
    return count_cases_to_exclude_loss(margin, {size: changed, 0.0: 1 - changed}, power=POWER)
