"""How often does each interval that is shown cover the truth, in the worst of all settings? Enumerated or simulated.

One part per row of `analyse/interval_registry.py`. The first parts enumerate every possible outcome; the others draw
samples, with a fixed seed. Beside the pass rate, the usual alternatives are measured in the same way. Bar: 94 %.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, binom, norm, t  # type: ignore[import-untyped]

from pramana.analyse.calibration import LabelCounts, correct_rate, measure_agreement
from pramana.analyse.drift import (
    ALARM,
    BASELINE_DAYS,
    MIN_TOLERANCE,
    MONTH_DAYS,
    NOTICE,
    AlertLevel,
    iterate_change_statistics,
)
from pramana.analyse.interval_registry import REQUIRED_COVERAGE
from pramana.analyse.intervals import (
    Interval,
    align_with_test,
    mcnemar_p_value,
    median_interval,
    ratio_difference_interval,
    sign_flip_p_value,
    skewed_mean_interval,
)
from pramana.analyse.mean_bounds import case_mean_interval, rate_interval

SEED = 20_261_119
Numbers = npt.NDArray[Any]
Intervals = Sequence[Interval]


class Rate(NamedTuple):
    """So many of so many."""

    hits: int
    total: int


class Worst:
    """The lowest coverage so far, and its setting."""

    def __init__(self) -> None:
        self.coverage, self.setting = 1.0, ""

    def add(self, coverage: float, setting: str) -> None:
        if coverage < self.coverage:
            self.coverage, self.setting = coverage, setting


def _print_row(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


# ── A pass rate ──


def _find_lowest_coverage(intervals: Intervals, worst: Worst, *, one_sided: bool = False) -> None:
    """Note the coverage at the worst proportion: it falls only where an interval ends."""
    total = len(intervals) - 1
    low = np.array([each.low for each in intervals])
    high = np.ones(total + 1) if one_sided else np.array([each.high for each in intervals])
    ends = np.unique(np.clip(np.concatenate([low - 1e-9, low + 1e-9, high - 1e-9, high + 1e-9]), 0, 1))
    counts = np.arange(total + 1)
    for rates in np.array_split(ends, max(1, len(ends) * total // 1_000_000)):
        covered = (low <= rates[:, None]) & (rates[:, None] <= high)
        coverage = (binom.pmf(counts, total, rates[:, None]) * covered).sum(axis=1)
        worst.add(float(coverage.min()), f"{total} cases, rate {rates[coverage.argmin()]:.4f}")


def _mean_width(intervals: Intervals, rate: float) -> float:
    widths = [each.high - each.low for each in intervals]
    return float(binom.pmf(np.arange(len(widths)), len(widths) - 1, rate) @ np.array(widths))


def _wilson(total: int) -> Intervals:
    z, found = float(norm.ppf(0.975)), []
    for passed in range(total + 1):
        share, spread = passed / total, z * z / total
        centre = (share + spread / 2) / (1 + spread)
        half = z / (1 + spread) * math.sqrt(share * (1 - share) / total + spread / (4 * total))
        found.append(Interval(max(0.0, centre - half) if passed else 0.0, centre + half if passed < total else 1.0))
    return found


def _jeffreys(total: int) -> Intervals:
    passed = np.arange(total + 1) + 0.5
    low, high = beta.ppf(0.025, passed, total + 1 - passed), beta.ppf(0.975, passed, total + 1 - passed)
    low[0], high[-1] = 0, 1
    return [Interval(float(each), float(other)) for each, other in zip(low, high, strict=True)]


def _bisect(condition: Callable[[Numbers], Numbers], total: int) -> Numbers:
    low, high = np.zeros(total + 1), np.ones(total + 1)
    for _ in range(50):
        middle = (low + high) / 2
        holds = condition(middle)
        low, high = np.where(holds, middle, low), np.where(holds, high, middle)
    return low


def _mid_p(total: int) -> Intervals:
    passed = np.arange(total + 1)
    low = _bisect(lambda rate: binom.sf(passed, total, rate) + binom.pmf(passed, total, rate) / 2 <= 0.025, total)
    low[0] = 0
    return [Interval(float(each), 1 - float(other)) for each, other in zip(low, low[::-1], strict=True)]


def _shipped_rate(total: int) -> Intervals:
    return [rate_interval(passed, total) for passed in range(total + 1)]


def _measure_rates(sizes: Sequence[int]) -> Worst:
    _print_row("pass rate", "lowest coverage", "where", "mean width at 25 cases: rate 0.5", "0.9", "0.97")
    _print_row("---", "---:", "---", "---:", "---:", "---:")
    shipped = Worst()
    methods: dict[str, Callable[[int], Intervals]] = {
        "Clopper–Pearson (shipped)": _shipped_rate, "Wilson": _wilson, "mid-P": _mid_p, "Jeffreys": _jeffreys,
    }  # fmt: skip
    for name, method in methods.items():
        worst = shipped if method is _shipped_rate else Worst()
        for total in sizes:
            _find_lowest_coverage(method(total), worst)
        widths = [f"{_mean_width(method(25), rate):.3f}" for rate in (0.5, 0.9, 0.97)]
        _print_row(name, _percent(worst.coverage), worst.setting, *widths)
    return shipped


def _measure_lower_bounds(sizes: Sequence[int]) -> Worst:
    worst = Worst()
    for total in sizes:
        bounds = [rate_interval(passed, total, confidence=0.9) for passed in range(total + 1)]
        _find_lowest_coverage(bounds, worst, one_sided=True)
    return worst


# ── Several replies a case ──


def _draw_two_kinds(draw: np.random.Generator, cases: int, bad: float, good: float) -> Numbers:
    return np.where(draw.random(cases) < bad, 0.0, good)


def _draw_rates(draw: np.random.Generator, cases: int) -> Iterator[tuple[str, Callable[[], Numbers], float]]:
    """Yield worlds: the pass rates of the cases, and their mean over all imaginable cases."""
    yield "replies agree, 0.9", lambda: (draw.random(cases) < 0.9).astype(float), 0.9
    yield "replies agree, 0.5", lambda: (draw.random(cases) < 0.5).astype(float), 0.5
    yield "cases alike, 0.9", lambda: np.full(cases, 0.9), 0.9
    yield "beta(2.4, 0.6)", lambda: draw.beta(2.4, 0.6, cases), 0.8
    yield "beta(0.9, 0.1)", lambda: draw.beta(0.9, 0.1, cases), 0.9
    for bad, good in ((0.02, 0.99), (0.05, 0.98), (0.05, 0.9), (0.1, 0.98)):
        name = f"{bad:.0%} of cases always fail, others pass {good:.0%}"
        yield name, partial(_draw_two_kinds, draw, cases, bad, good), (1 - bad) * good


def _cluster_t_wilson(shares: Numbers, repeats: int) -> Interval:
    """Wilson's interval with an effective sample size from the spread between cases, and Student's quantile."""
    cases, mean = len(shares), float(shares.mean())
    spread = float(shares.var(ddof=1)) / cases
    size = min(max(mean * (1 - mean) / spread, 1), cases * repeats) if spread else cases * repeats
    z = float(t.ppf(0.975, cases - 1))
    centre = (mean + z * z / size / 2) / (1 + z * z / size)
    half = z / (1 + z * z / size) * math.sqrt(max(0.0, mean * (1 - mean)) / size + z * z / size / (4 * size))
    return Interval(centre - half, centre + half)


def _measure_repeats(rounds: int) -> Worst:
    """Compare the mean over cases with an interval that estimates the spread, and with cases as the only units."""
    draw = np.random.default_rng(SEED)
    _print_row(
        "cases × repeats", "world", "mean bounds", "width", "cluster-t-Wilson", "width", "one reply a case", "width"
    )
    _print_row("---", "---", "---:", "---:", "---:", "---:", "---:", "---:")
    worst = Worst()
    for cases, repeats in ((6, 5), (10, 5), (25, 5), (25, 20), (75, 5)):
        for world, rates, truth in _draw_rates(draw, cases):
            found: list[list[Interval]] = [[], [], []]
            for _ in range(rounds):
                shares = draw.binomial(repeats, rates()) / repeats
                found[0].append(case_mean_interval(shares.tolist()))
                found[1].append(_cluster_t_wilson(shares, repeats))
                found[2].append(rate_interval(float(shares.sum()), cases))
            cells = []
            for intervals in found:
                coverage = sum(each.low - 1e-6 <= truth <= each.high + 1e-6 for each in intervals) / rounds
                cells += [_percent(coverage), f"{sum(each.high - each.low for each in intervals) / rounds:.3f}"]
                if intervals is found[0]:
                    worst.add(coverage, f"{cases} × {repeats}, {world}")
            _print_row(f"{cases} × {repeats}", world, *cells)
    return worst


# ── Differences ──


def _measure_differences(sizes: Sequence[int]) -> Worst:
    worst = Worst()
    for cases in sizes:
        tables = [(lost, gained) for lost in range(cases + 1) for gained in range(cases + 1 - lost)]
        by_table: dict[tuple[int, int], Interval] = {}
        for table in tables:
            values = [-1.0] * table[0] + [1.0] * table[1] + [0.0] * (cases - sum(table))
            found, significant = case_mean_interval(values, -1.0, 1.0), mcnemar_p_value(*table) <= 0.05
            by_table[table] = align_with_test(found, table[1] - table[0], significant=significant)
        low, high = (np.array([getattr(by_table[each], end) for each in tables]) for end in ("low", "high"))
        lost, gained = (np.array([each[side] for each in tables]) for side in (0, 1))
        same = cases - lost - gained
        factorial = np.cumsum(np.log(np.maximum(1, np.arange(cases + 1))))
        ways = factorial[cases] - factorial[lost] - factorial[gained] - factorial[same]
        ends = np.unique(np.round(np.concatenate([low, high]), 6))
        for flipping in np.unique(
            [0.2 / cases, 0.5 / cases, 1 / cases, 2 / cases, 3 / cases, 6 / cases, *np.linspace(0.02, 1, 25)]
        ):
            near = ends[(ends <= 0) & (ends >= -flipping)][:: max(1, len(ends) // 60)]
            for truth in (*np.linspace(-flipping, 0, 15), *(near - 2e-6), *(near + 2e-6)):
                loss, gain = (flipping - truth) / 2, (flipping + truth) / 2
                if flipping > 1 or gain < 0:
                    continue
                with np.errstate(divide="ignore", invalid="ignore"):
                    logs = [
                        np.where(count > 0, count * np.log(share), 0)
                        for count, share in ((lost, loss), (gained, gain), (same, max(0.0, 1 - loss - gain)))
                    ]
                chances = np.exp(ways + logs[0] + logs[1] + logs[2])
                covered = (low - 1e-6 <= truth) & (truth <= high + 1e-6)
                worst.add(float(chances[covered].sum()), f"{cases} cases, loss {loss:.4f}, gain {gain:.4f}")
    return worst


def _measure_repeated_differences(rounds: int) -> Worst:
    """Logits of the cases are normal; the new model's are lower by a drop that may differ from case to case."""
    draw, worst = np.random.default_rng(SEED), Worst()
    for cases in (6, 10, 25, 75):
        for repeats in (3, 20):
            for drop, spread, agree in ((0, 0, 0), (0.35, 0, 0), (0.8, 0.5, 0), (0, 1, 0), (0.5, 0, 1)):
                covered = 0
                big = draw.normal(2.5, 2, 200_000)
                moved = big - drop - draw.normal(0, spread, 200_000)
                truth = float(np.mean(1 / (1 + np.exp(-moved)) - 1 / (1 + np.exp(-big))))
                for _ in range(rounds):
                    logits = draw.normal(2.5, 2, cases)
                    before, after = (
                        1 / (1 + np.exp(-each)) for each in (logits, logits - drop - draw.normal(0, spread, cases))
                    )
                    if agree:
                        whole = repeats * (
                            (draw.random(cases) < after).astype(int) - (draw.random(cases) < before).astype(int)
                        )
                    else:
                        whole = draw.binomial(repeats, after) - draw.binomial(repeats, before)
                    found = align_with_test(
                        case_mean_interval((whole / repeats).tolist(), -1.0, 1.0),
                        float(whole.sum()),
                        significant=sign_flip_p_value([int(each) for each in whole]) <= 0.05,
                    )
                    covered += found.low <= truth <= found.high
                worst.add(covered / rounds, f"{cases} × {repeats}, drop {drop} ± {spread}, agree {agree}")
    return worst


