"""Statistics that no other test compares with an oracle: against scipy, statsmodels, numpy or their definitions."""

import math
import random
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from scipy import special, stats  # type: ignore[import-untyped]
from scipy.integrate import quad  # type: ignore[import-untyped]
from scipy.optimize import brentq  # type: ignore[import-untyped]
from statsmodels.stats.contingency_tables import mcnemar  # type: ignore[import-untyped]
from statsmodels.stats.inter_rater import cohens_kappa  # type: ignore[import-untyped]
from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]
from statsmodels.stats.proportion import proportion_confint  # type: ignore[import-untyped]

from pramana.analyse.border_prompts import ASSUMED_DAILY_CALLS_PER_PROMPT, entropy_bits, expected_shift_above_noise
from pramana.analyse.calibration import (
    POSTERIOR_TAIL_FACTOR,
    Stratum,
    correct_rate_of_strata,
    estimate_accuracy_of_strata,
    measure_agreement_of_strata,
)
from pramana.analyse.changes import CaseMeasurements, measure_changes
from pramana.analyse.delays import simulate_watch_delay
from pramana.analyse.drift import (
    FIRST_DAYS_WEIGHT,
    MAX_IGNORED_CONTRIBUTOR_SHARE,
    MIN_CONTRIBUTORS,
    combine_contributor_statistics,
    iterate_change_statistics,
    measure_baseline_spread,
    measure_change_statistic,
    next_day_rank_correlation,
    score_day,
)
from pramana.analyse.endpoints import Answered, CallPair, make_endpoint_test
from pramana.analyse.instruments import INSTRUMENTS, REFERENCE_DAYS, DayFeatures, MeasuredDay, PromptDay, score_days
from pramana.analyse.intervals import find_smallest, median_p_value, normal_quantile
from pramana.analyse.judge_report import estimate_accuracy
from pramana.analyse.mean_bounds import case_mean_interval, count_cases_to_exclude_loss
from pramana.analyse.own_endpoint import report_endpoint
from pramana.analyse.pairing import Pair
from pramana.analyse.panels import measure_panels
from pramana.analyse.power import (
    AssumedModel,
    chance_of_at_least,
    find_crossing,
    find_day_spread,
    fit_model,
    logistic,
    measure_case_difference,
)
from pramana.analyse.public_watch import (
    ContributorSeries,
    decide_public_watch,
    make_contributor_days,
    measure_contributor,
)
from pramana.analyse.rates import Rate
from pramana.analyse.same import PairedTest, ReplyPair
from pramana.analyse.same_power import simulate_seen_shares
from pramana.analyse.spread import measure_time_spread
from pramana.analyse.voice import (
    MIN_EVENT_OPPORTUNITIES,
    EventShare,
    ModalityResult,
    WordErrors,
    measure_latency,
    measure_voice_taxes,
)
from pramana.analyse.watch import find_instrument_findings
from pramana.analyse.watch_facts import HashConsistency, measure_category_shifts
from pramana.model import Check, Outcome

DAYS, PROMPTS, BASELINE = 45, 12, 28


def make_days(
    seed: int, rate: float = 0.8
) -> tuple[list[MeasuredDay], "np.ndarray[tuple[int, int], np.dtype[np.int64]]"]:
    """Return days of one call to each prompt, and by day and prompt whether it failed."""
    draw = np.random.default_rng(seed)
    failed = (draw.random((DAYS, PROMPTS)) > rate).astype(int)
    days = [
        MeasuredDay(
            f"day {day:02}",
            float(draw.uniform(-0.5, 0.5)),
            DayFeatures(
                tuple(
                    PromptDay(
                        str(prompt),
                        str(prompt),
                        category="odd" if prompt % 2 else "even",
                        answered=1,
                        verdicts=1,
                        passes=int(1 - failed[day, prompt]),
                        words=(int(draw.integers(3, 40)),),
                    )
                    for prompt in range(PROMPTS)
                )
            ),
        )
        for day in range(DAYS)
    ]
    return days, failed


# ── Single numbers ──


def test_the_entropy_of_answers_matches_scipy() -> None:
    for counts in ([1], [4, 4], [9, 1], [3, 2, 2, 1], [100, 1, 1, 0]):
        answers = Counter({str(at): count for at, count in enumerate(counts)})
        assert entropy_bits(answers) == pytest.approx(stats.entropy(counts, base=2))


