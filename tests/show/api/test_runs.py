"""Runs through the API: created, executed in the background, shown, cancelled, resumed, deleted and exported."""

import asyncio
import csv
import hashlib
import io
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
import pytest

from pramana.analyse.mean_bounds import rate_interval
from pramana.app.views import EstimateView, ResultDetailView, ResultView, RunDetailView, RunView
from pramana.bench import add_scoring_to_run
from pramana.hash import hash_case
from pramana.model import Case, Check, Outcome, Result
from pramana.request import Limits
from pramana.show.api.envelope import make_documentation_model
from pramana.store.store import Store

from .served import Client, serve
from .test_models import add_run, make_case

SCENARIOS = """
version: "1.0"
scenarios:
  - id: book-a-table
    name: Book a table
    type: task-completion
    prompt: Book me a table for two at eight, please.
    expected_outcome: The table is booked.
    tags: [domain:food]
  - id: opening-hours
    name: Opening hours
    type: information-retrieval
    prompt: When do you open?
    expected_outcome: The agent tells the hours.
    difficulty: easy
"""


def wait_for_run(client: Client, run_id: str, within: float = 20.0) -> Any:
    """Wait until a run has ended; return it."""
    deadline = time.monotonic() + within
    while True:
        found = client.get(f"/api/runs/{run_id}").data
        if found["status"] not in ("queued", "running"):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def copy_runs(store: Store, number: int) -> None:
    """Store copies of the first run with the same results; on SQLite with direct SQL statements."""
    from sqlalchemy import text

    from pramana.store.schema import results, run_cases, run_models, runs, scorings

    with store._database.write_transaction() as connection:
        first, last = connection.execute(text("SELECT min(run_no), max(run_no) FROM runs")).one()
        places = (
            "WITH RECURSIVE places(place) AS (VALUES(:start) UNION ALL SELECT place + 1 FROM places WHERE place < :end)"
        )
        for table in (runs, run_models, scorings, run_cases, results):
            new = {"run_no": "place", "id": "printf('copy-%07d', place)"} if table is runs else {"run_no": "place"}
            names = [column.name for column in table.columns if column.name != "seq"]
            values = ", ".join(new.get(name, name) for name in names)
            statement = f"INSERT INTO {table.name} ({', '.join(names)}) {places} SELECT {values} FROM {table.name}, places WHERE run_no = :first"  # noqa: S608
            connection.execute(text(statement), {"start": last + 1, "end": last + number, "first": first})


def _rate_interval(passed: float, total: float) -> list[float]:
    found = rate_interval(passed, total)
    return [found.low, found.high]


def start_run(client: Client, **body: Any) -> str:
    found = client.post("/api/runs", {"tier": "cheap", "models": ["fake:echo"], **body})
    assert found.status == 202, found.body
    make_documentation_model(RunView).model_validate(found.data)
    run_id: str = found.data["id"]
    return run_id


def test_a_run_executes_in_the_background_and_returns_every_detail(client_per_store: Client) -> None:
    run_id = start_run(
        client_per_store, models=["fake:echo", "fake:latency=0.01"], repeats=2, limits={"concurrency": 4}
    )
    done = wait_for_run(client_per_store, run_id)
    make_documentation_model(RunDetailView).model_validate(done)
    assert (done["status"], done["stored"], done["expected"], done["owner"]) == ("finished", 40, 40, "server")
    assert (done["suite"], done["creator"], done["limits"]["concurrency"]) == ("v1.0-cheap", "local", 4)
    assert done["summary"]["overall"]["total"] == 40
    assert len(done["summary"]["overall"]["interval"]) == 2
    assert done["summary"]["by"]["model"].keys() == {"fake:echo", "fake:latency=0.01"}
    latency = done["aggregates"]["latencySeconds"]
    assert latency["overall"].keys() == {
        "count", "mean", "median", "p95", "p95AtMost", "standardDeviation", "min", "max",
    }  # fmt: skip
    assert (latency["overall"]["count"], latency["byProvider"]["fake"]["count"]) == (40, 40)
    slow = latency["byModel"]["fake:latency=0.01"]
    assert slow["count"] == 20
    assert 0.01 <= slow["min"] <= slow["median"] <= slow["p95"] <= slow["max"]
    assert done["aggregates"]["voiceToVoiceSeconds"] is None
    short = client_per_store.get(f"/api/runs/{run_id}?summary=false").data
    assert short == {**done, "judges": None, "summary": None, "aggregates": None}
    overall = done["summary"]["overall"]
    assert done["outcomes"] == {name: overall[name] for name in ("passed", "failed", "errored", "unscored", "skipped")}
    assert (done["passRate"], done["interval"]) == (overall["passRate"], overall["interval"])
    assert done["interval"] is not None
    (listed,) = client_per_store.get("/api/runs?outcomes=true").data
    assert {name: done[name] for name in listed} == listed


