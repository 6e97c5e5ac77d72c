"""How often does the drift rule raise a false alarm, and how late is a true one? Simulated months, seeded.

Every number here is simulated: endpoints with fixed prompts whose logits move from day to day although the model stays
the same. Bars: in 10,000 months a world, the Clopper-Pearson upper bound (one-sided 95 %) of months with an alarm is at
most 0.3 %, with a notice at most 1 %; in 1,000 years of two worlds at most 12 % have an alarm; each median delay is at
most one day above the one in the research notes; with 30 % of a public watch's contributors lying, at most 1 % of
months have an alarm. Worlds whose days resemble their neighbours are reported without a bar: the theorem does not cover
them.

The rule is `pramana.analyse.drift` in numpy, over many months at once, and is first compared with the shipped function
on 1,000 months. Months with missing days, and the answers to border prompts, go through the shipped function itself.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta  # type: ignore[import-untyped]

from pramana.analyse.drift import (
    ALARM,
    BASELINE_DAYS,
    LEHMANN_EXPONENTS,
    MAX_CANDIDATE_DAYS,
    MAX_RANK_CORRELATION,
    MIN_TOLERANCE,
    MONTH_DAYS,
    NOTICE,
    combine_contributor_statistics,
    iterate_change_statistics,
    measure_change_statistic,
    next_day_rank_correlation,
)
from pramana.analyse.instruments import (
    BORDER_VARIANT,
    INSTRUMENTS,
    REFERENCE_DAYS,
    DayFeatures,
    MeasuredDay,
    PromptDay,
    score_days,
)

Floats = NDArray[np.float64]
MONTHS, YEARS, EQUAL_MONTHS, CHUNK = 10_000, 1_000, 1_000, 2_500
MEAN_LOGIT, PROMPT_SD = 2.5, 2.0
"""Of the simulated prompts: most are passed nearly always, some hardly ever."""


class World(NamedTuple):
    """How an unchanged endpoint's days differ from each other."""

    name: str
    kind: str
    sd: float
    is_exchangeable: bool = True
    missing: float = 0.0


WORLDS = (
    World("days alike", "iid", 0.0),
    World("day sd 0.5", "iid", 0.5),
    World("day sd 1", "iid", 1.0),
    World("t₃ days, sd 1", "t3", 1.0),
    World("10 % bad days", "bad", 0.5),
    World("30 % missing, sd 0.5", "iid", 0.5, missing=0.3),
    World("weekly cycle, sd 1", "week", 1.0, is_exchangeable=False),
    World("AR 0.5, sd 0.5", "ar0.5", 0.5, is_exchangeable=False),
    World("AR 0.65, sd 0.5", "ar0.65", 0.5, is_exchangeable=False),
    World("AR 0.8, sd 0.5", "ar0.8", 0.5, is_exchangeable=False),
)
DESIGNS = ((25, 1), (75, 5))
"""Prompts, and calls to each a day."""
DELAYS: dict[tuple[int, int, float, float], tuple[int, int]] = {
    (10, 1, 0.5, 0.2): (12, 99),
    (25, 1, 0.0, 0.1): (25, 99),
    (25, 1, 0.0, 0.2): (5, 8),
    (25, 5, 0.5, 0.1): (14, 99),
    (25, 5, 0.5, 0.2): (5, 10),
    (75, 1, 0.0, 0.1): (7, 12),
    (75, 1, 0.0, 0.2): (4, 6),
    (75, 5, 0.0, 0.1): (4, 6),
    (75, 5, 0.0, 0.2): (4, 6),
    (75, 5, 0.5, 0.1): (13, 99),
    (75, 5, 0.5, 0.2): (4, 9),
    (75, 5, 1.0, 0.2): (11, 99),
}
"""By prompts, calls, day sd and drop: the notes' median days until a notice and an alarm; 99 is over 30."""
MISSING_DELAY = 8
"""The notes' calendar days until a notice with 30 % of the days missing."""
BORDER_PROMPTS, BORDER_CALLS, BORDER_SD, ANSWERS_BASELINE, ANSWERS_EQUAL_MONTHS = 20, 10, 0.7, 21, 100
ANSWERS_TOLERANCE, ANSWERS_SHIFT, ANSWERS_DELAY = INSTRUMENTS["answers"].min_tolerance, 3.0, 4
"""The tolerance of the instrument; of the notes, the shift in logits whose total variation is 0.43, and days until a
notice."""