def test_normal_quantiles_and_logits_match_scipy() -> None:
    for confidence in (0.5, 0.8, 0.95, 0.999, 1 - 1e-9):
        assert normal_quantile(confidence) == pytest.approx(stats.norm.ppf((1 + confidence) / 2), rel=1e-9)
    for logit in (-800.0, -30.0, -1.0, 0.0, 2.5, 40.0):
        assert logistic(logit) == pytest.approx(special.expit(logit), abs=1e-300)


def test_the_smallest_count_is_found_by_trying_all() -> None:
    for least in (1, 2, 3, 7, 64, 65, 1000):
        assert find_smallest(lambda count, least=least: count >= least) == least  # type: ignore[misc]


def test_a_crossing_is_the_root() -> None:
    root = brentq(lambda at: math.exp(at) - 5, 0, 10)
    assert find_crossing(lambda at: math.exp(at) < 5, 0.0, 10.0) == pytest.approx(root, abs=1e-8)


def test_the_chance_of_at_least_so_many_matches_scipy() -> None:
    for total, share in ((6, 0.5), (78, 0.1), (1000, 0.004), (20, 1.0), (3, 0.9)):
        assert chance_of_at_least(6, total, share) == pytest.approx(stats.binom.sf(5, total, share), abs=1e-12)


def test_shares_are_quotients_and_small_ones_are_hidden() -> None:
    assert EventShare(3, 40).value == 3 / 40
    assert EventShare(1, MIN_EVENT_OPPORTUNITIES - 1).value is None
    assert WordErrors(3, 40, None, 5, 200).rate == 3 / 40
    assert WordErrors(3, 40, None, 5, 200).character_rate == 5 / 200
    assert (WordErrors().rate, WordErrors().character_rate) == (None, None)
    assert HashConsistency(19, 20).share == 19 / 20
    assert Pair("a", base_passed=4, new_passed=1, repeats=5).difference == -3 / 5
    assert (Rate(passed=9, failed=1, errored=3).value, Rate(errored=2).value) == (0.9, None)


@pytest.mark.parametrize("per_case", [1, 3])
def test_the_interval_of_a_rate_of_cases_matches_statsmodels(per_case: int) -> None:
    found = Rate(passed=60, failed=15, errored=4, per_case=per_case).interval
    assert found is not None
    expected = proportion_confint(60 / per_case, 75 / per_case, 0.05, "beta")
    assert (found.low, found.high) == pytest.approx(expected)
    assert Rate(errored=4).interval is None


def test_the_spread_of_times_matches_numpy() -> None:
    values = np.random.default_rng(1).lognormal(0, 1, 37)
    found = measure_time_spread(values.tolist())
    expected = values.mean(), np.median(values), np.percentile(values, 95), values.std(ddof=1), values.min()
    assert (found.mean, found.median, found.p95, found.standard_deviation, found.min) == pytest.approx(expected)
    assert measure_time_spread([2.0]).standard_deviation is None


def test_the_upper_bound_of_a_latency_is_the_order_statistic_of_the_binomial_distribution() -> None:
    times = sorted(np.random.default_rng(2).exponential(1.0, 400).tolist())
    found = measure_latency([(each, False) for each in times])
    for bound, share in ((found.p95_at_most, 0.95), (found.p99_at_most, 0.99)):
        rank = next(rank for rank in range(400) if stats.binom.cdf(rank, 400, share) >= 0.95)
        assert bound == times[rank]


def test_the_sign_test_of_a_median_matches_scipy() -> None:
    for above, below in ((6, 0), (9, 1), (12, 7), (30, 10)):
        values = [1.0] * above + [-1.0] * below
        expected = stats.binomtest(below, above + below).pvalue
        assert median_p_value([(each, each) for each in values]) == pytest.approx(expected)


# ── Judges ──


