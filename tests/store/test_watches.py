"""Watches in both engines: a day is claimed with its run, ended once, and belongs to one period."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from pramana import clock
from pramana.errors import AlreadyRunning, StateConflict
from pramana.load.rows import make_case
from pramana.model import Plan, Target
from pramana.request import RunRequest
from pramana.store.store import Store
from pramana.store.watches import EndedDay, NewAlert, RunPurpose, Watch, find_today
from pramana.watch_request import WatchRequest

PLAN = Plan("suite", None, (Target("fake", "fake", ""),))


class DayClock(clock.Clock):
    """A clock whose date is set by the test."""

    moment = datetime(2026, 3, 1, 3, tzinfo=UTC)

    def now(self) -> datetime:
        return self.moment


@pytest.fixture
def days() -> Iterator[DayClock]:
    virtual = DayClock()
    with clock.use_clock(virtual):
        yield virtual


@pytest.fixture
def watch(store: Store, days: DayClock) -> Watch:
    assert days.moment.day == 1
    request = WatchRequest(
        run=RunRequest(models=("fake",), cases=(make_case("half \ud83d of a pair", ideal="yes"),)),
        name="half \ud83d and \0",
        budget_usd_per_day=2.0,
    )
    return store.watches.create(request, ("pass_rate_down",), creator="ann")


def claim(store: Store, watch: Watch, purpose: RunPurpose = "batch") -> str:
    hook = store.watches.make_claim(watch, find_today(), purpose, 0.25)
    return store.runs.create(PLAN, [make_case("question", ideal="yes")], holder="process 1", hook=hook).id


def test_a_watch_is_read_as_it_was_stored(store: Store, watch: Watch) -> None:
    assert store.watches.read(watch.id) == store.watches.find(None) == watch
    assert (watch.name, watch.budget_usd_per_day, watch.creator) == ("half \ud83d and \0", 2.0, "ann")
    assert watch.request.cases[0].turns[0].text == "half \ud83d of a pair"
    (period,) = store.watches.list_periods(watch)
    assert (period.number, period.begins, period.reason) == (1, "2026-03-01", "the watch began")


def test_a_day_is_claimed_with_its_run_or_not_at_all(store: Store, watch: Watch) -> None:
    run = claim(store, watch)
    with pytest.raises(AlreadyRunning, match="another process has just begun 2026-03-01"):
        claim(store, watch)
    assert [each.run_id for each in store.watches.list_runs(watch)] == [run]
    assert store.runs.read_page()[1] == 1
    assert store.runs.read(run).holder == "process 1"
    claim(store, watch, "answers")
    claim(store, watch, "confirm")
    assert [each.purpose for each in store.watches.list_runs(watch, "2026-03-01")] == ["batch", "answers", "confirm"]
    (day,) = store.watches.list_days(watch)
    assert (day.status, day.tie_break, day.period) == ("measuring", 0.25, 1)


def test_a_day_whose_run_was_deleted_is_claimed_again(store: Store, watch: Watch) -> None:
    store.runs.delete(claim(store, watch))
    again = claim(store, watch)
    assert [each.run_id for each in store.watches.list_runs(watch)] == [again]
    assert len(store.watches.list_days(watch)) == 1


def test_a_day_is_ended_once_with_its_alerts(store: Store, watch: Watch) -> None:
    claim(store, watch)
    alerts = (NewAlert("notice", {"text": "half \ud83d"}), NewAlert("notice", {}))
    ended = EndedDay(
        status="measured", features_json="{}", decision={"level": "notice"}, basis={"plan": 1}, alerts=alerts
    )
    with pytest.raises(StateConflict, match="were measured meanwhile"):
        store.watches.end_day(watch, "2026-03-01", ended, 3)
    assert store.watches.list_alerts(watch) == []
    day = store.watches.end_day(watch, "2026-03-01", ended, 0)
    assert store.watches.end_day(watch, "2026-03-01", EndedDay(status="missing", reason="late"), 0) == day
    (alert,) = store.watches.list_alerts(watch)
    assert (alert.level, alert.day, alert.body) == ("notice", "2026-03-01", {"text": "half \ud83d"})
    (period,) = store.watches.list_periods(watch)
    assert period.basis == {"plan": 1}
    with pytest.raises(StateConflict, match=r"2026-03-01 of watch .* is measured already"):
        claim(store, watch)


def test_periods_follow_the_days_on_which_they_begin(store: Store, watch: Watch, days: DayClock) -> None:
    claim(store, watch)
    store.watches.end_day(watch, "2026-03-01", EndedDay(status="measured"), 0)
    accepted = store.watches.accept(watch, "announced")
    days.moment += timedelta(days=1)
    claim(store, watch)
    reset = EndedDay(status="measured", new_period_reason="the cases changed")
    assert store.watches.end_day(watch, "2026-03-02", reset, 0).period == 3
    days.moment += timedelta(days=1)
    claim(store, watch)
    assert store.watches.list_days(watch)[-1].period == 3
    assert [(each.number, each.begins) for each in store.watches.list_periods(watch)] == [
        (1, "2026-03-01"),
        (accepted.number, "2026-03-02"),
        (3, "2026-03-02"),
    ]
    days.moment -= timedelta(days=30)  # a clock that was set back
    claim(store, watch)
    assert store.watches.list_days(watch)[0].period == 1
