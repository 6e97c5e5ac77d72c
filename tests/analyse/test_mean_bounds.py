"""Intervals of means over cases, against scipy, statsmodels and integrals, and with their exact coverage."""

import math
import random
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad  # type: ignore[import-untyped]
from scipy.stats import beta, binom  # type: ignore[import-untyped]
from statsmodels.stats.proportion import proportion_confint  # type: ignore[import-untyped]

from pramana.analyse.intervals import Interval, align_with_test, mcnemar_p_value, sign_flip_p_value
from pramana.analyse.mean_bounds import (
    MAX_DISTINCT_VALUES,
    beta_tail,
    case_mean_interval,
    cases_to_exclude_loss,
    rate_interval,
    rate_lower_bound,
)


def difference_interval(lost: int, gained: int, cases: int, alpha: float = 0.05) -> Interval:
    differences = [-1.0] * lost + [1.0] * gained + [0.0] * (cases - lost - gained)
    return case_mean_interval(differences, -1.0, 1.0, confidence=1 - alpha)


# ── Proportions ──


@pytest.mark.parametrize(("first", "second"), [(1, 1), (0.5, 3), (2.5, 40), (30, 1), (700, 300), (200_000, 50_000)])
def test_the_beta_tail_matches_scipy(first: float, second: float) -> None:
    centre = first / (first + second)
    for limit in (0.0, 1e-9, 0.01, centre / 2, centre, (1 + centre) / 2, 0.99, 1.0):
        assert beta_tail(limit, first, second) == pytest.approx(beta.sf(limit, first, second), rel=1e-7, abs=1e-13)


