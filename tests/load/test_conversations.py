"""Scenarios with several turns: every key, every message at its position, and the rules for assertions as in suites."""

import json
import re
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pramana.errors import Problem
from pramana.hash import hash_case
from pramana.load import cases_of
from pramana.load.manifest import BUILT_IN_SUITES_FOLDER
from pramana.load.problems import Problems
from pramana.load.scenario import Scenario, format_scenarios, parse_scenario_or_errors, parse_scenarios
from pramana.load.schema import make_scenario_schema
from pramana.load.suite import check_suite
from pramana.load.yaml12 import split_lines
from pramana.model import Assertion, Case, Expected, Line
from pramana.store.records import case_from_json, case_to_json

from ..examples import examples

ROOT = Path(__file__).parents[2]
SEED = {
    "id": "support-billing-refund",
    "name": "Refund of a double charge",
    "type": "conversation-flow",
    "prompt": "You charged me twice.",
    "expected_outcome": "Apologises and asks for the order number",
}
TOP = "".join(f"{key}: {value}\n" for key, value in SEED.items())
"""Five lines: what is written below begins at line 6."""


def parse(text: str) -> tuple[list[Scenario], list[Problem]]:
    problems = Problems()
    located = parse_scenarios(text, problems, "a.yaml")
    return [each.scenario for each in located], list(problems)


def parse_case(more: str) -> Case:
    [scenario], problems = parse(TOP + more)
    assert problems == []
    return scenario.to_case()


def find_problems(more: str) -> list[tuple[str, str, int, int]]:
    scenarios, problems = parse(TOP + more)
    assert scenarios == []
    return [(each.path, each.message, each.line, each.column) for each in problems]


# ── What does not use it ──


def test_a_single_prompt_scenario_keeps_its_digest() -> None:
    """The digest is of a release that knew none of these keys: results of old runs stay comparable."""
    [scenario], _ = parse(TOP + 'tags: [a, "1.0"]\nprompt_audio_url: /audio/a.wav\n')
    case = scenario.to_case()
    assert (case.script, case.conditions) == ((), "")
    assert hash_case(case) == "sha256:36821ea32763add912147197194c6b0236eae11ed62f8fc8848a1901ba9a7c71"
    assert format_scenarios([scenario]) == (
        "version: '1.0'\nscenarios:\n- id: support-billing-refund\n  name: Refund of a double charge\n"
        "  type: conversation-flow\n  prompt: You charged me twice.\n"
        "  expected_outcome: Apologises and asks for the order number\n  prompt_audio_url: /audio/a.wav\n"
        "  tags:\n  - a\n  - '1.0'\n  language: en\n  difficulty: medium\n"
    )


def test_only_the_first_call_scenario_has_a_script() -> None:
    cases = [
        case
        for path in sorted((BUILT_IN_SUITES_FOLDER.parent / "scenarios").rglob("*.yaml"))
        for case in cases_of(path)
    ]
    assert len(cases) == 158
    assert {case.conditions for case in cases} == {""}
    assert {case.id: len(case.script) for case in cases if case.script} == {"first-call-largest-ocean": 1}


@pytest.mark.parametrize("more", ["assert:\nreference: ~\nturns: null\nconditions:\n", "conditions: clean\n"])
def test_empty_keys_change_nothing(more: str) -> None:
    assert hash_case(parse_case(more)) == hash_case(parse_case(""))


# ── What it says ──


def test_a_script_consists_of_the_prompt_and_its_turns() -> None:
    case = parse_case(
        "prompt_audio_url: p.wav\nreference: Sorry.\nassert: {type: contains, ideal: order, case_sensitive: false}\n"
        "turns:\n"
        "- say: Four seven.\n"
        "  barge_in: 1.5\n"
        "  assert:\n"
        "  - {type: exact_match, ideal: [47, yes]}\n"
        "  - {type: llm_judge, judge_prompt: Is it kind?}\n"
        "  - {type: semantic_similarity, ideal: Fine., threshold: 0.75}\n"
        "- {say: Bye., audio_url: /audio/bye.wav, reference: Goodbye., barge_in: 0}\n"
        "conditions: phone, noise=10dB\n"
    )
    contains = Expected(Assertion("contains", case_sensitive=False), ("order",))
    second = (
        Expected(Assertion("exact_match"), ("47", "yes")),
        Expected(Assertion("llm_judge", judge_prompt="Is it kind?")),
        Expected(Assertion("semantic_similarity", threshold=0.75), ("Fine.",)),
    )
    assert case.script == (
        Line("You charged me twice.", "p.wav", None, (contains,), "Sorry."),
        Line("Four seven.", None, 1.5, second),
        Line("Bye.", "/audio/bye.wav", 0.0, (), "Goodbye."),
    )
    assert case.conditions == "noise=10dB,phone"
    assert [turn.text for turn in case.turns] == ["You charged me twice."]
    assert case_from_json(case_to_json(case)) == case


