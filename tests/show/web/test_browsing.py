"""Browsing many results: filters that persist, back links, live counts, narrow windows, focus, and replies as Markdown."""

import re
import time
from collections.abc import Callable
from typing import Literal

import pytest
from playwright.sync_api import Page, expect

from .conftest import Bench, assert_no_sideways_scroll

MODELS = ("fake:rejected=0.3,latency=0.01", "fake:rejected=0.3,latency=0.02")
MARKDOWN = (
    "# Answer\n\nSome **bold** text, `code` and a [link](https://evil.example/a).\n\n![dot](https://evil.example/b.png)\n\n"
    "- one\n- two\n\n```python\ndef f():\n    return '<b>'\n```\n\n"
    "<script>window.caught=1</script><img src=x onerror=window.caught=1>"
)
RING = r"""() => {
  const light = (text) => {
    const [r, g, b] = text.match(/[\d.]+/g).map(Number).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const each = document.activeElement, box = each.querySelector(".q-checkbox__bg, .q-radio__inner") || each;
  const style = getComputedStyle(box), shadow = style.boxShadow.match(/rgba?\([^)]+\)/g);
  const outlined = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  const ring = outlined ? style.outlineColor : shadow && shadow[shadow.length - 1];
  if (!ring) return 0;
  const [a, b] = [light(ring), light(getComputedStyle(document.body).backgroundColor)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}"""
"""The contrast of the ring around the focused element with the page; 0 where there is no ring of two pixels."""


def test_next_previous_and_back_keep_every_filter(bench: Bench) -> None:
    run = bench.run(models=list(MODELS), repeats=2)
    query = "?outcome=failed&model=fake%3Arejected%3D0.3%2Clatency%3D0.02&text=FACT"
    wanted = [each["seq"] for each in bench.client.get(f"/api/runs/{run}/results{query}").data]
    failed = [each["seq"] for each in bench.client.get(f"/api/runs/{run}/results?outcome=failed").data]
    assert 1 < len(wanted) < len(failed)
    page = bench.open(f"/runs/{run}{query}")
    rows = page.get_by_role("table", name="Results", exact=True).locator("tbody tr")
    expect(rows).to_have_count(len(wanted))
    rows.first.get_by_role("link").click()
    for seq in wanted[1:]:
        page.get_by_role("link", name="Next failed").click()
        expect(page).to_have_url(re.compile(rf"/results/{seq}\?"))
    expect(page.get_by_role("link", name="Next failed")).to_have_count(0)
    page.get_by_role("link", name="Previous failed").click()
    expect(page).to_have_url(re.compile(rf"/results/{wanted[-2]}\?"))
    page.get_by_role("link", name="Filtered results").click()
    expect(page).to_have_url(re.compile(r"model=fake%3Arejected%3D0.3%2Clatency%3D0.02&text=FACT#results$"))
    expect(rows).to_have_count(len(wanted))


def test_a_tag_links_to_its_results_and_their_next_links(bench: Bench) -> None:
    run = bench.run(models=["fake:echo"], tier="moderate")
    summary = bench.client.get(f"/api/runs/{run}").data["summary"]
    tag, count = next((name, rate) for name, rate in summary["by"]["tag"].items() if rate["failed"] > 1)
    tagged = [each["seq"] for each in bench.client.get(f"/api/runs/{run}/results?tag={tag}").data]
    assert 1 < len(tagged) < summary["overall"]["failed"]
    assert len(tagged) == sum(count[each] for each in ("passed", "failed", "errored", "unscored", "skipped"))
    page = bench.open(f"/runs/{run}")
    page.get_by_role("table", name="Pass rate by tag").get_by_role("link", name=tag, exact=True).click()
    rows = page.get_by_role("table", name="Results", exact=True).locator("tbody tr")
    expect(rows).to_have_count(len(tagged))
    expect(page.get_by_label("Tag", exact=True)).to_have_value(tag)
    rows.first.get_by_role("link").click()
    page.get_by_role("link", name="Next").click()
    expect(page).to_have_url(re.compile(rf"/results/{tagged[1]}\?tag="))


def test_back_restores_the_filter_and_the_scroll_position(bench: Bench) -> None:
    run = bench.run(models=["fake:echo"], repeats=6)
    page = bench.open(f"/runs/{run}?text=00")
    link = page.get_by_role("table", name="Results", exact=True).get_by_role("link").nth(30)
    link.scroll_into_view_if_needed()
    before = page.evaluate("scrollY")
    assert before > 500
    link.click()
    expect(page.get_by_role("heading", name="Checks")).to_be_visible()
    page.go_back()
    expect(page).to_have_url(f"{bench.url}/runs/{run}?text=00")
    page.wait_for_function("y => Math.abs(scrollY - y) < 50", arg=before)


def test_failures_precede_all_results_which_precede_breakdowns(bench: Bench) -> None:
    run = bench.run(models=["fake:rejected=0.2,echo"], tier="moderate")
    page = bench.open(f"/runs/{run}")
    expect(page.get_by_role("heading", name="By tag")).to_be_visible()
    found = page.locator("#main h2").all_inner_texts()
    order = ["Summary", "Failed", "Errored", "Results", "Breakdown"]
    assert [each for each in found if each in order] == order
    assert "sha256:" not in page.locator("#main").inner_text()
    page.get_by_role("link", name=re.compile(r"All \d+ failed results")).click()
    expect(page).to_have_url(f"{bench.url}/runs/{run}?outcome=failed#results")
    expect(page.get_by_role("heading", name="Errored", exact=True)).to_have_count(0)


