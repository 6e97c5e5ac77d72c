"""A call as a description defines it: frames of sound and messages come in, messages and events go out.

Implements `Wire` for any agent that a `Description` covers. Like every wire format it never waits or plays. Its only
clock is the caller's frames, 20 ms each, which time the replies that are due once a sound has been played.
"""

import base64
import binascii
import json
import re
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from pramana.errors import BrokenReply, Rejected, quote_text
from pramana.providers.voice import pipecat
from pramana.providers.voice.description import MAX_RATE, MIN_RATE, Announced, Description, MatchConditions, Rule
from pramana.providers.voice.frames import parse_lenient_json
from pramana.providers.voice.templates import (
    ABSENT,
    DataPath,
    MissingValue,
    Placeholder,
    fill_template,
    find_at_path,
    find_placeholder_names,
    parse_path,
    parse_template,
)
from pramana.providers.voice.vocabulary import ChannelCapabilities, Codec, ErrorClass, Event, Format, Message

MAX_LOGGED_LENGTH = 300
MAX_LOGGED_DEPTH = 8
"""Nesting depth of plain data in a log."""
MAX_LOGGED_ITEMS = 100
MAX_DUE_REPLIES, MAX_DUE_BYTES = 50_000, 4 << 20
"""Limits for replies that wait until a sound has been played, and for the bytes of the messages they reply to: more
than a mark for each 20 ms of all the sound that may wait."""
_ERROR_CLASS_BY_CLOSE_CODE: Mapping[int, ErrorClass | None] = {
    1000: None,
    1001: None,
    1005: None,
    1002: "protocol",
    1003: "unsupported_format",
    1006: "network",
    1007: "bad_request",
    1008: "bad_request",
    1009: "bad_request",
    1013: "rate_limit",
    3000: "auth",
    3003: "auth",
    3008: "timeout",
}
"""Standard close codes; any other code is an error of the provider."""
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


class _MatchCondition(Struct, frozen=True):
    path: DataPath
    values: tuple[Any, ...] | None
    """None: only presence is checked."""
    must_exist: bool = True

    def matches(self, data: Any) -> bool:
        found = find_at_path(data, self.path)
        if self.values is None:
            return (found is not ABSENT) is self.must_exist
        # In Python True equals 1, in JSON it does not.
        return any(found == each and isinstance(found, bool) == isinstance(each, bool) for each in self.values)


