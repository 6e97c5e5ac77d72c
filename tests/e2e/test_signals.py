"""Ctrl-C, SIGTERM and SIGHUP, once or twice: real processes, and the run can always be resumed."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pramana.run.engine import INTERRUPTED_BY_USER_REASON, Stop
from pramana.show.cli.signals import REPEATED_SIGNALS_IGNORED_S, SignalHandler

from .. import programs
from .test_run import (
    count_stored_results,
    make_environment,
    parse_json,
    run_pramana,
    run_server,
    wait_until,
    write_suite,
)

HANGUP = getattr(signal, "SIGHUP", signal.SIGTERM)


@pytest.fixture(autouse=True)
def _default_hangup_handler() -> Iterator[None]:
    """Reset the hangup handler for child processes; under nohup they would ignore hangups."""
    before = signal.signal(HANGUP, signal.SIG_DFL)
    yield
    signal.signal(HANGUP, before)


def signal_run(suite: Path, url: str, tell: Callable[[programs.Process], None]) -> tuple[int, str]:
    """Start a run, signal it while it is running; return its exit code and output."""
    command = ["-m", "pramana", "run", str(suite), "--model", f"{url}#any", "--concurrency", "4"]
    with programs.start(command, env=make_environment()) as process:
        wait_until(lambda: count_stored_results() > 4)
        tell(process)
        code = process.wait(60)
        assert process.stdout
        return code, process.stdout.read()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, HANGUP])
def test_one_signal_finishes_running_requests_and_says_how_to_resume(tmp_path: Path, number: signal.Signals) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 60)
    with run_server("--says", "Yes.", "--latency", "0.3") as url:
        code, said = signal_run(suite, url, lambda process: process.send_signal(number))
        assert code == 130
        assert "Finishing requests in flight" in said
        (run,) = parse_json(run_pramana("runs", "--json"))
        assert (run["status"], 4 < run["stored"] < 60, run["stored"] % 4) == ("interrupted", True, 0)
        assert f"Resume with: pramana run --resume {run['id']}" in said
        done = run_pramana("run", "--resume", run["id"], "--json", "--concurrency", "32")
        assert (done.returncode, parse_json(done)["overall"]["passed"]) == (0, 60)


@pytest.mark.parametrize("several", [(signal.SIGINT,) * 2, (signal.SIGINT,) * 5, (signal.SIGTERM, signal.SIGINT)])
def test_two_signals_end_at_once_and_the_run_can_be_resumed(
    tmp_path: Path, several: tuple[signal.Signals, ...]
) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 40)

    def tell(process: programs.Process) -> None:
        for number in several:
            process.send_signal(number)

    with run_server("--says", "Yes.", "--latency", "0.5") as url:
        code, said = signal_run(suite, url, tell)
        assert code == 130
        assert "Traceback" not in said
        (run,) = parse_json(run_pramana("runs", "--json"))
        assert run["status"] == "interrupted"
        found = re.search(r"Resume with: pramana run --resume (\S+)", said)
        assert found, said
        assert found[1] == run["id"]
        done = run_pramana("run", "--resume", run["id"], "--json", "--concurrency", "40")
        assert (done.returncode, parse_json(done)["overall"]["passed"]) == (0, 40)


def test_an_ignored_hangup_does_not_stop_the_run(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 20)
    signal.signal(HANGUP, signal.SIG_IGN)  # which a child inherits, as under nohup
    with run_server("--says", "Yes.", "--latency", "0.1") as url:
        code, _ = signal_run(suite, url, lambda process: process.send_signal(HANGUP))
    assert code == 0
    assert count_stored_results() == 20


def test_the_second_signal_interrupts_and_immediate_repeats_are_ignored() -> None:
    now = 100.0
    stop = Stop()
    interruptible = SignalHandler(stop, lambda: now)
    interruptible._on_signal(signal.SIGTERM, None)
    assert stop.reason == INTERRUPTED_BY_USER_REASON
    with pytest.raises(KeyboardInterrupt):
        interruptible._on_signal(signal.SIGINT, None)
    interruptible._on_signal(signal.SIGINT, None)
    now += REPEATED_SIGNALS_IGNORED_S + 0.1
    with pytest.raises(KeyboardInterrupt):
        interruptible._on_signal(signal.SIGINT, None)


def test_two_signals_interrupt_a_run_that_is_already_stopping() -> None:
    stop = Stop()
    stop("the budget is spent")
    interruptible = SignalHandler(stop)
    interruptible._on_signal(signal.SIGINT, None)
    with pytest.raises(KeyboardInterrupt):
        interruptible._on_signal(signal.SIGINT, None)
    assert stop.reason == "the budget is spent"


def test_signal_handlers_are_restored() -> None:
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, HANGUP)]
    with SignalHandler(Stop()):
        assert signal.getsignal(signal.SIGTERM) != before[1]
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, HANGUP)] == before


def test_a_closed_terminal_does_not_end_the_run(tmp_path: Path) -> None:
    """The other end of the terminal closes, as when a connection is lost; running requests are still stored."""
    suite = write_suite(tmp_path / "mine.jsonl", 40)
    with run_server("--says", "Yes.", "--latency", "0.3") as url:
        ours, theirs = os.openpty()
        command = [sys.executable, "-m", "pramana", "run", str(suite), "--model", f"{url}#any", "--concurrency", "4"]
        with subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=make_environment(), start_new_session=True
        ) as process:
            os.close(theirs)
            wait_until(lambda: count_stored_results() > 4)
            os.close(ours)
            process.send_signal(HANGUP)
            process.wait(timeout=60)
        (run,) = parse_json(run_pramana("runs", "--json"))
        assert (run["status"], run["stored"] % 4) == ("interrupted", 0)
        assert run["stored"] < 40


def test_ctrl_c_prints_the_answer_of_a_test_so_far_which_can_be_continued() -> None:
    with run_server("--says", "Yes.", "--latency", "0.2") as url:
        command = ["-m", "pramana", "same", f"{url}#one", f"{url}#two", "--calls", "120"]
        with programs.start(command, env=make_environment()) as process:
            wait_until(lambda: count_stored_results() > 40)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
            assert process.stdout
            output = process.stdout.read()
        assert "No difference seen in" in output or "Could not be tested" in output
        (run,) = parse_json(run_pramana("runs", "--json"))
        assert (run["status"], 40 < run["stored"] < 120) == ("interrupted", True)
        assert run_pramana("run", "--resume", run["id"], "--quiet").returncode == 0
        assert run_pramana("same", "--show", run["id"]).returncode == 0
