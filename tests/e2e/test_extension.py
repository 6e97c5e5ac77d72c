"""A third-party package, built and installed separately, extends the program in all four ways."""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

CASES = [
    {"id": "coding-001", "category": "coding", "input": "polly", "ideal": "POLLY"},
    {"id": "coding-002", "category": "coding", "input": "a cracker", "ideal": "biscuit"},
]
SHARED = {"assertion": {"type": "is_loud"}, "metadata": {"difficulty": "easy", "tokens_est": 2}}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "calls.jsonl"
    path.write_text("".join(f"{json.dumps(case | SHARED)}\n" for case in CASES), encoding="utf-8")
    return path


def run_program(extension: Path, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    environment = {**os.environ, "PYTHONPATH": str(extension)}  # noqa: TID251 - a child gets what we have
    command = [sys.executable, "-m", *arguments] if arguments[0] == "pramana" else [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, check=False, timeout=120)


def test_all_four_extension_kinds_work_on_the_command_line(extension: Path, suite: Path, tmp_path: Path) -> None:
    scorers = ("--scorer", "fidelity", "--scorer", "volume", "--judge", "fake:fixed=0.75")
    ran = run_program(extension, "pramana", "run", str(suite), "--model", "parrot:loud", *scorers, "--json")
    found: dict[str, Any] = json.loads(ran.stdout)
    assert (ran.returncode, found["status"]) == (0, "finished"), ran.stderr
    assert {name: (each["passed"], each["failed"]) for name, each in found["by"]["check"].items()} == {
        "is_loud": (1, 1),
        "fidelity": (2, 0),
    }
    assert [(each["check"], each["version"], each["mean"], each["labels"]) for each in found["scores"]] == [
        ("fidelity", "3", 0.75, {}),
        ("volume.letters", "1", 7.0, {}),
        ("volume.level", "1", None, {"loud": 2}),
    ]
    assert found["judge_tokens"]["total"] > 0
    assert [(each["case"], each["reason"]) for each in found["failures"]] == [("coding-002", "is_loud returned False")]

    exported = run_program(extension, "pramana", "export", "--format", "phrases")
    lines = exported.stdout.decode().splitlines()
    assert (lines[0], sorted(lines[1:])) == ("calls", ["a cracker -> A CRACKER", "polly -> POLLY"])
    packed = run_program(extension, "pramana", "export", "--format", "packed").stdout
    assert sorted(zlib.decompress(packed).decode().split("\n")) == ["A CRACKER", "POLLY"]
    filed = run_program(extension, "pramana", "export", "--format", "packed", "--output", str(tmp_path / "a.z"))
    assert (filed.returncode, (tmp_path / "a.z").read_bytes()) == (0, packed)


def test_a_binary_export_is_refused_on_a_terminal(extension: Path) -> None:
    assert run_program(extension, "pramana", "run", "--model", "fake:echo", "--limit", "1").returncode == 0
    ours, theirs = os.openpty()
    try:
        environment = {**os.environ, "PYTHONPATH": str(extension)}  # noqa: TID251 - a child gets what we have
        command = [sys.executable, "-m", "pramana", "export", "--format", "packed"]
        refused = subprocess.run(
            command, env=environment, stdout=theirs, stderr=subprocess.PIPE, text=True, check=False, timeout=120
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert refused.returncode == 2
    assert "packed is binary and cannot be printed; name a file: --output RUN.z" in refused.stderr


def test_all_four_extension_kinds_work_from_python(extension: Path, suite: Path, tmp_path: Path) -> None:
    code = f"""
import pramana
report = pramana.evaluate({str(suite)!r}, model="parrot:quiet", scorers=["volume"], repeat=2)
print(report.pass_rate, [(each.check, each.labels) for each in report.summary.scores][1])
print(report.save({str(tmp_path / "a.phrases")!r}).read_text().count("polly -> polly"))
"""
    ran = run_program(extension, "-c", code)
    assert ran.stdout.decode().splitlines() == ["0.0 ('volume.level', {'quiet': 4})", "2"], ran.stderr


def test_an_unknown_format_error_lists_installed_formats_too(extension: Path) -> None:
    refused = run_program(extension, "pramana", "export", "--format", "nope")
    assert refused.returncode == 2
    assert "'nope' is not one of 'json', 'jsonl', 'csv', 'parquet'" in refused.stderr.decode()
    assert "'phrases'" in refused.stderr.decode()


def test_without_the_package_each_extension_is_refused_by_name(suite: Path) -> None:
    nothing = Path("nowhere")
    for arguments, message in (
        (("run", str(suite), "--model", "fake"), "[0].assertion.type: Invalid assertion"),
        (("run", "--model", "parrot:loud"), 'unknown provider "parrot"'),
        (("run", "--model", "fake", "--scorer", "fidelity"), '--scorer: no scorer is named "fidelity"'),
        (("export", "--format", "phrases"), "'phrases' is not one of 'json', 'jsonl', 'csv', 'parquet'"),
    ):
        refused = run_program(nothing, "pramana", *arguments)
        assert refused.returncode == 2
        assert message in refused.stderr.decode()


def test_a_run_cannot_be_resumed_without_its_scorer(extension: Path, suite: Path) -> None:
    limited = ("--max-total-tokens", "1", "--concurrency", "1")
    ran = run_program(extension, "pramana", "run", str(suite), "--model", "parrot:loud", "--scorer", "volume", *limited)
    assert b"the run's limit of 1 token is reached" in ran.stderr
    refused = run_program(Path("nowhere"), "pramana", "run", "--resume", "latest")
    assert refused.returncode == 2
    assert b'no scorer is named "volume"' in refused.stderr
    raised = ("--max-total-tokens", "none")
    assert run_program(extension, "pramana", "run", "--resume", "latest", *raised).returncode == 0
