"""No page breaks a word between its letters, at any width; a long name breaks only after a separator."""

from typing import Any

import pytest

from .conftest import Bench, assert_no_sideways_scroll
from .test_roles import WITH_QUERY, fill_addresses, fill_store, list_registered_pages

WIDTHS = (360, 640, 740, 840, 1280)
MODELS = [
    "fake:fixed=organisation/benchmark-candidate-2025-08-07",
    "fake:fixed=organisation/benchmark-candidate-2025-10-01",
    "fake:echo",
]
BROKEN_WORDS = """() => {
  const left_out = "pre, code, textarea, .prose, .cm-editor, .visually-hidden, script, style, [aria-hidden=true]";
  const found = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    if (node.parentElement.closest(left_out) || !node.parentElement.checkVisibility()) continue;
    for (const word of node.data.matchAll(/[\\p{L}\\p{N}]{2,}/gu)) {
      if (/^[0-9a-f]{32,}$/.test(word[0])) continue;  // a digest is no word
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const tops = [...range.getClientRects()].filter(each => each.width).map(each => Math.round(each.top));
      if (new Set(tops).size > 1) {
        const parent = node.parentElement;
        found.push(`${word[0]} in ${parent.closest("td, th, dt, dd, h1, h2, h3, p, li, a, label, div").className ||
          parent.tagName}: ${parent.textContent.trim().slice(0, 60)}`);
      }
    }
  }
  return [...new Set(found)];
}"""
"""Words whose letters stand on more than one line, outside of texts that are shown as they are."""


@pytest.fixture(scope="module")
def every_page(module_bench: Bench) -> list[str]:
    found = [*fill_addresses(list_registered_pages(), fill_store(module_bench.client, module_bench.home)), *WITH_QUERY]
    wanted: dict[str, Any] = {"models": MODELS, "repeats": 2, "name": "Nightly comparison of the three candidates"}
    several = module_bench.run(**wanted)
    other = module_bench.run(models=MODELS[:1])
    seq = module_bench.client.get(f"/api/runs/{several}/results").data[0]["seq"]
    compared = f"/compare?base={several}&new={several}&model={MODELS[0]}&newModel={MODELS[2]}"
    two_runs = f"/compare?base={other}&new={several}&newModel={MODELS[2]}"
    return [*found, f"/runs/{several}", f"/runs/{several}/results/{seq}", compared, two_runs, f"/compare?new={several}"]


def test_no_word_is_broken_between_its_letters(bench: Bench, every_page: list[str]) -> None:
    page = bench.open("/")
    troubles = []
    for path in every_page:
        page.goto(bench.url + path)
        page.locator("#main:not([inert])").wait_for()
        if page.locator(".cm-editor").count():
            page.locator(".cm-editor[data-ready]").wait_for()
        page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            troubles += [f"{path} at {width} px: {each}" for each in page.evaluate(BROKEN_WORDS)]
            try:
                assert_no_sideways_scroll(page)
            except AssertionError as error:
                troubles.append(f"{path} at {width} px: {error}")
    assert not troubles, "\n".join(troubles)
