"""Comparison of two runs: which verdicts flipped, what that proves, and what cannot be decided."""

import random
import re
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.contingency_tables import mcnemar as referee  # type: ignore[import-untyped]

from pramana.analyse.comparison import Comparison, compare, prepare_comparison
from pramana.analyse.intervals import align_with_test, cases_needed, sign_flip_p_value
from pramana.analyse.labels import make_model_labels
from pramana.analyse.mean_bounds import case_mean_interval
from pramana.analyse.paired_tests import find_mean, group_pairs_by_case, weigh_pairs
from pramana.analyse.pairing import DifferentJudges, Excluded, Pair, UnpairedAnswers, VerdictSource
from pramana.model import Outcome

P, F, E, U, S = Outcome.PASSED, Outcome.FAILED, Outcome.ERRORED, Outcome.UNSCORED, Outcome.SKIPPED
Outcomes = dict[str, Sequence[Outcome]]
POSSIBLE_LOSS = (
    "A loss of up to {} cannot be excluded; if nothing changed, about {} cases would exclude one of 5 points."
)


def make_outcomes(both: int = 0, lost: int = 0, gained: int = 0, neither: int = 0) -> tuple[Outcomes, Outcomes]:
    rows = [(P, P)] * both + [(P, F)] * lost + [(F, P)] * gained + [(F, F)] * neither
    base: Outcomes = {f"c-{number}": [before] for number, (before, _) in enumerate(rows)}
    new: Outcomes = {f"c-{number}": [after] for number, (_, after) in enumerate(rows)}
    return base, new


@pytest.mark.parametrize(
    ("counts", "verdict", "sentence"),
    [
        (
            {"both": 80, "lost": 15, "gained": 3, "neither": 2},
            "regression",
            "Regression between these two runs: of 100 cases, 15 that passed before fail now; 3 that failed before pass now.",
        ),
        (
            {"both": 80, "lost": 1, "gained": 15, "neither": 4},
            "improvement",
            "Improvement between these two runs: of 100 cases, 1 that passed before fails now; 15 that failed before pass now.",
        ),
        (
            {"both": 900, "lost": 10, "gained": 12, "neither": 78},
            "no_change",
            "No change between these two runs: of 1,000 cases, 10 that passed before fail now; 12 that failed before pass now; chance alone can explain this.",
        ),
        ({"both": 70, "neither": 10}, "no_change", "No change between these two runs: all 80 cases ended as before."),
        (
            {"both": 8, "neither": 2},
            "no_change",
            "No difference seen: all 10 cases ended as before, but 10 cases prove little. "
            + POSSIBLE_LOSS.format("31 points", 72),
        ),
        (
            {"both": 1},
            "no_change",
            "No difference seen: the case ended as before, but 1 case proves little. "
            + POSSIBLE_LOSS.format("98 points", 72),
        ),
        (
            {"both": 7, "lost": 2, "neither": 1},
            "inconclusive",
            "Not enough evidence: of 10 cases, 2 that passed before fail now; none that failed before passes now; this can be chance or a real change. "
            + POSSIBLE_LOSS.format("56 points", 670),
        ),
        (
            {"both": 7, "gained": 1, "neither": 2},
            "inconclusive",
            "Not enough evidence: of 10 cases, none that passed before fails now; 1 that failed before passes now; this can be chance or a real change. "
            + POSSIBLE_LOSS.format("26 points", 362),
        ),
        (
            {"both": 70, "gained": 5},
            "inconclusive",
            "Not enough evidence: of 75 cases, none that passed before fails now; 5 that failed before pass now; this can be chance or a real change. A loss of 5 points or more is excluded.",
        ),
        (
            {"both": 250, "lost": 12, "gained": 6},  # more cases than would do if nothing had changed
            "inconclusive",
            "Not enough evidence: of 268 cases, 12 that passed before fail now; 6 that failed before pass now; this can be chance or a real change. A loss of up to 6 points cannot be excluded.",
        ),
        (
            {"both": 50_000, "lost": 200, "gained": 120},
            "regression",
            "Regression between these two runs, smaller than the margin of 5 points: of 50,320 cases, 200 that passed before fail now; 120 that failed before pass now.",
        ),
        ({}, "inconclusive", "Not enough evidence: no case has a verdict on both sides."),
    ],
)
def test_verdict_and_headline(counts: dict[str, int], verdict: str, sentence: str) -> None:
    found = compare(*make_outcomes(**counts))
    assert (found.verdict, found.sentence) == (verdict, sentence)


