"""Can three in ten contributors raise or hide an alarm of a public watch? Simulated months, seeded.

Every number here is simulated: contributors who ask one model the same suite every day. Of 5, 10 and 20 contributors,
as many lie as the rule ignores: three in ten, rounded down. Liars behave until their baselines are complete. Then they
either report whatever gives the largest statistic, or whatever gives none; nothing that they could report is stronger.
Bar: in months of an unchanged model with lying contributors, the one-sided 95 % Clopper-Pearson bound of months with an
alarm is at most 1 %. How many months see a true drop of 20 points that liars hide is reported without a bar.

In further rows, five contributors begin together and the others one after the other during the month; liars join as
soon as three in ten allow one more, and push at once. The same bar holds. Others begin around a true drop, which they
cannot see: how many months have an alarm at the end is reported beside the rule that was replaced, in which today's
contributors decided about all days.

The rule is that of `benchmarks.drift_soak` in numpy, which is first compared with the shipped functions of
`pramana.analyse.public_watch` on months of ten contributors.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.drift_soak import (
    MEAN_LOGIT,
    PROMPT_SD,
    Floats,
    rank_correlations,
    shift_for_drop,
    sigmoid,
    statistics,
    upper_bound,
)
from pramana.analyse.drift import (
    ALARM,
    BASELINE_DAYS,
    MAX_IGNORED_CONTRIBUTOR_SHARE,
    MAX_RANK_CORRELATION,
    MIN_CONTRIBUTORS,
    MIN_TOLERANCE,
    MONTH_DAYS,
    NOTICE,
    combine_contributor_statistics,
)
from pramana.analyse.public_watch import decide_public_watch, make_contributor_days, measure_contributor

MONTHS, LATE_MONTHS, COMPARED_MONTHS, CHUNK = 2_000, 600, 10, 500
GROUPS = (5, 10, 20)
PROMPTS, DAY_SD, DROP, DAYS_BEFORE_CHANGE = 25, 0.5, 0.2, 5
"""Of each contributor: prompts a day, the difference of days in logits, a true drop, and the days before it."""
WORLDS = {"each contributor has their own days": False, "all contributors share their days": True}
"""Whether what a day does to the model is the same for all contributors."""
NEWCOMERS, LONG_DAYS = 12, 45
"""Contributors who join the first five around a true drop, and the days that are observed."""
NEWCOMER_DAYS = {
    "all after the drop": BASELINE_DAYS + DAYS_BEFORE_CHANGE,
    "ends five days after the drop": 2 * DAYS_BEFORE_CHANGE,
}
"""On which day the newcomers begin, by what their baseline is."""


class Reports(NamedTuple):
    """What some contributors report in some months, by contributor, month, day and prompt; and what follows."""

    passed: NDArray[np.bool_]
    scores: Floats
    """With the draws that decide between equal days, by contributor, month and day."""


def simulate(
    rng: np.random.Generator, months: int, contributors: int, *, are_days_shared: bool, drop: float, observed: int = 0
) -> Reports:
    """Return months of reports of honest contributors, in which the model's pass rate falls by `drop`."""
    logits = rng.normal(MEAN_LOGIT, PROMPT_SD, (months, PROMPTS))
    days = BASELINE_DAYS + (observed or MONTH_DAYS + (DAYS_BEFORE_CHANGE if drop else 0))
    shift = shift_for_drop(logits, DAY_SD, drop) if drop else np.zeros(months)
    is_changed = np.arange(days) >= BASELINE_DAYS + DAYS_BEFORE_CHANGE
    shared = rng.normal(0, DAY_SD, (months, days))
    reported = []
    for _ in range(contributors):
        effects = (shared if are_days_shared else rng.normal(0, DAY_SD, (months, days))) - shift[:, None] * is_changed
        reported.append(rng.random((months, days, PROMPTS)) < sigmoid(logits[:, None, :] + effects[:, :, None]))
    passed = np.array(reported)
    return Reports(passed, 1 - passed.mean(3) + rng.uniform(-0.5, 0.5, passed.shape[:3]) / PROMPTS)


class Values(NamedTuple):
    """The statistics of honest contributors by contributor, month and day after the baseline; 0 if one cannot tell."""

    notice: Floats
    alarm: Floats


