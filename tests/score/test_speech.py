"""Calls measured with real voice, recognition, detector and quality estimate; the evidence guard on real audio."""

import json
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from rapidfuzz.distance import Levenshtein

from pramana import audio
from pramana.embedded import activity, quality, voice
from pramana.embedded.ears import LANGUAGES, WhisperModel
from pramana.errors import EngineMissing
from pramana.model import Outcome
from pramana.score import evidence
from pramana.score.evidence import GuardResult, check_evidence, compute_transcript_error_rate, trim_silences
from pramana.score.speech import CallMeasurements, QualityEstimate, TextComparison, make_call_check, measure_call
from pramana.score.words import Entity

pytestmark = pytest.mark.usefixtures("real_models")
RATE = audio.RECORDING_SAMPLE_RATE
Samples = NDArray[np.int16]
QUESTION = "When do you open on Friday, and can I pay with 20 dollars?"
ANSWER = "We are open from nine in the morning until six in the evening, every day of the week."
OTHER = "The train to the coast leaves from platform two, and there are still many seats in the last carriage."


@cache
def open_recognition() -> WhisperModel:
    return WhisperModel.open()


def transcribe(samples: Samples) -> str:
    """Return what the real ears hear; each sound is listened to once."""
    return _transcribe_bytes(samples.tobytes())


@cache
def _transcribe_bytes(data: bytes) -> str:
    return open_recognition().transcribe(np.frombuffer(data, np.int16))


@cache
def speak_at_recording_rate(text: str) -> Samples:
    """Return a text as the agent says it, at the rate of the recording."""
    return audio.resample(voice.speak(text, "en"), audio.CALLER_SAMPLE_RATE, RATE)


class Tape:
    """A recording of one question and one answer, and its log."""

    def __init__(self, answer: Samples, *texts: str, heard: str | None = None, question: str = QUESTION) -> None:
        asked = speak_at_recording_rate(question)
        self.start = 0.2 + len(asked) / RATE + 0.5
        self.samples = np.zeros((round(self.start * RATE) + len(answer) + RATE, 2), np.int16)
        self.put(0, 0.2, asked)
        self.put(1, self.start, answer)
        end = 0.2 + len(asked) / RATE
        self.events: list[dict[str, Any]] = [
            {"t": 0, "event": "call", "version": 1, "rate": RATE, "answer_within_s": 15.0},
            {"t": end, "event": "line", "line": 0, "text": question, "start": 0.2, "end": end, "barge_in": False},
        ]
        if heard is not None:
            self.add(end + 0.1, "user_text", text=heard, final=True)
        self.add(self.start, "agent_audio", plays=self.start, seconds=len(answer) / RATE)
        for text in texts:
            self.add(self.start + 0.01, "agent_text", text=text, final=False)

    def put(self, channel: int, at: float, samples: Samples) -> None:
        first = round(at * RATE)
        self.samples[first : first + len(samples), channel] = samples

    def add(self, at: float, event: str, **more: Any) -> None:
        self.events.append({"t": at, "event": event, **more})

    def interrupt(self, at: float, **more: Any) -> None:
        """Let the caller say something at a time, and the agent stop for it."""
        self.add(at, "interrupted", **more)
        line = {"line": 1, "text": "Stop.", "start": at - 0.2, "end": at + 0.3, "barge_in": True}
        self.add(at + 0.3, "line", **line)

    def measure(self, *, reason: str = "done", language: str = "en", **more: Any) -> CallMeasurements:
        self.add(len(self.samples) / RATE, "end", reason=reason)
        arguments: dict[str, Any] = {
            "transcribe": transcribe,
            "transcribable_languages": LANGUAGES,
            "language": language,
        } | more
        return measure_call(self.samples, RATE, self.events, **arguments)


# ── Evidence, and what is none ──


