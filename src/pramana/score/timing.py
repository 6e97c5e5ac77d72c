"""When a person heard what: a call's stereo recording and its event log in, times out.

A position is in seconds on the recording's clock, a duration in seconds. What is audible is found in the recording, by
level and to the sample; the log only tells which sound belongs together, when it arrived, and what nobody answered. A
voice activity detector confirms that there is speech in an answer; it moves no time. No answer by the deadline is a
censored observation with the time that was waited, and an agent that cuts in is not a fast one: it has no time at all.
The same recording and log give the same numbers to the last digit.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from pramana.errors import InvalidInput
from pramana.providers.voice import BACKCHANNELS
from pramana.score.log import Group, Log, SaidLine
from pramana.score.spelling import normalised

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.int16]

TIMING_VERSION: Final = "1"
GAP_S = 0.2
"""Silence up to here is part of speech, as between two words."""
YIELD_WITHIN_S = 2.0
"""An agent that talks on for longer has not given way."""
_BROKEN: Final = frozenset({"closed", "error", "deadline", "no_answer"})

Confirm = Callable[["Samples"], Sequence[tuple[int, int]]]
"""Speech in samples at 16 kHz, as spans of them."""


class LineTimes(Struct, frozen=True):
    """What became of one line of the caller."""

    line: int
    barge_in: bool = False
    speech_start_s: float | None = None
    """Position of the first audible sample of the line; None where it has none, and nothing can be measured."""
    speech_end_s: float | None = None
    first_byte_s: float | None = None
    """Position at which the first sound of the answer arrived, audible or not."""
    first_audible_s: float | None = None
    """Position of the first audible sample of the answer."""
    answer_end_s: float | None = None
    """Position of its last one."""
    to_first_byte_s: float | None = None
    """From the end of speech; None where it came before."""
    voice_to_voice_s: float | None = None
    """From the last audible sample of the line to the first of the answer; None without one, and where it cut in."""
    leading_silence_s: float | None = None
    """From the first sound of the answer, as it was played, to the first that is audible."""
    total_s: float | None = None
    """From the end of speech to the end of the answer."""
    cut_in: bool = False
    """The agent talks already when the line ends."""
    censored: bool = False
    """Nothing was heard until `waited_s`: the time it would have taken is longer."""
    waited_s: float | None = None
    overlap_s: float = 0.0
    """Both are audible, while the line is said."""
    gaps: int = 0
    """Silences of more than `GAP_S` inside the answer."""
    longest_gap_s: float = 0.0
    speech_confirmed: bool | None = None
    """The detector finds speech in the answer; None where none was asked."""
    speech_s: float | None = None
    """As much of it as it finds."""
    talked_into: bool = False
    """The agent was audible when the line began."""
    yield_s: float | None = None
    """Of a line said into an answer: until the agent's last audible sample of it; None where it did not give way."""
    yield_censored_s: float | None = None
    """It had not given way by then."""
    backchannel: bool = False
    """The line says only that somebody listens."""
    false_interruption: bool | None = None
    """The agent stopped for a backchannel; None where there was none to stop for."""


class CallTimes(Struct, frozen=True):
    """All times of a call."""

    lines: tuple[LineTimes, ...]
    seconds: float
    """Of the recording."""
    reason: str
    """Why it ended, as the log has it."""
    finished: bool = False
    """The agent said that its last answer was over."""
    trouble: str = ""
    """What the other end said when it broke off."""
    vad: str = ""
    """The detector that confirmed speech, and its settings."""


def measure(
    samples: "Samples",
    rate: int,
    events: Sequence[Mapping[str, Any]],
    *,
    confirm: Confirm | None = None,
    vad: str = "",
) -> CallTimes:
    """Return the times of a call: the caller's channel is the left one, the agent's the right one."""
    caller, agent = tracks(samples, rate)
    log = Log(events)
    call = _Call(_Track(caller, rate), _Track(agent, rate), log)
    return CallTimes(
        lines=tuple(call.times(place, confirm) for place in range(len(log.lines))),
        seconds=len(agent) / rate,
        reason=log.reason,
        finished=log.finished,
        trouble=log.trouble,
        vad=vad if confirm else "",
    )


def tracks(samples: "Samples", rate: int) -> "tuple[Samples, Samples]":
    """Return the caller's and the agent's samples of a recording."""
    if samples.ndim != 2 or samples.shape[1] != 2 or samples.dtype.name != "int16":
        raise InvalidInput(
            f"the recording of a call has two channels of 16-bit samples, and this is {samples.dtype.name} "
            f"of shape {samples.shape}"
        )
    if rate <= 0:
        raise InvalidInput(f"a recording cannot have {rate} samples a second")
    return samples[:, 0], samples[:, 1]


