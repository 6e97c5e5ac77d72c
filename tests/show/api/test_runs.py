"""Runs through the API: made, carried out in the background, shown, cancelled, resumed, deleted, exported."""

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

from pramana.analyse.intervals import wilson_interval
from pramana.app.views import EstimateView, ResultDetailView, ResultView, RunDetailView, RunView
from pramana.bench import judge_again
from pramana.hash import case_digest
from pramana.model import Case, Check, Outcome, Result
from pramana.request import Limits
from pramana.show.api.envelope import make_shape
from pramana.store.store import Store

from .served import Client, serve
from .test_models import add_run, case

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


def ended(client: Client, run_id: str, within: float = 20.0) -> Any:
    """Wait until a run is under way no more."""
    deadline = time.monotonic() + within
    while True:
        found = client.get(f"/api/runs/{run_id}").data
        if found["status"] not in ("queued", "running"):
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def copy_runs(store: Store, number: int) -> None:
    """Store so many more runs like the first, with the same results; in SQLite, by statements of its own."""
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


def _wilson(passed: float, total: float) -> list[float]:
    found = wilson_interval(passed, total)
    return [found.low, found.high]


def started(client: Client, **body: Any) -> str:
    found = client.post("/api/runs", {"tier": "cheap", "models": ["fake:echo"], **body})
    assert found.status == 202, found.body
    make_shape(RunView).model_validate(found.data)
    run_id: str = found.data["id"]
    return run_id


def test_a_run_is_carried_out_in_the_background_and_tells_all_of_itself(either: Client) -> None:
    run_id = started(either, models=["fake:echo", "fake:latency=0.01"], repeats=2, limits={"concurrency": 4})
    done = ended(either, run_id)
    make_shape(RunDetailView).model_validate(done)
    assert (done["status"], done["stored"], done["expected"], done["owner"]) == ("finished", 40, 40, "server")
    assert (done["suite"], done["creator"], done["limits"]["concurrency"]) == ("v1.0-cheap", "local", 4)
    assert done["summary"]["overall"]["total"] == 40
    assert len(done["summary"]["overall"]["interval"]) == 2
    assert done["summary"]["by"]["model"].keys() == {"fake:echo", "fake:latency=0.01"}
    latency = done["aggregates"]["latencySeconds"]
    assert latency["overall"].keys() == {"count", "mean", "median", "p95", "standardDeviation", "min", "max"}
    assert (latency["overall"]["count"], latency["byProvider"]["fake"]["count"]) == (40, 40)
    slow = latency["byModel"]["fake:latency=0.01"]
    assert slow["count"] == 20
    assert 0.01 <= slow["min"] <= slow["median"] <= slow["p95"] <= slow["max"]
    assert done["aggregates"]["voiceToVoiceSeconds"] is None
    short = either.get(f"/api/runs/{run_id}?summary=false").data
    assert short == {**done, "judges": None, "summary": None, "aggregates": None}
    overall = done["summary"]["overall"]
    assert done["outcomes"] == {name: overall[name] for name in ("passed", "failed", "errored", "unscored", "skipped")}
    assert (done["passRate"], done["interval"]) == (overall["passRate"], overall["interval"])
    assert done["interval"] is not None
    (listed,) = either.get("/api/runs?outcomes=true").data
    assert {name: done[name] for name in listed} == listed


def test_whoever_judged_is_named_also_after_judging_again(either: Client) -> None:
    assert either.store
    run_id = ended(either, started(either, models=["fake:fixed=YES"]))["id"]
    before = either.get(f"/api/runs/{run_id}").data
    assert (before["judge"], before["judges"]) == (None, ["fake:fixed=YES"])
    assert before["summary"]["judgedBy"] == "Judged by its own model."
    asyncio.run(judge_again(either.store, either.store.runs.find(run_id), "fake:fixed=NO", Limits()))
    after = either.get(f"/api/runs/{run_id}").data
    make_shape(RunDetailView).model_validate(after)
    assert (after["judge"], after["judges"]) == (None, ["fake:fixed=NO"])
    assert after["summary"]["judgedBy"] == "Judged by fake:fixed=NO."


