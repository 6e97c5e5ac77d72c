"""How times are spread: results in one at a time; mean, median, p95, deviation, least, most and count out.

Overall, by provider and by model; of written answers how long they took, of calls how long the agent let the caller
wait. What came from the cache was not timed, and a line that nobody answered has no time: neither counts.
"""

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pramana.analyse.intervals import percentile
from pramana.analyse.voice import CALL, lines_of
from pramana.model import Result


@dataclass(frozen=True, slots=True)
class Spread:
    """Some times in seconds; None of none."""

    count: int = 0
    mean: float | None = None
    median: float | None = None
    p95: float | None = None
    standard_deviation: float | None = None
    """Of the sample; None of fewer than two."""
    min: float | None = None
    max: float | None = None


def spread(values: Sequence[float]) -> Spread:
    """Return how some values are spread.

    >>> found = spread([1.0, 2.0, 4.0, 5.0])
    >>> found.mean, found.median, found.max, round(found.standard_deviation, 3)
    (3.0, 3.0, 5.0, 1.826)
    """
    if not values:
        return Spread()
    ordered, count = sorted(values), len(values)
    mean = math.fsum(ordered) / count
    deviation = math.sqrt(math.fsum((each - mean) ** 2 for each in ordered) / (count - 1)) if count > 1 else None
    return Spread(count, mean, percentile(ordered, 0.5), percentile(ordered, 0.95), deviation, ordered[0], ordered[-1])


class SpreadTally:
    """Takes results, in any order, as they come; `providers` says who is asked for each model as it was typed."""

    def __init__(self, providers: Mapping[str, str]) -> None:
        self._providers = providers
        self._written: dict[str, array[float]] = {}
        self._spoken: dict[str, array[float]] = {}

    def add(self, result: Result) -> None:
        """Take the times of one result."""
        reply, model = result.reply, result.key.model
        if reply is None or reply.cached:
            return
        if reply.call is None:
            self._written.setdefault(model, array("d")).append(reply.total_s)
            return
        for check in result.checks:
            if check.name == CALL and check.evidence:
                times = [line.voice_to_voice_s for line in lines_of(check.evidence)]
                waited = self._spoken.setdefault(model, array("d"))
                waited.extend(each for each in times if each is not None)

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data; what nothing was measured of is None."""
        return {
            "latency_s": self._data(self._written) if self._written else None,
            "voice_to_voice_s": self._data(self._spoken) if self._spoken else None,
        }

    def _data(self, times: Mapping[str, "array[float]"]) -> dict[str, Any]:
        by_provider: dict[str, array[float]] = {}
        for model, some in times.items():
            by_provider.setdefault(self._providers.get(model, "?"), array("d")).extend(some)
        overall = array("d")
        for some in times.values():
            overall.extend(some)
        return {
            "overall": asdict(spread(overall)),
            "by_provider": {name: asdict(spread(some)) for name, some in sorted(by_provider.items())},
            "by_model": {name: asdict(spread(some)) for name, some in sorted(times.items())},
        }
