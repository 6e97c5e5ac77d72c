"""The writer: batches, order, back-pressure and errors."""

import asyncio
import gc
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pramana.errors import AlreadyRunning, StoreFailed
from pramana.model import Result
from pramana.store import open_store
from pramana.store import results as writer
from pramana.store.store import Store

from .samples import list_pending, make_case, make_cases, make_key, make_plan, make_result

Reported = list[tuple[int, Result]]


def make_results(store: Store, count: int) -> tuple[str, list[Result]]:
    run = store.runs.create(make_plan(), make_cases(count))
    return run.id, [make_result(found) for found, _ in list_pending(store, run.id)]


@pytest.mark.usefixtures("virtual_time")
def test_a_result_is_reported_promptly_and_only_after_it_is_stored(store: Store) -> None:
    """What it waits for company is virtual time, what it works is of the processor: neither is of a busy machine."""
    run_id, results = make_results(store, 30)
    waited: list[tuple[float, float]] = []
    seen: list[int] = []

    async def write() -> None:
        arrived, loop = asyncio.Event(), asyncio.get_running_loop()

        def check_stored(_: Reported) -> None:
            seen.append(sum(1 for _ in store.results.iterate(run_id)))
            arrived.set()

        async with store.results.make_writer(run_id, check_stored) as opened:
            for each in results:
                arrived.clear()
                started, worked = loop.time(), time.process_time()
                await opened.put([each])
                await asyncio.wait_for(arrived.wait(), 30)
                waited.append((loop.time() - started, time.process_time() - worked))

    gc.collect()
    gc.disable()  # what 7,000 tests have left in this process is not the store's work
    try:
        asyncio.run(write())
    finally:
        gc.enable()
    assert seen == list(range(1, 31))
    assert max(map(sum, waited)) < 0.2, f"a group was committed later than after 200 ms: {waited}"


def test_commit_batches_are_bounded_and_lose_nothing(store: Store) -> None:
    """Results trickle in while groups of every size are being committed."""
    run_id, results = make_results(store, 3000)
    groups: list[Reported] = []

    async def write() -> None:
        async with store.results.make_writer(run_id, groups.append) as opened:
            for number, each in enumerate(results):
                await opened.put([each])
                if number % 97 == 0:
                    await asyncio.sleep(0.002 if number < 1500 else 0)

    asyncio.run(write())
    assert max(map(len, groups)) <= writer.MAX_RESULTS_PER_COMMIT
    reported = [each for group in groups for each in group]
    assert [each for _, each in reported] == results
    assert list(store.results.iterate(run_id)) == reported


