"""Importing scenarios by paste, file and folder: validated first, previewed, and atomic."""

import asyncio
import re
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from pramana.app.documents import read_document
from pramana.app.scenarios import LocatedValidScenario
from pramana.load.problems import Problems
from pramana.show.web.kit.yaml_editor import CheckedDocument
from pramana.show.web.pages.importing import Document, find_conflicts

from .conftest import EACH_VIEW, Bench, assert_no_sideways_scroll

HOSTILE = "<img src=x onerror=window.hacked=1>"


def make_document(*ids: str, prompt: str = "Hello", type_: str = "task-completion") -> str:
    entry = f"    name: Test\n    type: {type_}\n    prompt: {prompt}\n    expected_outcome: Response\n"
    return 'version: "1.0"\nscenarios:\n' + "".join(f"  - id: {each}\n{entry}" for each in ids)


@pytest.fixture
def clean_bench(bench: Bench) -> Iterator[Bench]:
    yield bench
    for each in bench.client.get("/api/scenarios?pageSize=500").data:
        bench.client.delete(f"/api/scenarios/{each['id']}")


def list_ids(bench: Bench) -> list[str]:
    return [each["id"] for each in bench.client.get("/api/scenarios?pageSize=500").data]


def open_page(bench: Bench, **given: Any) -> Page:
    page = bench.open("/scenarios/import", **given)
    page.locator(".cm-editor[data-ready]").wait_for()
    return page


def paste(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="YAML to import").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def find_preview(page: Page) -> Any:
    return page.locator("[role=status]").filter(has_text="would")


def press_import(page: Page) -> None:
    page.get_by_role("button", name="Import", exact=True).click()


def test_an_error_in_pasted_text_can_be_fixed_and_imported(clean_bench: Bench) -> None:
    page = open_page(clean_bench)
    paste(page, make_document("late-book", "early-book").replace("type: task-completion", "type: tasks", 1))
    expect(page.locator(".wrong-line")).to_have_text("    type: tasks")
    expect(page.locator(".cm-lineNumbers .wrong-number")).to_have_text("5")
    expect(page.get_by_text("Not ready to import: fix pasted text first.")).to_be_visible()
    press_import(page)
    expect(page.get_by_text("Nothing was imported. Fix the marked errors first.")).to_be_visible()
    assert list_ids(clean_bench) == []
    expect(page.locator(".wrong-line")).to_have_text("    type: tasks")  # the text stays

    page.get_by_role("button", name="5:5 Invalid type").click()
    page.keyboard.press("End")
    page.keyboard.press("Shift+Home")
    page.keyboard.type("type: conversation-flow")
    expect(page.locator(".wrong-line")).to_have_count(0)
    expect(page.get_by_text("2 scenarios would be new")).to_be_visible()
    assert list_ids(clean_bench) == []
    press_import(page)
    expect(page.get_by_text("2 scenarios are new")).to_be_visible()
    assert list_ids(clean_bench) == ["early-book", "late-book"]
    expect(page.locator(".cm-content")).to_have_text("")
    page.wait_for_timeout(600)  # longer than the delay after typing
    page.get_by_role("link", name="late-book").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Test")


def test_each_mode_is_previewed_before_the_import(clean_bench: Bench) -> None:
    clean_bench.client.post("/api/scenarios/import", {"yaml": make_document("a", "b")}).data  # noqa: B018
    page = open_page(clean_bench)
    paste(page, make_document("a", "b", "c", prompt="Changed").replace("Changed", "Hello", 1))
    expect(page.get_by_text("1 scenario would be new")).to_be_visible()
    expect(page.get_by_text("2 scenarios would not change")).to_be_visible()

    page.get_by_role("radio", name="Replace the existing scenario").click()
    expect(page.get_by_text("2 scenarios would be replaced")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="a (no changes)")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="b (prompt)")).to_be_visible()

    page.get_by_role("radio", name="Fail: import nothing").click()
    expect(page.get_by_text("2 scenarios already exist")).to_be_visible()
    expect(page.get_by_text('pasted text, line 8: id "b" already exists')).to_be_visible()
    press_import(page)
    expect(page.get_by_role("alert").filter(has_text="2 scenarios already exist").last).to_be_visible()
    assert list_ids(clean_bench) == ["a", "b"]
    expect(page.locator(".cm-content")).to_contain_text("Changed")  # refused text stays

    page.get_by_role("radio", name="Replace the existing scenario").click()
    expect(page.get_by_text("2 scenarios would be replaced")).to_be_visible()
    press_import(page)
    expect(page.get_by_text("2 scenarios were replaced")).to_be_visible()
    assert [clean_bench.client.get(f"/api/scenarios/{each}").data["prompt"] for each in "abc"] == [
        "Hello",
        "Changed",
        "Changed",
    ]


