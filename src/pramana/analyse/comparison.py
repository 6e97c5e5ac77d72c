"""Which of two runs is better: outcomes by case in, one verdict with its evidence out.

Only cases with a verdict on both sides are compared, each with itself. With one reply per case the test is McNemar's,
exact; with repeats it is the sign-flip test over cases, on as many repeats as both sides have. Surplus repeats of one
side are counted (`over`), but not compared. The verdicts, at level `alpha` (0.05) and with the 1 - alpha interval:

- **regression** or **improvement**: the test rejects "no difference" and the interval lies on one side of zero. The
  size does not matter: a proven loss is never reported as no change.
- **no_change**: neither, and either the whole interval lies within ±`margin` (5 points) or no case changed at all. In
  the latter case a few cases could not have shown much: the sentence says so, and the interval shows how much.
- **inconclusive**: anything else. The evidence is consistent with a change and with none.

Verdicts are compared only if the same judge gave them: a case whose check had another version or another judge is left
out, and the first sentence reports it, since a change of the judge is not a change of the model.

A run could hide losses by not finishing those cases. So *improvement* and *no_change* must also hold in the worst case,
in which every reply of the new run without a comparable verdict failed, repeat by repeat; otherwise the verdict is
inconclusive.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct, field

from pramana.analyse.intervals import (
    Interval,
    cases_needed,
    clustered_difference_interval,
    mcnemar_p_value,
    normal_quantile,
    paired_difference_interval,
    sign_flip_p_value,
)
from pramana.analyse.labels import TWO_RUN_LABELS, SideLabels
from pramana.analyse.numbers import format_point_difference, format_points, pluralise
from pramana.model import Outcome

SCORED = (Outcome.PASSED, Outcome.FAILED)

Outcomes = Mapping[str, Sequence[Outcome]]
"""By case digest or test id, one outcome per repeat."""
_VOICE_VARIANT = re.compile(r"(.*) \((voice[^()]*)\)", re.DOTALL)


def split_variant(key: str) -> tuple[str, str]:
    """Split a key into the case and its variant; the variant is empty for text.

    Where a side has several variants, its keys name the variant after the case.

    >>> split_variant("sha256:1 (voice+noise=10dB)"), split_variant("sha256:1")
    (('sha256:1', 'voice+noise=10dB'), ('sha256:1', ''))
    """
    found = _VOICE_VARIANT.fullmatch(key)
    return (found[1], found[2]) if found else (key, "")


class VerdictSource(Struct, frozen=True, order=True):
    """The source of a verdict: a check, and its judge or embedder if it uses a model.

    >>> str(VerdictSource("llm_judge", "1", "openai:gpt-5")), str(VerdictSource("contains", "1"))
    ('openai:gpt-5', 'contains 1')
    """

    check: str
    version: str
    by: str = ""
    """The judge or the embedder; empty where the check uses no model."""
    served: str = ""
    """The model that the judge's provider reported; empty where it reports none."""

    def __str__(self) -> str:
        return f"{self.by or self.full_name}{f' ({self.served})' if self.served else ''}"

    @property
    def full_name(self) -> str:
        """The check, its version and its judge."""
        return f"{self.check} {self.version}{f' by {self.by}' if self.by else ''}"


Judges = Mapping[str, frozenset[VerdictSource]]
"""By case, the sources of its verdicts; cases without a known source are left out."""


class UnpairedAnswers(NamedTuple):
    """Surplus replies with a verdict on one side, and how many of them passed."""

    passed: int = 0
    answers: int = 0


_NOTHING_UNPAIRED = UnpairedAnswers()


class Pair(Struct, frozen=True):
    """One compared case: how many of its replies passed, out of the same number on both sides."""

    case: str
    base_passed: int
    new_passed: int
    repeats: int
    base_unpaired: UnpairedAnswers = _NOTHING_UNPAIRED
    """Replies without a counterpart on the new side; not compared."""
    new_unpaired: UnpairedAnswers = _NOTHING_UNPAIRED

    @property
    def difference(self) -> float:
        return (self.new_passed - self.base_passed) / self.repeats


