"""Scenarios brought in by paste, file and folder: checked first, shown before, and all of it or nothing."""

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
from pramana.app.scenarios import ReadScenario
from pramana.load.problems import Problems
from pramana.show.web.kit.yaml_editor import CheckedDocument
from pramana.show.web.pages.importing import Document, find_conflicts

from .conftest import EACH_VIEW, Bench, no_sideways

HOSTILE = "<img src=x onerror=window.hacked=1>"


def document(*ids: str, prompt: str = "Hello", type_: str = "task-completion") -> str:
    entry = f"    name: Test\n    type: {type_}\n    prompt: {prompt}\n    expected_outcome: Response\n"
    return 'version: "1.0"\nscenarios:\n' + "".join(f"  - id: {each}\n{entry}" for each in ids)


@pytest.fixture
def clean(bench: Bench) -> Iterator[Bench]:
    yield bench
    for each in bench.client.get("/api/scenarios?pageSize=500").data:
        bench.client.delete(f"/api/scenarios/{each['id']}")


def ids_of(bench: Bench) -> list[str]:
    return [each["id"] for each in bench.client.get("/api/scenarios?pageSize=500").data]


def opened(bench: Bench, **given: Any) -> Page:
    page = bench.open("/scenarios/import", **given)
    page.locator(".cm-editor[data-ready]").wait_for()
    return page


def paste(page: Page, text: str) -> None:
    page.get_by_role("textbox", name="YAML to import").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def would(page: Page) -> Any:
    return page.locator("[role=status]").filter(has_text="would")


def press_import(page: Page) -> None:
    page.get_by_role("button", name="Import", exact=True).click()


def test_a_mistake_in_what_was_pasted_is_marked_corrected_and_imported(clean: Bench) -> None:
    page = opened(clean)
    paste(page, document("late-book", "early-book").replace("type: task-completion", "type: tasks", 1))
    expect(page.locator(".wrong-line")).to_have_text("    type: tasks")
    expect(page.locator(".cm-lineNumbers .wrong-number")).to_have_text("5")
    expect(page.get_by_text("Not ready to import: fix pasted text first.")).to_be_visible()
    press_import(page)
    expect(page.get_by_text("Nothing was imported. Fix the marked errors first.")).to_be_visible()
    assert ids_of(clean) == []
    expect(page.locator(".wrong-line")).to_have_text("    type: tasks")  # the text stays

    page.get_by_role("button", name="5:5 Invalid type").click()
    page.keyboard.press("End")
    page.keyboard.press("Shift+Home")
    page.keyboard.type("type: conversation-flow")
    expect(page.locator(".wrong-line")).to_have_count(0)
    expect(page.get_by_text("2 scenarios would be new")).to_be_visible()
    assert ids_of(clean) == []
    press_import(page)
    expect(page.get_by_text("2 scenarios are new")).to_be_visible()
    assert ids_of(clean) == ["early-book", "late-book"]
    expect(page.locator(".cm-content")).to_have_text("")
    page.wait_for_timeout(600)  # longer than what is typed is waited for
    page.get_by_role("link", name="late-book").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Test")


def test_each_mode_is_shown_before_it_is_done(clean: Bench) -> None:
    clean.client.post("/api/scenarios/import", {"yaml": document("a", "b")}).data  # noqa: B018
    page = opened(clean)
    paste(page, document("a", "b", "c", prompt="Changed").replace("Changed", "Hello", 1))
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
    assert ids_of(clean) == ["a", "b"]
    expect(page.locator(".cm-content")).to_contain_text("Changed")  # what was refused stays

    page.get_by_role("radio", name="Replace the existing scenario").click()
    expect(page.get_by_text("2 scenarios would be replaced")).to_be_visible()
    press_import(page)
    expect(page.get_by_text("2 scenarios were replaced")).to_be_visible()
    assert [clean.client.get(f"/api/scenarios/{each}").data["prompt"] for each in "abc"] == [
        "Hello",
        "Changed",
        "Changed",
    ]


