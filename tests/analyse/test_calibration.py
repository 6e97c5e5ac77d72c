"""A judge beside people: agreement and corrected rates, by referees and by counting coverage."""

import random
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from statsmodels.stats.inter_rater import cohens_kappa  # type: ignore[import-untyped]

from pramana.analyse import calibration
from pramana.analyse.calibration import (
    LabelCounts,
    correct_rate,
    correct_rate_with_other_labels,
    correct_rate_with_other_runs,
    count_labels_for_width,
    count_labels_to_draw,
    krippendorff_alpha,
    measure_agreement,
)

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("yes", "no"), [((40, 10), (5, 45)), ((90, 3), (7, 20)), ((25, 25), (25, 25))])
def test_kappa_equals_statsmodels_when_labels_are_drawn_evenly(yes: tuple[int, int], no: tuple[int, int]) -> None:
    counts = LabelCounts(*yes, *no)
    found = measure_agreement(counts, sum(yes), sum(yes) + sum(no))
    referee = cohens_kappa(np.array([yes, no]))
    assert found is not None
    assert found.kappa_interval is not None
    assert found.kappa == pytest.approx(referee.kappa)
    assert found.accuracy == pytest.approx((yes[0] + no[1]) / counts.total)
    assert found.kappa_interval.low < referee.kappa < found.kappa_interval.high
    assert found.kappa_interval.high - found.kappa_interval.low == pytest.approx(
        referee.kappa_upp - referee.kappa_low, rel=0.5
    )


def test_agreement_is_that_of_the_run_and_not_of_its_labelled_part() -> None:
    # The judge is right in 99 % of its YES and 50 % of its NO; NO is rare, but half of the labels.
    found = measure_agreement(LabelCounts(99, 1, 50, 50), 900, 1000)
    assert found is not None
    assert found.accuracy == pytest.approx(0.9 * 0.99 + 0.1 * 0.5)
    assert measure_agreement(LabelCounts(10, 2, 0, 0), 900, 1000) is None


@pytest.mark.parametrize(
    ("labels", "judge_passed", "replies"),
    [
        (LabelCounts(1, 0, 0, 0), 10, 10),
        (LabelCounts(5, 0, 0, 4), 50, 100),
        (LabelCounts(20, 10, 0, 0), 60, 60),  # a judge that passes everything: kappa would be 0.00 (0.00 to 0.00)
        (LabelCounts(0, 0, 30, 0), 0, 60),
    ],
)
def test_kappa_that_is_undefined_or_rests_on_few_labels_is_left_out(
    labels: LabelCounts, judge_passed: int, replies: int
) -> None:
    found = measure_agreement(labels, judge_passed, replies)
    assert found is not None
    assert (found.kappa, found.kappa_interval) == (None, None)


def test_alpha_of_two_raters_by_its_definition() -> None:
    units = [["yes", "yes"], ["no", "no"], ["yes", "no"], ["no", "no"], ["yes"], ["maybe", "yes", "yes"]]
    values = [label for unit in units if len(unit) > 1 for label in unit]
    observed = sum(
        (one != other) / (len(unit) - 1)
        for unit in units
        if len(unit) > 1
        for at, one in enumerate(unit)
        for to, other in enumerate(unit)
        if at != to
    ) / len(values)
    expected = sum(one != other for (at, one), (to, other) in product(enumerate(values), repeat=2) if at != to) / (
        len(values) * (len(values) - 1)
    )
    assert krippendorff_alpha(units) == pytest.approx(1 - observed / expected)


def test_alpha_is_one_for_agreement_and_none_without_evidence() -> None:
    assert krippendorff_alpha([["a", "a"], ["b", "b"]]) == 1.0
    assert krippendorff_alpha([["a", "a"], ["a", "a"]]) is None
    assert krippendorff_alpha([["a"], []]) is None
    assert krippendorff_alpha([]) is None


# ── Corrected rates ──


def test_a_judge_without_errors_keeps_its_rate() -> None:
    found = correct_rate(LabelCounts(60, 0, 0, 40), 240, 300)
    assert found.value == pytest.approx(0.8)
    assert found.interval is not None
    assert found.interval.low < 0.8 < found.interval.high


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (LabelCounts(), "0 replies are labelled; a corrected pass rate needs 50"),
        (
            LabelCounts(55, 5, 1, 4),
            "5 of the labelled replies were failed by the judge; a corrected pass rate needs 10",
        ),
        (
            LabelCounts(3, 3, 30, 30),
            "6 of the labelled replies were passed by the judge; a corrected pass rate needs 10",
        ),
        (LabelCounts(13, 12, 12, 13), "the corrected pass rate is uncertain by 27 points; label more replies"),
    ],
)
def test_too_few_labels_are_refused_with_what_is_missing(labels: LabelCounts, reason: str) -> None:
    assert correct_rate(labels, 150, 300) == calibration.CorrectedRate(None, None, reason)


def test_the_same_labels_give_the_same_interval() -> None:
    assert correct_rate(LabelCounts(45, 5, 5, 45), 240, 300) == correct_rate(LabelCounts(45, 5, 5, 45), 240, 300)


def test_labels_from_elsewhere_are_rogan_and_gladens() -> None:
    found = correct_rate_with_other_labels(LabelCounts(90, 20, 10, 80), LabelCounts(8, 2, 2, 8), 210, 300)
    assert found.value == pytest.approx((0.7 + 0.8 - 1) / (0.9 + 0.8 - 1))
    assert found.interval is not None
    assert found.interval.low < 0.714 < found.interval.high


