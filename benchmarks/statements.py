"""Did the seams make the program smaller? Statements of `src/` at three commits, as counted by coverage.

Bar: before the library was built on the seams, fewer than 30,035, the count at 72082ae. The commits are fixed, so the
result does not change; the current count is printed beside them, without a bar.
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
    """Print the table; return 1 if the bar is missed."""
    print("| commit | modules | statements |", "| --- | --: | --: |", sep="\n")
    counts = {}
    for commit in (BEFORE, AFTER, "HEAD"):
        modules, counts[commit] = count(commit)
        bar = f" (bar: fewer than {FEWER_THAN:,})" if commit == AFTER else ""
        print(f"| {commit} | {modules:,} | {counts[commit]:,}{bar} |", flush=True)
    return int(counts[AFTER] >= FEWER_THAN)


def count(commit: str) -> tuple[int, int]:
    """Return the number of modules in `src/` at a commit, and of their statements."""
    packed = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
        modules = sorted(Path(folder, "src").rglob("*.py"))
        coverage = Coverage(data_file=None, config_file=str(ROOT / "pyproject.toml"))
        return len(modules), sum(len(coverage.analysis2(str(module))[1]) for module in modules)


if __name__ == "__main__":
    sys.exit(main())