@pytest.mark.parametrize(
    ("counts", "margin", "code", "strict"),
    [
        ({"both": 80, "lost": 15, "gained": 3}, 0.05, 1, 1),
        ({"both": 80, "lost": 15, "gained": 3}, 0.25, 0, 0),  # the interval ends at -21.4 points
        ({"both": 50_000, "lost": 200, "gained": 120}, 0.05, 0, 0),
        ({"both": 50_000, "lost": 200, "gained": 120}, 0.0, 1, 1),
        ({"both": 70, "gained": 5}, 0.05, 0, 0),
        ({"both": 70, "gained": 5}, 0.0, 0, 4),
        ({"both": 70, "lost": 5}, 0.05, 0, 4),
        ({"both": 80, "gained": 15}, 0.05, 0, 0),
        ({"both": 10}, 0.05, 0, 4),
        ({"both": 80}, 0.05, 0, 0),
        ({}, 0.05, 4, 4),
    ],
)
def test_the_exit_code_depends_on_the_margin(counts: dict[str, int], margin: float, code: int, strict: int) -> None:
    found = compare(*make_outcomes(**counts), margin=margin)
    assert (found.exit_code(), found.exit_code("inconclusive")) == (code, strict)
    if code == 0 and found.verdict == "regression":
        assert "smaller than the margin" in found.sentence


@pytest.mark.parametrize(
    ("cases", "flipping", "drop", "code", "most"),
    [
        (75, 0.025, 0.0, 0, 0.02),
        (200, 0.025, 0.0, 0, 0.02),
        (75, 0.025, 0.2, 1, 1.0),
        (200, 0.025, 0.1, 1, 1.0),
    ],
)
def test_an_unchanged_model_passes_and_a_drop_fails(
    cases: int, flipping: float, drop: float, code: int, most: float
) -> None:
    """An unchanged model of 75 cases that flips 2.5 % each way once got exit code 4 in 97 % of its comparisons."""
    chance, rounds, failed = random.Random(16), 150, 0
    for _ in range(rounds):
        rolls = [chance.random() for _ in range(cases)]
        lost = sum(roll < flipping + drop for roll in rolls)
        gained = sum(roll > 1 - flipping for roll in rolls)
        failed += compare(*make_outcomes(both=cases - lost - gained, lost=lost, gained=gained)).exit_code() == 1
    assert failed / rounds >= 0.8 if code else failed / rounds <= most


def test_counts_come_from_the_pairs() -> None:
    found = compare(*make_outcomes(both=80, lost=15, gained=3, neither=2))
    assert (found.pairs, found.base_rate, found.new_rate) == (100, 0.95, 0.83)
    assert found.difference == pytest.approx(-0.12)
    assert found.p_value == pytest.approx(referee([[80, 15], [3, 2]], exact=True).pvalue)
    assert found.test == "exact McNemar"
    assert found.interval.low < -0.12 < found.interval.high < 0
    assert found.detail == (
        "Pass rate 95.0 % before, 83.0 % now: -12.0 points, 95 % interval -21.3 to -3.0; exact McNemar, p = 0.0075. "
        'Two runs made on different days can differ although the model is the same; see "Two runs on two days" in '
        "docs/statistics.md."
    )
    assert found.needed is None


def test_flips_are_listed_with_their_cases() -> None:
    base = {"a": [P], "b": [P], "c": [F], "d": [F]}
    new = {"a": [F], "b": [P], "c": [P], "d": [F]}
    found = compare(base, new)
    assert found.lost == (Pair("a", 1, 0, 1),)
    assert found.gained == (Pair("c", 0, 1, 1),)


def test_a_proven_loss_is_never_called_no_change_however_small() -> None:
    found = compare(*make_outcomes(both=50_000, lost=200, gained=120))
    assert abs(found.difference or 0) < found.margin
    assert found.interval.is_within(found.margin)
    assert found.verdict == "regression"


def test_no_change_requires_an_interval_within_the_margin_once_a_case_flipped() -> None:
    counts = {"both": 190, "lost": 5, "gained": 5}
    assert compare(*make_outcomes(**counts), margin=0.05).verdict == "no_change"
    narrow = compare(*make_outcomes(**counts), margin=0.01)
    assert narrow.verdict == "inconclusive"
    assert narrow.needed is not None
    assert narrow.needed > 200


def test_few_cases_without_flips_state_how_little_they_prove() -> None:
    found = compare(*make_outcomes(both=9, neither=1))
    assert found.verdict == "no_change"
    assert found.interval.low < -0.25
    assert found.interval.high > 0.25


@pytest.mark.parametrize(("before", "after"), [(P, E), (E, F), (U, U), (S, P), (F, U)])
def test_cases_without_a_verdict_are_excluded_and_named_never_counted_as_failed(
    before: Outcome, after: Outcome
) -> None:
    base, new = make_outcomes(both=200, lost=2, gained=2)
    base["x"], new["x"] = [before], [after]
    found = compare(base, new)
    assert found.excluded == (Excluded("x", (before,), (after,)),)
    assert (found.pairs, len(found.lost)) == (204, 2)
    assert found.verdict == "no_change"


