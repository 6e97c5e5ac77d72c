"""The offline assertions: every rule of the format, decided and explained."""

import socket
import sys
import time
from typing import Any

import pytest

from pramana.assertions import evaluate_assertion
from pramana.errors import InvalidInput, NotFound
from pramana.model import Assertion, Check, Outcome


def check(kind: str, output: str, ideal: str | list[str] | None = None, **fields: Any) -> Check:
    return evaluate_assertion({"type": kind, **fields}, output, ideal)


@pytest.mark.parametrize(
    ("kind", "fields", "output", "ideal", "outcome"),
    [
        ("exact_match", {}, "  Paris\n", " Paris ", "passed"),
        ("exact_match", {}, "paris", "Paris", "failed"),
        ("exact_match", {"case_sensitive": False}, "STRASSE", "straße", "passed"),
        ("exact_match", {}, "Paris.", "Paris", "failed"),
        ("exact_match", {}, "five", ["5", "five"], "passed"),
        ("exact_match", {}, "six", ["5", "five"], "failed"),
        ("contains", {}, "It is Paris.", "Paris", "passed"),
        ("contains", {}, "It is paris.", "Paris", "failed"),
        ("contains", {"case_sensitive": False}, "It is PARIS.", "paris", "passed"),
        ("contains", {}, "red and blue", ["red", "blue"], "passed"),
        ("contains", {}, "red only", ["red", "blue"], "failed"),
        ("contains", {}, "", "x", "failed"),
        ("contains_any", {}, "red only", ["red", "blue"], "passed"),
        ("contains_any", {}, "green", ["red", "blue"], "failed"),
        ("contains_any", {}, "a single string", "single", "passed"),
        ("contains_any", {"case_sensitive": False}, "ΟΔΟΣ", ["οδος"], "passed"),
        ("contains_none", {}, "green", ["red", "blue"], "passed"),
        ("contains_none", {}, "a red one", ["red", "blue"], "failed"),
        ("contains_none", {"case_sensitive": False}, "a RED one", "red", "failed"),
        ("regex", {}, "order 4711 shipped", r"\b\d{4}\b", "passed"),
        ("regex", {}, "order 47 shipped", [r"\b\d{4}\b", "lost"], "failed"),
        ("regex", {"case_sensitive": False}, "SHIPPED", "^shipped$", "passed"),
        ("regex", {}, "SHIPPED", "^shipped$", "failed"),
    ],
)
def test_text_assertions(kind: str, fields: dict[str, Any], output: str, ideal: str | list[str], outcome: str) -> None:
    assert check(kind, output, ideal, **fields).outcome == outcome


@pytest.mark.parametrize(
    ("output", "outcome", "reason"),
    [
        ('{"a": [1, null]}', "passed", "an object"),
        ('  \n[1]\t"', "failed", "more text after the end"),
        ("42", "passed", "a number"),
        ('"text"', "passed", "a string"),
        ("null", "passed", "null"),
        ("True", "failed", "expecting value"),
        ("NaN", "failed", "NaN is not a number"),
        ('{"a": Infinity}', "failed", "Infinity is not a number"),
        ("[1, 2,]", "failed", "column 6" if sys.version_info >= (3, 13) else "column 7"),
        ("{'a': 1}", "failed", "double quotes"),
        ('{"a": 1, "a": 2}', "passed", "an object"),
        ("1e400", "passed", "a number"),
        ("", "failed", "empty"),
        (" \n ", "failed", "empty"),
        ('```json\n{"a": 1}\n```', "passed", "inside the Markdown fence"),
        ('```\n{"a": 1}\n```\n', "passed", "inside the Markdown fence"),
        ('~~~JSON\n{"a": 1}\n~~~', "passed", "inside the Markdown fence"),
        ('````json\n{"a": "```"}\n````', "passed", "inside the Markdown fence"),
        ('```json\n{"code": "```py"}\n```', "passed", "inside the Markdown fence"),
        ('```json\r\n{"a": 1}\r\n```', "passed", "inside the Markdown fence"),
        ('```json {"a": 1}```', "passed", "inside the Markdown fence"),
        ("```[true , false]```", "passed", "an array"),
        ('```{"name": "Ada Lovelace"}```', "passed", "an object"),
        ('```{"a": oops 1}```', "failed", "expecting value"),
        ('```{\n "a": None 1\n}\n```', "failed", "expecting value"),
        ("```json\n{'a': 1}\n```", "failed", "line 1, column 2 inside the Markdown fence"),
        ('Here you are:\n```json\n{"a": 1}\n```', "failed", "text outside the Markdown fence"),
        ('```json\n{"a": 1}\n```\nEnjoy!', "failed", "text outside the Markdown fence"),
        ("```\n1\n```\n```\n2\n```", "failed", "text outside the Markdown fence"),
        ('```json\n{"a": 1', "failed", "the Markdown fence is never closed"),
        ("```\n```", "failed", "empty"),
        ('{"a": 1}\n{"b": 2}', "failed", "more text after the end"),
    ],
)
def test_is_json(output: str, outcome: str, reason: str) -> None:
    found = check("is_json", output)
    assert found.outcome == outcome
    assert reason in found.reason


