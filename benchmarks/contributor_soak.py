"""Can three in ten contributors raise or hide an alarm of a public watch? Simulated months, seeded.

Every number here is simulated: contributors who ask one model the same suite every day. Of 5, 10 and 20 contributors,
as many lie as the rule ignores: three in ten, rounded down. Liars behave until their baselines are complete. Then they
either report whatever gives the largest statistic, or whatever gives none; nothing that they could report is stronger.
Bar: in months of an unchanged model with lying contributors, the one-sided 95 % Clopper-Pearson bound of months with an
alarm is at most 1 %. How many months see a true drop of 20 points that liars hide is reported without a bar.

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
    MIN_TOLERANCE,
    MONTH_DAYS,
    NOTICE,
    combine_contributor_statistics,
)
from pramana.analyse.public_watch import decide_public_watch, make_contributor_days, measure_contributor

MONTHS, COMPARED_MONTHS, CHUNK = 2_000, 10, 500
GROUPS = (5, 10, 20)
PROMPTS, DAY_SD, DROP, DAYS_BEFORE_CHANGE = 25, 0.5, 0.2, 5
"""Of each contributor: prompts a day, the difference of days in logits, a true drop, and the days before it."""
WORLDS = {"each contributor has their own days": False, "all contributors share their days": True}
"""Whether what a day does to the model is the same for all contributors."""


class Reports(NamedTuple):
    """What some contributors report in some months, by contributor, month, day and prompt; and what follows."""

    passed: NDArray[np.bool_]
    scores: Floats
    """With the draws that decide between equal days, by contributor, month and day."""


def simulate(
    rng: np.random.Generator, months: int, contributors: int, *, are_days_shared: bool, drop: float
) -> Reports:
    """Return months of reports of honest contributors, in which the model's pass rate falls by `drop`."""
    logits = rng.normal(MEAN_LOGIT, PROMPT_SD, (months, PROMPTS))
    days = BASELINE_DAYS + MONTH_DAYS + (DAYS_BEFORE_CHANGE if drop else 0)
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


def measure(reports: Reports) -> Values:
    """Return the statistics of all contributors by the rule, in numpy."""
    notices, alarms = [], []
    for passed, scores in zip(reports.passed, reports.scores, strict=True):
        rates = passed[:, :BASELINE_DAYS].mean(1)
        by_calls = (rates * (1 - rates)).sum(1) / PROMPTS**2 * BASELINE_DAYS / (BASELINE_DAYS - 1)
        plain = 1 - passed[:, :BASELINE_DAYS].mean(2)
        day_sd = np.sqrt(np.maximum(0, plain.var(1, ddof=1) - by_calls))
        can_tell = (rank_correlations(scores) <= MAX_RANK_CORRELATION)[:, None]
        notices.append(statistics(scores, np.full(len(scores), MIN_TOLERANCE)) * can_tell)
        alarms.append(statistics(scores, np.maximum(MIN_TOLERANCE, day_sd)) * can_tell)
    return Values(np.array(notices), np.array(alarms))


def combine(values: Floats, liars: int, reported: float) -> Floats:
    """Return the public statistic by month and day if the first contributors' own is what liars make of it."""
    told = values.copy()
    told[:liars] = reported
    ignored = int(MAX_IGNORED_CONTRIBUTOR_SHARE * len(told))
    return np.asarray(np.sort(told, axis=0)[::-1][ignored] / len(told))


class FirstDays(NamedTuple):
    """By month, the first day after the baseline with a notice and with an alarm; 0: none."""

    notice: NDArray[np.int64]
    alarm: NDArray[np.int64]


def find_first_days(values: Values, liars: int, reported: float) -> FirstDays:
    """Return the first days on which the public watch reaches its levels."""
    found = []
    for own, level in zip(values, (NOTICE, ALARM), strict=True):
        reached = combine(own, liars, reported) >= level.threshold
        found.append(np.where(reached.any(1), reached.argmax(1) + 1, 0))
    return FirstDays(*found)


def compare_with_shipped(months: int) -> float:
    """Return the largest relative difference from the shipped functions; infinite if levels or days differ."""
    made = simulate(np.random.default_rng(7), months, 10, are_days_shared=True, drop=DROP)
    scores, worst = made.scores.copy(), 0.0
    dates = [f"{day:03}" for day in range(scores.shape[2])]
    series = []
    for contributor, of_months in enumerate(made.passed.tolist()):
        for month, of_days in enumerate(of_months):
            counts = {
                date: {str(prompt): (1, int(passed)) for prompt, passed in enumerate(of_day)}
                for date, of_day in zip(dates, of_days, strict=True)
            }
            days = make_contributor_days(f"{contributor} {month}", counts)
            ties = np.array([each.tie_break for each in days])
            scores[contributor, month] = 1 - made.passed[contributor, month].mean(1) + ties / PROMPTS
            series.append(measure_contributor(days))
    values = measure(Reports(made.passed, scores))
    first = find_first_days(values, 0, 0.0)
    combined = combine(values.alarm, 0, 0.0)
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
    liars = int(MAX_IGNORED_CONTRIBUTOR_SHARE * contributors)
    for at in range(0, months, CHUNK):
        size = min(CHUNK, months - at)
        values = measure(simulate(rng, size, contributors, are_days_shared=are_days_shared, drop=drop))
        honest.append(find_first_days(values, 0, 0.0))
        lied.append(find_first_days(values, liars, reported))
    one, other = (FirstDays(*(np.concatenate(days) for days in zip(*each, strict=True))) for each in (honest, lied))
    return one, other


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
    months, began = parser.parse_args(arguments).months, time.monotonic()
    compared = min(months, COMPARED_MONTHS)
    worst = compare_with_shipped(compared)
    print(
        f"The shipped functions and this file differ by at most {worst:.1e} (relative) on {compared} months of ten "
        "contributors, and reach their levels on the same days."
    )
    holds = report_false_alarms(months)
    report_hidden_drops(max(1, months // 4))
    print(f"\n{time.monotonic() - began:.0f} s on one process.")
    return int(worst > 1e-9 or not holds)


if __name__ == "__main__":
    sys.exit(main())