def test_cases_on_one_side_only_are_named_and_not_compared() -> None:
    base, new = make_outcomes(both=100)
    base["old"], new["young"] = [F], [F]
    found = compare(base, new)
    assert (found.only_base, found.only_new, found.pairs) == (("old",), ("young",), 100)
    assert found.verdict == "no_change"


def test_losses_cannot_hide_in_unfinished_cases() -> None:
    base, new = make_outcomes(both=100)
    for number in range(30):
        base[f"x-{number}"], new[f"x-{number}"] = [P], [E]
    found = compare(base, new)
    assert found.verdict == "inconclusive"
    assert found.sentence == (
        "Not enough evidence: 30 cases that passed before have no verdict now, "
        "and if they had failed, the conclusion would be different."
    )
    unasked = {case: outcomes for case, outcomes in new.items() if not case.startswith("x-")}
    assert compare(base, unasked).verdict == "inconclusive"
    assert compare(base, unasked, same_cases=False).verdict == "no_change"


@pytest.mark.parametrize("lost", [E, U, S])
def test_losses_cannot_hide_among_repeats(lost: Outcome) -> None:
    base: Outcomes = {f"c-{number}": [P, P, P] for number in range(100)}
    new: Outcomes = {f"c-{number}": [P, lost, lost] for number in range(100)}
    found = compare(base, new)
    assert (found.verdict, found.exit_code(), found.exit_code("inconclusive")) == ("inconclusive", 0, 4)
    assert found.sentence == (
        "Not enough evidence: 200 results that passed before have no verdict now, "
        "and if they had failed, the conclusion would be different."
    )
    unasked: Outcomes = {case: outcomes[:1] for case, outcomes in new.items()}
    assert compare(base, unasked, new_repeats=3).exit_code("inconclusive") == 4
    assert (
        compare(base, unasked | {"c-0": [P, P, P]}).exit_code("inconclusive") == 4
    )  # one case shows how often it was meant to ask


def test_fewer_planned_repeats_hide_no_loss() -> None:
    base: Outcomes = {f"c-{number}": [P, P, P] for number in range(100)}
    new: Outcomes = {case: [P] for case in base}
    assert compare(base, new).verdict == "no_change"
    assert compare(base, new, new_repeats=1).verdict == "no_change"


def test_a_failure_that_now_has_no_verdict_is_not_a_loss() -> None:
    base: Outcomes = {f"c-{number}": [P, F, F] for number in range(200)}
    new: Outcomes = {case: [P, E, E] for case in base}
    assert compare(base, new).verdict == "no_change"


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([(P, P, P), (P, P, F), (F, F, F)]), min_size=1, max_size=40), st.data())
def test_an_excluded_loss_stays_excluded_if_all_missing_verdicts_were_failures(
    rows: list[Sequence[Outcome]], data: st.DataObject
) -> None:
    base: Outcomes = {str(number): before for number, before in enumerate(rows)}
    common = data.draw(st.lists(st.sampled_from([(P, E, E), (P, P, P), (P, P, U), (F, F, S)]), min_size=1, max_size=2))
    new: Outcomes = {case: data.draw(st.sampled_from(common)) for case in base}
    ended: Outcomes = {case: [F if each in (E, U, S) else each for each in after] for case, after in new.items()}
    there, worst = compare(base, new, new_repeats=3), compare(base, ended)
    assert there.exit_code("inconclusive") != 0 or worst.exit_code("inconclusive") == 0
    assert there.verdict not in ("improvement", "no_change") or worst.verdict in ("improvement", "no_change")


def test_a_gain_that_missing_verdicts_could_undo_is_not_proven() -> None:
    base: Outcomes = {"lost": [P, P, P], **{str(number): [F, F, F] for number in range(9)}}
    new: Outcomes = {case: (F, F, F) if case == "lost" else (P, E, E) for case in base}
    found = compare(base, new)
    assert (found.exit_code(), found.exit_code("inconclusive")) == (0, 4)
    assert found.sentence == (
        "Not enough evidence: 18 results have no verdict now, and if they had failed, the conclusion would be different."
    )


def test_cases_with_different_repeat_counts_are_weighted() -> None:
    base: Outcomes = {str(number): [P] * number for number in range(1, 400)}
    new: Outcomes = {str(number): [P] * (number - 1) + [F] for number in range(1, 400)}
    assert compare(base, new).verdict == "regression"


GPT, OPUS = (
    VerdictSource("llm_judge", "1 ab", "openai:gpt-5"),
    VerdictSource("llm_judge", "1 ab", "anthropic:claude-opus-4-6"),
)


def judge_all(by: VerdictSource, *cases: str) -> dict[str, frozenset[VerdictSource]]:
    return dict.fromkeys(cases, frozenset({by}))