def measure(reports: Reports, joins: Sequence[int] = ()) -> Values:
    """Return the statistics of all contributors by the rule, in numpy; `joins` has the first day of each, default 0."""
    notices, alarms = [], []
    for at, (reported, all_scores) in enumerate(zip(reports.passed, reports.scores, strict=True)):
        join = joins[at] if joins else 0
        passed, scores = reported[:, join:], all_scores[:, join:]
        rates = passed[:, :BASELINE_DAYS].mean(1)
        by_calls = (rates * (1 - rates)).sum(1) / PROMPTS**2 * BASELINE_DAYS / (BASELINE_DAYS - 1)
        plain = 1 - passed[:, :BASELINE_DAYS].mean(2)
        day_sd = np.sqrt(np.maximum(0, plain.var(1, ddof=1) - by_calls))
        can_tell = (rank_correlations(scores) <= MAX_RANK_CORRELATION)[:, None]
        before = ((0, 0), (join, 0))
        notices.append(np.pad(statistics(scores, np.full(len(scores), MIN_TOLERANCE)) * can_tell, before))
        alarms.append(np.pad(statistics(scores, np.maximum(MIN_TOLERANCE, day_sd)) * can_tell, before))
    return Values(np.array(notices), np.array(alarms))


def combine(values: Floats, liars: Sequence[int], reported: float, joins: Sequence[int] = ()) -> Floats:
    """Return the public statistic by month and day if some contributors' own is what they make of it.

    Contributors are in the order in which they join, and count on the days after their baseline.
    """
    told = values.copy()
    told[list(liars)] = reported
    combined = np.zeros(told.shape[1:])
    for day in range(told.shape[2]):
        count = sum(join <= day for join in joins) if joins else len(told)
        ignored = int(MAX_IGNORED_CONTRIBUTOR_SHARE * count)
        combined[:, day] = np.sort(told[:count, :, day], axis=0)[::-1][ignored] / count
    return combined


class FirstDays(NamedTuple):
    """By month, the first day after the baseline with a notice and with an alarm; 0: none."""

    notice: NDArray[np.int64]
    alarm: NDArray[np.int64]


def find_first_days(
    values: Values, liars: Sequence[int] = (), reported: float = 0.0, joins: Sequence[int] = ()
) -> FirstDays:
    """Return the first days on which the public watch reaches its levels."""
    found = []
    for own, level in zip(values, (NOTICE, ALARM), strict=True):
        reached = combine(own, liars, reported, joins) >= level.threshold
        found.append(np.where(reached.any(1), reached.argmax(1) + 1, 0))
    return FirstDays(*found)


def compare_with_shipped(months: int, joins: Sequence[int] = ()) -> float:
    """Return the largest relative difference from the shipped functions; infinite if levels or days differ."""
    made = simulate(np.random.default_rng(7), months, 10, are_days_shared=True, drop=DROP)
    scores, worst = made.scores.copy(), 0.0
    dates = [f"{day:03}" for day in range(scores.shape[2])]
    series = []
    for contributor, of_months in enumerate(made.passed.tolist()):
        join = joins[contributor] if joins else 0
        for month, of_days in enumerate(of_months):
            counts = {
                date: {str(prompt): (1, int(passed)) for prompt, passed in enumerate(of_day)}
                for date, of_day in list(zip(dates, of_days, strict=True))[join:]
            }
            days = make_contributor_days(f"{contributor} {month}", counts)
            ties = np.array([each.tie_break for each in days])
            scores[contributor, month, join:] = 1 - made.passed[contributor, month, join:].mean(1) + ties / PROMPTS
            series.append(measure_contributor(days))
    values = measure(Reports(made.passed, scores), joins)
    first = find_first_days(values, joins=joins)
    combined = combine(values.alarm, (), 0.0, joins)
    for month in range(months):
        found = decide_public_watch(series[month::months])
        alarm = dates[BASELINE_DAYS + int(first.alarm[month]) - 1] if first.alarm[month] else None
        notice = dates[BASELINE_DAYS + int(first.notice[month]) - 1] if first.notice[month] else None
        if (found.alarm_day, found.notice_day) != (alarm, notice):
            return float("inf")
        last = combine_contributor_statistics(values.alarm[:, month, -1].tolist())
        expected = found.alarm_statistic
        worst = max(worst, abs(last - expected) / expected, abs(float(combined[month, -1]) - expected) / expected)
    return worst


# ── The tables ──


