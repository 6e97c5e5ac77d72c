"""How far can a judge be trusted, and what would people have said? Labels and verdicts in, a corrected rate out.

A judge passes some bad replies and fails some good ones, so its pass rate is not the pass rate. With labels of a part
of the same run, the rate is corrected by post-stratification: how often is a YES right, how often is a NO wrong, each
weighed by how often the judge says it. Labels may therefore be drawn more often among the rarer verdict, as long as
they are drawn at random within each. With labels from elsewhere, the correction is Rogan and Gladen's, which assumes
that the judge errs there as it errs here; some labels of the run itself are required to notice when it does not.

Intervals are Jeffreys' posterior by seeded draws, slightly widened: simulated coverage of the usual normal intervals
falls to 50 % at high pass rates, that of these stays above 94 %.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from msgspec import Struct

from pramana.analyse.intervals import CONFIDENCE, Interval

DRAWS, SEED = 4_000, 20_261_119
POSTERIOR_TAIL_FACTOR = 0.8
"""The posterior leaves out this much less than an interval of the confidence would: 4 % instead of 5 %. Without it,
coverage falls to 93 % where verdicts are few."""
MIN_LABELS, MIN_OF_EACH_VERDICT = 50, 10
"""Labels that a corrected rate needs: in all, and among each of the judge's two verdicts."""
MIN_OWN_LABELS = 20
"""Labels of the run itself that are needed beside labels from elsewhere."""
MAX_INTERVAL_WIDTH = 0.25
"""A corrected rate whose interval is wider says too little to be shown."""


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


class CorrectedRate(Struct, frozen=True):
    """A rate as people would have given it, or the reason why it cannot be said."""

    value: float | None
    interval: Interval | None
    refusal_reason: str = ""


class JudgeAgreement(Struct, frozen=True):
    """How well a judge agrees with people, over the whole run and not only over its labelled part."""

    accuracy: float
    accuracy_interval: Interval
    kappa: float
    kappa_interval: Interval
    label_count: int


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
    if labels.total < MIN_LABELS:
        return CorrectedRate(
            None, None, f"{labels.total} replies are labelled; a corrected pass rate needs {MIN_LABELS}"
        )
    for verdict, count in (("passed", labels.judge_yes_count), ("failed", labels.judge_no_count)):
        if count < MIN_OF_EACH_VERDICT:
            return CorrectedRate(
                None,
                None,
                f"{count} of the labelled replies were {verdict} by the judge; a corrected pass rate needs "
                f"{MIN_OF_EACH_VERDICT}",
            )
    share = judge_passed / reply_count
    value = share * labels.true_yes / labels.judge_yes_count + (1 - share) * labels.false_no / labels.judge_no_count

    def draw(rng: Random) -> float:
        said = _draw_jeffreys_rate(rng, judge_passed, reply_count - judge_passed)
        right = _draw_jeffreys_rate(rng, labels.true_yes, labels.false_yes)
        wrong = _draw_jeffreys_rate(rng, labels.false_no, labels.true_no)
        return said * right + (1 - said) * wrong

    return _refuse_wide_interval(value, _estimate_posterior_interval(draw, confidence))


