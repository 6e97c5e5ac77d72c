"""Statistics checked against statsmodels, numpy, published examples, enumeration and exact coverage."""

import math
import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom  # type: ignore[import-untyped]
from scipy.stats import t as student_t
from statsmodels.stats.contingency_tables import mcnemar as referee_mcnemar  # type: ignore[import-untyped]
from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

from pramana.analyse import intervals
from pramana.analyse.intervals import (
    MIN_CASES_OF_MEAN,
    Interval,
    adjust_p_values,
    cases_needed,
    mcnemar_p_value,
    mcnemar_power,
    median_interval,
    median_p_value,
    percentile,
    percentile_bound_rank,
    ratio_difference_interval,
    sign_flip_p_value,
    sign_flip_power,
    skewed_mean_interval,
    student_quantile,
)


@pytest.mark.parametrize("lost", range(14))
def test_mcnemar_matches_statsmodels(lost: int) -> None:
    for gained in range(0, 40, 3):
        referee = referee_mcnemar([[5, lost], [gained, 7]], exact=True).pvalue
        assert mcnemar_p_value(lost, gained) == pytest.approx(min(1.0, referee), rel=1e-12)


def test_mcnemar_is_the_share_of_equally_extreme_coin_tosses() -> None:
    for lost, gained in ((5, 1), (7, 2), (3, 3), (10, 0), (0, 1), (0, 0)):
        flips = lost + gained
        tosses = [abs(sum(toss)) for toss in product((-1, 1), repeat=flips)]
        share = Fraction(sum(each >= abs(lost - gained) for each in tosses), len(tosses))
        assert mcnemar_p_value(lost, gained) == float(share)


def test_mcnemar_of_many_flips_matches_integer_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = [(990, 1110), (1001, 1002), (400, 700), (0, 1500), (2500, 2700)]
    quick = [mcnemar_p_value(*table) for table in tables]
    monkeypatch.setattr(intervals, "MAX_FLIPS_SUMMED_IN_INTEGERS", 10_000)
    assert quick == [pytest.approx(mcnemar_p_value(*table), rel=1e-9) for table in tables]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(-5, 5), max_size=11))
def test_the_sign_flip_test_is_exact(differences: list[int]) -> None:
    seen = abs(sum(differences))
    sums = [
        abs(sum(sign * each for sign, each in zip(signs, differences, strict=True)))
        for signs in product((-1, 1), repeat=len(differences))
    ]
    assert sign_flip_p_value(differences) == float(Fraction(sum(each >= seen for each in sums), len(sums)))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 40), st.integers(0, 40))
def test_the_sign_flip_test_of_single_answers_is_mcnemars_test(lost: int, gained: int) -> None:
    assert sign_flip_p_value([-1] * lost + [1] * gained + [0] * 5) == pytest.approx(
        mcnemar_p_value(lost, gained), rel=1e-12
    )


def test_beyond_the_exact_limit_the_normal_approximation_is_close(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)
    samples = [[chance.choice((-3, -2, -1, 1, 2, 3)) for _ in range(300)] for _ in range(5)]
    samples += [[each - 1 for each in sample] for sample in samples]
    exact = [sign_flip_p_value(sample) for sample in samples]
    monkeypatch.setattr(intervals, "MAX_BYTES_FOR_COUNTING_SIGNS", 0)
    assert exact == [pytest.approx(sign_flip_p_value(sample), abs=1e-3) for sample in samples]


def test_the_sign_flip_test_keeps_its_level() -> None:
    """No difference, and repeats that agree with each other: a test that took repeats for cases would fail here."""
    chance, rounds, rejected = random.Random(3), 800, 0
    for _ in range(rounds):
        differences = []
        for _ in range(20):
            share = chance.uniform(0, 1)
            before, after = (5 * (chance.uniform(0, 1) < share) for _ in range(2))
            differences.append(after - before)
        rejected += sign_flip_p_value(differences) <= 0.05
    assert rejected / rounds <= 0.05


