"""How far can a judge be trusted, and what would people have said? Labels and verdicts in, a corrected rate out.

A judge passes some bad replies and fails some good ones, so its pass rate is not the pass rate. With labels of a part
of the same run, the rate is corrected by post-stratification: how often is a YES right, how often is a NO wrong, each
weighed by how often the judge says it. Labels may therefore be drawn more often among the rarer verdict, as long as
they are drawn at random within each. With labels from elsewhere, the correction is Rogan and Gladen's, which assumes
that the judge errs there as it errs here; some labels of the run itself are required to notice when it does not.

Intervals are Jeffreys' posterior by seeded draws, slightly widened: simulated coverage of the usual normal intervals
falls to 50 % at high pass rates, that of these stays above 94 %.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from msgspec import Struct

from pramana.analyse.intervals import CONFIDENCE, Interval, normal_quantile

DRAWS, SEED = 4_000, 20_261_119
POSTERIOR_TAIL_FACTOR = 0.8
"""The posterior leaves out this much less than an interval of the confidence would: 4 % instead of 5 %. Without it,
coverage falls to 93 % where verdicts are few."""
MIN_LABELS, MIN_OF_EACH_VERDICT = 50, 10
"""Labels that a corrected rate needs: in all, and among each of the judge's two verdicts, as far as there are."""
MIN_LABELS_OF_THIS_RUN = 20
"""Labels of the run itself that are needed beside labels from elsewhere."""
MIN_LABELS_FOR_KAPPA = 10
"""With fewer labels, the interval of kappa covers nearly everything, or nothing if all labels are equal."""
MAX_INTERVAL_WIDTH = 0.25
"""A corrected rate whose interval is wider says too little to be shown."""
SHIFT_CONFIDENCE = 0.99
"""The judge counts as erring differently on two runs when their labels contradict each other at this confidence."""


class LabelCounts(Struct, frozen=True):
    """Labelled replies by what the judge said and what a person said.

    >>> LabelCounts(true_yes=40, false_yes=5, false_no=3, true_no=12).total
    60
    """

    true_yes: int = 0
    """The judge said YES, and so did the person."""
    false_yes: int = 0
    """The judge said YES, the person NO."""
    false_no: int = 0
    true_no: int = 0

    @property
    def judge_yes_count(self) -> int:
        """Labelled replies that the judge passed."""
        return self.true_yes + self.false_yes

    @property
    def judge_no_count(self) -> int:
        """Labelled replies that the judge failed."""
        return self.true_no + self.false_no

    @property
    def total(self) -> int:
        """All labelled replies."""
        return self.judge_yes_count + self.judge_no_count

    def as_strata(self, judge_passed: int, reply_count: int) -> "tuple[Stratum, Stratum]":
        """Return the labels beside the replies of a run that they were drawn from, by the judge's verdict."""
        return (
            Stratum(judge_passed=True, reply_count=judge_passed, yes_labels=self.true_yes, no_labels=self.false_yes),
            Stratum(
                judge_passed=False,
                reply_count=reply_count - judge_passed,
                yes_labels=self.false_no,
                no_labels=self.true_no,
            ),
        )


class Stratum(Struct, frozen=True, kw_only=True):
    """Replies with the same verdict of the judge, some of which people labelled, drawn at random among them."""

    judge_passed: bool
    """Whether the judge passed these replies."""
    reply_count: int
    """All replies of the stratum, labelled or not."""
    yes_labels: int = 0
    no_labels: int = 0


class CorrectedRate(Struct, frozen=True):
    """A rate as people would have given it, or the reason why it cannot be said."""

    value: float | None
    interval: Interval | None
    refusal_reason: str = ""


class JudgeAgreement(Struct, frozen=True):
    """How well a judge agrees with people, over the whole run and not only over its labelled part."""

    accuracy: float
    accuracy_interval: Interval
    kappa: float | None
    """None with fewer labels than `MIN_LABELS_FOR_KAPPA`, and if the judge gave all replies the same verdict: then it
    is 0 or undefined, whatever people say."""
    kappa_interval: Interval | None
    label_count: int


def count_labels(strata: Sequence[Stratum]) -> LabelCounts:
    """Return the labels of some strata by the judge's verdict."""
    passed, failed = ([each for each in strata if each.judge_passed is verdict] for verdict in (True, False))
    return LabelCounts(
        true_yes=sum(each.yes_labels for each in passed),
        false_yes=sum(each.no_labels for each in passed),
        false_no=sum(each.yes_labels for each in failed),
        true_no=sum(each.no_labels for each in failed),
    )


