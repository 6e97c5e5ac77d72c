"""A run without verdicts says so first; the judge is named before any model is called."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pramana.show.cli import pramana

MODELS = """\
def answer(prompt):
    return "It is one.\\nVerdict: YES"

def mumble(prompt):
    return "Hm."
"""
ANSWER, MUMBLE = "python:models_that_judge:answer", "python:models_that_judge:mumble"


@pytest.fixture(autouse=True)
def _models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "models_that_judge", raising=False)
    (tmp_path / "models_that_judge.py").write_text(MODELS, encoding="utf-8")
    judged = {"type": "llm_judge", "judge_prompt": "Is it a line?"}
    common = {"category": "creative", "metadata": {"difficulty": "easy", "tokens_est": 8}}
    cases: list[Mapping[str, object]] = [
        {"id": f"line-{number}", "input": f"Write line {number}.", "assertion": judged, **common} for number in range(2)
    ]
    checked = {"id": "word", "input": "Say line.", "ideal": ["line"], "assertion": {"type": "contains"}, **common}
    (tmp_path / "judged.jsonl").write_text("\n".join(map(json.dumps, cases)), encoding="utf-8")
    (tmp_path / "checked.jsonl").write_text(json.dumps(checked), encoding="utf-8")


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(pramana, [*arguments], standalone_mode=False)


def test_a_run_without_verdicts_says_so_first_and_draws_no_bar() -> None:
    done = invoke("run", "judged.jsonl", "--model", MUMBLE, "--quiet")
    title, first, model, rates = done.stdout.strip().splitlines()[:4]
    assert title.startswith("judged · run ")
    assert first == "No verdicts: 0 of 2 results passed or failed (2 unscored)."
    assert model.strip() == f"model: {MUMBLE}"
    assert rates.split() == ["all", "–", "2", "unscored"]
    assert "no errors" not in done.stdout
    assert "0/0" not in done.stdout
    assert done.return_value == 0
    export = invoke("export", "latest", "--format", "md")
    assert export.stdout.split("\n\n")[1] == f"**{first}**"


def test_a_run_without_verdicts_exits_4_with_fail_under() -> None:
    done = invoke("run", "judged.jsonl", "--model", MUMBLE, "--quiet", "--fail-under", "0.5")
    assert done.return_value == 4
    assert done.stdout.strip().splitlines()[1].startswith("No verdicts: ")
    assert "2 results of 2 have no verdict" in " ".join(done.stdout.split())


def test_a_run_with_verdicts_has_no_such_note() -> None:
    assert "No verdicts" not in invoke("run", "judged.jsonl", "--model", ANSWER, "--quiet").stdout


def test_cases_without_a_judge_are_warned_about_before_any_model_call() -> None:
    done = invoke("run", "judged.jsonl", "--model", "fake-voice", "--modality", "text", "--json")
    assert done.stderr.splitlines()[0] == "Warning: 2 cases will have no verdict: name a judge (--judge MODEL)."
    several = invoke("run", "judged.jsonl", "--model", "fake-voice", "--model", ANSWER, "--modality", "text", "--json")
    assert "Warning: 2 cases of fake-voice will have no verdict: name a judge (--judge MODEL)." in several.stderr


@pytest.mark.parametrize(
    ("options", "note"),
    [
        (("--model", ANSWER), f"{ANSWER} judges its own replies; --judge MODEL names another judge."),
        (
            ("--model", ANSWER, "--model", MUMBLE),
            "Each model judges its own replies; --judge MODEL names another judge.",
        ),
        (
            ("--model", ANSWER, "--model", MUMBLE, "--judge", ANSWER),
            f"{ANSWER} judges its own replies; --judge MODEL names another judge.",
        ),
        (("--model", MUMBLE, "--judge", ANSWER), None),
    ],
)
def test_a_model_that_judges_itself_is_named_at_the_start(options: tuple[str, ...], note: str | None) -> None:
    started = invoke("run", "judged.jsonl", *options, "--json").stderr
    estimated = invoke("run", "judged.jsonl", *options, "--dry-run").stdout
    if note is None:
        assert "own replies" not in started + estimated
    else:
        assert f"Note: {note}\n" in started
        assert note in " ".join(estimated.split())
        assert json.loads(invoke("run", "judged.jsonl", *options, "--dry-run", "--json").stdout)["self_judged"]


def test_a_run_without_judged_cases_mentions_no_judge() -> None:
    done = invoke("run", "checked.jsonl", "--model", ANSWER, "--json")
    assert "judge" not in done.stderr.replace("models_that_judge", "")


def test_quiet_prints_nothing_before_the_summary() -> None:
    assert "own replies" not in invoke("run", "judged.jsonl", "--model", ANSWER, "--quiet").stderr
