"""Does the drift rule raise fewer false alarms than what people use instead, and how much later is it? Seeded.

Every number here is simulated: the endpoints of `benchmarks.drift_soak`, whose pass rates move from day to day although
the model stays the same, and endpoints that lose 10 or 20 points. On the same months, four rules look after every day:

- the shipped rule, `pramana.analyse.drift`: notices and alarms;
- hash consistency, as the community uses it: the share of prompts whose reply equals that of one pinned day; below 95 %
  is "watch", below 80 % "drifting". Here a reply is only its verdict, which flatters this rule: texts vary more;
- two batches and McNemar's exact test: each day against the first, one-sided in effect, p at most 0.05;
- a fixed threshold: the day's pass rate is 10 points below the mean of the baseline.

With repeats, a reply is the verdict of the majority for the middle two rules. Bar: in the worlds whose days are
exchangeable, at most 1 % of the months have a notice of the shipped rule, and at most 0.3 % an alarm.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.drift_soak import (
    MEAN_LOGIT,
    PROMPT_SD,
    WORLDS,
    Floats,
    World,
    day_effects,
    rank_correlations,
    shift_for_drop,
    sigmoid,
    upper_bound,
)
from pramana.analyse.drift import (
    ALARM,
    BASELINE_DAYS,
    MAX_RANK_CORRELATION,
    MIN_TOLERANCE,
    MONTH_DAYS,
    NOTICE,
    iterate_change_statistics,
)
from pramana.analyse.intervals import mcnemar_p_value

Flags = NDArray[np.bool_]
MONTHS, DELAY_MONTHS, DAYS_BEFORE_CHANGE, SEED = 1_000, 300, 5, 4_000_000
DESIGNS = ((25, 1), (75, 5))
COMPARED_WORLDS = tuple(WORLDS[at] for at in (0, 1, 2, 3, 4, 6, 7, 8, 9))
"""All but the one with missing days, in which the rules do not see the same days."""
DELAY_WORLDS, DROPS = (WORLDS[0], WORLDS[1]), (0.1, 0.2)
RULES = ("notice", "alarm", "watch", "drifting", "McNemar", "10 points")
HEADINGS = (
    "shipped: notice", "shipped: alarm", "hash: watch", "hash: drifting", "McNemar, p ≤ 0.05", "10 points below",
)  # fmt: skip


class Replies(NamedTuple):
    """The days of many months."""

    scores: Floats
    """By month and day: the share of failures."""
    verdicts: Flags
    """By month, day and prompt: whether the majority of the replies passed."""
    tolerance: Floats
    ties: Floats


def simulate_replies(
    rng: np.random.Generator, months: int, prompts: int, repeats: int, world: World, drop: float, days: int
) -> Replies:
    """Return months of an endpoint that, with a `drop`, changes `DAYS_BEFORE_CHANGE` after the baseline."""
    logits = rng.normal(MEAN_LOGIT, PROMPT_SD, (months, prompts))
    effects = day_effects(rng, months, BASELINE_DAYS + days, world.kind, world.sd)
    shift = shift_for_drop(logits, world.sd, drop) if drop else np.zeros(months)
    passes = np.empty((months, BASELINE_DAYS + days, prompts))
    for day in range(BASELINE_DAYS + days):
        is_changed = day >= BASELINE_DAYS + DAYS_BEFORE_CHANGE
        rate = sigmoid(logits + effects[:, day, None] - (shift[:, None] if is_changed else 0.0))
        passes[:, day] = rng.binomial(repeats, rate) / repeats
    scores = 1 - passes.mean(2)
    rates = passes[:, :BASELINE_DAYS].mean(1)
    by_calls = (rates * (1 - rates)).sum(1) / prompts**2 / repeats * BASELINE_DAYS / (BASELINE_DAYS - 1)
    day_sd = np.sqrt(np.maximum(0, scores[:, :BASELINE_DAYS].var(1, ddof=1) - by_calls))
    ties = rng.uniform(-0.5, 0.5, scores.shape) / (prompts * repeats)
    return Replies(scores, passes > 0.5, np.maximum(MIN_TOLERANCE, day_sd), ties)


@cache
def tabulate_p_values(prompts: int) -> Floats:
    """Return McNemar's p-value by losses and gains; 1 where the gains are not fewer."""
    found = np.ones((prompts + 1, prompts + 1))
    for lost in range(prompts + 1):
        for gained in range(min(lost, prompts + 1 - lost)):
            found[lost, gained] = mcnemar_p_value(lost, gained)
    return found


