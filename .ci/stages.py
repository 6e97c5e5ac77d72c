"""`make test`: run every stage, show how far it is, and end with one line that says what passed and what failed.

Each stage is a target of the Makefile, so that it can be run alone. A stage that fails does not hide the ones after
it; only without an environment there is nothing to run. How long a stage takes is what it took here last time, or else
what it takes on two cores. Standard library only: it runs before anything is installed.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
VENV = os.environ.get("VENV", ".venv")
TIMES = ROOT / VENV / ".stage-seconds.json"
SHOWN = 10
"""Failed tests named in the closing lines; pytest lists all of them above."""
SUMMARY = re.compile(r"^=* ?((?:\d+ \w+(?:, )?)+) in [\d.]+s")
FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$")


@dataclass
class Stage:
    """One target of the Makefile."""

    target: str
    does: str
    seconds: float
    """On two cores, with an empty environment."""
    needed: bool = False
    """Whether nothing else can run without it."""
    lines: list[str] = field(default_factory=list)
    took: float = 0.0
    code: int = 0


STAGES = [
    Stage("setup-test", "install the locked packages into .venv", 110, needed=True),
    Stage("system", "make sure that Chromium, curl and jq are here", 30, needed=True),
    Stage("lint", "check style and formatting", 5),
    Stage("types", "check types", 60),
    Stage("layers", "check who imports whom", 10),
    Stage("docs", "build the documentation", 20),
    Stage("tests", "run the tests", 1060),
]


def main() -> int:
    """Run every stage; return 0 if all passed."""
    began = time.monotonic()
    expect = last_times()
    total = sum(expect.get(stage.target, stage.seconds) for stage in STAGES)
    known = "as long as last time" if expect else "on two cores, less when the packages are already installed"
    print(f"make test: {len(STAGES)} stages, about {minutes(total)} ({known}).", flush=True)
    done: list[Stage] = []
    for number, stage in enumerate(STAGES, 1):
        left = expect.get(stage.target, stage.seconds)
        print(f"\n[{number}/{len(STAGES)}] {stage.target}: {stage.does} (about {minutes(left)})", flush=True)
        run(stage)
        done.append(stage)
        outcome = "passed" if stage.code == 0 else "FAILED"
        print(f"[{number}/{len(STAGES)}] {stage.target}: {outcome} after {minutes(stage.took)}", flush=True)
        if stage.code and stage.needed:
            break
    if not any(stage.code for stage in done):
        TIMES.write_text(json.dumps({stage.target: stage.took for stage in done}), encoding="utf-8")
    print(f"\n{closing(done)} {minutes(time.monotonic() - began)}.", flush=True)
    return 1 if any(stage.code for stage in done) else 0


def last_times() -> dict[str, float]:
    """Return how many seconds each stage took when all of them last passed here."""
    try:
        found = json.loads(TIMES.read_text(encoding="utf-8"))
        return {str(name): float(seconds) for name, seconds in found.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def run(stage: Stage) -> None:
    """Run a stage and pass on what it prints, as it comes."""
    began = time.monotonic()
    command = [os.environ.get("MAKE", "make"), "--no-print-directory", stage.target]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            stage.lines.append(line.rstrip())
    stage.code, stage.took = process.returncode, time.monotonic() - began


def closing(done: list[Stage]) -> str:
    """Return what passed, what failed, and how to run a failed part again."""
    passed = [stage.target for stage in done if not stage.code]
    failed = [stage for stage in done if stage.code]
    skipped = [stage.target for stage in STAGES if stage not in done]
    counts = next((found[1] for stage in done for line in reversed(stage.lines) if (found := SUMMARY.match(line))), "")
    parts = [f"Passed: {', '.join(passed)}" + (f" ({counts})" if counts and not failed else "") + "."] if passed else []
    for stage in failed:
        tests = [found[1] for line in stage.lines if (found := FAILED.match(line))]
        if tests:
            named = " ".join(shlex.quote(test) for test in tests[:SHOWN])
            more = f" (and {len(tests) - SHOWN} more)" if len(tests) > SHOWN else ""
            parts.append(f"FAILED: {stage.target} ({counts}); run again: {VENV}/bin/pytest {named}{more}.")
        else:
            parts.append(f"FAILED: {stage.target}; run again: make {stage.target}.")
    if skipped:
        parts.append(f"Not run: {', '.join(skipped)}.")
    return " ".join(parts)


def minutes(seconds: float) -> str:
    """Return a duration for people.

    >>> minutes(9.4), minutes(130)
    ('9 s', '2 min 10 s')
    """
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("\nInterrupted. Run one stage alone: make STAGE, for example: make tests.")
        sys.exit(130)