def test_a_call_whose_audio_matches_its_transcript_passes() -> None:
    tape = Tape(speak_at_recording_rate(ANSWER), *(f"{word} " for word in ANSWER.split()), heard=QUESTION)
    measured = tape.measure(detect_speech=activity.find_speech_spans, vad_label=activity.DETECTOR_SETTINGS_TEXT)
    check = make_call_check(measured)
    assert (check.name, check.outcome) == ("call", Outcome.PASSED)
    assert check.value == measured.times.lines[0].voice_to_voice_s == pytest.approx(0.5, abs=0.4)
    assert "english-1" in check.version
    assert activity.DETECTOR_SETTINGS_TEXT in check.version
    assert measured.guard.state == "ok"
    assert measured.guard.rate is not None
    assert measured.guard.rate < 0.3
    assert measured.times.lines[0].speech_confirmed
    assert "the recording matches the transcript" in check.reason
    assert measured.words.recorded


def test_audio_that_contradicts_the_transcript_is_an_error_not_a_failure() -> None:
    check = make_call_check(Tape(speak_at_recording_rate(OTHER), ANSWER).measure())
    assert check.outcome is Outcome.ERRORED
    assert check.reason.startswith("the recording contradicts the transcript: character error rate")
    assert isinstance(check.evidence["guard"], dict)
    assert check.evidence["guard"]["state"] == "contradicts"


@pytest.mark.parametrize("text", [ANSWER, OTHER, "Your order of three blue lamps will arrive on Tuesday before noon."])
def test_the_evidence_guard_distinguishes_real_sentences(text: str) -> None:
    heard = transcribe(voice.speak(text, "en"))
    assert (
        check_evidence(speak_at_recording_rate(text), text, heard, "en", sample_rate=audio.CALLER_SAMPLE_RATE).state
        == "ok"
    )
    for other in {ANSWER, OTHER} - {text}:
        assert (
            check_evidence(
                speak_at_recording_rate(text), other, heard, "en", sample_rate=audio.CALLER_SAMPLE_RATE
            ).state
            == "contradicts"
        )


def test_a_silent_answer_is_an_error() -> None:
    check = make_call_check(Tape(np.zeros(2 * RATE, np.int16), ANSWER).measure())
    assert (check.outcome, check.value) == (Outcome.ERRORED, None)
    assert check.reason == "the agent's channel of the recording is silent"


def test_a_clipped_answer_is_an_error() -> None:
    loud = np.clip(speak_at_recording_rate(ANSWER).astype(np.int64) * 200, -32768, 32767).astype(np.int16)
    check = make_call_check(Tape(loud, ANSWER).measure())
    assert check.outcome is Outcome.ERRORED
    assert "of the agent's sound is at full scale" in check.reason


@pytest.mark.parametrize(
    ("message", "more", "why"),
    [
        (ANSWER, {"language": "fr"}, "not checked: no STT for fr"),
        (ANSWER, {"transcribe": None}, "not checked: no STT for en"),
        ("", {}, "not checked: the agent gave no transcript of what it said"),
        ("Six.", {"transcribe": lambda _: "Sex."}, "not checked: 3 characters are too few to compare"),
        (ANSWER, {"transcribe": lambda _: "we are " * 50}, "not checked: the speech recognition is stuck in a loop"),
    ],
)
def test_an_uncheckable_answer_says_so_without_an_error(message: str, more: dict[str, Any], why: str) -> None:
    measured = Tape(speak_at_recording_rate(ANSWER), message).measure(**more)
    assert measured.guard.state == "not checked"
    assert measured.guard.reason.startswith(why)
    check = make_call_check(measured)
    assert check.outcome is Outcome.PASSED
    assert why in check.reason


def test_a_language_is_supported_for_any_region() -> None:
    assert Tape(speak_at_recording_rate(ANSWER), ANSWER).measure(language="en-GB").guard.state == "ok"


def test_long_speech_under_a_short_transcript_is_a_contradiction() -> None:
    assert Tape(speak_at_recording_rate(ANSWER), "Six.").measure().guard.state == "contradicts"