# ── The simulated endpoint ──


def sigmoid(logits: Floats) -> Floats:
    """Return the probability of each logit."""
    return np.asarray(1 / (1 + np.exp(-logits)))


def day_effects(rng: np.random.Generator, months: int, days: int, kind: str, sd: float) -> Floats:
    """Return what each day adds to the logits of every prompt."""
    if sd == 0:
        return np.zeros((months, days))
    if kind == "iid":
        return np.asarray(rng.normal(0, sd, (months, days)))
    if kind == "t3":
        return np.asarray(rng.standard_t(3, (months, days)) * sd / np.sqrt(3))
    if kind == "bad":
        return rng.normal(0, sd, (months, days)) - 2.0 * (rng.random((months, days)) < 0.1)
    if kind == "week":
        pattern = np.array([1, 1, 1, 1, 1, -2.5, -2.5])
        cycle = (pattern / pattern.std())[(np.arange(days)[None, :] + rng.integers(0, 7, (months, 1))) % 7]
        return np.asarray(sd * (0.8 * cycle + 0.6 * rng.normal(0, 1, (months, days))))
    correlation = float(kind.removeprefix("ar"))
    effects = np.empty((months, days))
    effects[:, 0] = rng.normal(0, sd, months)
    steps = rng.normal(0, sd * np.sqrt(1 - correlation**2), (months, days))
    for day in range(1, days):
        effects[:, day] = correlation * effects[:, day - 1] + steps[:, day]
    return effects


def shift_for_drop(logits: Floats, sd: float, drop: float) -> Floats:
    """Return by how much each month's logits must fall for its pass rate to lose `drop`, over the day effects."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(21)
    weights /= weights.sum()

    def rate(shift: Floats) -> Floats:
        return np.asarray((sigmoid(logits[:, :, None] - shift[:, None, None] + sd * nodes) @ weights).mean(1))

    low, high = np.zeros(len(logits)), np.full(len(logits), 12.0)
    before = rate(low)
    for _ in range(30):
        middle = (low + high) / 2
        is_less = before - rate(middle) < drop
        low, high = np.where(is_less, middle, low), np.where(is_less, high, middle)
    return np.asarray((low + high) / 2)


class Months(NamedTuple):
    """Scores of many months, the baseline's days first, and the tolerance of their alarms."""

    scores: Floats
    tolerance: Floats
    ends_of_baseline: NDArray[np.int64]
    """By month, the first day after the baseline."""
    is_present: NDArray[np.bool_]
    """By month and day: whether the day was measured."""

    def present_scores(self, month: int) -> list[tuple[int, float]]:
        """Return the scores of a month's measured days, each with its day, counted from 1 after the baseline."""
        days = np.flatnonzero(self.is_present[month])
        return [(int(day - self.ends_of_baseline[month] + 1), float(self.scores[month, day])) for day in days]