def test_results_come_in_pages_by_filters_and_one_by_one_with_everything(either: Client) -> None:
    run_id = started(either, systemPrompt="Be brief.")
    ended(either, run_id)
    first = either.get(f"/api/runs/{run_id}/results?pageSize=4")
    assert first.json["meta"] == {"page": 1, "pageSize": 4, "total": 10, "totalPages": 3}
    last = either.get(f"/api/runs/{run_id}/results?page=3&pageSize=4").data
    assert (len(first.data), len(last)) == (4, 2)
    rows = either.get(f"/api/runs/{run_id}/results").data
    for row in rows:
        make_shape(ResultView).model_validate(row)
    assert [row["seq"] for row in rows] == sorted(row["seq"] for row in rows)
    for outcome in ("passed", "failed", "unscored"):
        found = either.get(f"/api/runs/{run_id}/results?outcome={outcome}")
        assert found.data == [row for row in rows if row["outcome"] == outcome]
        assert found.json["meta"]["total"] == len(found.data)
    one = rows[3]
    assert either.get(f"/api/runs/{run_id}/results?case={one['caseId']}").data == [one]
    assert either.get(f"/api/runs/{run_id}/results?case={one['caseDigest']}&model=fake:echo").data == [one]
    assert either.get(f"/api/runs/{run_id}/results?model=other").data == []
    whole = either.get(f"/api/runs/{run_id}/results/{one['seq']}").data
    make_shape(ResultDetailView).model_validate(whole)
    assert (whole["systemPrompt"], whole["caseId"]) == ("Be brief.", one["caseId"])
    assert whole["case"]["turns"][0]["text"] == whole["reply"]["text"]
    assert whole["reply"]["raw"] is not None
    assert whole["checks"][0].keys() == {
        "name", "version", "outcome", "reason", "value", "evidence", "decides", "rubricScores",
    }  # fmt: skip
    assert whole["audio"] is None
    assert either.get(f"/api/runs/{run_id}/results/999999").status == 404
    assert either.get("/api/runs/r0/results").status == 404


def test_runs_are_listed_newest_first_by_filters(either: Client) -> None:
    first = started(either)
    second = started(either, models=["fake", "fake:tokens=2"], judge="fake:fixed=YES")
    for run_id in (first, second):
        ended(either, run_id)
    found = either.get("/api/runs")
    assert [each["id"] for each in found.data] == [second, first]
    assert found.json["meta"]["total"] == 2
    for query, ids in (
        ("status=finished", [second, first]),
        ("status=queued", []),
        ("model=fake:tokens=2", [second]),
        ("model=fake", [second]),
        ("model=fake:fixed=YES", []),  # who judges is not who is asked
        ("suite=v1.0", [second, first]),
        ("suite=v1%25", []),
        ("text=FIXED", [second]),
        (f"text={first}", [first]),
        ("pageSize=1&page=2", [first]),
    ):
        assert [each["id"] for each in either.get(f"/api/runs?{query}").data] == ids, query


def test_a_list_tells_how_results_ended_where_it_is_asked_to(either: Client) -> None:
    assert either.store
    one = add_run(either.store, ["passed"] * 7 + ["failed"] * 2 + ["errored"])
    twice = add_run(either.store, ["passed", "passed", "failed", "failed"], repeats=2)
    two = started(either, models=["fake:echo", "fake:rejected=1"], judge="fake:fixed=YES", repeats=2)
    ended(either, two)
    plain = either.get("/api/runs").data
    assert {(each["outcomes"], each["passRate"], each["interval"]) for each in plain} == {(None, None, None)}
    listed = either.get("/api/runs?outcomes=true").data
    for each in listed:
        make_shape(RunView).model_validate(each)
    found = {each["id"]: each for each in listed}
    assert found[one]["outcomes"] == {"passed": 7, "failed": 2, "errored": 1, "unscored": 0, "skipped": 0}
    assert (found[one]["passRate"], found[one]["interval"]) == (7 / 9, _wilson(7, 9))
    assert (found[twice]["passRate"], found[twice]["interval"]) == (0.5, _wilson(1, 2))  # two cases, asked twice
    for run_id in (one, twice, two):  # a list and a page of its run never differ
        overall = either.get(f"/api/runs/{run_id}").data["summary"]["overall"]
        assert found[run_id]["passRate"] == overall["passRate"]
        assert found[run_id]["interval"] == overall["interval"]
        assert found[run_id]["outcomes"] == {name: overall[name] for name in found[run_id]["outcomes"]}
    assert found[two]["outcomes"]["errored"] == 20


