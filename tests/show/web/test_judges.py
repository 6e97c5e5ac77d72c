"""Labels in the workbench: replies judged blind by keys and buttons, and what they say about the judge."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import pytest
from playwright.sync_api import Browser, Page, expect

from pramana.app.judging import LabelRequest, draw_replies_to_label, save_labels
from pramana.model import PromptOrder
from pramana.store import open_store
from pramana.store.rejudgements import Rejudgement

from ...judged_runs import QUESTION, add_judged_run, evaluate_with_judge, make_verdict
from ...stores import sqlite_store
from .conftest import Bench, assert_no_sideways_scroll
from .workbench import workbench


@pytest.fixture(scope="module")
def runs() -> dict[str, str]:
    return {}


def make_rejudgements(seqs: Sequence[int]) -> Iterator[Rejudgement]:
    """Yield new verdicts on replies that the judge passed: one NO by the same prompt, nine by swapped answers."""
    orders: tuple[tuple[PromptOrder, int], ...] = (("usual", 1), ("answers-swapped", 9))
    for order, no_count in orders:
        for place, seq in enumerate(seqs):
            check = make_verdict(place >= no_count, version=f"1 {order}")
            yield Rejudgement(
                seq, "llm_judge", "openai:gpt-5", order, earlier_version="1", earlier_passed=True, check=check
            )


@pytest.fixture(scope="module")
def module_bench(tmp_path_factory: pytest.TempPathFactory, browser: Browser, runs: dict[str, str]) -> Iterator[Bench]:
    """A server whose store has a run with many labels, one without labels, and one that ann has labelled."""
    home = tmp_path_factory.mktemp("home")
    with closing(open_store(sqlite_store(home / "pramana.sqlite3"))) as store:
        runs["token of bob"] = store.tokens.create("bob", "editor")[1]
        runs["judged again"] = evaluate_with_judge(store, "fake:fixed=YES", 4).id
        shared = add_judged_run(store, [True, True, False])
        tasks = draw_replies_to_label(store, shared, 3).tasks
        save_labels(store, shared, [LabelRequest(task=each, label="yes") for each in tasks], "ann")
        runs["shared"] = shared.id
        labelled = add_judged_run(store, [True, True, True, False] * 20, categories=("safety", "factual"))
        draw = draw_replies_to_label(store, labelled, 60)
        given = [
            LabelRequest(task=task, label="no" if place % 3 == 0 else "yes") for place, task in enumerate(draw.tasks)
        ]
        save_labels(store, labelled, given, "ann")
        passed = [seq for at, (seq, _) in enumerate(store.results.iterate(labelled)) if at % 4 != 3]
        store.rejudgements.add(labelled, list(make_rejudgements(passed[:12])))
        runs["labelled"], runs["new"] = labelled.id, add_judged_run(store, [True, False, True]).id
    with workbench(PRAMANA_HOME=str(home)) as client:
        yield Bench(client, home, browser)


def test_replies_are_labelled_blind_by_keys_and_labelling_continues(
    bench: Bench, runs: dict[str, str], axe: Callable[[Page], None]
) -> None:
    page = bench.open(f"/runs/{runs['new']}", width=360)
    page.get_by_role("link", name="Label replies").click()
    progress = page.get_by_text("of 3 labelled by")
    expect(progress).to_contain_text("0 of 3 labelled by")
    expect(page.get_by_role("region", name="Criterion")).to_have_text(QUESTION)
    shown = page.locator("#main").inner_text()
    assert "a-model" not in shown
    assert "gpt-5" not in shown
    assert_no_sideways_scroll(page)
    axe(page)
    page.keyboard.press("y")
    expect(progress).to_contain_text("1 of 3 labelled by")
    page.keyboard.press("u")
    expect(progress).to_contain_text("2 of 3 labelled by")
    expect(progress).to_contain_text("1 of them unsure")
    page.keyboard.press("b")
    expect(page.get_by_text("Your label so far: unsure.")).to_be_visible()
    page.get_by_label("Note (optional)").fill("nnn")  # keys typed into a field are text
    page.get_by_role("button", name="Does not meet it (n)").click()
    expect(progress).not_to_contain_text("unsure")
    page.reload()
    expect(progress).to_contain_text("2 of 3 labelled by")
    page.keyboard.press("s")
    expect(page.get_by_role("heading", name="No reply is left")).to_be_visible()
    page.get_by_role("button", name="Show the skipped replies").click()
    page.get_by_role("checkbox", name="Use the keys").click()
    page.get_by_role("heading", name="Label replies").click()
    page.keyboard.press("y")
    expect(progress).to_contain_text("2 of 3 labelled by")
    page.get_by_role("button", name="Meets it (y)", exact=True).click()
    expect(page.get_by_text("Every drawn reply has your label.")).to_be_visible()
    saved = bench.client.get(f"/api/runs/{runs['new']}/labels").data
    assert sorted((each["label"], each["note"]) for each in saved) == [("no", "nnn"), ("yes", ""), ("yes", "")]


def test_a_second_rater_labels_the_same_replies_and_the_report_says_how_far_both_agree(
    bench: Bench, runs: dict[str, str]
) -> None:
    page = bench.open(f"/judges/{runs['shared']}/label", token=runs["token of bob"])
    progress = page.get_by_text("of 3 labelled by bob")
    expect(progress).to_contain_text("0 of 3 labelled by bob; these are all judged replies.")
    expect(page.get_by_text("Your label so far")).to_have_count(0)
    for count, key in enumerate(("y", "u", "n"), 1):
        page.keyboard.press(key)
        expect(progress).to_contain_text(f"{count} of 3")
    page.get_by_role("link", name="Report on the judge").click()
    expect(page.locator("#main")).to_contain_text(
        "2 replies labelled by ann, bob; not counted: 1 on which the raters disagree."
    )
    expect(page.get_by_text("Krippendorff’s alpha")).to_be_visible()
    expect(page.get_by_role("row", name="fake:a-model")).to_contain_text("2 replies are labelled; a corrected")


def test_a_report_shows_agreement_by_category_and_the_corrected_pass_rate_or_why_not(
    bench: Bench, runs: dict[str, str], axe: Callable[[Page], None]
) -> None:
    page = bench.open("/judges")
    row = page.get_by_role("row", name=runs["labelled"]).or_(page.get_by_role("row").nth(2))
    expect(row.first).to_contain_text(re.compile(r"60\s*by 1 person"))
    page.goto(f"{bench.url}/judges/{runs['labelled']}")
    judge = page.get_by_role("region", name="Judge openai:gpt-5")
    expect(judge).to_contain_text("agrees with people")
    expect(judge).to_contain_text("Cohen’s kappa")
    expect(judge.get_by_role("row", name="safety")).to_be_visible()
    rate = judge.get_by_role("row", name="fake:a-model")
    expect(rate).to_contain_text("75.0 % of 80")
    axe(page)
    page.goto(f"{bench.url}/judges/{runs['new']}")
    expect(page.get_by_role("row", name="fake:a-model")).to_contain_text("not corrected")


def test_a_report_shows_the_position_bias_of_a_judge_or_how_to_measure_it(
    bench: Bench, runs: dict[str, str], axe: Callable[[Page], None]
) -> None:
    page = bench.open(f"/judges/{runs['labelled']}")
    expect(page.get_by_role("heading", name="Position bias")).to_be_visible()
    judge = page.get_by_role("region", name="Judge openai:gpt-5")
    expect(judge).to_contain_text(
        "Asked again with the same prompt, 1 of 12 verdicts changed, 0 to YES and 1 to NO: 8.3 % "
        "(95 % interval 0.2–38.5 %)."
    )
    expect(judge).to_contain_text("With the answers swapped, 9 of 12 verdicts changed, 0 to YES and 9 to NO")
    expect(judge).to_contain_text("The judge prefers the answer that is named first")
    axe(page)
    page.goto(f"{bench.url}/judges/{runs['new']}")
    expect(page.get_by_text("Position bias is not measured yet: pramana judge swap")).to_be_visible()


def test_position_bias_is_measured_from_the_report_after_its_calls_and_cost_were_shown(
    bench: Bench, runs: dict[str, str], axe: Callable[[Page], None]
) -> None:
    page = bench.open(f"/judges/{runs['judged again']}", width=360)
    page.get_by_role("button", name="Measure position bias").click()
    dialog = page.get_by_role("dialog", name="Measure position bias")
    expect(dialog).to_contain_text("4 of 4 judged replies drawn. 8 calls to fake:fixed=YES")
    dialog.get_by_label("Replies to judge again").fill("0")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog).to_contain_text("Replies to judge again: enter a whole number from 1 to 10,000")
    dialog.get_by_label("Replies to judge again").fill("3")
    dialog.get_by_role("checkbox", name="Also judge with the criterion after the reply").click()
    expect(dialog).to_contain_text("3 of 4 judged replies drawn. 9 calls to fake:fixed=YES")
    dialog.get_by_role("button", name="Start").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_text("The judges were asked again: 9 of 9 verdicts.")).to_be_visible()
    judge = page.get_by_role("region", name="Judge fake:fixed=YES")
    expect(judge).to_contain_text("With the answers swapped, 0 of 3 verdicts changed: 0 %")
    assert_no_sideways_scroll(page)
    axe(page)
    plan = bench.client.get(f"/api/runs/{runs['judged again']}/rejudging?count=4").data
    assert (plan["stored"], plan["calls"]) == (6, 2)