def test_the_judge_is_named_also_after_a_rescoring(client_per_store: Client) -> None:
    assert client_per_store.store
    run_id = wait_for_run(client_per_store, start_run(client_per_store, models=["fake:fixed=YES"]))["id"]
    before = client_per_store.get(f"/api/runs/{run_id}").data
    assert (before["judge"], before["judges"]) == (None, ["fake:fixed=YES"])
    assert before["summary"]["judgedBy"] == "Judged by its own model, uncalibrated."
    asyncio.run(
        add_scoring_to_run(client_per_store.store, client_per_store.store.runs.find(run_id), "fake:fixed=NO", Limits())
    )
    after = client_per_store.get(f"/api/runs/{run_id}").data
    make_documentation_model(RunDetailView).model_validate(after)
    assert (after["judge"], after["judges"]) == (None, ["fake:fixed=NO"])
    assert after["summary"]["judgedBy"] == "Judged by fake:fixed=NO, uncalibrated."


def test_results_are_paginated_and_filtered_and_each_has_full_details(client_per_store: Client) -> None:
    run_id = start_run(client_per_store, systemPrompt="Be brief.")
    wait_for_run(client_per_store, run_id)
    first = client_per_store.get(f"/api/runs/{run_id}/results?pageSize=4")
    assert first.json["meta"] == {"page": 1, "pageSize": 4, "total": 10, "totalPages": 3}
    last = client_per_store.get(f"/api/runs/{run_id}/results?page=3&pageSize=4").data
    assert (len(first.data), len(last)) == (4, 2)
    rows = client_per_store.get(f"/api/runs/{run_id}/results").data
    for row in rows:
        make_documentation_model(ResultView).model_validate(row)
    assert [row["seq"] for row in rows] == sorted(row["seq"] for row in rows)
    for outcome in ("passed", "failed", "unscored"):
        found = client_per_store.get(f"/api/runs/{run_id}/results?outcome={outcome}")
        assert found.data == [row for row in rows if row["outcome"] == outcome]
        assert found.json["meta"]["total"] == len(found.data)
    one = rows[3]
    assert client_per_store.get(f"/api/runs/{run_id}/results?case={one['caseId']}").data == [one]
    assert client_per_store.get(f"/api/runs/{run_id}/results?case={one['caseDigest']}&model=fake:echo").data == [one]
    assert client_per_store.get(f"/api/runs/{run_id}/results?model=other").data == []
    whole = client_per_store.get(f"/api/runs/{run_id}/results/{one['seq']}").data
    make_documentation_model(ResultDetailView).model_validate(whole)
    assert (whole["systemPrompt"], whole["caseId"]) == ("Be brief.", one["caseId"])
    assert whole["case"]["turns"][0]["text"] == whole["reply"]["text"]
    assert whole["reply"]["raw"] is not None
    assert whole["checks"][0].keys() == {
        "name", "version", "outcome", "reason", "value", "evidence", "decides", "rubricScores",
    }  # fmt: skip
    assert whole["audio"] is None
    assert client_per_store.get(f"/api/runs/{run_id}/results/999999").status == 404
    assert client_per_store.get("/api/runs/r0/results").status == 404


def test_runs_are_listed_newest_first_and_filtered(client_per_store: Client) -> None:
    first = start_run(client_per_store)
    second = start_run(client_per_store, models=["fake", "fake:tokens=2"], judge="fake:fixed=YES")
    for run_id in (first, second):
        wait_for_run(client_per_store, run_id)
    found = client_per_store.get("/api/runs")
    assert [each["id"] for each in found.data] == [second, first]
    assert found.json["meta"]["total"] == 2
    for query, ids in (
        ("status=finished", [second, first]),
        ("status=queued", []),
        ("model=fake:tokens=2", [second]),
        ("model=fake", [second]),
        ("model=fake:fixed=YES", []),  # a judge is not a model of the run
        ("suite=v1.0", [second, first]),
        ("suite=v1%25", []),
        ("text=FIXED", [second]),
        (f"text={first}", [first]),
        ("pageSize=1&page=2", [first]),
    ):
        assert [each["id"] for each in client_per_store.get(f"/api/runs?{query}").data] == ids, query


