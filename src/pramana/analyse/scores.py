"""Measurements of scorers and judges: checks in one at a time; means with intervals and counts of labels out.

A number with a threshold (`pass_at`) counts in the pass rate too; here it is averaged as measured. A judge's rubric
scores, which never decide an outcome, are averaged in the same way. Memory does not grow with the number of results.
Versions of a scorer or a rubric are never pooled.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from pramana.analyse.intervals import Interval, skewed_mean_interval
from pramana.analyse.judgements import RUBRIC
from pramana.model import Check, Facets

MAX_SCORE_KEYS = 1_000
"""The most scores kept, by name, version and model; further ones are left out."""
MAX_DISTINCT_LABELS = 50
"""The most labels counted separately per score; the rest are counted together."""
OTHER_LABELS_NAME = "other labels"

_ScoreKey = tuple[str, str, str]


class ScoreSummary(Struct, frozen=True):
    """The summary of one score over the replies of one model."""

    check: str
    version: str
    model: str
    count: int
    """How many replies have the score."""
    mean: float | None = None
    interval: Interval | None = None
    """The 95 % interval of the mean, with cases as the units; None for fewer than eight cases, equal values or
    labels."""
    labels: Mapping[str, int] = {}
    """How many replies have each label, most frequent first."""

    def as_data(self) -> dict[str, Any]:
        """Return the scores as plain data."""
        interval = self.interval
        return {
            "check": self.check,
            "version": self.version,
            "model": self.model,
            "count": self.count,
            "mean": self.mean,
            "interval": [interval.low, interval.high] if interval else None,
            "labels": dict(self.labels),
        }


class _RunningMoments:
    """A running mean, with the sums of squared and cubed deviations from it (Welford's and Terriberry's formulas)."""

    __slots__ = ("count", "cubes", "mean", "squares")

    def __init__(self) -> None:
        self.count, self.mean, self.squares, self.cubes = 0, 0.0, 0.0, 0.0

    def add(self, value: float) -> None:
        before, known = value - self.mean, self.count
        self.count += 1
        step = before / self.count
        added = before * step * known
        self.cubes += added * step * (known - 1) - 3 * step * self.squares
        self.squares += added
        self.mean += step

    def interval(self, results_per_case: int) -> Interval | None:
        """Return the interval of the mean; several results of a case count as if they always agreed."""
        cases = self.count / max(1, results_per_case)
        if cases <= 2 or not 0 < self.squares < math.inf:
            return None
        skewness = math.sqrt(self.count) * self.cubes / self.squares**1.5 * math.sqrt(cases * (cases - 1)) / (cases - 2)
        variance = self.squares / self.count * cases / (cases - 1)
        return skewed_mean_interval(cases, self.mean, variance, skewness if math.isfinite(skewness) else 0.0)


class ScoreTally:
    """Sums up the measurements of scorers.

    >>> from pramana.model import Outcome
    >>> scores = ScoreTally()
    >>> for value in (1, 2, 3, 4, 5, 6):
    ...     scores.add("gpt-5", Check("words", "1", Outcome.UNSCORED, "", value, decides=False))
    >>> scores.summarise(1)[0].mean
    3.5
    """

    def __init__(self) -> None:
        self._numbers: dict[_ScoreKey, _RunningMoments] = {}
        self._labels: dict[_ScoreKey, Counter[str]] = {}

    def add(self, model: str, check: Check) -> None:
        """Count a check if it has a number or a label."""
        if check.value is not None:
            self.add_number(model, check.name, check.version, check.value)
            return
        kind = (check.name, check.version, model)
        label = check.evidence.get("label")
        if isinstance(label, str) and (kind in self._labels or len(self._labels) < MAX_SCORE_KEYS):
            counts = self._labels.setdefault(kind, Counter())
            counts[label if label in counts or len(counts) < MAX_DISTINCT_LABELS else OTHER_LABELS_NAME] += 1

    def add_number(self, model: str, check_name: str, check_version: str, value: float) -> None:
        """Count a number by the name and version of its check."""
        kind = (check_name, check_version, model)
        if kind in self._numbers or len(self._numbers) < MAX_SCORE_KEYS:
            self._numbers.setdefault(kind, _RunningMoments()).add(value)

    def summarise(self, results_per_case: int) -> tuple[ScoreSummary, ...]:
        """Return the summaries so far, by name; `results_per_case` is the most results of one case and model."""
        numbers = [
            ScoreSummary(*kind, each.count, each.mean, each.interval(results_per_case))
            for kind, each in self._numbers.items()
        ]
        labels = [
            ScoreSummary(*kind, each.total(), labels=dict(each.most_common())) for kind, each in self._labels.items()
        ]
        return tuple(sorted([*numbers, *labels], key=lambda each: (each.check, each.model, each.version)))


# ── Rubrics ──

LOWEST_RATING, HIGHEST_RATING = 1, 10
RUBRIC_DIMENSIONS = ("category", "language")
"""The dimensions by which rubric scores are averaged, besides the overall average per model."""


class RubricAverages(Struct, frozen=True):
    """The averages of a judge's rubric scores; the `check` of each is the name of the score."""

    overall: tuple[ScoreSummary, ...]
    by: Mapping[str, Mapping[str, tuple[ScoreSummary, ...]]]
    """By the type of scenario (`category`) and by language."""

    def as_data(self) -> dict[str, Any]:
        """Return the scores as plain data."""
        return {
            "overall": [each.as_data() for each in self.overall],
            "by": {
                name: {value: [each.as_data() for each in found] for value, found in rows.items()}
                for name, rows in self.by.items()
            },
        }


