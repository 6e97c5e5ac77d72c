"""How far the judges of a run agree with people: verdicts and labels in; agreement and corrected pass rates out.

Several people may have labelled one reply: their majority counts, and a tie or only "unsure" counts as no label. Where
a run was judged again after its replies were drawn, labels are read within the pairs of both judges' verdicts, since
only there they are at random (`calibration`). Nothing here reads a store.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct

from pramana.analyse.calibration import (
    MIN_OF_EACH_VERDICT,
    CorrectedRate,
    JudgeAgreement,
    LabelCounts,
    Stratum,
    correct_rate_of_strata,
    correct_rate_with_other_runs,
    count_labels,
    count_labels_for_width,
    estimate_accuracy_of_strata,
    krippendorff_alpha,
    measure_agreement_of_strata,
)
from pramana.analyse.judges import MIN_LABELS_FOR_ACCURACY, PANEL_SEPARATOR
from pramana.analyse.labelling import JudgedReply
from pramana.analyse.pairing import VerdictSource
from pramana.model import JudgeCalibration

MIN_LABELS_OF_CATEGORY = 10
"""Labels that the accuracy of one category needs."""
CorrectionMethod = Literal["post-stratification", "rogan-gladen"]


class GivenLabel(NamedTuple):
    """One person's label of one reply."""

    task: str
    rater: str
    verdict: str
    scoring: int | None
    """The scoring by whose verdicts the reply was drawn."""


class LabelledVerdicts(NamedTuple):
    """A run's verdicts beside people's labels."""

    replies: Sequence[JudgedReply]
    labels: Sequence[GivenLabel]
    draw_verdicts: Sequence[Mapping[str, bool]] = ()
    """By reply, the verdicts of each earlier scoring by which replies were drawn."""
    replies_per_model_case: int = 1
    """The most replies that one case has from one model: repeats × variants."""


class Opinions(Struct, frozen=True):
    """What people say of replies, all raters together."""

    verdicts: Mapping[str, bool]
    """By reply, what most raters say; replies without a majority are left out."""
    raters: tuple[str, ...]
    unsure_count: int
    """Replies that every rater is unsure of."""
    tied_count: int
    """Replies of which as many raters say yes as no."""
    alpha: float | None
    """Krippendorff's alpha of the raters; None without two labels of one reply."""


def combine_labels(labels: Iterable[GivenLabel]) -> Opinions:
    """Return what people say, by majority.

    >>> given = [GivenLabel("1.j", rater, said, 0) for rater, said in zip("abc", ("yes", "no", "yes"))]
    >>> combine_labels([*given, GivenLabel("2.j", "a", "unsure", 0)]).verdicts
    {'1.j': True}
    """
    by_task: dict[str, list[str]] = {}
    raters: dict[str, None] = {}
    for each in labels:
        by_task.setdefault(each.task, []).append(each.verdict)
        raters[each.rater] = None
    verdicts, unsure, tied = {}, 0, 0
    for task, given in by_task.items():
        counts = Counter(given)
        if counts["yes"] != counts["no"]:
            verdicts[task] = counts["yes"] > counts["no"]
        elif counts["yes"]:
            tied += 1
        else:
            unsure += 1
    alpha = krippendorff_alpha([[each for each in given if each != "unsure"] for given in by_task.values()])
    return Opinions(verdicts, tuple(sorted(raters)), unsure, tied, alpha)


def make_strata(
    replies: Iterable[JudgedReply], opinions: Mapping[str, bool], draw_verdicts: Sequence[Mapping[str, bool]] = ()
) -> list[Stratum]:
    """Return the strata of replies: by the judge's verdict, and by the verdicts by which replies were drawn."""
    counts: dict[tuple[bool, ...], list[int]] = {}
    for each in replies:
        drawn_by = (verdicts.get(each.task, each.passed) for verdicts in draw_verdicts)
        row = counts.setdefault((each.passed, *drawn_by), [0, 0, 0])
        row[0] += 1
        said = opinions.get(each.task)
        if said is not None:
            row[1 if said else 2] += 1
    return [
        Stratum(judge_passed=key[0], reply_count=total, yes_labels=yes, no_labels=no)
        for key, (total, yes, no) in sorted(counts.items())
    ]


# ── Reports ──


