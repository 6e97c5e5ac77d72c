"""`pramana serve` as processes: killed during runs, killed by a run, and three servers of a team on one PostgreSQL."""

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pramana.jobs import MAX_CONCURRENT_RUNS
from pramana.store import open_store
from pramana.store.store import Store

from ..show.api.served import Client, Program, start_program
from ..show.api.test_events import follow_stream
from ..stores import home_store

RUNS = 20


def wait_until(condition: Callable[[], Any], within: float = 60.0) -> Any:
    deadline = time.monotonic() + within
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def start_run(client: Client, model: str, **body: Any) -> str:
    found = client.post("/api/runs", {"tier": "cheap", "models": [model], **body})
    assert found.status == 202, found.body
    run_id: str = found.data["id"]
    return run_id


def are_finished(store: Store, runs: list[str]) -> bool:
    return all(store.runs.find(each).status == "finished" for each in runs)


def have_started(store: Store, runs: list[str]) -> bool:
    return all(store.runs.find(each).stored for each in runs)


def has_attempts(store: Store, run_id: str, times: int) -> bool:
    return store.runs.read(run_id).attempts == times


def list_runs(client: Client) -> dict[str, Any]:
    return {each["id"]: each for each in client.get("/api/runs?pageSize=500").data}


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_a_server_killed_during_20_runs_loses_and_duplicates_nothing(
    engine: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four at a time: each server is killed during its runs, the next one resumes them, and every run completes."""
    if engine == "postgresql":
        monkeypatch.setenv("PRAMANA_DATABASE_URL", request.getfixturevalue("postgres_url"))
    store = open_store(home_store())
    made: list[str] = []
    while len(made) < RUNS:
        with start_program() as server:
            wait_until(partial(are_finished, store, made))
            some = [
                start_run(server.client, "fake:latency=0.2", limits={"concurrency": 1})
                for _ in range(MAX_CONCURRENT_RUNS)
            ]
            wait_until(partial(have_started, store, some))
            server.kill()
        assert {store.runs.find(each).status for each in some} == {"queued"}, "for the next server"
        made += some
    with start_program():
        wait_until(partial(are_finished, store, made))
    for run_id in made:
        keys = Counter(result.key for _, result in store.results.iterate(run_id))
        assert (len(keys), set(keys.values())) == (10, {1}), run_id
        assert (store.runs.find(run_id).stored, store.runs.find(run_id).status) == (10, "finished")
    store.close()


def test_a_run_that_kills_its_server_is_stopped_after_three_attempts() -> None:
    """Whatever ends the process during the run; here a kill, as the out-of-memory killer does."""
    store = open_store(home_store())
    run_id = ""
    for attempt in (1, 2, 3):
        with start_program() as server:
            run_id = run_id or start_run(server.client, "fake:latency=600")
            wait_until(partial(has_attempts, store, run_id, attempt))
            server.kill()
    with start_program() as server:
        found = wait_until(
            lambda: next((each for each in list_runs(server.client).values() if each["finishedAt"]), None)
        )
        assert (found["id"], found["status"]) == (run_id, "interrupted")
        assert found["reason"] == "the server stopped three times during this run; resume the run to try again"
        assert server.client.delete(f"/api/runs/{run_id}").status == 200
    store.close()


def test_a_terminated_server_hands_over_its_runs() -> None:
    store = open_store(home_store())
    with start_program() as server:
        run_id = start_run(server.client, "fake:latency=0.3", limits={"concurrency": 1})
        wait_until(lambda: store.runs.find(run_id).stored)
        began = time.monotonic()
        server.process.terminate()
        assert server.process.wait(15) == 0
        assert time.monotonic() - began < 8
    assert (store.runs.find(run_id).status, store.runs.read(run_id).attempts) == ("queued", 0)
    with start_program() as server:
        wait_until(lambda: store.runs.find(run_id).status == "finished")
    assert len({result.key for _, result in store.results.iterate(run_id)}) == 10
    store.close()


def test_a_run_can_be_started_followed_and_cancelled_on_three_servers(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PRAMANA_DATABASE_URL", postgres_url)
    with start_program("--api-only") as one, start_program("--api-only") as two:
        run_id = start_run(one.client, "fake:latency=0.2", repeats=100, limits={"concurrency": 2})
        assert two.client.get(f"/api/runs/{run_id}").data["status"] == "queued"  # until a server with workers starts
        with start_program() as full:
            follow_and_cancel(run_id, full, follower=two.client, canceller=one.client)
            again = start_run(full.client, "fake:latency=0.2", repeats=100, limits={"concurrency": 2})
            follow_and_cancel(again, full, follower=one.client, canceller=two.client)


def follow_and_cancel(run_id: str, full: Program, *, follower: Client, canceller: Client) -> None:
    with follow_stream(follower, f"/api/runs/{run_id}/events") as events:
        seen = [next(events) for _ in range(8)]
        assert [name for _, name, _ in seen].count("result") >= 2
        assert f"process {full.process.pid} on" in canceller.get(f"/api/runs/{run_id}").data["holder"]
        began = time.monotonic()
        assert canceller.post(f"/api/runs/{run_id}/cancel").data["cancelRequested"]
        rest = list(events)
        assert time.monotonic() - began < 6
        assert rest[-1][1:] == (
            "finished",
            {**rest[-1][2], "status": "cancelled", "reason": "cancelled on request", "expected": 1000},
        )
        heard = [number for number, name, _ in [*seen, *rest] if name == "result"]
        stored = full.client.get(f"/api/runs/{run_id}").data["stored"]
        assert len(heard) == len(set(heard)) == stored < 1000