@pytest.mark.parametrize(
    ("more", "lines"),
    [
        ("assert: {type: is_json}\n", 1),
        ("reference: Hello\n", 1),
        ("turns: [{say: And now?}]\n", 2),
        ("conditions: phone\n", 0),
    ],
)
def test_a_script_requires_turns_or_expectations(more: str, lines: int) -> None:
    case = parse_case(more)
    assert len(case.script) == lines
    assert hash_case(case) != hash_case(parse_case(""))


def test_equivalent_spellings_have_one_digest() -> None:
    alike = [
        (
            "assert: {type: is_json}\n",
            "assert: [{type: is_json}]\n",
            "assert: [{type: is_json, case_sensitive: true}]\n",
        ),
        ("conditions: noise=10dB,phone\n", "conditions: phone , NOISE=10.0db\n"),
        ("turns: [{say: x, barge_in: 1}]\n", "turns: [{say: x, barge_in: 1.0, reference: ~, assert: }]\n"),
        ("assert: {type: contains, ideal: x}\n", "assert: {type: contains, ideal: [x]}\n"),
    ]
    for group in alike:
        assert len({hash_case(parse_case(each)) for each in group}) == 1
    different = ["reference: a\n", "reference: b\n", "turns: [{say: x}]\n", "turns: [{say: x, barge_in: 0}]\n"]
    assert len({hash_case(parse_case(each)) for each in different}) == len(different)


def test_camel_case_is_accepted_but_not_both_spellings_at_once() -> None:
    case = parse_case(
        "assert: {type: llm_judge, judgePrompt: Kind?, caseSensitive: false}\nturns: [{say: x, audioUrl: a.wav, bargeIn: 2}]\n"
    )
    assert case.script[0].expected[0].assertion == Assertion("llm_judge", case_sensitive=False, judge_prompt="Kind?")
    assert case.script[1] == Line("x", "a.wav", 2.0)
    assert find_problems("turns:\n- {say: x, barge_in: 1, bargeIn: 1}\n") == [
        ("turns[0].bargeIn", "barge_in and bargeIn are two spellings of the same key; keep one", 7, 25)
    ]
    assert find_problems("assert: {type: llm_judge, judgePrompt: ' '}\n") == [
        ("assert.judgePrompt", "llm_judge needs a judge_prompt that can be answered YES or NO", 6, 27)
    ]
    assert find_problems("turns: [{say: x, bargeIn: y}]\n")[0][0] == "turns[0].bargeIn"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("{type: [object, 'null']}", {"type": ["object", "null"]}),
        ("{const: null}", {"const": None}),
        ("{enum: [1, 1.5, -2e3, true, false, '1', \"true\", yes, 007, 0x1F, .5, +1, 1_000, ~]}", {"enum": [1, 1.5, -2000.0, True, False, "1", "true", "yes", "007", "0x1F", ".5", "+1", "1_000", None]}),
        ("{const: !!str 5}", {"const": "5"}),
        ("true", True),
        ("{}", {}),
        ("{const: [[], {}, '']}", {"const": [[], {}, ""]}),
    ],
)  # fmt: skip
def test_plain_values_in_a_schema_are_read_like_json(value: str, kept: Any) -> None:
    [expected] = parse_case(f"assert: {{type: json_schema, schema: {value}}}\n").script[0].expected
    assert expected.assertion.schema == kept
    assert json.dumps(expected.assertion.schema) == json.dumps(kept)  # 1 is not 1.0, nor true