def test_a_list_includes_outcomes_on_request(client_per_store: Client) -> None:
    assert client_per_store.store
    one = add_run(client_per_store.store, ["passed"] * 7 + ["failed"] * 2 + ["errored"])
    twice = add_run(client_per_store.store, ["passed", "passed", "failed", "failed"], repeats=2)
    two = start_run(client_per_store, models=["fake:echo", "fake:rejected=1"], judge="fake:fixed=YES", repeats=2)
    wait_for_run(client_per_store, two)
    plain = client_per_store.get("/api/runs").data
    assert {(each["outcomes"], each["passRate"], each["interval"]) for each in plain} == {(None, None, None)}
    listed = client_per_store.get("/api/runs?outcomes=true").data
    for each in listed:
        make_documentation_model(RunView).model_validate(each)
    found = {each["id"]: each for each in listed}
    assert found[one]["outcomes"] == {"passed": 7, "failed": 2, "errored": 1, "unscored": 0, "skipped": 0}
    assert (found[one]["passRate"], found[one]["interval"]) == (7 / 9, _rate_interval(7, 9))
    assert (found[twice]["passRate"], found[twice]["interval"]) == (0.5, _rate_interval(1, 2))  # two cases, two repeats
    for run_id in (one, twice, two):  # a list and a page of its run never differ
        overall = client_per_store.get(f"/api/runs/{run_id}").data["summary"]["overall"]
        assert found[run_id]["passRate"] == overall["passRate"]
        assert found[run_id]["interval"] == overall["interval"]
        assert found[run_id]["outcomes"] == {name: overall[name] for name in found[run_id]["outcomes"]}
    assert found[two]["outcomes"]["errored"] == 20


def test_listed_outcomes_follow_new_results_and_rescorings(client_per_store: Client) -> None:
    assert client_per_store.store
    made = [
        result
        for _, result in client_per_store.store.results.iterate(
            add_run(client_per_store.store, ["passed", "failed"] * 3)
        )
    ]
    run = client_per_store.store.runs.create(
        client_per_store.store.runs.find("latest").plan, [make_case(number) for number in range(6)]
    )

    def read_listed() -> Any:
        (found,) = client_per_store.get(f"/api/runs?outcomes=true&text={run.id}").data
        return found["stored"], found["outcomes"]["passed"], found["outcomes"]["failed"], found["passRate"]

    async def write(some: Sequence[Result]) -> None:
        assert client_per_store.store
        async with client_per_store.store.results.make_writer(run.id, lambda _: None) as writer:
            await writer.put(some)

    assert read_listed() == (0, 0, 0, None)
    for until, amounts in ((1, (1, 1, 0, 1.0)), (2, (2, 1, 1, 0.5)), (6, (6, 3, 3, 0.5))):
        asyncio.run(write(made[:until][-4:]))
        assert read_listed() == amounts
        assert read_listed() == amounts
    passed = (Check("llm_judge", "1", Outcome.PASSED, "after all"),)
    with client_per_store.store.scorings.begin_rescoring(run.id, "again") as scoring:
        scoring.add([(each.key, passed) for each in made[:2]])
        assert read_listed() == (6, 3, 3, 0.5)  # not finished yet
    assert read_listed() == (6, 4, 2, 4 / 6)


def test_runs_of_the_same_cases_have_the_same_digest_for_any_model(client_per_store: Client) -> None:
    assert client_per_store.store
    first = add_run(client_per_store.store, ["passed"] * 3)
    other = add_run(client_per_store.store, ["failed"] * 6, model="other", repeats=2)
    more = add_run(client_per_store.store, ["passed"] * 4)
    plan = client_per_store.store.runs.find(first).plan
    turned = client_per_store.store.runs.create(plan, [make_case(number) for number in (2, 0, 1)]).id

    def list_digests(query: str) -> dict[str, Any]:
        return {each["id"]: each["casesDigest"] for each in client_per_store.get(f"/api/runs{query}").data}

    found = list_digests("?outcomes=true")
    assert found[first] == found[other] == found[turned]
    assert found[first] != found[more]
    assert found[first] == cases_digest([make_case(number) for number in range(3)])
    assert set(list_digests("").values()) == {None}
    assert client_per_store.get(f"/api/runs/{more}?summary=false").data["casesDigest"] == found[more]
    points = client_per_store.get("/api/models/history?model=fake").data["runs"]
    assert {each["run"]: each["casesDigest"] for each in points} == {first: found[first], more: found[more]}
    client_per_store.store.runs.delete(more)
    assert list_digests("?outcomes=true") == {name: digest for name, digest in found.items() if name != more}


