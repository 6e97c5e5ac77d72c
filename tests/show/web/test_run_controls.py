"""The page of a run: its scorings, of which one is current, and the limits with which it is resumed."""

import os
import re
import subprocess
import sys

from playwright.sync_api import Page, expect

from .conftest import NARROW, Bench, assert_no_sideways_scroll


def rescore(bench: Bench, run: str, judge: str) -> None:
    command = [sys.executable, "-m", "pramana", "rescore", run, "--judge", judge, "--quiet"]
    subprocess.run(command, check=True, env={**os.environ, "PRAMANA_HOME": str(bench.home)})  # noqa: TID251


def scorings_of(page: Page) -> list[str]:
    table = page.get_by_role("table", name="Scorings of this run")
    return [" ".join(each.split()) for each in table.locator("tbody tr").all_inner_texts()]


def test_an_earlier_scoring_is_shown_and_made_current(bench: Bench) -> None:
    run = bench.run(models=["fake:echo"], judge="fake:fixed=YES")
    page = bench.open(f"/runs/{run}")
    expect(page.get_by_role("table", name="Results", exact=True)).to_be_visible()
    expect(page.get_by_role("heading", name="Scorings")).to_have_count(0)
    passed = [bench.client.get(f"/api/runs/{run}").data["outcomes"]["passed"]]
    rescore(bench, run, "fake:fixed=NO")  # the open page hears of it
    table = page.get_by_role("table", name="Scorings of this run")
    expect(table.locator("tbody tr")).to_have_count(2)
    passed.append(bench.client.get(f"/api/runs/{run}").data["outcomes"]["passed"])
    assert passed[1] < passed[0]
    expect(page.locator(".outcomes")).to_contain_text(f"{passed[1]} passed")
    newest, first = scorings_of(page)
    assert re.search(r"^1 .*fake:fixed=NO.* current$", newest)
    assert re.search(r"^0 .*fake:fixed=YES.* Show Make current$", first)

    page.get_by_role("link", name="Show scoring 0").click()
    expect(page).to_have_url(f"{bench.url}/runs/{run}@0")
    expect(page.get_by_text("These are the verdicts of scoring 0.")).to_be_visible()
    expect(page.locator(".outcomes")).to_contain_text(f"{passed[0]} passed")
    export = page.get_by_role("link", name="JSON", exact=True).get_attribute("href") or ""
    assert bench.client.get(export).json[0]["run_metadata"]["run_id"] == f"{run}@0"
    page.get_by_role("table", name="Results", exact=True).locator("tbody tr a").first.click()
    expect(page).to_have_url(re.compile(rf"/runs/{run}@0/results/\d+$"))
    page.get_by_role("link", name="All results").click()
    expect(page).to_have_url(f"{bench.url}/runs/{run}@0#results")
    page.get_by_role("link", name="Show the current scoring").click()
    expect(page).to_have_url(f"{bench.url}/runs/{run}")

    page.get_by_role("button", name="Make scoring 0 current").click()
    expect(page.get_by_text("Scoring 0 is current until the run is re-scored.")).to_be_visible()
    expect(page.get_by_text("Scoring 0 is current by choice; the newest scoring is 1.")).to_be_visible()
    expect(page.locator(".outcomes")).to_contain_text(f"{passed[0]} passed")
    assert bench.client.get(f"/api/runs/{run}").data["outcomes"]["passed"] == passed[0]