def test_the_example_in_the_docs_is_a_conversation() -> None:
    page = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    [example] = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "turns:" in block]
    [scenario], problems = parse(example)
    assert problems == []
    case = scenario.to_case()
    assert [line.barge_in_s for line in case.script] == [None, None, 1.5, None]
    assert [len(line.expected) for line in case.script] == [1, 0, 2, 0]
    assert case.script[2].expected[0].ideals == ("goodbye", "have a nice day")
    assert (case.script[3].audio_url, case.conditions) == ("recordings/that-is-all.wav", "noise=10dB,phone")


# ── What is wrong, and where ──


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("turns: hello\n", ("turns", 'turns must be a list of mappings, found "hello"', 6, 1)),
        ("turns: {say: x}\n", ("turns", "turns must be a list of mappings, found an object", 6, 1)),
        ("turns: []\n", ("turns", "turns must not be empty, found an empty list", 6, 1)),
        ("turns: [hello]\n", ("turns[0]", 'a turn must be a mapping with say, found "hello"', 6, 9)),
        ("turns:\n- say: x\n- [say]\n", ("turns[1]", "a turn must be a mapping with say, found a list of 1", 8, 3)),
        ("turns: [~]\n", ("turns[0]", "a turn must be a mapping with say, found null", 6, 9)),
        ("turns:\n- say: x\n- reference: y\n", ("turns[1].say", "say is required", 8, 3)),
        ("turns:\n- say: '  '\n", ("turns[0].say", "say is required", 7, 3)),
        ("turns:\n- say:\n", ("turns[0].say", "say is required", 7, 3)),
        ("turns:\n- say: [x]\n", ("turns[0].say", "say must be text", 7, 3)),
        ("turns:\n- say: x\n  sya: y\n", ("turns[0].sya", 'unknown key "sya"; did you mean "say"?', 8, 3)),
        ("turns:\n- say: x\n  say: y\n", ("turns[0].say", "duplicate key say: lines 7 and 8", 8, 3)),
        ("turns:\n- say: x\n  barge-in: 1\n", ("turns[0].barge-in", 'unknown key "barge-in"; did you mean "barge_in"?', 8, 3)),
        ("turns:\n- say: x\n  ideal: y\n", ("turns[0].ideal", 'unknown key "ideal"; ideal belongs in assert', 8, 3)),
        ("turns:\n- say: x\n  <<: {a: b}\n", ("turns[0].<<", 'unknown key "<<"; YAML 1.2 has no merge keys, so write the fields out', 8, 3)),
        ("turns:\n- say: x\n  ? [a]\n  : b\n", ("turns[0]", "a key must be text, not a list or a mapping", 8, 5)),
        ("turns:\n- say: !!int 5\n", ("turns[0].say", "the tag !!int is not supported; write the value as it is", 7, 3)),
        ("turns:\n- say: x\n  audio_url: ftp://a/b\n", ("turns[0].audio_url", 'audio_url must be an http(s) URL or a path, found "ftp://a/b"', 8, 3)),
        ("turns:\n- say: x\n  reference: '?!'\n", ("turns[0].reference", 'reference must be the words that the agent must say, found "?!"', 8, 3)),
        ("reference: ''\n", ("reference", 'reference must be the words that the agent must say, found ""', 6, 1)),
        ("reference: [a]\n", ("reference", "reference must be text", 6, 1)),
        ("barge_in: 1\n", ("barge_in", 'unknown key "barge_in"; barge_in belongs in turns', 6, 1)),
        ("say: hello\n", ("say", 'unknown key "say"; say belongs in turns', 6, 1)),
        ("threshold: 0.5\n", ("threshold", 'unknown key "threshold"; threshold belongs in assert', 6, 1)),
        ("turn: []\n", ("turn", 'unknown key "turn"; did you mean "turns"?', 6, 1)),
        ("asserts: []\n", ("asserts", 'unknown key "asserts"; did you mean "assert"?', 6, 1)),
        ("referense: x\n", ("referense", 'unknown key "referense"; did you mean "reference"?', 6, 1)),
        ("condition: phone\n", ("condition", 'unknown key "condition"; did you mean "conditions"?', 6, 1)),
        ("conditions: [phone]\n", ("conditions", "conditions must be text", 6, 1)),
        ("assert: contains\n", ("assert", 'assert must be a mapping or a list of them, found "contains"', 6, 1)),
        ("assert: []\n", ("assert", "assert must not be empty, found an empty list", 6, 1)),
        ("assert: {}\n", ("assert.type", "type is required", 6, 9)),
        ("assert: [contains]\n", ("assert[0]", 'an assertion must be a mapping with a type, found "contains"', 6, 10)),
        ("assert:\n  type: is_json\n  tpye: x\n", ("assert.tpye", 'unknown key "tpye"; did you mean "type"?', 8, 3)),
        ("assert:\n  type: is_json\n  say: x\n", ("assert.say", 'unknown key "say"; say belongs in turns', 8, 3)),
        ("assert:\n- type: is_json\n- type: regex\n  ideal: (\n", ("assert[1].ideal", '"(" is not a valid RE2 pattern (RE2 has no look-around or back-references): missing ): (', 9, 3)),
        ("assert:\n- type: contains\n", ("assert[0].ideal", "contains needs an ideal: a string, or a list of strings", 7, 3)),
        ("assert: {type: contains, ideal: [a, '', b]}\n", ("assert.ideal[1]", 'ideal[1] must not be empty, found ""', 6, 37)),
        ("assert: {type: contains, ideal: {a: b}}\n", ("assert.ideal", "ideal must be text or a list of texts, found an object", 6, 26)),
        ("assert: {type: is_json, case_sensitive: no}\n", ("assert.case_sensitive", 'case_sensitive must be true or false, found "no"', 6, 25)),
        ("assert: {type: is_json, case_sensitive: 'true'}\n", ("assert.case_sensitive", 'case_sensitive must be true or false, found "true"', 6, 25)),
        ("assert: {type: contains, ideal: x, threshold: 2}\n", ("assert.threshold", "threshold must be at most 1, found 2", 6, 36)),
        ("assert: {type: json_schema, schema: {type: x}}\n", None),
        ("assert: {type: json_schema}\n", ("assert.schema", "json_schema needs a schema: an object of JSON Schema, or true or false", 6, 9)),
        ("assert: {type: json_schema, schema: {a: 1e999}}\n", ("assert.schema.a", '"1e999" is too large for a number', 6, 41)),
        ("assert: {type: json_schema, schema: {a: 1, a: 2}}\n", ("assert.schema.a", "duplicate key a: lines 6 and 6", 6, 44)),
        ("assert: {type: json_schema, schema: {a: !secret x}}\n", ("assert.schema.a", "the tag !secret is not supported; write the value as it is", 6, 38)),
        ("turns:\n- say: x\n  assert:\n  - type: is_json\n  - type: contians\n", None),
    ],
)  # fmt: skip
def test_each_problem_is_reported_at_its_key(more: str, problem: tuple[str, str, int, int] | None) -> None:
    found = find_problems(more)
    if problem is None:
        [(path, message, line, column)] = found
        written = (TOP + more).splitlines()[line - 1][column - 1 :]
        assert path in ("assert.schema", "turns[0].assert[1].type")
        assert "not a JSON Schema" in message or 'did you mean "contains"?' in message
        assert written.startswith(("schema:", "type: contians"))
    else:
        assert problem in found
        assert len([each for each in found if each[0].startswith(problem[0].partition(".schema")[0])]) <= 2


