"""From request to reply: what is retried, what it costs, and which parameters are dropped."""

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pramana.errors import (
    AuthenticationFailed,
    BrokenReply,
    BudgetSpent,
    NotAnApi,
    OutOfCredit,
    ProviderError,
    RateLimited,
    Rejected,
    Stopped,
    Unavailable,
    Unreachable,
)
from pramana.model import Reply, Request, Target, Turn, Usage
from pramana.providers.prices import Prices, Rates
from pramana.run import asking
from pramana.run.asking import MAX_ATTEMPTS, MAX_ATTEMPTS_BEFORE_FIRST_REPLY, Budget, ReplyCache, TargetClient
from pramana.run.engine import Stop
from pramana.run.limiter import Limiter

pytestmark = pytest.mark.usefixtures("virtual_time")
TARGET = Target("fake:x", "fake", "x")
REQUEST = Request("x", (Turn("user", "hi"),), {"temperature": 0, "seed": 42})


class ScriptedProvider:
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
    monkeypatch.setattr(asking, "FIRST_RETRY_WAIT_S", 0.001)


def make_client(provider: ScriptedProvider, budget: Budget | None = None, cost: float | None = 0.25) -> TargetClient:
    return TargetClient(TARGET, provider, Limiter(4), budget or Budget(), lambda *_: cost, jitter=random.Random(1))


def ask(asking_: TargetClient, request: Request = REQUEST) -> Reply:
    return asyncio.run(asyncio.wait_for(_ask(asking_, request), 20))


async def _ask(asking_: TargetClient, request: Request) -> Reply:
    return await asking_(request)


@pytest.mark.parametrize("error", [RateLimited("slow"), Unavailable("down", status=503), BrokenReply("cut")])
def test_transient_errors_are_retried(error: ProviderError) -> None:
    provider = ScriptedProvider(error, error)
    asking_ = make_client(provider)
    assert ask(asking_).text == "ok"
    assert len(provider.asked) == 3
    assert asking_.retry_count == 2


def test_retries_are_bounded() -> None:
    provider = ScriptedProvider(lambda _: Reply("first"), *[Unavailable("down")] * 100)
    asking_ = make_client(provider)
    ask(asking_)
    with pytest.raises(Unavailable):
        ask(asking_)
    assert len(provider.asked) == 1 + MAX_ATTEMPTS


@pytest.mark.parametrize("error", [Unreachable("no such host"), NotAnApi("404")])
def test_an_address_that_never_answered_ends_the_run(error: ProviderError) -> None:
    provider = ScriptedProvider(*[error] * 100)
    with pytest.raises(type(error)) as caught:
        ask(make_client(provider))
    assert caught.value.fatal
    assert len(provider.asked) == (MAX_ATTEMPTS_BEFORE_FIRST_REPLY if error.transient else 1)


@pytest.mark.parametrize("error", [Unreachable("reset"), NotAnApi("404")])
def test_an_address_that_answered_before_fails_only_the_case(error: ProviderError) -> None:
    asking_ = make_client(ScriptedProvider(lambda _: Reply("first"), *[error] * 100))
    ask(asking_)
    with pytest.raises(type(error)) as caught:
        ask(asking_)
    assert not caught.value.fatal


