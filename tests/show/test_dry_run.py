"""`pramana run --dry-run`: the estimate of a run before anything is sent; and how an abandoned run is shown."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from pramana import settings
from pramana.model import Case, Facets, Plan, Target, Turn
from pramana.store import open_store
from pramana.store.queue import make_process_name

from .test_cli import pramana


def test_a_dry_run_prints_an_estimate_and_stores_nothing() -> None:
    result = pramana("run", "--dry-run", "--model", "gpt-5", "--model", "local", "--repeat", "2", columns=200)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "Estimate: 10 cases, 40 results, 44 calls"
    assert lines[2].startswith("Cost: about $0.")
    assert " (between $0." in lines[2]
    assert [line.partition(":")[0] for line in lines[3:6]] == ["Model gpt-5", "Model local", "Judge gpt-5"]
    assert lines[6] == "Warning: 2 cases of local will have no verdict: name a judge"
    assert lines[7].startswith("Warning: no API key is set for openai on this machine")
    assert lines[-1].startswith("Nothing was sent or stored.")
    assert json.loads(pramana("runs", "--json").stdout) == []


def test_a_dry_run_prints_the_same_estimate_as_json() -> None:
    result = pramana("run", "--dry-run", "--json", "--model", "gpt-5")
    found = json.loads(result.stdout)
    assert (found["dry_run"], found["cases"], found["calls"]) == (True, 10, 12)
    low, high = found["cost_range_usd"]
    assert low < found["cost_usd"] < high
    assert found["missing_keys"] == ["openai"]
    assert {each["purpose"] for each in found["shares"]} == {"model", "judge"}


def test_a_dry_run_fits_the_terminal() -> None:
    result = pramana("run", "--dry-run", "--model", "gpt-5", columns=60)
    assert max(map(len, result.stdout.splitlines())) <= 60


def test_a_dry_run_refuses_what_the_run_would_refuse() -> None:
    result = pramana("run", "--dry-run", "--tier", "nope")
    assert result.returncode == 2
    assert "nope" in result.stderr


@pytest.mark.parametrize("option", [("--output", "results.json"), ("--id-file", "id"), ("--fail-under", "0.5")])
def test_options_that_need_results_cannot_be_combined_with_dry_run(
    option: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = pramana("run", "--dry-run", *option)
    assert result.returncode == 2
    assert (
        f"{option[0]} cannot be combined with --dry-run: an estimate stores no run and no results"
        in result.stderr.replace("\n", " ")
    )


def test_the_cost_of_a_suite_is_labelled_as_the_authors_estimate() -> None:
    assert "author's cost" in pramana("suite", "list").stdout
    help_text = " ".join(pramana("suite", "publish", "--help").stdout.split())
    assert "Your cost estimate for one run of a tier (repeatable)" in help_text


def store_abandoned_run(target: Target) -> str:
    """Store a run whose process has died; return its id."""
    cases = [Case("a", "test_case", (Turn("user", "Hi."),), Facets("x", "easy"))]
    with closing(open_store(settings.database_url())) as store:
        run = store.runs.create(Plan("mine", None, (target,)), cases)
        gone = make_process_name().rpartition(" ")[0] + " 12345]"
        assert store.queue.claim(run.id, gone)
        return run.id


def test_a_killed_run_is_shown_as_interrupted_with_the_resume_command() -> None:
    run_id = store_abandoned_run(Target("fake:echo", "fake", "echo"))
    (listed,) = json.loads(pramana("runs", "--json").stdout)
    assert (listed["status"], listed["reason"].endswith(" exited before the run was complete")) == ("interrupted", True)
    assert pramana("show").stderr == f"Resume with: pramana run --resume {run_id}\n"


def test_a_resumed_run_keeps_its_limits_and_suggests_which_to_raise() -> None:
    limits = ("--max-total-tokens", "30", "--concurrency", "1")
    first = pramana("run", "--model", "fake:echo", *limits, "--judge", "fake:fixed=YES", "--quiet")
    (stopped,) = json.loads(pramana("runs", "--json").stdout)
    advice = f"Resume with: pramana run --resume {stopped['id']} --max-total-tokens N (more than 30, or none)"
    assert (first.returncode, advice in first.stderr) == (3, True)
    again = pramana("run", "--resume", "latest", "--quiet")
    (unchanged,) = json.loads(pramana("runs", "--json").stdout)
    assert (again.returncode, advice in again.stderr, unchanged["stored"]) == (3, True, stopped["stored"])
    done = pramana("run", "--resume", "latest", "--max-total-tokens", "none", "--quiet")
    assert (done.returncode, "Resume with" in done.stderr) == (0, False)


def test_an_unknown_command_that_is_an_option_suggests_the_option() -> None:
    assert 'unknown command "resume"; run: pramana run --resume RUN' in pramana("resume", "latest").stderr
    assert "; run: pramana run --dry-run" in pramana("estimate").stderr


def test_a_limit_below_the_estimate_is_a_warning() -> None:
    lines = pramana("run", "--dry-run", "--model", "gpt-5", "--max-cost", "0.0001", columns=200).stdout
    assert "Warning: the cost limit of $0.0001 is below the estimate" in lines


def test_a_killed_run_of_a_script_suggests_resuming_from_python() -> None:
    run_id = store_abandoned_run(Target("python:__main__:agent", "python", "__main__:agent"))
    assert pramana("show").stderr == f"Resume with: pramana.resume('{run_id}', model=function)\n"


def test_a_running_run_does_not_suggest_resuming() -> None:
    run_id = store_abandoned_run(Target("fake:echo", "fake", "echo"))
    with closing(open_store(settings.database_url())) as store:
        assert store.queue.claim(run_id, make_process_name())
    assert pramana("show").stderr == ""
