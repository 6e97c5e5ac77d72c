"""Waiting for a run from Python: whatever ends the wait stops the run, and no result is lost."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

import pramana
from pramana import settings
from pramana.errors import StoreFailed
from pramana.library import session, threads
from pramana.model import Run
from pramana.run.engine import Stop
from pramana.store import open_store

CASES = [{"id": f"echo-{number}", "input": f"{number}", "ideal": f"{number}"} for number in range(8)]
IDS = [each["id"] for each in CASES]
LONGEST_S = 20.0
"""After which a test fails that would otherwise hang."""


def echo(prompt: str) -> str:
    return prompt


def stored_runs() -> list[Run]:
    with closing(open_store(settings.database_url())) as store:
        return list(store.runs.read_page(limit=9)[0])


# ── Streams ──


class Gate:
    """Blocks the first read that returns results until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: Exception | None = None) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        read = session._ResultReader.read_new

        def read_new(reader: session._ResultReader, *given: Any) -> Any:
            found = read(reader, *given)
            if reader._last and not self.reached.is_set():
                self.reached.set()
                assert self.opened.wait(LONGEST_S)
                if error:
                    reader._last = 0
                    raise error
            return found

        monkeypatch.setattr(session._ResultReader, "read_new", read_new)


async def start_next(results: session.Stream, gate: Gate) -> "asyncio.Task[Any]":
    """Start waiting for the next result; return once it is being read."""
    waiting = asyncio.ensure_future(anext(results))
    await asyncio.to_thread(gate.reached.wait, LONGEST_S)
    return waiting


def test_a_result_read_while_its_waiter_is_cancelled_goes_to_the_next_waiter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)

    async def collect() -> list[str]:
        results = pramana.stream(CASES, model=echo)
        waiting = await start_next(results, gate)
        assert results._done
        await asyncio.wait((asyncio.wrap_future(results._done),))  # nothing more is stored, so no reader wakes up
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.opened.set()
        async with asyncio.timeout(LONGEST_S):
            return [each.case_id async for each in results]

    assert sorted(asyncio.run(collect())) == IDS


def test_two_concurrent_waiters_share_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)

    async def collect() -> list[str]:
        results = pramana.stream(CASES, model=echo)
        waiting = [await start_next(results, gate), asyncio.ensure_future(anext(results))]
        await asyncio.sleep(0)
        gate.opened.set()
        async with asyncio.timeout(LONGEST_S):
            first = [(await each).case_id for each in waiting]
            return first + [each.case_id async for each in results]

    assert sorted(asyncio.run(collect())) == IDS


def test_a_stream_raises_on_a_store_error_and_continues_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, StoreFailed("the disk is gone"))

    async def collect() -> list[str]:
        results = pramana.stream(CASES, model=echo)
        waiting = await start_next(results, gate)
        assert results._done
        await asyncio.wait((asyncio.wrap_future(results._done),))
        gate.opened.set()
        with pytest.raises(StoreFailed, match="the disk is gone"):
            await waiting
        async with asyncio.timeout(LONGEST_S):
            return [each.case_id async for each in results]

    assert sorted(asyncio.run(collect())) == IDS


# ── Ending the wait ──


class TimeIsUp(BaseException):
    """Raised as timeout plugins do for a slow test."""


class RecordingStop(Stop):
    """A stop that records its call."""

    called: threading.Event

    def __call__(self, *given: Any) -> None:
        super().__call__(*given)
        self.called.set()