def test_retry_waits_grow_to_minutes_with_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "FIRST_RETRY_WAIT_S", 0.5)
    slept: list[float] = []

    async def sleep(_: Stop, seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(Stop, "sleep", sleep)
    asking_ = make_client(ScriptedProvider(lambda _: Reply("first"), *[Unavailable("down")] * 100))
    ask(asking_)
    with pytest.raises(Unavailable):
        ask(asking_)
    assert 90 < sum(slept) < 200
    assert slept[0] <= 0.5
    assert slept[-1] >= 30
    assert len(set(slept)) == MAX_ATTEMPTS - 1


@pytest.mark.parametrize("seconds", [0.0, None])
def test_a_retry_after_of_zero_still_waits(monkeypatch: pytest.MonkeyPatch, seconds: float | None) -> None:
    slept: list[float] = []

    async def sleep(_: Stop, seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(Stop, "sleep", sleep)
    ask(make_client(ScriptedProvider(RateLimited("slow", retry_after=seconds))))
    assert slept[0] > 0


def test_a_retry_after_of_hours_ends_the_run_and_says_so() -> None:
    provider = ScriptedProvider(RateLimited("slow", retry_after=86_400))
    with pytest.raises(OutOfCredit, match="asks to wait 86,400 s") as caught:
        ask(make_client(provider))
    assert caught.value.fatal


def test_only_transient_errors_pause_the_growth_of_concurrency() -> None:
    async def main(error: ProviderError) -> int:
        limiter = Limiter(64)
        script: list[Any] = [lambda _: Reply("ok"), error] * 400
        asking_ = TargetClient(TARGET, ScriptedProvider(*script), limiter, Budget(), lambda *_: 0.0)
        for _ in range(40):
            await asyncio.gather(*(asking_(REQUEST) for _ in range(limiter.limit)), return_exceptions=True)
        return limiter.limit

    assert asyncio.run(main(Rejected("too long"))) == 64


@pytest.mark.parametrize("waits", ["hold", "backoff"])
def test_waiting_requests_are_stopped(waits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "FIRST_RETRY_WAIT_S", 60)
    error = RateLimited("slow", retry_after=600) if waits == "hold" else Unavailable("down")

    async def main() -> tuple[int, list[Any]]:
        provider = ScriptedProvider(*[error] * 100)
        asking_ = make_client(provider)
        asking_.stop.add_callback(asking_.limiter.stop_waiting_for_rate_limits)
        tasks = [asyncio.create_task(_ask(asking_, REQUEST)) for _ in range(6)]
        await asyncio.sleep(0.05)
        asked = len(provider.asked)
        asking_.stop("enough")
        ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 5)
        assert len(provider.asked) == asked
        return asked, ends

    asked, ends = asyncio.run(main())
    assert asked in (4, 6)
    assert [str(each) for each in ends if isinstance(each, Stopped)] == ["enough"] * 6


def test_after_a_stop_replies_under_way_are_still_judged() -> None:
    provider = ScriptedProvider()
    asking_ = make_client(provider)
    asking_.stop("enough")
    with pytest.raises(Stopped):
        ask(asking_)
    judging = Request("x", (Turn("user", "hi"),), {}, "judge")
    assert ask(asking_, judging).text == "ok"
    provider.script = iter([Unavailable("down")])
    with pytest.raises(Unavailable):
        ask(asking_, judging)  # once: there is no more waiting
    assert len(provider.asked) == 2


def test_a_hanging_provider_times_out() -> None:
    class HangingProvider(ScriptedProvider):
        async def ask(self, request: Request) -> Reply:
            self.asked.append(request)
            await asyncio.sleep(60)
            return Reply("late")

    provider = HangingProvider()
    asking_ = TargetClient(TARGET, provider, Limiter(4), Budget(), lambda *_: 0.0, timeout_s=0.02)
    with pytest.raises(Unavailable, match=r"no complete reply from fake:x within 0\.02 s"):
        ask(asking_)
    assert len(provider.asked) == MAX_ATTEMPTS_BEFORE_FIRST_REPLY


def test_a_cancelled_task_stays_cancelled_after_its_timeout() -> None:
    class HangingProvider(ScriptedProvider):
        async def ask(self, request: Request) -> Reply:
            await asyncio.sleep(60)
            return Reply(request.model)

    async def main() -> None:
        asking_ = TargetClient(TARGET, HangingProvider(), Limiter(4), Budget(), lambda *_: 0.0, timeout_s=0.02)
        task = asyncio.create_task(_ask(asking_, REQUEST))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.02, task.cancel)
        await asyncio.sleep(0.1)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_an_exception_of_a_third_party_provider_is_an_error_of_the_case() -> None:
    class BrokenProvider(ScriptedProvider):
        async def ask(self, request: Request) -> Reply:
            raise KeyError(request.model)

    with pytest.raises(ProviderError, match="the provider fake failed: KeyError: 'x'") as caught:
        ask(make_client(BrokenProvider()))
    assert not caught.value.fatal
    assert not caught.value.transient


