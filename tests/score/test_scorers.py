"""Scorers: returned values become checks, and exceptions become errors, never failures."""

import asyncio
import json
import threading
from collections.abc import Callable
from enum import StrEnum
from fractions import Fraction
from functools import partial, wraps
from typing import Any

import numpy as np
import pytest

from pramana import BlockingScoringContext, Case, Check, Outcome, Reply, Score, ScoringContext, Usage
from pramana.errors import AuthenticationFailed, BudgetSpent, InvalidInput, PramanaError, ProviderError, Unavailable
from pramana.model import PlannedScorer, Request, Turn
from pramana.score.judge import Judge
from pramana.score.scorers import (
    Scorer,
    ScorerRunner,
    find_planned_scorers,
    find_scorer,
    make_planned_scorers,
    make_scorer,
    scorer,
)

CASE = Case("What is the capital of France?")
REPLY = Reply("It is Paris.", Usage(7, 3), total_s=0.5)
NO_JUDGE = "name another model as judge"


class Tone(StrEnum):
    FORMAL = "formal"


def run_scorer(
    function: Any, *, judge: Judge | None = None, named: Callable[[str], Judge] | None = None
) -> list[Check]:
    async def score() -> list[Check]:
        scorers = ScorerRunner([make_scorer(function)], named)
        try:
            return await scorers.make_checks(CASE, REPLY, "gpt-5", judge, NO_JUDGE)
        finally:
            scorers.close()

    return asyncio.run(score())


def make_constant_scorer(value: object, **options: Any) -> Scorer:
    return make_scorer(lambda _: value, **{"name": "mine", **options})


# ── What it returns ──


@pytest.mark.parametrize(
    ("value", "pass_at", "outcome", "decides", "number", "reason", "evidence"),
    [
        (True, None, "passed", True, None, "mine returned True", {}),
        (False, 0.5, "failed", True, None, "mine returned False", {}),
        (0.25, None, "unscored", False, 0.25, "0.25", {}),
        (3, None, "unscored", False, 3.0, "3", {}),
        (Fraction(1, 4), 0.25, "passed", True, 0.25, "mine is 0.25, at least 0.25", {"pass_at": 0.25}),
        (0.2, 0.25, "failed", True, 0.2, "mine is 0.2, below 0.25", {"pass_at": 0.25}),
        ("formal", None, "unscored", False, None, "formal", {"label": "formal"}),
        (Tone.FORMAL, 0.5, "unscored", False, None, "formal", {"label": "formal"}),
        (None, 0.5, "unscored", False, None, "mine returned None: nothing to score in this case", {}),
        ({}, None, "unscored", False, None, "mine returned None: nothing to score in this case", {}),
        (
            Score(value=True, reason="It says so.", evidence={"at": 3}),
            None,
            "passed",
            True,
            None,
            "It says so.",
            {"at": 3},
        ),
        (Score(1, "All of it."), 1, "passed", True, 1.0, "mine is 1, at least 1: All of it.", {"pass_at": 1.0}),
        (Score(None, "No facts in it."), None, "unscored", False, None, "No facts in it.", {}),
    ],
)
def test_a_returned_value_becomes_a_check(
    value: object,
    pass_at: float | None,
    outcome: str,
    decides: bool,
    number: float | None,
    reason: str,
    evidence: dict[str, object],
) -> None:
    (check,) = run_scorer(make_constant_scorer(value, pass_at=pass_at, version="7"))
    assert check == Check("mine", "7", Outcome(outcome), reason, number, evidence, decides)