# ── Times, words, scores, judges ──


def _measure_medians() -> Worst:
    worst = Worst()
    for cases in range(6, 1001):
        found = median_interval([(float(place), float(place)) for place in range(cases)])
        dropped = round(found.low) + 1 if found else 0  # the rank of the lower end
        worst.add(1 - 2 * float(binom.cdf(dropped - 1, cases, 0.5)), f"{cases} cases")
    return worst


def _measure_word_errors(rounds: int) -> Worst:
    draw, worst = np.random.default_rng(SEED), Worst()
    lengths: dict[str, Callable[[int], Numbers]] = {
        "equal length": lambda cases: np.full(cases, 12),
        "geometric length": lambda cases: draw.geometric(1 / 12, cases) + 1,
        "one ten times as long": lambda cases: np.array([80] + [8] * (cases - 1)),
    }
    for cases in (6, 10, 20, 50):
        for name, words_of in lengths.items():
            for base, more, size in ((0.05, 0, 1), (0.1, 0, 2), (0.1, 0.05, 3), (0.3, 0, 5)):
                big = draw.beta(base * size, (1 - base) * size, 500_000)
                truth = float(np.mean(np.clip(big + more, 0, 1) - big))
                covered = shown = 0
                for _ in range(rounds):
                    words = words_of(cases)
                    rates = draw.beta(base * size, (1 - base) * size, cases)
                    old, new = draw.binomial(words, rates), draw.binomial(words, np.clip(rates + more, 0, 1))
                    rows = [(int(a), int(w), int(b), int(w)) for a, b, w in zip(old, new, words, strict=True)]
                    found = ratio_difference_interval(rows)
                    if found:
                        shown += 1
                        covered += found.low - 1e-12 <= truth <= found.high + 1e-12
                worst.add(covered / max(1, shown), f"{cases} cases, {name}, rate {base} + {more}")
    return worst


