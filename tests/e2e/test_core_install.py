"""A core install without extras: everything works but the server, sound and embedded models, which say what to install."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pramana.installation import make_install_command

SERVER = ("cryptography", "fastapi", "fastapi_offline", "httptools", "nicegui", "starlette", "uvicorn")
EXTRAS = (
    *SERVER,
    "ctranslate2",
    "mcp",
    "numpy",
    "onnxruntime",
    "pandas",
    "polars",
    "psycopg",
    "soundfile",
    "xllamacpp",
)
ABSENT = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}))\n"


def run_python(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in an environment in which no package of an extra can be imported."""
    command = [sys.executable, "-c", ABSENT + code, *arguments]
    environment = {**os.environ, "PRAMANA_HOME": str(folder)}  # noqa: TID251 - a child gets what we have
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False, timeout=60)


def run_pramana(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "sys.argv[0] = 'pramana'; from pramana.__main__ import main; sys.exit(main())"
    return run_python(folder, code, *arguments)


def test_a_core_install_runs_compares_and_exports(tmp_path: Path) -> None:
    first = run_pramana(tmp_path, "run", "--model", "fake:echo", "--judge", "fake", "--json")
    assert first.returncode == 0, first.stderr
    second = run_pramana(tmp_path, "run", "--model", "fake:echo", "--judge", "fake", "--json")
    run, again = (json.loads(each.stdout)["run"] for each in (first, second))
    for arguments in (
        ("runs",), ("show", run), ("compare", run, again), ("rescore", run, "--judge", "fake"), ("suite", "verify", "v1.0"),
        ("export", run, "--format", "html"), ("export", run, "--format", "markdown"), ("scenarios", "import", "library:"),
        ("models",), ("token", "list"),
    ):  # fmt: skip
        done = run_pramana(tmp_path, *arguments)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"


def test_a_core_install_can_use_the_library(tmp_path: Path) -> None:
    code = """
import pramana
report, again = (pramana.evaluate({"input": "Say hello.", "ideal": "hello"}, model=str.lower) for _ in range(2))
report.save("report.html")
print(report.pass_rate, pramana.compare(report, again).verdict, len(report._repr_html_()) > 100)
"""
    done = run_python(tmp_path, code)
    assert done.stdout == "1.0 no_change True\n", done.stderr


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("serve",), "server"),
        (("mcp",), "mcp"),
        (("run",), "local"),
        (("run", "library:information-retrieval", "--model", "fake-voice"), "voice"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_missing_extra_is_named(tmp_path: Path, arguments: tuple[str, ...], extra: str) -> None:
    done = run_pramana(tmp_path, *arguments)
    assert done.returncode in (2, 3), done.stderr
    said = done.stdout + done.stderr
    assert make_install_command(extra) in " ".join(said.split())  # a summary wraps it
    assert "Traceback" not in said
    assert "defect" not in said
