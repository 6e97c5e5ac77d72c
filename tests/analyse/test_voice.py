"""Percentiles checked for all possible values of censored times, rates, and the voice tax per case."""

import math
import random
from itertools import product
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pramana.analyse.comparison import compare
from pramana.analyse.voice import (
    MIN_EVENT_OPPORTUNITIES,
    BoundedSeconds,
    Cause,
    EventShare,
    Latency,
    LostAnswer,
    MeasuredLine,
    ModalityResult,
    are_comparable,
    find_loss_cause,
    list_latency_observations,
    make_modality_result,
    measure_latency,
    measure_turn_taking,
    measure_voice_taxes,
    read_measured_lines,
)
from pramana.errors import InvalidInput
from pramana.model import Check, Outcome, Reply, Result, ResultKey

PASSED, FAILED, ERRORED, UNSCORED, SKIPPED = Outcome
SHARES = {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}

# ── Percentiles ──


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0, 60, allow_nan=False), min_size=1, max_size=40))
def test_percentiles_without_censored_times_match_numpy(times: list[float]) -> None:
    found = measure_latency([(each, False) for each in times])
    assert (found.n, found.censored) == (len(times), 0)
    for name, share in SHARES.items():
        seconds = getattr(found, name)
        assert seconds.relation == "="
        assert seconds.value == pytest.approx(float(np.percentile(times, share)), abs=1e-9)


def possible_times(seen: list[tuple[float, bool]]) -> list[list[float]]:
    """Return the times as they may have been: each censored one a trifle, somewhat or far longer than was waited."""
    return [
        list(times)
        for times in product(
            *([wait + more for more in (1e-7, 0.35, 1.2, 1e6)] if censored else [wait] for wait, censored in seen)
        )
    ]


@pytest.mark.parametrize("seed", range(40))
def test_percentile_bounds_hold_for_any_value_of_the_censored_times(seed: int) -> None:
    chance = random.Random(seed)
    seen = [
        (chance.choice([0.4, 0.5, 0.7, 1.0, 1.5, 2.0]), chance.random() < 0.3) for _ in range(chance.randrange(1, 9))
    ]
    seen = [each for place, each in enumerate(seen) if not each[1] or sum(some[1] for some in seen[:place]) < 3]
    if not seen:
        return
    found = measure_latency(seen)
    assert found.censored == sum(censored for _, censored in seen)
    for name, share in SHARES.items():
        seconds = getattr(found, name)
        possible = [float(np.percentile(times, share)) for times in possible_times(seen)]
        if seconds.relation == "=":
            assert possible == pytest.approx([seconds.value] * len(possible), abs=1e-6)
            continue
        assert min(possible) == pytest.approx(seconds.value, abs=1e-6)
        assert max(possible) > seconds.value + 0.01  # so no number could have been given
        attained = any(each == pytest.approx(seconds.value, abs=1e-12) for each in possible)
        assert attained == (seconds.relation == "≥")


def test_a_percentile_among_unanswered_lines_is_a_bound() -> None:
    found = measure_latency([(0.5, False)] * 18 + [(15.0, True)] * 2)
    assert (found.n, found.censored) == (20, 2)
    assert found.p50 == BoundedSeconds(0.5)
    assert str(found.p90) == "> 1.950 s"  # between the last answer and 15 s of waiting
    assert [str(each) for each in (found.p95, found.p99, found.max)] == ["> 15.000 s"] * 3
    assert str(measure_latency([(15.0, True)] * 3).p50) == "> 15.000 s"


def test_an_early_broken_call_leaves_higher_percentiles_open() -> None:
    found = measure_latency([(0.3, True), (1.0, False), (2.0, False)])
    assert found.p50 == BoundedSeconds(1.0, "≥")  # it may have been the fastest of all, or the slowest
    assert found.max == BoundedSeconds(2.0, "≥")
    assert str(found.max) == "≥ 2.000 s"


def test_no_percentile_without_times() -> None:
    assert measure_latency([]) == Latency()


def test_an_integer_rank_needs_no_interpolation() -> None:
    for n in range(2, 400):  # share * (n - 1) is not always exact
        for share in (0.5, 0.9, 0.95, 0.99):
            rank = share * (n - 1)
            if abs(rank - round(rank)) < 1e-9 and round(rank) < n - 1:
                seen = [(float(place), place > round(rank)) for place in range(n)]
                seconds = getattr(measure_latency(seen), f"p{round(share * 100)}")
                assert seconds.relation == "="
                assert seconds.value == pytest.approx(round(rank))


# ── Turn taking ──


def test_a_rate_of_few_events_is_hidden() -> None:
    assert EventShare(5, MIN_EVENT_OPPORTUNITIES - 1).value is None
    assert EventShare(5, MIN_EVENT_OPPORTUNITIES).value == 0.5
    assert EventShare(0, 0).value is None