def _measure_scores(rounds: int) -> Worst:
    draw, worst = np.random.default_rng(SEED), Worst()
    clipped = float(np.clip(np.round(9 + 1.5 * draw.normal(size=2_000_000)), 1, 10).mean())
    worlds: dict[str, tuple[Callable[[int], Numbers], float]] = {
        "normal": (lambda n: draw.normal(size=n), 0.0),
        "uniform": (draw.random, 0.5),
        "t with 3 degrees": (lambda n: draw.standard_t(3, n), 0.0),
        "exponential": (lambda n: draw.exponential(size=n), 1.0),
        "beta(4.5, 0.5)": (lambda n: draw.beta(4.5, 0.5, n), 0.9),
        "ratings around 9 of 10": (lambda n: np.clip(np.round(9 + 1.5 * draw.normal(size=n)), 1, 10), clipped),
    }
    for cases in (8, 10, 15, 25, 50, 100):
        for name, (sample, truth) in worlds.items():
            covered = shown = 0
            for _ in range(rounds):
                values = sample(cases)
                variance = float(values.var(ddof=1))
                centred = values - values.mean()
                cubes, squares = float((centred**3).sum()), float((centred**2).sum())
                lean = (
                    math.sqrt(cases) * cubes / squares**1.5 * math.sqrt(cases * (cases - 1)) / (cases - 2)
                    if squares
                    else 0
                )
                found = skewed_mean_interval(cases, float(values.mean()), variance, lean)
                if found:
                    shown += 1
                    covered += found.low <= truth <= found.high
            worst.add(covered / max(1, shown), f"{cases} cases, {name}")
    return worst


