"""Which of two runs is better: outcomes by case in, one verdict with its evidence out.

Only cases with a verdict on both sides are compared, each with itself (`pairing`). With one reply per case the test is
McNemar's, exact; with repeats or several variants it is the sign-flip test over cases: a case's variants are summed
before its sign is flipped, since they fail together. The verdicts, at level `alpha` (0.05):

- **regression** or **improvement**: the test rejects "no difference", whatever the size.
- **no_change**: it does not, and either the whole interval lies within ±`margin` (5 points) or no case changed at all.
  In the latter case a few cases could not have shown much: the sentence says so, and the interval shows how much.
- **inconclusive**: anything else. The evidence is consistent with a change and with none.

The 1 - alpha interval never contradicts the test: it excludes zero exactly if the test rejects.

The exit code answers another question: may a build pass? It is 1 for a regression whose interval reaches beyond the
margin, and otherwise 0; 4 where nothing could be compared. With `fail_on="inconclusive"` it is also 4 unless a loss as
large as the margin is excluded.

Verdicts are compared only if the same judge gave them: a case whose check had another version or another judge is left
out, and the first sentence reports it, since a change of the judge is not a change of the model.

A run could hide losses by not finishing those cases. So *improvement* and *no_change* must also hold in the worst case,
in which every reply of the new run without a comparable verdict failed, repeat by repeat; otherwise the verdict is
inconclusive. A loss counts as excluded only if it is in the worst case too.
"""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from msgspec import Struct

from pramana.analyse.intervals import Interval
from pramana.analyse.labels import TWO_RUN_LABELS, SideLabels
from pramana.analyse.mean_bounds import cases_to_exclude_loss
from pramana.analyse.numbers import format_signed_points, format_signed_points_with_unit, pluralise
from pramana.analyse.paired_tests import (
    Evidence,
    Test,
    TestedPairs,
    Verdict,
    find_mean,
    group_pairs_by_case,
    weigh_pairs,
)
from pramana.analyse.pairing import (
    DifferentJudges,
    Excluded,
    Judges,
    Outcomes,
    Pair,
    Pairing,
    pair_answers,
    split_variant,
)

# ── The comparison ──

VERDICTS_DENYING_LOSS: tuple[Verdict, ...] = ("improvement", "no_change")
"""The verdicts that must also hold if all new replies without a verdict failed."""
FailOn = Literal["regression", "inconclusive"]
"""What a build stops for: a regression beyond the margin only, or anything that does not exclude one too."""
ALPHA, MARGIN = 0.05, 0.05
NO_LOSS, LOSS, UNDECIDED = 0, 1, 4
"""The exit codes."""
DAY_NOTE = (
    'Two runs made on different days can differ although the model is the same; see "Two runs on two days" in '
    "docs/statistics.md."
)


