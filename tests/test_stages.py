"""`make test` says what it will take, shows each stage, and ends with one line about what passed and what failed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

STAGES = Path(__file__).parent.parent / ".ci" / "stages.py"
MAKE = """#!/bin/sh
[ -d "$VENV" ] || mkdir -p "$VENV"
case "$2" in
  "$FAILS") echo "$PRINTS"; exit 2 ;;
  tests) echo "...... [100%]"; echo "1200 passed, 1 skipped in 33.10s" ;;
esac
"""
"""Stands in for make: the stages themselves are what CI runs."""


def run(folder: Path, fails: str = "", prints: str = "") -> "subprocess.CompletedProcess[str]":
    make = folder / "make"
    make.write_text(MAKE)
    make.chmod(0o755)
    environment = {**os.environ, "MAKE": str(make), "VENV": str(folder / "venv"), "FAILS": fails, "PRINTS": prints}  # noqa: TID251 - as make passes it on
    return subprocess.run(
        [sys.executable, STAGES], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_all_stages_pass_and_the_next_estimate_is_what_they_took(tmp_path: Path) -> None:
    first = run(tmp_path)
    assert first.returncode == 0, first
    lines = first.stdout.splitlines()
    assert lines[0].startswith("make test: 7 stages, about ")
    assert "min" in lines[0]
    assert "[7/7] tests: run the tests" in first.stdout
    assert "[7/7] tests: passed after 0 s" in lines
    assert lines[-1].startswith(
        "Passed: setup-test, system, lint, types, layers, docs, tests (1200 passed, 1 skipped). "
    )
    assert run(tmp_path).stdout.splitlines()[0] == "make test: 7 stages, about 0 s (as long as last time)."


def test_a_failed_test_is_named_with_the_command_that_runs_it_again(tmp_path: Path) -> None:
    printed = "FAILED tests/a.py::test_b[it's] - assert 1 == 2\nERROR tests/c.py::test_d\n2 failed, 9 passed in 3.10s"
    found = run(tmp_path, "tests", printed)
    assert found.returncode == 1
    last = found.stdout.splitlines()[-1]
    assert last.startswith(
        "Passed: setup-test, system, lint, types, layers, docs. FAILED: tests (2 failed, 9 passed); run again: "
    )
    assert """/bin/pytest 'tests/a.py::test_b[it'"'"'s]' tests/c.py::test_d.""" in last


def test_a_failed_check_does_not_hide_the_tests(tmp_path: Path) -> None:
    found = run(tmp_path, "types", "src/a.py:1: error: no")
    assert found.returncode == 1
    assert "src/a.py:1: error: no" in found.stdout
    assert "[7/7] tests: passed after" in found.stdout
    last = found.stdout.splitlines()[-1]
    assert "FAILED: types; run again: make types." in last
    assert last.startswith("Passed: setup-test, system, lint, layers, docs, tests.")


@pytest.mark.parametrize("stage", ["setup-test", "system"])
def test_nothing_runs_without_its_environment(tmp_path: Path, stage: str) -> None:
    found = run(tmp_path, stage, "no network")
    assert found.returncode == 1
    assert "[7/7]" not in found.stdout
    assert "Not run: " in found.stdout.splitlines()[-1]
    assert f"FAILED: {stage}; run again: make {stage}." in found.stdout.splitlines()[-1]
