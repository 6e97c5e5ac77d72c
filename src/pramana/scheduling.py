"""The scheduler of watches: looks for watches that are due, measures their days, and delivers their alerts.

A watch is due once a UTC day, from its time of the day on. A day that was begun is continued on the same day only, and
a day on which no scheduler ran is missing: nothing is made up later. Any number of processes may run a scheduler on one
store, since `watching.measure_day` claims each day once. It runs in the caller's event loop (`run`), or in a thread and
loop of its own beside a server (`start`).
"""

import asyncio
import logging
import threading
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NamedTuple

from pramana import clock
from pramana.alerting import AlertSettings, DeliveryAttempt, deliver_due_alerts
from pramana.bench import SCHEDULER_STOPPED_REASON
from pramana.errors import AlreadyRunning, PramanaError, StateConflict, StoreFailed, describe_exception
from pramana.run.accounts import ProviderAccess
from pramana.run.engine import Stop
from pramana.store.store import Store
from pramana.store.watches import Watch, find_today
from pramana.watching import DayMeasurement, confirm_watch, end_unfinished_past_days, measure_day

log = logging.getLogger("pramana.scheduling")

OWNERS = ("cli", "server")
MAX_CONCURRENT_WATCHES = 4
"""Watches that one process measures at the same time; each has its own limits at its providers."""
POLL_INTERVAL_S = 5.0
"""Seconds between two looks for due watches and alerts."""
RETRY_DELAYS_S = (60.0, 300.0, 900.0, 1_800.0, 3_600.0)
"""Seconds until a day that ended with an error is tried again; the last delay repeats until the day is over."""
ALREADY_RUNNING_DELAY_S = 30.0
"""Seconds until another look at a day that another process is measuring."""
STOP_GRACE_S = 3.0
"""Seconds that requests in flight get to finish when the scheduler is stopped."""
CLOSE_TIMEOUT_S = 8.0


class SchedulerEvent(NamedTuple):
    """One thing that the scheduler did, for a log or a terminal."""

    kind: Literal["begun", "ended", "interrupted", "failed", "alert"]
    watch: Watch
    day: str | None = None
    measurement: DayMeasurement | None = None
    delivery: DeliveryAttempt | None = None
    error: str | None = None
    retry_at: float | None = None
    """When a failed day is tried again, as a Unix time."""


class _Work(NamedTuple):
    """What a task does for a watch."""

    watch_number: int
    kind: Literal["day", "confirm"]


class _Postponed(NamedTuple):
    """A day that is not tried again before a time."""

    day: str
    until: float
    failures: int


