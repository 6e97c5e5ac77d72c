"""The public watch: several contributors see a drop, and three in ten cannot make or hide one."""

import random
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pramana.analyse.drift import ALARM, BASELINE_DAYS, NOTICE
from pramana.analyse.public_watch import (
    ContributorSeries,
    decide_public_watch,
    describe_public_finding,
    make_contributor_days,
    measure_contributor,
)

PROMPTS = [f"p{number}" for number in range(25)]


def make_series(name: str, days: int, rate: Callable[[int], float], first_day: int = 0) -> ContributorSeries:
    """Return the series of a contributor who begins on a day; `rate` is asked with the day of the calendar."""
    chance = random.Random(name)
    counts = {
        f"2026-{3 + day // 28:02d}-{1 + day % 28:02d}": {
            each: (1, int(chance.random() < rate(day))) for each in PROMPTS
        }
        for day in range(first_day, first_day + days)
    }
    return measure_contributor(make_contributor_days(name, counts))


def test_a_drop_that_most_contributors_see_is_an_alarm() -> None:
    series = [make_series(f"c{n}", 48, lambda day: 0.9 if day < 30 else 0.4) for n in range(6)]
    found = decide_public_watch(series)
    assert (found.level, found.contributors, found.complete_contributors) == ("alarm", 6, 6)
    assert found.notice_day is not None
    assert found.alarm_day is not None
    assert "2026-04-03" < found.notice_day <= found.alarm_day
    assert found.alarm_statistic >= ALARM.threshold
    assert describe_public_finding(found).startswith(f"Alarm since {found.alarm_day}: the pass rate fell")


def test_an_unchanged_model_stays_quiet() -> None:
    found = decide_public_watch([make_series(f"q{n}", 60, lambda _: 0.9) for n in range(6)])
    assert (found.level, found.notice_day) == ("quiet", None)
    assert found.notice_statistic < NOTICE.threshold


def test_three_liars_in_ten_raise_no_alarm_and_hide_none() -> None:
    honest = [make_series(f"h{n}", 48, lambda _: 0.9) for n in range(7)]
    liars = [make_series(f"l{n}", 48, lambda day: 0.9 if day < 29 else 0.0) for n in range(3)]
    assert max(liars[0].alarm.values()) > ALARM.threshold * 10, "alone, any of them would"
    assert decide_public_watch([*honest, *liars]).level == "quiet"
    falling = [make_series(f"f{n}", 48, lambda day: 0.9 if day < 30 else 0.4) for n in range(7)]
    hiding = [make_series(f"g{n}", 48, lambda _: 0.9) for n in range(3)]
    assert decide_public_watch([*falling, *hiding]).level == "alarm"


def test_the_soak_of_contributors_measures_the_shipped_rule_and_its_liars_raise_no_alarm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A small form of `benchmarks/contributor_soak.py`."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2]), *sys.path])
    from benchmarks.contributor_soak import (
        NEWCOMER_DAYS,
        collect_alarms_beside_newcomers,
        collect_first_days,
        collect_late_first_days,
        compare_with_shipped,
        spread_joins,
    )

    assert compare_with_shipped(2) < 1e-9
    assert compare_with_shipped(2, spread_joins(10)) < 1e-9
    for days in collect_late_first_days(5, 20, 7, are_days_shared=False):
        assert not days.alarm.any()
    alarms = collect_alarms_beside_newcomers(6, 10, NEWCOMER_DAYS["all after the drop"], are_days_shared=True)
    assert alarms.before_newcomers.mean() >= 0.5
    assert (alarms.with_newcomers >= alarms.before_newcomers).all()
    assert not alarms.by_replaced_rule.any()
    honest, pushed = collect_first_days(3, 30, 5, are_days_shared=True, drop=0.0, reported=float("inf"))
    assert not honest.alarm.any()
    assert not pushed.alarm.any()
    seen, hidden = collect_first_days(4, 30, 5, are_days_shared=True, drop=0.4, reported=0.0)
    assert (seen.notice > 5).mean() >= (hidden.notice > 5).mean() >= 0.9


