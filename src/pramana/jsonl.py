"""JSON Lines: bytes go in, lines and values come out, and each error has its column.

Lines end at LF or CRLF and nowhere else (U+2028 and U+0085 are text). Values are RFC 8259 with two more rules, for
hashing: no duplicate key in one object, and only finite numbers. The standard library's C parser reads; only a line
that fails is scanned a second time, for positions. This module never holds more than one line.
"""

import errno
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from itertools import count
from os import PathLike
from pathlib import Path as Path_
from typing import Any, BinaryIO

from msgspec import Struct

from pramana.errors import InvalidInput, NotFound, describe_value, quote_text

MAX_LINE_BYTES = 10_000_000
MAX_JSON_DEPTH = 200
"""Deeper nesting is refused by count, not by the interpreter's stack, so that the result is the same everywhere."""

JsonPath = tuple[str | int, ...]


class Line(Struct, frozen=True):
    """One physical line: its number from one, its byte offset in the file, and its bytes without the line end."""

    number: int
    byte_offset: int
    data: bytes
    is_too_long: bool = False
    """Whether the line exceeds the limit; `data` then holds only its beginning."""

    @property
    def is_blank(self) -> bool:
        return not self.data.strip(b" \t\r")


class BadJson(ValueError):
    """Text that is not one valid JSON value; the column counts characters from one."""

    def __init__(self, message: str, column: int = 1, path: JsonPath = (), *, exceeds_our_limits: bool = False) -> None:
        super().__init__(message)
        self.message, self.column, self.path = message, column, path
        self.exceeds_our_limits = exceeds_our_limits
        """Whether the text is valid JSON that exceeds Pramana's limits, so the error is not the author's."""


def open_file(path: str | PathLike[str], replacement_content: bytes | None = None) -> BinaryIO:
    """Open a file to read its lines; raise an error that names the file if it is missing.

    `replacement_content` replaces the file's content; the path is then only a name.
    """
    if replacement_content is not None:
        return BytesIO(replacement_content)
    if not isinstance(path, str | PathLike):
        raise InvalidInput(f"expected the path of a file, found {describe_value(path)}")
    try:
        if Path_(path).exists() and not Path_(path).is_file():
            raise InvalidInput(f"{path} is not a regular file")
        return open(path, "rb")  # noqa: PTH123 - any path-like; the caller closes the file
    except (FileNotFoundError, ValueError):  # a ValueError for a name that no file can have
        raise NotFound(f"{path} does not exist") from None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise NotFound(f"{quote_text(str(path))} does not exist") from None
        raise


def read_lines(file: BinaryIO, limit: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """Yield every line of a binary file, without a byte order mark at its start."""
    offset = 0
    for number in count(1):
        data = file.readline(limit + 2)
        if not data:
            return
        start, offset = offset, offset + len(data)
        if number == 1 and data.startswith(b"\xef\xbb\xbf"):
            data, start = data[3:], 3
        content = data.removesuffix(b"\n").removesuffix(b"\r") if data.endswith(b"\n") else data
        is_too_long = len(content) > limit
        if is_too_long and not data.endswith(b"\n"):  # discard the rest of the line, piece by piece
            while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
                offset += len(rest)
            offset += len(rest)
        yield Line(number, start, content, is_too_long)


def decode_line(line: Line) -> str:
    """Return the text of a line.

    >>> decode_line(Line(1, 0, b"caf\\xe9"))
    Traceback (most recent call last):
    pramana.jsonl.BadJson: not UTF-8: byte 0xe9 is invalid here; save the file as UTF-8
    """
    if line.is_too_long:
        raise BadJson(f"the line is longer than {MAX_LINE_BYTES:,} bytes; split the case or shorten its input")
    try:
        return line.data.decode()
    except UnicodeDecodeError as error:
        column = len(line.data[: error.start].decode()) + 1
        byte = line.data[error.start]
        raise BadJson(f"not UTF-8: byte 0x{byte:02x} is invalid here; save the file as UTF-8", column) from None


class _RefusedValue(ValueError):
    """Raised inside the C parser for a value that RFC 8259 or Pramana refuses; the scanner finds its position."""


def _make_object_with_unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise _RefusedValue
    return result


def _parse_finite_float(text: str) -> float:
    value = float(text)
    if value - value != 0:
        raise _RefusedValue
    return value


def _refuse_constant(_: str) -> Any:
    raise _RefusedValue


_STRICT_DECODER = json.JSONDecoder(
    object_pairs_hook=_make_object_with_unique_keys, parse_float=_parse_finite_float, parse_constant=_refuse_constant
)
_RFC8259_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_RFC8259_FINITE_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_parse_finite_float)


