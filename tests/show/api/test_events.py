"""Server-sent events: following a run from any process, the stream of all changes, and reconnecting."""

import http.client
import json
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

from pramana.app import access, tail
from pramana.store.tokens import Role

from ...credentials import TOKEN_ENDS, TokenEnd, end_token
from .served import Client, serve, start_program
from .test_runs import start_run, wait_for_run

Event = tuple[int | None, str, Any]


@contextmanager
def follow_stream(client: Client, path: str, last: int | None = None) -> Iterator[Iterator[Event]]:
    """Follow a stream; yield each event as id, name and data. A comment has an empty name."""
    parts = urlsplit(client.url)
    assert parts.hostname
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=30)
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    if client.token:
        headers["Authorization"] = f"Bearer {client.token}"
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.getheader("content-type", "").startswith("text/event-stream")

        def events() -> Iterator[Event]:
            fields: dict[str, str] = {}
            while line := response.readline():
                text = line.decode().rstrip("\n")
                if text.startswith(":"):
                    yield None, "", text
                elif text:
                    name, _, value = text.partition(": ")
                    fields[name] = value
                elif fields:
                    number = int(fields["id"]) if "id" in fields else None
                    yield number, fields["event"], json.loads(fields["data"])
                    fields = {}

        yield events()
    finally:
        connection.close()


def test_a_run_stream_delivers_every_event_to_the_end(client_per_store: Client) -> None:
    run_id = start_run(client_per_store, models=["fake:latency=0.02"], limits={"concurrency": 2})
    with follow_stream(client_per_store, f"/api/runs/{run_id}/events") as events:
        found = list(events)
    results = [(number, data) for number, name, data in found if name == "result"]
    assert [data for _, data in results] == client_per_store.get(f"/api/runs/{run_id}/results").data
    assert all(number == data["seq"] for number, data in results)
    progress = [data["stored"] for _, name, data in found if name == "progress"]
    assert progress == sorted(progress)
    assert found[-1][1:] == (
        "finished",
        {"status": "finished", "stored": 10, "expected": 10, "reason": None, "cancelRequested": False},
    )


def test_a_reconnecting_client_continues_after_the_last_event(client_per_store: Client) -> None:
    run_id = start_run(client_per_store)
    wait_for_run(client_per_store, run_id)
    with follow_stream(client_per_store, f"/api/runs/{run_id}/events") as events:
        everything = [number for number, name, _ in events if name == "result"]
    assert len(everything) == 10
    with follow_stream(client_per_store, f"/api/runs/{run_id}/events", last=everything[6]) as events:
        rest = list(events)
    assert [number for number, name, _ in rest if name == "result"] == everything[7:]
    assert rest[-1][1] == "finished"
    with follow_stream(client_per_store, f"/api/runs/{run_id}/events?after={everything[-1]}") as events:
        assert [name for _, name, _ in events] == ["progress", "finished"]
    assert client_per_store.get("/api/runs/r0/events").status == 404