# ── Corrected rates ──


def correct_rate(
    labels: LabelCounts, judge_passed: int, reply_count: int, *, confidence: float = CONFIDENCE
) -> CorrectedRate:
    """Return the pass rate of a run by people's standards, from labels of a part of it.

    `judge_passed` of `reply_count` replies were passed by the judge, the labelled ones included.

    >>> corrected = correct_rate(LabelCounts(45, 5, 5, 45), 240, 300)
    >>> round(corrected.value, 2), corrected.interval.low < 0.74 < corrected.interval.high
    (0.74, True)
    >>> correct_rate(LabelCounts(20, 1, 1, 5), 240, 300).refusal_reason
    '27 replies are labelled; a corrected pass rate needs 50'
    """
    return correct_rate_of_strata(labels.as_strata(judge_passed, reply_count), confidence=confidence)


def correct_rate_of_strata(
    strata: Sequence[Stratum], *, replies_per_case: int = 1, confidence: float = CONFIDENCE
) -> CorrectedRate:
    """Return the pass rate of a run by people's standards, from labels of a part of each of its strata.

    There may be more than two strata: a run that was judged again has replies that were drawn by the verdicts of its
    first judge, and labels are at random only within the pairs of both verdicts. The replies of one case count as one
    for how often the judge passes replies, as in the interval of a pass rate.
    """
    if missing := count_missing_labels(strata):
        return CorrectedRate(None, None, missing.reason)

    def draw(rng: Random) -> float:
        shares, rates = _draw_strata(rng, strata, replies_per_case)
        return _sum_products(shares, rates)

    value = _sum_products(*_estimate_strata(strata))
    return _refuse_wide_interval(value, _estimate_posterior_interval(value, draw, confidence))


class MissingLabels(Struct, frozen=True):
    """What a corrected rate lacks."""

    count: int
    """How many more labels it needs at least."""
    reason: str


def count_missing_labels(strata: Sequence[Stratum]) -> MissingLabels | None:
    """Return how many labels a corrected rate lacks, before its width is known; None if it has enough.

    >>> count_missing_labels(LabelCounts(20, 1, 1, 5).as_strata(240, 300)).count
    23
    """
    labels = count_labels(strata)
    of_verdicts = [
        ("passed" if verdict else "failed", count, min(MIN_OF_EACH_VERDICT, _count_replies(strata, verdict=verdict)))
        for verdict, count in ((True, labels.judge_yes_count), (False, labels.judge_no_count))
    ]
    lacking = sum(max(0, needed - count) for _, count, needed in of_verdicts)
    if labels.total < MIN_LABELS:
        reason = f"{labels.total} replies are labelled; a corrected pass rate needs {MIN_LABELS}"
        return MissingLabels(max(lacking, MIN_LABELS - labels.total), reason)
    for verdict, count, needed in of_verdicts:
        if count < needed:
            return MissingLabels(
                lacking,
                f"{count} of the labelled replies were {verdict} by the judge; a corrected pass rate needs {needed}",
            )
    return None


def _count_replies(strata: Sequence[Stratum], *, verdict: bool) -> int:
    return sum(each.reply_count for each in strata if each.judge_passed is verdict)


def count_labels_for_width(strata: Sequence[Stratum], *, replies_per_case: int = 1) -> int | None:
    """Return about how many more labels would make the interval of a corrected rate narrow enough to be shown.

    None if labels alone cannot: then the run has too few replies.

    >>> count_labels_for_width(LabelCounts(13, 12, 12, 13).as_strata(150, 300))
    13
    >>> count_labels_for_width(LabelCounts(13, 12, 12, 13).as_strata(10, 20)) is None
    True
    """
    if missing := count_missing_labels(strata):
        return missing.count
    shares, rates = _estimate_strata(strata)
    replies = max(1.0, sum(each.reply_count for each in strata) / replies_per_case)
    mean = _sum_products(shares, rates)
    of_shares = sum(share * (rate - mean) ** 2 for share, rate in zip(shares, rates, strict=True)) / replies
    of_labels = sum(share * share * _jeffreys_variance(each) for share, each in zip(shares, strata, strict=True))
    tail = POSTERIOR_TAIL_FACTOR * (1 - CONFIDENCE)
    allowed = (MAX_INTERVAL_WIDTH / (2 * normal_quantile(1 - tail))) ** 2 - of_shares
    if allowed <= 0:
        return None
    labelled = count_labels(strata).total
    more = math.ceil(labelled * of_labels / allowed) - labelled
    return max(1, more) if labelled + more <= sum(each.reply_count for each in strata) else None


