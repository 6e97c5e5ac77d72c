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
from pramana.score.log import CallLog, PaceReport, SaidLine, SoundGroup

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.int16]

TIMING_VERSION: Final = "2"
GAP_S = 0.2
"""Silence up to this length is part of speech, as between two words."""
MAX_YIELD_S = 2.0
"""An agent that continues for longer than this has not yielded."""
MAX_RELIABLE_LATENESS_S = 0.02
"""Maximum lateness of this machine; with more, a time reflects this machine instead of the agent."""
_INCOMPLETE_REASONS: Final = frozenset({"closed", "error", "deadline", "no_answer"})

Confirm = Callable[["Samples"], Sequence[tuple[int, int]]]
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
    """Number of silences longer than `GAP_S` in the answer."""
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
    pace: PaceReport | None = None
    """How late frames were sent; None if the log does not state it."""


def measure_times(
    samples: "Samples",
    rate: int,
    events: Sequence[Mapping[str, Any]],
    *,
    confirm: Confirm | None = None,
    vad: str = "",
) -> CallTimes:
    """Return the times of a call; the left channel is the caller, the right one the agent."""
    caller, agent = split_tracks(samples, rate)
    log = CallLog(events)
    log.check_fits(len(agent) / rate)
    call = _CallMeasurement(_Track(caller, rate), _Track(agent, rate), log)
    return CallTimes(
        lines=tuple(call.times(place, confirm) for place in range(len(log.lines))),
        seconds=len(agent) / rate,
        reason=log.reason,
        finished=log.finished or log.hung_up,
        trouble=log.trouble,
        vad=vad if confirm else "",
        pace=log.pace,
    )


def split_tracks(samples: "Samples", rate: int) -> "tuple[Samples, Samples]":
    """Return the caller's and the agent's samples of a recording."""
    if samples.ndim != 2 or samples.shape[1] != 2 or samples.dtype.name != "int16":
        raise InvalidInput(
            f"the recording of a call has two channels of 16-bit samples, and this is {samples.dtype.name} "
            f"of shape {samples.shape}"
        )
    if rate <= 0:
        raise InvalidInput(f"a recording cannot have {rate} samples a second")
    return samples[:, 0], samples[:, 1]


# ── The recording ──


class _Track:
    """One channel, and the spans in which it is audible."""

    def __init__(self, samples: "Samples", rate: int) -> None:
        self.samples, self.rate = samples, rate
        self.spans = audible_spans(samples, rate)

    def place(self, at: float) -> int:
        return min(len(self.samples), max(0, round(at * self.rate)))

    def first_audible(self, start: float, end: float) -> float | None:
        """Return the position of the first audible sample between two positions."""
        return self._find_audible(audio.first_audible, start, end)

    def last_audible(self, start: float, end: float) -> float | None:
        """Return the position of the last audible sample between two positions."""
        return self._find_audible(audio.last_audible, start, end)

    def _find_audible(self, find: "Callable[[Samples, int], int | None]", start: float, end: float) -> float | None:
        offset = self.place(start)
        found = find(self.samples[offset : self.place(end)], self.rate)
        return None if found is None else (offset + found) / self.rate

    def span_at(self, at: float) -> tuple[float, float] | None:
        """Return the span around a position; a span includes the pauses within speech."""
        return next((each for each in self.spans if each[0] <= at <= each[1]), None)

    def spans_within(self, start: float, end: float) -> list[tuple[float, float]]:
        """Return the parts of the spans between two positions."""
        return [(max(a, start), min(b, end)) for a, b in self.spans if a < end and b > start]


def audible_spans(samples: "Samples", rate: int, gap_s: float = GAP_S) -> list[tuple[float, float]]:
    """Return the audible spans, as positions of first and last samples; short silences do not split a span."""
    import numpy as np

    audible = np.flatnonzero(_mark_audible(samples, rate))
    if not audible.size:
        return []
    breaks = np.flatnonzero(np.diff(audible) > gap_s * rate)
    firsts, lasts = audible[np.concatenate(([0], breaks + 1))], audible[np.concatenate((breaks, [-1]))]
    return [(int(first) / rate, int(last) / rate) for first, last in zip(firsts, lasts, strict=True)]