def test_files_are_validated_together_and_can_be_fixed_on_the_page(clean_bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(make_document("a", "b"), encoding="utf-8")
    (tmp_path / "wrong.yml").write_text(make_document("c", type_="tasks").replace("\n", "\r\n"), encoding="utf-8")
    (tmp_path / "twice.yaml").write_text(make_document("d", "a"), encoding="utf-8")
    (tmp_path / "latin.yaml").write_bytes(b"# one\n# caf\xe9\n")
    page = open_page(clean_bench)
    page.get_by_label("Choose files").set_input_files(sorted(tmp_path.iterdir()))
    files = page.locator(".file")
    expect(files).to_have_count(4)
    expect(files.first).to_have_text(re.compile("^good.yaml ✓ 2 scenarios"))
    expect(files.filter(has_text="wrong.yml")).to_contain_text("5:5 Invalid type")
    expect(files.filter(has_text="twice.yaml")).to_contain_text("8:5 id a is also used in good.yaml")
    expect(files.filter(has_text="latin.yaml")).to_contain_text("2:1 the file is not UTF-8 text")
    press_import(page)
    expect(page.get_by_text("Nothing was imported. Fix the marked errors first.")).to_be_visible()
    assert list_ids(clean_bench) == []

    page.get_by_role("button", name="Open wrong.yml in the editor").evaluate("button => { button.dataset.kept = 1 }")
    page.get_by_role("button", name="Leave latin.yaml out").click()
    page.get_by_role("button", name="Leave twice.yaml out").click()
    expect(files).to_have_count(2)
    page.locator("[data-kept]").click()  # the button was not replaced, so a click at any moment works
    expect(page.locator(".wrong-line")).to_have_text("    type: tasks")
    page.locator(".wrong-line").click()
    page.keyboard.press("End")
    page.keyboard.press("Shift+Home")
    page.keyboard.type("type: task-completion")
    expect(page.get_by_text("3 scenarios would be new")).to_be_visible()
    press_import(page)
    expect(page.get_by_text("3 scenarios are new")).to_be_visible()
    expect(files).to_have_count(0)
    assert list_ids(clean_bench) == ["a", "b", "c"]


def test_a_folder_is_read_recursively_and_other_files_are_listed(clean_bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "bank"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.yaml").write_text(make_document("a"), encoding="utf-8")
    (folder / "deep" / f"{HOSTILE}.yml").write_text(
        make_document("日本".encode().hex(), prompt="予約をお願いします"), encoding="utf-8"
    )
    (folder / "notes.txt").write_text("no scenario", encoding="utf-8")
    page = open_page(clean_bench)
    paste(page, make_document("pasted"))
    page.get_by_label("Choose a folder").set_input_files(folder)
    expect(page.locator(".file")).to_have_count(3)
    expect(page.locator(".file").nth(1)).to_contain_text("bank/a.yaml")
    expect(page.locator(".file").nth(2)).to_contain_text(f"bank/deep/{HOSTILE}.yml")
    page.get_by_text("1 left out").click()
    expect(page.get_by_text("bank/notes.txt: not a .yaml or .yml file")).to_be_visible()
    expect(page.get_by_text("3 scenarios would be new")).to_be_visible()
    press_import(page)
    expect(page.get_by_text("3 scenarios are new")).to_be_visible()
    assert list_ids(clean_bench) == ["a", "e697a5e69cac", "pasted"]
    paste(page, "\n")
    page.wait_for_timeout(1000)  # an empty editor is checked again, and the last message stays
    expect(page.get_by_text("3 scenarios are new")).to_be_visible()
    paste(page, make_document("next"))
    expect(page.get_by_text("1 scenario would be new")).to_be_visible()
    expect(page.get_by_text("3 scenarios are new")).to_have_count(0)
    assert clean_bench.client.get("/api/scenarios/e697a5e69cac").data["prompt"] == "予約をお願いします"
    assert page.evaluate("window.hacked") is None


def test_mode_fail_refuses_all_files_if_one_id_exists(clean_bench: Bench, tmp_path: Path) -> None:
    clean_bench.client.post("/api/scenarios/import", {"yaml": make_document("b")}).data  # noqa: B018
    (tmp_path / "one.yaml").write_text(make_document("a"), encoding="utf-8")
    (tmp_path / "two.yaml").write_text(make_document("c", "b"), encoding="utf-8")
    page = open_page(clean_bench)
    page.get_by_label("Choose files").set_input_files(sorted(tmp_path.iterdir()))
    page.get_by_role("radio", name="Fail: import nothing").click()
    expect(page.get_by_text('two.yaml, line 8: id "b" already exists')).to_be_visible()
    press_import(page)
    expect(page.get_by_role("alert").last).to_contain_text("1 scenario already exists")
    assert list_ids(clean_bench) == ["b"]
    expect(page.locator(".file")).to_have_count(2)


def make_checked_document(text: str) -> CheckedDocument:
    placed = read_document(text, Problems())
    places = [each.find_field_position("id") for each in placed]
    scenarios = [each.scenario.to_model_scenario() for each in placed]
    return CheckedDocument(
        text, (), [LocatedValidScenario(each, at.line, at.column) for each, at in zip(scenarios, places, strict=True)]
    )


def test_locating_thousands_of_existing_ids_does_not_block_the_event_loop() -> None:
    ids = [f"scenario-{number}" for number in range(3_000)]
    texts = make_document(*ids), make_document(*reversed(ids))
    one, two = (Document(name, make_checked_document(text)) for name, text in zip(("one", "two"), texts, strict=True))
    late: list[float] = []

    async def others() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.005)
            late.append(time.thread_time() - before)  # how long the loop was blocked

    async def look() -> Any:
        with_others = asyncio.create_task(others())
        found = await find_conflicts([one, two])
        with_others.cancel()
        return found

    began = time.process_time()
    with ThreadPoolExecutor(1) as thread:  # Playwright has an event loop in this thread
        first, second = thread.submit(lambda: asyncio.run(look())).result()
    assert time.process_time() - began < 0.8
    assert max(late, default=0) < 0.3
    assert first.problems == []
    assert [each.line for each in second.problems] == [3 + 5 * number for number in range(3_000)]
    assert {each.column for each in second.problems} == {5}


def test_a_folder_without_scenarios_is_reported(clean_bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no scenario", encoding="utf-8")
    page = open_page(clean_bench)
    press_import(page)
    expect(page.get_by_text("Nothing to import")).to_be_visible()
    page.get_by_label("Choose a folder").set_input_files(tmp_path)
    expect(page.get_by_text("Your selection contains no .yaml or .yml file")).to_be_visible()


@EACH_VIEW
def test_the_import_page_is_accessible(
    clean_bench: Bench, axe: Callable[[Page], None], tmp_path: Path, width: int, theme: Any
) -> None:
    long = tmp_path / f"{'a-very-long-name-' * 8}.yaml"
    long.write_text(make_document("b", type_="tasks"), encoding="utf-8")
    page = open_page(clean_bench, width=width, theme=theme)
    paste(page, make_document("a", prompt=HOSTILE))
    expect(page.get_by_text("1 scenario would be new")).to_be_visible()
    axe(page)
    page.get_by_label("Choose files").set_input_files(long)
    expect(page.locator(".file")).to_have_count(2)
    assert_no_sideways_scroll(page)
    axe(page)
    assert page.evaluate("window.hacked") is None


@contextmanager
def block_writers(bench: Bench) -> Iterator[None]:
    """Block all writers of the store until the context ends, so that an import stays in progress."""
    store = sqlite3.connect(bench.home / "pramana.sqlite3", isolation_level=None)
    store.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        store.execute("ROLLBACK")
        store.close()


def test_files_and_text_added_during_an_import_are_kept(clean_bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "sent.yaml").write_text(make_document("sent"), encoding="utf-8")
    (tmp_path / "late.yaml").write_text(make_document("late"), encoding="utf-8")
    page = open_page(clean_bench)
    paste(page, make_document("pasted"))
    page.get_by_label("Choose files").set_input_files(tmp_path / "sent.yaml")
    expect(page.get_by_text("2 scenarios would be new")).to_be_visible()
    with block_writers(clean_bench):
        press_import(page)
        expect(page.get_by_role("button", name="Import", exact=True)).to_be_disabled()
        page.wait_for_timeout(500)  # it is checked once more, then sent
        page.get_by_label("Choose files").set_input_files(tmp_path / "late.yaml")
        expect(page.locator(".file")).to_have_count(3)
        paste(page, make_document("pasted", "typed"))
        expect(page.get_by_text("4 scenarios would be new")).to_be_visible()
        assert list_ids(clean_bench) == []
    expect(page.get_by_text("Imported", exact=True)).to_be_visible()
    assert list_ids(clean_bench) == ["pasted", "sent"]
    expect(page.locator(".file")).to_have_text([re.compile("^pasted text"), re.compile("^late.yaml")])
    expect(page.locator(".cm-content")).to_contain_text("id: typed")
    expect(page.get_by_text("2 scenarios would be new")).to_be_visible()
    press_import(page)
    expect(page.get_by_text("2 scenarios are new")).to_be_visible()
    expect(page.locator(".file")).to_have_count(0)
    expect(page.locator(".cm-content")).to_have_text("")
    assert list_ids(clean_bench) == ["late", "pasted", "sent", "typed"]


def test_a_file_of_the_same_name_added_during_an_import_is_kept(clean_bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "bank.yaml"
    file.write_text(make_document("first"), encoding="utf-8")
    page = open_page(clean_bench)
    page.get_by_label("Choose files").set_input_files(file)
    page.get_by_role("button", name="Open bank.yaml in the editor").click()
    expect(page.get_by_text("1 scenario would be new")).to_be_visible()
    with block_writers(clean_bench):
        press_import(page)
        page.wait_for_timeout(500)
        file.write_text(make_document("second"), encoding="utf-8")
        page.get_by_label("Choose files").set_input_files(file)
        expect(page.locator(".cm-content")).to_contain_text("id: second")
    expect(page.get_by_text("Imported", exact=True)).to_be_visible()
    assert list_ids(clean_bench) == ["first"]
    expect(page.locator(".file")).to_have_count(1)
    expect(page.locator(".cm-content")).to_contain_text("id: second")
    expect(page.get_by_text("1 scenario would be new")).to_be_visible()


def test_files_with_errors_are_listed_first(clean_bench: Bench, tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"{number:02}.yaml").write_text(make_document(f"id-{number}"), encoding="utf-8")
    (tmp_path / "99.yaml").write_text(make_document("id-99", type_="tasks"), encoding="utf-8")
    page = open_page(clean_bench)
    page.get_by_label("Choose a folder").set_input_files(tmp_path)
    expect(page.locator(".file")).to_have_count(50)
    expect(page.locator(".file").first).to_contain_text("99.yaml ✗ 1 error")
    expect(page.get_by_text("and 11 more")).to_be_visible()
    page.get_by_role("button", name="99.yaml in the editor").click()
    page.locator(".wrong-line").click()
    page.keyboard.press("End")
    page.keyboard.press("Shift+Home")
    page.keyboard.type("type: task-completion")
    expect(page.get_by_text("61 scenarios would be new")).to_be_visible()
    press_import(page)
    expect(page.get_by_text("61 scenarios are new")).to_be_visible()
    assert len(list_ids(clean_bench)) == 61


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("pasted", "message"),
    [("", "Nothing to import"), (make_document("a", type_="tasks"), "Nothing was imported. Fix")],
    ids=["a warning", "an error"],
)
def test_a_notification_is_legible_and_can_be_closed(
    clean_bench: Bench, axe: Callable[[Page], None], theme: Any, pasted: str, message: str
) -> None:
    page = open_page(clean_bench, theme=theme)
    if pasted:
        paste(page, pasted)
        expect(page.locator(".wrong-line")).to_have_count(1)
    press_import(page)
    notification = page.locator(".q-notification").filter(has_text=message)
    expect(notification).to_be_visible()
    axe(page)
    words, ink, ground = (  # axe does not report white on white
        page.evaluate(f"getComputedStyle(document.querySelector('{where}')).{what}")
        for where, what in ((".q-notification__message", "color"), ("body", "color"), (".notice", "backgroundColor"))
    )
    assert words == ink != ground
    notification.get_by_role("button", name="Close").click()
    expect(notification).to_have_count(0)
