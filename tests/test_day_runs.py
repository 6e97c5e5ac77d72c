"""Prompts of instruments beside the cases of a watch: searched, pinned, sent once a day, and never without a budget."""

import asyncio
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import update

from pramana import settings
from pramana.analyse.border_prompts import rank_by_expected_shift_above_noise
from pramana.analyse.instruments import DayFeatures, PromptDay
from pramana.app.watches import WatchDetailView, list_watches, read_watch, start_watch
from pramana.border_search import choose_border_prompts, find_border_prompts
from pramana.day_runs import (
    DAILY_ANSWER_CALLS,
    LOGPROB_PROMPT_COUNT,
    MAX_PINNED_PROMPTS,
    SEARCH_CALLS,
    find_pinned_prompts,
    read_pinned_prompts,
)
from pramana.errors import InvalidInput
from pramana.hash import hash_case
from pramana.model import Case, Reply, Result, ResultKey, Usage
from pramana.providers import logprobs as provider_logprobs
from pramana.providers.accounts import PassedFunctions
from pramana.report.watches import render_started
from pramana.request import Limits, RunRequest
from pramana.run.accounts import ProviderAccess
from pramana.run.engine import INTERRUPTED_BY_USER_REASON, Stop
from pramana.store import open_store
from pramana.store.schema import watch_periods
from pramana.store.store import Store
from pramana.watch_request import WatchRequest
from pramana.watching import decode_features, measure_day

from .loopback.openai import OpenAIWire
from .loopback.server import Loopback
from .test_watching import CASES, Bench, DayClock, make_cases
from .test_watching import days as days  # noqa: PLC0414 - fixtures
from .test_watching import store as store  # noqa: PLC0414

BORDERS = ("pass_rate", "answers")


def purposes(bench: Bench) -> list[str]:
    return [each.purpose for each in bench.store.watches.list_runs(bench.watch)]


def read_prompts(bench: Bench, day: str, variant: str) -> tuple[PromptDay, ...]:
    found = bench.store.watches.find_day(bench.watch, day)
    assert found is not None
    return tuple(each for each in decode_features(found.features_json).prompts if each.variant == variant)


