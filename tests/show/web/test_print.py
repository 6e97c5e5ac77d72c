"""On paper: the pages of a run, a result and a comparison, and an HTML report, without navigation and in full."""

import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from .conftest import Bench, assert_no_sideways_scroll

A4_PX = {"width": 718, "height": 1047}
"""What the margins leave of a page of A4."""
LONG = "A prompt of many words, echoed by the model, that scrolls on the screen. " * 60
CUT = """() => [...document.querySelectorAll("#main *, main *")].filter(each => {
  const style = getComputedStyle(each);
  return each.checkVisibility() && !each.closest(".visually-hidden, .rates thead, svg") && style.overflow !== "visible"
    && (each.scrollHeight > each.clientHeight + 1 || each.scrollWidth > each.clientWidth + 1);
}).map(each => `${each.tagName}.${each.className}`)"""
"""The elements that hide a part of their content."""


@pytest.fixture(scope="module")
def printouts(module_bench: Bench) -> dict[str, str]:
    case = {"id": "long-1", "category": "factual", "input": LONG, "ideal": ["tungsten"],
            "assertion": {"type": "contains"}, "metadata": {"difficulty": "easy", "tokens_est": 900}}  # fmt: skip
    made = module_bench.client.post("/api/suites", {"version": "paper-1", "tiers": {"cheap": json.dumps(case)}})
    assert made.status == 201, made.body
    base, new = (module_bench.run(suite="paper-1", models=[each]) for each in ("fake:echo", "fake:fixed=tungsten"))
    seq = module_bench.client.get(f"/api/runs/{base}/results").data[0]["seq"]
    return {
        "run": f"/runs/{base}",
        "result": f"/runs/{base}/results/{seq}",
        "comparison": f"/compare?base={base}&new={new}",
        "report": f"/api/runs/{base}/export?format=html",
    }


def on_paper(page: Page) -> Page:
    page.set_viewport_size(A4_PX)  # type: ignore[arg-type]
    page.emulate_media(media="print")
    return page


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["run", "result", "comparison"])
def test_a_page_is_printed_without_its_controls_and_nothing_is_cut(
    bench: Bench, printouts: dict[str, str], name: str, theme: Any
) -> None:
    page = bench.open(printouts[name], theme=theme, own=True)
    page.locator("#main:not([inert])").wait_for()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    on_paper(page)
    for hidden in ("header.top", ".btn", ".q-btn", ".filters", ".skip", ".screen-only"):
        assert not [each for each in page.locator(hidden).all() if each.is_visible()], hidden
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('h1')).color") == "rgb(34, 33, 31)"
    assert page.evaluate(CUT) == []
    assert_no_sideways_scroll(page)


def test_a_report_is_printed_in_full(bench: Bench, printouts: dict[str, str]) -> None:
    page = bench.open("/", own=True, theme="dark", expects_errors=True)  # the report forbids the scripts of that page
    page.set_content(bench.client.get(printouts["report"]).body.decode())
    on_paper(page)
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(CUT) == []
    assert_no_sideways_scroll(page)
