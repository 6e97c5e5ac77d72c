"""`/api/compare`: two runs of the store, paired case by case."""

from typing import Any

import pytest

from pramana.show.api import compare
from pramana.show.api.compare import ComparisonShape
from pramana.show.comparing import compared
from pramana.store.runs import Store

from .served import Client
from .test_runs import SCENARIOS, ended, started


def test_two_runs_are_compared_with_the_interval_of_the_difference(either: Client) -> None:
    base = started(either, models=["fake:fixed=tungsten SIGKILL"], judge="fake:fixed=YES")
    new = started(either, models=["fake:fixed=Ben"], judge="fake:fixed=YES")
    for each in (base, new):
        ended(either, each)
    found = either.get(f"/api/compare?base={base}&new={new}&pageSize=1")
    data = found.data
    ComparisonShape.model_validate(data)
    assert (data["base"], data["new"]) == (base, new)
    low, high = data["interval"]
    assert low <= data["difference"] <= high
    assert data["difference"] == pytest.approx(data["newRate"] - data["baseRate"])
    total = data["lost"] + data["gained"]
    assert (data["lost"], data["gained"]) == (2, 1)
    assert found.json["meta"] == {"page": 1, "pageSize": 1, "total": total, "totalPages": total}
    flips = [
        flip
        for page in range(1, total + 1)
        for flip in either.get(f"/api/compare?base={base}&new={new}&pageSize=1&page={page}").data["flips"]
    ]
    assert len({flip["case"] for flip in flips}) == total
    assert [flip["direction"] for flip in flips] == ["lost"] * data["lost"] + ["gained"] * data["gained"]


def test_what_was_not_asked_the_same_is_compared_only_when_that_is_wanted(client: Client) -> None:
    client.post("/api/scenarios/import", {"yaml": SCENARIOS, "mode": "skip"})
    base = started(client)
    new = client.post("/api/runs", {"scenarios": "all", "models": ["fake:echo"]}).data["id"]
    for each in (base, new):
        ended(client, each)
    refused = client.get(f"/api/compare?base={base}&new={new}")
    assert (refused.status, "anySuite=true" in refused.error) == (400, True)
    anyway = client.get(f"/api/compare?base={base}&new={new}&anySuite=true").data
    assert (anyway["pairs"], anyway["verdict"], anyway["onlyNew"]["count"]) == (0, "inconclusive", 2)
    assert client.get(f"/api/compare?base={base}&new=r0").status == 404
    assert client.get(f"/api/compare?base={base}").status == 400


def test_of_runs_with_several_models_one_is_named(client: Client) -> None:
    run = started(client, models=["fake:echo", "fake:fixed=Paris"])
    ended(client, run)
    assert client.get(f"/api/compare?base={run}&new={run}").status == 400
    found = client.get(f"/api/compare?base={run}&new={run}&model=fake:echo&newModel=fake:echo").data
    assert found["verdict"] == "no_change"
    assert found["lost"] == found["gained"] == 0


def test_pages_of_one_comparison_are_worked_out_once_until_a_run_is_judged_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    base, new = started(client), started(client)
    for each in (base, new):
        ended(client, each)
    worked_out, weigh = [], compared

    def watched(*given: Any, **options: Any) -> Any:
        worked_out.append(given)
        return weigh(*given, **options)

    monkeypatch.setattr(compare, "compared", watched)
    address = f"/api/compare?base={base}&new={new}"
    first = client.get(address).data
    assert client.get(f"{address}&pageSize=1&page=1").data["sentence"] == first["sentence"]
    assert len(worked_out) == 1
    client.get(f"{address}&anyJudge=true")
    client.get(f"/api/compare?base={new}&new={base}")
    assert len(worked_out) == 3
    scorings = Store.scorings
    monkeypatch.setattr(Store, "scorings", lambda self, run: {**scorings(self, run), 1: "again"})
    client.get(address)
    assert len(worked_out) == 4
