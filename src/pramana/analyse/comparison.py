"""Which of two runs is better: outcomes by case in, one verdict with its evidence out.

Only cases with a verdict on both sides are compared, each with itself. With one answer a case the test is McNemar's,
exact; with repeats it is the sign-flip test over cases, on as many repeats as both sides have. What the words mean, at
a level `alpha` (0.05) and with the interval of 1 - alpha beside it:

- **regression** or **improvement**: the test rejects "no difference" and the interval lies on one side of zero. How
  large it is does not matter: a loss that is proven is never called none.
- **no_change**: neither, and either the whole interval lies within ±`margin` (5 points), or no case changed at all:
  then there is nothing to explain, though few cases could not have shown much, and the interval says how much.
- **inconclusive**: anything else. The evidence fits a change and fits none.

A run could hide losses by not ending them. So *improvement* and *no_change* must survive the worst case, in which every
case that passed before and has no verdict now is lost; otherwise the verdict is inconclusive.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pramana.analyse.intervals import (
    Interval,
    cases_needed,
    clustered_difference,
    mcnemar,
    paired_difference,
    sign_flip,
    z_of,
)
from pramana.model import Outcome

Verdict = Literal["regression", "improvement", "no_change", "inconclusive"]
Test = Literal["exact McNemar", "sign flips by case"]
ALPHA, MARGIN = 0.05, 0.05
EXIT_CODES: dict[Verdict, int] = {"regression": 1, "improvement": 0, "no_change": 0, "inconclusive": 4}

_SCORED = (Outcome.PASSED, Outcome.FAILED)


@dataclass(frozen=True, slots=True)
class Pair:
    """One case that was compared: how many of its answers passed, of the same number on both sides."""

    case: str
    base_passed: int
    new_passed: int
    repeats: int

    @property
    def difference(self) -> float:
        return (self.new_passed - self.base_passed) / self.repeats


@dataclass(frozen=True, slots=True)
class Excluded:
    """One case that both have and that could not be compared, with every outcome it had."""

    case: str
    base: tuple[Outcome, ...]
    new: tuple[Outcome, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs compared."""

    verdict: Verdict
    sentence: str
    """The answer in plain words; show it first."""
    detail: str
    """The numbers behind it: difference, interval, test."""
    pairs: int
    base_rate: float | None
    new_rate: float | None
    difference: float | None
    """New minus base, over the pairs; None of none."""
    interval: Interval
    p_value: float
    test: Test
    lost: tuple[Pair, ...]
    """Cases that pass less often now, the largest loss first."""
    gained: tuple[Pair, ...]
    excluded: tuple[Excluded, ...]
    unpaired: int
    """Answers to compared cases that were left out: without a verdict, or more than the other side has."""
    only_base: tuple[str, ...]
    only_new: tuple[str, ...]
    alpha: float
    margin: float
    needed: int | None
    """When inconclusive: about how many cases would show a change as large as the margin (power 80 %)."""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]


def compare(
    base: Mapping[str, Sequence[Outcome]],
    new: Mapping[str, Sequence[Outcome]],
    *,
    alpha: float = ALPHA,
    margin: float = MARGIN,
    same_cases: bool = True,
) -> Comparison:
    """Compare two runs case by case: the keys are case digests, or test ids; each value one outcome a repeat.

    `same_cases` says that both were asked the same cases, so that one only the base has is one the new run did not end.

    >>> passed, failed = [Outcome.PASSED], [Outcome.FAILED]
    >>> before = {str(number): passed for number in range(100)}
    >>> after = before | {str(number): failed for number in range(12)}
    >>> found = compare(before, after)
    >>> found.verdict, found.exit_code
    ('regression', 1)
    >>> found.sentence
    'Regression: of 100 cases, 12 that passed now fail and none that failed now passes.'
    """
    pairs: list[Pair] = []
    excluded: list[Excluded] = []
    hidden = unpaired = 0
    for case, before in base.items():
        after = new.get(case)
        if after is None:
            hidden += same_cases and any(each is Outcome.PASSED for each in before)
            continue
        base_scored = [each is Outcome.PASSED for each in before if each in _SCORED]
        new_scored = [each is Outcome.PASSED for each in after if each in _SCORED]
        # As many from both sides: only then does swapping the two sides leave "no difference" as it is.
        repeats = min(len(base_scored), len(new_scored))
        if repeats:
            unpaired += len(before) + len(after) - 2 * repeats
            pairs.append(Pair(case, sum(base_scored[:repeats]), sum(new_scored[:repeats]), repeats))
        else:
            excluded.append(Excluded(case, tuple(before), tuple(after)))
            hidden += any(base_scored)
    evidence = _weigh(pairs, alpha)
    verdict = evidence.verdict(margin)
    worst = _weigh([*pairs, *[Pair("", 1, 0, 1)] * hidden], alpha).verdict(margin) if hidden else verdict
    overturned = EXIT_CODES[verdict] == 0 and EXIT_CODES[worst] != 0
    if overturned:
        verdict = "inconclusive"
    lost = sorted((each for each in pairs if each.difference < 0), key=lambda each: (each.difference, each.case))
    gained = sorted((each for each in pairs if each.difference > 0), key=lambda each: (-each.difference, each.case))
    flipping = (len(lost) + len(gained)) / len(pairs) if pairs else 0.0
    base_rate = _mean([each.base_passed / each.repeats for each in pairs])
    new_rate = _mean([each.new_passed / each.repeats for each in pairs])
    return Comparison(
        verdict=verdict,
        sentence=_sentence(
            verdict, len(pairs), len(lost), len(gained), hidden * overturned, repeated=evidence.repeated
        ),
        detail=_detail(evidence, base_rate, new_rate),
        pairs=len(pairs),
        base_rate=base_rate,
        new_rate=new_rate,
        difference=evidence.difference,
        interval=evidence.interval,
        p_value=evidence.p_value,
        test=evidence.test,
        lost=tuple(lost),
        gained=tuple(gained),
        excluded=tuple(excluded),
        unpaired=unpaired,
        only_base=tuple(case for case in base if case not in new),
        only_new=tuple(case for case in new if case not in base),
        alpha=alpha,
        margin=margin,
        needed=cases_needed(margin, flipping, alpha=alpha) if verdict == "inconclusive" else None,
    )


