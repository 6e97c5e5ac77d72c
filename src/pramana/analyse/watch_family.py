"""Several watches side by side: their statistics in, p-values that hold for all of them together out.

One watch has at most 1 % false notices a month, so a hundred watches have up to one a month although no model changed.
Which of them stand out is decided by p-values, adjusted so that at most 5 % of those named are expected to be false.
"""

import math
from collections.abc import Sequence

from pramana.analyse.drift import NOTICE

MAX_FALSE_DISCOVERY_RATE = 0.05
"""The largest expected share of false ones among the watches that stand out."""


def bound_p_value(highest_statistic: float, instrument_count: int, days: int) -> float:
    """Return the largest share of unchanged watches with such a statistic on any day, if days are exchangeable.

    `highest_statistic` is the highest of all instruments on all `days` since the baseline: each instrument's reaches A
    with a probability of at most days / A.

    >>> bound_p_value(6_000.0, 2, 30), bound_p_value(0.4, 2, 30)
    (0.01, 1.0)
    """
    return min(1.0, instrument_count * days / highest_statistic) if highest_statistic > 0 else 1.0


def adjust_for_false_discoveries(p_values: Sequence[float]) -> list[float]:
    """Return the p-values adjusted as by Benjamini and Yekutieli, which holds however the watches depend on each other.

    Watches of one vendor share its bad days, so their statistics are not independent.

    >>> [round(each, 4) for each in adjust_for_false_discoveries([0.001, 0.04, 0.5])]
    [0.0055, 0.11, 0.9167]
    """
    count = len(p_values)
    penalty = math.fsum(1 / rank for rank in range(1, count + 1))
    adjusted, smallest = [1.0] * count, 1.0
    order = sorted(range(count), key=p_values.__getitem__, reverse=True)
    for rank, at in zip(range(count, 0, -1), order, strict=True):
        smallest = min(smallest, penalty * count * p_values[at] / rank)
        adjusted[at] = smallest
    return adjusted


def expect_false_notices(watch_count: int) -> float:
    """Return how many false notices a month so many unchanged watches have at most, on average.

    >>> expect_false_notices(25)
    0.25
    """
    return watch_count * NOTICE.false_alarm_share()
