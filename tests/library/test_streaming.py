"""A stream does not run far ahead of its consumer, and records that it was left."""

import asyncio

import pramana

ASKED = [{"id": f"case-{number}", "input": f"Say {number}.", "ideal": "yes"} for number in range(120)]


def test_a_stream_stays_close_to_its_consumer_and_records_that_it_was_left() -> None:
    asked: list[str] = []

    async def bot(prompt: str) -> str:
        asked.append(prompt)
        await asyncio.sleep(0)
        return "yes"

    async def take(count: int) -> tuple[str | None, int]:
        ahead = 0
        taken = 0
        async with pramana.stream(ASKED, model=bot, concurrency=8) as results:
            async for _ in results:
                taken += 1
                await asyncio.sleep(0.02)  # a consumer that is slower than the model
                ahead = max(ahead, len(asked) - taken)
                if taken == count:
                    break
        return results.run_id, ahead

    run_id, ahead = asyncio.run(take(20))
    assert 0 < ahead <= 10
    assert len(asked) <= 30
    left = pramana.load_report(run_id or "")
    assert (left.run.status, left.run.stored) == ("interrupted", len(asked))
    assert left.stop_reason == "the stream was closed before its last result was taken"
    assert pramana.resume(left, model=bot).finished
    assert len(asked) == len({*asked}) == len(ASKED)


def test_a_fully_consumed_stream_yields_every_result() -> None:
    async def read(concurrency: int) -> list[str]:
        models = ["fake:echo", "fake:fixed=yes"]
        return [each.case_id async for each in pramana.stream(ASKED[:40], models=models, concurrency=concurrency)]

    for concurrency in (1, 3, 64):
        found = asyncio.run(read(concurrency))
        assert sorted(found) == sorted([each["id"] for each in ASKED[:40]] * 2)
