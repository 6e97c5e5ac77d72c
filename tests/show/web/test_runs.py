"""The list of runs: its columns, its search, and its live updates."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from pramana.store import open_store

from ..api.test_runs import copy_runs
from .conftest import EACH_VIEW, Bench, assert_no_sideways_scroll
from .workbench import workbench

HOSTILE = "fake:fixed=<img src=x onerror=\"document.title='taken over'\"><script>alert(1)</script> مرحبا 你好"


@contextmanager
def serve_empty_store(browser: Browser, home: Path) -> Iterator[Bench]:
    """Serve an empty store for one test."""
    with workbench(PRAMANA_HOME=str(home)) as client:
        found = Bench(client, home, browser)
        yield found
        found.close()
        assert not found.troubles


@pytest.fixture
def empty_bench(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with serve_empty_store(browser, tmp_path_factory.mktemp("alone")) as found:
        yield found


def find_row(page: Page, run_id: str) -> Locator:
    return page.get_by_role("row").filter(has_text=run_id)


def find_cell(page: Page, run_id: str, label: str) -> Locator:
    return find_row(page, run_id).locator(f'td[data-label="{label}"]')


def list_ids(page: Page) -> list[str]:
    return [str(each.text_content()) for each in page.locator("tbody th .mono").all()]


def read_query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_an_empty_store_gives_advice_and_runs_of_other_users_appear(empty_bench: Bench) -> None:
    page = empty_bench.open("/runs")
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    expect(page.get_by_text("pramana run")).to_be_visible()
    expect(page.locator("#main .empty").get_by_role("link", name="New run")).to_have_attribute("href", "/runs/new")
    expect(page.get_by_label("Search")).to_be_hidden()  # a search in an empty store finds nothing
    page.evaluate("window.stillHere = true")
    first = empty_bench.run()
    expect(find_row(page, first)).to_be_visible()
    expect(find_cell(page, first, "Status")).to_contain_text("finished")
    expect(page.get_by_label("Search")).to_be_visible()
    page.get_by_role("link", name=f"Compare {first} with another run").focus()
    second = empty_bench.run()
    expect(find_row(page, second)).to_be_visible()
    assert list_ids(page) == [second, first]
    expect(page.get_by_text("1 to 2 of 2 runs")).to_be_visible()
    expect(page.get_by_role("link", name=f"Compare {first} with another run")).to_be_focused()
    empty_bench.client.delete(f"/api/runs/{second}")
    expect(find_row(page, second)).to_have_count(0)
    assert page.evaluate("window.stillHere"), "the page was loaded again"


def test_a_row_shows_the_suite_the_models_and_the_outcome(bench: Bench) -> None:
    good = bench.run(models=["fake:rejected=0.5,echo"], repeats=2, judge="fake:fixed=YES")
    both = bench.run(models=["fake:echo", "fake:rejected=1"], repeats=2, judge="fake:fixed=YES")
    bad = bench.run(models=["fake:authentication_failed=1"])
    many = bench.run(models=[f"fake:fixed={number}" for number in range(1, 7)])
    found = {each["id"]: each for each in bench.client.get("/api/runs?outcomes=true").data}
    page = bench.open("/runs")
    named = find_row(page, good).get_by_role("rowheader")
    expect(named.get_by_role("link")).to_have_attribute("href", f"/runs/{good}")
    expect(named).to_contain_text("v1.0-cheap")
    expect(find_cell(page, good, "Models")).to_contain_text("fake:rejected=0.5,echo")
    expect(find_cell(page, good, "Models")).to_contain_text("2 repeats")
    expect(find_cell(page, good, "Status")).to_have_text(re.compile(r"✓\s*finished"))
    low, high = (f"{100 * each:.1f}" for each in found[good]["interval"])
    passed = find_cell(page, good, "Passed")
    expect(passed).to_contain_text(f"{100 * found[good]['passRate']:.1f} %")
    expect(passed).to_contain_text(f"{low}–{high} %")
    assert found[good]["outcomes"]["errored"]
    expect(passed).to_contain_text(f"{found[good]['outcomes']['errored']} errored")
    expect(passed.locator("svg.bar")).to_be_visible()
    expect(find_cell(page, good, "Results")).to_have_text("20 of 20")
    assert [each["passRate"] for each in found[both]["modelRates"]] == [0.2, None]
    rates = r"fake:echo\s*20\.0 %\s*2\.5–55\.6 %\s*fake:rejected=1\s*no verdict"  # no rate over both
    expect(find_cell(page, both, "Passed")).to_have_text(re.compile(rf"^{rates}\s*uncalibrated\s*\S\s*20 errored$"))
    expect(find_cell(page, many, "Passed").get_by_role("link")).to_have_text("6 models")
    expect(find_cell(page, many, "Passed").get_by_role("link")).to_have_attribute("href", f"/runs/{many}")
    expect(find_cell(page, good, "Started (UTC)")).to_contain_text("by local")
    compare = find_row(page, good).get_by_role("link", name=f"Compare {good} with another run")
    expect(compare).to_have_attribute("href", f"/compare?new={good}")
    expect(find_cell(page, bad, "Status")).to_contain_text("stopped")
    expect(find_cell(page, bad, "Status")).to_contain_text("authentication_failed")  # why
    expect(find_cell(page, bad, "Passed")).to_have_text("–")


def test_name_and_note_of_a_run_are_in_the_list_and_on_its_page(bench: Bench) -> None:
    run = bench.run(models=["fake:echo"], name="nightly <b>", note="The new prompt")
    page = bench.open("/runs")
    named = find_row(page, run).get_by_role("rowheader")
    expect(named.get_by_role("link")).to_have_text("nightly <b>")
    expect(named).to_contain_text("v1.0-cheap")
    expect(named).to_contain_text("The new prompt")
    named.get_by_role("link").click()
    expect(page.get_by_text("Name: nightly <b>")).to_be_visible()
    bench.client.call("PATCH", f"/api/runs/{run}", {"note": "The old prompt"})
    expect(page.get_by_text("Note: The old prompt")).to_be_visible()


def test_the_search_runs_when_typing_stops_or_on_enter(bench: Bench) -> None:
    one, other = bench.run(models=["fake:seed=11"]), bench.run(models=["fake:seed=12"])
    page = bench.open("/runs")
    expect(find_row(page, other)).to_be_visible()
    page.get_by_label("Search").press_sequentially("SEED=11")
    expect(find_row(page, other)).to_have_count(0)
    expect(find_row(page, one)).to_be_visible()
    assert read_query(page) == {"text": ["SEED=11"]}
    expect(page.get_by_label("Search")).to_be_focused()
    page.get_by_label("Search").fill("seed=12")
    page.keyboard.press("Enter")
    expect(find_row(page, one)).to_have_count(0)
    expect(find_row(page, other)).to_be_visible()
    page.reload()  # the address is the list
    expect(page.get_by_label("Search")).to_have_value("seed=12")
    expect(find_row(page, other)).to_be_visible()
    assert list_ids(page) == [other]
    page.get_by_label("Search").fill("no run has this")
    expect(page.get_by_role("heading", name="No runs match")).to_be_visible()
    page.get_by_role("link", name="Clear filters").click()
    expect(find_row(page, one)).to_be_visible()
    assert read_query(page) == {}
    expect(page.get_by_label("Search")).to_have_value("")


def test_runs_are_filtered_by_status_model_and_suite(bench: Bench) -> None:
    bench.client.post("/api/library/import", {})
    mine = bench.run(models=["fake:seed=21"])
    stopped = bench.run(models=["fake:out_of_credit=1"])
    spoken = bench.run(
        suite=None, tier=None, scenarios={"difficulty": "easy", "language": "en"}, models=["fake:seed=21"]
    )
    page = bench.open("/runs")
    expect(find_row(page, spoken).get_by_role("rowheader")).to_contain_text("difficulty easy")
    page.get_by_label("Status").click()
    page.get_by_role("option", name="stopped").click()
    expect(find_row(page, mine)).to_have_count(0)
    expect(find_row(page, stopped)).to_be_visible()
    assert read_query(page) == {"status": ["stopped"]}
    page.goto(f"{bench.url}/runs")
    page.get_by_label("Model").fill("fake:seed=21")
    page.get_by_label("Model").press("Enter")
    expect(find_row(page, stopped)).to_have_count(0)
    assert list_ids(page) == [spoken, mine]
    page.get_by_label("Suite").fill("scenarios")
    page.get_by_label("Suite").blur()
    expect(find_row(page, mine)).to_have_count(0)
    assert list_ids(page) == [spoken]
    assert read_query(page) == {"model": ["fake:seed=21"], "suite": ["scenarios"]}
    suggested = page.locator("datalist option").evaluate_all("all => all.map(each => each.value)")
    assert {"fake:seed=21", "fake:out_of_credit=1", "v1.0-cheap"} <= set(suggested)


def test_an_invalid_filter_in_the_address_is_reported(bench: Bench) -> None:
    page = bench.open("/runs?status=sleeping")
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    expect(page.get_by_role("alert")).to_contain_text("Status")
    bench.run()
    page = bench.open("/runs?page=900")
    expect(page.get_by_role("heading", name="This page is empty")).to_be_visible()
    page.get_by_role("link", name="First page").click()
    expect(page.get_by_role("table")).to_be_visible()


def test_a_running_row_updates_without_scrolling_the_page(bench: Bench) -> None:
    page = bench.open("/runs")
    run_id = bench.run(wait=False, models=["fake:latency=1.5"], limits={"concurrency": 1})
    meter = page.get_by_role("progressbar", name=f"Results of {run_id}")
    expect(meter).to_be_visible()
    page.get_by_role("link", name=f"Compare {run_id} with another run").focus()
    seen: list[int] = []
    until = time.monotonic() + 20
    while len(set(seen)) < 3 and time.monotonic() < until:
        seen.append(int(meter.get_attribute("aria-valuenow") or 0))
        page.wait_for_timeout(100)
    assert len(set(seen)) >= 3, seen
    assert seen == sorted(seen)
    expect(find_cell(page, run_id, "Status")).to_contain_text("running")
    expect(find_cell(page, run_id, "Results")).to_have_text("10 of 10", timeout=60_000)
    expect(find_cell(page, run_id, "Status")).to_contain_text("finished")
    expect(meter).to_have_count(0)
    expect(find_cell(page, run_id, "Passed")).to_contain_text("%")
    expect(page.get_by_role("link", name=f"Compare {run_id} with another run")).to_be_focused()


def test_scripts_in_names_are_escaped(bench: Bench) -> None:
    run_id = bench.run(models=[HOSTILE])
    page = bench.open("/runs")
    expect(find_cell(page, run_id, "Models")).to_contain_text(HOSTILE)
    assert page.locator("#main img, #main script").count() == 0
    assert "taken over" not in page.title()
    page = bench.open("/runs?text=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E%22'")
    expect(page.get_by_role("heading", name="No runs match")).to_be_visible()
    expect(page.get_by_label("Search")).to_have_value("<img src=x onerror=alert(1)>\"'")
    assert page.locator("#main img").count() == 0


@EACH_VIEW
def test_the_list_of_runs_is_accessible(bench: Bench, axe: Callable[[Page], None], width: int, theme: str) -> None:
    for model in (HOSTILE + "x" * 300, "fake:authentication_failed=1"):
        if not bench.client.get(f"/api/runs?{urlencode({'model': model})}").data:
            bench.run(models=[model])
    slow = bench.run(wait=False, models=["fake:latency=30"])
    page = bench.open("/runs?page=1", width=width, theme=theme)  # type: ignore[arg-type]
    expect(page.get_by_role("progressbar", name=f"Results of {slow}")).to_be_visible()
    assert_no_sideways_scroll(page)
    axe(page)
    bench.client.post(f"/api/runs/{slow}/cancel")
    page.get_by_label("Search").fill("no run has this")
    expect(page.get_by_role("heading", name="No runs match")).to_be_visible()
    assert_no_sideways_scroll(page)


@pytest.mark.slow  # the same bar as in benchmarks.pages, whose result is recorded
def test_listing_10000_runs_is_about_as_fast_as_listing_100(browser: Browser, tmp_path: Path) -> None:
    with serve_empty_store(browser, tmp_path / "few") as few, serve_empty_store(browser, tmp_path / "many") as many:
        for bench, more in ((few, 99), (many, 9_999)):
            first = bench.run()
            store = open_store(f"sqlite:///{bench.home / 'pramana.sqlite3'}")
            copy_runs(store, more)
            store.close()
        loads = {bench.url: (bench.open("/runs"), list[float]()) for bench in (few, many)}
        for _ in range(9):  # alternating, so that other load slows both
            for url, (page, times) in loads.items():
                began = time.perf_counter()
                page.goto(f"{url}/runs")
                expect(page.locator("tbody tr")).to_have_count(50)
                expect(page.locator("tbody tr").last.locator("svg.bar")).to_be_visible()
                times.append(time.perf_counter() - began)
        expect(loads[few.url][0].get_by_text("1 to 50 of 100 runs")).to_be_visible()
        page, _ = loads[many.url]
        expect(page.get_by_text("1 to 50 of 10,000 runs")).to_be_visible()
        of_few, of_many = (sorted(times)[4] for _, times in loads.values())
        assert of_many <= 1.5 * of_few, (of_few, of_many)
        page.get_by_role("link", name="Next page").click()
        expect(page.get_by_text("51 to 100 of 10,000 runs")).to_be_visible()
        assert read_query(page) == {"page": ["2"]}
        page.goto(f"{many.url}/compare?new={first}")
        unfound = (
            "No earlier run has the same cases, among the newest 50 of this suite. Choose a run to compare it with."
        )
        expect(page.get_by_text(unfound)).to_be_visible()
