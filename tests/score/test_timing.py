"""Times of calls with known samples: tones in a recording, and the matching log."""

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from pramana import audio
from pramana.errors import InvalidInput
from pramana.providers.voice.vocabulary import is_backchannel
from pramana.score import timing
from pramana.score.timing import CallTimes, LineTimes, measure_times

RATE = audio.RECORDING_SAMPLE_RATE
SAMPLE = 1 / RATE
Events = list[dict[str, Any]]


class Tape:
    """A call put together by hand: tones for both sides, and the events in the order of their time."""

    def __init__(self, seconds: float) -> None:
        self.samples: NDArray[np.int16] = np.zeros((round(seconds * RATE), 2), np.int16)
        self.events: Events = [{"t": 0, "event": "call", "version": 1, "rate": RATE, "answer_within_s": 15.0}]
        self.seconds, self.lines = seconds, 0

    def tone(self, channel: int, start: float, end: float, size: int = 3000) -> None:
        first, last = round(start * RATE), round(end * RATE)
        self.samples[first:last, channel] = np.where(np.arange(last - first) % 2, size, -size)

    def line(
        self, start: float, end: float, *, audible: tuple[float, float] | None = None, text: str = "hello", **more: Any
    ) -> None:
        self.tone(0, *(audible or (start, end)))
        self.add(
            end, "line", line=self.lines, text=text, digest="", start=start, end=end, **({"barge_in": False} | more)
        )
        self.lines += 1

    def sound(self, arrived: float, plays: float, seconds: float, *audible: tuple[float, float]) -> None:
        for start, end in audible:
            self.tone(1, start, end)
        self.add(arrived, "agent_audio", plays=plays, seconds=seconds)

    def add(self, at: float, event: str, **more: Any) -> None:
        self.events.append({"t": at, "event": event, **more})

    def measure(self, reason: str = "done", **more: Any) -> CallTimes:
        self.add(self.seconds, "end", reason=reason)
        # As in a real log: what a line was is written when it ends, everything else when it happens.
        return measure_times(self.samples, RATE, sorted(self.events, key=lambda each: each["t"]), **more)


def only_line(times: CallTimes) -> LineTimes:
    (line,) = times.lines
    return line


def approximately(value: float) -> Any:
    return pytest.approx(value, abs=1.5 * SAMPLE)


# ── One question, one answer ──


def test_voice_to_voice_time_runs_from_last_to_first_audible_sample() -> None:
    tape = Tape(6)
    tape.line(0.2, 2.5, audible=(0.3, 2.25))  # silence before and after the words is no speech
    tape.sound(2.9, 2.9, 2.0, (3.15, 4.7))
    found = only_line(tape.measure())
    assert found.speech_start_s == approximately(0.3)
    assert found.speech_end_s == approximately(2.25)
    assert found.first_byte_s == 2.9
    assert found.to_first_byte_s == approximately(0.65)
    assert found.first_audible_s == approximately(3.15)
    assert found.leading_silence_s == approximately(0.25)
    assert found.voice_to_voice_s == approximately(0.9)
    assert found.answer_end_s == approximately(4.7)
    assert found.total_s == approximately(2.45)
    assert (found.gaps, found.overlap_s, found.censored, found.cut_in) == (0, 0.0, False, False)


def test_the_first_audible_sample_is_exact() -> None:
    for shift in (0, 1, 7, 119, 120):
        tape = Tape(4)
        tape.line(0.0, 1.0)
        tape.samples[48000 + shift : 60000, 1] = 3000
        tape.sound(1.5, 1.5, 2.0)
        found = only_line(tape.measure())
        assert found.first_audible_s == (48000 + shift) / RATE
        assert found.speech_end_s == 23999 / RATE


def test_inaudible_audio_is_not_yet_an_answer() -> None:
    tape = Tape(4)
    tape.line(0.0, 1.0)
    tape.tone(1, 1.2, 2.0, size=30)  # hiss
    tape.samples[round(1.7 * RATE), 1] = 900  # one click of a sample: not 5 ms of sound
    tape.sound(1.1, 1.1, 2.5, (2.0, 3.0))
    assert only_line(tape.measure()).first_audible_s == approximately(2.0)


