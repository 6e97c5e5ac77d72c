"""Several sides decided together: Holm against statsmodels, pairs against comparisons of two, and simulated errors."""

import random
from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

from pramana.analyse.comparison import PreparedComparison, compare, prepare_comparison
from pramana.analyse.intervals import adjust_p_values
from pramana.analyse.joint_comparison import (
    PairComparison,
    PreparePair,
    compare_pairs,
    decide_exit_code,
    decide_together,
    describe_proven,
    find_holm_levels,
)
from pramana.analyse.pairing import Outcomes, VerdictSource
from pramana.model import Outcome

P, F, E = Outcome.PASSED, Outcome.FAILED, Outcome.ERRORED


def make_side(passed: int, count: int = 20, *, errored: int = 0) -> Outcomes:
    """Return a side whose first cases pass; the last ones have no verdict."""
    return {f"case {each}": [E if each >= count - errored else P if each < passed else F] for each in range(count)}


def make_prepare(sides: Sequence[Outcomes]) -> PreparePair:
    def prepare(base: int, new: int) -> PreparedComparison:
        return prepare_comparison(sides[base], sides[new])

    return prepare


def compare_all(*sides: Outcomes, reference: int | None = None) -> list[PairComparison]:
    return compare_pairs(len(sides), make_prepare(sides), reference=reference)


def make_random_sides(chance: random.Random, rates: Sequence[float], cases: int, repeats: int = 1) -> list[Outcomes]:
    """Return sides with these pass rates over cases of different difficulty, which all sides share."""
    difficulties = [chance.uniform(-0.25, 0.25) for _ in range(cases)]
    return [
        {
            f"case {number}": [P if chance.random() < rate + harder else F for _ in range(repeats)]
            for number, harder in enumerate(difficulties)
        }
        for rate in rates
    ]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(1e-9, 1), min_size=1, max_size=45))
def test_the_levels_reject_what_statsmodels_rejects_by_holm(p_values: list[float]) -> None:
    rejected, adjusted, *_ = multipletests(p_values, alpha=0.05, method="holm")
    assert adjust_p_values(p_values) == pytest.approx(list(adjusted))
    decided = [p <= level for p, level in zip(p_values, find_holm_levels(p_values), strict=True)]
    clear = [abs(each - 0.05) > 1e-12 for each in adjusted]
    assert [each for each, counts in zip(decided, clear, strict=True) if counts] == [
        bool(each) for each, counts in zip(rejected, clear, strict=True) if counts
    ]


@pytest.mark.parametrize("repeats", [1, 3])
@pytest.mark.parametrize("reference", [None, 1])
def test_pairs_are_comparisons_of_two_sides_with_p_values_adjusted_as_statsmodels_does(
    repeats: int, reference: int | None
) -> None:
    chance = random.Random(4)
    for _ in range(6):
        sides = make_random_sides(chance, (0.7, 0.55, 0.5, 0.3), 30, repeats)
        found = compare_all(*sides, reference=reference)
        alone = [compare(sides[each.base_place], sides[each.new_place]) for each in found]
        _, adjusted, *_ = multipletests([each.p_value for each in alone], method="holm")
        assert [each.adjusted_p_value for each in found] == pytest.approx(list(adjusted))
        together = decide_together(
            [prepare_comparison(sides[each.base_place], sides[each.new_place]) for each in found]
        )
        assert [each.comparison for each in together] == [each.comparison for each in found]
        for each, one, p_value in zip(found, alone, adjusted, strict=True):
            joint = each.comparison
            assert (joint.p_value, joint.difference, joint.test) == (one.p_value, one.difference, one.test)
            assert (joint.lost, joint.gained, joint.pairs) == (one.lost, one.gained, one.pairs)
            assert (each.winner is not None) == (p_value <= 0.05)
            low, high = joint.interval.low, joint.interval.high
            assert (low <= one.interval.low, one.interval.high <= high) == (True, True)
            excludes_zero = low > 0 or high < 0 or (each.winner is not None and 0 in (low, high))
            assert excludes_zero == (each.winner is not None)
        if reference is not None:
            assert [(each.base_place, each.new_place) for each in found] == [(1, 0), (1, 2), (1, 3)]
        else:
            assert {frozenset((each.base_place, each.new_place)) for each in found} == set(
                map(frozenset, combinations(range(4), 2))
            )
            assert all((each.comparison.difference or 0) >= 0 for each in found)


