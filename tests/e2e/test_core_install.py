"""Without any extra, everything works but the server, sound and embedded models, and those say what to install."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pramana.installation import install_command

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


def python(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in an environment in which no package of an extra can be imported."""
    command = [sys.executable, "-c", ABSENT + code, *arguments]
    environment = {**os.environ, "PRAMANA_HOME": str(folder)}  # noqa: TID251 - a child gets what we have
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False, timeout=60)


def pramana(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = "sys.argv[0] = 'pramana'; from pramana.__main__ import main; sys.exit(main())"
    return python(folder, code, *arguments)


def test_runs_are_made_compared_and_exported(tmp_path: Path) -> None:
    first = pramana(tmp_path, "run", "--model", "fake:echo", "--judge", "fake", "--json")
    assert first.returncode == 0, first.stderr
    second = pramana(tmp_path, "run", "--model", "fake:echo", "--judge", "fake", "--json")
    run, again = (json.loads(each.stdout)["run"] for each in (first, second))
    for arguments in (
        ("runs",), ("show", run), ("compare", run, again), ("rescore", run, "--judge", "fake"), ("suite", "verify", "v1.0"),
        ("export", run, "--format", "html"), ("export", run, "--format", "markdown"), ("scenarios", "import", "library:"),
        ("models",), ("token", "list"),
    ):  # fmt: skip
        done = pramana(tmp_path, *arguments)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"


def test_the_library_works(tmp_path: Path) -> None:
    code = """
import pramana
report, again = (pramana.evaluate({"input": "Say hello.", "ideal": "hello"}, model=str.lower) for _ in range(2))
report.save("report.html")
print(report.pass_rate, pramana.compare(report, again).verdict, len(report._repr_html_()) > 100)
"""
    done = python(tmp_path, code)
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
def test_what_needs_an_extra_names_it(tmp_path: Path, arguments: tuple[str, ...], extra: str) -> None:
    done = pramana(tmp_path, *arguments)
    assert done.returncode in (2, 3), done.stderr
    said = done.stdout + done.stderr
    assert install_command(extra) in " ".join(said.split())  # a summary wraps it
    assert "Traceback" not in said
    assert "defect" not in said
