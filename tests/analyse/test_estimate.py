"""Estimates of a run: models that cannot judge are not counted as judges, and missing verdicts are announced."""

import pytest
from msgspec.structs import replace

from pramana.analyse.estimate import Estimate, estimate
from pramana.model import Assertion, Case, Expected, Facets, Line, Plan, PlannedScorer, Target, Turn, Usage

LOCAL, ALOUD, AGENT = Target("local", "local", "x"), Target("local-voice", "local-voice", "x"), Target("a", "vapi", "a")
MODEL, OTHER = Target("m", "fake", "m"), Target("n", "fake", "n")


def make_case(kind: str | None, *of_lines: str) -> Case:
    script = tuple(Line("Hello.", expected=(Expected(Assertion(each), ("x",)),)) for each in of_lines)
    stated = Assertion(kind) if kind else None
    return Case(f"{kind} {of_lines}", "scenario", (Turn("user", "Hi."),), Facets("x", "easy"), stated, script=script)


CASES = (
    make_case("contains"),
    make_case("llm_judge"),
    make_case(None),
    make_case(None, "contains"),
    make_case("contains", "llm_judge"),
)


def estimate_run(*targets: Target, judge: Target | None = None, repeats: int = 1) -> Estimate:
    plan = Plan("mine", None, targets, repeats, judge=judge)
    return estimate(plan, CASES, lambda *_: 0.0, lambda target: target in (ALOUD, AGENT))


def count_judge_calls(estimated: Estimate) -> int:
    return sum(each.calls for each in estimated.model_estimates if each.purpose == "judge")


@pytest.mark.parametrize("target", [LOCAL, ALOUD, AGENT])
def test_a_model_that_cannot_judge_gets_no_judge_calls(target: Target) -> None:
    found = estimate_run(target, repeats=3)
    assert count_judge_calls(found) == 0
    assert found.unjudged_cases_by_model == {target.typed: 3}  # cases, not repeats
    assert found.warnings == ["3 cases will have no verdict: name a judge"]
    judged = estimate_run(target, judge=MODEL)
    assert (count_judge_calls(judged), judged.unjudged_cases_by_model, judged.warnings) == (4, {}, [])


def test_a_self_judging_model_gets_judge_calls() -> None:
    assert (count_judge_calls(estimate_run(MODEL)), estimate_run(MODEL).warnings) == (4, [])


def test_models_without_a_judge_are_named() -> None:
    assert estimate_run(LOCAL, MODEL).warnings == ["3 cases of local will have no verdict: name a judge"]
    assert estimate_run(LOCAL, AGENT).warnings == ["3 cases will have no verdict: name a judge"]


def test_cases_for_custom_scorers_need_no_judge_and_scorer_calls_are_not_estimated() -> None:
    plan = Plan("mine", None, (LOCAL,), scorers=(PlannedScorer("python:a:tone", "tone", "1"),))
    found = estimate(plan, CASES, lambda *_: 0.0, lambda _: False)
    assert found.unjudged_cases_by_model == {"local": 2}  # those with llm_judge
    assert found.warnings[1:] == ["not counted: model calls by scorers (tone)"]
    assert count_judge_calls(estimate(replace(plan, judge=MODEL), CASES, lambda *_: 0.0, lambda _: False)) == 2


def test_a_judge_that_cannot_judge_is_reported() -> None:
    found = estimate_run(MODEL, OTHER, judge=AGENT)
    assert (count_judge_calls(found), found.warnings) == (0, ["3 cases will have no verdict: name another judge"])


def estimate_with_price(max_tokens: int | None = None, price: float | None = 1.0) -> Estimate:
    parameters = {} if max_tokens is None else {"max_tokens": max_tokens}

    def cost(_: Target, usage: Usage) -> float | None:
        return None if price is None else price * (usage.output_tokens or 0)

    return estimate(
        Plan("mine", None, (MODEL,), parameters=parameters), (make_case("contains"),), cost, lambda _: False
    )


def test_the_cost_range_covers_answers_a_third_to_three_times_as_long() -> None:
    found = estimate_with_price()
    assert found.cost_usd == 150
    assert found.cost_range_usd == (50, 450)


def test_max_tokens_caps_the_estimated_answer_length() -> None:
    assert (estimate_with_price(100).cost_usd, estimate_with_price(100).cost_range_usd) == (100, (50, 100))


def test_no_cost_range_without_a_price() -> None:
    assert (estimate_with_price(price=None).cost_usd, estimate_with_price(price=None).cost_range_usd) == (None, None)