class DeclaredWire:
    """Implements `Wire`."""

    def __init__(self, given: Description, values: Mapping[str, Any], answer: Any = None) -> None:
        """Set up the wire: `values` are those of the call, `answer` is the response to the request before it."""
        self._description = given
        silence = given.turn_end.silence_ms
        self.capabilities = ChannelCapabilities(
            greets=bool(fill_template(given.greets, values)),  # any greeting that is set counts, whatever its text
            answer_end_silence_s=None if silence is None else silence / 1000,
            reports_interruptions=any("interrupted" in each.event for each in given.downlink.rules),
            ready_on_connect=not any(step.wait is not None for step in given.handshake),
        )
        self.uplink = parse_stated_format(given.uplink.codec, given.uplink.rate, values)
        self.downlink = parse_stated_format(given.downlink.codec, given.downlink.rate, values)
        for link, announced in (("uplink", given.uplink.announced), ("downlink", given.downlink.announced)):
            if announced and announced.match is None and answer is not None:
                setattr(self, link, apply_announced_format(getattr(self, link), announced, answer))
        self._values = {
            **values,
            "uplink": msgspec.to_builtins(self.uplink),
            "downlink": msgspec.to_builtins(self.downlink),
        }
        self._rules = [
            (each, None if each.match is None else _parse_match_conditions(each.match)) for each in given.downlink.rules
        ]
        self._takes_binary = any(each.binary for each in given.downlink.rules) or given.framing != "json"
        self._turn_end = None if given.turn_end.match is None else _parse_match_conditions(given.turn_end.match)
        self._announcements = [
            (link, announced, _parse_match_conditions(announced.match))
            for link, announced in (("uplink", given.uplink.announced), ("downlink", given.downlink.announced))
            if announced and announced.match is not None
        ]
        self._handshake_steps: deque[tuple[_MatchCondition, ...] | list[Any]] = deque()
        for step in given.handshake:
            if step.wait is not None:
                self._handshake_steps.append(_parse_match_conditions(step.wait))
            self._handshake_steps.append(step.send)
        self._ready = self.capabilities.ready_on_connect
        self._message_name_paths = _find_message_type_paths(given)
        self._numbered_messages = frozenset(
            id(each)
            for each in (given.uplink.send, *_list_templates(given))
            if "sequence" in find_placeholder_names(each)
        )
        self._sequence = self._frames = 0
        self._last_interruption: int | None = None
        self._partial_sample = b""
        """The first part of a sample, until the rest arrives."""
        self._sent_s = self._marked_s = 0.0
        """Times on the clock of the caller's frames: now, and when all sound received so far will have been played.
        Used only to time replies; what is actually heard when, only the call knows."""
        self._due_replies: deque[tuple[float, Any, Any, int]] = deque()
        """For each pending reply: when it is due, its template, the message it replies to, and that message's size."""
        self._due_bytes = self._size = 0
        """Total size of all these messages, and size of the current one."""

    # ── Sending ──

    def opening_messages(self) -> list[Message]:
        """Return the messages to send as soon as the connection is open."""
        return self._next_handshake_messages()

    def sound_messages(self, frame: bytes) -> list[Message]:
        """Return the messages that carry one frame, after the replies that are due by now."""
        due = []
        while self._due_replies and self._due_replies[0][0] <= self._sent_s + 1e-6:
            _, reply, message, size = self._due_replies.popleft()
            self._due_bytes -= size
            due.append(self._make_message(reply, message=message))
        self._frames += 1
        before, self._sent_s = self._sent_s, self._sent_s + len(frame) / self.uplink.bytes_per_second
        template = self._description.uplink.send
        if template == "binary":
            return [*due, self._pack_sound(frame)]
        sound = base64.b64encode(frame).decode()
        return [*due, self._make_message(template, audio=sound, frame=self._frames, milliseconds=round(before * 1000))]

    def interruption_messages(self, played_s: float) -> list[Message]:
        """Return the messages to send when the caller interrupts the agent."""
        return [
            self._make_message(each, played_ms=max(0, round(played_s * 1000))) for each in self._description.interrupt
        ]

    def closing_messages(self) -> list[Message]:
        """Return the messages to send before hanging up."""
        return [self._make_message(each) for each in self._description.bye]

    # ── Receiving ──

    def read_events(self, message: Message) -> list[Event]:
        """Translate a message to events."""
        self._size = len(message)
        data, sound = self._unpack_message(message)
        envelope = self._description.downlink.envelope
        if envelope and isinstance(data, dict) and isinstance(data.get(envelope), dict):
            data = data[envelope]
        events: list[Event] = []
        known = False
        for link, announced, conditions in self._announcements:
            if _match_all(conditions, data):
                known = True
                if wrong := self._take_announced_format(link, announced, data):
                    return [wrong]
        if self._handshake_steps and isinstance(wait := self._handshake_steps[0], tuple) and _match_all(wait, data):
            known = True
            self._handshake_steps.popleft()
            sent = tuple(self._next_handshake_messages())
            self._ready = not self._handshake_steps
            events.append(
                Event(
                    "ready" if self._ready else "unknown",
                    detail=self._find_message_type_fields(data),
                    messages_to_send=sent,
                )
            )
        for rule, expected in self._rules:
            matches = sound is not None if expected is None else _match_all(expected, data)
            if matches:
                known = True
                events += self._make_events(rule, data, sound)
                break
        if self._turn_end and _match_all(self._turn_end, data):
            known = True
            events.append(Event("turn_done"))
        if not known:
            detail = self._find_message_type_fields(data) if sound is None else {"binary": len(sound)}
            events.append(Event("unknown", detail=detail))
        return events

    def read_close(self, code: int, reason: str) -> Event:
        """Translate the close of the connection to an event."""
        known: ErrorClass | None = self._description.close.get(str(code)) or _ERROR_CLASS_BY_CLOSE_CODE.get(
            code, "provider"
        )
        said = f"closed with {code}{': ' + reason if reason else ''}"
        return Event("closed", _remove_surrogates(said), error=known, detail={"code": code})

    def _make_events(self, rule: Rule, data: Any, sound: bytes | None) -> list[Event]:
        detail = {
            name: value
            for name, path in rule.detail.items()
            if (value := _to_loggable(find_at_path(data, parse_path(path)))) is not ABSENT
        }
        number = None if rule.id is None else _require_number(find_at_path(data, parse_path(rule.id)), rule.id)
        events: list[Event] = []
        for kind in rule.event:
            if kind == "agent_audio":
                if number is not None and self._last_interruption is not None and number <= self._last_interruption:
                    events.append(Event("unknown", detail={"dropped": number}))
                elif heard := self._decode_whole_samples(rule, data, sound):
                    events.append(Event(kind, audio=heard, detail=detail))
                continue
            if kind == "interrupted":
                self._last_interruption = number if number is not None else self._last_interruption
                self._partial_sample = b""
                self._marked_s = self._sent_s
            text = (
                "" if rule.text is None else _read_optional_text(find_at_path(data, parse_path(rule.text)), rule.text)
            )
            if kind == "error":
                said = text or _replace_long_text(json.dumps(_to_loggable(data), ensure_ascii=False), MAX_LOGGED_LENGTH)
                events.append(Event(kind, _remove_surrogates(said), error=rule.error, detail=detail))
            else:
                final = (
                    rule.final if isinstance(rule.final, bool) else find_at_path(data, parse_path(rule.final)) is True
                )
                events.append(Event(kind, text, final=final, detail=detail))
        sent = self._make_due_replies(rule, data)
        if sent:
            events.append(
                Event(
                    "unknown",
                    detail={**self._find_message_type_fields(data), **({} if events else detail)},
                    messages_to_send=sent,
                )
            )
        return events

    def _make_due_replies(self, rule: Rule, data: Any) -> tuple[Message, ...]:
        """Return the replies that are due now; schedule the others."""
        owed: list[tuple[Any, Any]] = []
        if "interrupted" in rule.event:  # nothing is left to play, so all replies are due
            owed = [(reply, message) for _, reply, message, _ in self._due_replies]
            self._due_replies.clear()
            self._due_bytes = 0
        for reply in rule.reply:
            try:
                self._encode_text(fill_template(reply, {**self._values, "sequence": 0, "message": data}))
            except MissingValue as missing:
                raise BrokenReply(
                    f"a message of {self._description.name} has no {missing.args[0]} to answer with"
                ) from None
            if rule.when == "played" and self._marked_s > self._sent_s:
                self._schedule_reply(reply, data)
            else:
                owed.append((reply, data))
        return tuple(self._make_message(reply, message=message) for reply, message in owed)

    def _schedule_reply(self, template: Any, data: Any) -> None:
        self._due_bytes += self._size
        if len(self._due_replies) >= MAX_DUE_REPLIES or self._due_bytes > MAX_DUE_BYTES:
            raise BrokenReply(f"{self._description.name} sent too many messages that need a reply")
        self._due_replies.append((self._marked_s, template, data, self._size))

    def _decode_whole_samples(self, rule: Rule, data: Any, sound: bytes | None) -> bytes:
        if rule.audio is not None:
            written = _read_optional_text(find_at_path(data, parse_path(rule.audio)), rule.audio)
            try:
                sound = base64.b64decode(written, validate=True)
            except (binascii.Error, ValueError):
                raise BrokenReply(
                    f"{rule.audio} of {self._description.name} is not valid base64: {len(written):,} characters"
                ) from None
        whole = self._partial_sample + (sound or b"")
        if self.downlink.codec == "pcm":
            cut = len(whole) // 2 * 2
            whole, self._partial_sample = whole[:cut], whole[cut:]
        self._marked_s = max(self._marked_s, self._sent_s) + len(whole) / self.downlink.bytes_per_second
        return whole

    # ── Sound formats ──

    def _take_announced_format(self, direction: str, announced: Announced, data: Any) -> Event | None:
        before: Format = getattr(self, direction)
        try:
            settled = apply_announced_format(before, announced, data)
        except Rejected as rejected:
            return Event("error", str(rejected), error="unsupported_format")
        if self._ready and settled != before:
            return Event("error", self._describe_format_change(direction, before, settled), error="unsupported_format")
        setattr(self, direction, settled)
        return None

    def _describe_format_change(self, direction: str, before: Format, now: Format) -> str:
        named = [
            each
            for each in find_placeholder_names(getattr(self._description, direction).rate)
            if each.startswith("parameters.")
        ]
        what = (
            f"set the parameter {named[0].partition('.')[2]} to"
            if named
            else f"in the description, set {direction}.rate to"
        )
        was = f"{before.codec} of {before.rate} Hz was agreed"
        return f"the sound of {self._description.name} is {now.codec} of {now.rate} Hz, but {was}; {what} {now.rate}"

    # ── Message encoding ──

    def _next_handshake_messages(self) -> list[Message]:
        sent: list[Message] = []
        while self._handshake_steps and isinstance(self._handshake_steps[0], list):
            sent += [self._make_message(each) for each in self._handshake_steps.popleft()]
        return sent

    def _make_message(self, template: Any, **extra_values: Any) -> Message:
        if id(template) in self._numbered_messages:
            self._sequence += 1
        text = self._encode_text(fill_template(template, {**self._values, "sequence": self._sequence, **extra_values}))
        return (
            pipecat.encode_frame("message", {"data": text}) if self._description.framing == "pipecat-protobuf" else text
        )

    def _encode_text(self, filled_template: Any) -> str:
        try:
            return _remove_surrogates(filled_template) if isinstance(filled_template, str) else _encode(filled_template)
        except (TypeError, ValueError, RecursionError) as error:
            raise Rejected(f"a message to {self._description.name} cannot be written as JSON: {error}") from None

    def _pack_sound(self, frame: bytes) -> bytes:
        if self._description.framing != "pipecat-protobuf":
            return frame
        return pipecat.encode_frame("audio", {"audio": frame, "sample_rate": self.uplink.rate, "num_channels": 1})

    def _unpack_message(self, message: Message) -> tuple[Any, bytes | None]:
        """Return the plain data and the sound of a message; either may be None."""
        if isinstance(message, str):
            return self._parse_json(message), None
        if not self._takes_binary:
            return self._parse_json(message.decode("utf-8", "replace")), None
        if self._description.framing != "pipecat-protobuf":
            return None, message
        try:
            kind, fields = pipecat.decode_frame(message)
        except ValueError as error:
            raise BrokenReply(f"a message of {self._description.name} is not a Pipecat frame: {error}") from None
        if kind == "message":
            return self._parse_json(str(fields.get("data", ""))), None
        if kind != "audio":
            return {kind: fields}, None
        if fields.get("num_channels", 1) != 1:
            raise BrokenReply(
                f"the sound of {self._description.name} has {fields['num_channels']!r} channels, expected one"
            )
        sound = fields.pop("audio", b"")
        return {kind: fields}, sound if isinstance(sound, bytes) else b""

    def _parse_json(self, text: str) -> Any:
        try:
            return parse_lenient_json(text)
        except (ValueError, RecursionError):
            raise BrokenReply(
                f"a message of {self._description.name} is not JSON: {_replace_long_text(text, MAX_LOGGED_LENGTH)}"
            ) from None

    def _find_message_type_fields(self, data: Any) -> dict[str, Any]:
        """Return how a message names itself, at the paths known from the description."""
        named = {
            text: _replace_long_text(found, MAX_LOGGED_LENGTH)
            for text, path in self._message_name_paths
            if isinstance(found := find_at_path(data, path), str)
        }
        if named or not isinstance(data, dict):
            return named
        return {"keys": [_replace_long_text(str(key), 40) for key in list(data)[:10]]}


