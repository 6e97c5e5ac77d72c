"""The offline assertions on arbitrary outputs: every script, NUL, lone surrogates, megabytes.

What is proven: a valid assertion never raises and never hangs; evidence is found at its offsets; what two types should
agree or disagree on, they do; and `is_json` agrees with an independent recogniser of RFC 8259, written below.
"""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import pytest
from hypothesis import assume, event, example, given
from hypothesis import strategies as st

from pramana.assertions import evaluate_assertion
from pramana.errors import InvalidInput
from pramana.model import Assertion, Check, Outcome

from ..examples import examples

# Letters whose folded form is longer, shorter in bytes, or shared with another letter.
FOLDS = "aAsSßẞſkKKıİIiﬁﬀŉΐςσΣµμǅéÉ"
letters = st.sampled_from(FOLDS + " \t\n\x00\x85😀") | st.characters()
outputs = st.text(letters, max_size=20) | st.text(max_size=20)
ideals = st.text(letters, min_size=1, max_size=3).filter(str.strip)


@st.composite
def outputs_with_ideals(draw: st.DrawFn) -> tuple[str, str]:
    """Return an output and a text that often occurs in it, in another case."""
    output = draw(outputs)
    if not output or draw(st.booleans()):
        return output, draw(ideals)
    start = draw(st.integers(0, len(output) - 1))
    part = output[start : start + draw(st.integers(1, 4))]
    assume(part.strip())
    return output, draw(st.sampled_from((part, part.upper(), part.lower(), part.casefold(), part.swapcase())))


