"""Do the tests pass on any machine? Runs the whole suite again under other conditions, in clones of the last commit.

A run is named by its conditions, such as `one-core+order-1+fault-loop`; runs separated by commas go at the same time,
each in its own clone. Without arguments, it runs those of `PROOF`, where every condition occurs once: an hour and a
half. Another Python version is a condition too, if it is on the PATH. Bar: every run passes, and with it every claim.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
MAX_SECONDS = 2 * 3600
TESTS = ("-q", "-n", "4", "--dist", "loadfile", "--no-loadscope-reorder", "--claims")
PROOF = (
    "one-core+order-1+fault-loop,other-core+order-2+fault-empty",
    "python-3.12+order-3+fault-long+plain-locale,python-3.13+kathmandu+empty-home+fault-wrong-words",
    "burning+fault-deaf",
)


@dataclass(frozen=True)
class Condition:
    """One way in which machines differ."""

    says: str
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    core: str = ""
    burning: int = 0


CONDITIONS = {
    "plain": Condition("as it is"),
    "one-core": Condition("one core (`taskset -c 0`)", core="0"),
    "other-core": Condition("one core (`taskset -c 1`)", core="1"),
    "burning": Condition("both cores burning beside it", burning=2),
    **{f"order-{n}": Condition(f"random order, seed {n}", ("--shuffle", str(n))) for n in (1, 2, 3)},
    **{f"python-{n}": Condition(f"Python {n}", environment={"PYTHON": f"python{n}"}) for n in ("3.12", "3.13", "3.14")},
    "empty-home": Condition("an empty home", environment={"HOME": "home"}),
    "plain-locale": Condition("`LC_ALL=C`", environment={"LC_ALL": "C"}),
    "kathmandu": Condition("time zone of Kathmandu", environment={"TZ": "Asia/Kathmandu"}),
    **{
        f"fault-{name}": Condition(f"embedded models: {name}", ("--embedded-fault", name))
        for name in ("loop", "empty", "long", "wrong-words", "deaf")
    },
}


def main() -> int:
    """Print the table; return 1 if a run failed."""
    groups = [[run.split("+") for run in group.split(",")] for group in sys.argv[1:] or PROOF]
    if unknown := {name for group in groups for run in group for name in run} - CONDITIONS.keys():
        print(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(CONDITIONS)}")
        return 2
    print("| conditions | result | minutes |", "| --- | --- | --: |", sep="\n", flush=True)
    missed = False
    for group in groups:
        with tempfile.TemporaryDirectory(prefix="pramana-anywhere-") as folder:
            for run in run_at_once([[CONDITIONS[name] for name in names] for names in group], Path(folder)):
                missed = missed or not run.passed
                beside = f" (at once with {len(group) - 1} other)" if len(group) > 1 else ""
                told = ", ".join(each.says for each in run.conditions) + beside
                print(f"| {told} | {run.summary()} | {run.took / 60:.1f} |", flush=True)
    return int(missed)


@dataclass
class Run:
    """One run of the tests in its own clone, under some conditions."""

    conditions: Sequence[Condition]
    checkout: Path
    took: float = 0.0
    passed: bool = False

    @property
    def log(self) -> Path:
        return self.checkout.with_suffix(".log")

    def prepare(self) -> None:
        subprocess.run(["git", "clone", "-q", ROOT, self.checkout], check=True)
        python = [f"PYTHON={each.environment['PYTHON']}" for each in self.conditions if "PYTHON" in each.environment]
        command = ["make", "-s", *python, "setup-test", "system"]
        made = subprocess.run(command, cwd=self.checkout, capture_output=True, text=True, check=False)
        if made.returncode:
            raise SystemExit(f"make setup-test failed in a clone:\n{made.stderr[-2000:]}")

    def start(self) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # noqa: TID251 - as the Makefile sets it
        cores: list[str] = []
        options: list[str] = []
        for each in self.conditions:
            environment |= each.environment
            options += each.options
            cores += ["taskset", "-c", each.core] if each.core else []
        if any("HOME" in each.environment for each in self.conditions):
            home = self.checkout.with_suffix(".home")
            home.mkdir()
            environment["HOME"] = str(home)
        command = [*cores, str(self.checkout / ".venv/bin/pytest"), *TESTS, *options]
        with self.log.open("wb") as log:
            return subprocess.Popen(command, cwd=self.checkout, env=environment, stdout=log, stderr=subprocess.STDOUT)

    def summary(self) -> str:
        """Return the last line of pytest's summary, followed by the failed tests of a failed run."""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        lines = text.splitlines()
        counted = next((line for line in reversed(lines) if re.search(r"\d+ (passed|failed|error)", line)), "no end")
        failed = [line.partition(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR", "CLAIM"))]
        if not self.passed:
            with tempfile.NamedTemporaryFile("w", prefix="pramana-anywhere-", suffix=".log", delete=False) as kept:
                kept.write(text)
            print(f"what it printed: {kept.name}", file=sys.stderr)
        return "; ".join([counted.strip("= "), *failed])


def run_at_once(wanted: Sequence[Sequence[Condition]], folder: Path) -> list[Run]:
    """Run the tests under each set of conditions, all at the same time."""
    runs = [Run(conditions, folder / str(number)) for number, conditions in enumerate(wanted)]
    for each in runs:
        each.prepare()
    with ExitStack() as stack:
        for _ in range(max(each.burning for run in runs for each in run.conditions)):
            stack.enter_context(busy_core())
        began = time.monotonic()
        processes = [each.start() for each in runs]
        while any(process.poll() is None for process in processes):
            time.sleep(1)
            for run, process in zip(runs, processes, strict=True):
                if process.poll() is None:
                    run.took = time.monotonic() - began
                    if run.took > MAX_SECONDS:
                        process.terminate()
    for run, process in zip(runs, processes, strict=True):
        run.passed = process.returncode == 0
    return runs


@contextmanager
def busy_core() -> Iterator[None]:
    """Keep one core busy while the context is open."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