class CategoryAgreement(Struct, frozen=True):
    """How often the judge agrees with people in one category."""

    category: str
    label_count: int
    agreement: JudgeAgreement | None
    """None with too few labels."""


class ModelCorrection(Struct, frozen=True):
    """The pass rate of one model by a judge, and corrected by labels."""

    model: str
    judge_passed: int
    reply_count: int
    label_count: int
    corrected: CorrectedRate
    method: CorrectionMethod | None
    """None if the corrected rate is refused."""
    other_label_count: int = 0
    """Labels of other replies of the same judge that the rate uses."""
    missing_label_count: int | None = None
    """About how many more labels a refused rate needs; None if labels alone cannot help, or if it is not refused."""


class JudgeReport(Struct, frozen=True):
    """How far one judge agrees with people on the replies of a run."""

    source: VerdictSource
    judge_passed: int
    reply_count: int
    labels: LabelCounts
    agreement: JudgeAgreement | None
    categories: tuple[CategoryAgreement, ...]
    models: tuple[ModelCorrection, ...]
    self_judged_models: tuple[str, ...]
    """Models of which the judge judges its own replies."""

    @property
    def calibration(self) -> JudgeCalibration:
        """The agreement in short."""
        return make_calibration(self.source, self.agreement, self.labels.total)


def make_calibration(
    source: VerdictSource, agreement: JudgeAgreement | None, label_count: int, *, is_from_other_runs: bool = False
) -> JudgeCalibration:
    """Return the calibration of a judge; without an accuracy if there are too few labels for one."""
    if agreement is None or label_count < MIN_LABELS_FOR_ACCURACY:
        return JudgeCalibration(source.check, source.version, source.by, label_count)
    interval = agreement.accuracy_interval
    return JudgeCalibration(
        source.check,
        source.version,
        source.by,
        label_count,
        agreement.accuracy,
        (interval.low, interval.high),
        is_from_other_runs,
    )


def report_judges(
    run: LabelledVerdicts,
    others: Sequence[LabelledVerdicts],
    find_category: Callable[[str], str],
    name_judge: Callable[[str], str],
) -> tuple[JudgeReport, ...]:
    """Return a report per judge of a run, by check and version.

    `others` are other runs with labels, `find_category` returns the category of a case by its digest, and `name_judge`
    the canonical name of a model.
    """
    opinions = combine_labels(run.labels).verdicts
    by_source = group_by_source(run.replies)
    other_opinions = [combine_labels(each.labels).verdicts for each in others]
    found = []
    for source, replies in sorted(by_source.items()):
        other_runs = [
            usable
            for each, said in zip(others, other_opinions, strict=True)
            if (usable := _keep_usable_strata(group_by_source(each.replies).get(source, ()), said, each.draw_verdicts))
        ]
        models = list(dict.fromkeys(each.model for each in replies))
        strata = make_strata(replies, opinions, run.draw_verdicts)
        per_case = run.replies_per_model_case
        found.append(
            JudgeReport(
                source,
                sum(each.passed for each in replies),
                len(replies),
                count_labels(strata),
                measure_agreement_of_strata(strata, replies_per_case=per_case * len(models)),
                _compare_categories(replies, opinions, run, find_category, per_case * len(models)),
                tuple(_correct_model(model, replies, opinions, run, other_runs) for model in models),
                tuple(model for model in models if name_judge(model) in source.by.split(PANEL_SEPARATOR)),
            )
        )
    return tuple(found)


def group_by_source(replies: Iterable[JudgedReply]) -> dict[VerdictSource, list[JudgedReply]]:
    """Return the verdicts of each judge, by check and version."""
    found: dict[VerdictSource, list[JudgedReply]] = {}
    for each in replies:
        found.setdefault(each.source, []).append(each)
    return found


def calibrate_by_own_labels(run: LabelledVerdicts) -> dict[VerdictSource, JudgeCalibration]:
    """Return the agreement of each judge of a run with people, by the run's labels; judges without are left out."""
    opinions, found = combine_labels(run.labels).verdicts, {}
    for source, replies in group_by_source(run.replies).items():
        strata = make_strata(replies, opinions, run.draw_verdicts)
        if count := count_labels(strata).total:
            per_case = run.replies_per_model_case * len({each.model for each in replies})
            found[source] = make_calibration(
                source, measure_agreement_of_strata(strata, replies_per_case=per_case), count
            )
    return found


