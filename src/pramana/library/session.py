"""Executes one run from Python: in the caller's event loop, in a thread while the caller blocks, or as a stream.

A session takes a function that finds or creates a run, and the functions that the run calls, and returns a `Report`; a
`Stream` yields results as they are stored. Both keep stored results when interrupted, and install no signal handler.
"""

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pramana import clock, planning, settings
from pramana.bench import STREAM_CLOSED_REASON, ProgressCallback, execute, reduced_garbage_collection
from pramana.errors import BudgetSpent, InvalidInput, PramanaError, StoreFailed
from pramana.library.options import reword_for_python
from pramana.library.report import Report, current_database_url, make_report
from pramana.library.threads import (
    CANCEL_TIMEOUT_S,
    CancellableTask,
    is_in_functions_loop,
    run_in_thread,
    was_raised_by_work,
)
from pramana.model import Run
from pramana.providers.accounts import PassedFunctions
from pramana.report.progress import make_progress_display
from pramana.report.resuming import format_resume_call
from pramana.request import Limits
from pramana.run.accounts import ProviderAccess
from pramana.run.asking import ReplyCache
from pramana.run.engine import INTERRUPTED_BY_USER_REASON, ResultBackpressure, Stop
from pramana.score.scorers import Scorer
from pramana.store import open_store

if TYPE_CHECKING:
    from pramana.app.views import ResultDetailView
    from pramana.store.store import Store

REFRESH_INTERVAL_S = 0.2
"""How often the progress is redrawn in a notebook."""
LEFT_STREAM_TIMEOUT_S = 10.0
"""How long calls under way may take to finish after a stream was left or an exception ended the run."""
_ending_streams: dict[str, Future[Any]] = {}
"""Runs of streams that were left early, by id, until they have ended."""


class RunWithLimits(NamedTuple):
    """A run to execute, and its limits."""

    run: Run
    limits: Limits


class RunSession:
    """One run, from the request to the report."""

    def __init__(
        self,
        find: "Callable[[Store, ProviderAccess], RunWithLimits]",
        functions: Mapping[str, Callable[..., Any]],
        loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.get_running_loop,
        *,
        use_cache: bool = False,
        scorers: Mapping[str, Scorer] | None = None,
        store_url: str | None = None,
    ) -> None:
        """Take a function that returns the run, new or resumed, and the `functions` that the run calls.

        `store_url` defaults to the store that the environment names now; later changes of the environment or of the
        working directory do not affect the run.
        """
        self.stop = Stop()
        self.store_url = store_url or current_database_url()
        self.loop = loop
        """Where coroutine functions run."""
        self.run_record: Run | None = None
        """The run, once it is created or found."""
        self._find, self._functions = find, functions
        self._scorers = scorers or {}
        self._cache = ReplyCache(settings.data_folder().absolute() / "cache") if use_cache else None
        self._backpressure: ResultBackpressure | None = None
        self._store: Store
        self._limits: Limits
        self._reach: ProviderAccess

    @asynccontextmanager
    async def open_run(self) -> AsyncIterator[Run]:
        """Open the store and find the run."""
        self._reach = ProviderAccess(passed_functions=PassedFunctions(self._functions, self._scorers, self.loop()))
        self._store = store = await asyncio.to_thread(open_store, self.store_url)
        try:
            found, self._limits = await asyncio.to_thread(self._find, store, self._reach)
            self.run_record = found
            await asyncio.to_thread(planning.pull_missing_weights, found.plan)
            yield found
        finally:
            await asyncio.to_thread(store.close)

    async def run(self, progress: bool | None, refresher: "_ProgressRefresher | None" = None) -> Report:
        """Execute the run and return its report."""
        async with self.open_run() as found:
            counts = self._store.results.count_outcomes(found.id) if found.stored else None
            with make_progress_display(found, counts, progress, runs_in_other_thread=refresher is not None) as shown:
                if refresher:
                    refresher.refresh = shown.refresh
                return await self._execute(found, shown)

    async def run_and_notify(self, notify: Callable[[], None]) -> Report:
        """Execute the run; `notify` is called once the run exists, and whenever results have been stored."""
        async with self.open_run() as found:
            self._backpressure = ResultBackpressure(_max_requests_ahead(self._limits.concurrency))
            notify()
            return await self._execute(found, lambda _: notify())

    def count_consumed(self) -> None:
        """Count a consumed result, so that another request may start."""
        if self._backpressure:
            self._backpressure.record_taken()

    async def _execute(self, run_record: Run, on_progress: ProgressCallback) -> Report:
        with reduced_garbage_collection():
            try:
                run = await execute(
                    self._store,
                    run_record,
                    self._limits,
                    on_progress,
                    self.stop,
                    reach=self._reach,
                    cache=self._cache,
                    backpressure=self._backpressure,
                )
            except KeyboardInterrupt:  # raised by a function
                stopped = self._store.runs.read(run_record.id)
                raise KeyboardInterrupt(f"interrupted; {_resume_hint(stopped)}") from None
            except StoreFailed as failed:
                with suppress(PramanaError):  # the store may not be readable either
                    failed.add_note(_resume_hint(self._store.runs.read(run_record.id)))
                raise
        error = self.stop.error
        if error is not None and not isinstance(error, BudgetSpent):  # a limit ends a run as requested
            error.add_note(_resume_hint(run))
            raise error
        return await asyncio.to_thread(make_report, self._store, run, self.store_url, self._functions)


