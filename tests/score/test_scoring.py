"""The checks of a reply: a reply with only tool calls has an empty text, and the reasons say so."""

import asyncio

import pytest
from msgspec.structs import replace

from pramana.model import Assertion, Case, Check, Expected, Facets, Line, Outcome, Reply, ToolCall, Turn
from pramana.score.scoring import ReplyChecker

CALL = ToolCall("get_weather", '{"city": "Paris"}', "call_1")
CALLED = ' (no text; called get_weather({"city": "Paris"}))'


class NoSimilarity:
    async def score(self, case: Case, reply: Reply) -> Check:
        raise NotImplementedError


def make_case(kind: str, *ideals: str) -> Case:
    return Case("a", "test_case", (Turn("user", "Weather?"),), Facets("x", "easy"), Assertion(kind), ideals)


def score_reply(case: Case, reply: Reply) -> tuple[Check, ...]:
    return asyncio.run(ReplyChecker(None, NoSimilarity()).make_checks(case, reply))


@pytest.mark.parametrize(
    ("case", "outcome", "reason"),
    [
        (make_case("contains", "Paris"), Outcome.FAILED, 'does not contain "Paris"'),
        (make_case("contains_none", "Rome"), Outcome.PASSED, 'contains none of "Rome"'),
        (make_case("is_json"), Outcome.FAILED, "empty: no JSON"),
    ],
)
def test_an_assertion_on_a_tool_call_checks_the_empty_text_and_names_the_tools(
    case: Case, outcome: Outcome, reason: str
) -> None:
    (check,) = score_reply(case, Reply("", tool_calls=(CALL,)))
    assert (check.outcome, check.reason) == (outcome, reason + CALLED)
    scripted = replace(case, script=(Line("Weather?"),))  # takes the way of replies that need waiting
    assert score_reply(scripted, Reply(" ", tool_calls=(CALL,)))[0].reason.endswith(CALLED)


def test_a_reply_with_text_is_checked_by_its_text_only() -> None:
    (check,) = score_reply(make_case("contains", "Paris"), Reply("In Paris, let me see.", tool_calls=(CALL,)))
    assert check.reason == 'found "Paris" at character 4'
    (check,) = score_reply(make_case("contains", "Paris"), Reply(""))
    assert check.reason == 'does not contain "Paris"'


def test_with_several_lines_tool_calls_are_not_assigned_to_a_line() -> None:
    expected = (Expected(Assertion("contains"), ("Paris",)),)
    case = replace(make_case("contains_none", "Rome"), script=(Line("One?", expected=expected), Line("Two?")))
    first, whole = score_reply(case, Reply("", answers=("", ""), tool_calls=(CALL,)))
    assert first.reason == 'does not contain "Paris"'
    assert whole.reason.endswith(CALLED)
