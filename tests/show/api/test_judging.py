"""Labelling over HTTP: the next reply, saved labels, and bad requests."""

from typing import Any

import pytest

from pramana.app.judging import LabellingView, LabelView
from pramana.show.api.envelope import make_documentation_model

from ...judged_runs import add_judged_run
from .served import Client


def test_replies_are_labelled_one_after_the_other(client_per_store: Client) -> None:
    store = client_per_store.store
    assert store
    run = add_judged_run(store, [True, False])
    path, labels = f"/api/runs/{run.id}/labelling?count=2", f"/api/runs/{run.id}/labels"
    seen = []
    while (view := client_per_store.get(path).data)["task"]:
        make_documentation_model(LabellingView).model_validate(view)
        seen.append(view["task"]["task"])
        saved = client_per_store.post(labels, {"task": seen[-1], "label": "unsure", "note": "both"}).data
        make_documentation_model(LabelView).model_validate(saved)
    assert (view["labelled"], view["unsure"], view["drawn"]) == (2, 2, 2)
    assert [each["task"] for each in client_per_store.get(labels).data] == sorted(seen)
    assert client_per_store.get(f"{path}&task={seen[0]}").data["task"]["label"] == "unsure"
    assert client_per_store.post(labels, {"task": seen[0], "label": None}).data is None
    assert client_per_store.get(path).data["task"]["task"] == seen[0]
    assert client_per_store.get(f"{path}&skip={seen[0]}").data["task"] is None


@pytest.mark.parametrize(
    ("value", "status"),
    [
        ({"task": "1.llm_judge"}, 400),
        ({"task": "1.llm_judge", "label": "maybe"}, 400),
        ({"task": "1.llm_judge", "label": "yes", "rater": ""}, 400),
        ({"task": "1.nothing", "label": "yes"}, 404),
        ({"task": f"{10**30}.llm_judge", "label": "yes"}, 400),
    ],
)
def test_invalid_labels_are_refused(client: Client, value: dict[str, Any], status: int) -> None:
    assert client.store
    run = add_judged_run(client.store, [True])
    assert client.post(f"/api/runs/{run.id}/labels", value).status == status