def parse_line(text: str) -> Any:
    """Return the value of one line of JSON, or raise `BadJson` at the exact column.

    >>> parse_line('{"id": "a", "id": "b"}')
    Traceback (most recent call last):
    pramana.jsonl.BadJson: duplicate key "id" in one object; the first is at column 2
    """
    return _parse_with(_STRICT_DECODER, text, "line")


def parse_rfc8259(text: str, *, refuse_infinite: bool = False) -> Any:
    """Return the value of JSON text by RFC 8259 alone: duplicate keys are allowed, NaN is not.

    The grammar has no largest number; with `refuse_infinite`, a number that overflows to infinity is refused.
    """
    return _parse_with(
        _RFC8259_FINITE_DECODER if refuse_infinite else _RFC8259_DECODER,
        text,
        "text",
        refuse_duplicate_keys=False,
        refuse_infinite=refuse_infinite,
    )


def _parse_with(
    decoder: json.JSONDecoder,
    text: str,
    text_kind: str,
    *,
    refuse_duplicate_keys: bool = True,
    refuse_infinite: bool = True,
) -> Any:
    refuse_deep_nesting(text)
    try:
        return decoder.decode(text)
    except json.JSONDecodeError as error:
        raise _explain_decode_error(text, error, text_kind) from None
    except ValueError:  # _RefusedValue, or an integer beyond the interpreter's limit
        raise _find_refused_value(
            text, refuse_duplicate_keys=refuse_duplicate_keys, refuse_infinite=refuse_infinite
        ) from None


_BRACKET_RE = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[{\[]|[}\]]', re.DOTALL)


def refuse_deep_nesting(text: str) -> None:
    """Raise `BadJson` for JSON that is nested too deep; the limit of its own parser differs between Pythons."""
    if text.count("[") + text.count("{") <= MAX_JSON_DEPTH:
        return  # true of nearly every line
    depth = 0
    for found in _BRACKET_RE.finditer(text):
        token = found.group()
        if token in "{[":
            depth += 1
            if depth > MAX_JSON_DEPTH:
                raise BadJson(
                    f"nested more than {MAX_JSON_DEPTH} levels deep", found.start() + 1, exceeds_our_limits=True
                )
        elif token in "}]":
            depth -= 1


def is_nested_deeper(value: Any, max_depth: int) -> bool:
    """Return whether a value is nested deeper than `max_depth` levels, without recursion.

    >>> is_nested_deeper([[]], 1), is_nested_deeper({"a": [1]}, 2)
    (True, False)
    """
    level = [value] if isinstance(value, dict | list | tuple) else []
    for _ in range(max_depth):
        if not level:
            return False
        inner = (each.values() if isinstance(each, dict) else each for each in level)
        level = [each for some in inner for each in some if isinstance(each, dict | list | tuple)]
    return bool(level)


def to_canonical_json(value: Any) -> bytes:
    """Return the canonical JSON of a value: sorted keys, no spaces, ASCII. Pramana's own hashes are computed over it.

    >>> to_canonical_json({"b": 1.0, "a": "é"})
    b'{"a":"\\\\u00e9","b":1.0}'
    """
    return _encode_canonical(value).encode("ascii")


_encode_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode


def _explain_decode_error(text: str, error: json.JSONDecodeError, text_kind: str) -> BadJson:
    hint = "; write each object on one line" if text_kind == "line" else ""
    if error.msg == "Extra data":
        return BadJson(f"not valid JSON: more text after the end of the value{hint}", error.pos + 1)
    if not text[error.pos :].strip():
        return BadJson(f"not valid JSON: the {text_kind} ends too early{hint}", error.pos + 1)
    found = json.dumps(text[error.pos], ensure_ascii=not text[error.pos].isprintable())
    expected = error.msg[:1].lower() + error.msg[1:].removesuffix(" at")
    return BadJson(f"not valid JSON: {expected}, found {found}", error.pos + 1)


# ── The scanner: valid JSON in, the position of every key and value out ──

_TOKEN_RE = re.compile(
    r'[ \t\r\n]*(?:(?P<string>"[^"\\]*+(?:\\.[^"\\]*+)*+")|(?P<punctuation>[{}\[\]:,])|(?P<atom>[^\s{}\[\]:,"]+))',
    re.DOTALL,
)


class JsonToken(Struct, frozen=True):
    """A key or a value of a JSON text, and its column from one."""

    path: JsonPath
    column: int
    is_key: bool
    text: str
    """The text of a key, or an atom as written."""


