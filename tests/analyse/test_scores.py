"""What scorers measured: means with intervals whose units are cases, labels as counts, versions apart."""

import random

import numpy as np
import pytest
from statsmodels.stats.weightstats import DescrStatsW  # type: ignore[import-untyped]

from pramana.analyse.scores import MAX_KINDS, MAX_LABELS, OTHER_LABELS, Measured, Scores
from pramana.analyse.summary import Tally, why
from pramana.model import Case, Check, Facets, Key, Outcome, Reply, Result
from pramana.report.figures import scores as in_words

CASE = Case("a-1", "test_case", (), Facets("factual", "easy"))


def number(value: float, name: str = "words", version: str = "1") -> Check:
    return Check(name, version, Outcome.UNSCORED, f"{value}", value, decides=False)


def label(value: str, name: str = "tone") -> Check:
    return Check(name, "1", Outcome.UNSCORED, value, evidence={"label": value}, decides=False)


def measured(*checks: Check, per_case: int = 1) -> tuple[Measured, ...]:
    scores = Scores()
    for each in checks:
        scores.add("m", each)
    return scores.measured(per_case)


@pytest.mark.parametrize("count", [6, 7, 40, 1_000])
def test_the_interval_of_a_mean_is_students(count: int) -> None:
    chance = random.Random(count)
    values = [chance.gauss(5, 2) for _ in range(count)]
    (found,) = measured(*map(number, values))
    low, high = DescrStatsW(np.array(values)).tconfint_mean()
    assert found.interval is not None
    assert found.mean == pytest.approx(np.mean(values))
    assert (found.interval.low, found.interval.high) == pytest.approx((low, high), rel=2e-3)


def test_repeats_that_agree_never_narrow_the_interval() -> None:
    values = [float(each) for each in (1, 4, 2, 8, 5, 7, 3, 6)]
    (once,) = measured(*map(number, values))
    (thrice,) = measured(*map(number, values * 3), per_case=3)
    assert (thrice.count, thrice.mean) == (24, once.mean)
    assert thrice.interval == once.interval


@pytest.mark.parametrize("values", [(), (1.0,), (1.0, 2.0, 3.0, 4.0, 5.0), (2.0,) * 50])
def test_of_few_cases_or_of_values_that_are_all_alike_there_is_no_interval(values: tuple[float, ...]) -> None:
    assert [each.interval for each in measured(*map(number, values))] == [None] * bool(values)


def test_labels_are_counted_and_the_many_together() -> None:
    (tone,) = measured(*map(label, ["formal", "casual", "formal"]))
    assert (tone.count, tone.mean, list(tone.labels.items())) == (3, None, [("formal", 2), ("casual", 1)])
    (many,) = measured(*(label(f"label {each}") for each in range(MAX_LABELS + 5)))
    assert (len(many.labels), many.labels[OTHER_LABELS], many.count) == (MAX_LABELS + 1, 5, MAX_LABELS + 5)


def test_versions_are_never_pooled_and_memory_is_bounded() -> None:
    found = measured(number(1), number(3), number(10, version="2"))
    assert [(each.version, each.mean) for each in found] == [("1", 2.0), ("2", 10.0)]
    assert [name for name, _, _ in in_words(found)] == ["words (version 1)", "words (version 2)"]
    assert len(measured(*(number(1, f"n{each}") for each in range(MAX_KINDS + 5)))) == MAX_KINDS


def result(*checks: Check, model: str = "m", repeat: int = 0) -> Result:
    return Result(Key("sha256:1", model, repeat=repeat), "a-1", Reply("x"), None, checks, None, None)


def test_a_measurement_is_no_rate_and_a_number_with_a_bar_is_both() -> None:
    barred = Check("polite", "1", Outcome.PASSED, "polite is 0.8, at least 0.5", 0.8, {"pass_at": 0.5})
    tally = Tally()
    tally.add(CASE, result(number(3), label("formal"), barred))
    tally.add(CASE, result(number(5), model="n"))
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
    assert "scores" not in Tally().summary().as_data()


def test_why_a_result_has_no_verdict_names_what_only_measured() -> None:
    assert why(result(number(3), label("formal"))) == (
        "nothing decides whether it passes: words, tone only measured; set pass_at, or give the case a check"
    )
    assert why(result(number(3), Check("contains", "1", Outcome.UNSCORED, "not judged"))) == "not judged"
