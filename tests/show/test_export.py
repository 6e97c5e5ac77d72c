"""`pramana export` and `run --output`: the format follows the file ending, and errors come before anything is sent."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from .test_cli import CASE, pramana

CASES = [{**CASE, "id": f"coding-{number:03}", "input": f"Case {number}"} for number in range(3)]
STARTS = {
    "json": "[\n{",
    "jsonl": '{"test_id": "coding-000"',
    "csv": "test_id,model,",
    "xml": "<?xml",
    "md": "### mine",
    "html": "<!doctype html>",
}


@pytest.fixture(name="suite")
def _suite(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, CASES)), encoding="utf-8")
    return path


@pytest.mark.parametrize("ending", STARTS)
def test_the_file_ending_selects_the_format(suite: Path, tmp_path: Path, ending: str) -> None:
    written, exported = tmp_path / f"run.{ending}", tmp_path / f"export.{ending.upper()}"
    assert pramana("run", suite, "--model", "fake:echo", "--output", written).returncode == 0
    assert pramana("export", "latest", "--output", exported).returncode == 0
    assert written.read_text(encoding="utf-8").startswith(STARTS[ending])
    assert exported.read_bytes() == written.read_bytes()


def test_an_explicit_format_overrides_the_file_ending(suite: Path, tmp_path: Path) -> None:
    pramana("run", suite, "--model", "fake:echo")
    for name, ending in (("md", "md"), ("markdown", "md"), ("xml", "xml"), ("junit", "xml"), ("csv", "csv")):
        exported = tmp_path / "report.html"
        assert pramana("export", "--format", name, "--output", exported).returncode == 0
        assert exported.read_text(encoding="utf-8").startswith(STARTS[ending])
        assert pramana("export", "--format", name).stdout.startswith(STARTS[ending])


def test_a_file_without_an_ending_is_json(suite: Path, tmp_path: Path) -> None:
    pramana("run", suite, "--model", "fake:echo", "--output", tmp_path / "results")
    assert json.loads((tmp_path / "results").read_text(encoding="utf-8"))[0]["suite_version"] == "mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("report.pdf", 'report.pdf: unknown file ending ".pdf"; use .html, .md, .json, .jsonl, .csv, .parquet or .xml'),
        ("reports/new/report.md", "cannot be written: No such file or directory; create the folder"),
    ],
)
def test_an_unwritable_output_is_refused_before_anything_is_sent(
    suite: Path, tmp_path: Path, name: str, message: str
) -> None:
    refused = pramana("run", suite, "--model", "fake:echo", "--output", tmp_path / name)
    assert (refused.returncode, message in refused.stderr) == (2, True)
    assert json.loads(pramana("runs", "--json").stdout) == []
    pramana("run", suite, "--model", "fake:echo")
    again = pramana("export", "--output", tmp_path / name)
    assert (again.returncode, message in again.stderr) == (2, True)
    assert not (tmp_path / name).exists()


def test_several_runs_are_exported_to_one_file_in_command_order(suite: Path, tmp_path: Path) -> None:
    for _ in range(2):
        pramana("run", suite, "--model", "fake:echo")
    newest, oldest = (each["id"] for each in json.loads(pramana("runs", "--json").stdout))
    lines = tmp_path / "all.jsonl"
    assert pramana("export", oldest, newest, "latest", "--output", lines).returncode == 0
    read = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    ids = [str(each["id"]) for each in CASES]
    assert [(each["run_id"], each["test_id"]) for each in read] == [
        *((oldest, name) for name in ids),
        *((newest, name) for name in ids),
    ]
    some = pramana("export", oldest, newest, "--id", ids[1], "--format", "csv").stdout.splitlines()
    assert [each.partition(",")[0] for each in some] == ["test_id", ids[1], ids[1]]
    blocks = json.loads(pramana("export", oldest, newest).stdout)
    assert [each["run_metadata"]["run_id"] for each in blocks] == [oldest, newest]
    refused = pramana("export", oldest, newest, "--output", tmp_path / "all.html")
    assert (refused.returncode, (tmp_path / "all.html").exists()) == (2, False)
    assert "html files hold one run each; export each run to its own file" in refused.stderr


def test_parquet_is_written_to_a_file_and_to_a_pipe(suite: Path, tmp_path: Path) -> None:
    import pandas as pd

    pramana("run", suite, "--model", "fake:echo")
    assert pramana("export", "--output", tmp_path / "a.parquet").returncode == 0
    piped = subprocess.run(
        [sys.executable, "-m", "pramana", "export", "--format", "parquet"], capture_output=True, timeout=60, check=True
    )
    for read in (pd.read_parquet(tmp_path / "a.parquet"), pd.read_parquet(io.BytesIO(piped.stdout))):
        assert read["test_id"].tolist() == [each["id"] for each in CASES]


def test_the_help_says_that_the_latest_run_is_the_default() -> None:
    assert "RUN [default: latest]" in " ".join(pramana("export", "--help").stdout.split())


def test_models_that_are_never_cached_are_noted_once(suite: Path) -> None:
    asked = ("run", suite, "--model", "python:builtins:str", "--model", "fake:echo", "--judge", "python:builtins:ascii")
    noted = pramana(*asked, "--cache")
    note = (
        "Note: --cache has no effect on python:builtins:str, python:builtins:ascii: "
        "functions and commands are never cached.\n"
    )
    assert (noted.returncode, noted.stderr.count(note)) == (0, 1)
    assert "Note:" not in pramana(*asked).stderr
    assert "Note:" not in pramana("run", suite, "--model", "fake:echo", "--cache").stderr
