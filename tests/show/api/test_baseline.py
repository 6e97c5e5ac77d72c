"""`GET /api/runs/{id}/baseline`: a run that has ended, checked against an earlier one as a build does it."""

import pytest

from pramana.app.baselines import BaselineCheckView
from pramana.show.api.envelope import make_documentation_model
from pramana.store.store import Store

from .served import Client
from .test_models import add_run
from .test_runs import start_run

SHAPE = make_documentation_model(BaselineCheckView)
GOOD, BAD = ["passed"] * 12, ["failed"] * 9 + ["passed"] * 3


@pytest.fixture
def store(client: Client) -> Store:
    assert client.serving
    return client.serving.store


def test_a_run_is_checked_against_a_named_baseline(client: Client, store: Store) -> None:
    base, new = add_run(store, GOOD), add_run(store, BAD)
    assert client.patch(f"/api/runs/{base}", {"name": "main"}).status == 200
    found = client.get(f"/api/runs/{new}/baseline?baseline=main").data
    SHAPE.model_validate(found)
    (model,) = found["models"]
    assert (found["run"], found["baseline"], found["passed"], found["exitCode"]) == (new, base, False, 1)
    assert (model["model"], model["exitCode"], model["comparison"]["verdict"]) == ("fake", 1, "regression")
    assert (model["comparison"]["lost"], len(model["comparison"]["flips"])) == (9, 9)
    assert (found["decidedTogether"], model["confidence"]) == (None, 0.95)
    assert model["adjustedPValue"] == model["comparison"]["pValue"] == 1 / 256
    relaxed = client.get(f"/api/runs/{new}/baseline?baseline=main&margin=100").data
    assert (relaxed["passed"], relaxed["exitCode"], relaxed["models"][0]["comparison"]["margin"]) == (True, 0, 100)
    strict = client.get(f"/api/runs/{base}/baseline?baseline={new}&failOn=inconclusive&margin=0.5").data
    assert strict["exitCode"] == (0 if strict["models"][0]["comparison"]["lossExcluded"] else 4)


def test_errored_results_are_exit_code_3(client: Client, store: Store) -> None:
    base, new = add_run(store, GOOD), add_run(store, [*GOOD[1:], "errored"])
    found = client.get(f"/api/runs/{new}/baseline?baseline={base}").data
    assert (found["exitCode"], found["passed"]) == (3, False)
    assert found["incomplete"] == "The run is incomplete: 1 result errored."
    assert found["models"][0]["exitCode"] == 0


def test_a_check_is_computed_again_when_the_baseline_is_another_run(client: Client, store: Store) -> None:
    first, second, new = add_run(store, GOOD), add_run(store, BAD), add_run(store, BAD)
    client.patch(f"/api/runs/{first}", {"name": "main"})
    assert client.get(f"/api/runs/{new}/baseline?baseline=main").data["exitCode"] == 1
    later = add_run(store, BAD)
    client.patch(f"/api/runs/{later}", {"name": "main"})
    found = client.get(f"/api/runs/{new}/baseline?baseline=main").data
    assert (found["baseline"], found["exitCode"]) == (first, 1)  # a run that began after the checked one never counts
    client.patch(f"/api/runs/{second}", {"name": "main"})
    found = client.get(f"/api/runs/{new}/baseline?baseline=main").data
    assert (found["baseline"], found["exitCode"]) == (second, 0)


def test_an_unsuitable_baseline_or_run_is_refused(client: Client, store: Store) -> None:
    few, new = add_run(store, GOOD[:5]), add_run(store, GOOD)
    for query, status, message in (
        (f"baseline={few}", 400, "does not have the cases of this run"),
        (f"baseline={new}", 400, "is this run itself"),
        ("baseline=nowhere", 404, "there is no run"),
        ("baseline=/etc/passwd.json", 404, "there is no run"),  # never a file of the server
        ("", 400, "baseline"),
        (f"baseline={few}&margin=101", 400, "margin"),
        (f"baseline={few}&failOn=all", 400, "failOn"),
    ):
        answer = client.get(f"/api/runs/{new}/baseline?{query}")
        assert answer.status == status, (query, answer.json)
        assert message in str(answer.json), query
    running = start_run(client, models=["fake:latency=5,echo"])
    answer = client.get(f"/api/runs/{running}/baseline?baseline={new}")
    assert (answer.status, answer.json["code"]) == (409, "conflict")
    assert "still under way" in answer.json["error"]
    client.post(f"/api/runs/{running}/cancel")
