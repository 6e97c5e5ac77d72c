"""`/api/same` on a real server: a test is queued, executed, listed and read; wrong requests are refused."""

import time
from typing import Any

import pytest

from pramana.app.sameness import SameListView, SameView
from pramana.show.api.envelope import make_documentation_model

from .served import Client


def wait_for_end(client: Client, run: str) -> Any:
    deadline = time.monotonic() + 60
    while (view := client.get(f"/api/same/{run}").data)["status"] in ("queued", "running"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return view


def test_a_test_is_queued_executed_and_read(client_per_store: Client) -> None:
    sent = {"models": ["fake", "fake:seed=1"], "calls": 160, "seed": 1, "name": "hosts"}
    started = client_per_store.post("/api/same", sent)
    assert started.status == 202
    make_documentation_model(SameListView).model_validate(started.data)
    run = started.data["run"]
    view = wait_for_end(client_per_store, run)
    make_documentation_model(SameView).model_validate(view)
    assert (view["status"], view["models"], view["maxCalls"]) == ("finished", ["fake", "fake:seed=1"], 160)
    assert view["decision"] == "different"
    assert view["calls"] <= 160
    (listed,) = client_per_store.get("/api/same").data
    assert (listed["run"], listed["name"], listed["calls"]) == (run, "hosts", view["calls"])
    assert client_per_store.get(f"/api/runs/{run}").data["expected"] == 160
    assert client_per_store.get("/api/runs").data[0]["isEndpointTest"] is True
    history = client_per_store.get("/api/models/history?model=fake").data
    assert (history["runs"], history["days"]) == ([], []), "a test of two endpoints has no pass rate to compare"


def test_any_run_of_two_models_can_be_read(client: Client) -> None:
    run = client.post("/api/runs", {"models": ["fake", "fake:echo", "fake:seed=2"], "tier": "cheap", "repeats": 3}).data
    deadline = time.monotonic() + 60
    while client.get(f"/api/runs/{run['id']}").data["status"] != "finished":
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "name them" in client.get(f"/api/same/{run['id']}").error
    view = client.get(f"/api/same/{run['id']}?modelA=fake&modelB=fake:echo").data
    assert view["pairs"] == 30
    assert "by lot" in view["caveats"][0]
    assert client.get(f"/api/same/{run['id']}?modelA=fake").status == 400
    assert client.get(f"/api/same/{run['id']}?modelA=fake&modelB=gpt").status == 400
    assert client.get("/api/same").data == []


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        ({}, 400),
        ({"models": ["fake"]}, 400),
        ({"models": ["fake", "fake", "fake"]}, 400),
        ({"models": ["fake", "fake"], "calls": 1}, 400),
        ({"models": ["fake", "fake"], "calls": "many"}, 400),
        ({"models": ["fake", "fake"], "temperature": -1}, 400),
        ({"models": ["fake", "fake"], "prompts": 1000}, 400),
        ({"models": ["fake", "fake"], "paths": ["/etc/passwd"]}, 400),
        ({"models": ["fake", "python:os:getcwd"]}, 400),
        ({"models": ["fake", "fake"], "tier": "nope"}, 404),
        ({"models": ["fake", "fake"], "limits": {"maxCost": -1}}, 400),
        ("nonsense", 400),
    ],
)
def test_wrong_requests_are_refused(client: Client, sent: Any, status: int) -> None:
    answer = client.post("/api/same", sent)
    assert answer.status == status, answer.body
    assert client.get("/api/same").data == []
