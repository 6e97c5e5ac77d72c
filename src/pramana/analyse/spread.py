"""Distributions of times: results in one at a time; count, mean, percentiles, deviation, extremes and a histogram out.

p95 comes with its upper bound. Overall, by provider and by model; the latency of written replies, and the time from
voice to voice in calls. Replies from the cache and lines without an answer have no time and do not count.
"""

import math
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache

from msgspec import Struct, field

from pramana.analyse.intervals import bound_percentile, percentile
from pramana.analyse.voice import CALL_CHECK, TEXT_VARIANT, read_measured_lines
from pramana.model import Result, Run


class Spread(Struct, frozen=True, rename="camel"):
    """The distribution of times in seconds; the fields are None without times."""

    count: int = 0
    mean: float | None = None
    median: float | None = None
    p95: float | None = None
    standard_deviation: float | None = None
    """The sample standard deviation; None for fewer than two times."""
    min: float | None = None
    max: float | None = None
    p95_at_most: float | None = None
    """What p95 is at most, at 95 % confidence, with cases as the units; None for fewer than 59 cases."""


def measure_time_spread(values: Sequence[float], cases: float | None = None) -> Spread:
    """Return the distribution of some values, which are of so many cases; None: each is of another case.

    >>> found = measure_time_spread([1.0, 2.0, 4.0, 5.0])
    >>> found.mean, found.median, found.max, round(found.standard_deviation, 3)
    (3.0, 3.0, 5.0, 1.826)
    """
    if not values:
        return Spread()
    ordered, count = sorted(values), len(values)
    mean = math.fsum(ordered) / count
    deviation = math.sqrt(math.fsum((each - mean) ** 2 for each in ordered) / (count - 1)) if count > 1 else None
    return Spread(
        count,
        mean,
        percentile(ordered, 0.5),
        percentile(ordered, 0.95),
        deviation,
        ordered[0],
        ordered[-1],
        bound_percentile(ordered, count if cases is None else cases, 0.95),
    )


# ── Histograms ──

MAX_BINS, MIN_BINS = 40, 8
"""The most bins for many times, and for few."""
_PREFERRED_NUMBERS = (
    1.0, 1.06, 1.12, 1.18, 1.25, 1.32, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9, 2.0, 2.12, 2.24, 2.36, 2.5, 2.65, 2.8, 3.0,
    3.15, 3.35, 3.55, 3.75, 4.0, 4.25, 4.5, 4.75, 5.0, 5.3, 5.6, 6.0, 6.3, 6.7, 7.1, 7.5, 8.0, 8.5, 9.0, 9.5,
)  # fmt: skip
"""The preferred numbers of ISO 3 (R40): forty steps that turn one into ten, each as much longer than the one before."""
_BIN_SCALES: tuple[tuple[int, ...], ...] = (
    tuple(range(0, 40, 1)),
    tuple(range(0, 40, 2)),
    tuple(range(0, 40, 4)),
    (0, 12, 28),
    (0,),
)
"""Indexes of the preferred numbers that bound the bins, from fine to coarse; the last but one are 1, 2 and 5."""


CountsByTimeStep = Counter[int]
"""Counts by step; steps grow with the times, so that milliseconds and minutes fit into one chart."""


class Bin(Struct, frozen=True, rename={"start": "from", "end": "to"}):
    """The count of times from `start` (included) to `end` (excluded)."""

    start: float
    end: float
    count: int


def make_histogram(histograms: Sequence[CountsByTimeStep], selected: CountsByTimeStep | None = None) -> list[Bin]:
    """Return contiguous bins that cover all histograms, with the counts of the selected one, or of all together.

    The bins are as fine as the number of times allows. All times below a millisecond share one bin.

    >>> counted = CountsByTimeStep(map(find_time_step_index, (0.9, 1.1, 1.11, 14.0)))
    >>> [(each.start, each.end, each.count) for each in make_histogram([counted]) if each.count]
    [(0.5, 1.0, 1), (1.0, 2.0, 2), (10.0, 20.0, 1)]
    """
    steps = sum(histograms, CountsByTimeStep())
    if not steps:
        return []
    first, last, total = min(steps), max(steps), steps.total()
    most = min(MAX_BINS, max(MIN_BINS, 2 * math.isqrt(total)))
    starts = next(
        (starts for scale in _BIN_SCALES if len(starts := _bin_start_steps(first, last, scale)) <= most + 1),
        _bin_start_steps(first, last, _BIN_SCALES[-1]),
    )
    counts = [0] * (len(starts) - 1)
    for step, count in (steps if selected is None else selected).items():
        counts[bisect_right(starts, step) - 1] += count
    bounds = [_step_start_s(each) for each in starts]
    return [Bin(*each) for each in zip(bounds, bounds[1:], counts, strict=False)]


