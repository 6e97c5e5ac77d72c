"""The schema of a voice agent's description: plain data comes in, structs or a list of problems go out.

`load/agent.py` makes the plain data from YAML and locates each problem in the file; `declared.py` runs the description.
Each field is a key of the file, and `docs/agents.md` lists them. Nothing here reads a file, dials or waits.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec import Struct, field

from pramana.errors import quote_text
from pramana.providers.voice.templates import (
    ABSENT,
    BadTemplate,
    Placeholder,
    TemplateScope,
    find_template_problems,
    parse_path,
    parse_template,
    value_to_text,
)
from pramana.providers.voice.vocabulary import Codec, ErrorClass

MatchConditions = dict[str, Any]
"""Paths within a message, each with the required value, `{one_of: […]}` or `{present: true}`."""
Templates = list[Any]
"""Messages: each an object, or a text to send unchanged."""
RuleEvent = Literal[
    "user_speech_start",
    "user_speech_stop",
    "agent_audio",
    "agent_text",
    "user_text",
    "tool_call",
    "interrupted",
    "usage",
    "error",
    "unknown",
]
"""Event kinds for rules; `ready`, `turn_done` and `closed` come from `handshake`, `turn_end` and `close`."""

MIN_RATE, MAX_RATE = 4000, 192_000
MAX_TURN_END_SILENCE_MS = 60_000
MAX_RULES = 1000


class Announced(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where the agent announces its sound format."""

    match: MatchConditions | None = None
    """The message with the announcement; None: the response to `dial`."""
    format: str | None = None
    """The path of a text such as `pcm_16000`."""
    pattern: str = "{codec}_{rate}"
    """The pattern of that text."""
    codec: str | None = None
    """The path of a codec's name."""
    rate: str | None = None
    """The path of a rate."""