@pytest.mark.parametrize(
    ("elsewhere", "own", "reason"),
    [
        (LabelCounts(90, 20, 10, 80), LabelCounts(4, 1, 1, 4), "10 replies of this run are labelled"),
        (LabelCounts(60, 1, 1, 1), LabelCounts(8, 2, 2, 8), "the labels of other runs are 61 passes and 2 failures"),
        (LabelCounts(20, 30, 30, 20), LabelCounts(8, 2, 2, 8), "no better than chance"),
    ],
)
def test_labels_from_elsewhere_are_refused_with_a_reason(elsewhere: LabelCounts, own: LabelCounts, reason: str) -> None:
    found = correct_rate_with_other_labels(elsewhere, own, 210, 300)
    assert found.value is None
    assert reason in found.refusal_reason


def test_half_of_the_labels_are_drawn_among_the_failures() -> None:
    assert count_labels_to_draw(270, 30, 50) == (25, 25)
    assert count_labels_to_draw(295, 5, 50) == (45, 5)
    assert count_labels_to_draw(5, 295, 50) == (5, 45)
    assert count_labels_to_draw(0, 0, 50) == (0, 0)


def simulate_corrected(seed: int, rate: float, hits: float, rejections: float, total: int, wanted: int) -> bool | None:
    """Return whether the interval of a simulated run covers its true rate; None if no rate was given."""
    rng = random.Random(seed)
    truths = [rng.random() < rate for _ in range(total)]
    verdicts = [rng.random() < (hits if good else 1 - rejections) for good in truths]
    passed = [at for at, verdict in enumerate(verdicts) if verdict]
    failed = [at for at, verdict in enumerate(verdicts) if not verdict]
    among_passed, among_failed = count_labels_to_draw(len(passed), len(failed), wanted)
    yes, no = rng.sample(passed, among_passed), rng.sample(failed, among_failed)
    right, missed = sum(truths[at] for at in yes), sum(truths[at] for at in no)
    found = correct_rate(LabelCounts(right, len(yes) - right, missed, len(no) - missed), len(passed), total)
    return found.interval.low <= rate <= found.interval.high if found.interval else None


@pytest.mark.parametrize(
    ("rate", "hits", "rejections", "total", "wanted"), [(0.8, 0.9, 0.8, 300, 50), (0.9, 0.95, 0.7, 300, 100)]
)
def test_corrected_intervals_cover_the_true_rate(
    rate: float, hits: float, rejections: float, total: int, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "DRAWS", 500)
    covered = [simulate_corrected(seed, rate, hits, rejections, total, wanted) for seed in range(600)]
    decided = [each for each in covered if each is not None]
    assert len(decided) > 300
    assert sum(decided) / len(decided) >= 0.92  # 600 tries: two standard errors below 94 %


def test_intervals_from_each_kind_of_labels_cover_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small form of `benchmarks/judge_coverage.py`: 94 %, less three standard errors of 120 tries."""
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    from benchmarks.judge_coverage import Setting, simulate

    monkeypatch.setattr(calibration, "DRAWS", 300)
    found = simulate(Setting(0.8, 0.9, 0.8, 300, 100), 120)
    for way in ("own labels", "drawn by an earlier judge", "labels of another run", "accuracy", "kappa"):
        assert found[way].shown > 60, way
        assert found[way].share >= 0.94 - 3 * (0.94 * 0.06 / found[way].shown) ** 0.5, way
    assert found["judge alone"].share < 0.9, "the interval of the judge's own pass rate misses the truth"


def test_labels_drawn_half_among_no_are_weighed_when_they_correct_another_run() -> None:
    """Of 1,000 replies the judge failed 100: counted as if drawn at random, it would fail good replies far too often."""
    drawn = LabelCounts(true_yes=95, false_yes=5, false_no=30, true_no=70)
    own = LabelCounts(19, 1, 6, 14).as_strata(900, 1_000)
    weighed = correct_rate_with_other_runs([drawn.as_strata(900, 1_000)], own)
    assert weighed.value == pytest.approx(0.9 * 0.95 + 0.1 * 0.3), "the same run twice has the same rate"


def test_a_judge_that_errs_differently_here_is_not_corrected_by_labels_of_other_runs() -> None:
    other = LabelCounts(95, 5, 5, 95).as_strata(500, 1_000)
    found = correct_rate_with_other_runs([other], LabelCounts(6, 14, 14, 6).as_strata(500, 1_000))
    assert found.value is None
    assert found.refusal_reason.startswith("the judge errs differently on this run")


def test_missing_labels_are_estimated() -> None:
    counts = LabelCounts(13, 12, 12, 13)
    more = count_labels_for_width(counts.as_strata(150, 300))
    assert more is not None
    scaled = LabelCounts(*(round(each * (50 + more) / 50) for each in (13, 12, 12, 13)))
    assert correct_rate(scaled, 150, 300).value is not None
    assert count_labels_for_width(LabelCounts(20, 1, 1, 5).as_strata(240, 300)) == 23
    assert count_labels_for_width(counts.as_strata(10, 20)) is None


def test_all_replies_of_a_rare_verdict_are_enough() -> None:
    assert correct_rate(LabelCounts(50, 4, 1, 3), 296, 300).value is not None
    assert correct_rate(LabelCounts(50, 4, 1, 2), 296, 300).refusal_reason == (
        "3 of the labelled replies were failed by the judge; a corrected pass rate needs 4"
    )