def correct_rate_with_other_labels(
    labels_of_other_runs: LabelCounts,
    labels_of_this_run: LabelCounts,
    judge_passed: int,
    reply_count: int,
    *,
    confidence: float = CONFIDENCE,
) -> CorrectedRate:
    """Return the pass rate of a run by people's standards, from labels of another run with the same judge.

    The labels of the other run were drawn at random, whatever the judge said; `correct_rate_with_other_runs` takes
    those that were drawn by its verdicts. A judge that errs otherwise on this run would go unnoticed, so some labels of
    the run itself (`labels_of_this_run`) are required.
    """
    drawn_from = labels_of_other_runs.as_strata(labels_of_other_runs.judge_yes_count, labels_of_other_runs.total)
    own = labels_of_this_run.as_strata(judge_passed, reply_count)
    return correct_rate_with_other_runs([drawn_from], own, confidence=confidence)


def correct_rate_with_other_runs(
    other_runs: Sequence[Sequence[Stratum]],
    own: Sequence[Stratum],
    *,
    replies_per_case: int = 1,
    confidence: float = CONFIDENCE,
) -> CorrectedRate:
    """Return the pass rate of a run by people's standards, from labels of other runs with the same judge.

    How often the judge passes good replies and fails bad ones is estimated on the other runs, each weighed by its
    labels, and within a run each stratum by its replies: without that, labels drawn half among NO would make the judge
    look far stricter than it is. The rate is refused if the labels of the run itself contradict those of the others.
    """
    own_count = count_labels(own).total
    if own_count < MIN_LABELS_OF_THIS_RUN:
        return CorrectedRate(
            None,
            None,
            f"{own_count} replies of this run are labelled; labels of other runs count only with at least "
            f"{MIN_LABELS_OF_THIS_RUN} of this run, in case the judge errs differently here",
        )
    pooled = count_labels([each for run in other_runs for each in run])
    good, bad = pooled.true_yes + pooled.false_no, pooled.true_no + pooled.false_yes
    if pooled.total < MIN_LABELS or min(good, bad) < MIN_OF_EACH_VERDICT:
        return CorrectedRate(
            None,
            None,
            f"the labels of other runs are {good} passes and {bad} failures; a corrected pass rate needs "
            f"{MIN_LABELS}, and {MIN_OF_EACH_VERDICT} of each",
        )
    weights = [count_labels(run).total for run in other_runs]
    value = _invert_errors(
        _compute_judge_pass_rate(own, _estimate_strata(own)),
        _weigh_errors([_estimate_strata(run) for run in other_runs], other_runs, weights),
    )
    if value is None:
        return CorrectedRate(None, None, "the judge agrees with people no better than chance")

    rng, rates, shifts = Random(SEED), list[float](), (list[float](), list[float]())
    for _ in range(DRAWS):
        drawn = _draw_strata(rng, own, replies_per_case)
        here = _weigh_errors([drawn], [own], [1])
        elsewhere = _weigh_errors([_draw_strata(rng, run, 1) for run in other_runs], other_runs, weights)
        rate = _invert_errors(_compute_judge_pass_rate(own, drawn), elsewhere)
        rates.append(rng.random() if rate is None else rate)
        shifts[0].append(here.sensitivity - elsewhere.sensitivity)
        shifts[1].append(here.specificity - elsewhere.specificity)
    for differences in shifts:
        shift = _take_interval(sorted(differences), 1 - SHIFT_CONFIDENCE)
        if not shift.low <= 0 <= shift.high:
            return CorrectedRate(
                None, None, "the judge errs differently on this run than on the other labelled runs; label this run"
            )
    interval = _take_interval(sorted(rates), POSTERIOR_TAIL_FACTOR * (1 - confidence))
    return _refuse_wide_interval(value, _widen(interval, value))


_StratumRates = tuple[list[float], list[float]]
"""The share of each stratum among all replies, and the share of its replies that people pass."""
MIN_YOUDEN_INDEX = 0.05
"""A judge closer to chance than this says nothing about the rate."""