def test_the_detector_only_confirms_times() -> None:
    given_to_it: list[int] = []

    def confirm(samples: NDArray[np.int16]) -> list[tuple[int, int]]:
        given_to_it.append(len(samples))
        return [(500, 600)] if len(given_to_it) == 1 else []

    def tape() -> Tape:
        made = Tape(5)
        made.line(0.0, 1.0)
        made.sound(1.5, 1.5, 2.0, (1.5, 3.5))
        return made

    unconfirmed, confirmed = (
        tape().measure(vad_label="not asked"),
        tape().measure(detect_speech=confirm, vad_label="silero 6.2"),
    )
    denied = tape().measure(detect_speech=confirm, vad_label="silero 6.2")
    assert given_to_it == [2 * audio.CALLER_SAMPLE_RATE] * 2
    assert [only_line(each).speech_confirmed for each in (unconfirmed, confirmed, denied)] == [None, True, False]
    assert [only_line(each).voice_to_voice_s for each in (confirmed, denied)] == [
        only_line(unconfirmed).voice_to_voice_s
    ] * 2
    assert (unconfirmed.vad, confirmed.vad) == ("", "silero 6.2")


def test_pauses_of_at_least_200_ms_are_counted() -> None:
    tape = Tape(8)
    tape.line(0.0, 1.0)
    tape.sound(1.5, 1.5, 5.0, (1.5, 2.0), (2.15, 3.0), (3.5, 4.0), (5.0, 6.0))
    found = only_line(tape.measure())
    assert found.gaps == 2
    assert found.longest_gap_s == approximately(1.0)
    assert found.answer_end_s == approximately(6.0)


def test_an_answer_in_several_turns_is_one_answer() -> None:
    tape = Tape(9)
    tape.line(0.0, 1.0)
    tape.sound(1.5, 1.5, 1.0, (1.5, 2.5))
    tape.add(1.6, "turn_done", text="")
    tape.add(1.7, "tool_call", detail={})
    tape.sound(4.0, 4.0, 2.0, (4.2, 6.0))
    tape.add(4.1, "turn_done", text="")
    found = only_line(tape.measure())
    assert found.voice_to_voice_s == approximately(0.5)
    assert found.answer_end_s == approximately(6.0)
    assert found.longest_gap_s == approximately(1.7)


def test_a_greeting_is_no_answer() -> None:
    tape = Tape(9)
    tape.sound(0.1, 0.1, 1.5, (0.1, 1.6))
    tape.line(2.0, 3.0)
    tape.sound(3.4, 3.4, 1.0, (3.5, 4.4))
    assert only_line(tape.measure()).voice_to_voice_s == approximately(0.5)


def test_an_agent_that_streams_silence_is_measured_by_its_audible_speech() -> None:
    tape = Tape(6)
    tape.line(0.0, 1.0)
    tape.tone(1, 1.73, 3.0)
    for frame in range(250):
        tape.sound(frame * 0.02, frame * 0.02, 0.02)
    found = only_line(tape.measure())
    assert found.voice_to_voice_s == approximately(0.73)
    assert found.to_first_byte_s == approximately(0.0)
    assert found.leading_silence_s == approximately(0.73)


# ── No answer ──


def test_no_answer_is_a_censored_observation() -> None:
    tape = Tape(17)
    tape.line(0.0, 1.0)
    tape.sound(1.2, 1.2, 3.0)  # sound arrived, and none of it is audible
    tape.add(16.0, "no_answer", line=0, waited_s=15.0)
    times = tape.measure("no_answer")
    found = only_line(times)
    assert (found.censored, found.waited_s, found.voice_to_voice_s, found.first_audible_s) == (True, 15.0, None, None)
    assert times.reason == "no_answer"


@pytest.mark.parametrize("event", ["error", "closed"])
def test_a_call_broken_before_the_answer_is_censored_at_the_break(event: str) -> None:
    tape = Tape(3.5)
    tape.line(0.0, 1.0)
    tape.add(3.4, event, text="bye", **{"class": "provider"})
    times = tape.measure(event)
    assert only_line(times).censored
    assert only_line(times).waited_s == approximately(2.5)
    assert times.trouble == "bye"


def test_a_call_broken_after_the_answer_has_a_time() -> None:
    tape = Tape(3.5)
    tape.line(0.0, 1.0)
    tape.sound(1.5, 1.5, 1.0, (1.5, 2.5))
    found = only_line(tape.measure("closed"))
    assert (found.censored, found.voice_to_voice_s) == (False, approximately(0.5))