def test_text_dropped_by_barge_in_is_no_contradiction() -> None:
    long = f"{ANSWER} {OTHER} And if you come by bicycle, please leave it behind the house, near the old lime tree."
    cut = speak_at_recording_rate(ANSWER)
    played = Tape(cut, long)
    assert played.measure().guard.state == "contradicts"
    interrupted = Tape(cut, long)
    interrupted.interrupt(interrupted.start + len(cut) / RATE, dropped_s=9.0, played_s=5.0)
    assert interrupted.measure().guard.state == "ok"
    in_real_time = Tape(cut, long)  # nothing had been sent ahead, so that nothing was dropped
    in_real_time.interrupt(in_real_time.start + len(cut) / RATE, dropped_s=0.0, played_s=5.0)
    assert in_real_time.measure().guard.state == "ok"
    by_itself = Tape(cut, long)  # marked as interrupted without any barge-in
    by_itself.add(by_itself.start + len(cut) / RATE, "interrupted", dropped_s=9.0, played_s=5.0)
    assert by_itself.measure().guard.state == "contradicts"
    before_it_spoke = Tape(cut, long)
    before_it_spoke.events.insert(1, {"t": 0.1, "event": "interrupted", "dropped_s": 0.0, "played_s": 0.0})
    assert before_it_spoke.measure().guard.state == "contradicts"
    another = Tape(
        speak_at_recording_rate("Could you spell your name, and tell me which lamp you would like to exchange?"), long
    )
    another.interrupt(another.start + 1, dropped_s=9.0, played_s=5.0)
    assert another.measure().guard.state == "contradicts"
    beep = Tape(make_tone(2.0), ANSWER)
    beep.interrupt(beep.start + 1.5, dropped_s=1.0, played_s=1.5)
    cut_off = "not checked: 0 characters were transcribed of an answer that was cut off"
    assert beep.measure(transcribe=lambda _: "").guard.reason.startswith(cut_off)


def test_a_transcript_too_long_for_its_audio_is_a_contradiction() -> None:
    endless = Tape(make_tone(1.0), "We open at nine. " * 10_000)
    found = endless.measure(transcribe=lambda _: "").guard
    assert (found.state, "170,000 characters cannot be spoken in" in found.reason) == ("contradicts", True)


@pytest.mark.parametrize("seed", range(30))
def test_the_distance_with_optional_cuts_is_minimal(seed: int) -> None:
    chance = random.Random(seed)
    reference, heard = ("".join(chance.choices("abc ", k=chance.randrange(9))) for _ in range(2))
    size = range(len(reference) + 1)
    once = [reference[:start] + reference[end:] for start in size for end in size if end >= start]
    twice = [
        each[:start] + each[end:]
        for each in once
        for start in range(len(each) + 1)
        for end in range(start, len(each) + 1)
    ]
    for cuts, left in ((1, once), (2, twice)):
        assert evidence._compute_edit_distance(reference, heard, cuts) == min(
            Levenshtein.distance(each, heard) for each in left
        )


def test_the_guard_uses_the_character_error_rate() -> None:
    assert compute_transcript_error_rate("the cat", "the hat", "en") == pytest.approx(1 / 7)
    assert compute_transcript_error_rate("", "words", "en") == 1.0
    assert (
        compute_transcript_error_rate("we open at nine and close at six", "we close at six", "en", interruption_count=1)
        == 0.0
    )


# ── How a call ends ──


@pytest.mark.parametrize(
    ("reason", "events", "more", "message"),
    [
        ("no_answer", [(9.0, "no_answer", {"line": 0, "waited_s": 15.0})], {},
         "no answer to line 1 within 15.0 s"),
        ("error", [(9.0, "error", {"text": "overloaded", "class": "provider"})], {}, "the call was cut off: overloaded"),
        ("closed", [(9.0, "closed", {"text": "1006"})], {}, "the call was cut off: 1006"),
        ("deadline", [], {}, "the call was not completed: deadline"),
        ("", [], {}, "the call was not completed: its log has no `end` event"),
        ("done", [], {"line_count": 2}, "the call ended early, after line 1 of the script: done"),
    ],
)  # fmt: skip
def test_an_incomplete_call_is_an_error_with_a_reason(
    reason: str, events: list[tuple[float, str, dict[str, Any]]], more: dict[str, Any], message: str
) -> None:
    tape = Tape(speak_at_recording_rate(ANSWER), ANSWER) if reason != "no_answer" else Tape(np.zeros(RATE, np.int16))
    for at, event, fields in events:
        tape.add(at, event, **fields)
    check = make_call_check(tape.measure(reason=reason, transcribe=lambda _: ANSWER, **more))
    assert (check.outcome, check.reason) == (Outcome.ERRORED, message)


