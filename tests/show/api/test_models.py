"""`/api/models`: the available models, and a model over time, with intervals and with errors apart from failures."""

import asyncio
import re
import time
from collections.abc import Sequence
from typing import Any

import pytest

from pramana.analyse.mean_bounds import rate_interval
from pramana.app.models import HistoryView, OfferView
from pramana.hash import hash_case
from pramana.model import Case, Check, Failure, Outcome, Plan, PlannedScorer, Reply, Result, ResultKey, Target, Usage
from pramana.show.api.envelope import make_documentation_model
from pramana.store.labels import Label
from pramana.store.store import Store

from ...judged_runs import add_judged_run
from .served import Client


def make_case(number: int) -> Case:
    from pramana.model import Facets, Turn

    return Case(f"case-{number}", "test_case", (Turn("user", f"{number}?"),), Facets("math", "easy", "en", ()))


def add_run(
    store: Store,
    outcomes: Sequence[str],
    *,
    times: Sequence[float] = (),
    model: str = "fake",
    repeats: int = 1,
    variant: str = "text",
    **planned: Any,
) -> str:
    """Store a run with the given outcomes."""
    cases = [make_case(number) for number in range(len(outcomes) // repeats)]
    plan = Plan("mine", None, (Target(model, "fake", model),), repeats, variants=(variant,), **planned)
    run = store.runs.create(plan, cases)
    results = []
    for number, outcome in enumerate(outcomes):
        of, repeat = cases[number // repeats], number % repeats
        key = ResultKey(hash_case(of), model, variant, repeat)
        seconds = times[number] if times else 0.1
        check = Check("contains", "1", Outcome(outcome), "because")
        reply = Reply("4", Usage(1, 1, 0), "m", None, "stop", None, seconds)
        if outcome == "errored":
            results.append(Result(key, of.id, None, Failure("unavailable", "gone"), (), None, None))
        else:
            results.append(Result(key, of.id, reply, None, (check,), "sha256:a", "sha256:b"))

    async def write() -> None:
        async with store.results.make_writer(run.id, lambda _: None) as writer:
            await writer.put(results)

    asyncio.run(write())
    store.queue.finish(run.id, None, "finished")
    return run.id


def read_history(client: Client, model: str = "fake") -> Any:
    found = client.get(f"/api/models/history?model={model}").data
    make_documentation_model(HistoryView).model_validate(found)
    return found


def test_the_history_of_a_model_has_runs_and_days(client_per_store: Client) -> None:
    assert client_per_store.store
    outcomes = ["passed"] * 7 + ["failed"] * 2 + ["errored"]
    first = add_run(client_per_store.store, outcomes, times=[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 9])
    second = add_run(client_per_store.store, ["passed"] * 8 + ["unscored", "failed"])
    add_run(client_per_store.store, ["failed"] * 3, model="other")
    found = read_history(client_per_store)
    assert [each["run"] for each in found["runs"]] == [first, second]
    one, two = found["runs"]
    interval = rate_interval(7, 9)
    assert (one["passed"], one["failed"], one["errored"], one["n"], one["cases"]) == (7, 2, 1, 9, 10)
    assert one["passRate"] == pytest.approx(7 / 9)
    assert one["interval"] == pytest.approx([interval.low, interval.high], abs=0.03)
    assert one["latencyMs"] == {"count": 9, "median": 500.0, "p95": pytest.approx(860.0), "p95AtMost": None}
    assert (two["unscored"], two["n"], two["passRate"]) == (1, 9, pytest.approx(8 / 9))
    (day,) = found["days"]
    assert (day["runs"], day["passed"], day["failed"], day["errored"], day["unscored"]) == (2, 15, 3, 1, 1)
    assert (day["n"], day["cases"], day["complete"]) == (18, 10, True)
    assert day["latencyMs"]["count"] == 19


def test_repeats_do_not_narrow_the_interval(client_per_store: Client) -> None:
    assert client_per_store.store
    add_run(client_per_store.store, ["passed", "failed"] * 5)
    (once,) = read_history(client_per_store)["runs"]
    add_run(
        client_per_store.store,
        ["passed"] * 5 + ["failed"] * 5 + ["passed"] * 5 + ["failed"] * 5,
        repeats=2,
        model="twice",
    )
    (twice,) = read_history(client_per_store, "twice")["runs"]
    assert (twice["n"], twice["cases"]) == (20, 10)
    assert twice["interval"] == once["interval"]
    add_run(client_per_store.store, ["passed", "failed"] * 5)
    (day,) = read_history(client_per_store)["days"]
    assert (day["n"], day["interval"]) == (20, once["interval"])


def test_the_history_uses_the_latest_scoring(client_per_store: Client) -> None:
    assert client_per_store.store
    run_id = add_run(client_per_store.store, ["failed"] * 4)
    assert read_history(client_per_store)["runs"][0]["passed"] == 0
    judged = [
        (result.key, (Check("llm_judge", "1", Outcome.PASSED, "after all"),))
        for _, result in client_per_store.store.results.iterate(run_id)
    ]
    with client_per_store.store.scorings.begin_rescoring(run_id, "again") as scoring:
        scoring.add(judged[:3])
    (found,) = read_history(client_per_store)["runs"]
    assert (found["passed"], found["failed"]) == (3, 1)


GPT, OPUS = Target("gpt-5", "openai", "gpt-5"), Target("opus", "anthropic", "claude-opus-4-6")


def read_setup_digests(store: Store, client: Client, *plans: dict[str, Any], **given: Any) -> list[str]:
    """Return the setup digest of a run of each plan, and delete the runs."""
    ids = [add_run(store, ["passed"], **plan, **given) for plan in plans]
    found = [each["setupDigest"] for each in read_history(client)["runs"]]
    for each in ids:
        store.runs.delete(each)
    return found


def test_a_different_plan_or_judge_has_another_setup_digest(client_per_store: Client) -> None:
    assert client_per_store.store
    found = read_setup_digests(
        client_per_store.store, client_per_store, {}, {"judge": GPT}, {"judge": OPUS}, {"embedder": GPT}, {"system_prompt": "Be brief."},
        {"parameters": {"temperature": 0}}, {"parameters": {"temperature": 0.5}}, {"parameters": {"top_p": 0.5}},
        {"scorers": (PlannedScorer("a", "a", "1"),)}, {"scorers": (PlannedScorer("a", "a", "2"),)},
    )  # fmt: skip
    assert len(set(found)) == len(found) == 10
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in found)
    aloud: list[dict[str, Any]] = [{}, {"voice": "piper"}, {"stt": GPT}]
    assert len(set(read_setup_digests(client_per_store.store, client_per_store, *aloud, variant="voice"))) == 3


def test_equivalent_plans_have_the_same_setup_digest(client: Client) -> None:
    assert client.store
    alike: list[list[dict[str, Any]]] = [
        [{}, {"system_prompt": ""}, {"runner_version": "9"}, {"voice": "piper"}, {"stt": GPT}, {"repeats": 1}],
        [{"judge": GPT}, {"judge": Target("openai:gpt-5", "openai", "gpt-5")}],
        [{}, {"judge": Target("fake:fake", "fake", "fake")}],  # each model judges itself
        [
            {"parameters": {"temperature": 0, "seed": 42}},
            {"parameters": {"seed": 42, "temperature": 0.0, "top_p": None}},
        ],
    ]
    for each in alike:
        assert len(set(read_setup_digests(client.store, client, *each))) == 1, each


def test_a_rescored_run_has_another_setup_digest(client_per_store: Client) -> None:
    assert client_per_store.store
    ids = [add_run(client_per_store.store, ["failed"] * 2, judge=GPT) for _ in range(4)]
    for run_id, labels in zip(ids, ((), ("by opus",), ("by opus", "by opus"), ("by opus", "by gpt-5")), strict=True):
        for label in labels:
            with client_per_store.store.scorings.begin_rescoring(run_id, label) as scoring:
                scoring.add(
                    [(result.key, result.checks) for _, result in client_per_store.store.results.iterate(run_id)]
                )
    as_it_ran, once, twice, other = (each["setupDigest"] for each in read_history(client_per_store)["runs"])
    assert once == twice
    assert len({as_it_ran, once, other}) == 3


def test_only_the_newest_runs_are_returned_and_incomplete_days_are_marked(client: Client) -> None:
    assert client.store
    ids = [add_run(client.store, ["passed"]) for _ in range(3)]
    found = client.get("/api/models/history?model=fake&limit=2")
    assert [each["run"] for each in found.data["runs"]] == ids[1:]
    assert found.json["meta"] == {"total": 3, "shown": 2}
    assert [each["complete"] for each in found.data["days"]] == [False]
    client.store.runs.delete(ids[2])
    assert [each["run"] for each in read_history(client)["runs"]] == ids[:2]


def test_an_unused_model_has_no_history(client: Client) -> None:
    assert read_history(client, "nobody") == {"model": "nobody", "runs": [], "days": []}
    for query in ("", "?model=", "?model=m&limit=0", "?model=m&limit=501"):
        assert client.get(f"/api/models/history{query}").status == 400


def test_a_long_history_is_fast_after_the_first_request(client: Client) -> None:
    assert client.store
    for _ in range(5):
        add_run(client.store, ["passed", "failed"] * 1_000)
    read_history(client)
    began = time.process_time()
    found = read_history(client)
    assert time.process_time() - began < 0.5
    assert [each["n"] for each in found["runs"]] == [2_000] * 5


def test_available_models_are_listed_with_registered_ones_first(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI", "ANTHROPIC", "GOOGLE", "GEMINI", "COMPATIBLE"):
        for end in ("API_KEY", "BASE_URL", "AUTH_TOKEN"):
            monkeypatch.delenv(f"{name}_{end}", raising=False)
    client.post("/api/providers", {"id": "my-fake", "kind": "fake"})
    client.post("/api/providers", {"id": "my-bot", "kind": "pipecat", "arguments": {"model": "wss://bot.example"}})
    client.post("/api/providers", {"id": "gone", "kind": "compatible", "baseUrl": "http://127.0.0.1:9/v1"})
    found = client.get("/api/models").data
    for each in found:
        make_documentation_model(OfferView).model_validate(each)
    assert [each["provider"] for each in found] == ["gone", "my-bot", "my-fake", "local"]
    by_name = {each["provider"]: each for each in found}
    assert "cannot reach" in by_name["gone"]["problem"]
    assert by_name["my-bot"]["models"] == ["wss://bot.example"]
    assert by_name["my-fake"]["models"]
    assert by_name["local"] == {"provider": "local", "models": ["SmolLM2-135M-Instruct"], "problem": None}


def test_judged_runs_are_marked_in_lists_and_in_the_history_of_a_model(client: Client) -> None:
    assert client.store
    judged = add_judged_run(client.store, {"fake": [True, True, False, True] * 15})
    plain = add_run(client.store, ["passed", "failed"])
    listed = {each["id"]: each for each in client.get("/api/runs?outcomes=true").data}
    assert (listed[judged.id]["calibration"], listed[plain]["calibration"]) == ("uncalibrated", None)
    assert all(each["passRate"] is each["calibration"] is None for each in client.get("/api/runs").data)
    assert [each["calibration"] for each in read_history(client)["runs"]] == ["uncalibrated", None]
    assert [each["calibration"] for each in read_history(client)["days"]] == ["uncalibrated"]
    seqs = [(seq, result.outcome) for seq, result in client.store.results.iterate(judged)]
    given = [Label(seq, "llm_judge", "ann", "yes" if outcome == "passed" else "no") for seq, outcome in seqs]
    client.store.labels.save(judged, given)
    for path in (f"/api/runs/{judged.id}", f"/api/runs/{judged.id}?summary=false"):
        assert client.get(path).data["calibration"] == "judge agrees 100 %"
    listed = {each["id"]: each for each in client.get("/api/runs?outcomes=true").data}
    assert listed[judged.id]["calibration"] == "judge agrees 100 %"
    assert [each["calibration"] for each in client.get(f"/api/runs/{judged.id}/scorings").data] == [
        "judge agrees 100 %"
    ]
