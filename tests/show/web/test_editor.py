"""The scenario editor: YAML errors are marked on their line, and edits are never lost."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect

from .conftest import EACH_VIEW, Bench, assert_no_sideways_scroll
from .workbench import workbench

HOSTILE = "</title></script><img src=x onerror=window.hacked=1>"
FERRY: dict[str, Any] = {
    "id": "ferry",
    "name": "Ferry",
    "type": "task-completion",
    "prompt": "Two adults and a van.",
    "expectedOutcome": "Asks how high the van is",
    "tags": ["sea"],
}


@pytest.fixture
def ferry_bench(bench: Bench) -> Iterator[Bench]:
    bench.client.post("/api/scenarios", FERRY).data  # noqa: B018
    yield bench
    for each in bench.client.get("/api/scenarios?pageSize=500").data:
        bench.client.delete(f"/api/scenarios/{each['id']}")


def editor(page: Page) -> Any:
    return page.get_by_role("textbox", name="Scenario as YAML")


def wait_until_ready(page: Page) -> Page:
    page.locator(".cm-editor[data-ready]").wait_for()
    return page


def open_page(bench: Bench, path: str = "/scenarios/ferry", **given: Any) -> Page:
    return wait_until_ready(bench.open(path, **given))


def find_line(page: Page, number: int) -> Any:
    return page.locator(".cm-line").nth(number - 1)


def replace_line(page: Page, before: str, after: str) -> None:
    """Replace the line that contains a text by typing a new one."""
    page.locator(".cm-line", has_text=before).first.click()
    page.keyboard.press("End")
    page.keyboard.press("Shift+Home")
    page.keyboard.type(after)


def save_changes(page: Page) -> None:
    """Save by the keyboard what was typed: the state says so only once the server has heard of a change."""
    expect(page.get_by_text("Unsaved changes")).to_be_visible()
    page.keyboard.press("Control+s")
    expect(page.get_by_text("All changes are saved")).to_be_visible()


# ── While typing ──


def test_an_error_is_marked_while_typing_and_cleared_when_fixed(ferry_bench: Bench) -> None:
    page = open_page(ferry_bench)
    expect(page.get_by_text("No errors")).to_be_visible()
    expect(find_line(page, 5)).to_have_text("  type: task-completion")
    replace_line(page, "type: task-completion", "type: tasks")
    expect(page.locator(".wrong-line")).to_have_count(1)
    expect(find_line(page, 5)).to_contain_class("wrong-line")
    expect(page.locator(".cm-lineNumbers .wrong-number")).to_have_text("5")
    expect(page.get_by_text("1 error")).to_be_visible()
    message = page.get_by_role("button", name="5:3 Invalid type")
    expect(message).to_contain_text("task-completion")
    page.locator(".wrong-text").hover()
    expect(page.locator(".cm-tooltip")).to_contain_text("Invalid type")

    page.mouse.move(0, 0)
    editor(page).press("Control+Home")
    message.click()
    expect(editor(page)).to_be_focused()
    page.keyboard.type("X")  # the link target of the message
    expect(find_line(page, 5)).to_have_text("  Xtype: tasks")
    page.keyboard.press("Backspace")
    replace_line(page, "type: tasks", "type: conversation-flow")
    expect(page.locator(".wrong-line")).to_have_count(0)
    expect(page.get_by_text("No errors")).to_be_visible()
    expect(page.get_by_role("region", name="Preview")).to_contain_text("conversation-flow")


def test_every_error_and_broken_yaml_has_a_position(ferry_bench: Bench) -> None:
    page = open_page(ferry_bench)
    replace_line(page, "prompt: Two adults", "prompt: [🚢 unclosed")
    expect(page.locator(".wrong-line").first).to_be_visible()
    expect(page.locator(".problems button").first).to_be_visible()
    replace_line(page, "unclosed", "prompt: 🚢🚢 all aboard")
    replace_line(page, "type: task-completion", "type: a")
    replace_line(page, "difficulty: medium", "difficulty: b")
    expect(page.get_by_text("2 errors")).to_be_visible()
    assert page.locator(".wrong-line").all_inner_texts() == ["  type: a", "  difficulty: b"]


def test_text_typed_during_validation_is_kept(ferry_bench: Bench) -> None:
    page = open_page(ferry_bench)
    replace_line(page, "prompt: Two adults", "prompt: ")
    words = "the quick brown fox jumps over the lazy dog " * 4
    page.keyboard.type(words.strip(), delay=15)
    expect(page.get_by_text("No errors")).to_be_visible()
    save_changes(page)
    assert ferry_bench.client.get("/api/scenarios/ferry").data["prompt"] == words.strip()


# ── Saving ──


def test_saved_changes_survive_a_reload(ferry_bench: Bench) -> None:
    page = open_page(ferry_bench)
    expect(page.get_by_text("All changes are saved")).to_be_visible()
    replace_line(page, "name: Ferry", "name: '船の予約'")
    save_changes(page)
    assert ferry_bench.client.get("/api/scenarios/ferry").data["name"] == "船の予約"
    expect(page.get_by_role("heading", level=1)).to_have_text("船の予約")
    expect(page).to_have_title("船の予約 · Pramana")
    page.reload()
    expect(wait_until_ready(page).get_by_role("heading", level=1)).to_have_text("船の予約")
    expect(find_line(page, 4)).to_contain_text("船の予約")


def test_save_is_refused_while_the_yaml_has_errors_or_another_id(ferry_bench: Bench) -> None:
    page = open_page(ferry_bench)
    replace_line(page, "id: ferry", "- id: boat")
    expect(page.get_by_role("button", name="the ID of a scenario cannot change")).to_be_visible()
    expect(find_line(page, 3)).to_contain_class("wrong-line")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Not saved. Fix the marked errors first.")).to_be_visible()
    assert [each["id"] for each in ferry_bench.client.get("/api/scenarios").data] == ["ferry"]
    expect(find_line(page, 3)).to_have_text("- id: boat")


def test_a_new_scenario_is_created_only_once(ferry_bench: Bench) -> None:
    page = open_page(ferry_bench, "/scenarios/new")
    expect(page.get_by_text("No errors")).to_be_visible()
    replace_line(page, "- id: library-late-book", "- id: ferry")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("button", name='a scenario "ferry" already')).to_be_visible()
    expect(page.locator(".wrong-line")).to_have_text("  - id: ferry")
    replace_line(page, "- id: ferry", "- id: late-book")
    page.get_by_role("button", name="Save").click()
    page.wait_for_url("**/scenarios/late-book")
    expect(page.get_by_role("heading", level=1)).to_have_text("A book that is late")
    assert (
        ferry_bench.client.get("/api/scenarios/late-book").data["turns"][0]["say"].startswith("The number on my card")
    )


@pytest.mark.parametrize("word", ["new", "import", "deleted", "export"])
def test_an_id_can_equal_a_word_of_the_page_address(ferry_bench: Bench, word: str) -> None:
    ferry_bench.client.post("/api/scenarios", {**FERRY, "id": word, "name": "A word"}).data  # noqa: B018
    page = ferry_bench.open("/scenarios?text=word")
    page.get_by_role("link", name="A word", exact=True).click()
    wait_until_ready(page)
    replace_line(page, "name: A word", "name: Another word")
    save_changes(page)
    assert ferry_bench.client.get(f"/api/scenarios?id={word}").data[0]["name"] == "Another word"


# ── Unsaved changes ──


def test_leaving_with_unsaved_changes_warns_and_restores_them(ferry_bench: Bench) -> None:
    page = open_page(ferry_bench, own=True)
    asked: list[str] = []

    def answer_dialog(dialog: Dialog) -> None:
        asked.append(dialog.type)
        if len(asked) == 1:
            dialog.dismiss()
        else:
            dialog.accept()

    page.on("dialog", answer_dialog)
    page.reload()
    wait_until_ready(page)
    assert asked == []
    replace_line(page, "name: Ferry", "name: Half done")
    expect(page.get_by_text("Unsaved changes")).to_be_visible()
    page.get_by_role("link", name="Suites").click()
    expect(find_line(page, 4)).to_have_text("  name: Half done")  # staying on the page loses nothing
    page.get_by_role("link", name="Suites").click()
    page.wait_for_url("**/suites")
    assert asked == ["beforeunload", "beforeunload"]
    page.go_back()
    wait_until_ready(page)
    expect(page.get_by_text("Your unsaved changes from before the page was reloaded are restored")).to_be_visible()
    expect(find_line(page, 4)).to_have_text("  name: Half done")
    page.get_by_role("button", name="Discard changes").click()
    expect(find_line(page, 4)).to_have_text("  name: Ferry")
    expect(page.get_by_text("All changes are saved")).to_be_visible()
    page.get_by_role("link", name="Suites").click()
    page.wait_for_url("**/suites")
    assert len(asked) == 2


def test_another_users_change_is_loaded_or_offered_as_a_choice(ferry_bench: Bench) -> None:
    page = open_page(ferry_bench)
    ferry_bench.client.patch("/api/scenarios/ferry", {"name": "Theirs"}).data  # noqa: B018
    expect(find_line(page, 4)).to_have_text("  name: Theirs")  # nothing was typed here
    replace_line(page, "name: Theirs", "name: Mine")
    expect(page.get_by_text("Unsaved changes")).to_be_visible()
    ferry_bench.client.patch("/api/scenarios/ferry", {"name": "Theirs again"}).data  # noqa: B018
    expect(page.get_by_role("alert").filter(has_text="Another user changed this scenario")).to_be_visible()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Not saved: another user has changed or deleted this scenario")).to_be_visible()
    assert ferry_bench.client.get("/api/scenarios/ferry").data["name"] == "Theirs again"
    expect(find_line(page, 4)).to_have_text("  name: Mine")
    page.get_by_role("button", name="Keep my version").click()
    expect(page.locator(".warn")).to_have_count(0)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("All changes are saved")).to_be_visible()
    assert ferry_bench.client.get("/api/scenarios/ferry").data["name"] == "Mine"


HOLDING = """
import pathlib, time
from pramana.store.scenarios import Scenarios

