"""Scores of scorers: means with intervals over cases, label counts, and separate versions."""

import random

import numpy as np
import pytest
from scipy.stats import skew  # type: ignore[import-untyped]
from statsmodels.stats.weightstats import DescrStatsW  # type: ignore[import-untyped]

from pramana.analyse.intervals import skewed_mean_interval
from pramana.analyse.scores import (
    MAX_DISTINCT_LABELS,
    MAX_SCORE_KEYS,
    OTHER_LABELS_NAME,
    ScoreSummary,
    ScoreTally,
    average_rubric_ratings,
)
from pramana.analyse.summary import ResultTally, explain_outcome
from pramana.model import Case, Check, Facets, Outcome, Reply, Result, ResultKey
from pramana.report.figures import describe_scores as in_words
from pramana.report.figures import make_rubric_rows

CASE = Case("a-1", "test_case", (), Facets("factual", "easy"))


def make_number(value: float, name: str = "words", version: str = "1") -> Check:
    return Check(name, version, Outcome.UNSCORED, f"{value}", value, decides=False)


def make_label(value: str, name: str = "tone") -> Check:
    return Check(name, "1", Outcome.UNSCORED, value, evidence={"label": value}, decides=False)


def summarise_scores(*checks: Check, per_case: int = 1) -> tuple[ScoreSummary, ...]:
    scores = ScoreTally()
    for each in checks:
        scores.add("m", each)
    return scores.summarise(per_case)


@pytest.mark.parametrize("count", [8, 9, 40, 1_000])
def test_the_interval_of_a_mean_is_students_and_corrected_for_skewness(count: int) -> None:
    chance = random.Random(count)
    values = [chance.expovariate(0.2) for _ in range(count)]
    (found,) = summarise_scores(*map(make_number, values))
    low, high = DescrStatsW(np.array(values)).tconfint_mean()
    expected = skewed_mean_interval(count, float(np.mean(values)), float(np.var(values, ddof=1)), skewness(values))
    assert found.interval is not None
    assert expected is not None
    assert found.mean == pytest.approx(np.mean(values))
    assert (found.interval.low, found.interval.high) == pytest.approx((expected.low, expected.high))
    assert found.interval.low == pytest.approx(low, rel=1e-6)
    assert found.interval.high > high  # the long tail is on this side


def skewness(values: list[float]) -> float:
    return float(skew(values, bias=False))


def test_equal_distances_on_both_sides_give_students_interval() -> None:
    values = [5.0 + sign * step for step in (1, 2, 3, 4) for sign in (-1, 1)]
    (found,) = summarise_scores(*map(make_number, values))
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx(DescrStatsW(np.array(values)).tconfint_mean())


def test_repeats_that_agree_never_narrow_the_interval() -> None:
    values = [float(each) for each in (1, 4, 2, 8, 5, 7, 3, 6)]
    (once,) = summarise_scores(*map(make_number, values))
    (thrice,) = summarise_scores(*map(make_number, values * 3), per_case=3)
    assert (thrice.count, thrice.mean) == (24, once.mean)
    assert thrice.interval is not None
    assert once.interval is not None
    assert thrice.interval.low == pytest.approx(once.interval.low)
    assert thrice.interval.high == pytest.approx(once.interval.high)


@pytest.mark.parametrize("values", [(), (1.0,), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0), (2.0,) * 50])
def test_no_interval_for_few_cases_or_equal_values(values: tuple[float, ...]) -> None:
    assert [each.interval for each in summarise_scores(*map(make_number, values))] == [None] * bool(values)


def test_labels_are_counted_and_rare_ones_combined() -> None:
    (tone,) = summarise_scores(*map(make_label, ["formal", "casual", "formal"]))
    assert (tone.count, tone.mean, list(tone.labels.items())) == (3, None, [("formal", 2), ("casual", 1)])
    (many,) = summarise_scores(*(make_label(f"label {each}") for each in range(MAX_DISTINCT_LABELS + 5)))
    assert (len(many.labels), many.labels[OTHER_LABELS_NAME], many.count) == (
        MAX_DISTINCT_LABELS + 1,
        5,
        MAX_DISTINCT_LABELS + 5,
    )


def test_versions_are_never_pooled_and_memory_is_bounded() -> None:
    found = summarise_scores(make_number(1), make_number(3), make_number(10, version="2"))
    assert [(each.version, each.mean) for each in found] == [("1", 2.0), ("2", 10.0)]
    assert [name for name, _, _ in in_words(found)] == ["words (version 1)", "words (version 2)"]
    assert len(summarise_scores(*(make_number(1, f"n{each}") for each in range(MAX_SCORE_KEYS + 5)))) == MAX_SCORE_KEYS


def make_result(*checks: Check, model: str = "m", repeat: int = 0) -> Result:
    return Result(ResultKey("sha256:1", model, repeat=repeat), "a-1", Reply("x"), None, checks, None, None)


def test_a_measurement_has_no_pass_rate_unless_it_has_a_threshold() -> None:
    barred = Check("polite", "1", Outcome.PASSED, "polite is 0.8, at least 0.5", 0.8, {"pass_at": 0.5})
    tally = ResultTally()
    tally.add(CASE, make_result(make_number(3), make_label("formal"), barred))
    tally.add(CASE, make_result(make_number(5), model="n"))
    summary = tally.summary()
    assert list(summary.by["check"]) == ["polite"]
    assert (summary.overall.passed, summary.overall.unscored) == (1, 1)
    assert [(each.check, each.model, each.mean) for each in summary.scores] == [
        ("polite", "m", 0.8),
        ("tone", "m", None),
        ("words", "m", 3.0),
        ("words", "n", 5.0),
    ]
    assert summary.as_data()["scores"][0] == {
        "check": "polite", "version": "1", "model": "m", "count": 1, "mean": 0.8, "interval": None, "labels": {}
    }  # fmt: skip
    assert "scores" not in ResultTally().summary().as_data()