@pytest.mark.parametrize(
    ("reply", "wrong"),
    [
        (None, "it is a NoneType"),
        ("yes", "it is a str"),
        (Reply(5), "text is a int"),  # type: ignore[arg-type]
        (Reply("a", None), "usage is a NoneType"),  # type: ignore[arg-type]
        (Reply("a", served_model=["a"]), "served_model is a list"),  # type: ignore[arg-type]
        (Reply("a", fingerprint=5), "fingerprint is a int"),  # type: ignore[arg-type]
        (Reply("a", finish_reason={"a": 1}), "finish_reason is a dict"),  # type: ignore[arg-type]
        (Reply("a", first_token_s=[1]), "first_token_s is a list"),  # type: ignore[arg-type]
        (Reply("a", total_s=float("nan")), "total_s is nan"),
        (Reply("a", total_s=-1.0), "total_s is -1"),
        (Reply("a", raw="{}"), "raw is a str"),  # type: ignore[arg-type]
        (Reply("a", dropped=(1,)), "dropped is a tuple"),  # type: ignore[arg-type]
        (Reply("a", cached="no"), "cached is a str"),  # type: ignore[arg-type]
        (Reply("a", vectors=5), "vectors is a int"),  # type: ignore[arg-type]
    ],
)
def test_an_invalid_reply_is_an_error_of_the_case(reply: Any, wrong: str) -> None:
    provider = ScriptedProvider(lambda _: reply)
    with pytest.raises(ProviderError, match="the provider fake returned an invalid reply: ") as caught:
        ask(make_client(provider))
    assert str(caught.value).endswith(wrong)
    assert not caught.value.fatal
    assert len(provider.asked) == 1


@pytest.mark.parametrize("count", [-5, 2**63, 10**400, 1.5, True, "7"])
def test_an_invalid_token_count_is_unknown_and_not_added_to_the_budget(count: Any) -> None:
    for budget in (Budget(max_cost_usd=1), Budget(max_total_tokens=100)):
        asking_ = make_client(ScriptedProvider(lambda _: Reply("ok", Usage(count, count, count))), budget)
        asking_.cost_of = lambda _target, _served, usage: usage.input_tokens
        assert ask(asking_).usage == Usage()
        with pytest.raises(BudgetSpent, match="a reply has no token counts"):
            ask(asking_)


def test_a_negative_token_count_does_not_reduce_the_spending() -> None:
    budget = Budget(max_cost_usd=1)
    replies = [Reply("ok", Usage(1, 1)), Reply("ok", Usage(-(10**9), -(10**9))), Reply("ok", Usage(1, 1))]
    asking_ = make_client(ScriptedProvider(*(lambda _, reply=reply: reply for reply in replies)), budget)
    asking_.target = Target("x", "openai", "x")
    asking_.cost_of = Prices({"x": Rates(0, 1.0, 1.0, 1.0)}).cost
    ask(asking_)
    ask(asking_)
    assert budget.cost_usd == pytest.approx(2e-6)
    with pytest.raises(BudgetSpent, match="its cost is unknown"):
        ask(asking_)


class OwnError(BaseException):
    """An error of third-party code."""


@pytest.mark.parametrize("error", [SystemExit(3), OwnError("so"), asyncio.CancelledError()])
def test_no_exception_of_a_third_party_provider_ends_the_run(error: BaseException) -> None:
    class BrokenProvider(ScriptedProvider):
        async def ask(self, request: Request) -> Reply:
            await asyncio.sleep(0)
            self.asked.append(request)
            raise error

    with pytest.raises(
        ProviderError, match=r"the provider fake (failed: (SystemExit: 3|OwnError: so)|cancelled the request)"
    ) as caught:
        ask(make_client(BrokenProvider()))
    assert not caught.value.fatal


