"""Background runs: taken by exactly one server, handed over, given up after three crashes, cancelled."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from pramana.bench import HANDED_OVER_REASON
from pramana.errors import InvalidInput, StateConflict
from pramana.jobs import Jobs
from pramana.model import Run, Scenario
from pramana.planning import create_run, estimate
from pramana.request import Limits, RunRequest, Selection
from pramana.run.accounts import ProviderAccess
from pramana.store import open_store
from pramana.store.queue import GAVE_UP_REASON, MAX_ATTEMPTS
from pramana.store.schema import runs
from pramana.store.store import Store

from . import programs
from .stores import postgres_store, sqlite_store

REACH = ProviderAccess(is_for_other_users=True)


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


@contextmanager
def run_jobs(store: Store, **given: Any) -> Iterator[Jobs]:
    jobs = Jobs(store, **given)
    jobs.start()
    try:
        yield jobs
    finally:
        jobs.close()
        assert not jobs._thread.is_alive()


def queue_run(store: Store, model: str = "fake:echo", **given: Any) -> Run:
    return create_run(store, RunRequest(models=(model,), tier="cheap", **given), REACH, "Ann")


def wait_for(condition: Callable[[], bool], within: float = 20.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def has_more(store: Store, run_id: str, than: int) -> bool:
    return store.runs.find(run_id).stored > than


def read_keys(store: Store, run_id: str) -> list[Any]:
    return [result.key for _, result in store.results.iterate(run_id)]


def test_queued_runs_are_executed_concurrently_oldest_first(store: Store) -> None:
    runs = [queue_run(store, "fake:latency=0.3", limits=Limits(concurrency=100)) for _ in range(5)]
    assert [run.status for run in runs] == ["queued"] * 5
    with run_jobs(store, at_once=2) as jobs:
        wait_for(lambda: store.runs.find(runs[0].id).status == "running")
        assert set(jobs.running_ids) <= {runs[0].id, runs[1].id}
        assert store.runs.find(runs[4].id).status == "queued"
        wait_for(lambda: all(store.runs.read(run.id).status == "finished" for run in runs))
    ends = [store.runs.read(run.id).finished for run in runs]
    assert ends[0] <= ends[2] <= ends[4]  # type: ignore[operator]
    assert [store.runs.read(run.id).creator for run in runs] == ["Ann"] * 5


def test_exactly_one_of_many_servers_takes_over_an_orphaned_run(store: Store, url: str) -> None:
    """Its server was killed in mid-run: the lease names a dead process."""
    run = queue_run(store, "fake:latency=0.05", limits=Limits(concurrency=1))
    take = (
        "import sys; from pramana.store import open_store; from pramana.store.queue import make_process_name\n"
        "assert open_store(sys.argv[1]).queue.claim_for_server(sys.argv[2], make_process_name(), 60)"
    )
    programs.run(["-c", take, url, run.id]).check_returncode()
    orphan = store.runs.read(run.id)
    assert (orphan.status, orphan.attempts, orphan.holder) == ("queued", 1, None)
    assert store.queue.list_waiting() == [run.id]
    others = [open_store(url) for _ in range(3)]
    jobs = [Jobs(each) for each in (store, *others)]
    for each in jobs:
        each.start()
    try:
        wait_for(lambda: bool(store.runs.read(run.id).stored))
        assert sum(run.id in each.running_ids for each in jobs) == 1
        wait_for(lambda: store.runs.read(run.id).status == "finished")
    finally:
        for each in jobs:
            each.close()
        for other in others:
            other.close()
    assert len(read_keys(store, run.id)) == len(set(read_keys(store, run.id))) == 10
    assert store.runs.read(run.id).attempts == 2


def test_a_run_is_given_up_after_three_crashed_servers_and_can_be_resumed(store: Store) -> None:
    run = queue_run(store)
    for attempt in range(MAX_ATTEMPTS):
        assert store.queue.claim_for_server(run.id, f"process {attempt} of a machine that is gone", lease_s=-1)
    with run_jobs(store):
        wait_for(lambda: store.runs.read(run.id).status == "interrupted")
        assert (
            store.runs.read(run.id).reason
            == GAVE_UP_REASON
            == "the server stopped three times during this run; resume the run to try again"
        )
        assert store.runs.read(run.id).stored == 0
        store.queue.requeue(run.id)
        wait_for(lambda: store.runs.read(run.id).status == "finished")


def test_a_stopping_server_hands_over_its_runs_without_counting_an_attempt(store: Store) -> None:
    run = queue_run(store, "fake:latency=0.5", limits=Limits(concurrency=1))
    for _ in range(MAX_ATTEMPTS + 1):
        with run_jobs(store) as jobs:
            before = store.runs.read(run.id).stored
            wait_for(partial(has_more, store, run.id, before))
            began = time.monotonic()
            jobs.close()
            assert time.monotonic() - began < 3
        left = store.runs.read(run.id)
        assert (left.status, left.reason, store.runs.read(run.id).attempts) == ("queued", HANDED_OVER_REASON, 0)
        assert store.queue.find_holder(run.id) is None
    with run_jobs(store):
        wait_for(lambda: store.runs.read(run.id).status == "finished")
    assert len(read_keys(store, run.id)) == len(set(read_keys(store, run.id))) == 10


def test_a_server_that_lost_its_lease_leaves_the_run_to_the_new_owner(store: Store) -> None:
    run = queue_run(store, "fake:latency=0.2,echo", limits=Limits(concurrency=1))
    with run_jobs(store) as jobs:
        wait_for(lambda: store.runs.read(run.id).stored > 0)
        with (
            store._database.write_transaction() as connection
        ):  # as after a minute in which it could not say that it is there
            connection.execute(update(runs).where(runs.c.id == run.id), {"lease_until": 0.0})
        assert store.queue.claim(run.id, "another server")
        at_once = store.runs.read(run.id).stored
        wait_for(lambda: not jobs.running_ids)
    left = store.runs.read(run.id)
    assert (left.status, left.reason, store.queue.find_holder(run.id)) == ("running", None, "another server")
    assert left.stored == at_once < left.expected, "it stores nothing more"
    assert store.runs.read(run.id).attempts == 2
    assert store.queue.renew_lease(run.id, "another server")


def test_a_hanging_run_does_not_keep_a_server_from_stopping(store: Store) -> None:
    run = queue_run(store, "fake:latency=600")
    with run_jobs(store) as jobs:
        wait_for(lambda: store.runs.read(run.id).status == "running" and run.id in jobs.running_ids)
        time.sleep(0.3)
        began = time.monotonic()
        jobs.close()
        assert time.monotonic() - began < 7
    assert (store.runs.read(run.id).status, store.runs.read(run.id).attempts) == ("queued", 0)


def test_a_hanging_run_is_cancelled_within_seconds(store: Store) -> None:
    run = queue_run(store, "fake:latency=600")
    with run_jobs(store):
        wait_for(lambda: store.runs.read(run.id).status == "running")
        began = time.monotonic()
        assert store.queue.cancel(run.id).status == "running"
        wait_for(lambda: store.runs.read(run.id).status == "cancelled")
        assert time.monotonic() - began < 7
    with pytest.raises(StateConflict, match="its status is cancelled"):
        store.queue.cancel(run.id)


def test_a_queued_run_is_cancelled_at_once_and_never_started(store: Store) -> None:
    run = queue_run(store)
    assert store.queue.cancel(run.id).status == "cancelled"
    with run_jobs(store):
        other = queue_run(store)
        wait_for(lambda: store.runs.read(other.id).status == "finished")
    assert (store.runs.read(run.id).status, store.runs.read(run.id).attempts) == ("cancelled", 0)


def test_a_run_cancelled_while_its_server_died_is_not_restarted(store: Store) -> None:
    run = queue_run(store)
    assert store.queue.claim_for_server(run.id, "process of another machine", lease_s=0.5)
    assert store.queue.cancel(run.id).status == "running"
    with run_jobs(store):
        wait_for(lambda: store.runs.read(run.id).status == "cancelled")
    assert store.runs.read(run.id).stored == 0


def test_runs_of_the_command_line_are_left_alone(store: Store) -> None:
    run = create_run(store, RunRequest(suite="v1.0", tier="cheap", models=("fake:echo",)))
    with run_jobs(store):
        other = queue_run(store)
        wait_for(lambda: store.runs.read(other.id).status == "finished")
        assert (store.runs.read(run.id).status, store.runs.read(run.id).stored) == ("running", 0)
    with pytest.raises(StateConflict, match=f"pramana run --resume {run.id}"):
        store.queue.requeue(run.id)


def test_deleting_a_queued_run_does_not_affect_others(store: Store) -> None:
    with run_jobs(store, at_once=1):
        first = queue_run(store, "fake:latency=0.2", limits=Limits(concurrency=10))
        second, third = queue_run(store), queue_run(store)
        store.runs.delete(second.id)
        wait_for(lambda: store.runs.read(third.id).status == "finished")
    assert store.runs.read(first.id).status == "finished"


def test_concurrently_queued_and_cancelled_runs_each_end_once(store: Store) -> None:
    with run_jobs(store) as jobs:
        runs: list[str] = []

        def one(number: int) -> None:
            run = queue_run(store, f"fake:latency=0.05,seed={number}")
            jobs.wake()
            runs.append(run.id)
            if number % 3 == 0:
                try:
                    store.queue.cancel(run.id)
                except StateConflict:  # on a busy machine it may have ended first
                    assert store.runs.read(run.id).status == "finished"

        threads = [threading.Thread(target=one, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_for(lambda: all(store.runs.find(each).status not in ("queued", "running") for each in runs), 40)
    for each in runs:
        found = store.runs.find(each)
        assert found.status in ("finished", "cancelled")
        assert len(read_keys(store, each)) == len(set(read_keys(store, each))) == found.stored
        assert found.status == "cancelled" or found.stored == 10


def test_a_recording_is_read_only_from_folders_allowed_to_the_server(store: Store) -> None:
    """Even if a run created by the API is resumed on the command line."""
    import asyncio

    from pramana.bench import execute

    secret = Path(os.environ["PRAMANA_HOME"]).parent / "secret.wav"  # noqa: TID251 - set by the tests
    secret.write_bytes(b"RIFF")
    store.scenarios.create(Scenario("named-path", "n", "task-completion", "p", "o", prompt_audio_url=str(secret)))
    wanted = RunRequest(models=("fake-voice",), scenarios=Selection(ids=("named-path",)))
    run = create_run(store, wanted, REACH)
    with run_jobs(store):
        wait_for(lambda: store.runs.read(run.id).status == "finished")
    again = create_run(store, wanted, REACH)
    asyncio.run(execute(store, again, Limits()))
    for each in (run, again):
        ((_, result),) = store.results.iterate(each.id)
        assert result.failure
        assert "which only the command line can read" in result.failure.message


def test_an_estimate_counts_calls_of_scripts_judges_and_embedders(store: Store) -> None:
    wanted = RunRequest(models=("fake", "fake:echo"), tier="comprehensive", repeats=2, judge="gpt-5")
    found = estimate(store, wanted, REACH)
    assert (found.case_count, found.result_count) == (75, 300)
    shares = {(each.purpose, each.model): each for each in found.model_estimates}
    assert shares["model", "fake"].calls == 150
    judged = shares["judge", "gpt-5"]
    assert judged.calls == 22 * 4
    assert judged.cost_usd
    assert found.cost_usd == pytest.approx(judged.cost_usd)
    with pytest.raises(InvalidInput, match="python:os:getcwd"):
        estimate(store, RunRequest(models=("python:os:getcwd",), tier="cheap"), REACH)
