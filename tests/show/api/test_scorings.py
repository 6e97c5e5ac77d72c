"""Scorings through the API: listed, shown one by one, and one made current."""

from collections.abc import Sequence
from typing import Any

import pytest

from pramana.app.rescoring import ScoringView
from pramana.model import Check, Outcome
from pramana.show.api.envelope import make_documentation_model

from .served import Client
from .test_models import add_run


@pytest.fixture(name="run_id")
def _run_id(client_per_store: Client) -> str:
    """A run of four cases, of which three passed; by its scoring 1 all of them did."""
    assert client_per_store.store
    run_id = add_run(client_per_store.store, ["passed", "passed", "passed", "failed"])
    score_as_passed(client_per_store, run_id, "judged by gpt-5")
    return run_id


def score_as_passed(client: Client, run_id: str, label: str) -> None:
    """Add a scoring by which every result passed."""
    assert client.store
    passed = (Check("llm_judge", "1", Outcome.PASSED, "after all"),)
    with client.store.scorings.begin_rescoring(run_id, label) as scoring:
        scoring.add([(each.key, passed) for _, each in client.store.results.iterate(run_id)])


def count_passed(client: Client, reference: str) -> tuple[Any, ...]:
    """Return how many results passed by the summary, the progress and the list of results of a run."""
    whole = client.get(f"/api/runs/{reference}").data
    short = client.get(f"/api/runs/{reference}?summary=false").data
    listed = client.get(f"/api/runs/{reference}/results?outcome=passed").json["meta"]["total"]
    return whole["summary"]["overall"]["passed"], whole["outcomes"]["passed"], short["outcomes"]["passed"], listed


def current(scorings: Sequence[dict[str, Any]]) -> list[bool]:
    return [each["current"] for each in scorings]


def test_scorings_are_listed_and_each_can_be_shown(client_per_store: Client, run_id: str) -> None:
    found = client_per_store.get(f"/api/runs/{run_id[:12]}/scorings").data
    for each in found:
        make_documentation_model(ScoringView).model_validate(each)
    assert [(each["number"], each["reference"], each["current"]) for each in found] == [
        (0, f"{run_id}@0", False), (1, f"{run_id}@1", True),
    ]  # fmt: skip
    assert [each["models"][0]["outcomes"]["passed"] for each in found] == [3, 4]
    assert found[1]["label"] == "judged by gpt-5"
    assert count_passed(client_per_store, run_id) == count_passed(client_per_store, f"{run_id}@1") == (4,) * 4
    assert count_passed(client_per_store, f"{run_id}@0") == (3,) * 4
    assert [client_per_store.get(f"/api/runs/{run_id}{each}").data["scoring"] for each in ("", "@0")] == [None, 0]
    seq = client_per_store.get(f"/api/runs/{run_id}@0/results?outcome=failed").data[0]["seq"]
    outcomes = [
        client_per_store.get(f"/api/runs/{each}/results/{seq}").data["outcome"] for each in (run_id, f"{run_id}@0")
    ]
    assert outcomes == ["passed", "failed"]
    exported = client_per_store.get(f"/api/runs/{run_id}@0/export").json
    assert exported[0]["run_metadata"]["run_id"] == f"{run_id}@0"


def test_one_scoring_is_current_by_choice_until_the_next_rescoring(client_per_store: Client, run_id: str) -> None:
    assert client_per_store.store
    changes = client_per_store.store.changes.last_number()
    found = client_per_store.post(f"/api/runs/{run_id}/scorings/0/use").data
    assert current(found) == [True, False]
    assert current(client_per_store.get(f"/api/runs/{run_id}/scorings").data) == [True, False]
    assert count_passed(client_per_store, run_id) == (3,) * 4
    assert client_per_store.store.changes.last_number() > changes, "open pages hear of it"
    score_as_passed(client_per_store, run_id, "judged by opus")
    assert current(client_per_store.get(f"/api/runs/{run_id}/scorings").data) == [False, False, True]
    assert count_passed(client_per_store, run_id) == (4,) * 4


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("{run}@7", "the run has no scoring 7; it has 0, 1"),
        ("{run}@first", "is not a scoring; write RUN@1; see GET /api/runs/{run}/scorings"),
        ("nobody/scorings", "there is no run"),
    ],
)
def test_a_scoring_that_does_not_exist_is_refused_with_those_that_do(
    client_per_store: Client, run_id: str, path: str, message: str
) -> None:
    found = client_per_store.get(f"/api/runs/{path.format(run=run_id)}")
    assert found.status == 404
    assert message.format(run=run_id) in found.json["error"]


def test_only_an_existing_scoring_of_a_full_id_becomes_current(client_per_store: Client, run_id: str) -> None:
    for path in (f"{run_id}/scorings/2", f"{run_id[:12]}/scorings/0", "latest/scorings/0", f"{run_id}@1/scorings/0"):
        assert client_per_store.post(f"/api/runs/{path}/use").status == 404
    assert client_per_store.post(f"/api/runs/{run_id}/scorings/-1/use").status == 400
    assert current(client_per_store.get(f"/api/runs/{run_id}/scorings").data) == [False, True]


def test_a_viewer_lists_scorings_and_does_not_choose(secure_client: Client) -> None:
    assert secure_client.store
    run = add_run(secure_client.store, ["passed"])
    viewer, editor = secure_client.with_token("viewer"), secure_client.with_token("editor")
    assert current(viewer.get(f"/api/runs/{run}/scorings").data) == [True]
    assert viewer.post(f"/api/runs/{run}/scorings/0/use").status == 403
    assert editor.post(f"/api/runs/{run}/scorings/0/use").status == 200


def test_two_scorings_of_a_run_are_compared(client_per_store: Client, run_id: str) -> None:
    found = client_per_store.get(f"/api/compare?base={run_id}@0&new={run_id}&anyJudge=true").data
    assert (found["base"], found["new"], found["lost"], found["gained"]) == (f"{run_id}@0", run_id, 0, 1)
