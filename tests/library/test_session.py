"""How a run is waited for from Python: whatever ends the wait ends the run, and no result is lost on the way."""

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
from pramana.library import session
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
        return list(store.runs.page(limit=9)[0])


# ── Streams ──


class Gate:
    """Keeps the first read that has found results from returning until it is opened."""

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


async def begin(results: session.Stream, gate: Gate) -> "asyncio.Task[Any]":
    """Wait for the next result until it is being read."""
    waiting = asyncio.ensure_future(anext(results))
    await asyncio.to_thread(gate.reached.wait, LONGEST_S)
    return waiting


def test_a_result_that_was_being_read_when_its_waiter_was_cancelled_comes_with_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = Gate(monkeypatch)

    async def collect() -> list[str]:
        results = pramana.stream(CASES, model=echo)
        waiting = await begin(results, gate)
        assert results._done
        await asyncio.wait((asyncio.wrap_future(results._done),))  # nothing will be stored that would wake a reader
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.opened.set()
        async with asyncio.timeout(LONGEST_S):
            return [each.case_id async for each in results]

    assert sorted(asyncio.run(collect())) == IDS


def test_two_who_wait_at_once_share_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)

    async def collect() -> list[str]:
        results = pramana.stream(CASES, model=echo)
        waiting = [await begin(results, gate), asyncio.ensure_future(anext(results))]
        await asyncio.sleep(0)
        gate.opened.set()
        async with asyncio.timeout(LONGEST_S):
            first = [(await each).case_id for each in waiting]
            return first + [each.case_id async for each in results]

    assert sorted(asyncio.run(collect())) == IDS


def test_a_stream_whose_store_cannot_be_read_raises_and_goes_on_when_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch, StoreFailed("the disk is gone"))

    async def collect() -> list[str]:
        results = pramana.stream(CASES, model=echo)
        waiting = await begin(results, gate)
        assert results._done
        await asyncio.wait((asyncio.wrap_future(results._done),))
        gate.opened.set()
        with pytest.raises(StoreFailed, match="the disk is gone"):
            await waiting
        async with asyncio.timeout(LONGEST_S):
            return [each.case_id async for each in results]

    assert sorted(asyncio.run(collect())) == IDS


# ── What ends the wait ends the run ──


class TimeIsUp(BaseException):
    """As plugins raise where a test takes too long."""