def test_a_mapping_becomes_several_checks_and_a_bad_value_fails_only_its_own() -> None:
    found = run_scorer(
        make_constant_scorer({"tone": "formal", "facts": Score(0.5, "one of two"), "polite": True, "odd": [1]})
    )
    assert [(each.name, each.outcome.value, each.decides) for each in found] == [
        ("mine.tone", "unscored", False),
        ("mine.facts", "unscored", False),
        ("mine.polite", "passed", True),
        ("mine.odd", "errored", True),
    ]
    assert found[1].reason == "one of two"
    assert found[3].reason.startswith("mine returned a value of type list; expected a bool, a number, a label, a Score")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (float("nan"), "nan, which is not a valid score; return None if there is nothing to score"),
        (float("-inf"), "-inf, which is not a valid score"),
        (10**400, "inf, which is not a valid score"),
        ("", "empty text; a label has 1 to 100, and Score(reason=…) takes longer text"),
        ("a" * 101, "text of 101 characters; a label has 1 to 100"),
        (b"formal", "a value of type bytes; expected a bool"),
        ({"tone": {"deep": 1}}, "a value of type dict; expected a bool"),
        ({"line\nbreak": 1}, "a name of 15 characters, or with unprintable characters"),
        (Score(Score(1)), "a value of type Score; expected a bool"),  # type: ignore[arg-type]
        (Score(1, reason=None), "a reason that is a value of type NoneType"),  # type: ignore[arg-type]
        (Score(1, evidence=["a"]), "evidence that is a value of type list; expected a mapping"),  # type: ignore[arg-type]
        (Score(1, evidence={"a": {1, 2}}), "evidence that cannot be written as JSON: Object of type set"),
        (Score(1, evidence={"a": float("nan")}), "evidence that cannot be written as JSON: Out of range float values"),
    ],
)
def test_an_invalid_score_is_errored_and_described(value: object, message: str) -> None:
    (check,) = run_scorer(make_constant_scorer(value, pass_at=0.5))
    assert (check.outcome, check.value, check.decides) == (Outcome.ERRORED, None, True)
    assert check.reason.startswith(f"mine returned {message}")


def test_numpy_numbers_are_scores() -> None:
    found = run_scorer(
        make_constant_scorer({"a": np.float32(0.5), "b": np.int64(2), "c": np.float64(1) == 1, "d": np.array(3)})
    )
    assert [(each.outcome.value, each.value) for each in found] == [
        ("unscored", 0.5),
        ("unscored", 2.0),
        ("passed", None),
        ("unscored", 3.0),
    ]


