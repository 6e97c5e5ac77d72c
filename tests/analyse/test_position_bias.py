"""Position bias: exact tests against scipy and statsmodels, and simulated judges that are biased, noisy or both."""

import random
from collections.abc import Sequence

import pytest
from scipy.stats import beta, permutation_test  # type: ignore[import-untyped]
from statsmodels.stats.contingency_tables import mcnemar  # type: ignore[import-untyped]

from pramana.analyse.intervals import adjust_p_values, mcnemar_p_value
from pramana.analyse.position_bias import PositionBias, RepeatedVerdict, describe_effect, measure_position_bias
from pramana.model import PromptOrder

YES, NO = True, False


def make_verdicts(counts: dict[tuple[bool, bool, bool], int]) -> list[RepeatedVerdict]:
    """Return replies of different cases: earlier verdict, with the same prompt, with the answers swapped."""
    rows = [row for row, count in counts.items() for _ in range(count)]
    return [
        RepeatedVerdict(f"case {at}", earlier, {"usual": usual, "answers-swapped": swapped})
        for at, (earlier, usual, swapped) in enumerate(rows)
    ]


def test_counts_tests_and_intervals_agree_with_scipy_and_statsmodels() -> None:
    bias = measure_position_bias(
        make_verdicts(
            {
                (YES, YES, YES): 30,
                (NO, NO, NO): 25,
                (YES, YES, NO): 14,
                (NO, NO, YES): 3,
                (YES, NO, YES): 2,
                (NO, YES, NO): 1,
                (NO, YES, YES): 5,
            }
        )
    )
    (effect,) = bias.effects
    assert (bias.reply_count, bias.earlier_no_count) == (80, 34)
    assert (bias.repetition.changed_count, bias.repetition.to_yes, bias.repetition.to_no) == (8, 6, 2)
    assert (effect.changes.changed_count, effect.changes.to_yes, effect.changes.to_no) == (22, 8, 14)
    assert (effect.moved_to_no, effect.moved_to_yes) == (15, 5)
    table = [[35, 15], [5, 25]]  # same prompt YES or NO by swapped YES or NO
    assert effect.direction_p_value == pytest.approx(mcnemar(table, exact=True).pvalue)
    assert (effect.changed_only_here, effect.changed_only_by_repetition) == (17, 3)
    changed = [[5, 3], [17, 55]]  # changed by repetition or not by changed by the swap or not
    assert effect.change_p_value == pytest.approx(mcnemar(changed, exact=True).pvalue)
    adjusted = adjust_p_values([effect.direction_p_value, effect.change_p_value])
    assert [effect.adjusted_direction_p_value, effect.adjusted_change_p_value] == adjusted
    interval = effect.changes.interval
    assert interval.low == pytest.approx(beta.ppf(0.025, 22, 59))
    assert interval.high == pytest.approx(beta.ppf(0.975, 23, 58))


def test_replies_to_one_case_count_as_one() -> None:
    """Ten replies that all move together are one observation, whatever their number."""
    alike = [RepeatedVerdict("one case", YES, {"usual": True, "answers-swapped": False})] * 10
    (effect,) = measure_position_bias(alike).effects
    assert (effect.moved_to_no, effect.direction_p_value, effect.change_p_value) == (10, 1.0, 1.0)
    assert effect.changes.interval.low < 0.03

    rng = random.Random(1)
    verdicts = [
        RepeatedVerdict(f"case {case}", YES, {"usual": True, "answers-swapped": rng.random() < 0.6})
        for case in range(12)
        for _ in range(3)
    ]
    differences = [
        [sum(each.passed_by_order["answers-swapped"] - 1 for each in verdicts if each.case == f"case {case}")]
        for case in range(12)
    ]
    oracle = permutation_test(
        ([each for (each,) in differences], [0] * 12),
        lambda one, other: sum(one) - sum(other),
        permutation_type="samples",
        n_resamples=10_000,
    )
    (effect,) = measure_position_bias(verdicts).effects
    assert effect.direction_p_value == pytest.approx(oracle.pvalue)