def test_an_inaudible_line_has_no_times() -> None:
    tape = Tape(4)
    tape.line(0.0, 1.0, audible=(0.5, 0.5))
    tape.sound(1.5, 1.5, 1.0, (1.5, 2.5))
    found = only_line(tape.measure())
    assert (found.speech_end_s, found.voice_to_voice_s, found.censored) == (None, None, False)


# ── Barge-in ──


def test_an_agent_that_interrupts_the_caller_is_not_fast() -> None:
    tape = Tape(6)
    tape.line(0.0, 2.0)
    tape.sound(1.2, 1.2, 3.0, (1.5, 4.0))
    found = only_line(tape.measure())
    assert found.cut_in
    assert (found.voice_to_voice_s, found.to_first_byte_s, found.censored) == (None, None, False)
    assert found.first_audible_s == approximately(1.5)
    assert found.overlap_s == approximately(0.5)
    assert found.answer_end_s == approximately(4.0)


def test_agent_speech_within_the_line_is_not_the_answer() -> None:
    for marked in (True, False):
        tape = Tape(7)
        tape.line(0.0, 3.0)
        tape.sound(1.0, 1.0, 0.5, (1.0, 1.5))
        if marked:
            tape.add(1.1, "turn_done", text="")
        tape.sound(3.6, 3.6, 1.0, (3.6, 4.6))
        found = only_line(tape.measure())
        assert (found.cut_in, found.voice_to_voice_s) == (True, approximately(0.6))
        assert found.overlap_s == approximately(0.5)


@pytest.mark.parametrize("reason", ["done", "no_answer", "deadline"])
def test_a_line_without_later_speech_is_unanswered(reason: str) -> None:
    tape = Tape(4)
    tape.line(0.0, 3.0)
    tape.sound(1.0, 1.0, 0.5, (1.0, 1.5))
    tape.add(1.1, "turn_done", text="")
    found = only_line(tape.measure(reason))
    assert (found.cut_in, found.censored, found.voice_to_voice_s, found.first_audible_s) == (True, True, None, None)
    assert found.waited_s == approximately(1.0)


def test_a_skipped_line_is_unanswered_until_the_next() -> None:
    tape = Tape(9)
    tape.line(0.0, 1.0)
    tape.line(4.0, 5.0)
    tape.sound(5.5, 5.5, 1.0, (5.5, 6.5))
    first, second = tape.measure().lines
    assert (first.censored, first.waited_s) == (True, approximately(3.0))
    assert (second.censored, second.voice_to_voice_s) == (False, approximately(0.5))


def test_streamed_silence_before_a_line_does_not_affect_its_time() -> None:
    """The line begins with silence, in which frames of silence arrive; the answer has its own end message."""
    tape = Tape(7)
    tape.line(1.0, 2.0, audible=(1.2, 2.0))
    tape.tone(1, 2.5, 3.5)
    for frame in range(300):
        tape.sound(frame * 0.02, frame * 0.02, 0.02)
    tape.add(3.51, "turn_done", text="")
    found = only_line(tape.measure())
    assert found.voice_to_voice_s == approximately(0.5)
    assert found.answer_end_s == approximately(3.5)


def test_machine_delay_is_recorded_with_the_affected_times() -> None:
    def make_tape(*stalls: list[float]) -> LineTimes:
        tape = Tape(4)
        tape.line(0.0, 1.0)
        tape.sound(1.5, 1.5, 1.0, (1.5, 2.5))
        paced = {"frames": 200, "late_p95_s": 0.004, "late_most_s": 0.3, "longest_gap_s": 0.32}
        tape.add(4.0, "pace", **paced, stalls=list(stalls))
        times = tape.measure()
        assert times.pace is not None
        assert times.pace.longest_gap_s == 0.32
        return only_line(times)

    assert (make_tape().late_s, make_tape().reliable) == (0.0, True)
    assert make_tape([0.2, 0.5, 0.3], [2.0, 2.4, 0.3]).reliable is True
    touched = make_tape([1.2, 1.25, 0.05], [1.4, 1.7, 0.3])
    assert (touched.late_s, touched.reliable) == (0.3, False)
    assert touched.voice_to_voice_s == approximately(0.5)  # it is what was measured, and says what it is worth
    untold = Tape(4)
    untold.line(0.0, 1.0)
    assert only_line(untold.measure()).reliable is None


