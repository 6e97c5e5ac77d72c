"""The judges' report: agreement with people, corrected rates, and what other labelled runs say of the same judge."""

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from pramana.analyse import calibration
from pramana.analyse.labelling import draw_replies
from pramana.app import judging
from pramana.app.calibrations import calibrate_judges, list_judged_replies, make_judge_report
from pramana.app.judging import LabelRequest, draw_replies_to_label, save_labels
from pramana.model import Run
from pramana.report.judging import render_judge_report
from pramana.store import open_store
from pramana.store.store import Store

from ..judged_runs import add_judged_run, judge_again
from ..stores import sqlite_store


@pytest.fixture(name="store")
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(calibration, "DRAWS", 1_000)
    monkeypatch.setattr(judging, "draw_replies", lambda replies, count, _: draw_replies(replies, count, "one draw"))
    with closing(open_store(sqlite_store(tmp_path / "store.sqlite3"))) as store:
        yield store


def label_draw(store: Store, run: Run, truths: Sequence[bool], count: int = 60, rater: str = "ann") -> None:
    """Label the drawn replies by the truth, which is given in the order of the results."""
    numbers = {seq: at for at, (seq, _) in enumerate(store.results.iterate(run))}
    seqs = {each.task: each.seq for each in list_judged_replies(store, run)}
    save_labels(
        store,
        run,
        [
            LabelRequest(task=task, label="yes" if truths[numbers[seqs[task]]] else "no")
            for task in draw_replies_to_label(store, run, count).tasks
        ],
        rater,
    )


def judge_with_errors(seed: int, count: int, rate: float = 0.7) -> tuple[list[bool], list[bool]]:
    """Return which replies are right, and the verdicts of a judge that errs in a tenth of both kinds."""
    rng = random.Random(seed)
    truths = [rng.random() < rate for _ in range(count)]
    return truths, [truth if rng.random() < 0.9 else not truth for truth in truths]


def test_a_report_has_agreement_and_the_corrected_rate_of_each_model(store: Store) -> None:
    truths, verdicts = judge_with_errors(1, 400)
    run = add_judged_run(store, verdicts, categories=("safety", "coding"))
    label_draw(store, run, truths, 100)
    report = make_judge_report(store, run)
    (judge,) = report.judges
    assert (report.labelled, report.raters, report.alpha, judge.labels) == (100, ("ann",), None, 100)
    assert (judge.verdicts, judge.passed) == (400, sum(verdicts))
    agreed = sum(one == other for one, other in zip(truths, verdicts, strict=True)) / 400
    assert judge.agreement.accuracy_interval
    assert judge.agreement.accuracy_interval[0] < agreed < judge.agreement.accuracy_interval[1]
    assert [each.category for each in judge.categories] == ["coding", "safety"]
    assert sum(each.labels for each in judge.categories) == 100
    (rate,) = judge.models
    assert (rate.method, rate.refusal, rate.missing_labels) == ("post-stratification", None, None)
    assert rate.interval
    assert rate.interval[0] < sum(truths) / 400 < rate.interval[1]
    text = render_judge_report(report)
    assert max(map(len, text.splitlines())) <= 80
    assert "corrected by 100 labels" in text


def test_without_labels_the_judge_is_uncalibrated_and_the_rate_is_refused(store: Store) -> None:
    run = add_judged_run(store, [True] * 5 + [False] * 5)
    (judge,) = make_judge_report(store, run).judges
    assert (judge.calibration, judge.agreement.accuracy, judge.models[0].corrected) == ("uncalibrated", None, None)
    assert judge.models[0].refusal == "0 replies are labelled; a corrected pass rate needs 50"
    assert judge.models[0].missing_labels == 50
    assert calibrate_judges(store, run) == ()


def test_few_labels_give_kappa_but_no_accuracy(store: Store) -> None:
    run = add_judged_run(store, [True, False] * 50)
    label_draw(store, run, [True, False] * 50, 12)
    (judge,) = make_judge_report(store, run).judges
    assert judge.calibration == "uncalibrated (12 of 30 labels)"
    assert (judge.agreement.accuracy, judge.agreement.kappa) == (None, 1.0)
    assert "too few" not in render_judge_report(make_judge_report(store, run)), "there is only one category"


def test_one_label_is_too_few_for_kappa_and_the_weighting_is_named(store: Store) -> None:
    run = add_judged_run(store, [True, False] * 50)
    label_draw(store, run, [True, False] * 50, 2)
    report = make_judge_report(store, run)
    assert report.judges[0].agreement.kappa is None
    text = render_judge_report(report)
    assert "too few labels for kappa: 2 of 10" in text
    assert "weighted" not in text
    label_draw(store, run, [True, False] * 50, 60)
    text = " ".join(render_judge_report(make_judge_report(store, run)).split())
    assert "labels), weighted by how often the judge gives each verdict" in text
    assert "kappa 1.00 (" in text


