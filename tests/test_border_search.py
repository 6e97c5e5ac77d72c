"""The search for border prompts: what it keeps, how many calls it makes, and endpoints that answer badly."""

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pramana.analyse.border_prompts import make_border_cases
from pramana.border_search import CANDIDATES_TO_PROBE, BorderSearch, SendCandidate, find_border_prompts, send_with
from pramana.errors import BudgetSpent
from pramana.model import Case, Reply, Request


def search(*answers: Callable[[Case, Mapping[str, Any]], Reply | None], max_calls: int = 100) -> BorderSearch:
    def make_send(answer: Callable[[Case, Mapping[str, Any]], Reply | None]) -> SendCandidate:
        async def send(case: Case, _: int, parameters: Mapping[str, Any]) -> Reply | None:
            return answer(case, parameters)

        return send

    return asyncio.run(find_border_prompts([make_send(each) for each in answers], max_calls, {"temperature": 1.0}))


def vary(numbers: tuple[str, ...]) -> Callable[[Case, Mapping[str, Any]], Reply]:
    rng = random.Random(3)
    return lambda case, _: Reply(rng.choice("ab") if case.id.endswith(numbers) else "same")


def test_prompts_whose_answers_vary_are_kept_within_the_calls() -> None:
    found = search(vary(("1", "2")), vary(("1", "2")))
    assert {each.id[-1] for each in found.cases} <= {"1", "2"}
    assert 2 <= len(found.cases) == found.varying_count
    assert found.calls <= 100
    assert found.parameters["max_tokens"] == 1
    assert all(each.facets.tags == ("border",) for each in found.cases)


def test_one_endpoint_is_enough() -> None:
    assert search(vary(("3",))).cases


@pytest.mark.parametrize("max_calls", [0, 1, 3, 7])
def test_few_calls_are_never_exceeded(max_calls: int) -> None:
    assert search(vary(("1",)), vary(("1",)), max_calls=max_calls).calls <= max_calls


def test_an_endpoint_that_needs_more_than_one_token_gets_16() -> None:
    def answer(_: Case, parameters: Mapping[str, Any]) -> Reply | None:
        return Reply(random.choice("ab")) if parameters["max_tokens"] >= 16 else None

    found = search(answer, answer)
    assert found.parameters["max_tokens"] == 16
    assert found.cases


def test_an_endpoint_that_answers_nothing_has_no_border_prompts() -> None:
    found = search(lambda *_: Reply(""), lambda *_: Reply("a"))
    assert (found.cases, found.calls) == ((), 2 * 2 * CANDIDATES_TO_PROBE)
    assert search(lambda *_: None).cases == ()


@pytest.mark.parametrize(("refused", "length"), [(1, 1), (2, 16)])
def test_a_candidate_without_an_answer_does_not_decide_the_search(refused: int, length: int) -> None:
    silent = {each.id for each in make_border_cases()[:refused]}

    def answer(case: Case, parameters: Mapping[str, Any]) -> Reply:
        is_answered = case.id not in silent and parameters["max_tokens"] >= length
        return Reply(random.choice("ab") if is_answered else "")

    found = search(answer)
    assert found.cases
    assert found.parameters["max_tokens"] == length
    assert not silent & {each.id for each in found.cases}


def test_with_logprobs_four_prompts_are_kept_even_if_no_answer_varies() -> None:
    tokens = [{"token": "a", "logprob": -0.1, "top_logprobs": []}]
    raw = json.dumps({"choices": [{"logprobs": {"content": tokens}}]}).encode()
    found = search(lambda *_: Reply("a", raw=raw), lambda *_: Reply("a", raw=raw))
    assert (len(found.cases), found.varying_count, found.has_logprobs) == (4, 0, True)
    mixed = search(lambda *_: Reply("a", raw=raw), lambda *_: Reply("a"))
    assert (mixed.cases, mixed.has_logprobs) == ((), False)


def test_an_error_ends_the_search() -> None:
    async def raise_error(request: Request) -> Reply:
        raise BudgetSpent(f"the run's limit of $1 is reached before {request.model}")

    with pytest.raises(BudgetSpent):
        asyncio.run(find_border_prompts([send_with(raise_error, "m", "Be brief.")], 40, {}))


def test_every_call_of_the_search_sends_another_seed() -> None:
    seen: list[tuple[str, int]] = []

    async def record(request: Request) -> Reply:
        seen.append((request.turns[-1].text, request.parameters["seed"]))
        return Reply(random.Random(str(seen[-1])).choice("ab"))

    asyncio.run(find_border_prompts([send_with(record, "m")], 60, {"temperature": 1.0}))
    assert len(set(seen)) == len(seen) <= 60
