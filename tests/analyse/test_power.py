"""Power and delays: against statsmodels, against the shipped tests on drawn runs, and against the recorded soak."""

import math
import random

import numpy as np
import pytest
from scipy.stats import binom, norm  # type: ignore[import-untyped]
from statsmodels.stats.power import NormalIndPower  # type: ignore[import-untyped]

from pramana.analyse.delays import simulate_watch_delay
from pramana.analyse.intervals import mcnemar_p_value, sign_flip_p_value
from pramana.analyse.mean_bounds import case_mean_interval
from pramana.analyse.power import (
    MAX_CASE_SPREAD_LOGITS,
    POWER,
    AssumedModel,
    CaseDifference,
    cases_to_detect,
    cases_to_exclude,
    detectable_loss,
    fit_model,
    logistic,
    measure_case_difference,
)


def draw_differences(rng: random.Random, model: AssumedModel, cases: int, repeats: int, shift: float) -> list[int]:
    """Return, by case, the passes of a run after all logits fell, minus those of one before it."""
    found = []
    for _ in range(cases):
        logit = rng.gauss(model.mean_logit, model.case_spread)
        before, after = logistic(logit), logistic(logit - shift)
        found.append(sum((rng.random() < after) - (rng.random() < before) for _ in range(repeats)))
    return found


@pytest.mark.parametrize(("pass_rate", "flips"), [(0.9, None), (0.9, 0.02), (0.5, 0.3), (0.99, 0.01), (0.05, 0.05)])
def test_a_fitted_model_has_the_given_pass_rate_and_flips(pass_rate: float, flips: float | None) -> None:
    model, rng = fit_model(pass_rate, flips), random.Random(1)
    assert model.pass_rate() == pytest.approx(pass_rate, abs=1e-6)
    if flips is not None:
        assert model.flip_share() == pytest.approx(flips, abs=1e-4)
    drawn = [sum(draw_differences(rng, model, 1, 1, 0.0)) != 0 for _ in range(4000)]
    assert sum(drawn) / 4000 == pytest.approx(model.flip_share(), abs=0.03)


def test_a_share_of_flips_that_no_spread_explains_is_bounded() -> None:
    assert fit_model(0.9, 0.5).case_spread == 0.0
    assert fit_model(0.9, 0.0).case_spread == MAX_CASE_SPREAD_LOGITS


def test_cases_that_flip_independently_need_what_two_independent_proportions_need() -> None:
    # Without a spread of cases, pairs are independent draws: the textbook's formula for two proportions holds.
    needed = cases_to_detect(fit_model(0.9, 0.5), 0.05)
    effect = 2 * (math.asin(math.sqrt(0.9)) - math.asin(math.sqrt(0.85)))
    textbook = NormalIndPower().solve_power(effect, alpha=0.05, power=POWER, ratio=1.0)
    assert needed == pytest.approx(textbook, rel=0.08)


def test_large_comparisons_agree_with_the_normal_distribution() -> None:
    difference = measure_case_difference(fit_model(0.9), 0.01, 5)
    mean, square = difference.moments[:2]
    cases = 3000
    expected = norm.cdf(mean * math.sqrt(cases / square) - norm.ppf(0.975))
    assert difference.power(cases) == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize(
    ("flips", "loss", "repeats"), [(None, 0.2, 1), (None, 0.1, 3), (0.03, 0.05, 3), (0.0, 0.1, 4), (None, 0.2, 5)]
)
def test_the_shipped_test_detects_the_loss_as_often_as_planned(flips: float | None, loss: float, repeats: int) -> None:
    model, rng = fit_model(0.9, flips), random.Random(2)
    cases, shift, found = cases_to_detect(model, loss, repeats), model.shift_for_loss(loss), 0
    assert cases is not None
    for _ in range(400):
        differences = draw_differences(rng, model, cases, repeats, shift)
        if repeats == 1:
            p_value = mcnemar_p_value(differences.count(-1), differences.count(1))
        else:
            p_value = sign_flip_p_value(differences)
        found += p_value <= 0.05 and sum(differences) < 0
    assert 0.77 <= found / 400 <= 0.92


def test_more_cases_and_more_repeats_detect_smaller_losses() -> None:
    model = fit_model(0.9)
    by_cases = [detectable_loss(model, cases) or 1.0 for cases in (20, 50, 200, 1000)]
    by_repeats = [detectable_loss(model, 50, repeats) or 1.0 for repeats in (1, 2, 5, 20)]
    for losses in (by_cases, by_repeats):
        assert losses == sorted(losses, reverse=True)
        assert len(set(losses)) == len(losses)
    assert detectable_loss(model, 3) is None
    assert detectable_loss(model, 5, 100) is None
    assert cases_to_exclude(model, 0.05, 5) < cases_to_exclude(model, 0.05)


def test_repeats_hardly_help_if_replies_hardly_vary() -> None:
    steady = fit_model(0.9, 0.0)
    once, often = cases_to_detect(steady, 0.1), cases_to_detect(steady, 0.1, 10)
    assert once is not None
    assert often is not None
    assert 0.75 * once <= often <= once