def find_matches(check: Check) -> list[dict[str, Any]]:
    found = check.evidence.get("matched", [])
    assert isinstance(found, list)
    return found


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Fail instead of hanging."""

    def stop(_signal: int, _frame: FrameType | None) -> NoReturn:
        pytest.fail(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# ── Text ──


@given(outputs_with_ideals(), st.booleans(), st.sampled_from(("contains", "contains_any", "contains_none")))
@examples(600)
@example(drawn=("xßy", "S"), case_sensitive=False, name="contains")
@example(drawn=("İstanbul", "i\u0307S"), case_sensitive=False, name="contains")
def test_evidence_is_found_at_its_offset_and_is_no_longer_than_needed(
    drawn: tuple[str, str], case_sensitive: bool, name: str
) -> None:
    output, ideal = drawn

    def normalise_case(text: str) -> str:
        return text if case_sensitive else text.casefold()

    check = evaluate_assertion(Assertion(name, case_sensitive), output, ideal)
    is_there = normalise_case(ideal) in normalise_case(output)
    assert check.outcome is (Outcome.PASSED if is_there != (name == "contains_none") else Outcome.FAILED)
    assert len(find_matches(check)) == is_there
    for match in find_matches(check):
        start, end = match["start"], match["end"]
        assert 0 <= start < end <= len(output)
        assert match["text"] == output[start:end]
        assert normalise_case(ideal) in normalise_case(output[start:end])
        assert normalise_case(ideal) not in normalise_case(output[start + 1 : end])
        assert normalise_case(ideal) not in normalise_case(output[start : end - 1])
        event("folding changed the length" if len(normalise_case(output)) != len(output) else "same length")


@given(outputs, st.text(" \t\n\x85\u2003", max_size=3), st.lists(ideals, max_size=2))
def test_a_blank_ideal_is_refused_because_every_output_contains_it(output: str, blank: str, others: list[str]) -> None:
    for name in ("exact_match", "contains", "contains_any", "contains_none", "regex", "semantic_similarity"):
        for ideal in (blank, [*others, blank]):
            with pytest.raises(InvalidInput, match=f"{name} needs an ideal"):
                evaluate_assertion(Assertion(name), output, ideal)


@given(outputs, st.lists(ideals, min_size=1, max_size=4), st.booleans())
def test_contains_none_negates_contains_any_and_contains_all_requires_each(
    output: str, wanted: list[str], case_sensitive: bool
) -> None:
    def decide(name: str, ideal: list[str]) -> Outcome:
        return evaluate_assertion(Assertion(name, case_sensitive), output, ideal).outcome

    any_of, none_of = decide("contains_any", wanted), decide("contains_none", wanted)
    assert {any_of, none_of} == {Outcome.PASSED, Outcome.FAILED}
    each = [decide("contains", [ideal]) is Outcome.PASSED for ideal in wanted]
    assert (any_of is Outcome.PASSED) == any(each)
    assert (decide("contains", wanted) is Outcome.PASSED) == all(each)


white = st.text(" \t\r\n\x0b\x85\u2003", max_size=3)


@given(outputs_with_ideals(), white, white, st.booleans())
def test_exact_match_is_symmetric_and_ignores_surrounding_space(
    drawn: tuple[str, str], before: str, after: str, case_sensitive: bool
) -> None:
    def decide(output: str, ideal: str) -> Outcome:
        return evaluate_assertion(Assertion("exact_match", case_sensitive), output, ideal).outcome

    one, other = drawn
    assume(one.strip())
    straight = decide(one, other)
    assert straight is decide(other, one)
    assert straight is decide(before + one + after, other) is decide(one, before + other + after)
    assert decide(one, before + one + after) is Outcome.PASSED
    assert (straight is Outcome.PASSED) == (
        one.strip() == other.strip() if case_sensitive else one.strip().casefold() == other.strip().casefold()
    )


# ── Patterns ──


@given(outputs_with_ideals())
@example(("a\ud800b", "b"))
def test_an_escaped_pattern_matches_where_its_text_is(drawn: tuple[str, str]) -> None:
    output, ideal = drawn
    assume(not re.search("[\ud800-\udfff]", ideal))  # no pattern: a suite with it is refused when it is loaded
    pattern = "".join(f"\\x{{{ord(each):x}}}" for each in ideal)
    check = evaluate_assertion(Assertion("regex"), output, pattern)
    assert (check.outcome is Outcome.PASSED) == (ideal in output)
    for match in find_matches(check):
        assert match["start"] == output.find(ideal)
        assert match["text"] == output[match["start"] : match["end"]] == ideal


# ── JSON: an independent recogniser of RFC 8259 ──

NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*"')
SPACE = re.compile(r"[ \t\n\r]*")


def is_rfc8259(text: str) -> bool:
    end = find_value_end(text, skip_space(text, 0))
    return end is not None and skip_space(text, end) == len(text)


def skip_space(text: str, at: int) -> int:
    space = SPACE.match(text, at)
    return space.end() if space else at


def find_value_end(text: str, at: int) -> int | None:
    """Return where the value that starts here ends, or None when none does."""
    for word in ("true", "false", "null"):
        if text.startswith(word, at):
            return at + len(word)
    for pattern in (STRING, NUMBER):
        if found := pattern.match(text, at):
            return found.end()
    opening = text[at : at + 1]
    if opening not in ("[", "{"):
        return None
    closing = "]" if opening == "[" else "}"
    at = skip_space(text, at + 1)
    if text[at : at + 1] == closing:
        return at + 1
    while True:
        if opening == "{":
            key = STRING.match(text, at)
            at = skip_space(text, key.end()) if key else len(text)
            if text[at : at + 1] != ":":
                return None
            at = skip_space(text, at + 1)
        end = find_value_end(text, at)
        if end is None:
            return None
        at = skip_space(text, end)
        if text[at : at + 1] == closing:
            return at + 1
        if text[at : at + 1] != ",":
            return None
        at = skip_space(text, at + 1)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
SNIPPETS = (
    *("", ",", ":", "[", "]", "{", "}", '"', "\\", "'", "0", "01", "-", "+1", ".5", "1.", "1e5", "1E+", "1e999", "NaN"),
    *(
        "Infinity",
        "-Infinity",
        "true",
        "True",
        "nul",
        "null",
        "\\u00e9",
        "\\u12",
        "\\uD800",
        "\\x41",
        "\\'",
        "\x00",
        "\x1f",
    ),
    *(
        "\t",
        "\n",
        "\r",
        "\x0b",
        "\x0c",
        "\xa0",
        "\u2028",
        "\ufeff",
        "// c",
        "/* c */",
        "#",
        "٣",
        "1_0",
        "0x1",
        "\ud800",
        "é",
    ),
)


@st.composite
def json_texts(draw: st.DrawFn) -> str:
    text = json.dumps(
        draw(json_values), ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from((None, 0, 1, "\t")))
    )
    for _ in range(draw(st.integers(0, 3))):
        at, size = draw(st.integers(0, len(text))), draw(st.integers(0, 2))
        text = text[:at] + draw(st.sampled_from(SNIPPETS)) + text[at + size :]
    return text


@given(json_texts() | st.lists(st.sampled_from(SNIPPETS), max_size=6).map("".join))
@examples(2_000)
@example("1e999x")
@example("-Infinity\x00")
@example('{"a": 1, "a": 2}')
def test_is_json_agrees_with_an_independent_recogniser(text: str) -> None:
    expected = is_rfc8259(text.strip())
    event("JSON" if expected else "not JSON")
    check = evaluate_assertion({"type": "is_json"}, text)
    assert check.outcome is (Outcome.PASSED if expected else Outcome.FAILED), check
    if not expected and text.strip():
        line, column = check.evidence["line"], check.evidence["column"]
        lines = text.strip().split("\n")
        assert isinstance(line, int)
        assert isinstance(column, int)
        assert 1 <= line <= len(lines)
        assert 1 <= column <= len(lines[line - 1]) + 1


@given(json_texts(), st.sampled_from(("```", "~~~", "````")), st.sampled_from(("", "json", " json", "JSON5", "c++")))
def test_a_code_fence_around_json_is_ignored(text: str, mark: str, tag: str) -> None:
    assume(mark[:3] not in text)
    expected = is_rfc8259(text.strip())
    fenced = f"\n {mark}{tag}\n{text}\n{mark} \n"
    check = evaluate_assertion({"type": "is_json"}, fenced)
    assert check.outcome is (Outcome.PASSED if expected else Outcome.FAILED), (fenced, check)


@given(json_texts(), st.sampled_from(("```", "~~~")), st.sampled_from(("", "json ", "JSON\t")))
def test_a_single_line_code_fence_around_json_is_ignored(text: str, mark: str, tag: str) -> None:
    assume(mark not in text and text.strip())
    assume(not text.strip()[0].isalpha())  # a bare word after the mark is the fence's tag, not the text
    expected = is_rfc8259(text.strip())
    check = evaluate_assertion({"type": "is_json"}, f"{mark}{tag}{text.strip()}{mark}")
    assert check.outcome is (Outcome.PASSED if expected else Outcome.FAILED), check


def test_a_too_large_number_before_invalid_json_is_a_failure() -> None:
    check = evaluate_assertion({"type": "is_json"}, f"[-{'1' * 4300}, NaN]")
    assert check.outcome is Outcome.FAILED


@pytest.mark.parametrize("schema", [{"enum": [None]}, {"const": None}, {"type": "string"}, {"not": {"type": "number"}}])
def test_a_number_too_large_for_a_float_is_not_read_as_null(schema: dict[str, Any]) -> None:
    check = evaluate_assertion({"type": "json_schema", "schema": schema}, "1e999")
    assert check.outcome in (Outcome.FAILED, Outcome.ERRORED)
    assert "$: null" not in check.reason


# ── Nothing raises, nothing hangs ──

SCHEMAS: tuple[Any, ...] = (
    *(
        {},
        True,
        False,
        {"type": "object"},
        {"type": "integer"},
        {"items": {"$ref": "#"}},
        {"$ref": "#"},
        {"const": 10**400},
    ),
    *({"pattern": "^é+$"}, {"enum": [1, "a", None]}, {"uniqueItems": True}, {"multipleOf": 0.1}, {"required": ["a"]}),
)
PATTERNS = (
    "()",
    "a*",
    "(a*)*b",
    ".",
    "(?s).*x",
    "\\p{L}+",
    "^$",
    "[^a]",
    "\\bé",
    "(?i)ß",
    "\\x00",
    "(?:a|aa)+$",
    "\\pN{3}",
)
valid_assertions = st.one_of(
    st.tuples(
        st.builds(
            Assertion, st.sampled_from(("exact_match", "contains", "contains_any", "contains_none")), st.booleans()
        ),
        ideals | st.lists(ideals, min_size=1, max_size=3),
    ),
    st.tuples(st.builds(Assertion, st.just("regex"), st.booleans()), st.sampled_from(PATTERNS)),
    st.tuples(st.just(Assertion("is_json")), st.none()),
    st.tuples(st.builds(Assertion, st.just("json_schema"), schema=st.sampled_from(SCHEMAS)), st.none()),
    st.tuples(st.just(Assertion("llm_judge", judge_prompt="Is it kind? YES or NO")), st.none()),
    st.tuples(st.just(Assertion("semantic_similarity", threshold=0.8)), ideals),
)


@given(valid_assertions, outputs | json_texts() | json_texts().map(lambda text: f"```json\n{text}\n```"))
@examples(1_000)
def test_a_valid_assertion_never_raises(drawn: tuple[Assertion, str | list[str] | None], output: str) -> None:
    assertion, ideal = drawn
    check = evaluate_assertion(assertion, output, ideal)
    assert check.name == assertion.type
    assert isinstance(check.outcome, Outcome)
    assert check.reason.strip()
    assert "\n" not in check.reason
    json.dumps(check.evidence, allow_nan=False)  # plain data, as the store needs it
    model_backed = assertion.type in ("llm_judge", "semantic_similarity")
    assert (check.outcome is Outcome.UNSCORED) == model_backed


MEGABYTE = 1_000_000
LARGE = {
    "one letter": "a" * MEGABYTE,
    "letters that grow when folded": "ßİ" * MEGABYTE,
    "astral": "😀" * MEGABYTE,
    "NUL": "\x00" * MEGABYTE,
    "halves of pairs": "\ud800" * MEGABYTE,
    "spaces": "x" + " " * MEGABYTE + "x",
    "lines": "\n" * MEGABYTE + "x",
    "open brackets": "[" * MEGABYTE,
    "a long list": "[" + "0," * MEGABYTE + "0]",
    "digits": "9" * MEGABYTE,
    "backticks": "`" * MEGABYTE + "x",
    "a fence, then spaces": "```" + " " * MEGABYTE + "x",
    "a fence, then a long tag": "```" + "a" * MEGABYTE + " x",
    "a fence never closed": "```json\n" + " " * MEGABYTE + "x",
    "a fence, then fences": "```json\n" + "```\n" * (MEGABYTE // 4) + "x",
    "quotes": '"' * MEGABYTE,
    "backslashes": '"' + "\\" * MEGABYTE,
}
ASSERTIONS: tuple[tuple[Assertion, str | None], ...] = (
    (Assertion("exact_match", case_sensitive=False), "x"),
    (Assertion("contains", case_sensitive=False), "ssx"),
    (Assertion("regex", case_sensitive=False), "(a*)*y|x$"),
    (Assertion("is_json"), None),
    (Assertion("json_schema", schema={"items": {"type": "integer"}}), None),
)


@pytest.mark.parametrize("assertion", ASSERTIONS, ids=lambda each: each[0].type)
@pytest.mark.parametrize("output", LARGE.values(), ids=list(LARGE))
def test_megabytes_are_checked_in_seconds(output: str, assertion: tuple[Assertion, str | None]) -> None:
    with time_limit(5):
        check = evaluate_assertion(assertion[0], output, assertion[1])
    assert check.outcome in (Outcome.PASSED, Outcome.FAILED, Outcome.ERRORED)
    assert len(check.reason) < 1_000


@pytest.mark.parametrize("output", ["```" + " " * 400 + "x", "`" * 2_000 + "x", "```a" + " \t" * 200 + "\nx"])
def test_an_unclosed_code_fence_is_checked_quickly(output: str) -> None:
    with time_limit(1):
        check = evaluate_assertion({"type": "is_json"}, output)
    assert check.outcome is Outcome.FAILED
