"""Judges that a server asks again in the background: one job per run, stopped, failed, and ended with the server."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from pramana.app.rejudging_jobs import MAX_CONCURRENT_JOBS, RejudgingEnd, RejudgingJobs
from pramana.bench import Progress, ProgressCallback
from pramana.errors import BudgetSpent, InvalidInput, StateConflict
from pramana.run.engine import Stop


class Judges:
    """Work that answers one of three questions and then waits for its stop."""

    def __init__(self) -> None:
        self.started, self.stored = threading.Event(), False

    async def ask(self, on_progress: ProgressCallback, stop: Stop) -> RejudgingEnd:
        budget = SimpleNamespace(cost_usd=0.5)
        on_progress(cast("Progress", SimpleNamespace(stored_count=1, budget=budget)))
        self.started.set()
        try:
            while not stop:
                await stop.sleep(60)
            return RejudgingEnd()
        finally:
            self.stored = True


def end_with(jobs: RejudgingJobs, run_id: str, work: Callable[[ProgressCallback, Stop], object]) -> None:
    async def run(on_progress: ProgressCallback, stop: Stop) -> RejudgingEnd:
        return cast("RejudgingEnd", work(on_progress, stop))

    jobs.start(run_id, 3, run)
    wait_for_end(run_id)


def wait_for_end(run_id: str) -> None:
    for each in threading.enumerate():
        if each.name == f"rejudge {run_id}":
            each.join(10)


def test_a_job_shows_its_progress_and_one_of_the_same_run_is_refused_until_it_is_stopped() -> None:
    jobs, judges = RejudgingJobs(), Judges()
    assert jobs.status("r1") is None
    jobs.start("r1", 3, judges.ask)
    assert judges.started.wait(10)
    running = jobs.status("r1")
    assert running
    assert (running.status, running.answered, running.questions, running.cost_usd) == ("running", 1, 3, 0.5)
    with pytest.raises(StateConflict, match="the judges of run r1 are being asked again already"):
        jobs.start("r1", 3, judges.ask)
    jobs.stop("r1", "stopped by a user")
    wait_for_end("r1")
    stopped = jobs.status("r1")
    assert stopped
    assert (stopped.status, stopped.answered, stopped.problem) == ("stopped", 1, "stopped by a user")
    assert judges.stored
    end_with(jobs, "r1", lambda _, stop: RejudgingEnd((("no answer", 2),), 1))
    ended = jobs.status("r1")
    assert ended
    assert (ended.status, ended.unanswered, ended.unreadable) == ("finished", 2, 1)
    assert ended.problem == "2 × no answer"


def test_an_error_is_shown_and_a_cost_limit_stops_without_being_one(caplog: pytest.LogCaptureFixture) -> None:
    jobs = RejudgingJobs()
    errors = (
        (InvalidInput("no key"), "failed", "no key"),
        (BudgetSpent("the cost limit of $1 was reached"), "stopped", "the cost limit of $1 was reached"),
        (ValueError("secret"), "failed", "it failed with an internal error; see the server's log and try again"),
    )
    for error, status, problem in errors:

        def fail(_: ProgressCallback, __: Stop, error: Exception = error) -> None:
            raise error

        end_with(jobs, "r1", fail)
        found = jobs.status("r1")
        assert found
        assert (found.status, found.problem) == (status, problem)
    assert "secret" in caplog.text


def test_a_server_that_stops_ends_its_jobs_and_starts_no_other() -> None:
    jobs, all_judges = RejudgingJobs(), [Judges() for _ in range(MAX_CONCURRENT_JOBS)]
    for number, each in enumerate(all_judges):
        jobs.start(f"r{number}", 3, each.ask)
    assert all(each.started.wait(10) for each in all_judges)
    with pytest.raises(StateConflict, match=f"the judges of {MAX_CONCURRENT_JOBS} runs are being asked again"):
        jobs.start("another", 3, all_judges[0].ask)
    jobs.close()
    assert all(each.stored for each in all_judges)
    with pytest.raises(StateConflict, match="the server is about to stop"):
        jobs.start("another", 3, all_judges[0].ask)


def test_requests_that_do_not_end_are_dropped_some_seconds_after_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pramana.app.rejudging_jobs.CANCEL_GRACE_S", 0.01)
    jobs, started = RejudgingJobs(), threading.Event()

    async def hang(_: ProgressCallback, __: Stop) -> RejudgingEnd:
        started.set()
        await asyncio.Event().wait()
        return RejudgingEnd()

    jobs.start("r1", 3, hang)
    assert started.wait(10)
    jobs.stop("r1", "stopped by a user")
    wait_for_end("r1")
    found = jobs.status("r1")
    assert found
    assert found.status == "stopped"