def is_backchannel(text: str) -> bool:
    """Tell whether somebody says no more than that they listen.

    >>> is_backchannel("Uh-huh."), is_backchannel("Okay, stop!")
    (True, False)
    """
    return " ".join(normalised(text, "en")) in BACKCHANNELS


# ── The recording ──


class _Track:
    """One channel, and where in it something is heard."""

    def __init__(self, samples: "Samples", rate: int) -> None:
        self.samples, self.rate = samples, rate
        self.spans = spans(samples, rate)

    def place(self, at: float) -> int:
        return min(len(self.samples), max(0, round(at * self.rate)))

    def first(self, start: float, end: float) -> float | None:
        """Return the position of the first audible sample between two others."""
        from pramana import audio

        offset = self.place(start)
        found = audio.first_audible(self.samples[offset : self.place(end)], self.rate)
        return None if found is None else (offset + found) / self.rate

    def last(self, start: float, end: float) -> float | None:
        from pramana import audio

        offset = self.place(start)
        found = audio.last_audible(self.samples[offset : self.place(end)], self.rate)
        return None if found is None else (offset + found) / self.rate

    def speaking(self, at: float) -> tuple[float, float] | None:
        """Return the span that holds a position, pauses within speech included."""
        return next((each for each in self.spans if each[0] <= at <= each[1]), None)

    def within(self, start: float, end: float) -> list[tuple[float, float]]:
        """Return the parts of the spans between two positions."""
        return [(max(a, start), min(b, end)) for a, b in self.spans if a < end and b > start]


def spans(samples: "Samples", rate: int, gap_s: float = GAP_S) -> list[tuple[float, float]]:
    """Return where something is audible, as positions of first and last samples; short silences part nothing."""
    import numpy as np

    audible = np.flatnonzero(_audible(samples, rate))
    if not audible.size:
        return []
    breaks = np.flatnonzero(np.diff(audible) > gap_s * rate)
    firsts, lasts = audible[np.concatenate(([0], breaks + 1))], audible[np.concatenate((breaks, [-1]))]
    return [(int(first) / rate, int(last) / rate) for first, last in zip(firsts, lasts, strict=True)]


def _audible(samples: "Samples", rate: int) -> "NDArray[np.bool_]":
    """Mark each audible sample, by the rule of `audio.first_audible`: loud itself, and in 5 ms that are loud."""
    import numpy as np

    from pramana import audio

    least = 32768 * 10 ** (audio.AUDIBLE_DBFS / 20)
    window = max(1, min(len(samples), round(rate * 0.005)))
    magnitudes = np.abs(samples.astype(np.int64))
    so_far = np.concatenate(([0], np.cumsum(np.square(magnitudes))))
    loud = so_far[window:] - so_far[:-window] >= least**2 * window
    # A sample stands in a loud window when one begins at it or up to a window before it.
    begun = np.concatenate(([0], np.cumsum(loud)))
    last = np.minimum(np.arange(len(samples)), len(loud) - 1) + 1
    first = np.maximum(np.arange(len(samples)) - window + 1, 0)
    return np.asarray((begun[last] > begun[first]) & (magnitudes >= least))


# ── The call ──


