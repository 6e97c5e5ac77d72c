"""Every statistic has an oracle: a table of functions and of the tests that compare them, against the code.

A function or property of `pramana.analyse` that returns a number, an interval or a struct with one is a statistic, and
stands in `ORACLES` with what it is compared with and by which test, unless `NOT_STATISTICS` says what else it returns.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import pytest

import pramana

ANALYSE = Path(pramana.__file__).parent / "analyse"
TESTS = Path(__file__).parent
Kind = Literal["scipy", "statsmodels", "numpy", "enumeration", "definition", "simulation"]
"""`definition`: another program that follows the definition literally. `simulation`: drawn runs or days, with the error
that the test allows."""


class Oracle(NamedTuple):
    kind: Kind
    test: str
    """`file::test`, of `tests/analyse`, without `test_` and `.py` in the file."""


_D, _I, _M, _P = "definitions", "intervals", "mean_bounds", "power"
ORACLES: dict[str, Oracle] = {
    name: Oracle(kind, f"{file}::test_{test}")  # type: ignore[arg-type]
    for kind, file, test, names in (
        # ── P-values, quantiles, intervals ──
        ("scipy", _D, "normal_quantiles_and_logits_match_scipy", "intervals:normal_quantile power:logistic"),
        ("statsmodels", _I, "mcnemar_matches_statsmodels", "intervals:mcnemar_p_value"),
        ("enumeration", _I, "the_sign_flip_test_is_exact", "intervals:sign_flip_p_value"),
        ("statsmodels", _I, "adjusted_p_values_match_statsmodels", "intervals:adjust_p_values"),
        ("scipy", _D, "the_sign_test_of_a_median_matches_scipy", "intervals:median_p_value"),
        ("scipy", "changes", "the_median_interval_equals_that_of_the_sign_test", "intervals:median_interval"),
        ("numpy", _I, "the_interval_of_a_ratio_is_the_jackknifes", "intervals:ratio_difference_interval"),
        ("definition", _I, "the_interval_of_a_skewed_mean_solves_halls_equation", "intervals:skewed_mean_interval"),
        ("scipy", _I, "student_quantile_matches_scipy_for_every_freedom", "intervals:student_quantile"),
        ("numpy", _I, "percentiles_match_numpy", "intervals:percentile"),
        (
            "scipy",
            _I,
            "the_bound_of_a_percentile_holds_for_every_distribution_and_is_the_smallest",
            "intervals:percentile_bound_rank",
        ),
        (
            "enumeration",
            _M,
            "the_interval_of_a_difference_covers_the_truth_in_every_world",
            "intervals:align_with_test",
        ),
        ("scipy", _M, "the_interval_of_three_values_matches_a_quadrature", "mean_bounds:case_mean_interval"),
        (
            "statsmodels",
            _M,
            "the_interval_of_a_rate_matches_statsmodels",
            "mean_bounds:rate_interval mean_bounds:rate_lower_bound",
        ),
        ("scipy", _M, "the_beta_tail_matches_scipy", "mean_bounds:beta_tail"),
        ("statsmodels", _D, "the_interval_of_a_rate_of_cases_matches_statsmodels", "rates:Rate.interval"),
        (
            "definition",
            "spread",
            "the_bound_of_a_percentile_is_the_first_order_statistic_that_is_high_enough_in_95_of_100_samples",
            "intervals:bound_percentile",
        ),
        (
            "statsmodels",
            "joint_comparison",
            "the_levels_reject_what_statsmodels_rejects_by_holm",
            "joint_comparison:find_holm_levels",
        ),
        (
            "statsmodels",
            "joint_comparison",
            "pairs_are_comparisons_of_two_sides_with_p_values_adjusted_as_statsmodels_does",
            "joint_comparison:compare_pairs joint_comparison:decide_together",
        ),
        (
            "statsmodels",
            "position_bias",
            "counts_tests_and_intervals_agree_with_scipy_and_statsmodels",
            "position_bias:measure_position_bias position_bias:VerdictChanges.interval",
        ),
        (
            "statsmodels",
            "watch_family",
            "adjusted_p_values_equal_those_of_statsmodels",
            "watch_family:adjust_for_false_discoveries",
        ),
        (
            "simulation",
            "watch_family",
            "p_values_of_unchanged_watches_are_no_smaller_than_chance",
            "watch_family:bound_p_value",
        ),
        (
            "definition",
            _D,
            "the_accuracy_of_a_judge_weighs_each_label_with_the_replies_that_it_stands_for",
            "calibration:estimate_accuracy_of_strata judge_report:estimate_accuracy",
        ),
        ("numpy", _D, "the_expected_shift_of_answers_matches_numpy", "border_prompts:expected_shift_above_noise"),
        (
            "definition",
            "watch",
            "a_shift_of_logprobs_is_the_least_that_both_lists_allow",
            "instruments:measure_logprob_shift",
        ),
        # ── Power and sizes ──
        ("enumeration", _I, "required_cases_have_the_stated_power", "intervals:cases_needed"),
        ("scipy", _I, "the_power_of_mcnemars_test_matches_enumeration", "intervals:mcnemar_power"),
        ("simulation", _I, "the_normal_power_of_the_sign_flip_test_matches_drawn_tables", "intervals:sign_flip_power"),
        ("enumeration", _D, "the_smallest_count_is_found_by_trying_all", "intervals:find_smallest"),
        (
            "simulation",
            _D,
            "so_many_cases_exclude_a_loss_of_differences_of_several_sizes",
            "mean_bounds:count_cases_to_exclude_loss",
        ),
        (
            "simulation",
            _M,
            "so_many_cases_exclude_a_loss_in_four_of_five_runs_of_an_unchanged_model",
            "mean_bounds:cases_to_exclude_loss",
        ),
        (
            "scipy",
            _D,
            "means_over_cases_match_scipys_integrals",
            "power:AssumedModel.case_mean power:AssumedModel.case_means power:AssumedModel.pass_rate "
            "power:AssumedModel.flip_share power:AssumedModel.shift_for_loss",
        ),
        (
            "simulation",
            _D,
            "the_spread_of_days_has_the_deviation_that_was_measured",
            "power:AssumedModel.day_difference power:find_day_spread",
        ),
        ("scipy", _D, "a_crossing_is_the_root", "power:find_crossing"),
        ("simulation", _P, "a_fitted_model_has_the_given_pass_rate_and_flips", "power:fit_model"),
        (
            "scipy",
            _D,
            "the_difference_of_cases_has_the_moments_of_binomial_counts",
            "power:measure_case_difference",
        ),
        ("scipy", _P, "large_comparisons_agree_with_the_normal_distribution", "power:CaseDifference.power"),
        ("scipy", _D, "the_chance_of_at_least_so_many_matches_scipy", "power:chance_of_at_least"),
        (
            "statsmodels",
            _P,
            "cases_that_flip_independently_need_what_two_independent_proportions_need",
            "power:cases_to_detect",
        ),
        (
            "scipy",
            _P,
            "the_detectable_loss_is_found_with_the_stated_power_in_up_to_a_million_cases",
            "power:detectable_loss",
        ),
        ("simulation", _P, "the_cases_that_exclude_a_loss_do_so_as_often_as_planned", "power:cases_to_exclude"),
        ("simulation", _P, "simulated_delays_are_those_of_the_recorded_soak", "delays:simulate_watch_delay"),
        ("definition", _D, "the_report_of_an_endpoint_is_that_of_its_days", "own_endpoint:report_endpoint"),
        # ── Judges and labels ──
        (
            "numpy",
            _D,
            "corrected_rates_and_agreement_are_quantiles_of_jeffreys_posterior",
            "calibration:correct_rate_of_strata calibration:measure_agreement_of_strata",
        ),
        ("simulation", "calibration", "corrected_intervals_cover_the_true_rate", "calibration:correct_rate"),
        (
            "statsmodels",
            "calibration",
            "kappa_equals_statsmodels_when_labels_are_drawn_evenly",
            "calibration:measure_agreement",
        ),
        (
            "definition",
            "calibration",
            "labels_from_elsewhere_are_rogan_and_gladens",
            "calibration:correct_rate_with_other_labels",
        ),
        (
            "definition",
            "calibration",
            "labels_drawn_half_among_no_are_weighed_when_they_correct_another_run",
            "calibration:correct_rate_with_other_runs",
        ),
        ("definition", "calibration", "missing_labels_are_estimated", "calibration:count_labels_for_width"),
        ("definition", "calibration", "alpha_of_two_raters_by_its_definition", "calibration:krippendorff_alpha"),
        (
            "statsmodels",
            _D,
            "the_kappa_of_two_judges_and_the_share_of_unanimous_verdicts_match_statsmodels",
            "panels:measure_panels panels:PanelAgreement.unanimous_interval",
        ),
        # ── Comparisons ──
        ("enumeration", "comparison", "the_p_value_is_the_share_of_all_sign_swaps", "comparison:compare"),
        (
            "enumeration",
            "comparison",
            "a_comparison_that_is_prepared_first_has_the_p_value_of_all_sign_swaps",
            "comparison:prepare_comparison comparison:PreparedComparison.p_value "
            "comparison:PreparedComparison.difference comparison:PreparedComparison.decide paired_tests:weigh_pairs "
            "paired_tests:TestedPairs.decide paired_tests:find_mean paired_tests:group_pairs_by_case "
            "paired_tests:Evidence.count_needed_cases",
        ),
        (
            "statsmodels",
            _D,
            "changes_have_the_p_values_of_the_sign_test_and_holms_correction",
            "changes:measure_changes",
        ),
        ("statsmodels", _D, "the_voice_tax_has_mcnemars_p_value", "voice:measure_voice_taxes"),
        (
            "definition",
            _D,
            "shares_are_quotients_and_small_ones_are_hidden",
            "voice:EventShare.value voice:WordErrors.rate voice:WordErrors.character_rate watch_facts:HashConsistency.share "
            "pairing:Pair.difference rates:Rate.value",
        ),
        # ── Two endpoints ──
        (
            "enumeration",
            "same",
            "the_stakes_have_mean_one_over_all_labellings",
            "same:PairedTest.e_values",
        ),
        ("enumeration", "same", "at_most_a_share_p_of_the_labellings_ever_reaches_p", "same:PairedTest.p_value"),
        (
            "numpy",
            _D,
            "the_odds_of_two_endpoints_are_the_mean_of_the_stakes",
            "same:PairedTest.e_value endpoints:EndpointTest.odds endpoints:EndpointTest.make_finding",
        ),
        (
            "enumeration",
            _D,
            "the_share_of_seen_swaps_of_pinned_replies_is_all_or_nothing_at_the_pair_that_proves_it",
            "same_power:simulate_seen_shares",
        ),
        ("scipy", _D, "the_entropy_of_answers_matches_scipy", "border_prompts:entropy_bits"),
        # ── Drift ──
        (
            "definition",
            "drift",
            "every_ratio_is_the_product_over_the_ranks_also_with_ties",
            "drift:measure_change_statistic",
        ),
        (
            "definition",
            "drift",
            "day_by_day_the_statistic_is_that_of_the_days_so_far",
            "drift:iterate_change_statistics",
        ),
        (
            "enumeration",
            "drift",
            "each_ratio_has_mean_one_over_all_orders_of_the_days",
            "drift:AlertLevel.false_alarm_share",
        ),
        (
            "enumeration",
            _D,
            "the_likeliest_first_days_are_the_fewest_with_the_weight",
            "drift:ChangeStatistic.likeliest_first_day drift:ChangeStatistic.likeliest_first_days",
        ),
        (
            "numpy",
            _D,
            "the_score_of_a_day_is_the_baselines_mean_and_what_its_answered_prompts_moved",
            "drift:score_day",
        ),
        (
            "numpy",
            _D,
            "the_days_of_the_pass_rate_are_scored_by_definition",
            "instruments:score_days drift:measure_baseline_spread drift:BaselineSpread.tolerance",
        ),
        (
            "scipy",
            _D,
            "the_correlation_of_a_day_with_the_next_is_that_of_scipys_ranks",
            "drift:next_day_rank_correlation",
        ),
        (
            "enumeration",
            _D,
            "no_three_in_ten_contributors_change_the_combined_statistic_beyond_the_honest_ones",
            "drift:combine_contributor_statistics",
        ),
        (
            "numpy",
            _D,
            "a_contributor_is_measured_and_all_are_combined_by_definition",
            "public_watch:measure_contributor public_watch:decide_public_watch",
        ),
        (
            "definition",
            _D,
            "a_watch_decides_by_the_statistic_times_its_instruments",
            "watch:find_instrument_findings watch:InstrumentFinding.score",
        ),
        ("enumeration", "watch", "the_tail_of_a_day_equals_enumeration", "watch:poisson_binomial_tail"),
        (
            "numpy",
            _D,
            "the_shift_of_a_category_is_the_difference_of_its_means",
            "watch_facts:measure_category_shifts",
        ),
        (
            "definition",
            "watch",
            "hash_consistency_counts_replies_equal_to_the_usual_one",
            "watch_facts:measure_hash_consistency",
        ),
        # ── Descriptions of runs ──
        (
            "enumeration",
            "repeats",
            "the_estimates_are_shares_of_all_choices_of_replies",
            "repeats:estimate_pass_at_k repeats:estimate_pass_all_k",
        ),
        (
            "simulation",
            "repeats",
            "the_intervals_cover_the_truth_if_rare_cases_always_fail",
            "repeats:RepeatTally.summarise",
        ),
        (
            "statsmodels",
            "scores",
            "the_interval_of_a_mean_is_students_and_corrected_for_skewness",
            "scores:ScoreTally.summarise",
        ),
        (
            "definition",
            "scores",
            "rubric_scores_are_averaged_by_type_and_language_like_scorers",
            "scores:RubricTally.averages",
        ),
        (
            "definition",
            "scores",
            "a_result_rated_at_several_lines_has_the_means",
            "scores:average_rubric_ratings",
        ),
        ("numpy", _D, "the_spread_of_times_matches_numpy", "spread:measure_time_spread"),
        (
            "definition",
            "spread",
            "every_time_is_in_its_labelled_bin",
            "spread:make_histogram spread:find_time_step_index",
        ),
        ("definition", "spread", "models_are_compared_on_one_scale", "spread:SpreadTally.summarise_times"),
        (
            "scipy",
            _D,
            "the_upper_bound_of_a_latency_is_the_order_statistic_of_the_binomial_distribution",
            "voice:measure_latency",
        ),
        (
            "definition",
            "voice",
            "lines_are_summarised",
            "voice:measure_turn_taking voice:VoiceSummary.voice_to_voice voice:VoiceSummary.median_leading_silence_s",
        ),
        (
            "definition",
            "calls",
            "word_errors_are_pooled_over_words_not_averaged_over_calls",
            "voice:CallTally.summarise_voice",
        ),
    )
    for name in names.split()
}
NOT_STATISTICS: dict[str, str] = {
    name: reason
    for reason, names in (
        (
            "counts what is there",
            "calibration:LabelCounts.judge_yes_count calibration:LabelCounts.judge_no_count "
            "calibration:LabelCounts.total calibration:count_labels calibration:count_missing_labels "
            "calibration:count_labels_to_draw endpoints:EndpointTest.pairs judges:JudgeTally.count_verdicts "
            "rates:Rate.scored_count rates:Rate.undecided_count rates:Rate.total rates:make_rate rates:make_model_rates "
            "replies:compare_replies voice:VoiceTax.causes summary:Summary.breakdown "
            "position_bias:VerdictChanges.changed_count",
        ),
        (
            "sorts, pairs or reads stored data, without arithmetic",
            "calibration:LabelCounts.as_strata changes:merge_repeats features:make_features features:make_border_days "
            "features:make_logprob_days "
            "instruments:DayFeatures.case_prompts instruments:Instrument.choose_prompts judge_report:combine_labels "
            "judge_report:pool_strata judge_report:make_strata judge_report:group_by_source labelling:split_task_name labelling:list_verdicts "
            "labelling:draw_replies pairing:pair_answers public_watch:make_contributor_days "
            "replies:iterate_answers_with_verdict scores:read_rubric_ratings voice:read_measured_lines "
            "voice:list_latency_observations voice:make_modality_result voice:read_recognition_errors "
            "voice:read_reference_errors",
        ),
        ("parses what a user typed", "changes:parse_limit"),
        (
            "an exit code, decided by an interval that is in the table",
            "changes:decide_slowdown comparison:Comparison.exit_code endpoints:EndpointFinding.exit_code gate:decide_exit "
            "gate:choose_worst_exit_code joint_comparison:decide_exit_code",
        ),
        ("a constant", "instruments:Instrument.reference_days"),
        ("a constant share, times a number of watches", "watch_family:expect_false_notices"),
        (
            "names the side that a difference with an adjusted p-value favours",
            "joint_comparison:PairComparison.winner joint_comparison:PairComparison.loser",
        ),
        (
            "adds up calls, tokens and prices before a run",
            "estimate:estimate_tokens estimate:Estimate.calls estimate:Estimate.input_tokens "
            "estimate:Estimate.output_tokens estimate:Estimate.cost_usd estimate:estimate estimate:forecast_judging",
        ),
        ("adds up what a run took", "summary:KnownTotal.value summary:ResultTally.summary"),
        ("collects statistics of `calibration` in one struct", "judge_report:report_judges"),
    )
    for name in names.split()
}


def _read_names(annotation: ast.expr | None) -> set[str]:
    return set() if annotation is None else set(re.findall(r"[A-Za-z_]+", ast.unparse(annotation)))


def _iterate_classes(trees: dict[str, ast.Module]) -> Iterator[tuple[str, ast.ClassDef]]:
    for module, tree in trees.items():
        yield from ((module, node) for node in tree.body if isinstance(node, ast.ClassDef))


def find_statistics(trees: dict[str, ast.Module]) -> set[str]:
    """Return the public functions, methods and properties that return a number, or a struct that holds one."""
    numeric = {"float", "int", "Interval"}
    grows = True
    while grows:
        grows = False
        for _, node in _iterate_classes(trees):
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            if node.name not in numeric and any(_read_names(each.annotation) & numeric for each in fields):
                numeric.add(node.name)
                grows = True
    scopes = [(f"{module}:", tree.body) for module, tree in trees.items()]
    scopes += [(f"{module}:{node.name}.", node.body) for module, node in _iterate_classes(trees) if node.name[0] != "_"]
    return {
        f"{scope}{each.name}"
        for scope, body in scopes
        for each in body
        if isinstance(each, ast.FunctionDef) and each.name[0] != "_" and _read_names(each.returns) & numeric
    }


def parse_modules() -> dict[str, ast.Module]:
    return {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ANALYSE.glob("*.py"))}


def test_every_statistic_has_an_oracle() -> None:
    found = find_statistics(parse_modules())
    assert len(found) > 140, "the walk lost its way"
    assert found - set(ORACLES) - set(NOT_STATISTICS) == set(), "compare each with an oracle, and list the test here"
    assert (set(ORACLES) | set(NOT_STATISTICS)) - found == set(), "these are gone, or return no number any more"
    assert set(ORACLES) & set(NOT_STATISTICS) == set()


def test_the_walk_sees_functions_properties_and_structs_of_numbers() -> None:
    source = """
