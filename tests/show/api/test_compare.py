"""`/api/compare`: two runs of the store, paired case by case."""

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from pramana.app import comparisons
from pramana.app.comparison_sides import compare_sides
from pramana.app.comparison_tables import ComparisonTableView
from pramana.app.comparisons import ComparisonView
from pramana.hash import hash_case
from pramana.model import Check, Outcome, Plan, RecordedCall, Reply, Result, ResultKey, Target
from pramana.show.api.envelope import make_documentation_model
from pramana.store.scoring import Scorings
from pramana.store.store import Store

from .served import Client
from .test_models import add_run, make_case
from .test_runs import SCENARIOS, start_run, wait_for_run

SHAPE = make_documentation_model(ComparisonView)
TABLE_SHAPE = make_documentation_model(ComparisonTableView)


def test_two_runs_are_compared_with_the_interval_of_the_difference(client_per_store: Client) -> None:
    base = start_run(client_per_store, models=["fake:fixed=tungsten SIGKILL"], judge="fake:fixed=YES")
    new = start_run(client_per_store, models=["fake:fixed=Ben"], judge="fake:fixed=YES")
    for each in (base, new):
        wait_for_run(client_per_store, each)
    found = client_per_store.get(f"/api/compare?base={base}&new={new}&pageSize=1")
    data = found.data
    SHAPE.model_validate(data)
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
        for flip in client_per_store.get(f"/api/compare?base={base}&new={new}&pageSize=1&page={page}").data["flips"]
    ]
    assert len({flip["case"] for flip in flips}) == total
    assert [flip["direction"] for flip in flips] == ["lost"] * data["lost"] + ["gained"] * data["gained"]
    for flip in flips:  # each can be opened on both sides
        for run, side in ((base, "base"), (new, "new")):
            (seq,) = flip[f"{side}Results"]
            result = client_per_store.get(f"/api/runs/{run}/results/{seq}").data
            assert result["caseId"] == flip["case"]
            assert (result["outcome"] == "passed") == bool(flip[f"{side}Passed"])


def test_changed_replies_with_the_same_verdict_are_counted_and_linked(client: Client) -> None:
    base, new = (start_run(client, models=[f"fake:fixed={each}"], judge="fake:fixed=YES") for each in ("Ada", "Eve"))
    for each in (base, new):
        wait_for_run(client, each)
    changes = client.get(f"/api/compare?base={base}&new={new}").data["replyChanges"]
    assert changes["changed"] == changes["compared"] == len(changes["cases"]) > 0
    count = changes["changed"]
    assert changes["sentence"] == f"{count} of {count} replies changed while the verdict stayed the same."
    for each in changes["cases"]:
        sides = ((base, each["baseResult"]), (new, each["newResult"]))
        before, now = (client.get(f"/api/runs/{run}/results/{seq}").data for run, seq in sides)
        assert before["caseId"] == now["caseId"] == each["case"]
        assert before["outcome"] == now["outcome"]
        assert (before["reply"]["text"], now["reply"]["text"]) == ("Ada", "Eve")


def test_different_suites_are_compared_only_on_request(client: Client) -> None:
    client.post("/api/scenarios/import", {"yaml": SCENARIOS, "mode": "skip"})
    base = start_run(client)
    new = client.post("/api/runs", {"scenarios": "all", "models": ["fake:echo"]}).data["id"]
    for each in (base, new):
        wait_for_run(client, each)
    refused = client.get(f"/api/compare?base={base}&new={new}")
    assert (refused.status, "anySuite=true" in refused.error) == (400, True)
    assert [each["path"] for each in refused.json["details"]] == ["anySuite"]
    assert "\\n" not in refused.error
    anyway = client.get(f"/api/compare?base={base}&new={new}&anySuite=true").data
    SHAPE.model_validate(anyway)
    assert (anyway["pairs"], anyway["verdict"], anyway["onlyNew"]["count"]) == (0, "inconclusive", 2)
    weighed = ("baseRate", "newRate", "difference", "interval", "pValue", "test")
    assert [anyway[name] for name in weighed] == [None] * 6  # nothing was
    assert client.get(f"/api/compare?base={base}&new=r0").status == 404
    assert client.get(f"/api/compare?base={base}").status == 400