def test_of_four_equal_models_few_tables_name_a_winner() -> None:
    """Simulated: at most 5 % of tables have any winner; without the correction, more than twice as many would.

    In 3,000 tables of 40, 75 and 150 cases each, 2.1 %, 2.7 % and 2.9 % have one, and 12 % to 17 % without it.
    """
    chance, rounds, winners, uncorrected = random.Random(21), 150, 0, 0
    for _ in range(rounds):
        sides = make_random_sides(chance, (0.5,) * 4, 40)
        found = compare_all(*sides)
        winners += any(each.winner is not None for each in found)
        uncorrected += any(each.comparison.p_value <= 0.05 for each in found)
    assert winners / rounds <= 0.05
    assert uncorrected / rounds > 0.1


def test_beside_a_worse_model_few_tables_name_a_winner_among_equal_ones() -> None:
    """Simulated: the chance of any false winner is at most 5 % too if some differences are real, and those are found.

    In 3,000 tables of 40, 75 and 150 cases each, with 30 % as the worst rate, 2.0 %, 3.2 % and 3.3 % have a false one.
    """
    chance, rounds, false_winners, found_worst = random.Random(8), 100, 0, 0
    for _ in range(rounds):
        found = compare_all(*make_random_sides(chance, (0.7, 0.7, 0.7, 0.2), 40))
        false_winners += any(each.winner is not None and each.loser != 3 for each in found)
        found_worst += sum(1 for each in found if each.loser == 3)
    assert false_winners / rounds <= 0.05
    assert found_worst / rounds / 3 > 0.9


def test_each_interval_covers_its_difference_in_95_percent_or_more() -> None:
    """Simulated; all intervals of a table together cover less, as the note beside them says."""
    chance, rates, covered, total = random.Random(3), (0.7, 0.6, 0.45, 0.3), 0, 0
    for _ in range(60):
        for each in compare_all(*make_random_sides(chance, rates, 40)):
            difference = rates[each.new_place] - rates[each.base_place]
            covered += each.comparison.interval.low <= difference <= each.comparison.interval.high
            total += 1
    assert covered / total >= 0.95


def test_fewer_comparisons_prove_more() -> None:
    sides = make_side(20), make_side(13), make_side(13), make_side(13)  # p = 1/64 each
    every = compare_all(*sides)
    assert [each.winner for each in every] == [None] * 6
    with_reference = compare_all(*sides, reference=0)
    assert [each.winner for each in with_reference] == [0, 0, 0]
    assert [each.adjusted_p_value for each in with_reference] == [3 / 64] * 3
    assert [round(each.comparison.alpha, 4) for each in with_reference] == [0.0167] * 3


def test_a_side_does_not_beat_others_by_leaving_out_cases() -> None:
    hiding = make_side(14, errored=6)
    whole = {**make_side(8), **{f"case {each}": [P] for each in range(14, 20)}}
    for reference in (0, None):
        (found,) = compare_all(whole, hiding, reference=reference)
        assert (found.comparison.p_value, found.comparison.difference) == (1 / 32, 6 / 14)
        assert (found.winner, found.comparison.verdict) == (None, "inconclusive")
        assert found.describe_result(["whole", "hiding"]) == "not proven: hiding has results without a verdict"
    few = {**make_side(20), "case 0": [E], "case 1": [E]}
    (found, *_) = compare_all(few, make_side(2), make_side(2))
    assert found.winner == 0  # proven with both counted as failed, too


def test_a_pair_without_comparable_cases_is_not_among_the_corrected_ones() -> None:
    apart: Outcomes = {"another": [P]}
    found = compare_all(make_side(20), make_side(13), apart)
    assert [each.comparison.pairs for each in found] == [20, 0, 0]
    assert found[0].adjusted_p_value == found[0].comparison.p_value == 1 / 64
    assert [each.describe_result("abc") for each in found] == ["a beats b", "no case to compare", "no case to compare"]
    assert describe_proven(found, "abc", None) == "Proven at 5 % (Holm's correction for 1 comparison): a beats b."
    nothing = compare_all(apart, make_side(1))
    assert describe_proven(nothing, "ab", None).startswith("Nothing could be compared")
    assert decide_exit_code(nothing, has_reference=False) == 4