def simulate(
    rng: np.random.Generator,
    months: int,
    prompts: int,
    repeats: int,
    days: int,
    world: World,
    *,
    drop: float = 0.0,
    changed_after: int = 0,
) -> Months:
    """Return months of failure shares of an endpoint that, with a `drop`, changes some days after the baseline."""
    logits = rng.normal(MEAN_LOGIT, PROMPT_SD, (months, prompts))
    total = days + (BASELINE_DAYS if not world.missing else 3 * BASELINE_DAYS)
    is_present = rng.random((months, total)) >= world.missing if world.missing else np.ones((months, total), bool)
    is_baseline = is_present & (is_present.cumsum(1) <= BASELINE_DAYS)
    ends = total - is_baseline[:, ::-1].argmax(1)
    effects = day_effects(rng, months, total, world.kind, world.sd)
    shift = shift_for_drop(logits, world.sd, drop) if drop else np.zeros(months)
    scores, passed = np.empty((months, total)), np.zeros((months, prompts))
    for day in range(total):
        is_changed = day >= ends + changed_after
        rate = sigmoid(logits + effects[:, day, None] - (shift * is_changed)[:, None])
        shares = rng.binomial(repeats, rate) / repeats
        scores[:, day] = 1 - shares.mean(1)
        passed += shares * is_baseline[:, day, None]
    rates = passed / BASELINE_DAYS
    by_calls = (rates * (1 - rates)).sum(1) / prompts**2 / repeats * BASELINE_DAYS / (BASELINE_DAYS - 1)
    of_baseline = scores[is_baseline].reshape(months, BASELINE_DAYS)
    day_sd = np.sqrt(np.maximum(0, of_baseline.var(1, ddof=1) - by_calls))
    scores += rng.uniform(-0.5, 0.5, scores.shape) / (prompts * repeats)
    return Months(scores, np.maximum(MIN_TOLERANCE, day_sd), ends, is_present)


# ── The rule, over many months at once ──


def statistics(scores: Floats, tolerance: Floats, baseline_days: int = BASELINE_DAYS) -> Floats:
    """Return the statistic of each day after the baseline, of each month."""
    months, total = scores.shape
    found = np.zeros((months, total - baseline_days))
    for count in range(baseline_days + 1, total + 1):
        ranks = np.arange(1, count + 1)[None, :]
        log_orders = np.log(ranks).sum()
        for first in range(max(baseline_days, count - MAX_CANDIDATE_DAYS), count):
            shifted = scores[:, :count].copy()
            shifted[:, first:] -= tolerance[:, None]
            later = np.cumsum(np.argsort(shifted, 1) >= first, 1)
            for shift in LEHMANN_EXPONENTS:
                log_ratio = log_orders + (count - first) * np.log(shift) - np.log(ranks + (shift - 1) * later).sum(1)
                found[:, count - baseline_days - 1] += np.exp(log_ratio) / len(LEHMANN_EXPONENTS)
    return found


def rank_correlations(scores: Floats) -> Floats:
    """Return the rank correlation of each month's baseline days with the next ones."""
    ranks = scores[:, :BASELINE_DAYS].argsort(1).argsort(1) - (BASELINE_DAYS - 1) / 2
    return np.asarray((ranks[:, 1:] * ranks[:, :-1]).sum(1) / (ranks * ranks).sum(1))


def upper_bound(count: int, total: int) -> float:
    """Return the one-sided 95 % Clopper-Pearson bound of a share."""
    return float(beta.ppf(0.95, count + 1, total - count)) if count < total else 1.0


class FirstDays(NamedTuple):
    """The first days after the baseline with a notice and with an alarm, by the calendar."""

    notice: int | None
    alarm: int | None
    can_alarm: bool


def find_first_days(months: Months, month: int, days: int) -> FirstDays:
    """Return when the shipped rule reaches its levels within so many calendar days after the baseline."""
    measured = [each for each in months.present_scores(month) if each[0] <= days]
    scores = [score for _, score in measured]
    can_alarm = next_day_rank_correlation(scores[:BASELINE_DAYS]) <= MAX_RANK_CORRELATION
    reached = []
    for level, tolerance in ((NOTICE, MIN_TOLERANCE), (ALARM, float(months.tolerance[month]))):
        found = iterate_change_statistics(scores, BASELINE_DAYS, tolerance)
        later = (day for day, _ in measured[BASELINE_DAYS:])
        reached.append(
            next((day for day, each in zip(later, found, strict=True) if each.value >= level.threshold), None)
        )
    return FirstDays(reached[0], reached[1] if can_alarm else None, can_alarm)


