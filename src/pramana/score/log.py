"""Parses and validates the event log of a call: plain events in; lines, groups of sound, texts and the ending out.

Logs may come from files, so all fields are validated, and an error names the event. Never reads the recording.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

from msgspec import Struct, ValidationError, convert

from pramana.errors import InvalidInput, quote_text
from pramana.providers.voice.vocabulary import CORRECTED_WORDS_KEY, is_backchannel

INTERRUPTION_WINDOW_S = 2.0
"""Time after a line in which an interruption still counts as caused by it: agents notice late."""
NORMAL_CLOSE_CODE = 1000
"""The WebSocket close code of a normal closure."""
RECORDING_END_TOLERANCE_S = 0.1
"""Tolerance for positions after the end of the recording: both are rounded, and the last frame may be cut short."""
MAX_LOG_NUMBER = 1e6
"""An upper bound: no call is that long."""


class CallerLine(Struct, frozen=True):
    """A line of the caller as it was played; positions are in seconds of the recording."""

    number: int
    text: str
    start_s: float
    end_s: float
    barge_in: bool
    backchannel: bool = False
    """A sign of listening during an answer, such as "mhm": the caller expects no answer to it."""


class FrameLatenessReport(Struct, frozen=True):
    """How late the caller's frames were sent, which shows how late everything in that process was."""

    frames: int
    late_p95_s: float
    late_most_s: float
    longest_gap_s: float
    """Longest time between two frames; 0.02 s is the nominal value."""