def test_a_key_of_the_environment_is_never_in_a_score(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-secret-0123456789abcdef"
    monkeypatch.setenv("OPENAI_API_KEY", key)

    def leak_key(_: ScoringContext) -> bool:
        raise ValueError(f"no {key} here")

    found = [
        *run_scorer(make_constant_scorer(Score(1, f"with {key}"))),
        *run_scorer(make_constant_scorer(Score(1, evidence={"header": [f"Bearer {key}"]}))),
        *run_scorer(make_constant_scorer(key)),
        *run_scorer(leak_key),
    ]
    assert [each.outcome for each in found] == [Outcome.ERRORED] * 4
    assert key not in str(found)
    assert found[0].reason == "mine returned an API key from the environment, and keys are never stored"


# ── How it is called ──


def test_a_scorer_gets_case_reply_and_model_in_its_own_thread() -> None:
    threads = []

    def inspect_context(context: BlockingScoringContext) -> dict[str, float | str]:
        threads.append(threading.current_thread())
        assert (context.case, context.reply) == (CASE, REPLY)
        return {"model": context.model, "took": context.reply.total_s}

    tone, took = run_scorer(inspect_context)
    assert (tone.evidence, took.value) == ({"label": "gpt-5"}, 0.5)
    assert threads != [threading.current_thread()]


class RightScorer:
    async def __call__(self, context: ScoringContext) -> bool:
        await asyncio.sleep(0)
        return "Paris" in context.reply.text


async def contains_text(context: ScoringContext, what: str) -> bool:
    return what in context.reply.text


@pytest.mark.parametrize("function", [RightScorer(), partial(contains_text, what="Paris")])
def test_an_object_or_a_partial_may_be_a_scorer(function: Callable[..., Any]) -> None:
    (check,) = run_scorer(make_scorer(function, name="right"))
    assert (check.name, check.outcome) == ("right", Outcome.PASSED)


def test_an_exception_is_errored_with_its_type_and_message() -> None:
    def fail(_: ScoringContext) -> bool:
        raise KeyError("facts")

    async def fail_later(_: ScoringContext) -> bool:
        await asyncio.sleep(0)
        raise SystemExit(3)

    for function, reason in ((fail, "fail could not score: KeyError: 'facts'"), (fail_later, "SystemExit: 3")):
        (check,) = run_scorer(function)
        assert (check.outcome, check.decides) == (Outcome.ERRORED, True)
        assert check.reason.endswith(reason)


def test_a_sync_function_that_wraps_an_async_one_is_called_as_sync() -> None:
    async def is_brief(context: ScoringContext) -> bool:
        await asyncio.sleep(0)
        return len(context.reply.text) < 100

    @wraps(is_brief)
    def run_it(context: Any) -> bool:
        return asyncio.run(is_brief(context))

    (check,) = run_scorer(run_it)
    assert (check.name, check.outcome) == ("is_brief", Outcome.PASSED)


def test_a_sync_function_that_returns_a_coroutine_must_be_declared_async() -> None:
    (check,) = run_scorer(make_scorer(lambda context: contains_text(context, "Paris"), name="right"))
    assert check.outcome is Outcome.ERRORED
    assert check.reason == "right could not score: TypeError: it returned a coroutine; declare it with async def"


def test_ctrl_c_in_a_scorer_ends_the_run() -> None:
    def press_ctrl_c(_: ScoringContext) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_scorer(press_ctrl_c)


# ── Calls of models ──


def make_judge(*replies: Reply | Exception, name: str = "opus") -> tuple[Judge, list[Request]]:
    asked: list[Request] = []

    async def ask(request: Request) -> Reply:
        asked.append(request)
        answer = replies[len(asked) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Judge(ask, "claude-opus", name), asked


def test_model_calls_of_a_scorer_go_to_the_judge_and_are_counted_once() -> None:
    judge, asked = make_judge(
        Reply("yes", Usage(10, 1), "claude-opus-4", cost_usd=0.25), Reply("8", Usage(5, 1), cost_usd=0.5)
    )

    async def politeness(context: ScoringContext) -> dict[str, bool | float]:
        polite = await context.ask("Is it polite?")
        messages = [{"role": "system", "content": "Rate it."}, {"role": "user", "content": context.reply.text}]
        return {
            "polite": polite.text == "yes",
            "rate": float((await context.ask(messages, parameters={"seed": 7})).text),
        }

    polite, rate = run_scorer(politeness, judge=judge)
    assert [request.purpose for request in asked] == ["judge", "judge"]
    assert asked[0] == Request("claude-opus", (Turn("user", "Is it polite?"),), {"temperature": 0, "seed": 42}, "judge")
    assert asked[1].turns == (Turn("system", "Rate it."), Turn("user", REPLY.text))
    assert asked[1].parameters == {"temperature": 0, "seed": 7}
    who = {"judge": "opus", "served_model": "claude-opus-4"}
    assert polite.evidence == {**who, "answers": ["yes", "8"], "cost_usd": 0.75, "tokens": 17}
    assert (rate.value, rate.evidence) == (8.0, who)


def test_a_sync_scorer_waits_for_the_answer_and_may_name_any_model() -> None:
    judge, _ = make_judge()
    other, asked = make_judge(Reply("yes", Usage(1, 1), cost_usd=None), name="gpt-5-mini")

    def politeness(context: BlockingScoringContext) -> bool:
        return context.ask("Is it polite?", model="gpt-5-mini").text == "yes"

    (check,) = run_scorer(politeness, judge=judge, named={"gpt-5-mini": other}.__getitem__)
    assert (check.outcome, check.evidence["judge"], check.evidence["cost_usd"]) == (Outcome.PASSED, "gpt-5-mini", None)
    assert len(asked) == 1


async def ask_judge(context: ScoringContext) -> bool:
    return bool((await context.ask("Is it polite?")).text)


def test_without_a_judge_a_scorer_that_asks_one_is_unscored() -> None:
    (check,) = run_scorer(ask_judge)
    assert (check.outcome, check.reason, check.decides) == (Outcome.UNSCORED, NO_JUDGE, True)


def test_an_unavailable_judge_is_errored_and_earlier_costs_are_kept() -> None:
    judge, _ = make_judge(Reply("yes", Usage(1, 1), cost_usd=0.5), Unavailable("overloaded"))

    async def ask_twice(context: ScoringContext) -> bool:
        return bool([await context.ask("one"), await context.ask("two")])

    (check,) = run_scorer(ask_twice, judge=judge)
    assert (check.outcome, check.evidence["cost_usd"]) == (Outcome.ERRORED, 0.5)
    assert check.reason == "ask_twice could not score: Unavailable: overloaded"


@pytest.mark.parametrize("error", [BudgetSpent("spent"), AuthenticationFailed("wrong key")])
def test_a_fatal_error_ends_the_run_even_if_the_scorer_catches_it(error: ProviderError | BudgetSpent) -> None:
    judge, _ = make_judge(error)

    def catch_error(context: BlockingScoringContext) -> bool:
        try:
            return bool(context.ask("Is it polite?"))
        except PramanaError:
            return False

    with pytest.raises(type(error)):
        run_scorer(catch_error, judge=judge)


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "ask takes a prompt or a list of messages"),
        ([{"role": "robot", "content": "x"}], 'a message must be {"role": "system", "user" or "assistant"'),
    ],
)
def test_an_invalid_prompt_says_what_is_expected(prompt: Any, message: str) -> None:
    judge, asked = make_judge()

    async def asks_it(context: ScoringContext) -> bool:
        return bool(await context.ask(prompt))

    (check,) = run_scorer(asks_it, judge=judge)
    assert check.outcome is Outcome.ERRORED
    assert message in check.reason
    assert not asked


