"""The stages of a call as server-sent events, for clients that follow a run on this server."""

from typing import Any

from pramana.run.call import STAGES

from .served import Client
from .test_events import follow_stream
from .test_runs import wait_for_run

SCENARIO: dict[str, Any] = {
    "id": "hours",
    "name": "Hours",
    "type": "information-retrieval",
    "prompt": "When do you open?",
    "expectedOutcome": "Says when.",
}


def test_followers_of_a_run_receive_the_stages_of_its_call(client: Client) -> None:
    assert client.post("/api/scenarios", SCENARIO).status == 201
    wanted = {"scenarios": ["hours"], "models": ["fake-voice:latency=0.5,tone"], "judge": "fake:fixed=YES"}
    run_id = client.post("/api/runs", {**wanted, "modality": "voice"}).data["id"]
    with follow_stream(client, f"/api/runs/{run_id}/events") as events:
        found = [(name, data) for _, name, data in events]
    stages = [next(iter(data)) for name, data in found if name == "calls" and data]
    assert all(data == {stage: 1} for stage in stages for name, data in found if name == "calls" and stage in data)
    seen = [stage for stage in STAGES if stage in stages]
    assert stages == seen  # each once, in order
    assert {"caller", "waiting", "agent", "scoring"} <= set(stages)
    assert found[-1][0] == "finished"
    wait_for_run(client, run_id)
    with follow_stream(client, f"/api/runs/{run_id}/events") as events:
        assert "calls" not in [name for _, name, _ in events]  # it is over


def test_a_text_run_has_no_call_events(client: Client) -> None:
    run_id = client.post("/api/runs", {"suite": "v1.0", "tier": "cheap", "models": ["fake"]}).data["id"]
    with follow_stream(client, f"/api/runs/{run_id}/events") as events:
        assert "calls" not in [name for _, name, _ in events]