class Comparison(Struct, frozen=True):
    """The comparison of two runs."""

    verdict: Verdict
    sentence: str
    """The conclusion in plain words; show it first."""
    detail: str
    """The numbers behind it: difference, interval, test."""
    pairs: int
    compared_cases: tuple[str, ...]
    """The keys of the pairs."""
    base_rate: float | None
    new_rate: float | None
    difference: float | None
    """New minus base, over the pairs; None without pairs."""
    interval: Interval
    p_value: float
    test: Test
    """Without pairs, the test, the p-value and the interval mean nothing."""
    lost: tuple[Pair, ...]
    """Cases that pass less often on the new side, in the order of the base; likewise `gained`."""
    gained: tuple[Pair, ...]
    excluded: tuple[Excluded, ...]
    differently_judged: tuple[DifferentJudges, ...]
    """Cases with verdicts of two judges: left out, or compared with `any_judge`."""
    unpaired: int
    """Replies to compared cases that were left out: without a verdict, or surplus on one side."""
    unpaired_counts: tuple[int, int]
    """Of these, those with a verdict but without a counterpart: base, new."""
    only_base: tuple[str, ...]
    only_new: tuple[str, ...]
    alpha: float
    margin: float
    loss_excluded: bool
    """Whether a loss as large as the margin is excluded, even if all new replies without a verdict failed."""
    needed: int | None
    """If inconclusive, about how many cases would detect a change as large as the margin (power 80 %)."""
    missing_verdicts: int = 0
    """New replies without a verdict, to compared cases and to cases that passed on the base side."""
    judge_changed: int = 0
    """Replies that passed on the base side, left out because another judge gave the new verdict."""
    labels: SideLabels = TWO_RUN_LABELS
    """The names of the two sides in sentences."""

    def exit_code(self, fail_on: FailOn = "regression") -> int:
        """Return 1 for a regression beyond the margin, 0 otherwise; 4 if undecided.

        Undecided means that nothing could be compared or, if asked for, that a loss as large as the margin is possible.
        """
        if not self.pairs:
            return UNDECIDED
        if self.verdict == "regression" and self.interval.low < -self.margin:
            return LOSS
        return UNDECIDED if fail_on == "inconclusive" and not self.loss_excluded else NO_LOSS

    @property
    def is_within_margin(self) -> bool:
        """Whether the proven difference is smaller than the margin: its interval does not reach beyond it."""
        return _is_within_margin(self.verdict, self.interval, self.margin)

    @property
    def describe_unpaired(self) -> str:
        """The surplus verdicts (`unpaired_counts`) in plain words; empty where there are none."""
        words = self.labels.base, self.labels.new
        sides = [(count, word) for count, word in zip(self.unpaired_counts, words, strict=True) if count]
        if not sides:
            return ""
        (count, word), *other = sides
        left = f"{pluralise(count, 'answer')} {word}" + "".join(f" and {count:,} {word}" for count, word in other)
        return (
            "If a case has more verdicts on one side, only as many as on the other are compared, the first ones: "
            f"{left} {'is' if sum(self.unpaired_counts) == 1 else 'are'} left out, and the rates here do not count "
            "them."
        )


class PreparedComparison(Struct, frozen=True):
    """Two sides, paired and tested; their verdict depends on the level only."""

    pairing: Pairing
    margin: float
    any_judge: bool
    labels: SideLabels
    only_base: tuple[str, ...]
    only_new: tuple[str, ...]
    tested: TestedPairs
    worst: TestedPairs
    """The same pairs if every new reply without a comparable verdict had failed."""

    @property
    def has_pairs(self) -> bool:
        return bool(self.pairing.pairs)

    @property
    def difference(self) -> float | None:
        """New minus base, over the pairs; None without pairs."""
        return self.tested.difference

    @property
    def p_value(self) -> float:
        """The p-value of the pairs; without pairs, it means nothing."""
        return self.tested.p_value

    def decide(self, alpha: float = ALPHA) -> Comparison:
        """Return the comparison at a level."""
        made, margin, labels = self.pairing, self.margin, self.labels
        pairs, apart = made.pairs, made.differently_judged
        evidence, worst = self.tested.decide(alpha), self.worst.decide(alpha)
        verdict = evidence.verdict(margin)
        overturned = verdict in VERDICTS_DENYING_LOSS and worst.verdict(margin) not in VERDICTS_DENYING_LOSS
        verdict = "inconclusive" if overturned else verdict
        base_rate, new_rate = _mean_rates(pairs)
        if overturned:
            sentence = _explain_hidden_losses(made, labels)
        else:
            sentence = _conclude(made, verdict, labels, evidence=evidence, margin=margin)
        if apart and pairs and not (overturned and made.judge_changed):
            sentence = _append_judge_note(sentence, apart, labels, any_judge=self.any_judge)
        if not overturned:
            sentence += _describe_possible_loss(verdict, evidence, worst, margin, labels)
        return Comparison(
            verdict=verdict,
            sentence=sentence,
            detail=_describe_evidence(evidence, base_rate, new_rate, labels),
            pairs=len(pairs),
            compared_cases=tuple([each.case for each in pairs]),
            base_rate=base_rate,
            new_rate=new_rate,
            difference=evidence.difference,
            interval=evidence.interval,
            p_value=evidence.p_value,
            test=evidence.test,
            lost=tuple([each for each in pairs if each.difference < 0]),
            gained=tuple([each for each in pairs if each.difference > 0]),
            excluded=tuple(made.excluded),
            differently_judged=tuple(apart),
            unpaired=made.unpaired,
            unpaired_counts=(
                sum([each.base_unpaired.answers for each in pairs]),
                sum([each.new_unpaired.answers for each in pairs]),
            ),
            only_base=self.only_base,
            only_new=self.only_new,
            alpha=alpha,
            margin=margin,
            loss_excluded=bool(pairs) and min(evidence.interval.low, worst.interval.low) > -margin,
            needed=evidence.count_needed_cases(margin) if verdict == "inconclusive" else None,
            missing_verdicts=made.undecided - made.judge_changed,
            judge_changed=made.judge_changed,
            labels=labels,
        )