def test_lines_are_summarised() -> None:
    answered = [
        MeasuredLine(
            voice_to_voice_s=each,
            first_audible_s=3.0,
            to_first_byte_s=each - 0.1,
            leading_silence_s=0.1,
            total_s=each + 2,
        )
        for each in (0.4, 0.6, 0.8)
    ]
    cut_in = MeasuredLine(first_audible_s=1.0, total_s=2.0, cut_in=True, overlap_s=0.5, gaps=2, longest_gap_s=0.9)
    unanswered = MeasuredLine(censored=True, waited_s=15.0)
    gave_way = MeasuredLine(first_audible_s=5.0, voice_to_voice_s=0.7, talked_into=True, yield_s=0.3, overlap_s=0.3)
    talked_on = MeasuredLine(talked_into=True, yield_censored_s=2.0, overlap_s=1.5)
    ignored, stopped = MeasuredLine(false_interruption=False), MeasuredLine(false_interruption=True)
    found = measure_turn_taking([*answered, cut_in, unanswered, gave_way, talked_on, ignored, stopped])
    assert found.lines == 9
    assert (found.voice_to_voice.n, found.voice_to_voice.censored) == (5, 1)
    assert found.voice_to_voice.p50 == BoundedSeconds(0.7)
    assert (found.first_byte.n, found.first_byte.censored) == (4, 1)
    assert (found.total.n, found.total.censored) == (4, 1)
    assert found.leading_silence.p50 == BoundedSeconds(0.1)
    assert (found.yields.n, found.yields.censored, found.yields.max) == (2, 1, BoundedSeconds(2.0, ">"))
    assert found.unanswered == EventShare(1, 6)
    assert found.cut_in == EventShare(1, 5)
    assert found.yielded == EventShare(1, 2)
    assert found.false_interruptions == EventShare(1, 2)
    assert found.with_gaps == EventShare(1, 5)
    assert found.longest_gap_seconds == 0.9
    assert found.overlap_seconds == pytest.approx(2.3)
    assert msgspec.json.encode(found)
    assert measure_turn_taking([]).voice_to_voice == Latency()


def test_unreliable_times_of_a_late_machine_are_counted() -> None:
    late = MeasuredLine(first_audible_s=3.0, voice_to_voice_s=0.4, reliable=False)
    fine = MeasuredLine(first_audible_s=3.0, voice_to_voice_s=0.4, reliable=True)
    cut_in = MeasuredLine(first_audible_s=1.0, cut_in=True, reliable=False)  # it has no time from voice to voice
    unanswered = MeasuredLine(censored=True, waited_s=15.0, reliable=False)
    assert measure_turn_taking(
        [late, fine, MeasuredLine(first_audible_s=3.0, voice_to_voice_s=0.4), cut_in]
    ).unreliable == EventShare(1, 3)
    assert measure_turn_taking([late, unanswered]).unreliable == EventShare(2, 2)


def test_lines_are_read_from_the_evidence_of_a_check() -> None:
    evidence = {
        "times": {"lines": [{"line": 0, "voice_to_voice_s": 0.5, "first_audible_s": 2, "new": 1}], "reason": "done"}
    }
    assert read_measured_lines(evidence) == [MeasuredLine(voice_to_voice_s=0.5, first_audible_s=2)]
    assert read_measured_lines({}) == []
    assert list_latency_observations(read_measured_lines(evidence)) == [(0.5, False)]
    broken: list[Any] = [{"lines": 3}, {"lines": [{"gaps": "many"}]}, {}]
    for times in broken:
        with pytest.raises(InvalidInput, match="has no valid times for its lines"):
            read_measured_lines({"times": times})


# ── The voice tax ──


def make_spoken(outcome: Outcome, **more: Any) -> ModalityResult:
    return ModalityResult("sha256:a", "m", 0, "voice", outcome, **({"has_complete_call": True} | more))


EVERYTHING = list(
    product(Outcome, Outcome, (True, False), (True, False, None), (True, False), (True, False), (True, False))
)


