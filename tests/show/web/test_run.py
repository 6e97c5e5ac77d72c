"""The page of a run: live updates, cancel and resume, summary, filters and deletion; accessible, and used by several people."""

import re
from collections.abc import Callable
from typing import Literal

from playwright.sync_api import Page, expect

from .conftest import EACH_VIEW, NARROW, Bench, assert_no_sideways_scroll

HOSTILE = "<script>window.caught=1</script><img src=x onerror=window.caught=1> שלום 👋 مرحبا"


def read_caption(page: Page) -> str:
    return page.locator("#main .card p.quiet").first.inner_text()


def test_a_run_is_followed_live_cancelled_and_resumed_by_keyboard(bench: Bench) -> None:
    run = bench.run(wait=False, models=["fake:latency=2.5"], limits={"concurrency": 1})
    page, theirs = bench.open(f"/runs/{run}"), bench.open(f"/runs/{run}")
    expect(page.get_by_role("heading", level=1)).to_have_text("v1.0-cheap")
    meter = page.get_by_role("progressbar")
    expect(meter).to_have_attribute("aria-valuemax", "10")
    expect(page.get_by_text(re.compile(r"^[1-9] of 10 results · [\d.]+ a second · about \d+ s left$"))).to_be_visible()
    newest = page.get_by_role("heading", name="Newest failures")
    expect(newest).to_be_visible()
    failures = page.locator(".results").first.locator("tbody tr")
    expect(failures.nth(1)).to_contain_text("failed")
    addresses = failures.get_by_role("link").evaluate_all("all => all.map(each => each.getAttribute('href'))")
    seqs = [int(each.rsplit("/", 1)[1]) for each in addresses]
    assert seqs == sorted(seqs, reverse=True), "the newest stands first"
    expect(page.locator(".progress .outcomes")).to_contain_text("failed")
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete run").click()
    expect(page.locator(".q-notification")).to_contain_text("cancel")  # the API refuses, and the page says why
    press_by_keyboard(page, "Cancel")
    for each in (page, theirs):
        expect(each.get_by_role("status").filter(has_text="cancelled")).to_be_visible()
    expect(page.locator(".warn")).to_contain_text(re.compile(r"The run is cancelled.*\. \d of 10 results are stored"))
    expect(meter).to_have_count(0)
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
    stored = bench.client.get(f"/api/runs/{run}?summary=false").data["stored"]
    assert 0 < stored < 10
    expect(page.locator(".pager")).to_have_text(f"1 to {stored} of {stored} results")
    press_by_keyboard(page, "Resume")
    for each in (page, theirs):
        expect(each.get_by_role("progressbar")).to_be_visible()
    for each in (page, theirs):
        expect(each.get_by_role("status").filter(has_text="finished")).to_be_visible(timeout=60_000)
        expect(each.locator(".pager")).to_have_text("1 to 10 of 10 results")
        expect(each.locator(".card p.quiet")).to_contain_text("with a verdict")
    expect(newest).to_have_count(0)


def press_by_keyboard(page: Page, words: str) -> None:
    """Press a button by keyboard alone."""
    expect(page.get_by_role("button", name=words)).to_be_visible()
    page.locator("#main").focus()
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.innerText") == words:
            page.keyboard.press("Enter")
            return
    raise AssertionError(f"{words} cannot be reached by keyboard")


def test_the_summary_matches_the_api_with_interval_and_other_outcomes(bench: Bench) -> None:
    run = bench.run(models=["fake:rejected=0.3,latency=0.01,jitter=0.2"], systemPrompt="Be <b>brief</b>.")
    found = bench.client.get(f"/api/runs/{run}").data
    overall = found["summary"]["overall"]
    assert overall["errored"], "the run must have something apart"
    page = bench.open(f"/runs/{run}")
    expect(page.locator(".big")).to_have_text("0 %")
    low, high = (f"{100 * end:.1f}" for end in overall["interval"])
    scored = overall["passed"] + overall["failed"]
    assert (
        read_caption(page)
        == f"passed, of {scored} with a verdict. With 95 % confidence the true rate is {low}–{high} %."
    )
    for name in ("failed", "errored", "unscored"):
        if overall[name]:
            expect(page.locator(".outcomes")).to_contain_text(f"{overall[name]} {name}")
    reasons = page.get_by_role("table", name="Why results have no verdict")
    expect(reasons).to_contain_text(found["summary"]["reasons"][0]["reason"])
    for name in ("By category", "By difficulty", "By check", "By tag"):
        expect(page.get_by_role("heading", name=name)).to_be_visible()
    for name in ("By language", "By variant"):
        expect(page.get_by_role("heading", name=name)).to_have_count(0)
    latency = found["aggregates"]["latencySeconds"]
    drawn = page.get_by_role("img", name=re.compile(r"^Latency: \d answers"))
    expect(drawn.locator("rect")).to_have_count(sum(each["count"] > 0 for each in latency["histogram"]))
    assert f"{latency['overall']['count']} answers" in (drawn.get_attribute("aria-label") or "")
    expect(page.locator(".labels").first).to_contain_text("p50")
    for words in ("JSON", "JSON Lines", "CSV", "JUnit", "Markdown", "HTML"):
        to = page.get_by_role("link", name=words, exact=True).get_attribute("href")
        assert bench.client.get(to or "").status == 200
    page.get_by_text("The plan: parameters").click()
    expect(page.get_by_role("region", name="System prompt")).to_have_text("Be <b>brief</b>.")
    expect(page.locator(".sheet")).to_contain_text("temperature 0")
    again = page.get_by_role("link", name="Run again").get_attribute("href") or ""
    assert again.startswith("/runs/new?suite=v1.0&tier=cheap&model=fake%3Arejected")
    assert "systemPrompt=Be+%3Cb%3Ebrief" in again
    assert page.get_by_role("link", name="Compare").last.get_attribute("href") == f"/compare?new={run}"


