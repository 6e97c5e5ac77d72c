"""Watches in the workbench: the list, the charts, a day and its replies, and what can be done about an alarm."""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import date, timedelta

import pytest
from playwright.sync_api import Browser, Page, expect

from pramana.store import open_store

from ...stores import sqlite_store
from ...watched_models import add_watch
from .conftest import Bench, assert_no_sideways_scroll
from .workbench import workbench

DAYS, CHANGED, MISSING, CASES = 27, 16, 15, 8


@pytest.fixture(scope="module")
def module_bench(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Bench]:
    """A server whose store has a watch with an alarm and one that has just begun."""
    home = tmp_path_factory.mktemp("home")
    with closing(open_store(sqlite_store(home / "pramana.sqlite3"))) as store:
        add_watch(store, DAYS, changes_after=CHANGED, missing=[MISSING], cases=CASES)
        add_watch(store, 2, name="young", cases=3)
    with workbench(PRAMANA_HOME=str(home)) as client:
        yield Bench(client, home, browser)


def day(number: int) -> str:
    """Return the day with this number; the last one is today."""
    return (date.today() - timedelta(days=DAYS - 1 - number)).isoformat()  # noqa: DTZ011 - the server counts in UTC


def test_watches_are_listed_with_alarms_first(bench: Bench, axe: Callable[[Page], None]) -> None:
    page = bench.open("/drift", width=360)
    rows = page.get_by_role("table", name="Watches, alarms first").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("support-bot")
    expect(rows.first).to_contain_text("✗ Alarm")
    expect(rows.first).to_contain_text("the pass rate fell")
    expect(rows.nth(1)).to_contain_text("Collecting the baseline: 2 of 14 days")
    expect(page.get_by_text("2 active watches: while no model changes")).to_contain_text(
        re.compile(r"standing out among all: support-bot \(p = \S+\)\.$")
    )
    assert_no_sideways_scroll(page)
    axe(page)
    rows.first.get_by_role("link", name="support-bot").click()
    expect(page.get_by_role("region", name="State of the watch")).to_contain_text("Alarm since")
    expect(page.get_by_role("heading", name="What changed")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^safety .*pass rate, down"))).to_be_visible()
    page.locator("details", has_text="failed").first.locator("summary").click()
    expect(page.locator("details ins").first).to_be_visible()
    expect(page.get_by_text("Hash consistency, the community’s measure")).to_contain_text("drifting")
    expect(page.get_by_role("table", name="Days until a drop is seen")).to_be_visible()
    assert_no_sideways_scroll(page)


def test_a_chart_shows_the_days_and_leads_to_their_replies_by_keyboard(
    bench: Bench, axe: Callable[[Page], None]
) -> None:
    page = bench.open("/drift/support-bot")
    chart = page.get_by_role("group", name="Pass rate from")
    expect(chart).to_have_accessible_name(re.compile(f"^Pass rate from {day(0)} to {day(DAYS - 1)}, newest"))
    expect(chart.locator("a.day")).to_have_count(DAYS - 1)
    expect(chart.locator("a.day.alarm b")).to_have_text("✗")
    assert chart.locator("a.day[tabindex='0']").count() == 1
    chart.locator("a.day.newest").focus()
    page.keyboard.press("ArrowLeft")
    expect(chart.locator("a.day").nth(DAYS - 3)).to_be_focused()
    page.keyboard.press("Enter")
    opened = page.locator("#day")
    expect(opened).to_be_focused()
    expect(opened).to_contain_text(day(DAYS - 2))
    expect(opened).to_contain_text(f"{CASES} of {CASES} calls answered")
    assert f"day={day(DAYS - 2)}" in page.url
    axe(page)
    opened.get_by_role("button", name="Close").click()
    expect(opened).not_to_contain_text("calls answered")
    chart.locator("a.day.alarm").click()
    expect(opened).to_contain_text(
        re.compile(r"Alarm since \S+: .*pass rate, down: statistic [\d,]+, over the threshold", re.IGNORECASE)
    )
    opened.get_by_role("link", name="What changed").click()
    expect(page.locator("#change")).to_be_in_viewport()
    expect(opened).to_contain_text("Alarm since")
    page.get_by_role("row", name=day(DAYS - 2)).get_by_role("link", name=f"Replies of {day(DAYS - 2)}").click()
    expect(page.get_by_role("table", name="Results", exact=True).locator("tbody tr")).to_have_count(CASES)


def test_fewer_days_are_shown_by_buttons_and_by_dragging(bench: Bench) -> None:
    page = bench.open("/drift/support-bot")
    chart = page.get_by_role("group", name="Pass rate from").locator("svg")
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 60, steps=3)
    page.mouse.up()
    expect(page.get_by_role("group", name=f"Pass rate from {day(13)}")).to_be_visible()
    assert f"from={day(13)}" in page.url
    page.get_by_role("button", name="30 days").click()
    expect(page.get_by_role("group", name=f"Pass rate from {day(0)} to {day(DAYS - 1)}")).to_be_visible()
    page.get_by_role("button", name="Earlier").click()
    expect(page.get_by_role("group", name=f"Pass rate from {day(-13)}")).to_be_visible()


