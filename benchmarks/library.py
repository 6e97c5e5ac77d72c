"""What does Python cost compared with the command line? And what does `import pramana` cost?

Bars: CPU time of a whole process per case, from Python, is at most 1.05 times that of `pramana run` on the same suite
(minimum of 7 alternating runs of each, after a warm-up run); `import pramana` takes at most 1.3 times as long as
`import msgspec` (median of 21 processes of each). The cases are synthetic, answered by the `fake` provider. From
Python, a process takes about 0.12 s longer to exit: the command exempts everything imported from garbage collection,
which a library must not do to its host program.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

CASES, RUNS, IMPORTS = 40_000, 7, 21
MAX_CPU, MAX_IMPORT = 1.05, 1.3
SCRIPT = """
import pramana
report = pramana.evaluate("suite.jsonl", model="fake:echo")
assert report.summary.overall.total == {cases}, report
print(report)
"""


def main() -> int:
    """Print both tables; return 1 if a bar is missed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = [
            {
                "id": f"coding-{number:05}",
                "category": "coding",
                "input": f"Say yes, number {number}.",
                "ideal": ["yes", "yeah"],
                "assertion": {"type": "contains_any", "case_sensitive": False},
                "metadata": {"difficulty": "easy", "tokens_est": 8},
            }
            for number in range(CASES)
        ]
        (folder / "suite.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines), encoding="utf-8")
        (folder / "script.py").write_text(SCRIPT.format(cases=CASES), encoding="utf-8")
        commands = {
            "pramana run": ["-m", "pramana", "run", "suite.jsonl", "--model", "fake:echo", "--quiet"],
            "pramana.evaluate": ["script.py"],
        }
        cpu: dict[str, list[float]] = {each: [] for each in commands}
        for number in range(RUNS + 1):
            for each, arguments in commands.items():
                used = measure(arguments, folder)[0]
                if number:
                    cpu[each].append(used)
        yardstick, measured = "import msgspec", "import pramana"
        wall: dict[str, list[float]] = {yardstick: [], measured: []}
        for number in range(IMPORTS + 1):
            for each, taken_by in wall.items():
                seconds = measure(["-c", each], folder)[1]
                if number:
                    taken_by.append(seconds)
    least = {name: min(taken) for name, taken in cpu.items()}
    ratio = least["pramana.evaluate"] / least["pramana run"]
    print(
        f"| {CASES:,} cases | processor time, minimum of {RUNS} (range) | a case | ratio |",
        "| --- | --: | --: | --- |",
        sep="\n",
    )
    for name, taken in cpu.items():
        shown = f"{ratio:.2f} (bar: at most {MAX_CPU})" if name == "pramana.evaluate" else "1"
        print(
            f"| `{name}` | {min(taken):.2f} s ({min(taken):.2f}–{max(taken):.2f}) "
            f"| {min(taken) / CASES * 1e6:.0f} µs | {shown} |"
        )
    medians = {name: statistics.median(taken) for name, taken in wall.items()}
    of_import = medians[measured] / medians[yardstick]
    print(f"\n| command | median of {IMPORTS} | ratio |", "| --- | --: | --- |", sep="\n")
    for name, seconds in medians.items():
        shown = f"{of_import:.2f} (bar: at most {MAX_IMPORT})" if name == measured else "1"
        print(f'| `python -c "{name}"` | {seconds * 1000:.0f} ms | {shown} |')
    return int(ratio > MAX_CPU or of_import > MAX_IMPORT)


def measure(arguments: Sequence[str], folder: Path) -> tuple[float, float]:
    """Run Python once; return its CPU time and its wall time."""
    home = tempfile.mkdtemp(dir=folder)
    environment = {**os.environ, "PRAMANA_HOME": home}  # noqa: TID251 - a child gets what we have
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment, cwd=folder)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, seconds


if __name__ == "__main__":
    sys.exit(main())
