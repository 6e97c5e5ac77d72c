"""Changes of times and words between two runs: cases are paired, bounds hold for censored times, limits are applied."""

import math
import random
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy.stats import binom  # type: ignore[import-untyped]

from pramana.analyse.changes import (
    VOICE_TO_VOICE,
    CaseMeasurements,
    Change,
    decide_slowdown,
    measure_changes,
    merge_repeats,
    parse_limit,
)
from pramana.analyse.intervals import Interval, median_interval, ratio_difference_interval
from pramana.analyse.labels import make_model_labels
from pramana.errors import InvalidInput
from pramana.model import Check, Outcome


def make_call(*lines: dict[str, Any], errors: int | None = None, words: int = 10) -> CaseMeasurements:
    counts = {"substitutions": errors, "deletions": 0, "insertions": 0, "reference_words": words}
    heard = None if errors is None else {"words": counts, "characters": counts}
    evidence = {"times": {"lines": list(lines)}, "words": {"heard": heard, "references": []}}
    taken = CaseMeasurements()
    taken.add_call_check([Check("call", "1", Outcome.PASSED, "", None, evidence)])
    return taken


def make_times(seconds: float | None, **more: Any) -> dict[str, Any]:
    if seconds is None:
        return {"censored": True, "waited_s": 15.0, **more}
    return {"voice_to_voice_s": seconds, "first_audible_s": 1 + seconds, **more}


def make_side(*seconds: float | None, **more: Any) -> dict[str, CaseMeasurements]:
    return {str(case): make_call(make_times(each, **more)) for case, each in enumerate(seconds)}


def find_change(
    base: dict[str, CaseMeasurements], new: dict[str, CaseMeasurements], what: str = "voice to voice"
) -> Change:
    (found,) = (each for each in measure_changes(base, new) if each.measure == what)
    return found


def test_eight_much_slower_calls_are_a_proven_slowdown() -> None:
    found = find_change(make_side(*[0.301] * 8), make_side(*[2.0] * 8))
    assert found.is_proven
    assert found.difference == pytest.approx((1.699, 1.699))
    assert (found.base[0], found.new[0], found.cases) == (0.301, 2.0, 8)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((1.699, 1.699))


def test_fewer_than_six_cases_have_no_interval_and_prove_nothing() -> None:
    five, six = (
        find_change(make_side(*[0.3] * 5), make_side(*[2.0] * 5)),
        find_change(make_side(*[0.3] * 6), make_side(*[2.0] * 6)),
    )
    assert (five.interval, five.is_proven) == (None, False)
    assert six.is_proven


def test_cases_are_compared_line_by_line_over_their_common_repeats() -> None:
    base = {
        "a": merge_repeats([make_call(make_times(1.0), make_times(5.0)), make_call(make_times(1.2), make_times(5.2))])
    }
    new = {"a": merge_repeats([make_call(make_times(1.5)), make_call(make_times(1.9)), make_call(make_times(99.0))])}
    found = find_change(base, new)
    assert found.cases == 1
    assert found.difference == pytest.approx((0.6, 0.6))  # the second line was never reached, the third is extra


def test_a_censored_time_is_a_bound_and_never_dropped() -> None:
    found = find_change(make_side(*[0.5] * 7), make_side(*[0.5] * 3, *[None] * 4))
    assert found.difference == (14.5, math.inf)
    assert found.new == (15.0, math.inf)
    assert found.interval == Interval(0.0, math.inf)
    both = find_change(make_side(*[None] * 7), make_side(*[None] * 7))
    assert both.difference == (-math.inf, math.inf)
    assert not both.is_proven
    assert find_change(make_side(*[0.5] * 7), make_side(*[None] * 7)).is_proven


@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(0.1, 9), st.booleans(), st.booleans()), min_size=6, max_size=30))
def test_bounds_hold_for_any_value_of_the_censored_times(rows: list[tuple[float, float, bool, bool]]) -> None:
    """Cut times off at random; the interval of what is left must hold that of the whole truth."""
    truth = median_interval([(now - was, now - was) for was, now, _, _ in rows])
    base = {str(case): make_call(_censor(was, cut)) for case, (was, _, cut, _) in enumerate(rows)}
    new = {str(case): make_call(_censor(now, cut)) for case, (_, now, _, cut) in enumerate(rows)}
    found = find_change(base, new).interval
    assert truth is not None
    assert found is not None
    assert found.low <= truth.low + 1e-9
    assert found.high >= truth.high - 1e-9


def _censor(seconds: float, cut: bool) -> dict[str, Any]:
    return {"censored": True, "waited_s": seconds / 2} if cut else make_times(seconds)