def test_the_kappa_of_two_judges_and_the_share_of_unanimous_verdicts_match_statsmodels() -> None:
    draw = random.Random(3)
    votes = [(draw.random() < 0.7, draw.random() < 0.6) for _ in range(60)]
    votes += [(each, each) for each, _ in votes[:30]]
    words = {True: "passed", False: "failed"}
    checks = [
        Check(
            "llm_judge",
            "1",
            Outcome.PASSED if one and other else Outcome.UNSCORED if one != other else Outcome.FAILED,
            "",
            evidence={"panel": [{"judge": "a", "verdict": words[one]}, {"judge": "b", "verdict": words[other]}]},
        )
        for one, other in votes
    ]
    (panel,) = measure_panels(checks)
    table = [[votes.count((one, other)) for other in (True, False)] for one in (True, False)]
    assert panel.pairs[0].kappa == pytest.approx(cohens_kappa(np.array(table)).kappa)
    assert panel.unanimous == table[0][0] + table[1][1]
    low, high = proportion_confint(panel.unanimous, 90, 0.05, "beta")
    assert (panel.unanimous_interval.low, panel.unanimous_interval.high) == pytest.approx((low, high))


def test_corrected_rates_and_agreement_are_quantiles_of_jeffreys_posterior() -> None:
    """By numpy's own gamma and beta variables, 400,000 draws; the shipped 4,000 draws differ by chance."""
    strata = [
        Stratum(judge_passed=True, reply_count=220, yes_labels=40, no_labels=5),
        Stratum(judge_passed=False, reply_count=80, yes_labels=6, no_labels=30),
    ]
    draw = np.random.default_rng(4)
    weights = draw.gamma([220.5, 80.5], size=(400_000, 2))
    shares = weights / weights.sum(1, keepdims=True)
    right = np.column_stack([draw.beta(40.5, 5.5, 400_000), draw.beta(6.5, 30.5, 400_000)])
    tails = [50 * POSTERIOR_TAIL_FACTOR * 0.05, 100 - 50 * POSTERIOR_TAIL_FACTOR * 0.05]
    found = correct_rate_of_strata(strata)
    assert found.value == pytest.approx(220 / 300 * 40 / 45 + 80 / 300 * 6 / 36)
    assert found.interval is not None
    rates = (shares * right).sum(1)
    assert (found.interval.low, found.interval.high) == pytest.approx(np.percentile(rates, tails), abs=0.006)
    agreed = shares[:, 0] * right[:, 0] + shares[:, 1] * (1 - right[:, 1])
    by_chance = shares[:, 0] * rates + shares[:, 1] * (1 - rates)
    agreement = measure_agreement_of_strata(strata)
    assert agreement is not None
    assert agreement.kappa_interval is not None
    for interval, expected in (
        (agreement.accuracy_interval, agreed),
        (agreement.kappa_interval, (agreed - by_chance) / (1 - by_chance)),
    ):
        assert (interval.low, interval.high) == pytest.approx(np.percentile(expected, tails), abs=0.012)


# ── Comparisons ──


def test_changes_have_the_p_values_of_the_sign_test_and_holms_correction() -> None:
    draw = random.Random(5)
    base, new = dict[str, CaseMeasurements](), dict[str, CaseMeasurements]()
    shifts = [draw.gauss(0.4, 0.5) for _ in range(20)]
    for case, shift in enumerate(shifts):
        base[str(case)], new[str(case)] = CaseMeasurements(), CaseMeasurements()
        base[str(case)].times["voice to voice"] = {0: [(2.0, 2.0)]}
        new[str(case)].times["voice to voice"] = {0: [(2.0 + shift, 2.0 + shift)]}
        base[str(case)].words["misheard words"] = [(1, 10)]
        new[str(case)].words["misheard words"] = [(1 + (case < 9) - (case > 16), 10)]
    found = {each.measure: each for each in measure_changes(base, new)}
    above = sum(each > 0 for each in shifts)
    expected = [stats.binomtest(20 - above, 20).pvalue, stats.binomtest(3, 12).pvalue]
    assert [each.p_value for each in found.values()] == pytest.approx(expected)
    adjusted = multipletests(expected, method="holm")[1]
    assert [each.adjusted_p_value for each in found.values()] == pytest.approx(adjusted)
    assert found["voice to voice"].difference[0] == pytest.approx(np.median(shifts))
    assert found["misheard words"].new[0] == pytest.approx((20 + 9 - 3) / 200)


def test_the_voice_tax_has_mcnemars_p_value() -> None:
    outcomes = [(True, True)] * 30 + [(True, False)] * 11 + [(False, True)] * 3 + [(False, False)] * 6
    as_outcome = {True: Outcome.PASSED, False: Outcome.FAILED}
    answers = [
        ModalityResult(str(case), "m", 0, variant, as_outcome[passed], has_complete_call=True)
        for case, both in enumerate(outcomes)
        for variant, passed in zip(("text", "voice"), both, strict=True)
    ]
    (found,) = measure_voice_taxes(answers)
    assert found.p_value == pytest.approx(mcnemar([[30, 11], [3, 6]], exact=True).pvalue)
    assert found.difference == pytest.approx(-8 / 50)