def correct_rate_with_other_labels(
    other_labels: LabelCounts,
    own_labels: LabelCounts,
    judge_passed: int,
    reply_count: int,
    *,
    confidence: float = CONFIDENCE,
) -> CorrectedRate:
    """Return the pass rate of a run by people's standards, from labels of other runs with the same judge.

    A judge that errs otherwise on this run would go unnoticed, so some labels of the run itself (`own_labels`) are
    required.
    """
    if own_labels.total < MIN_OWN_LABELS:
        return CorrectedRate(
            None,
            None,
            f"{own_labels.total} replies of this run are labelled; labels of other runs count only with at least "
            f"{MIN_OWN_LABELS} of this run, in case the judge errs differently here",
        )
    good, bad = other_labels.true_yes + other_labels.false_no, other_labels.true_no + other_labels.false_yes
    if other_labels.total < MIN_LABELS or min(good, bad) < MIN_OF_EACH_VERDICT:
        return CorrectedRate(
            None,
            None,
            f"the labels of other runs are {good} passes and {bad} failures; a corrected pass rate needs "
            f"{MIN_LABELS}, and {MIN_OF_EACH_VERDICT} of each",
        )
    youden = other_labels.true_yes / good + other_labels.true_no / bad - 1
    value = (
        min(1.0, max(0.0, (judge_passed / reply_count + other_labels.true_no / bad - 1) / youden))
        if youden > 0
        else None
    )
    if value is None:
        return CorrectedRate(None, None, "the judge agrees with people no better than chance")

    def draw(rng: Random) -> float:
        hits = _draw_jeffreys_rate(rng, other_labels.true_yes, other_labels.false_no)
        rejections = _draw_jeffreys_rate(rng, other_labels.true_no, other_labels.false_yes)
        said = _draw_jeffreys_rate(rng, judge_passed, reply_count - judge_passed)
        better = hits + rejections - 1
        return min(1.0, max(0.0, (said + rejections - 1) / better)) if better > 0.05 else rng.random()

    return _refuse_wide_interval(value, _estimate_posterior_interval(draw, confidence))


def measure_agreement(
    labels: LabelCounts, judge_passed: int, reply_count: int, *, confidence: float = CONFIDENCE
) -> JudgeAgreement | None:
    """Return how well the judge agrees with people, weighed by how often it says YES in the whole run.

    The labels may have been drawn more often among one verdict: without the weights, the agreement would be that of the
    labelled part. None until both verdicts are among the labels.

    >>> round(measure_agreement(LabelCounts(45, 5, 5, 45), 150, 300).kappa, 2)
    0.8
    """
    if not labels.judge_yes_count or not labels.judge_no_count:
        return None

    def kappa(passing: float, right: float, wrong: float) -> float:
        agreed = passing * right + (1 - passing) * (1 - wrong)
        people = passing * right + (1 - passing) * wrong
        by_chance = passing * people + (1 - passing) * (1 - people)
        return (agreed - by_chance) / (1 - by_chance) if by_chance < 1 else 0.0

    def parts(rng: Random) -> tuple[float, float, float]:
        return (
            _draw_jeffreys_rate(rng, judge_passed, reply_count - judge_passed),
            _draw_jeffreys_rate(rng, labels.true_yes, labels.false_yes),
            _draw_jeffreys_rate(rng, labels.false_no, labels.true_no),
        )

    def draw_accuracy(rng: Random) -> float:
        said, right, wrong = parts(rng)
        return said * right + (1 - said) * (1 - wrong)

    share, right, wrong = (
        judge_passed / reply_count,
        labels.true_yes / labels.judge_yes_count,
        labels.false_no / labels.judge_no_count,
    )
    return JudgeAgreement(
        accuracy=share * right + (1 - share) * (1 - wrong),
        accuracy_interval=_estimate_posterior_interval(draw_accuracy, confidence),
        kappa=kappa(share, right, wrong),
        kappa_interval=_estimate_posterior_interval(lambda rng: kappa(*parts(rng)), confidence),
        label_count=labels.total,
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


def _draw_jeffreys_rate(rng: Random, successes: int, failures: int) -> float:
    return rng.betavariate(successes + 0.5, failures + 0.5)


def _estimate_posterior_interval(draw_rate: Callable[[Random], float], confidence: float) -> Interval:
    rng = Random(SEED)
    values = sorted(draw_rate(rng) for _ in range(DRAWS))
    tail = round(POSTERIOR_TAIL_FACTOR * (1 - confidence) / 2 * DRAWS)
    return Interval(values[tail], values[-tail - 1])


def _refuse_wide_interval(value: float, interval: Interval) -> CorrectedRate:
    if (width := interval.high - interval.low) > MAX_INTERVAL_WIDTH:
        return CorrectedRate(
            None, None, f"the corrected pass rate is uncertain by {100 * width:.0f} points; label more replies"
        )
    return CorrectedRate(value, interval)