def _bin_start_steps(first_step: int, last_step: int, scale: Sequence[int]) -> list[int]:
    """Return the first steps of a scale's bins from `first_step` to `last_step`, and the end of the last bin."""
    bounds = [0, *(1 + 40 * decade + each for decade in range((last_step + 39) // 40 + 1) for each in scale)]
    return bounds[bisect_right(bounds, first_step) - 1 : bisect_right(bounds, last_step) + 1]


def find_time_step_index(seconds: float) -> int:
    """Return the step of a time: 0 below a millisecond, from there on forty steps per decade."""
    if not seconds >= _step_start_s(1):
        return 0
    decade = math.floor(math.log10(seconds)) + 3
    step = 40 * decade + bisect_right(_PREFERRED_NUMBERS, seconds / 10.0 ** (decade - 3))
    while seconds < _step_start_s(step):  # the logarithm and the power are rounded, the bounds are exact
        step -= 1
    while seconds >= _step_start_s(step + 1):
        step += 1
    return step


@cache
def _step_start_s(step: int) -> float:
    """Return the start of a step, in seconds."""
    decade, place = divmod(step - 1, 40)
    return float(f"{_PREFERRED_NUMBERS[place]}e{decade - 3}") if step else 0.0


# ── Results ──


class ModelTimes(Struct, frozen=True, kw_only=True, rename="camel"):
    """Times of one kind: overall, by provider and by model, all with the same bins."""

    overall: Spread
    by_provider: Mapping[str, Spread]
    by_model: Mapping[str, Spread]
    histogram: Sequence[Bin]
    histogram_by_model: Mapping[str, Sequence[Bin]]


class RunTimes(Struct, frozen=True, kw_only=True, rename="camel"):
    """The distributions of a run's times."""

    latency_seconds: ModelTimes | None
    voice_to_voice_seconds: ModelTimes | None


class _CollectedTimes(Struct):
    """The times of one model, and their counts by step."""

    seconds: "array[float]" = field(default_factory=lambda: array("d"))
    counts_by_step: CountsByTimeStep = field(default_factory=CountsByTimeStep)
    result_count: int = 0
    """Results that the times are of; a call has several."""

    def add(self, times: Sequence[float]) -> None:
        """Add the times of one result."""
        self.result_count += bool(times)
        for each in times:
            self.seconds.append(each)
            self.counts_by_step[find_time_step_index(each)] += 1


class SpreadTally:
    """Collects times from results, in any order; `providers` maps each model, as typed, to its provider.

    A case has one written result per repeat and model, and `spoken_variants` as many calls.
    """

    def __init__(self, providers: Mapping[str, str], repeats: int = 1, spoken_variants: int = 1) -> None:
        self._providers = providers
        self._repeats, self._calls_per_repeat = max(1, repeats), max(1, spoken_variants)
        self._written_times: dict[str, _CollectedTimes] = {}
        self._spoken_times: dict[str, _CollectedTimes] = {}

    @classmethod
    def for_run(cls, run: Run) -> "SpreadTally":
        """Return an empty tally for the results of a run."""
        plan = run.plan
        spoken = sum(each != TEXT_VARIANT for each in plan.variants)
        return cls({target.typed: target.provider for target in plan.targets}, plan.repeats, spoken)

    def add(self, result: Result) -> None:
        """Add the times of one result."""
        reply, model = result.reply, result.key.model
        if reply is None or reply.cached:
            return
        if reply.call is None:
            self._written_times.setdefault(model, _CollectedTimes()).add((reply.total_s,))
            return
        for check in result.checks:
            if check.name == CALL_CHECK and check.evidence:
                times = [line.voice_to_voice_s for line in read_measured_lines(check.evidence)]
                self._spoken_times.setdefault(model, _CollectedTimes()).add(
                    [each for each in times if each is not None]
                )

    def summarise_times(self) -> "RunTimes":
        """Return the distributions so far; None for a kind without times."""
        return RunTimes(
            latency_seconds=_summarise_model_times(self._written_times, self._providers, self._repeats)
            if self._written_times
            else None,
            voice_to_voice_seconds=_summarise_model_times(
                self._spoken_times, self._providers, self._repeats * self._calls_per_repeat
            )
            if self._spoken_times
            else None,
        )


def _summarise_model_times(
    times: Mapping[str, _CollectedTimes], providers: Mapping[str, str], results_per_case: int
) -> ModelTimes:
    """Return the distributions of the times of each model, of each provider and of all."""
    by_provider: dict[str, list[_CollectedTimes]] = {}
    for model, some in times.items():
        by_provider.setdefault(providers.get(model, "?"), []).append(some)
    counted = [some.counts_by_step for some in times.values()]
    return ModelTimes(
        overall=_pool_times([*times.values()], results_per_case),
        by_provider={name: _pool_times(some, results_per_case) for name, some in sorted(by_provider.items())},
        by_model={name: _pool_times([some], results_per_case) for name, some in sorted(times.items())},
        histogram=make_histogram(counted),
        histogram_by_model={name: make_histogram(counted, some.counts_by_step) for name, some in sorted(times.items())},
    )


def _pool_times(times_by_model: Sequence[_CollectedTimes], results_per_case: int) -> Spread:
    """Return the distribution of the times of some models, which all have the same cases."""
    seconds = array("d")
    for each in times_by_model:
        seconds.extend(each.seconds)
    # Several results of one case, of one model or of several, are not several cases.
    results = sum(each.result_count for each in times_by_model)
    return measure_time_spread(seconds, results / (results_per_case * len(times_by_model)))
