"""Statistics checked against statsmodels, numpy, published examples, enumeration and exact coverage."""

import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student_t  # type: ignore[import-untyped]
from statsmodels.stats.contingency_tables import mcnemar as referee_mcnemar  # type: ignore[import-untyped]
from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]
from statsmodels.stats.proportion import proportion_confint  # type: ignore[import-untyped]

from pramana.analyse import intervals
from pramana.analyse.intervals import (
    Z95,
    Interval,
    adjust_p_values,
    align_with_test,
    case_difference_interval,
    cases_needed,
    cases_to_exclude_loss,
    clustered_difference_interval,
    mcnemar_p_value,
    mcnemar_power,
    median_interval,
    median_p_value,
    normal_quantile,
    paired_difference_interval,
    percentile,
    sign_flip_p_value,
    student_quantile,
    wilson_interval,
)


@pytest.mark.parametrize("total", [1, 2, 10, 75, 1000])
def test_wilson_matches_statsmodels(total: int) -> None:
    for passed in range(0, total + 1, max(1, total // 20)):
        low, high = proportion_confint(passed, total, 0.05, "wilson")
        found = wilson_interval(passed, total)
        assert [found.low, found.high] == pytest.approx([low, high], abs=1e-12)


def test_wilson_is_closed_at_0_and_1() -> None:
    assert wilson_interval(0, 0) == Interval(0.0, 1.0)
    assert wilson_interval(0, 10).low == 0.0
    assert wilson_interval(10, 10).high == 1.0
    assert wilson_interval(37.5, 75) == wilson_interval(75 / 2, 75)


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
    monkeypatch.setattr(intervals, "EXACT_DISCORDANT", 10_000)
    assert quick == [pytest.approx(mcnemar_p_value(*table), rel=1e-9) for table in tables]


def test_tango_interval_matches_the_published_example() -> None:
    """Airway reactivity before and after transplantation, 21 children: the example of the literature on paired tables."""
    found = paired_difference_interval(lost=7, gained=1, pairs=21)
    assert (round(found.low, 3), round(found.high, 3)) == (-0.517, -0.026)


def _likelihood_ratio_free_score(lost: int, gained: int, pairs: int, difference: float) -> float:
    """Return the score statistic with the chance of a loss found by search, not by the formula."""
    least = max(0.0, -difference)
    most = (1 - difference) / 2

    def likelihood(chance: float) -> float:
        parts = ((lost, chance), (gained, chance + difference), (pairs - lost - gained, 1 - 2 * chance - difference))
        return sum(count * math.log(max(share, 1e-300)) for count, share in parts if count)

    low, high = least, most
    for _ in range(200):
        third = (high - low) / 3
        if likelihood(low + third) < likelihood(high - third):
            low += third
        else:
            high -= third
    chance = (low + high) / 2
    return (gained - lost - pairs * difference) / math.sqrt(pairs * (2 * chance + difference * (1 - difference)))


@pytest.mark.parametrize(("lost", "gained", "pairs"), [(7, 1, 21), (3, 9, 40), (0, 4, 30), (12, 12, 100), (2, 0, 10)])
def test_tango_interval_ends_where_the_score_test_turns(lost: int, gained: int, pairs: int) -> None:
    found = paired_difference_interval(lost, gained, pairs)
    assert _likelihood_ratio_free_score(lost, gained, pairs, found.low) == pytest.approx(Z95, abs=1e-4)
    assert _likelihood_ratio_free_score(lost, gained, pairs, found.high) == pytest.approx(-Z95, abs=1e-4)


def test_without_flips_the_interval_follows_the_rule_of_three() -> None:
    for pairs in (1, 10, 75, 1000):
        edge = Z95**2 / (pairs + Z95**2)
        found = paired_difference_interval(0, 0, pairs)
        assert [found.low, found.high] == pytest.approx([-edge, edge])
    assert paired_difference_interval(0, 0, 0) == Interval(-1.0, 1.0)
    assert paired_difference_interval(5, 0, 5).low == -1.0
    assert paired_difference_interval(0, 5, 5).high == 1.0


@pytest.mark.parametrize("alpha", [0.1, 0.05, 0.01])
def test_the_interval_excludes_zero_where_the_exact_test_rejects(alpha: float) -> None:
    z, rejected = normal_quantile(1 - alpha), 0
    for pairs in range(1, 31):
        for lost in range(pairs + 1):
            for gained in range(pairs + 1 - lost):
                if mcnemar_p_value(lost, gained) <= alpha:
                    rejected += 1
                    found = paired_difference_interval(lost, gained, pairs, z)
                    assert found.high < 0 or found.low > 0
    assert rejected > 500


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 100))
def test_the_interval_contains_its_estimate_and_is_symmetric(lost: int, gained: int, agreeing: int) -> None:
    pairs = lost + gained + agreeing
    found, mirrored = paired_difference_interval(lost, gained, pairs), paired_difference_interval(gained, lost, pairs)
    assert -1 <= found.low <= found.high <= 1
    assert found.low == pytest.approx(-mirrored.high, abs=1e-9)
    if pairs:
        assert found.low <= (gained - lost) / pairs <= found.high