def test_the_margin_is_a_parameter_in_points(client: Client) -> None:
    base, new = (start_run(client, models=[f"fake:fixed={reply}"]) for reply in ("Ada", "Eve"))
    for each in (base, new):
        wait_for_run(client, each)
    address = f"/api/compare?base={base}&new={new}&model=fake:fixed=Ada&newModel=fake:fixed=Eve"
    found, wide = client.get(address).data, client.get(f"{address}&margin=100").data
    SHAPE.model_validate(wide)
    assert (found["margin"], found["lossExcluded"]) == (5, False)
    assert (wide["margin"], wide["lossExcluded"]) == (100, True)  # the interval ends above -100 points
    for margin in ("-1", "101", "nan", "five"):
        assert client.get(f"{address}&margin={margin}").status == 400


def test_runs_with_several_models_require_a_model(client: Client) -> None:
    run = start_run(client, models=["fake:echo", "fake:fixed=Paris", "fake:fixed=Rome"])
    wait_for_run(client, run)
    refused = client.get(f"/api/compare?base={run}&new={run}")
    assert refused.status == 400
    assert refused.error.endswith(
        "has 3 models: fake:echo, fake:fixed=Paris, fake:fixed=Rome; choose, for example: model=fake:echo and "
        "newModel=fake:fixed=Paris"
    )
    assert [each["path"] for each in refused.json["details"]] == ["model"]
    refused = client.get(f"/api/compare?base={run}&new={run}&model=fake:echo&newModel=fake")
    assert [each["path"] for each in refused.json["details"]] == ["newModel"]


def test_three_models_of_a_run_are_a_table_with_holms_p_values(client: Client) -> None:
    models = ["fake:echo", "fake:fixed=tungsten SIGKILL", "fake:fixed=Ben"]
    run = start_run(client, models=models, judge="fake:fixed=YES")
    wait_for_run(client, run)
    data = client.get(f"/api/compare/table?run={run}").data
    TABLE_SHAPE.model_validate(data)
    assert (data["against"], data["comparisons"], len(data["sides"])) == (None, 3, 3)
    rates = [each["passRate"] for each in data["sides"]]
    assert rates == sorted(rates, reverse=True)
    for each in data["pairs"]:
        low, high = each["interval"]
        assert low <= each["difference"] <= high
        assert each["adjustedPValue"] >= each["pValue"]
        two = f"/api/compare?base={run}&new={run}&model={quote(each['base'])}&newModel={quote(each['new'])}"
        assert client.get(two).data["pValue"] == each["pValue"]
    data = client.get(f"/api/compare/table?run={run}&against=fake:echo").data
    TABLE_SHAPE.model_validate(data)
    assert [each["base"] for each in data["pairs"]] == ["fake:echo"] * 2


def test_a_table_names_the_choice_that_is_missing(client: Client) -> None:
    several = start_run(client, models=["fake:echo", "fake:fixed=Paris", "fake:fixed=Rome"])
    single = [start_run(client, models=["fake:echo"]) for _ in range(2)]
    for each in (several, *single):
        wait_for_run(client, each)
    two, every = (
        f"/api/compare/table?{'&'.join(f'run={each}' for each in some)}" for some in (single, [*single, several])
    )
    assert [each["name"] for each in client.get(two).data["sides"]] == single
    refused = client.get(every)
    assert (refused.status, [each["path"] for each in refused.json["details"]]) == (400, ["model"])
    assert "model=fake:echo" in refused.error
    assert len(client.get(f"{every}&model=fake:echo").data["pairs"]) == 3
    for query in (
        "",
        "?run=",
        f"?run={several}&margin=nan",
        f"?run={several}&against=no",
        f"?run={single[0]}",
        "?run=" + "&run=".join(["a"] * 51),
    ):
        assert client.get(f"/api/compare/table{query}").status == 400, query
    assert client.get(f"/api/compare/table?run={single[0]}&run=nobody").status == 404
    many = start_run(client, models=[f"fake:fixed={each}" for each in range(11)])
    wait_for_run(client, many)
    refused = client.get(f"/api/compare/table?run={many}")
    assert (refused.status, [each["path"] for each in refused.json["details"]]) == (400, ["against"])
    assert len(client.get(f"/api/compare/table?run={many}&against=fake:fixed=3").data["pairs"]) == 10