def test_problem_paths_in_a_list_of_scenarios_include_the_turn() -> None:
    entry = "".join(f"  {line}\n" for line in TOP.splitlines()).replace("  ", "- ", 1)
    text = f"scenarios:\n{entry}  turns:\n  - say: x\n  - say: y\n    assert:\n      type: regex\n      ideal: '['\n"
    [problem] = parse(text)[1]
    assert problem.path == "scenarios[0].turns[1].assert.ideal"
    assert (problem.line, problem.column) == (12, 7)
    assert problem.source[problem.caret - 1 :] == "ideal: '['"


@pytest.mark.parametrize(
    "value", ["-0.1", "60.01", "61", "abc", "'1'", "1s", "true", "[1]", "{a: 1}", "''", ".inf", ".nan", "1e2"]
)
def test_a_barge_in_is_a_number_of_seconds(value: str) -> None:
    [(path, message, line, column)] = find_problems(f"turns:\n- say: x\n  barge_in: {value}\n")
    assert (path, line, column) == ("turns[0].barge_in", 8, 3)
    assert message.startswith("barge_in must be a number of seconds from 0 to 60, found ")
    for good in ("0", "60", "0.25", "6e1"):
        assert parse_case(f"turns:\n- say: x\n  barge_in: {good}\n").script[1].barge_in_s == float(good)


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ("phon", 'did you mean "phone"?'),
        ("noise", "noise=10dB"),
        ("noise=10", "dB"),
        ("noise=99dB", "out of range"),
        ("phone,phone", "twice"),
        ("''", "not known"),
        ('"phone,\\0"', "not known"),
    ],
)
def test_only_supported_conditions_are_accepted(conditions: str, message: str) -> None:
    [(path, said, line, column)] = find_problems(f"conditions: {conditions}\n")
    assert (path, line, column) == ("conditions", 6, 1)
    assert message in said


