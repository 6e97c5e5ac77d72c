"""Does a suite's length cost memory? Validation, duplicate detection and hash of 200,000 and of 2,000,000 lines.

Bar: the peak memory of `check_suite` and `hash_suite` together grows by at most 64 bytes a line between the two. Each
size runs in a separate process on a synthetic suite of about 500 bytes a line, its ids shuffled so that the order on
disk differs from the order of the hash; then on one with a repeated id, which must be reported with both lines. Peak
resident memory, from the kernel.
"""

import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pramana.hash import hash_suite
from pramana.load.problems import Problems
from pramana.load.suite import check_suite

SMALL, LARGE, BAR = 200_000, 2_000_000, 64


def write_suite(path: Path, lines: int, *, repeat: bool) -> None:
    """Write a synthetic suite; with `repeat`, its last line has the id of its first."""
    numbers = list(range(lines))
    random.Random(42).shuffle(numbers)
    if repeat:
        numbers[-1] = numbers[0]
    with path.open("w", encoding="utf-8") as file:
        for number in numbers:
            case = {
                "id": f"reasoning-{number:07}",
                "category": "reasoning",
                "input": f"A depot holds {number} crates. " + "Half of them leave by rail and a third by road. " * 5,
                "ideal": [str(number // 2), f"{number // 2} crates"],
                "assertion": {"type": "contains_any", "case_sensitive": False},
                "metadata": {"difficulty": "medium", "tokens_est": 60, "tags": ["arithmetic", "synthetic"]},
            }
            file.write(json.dumps(case) + "\n")


def read_peak_memory() -> int:
    """Return this process's peak resident memory in KB. Not ru_maxrss, which Linux inherits from the parent."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0])


def measure_in_child(path: Path, lines: int) -> None:
    """Measure one size: a valid suite gets its hash, one with a repeated id a problem that names both lines."""
    before = read_peak_memory()
    start = time.process_time()
    problems = Problems()
    suite = check_suite(path, problems)
    if problems.errors or suite.suite_hash is None or suite.suite_hash != hash_suite(path):
        sys.exit(f"the sound suite did not get its hash: {problems.kept[:1]}")
    problems = Problems()
    check_suite(path.with_suffix(".twice.jsonl"), problems)
    if [each.message.rpartition(": ")[2] for each in problems] != [f"lines 1 and {lines}"]:
        sys.exit(f"the repeated id was not found: {problems.kept[:3]}")
    print(before, read_peak_memory(), time.process_time() - start)


def main() -> int:
    """Print the table; return 1 if the bar is missed."""
    if len(sys.argv) == 3:
        measure_in_child(Path(sys.argv[1]), int(sys.argv[2]))
        return 0
    peaks = {}
    print("| lines | file | peak memory | above the start of the program | CPU |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for lines in (SMALL, LARGE):
            path = Path(folder, f"{lines}.jsonl")
            write_suite(path, lines, repeat=False)
            write_suite(path.with_suffix(".twice.jsonl"), lines, repeat=True)
            command = [sys.executable, "-m", "benchmarks.suite_memory", str(path), str(lines)]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            before, most, cpu = int(out[0]) * 1024, int(out[1]) * 1024, float(out[2])
            peaks[lines] = most
            size = path.stat().st_size
            row = [f"{lines:,}", f"{size / 1e6:,.0f} MB ({size / lines:.0f} bytes a line)", f"{most / 1e6:.1f} MB"]
            print(f"| {' | '.join(row)} | {(most - before) / 1e6:.1f} MB | {cpu:.0f} s |", flush=True)
    growth = (peaks[LARGE] - peaks[SMALL]) / (LARGE - SMALL)
    print(f"\nGrowth: {growth:.1f} bytes a line (bar: at most {BAR}).")
    return int(growth > BAR)


if __name__ == "__main__":
    sys.exit(main())
