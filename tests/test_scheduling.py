"""The scheduler: every day of every watch once, from its time on, by whichever process is there, and nothing made up later."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from pramana import clock
from pramana.alerting import make_channel
from pramana.app.watches import start_watch
from pramana.errors import StateConflict
from pramana.load.rows import make_case
from pramana.model import Case
from pramana.request import Limits, RunRequest
from pramana.run.accounts import ProviderAccess
from pramana.scheduling import Scheduler, SchedulerEvent
from pramana.store import open_store
from pramana.store.engine import timestamp
from pramana.store.schema import watch_alerts
from pramana.store.store import Store
from pramana.store.watches import Watch
from pramana.watch_request import AlertDestination, WatchRequest

from .stores import postgres_store, sqlite_store
from .virtual_time import VirtualClock, real_time
from .webhooks import receive_webhooks

pytestmark = pytest.mark.usefixtures("virtual_time")
HOUR_S, DAY_S = 3_600.0, 86_400.0


@pytest.fixture(autouse=True)
def _at_midnight(virtual_time: VirtualClock) -> None:
    """Begin every test at 00:00 UTC of a day."""
    now = virtual_time.now()
    midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=1)
    virtual_time.advance((midnight - now).total_seconds() + 1)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield sqlite_store(tmp_path / "store.sqlite3")
    else:
        with postgres_store(request.getfixturevalue("postgres")) as lent:
            yield lent


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()


def _choose(asked: tuple[Case, ...], *, for_users: bool) -> dict[str, Any]:
    return {"suite": "v1.0", "tier": "cheap"} if for_users else {"cases": asked}


def start(store: Store, model: str = "fake:echo", *, cases: int = 2, for_users: bool = False, **given: Any) -> Watch:
    asked = tuple(make_case(f"Say {number}.", ideal="yes", id=f"q{number}") for number in range(cases))
    run = RunRequest(models=(model,), limits=given.pop("limits", Limits()), **_choose(asked, for_users=for_users))
    reach = ProviderAccess(is_for_other_users=for_users)
    request = WatchRequest(run=run, instruments=("pass_rate",), baseline_days=14, **given)
    return store.watches.read(start_watch(store, request, reach).id)


async def run_for(store: Store, seconds: float, **given: Any) -> list[SchedulerEvent]:
    """Run a scheduler for a time, and return what it reported."""
    events: list[SchedulerEvent] = []
    scheduler = Scheduler(store, report=events.append, **{"poll_interval_s": 900.0, **given})
    running = asyncio.create_task(scheduler.run())
    await asyncio.sleep(seconds)
    scheduler.stop()
    await running
    return events


def read_days(store: Store, watch: Watch) -> list[tuple[str, str, int]]:
    return [(each.day, each.status, each.answered) for each in store.watches.list_days(watch)]


def day_after_days(number: int = 0) -> str:
    return (clock.now().date() + timedelta(days=number)).isoformat()


def test_every_day_is_measured_once_from_its_time_on(store: Store) -> None:
    watch, other, first = start(store, at="03:00"), start(store), day_after_days()

    async def go() -> None:
        await run_for(store, 2.9 * HOUR_S)
        assert read_days(store, watch) == []
        assert read_days(store, other) == [(first, "measured", 2)], "without a time, at once"
        await run_for(store, 0.4 * HOUR_S)
        assert read_days(store, watch) == [(first, "measured", 2)]
        events = await run_for(store, 3 * DAY_S)
        assert Counter(each.kind for each in events) == {"begun": 6, "ended": 6}
        begun = [each for each in store.runs.read_page()[0] if each.name and watch.id in each.name]
        assert all("03:00" <= each.created[11:16] < "03:16" for each in begun)

    asyncio.run(go())
    assert [status for _, status, _ in read_days(store, watch)] == ["measured"] * 4
    assert len(store.watches.list_runs(watch)) == 4


def test_days_without_a_scheduler_are_missing_and_not_made_up(store: Store, virtual_time: VirtualClock) -> None:
    watch, first = start(store), day_after_days()
    asyncio.run(run_for(store, HOUR_S))
    virtual_time.advance(5 * DAY_S)
    asyncio.run(run_for(store, HOUR_S))
    assert [day for day, _, _ in read_days(store, watch)] == [first, day_after_days()]
    assert (clock.now().date() - datetime.fromisoformat(first).date()).days == 5


def test_an_interrupted_day_is_continued_on_the_same_day(store: Store) -> None:
    watch, first = start(store, "fake:latency=10", cases=6, limits=Limits(concurrency=1)), day_after_days()
    events = asyncio.run(run_for(store, 35))
    assert [each.kind for each in events] == ["begun", "interrupted"]
    (run,) = store.watches.list_runs(watch)
    stored = store.runs.read(run.run_id)
    assert (stored.status, stored.stored) == ("interrupted", 3)
    assert stored.reason == "the scheduler was stopped; the next one continues this day"
    assert [status for _, status, _ in read_days(store, watch)] == ["measuring"]
    asyncio.run(run_for(store, HOUR_S))
    assert read_days(store, watch) == [(first, "measured", 6)]
    assert [each.run_id for each in store.watches.list_runs(watch)] == [run.run_id], "the same run"
    keys = [result.key for _, result in store.results.iterate(run.run_id)]
    assert len(keys) == len(set(keys)) == 6


def test_an_interrupted_day_is_not_continued_on_the_next_day(store: Store, virtual_time: VirtualClock) -> None:
    watch, first = start(store, "fake:latency=10", cases=6, limits=Limits(concurrency=1)), day_after_days()
    asyncio.run(run_for(store, 35))
    (run,) = store.watches.list_runs(watch)
    virtual_time.advance(DAY_S)
    asyncio.run(run_for(store, HOUR_S))
    assert read_days(store, watch) == [(first, "missing", 3), (day_after_days(), "measured", 6)]
    assert store.runs.read(run.run_id).stored == 3, "nothing was asked for yesterday"


def test_several_schedulers_on_one_store_measure_every_day_once(store: Store, url: str) -> None:
    names = [start(store, f"fake:latency=0.{number}") for number in range(1, 6)]
    others = [open_store(url) for _ in range(3)]

    async def go() -> None:
        await asyncio.gather(*(run_for(each, 2.5 * DAY_S, poll_interval_s=3_600.0) for each in others))

    asyncio.run(go())
    for watch in names:
        assert [(status, answered) for _, status, answered in read_days(store, watch)] == [("measured", 2)] * 3
        assert len(store.watches.list_runs(watch)) == 3
    assert store.runs.read_page()[1] == 15
    for each in others:
        each.close()


def test_a_failing_day_is_tried_again_with_growing_delays_and_given_up_at_midnight(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k" * 20)
    watch, quiet = start(store, "gpt-5-mini", budget_usd_per_day=1.0), start(store)
    monkeypatch.delenv("OPENAI_API_KEY")

    async def go() -> list[SchedulerEvent]:
        return await run_for(store, DAY_S - 10, poll_interval_s=300.0)

    events = asyncio.run(go())
    failed = [each for each in events if each.kind == "failed"]
    assert {each.error for each in failed} == {"openai needs an API key; set OPENAI_API_KEY"}
    assert 20 < len(failed) < 32, "about once an hour"
    assert all(each.retry_at and each.watch.id == watch.id for each in failed)
    assert [status for _, status, _ in read_days(store, quiet)] == ["measured"], "another watch goes on"
    assert store.runs.read_page()[1] == 1


def test_a_stopped_watch_is_measured_no_more(store: Store) -> None:
    watch = start(store)
    asyncio.run(run_for(store, HOUR_S))
    store.watches.stop(watch)
    asyncio.run(run_for(store, 2 * DAY_S))
    assert len(read_days(store, watch)) == 1


def test_only_watches_of_the_given_owners_are_measured(store: Store) -> None:
    mine, theirs = start(store), start(store, for_users=True)
    asyncio.run(run_for(store, HOUR_S, owners=("server",)))
    assert (len(read_days(store, mine)), len(read_days(store, theirs))) == (0, 1)


def test_a_server_watch_has_a_servers_reach_in_every_process(store: Store) -> None:
    """A request that was written into the database by hand still runs no command and no function."""
    watch = start(store)
    with store._database.write_transaction() as connection:
        connection.exec_driver_sql("UPDATE watches SET owner = 'server'")
        request = json.dumps({"models": ["python:os:getcwd"], "tier": "cheap"})
        connection.exec_driver_sql(f"UPDATE watches SET request = '{request}'")  # noqa: S608
    events = asyncio.run(run_for(store, 30))
    assert [each.kind for each in events] == ["begun", "failed"]
    assert events[1].error is not None
    assert "python" in events[1].error
    assert read_days(store, watch) == []


def test_background_runs_leave_the_runs_of_watches_alone(store: Store) -> None:
    start(store, "fake:latency=10", cases=6, for_users=True, limits=Limits(concurrency=1))
    asyncio.run(run_for(store, 35))
    (run,), _ = store.runs.read_page()
    with store._database.write_transaction() as connection:
        connection.exec_driver_sql("UPDATE runs SET status = 'running'")  # as after a SIGKILL
    assert (run.owner, run.stored) == ("server", 3)
    assert store.queue.list_waiting() == []
    with store._database.write_transaction() as connection:
        connection.exec_driver_sql("UPDATE runs SET status = 'interrupted'")
    with pytest.raises(StateConflict, match="of a watch; only the watch itself resumes it"):
        store.queue.requeue(run.id)


def test_alerts_are_delivered_while_days_are_measured(store: Store) -> None:
    async def go() -> None:
        async with receive_webhooks() as receiver:
            receiver.status = lambda number: 500 if number == 1 else 200
            request = AlertDestination(url=receiver.url)
            watch = start(store)
            store.alerts.change_channel(watch, make_channel(store, request, is_local=True, allow_private=True))
            row = {"id": "a1", "watch_no": watch.number, "period": 1, "level": "alarm", "day": "2026-03-24"}
            with store._database.write_transaction() as connection:
                connection.execute(insert(watch_alerts), row | {"body": "{}", "created": timestamp()})
            events = await run_for(store, HOUR_S, poll_interval_s=30.0)
            alerts = [each.delivery for each in events if each.delivery]
            assert [each.error is None for each in alerts] == [False, True]
            assert receiver.ids == ["a1", "a1"]

    asyncio.run(go())


def test_a_broken_store_does_not_end_the_scheduler(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, read, calls = start(store), store.watches.list_all, []

    def fail_twice(**given: Any) -> list[Watch]:
        calls.append(given)
        if len(calls) < 3:
            raise ZeroDivisionError
        return read(**given)

    monkeypatch.setattr(store.watches, "list_all", fail_twice)
    asyncio.run(run_for(store, HOUR_S))
    assert [status for _, status, _ in read_days(store, watch)] == ["measured"]


def test_one_pass_measures_what_is_due_and_returns(store: Store) -> None:
    watches = [start(store) for _ in range(6)]
    asyncio.run(Scheduler(store, at_once=2).run_once())
    assert [len(read_days(store, each)) for each in watches] == [1] * 6
    asyncio.run(Scheduler(store).run_once())
    assert store.runs.read_page()[1] == 6


@real_time()
def test_a_scheduler_in_its_own_thread_stops_within_seconds(store: Store) -> None:
    watch = start(store, "fake:latency=60")
    scheduler = Scheduler(store, poll_interval_s=0.05)
    scheduler.start()
    deadline = clock.monotonic() + 20
    while not read_days(store, watch):
        assert clock.monotonic() < deadline
        clock.sleep(0.01)
    began = clock.monotonic()
    scheduler.close()
    assert clock.monotonic() - began < 6
    assert scheduler._thread
    assert not scheduler._thread.is_alive()


def test_stopping_before_the_start_measures_nothing(store: Store) -> None:
    watch = start(store)

    async def go() -> None:
        scheduler = Scheduler(store)
        scheduler.stop()
        await scheduler.run()

    asyncio.run(go())
    assert read_days(store, watch) == []
