"""Position bias from Python: judges as functions, functions that are passed anew, limits, failures, and bad input."""

from typing import Any

import pytest

import pramana
from pramana.app.position_bias import PositionBiasView
from pramana.errors import BudgetSpent, InvalidInput

CASES = [
    {"input": f"Say please {number}.", "check": {"type": "llm_judge", "judge_prompt": "Is it polite?"}}
    for number in range(8)
]


def get_bias(report: Any) -> PositionBiasView:
    (judge,) = report.judges
    assert judge.position_bias
    found: PositionBiasView = judge.position_bias
    return found


def prefers_first(prompt: str) -> bool:
    return prompt.rstrip().endswith("YES or NO.")


def test_a_lambda_that_judged_a_run_is_called_again_and_stored_verdicts_cost_nothing() -> None:
    prompts: list[str] = []

    def keep(prompt: str) -> str:
        prompts.append(prompt)
        return prompt

    report = pramana.evaluate(CASES, model=str.upper, judge=lambda prompt: prefers_first(keep(prompt)))
    assert report.pass_rate == 1.0
    prompts.clear()
    bias = get_bias(report.measure_position_bias(5))
    assert (len(prompts), bias.replies, bias.repetition.changed, bias.effects[0].changes.to_no) == (10, 5, 0, 5)
    assert get_bias(report.measure_position_bias()).replies == 8
    assert len(prompts) == 16
    assert get_bias(report.measure_position_bias(criterion_last=True)).effects[1].changes.order == "criterion-last"
    assert len(prompts) == 24
    assert pramana.load_report(report.run_id).pass_rate == 1.0, "the verdicts of the run stay as they are"


def test_a_judge_of_an_earlier_program_is_passed_anew_and_another_one_is_refused() -> None:
    async def judge(prompt: str) -> bool:
        return prefers_first(prompt)

    run_id = pramana.evaluate(CASES, model=str.upper, judge=judge).run_id
    loaded = pramana.load_report(run_id)
    with pytest.raises(InvalidInput, match=r"exists only in the program that started the run; pass the function"):
        loaded.measure_position_bias()
    with pytest.raises(InvalidInput, match="judge: fake:fixed=YES did not judge the replies of this run"):
        loaded.measure_position_bias(judge="fake:fixed=YES")
    assert get_bias(loaded.measure_position_bias(judge=judge)).effects[0].changes.changed == 8


def test_a_cost_limit_ends_it_and_failed_requests_are_a_warning_and_repeated() -> None:
    calls: list[str] = []

    def judge(prompt: str) -> pramana.Reply:
        calls.append(prompt)
        if 9 < len(calls) <= 12:
            raise RuntimeError("out of order")
        return pramana.Reply("YES", cost_usd=0.01)

    report = pramana.evaluate(CASES, model=str.upper, judge=judge)
    with pytest.warns(UserWarning, match="3 requests to the judges failed; call it again to repeat them"):
        report.measure_position_bias(concurrency=1)
    assert get_bias(report.measure_position_bias()).cost_usd == pytest.approx(0.16)
    with pytest.raises(BudgetSpent) as spent:
        report.measure_position_bias(criterion_last=True, max_cost_usd=0.02, concurrency=1)
    assert "the verdicts so far are stored" in spent.value.__notes__[0]


def test_an_interrupt_ends_it_and_keeps_the_verdicts_so_far() -> None:
    calls: list[str] = []

    def judge(prompt: str) -> bool:
        calls.append(prompt)
        if len(calls) == 12:
            raise KeyboardInterrupt
        return True

    report = pramana.evaluate(CASES, model=str.upper, judge=judge)
    with pytest.raises(KeyboardInterrupt):
        report.measure_position_bias(concurrency=1)
    assert len(calls) == 12
    assert get_bias(report.measure_position_bias()).repetition.replies == 8
    assert len(calls) == 12 + 13


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"count": 0}, "count: expected a whole number from 1 to 10,000, found 0"),
        ({"count": "all"}, "count: expected a whole number"),
        ({"criterion_last": "yes"}, "criterion_last: expected true or false"),
        ({"max_cost_usd": -1}, "max_cost_usd: expected a number more than 0"),
        ({"judge": 7}, "judge: expected a model's name or a function, found 7"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], error: str) -> None:
    report = pramana.evaluate(CASES[0], model=str.upper, judge=prefers_first)
    with pytest.raises(InvalidInput) as refused:
        report.measure_position_bias(**arguments)
    assert str(refused.value).startswith(error)
    with pytest.raises(TypeError, match="unexpected keyword argument 'max_cost'"):
        report.measure_position_bias(max_cost=1)


def test_a_run_without_judged_replies_says_what_to_do() -> None:
    report = pramana.evaluate([{"input": "yes", "ideal": "yes"}], model="fake:echo")
    with pytest.raises(InvalidInput, match="no reply of this run was judged by a model"):
        report.measure_position_bias()