@pytest.mark.parametrize("total", [1, 2, 10, 75, 1000, 100_000])
def test_the_interval_of_a_rate_matches_statsmodels(total: int) -> None:
    for passed in {*range(0, total + 1, max(1, total // 20)), 1, total - 1, total}:
        found = rate_interval(passed, total)
        expected = proportion_confint(passed, total, 0.05, "beta")
        assert [found.low, found.high] == pytest.approx(expected, abs=1e-9)
        one_sided = proportion_confint(passed, total, 0.1, "beta")[0]
        assert rate_lower_bound(passed, total, 0.95) == pytest.approx(one_sided, abs=1e-9)


def test_the_interval_of_a_rate_is_closed_at_0_and_1_and_takes_fractions() -> None:
    assert rate_interval(0, 0) == rate_interval(0, -1) == Interval(0.0, 1.0)
    assert rate_interval(0, 10).low == 0.0
    assert rate_interval(10, 10).high == 1.0
    found = rate_interval(37.5, 75)
    assert found.low == pytest.approx(beta.ppf(0.025, 37.5, 38.5))
    assert found.low == pytest.approx(1 - found.high)


def _lowest_coverage(intervals: Sequence[Interval]) -> float:
    """Return the coverage of a rate's intervals at the worst of all proportions: it falls only where one ends."""
    total = len(intervals) - 1
    ends = np.array([end for each in intervals for end in (each.low, each.high)])
    rates = np.clip(np.concatenate([ends - 1e-9, ends + 1e-9]), 0, 1)
    counts = np.arange(total + 1)
    low, high = np.array([each.low for each in intervals]), np.array([each.high for each in intervals])
    covered = (low <= rates[:, None]) & (rates[:, None] <= high)
    return float((binom.pmf(counts, total, rates[:, None]) * covered).sum(axis=1).min())


@pytest.mark.parametrize("total", [5, 6, 10, 25, 75, 300])
def test_the_interval_of_a_rate_covers_every_proportion(total: int) -> None:
    assert _lowest_coverage([rate_interval(passed, total) for passed in range(total + 1)]) >= 0.95


# ── Differences ──


def _worlds(cases: int) -> Iterator[tuple[float, float]]:
    """Yield probabilities of a loss and a gain, rare flips included."""
    for flipping in (0.3 / cases, 1 / cases, 2 / cases, 4 / cases, 0.1, 0.3, 0.6, 0.9, 1.0):
        for lean in (-1, -0.97, -0.8, -0.5, -0.2, 0):
            yield flipping * (1 - lean) / 2, flipping * (1 + lean) / 2


@pytest.mark.parametrize("cases", [6, 10, 25])
def test_the_interval_of_a_difference_covers_the_truth_in_every_world(cases: int) -> None:
    """No simulation: every possible table with its probability. The interval is the one that is printed."""

    @cache
    def interval(lost: int, gained: int) -> Interval:
        significant = mcnemar_p_value(lost, gained) <= 0.05
        return align_with_test(difference_interval(lost, gained, cases), gained - lost, significant=significant)

    for loss, gain in _worlds(cases):
        covered = 0.0
        for lost in range(cases + 1):
            for gained in range(cases + 1 - lost):
                found = interval(lost, gained)
                if found.low - 1e-9 <= gain - loss <= found.high + 1e-9:
                    rest = cases - lost - gained
                    ways = math.comb(cases, lost) * math.comb(cases - lost, gained)
                    covered += ways * loss**lost * gain**gained * max(0.0, 1 - loss - gain) ** rest
        assert covered >= 0.95


@pytest.mark.parametrize("alpha", [0.1, 0.05, 0.01])
def test_the_interval_of_a_difference_excludes_zero_where_the_exact_test_rejects(alpha: float) -> None:
    rejected = 0
    for cases in (8, 14, 20):
        for lost in range(cases + 1):
            for gained in range(min(lost, cases - lost + 1)):
                if mcnemar_p_value(lost, gained) <= alpha:
                    rejected += 1
                    assert difference_interval(lost, gained, cases, alpha).high < 0
    assert rejected > 35


def test_without_flips_the_interval_follows_the_rule_of_three() -> None:
    for cases in (1, 10, 75, 1000):
        edge = 1 - 0.025 ** (1 / cases)
        found = difference_interval(0, 0, cases)
        assert [found.low, found.high] == pytest.approx([-edge, edge])
    assert case_mean_interval([], -1.0, 1.0) == Interval(-1.0, 1.0)
    assert difference_interval(5, 0, 5).low == -1.0


# ── Values between the bounds ──


def _upper_end_by_quadrature(counts: tuple[int, int, int], middle: float) -> float:
    """Return the upper end for values of 0, `middle` and 1 by conditioning on the weight of the ones."""
    zeros, middles, ones = counts[0], counts[1], counts[2] + 1

    def chance_of_at_most(limit: float) -> float:
        def density_at(weight: float) -> float:
            share = (limit - weight) / (middle * (1 - weight))
            return float(beta.pdf(weight, ones, zeros + middles) * beta.cdf(share, middles, zeros))

        return float(quad(density_at, 0, limit, limit=400, points=[ones / (sum(counts) + 1)])[0])

    low, high = 0.0, 1.0
    for _ in range(40):
        limit = (low + high) / 2
        low, high = (limit, high) if chance_of_at_most(limit) < 0.975 else (low, limit)
    return low


@pytest.mark.parametrize(
    ("counts", "middle"), [((3, 4, 6), 0.5), ((1, 1, 1), 0.2), ((2, 9, 12), 0.8), ((10, 3, 30), 0.4)]
)
def test_the_interval_of_three_values_matches_a_quadrature(counts: tuple[int, int, int], middle: float) -> None:
    values = [0.0] * counts[0] + [middle] * counts[1] + [1.0] * counts[2]
    found = case_mean_interval(values)
    assert found.high == pytest.approx(_upper_end_by_quadrature(counts, middle), abs=2e-5)
    mirrored = case_mean_interval([1 - each for each in values])
    assert [found.low, found.high] == pytest.approx([1 - mirrored.high, 1 - mirrored.low], abs=2e-5)


def test_the_interval_of_many_values_matches_random_weights() -> None:
    draw = np.random.default_rng(6)
    for cases in (7, 40):
        values = draw.beta(2, 1, cases)
        weights = draw.dirichlet(np.ones(cases + 1), 60_000)
        low, high = (
            np.quantile(weights[:, :-1] @ values, 0.025),
            np.quantile(weights[:, :-1] @ values + weights[:, -1], 0.975),
        )
        found = case_mean_interval(values.tolist())
        assert [found.low, found.high] == pytest.approx([low, high], abs=0.004)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=12), st.sampled_from([0.8, 0.95, 0.99]))
def test_the_interval_contains_its_estimate_and_is_symmetric(values: list[float], confidence: float) -> None:
    found = case_mean_interval(values, -1.0, 1.0, confidence=confidence)
    mirrored = case_mean_interval([-each for each in values], -1.0, 1.0, confidence=confidence)
    assert -1 <= found.low <= sum(values) / len(values) + 1e-6
    assert sum(values) / len(values) - 1e-6 <= found.high <= 1
    assert [found.low, found.high] == pytest.approx([-mirrored.high, -mirrored.low], abs=1e-4)


def test_repeats_that_agree_leave_the_interval_and_repeats_that_vary_narrow_it() -> None:
    once = case_mean_interval([1.0] * 20 + [0.0] * 5)
    assert once == rate_interval(20, 25)
    varied = case_mean_interval([0.6] * 10 + [1.0] * 11 + [0.6] * 4)
    assert varied.high - varied.low < 0.8 * (once.high - once.low)


def test_more_distinct_values_than_are_kept_apart_change_the_interval_little() -> None:
    values = [number / 5000 for number in range(0, 5001, 7)]
    assert len(values) > MAX_DISTINCT_VALUES
    found, mean = case_mean_interval(values), sum(values) / len(values)
    error = 1.96 * float(np.std(values)) / math.sqrt(len(values))
    assert [found.low, found.high] == pytest.approx([mean - error, mean + error], abs=0.004)


# ── Several replies a case ──


@pytest.mark.parametrize(
    ("rate", "agreement"),
    [(0.9, "all agree"), (0.9, "none agree"), (0.8, "some agree"), (0.93, "rare cases always fail")],
)
@pytest.mark.parametrize("cases", [6, 25])
def test_the_interval_with_repeats_covers_the_rate_however_the_repeats_agree(
    cases: int, rate: float, agreement: str
) -> None:
    """Intervals that estimate the spread cover 65 % (10 cases) or 69 % (25 cases) in the worst of these worlds."""
    draw, repeats, rounds = np.random.default_rng(8), 20, 250
    covered = 0
    for _ in range(rounds):
        rates = np.full(cases, rate)
        if agreement == "all agree":
            rates = (draw.random(cases) < rate).astype(float)
        elif agreement == "some agree":
            rates = draw.beta(3 * rate, 3 * (1 - rate), cases)
        elif agreement == "rare cases always fail":
            rates = np.where(draw.random(cases) < 0.05, 0.0, rate / 0.95)
        found = case_mean_interval((draw.binomial(repeats, rates) / repeats).tolist())
        covered += found.low <= rate <= found.high
    assert covered / rounds >= 0.94


@pytest.mark.parametrize("repeats", [5, 20])
@pytest.mark.parametrize("cases", [25, 75])
@pytest.mark.parametrize("drop", [0.0, 0.35, 0.8])
def test_the_interval_with_repeats_covers_the_difference_and_its_test_keeps_the_level(
    cases: int, repeats: int, drop: float
) -> None:
    """Logits of the cases are normal, the new model's lower by `drop`; 25 cases of 20 repeats once found 9 % of 0.8."""
    draw, rounds, covered, lost = np.random.default_rng(4), 300, 0, 0
    for _ in range(rounds):
        logits = draw.normal(2.5, 2, cases)
        before, after = 1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(drop - logits))
        whole = [int(each) for each in draw.binomial(repeats, after) - draw.binomial(repeats, before)]
        mean, significant = sum(whole) / cases / repeats, sign_flip_p_value(whole) <= 0.05
        found = case_mean_interval([each / repeats for each in whole], -1.0, 1.0)
        found = align_with_test(found, mean, significant=significant)
        covered += found.low <= float(np.mean(after - before)) <= found.high
        lost += significant and mean < 0
    assert covered / rounds >= 0.94
    if not drop:
        assert lost / rounds <= 0.04
    if (drop, repeats) == (0.8, 20):
        assert lost / rounds >= 0.9