def test_files_are_checked_together_and_corrected_here(clean: Bench, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(document("a", "b"), encoding="utf-8")
    (tmp_path / "wrong.yml").write_text(document("c", type_="tasks").replace("\n", "\r\n"), encoding="utf-8")
    (tmp_path / "twice.yaml").write_text(document("d", "a"), encoding="utf-8")
    (tmp_path / "latin.yaml").write_bytes(b"# one\n# caf\xe9\n")
    page = opened(clean)
    page.get_by_label("Choose files").set_input_files(sorted(tmp_path.iterdir()))
    files = page.locator(".file")
    expect(files).to_have_count(4)
    expect(files.first).to_have_text(re.compile("^good.yaml ✓ 2 scenarios"))
    expect(files.filter(has_text="wrong.yml")).to_contain_text("5:5 Invalid type")
    expect(files.filter(has_text="twice.yaml")).to_contain_text("8:5 id a is also used in good.yaml")
    expect(files.filter(has_text="latin.yaml")).to_contain_text("2:1 the file is not UTF-8 text")
    press_import(page)
    expect(page.get_by_text("Nothing was imported. Fix the marked errors first.")).to_be_visible()
    assert ids_of(clean) == []

    page.get_by_role("button", name="Open wrong.yml in the editor").evaluate("button => { button.dataset.kept = 1 }")
    page.get_by_role("button", name="Leave latin.yaml out").click()
    page.get_by_role("button", name="Leave twice.yaml out").click()
    expect(files).to_have_count(2)
    page.locator("[data-kept]").click()  # it was not replaced meanwhile: a press on it at any moment is heard
    expect(page.locator(".wrong-line")).to_have_text("    type: tasks")
    page.locator(".wrong-line").click()
    page.keyboard.press("End")
    page.keyboard.press("Shift+Home")
    page.keyboard.type("type: task-completion")
    expect(page.get_by_text("3 scenarios would be new")).to_be_visible()
    press_import(page)
    expect(page.get_by_text("3 scenarios are new")).to_be_visible()
    expect(files).to_have_count(0)
    assert ids_of(clean) == ["a", "b", "c"]


def test_a_folder_is_searched_to_the_bottom_and_other_files_are_named(clean: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "bank"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.yaml").write_text(document("a"), encoding="utf-8")
    (folder / "deep" / f"{HOSTILE}.yml").write_text(
        document("日本".encode().hex(), prompt="予約をお願いします"), encoding="utf-8"
    )
    (folder / "notes.txt").write_text("no scenario", encoding="utf-8")
    page = opened(clean)
    paste(page, document("pasted"))
    page.get_by_label("Choose a folder").set_input_files(folder)
    expect(page.locator(".file")).to_have_count(3)
    expect(page.locator(".file").nth(1)).to_contain_text("bank/a.yaml")
    expect(page.locator(".file").nth(2)).to_contain_text(f"bank/deep/{HOSTILE}.yml")
    page.get_by_text("1 left out").click()
    expect(page.get_by_text("bank/notes.txt: not a .yaml or .yml file")).to_be_visible()
    expect(page.get_by_text("3 scenarios would be new")).to_be_visible()
    press_import(page)
    expect(page.get_by_text("3 scenarios are new")).to_be_visible()
    assert ids_of(clean) == ["a", "e697a5e69cac", "pasted"]
    paste(page, "\n")
    page.wait_for_timeout(1000)  # an editor without a document is looked at again, and what was done stays said
    expect(page.get_by_text("3 scenarios are new")).to_be_visible()
    paste(page, document("next"))
    expect(page.get_by_text("1 scenario would be new")).to_be_visible()
    expect(page.get_by_text("3 scenarios are new")).to_have_count(0)
    assert clean.client.get("/api/scenarios/e697a5e69cac").data["prompt"] == "予約をお願いします"
    assert page.evaluate("window.hacked") is None


def test_of_several_files_one_that_is_here_refuses_all_with_its_place(clean: Bench, tmp_path: Path) -> None:
    clean.client.post("/api/scenarios/import", {"yaml": document("b")}).data  # noqa: B018
    (tmp_path / "one.yaml").write_text(document("a"), encoding="utf-8")
    (tmp_path / "two.yaml").write_text(document("c", "b"), encoding="utf-8")
    page = opened(clean)
    page.get_by_label("Choose files").set_input_files(sorted(tmp_path.iterdir()))
    page.get_by_role("radio", name="Fail: import nothing").click()
    expect(page.get_by_text('two.yaml, line 8: id "b" already exists')).to_be_visible()
    press_import(page)
    expect(page.get_by_role("alert").last).to_contain_text("1 scenario already exists")
    assert ids_of(clean) == ["b"]
    expect(page.locator(".file")).to_have_count(2)


def checked(text: str) -> CheckedDocument:
    placed = read_document(text, Problems())
    places = [each.place_of("id") for each in placed]
    scenarios = [each.scenario.to_stored() for each in placed]
    return CheckedDocument(
        text, (), [ReadScenario(each, at.line, at.column) for each, at in zip(scenarios, places, strict=True)]
    )


def test_thousands_of_ids_that_stand_elsewhere_are_placed_while_others_are_served() -> None:
    ids = [f"scenario-{number}" for number in range(3_000)]
    texts = document(*ids), document(*reversed(ids))
    one, two = (Document(name, checked(text)) for name, text in zip(("one", "two"), texts, strict=True))
    late: list[float] = []

    async def others() -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.005)
            late.append(time.thread_time() - before)  # for so long the loop was held

    async def look() -> Any:
        with_others = asyncio.create_task(others())
        found = await find_conflicts([one, two])
        with_others.cancel()
        return found

    began = time.process_time()
    with ThreadPoolExecutor(1) as thread:  # Playwright has a loop in this one
        first, second = thread.submit(lambda: asyncio.run(look())).result()
    assert time.process_time() - began < 0.8
    assert max(late, default=0) < 0.3
    assert first.problems == []
    assert [each.line for each in second.problems] == [3 + 5 * number for number in range(3_000)]
    assert {each.column for each in second.problems} == {5}


def test_a_folder_without_scenarios_says_so(clean: Bench, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no scenario", encoding="utf-8")
    page = opened(clean)
    press_import(page)
    expect(page.get_by_text("Nothing to import")).to_be_visible()
    page.get_by_label("Choose a folder").set_input_files(tmp_path)
    expect(page.get_by_text("Your selection contains no .yaml or .yml file")).to_be_visible()


@EACH_VIEW
def test_everyone_can_import(clean: Bench, axe: Callable[[Page], None], tmp_path: Path, width: int, theme: Any) -> None:
    long = tmp_path / f"{'a-very-long-name-' * 8}.yaml"
    long.write_text(document("b", type_="tasks"), encoding="utf-8")
    page = opened(clean, width=width, theme=theme)
    paste(page, document("a", prompt=HOSTILE))
    expect(page.get_by_text("1 scenario would be new")).to_be_visible()
    axe(page)
    page.get_by_label("Choose files").set_input_files(long)
    expect(page.locator(".file")).to_have_count(2)
    no_sideways(page)
    axe(page)
    assert page.evaluate("window.hacked") is None


@contextmanager
def nobody_writes(bench: Bench) -> Iterator[None]:
    """Let everybody who writes to the store wait until the context ends; an import is on its way meanwhile."""
    store = sqlite3.connect(bench.home / "pramana.sqlite3", isolation_level=None)
    store.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        store.execute("ROLLBACK")
        store.close()


def test_what_is_brought_or_typed_while_an_import_is_on_its_way_stays(clean: Bench, tmp_path: Path) -> None:
    (tmp_path / "sent.yaml").write_text(document("sent"), encoding="utf-8")
    (tmp_path / "late.yaml").write_text(document("late"), encoding="utf-8")
    page = opened(clean)
    paste(page, document("pasted"))
    page.get_by_label("Choose files").set_input_files(tmp_path / "sent.yaml")
    expect(page.get_by_text("2 scenarios would be new")).to_be_visible()
    with nobody_writes(clean):
        press_import(page)
        expect(page.get_by_role("button", name="Import", exact=True)).to_be_disabled()
        page.wait_for_timeout(500)  # it is checked once more, then sent
        page.get_by_label("Choose files").set_input_files(tmp_path / "late.yaml")
        expect(page.locator(".file")).to_have_count(3)
        paste(page, document("pasted", "typed"))
        expect(page.get_by_text("4 scenarios would be new")).to_be_visible()
        assert ids_of(clean) == []
    expect(page.get_by_text("Imported", exact=True)).to_be_visible()
    assert ids_of(clean) == ["pasted", "sent"]
    expect(page.locator(".file")).to_have_text([re.compile("^pasted text"), re.compile("^late.yaml")])
    expect(page.locator(".cm-content")).to_contain_text("id: typed")
    expect(page.get_by_text("2 scenarios would be new")).to_be_visible()
    press_import(page)
    expect(page.get_by_text("2 scenarios are new")).to_be_visible()
    expect(page.locator(".file")).to_have_count(0)
    expect(page.locator(".cm-content")).to_have_text("")
    assert ids_of(clean) == ["late", "pasted", "sent", "typed"]


def test_a_file_of_the_same_name_that_comes_while_an_import_is_on_its_way_stays(clean: Bench, tmp_path: Path) -> None:
    file = tmp_path / "bank.yaml"
    file.write_text(document("first"), encoding="utf-8")
    page = opened(clean)
    page.get_by_label("Choose files").set_input_files(file)
    page.get_by_role("button", name="Open bank.yaml in the editor").click()
    expect(page.get_by_text("1 scenario would be new")).to_be_visible()
    with nobody_writes(clean):
        press_import(page)
        page.wait_for_timeout(500)
        file.write_text(document("second"), encoding="utf-8")
        page.get_by_label("Choose files").set_input_files(file)
        expect(page.locator(".cm-content")).to_contain_text("id: second")
    expect(page.get_by_text("Imported", exact=True)).to_be_visible()
    assert ids_of(clean) == ["first"]
    expect(page.locator(".file")).to_have_count(1)
    expect(page.locator(".cm-content")).to_contain_text("id: second")
    expect(page.get_by_text("1 scenario would be new")).to_be_visible()


def test_many_files_are_listed_with_those_that_need_mending_first(clean: Bench, tmp_path: Path) -> None:
    for number in range(60):
        (tmp_path / f"{number:02}.yaml").write_text(document(f"id-{number}"), encoding="utf-8")
    (tmp_path / "99.yaml").write_text(document("id-99", type_="tasks"), encoding="utf-8")
    page = opened(clean)
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
    assert len(ids_of(clean)) == 61


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("pasted", "said"),
    [("", "Nothing to import"), (document("a", type_="tasks"), "Nothing was imported. Fix")],
    ids=["a warning", "a refusal"],
)
def test_a_message_can_be_read_and_closed(
    clean: Bench, axe: Callable[[Page], None], theme: Any, pasted: str, said: str
) -> None:
    page = opened(clean, theme=theme)
    if pasted:
        paste(page, pasted)
        expect(page.locator(".wrong-line")).to_have_count(1)
    press_import(page)
    told = page.locator(".q-notification").filter(has_text=said)
    expect(told).to_be_visible()
    axe(page)
    words, ink, ground = (  # axe says nothing of white on white
        page.evaluate(f"getComputedStyle(document.querySelector('{where}')).{what}")
        for where, what in ((".q-notification__message", "color"), ("body", "color"), (".notice", "backgroundColor"))
    )
    assert words == ink != ground
    told.get_by_role("button", name="Close").click()
    expect(told).to_have_count(0)
