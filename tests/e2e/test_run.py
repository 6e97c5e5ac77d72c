"""`pramana run` end to end: real processes, a real loopback server and store; killed, interrupted and resumed."""

import json
import os
import random
import re
import signal
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pramana import settings
from pramana.errors import NotFound
from pramana.store import open_store

from .. import programs
from ..stores import home_store


@contextmanager
def run_server(*arguments: str) -> Iterator[str]:
    """Run the loopback server in a separate process; yield its URL."""
    command = ["-m", "tests.loopback", "openai", "--port", "0", *arguments]
    with programs.start(command, cwd=Path(__file__).parents[2]) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found, line
        try:
            yield found.group()
        finally:
            process.terminate()


def write_suite(path: Path, count: int, ideal: str = "Yes") -> Path:
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            case = {
                "id": f"coding-{number:05}",
                "category": "coding",
                "input": f"Say yes, number {number}.",
                "ideal": ideal,
                "assertion": {"type": "contains_any", "case_sensitive": False},
                "metadata": {"difficulty": "easy", "tokens_est": 8},
            }
            file.write(json.dumps(case) + "\n")
    return path


def make_environment() -> dict[str, str]:
    return {**os.environ, "COLUMNS": "80"}  # noqa: TID251 - a child gets what we have


def run_pramana(*arguments: str | Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return programs.run(["-m", "pramana", *map(str, arguments)], env=make_environment(), timeout=timeout)


def parse_json(result: subprocess.CompletedProcess[str]) -> Any:
    assert result.stdout, result.stderr
    return json.loads(result.stdout)


def test_a_run_is_executed_stored_shown_and_exported(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 30)
    with run_server("--says", "Yes.") as url:
        done = run_pramana(
            "run", suite, "--model", f"{url}#any", "--repeat", "2", "--output", tmp_path / "results.json"
        )
    assert done.returncode == 0, done.stderr
    assert "mine" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    (run,) = parse_json(run_pramana("runs", "--json"))
    assert (run["status"], run["stored"], run["expected"]) == ("finished", 60, 60)
    shown = parse_json(run_pramana("show", run["id"][:14], "--json"))
    assert shown["overall"]["passed"] == 60
    (block,) = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert (block["suite_version"], block["summary"]["pass_rate"], len(block["results"])) == ("mine", 1.0, 60)
    starts = {"csv": "test_id,model,", "junit": "<?xml", "markdown": "### mine: 100 %", "html": "<!doctype html>"}
    for kind, start in starts.items():
        exported = run_pramana("export", run["id"], "--format", kind)
        assert exported.returncode == 0
        assert exported.stdout.startswith(start)
        assert exported.stdout.count("coding-00029") == {"csv": 2, "junit": 2, "html": 2}.get(kind, 0)


def test_compare_finds_the_regression(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 40)
    for says in ("Yes.", "No.", "Yes."):
        with run_server("--says", says) as url:
            assert run_pramana("run", suite, "--model", f"{url}#any", "--quiet").returncode == 0
    third, second, first = (run["id"] for run in parse_json(run_pramana("runs", "--json")))
    models = [parse_json(run_pramana("show", run, "--json"))["models"][0] for run in (first, second, third)]
    worse = run_pramana("compare", first, second, "--model", models[0], "--new-model", models[1])
    assert worse.returncode == 1
    heading, answer = worse.stdout.split("\n\n", 1)
    assert f"before: {models[0]}, run {first} of" in " ".join(heading.split())
    assert answer.startswith("Regression between these two runs: of 40 cases, 40 that passed before fail now")
    better = run_pramana("compare", second, third, "--model", models[1], "--new-model", models[2], "--json")
    assert (better.returncode, parse_json(better)["verdict"]) == (0, "improvement")


@pytest.mark.parametrize(("bar", "code"), [("0.5", 0), ("1.0", 0), (None, 0)])
def test_the_exit_code_follows_fail_under(tmp_path: Path, bar: str | None, code: int) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 4)
    with run_server("--says", "Yes.") as url:
        arguments = ["--fail-under", bar] if bar else []
        assert run_pramana("run", suite, "--model", f"{url}#any", "--quiet", *arguments).returncode == code
    with run_server("--says", "No.") as url:
        assert run_pramana("run", suite, "--model", f"{url}#any", "--quiet", *arguments).returncode == (1 if bar else 0)