@pytest.fixture
def stop_called(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return an event that is set once a run is stopped."""
    RecordingStop.called = threading.Event()
    monkeypatch.setattr(session, "Stop", RecordingStop)
    return RecordingStop.called


@pytest.fixture
def raise_in_main() -> Iterator[Callable[[BaseException], None]]:
    """Return a function that raises an error in the main thread, as `signal.alarm` does, from any thread."""
    raised: list[BaseException] = []

    def handle(*_: object) -> None:
        raise raised[-1]

    def raise_in_main_thread(error: BaseException) -> None:
        raised.append(error)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, handle)
    yield raise_in_main_thread
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("error", [TimeoutError("my alarm"), TimeIsUp("too long"), SystemExit(3)])
def test_any_exception_in_the_waiting_thread_stops_the_run(
    error: BaseException, stop_called: threading.Event, raise_in_main: Callable[[BaseException], None]
) -> None:
    asked: list[str] = []

    def model(prompt: str) -> str:
        asked.append(prompt)
        if len(asked) == 3:
            raise_in_main(error)
            assert stop_called.wait(LONGEST_S)
        return prompt

    with pytest.raises(type(error)) as raised:
        pramana.evaluate(CASES, model=model, concurrency=1)
    assert raised.value is error
    (left,) = stored_runs()
    assert (left.status, left.stored, len(asked)) == ("interrupted", 3, 3)
    (note,) = error.__notes__
    assert note.startswith(f"the run was stopped; resume with pramana.resume('{left.id}'")
    assert pramana.resume(left.id, model=make_echo(model)).passed


def make_echo(model: Callable[[str], str]) -> Callable[[str], str]:
    """Return an echo function named like a model."""

    def stand_in(prompt: str) -> str:
        return prompt

    stand_in.__module__, stand_in.__qualname__ = model.__module__, model.__qualname__
    return stand_in


def test_a_hanging_call_is_cancelled_after_a_grace_period(
    monkeypatch: pytest.MonkeyPatch, raise_in_main: Callable[[BaseException], None]
) -> None:
    monkeypatch.setattr(session, "LEFT_STREAM_TIMEOUT_S", 0.01)
    never = threading.Event()

    def hang(prompt: str) -> str:
        raise_in_main(TimeIsUp())
        never.wait(LONGEST_S)
        return prompt

    with pytest.raises(TimeIsUp):
        pramana.evaluate(CASES[:1], model=hang)
    assert not never.is_set()
    never.set()
    (left,) = stored_runs()
    assert (left.status, left.stored) == ("interrupted", 0)


def test_an_interrupt_before_waiting_stops_the_run(
    monkeypatch: pytest.MonkeyPatch, stop_called: threading.Event
) -> None:
    asked: list[str] = []
    first = threading.Event()
    start = threads.run_in_thread

    def model(prompt: str) -> str:
        asked.append(prompt)
        first.set()
        assert stop_called.wait(LONGEST_S)
        return prompt

    def interrupted_start(*given: Any) -> None:
        start(*given)
        assert first.wait(LONGEST_S)
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "run_in_thread", interrupted_start)
    with pytest.raises(KeyboardInterrupt, match="interrupted; 1 of 8 results are stored; resume with"):
        pramana.evaluate(CASES, model=model, concurrency=1)
    assert len(asked) == 1


def test_an_interrupt_before_the_thread_starts_creates_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[threading.Thread] = []

    class Interrupted(threading.Thread):
        def start(self) -> None:
            late.append(self)
            raise KeyboardInterrupt

    monkeypatch.setattr(session.threading, "Thread", Interrupted)  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        pramana.evaluate(CASES, model=echo)
    late[0].run()  # as a thread continues that was started anyway
    assert stored_runs() == []


def test_a_run_that_ends_as_the_wait_times_out_returns_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    class Descheduled(Future[Any]):
        """Finishes after a wait for it has timed out and before its state is checked."""

        def result(self, timeout: float | None = None) -> Any:
            try:
                return super().result(timeout)
            except TimeoutError:
                may_end.set()
                super().exception(LONGEST_S)
                raise

    def model(prompt: str) -> str:
        threading.Timer(2 * session.REFRESH_INTERVAL_S, may_end.set).start()
        assert may_end.wait(LONGEST_S)
        return prompt

    monkeypatch.setattr(session, "Future", Descheduled)
    assert pramana.evaluate(CASES[:1], model=model).passed


# ── Location of the store ──


def test_a_report_reads_the_store_of_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = pramana.evaluate(CASES, model=lambda _: "3")
    better = pramana.evaluate(CASES, model=echo)
    partial = pramana.evaluate(CASES, model="fake:tokens=5", max_total_tokens=1, concurrency=1)
    monkeypatch.setenv("PRAMANA_HOME", str(tmp_path / "another"))
    assert [each.case_id for each in report.failures] == [each for each in IDS if each != "echo-3"]
    assert len(report.to_records()) == len(list(report.results())) == len(CASES)
    assert report.save(tmp_path / "report.csv").read_text(encoding="utf-8").count("echo-") == len(CASES)
    assert pramana.compare(report, better).pairs == len(CASES)
    assert pramana.resume(partial).run_id == partial.run_id
    assert stored_runs() == []


def test_a_relative_store_path_survives_a_change_of_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PRAMANA_HOME", "relative")
    report = pramana.evaluate(CASES[:1], model=lambda _: "wrong")

    def leave(prompt: str) -> str:
        monkeypatch.chdir(tmp_path / "elsewhere")
        return prompt

    async def collect() -> list[str]:
        return [each.case_id async for each in pramana.stream(CASES[:2], model=leave)]

    assert sorted(asyncio.run(collect())) == IDS[:2]
    assert [each.case_id for each in report.failures] == IDS[:1]
    assert not (tmp_path / "elsewhere" / "relative").exists()


# ── Evaluations within evaluations ──


async def evaluate_inner(prompt: str) -> str:
    return prompt


async def evaluate_inside(prompt: str) -> str:
    return str(pramana.evaluate({"input": prompt, "ideal": prompt}, model=evaluate_inner).passed)


async def evaluate_async_inside(prompt: str) -> str:
    return str((await pramana.evaluate_async({"input": prompt, "ideal": prompt}, model=evaluate_inner)).passed)


async def resume_inside(_: str) -> str:
    return str(pramana.resume().passed)


def evaluate_or_fail(**options: Any) -> pramana.Report:
    """Evaluate in a thread, so that a deadlock fails the test."""
    reports: list[pramana.Report] = []
    thread = threading.Thread(target=lambda: reports.append(pramana.evaluate(CASES[:1], **options)), daemon=True)
    thread.start()
    thread.join(LONGEST_S)
    return reports[0]


@pytest.mark.parametrize("model", [evaluate_inside, resume_inside])
def test_a_blocking_evaluation_inside_a_coroutine_is_refused(model: Callable[..., Any]) -> None:
    (error,) = evaluate_or_fail(model=model).errors
    assert "InvalidInput: a coroutine function cannot call pramana.evaluate" in str(error.reason)
    assert "await pramana.evaluate_async(...)" in str(error.reason)


def test_a_coroutine_function_can_await_another_evaluation() -> None:
    (result,) = evaluate_or_fail(model=evaluate_async_inside).results()
    assert result.reply is not None
    assert result.reply.text == "True"


def test_a_blocking_evaluation_inside_a_scorer_is_refused() -> None:
    async def evaluate_in_scorer(context: Any) -> bool:
        return pramana.evaluate({"input": context.reply.text}, model=evaluate_inner).passed

    (result,) = evaluate_or_fail(model=echo, scorers=[evaluate_in_scorer]).results()
    assert any("await pramana.evaluate_async(...)" in str(each.reason) for each in result.checks)


# ── Context variables ──

request_id: ContextVar[str] = ContextVar("request_id", default="none")


def echo_request_id(_: str) -> str:
    return request_id.get()


async def echo_request_id_async(_: str) -> str:
    return request_id.get()


@pytest.mark.parametrize("model", [echo_request_id, echo_request_id_async])
def test_models_see_the_context_variables_of_the_caller(model: Callable[..., Any]) -> None:
    cases = {"input": "Which request?", "ideal": "request-7"}

    async def collect_stream() -> list[str]:
        return [each.outcome.value async for each in pramana.stream(cases, model=model)]

    token = request_id.set("request-7")
    try:
        assert pramana.evaluate(cases, model=model).passed
        assert asyncio.run(pramana.evaluate_async(cases, model=model)).passed
        assert asyncio.run(collect_stream()) == ["passed"]
    finally:
        request_id.reset(token)


def test_scorers_see_the_context_variables_of_the_caller() -> None:
    def plain(_: Any) -> bool:
        return request_id.get() == "request-8"

    async def score_async(_: Any) -> bool:
        return request_id.get() == "request-8"

    token = request_id.set("request-8")
    try:
        assert pramana.evaluate(CASES, model=echo, scorers=[plain, score_async]).passed
    finally:
        request_id.reset(token)