def test_an_agent_may_hang_up_after_its_last_answer() -> None:
    tape = Tape(speak_at_recording_rate(ANSWER), ANSWER)
    tape.add(8.0, "turn_done", text="")
    tape.add(9.0, "closed", text="bye")
    measured = tape.measure(reason="closed", transcribe=lambda _: ANSWER, line_count=1)
    assert make_call_check(measured).outcome is Outcome.PASSED
    assert make_call_check(msgspec.structs.replace(measured, complete=False)).outcome is Outcome.ERRORED


@pytest.mark.parametrize(
    ("logged", "code", "kind", "held"),
    [
        ({"quiet_s": 0.8}, 1000, None, True),
        ({"quiet_s": 0.8}, 1006, "network", False),
        ({"quiet_s": 0.8}, 1000, "quota", False),
        ({"quiet_s": None}, 1000, None, False),  # it would have sent an end of turn
        ({}, 1000, None, False),  # a log of version 1 does not say
    ],
)
def test_an_orderly_hang_up_ends_a_turn_without_end_message(
    logged: dict[str, Any], code: int, kind: str | None, *, held: bool
) -> None:
    tape = Tape(speak_at_recording_rate(ANSWER), ANSWER)
    tape.events[0] |= logged
    tape.add(9.0, "closed", text=str(code), detail={"code": code}, **{"class": kind})
    check = make_call_check(tape.measure(reason="closed", transcribe=lambda _: ANSWER, line_count=1))
    assert check.outcome is (Outcome.PASSED if held else Outcome.ERRORED)
    silent = Tape(np.zeros(RATE, np.int16))
    silent.events[0] |= logged
    silent.add(9.0, "closed", text=str(code), detail={"code": code}, **{"class": kind})
    assert make_call_check(silent.measure(reason="closed", line_count=1)).reason == f"the call was cut off: {code}"


def test_retracted_text_is_not_compared_with_the_audio() -> None:
    tape = Tape(speak_at_recording_rate(ANSWER))
    tape.add(tape.start + 0.1, "agent_text", text=f"{ANSWER} {OTHER}", final=True)
    corrected = {"text": ANSWER, "final": True, "detail": {"corrects": f"{ANSWER} {OTHER}"}}
    tape.add(tape.start + 0.2, "agent_text", **corrected)
    transcript = tape.measure().words.transcript
    assert transcript is not None
    assert transcript.reference == ANSWER


def test_a_call_timed_on_a_delayed_machine_says_so() -> None:
    tape = Tape(speak_at_recording_rate(ANSWER), ANSWER)
    paced = {"frames": 100, "late_p95_s": 0.001, "late_most_s": 0.4, "longest_gap_s": 0.42}
    tape.add(tape.start + 1, "pace", **paced, stalls=[[tape.start - 0.1, tape.start + 0.3, 0.4]])
    check = make_call_check(tape.measure(transcribe=lambda _: ANSWER))
    assert check.outcome is Outcome.PASSED
    assert "unreliable: this machine was up to 400 ms late while line 1 was timed" in check.reason


def test_a_line_missing_from_the_recording_is_an_error() -> None:
    tape = Tape(speak_at_recording_rate(ANSWER), ANSWER)
    tape.samples[:, 0] = 0
    assert make_call_check(tape.measure()).reason == "line 1 of the caller is not audible in the recording"
    tape.events = [each for each in tape.events if each["event"] != "line"]
    tape.add(9.0, "error", text="no such agent", **{"class": "bad_request"})
    assert (
        make_call_check(tape.measure(reason="error")).reason
        == "the call ended before the caller's first line: no such agent"
    )


# ── Words ──


def test_the_provider_transcript_is_compared_with_the_spoken_line() -> None:
    heard = "when do you open on friday and can i pay with twenty dollars"
    same = Tape(speak_at_recording_rate(ANSWER), ANSWER, heard=heard).measure(transcribe=None).words.heard
    assert isinstance(same, TextComparison)
    assert (same.count, same.wer, same.cer, same.missed) == (0, 0.0, 0.0, ())
    other = Tape(
        speak_at_recording_rate(ANSWER), ANSWER, heard="when do you open on Thursday and can I pay with 12 dollars"
    ).measure(transcribe=None)
    compared = other.words.heard
    assert compared is not None
    assert (compared.count, compared.words.reference_words) == (3, 14)
    assert compared.missed == (Entity("money", "20 dollars"), Entity("date", "friday"))
    assert Tape(speak_at_recording_rate(ANSWER), ANSWER).measure(transcribe=None).words.heard is None  # not recorded