def _replace_long_text(text: str, max_length: int) -> str:
    """Return a text, or its length if too long: a key in a truncated text would no longer be recognised."""
    return _remove_surrogates(text) if len(text) <= max_length else f"({len(text):,} characters)"


def _parse_match_conditions(match: MatchConditions) -> tuple[_MatchCondition, ...]:
    made = []
    for text, value in match.items():
        path = parse_path(text)
        if not isinstance(value, Mapping):
            made.append(_MatchCondition(path, (value,)))
        elif "one_of" in value:
            made.append(_MatchCondition(path, tuple(value["one_of"])))
        else:
            made.append(_MatchCondition(path, None, value["present"]))
    return tuple(made)


def _match_all(conditions: Sequence[_MatchCondition], data: Any) -> bool:
    return data is not None and all(each.matches(data) for each in conditions)


def _find_message_type_paths(description: Description) -> list[tuple[str, DataPath]]:
    """Return the path by which most rules distinguish messages."""
    matches = [rule.match or {} for rule in description.downlink.rules]
    counted = Counter(path for match in matches for path, value in match.items() if isinstance(value, str))
    return [(path, parse_path(path)) for path, _ in counted.most_common(1)]


def _list_templates(description: Description) -> list[Any]:
    return [
        *(each for step in description.handshake for each in step.send),
        *(each for rule in description.downlink.rules for each in rule.reply),
        *description.interrupt,
        *description.bye,
    ]


