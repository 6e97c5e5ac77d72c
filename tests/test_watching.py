"""A watch over virtual days: every day once, within its budget, and an alarm with the right first day."""

import asyncio
import os
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pramana import clock, settings
from pramana.app.watches import WatchDetailView, choose_instruments, read_watch, start_watch
from pramana.errors import AlreadyRunning, InvalidInput, NotFound, StateConflict
from pramana.load.rows import make_case
from pramana.model import Case, Plan, Reply, Target, Usage
from pramana.providers.accounts import PassedFunctions
from pramana.providers.prices import Rates
from pramana.request import Limits, RunRequest, Selection, request_from_plain, request_to_plain
from pramana.run.accounts import ProviderAccess
from pramana.run.engine import INTERRUPTED_BY_USER_REASON, Stop
from pramana.store import open_store
from pramana.store.store import Store
from pramana.watch_request import WatchRequest
from pramana.watching import DayMeasurement, explain_new_period, measure_day

from .stores import home_store

FIRST_DAY = datetime(2026, 3, 1, 3, tzinfo=UTC)
CASES = 20


class DayClock(clock.Clock):
    """A clock whose date is set by the test; durations are real."""

    def __init__(self) -> None:
        self.moment = FIRST_DAY

    def now(self) -> datetime:
        return self.moment

    def begin_day(self, number: int) -> None:
        self.moment = FIRST_DAY + timedelta(days=number)


@pytest.fixture
def days() -> Iterator[DayClock]:
    virtual = DayClock()
    with clock.use_clock(virtual):
        yield virtual


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(open_store(home_store())) as opened:
        yield opened


def make_cases(count: int = CASES) -> tuple[Case, ...]:
    return tuple(make_case(f"question {number}", ideal="yes", id=f"q{number}") for number in range(count))


class Model:
    """A model whose pass rate and price a test sets."""

    def __init__(self, seed: int = 1) -> None:
        self.pass_rate, self.calls = 0.9, 0
        self.cost_usd: float | None = 0.0
        self.on_call: Callable[[int], object] = lambda _: None
        self._random = random.Random(seed)

    def __call__(self, prompt: str) -> Reply:
        self.calls += 1
        self.on_call(self.calls)
        text = "yes" if self._random.random() < self.pass_rate else f"no to {prompt}"
        return Reply(text, Usage(1, 1), served_model="house-1", cost_usd=self.cost_usd)


class Bench:
    """A watch of a model, and what measures its days."""

    def __init__(self, store: Store, days: DayClock, *, concurrency: int = 32, **given: Any) -> None:
        self.store, self.days, self.model = store, days, Model()
        self.reach = ProviderAccess(passed_functions=PassedFunctions({"tests:model": self.model}))
        run = RunRequest(models=("python:tests:model",), cases=make_cases(), limits=Limits(concurrency=concurrency))
        options = {"run": run, "baseline_days": 14, "instruments": ("pass_rate",), **given}
        self.watch = store.watches.read(start_watch(store, WatchRequest(**options), self.reach).id)

    def measure(self, number: int, stop: Stop | None = None) -> DayMeasurement:
        self.days.begin_day(number)
        return asyncio.run(measure_day(self.store, self.watch, reach=self.reach, stop=stop))

    def measure_until(self, number: int) -> None:
        for each in range(number):
            self.measure(each)

    @property
    def view(self) -> WatchDetailView:
        return read_watch(self.store, self.watch)


def test_a_drop_of_the_pass_rate_leads_to_a_notice_and_an_alarm_with_its_first_day(
    store: Store, days: DayClock
) -> None:
    bench, levels = Bench(store, days), []
    for number in range(28):
        bench.model.pass_rate = 0.9 if number < 20 else 0.4
        bench.measure(number)
        levels.append(bench.view.level)
    assert levels[:14] == ["collecting"] * 14
    assert set(levels[14:20]) == {"quiet"}
    assert levels[-1] == "alarm"
    assert levels.index("notice") < levels.index("alarm")
    view = bench.view
    assert view.sentence.startswith("Alarm since 2026-03-2")
    assert "the pass rate fell" in view.sentence
    (finding,) = [each for each in view.findings if each.level == "alarm"]
    assert finding.first_day == "2026-03-21"
    assert [each.level for each in view.alerts] == ["notice", "alarm"]
    assert view.alerts[0].day < view.alerts[1].day
    assert bench.model.calls == 28 * CASES


def test_a_day_is_measured_once(store: Store, days: DayClock) -> None:
    bench = Bench(store, days)
    first, again = bench.measure(0), bench.measure(0)
    assert (bench.model.calls, again.run, again.day) == (CASES, None, first.day)
    assert first.day.status == "measured"
    assert len(store.watches.list_runs(bench.watch)) == 1


