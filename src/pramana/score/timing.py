"""Times of a call: its stereo recording and its event log in; when each side was heard, out.

Positions are in seconds on the recording's clock, durations in seconds. Audible sound is found in the recording, by
level and to the sample; the log only tells which sound belongs together, when it arrived, and which lines were not
answered. A voice activity detector confirms that an answer contains speech; it never changes a time. No answer by the
deadline is a censored observation with the time waited, and an agent that cuts in has no response time at all, instead
of a fast one. The same recording and log give the same numbers to the last digit.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from pramana import audio
from pramana.errors import InvalidInput
from pramana.providers.voice.vocabulary import FRAME_S
from pramana.score.log import CallerLine, CallLog, FrameLatenessReport, SoundGroup

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.int16]

TIMING_VERSION: Final = "2"
MAX_PAUSE_IN_SPEECH_S = 0.2
"""Silence up to this length is part of speech, as between two words."""
MAX_YIELD_S = 2.0
"""An agent that continues for longer than this has not yielded."""
MAX_RELIABLE_LATENESS_S = 0.02
"""Maximum lateness of this machine; with more, a time reflects this machine instead of the agent."""
_ABRUPT_END_REASONS: Final = frozenset({"closed", "error", "deadline", "no_answer"})

DetectSpeech = Callable[["Samples"], Sequence[tuple[int, int]]]
"""Returns the spans of speech in samples at 16 kHz."""


class LineTimes(Struct, frozen=True):
    """Times of one line of the caller and its answer."""

    line: int
    barge_in: bool = False
    speech_start_s: float | None = None
    """Position of the first audible sample of the line; None if it has none, so that nothing can be measured."""
    speech_end_s: float | None = None
    first_byte_s: float | None = None
    """Position at which the first sound of the answer arrived, audible or not."""
    first_audible_s: float | None = None
    """Position of the first audible sample of the answer."""
    answer_end_s: float | None = None
    """Position of the last audible sample of the answer."""
    to_first_byte_s: float | None = None
    """Time from the end of speech; None if the sound arrived before it."""
    voice_to_voice_s: float | None = None
    """Time from the last audible sample of the line to the first of the answer; None without one, and for a cut-in."""
    leading_silence_s: float | None = None
    """Time from the first played sound of the answer to its first audible sample."""
    total_s: float | None = None
    """Time from the end of speech to the end of the answer."""
    cut_in: bool = False
    """Whether the agent spoke before the line ended; only if it also stopped before that may it have answered later."""
    censored: bool = False
    """Whether there was no answer until `waited_s`, so that the true time is longer."""
    waited_s: float | None = None
    late_s: float = 0.0
    """Maximum lateness of this machine between the end of the line and the first audible sample of the answer."""
    reliable: bool | None = None
    """Whether that is within `MAX_RELIABLE_LATENESS_S`; None if the log lacks pace."""
    overlap_s: float = 0.0
    """Time during the line in which both sides are audible."""
    gaps: int = 0
    """Number of silences longer than `MAX_PAUSE_IN_SPEECH_S` in the answer."""
    longest_gap_s: float = 0.0
    speech_confirmed: bool | None = None
    """Whether the detector found speech in the answer; None without a detector."""
    speech_s: float | None = None
    """Duration of the speech that the detector found."""
    talked_into: bool = False
    """Whether the agent was audible when the line began."""
    yield_s: float | None = None
    """For a line that interrupts an answer: time until the agent's last audible sample; None if it did not yield."""
    yield_censored_s: float | None = None
    """The agent had not yielded by this time."""
    ended_by_itself: bool = False
    """Whether the agent fell silent because its answer was complete, not because of the line."""
    backchannel: bool = False
    """Whether the line is only a sign of listening."""
    false_interruption: bool | None = None
    """Whether the agent stopped for a backchannel; None if there was none during an answer."""


class CallTimes(Struct, frozen=True):
    """All times of a call."""

    lines: tuple[LineTimes, ...]
    seconds: float
    """Duration of the recording."""
    reason: str
    """Why the call ended, from the log."""
    finished: bool = False
    """Whether the agent reported the end of its last answer, or hung up normally if its format has no such message."""
    trouble: str = ""
    """Error message of the other end, if the call broke off."""
    vad: str = ""
    """The detector that confirmed speech, and its settings."""
    pace: FrameLatenessReport | None = None
    """How late frames were sent; None if the log does not state it."""


