"""Runs whose similarity is decided by a provider's embeddings: limited, counted and recorded like every other call."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pramana import settings
from pramana.bench import add_scoring_to_run, execute
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
from .test_run import parse_json, run_pramana, run_server

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


def write_price(dollars: float, url: str) -> None:
    settings.data_folder().mkdir(parents=True, exist_ok=True)
    text = f'[prices."{url}#embed"]\ninput_per_million = {dollars}\noutput_per_million = 0\n'
    settings.prices_file_path().write_text(text, encoding="utf-8")


def run_with_server(use: Callable[[Loopback, Store], Awaitable[T]], wire: OpenAIWire | None = None, **given: Any) -> T:
    async def go() -> T:
        async with Loopback(wire or OpenAIWire(), **given) as server:
            store = open_store(home_store())
            try:
                return await use(server, store)
            finally:
                store.close()

    return asyncio.run(go())


def create_run_of(store: Store, suite: Path, server: Loopback, *models: str) -> Run:
    asked = models or ("fake:fixed=A tram runs on two rails.",)
    return create_run(store, RunRequest(paths=(suite,), models=asked, embedder=f"{server.url}#embed"))


def list_checks(store: Store, run: Run) -> list[Check]:
    return [result.checks[0] for _, result in store.results.iterate(run.id)]


def test_the_command_line_scores_similarity_by_a_providers_embeddings(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 3)
    with run_server() as url:
        embedder = f"{url}#embed"
        done = run_pramana(
            "run", suite, "--model", "fake:fixed=On rails a tram runs.", "--embedder", embedder, "--json"
        )
        assert (done.returncode, parse_json(done)["overall"]["passed"]) == (0, 3), done.stderr
        store = open_store(home_store())
        run = store.runs.find("latest")
        (check, *_) = list_checks(store, run)
        assert run.plan.embedder is not None
        assert (run.plan.embedder.typed, run.plan.embedder.provider) == (embedder, "compatible")
        assert check.version == "1 compatible:embed"
        assert check.evidence["embedder"] == "compatible:embed"
        assert (check.evidence["served_model"], check.evidence["cost_usd"]) == ("embed", None)
        assert check.evidence["ideal"] == IDEALS[1], "the best of the ideals counts"
        again = run_pramana("rescore", "latest", "--json")  # as in the run
        assert (again.returncode, list_checks(store, run)[0].version) == (0, "1 compatible:embed")
        here = run_pramana("rescore", "latest", "--embedder", "local", "--json")
        assert (here.returncode, list_checks(store, run)[0].version) == (0, "1 all-MiniLM-L6-v2 0.1.0 sha256:53aa5117")
    assert list(store.scorings.read_scoring_labels(run.id).values())[1:] == [
        f"judged by itself, embedded by {embedder}",
        "judged by itself",
    ]
    store.close()
    refused = run_pramana("run", suite, "--model", "fake:echo", "--embedder", "opus")
    assert (refused.returncode, "is not an embedding model" in refused.stderr) == (2, True)
    assert parse_json(run_pramana("runs", "--json"))[0]["id"] == run.id, "nothing was begun"


def test_an_ideal_is_embedded_once_per_run(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 5)

    async def use(server: Loopback, store: Store) -> list[str]:
        ended = await execute(store, create_run_of(store, suite, server), Limits(concurrency=1))
        assert (ended.status, store.results.count_outcomes(ended.id)[Outcome.PASSED]) == ("finished", 5)
        return [text for got in server.requests for text in got.body["input"]]

    sent = run_with_server(use)
    assert [sent.count(ideal) for ideal in IDEALS] == [1, 1]
    assert len(sent) == 5 + len(IDEALS)


def test_a_failed_embedding_request_is_retried_like_a_reply(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "FIRST_RETRY_WAIT_S", 0.01)

    async def use(server: Loopback, store: Store) -> tuple[Run, list[Check]]:
        ended = await execute(store, create_run_of(store, suite, server), Limits(concurrency=4))
        return ended, list_checks(store, ended)

    faults = {0: Fault("rate_limited", retry_after="0.05"), 1: Fault("error"), 2: Fault("cut")}
    ended, (check,) = run_with_server(use, script=faults)
    assert check.outcome is Outcome.PASSED
    (name,) = (each for each in ended.notes["retries"] if each.endswith(" (embedder)"))
    assert ended.notes["retries"][name] == 3
    assert [change[2] for change in ended.notes["limits"][name]] == ["start", "rate limit"]


def test_models_and_embedder_of_one_account_share_its_limit(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 20)

    async def use(server: Loopback, store: Store) -> tuple[int, int]:
        run = create_run_of(store, suite, server, f"{server.url}#one", f"{server.url}#two")
        ended = await execute(store, run, Limits(concurrency=4))
        assert ended.status == "finished"
        return server.busiest, server.count

    busiest, count = run_with_server(use, OpenAIWire("A tram runs on rails."), latency_s=0.02)
    assert count == 80
    assert 4 <= busiest <= 5  # eight workers; a request may arrive before the previous one is counted as finished


def test_the_cost_of_embeddings_counts_toward_the_cost_limit(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 20)

    async def use(server: Loopback, store: Store) -> None:
        write_price(1e6, f"{server.url}")  # a dollar a token: 6 of the reply, 11 of the ideals once
        run, stop = create_run_of(store, suite, server), Stop()
        ended = await execute(store, run, Limits(concurrency=1, max_cost_usd=40), stop=stop)
        assert (ended.status, type(stop.error)) == ("stopped", BudgetSpent)
        assert ended.reason == "the run's limit of $40 is reached"
        assert [check.evidence["cost_usd"] for check in list_checks(store, ended)] == [17, 6, 6, 6, 6]
        assert summarise_run(store, ended).cost_usd.value == 41
        tokens = await execute(store, ended, Limits(concurrency=1, max_total_tokens=20))
        assert tokens.reason == "the run's limit of 20 tokens is reached"
        done = await execute(store, tokens, Limits(concurrency=4))
        assert (done.status, store.results.count_outcomes(done.id)[Outcome.PASSED]) == ("finished", 20)
        assert {check.outcome for check in list_checks(store, done)} == {Outcome.PASSED}, "no budget is a wrong answer"
        with pytest.raises(BudgetSpent):
            await add_scoring_to_run(store, done, None, Limits(concurrency=1, max_cost_usd=1))
        assert "ended early: the run's limit of $1 is reached" in store.scorings.read_scoring_labels(done.id)[1]
        assert {check.outcome for check in list_checks(store, done)} == {Outcome.PASSED}

    run_with_server(use)


def test_an_unknown_embedder_price_is_refused_under_a_cost_limit(suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> int:
        run = create_run_of(store, suite, server)
        with pytest.raises(InvalidInput, match=r"no price is known for .*#embed; add the price to"):
            await execute(store, run, Limits(max_cost_usd=1))
        write_price(0.02, server.url)
        run = await execute(store, create_run_of(store, suite, server), Limits(max_cost_usd=1))
        settings.prices_file_path().unlink()
        with pytest.raises(InvalidInput, match="no price is known for"):
            await add_scoring_to_run(store, run, None, Limits(max_cost_usd=1))
        return server.count

    assert run_with_server(use) == 1


@pytest.mark.parametrize(("fault", "kind"), [("unauthorized", AuthenticationFailed), ("unpaid", OutOfCredit)])
def test_an_embedder_without_credit_or_a_valid_key_stops_the_run(
    tmp_path: Path, fault: Any, kind: type[Exception]
) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 75)

    async def use(server: Loopback, store: Store) -> None:
        stop = Stop()
        ended = await execute(store, create_run_of(store, suite, server), Limits(concurrency=4), stop=stop)
        assert (ended.status, type(stop.error)) == ("stopped", kind)
        assert ended.stored <= 4
        assert server.count <= 4
        assert {check.outcome for check in list_checks(store, ended)} <= {Outcome.UNSCORED}, "replies paid for are kept"

    run_with_server(use, faults=[Fault(fault)])


def test_a_case_without_a_threshold_is_unscored_with_its_similarity(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", threshold=None)

    async def use(server: Loopback, store: Store) -> Check:
        ended = await execute(store, create_run_of(store, suite, server), Limits())
        (check,) = list_checks(store, ended)
        return check

    check = run_with_server(use)
    assert check.outcome is Outcome.UNSCORED
    assert check.value is not None
    assert check.value > 0.8
    assert "the default of 0.53 was measured for all-MiniLM-L6-v2" in check.reason


def test_a_resumed_run_uses_the_same_embedder(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "mine.jsonl", 30)

    async def use(server: Loopback, store: Store) -> set[str]:
        run, stop = create_run_of(store, suite, server), Stop()
        half = await execute(store, run, Limits(concurrency=1), lambda _: stop("enough"), stop)
        assert 0 < half.stored < 30
        done = await execute(store, store.runs.read(run.id), Limits(concurrency=4))
        assert done.stored == 30
        return {check.version for check in list_checks(store, done)}

    assert run_with_server(use, latency_s=0.02) == {"1 compatible:embed"}