def cases_digest(some: Sequence[Case]) -> str:
    return "sha256:" + hashlib.sha256("".join(sorted(map(hash_case, some))).encode()).hexdigest()


def test_the_case_digests_of_500_runs_are_read_quickly_and_once(client: Client) -> None:
    assert client.store
    add_run(client.store, ["passed"] * 200)
    copy_runs(client.store, 499)
    of = client.store.runs.read_page(limit=500)[0]
    times = []
    for _ in range(2):
        began = time.thread_time()
        assert set(client.store.history.hash_cases(of)) == {cases_digest([make_case(number) for number in range(200)])}
        times.append(time.thread_time() - began)
    assert times[0] < 2
    assert times[1] < 0.05


def test_listing_10000_runs_is_about_as_fast_as_listing_100(client: Client, tmp_path: Path) -> None:
    wanted = ("", "&page=2", "&status=finished", "&model=fake", "&suite=mine", "&text=mine")
    with serve(f"sqlite:///{tmp_path / 'many.sqlite3'}") as other:
        for each, more in ((client, 99), (other, 9_999)):
            assert each.store
            add_run(each.store, ["passed"] * 7 + ["failed"] * 2 + ["errored"])
            copy_runs(each.store, more)
        assert other.get("/api/runs?outcomes=true").json["meta"]["total"] == 10_000
        for filters in wanted:
            few, many = times = list[float](), list[float]()
            for _ in range(9):  # alternating, so that other load slows both
                for each, taken in zip((client, other), times, strict=True):
                    began = time.perf_counter()
                    assert len(each.get(f"/api/runs?outcomes=true{filters}").data) == 50
                    taken.append(time.perf_counter() - began)
            # A filtered list counts all matches, which takes some milliseconds more.
            allowed = 1.5 * sorted(few)[4] + (0.01 if filters in ("", "&page=2") else 0.1)
            assert sorted(many)[4] < allowed, (filters, allowed)


def test_a_dry_run_estimates_and_stores_nothing(client: Client) -> None:
    found = client.post(
        "/api/runs",
        {"tier": "cheap", "models": ["fake", "gpt-5", "http://127.0.0.1:9/v1#mine"], "repeats": 3, "dryRun": True},
    )
    assert found.status == 200
    make_documentation_model(EstimateView).model_validate(found.data)
    shares = {(each["purpose"], each["model"]): each for each in found.data["shares"]}
    assert (found.data["cases"], found.data["results"]) == (10, 90)
    assert shares["model", "gpt-5"]["calls"] == 30
    assert shares["model", "gpt-5"]["costUsd"] > 0
    assert shares["model", "fake"]["costUsd"] == 0
    assert (found.data["costUsd"], found.data["unknownPrices"]) == (None, ["http://127.0.0.1:9/v1#mine"])
    assert found.data["calls"] == sum(each["calls"] for each in found.data["shares"])
    assert client.get("/api/runs").data == []


def estimate(client: Client, *models: str, **body: Any) -> Any:
    found = client.post("/api/runs", {"tier": "cheap", "models": list(models), "dryRun": True, **body})
    assert found.status == 200, found.body
    make_documentation_model(EstimateView).model_validate(found.data)
    return found.data


def test_an_estimate_lists_cases_without_a_verdict(client: Client) -> None:
    for model in ("local", "fake-voice"):
        alone = estimate(client, model)
        assert (alone["calls"], [each["purpose"] for each in alone["shares"]]) == (10, ["model"])
        assert alone["unjudged"] == [{"model": model, "cases": 2}]
        assert alone["warnings"] == ["2 cases will have no verdict: name a judge"]
    judged = estimate(client, "local", judge="fake")
    assert (judged["calls"], judged["unjudged"], judged["warnings"]) == (12, [], [])