class Excluded(Struct, frozen=True):
    """One case of both sides that could not be compared, with all its outcomes."""

    case: str
    base: tuple[Outcome, ...]
    new: tuple[Outcome, ...]


class DifferentJudges(Struct, frozen=True):
    """One case with verdicts of different judges on the two sides."""

    case: str
    base: frozenset[VerdictSource]
    new: frozenset[VerdictSource]


class Pairing(Struct):
    """The replies of two runs, paired by case."""

    pairs: list[Pair] = field(default_factory=list)
    worst_pairs: list[Pair] = field(default_factory=list)
    """The pairs if every new reply without a comparable verdict had failed."""
    excluded: list[Excluded] = field(default_factory=list)
    differently_judged: list[DifferentJudges] = field(default_factory=list)
    """Cases with verdicts of two judges; left out of the pairs unless `any_judge` is set."""
    unpaired: int = 0
    """Replies to compared cases that were left out: without a verdict, or surplus on one side."""
    undecided: int = 0
    """New replies without a comparable verdict, to compared cases and to cases that passed on the base side."""
    unanswered: int = 0
    """Of these, those that passed on the base side and have no verdict on the new one."""
    judge_changed: int = 0
    """Of these, those that passed on the base side and have another judge's verdict on the new one."""


def pair_answers(
    base: Outcomes,
    new: Outcomes,
    *,
    same_cases: bool,
    new_repeats: int | None,
    base_judges: Judges,
    new_judges: Judges,
    any_judge: bool,
) -> Pairing:
    """Pair the replies of two runs by case; the parameters are those of `compare`."""
    made = Pairing()
    planned = max((1, *map(len, new.values()))) if new_repeats is None else new_repeats
    nobody: frozenset[VerdictSource] = frozenset()
    for case, before in base.items():
        after = new.get(case)
        if after is None and not same_cases:
            continue
        base_scored = [each is Outcome.PASSED for each in before if each in SCORED]
        new_scored = [each is Outcome.PASSED for each in after or () if each in SCORED]
        judges = DifferentJudges(case, base_judges.get(case, nobody), new_judges.get(case, nobody))
        left_out = False
        if base_scored and new_scored and not have_same_judge(judges.base, judges.new):
            made.differently_judged.append(judges)
            left_out = not any_judge
        # Equal numbers from both sides: only then is "no difference" unaffected by swapping the sides.
        repeats = 0 if left_out else min(len(base_scored), len(new_scored))
        if repeats:
            made.unpaired += len(before) + len(after or ()) - 2 * repeats
            over = [UnpairedAnswers(sum(each[repeats:]), len(each) - repeats) for each in (base_scored, new_scored)]
            made.pairs.append(Pair(case, sum(base_scored[:repeats]), sum(new_scored[:repeats]), repeats, *over))
        elif after is not None and not left_out:
            made.excluded.append(Excluded(case, tuple(before), tuple(after)))
        meant = max(repeats, min(len(base_scored), planned))  # a planned smaller number of repeats hides nothing
        missing = sum(base_scored[repeats:meant])
        if repeats or missing:
            made.worst_pairs.append(Pair(case, sum(base_scored[:meant]), sum(new_scored[:repeats]), meant))
            made.undecided += meant - repeats
            made.judge_changed += missing if left_out else 0
            made.unanswered += 0 if left_out else missing
    return made


def have_same_judge(base: frozenset[VerdictSource], new: frozenset[VerdictSource]) -> bool:
    """Return whether verdicts of both sides may be compared; verdicts of an unknown judge always may.

    >>> before, after = VerdictSource("llm_judge", "1", "gpt-5", "gpt-5-08"), VerdictSource("llm_judge", "1", "gpt-5")
    >>> have_same_judge(frozenset({before}), frozenset({after})), have_same_judge(frozenset({before}), frozenset())
    (True, True)
    """
    if not base or not new:
        return True
    common = {each.check for each in base} & {each.check for each in new}
    return bool(common) and all(_same_source(base, new, check) for check in common)


