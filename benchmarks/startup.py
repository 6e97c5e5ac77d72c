"""Does `pramana --help` answer at once? Against `python -c "import click"`.

Bar: at most 2.5 times as long. Whole processes, alternating, median of 21.
"""

import statistics
import subprocess
import sys
import time

ROUNDS, BAR = 21, 2.5


def took(command: list[str]) -> float:
    """Return the seconds of one whole process."""
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def main() -> int:
    """Print the table; exit 1 when the bar is missed."""
    commands = {
        'python -c "import click"': [sys.executable, "-c", "import click"],
        "pramana --help": [sys.executable, "-m", "pramana", "--help"],
    }
    times: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            times[name].append(took(command))
    medians = [statistics.median(times[name]) for name in commands]
    ratio = medians[1] / medians[0]
    print(f"| command | median of {ROUNDS} | ratio |")
    print("| --- | --- | --- |")
    for name, median in zip(commands, medians, strict=True):
        note = f"{ratio:.2f} (bar: at most {BAR})" if median == medians[1] else "1"
        print(f"| `{name}` | {median * 1000:.0f} ms | {note} |")
    return int(ratio > BAR)


if __name__ == "__main__":
    sys.exit(main())