def test_ctrl_c_finishes_running_requests_and_the_run_can_be_resumed(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 400)
    with run_server("--says", "Yes.", "--latency", "0.1") as url:
        command = ["-m", "pramana", "run", str(suite), "--model", f"{url}#any", "--concurrency", "2"]
        with programs.start(command, env=make_environment()) as process:
            wait_until(lambda: count_stored_results() > 20)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
            assert process.stdout
            said = process.stdout.read()
        before = count_stored_results()
        assert 20 < before < 400
        resume = re.search(r"pramana run --resume (\S+)", said)
        assert resume, said
        done = run_pramana("run", "--resume", resume.group(1), "--json")
        assert (done.returncode, parse_json(done)["overall"]["passed"]) == (0, 400)
    assert_one_result_per_key(400)


def wait_until(holds: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def count_stored_results() -> int:
    store = open_store(home_store())
    try:
        return store.runs.find("latest").stored
    except NotFound:  # not made yet
        return 0
    finally:
        store.close()


def assert_one_result_per_key(count: int) -> None:
    store = open_store(home_store())
    keys = Counter(result.key for _, result in store.results.iterate(store.runs.find("latest").id))
    store.close()
    assert len(keys) == count
    assert set(keys.values()) == {1}


def test_a_wrong_key_stops_the_run_with_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 75)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    done = run_pramana("run", suite, "--model", "gpt-5")
    assert done.returncode == 3
    assert done.stderr.count("OPENAI_API_KEY") == 1
    assert "Traceback" not in done.stderr


def test_a_budget_stops_the_run_and_reports_what_is_left(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 200)
    with run_server("--says", "Yes.", "--latency", "0.005") as url:
        done = run_pramana(
            "run", suite, "--model", f"{url}#any", "--max-total-tokens", "200", "--concurrency", "2", "--json"
        )
        assert done.returncode == 3
        said = parse_json(done)
        assert said["status"] == "stopped"
        assert said["reason"] == "the run's limit of 200 tokens is reached"
        assert 0 < said["overall"]["passed"] < 200
        refused = run_pramana("run", suite, "--model", f"{url}#any", "--max-cost", "1")
    assert refused.returncode == 2
    assert "a cost limit needs a price, and no price is known for" in refused.stderr


CHILD = """
import asyncio, os, sys
from pramana import settings
from pramana.bench import execute
from pramana.request import Limits, RunRequest
from pramana.store import open_store
store = open_store(settings.database_url())
counted = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def watch(progress):
    keys = "\\n" + "".join(f"{result.key.case} {result.key.repeat}\\n" for result in progress.new_results)
    if progress.new_results:
        os.write(counted, keys.encode())
print("begun", flush=True)
asyncio.run(execute(store, store.runs.find("latest"), Limits(concurrency=int(sys.argv[2])), watch))
"""


def has_grown(path: Path, beyond: int) -> bool:
    return path.exists() and path.stat().st_size > beyond


def test_a_run_killed_at_50_random_moments_loses_no_stored_result(tmp_path: Path) -> None:
    from pramana.planning import create_run
    from pramana.request import RunRequest

    cases, repeats, kills = (
        1000,
        4,
        50,
    )  # more cases than fifty short processes can run, so that every kill hits a running run
    suite = write_suite(tmp_path / "mine.jsonl", cases)
    counted, chance = tmp_path / "counted", random.Random(42)
    progressed = 0
    with run_server("--says", "Yes.", "--latency", "0.06") as url:
        store = open_store(home_store())
        create_run(store, RunRequest(paths=(suite,), models=(f"{url}#any",), repeats=repeats))
        store.close()
        for number in range(kills):
            before = counted.stat().st_size if counted.exists() else 0
            with programs.start(["-c", CHILD, str(counted), "16"], env=make_environment()) as process:
                assert process.stdout is not None
                if number % 5:  # every fifth kill comes at any moment, including startup
                    assert process.stdout.readline() == "begun\n"
                if number % 5 > 2:  # and some between two commits, even on a slow machine
                    wait_until(partial(has_grown, counted, before))
                with pytest.raises(subprocess.TimeoutExpired):  # it is still at work when it is killed
                    process.wait(chance.uniform(0.02, 0.3))
                process.kill()
            progressed += has_grown(counted, before)
        done = programs.run(["-c", CHILD, str(counted), "200"], env=make_environment())
        assert done.returncode == 0, done.stderr
    assert progressed >= 10  # many were killed between two commits, not before the first
    assert_one_result_per_key(cases * repeats)
    store = open_store(home_store())
    kept = {
        f"{result.key.case} {result.key.repeat}" for _, result in store.results.iterate(store.runs.find("latest").id)
    }
    store.close()
    lines = [each for each in counted.read_text(encoding="ascii").split("\n") if each]
    reported = [each for each in lines if re.fullmatch(r"sha256:[0-9a-f]{64} \d", each)]
    assert len(lines) - len(reported) <= kills  # a kill during a write leaves half a line
    assert set(reported) <= kept
    assert len(reported) == len(set(reported))