def test_a_scorer_can_be_unit_tested_with_a_custom_judge() -> None:
    @scorer(pass_at=0.5)
    async def politeness(context: ScoringContext) -> float:
        return float((await context.ask("How polite?")).text)

    async def answer(_prompt: object, _model: str | None, _parameters: object) -> Reply:
        return Reply("0.75")

    assert asyncio.run(politeness(ScoringContext(CASE, REPLY, asking=answer))) == 0.75
    with pytest.raises(InvalidInput, match="models can be called only while a run scores"):
        asyncio.run(politeness(ScoringContext(CASE, REPLY)))


# ── Names ──


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "two words"}, "a scorer cannot be called 'two words': a name is 1 to 64 letters"),
        ({"name": "contains"}, 'the scorer name "contains" is reserved for a built-in check'),
        ({"name": "call"}, 'the scorer name "call"'),
        ({"version": ""}, "the version of a scorer is text"),
        ({"version": 2}, "the version of a scorer is text"),
        ({"pass_at": float("nan")}, "pass_at is a number, found nan"),
        ({"pass_at": True}, "pass_at is a number, found True"),
        ({"name": None}, "a scorer cannot be called '<lambda>'"),
    ],
)
def test_a_scorer_with_invalid_options_is_refused_at_definition(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        scorer(**{"name": "mine", **options})(lambda _: True)
    assert message in str(caught.value)


def test_a_scorer_must_be_callable() -> None:
    with pytest.raises(InvalidInput, match="a scorer is a function of a ScoringContext, found int"):
        make_scorer(3)


def test_a_scorer_is_found_by_module_path_and_must_have_the_planned_version() -> None:
    path = "python:tests.score.a_scorer:politeness"
    found = find_scorer(path, {})
    assert (found.name, found.version) == ("politeness", "2")
    assert make_planned_scorers([path], {}) == (PlannedScorer(path, "politeness", "2"),)
    assert find_planned_scorers([PlannedScorer(path, "politeness", "2")], {}) == [found]
    with pytest.raises(
        InvalidInput, match=r"was planned with the scorer politeness, version 1, .* now politeness, version 2"
    ):
        find_planned_scorers([PlannedScorer(path, "politeness", "1")], {})
    with pytest.raises(InvalidInput, match="2 scorers are called polite, and scores are stored by that name"):
        make_planned_scorers(
            ["a", "b"], {"a": make_constant_scorer(1, name="polite"), "b": make_constant_scorer(1, name="polite")}
        )


def test_an_unknown_scorer_lists_the_available_ones() -> None:
    with pytest.raises(
        InvalidInput, match=r'no scorer is named "politness".* and a function is python:package.module:'
    ):
        find_scorer("politness", {})
    with pytest.raises(
        InvalidInput, match=r"resume (it|the run) there with pramana.resume\(run_id, scorers=\[function\]\)"
    ):
        find_scorer("python:__main__:politeness", {})


def test_evidence_is_copied_so_later_changes_have_no_effect() -> None:
    kept: dict[str, object] = {"found": ["Paris"]}
    (check,) = run_scorer(make_constant_scorer(Score(value=True, evidence=kept)))
    kept["found"] = []
    assert json.dumps(check.evidence) == '{"found": ["Paris"]}'