def test_a_word_error_rate_requires_a_reference() -> None:
    without = Tape(speak_at_recording_rate(ANSWER), ANSWER).measure()
    assert without.words.references == (None,)
    stated = Tape(speak_at_recording_rate(ANSWER), ANSWER).measure(
        references=[ANSWER, "for a line that was never said"]
    )
    (compared,) = stated.words.references
    assert compared is not None
    assert compared.reference == ANSWER
    assert compared.wer is not None
    assert compared.wer < 0.4
    unheard = Tape(speak_at_recording_rate(ANSWER), ANSWER).measure(references=[ANSWER], language="fr")
    assert unheard.words.references == (None,)
    assert unheard.words.why_not == "no STT for fr"
    silent = Tape(np.zeros(RATE, np.int16)).measure(references=[ANSWER])
    assert silent.words.references[0] is not None
    assert silent.words.references[0].wer == 1.0


def test_too_long_texts_are_not_compared() -> None:
    measured = Tape(speak_at_recording_rate(ANSWER), "la " * 50_000, heard="la " * 50_000).measure(
        transcribe=lambda _: "la"
    )
    assert (measured.words.heard, measured.words.transcript) == (None, None)
    assert make_call_check(measured).outcome is Outcome.ERRORED  # impossible within five seconds


def test_a_final_text_replaces_its_pieces() -> None:
    tape = Tape(speak_at_recording_rate(ANSWER), "We are op", "en from")
    tape.add(tape.start + 1, "agent_text", text=ANSWER, final=True)
    transcript = tape.measure().words.transcript
    assert transcript is not None
    assert transcript.reference == ANSWER


# ── Sound ──


def make_tone(seconds: float, size: int = 8000) -> Samples:
    return np.where(np.arange(round(seconds * RATE)) % 2, size, -size).astype(np.int16)