@pytest.mark.parametrize("output", ["[" * 200_000 + "]" * 200_000, "9" * 5_000])
def test_json_beyond_the_parser_limits_is_errored_not_failed(output: str) -> None:
    assert check("is_json", output).outcome == "errored"


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "s": {"pattern": "^(a+)+$"}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("output", "outcome", "reason"),
    [
        ('{"n": 1}', "passed", "matches the schema"),
        ('```json\n{"n": 1}\n```', "passed", "matches the schema"),
        ('{"n": "1"}', "failed", "$.n: "),
        ("{}", "failed", '"n" is a required property'),
        ('{"n": 1, "x": [1]}', "failed", "x"),
        ("no JSON", "failed", "not JSON"),
    ],
)
def test_json_schema(output: str, outcome: str, reason: str) -> None:
    found = check("json_schema", output, schema=SCHEMA)
    assert found.outcome == outcome
    assert reason in found.reason


def test_a_remote_schema_is_never_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)  # noqa: FBT003
        address = f"http://127.0.0.1:{server.getsockname()[1]}/schema"
        with pytest.raises(InvalidInput, match="never fetched"):
            check("json_schema", "1", schema={"$ref": address})
        with pytest.raises(BlockingIOError):  # no connection was made
            server.accept()


@pytest.mark.parametrize(
    ("kind", "ideal", "fields"),
    [("regex", "(a+)+$", {}), ("json_schema", None, {"schema": {"pattern": "^(a+)+$"}})],
)
def test_no_regex_pattern_can_hang_a_run(kind: str, ideal: str | None, fields: dict[str, Any]) -> None:
    start = time.process_time()
    output = '"' + "a" * 50_000 + '!"'
    assert check(kind, output, ideal, **fields).outcome == "failed"
    assert time.process_time() - start < 2


def test_evidence_contains_the_match_and_its_position() -> None:
    found = check("contains", "Die STRASSE heißt Groß-Straße", ["straße", "heisst"], case_sensitive=False)
    assert found.evidence["matched"] == [
        {"ideal": "straße", "text": "STRASSE", "start": 4, "end": 11},
        {"ideal": "heisst", "text": "heißt", "start": 12, "end": 17},
    ]
    assert found.reason == 'found "STRASSE" at character 5, "heißt" at character 13'
    missing = check("contains", "red", ["red", "blue"])
    assert missing.evidence["missing"] == ["blue"]
    assert check("regex", "é 42", r"\d+").evidence["matched"] == [{"ideal": r"\d+", "text": "42", "start": 2, "end": 4}]


def test_every_check_has_name_and_version() -> None:
    found = check("contains", "x", "x")
    assert (found.name, found.version, found.outcome) == ("contains", "1", Outcome.PASSED)


@pytest.mark.parametrize(
    ("kind", "fields", "ideal", "scorer"),
    [
        ("llm_judge", {"judge_prompt": "Is it polite? YES or NO."}, None, "llm_judge"),
        ("semantic_similarity", {"threshold": 0.7}, "x", "semantic_similarity"),
    ],
)
def test_model_based_assertions_are_unscored_and_name_their_scorer(
    kind: str, fields: dict[str, Any], ideal: str | None, scorer: str
) -> None:
    found = check(kind, "anything", ideal, **fields)
    assert found.outcome == Outcome.UNSCORED
    assert scorer in found.reason