class Stall(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A period in which frames were late, and the maximum lateness."""

    start_s: float
    end_s: float
    max_lateness_s: float


class ReceivedSound(Struct, frozen=True):
    """A piece of the agent's sound, as it arrived."""

    arrived_at_s: float
    plays_at_s: float
    duration_s: float

    @property
    def end_s(self) -> float:
        return self.plays_at_s + self.duration_s


class SoundGroup(Struct):
    """Pieces of sound that belong to one answer, and the position where their playback ended at the latest."""

    pieces: list[ReceivedSound]
    playback_end_s: float = math.inf

    @property
    def arrived_at_s(self) -> float:
        return self.pieces[0].arrived_at_s

    @property
    def plays_at_s(self) -> float:
        return self.pieces[0].plays_at_s

    @property
    def ends_at_s(self) -> float:
        return min(self.playback_end_s, self.pieces[-1].end_s)

    @property
    def is_cut(self) -> bool:
        """Whether some of it was never played."""
        return self.playback_end_s < self.pieces[-1].end_s


class CallLog:
    """The parsed events of a call."""

    def __init__(self, events: Sequence[Mapping[str, Any]]) -> None:
        self.version = 1
        """In version 1, the log lacks pace, backchannels and the capabilities of the format."""
        self.synthesised_here = False
        """Whether this process synthesised the agent's sound from its transcript; always False before version 3."""
        self.says_interrupted: bool | None = None
        """Whether the agent's format reports interruptions; None if the log does not state it and contains none."""
        self.conditions: str | None = None
        """The conditions of the caller's sound; None if the log does not state them."""
        self.quiet_s: float | None = None
        """Silence after which an answer counts as over, in a format that need not report its end."""
        self.pace: FrameLatenessReport | None = None
        self.stalls: list[Stall] = []
        self.lines: list[CallerLine] = []
        self.interrupted: list[float] = []
        self.cuts = 0
        """Number of times the agent's sound was cut: as many passages of its words were never played."""
        self.interruption_count = 0
        """How many of these happened while the caller talked; interruptions reported at other times excuse nothing."""
        self.waited: dict[int, float] = {}
        """By line, how long the caller waited without an answer."""
        self.reason, self.trouble, self.ended = "", "", 0.0
        self.finished = False
        """Whether the agent reported the end of its answer after its last sound."""
        self.turn_ends = 0
        """Number of times the agent reported the end of an answer."""
        self._is_ordered = False
        """Whether the other end closed the connection normally."""
        self._has_sounded = False
        """Whether sound arrived since the last interruption."""
        self._silenced_at: list[float] = []
        """Positions of interruptions that followed sound."""
        self._events = [_CallEvent(place, event) for place, event in enumerate(events)]
        for event in self._events:
            self._parse_event(event)
        talked = [(line.start_s, line.end_s + INTERRUPTION_WINDOW_S) for line in self.lines]
        self.cuts = len(self._silenced_at)
        self.interruption_count = sum(any(start <= at <= end for start, end in talked) for at in self._silenced_at)
        for before, after in pairwise(self.lines):
            if after.number <= before.number or after.start_s < before.end_s:
                raise InvalidInput(
                    f"the event log is out of order: line {after.number} begins at {after.start_s:g} s, "
                    f"after line {before.number} that ends at {before.end_s:g} s"
                )

    def _parse_event(self, event: "_CallEvent") -> None:
        self.ended = max(self.ended, event.at_s)
        match event.kind:
            case "call":
                self._parse_start(event)
            case "line":
                self.lines.append(self._parse_line(event))
            case "interrupted":
                self.interrupted.append(event.at_s)
                self._silenced_at += [event.at_s] if self._has_sounded else []
                self._has_sounded = False
                self.says_interrupted = self.says_interrupted is not False
            case "turn_done":
                self.turn_ends += 1
                self.finished = True
            case "agent_audio":
                self._has_sounded, self.finished = True, False
            case "no_answer":
                self.waited[event.read_int("line")] = event.read_seconds("waited_s")
            case "error" | "closed":
                detail = event.fields.get("detail")
                self.trouble = event.read_text("text") or event.kind
                self._is_ordered = (
                    event.kind == "closed"
                    and event.fields.get("class") is None
                    and isinstance(detail, Mapping)
                    and detail.get("code") == NORMAL_CLOSE_CODE
                )
            case "pace":
                self._parse_pace(event)
            case "end":
                self.reason = event.read_text("reason")

    def _parse_start(self, event: "_CallEvent") -> None:
        self.version = event.read_int("version") if "version" in event.fields else 1
        under = event.fields.get("conditions")
        self.conditions = under if isinstance(under, str) else None
        says = event.fields.get("says_interrupted")
        self.says_interrupted = says if isinstance(says, bool) else None
        self.quiet_s = None if event.fields.get("quiet_s") is None else event.read_seconds("quiet_s")
        self.synthesised_here = event.fields.get("synthesised_here") is True

    def _parse_line(self, event: "_CallEvent") -> CallerLine:
        text, barge_in = event.read_text("text"), event.fields.get("barge_in") is True
        told = event.fields.get("backchannel")
        line = CallerLine(
            event.read_int("line"),
            text,
            event.read_seconds("start"),
            event.read_seconds("end"),
            barge_in,
            backchannel=told if isinstance(told, bool) else barge_in and is_backchannel(text),
        )
        if line.end_s < line.start_s:
            raise InvalidInput(f"the event log has a line {line.number} that ends before it begins")
        return line

    def _parse_pace(self, event: "_CallEvent") -> None:
        self.pace = FrameLatenessReport(
            event.read_int("frames"),
            event.read_seconds("late_p95_s"),
            event.read_seconds("late_most_s"),
            event.read_seconds("longest_gap_s"),
        )
        try:
            self.stalls = convert(event.fields.get("stalls"), list[Stall], strict=True)
        except ValidationError:
            raise InvalidInput(
                f"event {event.index + 1} of the log (pace) needs a list `stalls` with the begin, the end and the "
                "delay of each stall"
            ) from None

    @property
    def agent_hung_up(self) -> bool:
        """Whether the agent ended the call normally, in a format without a message for the end of an answer."""
        return self._is_ordered and self.quiet_s is not None and not self.turn_ends

    def check_fits(self, recording_s: float) -> None:
        """Raise `InvalidInput` if the log has sound after the end of a recording of this length."""
        until = recording_s + RECORDING_END_TOLERANCE_S
        for line in self.lines:
            if line.end_s > until:
                raise InvalidInput(
                    f"the event log has a line {line.number} that ends at {line.end_s:g} s, and the recording at "
                    f"{recording_s:g} s"
                )
        played = True
        for event in reversed(self._events):
            if event.kind == "interrupted" or event.is_interruption_of_silence:
                played = False  # earlier sound may have been dropped instead of played later
            elif event.kind == "agent_audio":
                ends = event.read_seconds("plays") + event.read_seconds("seconds") if played else event.at_s
                if ends > until:
                    raise InvalidInput(
                        f"event {event.index + 1} of the log has sound of the agent until {ends:g} s, and the "
                        f"recording ends at {recording_s:g} s"
                    )

    def group_sound(self, line_starts_s: Sequence[float]) -> list[SoundGroup]:
        """Return the agent's sound in groups, ended by the end of an answer, an interruption or one of `line_starts_s`.

        `line_starts_s` are the starts of the lines that did not interrupt the agent: what arrives after them belongs to
        a new answer.
        """
        found: list[SoundGroup] = []
        fresh, lines_before = True, 0
        for event in self._events:
            if event.kind == "interrupted":
                _cut_groups(found, event.at_s)
            if event.kind in ("interrupted", "turn_done"):
                fresh = True
            if event.kind != "agent_audio":
                continue
            piece = ReceivedSound(event.at_s, event.read_seconds("plays"), event.read_seconds("seconds"))
            lines = bisect_right(line_starts_s, piece.arrived_at_s)
            if fresh or lines != lines_before:
                found.append(SoundGroup([piece]))
            else:
                found[-1].pieces.append(piece)
            fresh, lines_before = False, lines
        return found

    def list_transcripts(self, event_kind: Literal["agent_text", "user_text"]) -> list[str]:
        """Return the transcript of one side: before the first line, then for each line.

        Uses final texts if there are any, else the joined partial texts.
        """
        starts = [line.start_s for line in self.lines]
        whole: list[list[str]] = [[] for _ in range(len(starts) + 1)]
        parts: list[list[str]] = [[] for _ in range(len(starts) + 1)]
        for event in self._events:
            if event.kind != event_kind:
                continue
            detail, text = event.fields.get("detail"), event.read_text("text")
            if isinstance(detail, Mapping) and isinstance(original := detail.get(CORRECTED_WORDS_KEY), str):
                _correct_words(whole, original, text)
                continue
            (whole if event.fields.get("final") is True else parts)[bisect_right(starts, event.at_s)].append(text)
        return [" ".join(texts) if texts else "".join(pieces) for texts, pieces in zip(whole, parts, strict=True)]


def _correct_words(transcripts: Sequence[list[str]], original: str, corrected: str) -> None:
    """Replace words that were never spoken, in the last text that contains them."""
    for said in reversed(transcripts):
        for place in reversed(range(len(said))):
            if original and original in said[place]:
                said[place] = said[place].replace(original, corrected)
                return


def _cut_groups(groups: Sequence[SoundGroup], position_s: float) -> None:
    """End groups at a position, because sound waiting to be played then was dropped."""
    for group in reversed(groups):
        if group.ends_at_s <= position_s:
            return
        group.playback_end_s = position_s


class _CallEvent:
    """One event of the log; errors name its position."""

    def __init__(self, index: int, values: object) -> None:
        if not isinstance(values, Mapping) or not isinstance(values.get("event"), str):
            raise InvalidInput(f"event {index + 1} of the log is not an event: expected an object with text at `event`")
        self.index, self.fields = index, values
        self.kind: str = values["event"]
        self.at_s = self.read_seconds("t")

    @property
    def is_interruption_of_silence(self) -> bool:
        """Whether this is an interruption of nothing audible; pending silence may have been dropped anyway."""
        detail = self.fields.get("detail")
        return self.kind == "unknown" and isinstance(detail, Mapping) and detail.get("event") == "interrupted"

    def read_seconds(self, key: str) -> float:
        return self._read_number(key, int | float, "seconds")

    def read_int(self, key: str) -> int:
        return int(self._read_number(key, int, "a whole number"))

    def _read_number(self, key: str, number_type: Any, expected: str) -> float:
        value = self.fields.get(key)
        if isinstance(value, bool) or not isinstance(value, number_type) or not 0 <= value <= MAX_LOG_NUMBER:
            raise self._make_field_error(key, expected)
        return float(value)

    def read_text(self, key: str) -> str:
        value = self.fields.get(key)
        if not isinstance(value, str):
            raise self._make_field_error(key, "a text")
        return value

    def _make_field_error(self, key: str, expected: str) -> InvalidInput:
        value = self.fields.get(key)
        found = (
            "nothing" if value is None else quote_text(value) if isinstance(value, str) else f"a {type(value).__name__}"
        )
        found = f"{value}" if isinstance(value, float) else found
        return InvalidInput(
            f"event {self.index + 1} of the log ({quote_text(self.kind, 30)}) has {found} at `{key}`: expected "
            f"{expected}"
        )
