"""Background runs of a server: `planning.create_run` queues them, and `Jobs` executes them.

Any process that shares the store may queue, show or cancel a run; the one that holds its lease executes it. `Jobs`
takes queued runs and runs whose server is gone, several at once, each by `bench.execute`, which starts and resumes runs
alike. It has its own thread and event loop, so that an API response never waits for a run, and a call's timing never
for a response.
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from pramana.bench import HANDED_OVER_REASON, Progress, execute
from pramana.errors import NotFound, PramanaError, StoreFailed, describe_exception
from pramana.request import Limits
from pramana.run.accounts import ProviderAccess
from pramana.run.call import Stage
from pramana.run.engine import Stop
from pramana.store.queue import CANCELLED_REASON, make_process_name
from pramana.store.store import Store

log = logging.getLogger("pramana.jobs")

MAX_CONCURRENT_RUNS = 4
"""Maximum number of concurrent runs of one server; each has its own limits at its providers."""
POLL_INTERVAL_S = 1.0
"""Seconds between two looks for queued runs; runs queued through this server are picked up at once."""
CANCEL_GRACE_S = 3.0
"""Seconds that requests in flight get to finish when a run is cancelled or handed over. After that they are dropped,
and sent again if the run is resumed."""
CLOSE_TIMEOUT_S = 8.0


class Jobs:
    """The runs that one server executes."""

    def __init__(
        self, store: Store, *, at_once: int = MAX_CONCURRENT_RUNS, allow_private: Callable[[], bool] = lambda: False
    ) -> None:
        self._store, self._at_once, self._allow_private = store, at_once, allow_private
        self._calls: dict[str, Mapping[Stage, int]] = {}
        self.on_call: Callable[[str], None] = lambda _: None
        """Called with a run's ID when one of its calls enters another stage, in the thread of the runs."""
        self._stops: dict[str, Stop] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake_event = asyncio.Event()
        self._closing = False
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._poll_queue()), name="pramana-jobs", daemon=True
        )

    def start(self) -> None:
        """Start to look for runs."""
        self._thread.start()

    def wake(self) -> None:
        """Look for queued runs now. May be called from any thread."""
        if self._loop:
            with suppress(RuntimeError):  # the event loop has just ended
                self._loop.call_soon_threadsafe(self._wake_event.set)

    def close(self) -> None:
        """Hand the runs over to the next server and return when that is done, within seconds."""
        self._closing = True
        self.wake()
        self._thread.join(CLOSE_TIMEOUT_S)

    @property
    def running_ids(self) -> list[str]:
        """Return the IDs of the runs that this server is executing."""
        return list(self._tasks)

    def count_calls(self, run_id: str) -> Mapping[Stage, int]:
        """Return the number of calls of a run at each stage; empty for a run that another process executes."""
        return self._calls.get(run_id, {})

    def _report_call_stage_change(self, progress: Progress) -> None:
        run_id, now = progress.run.id, progress.count_calls()
        if now != self.count_calls(run_id):
            self._calls[run_id] = now
            self.on_call(run_id)

    async def _poll_queue(self) -> None:
        self._loop = asyncio.get_running_loop()
        while not self._closing:
            await self._start_waiting_runs()
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_INTERVAL_S):
                    await self._wake_event.wait()
            self._wake_event.clear()
        for stop in self._stops.values():
            stop(HANDED_OVER_REASON)
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    async def _start_waiting_runs(self) -> None:
        room = self._at_once - len(self._tasks)
        try:
            waiting = await asyncio.to_thread(self._store.queue.list_waiting) if room > 0 else []
            for run_id in waiting:
                if room <= 0 or self._closing:
                    return
                if run_id in self._tasks:
                    continue
                with suppress(NotFound):  # the run has just been deleted
                    if await asyncio.to_thread(self._store.queue.claim_for_server, run_id, make_process_name()):
                        self._stops[run_id] = Stop()
                        self._tasks[run_id] = asyncio.create_task(self._execute_run(run_id, self._stops[run_id]))
                        room -= 1
        except StoreFailed as error:
            log.warning("cannot look for runs: %s", error)
        except Exception:  # if this loop ended, every run would stay queued
            log.exception("cannot look for runs")

    async def _execute_run(self, run_id: str, stop: Stop) -> None:
        this, timers = asyncio.current_task(), []
        assert this is not None  # noqa: S101 - a coroutine always runs in a task

        def end_now() -> None:
            if stop.reason in (CANCELLED_REASON, HANDED_OVER_REASON):
                timers.append(asyncio.get_running_loop().call_later(CANCEL_GRACE_S, this.cancel))

        stop.add_callback(end_now)
        try:
            run = await asyncio.to_thread(self._store.runs.read, run_id)
            reach = ProviderAccess(is_for_other_users=True, allow_private_addresses=self._allow_private())
            limits = Limits(**run.limits)
            await execute(self._store, run, limits, self._report_call_stage_change, stop, reach=reach, is_claimed=True)
        except asyncio.CancelledError:
            log.info("run %s was ended before its requests in flight finished: %s", run_id, stop.reason)
        except StoreFailed as error:  # this server or another resumes the run when the store is back
            log.warning("run %s: %s", run_id, error)
        except PramanaError as error:
            self._record_failure(run_id, str(error))
        except Exception as error:
            log.exception("run %s ended with an internal error", run_id)
            self._record_failure(run_id, f"internal error: {describe_exception(error)}")
        finally:
            for timer in timers:
                timer.cancel()
            self._tasks.pop(run_id, None)
            self._stops.pop(run_id, None)
            self._calls.pop(run_id, None)
            self._wake_event.set()

    def _record_failure(self, run_id: str, reason: str) -> None:
        """Record why a run ended, for a run that could not record it itself."""
        with suppress(PramanaError):
            holder = self._store.queue.find_holder(run_id)
            if holder in (None, make_process_name()):
                self._store.queue.finish(run_id, holder, "stopped", reason)