def test_the_reason_for_no_verdict_names_the_scorers_that_only_measured() -> None:
    assert explain_outcome(make_result(make_number(3), make_label("formal"))) == (
        "no check decides whether the reply passes: words, tone only measured; set pass_at, or add a check to the case"
    )
    assert (
        explain_outcome(make_result(make_number(3), Check("contains", "1", Outcome.UNSCORED, "not judged")))
        == "not judged"
    )


# ── Rubrics ──


def make_rating(accuracy: object, version: str = "1", **others: object) -> Check:
    return Check("rubric", version, Outcome.PASSED, "", evidence={"scores": {"accuracy": accuracy, **others}})


def make_scenario(name: str, kind: str = "task-completion", language: str = "en") -> Case:
    return Case(name, "scenario", (), Facets(kind, "easy", language), expected_outcome="Books it")


def tally_rubric(values: list[int], repeats: int = 1) -> ResultTally:
    tally = ResultTally(repeats=repeats)
    for place, value in enumerate(values):
        kind, language = ("task-completion", "en") if place % 2 else ("conversation-flow", "hi")
        tally.add(make_scenario(f"s-{place}", kind, language), make_result(make_rating(value, helpfulness=5)))
    return tally


def test_rubric_scores_are_averaged_by_type_and_language_like_scorers() -> None:
    values = [3, 9, 4, 8, 5, 10, 3, 9, 6, 7, 2, 9]
    rubric = tally_rubric(values).summary().rubric
    assert rubric is not None
    accuracy, helpfulness = rubric.overall
    (as_scorer,) = summarise_scores(*map(make_number, map(float, values)))
    assert (accuracy.check, accuracy.mean, accuracy.interval) == ("accuracy", as_scorer.mean, as_scorer.interval)
    assert (helpfulness.mean, helpfulness.interval) == (5.0, None)  # all are alike
    assert {name: list(rows) for name, rows in rubric.by.items()} == {
        "category": ["conversation-flow", "task-completion"],
        "language": ["en", "hi"],
    }
    flow = rubric.by["category"]["conversation-flow"][0]
    assert flow.count == 6
    assert flow.mean == pytest.approx(np.mean(values[::2]))
    assert rubric.by["language"]["hi"][0] == flow
    groups = ["all", "category conversation-flow", "category task-completion", "language en", "language hi"]
    assert [each.group_label for each in make_rubric_rows(rubric)] == groups
    interval = skewed_mean_interval(12, 6.25, float(np.var(values, ddof=1)), skewness(list(map(float, values))))
    assert interval is not None
    low, high = interval.low, interval.high
    shown = f"accuracy 6.25 ({low:.2f}–{high:.2f}), helpfulness 5.00; 12 replies"
    assert make_rubric_rows(rubric)[0].sentence == shown


def test_repeats_and_variants_never_narrow_the_interval_of_a_rubric_score() -> None:
    values = [3, 9, 4, 8, 5, 10, 3, 9]
    once, thrice = (tally_rubric(values * times, repeats=times).summary().rubric for times in (1, 3))
    intervals = [each.overall[0].interval for each in (once, thrice) if each]
    first, second = ((each.low, each.high) for each in intervals if each)
    assert first == pytest.approx(second)


def test_versions_of_a_rubric_and_models_are_never_pooled() -> None:
    tally = ResultTally()
    tally.add(make_scenario("a"), make_result(make_rating(2)))
    tally.add(make_scenario("b"), make_result(make_rating(8, version="2")))
    tally.add(make_scenario("b"), make_result(make_rating(9), model="n"))
    rows = make_rubric_rows(tally.summary().rubric)
    assert [(each.group_label, each.model, each.formatted_means["accuracy"]) for each in rows] == [
        ("all (rubric 1)", "m", "2.00"),
        ("all (rubric 2)", "m", "8.00"),
        ("all", "n", "9.00"),
    ]


@pytest.mark.parametrize("value", [0, 11, True, 7.5, "8", None, [8]])
def test_invalid_rubric_scores_are_left_out(value: object) -> None:
    tally = ResultTally()
    tally.add(
        make_scenario("a"),
        make_result(make_rating(value), Check("rubric", "1", Outcome.FAILED, "", evidence={"scores": [1]})),
    )
    tally.add(
        make_scenario("a"), make_result(Check("other", "1", Outcome.FAILED, "", evidence={"scores": {"accuracy": 3}}))
    )
    summary = tally.summary()
    assert summary.rubric is None
    assert "rubric" not in summary.as_data()


def test_a_result_rated_at_several_lines_has_the_means() -> None:
    assert average_rubric_ratings([make_rating(4, efficiency=2), make_rating(8)]) == {
        "accuracy": 6.0,
        "efficiency": 2.0,
    }
    tally = ResultTally()
    tally.add(make_scenario("a"), make_result(make_rating(4), make_rating(8)))
    rubric = tally.summary().rubric
    assert rubric is not None
    assert [(each.count, each.mean) for each in rubric.overall] == [(1, 6.0)]
    assert tally.summary().as_data()["rubric"]["by"]["language"]["en"][0]["mean"] == 6.0