def test_an_estimate_lists_providers_without_a_key(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    found = estimate(client, "gpt-5", "openai:gpt-5-mini", "fake", judge="opus")
    assert found["missingKeys"] == ["openai", "anthropic"]
    assert found["warnings"] == [
        "no API key is set for openai on this machine: set the key in Settings › Providers or OPENAI_API_KEY",
        "no API key is set for anthropic on this machine: set the key in Settings › Providers or ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN",
    ]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    found = estimate(client, "gpt-5", "http://127.0.0.1:9/v1#mine")
    assert (found["missingKeys"], found["warnings"]) == ([], [])
    monkeypatch.delenv("OPENAI_API_KEY")
    mine = {"id": "mine", "kind": "openai"}
    assert client.post("/api/providers", mine).status in (200, 201)
    assert estimate(client, "mine:gpt-5")["warnings"] == [
        "no API key is set for mine on this machine: set the key in Settings › Providers"
    ]


def test_stored_scenarios_can_be_run_by_id_by_filter_or_all(client: Client) -> None:
    assert client.post("/api/runs", {"scenarios": "all", "models": ["fake"]}).status == 400
    assert client.post("/api/scenarios/import", {"yaml": SCENARIOS, "mode": "skip"}).status == 201
    for chosen, ids, suite in (
        ("all", ["book-a-table", "opening-hours"], "scenarios"),
        (["opening-hours"], ["opening-hours"], "scenarios (selection)"),
        ({"type": "task-completion", "tag": "domain:food"}, ["book-a-table"], "scenarios (selection)"),
        ({"difficulty": ["easy", "hard"], "text": "OPEN"}, ["opening-hours"], "scenarios (selection)"),
    ):
        found = client.post("/api/runs", {"scenarios": chosen, "models": ["fake"], "judge": "fake:fixed=YES"})
        done = wait_for_run(client, found.data["id"])
        assert (done["suite"], done["suiteHash"]) == (suite, None)
        assert sorted(each["caseId"] for each in client.get(f"/api/runs/{done['id']}/results").data) == ids
    both = client.post("/api/runs", {"tier": "cheap", "scenarios": "all", "models": ["fake"], "dryRun": True})
    assert both.data["cases"] == 12
    unknown = client.post("/api/runs", {"scenarios": ["opening-hours", "nobody"], "models": ["fake"]})
    assert (unknown.status, unknown.error) == (404, 'there is no scenario "nobody"; see GET /api/scenarios')
    none = client.post("/api/runs", {"scenarios": {"text": "nothing holds this"}, "models": ["fake"]})
    assert (none.status, "no scenario matches these filters" in none.error) == (400, True)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"models": ["fake"]}, "no cases were chosen; name a suite"),
        ({"tier": "cheap"}, "models"),
        ({"tier": "cheap", "models": []}, "models"),
        ({"tier": "cheap", "models": ["python:os:getcwd"]}, "python:os:getcwd"),
        ({"tier": "cheap", "models": ["command:mine"]}, "command:mine"),
        ({"tier": "cheap", "models": ["websocket:/etc/passwd"]}, "websocket:/etc/passwd"),
        ({"tier": "cheap", "models": ["fake"], "judge": "python:os:getcwd"}, "python:os:getcwd"),
        ({"tier": "cheap", "models": ["fake"], "scorers": ["python:os:getcwd"]}, "python:os:getcwd"),
        ({"tier": "cheap", "models": ["fake"], "scorers": ["nowhere"]}, 'no scorer is named "nowhere"'),
        ({"tier": "cheap", "models": ["fake", "fake"]}, "the same model is named twice"),
        ({"tier": "cheap", "models": ["fake"], "modality": "vioce"}, 'did you mean "voice"'),
        ({"tier": "cheap", "models": ["fake"], "repeats": 0}, "repeats"),
        ({"tier": "cheap", "models": ["fake"], "limits": {"maxCost": -1}}, "limits.maxCost"),
        ({"tier": "cheap", "models": ["fake"], "unknown": 1}, "unknown"),
        ({"scenarios": [], "models": ["fake"]}, "scenarios is an empty list"),
        ({"scenarios": {"ids": []}, "models": ["fake"]}, "scenarios: ids is empty: no case would run; leave it out"),
        ({"scenarios": {"allTags": [], "text": "x"}, "models": ["fake"]}, "scenarios: allTags is empty"),
        ({"scenarios": {"type": []}, "models": ["fake"]}, "scenarios: type is empty"),
    ],
)
def test_an_invalid_run_is_refused_with_the_reason(client: Client, body: dict[str, Any], message: str) -> None:
    found = client.post("/api/runs", body)
    assert found.status == 400
    assert message in found.error
    assert client.get("/api/runs").data == []


def test_the_size_of_parameters_is_limited(client: Client) -> None:
    found = client.post("/api/runs", {"suite": "v1.0", "models": ["fake:echo"], "parameters": {"x": "y" * 64_000}})
    assert (found.status, "at most 64,000 are allowed" in found.error) == (400, True)


