"""Reading results.json: our own, the community's older files, and broken files with the position of each problem."""

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from pramana.errors import InvalidInput, NotFound
from pramana.load.results import MAX_PROBLEMS, MAX_RESULTS_FILE_BYTES, ModelResults, read_results
from pramana.model import (
    Case,
    Check,
    Facets,
    Failure,
    Outcome,
    Plan,
    Reply,
    Result,
    ResultKey,
    Run,
    Target,
)
from pramana.report.exports import write_json

OLD: dict[str, Any] = {
    "suite_version": "v1.0-cheap",
    "suite_hash": "sha256:" + "0" * 64,
    "run_metadata": {
        "timestamp": "2026-02-01T10:00:00Z",
        "model_id": "gpt-4o",
        "temperature": 0.0,
        "seed": 42,
        "runner_version": "0.1.0",
        "user_id": None,
        "is_authenticated": False,
    },
    "results": [
        {"test_id": "a-1", "output": "x", "assertion_result": {"passed": True, "details": {}}, "latency_ms": 12},
        {"test_id": "a-2", "output": "y", "assertion_result": {"passed": False}, "latency_ms": 12},
        {
            "test_id": "a-3",
            "output": "z",
            "assertion_result": {"passed": False, "details": {"skipped": True, "reason": "not implemented"}},
            "latency_ms": 7,
        },
    ],
    "summary": {"total": 3, "passed": 1, "skipped": 1, "pass_rate": 0.5},
}


def outcomes_by_case(block: ModelResults) -> dict[str, list[Outcome]]:
    ordered = sorted(block.results, key=lambda each: each.repeat)
    return {name: [each.outcome for each in ordered if each.test_id == name] for name in dict.fromkeys(_ids(block))}


def _ids(block: ModelResults) -> list[str]:
    return [each.test_id for each in block.results]


def write_results(tmp_path: Path, value: Any) -> Path:
    path = tmp_path / "results.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value, indent=1), encoding="utf-8")
    return path


def change_value(path: list[str | int], value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(OLD))
    place: Any = copy
    for part in path[:-1]:
        place = place[part]
    if value is ...:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return copy


@pytest.mark.parametrize("shape", [OLD, [OLD]])
def test_an_older_file_is_read_as_a_list_or_a_single_block(tmp_path: Path, shape: Any) -> None:
    (block,) = read_results(write_results(tmp_path, shape))
    assert (block.model_id, block.suite_version, block.seed) == ("gpt-4o", "v1.0-cheap", 42)
    assert block.suite_hash == OLD["suite_hash"]
    assert outcomes_by_case(block) == {"a-1": [Outcome.PASSED], "a-2": [Outcome.FAILED], "a-3": [Outcome.SKIPPED]}
    assert (block.has_digests, block.model, block.complete) == (False, None, None)
    assert [each.reason for each in block.results] == [None, None, "not implemented"]


def test_unnumbered_repeats_are_numbered_in_file_order(tmp_path: Path) -> None:
    block = json.loads(json.dumps(OLD))
    block["results"] = [block["results"][0], block["results"][1] | {"test_id": "a-1"}]
    (read,) = read_results(write_results(tmp_path, [block]))
    assert [each.repeat for each in read.results] == [0, 1]
    assert outcomes_by_case(read) == {"a-1": [Outcome.PASSED, Outcome.FAILED]}


def test_exported_results_round_trip(tmp_path: Path) -> None:
    targets = Target("opus", "anthropic", "claude-opus-4-6"), Target("n", "fake", "n")
    plan = Plan("mine", None, targets, 2, {"temperature": 0, "seed": 42})
    run = Run("r", plan, "finished", "2026-01-02T03:04:05Z", 20, 20)
    rows = []
    for number, outcome in enumerate(Outcome):
        case = Case(f"a-{number}", "test_case", (), Facets("factual", "easy"))
        for model in ("opus", "n"):
            for repeat in (1, 0):
                check = Check("contains", "1", outcome, f"because {number}")
                reply = None if outcome is Outcome.ERRORED else Reply("text \ud800 \x00", total_s=0.25)
                failure = None if reply else Failure("unavailable", f"because {number}")
                key = ResultKey(f"sha256:{number}", model, "text", repeat)
                rows.append((case, Result(key, case.id, reply, failure, (check,) if reply else (), None, None)))
    out = io.StringIO()
    write_json(run, rows, out)
    blocks = read_results(write_results(tmp_path, out.getvalue()))
    assert [(block.model, block.model_id) for block in blocks] == [("opus", "claude-opus-4-6"), ("n", "n")]
    for block in blocks:
        assert block.suite_hash is None
        assert (block.has_digests, block.complete) == (True, True)
        assert {each.test_id: each.case_digest for each in block.results} == {f"a-{n}": f"sha256:{n}" for n in range(5)}
        assert outcomes_by_case(block) == {f"a-{number}": [outcome] * 2 for number, outcome in enumerate(Outcome)}
        assert {(each.checks[0].name, each.checks[0].outcome) for each in block.results if each.checks} == {
            ("contains", Outcome.PASSED),
            ("contains", Outcome.FAILED),
        }
        assert {each.reason for each in block.results} == {f"because {number}" for number in range(5)}
        assert {each.output for each in block.results} == {"text \ud800 \x00", ""}