def _same_source(base: frozenset[VerdictSource], new: frozenset[VerdictSource], check: str) -> bool:
    before, now = ([each for each in side if each.check == check] for side in (base, new))
    if {(each.version, each.by) for each in before} != {(each.version, each.by) for each in now}:
        return False
    served, serves = ({each.served for each in side if each.served} for side in (before, now))
    return not served or not serves or served == serves


# ── The comparison ──

Verdict = Literal["regression", "improvement", "no_change", "inconclusive"]
Test = Literal["exact McNemar", "sign flips by case"]
ALPHA, MARGIN = 0.05, 0.05
EXIT_CODES: dict[Verdict, int] = {"regression": 1, "improvement": 0, "no_change": 0, "inconclusive": 4}
MAX_PARTS = 10**9
"""The largest common denominator of the cases' differences: where repeats vary, none fits all of them exactly."""


class Comparison(Struct, frozen=True):
    """The comparison of two runs."""

    verdict: Verdict
    sentence: str
    """The conclusion in plain words; show it first."""
    detail: str
    """The numbers behind it: difference, interval, test."""
    pairs: int
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
    needed: int | None
    """If inconclusive, about how many cases would detect a change as large as the margin (power 80 %)."""
    labels: SideLabels = TWO_RUN_LABELS
    """The names of the two sides in sentences."""

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.verdict]

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
    >>> found.verdict, found.exit_code
    ('regression', 1)
    >>> found.sentence
    'Regression: of 100 cases, 12 that passed before fail now; none that failed before passes now.'
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
    pairs, apart = made.pairs, made.differently_judged
    evidence = _test_difference(pairs, alpha)
    verdict = evidence.verdict(margin)
    overturned = EXIT_CODES[verdict] == 0 and EXIT_CODES[_test_difference(made.worst_pairs, alpha).verdict(margin)] != 0
    verdict = "inconclusive" if overturned else verdict
    lost = [each for each in pairs if each.difference < 0]
    gained = [each for each in pairs if each.difference > 0]
    base_rate, new_rate = _mean_rates(pairs)
    over = sum(each.base_unpaired.answers for each in pairs), sum(each.new_unpaired.answers for each in pairs)
    # A case that passed once in three repeats is not one "that failed".
    changed = _ChangedCounts(len(lost), len(gained), repeated=evidence.repeated or any(over))
    is_proven = evidence.interval.is_within(margin)
    sentence = _conclude(made, verdict, changed, labels, is_proven=is_proven)
    if overturned:
        sentence = _explain_hidden_losses(made, labels)
    if apart and pairs and not (overturned and made.judge_changed):
        sentence = _append_judge_note(sentence, apart, labels, any_judge=any_judge)
    return Comparison(
        verdict=verdict,
        sentence=sentence,
        detail=_describe_evidence(evidence, base_rate, new_rate, labels),
        pairs=len(pairs),
        base_rate=base_rate,
        new_rate=new_rate,
        difference=evidence.difference,
        interval=evidence.interval,
        p_value=evidence.p_value,
        test=evidence.test,
        lost=tuple(lost),
        gained=tuple(gained),
        excluded=tuple(made.excluded),
        differently_judged=tuple(apart),
        unpaired=made.unpaired,
        unpaired_counts=over,
        only_base=tuple(case for case in base if case not in new),
        only_new=tuple(case for case in new if case not in base),
        alpha=alpha,
        margin=margin,
        needed=cases_needed(margin, (len(lost) + len(gained)) / max(len(pairs), 1), alpha=alpha)
        if verdict == "inconclusive"
        else None,
        labels=labels,
    )