here, chunks = pathlib.Path(__file__).parent, Scenarios.iterate_chunks


def held(self, wanted):
    while (here / "hold").exists():
        (here / "asked").touch()
        time.sleep(0.02)
    yield from chunks(self, wanted)


Scenarios.iterate_chunks = held
"""
"""Stands in for a store that takes its time to export a scenario."""


def test_text_typed_while_another_change_loads_is_offered_as_a_choice(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HOLDING)
    with workbench(PRAMANA_HOME=str(tmp_path / "home"), PYTHONPATH=str(tmp_path)) as client:
        bench = Bench(client, tmp_path / "home", browser)
        assert bench.client.post("/api/scenarios", FERRY).status == 201
        page = open_page(bench)
        (tmp_path / "hold").touch()
        bench.client.patch("/api/scenarios/ferry", {"name": "Theirs"}).data  # noqa: B018
        until = time.monotonic() + 15
        while not (tmp_path / "asked").exists():
            assert time.monotonic() < until
            page.wait_for_timeout(20)
        replace_line(page, "name: Ferry", "name: Mine")
        expect(page.get_by_text("Unsaved changes")).to_be_visible()
        (tmp_path / "hold").unlink()
        expect(page.get_by_role("alert")).to_contain_text("Another user changed this scenario")
        expect(find_line(page, 4)).to_have_text("  name: Mine")
        page.get_by_role("button", name="Use their version").click()
        expect(find_line(page, 4)).to_have_text("  name: Theirs")
        expect(page.get_by_text("All changes are saved")).to_be_visible()
        bench.close()
        assert not bench.troubles


def test_a_scenario_deleted_by_another_user_can_be_restored_from_its_page(ferry_bench: Bench) -> None:
    page = open_page(ferry_bench)
    replace_line(page, "name: Ferry", "name: Mine")
    expect(page.get_by_text("Unsaved changes")).to_be_visible()
    ferry_bench.client.delete("/api/scenarios/ferry").data  # noqa: B018
    expect(page.get_by_role("alert")).to_contain_text("Another user has deleted this scenario")
    page.get_by_role("button", name="Restore it").click()
    expect(page.get_by_role("button", name="Restore it")).to_have_count(0)
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("All changes are saved")).to_be_visible()
    assert ferry_bench.client.get("/api/scenarios/ferry").data["name"] == "Mine"


def test_deleting_opens_the_list_where_it_can_be_undone(ferry_bench: Bench) -> None:
    page = open_page(ferry_bench)
    replace_line(page, "name: Ferry", "name: Half done")
    expect(page.get_by_text("Unsaved changes")).to_be_visible()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("alertdialog")).to_have_count(0)
    assert ferry_bench.client.get("/api/scenarios/ferry").status == 200
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("alertdialog").get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Undo: restore ferry").click()
    expect(page.get_by_role("link", name="Ferry", exact=True)).to_be_visible()


def test_text_too_long_for_the_page_is_refused_and_the_rest_is_kept(ferry_bench: Bench) -> None:
    page = open_page(ferry_bench)
    find_line(page, 6).click()
    page.keyboard.press("End")
    page.keyboard.insert_text("x" * 260_000)
    expect(page.get_by_text("for this page: import it as a file")).to_be_visible()
    expect(find_line(page, 6)).to_have_text("  prompt: Two adults and a van.")


# ── Accessibility ──


def test_an_unknown_scenario_says_where_to_look(ferry_bench: Bench) -> None:
    page = ferry_bench.open("/scenarios/nowhere")
    expect(page.get_by_role("heading", level=1)).to_have_text("No such scenario")
    expect(page.get_by_role("link", name="Recently deleted")).to_be_visible()


def test_the_preview_shows_the_prompt_and_runs_no_script(ferry_bench: Bench) -> None:
    wild = {
        **FERRY, "id": "wild", "name": f"{HOSTILE} مرحبا", "prompt": HOSTILE, "language": "ar", "tags": [HOSTILE],
        "assert": [{"type": "contains", "ideal": HOSTILE}], "conditions": "noise=10dB",
        "turns": [{"say": "مرحبا، أين العبّارة؟", "bargeIn": 1.5, "assert": [{"type": "llm_judge", "judge_prompt": HOSTILE}]}],
    }  # fmt: skip
    ferry_bench.client.post("/api/scenarios", wild).data  # noqa: B018
    page = open_page(ferry_bench, "/scenarios/wild")
    preview = page.get_by_role("region", name="Preview")
    expect(preview).to_contain_text("The caller interrupts after 1.5 s of the answer")
    expect(preview).to_contain_text(f"contains {HOSTILE}")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{HOSTILE} مرحبا")
    spoken = preview.locator(".speech").nth(1)
    expect(spoken).to_have_text("مرحبا، أين العبّارة؟")
    assert spoken.evaluate("each => getComputedStyle(each).direction") == "rtl"
    replace_line(page, "name:", f"name: {HOSTILE}\n  nonsense: {HOSTILE}")
    expect(page.locator(".problems li").first).to_be_visible()
    page.locator(".wrong-text").first.hover()
    expect(page.locator(".cm-tooltip")).to_be_visible()
    assert page.evaluate("window.hacked") is None


@EACH_VIEW
def test_the_editor_is_accessible(ferry_bench: Bench, axe: Callable[[Page], None], width: int, theme: Any) -> None:
    page = open_page(ferry_bench, width=width, theme=theme)
    axe(page)
    replace_line(page, "type: task-completion", "type: tasks")
    expect(page.locator(".wrong-line")).to_have_count(1)
    assert_no_sideways_scroll(page)
    axe(page)


def test_the_editor_follows_the_theme_and_can_be_left_by_keyboard(ferry_bench: Bench) -> None:
    page = open_page(ferry_bench)
    ground = "each => getComputedStyle(each).backgroundColor"
    light = page.locator(".cm-editor").evaluate(ground)
    page.get_by_role("button", name="Theme").click()
    expect(page.locator("body")).to_have_class("desktop no-touch body--dark")
    assert page.locator(".cm-editor").evaluate(ground) != light
    editor(page).focus()
    page.keyboard.press("Tab")
    expect(editor(page)).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(editor(page)).not_to_be_focused()
