"""Pramana suites: every rule of the format, every error at its line, column and path, in constant memory."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from pramana.errors import InvalidInput, Problem
from pramana.hash import hash_suite
from pramana.load.problems import Problems
from pramana.load.suite import SuiteFile, check_suite, read_cases

GOOD: dict[str, Any] = {
    "id": "coding-001",
    "category": "coding",
    "input": "Say hello.",
    "ideal": ["hello"],
    "assertion": {"type": "contains"},
    "metadata": {"difficulty": "easy", "tokens_est": 4},
}


def case(**changes: Any) -> dict[str, Any]:
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


def check(path: Path, *lines: dict[str, Any] | str | bytes) -> tuple[SuiteFile, list[Problem]]:
    data = b"\n".join(
        line if isinstance(line, bytes) else line.encode() if isinstance(line, str) else json.dumps(line).encode()
        for line in lines
    )
    path.write_bytes(data)
    problems = Problems()
    return check_suite(path, problems), list(problems)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a.jsonl"


@pytest.mark.parametrize(
    "good",
    [
        case(),
        case(ideal="hello"),
        case(assertion__case_sensitive=False, assertion__threshold=None, assertion__judge_prompt=None),
        case(metadata__tags=["a", "b"], metadata__tokens_est=0),
        case(input=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]),
        case(assertion={"type": "is_json"}, ideal=None),
        case(assertion={"type": "is_json"}, ideal=...),
        case(assertion={"type": "llm_judge", "judge_prompt": "Polite? YES or NO."}, ideal=...),
        case(assertion={"type": "semantic_similarity", "threshold": 0}),
        case(assertion={"type": "semantic_similarity", "threshold": 1}),
        case(assertion={"type": "regex"}, ideal=r"^h\w+"),
        case(assertion={"type": "json_schema", "schema": {"type": "object"}}, ideal=...),
        case(assertion={"type": "json_schema", "schema": False}, ideal=...),
        case(assertion={"type": "contains_none"}),
        case(input="\x00 and \u2028", ideal="\u0085x"),
    ],
)
def test_good_cases(file: Path, good: dict[str, Any]) -> None:
    suite, problems = check(file, good)
    assert problems == []
    assert (suite.cases, suite.hash) == (1, hash_suite(file))


@pytest.mark.parametrize(
    ("bad", "path", "message"),
    [
        (case(id=...), "id", "id is required"),
        (case(category=...), "category", "category is required"),
        (case(input=...), "input", "input is required"),
        (case(assertion=...), "assertion", "assertion is required"),
        (case(assertion={}), "assertion.type", "type is required"),
        (case(metadata__difficulty=...), "metadata.difficulty", "difficulty is required"),
        (case(metadata__tokens_est=...), "metadata.tokens_est", "tokens_est is required"),
        (case(id=5), "id", "id must be text, found 5"),
        (case(id=" "), "id", 'id must not be empty, found " "'),
        (
            case(category="coding_"),
            "category",
            'Invalid category "coding_": expected reasoning, factual, instruction_following, coding, safety or creative;'
            ' did you mean "coding"?',
        ),
        (case(category=None), "category", "Invalid category null: expected reasoning"),
        (case(input=""), "input", 'input must not be empty, found ""'),
        (case(input=[]), "input", "input must not be empty, found an empty list"),
        (case(input=7), "input", "input must be text or a list of messages, found 7"),
        (case(input=["hi"]), "input[0]", 'input[0] must be an object, found "hi"'),
        (case(input=[{"role": "tool", "content": "x"}]), "input[0].role", 'Invalid role "tool": expected system'),
        (case(input=[{"role": "user"}]), "input[0].content", "content is required"),
        (case(input=[{"role": "user", "content": ["x"]}]), "input[0].content", "content must be text, found a list of 1"),
        (case(input=[{"role": "user", "content": "x", "nmae": "y"}]), "input[0].nmae", 'unknown key "nmae"'),
        (case(ideal=[]), "ideal", "ideal must not be empty, found an empty list"),
        (case(ideal=""), "ideal", 'ideal must not be empty, found ""'),
        (case(ideal=["a", ""]), "ideal[1]", 'ideal[1] must not be empty, found ""'),
        (case(ideal=["a", 3]), "ideal[1]", "ideal[1] must be text, found 3"),
        (case(ideal={"a": 1}), "ideal", "ideal must be text or a list of texts, found an object"),
        (case(ideal=[], assertion={"type": "is_json"}), "ideal", "ideal must not be empty"),
        (case(assertion="contains"), "assertion", 'assertion must be an object, found "contains"'),
        (
            case(assertion__type="contians"),
            "assertion.type",
            'Invalid assertion type "contians": expected exact_match, contains, contains_any, is_json, llm_judge,'
            ' semantic_similarity, regex, json_schema or contains_none; did you mean "contains"?',
        ),
        (case(assertion__type=3), "assertion.type", "type must be text, found 3"),
        (case(assertion__case_sensitive=1), "assertion.case_sensitive", "case_sensitive must be true or false, found 1"),
        (case(assertion__threshold=1.5), "assertion.threshold", "threshold must be at most 1, found 1.5"),
        (case(assertion__threshold=-1), "assertion.threshold", "threshold must be at least 0, found -1"),
        (case(assertion__threshold="0.5"), "assertion.threshold", 'threshold must be a number from 0 to 1, found "0.5"'),
        (case(assertion__threshold=True), "assertion.threshold", "threshold must be a number from 0 to 1, found true"),
        (case(assertion__judge_prompt=1), "assertion.judge_prompt", "judge_prompt must be text, found 1"),
        (case(assertion__casesensitive=True), "assertion.casesensitive", 'did you mean "case_sensitive"?'),
        (case(tags=["a"]), "tags", 'unknown key "tags"; tags belongs in metadata'),
        (case(threshold=0.5), "threshold", 'unknown key "threshold"; threshold belongs in assertion'),
        (case(metadata__difficulty="hardest"), "metadata.difficulty", 'Invalid difficulty "hardest": expected easy'),
        (case(metadata__tokens_est=-1), "metadata.tokens_est", "tokens_est must be at least 0, found -1"),
        (case(metadata__tokens_est=2**31), "metadata.tokens_est", "tokens_est must be at most 2,147,483,647"),
        (case(metadata__tokens_est=3.0), "metadata.tokens_est", "tokens_est must be a whole number"),
        (case(metadata__tokens_est=True), "metadata.tokens_est", "tokens_est must be a whole number"),
        (case(metadata__tokens_est="3"), "metadata.tokens_est", "tokens_est must be a whole number"),
        (case(metadata__tags="a"), "metadata.tags", 'tags must be a list, found "a"'),
        (case(metadata__tags=[1]), "metadata.tags[0]", "tags[0] must be text, found 1"),
        (case(ideal=None), "ideal", "contains needs an ideal"),
        (case(ideal=..., assertion={"type": "exact_match"}), "ideal", "exact_match needs an ideal"),
        (case(ideal=..., assertion={"type": "contains_any"}), "ideal", "contains_any needs an ideal"),
        (case(ideal=..., assertion={"type": "semantic_similarity"}), "ideal", "semantic_similarity needs an ideal"),
        (case(assertion={"type": "llm_judge"}), "assertion.judge_prompt", "llm_judge needs a judge_prompt"),
        (case(assertion={"type": "llm_judge", "judge_prompt": " "}), "assertion.judge_prompt", "needs a judge_prompt"),
        (case(assertion={"type": "json_schema"}), "assertion.schema", "json_schema needs a schema"),
        (case(assertion={"type": "json_schema", "schema": {"type": "text"}}), "assertion.schema", "not a JSON Schema"),
        (case(assertion={"type": "regex"}, ideal="(?<=a)b"), "ideal", "is not a valid RE2 pattern"),
        (case(input="\ud800"), "input", "\\ud800 is half of a surrogate pair, which is not valid text"),
    ],
)  # fmt: skip
def test_bad_cases(file: Path, bad: dict[str, Any], path: str, message: str) -> None:
    suite, problems = check(file, case(id="coding-000"), "", bad)
    errors = [each for each in problems if each.severity == "error"]
    assert [(each.path, each.line) for each in errors] == [(f"[1].{path}", 3)]
    assert message in errors[0].message
    assert suite.hash is None


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
def test_lines_that_are_no_case(file: Path, line: str | bytes, column: int, message: str) -> None:
    _, problems = check(file, case(), line, case(id="coding-002"))
    assert [(each.line, each.column) for each in problems] == [(2, column)]
    assert problems[0].path.startswith("[1]")
    assert message in problems[0].message


@pytest.mark.parametrize(
    ("bad", "pointed"),
    [
        (case(assertion__type="contians"), '"contians"'),
        (case(metadata__tokens_est=-1), "-1}"),
        (case(tags=[]), '"tags"'),
        (case(metadata__difficulty=...), '{"tokens_est"'),
        (case(ideal=["ok", ""]), '""]'),
        (case(input="😀😀", category="x"), '"x"'),
    ],
)
def test_the_caret_points_at_the_value_the_unknown_key_or_the_object(
    file: Path, bad: dict[str, Any], pointed: str
) -> None:
    _, problems = check(file, json.dumps(bad, ensure_ascii=False))
    error = next(each for each in problems if each.severity == "error")
    assert file.read_text(encoding="utf-8")[error.column - 1 :].startswith(pointed)
    assert error.source[error.caret - 1 :].startswith(pointed[:1])


def test_an_empty_file_is_an_error(file: Path) -> None:
    for content in ("", "\n \r\n\t\n", "\ufeff"):
        _, problems = check(file, content)
        assert [(each.message, each.line, each.column) for each in problems] == [
            ("the file is empty; expected one case a line", 1, 1)
        ]


def test_a_line_over_ten_megabytes_is_an_error_and_the_rest_is_read(file: Path) -> None:
    long = json.dumps(case(input="x" * 10_000_001))
    suite, problems = check(file, case(), long, case(id="coding-002", category="codin"))
    assert [(each.line, each.message.partition(";")[0]) for each in problems] == [
        (2, "the line is longer than 10,000,000 bytes"),
        (3, 'Invalid category "codin": expected reasoning, factual, instruction_following, coding, safety or creative'),
    ]
    assert len(problems[0].source) < 200
    assert suite.cases == 3


def test_duplicate_ids_name_both_lines(file: Path) -> None:
    suite, problems = check(file, case(), "", case(id="coding-002"), case(), case())
    assert [(each.path, each.message, each.line, each.column) for each in problems] == [
        ("[2].id", 'duplicate id "coding-001": lines 1 and 4', 4, 8),
        ("[3].id", 'duplicate id "coding-001": lines 1 and 5', 5, 8),
    ]
    assert suite.hash is None


def test_errors_come_all_at_once_and_are_capped_with_the_total(file: Path) -> None:
    bad = json.dumps(case(category="x", id=5, metadata__tokens_est=None))
    file.write_text("\n".join([bad] * 100), encoding="utf-8")
    problems = Problems(limit=10)
    check_suite(file, problems)
    assert (problems.errors, len(problems.kept), problems.not_shown) == (300, 10, 290)


def test_many_problems_in_one_long_line_are_found_in_one_pass(file: Path) -> None:
    start = time.process_time()
    unknown = {f"k{number}": "x" * 100 for number in range(2000)}
    _, problems = check(file, {**case(metadata__tags=["t"] * 9000), **unknown})
    assert len(problems) == 1000
    columns = [each.column for each in problems]
    assert columns == sorted(columns)
    assert time.process_time() - start < 5


def test_a_list_without_end_is_one_problem(file: Path) -> None:
    _, problems = check(file, case(metadata__tags=[1] * 20_000), case(id="coding-002", ideal=[2] * 10_001))
    assert [each.message for each in problems] == [
        "tags must have at most 10,000 items, found a list of 20000",
        "ideal must have at most 10,000 items, found a list of 10001",
    ]


@pytest.mark.parametrize("wild", ["moderate-025", "coding_001", "coding-", "x", "safety-001"])
def test_an_id_of_another_style_is_a_warning(file: Path, wild: str) -> None:
    suite, problems = check(file, case(id=wild))
    assert [each.severity for each in problems] == ["warning"]
    assert "does not follow {category}-{num}" in problems[0].message
    assert suite.hash is not None


def test_a_field_without_effect_is_a_warning(file: Path) -> None:
    _, problems = check(file, case(assertion={"type": "contains", "threshold": 0.5, "judge_prompt": "x", "schema": {}}))
    assert [(each.severity, each.path) for each in problems] == [
        ("warning", "[0].assertion.threshold"),
        ("warning", "[0].assertion.judge_prompt"),
        ("warning", "[0].assertion.schema"),
    ]


def test_cases_stream_and_keep_the_whole_chat(file: Path) -> None:
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}]
    check(file, case(), "", case(id="coding-002", input=chat, ideal="x", metadata__tags=["t"]))
    first, second = read_cases(file)
    assert [(turn.role, turn.text) for turn in second.turns] == [("system", "s"), ("user", "u"), ("assistant", "a")]
    assert (first.ideals, second.ideals, second.facets.tags) == (("hello",), ("x",), ("t",))
    assert second.source is not None
    assert (second.source.line, second.tokens_est) == (3, 4)
    assert first.assertion is not None
    assert first.assertion.case_sensitive is True


def test_streaming_stops_at_the_first_problem_with_its_place(file: Path) -> None:
    check(file, case(id="a-wild-id"), case(category="x"))
    stream = read_cases(file)
    assert next(stream).id == "a-wild-id"
    with pytest.raises(InvalidInput, match=r"a\.jsonl:2:\d+: \[1\]\.category: Invalid category"):
        next(stream)