def measure_times(
    samples: "Samples",
    sample_rate: int,
    events: Sequence[Mapping[str, Any]],
    *,
    detect_speech: DetectSpeech | None = None,
    vad_label: str = "",
) -> CallTimes:
    """Return the times of a call; the left channel is the caller, the right one the agent."""
    caller, agent = split_tracks(samples, sample_rate)
    log = CallLog(events)
    log.check_fits(len(agent) / sample_rate)
    call = _CallMeasurement(_Track(caller, sample_rate), _Track(agent, sample_rate), log)
    return CallTimes(
        lines=tuple(call.measure_line(place, detect_speech) for place in range(len(log.lines))),
        seconds=len(agent) / sample_rate,
        reason=log.reason,
        finished=log.finished or log.agent_hung_up,
        trouble=log.trouble,
        vad=vad_label if detect_speech else "",
        pace=log.pace,
    )


def split_tracks(samples: "Samples", sample_rate: int) -> "tuple[Samples, Samples]":
    """Return the caller's and the agent's samples of a recording."""
    if samples.ndim != 2 or samples.shape[1] != 2 or samples.dtype.name != "int16":
        raise InvalidInput(
            f"the recording of a call has two channels of 16-bit samples, and this is {samples.dtype.name} "
            f"of shape {samples.shape}"
        )
    if sample_rate <= 0:
        raise InvalidInput(f"a recording cannot have {sample_rate} samples a second")
    return samples[:, 0], samples[:, 1]


# ── The recording ──


class _Track:
    """One channel, and the spans in which it is audible."""

    def __init__(self, samples: "Samples", rate: int) -> None:
        self.samples, self.rate = samples, rate
        self.spans = find_audible_spans(samples, rate)

    def sample_index(self, time_s: float) -> int:
        return min(len(self.samples), max(0, round(time_s * self.rate)))

    def find_first_audible(self, start_s: float, end_s: float) -> float | None:
        """Return the position of the first audible sample between two positions."""
        return self._find_audible(audio.find_first_audible, start_s, end_s)

    def find_last_audible(self, start_s: float, end_s: float) -> float | None:
        """Return the position of the last audible sample between two positions."""
        return self._find_audible(audio.find_last_audible, start_s, end_s)

    def _find_audible(self, find: "Callable[[Samples, int], int | None]", start_s: float, end_s: float) -> float | None:
        offset = self.sample_index(start_s)
        found = find(self.samples[offset : self.sample_index(end_s)], self.rate)
        return None if found is None else (offset + found) / self.rate

    def find_span_at(self, time_s: float) -> tuple[float, float] | None:
        """Return the span around a position; a span includes the pauses within speech."""
        return next((each for each in self.spans if each[0] <= time_s <= each[1]), None)

    def find_spans_within(self, start_s: float, end_s: float) -> list[tuple[float, float]]:
        """Return the parts of the spans between two positions."""
        return [(max(a, start_s), min(b, end_s)) for a, b in self.spans if a < end_s and b > start_s]


def find_audible_spans(
    samples: "Samples", sample_rate: int, max_pause_s: float = MAX_PAUSE_IN_SPEECH_S
) -> list[tuple[float, float]]:
    """Return the audible spans, as positions of first and last samples; short silences do not split a span."""
    import numpy as np

    audible = np.flatnonzero(_mark_audible(samples, sample_rate))
    if not audible.size:
        return []
    breaks = np.flatnonzero(np.diff(audible) > max_pause_s * sample_rate)
    firsts, lasts = audible[np.concatenate(([0], breaks + 1))], audible[np.concatenate((breaks, [-1]))]
    return [(int(first) / sample_rate, int(last) / sample_rate) for first, last in zip(firsts, lasts, strict=True)]


def _mark_audible(samples: "Samples", sample_rate: int) -> "NDArray[np.bool_]":
    """Mark each audible sample by the rule of `audio.find_first_audible`: loud, and within 5 ms that are loud."""
    import numpy as np

    least = 32768 * 10 ** (audio.AUDIBLE_DBFS / 20)
    window = max(1, min(len(samples), round(sample_rate * 0.005)))
    magnitudes = np.abs(samples.astype(np.int64))
    so_far = np.concatenate(([0], np.cumsum(np.square(magnitudes))))
    loud = so_far[window:] - so_far[:-window] >= least**2 * window
    # A sample is in a loud window if one begins at it or up to a window before it.
    begun = np.concatenate(([0], np.cumsum(loud)))
    last = np.minimum(np.arange(len(samples)), len(loud) - 1) + 1
    first = np.maximum(np.arange(len(samples)) - window + 1, 0)
    return np.asarray((begun[last] > begun[first]) & (magnitudes >= least))


# ── The call ──