def test_each_of_many_clients_receives_every_result_once(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "MAX_REMEMBERED_EVENTS", 30)  # so that late clients must read from the store
    monkeypatch.setattr(tail, "RESULTS_PER_READ", 20)
    run_id = start_run(client, models=["fake:latency=0.05"], repeats=20, limits={"concurrency": 8})
    heard: list[list[int | None]] = [[] for _ in range(6)]

    def listen(place: int) -> None:
        time.sleep(0.2 * place)
        with follow_stream(client, f"/api/runs/{run_id}/events") as events:
            heard[place] = [number for number, name, _ in events if name == "result"]

    threads = [threading.Thread(target=listen, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(heard[0]) == len(set(heard[0])) == 200
    assert all(each == heard[0] for each in heard)


def test_each_change_is_sent_once_from_any_process(store_url: str) -> None:
    with serve(store_url) as one, serve(store_url) as other:
        with follow_stream(other, "/api/events") as events:
            assert next(events)[1] == ""  # from here on nothing is missed
            one.patch("/api/settings", {"refuseUnverified": True})
            run_id = start_run(one)
            found = [next(events) for _ in range(4)]
            assert [(data["kind"], data["action"]) for _, _, data in found] == [
                ("settings", "updated"), ("run", "created"), ("run", "started"), ("run", "finished"),
            ]  # fmt: skip
            assert {data["id"] for _, _, data in found[1:]} == {run_id}
        first = found[0][0]
        with follow_stream(one, "/api/events", last=first) as events:
            assert next(events)[1] == ""
            assert [next(events) for _ in range(3)] == found[1:]


def test_a_client_that_missed_too_much_receives_a_missed_event(client: Client) -> None:
    client.patch("/api/settings", {"refuseUnverified": True})
    with follow_stream(client, "/api/events?seconds=0.5", last=10**6) as events:
        assert next(events)[1] == "missed"


def test_the_stream_of_a_deleted_run_says_so_and_ends(store_url: str) -> None:
    with serve(store_url, api_only=True) as client:  # so that it stays queued
        run_id = start_run(client)
        with follow_stream(client, f"/api/runs/{run_id}/events") as events:
            assert next(events)[2]["status"] == "queued"
            assert client.delete(f"/api/runs/{run_id}").status == 200
            assert [name for _, name, _ in events] == ["deleted"]


def test_changes_in_this_process_are_sent_immediately(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "POLL_INTERVAL_S", 30.0)  # the stream only reads when notified
    with follow_stream(client, "/api/events") as events:
        next(events)
        began = time.monotonic()
        client.patch("/api/settings", {"refuseUnverified": True})
        assert next(events)[2]["kind"] == "settings"
        assert time.monotonic() - began < 2


def test_an_idle_stream_sends_keep_alive_comments(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "HEARTBEAT_S", 0.1)
    with follow_stream(client, "/api/events") as events:
        assert [next(events)[2] for _ in range(3)] == [": still here"] * 3


def test_a_server_that_shuts_down_ends_its_streams() -> None:
    with start_program() as found, follow_stream(found.client, "/api/events") as events:
        assert next(events)[1] == ""
        found.process.terminate()
        assert list(events) == []
        assert found.process.wait(10) == 0


def end_token_of(client: Client, held: Client, how: TokenEnd) -> None:
    assert client.store
    secret = held.token
    assert secret
    token = client.store.tokens.find_by_secret(secret)
    assert token
    end_token(client.store, token.id, how)


@pytest.mark.parametrize("how", TOKEN_ENDS)
def test_an_ended_token_receives_no_more_events_on_open_streams(secure_client: Client, how: TokenEnd) -> None:
    editor, other = secure_client.with_token("editor"), secure_client.with_token("editor")
    run_id = start_run(editor, models=["fake:latency=0.05"], repeats=100, limits={"concurrency": 1})
    busy = f"/api/runs/{run_id}/events"
    with (
        follow_stream(other, "/api/events") as news,
        follow_stream(other, busy) as results,
        follow_stream(editor, busy) as on,
    ):
        assert next(news)[1] == ""
        assert next(results)[1] in ("result", "progress")
        began = time.monotonic()
        end_token_of(secure_client, other, how)
        list(news)
        told = [name for _, name, _ in results]
        assert time.monotonic() - began < 5, "the streams did not end"
        assert "finished" not in told
        editor.post(f"/api/runs/{run_id}/cancel")
        assert [name for _, name, _ in on][-1] == "finished", "whose token holds hears all of it"


def test_a_stream_opened_during_a_token_check_stays_open(
    secure_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "LOOKUP_CACHE_S", 0.05)
    assert secure_client.store
    one, other = secure_client.with_token("viewer"), secure_client.with_token("viewer")
    looking, opened, roles = threading.Event(), threading.Event(), secure_client.store.tokens.read_roles

    def slowly(token_ids: Collection[str]) -> dict[str, Role]:
        looking.set()
        assert opened.wait(30)
        return roles(token_ids)

    monkeypatch.setattr(secure_client.store.tokens, "read_roles", slowly)
    with follow_stream(one, "/api/events") as first:
        assert next(first)[1] == ""
        assert looking.wait(30)
        with follow_stream(other, "/api/events?seconds=2") as second:
            assert next(second)[1] == ""
            opened.set()
            time.sleep(0.2)  # several looks
            start_run(secure_client.with_token("editor"))
            assert "change" in [name for _, name, _ in second]


def test_streams_are_limited_per_token_and_per_process(secure_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MAX_STREAMS_PER_TOKEN", 2)
    monkeypatch.setattr(access, "MAX_STREAMS_PER_PROCESS", 3)
    one, other = secure_client.with_token("viewer"), secure_client.with_token("viewer")
    with ExitStack() as stack:

        def open_stream(client: Client) -> Iterator[Event]:
            events = stack.enter_context(follow_stream(client, "/api/events"))
            assert next(events)[1] == ""
            return events

        for client in (one, one):
            open_stream(client)
        refused = one.get("/api/events")
        assert (refused.status, refused.json["code"]) == (429, "rate_limited")
        assert refused.error == "this token has 2 streams open, which is the limit; close a stream first"
        open_stream(other)
        full = other.get("/api/events")
        assert (full.status, full.error) == (503, "this server has 3 streams open, which is the limit; try again later")
        end_token_of(secure_client, other, "revoked")
    deadline = time.monotonic() + 20
    while (again := one.get("/api/events?seconds=0.1")).status != 200:
        assert time.monotonic() < deadline, again.body
        time.sleep(0.05)