class _ErrorRates(NamedTuple):
    """How often a judge passes what people pass, and fails what people fail."""

    sensitivity: float
    specificity: float


def _weigh_errors(
    rates_by_run: Sequence[_StratumRates], runs: Sequence[Sequence[Stratum]], weights: Sequence[float]
) -> _ErrorRates:
    """Return the error rates over all runs, with a weight for each."""
    hits = good = rejections = bad = 0.0
    for (shares, rates), strata, weight in zip(rates_by_run, runs, weights, strict=True):
        for share, rate, each in zip(shares, rates, strata, strict=True):
            good += weight * share * rate
            bad += weight * share * (1 - rate)
            if each.judge_passed:
                hits += weight * share * rate
            else:
                rejections += weight * share * (1 - rate)
    return _ErrorRates(hits / good if good else 0.0, rejections / bad if bad else 0.0)


def _compute_judge_pass_rate(strata: Sequence[Stratum], drawn: _StratumRates) -> float:
    """Return how often the judge passes replies."""
    return sum(share for share, each in zip(drawn[0], strata, strict=True) if each.judge_passed)


def _invert_errors(passing: float, errors: _ErrorRates) -> float | None:
    """Return the pass rate that leads to this share of YES; None if the judge is no better than chance."""
    youden = errors.sensitivity + errors.specificity - 1
    if youden <= MIN_YOUDEN_INDEX:
        return None
    return min(1.0, max(0.0, (passing + errors.specificity - 1) / youden))


# ── Agreement ──


def measure_agreement(
    labels: LabelCounts, judge_passed: int, reply_count: int, *, confidence: float = CONFIDENCE
) -> JudgeAgreement | None:
    """Return how well the judge agrees with people, weighed by how often it says YES in the whole run.

    The labels may have been drawn more often among one verdict: without the weights, the agreement would be that of the
    labelled part. None until both verdicts are among the labels.

    >>> round(measure_agreement(LabelCounts(45, 5, 5, 45), 150, 300).kappa, 2)
    0.8
    """
    return measure_agreement_of_strata(labels.as_strata(judge_passed, reply_count), confidence=confidence)


def measure_agreement_of_strata(
    strata: Sequence[Stratum], *, replies_per_case: int = 1, confidence: float = CONFIDENCE
) -> JudgeAgreement | None:
    """Return how well the judge agrees with people over the replies of some strata.

    None until each verdict that the judge gave is among the labels.
    """
    accuracy = estimate_accuracy_of_strata(strata)
    if accuracy is None:
        return None
    passed = [each.judge_passed for each in strata]

    def kappa(shares: list[float], rates: list[float]) -> float:
        agreed, passing = _compute_accuracy(shares, rates, passed), _sum_products(shares, [*map(float, passed)])
        people = _sum_products(shares, rates)
        by_chance = passing * people + (1 - passing) * (1 - people)
        return (agreed - by_chance) / (1 - by_chance) if by_chance < 1 else 0.0

    rng, accuracies, kappas = Random(SEED), list[float](), list[float]()
    for _ in range(DRAWS):
        drawn = _draw_strata(rng, strata, replies_per_case)
        accuracies.append(_compute_accuracy(*drawn, passed))
        kappas.append(kappa(*drawn))
    left_out = POSTERIOR_TAIL_FACTOR * (1 - confidence)
    label_count = count_labels(strata).total
    has_both_verdicts = len({each.judge_passed for each in strata if each.reply_count}) > 1
    has_kappa = has_both_verdicts and label_count >= MIN_LABELS_FOR_KAPPA
    agreement = kappa(*_estimate_strata(strata))
    return JudgeAgreement(
        accuracy=accuracy,
        accuracy_interval=_widen(_take_interval(sorted(accuracies), left_out), accuracy),
        kappa=agreement if has_kappa else None,
        kappa_interval=_widen(_take_interval(sorted(kappas), left_out), agreement) if has_kappa else None,
        label_count=label_count,
    )


def estimate_accuracy_of_strata(strata: Sequence[Stratum]) -> float | None:
    """Return the share of a judge's verdicts that people share, without its interval, which takes a second.

    None until each verdict that the judge gave is among the labels.
    """
    labels = count_labels(strata)
    given = {each.judge_passed for each in strata if each.reply_count}
    if (not labels.judge_yes_count and True in given) or (not labels.judge_no_count and False in given) or not given:
        return None
    return _compute_accuracy(*_estimate_strata(strata), [each.judge_passed for each in strata])


