"""Findings of a run, end to end: a pass bar for each model, comparable files, and refusals before anything is spent."""

import json
from pathlib import Path

import pytest

from .test_run import parse_json, run_pramana, run_server, write_suite

YES, NO = "fake:fixed=Yes", "fake:fixed=No"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write_suite(tmp_path / "mine.jsonl", 10)


def test_two_good_models_do_not_hide_a_bad_one(suite: Path) -> None:
    models = [f"fake:seed=1,fixed=Yes,latency={number}e-9" for number in (1, 2)]
    arguments = [word for model in [*models, NO] for word in ("--model", model)]
    done = run_pramana("run", suite, *arguments, "--fail-under", "0.6", "--quiet")
    assert done.returncode == 1, done.stdout
    assert done.stdout.endswith(f"60 % must pass: 0 % of 10 results of {NO} did.\n")
    good = run_pramana("run", suite, *arguments[:4], "--fail-under", "0.6", "--quiet")
    assert good.returncode == 0, good.stdout


def test_json_includes_the_deciding_sentence_and_the_exit_code(suite: Path) -> None:
    done = run_pramana("run", suite, "--model", NO, "--fail-under", "0.9", "--json")
    said = parse_json(done)
    assert (done.returncode, said["exit_code"]) == (1, 1)
    assert said["sentence"] == "90 % must pass: 0 % of 10 results did."


@pytest.mark.parametrize(("bar", "code"), [([], 3), (["--fail-under", "0.9"], 4), (["--fail-under", "0"], 0)])
def test_a_stopped_run_that_cannot_be_decided_exits_4(tmp_path: Path, bar: list[str], code: int) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 200)
    with run_server("--says", "Yes.", "--latency", "0.005") as url:
        budget = ["--max-total-tokens", "200", "--concurrency", "2"]
        done = run_pramana("run", suite, "--model", f"{url}#any", *budget, *bar, "--json")
    said = parse_json(done)
    assert (done.returncode, said["exit_code"], said["status"]) == (code, code, "stopped")
    assert code != 4 or said["sentence"].endswith(" not run yet.")


def test_an_unwritable_output_is_refused_before_any_model_call(suite: Path, tmp_path: Path) -> None:
    for path, why in ((tmp_path / "no" / "results.json", "No such file or directory"), (tmp_path, "is a directory")):
        done = run_pramana("run", suite, "--model", YES, "--output", path)
        assert (done.returncode, why in done.stderr) == (2, True), done.stderr
    assert parse_json(run_pramana("runs", "--json")) == []
    kept = tmp_path / "kept.json"
    kept.write_text("mine", encoding="utf-8")
    assert run_pramana("run", suite, "--model", "gtp-5", "--output", kept).returncode == 2
    assert kept.read_text(encoding="utf-8") == "mine"
    assert run_pramana("run", suite, "--model", "gtp-5", "--output", tmp_path / "new.json").returncode == 2
    assert not (tmp_path / "new.json").exists()


def test_the_summary_is_printed_even_if_the_disk_is_full(suite: Path) -> None:
    done = run_pramana("run", suite, "--model", YES, "--output", "/dev/full")
    assert done.returncode == 3
    assert "10 results, no errors." in done.stdout
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


def test_two_files_with_equal_ids_round_trip_through_results_json(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    text = write_suite(tmp_path / "mine.jsonl", 10).read_text(encoding="utf-8")
    other.write_text(text.replace("Say yes", "Please say yes"), encoding="utf-8")
    files = [tmp_path / "base.json", tmp_path / "new.json"]
    for path, model in zip(files, (YES, NO), strict=True):
        done = run_pramana("run", tmp_path / "mine.jsonl", other, "--model", model, "--output", path, "--quiet")
        assert done.returncode == 0, done.stderr
    (block,) = json.loads(files[0].read_text(encoding="utf-8"))
    assert (block["suite_hash"], block["summary"]["total"], block["run_metadata"]["complete"]) == (None, 20, True)
    worse = run_pramana("compare", *files, "--json")
    assert (worse.returncode, parse_json(worse)["pairs"]) == (1, 20)
    selected = [tmp_path / "mine.json", tmp_path / "other.json"]
    for path, model, source in zip(selected, (YES, NO), ("mine.jsonl", "other.jsonl"), strict=True):
        done = run_pramana("run", tmp_path / source, "--model", model, "--limit", "9", "--output", path)
        assert done.returncode == 0, done.stderr
    refused = run_pramana("compare", *selected)
    assert (refused.returncode, "--any-suite" in refused.stderr) == (2, True)
    runs = [run["id"] for run in parse_json(run_pramana("runs", "--json"))][1::-1]
    refused = run_pramana("compare", *runs)
    assert (refused.returncode, "--any-suite" in refused.stderr) == (2, True)
    assert run_pramana("compare", runs[0], selected[0]).returncode == 0


def test_verdicts_of_two_judges_are_reported_until_a_rescoring_unifies_them(tmp_path: Path) -> None:
    suite = tmp_path / "judged.jsonl"
    with suite.open("w", encoding="utf-8") as file:
        for number in range(12):
            case = {
                "id": f"creative-{number:03}",
                "category": "creative",
                "input": f"Write line {number}.",
                "assertion": {"type": "llm_judge", "judge_prompt": "Is it a line?"},
                "metadata": {"difficulty": "easy", "tokens_est": 8},
            }
            file.write(json.dumps(case) + "\n")
    yes, no = "fake:fixed=YES", "fake:fixed=NO"
    for judge in (yes, no):
        assert run_pramana("run", suite, "--model", "fake:echo", "--judge", judge, "--quiet").returncode == 0
    new, base = (run["id"] for run in parse_json(run_pramana("runs", "--json")))
    apart = run_pramana("compare", base, new)
    assert apart.returncode == 4
    answer = " ".join(apart.stdout.split("\n\n")[1].split())
    assert answer.startswith(
        f"Not enough evidence: all 12 cases were judged by {yes} (fake-1) before and by {no} (fake-1)"
    )
    assert run_pramana("compare", base, new, "--any-judge").returncode == 1
    assert run_pramana("rescore", new, "--judge", yes).returncode == 0
    assert run_pramana("compare", base, new).returncode == 0