def compare(
    base: Outcomes,
    new: Outcomes,
    *,
    alpha: float = ALPHA,
    margin: float = MARGIN,
    same_cases: bool = True,
    new_repeats: int | None = None,
    base_judges: Judges | None = None,
    new_judges: Judges | None = None,
    any_judge: bool = False,
    labels: SideLabels = TWO_RUN_LABELS,
) -> Comparison:
    """Compare two runs case by case: keys are case digests or test ids, each value holds one outcome per repeat.

    `same_cases` means that both runs have the same cases, so a case that only the base has is unfinished in the new
    run. `new_repeats` is the number of repeats that the new run planned, by default the most that any case has. The
    judges give the sources of the verdicts by case; `any_judge` compares verdicts of two judges as if one had given
    them. A key may name the variant too (`split_variant`). `labels` name the two sides in sentences.

    >>> from pramana.model import Outcome
    >>> before = {str(number): [Outcome.PASSED] for number in range(100)}
    >>> found = compare(before, before | {str(number): [Outcome.FAILED] for number in range(12)})
    >>> found.verdict, found.exit_code()
    ('regression', 1)
    >>> print(found.sentence)
    Regression between these two runs: of 100 cases, 12 that passed before fail now; none that failed before passes now.
    """
    return prepare_comparison(
        base,
        new,
        margin=margin,
        same_cases=same_cases,
        new_repeats=new_repeats,
        base_judges=base_judges,
        new_judges=new_judges,
        any_judge=any_judge,
        labels=labels,
    ).decide(alpha)


def prepare_comparison(
    base: Outcomes,
    new: Outcomes,
    *,
    margin: float = MARGIN,
    same_cases: bool = True,
    new_repeats: int | None = None,
    base_judges: Judges | None = None,
    new_judges: Judges | None = None,
    any_judge: bool = False,
    labels: SideLabels = TWO_RUN_LABELS,
) -> PreparedComparison:
    """Pair and test two runs, to decide them at a level that is not known yet; the parameters are those of `compare`.

    >>> from pramana.model import Outcome
    >>> before = {str(number): [Outcome.PASSED] for number in range(100)}
    >>> found = prepare_comparison(before, before | {str(number): [Outcome.FAILED] for number in range(6)})
    >>> found.p_value, found.decide().verdict, found.decide(0.05 / 3).verdict
    (0.03125, 'regression', 'inconclusive')
    """
    made = pair_answers(
        base,
        new,
        same_cases=same_cases,
        new_repeats=new_repeats,
        base_judges=base_judges or {},
        new_judges=new_judges or {},
        any_judge=any_judge,
    )
    tested = weigh_pairs(made.pairs)
    return PreparedComparison(
        pairing=made,
        margin=margin,
        any_judge=any_judge,
        labels=labels,
        only_base=tuple([case for case in base if case not in new]),
        only_new=tuple([case for case in new if case not in base]),
        tested=tested,
        worst=tested if made.undecided == 0 and made.worst_pairs == made.pairs else weigh_pairs(made.worst_pairs),
    )


