"""Judges that are asked again in the background of this process: at most one job per run, each in a thread.

A job stores every verdict as it comes, so that a job which is stopped, or ends with its process, loses nothing: the
next one asks only what is missing.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta
from msgspec.structs import replace

from pramana.app.views import View
from pramana.bench import Progress, ProgressCallback
from pramana.errors import BudgetSpent, PramanaError, StateConflict
from pramana.run.engine import Stop

log = logging.getLogger("pramana.app")

MAX_CONCURRENT_JOBS = 4
CANCEL_GRACE_S = 3.0
"""Seconds that requests in flight get to finish when a job is stopped; then they are dropped, and asked again later."""
CLOSE_TIMEOUT_S = 8.0
MAX_SHOWN_REASONS = 5
Work = Callable[[ProgressCallback, Stop], Coroutine[None, None, "RejudgingEnd"]]
"""Asks the judges again and returns what got no verdict."""


class RejudgingEnd(NamedTuple):
    """What has no verdict after the judges were asked again."""

    failures: tuple[tuple[str, int], ...] = ()
    """Why requests failed, and how many did, the most frequent first."""
    unreadable_count: int = 0
    """Answers without a readable verdict."""

    @property
    def unanswered_count(self) -> int:
        """The number of questions whose request failed."""
        return sum(count for _, count in self.failures)

    @property
    def problem(self) -> str | None:
        """Why requests failed, in one line; None if none did."""
        return "; ".join(f"{count:,} × {reason}" for reason, count in self.failures[:MAX_SHOWN_REASONS]) or None


class RejudgingJobView(View, frozen=True, kw_only=True):
    """The progress of judges that are being asked again, or how that ended."""

    status: Literal["running", "finished", "stopped", "failed"]
    answered: Annotated[int, Meta(description="Questions that were asked, of `questions`")]
    questions: int
    unanswered: Annotated[int, Meta(description="Questions whose request failed; known at the end")] = 0
    unreadable: Annotated[int, Meta(description="Answers without a readable verdict; known at the end")] = 0
    cost_usd: Annotated[float, Meta(description="Cost so far, as far as prices are known")] = 0.0
    problem: Annotated[str | None, Meta(description="Why the job or some requests failed, or why it was stopped")] = (
        None
    )


class RejudgingJobs:
    """The jobs of one process. Thread-safe."""

    def __init__(self) -> None:
        self._views: dict[str, RejudgingJobView] = {}
        self._stops: dict[str, Stop] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._lock = threading.Lock()
        self._closed = False

    def status(self, run_id: str) -> RejudgingJobView | None:
        """Return the newest job of a run in this process; None if there was none."""
        return self._views.get(run_id)

    def start(self, run_id: str, question_count: int, work: Work) -> None:
        """Start a job; raise an error if one of this run is under way, or too many of others."""
        with self._lock:
            if self._closed:
                raise StateConflict("the server is about to stop; start it again, and then this measurement")
            if run_id in self._stops:
                raise StateConflict(f"the judges of run {run_id} are being asked again already; stop that, or wait")
            if len(self._stops) >= MAX_CONCURRENT_JOBS:
                raise StateConflict(
                    f"the judges of {len(self._stops)} runs are being asked again; wait until one has ended"
                )
            self._stops[run_id] = Stop()
            self._views[run_id] = RejudgingJobView(status="running", answered=0, questions=question_count)
            # A daemon, so that a stopping server does not wait for a stalled connection.
            self._threads[run_id] = threading.Thread(
                target=self._run, args=(run_id, work), name=f"rejudge {run_id}", daemon=True
            )
            self._threads[run_id].start()

    def stop(self, run_id: str, reason: str) -> None:
        """Stop the job of a run, if one is under way; its verdicts so far are kept."""
        stop = self._stops.get(run_id)
        if stop is not None:
            stop(reason)

    def close(self) -> None:
        """Stop all jobs and return once their verdicts are stored, within seconds."""
        with self._lock:
            self._closed = True
            threads = list(self._threads.values())
        for run_id in list(self._stops):
            self.stop(run_id, "the server stopped")
        for each in threads:
            each.join(CLOSE_TIMEOUT_S)

    def _run(self, run_id: str, work: Work) -> None:
        stop = self._stops[run_id]
        end: RejudgingJobView | None = None
        try:
            found = asyncio.run(self._work_until_stopped(run_id, work, stop))
            status: Literal["stopped", "finished"] = "stopped" if stop else "finished"
            end = replace(
                self._views[run_id],
                status=status,
                unanswered=found.unanswered_count,
                unreadable=found.unreadable_count,
                problem=stop.reason or found.problem,
            )
        except BudgetSpent as error:  # a limit that ends a job is not an error
            end = replace(self._views[run_id], status="stopped", problem=str(error))
        except PramanaError as error:
            end = replace(self._views[run_id], status="failed", problem=str(error))
        except Exception:
            log.exception("the judges of run %s could not be asked again", run_id)
            problem = "it failed with an internal error; see the server's log and try again"
            end = replace(self._views[run_id], status="failed", problem=problem)
        finally:
            with self._lock:
                self._views[run_id] = replace(self._views[run_id], status="stopped") if end is None else end
                self._stops.pop(run_id, None)
                self._threads.pop(run_id, None)

    async def _work_until_stopped(self, run_id: str, work: Work, stop: Stop) -> RejudgingEnd:
        def show_progress(progress: Progress) -> None:
            self._views[run_id] = replace(
                self._views[run_id], answered=progress.stored_count, cost_usd=progress.budget.cost_usd
            )

        working = asyncio.ensure_future(work(show_progress, stop))
        loop = asyncio.get_running_loop()

        def cancel_soon() -> None:
            loop.call_later(CANCEL_GRACE_S, working.cancel)

        stop.add_callback(cancel_soon)
        with suppress(asyncio.CancelledError):
            return await working
        return RejudgingEnd()  # it was stopped, and the requests in flight took too long