@pytest.mark.parametrize(
    ("path", "value", "place", "message"),
    [
        (["suite_version"], ..., "suite_version", "suite_version is required"),
        (["suite_version"], 5, "suite_version", "suite_version must be text, found 5"),
        (["suite_hash"], [], "suite_hash", "suite_hash must be text, found an empty list"),
        (["results"], {}, "results", "results must be a list, found an empty object"),
        (["results"], ..., "results", "results is required"),
        (["run_metadata"], ..., "run_metadata", "run_metadata is required"),
        (["run_metadata", "model_id"], ..., "run_metadata.model_id", "model_id is required"),
        (["run_metadata", "seed"], "x", "run_metadata.seed", 'seed must be a whole number, found "x"'),
        (["results", 1], "x", "results[1]", 'a result must be an object, found "x"'),
        (["results", 1, "test_id"], ..., "results[1].test_id", "test_id is required"),
        (["results", 1, "assertion_result"], ..., "results[1].assertion_result", "assertion_result is required"),
        (
            ["results", 1, "assertion_result", "passed"],
            "yes",
            "results[1].assertion_result.passed",
            'passed must be true or false, found "yes"',
        ),
        (["results", 1, "repeat"], True, "results[1].repeat", "repeat must be a whole number, found true"),
        (["results", 1, "repeat"], -1, "results[1].repeat", "repeat must be at least 0, found -1"),
        (["results", 1, "test_id"], "a-1", None, None),
        (["results", 1, "case_digest"], 5, "results[1].case_digest", "case_digest must be text, found 5"),
        (["run_metadata", "complete"], "no", "run_metadata.complete", 'complete must be true or false, found "no"'),
        (
            ["results", 2, "assertion_result", "passed"],
            True,
            "results[2].assertion_result.passed",
            "passed is true, but details.skipped is true as well, which means that there is no verdict",
        ),
        (
            ["results", 2, "assertion_result", "details", "outcome"],
            "passed",
            "results[2].assertion_result.details.outcome",
            'outcome must be errored, unscored or skipped, found "passed"',
        ),
    ],
)
def test_invalid_values_are_reported_with_their_path(
    tmp_path: Path, path: list[str | int], value: Any, place: str | None, message: str | None
) -> None:
    file = write_results(tmp_path, change_value(path, value))
    if message is None:
        assert read_results(file)
        return
    with pytest.raises(InvalidInput) as refused:
        read_results(file)
    (problem,) = refused.value.problems
    assert (problem.message, problem.path, problem.file) == (message, place, str(file))
    if value is not ...:
        line = file.read_text(encoding="utf-8").splitlines()[problem.line - 1]
        assert line[problem.column - 1 :].startswith(json.dumps(value)[:1])


@pytest.mark.parametrize(
    ("stated", "read"),
    [
        ({}, None),
        ({"system_prompt": None}, ""),
        ({"system_prompt": "Be kind."}, "Be kind."),
        ({"system_prompt": 5}, None),
    ],
)
def test_a_system_prompt_is_read(tmp_path: Path, stated: dict[str, Any], read: str | None) -> None:
    (block,) = read_results(write_results(tmp_path, {**OLD, "run_metadata": {**OLD["run_metadata"], **stated}}))
    assert block.system_prompt == read


def test_a_duplicate_repeat_is_refused(tmp_path: Path) -> None:
    block = json.loads(json.dumps(OLD))
    block["results"] = [block["results"][0] | {"repeat": 3}, block["results"][0] | {"repeat": 3}]
    for digests in (["x", "x"], ["x", None], [None, None]):
        for each, digest in zip(block["results"], digests, strict=True):
            each["case_digest"] = digest
        with pytest.raises(InvalidInput, match=r'results\[1\]\.repeat: test_id "a-1" occurs twice with repeat 3'):
            read_results(write_results(tmp_path, block))


def test_cases_with_one_id_are_distinguished_by_digest(tmp_path: Path) -> None:
    block = json.loads(json.dumps(OLD))
    block["results"] = [block["results"][0] | {"case_digest": digest} for digest in "xxy"]
    (read,) = read_results(write_results(tmp_path, block))
    assert [(each.case_digest, each.repeat) for each in read.results] == [("x", 0), ("x", 1), ("y", 0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1:1: not valid JSON: the text ends too early"),
        ("[\n{]", ":2:2: not valid JSON"),
        ("[]", ":1:1: the list is empty: it contains no results"),
        ("5", ":1:1: a results file must be a list with one block per model, found 5"),
        ("[5]", r":1:2: \[0\]: a block must be an object"),
        ('[{"suite_version": NaN}]', "NaN is not a number"),
        ("[" * 100_000, "nested"),
    ],
)
def test_another_kind_of_file_is_refused_with_a_reason(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_results(write_results(tmp_path, text))


def test_a_missing_file_and_other_encodings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="does not exist"):
        read_results(tmp_path / "no.json")
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_results(tmp_path)
    (tmp_path / "latin.json").write_bytes(b'[\n"caf\xe9"]')
    with pytest.raises(InvalidInput, match=":2:1: not UTF-8: byte 0xe9"):
        read_results(tmp_path / "latin.json")


def test_the_number_of_problems_is_bounded(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        read_results(write_results(tmp_path, [1] * 1000))
    assert len(refused.value.problems) == MAX_PROBLEMS


def test_a_pipe_or_a_device_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    pipe, endless = tmp_path / "pipe.json", tmp_path / "endless.json"
    os.mkfifo(pipe)
    endless.symlink_to("/dev/zero")
    for path in (pipe, endless, tmp_path):
        with pytest.raises(InvalidInput, match="not a regular file"):
            read_results(path)


def test_a_huge_file_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(MAX_RESULTS_FILE_BYTES + 1)  # a hole: it takes no room
    with pytest.raises(InvalidInput, match="has 2,000,000,001 bytes; a results file may have 2,000,000,000"):
        read_results(path)


def test_a_file_with_mixed_judges_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mixed.json"
    path.write_text(
        json.dumps([{**OLD, "summary": {**OLD["summary"], "mixed_judges": ["x: 1 of 2"]}}]), encoding="utf-8"
    )
    assert len(read_results(path)[0].results) == 3