class Uplink(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the caller's sound is sent."""

    send: Any = "binary"
    """`binary`, or a message with `{audio}` for the sound in base64."""
    codec: Codec = "pcm"
    rate: int | str = 16000
    """A number, or a text with a placeholder: `{parameters.rate|16000}`."""
    announced: Announced | None = None


class Rule(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The meaning of one kind of message. The first rule that matches applies."""

    match: MatchConditions | None = None
    binary: bool = False
    """Matches sound sent as a binary message."""
    event: list[RuleEvent] = field(default_factory=list)
    """Empty: the message is known and has no meaning for the call."""
    text: str | None = None
    final: bool | str = False
    """True, false, or the path of a boolean."""
    audio: str | None = None
    """The path of sound in base64."""
    id: str | None = None
    """The path of an increasing number; sound is dropped unless its number is above that of the last interruption."""
    detail: dict[str, str] = field(default_factory=dict)
    """For the log: names, and the paths of their values."""
    error: ErrorClass = "provider"
    reply: Templates = field(default_factory=list)
    """Messages to send in reply; `{message.…}` refers to the received message."""
    when: Literal["now", "played"] = "now"
    """`played`: once all sound received before has been played or dropped."""


class Downlink(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the agent's sound and text are received."""

    rules: list[Rule]
    codec: Codec = "pcm"
    rate: int | str = 16000
    announced: Announced | None = None
    envelope: str | None = None
    """A key that holds the actual message, where present."""


class HandshakeStep(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One step of a handshake: the message to wait for, and the messages to send then."""

    wait: MatchConditions | None = None
    send: Templates = field(default_factory=list)


class DialRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request whose response has the address of the call."""

    path: str
    """The path below the base URL."""
    socket: str
    """The path of the address within the response."""
    method: Literal["GET", "POST"] = "GET"
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] | None = None
    when: Literal["always", "key"] = "always"
    """`key`: only with a key; without one, `url` is called."""


class TurnEnd(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How to detect that the agent has finished its answer."""

    match: MatchConditions | None = None
    silence_ms: int | None = None
    """Time without any sound received or left to play."""


class Description(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A voice agent behind a WebSocket."""

    name: str
    """The vendor's name, for messages."""
    uplink: Uplink
    downlink: Downlink
    turn_end: TurnEnd
    url: str = ""
    base_url: str = ""
    """The value of `{base_url}`, unless the account has another."""
    headers: dict[str, str] = field(default_factory=dict)
    """A header that needs a key is left out if there is none."""
    dial: DialRequest | None = None
    greets: bool | str = False
    """Whether the agent speaks first, or a text with a placeholder: `{parameters.greeting|false}` is true if a
    greeting is set."""
    framing: Literal["json", "pipecat-protobuf"] = "json"
    handshake: list[HandshakeStep] = field(default_factory=list)
    interrupt: Templates = field(default_factory=list)
    """Messages to send when the caller interrupts; `{played_ms}` is how much of the answer was heard."""
    bye: Templates = field(default_factory=list)
    close: dict[str, ErrorClass] = field(default_factory=dict)
    """The meaning of close codes, where it differs from the usual one."""


_ALWAYS_KNOWN_NAMES = frozenset(
    ("model", "base_url", "language", "call_id", "uplink.codec", "uplink.rate", "downlink.codec", "downlink.rate")
)
_SOMETIMES_KNOWN_NAMES = frozenset(("key", "system_prompt", "voice"))
CALL_SCOPE = TemplateScope(_ALWAYS_KNOWN_NAMES, _SOMETIMES_KNOWN_NAMES, {"parameters": False})
"""Names known before a call is open."""
MESSAGE_SCOPE = TemplateScope(_ALWAYS_KNOWN_NAMES | {"sequence"}, _SOMETIMES_KNOWN_NAMES, {"parameters": False})
SOUND_SCOPE = TemplateScope(
    MESSAGE_SCOPE.always_known | {"audio", "frame", "milliseconds"}, _SOMETIMES_KNOWN_NAMES, {"parameters": False}
)
REPLY_SCOPE = TemplateScope(MESSAGE_SCOPE.always_known, _SOMETIMES_KNOWN_NAMES, {"parameters": False, "message": True})
INTERRUPT_SCOPE = TemplateScope(
    MESSAGE_SCOPE.always_known | {"played_ms"}, _SOMETIMES_KNOWN_NAMES, {"parameters": False}
)

_HEADER_NAME_RE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FORBIDDEN_HEADERS = frozenset(
    {
        "connection",
        "content-length",
        "host",
        "sec-websocket-accept",
        "sec-websocket-extensions",
        "sec-websocket-key",
        "sec-websocket-version",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that a description may not set; some agents need `Sec-WebSocket-Protocol`, so it may."""
_SECRET_WORDS = frozenset({"auth", "authorization", "cookie", "credential", "credentials", "jwt", "pwd", "sig"})
_SECRET_SUFFIXES = ("key", "token", "secret", "password", "passwd", "passphrase", "signature")
_KEY_HINT = "write {key} and set WEBSOCKET_API_KEY"
_PLACEHOLDER_MARK = "\0"

DescriptionProblems = Iterator[tuple[str, str]]
"""Pairs of a place (`downlink.rules[2].event`) and a sentence."""


def find_description_problems(description: Description) -> DescriptionProblems:
    """Yield every problem of a description whose keys and types are valid."""
    if not description.url and (description.dial is None or description.dial.when == "key"):
        yield "", "url is missing: the address to call"
    yield from find_template_problems(description.url, "url", CALL_SCOPE, is_whole_text=True)
    yield from _find_secrets_in_address(description.url, "url")
    yield from _find_secrets_in_address(description.base_url.replace("{", "{{").replace("}", "}}"), "base_url")
    if isinstance(description.greets, str):
        yield from find_template_problems(description.greets, "greets", CALL_SCOPE, is_whole_text=True)
        if "{" not in description.greets:
            yield "greets", f"expected true or false, found {quote_text(description.greets)}"
    yield from _check_headers(description.headers, "headers")
    if description.dial:
        yield from _check_dial(description.dial)
    for number, step in enumerate(description.handshake):
        place = f"handshake[{number}]"
        if step.wait is None and not step.send:
            yield place, "the step neither waits for a message nor sends one"
        if step.wait is not None:
            yield from _check_match(step.wait, f"{place}.wait")
        yield from _check_templates(step.send, f"{place}.send", MESSAGE_SCOPE)
    yield from _check_uplink(description.uplink, has_dial=description.dial is not None)
    yield from _check_downlink(description.downlink, has_dial=description.dial is not None)
    end = description.turn_end
    if end.match is None and end.silence_ms is None:
        yield "turn_end", "turn_end needs match, silence_ms or both: a message or a silence that ends the agent's turn"
    if end.match is not None:
        yield from _check_match(end.match, "turn_end.match")
    if end.silence_ms is not None and not 100 <= end.silence_ms <= MAX_TURN_END_SILENCE_MS:
        yield "turn_end.silence_ms", f"silence_ms must be 100 to {MAX_TURN_END_SILENCE_MS}, found {end.silence_ms}"
    yield from _check_templates(description.interrupt, "interrupt", INTERRUPT_SCOPE)
    yield from _check_templates(description.bye, "bye", MESSAGE_SCOPE)
    for code in description.close:
        if not (code.isascii() and code.isdecimal() and len(code) == 4 and 1000 <= int(code) <= 4999):
            yield f"close.{code}", f"{quote_text(code)} is not a WebSocket close code; they are 1000 to 4999"


def _check_dial(dial: DialRequest) -> DescriptionProblems:
    if not dial.path.startswith("/"):
        yield "dial.path", f"the path must begin with /, found {quote_text(dial.path)}; the base URL goes before it"
    yield from find_template_problems(dial.path, "dial.path", CALL_SCOPE, is_whole_text=True)
    yield from _find_secrets_in_address(dial.path, "dial.path")
    yield from _check_headers(dial.headers, "dial.headers")
    if dial.body is not None and dial.method == "GET":
        yield "dial.body", "a GET has no body; write method: POST"
    yield from find_template_problems(dial.body or {}, "dial.body", CALL_SCOPE)
    yield from _check_path(dial.socket, "dial.socket")


def _check_headers(headers: Mapping[str, str], location: str) -> DescriptionProblems:
    for name, value in headers.items():
        here = f"{location}.{name}"
        yield from find_template_problems(value, here, CALL_SCOPE, may_be_unknown=True)
        if not _HEADER_NAME_RE.fullmatch(name):
            yield here, f"{quote_text(name)} is not a header name; use letters, digits and - only"
        elif name.lower() in _FORBIDDEN_HEADERS:
            yield here, f"{name} is set by Pramana when it connects; remove this header"
        parts = _parse_template_leniently(value)
        plain = "".join(part for part in parts if isinstance(part, str))
        ends = len(parts) == 1 and plain != plain.strip()
        if not (plain.isascii() and plain.isprintable()) or ends:
            yield here, "the value contains a line break, a trailing space or another invalid character"
        if plain.strip() and _is_secret_name(name) and not any(isinstance(part, Placeholder) for part in parts):
            yield here, f"{quote_text(name)} contains a secret, and descriptions are stored; {_KEY_HINT}"


def _find_secrets_in_address(address: str, location: str) -> DescriptionProblems:
    """Yield the problems of an address that contains a literal secret: descriptions are stored and shown."""
    parts = _parse_template_leniently(address)
    written = "".join(part if isinstance(part, str) else _PLACEHOLDER_MARK for part in parts).partition("#")[0]
    bare, _, query = written.partition("?")
    if "@" in bare.partition("://")[2].partition("/")[0]:
        yield location, f"the address contains a user name or a password, and descriptions are stored; {_KEY_HINT}"
    for pair in query.split("&"):
        name, _, value = pair.partition("=")
        if value and _PLACEHOLDER_MARK not in value and _is_secret_name(name):
            yield (
                location,
                f"{quote_text(name)} in the address contains a secret, and descriptions are stored; {_KEY_HINT}",
            )


def _parse_template_leniently(text: str) -> tuple[str | Placeholder, ...]:
    """Return the pieces of a text, empty for an invalid template; a default for `{key}` counts as literal text."""
    try:
        parts = parse_template(text)
    except BadTemplate:
        return ()
    written = [
        value_to_text(part.default)
        if isinstance(part, Placeholder) and part.name == "key" and part.default not in (ABSENT, "", None)
        else part
        for part in parts
    ]
    return tuple(written)


def _is_secret_name(name: str) -> bool:
    """Return whether a name suggests that its value is secret.

    >>> [_is_secret_name(each) for each in ("X-Api-Key", "accessToken", "apikey", "keyterm", "max_tokens", "author")]
    [True, True, True, False, False, False]
    """
    words = re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower())
    return any(word in _SECRET_WORDS or word.endswith(_SECRET_SUFFIXES) for word in words)


def _check_uplink(uplink: Uplink, *, has_dial: bool) -> DescriptionProblems:
    if isinstance(uplink.send, Mapping):
        yield from find_template_problems(uplink.send, "uplink.send", SOUND_SCOPE)
        if "{audio" not in str(uplink.send):
            yield "uplink.send", "the message has no {audio}, so it would send no sound"
    elif uplink.send != "binary":
        yield "uplink.send", "send must be binary, or an object with {audio} in it"
    yield from _check_rate(uplink.rate, "uplink.rate")
    yield from _check_announced(uplink.announced, "uplink.announced", has_dial=has_dial)


def _check_downlink(downlink: Downlink, *, has_dial: bool) -> DescriptionProblems:
    yield from _check_rate(downlink.rate, "downlink.rate")
    yield from _check_announced(downlink.announced, "downlink.announced", has_dial=has_dial)
    if len(downlink.rules) > MAX_RULES:
        yield "downlink.rules", f"there are {len(downlink.rules):,} rules; at most {MAX_RULES:,} are allowed"
        return
    for number, rule in enumerate(downlink.rules):
        yield from _check_rule(rule, f"downlink.rules[{number}]")
    if not any("agent_audio" in rule.event for rule in downlink.rules):
        yield "downlink.rules", "no rule produces agent_audio, so the agent could never be heard"


def _check_rule(rule: Rule, location: str) -> DescriptionProblems:
    if (rule.match is None) == (not rule.binary):
        yield location, "a rule needs either match or binary: true, not both"
    if rule.match is not None:
        yield from _check_match(rule.match, f"{location}.match")
    for name in ("text", "audio", "id"):
        if (path := getattr(rule, name)) is not None:
            yield from _check_path(path, f"{location}.{name}")
    if isinstance(rule.final, str):
        yield from _check_path(rule.final, f"{location}.final")
    for name, path in rule.detail.items():
        yield from _check_path(path, f"{location}.detail.{name}")
    if "agent_audio" in rule.event and rule.audio is None and not rule.binary:
        yield location, "agent_audio needs audio: the path of the sound in base64"
    if rule.audio is not None and "agent_audio" not in rule.event:
        yield f"{location}.audio", "audio is only allowed with event: agent_audio"
    if rule.text is None and {"agent_text", "user_text"} & {*rule.event}:
        yield location, "a rule for words needs text: the path of the words"
    if rule.when == "played" and not rule.reply:
        yield f"{location}.when", "when: played needs a reply, and the rule has none"
    yield from _check_templates(rule.reply, f"{location}.reply", REPLY_SCOPE)


def _check_announced(announced: Announced | None, location: str, *, has_dial: bool) -> DescriptionProblems:
    if announced is None:
        return
    if announced.match is not None:
        yield from _check_match(announced.match, f"{location}.match")
    elif not has_dial:
        yield location, "match is missing: a description without `dial` needs the message that announces the format"
    if (announced.format is None) == (announced.codec is None and announced.rate is None):
        yield location, "write either format (the path of a text such as pcm_16000) or codec and rate, not both"
    for name in ("format", "codec", "rate"):
        if (path := getattr(announced, name)) is not None:
            yield from _check_path(path, f"{location}.{name}")
    yield from find_template_problems(
        announced.pattern, f"{location}.pattern", TemplateScope(frozenset(("codec", "rate")))
    )
    if "{rate}" not in announced.pattern:
        yield f"{location}.pattern", "the pattern has no {rate}"


def _check_rate(rate: int | str, location: str) -> DescriptionProblems:
    if isinstance(rate, str):
        yield from find_template_problems(rate, location, CALL_SCOPE, is_whole_text=True)
        if "{" not in rate:
            yield location, f"rate must be a number of samples per second, found {quote_text(rate)}"
    elif not MIN_RATE <= rate <= MAX_RATE:
        yield location, f"rate must be {MIN_RATE} to {MAX_RATE} samples per second, found {rate}"


def _check_templates(templates: Templates, location: str, scope: TemplateScope) -> DescriptionProblems:
    for number, each in enumerate(templates):
        if not isinstance(each, Mapping | str):
            yield f"{location}[{number}]", "a message must be an object, or a text that is sent unchanged"
        else:
            yield from find_template_problems(each, f"{location}[{number}]", scope)


def _check_match(match: MatchConditions, location: str) -> DescriptionProblems:
    if not match:
        yield location, "match is empty, so every message would match"
    for path, value in match.items():
        here = f"{location}.{path}"
        yield from _check_path(path, here)
        if isinstance(value, list) or (isinstance(value, Mapping) and not _is_match_condition(value)):
            yield here, "expected a value, {one_of: [a, b]} or {present: true}"


def _is_match_condition(value: Mapping[str, Any]) -> bool:
    if len(value) != 1:
        return False
    some = value.get("one_of")
    plain = isinstance(some, list) and bool(some) and not any(isinstance(each, dict | list) for each in some)
    return plain or isinstance(value.get("present"), bool)


def _check_path(path: str, location: str) -> DescriptionProblems:
    try:
        parse_path(path)
    except BadTemplate as bad:
        yield location, str(bad)