def _mean_rates(pairs: Sequence[Pair]) -> tuple[float | None, float | None]:
    """Return the mean of the cases' pass rates on both sides, each over its variants."""
    units = group_pairs_by_case(pairs)
    if len(units) == len(pairs):
        return find_mean([each.base_passed / each.repeats for each in pairs]), find_mean(
            [each.new_passed / each.repeats for each in pairs]
        )
    base = find_mean([fmean(each.base_passed / each.repeats for each in variants) for variants in units])
    return base, find_mean([fmean(each.new_passed / each.repeats for each in variants) for variants in units])


def _explain_hidden_losses(pairing: Pairing, labels: SideLabels) -> str:
    """Describe what could hide a loss."""
    noun = "result" if any(each.repeats > 1 for each in pairing.worst_pairs) else "case"

    def choose_form(count: int, one: str, many: str) -> str:
        return f"{pluralise(count, noun)} that passed {labels.base} {one if count == 1 else many}"

    parts = (
        [choose_form(pairing.undecided_after_pass, "has", "have") + f" no verdict {labels.new}"]
        if pairing.undecided_after_pass
        else []
    )
    if pairing.judge_changed:
        parts.append(
            f"{choose_form(pairing.judge_changed, 'was', 'were')} "
            f"{_describe_different_judges(pairing.differently_judged, labels)}"
        )
    if not parts:  # no loss is hidden, but a gain may be smaller than it looks
        parts.append(
            f"{pluralise(pairing.undecided, noun)} {'has' if pairing.undecided == 1 else 'have'} no verdict "
            f"{labels.new}"
        )
    return f"Not enough evidence: {', '.join(parts)}, and if they had failed, the conclusion would be different."


def _describe_only_different_judges(pairing: Pairing, labels: SideLabels) -> str:
    count = len(pairing.differently_judged)
    those = (
        _format_case_count(count)
        if pairing.excluded
        else "the case"
        if count == 1
        else f"all {_format_case_count(count)}"
    )
    rest = "; no other case has a verdict on both sides" if pairing.excluded else ""
    said = f"{those} {'was' if count == 1 else 'were'} {_describe_different_judges(pairing.differently_judged, labels)}"
    return f"Not enough evidence: {said}, and verdicts by different judges are not compared{rest}."


def _append_judge_note(sentence: str, apart: Sequence[DifferentJudges], labels: SideLabels, *, any_judge: bool) -> str:
    """Add to the sentence that two judges are involved."""
    count = len(apart)
    if any_judge:
        which = f"{_format_case_count(count)} of those compared {'was' if count == 1 else 'were'}"
        return f"{sentence[:-1]}; {which} {_describe_different_judges(apart, labels)}."
    left_out = f"{_format_case_count(count)} {'is' if count == 1 else 'are'} left out,"
    return f"{sentence[:-1]}; {left_out} {_describe_different_judges(apart, labels)}."


def _describe_different_judges(apart: Sequence[DifferentJudges], labels: SideLabels) -> str:
    """Name both judges; of several pairs of judges, the one with the most cases."""
    kinds = Counter(map(_name_both_judges, apart))
    ((before, now), _), *others = kinds.most_common()
    return f"judged by {before} {labels.base} and by {now} {labels.new}" + (
        " (some cases by other judges)" if others else ""
    )


def _name_both_judges(apart: DifferentJudges) -> tuple[str, str]:
    short = [" and ".join(dict.fromkeys(map(str, sorted(side)))) for side in (apart.base, apart.new)]
    if short[0] == short[1]:  # the same judge with another prompt
        short = [" and ".join(each.full_name for each in sorted(side)) for side in (apart.base, apart.new)]
    return short[0], short[1]