def _measure_judges(rounds: int) -> Worst:
    draw, worst = np.random.default_rng(SEED), Worst()
    for rate, right, wrong, labelled in (
        (0.8, 0.95, 0.15, 100),
        (0.9, 0.9, 0.2, 60),
        (0.5, 0.8, 0.2, 80),
        (0.95, 0.98, 0.1, 200),
    ):
        covered, shown = [0, 0, 0], [0, 0, 0]
        says_yes = rate * right + (1 - rate) * wrong
        agree = rate * right + (1 - rate) * (1 - wrong)
        chance = says_yes * rate + (1 - says_yes) * (1 - rate)
        truths = (rate, agree, (agree - chance) / (1 - chance))
        for _ in range(rounds):
            good = draw.random(300) < rate
            yes = np.where(good, draw.random(300) < right, draw.random(300) < wrong)
            picked = np.concatenate(
                [
                    draw.permutation(np.flatnonzero(yes))[: labelled // 2],
                    draw.permutation(np.flatnonzero(~yes))[: labelled // 2],
                ]
            )
            counts = [
                int(((yes == said) & (good == true))[picked].sum()) for said, true in ((1, 1), (1, 0), (0, 1), (0, 0))
            ]
            labels = LabelCounts(*counts)
            corrected, agreement = (
                correct_rate(labels, int(yes.sum()), 300),
                measure_agreement(labels, int(yes.sum()), 300),
            )
            intervals = (
                corrected.interval,
                agreement.accuracy_interval if agreement else None,
                agreement.kappa_interval if agreement else None,
            )
            for at, found in enumerate(intervals):
                if found:
                    shown[at] += 1
                    covered[at] += found.low <= truths[at] <= found.high
        for at, name in enumerate(("corrected rate", "accuracy", "kappa")):
            if shown[at] > rounds / 4:
                worst.add(covered[at] / shown[at], f"{name}, rate {rate}, {labelled} labels")
    return worst


# ── The first day of a change ──

CHANGES = ((0.05, 0.02), (0.08, 0.04), (0.12, 0.05), (0.14, 0.06), (0.2, 0.05), (0.2, 0.1), (0.3, 0.1))
"""The drop of a share, and the standard deviation of a day."""


def measure_first_days(
    level: AlertLevel, change: tuple[float, float], quiet: int, rounds: int, *, heavy_tails: bool
) -> Rate:
    """Return in how many simulated changes that reach a level the true first day is in its interval at that moment."""
    draw = np.random.default_rng(SEED)
    drop, deviation = change
    first, covered, seen = BASELINE_DAYS + quiet, 0, 0
    for _ in range(rounds):
        days = first + MONTH_DAYS
        noise = draw.standard_t(3, days) / math.sqrt(3) if heavy_tails else draw.normal(size=days)
        scores = noise * deviation + drop * (np.arange(len(noise)) >= first)
        spread = float(np.std(scores[:BASELINE_DAYS], ddof=1))
        tolerance = MIN_TOLERANCE if level is NOTICE else max(MIN_TOLERANCE, spread)
        statistics = iterate_change_statistics(map(float, scores), BASELINE_DAYS, tolerance)
        for day, found in enumerate(statistics, BASELINE_DAYS):
            if found.value >= level.threshold:
                if day >= first:
                    low, high = found.likeliest_first_days() or (0, 0)
                    seen, covered = seen + 1, covered + (low <= first <= high)
                break
    return Rate(covered, seen)


def _measure_first_days(rounds: int) -> Worst:
    worst = Worst()
    for level, heavy_tails, change, quiet in product((NOTICE, ALARM), (False, True), CHANGES, (5, 20)):
        covered, seen = measure_first_days(level, change, quiet, rounds, heavy_tails=heavy_tails)
        if seen >= rounds // 4:
            world = f"{'t' if heavy_tails else 'normal'} days, drop {change[0]}, sd {change[1]}, after {quiet} days"
            worst.add(covered / seen, f"{level.name}, {world}, {seen} changes")
    return worst


def main() -> int:
    """Print all tables; fail if a coverage is below the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few settings, for a first look")
    parser.add_argument("--first-days", action="store_true", help="only the first day of a change")
    sizes: Sequence[int] = (*range(5, 101), 150, 200, 300, 500, 750, 1000)
    pairs: Sequence[int] = (5, 6, 8, 10, 15, 25, 50, 75, 100)
    rounds = 2_000
    options = parser.parse_args()
    if options.first_days:
        worst = _measure_first_days(rounds // 4)
        _print_row("first day of a change", _percent(worst.coverage), worst.setting)
        return 0 if worst.coverage >= REQUIRED_COVERAGE - 0.0005 else 1
    if options.quick:
        sizes, pairs, rounds = (5, 10, 25, 75), (6, 25), 200
    results = {"pass rate": _measure_rates(sizes), "lower bound of a pass rate": _measure_lower_bounds(sizes)}
    print()
    results["pass rate with repeats"] = _measure_repeats(rounds)
    results["difference of pass rates"] = _measure_differences(pairs)
    results["difference with repeats"] = _measure_repeated_differences(rounds // 2)
    results["median of differences in time"] = _measure_medians()
    results["difference of word error rates"] = _measure_word_errors(rounds)
    results["mean of scores"] = _measure_scores(rounds)
    results["judges"] = _measure_judges(rounds // 8)
    results["first day of a change"] = _measure_first_days(rounds // 4)
    print()
    _print_row("interval", "lowest coverage", "setting")
    _print_row("---", "---:", "---")
    for name, worst in results.items():
        _print_row(name, _percent(worst.coverage), worst.setting)
    return 0 if all(worst.coverage >= REQUIRED_COVERAGE - 0.0005 for worst in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
