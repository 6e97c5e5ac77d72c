"""The wheel: it contains the whole package and runs in its own environment, away from the checkout."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh environment with the wheel. It borrows the dependencies of this environment, but not the checkout.

    A `.pth` file would lead to the checkout as well, since the editable install has one: a path that is named by
    another `.pth` is searched for modules, and its own `.pth` files are not read.
    """
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    here = next(path for path in sys.path if path.endswith("site-packages"))
    (packages / "locked.pth").write_text(f"{here}\n", encoding="utf-8")
    install = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "install", "-q"]
    options = ["--disable-pip-version-check", "--no-deps", "--no-index", "--no-compile", "--ignore-installed"]
    subprocess.run([*install, *options, str(wheel)], check=True, capture_output=True)
    return folder


def run_in(environment: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "PRAMANA_HOME")}  # noqa: TID251 - nothing of the checkout
    command = [str(environment / "bin" / arguments[0]), *arguments[1:]]
    return subprocess.run(command, cwd=folder, env=kept, capture_output=True, text=True, check=False, timeout=120)


def test_the_wheel_contains_everything(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    source = ROOT / "src"
    shipped = {
        path.relative_to(source).as_posix()
        for path in (source / "pramana").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped <= inside
    assert {"pramana/py.typed", "pramana/suites/v1.0/manifest.toml"} <= shipped
    assert sum(name.endswith(".yaml") for name in shipped) >= 15


def test_the_installed_program_comes_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    code = "import pramana, sys; print(pramana.__file__); print(*sys.path, sep='\\n')"
    file, *searched = run_in(environment, tmp_path, "python", "-c", code).stdout.splitlines()
    assert Path(file).is_relative_to(environment)
    assert not [path for path in searched if Path(path).is_relative_to(ROOT / "src")]


def test_the_installed_program_runs_from_anywhere(environment: Path, tmp_path: Path) -> None:
    """No path of the repository is needed: suites, scenarios and migrations are found from the package itself."""
    verified = run_in(environment, tmp_path, "pramana", "suite", "verify", "v1.0")
    assert (verified.returncode, verified.stdout.count("verified")) == (0, 3), verified.stderr
    asked = run_in(environment, tmp_path, "pramana", "run", "--model", "fake:echo", "--judge", "fake", "--json")
    found = json.loads(asked.stdout)
    assert (found["status"], asked.returncode) == ("finished", 0), asked.stderr
    listed = json.loads(run_in(environment, tmp_path, "pramana", "runs", "--json").stdout)
    assert [(each["id"], each["stored"]) for each in listed] == [(found["run"], 10)]
    checked = run_in(environment, tmp_path, "pramana", "validate", "library:")
    assert checked.returncode == 0, checked.stderr
    shown = run_in(environment, tmp_path, "pramana", "export", "--format", "markdown")
    assert found["run"] in shown.stdout