@pytest.mark.parametrize(
    ("assertion", "ideal", "message"),
    [
        ({"type": "contains"}, None, "contains needs an ideal"),
        ({"type": "exact_match"}, [], "exact_match needs an ideal"),
        ({"type": "llm_judge", "judge_prompt": "  "}, None, "needs a judge_prompt"),
        ({"type": "json_schema"}, None, "needs a schema"),
        (
            {"type": "contains", "casesensitive": True},
            "x",
            'unknown key "casesensitive".*did you mean "case_sensitive"',
        ),
        ({}, "x", "has no type; expected one of exact_match"),
        ("contains", "x", "an assertion is an object such as"),
        ({"type": 5}, "x", "type must be text"),
        ({"type": "contains"}, 5, "ideal must be text or a list of texts"),
        ({"type": "contains", "case_sensitive": "no"}, "x", "case_sensitive must be true or false, found 'no'"),
        ({"type": "semantic_similarity", "threshold": 7}, "x", "threshold must be a number from 0 to 1, found 7"),
        ({"type": "llm_judge", "judge_prompt": 5}, None, "judge_prompt must be text"),
        ({"type": "contains"}, [1], "ideal must be text or a list of texts"),
        ({"type": "regex"}, ["x", "("], "is not a valid RE2 pattern"),
        ({"type": "json_schema", "schema": {"type": "objct"}}, None, "not a JSON Schema"),
    ],
)
def test_an_invalid_assertion_is_the_callers_error(assertion: Any, ideal: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        evaluate_assertion(assertion, "x", ideal)


def test_a_non_text_output_is_the_callers_error() -> None:
    nothing: Any = None
    with pytest.raises(InvalidInput, match="the output to check must be text, found NoneType"):
        evaluate_assertion({"type": "contains"}, nothing, "x")


def test_an_unknown_type_suggests_the_nearest() -> None:
    with pytest.raises(NotFound, match='did you mean "contains_any"'):
        evaluate_assertion(Assertion("contains_ny"), "x", "x")


@pytest.mark.parametrize(
    "output",
    [
        "```" + " " * 100_000 + "x",
        "`" * 100_000 + "x",
        "```json\n" + " " * 100_000 + "x",
        "```" + "a" * 100_000 + " x",
        "~" * 100_000 + "\n" * 100_000 + "~" * 99_999,
    ],
)
def test_no_output_can_hang_is_json(output: str) -> None:
    start = time.process_time()
    assert check("is_json", output).outcome == "failed"
    assert time.process_time() - start < 1


def make_doubling_schema(levels: int) -> dict[str, Any]:
    links = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"$ref": "#/$defs/d0", "$defs": {**links, f"d{levels}": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("kind", "ideal", "fields", "message"),
    [
        ("regex", "[ab]?" * 20_000 + "c", {}, "a pattern of 100,001 characters"),
        ("json_schema", None, {"schema": make_doubling_schema(40)}, "it has more than 10,000 subschemas"),
        ("json_schema", None, {"schema": {"enum": list(range(100_000))}}, "a schema of more than 100,000 characters"),
        ("json_schema", None, {"schema": {1, 2}}, "not plain JSON"),
    ],
)
def test_a_schema_that_would_take_forever_is_refused_at_load(
    kind: str, ideal: str | None, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        check(kind, "1", ideal, **fields)


def test_harmless_schema_references_are_allowed() -> None:
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}}, "additionalProperties": False}
    assert check("json_schema", '{"child": {"child": {}}}', schema=tree).outcome == "passed"
    assert check("json_schema", '{"child": {"x": {}}}', schema=tree).outcome == "failed"
    assert check("json_schema", "1", schema=make_doubling_schema(8)).outcome == "passed"


def test_many_schema_errors_use_little_memory() -> None:
    found = check("json_schema", "[" + "1," * 400_000 + "1]", schema={"items": {"type": "string"}})
    assert found.outcome == "failed"
    errors = found.evidence["errors"]
    assert isinstance(errors, list)
    assert len(errors) == 1


def test_a_huge_number_is_valid_json_but_errored_against_a_schema() -> None:
    assert check("json_schema", "1e999", schema={"type": "null"}).outcome == "errored"
    assert check("is_json", "1e999").outcome == "passed"


def test_lone_surrogates_in_an_output_are_ordinary_text() -> None:
    found = check("regex", "a\ud800b", "b")
    assert found.evidence["matched"] == [{"ideal": "b", "text": "b", "start": 2, "end": 3}]
    assert check("contains", "a\ud800b", "b").outcome == "passed"


def test_reasons_show_long_and_hostile_outputs_readably() -> None:
    found = check("exact_match", "\x1b[31m" + "x" * 1000 + "\n\ud800", "y")
    assert len(found.reason) < 120
    assert "\x1b" not in found.reason