def _mean_rates(pairs: Sequence[Pair]) -> tuple[float | None, float | None]:
    """Return the mean of the cases' pass rates on both sides."""
    base = _mean([each.base_passed / each.repeats for each in pairs])
    return base, _mean([each.new_passed / each.repeats for each in pairs])


def _explain_hidden_losses(pairing: Pairing, labels: SideLabels) -> str:
    """Describe what could hide a loss."""
    noun = "result" if any(each.repeats > 1 for each in pairing.worst_pairs) else "case"

    def choose_form(count: int, one: str, many: str) -> str:
        return f"{pluralise(count, noun)} that passed {labels.base} {one if count == 1 else many}"

    parts = [choose_form(pairing.unanswered, "has", "have") + f" no verdict {labels.new}"] if pairing.unanswered else []
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
    return f"Not enough evidence: {', '.join(parts)}, and if they had failed, the answer would be different."


def _describe_only_different_judges(pairing: Pairing, labels: SideLabels) -> str:
    count = len(pairing.differently_judged)
    those = _count_cases(count) if pairing.excluded else "the case" if count == 1 else f"all {_count_cases(count)}"
    rest = "; no other case has a verdict on both sides" if pairing.excluded else ""
    said = f"{those} {'was' if count == 1 else 'were'} {_describe_different_judges(pairing.differently_judged, labels)}"
    return f"Not enough evidence: {said}, and verdicts by different judges are not compared{rest}."


def _append_judge_note(sentence: str, apart: Sequence[DifferentJudges], labels: SideLabels, *, any_judge: bool) -> str:
    """Add to the sentence that two judges are involved."""
    count = len(apart)
    if any_judge:
        which = f"{_count_cases(count)} of those compared {'was' if count == 1 else 'were'}"
        return f"{sentence[:-1]}; {which} {_describe_different_judges(apart, labels)}."
    left_out = f"{_count_cases(count)} {'is' if count == 1 else 'are'} left out,"
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


class _Evidence(Struct, frozen=True):
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
        return "no_change" if not self.changed or self.interval.is_within(margin) else "inconclusive"


def _test_difference(pairs: Sequence[Pair], alpha: float) -> _Evidence:
    z = normal_quantile(1 - alpha)
    differences = [each.difference for each in pairs]
    changed = sum(1 for each in differences if each)
    if all(each.repeats == 1 for each in pairs):
        lost = sum(1 for each in differences if each < 0)
        interval = paired_difference_interval(lost, changed - lost, len(pairs), z)
        return _Evidence(
            _mean(differences), interval, mcnemar_p_value(lost, changed - lost), alpha, changed, repeated=False
        )
    scale = min(math.lcm(*{each.repeats for each in pairs}), MAX_PARTS)
    whole = [round((each.new_passed - each.base_passed) * scale / each.repeats) for each in pairs]
    interval = clustered_difference_interval(differences, z)
    return _Evidence(_mean(differences), interval, sign_flip_p_value(whole), alpha, changed, repeated=True)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


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
            return _count_cases(self.pairs)
        return f"{pluralise(self.pairs, 'answer')} ({_count_cases(self.cases)}, {self.variants:,} variants)"

    @property
    def describe_all(self) -> str:
        return "the case" if self.pairs == 1 else f"all {self}"


class _ChangedCounts(NamedTuple):
    """How many pairs changed; with repeats, a case may pass more or less often instead of flipping."""

    lost: int
    gained: int
    repeated: bool


def _no_difference_sentence(pairs: _PairCount, labels: SideLabels) -> str:
    little = f"{_count_cases(pairs.cases)} {'proves' if pairs.cases == 1 else 'prove'} little"
    between = f" between {labels.model_labels[0]} and {labels.model_labels[1]}" if labels.model_labels else ""
    return f"No difference seen{between}: {pairs.describe_all} ended {labels.unchanged_phrase}, but {little}."