def test_all_problems_of_a_scenario_are_reported_at_once() -> None:
    found = find_problems(
        "turns:\n- sy: x\n- say: y\n  barge_in: 99\n  assert: [{type: regex}, {}]\nconditions: x\nreference: '-'\n"
    )
    assert [each[0] for each in found] == [
        *("turns[0].sy", "reference", "turns[0].say", "turns[1].barge_in", "turns[1].assert[1].type", "conditions"),
        "turns[1].assert[0].ideal",
    ]


# ── A suite's rules, in a suite's words ──

BAD_ASSERTIONS: list[tuple[dict[str, Any], Any]] = [
    ({"type": "nope"}, None),
    ({"type": "contians"}, "x"),
    ({"type": 5}, "x"),
    ({}, "x"),
    ({"type": "contains"}, None),
    ({"type": "contains"}, ""),
    ({"type": "contains"}, []),
    ({"type": "contains"}, [""]),
    ({"type": "contains"}, ["a", 5, " "]),
    ({"type": "contains"}, 5),
    ({"type": "contains"}, {"a": "b"}),
    ({"type": "contains"}, ["x"] * 10_001),
    ({"type": "exact_match", "case_sensitive": "no"}, "x"),
    ({"type": "exact_match", "case_sensitive": 1}, "x"),
    ({"type": "semantic_similarity", "threshold": 2}, "x"),
    ({"type": "semantic_similarity", "threshold": -0.5}, "x"),
    ({"type": "semantic_similarity", "threshold": "0.5"}, "x"),
    ({"type": "semantic_similarity", "threshold": True}, "x"),
    ({"type": "contains", "threshold": 0.5}, "x"),
    ({"type": "contains", "judge_prompt": "Kind?"}, "x"),
    ({"type": "contains", "schema": {}}, "x"),
    ({"type": "llm_judge"}, None),
    ({"type": "llm_judge", "judge_prompt": " "}, None),
    ({"type": "llm_judge", "judge_prompt": 5}, None),
    ({"type": "regex"}, "("),
    ({"type": "regex"}, ["a", "(?=x)"]),
    ({"type": "regex"}, "x" * 1001),
    ({"type": "json_schema"}, None),
    ({"type": "json_schema", "schema": {"type": "x"}}, None),
    ({"type": "json_schema", "schema": {"$ref": "http://example.org/x"}}, None),
    ({"type": "json_schema", "schema": {"const": "x" * 100_001}}, None),
    ({"type": "json_schema", "schema": 7}, None),
    ({"type": "is_json"}, None),
]


@pytest.mark.parametrize(("assertion", "ideal"), BAD_ASSERTIONS)
def test_assertions_are_checked_as_in_a_suite(tmp_path: Path, assertion: dict[str, Any], ideal: Any) -> None:
    stated = {**({} if ideal is None else {"ideal": ideal}), **assertion}
    line = {
        "id": "coding-1",
        "category": "coding",
        "input": "x",
        "assertion": assertion,
        "metadata": {"difficulty": "easy", "tokens_est": 1},
        **({} if ideal is None else {"ideal": ideal}),
    }
    path = tmp_path / "suite.jsonl"
    path.write_text(json.dumps(line), encoding="utf-8")
    in_suite = Problems()
    check_suite(path, in_suite)
    [scenario], wrong_with = (
        [parse_scenario_or_errors({**SEED, "assert": stated})[0]],
        parse_scenario_or_errors({**SEED, "assert": stated})[1],
    )
    told = [problem.message for problem in in_suite if problem.severity == "error"]
    assert sorted(message for _, message in wrong_with) == sorted(told)
    assert (scenario is None) == bool(told)
    for place, values in (("assert", {"assert": [stated]}), ("turn", {"turns": [{"say": "x", "assert": stated}]})):
        assert sorted(message for _, message in parse_scenario_or_errors({**SEED, **values})[1]) == sorted(told), place