def find_alerts(replies: Replies) -> dict[str, Flags]:
    """Return, by rule, whether each day after the baseline of each month raises it."""
    later, pinned = replies.verdicts[:, BASELINE_DAYS:], replies.verdicts[:, :1]
    consistency = (later == pinned).mean(2)
    lost, gained = ((pinned > later).sum(2), (later > pinned).sum(2))
    scores = replies.scores + replies.ties
    can_alarm = rank_correlations(scores) <= MAX_RANK_CORRELATION
    notices, alarms = np.zeros(consistency.shape, bool), np.zeros(consistency.shape, bool)
    for month, days in enumerate(scores.tolist()):
        for found, level, tolerance in (
            (notices, NOTICE, MIN_TOLERANCE),
            (alarms, ALARM, float(replies.tolerance[month])),
        ):
            values = [each.value for each in iterate_change_statistics(days, BASELINE_DAYS, tolerance)]
            found[month] = np.array(values) >= level.threshold
    baseline = replies.scores[:, :BASELINE_DAYS].mean(1)[:, None]
    return {
        "notice": notices,
        "alarm": alarms & can_alarm[:, None],
        "watch": consistency < 0.95,
        "drifting": consistency < 0.8,
        "McNemar": tabulate_p_values(later.shape[2])[lost, gained] <= 0.05,
        "10 points": replies.scores[:, BASELINE_DAYS:] >= baseline + 0.1,
    }


def report_false_alarms(months: int) -> bool:
    """Print the share of unchanged months with at least one alert, by rule; return whether the bars hold."""
    print(f"### Unchanged months with a false alert, of {months:,} simulated ones a row\n")
    print(f"| world | prompts × calls | {' | '.join(HEADINGS)} |", f"| --- | --- |{' --: |' * len(RULES)}", sep="\n")
    good = True
    for row, world in enumerate(COMPARED_WORLDS):
        for column, (prompts, repeats) in enumerate(DESIGNS):
            rng = np.random.default_rng(SEED + 10 * row + column)
            counts = dict.fromkeys(RULES, 0)
            for at in range(0, months, 250):
                size = min(250, months - at)
                found = find_alerts(simulate_replies(rng, size, prompts, repeats, world, 0.0, MONTH_DAYS))
                counts = {rule: counts[rule] + int(found[rule].any(1).sum()) for rule in RULES}
            holds = not world.is_exchangeable or (
                counts["notice"] <= 0.01 * months and counts["alarm"] <= 0.003 * months
            )
            good &= holds
            cells = " | ".join(f"{counts[rule] / months:.1%}" for rule in RULES)
            print(f"| {world.name} | {prompts} × {repeats} | {cells} |" + ("" if holds else " **missed**"), flush=True)
    bound = upper_bound(0, months)
    print(f"\nOf {months:,} months, none means at most {bound:.2%} (one-sided 95 %).")
    return good


def report_delays(months: int) -> None:
    """Print the median days from a change to the first alert on or after it."""
    print(f"\n### Median days until a true change is seen, of {months:,} simulated months a row\n")
    print(
        f"| world | prompts × calls | drop | {' | '.join(HEADINGS)} |",
        f"| --- | --- | --: |{' --: |' * len(RULES)}",
        sep="\n",
    )
    for row, world in enumerate(DELAY_WORLDS):
        for column, (prompts, repeats) in enumerate(DESIGNS):
            for at, drop in enumerate(DROPS):
                rng = np.random.default_rng(SEED + 1_000 + 100 * row + 10 * column + at)
                replies = simulate_replies(rng, months, prompts, repeats, world, drop, DAYS_BEFORE_CHANGE + MONTH_DAYS)
                cells = []
                for rule, alerts in find_alerts(replies).items():
                    after = alerts[:, DAYS_BEFORE_CHANGE:]
                    if rule in ("notice", "alarm"):  # these stay raised, so one before the change does not count
                        after = np.logical_and(after, ~alerts[:, :DAYS_BEFORE_CHANGE].any(axis=1, keepdims=True))
                    days = np.where(after.any(1), after.argmax(1) + 1, 99)
                    median = int(np.median(days))
                    cells.append("> 30" if median > MONTH_DAYS else str(median))
                print(f"| {world.name} | {prompts} × {repeats} | {drop:.0%} | {' | '.join(cells)} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print both tables; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--months", type=int, default=MONTHS)
    months = parser.parse_args(arguments).months
    began = time.monotonic()
    good = report_false_alarms(months)
    report_delays(min(months, DELAY_MONTHS))
    print(f"\n{time.monotonic() - began:.0f} s on 1 process.")
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