class _PairCount(Struct, frozen=True):
    """The number of pairs in words: one case in three variants is not three cases."""

    pairs: int
    cases: int
    variants: int

    @classmethod
    def from_pairs(cls, pairs: Sequence[Pair]) -> "_PairCount":
        named = [split_variant(each.case) for each in pairs]
        return cls(len(pairs), len({case for case, _ in named}), len({variant for _, variant in named}))

    def __str__(self) -> str:
        if self.variants < 2:
            return _format_case_count(self.pairs)
        return f"{pluralise(self.pairs, 'answer')} ({_format_case_count(self.cases)}, {self.variants:,} variants)"

    @property
    def all_phrase(self) -> str:
        return "the case" if self.pairs == 1 else f"all {self}"


class _ChangedCounts(NamedTuple):
    """How many pairs changed; with repeats, a case passes more or less often: one pass of three is not "failed"."""

    lost: int
    gained: int
    has_repeats: bool

    @classmethod
    def from_pairs(cls, pairs: Sequence[Pair]) -> "_ChangedCounts":
        lost, gained = (sum(1 for each in pairs if sign * each.difference > 0) for sign in (-1, 1))
        has_repeats = any(each.repeats > 1 or each.base_unpaired.answers or each.new_unpaired.answers for each in pairs)
        return cls(lost, gained, has_repeats)


def _no_difference_sentence(pairs: _PairCount, labels: SideLabels) -> str:
    little = f"{_format_case_count(pairs.cases)} {'proves' if pairs.cases == 1 else 'prove'} little"
    between = f" between {labels.model_labels[0]} and {labels.model_labels[1]}" if labels.model_labels else ""
    return f"No difference seen{between}: {pairs.all_phrase} ended {labels.unchanged_phrase}, but {little}."


def _is_unproven(verdict: Verdict, evidence: Evidence, margin: float) -> bool:
    """Return whether nothing changed, but too few cases were compared to rule out a change as large as the margin."""
    return verdict == "no_change" and not evidence.interval.is_within(margin)


def _is_within_margin(verdict: Verdict, interval: Interval, margin: float) -> bool:
    """Return whether a proven difference is smaller than the margin."""
    return (verdict == "regression" and interval.low >= -margin) or (
        verdict == "improvement" and interval.high <= margin
    )


def _describe_possible_loss(
    verdict: Verdict, evidence: Evidence, worst: Evidence, margin: float, labels: SideLabels
) -> str:
    """Return a sentence about the largest loss that the evidence allows, and how many cases would exclude it.

    It is empty if nothing was compared, or if the verdict says it.
    """
    if not evidence.cases or not (verdict == "inconclusive" or _is_unproven(verdict, evidence, margin)):
        return ""
    loss = f"A lead of {labels.model_labels[0]}" if labels.model_labels else "A loss"
    low = min(evidence.interval.low, worst.interval.low)
    if low > -margin:
        return f" {loss} of {_format_margin(margin)} or more is excluded."
    if low >= 0:
        return ""
    possible = f" {loss} of up to {pluralise(math.ceil(round(-100 * low, 6)), 'point')} cannot be excluded"
    if low < evidence.interval.low:
        return f"{possible} if results without a verdict count as failed."
    enough = 0
    if margin:
        enough = cases_to_exclude_loss(margin, evidence.differences, alpha=evidence.alpha)
    if enough <= evidence.cases:
        return f"{possible}."
    alike = "both were equally good" if labels.model_labels else "nothing changed"
    return f"{possible}; if {alike}, about {enough:,} cases would exclude one of {_format_margin(margin)}."


def _format_margin(margin: float) -> str:
    points = f"{100 * margin:.6g}"
    return f"{points} point{'' if points == '1' else 's'}"