def test_a_run_is_checked_against_a_baseline_on_its_page(bench: Bench) -> None:
    base = bench.run(models=["fake:fixed=tungsten SIGKILL"], judge="fake:fixed=YES")
    new = bench.run(models=["fake:fixed=tungsten SIGKILL"], judge="fake:fixed=YES")
    page = bench.open(f"/runs/{new}", width=NARROW)
    box = page.get_by_role("region", name="Baseline")
    box.get_by_label("Baseline", exact=True).fill(base)
    box.get_by_role("button", name="Check").click()
    verdict = f"Passed against the baseline, run {base}; exit code 0"
    expect(box).to_contain_text(verdict)
    expect(box).to_contain_text("uncalibrated")
    assert_no_sideways_scroll(page)
    expect(page).to_have_url(f"{bench.url}/runs/{new}?baseline={base}")
    page.reload()  # the address has the baseline, so that a build can link to its check
    expect(box).to_contain_text(verdict)
    box.get_by_role("link", name="Compare").click()
    expect(page).to_have_url(re.compile(rf"/compare\?base={base}&new={new}"))
    expect(page.get_by_role("heading", name="No difference seen")).to_be_visible()

    page = bench.open(f"/runs/{new}?baseline={base}")
    box = page.get_by_role("region", name="Baseline")
    expect(box.get_by_label("Margin (points)")).to_have_value("5")
    box.get_by_label("Margin (points)").fill("2.5")
    box.get_by_role("combobox", name="Fail on").click()
    page.get_by_role("option", name="Inconclusive, too").click()
    box.get_by_role("button", name="Check").click()
    failed = f"Failed against the baseline, run {base}; exit code 4"
    expect(box).to_contain_text(failed)
    expect(page).to_have_url(f"{bench.url}/runs/{new}?baseline={base}&margin=2.5&failOn=inconclusive")
    page.reload()  # a link of a build shows the check with its margin and what fails it
    expect(box).to_contain_text(failed)
    expect(box.get_by_label("Margin (points)")).to_have_value("2.5")
    expect(box).to_contain_text("Inconclusive, too")
    page = bench.open(f"/runs/{new}?baseline={base}&margin=500")
    expect(page.get_by_role("region", name="Baseline")).to_contain_text("Margin: expected a number from 0 to 100")

    page = bench.open(f"/runs/{new}?baseline=nowhere")
    expect(page.get_by_role("region", name="Baseline")).to_contain_text('There is no run "nowhere"')


def test_a_run_that_a_limit_ended_is_resumed_with_a_higher_one(bench: Bench) -> None:
    run = bench.run(models=["fake:echo"], limits={"maxTotalTokens": 1, "concurrency": 1})
    page = bench.open(f"/runs/{run}", width=NARROW)
    expect(page.get_by_text(re.compile("The run is stopped: .*token"))).to_be_visible()
    page.get_by_role("button", name="Resume").click()
    dialog = page.get_by_role("dialog", name="Resume with other limits")
    expect(dialog).to_contain_text("The run reached its token limit (1), which includes what the run has already used.")
    tokens = dialog.get_by_label("Token limit")
    expect(tokens).to_have_value("1")
    expect(dialog.get_by_label("Cost limit (USD)")).to_have_value("")
    assert_no_sideways_scroll(page)
    dialog.get_by_role("button", name="Resume").click()
    expect(dialog).to_contain_text("Token limit: enter more than 1, or leave the field empty for no limit")
    tokens.fill("1.5")
    tokens.press("Enter")
    expect(dialog).to_contain_text("Token limit: enter a whole number from 1")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    assert bench.client.get(f"/api/runs/{run}?summary=false").data["status"] == "stopped"

    page.get_by_role("button", name="Resume").click()
    dialog.get_by_label("Token limit").fill("100000")
    dialog.get_by_role("button", name="Resume").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_text("finished").first).to_be_visible()
    bench.wait_for_run(run)
    found = bench.client.get(f"/api/runs/{run}?summary=false").data
    assert (found["status"], found["limits"]["maxTotalTokens"]) == ("finished", 100_000)
    assert found["limits"]["concurrency"] == 1


def test_a_run_that_reached_its_time_limit_is_resumed_with_another(bench: Bench) -> None:
    run = bench.run(models=["fake:latency=0.4,echo"], limits={"deadlineSeconds": 0.5, "concurrency": 1})
    page = bench.open(f"/runs/{run}")
    page.get_by_role("button", name="Resume").click()
    dialog = page.get_by_role("dialog", name="Resume with other limits")
    expect(dialog).to_contain_text(
        "The run reached its time limit (0.5). When you resume the run, this limit counts from zero again."
    )
    dialog.get_by_label("Time limit (seconds)").fill("")
    dialog.get_by_role("button", name="Resume").click()
    expect(dialog).to_have_count(0)
    bench.wait_for_run(run)
    found = bench.client.get(f"/api/runs/{run}?summary=false").data
    assert (found["status"], found["limits"]["concurrency"]) == ("finished", 1)
    assert "deadlineSeconds" not in found["limits"]


def test_a_run_that_no_limit_ended_is_resumed_at_once(bench: Bench) -> None:
    run = bench.run(wait=False, models=["fake:latency=0.3,echo"], limits={"concurrency": 1})
    page = bench.open(f"/runs/{run}")
    page.get_by_role("button", name="Cancel").click()
    bench.wait_for_run(run)
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_text("finished").first).to_be_visible()
