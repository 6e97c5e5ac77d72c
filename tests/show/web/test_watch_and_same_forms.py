"""The forms of a watch and of a test of two endpoints, sent from a browser: wrong values, and what a right one starts."""

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from .closed import TokenBench, serve_with_tokens
from .conftest import NARROW, Bench, assert_no_sideways_scroll


@pytest.fixture(scope="module")
def token_bench(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[TokenBench]:
    with serve_with_tokens(tmp_path_factory.mktemp("home"), browser) as found:
        yield found


@pytest.fixture(scope="module")
def module_bench(token_bench: TokenBench) -> Bench:
    return token_bench.bench


@pytest.fixture
def admin(token_bench: TokenBench) -> str:
    return token_bench.tokens["admin"]


def find_error(page: Page, label: str) -> Locator:
    """Return the error that stands at a field; the last one, as an earlier error fades out beside it."""
    return page.locator(".q-field", has=page.get_by_label(label, exact=True)).get_by_role("alert").last


def test_a_watch_is_started_measured_published_and_stopped_on_its_pages(
    bench: Bench, admin: str, axe: Callable[[Page], None]
) -> None:
    page = bench.open("/drift/new", width=NARROW, token=admin)
    model, url = page.get_by_label("Model", exact=True), page.get_by_label("Webhook URL (optional)")
    secret, start = (
        page.get_by_label("Secret of the webhook (optional)"),
        page.get_by_role("button", name="Start watch"),
    )
    wrong = {
        "Budget a day (USD, optional)": ("-1", "Budget a day (USD): enter a number more than 0"),
        "Time of day (UTC, optional)": ("25:00", 'such as 03:00, found "25:00"'),
        "Days of the baseline": ("3", "Days of the baseline: enter a whole number from 14 to 365, found 3"),
        "Name (optional)": ("x" * 101, "Name: enter text of at most 100 characters"),
    }
    for label, (value, _) in wrong.items():
        page.get_by_label(label).fill(value)
    start.click()
    expect(find_error(page, "Model")).to_have_text("Model: name a model")
    expect(model).to_be_focused()
    for label, (_, message) in wrong.items():
        expect(find_error(page, label)).to_contain_text(message)
    assert_no_sideways_scroll(page)
    axe(page)
    budget = page.get_by_label("Budget a day (USD, optional)")
    budget.fill("")
    budget.press_sequentially("tn")  # a number field takes no words
    expect(budget).to_have_value("")
    page.get_by_label("Time of day (UTC, optional)").fill("23:59")
    page.get_by_label("Days of the baseline").fill("14")
    page.get_by_label("Name (optional)").fill("help desk")
    model.fill("nonsense:model")
    start.click()
    expect(find_error(page, "Model")).to_contain_text('Model: unknown provider "nonsense"')
    model.fill("fake:echo")
    url.fill("http://10.0.0.1/hook")
    start.click()
    expect(find_error(page, "Webhook URL (optional)")).to_contain_text("10.0.0.1 is not on the public Internet")
    url.fill("")
    secret.fill("signs")
    start.click()
    expect(find_error(page, "Webhook URL (optional)")).to_contain_text("name the URL of the webhook too")
    secret.fill("")
    page.get_by_label("Cases").click()
    page.get_by_role("option", name="v1.0, cheap: 10 cases").click()
    expect(page.get_by_role("complementary")).to_contain_text("10 cases")
    start.click()
    page.wait_for_url(re.compile(r"/drift/w[\w-]+$"))
    assert_first_day_and_controls(bench, page, axe)


def test_enter_in_a_model_field_starts_nothing(bench: Bench, admin: str, token_bench: TokenBench) -> None:
    client = token_bench.client("admin")
    before = [len(client.get(path).data) for path in ("/api/same", "/api/watches")]
    page = bench.open("/drift/new", token=admin)
    model, estimate = page.get_by_label("Model", exact=True), page.get_by_role("complementary")
    model.press("Enter")
    expect(estimate).to_contain_text("Simulated with 90.0 % passed, 8 instruments")
    drop = estimate.get_by_role("row", name="20 points")
    expect(drop).to_contain_text(re.compile("8 days.*16 days"))  # those of `pramana plan --detect 20% --cases 25`
    model.fill("fake:echo")
    model.press("Enter")
    page.get_by_label("Repeats per case").fill("2")
    expect(estimate).to_contain_text("50")  # the estimate follows: 25 cases, twice
    expect(find_error(page, "Model")).to_have_count(0)
    assert page.url == f"{bench.url}/drift/new"
    page.goto(f"{bench.url}/same?first=fake")
    for label in ("First model", "Second model"):
        page.get_by_label(label).press("Enter")
    second, calls = page.get_by_label("Second model"), page.get_by_label("Calls, at most")
    calls.fill("3")
    page.get_by_role("button", name="Start test").click()
    expect(find_error(page, "Calls, at most")).to_contain_text("enter a whole number from 40 to 1,000,000, found 3")
    calls.fill("40")
    second.fill("fake")
    for label in ("First model", "Second model"):
        page.get_by_label(label).press("Enter")
    calls.fill("3")
    page.get_by_role("button", name="Start test").click()
    expect(find_error(page, "Calls, at most")).to_contain_text("found 3")
    assert page.url == f"{bench.url}/same?first=fake"
    assert [len(client.get(path).data) for path in ("/api/same", "/api/watches")] == before


def assert_first_day_and_controls(bench: Bench, page: Page, axe: Callable[[Page], None]) -> None:
    """Measure the first day of a new watch, accept, publish, and stop it."""
    expect(page.get_by_role("heading", name="help desk")).to_be_visible()
    expect(page.locator("#main")).to_contain_text("23:59 UTC")
    page.get_by_role("button", name="Check today").click()
    days = page.get_by_role("table", name="Newest days, newest first").locator("tbody tr")
    expect(days).to_have_count(1)
    expect(days).to_contain_text("10 of 10")
    expect(page.get_by_role("button", name="Check today")).to_have_count(0)
    page.get_by_role("button", name="Accept as new baseline").click()
    page.get_by_label("Note (optional)").fill("new system prompt")
    page.get_by_role("button", name="Accept", exact=True).click()
    expect(page.get_by_role("table", name="Periods, newest first")).to_contain_text("new system prompt")
    page.get_by_role("button", name="Make public").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Make public").click()
    public = page.get_by_role("link", name="public page").get_attribute("href")
    stranger = bench.browser.new_context(viewport={"width": NARROW, "height": 900})
    seen = stranger.new_page()
    seen.goto(f"{bench.url}{public}")
    expect(seen.get_by_role("heading", name="help desk")).to_be_visible()
    expect(seen.get_by_role("region", name="State of the watch")).to_contain_text("Collecting the baseline")
    expect(seen.get_by_role("list", name="Legend")).to_contain_text("lowest to highest day of the baseline")
    expect(seen.get_by_role("img", name="Pass rate from")).to_be_visible()
    expect(seen.get_by_role("button")).to_have_count(0)
    assert_no_sideways_scroll(seen)
    axe(seen)
    page.get_by_role("button", name="Stop", exact=True).click()
    page.get_by_role("button", name="Stop watch").click()
    expect(page.get_by_role("button", name="Accept as new baseline")).to_have_count(0)
    seen.reload()
    expect(seen.get_by_text("This watch was stopped.")).to_be_visible()
    page.get_by_role("button", name="Make private").click()
    expect(page.get_by_role("button", name="Make public")).to_be_visible()
    seen.reload()
    expect(seen.get_by_role("heading", name="Page not found")).to_be_visible()
    stranger.close()


def test_two_endpoints_are_tested_from_the_form_and_the_answer_arrives_live(
    bench: Bench, admin: str, axe: Callable[[Page], None]
) -> None:
    page = bench.open("/same?first=fake", width=NARROW, token=admin)
    second, calls = page.get_by_label("Second model"), page.get_by_label("Calls, at most")
    start = page.get_by_role("button", name="Start test")
    start.click()
    expect(find_error(page, "Second model")).to_contain_text("Second model: enter text of at least 1")
    second.fill("nonsense:model")
    calls.fill("3")
    start.click()
    expect(find_error(page, "Calls, at most")).to_contain_text("enter a whole number from 40 to 1,000,000, found 3")
    calls.fill("400")
    start.click()
    expect(find_error(page, "Second model")).to_contain_text('Second model: unknown provider "nonsense"')
    expect(second).to_be_focused()
    assert_no_sideways_scroll(page)
    axe(page)
    second.fill("fake:seed=1")
    start.click()
    answer = page.get_by_role("region", name="The answer")
    expect(answer).to_contain_text("Different: the odds against chance are over 1,000 to 1")
    expect(page.get_by_role("table", name="Evidence by instrument").locator("tbody tr")).not_to_have_count(0)
    expect(page.get_by_role("heading", name="Replies side by side")).to_be_visible()
    assert_no_sideways_scroll(page)
    axe(page)
    page.get_by_role("link", name="Test again").click()
    expect(second).to_have_value("fake:seed=1")
    second.fill("fake")
    calls.fill("60")
    start.click()
    expect(answer).to_contain_text("No difference seen in 23 pairs of calls.")
    expect(answer).to_contain_text("simulated tries with these replies, it would have seen: another model in")
    expect(answer).to_contain_text("Both names are one model at one address")
    page.get_by_role("link", name="Same").first.click()
    tests = page.get_by_role("table", name="Tests of two endpoints, newest first").locator("tbody tr")
    expect(tests.first).to_contain_text("fake and fake (2)")


def test_a_test_of_two_endpoints_is_stopped_in_the_middle_and_resumed(bench: Bench, admin: str) -> None:
    page = bench.open("/same?first=fake:latency=0.3,echo&second=fake:latency=0.3,seed=1,echo", token=admin)
    page.get_by_label("Calls, at most").fill("60")
    page.get_by_role("button", name="Start test").click()
    answer = page.get_by_role("region", name="The answer")
    expect(answer).to_contain_text("pairs of calls so far; an answer needs at least 20.")
    page.get_by_role("button", name="Cancel").click()
    expect(answer).to_contain_text("The run is cancelled")
    expect(answer).to_contain_text("Could not be tested")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("progressbar", name="Calls sent")).to_be_visible()
    expect(answer).to_contain_text(re.compile("No difference seen in 2[23] pairs of calls"))
    expect(page.get_by_role("progressbar", name="Calls sent")).to_have_count(0)
