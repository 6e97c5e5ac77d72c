"""A watch over virtual days: every day once, within its budget, and an alarm with the right first day."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from pramana import clock
from pramana.app.watches import read_watch, start_watch
from pramana.load.rows import make_case
from pramana.model import Case
from pramana.providers.accounts import PassedFunctions
from pramana.request import RunRequest
from pramana.run.accounts import ProviderReach
from pramana.store import open_store
from pramana.store.store import Store
from pramana.watch_request import WatchRequest
from pramana.watching import DayMeasurement, measure_day

from .stores import home_store

FIRST_DAY = datetime(2026, 3, 1, 3, tzinfo=UTC)


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


def make_cases(count: int) -> tuple[Case, ...]:
    return tuple(make_case(f"question {number}", ideal="yes", id=f"q{number}") for number in range(count))


class Model:
    """A model whose pass rate a test sets."""

    def __init__(self) -> None:
        self.pass_rate, self.calls, self._random = 0.9, 0, random.Random(1)

    def __call__(self, prompt: str) -> str:
        assert prompt
        self.calls += 1
        return "yes" if self._random.random() < self.pass_rate else "no"


class Bench:
    """A watch of a model, and what measures its days."""

    def __init__(self, store: Store, days: DayClock, **given: object) -> None:
        self.store, self.days, self.model = store, days, Model()
        self.reach = ProviderReach(passed_functions=PassedFunctions({"tests:model": self.model}))
        run = RunRequest(models=("python:tests:model",), cases=make_cases(20))
        options = {"run": run, "baseline_days": 14, "instruments": ("pass_rate",), **given}
        view = start_watch(store, WatchRequest(**options), self.reach)  # type: ignore[arg-type]
        self.watch = store.watches.read(view.id)

    def measure(self, number: int) -> DayMeasurement:
        self.days.begin_day(number)
        return asyncio.run(measure_day(self.store, self.watch, reach=self.reach))


def test_a_drop_of_the_pass_rate_leads_to_an_alarm(store: Store, days: DayClock) -> None:
    bench = Bench(store, days)
    levels = []
    for number in range(28):
        bench.model.pass_rate = 0.9 if number < 20 else 0.4
        bench.measure(number)
        levels.append(read_watch(store, bench.watch).level)
    assert levels[:14] == ["collecting"] * 14
    assert set(levels[14:20]) == {"quiet"}
    assert levels[-1] == "alarm"
    view = read_watch(store, bench.watch)
    assert view.sentence.startswith("Alarm since 2026-03-2")
    assert "the pass rate fell" in view.sentence
    (finding,) = [each for each in view.findings if each.level == "alarm"]
    assert finding.first_day == "2026-03-21"
    assert [each.level for each in view.alerts] == ["notice", "alarm"]
    assert bench.model.calls == 28 * 20