def test_verdicts_of_different_judges_are_not_compared_and_the_headline_says_so() -> None:
    base, new = make_outcomes(both=10, lost=20)
    found = compare(base, new, base_judges=judge_all(GPT, *base), new_judges=judge_all(OPUS, *new))
    assert (found.verdict, found.exit_code(), found.pairs) == ("inconclusive", 4, 0)
    assert found.sentence == (
        "Not enough evidence: all 30 cases were judged by openai:gpt-5 before and by anthropic:claude-opus-4-6 now, "
        "and verdicts by different judges are not compared."
    )
    assert found.differently_judged[0] == DifferentJudges("c-0", frozenset({GPT}), frozenset({OPUS}))
    told = compare(base, new, base_judges=judge_all(GPT, *base), new_judges=judge_all(OPUS, *new), any_judge=True)
    assert (told.verdict, told.pairs, len(told.differently_judged)) == ("regression", 30, 30)
    assert told.sentence == (
        "Regression between these two runs: of 30 cases, 20 that passed before fail now; none that failed before passes now; 30 cases of those compared "
        "were judged by openai:gpt-5 before and by anthropic:claude-opus-4-6 now."
    )
    assert (
        compare(base, new, base_judges=judge_all(GPT, *base), new_judges=judge_all(GPT, *new)).verdict == "regression"
    )


def test_cases_with_a_common_judge_are_compared_although_others_differ() -> None:
    base, new = make_outcomes(both=80, lost=20)
    base["x"], new["x"] = [P], [P]
    found = compare(base, new, base_judges=judge_all(GPT, "x"), new_judges=judge_all(OPUS, "x"))
    assert (found.verdict, found.pairs) == ("regression", 100)
    assert found.sentence == (
        "Regression between these two runs: of 100 cases, 20 that passed before fail now; none that failed before passes now; 1 case is left out, judged "
        "by openai:gpt-5 before and by anthropic:claude-opus-4-6 now."
    )


def test_a_change_of_judge_cannot_hide_a_loss() -> None:
    base, new = make_outcomes(both=100)
    for number in range(30):
        base[f"x-{number}"], new[f"x-{number}"] = [P], [P]
    apart = [case for case in base if case.startswith("x-")]
    found = compare(base, new, base_judges=judge_all(GPT, *apart), new_judges=judge_all(OPUS, *apart))
    assert (found.verdict, found.pairs) == ("inconclusive", 100)
    assert found.sentence == (
        "Not enough evidence: 30 cases that passed before were judged by openai:gpt-5 before and by "
        "anthropic:claude-opus-4-6 now, and if they had failed, the conclusion would be different."
    )


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            VerdictSource("contains", "1"),
            VerdictSource("contains", "2"),
            "judged by contains 1 before and by contains 2 now",
        ),
        (
            VerdictSource("llm_judge", "1 ab", "fake"),
            VerdictSource("llm_judge", "1 cd", "fake"),
            "judged by llm_judge 1 ab by fake before and by llm_judge 1 cd by fake now",
        ),
        (
            VerdictSource("llm_judge", "1", "gpt-5", "gpt-5-06"),
            VerdictSource("llm_judge", "1", "gpt-5", "gpt-5-08"),
            "judged by gpt-5 (gpt-5-06) before and by gpt-5 (gpt-5-08) now",
        ),
        (
            VerdictSource("rubric", "1", "fake"),
            VerdictSource("llm_judge", "1", "fake"),
            "judged by rubric 1 by fake before",
        ),
        (VerdictSource("llm_judge", "1", "gpt-5", "gpt-5-06"), VerdictSource("llm_judge", "1", "gpt-5"), None),
        (VerdictSource("contains", "1"), None, None),
    ],
)
def test_verdicts_of_the_same_judge_are_recognised(
    before: VerdictSource, after: VerdictSource | None, words: str | None
) -> None:
    base, new = make_outcomes(both=1)
    known = judge_all(after, *new) if after else {}
    found = compare(base, new, base_judges=judge_all(before, *base), new_judges=known)
    assert found.exit_code() == (4 if words else 0)
    assert (words or "No difference seen") in found.sentence


def test_cases_without_a_verdict_need_no_matching_judge() -> None:
    base, new = make_outcomes(both=100)
    base["x"], new["x"] = [F], [U]
    found = compare(base, new, base_judges=judge_all(GPT, "x"), new_judges=judge_all(OPUS, "x"))
    assert (found.verdict, found.differently_judged, len(found.excluded)) == ("no_change", (), 1)


def test_an_improvement_larger_than_the_missing_verdicts_stands() -> None:
    base, new = make_outcomes(both=50, gained=40)
    base["x"], new["x"] = [P], [E]
    assert compare(base, new).verdict == "improvement"


