"""What wire formats over WebSockets share: a frame comes in, its JSON goes out; a close comes in, an event goes out.

What does not fit leaves as a `BrokenReply` that names the vendor and never shows the frame: it might hold a key, cut
where nobody would know it again.
"""

import binascii
import json
import re
from typing import Any

import msgspec
from yarl import URL

from pramana.errors import BrokenReply
from pramana.model import parse_token_count
from pramana.providers.failures import ErrorBody
from pramana.providers.voice.vocabulary import ErrorClass, Event, Format, Message

MAX_NAME_LENGTH = 200
_decode = msgspec.json.Decoder().decode
_URL_SAFE = str.maketrans("-_", "+/")
_ERROR_CLASS_PATTERNS: tuple[tuple[ErrorClass, re.Pattern[str]], ...] = (
    ("auth", re.compile(r"(?i)api[ _]keys?\b|unauthori[sz]ed|unauthenticated|authenticat|permission|credential")),
    ("rate_limit", re.compile(r"(?i)rate[ _]limit|resource[ _]exhausted|exhausted|quota|too many|concurrent")),
    ("timeout", re.compile(r"(?i)maximum duration|session_expired|deadline|timed? ?out|inactiv")),
    ("unsupported_format", re.compile(r"(?i)sample[ _]rate|audio[ _.]?format|mime ?type|encoding")),
)
_ERROR_CLASS_BY_CODE: dict[int, ErrorClass] = {
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
    """What wire formats of sessions have alike: what they do not say otherwise, nobody needs to say."""

    def opening_messages(self) -> list[Message]:
        """Return nothing: the server speaks first."""
        return []

    def read_close(self, code: int, reason: str) -> Event:
        """Return what the end of the connection means."""
        return make_close_event(code, reason)

    def interruption_messages(self, played_s: float) -> list[Message]:  # noqa: ARG002 - the server keeps the time itself
        """Return nothing: the caller's sound says it."""
        return []

    def closing_messages(self) -> list[Message]:
        """Return nothing: closing the connection ends the session."""
        return []


def parse_message(vendor: str, message: Message) -> dict[str, Any]:
    """Return the object that a frame holds, text or binary."""
    try:
        found = parse_lenient_json(message)
    except (ValueError, RecursionError):
        raise make_malformed_error(vendor, f"of {len(message)} {_UNITS[type(message)]} is not JSON") from None
    if not isinstance(found, dict):
        raise make_malformed_error(vendor, f"is a JSON {type(found).__name__}, where an object was expected")
    return found


def parse_lenient_json(message: Message) -> Any:
    """Return the data of a message; half of a surrogate pair, NaN and numbers beyond all measure are JSON to some."""
    try:
        return _decode(message)
    except (ValueError, RecursionError):
        return json.loads(message if isinstance(message, str) else message.decode(), parse_constant=lambda _: None)


def make_malformed_error(vendor: str, what: str) -> BrokenReply:
    """Return the error for a message that is not what the wire format promises."""
    return BrokenReply(f"a message of {vendor} {what}")


def event_name(name: object) -> str:
    """Return the name of an event as it may be logged; whole, so that a key in it is known again.

    >>> event_name("session.created"), event_name("a" * 1000), event_name(7)
    ('session.created', 'a name of 1000 characters', 'no name')
    """
    if not isinstance(name, str):
        return "no name"
    return name if len(name) <= MAX_NAME_LENGTH else f"a name of {len(name)} characters"


def make_unknown_event(name: object, **detail: Any) -> Event:
    """Return what is said of an event that means nothing to a call."""
    return Event("unknown", detail={"event": event_name(name), **detail})


def require_text(value: object) -> str:
    """Return what must be text; a `TypeError` where it is none."""
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def make_usage_event(**counts: object) -> Event:
    """Return the event that tells what a turn took; a count that is none is left out."""
    known = {name: tokens for name, given in counts.items() if (tokens := parse_token_count(given)) is not None}
    return Event("usage", detail=known)


def decode_sound(data: object, form: Format) -> bytes:
    """Return the sound in base64, whichever of its two alphabets; a `ValueError` where it is none."""
    if not isinstance(data, str):
        raise TypeError(data)
    try:
        found = binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        found = binascii.a2b_base64(data.translate(_URL_SAFE), strict_mode=True)
    if form.codec == "pcm" and len(found) % 2:
        raise ValueError("half a sample")
    return found


def classify_error(message: str, default: ErrorClass = "provider") -> ErrorClass:
    """Return what kind of error the vendor's words tell of.

    >>> classify_error("API key not valid."), classify_error("Your credit balance is too low"), classify_error("Oops")
    ('auth', 'quota', 'provider')
    """
    return _classify_words(message) or default


def make_close_event(code: int, reason: str) -> Event:
    """Return what the end of a connection means; an orderly one is no error, unless its words say so.

    >>> internal = make_close_event(1011, "Internal error encountered.")
    >>> make_close_event(1000, "").error, internal.error, make_close_event(1006, "").error
    (None, 'provider', 'network')
    """
    text = f"{reason} ({code})" if reason else str(code)
    otherwise = None if code in (1000, 1005) else _ERROR_CLASS_BY_CODE.get(code, "provider")
    return Event("closed", text, error=_classify_words(reason) or otherwise, detail={"code": code})


def _classify_words(message: str) -> ErrorClass | None:
    message = message[:2000]
    if ErrorBody.parse(message).unpaid:
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


_UNITS = {str: "characters", bytes: "bytes"}
