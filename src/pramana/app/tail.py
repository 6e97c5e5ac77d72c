"""Live events: one task per process polls the store and publishes what is new to all listeners.

It polls only while there are listeners, five times a second and at once when this process has written something. A run
is followed by result numbers, everything else by change numbers. So a run of this process, of another or of the command
line looks the same, and a client that lost its connection resumes where it was.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pramana.app.views import ResultView, View, result_view
from pramana.errors import PramanaError
from pramana.model import RunStatus
from pramana.run.call import Stage
from pramana.store.engine import Change
from pramana.store.queue import ACTIVE_STATUSES
from pramana.store.runs import RunState
from pramana.store.store import Store

log = logging.getLogger("pramana.app")

POLL_INTERVAL_S = 0.2
MIN_POLL_INTERVAL_S = 0.02
"""Shortest time between two polls, however much is written."""
HEARTBEAT_S = 15.0
RESULTS_PER_READ = 500
"""Results per read of the store."""
MAX_REMEMBERED_EVENTS = 2_000
"""Events kept in memory, per run and for changes; a listener further behind reads from the store."""


class ProgressView(View, frozen=True, kw_only=True):
    """How far a run is."""

    status: RunStatus
    stored: int
    expected: int
    reason: str | None
    cancel_requested: bool


class RunEndedView(ProgressView, frozen=True, kw_only=True):
    """How a run ended; the last event of a run."""


class RunDeletedView(View, frozen=True):
    """A run was deleted."""


class CallsView(View, frozen=True):
    """How many calls of a run are at each stage."""

    stages: Mapping[Stage, int]


class ChangeView(View, frozen=True, kw_only=True):
    """Something was created, changed or deleted."""

    number: int
    at: str
    kind: str
    id: str
    action: str


class MissedChangesView(View, frozen=True):
    """Changes were missed that are no longer kept: reload everything."""

    number: int
    """Of the newest change."""


class Heartbeat(View, frozen=True):
    """Nothing is new; the stream is still alive."""


RunEvent = ResultView | ProgressView | CallsView | RunDeletedView | Heartbeat
ChangeEvent = ChangeView | MissedChangesView | Heartbeat
_Event = TypeVar("_Event")


@dataclass(slots=True)
class _EventBuffer(Generic[_Event]):
    """Numbered events kept in memory, the newest last."""

    last_dropped_number: int = 0
    """Events up to this number are not in memory."""
    numbers: list[int] = field(default_factory=list)
    events: list[_Event] = field(default_factory=list)
    news_event: asyncio.Event = field(default_factory=asyncio.Event)
    """Set, and then replaced, when events arrive."""
    listener_count: int = 0

    @property
    def last_number(self) -> int:
        return self.numbers[-1] if self.numbers else self.last_dropped_number

    def add(self, numbered_events: Sequence[tuple[int, _Event]]) -> None:
        self.numbers += [number for number, _ in numbered_events]
        self.events += [each for _, each in numbered_events]
        if (many := len(self.numbers) - MAX_REMEMBERED_EVENTS) > 0:
            self.last_dropped_number = self.numbers[many - 1]
            del self.numbers[:many], self.events[:many]

    def events_after(self, number: int) -> list[tuple[int, _Event]] | None:
        """Return the events after a number; None if they must be read from the store."""
        if number < self.last_dropped_number:
            return None
        place = bisect_right(self.numbers, number)
        return list(zip(self.numbers[place:], self.events[place:], strict=True))

    def notify(self) -> None:
        pulse, self.news_event = self.news_event, asyncio.Event()
        pulse.set()


@dataclass(slots=True)
class _RunEventBuffer(_EventBuffer[ResultView]):
    """A run with listeners."""

    state: RunState | None = None
    """None: the run was deleted."""
    all_read: bool = False
    """Whether the run had ended before the last poll, so that every result was read."""


@dataclass(slots=True)
class _StoreUpdate:
    states: dict[str, RunState]
    results: dict[str, list[ResultView]]
    last_result_number_by_new_run: dict[str, int]
    """Per newly followed run, the number of the last result already stored."""
    changes: list[ChangeView]


class EventTail:
    """The event source that all listeners of one process share."""

    def __init__(self, store: Store, closing: asyncio.Event) -> None:
        self._store, self._closing = store, closing
        self.calls: Callable[[str], Mapping[Stage, int]] = lambda _: {}
        """Returns how many calls of a run of this process are at each stage."""
        self._topics: dict[str, _RunEventBuffer] = {}
        self._changes = _EventBuffer[ChangeView](last_dropped_number=-1)
        self._listener_count = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._read_task: asyncio.Task[None] | None = None
        self._begun = self._done = 0
        self._fresh_read = asyncio.Event()

    def wake(self) -> None:
        """Poll at once, because this process has written something. Callable from any thread."""
        if self._listener_count and self._loop:
            with suppress(RuntimeError):  # the event loop has just closed
                self._loop.call_soon_threadsafe(self._news.set)

    def notify_call_stage(self, run_id: str) -> None:
        """Notify listeners of a run that one of its calls entered another stage. Callable from any thread."""
        if run_id in self._topics and self._loop:
            with suppress(RuntimeError):  # the event loop has just closed
                self._loop.call_soon_threadsafe(self._notify_topic, run_id)

    def _notify_topic(self, run_id: str) -> None:
        if topic := self._topics.get(run_id):
            topic.notify()

    # ── Listening ──

    async def follow_run(self, run_id: str, after_result_number: int) -> AsyncGenerator[RunEvent]:
        """Yield the events of a run after a result number, until the run has ended and every event was sent."""
        topic = self._topics.setdefault(run_id, _RunEventBuffer(last_dropped_number=-1))
        try:
            async with self._register_listener(topic):
                async for each in self._iterate_run_events(run_id, topic, after_result_number):
                    yield each
        finally:
            if not topic.listener_count:
                self._topics.pop(run_id, None)

    async def _iterate_run_events(
        self, run_id: str, topic: _RunEventBuffer, last_result_number: int
    ) -> AsyncIterator[RunEvent]:
        shown: RunState | None = None
        shown_calls: Mapping[Stage, int] = {}
        while not self._closing.is_set():
            state, pulse, all_read = topic.state, topic.news_event, topic.all_read
            calls = self.calls(run_id)
            if state is None:
                yield RunDeletedView()
                return
            some = topic.events_after(last_result_number)
            if some is None:
                some = _number_results(
                    await asyncio.to_thread(self._read_results_after, state.run_no, last_result_number)
                )
                all_read = all_read and not some
            for seq, each in some:
                last_result_number = seq
                yield each
            if state != shown:
                shown = state
                yield ProgressView(**_progress_fields(state))
            if calls != shown_calls and not all_read:
                shown_calls = calls
                yield CallsView(calls)
            if some:
                continue
            if all_read:
                yield RunEndedView(**_progress_fields(state))
                return
            if not await self._wait_for_news(pulse):
                yield Heartbeat()

    async def latest_change_number(self) -> int | None:
        """Return the number of the newest change; None while the store is unavailable."""
        with suppress(PramanaError):
            return await asyncio.to_thread(self._store.changes.last_number)
        return None

    async def follow_changes(self, after_change_number: int | None) -> AsyncGenerator[ChangeEvent]:
        """Yield every change after a change number; without one, from now on."""
        try:
            async with self._register_listener(self._changes):
                last = self._changes.last_number
                if after_change_number is None:
                    after_change_number = last
                elif (
                    after_change_number > last
                    or after_change_number < await asyncio.to_thread(self._store.changes.first_number) - 1
                ):
                    # Another store, or the changes are no longer kept: the client must reload everything.
                    after_change_number = last
                    yield MissedChangesView(last)
                yield Heartbeat()  # shows the listener that nothing is missed from here on
                async for each in self._iterate_change_events(after_change_number):
                    yield each
        finally:
            if not self._changes.listener_count:  # the last listener left: the next one starts a new stream
                self._changes = _EventBuffer[ChangeView](last_dropped_number=-1)

    async def _iterate_change_events(self, last_number: int) -> AsyncIterator[ChangeEvent]:
        while not self._closing.is_set():
            pulse, some = self._changes.news_event, self._changes.events_after(last_number)
            if some is None:
                read = await asyncio.to_thread(self._store.changes.list_after, last_number, RESULTS_PER_READ)
                some = [(each.number, _change_view(each)) for each in read]
            for found, each in some:
                last_number = found
                yield each
            if not some and not await self._wait_for_news(pulse):
                yield Heartbeat()

    async def _wait_for_news(self, news_event: asyncio.Event) -> bool:
        """Wait for events; return False when a heartbeat is due."""
        closing = asyncio.ensure_future(self._closing.wait())
        news = asyncio.ensure_future(news_event.wait())
        try:
            done, _ = await asyncio.wait((news, closing), timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
            return bool(done)
        finally:
            news.cancel()
            closing.cancel()

    # ── Polling ──

    @asynccontextmanager
    async def _register_listener(self, stream: _EventBuffer[Any]) -> AsyncIterator[None]:
        """Register a listener for the context; on entry, the stream is at least as new as the listener."""
        self._loop = asyncio.get_running_loop()
        self._listener_count += 1
        stream.listener_count += 1
        if self._read_task is None or self._read_task.done():
            self._read_task = asyncio.create_task(self._poll_store())
        try:
            await self._wait_for_fresh_read()
            yield
        finally:
            self._listener_count -= 1
            stream.listener_count -= 1

    async def _wait_for_fresh_read(self) -> None:
        """Wait for a poll that begins after now, so that what it reads is not older than the listener."""
        wanted = self._begun + 1
        self._news.set()
        while self._done < wanted and not self._closing.is_set():
            await self._fresh_read.wait()

    async def _poll_store(self) -> None:
        while self._listener_count:
            self._news.clear()
            self._begun += 1
            heads = {run_id: topic.last_number for run_id, topic in self._topics.items()}
            changes = self._changes.last_number if self._changes.listener_count else None
            try:
                self._publish(await asyncio.to_thread(self._read_news, heads, changes), heads)
                self._done = self._begun
            except PramanaError:  # the store may come back; until then the gate reports that it is unavailable
                await asyncio.sleep(POLL_INTERVAL_S)
            except Exception:  # a dead task would leave its listeners waiting for ever
                log.exception("cannot poll the store for new results and changes")
                await asyncio.sleep(HEARTBEAT_S / 15)
            looked, self._fresh_read = self._fresh_read, asyncio.Event()
            looked.set()
            await asyncio.sleep(MIN_POLL_INTERVAL_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_INTERVAL_S):
                    await self._news.wait()

    def _read_news(self, last_result_number_by_run: dict[str, int], last_change_number: int | None) -> _StoreUpdate:
        """Read what is new; runs in a thread. A head of -1 marks a new topic: listeners read earlier results by number.

        The states of runs are read before their results, so every result of a run that had ended by then is found.
        """
        states = self._store.runs.read_states(last_result_number_by_run) if last_result_number_by_run else {}
        results, floors = dict[str, list[ResultView]](), dict[str, int]()
        for run_id, state in states.items():
            if last_result_number_by_run[run_id] < 0:
                floors[run_id] = self._store.results.find_last_seq(state.run_no)
            else:
                results[run_id] = self._read_results_after(state.run_no, last_result_number_by_run[run_id])
        if last_change_number is None:
            told = []
        elif last_change_number < 0:
            told = [Change(self._store.changes.last_number(), "", "", "", "")]
        else:
            told = self._store.changes.list_after(last_change_number, RESULTS_PER_READ)
        return _StoreUpdate(states, results, floors, [_change_view(each) for each in told])

    def _read_results_after(self, run_no: int, last_number: int) -> list[ResultView]:
        return [result_view(*each) for each in self._store.results.list_after(run_no, last_number, RESULTS_PER_READ)]

    def _publish(self, update: _StoreUpdate, last_result_number_by_run: dict[str, int]) -> None:
        for run_id, head in last_result_number_by_run.items():
            topic = self._topics.get(run_id)
            if topic is None or topic.last_number != head:
                continue  # no listener is left, or a new one has replaced the topic
            state, some = update.states.get(run_id), update.results.get(run_id, [])
            changed = bool(some) or state != topic.state
            topic.last_dropped_number = update.last_result_number_by_new_run.get(run_id, topic.last_dropped_number)
            topic.add(_number_results(some))
            topic.state = state
            topic.all_read = state is not None and state.status not in ACTIVE_STATUSES and len(some) < RESULTS_PER_READ
            if changed or topic.all_read:
                topic.notify()
        if update.changes and self._changes.last_dropped_number < 0:
            self._changes.last_dropped_number = update.changes[0].number
        elif update.changes:
            self._changes.add([(each.number, each) for each in update.changes])
            self._changes.notify()


def _number_results(results: Sequence[ResultView]) -> list[tuple[int, ResultView]]:
    return [(each.seq, each) for each in results]


def _progress_fields(state: RunState) -> dict[str, Any]:
    return {
        "status": state.status,
        "stored": state.stored_count,
        "expected": state.expected_count,
        "reason": state.reason,
        "cancel_requested": state.is_cancel_requested,
    }


def _change_view(change: Change) -> ChangeView:
    return ChangeView(number=change.number, at=change.at, kind=change.kind, id=change.subject, action=change.action)
