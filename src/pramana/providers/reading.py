"""An answer as it is read: events in, understood by their wire format; a reply with times and raw bytes out."""

from typing import Any

from pramana import clock
from pramana.model import Reply, Usage
from pramana.providers.failures import Failures


class Reading:
    """One answer as it is read. Each wire format adds what an event of it means; its `take` is called for every one."""

    __slots__ = ("_beside", "_parts", "_raw", "_start", "at", "failures", "first", "whole")

    def __init__(self, failures: Failures) -> None:
        self.failures = failures
        self._start = clock.monotonic()
        self._parts: list[str] = []
        self._beside: dict[str, list[str]] = {}
        self._raw: list[bytes] = []
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
        """Return the reply, with its times and its raw response. What the server says of it is unknown if no text."""
        raw = self._raw
        whole = raw[0] if self.whole and len(raw) == 1 else b"[" + b",".join(raw) + b"]"
        served_model = served_model if isinstance(served_model, str) else None
        finish_reason = finish_reason if isinstance(finish_reason, str) else None
        fingerprint = fingerprint if isinstance(fingerprint, str) else None
        if (secrets := self.failures.secrets).long:
            if secrets.held_in(text) or any(secrets.held_in("".join(parts)) for parts in self._beside.values()):
                raise self.failures.key_in_answer()
            whole = self.failures.storable(whole)
            if secrets.held_in(f"{served_model} {finish_reason} {fingerprint}"):
                served_model, finish_reason, fingerprint = (
                    each and secrets.blank(each) for each in (served_model, finish_reason, fingerprint)
                )
        first = None if self.whole or self.first is None else self.first - self._start
        return Reply(
            text, usage, served_model, fingerprint, finish_reason, first, self.at - self._start, whole, dropped
        )

    def received(self, event: str | None, data: bytes, parsed: Any, at: float) -> None:
        """Take an event, and keep its bytes."""
        self.at = at
        self._raw.append(data)
        self.take(event, parsed)


class Whole(Reading):
    """An answer that is used as one piece of data."""

    data: Any = None

    def take(self, event: str | None, data: Any) -> None:  # noqa: ARG002 - it comes in one piece
        self.data = data
