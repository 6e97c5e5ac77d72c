"""What stands around every page."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from .conftest import NARROW, WIDE, Bench, no_sideways


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_pages_are_readable_by_everyone(bench: Bench, axe: Callable[[Page], None], width: int, theme: str) -> None:
    page = bench.open("/runs", width=width, theme=theme)  # type: ignore[arg-type]
    expect(page.get_by_role("heading", level=1)).to_have_text("Runs")
    no_sideways(page)
    axe(page)