def _compute_accuracy(shares: Sequence[float], rates: Sequence[float], passed: Sequence[bool]) -> float:
    return sum(
        share * (rate if verdict else 1 - rate) for share, rate, verdict in zip(shares, rates, passed, strict=True)
    )


def krippendorff_alpha(labels_by_reply: Sequence[Sequence[str]]) -> float | None:
    """Return Krippendorff's alpha of nominal labels: one sequence a reply, with a label of each rater who gave one.

    1 is perfect agreement, 0 what chance would do. None without two labels of one reply, or if all labels are equal.

    >>> krippendorff_alpha([["yes", "yes"], ["no", "no"], ["yes", "no"], ["no", "no"]])
    0.5333...
    """
    paired = [unit for unit in labels_by_reply if len(unit) > 1]
    totals = Counter(label for unit in paired for label in unit)
    count = totals.total()
    expected = (count * count - sum(each * each for each in totals.values())) / (count - 1) if count else 0.0
    if not expected:
        return None
    observed = sum(
        (len(unit) ** 2 - sum(each * each for each in Counter(unit).values())) / (len(unit) - 1) for unit in paired
    )
    return 1 - observed / expected


def count_labels_to_draw(passed: int, failed: int, label_count: int) -> tuple[int, int]:
    """Return how many replies to label among those passed and those failed: half of each, as far as there are.

    >>> count_labels_to_draw(270, 30, 50), count_labels_to_draw(290, 10, 50), count_labels_to_draw(10, 5, 50)
    ((25, 25), (40, 10), (10, 5))
    """
    among_failed = min(failed, label_count // 2)
    among_passed = min(passed, label_count - among_failed)
    return among_passed, min(failed, label_count - among_passed)


# ── Draws ──


def _estimate_strata(strata: Sequence[Stratum]) -> _StratumRates:
    """Return the observed share of each stratum and of its YES labels; half where it has no label."""
    total = sum(each.reply_count for each in strata) or 1
    return [each.reply_count / total for each in strata], [
        each.yes_labels / labelled if (labelled := each.yes_labels + each.no_labels) else 0.5 for each in strata
    ]


def _draw_strata(rng: Random, strata: Sequence[Stratum], replies_per_case: int) -> _StratumRates:
    """Draw the shares and rates of strata from Jeffreys' posterior."""
    weights = [rng.gammavariate(each.reply_count / replies_per_case + 0.5, 1.0) for each in strata]
    total = sum(weights)
    return [each / total for each in weights], [
        rng.betavariate(each.yes_labels + 0.5, each.no_labels + 0.5) for each in strata
    ]


def _jeffreys_variance(stratum: Stratum) -> float:
    yes, no = stratum.yes_labels + 0.5, stratum.no_labels + 0.5
    return yes * no / ((yes + no) ** 2 * (yes + no + 1))


def _sum_products(ones: Sequence[float], others: Sequence[float]) -> float:
    return sum(one * other for one, other in zip(ones, others, strict=True))


def _estimate_posterior_interval(value: float, draw: Callable[[Random], float], confidence: float) -> Interval:
    rng = Random(SEED)
    drawn = sorted(draw(rng) for _ in range(DRAWS))
    return _widen(_take_interval(drawn, POSTERIOR_TAIL_FACTOR * (1 - confidence)), value)


def _widen(interval: Interval, value: float) -> Interval:
    """Return the interval with the observed value in it: a share of exactly 0 or 1 is at the end of its posterior."""
    return Interval(min(interval.low, value), max(interval.high, value))


def _take_interval(ordered: Sequence[float], left_out: float) -> Interval:
    """Return the interval of sorted draws without this share of them, half of it at each end."""
    tail = round(left_out / 2 * len(ordered))
    return Interval(ordered[tail], ordered[-tail - 1])


def _refuse_wide_interval(value: float, interval: Interval) -> CorrectedRate:
    if (width := interval.high - interval.low) > MAX_INTERVAL_WIDTH:
        return CorrectedRate(
            None, None, f"the corrected pass rate is uncertain by {100 * width:.0f} points; label more replies"
        )
    return CorrectedRate(value, interval)
