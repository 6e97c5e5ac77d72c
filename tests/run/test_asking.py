"""From request to reply: what is asked again, what is not, what is spent, and what is left out."""

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pramana.errors import (
    AuthenticationFailed,
    BrokenReply,
    ProviderError,
    RateLimited,
    Rejected,
    Unavailable,
)
from pramana.model import Reply, Request, Target, Turn, Usage
from pramana.run import asking
from pramana.run.asking import ATTEMPTS, Asking, Budget, BudgetSpent
from pramana.run.limiter import Limiter

TARGET = Target("fake:x", "fake", "x")
REQUEST = Request("x", (Turn("user", "hi"),), {"temperature": 0, "seed": 42})


class Scripted:
    """A provider that answers by a script: an error is raised, anything else is a reply."""

    def __init__(self, *script: ProviderError | Callable[[Request], Reply]) -> None:
        self.script: Iterator[Any] = iter(script)
        self.asked: list[Request] = []

    async def ask(self, request: Request) -> Reply:
        self.asked.append(request)
        step = next(self.script, lambda _: Reply("ok", Usage(10, 5)))
        await asyncio.sleep(0)
        if isinstance(step, ProviderError):
            raise step
        reply: Reply = step(request)
        return reply

    async def models(self) -> list[str]:
        return []

    async def close(self) -> None:
        return None


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "FIRST_WAIT_S", 0.001)


def make(provider: Scripted, budget: Budget | None = None, cost: float | None = 0.25) -> Asking:
    return Asking(TARGET, provider, Limiter(4), budget or Budget(), lambda *_: cost, jitter=random.Random(1))


def ask(asking_: Asking, request: Request = REQUEST) -> Reply:
    return asyncio.run(asyncio.wait_for(_ask(asking_, request), 20))


async def _ask(asking_: Asking, request: Request) -> Reply:
    return await asking_(request)


@pytest.mark.parametrize("error", [RateLimited("slow"), Unavailable("down", status=503), BrokenReply("cut")])
def test_what_may_pass_is_asked_again(error: ProviderError) -> None:
    provider = Scripted(error, error)
    asking_ = make(provider)
    assert ask(asking_).text == "ok"
    assert len(provider.asked) == 3
    assert asking_.retries == 2


def test_retries_are_bounded() -> None:
    provider = Scripted(*[Unavailable("down")] * 100)
    with pytest.raises(Unavailable):
        ask(make(provider))
    assert len(provider.asked) == ATTEMPTS


@pytest.mark.parametrize(
    "error", [AuthenticationFailed("no key"), Rejected("too long"), Rejected("no", parameter="top_k")]
)
def test_what_cannot_pass_is_asked_once(error: ProviderError) -> None:
    provider = Scripted(error)
    with pytest.raises(type(error)):
        ask(make(provider))
    assert len(provider.asked) == 1


def test_a_rejected_parameter_is_left_out_from_then_on_and_named() -> None:
    provider = Scripted(Rejected("no seed", parameter="seed"), Rejected("no temperature", parameter="temperature"))
    asking_ = make(provider)
    reply = ask(asking_)
    assert reply.dropped == ("seed", "temperature")
    assert [sorted(request.parameters) for request in provider.asked] == [["seed", "temperature"], ["temperature"], []]
    assert ask(asking_).dropped == ("seed", "temperature")
    assert len(provider.asked) == 4


def test_a_server_that_names_a_parameter_for_ever_is_not_asked_for_ever() -> None:
    provider = Scripted(*[Rejected("no seed", parameter="seed")] * 100)
    with pytest.raises(Rejected):
        ask(make(provider))
    assert len(provider.asked) == 2


def test_the_bound_of_a_reply_is_never_left_out() -> None:
    provider = Scripted(Rejected("too large", parameter="max_tokens"))
    with pytest.raises(Rejected):
        ask(make(provider), Request("x", (Turn("user", "hi"),), {"max_tokens": 10**9}))
    assert len(provider.asked) == 1


def test_many_at_once_find_out_together() -> None:
    class Picky(Scripted):
        async def ask(self, request: Request) -> Reply:
            self.asked.append(request)
            await asyncio.sleep(0.001)
            if "seed" in request.parameters:
                raise Rejected("no", parameter="seed")
            return Reply("ok")

    provider = Picky()

    async def work() -> list[Reply]:
        asking_ = make(provider)
        return await asyncio.gather(*(asking_(REQUEST) for _ in range(4)))

    replies = asyncio.run(work())
    assert [reply.dropped for reply in replies] == [("seed",)] * 4
    assert len(provider.asked) == 8


def test_cost_and_tokens_are_counted_and_end_the_run() -> None:
    budget = Budget(max_cost_usd=0.5)
    asking_ = make(Scripted(), budget)
    assert ask(asking_).cost_usd == 0.25
    ask(asking_)
    assert (budget.cost_usd, budget.tokens, budget.unknown_cost) == (0.5, 30, False)
    with pytest.raises(BudgetSpent, match=r"has cost \$0.5000 and may cost \$0.5"):
        ask(asking_)
    tokens = Budget(max_tokens=15)
    asking_ = make(Scripted(), tokens)
    ask(asking_)
    with pytest.raises(BudgetSpent, match="15 tokens of 15"):
        ask(asking_)


def test_an_unknown_cost_stays_unknown() -> None:
    budget = Budget()
    assert ask(make(Scripted(), budget, cost=None)).cost_usd is None
    assert (budget.cost_usd, budget.unknown_cost) == (0.0, True)


def test_a_cached_reply_asks_nobody_and_costs_nothing() -> None:
    class Cache:
        def __init__(self) -> None:
            self.kept: dict[str, Reply] = {}

        def get(self, target: Target, request: Request) -> Reply | None:
            return self.kept.get(target.typed + request.turns[0].text)

        def put(self, target: Target, request: Request, reply: Reply) -> None:
            self.kept[target.typed + request.turns[0].text] = reply

    provider, budget = Scripted(), Budget()
    asking_ = make(provider, budget)
    asking_.cache = Cache()
    assert ask(asking_) == ask(asking_)
    assert len(provider.asked) == 1
    assert budget.tokens == 15