def test_rescore_judges_a_run_without_new_model_calls() -> None:
    assert run_pramana("run", "--category", "creative", "--model", "fake:echo", "--quiet").returncode == 0
    before = parse_json(run_pramana("show", "--json"))
    assert (before["overall"]["unscored"], before["overall"]["passed"]) == (1, 0)
    with run_server("--says", "The words decide it.\nYES") as url:
        again = run_pramana("rescore", "latest", "--judge", f"{url}#judge", "--json")
        assert again.returncode == 0, again.stderr
    assert parse_json(again)["overall"]["passed"] == 1
    (block,) = parse_json(run_pramana("export"))
    assert [each["calibration"] for each in block["summary"].pop("judges")] == ["uncalibrated"]
    assert block["summary"] == {"total": 1, "passed": 1, "skipped": 0, "pass_rate": 1.0}
    refused = run_pramana("rescore", "latest", "--judge", "local")
    assert (refused.returncode, "cannot judge" in refused.stderr) == (2, True)


def test_scenarios_can_be_judged_by_another_model(tmp_path: Path) -> None:
    ratings = '{"completed": "yes", "accuracy": 9, "helpfulness": 8, "naturalness": 7, "efficiency": 6, "reasons": {}}'
    scenario = tmp_path / "one.yaml"
    scenario.write_text(
        "id: booking-ferry\nname: Ferry\ntype: task-completion\nprompt: Two adults, please.\n"
        "expected_outcome: Repeats the two adults and asks for the date\n",
        encoding="utf-8",
    )
    with run_server("--says", f"It does.\n{ratings}") as url:
        done = run_pramana("run", scenario, "--model", "fake:echo", "--judge", f"{url}#judge", "--json")
    assert (done.returncode, parse_json(done)["overall"]["passed"]) == (0, 1)


def test_a_configured_command_can_be_the_model(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 3, ideal="SAY YES")
    home = settings.data_folder()
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text('[commands.loud]\nargv = ["tr", "a-z", "A-Z"]\n', encoding="utf-8")
    done = run_pramana("run", suite, "--model", "command:loud", "--json")
    assert (done.returncode, parse_json(done)["overall"]["passed"]) == (0, 3), done.stderr
    (home / "config.toml").write_text('[commands.loud]\nargv = "tr"\n', encoding="utf-8")
    refused = run_pramana("run", suite, "--model", "command:loud")
    assert (refused.returncode, "commands.loud.argv: write a command as argv" in refused.stderr) == (2, True)


def test_the_model_list_is_cached_for_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    with run_server() as url:
        monkeypatch.setenv("COMPATIBLE_BASE_URL", url)
        offers = parse_json(run_pramana("models", "--json"))
        assert offers["compatible"]["models"]
        assert offers["local"] == {"models": ["SmolLM2-135M-Instruct"], "problem": None}
    kept = parse_json(run_pramana("models", "--json"))
    assert kept == offers
    anew = run_pramana("models", "--refresh")
    assert anew.returncode == 0
    assert "compatible" in anew.stdout
    assert run_pramana("models", "pull").returncode == 0


def test_a_selection_has_neither_the_name_nor_the_hash_of_its_tier() -> None:
    assert run_pramana("run", "--model", "fake:echo", "--difficulty", "easy", "--limit", "2", "--quiet").returncode == 0
    (run,) = parse_json(run_pramana("runs", "--json"))
    assert (run["suite"], run["suite_hash"], run["expected"]) == ("v1.0-cheap (selection)", None, 2)


def test_a_run_held_by_another_process_cannot_be_resumed(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 300)
    with run_server("--says", "Yes.", "--latency", "0.1") as url:
        command = ["-m", "pramana", "run", str(suite), "--model", f"{url}#any", "--concurrency", "4"]
        with programs.start(command, env=make_environment()) as first:
            wait_until(lambda: count_stored_results() > 8)
            second = run_pramana("run", "--resume", "latest", "--quiet")
            assert second.returncode == 3
            (sentence,) = second.stderr.strip().splitlines()
            named = (
                rf"pramana: process {first.pid} on .+ is running run \S+: wait until that process has ended, or stop it"
            )
            assert re.fullmatch(named, sentence)
            assert first.poll() is None
            first.kill()
        begun = time.monotonic()
        done = run_pramana("run", "--resume", "latest", "--json", "--concurrency", "64")
        assert (done.returncode, parse_json(done)["overall"]["passed"]) == (0, 300), done.stderr
        assert time.monotonic() - begun < 30  # it did not wait for the lease, which lasts a minute
        again = run_pramana("run", "--resume", "latest", "--json")
        assert (again.returncode, parse_json(again)["status"]) == (0, "finished")
    assert_one_result_per_key(300)