def test_a_judge_that_passes_everything_has_no_kappa(store: Store) -> None:
    run = add_judged_run(store, [True] * 40)
    label_draw(store, run, [True] * 30 + [False] * 10, 40)
    report = make_judge_report(store, run)
    assert report.judges[0].agreement.kappa_interval is None
    assert "no kappa: the judge gave all replies the same verdict" in render_judge_report(report)


def test_a_run_whose_judge_gave_no_verdict_is_not_listed_as_judged(store: Store) -> None:
    judged = add_judged_run(store, [None, True])
    add_judged_run(store, [None, None])
    listed = store.labels.list_judged_runs(("llm_judge", "rubric"), 10)
    assert [each.id for each in listed] == [judged.id]


def test_the_majority_of_raters_counts_and_ties_and_unsure_do_not(store: Store) -> None:
    run = add_judged_run(store, [True, True, True, False])
    for rater, labels in (("ann", "ynun"), ("bob", "yyun"), ("cy", "n__n")):
        save_labels(
            store,
            run,
            [
                LabelRequest(task=f"{number}.llm_judge", label={"y": "yes", "n": "no", "u": "unsure"}[key])  # type: ignore[arg-type]
                for number, key in enumerate(labels, 1)
                if key != "_"
            ],
            rater,
        )
    report = make_judge_report(store, run)
    assert (report.labelled, report.tied, report.unsure, report.raters) == (2, 1, 1, ("ann", "bob", "cy"))
    counts = report.judges[0].counts
    assert (counts.judge_yes_people_yes, counts.judge_no_people_no) == (1, 1)
    assert report.alpha is not None
    assert 0 < report.alpha < 1


def test_labels_drawn_by_a_first_judge_are_not_biased_for_a_second_one(store: Store) -> None:
    """The second judge passes everything that the first failed: pooled naively, it would seem wrong in half of its YES."""
    truths = [True] * 800 + [False] * 100
    first = [True] * 700 + [False] * 200  # fails 100 right replies and all wrong ones
    run = add_judged_run(store, first)
    label_draw(store, run, truths, 400)
    judge_again(store, run, [True] * 850 + [False] * 50, "openai:gpt-6")
    (judge,) = make_judge_report(store, run).judges
    assert judge.judge == "openai:gpt-6"
    assert judge.agreement.accuracy == pytest.approx(850 / 900, abs=0.03)
    assert judge.models[0].corrected == pytest.approx(800 / 900, abs=0.03)


def test_labels_of_other_runs_correct_a_run_with_few_labels_of_its_own(store: Store) -> None:
    truths, verdicts = judge_with_errors(2, 600)
    other = add_judged_run(store, verdicts)
    label_draw(store, other, truths, 300)
    truths, verdicts = judge_with_errors(3, 600, 0.5)
    run = add_judged_run(store, verdicts)
    label_draw(store, run, truths, 30)
    (rate,) = make_judge_report(store, run).judges[0].models
    assert (rate.method, rate.labels, rate.other_labels) == ("rogan-gladen", 30, 300)
    assert rate.interval
    assert rate.interval[0] < sum(truths) / 600 < rate.interval[1]
    third = add_judged_run(store, [True] * 10)
    assert [(each.label_count, each.is_from_other_runs) for each in calibrate_judges(store, third)] == [(330, True)]
    fourth = add_judged_run(store, [True] * 10, judge="openai:gpt-6")
    assert "openai:gpt-6" not in {each.judge for each in calibrate_judges(store, fourth)}


def test_a_judge_that_errs_differently_on_this_run_is_not_corrected_by_other_runs(store: Store) -> None:
    truths, verdicts = judge_with_errors(4, 600)
    label_draw(store, add_judged_run(store, verdicts), truths, 300)
    run = add_judged_run(store, [True] * 300 + [False] * 300)
    label_draw(store, run, [True] * 100 + [False] * 200 + [True] * 200 + [False] * 100, 48)
    (rate,) = make_judge_report(store, run).judges[0].models
    assert (rate.corrected, rate.refusal) == (None, "48 replies are labelled; a corrected pass rate needs 50")
    assert rate.missing_labels == 2


def test_a_model_that_judges_itself_is_named(store: Store) -> None:
    run = add_judged_run(store, {"openai:gpt-5": [True, False], "openai:gpt-6": [True, False]})
    report = make_judge_report(store, run)
    assert report.judges[0].self_judged_models == ("openai:gpt-5",)
    assert "openai:gpt-5 judges its own replies." in " ".join(render_judge_report(report).split())