def test_required_cases_match_the_planning_tables() -> None:
    """The tables are of the approximate test (706 and 1,891); the exact test needs a few more."""
    strict = 0.01 / 30
    assert cases_needed(0.1, 0.3, alpha=strict, power=0.9) == 711
    assert cases_needed(0.05, 0.2, alpha=strict, power=0.9) == 1910
    assert mcnemar_power(1910, 0.05, 0.2, alpha=strict) >= 0.9 > mcnemar_power(1909, 0.05, 0.2, alpha=strict)
    assert cases_needed(0.05, 0.0) == cases_needed(0.05, 0.05) > 100


def _count_tables(pairs: int, loss: float, gain: float) -> Iterator[tuple[int, int, float]]:
    """Yield every table of losses and gains with its chance, except for those of less than 1e-9."""
    for lost in range(pairs + 1):
        for gained in range(pairs + 1 - lost):
            rest = pairs - lost - gained
            counts = ((lost, loss), (gained, gain), (rest, 1 - loss - gain))
            if any(count and not share for count, share in counts):
                continue
            logs = sum(count * math.log(share) - math.lgamma(count + 1) for count, share in counts if count)
            if (log_chance := math.lgamma(pairs + 1) + logs) > -20:
                yield lost, gained, math.exp(log_chance)


@pytest.mark.parametrize(("difference", "flipping"), [(0.05, 0.05), (0.05, 0.1), (0.05, 0.2), (0.1, 0.2)])
def test_required_cases_have_the_stated_power(difference: float, flipping: float) -> None:
    needed, (loss, gain) = (
        cases_needed(difference, flipping),
        ((flipping + difference) / 2, (flipping - difference) / 2),
    )
    power = sum(
        chance
        for lost, gained, chance in _count_tables(needed, loss, gain)
        if lost > gained and mcnemar_p_value(lost, gained) <= 0.05
    )
    assert 0.8 <= power < 0.81
    assert power == pytest.approx(mcnemar_power(needed, difference, flipping), abs=1e-6)


def enumerate_mcnemar_power(cases: int, difference: float, flipping: float, alpha: float = 0.05) -> float:
    """Return the power by scipy's binomial distribution: over all counts of flips, and all of the rarer direction."""
    flips = np.arange(binom.ppf(1e-14, cases, flipping), binom.isf(1e-14, cases, flipping) + 1)
    allowed = binom.ppf(alpha / 2, flips, 0.5)
    allowed = np.where(binom.cdf(allowed, flips, 0.5) <= alpha / 2, allowed, allowed - 1)
    rejected = binom.cdf(allowed, flips, (1 - difference / flipping) / 2)
    return float((binom.pmf(flips, cases, flipping) * np.where(allowed >= 0, rejected, 0)).sum())