def collect_first_days(
    seed: int, months: int, contributors: int, *, are_days_shared: bool, drop: float, reported: float
) -> tuple[FirstDays, FirstDays]:
    """Return the first days of months without liars, and of the same months with as many as the rule ignores."""
    rng, honest, lied = np.random.default_rng(seed), list[FirstDays](), list[FirstDays]()
    liars = range(int(MAX_IGNORED_CONTRIBUTOR_SHARE * contributors))
    for at in range(0, months, CHUNK):
        size = min(CHUNK, months - at)
        values = measure(simulate(rng, size, contributors, are_days_shared=are_days_shared, drop=drop))
        honest.append(find_first_days(values))
        lied.append(find_first_days(values, liars, reported))
    return _join_chunks(honest), _join_chunks(lied)


def _join_chunks(chunks: Sequence[FirstDays]) -> FirstDays:
    return FirstDays(*(np.concatenate(days) for days in zip(*chunks, strict=True)))


def spread_joins(contributors: int) -> list[int]:
    """Return the first days of contributors of whom five begin together and the others one by one.

    >>> spread_joins(10)
    [0, 0, 0, 0, 0, 4, 8, 12, 16, 20]
    """
    later = contributors - MIN_CONTRIBUTORS
    return [0] * MIN_CONTRIBUTORS + [20 * at // later for at in range(1, later + 1)]


def choose_liars(contributors: int) -> list[int]:
    """Return who lies if each joins as soon as three in ten allow one more.

    >>> choose_liars(20)
    [4, 6, 9, 13, 16, 19]
    """
    return [
        count - 1
        for count in range(MIN_CONTRIBUTORS, contributors + 1)
        if count == MIN_CONTRIBUTORS
        or int(MAX_IGNORED_CONTRIBUTOR_SHARE * count) > int(MAX_IGNORED_CONTRIBUTOR_SHARE * (count - 1))
    ]


def collect_late_first_days(
    seed: int, months: int, contributors: int, *, are_days_shared: bool
) -> tuple[FirstDays, FirstDays]:
    """Return the first days of unchanged months in which contributors join, all honest, and with liars who push."""
    rng, honest, lied = np.random.default_rng(seed), list[FirstDays](), list[FirstDays]()
    joins, liars = spread_joins(contributors), choose_liars(contributors)
    for at in range(0, months, CHUNK):
        size = min(CHUNK, months - at)
        values = measure(simulate(rng, size, contributors, are_days_shared=are_days_shared, drop=0.0), joins)
        honest.append(find_first_days(values, joins=joins))
        lied.append(find_first_days(values, liars, np.inf, joins))
    return _join_chunks(honest), _join_chunks(lied)


class Alarms(NamedTuple):
    """Of months with a drop: whether there is an alarm at their end."""

    alone: NDArray[np.bool_]
    """By the first five contributors alone."""
    before_newcomers: NDArray[np.bool_]
    """By the first five, before the newcomers count."""
    with_newcomers: NDArray[np.bool_]
    by_replaced_rule: NDArray[np.bool_]
    """If everyone who counts at the end decides about all days."""


def collect_alarms_beside_newcomers(seed: int, months: int, begin: int, *, are_days_shared: bool) -> Alarms:
    """Return which months have an alarm of a true drop around which many newcomers begin, on one day."""
    rng, joins = np.random.default_rng(seed), [0] * MIN_CONTRIBUTORS + [begin] * NEWCOMERS
    made = simulate(rng, months, len(joins), are_days_shared=are_days_shared, drop=DROP, observed=LONG_DAYS)
    values = measure(made, joins)
    first_five = Values(*(each[:MIN_CONTRIBUTORS] for each in values))
    alone = find_first_days(first_five).alarm
    found = (find_first_days(values, joins=joins), find_first_days(values))
    return Alarms(alone > 0, (alone > 0) & (alone <= begin), *(each.alarm > 0 for each in found))


def report_false_alarms(months: int) -> bool:
    """Print how many unchanged months have a notice or an alarm; return whether the bar holds."""
    print(
        f"\n### Unchanged: {months:,} simulated months a row\n",
        "| days | contributors | notices, all honest | alarms | liars | notices, liars push | alarms |",
        "| --- | --: | --: | --: | --: | --: | --: |",
        sep="\n",
    )
    holds = True
    for row, (name, are_days_shared) in enumerate(WORLDS.items()):
        for count in GROUPS:
            found = collect_first_days(
                10_000 * row + count, months, count, are_days_shared=are_days_shared, drop=0.0, reported=np.inf
            )
            cells = []
            for days in found:
                for first in days:
                    reached = int((first > 0).sum())
                    cells.append(f"{reached / months:.2%} (≤ {upper_bound(reached, months):.2%})")
            is_good = upper_bound(int((found[1].alarm > 0).sum()), months) <= 0.01
            holds &= is_good
            liars = int(MAX_IGNORED_CONTRIBUTOR_SHARE * count)
            print(
                f"| {name} | {count} | {cells[0]} | {cells[1]} | {liars} | {cells[2]} | {cells[3]} |"
                + ("" if is_good else " **missed**"),
                flush=True,
            )
    return holds


def report_late_joiners(months: int) -> bool:
    """Print false alarms while contributors join, and what newcomers do to alarms; return whether the bar holds."""
    print(
        f"\n### Unchanged, five at first and the others join during the month: {months:,} simulated months a row\n",
        "| days | contributors at the end | notices, all honest | alarms | late liars | notices, they push | alarms |",
        "| --- | --: | --: | --: | --: | --: | --: |",
        sep="\n",
    )
    holds = True
    for row, (name, are_days_shared) in enumerate(WORLDS.items()):
        for count in GROUPS[1:]:
            found = collect_late_first_days(
                90_000 + 10_000 * row + count, months, count, are_days_shared=are_days_shared
            )
            reached = [int((first > 0).sum()) for days in found for first in days]
            cells = [f"{each / months:.2%} (≤ {upper_bound(each, months):.2%})" for each in reached]
            is_good = upper_bound(reached[-1], months) <= 0.01
            holds &= is_good
            print(
                f"| {name} | {count} | {cells[0]} | {cells[1]} | {len(choose_liars(count))} | {cells[2]} | {cells[3]} |"
                + ("" if is_good else " **missed**"),
                flush=True,
            )
    months //= 3
    print(
        f"\n### A true drop of {DROP:.0%}, then {NEWCOMERS} newcomers: {months:,} simulated months a row\n",
        "| days | baseline of the newcomers | alarm of the first five alone | before newcomers count | with newcomers "
        "| by the replaced rule |",
        "| --- | --- | --: | --: | --: | --: |",
        sep="\n",
    )
    for row, (name, are_days_shared) in enumerate(WORLDS.items()):
        for what, begin in NEWCOMER_DAYS.items():
            alarms = collect_alarms_beside_newcomers(130_000 + row, months, begin, are_days_shared=are_days_shared)
            print(f"| {name} | {what} | " + " | ".join(f"{each.mean():.0%}" for each in alarms) + " |", flush=True)
    return holds


def report_hidden_drops(months: int) -> None:
    """Print how many months see a true drop and when, without liars and with liars who hide it."""
    print(
        f"\n### A true drop of {DROP:.0%}: {months:,} simulated months a row\n",
        "| days | contributors | notice, all honest | alarm | liars | notice, liars hide | alarm |",
        "| --- | --: | --: | --: | --: | --: | --: |",
        sep="\n",
    )
    for row, (name, are_days_shared) in enumerate(WORLDS.items()):
        for count in GROUPS:
            found = collect_first_days(
                50_000 + 10_000 * row + count, months, count, are_days_shared=are_days_shared, drop=DROP, reported=0.0
            )
            cells = []
            for days in found:
                for first in days:
                    delay = np.where(first > DAYS_BEFORE_CHANGE, first - DAYS_BEFORE_CHANGE, MONTH_DAYS + 1)
                    seen, middle = (delay <= MONTH_DAYS).mean(), int(np.median(delay))
                    cells.append(f"{'> 30' if middle > MONTH_DAYS else middle} ({seen:.0%})")
            liars = int(MAX_IGNORED_CONTRIBUTOR_SHARE * count)
            print(f"| {name} | {count} | {cells[0]} | {cells[1]} | {liars} | {cells[2]} | {cells[3]} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; return 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--months", type=int, default=MONTHS)
    parser.add_argument("--late-months", type=int, default=LATE_MONTHS)
    parser.add_argument("--only-late", action="store_true", help="print only the tables of those who join late")
    given, began = parser.parse_args(arguments), time.monotonic()
    months = given.months
    compared = min(months, COMPARED_MONTHS)
    worst = max(compare_with_shipped(compared), compare_with_shipped(compared, spread_joins(10)))
    print(
        f"The shipped functions and this file differ by at most {worst:.1e} (relative) on {compared} months of ten "
        "contributors who begin together, and of ten who join one by one, and reach their levels on the same days."
    )
    holds = report_late_joiners(given.late_months)
    if not given.only_late:
        holds &= report_false_alarms(months)
        report_hidden_drops(max(1, months // 4))
    print(f"\n{time.monotonic() - began:.0f} s on one process.")
    return int(worst > 1e-9 or not holds)


if __name__ == "__main__":
    sys.exit(main())