def test_a_provider_that_ignores_cancellation_can_be_called_and_cancelled_again() -> None:
    class StubbornProvider(ScriptedProvider):
        async def ask(self, request: Request) -> Reply:
            self.asked.append(request)
            if len(self.asked) > 1:
                raise asyncio.CancelledError
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                return Reply("late")
            return Reply("never")

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        asking_ = TargetClient(TARGET, StubbornProvider(), Limiter(4), Budget(), lambda *_: 0.0, timeout_s=0.02)
        assert (await asking_(REQUEST)).text == "late"
        assert task.cancelling() == 0
        with pytest.raises(ProviderError, match="cancelled the request"):
            await asking_(REQUEST)

    asyncio.run(main())


def test_a_broken_cache_is_ignored() -> None:
    class BrokenCache(ReplyCache):
        def get(self, target: Target, account_address: str, request: Request) -> Reply | None:
            raise MemoryError(target, account_address, request)

        def put(self, target: Target, account_address: str, request: Request, reply: Reply) -> None:
            raise KeyError(target, account_address, request, reply)

    asking_ = make_client(ScriptedProvider())
    asking_.cache = BrokenCache(Path())
    assert ask(asking_).text == "ok"


def test_a_cost_limit_without_a_known_price_ends_the_run() -> None:
    for budget, cost in ((Budget(max_cost_usd=1), None), (Budget(max_total_tokens=100), 0.0)):
        asking_ = make_client(ScriptedProvider(lambda _: Reply("ok", Usage())), budget, cost)
        assert ask(asking_).text == "ok"
        with pytest.raises(BudgetSpent, match="a reply has no token counts"):
            ask(asking_)


@pytest.mark.parametrize(
    "error", [AuthenticationFailed("no key"), Rejected("too long"), Rejected("no", parameter="top_k")]
)
def test_permanent_errors_are_not_retried(error: ProviderError) -> None:
    provider = ScriptedProvider(error)
    with pytest.raises(type(error)):
        ask(make_client(provider))
    assert len(provider.asked) == 1


def test_a_rejected_parameter_is_dropped_from_then_on_and_named() -> None:
    provider = ScriptedProvider(
        Rejected("no seed", parameter="seed"), Rejected("no temperature", parameter="temperature")
    )
    asking_ = make_client(provider)
    reply = ask(asking_)
    assert reply.dropped == ("seed", "temperature")
    assert [sorted(request.parameters) for request in provider.asked] == [["seed", "temperature"], ["temperature"], []]
    assert ask(asking_).dropped == ("seed", "temperature")
    assert len(provider.asked) == 4


def test_a_server_that_keeps_rejecting_a_parameter_is_not_retried_forever() -> None:
    provider = ScriptedProvider(*[Rejected("no seed", parameter="seed")] * 100)
    with pytest.raises(Rejected):
        ask(make_client(provider))
    assert len(provider.asked) == 2


def test_max_tokens_is_never_dropped() -> None:
    provider = ScriptedProvider(Rejected("too large", parameter="max_tokens"))
    with pytest.raises(Rejected):
        ask(make_client(provider), Request("x", (Turn("user", "hi"),), {"max_tokens": 10**9}))
    assert len(provider.asked) == 1


def test_concurrent_requests_share_a_rejected_parameter() -> None:
    class PickyProvider(ScriptedProvider):
        async def ask(self, request: Request) -> Reply:
            self.asked.append(request)
            await asyncio.sleep(0.001)
            if "seed" in request.parameters:
                raise Rejected("no", parameter="seed")
            return Reply("ok")

    provider = PickyProvider()

    async def work() -> list[Reply]:
        asking_ = make_client(provider)
        return await asyncio.gather(*(asking_(REQUEST) for _ in range(4)))

    replies = asyncio.run(work())
    assert [reply.dropped for reply in replies] == [("seed",)] * 4
    assert len(provider.asked) == 8


