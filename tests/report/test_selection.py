"""A selection of a stored run: the same filters as on files, and never labelled as the complete suite."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pramana import settings
from pramana.bench import run_sync
from pramana.planning import create_run
from pramana.report.selection import select_results
from pramana.request import Limits, RunRequest, Selection
from pramana.run.engine import Stop
from pramana.show.cli import pramana
from pramana.store import open_store
from pramana.store.store import Store

SCENARIO = """\
version: "1.0"
scenarios:
  - id: booking-ferry
    name: Ferry
    type: task-completion
    language: de
    tags: [domain:travel]
    prompt: Zwei Erwachsene, bitte.
    expected_outcome: Repeats the two adults and asks for the date
  - id: health-question
    name: Pharmacy
    type: information-retrieval
    tags: [domain:health, urgent]
    prompt: Which pharmacy is open?
    expected_outcome: Names one and says until when
"""


def make_case(number: int) -> dict[str, Any]:
    return {
        "id": f"coding-{number:03}",
        "category": ("coding", "safety")[number % 2],
        "input": f"Say yes, number {number}.",
        "ideal": "yes",
        "assertion": {"type": "contains"},
        "metadata": {"difficulty": ("easy", "medium", "hard")[number % 3], "tokens_est": 8},
    }


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store(settings.database_url())
    yield opened
    opened.close()


@pytest.fixture
def run_id(tmp_path: Path, store: Store) -> str:
    """A finished run of eight cases with two repeats."""
    suite, scenarios = tmp_path / "mine.jsonl", tmp_path / "voice.yaml"
    suite.write_text("\n".join(json.dumps(make_case(number)) for number in range(6)), encoding="utf-8")
    scenarios.write_text(SCENARIO, encoding="utf-8")
    run = create_run(store, RunRequest(paths=(suite, scenarios), models=("fake:echo",), repeats=2))
    return run_sync(store, run, Limits()).id


def invoke(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(pramana, [*arguments])
    assert (result.exit_code, result.exception) == (code, None), result.output
    return result.output


def export_ids(run: str, *arguments: str) -> set[str]:
    """Return the exported case ids, and check that all commands agree on them."""
    rows = list(csv.DictReader(io.StringIO(invoke("export", run, "--format", "csv", *arguments))))
    (block,) = json.loads(invoke("export", run, *arguments))
    summary = json.loads(invoke("show", run, "--json", *arguments))
    ids = {row["test_id"] for row in rows}
    assert {each["test_id"] for each in block["results"]} == ids
    assert len(rows) == len(block["results"]) == summary["overall"]["total"] == 2 * len(ids)
    assert (summary["expected"], summary["stored"]) == (len(rows), len(rows))
    return ids


@pytest.mark.parametrize(
    ("arguments", "ids"),
    [
        (["--category", "safety"], {"coding-001", "coding-003", "coding-005"}),
        (["--category", "safety", "--difficulty", "easy"], {"coding-003"}),
        (["--type", "task-completion"], {"booking-ferry"}),
        (["--type", "task-completion", "--category", "safety", "--id", "booking-ferry"], {"booking-ferry"}),
        (["--tag", "domain:"], {"booking-ferry", "health-question"}),
        (["--tag", "urgent"], {"health-question"}),
        (["--language", "de"], {"booking-ferry"}),
        (["--id", "coding-002", "--id", "coding-004"], {"coding-002", "coding-004"}),
        (["--limit", "3"], {"coding-000", "coding-001", "coding-002"}),
        (["--difficulty", "hard", "--limit", "1"], {"coding-002"}),
    ],
)
def test_stored_runs_accept_the_same_filters_as_files(run_id: str, arguments: list[str], ids: set[str]) -> None:
    assert export_ids(run_id, *arguments) == ids


def test_a_selection_is_labelled_wherever_it_is_shown(run_id: str) -> None:
    filters = ("--category", "safety", "--limit", "2")
    text = invoke("show", run_id, *filters)
    assert text.startswith(f"\nmine+voice (selection) · run {run_id}\n")
    assert "a selection, not the whole suite: categories safety; limit 2" in text
    assert "mine+voice (selection)" in invoke("export", run_id, "--format", "junit", *filters)
    assert "(selection)" in invoke("export", run_id, "--format", "markdown", *filters).replace("&#40;", "(").replace(
        "&#41;", ")"
    )
    page = invoke("export", run_id, "--format", "html", *filters)
    assert 'A selection, not the whole suite: <bdi dir="auto">categories safety; limit 2</bdi>' in page
    summary = json.loads(invoke("show", run_id, "--json", *filters))
    assert (summary["suite"], summary["suite_hash"]) == ("mine+voice (selection)", None)
    assert summary["selection"] == {"categories": ["safety"], "limit": 2}
    (block,) = json.loads(invoke("export", run_id, *filters))
    assert (block["suite_version"], block["suite_hash"]) == ("mine+voice (selection)", None)


def test_a_complete_run_keeps_the_name_of_its_suite(run_id: str) -> None:
    text = invoke("show", run_id)
    assert text.startswith(f"\nmine+voice · run {run_id}\n")
    assert "selection" not in text
    assert len(export_ids(run_id)) == 8


def test_a_selection_of_a_selection_records_both(tmp_path: Path, store: Store) -> None:
    suite = tmp_path / "mine.jsonl"
    suite.write_text("\n".join(json.dumps(make_case(number)) for number in range(6)), encoding="utf-8")
    whole = create_run(
        store, RunRequest(paths=(suite,), models=("fake:echo",), selection=Selection(categories=("safety",)))
    )
    run_sync(store, whole, Limits())
    part = select_results(store, store.runs.read(whole.id), Selection(limit=1)).run
    assert (part.plan.suite, part.expected) == ("mine (selection)", 1)
    assert part.plan.selection == {"categories": ["safety"], "of these": {"limit": 1}}


def test_a_selection_of_an_unfinished_run_counts_what_is_left(tmp_path: Path, store: Store) -> None:
    suite = tmp_path / "mine.jsonl"
    suite.write_text("\n".join(json.dumps(make_case(number)) for number in range(6)), encoding="utf-8")
    run, stop = create_run(store, RunRequest(paths=(suite,), models=("fake:echo",))), Stop()
    stop("enough")
    assert run_sync(store, run, Limits(), stop=stop).stored == 0
    assert "The run did not finish: 3 results left." in invoke("show", run.id, "--category", "safety")


def test_an_empty_selection_names_its_filters(run_id: str) -> None:
    result = CliRunner().invoke(pramana, ["show", run_id, "--id", "nobody"])
    assert str(result.exception) == f"no case of run {run_id} matches the filters; check the spelling of --id nobody"


def test_rescore_judges_only_selected_results(run_id: str) -> None:
    rated = '{"completed": "yes", "accuracy": 9, "helpfulness": 8, "naturalness": 7, "efficiency": 6, "reasons": {}}'
    judge = ("--judge", f"fake:fixed={rated}")
    assert json.loads(invoke("show", run_id, "--json"))["overall"]["unscored"] == 4  # an echo model gives no verdict
    again = json.loads(invoke("rescore", run_id, "--type", "task-completion", *judge, "--json"))
    assert (again["overall"]["total"], again["overall"]["passed"]) == (2, 2)
    whole = json.loads(invoke("show", run_id, "--json"))
    assert (whole["overall"]["total"], whole["overall"]["unscored"]) == (16, 2)
    assert whole["by"]["category"]["information-retrieval"]["unscored"] == 2


def test_show_id_prints_the_reply_and_every_check(run_id: str) -> None:
    text = invoke("show", run_id, "--id", "coding-002")
    assert text.count("coding-002 · fake:echo · text · repeat 1 · passed") == 1
    assert text.count("coding-002 · fake:echo · text · repeat 2 · passed") == 1
    assert "            user     Say yes, number 2.\n" in text
    assert "            answer   Say yes, number 2. (after " in text
    assert '  passed contains: found "yes" at character 5' in text
    assert "coding-003" not in text
    assert max(map(len, text.splitlines())) <= 80
    data = json.loads(invoke("show", run_id, "--id", "coding-002", "--json"))
    assert [each["repeat"] for each in data["conversations"]] == [0, 1]
    assert [each["who"] for each in data["conversations"][0]["conversation"]] == ["user", "answer"]
    assert "conversations" not in json.loads(invoke("show", run_id, "--category", "safety", "--json"))


def test_show_id_prints_the_reason_of_a_missing_verdict(run_id: str) -> None:
    invoke("show", run_id)
    ferry = invoke("show", run_id, "--id", "booking-ferry")
    assert "unscored rubric: " in ferry
