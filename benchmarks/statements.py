"""Did setting the seams make the program smaller? Statements of `src/` at three commits, by coverage's count.

Bar: before the library was built on them, fewer than 30,035, which is what 72082ae has. The commits are fixed, so the
answer does not change; what came later is counted beside them, without a bar.
"""

import io
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from coverage import Coverage

ROOT = Path(__file__).parent.parent
BEFORE, AFTER = "72082ae", "189828c"
FEWER_THAN = 30_035


def main() -> int:
    """Print the table; exit 1 when the bar is missed."""
    print("| commit | modules | statements |", "| --- | --: | --: |", sep="\n")
    counts = {}
    for commit in (BEFORE, AFTER, "HEAD"):
        modules, counts[commit] = count(commit)
        bar = f" (bar: fewer than {FEWER_THAN:,})" if commit == AFTER else ""
        print(f"| {commit} | {modules:,} | {counts[commit]:,}{bar} |", flush=True)
    return int(counts[AFTER] >= FEWER_THAN)


def count(commit: str) -> tuple[int, int]:
    """Return the modules of `src/` at a commit, and their statements."""
    packed = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
        modules = sorted(Path(folder, "src").rglob("*.py"))
        coverage = Coverage(data_file=None, config_file=str(ROOT / "pyproject.toml"))
        return len(modules), sum(len(coverage.analysis2(str(module))[1]) for module in modules)


if __name__ == "__main__":
    sys.exit(main())