def test_a_table_of_other_cases_needs_any_suite(client: Client) -> None:
    client.post("/api/scenarios/import", {"yaml": SCENARIOS, "mode": "skip"})
    base = start_run(client)
    new = client.post("/api/runs", {"scenarios": "all", "models": ["fake:echo"]}).data["id"]
    for each in (base, new):
        wait_for_run(client, each)
    refused = client.get(f"/api/compare/table?run={base}&run={new}")
    assert (refused.status, [each["path"] for each in refused.json["details"]]) == (400, ["anySuite"])
    found = client.get(f"/api/compare/table?run={base}&run={new}&anySuite=true").data
    TABLE_SHAPE.model_validate(found)
    assert (found["comparisons"], found["pairs"][0]["interval"]) == (0, None)


def test_a_model_cannot_be_compared_with_itself_in_one_run(client: Client) -> None:
    run = start_run(client, models=["fake:echo", "fake:fixed=Paris"])
    wait_for_run(client, run)
    refused = client.get(f"/api/compare?base={run}&new={run}&model=fake:echo&newModel=fake:echo")
    assert (refused.status, "fake:echo cannot be compared with itself" in refused.error) == (400, True)
    assert [each["path"] for each in refused.json["details"]] == ["newModel"]
    found = client.get(f"/api/compare?base={run}&new={run}").data
    assert (found["baseModel"], found["newModel"]) == ("fake:echo", "fake:fixed=Paris")


def test_two_models_of_one_run_are_compared_like_two_runs(client: Client) -> None:
    first, second = "fake:fixed=tungsten SIGKILL", "fake:fixed=Ben"
    run = start_run(client, models=[first, second], judge="fake:fixed=YES")
    wait_for_run(client, run)
    address = f"/api/compare?base={run}&new={run}&model={quote(first)}&newModel={quote(second)}"
    found = client.get(address).data
    assert (found["base"], found["new"]) == (run, run)
    assert (found["baseModel"], found["newModel"]) == (first, second)
    assert (found["lost"], found["gained"]) == (2, 1)
    for flip in found["flips"]:
        models = [
            client.get(f"/api/runs/{run}/results/{flip[side][0]}").data["model"]
            for side in ("baseResults", "newResults")
        ]
        assert models == [first, second]
    swapped = client.get(f"/api/compare?base={run}&new={run}&model={quote(second)}&newModel={quote(first)}").data
    assert (swapped["lost"], swapped["gained"]) == (1, 2)
    assert swapped["difference"] == pytest.approx(-found["difference"])


def test_answers_on_one_side_only_are_counted(client: Client) -> None:
    assert client.store
    base = add_run(client.store, ["failed", "passed", "passed"] + ["passed"] * 9, repeats=3)
    new = add_run(client.store, ["passed"] * 4)
    data = client.get(f"/api/compare?base={base}&new={new}").data
    SHAPE.model_validate(data)
    assert data["excluded"]["count"] == 0
    assert data["over"] == {
        "base": 8,
        "new": 0,
        "sentence": "If a case has more verdicts on one side, only as many as on the other are compared, the first ones: "
        "8 answers before are left out, and the rates here do not count them.",
    }
    assert (data["baseRate"], data["baseWholeRate"]) == (0.75, pytest.approx(11 / 12))
    assert data["baseWholeRate"] == pytest.approx(client.get(f"/api/runs/{base}").data["passRate"])
    (flip,) = data["flips"]
    assert (flip["basePassed"], flip["newPassed"], flip["repeats"]) == (0, 1, 1)
    assert (flip["baseInAll"], flip["newInAll"]) == ({"passed": 2, "answers": 3}, {"passed": 1, "answers": 1})
    assert flip["detail"] == "passed 0 of 1 compared before (2 of 3 in all), 1 of 1 now"
    swapped = client.get(f"/api/compare?base={new}&new={base}").data
    assert (swapped["over"]["base"], swapped["over"]["new"]) == (0, 8)
    again = add_run(client.store, ["failed", "passed", "passed"] + ["passed"] * 9, repeats=3)
    even = client.get(f"/api/compare?base={base}&new={again}").data
    assert even["over"] == {"base": 0, "new": 0, "sentence": ""}


