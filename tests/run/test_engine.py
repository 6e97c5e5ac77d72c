"""The engine: bounded workers, cases read on demand, and an orderly end in all circumstances."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from pramana.errors import AuthenticationFailed
from pramana.model import Case, Facets, Reply, Result, ResultKey, Turn
from pramana.run.engine import MAX_BUFFERED_RESULTS, Stop, WorkerPool, WorkFeed, identity, stream_results

pytestmark = pytest.mark.usefixtures("virtual_time")
CASE = Case("coding-001", "test_case", (Turn("user", "hi"),), Facets("coding", "easy"))


CHUNK = 256


def work(count: int, drawn: list[int] | None = None) -> Iterator[list[tuple[ResultKey, Case]]]:
    for first in range(0, count, CHUNK):
        numbers = range(first, min(first + CHUNK, count))
        if drawn is not None:
            drawn.extend(numbers)
        yield [(ResultKey(str(number), "m"), CASE) for number in numbers]


async def answer(piece: tuple[ResultKey, Case]) -> Result:
    key, case = piece
    await asyncio.sleep(0)
    return Result(key, case.id, Reply(key.case), None, (), None, None)


async def collect_results(pools: list[WorkerPool[Any, Any]], stop: Stop) -> list[str]:
    return [result.key.case async for results in stream_results(pools, stop) for result in results]


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 3000])
def test_every_case_is_executed_once(count: int) -> None:
    async def main() -> list[str]:
        return await collect_results([WorkerPool(WorkFeed(work(count)), 7, answer, identity)], Stop())

    assert sorted(asyncio.run(main()), key=int) == [str(number) for number in range(count)]


def test_workers_are_bounded_and_cases_are_read_on_demand() -> None:
    drawn: list[int] = []
    most = under_way = 0

    async def count_and_answer(piece: tuple[ResultKey, Case]) -> Result:
        nonlocal most, under_way
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1
        return await answer(piece)

    async def main() -> None:
        seen = 0
        async for results in stream_results(
            [WorkerPool(WorkFeed(work(100_000, drawn)), 5, count_and_answer, identity)], Stop()
        ):
            seen += len(results)
            if seen >= 2000:
                await asyncio.sleep(3)  # a consumer that falls behind
                break

    asyncio.run(main())
    assert most == 5
    assert 2000 + MAX_BUFFERED_RESULTS <= len(drawn) <= 2000 + MAX_BUFFERED_RESULTS + 2 * CHUNK


def test_a_slow_model_does_not_delay_others() -> None:
    async def main() -> list[str]:
        gate = asyncio.Event()

        async def answer_slowly(piece: tuple[ResultKey, Case]) -> Result:
            key, case = piece
            await gate.wait()
            return await answer((ResultKey("slow " + key.case, "s"), case))

        order = []
        pools = [
            WorkerPool(WorkFeed(work(2)), 2, answer_slowly, identity),
            WorkerPool(WorkFeed(work(50)), 2, answer, identity),
        ]
        async for results in stream_results(pools, Stop()):
            order += [result.key.case for result in results]
            if len(order) == 50:
                gate.set()
        return order

    order = asyncio.run(main())
    assert sorted(order[50:]) == ["slow 0", "slow 1"]


def test_a_wrong_key_ends_the_run_and_keeps_finished_results() -> None:
    async def fail_at_20(piece: tuple[ResultKey, Case]) -> Result:
        if int(piece[0].case) >= 20:
            raise AuthenticationFailed("the key is wrong")
        return await answer(piece)

    async def main() -> tuple[list[str], Stop]:
        stop = Stop()
        return await collect_results([WorkerPool(WorkFeed(work(5000)), 4, fail_at_20, identity)], stop), stop

    done, stop = asyncio.run(main())
    assert len(done) == 20
    assert (stop.reason, type(stop.error)) == ("the key is wrong", AuthenticationFailed)


def test_a_stop_finishes_cases_under_way_and_starts_no_more() -> None:
    begun = 0
    stop = Stop()

    async def count(piece: tuple[ResultKey, Case]) -> Result:
        nonlocal begun
        begun += 1
        if begun == 8:
            stop("enough")
            stop("a later reason does not count")
        await asyncio.sleep(0.001)
        return await answer(piece)

    async def main() -> list[str]:
        return await collect_results([WorkerPool(WorkFeed(work(5000)), 4, count, identity)], stop)

    assert len(asyncio.run(main())) == begun == 8
    assert stop.reason == "enough"


def test_a_run_that_has_ended_can_still_be_stopped() -> None:
    stop = Stop()
    asyncio.run(stop.sleep(0))  # its event loop is closed from here on
    stop("too late")
    assert stop.reason == "too late"


def test_a_callback_added_after_the_stop_is_called() -> None:
    stop, done = Stop(), list[str]()
    stop("before the run had an event loop")

    async def main() -> None:
        stop.add_callback(lambda: done.append("hurried"))
        await asyncio.sleep(0)

    asyncio.run(main())
    assert done == ["hurried"]


def test_results_are_yielded_in_batches_without_long_delays() -> None:
    async def main() -> tuple[list[int], float]:
        gate = asyncio.Event()
        begun = asyncio.get_running_loop().time()

        async def hold_the_last(piece: tuple[ResultKey, Case]) -> Result:
            if piece[0].case == "299":
                await gate.wait()
            return await answer(piece)

        sizes = []
        first = 0.0
        async for results in stream_results([WorkerPool(WorkFeed(work(300)), 50, hold_the_last, identity)], Stop()):
            sizes.append(len(results))
            if sum(sizes) == 299:
                first = asyncio.get_running_loop().time() - begun
                gate.set()
        return sizes, first

    sizes, took = asyncio.run(main())
    assert sum(sizes) == 300
    assert len(sizes) <= 8  # not three hundred
    assert took < 5  # although another request was under way


def test_an_internal_error_is_not_swallowed() -> None:
    async def raise_defect(_: tuple[ResultKey, Case]) -> Result:
        raise ZeroDivisionError

    async def main() -> None:
        await collect_results([WorkerPool(WorkFeed(work(3)), 2, raise_defect, identity)], Stop())

    with pytest.raises(ExceptionGroup):
        asyncio.run(asyncio.wait_for(main(), 10))