def test_several_models_have_separate_rates_and_no_pooled_one(bench: Bench) -> None:
    run = bench.run(models=["fake:latency=0.02", "fake:echo"], repeats=2)
    page = bench.open(f"/runs/{run}")
    rates = page.get_by_role("table", name="Pass rate by model")
    expect(rates.get_by_role("row")).to_have_count(3)
    expect(rates.get_by_role("rowheader")).to_have_text(["fake:latency=0.02", "fake:echo"])  # as in the heading
    expect(page.get_by_text("10 cases, 2 models, 2 repeats: the intervals count cases, not answers.")).to_be_visible()
    expect(page.locator(".big")).to_have_count(0)
    expect(page.locator(".figure")).to_have_count(2)
    by_category = page.get_by_role("table", name="Pass rate by category")
    categories = bench.client.get(f"/api/runs/{run}").data["summary"]["by"]["category"]
    expect(by_category.get_by_role("row")).to_have_count(1 + 2 * len(categories))
    first = by_category.get_by_role("row", name=re.compile(f"^{min(categories)} fake:echo"))
    expect(first).to_contain_text(" of ")
    expect(page.get_by_text("together")).to_have_count(0)
    results = page.get_by_role("table", name="Results", exact=True)
    expect(results.get_by_role("columnheader", name="Model", exact=True)).to_be_visible()
    expect(page.get_by_role("cell", name="fake:echo, repeat 2").first).to_be_visible()
    page.get_by_label("Model").click()
    page.get_by_role("option", name="fake:echo").click()
    expect(page).to_have_url(re.compile(r"model=fake%3Aecho#results$"))
    expect(page.locator(".pager")).to_have_text("1 to 20 of 20 results")


def test_results_are_filtered_by_the_address_and_back_undoes_it(bench: Bench) -> None:
    run = bench.run(models=["fake:rejected=0.4,echo"])
    counts = bench.client.get(f"/api/runs/{run}").data["summary"]["overall"]
    assert counts["failed"]
    assert counts["errored"]
    page = bench.open(f"/runs/{run}")
    page.set_viewport_size({"width": 1600, "height": 300})
    rows = page.locator(".results tbody tr")
    expect(rows).to_have_count(10)
    heading = page.get_by_role("heading", name="Results", exact=True)
    expect(heading).not_to_be_in_viewport()
    page.get_by_role("link", name="Results").click()
    expect(heading).to_be_in_viewport()
    page.go_back()
    page.get_by_label("Outcome").click()
    page.get_by_role("option", name="errored").click()
    expect(page).to_have_url(f"{bench.url}/runs/{run}?outcome=errored#results")
    expect(rows).to_have_count(counts["errored"])
    expect(page.locator(".results .outcome.errored")).to_have_count(counts["errored"])
    expect(rows.first).to_contain_text("no reply")
    page.go_back()
    expect(rows).to_have_count(10)
    case = page.get_by_label("Case", exact=True)
    case.fill("TUAL-001")  # a part of it, in any case
    case.press("Enter")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("factual-001")
    expect(page).to_have_url(re.compile("text=TUAL-001"))
    expect(case).to_have_value("TUAL-001")
    page.get_by_role("link", name="Clear filters").click()
    expect(rows).to_have_count(10)
    page.goto(f"{bench.url}/runs/{run}?outcome=skipped&case=nothing")
    expect(page.get_by_text("No results match these filters.")).to_be_visible()
    page.locator(".outcomes").get_by_role("link", name="failed").click()
    expect(rows).to_have_count(counts["failed"])


def test_an_invalid_filter_in_the_address_is_reported_and_the_run_shown(bench: Bench) -> None:
    run = bench.run(models=["fake:echo"])
    for query in ("outcome=odd", "page=0", "page=many"):
        page = bench.open(f"/runs/{run}?{query}")
        expect(page.locator(".warn")).to_contain_text(query.partition("=")[0].capitalize())
        expect(page.get_by_role("heading", level=1)).to_have_text("v1.0-cheap")
        expect(page.locator(".big")).to_be_visible()
    page.get_by_role("link", name="Show all results").click()
    expect(page.locator(".results tbody tr")).to_have_count(10)


def test_an_unknown_run_error_mentions_no_api_routes(bench: Bench) -> None:
    page = bench.open("/runs/nope")
    told = page.locator("#main")
    expect(told).to_contain_text("There is no run")
    expect(told).not_to_contain_text("GET /api")


