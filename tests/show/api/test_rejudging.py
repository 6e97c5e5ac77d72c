"""Position bias over HTTP: what it takes, the job in the background, its verdicts in the report, and refusals."""

import threading
from typing import Any

import pytest

from pramana.app.rejudging import RejudgingView
from pramana.model import Run
from pramana.show.api.envelope import make_documentation_model

from ...judged_runs import add_judged_run, evaluate_with_judge
from .served import Client


def wait_for_job(run: Run) -> None:
    for each in threading.enumerate():
        if each.name == f"rejudge {run.id}":
            each.join(30)


def test_position_bias_is_measured_in_the_background_and_shown_in_the_report(client: Client) -> None:
    assert client.store
    run = evaluate_with_judge(client.store, "fake:fixed=YES")
    path = f"/api/runs/{run.id}/rejudging"
    plan = client.get(f"{path}?count=2&criterionLast=true").data
    make_documentation_model(RejudgingView).model_validate(plan)
    assert (plan["calls"], plan["drawn"], plan["judged"], plan["stored"], plan["job"]) == (6, 2, 3, 0, None)
    assert client.get(f"/api/runs/{run.id}/judge-report").data["judges"][0]["positionBias"] is None, "nothing was sent"

    started = client.post(path, {"count": 2, "limits": {"maxCost": 1}})
    assert started.status == 202
    make_documentation_model(RejudgingView).model_validate(started.data)
    assert (started.data["calls"], started.data["job"]["questions"]) == (4, 4)
    wait_for_job(run)
    after = client.get(path).data
    assert (after["stored"], after["calls"]) == (4, 2)
    assert (after["job"]["status"], after["job"]["answered"], after["job"]["unanswered"]) == ("finished", 4, 0)
    bias = client.get(f"/api/runs/{run.id}/judge-report").data["judges"][0]["positionBias"]
    assert (bias["replies"], bias["effects"][0]["changes"]["order"]) == (2, "answers-swapped")

    again = client.post(path, {"count": 2})
    assert (again.status, again.data["calls"]) == (202, 0), "verdicts that are stored are not asked for again"
    assert client.post(f"{path}/stop").data["job"]["status"] == "finished"


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"count": 0}, "count"),
        ({"count": 10**9}, "count"),
        ({"count": "many"}, "count"),
        ({"limits": {"maxCost": -1}}, "maxCost"),
        ({"order": "usual"}, "order"),
    ],
)
def test_invalid_requests_name_their_field(client: Client, body: dict[str, Any], error: str) -> None:
    assert client.store
    run = add_judged_run(client.store, [True])
    refused = client.post(f"/api/runs/{run.id}/rejudging", body)
    assert refused.status == 400
    assert error in str(refused.json)


def test_judges_that_the_server_may_not_or_cannot_ask_are_refused_before_anything_is_sent(client: Client) -> None:
    assert client.store
    assert client.serving
    code = evaluate_with_judge(client.store, "python:operator:not_", 1)
    unpriced = add_judged_run(client.store, [True], judge="openai:a-model-without-price")
    for run, body in ((code, {}), (unpriced, {"limits": {"maxCost": 1}})):
        refused = client.post(f"/api/runs/{run.id}/rejudging", body)
        assert refused.status == 400, refused.body
        assert client.serving.rejudging_jobs.status(run.id) is None
    assert client.post("/api/runs/unknown/rejudging").status == 404
    assert client.post("/api/runs/latest/rejudging").status == 404, "another run may be the latest by then"
    client.serving.api_only = True
    run = evaluate_with_judge(client.store, "fake:fixed=YES")
    refused = client.post(f"/api/runs/{run.id}/rejudging")
    assert (refused.status, f"pramana judge swap {run.id}" in refused.error) == (409, True)


def test_a_viewer_reads_what_it_takes_and_an_editor_starts_it(secure_client: Client) -> None:
    assert secure_client.store
    run = evaluate_with_judge(secure_client.store, "fake:fixed=YES")
    path = f"/api/runs/{run.id}/rejudging"
    viewer, editor = secure_client.with_token("viewer"), secure_client.with_token("editor")
    assert secure_client.get(path).status == 401
    assert viewer.get(path).status == 200
    assert (viewer.post(path).status, viewer.post(f"{path}/stop").status) == (403, 403)
    assert editor.post(path).status == 202
    wait_for_job(run)
    assert viewer.get(path).data["job"]["status"] == "finished"