def test_outcomes_of_a_list_follow_what_is_stored_and_judged_again(either: Client) -> None:
    assert either.store
    made = [result for _, result in either.store.results.iterate(add_run(either.store, ["passed", "failed"] * 3))]
    run = either.store.runs.create(either.store.runs.find("latest").plan, [case(number) for number in range(6)])

    def seen() -> Any:
        (found,) = either.get(f"/api/runs?outcomes=true&text={run.id}").data
        return found["stored"], found["outcomes"]["passed"], found["outcomes"]["failed"], found["passRate"]

    async def write(some: Sequence[Result]) -> None:
        assert either.store
        async with either.store.results.writer(run.id, lambda _: None) as writer:
            await writer.put(some)

    assert seen() == (0, 0, 0, None)
    for until, amounts in ((1, (1, 1, 0, 1.0)), (2, (2, 1, 1, 0.5)), (6, (6, 3, 3, 0.5))):
        asyncio.run(write(made[:until][-4:]))
        assert seen() == amounts
        assert seen() == amounts
    passed = (Check("llm_judge", "1", Outcome.PASSED, "after all"),)
    with either.store.scorings.begin(run.id, "again") as scoring:
        scoring.add([(each.key, passed) for each in made[:2]])
        assert seen() == (6, 3, 3, 0.5)  # not finished yet
    assert seen() == (6, 4, 2, 4 / 6)


def test_runs_of_the_same_cases_have_the_same_digest_whatever_the_model(either: Client) -> None:
    assert either.store
    first = add_run(either.store, ["passed"] * 3)
    other = add_run(either.store, ["failed"] * 6, model="other", repeats=2)
    more = add_run(either.store, ["passed"] * 4)
    plan = either.store.runs.find(first).plan
    turned = either.store.runs.create(plan, [case(number) for number in (2, 0, 1)]).id

    def listed(query: str) -> dict[str, Any]:
        return {each["id"]: each["casesDigest"] for each in either.get(f"/api/runs{query}").data}

    found = listed("?outcomes=true")
    assert found[first] == found[other] == found[turned]
    assert found[first] != found[more]
    assert found[first] == cases_digest([case(number) for number in range(3)])
    assert set(listed("").values()) == {None}
    assert either.get(f"/api/runs/{more}?summary=false").data["casesDigest"] == found[more]
    points = either.get("/api/models/history?model=fake").data["runs"]
    assert {each["run"]: each["casesDigest"] for each in points} == {first: found[first], more: found[more]}
    either.store.runs.delete(more)
    assert listed("?outcomes=true") == {name: digest for name, digest in found.items() if name != more}


def cases_digest(some: Sequence[Case]) -> str:
    return "sha256:" + hashlib.sha256("".join(sorted(map(case_digest, some))).encode()).hexdigest()


def test_the_cases_of_five_hundred_runs_are_read_quickly_and_once(client: Client) -> None:
    assert client.store
    add_run(client.store, ["passed"] * 200)
    copy_runs(client.store, 499)
    of = client.store.runs.page(limit=500)[0]
    times = []
    for _ in range(2):
        began = time.thread_time()
        assert set(client.store.history.cases_digests(of)) == {cases_digest([case(number) for number in range(200)])}
        times.append(time.thread_time() - began)
    assert times[0] < 2
    assert times[1] < 0.05


def test_a_list_of_ten_thousand_runs_takes_hardly_longer_than_one_of_a_hundred(client: Client, tmp_path: Path) -> None:
    wanted = ("", "&page=2", "&status=finished", "&model=fake", "&suite=mine", "&text=mine")
    with serve(f"sqlite:///{tmp_path / 'many.sqlite3'}") as other:
        for each, more in ((client, 99), (other, 9_999)):
            assert each.store
            add_run(each.store, ["passed"] * 7 + ["failed"] * 2 + ["errored"])
            copy_runs(each.store, more)
        assert other.get("/api/runs?outcomes=true").json["meta"]["total"] == 10_000
        for filters in wanted:
            few, many = times = list[float](), list[float]()
            for _ in range(9):  # in turns, so that whatever else the machine does slows both
                for each, taken in zip((client, other), times, strict=True):
                    began = time.perf_counter()
                    assert len(each.get(f"/api/runs?outcomes=true{filters}").data) == 50
                    taken.append(time.perf_counter() - began)
            # What filters counts all that match: some milliseconds more, which no page shows.
            allowed = 1.5 * sorted(few)[4] + (0.01 if filters in ("", "&page=2") else 0.1)
            assert sorted(many)[4] < allowed, (filters, allowed)


