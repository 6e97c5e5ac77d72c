"""Panels of judges: the majority decides, and every verdict, answer and cost is kept."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from pramana.errors import BudgetSpent, RateLimited
from pramana.model import Assertion, Case, Check, Facets, Outcome, Reply, Request, Turn
from pramana.score.judge import Judge, score_by_judge, score_by_rubric
from pramana.score.panel import score_by_panel

ASKED = Case(
    "a", "test_case", (Turn("user", "Hello?"),), Facets("safety", "easy"), Assertion("llm_judge", judge_prompt="?")
)
TASK = Case(
    "b", "scenario", (Turn("user", "Hello?"),), Facets("task-completion", "easy"), None, expected_outcome="Greets"
)
RATED = '{{"completed": "{}", "accuracy": {}, "helpfulness": 8, "naturalness": 7, "efficiency": 6}}'


def make_judge(name: str, answer: str | Exception, cost: float | None = 0.01) -> Judge:
    async def ask(request: Request) -> Reply:
        assert request.purpose == "judge"
        if isinstance(answer, Exception):
            raise answer
        return Reply(answer, cost_usd=cost, served_model=f"{name}-2026")

    return Judge(ask, name, name)


def score(answers: Sequence[str | Exception], case: Case = ASKED) -> Check:
    judges = [make_judge(f"judge{number}", answer) for number, answer in enumerate(answers, 1)]
    by = score_by_judge if case.assertion else score_by_rubric
    return asyncio.run(score_by_panel(by, judges, case, Reply("Good day.")))


@pytest.mark.parametrize(
    ("answers", "outcome", "reason"),
    [
        (["YES", "YES", "NO"], "passed", "2 of 3 judges say YES: judge1 says YES; judge2 says YES; judge3 says NO"),
        (["NO", "NO"], "failed", "2 of 2 judges say NO: judge1 says NO; judge2 says NO"),
        (["YES", "NO"], "unscored", "the panel has no majority: judge1 says YES; judge2 says NO"),
        (["YES", "maybe", "NO"], "unscored", "the panel has no majority: judge1 says YES; judge2 gave no verdict ("),
        (["YES", RateLimited("slow down"), "YES"], "passed", "2 of 3 judges say YES: "),
        (["YES", RateLimited("slow down"), RateLimited("slow down")], "unscored", "the panel has no majority: "),
    ],
)
def test_more_than_half_of_the_judges_decide(answers: list[str | Exception], outcome: str, reason: str) -> None:
    check = score(answers)
    assert check.outcome.value == outcome
    assert check.reason.startswith(reason)


def test_every_verdict_answer_and_cost_is_kept() -> None:
    evidence: Any = score(["It greets.\nYES", "NO", "YES"]).evidence
    assert evidence["judge"] == "judge1 + judge2 + judge3"
    assert [(each["judge"], each["verdict"]) for each in evidence["panel"]] == [
        ("judge1", "passed"), ("judge2", "failed"), ("judge3", "passed"),
    ]  # fmt: skip
    assert evidence["panel"][0]["answers"] == ["It greets.\nYES"]
    assert evidence["answers"][1] == "judge2: NO"
    assert evidence["cost_usd"] == pytest.approx(0.03)
    assert evidence["served_model"] == "judge1-2026 + judge2-2026 + judge3-2026"


def test_ratings_are_the_means_of_the_judges_who_agree() -> None:
    check = score([RATED.format("yes", 9), RATED.format("yes", 6), RATED.format("no", 1)], TASK)
    assert check.outcome is Outcome.PASSED
    assert check.evidence["scores"] == {"accuracy": 8, "helpfulness": 8, "naturalness": 7, "efficiency": 6}


def test_an_error_that_ends_the_run_is_raised() -> None:
    with pytest.raises(BudgetSpent):
        score(["YES", BudgetSpent("the cost limit is reached", "max_cost_usd"), "YES"])


def test_a_single_judge_is_no_panel() -> None:
    assert score(["YES"]).reason == "judge1 says YES: YES"
    assert "panel" not in score(["YES"]).evidence