def test_latencies_are_compared(client: Client) -> None:
    assert client.store
    times = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    base = add_run(client.store, ["passed"] * 7, times=times)
    new = add_run(client.store, ["passed"] * 7, times=[each + 0.25 for each in times])
    data = client.get(f"/api/compare?base={base}&new={new}").data
    SHAPE.model_validate(data)
    (found,) = data["times"]
    assert (found["what"], found["unit"], found["cases"], found["proven"]) == ("total time", "seconds", 7, True)
    assert (found["base"], found["new"]) == ([pytest.approx(0.4)] * 2, [pytest.approx(0.65)] * 2)
    assert found["difference"] == [pytest.approx(0.25)] * 2
    assert found["interval"] == [pytest.approx(0.25)] * 2
    assert found["sentence"] == "Slower: total time by 250 ms (median of 7 cases); statistically significant."
    assert "median difference +250 ms (95 % interval +250 ms to +250 ms, 7 cases" in found["detail"]
    assert (data["words"], data["askedDifferently"], data["verdict"]) == ([], [], "no_change")
    few = [add_run(client.store, ["passed"] * 2, model="few") for _ in range(2)]
    (found,) = client.get(f"/api/compare?base={few[0]}&new={few[1]}").data["times"]
    assert (found["interval"], found["proven"], found["sentence"]) == (None, False, "")


def test_the_sentence_states_the_median_of_paired_differences(client: Client) -> None:
    """The overall medians may go the other way, and "faster: from 500 to 540 ms" would contradict itself."""
    assert client.store
    times = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]
    now = [each - 0.05 for each in times]
    now[4] = 0.54
    base, new = (add_run(client.store, ["passed"] * 9, times=each) for each in (times, now))
    (found,) = client.get(f"/api/compare?base={base}&new={new}").data["times"]
    assert (found["base"][0], found["new"][0]) == (pytest.approx(0.5), pytest.approx(0.54))
    assert found["sentence"] == "Faster: total time by 50 ms (median of 9 cases); statistically significant."
    hardly = add_run(client.store, ["passed"] * 9, times=[each + 0.009 for each in times])
    (found,) = client.get(f"/api/compare?base={base}&new={hardly}").data["times"]
    assert (found["proven"], found["sentence"]) == (True, "")


def test_comparing_calls_reports_waiting_times_and_variants(client: Client) -> None:
    assert client.store
    base, new = add_calls(client.store, 0.3, "voice"), add_calls(client.store, 2.0, "voice+phone")
    data = client.get(f"/api/compare?base={base}&new={new}").data
    SHAPE.model_validate(data)
    (found,) = data["times"]
    assert (found["what"], found["sentence"]) == (
        "voice to voice",
        "Slower: voice to voice by 1.70 s (median of 8 cases); statistically significant.",
    )
    (words,) = data["words"]
    assert (words["what"], words["unit"], words["words"]) == ("misheard words", "share of words", [80, 80])
    detail = "variants voice before, voice+phone now"
    assert data["askedDifferently"] == [{"what": "variants", "base": "voice", "new": "voice+phone", "detail": detail}]


