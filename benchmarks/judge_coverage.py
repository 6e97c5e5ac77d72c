"""How often does a corrected pass rate cover the rate that people would have given? Simulated runs, seeded.

Each try draws a run (which replies are right, and what a judge that errs says of them), draws labels as `pramana judge
label` does (half among the judge's NO), and computes the corrected rate, the accuracy and kappa by the functions that
are shipped. Three ways are measured: labels of the run itself; labels of the run that were drawn by the verdicts of an
earlier judge; and labels of another run with the same judge, with 30 labels of the run itself. Beside them stands the
interval of the judge's pass rate alone. Bar: every coverage at least 94 %, less twice its standard error.
"""

import argparse
import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pramana.analyse import calibration
from pramana.analyse.calibration import (
    CorrectedRate,
    Stratum,
    correct_rate_of_strata,
    correct_rate_with_other_runs,
    count_labels_to_draw,
    measure_agreement_of_strata,
)
from pramana.analyse.intervals import Interval
from pramana.analyse.mean_bounds import rate_interval

SEED = 20_261_119
DRAWS = 1_000
"""Draws of each posterior: a quarter of those of the program, which changes an interval's ends by less than a point."""
REQUIRED_COVERAGE = 0.94
WAYS = ("judge alone", "own labels", "drawn by an earlier judge", "labels of another run", "accuracy", "kappa")


class Setting(NamedTuple):
    """A pass rate, a judge and a number of labels."""

    rate: float
    sensitivity: float
    specificity: float
    reply_count: int
    label_count: int


SETTINGS = tuple(
    Setting(*judge, *sizes)
    for judge in ((0.8, 0.9, 0.8), (0.9, 0.95, 0.7), (0.95, 0.95, 0.6), (0.6, 0.85, 0.85), (0.97, 0.98, 0.8))
    for sizes in ((75, 50), (300, 60), (300, 100), (1_000, 200))
)
Verdicts = Sequence[bool]


class Coverage:
    """Counts how often intervals cover the truth."""

    def __init__(self) -> None:
        self.shown = self.covered = self.tries = 0
        self.width = 0.0

    def add(self, interval: Interval | None, truth: float) -> None:
        self.tries += 1
        if interval is not None:
            self.shown += 1
            self.covered += interval.low <= truth <= interval.high
            self.width += interval.high - interval.low

    @property
    def share(self) -> float:
        return self.covered / self.shown if self.shown else math.nan

    @property
    def reaches_bar(self) -> bool:
        error = math.sqrt(REQUIRED_COVERAGE * (1 - REQUIRED_COVERAGE) / max(1, self.shown))
        return self.shown < 50 or self.share >= REQUIRED_COVERAGE - 2 * error

    def __str__(self) -> str:
        if self.shown < 50:
            return f"refused in {100 * (1 - self.shown / max(1, self.tries)):.0f} %"
        refused = f", refused {100 * (1 - self.shown / self.tries):.0f} %" if self.shown < self.tries else ""
        return f"{100 * self.share:.1f} % (width {self.width / self.shown:.2f}{refused})"


def _judge(rng: random.Random, truths: Verdicts, setting: Setting) -> list[bool]:
    return [rng.random() < (setting.sensitivity if truth else 1 - setting.specificity) for truth in truths]


def _draw(rng: random.Random, verdicts: Verdicts, count: int) -> set[int]:
    groups = [[at for at, verdict in enumerate(verdicts) if verdict is wanted] for wanted in (True, False)]
    numbers = count_labels_to_draw(len(groups[0]), len(groups[1]), count)
    return {at for group, number in zip(groups, numbers, strict=True) for at in rng.sample(group, number)}


def _make_strata(truths: Verdicts, verdicts: Verdicts, drawn_by: Verdicts, labelled: set[int]) -> list[Stratum]:
    keys = list(zip(verdicts, drawn_by, strict=True))
    return [
        Stratum(
            judge_passed=key[0],
            reply_count=keys.count(key),
            yes_labels=sum(keys[at] == key and truths[at] for at in labelled),
            no_labels=sum(keys[at] == key and not truths[at] for at in labelled),
        )
        for key in sorted(set(keys))
    ]


def simulate(setting: Setting, tries: int) -> dict[str, Coverage]:
    """Return how often each kind of interval covers the truth in simulated runs."""
    rng, found = random.Random(f"{SEED} {setting}"), {name: Coverage() for name in WAYS}
    rate, right, wrong = setting.rate, setting.sensitivity, 1 - setting.specificity
    passing = rate * right + (1 - rate) * wrong
    agreeing = rate * right + (1 - rate) * (1 - wrong)
    by_chance = passing * rate + (1 - passing) * (1 - rate)
    for _ in range(tries):
        truths = [rng.random() < rate for _ in range(setting.reply_count)]
        verdicts, earlier = _judge(rng, truths, setting), _judge(rng, truths, setting)
        alone = rate_interval(sum(verdicts), len(verdicts))
        found["judge alone"].add(alone, rate)
        own = _make_strata(truths, verdicts, verdicts, _draw(rng, verdicts, setting.label_count))
        found["own labels"].add(correct_rate_of_strata(own).interval, rate)
        if agreement := measure_agreement_of_strata(own):
            found["accuracy"].add(agreement.accuracy_interval, agreeing)
            found["kappa"].add(agreement.kappa_interval, (agreeing - by_chance) / (1 - by_chance))
        crossed = _make_strata(truths, verdicts, earlier, _draw(rng, earlier, setting.label_count))
        found["drawn by an earlier judge"].add(correct_rate_of_strata(crossed).interval, rate)
        found["labels of another run"].add(_correct_by_other_run(rng, setting, truths, verdicts).interval, rate)
    return found


def _correct_by_other_run(rng: random.Random, setting: Setting, truths: Verdicts, verdicts: Verdicts) -> CorrectedRate:
    """Correct a run with 30 labels of its own by another run, whose pass rate is 15 points lower."""
    other_truths = [rng.random() < setting.rate - 0.15 for _ in range(setting.reply_count)]
    other_verdicts = _judge(rng, other_truths, setting)
    other_drawn = _draw(rng, other_verdicts, setting.label_count)
    other = _make_strata(other_truths, other_verdicts, other_verdicts, other_drawn)
    own = _make_strata(truths, verdicts, verdicts, _draw(rng, verdicts, 30))
    return correct_rate_with_other_runs([other], own)


def _list_rows(tries: int, settings: Sequence[Setting]) -> Iterator[bool]:
    """Print a row per setting; yield whether its coverages reach the bar."""
    print("| pass rate, judge right on good and bad, replies, labels |", " | ".join(WAYS), "|")
    print("| --- |", " | ".join("---:" for _ in WAYS), "|", flush=True)
    for setting in settings:
        found = simulate(setting, tries)
        name = (
            f"{setting.rate:.0%}, {setting.sensitivity:.0%} and {setting.specificity:.0%}, {setting.reply_count}, "
            f"{setting.label_count}"
        )
        print(f"| {name} |", " | ".join(str(each) for each in found.values()), "|", flush=True)
        yield all(each.reaches_bar for way, each in found.items() if way != "judge alone")


def main() -> int:
    """Print the table; fail if a coverage misses the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=1_000, help="simulated runs per setting")
    tries = parser.parse_args().tries
    calibration.DRAWS = DRAWS
    began = time.perf_counter()
    reached = list(_list_rows(tries, SETTINGS))
    took = time.perf_counter() - began
    print(f"\n{tries:,} tries a setting, {took:.0f} s; {sum(reached)} of {len(reached)} settings reach the bar")
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