def test_keys_without_effect_are_warnings_as_in_a_suite() -> None:
    [scenario], [problem] = parse(TOP + "turns:\n- say: x\n  assert: {type: contains, ideal: x, threshold: 0.5}\n")
    assert scenario.turns is not None
    assert (problem.severity, problem.path) == ("warning", "turns[0].assert.threshold")
    assert problem.message == "threshold has no effect with contains; it belongs to semantic_similarity"
    assert (problem.line, problem.column) == (8, 38)
    assert parse_scenario_or_errors({**SEED, "assert": {"type": "is_json", "threshold": 1}})[1] == []


# ── Bounds ──


def test_there_are_at_most_a_hundred_turns() -> None:
    def make_turns(count: int) -> str:
        return "turns:\n" + "- say: x\n" * count

    assert len(parse_case(make_turns(100)).script) == 101
    assert find_problems(make_turns(101)) == [("turns", "turns must have at most 100 turns, found a list of 101", 6, 1)]
    assert find_problems(make_turns(100_000)) == [
        ("turns", "turns must have at most 100 turns, found a list of 100,000", 6, 1)
    ]
    asserts = "assert: [" + "{type: is_json}," * 101 + "]\n"
    assert find_problems(asserts) == [("assert", "assert must have at most 100 assertions, found a list of 101", 6, 1)]


@pytest.mark.parametrize(
    "more",
    [
        "assert: {type: json_schema, schema: {enum: [" + "1," * 300_000 + "1]}}\n",
        "assert: {type: json_schema, schema: {" + "k" * 500_000 + ": [" + "1," * 90_000 + "1]}}\n",
        "x: &x [" + "a, " * 1000 + "a]\nassert: {type: json_schema, schema: {enum: [" + "*x, " * 900 + "*x]}}\n",
        "assert: {type: json_schema, schema: " + "[" * 30 + "]" * 30 + "}\n",
        "turns: " + "[" * 38 + "x" + "]" * 38 + "\n",
        "turns: &t [&m {say: x, assert: [" + "*m, " * 90 + "*m]}]\n",
        "assert: {type: regex, ideal: [" + "'(', " * 9_000 + "a]}\n",
        "assert: {type: contains, ideal: [" + "a, " * 10_001 + "a]}\n",
        "assert: {type: json_schema, schema: " + "9" * 5000 + "}\n",
        "turns: [{say: x, barge_in: " + "9" * 5000 + "}]\n",
        "assert: {" + "".join(f"k{number}: x, " for number in range(20_000)) + "type: is_json}\n",
        "conditions: '" + "phone," * 100_000 + "'\n",
    ],
)
def test_hostile_files_within_the_size_limit_are_refused_quickly(more: str) -> None:
    start = time.process_time()
    scenarios, problems = parse(TOP + more)
    assert scenarios == []
    assert problems
    assert max(len(str(each)) for each in problems) < 1500
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    "schema",
    [float("inf"), float("nan"), {"const": float("-inf")}, {"const": "\ud800"}, {"\udfff": 1}, {"a": {1, 2}}, object()],
)
def test_a_schema_that_json_cannot_represent_is_refused(schema: Any) -> None:
    scenario, found = parse_scenario_or_errors({**SEED, "assert": {"type": "json_schema", "schema": schema}})
    assert scenario is None
    assert found == [("assert.schema", "schema must be plain JSON: finite numbers and valid Unicode text")]


@pytest.mark.parametrize(
    "values",
    [
        {"turns": 5},
        {"turns": [5, None, True, "x", [], {}]},
        {"turns": [{"say": 5, "barge_in": True, "audio_url": 5, "reference": [], "assert": 7}]},
        {"turns": [{"say": "x", "barge_in": float("nan")}]},
        {"turns": [{"say": "\ud800", "reference": "\ud800", "audio_url": "\ud800"}]},
        {"assert": {"type": "regex", "ideal": "\ud800"}},
        {"assert": [[{"type": "is_json"}]]},
        {"assert": {"type": {"a": 1}, "ideal": [[1]], "threshold": [], "judge_prompt": {}, "case_sensitive": []}},
        {"conditions": 5},
        {"conditions": "\ud800"},
        {"reference": {"a": 1}},
    ],
)
def test_any_request_is_accepted_or_gives_problems(values: dict[str, Any]) -> None:
    scenario, found = parse_scenario_or_errors({**SEED, **values})
    assert scenario is None
    assert found
    for path, message in found:
        assert path.startswith(("turns", "assert", "conditions", "reference"))
        assert "Input should" not in message