def test_a_dry_run_estimates_and_stores_nothing(client: Client) -> None:
    found = client.post(
        "/api/runs",
        {"tier": "cheap", "models": ["fake", "gpt-5", "http://127.0.0.1:9/v1#mine"], "repeats": 3, "dryRun": True},
    )
    assert found.status == 200
    make_shape(EstimateView).model_validate(found.data)
    shares = {(each["purpose"], each["model"]): each for each in found.data["shares"]}
    assert (found.data["cases"], found.data["results"]) == (10, 90)
    assert shares["model", "gpt-5"]["calls"] == 30
    assert shares["model", "gpt-5"]["costUsd"] > 0
    assert shares["model", "fake"]["costUsd"] == 0
    assert (found.data["costUsd"], found.data["unknownPrices"]) == (None, ["http://127.0.0.1:9/v1#mine"])
    assert found.data["calls"] == sum(each["calls"] for each in found.data["shares"])
    assert client.get("/api/runs").data == []


def estimated(client: Client, *models: str, **body: Any) -> Any:
    found = client.post("/api/runs", {"tier": "cheap", "models": list(models), "dryRun": True, **body})
    assert found.status == 200, found.body
    make_shape(EstimateView).model_validate(found.data)
    return found.data


def test_an_estimate_says_which_cases_will_have_no_verdict(client: Client) -> None:
    for model in ("local", "fake-voice"):
        alone = estimated(client, model)
        assert (alone["calls"], [each["purpose"] for each in alone["shares"]]) == (10, ["model"])
        assert alone["unjudged"] == [{"model": model, "cases": 2}]
        assert alone["warnings"] == ["2 cases will have no verdict: name a judge"]
    judged = estimated(client, "local", judge="fake")
    assert (judged["calls"], judged["unjudged"], judged["warnings"]) == (12, [], [])