def test_calls_of_one_case_in_two_variants_count_as_one_case(client: Client) -> None:
    assert client.store
    ways = ("voice", "voice+phone")
    base, new = (add_calls(client.store, waited, *ways) for waited in (0.3, 2.0))
    data = client.get(f"/api/compare?base={base}&new={new}").data
    SHAPE.model_validate(data)
    (found,) = data["times"]
    assert (found["cases"], found["sentence"]) == (
        8,
        "Slower: voice to voice by 1.70 s (median of 8 cases); statistically significant.",
    )
    assert "all 16 answers (8 cases, 2 variants) ended as before" in data["sentence"]


def add_calls(
    store: Store, waited_s: float, *variants: str, provider: str = "fake-voice", fingerprint: str | None = None
) -> str:
    """Store a run of eight calls in each variant, with the given waiting time."""
    cases = [make_case(number) for number in range(8)]
    run = store.runs.create(Plan("mine", None, (Target("m", provider, "m"),), variants=variants), cases)
    counts = {"substitutions": 1, "deletions": 0, "insertions": 0, "reference_words": 10}
    evidence = {
        "times": {"lines": [{"voice_to_voice_s": waited_s, "first_audible_s": 1 + waited_s}]},
        "words": {"heard": {"words": counts, "characters": counts}, "references": []},
    }
    checks = (Check("contains", "1", Outcome.PASSED, ""), Check("call", "1", Outcome.PASSED, "", None, evidence))
    reply = Reply("x", total_s=9.0, fingerprint=fingerprint, call=RecordedCall("sha256:a", "sha256:b"))
    made = [
        Result(ResultKey(hash_case(of), "m", variant), of.id, reply, None, checks, None, None)
        for of in cases
        for variant in variants
    ]

    async def write() -> None:
        async with store.results.make_writer(run.id, lambda _: None) as writer:
            await writer.put(made)

    asyncio.run(write())
    store.queue.finish(run.id, None, "finished")
    return run.id


def test_runs_on_different_engines_are_reported(client: Client) -> None:
    assert client.store
    base, same, new = (
        add_calls(
            client.store, 0.3, "voice", provider="local-voice", fingerprint=f"ctranslate2 4.8.4; ear w==1; {each}"
        )
        for each in ("AVX2; 1 thread", "AVX2; 1 thread", "AVX2 AVX512; 1 thread")
    )
    data = client.get(f"/api/compare?base={base}&new={new}").data
    SHAPE.model_validate(data)
    (found,) = data["engineChanges"]
    assert [side[0]["label"] for side in (found["base"], found["new"])] == [
        "ctranslate2 4.8.4 (AVX2, 1 thread)",
        "ctranslate2 4.8.4 (AVX-512, 1 thread)",
    ]
    assert found["sentence"].startswith(
        "Different engines: ear previously ran on ctranslate2 4.8.4 (AVX2, 1 thread), now on "
    )
    assert client.get(f"/api/compare?base={base}&new={same}").data["engineChanges"] == []
    (engine,) = client.get(f"/api/runs/{base}").data["summary"]["engines"]
    assert (engine["model"], engine["processor"], engine["threads"]) == ("ear", ["AVX2"], 1)


def test_a_comparison_is_computed_once_until_a_run_is_rescored(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    base, new = start_run(client), start_run(client)
    for each in (base, new):
        wait_for_run(client, each)
    worked_out, weigh = [], compare_sides

    def record_and_compare(*given: Any, **options: Any) -> Any:
        worked_out.append(given)
        return weigh(*given, **options)

    monkeypatch.setattr(comparisons, "compare_sides", record_and_compare)
    address = f"/api/compare?base={base}&new={new}"
    first = client.get(address).data
    assert client.get(f"{address}&pageSize=1&page=1").data["sentence"] == first["sentence"]
    assert len(worked_out) == 1
    client.get(f"{address}&anyJudge=true")
    client.get(f"/api/compare?base={new}&new={base}")
    assert len(worked_out) == 3
    scorings = Scorings.read_scoring_labels
    monkeypatch.setattr(Scorings, "read_scoring_labels", lambda self, run: {**scorings(self, run), 1: "again"})
    client.get(address)
    assert len(worked_out) == 4
