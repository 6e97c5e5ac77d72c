"""Comparing runs in the workbench: choosing them, the verdict, flipped cases, and a shareable address."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any
from urllib.parse import quote

import pytest
from msgspec.structs import replace
from playwright.sync_api import Page, expect

from pramana.analyse.numbers import format_time_difference
from pramana.app.comparisons import ComparisonView, NamedCasesView, RequestDifferenceView, TimeView, WordsView
from pramana.app.views import RunView
from pramana.show.web.pages import comparison_markup

from ...views import make_view
from .conftest import EACH_VIEW, Bench, assert_no_sideways_scroll

HOSTILE = "<script>document.title='run'</script><img src=x onerror=\"document.title='run'\"> مرحبا 日本語 \u202egnirts"
BEFORE, NOW = "fake:latency=0.02,fixed=tungsten", "fake:latency=0.35,fixed=SIGKILL"


def make_case(number: int, *ideals: str, prompt: str) -> str:
    return json.dumps(
        {
            "id": f"metal-{number:02}",
            "category": "factual",
            "input": prompt,
            "ideal": list(ideals),
            "assertion": {"type": "contains_any"},
            "metadata": {"difficulty": "easy", "tokens_est": 8, "tags": []},
        }
    )


@dataclass
class Runs:
    base: str
    new: str
    two: str
    """With two models and two repeats."""
    cheap: str
    """Of another suite."""


@pytest.fixture(scope="module")
def runs(module_bench: Bench) -> Runs:
    """Thirty cases: 26 that only the base passes, two that only the new run does, two that both do."""
    lines = [make_case(number, "tungsten", prompt=f"Which metal? Question {number}.") for number in range(25)]
    lines += [make_case(25, "tungsten", prompt=HOSTILE)]
    lines += [make_case(number, "SIGKILL", prompt="Which signal?") for number in (26, 27)]
    lines += [make_case(number, "tungsten", "SIGKILL", prompt="Say anything.") for number in (28, 29)]
    made = module_bench.client.post("/api/suites", {"version": "team-1", "tiers": {"smoke": "\n".join(lines)}})
    assert made.status == 201, made.body
    team: dict[str, Any] = {"suite": "team-1", "tier": "smoke", "judge": "fake:fixed=YES"}
    return Runs(
        module_bench.run(**team, models=[BEFORE]),
        module_bench.run(**team, models=[NOW]),
        module_bench.run(**team, models=["fake:fixed=tungsten", "fake:fixed=SIGKILL"], repeats=2),
        module_bench.run(models=["fake:echo"], judge="fake:fixed=YES"),
    )


def compare_address(runs: Runs, **more: str) -> str:
    rest = "".join(f"&{name}={quote(value)}" for name, value in more.items())
    return f"/compare?base={runs.base}&new={runs.new}{rest}"


def read_latencies(bench: Bench, run: str) -> dict[str, float]:
    """Return the latency of each case of a run."""
    return {each["caseId"]: each["latencySeconds"] for each in bench.client.get(f"/api/runs/{run}/results").data}


def find_answer(page: Page) -> Any:
    return page.get_by_role("region", name="The answer")


def test_a_regression_is_shown_first(bench: Bench, runs: Runs) -> None:
    page = bench.open(compare_address(runs))
    said = find_answer(page)
    expect(said.get_by_role("heading")).to_have_text(re.compile(r"▼\s*Regression"))
    expect(said).to_contain_text("Of 30 cases, 26 that passed before fail now; 2 that failed before pass now.")
    expect(said).to_contain_text(re.compile(r"Difference of the pass rate: −80\.0 points, 95 % interval −\d"))
    expect(said).to_contain_text(
        "p < 0.0001 (exact McNemar test on the cases that changed between passed and failed): if both sides were equally good, "
        "chance alone would cause at least this difference less than once in 10,000 times."
    )
    expect(said).to_contain_text("Slower: total time by")
    expect(page.get_by_text("Passed before", exact=True).locator("..")).to_contain_text("93.3 %")
    expect(page.get_by_text("Passed now", exact=True).locator("..")).to_contain_text("13.3 %")
    row = page.get_by_role("row", name=re.compile("^Total time"))
    (total, *_) = bench.client.get(f"/api{compare_address(runs)}").data["times"]
    (low, high), by = total["interval"], total["difference"][0]
    before, now = (read_latencies(bench, each) for each in (runs.base, runs.new))
    assert by == pytest.approx(median(now[each] - before[each] for each in before), abs=1e-6)
    assert total["what"] == "total time"
    assert by >= 0.1  # one model answers 330 ms later
    assert low <= by <= high
    expect(row).to_contain_text(
        re.compile(
            rf"{re.escape(format_time_difference(by))}\s*{re.escape(format_time_difference(low))} to \{format_time_difference(high)}\s*30"
        )
    )
    page.get_by_role("link", name="Swap the sides").click()
    expect(find_answer(page).get_by_role("heading")).to_have_text(re.compile(r"▲\s*Improvement"))
    assert f"base={runs.new}&new={runs.base}" in page.url


def test_a_flipped_case_opens_with_both_replies(bench: Bench, runs: Runs) -> None:
    page = bench.open(compare_address(runs))
    expect(page.locator("details > summary")).to_have_count(22)  # 20 flips of 28, and 2 replies with the same verdict
    first = page.locator("details").first
    expect(first.locator("summary")).to_contain_text(re.compile(r"✗\s*failed now: metal-\d\d"))
    expect(first.get_by_role("region", name="Reply before")).to_have_count(0)
    first.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(first.get_by_role("region", name="Prompt")).to_contain_text("Which metal? Question")
    expect(first.get_by_role("region", name="Expected")).to_have_text("tungsten")
    expect(first.get_by_role("region", name="Reply before")).to_have_text("tungsten")
    expect(first.get_by_role("region", name="Reply now")).to_have_text("SIGKILL")
    expect(first.get_by_role("heading", name=re.compile("Before: passed in"))).to_be_visible()
    for side, run in (("before", runs.base), ("now", runs.new)):
        link = first.get_by_role("link", name=f"Full result {side}").get_attribute("href")
        assert link
        assert re.fullmatch(rf"/runs/{run}/results/\d+", link)
        assert bench.client.get(f"/api{link}").data["caseId"] in first.locator("summary").inner_text()
    first.locator("summary").click()
    first.locator("summary").click()
    expect(first.get_by_role("region", name="Reply now")).to_have_count(1)  # fetched details are not fetched again
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_text("21 to 28 of 28 cases that changed")).to_be_visible()
    passed_now = page.locator("details > summary", has_text="passed now")
    expect(passed_now.last).to_contain_text(re.compile(r"✓\s*passed now: metal-2[67]"))
    assert "page=2" in page.url
    page.go_back()
    expect(page.get_by_text("1 to 20 of 28 cases that changed")).to_be_visible()


def test_changed_replies_with_the_same_verdict_are_listed_and_open(bench: Bench, runs: Runs) -> None:
    page = bench.open(compare_address(runs))
    expect(page.get_by_role("heading", name="Same verdict, different reply")).to_be_visible()
    expect(page.get_by_text("2 of 2 replies changed while the verdict stayed the same.")).to_be_visible()
    changed = page.locator("details").nth(20)
    expect(changed.locator("summary")).to_have_text(re.compile("metal-2[89]"))
    changed.locator("summary").click()
    expect(changed.get_by_role("region", name="Reply before")).to_have_text("tungsten")
    expect(changed.get_by_role("region", name="Reply now")).to_have_text("SIGKILL")


def test_an_address_reproduces_the_comparison(bench: Bench, runs: Runs) -> None:
    two = f"/compare?base={runs.two}&new={runs.two}&model=fake:fixed%3Dtungsten&newModel=fake:fixed%3DSIGKILL"
    for address, answered in ((f"{compare_address(runs)}&page=2", "Regression"), (two, "beats fake:fixed=SIGKILL")):
        texts = [bench.open(address).locator("#main").inner_text() for _ in range(2)]
        assert texts[0] == texts[1]
        assert answered in texts[0]


def test_two_models_of_one_run_can_be_compared(bench: Bench, runs: Runs) -> None:
    page = bench.open(f"/compare?base={runs.two}&new={runs.two}")
    expect(page.get_by_role("alert")).to_contain_text("The run has 2 models. Choose the first to compare:")
    page.get_by_role("link", name="fake:fixed=tungsten", exact=True).click()
    beats = re.compile("fake:fixed=tungsten beats fake:fixed=SIGKILL$")
    expect(find_answer(page).get_by_role("heading")).to_have_text(beats)
    page.get_by_label("Model A").click()
    page.get_by_role("option", name="fake:fixed=SIGKILL").click()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text(
        "Choose the model to compare it with:"
    )  # a model is not compared with itself
    page.go_back()
    expect(find_answer(page).get_by_role("heading")).to_have_text(beats)
    for model, rate in (("tungsten", "93.3 %"), ("SIGKILL", "13.3 %")):
        passed = page.get_by_text(f"Passed, fake:fixed={model}", exact=True)
        expect(passed.locator("..")).to_contain_text(rate)
    heads = page.get_by_role("table", name="Measurements on both sides, paired by case").get_by_role("columnheader")
    expect(heads.nth(1)).to_have_text("fake:fixed=tungsten")
    expect(page.get_by_role("heading", name="What differs")).to_be_visible()
    expect(page.get_by_text("Cases that passed more often for fake:fixed=tungsten: 26; for")).to_be_visible()
    flip = page.locator("details").first
    expect(flip.locator("summary")).to_contain_text("passed more often for fake:fixed=tungsten: metal-")
    expect(flip.locator("summary")).to_contain_text(
        "passed 2 of 2 for fake:fixed=tungsten, 0 of 2 for fake:fixed=SIGKILL"
    )
    flip.locator("summary").click()
    expect(flip.get_by_role("region", name="Reply of fake:fixed=SIGKILL, repeat 2")).to_have_text("SIGKILL")
    expect(flip.get_by_role("link", name="Full result for fake:fixed=SIGKILL, repeat 2")).to_be_visible()
    shown = page.locator("#main").inner_text()
    assert not re.search(r"\b(before|now|Before|Now)\b", shown.partition("Compare something else")[0])


def test_models_with_long_names_stay_distinguishable_where_they_are_chosen(bench: Bench, runs: Runs) -> None:
    assert runs.cheap  # to be chosen below
    models = [f"fake:fixed={'a-long-name-of-a-model/' * 4}{end}" for end in ("2025-08-07", "2025-10-01")]
    run = bench.run(suite="team-1", tier="smoke", models=models, judge="fake:fixed=YES")
    page = bench.open(f"/compare?base={run}&new={run}&model={quote(models[0])}&newModel={quote(models[1])}")
    page.get_by_label("Model A").click()
    options = page.get_by_role("option")
    expect(options).to_have_text([re.compile(r"^fake:fixed=.*….*2025-08-07$"), re.compile("….*2025-10-01$")])
    page.keyboard.press("Escape")
    page.get_by_label("Run A").click()
    page.get_by_role("option", name=re.compile("v1.0-cheap · fake:echo")).first.click()
    expect(page.get_by_label("Run before")).to_be_visible()
    expect(page.get_by_label("Model now")).to_be_visible()


def test_two_scorings_of_a_run_are_two_sides(bench: Bench, runs: Runs) -> None:
    page = bench.open(f"/compare?base={runs.base}@0&new={runs.new}")
    expect(find_answer(page).get_by_role("heading")).to_have_text(re.compile("Regression"))
    expect(page.get_by_role("link", name="team-1-smoke").first).to_have_attribute("href", f"/runs/{runs.base}@0")


def test_the_previous_run_of_the_same_cases_is_suggested(bench: Bench, runs: Runs) -> None:
    page = bench.open("/compare")
    expect(page.get_by_role("heading", name="Choose two")).to_be_visible()
    page.goto(f"{bench.url}/compare?new={runs.base}")  # the first of its suite
    expect(page.get_by_text("No earlier run has the same cases. Choose a run to compare it with.")).to_be_visible()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_text("Choose two runs.")).to_be_visible()
    page.goto(f"{bench.url}/compare?new={runs.new}")
    expect(page.get_by_text("Suggested: the previous run of the same cases.")).to_be_visible()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(find_answer(page).get_by_role("heading")).to_have_text(re.compile("Regression"))
    assert f"base={runs.base}&new={runs.new}" in page.url
    page.get_by_label("Run before").click()
    page.get_by_role("option", name=re.compile("v1.0-cheap · fake:echo")).first.click()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("The two runs may have different cases: before")


def test_different_cases_can_be_compared_on_request(bench: Bench, runs: Runs) -> None:
    page = bench.open(f"/compare?base={runs.base}&new={runs.cheap}")
    expect(page.get_by_role("alert")).to_contain_text("before team-1-smoke, now v1.0-cheap")
    page.get_by_role("link", name="Compare shared cases").click()
    expect(find_answer(page)).to_contain_text("No case has a verdict on both sides.")
    assert "anySuite=true" in page.url
    left_out = page.locator("details", has_text="Only before: 30 cases")
    left_out.locator("summary").click()
    expect(left_out.get_by_text("metal-07")).to_be_visible()
    expect(page.get_by_text("Only now: 10 cases")).to_be_visible()
    before = page.get_by_text("Passed before", exact=True).locator("..")
    expect(before).to_contain_text("nothing to compare")
    expect(before).to_contain_text(BEFORE)
    expect(before).to_contain_text("the whole run: 93.3 %")
    expect(before).not_to_contain_text("no verdict")


def test_verdicts_of_two_judges_are_excluded_unless_requested(bench: Bench, runs: Runs) -> None:
    other = bench.run(models=["fake:rejected=0.3,echo"], judge="fake:fixed=NO")
    page = bench.open(f"/compare?base={runs.cheap}&new={other}")
    errored = page.locator("details", has_text="No verdict on one side or both:")
    expect(errored).to_have_count(1)
    apart = page.locator("details", has_text="Judged by different judges:")
    apart.locator("summary").click()
    expect(apart).to_contain_text("fake:fixed=YES (fake-1) before, fake:fixed=NO (fake-1) now")
    apart.get_by_role("link", name="Compare them anyway").click()
    expect(page.get_by_text("they are compared because you chose to")).to_have_count(1)
    assert "anyJudge=true" in page.url


def test_an_unknown_run_is_reported_and_another_can_be_chosen(bench: Bench, runs: Runs) -> None:
    for named in ("r-nowhere", "..%2Fsettings", "%3Cscript%3E"):
        page = bench.open(f"/compare?base={named}&new={runs.new}")
        expect(page.get_by_role("alert")).to_contain_text(re.compile("no run|no such address"))
        expect(page.get_by_role("button", name="Compare", exact=True)).to_be_enabled()


def test_a_running_run_is_reported_and_followed_to_its_end(bench: Bench, runs: Runs) -> None:
    slow = bench.run(wait=False, models=["fake:latency=1.5,echo"], judge="fake:fixed=YES", limits={"concurrency": 1})
    page = bench.open(f"/compare?base={runs.cheap}&new={slow}")
    under_way = page.get_by_text("The run now is still running: this comparison covers its")
    expect(under_way).to_be_visible()
    expect(under_way).to_have_count(0, timeout=60_000)
    expect(page.get_by_text("Passed now", exact=True).locator("..")).not_to_contain_text("no verdict")
    expect(page.get_by_text("Passed now", exact=True).locator("..")).not_to_contain_text("nothing to compare")


def test_scripts_in_prompts_are_escaped(bench: Bench, runs: Runs) -> None:
    hostile = f"fake:fixed={HOSTILE}"
    team: dict[str, Any] = {"suite": "team-1", "tier": "smoke", "judge": "fake:fixed=YES"}
    new = bench.run(**team, models=[hostile])
    page = bench.open(f"/compare?base={runs.base}&new={new}&page=1")
    expect(find_answer(page).get_by_role("heading")).to_have_text(re.compile("Regression"))
    for flip in page.locator("details").all():
        flip.locator("summary").click()
    shown = page.get_by_role("region", name="Reply now").first
    expect(shown).to_contain_text("<script>document.title='run'</script><img src=x")
    expect(shown).to_contain_text("مرحبا 日本語 \\u202egnirts")
    expect(page.get_by_text("Passed now", exact=True).locator("..")).to_contain_text("<script>")
    assert page.locator("#main script, #main img").count() == 0
    assert page.title() != "run"
    assert_no_sideways_scroll(page)


@EACH_VIEW
def test_the_comparison_page_is_accessible(
    bench: Bench, runs: Runs, axe: Callable[[Page], None], width: int, theme: Any
) -> None:
    page = bench.open(compare_address(runs), width=width, theme=theme)
    expect(find_answer(page)).to_be_visible()
    page.locator("details > summary").first.click()
    expect(page.get_by_role("region", name="Reply now")).to_be_visible()
    assert_no_sideways_scroll(page)
    axe(page)
    for address in (
        "/compare",
        f"/compare?base={runs.two}&new={runs.new}",
        f"/compare?base={runs.base}&new={runs.cheap}",
    ):
        page.goto(bench.url + address)
        expect(page.get_by_role("button", name="Compare", exact=True)).to_be_visible()
        assert_no_sideways_scroll(page)
        axe(page)


def test_two_models_of_a_run_without_a_predecessor_are_suggested(bench: Bench, runs: Runs) -> None:
    models = ["fake:fixed=SIGKILL", "fake:fixed=tungsten", "fake:echo"]
    alone = bench.run(models=models, repeats=3, judge="fake:fixed=YES", tier="moderate")
    page = bench.open(f"/compare?new={alone}")
    expect(page.get_by_text("Suggested: two models of the same run.")).to_be_visible()
    page.get_by_role("button", name="Compare", exact=True).click()
    for model in models[:2]:
        expect(page.get_by_text(f"Passed, {model}", exact=True)).to_be_visible()
    page.goto(f"{bench.url}/compare?base={alone}&new={alone}&model={quote(models[2])}")
    expect(page.get_by_role("alert")).to_contain_text("Choose the model to compare it with:")
    expect(page.get_by_role("alert").get_by_role("link")).to_have_text(models[:2])
    page.get_by_role("alert").get_by_role("link").first.click()
    expect(page.get_by_text(f"Passed, {models[2]}", exact=True)).to_be_visible()
    page.goto(f"{bench.url}/compare?base={runs.base}&new={alone}&model={quote(BEFORE)}&anySuite=true")
    expect(page.get_by_role("alert")).to_contain_text("The run now has 3 models. Choose one:")


def test_runs_of_other_scenarios_are_not_suggested(bench: Bench) -> None:
    for name in ("first-asked", "then-asked"):
        made = {"id": name, "name": name, "type": "task-completion", "prompt": f"{name}?", "expectedOutcome": "So."}
        assert bench.client.post("/api/scenarios", made).status == 201
    alone: dict[str, Any] = {"suite": None, "tier": None, "models": ["fake:echo"], "judge": "fake:fixed=YES"}
    first = bench.run(**alone, scenarios=["first-asked"])
    then = bench.run(**alone, scenarios=["then-asked"])
    page = bench.open(f"/compare?new={then}")
    expect(page.get_by_text("No earlier run has the same cases. Choose a run to compare it with.")).to_be_visible()
    again = bench.run(**alone, scenarios=["first-asked"])
    page.goto(f"{bench.url}/compare?new={again}")
    expect(page.get_by_text("Suggested: the previous run of the same cases.")).to_be_visible()
    page.get_by_role("button", name="Compare", exact=True).click()
    page.wait_for_url(f"**/compare?base={first}&new={again}")


def test_the_option_of_a_run_with_several_models_shows_no_pooled_rate(bench: Bench, runs: Runs) -> None:
    page = bench.open(f"/compare?base={runs.two}&new={runs.cheap}")
    page.get_by_label("Run before").click()
    several = page.get_by_role("option", name=re.compile("fake:fixed=tungsten, fake:fixed=SIGKILL"))
    expect(several).to_have_text(re.compile(r"· 2 models$"))
    expect(page.get_by_role("option", name=re.compile(re.escape(BEFORE)))).to_have_text(
        re.compile(r"· 93\.3 % passed$")
    )


def test_a_word_error_rate_above_100_percent_is_rendered() -> None:
    rest: dict[str, Any] = {"difference": (0.917, 0.917), "interval": None, "cases": 3}
    wrong = 23 / 12, 23 / 12
    words = make_view(WordsView, what="word error rate", unit="share of words", base=(1.0, 1.0), new=wrong, **rest)
    times = make_view(TimeView, what="total time", unit="seconds", base=(0.5, 0.5), new=(2.0, None), **rest)
    shown = comparison_markup.render_measurements(make_view(ComparisonView, times=(times,), words=(words,)))
    assert re.findall(r"<th[^>]*>([^<]+)", shown)[:3] == [
        "What",
        "Before: value over all cases",
        "Now: value over all cases",
    ]
    assert "Total time (median)" in shown
    assert "Word error rate (share of all)" in shown
    assert "192 %" in shown
    assert "The difference is the median of the differences of each case" in shown
    assert "median" not in comparison_markup.render_measurements(make_view(ComparisonView, words=(words,)))


def test_different_plans_are_reported_in_one_sentence() -> None:
    asked = (
        RequestDifferenceView(what="system prompt", base="Be brief.", new="Be kind.", detail="another system prompt"),
        RequestDifferenceView(what="stop", base="<b>", new="x", detail="stop <b> before, x now"),
    )
    shown = comparison_markup.render_request_differences(make_view(ComparisonView, asked_differently=asked))
    said = "The requests differ: another system prompt; stop &lt;b&gt; before, x now; this may explain the difference."
    assert re.sub(r"</?(p|bdi)[^>]*>", "", shown) == said


def test_the_compared_rate_is_shown_beside_the_rate_of_the_whole_run() -> None:
    run = make_view(RunView, id="r", suite="s", created_at="2026-01-01T00:00:00Z", models=("m",))
    data = make_view(
        ComparisonView, base_rate=0.75, base_whole_rate=0.904, new_rate=0.5, new_whole_rate=0.5, base_model="m",
        new_model="m", pairs=4, lost=1, gained=0,
    )  # fmt: skip
    shown = comparison_markup.render_sides(run, run, data)
    assert shown.count("the whole run") == 1
    assert "of the compared cases; the whole run: 90.4 %" in shown
    two = replace(run, models=("m", "n"))
    assert "of the compared cases; this model in the whole run: 90.4 %" in comparison_markup.render_sides(
        two, run, data
    )


def test_repeats_on_one_side_only_are_reported(bench: Bench, runs: Runs) -> None:
    page = bench.open(f"/compare?base={runs.two}&new={runs.new}&model=fake:fixed%3Dtungsten&newModel={quote(NOW)}")
    expect(find_answer(page)).to_contain_text("Of 30 cases, 26 pass less often now and 2 more often.")
    expect(page.get_by_role("heading", name="Excluded or flagged")).to_be_visible()
    expect(page.get_by_text("30 answers before are left out, and the rates here do not count them.")).to_be_visible()
    first = page.locator("details > summary").first
    expect(first).to_contain_text(re.compile(r"▼\s*less often: metal-\d\d"))
    expect(first).to_contain_text("passed 1 of 1 compared before (2 of 2 in all), 0 of 1 now")
    page.goto(bench.url + compare_address(runs))
    expect(find_answer(page)).to_be_visible()
    expect(page.get_by_text("are left out")).to_have_count(0)


def test_only_a_run_of_the_same_cases_is_suggested_for_a_base_run(bench: Bench, runs: Runs) -> None:
    made = {"id": "alone", "name": "alone", "type": "task-completion", "prompt": "Alone?", "expectedOutcome": "So."}
    assert bench.client.post("/api/scenarios", made).status == 201
    alone = bench.run(suite=None, tier=None, models=["fake:echo"], judge="fake:fixed=YES", scenarios=["alone"])
    page = bench.open(f"/compare?base={runs.base}")  # the newest run has other cases
    expect(page.get_by_text("Suggested: the newest other run of the same cases.")).to_be_visible()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(find_answer(page)).to_be_visible()
    assert f"base={runs.base}&new=" in page.url
    assert f"new={runs.base}" not in page.url
    bench.run(models=["fake:echo"], judge="fake:fixed=YES")
    page.goto(f"{bench.url}/compare?base={alone}")
    expect(page.get_by_text("No other run has the same cases. Choose a run to compare it with.")).to_be_visible()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_text("Choose two runs.")).to_be_visible()


@pytest.mark.parametrize("named", [".", "..", "(" * 30_000])
def test_an_address_with_an_invalid_run_shows_an_error(bench: Bench, runs: Runs, named: str) -> None:
    words = re.compile("There is no run|too long for an address")
    for address in (f"/compare?base={named}&new={runs.new}", f"/compare?new={named}"):
        page = bench.open(address)
        expect(page.get_by_role("alert")).to_contain_text(words)
        expect(page.get_by_role("button", name="Compare", exact=True)).to_be_enabled()
    page = bench.open(f"/suites/v1.0?tier={named}")
    expect(page.get_by_role("alert")).to_contain_text(re.compile("has no tier|too long for an address"))


def test_a_failed_detail_is_fetched_again_when_reopened(bench: Bench, runs: Runs) -> None:
    team: dict[str, Any] = {"suite": "team-1", "tier": "smoke", "judge": "fake:fixed=YES"}
    gone = bench.run(**team, models=["fake:fixed=Nothing."])
    page = bench.open(f"/compare?base={runs.base}&new={gone}")
    flip = page.locator("details").first
    expect(flip).to_be_visible()
    assert bench.client.delete(f"/api/runs/{gone}").status == 200
    notice = page.locator(".q-notification").filter(has_text="There is no run")
    flip.locator("summary").click()
    expect(notice).to_be_visible()
    expect(page.get_by_text("Fetching both replies")).to_have_count(0)
    flip.locator("summary").click()
    expect(flip).not_to_have_attribute("open", "")
    flip.locator("summary").click()
    expect(notice.locator(".q-notification__badge")).to_have_text("2")  # closing requests nothing
    expect(page.get_by_text("Fetching both replies")).to_have_count(0)


@pytest.mark.parametrize(
    ("verdict", "new", "noted"),
    [("regression", "r2", True), ("improvement", "r2", True), ("no_change", "r2", False), ("regression", "r1", False)],
)
def test_the_verdict_on_two_runs_says_that_days_differ(verdict: str, new: str, noted: bool) -> None:
    data = make_view(
        ComparisonView, verdict=verdict, sentence="Regression between these two runs: so.", difference=-0.3,
        interval=(-0.4, -0.1), p_value=0.01, test="exact McNemar", base="r1", new=new, base_model="a", new_model="b",
        times=(), words=(),
    )  # fmt: skip
    assert ("Two runs made on different days can differ" in comparison_markup.render_verdict(data)) == noted


def test_one_case_in_two_variants_is_rendered_as_two_answers() -> None:
    run = make_view(RunView, id="r", suite="s", created_at="2026-01-01T00:00:00Z", models=("m",))
    both, typed = replace(run, variants=("text", "voice")), replace(run, variants=("text",))
    times = make_view(
        TimeView, what="total time", unit="seconds", base=(0.5, 0.5), new=(2.0, None), cases=4,
        difference=(1.5, None), interval=None, sentence="",
    )  # fmt: skip
    left = NamedCasesView(count=2, cases=("a", "b (voice)"))
    data = make_view(
        ComparisonView, verdict="no_change", sentence="No change: so.", difference=0.0, interval=(0.0, 0.0),
        p_value=1.0, test="exact McNemar", base_rate=0.5, new_rate=0.5, base_whole_rate=0.5, new_whole_rate=0.5,
        base_model="m", new_model="m", pairs=4, lost=0, gained=0, times=(times,), words=(),
        excluded=left, only_base=left, only_new=left,
    )  # fmt: skip

    def render(base: RunView, new: RunView) -> str:
        ways = base.variants, new.variants
        noun, other = comparison_markup.choose_noun(*ways), comparison_markup.choose_noun(*ways, for_excluded=True)
        drawn = [
            comparison_markup.render_verdict(data, noun),
            comparison_markup.render_sides(base, new, data, noun),
            comparison_markup.render_measurements(data, noun),
        ]
        return "".join([*drawn, comparison_markup.render_excluded(data, None, other)])

    answers, cases, mixed = render(both, both), render(typed, typed), render(both, typed)
    assert "answers with a verdict on both sides, compared in pairs" in answers
    assert "Only before: 2 answers" in answers
    assert ">Answers</th>" in answers
    assert not re.search(r"\bcases?\b", re.sub("<[^>]+>", " ", answers))
    assert "cases with a verdict on both sides, compared in pairs" in cases
    assert "Only before: 2 cases" in cases
    assert ">Cases</th>" in cases
    assert "cases with a verdict on both sides" in mixed  # typed on both sides, spoken on one
    assert "Only before: 2 answers" in mixed


def test_a_case_run_in_two_variants_counts_as_two_answers(bench: Bench) -> None:
    made = {"id": "twice", "name": "twice", "type": "task-completion", "prompt": "```ls```", "expectedOutcome": "So."}
    assert bench.client.post("/api/scenarios", made).status == 201
    aloud: dict[str, Any] = {"models": ["fake-voice"], "modality": ["voice", "noisy"]}
    base, new = (bench.run(suite=None, tier=None, scenarios=["twice"], **aloud) for _ in range(2))
    page = bench.open(f"/compare?base={base}&new={new}")  # code is not spoken, so both are skipped
    compared = page.get_by_text("Compared", exact=True).locator("..")
    expect(compared).to_contain_text("answers with a verdict on both sides, compared in pairs")
    expect(page.get_by_text("No verdict on one side or both: 2 answers")).to_be_visible()
    expect(page.get_by_text("No compared answer changed its outcome.")).to_be_visible()
