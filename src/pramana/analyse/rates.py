"""Pass rates: counts of outcomes in, a rate with its interval out.

Kept light, so that a list of runs can show rates without importing the code that summarises a run.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from pramana.analyse.intervals import Interval
from pramana.analyse.mean_bounds import rate_interval
from pramana.model import Outcome, Run


class Rate(Struct, frozen=True):
    """How many results passed, failed or have no verdict; `value` is the pass rate, `interval` its 95 % interval.

    >>> rate = Rate(passed=9, failed=1, errored=5)
    >>> rate.value, rate.undecided_count, rate.total
    (0.9, 5, 15)
    """

    passed: int = 0
    failed: int = 0
    errored: int = 0
    unscored: int = 0
    skipped: int = 0
    per_case: int = 1
    """The most results that one case has among these: repeats × models × variants."""

    @property
    def scored_count(self) -> int:
        """The number of results with a verdict: passed or failed."""
        return self.passed + self.failed

    @property
    def undecided_count(self) -> int:
        """The number of results without a verdict."""
        return self.errored + self.unscored + self.skipped

    @property
    def total(self) -> int:
        """The number of all results, with a verdict or without."""
        return self.scored_count + self.undecided_count

    @property
    def value(self) -> float | None:
        """The pass rate: the share of results with a verdict that passed; None if no result has a verdict."""
        return self.passed / self.scored_count if self.scored_count else None

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the pass rate (`low`, `high`), Clopper and Pearson's, by cases, not replies.

        Several results of one case are not several cases. They count as if they always agreed: at temperature 0 they
        nearly do, and otherwise the interval is too wide rather than too narrow. None without verdicts.
        """
        return (
            rate_interval(self.passed / self.per_case, self.scored_count / self.per_case) if self.scored_count else None
        )

    def as_data(self) -> dict[str, Any]:
        """Return the rate as plain data, for `--json` and the API."""
        interval = self.interval
        return {
            "total": self.total,
            **{outcome.value: getattr(self, outcome.value) for outcome in Outcome},
            "pass_rate": self.value,
            "interval": [interval.low, interval.high] if interval else None,
        }


def make_rate(run: Run, outcome_counts: Mapping[Outcome, int], model_variant_count: int) -> Rate:
    """Return the rate of these outcomes of a run.

    `model_variant_count` counts the model-variant pairs with a verdict.
    """
    counts = {outcome.value: outcome_counts.get(outcome, 0) for outcome in Outcome}
    return Rate(**counts, per_case=run.plan.repeats * max(1, model_variant_count))


def make_model_rates(
    run: Run,
    outcome_counts: Mapping[Outcome, int],
    by_model: Mapping[str, Mapping[Outcome, int]],
    model_variants: Iterable[tuple[str, str]],
) -> dict[str, Rate]:
    """Return the rate of each model of a run, in the order of its plan.

    `outcome_counts` are those of all models, `by_model` those of each model if there are several, and `model_variants`
    are the pairs of model and variant with a verdict.
    """
    models = list(dict.fromkeys(target.typed for target in run.plan.targets))
    if len(models) == 1:
        return {models[0]: make_rate(run, outcome_counts, len({*model_variants}))}
    variants = Counter(model for model, _ in model_variants)
    return {model: make_rate(run, by_model.get(model, {}), variants[model]) for model in models}
