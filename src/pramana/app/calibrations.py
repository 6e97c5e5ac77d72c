"""Calibrations: a run in; how far its judges agree with people out, in short beside every judged number or as a report.

The labels of the run itself count; where it has none, those of other runs with the same judge and the same version of
the check. A judge without enough labels is uncalibrated, which is shown too.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from pramana.analyse.calibration import JudgeAgreement
from pramana.analyse.intervals import Interval
from pramana.analyse.judge_report import (
    CorrectionMethod,
    GivenLabel,
    JudgeReport,
    LabelledVerdicts,
    calibrate_by_other_runs,
    calibrate_by_own_labels,
    combine_labels,
    group_by_source,
    report_judges,
)
from pramana.analyse.judges import canonical_judge_name, describe_calibration
from pramana.analyse.labelling import JudgedReply, list_verdicts, make_task_name
from pramana.analyse.panels import measure_panels
from pramana.app.position_bias import PositionBiasView, read_position_bias
from pramana.app.views import View
from pramana.hash import hash_case
from pramana.model import JudgeCalibration, Run
from pramana.store.labels import Label
from pramana.store.store import Store

MAX_OTHER_RUNS = 20
"""Other labelled runs that are read, the newest first."""
_Interval = tuple[float, float]


class AgreementView(View, frozen=True, kw_only=True):
    """How often a judge agrees with people."""

    category: Annotated[str | None, Meta(description="Null: all categories")] = None
    labels: int
    accuracy: Annotated[
        float | None, Meta(description="Share of the judge's verdicts with which people agree; null: too few labels")
    ]
    accuracy_interval: _Interval | None
    kappa: Annotated[
        float | None,
        Meta(
            description="Cohen's kappa: 1 perfect agreement, 0 that of chance; null: fewer than 10 labels, or the "
            "judge gave all replies the same verdict"
        ),
    ]
    kappa_interval: _Interval | None


class CorrectedRateView(View, frozen=True, kw_only=True):
    """The pass rate of one model as people would have given it."""

    model: str
    verdicts: int
    judge_pass_rate: float
    labels: int
    corrected: Annotated[float | None, Meta(description="Corrected pass rate; null if it is refused")]
    interval: _Interval | None
    method: CorrectionMethod | None
    other_labels: Annotated[int, Meta(description="Labels of other models and runs that the rate uses")]
    refusal: Annotated[str | None, Meta(description="Why there is no corrected rate")]
    missing_labels: Annotated[
        int | None, Meta(description="About how many more labels it needs; null: labels alone do not help")
    ]


class LabelCountsView(View, frozen=True, kw_only=True):
    """Labelled replies by the judge's verdict and people's."""

    judge_yes_people_yes: int
    judge_yes_people_no: int
    judge_no_people_yes: int
    judge_no_people_no: int


class JudgeView(View, frozen=True, kw_only=True):
    """How far one judge agrees with people on the replies of a run."""

    judge: str
    check: str
    version: str
    calibration: Annotated[str, Meta(description="The agreement in one phrase, or uncalibrated")]
    verdicts: int
    passed: int
    labels: int
    counts: LabelCountsView
    agreement: AgreementView
    categories: tuple[AgreementView, ...]
    models: tuple[CorrectedRateView, ...]
    self_judged_models: Annotated[tuple[str, ...], Meta(description="Models that judge their own replies")]
    position_bias: Annotated[
        PositionBiasView | None, Meta(description="Null until `pramana judge swap` has asked the judge again")
    ]


class JudgePairView(View, frozen=True, kw_only=True):
    """How far two judges of a panel agree with each other."""

    first: str
    second: str
    replies: int
    agreed: int
    kappa: Annotated[float | None, Meta(description="Cohen's kappa; null if both gave one verdict only")]


class PanelView(View, frozen=True, kw_only=True):
    """How far the judges of a panel agree with each other."""

    check: str
    judges: tuple[str, ...]
    replies: int
    unanimous: Annotated[int, Meta(description="Replies to which all judges gave the same verdict")]
    unanimous_interval: Annotated[_Interval, Meta(description="Interval of their share")]
    undecided: Annotated[int, Meta(description="Replies without a majority")]
    pairs: tuple[JudgePairView, ...]


class JudgeReportView(View, frozen=True, kw_only=True):
    """How far the judges of a run agree with people."""

    run_id: str
    reference: Annotated[str, Meta(description="What names the run: its ID, or `RUN@1` if a scoring was named")]
    suite: str
    labelled: Annotated[int, Meta(description="Replies on which most raters agree")]
    raters: tuple[str, ...]
    unsure: Annotated[int, Meta(description="Replies that every rater is unsure of")]
    tied: Annotated[int, Meta(description="Replies of which as many raters say yes as no")]
    alpha: Annotated[float | None, Meta(description="Krippendorff's alpha of the raters; null with one rater")]
    judges: tuple[JudgeView, ...]
    panels: tuple[PanelView, ...]


# ── Calibrations in short ──


def list_judged_replies(store: Store, run: Run, scoring: int | None = None) -> list[JudgedReply]:
    """Return the verdicts of judges on the replies of a run, by its scoring or by another."""
    return [
        verdict
        for each in store.labels.iterate_checks(run, scoring)
        for verdict in list_verdicts(each.seq, each.case_digest, each.model, each.checks, canonical_judge_name)
    ]


def with_calibrations(store: Store, run: Run) -> Run:
    """Return a run with how far judges agree with people, for the summary and exports that are made of it."""
    return replace(run, calibrations=calibrate_judges(store, run))


def calibrate_judges(store: Store, run: Run) -> tuple[JudgeCalibration, ...]:
    """Return the calibrations of all judges that were ever labelled: by this run's labels, else by those of others."""
    if not store.labels.read_state().label_count:
        return ()
    mine = read_labelled_verdicts(store, run)
    found = calibrate_by_own_labels(mine)
    others = list(_read_other_runs(store, run))
    for source in {source for each in others for source in group_by_source(each.replies)}:
        if source not in found or found[source].accuracy is None:
            by_others = calibrate_by_other_runs(source, others)
            if by_others.accuracy is not None:
                found[source] = by_others
    return tuple(found.values())