def test_the_median_interval_equals_that_of_the_sign_test() -> None:
    for count in range(1, 80):
        values = [(float(each), float(each)) for each in range(count)]
        found = median_interval(values)
        left_out = max((k for k in range(count // 2 + 1) if 2 * binom.cdf(k - 1, count, 0.5) <= 0.05), default=0)
        expected = Interval(float(left_out - 1), float(count - left_out)) if left_out else None
        assert found == expected, count


def test_the_median_interval_has_its_nominal_coverage() -> None:
    chance = random.Random(7)
    hit = 0
    for _ in range(2_000):
        drawn = [chance.lognormvariate(0, 1) for _ in range(12)]
        found = median_interval([(each, each) for each in drawn])
        assert found is not None
        hit += found.low <= 1.0 <= found.high
    assert hit / 2_000 > 0.95


def test_word_errors_are_pooled_and_tested_by_sign_flips() -> None:
    base = {str(case): make_call(make_times(0.5), errors=0) for case in range(10)}
    new = {str(case): make_call(make_times(0.5), errors=3 if case < 8 else 0) for case in range(10)}
    found = find_change(base, new, "misheard words")
    assert (found.base[0], found.new[0]) == (0, 0.24)
    assert found.is_proven
    assert found.p_value == 2 / 2**8
    assert found.interval is not None
    assert 0 < found.interval.low < 0.24 < found.interval.high
    assert not find_change(base, base, "misheard words").is_proven


def test_the_interval_of_the_pooled_word_error_rate_has_its_nominal_coverage() -> None:
    chance = random.Random(3)
    hit = 0
    for _ in range(600):
        rows = []
        for _ in range(30):
            words, hard = chance.randint(5, 20), chance.random() * 0.2
            was = sum(chance.random() < hard for _ in range(words))
            rows.append((was, words, sum(chance.random() < hard + 0.1 for _ in range(words)), words))
        found = ratio_difference_interval(rows)
        assert found is not None
        hit += found.low <= 0.1 <= found.high
    assert 0.92 < hit / 600 < 0.98
    assert ratio_difference_interval(rows[:5]) is None


def test_barge_in_stop_times_are_compared() -> None:
    base = make_side(*[0.5] * 7, yield_s=0.1)
    found = find_change(base, make_side(*[0.5] * 7, yield_censored_s=2.0), "time to give way")
    assert found.difference == (1.9, math.inf)
    assert found.is_proven


def test_typed_replies_are_compared_by_their_own_times_and_never_with_calls() -> None:
    typed = {}
    for case in range(6):
        typed[str(case)] = CaseMeasurements()
        typed[str(case)].add_written_times(0.2, 0.05)
    assert [each.measure for each in measure_changes(typed, typed)] == ["total time", "time to first token"]
    assert measure_changes(typed, make_side(*[0.5] * 6)) == ()


@pytest.mark.parametrize(
    ("new", "limit", "code", "words"),
    [
        ([2.0] * 8, "200ms", 1, "Too slow: voice to voice is more than 200 ms slower; statistically significant."),
        ([2.0] * 8, "20%", 1, "Too slow: voice to voice is more than 20 % slower; statistically significant."),
        ([0.4] * 8, "200ms", 0, "Not slower by more than 200 ms: voice to voice."),
        ([0.4] * 8, "50%", 0, "Not slower by more than 50 %: voice to voice."),
        ([0.5] * 8, "200ms", 0, "Not slower by more than 200 ms: voice to voice."),  # the bar itself is met
        ([0.2] * 4 + [2.0] * 4, "200ms", 4, "voice to voice slower by more than 200 ms? Not decided: the"),
        ([2.0] * 5, "200ms", 4, "5 cases were timed, and a decision needs at least 6"),
        ([None] * 8, "5s", 1, "Too slow"),
        ([None] * 8, "20s", 4, "Not decided"),
        ([None] * 8, "300%", 1, "Too slow"),
    ],
)
def test_a_slowdown_limit_is_met_missed_or_undecided(
    new: list[float | None], limit: str, code: int, words: str
) -> None:
    found = decide_slowdown(measure_changes(make_side(*[0.3] * 8), make_side(*new)), parse_limit(limit))
    assert found.exit_code == code
    assert words in found.sentence


def test_dropping_slow_answers_does_not_make_a_run_faster() -> None:
    base, new = make_side(*[0.3] * 12), make_side(*[0.3] * 7)
    found = decide_slowdown(measure_changes(base, new), parse_limit("200ms"))
    assert found.exit_code == 4
    assert "with 5 cases timed before but not now" in found.sentence
    assert decide_slowdown(measure_changes(base, make_side(*[0.3] * 11)), parse_limit("200ms")).exit_code == 0


def test_a_slowdown_limit_is_undecided_without_times_on_both_sides() -> None:
    assert decide_slowdown((), parse_limit("1s")).exit_code == 4


@pytest.mark.parametrize("text", ["", "200", "ms", "-5ms", "5 minutes", "nan%", "1e3s", "１ms"])
def test_a_slowdown_limit_is_a_time_or_a_percentage(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"200ms, 0\.5s or 20%"):
        parse_limit(text)


def test_the_reported_difference_is_the_median_of_differences() -> None:
    chance = random.Random(1)
    before, after = [[chance.random() for _ in range(9)] for _ in range(2)]
    expected = median(now - was for was, now in zip(before, after, strict=True))
    assert find_change(make_side(*before), make_side(*after)).difference == pytest.approx((expected, expected))


def test_several_measures_are_proven_together_or_not_at_all() -> None:
    """Six cases prove one slowdown (p = 0.03), but not if another quantity is measured beside it (0.06)."""
    alone, beside = (
        find_change(make_side(*[0.3] * 6, **more), make_side(*[2.0] * 6, **more)) for more in ({}, {"yield_s": 0.1})
    )
    assert (alone.p_value, alone.adjusted_p_value, alone.is_proven) == (2 / 2**6, 2 / 2**6, True)
    assert (beside.p_value, beside.adjusted_p_value, beside.is_proven) == (2 / 2**6, 4 / 2**6, False)
    assert beside.sentence == ""
    assert beside.detail.endswith("exact sign test; not significant among 2 measures, adjusted p = 0.062).")
    assert "adjusted" not in alone.detail
    assert beside.interval == alone.interval  # each interval holds by itself


def test_identical_runs_have_a_proven_change_in_at_most_one_of_twenty() -> None:
    """Four independent measures; at 5 % each, one in six pairs of identical runs had such a sentence."""
    chance, rounds, alarms, unadjusted = random.Random(5), 300, 0, 0

    def draw_call() -> CaseMeasurements:
        call = make_call(make_times(chance.uniform(1, 2), yield_s=chance.random()), errors=chance.randrange(5))
        call.add_written_times(chance.uniform(1, 2), None)
        return call

    for _ in range(rounds):
        base, new = ({str(case): draw_call() for case in range(12)} for _ in range(2))
        found = measure_changes(base, new)
        assert len(found) == 4
        alarms += any(each.is_proven for each in found)
        unadjusted += any(each.p_value <= 0.05 for each in found)
    assert alarms / rounds <= 0.05 < unadjusted / rounds


def test_variants_that_are_slow_together_do_not_raise_false_alarms() -> None:
    """Taken as cases, three variants that are slow together have a significant difference in one of five runs."""
    chance, rounds, alarms, as_cases = random.Random(6), 400, 0, 0
    for _ in range(rounds):
        base: dict[str, CaseMeasurements] = {}
        new: dict[str, CaseMeasurements] = {}
        for case in range(15):
            slower = chance.gauss(0, 0.2)
            for way in ("(voice)", "(voice+phone)", "(voice+noise=10dB)"):
                base[f"{case} {way}"] = make_call(make_times(1.0))
                new[f"{case} {way}"] = make_call(make_times(1.0 + slower + chance.gauss(0, 0.01)))
        (found,) = (each for each in measure_changes(base, new) if each.measure == VOICE_TO_VOICE)
        assert found.cases == 15
        alarms += found.p_value <= 0.05
        renamed = [{key.replace(" (", "-("): one for key, one in side.items()} for side in (base, new)]
        (apart,) = (each for each in measure_changes(*renamed) if each.measure == VOICE_TO_VOICE)
        as_cases += apart.p_value <= 0.05
    assert alarms / rounds <= 0.05 < as_cases / rounds


def test_changes_between_two_models_of_one_run_use_model_names() -> None:
    labels = make_model_labels("gpt-5", "opus")
    slow = replace(find_change(make_side(*[0.5] * 7), make_side(*[2.0] * 7)), labels=labels)
    assert slow.sentence == "opus is slower: voice to voice by 1.50 s (median of 7 cases); statistically significant."
    assert slow.detail.startswith("Voice to voice 500 ms for gpt-5, 2.00 s for opus: median difference +1.50 s")
    base = {str(case): make_call(make_times(0.5), errors=0) for case in range(10)}
    new = {str(case): make_call(make_times(0.5), errors=3) for case in range(10)}
    wrong = replace(find_change(base, new, "misheard words"), labels=labels)
    assert wrong.sentence == (
        "More words wrong for opus: misheard words 0 % for gpt-5, 30.0 % for opus; statistically significant."
    )