def test_runs_without_a_judge_are_compared_on_their_common_verdicts() -> None:
    base, new = make_outcomes(both=100)
    for number in range(30):
        base[f"x-{number}"] = new[f"x-{number}"] = [U]
    found = compare(base, new)
    assert (found.verdict, len(found.excluded)) == ("no_change", 30)


def test_repeats_are_compared_per_case() -> None:
    base = {f"c-{number}": [P, P, P] for number in range(12)}
    new = {f"c-{number}": [P, F, F] if number < 8 else [P, P, P] for number in range(12)}
    found = compare(base, new)
    assert found.test == "sign flips by case"
    assert found.p_value == 2 * 2 / 2**9  # all eight changed cases went one way
    assert found.difference == pytest.approx(-8 / 12 * 2 / 3)
    assert found.lost[0] == Pair("c-0", 3, 1, 3)
    assert (
        found.sentence == "Regression between these two runs: of 12 cases, 8 pass less often now and none more often."
    )


def test_repeating_identical_answers_adds_no_evidence() -> None:
    base, new = make_outcomes(both=20, lost=5)
    once = compare(base, new)
    often = compare(
        {case: list(each) * 9 for case, each in base.items()}, {case: list(each) * 9 for case, each in new.items()}
    )
    assert often.p_value == pytest.approx(once.p_value)
    assert (once.verdict, often.verdict) == ("inconclusive", "inconclusive")


def test_the_same_number_of_repeats_is_taken_from_both_sides() -> None:
    found = compare({"a": [P], "b": [P, E, P]}, {"a": [P, F, F], "b": [F, P, E]})
    assert found.pairs == 2
    assert found.lost == (Pair("b", 2, 1, 2),)
    assert found.unpaired == 4
    assert found.unpaired_counts == (0, 2)


@pytest.mark.parametrize(
    ("before", "after", "over", "left"),
    [
        ([P, F, P], [P], (2, 0), "2 answers before are left out"),
        ([P], [P, F], (0, 1), "1 answer now is left out"),
        ([P, P, P], [P, E, E], (2, 0), "2 answers before are left out"),
        ([P, E, E], [P], (0, 0), None),  # what has no verdict needs no partner
        ([P, P], [E, E], (0, 0), None),  # not compared at all, and reported as a case
    ],
)
def test_unpaired_verdicts_are_counted_and_reported(
    before: Sequence[Outcome], after: Sequence[Outcome], over: tuple[int, int], left: str | None
) -> None:
    found = compare({"a": before, "b": [P]}, {"a": after, "b": [P]}, new_repeats=1)
    assert found.unpaired_counts == over
    assert found.describe_unpaired == (
        "If a case has more verdicts on one side, only as many as on the other are compared, the first ones: "
        f"{left}, and the rates here do not count them."
        if left
        else ""
    )
    both = compare({"a": before, "b": [P]}, {"a": after, "b": [P, F]})
    assert both.unpaired_counts == (over[0], over[1] + 1)
    assert (f"{over[0]:,} answers before and 1 now are left out" in both.describe_unpaired) == bool(over[0])


def test_a_flip_states_which_of_its_verdicts_were_not_compared() -> None:
    found = compare({"a": [F, P, P], "b": [P]}, {"a": [P], "b": [F, P, F]})
    assert found.gained == (Pair("a", 0, 1, 1, base_unpaired=UnpairedAnswers(2, 2)),)
    assert found.lost == (Pair("b", 1, 0, 1, new_unpaired=UnpairedAnswers(1, 2)),)
    assert found.sentence.startswith("Not enough evidence: of 2 cases, 1 passes less often now and 1 more often;")
    assert found.test == "exact McNemar"


def _brute_force(base: Outcomes, new: Outcomes) -> float:
    differences = [sum(each is P for each in new[case]) - sum(each is P for each in base[case]) for case in base]
    seen = abs(sum(differences))
    sums = [
        abs(sum(sign * each for sign, each in zip(signs, differences, strict=True)))
        for signs in product((-1, 1), repeat=len(differences))
    ]
    return sum(each >= seen for each in sums) / len(sums)