def set_basis(bench: Bench, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    (period,) = bench.store.watches.list_periods(bench.watch)
    changed = json.dumps(change(dict(period.basis or {})))
    with bench.store.watches._database.write_transaction() as connection:
        connection.execute(update(watch_periods), {"basis": changed})


# ── Border prompts ──


def test_border_prompts_are_searched_once_and_the_same_are_sent_every_day(store: Store, days: DayClock) -> None:
    bench = Bench(store, days, instruments=BORDERS, budget_usd_per_day=100.0, concurrency=1)
    day = bench.measure(0).day
    assert (day.status, day.planned, day.answered) == ("measured", CASES, CASES)
    assert purposes(bench) == ["batch", "search", "answers"]
    search = store.runs.read(store.watches.list_runs(bench.watch)[1].run_id)
    assert search.status == "finished"
    assert search.stored <= SEARCH_CALLS
    first = read_prompts(bench, "2026-03-01", "border")
    assert len(first) == MAX_PINNED_PROMPTS
    assert {sum(each.answers.values()) for each in first} == {DAILY_ANSWER_CALLS // MAX_PINNED_PROMPTS}
    assert bench.model.calls == CASES + search.stored + DAILY_ANSWER_CALLS
    store.runs.delete(search.id)
    bench.model.calls = 0
    bench.measure(1)
    assert bench.model.calls == CASES + DAILY_ANSWER_CALLS
    assert purposes(bench)[-2:] == ["batch", "answers"]
    assert [each.case for each in read_prompts(bench, "2026-03-02", "border")] == [each.case for each in first]
    assert [each.collected_days for each in bench.view.findings] == [2, 2, 2]


def test_an_interrupted_search_is_continued_and_sends_nothing_twice(store: Store, days: DayClock) -> None:
    whole = Bench(store, days, instruments=BORDERS, concurrency=1, name="whole")
    whole.measure(0)
    bench = Bench(store, days, instruments=BORDERS, concurrency=1, name="interrupted")
    for number in (CASES + 3, CASES + 60, CASES + SEARCH_CALLS + 5):
        stop = Stop()

        def interrupt(calls: int, number: int = number, stop: Stop = stop) -> None:
            if calls == number:
                stop(INTERRUPTED_BY_USER_REASON)

        bench.model.on_call = interrupt
        assert bench.measure(0, stop).day.status == "measuring"
    assert bench.measure(0).day.status == "measured"
    assert purposes(bench) == ["batch", "search", "answers"]
    assert bench.model.calls == whole.model.calls
    assert len(read_prompts(bench, "2026-03-01", "border")) == MAX_PINNED_PROMPTS


def test_a_search_that_is_deleted_before_its_day_ends_is_not_repeated(store: Store, days: DayClock) -> None:
    bench, stop = Bench(store, days, instruments=BORDERS, concurrency=1), Stop()
    bench.model.on_call = lambda calls: stop(INTERRUPTED_BY_USER_REASON) if calls == CASES + SEARCH_CALLS + 9 else None
    assert bench.measure(0, stop).day.status == "measuring"
    _, search, answers = store.watches.list_runs(bench.watch)
    store.runs.delete(search.run_id)
    bench.measure(0)
    bench.measure(1)
    assert purposes(bench) == ["batch", "answers", "batch", "answers"]
    assert store.watches.list_runs(bench.watch)[1] == answers
    first, second = (
        [(each.case, each.planned) for each in read_prompts(bench, f"2026-03-0{day}", "border")] for day in (1, 2)
    )
    assert len(first) == MAX_PINNED_PROMPTS
    assert first == second


def test_a_model_that_always_answers_the_same_has_no_border_prompts_and_is_watched_without(
    store: Store, days: DayClock
) -> None:
    bench = Bench(store, days, instruments=BORDERS)
    bench.model.pass_rate = 1.0  # always yes
    bench.measure(0)
    sent = bench.model.calls
    assert sent <= CASES + SEARCH_CALLS
    for number in range(1, 16):
        bench.measure(number)
    assert bench.model.calls == sent + 15 * CASES
    pinned = read_pinned_prompts(store.watches.list_periods(bench.watch)[0].basis)
    assert pinned is not None
    assert (pinned.cases, pinned.search_calls, pinned.search_day) == ((), sent - CASES, "2026-03-01")
    view = bench.view
    assert view.level == "quiet"
    (note,) = [each.note for each in view.findings if each.name == "answers"]
    assert note == (
        f"No border prompt was found in {sent - CASES} calls on 2026-03-01: the answers were always the same, or "
        "empty. The watch goes on without this instrument."
    )


def test_a_watch_whose_only_instrument_found_nothing_to_measure_says_so_and_what_to_do(
    store: Store, days: DayClock
) -> None:
    bench = Bench(store, days, instruments=("answers",))
    assert bench.view.sentence.startswith("Collecting the baseline")
    bench.model.pass_rate = 1.0  # always yes
    bench.measure(0)
    bench.measure(1)
    view = bench.view
    assert (view.level, view.findings[0].level) == ("cannot_tell", "collecting")
    assert view.sentence == (
        "Nothing can be measured: the only instrument, answers, found nothing to measure on this model. Stop this "
        "watch, and start one with other instruments, such as pass-rate and length."
    )
    assert (view.findings[0].note or "").endswith("the answers were always the same, or empty.")
    assert list_watches(store)[0].sentence == view.sentence


def test_a_search_without_any_answer_decides_nothing(store: Store, days: DayClock) -> None:
    bench = Bench(store, days, instruments=BORDERS, concurrency=1)

    def fail_after_the_cases(calls: int) -> None:
        if calls > CASES:
            raise ValueError("down")

    bench.model.on_call = fail_after_the_cases
    assert bench.measure(0).day.status == "measured"
    assert purposes(bench) == ["batch", "search"]
    bench.model.on_call = lambda _: None
    bench.measure(1)
    assert purposes(bench)[2:] == ["batch", "search", "answers"]
    assert bench.view.findings[-1].collected_days == 1


def test_a_budget_that_ends_the_search_leaves_it_for_the_next_day(store: Store, days: DayClock) -> None:
    bench = Bench(store, days, instruments=BORDERS, concurrency=1, budget_usd_per_day=1.0)
    bench.model.cost_usd = 1 / 32
    day = bench.measure(0).day
    assert (day.status, bench.model.calls) == ("measured", 32)
    assert find_pinned_prompts(store, bench.watch, day.day) is None
    bench.model.cost_usd, bench.model.calls = 1 / 512, 0
    bench.measure(1)
    assert purposes(bench) == ["batch", "search", "batch", "search", "answers"]
    assert len(read_prompts(bench, "2026-03-02", "border")) == MAX_PINNED_PROMPTS
    bench.model.cost_usd, bench.model.calls = 1 / 16, 0  # the cases use up the budget
    assert bench.measure(2).day.answered == 16
    assert (bench.model.calls, read_prompts(bench, "2026-03-03", "border")) == (16, ())


def test_a_search_that_budgets_end_is_continued_every_day_until_it_has_its_prompts(
    store: Store, days: DayClock
) -> None:
    """20 test cases and 108 calls of the search fit into a day's budget: the search takes two days, not all of them."""
    bench = Bench(store, days, instruments=BORDERS, concurrency=1, budget_usd_per_day=1.0)
    bench.model.cost_usd = 1 / 128
    bench.measure_until(5)
    searches = [
        store.runs.read(each.run_id) for each in store.watches.list_runs(bench.watch) if each.purpose == "search"
    ]
    first, second = searches
    assert (first.stored, SEARCH_CALLS - 8 < first.stored + second.stored <= SEARCH_CALLS) == (108, True)
    keys = [result.key for run in searches for _, result in store.results.iterate(run)]
    assert len(set(keys)) == len(keys), "a call of an earlier day was sent again"
    assert second.plan.search is not None
    assert second.plan.search.earlier_runs == (first.id,)
    pinned = find_pinned_prompts(store, bench.watch, "2026-03-05")
    assert pinned is not None
    assert len(pinned.cases) == MAX_PINNED_PROMPTS
    assert [each.collected_days for each in bench.view.findings if each.name == "answers"] == [4]


def test_a_search_over_days_sends_failed_calls_again_and_forgets_deleted_runs(store: Store, days: DayClock) -> None:
    bench = Bench(store, days, instruments=BORDERS, concurrency=1, budget_usd_per_day=1.0)
    bench.model.cost_usd = 1 / 64
    bench.measure(0)

    def fail_after_the_cases(calls: int) -> None:
        if calls > CASES:
            raise ValueError("down")

    bench.model.calls, bench.model.on_call = 0, fail_after_the_cases
    bench.measure(1)
    assert find_pinned_prompts(store, bench.watch, "2026-03-02") is None, "an outage decides nothing"
    bench.model.on_call = lambda _: None
    store.runs.delete(store.watches.list_runs(bench.watch, "2026-03-01")[1].run_id)
    bench.model.cost_usd = 0.0
    bench.measure(2)
    assert len(read_prompts(bench, "2026-03-03", "border")) == MAX_PINNED_PROMPTS


def test_a_search_over_days_that_finds_nothing_is_pinned_with_its_days(store: Store, days: DayClock) -> None:
    bench = Bench(store, days, instruments=BORDERS, concurrency=1, budget_usd_per_day=1.0)
    bench.model.pass_rate, bench.model.cost_usd = 1.0, 1 / 64
    bench.measure_until(6)
    pinned = find_pinned_prompts(store, bench.watch, "2026-03-06")
    assert pinned is not None
    assert (pinned.cases, pinned.search_began, pinned.search_day) == ((), "2026-03-01", "2026-03-04")
    assert bench.model.calls == 6 * CASES + pinned.search_calls <= 6 * CASES + SEARCH_CALLS
    (note,) = [each.note for each in bench.view.findings if each.name == "answers"]
    assert note is not None
    assert f"No border prompt was found in {pinned.search_calls} calls from 2026-03-01 to 2026-03-04:" in note


def test_an_unfinished_search_is_reported(store: Store, days: DayClock) -> None:
    bench = Bench(store, days, instruments=BORDERS, concurrency=1, budget_usd_per_day=1.0)
    bench.model.cost_usd = 1 / 128
    bench.measure(0)
    (note,) = [each.note for each in bench.view.findings if each.name == "answers"]
    assert note == (
        "Its prompts are not found yet: the budget of a day ended the search after 108 of at most 192 calls. The next "
        "day continues it."
    )
    cases, answers = bench.view.calls
    assert (cases.calls, answers.calls, answers.first_day_calls, answers.first_day_cost_usd) == (
        CASES,
        0,
        108,
        108 / 128,
    )
    assert "answers (and 108 more, $0.8438, to find its prompts)" in " ".join(render_started(bench.view).split())
    assert bench.view.calls_per_day == CASES + 108
    bench.measure(1)
    assert [each.note for each in bench.view.findings] == [None] * 3
    assert bench.view.calls[1].first_day_calls > 0
    bench.measure(2)
    assert bench.view.calls[1].first_day_calls == 0


def test_logprobs_do_not_wait_for_the_end_of_a_search(bench: Bench) -> None:
    run = replace(bench.watch.request, limits=Limits(concurrency=1))
    request = WatchRequest(run=run, instruments=("answers", "logprobs"), baseline_days=14, budget_usd_per_day=1.0)
    bench.watch = bench.store.watches.read(start_watch(bench.store, request, bench.reach).id)
    bench.model.cost_usd = 1 / 64
    bench.measure(0)
    assert purposes(bench) == ["batch", "logprobs", "search"]
    assert len(read_prompts(bench, "2026-03-01", "logprobs")) == LOGPROB_PROMPT_COUNT


def test_a_period_that_began_with_the_fixed_set_keeps_it(store: Store, days: DayClock) -> None:
    bench = Bench(store, days, instruments=BORDERS)
    bench.measure(0)
    set_basis(bench, lambda basis: {name: each for name, each in basis.items() if "border" not in name})
    pinned = find_pinned_prompts(store, bench.watch, "2026-03-02")
    assert pinned is not None
    assert (len(pinned.cases), pinned.repeats, pinned.max_answer_tokens) == (24, 8, 16)
    bench.model.calls = 0
    assert bench.measure(1).day.period == 1
    assert bench.model.calls == CASES + 24 * 8
    store.watches.accept(bench.watch)
    bench.measure(2)
    assert purposes(bench)[-3:] == ["batch", "search", "answers"], "a new baseline begins with a search"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_killed_after_any_commit_of_the_search_loses_and_doubles_nothing(
    store: Store, days: DayClock, tmp_path: Path
) -> None:
    bench = Bench(store, days, concurrency=4, instruments=BORDERS)
    calls, kills, sittings = tmp_path / "calls", 0, []
    calls.touch()
    while True:
        stored, sent = _count_stored(bench), calls.stat().st_size
        child = os.fork()
        if child == 0:
            _measure_until_killed(bench, 2 + kills % 2, calls)
        _, status = os.waitpid(child, 0)
        sittings.append((stored, calls.stat().st_size - sent))
        if os.waitstatus_to_exitcode(status) == 0:
            break
        assert os.waitstatus_to_exitcode(status) == 9
        kills += 1
    assert kills >= 8
    assert purposes(bench) == ["batch", "search", "answers"]
    (day,) = store.watches.list_days(bench.watch)
    assert (day.status, day.answered) == ("measured", CASES)
    complete = _count_stored(bench)
    assert CASES + DAILY_ANSWER_CALLS < complete <= CASES + SEARCH_CALLS + DAILY_ANSWER_CALLS
    for stored, sent in sittings:
        assert sent <= complete - stored, "a stored call was sent again"
    answers = [sum(each.answers.values()) for each in read_prompts(bench, "2026-03-01", "border")]
    assert answers == [DAILY_ANSWER_CALLS // MAX_PINNED_PROMPTS] * MAX_PINNED_PROMPTS


def _count_stored(bench: Bench) -> int:
    return sum(bench.store.runs.read(each.run_id).stored for each in bench.store.watches.list_runs(bench.watch))


def _measure_until_killed(bench: Bench, commits: int, calls: Path) -> None:
    """Measure a day in a forked process, and end it without cleaning up after a number of commits."""
    left = [commits]

    def count_commit() -> None:
        left[0] -= 1
        if left[0] == 0:
            os._exit(9)

    def count_call(_: int) -> None:
        with calls.open("ab") as file:
            file.write(b".")

    code = 1
    try:
        own = open_store(settings.database_url())
        own.on_commit(count_commit)
        bench.model.on_call = count_call
        asyncio.run(measure_day(own, bench.watch, reach=bench.reach))
        code = 0
    finally:
        os._exit(code)


def test_stored_results_choose_the_prompts_that_the_search_found() -> None:
    for seed in range(20):
        rng, results = random.Random(seed), list[Result]()

        async def send(case: Case, repeat: int, parameters: Any, rng: random.Random = rng, seed: int = seed) -> Any:
            shortest = 16 if seed % 3 == 0 else 1
            text = rng.choice("ab"[: 1 + int(case.id[-1]) % 2]) if parameters["max_tokens"] >= shortest else ""
            reply = None if rng.random() < 0.05 else Reply(text)
            key = ResultKey(hash_case(case), "m", "text", repeat)
            results.append(Result(key, case.id, reply, None, (), None, None))  # noqa: B023
            return reply

        found = asyncio.run(
            find_border_prompts([send], 150, {}, max_prompts=4, rank=rank_by_expected_shift_above_noise)
        )
        chosen = choose_border_prompts(results, 4)
        assert chosen is not None
        assert (chosen.cases, chosen.search_calls) == (found.cases, found.calls)
        assert not found.cases or chosen.max_answer_tokens == found.parameters["max_tokens"]
    assert choose_border_prompts([], 4) is None


@pytest.mark.usefixtures("days")
def test_a_server_searches_and_sends_border_prompts_within_its_own_limits(store: Store) -> None:
    reach = ProviderAccess(is_for_other_users=True)
    run = RunRequest(models=("fake",), suite="v1.0", tier="cheap", limits=Limits(concurrency=3))
    view = start_watch(store, WatchRequest(run=run, instruments=("answers",), budget_usd_per_day=1.0), reach)
    watch = store.watches.read(view.id)
    assert asyncio.run(measure_day(store, watch, reach=reach)).day.status == "measured"
    linked = store.watches.list_runs(watch)
    assert [each.purpose for each in linked][:2] == ["batch", "search"]
    search = store.runs.read(linked[1].run_id)
    assert (search.owner, search.limits["concurrency"], search.limits["max_cost_usd"]) == ("server", 3, 1.0)
    with pytest.raises(InvalidInput, match="can only be set on the server's machine"):
        start_watch(store, WatchRequest(run=RunRequest(models=("fake",), cases=make_cases(1))), reach)


# ── Calls and cost ──


def test_calls_and_cost_of_each_instrument_are_estimated_and_then_measured(
    store: Store, days: DayClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    run = RunRequest(models=("gpt-4o-mini",), suite="v1.0", tier="cheap")
    view = start_watch(store, WatchRequest(run=run, instruments=("pass_rate", "answers", "logprobs")))
    cases, answers, tokens = view.calls
    assert (cases.title, cases.instruments) == ("test cases", ("pass_rate_down", "pass_rate_up"))
    assert (answers.calls, answers.first_day_calls, tokens.calls) == (
        DAILY_ANSWER_CALLS,
        SEARCH_CALLS,
        LOGPROB_PROMPT_COUNT,
    )
    for each in (cases.cost_usd, answers.cost_usd, answers.first_day_cost_usd, tokens.cost_usd):
        assert each is not None
        assert 0 < each < 0.05
    shown = render_started(view)
    assert max(map(len, shown.splitlines())) <= 80
    assert "  192 calls, about $0.0124: answers (on the first day up to 192 more" in shown
    assert f"  8 calls, about ${tokens.cost_usd:.4f}: logprobs" in shown

    bench = Bench(store, days, instruments=BORDERS)
    assert [(each.calls, each.cost_usd) for each in bench.view.calls] == [(CASES, None), (192, None)]
    assert f"  {CASES} calls, price unknown: pass rate" in render_started(bench.view)
    bench.model.cost_usd = 0.25
    bench.measure(0)
    cases, answers = bench.view.calls
    assert (cases.calls, cases.cost_usd, cases.is_estimate) == (CASES, CASES / 4, False)
    assert (answers.calls, answers.cost_usd) == (DAILY_ANSWER_CALLS, DAILY_ANSWER_CALLS / 4)
    sent = bench.model.calls
    assert bench.view.calls_per_day == sent == CASES + answers.first_day_calls + DAILY_ANSWER_CALLS
    assert list_watches(store)[0].calls_per_day == sent
    store.runs.delete(store.watches.list_runs(bench.watch)[2].run_id)
    cases, answers = bench.view.calls
    assert (cases.calls, answers.calls, answers.cost_usd, answers.is_estimate) == (CASES, None, None, False)
    after = bench.view
    assert (after.calls_per_day, after.last_day_cost_usd) == (None, None)
    assert list_watches(store)[0].calls_per_day is None
    assert "unknown (a run of the last day was deleted): answers" in " ".join(render_started(bench.view).split())


def test_a_budget_below_the_cost_of_a_day_and_its_search_is_warned_of(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    run = RunRequest(models=("gpt-4o-mini",), suite="v1.0", tier="cheap")

    def start(instruments: tuple[str, ...], budget: float | None) -> WatchDetailView:
        request = WatchRequest(run=run, instruments=instruments, budget_usd_per_day=budget)
        return start_watch(store, request)

    both = ("pass_rate", "answers", "logprobs")
    cases, answers, tokens = (each.cost_usd or 0.0 for each in start(both, None).calls)
    search = start(both, None).calls[1].first_day_cost_usd or 0.0
    daily, first = cases + answers + tokens, cases + tokens + search
    assert daily < first, "else there is no budget between them"
    assert start(both, None).warnings == start(both, 1.001 * first).warnings == ()
    assert start(("pass_rate",), 1.001 * cases).warnings == ()
    (warning,) = start(both, (daily + first) / 2).warnings
    assert "With the budget of" in warning
    assert "the search takes about 2 days" in warning
    (warning,) = start(both, 0.999 * daily).warnings
    assert warning.startswith("A day costs about")
    (warning,) = start(both, 0.9 * cases).warnings
    assert warning.startswith("The test cases of a day cost about")
    assert max(map(len, render_started(start(both, 0.9 * cases)).splitlines())) <= 80


def test_calls_of_cases_whose_file_is_gone_are_unknown(store: Store, tmp_path: Path) -> None:
    suite = tmp_path / "suite.jsonl"
    suite.write_text(
        '{"id": "a", "input": "question", "ideal": "yes", "category": "factual", "assertion": {"type": "contains"}, '
        '"metadata": {"difficulty": "easy", "tokens_est": 9}}\n',
        encoding="utf-8",
    )
    view = start_watch(store, WatchRequest(run=RunRequest(models=("fake",), paths=(suite,)), instruments=("length",)))
    assert [(each.calls, each.cost_usd) for each in view.calls] == [(1, 0.0)]
    suite.unlink()
    gone = read_watch(store, store.watches.read(view.id))
    assert [(each.calls, each.cost_usd) for each in gone.calls] == [(None, None)]
    assert "unknown (the cases or the model cannot be read here): length" in render_started(gone)


# ── Logprobs ──


class TokenModel:
    """A function whose replies have logprobs, as an endpoint with noise sends them."""

    def __init__(self) -> None:
        self.shift, self.noise, self.has_logprobs, self.calls = 0.0, 0.01, True, 0
        self.cost_usd: float | None = None
        self._rng = random.Random(4)

    def __call__(self, _: str) -> Reply:
        self.calls += 1
        listed = [
            {"token": token, "logprob": -0.5 - number + self._rng.gauss(0, self.noise) + (self.shift if number else 0)}
            for number, token in enumerate(("yes", "no", "maybe", "never", "always"))
        ]
        content = [{**listed[0], "top_logprobs": listed}]
        choice = {"message": {"content": "yes"}, **({"logprobs": {"content": content}} if self.has_logprobs else {})}
        return Reply("yes", Usage(1, 1), cost_usd=self.cost_usd, raw=json.dumps({"choices": [choice]}).encode())


@pytest.fixture
def bench(store: Store, days: DayClock, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A watch of the logprobs of a function: the table of providers with logprobs is the only thing replaced."""
    monkeypatch.setitem(provider_logprobs._PARAMETERS, "python", {"logprobs": True, "top_logprobs": 5})
    made = Bench(store, days, instruments=("pass_rate_down", "logprobs"))
    model = TokenModel()
    made.model = model  # type: ignore[assignment]
    made.reach = ProviderAccess(passed_functions=PassedFunctions({"tests:model": model}))
    return made


def test_shifted_logprobs_lead_to_an_alarm_for_eight_calls_a_day(bench: Bench) -> None:
    levels = []
    for number in range(35):
        bench.model.shift = 0.2 if number >= 27 else 0.0  # type: ignore[attr-defined]
        bench.measure(number)
        levels.append(bench.view.level)
    assert bench.model.calls == 35 * (CASES + LOGPROB_PROMPT_COUNT)
    assert set(levels[21:27]) == {"quiet"}
    assert levels[-1] == "alarm"
    (finding,) = [each for each in bench.view.findings if each.name == "logprobs"]
    assert (finding.level, finding.first_day, finding.needed_days) == ("alarm", "2026-03-28", 21)
    assert "the logprobs of first tokens shifted" in bench.view.sentence
    assert read_prompts(bench, "2026-03-01", "logprobs")[0].logprobs.keys() == {"yes", "no", "maybe", "never", "always"}


def test_logprobs_are_requested_once_of_an_endpoint_that_sends_none(bench: Bench) -> None:
    bench.model.has_logprobs = False  # type: ignore[attr-defined]
    bench.measure(0)
    assert bench.model.calls == CASES + LOGPROB_PROMPT_COUNT
    bench.measure(1)
    assert bench.model.calls == 2 * CASES + LOGPROB_PROMPT_COUNT
    (finding,) = [each for each in bench.view.findings if each.name == "logprobs"]
    assert finding.note == "The endpoint sent no logprobs. The watch goes on without this instrument."


@pytest.mark.usefixtures("days")
def test_a_request_for_logprobs_has_the_parameters_of_its_provider(store: Store) -> None:
    async def go() -> list[Any]:
        async with Loopback(OpenAIWire("yes")) as server:
            run = RunRequest(models=(f"{server.url}#m",), suite="v1.0", tier="cheap")
            view = start_watch(store, WatchRequest(run=run, instruments=("length", "logprobs")))
            await measure_day(store, store.watches.read(view.id))
            return [each.body for each in server.requests]

    asked = [each for each in asyncio.run(go()) if each.get("logprobs")]
    assert len(asked) == LOGPROB_PROMPT_COUNT
    assert {(each["top_logprobs"], each["temperature"], each.get("max_tokens", 1)) for each in asked} == {(5, 1.0, 1)}
    (watch,) = store.watches.list_all()
    assert [each.name for each in read_watch(store, watch).findings if each.note] == ["logprobs"]


def test_prompts_of_their_own_are_refused_where_they_cannot_be_sent(store: Store) -> None:
    for model, instrument, message in (
        ("fake-voice", "answers", "the prompts of answers are sent as text"),
        ("fake-voice", "logprobs", "the prompts of logprobs are sent as text"),
        ("fake", "logprobs", "no logprobs can be requested from the provider fake"),
    ):
        run = RunRequest(models=(model,), paths=(Path("library:"),) if "voice" in model else (), tier=None)
        run = run if run.paths else RunRequest(models=(model,), suite="v1.0", tier="cheap")
        with pytest.raises(InvalidInput, match=f"instruments: {message}"):
            start_watch(store, WatchRequest(run=run, instruments=(instrument,)))


def test_features_of_older_days_have_no_logprobs() -> None:
    stored = '{"prompts":[{"case":"a","case_id":"a","variant":"border","answers":{"x":3}}]}'
    assert decode_features(stored) == DayFeatures((PromptDay("a", "a", "border", answers={"x": 3}),))
