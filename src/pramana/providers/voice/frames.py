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
from pramana.model import count
from pramana.providers.failures import Refusal
from pramana.providers.voice.vocabulary import ErrorClass, Event, Format, Message

LONGEST_NAME = 200
_decode = msgspec.json.Decoder().decode
_URL_SAFE = str.maketrans("-_", "+/")
_WORDS: tuple[tuple[ErrorClass, re.Pattern[str]], ...] = (
    ("auth", re.compile(r"(?i)api[ _]keys?\b|unauthori[sz]ed|unauthenticated|authenticat|permission|credential")),
    ("rate_limit", re.compile(r"(?i)rate[ _]limit|resource[ _]exhausted|exhausted|quota|too many|concurrent")),
    ("timeout", re.compile(r"(?i)maximum duration|session_expired|deadline|timed? ?out|inactiv")),
    ("unsupported_format", re.compile(r"(?i)sample[ _]rate|audio[ _.]?format|mime ?type|encoding")),
)
_CODES: dict[int, ErrorClass] = {
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

    def hello(self) -> list[Message]:
        """Return nothing: the server speaks first."""
        return []

    def closed(self, code: int, reason: str) -> Event:
        """Return what the end of the connection means."""
        return closing(code, reason)

    def interrupted(self, played_s: float) -> list[Message]:  # noqa: ARG002 - the server keeps the time itself
        """Return nothing: the caller's sound says it."""
        return []

    def bye(self) -> list[Message]:
        """Return nothing: closing the connection ends the session."""
        return []


def parse(vendor: str, message: Message) -> dict[str, Any]:
    """Return the object that a frame holds, text or binary."""
    try:
        found = lenient_json(message)
    except (ValueError, RecursionError):
        raise misfit(vendor, f"of {len(message)} {_UNITS[type(message)]} is not JSON") from None
    if not isinstance(found, dict):
        raise misfit(vendor, f"is a JSON {type(found).__name__}, where an object was expected")
    return found


def lenient_json(message: Message) -> Any:
    """Return the data of a message; half of a surrogate pair, NaN and numbers beyond all measure are JSON to some."""
    try:
        return _decode(message)
    except (ValueError, RecursionError):
        return json.loads(message if isinstance(message, str) else message.decode(), parse_constant=lambda _: None)


def misfit(vendor: str, what: str) -> BrokenReply:
    """Return the error for a message that is not what the wire format promises."""
    return BrokenReply(f"a message of {vendor} {what}")


def named(name: object) -> str:
    """Return the name of an event as it may be logged; whole, so that a key in it is known again.

    >>> named("session.created"), named("a" * 1000), named(7)
    ('session.created', 'a name of 1000 characters', 'no name')
    """
    if not isinstance(name, str):
        return "no name"
    return name if len(name) <= LONGEST_NAME else f"a name of {len(name)} characters"


def unknown(name: object, **detail: Any) -> Event:
    """Return what is said of an event that means nothing to a call."""
    return Event("unknown", detail={"event": named(name), **detail})


def text_of(given: object) -> str:
    """Return what must be text; a `TypeError` where it is none."""
    if not isinstance(given, str):
        raise TypeError(given)
    return given


def usage_event(**counted: object) -> Event:
    """Return the event that tells what a turn took; a count that is none is left out."""
    known = {name: tokens for name, given in counted.items() if (tokens := count(given)) is not None}
    return Event("usage", detail=known)


def sound(data: object, form: Format) -> bytes:
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


def error_class(said: str, otherwise: ErrorClass = "provider") -> ErrorClass:
    """Return what kind of error the vendor's words tell of.

    >>> error_class("API key not valid."), error_class("Your credit balance is too low"), error_class("Oops")
    ('auth', 'quota', 'provider')
    """
    return _told(said) or otherwise


def closing(code: int, reason: str) -> Event:
    """Return what the end of a connection means; an orderly one is no error, unless its words say so.

    >>> closing(1000, "").error, closing(1011, "Internal error encountered.").error, closing(1006, "").error
    (None, 'provider', 'network')
    """
    text = f"{reason} ({code})" if reason else str(code)
    otherwise = None if code in (1000, 1005) else _CODES.get(code, "provider")
    return Event("closed", text, error=_told(reason) or otherwise, detail={"code": code})


def _told(said: str) -> ErrorClass | None:
    said = said[:2000]
    if Refusal.of(said).unpaid:
        return "quota"
    return next((kind for kind, words in _WORDS if words.search(said)), None)


def socket_url(base_url: str, path: str, **query: str) -> str:
    """Return the address of a WebSocket below a base URL, whose own query is kept.

    >>> socket_url("https://api.example.com/v1/", "/realtime", model="a b")
    'wss://api.example.com/v1/realtime?model=a+b'
    """
    base, _, own = base_url.partition("?")
    url = URL(base.rstrip("/") + path)
    url = url.with_scheme("wss" if url.scheme == "https" else "ws")
    return str(url.extend_query(own).extend_query(query))


_UNITS = {str: "characters", bytes: "bytes"}