class _CallMeasurement:
    def __init__(self, caller: _Track, agent: _Track, log: CallLog) -> None:
        self.caller, self.agent, self.log = caller, agent, log
        self.begins = [caller.find_first_audible(line.start_s, line.end_s) for line in log.lines]
        self.ends = [caller.find_last_audible(line.start_s, line.end_s) for line in log.lines]
        self.groups = log.group_sound(
            [
                line.start_s
                for line, begins in zip(log.lines, self.begins, strict=True)
                if not line.backchannel and (not line.barge_in or begins is None or not agent.find_span_at(begins))
            ]
        )
        for place, line in enumerate(log.lines):
            self._split_interrupted_answer(place, line)

    def _find_next_line_start(self, line_index: int) -> float:
        """Return the start of the next line; infinity after the last one."""
        return self.log.lines[line_index + 1].start_s if line_index + 1 < len(self.log.lines) else math.inf

    def _split_interrupted_answer(self, line_index: int, line: CallerLine) -> None:
        """Split an answer that stopped for a line from the answer to that line, if the log does not separate them."""
        begins, ends = self.begins[line_index], self.ends[line_index]
        if not line.barge_in or begins is None or ends is None or line.backchannel:
            return
        running = self.agent.find_span_at(begins)
        if (
            running is None
            or running[1] - begins > MAX_YIELD_S
            or self.agent.find_spans_within(running[1] + MAX_PAUSE_IN_SPEECH_S / 2, ends)
        ):
            return
        for where, group in enumerate(self.groups):
            later = [each for each in group.pieces if each.arrived_at_s > begins and each.plays_at_s >= running[1]]
            if later and len(later) < len(group.pieces):
                group.pieces = group.pieces[: -len(later)]
                self.groups.insert(where + 1, SoundGroup(later, group.playback_end_s))
                return

    def measure_line(self, line_index: int, detect_speech: DetectSpeech | None) -> LineTimes:
        line, begins, ends = self.log.lines[line_index], self.begins[line_index], self.ends[line_index]
        known = LineTimes(line.number, line.barge_in, backchannel=line.backchannel)
        if begins is None or ends is None:
            return known
        both = [
            span
            for said in self.caller.find_spans_within(line.start_s, line.end_s)
            for span in self.agent.find_spans_within(*said)
        ]
        known = msgspec.structs.replace(
            known,
            speech_start_s=begins,
            speech_end_s=ends,
            overlap_s=math.fsum(end - start for start, end in both),
            **self._measure_answer(line_index, begins, ends, detect_speech),
        )
        if line.barge_in and self.agent.find_span_at(begins):
            known = msgspec.structs.replace(known, talked_into=True, **self._measure_yield(line_index, begins))
        # Version 1 does not state backchannels: into silence, the same words expect an answer.
        wants_none = known.backchannel and (known.talked_into or self.log.version > 1)
        if known.first_audible_s is None and not wants_none:
            waited = self._measure_wait(line_index, ends)
            known = msgspec.structs.replace(known, censored=waited is not None, waited_s=waited)
        return msgspec.structs.replace(known, **self._measure_lateness(ends, known.first_audible_s))

    def _measure_wait(self, line_index: int, line_end_s: float) -> float | None:
        """Return how long the caller waited without an answer; None if anything was heard, answer or not."""
        told = self.log.waited.get(self.log.lines[line_index].number)
        if told is not None:
            return told
        last = line_index == len(self.log.lines) - 1
        until = self.log.ended if last else self._find_next_line_start(line_index)
        if self.agent.find_spans_within(line_end_s, until) and not (last and self.log.reason in _ABRUPT_END_REASONS):
            return None
        return max(0.0, until - line_end_s)

    def _measure_lateness(self, line_end_s: float, first_audible_s: float | None) -> dict[str, Any]:
        if self.log.pace is None:
            return {}
        # The frame with the line's last sample is sent when it is over.
        start, end = line_end_s - FRAME_S, self.log.ended if first_audible_s is None else first_audible_s
        late = max(
            (each.max_lateness_s for each in self.log.stalls if each.start_s <= end and each.end_s >= start),
            default=0.0,
        )
        return {"late_s": late, "reliable": late <= MAX_RELIABLE_LATENESS_S}

    def _measure_answer(
        self, line_index: int, line_start_s: float, line_end_s: float, detect_speech: DetectSpeech | None
    ) -> dict[str, Any]:
        start, following = self.log.lines[line_index].start_s, self._find_next_line_start(line_index)
        groups = [each for each in self.groups if start <= each.arrived_at_s < following]
        running = self.agent.find_span_at(line_end_s)
        into = any(
            self.agent.find_spans_within(max(line_start_s, each.plays_at_s), min(line_end_s, each.ends_at_s))
            for each in groups
        )
        for number, group in enumerate(groups):
            runs_on = (
                running is not None and running[1] > line_end_s and group.plays_at_s <= line_end_s < group.ends_at_s
            )
            from_then = max(group.plays_at_s, running[0] if runs_on and running else line_end_s)
            audible = self.agent.find_first_audible(from_then, group.ends_at_s)
            if audible is not None:
                over = max(each.ends_at_s for each in groups[number:])
                found = self._measure_heard_answer(
                    group, line_end_s, audible, over, continues_earlier_speech=runs_on, detect_speech=detect_speech
                )
                return {**found, "cut_in": runs_on or into}
        return {"cut_in": into}

    def _measure_heard_answer(
        self,
        group: SoundGroup,
        line_end_s: float,
        first_audible_s: float,
        playback_end_s: float,
        *,
        continues_earlier_speech: bool,
        detect_speech: DetectSpeech | None,
    ) -> dict[str, Any]:
        played = [each for each in group.pieces if each.plays_at_s <= first_audible_s] or group.pieces[:1]
        first = next((each for each in played if each.arrived_at_s >= line_end_s), group.pieces[0])
        last = self.agent.find_last_audible(first_audible_s, playback_end_s)
        end = first_audible_s if last is None else last
        parts = self.agent.find_spans_within(first_audible_s, end)
        gaps = [after[0] - before[1] for before, after in pairwise(parts)]
        return {
            "first_byte_s": first.arrived_at_s,
            "first_audible_s": first_audible_s,
            "answer_end_s": end,
            "to_first_byte_s": first.arrived_at_s - line_end_s if first.arrived_at_s >= line_end_s else None,
            "voice_to_voice_s": None if continues_earlier_speech else first_audible_s - line_end_s,
            "leading_silence_s": max(0.0, first_audible_s - first.plays_at_s),
            "total_s": end - line_end_s,
            "gaps": len(gaps),
            "longest_gap_s": max(gaps, default=0.0),
            **({} if detect_speech is None else self._confirm_speech(first_audible_s, end, detect_speech)),
        }

    def _confirm_speech(self, start_s: float, end_s: float, detect_speech: DetectSpeech) -> dict[str, Any]:
        answer = self.agent.samples[self.agent.sample_index(start_s) : self.agent.sample_index(end_s) + 1]
        found = detect_speech(audio.resample(answer, self.agent.rate, audio.CALLER_SAMPLE_RATE))
        return {
            "speech_confirmed": bool(found),
            "speech_s": sum(last - first for first, last in found) / audio.CALLER_SAMPLE_RATE,
        }

    def _measure_yield(self, line_index: int, line_start_s: float) -> dict[str, Any]:
        following = self._find_next_line_start(line_index)
        running = [each for each in self.groups if each.arrived_at_s < line_start_s]
        stopped = self.agent.find_last_audible(
            line_start_s, max((each.ends_at_s for each in running), default=line_start_s)
        )
        unfinished = self._was_cut_short(running, line_start_s, following, line_start_s if stopped is None else stopped)
        if self.log.lines[line_index].backchannel:
            told = any(line_start_s <= at < following for at in self.log.interrupted)
            heard = unfinished and self._fell_silent(line_start_s)
            return {"false_interruption": told if self.log.says_interrupted else heard}
        lasted = 0.0 if stopped is None else stopped - line_start_s
        if lasted > MAX_YIELD_S:
            return {"yield_censored_s": MAX_YIELD_S}
        return {"yield_s": lasted} if unfinished else {"ended_by_itself": True}

    def _was_cut_short(
        self, playing_groups: Sequence[SoundGroup], line_start_s: float, next_line_start_s: float, agent_stop_s: float
    ) -> bool:
        """Return whether the agent had more to say: sound was dropped, or it was still sending when it stopped."""
        if any(each.is_cut and line_start_s <= each.playback_end_s < next_line_start_s for each in playing_groups):
            return True
        last = [piece for each in playing_groups for piece in each.pieces if piece.plays_at_s <= agent_stop_s]
        return bool(last) and last[-1].arrived_at_s >= line_start_s

    def _fell_silent(self, line_start_s: float) -> bool:
        """Return whether the agent fell silent soon and for good: the only sign if the log reports no interruption."""
        running = self.agent.find_span_at(line_start_s)
        return (
            running is not None
            and running[1] - line_start_s <= MAX_YIELD_S
            and not self.agent.find_spans_within(running[1] + MAX_PAUSE_IN_SPEECH_S / 2, running[1] + MAX_YIELD_S)
        )
