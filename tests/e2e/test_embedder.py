"""Runs whose similarity is decided by a provider's embeddings: guarded, counted and recorded as every other call is."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pramana import settings
from pramana.bench import execute, judge_again
from pramana.errors import AuthenticationFailed, BudgetSpent, InvalidInput, OutOfCredit
from pramana.model import Check, Outcome, Run
from pramana.planning import create_run
from pramana.report.summary import summarise_run
from pramana.request import Limits, RunRequest
from pramana.run import asking
from pramana.run.engine import Stop
from pramana.store import open_store
from pramana.store.store import Store

from ..loopback.openai import OpenAIWire
from ..loopback.server import Fault, Loopback
from ..stores import home_store
from .test_run import data, pramana, serving

T = TypeVar("T")
IDEALS = ["The cat sleeps on the mat.", "A tram runs on rails."]


def write_suite(path: Path, count: int = 1, threshold: float | None = 0.8, ideals: Sequence[str] = IDEALS) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            case = {
                "id": f"factual-{number:03}",
                "category": "factual",
                "input": f"Say it, number {number}.",
                "ideal": list(ideals),
                "assertion": {"type": "semantic_similarity", "threshold": threshold},
                "metadata": {"difficulty": "easy", "tokens_est": 8},
            }
            file.write(json.dumps(case) + "\n")
    return path


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write_suite(tmp_path / "mine.jsonl")


def price(dollars: float, url: str) -> None:
    settings.data_folder().mkdir(parents=True, exist_ok=True)
    text = f'[prices."{url}#embed"]\ninput_per_million = {dollars}\noutput_per_million = 0\n'
    settings.prices_file_path().write_text(text, encoding="utf-8")


def serve(use: Callable[[Loopback, Store], Awaitable[T]], wire: OpenAIWire | None = None, **given: Any) -> T:
    async def go() -> T:
        async with Loopback(wire or OpenAIWire(), **given) as server:
            store = open_store(home_store())
            try:
                return await use(server, store)
            finally:
                store.close()

    return asyncio.run(go())


def begin(store: Store, suite: Path, server: Loopback, *models: str) -> Run:
    asked = models or ("fake:fixed=A tram runs on two rails.",)
    return create_run(store, RunRequest(paths=(suite,), models=asked, embedder=f"{server.url}#embed"))


def checks(store: Store, run: Run) -> list[Check]:
    return [result.checks[0] for _, result in store.results.iterate(run.id)]


def test_similarity_by_a_providers_embeddings_from_the_command_line(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 3)
    with serving() as url:
        embedder = f"{url}#embed"
        done = pramana("run", suite, "--model", "fake:fixed=On rails a tram runs.", "--embedder", embedder, "--json")
        assert (done.returncode, data(done)["overall"]["passed"]) == (0, 3), done.stderr
        store = open_store(home_store())
        run = store.runs.find("latest")
        (check, *_) = checks(store, run)
        assert run.plan.embedder is not None
        assert (run.plan.embedder.typed, run.plan.embedder.provider) == (embedder, "compatible")
        assert check.version == "1 compatible:embed"
        assert check.evidence["embedder"] == "compatible:embed"
        assert (check.evidence["served_model"], check.evidence["cost_usd"]) == ("embed", None)
        assert check.evidence["ideal"] == IDEALS[1], "the best of the ideals counts"
        again = pramana("rescore", "latest", "--json")  # as in the run
        assert (again.returncode, checks(store, run)[0].version) == (0, "1 compatible:embed")
        here = pramana("rescore", "latest", "--embedder", "local", "--json")
        assert (here.returncode, checks(store, run)[0].version) == (0, "1 all-MiniLM-L6-v2 0.1.0 sha256:53aa5117")
    assert list(store.scorings.list(run.id).values())[1:] == [
        f"judged by itself, embedded by {embedder}",
        "judged by itself",
    ]
    store.close()
    refused = pramana("run", suite, "--model", "fake:echo", "--embedder", "opus")
    assert (refused.returncode, "is not an embedding model" in refused.stderr) == (2, True)
    assert data(pramana("runs", "--json"))[0]["id"] == run.id, "nothing was begun"


def test_an_ideal_is_embedded_once_a_run(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 5)

    async def use(server: Loopback, store: Store) -> list[str]:
        ended = await execute(store, begin(store, suite, server), Limits(concurrency=1))
        assert (ended.status, store.results.count_outcomes(ended.id)[Outcome.PASSED]) == ("finished", 5)
        return [text for got in server.requests for text in got.body["input"]]

    sent = serve(use)
    assert [sent.count(ideal) for ideal in IDEALS] == [1, 1]
    assert len(sent) == 5 + len(IDEALS)


def test_an_embedding_is_asked_for_again_as_a_reply_is(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "FIRST_WAIT_S", 0.01)

    async def use(server: Loopback, store: Store) -> tuple[Run, list[Check]]:
        ended = await execute(store, begin(store, suite, server), Limits(concurrency=4))
        return ended, checks(store, ended)

    faults = {0: Fault("rate_limited", retry_after="0.05"), 1: Fault("error"), 2: Fault("cut")}
    ended, (check,) = serve(use, script=faults)
    assert check.outcome is Outcome.PASSED
    (name,) = (each for each in ended.notes["retries"] if each.endswith(" (embedder)"))
    assert ended.notes["retries"][name] == 3
    assert [change[2] for change in ended.notes["limits"][name]] == ["start", "rate limit"]


def test_models_and_embedder_of_one_account_share_its_limit(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 20)

    async def use(server: Loopback, store: Store) -> tuple[int, int]:
        run = begin(store, suite, server, f"{server.url}#one", f"{server.url}#two")
        ended = await execute(store, run, Limits(concurrency=4))
        assert ended.status == "finished"
        return server.busiest, server.count

    busiest, count = serve(use, OpenAIWire("A tram runs on rails."), latency_s=0.02)
    assert count == 80
    assert 4 <= busiest <= 5  # of eight workers; the server may see a request before it has counted the last one off


def test_what_embeddings_cost_is_the_runs_cost_and_ends_it(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 20)

    async def use(server: Loopback, store: Store) -> None:
        price(1e6, f"{server.url}")  # a dollar a token: 6 of the reply, 11 of the ideals once
        run, stop = begin(store, suite, server), Stop()
        ended = await execute(store, run, Limits(concurrency=1, max_cost_usd=40), stop=stop)
        assert (ended.status, type(stop.error)) == ("stopped", BudgetSpent)
        assert ended.reason == "the run's limit of $40 is reached"
        assert [check.evidence["cost_usd"] for check in checks(store, ended)] == [17, 6, 6, 6, 6]
        assert summarise_run(store, ended).cost_usd.value == 41
        tokens = await execute(store, ended, Limits(concurrency=1, max_total_tokens=20))
        assert tokens.reason == "the run's limit of 20 tokens is reached"
        done = await execute(store, tokens, Limits(concurrency=4))
        assert (done.status, store.results.count_outcomes(done.id)[Outcome.PASSED]) == ("finished", 20)
        assert {check.outcome for check in checks(store, done)} == {Outcome.PASSED}, "no budget is a wrong answer"
        with pytest.raises(BudgetSpent):
            await judge_again(store, done, None, Limits(concurrency=1, max_cost_usd=1))
        assert "ended early: the run's limit of $1 is reached" in store.scorings.list(done.id)[1]
        assert {check.outcome for check in checks(store, done)} == {Outcome.PASSED}

    serve(use)


def test_an_unknown_price_of_the_embedder_refuses_to_start(suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> int:
        run = begin(store, suite, server)
        with pytest.raises(InvalidInput, match=r"no price is known for .*#embed; set it in"):
            await execute(store, run, Limits(max_cost_usd=1))
        price(0.02, server.url)
        run = await execute(store, begin(store, suite, server), Limits(max_cost_usd=1))
        settings.prices_file_path().unlink()
        with pytest.raises(InvalidInput, match="no price is known for"):
            await judge_again(store, run, None, Limits(max_cost_usd=1))
        return server.count

    assert serve(use) == 1


@pytest.mark.parametrize(("fault", "kind"), [("unauthorized", AuthenticationFailed), ("unpaid", OutOfCredit)])
def test_an_embedder_that_nobody_pays_or_knows_stops_the_run(tmp_path: Path, fault: Any, kind: type[Exception]) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 75)

    async def use(server: Loopback, store: Store) -> None:
        stop = Stop()
        ended = await execute(store, begin(store, suite, server), Limits(concurrency=4), stop=stop)
        assert (ended.status, type(stop.error)) == ("stopped", kind)
        assert ended.stored <= 4
        assert server.count <= 4
        assert {check.outcome for check in checks(store, ended)} <= {Outcome.UNSCORED}, "replies paid for are kept"

    serve(use, faults=[Fault(fault)])


def test_without_a_threshold_of_its_own_a_case_is_unscored_with_its_similarity(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", threshold=None)

    async def use(server: Loopback, store: Store) -> Check:
        ended = await execute(store, begin(store, suite, server), Limits())
        (check,) = checks(store, ended)
        return check

    check = serve(use)
    assert check.outcome is Outcome.UNSCORED
    assert check.value is not None
    assert check.value > 0.8
    assert "the default of 0.53 was measured for all-MiniLM-L6-v2" in check.reason


def test_a_resumed_run_is_embedded_by_the_same(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 30)

    async def use(server: Loopback, store: Store) -> set[str]:
        run, stop = begin(store, suite, server), Stop()
        half = await execute(store, run, Limits(concurrency=1), lambda _: stop("enough"), stop)
        assert 0 < half.stored < 30
        done = await execute(store, store.runs.read(run.id), Limits(concurrency=4))
        assert done.stored == 30
        return {check.version for check in checks(store, done)}

    assert serve(use, latency_s=0.02) == {"1 compatible:embed"}