def test_cost_and_token_limits_end_the_run() -> None:
    budget = Budget(max_cost_usd=0.5)
    asking_ = make_client(ScriptedProvider(), budget)
    assert ask(asking_).cost_usd == 0.25
    ask(asking_)
    assert (budget.cost_usd, budget.tokens, budget.unknown_cost) == (0.5, 30, False)
    with pytest.raises(BudgetSpent, match=r"the run's limit of \$0\.5 is reached"):
        ask(asking_)
    tokens = Budget(max_total_tokens=15)
    asking_ = make_client(ScriptedProvider(), tokens)
    ask(asking_)
    with pytest.raises(BudgetSpent, match="the run's limit of 15 tokens is reached"):
        ask(asking_)


@pytest.mark.parametrize("budget", [Budget(max_total_tokens=100), Budget(max_cost_usd=2)])
def test_fewer_requests_are_started_near_a_limit(budget: Budget) -> None:
    provider = ScriptedProvider()  # each reply takes 15 tokens and a quarter of a dollar

    async def work() -> list[Reply | BaseException]:
        asking_ = make_client(provider, budget)
        return await asyncio.gather(*(asking_(REQUEST) for _ in range(30)), return_exceptions=True)

    ended = asyncio.run(asyncio.wait_for(work(), 20))
    replies = [each for each in ended if isinstance(each, Reply)]
    assert {type(each) for each in ended} == {Reply, BudgetSpent}
    assert len(replies) == len(provider.asked) == (7 if budget.max_total_tokens else 8), (
        "four at once would make it ten"
    )
    assert budget.requests_in_flight == 0


def test_requests_waiting_for_budget_are_stopped() -> None:
    budget = Budget(max_total_tokens=40)

    async def work() -> list[Reply | BaseException]:
        asking_ = make_client(ScriptedProvider(), budget)
        await asking_(REQUEST)

        def stop_and_reply(_: Request) -> Reply:
            asking_.stop("enough")
            return Reply("ok", Usage(1, 1))

        asking_.provider = ScriptedProvider(stop_and_reply)
        return await asyncio.gather(*(asking_(REQUEST) for _ in range(4)), return_exceptions=True)

    ended = asyncio.run(asyncio.wait_for(work(), 20))
    assert [type(each) for each in ended] == [Reply, Reply, Stopped, Stopped]


def test_replies_finished_after_the_limit_do_not_change_the_stop_reason() -> None:
    budget = Budget(max_total_tokens=15)

    async def work() -> list[Reply | BaseException]:
        asking_ = make_client(ScriptedProvider(), budget)
        return await asyncio.gather(*(asking_(REQUEST) for _ in range(6)), return_exceptions=True)

    ended = asyncio.run(asyncio.wait_for(work(), 20))
    assert budget.tokens == 60, "four were under way before the first was answered"
    assert {str(each) for each in ended if isinstance(each, BudgetSpent)} == {"the run's limit of 15 tokens is reached"}


def test_an_unknown_cost_stays_unknown() -> None:
    budget = Budget()
    assert ask(make_client(ScriptedProvider(), budget, cost=None)).cost_usd is None
    assert (budget.cost_usd, budget.unknown_cost) == (0.0, True)


def test_a_cached_reply_sends_nothing_and_costs_nothing() -> None:
    class Cache(ReplyCache):
        def __init__(self) -> None:
            self.kept: dict[str, Reply] = {}

        def get(self, target: Target, account_address: str, request: Request) -> Reply | None:
            return self.kept.get(target.typed + account_address + request.turns[0].text)

        def put(self, target: Target, account_address: str, request: Request, reply: Reply) -> None:
            self.kept[target.typed + account_address + request.turns[0].text] = reply

    provider, budget = ScriptedProvider(), Budget()
    asking_ = make_client(provider, budget)
    asking_.cache = Cache()
    assert ask(asking_) == ask(asking_)
    assert len(provider.asked) == 1
    assert budget.tokens == 15