def test_a_watch_that_begins_says_how_many_days_are_missing(bench: Bench) -> None:
    page = bench.open("/drift/young")
    state = page.get_by_role("region", name="State of the watch")
    expect(state).to_contain_text("Collecting the baseline: 2 of 14 days")
    expect(state.get_by_role("progressbar", name="Days of the baseline")).to_have_attribute("aria-valuenow", "2")


def test_the_page_of_a_young_watch_shows_its_assumed_forecast(bench: Bench) -> None:
    page = bench.open("/drift/young")
    expect(page.get_by_text("Assumed, once the baseline is complete: with 3 cases a day")).to_be_visible()
    forecast = bench.client.get("/api/watches/young/report").data["watch"]["forecast"]
    assert (forecast["cases"], forecast["change"]) == (3, 0.1)
    expect(page.get_by_text(forecast["sentence"])).to_be_visible()


def test_calls_and_cost_of_each_instrument_are_listed(bench: Bench, axe: Callable[[Page], None]) -> None:
    page = bench.open("/drift/new?model=fake", width=360)
    table = page.get_by_role("table", name="Calls and cost of the instruments")
    expect(table.locator("tbody tr")).to_have_count(1)
    page.get_by_label("Instruments (all that apply)").click()
    page.get_by_role("option", name="Answers to border prompts").click()
    page.keyboard.press("Escape")
    expect(table.locator("tbody tr").last).to_contain_text("192")
    expect(table).to_contain_text("first day: up to 192 more, to find its prompts")
    axe(page)
    assert_no_sideways_scroll(page)
    page.goto(f"{bench.url}/drift/young")
    expect(table.locator("tbody tr")).to_contain_text(["Pass rate, New replies, Length of replies, Refusals"])
    assert_no_sideways_scroll(page)


def test_an_alarm_is_accepted_as_a_new_baseline_and_a_watch_is_stopped(bench: Bench) -> None:
    page = bench.open("/drift/support-bot")
    page.get_by_role("button", name="Accept as new baseline").click()
    page.get_by_label("Note (optional)").fill("moved to the new version")
    page.get_by_role("button", name="Accept", exact=True).click()
    expect(page.get_by_text("A new baseline begins with the next day.")).to_be_visible()
    expect(page.get_by_role("table", name="Periods, newest first")).to_contain_text("moved to the new version")
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Stop watch").click()
    expect(page.get_by_role("button", name="Check today")).to_have_count(0)
    page.goto(f"{bench.url}/drift")
    expect(page.get_by_role("row", name="support-bot")).to_contain_text("(stopped)")
