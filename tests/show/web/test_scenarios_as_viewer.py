"""Whoever may only look: the pages of scenarios and suites say what the API refuses, and lose nothing."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from .conftest import Bench
from .test_importing import document, paste
from .test_suites import jsonl
from .workbench import workbench

REFUSAL = "needs the role editor"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Bench]:
    """A server that asks everybody for a token; its client is an administrator."""
    home = tmp_path_factory.mktemp("home")
    with workbench(PRAMANA_HOME=str(home)) as client:
        bench = Bench(client, home, browser)
        bench.client.token = bench.client.post("/api/tokens", {"name": "root", "role": "admin"}).data["token"]
        yield bench


@pytest.fixture
def viewer(bench: Bench) -> str:
    for each in bench.client.get("/api/scenarios?pageSize=500").data:
        bench.client.delete(f"/api/scenarios/{each['id']}")
    bench.client.post("/api/scenarios/import", {"yaml": document("ferry"), "mode": "update"}).data  # noqa: B018
    return str(bench.client.post("/api/tokens", {"name": "looks", "role": "viewer"}).data["token"])


def refused(page: Page) -> None:
    """See the refusal, and put it away."""
    expect(page.get_by_role("alert").filter(has_text=REFUSAL).last).to_be_visible()
    page.get_by_role("button", name="Close").last.click()
    expect(page.get_by_role("button", name="Close")).to_have_count(0)


def test_the_list_stays_as_it_is(bench: Bench, viewer: str) -> None:
    page = bench.open("/scenarios", token=viewer)
    for name in ("Delete Test", "Duplicate Test"):
        page.get_by_role("button", name=name).click()
        refused(page)
    expect(page.locator(".listed tbody tr")).to_have_count(1)
    bench.client.delete("/api/scenarios/ferry").data  # noqa: B018
    page.goto(bench.url + "/scenarios/deleted")
    page.get_by_role("button", name="Restore Test").first.click()
    refused(page)
    page.goto(bench.url + "/scenarios")
    page.get_by_role("button", name="Import all").click()
    refused(page)
    assert bench.client.get("/api/scenarios").data == []


def test_what_was_written_stays_in_the_editor(bench: Bench, viewer: str) -> None:
    page = bench.open("/scenarios/ferry", token=viewer)
    page.locator(".cm-editor[data-ready]").wait_for()
    page.locator(".cm-line", has_text="prompt").click()
    page.keyboard.press("End")
    page.keyboard.type(" and more")
    expect(page.get_by_role("region", name="Preview")).to_contain_text("Hello and more")
    for name in ("Save", "Duplicate"):
        page.get_by_role("button", name=name).click()
        refused(page)
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
    refused(page)
    expect(page.locator(".cm-line", has_text="prompt")).to_have_text("  prompt: Hello and more")
    expect(page.get_by_text("Unsaved changes")).to_be_visible()
    assert bench.client.get("/api/scenarios/ferry").data["prompt"] == "Hello"


def test_what_was_brought_stays_on_the_page(bench: Bench, viewer: str, tmp_path: Path) -> None:
    file = tmp_path / "more.yaml"
    file.write_text(document("more"), encoding="utf-8")
    page = bench.open("/scenarios/import", token=viewer)
    page.locator(".cm-editor[data-ready]").wait_for()
    paste(page, document("pasted"))
    page.get_by_label("Choose files").set_input_files(file)
    expect(page.locator(".file")).to_have_count(2)
    expect(page.get_by_text(f"Nothing would be imported: this {REFUSAL}")).to_be_visible()
    page.get_by_role("button", name="Import", exact=True).click()
    refused(page)
    expect(page.locator(".file")).to_have_count(2)
    expect(page.locator(".cm-content")).to_contain_text("pasted")
    assert [each["id"] for each in bench.client.get("/api/scenarios").data] == ["ferry"]


def test_an_upload_is_refused_and_can_be_done_by_others(bench: Bench, viewer: str, tmp_path: Path) -> None:
    file = tmp_path / "smoke.jsonl"
    file.write_text(jsonl(2), encoding="utf-8")
    page = bench.open("/suites", token=viewer)
    page.get_by_role("textbox", name="Version").fill("team-1")
    page.get_by_label("Choose .jsonl files").set_input_files(file)
    expect(page.locator("main li b")).to_have_text(["smoke"])
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("alert")).to_contain_text(REFUSAL)
    assert bench.client.get("/api/suites/team-1").status == 404


def test_a_token_made_by_command_signs_in_as_well(bench: Bench) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "pramana", "token", "create", "writer", "--role", "editor"],
        env={"PRAMANA_HOME": str(bench.home), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True,
    ).stdout.split()[-1]  # fmt: skip
    page = bench.open("/scenarios/import", token=made)
    page.locator(".cm-editor[data-ready]").wait_for()
    paste(page, document("by-editor"))
    expect(page.get_by_text("1 scenario would be new")).to_be_visible()
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_text("1 scenario is new")).to_be_visible()