def _coverage(interval: Callable[[int, int], Interval], pairs: int, loss: float, gain: float) -> float:
    """Return how often the interval holds the truth: no simulation, every possible table with its chance."""
    total = 0.0
    for lost in range(pairs + 1):
        for gained in range(pairs + 1 - lost):
            found = interval(lost, gained)
            if found.low <= gain - loss <= found.high:
                rest = pairs - lost - gained
                ways = math.comb(pairs, lost) * math.comb(pairs - lost, gained)
                total += ways * loss**lost * gain**gained * (1 - loss - gain) ** rest
    return total


@pytest.mark.parametrize("pairs", [10, 25, 75])
def test_tango_interval_has_its_nominal_coverage(pairs: int) -> None:
    @cache
    def interval(lost: int, gained: int) -> Interval:
        return paired_difference_interval(lost, gained, pairs)

    truths = [(0.01, 0.01), (0.02, 0.05), (0.05, 0.05), (0.05, 0.1), (0.1, 0.1), (0.1, 0.2), (0.05, 0.3), (0.3, 0.3)]
    covered = [_coverage(interval, pairs, *truth) for truth in truths]
    assert min(covered) >= 0.94
    assert sum(covered) / len(covered) >= 0.95


def test_wilson_has_its_nominal_coverage() -> None:
    for total, share in ((10, 0.5), (25, 0.9), (75, 0.8), (75, 0.97)):
        covered = sum(
            math.comb(total, passed) * share**passed * (1 - share) ** (total - passed)
            for passed in range(total + 1)
            if wilson_interval(passed, total).low <= share <= wilson_interval(passed, total).high
        )
        assert covered >= 0.92


@pytest.mark.parametrize("agreeing", [0.0, 0.8, 1.0], ids="agreement {}".format)
@pytest.mark.parametrize("cases", [10, 40])
def test_the_clustered_interval_has_its_nominal_coverage(cases: int, agreeing: float) -> None:
    """A case's repeats may be independent or all alike; either way the cases are the units."""
    chance = random.Random(20_261_115)
    repeats, loss, rounds, covered, truth = 4, 0.1, 600, 0, -0.1

    def passes(share: float) -> float:
        if chance.uniform(0, 1) < agreeing:
            return float(chance.uniform(0, 1) < share)
        return sum(chance.uniform(0, 1) < share for _ in range(repeats)) / repeats

    for _ in range(rounds):
        differences = []
        for _ in range(cases):
            share = chance.uniform(loss, 1)
            differences.append(passes(share - loss) - passes(share))
        found = clustered_difference_interval(differences)
        covered += found.low <= truth <= found.high
    assert covered / rounds >= 0.94


def test_the_clustered_interval_of_single_answers_is_bonett_price() -> None:
    lost, gained, pairs = 7, 1, 21
    found = clustered_difference_interval([-1.0] * lost + [1.0] * gained + [0.0] * (pairs - lost - gained))
    more = pairs + 2
    loss, gain = (lost + 1) / more, (gained + 1) / more
    half = Z95 * math.sqrt((loss + gain - (gain - loss) ** 2) / more)
    assert [found.low, found.high] == pytest.approx([gain - loss - half, gain - loss + half])
    assert (round(found.low, 3), round(found.high, 3)) == (-0.508, -0.013)  # as published for the same table
    assert clustered_difference_interval([]) == Interval(-1.0, 1.0)


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
    monkeypatch.setattr(intervals, "EXACT_WORK", 0)
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
    assert cases_needed(0.05, 0.2, alpha=strict, power=0.9) == 1931
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