# ── Days ──


def test_the_score_of_a_day_is_the_baselines_mean_and_what_its_answered_prompts_moved() -> None:
    draw = np.random.default_rng(6)
    for _ in range(20):
        baseline, today = draw.random(10), draw.random(10)
        answered = draw.random(10) < 0.93
        found = score_day(
            {str(at): today[at] for at in np.flatnonzero(answered)}, {str(at): baseline[at] for at in range(10)}, 0.01
        )
        if answered.sum() < 8:
            assert found is None
        else:
            assert found == pytest.approx(np.where(answered, today, baseline).mean() + 0.01)


def test_the_correlation_of_a_day_with_the_next_is_that_of_scipys_ranks() -> None:
    draw = np.random.default_rng(7)
    for values in (draw.random(28), draw.integers(0, 4, 28), np.arange(15)):
        ranks = stats.rankdata(values) - stats.rankdata(values).mean()
        expected = (ranks[1:] * ranks[:-1]).sum() / (ranks**2).sum()
        assert next_day_rank_correlation([float(each) for each in values]) == pytest.approx(expected)


def test_the_days_of_the_pass_rate_are_scored_by_definition() -> None:
    days, failed = make_days(8)
    found = score_days(INSTRUMENTS["pass_rate_down"], days, BASELINE)
    assert found.scores_without_tie_breaks == pytest.approx(failed.mean(1))
    ties = np.array([each.tie_break for each in days]) / PROMPTS
    assert found.scores == pytest.approx(failed.mean(1) + ties)
    rates = failed[:BASELINE].mean(0)
    by_calls = (rates * (1 - rates)).sum() / PROMPTS**2 * BASELINE / (BASELINE - 1)
    beyond = failed[:BASELINE].mean(1).var(ddof=1) - by_calls
    assert found.spread is not None
    assert found.spread.day_standard_deviation == pytest.approx(math.sqrt(max(0.0, beyond)))
    assert found.spread.tolerance == max(0.02, math.sqrt(max(0.0, beyond)))
    direct = measure_baseline_spread(
        failed[:BASELINE].mean(1).tolist(), {str(at): float(rate) for at, rate in enumerate(rates)}, 1
    )
    assert direct.day_standard_deviation == pytest.approx(found.spread.day_standard_deviation)


def test_the_days_of_other_measurements_are_scored_by_definition() -> None:
    days, _ = make_days(9)
    found = score_days(INSTRUMENTS["longer"], days, BASELINE)
    logs = np.log(1 + np.array([[prompt.words[0] for prompt in each.features.prompts] for each in days]))
    assert found.scores == pytest.approx(logs.mean(1))
    baseline = logs[:BASELINE]
    beyond = baseline.mean(1).var(ddof=1) - baseline.var(0, ddof=1).sum() / PROMPTS**2
    assert found.spread is not None
    expected = math.sqrt(max(0.0, beyond) * PROMPTS / (PROMPTS - 1))
    assert found.spread.day_standard_deviation == pytest.approx(expected)


def test_answers_are_scored_by_the_total_variation_from_the_reference_days() -> None:
    draw = random.Random(10)
    drawn = [Counter(draw.choices("abc", k=8)) for _ in range(REFERENCE_DAYS + 3)]
    days = [
        MeasuredDay(
            str(day), 0.0, DayFeatures((PromptDay("p", "p", "border", planned=8, answered=8, answers=dict(counts)),))
        )
        for day, counts in enumerate(drawn)
    ]
    instrument = INSTRUMENTS["answers"]
    assert days[0].features.prompts[0] in instrument.choose_prompts(days[0].features)
    before = sum(drawn[:REFERENCE_DAYS], Counter[str]())
    expected = [
        sum(abs(counts[each] / 8 - before[each] / before.total()) for each in "abc") / 2
        for counts in drawn[REFERENCE_DAYS:]
    ]
    assert score_days(instrument, days, 2).scores_without_tie_breaks == pytest.approx(expected)


