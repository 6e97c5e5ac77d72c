"""Summaries of the calls of a run: each line counts once, errors are pooled, and failed calls are not dropped."""

import json
from typing import Any

import pytest

from pramana.analyse.voice import BoundedSeconds, CallTally, WordErrors
from pramana.errors import InvalidInput
from pramana.model import Check, Outcome, Reply, Result, ResultKey

PASSED, FAILED, ERRORED, UNSCORED, SKIPPED = Outcome


def make_line(seconds: float | None = 0.5, **more: Any) -> dict[str, Any]:
    heard = {} if seconds is None else {"first_audible_s": 2 + seconds, "to_first_byte_s": seconds - 0.1}
    leading = {} if seconds is None else {"leading_silence_s": 0.1}
    return {"line": 0, "voice_to_voice_s": seconds, **heard, **leading, **more}


UNANSWERED = make_line(None, censored=True, waited_s=15.0)


def make_word_counts(errors: int, words: int) -> dict[str, Any]:
    parts = {"substitutions": errors, "deletions": 0, "insertions": 0, "reference_words": words}
    missed = [{"kind": "number", "text": "9"}] * errors
    return {"words": parts, "characters": {**parts, "reference_words": 4 * words}, "count": errors, "missed": missed}


def make_evidence(*lines: dict[str, Any], **more: Any) -> dict[str, Any]:
    found = {"times": {"lines": list(lines), "reason": "done"}, "guard": {"state": "ok"}}
    words = {"heard": more.get("heard"), "references": more.get("references", [])}
    sound = {"words_a_minute": more.get("pace"), "quality": {"overall": more["quality"]} if "quality" in more else None}
    return {**found, "words": words, "sound": sound}


def make_result(
    case: str = "a", variant: str = "voice", words: Outcome = PASSED, call: Outcome = PASSED, **given: Any
) -> Result:
    key = ResultKey(case, given.get("model", "m"), variant, given.get("repeat", 0))
    checks = [Check("contains", "1", words, "")]
    if variant != "text":
        checks.append(Check("call", "1", call, "", None, given.get("evidence", make_evidence(make_line()))))
    return Result(key, case, Reply(""), None, tuple(checks), None, None)


def summarise_calls(*results: Result) -> Any:
    tally = CallTally()
    for each in results:
        tally.add(each)
    return tally.summarise_voice()


def test_no_voice_summary_without_calls() -> None:
    assert summarise_calls() is None
    assert summarise_calls(make_result(variant="text")) is None


def test_each_line_of_each_call_is_counted_once_per_model_and_variant() -> None:
    found = summarise_calls(
        make_result("a", evidence=make_evidence(make_line(0.4), make_line(0.6))),
        make_result("b", evidence=make_evidence(make_line(0.8))),
        make_result("a", "voice+noise=10dB", evidence=make_evidence(make_line(1.0))),
        make_result("a", model="n", evidence=make_evidence(make_line(2.0))),
    )
    assert [(each.model, each.variant, each.calls, each.voice_to_voice.n) for each in found.by] == [
        ("m", "voice", 2, 3),
        ("m", "voice+noise=10dB", 1, 1),
        ("n", "voice", 1, 1),
    ]
    first = found.by[0]
    assert str(first.voice_to_voice.p50) == "0.600 s"
    assert str(first.turn_taking.first_byte.p50) == "0.500 s"
    assert first.median_leading_silence_s == pytest.approx(0.1)
    assert first.turn_taking.lines == 3


def test_an_unanswered_line_counts_as_longer_than_the_wait() -> None:
    found = summarise_calls(
        make_result("a", evidence=make_evidence(make_line(0.4))),
        make_result("b", call=ERRORED, evidence=make_evidence(UNANSWERED)),
    )
    (row,) = found.by
    times = row.voice_to_voice
    assert (row.calls, times.n, times.censored) == (2, 2, 1)
    assert times.max == BoundedSeconds(15.0, ">")
    assert row.turn_taking.unanswered.happened == 1


def test_word_errors_are_pooled_over_words_not_averaged_over_calls() -> None:
    found = summarise_calls(
        make_result(
            "a",
            evidence=make_evidence(
                make_line(), heard=make_word_counts(1, 2), references=[make_word_counts(2, 4), None]
            ),
        ),
        make_result(
            "b",
            evidence=make_evidence(
                make_line(), heard=make_word_counts(0, 8), references=[make_word_counts(0, 4), make_word_counts(1, 2)]
            ),
        ),
        make_result("c", evidence=make_evidence(make_line())),
    )
    (row,) = found.by
    assert (row.heard, row.heard.rate) == (
        WordErrors(1, 10, 0.25, 1, 40, 1),
        0.1,
    )  # the mean of a half and none, beside the pool
    assert (row.referred.errors, row.referred.words, row.referred.rate) == (3, 10, 0.3)
    assert row.referred.mean == pytest.approx((2 / 4 + 1 / 6) / 2)