class _Call:
    def __init__(self, caller: _Track, agent: _Track, log: Log) -> None:
        self.caller, self.agent, self.log = caller, agent, log
        self.begins = [caller.first(line.start, line.end) for line in log.lines]
        self.ends = [caller.last(line.start, line.end) for line in log.lines]
        self.groups = log.groups(
            [
                line.start
                for line, begins in zip(log.lines, self.begins, strict=True)
                if not line.barge_in or begins is None or not agent.speaking(begins)
            ]
        )
        if not log.marks:
            for place, line in enumerate(log.lines):
                self._part(place, line)

    def _begin(self, place: int) -> float:
        """Return where a line begins to be heard; after the last one, never."""
        if place >= len(self.begins):
            return math.inf
        begins = self.begins[place]
        return self.log.lines[place].start if begins is None else begins

    def _part(self, place: int, line: SaidLine) -> None:
        """Part an answer that fell silent for a line from the one to it, where the log has no word about ends."""
        begins, ends = self.begins[place], self.ends[place]
        if not line.barge_in or begins is None or ends is None or is_backchannel(line.text):
            return
        running = self.agent.speaking(begins)
        if running is None or running[1] - begins > YIELD_WITHIN_S or self.agent.within(running[1] + GAP_S / 2, ends):
            return
        for where, group in enumerate(self.groups):
            later = [each for each in group.pieces if each.arrived > begins and each.plays >= running[1]]
            if later and len(later) < len(group.pieces):
                group.pieces = group.pieces[: -len(later)]
                self.groups.insert(where + 1, Group(later, group.end))
                return

    def times(self, place: int, confirm: Confirm | None) -> LineTimes:
        line, begins, ends = self.log.lines[place], self.begins[place], self.ends[place]
        known = LineTimes(line.number, line.barge_in, backchannel=line.barge_in and is_backchannel(line.text))
        if begins is None or ends is None:
            return known
        known = msgspec.structs.replace(
            known,
            speech_start_s=begins,
            speech_end_s=ends,
            overlap_s=self._overlap(line),
            **self._answer(place, ends, confirm),
        )
        if line.barge_in and self.agent.speaking(begins):
            known = msgspec.structs.replace(known, talked_into=True, **self._giving_way(place, begins))
        if known.first_audible_s is None and not (known.backchannel and known.talked_into):  # which asks for nothing
            waited = self.log.waited.get(line.number)
            if waited is None and place == len(self.log.lines) - 1 and self.log.reason in _BROKEN:
                waited = max(0.0, self.log.ended - ends)
            known = msgspec.structs.replace(known, censored=waited is not None, waited_s=waited)
        return known

    def _answer(self, place: int, ends: float, confirm: Confirm | None) -> dict[str, Any]:
        begin, following = self._begin(place), self._begin(place + 1)
        groups = [each for each in self.groups if begin <= each.arrived < following]
        for number, group in enumerate(groups):
            running = self.agent.speaking(ends)
            cut_in = running is not None and running[1] > ends and group.plays <= ends < group.over
            start = max(group.plays, running[0] if cut_in and running else ends)
            audible = self.agent.first(start, group.over)
            if audible is not None:
                over = max(each.over for each in groups[number:])
                return self._heard(group, ends, audible, over, cut_in=cut_in, confirm=confirm)
        return {}

    def _heard(
        self, group: Group, ends: float, audible: float, over: float, *, cut_in: bool, confirm: Confirm | None
    ) -> dict[str, Any]:
        played = [each for each in group.pieces if each.plays <= audible] or group.pieces[:1]
        first = next((each for each in played if each.arrived >= ends), group.pieces[0])
        last = self.agent.last(audible, over)
        end = audible if last is None else last
        parts = self.agent.within(audible, end)
        gaps = [after[0] - before[1] for before, after in pairwise(parts)]
        return {
            "first_byte_s": first.arrived,
            "first_audible_s": audible,
            "answer_end_s": end,
            "to_first_byte_s": first.arrived - ends if first.arrived >= ends else None,
            "voice_to_voice_s": None if cut_in else audible - ends,
            "leading_silence_s": max(0.0, audible - first.plays),
            "total_s": end - ends,
            "cut_in": cut_in,
            "gaps": len(gaps),
            "longest_gap_s": max(gaps, default=0.0),
            **({} if confirm is None else self._confirmed(audible, end, confirm)),
        }

    def _confirmed(self, start: float, end: float, confirm: Confirm) -> dict[str, Any]:
        from pramana import audio

        answer = self.agent.samples[self.agent.place(start) : self.agent.place(end) + 1]
        found = confirm(audio.resample(answer, self.agent.rate, audio.CALLER_RATE))
        return {
            "speech_confirmed": bool(found),
            "speech_s": sum(last - first for first, last in found) / audio.CALLER_RATE,
        }

    def _overlap(self, line: SaidLine) -> float:
        return math.fsum(
            end - start for said in self.caller.within(line.start, line.end) for start, end in self.agent.within(*said)
        )

    def _giving_way(self, place: int, begins: float) -> dict[str, Any]:
        following = self._begin(place + 1)
        if is_backchannel(self.log.lines[place].text):
            told = any(begins <= at < following for at in self.log.interrupted)
            return {"false_interruption": told if self.log.marks else self._stopped(begins)}
        running = [each.over for each in self.groups if each.arrived < begins]
        stopped = self.agent.last(begins, max(running, default=begins))
        lasted = 0.0 if stopped is None else stopped - begins
        if lasted > YIELD_WITHIN_S:
            return {"yield_censored_s": YIELD_WITHIN_S}
        return {"yield_s": lasted}

    def _stopped(self, begins: float) -> bool:
        """Tell whether the agent fell silent soon, and for good: all there is to go by without a word about it."""
        running = self.agent.speaking(begins)
        return (
            running is not None
            and running[1] - begins <= YIELD_WITHIN_S
            and not self.agent.within(running[1] + GAP_S / 2, running[1] + YIELD_WITHIN_S)
        )
