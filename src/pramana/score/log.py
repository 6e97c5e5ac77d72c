"""What the event log of a call says, checked: plain events in; lines, groups of sound, texts and the end out.

Everything is read once and with care, since a log may come from a file: what does not fit is an error that names the
event. It knows nothing of the recording.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

from msgspec import Struct

from pramana.errors import InvalidInput, quote

LONGEST_S = 1e6
"""No call is that long."""


class SaidLine(Struct, frozen=True):
    """A line of the caller as it was played, in positions of the recording."""

    number: int
    text: str
    start: float
    end: float
    barge_in: bool


class Piece(Struct, frozen=True):
    """Sound of the agent as it arrived."""

    arrived: float
    plays: float
    seconds: float

    @property
    def end(self) -> float:
        return self.plays + self.seconds


class Group(Struct):
    """Pieces that belong together, and until when they were played at most."""

    pieces: list[Piece]
    end: float = math.inf

    @property
    def arrived(self) -> float:
        return self.pieces[0].arrived

    @property
    def plays(self) -> float:
        return self.pieces[0].plays

    @property
    def over(self) -> float:
        return min(self.end, self.pieces[-1].end)


class Log:
    """The events of one call."""

    def __init__(self, events: Sequence[Mapping[str, Any]]) -> None:
        self.lines: list[SaidLine] = []
        self.interrupted: list[float] = []
        self.cuts = 0
        """How often sound that had arrived was never played."""
        self.waited: dict[int, float] = {}
        """By line, how long nothing was heard."""
        self.reason, self.trouble, self.ended = "", "", 0.0
        self.finished = False
        """After its last sound the agent has said that it was the last."""
        self.marks = 0
        """Words about the end of an answer; without any, only silence tells where one ends."""
        self._events = [_Event(place, event) for place, event in enumerate(events)]
        for event in self._events:
            self._note(event)
        for before, after in pairwise(self.lines):
            if after.number <= before.number or after.start < before.end:
                raise InvalidInput(
                    f"the event log is out of order: line {after.number} begins at {after.start:g} s, "
                    f"after line {before.number} that ends at {before.end:g} s"
                )

    def _note(self, event: "_Event") -> None:
        self.ended = max(self.ended, event.at)
        match event.kind:
            case "line":
                line = SaidLine(
                    event.whole("line"),
                    event.text("text"),
                    event.seconds("start"),
                    event.seconds("end"),
                    event.given.get("barge_in") is True,
                )
                if line.end < line.start:
                    raise InvalidInput(f"the event log has a line {line.number} that ends before it begins")
                self.lines.append(line)
            case "interrupted":
                self.interrupted.append(event.at)
                self.cuts += event.seconds("dropped_s") > 0
                self.marks += 1
            case "turn_done":
                self.marks += 1
                self.finished = True
            case "agent_audio":
                self.finished = False
            case "no_answer":
                self.waited[event.whole("line")] = event.seconds("waited_s")
            case "error" | "closed":
                self.trouble = event.text("text") or event.kind
            case "end":
                self.reason = event.text("reason")

    def groups(self, starts: Sequence[float]) -> list[Group]:
        """Return the agent's sound: what came between two ends of an answer, or between two starts, belongs together.

        The starts are those of lines that nobody was talked into with: what arrives after them is no part of before.
        """
        found: list[Group] = []
        fresh, lines_before = True, 0
        for event in self._events:
            if event.kind == "interrupted":
                _cut(found, event.at)
            if event.kind in ("interrupted", "turn_done"):
                fresh = True
            if event.kind != "agent_audio":
                continue
            piece = Piece(event.at, event.seconds("plays"), event.seconds("seconds"))
            lines = bisect_right(starts, piece.arrived)
            if fresh or lines != lines_before:
                found.append(Group([piece]))
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
            if event.kind == kind:
                place = bisect_right(starts, event.at)
                (whole if event.given.get("final") is True else parts)[place].append(event.text("text"))
        return [" ".join(texts) if texts else "".join(pieces) for texts, pieces in zip(whole, parts, strict=True)]


def _cut(groups: Sequence[Group], at: float) -> None:
    """End at a position whatever was still waiting to be played."""
    for group in reversed(groups):
        if group.over <= at:
            return
        group.end = at


class _Event:
    """One event of the log, read with errors that say where."""

    def __init__(self, place: int, given: object) -> None:
        if not isinstance(given, Mapping) or not isinstance(given.get("event"), str):
            raise InvalidInput(f"event {place + 1} of the log is none: an object with a text at `event` was expected")
        self.place, self.given = place, given
        self.kind: str = given["event"]
        self.at = self.seconds("t")

    def seconds(self, key: str) -> float:
        value = self.given.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LONGEST_S:
            raise self._misfit(key, "seconds")
        return float(value)

    def whole(self, key: str) -> int:
        value = self.given.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LONGEST_S:
            raise self._misfit(key, "a whole number")
        return value

    def text(self, key: str) -> str:
        value = self.given.get(key)
        if not isinstance(value, str):
            raise self._misfit(key, "a text")
        return value

    def _misfit(self, key: str, expected: str) -> InvalidInput:
        value = self.given.get(key)
        found = "nothing" if value is None else quote(value) if isinstance(value, str) else f"a {type(value).__name__}"
        found = f"{value}" if isinstance(value, float) else found
        return InvalidInput(
            f"event {self.place + 1} of the log ({quote(self.kind, 30)}) has {found} at `{key}`: expected {expected}"
        )