@pytest.mark.parametrize("typed", Outcome)
def test_each_loss_gets_the_first_cause_that_applies(typed: Outcome) -> None:
    seen: set[Cause | None] = set()
    for text, outcome, called, heard, transcript, contradicted, late in EVERYTHING:
        if text is not typed:
            continue
        given_to = make_spoken(
            outcome,
            has_complete_call=called,
            is_caller_heard_correctly=heard,
            transcript_passed=transcript,
            sound_contradicts=contradicted,
            has_late_answer=late,
        )
        expected: Cause | None = "unattributed"
        # From the last rule to the first: each overrules those below it.
        if late:
            expected = "time"
        if transcript and contradicted:
            expected = "speaking"
        if heard is False:
            expected = "hearing"
        if text is FAILED:
            expected = "reasoning"
        if outcome is PASSED or text not in (PASSED, FAILED):
            expected = None
        if outcome in (UNSCORED, SKIPPED) or (outcome is ERRORED and not called):
            expected = None
        assert find_loss_cause(text, given_to) == expected, given_to
        assert not (expected and not are_comparable(text, given_to))
        seen.add(expected)
    everything = {
        PASSED: {None, "hearing", "speaking", "time", "unattributed"},
        FAILED: {None, "reasoning"},
    }
    assert seen == everything.get(typed, {None})
    assert len(EVERYTHING) == 5 * 5 * 2 * 3 * 2 * 2 * 2


def make_typed(case: str, outcome: Outcome, model: str = "m", repeat: int = 0) -> ModalityResult:
    return ModalityResult(case, model, repeat, "text", outcome)


def make_voiced(
    case: str, outcome: Outcome, variant: str = "voice", model: str = "m", repeat: int = 0, **more: Any
) -> ModalityResult:
    return ModalityResult(case, model, repeat, variant, outcome, **({"has_complete_call": True} | more))


def test_the_voice_tax_is_counted_per_pair() -> None:
    answers = [
        *(make_typed(case, PASSED) for case in "abcdefgh"),
        make_typed("i", FAILED),
        make_typed("j", FAILED),
        make_typed("k", ERRORED),
        make_voiced("a", PASSED),
        make_voiced("b", FAILED, is_caller_heard_correctly=False),
        make_voiced("c", ERRORED, transcript_passed=True, sound_contradicts=True, is_caller_heard_correctly=True),
        make_voiced("d", ERRORED, has_late_answer=True),
        make_voiced("e", FAILED, is_caller_heard_correctly=True),
        make_voiced("f", SKIPPED),
        make_voiced("g", ERRORED, has_complete_call=False),
        make_voiced("h", PASSED, is_caller_heard_correctly=False),  # misheard, and answered all the same
        make_voiced("i", FAILED, is_caller_heard_correctly=False),
        make_voiced("j", PASSED),
        make_voiced("k", PASSED),
        make_voiced("z", PASSED),  # never typed
    ]
    (found,) = measure_voice_taxes(answers)
    assert (found.model, found.variant) == ("m", "voice")
    assert (found.pairs, found.kept, found.gained, found.reasoning, found.excluded) == (8, 2, 1, 1, 4)
    assert found.lost == (
        LostAnswer("b", 0, "hearing"),
        LostAnswer("c", 0, "speaking"),
        LostAnswer("d", 0, "time"),
        LostAnswer("e", 0, "unattributed"),
    )
    assert found.causes == {"hearing": 1, "speaking": 1, "time": 1, "unattributed": 1}
    assert found.text_rate == pytest.approx(6 / 8)
    assert found.voice_rate == pytest.approx(3 / 8)
    assert found.difference == pytest.approx(-3 / 8)
    referee = compare(
        {case: [PASSED] for case in "abcdeh"} | {"i": [FAILED], "j": [FAILED]},
        {case: [PASSED] for case in "ahj"} | {case: [FAILED] for case in "bcdei"},
    )
    assert found.interval == (referee.interval.low, referee.interval.high)
    assert found.p_value == referee.p_value == pytest.approx(0.375)
    assert msgspec.json.encode(found)


def test_models_variants_and_repeats_are_kept_separate() -> None:
    answers = [
        *(make_typed("a", PASSED, model, repeat) for model in ("m", "n") for repeat in range(3)),
        *(make_voiced("a", FAILED, "voice", "m", repeat) for repeat in range(3)),
        *(make_voiced("a", PASSED, "voice+noise=10dB", "m", repeat) for repeat in range(2)),
        *(make_voiced("a", PASSED, "voice", "n", repeat) for repeat in range(2)),
        make_voiced("a", FAILED, "voice", "n", 2),
    ]
    found = measure_voice_taxes(reversed(answers))
    assert [(each.model, each.variant, each.pairs, len(each.lost)) for each in found] == [
        ("m", "voice", 3, 3),
        ("m", "voice+noise=10dB", 2, 0),
        ("n", "voice", 3, 1),
    ]
    assert [each.difference for each in found] == [-1.0, 0.0, pytest.approx(-1 / 3)]
    assert found[2].lost == (LostAnswer("a", 2, "unattributed"),)
    # Three answers to one case are one case: nothing is proven by it.
    assert all(each.interval[1] > 0 for each in found)
    assert found[0].p_value == 1.0


