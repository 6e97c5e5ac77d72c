"""Whole runs against a server with odd answers: only one case is affected, and no key is stored."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pramana import settings
from pramana.bench import execute
from pramana.loopback.voice import ReceivedRequest
from pramana.model import Outcome, Result, Run
from pramana.planning import create_run
from pramana.request import Limits, RunRequest
from pramana.run import asking
from pramana.run.asking import ReplyCache
from pramana.store import open_store
from pramana.store.store import Store

from ..loopback.openai import OpenAIWire
from ..loopback.server import Answer, Fault, Loopback

pytestmark = pytest.mark.usefixtures("virtual_time")
KEY = "sk-secret/0123456789"
ODD_CASE = 7
"""The number of the case that is answered oddly."""


class OddWire(OpenAIWire):
    """A server that says "so" to all, and to one case something else."""

    def __init__(self, *deltas: str, usage: Any = None, **fields: Any) -> None:
        super().__init__()
        self.deltas, self.usage, self.fields = deltas, usage, fields

    def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:  # noqa: ARG002
        one = got.body["messages"][-1]["content"].endswith(f" {ODD_CASE}.")
        texts = self.deltas if one and self.deltas else ("It is ", "so.")
        usage = self.usage if one and self.usage else {"prompt_tokens": 10, "completion_tokens": 2}
        events = [{"model": "m", "choices": [{"delta": {"content": text}}]} for text in texts]
        last: dict[str, Any] = {"model": "m", "choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage}
        last |= (
            {name: value for name, value in self.fields.items() if name in ("model", "system_fingerprint")}
            if one
            else {}
        )
        if one and "finish_reason" in self.fields:
            last["choices"][0]["finish_reason"] = self.fields["finish_reason"]
        return Answer(tuple(f"data: {json.dumps(each)}\n\n".encode() for each in [*events, last]), streamed=True)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "FIRST_RETRY_WAIT_S", 0.001)
    monkeypatch.setenv("COMPATIBLE_API_KEY", KEY)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jsonl"
    cases = [
        {
            "id": f"factual-{number:03}",
            "category": "factual",
            "input": f"Say it, number {number}.",
            "ideal": "so",
            "assertion": {"type": "contains"},
            "metadata": {"difficulty": "easy", "tokens_est": 8},
        }
        for number in range(20)
    ]
    path.write_text("".join(json.dumps(case) + "\n" for case in cases), encoding="utf-8")
    return path


def run(suite: Path, wire: OpenAIWire, cache: ReplyCache | None = None) -> tuple[Run, list[Result]]:
    async def go() -> tuple[Run, list[Result]]:
        async with Loopback(wire) as server:
            return await _run(server.url, suite, Limits(), cache)

    return asyncio.run(go())


async def _run(url: str, suite: Path, limits: Limits, cache: ReplyCache | None = None) -> tuple[Run, list[Result]]:
    store: Store = open_store(settings.database_url())
    try:
        begun = create_run(store, RunRequest(paths=(suite,), models=(f"{url}#m",)))
        ended = await asyncio.wait_for(execute(store, begun, limits, cache=cache), 60)
        return ended, [result for _, result in store.results.iterate(begun.id)]
    finally:
        store.close()


def find_odd_result(results: list[Result]) -> Result:
    """Every other case has passed."""
    assert len(results) == 20
    odd = next(result for result in results if result.case_id == f"factual-{ODD_CASE:03}")
    assert [result.outcome for result in results if result is not odd] == [Outcome.PASSED] * 19
    return odd


@pytest.mark.parametrize(
    "answer",
    [
        {"finish_reason": {"a": 1}},
        {"system_fingerprint": {"a": 1}},
        {"model": ["a"]},
        {"model": 5},
        {"usage": {"prompt_tokens": 2**63, "completion_tokens": 10**400}},
        {"usage": {"prompt_tokens": "many", "completion_tokens": []}},
    ],
)
def test_an_odd_field_loses_no_reply(suite: Path, answer: dict[str, Any]) -> None:
    ended, results = run(suite, OddWire(**answer))
    assert (ended.status, ended.stored) == ("finished", 20)
    assert find_odd_result(results).outcome is Outcome.PASSED


def test_a_negative_token_count_does_not_raise_the_limit(suite: Path) -> None:
    settings.data_folder().mkdir(parents=True, exist_ok=True)

    async def go() -> Run:
        usage = {"prompt_tokens": -(10**9), "completion_tokens": -(10**9)}
        async with Loopback(OddWire(usage=usage)) as server:
            prices = f'[prices."{server.url}#m"]\ninput_per_million = 1\noutput_per_million = 1\n'
            settings.prices_file_path().write_text(prices, encoding="utf-8")
            ended, _ = await _run(server.url, suite, Limits(concurrency=1, max_cost_usd=1000))
            return ended

    ended = asyncio.run(go())
    assert ended.status == "stopped"
    assert str(ended.reason).startswith("the run has a cost limit, and a reply has no token counts")
    assert ended.stored == ODD_CASE + 1


@pytest.mark.parametrize("deltas", [(f"so, {KEY}",), (f"so, {KEY[:9]}", KEY[9:]), tuple(f"so {KEY}")])
def test_a_key_reaches_neither_the_store_nor_a_verdict(suite: Path, deltas: tuple[str, ...]) -> None:
    ended, results = run(suite, OddWire(*deltas), ReplyCache(settings.data_folder() / "cache"))
    assert ended.status == "finished"
    odd = find_odd_result(results)
    assert (odd.outcome, odd.reply) == (Outcome.ERRORED, None)
    assert odd.failure is not None
    assert odd.failure.code == "key_in_answer"
    assert "contains the account's API key, and keys are never stored" in odd.failure.message
    for path in settings.data_folder().rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


Broken = Callable[[Path], Any]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: folder.write_text("a file"),
        lambda folder: [(folder / f"{number:02x}").mkdir(parents=True) for number in range(256)],
        lambda folder: folder.symlink_to(folder),
    ],
)
def test_a_broken_cache_loses_no_reply(suite: Path, tmp_path: Path, spoil: Broken) -> None:
    folder = tmp_path / "cache"
    spoil(folder)
    for _ in range(2):
        ended, results = run(suite, OddWire(), ReplyCache(folder))
        assert (ended.status, ended.stored) == ("finished", 20)
        assert find_odd_result(results).outcome is Outcome.PASSED
        if folder.is_dir():  # what was written is now in the way of itself
            for path in [path for path in folder.rglob("*") if path.is_file()]:
                path.unlink()
                path.mkdir()