def test_put_waits_while_the_queue_is_full(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_QUEUED_RESULTS", 20)
    monkeypatch.setattr(writer, "MAX_RESULTS_PER_COMMIT", 10)
    run_id, results = make_results(store, 300)
    longest = 0
    reported: Reported = []

    async def write() -> None:
        nonlocal longest
        async with store.results.make_writer(run_id, reported.extend) as opened:

            async def put(mine: list[Result]) -> None:
                nonlocal longest
                for each in mine:
                    await opened.put([each])
                    longest = max(longest, len(opened._queue))

            await asyncio.gather(*(put(results[number::7]) for number in range(7)))

    asyncio.run(write())
    assert longest == 20
    assert len(reported) == 300


def test_queued_results_are_stored_on_cancellation_or_failure(store: Store) -> None:
    run_id, results = make_results(store, 5)
    reported: Reported = []

    async def write_and_cancel() -> None:
        async with store.results.make_writer(run_id, reported.extend) as opened:
            for each in results[:4]:
                await opened.put([each])
            await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(write_and_cancel())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def write_and_fail() -> None:
        async with store.results.make_writer(run_id, reported.extend) as opened:
            await opened.put([results[4]])
            raise KeyError("of the caller")

    asyncio.run(main())
    with pytest.raises(KeyError, match="of the caller"):
        asyncio.run(write_and_fail())
    assert [each for _, each in reported] == results
    assert list(store.results.iterate(run_id)) == reported


@pytest.mark.parametrize("leave_by", ["exit", "put"])
def test_a_database_error_is_raised_by_the_next_put_and_at_exit(store: Store, leave_by: str) -> None:
    run_id, results = make_results(store, 2)
    reported: Reported = []

    async def write() -> None:
        async with store.results.make_writer(run_id, reported.extend) as opened:
            await opened.put([make_result(make_key(make_case(99)))])
            while leave_by == "put":
                await opened.put([results[0]])
                await asyncio.sleep(0.01)

    with pytest.raises(StoreFailed, match="the database failed"):
        asyncio.run(write())
    assert reported == []
    assert list(store.results.iterate(run_id)) == []


def test_waiting_puts_are_woken_by_an_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_QUEUED_RESULTS", 2)
    run_id, results = make_results(store, 4)
    woken: list[str] = []

    async def write() -> None:
        async with store.results.make_writer(run_id, lambda _: None) as opened:
            await opened.put([make_result(make_key(make_case(99)))])

            async def put(each: Result) -> None:
                try:
                    await opened.put([each])
                except StoreFailed as error:
                    woken.append(str(error))

            await asyncio.gather(*map(put, results))

    with pytest.raises(StoreFailed):
        asyncio.run(write())
    assert len(woken) == 3


def test_an_error_of_the_listener_is_not_swallowed(store: Store) -> None:
    run_id, results = make_results(store, 1)

    def fail_to_display(_: Reported) -> None:
        raise ValueError("the display broke")

    async def write() -> None:
        async with store.results.make_writer(run_id, fail_to_display) as opened:
            await opened.put([results[0]])

    with pytest.raises(ValueError, match="the display broke"):
        asyncio.run(write())
    assert len(list(store.results.iterate(run_id))) == 1


def test_two_writers_of_one_run_never_report_the_same_result(url: str) -> None:
    """A lease may be lost while a writer still writes: each result is reported by exactly one of them."""
    stores = [open_store(url), open_store(url)]
    run_id, results = make_results(stores[0], 1200)
    reported: list[Reported] = [[], []]

    async def write(store: Store, listen: Callable[[Reported], None], mine: list[Result]) -> None:
        async with store.results.make_writer(run_id, listen) as opened:
            for number, each in enumerate(mine):
                await opened.put([each])
                if number % 50 == 0:
                    await asyncio.sleep(0.005)

    async def main() -> None:
        orders = (results, results[300:] + results[:300])
        await asyncio.gather(
            *(write(store, to.extend, order) for store, to, order in zip(stores, reported, orders, strict=True))
        )

    asyncio.run(main())
    both = sorted(reported[0] + reported[1], key=lambda each: each[0])
    assert list(stores[0].results.iterate(run_id)) == both
    assert {each.key for _, each in both} == {each.key for each in results}
    assert len(both) == stores[0].runs.read(run_id).stored == 1200
    for store in stores:
        store.close()


def test_every_commit_is_flushed_to_disk(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/x.sqlite3")
    with store._database.write_transaction() as connection:
        said = {name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in (
            "journal_mode", "synchronous", "foreign_keys", "busy_timeout")}  # fmt: skip
    store.close()
    assert said == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}


def test_a_writer_that_lost_its_run_stores_nothing_more(store: Store) -> None:
    run_id, results = make_results(store, 6)
    reported: Reported = []
    assert store.queue.claim(run_id, "first", lease_s=-1)

    async def write() -> None:
        async with store.results.make_writer(run_id, reported.extend, "first") as opened:
            await opened.put(results[:2])
            while len(reported) < 2:  # noqa: ASYNC110 - the writer reports by callback
                await asyncio.sleep(0.01)
            assert store.queue.claim(run_id, "process 7 on desk [4f1c 1234]")
            await opened.put(results[2:4])

    with pytest.raises(AlreadyRunning, match=f"process 7 on desk has taken over run {run_id}"):
        asyncio.run(write())
    assert [each for _, each in store.results.iterate(run_id)] == results[:2]
    assert (store.runs.find(run_id).stored, len(reported)) == (2, 2)


@pytest.mark.parametrize("owner", [None, "first"])
def test_a_writer_stores_only_while_its_owner_holds_the_run(store: Store, owner: str | None) -> None:
    run_id, results = make_results(store, 1)
    if owner is None:
        assert store.queue.claim(run_id, "somebody")

    async def write() -> None:
        async with store.results.make_writer(run_id, lambda _: None, owner) as opened:
            await opened.put(results)

    with pytest.raises(AlreadyRunning, match="stores no more of its results"):
        asyncio.run(write())
    assert store.runs.find(run_id).stored == 0
