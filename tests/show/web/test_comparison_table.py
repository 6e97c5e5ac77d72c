"""The table of three and more runs or models in the workbench: what is proven together, every pair, and its links."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from .conftest import EACH_VIEW, Bench, assert_no_sideways_scroll

MODELS = ["fake:fixed=tungsten", "fake:fixed=SIGKILL", "fake:fixed=Ben"]
"""Pass all 24 cases, 12 of them, and none."""
HOSTILE = "fake:fixed=<img src=x onerror=\"document.title='run'\"> مرحبا"


def make_case(number: int) -> str:
    ideals = ["tungsten", "SIGKILL"] if number < 12 else ["tungsten"]
    return json.dumps(
        {
            "id": f"metal-{number:02}",
            "category": "factual",
            "input": f"Which metal? Question {number}.",
            "ideal": ideals,
            "assertion": {"type": "contains_any"},
            "metadata": {"difficulty": "easy", "tokens_est": 8, "tags": []},
        }
    )


@dataclass
class Runs:
    three: str
    """One run of three models."""
    single: tuple[str, str, str]
    """A run of each of the models."""


@pytest.fixture(scope="module")
def runs(module_bench: Bench) -> Runs:
    lines = "\n".join(make_case(number) for number in range(24))
    made = module_bench.client.post("/api/suites", {"version": "table-1", "tiers": {"smoke": lines}})
    assert made.status == 201, made.body
    team: dict[str, Any] = {"suite": "table-1", "tier": "smoke"}
    one, two, three = (module_bench.run(**team, models=[each]) for each in MODELS)
    return Runs(module_bench.run(**team, models=[MODELS[1], MODELS[0], MODELS[2]]), (one, two, three))


def find_answer(page: Page) -> Any:
    return page.get_by_role("region", name="The answer")


def test_the_page_of_a_run_of_three_models_links_to_the_table_of_all_pairs(bench: Bench, runs: Runs) -> None:
    page = bench.open(f"/runs/{runs.three}")
    page.get_by_role("link", name="Compare all models").click()
    expect(find_answer(page)).to_contain_text(
        f"Proven together at 5 % (Holm's correction for 3 comparisons): {MODELS[0]} beats {MODELS[1]} and {MODELS[2]}; "
        f"{MODELS[1]} beats {MODELS[2]}."
    )
    sides = page.get_by_role("table", name="Sides by pass rate, with 95 % intervals")
    expect(sides.get_by_role("rowheader")).to_have_text([re.compile(f"^{re.escape(each)}") for each in MODELS])
    expect(sides).to_contain_text("12 of 24")
    assert not re.search(r"\b(before|now)\b", page.locator("#main table").last.inner_text())
    pairs = page.get_by_role("table", name="Pairs of sides")
    expect(pairs.get_by_role("row")).to_have_count(4)
    expect(pairs).to_contain_text(re.compile(r"\+50\.0 points\s*\+\d"))


def test_each_pair_links_to_the_comparison_of_its_two_sides(bench: Bench, runs: Runs) -> None:
    page = bench.open(f"/compare/table?run={runs.three}")
    beats = f"{MODELS[0]} beats {MODELS[1]}"
    page.get_by_role("link", name=beats).click()
    expect(find_answer(page).get_by_role("heading")).to_have_text(re.compile(f"{re.escape(beats)}$"))


def test_sides_can_be_compared_with_one_reference(bench: Bench, runs: Runs) -> None:
    page = bench.open(f"/compare/table?run={runs.three}")
    page.get_by_label("Compare with").click()
    page.get_by_role("option", name=MODELS[1]).click()
    expect(find_answer(page)).to_contain_text(f"Holm's correction for 2 comparisons with {MODELS[1]}")
    expect(find_answer(page)).to_contain_text(f"is excluded for {MODELS[0]}, not for {MODELS[2]}.")
    assert "against=fake%3Afixed%3DSIGKILL" in page.url
    page.get_by_label("Compare with").click()
    page.get_by_role("option", name="Every two sides").click()
    expect(find_answer(page)).to_contain_text("3 comparisons)")


def test_three_runs_are_chosen_and_compared(bench: Bench, runs: Runs) -> None:
    page = bench.open(f"/compare?base={runs.single[0]}&new={runs.single[1]}")
    page.get_by_role("link", name="Compare several").click()
    page.get_by_role("combobox", name="Runs").click()
    page.get_by_role("option", name=re.compile("table-1-smoke · fake:fixed=Ben")).click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(find_answer(page)).to_contain_text(f"{MODELS[1]} beats {MODELS[2]}.")
    for each in runs.single:
        assert f"run={each}" in page.url
    sides = page.get_by_role("table", name="Sides by pass rate, with 95 % intervals")
    expect(sides.get_by_role("link", name=re.compile(runs.single[2]))).to_have_attribute(
        "href", f"/runs/{runs.single[2]}"
    )


def test_a_missing_choice_is_explained_with_links(bench: Bench, runs: Runs) -> None:
    page = bench.open(f"/compare/table?run={runs.single[0]}&run={runs.three}")
    expect(page.get_by_role("alert")).to_contain_text("has 3 models")
    page.get_by_role("link", name=MODELS[2], exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text(f'has no model "{MODELS[2]}"')
    other = bench.run(models=["fake:echo"], judge="fake:fixed=YES")
    page.goto(f"{bench.url}/compare/table?run={runs.single[0]}&run={other}")
    expect(page.get_by_role("alert")).to_contain_text("are not known to have the same cases")
    page.get_by_role("link", name="Compare shared cases").click()
    expect(find_answer(page)).to_contain_text("Nothing could be compared")
    page.goto(f"{bench.url}/compare/table?run=r-nowhere&run={other}")
    expect(page.get_by_role("alert")).to_contain_text("no run")


@pytest.mark.usefixtures("runs")
def test_names_of_models_are_escaped(bench: Bench) -> None:
    made = bench.run(suite="table-1", tier="smoke", models=[HOSTILE, *MODELS[:2]])
    page = bench.open(f"/compare/table?run={made}")
    expect(find_answer(page)).to_contain_text("<img src=x")
    assert page.locator("#main img").count() == 0
    assert page.title() != "run"
    assert_no_sideways_scroll(page)


@EACH_VIEW
def test_the_table_is_accessible(bench: Bench, runs: Runs, axe: Callable[[Page], None], width: int, theme: Any) -> None:
    page = bench.open(f"/compare/table?run={runs.three}", width=width, theme=theme)
    expect(find_answer(page)).to_be_visible()
    assert_no_sideways_scroll(page)
    axe(page)
    page.goto(f"{bench.url}/compare/table")
    expect(page.get_by_role("heading", name="Choose runs")).to_be_visible()
    assert_no_sideways_scroll(page)
    axe(page)