outcome = st.sampled_from([P, F])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(outcome, min_size=3, max_size=3), st.lists(outcome, min_size=3, max_size=3)),
        min_size=1,
        max_size=9,
    )
)
def test_the_p_value_is_the_share_of_all_sign_swaps(rows: list[tuple[list[Outcome], list[Outcome]]]) -> None:
    base: Outcomes = {str(number): before for number, (before, _) in enumerate(rows)}
    new: Outcomes = {str(number): after for number, (_, after) in enumerate(rows)}
    assert compare(base, new).p_value == pytest.approx(_brute_force(base, new))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(outcome, min_size=3, max_size=3), st.lists(outcome, min_size=3, max_size=3)),
        min_size=1,
        max_size=9,
    )
)
def test_a_comparison_that_is_prepared_first_has_the_p_value_of_all_sign_swaps(
    rows: list[tuple[list[Outcome], list[Outcome]]],
) -> None:
    base: Outcomes = {str(number): before for number, (before, _) in enumerate(rows)}
    new: Outcomes = {str(number): after for number, (_, after) in enumerate(rows)}
    prepared = prepare_comparison(base, new)
    pairs = prepared.pairing.pairs
    assert [[each] for each in pairs] == group_pairs_by_case(pairs)
    by_case = [each.difference for each in pairs]
    tested = weigh_pairs(pairs)
    assert prepared.p_value == tested.p_value == pytest.approx(_brute_force(base, new))
    for alpha in (0.05, 0.01):
        assert prepared.decide(alpha) == compare(base, new, alpha=alpha)
        square = sum(each * each for each in by_case) / len(by_case) if by_case else 0.0
        assert tested.decide(alpha).count_needed_cases(0.05) == cases_needed(0.05, square, alpha=alpha)
    assert prepared.difference == tested.difference == find_mean(by_case)
    if by_case:
        assert prepared.difference == pytest.approx(np.mean(by_case))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from(Outcome), max_size=3), st.lists(st.sampled_from(Outcome), max_size=3)),
        max_size=30,
    )
)
def test_swapping_the_runs_swaps_the_verdict(rows: list[tuple[list[Outcome], list[Outcome]]]) -> None:
    base: Outcomes = {str(number): before for number, (before, _) in enumerate(rows)}
    new: Outcomes = {str(number): after for number, (_, after) in enumerate(rows)}
    there, back = compare(base, new), compare(new, base)
    assert there.p_value == back.p_value
    assert there.interval.low == pytest.approx(-back.interval.high, abs=1e-9)
    assert [pair.case for pair in there.lost] == [pair.case for pair in back.gained]
    assert len(there.excluded) == len(back.excluded)
    if there.verdict == "regression":
        assert back.verdict in ("improvement", "inconclusive")
        assert there.interval.high <= 0


def test_two_runs_of_the_same_model_are_rarely_called_different() -> None:
    """Cases differ, answers vary: at most 1 in 20 comparisons may cry wolf, losses and gains together."""
    chance, rounds, alarms = random.Random(11), 300, 0
    for _ in range(rounds):
        shares = [chance.uniform(0, 1) for _ in range(75)]
        runs: list[Outcomes] = [
            {str(number): [P if chance.uniform(0, 1) < share else F] for number, share in enumerate(shares)}
            for _ in range(2)
        ]
        alarms += compare(*runs).verdict in ("regression", "improvement")
    assert alarms / rounds <= 0.05


def test_three_variants_of_a_case_count_as_one_case() -> None:
    ways = ("", " (voice)", " (voice+noise=10dB)")
    base: Outcomes = {f"sha256:{case}{way}": [P] for case in range(3) for way in ways}
    assert compare(base, base).sentence == (
        "No difference seen: all 9 answers (3 cases, 3 variants) ended as before, but 3 cases prove little. "
        + POSSIBLE_LOSS.format("71 points", 72)
    )
    lost = compare(base, {key: [F] for key in base})
    assert (lost.test, lost.p_value, lost.verdict) == ("sign flips by case", 0.25, "inconclusive")
    assert lost.sentence.startswith(
        "Not enough evidence: of 9 answers (3 cases, 3 variants), 9 that passed before fail now"
    )


def test_variants_of_a_case_are_summed_before_its_sign_is_flipped() -> None:
    base: Outcomes = {f"{case}{way}": [P] for case in range(8) for way in ("", " (voice)")}
    new = base | {f"{case}": [F] for case in range(7)} | {f"{case} (voice)": [F] for case in range(5)}
    found = compare(base, new)
    differences = [-2] * 5 + [-1] * 2 + [0]
    assert found.p_value == sign_flip_p_value(differences)
    assert found.interval == align_with_test(
        case_mean_interval([each / 2 for each in differences], -1, 1), -12 / 16, significant=True
    )
    assert (found.pairs, len(found.lost), found.difference) == (16, 12, -12 / 16)


def test_a_case_without_one_of_its_variants_weighs_as_much_as_the_others() -> None:
    base: Outcomes = {"a": [P], "a (voice)": [P], "b": [P], "b (voice)": [E]}
    found = compare(base, {"a": [P], "a (voice)": [F], "b": [F], "b (voice)": [P]})
    assert (found.base_rate, found.new_rate, found.difference) == (1.0, 0.25, -0.75)
    assert found.p_value == sign_flip_p_value([-1, -2])


