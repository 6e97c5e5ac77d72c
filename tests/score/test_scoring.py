"""Which checks a reply gets: one that only calls a tool is a reply without text, and the reasons say so."""

import asyncio

import pytest
from msgspec.structs import replace

from pramana.model import Assertion, Case, Check, Expected, Facets, Line, Outcome, Reply, ToolCall, Turn
from pramana.score.scoring import Scoring

CALL = ToolCall("get_weather", '{"city": "Paris"}', "call_1")
CALLED = ' (no text; called get_weather({"city": "Paris"}))'


class NoSimilarity:
    async def score(self, case: Case, reply: Reply) -> Check:
        raise NotImplementedError


def a_case(kind: str, *ideals: str) -> Case:
    return Case("a", "test_case", (Turn("user", "Weather?"),), Facets("x", "easy"), Assertion(kind), ideals)


def checked(case: Case, reply: Reply) -> tuple[Check, ...]:
    return asyncio.run(Scoring(None, NoSimilarity()).checks(case, reply))


@pytest.mark.parametrize(
    ("case", "outcome", "reason"),
    [
        (a_case("contains", "Paris"), Outcome.FAILED, 'does not contain "Paris"'),
        (a_case("contains_none", "Rome"), Outcome.PASSED, 'contains none of "Rome"'),
        (a_case("is_json"), Outcome.FAILED, "empty: no JSON"),
    ],
)
def test_an_assertion_sees_the_empty_text_and_says_which_tools_were_called(
    case: Case, outcome: Outcome, reason: str
) -> None:
    (check,) = checked(case, Reply("", tool_calls=(CALL,)))
    assert (check.outcome, check.reason) == (outcome, reason + CALLED)
    scripted = replace(case, script=(Line("Weather?"),))  # takes the way of replies that need waiting
    assert checked(scripted, Reply(" ", tool_calls=(CALL,)))[0].reason.endswith(CALLED)


def test_a_reply_with_text_is_judged_by_it_alone() -> None:
    (check,) = checked(a_case("contains", "Paris"), Reply("In Paris, let me see.", tool_calls=(CALL,)))
    assert check.reason == 'found "Paris" at character 4'
    (check,) = checked(a_case("contains", "Paris"), Reply(""))
    assert check.reason == 'does not contain "Paris"'


def test_of_several_lines_nobody_knows_at_which_a_tool_was_called() -> None:
    expected = (Expected(Assertion("contains"), ("Paris",)),)
    case = replace(a_case("contains_none", "Rome"), script=(Line("One?", expected=expected), Line("Two?")))
    first, whole = checked(case, Reply("", answers=("", ""), tool_calls=(CALL,)))
    assert first.reason == 'does not contain "Paris"'
    assert whole.reason.endswith(CALLED)
