"""`pramana run --baseline`: a new run is compared with an earlier one, which a name finds."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pramana import settings
from pramana.show.cli import pramana
from pramana.store import open_store


def good(prompt: str) -> str:
    return f"yes {prompt}"


def bad(prompt: str) -> str:
    return "no" if int(prompt.rsplit(maxsplit=1)[-1]) < 9 else f"yes {prompt}"


def stop_after_three(prompt: str) -> str:
    """Interrupt the run as Ctrl-C would, on the fourth case."""
    if prompt.endswith(" 3"):
        raise KeyboardInterrupt
    return good(prompt)


@pytest.fixture
def suite(tmp_path: Path) -> str:
    path = tmp_path / "mine.jsonl"
    known = {"category": "reasoning", "ideal": "yes", "assertion": {"type": "contains"}}
    known |= {"metadata": {"difficulty": "easy", "tokens_est": 12, "tags": []}}
    rows = [{"id": f"reasoning-{number:03}", "input": f"case {number}", **known} for number in range(12)]
    path.write_text("\n".join(json.dumps(each) for each in rows), encoding="utf-8")
    return str(path)


def run_models(suite: str, *models: str, options: tuple[str, ...] = ()) -> tuple[int, str]:
    named = [part for each in models for part in ("--model", f"python:{__name__}:{each}")]
    done = CliRunner().invoke(pramana, ["run", suite, *named, "--quiet", *options], standalone_mode=False)
    assert done.exception is None, done.exception
    return done.return_value, done.stdout


def count_runs() -> int:
    store = open_store(settings.database_url())
    try:
        return store.runs.read_page()[1]
    finally:
        store.close()


def test_a_run_worse_than_its_baseline_exits_with_1_and_is_explained(suite: str) -> None:
    assert run_models(suite, "good", options=("--name", "main"))[0] == 0
    code, text = run_models(suite, "bad", options=("--baseline", "main"))
    assert code == 1
    assert "Regression between these two runs: of 12 cases, 9 that passed before fail now" in " ".join(text.split())
    assert run_models(suite, "good", options=("--baseline", "MAIN"))[0] == 0


def test_of_several_runs_with_the_name_the_newest_finished_one_is_the_baseline(suite: str) -> None:
    run_models(suite, "good", options=("--name", "main"))
    run_models(suite, "bad", options=("--name", "main"))
    code, text = run_models(suite, "bad", options=("--baseline", "main", "--json", "--name", "main"))
    (compared,) = json.loads(text)["comparisons"]
    assert (code, compared["verdict"], compared["exit_code"], compared["lost"]) == (0, "no_change", 0, [])
    done = CliRunner().invoke(pramana, ["compare", "main", "latest"], standalone_mode=False)
    assert "No difference seen" in done.stdout


def test_few_cases_exit_with_4_if_a_loss_has_to_be_excluded(suite: str) -> None:
    run_models(suite, "good", options=("--name", "main"))
    assert run_models(suite, "good", options=("--baseline", "main", "--fail-on", "inconclusive"))[0] == 4


def test_each_model_is_compared_with_itself_and_the_worst_decides(suite: str) -> None:
    run_models(suite, "good", "bad", options=("--name", "main"))
    code, text = run_models(suite, "good", "bad", options=("--baseline", "main", "--json"))
    assert code == 0
    data = json.loads(text)
    assert [each["verdict"] for each in data["comparisons"]] == ["no_change", "no_change"]
    assert data["decided_together"].startswith("The 2 models are decided together at 5 % (Holm's correction")
    assert [(each["confidence"], each["adjusted_p_value"]) for each in data["comparisons"]] == [(0.975, 1), (0.975, 1)]
    _, shown = run_models(suite, "good", "bad", options=("--baseline", "main"))
    assert "\nThe 2 models are decided together at 5 % (Holm's correction for 2 comparisons);\n" in shown
    code, alone = run_models(suite, "good", options=("--name", "one"))
    code, alone = run_models(suite, "good", options=("--baseline", "one"))
    assert "decided together" not in alone


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--baseline", "nowhere"), 'there is no run "nowhere"'),
        (("--baseline", "main", "--limit", "3"), "does not have the cases of this run"),
        (("--fail-on", "inconclusive"), "--fail-on belongs to --baseline"),
    ],
)
def test_an_unsuitable_baseline_is_refused_before_anything_is_sent(
    suite: str, options: tuple[str, ...], message: str
) -> None:
    run_models(suite, "good", options=("--name", "main"))
    before: Any = count_runs()
    done = CliRunner().invoke(
        pramana, ["run", suite, "--model", f"python:{__name__}:bad", *options], standalone_mode=False
    )
    assert message in str(done.exception)
    assert count_runs() == before


def test_the_margin_decides_which_loss_stops_a_build(suite: str) -> None:
    run_models(suite, "good", options=("--name", "main"))
    code, text = run_models(suite, "bad", options=("--baseline", "main", "--margin", "100", "--json"))
    (compared,) = json.loads(text)["comparisons"]
    assert (code, compared["verdict"], compared["margin"]) == (0, "regression", 100)
    done = CliRunner().invoke(pramana, ["run", suite, "--margin", "3"], standalone_mode=False)
    assert "--margin belongs to --baseline" in str(done.exception)


def test_a_baseline_that_lacks_results_is_refused_with_how_to_complete_it(suite: str) -> None:
    CliRunner().invoke(
        pramana,
        ["run", suite, "--model", f"python:{__name__}:stop_after_three", "--concurrency", "1", "--quiet"],
        standalone_mode=False,
    )
    store = open_store(settings.database_url())
    try:
        (interrupted,), _ = store.runs.read_page()
    finally:
        store.close()
    assert 0 < interrupted.stored < 12
    done = CliRunner().invoke(
        pramana,
        ["run", suite, "--model", f"python:{__name__}:good", "--baseline", interrupted.id],
        standalone_mode=False,
    )
    assert f"the baseline, run {interrupted.id}, has {interrupted.stored} of 12 results" in str(done.exception)
    assert count_runs() == 1
