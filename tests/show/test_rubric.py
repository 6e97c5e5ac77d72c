"""Rubric scores of a judge, in the terminal, JSON and tables; overall and by type and language."""

import json
from pathlib import Path

import pandas as pd
import pytest

from .test_cli import pramana

SCENARIOS = 'version: "1.0"\nscenarios:\n' + "".join(
    f"  - {{id: case-{number}, name: Case {number}, type: {kind}, language: {language}, prompt: Book a ferry.,"
    " expected_outcome: Asks for the date}\n"
    for number, (kind, language) in enumerate(
        [("task-completion", "en"), ("task-completion", "hi"), ("conversation-flow", "en"), ("conversation-flow", "hi")]
    )
)
RATINGS = '{"completed": "yes", "accuracy": 9, "helpfulness": 8, "naturalness": 7, "efficiency": 6}'
SCORES = {"accuracy": 9, "helpfulness": 8, "naturalness": 7, "efficiency": 6}


@pytest.fixture(name="judged_run")
def _judged_run(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(SCENARIOS, encoding="utf-8")
    ran = pramana("run", path, "--model", "fake:echo", "--judge", f"fake:fixed={RATINGS}")
    assert (ran.returncode, ran.stderr.count("error")) == (0, 0)
    return tmp_path


@pytest.mark.usefixtures("judged_run")
def test_the_summary_has_mean_rubric_scores_overall_and_by_type_and_language() -> None:
    shown = pramana("show", columns=80).stdout
    assert max(map(len, shown.splitlines())) <= 80
    words = " ".join(shown.split())
    means = "accuracy 9.00, efficiency 6.00, helpfulness 8.00, naturalness 7.00"
    assert f"rubric scores, 1 to 10 all: {means}; 4 replies category conversation-flow: {means}; 2 replies" in words
    assert f"language hi: {means}; 2 replies" in words
    data = json.loads(pramana("show", "--json").stdout)["rubric"]
    assert {each["check"]: each["mean"] for each in data["overall"]} == SCORES
    assert {name: list(rows) for name, rows in data["by"].items()} == {
        "category": ["conversation-flow", "task-completion"],
        "language": ["en", "hi"],
    }


@pytest.mark.usefixtures("judged_run")
def test_each_result_shows_its_rubric_scores() -> None:
    shown = " ".join(pramana("show", "--id", "case-0").stdout.split())
    assert "rubric scores: accuracy 9, helpfulness 8, naturalness 7, efficiency 6 (of 10)" in shown
    (found,) = json.loads(pramana("show", "--id", "case-0", "--json").stdout)["conversations"]
    assert [each["rubric_scores"] for each in found["checks"]] == [SCORES]


def test_tables_have_a_column_per_rubric_score(judged_run: Path) -> None:
    assert pramana("export", "--output", judged_run / "a.csv").returncode == 0
    frame = pd.read_csv(judged_run / "a.csv")
    assert {name: frame[f"rubric_{name}"].tolist() for name in SCORES} == {
        name: [float(score)] * 4 for name, score in SCORES.items()
    }
