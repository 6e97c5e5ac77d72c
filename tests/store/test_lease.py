"""Only one process works on a run: claims, heartbeats, takeovers, and dead owners; on both engines."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pramana.errors import AlreadyRunning
from pramana.store import queue
from pramana.store.queue import format_holder, is_holder_gone, make_process_name
from pramana.store.store import Store

from .. import programs
from .samples import make_case, make_plan

linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a process does not say when it began")
CLAIM = """
import sys, time
from pramana.store import open_store
from pramana.store.queue import make_process_name
assert open_store(sys.argv[1]).queue.claim(sys.argv[2], make_process_name(), 60)
print("mine", flush=True)
time.sleep(60)
"""


@pytest.fixture
def run(store: Store) -> str:
    return store.runs.create(make_plan(), [make_case(1)]).id


def fail_if_lost(taken: AlreadyRunning) -> None:
    raise AssertionError(taken)


def test_another_process_is_refused_until_it_is_killed(store: Store, url: str, run: str) -> None:
    with programs.start(["-c", CLAIM, url, run]) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "mine\n"

        async def hold() -> None:
            async with store.queue.lease(run, fail_if_lost):
                pass

        with pytest.raises(AlreadyRunning) as caught:
            asyncio.run(hold())
        assert f"process {other.pid} on " in str(caught.value)
        assert f"is running run {run}: wait until that process has ended, or stop it" in str(caught.value)
        assert "[" not in str(caught.value)
        assert caught.value.exit_code == 3
        other.kill()
        other.wait()
        asyncio.run(hold())  # at once, although its lease would have lasted
    assert store.runs.read(run).attempts == 2


def claim_and_kill(store: Store, url: str, run: str) -> str:
    """Have a process claim a run and kill it; return its name as people read it."""
    with programs.start(["-c", CLAIM, url, run]) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "mine\n"
        assert store.runs.read(run).status == "running"
        assert store.runs.read_page(status="running")[1] == 1
        name = format_holder(store.queue.find_holder(run) or "")
        other.kill()
        other.wait()
    return name


@linux
def test_a_run_whose_process_was_killed_reads_interrupted_everywhere(store: Store, url: str, run: str) -> None:
    reason = f"{claim_and_kill(store, url, run)} exited before the run was complete"
    other = store.runs.create(make_plan(), [make_case(2)]).id
    (listed,), total = store.runs.read_page(status="interrupted")
    state = store.runs.read_states([run])[run]
    for found in (store.runs.read(run), store.runs.find(run), listed, state):
        assert (found.status, found.reason) == ("interrupted", reason)
    assert (total, listed.id, listed.holder) == (1, run, None)
    assert [each.id for each in store.runs.read_page(status="running")[0]] == [other], "nobody has begun that one yet"
    assert store.queue.claim(run, make_process_name())
    assert (store.runs.read(run).status, store.runs.read(run).reason) == ("running", None)
    assert store.runs.read_page(status="interrupted") == ([], 0)


@linux
def test_a_run_of_a_killed_server_waits_for_the_next_server(store: Store, url: str) -> None:
    run = store.runs.create(make_plan(), [make_case(1)], owner="server").id
    claim_and_kill(store, url, run)
    assert (store.runs.read(run).status, store.runs.read(run).reason) == ("queued", None)
    assert (store.runs.read_states([run])[run].status, store.runs.read_page(status="queued")[1]) == ("queued", 1)
    assert store.queue.list_waiting() == [run]
    with pytest.raises(AlreadyRunning, match="is already queued"):
        store.queue.requeue(run)


def test_a_run_of_another_machine_reads_interrupted_once_its_lease_expires(store: Store, run: str) -> None:
    assert store.queue.claim(run, "elsewhere")
    assert store.runs.read(run).status == "running"
    assert store.queue.renew_lease(run, "elsewhere", -1), "its lease has run out"
    found = store.runs.read(run)
    assert (found.status, found.reason) == ("interrupted", "elsewhere has sent no heartbeat for 60 seconds")
    assert store.queue.renew_lease(run, "elsewhere"), "it was late"
    assert store.runs.read(run).status == "running"


def test_a_run_keeps_the_limits_of_its_last_execution(store: Store, run: str) -> None:
    first, later = {"max_cost_usd": 5.0, "concurrency": 4}, {"concurrency": 32}
    store.queue.store_limits(run, later)
    assert store.runs.find(run).limits == {}, "nobody has begun it"
    for each in (first, later):
        assert store.queue.claim(run, "somebody")
        store.queue.store_limits(run, each)
        store.queue.finish(run, "somebody", "interrupted")
        assert store.runs.find(run).limits == each


@linux
def test_a_zombie_process_counts_as_gone() -> None:
    code = "from pramana.store.queue import make_process_name; print(make_process_name(), flush=True); import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        name = other.stdout.readline().strip()
        assert not is_holder_gone(name)
        other.kill()
        deadline = time.monotonic() + 10
        while not is_holder_gone(name):  # a zombie: it is waited for only when this block ends
            assert time.monotonic() < deadline
            time.sleep(0.01)


@linux
def test_ended_processes_are_recognised_as_gone() -> None:
    mine = make_process_name()
    assert not is_holder_gone(mine)
    assert is_holder_gone(mine.rpartition(" ")[0] + " 12345]"), "the number was given to another process since"
    assert is_holder_gone(mine.replace(f"process {os.getpid()} ", "process 4194305 ")), "no process has this number"
    assert not is_holder_gone(mine.rpartition(" ")[0] + " ?]"), "where nobody knows when it began"
    assert not is_holder_gone(mine.replace("[", "[elsewhere-").replace(f"process {os.getpid()} ", "process 4194305 "))
    assert not is_holder_gone("whoever")
    assert format_holder(mine) == mine.partition(" [")[0]
    assert format_holder("whoever") == "whoever"


def test_the_lease_of_another_machine_is_respected_until_it_expires(store: Store, run: str) -> None:
    other = "process 7 on elsewhere [elsewhere 4711 12345]"
    assert store.queue.claim(run, other, 60)
    assert not store.queue.claim(run, make_process_name())
    assert store.queue.find_holder(run) == other
    assert store.queue.renew_lease(run, other, -1)
    assert store.queue.claim(run, make_process_name())
    assert store.queue.find_holder(run) == make_process_name()
    assert not store.queue.renew_lease(run, other), "it has lost it"


def test_a_hold_renews_its_lease_and_releases_it_at_the_end(
    store: Store, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "LEASE_S", 0.4)

    async def work() -> None:
        async with store.queue.lease(run, fail_if_lost) as held:
            end = time.monotonic() + 1.2  # three times its lease
            while time.monotonic() < end:
                assert not store.queue.claim(run, "a rival")
                await asyncio.sleep(0.02)
            assert not held.is_lost

    asyncio.run(work())
    assert store.queue.find_holder(run) is None
    assert store.queue.claim(run, "a rival")


def test_an_owner_whose_lease_expired_is_notified_and_leaves_the_new_owner_alone(
    store: Store, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "LEASE_S", 0.2)

    async def work() -> AlreadyRunning:
        told: asyncio.Future[AlreadyRunning] = asyncio.get_running_loop().create_future()
        async with store.queue.lease(run, told.set_result) as held:
            time.sleep(0.4)  # as a machine that was asleep  # noqa: ASYNC251 - nothing may beat meanwhile
            assert store.queue.claim(run, "a rival", 60)
            taken = await told
            assert held.is_lost
            return taken

    taken = asyncio.run(work())
    assert (
        str(taken)
        == f"a rival is running run {run}: that process took over, because this one sent no heartbeat for too long"
    )
    assert store.queue.find_holder(run) == "a rival"


def test_a_hold_that_ends_in_an_error_releases_its_lease(store: Store, run: str) -> None:
    async def work() -> None:
        async with store.queue.lease(run, fail_if_lost):
            raise RuntimeError("as it happens")

    with pytest.raises(RuntimeError):
        asyncio.run(work())
    assert store.queue.find_holder(run) is None
    assert store.runs.find(run).status == "running"


def test_without_process_information_only_the_lease_expiry_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = make_process_name()

    def raise_not_found(path: Path, **_: object) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", raise_not_found)
    assert not is_holder_gone(mine), "it is there, since when is not told"
    queue._make_machine_id.cache_clear()
    try:
        assert make_process_name().endswith(" ?]")
    finally:
        queue._make_machine_id.cache_clear()
