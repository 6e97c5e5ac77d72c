"""Pairs of two runs in; the difference, its p-value and, at a level, its interval and verdict out.

The test does not depend on the level, so several comparisons are tested first and decided together afterwards.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from msgspec import Struct

from pramana.analyse.intervals import (
    Interval,
    align_with_test,
    cases_needed,
    mcnemar_p_value,
    sign_flip_p_value,
)
from pramana.analyse.mean_bounds import case_mean_interval
from pramana.analyse.pairing import Pair, split_variant

Verdict = Literal["regression", "improvement", "no_change", "inconclusive"]
Test = Literal["exact McNemar", "sign flips by case"]
MAX_COMMON_DENOMINATOR = 10**9
"""The largest common denominator of the cases' differences: where repeats vary, none fits all of them exactly."""


class Evidence(Struct, frozen=True):
    """The differences of the pairs, decided at a level."""

    difference: float | None
    """The mean over cases of each case's mean difference over its variants."""
    interval: Interval
    p_value: float
    alpha: float
    test: Test
    cases: int
    changed: int
    """How many cases changed in any variant."""
    differences: tuple[float, ...]
    """By case, its mean difference over its variants."""

    @property
    def is_significant(self) -> bool:
        """Whether the test rejects "no difference"."""
        return self.p_value <= self.alpha

    def verdict(self, margin: float) -> Verdict:
        """Return the verdict on these pairs; the worst case may overturn it."""
        if self.difference is None:
            return "inconclusive"
        if self.is_significant:
            return "regression" if self.difference < 0 else "improvement"
        return "no_change" if not self.changed or self.interval.is_within(margin) else "inconclusive"

    def count_needed_cases(self, margin: float) -> int | None:
        """Return about how many cases would detect a change as large as the margin; None for a margin of 0."""
        mean_square = (
            find_mean([each * each for each in self.differences]) or 0.0
        )  # with one reply, the share that flipped
        return cases_needed(margin, mean_square, alpha=self.alpha) if margin else None


class TestedPairs(Struct, frozen=True):
    """The differences of the pairs and their test, before a level is chosen."""

    difference: float | None
    p_value: float
    test: Test
    changed: int
    differences: tuple[float, ...]
    """By case, its mean difference over its variants."""

    def decide(self, alpha: float) -> Evidence:
        """Return the evidence at a level, with the interval that agrees with the test there."""
        interval = case_mean_interval(self.differences, -1.0, 1.0, confidence=1 - alpha)
        return Evidence(
            self.difference,
            align_with_test(interval, self.difference or 0.0, significant=self.p_value <= alpha),
            self.p_value,
            alpha,
            self.test,
            len(self.differences),
            self.changed,
            self.differences,
        )


def weigh_pairs(pairs: Sequence[Pair]) -> TestedPairs:
    """Test whether the pairs differ: by McNemar's test if each is a case with one reply, otherwise by sign flips."""
    units = group_pairs_by_case(pairs)
    is_case_each = len(units) == len(pairs)
    by_pair = [each.difference for each in pairs]
    differences = by_pair if is_case_each else [fmean(each.difference for each in variants) for variants in units]
    test: Test
    if is_case_each and all(each.repeats == 1 for each in pairs):
        lost, gained = differences.count(-1.0), differences.count(1.0)
        test, p_value = "exact McNemar", mcnemar_p_value(lost, gained)
    else:
        scale = min(
            math.lcm(*{each.repeats * len(variants) for variants in units for each in variants}), MAX_COMMON_DENOMINATOR
        )
        whole = [
            sum(
                round((each.new_passed - each.base_passed) * scale / (each.repeats * len(variants)))
                for each in variants
            )
            for variants in units
        ]
        test, p_value = "sign flips by case", sign_flip_p_value(whole)
    changed = sum(1 for variants in units if any(each.difference for each in variants))
    return TestedPairs(find_mean(differences), p_value, test, changed, tuple(differences))


def group_pairs_by_case(pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Return the pairs of each case, one a variant."""
    units: defaultdict[str, list[Pair]] = defaultdict(list)
    for each in pairs:
        units[split_variant(each.case)[0]].append(each)
    return list(units.values())


def find_mean(values: Sequence[float]) -> float | None:
    """Return the mean of some values; None without any."""
    return math.fsum(values) / len(values) if values else None