class Found(Struct):
    value: float | None

class Report(Struct):
    found: tuple[Found, ...]

    @property
    def share(self) -> float: ...
    def _hidden(self) -> float: ...

def measure() -> Report | None: ...
def describe() -> str: ...
def _draw() -> float: ...
"""
    assert find_statistics({"new": ast.parse(source)}) == {"new:Report.share", "new:measure"}


def _collect_names(tree: ast.Module, test: str) -> set[str]:
    """Return the names that a test and the functions of its file that it calls use, directly or not; no docstrings."""
    functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
    wanted, seen, found = [test], set[str](), set[str]()
    while wanted:
        name = wanted.pop()
        if name in functions and name not in seen:
            seen.add(name)
            for each in ast.walk(functions[name]):
                used = each.id if isinstance(each, ast.Name) else each.attr if isinstance(each, ast.Attribute) else ""
                found.add("assert" if isinstance(each, ast.Assert) else used)
                if isinstance(each, ast.Name):
                    wanted.append(each.id)
    return found


THROUGH = {
    "drift:AlertLevel.false_alarm_share": "likelihood_ratio_by_day",
    "scores:RubricTally.averages": "rubric",
    "voice:VoiceSummary.voice_to_voice": "measure_turn_taking",
    "voice:VoiceSummary.median_leading_silence_s": "measure_turn_taking",
}
"""What a test compares instead of the function itself, which only divides by it or passes it on."""


@pytest.mark.parametrize("name", ORACLES)
def test_each_named_test_exists_and_calls_the_function(name: str) -> None:
    oracle = ORACLES[name]
    assert oracle.kind in get_args(Kind)
    file, _, test = oracle.test.partition("::")
    used = _collect_names(ast.parse((TESTS / f"test_{file}.py").read_text(encoding="utf-8")), test)
    assert used, f"{oracle.test} does not exist"
    called = THROUGH.get(name) or name.rpartition(":")[2].rpartition(".")[2]
    assert called in used, f"{oracle.test} does not use {called}"
    assert "assert" in used