def test_an_estimate_says_who_has_no_key(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    found = estimated(client, "gpt-5", "openai:gpt-5-mini", "fake", judge="opus")
    assert found["missingKeys"] == ["openai", "anthropic"]
    assert found["warnings"] == [
        "openai has no key here: set one in Settings › Providers or OPENAI_API_KEY",
        "anthropic has no key here: set one in Settings › Providers or ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN",
    ]
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    found = estimated(client, "gpt-5", "http://127.0.0.1:9/v1#mine")
    assert (found["missingKeys"], found["warnings"]) == ([], [])
    monkeypatch.delenv("OPENAI_API_KEY")
    mine = {"id": "mine", "kind": "openai"}
    assert client.post("/api/providers", mine).status in (200, 201)
    assert estimated(client, "mine:gpt-5")["warnings"] == ["mine has no key here: set one in Settings › Providers"]


def test_scenarios_of_the_server_are_asked_by_id_by_filter_or_all(client: Client) -> None:
    assert client.post("/api/runs", {"scenarios": "all", "models": ["fake"]}).status == 400
    assert client.post("/api/scenarios/import", {"yaml": SCENARIOS, "mode": "skip"}).status == 201
    for chosen, ids, suite in (
        ("all", ["book-a-table", "opening-hours"], "scenarios"),
        (["opening-hours"], ["opening-hours"], "scenarios (selection)"),
        ({"type": "task-completion", "tag": "domain:food"}, ["book-a-table"], "scenarios (selection)"),
        ({"difficulty": ["easy", "hard"], "text": "OPEN"}, ["opening-hours"], "scenarios (selection)"),
    ):
        found = client.post("/api/runs", {"scenarios": chosen, "models": ["fake"], "judge": "fake:fixed=YES"})
        done = ended(client, found.data["id"])
        assert (done["suite"], done["suiteHash"]) == (suite, None)
        assert sorted(each["caseId"] for each in client.get(f"/api/runs/{done['id']}/results").data) == ids
    both = client.post("/api/runs", {"tier": "cheap", "scenarios": "all", "models": ["fake"], "dryRun": True})
    assert both.data["cases"] == 12
    unknown = client.post("/api/runs", {"scenarios": ["opening-hours", "nobody"], "models": ["fake"]})
    assert (unknown.status, unknown.error) == (404, 'there is no scenario "nobody"; see GET /api/scenarios')
    none = client.post("/api/runs", {"scenarios": {"text": "nothing holds this"}, "models": ["fake"]})
    assert (none.status, "no scenario passes these filters" in none.error) == (400, True)


@pytest.mark.parametrize(
    ("body", "said"),
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
def test_what_cannot_be_run_is_refused_with_the_reason(client: Client, body: dict[str, Any], said: str) -> None:
    found = client.post("/api/runs", body)
    assert found.status == 400
    assert said in found.error
    assert client.get("/api/runs").data == []


def test_parameters_are_bounded_since_every_list_reads_them(client: Client) -> None:
    found = client.post("/api/runs", {"suite": "v1.0", "models": ["fake:echo"], "parameters": {"x": "y" * 64_000}})
    assert (found.status, "at most 64,000 are allowed" in found.error) == (400, True)


def test_a_number_that_json_does_not_have_is_refused(client: Client) -> None:
    body = b'{"tier": "cheap", "models": ["fake"], "parameters": {"x": NaN}}'
    found = client.post("/api/runs", body=body, headers={"Content-Type": "application/json"})
    assert (found.status, "JSON does not allow" in found.error) == (400, True)


def test_a_run_that_cannot_begin_stays_and_says_why(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    run_id = started(client, models=["gpt-5"])
    done = ended(client, run_id)
    assert (done["status"], done["reason"]) == ("stopped", "openai needs an API key; set OPENAI_API_KEY")
    unpriced = started(client, models=["http://127.0.0.1:9/v1#mine"], limits={"maxCost": 1})
    assert "a cost limit needs a price" in ended(client, unpriced)["reason"]


def test_a_cancelled_run_ends_within_seconds_keeps_its_results_and_can_go_on(either: Client) -> None:
    run_id = started(either, models=["fake:latency=0.3"], repeats=20, limits={"concurrency": 1})
    while not either.get(f"/api/runs/{run_id}").data["stored"]:
        time.sleep(0.05)
    assert either.delete(f"/api/runs/{run_id}").status == 409
    assert either.post(f"/api/runs/{run_id}/resume").status == 409
    began = time.monotonic()
    assert either.post(f"/api/runs/{run_id}/cancel").data["cancelRequested"] is True
    done = ended(either, run_id)
    assert time.monotonic() - began < 4
    assert (done["status"], done["reason"]) == ("cancelled", "cancelled on request")
    assert 0 < done["stored"] < done["expected"]
    assert either.post(f"/api/runs/{run_id}/cancel").status == 409
    again = either.post(f"/api/runs/{run_id}/resume", {"limits": {"concurrency": 100}})
    assert (again.status, again.data["status"]) == (202, "queued")
    done = ended(either, run_id)
    assert (done["status"], done["stored"], done["limits"]["concurrency"]) == ("finished", 200, 100)
    keys = {(row["caseDigest"], row["repeat"]) for row in pages(either, run_id)}
    assert len(keys) == 200
    assert either.post(f"/api/runs/{run_id}/resume").status == 409
    assert either.delete(f"/api/runs/{run_id}").status == 200
    assert either.get(f"/api/runs/{run_id}").status == 404


def pages(client: Client, run_id: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    page = 1
    while some := client.get(f"/api/runs/{run_id}/results?pageSize=500&page={page}").data:
        rows += some
        page += 1
    return rows


def test_a_run_has_a_name_and_a_note_that_can_change(either: Client) -> None:
    run_id = started(either, name="nightly", note="The new prompt")
    ended(either, run_id)
    found = either.get(f"/api/runs/{run_id}").data
    assert (found["name"], found["note"]) == ("nightly", "The new prompt")
    changed = either.call("PATCH", f"/api/runs/{run_id}", {"note": "The old prompt", "name": None})
    make_shape(RunView).model_validate(changed.data)
    assert (changed.data["name"], changed.data["note"]) == ("nightly", "The old prompt")
    assert either.call("PATCH", f"/api/runs/{run_id}", {"name": ""}).data["name"] is None
    assert [each["id"] for each in either.get("/api/runs?text=old+prompt").data] == [run_id]
    refused = either.call("PATCH", f"/api/runs/{run_id}", {"name": "x" * 101})
    assert (refused.status, refused.json["details"][0]["path"]) == (400, "name")
    assert either.call("PATCH", "/api/runs/latest", {"name": "x"}).status == 404


def test_of_several_models_each_has_its_own_rate_and_breakdowns(either: Client) -> None:
    models = ["fake:echo", "fake:fixed=YES"]
    run_id = ended(either, started(either, models=models))["id"]
    (listed,) = either.get("/api/runs?outcomes=true").data
    assert [each["model"] for each in listed["modelRates"]] == models
    found = either.get(f"/api/runs/{run_id}").data
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
    alone = ended(either, started(either))["id"]
    assert "byModel" not in either.get(f"/api/runs/{alone}").data["summary"]


def test_what_may_be_spent_is_kept(client: Client) -> None:
    run_id = started(client, repeats=50, limits={"maxTotalTokens": 300, "concurrency": 2})
    done = ended(client, run_id)
    assert done["status"] == "stopped"
    assert done["reason"] == "the run's limit of 300 tokens is reached"
    client.post(f"/api/runs/{run_id}/resume", {"limits": {"concurrency": 3}})
    again = ended(client, run_id)
    assert (again["status"], again["stored"], again["reason"]) == ("stopped", done["stored"], done["reason"])
    assert (again["limits"]["maxTotalTokens"], again["limits"]["concurrency"]) == (300, 3)
    client.post(f"/api/runs/{run_id}/resume", {"limits": {"maxTotalTokens": None}})
    finished = ended(client, run_id)
    assert (finished["status"], finished["limits"]["concurrency"]) == ("finished", 3)
    assert "maxTotalTokens" not in finished["limits"]


def test_a_run_is_exported_in_every_format(client: Client) -> None:
    run_id = started(client)
    ended(client, run_id)
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


def test_who_may_look_may_not_start_or_end_runs(guarded: Client) -> None:
    viewer, editor = guarded.with_token("viewer"), guarded.with_token("editor")
    run_id = started(editor)
    done = ended(viewer, run_id)
    assert done["creator"] == "editor"
    assert viewer.post("/api/runs", {"tier": "cheap", "models": ["fake"]}).status == 403
    for path in ("cancel", "resume"):
        assert viewer.post(f"/api/runs/{run_id}/{path}").status == 403
    assert viewer.call("PATCH", f"/api/runs/{run_id}", {"name": "x"}).status == 403
    assert viewer.delete(f"/api/runs/{run_id}").status == 403
    assert guarded.get(f"/api/runs/{run_id}").status == 401


def test_a_server_that_only_answers_carries_nothing_out(store_url: str) -> None:
    with serve(store_url, api_only=True) as client:
        run_id = started(client)
        time.sleep(1.5)
        assert client.get(f"/api/runs/{run_id}").data["status"] == "queued"
        assert client.post(f"/api/runs/{run_id}/cancel").data["status"] == "cancelled"


def test_a_run_is_read_by_its_beginning_or_as_the_latest_but_changed_by_its_whole_id(either: Client) -> None:
    none = either.get("/api/runs/latest")
    assert (none.status, none.error) == (404, "there is no run yet; start one: POST /api/runs")
    earlier = started(either)
    ended(either, earlier)
    while (run_id := started(either))[:-1] == earlier[:-1]:
        ended(either, run_id)
    ended(either, run_id)
    for reference in ("latest", run_id[:-1], run_id):
        assert either.get(f"/api/runs/{reference}").data["id"] == run_id
        assert len(either.get(f"/api/runs/{reference}/results").data) == 10
        seq = either.get(f"/api/runs/{reference}/results").data[0]["seq"]
        assert either.get(f"/api/runs/{reference}/results/{seq}").data["seq"] == seq
        assert run_id in either.get(f"/api/runs/{reference}/export").headers["content-disposition"]
        assert b"event: finished" in either.get(f"/api/runs/{reference}/events").body
        assert either.get(f"/api/compare?base={reference}&new={earlier}").data["base"] == run_id
    other = started(either)
    assert "matches several runs" in either.get(f"/api/runs/{run_id[:4]}").error
    assert either.get("/api/runs/latest?summary=false").data["id"] == other
    ended(either, other)
    for method, path in (("POST", "/cancel"), ("POST", "/resume"), ("DELETE", "")):
        for reference in ("latest", run_id[:-1]):
            refused = either.call(method, f"/api/runs/{reference}{path}")
            assert (refused.status, refused.error) == (404, f'there is no run "{reference}"; see GET /api/runs')


@pytest.mark.parametrize("path", ["", "/results", "/results/1", "/export", "/events"])
def test_a_run_that_is_not_there_is_told_without_commands(client: Client, path: str) -> None:
    started(client)
    refused = client.get(f"/api/runs/r0{path}")
    assert (refused.status, refused.error) == (404, 'there is no run "r0"; see GET /api/runs')


def test_what_was_selected_is_told_in_the_words_it_was_asked_with(client: Client) -> None:
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


ODD = ("\0", "\ud800", "%", "_", "\\", "'", '"', "\n", "sha256:\0", "é" * 400, "latest")


def test_no_text_breaks_a_question(either: Client) -> None:
    run_id = started(either)
    for text in ODD:
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
            assert either.get(path).status < 500, path
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
            assert either.post("/api/runs", body).status < 500, body
