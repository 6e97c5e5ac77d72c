"""Do the tests pass on any machine? The whole suite again, each time under another condition.

Conditions: one core; both cores burning beside it; random order with three seeds; twice at once in two clones; an empty
home, `LC_ALL=C` and Kathmandu's time zone; and the embedded models' outputs replaced by each fault. Bar: every run
passes. All conditions take some two hours; name those you want: `python -m benchmarks.anywhere one-core burning`.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
LONGEST_S = 3600
FAULTS = ("loop", "empty", "long", "wrong-words", "deaf")


@dataclass(frozen=True)
class Condition:
    """One way in which a machine may differ."""

    name: str
    says: str
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    cores: str = ""
    burning: int = 0
    clones: int = 1


CONDITIONS = [
    Condition("one-core", "one core (`taskset -c 0`)", cores="0"),
    Condition("burning", "both cores burning beside it", burning=2),
    *(Condition(f"order-{seed}", f"random order, seed {seed}", ("--shuffle", str(seed))) for seed in (1, 2, 3)),
    Condition("twice", "twice at once, in two clones", clones=2),
    Condition("empty-home", "an empty home", environment={"HOME": "(empty)"}),
    Condition("plain-locale", "`LC_ALL=C`", environment={"LC_ALL": "C"}),
    Condition("kathmandu", "time zone of Kathmandu", environment={"TZ": "Asia/Kathmandu"}),
    *(Condition(f"fault-{name}", f"embedded models: {name}", ("--embedded-fault", name)) for name in FAULTS),
]


def main() -> int:
    """Print the table; exit 1 when a run failed."""
    names = [each.name for each in CONDITIONS]
    if unknown := set(sys.argv[1:]) - set(names):
        print(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(names)}")
        return 2
    wanted = [each for each in CONDITIONS if not sys.argv[1:] or each.name in sys.argv[1:]]
    print("| condition | result | minutes |", "| --- | --- | --- |", sep="\n", flush=True)
    missed = False
    for condition in wanted:
        began = time.monotonic()
        results = run(condition)
        missed = missed or any(not passed for passed, _ in results)
        told = "; ".join(line for _, line in results)
        print(f"| {condition.says} | {told} | {(time.monotonic() - began) / 60:.1f} |", flush=True)
    return int(missed)


def run(condition: Condition) -> list[tuple[bool, str]]:
    """Run the tests under a condition, in as many clones as it wants; return whether each passed, and its last line."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pramana-anywhere-")))
        checkouts = [ROOT] if condition.clones == 1 else [cloned(folder / str(n)) for n in range(condition.clones)]
        for _ in range(condition.burning):
            stack.enter_context(burning())
        environment = {**os.environ, **condition.environment}  # noqa: TID251 - what the tests are given
        if condition.environment.get("HOME"):
            environment["HOME"] = str(folder / "home")
            (folder / "home").mkdir()
        prefix = ["taskset", "-c", condition.cores] if condition.cores else []
        logs = [folder / f"{number}.log" for number in range(len(checkouts))]
        running = []
        for checkout, log in zip(checkouts, logs, strict=True):
            tests = [
                str(checkout / ".venv/bin/pytest"),
                "-q",
                "-n",
                "2",
                "--dist",
                "loadfile",
                "--no-loadscope-reorder",
                "--claims",
            ]
            running.append(
                subprocess.Popen(
                    [*prefix, *tests, *condition.options],
                    cwd=checkout,
                    env=environment,
                    stdout=stack.enter_context(log.open("wb")),
                    stderr=subprocess.STDOUT,
                )
            )
        codes = [each.wait(LONGEST_S) for each in running]
        return [(code == 0, summary(log, code)) for code, log in zip(codes, logs, strict=True)]


def summary(log: Path, code: int) -> str:
    """Return what pytest counted; of a run that failed, also which tests."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    counted = next((line for line in reversed(lines) if re.search(r"\d+ (passed|failed|error)", line)), f"exit {code}")
    failed = [line.partition(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR", "CLAIM"))]
    return "; ".join([counted.strip("= "), *failed])


def cloned(place: Path) -> Path:
    """Return a clone of the last commit with an environment of its own."""
    subprocess.run(["git", "clone", "-q", ROOT, place], check=True)
    subprocess.run(["make", "-s", "setup-test"], cwd=place, check=True, stdout=subprocess.DEVNULL)
    return place


@contextmanager
def burning() -> Iterator[None]:
    """Keep one core busy."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
