"""The pages of scenarios and suites for a viewer: they show everything and offer nothing that would be refused."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from .conftest import Bench
from .test_importing import make_document, paste
from .workbench import workbench


@pytest.fixture(scope="module")
def module_bench(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Iterator[Bench]:
    """A server that requires tokens; its client is an administrator."""
    home = tmp_path_factory.mktemp("home")
    with workbench(PRAMANA_HOME=str(home)) as client:
        bench = Bench(client, home, browser)
        bench.client.token = bench.client.post("/api/tokens", {"name": "root", "role": "admin"}).data["token"]
        yield bench


@pytest.fixture
def viewer_token(bench: Bench) -> str:
    for each in bench.client.get("/api/scenarios?pageSize=500").data:
        bench.client.delete(f"/api/scenarios/{each['id']}")
    bench.client.post("/api/scenarios/import", {"yaml": make_document("ferry"), "mode": "update"}).data  # noqa: B018
    return str(bench.client.post("/api/tokens", {"name": "looks", "role": "viewer"}).data["token"])


def test_lists_have_no_changing_actions_for_a_viewer(bench: Bench, viewer_token: str) -> None:
    page = bench.open("/scenarios", token=viewer_token)
    expect(page.locator(".listed tbody tr")).to_have_count(1)
    for name in ("Delete", "Duplicate"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    for name in ("New scenario", "Import", "Run"):
        expect(page.locator("#main").get_by_role("link", name=name, exact=True)).to_have_count(0)
    bench.client.delete("/api/scenarios/ferry").data  # noqa: B018
    page.goto(bench.url + "/scenarios/deleted")
    expect(page.get_by_role("row").filter(has_text="ferry")).to_be_visible()
    expect(page.get_by_role("button", name="Restore")).to_have_count(0)
    page.goto(bench.url + "/scenarios")
    expect(page.get_by_role("heading", name="No scenarios yet")).to_be_visible()
    expect(page.get_by_role("button", name="Import")).to_have_count(0)
    page.goto(bench.url + "/suites")
    expect(page.get_by_role("heading", name="v1.0")).to_be_visible()
    expect(page.get_by_role("button", name="Upload")).to_have_count(0)


def test_a_viewer_can_read_but_not_save_a_scenario(bench: Bench, viewer_token: str) -> None:
    page = bench.open("/scenarios/ferry", token=viewer_token)
    page.locator(".cm-editor[data-ready]").wait_for()
    expect(page.get_by_text("Read-only: saving needs the role editor.")).to_be_visible()
    page.locator(".cm-line", has_text="prompt").click()
    page.keyboard.press("End")
    page.keyboard.type(" and more")
    expect(page.get_by_role("region", name="Preview")).to_contain_text("Hello and more")
    for name in ("Save", "Duplicate", "Delete"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    page.keyboard.press("Control+S")
    page.wait_for_timeout(300)
    assert bench.client.get("/api/scenarios/ferry").data["prompt"] == "Hello"


def test_a_token_created_on_the_command_line_can_sign_in(bench: Bench) -> None:
    made = subprocess.run(
        [sys.executable, "-m", "pramana", "token", "create", "writer", "--role", "editor"],
        env={"PRAMANA_HOME": str(bench.home), "PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=True,
    ).stdout.split()[-1]  # fmt: skip
    page = bench.open("/scenarios/import", token=made)
    page.locator(".cm-editor[data-ready]").wait_for()
    paste(page, make_document("by-editor"))
    expect(page.get_by_text("1 scenario would be new")).to_be_visible()
    page.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_text("1 scenario is new")).to_be_visible()