@pytest.mark.parametrize("shared", [0.0, 1.0])
def test_variants_that_flip_together_do_not_raise_false_alarms(shared: float) -> None:
    """No difference; all three variants of a case flip alike or on their own. Taken as cases, 23 % were significant."""
    chance, rounds, alarms = random.Random(3), 300, 0
    for _ in range(rounds):
        base: Outcomes = {}
        new: Outcomes = {}
        for case in range(25):
            together = chance.random() < shared
            flips = [chance.choice((-1, 1)) if chance.random() < 0.2 else 0 for _ in range(3)]
            for way, flip in zip(("", " (voice)", " (voice+noise=10dB)"), flips, strict=True):
                change = flips[0] if together else flip
                base[f"{case}{way}"], new[f"{case}{way}"] = [F if change > 0 else P], [F if change < 0 else P]
        alarms += compare(base, new).p_value <= 0.05
    assert alarms / rounds <= 0.05


@pytest.mark.parametrize("variants", [1, 3])
@pytest.mark.parametrize("cases", [25, 75])
def test_single_replies_cover_the_truth_and_rarely_give_false_regressions(cases: int, variants: int) -> None:
    """The truth is a loss of 0 or 10 points; a case's variants share half of their flips."""
    chance, rounds = random.Random(20), 300
    ways = ["", " (voice)", " (voice+noise=10dB)"][:variants]
    for drop in (0.0, 0.1):
        covered = regressions = 0
        for _ in range(rounds):
            base: Outcomes = {}
            new: Outcomes = {}
            for case in range(cases):
                together, rolls = chance.random() < 0.5, [chance.random() for _ in ways]
                for way, own in zip(ways, rolls, strict=True):
                    roll = rolls[0] if together else own
                    base[f"{case}{way}"] = [F if roll > 0.95 else P]
                    new[f"{case}{way}"] = [F if roll < 0.05 + drop else P]
            found = compare(base, new)
            covered += found.interval.low <= -drop <= found.interval.high
            regressions += found.verdict == "regression"
        assert covered / rounds >= 0.93
        assert drop or regressions / rounds <= 0.04


def test_a_small_loss_that_repeats_prove_is_a_regression() -> None:
    """20 cases lose one of 20 passes each: p < 0.0001, and once "no change".

    That no case loses all its passes is only known of the cases that were run: with 75 cases, 4.8 % of all may be such.
    """

    def lose_one_pass(cases: int) -> Comparison:
        base: Outcomes = {str(case): [P] * 20 for case in range(cases)}
        found = compare(base, base | {str(case): [P] * 19 + [F] for case in range(20)})
        assert found.interval.low < -1 / cases < found.interval.high <= 0
        assert (found.verdict, found.p_value < 0.0001) == ("regression", True)
        return found

    assert lose_one_pass(75).exit_code() == 1
    enough = lose_one_pass(100)
    assert enough.exit_code() == 0
    assert enough.sentence == (
        "Regression between these two runs, smaller than the margin of 5 points: of 100 cases, 20 pass less often now "
        "and none more often."
    )


@pytest.mark.parametrize(("repeats", "least", "most"), [(1, 0.15, 0.3), (5, 0.45, 0.63)])
def test_two_days_of_one_model_often_differ_as_the_documentation_says(repeats: int, least: float, most: float) -> None:
    """Each day moves all logits by a normal amount with a deviation of 0.5: 22 % and 54 % of two runs differ."""
    draw, rounds, different = np.random.default_rng(22), 300, 0
    for _ in range(rounds):
        logits, days = draw.normal(1.5, 2, 75), draw.normal(0, 0.5, 2)
        runs: list[Outcomes] = []
        for day in days:
            passed = draw.binomial(repeats, 1 / (1 + np.exp(-logits - day)))
            runs.append({str(case): [P] * int(each) + [F] * (repeats - int(each)) for case, each in enumerate(passed)})
        different += compare(*runs).p_value <= 0.05
    assert least <= different / rounds <= most


def test_a_possible_loss_counts_results_without_a_verdict_as_failed() -> None:
    base, new = make_outcomes(both=70, gained=5)
    for number in range(30):
        base[f"x-{number}"], new[f"x-{number}"] = [P], [E]
    found = compare(base, new)
    assert (found.verdict, found.loss_excluded, found.exit_code(), found.exit_code("inconclusive")) == (
        "inconclusive", False, 0, 4,
    )  # fmt: skip
    assert found.sentence.endswith(
        " A loss of up to 35 points cannot be excluded if results without a verdict count as failed."
    )


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from(["", " (voice)"])), max_size=40),
    st.sampled_from([1, 3]),
    st.sampled_from([0.05, 0.01, 0.2]),
)
def test_the_interval_and_the_test_never_contradict_each_other(
    rows: list[tuple[int, int, str]], repeats: int, alpha: float
) -> None:
    def make_answers(passed: int) -> list[Outcome]:
        return [P if number < passed else F for number in range(repeats)]

    base: Outcomes = {f"{number // 2}{way}": make_answers(before) for number, (before, _, way) in enumerate(rows)}
    new: Outcomes = {f"{number // 2}{way}": make_answers(after) for number, (_, after, way) in enumerate(rows)}
    found = compare(base, new, alpha=alpha)
    low, high = found.interval.low, found.interval.high
    if found.p_value <= alpha:
        assert low >= 0 or high <= 0
        assert found.verdict == ("regression" if (found.difference or 0) < 0 else "improvement")
    else:
        assert low <= 0 <= high
        assert found.verdict in ("no_change", "inconclusive")
    assert found.difference is None or low - 1e-9 <= found.difference <= high + 1e-9