def calibrate_by_other_runs(source: VerdictSource, runs: Iterable[LabelledVerdicts]) -> JudgeCalibration:
    """Return the agreement of a judge with people on other runs, whose replies count as those of one run.

    A run of which only one verdict is labelled is left out, because nothing is known of its other replies.
    """
    strata = pool_strata(
        make_strata(
            group_by_source(run.replies).get(source, ()), combine_labels(run.labels).verdicts, run.draw_verdicts
        )
        for run in runs
    )
    return make_calibration(
        source, measure_agreement_of_strata(strata), count_labels(strata).total, is_from_other_runs=True
    )


def pool_strata(strata_of_runs: Iterable[Sequence[Stratum]]) -> list[Stratum]:
    """Return the strata of several runs together, without runs of which only one verdict is labelled."""
    pooled: list[Stratum] = []
    for strata in strata_of_runs:
        labelled = {verdict for verdict, count in _count_by_verdict(count_labels(strata)) if count}
        if labelled and labelled >= {each.judge_passed for each in strata}:
            pooled += strata
    return pooled


def estimate_accuracy(strata: Sequence[Stratum]) -> float | None:
    """Return the accuracy of a judge in the replies of some strata; None with too few labels for one."""
    if count_labels(strata).total < MIN_LABELS_FOR_ACCURACY:
        return None
    return estimate_accuracy_of_strata(strata)


def _count_by_verdict(labels: LabelCounts) -> tuple[tuple[bool, int], tuple[bool, int]]:
    return ((True, labels.judge_yes_count), (False, labels.judge_no_count))


def _keep_usable_strata(
    replies: Sequence[JudgedReply], opinions: Mapping[str, bool], draw_verdicts: Sequence[Mapping[str, bool]]
) -> list[Stratum]:
    """Return the strata of another run; empty if either verdict has too few labels."""
    strata = make_strata(replies, opinions, draw_verdicts)
    labels = count_labels(strata)
    enough = min(labels.judge_yes_count, labels.judge_no_count) >= MIN_OF_EACH_VERDICT
    return strata if enough else []


def _compare_categories(
    replies: Sequence[JudgedReply],
    opinions: Mapping[str, bool],
    run: LabelledVerdicts,
    find_category: Callable[[str], str],
    replies_per_case: int,
) -> tuple[CategoryAgreement, ...]:
    """Return the agreement in each category, if there are several."""
    by_category: dict[str, list[JudgedReply]] = {}
    for each in replies:
        by_category.setdefault(find_category(each.case_digest), []).append(each)
    if len(by_category) < 2:
        return ()
    found = []
    for category, some in sorted(by_category.items()):
        strata = make_strata(some, opinions, run.draw_verdicts)
        count = count_labels(strata).total
        agreement = measure_agreement_of_strata(strata, replies_per_case=replies_per_case)
        found.append(CategoryAgreement(category, count, agreement if count >= MIN_LABELS_OF_CATEGORY else None))
    return tuple(found)


def _correct_model(
    model: str,
    replies: Sequence[JudgedReply],
    opinions: Mapping[str, bool],
    run: LabelledVerdicts,
    other_runs: Sequence[Sequence[Stratum]],
) -> ModelCorrection:
    """Return the corrected pass rate of a model: by its own labels, else with those of other models and runs."""
    mine = [each for each in replies if each.model == model]
    own = make_strata(mine, opinions, run.draw_verdicts)
    per_case = run.replies_per_model_case
    corrected = correct_rate_of_strata(own, replies_per_case=per_case)
    method: CorrectionMethod | None = "post-stratification" if corrected.value is not None else None
    used, others = 0, list(other_runs)
    if method is None:
        if rest := [each for each in replies if each.model != model]:
            others += [usable] if (usable := _keep_usable_strata(rest, opinions, run.draw_verdicts)) else []
        with_others = correct_rate_with_other_runs(others, own, replies_per_case=per_case)
        if with_others.value is not None:
            corrected, method = with_others, "rogan-gladen"
            used = count_labels([each for some in others for each in some]).total
    return ModelCorrection(
        model,
        sum(each.passed for each in mine),
        len(mine),
        count_labels(own).total,
        corrected,
        method,
        used,
        None if method else count_labels_for_width(own, replies_per_case=per_case),
    )
