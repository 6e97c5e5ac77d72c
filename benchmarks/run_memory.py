"""Is memory flat? Compares the peak resident memory of `pramana run` over 2,000 and over 200,000 cases.

Bar: the larger run takes at most 1.3 times the memory of the smaller. Each is a separate process that calls the shipped
`fake:echo`, with the store, the summary and everything else a user gets. Synthetic cases.
"""

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SMALL, LARGE, BAR = 2_000, 200_000, 1.3

CHILD = """
import sys
from pathlib import Path
from pramana.show.cli import main
try:
    main()
finally:
    print(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0], file=sys.stderr)
"""


def write_suite(path: Path, count: int) -> None:
    """Write the synthetic suite."""
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            case = {
                "id": f"coding-{number:06}",
                "category": "coding",
                "input": f"Repeat the number {number}.",
                "ideal": str(number),
                "assertion": {"type": "contains"},
                "metadata": {"difficulty": "easy", "tokens_est": 8},
            }
            file.write(json.dumps(case) + "\n")


def main() -> int:
    """Print the table; return 1 if the bar is missed."""
    peaks = {}
    print("| cases | peak memory | seconds |")
    print("| --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for count in (SMALL, LARGE):
            suite = Path(folder, f"{count}.jsonl")
            write_suite(suite, count)
            command = [sys.executable, "-c", CHILD, "run", str(suite), "--model", "fake:echo", "--quiet"]
            start = time.perf_counter()
            environment = {"PRAMANA_HOME": str(Path(folder, str(count))), "PATH": "/usr/bin:/bin"}
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            peaks[count] = int(done.stderr.split()[-1]) * 1024
            took = time.perf_counter() - start
            print(f"| {count:,} | {peaks[count] / 1e6:.1f} MB | {took:.1f} |", flush=True)
    ratio = peaks[LARGE] / peaks[SMALL]
    print(f"\nRatio: {ratio:.2f} (bar: at most {BAR}).")
    return int(ratio > BAR)


if __name__ == "__main__":
    sys.exit(main())