def test_no_change_is_reported_only_if_the_interval_excludes_one() -> None:
    for count in range(1, 100):
        found = compare(*make_outcomes(both=count))
        assert found.exit_code() == 0
        assert (found.exit_code("inconclusive") == 0) == found.interval.is_within(0.05)
        assert found.sentence.startswith("No change") == found.interval.is_within(0.05)
        assert ("prove" in found.sentence) == (count < 72)


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        (
            {"both": 80, "lost": 15, "gained": 3, "neither": 2},
            "gpt-5 beats opus: of 100 cases, 15 passed only for gpt-5 and 3 only for opus.",
        ),
        (
            {"both": 80, "gained": 15, "neither": 5},
            "opus beats gpt-5: of 100 cases, 15 passed only for opus and none only for gpt-5.",
        ),
        (
            {"both": 900, "lost": 10, "gained": 12, "neither": 78},
            "No difference between gpt-5 and opus: of 1,000 cases, 10 passed only for gpt-5 and 12 only for opus; chance alone can explain this.",
        ),
        ({"both": 80}, "No difference between gpt-5 and opus: all 80 cases ended alike."),
        (
            {"both": 3},
            "No difference seen between gpt-5 and opus: all 3 cases ended alike, but 3 cases prove little. A lead of gpt-5 "
            "of up to 71 points cannot be excluded; if both were equally good, about 72 cases would exclude one of 5 points.",
        ),
        (
            {"both": 7, "lost": 2, "neither": 1},
            "Not enough evidence that gpt-5 or opus is better: of 10 cases, 2 passed only for gpt-5 and none only for "
            "opus; this can be chance or a real difference. A lead of gpt-5 of up to 56 points cannot be excluded; if "
            "both were equally good, about 670 cases would exclude one of 5 points.",
        ),
        (
            {"both": 50_000, "lost": 200, "gained": 120},
            "gpt-5 beats opus by less than the margin of 5 points: of 50,320 cases, 200 passed only for gpt-5 and 120 only "
            "for opus.",
        ),
    ],
)
def test_two_models_of_one_run_are_labelled_by_name(counts: dict[str, int], sentence: str) -> None:
    found = compare(*make_outcomes(**counts), labels=make_model_labels("gpt-5", "opus"))
    assert found.sentence == sentence
    assert " for gpt-5, " in found.detail
    assert not re.search(r"\b(before|now)\b", found.sentence + found.detail)


def test_unanswered_cases_of_two_models_are_reported_by_model_name() -> None:
    base, new = make_outcomes(both=200)
    new |= {f"c-{number}": [E] for number in range(30)}
    found = compare(base, new, labels=make_model_labels("gpt-5", "opus"))
    assert found.sentence == (
        "Not enough evidence: 30 cases that passed for gpt-5 have no verdict for opus, and if they had failed, the conclusion would be different."
    )


def test_changed_cases_keep_the_order_of_the_base_run() -> None:
    base: Outcomes = {"z": [P, P], "a": [P, P], "m": [F, F], "b": [F, F]}
    new: Outcomes = {"a": [F, F], "b": [P, P], "m": [P, F], "z": [P, F]}
    found = compare(base, new)
    assert ([each.case for each in found.lost], [each.case for each in found.gained]) == (["z", "a"], ["m", "b"])


def test_a_proven_difference_within_the_margin_is_named_in_both_directions() -> None:
    worse: Outcomes = {str(number): [F if number < 20 else P] for number in range(2_000)}
    better: Outcomes = {str(number): [P] for number in range(2_000)}
    labels = make_model_labels("gpt-5", "opus")
    loss, gain = (compare(*sides, labels=labels) for sides in ((better, worse), (worse, better)))
    assert loss.sentence.startswith("gpt-5 beats opus by less than the margin of 5 points: ")
    assert gain.sentence.startswith("opus beats gpt-5 by less than the margin of 5 points: ")
    assert loss.is_within_margin
    assert gain.is_within_margin
    assert not compare(worse, better, margin=0.005).is_within_margin
    assert compare(worse, better).sentence.startswith(
        "Improvement between these two runs, smaller than the margin of 5 points: "
    )