@dataclass(frozen=True, slots=True)
class _Evidence:
    difference: float | None
    interval: Interval
    p_value: float
    alpha: float
    changed: int
    repeated: bool

    @property
    def test(self) -> Test:
        return "sign flips by case" if self.repeated else "exact McNemar"

    def verdict(self, margin: float) -> Verdict:
        if self.difference is None:
            return "inconclusive"
        if self.p_value <= self.alpha and self.interval.high < 0:
            return "regression"
        if self.p_value <= self.alpha and self.interval.low > 0:
            return "improvement"
        return "no_change" if not self.changed or self.interval.within(margin) else "inconclusive"


def _weigh(pairs: Sequence[Pair], alpha: float) -> _Evidence:
    z = z_of(1 - alpha)
    differences = [each.difference for each in pairs]
    changed = sum(1 for each in differences if each)
    if all(each.repeats == 1 for each in pairs):
        lost = sum(1 for each in differences if each < 0)
        interval = paired_difference(lost, changed - lost, len(pairs), z)
        return _Evidence(_mean(differences), interval, mcnemar(lost, changed - lost), alpha, changed, repeated=False)
    scale = math.lcm(*{each.repeats for each in pairs})
    whole = [(each.new_passed - each.base_passed) * (scale // each.repeats) for each in pairs]
    interval = clustered_difference(differences, z)
    return _Evidence(_mean(differences), interval, sign_flip(whole), alpha, changed, repeated=True)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _sentence(verdict: Verdict, pairs: int, lost: int, gained: int, hidden: int, *, repeated: bool) -> str:
    if not pairs:
        return "Not enough evidence: no case has a verdict on both sides."
    if hidden:
        return (
            f"Not enough evidence: {_cases(hidden)} that passed before {'has' if hidden == 1 else 'have'} no verdict "
            "now, and counted as failed they would change the answer."
        )
    if verdict == "no_change" and not lost and not gained:
        return f"No change: {'the case' if pairs == 1 else f'all {_cases(pairs)}'} ended as before."
    if repeated:
        losses = f"{_number(lost)} {'passes' if lost < 2 else 'pass'} less often now"
        gains = f"{_number(gained)} more often"
    else:
        losses = f"{_number(lost)} that passed now {'fails' if lost < 2 else 'fail'}"
        gains = f"{_number(gained)} that failed now {'passes' if gained < 2 else 'pass'}"
    flips = f"of {_cases(pairs)}, {losses} and {gains}"
    match verdict:
        case "regression":
            return f"Regression: {flips}."
        case "improvement":
            return f"Improvement: {flips}."
        case "no_change":
            return f"No change: {flips}, no more than chance would do."
        case "inconclusive":
            return f"Not enough evidence: {flips}; chance could do this, and so could a real change."


def _detail(evidence: _Evidence, base_rate: float | None, new_rate: float | None) -> str:
    if evidence.difference is None or base_rate is None or new_rate is None:
        return "There is nothing to compare."
    low, high = evidence.interval.low, evidence.interval.high
    p_value = f"p = {evidence.p_value:.2g}" if evidence.p_value >= 1e-4 else "p < 0.0001"
    return (
        f"Pass rate {100 * base_rate:.1f} % before, {100 * new_rate:.1f} % now: {_points(evidence.difference)} points, "
        f"{100 * (1 - evidence.alpha):.4g} % interval {_points(low)} to {_points(high)}; {evidence.test}, {p_value}."
    )


def _points(share: float) -> str:
    """Return a difference in points, with its sign.

    >>> _points(-0.0481), _points(0.0001), _points(0.12)
    ('-4.8', '0.0', '+12.0')
    """
    rounded = round(share * 100, 1)
    return f"{rounded:+.1f}" if rounded else "0.0"


def _number(count: int) -> str:
    return f"{count:,}" if count else "none"


def _cases(count: int) -> str:
    return f"{count:,} case{'' if count == 1 else 's'}"