def _conclude(
    pairing: Pairing,
    verdict: Verdict,
    labels: SideLabels,
    *,
    evidence: Evidence,
    margin: float,
) -> str:
    """Return the conclusion, without what it cannot exclude."""
    changed = _ChangedCounts.from_pairs(pairing.pairs)
    pairs = _PairCount.from_pairs(pairing.pairs)
    if pairing.differently_judged and not pairing.pairs:
        return _describe_only_different_judges(pairing, labels)
    if not pairing.pairs:
        return "Not enough evidence: no case has a verdict on both sides."
    if _is_unproven(verdict, evidence, margin):
        return _no_difference_sentence(pairs, labels)
    limit = f"the margin of {_format_margin(margin)}" if _is_within_margin(verdict, evidence.interval, margin) else ""
    if labels.model_labels:
        return _two_models_sentence(pairs, verdict, changed, labels, limit)
    if verdict == "no_change" and not changed.lost and not changed.gained:
        return f"No change between these two runs: {pairs.all_phrase} ended as before."
    flips = f"of {pairs}, {_describe_flips(changed)}"
    small = f", smaller than {limit}" if limit else ""
    return {
        "regression": f"Regression between these two runs{small}: {flips}.",
        "improvement": f"Improvement between these two runs{small}: {flips}.",
        "no_change": f"No change between these two runs: {flips}; chance alone can explain this.",
        "inconclusive": f"Not enough evidence: {flips}; this can be chance or a real change.",
    }[verdict]


def _describe_flips(changed: _ChangedCounts) -> str:
    lost, gained = changed.lost, changed.gained
    if changed.has_repeats:
        passes = "passes" if lost < 2 else "pass"
        return f"{_format_count_or_none(lost)} {passes} less often now and {_format_count_or_none(gained)} more often"
    losses = f"{_format_count_or_none(lost)} that passed before {'fails' if lost < 2 else 'fail'} now"
    return f"{losses}; {_format_count_or_none(gained)} that failed before {'passes' if gained < 2 else 'pass'} now"


def _two_models_sentence(
    pairs: _PairCount, verdict: Verdict, changed: _ChangedCounts, labels: SideLabels, limit: str
) -> str:
    """Return the conclusion about two models of one run, the better one first; `limit` names a margin that holds."""
    base, new = labels.model_labels or ("", "")
    if verdict == "no_change" and not changed.lost and not changed.gained:
        return f"No difference between {base} and {new}: {pairs.all_phrase} ended alike."
    both = [(changed.lost, labels.base), (changed.gained, labels.new)]
    (first, for_first), (second, for_second) = reversed(both) if verdict == "improvement" else both
    if changed.has_repeats:
        passes = "passes" if first < 2 else "pass"
        of_first = f"{_format_count_or_none(first)} {passes} more often {for_first}"
        flips = f"of {pairs}, {of_first} and {_format_count_or_none(second)} {for_second}"
    else:
        of_first, of_second = _format_count_or_none(first), _format_count_or_none(second)
        flips = f"of {pairs}, {of_first} passed only {for_first} and {of_second} only {for_second}"
    small = f" by less than {limit}" if limit else ""
    return {
        "regression": f"{base} beats {new}{small}: {flips}.",
        "improvement": f"{new} beats {base}{small}: {flips}.",
        "no_change": f"No difference between {base} and {new}: {flips}; chance alone can explain this.",
        "inconclusive": f"Not enough evidence that {base} or {new} is better: {flips}; this can be chance or a real "
        "difference.",
    }[verdict]


def _describe_evidence(evidence: Evidence, base_rate: float | None, new_rate: float | None, labels: SideLabels) -> str:
    if evidence.difference is None or base_rate is None or new_rate is None:
        return "There is nothing to compare."
    low, high = evidence.interval.low, evidence.interval.high
    p_value = f"p = {evidence.p_value:.2g}" if evidence.p_value >= 1e-4 else "p < 0.0001"
    rates = f"{100 * base_rate:.1f} % {labels.base}, {100 * new_rate:.1f} % {labels.new}"
    numbers = (
        f"Pass rate {rates}: {format_signed_points_with_unit(evidence.difference)}, "
        f"{100 * (1 - evidence.alpha):.4g} % interval {format_signed_points(low)} to "
        f"{format_signed_points(high)}; "
        f"{evidence.test}, {p_value}."
    )
    return f"{numbers} {DAY_NOTE}" if evidence.is_significant and not labels.model_labels else numbers


def _format_count_or_none(count: int) -> str:
    return f"{count:,}" if count else "none"


def _format_case_count(count: int) -> str:
    return pluralise(count, "case")