class FalseAlarms(NamedTuple):
    """Of some months: those with a notice, with an alarm, and those that could not tell."""

    months: int
    notices: int
    alarms: int
    untold: int

    def __add__(self, other: Any) -> "FalseAlarms":
        return FalseAlarms(*(one + another for one, another in zip(self, other, strict=True)))


def count_false_alarms(seed: int, months: int, prompts: int, repeats: int, world: World, days: int) -> FalseAlarms:
    """Return how many unchanged months had a notice or an alarm."""
    rng = np.random.default_rng(seed)
    made = simulate(rng, months, prompts, repeats, days, world)
    if world.missing:
        found = [find_first_days(made, month, days) for month in range(months)]
        return FalseAlarms(
            months,
            sum(each.notice is not None for each in found),
            sum(each.alarm is not None for each in found),
            sum(not each.can_alarm for each in found),
        )
    can_alarm = rank_correlations(made.scores) <= MAX_RANK_CORRELATION
    notice = np.full(months, MIN_TOLERANCE)
    notices = statistics(made.scores, notice).max(1) >= NOTICE.threshold
    alarms = (statistics(made.scores, made.tolerance).max(1) >= ALARM.threshold) & can_alarm
    return FalseAlarms(months, int(notices.sum()), int(alarms.sum()), int((~can_alarm).sum()))


# ── The tables ──


def report_false_alarms(pool: ProcessPoolExecutor, months: int, only: str = "") -> bool:
    """Print months with false alarms by world and design; return whether all bars hold."""
    print(f"\n### False alarms in {months:,} simulated months a row\n")
    print(
        "| world | prompts × calls | notices (bound) | alarms (bound) | cannot tell |",
        "| --- | --- | --: | --: | --: |",
        sep="\n",
    )
    good = True
    for row, world in enumerate(WORLDS):
        for column, (prompts, repeats) in enumerate(DESIGNS if only in world.name else ()):
            chunks = [min(CHUNK, months - at) for at in range(0, months, CHUNK)]
            jobs = [
                pool.submit(
                    count_false_alarms, 1_000 * row + 100 * column + at, size, prompts, repeats, world, MONTH_DAYS
                )
                for at, size in enumerate(chunks)
            ]
            total = FalseAlarms(0, 0, 0, 0)
            for job in jobs:
                total = job.result() + total
            notices, alarms = upper_bound(total.notices, months), upper_bound(total.alarms, months)
            holds = not world.is_exchangeable or (notices <= 0.01 and alarms <= 0.003)
            good &= holds
            print(
                f"| {world.name} | {prompts} × {repeats} | {total.notices / months:.2%} (≤ {notices:.2%}) | "
                f"{total.alarms / months:.2%} (≤ {alarms:.2%}) | {total.untold / months:.1%} |"
                + ("" if holds else " **missed**"),
                flush=True,
            )
    return good


