"""Several sides compared with each other: comparisons of pairs in, all pairs decided together by Holm's correction out.

Of twenty comparisons of equal sides, about one is significant at 5 % by chance alone. So the p-values of all pairs are
adjusted together (Holm), which keeps the chance of any false winner at 5 % or less, however the pairs depend on each
other. Each pair is then an ordinary `Comparison` at the level at which Holm tests it. So its verdict is that of a
comparison of two sides, with the worst case for results without a verdict, and its interval excludes zero exactly where
the test rejects. That interval is never narrower than the 95 % interval of the pair alone, but all intervals
together have less confidence than each of them.

Without a reference, every side is compared with every other one, and the better side of a pair is its new one: a side
beats another only if it also does so with all its own results without a verdict counted as failed. With a reference,
the reference is the base of every pair.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import combinations

from msgspec import Struct

from pramana.analyse.comparison import ALPHA, LOSS, NO_LOSS, UNDECIDED, Comparison, FailOn, PreparedComparison
from pramana.analyse.intervals import adjust_p_values
from pramana.analyse.numbers import pluralise

MAX_SIDES, MAX_SIDES_WITH_REFERENCE = 10, 50
MAX_NAMED_PAIRS = 12
"""More proven differences are counted in the first sentence, not named."""

PreparePair = Callable[[int, int], PreparedComparison]
"""Pairs and tests two sides, base and new by their places."""


class JointDecision(Struct, frozen=True):
    """One of several comparisons that are decided together."""

    comparison: Comparison
    """At the level at which Holm's correction tests it."""
    adjusted_p_value: float
    """Holm's; without a compared case it means nothing, as the comparison's p-value does."""


class PairComparison(Struct, frozen=True):
    """One pair of several sides, decided together with the others."""

    base_place: int
    """The index of the base among all sides."""
    new_place: int
    comparison: Comparison
    """At the level at which Holm's correction tests this pair."""
    adjusted_p_value: float
    """Holm's; without a compared case it means nothing, as the comparison's p-value does."""

    @property
    def winner(self) -> int | None:
        """The place of the side that is proven to be better; None if neither is."""
        places = {"regression": self.base_place, "improvement": self.new_place}
        return places.get(self.comparison.verdict)

    @property
    def loser(self) -> int | None:
        """The place of the side that is proven to be worse; None if neither is."""
        places = {"regression": self.new_place, "improvement": self.base_place}
        return places.get(self.comparison.verdict)

    def describe_result(self, labels: Sequence[str]) -> str:
        """Return who is better, in a few words."""
        new, found = labels[self.new_place], self.comparison
        if not found.pairs:
            return "different judges" if found.differently_judged else "no case to compare"
        if self.winner is not None and self.loser is not None:
            small = " by less than the margin" if found.is_within_margin else ""
            return f"{labels[self.winner]} beats {labels[self.loser]}{small}"
        if found.p_value <= found.alpha:  # the worst case overturned that the new side is better
            missing = [f"{new} has results without a verdict"] if found.missing_verdicts else []
            judged = [f"another judge judged cases of {new}"] if found.judge_changed else []
            return f"not proven: {' and '.join([*missing, *judged])}"
        return "no significant difference"


def compare_pairs(side_count: int, prepare: PreparePair, *, reference: int | None = None) -> list[PairComparison]:
    """Compare every two sides, or each side with the reference, and decide all pairs together at 5 %.

    >>> from pramana.analyse.comparison import prepare_comparison
    >>> from pramana.model import Outcome
    >>> numbers, outcomes = range(20), (Outcome.FAILED, Outcome.PASSED)
    >>> sides = [{str(each): [outcomes[each < passed]] for each in numbers} for passed in (20, 9, 8)]
    >>> found = compare_pairs(3, lambda base, new: prepare_comparison(sides[base], sides[new]))
    >>> [(each.base_place, each.new_place, each.winner, round(each.adjusted_p_value, 4)) for each in found]
    [(1, 0, 0, 0.002), (2, 0, 0, 0.0015), (2, 1, None, 1.0)]
    """
    places = range(side_count)
    pairs = (
        [(base, new) for new, base in combinations(places, 2)]
        if reference is None
        else [(reference, new) for new in places if new != reference]
    )
    prepared = [prepare(base, new) for base, new in pairs]
    if reference is None:
        for place, (base, new) in enumerate(pairs):
            if (prepared[place].difference or 0) < 0:
                pairs[place], prepared[place] = (new, base), prepare(new, base)
    return [
        PairComparison(base, new, decided.comparison, decided.adjusted_p_value)
        for (base, new), decided in zip(pairs, decide_together(prepared), strict=True)
    ]