class Scheduler:
    """Measures the due watches of some owners, and delivers their alerts, until it is stopped."""

    def __init__(
        self,
        store: Store,
        *,
        owners: Collection[str] = OWNERS,
        at_once: int = MAX_CONCURRENT_WATCHES,
        alert_settings: Callable[[], AlertSettings] = AlertSettings,
        report: Callable[[SchedulerEvent], None] = lambda _: None,
        poll_interval_s: float = POLL_INTERVAL_S,
    ) -> None:
        """Take the store and the owners whose watches are measured; `report` is called in the scheduler's thread."""
        self._store, self._owners, self._at_once = store, tuple(owners), at_once
        self._alert_settings, self._report, self._poll_interval_s = alert_settings, report, poll_interval_s
        self._stops: dict[_Work, Stop] = {}
        self._tasks: dict[_Work, asyncio.Task[None]] = {}
        self._delivering: asyncio.Task[None] | None = None
        self._postponed: dict[int, _Postponed] = {}
        self._requested: set[int] = set()
        """Watches whose day a user wants measured now."""
        self._confirmations: set[int] = set()
        """Watches for which a user wants a confirming batch."""
        self._settled_days: dict[int, str] = {}
        """The day on which the earlier days of each watch were ended."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake_event = asyncio.Event()
        self._closing = False
        self._thread: threading.Thread | None = None

    # ── Beside a server ──

    def start(self) -> None:
        """Run in a thread of its own."""
        self._thread = threading.Thread(target=lambda: asyncio.run(self.run()), name="pramana-watches", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and wait until the days under way are stored as interrupted, within seconds."""
        self.stop()
        if self._thread:
            self._thread.join(CLOSE_TIMEOUT_S)

    # ── The loop ──

    def stop(self) -> None:
        """Stop soon; days under way are continued by the next scheduler on the same day. Callable from any thread."""
        self._closing = True
        self.wake()

    def wake(self) -> None:
        """Look for due watches now. May be called from any thread."""
        if self._loop:
            with suppress(RuntimeError):  # the event loop has just ended
                self._loop.call_soon_threadsafe(self._wake_event.set)

    def request_measurement(self, watch: Watch) -> bool:
        """Measure a watch's day now, whatever its time of the day; return False for a watch of another owner.

        May be called from any thread.
        """
        if watch.owner not in self._owners:
            return False
        self._requested.add(watch.number)
        self.wake()
        return True

    def request_confirmation(self, watch: Watch) -> bool:
        """Run a confirming batch of a watch soon; return False for a watch of another owner.

        May be called from any thread.
        """
        if watch.owner not in self._owners:
            return False
        self._confirmations.add(watch.number)
        self.wake()
        return True

    async def run(self, stop: Stop | None = None) -> None:
        """Measure and deliver until `stop` is called, which is the method or a `Stop` that a signal sets."""
        self._loop = asyncio.get_running_loop()
        if stop is not None:
            stop.add_callback(self.stop)
        while not self._closing:
            await self._start_due_work()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_interval_s):
                    await self._wake_event.wait()
            self._wake_event.clear()
        for each in self._stops.values():
            each(SCHEDULER_STOPPED_REASON)
        await self._wait_for_tasks()

    async def run_once(self) -> None:
        """Measure the watches that are due now, deliver the alerts that are due afterwards, and return."""
        self._loop = asyncio.get_running_loop()
        await self._start_due_work()
        while self._tasks:
            await self._wait_for_tasks()
            await self._start_due_work()
        await self._wait_for_tasks()
        await self._deliver()

    async def _wait_for_tasks(self) -> None:
        tasks = [*self._tasks.values(), *([self._delivering] if self._delivering else [])]
        if tasks:
            await asyncio.wait(tasks)

    async def _start_due_work(self) -> None:
        """Start what is due."""
        try:
            for watch in await asyncio.to_thread(self._find_due_watches):
                if len(self._tasks) >= self._at_once or self._closing:
                    break
                self._begin(_Work(watch.number, "day"), partial(self._measure, watch))
            for watch in await asyncio.to_thread(self._find_confirmations):
                self._confirmations.discard(watch.number)
                self._begin(_Work(watch.number, "confirm"), partial(self._confirm, watch))
            if self._delivering is None or self._delivering.done():
                self._delivering = asyncio.create_task(self._deliver())
        except StoreFailed as error:
            log.warning("cannot look for due watches: %s", error)
        except Exception:  # if this loop ended, no watch would be measured any more
            log.exception("cannot look for due watches")

    def _find_due_watches(self) -> list[Watch]:
        """Return the watches to measure now, those that began first first."""
        now, today = clock.now(), find_today()
        active = [each for each in self._store.watches.list_all(active_only=True) if each.owner in self._owners]
        for each in active:
            if self._settled_days.get(each.number) != today:
                end_unfinished_past_days(self._store, each)
                self._settled_days[each.number] = today
        statuses = self._store.watches.read_day_statuses(today)
        due = []
        for watch in reversed(active):
            status, postponed = statuses.get(watch.number), self._postponed.get(watch.number)
            if status in ("measured", "missing"):
                self._requested.discard(watch.number)
                continue
            if _Work(watch.number, "day") in self._tasks:
                continue
            if watch.number in self._requested:
                due.append(watch)
                continue
            if postponed and postponed.day == today and now.timestamp() < postponed.until:
                continue
            if status is None and watch.at is not None and f"{now:%H:%M}" < watch.at:
                continue
            due.append(watch)
        return due

    def _find_confirmations(self) -> list[Watch]:
        wanted = self._confirmations - {each.watch_number for each in self._tasks if each.kind == "confirm"}
        return (
            [each for each in self._store.watches.list_all(active_only=True) if each.number in wanted] if wanted else []
        )

    def _begin(self, work: _Work, make: Callable[[Stop], Coroutine[Any, Any, None]]) -> None:
        self._stops[work] = stop = Stop()
        self._tasks[work] = asyncio.create_task(self._run_until_stopped(work, stop, make))

    async def _run_until_stopped(
        self, work: _Work, stop: Stop, make: Callable[[Stop], Coroutine[Any, Any, None]]
    ) -> None:
        """Run one piece of work; once it is stopped, requests in flight get a moment to finish."""
        this, timers = asyncio.current_task(), []
        assert this is not None  # noqa: S101 - a coroutine always runs in a task
        stop.add_callback(lambda: timers.append(asyncio.get_running_loop().call_later(STOP_GRACE_S, this.cancel)))
        try:
            await make(stop)
        finally:
            for timer in timers:
                timer.cancel()
            self._tasks.pop(work, None)
            self._stops.pop(work, None)
            self._wake_event.set()

    async def _confirm(self, watch: Watch, stop: Stop) -> None:
        try:
            await confirm_watch(self._store, watch, stop=stop, reach=self._make_provider_access(watch))
        except asyncio.CancelledError:
            log.info("the confirming batch of watch %s was interrupted", watch.id)
        except Exception as error:  # any error: the next watch must go on
            if not isinstance(error, PramanaError):
                log.exception("the confirming batch of watch %s ended with an internal error", watch.id)
            self._report(SchedulerEvent("failed", watch, find_today(), error=_describe_error(error)))

    # ── One day ──

    async def _measure(self, watch: Watch, stop: Stop) -> None:
        today = find_today()
        self._requested.discard(watch.number)
        self._report(SchedulerEvent("begun", watch, today))
        try:
            found = await measure_day(self._store, watch, stop=stop, reach=self._make_provider_access(watch))
        except asyncio.CancelledError:
            self._report(SchedulerEvent("interrupted", watch, today))
        except AlreadyRunning:
            self._postpone(watch, today, ALREADY_RUNNING_DELAY_S)
        except StateConflict as error:  # it was stopped, or another process has just ended the day
            log.info("watch %s: %s", watch.id, error)
        except Exception as error:  # any error: the next watch must go on
            if not isinstance(error, PramanaError):
                log.exception("watch %s ended with an internal error", watch.id)
            self._report_failure(watch, today, error)
        else:
            if found.day.status != "measuring":
                self._postponed.pop(watch.number, None)
                self._report(SchedulerEvent("ended", watch, today, found))
            elif found.error is not None:
                self._report_failure(watch, today, found.error)
            elif stop:
                self._report(SchedulerEvent("interrupted", watch, today))
            else:
                self._report_failure(watch, today, StateConflict("its run ended early"))

    def _make_provider_access(self, watch: Watch) -> ProviderAccess:
        if watch.owner == "cli":
            return ProviderAccess()
        return ProviderAccess(is_for_other_users=True, allow_private_addresses=self._alert_settings().allow_private)

    def _postpone(self, watch: Watch, day: str, delay_s: float, failures: int = 0) -> float:
        until = clock.timestamp() + delay_s
        self._postponed[watch.number] = _Postponed(day, until, failures)
        return until

    def _report_failure(self, watch: Watch, day: str, error: Exception) -> None:
        before = self._postponed.get(watch.number)
        failures = before.failures + 1 if before and before.day == day else 1
        until = self._postpone(watch, day, RETRY_DELAYS_S[min(failures, len(RETRY_DELAYS_S)) - 1], failures)
        self._report(SchedulerEvent("failed", watch, day, error=_describe_error(error), retry_at=until))

    async def _deliver(self) -> None:
        try:
            for each in await deliver_due_alerts(self._store, self._owners, self._alert_settings()):
                self._report(SchedulerEvent("alert", each.watch, each.alert.day, delivery=each))
        except StoreFailed as error:
            log.warning("cannot deliver alerts: %s", error)
        except Exception:
            log.exception("cannot deliver alerts")


def _describe_error(error: Exception) -> str:
    return str(error) if isinstance(error, PramanaError) else f"internal error: {describe_exception(error)}"
