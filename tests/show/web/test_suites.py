"""Suites: versions, hashes and cases, and immutable uploads."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, expect

from .conftest import EACH_VIEW, Bench, assert_no_sideways_scroll

HOSTILE = "<img src=x onerror=window.hacked=1>"


def make_case(number: int, **changed: Any) -> str:
    found = {
        "id": f"factual-{number:03}",
        "category": "factual",
        "input": f"Say it, number {number}.",
        "ideal": ["so", HOSTILE],
        "assertion": {"type": "contains_any", "case_sensitive": False},
        "metadata": {"difficulty": "easy", "tokens_est": 8, "tags": ["short", HOSTILE]},
    }
    return json.dumps({**found, **changed}) + "\n"


def make_jsonl(count: int) -> str:
    return "".join(map(make_case, range(count)))


def upload_suite(page: Page, version: str, *files: Path) -> None:
    page.get_by_role("textbox", name="Version").fill(version)
    page.get_by_label("Choose .jsonl files").set_input_files(files)
    expect(page.locator("main li b")).to_have_count(len(files))
    expect(page.locator("main [role=alert] .warn")).to_have_count(0)  # gone once the new files replace the earlier ones
    page.get_by_role("button", name="Upload").click()


def test_versions_show_tiers_counts_and_copyable_hashes(bench: Bench) -> None:
    said = bench.client.get("/api/suites/v1.0").data["tiers"]["cheap"]
    page = bench.open("/suites")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    row = page.get_by_role("row").filter(has_text="cheap").first
    expect(row).to_contain_text(f"{said['testCount']}")
    expect(row).to_contain_text(f"{said['estimatedTokens']:,}")
    expect(page.get_by_text("built in").first).to_be_visible()
    row.get_by_role("button", name="Copy the hash of v1.0 cheap").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == said["hash"]
    run = row.get_by_role("link", name="Run tier cheap of v1.0").get_attribute("href") or ""
    assert (urlsplit(run).path, parse_qs(urlsplit(run).query)) == ("/runs/new", {"suite": ["v1.0"], "tier": ["cheap"]})


def test_an_uploaded_version_can_be_viewed_and_never_changes(bench: Bench, tmp_path: Path) -> None:
    full, smoke = tmp_path / "full.jsonl", tmp_path / "smoke.jsonl"
    full.write_text(make_jsonl(60), encoding="utf-8")
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": f"مرحبا {HOSTILE}"}]
    smoke.write_text(make_case(1, input=chat, ideal=None, assertion={"type": "is_json"}), encoding="utf-8")
    page = bench.open("/suites", expects_errors=True)
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_text("Choose a .jsonl file first")).to_be_visible()
    upload_suite(page, "team-1", full, smoke)
    page.wait_for_url("**/suites/team-1")
    expect(page.get_by_role("heading", level=1)).to_have_text("team-1")

    page.get_by_role("link", name="full", exact=True).click()
    expect(page.get_by_text("1 to 25 of 60 cases")).to_be_visible()
    page.get_by_role("link", name="Next page").click()
    expect(page.get_by_text("26 to 50 of 60 cases")).to_be_visible()
    page.get_by_role("textbox", name="Search").fill("FACTUAL-05")
    page.keyboard.press("Enter")
    expect(page.get_by_text("1 to 10 of 10 cases")).to_be_visible()
    assert parse_qs(urlsplit(page.url).query) == {"tier": ["full"], "text": ["FACTUAL-05"]}
    page.get_by_text("factual-053").click()
    opened = page.locator("details[open]")
    expect(opened).to_contain_text("Passes when the answer contains one of")
    expect(opened).to_contain_text(HOSTILE)
    expect(opened).to_contain_text("Say it, number 53.")
    page.get_by_role("textbox", name="Search").fill("zeppelin")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="Show all").click()
    expect(page.get_by_text("1 to 25 of 60 cases")).to_be_visible()
    page.get_by_role("link", name="smoke", exact=True).click()
    page.locator("summary").first.click()
    expect(page.locator("details[open]")).to_contain_text("Be brief.")
    spoken = page.locator("details[open] .speech").last
    assert spoken.evaluate("each => getComputedStyle(each).direction") == "rtl"
    assert page.evaluate("window.hacked") is None

    page.goto(bench.url + "/suites")
    smoke.write_text(make_jsonl(2), encoding="utf-8")
    upload_suite(page, "team-1", full, smoke)
    refused = page.get_by_role("alert").filter(has_text="so the content of a version must never change")
    expect(refused).to_contain_text("team-1")
    upload_suite(page, "v1.0", full, smoke)
    expect(page.get_by_role("alert").filter(has_text="v1.0 is already built-in with other content")).to_be_visible()
    assert bench.client.get("/api/suites/team-1").data["tiers"]["smoke"]["testCount"] == 1


def test_every_error_in_an_upload_has_a_position_and_the_files_are_kept(bench: Bench, tmp_path: Path) -> None:
    wrong = tmp_path / "smoke.jsonl"
    wrong.write_text(make_case(1) + make_case(2, category="factal"), encoding="utf-8")
    (tmp_path / "notes.txt").write_text("no suite", encoding="utf-8")
    page = bench.open("/suites")
    upload_suite(page, "team-2", wrong)
    expect(page.get_by_role("alert")).to_contain_text("smoke.jsonl:2:35")
    expect(page.locator("main li b")).to_have_text(["smoke"])
    wrong.write_text(make_case(1), encoding="utf-8")
    page.get_by_label("Choose .jsonl files").set_input_files(wrong)
    expect(page.locator("main li", has=page.locator("b"))).to_have_text("smoke: 1 line")  # the new one has arrived
    page.get_by_role("button", name="Upload").click()
    page.wait_for_url("**/suites/team-2")


def test_repeated_errors_in_an_upload_are_listed_once(bench: Bench, tmp_path: Path) -> None:
    wrong = tmp_path / "smoke.jsonl"
    wrong.write_text("".join(make_case(number, category="factal") for number in range(50)), encoding="utf-8")
    page = bench.open("/suites")
    upload_suite(page, "team-3", wrong)
    refused = page.get_by_role("alert").filter(has_text="Not uploaded: 50 errors.")
    expect(refused.locator("li")).to_have_count(1)
    expect(refused.locator("li")).to_contain_text("(50 times)")
    expect(refused.locator("li")).to_contain_text("smoke.jsonl:1:")


def test_an_unknown_version_or_tier_shows_an_error(bench: Bench) -> None:
    expect(bench.open("/suites/v9").get_by_role("alert")).to_contain_text('o suite version "v9"')
    expect(bench.open("/suites/v1.0?tier=none").get_by_role("alert")).to_contain_text('has no tier "none"')


@EACH_VIEW
def test_the_suites_pages_are_accessible(bench: Bench, axe: Callable[[Page], None], width: int, theme: Any) -> None:
    page = bench.open("/suites", width=width, theme=theme)
    assert_no_sideways_scroll(page)
    axe(page)
    page.goto(bench.url + "/suites/v1.0?tier=comprehensive")
    page.locator("summary").first.click()
    assert_no_sideways_scroll(page)
    axe(page)
