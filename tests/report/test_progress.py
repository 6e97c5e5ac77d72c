"""Live progress of a run: it shows what is stored, and never shows an unknown cost as zero."""

import asyncio
import io
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from pramana import bench, settings
from pramana.model import Check, Failure, Outcome, Reply, Result, ResultKey
from pramana.planning import create_run
from pramana.report import progress
from pramana.report.progress import MAX_SHOWN_FAILURES, LiveProgress
from pramana.request import Limits, RunRequest
from pramana.run.engine import Stop
from pramana.store import open_store

from ..loopback.openai import OpenAIWire
from ..loopback.server import Fault, Loopback


def make_result(number: int, outcome: Outcome) -> Result:
    key = ResultKey(str(number), "m")
    if outcome is Outcome.ERRORED:
        return Result(key, f"c-{number}", None, Failure("unavailable", "down \x1b[31m"), (), None, None)
    return Result(key, f"c-{number}", Reply("x"), None, (Check("contains", "1", outcome, "because"),), None, None)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class ZMQInteractiveShell:
    pass


class ColabShell(ZMQInteractiveShell):
    pass


@pytest.mark.parametrize(("shell", "is_one"), [(ZMQInteractiveShell(), True), (ColabShell(), True), (None, False)])
def test_jupyter_and_colab_notebooks_are_recognized(
    monkeypatch: pytest.MonkeyPatch, shell: object, *, is_one: bool
) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert progress._is_in_notebook() is is_one


def test_failures_are_printed_as_they_happen_up_to_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveProgress(100) as live:
        live.update([make_result(0, Outcome.PASSED), make_result(1, Outcome.ERRORED)], 0.0, unknown_cost=False)
        live.update([make_result(n, Outcome.FAILED) for n in range(2, 60)], 0.0, unknown_cost=False)
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "errored m c-1: down \\x1b[31m"
    assert said[1] == "failed m c-2: because"
    assert len(said) == MAX_SHOWN_FAILURES + 1
    assert live.stored == 60


