"""An answer as it is read: events in, understood by their wire format; a reply with times and raw bytes out."""

import json
from dataclasses import dataclass, field
from typing import Any

from pramana import clock
from pramana.model import Reply, ToolCall, Usage
from pramana.providers.failures import Failures


@dataclass(slots=True)
class _CallPieces:
    """A tool call as far as it was read."""

    id: str
    name: str
    arguments: str
    default: str


@dataclass(slots=True)
class _Calls:
    """The tool calls of an answer, in their order, and by their places: where the next piece of one goes."""

    all: list[_CallPieces] = field(default_factory=list)
    at_place: dict[object, _CallPieces] = field(default_factory=dict)


class Reading:
    """One answer as it is read. Each wire format adds what an event of it means; its `take` is called for every one."""

    __slots__ = ("_beside", "_calls", "_parts", "_raw", "_start", "at", "failures", "first", "whole")

    def __init__(self, failures: Failures) -> None:
        self.failures = failures
        self._start = clock.monotonic()
        self._parts: list[str] = []
        self._beside: dict[str, list[str]] = {}
        self._raw: list[bytes] = []
        self._calls: _Calls | None = None
        self.at = 0.0
        """`clock.monotonic()` when the bytes of the event at hand arrived; 0 until one has."""
        self.first: float | None = None
        self.whole = False
        """The server answered with plain JSON: the one event is all of it."""

    def take(self, event: str | None, data: Any) -> None:
        """Understand one event: its name, and its data parsed."""
        raise NotImplementedError

    def say(self, text: str) -> None:
        """Add to the text of the reply."""
        if self.first is None:
            self.first = self.at
        self._parts.append(text)

    def aside(self, said: Any, where: str = "") -> None:
        """Note what comes in pieces and is no text of the reply, such as thoughts: `raw` has it, and it may hold a key.

        What stands at one place in each of several pieces belongs together.
        """
        if not self.failures.secrets.long:
            return
        if isinstance(said, str):
            self._beside.setdefault(where, []).append(said)
        elif isinstance(said, dict):
            for name, value in said.items():
                self.aside(value, f"{where}.{name}")
        elif isinstance(said, list):
            for place, value in enumerate(said):
                self.aside(value, f"{where}.{place}")

    def call_tool(self, place: object, call_id: Any, name: Any, arguments: Any, default: str = "") -> None:
        """Note a tool call, or the next piece of one: pieces at one place are one call, unless another id is given.

        `default` stands for arguments of which no piece comes.
        """
        call_id, name = (each if isinstance(each, str) else "" for each in (call_id, name))
        calls = self._calls = self._calls or _Calls()
        call = calls.at_place.get(place)
        if call is None or (call_id and call.id and call_id != call.id):
            call = calls.at_place[place] = _CallPieces("", "", "", default)
            calls.all.append(call)
        call.id = call.id or call_id
        call.name += name
        call.arguments += arguments_text(arguments)

    def is_calling(self, place: object) -> bool:
        """Return whether a tool call was begun at a place."""
        return self._calls is not None and place in self._calls.at_place

    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Return the tool calls until now."""
        found = self._calls.all if self._calls else ()
        return tuple(ToolCall(each.name, each.arguments or each.default, each.id or None) for each in found)

    def text(self) -> str:
        """Return what was said until now."""
        return "".join(self._parts)

    def reply(
        self,
        text: str,
        usage: Usage,
        *,
        served_model: Any,
        finish_reason: Any,
        fingerprint: Any = None,
        dropped: tuple[str, ...] = (),
    ) -> Reply:
        """Return the reply, with its times, tool calls and raw response.

        What the server says of it is unknown if no text.
        """
        raw = self._raw
        whole = raw[0] if self.whole and len(raw) == 1 else b"[" + b",".join(raw) + b"]"
        served_model = served_model if isinstance(served_model, str) else None
        finish_reason = finish_reason if isinstance(finish_reason, str) else None
        fingerprint = fingerprint if isinstance(fingerprint, str) else None
        calls = self.tool_calls() if self._calls else ()
        if (secrets := self.failures.secrets).long:
            if secrets.held_in(text) or any(secrets.held_in("".join(parts)) for parts in self._beside.values()):
                raise self.failures.key_in_answer()
            if calls and any(secrets.held_in(f"{each.id} {each}") for each in calls):
                raise self.failures.key_in_answer()
            whole = self.failures.storable(whole)
            if secrets.held_in(f"{served_model} {finish_reason} {fingerprint}"):
                served_model, finish_reason, fingerprint = (
                    each and secrets.blank(each) for each in (served_model, finish_reason, fingerprint)
                )
        first = None if self.whole or self.first is None else self.first - self._start
        total = self.at - self._start
        return Reply(
            text, usage, served_model, fingerprint, finish_reason, first, total, whole, dropped, tool_calls=calls
        )

    def received(self, event: str | None, data: bytes, parsed: Any, at: float) -> None:
        """Take an event, and keep its bytes."""
        self.at = at
        self._raw.append(data)
        self.take(event, parsed)


def arguments_text(given: Any) -> str:
    """Return the arguments of a tool call as JSON; what is text already is that of the model.

    >>> arguments_text({"city": "Paris"}), arguments_text('{"city":'), arguments_text(None)
    ('{"city": "Paris"}', '{"city":', '')
    """
    if given is None:
        return ""
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


class Whole(Reading):
    """An answer that is used as one piece of data."""

    data: Any = None

    def take(self, event: str | None, data: Any) -> None:  # noqa: ARG002 - it comes in one piece
        self.data = data