def make_barge_in(*, stops: float, **more: Any) -> Tape:
    """An answer of eight seconds, talked into at 4; the agent stops some time later and answers at 7."""
    tape = Tape(12)
    tape.line(0.0, 1.0)
    tape.sound(1.5, 1.5, 8.0, (1.5, stops))
    tape.add(1.6, "turn_done", text="")
    tape.line(4.0, 6.0, barge_in=True, text="Stop, please.", **more)
    return tape


def test_barge_in_time_ends_at_the_last_audible_agent_sample() -> None:
    tape = make_barge_in(stops=4.7)
    tape.add(4.7, "interrupted", dropped_s=4.8, played_s=3.2)
    tape.sound(6.4, 6.4, 2.0, (6.5, 8.0))
    first, second = tape.measure().lines
    assert first.answer_end_s == approximately(4.7)
    assert (first.yield_s, first.talked_into) == (None, False)
    assert second.talked_into
    assert second.yield_s == approximately(0.7)
    assert second.overlap_s == approximately(0.7)
    assert second.voice_to_voice_s == approximately(0.5)  # the interrupted answer is not the answer
    assert second.yield_censored_s is None
    assert second.false_interruption is None


def test_an_agent_that_keeps_talking_has_not_yielded() -> None:
    tape = make_barge_in(stops=9.5)
    first, second = tape.measure().lines
    assert (second.yield_s, second.yield_censored_s) == (None, timing.MAX_YIELD_S)
    assert (second.voice_to_voice_s, second.first_audible_s, second.cut_in) == (None, None, False)
    assert first.answer_end_s == approximately(9.5)
    assert second.overlap_s == approximately(2.0)


def test_an_agent_that_pauses_and_continues_has_not_yielded() -> None:
    tape = make_barge_in(stops=4.5)
    tape.tone(1, 5.2, 9.0)
    second = tape.measure().lines[1]
    assert (second.yield_s, second.yield_censored_s) == (None, timing.MAX_YIELD_S)
    assert second.voice_to_voice_s is None


def test_an_answer_queued_behind_an_interrupted_one_is_found() -> None:
    tape = make_barge_in(stops=6.5)  # it gives way late, after the line
    tape.add(6.5, "interrupted", dropped_s=3.0, played_s=5.0)
    tape.sound(6.9, 6.9, 2.0, (7.0, 8.0))
    second = tape.measure().lines[1]
    assert second.yield_censored_s == timing.MAX_YIELD_S
    assert second.voice_to_voice_s == approximately(1.0)
    assert not second.cut_in


def test_queued_audio_is_dropped_with_the_interrupted_answer() -> None:
    tape = Tape(12)
    tape.line(0.0, 1.0)
    tape.sound(1.5, 1.5, 2.0, (1.5, 3.5))
    tape.add(1.6, "turn_done", text="")
    tape.sound(1.7, 3.5, 2.0, (3.5, 4.4))  # the second half of an answer, and a third, which is never played
    tape.add(1.8, "turn_done", text="")
    tape.sound(1.9, 5.5, 2.0)
    tape.line(4.0, 6.0, barge_in=True, text="Stop, please.")
    tape.add(4.4, "interrupted", dropped_s=3.1, played_s=2.9)
    tape.sound(6.4, 6.4, 2.0, (6.5, 8.0))
    first, second = tape.measure().lines
    assert first.answer_end_s == approximately(4.4)
    assert second.yield_s == approximately(0.4)
    assert second.voice_to_voice_s == approximately(0.5)


def test_without_end_messages_silence_separates_answers() -> None:
    tape = Tape(12)
    tape.line(0.0, 1.0)
    for piece in range(32):  # in step with real time, until it hears the caller
        tape.sound(1.5 + piece / 10, 1.5 + piece / 10, 0.1)
    tape.tone(1, 1.5, 4.7)
    tape.line(4.0, 6.0, barge_in=True, text="Stop, please.")
    tape.sound(6.4, 6.4, 2.0, (6.5, 8.0))
    first, second = tape.measure().lines
    assert first.answer_end_s == approximately(4.7)
    assert second.yield_s == approximately(0.7)
    assert second.voice_to_voice_s == approximately(0.5)


