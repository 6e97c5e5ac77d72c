"""Rules for every page, with an empty store and with one of everything."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from .conftest import EACH_VIEW, Bench, assert_no_sideways_scroll
from .test_roles import WITH_QUERY, fill_addresses, fill_store, list_registered_pages


@pytest.fixture(scope="module")
def every_page(module_bench: Bench) -> list[str]:
    return [*fill_addresses(list_registered_pages(), fill_store(module_bench.client, module_bench.home)), *WITH_QUERY]


@EACH_VIEW
def test_every_page_is_accessible(
    bench: Bench, axe: Callable[[Page], None], every_page: list[str], width: int, theme: str
) -> None:
    page = bench.open("/", width=width, theme=theme)  # type: ignore[arg-type]
    troubles = []
    for path in every_page:
        page.goto(bench.url + path)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        if page.locator(".cm-editor").count():
            page.locator(".cm-editor[data-ready]").wait_for()
        try:
            assert_no_sideways_scroll(page)
            axe(page)
        except AssertionError as error:
            troubles.append(f"{path}: {error}")
    assert not troubles, "\n".join(troubles)


def test_a_skip_link_reaches_the_content_by_keyboard(bench: Bench) -> None:
    page = bench.open("/runs")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


def test_the_theme_is_kept_on_the_next_page(bench: Bench) -> None:
    page = bench.open("/runs")
    expect(page.locator("body")).not_to_have_class("body--dark")
    page.get_by_role("button", name="Theme").click()
    page.goto(f"{bench.url}/suites")
    assert "body--dark" in (page.locator("body").get_attribute("class") or "")