def test_nan_and_infinity_are_refused(client: Client) -> None:
    body = b'{"tier": "cheap", "models": ["fake"], "parameters": {"x": NaN}}'
    found = client.post("/api/runs", body=body, headers={"Content-Type": "application/json"})
    assert (found.status, "JSON does not allow" in found.error) == (400, True)


def test_a_run_that_cannot_start_is_kept_with_its_reason(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    run_id = start_run(client, models=["gpt-5"])
    done = wait_for_run(client, run_id)
    assert (done["status"], done["reason"]) == ("stopped", "openai needs an API key; set OPENAI_API_KEY")
    unpriced = start_run(client, models=["http://127.0.0.1:9/v1#mine"], limits={"maxCost": 1})
    assert "a cost limit needs a price" in wait_for_run(client, unpriced)["reason"]


def test_a_cancelled_run_ends_within_seconds_and_can_be_resumed(client_per_store: Client) -> None:
    run_id = start_run(client_per_store, models=["fake:latency=0.3"], repeats=20, limits={"concurrency": 1})
    while not client_per_store.get(f"/api/runs/{run_id}").data["stored"]:
        time.sleep(0.05)
    assert client_per_store.delete(f"/api/runs/{run_id}").status == 409
    assert client_per_store.post(f"/api/runs/{run_id}/resume").status == 409
    began = time.monotonic()
    assert client_per_store.post(f"/api/runs/{run_id}/cancel").data["cancelRequested"] is True
    done = wait_for_run(client_per_store, run_id)
    assert time.monotonic() - began < 4
    assert (done["status"], done["reason"]) == ("cancelled", "cancelled on request")
    assert 0 < done["stored"] < done["expected"]
    assert client_per_store.post(f"/api/runs/{run_id}/cancel").status == 409
    again = client_per_store.post(f"/api/runs/{run_id}/resume", {"limits": {"concurrency": 100}})
    assert (again.status, again.data["status"]) == (202, "queued")
    done = wait_for_run(client_per_store, run_id)
    assert (done["status"], done["stored"], done["limits"]["concurrency"]) == ("finished", 200, 100)
    keys = {(row["caseDigest"], row["repeat"]) for row in read_all_results(client_per_store, run_id)}
    assert len(keys) == 200
    assert client_per_store.post(f"/api/runs/{run_id}/resume").status == 409
    assert client_per_store.delete(f"/api/runs/{run_id}").status == 200
    assert client_per_store.get(f"/api/runs/{run_id}").status == 404


def read_all_results(client: Client, run_id: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    page = 1
    while some := client.get(f"/api/runs/{run_id}/results?pageSize=500&page={page}").data:
        rows += some
        page += 1
    return rows


def test_name_and_note_of_a_run_can_be_changed(client_per_store: Client) -> None:
    run_id = start_run(client_per_store, name="nightly", note="The new prompt")
    wait_for_run(client_per_store, run_id)
    found = client_per_store.get(f"/api/runs/{run_id}").data
    assert (found["name"], found["note"]) == ("nightly", "The new prompt")
    changed = client_per_store.call("PATCH", f"/api/runs/{run_id}", {"note": "The old prompt", "name": None})
    make_documentation_model(RunView).model_validate(changed.data)
    assert (changed.data["name"], changed.data["note"]) == ("nightly", "The old prompt")
    assert client_per_store.call("PATCH", f"/api/runs/{run_id}", {"name": ""}).data["name"] is None
    assert [each["id"] for each in client_per_store.get("/api/runs?text=old+prompt").data] == [run_id]
    refused = client_per_store.call("PATCH", f"/api/runs/{run_id}", {"name": "x" * 101})
    assert (refused.status, refused.json["details"][0]["path"]) == (400, "name")
    assert client_per_store.call("PATCH", "/api/runs/latest", {"name": "x"}).status == 404


def test_each_of_several_models_has_its_own_rate_and_breakdowns(client_per_store: Client) -> None:
    models = ["fake:echo", "fake:fixed=YES"]
    run_id = wait_for_run(client_per_store, start_run(client_per_store, models=models))["id"]
    (listed,) = client_per_store.get("/api/runs?outcomes=true").data
    assert [each["model"] for each in listed["modelRates"]] == models
    found = client_per_store.get(f"/api/runs/{run_id}").data
    assert found["modelRates"] == listed["modelRates"]
    summary = found["summary"]
    for each in listed["modelRates"]:
        rate = summary["by"]["model"][each["model"]]
        assert (each["passRate"], each["interval"]) == (rate["passRate"], rate["interval"])
        assert each["outcomes"] == {name: rate[name] for name in each["outcomes"]}
    assert sorted(summary["byModel"]) == models
    for dimension in ("category", "difficulty", "tag", "check"):
        for value, pooled in summary["by"][dimension].items():
            rates = [summary["byModel"][model][dimension].get(value) for model in models]
            assert sum(each["total"] for each in rates if each) == pooled["total"]
    alone = wait_for_run(client_per_store, start_run(client_per_store))["id"]
    assert "byModel" not in client_per_store.get(f"/api/runs/{alone}").data["summary"]


def test_the_limits_of_a_run_are_stored(client: Client) -> None:
    run_id = start_run(client, repeats=50, limits={"maxTotalTokens": 300, "concurrency": 2})
    done = wait_for_run(client, run_id)
    assert done["status"] == "stopped"
    assert done["reason"] == "the run's limit of 300 tokens is reached"
    for unraised in (None, {"limits": {"concurrency": 3}}, {"limits": {"maxTotalTokens": 300}}):
        refused = client.post(f"/api/runs/{run_id}/resume", unraised)
        assert (refused.status, refused.error) == (
            400,
            "limits.maxTotalTokens: the run reached its limit of 300 tokens and would end again at once; send a higher "
            "one, or null",
        )
    assert client.get(f"/api/runs/{run_id}").data["status"] == "stopped"
    client.post(f"/api/runs/{run_id}/resume", {"limits": {"maxTotalTokens": None, "concurrency": 3}})
    finished = wait_for_run(client, run_id)
    assert (finished["status"], finished["limits"]["concurrency"]) == ("finished", 3)
    assert "maxTotalTokens" not in finished["limits"]


def test_a_run_can_be_exported_in_every_format(client: Client) -> None:
    run_id = start_run(client)
    wait_for_run(client, run_id)
    found = client.get(f"/api/runs/{run_id}/export")
    assert found.headers["content-type"] == "application/json"
    assert found.headers["content-disposition"] == f'attachment; filename="{run_id}.json"'
    assert len(json.loads(found.body)[0]["results"]) == 10
    table = client.get(f"/api/runs/{run_id}/export?format=csv").body.decode()
    assert len(list(csv.DictReader(io.StringIO(table, newline="")))) == 10
    for kind, start in (("junit", b"<?xml"), ("markdown", b"#"), ("html", b"<!doctype")):
        assert client.get(f"/api/runs/{run_id}/export?format={kind}").body.lower().startswith(start)
    lines = client.get(f"/api/runs/{run_id}/export?format=jsonl")
    assert lines.headers["content-type"].startswith("application/x-ndjson")
    assert [json.loads(line)["run_id"] for line in lines.body.decode().splitlines()] == [run_id] * 10
    packed = client.get(f"/api/runs/{run_id}/export?format=parquet")
    assert packed.headers["content-disposition"].endswith('.parquet"')
    assert pd.read_parquet(io.BytesIO(packed.body))["run_id"].tolist() == [run_id] * 10
    assert client.get(f"/api/runs/{run_id}/export?format=pdf").status == 400
    assert client.get("/api/runs/r0/export").status == 404


def test_viewers_cannot_start_or_cancel_runs(secure_client: Client) -> None:
    viewer, editor = secure_client.with_token("viewer"), secure_client.with_token("editor")
    run_id = start_run(editor)
    done = wait_for_run(viewer, run_id)
    assert done["creator"] == "editor"
    assert viewer.post("/api/runs", {"tier": "cheap", "models": ["fake"]}).status == 403
    for path in ("cancel", "resume"):
        assert viewer.post(f"/api/runs/{run_id}/{path}").status == 403
    assert viewer.call("PATCH", f"/api/runs/{run_id}", {"name": "x"}).status == 403
    assert viewer.delete(f"/api/runs/{run_id}").status == 403
    assert secure_client.get(f"/api/runs/{run_id}").status == 401


def test_an_api_only_server_executes_no_runs(store_url: str) -> None:
    with serve(store_url, api_only=True) as client:
        run_id = start_run(client)
        time.sleep(1.5)
        assert client.get(f"/api/runs/{run_id}").data["status"] == "queued"
        assert client.post(f"/api/runs/{run_id}/cancel").data["status"] == "cancelled"


def test_a_run_is_read_by_prefix_or_latest_but_changed_only_by_full_id(client_per_store: Client) -> None:
    none = client_per_store.get("/api/runs/latest")
    assert (none.status, none.error) == (404, "there is no run yet; start a run: POST /api/runs")
    earlier = start_run(client_per_store)
    wait_for_run(client_per_store, earlier)
    while (run_id := start_run(client_per_store))[:-1] == earlier[:-1]:
        wait_for_run(client_per_store, run_id)
    wait_for_run(client_per_store, run_id)
    for reference in ("latest", run_id[:-1], run_id):
        assert client_per_store.get(f"/api/runs/{reference}").data["id"] == run_id
        assert len(client_per_store.get(f"/api/runs/{reference}/results").data) == 10
        seq = client_per_store.get(f"/api/runs/{reference}/results").data[0]["seq"]
        assert client_per_store.get(f"/api/runs/{reference}/results/{seq}").data["seq"] == seq
        assert run_id in client_per_store.get(f"/api/runs/{reference}/export").headers["content-disposition"]
        assert b"event: finished" in client_per_store.get(f"/api/runs/{reference}/events").body
        assert client_per_store.get(f"/api/compare?base={reference}&new={earlier}").data["base"] == run_id
    other = start_run(client_per_store)
    assert "matches several runs" in client_per_store.get(f"/api/runs/{run_id[:4]}").error
    assert client_per_store.get("/api/runs/latest?summary=false").data["id"] == other
    wait_for_run(client_per_store, other)
    for method, path in (("POST", "/cancel"), ("POST", "/resume"), ("DELETE", "")):
        for reference in ("latest", run_id[:-1]):
            refused = client_per_store.call(method, f"/api/runs/{reference}{path}")
            assert (refused.status, refused.error) == (404, f'there is no run "{reference}"; see GET /api/runs')


@pytest.mark.parametrize("path", ["", "/results", "/results/1", "/export", "/events"])
def test_an_unknown_run_error_suggests_no_shell_commands(client: Client, path: str) -> None:
    start_run(client)
    refused = client.get(f"/api/runs/r0{path}")
    assert (refused.status, refused.error) == (404, 'there is no run "r0"; see GET /api/runs')


def test_the_selection_of_a_run_is_returned_as_requested(client: Client) -> None:
    assert client.post("/api/scenarios/import", {"yaml": SCENARIOS, "mode": "skip"}).status == 201
    asked = {
        "ids": ["book-a-table"],
        "type": ["task-completion"],
        "difficulty": ["easy", "medium", "hard"],
        "language": ["en"],
        "tag": ["domain:food"],
        "text": "table",
    }
    found = client.post("/api/runs", {"scenarios": asked, "models": ["fake"], "judge": "fake"})
    assert found.data["selection"] == asked
    again = {"scenarios": found.data["selection"], "models": ["fake"], "judge": "fake", "dryRun": True}
    assert client.post("/api/runs", again).data["cases"] == 1


UNUSUAL_TEXTS = ("\0", "\ud800", "%", "_", "\\", "'", '"', "\n", "sha256:\0", "é" * 400, "latest")


def test_no_text_in_a_query_causes_a_server_error(client_per_store: Client) -> None:
    run_id = start_run(client_per_store)
    for text in UNUSUAL_TEXTS:
        sent = quote(text.encode("utf-8", "surrogatepass"), safe="")
        for path in (
            f"/api/runs?text={sent}",
            f"/api/runs?model={sent}&suite={sent}",
            f"/api/runs/{run_id}/results?model={sent}",
            f"/api/runs/{run_id}/results?case={sent}",
            f"/api/runs/{sent}",
            f"/api/runs/{sent}/events",
            f"/api/compare?base={sent}&new={sent}",
        ):
            assert client_per_store.get(path).status < 500, path
        for body in (
            {"tier": "cheap", "models": [text]},
            {"suite": text, "models": ["fake"]},
            {"tier": text, "models": ["fake"]},
            {"scenarios": [text], "models": ["fake"]},
            {"scenarios": {"text": text, "tag": text}, "models": ["fake"], "dryRun": True},
            {"tier": "cheap", "models": ["fake"], "condition": text, "systemPrompt": text, "parameters": {text: text}},
            {"tier": "cheap", "models": ["fake"], "systemPrompt": text, "parameters": {text: text}},
            {"tier": "cheap", "models": ["fake"], "judge": text, "stt": text},
        ):
            assert client_per_store.post("/api/runs", body).status < 500, body