def test_a_barge_in_line_spoken_into_silence_is_an_ordinary_line() -> None:
    tape = Tape(12)
    tape.line(0.0, 1.0)
    tape.sound(1.5, 1.5, 1.0, (1.5, 2.5))
    tape.line(4.0, 6.0, barge_in=True)
    tape.sound(6.4, 6.4, 2.0, (6.5, 8.0))
    second = tape.measure().lines[1]
    assert (second.talked_into, second.yield_s, second.yield_censored_s) == (False, None, None)
    assert second.voice_to_voice_s == approximately(0.5)


@pytest.mark.parametrize("text", ["Mhm.", "uh-huh", "Okay", "Right.", "I see"])
def test_a_backchannel_needs_no_answer(text: str) -> None:
    assert is_backchannel(text)
    ignored = make_barge_in(stops=9.5)
    ignored.events[-1]["text"] = text
    ignored.add(11.9, "no_answer", line=1, waited_s=5.9)  # it needs no answer
    stopped = make_barge_in(stops=4.6)
    stopped.events[-1]["text"] = text
    stopped.add(4.6, "interrupted", dropped_s=4.9, played_s=3.1)
    for tape, false in ((ignored, False), (stopped, True)):
        line = tape.measure().lines[1]
        assert (line.backchannel, line.false_interruption) == (True, false)
        assert (line.yield_s, line.yield_censored_s, line.censored) == (None, None, False)


def make_streamed_answer(stops: float, text: str, **more: Any) -> Tape:
    """An answer that comes in step with real time until it stops, talked into at 4."""
    tape = Tape(12)
    tape.line(0.0, 1.0)
    for piece in range(round((stops - 1.5) * 10)):
        tape.sound(1.5 + piece / 10, 1.5 + piece / 10, 0.1)
    tape.tone(1, 1.5, stops)
    tape.line(4.0, 6.0, barge_in=True, text=text, **more)
    return tape


@pytest.mark.parametrize("ends", [(), (8.0,)])
@pytest.mark.parametrize(("stops", "goes_on", "false"), [(9.5, None, False), (4.6, None, True), (4.6, 5.2, False)])
def test_without_interruption_messages_a_backchannel_is_judged_by_audio(
    stops: float, goes_on: float | None, ends: tuple[float, ...], *, false: bool
) -> None:
    tape = make_streamed_answer(stops, "mhm")
    for end in ends:  # a word about ends is none about interruptions
        tape.add(end, "turn_done", text="")
    if goes_on:
        tape.tone(1, goes_on, 9.0)
    assert tape.measure().lines[1].false_interruption is false


@pytest.mark.parametrize("says", [True, False])
def test_interruption_messages_of_the_agent_are_trusted(*, says: bool) -> None:
    """It falls silent after a backchannel, and does not say that it was interrupted: it may have come to its end."""
    tape = make_streamed_answer(4.6, "mhm")
    tape.events[0] |= {"version": 2, "says_interrupted": says}
    assert tape.measure().lines[1].false_interruption is not says


def test_an_agent_that_finished_before_the_barge_in_has_not_yielded() -> None:
    tape = Tape(12)
    tape.line(0.0, 1.0)
    tape.sound(1.5, 1.5, 3.0, (1.5, 4.5))
    tape.add(1.51, "turn_done", text="")
    tape.line(4.0, 5.0, barge_in=True, text="No, wait.")
    tape.sound(5.5, 5.5, 1.0, (5.5, 6.5))
    second = tape.measure().lines[1]
    assert (second.talked_into, second.ended_by_itself) == (True, True)
    assert (second.yield_s, second.yield_censored_s) == (None, None)
    assert second.voice_to_voice_s == approximately(0.5)
    listening = Tape(12)
    listening.line(0.0, 1.0)
    listening.sound(1.5, 1.5, 3.0, (1.5, 4.5))
    listening.line(4.0, 5.0, barge_in=True, text="mhm")
    assert listening.measure().lines[1].false_interruption is False


def test_silence_separates_answers_if_the_agent_reports_only_turn_ends() -> None:
    tape = make_streamed_answer(4.7, "Stop, please.")
    tape.sound(6.4, 6.4, 2.0, (6.5, 8.0))
    tape.add(8.5, "turn_done", text="")
    second = tape.measure().lines[1]
    assert second.yield_s == approximately(0.7)
    assert second.voice_to_voice_s == approximately(0.5)