def _read_optional_text(value: Any, path: str) -> str:
    if value is ABSENT or value is None:
        return ""
    if not isinstance(value, str):
        raise BrokenReply(f"{path} is a {type(value).__name__}, expected text")
    return _remove_surrogates(value)


def _require_number(value: Any, path: str) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,18}", value):
        return int(value)
    if type(value) is not int:
        raise BrokenReply(f"{path} is a {type(value).__name__}, expected a number")
    return value


def _to_loggable(value: Any, depth: int = 0) -> Any:
    """Return data in a form that can be logged: limited in depth and size, every text and number valid JSON."""
    if isinstance(value, str):
        return _remove_surrogates(value)
    if isinstance(value, bytes):
        return len(value)
    if type(value) is int and not -(2**63) <= value < 2**63:
        return str(value)
    if isinstance(value, list | dict) and depth > MAX_LOGGED_DEPTH:
        return "…"
    if isinstance(value, list):
        return [_to_loggable(each, depth + 1) for each in value[:MAX_LOGGED_ITEMS]]
    if isinstance(value, dict):
        return {
            _remove_surrogates(str(name)): _to_loggable(each, depth + 1)
            for name, each in list(value.items())[:MAX_LOGGED_ITEMS]
        }
    return value


def _remove_surrogates(text: str) -> str:
    """Return text without unpaired surrogates, which no log can hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


CODEC_BY_NAME: Mapping[str, Codec] = {
    **dict.fromkeys(("pcm", "pcm16", "pcm_s16le", "s16le", "linear16", "l16", "audio/pcm", "audio/l16"), "pcm"),
    **dict.fromkeys(("mulaw", "ulaw", "pcmu", "g711_ulaw", "audio/pcmu", "audio/x-mulaw", "audio/mulaw"), "mulaw"),
    **dict.fromkeys(("alaw", "pcma", "g711_alaw", "audio/pcma", "audio/x-alaw", "audio/alaw"), "alaw"),
}
_FORMAT_PATTERNS = {"codec": r"(?P<codec>[\w./-]{1,40})", "rate": r"(?P<rate>[0-9]{1,7})"}


def parse_stated_format(codec: Codec, rate: int | str, values: Mapping[str, Any]) -> Format:
    """Return the format stated in a description; the rate may come from a parameter."""
    return Format(codec, rate if isinstance(rate, int) else _parse_rate(fill_template(rate, values)))


def apply_announced_format(current: Format, announced: Announced, data: Any) -> Format:
    """Return the format that the agent announces; anything it leaves out stays unchanged."""
    codec, rate = current.codec, current.rate
    if announced.format is not None:
        found = _match_format_pattern(_find_required(data, announced.format), announced.pattern)
        codec = _parse_codec(found["codec"]) if "codec" in found else codec
        rate = _parse_rate(found["rate"])
    if announced.codec is not None:
        codec = _parse_codec(_find_required(data, announced.codec))
    if announced.rate is not None:
        rate = _parse_rate(_find_required(data, announced.rate))
    return Format(codec, rate)


def _match_format_pattern(announced_text: Any, pattern: str) -> dict[str, str]:
    expected = "".join(
        _FORMAT_PATTERNS[part.name] if isinstance(part, Placeholder) else re.escape(part)
        for part in parse_template(pattern)
    )
    found = re.fullmatch(expected, announced_text) if isinstance(announced_text, str) else None
    if found is None:
        raise Rejected(
            f"the announced sound format is {quote_text(str(announced_text))}; expected a format such as {pattern}"
        )
    return found.groupdict()


def _parse_codec(codec_name: Any) -> Codec:
    if isinstance(codec_name, str) and (known := CODEC_BY_NAME.get(codec_name.lower())):
        return known
    raise Rejected(f"the announced codec is {quote_text(str(codec_name))}; supported are pcm, mulaw and alaw")


def _parse_rate(rate_value: Any) -> int:
    rate = int(rate_value) if isinstance(rate_value, str) and re.fullmatch(r"[0-9]{1,7}", rate_value) else rate_value
    if type(rate) is not int or not MIN_RATE <= rate <= MAX_RATE:
        raise Rejected(
            f"the announced sample rate is {quote_text(str(rate_value))}, "
            f"expected {MIN_RATE} to {MAX_RATE} samples a second"
        )
    return rate


def _find_required(data: Any, path: str) -> Any:
    if (found := find_at_path(data, parse_path(path))) is ABSENT:
        raise Rejected(f"{path}, which should announce the sound format, is missing")
    return found