def _mark_audible(samples: "Samples", rate: int) -> "NDArray[np.bool_]":
    """Mark each audible sample, by the rule of `audio.first_audible`: loud itself, and within 5 ms that are loud."""
    import numpy as np

    least = 32768 * 10 ** (audio.AUDIBLE_DBFS / 20)
    window = max(1, min(len(samples), round(rate * 0.005)))
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
        self.begins = [caller.first_audible(line.start, line.end) for line in log.lines]
        self.ends = [caller.last_audible(line.start, line.end) for line in log.lines]
        self.groups = log.groups(
            [
                line.start
                for line, begins in zip(log.lines, self.begins, strict=True)
                if not line.backchannel and (not line.barge_in or begins is None or not agent.span_at(begins))
            ]
        )
        for place, line in enumerate(log.lines):
            self._split_interrupted_answer(place, line)

    def _next_line_start(self, place: int) -> float:
        """Return the start of the next line; infinity after the last one."""
        return self.log.lines[place + 1].start if place + 1 < len(self.log.lines) else math.inf

    def _split_interrupted_answer(self, place: int, line: SaidLine) -> None:
        """Split an answer that stopped for a line from the answer to that line, if the log does not separate them."""
        begins, ends = self.begins[place], self.ends[place]
        if not line.barge_in or begins is None or ends is None or line.backchannel:
            return
        running = self.agent.span_at(begins)
        if (
            running is None
            or running[1] - begins > MAX_YIELD_S
            or self.agent.spans_within(running[1] + GAP_S / 2, ends)
        ):
            return
        for where, group in enumerate(self.groups):
            later = [each for each in group.pieces if each.arrived > begins and each.plays >= running[1]]
            if later and len(later) < len(group.pieces):
                group.pieces = group.pieces[: -len(later)]
                self.groups.insert(where + 1, SoundGroup(later, group.end))
                return

    def times(self, place: int, confirm: Confirm | None) -> LineTimes:
        line, begins, ends = self.log.lines[place], self.begins[place], self.ends[place]
        known = LineTimes(line.number, line.barge_in, backchannel=line.backchannel)
        if begins is None or ends is None:
            return known
        both = [
            span for said in self.caller.spans_within(line.start, line.end) for span in self.agent.spans_within(*said)
        ]
        known = msgspec.structs.replace(
            known,
            speech_start_s=begins,
            speech_end_s=ends,
            overlap_s=math.fsum(end - start for start, end in both),
            **self._measure_answer(place, begins, ends, confirm),
        )
        if line.barge_in and self.agent.span_at(begins):
            known = msgspec.structs.replace(known, talked_into=True, **self._measure_yield(place, begins))
        # Version 1 does not state backchannels: into silence, the same words expect an answer.
        wants_none = known.backchannel and (known.talked_into or self.log.version > 1)
        if known.first_audible_s is None and not wants_none:
            waited = self._measure_wait(place, ends)
            known = msgspec.structs.replace(known, censored=waited is not None, waited_s=waited)
        return msgspec.structs.replace(known, **self._measure_lateness(ends, known.first_audible_s))

    def _measure_wait(self, place: int, ends: float) -> float | None:
        """Return how long the caller waited without an answer; None if anything was heard, answer or not."""
        told = self.log.waited.get(self.log.lines[place].number)
        if told is not None:
            return told
        last = place == len(self.log.lines) - 1
        until = self.log.ended if last else self._next_line_start(place)
        if self.agent.spans_within(ends, until) and not (last and self.log.reason in _INCOMPLETE_REASONS):
            return None
        return max(0.0, until - ends)

    def _measure_lateness(self, ends: float, first_audible: float | None) -> dict[str, Any]:
        if self.log.pace is None:
            return {}
        # The frame with the line's last sample is sent when it is over.
        start, end = ends - FRAME_S, self.log.ended if first_audible is None else first_audible
        late = max((each.late_s for each in self.log.stalls if each.start <= end and each.end >= start), default=0.0)
        return {"late_s": late, "reliable": late <= MAX_RELIABLE_LATENESS_S}

    def _measure_answer(self, place: int, begins: float, ends: float, confirm: Confirm | None) -> dict[str, Any]:
        start, following = self.log.lines[place].start, self._next_line_start(place)
        groups = [each for each in self.groups if start <= each.arrived_at < following]
        running = self.agent.span_at(ends)
        into = any(self.agent.spans_within(max(begins, each.plays_at), min(ends, each.ends_at)) for each in groups)
        for number, group in enumerate(groups):
            runs_on = running is not None and running[1] > ends and group.plays_at <= ends < group.ends_at
            from_then = max(group.plays_at, running[0] if runs_on and running else ends)
            audible = self.agent.first_audible(from_then, group.ends_at)
            if audible is not None:
                over = max(each.ends_at for each in groups[number:])
                found = self._find_heard_answer(group, ends, audible, over, runs_on=runs_on, confirm=confirm)
                return {**found, "cut_in": runs_on or into}
        return {"cut_in": into}

    def _find_heard_answer(
        self, group: SoundGroup, ends: float, audible: float, over: float, *, runs_on: bool, confirm: Confirm | None
    ) -> dict[str, Any]:
        played = [each for each in group.pieces if each.plays <= audible] or group.pieces[:1]
        first = next((each for each in played if each.arrived >= ends), group.pieces[0])
        last = self.agent.last_audible(audible, over)
        end = audible if last is None else last
        parts = self.agent.spans_within(audible, end)
        gaps = [after[0] - before[1] for before, after in pairwise(parts)]
        return {
            "first_byte_s": first.arrived,
            "first_audible_s": audible,
            "answer_end_s": end,
            "to_first_byte_s": first.arrived - ends if first.arrived >= ends else None,
            "voice_to_voice_s": None if runs_on else audible - ends,
            "leading_silence_s": max(0.0, audible - first.plays),
            "total_s": end - ends,
            "gaps": len(gaps),
            "longest_gap_s": max(gaps, default=0.0),
            **({} if confirm is None else self._confirm_speech(audible, end, confirm)),
        }

    def _confirm_speech(self, start: float, end: float, confirm: Confirm) -> dict[str, Any]:
        answer = self.agent.samples[self.agent.place(start) : self.agent.place(end) + 1]
        found = confirm(audio.resample(answer, self.agent.rate, audio.CALLER_RATE))
        return {
            "speech_confirmed": bool(found),
            "speech_s": sum(last - first for first, last in found) / audio.CALLER_RATE,
        }

    def _measure_yield(self, place: int, begins: float) -> dict[str, Any]:
        following = self._next_line_start(place)
        running = [each for each in self.groups if each.arrived_at < begins]
        stopped = self.agent.last_audible(begins, max((each.ends_at for each in running), default=begins))
        unfinished = self._was_cut_short(running, begins, following, begins if stopped is None else stopped)
        if self.log.lines[place].backchannel:
            told = any(begins <= at < following for at in self.log.interrupted)
            heard = unfinished and self._fell_silent(begins)
            return {"false_interruption": told if self.log.says_interrupted else heard}
        lasted = 0.0 if stopped is None else stopped - begins
        if lasted > MAX_YIELD_S:
            return {"yield_censored_s": MAX_YIELD_S}
        return {"yield_s": lasted} if unfinished else {"ended_by_itself": True}

    def _was_cut_short(self, running: Sequence[SoundGroup], begins: float, following: float, stopped: float) -> bool:
        """Return whether the agent had more to say: sound was dropped, or it was still sending when it stopped."""
        if any(each.is_cut and begins <= each.end < following for each in running):
            return True
        last = [piece for each in running for piece in each.pieces if piece.plays <= stopped]
        return bool(last) and last[-1].arrived >= begins

    def _fell_silent(self, begins: float) -> bool:
        """Return whether the agent fell silent soon and for good: the only sign if the log reports no interruption."""
        running = self.agent.span_at(begins)
        return (
            running is not None
            and running[1] - begins <= MAX_YIELD_S
            and not self.agent.spans_within(running[1] + GAP_S / 2, running[1] + MAX_YIELD_S)
        )