@pytest.mark.parametrize("count", [0, 1, 4])
def test_fewer_than_five_contributors_with_a_baseline_decide_nothing(count: int) -> None:
    series = [make_series(f"c{n}", 48, lambda day: 0.9 if day < 30 else 0.0) for n in range(count)]
    short = [make_series(f"s{n}", BASELINE_DAYS - 1, lambda _: 0.9) for n in range(10)]
    found = decide_public_watch([*series, *short])
    assert (found.level, found.complete_contributors, found.alarm_statistic) == ("collecting", count, 0.0)


def test_a_contributor_whose_days_resemble_each_other_counts_without_a_statistic() -> None:
    rough = make_series("walk", 48, lambda day: 0.9 if (day // 7) % 2 else 0.3)
    assert (rough.is_complete, rough.can_alarm, dict(rough.alarm)) == (True, False, {})


def test_a_day_with_few_of_the_prompts_has_no_score() -> None:
    counts = {f"2026-03-{day:02d}": dict.fromkeys(PROMPTS, (1, 1)) for day in range(1, 32)}
    counts["2026-04-01"] = {PROMPTS[0]: (1, 0)}
    assert measure_contributor(make_contributor_days("c", counts)).measured_days == 31


def test_a_level_that_was_reached_stays() -> None:
    back = [make_series(f"b{n}", 70, lambda day: 0.4 if 30 <= day < 44 else 0.9) for n in range(6)]
    assert decide_public_watch(back).level == "alarm"


def test_newcomers_do_not_take_back_what_was_seen_before_they_counted() -> None:
    falling = [make_series(f"f{n}", 60, lambda day: 0.9 if day < 30 else 0.4) for n in range(5)]
    alone = decide_public_watch(falling)
    assert (alone.level, alone.contributors_at_level) == ("alarm", 5)
    newcomers = [make_series(f"n{n}", 40, lambda _: 0.4, first_day=50) for n in range(12)]
    found = decide_public_watch([*newcomers, *falling])
    assert (found.level, found.alarm_day, found.notice_day) == ("alarm", alone.alarm_day, alone.notice_day)
    assert (found.complete_contributors, found.contributors_at_level) == (17, 5)
    assert found.alarm_statistic < NOTICE.threshold, "by the 17 alone, whose baselines are after the drop"
    assert describe_public_finding(found).endswith("three in ten of 5 contributors. Now 17 contributors count.")


def test_a_contributor_counts_from_the_day_after_their_baseline() -> None:
    falling = [make_series(f"f{n}", 60, lambda day: 0.9 if day < 30 else 0.4) for n in range(4)]
    assert decide_public_watch(falling).level == "collecting"
    late = make_series("late", 40, lambda day: 0.9 if day < 30 else 0.4, first_day=20)
    assert late.last_baseline_day == "2026-04-20"
    found = decide_public_watch([*falling, late])
    assert (found.level, found.alarm_day) == ("alarm", "2026-04-21"), "four had no public statistic before"


def test_liars_who_join_when_three_in_ten_allow_it_raise_no_alarm() -> None:
    series = [make_series(f"h{n}", 70, lambda _: 0.9) for n in range(7)]
    for number, first_day in enumerate((2, 10, 20)):

        def lie(day: int, baseline_ends: int = first_day + BASELINE_DAYS) -> float:
            return 0.9 if day < baseline_ends else 0.0

        series.append(make_series(f"l{number}", 70 - first_day, lie, first_day=first_day))
        assert max(series[-1].alarm.values()) > 10 * ALARM.threshold
    assert decide_public_watch(series).level == "quiet"


def test_more_days_never_take_back_a_level_or_its_day() -> None:
    """All first parts of one long series of days with newcomers, a drop and a recovery."""
    rises, falls = (lambda day: 0.4 if 34 <= day < 50 else 0.9), (lambda _: 0.9)

    def decide_until(day: int) -> tuple[str | None, str | None]:
        begun = [(f"c{n}", 0 if n < 5 else 8 * n) for n in range(12)]
        found = decide_public_watch(
            [
                make_series(name, day - first, rises if first == 0 else falls, first_day=first)
                for name, first in begun
                if day > first
            ]
        )
        return found.notice_day, found.alarm_day

    reached: tuple[str | None, str | None] = (None, None)
    for day in range(30, 140, 5):
        found = decide_until(day)
        assert all(before in (None, now) for before, now in zip(reached, found, strict=True)), day
        reached = found
    assert None not in reached
