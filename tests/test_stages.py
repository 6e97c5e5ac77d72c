"""`make test` prints an estimate, shows each stage, and ends with a line on what passed and what failed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
STAGES = ROOT / ".ci" / "stages.py"
MAKE = """#!/bin/sh
[ -d "$VENV" ] || mkdir -p "$VENV"
case "$2" in
  "$FAILS") echo "$PRINTS"; exit 2 ;;
  "$HANGS") trap '' INT; trap 'echo ended; exit 1' TERM; echo $$ > "$VENV/pid"; echo begun; while :; do sleep 0.1; done ;;
  tests) echo "...... [100%]"; echo "1200 passed, 1 skipped in 33.10s" ;;
esac
"""
"""Replaces make: CI runs the real stages."""


def make_environment(folder: Path, **given: str) -> dict[str, str]:
    make = folder / "make"
    make.write_text(MAKE)
    make.chmod(0o755)
    given = {"FAILS": "", "PRINTS": "", "HANGS": "", **given}
    return {**os.environ, "MAKE": str(make), "VENV": str(folder / "venv"), **given}  # noqa: TID251 - as the Makefile does


def run_stages(folder: Path, fails: str = "", prints: str = "") -> "subprocess.CompletedProcess[str]":
    given = make_environment(folder, FAILS=fails, PRINTS=prints)
    return subprocess.run([sys.executable, STAGES], env=given, capture_output=True, text=True, timeout=60, check=False)


def test_all_stages_pass_and_their_times_are_the_next_estimate(tmp_path: Path) -> None:
    first = run_stages(tmp_path)
    assert first.returncode == 0, first
    lines = first.stdout.splitlines()
    assert lines[0].startswith("make test: 7 stages, about ")
    assert "min" in lines[0]
    assert "[7/7] tests: run the tests" in first.stdout
    assert re.search(r"^\[7/7\] tests: passed after \d+ s$", first.stdout, re.MULTILINE)
    assert lines[-1].startswith(
        "Passed: setup-test, system, lint, types, layers, docs, tests (1200 passed, 1 skipped). "
    )
    took = {"setup-test": 60.0, "system": 1.0, "lint": 9.0, "types": 99.0, "layers": 9.0, "docs": 9.0, "tests": 300.0}
    seconds = tmp_path / "venv" / ".stage-seconds.json"
    assert json.loads(seconds.read_text()).keys() == took.keys()
    seconds.write_text(json.dumps(took))
    assert run_stages(tmp_path).stdout.splitlines()[0] == "make test: 7 stages, about 6 min 1 s (as long as last time)."


def test_a_failed_test_is_named_with_the_command_to_rerun_it(tmp_path: Path) -> None:
    printed = "ERROR    asyncio:base_events.py:1821 Task\n=== short test summary info ===\nFAILED tests/a.py::test_b[it's] - assert 1 == 2\nERROR tests/c.py::test_d\n2 failed, 9 passed in 3.10s"
    found = run_stages(tmp_path, "tests", printed)
    assert found.returncode == 1
    last = found.stdout.splitlines()[-1]
    assert last.startswith(
        "Passed: setup-test, system, lint, types, layers, docs. FAILED: tests (2 failed, 9 passed); run again: "
    )
    assert """/bin/pytest 'tests/a.py::test_b[it'"'"'s]' tests/c.py::test_d.""" in last


def test_a_failed_check_does_not_hide_the_tests(tmp_path: Path) -> None:
    found = run_stages(tmp_path, "types", "src/a.py:1: error: no")
    assert found.returncode == 1
    assert "src/a.py:1: error: no" in found.stdout
    assert "[7/7] tests: passed after" in found.stdout
    last = found.stdout.splitlines()[-1]
    assert "FAILED: types; run again: make types." in last
    assert last.startswith("Passed: setup-test, system, lint, layers, docs, tests.")


@pytest.mark.parametrize("stage", ["setup-test", "system"])
def test_nothing_runs_without_the_virtual_environment(tmp_path: Path, stage: str) -> None:
    found = run_stages(tmp_path, stage, "no network")
    assert found.returncode == 1
    assert "[7/7]" not in found.stdout
    assert "Not run: " in found.stdout.splitlines()[-1]
    assert f"FAILED: {stage}; run again: make {stage}." in found.stdout.splitlines()[-1]


@pytest.mark.parametrize(("flags", "code"), [("n", 0), ("i", 2), ("kt", 2)])
def test_no_success_is_reported_when_make_runs_nothing(tmp_path: Path, flags: str, code: int) -> None:
    given = {**make_environment(tmp_path), "MAKEFLAGS": flags}
    done = subprocess.run([sys.executable, STAGES], env=given, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == code
    assert "nothing was run" in done.stdout
    assert "Passed" not in done.stdout


def test_a_signal_to_make_reaches_the_stages(tmp_path: Path) -> None:
    out = tmp_path / "out"
    given = {**make_environment(tmp_path, HANGS="tests"), "PYTHON": sys.executable}
    (tmp_path / "Makefile").write_text(
        re.sub(r"(?m)^test: python", "test:", (ROOT / "Makefile").read_text()).replace(".ci/stages.py", str(STAGES))
    )
    with out.open("w") as file:
        made = ["make", f"MAKE={given['MAKE']}", f"VENV={given['VENV']}", "test"]
        process = subprocess.Popen(made, cwd=tmp_path, env=given, stdout=file, stderr=subprocess.STDOUT)
        until = time.monotonic() + 60
        while "begun" not in (said := out.read_text()):
            assert time.monotonic() < until, said
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) != 0
        while "Interrupted." not in (said := out.read_text()):
            assert time.monotonic() < until, said
            time.sleep(0.05)
    assert "ended" in said


def test_no_process_is_left_after_two_interrupts(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with out.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, STAGES],
            env=make_environment(tmp_path, HANGS="tests"),
            stdout=file,
            stderr=subprocess.STDOUT,
        )
        until = time.monotonic() + 60
        while "begun" not in (said := out.read_text()):
            assert time.monotonic() < until, said
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
    stage = Path("/proc", (tmp_path / "venv" / "pid").read_text().strip(), "stat")
    with suppress(FileNotFoundError, ProcessLookupError):  # it is gone
        while " Z " not in stage.read_text():
            assert time.monotonic() < until, "the stage still runs"
            time.sleep(0.05)


def test_any_leftover_of_an_earlier_run_is_tolerated(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    for odd in ('{"tests": NaN}', '{"tests": 1e400}', "[]", '{"tests": -1}'):
        (tmp_path / "venv" / ".stage-seconds.json").write_text(odd)
        assert run_stages(tmp_path).returncode == 0


@pytest.mark.parametrize("stage", ["tests", "types"])
def test_stopping_ends_running_stages_and_starts_no_more(tmp_path: Path, stage: str) -> None:
    out = tmp_path / "out"
    with out.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, STAGES], env=make_environment(tmp_path, HANGS=stage), stdout=file, stderr=subprocess.STDOUT
        )
        until = time.monotonic() + 60
        while "lint: passed" not in (said := out.read_text()) or (stage == "tests" and "begun" not in said):
            assert time.monotonic() < until, said
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
    said = out.read_text()
    assert "Interrupted." in said
    if stage == "types":
        assert "layers" not in said
    else:
        assert "ended" in said


def test_a_stage_that_starts_during_a_stop_is_ended(tmp_path: Path) -> None:
    """`stop()` between the start of a process and its place in the list used to leave it running forever."""
    slow = tmp_path / "slow.py"
    slow.write_text(f"""
import importlib.util, subprocess, sys
spec = importlib.util.spec_from_file_location("stages", {str(STAGES)!r})
stages = sys.modules["stages"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stages)
start = subprocess.Popen
def popen(*args, **kwargs):
    process = start(*args, **kwargs)
    stages.stop(at_once=True)
    return process
subprocess.Popen = popen
stages.run(next(stage for stage in stages.STAGES if stage.target == "types"), 1.0)
print(stages.running)
""")
    given = make_environment(tmp_path, HANGS="types")
    made = subprocess.run([sys.executable, slow], env=given, capture_output=True, text=True, timeout=60, check=False)
    assert "types: FAILED" in made.stdout, made
    assert made.stdout.endswith("[]\n")
