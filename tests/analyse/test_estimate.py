"""What a run would take: whoever never judges is not counted as a judge, and what then has no verdict is said."""

import pytest
from msgspec.structs import replace

from pramana.analyse.estimate import Estimate, estimate
from pramana.model import Assertion, Case, Expected, Facets, Line, Plan, PlannedScorer, Target, Turn, Usage

LOCAL, ALOUD, AGENT = Target("local", "local", "x"), Target("local-voice", "local-voice", "x"), Target("a", "vapi", "a")
MODEL, OTHER = Target("m", "fake", "m"), Target("n", "fake", "n")


def case(kind: str | None, *of_lines: str) -> Case:
    script = tuple(Line("Hello.", expected=(Expected(Assertion(each), ("x",)),)) for each in of_lines)
    stated = Assertion(kind) if kind else None
    return Case(f"{kind} {of_lines}", "scenario", (Turn("user", "Hi."),), Facets("x", "easy"), stated, script=script)


CASES = (case("contains"), case("llm_judge"), case(None), case(None, "contains"), case("contains", "llm_judge"))


def taken(*targets: Target, judge: Target | None = None, repeats: int = 1) -> Estimate:
    plan = Plan("mine", None, targets, repeats, judge=judge)
    return estimate(plan, CASES, lambda *_: 0.0, lambda target: target in (ALOUD, AGENT))


def judge_calls(found: Estimate) -> int:
    return sum(each.calls for each in found.shares if each.purpose == "judge")


@pytest.mark.parametrize("target", [LOCAL, ALOUD, AGENT])
def test_whoever_never_judges_is_not_asked_to(target: Target) -> None:
    found = taken(target, repeats=3)
    assert judge_calls(found) == 0
    assert found.unjudged == {target.typed: 3}  # cases, however often they are asked
    assert found.warnings == ["3 cases will have no verdict: name a judge"]
    judged = taken(target, judge=MODEL)
    assert (judge_calls(judged), judged.unjudged, judged.warnings) == (4, {}, [])


def test_a_model_that_judges_itself_is_counted() -> None:
    assert (judge_calls(taken(MODEL)), taken(MODEL).warnings) == (4, [])


def test_of_several_models_those_are_named_that_have_no_judge() -> None:
    assert taken(LOCAL, MODEL).warnings == ["3 cases of local will have no verdict: name a judge"]
    assert taken(LOCAL, AGENT).warnings == ["3 cases will have no verdict: name a judge"]


def test_a_case_that_is_left_to_scorers_needs_no_judge_and_what_they_ask_is_not_counted() -> None:
    plan = Plan("mine", None, (LOCAL,), scorers=(PlannedScorer("python:a:tone", "tone", "1"),))
    found = estimate(plan, CASES, lambda *_: 0.0, lambda _: False)
    assert found.unjudged == {"local": 2}  # those with llm_judge
    assert found.warnings[1:] == ["not counted: model calls by scorers (tone)"]
    assert judge_calls(estimate(replace(plan, judge=MODEL), CASES, lambda *_: 0.0, lambda _: False)) == 2


def test_a_judge_that_cannot_judge_wants_another() -> None:
    found = taken(MODEL, OTHER, judge=AGENT)
    assert (judge_calls(found), found.warnings) == (0, ["3 cases will have no verdict: name another judge"])


def priced(max_tokens: int | None = None, price: float | None = 1.0) -> Estimate:
    parameters = {} if max_tokens is None else {"max_tokens": max_tokens}

    def cost(_: Target, usage: Usage) -> float | None:
        return None if price is None else price * (usage.output_tokens or 0)

    return estimate(Plan("mine", None, (MODEL,), parameters=parameters), (case("contains"),), cost, lambda _: False)


def test_the_cost_range_is_for_answers_a_third_to_three_times_as_long() -> None:
    found = priced()
    assert found.cost_usd == 150
    assert found.cost_range_usd == (50, 450)


def test_no_answer_is_longer_than_max_tokens() -> None:
    assert (priced(100).cost_usd, priced(100).cost_range_usd) == (100, (50, 100))


def test_without_a_price_there_is_no_range() -> None:
    assert (priced(price=None).cost_usd, priced(price=None).cost_range_usd) == (None, None)
