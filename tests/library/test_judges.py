"""Functions as judges: they may return a verdict instead of the text that a judge model would write."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

import pramana
from pramana.errors import InvalidInput

ASKED = {"id": "asked", "input": "Say please.", "check": {"type": "llm_judge", "judge_prompt": "Is it polite?"}}
TASK = {"id": "task", "input": "I want to return a jacket.", "expected_outcome": "Says how long the caller has."}
RATINGS = {"accuracy": 9, "helpfulness": 8, "naturalness": 7, "efficiency": 6}


def judge_by(case: Mapping[str, Any], verdict: object) -> tuple[str, pramana.Report]:
    def judge(prompt: str) -> object:
        assert "Please." in prompt
        return verdict

    report = pramana.evaluate(case, model="fake:fixed=Please.", judge=judge)
    (result,) = report.results()
    return result.outcome.value, report


@pytest.mark.parametrize("case", [ASKED, TASK])
@pytest.mark.parametrize(
    ("verdict", "outcome"),
    [
        (True, "passed"),
        (False, "failed"),
        ("It does.\nYES", "passed"),
        ("no", "failed"),
        ({"completed": True}, "passed"),
        ({"passed": "no"}, "failed"),
        ({"completed": True, **RATINGS}, "passed"),
        ({"reason": "it quotes " + '{"a": {}}' * 100, "passed": False}, "failed"),
    ],
)
def test_a_function_decides_by_what_it_returns(case: Mapping[str, Any], verdict: object, outcome: str) -> None:
    assert judge_by(case, verdict)[0] == outcome


def test_a_bool_of_numpy_decides() -> None:
    numpy = pytest.importorskip("numpy")
    assert [judge_by(TASK, numpy.bool_(value))[0] for value in (True, False)] == ["passed", "failed"]


def test_ratings_are_optional_and_kept_where_they_are_given() -> None:
    decided, rated = judge_by(TASK, verdict=True)[1], judge_by(TASK, {"completed": True, **RATINGS})[1]
    assert (decided.summary.rubric, next(decided.results()).checks[0].rubric_scores) == (None, {})
    assert next(rated.results()).checks[0].rubric_scores == RATINGS
    assert next(judge_by(TASK, "It names no days.\nNO")[1].results()).reason == (
        f"python:{__name__}:judge_by.<locals>.judge: task not completed: It names no days."
    )


@pytest.mark.parametrize("verdict", [7, 0.9, None, ["YES"]])
def test_a_score_is_no_verdict(verdict: object) -> None:
    outcome, report = judge_by(TASK, verdict)
    (result,) = report.results()
    assert outcome == "unscored"
    assert (result.reason or "").endswith(
        f"returned {type(verdict).__name__}; a judge returns True or False, text, or a dictionary; for numbers, write a "
        "scorer with pass_at"
    )


def test_a_rating_that_is_none_makes_the_answer_unreadable() -> None:
    outcome, report = judge_by(TASK, {"completed": True, "accuracy": 11})
    assert outcome == "unscored"
    assert 'expected a last line YES or NO, or {"completed": true or false}' in (next(report.results()).reason or "")


def test_a_model_must_rate_what_it_decides_by_a_rubric() -> None:
    report = pramana.evaluate(TASK, model="fake:fixed=Please.", judge='fake:fixed={"completed": "yes"}')
    assert next(report.results()).outcome.value == "unscored"


def test_a_judge_function_is_passed_again_as_judge() -> None:
    def judge(prompt: str) -> bool:
        return "Say please." in prompt

    left = pramana.evaluate(ASKED, model="fake:echo", judge=judge, deadline_s=0.000001)
    assert f"pramana.resume('{left.run_id}', judge=function)" in str(left)
    with pytest.raises(InvalidInput, match=r"exists only in the program .*, or judge=function, or put the function in"):
        pramana.resume(left)
    with pytest.raises(
        InvalidInput, match=f"is judged by {re.escape(judge_name(left))}, not gpt-5; resume the run without"
    ):
        pramana.resume(left, judge="gpt-5")
    assert pramana.resume(left, judge=judge, deadline_s=60).passed


def judge_name(report: pramana.Report) -> str:
    assert report.run.plan.judge is not None
    return report.run.plan.judge.typed


def test_a_function_that_is_tested_and_not_a_judge_returns_no_bool() -> None:
    report = pramana.evaluate(ASKED, model=lambda prompt: True)  # type: ignore[arg-type]
    (error,) = report.errors
    assert "returned bool; expected text (str) or pramana.Reply" in (error.reason or "")