def report_years(pool: ProcessPoolExecutor, years: int) -> bool:
    """Print years with false alarms in two worlds; return whether the bar holds."""
    print(
        f"\n### {years:,} simulated years\n\n| world | years with a notice | years with an alarm |",
        "| --- | --: | --: |",
        sep="\n",
    )
    good = True
    for row, world in enumerate((WORLDS[1], WORLDS[3])):
        jobs = [
            pool.submit(count_false_alarms, 50_000 + 100 * row + at, years // 4, 25, 1, world, 365) for at in range(4)
        ]
        total = FalseAlarms(0, 0, 0, 0)
        for job in jobs:
            total = job.result() + total
        share = total.alarms / total.months
        good &= share <= 0.12
        print(f"| {world.name} | {total.notices / total.months:.1%} | {share:.1%} |", flush=True)
    return good


def median_delays(
    seed: int, months: int, prompts: int, repeats: int, sd: float, drop: float
) -> tuple[int, int, float, float]:
    """Return the median days until a notice and until an alarm (99: over 30), and the share seen within 30 days."""
    before = 5
    rng = np.random.default_rng(seed)
    world = World("", "iid", sd)
    made = simulate(rng, months, prompts, repeats, before + MONTH_DAYS + 1, world, drop=drop, changed_after=before)
    can_alarm = rank_correlations(made.scores) <= MAX_RANK_CORRELATION
    found: list[float] = []
    for tolerance, level, may in (
        (np.full(months, MIN_TOLERANCE), NOTICE, np.ones(months, bool)),
        (made.tolerance, ALARM, can_alarm),
    ):
        reached = statistics(made.scores, tolerance) >= level.threshold
        first = np.where(reached.any(1) & may, reached.argmax(1) + 1, 0)
        delay = np.where(first > before, first - before, 99)
        found += [float(np.median(delay)), float((delay <= MONTH_DAYS).mean())]
    return int(found[0]), int(found[2]), found[1], found[3]


def report_delays(pool: ProcessPoolExecutor, months: int) -> bool:
    """Print the median delay of true changes; return whether none is over a day slower than in the notes."""
    print(f"\n### Days until a change is seen, median of {months:,} simulated months\n")
    print(
        "| prompts × calls | day sd | drop | notice (seen in 30 days) | alarm |",
        "| --- | --: | --: | --: | --: |",
        sep="\n",
    )
    jobs = {cell: pool.submit(median_delays, 90_000 + at, months, *cell) for at, cell in enumerate(DELAYS)}
    good = True
    for cell, job in jobs.items():
        notice, alarm, by_notice, by_alarm = job.result()
        holds = notice <= DELAYS[cell][0] + 1 and alarm <= DELAYS[cell][1] + 1
        good &= holds
        prompts, repeats, sd, drop = cell
        print(
            f"| {prompts} × {repeats} | {sd:g} | {drop:.0%} | {_days(notice)} ({by_notice:.0%}) | "
            f"{_days(alarm)} ({by_alarm:.0%}) |" + ("" if holds else " **missed**"),
            flush=True,
        )
    return good


def missing_delay(seed: int, months: int, prompts: int, repeats: int, world: World, drop: float) -> list[int]:
    """Return the calendar days from a drop to a notice; 99 for over 30, or for one before the drop."""
    quiet = 5
    made = simulate(
        np.random.default_rng(seed), months, prompts, repeats, quiet + MONTH_DAYS, world, drop=drop, changed_after=quiet
    )
    found = [find_first_days(made, month, quiet + MONTH_DAYS).notice for month in range(months)]
    return [day - quiet if day is not None and day > quiet else 99 for day in found]


def report_missing_delays(pool: ProcessPoolExecutor, months: int) -> bool:
    """Print after how many calendar days a drop is noticed if days are missing; return whether the bar holds."""
    world = next(each for each in WORLDS if each.missing)
    job = pool.submit(missing_delay, 95_000, months, 75, 5, world, 0.2)
    days = job.result()
    middle, seen = int(np.median(days)), sum(day <= MONTH_DAYS for day in days) / months
    print(
        f"\nWith {world.missing:.0%} of the days missing at random, a drop of 20 points at 75 × 5 calls is noticed "
        f"after {_days(middle)} calendar days (median of {months:,} months; seen within 30 days in {seen:.0%})."
    )
    return middle <= MISSING_DELAY + 1


# ── Answers to border prompts ──


def simulate_answers(
    rng: np.random.Generator, months: int, days: int, sd: float, shift: float, changed_after: int
) -> Floats:
    """Return by month, day and prompt the share of calls with the first of two answers; the reference days come first.

    20 border prompts with two answers each, ten one-token calls to each a day. A day moves each prompt to one of its
    answers, a change to another one drawn by lot.
    """
    logits = rng.normal(0, BORDER_SD, (months, BORDER_PROMPTS))
    by_day, by_change = (rng.choice([-1.0, 1.0], logits.shape) for _ in range(2))
    effects = day_effects(rng, months, REFERENCE_DAYS + days, "iid", sd)
    found = []
    for day in range(REFERENCE_DAYS + days):
        moved = shift if day >= REFERENCE_DAYS + changed_after else 0.0
        rate = sigmoid(logits + by_day * effects[:, day, None] + by_change * moved)
        found.append(rng.binomial(BORDER_CALLS, rate) / BORDER_CALLS)
    return np.array(found).swapaxes(0, 1)


def total_variation(shares: Floats) -> Floats:
    """Return by month and day the total variation of the answers from those of the reference days."""
    reference = shares[:, :REFERENCE_DAYS].mean(1, keepdims=True)
    return np.asarray(np.abs(shares[:, REFERENCE_DAYS:] - reference).mean(2))


def compare_answers_with_shipped(months: int) -> float:
    """Return the largest difference between these scores and those of the instrument of a watch."""
    shares = simulate_answers(np.random.default_rng(7), months, ANSWERS_BASELINE + 5, 0.5, 1.0, ANSWERS_BASELINE)
    worst = 0.0
    for month, scores in enumerate(total_variation(shares).tolist()):
        days = [
            MeasuredDay(str(day), 0.0, DayFeatures(tuple(itertools.starmap(_make_border_day, enumerate(each)))))
            for day, each in enumerate(shares[month].tolist())
        ]
        shipped = score_days(INSTRUMENTS["answers"], days, ANSWERS_BASELINE).scores_without_tie_breaks
        worst = max(worst, *(abs(one - other) for one, other in zip(shipped, scores, strict=True)))
    return worst


def _make_border_day(prompt: int, share: float) -> PromptDay:
    first = round(share * BORDER_CALLS)
    answers = {"yes": first, "no": BORDER_CALLS - first}
    counts = {answer: count for answer, count in answers.items() if count}
    return PromptDay(
        str(prompt), str(prompt), BORDER_VARIANT, None, planned=BORDER_CALLS, answered=BORDER_CALLS, answers=counts
    )


def first_notice(scores: Sequence[float], baseline_days: int) -> int | None:
    """Return the first day after the baseline with a notice."""
    found = iterate_change_statistics(scores, baseline_days, ANSWERS_TOLERANCE)
    return next((day for day, each in enumerate(found, 1) if each.value >= NOTICE.threshold), None)


def count_answer_notices(seed: int, months: int, sd: float) -> int:
    """Return how many unchanged months have a notice."""
    made = simulate_answers(np.random.default_rng(seed), months, ANSWERS_BASELINE + MONTH_DAYS, sd, 0.0, 999)
    return sum(first_notice(days, ANSWERS_BASELINE) is not None for days in total_variation(made).tolist())


def report_answers(pool: ProcessPoolExecutor, months: int) -> bool:
    """Print false notices and the delay of the instrument of border prompts; return whether the bars hold."""
    print(
        f"\n### Answers to border prompts: {BORDER_PROMPTS} prompts × {BORDER_CALLS} calls a day\n",
        "| day sd | notices in unchanged months (bound) | total variation before → after | days until a notice |",
        "| --- | --: | --: | --: |",
        sep="\n",
    )
    worst = compare_answers_with_shipped(ANSWERS_EQUAL_MONTHS)
    good, quiet, tries = worst < 1e-9, 5, max(100, months // 20)
    for row, sd in enumerate((0.0, 0.5, 1.0)):
        chunks = [min(CHUNK, months - at) for at in range(0, months, CHUNK)]
        jobs = [pool.submit(count_answer_notices, 97_000 + 100 * row + at, size, sd) for at, size in enumerate(chunks)]
        rng, changed = np.random.default_rng(98_000 + row), ANSWERS_BASELINE + quiet
        made = total_variation(simulate_answers(rng, tries, changed + MONTH_DAYS, sd, ANSWERS_SHIFT, changed))
        first = [first_notice(days, ANSWERS_BASELINE) for days in made.tolist()]
        delays = [day - quiet if day is not None and day > quiet else 99 for day in first]
        middle, count = int(np.median(delays)), sum(job.result() for job in jobs)
        bound = upper_bound(count, months)
        holds = bound <= 0.01 and (sd > 0.5 or middle <= ANSWERS_DELAY + 1)
        good &= holds
        print(
            f"| {sd:g} | {count / months:.2%} (≤ {bound:.2%}) | {made[:, :changed].mean():.2f} → "
            f"{made[:, changed:].mean():.2f} | {_days(middle)} |" + ("" if holds else " **missed**"),
            flush=True,
        )
    print(
        f"\nThese scores differ by at most {worst:.1e} from those of the instrument `answers` of a watch, in "
        f"{ANSWERS_EQUAL_MONTHS} months."
    )
    return good


def report_liars(months: int) -> bool:
    """Print false alarms of a watch of ten contributors, three of whom lie; return whether the bar holds."""
    rng, contributors, liars = np.random.default_rng(70_000), 10, 3
    paths = np.empty((contributors, months, MONTH_DAYS))
    for each in range(contributors):
        made = simulate(rng, months, 25, 1, MONTH_DAYS, WORLDS[1])
        scores = made.scores
        if each < liars:
            scores[:, BASELINE_DAYS:] = 1.0 + rng.random((months, MONTH_DAYS)) / 100
        paths[each] = statistics(scores, made.tolerance)
    values = np.array(
        [
            [combine_contributor_statistics(paths[:, month, day].tolist()) for day in range(MONTH_DAYS)]
            for month in range(months)
        ]
    )
    alarms = int((values.max(1) >= ALARM.threshold).sum())
    print(
        f"\n### A public watch\n\n{contributors} simulated contributors, {liars} of whom report that all replies "
        f"failed as soon as the baseline ends: alarms in {alarms / months:.2%} of {months:,} months "
        f"(≤ {upper_bound(alarms, months):.2%})."
    )
    return alarms / months <= 0.01


def compare_with_shipped(months: int) -> float:
    """Return the largest relative difference between this file's statistic and the shipped function's."""
    made = simulate(np.random.default_rng(7), months, 25, 1, MONTH_DAYS, WORLDS[1])
    ours = statistics(made.scores, made.tolerance)[:, -1]
    worst = float(
        np.abs(
            rank_correlations(made.scores)
            - [next_day_rank_correlation(each[:BASELINE_DAYS]) for each in made.scores.tolist()]
        ).max()
    )
    for month, scores in enumerate(made.scores.tolist()):
        shipped = measure_change_statistic(scores, BASELINE_DAYS, float(made.tolerance[month])).value
        worst = max(worst, abs(shipped - ours[month]) / shipped)
    return worst


def _days(days: int) -> str:
    return "> 30" if days > MONTH_DAYS else str(days)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables; return 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--months", type=int, default=MONTHS)
    parser.add_argument("--only", choices=("missing", "answers"), help="only these rows")
    options = parser.parse_args(arguments)
    months, began = options.months, time.monotonic()
    if options.only:
        with ProcessPoolExecutor(2) as pool:
            if options.only == "missing":
                good = [report_false_alarms(pool, months, "missing"), report_missing_delays(pool, months // 10)]
            else:
                good = [report_answers(pool, months)]
        print(f"\n{time.monotonic() - began:.0f} s on 2 processes.")
        return int(not all(good))
    checked = min(months, EQUAL_MONTHS)
    worst = compare_with_shipped(checked)
    print(f"The shipped function and this file differ by at most {worst:.1e} (relative) on {checked:,} months.")
    with ProcessPoolExecutor(2) as pool:
        good = [
            worst < 1e-9,
            report_delays(pool, max(100, months // 10)),
            report_false_alarms(pool, months),
            report_missing_delays(pool, max(100, months // 10)),
            report_answers(pool, months),
            report_liars(max(100, months // 10)),
            report_years(pool, max(40, months // 10)),
        ]
    print(f"\n{time.monotonic() - began:.0f} s on 2 processes.")
    return int(not all(good))


if __name__ == "__main__":
    sys.exit(main())
