"""Reads a response: events go in, interpreted by their wire format; a reply with times and raw bytes comes out."""

import json
from dataclasses import dataclass, field
from typing import Any

from pramana import clock
from pramana.model import Reply, ToolCall, Usage
from pramana.providers.failures import AccountErrors


@dataclass(slots=True)
class _PartialToolCall:
    """A tool call, as far as it was read."""

    id: str
    name: str
    arguments: str
    default_arguments: str


@dataclass(slots=True)
class _ToolCalls:
    """The tool calls of a response: in order, and by place, which tells where the next piece belongs."""

    in_order: list[_PartialToolCall] = field(default_factory=list)
    by_position: dict[object, _PartialToolCall] = field(default_factory=dict)


class ReplyReader:
    """Reads one response. Each wire format implements `handle_event`, which is called for each event."""

    __slots__ = ("_calls", "_parts", "_raw", "_side_content", "_start", "at", "failures", "first", "is_whole")

    def __init__(self, failures: AccountErrors) -> None:
        self.failures = failures
        self._start = clock.monotonic()
        self._parts: list[str] = []
        self._side_content: dict[str, list[str]] = {}
        self._raw: list[bytes] = []
        self._calls: _ToolCalls | None = None
        self.at = 0.0
        """`clock.monotonic()` when the bytes of the current event arrived; 0 before the first."""
        self.first: float | None = None
        self.is_whole = False
        """Whether the server sent plain JSON: the one event is the whole response."""

    def handle_event(self, event: str | None, data: Any) -> None:
        """Handle one event: its name and its parsed data."""
        raise NotImplementedError

    def add_text(self, text: str) -> None:
        """Add to the text of the reply."""
        if self.first is None:
            self.first = self.at
        self._parts.append(text)

    def add_side_content(self, content: Any, channel: str = "") -> None:
        """Record streamed content that is not reply text, such as thoughts: it ends up in `raw` and may hold a key.

        Pieces at the same place are joined.
        """
        if not self.failures.secrets.long_secrets:
            return
        if isinstance(content, str):
            self._side_content.setdefault(channel, []).append(content)
        elif isinstance(content, dict):
            for name, value in content.items():
                self.add_side_content(value, f"{channel}.{name}")
        elif isinstance(content, list):
            for place, value in enumerate(content):
                self.add_side_content(value, f"{channel}.{place}")

    def add_tool_call(
        self, position: object, call_id: Any, name: Any, arguments: Any, default_arguments: str = ""
    ) -> None:
        """Record a tool call or its next piece; pieces at one place are one call unless the id changes.

        `default_arguments` is used as the arguments if none arrive.
        """
        call_id, name = (each if isinstance(each, str) else "" for each in (call_id, name))
        calls = self._calls = self._calls or _ToolCalls()
        call = calls.by_position.get(position)
        if call is None or (call_id and call.id and call_id != call.id):
            call = calls.by_position[position] = _PartialToolCall("", "", "", default_arguments)
            calls.in_order.append(call)
        call.id = call.id or call_id
        call.name += name
        call.arguments += format_tool_arguments(arguments)

    def has_tool_call_at(self, position: object) -> bool:
        """Return whether a tool call has begun at a place."""
        return self._calls is not None and position in self._calls.by_position

    def tool_calls(self) -> tuple[ToolCall, ...]:
        """Return the tool calls so far."""
        found = self._calls.in_order if self._calls else ()
        return tuple(ToolCall(each.name, each.arguments or each.default_arguments, each.id or None) for each in found)

    def text(self) -> str:
        """Return the text so far."""
        return "".join(self._parts)

    def make_reply(
        self,
        text: str,
        usage: Usage,
        *,
        served_model: Any,
        finish_reason: Any,
        fingerprint: Any = None,
        dropped_parameters: tuple[str, ...] = (),
    ) -> Reply:
        """Return the reply, with its times, tool calls and raw response.

        A value from the server that is not text counts as unknown.
        """
        raw = self._raw
        whole = raw[0] if self.is_whole and len(raw) == 1 else b"[" + b",".join(raw) + b"]"
        served_model = served_model if isinstance(served_model, str) else None
        finish_reason = finish_reason if isinstance(finish_reason, str) else None
        fingerprint = fingerprint if isinstance(fingerprint, str) else None
        calls = self.tool_calls() if self._calls else ()
        if (secrets := self.failures.secrets).long_secrets:
            if secrets.occur_in(text) or any(secrets.occur_in("".join(parts)) for parts in self._side_content.values()):
                raise self.failures.make_leaked_key_error()
            if calls and any(secrets.occur_in(f"{each.id} {each}") for each in calls):
                raise self.failures.make_leaked_key_error()
            whole = self.failures.redact_for_storage(whole)
            if secrets.occur_in(f"{served_model} {finish_reason} {fingerprint}"):
                served_model, finish_reason, fingerprint = (
                    each and secrets.redact(each) for each in (served_model, finish_reason, fingerprint)
                )
        first = None if self.is_whole or self.first is None else self.first - self._start
        total = self.at - self._start
        return Reply(
            text,
            usage,
            served_model,
            fingerprint,
            finish_reason,
            first,
            total,
            whole,
            dropped_parameters,
            tool_calls=calls,
        )

    def receive(self, event: str | None, data: bytes, parsed: Any, received_at: float) -> None:
        """Handle an event and keep its bytes."""
        self.at = received_at
        self._raw.append(data)
        self.handle_event(event, parsed)


def format_tool_arguments(arguments: Any) -> str:
    """Return the arguments of a tool call as JSON text; text is kept as the model wrote it.

    >>> format_tool_arguments({"city": "Paris"}), format_tool_arguments('{"city":'), format_tool_arguments(None)
    ('{"city": "Paris"}', '{"city":', '')
    """
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


class WholeResponseReader(ReplyReader):
    """Reads a response that is used as one piece of data."""

    data: Any = None

    def handle_event(self, event: str | None, data: Any) -> None:  # noqa: ARG002 - it comes in one piece
        self.data = data