def iterate_tokens(text: str) -> Iterator[JsonToken]:
    """Yield every key and value of valid JSON in the order of the text, without recursion."""
    stack: list[str | int | None] = []  # one entry per open container: a key, an index, or None before the first key
    expect_key, position = False, 0
    while found := _TOKEN_RE.match(text, position):
        position = found.end()
        token, column = found.group(found.lastgroup or 0), found.start(found.lastgroup or 0) + 1
        if token == ":":
            expect_key = False
        elif token == ",":
            if stack and isinstance(stack[-1], int):
                stack[-1] += 1
            else:
                expect_key = True
        elif token in ("}", "]"):
            if stack:
                stack.pop()
            expect_key = False
        elif expect_key and found.lastgroup == "string":
            stack[-1] = json.loads(token, strict=False)
            yield JsonToken(_stack_to_path(stack), column, is_key=True, text=str(stack[-1]))
        else:
            yield JsonToken(
                _stack_to_path(stack), column, is_key=False, text=token if found.lastgroup == "atom" else ""
            )
            if token in ("{", "["):
                stack.append(None if token == "{" else 0)
                expect_key = token == "{"


def _stack_to_path(stack: list[str | int | None]) -> JsonPath:
    return tuple(part for part in stack if part is not None)


KeyOrValuePath = tuple[JsonPath, bool]
"""A path, and whether its key is wanted rather than its value."""


def find_columns(text: str, wanted: Iterable[KeyOrValuePath]) -> dict[KeyOrValuePath, int]:
    """Find all wanted columns in one pass; for a missing path, return the column of its nearest parent.

    >>> find_columns('{"a": {"b": 1}}', [(("a", "b"), False), (("a", "c"), False)])
    {(('a', 'b'), False): 13, (('a', 'c'), False): 7}
    """
    asked = list(wanted)
    places_wanted = {*asked, *((path[:depth], False) for path, _ in asked for depth in range(len(path)))}
    found: dict[KeyOrValuePath, int] = {}
    for place in iterate_tokens(text):
        at = (place.path, place.is_key)
        if at in places_wanted:
            found.setdefault(at, place.column)
    return {each: _find_own_or_parent_column(found, each) for each in asked}


def _find_own_or_parent_column(columns: Mapping[KeyOrValuePath, int], wanted: KeyOrValuePath) -> int:
    path, _ = wanted
    ancestors = ((path[:depth], False) for depth in range(len(path) - 1, -1, -1))
    return next((columns[each] for each in (wanted, *ancestors) if each in columns), 1)


_JSON_ESCAPE_RE = re.compile(r"\\(?:u(?P<code>[0-9a-fA-F]{4})|.)", re.DOTALL)


def find_lone_surrogate(text: str) -> JsonToken | None:
    """Return the position of an escaped lone surrogate in valid JSON, or None.

    >>> find_lone_surrogate('{"a": "\\\\ud83d\\\\ude00 and \\\\ud800"}')
    JsonToken(path=('a',), column=25, is_key=False, text='')
    """
    high: re.Match[str] | None = None
    for escape in _JSON_ESCAPE_RE.finditer(text):
        code = int(escape["code"] or "0", 16)
        follows = high is not None and high.end() == escape.start()
        if follows and 0xDC00 <= code <= 0xDFFF:
            high = None
            continue
        if high is not None or 0xDC00 <= code <= 0xDFFF:
            return _find_token_at(text, (high or escape).start() + 1)
        high = escape if 0xD800 <= code <= 0xDBFF else None
    return _find_token_at(text, high.start() + 1) if high else None


def _find_token_at(text: str, column: int) -> JsonToken:
    *_, last = (place for place in iterate_tokens(text) if place.column <= column)
    return JsonToken(last.path, column, is_key=last.is_key, text="")


_NUMBER_OR_CONSTANT_RE = re.compile(
    r"(?P<constant>NaN|-?Infinity)|-?(?P<digits>\d+)(?P<rest>(?:\.\d+)?(?:[eE][+-]?\d+)?)"
)


def _find_refused_value(text: str, *, refuse_duplicate_keys: bool, refuse_infinite: bool) -> BadJson:
    """Find the value that the parser refused: a number that is not finite or too long, or a duplicate key.

    The text is valid JSON up to there; anything may follow.
    """
    first: dict[JsonPath, int] = {}
    for place in iterate_tokens(text):
        if place.is_key:
            if refuse_duplicate_keys and place.path in first:
                message = f"duplicate key {quote_text(place.text)} in one object; the first is at column"
                return BadJson(f"{message} {first[place.path]}", place.column, place.path)
            first[place.path] = place.column
        elif number := _NUMBER_OR_CONSTANT_RE.match(place.text):
            if number["constant"]:
                message = f"not valid JSON: {number['constant']} is not a number in JSON"
                return BadJson(message, place.column, place.path)
            if not number["rest"] and len(number["digits"]) > 4300:
                return BadJson("a number of more than 4,300 digits", place.column, place.path, exceeds_our_limits=True)
            if refuse_infinite and number["rest"] and abs(float(number[0])) == float("inf"):
                message = f"{number[0][:40]} is too large for a number"
                return BadJson(message, place.column, place.path, exceeds_our_limits=True)
    return BadJson("not valid JSON")