# ── The schema that editors use, by an independent validator ──

SCHEMA = jsonschema.Draft202012Validator(make_scenario_schema())
JUDGE = {"type": "llm_judge", "judge_prompt": "Kind?"}


@pytest.mark.parametrize(
    "more",
    [
        {"assert": JUDGE},
        {"assert": [JUDGE]},
        {"assert": None, "turns": None, "reference": None, "conditions": None},
        {"assert": []},
        {"assert": "x"},
        {"assert": ["x"]},
        {"assert": {}},
        {"assert": {"type": "nope"}},
        {"assert": {"type": "is_json"}},
        {"assert": {"type": "is_json", "case_sensitive": None, "threshold": None}},
        {"assert": {"type": "is_json", "case_sensitive": "no"}},
        {"assert": {"type": "is_json", "extra": 1}},
        {"assert": {"type": "contains"}},
        {"assert": {"type": "contains", "ideal": "x"}},
        {"assert": {"type": "contains", "ideal": 5}},
        {"assert": {"type": "contains", "ideal": [5, True, "x"]}},
        {"assert": {"type": "contains", "ideal": []}},
        {"assert": {"type": "contains", "ideal": [" "]}},
        {"assert": {"type": "contains", "ideal": [None]}},
        {"assert": {"type": "llm_judge"}},
        {"assert": {"type": "llm_judge", "judgePrompt": "Kind?"}},
        {"assert": {**JUDGE, "judgePrompt": "Kind?"}},
        {"assert": {"type": "semantic_similarity", "ideal": "x", "threshold": 0.5, "caseSensitive": True}},
        {"assert": {"type": "semantic_similarity", "ideal": "x", "threshold": 1.5}},
        {"assert": {"type": "semantic_similarity", "ideal": "x", "threshold": "0.5"}},
        {"assert": {"type": "json_schema"}},
        {"assert": {"type": "json_schema", "schema": {}}},
        {"assert": {"type": "json_schema", "schema": None}},
        {"assert": [JUDGE] * 101},
        {"reference": "Hello"},
        {"reference": 5},
        {"reference": "?!"},
        {"reference": "こんにちは"},
        {"reference": ["x"]},
        {"turns": []},
        {"turns": [{"say": "x"}] * 100},
        {"turns": [{"say": "x"}] * 101},
        {"turns": ["x"]},
        {"turns": {"say": "x"}},
        {"turns": [{}]},
        {"turns": [{"say": " "}]},
        {"turns": [{"say": None}]},
        {"turns": [{"say": 5, "barge_in": 0, "audio_url": "a.wav", "reference": "Hi", "assert": JUDGE}]},
        {"turns": [{"say": "x", "bargeIn": 60, "audioUrl": "https://example.org/a.wav"}]},
        {"turns": [{"say": "x", "bargeIn": 1, "barge_in": 1}]},
        {"turns": [{"say": "x", "barge_in": 60.5}]},
        {"turns": [{"say": "x", "barge_in": -1}]},
        {"turns": [{"say": "x", "barge_in": "1"}]},
        {"turns": [{"say": "x", "barge_in": True}]},
        {"turns": [{"say": "x", "barge_in": None, "audio_url": None, "assert": None, "reference": None}]},
        {"turns": [{"say": "x", "audio_url": "ftp://x"}]},
        {"turns": [{"say": "x", "assert": []}]},
        {"turns": [{"say": "x", "prompt": "y"}]},
        {"conditions": "noise=10dB,phone"},
        {"conditions": ""},
        {"conditions": ["phone"]},
        {"barge_in": 1},
        {"say": "x"},
    ],
)
def test_schema_and_loader_agree_on_conversations(more: dict[str, Any]) -> None:
    for document in ({**SEED, **more}, {"scenarios": [{**SEED, **more}]}):
        problems = Problems()
        parse_scenarios(json.dumps(document), problems)
        assert SCHEMA.is_valid(document) == (problems.errors == 0), list(problems)


