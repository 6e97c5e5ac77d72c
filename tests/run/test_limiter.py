"""The limiter: slow start, growth only if used, one cut per burst, and delays that apply to all requests."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pramana import clock
from pramana.run.limiter import INITIAL_LIMIT, Limiter

pytestmark = pytest.mark.usefixtures("virtual_time")


class Clock:
    """Time that only a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 20))


@asynccontextmanager
async def enter(limiter: Limiter) -> AsyncIterator[None]:
    await limiter.enter()
    try:
        yield
    finally:
        limiter.leave()


async def run_full_round(limiter: Limiter) -> None:
    """Use all that is allowed at once, and answer every one cleanly."""

    async def succeed_once(gate: asyncio.Event) -> None:
        async with enter(limiter):
            await gate.wait()
            limiter.record_success()

    gate = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for _ in range(limiter.limit):
            group.create_task(succeed_once(gate))
        await asyncio.sleep(0)
        gate.set()


def test_concurrency_doubles_after_each_clean_round_up_to_the_maximum() -> None:
    async def work() -> None:
        limiter = Limiter(50)
        limits = [limiter.limit]
        for _ in range(4):
            await run_full_round(limiter)
            limits.append(limiter.limit)
        assert limits == [INITIAL_LIMIT, 16, 32, 50, 50]

    run(work())


def test_concurrency_never_exceeds_the_limit() -> None:
    async def work() -> None:
        limiter, most = Limiter(5), 0

        async def one() -> None:
            nonlocal most
            async with enter(limiter):
                most = max(most, limiter.in_use)
                await asyncio.sleep(0)
                limiter.record_success()

        await asyncio.gather(*(one() for _ in range(200)))
        assert most == 5
        assert limiter.in_use == 0

    run(work())


def test_an_unused_limit_does_not_grow() -> None:
    async def work() -> None:
        limiter = Limiter(100)
        for _ in range(200):
            async with enter(limiter):
                limiter.record_success()
        assert limiter.limit == INITIAL_LIMIT

    run(work())


def test_a_burst_of_rate_limits_cuts_once_then_grows_slowly() -> None:
    async def work() -> None:
        ours = Clock()
        limiter = Limiter(64, ours)
        for _ in range(3):
            await run_full_round(limiter)
        assert limiter.limit == 64
        for _ in range(10):
            limiter.apply_rate_limit(None)
        assert limiter.limit == 42
        ours.now += 2
        limiter.apply_rate_limit(None)
        assert limiter.limit == 28
        await run_full_round(limiter)
        assert limiter.limit == 29
        assert [change.cause for change in limiter.history][-3:] == ["rate limit", "rate limit", "clean round"]

    run(work())


def test_the_limit_never_falls_below_one() -> None:
    async def work() -> None:
        ours = Clock()
        limiter = Limiter(4, ours)
        for _ in range(20):
            ours.now += 5
            limiter.apply_rate_limit(None)
        assert limiter.limit == 1

    run(work())


def test_transient_errors_pause_growth_without_cutting() -> None:
    async def work() -> None:
        limiter = Limiter(64)
        for _ in range(INITIAL_LIMIT - 1):
            limiter.record_success()
        limiter.pause_growth()
        limiter.record_success()
        assert limiter.limit == INITIAL_LIMIT

    run(work())


def test_retry_after_delays_all_requests() -> None:
    async def work() -> None:
        limiter = Limiter(4)
        start = clock.monotonic()
        limiter.apply_rate_limit(0.2)
        waited = []

        async def one() -> None:
            async with enter(limiter):
                waited.append(clock.monotonic() - start)

        await asyncio.gather(*(one() for _ in range(6)))
        assert min(waited) >= 0.2

    run(work())


@pytest.mark.parametrize("when", ["waiting", "let in"])
def test_a_cancelled_waiter_takes_no_slot(when: str) -> None:
    async def work() -> None:
        limiter = Limiter(1)
        await limiter.enter()

        async def one() -> None:
            async with enter(limiter):
                pass

        waiting = asyncio.create_task(one())
        await asyncio.sleep(0)
        if when == "let in":
            limiter.leave()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        if when == "waiting":
            limiter.leave()
        assert limiter.in_use == 0
        async with asyncio.timeout(1):
            await one()

    run(work())
