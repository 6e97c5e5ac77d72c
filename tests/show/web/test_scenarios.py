"""The list of scenarios: search, copy, delete and restore, in every script."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from .conftest import EACH_VIEW, Bench, assert_no_sideways_scroll

HOSTILE = '<script>window.hacked=1</script><img src=x onerror="window.hacked=1">'


def make_scenario(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": "task-completion", "prompt": f"{name}, please.", "expectedOutcome": "Does it", **more}


@pytest.fixture
def empty_bench(bench: Bench) -> Iterator[Bench]:
    yield bench
    clear(bench)


@pytest.fixture
def ferries_bench(bench: Bench) -> Iterator[Bench]:
    """A workbench with sixty scenarios, three of them different."""
    some = [make_scenario(f"Ferry {number:02}", id=f"ferry-{number:02}", tags=["sea"]) for number in range(57)]
    some += [
        make_scenario(
            "Night train",
            id="night-train",
            type="conversation-flow",
            difficulty="hard",
            tags=["rail", "night"],
            language="de",
        ),
        make_scenario("Day train", id="day-train", type="conversation-flow", tags=["rail"], language="de-CH"),
        make_scenario(HOSTILE, id="hostile", tags=[HOSTILE], prompt=HOSTILE),
    ]
    bench.client.post("/api/scenarios/import", {"yaml": json.dumps({"scenarios": some})}).data  # noqa: B018
    yield bench
    clear(bench)


def clear(bench: Bench) -> None:
    for each in bench.client.get("/api/scenarios?pageSize=500").data:
        bench.client.delete(f"/api/scenarios/{each['id']}")


def find_rows(page: Page) -> Any:
    return page.locator(".listed tbody tr")


def list_names(page: Page) -> list[str]:
    return page.locator(".listed tbody th a").all_inner_texts()


# ── Empty store ──


def test_an_empty_store_offers_the_library(empty_bench: Bench, axe: Callable[[Page], None]) -> None:
    page = empty_bench.open("/scenarios")
    expect(page.get_by_role("heading", name="No scenarios yet")).to_be_visible()
    axe(page)
    page.get_by_role("button", name="Import selected files").click()
    expect(page.get_by_text("Select at least one file")).to_be_visible()
    page.get_by_role("checkbox", name="multilingual/hindi.yaml").click()
    page.get_by_role("checkbox", name="multilingual/japanese.yaml").click()
    page.get_by_role("button", name="Import selected files").click()
    expect(find_rows(page)).to_have_count(10)
    expect(page.get_by_text("1 to 10 of 10 scenarios")).to_be_visible()


def test_an_empty_list_shows_scenarios_added_by_other_users(empty_bench: Bench) -> None:
    page = empty_bench.open("/scenarios")
    expect(page.get_by_role("heading", name="No scenarios yet")).to_be_visible()
    empty_bench.client.post("/api/scenarios", make_scenario("From afar")).data  # noqa: B018
    expect(page.get_by_role("link", name="From afar", exact=True)).to_be_visible()
    empty_bench.client.post("/api/scenarios", make_scenario("And another")).data  # noqa: B018
    expect(find_rows(page)).to_have_count(2)


# ── Search ──


def test_search_and_filters_are_in_the_address(ferries_bench: Bench) -> None:
    page = ferries_bench.open("/scenarios")
    expect(find_rows(page)).to_have_count(50)
    expect(page.get_by_text("1 to 50 of 60 scenarios")).to_be_visible()
    page.get_by_role("link", name="Next page").click()
    expect(find_rows(page)).to_have_count(10)
    assert parse_qs(urlsplit(page.url).query) == {"page": ["2"]}

    page.get_by_role("textbox", name="Search").fill("TRAIN")
    page.keyboard.press("Enter")
    expect(find_rows(page)).to_have_count(2)
    assert parse_qs(urlsplit(page.url).query) == {"text": ["TRAIN"]}
    page.get_by_role("link", name="night", exact=True).click()
    expect(find_rows(page)).to_have_count(1)
    assert parse_qs(urlsplit(page.url).query) == {"text": ["TRAIN"], "tag": ["night"]}
    page.go_back()
    expect(find_rows(page)).to_have_count(2)
    page.get_by_role("link", name="Clear all filters").click()
    expect(find_rows(page)).to_have_count(50)

    page.get_by_role("combobox", name="Difficulty").click()
    page.get_by_role("option", name="hard (1)").click()
    expect(find_rows(page)).to_have_count(1)
    assert list_names(page) == ["Night train"]


def test_combined_filters_apply_to_the_list_the_run_and_the_export(ferries_bench: Bench) -> None:
    filters = "type=conversation-flow&language=de&language=de-CH&tag=rail"
    page = ferries_bench.open(f"/scenarios?{filters}")
    expect(find_rows(page)).to_have_count(2)
    assert sorted(list_names(page)) == ["Day train", "Night train"]
    wanted = parse_qs(filters)
    run = page.get_by_role("link", name="Run these").get_attribute("href") or ""
    assert (urlsplit(run).path, parse_qs(urlsplit(run).query)) == ("/runs/new", wanted)
    exported = page.get_by_role("link", name="Export these").get_attribute("href") or ""
    document = ferries_bench.client.get(exported).body.decode()
    assert document.count("\n- id: ") == 2
    one = page.get_by_role("link", name="Run Day train").get_attribute("href")
    assert one == "/runs/new?scenario=day-train"
    page.goto(ferries_bench.url + "/scenarios")
    assert page.get_by_role("link", name="Run all").get_attribute("href") == "/runs/new?scenario=all"


def test_an_empty_search_says_what_to_do(ferries_bench: Bench) -> None:
    page = ferries_bench.open("/scenarios?text=zeppelin")
    expect(page.get_by_text("No scenarios match these filters.")).to_be_visible()
    page = ferries_bench.open("/scenarios?type=nonsense")
    expect(page.get_by_role("alert")).to_contain_text('unknown type "nonsense"')
    page.get_by_role("link", name="Show all scenarios").click()
    expect(find_rows(page)).to_have_count(50)


# ── Copy, delete, restore ──


def test_a_duplicate_gets_the_next_free_id_and_opens(ferries_bench: Bench) -> None:
    for expected in ("night-train-copy", "night-train-copy-2"):
        page = ferries_bench.open("/scenarios?text=Night")
        page.get_by_role("button", name="Duplicate Night train", exact=True).click()
        page.wait_for_url(f"**/scenarios/{expected}")
        expect(page.get_by_role("heading", level=1)).to_have_text("Night train (copy)")
    before, after = (
        ferries_bench.client.get(f"/api/scenarios/{each}").data for each in ("night-train", "night-train-copy")
    )
    assert {**after, "id": "", "name": "", "createdAt": "", "updatedAt": ""} == {
        **before, "id": "", "name": "", "createdAt": "", "updatedAt": "",
    }  # fmt: skip


def test_deleting_can_be_undone_at_once_and_for_a_day(ferries_bench: Bench) -> None:
    page = ferries_bench.open("/scenarios?text=train")
    page.get_by_role("button", name="Delete Day train").click()
    expect(find_rows(page)).to_have_count(1)
    assert ferries_bench.client.get("/api/scenarios/day-train").status == 404
    undo = page.get_by_role("button", name="Undo: restore day-train")
    expect(undo).to_be_focused()
    page.keyboard.press("Enter")
    expect(find_rows(page)).to_have_count(2)
    expect(undo).to_have_count(0)

    page.get_by_role("button", name="Delete Day train").click()
    page.get_by_role("button", name="Delete Night train").click()
    expect(page.get_by_text("No scenarios match these filters.")).to_be_visible()
    page.get_by_role("link", name="Recently deleted").first.click()
    page.get_by_role("button", name="Restore Night train", exact=True).click()
    expect(page.get_by_role("button", name="Restore Night train", exact=True)).to_have_count(0)
    assert ferries_bench.client.get("/api/scenarios/night-train").data["language"] == "de"
    assert ferries_bench.client.get("/api/scenarios/day-train").status == 404


def test_two_users_see_each_others_changes(ferries_bench: Bench) -> None:
    one, other = ferries_bench.open("/scenarios?text=train"), ferries_bench.open("/scenarios?text=train")
    expect(find_rows(other)).to_have_count(2)
    one.get_by_role("button", name="Delete Day train").click()
    expect(find_rows(other)).to_have_count(1)
    one.get_by_role("button", name="Undo: restore day-train").click()
    expect(find_rows(other)).to_have_count(2)


# ── Accessibility ──


def test_scripts_in_names_are_escaped(ferries_bench: Bench) -> None:
    page = ferries_bench.open("/scenarios?text=script")
    expect(find_rows(page)).to_have_count(1)
    assert list_names(page) == [HOSTILE]
    expect(find_rows(page).locator(".tag")).to_have_text(HOSTILE[:80], use_inner_text=True)
    page.get_by_role("button", name="Delete ").click()
    expect(page.get_by_role("button", name="Undo: restore hostile")).to_be_visible()
    page.goto(ferries_bench.url + "/scenarios/deleted")
    expect(page.locator("tbody th").first).to_contain_text(HOSTILE)
    assert page.evaluate("window.hacked") is None


def test_every_script_reads_in_its_own_direction(empty_bench: Bench) -> None:
    files = [f"multilingual/{each}.yaml" for each in ("arabic", "hindi", "japanese", "mandarin")]
    empty_bench.client.post("/api/library/import", {"files": files}).data  # noqa: B018
    hebrew = make_scenario("שינוי הזמנה", id="he-1", language="he", prompt="שלום, אני רוצה לשנות את ההזמנה (מספר 12).")
    empty_bench.client.post("/api/scenarios", hebrew).data  # noqa: B018
    prompts = {each["id"]: each for each in empty_bench.client.get("/api/scenarios?pageSize=500").data}
    for language, direction in (("ar", "rtl"), ("he", "rtl"), ("hi", "ltr"), ("ja", "ltr"), ("zh", "ltr")):
        page = empty_bench.open(f"/scenarios?language={language}")
        expect(find_rows(page).first).to_be_visible()
        for row in find_rows(page).all():
            written = prompts[row.locator("small").inner_text()]["prompt"]
            cell = row.locator("td[data-label=Prompt] > div")
            assert " ".join(written.split()).startswith(cell.inner_text().removesuffix("…").rstrip())
            assert cell.evaluate("each => getComputedStyle(each).direction") == direction
    page = empty_bench.open("/scenarios?language=he")
    name = page.locator(".listed tbody th bdi").first
    expect(name).to_have_text("שינוי הזמנה")
    assert name.evaluate("each => getComputedStyle(each).direction") == "rtl"


@EACH_VIEW
def test_the_list_of_scenarios_is_accessible(
    ferries_bench: Bench, axe: Callable[[Page], None], width: int, theme: Any
) -> None:
    page = ferries_bench.open("/scenarios?tag=rail&tag=night", width=width, theme=theme)
    expect(find_rows(page)).to_have_count(2)
    assert_no_sideways_scroll(page)
    axe(page)
    page.get_by_role("button", name="Delete Night train").click()
    expect(page.get_by_role("button", name="Undo: ")).to_be_visible()
    axe(page)
    page.goto(ferries_bench.url + "/scenarios/deleted")
    expect(page.get_by_role("button", name="Restore Night train", exact=True)).to_be_visible()
    assert_no_sideways_scroll(page)
    axe(page)
