"""Code that WebSocket wire formats share: a frame comes in, its JSON goes out; a close comes in, an event goes out.

Malformed input raises a `BrokenReply` that names the vendor and never shows the frame, since it may hold a key that is
cut and would not be recognised.
"""

import binascii
import json
import re
from typing import Any

import msgspec
from yarl import URL

from pramana.errors import BrokenReply
from pramana.providers.failures import ErrorBody
from pramana.providers.voice.vocabulary import ErrorClass, Event, Format, Message
from pramana.replies import parse_token_count

MAX_EVENT_NAME_LENGTH = 200
_decode = msgspec.json.Decoder().decode
_URL_SAFE_TO_STANDARD = str.maketrans("-_", "+/")
_ERROR_CLASS_PATTERNS: tuple[tuple[ErrorClass, re.Pattern[str]], ...] = (
    ("auth", re.compile(r"(?i)api[ _]keys?\b|unauthori[sz]ed|unauthenticated|authenticat|permission|credential")),
    ("rate_limit", re.compile(r"(?i)rate[ _]limit|resource[ _]exhausted|exhausted|quota|too many|concurrent")),
    ("timeout", re.compile(r"(?i)maximum duration|session_expired|deadline|timed? ?out|inactiv")),
    ("unsupported_format", re.compile(r"(?i)sample[ _]rate|audio[ _.]?format|mime ?type|encoding")),
)
_ERROR_CLASS_BY_CLOSE_CODE: dict[int, ErrorClass] = {
    1001: "provider",
    1002: "protocol",
    1003: "bad_request",
    1006: "network",
    1007: "bad_request",
    1008: "bad_request",
    1009: "bad_request",
    1010: "protocol",
    1015: "network",
    3000: "auth",
    3003: "auth",
    3008: "timeout",
}


class SessionWire:
    """Defaults that session-based wire formats share."""

    def opening_messages(self) -> list[Message]:
        """Return nothing: the server speaks first."""
        return []

    def read_close(self, code: int, reason: str) -> Event:
        """Translate the close of the connection to an event."""
        return make_close_event(code, reason)

    def interruption_messages(self, played_s: float) -> list[Message]:  # noqa: ARG002 - unused: the server tracks the playback time itself
        """Return nothing: the server detects it in the caller's sound."""
        return []

    def closing_messages(self) -> list[Message]:
        """Return nothing: closing the connection ends the session."""
        return []


def parse_message(vendor: str, message: Message) -> dict[str, Any]:
    """Return the object in a frame, text or binary."""
    try:
        found = parse_lenient_json(message)
    except (ValueError, RecursionError):
        raise make_malformed_error(vendor, f"of {len(message)} {_LENGTH_UNITS[type(message)]} is not JSON") from None
    if not isinstance(found, dict):
        raise make_malformed_error(vendor, f"is a JSON {type(found).__name__}, where an object was expected")
    return found


def parse_lenient_json(message: Message) -> Any:
    """Return the data of a message; some servers send half a surrogate pair, NaN and oversized numbers as JSON."""
    try:
        return _decode(message)
    except (ValueError, RecursionError):
        return json.loads(message if isinstance(message, str) else message.decode(), parse_constant=lambda _: None)


def make_malformed_error(vendor: str, problem: str) -> BrokenReply:
    """Return the error for a message that violates the wire format."""
    return BrokenReply(f"a message of {vendor} {problem}")


def format_event_name(name: object) -> str:
    """Return the name of an event for the log; never truncated, so that a key in it is still recognised.

    >>> format_event_name("session.created"), format_event_name("a" * 1000), format_event_name(7)
    ('session.created', 'a name of 1000 characters', 'no name')
    """
    if not isinstance(name, str):
        return "no name"
    return name if len(name) <= MAX_EVENT_NAME_LENGTH else f"a name of {len(name)} characters"


def make_unknown_event(name: object, **detail: Any) -> Event:
    """Return the event for a message that means nothing to a call."""
    return Event("unknown", detail={"event": format_event_name(name), **detail})


def require_text(value: object) -> str:
    """Return the value if it is text; raise `TypeError` otherwise."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def make_usage_event(**counts: object) -> Event:
    """Return the event with a turn's token usage; a malformed count is left out."""
    known = {name: tokens for name, given in counts.items() if (tokens := parse_token_count(given)) is not None}
    return Event("usage", detail=known)


def decode_sound(data: object, sound_format: Format) -> bytes:
    """Return sound decoded from either base64 alphabet; raise `ValueError` if it is invalid."""
    if not isinstance(data, str):
        raise TypeError(data)
    try:
        found = binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        found = binascii.a2b_base64(data.translate(_URL_SAFE_TO_STANDARD), strict_mode=True)
    if sound_format.codec == "pcm" and len(found) % 2:
        raise ValueError("half a sample")
    return found


def classify_error(message: str, default: ErrorClass = "provider") -> ErrorClass:
    """Return the kind of error that a vendor's message describes.

    >>> classify_error("API key not valid."), classify_error("Your credit balance is too low"), classify_error("Oops")
    ('auth', 'quota', 'provider')
    """
    return _classify_by_words(message) or default


def make_close_event(code: int, reason: str) -> Event:
    """Return the event for a closed connection; an orderly close is no error unless its reason describes one.

    >>> internal = make_close_event(1011, "Internal error encountered.")
    >>> make_close_event(1000, "").error, internal.error, make_close_event(1006, "").error
    (None, 'provider', 'network')
    """
    text = f"{reason} ({code})" if reason else str(code)
    otherwise = None if code in (1000, 1005) else _ERROR_CLASS_BY_CLOSE_CODE.get(code, "provider")
    return Event("closed", text, error=_classify_by_words(reason) or otherwise, detail={"code": code})


def _classify_by_words(message: str) -> ErrorClass | None:
    message = message[:2000]
    if ErrorBody.parse(message).is_out_of_credit:
        return "quota"
    return next((kind for kind, words in _ERROR_CLASS_PATTERNS if words.search(message)), None)


def make_socket_url(base_url: str, path: str, **query: str) -> str:
    """Return the address of a WebSocket below a base URL, whose own query is kept.

    >>> make_socket_url("https://api.example.com/v1/", "/realtime", model="a b")
    'wss://api.example.com/v1/realtime?model=a+b'
    """
    base, _, own = base_url.partition("?")
    url = URL(base.rstrip("/") + path)
    url = url.with_scheme("wss" if url.scheme == "https" else "ws")
    return str(url.extend_query(own).extend_query(query))


_LENGTH_UNITS = {str: "characters", bytes: "bytes"}