def test_audio_levels_are_measured_on_the_agent_channel() -> None:
    answer = np.concatenate([make_tone(1.0), np.zeros(RATE, np.int16), make_tone(2.0)])
    measured = Tape(answer, "one two three four five six").measure(transcribe=None).sound
    assert measured.level_dbfs == pytest.approx(20 * np.log10(8000 / 32768), abs=0.01)
    assert measured.clipped_share == 0.0
    assert measured.silence_share == pytest.approx(0.25, abs=1e-3)
    assert measured.speaking_s == pytest.approx(3.0, abs=1e-3)
    assert measured.words_a_minute == pytest.approx(120, abs=0.1)
    clipped = make_tone(2.0)
    clipped[: RATE // 2] = 32767
    assert Tape(clipped).measure(transcribe=None).sound.clipped_share == pytest.approx(0.25, abs=1e-3)


def test_speech_duration_comes_from_the_detector() -> None:
    def confirm(_samples: Samples) -> list[tuple[int, int]]:
        return [(0, 16_000), (24_000, 32_000)]

    measured = (
        Tape(make_tone(4.0), "one two three four five")
        .measure(transcribe=None, detect_speech=confirm, vad_label="ours")
        .sound
    )
    assert (measured.speaking_s, measured.words_a_minute) == (1.5, 200.0)


def test_no_speech_rate_without_an_agent_transcript() -> None:
    assert Tape(make_tone(2.0)).measure(transcribe=None).sound.words_a_minute is None
    assert Tape(make_tone(2.0), "東京は晴れ").measure(language="ja", transcribe=None).sound.words_a_minute is None
    cut = Tape(make_tone(2.0), "one two three")
    cut.add(cut.start + 2, "interrupted", dropped_s=1.0, played_s=2.0)
    assert cut.measure(transcribe=None).sound.words_a_minute is None


def test_the_quality_estimate_is_optional() -> None:
    def fail_missing(_samples: Samples) -> Any:
        raise EngineMissing("onnxruntime is not here")

    def return_estimate(samples: Samples) -> quality.Quality:
        assert len(samples) == audio.CALLER_SAMPLE_RATE
        return quality.Quality(3.1, 3.4, 4.0, 3.2)

    assert Tape(make_tone(1.0)).measure(transcribe=None, estimate_quality=fail_missing).sound.quality is None
    found = Tape(make_tone(1.0)).measure(transcribe=None, estimate_quality=return_estimate).sound.quality
    assert found == QualityEstimate(3.1, 3.4, 4.0, 3.2)
    silent = Tape(np.zeros(RATE, np.int16)).measure(estimate_quality=quality.estimate_quality)
    assert silent.sound.quality is None
    assert silent.sound.level_dbfs is None


def test_trimming_keeps_the_audible_part_with_a_margin() -> None:
    samples = np.arange(100, dtype=np.int16)
    assert trim_silences(samples, 10, [(2.0, 3.0), (3.2, 4.0), (9.5, 9.9)], margin_s=0.2).tolist() == [
        *range(18, 43), *range(93, 100),
    ]  # fmt: skip
    assert trim_silences(samples, 10, []).size == 0


# ── The same to the last digit ──


def estimate_one_window(samples: Samples) -> quality.Quality:
    """Return the real estimate of a sound with silence behind it: a short one alone is repeated, and takes seconds."""
    return quality.estimate_quality(np.pad(samples, (0, max(0, 9 * audio.CALLER_SAMPLE_RATE + 200 - len(samples)))))


def test_measuring_a_stored_call_again_gives_an_identical_check() -> None:
    tape = Tape(speak_at_recording_rate(ANSWER), ANSWER, heard="when do you open on friday")
    engines: dict[str, Any] = {
        "detect_speech": activity.find_speech_spans, "vad_label": activity.DETECTOR_SETTINGS_TEXT, "estimate_quality": estimate_one_window, "references": [OTHER],
    }  # fmt: skip
    first = make_call_check(tape.measure(transcribe=open_recognition().transcribe, **engines))
    samples, rate = audio.read_wav(audio.write_wav(tape.samples, RATE))
    log = "\n".join(json.dumps(each) for each in tape.events)
    again = measure_call(
        samples,
        rate,
        [json.loads(line) for line in log.split("\n")],
        transcribe=WhisperModel.open().transcribe,
        transcribable_languages=LANGUAGES,
        language="en",
        **engines,
    )
    assert make_call_check(again) == first
    stored = msgspec.json.encode(first.evidence)
    assert msgspec.json.decode(stored) == first.evidence
    assert msgspec.convert(msgspec.json.decode(stored), CallMeasurements) == again
    assert msgspec.json.encode(make_call_check(again)) == msgspec.json.encode(first)


def test_call_evidence_uses_no_key_of_judge_evidence() -> None:
    """A summary takes `answers` and `cost_usd` for those of a judge that was paid."""
    check = make_call_check(Tape(make_tone(1.0), "one").measure(transcribe=None))
    assert set(check.evidence) == {"language", "times", "words", "sound", "guard", "complete", "conditions"}


@pytest.mark.parametrize(
    "change",
    [
        lambda tape: setattr(tape, "events", []),
        lambda tape: setattr(tape, "samples", np.full_like(tape.samples, -32768)),
        lambda tape: tape.add(1.0, "agent_text", text="\ud800\x00", final=True),
        lambda tape: tape.add(1.0, "user_text", text="\U0010ffff" * 1000, final=True),
    ],
)
def test_odd_calls_get_a_check(change: Callable[[Tape], None]) -> None:
    tape = Tape(make_tone(1.0), "one two three")
    change(tape)
    check = make_call_check(tape.measure(transcribe=lambda _: "\ud800"))
    assert check.reason
    assert msgspec.to_builtins(check)


def test_a_call_passes_only_with_guard_state_ok_or_not_checked() -> None:
    states = ("ok", "not checked", "silent", "clipped", "contradicts")
    assert [GuardResult(state, "").is_tripped for state in states] == [False, False, True, True, True]  # type: ignore[arg-type]