@pytest.mark.parametrize("repeats", [1, 5])
@pytest.mark.parametrize(("rate", "flips"), [(0.9, None), (0.5, 0.3), (0.9, 0.0), (0.999, None)])
def test_the_detectable_loss_is_found_with_the_stated_power_in_up_to_a_million_cases(
    rate: float, flips: float | None, repeats: int
) -> None:
    model = fit_model(rate, flips)
    for cases in (100, 1000, 1001, 100_000, 1_000_000):
        loss = detectable_loss(model, cases, repeats)
        assert loss is not None
        found = [measure_case_difference(model, each, repeats) for each in (loss, 0.995 * loss)]
        power, below = (_enumerate_power(each, cases) for each in found)
        assert power == pytest.approx(0.8, abs=0.001 if repeats == 1 else 0.012)
        assert below < (0.8 if repeats == 1 else power)


def _enumerate_power(difference: CaseDifference, cases: int) -> float:
    """Return the power for one repeat by enumeration, and otherwise, of many cases, that of a normal mean."""
    if difference.repeats == 1:
        flips = np.arange(
            binom.ppf(1e-13, cases, difference.flip_share), binom.isf(1e-13, cases, difference.flip_share) + 1
        )
        allowed = binom.ppf(0.025, flips, 0.5)
        allowed = np.where(binom.cdf(allowed, flips, 0.5) <= 0.025, allowed, allowed - 1)
        rejected = binom.cdf(allowed, flips, (1 - difference.loss / difference.flip_share) / 2)
        return float((binom.pmf(flips, cases, difference.flip_share) * np.where(allowed >= 0, rejected, 0)).sum())
    mean, square = difference.moments[:2]
    if cases < 100_000:
        return difference.power(cases)
    error = math.sqrt((square - mean * mean) / cases)
    return float(norm.cdf((mean - norm.ppf(0.975) * math.sqrt(square / cases)) / error))


@pytest.mark.parametrize("rate", [0.0, 1e-6, 0.001, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("cases", [1, 5, 6, 10, 100, 100_000, 1_000_000])
def test_extreme_rates_and_sizes_have_an_answer(rate: float, cases: int) -> None:
    model = fit_model(rate)
    for repeats in (1, 5):
        loss = detectable_loss(model, cases, repeats)
        assert loss is None or 0 < loss <= model.pass_rate()
        if cases < 6:
            assert loss is None, "fewer than six flips never reject"
        assert 72 <= cases_to_exclude(model, 0.05, repeats) <= 1000


def test_a_loss_larger_than_the_pass_rate_needs_no_cases_because_it_cannot_happen() -> None:
    assert [cases_to_detect(fit_model(0.001), 0.05, repeats) for repeats in (1, 5)] == [None, None]


@pytest.mark.parametrize(("flips", "margin"), [(0.1, 0.1), (0.3, 0.1), (0.02, 0.05)])
def test_the_cases_that_exclude_a_loss_do_so_as_often_as_planned(flips: float, margin: float) -> None:
    cases, rng = cases_to_exclude(fit_model(0.5 if flips > 0.2 else 0.9, flips), margin), random.Random(4)
    excluded = 0
    for _ in range(600):
        differences = [rng.choice((-1.0, 1.0)) if rng.random() < flips else 0.0 for _ in range(cases)]
        excluded += case_mean_interval(differences, -1.0, 1.0).low > -margin
    assert 0.75 <= excluded / 600 <= 0.88


def test_a_tiny_loss_needs_more_cases_than_anyone_has() -> None:
    assert cases_to_detect(fit_model(0.9), 0.0005) is None
    assert cases_to_detect(fit_model(0.9), 0.0005, 2) is None


# ── Watches ──


@pytest.mark.parametrize(
    ("cases", "repeats", "day_sd", "loss", "notice", "alarm"),
    [(25, 1, 0.0, 0.2, 5, 8), (75, 1, 0.0, 0.1, 7, 12), (75, 5, 0.0, 0.2, 4, 6), (75, 5, 0.5, 0.2, 4, 8)],
)
def test_simulated_delays_are_those_of_the_recorded_soak(
    cases: int, repeats: int, day_sd: float, loss: float, notice: int, alarm: int
) -> None:
    found = simulate_watch_delay(AssumedModel(2.5, 2.0, day_sd), cases, repeats, loss, months=60)
    assert abs((found.notice.median_days or 99) - notice) <= 1
    assert abs((found.alarm.median_days or 99) - alarm) <= 1


def test_no_number_of_calls_shows_a_loss_smaller_than_the_difference_of_days() -> None:
    found = simulate_watch_delay(AssumedModel(2.5, 2.0, 1.0), None, 1, 0.02, months=40)
    assert (found.notice.median_days, found.alarm.median_days) == (None, None)
    alike = simulate_watch_delay(AssumedModel(2.5, 2.0, 0.0), None, 1, 0.03, months=10)
    assert (alike.notice.median_days or 99) <= 5


def test_a_simulation_is_seeded() -> None:
    model = AssumedModel(2.5, 2.0, 0.5)
    once, again = (simulate_watch_delay.__wrapped__(model, 300, 1, 0.2, months=10) for _ in range(2))
    assert once == again
    assert once.notice.seen_share == 1.0
