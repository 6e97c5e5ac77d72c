"""Lines and values of JSONL: where lines end, and what is refused, with its exact column."""

import io
import json
import sys

import pytest

from pramana.jsonl import (
    BadJson,
    Line,
    decode_line,
    find_columns,
    iterate_tokens,
    parse_line,
    parse_rfc8259,
    read_lines,
    to_canonical_json,
)

TRAILING_COMMA = (
    ("illegal trailing comma", 8) if sys.version_info >= (3, 13) else ("expecting property name", 9)
)  # as Python's own parser says it


def read_all(data: bytes, limit: int = 100) -> list[Line]:
    return list(read_lines(io.BytesIO(data), limit))


def parse_refused(text: str) -> tuple[str, int]:
    with pytest.raises(BadJson) as caught:
        parse_line(text)
    return caught.value.message, caught.value.column


def test_lines_end_at_lf_or_crlf_only() -> None:
    data = "a\nb\r\nc\u2028d\u0085e\x0bf\x0cg\rh".encode()
    assert [line.data.decode() for line in read_all(data)] == ["a", "b", "c\u2028d\u0085e\x0bf\x0cg\rh"]


def test_line_numbers_and_offsets_locate_the_line() -> None:
    data = "\ufeffé\n\nzz\r\n".encode()
    found = read_all(data)
    assert [(line.number, line.byte_offset) for line in found] == [(1, 3), (2, 6), (3, 7)]
    assert [data[line.byte_offset :].startswith(line.data) for line in found] == [True, True, True]
    assert [line.is_blank for line in found] == [False, True, False]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_too_long_line_is_reported_and_the_next_is_read(end: bytes) -> None:
    found = read_all(b"x" * 101 + end + b"y", limit=100) if end else read_all(b"y\n" + b"x" * 5000, limit=100)
    assert [line.is_too_long for line in found] == ([True, False] if end else [False, True])
    assert b"y" in [line.data for line in found]
    with pytest.raises(BadJson, match="longer than"):
        decode_line(next(line for line in found if line.is_too_long))


def test_a_line_of_exactly_the_limit_is_accepted() -> None:
    assert [line.is_too_long for line in read_all(b"x" * 100 + b"\r\n" + b"y" * 100)] == [False, False]


def test_offsets_after_a_long_line_are_right() -> None:
    data = b"x" * 3_000_000 + b"\ny\n"
    assert [(line.number, line.byte_offset) for line in read_all(data)] == [(1, 0), (2, 3_000_001)]


def test_invalid_utf8_is_reported_with_byte_and_column() -> None:
    with pytest.raises(BadJson, match="byte 0xff") as caught:
        decode_line(Line(1, 0, "aé".encode() + b"\xff"))
    assert caught.value.column == 3


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ('{"a": 1,}', *TRAILING_COMMA),
        ('{"a" 1}', "expecting ':' delimiter", 6),
        ("{'a': 1}", 'expecting property name enclosed in double quotes, found "\'"', 2),
        ('{"a": 1} {"b": 2}', "more text after the end", 10),
        ('{"a": [1, 2', "line ends too early; write each object on one line", 12),
        ('{"a": "😀", "b": NaN}', "NaN is not a number", 17),
        ('[-Infinity, "NaN"]', "-Infinity is not a number", 2),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', 'duplicate key "b" in one object; the first is at column 8', 24),
        ('[{"a": 1}, {"a": 1, "\\u0061": 2}]', 'duplicate key "a"', 21),
        ('{"a": 1e400}', "1e400 is too large", 7),
        ("[1, " + "7" * 4301 + "]", "more than 4,300 digits", 5),
        ('{"a": 1e999x}', "1e999 is too large", 7),
        ("-Infinity\x00", "-Infinity is not a number", 1),
        ("[" + "9" * 4400 + "x", "more than 4,300 digits", 2),
        ("[-" + "9" * 4300 + ", NaN]", "NaN is not a number", 4305),
        ("[" * 100_000, "nested more than 200 levels deep", 201),
        ('{"a": "\t"}', "invalid control character", 8),
    ],
)
def test_invalid_json_is_refused_at_its_column(text: str, message: str, column: int) -> None:
    found, at = parse_refused(text)
    assert message in found
    assert at == column


def test_rfc8259_allows_a_repeated_key_and_a_bare_scalar_but_no_nan() -> None:
    assert parse_rfc8259('{"a": 1, "a": 2}') == {"a": 2}
    assert parse_rfc8259("-0.5e3") == -500.0
    with pytest.raises(BadJson, match="NaN is not a number"):
        parse_rfc8259('{"a": NaN}')


def test_positions_cover_every_key_and_value_in_order() -> None:
    text = '{"a": [1, {"b": "x"}], "é": {}}'
    assert [(place.path, place.column, place.is_key) for place in iterate_tokens(text)] == [
        ((), 1, False),
        (("a",), 2, True),
        (("a",), 7, False),
        (("a", 0), 8, False),
        (("a", 1), 11, False),
        (("a", 1, "b"), 12, True),
        (("a", 1, "b"), 17, False),
        (("é",), 24, True),
        (("é",), 29, False),
    ]


def test_columns_are_found_in_one_pass_and_a_missing_path_gets_that_of_its_parent() -> None:
    text = '{"a": {"b": [1, 2]}}'
    wanted = [(("a", "b", 1), False), (("a",), True), (("a", "c", "d"), False), (("z",), False)]
    assert list(find_columns(text, wanted).values()) == [17, 2, 7, 1]


def test_nesting_depth_is_limited_explicitly() -> None:
    assert parse_line("[" * 200 + '"[[["' + "]" * 200)
    for text in ("[" * 201 + "]" * 201, '["]"' + ", [" * 200):
        with pytest.raises(BadJson, match="nested more than 200 levels deep") as caught:
            parse_line(text)
        assert caught.value.exceeds_our_limits


def test_canonical_json_equals_that_of_the_standard_library() -> None:
    value = {"z": [1.0, 1e22, -0.0, 10**20, True, None], "é": "\u2028\ud800/"}
    assert to_canonical_json(value).decode() == json.dumps(value, sort_keys=True, separators=(",", ":"))
    with pytest.raises(ValueError, match="Out of range"):
        to_canonical_json(float("nan"))
