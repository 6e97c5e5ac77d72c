"""What scorers measured: numbers and labels of checks in one at a time; means with intervals and counts out.

A number that has a bar to pass counts in the pass rate too; here it stands as it was measured. The memory it takes does
not grow with the number of results. Versions of a scorer are never pooled.
"""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from pramana.analyse.intervals import CONFIDENCE, FEWEST_CLUSTERS, Interval, t_of
from pramana.model import Check

MAX_KINDS = 1_000
"""Scores that are kept apart, by name, version and model; further ones are left out."""
MAX_LABELS = 50
"""Labels of one that are kept apart; the rest are counted together."""
OTHER_LABELS = "other labels"

_Kind = tuple[str, str, str]


class Measured(Struct, frozen=True):
    """What one score amounts to, over the replies of one model."""

    check: str
    version: str
    model: str
    count: int
    """Replies that have it."""
    mean: float | None = None
    interval: Interval | None = None
    """The 95 % interval of the mean, with cases as the units; None of fewer than six, where all are alike, and of
    labels."""
    labels: Mapping[str, int] = {}
    """How many replies have each label, the most frequent first."""

    def as_data(self) -> dict[str, Any]:
        """Return it as plain data."""
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


class _Numbers:
    """A running mean and sum of squared deviations (Welford's)."""

    __slots__ = ("count", "mean", "squares")

    def __init__(self) -> None:
        self.count, self.mean, self.squares = 0, 0.0, 0.0

    def add(self, value: float) -> None:
        self.count += 1
        before = value - self.mean
        self.mean += before / self.count
        self.squares += before * (value - self.mean)

    def interval(self, per_case: int) -> Interval | None:
        """Return Student's interval of the mean; several results of a case count as if they always agreed."""
        cases = self.count / max(1, per_case)
        if cases < FEWEST_CLUSTERS or not 0 < self.squares < math.inf:
            return None
        half = t_of(CONFIDENCE, math.floor(cases) - 1) * math.sqrt(self.squares / self.count / (cases - 1))
        return Interval(self.mean - half, self.mean + half)


class Scores:
    """Adds up what scorers measured.

    >>> from pramana.model import Outcome
    >>> scores = Scores()
    >>> for value in (1, 2, 3, 4, 5, 6):
    ...     scores.add("gpt-5", Check("words", "1", Outcome.UNSCORED, "", value, decides=False))
    >>> scores.measured(per_case=1)[0].mean
    3.5
    """

    def __init__(self) -> None:
        self._numbers: dict[_Kind, _Numbers] = {}
        self._labels: dict[_Kind, Counter[str]] = {}

    def add(self, model: str, check: Check) -> None:
        """Count a check, if it has a number or a label."""
        kind = (check.name, check.version, model)
        label = check.evidence.get("label")
        found: dict[_Kind, Any] = self._numbers if check.value is not None else self._labels
        if (check.value is None and not isinstance(label, str)) or (kind not in found and len(found) >= MAX_KINDS):
            return
        if check.value is not None:
            self._numbers.setdefault(kind, _Numbers()).add(check.value)
        else:
            counts = self._labels.setdefault(kind, Counter())
            counts[str(label) if label in counts or len(counts) < MAX_LABELS else OTHER_LABELS] += 1

    def measured(self, per_case: int) -> tuple[Measured, ...]:
        """Return what was counted so far, by name; `per_case`: results there are of one case and model, at most."""
        numbers = [
            Measured(*kind, each.count, each.mean, each.interval(per_case)) for kind, each in self._numbers.items()
        ]
        labels = [Measured(*kind, each.total(), labels=dict(each.most_common())) for kind, each in self._labels.items()]
        return tuple(sorted([*numbers, *labels], key=lambda each: (each.check, each.model, each.version)))
