"""How reliable a model is over repeats: outcomes in one at a time; pass@k and pass^k with intervals over cases out.

pass@k is the probability that at least one of k replies to a case passes, pass^k that all of them do, each averaged
over the cases. For a case with n verdicts, of which c passed, the unbiased estimates are 1 - C(n - c, k) / C(n, k) and
C(c, k) / C(n, k); a case with fewer than k verdicts is left out and counted. A case in several variants is one case:
its variants are averaged.
"""

import math
from statistics import fmean
from typing import Any

from msgspec import Struct

from pramana.analyse.intervals import Interval
from pramana.analyse.mean_bounds import case_mean_interval

SHOWN_COUNTS = (2, 3, 5, 10, 20, 50, 100)
"""The values of k that are reported, besides the number of repeats."""


class RepeatRates(Struct, frozen=True):
    """pass@k and pass^k of one model."""

    model: str
    k: int
    cases: int
    excluded_cases: int
    """Cases with fewer than k verdicts."""
    pass_at_k: float
    pass_at_k_interval: Interval
    pass_all_k: float
    """pass^k: the probability that all of k replies pass."""
    pass_all_k_interval: Interval

    def as_data(self) -> dict[str, Any]:
        """Return the rates as plain data."""
        return {
            "model": self.model,
            "k": self.k,
            "cases": self.cases,
            "excluded_cases": self.excluded_cases,
            "pass_at_k": self.pass_at_k,
            "pass_at_k_interval": [self.pass_at_k_interval.low, self.pass_at_k_interval.high],
            "pass_all_k": self.pass_all_k,
            "pass_all_k_interval": [self.pass_all_k_interval.low, self.pass_all_k_interval.high],
        }


def estimate_pass_at_k(verdicts: int, passed: int, k: int) -> float:
    """Return the unbiased estimate of the probability that at least one of k replies passes.

    >>> estimate_pass_at_k(5, 1, 2), estimate_pass_at_k(3, 3, 3)
    (0.4, 1.0)
    """
    return 1 - math.comb(verdicts - passed, k) / math.comb(verdicts, k)


def estimate_pass_all_k(verdicts: int, passed: int, k: int) -> float:
    """Return the unbiased estimate of the probability that all of k replies pass.

    >>> estimate_pass_all_k(5, 4, 2), estimate_pass_all_k(3, 2, 3)
    (0.6, 0.0)
    """
    return math.comb(passed, k) / math.comb(verdicts, k)


class RepeatTally:
    """Counts verdicts by model, case and variant; `repeats` is the planned number of replies to each.

    >>> tally = RepeatTally(3)
    >>> for case in range(4):
    ...     for repeat in range(3):
    ...         tally.add("gpt-5", f"case-{case}", "text", is_passed=case != repeat)
    >>> [(each.k, each.pass_at_k, round(each.pass_all_k, 2)) for each in tally.summarise()]
    [(2, 1.0, 0.5), (3, 1.0, 0.25)]
    """

    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        self._counts: dict[tuple[str, str], dict[str, list[int]]] = {}

    def add(self, model: str, case: str, variant: str, *, is_passed: bool) -> None:
        """Count a verdict."""
        counts = self._counts.setdefault((model, case), {}).setdefault(variant, [0, 0])
        counts[0] += 1
        counts[1] += is_passed

    def summarise(self) -> tuple[RepeatRates, ...]:
        """Return the rates by model, for each k up to the number of repeats; empty without repeats."""
        if self._repeats < 2:
            return ()
        by_model: dict[str, list[dict[str, list[int]]]] = {}
        for (model, _), variants in self._counts.items():
            by_model.setdefault(model, []).append(variants)
        counts = sorted({*(each for each in SHOWN_COUNTS if each < self._repeats), self._repeats})
        found = (self._summarise_model(model, cases, k) for model, cases in sorted(by_model.items()) for k in counts)
        return tuple(each for each in found if each)

    def _summarise_model(self, model: str, cases: list[dict[str, list[int]]], k: int) -> RepeatRates | None:
        enough = [[each for each in variants.values() if each[0] >= k] for variants in cases]
        kept = [variants for variants in enough if variants]
        if not kept:
            return None
        at_least_one = [fmean(estimate_pass_at_k(total, passed, k) for total, passed in each) for each in kept]
        all_of_them = [fmean(estimate_pass_all_k(total, passed, k) for total, passed in each) for each in kept]
        return RepeatRates(
            model,
            k,
            len(kept),
            len(cases) - len(kept),
            fmean(at_least_one),
            case_mean_interval(at_least_one),
            fmean(all_of_them),
            case_mean_interval(all_of_them),
        )