def test_outcomes_of_a_running_run_add_up_to_its_results(bench: Bench) -> None:
    run = bench.run(wait=False, models=["fake:latency=0.15"], repeats=8, limits={"concurrency": 1})
    page = bench.open(f"/runs/{run}")
    card = page.locator(".progress")
    expect(card.locator(".outcomes")).to_contain_text("failed")
    until, seen = time.monotonic() + 5, set()
    while time.monotonic() < until and card.count():
        said = page.evaluate("document.querySelector('.progress')?.innerText ?? ''")
        if not said:
            break
        counts = re.findall(r"(\d+) (?:passed|failed|errored|unscored|skipped)", said)
        stored = int(re.findall(r"([\d,]+) of ", said)[0])
        assert sum(map(int, counts)) == stored, said
        seen.add(stored)
        page.wait_for_timeout(100)
    assert len(seen) > 3
    bench.client.post(f"/api/runs/{run}/cancel")


@pytest.mark.parametrize("width", [640, 740, 840])
def test_a_tablet_needs_no_sideways_scroll(bench: Bench, width: int) -> None:
    run = bench.run(models=["fake:rejected=0.2,latency=0.01,jitter=0.1", "fake:echo"], tier="moderate")
    page = bench.open(f"/runs/{run}", width=width)
    expect(page.get_by_role("heading", name="By tag")).to_be_visible()
    assert_no_sideways_scroll(page)
    page.goto(
        f"{bench.url}/compare?base={run}&new={run}&model=fake:echo&newModel=fake:rejected%3D0.2%2Clatency%3D0.01%2Cjitter%3D0.1"
    )
    expect(page.get_by_role("heading", name="Times")).to_be_visible()
    assert_no_sideways_scroll(page)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_focused_control_has_a_visible_ring(bench: Bench, theme: Literal["light", "dark"]) -> None:
    run = bench.run(models=["fake:echo"])
    kinds: set[str] = set()
    for path in (f"/runs/{run}", "/settings/server", "/settings"):
        page = bench.open(path, theme=theme)
        page.locator("#main:not([inert])").wait_for()
        page.locator("#main").focus()
        for _ in range(20):
            page.keyboard.press("Tab")
            kind = page.evaluate(
                "(document.activeElement.getAttribute('role') || document.activeElement.tagName).toLowerCase()"
            )
            if kind in ("a", "button", "checkbox", "radio", "summary"):
                page.wait_for_timeout(20)
                contrast = page.evaluate(RING)
                assert contrast >= 3, (
                    f"{path}: {kind} {page.evaluate('document.activeElement.outerHTML')[:200]}: {contrast}"
                )
                kinds.add(kind)
    assert {"a", "button", "checkbox"} <= kinds


def test_closing_a_dialog_returns_the_focus_to_its_button(bench: Bench) -> None:
    run = bench.run(models=["fake:echo"])
    page = bench.open(f"/runs/{run}")
    delete = page.get_by_role("button", name="Delete", exact=True)
    delete.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("alertdialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("alertdialog")).to_have_count(0)
    expect(delete).to_be_focused()


def test_a_reply_is_rendered_as_markdown_and_can_be_read_raw(bench: Bench, axe: Callable[[Page], None]) -> None:
    run = bench.run(models=[f"fake:fixed={MARKDOWN}"])
    seq = bench.client.get(f"/api/runs/{run}/results").data[0]["seq"]
    page = bench.open(f"/runs/{run}/results/{seq}")
    reply = page.get_by_role("region", name="Reply", exact=True)
    expect(reply.locator("strong").nth(1)).to_have_text("bold")
    expect(reply.locator("li")).to_have_text(["one", "two"])
    expect(reply.locator("pre code")).to_have_text("def f():\n    return '<b>'\n")
    expect(reply).to_contain_text("link (https://evil.example/a)")
    expect(reply).to_contain_text("<script>window.caught=1</script><img src=x")
    assert reply.locator("a, img, script").count() == 0
    assert page.evaluate("window.caught") is None
    fonts = "each => getComputedStyle(each).fontFamily"
    assert "mono" not in reply.locator("p").nth(1).evaluate(fonts).lower()
    assert "mono" in reply.locator("pre code").evaluate(fonts).lower()
    raw = page.get_by_role("region", name="Reply, raw text")
    expect(raw).not_to_be_visible()
    page.get_by_text("Raw text", exact=True).click()
    assert raw.inner_text() == MARKDOWN
    axe(page)


def test_points_of_a_trend_are_dated_and_link_to_their_runs(bench: Bench) -> None:
    runs = [bench.run(models=["fake:fixed=trend"]) for _ in range(3)]
    page = bench.open("/")
    card = page.get_by_role("region", name="fake:fixed=trend")
    chart = card.get_by_role("group", name=re.compile("^Pass rate in the last runs"))
    expect(chart.get_by_role("link")).to_have_count(3)
    expect(chart.locator("text").last).to_have_text(re.compile(r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}$"))
    chart.get_by_role("link").first.click()
    expect(page).to_have_url(f"{bench.url}/runs/{runs[0]}")


def test_an_error_names_its_field_by_its_label_beside_it(bench: Bench) -> None:
    page = bench.open("/settings/prices?model=my-model")
    page.get_by_label("Input price", exact=True).fill("1")
    page.get_by_role("button", name="Set price").click()
    field = page.locator(".q-field", has=page.get_by_label("Output price", exact=True))
    expect(field.get_by_role("alert")).to_have_text("Output price: enter a number from 0 to 1,000,000,000.0")
    expect(page.get_by_label("Output price", exact=True)).to_be_focused()
