"""`make test`: run every stage, show how far it is, and end with one line that says what passed and what failed.

Each stage is a target of the Makefile, so that it can be run alone. A stage that fails does not hide the others; only
without an environment there is nothing to run. The checks run beside the tests, and what they print is shown when they
end. How long all of it takes is what it took here last time, or else what it takes on two cores. Standard library only:
it runs before anything is installed.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
VENV = os.environ.get("VENV", ".venv")
TIMES = ROOT / VENV / ".stage-seconds.json"
SHOWN = 10
"""Failed tests named in the closing lines; pytest lists all of them above."""
SUMMARY = re.compile(r"^=* ?(\d+ \w+(?:, \d+ \w+)*) in [\d.]+s")
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+\.py(?:::.*?)?)(?: - .*)?$")
SHORT_SUMMARY = "short test summary info"
"""After this line pytest names what failed; before it, tests may have printed anything."""
STOP_S, KILL_S = 30, 10
"""For stages to end by themselves after Ctrl-C, and after they were told to."""
WAKE_S = 0.2


@dataclass
class Stage:
    """One target of the Makefile."""

    target: str
    does: str
    seconds: float
    """On two cores, with an empty environment."""
    needed: bool = False
    """Whether nothing else can run without it."""
    beside: bool = False
    """Whether it runs beside the tests."""
    lines: list[str] = field(default_factory=list)
    took: float = 0.0
    code: int = 0
    ended: bool = False


STAGES = [
    Stage("setup-test", "install the locked packages into .venv", 90, needed=True),
    Stage("system", "make sure that Chromium, curl and jq are here", 30, needed=True),
    Stage("lint", "check style and formatting", 5, beside=True),
    Stage("types", "check types", 120, beside=True),
    Stage("layers", "check who imports whom", 5, beside=True),
    Stage("docs", "build the documentation", 20, beside=True),
    Stage("tests", "run the tests", 540),
]


class Terminated(KeyboardInterrupt):
    """SIGTERM: what runs is ended at once."""


received: list[int] = []
"""Signals so far. Their handler only notes them: an exception out of a handler could lose a process just started."""
stopping = threading.Event()
running: list["subprocess.Popen[str]"] = []


def main() -> int:
    """Run every stage; return 0 if all passed."""
    began = time.monotonic()
    if ignored := sorted(set("intq") & set(make_flags())):
        print(f"make -{''.join(ignored)} test: nothing was run; these would be: {', '.join(s.target for s in STAGES)}.")
        return 0 if ignored == ["n"] else 2
    last = last_times()
    expect = {stage.target: last.get(stage.target, stage.seconds) for stage in STAGES}
    total = sum(expect[stage.target] for stage in STAGES if not stage.beside)
    known = "as long as last time" if last else "on two cores, less when the packages are already installed"
    print(f"make test: {len(STAGES)} stages, about {minutes(total)} ({known}).", flush=True)
    for stage in STAGES:
        if stage.needed:
            run(stage, expect[stage.target])
            if stage.code:
                break
    else:
        run_rest(expect)
    done = [stage for stage in STAGES if stage.ended]
    passed = done == STAGES and not any(stage.code for stage in done)
    if passed:
        TIMES.write_text(json.dumps({stage.target: stage.took for stage in done}), encoding="utf-8")
    print(f"\n{closing(done)} {minutes(time.monotonic() - began)}.", flush=True)
    return 0 if passed else 1


def run_rest(expect: dict[str, float]) -> None:
    """Run the tests, and the checks beside them: neither keeps two cores busy all the time."""
    checks = [stage for stage in STAGES if stage.beside]

    checked = threading.Event()

    def check() -> None:
        try:
            for stage in checks:
                if not stopping.is_set():
                    run(stage, expect[stage.target])
        finally:
            checked.set()

    threading.Thread(target=check).start()
    try:
        for stage in STAGES:
            if not stage.needed and not stage.beside:
                run(stage, expect[stage.target])
        wait_for(checked)
    except KeyboardInterrupt as interrupt:
        stop(at_once=isinstance(interrupt, Terminated))
        wait_for(checked, known=len(received))
        raise


def wait_for(event: threading.Event, *, known: int = 0) -> None:
    """Wait, and wake now and then to see whether there are more signals than those that are known."""
    while not event.wait(WAKE_S):
        check_signals(known)


def wait_for_exit(process: "subprocess.Popen[str]", *, known: int = 0) -> None:
    """Wait until a process has ended."""
    while process.poll() is None:
        check_signals(known)
        time.sleep(0.01)


def check_signals(known: int) -> None:
    """Raise when there are more signals than those that are known. Only the main thread is interrupted."""
    if len(received) > known and threading.current_thread() is threading.main_thread():
        raise Terminated if received[-1] == signal.SIGTERM else KeyboardInterrupt


def make_flags() -> str:
    """Return the one-letter options that make was called with, as it hands them on."""
    first = os.environ.get("MAKEFLAGS", "").partition(" ")[0]
    return "" if first.startswith("-") or "=" in first else first


def last_times() -> dict[str, float]:
    """Return how many seconds each stage took when all of them last passed here."""
    try:
        found = json.loads(TIMES.read_text(encoding="utf-8"))
        times = {str(name): float(seconds) for name, seconds in found.items()}
    except (OSError, ValueError, TypeError, AttributeError, OverflowError):
        return {}
    return times if all(0 <= seconds < 1e6 for seconds in times.values()) else {}


def run(stage: Stage, expected: float) -> None:
    """Run a stage. What it prints is passed on as it comes; of one beside the tests all at its end, in one piece."""
    began = time.monotonic()
    number = f"[{STAGES.index(stage) + 1}/{len(STAGES)}] {stage.target}"
    if not stage.beside:
        print(f"\n{number}: {stage.does} (about {minutes(expected)})", flush=True)
    command = [os.environ.get("MAKE", "make"), "--no-print-directory", stage.target]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        start_new_session=True,  # so that a signal reaches all that it has started: make does not pass every one on
    )  # fmt: skip
    running.append(process)
    if stopping.is_set():  # `stop` was called while it started, and may not have seen it
        send(signal.SIGTERM)
    printed = threading.Event()
    threading.Thread(target=pass_on, args=(stage, process, printed), daemon=True).start()
    try:
        wait_for(printed)
        wait_for_exit(process)  # it has closed its output, and may run on
    except KeyboardInterrupt as interrupt:
        stop(at_once=isinstance(interrupt, Terminated))  # now, since it is waited for here
        wait_for_exit(process, known=len(received))
        printed.wait(KILL_S)  # what it may have left behind holds the same output open
        raise
    finally:
        if process.poll() is not None:  # what still runs is ended by `main` at the latest
            running.remove(process)
    stage.code, stage.took, stage.ended = process.returncode, time.monotonic() - began, True
    said = "\n".join(["", *stage.lines]) if stage.beside and stage.code else ""
    outcome = "passed" if stage.code == 0 else "FAILED"
    print(f"{said}\n{number}: {outcome} after {minutes(stage.took)}", flush=True)


def pass_on(stage: Stage, process: "subprocess.Popen[str]", printed: threading.Event) -> None:
    """Read what a stage prints until it has ended, and say so."""
    assert process.stdout is not None
    for line in process.stdout:
        if not stage.beside:
            print(line, end="", flush=True)
        stage.lines.append(line.rstrip())
    printed.set()


def stop(*, at_once: bool) -> None:
    """Begin nothing more, and end what runs: after Ctrl-C it is told of that, and ended only when it takes too long."""
    stopping.set()
    send(signal.SIGTERM if at_once else signal.SIGINT)
    if not at_once:
        ending = threading.Timer(STOP_S, send, (signal.SIGTERM,))
        ending.daemon = True
        ending.start()


def send(number: int) -> None:
    """Send a signal to every stage that runs, and to all that it has started."""
    for process in (*running,):  # a stage that ends is taken out meanwhile
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def end_all() -> None:
    """End what still runs: it is asked first, then killed."""
    send(signal.SIGTERM)
    until = time.monotonic() + KILL_S
    with suppress(subprocess.TimeoutExpired):
        for process in running:
            process.wait(max(0.0, until - time.monotonic()))
    send(signal.SIGKILL)


def closing(done: list[Stage]) -> str:
    """Return what passed, what failed, and how to run a failed part again."""
    passed = [stage.target for stage in done if not stage.code]
    failed = [stage for stage in done if stage.code]
    skipped = [stage.target for stage in STAGES if stage not in done]
    counts = next((found[1] for stage in done for line in reversed(stage.lines) if (found := SUMMARY.match(line))), "")
    parts = [f"Passed: {', '.join(passed)}" + (f" ({counts})" if counts and not failed else "") + "."] if passed else []
    for stage in failed:
        begins = next((at for at, line in enumerate(stage.lines) if SHORT_SUMMARY in line), len(stage.lines))
        tests = [found[1] for line in stage.lines[begins:] if (found := FAILED.match(line))]
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


def receive(number: int, _frame: object) -> None:
    """Note a signal; whoever waits looks."""
    received.append(number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, receive)
    signal.signal(signal.SIGINT, receive)
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr] # a terminal may know ASCII alone
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        end_all()
        print("\nInterrupted. Run one stage alone: make STAGE, for example: make tests.")
        sys.exit(130)