def test_a_watch_decides_by_the_statistic_times_its_instruments() -> None:
    days, failed = make_days(11)
    found = find_instrument_findings(["pass_rate_down", "longer"], days, BASELINE)["pass_rate_down"]
    assert found.score == pytest.approx(failed[-1].mean())
    assert found.notice_statistic == pytest.approx(measure_change_statistic(found.scores, BASELINE, 0.02).value)
    assert (found.notice_threshold, found.alarm_threshold) == (2 * 3_000, 2 * 100_000)
    low, high = failed[:BASELINE].mean(1).min(), failed[:BASELINE].mean(1).max()
    assert found.baseline is not None
    assert (found.baseline.low, found.baseline.high) == pytest.approx((low, high))


def test_the_likeliest_first_days_are_the_fewest_with_the_weight() -> None:
    draw = random.Random(12)
    scores = [draw.random() + 0.5 * (day >= 33) for day in range(40)]
    found = measure_change_statistic(scores, BASELINE, 0.02)
    ratios = found.likelihood_ratio_by_day
    assert found.likeliest_first_day == max(ratios, key=lambda day: ratios[day])
    fewest = next(
        chosen
        for size in range(1, 13)
        for chosen in [max(combinations(ratios, size), key=lambda days: sum(ratios[day] for day in days))]
        if sum(ratios[day] for day in chosen) >= FIRST_DAYS_WEIGHT * found.value
    )
    assert found.likeliest_first_days() == (min(fewest), max(fewest))


def test_the_shift_of_a_category_is_the_difference_of_its_means() -> None:
    days, failed = make_days(13)
    found = {each.category: each for each in measure_category_shifts("pass_rate_down", days[:28], days[40:])}
    for category, chosen in (("odd", slice(1, None, 2)), ("even", slice(0, None, 2))):
        expected = 1 - failed[:28, chosen].mean(), 1 - failed[40:, chosen].mean()
        assert (found[category].before, found[category].since) == pytest.approx(expected)


# ── Contributors ──


def test_no_three_in_ten_contributors_change_the_combined_statistic_beyond_the_honest_ones() -> None:
    """Whoever lies, and whatever they report: all subsets, extreme reports."""
    draw = random.Random(14)
    for count in (MIN_CONTRIBUTORS, 7, 10):
        honest = [draw.expovariate(0.1) for _ in range(count)]
        lying = math.floor(MAX_IGNORED_CONTRIBUTOR_SHARE * count)
        for liars in combinations(range(count), lying):
            rest = [value for at, value in enumerate(honest) if at not in liars]
            for report in (0.0, 1e300):
                told = [report if at in liars else value for at, value in enumerate(honest)]
                assert combine_contributor_statistics(told) <= max(rest) / count
                assert combine_contributor_statistics(told) >= sorted(rest)[-1 - lying] / count


def test_a_contributor_is_measured_and_all_are_combined_by_definition() -> None:
    draw = np.random.default_rng(15)
    series, values = list[ContributorSeries](), list[list[float]]()
    for contributor in range(6):
        passed = (draw.random((40, 25)) < (0.9 if contributor else 0.95)).astype(int)
        passed[32:] *= draw.random((8, 25)) < 0.6
        counts = {
            f"{day:02}": {str(prompt): (1, int(passed[day, prompt])) for prompt in range(25)} for day in range(40)
        }
        days = make_contributor_days(f"seed {contributor}", counts)
        series.append(measure_contributor(days))
        scores = (1 - passed.mean(1) + np.array([each.tie_break for each in days]) / 25).tolist()
        values.append([each.value for each in iterate_change_statistics(scores, BASELINE, 0.02)])
        assert list(series[-1].notice.values()) == pytest.approx(values[-1])
        assert [*series[-1].notice] == [f"{day:02}" for day in range(BASELINE, 40)]
    combined = np.sort(np.array(values), axis=0)[-2] / 6  # floor(0.3 · 6) = 1 is ignored
    found = decide_public_watch(series)
    assert found.notice_statistic == pytest.approx(combined[-1])
    assert found.notice_day == f"{BASELINE + int((combined >= 3_000).argmax()):02}"


# ── Power ──