@pytest.mark.parametrize("alpha", [0.05, 0.01 / 30])
@pytest.mark.parametrize(
    ("cases", "difference", "flipping"),
    [
        *((1, 0.5, 1.0), (6, 0.9, 0.95), (10, 0.3, 0.3), (100, 0.1, 0.2), (1000, 0.05, 0.9), (1001, 0.05, 0.9)),
        *((10_000, 0.01, 0.099), (100_000, 0.001, 0.009), (1_000_000, 0.0001, 0.0009), (1_000_000, 2e-5, 2.1e-5)),
    ],
)
def test_the_power_of_mcnemars_test_matches_enumeration(
    cases: int, difference: float, flipping: float, alpha: float
) -> None:
    expected = enumerate_mcnemar_power(cases, difference, flipping, alpha)
    assert mcnemar_power(cases, difference, flipping, alpha=alpha) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("flipping", [0.0011, 0.02, 0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("cases", [1500, 10_000, 100_000, 1_000_000])
def test_the_power_of_many_flips_is_accurate_to_a_thousandth(cases: int, flipping: float) -> None:
    cases = max(cases, math.ceil(1010 / flipping))
    for effect in (0.5, 1.5, 2.0, 2.8, 3.5, 5.0):
        difference = effect * math.sqrt(flipping / cases)
        expected = enumerate_mcnemar_power(cases, difference, flipping)
        assert mcnemar_power(cases, difference, flipping) == pytest.approx(expected, abs=0.001)


@pytest.mark.parametrize("still", [0.0, 0.5, 1.0, 1.5, 10.0])
def test_the_power_if_nearly_every_case_flips_is_accurate_to_three_thousandths(still: float) -> None:
    """An even and an odd number of flips have different critical values."""
    for cases in (1001, 1501, 20_001):
        flipping = 1 - still / cases
        for effect in (0.5, 2.0, 3.5):
            difference = effect / math.sqrt(cases)
            expected = enumerate_mcnemar_power(cases, difference, flipping)
            assert mcnemar_power(cases, difference, flipping) == pytest.approx(expected, abs=0.003)


def test_no_flip_has_no_power() -> None:
    assert mcnemar_power(1000, 0.0, 0.0) == 0.0


def test_the_normal_power_of_the_sign_flip_test_matches_drawn_tables() -> None:
    """With differences of up to two passes; the shipped p-value decides."""
    draw, cases, chances = np.random.default_rng(5), 150, [0.07, 0.1, 0.68, 0.09, 0.06]
    values = np.array([2, 1, 0, -1, -2])
    mean, square, third, fourth = (float((values**power * np.array(chances)).sum()) for power in (1, 2, 3, 4))
    found = sum(
        sign_flip_p_value(drawn.tolist()) <= 0.05 and drawn.sum() > 0
        for drawn in draw.choice(values, (1500, cases), p=chances)
    )
    assert sign_flip_power(cases, (mean, square, third, fourth)) == pytest.approx(found / 1500, abs=0.03)


@pytest.mark.parametrize(
    ("difference", "flipping"), [(0.03, 0.2), (0.01, 0.02), (0.005, 0.01), (0.001, 0.001), (0.001, 0.3), (0.02, 0.5)]
)
def test_required_cases_of_small_differences_have_the_stated_power(difference: float, flipping: float) -> None:
    needed = cases_needed(difference, flipping)
    assert needed > 1000
    assert enumerate_mcnemar_power(needed, difference, flipping) == pytest.approx(0.8, abs=0.001)
    assert enumerate_mcnemar_power(math.floor(0.99 * needed), difference, flipping) < 0.8


def test_student_quantile_matches_scipy_for_every_freedom() -> None:
    for confidence in (0.5, 0.9, 0.95, 0.999):
        for freedom in (*range(1, 30), 99, 100, 199, 200, 201, 500, 10_000):
            expected = student_t.ppf((1 + confidence) / 2, freedom)
            assert student_quantile(confidence, freedom) == pytest.approx(expected, rel=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(1e-6, 1), max_size=8))
def test_adjusted_p_values_match_statsmodels(p_values: list[float]) -> None:
    expected = multipletests(p_values, method="holm")[1] if p_values else []
    assert adjust_p_values(p_values) == pytest.approx(list(expected))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 2)), min_size=1, max_size=40),
    st.sampled_from([0.2, 0.05, 0.01]),
)
def test_the_median_interval_excludes_zero_where_its_test_rejects(rows: list[tuple[int, int]], alpha: float) -> None:
    ranges = [(float(low), float(low + more)) for low, more in rows]
    found = median_interval(ranges, alpha)
    assert (median_p_value(ranges) <= alpha) == (found is not None and (found.low > 0 or found.high < 0))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.sampled_from([0, 0.5, 0.95, 0.99, 1]))
def test_percentiles_match_numpy(values: list[float], share: float) -> None:
    expected = float(np.percentile(values, 100 * share))
    assert percentile(sorted(values), share) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("share", "fewest"), [(0.95, 59), (0.99, 299)])
def test_the_bound_of_a_percentile_holds_for_every_distribution_and_is_the_smallest(share: float, fewest: int) -> None:
    """The bound holds if at most as many values lie below the percentile as its rank: a binomial count."""
    assert percentile_bound_rank(fewest - 1, fewest - 1, share) is None
    for count in (*range(fewest, fewest + 120), 500, 1000, 2000):
        rank = percentile_bound_rank(count, count, share)
        assert rank is not None
        assert binom.cdf(rank, count, share) >= 0.95
        assert binom.cdf(rank - 1, count, share) < 0.95


