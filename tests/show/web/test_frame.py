"""What holds of every page there is, with an empty store and with one of everything."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from .conftest import EACH_VIEW, Bench, no_sideways
from .test_roles import WITH_QUERY, addresses, fill_store, registered


@pytest.fixture(scope="module")
def every_page(served: Bench) -> list[str]:
    return [*addresses(registered(), fill_store(served.client)), *WITH_QUERY]


@EACH_VIEW
def test_every_page_is_readable_by_everyone(
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
            no_sideways(page)
            axe(page)
        except AssertionError as error:
            troubles.append(f"{path}: {error}")
    assert not troubles, "\n".join(troubles)


def test_the_content_can_be_reached_by_keyboard_past_the_navigation(bench: Bench) -> None:
    page = bench.open("/runs")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


def test_light_and_dark_are_kept_for_the_next_page(bench: Bench) -> None:
    page = bench.open("/runs")
    expect(page.locator("body")).not_to_have_class("body--dark")
    page.get_by_role("button", name="Theme").click()
    page.goto(f"{bench.url}/suites")
    assert "body--dark" in (page.locator("body").get_attribute("class") or "")
