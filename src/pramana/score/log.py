"""What the event log of a call says, checked: plain events in; lines, groups of sound, texts and the end out.

Everything is read once and with care, since a log may come from a file: what does not fit is an error that names the
event. It knows nothing of the recording.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

from msgspec import Struct, ValidationError, convert

from pramana.errors import InvalidInput, quote_text
from pramana.providers.voice.vocabulary import CORRECTION_KEY, is_backchannel

INTERRUPTION_WINDOW_S = 2.0
"""After a line: an agent that hears late that it was talked into still was."""
NORMAL_CLOSE_CODE = 1000
"""The code of a connection that is closed because all is said."""
SLACK_S = 0.1
"""By which a position may lie behind the recording: both are rounded, and the last frame may be cut short."""
MAX_CALL_S = 1e6
"""No call is that long."""


class SaidLine(Struct, frozen=True):
    """A line of the caller as it was played, in positions of the recording."""

    number: int
    text: str
    start: float
    end: float
    barge_in: bool
    backchannel: bool = False
    """It says only that somebody listens, into an answer: the caller wants none to it."""


class PaceReport(Struct, frozen=True):
    """How late the caller's frames went out: the lateness of everything in that process."""

    frames: int
    late_p95_s: float
    late_most_s: float
    longest_gap_s: float
    """Between two frames, which are 0.02 s apart by right."""


