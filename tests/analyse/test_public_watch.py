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


def make_series(name: str, days: int, rate: Callable[[int], float]) -> ContributorSeries:
    chance = random.Random(name)
    counts = {
        f"2026-{3 + day // 28:02d}-{1 + day % 28:02d}": {
            each: (1, int(chance.random() < rate(day))) for each in PROMPTS
        }
        for day in range(days)
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
    from benchmarks.contributor_soak import collect_first_days, compare_with_shipped

    assert compare_with_shipped(2) < 1e-9
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
