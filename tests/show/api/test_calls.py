"""Calls through the API: the transcript with times, the peaks of both sides, and errors for missing or damaged recordings."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from pramana import audio
from pramana.app.calls import CallView, measure_peaks
from pramana.hash import hash_case
from pramana.model import Case, Check, Facets, Outcome, Plan, RecordedCall, Reply, Result, ResultKey, Target, Turn
from pramana.show.api.envelope import make_documentation_model
from pramana.store.store import Store

from .served import Client, serve

RATE = 24_000
EVENTS: list[dict[str, Any]] = [
    {"t": 0.0, "event": "call", "version": 2},
    {"t": 1.0, "event": "line", "line": 0, "text": "When do you open?", "start": 0.2, "end": 1.0, "barge_in": False},
    {"t": 1.2, "event": "user_text", "text": "When do you hope?", "final": True},
    {"t": 1.4, "event": "agent_text", "text": "At nine. <b>\u202e שלום", "final": True},
    {"t": 3.0, "event": "end", "reason": "done"},
]
LINE = {"voice_to_voice_s": 0.5, "first_audible_s": 1.5, "answer_end_s": 2.5}


def make_sound(seconds: float = 3.0) -> Any:
    """Return a recording: the caller talks from 0.2 s to 1 s, the agent half as loud from 1.5 s to 2.5 s."""
    samples = np.zeros((round(seconds * RATE), 2), np.int16)
    samples[round(0.2 * RATE) : RATE, 0] = -32768
    samples[round(1.5 * RATE) : round(2.5 * RATE), 1] = 16384
    return samples


def store_call(
    store: Store, recording: bytes, log: bytes, evidence: Any = None, *, spoken: bool = True
) -> tuple[str, int]:
    """Store a run with one result; return the run's id and the result's number."""
    case = Case("hours", "scenario", (Turn("user", "When do you open?"),), Facets("x", "easy"))
    run = store.runs.create(Plan("mine", None, (Target("m", "fake", "m"),), variants=("voice",)), [case])
    call = RecordedCall(store.blobs.put(recording), store.blobs.put(log)) if spoken else None
    reply = Reply("At nine.", answers=("At nine.",) if spoken else (), call=call)
    check = Check(
        "call", "1", Outcome.PASSED, "heard", None, {"times": {"lines": [LINE]}} if evidence is None else evidence
    )
    made = Result(ResultKey(hash_case(case), "m", "voice"), case.id, reply, None, (check,), None, None)

    async def write() -> None:
        async with store.results.make_writer(run.id, lambda _: None) as writer:
            await writer.put([made])

    asyncio.run(write())
    ((seq, _),) = store.results.iterate(run.id)
    return run.id, seq


def encode_log(events: list[dict[str, Any]]) -> bytes:
    return b"\n".join(json.dumps(each).encode() for each in events)


@pytest.fixture
def store(client: Client) -> Store:
    assert client.store
    return client.store


def test_a_call_has_times_turns_and_the_peaks_of_both_sides(client: Client, store: Store) -> None:
    run_id, seq = store_call(store, audio.write_wav(make_sound(), RATE), encode_log(EVENTS))
    found = client.get(f"/api/runs/{run_id}/results/{seq}/call?columns=300").data
    make_documentation_model(CallView).model_validate(found)
    assert found["durationSeconds"] == 3.0
    assert [(each["who"], each["atSeconds"]) for each in found["conversation"]] == [
        ("caller", 0.2), ("heard as", 0.2), ("agent", 1.5), ("our ear", 1.5),
    ]  # fmt: skip
    assert found["conversation"][2]["text"] == "At nine. <b>\u202e שלום"
    assert found["conversation"][2]["note"] == "voice to voice 500 ms"
    assert found["turns"] == [
        {"who": "caller", "startSeconds": 0.2, "endSeconds": 1.0},
        {"who": "agent", "startSeconds": 1.5, "endSeconds": 2.5},
    ]
    caller, agent = found["peaks"]["caller"], found["peaks"]["agent"]
    assert (len(caller), len(agent)) == (300, 300)
    assert [place for place, each in enumerate(caller) if each] == list(range(20, 100))
    assert set(caller) == {0.0, 1.0}  # the loudest sample is negative and has no positive counterpart
    assert [place for place, each in enumerate(agent) if each] == list(range(150, 250))
    assert set(agent) == {0.0, 0.5}
    assert client.get(found["recording"]).headers["content-type"] == "audio/wav"
    assert b'"line"' in client.get(found["log"]).body
    assert len(client.get(f"/api/runs/latest/results/{seq}/call").data["peaks"]["agent"]) == 800


@pytest.mark.parametrize("columns", ["99", "4001", "many", "-5"])
def test_an_invalid_number_of_columns_is_refused(client: Client, store: Store, columns: str) -> None:
    run_id, seq = store_call(store, b"", b"")
    found = client.get(f"/api/runs/{run_id}/results/{seq}/call?columns={columns}")
    assert (found.status, found.json["details"][0]["path"]) == (400, "columns")


def test_a_result_without_a_call_is_an_error(client: Client, store: Store) -> None:
    run_id, seq = store_call(store, b"", b"", {}, spoken=False)
    found = client.get(f"/api/runs/{run_id}/results/{seq}/call")
    assert (found.status, found.json["code"]) == (404, "not_found")
    assert found.error == f"result {seq} of run {run_id} is not a call, so it has no recording"
    assert client.get(f"/api/runs/{run_id}/results/999/call").status == 404
    assert client.get("/api/runs/r0/results/1/call").status == 404


def test_a_missing_or_damaged_recording_is_reported(client: Client, store: Store) -> None:
    run_id, seq = store_call(store, audio.write_wav(make_sound(), RATE), encode_log(EVENTS))
    path = store.blobs.path(store.results.read(run_id, seq)[1].reply.call.recording)  # type: ignore[union-attr]
    path.write_bytes(b"RIFF")
    for there in (True, False):
        if not there:
            path.unlink()
        found = client.get(f"/api/runs/{run_id}/results/{seq}/call")
        assert (found.status, found.json["code"]) == (404, "not_found")
        assert found.error.startswith("the recording of this call is missing or damaged")
        assert str(store.blobs.folder) not in found.error
    for data, why in (
        (b"no sound at all", "not a WAV file"),
        (audio.write_wav(make_sound()[:, 0], RATE), "not have two channels"),
    ):
        run_id, seq = store_call(store, data, encode_log(EVENTS))
        found = client.get(f"/api/runs/{run_id}/results/{seq}/call")
        assert found.status == 404
        assert why in found.error


def test_an_unreadable_log_loses_the_turns_but_not_the_peaks(client: Client, store: Store) -> None:
    run_id, seq = store_call(store, audio.write_wav(make_sound(), RATE), b"{no log")
    found = client.get(f"/api/runs/{run_id}/results/{seq}/call").data
    assert found["turns"] == []
    assert "the event log of this call cannot be read" in found["conversation"][0]["note"]
    assert max(found["peaks"]["caller"]) == 1.0


def test_answers_without_a_measured_end_have_no_end(client: Client, store: Store) -> None:
    for evidence, ends in (
        ({"times": {"lines": [{"first_audible_s": 1.5}]}}, [("caller", 1.0), ("agent", None)]),
        ({"times": {"lines": [{"first_audible_s": None}]}}, [("caller", 1.0)]),
        ({}, [("caller", 1.0)]),
    ):
        run_id, seq = store_call(store, audio.write_wav(make_sound(), RATE), encode_log(EVENTS), evidence)
        found = client.get(f"/api/runs/{run_id}/results/{seq}/call").data
        assert [(each["who"], each["endSeconds"]) for each in found["turns"]] == ends


def test_peaks_cover_every_sample() -> None:
    dice = np.random.default_rng(3)
    for length in (1, 7, 99, 100, 101, 2_345):
        samples = np.zeros(length, np.int16)
        place = int(dice.integers(length))
        samples[place] = -20_000
        found = measure_peaks(samples, 100)
        assert len(found) == 100
        assert max(found) == pytest.approx(20_000 / 32_768, abs=1e-4)
    assert measure_peaks(np.zeros(0, np.int16), 100) == (0.0,) * 100


def test_reading_a_call_requires_a_viewer(secure_client: Client) -> None:
    assert secure_client.get("/api/runs/latest/results/1/call").status == 401
    assert secure_client.with_token("viewer").get("/api/runs/latest/results/1/call").status == 404


# ── Neighbouring results ──


def test_a_result_links_to_the_previous_and_next_one(client: Client) -> None:
    from .test_runs import start_run, wait_for_run

    run_id = start_run(client)
    done = wait_for_run(client, run_id)
    rows = client.get(f"/api/runs/{run_id}/results").data
    seqs = [row["seq"] for row in rows]
    first = client.get(f"/api/runs/{run_id}/results/{seqs[0]}").json["meta"]
    assert first == {"previous": None, "next": seqs[1]}
    failed = [row["seq"] for row in rows if row["outcome"] == "failed"]
    assert client.get(f"/api/runs/{run_id}/results/{failed[1]}?outcome=failed").json["meta"] == {
        "previous": failed[0], "next": failed[2],
    }  # fmt: skip
    assert client.get(f"/api/runs/{run_id}/results/{seqs[0]}?outcome=odd").status == 400
    latency = done["aggregates"]["latencySeconds"]
    assert sum(each["count"] for each in latency["histogram"]) == latency["overall"]["count"] == 10
    assert latency["histogram"][0].keys() == {"from", "to", "count"}
    assert latency["histogramByModel"] == {"fake:echo": latency["histogram"]}


def test_a_second_server_returns_the_same_call(sqlite_url: str) -> None:
    with serve(sqlite_url, api_only=True) as one, serve(sqlite_url, api_only=True) as other:
        assert one.store
        run_id, seq = store_call(one.store, audio.write_wav(make_sound(), RATE), encode_log(EVENTS))
        asked = f"/api/runs/{run_id}/results/{seq}/call"
        assert one.get(asked).data == other.get(asked).data
