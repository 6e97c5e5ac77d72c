"""The drift rule, by exact enumeration: what the theorem promises, and what a day's score is made of."""

import math
import random
import sys
from itertools import permutations
from pathlib import Path
from statistics import fmean

import pytest

from pramana.analyse.drift import (
    ALARM,
    LEHMANN_EXPONENTS,
    MAX_CANDIDATE_DAYS,
    NOTICE,
    combine_contributor_statistics,
    iterate_change_statistics,
    measure_baseline_spread,
    measure_change_statistic,
    next_day_rank_correlation,
    score_day,
)


@pytest.mark.parametrize(("days", "baseline"), [(5, 3), (6, 2), (7, 4)])
def test_each_ratio_has_mean_one_over_all_orders_of_the_days(days: int, baseline: int) -> None:
    found = [measure_change_statistic(order, baseline, 0.0) for order in permutations(map(float, range(days)))]
    for first in range(baseline, days):
        assert fmean(each.likelihood_ratio_by_day[first] for each in found) == pytest.approx(1.0, rel=1e-9)
    assert fmean(each.value for each in found) == pytest.approx(days - baseline, rel=1e-9)


def test_a_ratio_is_the_likelihood_of_the_ranks_under_lehmanns_alternative() -> None:
    # Savage's formula by integration: P(the later of two days is higher | G = F^shift) = shift / (1 + shift).
    higher, lower = (
        measure_change_statistic([0.0, 1.0], 1, 0.0).value,
        measure_change_statistic([1.0, 0.0], 1, 0.0).value,
    )
    assert higher == pytest.approx(2 * fmean(shift / (1 + shift) for shift in LEHMANN_EXPONENTS))
    assert lower == pytest.approx(2 * fmean(1 / (1 + shift) for shift in LEHMANN_EXPONENTS))


@pytest.mark.parametrize("tolerance", [0.01, 0.1, 1.0])
def test_a_tolerance_never_raises_the_statistic(tolerance: float) -> None:
    rng = random.Random(3)
    for _ in range(200):
        scores = [rng.random() for _ in range(20)]
        assert measure_change_statistic(scores, 14, tolerance).value <= measure_change_statistic(
            scores, 14, 0.0
        ).value * (1 + 1e-12)


def test_equal_days_never_look_changed() -> None:
    assert measure_change_statistic([0.5] * 40, 14, 0.0).value < 40 - 14
    assert measure_change_statistic([0.5] * 40, 14, 0.02).value < 40 - 14


def test_the_shape_of_the_scores_does_not_matter() -> None:
    rng = random.Random(4)
    scores = [rng.random() for _ in range(25)]
    assert measure_change_statistic(scores, 14, 0.0).value == pytest.approx(
        measure_change_statistic([math.exp(9 * score) for score in scores], 14, 0.0).value
    )


def test_no_day_further_back_than_the_limit_is_a_candidate() -> None:
    rng = random.Random(5)
    found = measure_change_statistic([rng.random() for _ in range(100)], 28, 0.02)
    assert sorted(found.likelihood_ratio_by_day) == list(range(100 - MAX_CANDIDATE_DAYS, 100))
    assert measure_change_statistic([0.1] * 28, 28, 0.02).likeliest_first_day is None
    assert measure_change_statistic([0.1] * 28, 28, 0.02).likeliest_first_days() is None


def test_the_first_changed_day_is_found_with_its_range() -> None:
    rng = random.Random(6)
    scores = [0.1 + rng.random() / 50 for _ in range(33)] + [0.5 + rng.random() / 50 for _ in range(7)]
    found = measure_change_statistic(scores, 28, 0.02)
    assert found.value > ALARM.threshold
    assert found.likeliest_first_day == 33
    low, high = found.likeliest_first_days() or (0, 0)
    assert low <= 33 <= high
    assert high - low <= 3


def test_levels_say_how_many_months_reach_them_by_chance() -> None:
    assert NOTICE.false_alarm_share() == 0.01
    assert NOTICE.false_alarm_share(365) == pytest.approx(365 / 3000)
    assert ALARM.false_alarm_share() == 0.0003
    assert NOTICE.false_alarm_share(10**9) == 1.0


# ── A day's score ──


def test_an_unanswered_prompt_does_not_move_the_day() -> None:
    baseline = {str(prompt): prompt / 10 for prompt in range(10)}
    everything = score_day(baseline, baseline)
    without_the_worst = score_day({prompt: rate for prompt, rate in baseline.items() if prompt != "9"}, baseline)
    assert everything == without_the_worst == pytest.approx(0.45)
    assert score_day(dict.fromkeys(list(baseline)[:7], 1.0), baseline) is None
    assert score_day(dict.fromkeys(list(baseline)[:8], 1.0), baseline) is not None
    assert score_day({}, {}) is None