def test_no_voice_tax_without_pairs() -> None:
    assert measure_voice_taxes([]) == measure_voice_taxes([make_typed("a", PASSED)]) == ()
    (found,) = measure_voice_taxes([make_voiced("a", FAILED)])
    assert (found.pairs, found.excluded, found.difference, found.interval) == (0, 1, None, (-1.0, 1.0))


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcd"), st.integers(0, 1), st.sampled_from(list(Outcome)), st.sampled_from(list(Outcome)),
            st.booleans(), st.sampled_from([True, False, None]), st.booleans(),
        ),
        max_size=12, unique_by=lambda each: each[:2],
    )
)  # fmt: skip
def test_each_spoken_answer_is_counted_once(
    rows: list[tuple[str, int, Outcome, Outcome, bool, bool | None, bool]],
) -> None:
    answers = [make_typed(case, text, repeat=repeat) for case, repeat, text, *_ in rows]
    answers += [
        make_voiced(
            case,
            outcome,
            repeat=repeat,
            has_complete_call=called,
            is_caller_heard_correctly=heard,
            has_late_answer=late,
        )
        for case, repeat, _, outcome, called, heard, late in rows
    ]
    for found in measure_voice_taxes(answers):
        assert found.pairs == found.kept + found.gained + found.reasoning + len(found.lost)
        assert found.pairs + found.excluded == len(rows)
        assert sum(found.causes.values()) == len(found.lost)
        assert {each.cause for each in found.lost} <= set(get_args(Cause)) - {"reasoning"}
        if found.pairs:
            assert found.difference is not None
            assert found.interval[0] <= found.difference <= found.interval[1]
            assert not math.isnan(found.p_value)


# ── From results ──


def make_result(*checks: Check, variant: str = "voice") -> Result:
    return Result(ResultKey("sha256:a", "m", variant, 1), "a-1", Reply("yes"), None, checks, None, None)


def make_call_check(
    outcome: Outcome = PASSED, *, state: str = "ok", heard: int | None = 0, reason: str = "done", **line: Any
) -> Check:
    evidence = {
        "times": {"lines": [{"line": 0, **line}], "reason": reason},
        "words": {"heard": None if heard is None else {"count": heard}},
        "guard": {"state": state},
    }
    return Check("call", "1", outcome, "", None, evidence)


RIGHT, WRONG = Check("contains", "1", PASSED, ""), Check("contains", "1", FAILED, "")


def test_a_typed_answer_has_no_call_data() -> None:
    assert make_modality_result(make_result(RIGHT, variant="text")) == ModalityResult(
        "sha256:a", "m", 1, "text", PASSED
    )


@pytest.mark.parametrize(
    ("checks", "expected"),
    [
        ((RIGHT, make_call_check()), {"outcome": PASSED, "is_caller_heard_correctly": True, "transcript_passed": True}),
        (
            (WRONG, make_call_check(heard=2)),
            {"outcome": FAILED, "is_caller_heard_correctly": False, "transcript_passed": False},
        ),
        (
            (RIGHT, make_call_check(heard=None)),
            {"outcome": PASSED, "is_caller_heard_correctly": None, "transcript_passed": True},
        ),
        (
            (RIGHT, make_call_check(ERRORED, state="contradicts")),
            {
                "outcome": ERRORED,
                "is_caller_heard_correctly": True,
                "transcript_passed": True,
                "sound_contradicts": True,
            },
        ),
        (
            (WRONG, make_call_check(ERRORED, state="silent", censored=True, waited_s=15.0, reason="no_answer")),
            {"outcome": FAILED, "is_caller_heard_correctly": True, "sound_contradicts": True, "has_late_answer": True},
        ),
        (
            (RIGHT, make_call_check(state="not checked")),
            {
                "outcome": PASSED,
                "is_caller_heard_correctly": True,
                "transcript_passed": True,
                "sound_contradicts": False,
            },
        ),
        # The judge could not judge, or the provider hung up: nothing is known about the voice.
        (
            (Check("rubric", "1", ERRORED, ""), make_call_check()),
            {"outcome": ERRORED, "is_caller_heard_correctly": True, "has_complete_call": False},
        ),
        (
            (RIGHT, make_call_check(ERRORED, reason="closed")),
            {
                "outcome": ERRORED,
                "is_caller_heard_correctly": True,
                "transcript_passed": True,
                "has_complete_call": False,
            },
        ),
    ],
)
def test_a_spoken_answer_is_read_from_its_result(checks: tuple[Check, ...], expected: dict[str, Any]) -> None:
    assert make_modality_result(make_result(*checks)) == ModalityResult(
        "sha256:a", "m", 1, "voice", **({"has_complete_call": True} | expected)
    )


def test_evidence_of_another_shape_does_not_crash() -> None:
    odd = Check("call", "1", PASSED, "", None, {"words": 3, "guard": [], "times": None})
    assert make_modality_result(make_result(RIGHT, odd)).is_caller_heard_correctly is None