def test_an_interrupted_day_is_continued(store: Store, days: DayClock) -> None:
    bench, stop = Bench(store, days, concurrency=1), Stop()
    bench.model.on_call = lambda calls: stop(INTERRUPTED_BY_USER_REASON) if calls == 5 else None
    halted = bench.measure(0, stop)
    assert (halted.day.status, halted.run and halted.run.status) == ("measuring", "interrupted")
    done = bench.measure(0)
    assert (done.day.status, done.day.answered, bench.model.calls) == ("measured", CASES, CASES)
    assert len(store.watches.list_runs(bench.watch)) == 1


def test_a_day_that_was_never_continued_is_ended_by_the_next(store: Store, days: DayClock) -> None:
    bench, stop = Bench(store, days, concurrency=1), Stop()
    bench.model.on_call = lambda calls: stop(INTERRUPTED_BY_USER_REASON) if calls in (5, 43) else None
    bench.measure(0, stop)
    bench.measure(1)
    halted = Stop()
    bench.model.on_call = lambda calls: halted(INTERRUPTED_BY_USER_REASON) if calls == 43 else None
    bench.measure(2, halted)
    bench.measure(4)
    first, second, third, fourth = bench.view.days
    assert (first.status, first.answered, first.day) == ("missing", 5, "2026-03-01")
    assert first.reason is not None
    assert "5 of 20 calls were answered, fewer than 80 %" in first.reason
    assert (second.status, third.status, third.answered) == ("measured", "measured", 18)
    assert (fourth.status, fourth.day) == ("measured", "2026-03-05")
    assert bench.view.measured_days == 3


def test_a_budget_holds_over_all_sittings_of_a_day(store: Store, days: DayClock) -> None:
    bench, stop = Bench(store, days, concurrency=1, budget_usd_per_day=1.0), Stop()
    bench.model.cost_usd = 0.125
    bench.model.on_call = lambda calls: stop(INTERRUPTED_BY_USER_REASON) if calls == 4 else None
    assert bench.measure(0, stop).day.status == "measuring"
    day = bench.measure(0).day
    assert (day.status, day.answered, bench.model.calls) == ("missing", 8, 8)
    assert day.reason == "8 of 20 calls were answered, fewer than 80 %: the budget of the day was used up"
    assert bench.measure(0).day == day
    bench.model.cost_usd = 0.0625
    assert bench.measure(1).day.status == "measured"  # 16 of 20 calls: the next day has a budget of its own
    assert bench.model.calls == 8 + 16


def test_a_reply_of_unknown_cost_ends_a_day_with_a_budget_and_the_reason_says_so(store: Store, days: DayClock) -> None:
    bench = Bench(store, days, concurrency=1, budget_usd_per_day=1.0)
    bench.model.cost_usd = None
    day = bench.measure(0).day
    assert (day.status, day.answered) == ("missing", 1)
    assert day.reason == (
        "1 of 20 calls were answered, fewer than 80 %: the cost of a reply is unknown, and the day has a budget; set the "
        "price of the model, or let the function state the cost"
    )


def test_a_watch_of_a_function_without_a_price_warns_of_its_budget_when_it_is_started(store: Store) -> None:
    reach = ProviderAccess(passed_functions=PassedFunctions({"tests:model": Model()}))
    run = RunRequest(models=("python:tests:model",), cases=make_cases())
    started = start_watch(store, WatchRequest(run=run, budget_usd_per_day=1.0), reach)
    (warning,) = started.warnings
    assert "the first reply of unknown cost ends the day" in warning
    assert '[prices."python:tests:model"]' in warning
    assert "pramana.Reply(text, cost_usd=0.01)" in warning
    assert start_watch(store, WatchRequest(run=run), reach).warnings == ()
    store.prices.put("python:tests:model", Rates(0, 0.0, 0.0, 0.0))
    assert start_watch(store, WatchRequest(run=run, budget_usd_per_day=1.0), reach).warnings == ()
    store.prices.put("python:tests:model", Rates(0, 1.0, 1.0, 1.0))
    (counted,) = start_watch(store, WatchRequest(run=run, budget_usd_per_day=1.0), reach).warnings
    assert "has a price per token, so the cost of a reply is known only if the function states its tokens" in counted


def test_a_model_that_does_not_answer_leaves_a_missing_day(store: Store, days: DayClock) -> None:
    bench = Bench(store, days)

    def fail(_: int) -> None:
        raise ValueError("down")

    bench.measure(0)
    bench.model.on_call = fail
    missing = bench.measure(1).day
    assert missing.status == "missing"
    assert missing.reason is not None
    assert re.match(r"0 of 20 calls were answered, fewer than 80 %: 20 calls failed with .*down", missing.reason)
    bench.model.on_call = lambda _: None
    bench.measure(2)
    assert [each.status for each in bench.view.days] == ["measured", "missing", "measured"]
    assert bench.view.findings[0].collected_days == 2


