"""All stages together: what a run requests, spends and stores, checked against a server that records every request."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from pramana import clock, settings
from pramana.bench import Progress, add_scoring_to_run, execute
from pramana.errors import AuthenticationFailed, BudgetSpent, InvalidInput
from pramana.model import Outcome, Run
from pramana.planning import create_run
from pramana.request import Limits, RunRequest
from pramana.run import asking
from pramana.run.asking import ReplyCache
from pramana.run.engine import INTERRUPTED_BY_USER_REASON, Stop
from pramana.run.limiter import INITIAL_LIMIT
from pramana.store import open_store
from pramana.store.store import Store

from ..loopback.openai import OpenAIWire
from ..loopback.server import Fault, Loopback
from ..stores import home_store

T = TypeVar("T")
KEY = "sk-test-0123456789abcdef"
JUDGED = {"type": "llm_judge", "judge_prompt": "Is it so?"}
pytestmark = pytest.mark.usefixtures("virtual_time")


def write_suite(path: Path, count: int, assertion: dict[str, Any] | None = None) -> Path:
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            case = {
                "id": f"factual-{number:03}",
                "category": "factual",
                "input": f"Say it, number {number}.",
                "ideal": None if assertion else "so",
                "assertion": assertion or {"type": "contains"},
                "metadata": {"difficulty": "easy", "tokens_est": 8},
            }
            file.write(json.dumps({name: value for name, value in case.items() if value is not None}) + "\n")
    return path


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    return write_suite(tmp_path / "mine.jsonl", 10)


@pytest.fixture
def judged_suite(tmp_path: Path) -> Path:
    return write_suite(tmp_path / "judged.jsonl", 10, JUDGED)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "FIRST_RETRY_WAIT_S", 0.001)


def run_with_server(use: Callable[[Loopback, Store], Awaitable[T]], wire: OpenAIWire | None = None, **given: Any) -> T:
    async def go() -> T:
        async with Loopback(wire or OpenAIWire("It is so.\nYES"), **given) as server:
            store = open_store(home_store())
            try:
                return await asyncio.wait_for(use(server, store), 60)
            finally:
                store.close()

    return asyncio.run(go())


def create_run_of(store: Store, suite: Path, *models: str, **given: Any) -> Run:
    return create_run(store, RunRequest(paths=(suite,), models=models, **given))


def list_outcomes(store: Store, run: Run) -> list[str]:
    return [result.outcome.value for _, result in store.results.iterate(run.id)]


def write_prices(**dollars: float) -> None:
    settings.data_folder().mkdir(parents=True, exist_ok=True)
    tables = [
        f'[prices."{name}"]\ninput_per_million = {price}\noutput_per_million = 0\n' for name, price in dollars.items()
    ]
    settings.prices_file_path().write_text("\n".join(tables), encoding="utf-8")


# ── Stopping a run ──


def test_a_wrong_key_stops_the_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = write_suite(tmp_path / "many.jsonl", 500)
    monkeypatch.setenv("COMPATIBLE_API_KEY", "sk-wrong-0123456789abcdef")

    async def use(server: Loopback, store: Store) -> tuple[Run, Stop, int]:
        stop = Stop()
        ended = await execute(store, create_run_of(store, suite, f"{server.url}#m"), Limits(concurrency=75), stop=stop)
        return ended, stop, server.count

    ended, stop, requests = run_with_server(use, OpenAIWire(key=KEY))
    assert (ended.status, ended.stored, type(stop.error)) == ("stopped", 0, AuthenticationFailed)
    assert requests <= INITIAL_LIMIT, "those that were under way, and no more"
    assert "rejected the API key" in str(ended.reason)


def test_a_token_budget_holds_at_any_concurrency(tmp_path: Path) -> None:
    suite = write_suite(tmp_path / "many.jsonl", 2_000)

    async def use(server: Loopback, store: Store) -> tuple[Run, int]:
        limits = Limits(concurrency=1_000, max_total_tokens=40)
        return await execute(store, create_run_of(store, suite, f"{server.url}#m"), limits), server.count

    ended, requests = run_with_server(use)
    assert (ended.status, ended.stored) == ("stopped", requests)
    assert requests <= 2 * INITIAL_LIMIT
    assert ended.reason == "the run's limit of 40 tokens is reached"


@pytest.mark.parametrize("waits", ["for the provider", "for the answers"])
def test_a_deadline_ends_a_run_that_is_waiting(suite: Path, waits: str) -> None:
    held = waits == "for the provider"

    async def use(server: Loopback, store: Store) -> tuple[Run, float]:
        start = clock.monotonic()
        limits = Limits(concurrency=2, deadline_s=0.4)
        ended = await execute(store, create_run_of(store, suite, f"{server.url}#m", repeats=50), limits)
        return ended, clock.monotonic() - start

    faults = [Fault("rate_limited", retry_after="600")] if held else []
    ended, took = run_with_server(use, faults=faults, latency_s=0 if held else 0.1)
    assert (ended.status, ended.reason) == ("stopped", "the time limit of 0.4 s is reached")
    assert took < 5
    assert ended.stored < 20


def test_ctrl_c_ends_a_run_that_is_waiting(suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> tuple[Run, float]:
        stop = Stop()
        asyncio.get_running_loop().call_later(0.3, stop, INTERRUPTED_BY_USER_REASON)
        start = clock.monotonic()
        ended = await execute(store, create_run_of(store, suite, f"{server.url}#m"), Limits(concurrency=2), stop=stop)
        return ended, clock.monotonic() - start

    ended, took = run_with_server(use, faults=[Fault("rate_limited", retry_after="600")])
    assert (ended.status, took < 5) == ("interrupted", True)


def test_a_pause_requested_by_the_provider_is_respected_and_shown(suite: Path) -> None:
    shown: list[float] = []

    def watch(progress: Progress) -> None:
        shown.append(progress.get_rate_limit_wait_s())

    async def use(server: Loopback, store: Store) -> tuple[Run, float]:
        start = clock.monotonic()
        ended = await execute(store, create_run_of(store, suite, f"{server.url}#m"), Limits(concurrency=1), watch)
        return ended, clock.monotonic() - start

    ended, took = run_with_server(use, script={3: Fault("rate_limited", retry_after="2")})
    assert (ended.status, ended.stored) == ("finished", 10)
    assert 2 <= took < 10
    assert 0 < max(shown) <= 2
    (limits,) = ended.notes["limits"].values()
    assert [cause for _, _, cause in limits][-1:] != ["rate limit"], "one at a time cannot be cut"
    assert list(ended.notes["retries"].values()) == [1]


def test_every_request_has_a_timeout(suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> tuple[Run, int, list[str]]:
        run = create_run_of(store, suite, f"{server.url}#m")
        ended = await execute(store, run, Limits(concurrency=10, timeout_s=0.1))
        return ended, server.count, [str(each.failure) for _, each in store.results.iterate(run.id)]

    ended, requests, failures = run_with_server(use, faults=[Fault("hang")])
    assert (ended.status, ended.stored, requests) == ("finished", 10, 10 * asking.MAX_ATTEMPTS_BEFORE_FIRST_REPLY)
    assert all("within 0.1 s" in each for each in failures)


def test_an_unreachable_server_stops_the_run_at_once(suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> Run:
        await server.__aexit__(None, None, None)
        return await execute(store, create_run_of(store, suite, f"{server.url}#m"), Limits(concurrency=2))

    ended = run_with_server(use)
    assert (ended.status, ended.stored) == ("stopped", 0)
    assert "cannot reach" in str(ended.reason)


# ── Requests ──


def test_the_system_prompt_and_parameters_are_sent_with_every_request(suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> list[Any]:
        run = create_run_of(store, suite, f"{server.url}#m", system_prompt="Be brief.", parameters={"top_p": 0.9})
        await execute(store, run, Limits())
        return [got.body for got in server.requests]

    bodies = run_with_server(use)
    assert {body["messages"][0]["content"] for body in bodies} == {"Be brief."}
    assert {(body["temperature"], body["seed"], body["top_p"]) for body in bodies} == {(0, 42, 0.9)}


def test_a_rejected_parameter_is_dropped_and_marks_the_run_permanently(suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> tuple[Run, Run, int]:
        run = create_run_of(store, suite, f"{server.url}#m")
        ended = await execute(store, run, Limits(concurrency=1))
        return ended, await execute(store, run, Limits(concurrency=1)), server.count

    ended, again, requests = run_with_server(use, script={0: Fault("parameter", parameter="seed")})
    assert (ended.status, ended.stored, requests) == ("finished", 10, 11)
    assert [*ended.notes["left_out"].values()] == [["seed"]]
    assert again == ended, "to resume a finished run changes nothing"


def test_cases_and_judge_of_one_account_share_its_limiter(judged_suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> tuple[Run, int, int]:
        ended = await execute(store, create_run_of(store, judged_suite, f"{server.url}#m"), Limits(concurrency=2))
        return ended, server.count, server.busiest

    ended, requests, at_once = run_with_server(use, latency_s=0.005)
    assert (ended.status, requests, at_once) == ("finished", 20, 2)


def test_two_ways_into_one_account_share_its_limiter(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(server: Loopback, store: Store) -> tuple[Run, int]:
        monkeypatch.setenv("COMPATIBLE_BASE_URL", server.url)
        run = create_run_of(store, suite, f"{server.url}#m", "compatible:n")
        return await execute(store, run, Limits(concurrency=2)), server.busiest

    ended, at_once = run_with_server(use, latency_s=0.005)
    assert (ended.stored, at_once) == (20, 2)


def test_the_cache_stores_each_repeat_separately(suite: Path, tmp_path: Path) -> None:
    async def use(server: Loopback, store: Store) -> list[int]:
        counts = []
        for repeats in (1, 3, 3):
            cache = ReplyCache(tmp_path / "cache")
            run = create_run_of(store, suite, f"{server.url}#m", repeats=repeats)
            await execute(store, run, Limits(), cache=cache)
            counts.append(server.count)
        return counts

    assert run_with_server(use) == [10, 30, 30]


def test_the_cache_distinguishes_servers(suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(server: Loopback, store: Store) -> list[int]:
        cache = ReplyCache(tmp_path / "cache")
        async with Loopback(OpenAIWire("Another.")) as other:
            for url in (server.url, other.url):
                monkeypatch.setenv("COMPATIBLE_BASE_URL", url)
                await execute(store, create_run_of(store, suite, "compatible:m"), Limits(), cache=cache)
            return [server.count, other.count]

    assert run_with_server(use) == [10, 10]


# ── Cost and limits ──


def test_the_cost_uses_the_users_prices_and_records_them(suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> tuple[Run, list[float | None]]:
        write_prices(**{f"{server.url}#m": 1_000_000.0})
        run = create_run_of(store, suite, f"{server.url}#m")
        ended = await execute(store, run, Limits())
        return ended, [each.reply.cost_usd for _, each in store.results.iterate(run.id) if each.reply]

    ended, costs = run_with_server(use)
    assert len(costs) == 10
    assert all(cost and cost >= 1 for cost in costs)
    assert "own prices" in ended.notes["prices"]


def test_a_cost_limit_stops_the_run_and_requires_the_judges_price(judged_suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> Run:
        write_prices(**{f"{server.url}#m": 1.0})
        refused = create_run_of(store, judged_suite, f"{server.url}#m", judge=f"{server.url}#other")
        with pytest.raises(InvalidInput, match=r"a cost limit needs a price, and no price is known for .*#other"):
            await execute(store, refused, Limits(max_cost_usd=1))
        write_prices(**{f"{server.url}#m": 100_000.0, f"{server.url}#other": 100_000.0})
        run = create_run_of(store, judged_suite, f"{server.url}#m", judge=f"{server.url}#other")
        return await execute(store, run, Limits(concurrency=1, max_cost_usd=20))

    ended = run_with_server(use)
    assert (ended.status, ended.reason) == ("stopped", "the run's limit of $20 is reached")
    assert 0 < ended.stored < 10


def test_a_cost_limit_is_refused_if_speech_recognition_cost_cannot_be_counted(suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> Run:
        write_prices(**{f"{server.url}#m": 1.0, f"{server.url}#ears": 1.0})
        refused = create_run_of(store, suite, f"{server.url}#m", stt=f"{server.url}#ears")
        with pytest.raises(InvalidInput, match=r"a cost limit cannot count what the speech recognition .*#ears costs"):
            await execute(store, refused, Limits(max_cost_usd=1))
        write_prices(**{f"{server.url}#m": 1.0, f"{server.url}#ears": 0.0})
        run = create_run_of(store, suite, f"{server.url}#m", stt=f"{server.url}#ears")
        return await execute(store, run, Limits(max_cost_usd=1))

    assert run_with_server(use).status == "finished"


def test_a_budget_covers_the_whole_run_across_resumes(suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> list[int]:
        run = create_run_of(store, suite, f"{server.url}#m")
        counts = []
        for _ in range(3):
            await execute(store, store.runs.read(run.id), Limits(concurrency=1, max_total_tokens=30))
            counts.append(server.count)
        return counts

    first, second, third = run_with_server(use)
    assert 0 < first < 10
    assert first == second == third


def test_a_run_stores_its_limits(suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> tuple[Run, Run]:
        run = create_run_of(store, suite, f"{server.url}#m")
        first = await execute(store, run, Limits(concurrency=1, max_total_tokens=30, deadline_s=50, timeout_s=60))
        return first, await execute(store, first, Limits.for_resumed_run(first.limits, {"max_total_tokens": None}))

    first, second = run_with_server(use)
    assert (first.status, second.status) == ("stopped", "finished")
    kept = {"deadline_s": 50, "concurrency": 1, "timeout_s": 60}
    assert first.limits == {"max_total_tokens": 30, **kept}
    assert second.limits == kept
    assert (first.notes["reached_limit"], second.notes["reached_limit"]) == ("max_total_tokens", None)


def test_a_budget_spent_before_judging_keeps_the_reply(judged_suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> tuple[Run, list[str], Stop, list[str]]:
        stop = Stop()
        run = create_run_of(store, judged_suite, f"{server.url}#m")
        ended = await execute(store, run, Limits(concurrency=1, max_total_tokens=5), stop=stop)
        (reasons) = [each.checks[0].reason for _, each in store.results.iterate(run.id)]
        number = await add_scoring_to_run(store, ended, None, Limits())
        assert number == 1
        return ended, reasons, stop, list_outcomes(store, run)

    ended, reasons, stop, later = run_with_server(use)
    assert (ended.status, ended.stored, type(stop.error)) == ("stopped", 1, BudgetSpent)
    assert "not judged" in reasons[0]
    assert "pramana rescore" in reasons[0]
    assert later == ["passed"], "and it can be judged later, without being asked again"


def test_judge_tokens_are_counted(judged_suite: Path) -> None:
    spent: list[int] = []

    def watch(progress: Progress) -> None:
        spent.append(progress.budget.tokens)

    async def use(server: Loopback, store: Store) -> int:
        run = create_run_of(store, judged_suite, f"{server.url}#m")
        await execute(store, run, Limits(), watch)
        return sum(
            (each.reply.usage.input_tokens or 0) + (each.reply.usage.output_tokens or 0)
            for _, each in store.results.iterate(run.id)
            if each.reply
        )

    of_cases = run_with_server(use)
    assert spent[-1] > 2 * of_cases


# ── Stored results and resuming ──


def test_rescoring_calls_only_the_judge(judged_suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> tuple[list[str], list[str], int, int]:
        run = create_run_of(store, judged_suite, f"{server.url}#m")
        ended = await execute(store, run, Limits())
        asked = server.count
        async with Loopback(OpenAIWire("By no means.\nNO")) as strict:
            before = list_outcomes(store, run)
            await add_scoring_to_run(store, ended, f"{strict.url}#j", Limits())
            return before, list_outcomes(store, run), server.count - asked, strict.count

    before, after, of_the_model, of_the_judge = run_with_server(use)
    assert (before, after) == (["passed"] * 10, ["failed"] * 10)
    assert (of_the_model, of_the_judge) == (0, 10)


def test_an_interrupted_rescoring_keeps_every_old_verdict(judged_suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> list[str]:
        run = create_run_of(store, judged_suite, f"{server.url}#m")
        ended = await execute(store, run, Limits())
        async with Loopback(OpenAIWire("By no means.\nNO")) as strict:
            with pytest.raises(BudgetSpent):
                await add_scoring_to_run(store, ended, f"{strict.url}#j", Limits(concurrency=1, max_total_tokens=300))
            assert 0 < strict.count < 10
            return list_outcomes(store, run)

    after = run_with_server(use)
    assert len(after) == 10
    assert {*after} == {"passed"} or after.count("passed") + after.count("failed") == 10, "none is errored"


def test_a_failed_start_creates_no_run(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    async def use(server: Loopback, store: Store) -> tuple[list[Run], Run]:
        first = await execute(store, create_run_of(store, suite, f"{server.url}#m"), Limits())
        with pytest.raises(AuthenticationFailed, match="set OPENAI_API_KEY"):
            await execute(store, create_run_of(store, suite, "gpt-5"), Limits())
        return store.runs.read_page()[0], first

    runs, first = run_with_server(use)
    assert [(run.id, run.status) for run in runs] == [(first.id, "finished")]


def test_a_failed_resume_leaves_the_run_unchanged(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    async def use(server: Loopback, store: Store) -> tuple[Run, Run, Run]:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        stop = Stop()
        stop("at once")
        first = await execute(store, create_run_of(store, suite, "gpt-5"), Limits(), stop=stop)
        monkeypatch.delenv("OPENAI_API_KEY")
        with pytest.raises(AuthenticationFailed, match="set OPENAI_API_KEY"):
            await execute(store, first, Limits())
        left = store.runs.read(first.id)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        return first, left, await execute(store, left, Limits())

    first, left, ended = run_with_server(use)
    assert (first.status, first.stored, left.status) == ("stopped", 0, "stopped")
    assert "needs an API key" in str(left.reason)
    assert (ended.status, ended.stored) == ("finished", 10)


@pytest.mark.parametrize("fault", [Fault("rate_limited", retry_after="86400"), Fault("overloaded")])
def test_an_interrupted_retry_is_sent_again_on_resume(suite: Path, fault: Fault) -> None:
    async def use(server: Loopback, store: Store) -> tuple[Run, Run, list[str]]:
        stop = Stop()
        run = create_run_of(store, suite, f"{server.url}#m")
        asyncio.get_running_loop().call_later(0.08, stop, INTERRUPTED_BY_USER_REASON)
        first = await execute(store, run, Limits(concurrency=8), stop=stop)
        server.faults = ()
        ended = await execute(store, store.runs.read(run.id), Limits(concurrency=8))
        return first, ended, list_outcomes(store, run)

    first, ended, found = run_with_server(use, faults=[fault], latency_s=0.05)
    assert first.status in ("stopped", "interrupted")
    assert (ended.status, found) == ("finished", ["passed"] * 10)


def test_a_function_that_cancels_itself_errors_its_case(
    tmp_path: Path, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "import asyncio\nasync def say(prompt):\n    raise asyncio.CancelledError\n"
    (tmp_path / "cancelling.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))

    async def use(_: Loopback, store: Store) -> tuple[Run, list[str]]:
        run = create_run_of(store, suite, "python:cancelling:say")
        return await execute(store, run, Limits()), list_outcomes(store, run)

    ended, found = run_with_server(use)
    assert (ended.status, found) == ("finished", ["errored"] * 10)


def test_rescoring_offline_checks_needs_no_key(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)

    async def use(server: Loopback, store: Store) -> list[str]:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        run = await execute(store, create_run_of(store, suite, "gpt-5"), Limits())
        monkeypatch.delenv("OPENAI_API_KEY")
        assert await add_scoring_to_run(store, run, None, Limits()) == 1
        return list_outcomes(store, run)

    assert run_with_server(use) == ["passed"] * 10


def test_a_run_that_crashed_records_the_error_and_can_be_resumed(suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> tuple[Run, Run]:
        run = create_run_of(store, suite, f"{server.url}#m")

        def raise_error(_: Progress) -> None:
            raise RuntimeError("the watcher broke")

        with pytest.raises(RuntimeError):
            await execute(store, run, Limits(concurrency=1), raise_error)
        broken = store.runs.read(run.id)
        return broken, await execute(store, broken, Limits(concurrency=1))

    broken, ended = run_with_server(use)
    assert (broken.status, "RuntimeError" in str(broken.reason)) == ("stopped", True)
    assert (ended.status, ended.stored) == ("finished", 10)


def test_resuming_appends_to_the_notes_of_a_run(suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> tuple[Run, Run]:
        run = create_run_of(store, suite, f"{server.url}#m")
        first = await execute(store, run, Limits(concurrency=1, max_total_tokens=30))
        return first, await execute(store, first, Limits(concurrency=1))

    first, ended = run_with_server(use, script={0: Fault("parameter", parameter="seed")})
    assert (first.status, ended.status, ended.stored) == ("stopped", "finished", 10)
    assert [*ended.notes["left_out"].values()] == [["seed"]]
    assert len(ended.notes["sittings"]) == 2


def test_parameters_dropped_by_a_function_mark_the_run(
    tmp_path: Path, suite: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "from pramana import Reply\ndef say(prompt):\n    return Reply('so ' + prompt, dropped=('temperature',))\n"
    (tmp_path / "parroting.py").write_text(source, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))

    async def use(_: Loopback, store: Store) -> Run:
        return await execute(store, create_run_of(store, suite, "python:parroting:say"), Limits())

    ended = run_with_server(use)
    assert "temperature" in ended.notes["left_out"]["python:parroting:say"]


def test_an_errored_result_is_distinguished_from_a_failed_one(suite: Path) -> None:
    async def use(server: Loopback, store: Store) -> list[str]:
        run = create_run_of(store, suite, f"{server.url}#m")
        await execute(store, run, Limits(concurrency=1))
        return list_outcomes(store, run)

    found = run_with_server(use, script={4: Fault("blocked")})
    assert sorted(found) == [Outcome.ERRORED.value] + [Outcome.PASSED.value] * 9