def _max_requests_ahead(concurrency: int) -> int:
    """Return how many requests a stream may be ahead of its consumer: slightly more than can be under way.

    A result is consumed a moment after its request ends, since it is stored first; without the extra ones, the next
    request would wait for that.
    """
    return concurrency + max(1, concurrency // 4)


def _resume_hint(run: Run) -> str:
    kept = f"{run.stored:,} of {run.expected:,} results are stored"
    return f"{kept}; resume with {format_resume_call(run)}"


def find_run_to_resume(store: "Store", run_id: str) -> Run:
    """Return a run to resume; if a stream of it was left and is still ending, wait for its end."""
    if ending := _ending_streams.get(store.runs.find(run_id).id):
        wait((ending,), LEFT_STREAM_TIMEOUT_S)
    return store.runs.find(run_id)


# ── Blocking ──


class _ProgressRefresher:
    """Redraws the progress in the thread that waits: a notebook shows only what its main thread displays."""

    def __init__(self) -> None:
        self.refresh: Callable[..., None] = lambda **_: None


def run_blocking(session: RunSession, progress: bool | None) -> Report:
    """Execute a session in a separate thread and wait for it.

    Any exception in the waiting thread ends the run: Ctrl-C, but also the exception of a signal handler or of a test's
    timeout. No run continues in the background.
    """
    if is_in_functions_loop():
        raise InvalidInput(
            "a coroutine function cannot call pramana.evaluate or pramana.resume: it would block the event loop that "
            "all coroutine functions share; await pramana.evaluate_async(...) or pramana.resume_async(...) instead"
        )
    refresher, running = _ProgressRefresher(), CancellableTask()
    done: Future[Report] = Future()
    try:
        run_in_thread(done, lambda: running.run(session.run(progress, refresher)))
        return _wait_for_report(done, refresher)
    except BaseException as error:
        if was_raised_by_work(done, error):
            raise
        session.stop(INTERRUPTED_BY_USER_REASON)
        if done.cancel():  # it has not started, and now never will
            raise
        try:
            _wait_for_end(done, refresher, math.inf if isinstance(error, KeyboardInterrupt) else LEFT_STREAM_TIMEOUT_S)
        finally:  # a second Ctrl-C ends the run at once
            if not done.done():
                running.cancel()
                wait((done,), CANCEL_TIMEOUT_S)
        if not isinstance(error, KeyboardInterrupt):
            if session.run_record and not _has_finished(done):
                error.add_note(f"the run was stopped; resume with {format_resume_call(session.run_record)}")
            raise
        report = done.result()
        if report.finished:  # the last result came before the interrupt
            return report
        raise KeyboardInterrupt(f"interrupted; {_resume_hint(report.run)}") from None


def _has_finished(done: "Future[Report]") -> bool:
    return done.done() and done.exception() is None and done.result().finished


def _wait_for_end(done: Future[Any], refresher: _ProgressRefresher, timeout_s: float = math.inf) -> None:
    until = clock.monotonic() + timeout_s
    while not wait((done,), min(REFRESH_INTERVAL_S, timeout_s)).done and clock.monotonic() < until:
        refresher.refresh()


def _wait_for_report(done: "Future[Report]", refresher: _ProgressRefresher) -> Report:
    _wait_for_end(done, refresher)
    report = done.result()
    refresher.refresh(at_once=True)
    return report


# ── Streaming ──


class Stream:
    """The object that `pramana.stream` returns: it yields the results of a run, each once it is stored.

    The run of a stream waits for the code that reads it: unread results and requests in flight are together at most
    about `concurrency`. If you leave the `async with` block of a stream, the run stops, and your code waits until the
    calls in flight are finished and stored; `resume` continues the run. Without an `async with` block, the run of a
    stream stops once the stream is closed (`aclose`) or garbage collected, without waiting for the calls in flight.
    You can cancel waiting for a result of a stream (`asyncio.wait_for`) without losing the result.
    """

    def __init__(self, session: RunSession) -> None:
        self._session = session
        self._done: Future[Report] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where the stream was started."""
        self._news = asyncio.Event()
        self._ready: list[ResultDetailView] = []
        self._reader = _ResultReader(session.store_url)
        self._reading: asyncio.Task[_FetchedResults] | None = None
        """The task that reads new results. If its caller is cancelled, the next one uses it."""

    @property
    def run_id(self) -> str | None:
        """The id of the stream's run; None before the first result was awaited."""
        return self._session.run_record.id if self._session.run_record else None

    def __repr__(self) -> str:
        return f"<Stream of run {self.run_id}>" if self.run_id else "<Stream of a run that has not started>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "ResultDetailView":
        if self._done is None:
            self._start()
        elif self._loop is not asyncio.get_running_loop():
            raise InvalidInput(
                "the stream was started in another event loop; take all of its results in that one, or resume its run "
                f"with {format_resume_call(self._session.run_record) if self._session.run_record else 'pramana.resume'}"
            )
        while not self._ready:
            reading = await self._fetch()
            await asyncio.wait((reading,))  # unlike awaiting a task, this does not cancel it with the caller
            if self._reading is not reading:
                continue  # another caller has taken it
            self._reading = None
            try:
                self._ready, ended = reading.result()
            except BaseException:
                self._news.set()  # for the next call
                raise
            if ended:
                self._news.set()
            if ended and not self._ready:
                self._reader.close()
                self._raise_error()
                raise StopAsyncIteration
        self._session.count_consumed()
        return self._ready.pop()

    def _raise_error(self) -> None:
        """Raise the error that ended the run, if there is one."""
        assert self._done  # noqa: S101 - it was started
        try:
            self._done.result()
        except PramanaError as error:
            raise (worded := reword_for_python(error)) from worded.__cause__

    async def _fetch(self) -> "asyncio.Task[_FetchedResults]":
        """Return the task that reads new results, once there are some; it keeps no reference to the stream."""
        if self._reading is None:
            await self._news.wait()
        if self._reading is None:  # otherwise another caller has started it
            assert self._done  # noqa: S101 - set when the thread starts
            self._news.clear()
            work = asyncio.to_thread(self._reader.read_new, self._session.run_record, self._done)
            self._reading = asyncio.create_task(work)
        return self._reading

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stop the stream's run if it has not ended, and wait until the calls in flight are finished and stored."""
        if self._done is not None:
            self._leave_early()
            with suppress(Exception):  # a caller that leaves early wants neither results nor errors
                await asyncio.shield(asyncio.wrap_future(self._done))
        await asyncio.to_thread(self._reader.close)  # it may be reading

    def __del__(self) -> None:
        if self._done is not None:
            self._leave_early()
        if self._reading is None or self._reading.done():
            self._reader.close()
        else:
            reader = self._reader
            self._reading.add_done_callback(lambda _: reader.close())

    def _start(self) -> None:
        loop, news = asyncio.get_running_loop(), self._news
        self._loop = loop
        session = self._session

        def notify() -> None:
            with suppress(RuntimeError):  # the loop is closed: nothing waits any more
                loop.call_soon_threadsafe(news.set)

        session.loop = lambda: loop
        self._done = Future()
        run_in_thread(self._done, lambda: session.run_and_notify(notify), notify)

    def _leave_early(self) -> None:
        done, run_id = self._done, self.run_id
        if done is None or done.done():
            return
        self._session.stop(STREAM_CLOSED_REASON)
        if run_id is not None:
            _ending_streams[run_id] = done
            done.add_done_callback(lambda _: _ending_streams.pop(run_id, None))


class _FetchedResults(NamedTuple):
    """The results stored since the last read."""

    results: "list[ResultDetailView]"
    """Newest first."""
    has_ended: bool
    """Whether the run had ended before the read, so that these are the last."""


class _ResultReader:
    """Reads the results of a run as they are stored.

    Separate from its stream, because a worker thread may keep its references a moment longer than the caller waits:
    then that thread, and not the `break` that leaves a stream, would decide when the run is stopped.
    """

    def __init__(self, store_url: str) -> None:
        self._store_url = store_url
        self._last = 0
        self._store: Store | None = None
        self._using = threading.Lock()

    def read_new(self, run: Run | None, done: Future[Any]) -> _FetchedResults:
        """Return what was stored since the last call."""
        from pramana.app.runs import result_detail_view

        ended = done.done()
        if run is None:
            return _FetchedResults([], ended)
        with self._using:
            if self._store is None:
                self._store = open_store(self._store_url)
            found = [
                result_detail_view(seq, case, result, run.plan.system_prompt)
                for seq, case, result in self._store.results.iterate_numbered_with_cases(run, self._last)
            ]
            self._last = found[-1].seq if found else self._last
        return _FetchedResults(found[::-1], ended)

    def close(self) -> None:
        """Close the store, if it was opened."""
        with self._using:
            store, self._store = self._store, None
        if store:
            store.close()