def simulate_judge(
    seed: int, *, replies: int = 100, first: float = 0.0, last: float = 0.0, flips: float = 0.0, pass_rate: float = 0.9
) -> PositionBias:
    """Return what is measured of a judge that takes the first or the last answer in a share of replies, and that flips.

    Half of the replies are drawn among those that it failed, as `pramana judge swap` does.
    """
    rng = random.Random(seed)
    drawn: dict[bool, list[RepeatedVerdict]] = {True: [], False: []}
    number = 0
    while any(len(each) < replies // 2 for each in drawn.values()):
        number += 1
        truth, kind = rng.random() < pass_rate, rng.random()

        def judge(*, yes_is_first: bool, truth: bool = truth, kind: float = kind) -> bool:
            verdict = yes_is_first if kind < first else not yes_is_first if kind < first + last else truth
            return verdict != (rng.random() < flips)

        earlier = judge(yes_is_first=True)
        orders: dict[PromptOrder, bool] = {
            "usual": judge(yes_is_first=True), "answers-swapped": judge(yes_is_first=False),
        }  # fmt: skip
        if len(drawn[earlier]) < replies // 2:
            drawn[earlier].append(RepeatedVerdict(str(number), earlier, orders))
    return measure_position_bias([*drawn[True], *drawn[False]])


def count_findings(biases: Sequence[PositionBias], beginning: str) -> int:
    return sum(describe_effect(each.effects[0]).startswith(beginning) for each in biases)


FIRST, LAST = "The judge prefers the answer that is named first", "The judge prefers the answer that is named last"
NOTHING = "No effect beyond chance found"


@pytest.mark.parametrize("flips", [0.0, 0.1])
def test_a_judge_that_prefers_the_first_or_the_last_answer_is_found(flips: float) -> None:
    assert count_findings([simulate_judge(seed, first=0.3, flips=flips) for seed in range(40)], FIRST) >= 36
    assert count_findings([simulate_judge(seed, last=0.3, flips=flips) for seed in range(40)], LAST) >= 36


def test_a_judge_that_ignores_the_order_never_changes() -> None:
    bias = simulate_judge(1)
    (effect,) = bias.effects
    assert (bias.repetition.changed_count, effect.changes.changed_count, effect.direction_p_value) == (0, 0, 1.0)
    assert describe_effect(effect).startswith(NOTHING)


@pytest.mark.parametrize("flips", [0.05, 0.2, 0.5])
def test_a_judge_that_flips_at_random_is_not_called_biased(flips: float) -> None:
    """The earlier verdicts were selected, so comparing with them instead would call most noisy judges biased."""
    biases = [simulate_judge(seed, flips=flips) for seed in range(400)]
    false_alarms = len(biases) - count_findings(biases, NOTHING)
    assert false_alarms / len(biases) <= 0.05 + 2 * (0.05 * 0.95 / 400) ** 0.5
    if flips == 0.2:
        naive = [
            mcnemar_p_value(each.effects[0].changes.to_no, each.effects[0].changes.to_yes) < 0.05 for each in biases
        ]
        assert sum(naive) / len(naive) > 0.5


def test_an_order_that_moves_verdicts_in_both_directions_is_found() -> None:
    rng = random.Random(3)
    verdicts = [
        RepeatedVerdict(str(at), earlier, {"usual": earlier, "answers-swapped": earlier != (rng.random() < 0.4)})
        for at in range(100)
        for earlier in (at % 2 == 0,)
    ]
    (effect,) = measure_position_bias(verdicts).effects
    assert not effect.has_direction
    assert effect.changes_more_than_repetition
    assert describe_effect(effect).startswith("The order of the answers changes verdicts, but in both directions: ")


def test_replies_without_a_second_verdict_are_left_out_of_the_tests() -> None:
    verdicts = [
        RepeatedVerdict("a", YES, {"usual": True}),
        RepeatedVerdict("b", YES, {"answers-swapped": False}),
        RepeatedVerdict("c", NO, {}),
    ]
    bias = measure_position_bias(verdicts)
    (effect,) = bias.effects
    assert (bias.reply_count, bias.repetition.reply_count, effect.changes.reply_count, effect.reply_count) == (
        3, 1, 1, 0,
    )  # fmt: skip
    assert (effect.direction_p_value, effect.change_p_value) == (1.0, 1.0)
    assert measure_position_bias([]).effects == ()


def test_the_place_of_the_criterion_has_a_sentence_of_its_own() -> None:
    verdicts = [RepeatedVerdict(str(at), YES, {"usual": True, "criterion-last": at > 9}) for at in range(30)]
    (effect,) = measure_position_bias(verdicts).effects
    assert describe_effect(effect) == (
        "The place of the criterion matters: compared with the same prompt, the criterion after the reply moved 10 "
        "verdicts to NO and 0 to YES (p = 0.0039)."
    )


# ── Looking again ──


def measure_while_adding(seed: int, *, is_first_draw_kept: bool) -> bool:
    """Return whether a noisy judge without a bias is called biased at any look after 100, 200, … 1,000 replies."""
    rng = random.Random(seed)
    verdicts: list[RepeatedVerdict] = []
    for _ in range(10):
        for _ in range(100):
            earlier, usual, swapped = (rng.random() < 0.9 for _ in range(3))
            first = not is_first_draw_kept or len(verdicts) < 100
            orders: dict[PromptOrder, bool] = {"usual": usual, "answers-swapped": swapped}
            verdicts.append(RepeatedVerdict(str(len(verdicts)), earlier, orders, first))
        (effect,) = measure_position_bias(verdicts).effects
        if not describe_effect(effect).startswith(NOTHING):
            return True
    return False


def test_adding_replies_until_the_result_is_clear_finds_no_bias_in_a_noisy_judge() -> None:
    kept = sum(measure_while_adding(seed, is_first_draw_kept=True) for seed in range(200)) / 200
    tested_anew = sum(measure_while_adding(seed, is_first_draw_kept=False) for seed in range(200)) / 200
    assert kept <= 0.05
    assert tested_anew > 0.08, "without a fixed first draw, one noisy judge in nine is called biased"


def test_replies_that_were_drawn_later_count_in_the_shares_and_not_in_the_tests() -> None:
    orders: dict[PromptOrder, bool] = {"usual": True, "answers-swapped": False}
    first = [RepeatedVerdict(str(at), YES, {"usual": True, "answers-swapped": True}) for at in range(20)]
    later = [RepeatedVerdict(f"later {at}", YES, orders, is_of_first_draw=False) for at in range(30)]
    (effect,) = measure_position_bias([*first, *later], 20).effects
    assert (effect.changes.changed_count, effect.changes.reply_count) == (30, 50)
    assert (effect.moved_to_no, effect.reply_count, effect.direction_p_value) == (0, 20, 1.0)
    assert describe_effect(effect, 30).endswith("Only the first draw of 20 replies is tested; 30 came later.")


def test_a_first_draw_is_not_tested_before_nine_in_ten_of_its_replies_are_judged() -> None:
    orders: dict[PromptOrder, bool] = {"usual": True, "answers-swapped": False}
    verdicts = [RepeatedVerdict(str(at), YES, orders) for at in range(90)]
    (early,) = measure_position_bias(verdicts[:89], 100).effects
    assert (early.is_tested, early.adjusted_direction_p_value, early.has_direction) == (False, 1.0, False)
    assert describe_effect(early) == "Not tested yet: of 100 replies drawn first, 89 have both verdicts."
    (ready,) = measure_position_bias(verdicts, 100).effects
    assert describe_effect(ready).startswith(FIRST)


def test_a_judge_that_prefers_the_first_answer_in_15_of_100_replies_is_found_more_often_than_not() -> None:
    assert count_findings([simulate_judge(seed, first=0.15) for seed in range(60)], FIRST) >= 36