def test_no_error_rate_without_reference_text() -> None:
    (row,) = summarise_calls(make_result()).by
    assert (row.heard.rate, row.referred.rate, row.words_a_minute, row.quality) == (None, None, None, None)


def test_speech_rate_and_quality_are_medians_over_calls_that_have_them() -> None:
    (row,) = summarise_calls(
        *(
            make_result(str(each), evidence=make_evidence(make_line(), pace=each, quality=each / 100))
            for each in (100, 300, 110)
        ),
        make_result("none"),
    ).by
    assert (row.words_a_minute, row.quality) == (110, 1.1)


def test_the_voice_tax_covers_only_cases_that_were_also_typed() -> None:
    contradicted = {**make_evidence(make_line()), "guard": {"state": "contradicts"}}
    found = summarise_calls(
        make_result("a", "text"),
        make_result("b", "text"),
        make_result("c", "text", FAILED),
        make_result("a"),
        make_result("b", call=ERRORED, evidence=contradicted),
        make_result("c", words=FAILED),
        make_result("only spoken"),
    )
    (tax,) = found.tax
    assert (tax.variant, tax.pairs, tax.kept, tax.reasoning, len(tax.lost), tax.excluded) == ("voice", 3, 1, 1, 1, 1)
    assert tax.causes == {"hearing": 0, "speaking": 1, "time": 0, "unattributed": 0}
    assert summarise_calls(make_result("a")).tax == ()


def test_skipped_and_unmeasured_calls_are_counted_without_times() -> None:
    unmeasured = Check("call", "1", ERRORED, "the call could not be measured")
    skipped = Check("voice", "1", SKIPPED, "which cannot be spoken")
    broken = Result(ResultKey("a", "m", "voice"), "a", Reply(""), None, (unmeasured,), None, None)
    left = Result(ResultKey("b", "m", "voice"), "b", None, None, (skipped,), None, None)
    found = summarise_calls(broken, left)
    assert found is not None
    assert found.by == ()


def test_the_voice_summary_is_plain_data_with_rates() -> None:
    found = summarise_calls(
        make_result("a", "text"),
        make_result(
            "a",
            evidence=make_evidence(
                make_line(), UNANSWERED, heard=make_word_counts(1, 4), references=[make_word_counts(1, 2)]
            ),
        ),
    )
    data = json.loads(json.dumps(found.as_data()))
    (row,), (tax,) = data["by"], data["tax"]
    assert (row["heard_wer"], row["reference_wer"]) == (0.25, 0.5)
    assert row["voice_to_voice"]["max"] == {"value": 15.0, "relation": ">"}
    assert row["voice_to_voice"]["censored"] == 1
    assert tax["causes"] == {"hearing": 0, "speaking": 0, "time": 0, "unattributed": 0}


def test_malformed_evidence_raises_our_own_error() -> None:
    with pytest.raises(InvalidInput, match="has no valid times for its lines"):
        summarise_calls(make_result(evidence={"times": {"lines": "none"}}))


@pytest.mark.parametrize(
    ("words", "answers", "by_ear"),
    [
        ({"recorded": "we open at nine", "transcript": None}, ("we open at nine",), 1),
        ({"recorded": "we open", "transcript": {"reference": "We open at nine."}}, ("We open at nine.",), 0),
        ({"recorded": "we open", "transcript": {"reference": "We open at nine."}}, ("we open",), 1),  # cut off
        ({"recorded": None, "transcript": None, "why_not": "no STT for fr"}, ("",), 0),
        ({"recorded": "", "transcript": None}, ("",), 0),
    ],
)
def test_verdicts_based_on_our_own_transcript_are_counted(
    words: dict[str, Any], answers: tuple[str, ...], by_ear: int
) -> None:
    found = make_evidence(make_line())
    found["words"] |= words
    of_call = Check("call", "1", PASSED, "", None, found)
    spoken = Result(ResultKey("a", "m", "voice"), "a", Reply("", answers=answers), None, (of_call,), None, None)
    (row,) = summarise_calls(spoken).by
    assert row.by_ear == by_ear
    errored = Result(
        ResultKey("a", "m", "voice"), "a", Reply(""), None, (of_call, Check("x", "1", ERRORED, "")), None, None
    )
    assert summarise_calls(errored).by[0].by_ear == 0