def decide_together(prepared: Sequence[PreparedComparison]) -> list[JointDecision]:
    """Decide several comparisons together at 5 %, by Holm's correction over those that have a compared case.

    >>> from pramana.analyse.comparison import prepare_comparison
    >>> from pramana.model import Outcome
    >>> before = {str(number): [Outcome.PASSED] for number in range(100)}
    >>> worse = prepare_comparison(before, before | {str(number): [Outcome.FAILED] for number in range(6)})
    >>> [each.comparison.verdict for each in decide_together([worse])]
    ['regression']
    >>> [each.comparison.verdict for each in decide_together([worse, prepare_comparison(before, before)])]
    ['inconclusive', 'no_change']
    """
    testable = [place for place, each in enumerate(prepared) if each.has_pairs]
    p_values = [prepared[place].p_value for place in testable]
    adjusted = dict(zip(testable, adjust_p_values(p_values), strict=True))
    levels = dict(zip(testable, find_holm_levels(p_values), strict=True))
    return [
        JointDecision(each.decide(levels.get(place, ALPHA)), adjusted.get(place, 1.0))
        for place, each in enumerate(prepared)
    ]


def find_holm_levels(p_values: Sequence[float], alpha: float = ALPHA) -> list[float]:
    """Return the level at which Holm's correction tests each hypothesis: it rejects if p is at most this level.

    >>> [round(each, 4) for each in find_holm_levels([0.01, 0.04, 0.03])]
    [0.0167, 0.025, 0.025]
    """
    proven = sum(1 for each in adjust_p_values(p_values) if each <= alpha)
    ordered = sorted(p_values)
    return [alpha / (len(p_values) - min(bisect_left(ordered, each), proven)) for each in p_values]


def decide_exit_code(pairs: Sequence[PairComparison], *, has_reference: bool, fail_on: FailOn = "regression") -> int:
    """Return the worst exit code of the comparisons with the reference; without one, 4 if no pair has a compared case.

    Without a reference no side is the one that may not get worse, so a table of all pairs is 0 otherwise.
    """
    if not has_reference:
        return NO_LOSS if any(each.comparison.pairs for each in pairs) else UNDECIDED
    codes = [each.comparison.exit_code(fail_on) for each in pairs]
    return next(code for code in (LOSS, UNDECIDED, NO_LOSS) if code in codes)


def describe_proven(pairs: Sequence[PairComparison], labels: Sequence[str], reference: int | None) -> str:
    """Return the first sentence of the table: which differences are proven together at 5 %."""
    tested = sum(1 for each in pairs if each.comparison.pairs)
    if not tested:
        return "Nothing could be compared: no case has comparable verdicts on both sides of any pair."
    beside = f" with {labels[reference]}" if reference is not None else ""
    family = f"{pluralise(tested, 'comparison')}{beside}"
    method = f"at 5 % (Holm's correction for {family})"
    proven = [each for each in pairs if each.winner is not None]
    if not proven:
        return f"No difference is proven {method}."
    if len(proven) > MAX_NAMED_PAIRS:
        return f"{len(proven):,} differences are proven together {method}."
    beaten: dict[int, list[str]] = {}
    for each in sorted(proven, key=lambda pair: (pair.winner, pair.loser)):
        beaten.setdefault(each.winner or 0, []).append(labels[each.loser or 0])
    said = "; ".join(f"{labels[winner]} beats {join_names(losers)}" for winner, losers in beaten.items())
    return f"Proven{' together' if len(proven) > 1 else ''} {method}: {said}."


def join_names(names: Sequence[str]) -> str:
    """Join names for a sentence.

    >>> join_names(["a"]), join_names(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