class RubricTally:
    """Sums up rubric scores.

    >>> from pramana.model import Outcome
    >>> check = Check("rubric", "1", Outcome.PASSED, "", evidence={"scores": {"accuracy": 8, "helpfulness": 6}})
    >>> tally = RubricTally()
    >>> tally.add("gpt-5", Facets("task-completion", "easy", "en"), [check])
    >>> [(each.check, each.mean) for each in tally.averages(1).overall]
    [('accuracy', 8.0), ('helpfulness', 6.0)]
    """

    def __init__(self) -> None:
        self._overall = ScoreTally()
        self._by: dict[str, dict[str, ScoreTally]] = {name: {} for name in RUBRIC_DIMENSIONS}

    def add(self, model: str, facets: Facets, checks: Iterable[Check]) -> None:
        """Count the rubric scores of a result if it has any."""
        rated = [check for check in checks if read_rubric_ratings(check)]
        if not rated:
            return
        rows = [("category", facets.category), *([("language", facets.language)] if facets.language else [])]
        places = [self._overall, *(self._by[name].setdefault(value, ScoreTally()) for name, value in rows)]
        for name, value in average_rubric_ratings(rated).items():
            for each in places:
                each.add_number(model, name, rated[0].version, value)

    def averages(self, results_per_case: int) -> RubricAverages | None:
        """Return the averages so far, None without scores.

        `results_per_case` is the most results of one case and model.
        """
        overall = self._overall.summarise(results_per_case)
        if not overall:
            return None
        by = {
            name: {value: found.summarise(results_per_case) for value, found in sorted(rows.items())}
            for name, rows in self._by.items()
        }
        return RubricAverages(overall, by)


def average_rubric_ratings(checks: Iterable[Check]) -> dict[str, float]:
    """Return the rubric scores of a result by name; a score given on several lines is averaged."""
    found: dict[str, list[float]] = {}
    for check in checks:
        if check.name == RUBRIC:
            for name, value in read_rubric_ratings(check).items():
                found.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in found.items()}


def read_rubric_ratings(check: Check) -> dict[str, int]:
    """Return the rubric scores of a check, from 1 to 10; empty if it has none.

    >>> from pramana.model import Outcome
    >>> read_rubric_ratings(Check("rubric", "1", Outcome.PASSED, "", evidence={"scores": {"accuracy": 8, "tone": 99}}))
    {'accuracy': 8}
    """
    given = check.evidence.get("scores") if check.name == RUBRIC else None
    if not isinstance(given, Mapping):
        return {}
    return {
        str(name): value
        for name, value in given.items()
        if type(value) is int and LOWEST_RATING <= value <= HIGHEST_RATING
    }
