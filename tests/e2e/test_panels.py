"""Panels of judges, from the command line to the report: planned, estimated, asked, kept, rescored and resumed."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from statsmodels.stats.inter_rater import cohens_kappa  # type: ignore[import-untyped]

import pramana as library
from pramana.errors import InvalidInput
from pramana.model import Plan, Target
from pramana.show.cli import pramana
from pramana.store import open_store
from pramana.store.records import plan_from_json, plan_to_plain

from ..stores import home_store

JUDGES = """\
def number(prompt):
    return int(prompt.rpartition("=====[")[0].rpartition("=====[")[2].split("line ")[1].split(".")[0])

def lenient(prompt):
    return True

def even(prompt):
    return number(prompt) % 2 == 0

def low(prompt):
    return number(prompt) < 4
"""
NAMES = tuple(f"python:panel_judges:{name}" for name in ("lenient", "even", "low"))


@pytest.fixture(name="suite")
def _suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten cases that a judge judges, and a module of judges."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "panel_judges.py").write_text(JUDGES, encoding="utf-8")
    suite = tmp_path / "lines.jsonl"
    cases = [
        {
            "id": f"creative-{number:03}",
            "category": "creative",
            "input": f"Write line {number}.",
            "assertion": {"type": "llm_judge", "judge_prompt": "Is it short?"},
            "metadata": {"difficulty": "easy", "tokens_est": 8},
        }
        for number in range(10)
    ]
    suite.write_text("\n".join(map(json.dumps, cases)), encoding="utf-8")
    return suite


def invoke(*arguments: str | Path) -> str:
    result = CliRunner().invoke(pramana, [*map(str, arguments)], standalone_mode=False)
    if isinstance(result.exception, Exception):
        raise result.exception
    return result.stdout


def run_panel(suite: Path, *judges: str) -> dict[str, Any]:
    options = [option for judge in judges for option in ("--judge", judge)]
    found: dict[str, Any] = json.loads(invoke("run", suite, "--model", "fake:echo", *options, "--json"))
    return found


def test_the_majority_of_a_panel_decides_and_each_verdict_is_kept(suite: Path) -> None:
    found = run_panel(suite, *NAMES)
    assert (found["overall"]["passed"], found["overall"]["failed"]) == (7, 3)  # 0-3 and the even ones above
    assert found["judged_by"] == f"Judged by {' + '.join(NAMES)}, uncalibrated."
    (block,) = json.loads(invoke("export", found["run"]))
    votes = {
        each["test_id"]: [
            vote["verdict"] for vote in each["assertion_result"]["details"]["checks"][0]["evidence"]["panel"]
        ]
        for each in block["results"]
    }
    assert votes["creative-001"] == ["passed", "failed", "passed"]
    assert votes["creative-005"] == ["passed", "failed", "failed"]


def test_the_report_has_unanimous_verdicts_and_pairwise_kappas(suite: Path) -> None:
    found = run_panel(suite, *NAMES)
    (panel,) = json.loads(invoke("judge", "report", found["run"], "--json"))["panels"]
    assert (panel["replies"], panel["unanimous"], panel["undecided"]) == (10, 2, 0)
    kappas = {(each["first"][-4:], each["second"][-3:]): each["kappa"] for each in panel["pairs"]}
    both = np.array([[2, 3], [2, 3]])  # even and low; even only; low only; neither
    assert kappas["even", "low"] == pytest.approx(cohens_kappa(both).kappa)
    text = " ".join(invoke("judge", "report", found["run"]).split())
    assert "unanimous on 2 of 10 replies: 20.0 % (95 % interval 2.5–55.6 %); without a majority: 0" in text
    assert "python:panel_judges:even and python:panel_judges:low agree on 5 of 10 replies, kappa 0.00" in text


def test_two_judges_who_disagree_leave_a_reply_without_a_verdict(suite: Path) -> None:
    found = run_panel(suite, *NAMES[:2])
    assert (found["overall"]["passed"], found["overall"]["unscored"]) == (5, 5)
    assert found["reasons"][0]["reason"].startswith("the panel has no majority: python:panel_judges:lenient says YES")


def test_a_panel_is_estimated_rescored_and_read_by_python(suite: Path) -> None:
    estimate = json.loads(
        invoke(
            "run",
            suite,
            "--model",
            "fake:echo",
            "--judge",
            "fake:fixed=YES",
            "--judge",
            "fake:fixed=NO",
            "--dry-run",
            "--json",
        )
    )
    assert [(each["model"], each["purpose"], each["calls"]) for each in estimate["shares"]] == [
        ("fake:echo", "model", 10), ("fake:fixed=YES", "judge", 10), ("fake:fixed=NO", "judge", 10),
    ]  # fmt: skip
    found = run_panel(suite, NAMES[0])
    assert found["overall"]["passed"] == 10
    again = json.loads(
        invoke("rescore", found["run"], *(option for name in NAMES for option in ("--judge", name)), "--json")
    )
    assert again["overall"]["passed"] == 7
    labels = [each["label"] for each in json.loads(invoke("show", found["run"], "--scorings", "--json"))]
    assert labels == [f"judged by {NAMES[0]}", f"judged by {' + '.join(NAMES)}"]

    def strict(prompt: str) -> bool:
        return "nothing passes" in prompt

    def kind(_: str) -> bool:
        return True

    report = library.evaluate(suite, model="fake:echo", judge=[kind, strict, "fake:fixed=YES"])
    assert report.pass_rate == 1.0
    with pytest.raises(InvalidInput, match="judge is an empty list"):
        library.evaluate(suite, model="fake:echo", judge=[])
    with pytest.raises(InvalidInput, match="the same judge is named twice"):
        run_panel(suite, NAMES[0], NAMES[0])


def test_a_model_on_its_own_panel_is_named(suite: Path) -> None:
    judges = ("--judge", "fake:fixed=YES", "--judge", "fake:echo", "--judge", "fake:fixed=NO")
    estimate = json.loads(invoke("run", suite, "--model", "fake:echo", *judges, "--dry-run", "--json"))
    assert estimate["self_judged"] == ["fake:echo"]


def test_a_resumed_run_asks_the_same_panel(suite: Path) -> None:
    options = [option for judge in NAMES for option in ("--judge", judge)]
    common = ["--model", "fake:echo", *options, "--concurrency", "1", "--quiet"]
    invoke("run", suite, *common, "--max-total-tokens", "60")
    with closing(open_store(home_store())) as store:
        run = store.runs.find("latest")
        assert 0 < run.stored < 10
        assert tuple(each.typed for each in run.plan.judges) == NAMES
    invoke("run", "--resume", "latest", "--max-total-tokens", "none", "--quiet")
    with closing(open_store(home_store())) as store:
        evidence: list[Any] = [each.checks[0].evidence for _, each in store.results.iterate(run.id)]
    assert sorted(len(each.get("panel", ())) for each in evidence)[1:] == [3] * 9, (
        "only the reply at the limit was not judged"
    )


def test_a_plan_with_one_judge_is_stored_as_before_panels() -> None:
    plan = Plan("s", None, (Target("m", "fake", "m"),), judge=Target("gpt-5", "openai", "gpt-5"))
    assert "other_judges" not in plan_to_plain(plan)
    assert plan_from_json(json.dumps(plan_to_plain(plan))) == plan