def test_the_exit_code_is_the_worst_of_the_comparisons_with_the_reference() -> None:
    found = compare_all(make_side(20), make_side(20), make_side(5))
    assert decide_exit_code(found, has_reference=False) == 0
    worse, better = (compare_all(make_side(20), make_side(20), make_side(5), reference=each) for each in (0, 2))
    assert (decide_exit_code(worse, has_reference=True), decide_exit_code(better, has_reference=True)) == (1, 0)
    assert decide_exit_code(better, has_reference=True, fail_on="inconclusive") == 0
    alike = compare_all(make_side(20), make_side(20), make_side(19), reference=0)
    assert decide_exit_code(alike, has_reference=True) == 0
    assert decide_exit_code(alike, has_reference=True, fail_on="inconclusive") == 4  # 20 cases exclude no loss of 5
    # By itself the loss would be proven (p = 1/32), but not together with two more comparisons.
    family = compare_all(make_side(20), make_side(14), make_side(20), make_side(20), reference=0)
    assert decide_exit_code(family, has_reference=True) == 0
    assert decide_exit_code(family[:1], has_reference=True) == 0


def test_a_proven_loss_within_the_margin_is_named_and_exits_with_0() -> None:
    base, new = make_side(2_000, 2_000), make_side(1_980, 2_000)
    found = compare_all(base, new, base, reference=0)
    assert found[0].describe_result("abc") == "a beats b by less than the margin"
    for reference in (None, 1):  # the better side is the new one, with and without a reference
        better = compare_all(base, new, base, reference=reference)
        results = [each.describe_result("abc") for each in better if 1 in (each.base_place, each.new_place)]
        assert results == ["a beats b by less than the margin", "c beats b by less than the margin"]
    assert decide_exit_code(found, has_reference=True) == 0


def test_the_first_sentence_groups_winners_and_counts_many() -> None:
    found = compare_all(make_side(20), make_side(12), make_side(4))
    assert describe_proven(found, "abc", None) == (
        "Proven together at 5 % (Holm's correction for 3 comparisons): a beats b and c; b beats c."
    )
    assert describe_proven(compare_all(make_side(9), make_side(9)), "ab", 0) == (
        "No difference is proven at 5 % (Holm's correction for 1 comparison with a)."
    )
    many = compare_all(*(make_side(60 - 10 * each, 60) for each in range(6)))
    assert describe_proven(many, "abcdef", None) == (
        "15 differences are proven together at 5 % (Holm's correction for 15 comparisons)."
    )


def test_the_interval_excludes_zero_exactly_if_the_test_rejects_although_a_win_is_not_proven() -> None:
    """With errored results or another judge, the worst case may deny a win that the test and its interval show."""
    unproven = 0
    for count, errored in ((6, 6), (10, 12), (15, 15), (15, 3), (4, 6), (0, 8)):
        base = {f"case {each}": [F if 10 <= each < 10 + count else P] for each in range(40)}
        new = {f"case {each}": [E if each >= 40 - errored else P] for each in range(40)}
        for each in compare_all(base, new, make_side(36, 40)):
            found = each.comparison
            rejects = found.pairs > 0 and found.p_value <= found.alpha
            assert (found.interval.low > 0 or found.interval.high < 0) == rejects
            assert each.winner is None or rejects
            unproven += rejects and each.winner is None
    assert unproven


def test_an_unproven_win_is_explained_by_missing_verdicts_or_by_another_judge() -> None:
    base: Outcomes = make_side(14)
    before = {case: frozenset({VerdictSource("llm_judge", "1", "gpt-5")}) for case in base}
    other = frozenset({VerdictSource("llm_judge", "1", "opus")})
    of_others = {case: other if case in [f"case {each}" for each in range(6)] else before[case] for case in base}
    wins: Outcomes = {case: [P] for case in base}
    missing: Outcomes = {case: [E] if case in [f"case {each}" for each in range(6, 10)] else [P] for case in base}
    for new, judges, reason in (
        (wins, of_others, "another judge judged cases of b"),
        (missing, before, "b has results without a verdict"),
        (missing, of_others, "b has results without a verdict and another judge judged cases of b"),
    ):
        (found,) = compare_pairs(
            2,
            lambda _, __, new=new, judges=judges: prepare_comparison(  # type: ignore[misc]
                base, new, base_judges=before, new_judges=judges
            ),
            reference=0,
        )
        assert found.comparison.p_value <= 0.05
        assert found.describe_result("ab") == f"not proven: {reason}"


def test_each_pair_of_sorted_sides_is_tested_once() -> None:
    sides = [make_side(20 - each) for each in range(5)]
    paired: list[tuple[int, int]] = []

    def prepare(base: int, new: int) -> PreparedComparison:
        paired.append((base, new))
        return prepare_comparison(sides[base], sides[new])

    found = compare_pairs(5, prepare)
    assert len(found) == len(paired) == 10