def test_the_schema_describes_every_key() -> None:
    parts = make_scenario_schema()["$defs"]
    for part in parts.values():
        for name, field in part["properties"].items():
            assert field.get("description") or name in ("type", "case_sensitive", "caseSensitive"), name
    assert {"assert", "reference", "turns", "conditions"} < set(parts["Scenario"]["properties"])
    assert {"say", "audio_url", "audioUrl", "barge_in", "bargeIn", "assert"} < set(parts["ScriptedTurn"]["properties"])


# ── Whatever is written ──

texts = st.sampled_from(("x", "no", "1e3", "null", "~", "a: b", " x ", "x\u2028y", "é😀", "- a", "true", "007", "x\ny"))
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts | st.just(""),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
assertions = st.one_of(
    st.fixed_dictionaries({"type": st.just("contains"), "ideal": texts | st.lists(texts, min_size=1, max_size=3)}),
    st.fixed_dictionaries({"type": st.just("llm_judge"), "judge_prompt": texts, "case_sensitive": st.booleans()}),
    st.fixed_dictionaries({"type": st.just("semantic_similarity"), "ideal": texts, "threshold": st.floats(0, 1)}),
    st.fixed_dictionaries({"type": st.just("json_schema"), "schema": st.fixed_dictionaries({"const": json_values})}),
)
several = st.none() | assertions | st.lists(assertions, min_size=1, max_size=2)
turns = st.fixed_dictionaries(
    {"say": texts},
    optional={
        "audio_url": st.just("a b.wav"),
        "barge_in": st.floats(0, 60),
        "assert": several,
        "reference": st.just("no"),
    },
)
conversations = st.fixed_dictionaries(
    {},
    optional={
        "assert": several,
        "reference": st.sampled_from(("no", "1e3", "Hello: there")),
        "turns": st.none() | st.lists(turns, min_size=1, max_size=3),
        "conditions": st.sampled_from((None, "phone", "noise=5dB,loss=2%")),
    },
)
CALM = examples(150)


@given(conversations)
@CALM
def test_written_scenarios_round_trip(more: dict[str, Any]) -> None:
    scenario, found = parse_scenario_or_errors({**SEED, **more})
    assert found == []
    assert scenario is not None
    again, problems = parse(format_scenarios([scenario]))
    assert [each for each in problems if each.severity == "error"] == []
    assert again == [scenario]
    assert hash_case(again[0].to_case()) == hash_case(scenario.to_case())
    assert parse(json.dumps({**SEED, **more}, ensure_ascii=False))[0] == [scenario]


GOOD = TOP + (
    "assert:\n- type: contains\n  ideal: [order, number]\n- {type: json_schema, schema: {const: [1, x]}}\n"
    "turns:\n- say: Four seven\n  barge_in: 1.5\n  assert: {type: regex, ideal: 'a|b'}\n- say: Bye\n  audioUrl: a.wav\n"
    "conditions: phone\nreference: Hello\n"
)
SNIPPETS = (
    *("say", "assert", "turns", "type", "[", "]", "{", "}", "- ", ": ", "&a ", "*a", "!!int ", "!x ", "~", "null", "'", '"'),
    *("\n", "  ", "\t", "#", "1e999", "99", "-1", "true", "? [a]\n", "<<: ", "\u2028", "\x00", "😀", "(", "x" * 300, "schema: "),
)  # fmt: skip


@given(
    st.lists(
        st.tuples(
            st.integers(len(TOP) - 30, len(GOOD)), st.integers(0, 12), st.sampled_from(SNIPPETS) | st.text(max_size=3)
        ),
        min_size=1,
        max_size=4,
    )
)
@CALM
def test_a_nearly_valid_conversation_is_read_or_each_problem_has_a_position(edits: list[tuple[int, int, str]]) -> None:
    text = GOOD
    for at, length, snippet in edits:
        text = text[:at] + snippet + text[at + length :]
    scenarios, problems = parse(text)
    assert scenarios or any(each.severity == "error" for each in problems)
    lines = split_lines(text)
    for each in problems:
        assert each.message.strip()
        assert "Input should" not in each.message
        assert 1 <= each.line <= len(lines), each
        assert 1 <= each.column <= len(lines[each.line - 1]) + 1, each
