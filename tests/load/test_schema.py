"""The JSON Schemas: valid by the standard, and in agreement with the loaders according to an independent validator."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from pramana.load.manifest import BUILT_IN_SUITES_FOLDER
from pramana.load.problems import Problems
from pramana.load.scenario import parse_scenarios
from pramana.load.schema import make_agent_schema, make_scenario_schema, make_suite_schema
from pramana.load.suite import check_suite
from pramana.providers.voice.declared import SHIPPED_DESCRIPTIONS_FILE

SCENARIO_FILES = sorted((BUILT_IN_SUITES_FOLDER.parent / "scenarios").rglob("*.yaml"))
SUITE_FILES = sorted(BUILT_IN_SUITES_FOLDER.rglob("*.jsonl"))
SUITE = jsonschema.Draft202012Validator(make_suite_schema())
SCENARIO = jsonschema.Draft202012Validator(make_scenario_schema())


@pytest.mark.parametrize("schema", [make_suite_schema(), make_scenario_schema(), make_agent_schema()])
def test_the_schemas_are_json_schema_2020_12(schema: dict[str, Any]) -> None:
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize("path", SCENARIO_FILES, ids=lambda path: path.stem)
def test_every_built_in_scenario_file_is_valid(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    SCENARIO.validate(yaml.load(text, yaml.CBaseLoader))  # noqa: S506, TID251 - texts only; the validator parses for itself


@pytest.mark.parametrize("path", sorted(SHIPPED_DESCRIPTIONS_FILE.parent.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_agents_are_valid_and_a_misspelled_key_is_not(path: Path) -> None:
    schema = jsonschema.Draft202012Validator(make_agent_schema())
    described = yaml.safe_load(path.read_text(encoding="utf-8"))
    schema.validate(described)
    assert not schema.is_valid({**described, "uplinks": {}})


@pytest.mark.parametrize("path", SUITE_FILES, ids=lambda path: path.stem)
def test_every_built_in_suite_is_valid(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    for line in lines:
        SUITE.validate(json.loads(line))
    assert len(lines) >= 10


CASE: dict[str, Any] = json.loads(SUITE_FILES[0].read_text(encoding="utf-8").splitlines()[0])


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"id": ""},
        {"id": 5},
        {"category": "x"},
        {"input": []},
        {"input": ""},
        {"input": [{"role": "user", "content": "x"}]},
        {"input": [{"role": "tool", "content": "x"}]},
        {"ideal": []},
        {"ideal": "x"},
        {"ideal": None},
        {"ideal": [""]},
        {"extra": 1},
        {"assertion": {"type": "nope"}},
        {"assertion": {"type": "is_json"}, "ideal": None},
        {"assertion": {"type": "is_json", "threshold": 2}},
        {"assertion": {"type": "is_json", "case_sensitive": "no"}},
        {"assertion": {"type": "llm_judge"}},
        {"assertion": {"type": "llm_judge", "judge_prompt": None}},
        {"assertion": {"type": "llm_judge", "judge_prompt": "x"}},
        {"assertion": {"type": "json_schema"}},
        {"assertion": {"type": "json_schema", "schema": {}}},
        {"assertion": {"type": "regex"}, "ideal": None},
        {"metadata": {"difficulty": "easy"}},
        {"metadata": {"difficulty": "easy", "tokens_est": -1}},
        {"metadata": {"difficulty": "easy", "tokens_est": 1.5}},
        {"metadata": {"difficulty": "easy", "tokens_est": 1, "tags": "x"}},
        {"metadata": {"difficulty": "easy", "tokens_est": 1, "tags": ["x"]}},
    ],
)
def test_schema_and_loader_agree_on_suites(tmp_path: Path, change: dict[str, Any]) -> None:
    case = {**CASE, **change}
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(case), encoding="utf-8")
    problems = Problems()
    check_suite(path, problems)
    assert SUITE.is_valid(case) == (problems.errors == 0)


GOOD = {"id": "a-b", "name": "n", "type": "task-completion", "prompt": "p", "expected_outcome": "Does it well"}


@pytest.mark.parametrize(
    "document",
    [
        GOOD,
        {"scenarios": [GOOD]},
        {"version": "1.0", "name": "n", "description": "d", "scenarios": [GOOD]},
        {"version": "1.0", "scenarios": []},
        {"scenarios": [GOOD], "extra": "x"},
        {**GOOD, "id": "A"},
        {**GOOD, "name": "x" * 256},
        {**GOOD, "type": "x"},
        {**GOOD, "tags": ["a"]},
        {**GOOD, "tags": "a"},
        {**GOOD, "language": "x"},
        {**GOOD, "difficulty": "x"},
        {**GOOD, "extra": "x"},
        {key: value for key, value in GOOD.items() if key != "prompt"},
        {key: value for key, value in GOOD.items() if key != "expected_outcome"},
        {**{key: value for key, value in GOOD.items() if key != "expected_outcome"}, "expectedOutcome": "x y"},
        {**GOOD, "expectedOutcome": "x"},
        {**GOOD, "promptAudioUrl": "a.wav"},
        {**GOOD, "prompt_audio_url": "a.wav", "promptAudioUrl": "a.wav"},
        {**GOOD, "prompt_audio_url": "ftp://x"},
        {**GOOD, "prompt_audio_url": "https://x.example/a.wav"},
        {**GOOD, "prompt_audio_url": "/audio/a.wav"},
        {**GOOD, "prompt_audio_url": None},
        {**GOOD, "id": 123, "name": 1.5, "prompt": 42, "expected_outcome": True},
        {**GOOD, "id": None},
        {**GOOD, "name": "  "},
        {**GOOD, "tags": None, "language": None, "difficulty": None},
        {**GOOD, "tags": [2024, True]},
        {**GOOD, "tags": [None]},
        {**GOOD, "tags": [" "]},
        {"version": 1.0, "scenarios": [GOOD]},
        {"version": None, "scenarios": [GOOD]},
        {"version": "1.0"},
        {"version": "1.0", **GOOD},
        {"version": ["1"], "scenarios": [GOOD]},
    ],
)
def test_schema_and_loader_agree_on_scenarios(document: dict[str, Any]) -> None:
    problems = Problems()
    parse_scenarios(json.dumps(document), problems)
    assert SCENARIO.is_valid(document) == (problems.errors == 0)