def test_the_kind_of_a_line_is_read_from_the_log() -> None:
    for told, text in ((True, "Go ahead."), (False, "mhm")):
        tape = make_streamed_answer(9.5, text, backchannel=told)
        tape.events[0]["version"] = 2
        assert tape.measure().lines[1].backchannel is told
    old = make_streamed_answer(9.5, "OK.")
    assert old.measure().lines[1].backchannel


@pytest.mark.parametrize("text", ["No.", "Okay, stop", "Wait", "mhm but", ""])
def test_other_words_are_not_backchannels(text: str) -> None:
    assert not is_backchannel(text)


# ── The same to the last digit ──


def test_measuring_a_call_again_from_its_files_gives_identical_times() -> None:
    tape = make_barge_in(stops=4.7131)
    tape.add(4.72, "interrupted", dropped_s=4.8, played_s=3.2)
    tape.sound(6.412345, 6.412345, 2.0, (6.51173, 8.00391))
    times = tape.measure()
    wav = audio.write_wav(tape.samples, RATE)
    log = "".join(json.dumps(each) + "\n" for each in sorted(tape.events, key=lambda each: each["t"]))
    samples, rate = audio.read_wav(wav)
    again = measure_times(samples, rate, [json.loads(line) for line in log.splitlines()])
    assert again == times
    plain = msgspec.to_builtins(times)
    assert msgspec.json.decode(msgspec.json.encode(plain), type=CallTimes) == times


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4000), st.integers(1, 900), st.sampled_from([20, 200, 3000, 32767])), max_size=6),
    st.integers(0, 4000),
)
def test_spans_begin_and_end_at_audible_samples(bursts: list[tuple[int, int, int]], length: int) -> None:
    samples = np.zeros(length, np.int16)
    for start, count, size in bursts:
        samples[start : start + count] = size
    found = timing.find_audible_spans(samples, RATE, max_pause_s=0.001)
    first, last = audio.find_first_audible(samples, RATE), audio.find_last_audible(samples, RATE)
    if not found:
        assert first is last is None
        return
    assert first is not None
    assert last is not None
    assert (found[0][0], found[-1][1]) == (first / RATE, last / RATE)
    for (_, before), (after, _) in pairwise(found):
        assert after - before > 0.001


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 24_000), st.integers(0, 12_000))
def test_delaying_an_answer_delays_its_time_equally(delay: int, silence: int) -> None:
    tape = Tape(5)
    tape.line(0.0, 1.0)
    arrived = (30_000 + delay) / RATE
    tape.samples[30_000 + delay + silence : 30_000 + delay + silence + 9_000, 1] = -4000
    tape.sound(arrived, arrived, 2.0)
    found = only_line(tape.measure())
    assert found.voice_to_voice_s == pytest.approx((30_000 + delay + silence - 23_999) / RATE, abs=1e-9)
    assert found.leading_silence_s == pytest.approx(silence / RATE, abs=SAMPLE)


# ── Invalid logs ──

