"""Every assertion type in a complete run, from the suite file to the stored check, decides as docs/assertions.md says."""

import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pramana.bench import run_sync
from pramana.model import Check
from pramana.planning import create_run
from pramana.plugins import assertion_types
from pramana.request import Limits, RunRequest
from pramana.store import open_store

ROOT = Path(__file__).parents[2]
SCHEMA = {"type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}
IDEALS = ["The parcel arrives on Tuesday.", "The cat is asleep on the sofa."]


class Example(NamedTuple):
    """A case, the model's reply and the expected outcome."""

    type: str
    output: str
    outcome: str
    ideal: str | list[str] | None = None
    fields: dict[str, Any] | None = None


EXAMPLES = [
    Example("exact_match", " Ottawa\n", "passed", "Ottawa"),
    Example("exact_match", "It is Ottawa", "failed", "Ottawa"),
    Example("exact_match", "Paris", "passed", ["Ottawa", "Paris"]),
    Example("exact_match", "STRASSE", "passed", "straße", {"case_sensitive": False}),
    Example("contains", "Ottawa, in Canada", "passed", ["Ottawa", "Canada"]),
    Example("contains", "Ottawa", "failed", ["Ottawa", "Canada"]),
    Example("contains_any", "Ottawa", "passed", ["Paris", "Ottawa"]),
    Example("contains_any", "Rome", "failed", ["Paris", "Ottawa"]),
    Example("is_json", '```json\n{"a": [1]}\n```', "passed"),
    Example("is_json", '{"a": NaN}', "failed"),
    Example(
        "llm_judge", "Old pond, frog jumps in", "passed", None, {"judge_prompt": "Answer YES only if this is a haiku."}
    ),
    Example(
        "llm_judge", "There was an old man", "failed", None, {"judge_prompt": "Answer YES only if this is a haiku."}
    ),
    Example("llm_judge", "???", "unscored", None, {"judge_prompt": "Answer YES only if this is a haiku."}),
    Example("semantic_similarity", "A cat sleeps on the couch.", "passed", IDEALS, {"threshold": 0.6}),
    Example("semantic_similarity", "Shares fell by a third.", "failed", IDEALS, {"threshold": 0.6}),
    Example("regex", "on 2026-11-18", "passed", ["^never$", r"\d{4}-\d\d-\d\d"]),
    Example("regex", "today", "failed", r"\d{4}-\d\d-\d\d"),
    Example("json_schema", '{"city": "Ottawa"}', "passed", None, {"schema": SCHEMA}),
    Example("json_schema", '{"city": 1}', "failed", None, {"schema": SCHEMA}),
    Example("contains_none", "Rome", "passed", ["Paris", "Ottawa"]),
    Example("contains_none", "Rome or Paris", "failed", ["Paris", "Ottawa"]),
]
EVIDENCE: dict[tuple[str, str], set[str]] = {
    ("exact_match", "passed"): {"matched"},
    ("exact_match", "failed"): set(),  # nothing matched, and the reason shows the actual text
    ("contains", "passed"): {"matched"},
    ("contains", "failed"): {"matched", "missing"},
    ("contains_any", "passed"): {"matched"},
    ("contains_any", "failed"): {"missing"},
    ("is_json", "passed"): {"where"},
    ("is_json", "failed"): {"line", "column"},
    ("llm_judge", "passed"): {"judge", "answers"},
    ("llm_judge", "failed"): {"judge", "answers"},
    ("llm_judge", "unscored"): {"judge", "answers"},
    ("semantic_similarity", "passed"): {"threshold", "ideal"},
    ("semantic_similarity", "failed"): {"threshold", "ideal"},
    ("regex", "passed"): {"matched"},
    ("regex", "failed"): {"missing"},
    ("json_schema", "passed"): set(),
    ("json_schema", "failed"): {"errors"},
    ("contains_none", "passed"): set(),
    ("contains_none", "failed"): {"matched"},
}
JUDGE = '''
def judge(prompt):
    """Look at what is judged, as a model would, and say so in the last line."""
    return "YES" if "Old pond" in prompt else "NO" if "old man" in prompt else "It is hard to say."
'''


def make_case(number: int, example: Example) -> dict[str, Any]:
    ideal = {} if example.ideal is None else {"ideal": example.ideal}
    return {
        "id": f"factual-{number:03}",
        "category": "factual",
        "input": example.output,  # which fake:echo returns
        **ideal,
        "assertion": {"type": example.type, **(example.fields or {})},
        "metadata": {"difficulty": "easy", "tokens_est": 8},
    }


@pytest.mark.usefixtures("real_models")
def test_every_type_decides_as_documented_with_reason_evidence_and_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "judging_by_rule.py").write_text(JUDGE, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    suite = tmp_path / "types.jsonl"
    lines = [json.dumps(make_case(number, example)) for number, example in enumerate(EXAMPLES)]
    suite.write_text("\n".join(lines), encoding="utf-8")
    with closing(open_store(f"sqlite:///{tmp_path / 'store.sqlite3'}")) as store:
        request = RunRequest(paths=(suite,), models=("fake:echo",), judge="python:judging_by_rule:judge")
        run = run_sync(store, create_run(store, request), Limits())
        assert (run.status, run.stored) == ("finished", len(EXAMPLES)), run.reason
        found: dict[str, Check] = {
            asked.id: result.checks[0] for asked, result in store.results.iterate_with_cases(run.id)
        }
    for number, example in enumerate(EXAMPLES):
        check = found[f"factual-{number:03}"]
        assert (check.name, check.outcome) == (example.type, example.outcome), check
        assert check.reason
        assert check.version
        assert check.evidence.keys() >= EVIDENCE[example.type, example.outcome], check


def test_every_type_is_documented_and_has_a_passing_and_a_failing_example() -> None:
    page = (ROOT / "docs" / "assertions.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\| `(\w+)`(?: \(ours\))? \| .* \| .* \|$", page, re.MULTILINE)
    assert documented == list(assertion_types.builtin)
    assert len([each for each in documented if f"`{each}` (ours)" in page]) == 3
    for name in documented:
        assert {each.outcome for each in EXAMPLES if each.type == name} >= {"passed", "failed"}