@pytest.mark.parametrize("model", [AssumedModel(2.5, 2.0), AssumedModel(0.0, 0.5), AssumedModel(20.0, 12.0)])
def test_means_over_cases_match_scipys_integrals(model: AssumedModel) -> None:
    def integrate(function: "object") -> float:
        def density(node: float) -> float:
            return float(function(model.mean_logit + model.case_spread * node) * stats.norm.pdf(node))  # type: ignore[operator]

        kink = -model.mean_logit / model.case_spread
        return float(quad(density, -8, 8, points=[max(-7.9, min(7.9, kink))], limit=400)[0])

    rate = integrate(special.expit)
    assert model.pass_rate() == pytest.approx(rate, abs=2e-6)
    assert model.case_mean(special.expit) == pytest.approx(rate, abs=2e-6)
    assert model.case_means(lambda logit: (special.expit(logit), 1.0)) == pytest.approx([rate, 1.0], abs=2e-6)
    flips = integrate(lambda logit: 2 * special.expit(logit) * special.expit(-logit))
    assert model.flip_share() == pytest.approx(flips, abs=2e-6)
    shift = model.shift_for_loss(rate / 3)
    assert integrate(lambda logit: special.expit(logit - shift)) == pytest.approx(rate * 2 / 3, abs=4e-6)


def test_the_difference_of_cases_has_the_moments_of_binomial_counts() -> None:
    """By the probabilities of all pairs of counts, at 4,001 places of the distribution of cases."""
    model, repeats = AssumedModel(2.0, 1.5), 4
    found = measure_case_difference(model, 0.1, repeats)
    shift, nodes = model.shift_for_loss(0.1), np.linspace(-7, 7, 4001)
    weights = stats.norm.pdf(nodes) / stats.norm.pdf(nodes).sum()
    counts = np.arange(repeats + 1)
    before, after = (
        stats.binom.pmf(counts[:, None], repeats, special.expit(2.0 + 1.5 * nodes - moved)) for moved in (0.0, shift)
    )
    pairs = (before[:, None, :] * after[None, :, :]) @ weights
    lost = counts[:, None] - counts[None, :]
    assert found.changed_share == pytest.approx(pairs[lost != 0].sum(), abs=1e-5)
    for power, moment in enumerate(found.moments, 1):
        assert moment == pytest.approx((pairs * lost**power).sum(), rel=1e-4)
    single = measure_case_difference(model, 0.1, 1)
    assert single.flip_share == pytest.approx(found.flip_share)
    assert single.changed_share == pytest.approx(single.flip_share)


def test_the_spread_of_days_has_the_deviation_that_was_measured() -> None:
    """By 20,000 drawn days; the shipped form takes the slope within one standard deviation."""
    model = fit_model(0.9, 0.13, find_day_spread(0.9, 0.13, 0.03))
    draw = np.random.default_rng(16)
    nodes = np.linspace(-6, 6, 401)
    weights = stats.norm.pdf(nodes) / stats.norm.pdf(nodes).sum()
    effects = model.day_spread * draw.normal(size=20_000)
    rates = special.expit(model.mean_logit + model.case_spread * nodes[:, None] + effects[None, :]).T @ weights
    assert model.day_difference() / math.sqrt(2) == pytest.approx(0.03, abs=1e-6)
    assert rates.std() == pytest.approx(0.03, rel=0.05)


def test_the_report_of_an_endpoint_is_that_of_its_days() -> None:
    days, failed = make_days(17, 0.85)
    report = report_endpoint(days, BASELINE, 2)
    rates = failed[:BASELINE].mean(0)
    assert report is not None
    assert report.pass_rate == pytest.approx(1 - rates.mean())
    assert report.flip_share == pytest.approx(2 * (rates * (1 - rates)).mean())
    assert report.call_standard_deviation == pytest.approx(math.sqrt((rates * (1 - rates)).sum()) / PROMPTS)
    model = fit_model(report.pass_rate, report.flip_share, report.day_sd_logits)
    expected = simulate_watch_delay(model, PROMPTS, 1, 0.2, instruments=2)
    forecast = next(each for each in report.delays if each.change == 0.2)
    assert (forecast.notice_days, forecast.alarm_days) == (expected.notice.median_days, expected.alarm.median_days)