def test_beyond_the_limit_the_required_cases_are_close_to_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = [(0.05, 0.2), (0.1, 0.3), (0.05, 0.1)]
    exact = [cases_needed(*each) for each in settings]
    monkeypatch.setattr(intervals, "EXACT_CASES", 0)
    assert [cases_needed(*each) for each in settings] == [pytest.approx(each, rel=0.05) for each in exact]


@pytest.mark.parametrize(("loss", "flipping"), [(0.05, 0.0), (0.05, 0.02), (0.05, 0.05), (0.05, 0.2), (0.1, 0.1)])
def test_so_many_cases_exclude_a_loss_in_four_of_five_runs_of_an_unchanged_model(loss: float, flipping: float) -> None:
    needed = cases_to_exclude_loss(loss, flipping)
    power = sum(
        chance
        for lost, gained, chance in _count_tables(needed, flipping / 2, flipping / 2)
        if paired_difference_interval(lost, gained, needed).low > -loss
    )
    assert power >= 0.79


@pytest.mark.parametrize("flipping", [0.01, 0.1])
def test_so_many_cases_with_repeats_exclude_a_loss(flipping: float) -> None:
    chance, needed, rounds = random.Random(8), cases_to_exclude_loss(0.05, flipping, repeated=True), 400
    excluded = 0
    for _ in range(rounds):
        differences = [chance.choice((-0.5, 0.5)) * (chance.random() < 4 * flipping) for _ in range(needed)]
        excluded += case_difference_interval(differences).low > -0.05
    assert excluded / rounds >= 0.75


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


@pytest.mark.parametrize("repeats", [5, 20])
@pytest.mark.parametrize("cases", [25, 75])
@pytest.mark.parametrize("drop", [0.0, 0.35, 0.8])
def test_the_interval_with_repeats_covers_the_truth_and_its_test_keeps_the_level(
    cases: int, repeats: int, drop: float
) -> None:
    """Logits of the cases are normal, the new model's lower by `drop`; 25 cases of 20 repeats once found 9 % of 0.8."""
    draw, rounds, covered, lost = np.random.default_rng(4), 300, 0, 0
    for _ in range(rounds):
        logits = draw.normal(2.5, 2, cases)
        before, after = 1 / (1 + np.exp(-logits)), 1 / (1 + np.exp(drop - logits))
        whole = [int(each) for each in draw.binomial(repeats, after) - draw.binomial(repeats, before)]
        mean, significant = sum(whole) / cases / repeats, sign_flip_p_value(whole) <= 0.05
        found = align_with_test(
            case_difference_interval([each / repeats for each in whole]), mean, significant=significant
        )
        covered += found.low <= float(np.mean(after - before)) <= found.high
        lost += significant and mean < 0
    assert covered / rounds >= 0.93
    if not drop:
        assert lost / rounds <= 0.04
    if (drop, repeats) == (0.8, 20):
        assert lost / rounds >= 0.9


def test_with_few_cases_both_ends_are_clustered() -> None:
    differences = [-0.2, -0.1, -0.2, -0.1, -0.2]
    assert case_difference_interval(differences) == clustered_difference_interval(differences)
    assert case_difference_interval([*differences, -0.1]).high < 0
    assert case_difference_interval([]) == Interval(-1.0, 1.0)


@pytest.mark.parametrize("flip", [-1.0, 1.0])
def test_the_interval_of_changes_that_all_agree_contains_their_mean(flip: float) -> None:
    for count in range(6, 60):
        for size in (0.01, 0.3, 1.0):
            found = case_difference_interval([flip * size] * count, alpha=0.5)
            assert found.low <= flip * size + 1e-12
            assert found.high >= flip * size - 1e-12


@settings(max_examples=80, deadline=None)
@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.sampled_from([0, 0.5, 0.95, 0.99, 1]))
def test_percentiles_match_numpy(values: list[float], share: float) -> None:
    expected = float(np.percentile(values, 100 * share))
    assert percentile(sorted(values), share) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_no_percentile_of_an_empty_list() -> None:
    assert percentile([], 0.5) is None


def test_within_includes_both_ends() -> None:
    assert Interval(-0.05, 0.05).is_within(0.05)
    assert not Interval(-0.06, 0.01).is_within(0.05)
    assert not Interval(-0.01, 0.06).is_within(0.05)