def test_a_run_that_the_form_cannot_repeat_says_how_to_repeat_it(bench: Bench) -> None:
    elsewhere = "To run it again, use the command line or the API"
    page = bench.open(f"/runs/{bench.run(parameters={'top_k': 5})}")
    expect(page.get_by_text(elsewhere)).to_be_visible()
    expect(page.get_by_role("link", name="Run again")).to_have_count(0)
    page = bench.open(f"/runs/{bench.run()}")
    expect(page.get_by_role("link", name="Run again")).to_be_visible()
    expect(page.get_by_text(elsewhere)).to_have_count(0)


def test_a_run_without_results_says_so(bench: Bench) -> None:
    run = bench.run(models=["fake:authentication_failed=1"])
    assert bench.client.get(f"/api/runs/{run}?summary=false").data["stored"] == 0
    page = bench.open(f"/runs/{run}", width=NARROW)
    expect(page.locator(".big")).to_have_text("No results")
    expect(page.get_by_text("The run ended before any request was answered.")).to_be_visible()
    expect(page.get_by_text("no check gave a verdict")).to_have_count(0)


def test_results_are_paginated(bench: Bench) -> None:
    run = bench.run(models=["fake:echo"], repeats=6)
    page = bench.open(f"/runs/{run}")
    rows = page.get_by_role("table", name="Results", exact=True).locator("tbody tr")
    expect(rows).to_have_count(50)
    page.get_by_role("link", name="Next page").click()
    expect(rows).to_have_count(10)
    expect(page).to_have_url(f"{bench.url}/runs/{run}?page=2#results")
    expect(page.locator(".pager")).to_contain_text("51 to 60 of 60 results")


def test_deleting_a_run_needs_confirmation_and_is_seen_by_all_viewers(bench: Bench) -> None:
    run = bench.run(models=["fake:echo"])
    mine, theirs = bench.open(f"/runs/{run}"), bench.open(f"/runs/{run}")
    mine.get_by_role("button", name="Delete").click()
    dialog = mine.get_by_role("alertdialog")
    expect(dialog).to_contain_text("The 10 results of this run are deleted too")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_have_count(0)
    assert bench.client.get(f"/api/runs/{run}?summary=false").status == 200
    mine.get_by_role("button", name="Delete").click()
    mine.get_by_role("alertdialog").get_by_role("button", name="Delete run").click()
    expect(mine).to_have_url(f"{bench.url}/runs")
    expect(theirs.get_by_role("heading", level=1)).to_have_text("This run was deleted")
    assert bench.client.get(f"/api/runs/{run}").status == 404
    gone = bench.open(f"/runs/{run}")
    expect(gone.get_by_role("alert")).to_contain_text("There is no run")


def test_scripts_in_names_and_replies_are_escaped(bench: Bench) -> None:
    run = bench.run(models=[f"fake:fixed={HOSTILE}"], systemPrompt=HOSTILE)
    page = bench.open(f"/runs/{run}")
    expect(page.locator(".results tbody tr").first).to_contain_text("<script>window.caught=1</script><img src=x")
    expect(page.get_by_role("status")).to_be_visible()
    expect(page.locator("#main p").filter(has_text="finished")).to_contain_text("fake:fixed=<script>")
    page.get_by_text("The plan: parameters").click()
    expect(page.get_by_role("region", name="System prompt")).to_have_text(HOSTILE)
    assert page.evaluate("window.caught") is None
    assert page.locator("#main img").count() == 0


@EACH_VIEW
def test_the_run_page_is_accessible(
    bench: Bench, axe: Callable[[Page], None], width: int, theme: Literal["light", "dark"]
) -> None:
    live = bench.run(wait=False, models=["fake:latency=1"], repeats=10, limits={"concurrency": 1})
    page = bench.open(f"/runs/{live}", width=width, theme=theme)
    expect(page.get_by_role("heading", name="Newest failures")).to_be_visible()
    assert_no_sideways_scroll(page)
    axe(page)
    link = page.locator(".results").first.get_by_role("link").first
    link.hover()
    moved = wait_for_next_result(page)  # the list may still move until the server knows where the pointer is
    case = link.inner_text()
    for _ in range(2):
        moved = wait_for_next_result(page, moved)
        expect(link).to_have_text(case)  # a control under the pointer does not move away
    link.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(case)
    bench.client.post(f"/api/runs/{live}/cancel")
    run = bench.run(models=["fake:rejected=0.2,latency=0.01,jitter=0.1", "fake:echo"], repeats=2)
    page.goto(f"{bench.url}/runs/{run}")
    expect(page.locator(".pager")).to_be_visible()
    page.get_by_text("The plan: parameters").click()
    assert_no_sideways_scroll(page)
    axe(page)


def wait_for_next_result(page: Page, after: str | None = None) -> str:
    """Wait until the page shows one more result; return the new count."""
    meter = page.get_by_role("progressbar")
    before = after or meter.get_attribute("aria-valuenow") or ""
    expect(meter).not_to_have_attribute("aria-valuenow", before)
    return meter.get_attribute("aria-valuenow") or ""