def test_two_processes_measure_a_day_once(store: Store, days: DayClock) -> None:
    bench, ready, outcomes = Bench(store, days), threading.Barrier(3), list[str]()

    def check() -> None:
        with closing(open_store(settings.database_url())) as own:
            ready.wait()
            try:
                measured = asyncio.run(measure_day(own, bench.watch, reach=bench.reach))
            except AlreadyRunning:
                outcomes.append("busy")
            else:
                outcomes.append(measured.day.status)

    threads = [threading.Thread(target=check) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert "measured" in outcomes
    assert set(outcomes) <= {"measured", "busy"}
    assert (bench.model.calls, len(store.watches.list_runs(bench.watch))) == (CASES, 1)
    assert bench.measure(0).day.answered == CASES


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_killed_after_any_commit_loses_and_doubles_nothing(
    store: Store, days: DayClock, tmp_path: Path
) -> None:
    bench = Bench(store, days, concurrency=4, instruments=("pass_rate_down",))
    bench.measure_until(22)  # quiet; the next day has an alarm
    bench.model.pass_rate = 0.0
    calls = tmp_path / "calls"
    kills = 0
    for day in range(22, 29):
        commits = kills % 4 + 1
        while True:
            child = os.fork()
            if child == 0:
                _measure_until_killed(bench, day, commits, calls)
            _, status = os.waitpid(child, 0)
            if os.waitstatus_to_exitcode(status) == 0:
                break
            assert os.waitstatus_to_exitcode(status) == 9
            kills, commits = kills + 1, commits + 1
    assert kills >= 10
    view = bench.view
    assert [each.status for each in view.days] == ["measured"] * 29
    assert {each.answered for each in view.days} == {CASES}
    assert len(store.watches.list_runs(bench.watch)) == 29
    assert view.level == "alarm"
    assert [each.level for each in view.alerts] in (["notice", "alarm"], ["alarm"])
    sent = calls.stat().st_size
    assert 7 * CASES <= sent <= 7 * CASES + 4 * kills  # a call in flight when its process was killed is sent again


def _measure_until_killed(bench: Bench, day: int, commits: int, calls: Path) -> None:
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
        bench.days.begin_day(day)
        asyncio.run(measure_day(own, bench.watch, reach=bench.reach))
        code = 0
    finally:
        os._exit(code)


# ── Periods ──


def test_accepting_a_change_begins_a_new_baseline_with_the_next_day(store: Store, days: DayClock) -> None:
    bench = Bench(store, days)
    bench.measure_until(3)
    store.watches.accept(bench.watch, "the vendor announced it")
    accepted = store.watches.accept(bench.watch, "announced")
    assert (accepted.begins, accepted.note, accepted.number) == ("2026-03-04", "announced", 2)
    assert bench.view.measured_days == 3
    bench.measure(3)
    view = bench.view
    assert [each.period for each in view.days] == [1, 1, 1, 2]
    assert (view.measured_days, view.findings[0].collected_days) == (1, 1)
    assert [each.reason for each in view.periods] == ["the watch began", "a new baseline was accepted"]


def test_other_cases_begin_a_new_period_with_the_reason(store: Store, days: DayClock, tmp_path: Path) -> None:
    suite = tmp_path / "suite.jsonl"
    line = '{"id": "a", "input": "question", "ideal": "yes", "category": "factual",'
    line += ' "assertion": {"type": "contains"}, "metadata": {"difficulty": "easy", "tokens_est": 9}}\n'
    suite.write_text(line, encoding="utf-8")
    run = RunRequest(models=("python:tests:model",), paths=(suite,))
    bench = Bench(store, days, run=run)
    bench.measure_until(2)
    suite.write_text(line.replace("question", "another question"), encoding="utf-8")
    bench.measure(2)
    bench.measure(3)
    view = bench.view
    assert [each.period for each in view.days] == [1, 1, 2, 2]
    assert view.periods[1].reason == "the cases changed"
    assert view.findings[0].collected_days == 2


def test_new_periods_name_what_changed() -> None:
    before = {"plan": {"parameters": {"seed": 1}, "targets": ["a"]}, "cases": "x", "checks": {"contains": ["1"]}}
    assert explain_new_period(before, before) is None
    assert explain_new_period(None, before) is None
    changed = {**before, "plan": {"parameters": {"seed": 2}, "targets": ["b"]}}
    assert explain_new_period(before, changed) == "the parameters changed, the model or its address changed"
    prompts = {**before, "border_prompts": {"cases": "y"}, "logprob_prompts": {"cases": "z"}}
    assert explain_new_period(before, prompts) is None
    others = {**prompts, "border_prompts": {"cases": "o"}, "logprob_prompts": {"cases": "o"}}
    assert explain_new_period(prompts, others) == "the border prompts changed, the prompts for logprobs changed"
    versions = {**before, "checks": {"contains": ["2"], "judge": ["1"]}}
    assert explain_new_period(before, versions) == "the check contains has another version"


# ── Wrong input ──


def test_a_stopped_watch_is_not_measured(store: Store, days: DayClock) -> None:
    bench = Bench(store, days)
    bench.measure(0)
    stopped = store.watches.stop(bench.watch)
    assert stopped.stopped is not None
    assert store.watches.stop(bench.watch).stopped == stopped.stopped
    with pytest.raises(StateConflict, match="was stopped on 2026-03-01"):
        bench.measure(1)
    assert bench.model.calls == CASES
    assert len(store.watches.list_days(bench.watch)) == 1


def test_watches_are_found_by_id_beginning_name_or_as_the_only_one(store: Store, days: DayClock) -> None:
    with pytest.raises(NotFound, match="there is no active watch; start one: pramana drift start MODEL"):
        store.watches.find(None)
    one = Bench(store, days, name="Bot").watch
    assert store.watches.find(None).id == store.watches.find("bot").id == store.watches.find(one.id[:20]).id == one.id
    two = Bench(store, days, name="bot").watch
    with pytest.raises(NotFound, match="several watches are named"):
        store.watches.find("BOT")
    with pytest.raises(NotFound, match="there are 2 active watches"):
        store.watches.find(None)
    with pytest.raises(NotFound, match="matches several watches"):
        store.watches.find("w2026")
    for wrong in ("", "nothing", "x" * 5_000, "%"):
        with pytest.raises(NotFound):
            store.watches.find(wrong)
    store.watches.stop(two)
    assert store.watches.find(None).id == one.id


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"baseline_days": 13}, "baseline_days: expected a whole number from 14 to 365, found 13"),
        ({"budget_usd_per_day": 0.0}, "budget_usd_per_day"),
        ({"budget_usd_per_day": float("nan")}, "budget_usd_per_day"),
        ({"at": "25:00"}, "at: expected"),
        ({"instruments": ("length", "mood")}, 'there is no instrument "mood"'),
        ({"instruments": ()}, "no instrument is named"),
        ({"run": RunRequest(models=("fake", "fake:echo"))}, "a watch has one model, found 2"),
        ({"run": RunRequest(models=("fake",), cache=True)}, "replies cannot come from the cache"),
        ({"run": RunRequest(models=("fake",), tier="cheap", selection=Selection(ids=("none",)))}, "no case"),
    ],
)
def test_wrong_requests_are_refused_before_anything_is_stored(
    store: Store, given: dict[str, Any], message: str
) -> None:
    request = WatchRequest(**{"run": RunRequest(models=("fake",), tier="cheap"), **given})
    with pytest.raises(InvalidInput, match=message):
        start_watch(store, request)
    assert store.watches.list_all() == []


