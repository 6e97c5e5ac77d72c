"""Histograms of times: no time is lost, each is in its bin, and the bins have round bounds."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom  # type: ignore[import-untyped]

from pramana.analyse.intervals import bound_percentile
from pramana.analyse.spread import MAX_BINS, CountsByTimeStep, SpreadTally, find_time_step_index, make_histogram
from pramana.model import Reply, Result, ResultKey

times = st.floats(0, 1e6, allow_nan=False) | st.sampled_from([0.001, 0.00106, 0.1, 0.3, 1.0, 3.15, 10.0, 1000.0])


def count_times(some: list[float]) -> CountsByTimeStep:
    return CountsByTimeStep(map(find_time_step_index, some))


@given(st.lists(times, min_size=1, max_size=60))
def test_every_time_is_in_its_labelled_bin(some: list[float]) -> None:
    bins = make_histogram([count_times(some)])
    for each in bins:
        assert each.count == sum(each.start <= time < each.end for time in some)
    assert sum(each.count for each in bins) == len(some)
    assert all(before.end == after.start for before, after in pairwise(bins))
    assert bins[0].count
    assert bins[-1].count
    assert len(bins) <= MAX_BINS


@given(st.lists(times, min_size=1, max_size=30), st.lists(times, max_size=30))
def test_models_of_one_chart_share_their_bins(some: list[float], others: list[float]) -> None:
    mine, theirs = count_times(some), count_times(others)
    every, one, rest = (make_histogram([mine, theirs], of) for of in (None, mine, theirs))
    assert [(each.start, each.end) for each in one] == [(each.start, each.end) for each in every]
    assert [a.count + b.count for a, b in zip(one, rest, strict=True)] == [each.count for each in every]


def test_the_number_of_bins_grows_with_the_number_of_times() -> None:
    dice = random.Random(7)
    drawn = [dice.lognormvariate(-0.5, 0.5) for _ in range(2_000)]
    few, many = make_histogram([count_times(drawn[:12])]), make_histogram([count_times(drawn)])
    assert len(few) <= 8 < len(many) <= MAX_BINS
    assert {each.start for each in make_histogram([count_times([0.1, 30.0])])} <= {
        digit * 10.0**power for digit in (1, 2, 5) for power in range(-1, 3)
    }
    assert make_histogram([]) == make_histogram([CountsByTimeStep()]) == []


def test_times_below_a_millisecond_share_one_bin() -> None:
    assert [(each.start, each.end, each.count) for each in make_histogram([count_times([0.0, 1e-9, 0.000999])])] == [
        (0.0, 0.001, 3)
    ]


def test_models_are_compared_on_one_scale() -> None:
    tally = SpreadTally({"a": "fake", "b": "fake"})
    for model, seconds in (("a", 0.1), ("a", 0.2), ("b", 3.0)):
        tally.add(Result(ResultKey("sha256:1", model), "x", Reply("", total_s=seconds), None, (), None, None))
    tally.add(Result(ResultKey("sha256:1", "b"), "x", Reply("", total_s=99.0, cached=True), None, (), None, None))
    found = tally.summarise_times().latency_seconds
    assert found
    assert found.overall.count == 3
    assert sum(each.count for each in found.histogram) == 3
    assert [sum(each.count for each in bins) for bins in found.histogram_by_model.values()] == [2, 1]
    assert {len(bins) for bins in found.histogram_by_model.values()} == {len(found.histogram)}
    assert found.histogram[-1].end == pytest.approx(5.0)
    assert tally.summarise_times().voice_to_voice_seconds is None


def tally_times(count: int, repeats: int) -> SpreadTally:
    tally = SpreadTally({"a": "fake"}, repeats)
    for number in range(count):
        reply = Reply("", total_s=(number + 1) / 10)
        tally.add(Result(ResultKey(f"sha256:{number // repeats}", "a"), "x", reply, None, (), None, None))
    return tally


def test_p95_has_an_upper_bound_from_59_cases_on_and_repeats_are_not_cases() -> None:
    bounds = []
    for count, repeats in ((58, 1), (59, 1), (116, 2), (118, 2)):
        times = tally_times(count, repeats).summarise_times().latency_seconds
        assert times
        assert times.overall == times.by_model["a"] == times.by_provider["fake"]
        bounds.append(times.overall.p95_at_most)
    assert bounds == [None, pytest.approx(5.9), None, pytest.approx(11.8)]


@pytest.mark.parametrize("count", [59, 100, 299, 1_000])
def test_the_bound_of_a_percentile_is_the_first_order_statistic_that_is_high_enough_in_95_of_100_samples(
    count: int,
) -> None:
    for share in (0.95, 0.99):
        enough = [rank for rank in range(count) if binom.cdf(rank, count, share) >= 0.95]  # P(X_(rank+1) >= quantile)
        assert bound_percentile(range(count), count, share) == (enough[0] if enough else None)