# ── How many cases ──


def _count_tables(cases: int, loss: float, gain: float) -> Iterator[tuple[int, int, float]]:
    """Yield every table of losses and gains with its chance, except for those of less than 1e-9."""
    for lost in range(cases + 1):
        for gained in range(cases + 1 - lost):
            rest = cases - lost - gained
            counts = ((lost, loss), (gained, gain), (rest, 1 - loss - gain))
            if any(count and not share for count, share in counts):
                continue
            logs = sum(count * math.log(share) - math.lgamma(count + 1) for count, share in counts if count)
            if (log_chance := math.lgamma(cases + 1) + logs) > -20:
                yield lost, gained, math.exp(log_chance)


@pytest.mark.parametrize(("loss", "flipping"), [(0.05, 0.0), (0.05, 0.02), (0.05, 0.05), (0.05, 0.2), (0.1, 0.1)])
def test_so_many_cases_exclude_a_loss_in_four_of_five_runs_of_an_unchanged_model(loss: float, flipping: float) -> None:
    flips = round(1000 * flipping)
    needed = cases_to_exclude_loss(loss, [1.0] * flips + [0.0] * (1000 - flips))
    power = sum(
        chance
        for lost, gained, chance in _count_tables(needed, flipping / 2, flipping / 2)
        if chance > 1e-6 and difference_interval(lost, gained, needed).low > -loss
    )
    assert power >= 0.78


@pytest.mark.parametrize("flipping", [0.01, 0.1])
def test_so_many_cases_with_repeats_exclude_a_loss(flipping: float) -> None:
    seen = [0.5] * round(400 * flipping) + [0.0] * round(100 - 400 * flipping)
    chance, needed, rounds = random.Random(8), cases_to_exclude_loss(0.05, seen), 300
    excluded = 0
    for _ in range(rounds):
        differences = [chance.choice((-0.5, 0.5)) * (chance.random() < 4 * flipping) for _ in range(needed)]
        excluded += case_mean_interval(differences, -1.0, 1.0).low > -0.05
    assert excluded / rounds >= 0.75