LINE = {"t": 1.0, "event": "line", "line": 0, "text": "a", "start": 0.0, "end": 1.0, "barge_in": False}
PACE = {"t": 1.0, "event": "pace", "frames": 1, "late_p95_s": 0.0, "late_most_s": 0.0, "longest_gap_s": 0.02}


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([[]], "event 1 of the log is not an event"),
        ([{"t": 0}], "expected an object with text at `event`"),
        ([{"event": "call"}], "event 1 of the log .* has nothing at `t`: expected seconds"),
        ([{"t": "0", "event": "call"}], 'has "0" at `t`'),
        ([{"t": True, "event": "call"}], "has a bool at `t`"),
        ([{"t": float("nan"), "event": "call"}], "has nan at `t`"),
        ([{"t": -1.0, "event": "call"}], "has -1.0 at `t`"),
        ([{"t": 1e300, "event": "call"}], "at `t`: expected seconds"),
        ([LINE | {"start": 2.0}], "a line 0 that ends before it begins"),
        ([LINE | {"line": -1}], "at `line`: expected a whole number"),
        ([LINE | {"text": None}], "has nothing at `text`: expected a text"),
        ([LINE, LINE], "the event log is out of order"),
        ([LINE, LINE | {"line": 1, "start": 0.5}], "the event log is out of order"),
        ([{"t": 1, "event": "agent_audio", "plays": 1}], "has nothing at `seconds`"),
        ([{"t": 1, "event": "no_answer", "line": 0}], "has nothing at `waited_s`"),
        ([{"t": 1, "event": "end", "reason": 7}], "has a int at `reason`"),
        ([{"t": 1, "event": "pace", "frames": 1}], "has nothing at `late_p95_s`"),
        ([PACE], "needs a list `stalls`"),
        ([PACE | {"stalls": [[0.1]]}], "needs a list `stalls`"),
        ([{"t": 0, "event": "call", "version": "2"}], "at `version`: expected a whole number"),
    ],
)  # fmt: skip
def test_an_invalid_log_is_refused_with_its_event(events: list[Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        measure_times(np.zeros((RATE, 2), np.int16), RATE, events)


@pytest.mark.parametrize(
    "samples", [np.zeros(10, np.int16), np.zeros((10, 1), np.int16), np.zeros((10, 3), np.int16), np.zeros((10, 2))]
)
def test_an_invalid_recording_is_refused(samples: Any) -> None:
    with pytest.raises(InvalidInput, match="two channels of 16-bit samples"):
        measure_times(samples, RATE, [])
    with pytest.raises(InvalidInput, match="0 samples a second"):
        measure_times(np.zeros((10, 2), np.int16), 0, [])


@pytest.mark.parametrize(
    "change",
    [
        lambda tape: tape.events.clear(),
        lambda tape: tape.events.append({"t": 2, "event": "agent_audio", "plays": 0, "seconds": 0}),
        lambda tape: tape.events.append({"t": 2, "event": "no_answer", "line": 99, "waited_s": 1}),
        lambda tape: tape.events.append({"t": 2, "event": "ünknown", "detail": {}}),
        lambda tape: tape.events.append({"t": 0, "event": "interrupted", "dropped_s": 0}),
    ],
)
def test_odd_logs_and_recordings_are_measured(change: Callable[[Tape], None]) -> None:
    tape = Tape(4)
    tape.line(0.0, 1.0)
    tape.sound(1.5, 1.5, 1.0, (1.5, 2.5))
    change(tape)
    assert msgspec.json.encode(tape.measure())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tape: tape.add(2, "agent_audio", plays=1e5, seconds=1.0), "event 4 .* until 100001 s, .* ends at 4 s"),
        (lambda tape: tape.add(2, "agent_audio", plays=3.0, seconds=1e5), "has sound of the agent until 100003 s"),
        (lambda tape: tape.add(9, "agent_audio", plays=1.0, seconds=1.0) or tape.add(9, "interrupted"), "until 9 s"),
        (
            lambda tape: tape.events.append(LINE | {"t": 3.5, "line": 1, "start": 30.0, "end": 31.0}),
            "a line 1 that ends at 31 s, and the recording at 4 s",
        ),
        (lambda tape: setattr(tape, "samples", np.zeros((0, 2), np.int16)), "the recording at 0 s"),
        (lambda tape: setattr(tape, "samples", tape.samples[:30_000]), "the recording ends at 1.25 s"),
    ],
)
def test_a_log_with_audio_after_the_end_of_the_recording_is_refused(
    change: Callable[[Tape], None], message: str
) -> None:
    tape = Tape(4)
    tape.line(0.0, 1.0)
    tape.sound(1.5, 1.5, 1.0, (1.5, 2.5))
    change(tape)
    with pytest.raises(InvalidInput, match=message):
        tape.measure()


@pytest.mark.parametrize("ignored", [False, True])
def test_dropped_audio_may_lie_after_the_end_of_the_call(*, ignored: bool) -> None:
    tape = Tape(4)
    tape.line(0.0, 1.0)
    tape.sound(1.5, 1.5, 200.0, (1.5, 2.5))
    tape.sound(1.6, 201.5, 200.0)
    if ignored:  # what was left was silence
        tape.add(3.0, "unknown", detail={"event": "interrupted", "dropped_s": 398.5})
    else:
        tape.add(3.0, "interrupted", dropped_s=398.5)
    assert only_line(tape.measure()).voice_to_voice_s == approximately(0.5)