def test_failures_are_only_counted_if_not_requested(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with LiveProgress(9, failures=False, clock=clock) as live:
        clock.now += 6
        live.update([make_result(0, Outcome.FAILED), make_result(1, Outcome.ERRORED)], 0.0, unknown_cost=False)
    assert capsys.readouterr().err == "2 of 9  1 failed, 1 errored  0.3/s  21 s left\n"


@pytest.mark.parametrize(
    ("cost", "unknown", "shown"),
    [
        (0.0, False, "1 passed  0.5/s  18 s left"),
        (0.0, True, "1 passed  0.5/s  cost unknown  18 s left"),
        (0.5, False, "1 passed  0.5/s  $0.5000  18 s left"),
        (0.5, True, "1 passed  0.5/s  $0.5000 + unknown  18 s left"),
    ],
)
def test_an_unknown_cost_is_never_shown_as_zero(cost: float, unknown: bool, shown: str) -> None:
    clock = Clock()
    live = LiveProgress(10, clock=clock)
    clock.now += 2
    live.update([make_result(0, Outcome.PASSED)], cost, unknown_cost=unknown)
    assert live._format_progress_note(cost, unknown_cost=unknown) == shown


def test_the_heading_is_printed_once_when_the_run_has_started(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveProgress(10, heading="Run r-1: 10 to ask"):
        pass
    assert capsys.readouterr() == ("", ""), "one that cannot begin is none"
    with LiveProgress(10, heading="Run r-1: 10 to ask") as live:
        live.update([], 0.0, unknown_cost=False)
        live.update([], 0.0, unknown_cost=False)
    assert capsys.readouterr().err == "Run r-1: 10 to ask\n"


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with LiveProgress(10, quiet=True, clock=clock) as live:
        live.update([make_result(0, Outcome.FAILED)], 1.0, unknown_cost=True)
        clock.now += 1000
        live.update([], 1.0, unknown_cost=True, rate_limit_wait_s=5)
    assert capsys.readouterr() == ("", "")


def test_plain_lines_show_rate_cost_and_time_left_even_if_a_run_stalls(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    with LiveProgress(
        100, {Outcome.PASSED: 40}, clock=clock
    ) as live:  # resumed: the forty results of the earlier sitting do not count for the rate
        for second in range(1, 121):
            clock.now += 1
            live.update(
                [make_result(0, Outcome.PASSED)] if second == 10 else [], 0.01 * (second >= 10), unknown_cost=False
            )
    assert capsys.readouterr().err.splitlines() == [
        "41 of 100  41 passed  0.1/s  $0.0100  9 min left",
        "41 of 100  41 passed  1.5/min  $0.0100  39 min left",
        "41 of 100  41 passed  0.9/min  $0.0100  68 min left",
        "41 of 100  41 passed  0.6/min  $0.0100  98 min left",
    ]


def test_a_run_without_progress_reports_it_every_30_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with LiveProgress(5, clock=clock) as live:
        for _ in range(65):
            clock.now += 1
            live.update([], 0.0, unknown_cost=False)
    assert capsys.readouterr().err.splitlines() == ["0 of 5  0.0/s  time left unknown"] * 2


def test_a_provider_that_requests_a_pause_is_named_as_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with LiveProgress(5, clock=clock) as live:
        for second in range(60):
            clock.now += 1
            live.update([], 0.0, unknown_cost=False, rate_limit_wait_s=max(0, 40 - second))
    assert capsys.readouterr().err.splitlines() == [
        "0 of 5  0.0/s  time left unknown  waiting 36 s as the provider asks",
        "0 of 5  0.0/s  time left unknown  waiting 6 s as the provider asks",
        "0 of 5  0.0/s  time left unknown",
    ]


def test_changes_of_call_stages_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with LiveProgress(2, clock=clock) as live:
        for calls in ("ringing", "caller speaking", "caller speaking", "1 agent speaking, 1 scoring the call", ""):
            clock.now += 5
            live.update([], 0.0, unknown_cost=False, call_stages=calls)
    assert capsys.readouterr().err.splitlines() == [
        "0 of 2  ringing  0.0/s  time left unknown",
        "0 of 2  caller speaking  0.0/s  time left unknown",
        "0 of 2  1 agent speaking, 1 scoring the call  0.0/s  time left unknown",
        "0 of 2  0.0/s  time left unknown",
    ]


def test_a_terminal_shows_the_same_as_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, clock = Terminal(), Clock()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    with LiveProgress(10, clock=clock) as live:
        clock.now += 10
        live.update([make_result(0, Outcome.PASSED)], 0.5, unknown_cost=False, rate_limit_wait_s=30)
        live._bar.refresh()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())
    assert "1/10 1 passed  0.1/s  $0.5000  90 s left  waiting 30 s as the provider asks" in shown


def test_a_run_paused_by_its_provider_reports_the_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """End to end: a server that requests a pause, the run, and the printed lines."""
    monkeypatch.setattr(bench, "PROGRESS_INTERVAL_S", 0.05)
    monkeypatch.setattr(progress, "LINE_INTERVAL_S", 0.1)
    case = {
        "id": "coding-001",
        "category": "coding",
        "input": "Say it.",
        "ideal": "x",
        "assertion": {"type": "contains"},
        "metadata": {"difficulty": "easy", "tokens_est": 8},
    }
    suite = tmp_path / "mine.jsonl"
    suite.write_text(json.dumps(case), encoding="utf-8")
    store = open_store(settings.database_url())

    async def go() -> None:
        async with Loopback(OpenAIWire("x"), script={0: Fault("rate_limited", retry_after="1")}) as server:
            run = create_run(store, RunRequest(paths=(suite,), models=(f"{server.url}#any",)))
            with LiveProgress(run.expected, store.results.count_outcomes(run.id)) as live:
                ended = await bench.execute(store, run, Limits(), live)
            assert (ended.status, ended.stored) == ("finished", 1)

    asyncio.run(go())
    store.close()
    assert capsys.readouterr().err.splitlines()[0] == (
        "0 of 1  0.0/s  time left unknown  waiting 1 s as the provider asks"
    )


def write_suite(folder: Path, count: int) -> Path:
    cases = [
        {
            "id": f"coding-{number:03}",
            "category": "coding",
            "input": f"Say it {number}.",
            "ideal": "x",
            "assertion": {"type": "contains"},
            "metadata": {"difficulty": "easy", "tokens_est": 8},
        }
        for number in range(count)
    ]
    suite = folder / "mine.jsonl"
    suite.write_text("\n".join(map(json.dumps, cases)), encoding="utf-8")
    return suite


def test_failures_name_variant_and_repeat_if_the_plan_has_several(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = open_store(settings.database_url())
    suite = write_suite(tmp_path, 1)
    for repeats in (2, 1):
        run = create_run(store, RunRequest(paths=(suite,), models=("fake:fixed=no",), repeats=repeats))
        with LiveProgress(run.expected, store.results.count_outcomes(run.id)) as live:
            bench.run_sync(store, run, Limits(), live)
    found = make_result(0, Outcome.FAILED)
    live = LiveProgress(4)
    plan = replace(run.plan, variants=("text", "voice"), repeats=3)
    spoken = replace(found, key=replace(found.key, variant="voice", repeat=2))
    live(bench.Progress(replace(run, plan=plan), 0, [spoken]))
    store.close()
    said = capsys.readouterr().err.splitlines()
    assert sorted(line.partition(":")[2].partition(": does")[0] for line in said[:3]) == [
        "fixed=no coding-000",
        "fixed=no coding-000 (repeat 1)",
        "fixed=no coding-000 (repeat 2)",
    ]
    assert said[3] == "failed m c-0 (voice, repeat 3): because"


def test_a_resumed_run_counts_results_of_earlier_sittings(tmp_path: Path) -> None:
    store = open_store(settings.database_url())
    run = create_run(store, RunRequest(paths=(write_suite(tmp_path, 40),), models=("fake:latency=0.02,fixed=x",)))

    def stop_after_five(seen: bench.Progress) -> None:
        if seen.stored_count >= 5:
            stop("enough")

    stop = Stop()
    run = bench.run_sync(store, run, Limits(concurrency=1), stop_after_five, stop)
    assert 0 < run.stored < run.expected
    with LiveProgress(run.expected, store.results.count_outcomes(run.id)) as live:
        bench.run_sync(store, run, Limits(), live)
    store.close()
    assert live.counts[Outcome.PASSED] == 40
    assert "40 passed" in live._format_progress_note(0.0, unknown_cost=False)