def test_prompts_outside_the_baseline_do_not_count() -> None:
    assert score_day({"a": 0.5, "new": 1.0}, {"a": 0.5}) == 0.5


def test_the_spread_leaves_out_what_the_number_of_calls_explains() -> None:
    rng = random.Random(8)
    rates = {str(prompt): 0.5 for prompt in range(25)}
    by_calls_only = [fmean(rng.random() < 0.5 for _ in range(25)) for _ in range(400)]
    assert measure_baseline_spread(by_calls_only, rates, 1).day_standard_deviation < 0.03
    wandering = [score + rng.gauss(0, 0.1) for score in by_calls_only]
    assert measure_baseline_spread(wandering, rates, 1).day_standard_deviation == pytest.approx(0.1, abs=0.02)
    assert measure_baseline_spread(by_calls_only, rates, 1).tolerance >= 0.02


def test_days_that_resemble_their_neighbours_cannot_alarm() -> None:
    drifting = [day / 28 for day in range(28)]
    assert next_day_rank_correlation(drifting) > 0.8
    assert not measure_baseline_spread(drifting, {"a": 0.5}, 1).can_alarm
    rng = random.Random(9)
    assert measure_baseline_spread([rng.random() for _ in range(28)], {"a": 0.5}, 1).can_alarm
    assert next_day_rank_correlation([]) == 0.0


# ── Contributors ──


@pytest.mark.parametrize("count", [5, 7, 10, 23])
def test_three_in_ten_liars_cannot_raise_an_alarm(count: int) -> None:
    liars = math.floor(0.3 * count)
    assert combine_contributor_statistics([1e30] * liars + [1.0] * (count - liars)) == pytest.approx(1 / count)
    assert combine_contributor_statistics([1e30] * (liars + 1) + [1.0] * (count - liars - 1)) > ALARM.threshold


def test_fewer_than_five_contributors_are_no_public_watch() -> None:
    assert combine_contributor_statistics([1e30] * 4) == 0.0


# ── The fast form of the statistic ──


def rank_likelihood_ratio(scores: list[float], first: int, tolerance: float) -> float:
    """Return the ratio for one first day by its definition: a product over the ranks of all days."""
    days = [(score - tolerance * (day >= first), -day) for day, score in enumerate(scores)]
    is_later = [-negative >= first for _, negative in sorted(days)]
    ratios = []
    for exponent in LEHMANN_EXPONENTS:
        log_ratio, later = 0.0, 0
        for rank, changed in enumerate(is_later, 1):
            later += changed
            log_ratio += math.log(rank) + changed * math.log(exponent) - math.log(rank + (exponent - 1) * later)
        ratios.append(math.exp(log_ratio))
    return fmean(ratios)


@pytest.mark.parametrize("digits", [1, 2, 9])
def test_every_ratio_is_the_product_over_the_ranks_also_with_ties(digits: int) -> None:
    rng = random.Random(digits)
    for _ in range(20):
        scores = [round(rng.random() + 0.3 * (day > 40), digits) for day in range(rng.choice([30, 58, 90]))]
        tolerance = rng.choice([0.0, 0.02, 0.1])
        found = measure_change_statistic(scores, 28, tolerance)
        for first, ratio in found.likelihood_ratio_by_day.items():
            assert ratio == pytest.approx(rank_likelihood_ratio(scores, first, tolerance), rel=1e-9)


def test_day_by_day_the_statistic_is_that_of_the_days_so_far() -> None:
    rng = random.Random(10)
    scores = [round(rng.random() + 0.4 * (day > 60), 2) for day in range(100)]
    day_by_day = list(iterate_change_statistics(iter(scores), 28, 0.02))
    assert len(day_by_day) == 72
    for days, found in enumerate(day_by_day, 29):
        expected = measure_change_statistic(scores[:days], 28, 0.02)
        assert found.likelihood_ratio_by_day == pytest.approx(expected.likelihood_ratio_by_day, rel=1e-9)
    assert list(iterate_change_statistics(scores[:28], 28, 0.02)) == []


def test_the_interval_of_the_first_day_covers_it_at_the_first_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small form of `benchmarks.interval_coverage --first-days`, in its worst world: 94 %, less three standard errors."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2]), *sys.path])
    from benchmarks.interval_coverage import measure_first_days

    found = measure_first_days(ALARM, (0.14, 0.06), 20, 120, heavy_tails=True)
    assert found.total > 60
    assert found.hits / found.total >= 0.94 - 3 * math.sqrt(0.94 * 0.06 / found.total)
