"""Several watches side by side: p-values that hold for all of them together."""

import random
from itertools import islice

import pytest
from statsmodels.stats.multitest import multipletests  # type: ignore[import-untyped]

from pramana.analyse.drift import MIN_TOLERANCE, iterate_change_statistics
from pramana.analyse.watch_family import (
    MAX_FALSE_DISCOVERY_RATE,
    adjust_for_false_discoveries,
    bound_p_value,
    expect_false_notices,
)


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_adjusted_p_values_equal_those_of_statsmodels(count: int) -> None:
    rng = random.Random(count)
    for _ in range(50):
        p_values = [rng.random() ** 4 for _ in range(count)]
        expected = multipletests(p_values, method="fdr_by")[1]
        assert adjust_for_false_discoveries(p_values) == pytest.approx(list(expected), rel=1e-12)


def test_no_watches_have_no_p_values() -> None:
    assert adjust_for_false_discoveries([]) == []
    assert expect_false_notices(0) == 0


def test_p_values_of_unchanged_watches_are_no_smaller_than_chance() -> None:
    """Simulated: in 2,000 unchanged months, p ≤ x in at most a share x, with two instruments, up to simulation error."""
    rng, p_values = random.Random(1), []
    for _ in range(2_000):
        highest = 0.0
        for _ in range(2):
            days = [rng.gauss(0.8, 0.05) for _ in range(14 + 10)]
            statistics = islice(iterate_change_statistics(days, 14, MIN_TOLERANCE), 10)
            highest = max(highest, *(each.value for each in statistics))
        p_values.append(bound_p_value(highest, 2, 10))
    for level in (0.05, 0.1, 0.2, 0.5):
        assert sum(each <= level for each in p_values) <= 2_000 * level
    assert min(p_values) < 1


def test_one_changed_watch_stands_out_among_many_and_the_others_do_not() -> None:
    rng, p_values = random.Random(2), []
    for number in range(20):
        days = [rng.gauss(0.8, 0.03) for _ in range(28)]
        days += [rng.gauss(1.2 if number == 7 else 0.8, 0.03) for _ in range(10)]
        highest = max(each.value for each in iterate_change_statistics(days, 28, MIN_TOLERANCE))
        p_values.append(bound_p_value(highest, 1, 10))
    adjusted = adjust_for_false_discoveries(p_values)
    assert [at for at, each in enumerate(adjusted) if each <= MAX_FALSE_DISCOVERY_RATE] == [7]