def test_so_many_cases_exclude_a_loss_of_differences_of_several_sizes() -> None:
    """By 500 drawn comparisons of an unchanged model whose cases have three repeats."""
    shares, draw = {0.0: 0.8, 1 / 3: 0.12, 2 / 3: 0.06, 1.0: 0.02}, np.random.default_rng(19)
    cases, excluded = count_cases_to_exclude_loss(0.1, shares), 0
    for _ in range(500):
        sizes = draw.choice(list(shares), cases, p=list(shares.values()))
        found = case_mean_interval((sizes * draw.choice([-1, 1], cases)).tolist(), -1.0, 1.0)
        excluded += found.low > -0.1
    assert 0.75 <= excluded / 500 <= 0.88


# ── Two endpoints ──


def test_the_share_of_seen_swaps_of_pinned_replies_is_all_or_nothing_at_the_pair_that_proves_it() -> None:
    """Replies that never vary leave no chance: a swap is seen in every try from one pair on, and in none before."""

    def pair(other: str) -> CallPair:
        return CallPair("p", (Answered("a", 0.1), Answered(other, 0.1)), is_border=False)

    proving = next(count for count in range(1, 100) if make_endpoint_test([pair("b")] * count).is_different)
    odds = make_endpoint_test([pair("b")] * proving).make_finding()
    assert odds.p_value <= 0.001
    texts_alone = next(
        count for count in range(1, 200) if simulate_seen_shares([pair("a")] * count, tries=1)[0].seen == 1.0
    )
    for count, share in ((texts_alone - 1, 0.0), (texts_alone, 1.0)):
        (found,) = simulate_seen_shares([pair("a")] * count, tries=7)
        assert (found.change, found.seen) == ("swap", share)


def test_the_odds_of_two_endpoints_are_the_mean_of_the_stakes() -> None:
    draw = random.Random(18)
    pairs = [
        CallPair(str(at % 4), (Answered(draw.choice("ab"), 0.1), Answered(draw.choice("ab") * 2, 0.2)), is_border=False)
        for at in range(25)
    ]
    bets = PairedTest(["length"], ["reply"])
    for each in pairs:
        first, second = (reply.text if reply else "" for reply in each.replies)
        bets.add(ReplyPair(each.prompt, (first, second), {"length": (len(first), len(second))}))
    assert bets.e_value == pytest.approx(np.mean(list(bets.e_values.values())))
    test = make_endpoint_test(pairs)
    finding = test.make_finding()
    assert test.pairs == finding.pairs == 25
    assert test.odds == pytest.approx(np.mean([each.odds for each in finding.evidence]))
    for evidence in finding.evidence:
        if evidence.values:
            lengths = [[len(one.replies[side].text) for one in pairs if one.replies[side]] for side in (0, 1)]  # type: ignore[union-attr]
            assert evidence.values == pytest.approx([np.mean(side) for side in lengths])


@pytest.mark.parametrize("seed", range(5))
def test_the_accuracy_of_a_judge_weighs_each_label_with_the_replies_that_it_stands_for(seed: int) -> None:
    draw = random.Random(seed)
    strata = [
        Stratum(
            judge_passed=verdict,
            reply_count=draw.randint(60, 900),
            yes_labels=draw.randint(1, 30),
            no_labels=draw.randint(10, 30),
        )
        for verdict in (True, False)
        for _ in range(2)
    ]
    weights, agreements = list[float](), list[bool]()
    for each in strata:
        labels = [True] * each.yes_labels + [False] * each.no_labels
        weights += [each.reply_count / len(labels)] * len(labels)
        agreements += [label == each.judge_passed for label in labels]
    expected = np.average(agreements, weights=weights)
    assert estimate_accuracy(strata) == estimate_accuracy_of_strata(strata) == pytest.approx(expected)
    assert estimate_accuracy_of_strata([each for each in strata if each.judge_passed]) is not None
    unlabelled = Stratum(judge_passed=False, reply_count=100)
    assert estimate_accuracy_of_strata([strata[0], unlabelled]) is None


@pytest.mark.parametrize("seed", range(5))
def test_the_expected_shift_of_answers_matches_numpy(seed: int) -> None:
    counts = np.random.default_rng(seed).integers(1, 40, 6)
    shares = counts / counts.sum()
    variances = shares * (1 - shares)
    noise = np.sqrt(variances / ASSUMED_DAILY_CALLS_PER_PROMPT)
    expected = (np.hypot(noise, variances / 2) - noise).sum()
    assert expected_shift_above_noise(Counter({str(at): int(each) for at, each in enumerate(counts)})) == pytest.approx(
        expected
    )
