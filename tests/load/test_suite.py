"""Pramana suites: every rule of the format, every error at its line, column and path, in constant memory."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from pramana.errors import InvalidInput, Problem
from pramana.hash import hash_suite
from pramana.load.problems import Problems
from pramana.load.suite import SuiteFileSummary, check_suite, read_cases

GOOD: dict[str, Any] = {
    "id": "coding-001",
    "category": "coding",
    "input": "Say hello.",
    "ideal": ["hello"],
    "assertion": {"type": "contains"},
    "metadata": {"difficulty": "easy", "tokens_est": 4},
}


def make_case(**changes: Any) -> dict[str, Any]:
    """A valid case with changes; dots reach into objects, and `...` leaves the key out."""
    result: dict[str, Any] = json.loads(json.dumps(GOOD))
    for path, value in changes.items():
        *parents, last = path.split("__")
        target = result
        for parent in parents:
            target = target[parent]
        if value is ...:
            del target[last]
        else:
            target[last] = value
    return result


def check_lines(path: Path, *lines: dict[str, Any] | str | bytes) -> tuple[SuiteFileSummary, list[Problem]]:
    data = b"\n".join(
        line if isinstance(line, bytes) else line.encode() if isinstance(line, str) else json.dumps(line).encode()
        for line in lines
    )
    path.write_bytes(data)
    problems = Problems()
    return check_suite(path, problems), list(problems)


@pytest.fixture
def suite_file(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


@pytest.mark.parametrize(
    "good",
    [
        make_case(),
        make_case(ideal="hello"),
        make_case(assertion__case_sensitive=False, assertion__threshold=None, assertion__judge_prompt=None),
        make_case(metadata__tags=["a", "b"], metadata__tokens_est=0),
        make_case(input=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]),
        make_case(assertion={"type": "is_json"}, ideal=None),
        make_case(assertion={"type": "is_json"}, ideal=...),
        make_case(assertion={"type": "llm_judge", "judge_prompt": "Polite? YES or NO."}, ideal=...),
        make_case(assertion={"type": "semantic_similarity", "threshold": 0}),
        make_case(assertion={"type": "semantic_similarity", "threshold": 1}),
        make_case(assertion={"type": "regex"}, ideal=r"^h\w+"),
        make_case(assertion={"type": "json_schema", "schema": {"type": "object"}}, ideal=...),
        make_case(assertion={"type": "json_schema", "schema": False}, ideal=...),
        make_case(assertion={"type": "contains_none"}),
        make_case(input="\x00 and \u2028", ideal="\u0085x"),
    ],
)
def test_valid_cases_have_no_problems(suite_file: Path, good: dict[str, Any]) -> None:
    suite, problems = check_lines(suite_file, good)
    assert problems == []
    assert (suite.case_count, suite.suite_hash) == (1, hash_suite(suite_file))


@pytest.mark.parametrize(
    ("bad", "path", "message"),
    [
        (make_case(id=...), "id", "id is required"),
        (make_case(category=...), "category", "category is required"),
        (make_case(input=...), "input", "input is required"),
        (make_case(assertion=...), "assertion", "assertion is required"),
        (make_case(assertion={}), "assertion.type", "type is required"),
        (make_case(metadata__difficulty=...), "metadata.difficulty", "difficulty is required"),
        (make_case(metadata__tokens_est=...), "metadata.tokens_est", "tokens_est is required"),
        (make_case(id=5), "id", "id must be text, found 5"),
        (make_case(id=" "), "id", 'id must not be empty, found " "'),
        (
            make_case(category="coding_"),
            "category",
            'Invalid category "coding_": expected reasoning, factual, instruction_following, coding, safety or creative;'
            ' did you mean "coding"?',
        ),
        (make_case(category=None), "category", "Invalid category null: expected reasoning"),
        (make_case(input=""), "input", 'input must not be empty, found ""'),
        (make_case(input=[]), "input", "input must not be empty, found an empty list"),
        (make_case(input=7), "input", "input must be text or a list of messages, found 7"),
        (make_case(input=["hi"]), "input[0]", 'input[0] must be an object, found "hi"'),
        (make_case(input=[{"role": "tool", "content": "x"}]), "input[0].role", 'Invalid role "tool": expected system'),
        (make_case(input=[{"role": "user"}]), "input[0].content", "content is required"),
        (make_case(input=[{"role": "user", "content": ["x"]}]), "input[0].content", "content must be text, found a list of 1"),
        (make_case(input=[{"role": "user", "content": "x", "nmae": "y"}]), "input[0].nmae", 'unknown key "nmae"'),
        (make_case(ideal=[]), "ideal", "ideal must not be empty, found an empty list"),
        (make_case(ideal=""), "ideal", 'ideal must not be empty, found ""'),
        (make_case(ideal=["a", ""]), "ideal[1]", 'ideal[1] must not be empty, found ""'),
        (make_case(ideal=["a", 3]), "ideal[1]", "ideal[1] must be text, found 3"),
        (make_case(ideal={"a": 1}), "ideal", "ideal must be text or a list of texts, found an object"),
        (make_case(ideal=[], assertion={"type": "is_json"}), "ideal", "ideal must not be empty"),
        (make_case(assertion="contains"), "assertion", 'assertion must be an object, found "contains"'),
        (
            make_case(assertion__type="contians"),
            "assertion.type",
            'Invalid assertion type "contians": expected exact_match, contains, contains_any, is_json, llm_judge,'
            ' semantic_similarity, regex, json_schema or contains_none; did you mean "contains"?',
        ),
        (make_case(assertion__type=3), "assertion.type", "type must be text, found 3"),
        (make_case(assertion__case_sensitive=1), "assertion.case_sensitive", "case_sensitive must be true or false, found 1"),
        (make_case(assertion__threshold=1.5), "assertion.threshold", "threshold must be at most 1, found 1.5"),
        (make_case(assertion__threshold=-1), "assertion.threshold", "threshold must be at least 0, found -1"),
        (make_case(assertion__threshold="0.5"), "assertion.threshold", 'threshold must be a number from 0 to 1, found "0.5"'),
        (make_case(assertion__threshold=True), "assertion.threshold", "threshold must be a number from 0 to 1, found true"),
        (make_case(assertion__judge_prompt=1), "assertion.judge_prompt", "judge_prompt must be text, found 1"),
        (make_case(assertion__casesensitive=True), "assertion.casesensitive", 'did you mean "case_sensitive"?'),
        (make_case(tags=["a"]), "tags", 'unknown key "tags"; tags belongs in metadata'),
        (make_case(threshold=0.5), "threshold", 'unknown key "threshold"; threshold belongs in assertion'),
        (make_case(metadata__difficulty="hardest"), "metadata.difficulty", 'Invalid difficulty "hardest": expected easy'),
        (make_case(metadata__tokens_est=-1), "metadata.tokens_est", "tokens_est must be at least 0, found -1"),
        (make_case(metadata__tokens_est=2**31), "metadata.tokens_est", "tokens_est must be at most 2,147,483,647"),
        (make_case(metadata__tokens_est=3.0), "metadata.tokens_est", "tokens_est must be a whole number"),
        (make_case(metadata__tokens_est=True), "metadata.tokens_est", "tokens_est must be a whole number"),
        (make_case(metadata__tokens_est="3"), "metadata.tokens_est", "tokens_est must be a whole number"),
        (make_case(metadata__tags="a"), "metadata.tags", 'tags must be a list, found "a"'),
        (make_case(metadata__tags=[1]), "metadata.tags[0]", "tags[0] must be text, found 1"),
        (make_case(ideal=None), "ideal", "contains needs an ideal"),
        (make_case(ideal=..., assertion={"type": "exact_match"}), "ideal", "exact_match needs an ideal"),
        (make_case(ideal=..., assertion={"type": "contains_any"}), "ideal", "contains_any needs an ideal"),
        (make_case(ideal=..., assertion={"type": "semantic_similarity"}), "ideal", "semantic_similarity needs an ideal"),
        (make_case(assertion={"type": "llm_judge"}), "assertion.judge_prompt", "llm_judge needs a judge_prompt"),
        (make_case(assertion={"type": "llm_judge", "judge_prompt": " "}), "assertion.judge_prompt", "needs a judge_prompt"),
        (make_case(assertion={"type": "json_schema"}), "assertion.schema", "json_schema needs a schema"),
        (make_case(assertion={"type": "json_schema", "schema": {"type": "text"}}), "assertion.schema", "not a JSON Schema"),
        (make_case(assertion={"type": "regex"}, ideal="(?<=a)b"), "ideal", "is not a valid RE2 pattern"),
        (make_case(input="\ud800"), "input", "\\ud800 is half of a surrogate pair, which is not valid text"),
    ],
)  # fmt: skip
def test_each_problem_has_its_path_and_message(suite_file: Path, bad: dict[str, Any], path: str, message: str) -> None:
    suite, problems = check_lines(suite_file, make_case(id="coding-000"), "", bad)
    errors = [each for each in problems if each.severity == "error"]
    assert [(each.path, each.line) for each in errors] == [(f"[1].{path}", 3)]
    assert message in errors[0].message
    assert suite.suite_hash is None


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ('{"id": "a",', 12, "the line ends too early"),
        ("not json", 1, "not valid JSON"),
        ("[1, 2]", 1, "a case must be an object, found a list of 2"),
        ("null", 1, "a case must be an object, found null"),
        ('{"id": "a", "id": "b"}', 13, 'duplicate key "id"'),
        ('{"id": NaN}', 8, "NaN is not a number"),
        ('{"😀": "😀", "id": "x"} extra', 23, "more text after the end"),
        (b'{"id": "caf\xe9"}', 12, "not UTF-8: byte 0xe9"),
        (b"\xff\xfe{\x00}\x00", 1, "not UTF-8"),
    ],
)
def test_lines_that_hold_no_case_are_errors(suite_file: Path, line: str | bytes, column: int, message: str) -> None:
    _, problems = check_lines(suite_file, make_case(), line, make_case(id="coding-002"))
    assert [(each.line, each.column) for each in problems] == [(2, column)]
    assert problems[0].path.startswith("[1]")
    assert message in problems[0].message


@pytest.mark.parametrize(
    ("bad", "pointed"),
    [
        (make_case(assertion__type="contians"), '"contians"'),
        (make_case(metadata__tokens_est=-1), "-1}"),
        (make_case(tags=[]), '"tags"'),
        (make_case(metadata__difficulty=...), '{"tokens_est"'),
        (make_case(ideal=["ok", ""]), '""]'),
        (make_case(input="😀😀", category="x"), '"x"'),
    ],
)
def test_the_caret_points_at_the_value_the_unknown_key_or_the_object(
    suite_file: Path, bad: dict[str, Any], pointed: str
) -> None:
    _, problems = check_lines(suite_file, json.dumps(bad, ensure_ascii=False))
    error = next(each for each in problems if each.severity == "error")
    assert suite_file.read_text(encoding="utf-8")[error.column - 1 :].startswith(pointed)
    assert error.source[error.caret - 1 :].startswith(pointed[:1])


def test_an_empty_file_is_an_error(suite_file: Path) -> None:
    for content in ("", "\n \r\n\t\n", "\ufeff"):
        _, problems = check_lines(suite_file, content)
        assert [(each.message, each.line, each.column) for each in problems] == [
            ("the file is empty; expected one case a line", 1, 1)
        ]


def test_a_line_over_10_mb_is_an_error_and_the_rest_is_read(suite_file: Path) -> None:
    long = json.dumps(make_case(input="x" * 10_000_001))
    suite, problems = check_lines(suite_file, make_case(), long, make_case(id="coding-002", category="codin"))
    assert [(each.line, each.message.partition(";")[0]) for each in problems] == [
        (2, "the line is longer than 10,000,000 bytes"),
        (3, 'Invalid category "codin": expected reasoning, factual, instruction_following, coding, safety or creative'),
    ]
    assert len(problems[0].source) < 200
    assert suite.case_count == 3


def test_duplicate_ids_name_both_lines(suite_file: Path) -> None:
    suite, problems = check_lines(suite_file, make_case(), "", make_case(id="coding-002"), make_case(), make_case())
    assert [(each.path, each.message, each.line, each.column) for each in problems] == [
        ("[2].id", 'duplicate id "coding-001": lines 1 and 4', 4, 8),
        ("[3].id", 'duplicate id "coding-001": lines 1 and 5', 5, 8),
    ]
    assert suite.suite_hash is None


def test_all_errors_are_reported_at_once_up_to_a_limit_with_the_total(suite_file: Path) -> None:
    bad = json.dumps(make_case(category="x", id=5, metadata__tokens_est=None))
    suite_file.write_text("\n".join([bad] * 100), encoding="utf-8")
    problems = Problems(limit=10)
    check_suite(suite_file, problems)
    assert (problems.errors, len(problems.kept), problems.not_shown_count) == (300, 10, 290)


def test_many_problems_in_one_long_line_are_found_in_one_pass(suite_file: Path) -> None:
    start = time.process_time()
    unknown = {f"k{number}": "x" * 100 for number in range(2000)}
    _, problems = check_lines(suite_file, {**make_case(metadata__tags=["t"] * 9000), **unknown})
    assert len(problems) == 1000
    columns = [each.column for each in problems]
    assert columns == sorted(columns)
    assert time.process_time() - start < 5


def test_a_too_long_list_is_one_problem(suite_file: Path) -> None:
    _, problems = check_lines(
        suite_file, make_case(metadata__tags=[1] * 20_000), make_case(id="coding-002", ideal=[2] * 10_001)
    )
    assert [each.message for each in problems] == [
        "tags must have at most 10,000 items, found a list of 20000",
        "ideal must have at most 10,000 items, found a list of 10001",
    ]


@pytest.mark.parametrize("wild", ["moderate-025", "coding_001", "coding-", "x", "safety-001"])
def test_an_id_of_unusual_style_is_a_warning(suite_file: Path, wild: str) -> None:
    suite, problems = check_lines(suite_file, make_case(id=wild))
    assert [each.severity for each in problems] == ["warning"]
    assert "does not follow {category}-{num}" in problems[0].message
    assert suite.suite_hash is not None


def test_a_field_without_effect_is_a_warning(suite_file: Path) -> None:
    _, problems = check_lines(
        suite_file, make_case(assertion={"type": "contains", "threshold": 0.5, "judge_prompt": "x", "schema": {}})
    )
    assert [(each.severity, each.path) for each in problems] == [
        ("warning", "[0].assertion.threshold"),
        ("warning", "[0].assertion.judge_prompt"),
        ("warning", "[0].assertion.schema"),
    ]


def test_cases_are_streamed_with_the_whole_conversation(suite_file: Path) -> None:
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]
    check_lines(suite_file, make_case(), "", make_case(id="coding-002", input=chat, ideal="x", metadata__tags=["t"]))
    first, second = read_cases(suite_file)
    assert [(turn.role, turn.text) for turn in second.turns] == [("system", "s"), ("user", "u"), ("assistant", "a")]
    assert (first.ideals, second.ideals, second.facets.tags) == (("hello",), ("x",), ("t",))
    assert second.source is not None
    assert (second.source.line, second.tokens_est) == (3, 4)
    assert first.assertion is not None
    assert first.assertion.case_sensitive is True


def test_streaming_stops_at_the_first_problem(suite_file: Path) -> None:
    check_lines(suite_file, make_case(id="a-wild-id"), make_case(category="x"))
    stream = read_cases(suite_file)
    assert next(stream).id == "a-wild-id"
    with pytest.raises(InvalidInput, match=r"a\.jsonl:2:\d+: \[1\]\.category: Invalid category"):
        next(stream)