def _conclude(
    pairing: Pairing, verdict: Verdict, changed: _ChangedCounts, labels: SideLabels, *, is_proven: bool
) -> str:
    """Return the conclusion; `is_proven` means that the interval rules out a change as large as the margin."""
    pairs = _PairCount.from_pairs(pairing.pairs)
    if pairing.differently_judged and not pairing.pairs:
        return _describe_only_different_judges(pairing, labels)
    if not pairing.pairs:
        return "Not enough evidence: no case has a verdict on both sides."
    if verdict == "no_change" and not is_proven:
        return _no_difference_sentence(pairs, labels)
    if labels.model_labels:
        return _two_models_sentence(pairs, verdict, changed, labels)
    if verdict == "no_change" and not changed.lost and not changed.gained:
        return f"No change: {pairs.describe_all} ended as before."
    flips = f"of {pairs}, {_describe_flips(changed)}"
    return {
        "regression": f"Regression: {flips}.",
        "improvement": f"Improvement: {flips}.",
        "no_change": f"No change: {flips}; chance alone can explain this.",
        "inconclusive": f"Not enough evidence: {flips}; this can be chance or a real change.",
    }[verdict]


def _describe_flips(changed: _ChangedCounts) -> str:
    lost, gained = changed.lost, changed.gained
    if changed.repeated:
        passes = "passes" if lost < 2 else "pass"
        return f"{_spell_number(lost)} {passes} less often now and {_spell_number(gained)} more often"
    losses = f"{_spell_number(lost)} that passed before {'fails' if lost < 2 else 'fail'} now"
    return f"{losses}; {_spell_number(gained)} that failed before {'passes' if gained < 2 else 'pass'} now"


def _two_models_sentence(pairs: _PairCount, verdict: Verdict, changed: _ChangedCounts, labels: SideLabels) -> str:
    """Return the conclusion about two models of one run, the better one first."""
    base, new = labels.model_labels or ("", "")
    if verdict == "no_change" and not changed.lost and not changed.gained:
        return f"No difference between {base} and {new}: {pairs.describe_all} ended alike."
    both = [(changed.lost, labels.base), (changed.gained, labels.new)]
    (first, for_first), (second, for_second) = reversed(both) if verdict == "improvement" else both
    if changed.repeated:
        passes = "passes" if first < 2 else "pass"
        of_first = f"{_spell_number(first)} {passes} more often {for_first}"
        flips = f"of {pairs}, {of_first} and {_spell_number(second)} {for_second}"
    else:
        flips = (
            f"of {pairs}, {_spell_number(first)} passed only {for_first} and {_spell_number(second)} only {for_second}"
        )
    return {
        "regression": f"{base} beats {new}: {flips}.",
        "improvement": f"{new} beats {base}: {flips}.",
        "no_change": f"No difference between {base} and {new}: {flips}; chance alone can explain this.",
        "inconclusive": f"Not enough evidence that {base} or {new} is better: {flips}; this can be chance or a real "
        "difference.",
    }[verdict]


def _describe_evidence(evidence: _Evidence, base_rate: float | None, new_rate: float | None, labels: SideLabels) -> str:
    if evidence.difference is None or base_rate is None or new_rate is None:
        return "There is nothing to compare."
    low, high = evidence.interval.low, evidence.interval.high
    p_value = f"p = {evidence.p_value:.2g}" if evidence.p_value >= 1e-4 else "p < 0.0001"
    rates = f"{100 * base_rate:.1f} % {labels.base}, {100 * new_rate:.1f} % {labels.new}"
    return (
        f"Pass rate {rates}: {format_points(evidence.difference)}, "
        f"{100 * (1 - evidence.alpha):.4g} % interval {format_point_difference(low)} to "
        f"{format_point_difference(high)}; "
        f"{evidence.test}, {p_value}."
    )


def _spell_number(count: int) -> str:
    return f"{count:,}" if count else "none"


def _count_cases(count: int) -> str:
    return pluralise(count, "case")