# ── Reports ──


def make_judge_report(store: Store, run: Run) -> JudgeReportView:
    """Return how far the judges of a run agree with people."""
    mine = read_labelled_verdicts(store, run)
    opinions = combine_labels(mine.labels)
    categories = {hash_case(case): case.facets.category for case in store.cases.iterate(run)}
    others = list(_read_other_runs(store, run)) if mine.labels else []
    bias = read_position_bias(store, run)
    reports = report_judges(mine, others, categories.__getitem__, canonical_judge_name)
    return JudgeReportView(
        run_id=run.id,
        reference=run.reference,
        suite=run.plan.suite,
        labelled=len(opinions.verdicts),
        raters=opinions.raters,
        unsure=opinions.unsure_count,
        tied=opinions.tied_count,
        alpha=opinions.alpha,
        judges=tuple(_judge_view(each, bias.get(each.source)) for each in reports),
        panels=_panel_views(store, run),
    )


def read_labelled_verdicts(store: Store, run: Run) -> LabelledVerdicts:
    """Return the verdicts of judges on a run's replies, by its current or named scoring, and the labels."""
    labels = store.labels.list_of_run(run)
    current = max(store.scorings.read_scoring_labels(run), default=0)
    drawn_by = sorted({each.scoring for each in labels if each.scoring not in (None, current)})
    return LabelledVerdicts(
        list_judged_replies(store, run),
        [given_label(each) for each in labels],
        [_read_verdicts(store, run, scoring) for scoring in drawn_by],
        run.plan.repeats * len(run.plan.variants),
    )


def given_label(label: Label) -> GivenLabel:
    """Return a stored label as what a report of judges takes."""
    return GivenLabel(make_task_name(label.seq, label.criterion), label.rater, label.verdict, label.scoring)


def _read_verdicts(store: Store, run: Run, scoring: int | None) -> Mapping[str, bool]:
    return {each.task: each.passed for each in list_judged_replies(store, run, scoring)}


def _read_other_runs(store: Store, run: Run) -> Iterator[LabelledVerdicts]:
    for run_id in [each for each in store.labels.list_labelled_run_ids() if each != run.id][:MAX_OTHER_RUNS]:
        yield read_labelled_verdicts(store, store.runs.read(run_id))


# ── Views ──


def _judge_view(report: JudgeReport, bias: PositionBiasView | None) -> JudgeView:
    labels = report.labels
    return JudgeView(
        judge=report.source.by,
        check=report.source.check,
        version=report.source.version,
        calibration=describe_calibration(report.calibration),
        verdicts=report.reply_count,
        passed=report.judge_passed,
        labels=labels.total,
        counts=LabelCountsView(
            judge_yes_people_yes=labels.true_yes,
            judge_yes_people_no=labels.false_yes,
            judge_no_people_yes=labels.false_no,
            judge_no_people_no=labels.true_no,
        ),
        agreement=_agreement_view(
            report.agreement, labels.total, show_accuracy=report.calibration.accuracy is not None
        ),
        categories=tuple(
            _agreement_view(each.agreement, each.label_count, category=each.category) for each in report.categories
        ),
        models=tuple(
            CorrectedRateView(
                model=each.model,
                verdicts=each.reply_count,
                judge_pass_rate=each.judge_passed / each.reply_count,
                labels=each.label_count,
                corrected=each.corrected.value,
                interval=_bounds(each.corrected.interval),
                method=each.method,
                other_labels=each.other_label_count,
                refusal=each.corrected.refusal_reason or None,
                missing_labels=each.missing_label_count,
            )
            for each in report.models
        ),
        self_judged_models=report.self_judged_models,
        position_bias=bias,
    )


def _panel_views(store: Store, run: Run) -> tuple[PanelView, ...]:
    """Return how far the judges of each panel of a run agree with each other."""
    if (
        not run.plan.other_judges and len(store.scorings.read_scoring_labels(run)) < 2
    ):  # a rescoring may have had a panel
        return ()
    panels = measure_panels(check for each in store.labels.iterate_checks(run) for check in each.checks)
    return tuple(
        PanelView(
            check=each.check,
            judges=each.judges,
            replies=each.reply_count,
            unanimous=each.unanimous,
            unanimous_interval=(each.unanimous_interval.low, each.unanimous_interval.high),
            undecided=each.undecided,
            pairs=tuple(
                JudgePairView(
                    first=pair.first,
                    second=pair.second,
                    replies=pair.reply_count,
                    agreed=pair.agreed,
                    kappa=pair.kappa,
                )
                for pair in each.pairs
            ),
        )
        for each in panels
    )


def _agreement_view(
    agreement: JudgeAgreement | None, label_count: int, *, category: str | None = None, show_accuracy: bool = True
) -> AgreementView:
    shown = agreement if show_accuracy else None
    return AgreementView(
        category=category,
        labels=label_count,
        accuracy=shown.accuracy if shown else None,
        accuracy_interval=_bounds(shown.accuracy_interval) if shown else None,
        kappa=agreement.kappa if agreement else None,
        kappa_interval=_bounds(agreement.kappa_interval) if agreement else None,
    )


def _bounds(interval: Interval | None) -> _Interval | None:
    return (interval.low, interval.high) if interval else None
