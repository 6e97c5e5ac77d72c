"""What is installed is what is in the repository: a wheel holds the suites, the scenarios and the type marker."""

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_wheel_holds_everything(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
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


def test_the_installed_program_runs_from_anywhere(tmp_path: Path) -> None:
    """No path of the repository is needed: the built-ins are found from the package itself."""
    done = subprocess.run(
        [sys.executable, "-m", "pramana", "suite", "verify", "v1.0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.count("verified")) == (0, 3)