def test_a_request_survives_the_store() -> None:
    request = RunRequest(
        models=("fake",),
        paths=(Path("library:"), Path("suite.jsonl")),
        selection=Selection(tags=("a",), limit=3),
        scenarios=Selection(),
        temperature=None,
        parameters={"top_k": 3},
        limits=Limits(concurrency=4),
        cases=make_cases(2),
    )
    again = request_from_plain(request_to_plain(request))
    assert again.paths == (Path("library:"), Path("suite.jsonl").absolute())
    assert (again.cases, again.limits, again.scenarios, again.selection) == (
        request.cases, request.limits, request.scenarios, request.selection,
    )  # fmt: skip
    assert again.make_sent_parameters() == request.make_sent_parameters()


def test_instruments_are_chosen_by_what_applies() -> None:
    def choose(target: Target, **parameters: Any) -> tuple[str, ...]:
        return choose_instruments(Plan("suite", None, (target,), parameters=parameters), None)

    vendor = Target("gpt-5", "openai", "gpt-5")
    assert "changed_replies" in choose(vendor, temperature=0.7, seed=1)
    assert "changed_replies" not in choose(vendor, temperature=0.7)
    assert "slower" in choose(vendor, temperature=0)
    assert "slower" not in choose(Target("fake", "fake", ""), temperature=0)
    plan = Plan("suite", None, (vendor,))
    assert choose_instruments(plan, ("length", "pass-rate-down")) == ("pass_rate_down", "longer", "shorter")