class Announced(Stop):
    """Says when it is called."""

    called: threading.Event

    def __call__(self, *given: Any) -> None:
        super().__call__(*given)
        self.called.set()


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Return what is set once a run was told to stop."""
    Announced.called = threading.Event()
    monkeypatch.setattr(session, "Stop", Announced)
    return Announced.called


@pytest.fixture
def raise_here() -> Iterator[Callable[[BaseException], None]]:
    """Return a function that makes the main thread raise, as `signal.alarm` does; any thread may call it."""
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
def test_any_exception_in_the_thread_that_waits_stops_the_run(
    error: BaseException, stopped: threading.Event, raise_here: Callable[[BaseException], None]
) -> None:
    asked: list[str] = []

    def model(prompt: str) -> str:
        asked.append(prompt)
        if len(asked) == 3:
            raise_here(error)
            assert stopped.wait(LONGEST_S)
        return prompt

    with pytest.raises(type(error)) as raised:
        pramana.evaluate(CASES, model=model, concurrency=1)
    assert raised.value is error
    (left,) = stored_runs()
    assert (left.status, left.stored, len(asked)) == ("interrupted", 3, 3)
    (note,) = error.__notes__
    assert note.startswith(f"the run was stopped; resume with pramana.resume('{left.id}'")
    assert pramana.resume(left.id, model=echo_as(model)).passed


def echo_as(model: Callable[[str], str]) -> Callable[[str], str]:
    """Return another function by the name of a model."""

    def stand_in(prompt: str) -> str:
        return prompt

    stand_in.__module__, stand_in.__qualname__ = model.__module__, model.__qualname__
    return stand_in


def test_a_call_that_hangs_is_cancelled_after_a_while(
    monkeypatch: pytest.MonkeyPatch, raise_here: Callable[[BaseException], None]
) -> None:
    monkeypatch.setattr(session, "LEFT_STREAM_TIMEOUT_S", 0.01)
    never = threading.Event()

    def hang(prompt: str) -> str:
        raise_here(TimeIsUp())
        never.wait(LONGEST_S)
        return prompt

    with pytest.raises(TimeIsUp):
        pramana.evaluate(CASES[:1], model=hang)
    assert not never.is_set()
    never.set()
    (left,) = stored_runs()
    assert (left.status, left.stored) == ("interrupted", 0)


def test_an_interrupt_before_the_wait_has_begun_stops_the_run(
    monkeypatch: pytest.MonkeyPatch, stopped: threading.Event
) -> None:
    asked: list[str] = []
    first = threading.Event()
    start = session._start

    def model(prompt: str) -> str:
        asked.append(prompt)
        first.set()
        assert stopped.wait(LONGEST_S)
        return prompt

    def interrupted_start(*given: Any) -> None:
        start(*given)
        assert first.wait(LONGEST_S)
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "_start", interrupted_start)
    with pytest.raises(KeyboardInterrupt, match="interrupted; 1 of 8 results are stored; resume with"):
        pramana.evaluate(CASES, model=model, concurrency=1)
    assert len(asked) == 1


def test_an_interrupt_before_the_thread_runs_leaves_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[threading.Thread] = []

    class Interrupted(threading.Thread):
        def start(self) -> None:
            late.append(self)
            raise KeyboardInterrupt

    monkeypatch.setattr(session.threading, "Thread", Interrupted)  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        pramana.evaluate(CASES, model=echo)
    late[0].run()  # which is how a thread goes on that was started all the same
    assert stored_runs() == []


def test_a_run_that_ends_just_when_the_wait_for_it_times_out_gives_its_report(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    class Descheduled(Future[Any]):
        """Ends between the end of a wait for it and the look at whether it has ended."""

        def result(self, timeout: float | None = None) -> Any:
            try:
                return super().result(timeout)
            except TimeoutError:
                may_end.set()
                super().exception(LONGEST_S)
                raise

    def model(prompt: str) -> str:
        threading.Timer(2 * session.REFRESH_S, may_end.set).start()
        assert may_end.wait(LONGEST_S)
        return prompt

    monkeypatch.setattr(session, "Future", Descheduled)
    assert pramana.evaluate(CASES[:1], model=model).passed


# ── Where results are read ──


def test_a_report_reads_the_store_that_its_run_was_stored_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_relative_store_is_found_after_the_working_directory_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def inner(prompt: str) -> str:
    return prompt


async def blocks_the_loop(prompt: str) -> str:
    return str(pramana.evaluate({"input": prompt, "ideal": prompt}, model=inner).passed)


async def awaits(prompt: str) -> str:
    return str((await pramana.evaluate_async({"input": prompt, "ideal": prompt}, model=inner)).passed)


async def resumes(_: str) -> str:
    return str(pramana.resume().passed)


def evaluate_or_fail(**options: Any) -> pramana.Report:
    """Evaluate in a thread, so that what hangs fails."""
    reports: list[pramana.Report] = []
    thread = threading.Thread(target=lambda: reports.append(pramana.evaluate(CASES[:1], **options)), daemon=True)
    thread.start()
    thread.join(LONGEST_S)
    return reports[0]


@pytest.mark.parametrize("model", [blocks_the_loop, resumes])
def test_a_coroutine_function_that_blocks_the_loop_it_runs_in_is_refused(model: Callable[..., Any]) -> None:
    (error,) = evaluate_or_fail(model=model).errors
    assert "InvalidInput: a coroutine function cannot call pramana.evaluate" in str(error.reason)
    assert "await pramana.evaluate_async(...)" in str(error.reason)


def test_a_coroutine_function_can_await_another_evaluation() -> None:
    (result,) = evaluate_or_fail(model=awaits).results()
    assert result.reply is not None
    assert result.reply.text == "True"


def test_a_scorer_that_blocks_the_loop_it_runs_in_is_refused() -> None:
    async def nested(context: Any) -> bool:
        return pramana.evaluate({"input": context.reply.text}, model=inner).passed

    (result,) = evaluate_or_fail(model=echo, scorers=[nested]).results()
    assert any("await pramana.evaluate_async(...)" in str(each.reason) for each in result.checks)


# ── Context variables ──

request_id: ContextVar[str] = ContextVar("request_id", default="none")


def traced(_: str) -> str:
    return request_id.get()


async def traced_later(_: str) -> str:
    return request_id.get()


@pytest.mark.parametrize("model", [traced, traced_later])
def test_models_see_the_context_variables_of_the_caller(model: Callable[..., Any]) -> None:
    cases = {"input": "Which request?", "ideal": "request-7"}

    async def streamed() -> list[str]:
        return [each.outcome.value async for each in pramana.stream(cases, model=model)]

    token = request_id.set("request-7")
    try:
        assert pramana.evaluate(cases, model=model).passed
        assert asyncio.run(pramana.evaluate_async(cases, model=model)).passed
        assert asyncio.run(streamed()) == ["passed"]
    finally:
        request_id.reset(token)


def test_scorers_see_the_context_variables_of_the_caller() -> None:
    def plain(_: Any) -> bool:
        return request_id.get() == "request-8"

    async def awaited(_: Any) -> bool:
        return request_id.get() == "request-8"

    token = request_id.set("request-8")
    try:
        assert pramana.evaluate(CASES, model=echo, scorers=[plain, awaited]).passed
    finally:
        request_id.reset(token)