@pytest.mark.parametrize("agreement", [0.0, 0.5, 1.0])
def test_the_bound_of_a_percentile_holds_if_times_of_a_case_resemble_each_other(agreement: float) -> None:
    """With 75 cases of 4 times each; taken as 300 independent times, 85 % of the bounds hold if the times agree."""
    draw, rounds, held = np.random.default_rng(3), 600, 0
    for _ in range(rounds):
        shared, own = draw.normal(size=(75, 1)), draw.normal(size=(75, 4))
        times = np.sort((math.sqrt(agreement) * shared + math.sqrt(1 - agreement) * own).ravel())
        rank = percentile_bound_rank(300, 75, 0.95)
        held += rank is not None and times[rank] >= 1.6449
    assert held / rounds >= 0.94


def test_no_percentile_of_an_empty_list() -> None:
    assert percentile([], 0.5) is None


_STUDENT = [(8, 3.0), (25, -1.5), (400, 0.0)]


@pytest.mark.parametrize(("cases", "mean"), _STUDENT)
def test_the_interval_of_a_mean_without_skewness_is_students(cases: int, mean: float) -> None:
    found = skewed_mean_interval(cases, mean, 4.0, 0.0)
    half = float(student_t.ppf(0.975, cases - 1)) * 2 / math.sqrt(cases)
    assert found is not None
    assert [found.low, found.high] == pytest.approx([mean - half, mean + half], rel=1e-6)
    assert skewed_mean_interval(MIN_CASES_OF_MEAN - 1, mean, 4.0, 0.0) is None
    assert skewed_mean_interval(cases, mean, 0.0, 0.0) is None


def test_the_interval_of_a_skewed_mean_solves_halls_equation() -> None:
    cases, variance, skewness = 20, 9.0, 1.4
    found = skewed_mean_interval(cases, 5.0, variance, skewness)
    assert found is not None
    quantile, error = float(student_t.ppf(0.975, cases - 1)), math.sqrt(variance / cases)
    assert found.low == pytest.approx(5 - quantile * error)  # Student's end reaches further on this side
    standardised, lean = (5 - found.high) / error, skewness / math.sqrt(cases)
    corrected = standardised + lean / 3 * standardised**2 + lean**2 / 27 * standardised**3 + lean / 6
    assert corrected == pytest.approx(-quantile)
    assert found.high - 5 > quantile * error


def test_the_interval_of_a_ratio_is_the_jackknifes() -> None:
    rows = [(1, 10, 2, 11), (0, 8, 0, 8), (3, 12, 5, 12), (0, 60, 1, 62), (2, 9, 2, 9), (1, 14, 0, 14), (0, 5, 1, 6)]
    found = ratio_difference_interval(rows)
    table = np.array(rows, float)

    def difference(kept: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> float:
        sums = kept.sum(axis=0)
        return float(sums[2] / sums[3] - sums[0] / sums[1])

    without = np.array([difference(np.delete(table, at, axis=0)) for at in range(len(rows))])
    error = math.sqrt((len(rows) - 1) * without.var())
    half = float(student_t.ppf(0.98, len(rows) - 1)) * error
    assert found is not None
    assert [found.low, found.high] == pytest.approx([difference(table) - half, difference(table) + half], rel=1e-6)
    assert ratio_difference_interval(rows[:5]) is None
    assert ratio_difference_interval([(1, 10, 1, 10), *[(0, 0, 0, 0)] * 6]) is None  # all words are of one case
    assert ratio_difference_interval([]) is None


def test_within_includes_both_ends() -> None:
    assert Interval(-0.05, 0.05).is_within(0.05)
    assert not Interval(-0.06, 0.01).is_within(0.05)
    assert not Interval(-0.01, 0.06).is_within(0.05)