def test_an_account_without_credit_stops_the_run_with_one_sentence(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 75)
    with run_server("--says", "Yes.", "--fault", "unpaid") as url:
        done = run_pramana("run", suite, "--model", f"{url}#any", "--concurrency", "4")
        asked = json.loads(urllib.request.urlopen(f"{url.removesuffix('/v1')}/loopback").read())["requests"]  # noqa: S310
    assert done.returncode == 3
    assert asked <= 4
    (sentence,) = (line for line in done.stderr.splitlines() if line.startswith("pramana: "))
    assert "is out of credit, or over its spending limit (429)" in sentence
    assert "Traceback" not in done.stderr
    assert "pramana run --resume" in done.stderr


def test_a_process_that_lost_its_lease_leaves_the_run_to_its_successor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pramana.bench import run_sync
    from pramana.errors import AlreadyRunning
    from pramana.planning import create_run
    from pramana.request import Limits, RunRequest
    from pramana.run.engine import Stop
    from pramana.store import queue

    monkeypatch.setattr(queue, "LEASE_S", 0.2)
    suite = write_suite(tmp_path / "mine.jsonl", 500)
    store, stop = open_store(home_store()), Stop()
    run = create_run(store, RunRequest(paths=(suite,), models=("fake:latency=0.05,fixed=Yes",)))

    def sleep_through_it(_: object) -> None:
        if store.queue.find_holder(run.id) != "a rival":
            time.sleep(0.4)
            assert store.queue.claim(run.id, "a rival", 60)

    ended = run_sync(store, run, Limits(concurrency=4), sleep_through_it, stop)
    assert isinstance(stop.error, AlreadyRunning)
    noticed = (
        r"a rival (has taken over|is running) run"  # when a result is stored, or by the heartbeat: whichever is first
    )
    assert re.search(noticed, str(stop.error))
    assert (ended.status, store.queue.find_holder(run.id)) == ("running", "a rival"), (
        "how it ends is the other's to say"
    )
    assert 0 < ended.stored < 500
    store.close()


def test_a_run_that_cannot_start_writes_no_id_file(tmp_path: Path) -> None:
    suite, file = write_suite(tmp_path / "mine.jsonl", 3), tmp_path / "id"
    done = run_pramana("run", suite, "--model", "gpt-5", "--quiet", "--id-file", file)
    assert (done.returncode, "set OPENAI_API_KEY" in done.stderr) == (3, True)
    assert not file.exists()
    assert parse_json(run_pramana("runs", "--json")) == []


def test_a_failed_resume_keeps_the_id_file(tmp_path: Path) -> None:
    from pramana.planning import create_run
    from pramana.request import RunRequest

    suite, file = write_suite(tmp_path / "mine.jsonl", 3), tmp_path / "id"
    done = run_pramana("run", suite, "--model", "fake", "--max-total-tokens", "1", "--concurrency", "1", "--quiet")
    assert done.returncode == 3, done.stderr
    (old,) = parse_json(run_pramana("runs", "--json"))
    with closing(open_store(settings.database_url())) as store:
        for _ in range(51):  # a list of runs has 50
            create_run(store, RunRequest(paths=(suite,), models=("fake",)))
    prices = settings.prices_file_path()
    prices.parent.mkdir(parents=True, exist_ok=True)
    prices.write_text("[prices.fake]\ninput_per_million = true", encoding="utf-8")
    done = run_pramana("run", "--resume", old["id"], "--quiet", "--id-file", file)
    assert done.returncode != 0, done.stdout
    assert file.read_text(encoding="utf-8").strip() == old["id"]


def test_compare_reports_excluded_cases() -> None:
    for model in ("fake:echo", "fake:fixed=x"):
        done = run_pramana("run", "--tier", "moderate", "--model", model, "--judge", "fake:fixed=perhaps", "--quiet")
        assert done.returncode == 0, done.stderr
    runs = [each["id"] for each in parse_json(run_pramana("runs", "--json"))]
    done = run_pramana("compare", *runs)
    assert "cases have no verdict on one side or both" in " ".join(done.stdout.split()), done.stdout
