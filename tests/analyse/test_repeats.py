"""pass@k and pass^k against enumeration, and over cases, variants and missing verdicts."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import binom  # type: ignore[import-untyped]

from pramana.analyse.repeats import RepeatTally, estimate_pass_all_k, estimate_pass_at_k
from pramana.analyse.summary import ResultTally
from pramana.model import Case, Check, Facets, Outcome, Reply, Result, ResultKey
from pramana.report.figures import describe_repeats


@pytest.mark.parametrize("verdicts", range(1, 8))
def test_the_estimates_are_shares_of_all_choices_of_replies(verdicts: int) -> None:
    for passed in range(verdicts + 1):
        replies = [True] * passed + [False] * (verdicts - passed)
        for k in range(1, verdicts + 1):
            chosen = list(combinations(replies, k))
            assert estimate_pass_at_k(verdicts, passed, k) == pytest.approx(sum(map(any, chosen)) / len(chosen))
            assert estimate_pass_all_k(verdicts, passed, k) == pytest.approx(sum(map(all, chosen)) / len(chosen))


@pytest.mark.parametrize("rate", [0.05, 0.5, 0.9])
def test_the_estimates_are_unbiased(rate: float) -> None:
    for verdicts, k in ((5, 2), (5, 5), (10, 3)):
        chances = binom.pmf(range(verdicts + 1), verdicts, rate)
        at_k = sum(chance * estimate_pass_at_k(verdicts, passed, k) for passed, chance in enumerate(chances))
        all_k = sum(chance * estimate_pass_all_k(verdicts, passed, k) for passed, chance in enumerate(chances))
        assert (at_k, all_k) == pytest.approx((1 - (1 - rate) ** k, rate**k))


def test_the_intervals_cover_the_truth_if_rare_cases_always_fail() -> None:
    draw, rounds, covered = np.random.default_rng(9), 200, [0, 0]
    truths = 0.93 * (1 - 0.1**3), 0.93 * 0.9**3
    for _ in range(rounds):
        tally = RepeatTally(5)
        for case in range(25):
            rate = 0.0 if draw.random() < 0.07 else 0.9
            for _ in range(5):
                tally.add("m", str(case), "text", is_passed=bool(draw.random() < rate))
        (found,) = (each for each in tally.summarise() if each.k == 3)
        for at, (interval, truth) in enumerate(
            zip((found.pass_at_k_interval, found.pass_all_k_interval), truths, strict=True)
        ):
            covered[at] += interval.low <= truth <= interval.high
    assert min(covered) / rounds >= 0.94


def test_variants_of_a_case_are_averaged_and_cases_with_few_verdicts_are_left_out() -> None:
    tally = RepeatTally(2)
    for variant, passed in (("text", (True, True)), ("voice", (True, False))):
        for each in passed:
            tally.add("m", "both", variant, is_passed=each)
    tally.add("m", "one verdict", "text", is_passed=True)
    (found,) = tally.summarise()
    assert (found.k, found.cases, found.excluded_cases) == (2, 1, 1)
    assert (found.pass_at_k, found.pass_all_k) == (1.0, 0.5)
    assert RepeatTally(1).summarise() == ()


def test_a_summary_has_them_only_for_runs_with_repeats() -> None:
    tally = ResultTally(repeats=3)
    for number in range(4):
        case = Case(f"c-{number}", "test_case", (), Facets("factual", "easy"))
        for repeat in range(3):
            check = Check("contains", "1", Outcome.FAILED if repeat == number else Outcome.PASSED, "")
            key = ResultKey(f"sha256:{number}", "m", repeat=repeat)
            tally.add(case, Result(key, case.id, Reply("x"), None, (check,), None, None))
    summary = tally.summary()
    assert [(each.k, each.pass_all_k) for each in summary.repeats] == [(2, 0.5), (3, 0.25)]
    assert summary.as_data()["repeats"][1]["pass_at_k"] == 1.0
    assert [name for name, _, _ in describe_repeats(summary.repeats)] == ["pass@2, pass^2", "pass@3, pass^3"]
    assert "repeats" not in ResultTally().summary().as_data()