class Stall(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Frames were late for so long, and at most by so much."""

    start: float
    end: float
    late_s: float


class ReceivedSound(Struct, frozen=True):
    """Sound of the agent as it arrived."""

    arrived: float
    plays: float
    seconds: float

    @property
    def end(self) -> float:
        return self.plays + self.seconds


class SoundGroup(Struct):
    """Pieces that belong together, and until when they were played at most."""

    pieces: list[ReceivedSound]
    end: float = math.inf

    @property
    def arrived_at(self) -> float:
        return self.pieces[0].arrived

    @property
    def plays_at(self) -> float:
        return self.pieces[0].plays

    @property
    def ends_at(self) -> float:
        return min(self.end, self.pieces[-1].end)

    @property
    def is_cut(self) -> bool:
        """Some of it was never played."""
        return self.end < self.pieces[-1].end


class CallLog:
    """The events of one call."""

    def __init__(self, events: Sequence[Mapping[str, Any]]) -> None:
        self.version = 1
        """In 1, nothing is told of pace, of backchannels, and of what the format can say."""
        self.synthesised_here = False
        """The bench made the agent's sound itself, from the words of its transcript; never so before version 3."""
        self.says_interrupted: bool | None = None
        """The agent's format has a word for it; None where the log does not tell, and none is in it."""
        self.conditions: str | None = None
        """How the caller sounded; None where the log does not tell."""
        self.quiet_s: float | None = None
        """How long an answer is silent before it is over, in a format that need not say so."""
        self.pace: PaceReport | None = None
        self.stalls: list[Stall] = []
        self.lines: list[SaidLine] = []
        self.interrupted: list[float] = []
        self.cuts = 0
        """How often the agent fell silent in the middle: so many stretches of its words were never heard."""
        self.interruption_count = 0
        """How often of these the caller talked: what it calls an interruption while nobody does excuses nothing."""
        self.waited: dict[int, float] = {}
        """By line, how long nothing was heard."""
        self.reason, self.trouble, self.ended = "", "", 0.0
        self.finished = False
        """After its last sound the agent has said that it was the last."""
        self.turn_ends = 0
        """How often the agent has said that its answer was over."""
        self._orderly = False
        """The other end closed the connection, and without trouble."""
        self._has_sounded = False
        """Sound came since the agent was interrupted the last time."""
        self._silenced_at: list[float] = []
        """When it was, after sound."""
        self._events = [_Event(place, event) for place, event in enumerate(events)]
        for event in self._events:
            self._parse_event(event)
        talked = [(line.start, line.end + INTERRUPTION_WINDOW_S) for line in self.lines]
        self.cuts = len(self._silenced_at)
        self.interruption_count = sum(any(start <= at <= end for start, end in talked) for at in self._silenced_at)
        for before, after in pairwise(self.lines):
            if after.number <= before.number or after.start < before.end:
                raise InvalidInput(
                    f"the event log is out of order: line {after.number} begins at {after.start:g} s, "
                    f"after line {before.number} that ends at {before.end:g} s"
                )

    def _parse_event(self, event: "_Event") -> None:
        self.ended = max(self.ended, event.at)
        match event.kind:
            case "call":
                self._parse_start(event)
            case "line":
                self.lines.append(self._parse_line(event))
            case "interrupted":
                self.interrupted.append(event.at)
                self._silenced_at += [event.at] if self._has_sounded else []
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
                self._orderly = (
                    event.kind == "closed"
                    and event.fields.get("class") is None
                    and isinstance(detail, Mapping)
                    and detail.get("code") == NORMAL_CLOSE_CODE
                )
            case "pace":
                self._parse_pace(event)
            case "end":
                self.reason = event.read_text("reason")

    def _parse_start(self, event: "_Event") -> None:
        self.version = event.read_int("version") if "version" in event.fields else 1
        under = event.fields.get("conditions")
        self.conditions = under if isinstance(under, str) else None
        says = event.fields.get("says_interrupted")
        self.says_interrupted = says if isinstance(says, bool) else None
        self.quiet_s = None if event.fields.get("quiet_s") is None else event.read_seconds("quiet_s")
        self.synthesised_here = event.fields.get("synthesised_here") is True

    def _parse_line(self, event: "_Event") -> SaidLine:
        text, barge_in = event.read_text("text"), event.fields.get("barge_in") is True
        told = event.fields.get("backchannel")
        line = SaidLine(
            event.read_int("line"),
            text,
            event.read_seconds("start"),
            event.read_seconds("end"),
            barge_in,
            backchannel=told if isinstance(told, bool) else barge_in and is_backchannel(text),
        )
        if line.end < line.start:
            raise InvalidInput(f"the event log has a line {line.number} that ends before it begins")
        return line

    def _parse_pace(self, event: "_Event") -> None:
        self.pace = PaceReport(
            event.read_int("frames"),
            event.read_seconds("late_p95_s"),
            event.read_seconds("late_most_s"),
            event.read_seconds("longest_gap_s"),
        )
        try:
            self.stalls = convert(event.fields.get("stalls"), list[Stall], strict=True)
        except ValidationError:
            raise InvalidInput(
                f"event {event.place + 1} of the log (pace) has no list at `stalls` of where each begins, where it "
                "ends and how late it was"
            ) from None

    @property
    def hung_up(self) -> bool:
        """The agent closed the call in order, in a format in which no message ends an answer: it was over."""
        return self._orderly and self.quiet_s is not None and not self.turn_ends

    def check_fits(self, seconds: float) -> None:
        """Refuse a log that tells of sound behind the end of a recording of so many seconds."""
        until = seconds + SLACK_S
        for line in self.lines:
            if line.end > until:
                raise InvalidInput(
                    f"the event log has a line {line.number} that ends at {line.end:g} s, and the recording at "
                    f"{seconds:g} s"
                )
        played = True
        for event in reversed(self._events):
            if event.kind == "interrupted" or event.is_ignored_interruption:
                played = False  # what came before may have been dropped, and was to be played later
            elif event.kind == "agent_audio":
                ends = event.read_seconds("plays") + event.read_seconds("seconds") if played else event.at
                if ends > until:
                    raise InvalidInput(
                        f"event {event.place + 1} of the log has sound of the agent until {ends:g} s, and the "
                        f"recording ends at {seconds:g} s"
                    )

    def groups(self, starts: Sequence[float]) -> list[SoundGroup]:
        """Return the agent's sound: what came between two ends of an answer, or between two starts, belongs together.

        The starts are those of lines that nobody was talked into with: what arrives after them is no part of before.
        """
        found: list[SoundGroup] = []
        fresh, lines_before = True, 0
        for event in self._events:
            if event.kind == "interrupted":
                _cut_groups(found, event.at)
            if event.kind in ("interrupted", "turn_done"):
                fresh = True
            if event.kind != "agent_audio":
                continue
            piece = ReceivedSound(event.at, event.read_seconds("plays"), event.read_seconds("seconds"))
            lines = bisect_right(starts, piece.arrived)
            if fresh or lines != lines_before:
                found.append(SoundGroup([piece]))
            else:
                found[-1].pieces.append(piece)
            fresh, lines_before = False, lines
        return found

    def texts(self, kind: Literal["agent_text", "user_text"]) -> list[str]:
        """Return what was said, or what the provider heard: before the first line, then for each line.

        Whole texts, where there are any, else the pieces put together.
        """
        starts = [line.start for line in self.lines]
        whole: list[list[str]] = [[] for _ in range(len(starts) + 1)]
        parts: list[list[str]] = [[] for _ in range(len(starts) + 1)]
        for event in self._events:
            if event.kind != kind:
                continue
            detail, text = event.fields.get("detail"), event.read_text("text")
            if isinstance(detail, Mapping) and isinstance(original := detail.get(CORRECTION_KEY), str):
                _correct_words(whole, original, text)
                continue
            (whole if event.fields.get("final") is True else parts)[bisect_right(starts, event.at)].append(text)
        return [" ".join(texts) if texts else "".join(pieces) for texts, pieces in zip(whole, parts, strict=True)]


def _correct_words(texts: Sequence[list[str]], original: str, corrected: str) -> None:
    """Put words in the place of others that turned out never to have been said; of the last that are alike."""
    for said in reversed(texts):
        for place in reversed(range(len(said))):
            if original and original in said[place]:
                said[place] = said[place].replace(original, corrected)
                return


def _cut_groups(groups: Sequence[SoundGroup], at: float) -> None:
    """End at a position whatever was still waiting to be played."""
    for group in reversed(groups):
        if group.ends_at <= at:
            return
        group.end = at


class _Event:
    """One event of the log, read with errors that say where."""

    def __init__(self, place: int, given: object) -> None:
        if not isinstance(given, Mapping) or not isinstance(given.get("event"), str):
            raise InvalidInput(f"event {place + 1} of the log is none: an object with a text at `event` was expected")
        self.place, self.fields = place, given
        self.kind: str = given["event"]
        self.at = self.read_seconds("t")

    @property
    def is_ignored_interruption(self) -> bool:
        """It is an interruption of nothing, for which silence may have been dropped all the same."""
        detail = self.fields.get("detail")
        return self.kind == "unknown" and isinstance(detail, Mapping) and detail.get("event") == "interrupted"

    def read_seconds(self, key: str) -> float:
        return self._read_number(key, int | float, "seconds")

    def read_int(self, key: str) -> int:
        return int(self._read_number(key, int, "a whole number"))

    def _read_number(self, key: str, kind: Any, expected: str) -> float:
        value = self.fields.get(key)
        if isinstance(value, bool) or not isinstance(value, kind) or not 0 <= value <= MAX_CALL_S:
            raise self._field_error(key, expected)
        return float(value)

    def read_text(self, key: str) -> str:
        value = self.fields.get(key)
        if not isinstance(value, str):
            raise self._field_error(key, "a text")
        return value

    def _field_error(self, key: str, expected: str) -> InvalidInput:
        value = self.fields.get(key)
        found = (
            "nothing" if value is None else quote_text(value) if isinstance(value, str) else f"a {type(value).__name__}"
        )
        found = f"{value}" if isinstance(value, float) else found
        return InvalidInput(
            f"event {self.place + 1} of the log ({quote_text(self.kind, 30)}) has {found} at `{key}`: expected "
            f"{expected}"
        )
