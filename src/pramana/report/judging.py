"""A judge's report as text: agreement with people, corrected pass rates and position bias, within 80 columns."""

from collections.abc import Iterator

from pramana.analyse.calibration import MIN_LABELS_FOR_KAPPA
from pramana.analyse.judgements import JUDGE, RUBRIC
from pramana.analyse.numbers import format_percent, pluralise, shorten_name
from pramana.app.calibrations import AgreementView, CorrectedRateView, JudgeReportView, JudgeView, PanelView
from pramana.app.position_bias import PositionBiasView, VerdictChangesView
from pramana.app.rejudging import RejudgingView
from pramana.report.figures import format_interval
from pramana.report.terminal import pad_to_width, wrap_text

MAX_COLUMNS = 80
NAME_COLUMNS = 28
_SHOWN_LABEL_COLUMNS = 13


def render_judge_report(report: JudgeReportView) -> str:
    """Return the report of a run's judges."""
    return "\n".join(_format_report(report))


def _format_report(report: JudgeReportView) -> Iterator[str]:
    yield wrap_text(f"{report.suite} · run {report.reference}", MAX_COLUMNS)
    yield wrap_text(_describe_labels(report), MAX_COLUMNS)
    if report.alpha is not None:
        said = (
            f"The raters agree with each other: Krippendorff's alpha {report.alpha:.2f} (1: always, 0: as by chance)."
        )
        yield wrap_text(said, MAX_COLUMNS)
    if not report.judges:
        yield wrap_text("No reply of this run was judged by a model.", MAX_COLUMNS)
    for judge in report.judges:
        yield ""
        yield from _format_judge(judge)
        if judge.position_bias:
            yield ""
            yield from format_position_bias(judge.position_bias)
        elif advice := make_swap_advice(judge, report.run_id):
            yield ""
            yield wrap_text(advice, MAX_COLUMNS, "  ", "    ")
    for panel in report.panels:
        yield ""
        yield from _format_panel(panel)


def _format_panel(panel: PanelView) -> Iterator[str]:
    yield wrap_text(f"Panel of {len(panel.judges)} judges ({panel.check})", MAX_COLUMNS)
    share = panel.unanimous / panel.replies
    said = (
        f"unanimous on {panel.unanimous:,} of {_format_reply_count(panel.replies)}: {format_percent(share)} "
        f"(95 % interval {format_interval(panel.unanimous_interval)}); without a majority: {panel.undecided:,}"
    )
    yield wrap_text(said, MAX_COLUMNS, "  ", "    ")
    for pair in panel.pairs:
        kappa = "" if pair.kappa is None else f", kappa {pair.kappa:.2f}"
        told = f"{shorten_name(pair.first)} and {shorten_name(pair.second)} agree on {pair.agreed:,} of"
        yield wrap_text(f"{told} {_format_reply_count(pair.replies)}{kappa}", MAX_COLUMNS, "  ", "    ")


def _describe_labels(report: JudgeReportView) -> str:
    if not report.raters:
        return f"No labels yet. Label replies: pramana judge label {report.run_id}"
    apart = [f"{report.unsure:,} unsure"] if report.unsure else []
    apart += [f"{report.tied:,} on which the raters disagree"] if report.tied else []
    beside = f"; not counted: {', '.join(apart)}" if apart else ""
    return f"{_format_reply_count(report.labelled)} labelled by {', '.join(report.raters)}{beside}."


def _format_reply_count(count: int) -> str:
    return f"{count:,} {'reply' if count == 1 else 'replies'}"


def _format_judge(judge: JudgeView) -> Iterator[str]:
    name = f"Judge {shorten_name(judge.judge)} ({judge.check})"
    yield wrap_text(f"{name}: {describe_judge_agreement(judge)}", MAX_COLUMNS, "", "  ")
    for model in judge.self_judged_models:
        yield wrap_text(
            f"{shorten_name(model)} judges its own replies. Models tend to prefer their own replies "
            "(self-preference); labels show by how much.",
            MAX_COLUMNS,
            "  ",
            "  ",
        )
    counts = judge.counts
    if judge.labels:
        yield wrap_text(describe_kappa(judge), MAX_COLUMNS, "  ", "    ")
        yield ""
        yield _format_row("", "people yes", "people no")
        yield _format_row("  judge yes", counts.judge_yes_people_yes, counts.judge_yes_people_no)
        yield _format_row("  judge no", counts.judge_no_people_yes, counts.judge_no_people_no)
    if judge.categories and judge.labels:
        yield ""
        yield "  agreement by category (95 % interval)"
        for each in judge.categories:
            yield f"    {pad_to_width(each.category or '', NAME_COLUMNS)} {_describe_agreement(each)}"
    yield ""
    yield "  pass rate"
    for rate in judge.models:
        yield from _format_rate(rate)


def describe_judge_agreement(judge: JudgeView) -> str:
    """Return how far a judge agrees with people, and that it is not the share of the labelled replies."""
    if judge.agreement.accuracy is None:
        return judge.calibration
    return f"{judge.calibration}, weighted by how often the judge gives each verdict"


def describe_kappa(judge: JudgeView) -> str:
    """Return the kappa of a judge with labels, or why it has none."""
    kappa, labels = judge.agreement.kappa, judge.labels
    if kappa is not None:
        interval = _format_bounds(judge.agreement.kappa_interval)
        return f"kappa {kappa:.2f}{interval}; 1: always agrees, 0: as by chance"
    if judge.passed in (0, judge.verdicts):
        return "no kappa: the judge gave all replies the same verdict"
    if labels < MIN_LABELS_FOR_KAPPA:
        return f"too few labels for kappa: {labels} of {MIN_LABELS_FOR_KAPPA}"
    return "too few labels for kappa: one of the judge's two verdicts has none"


# ── Position bias ──

_ORDER_NAMES = {
    "usual": "Asked again with the same prompt",
    "answers-swapped": "With the answers swapped",
    "criterion-last": "With the criterion after the reply",
}


def make_swap_advice(judge: JudgeView, run_id: str) -> str:
    """Return how to measure the position bias of a judge; empty if it is measured or the prompts are a scorer's own."""
    if judge.position_bias or judge.check not in (JUDGE, RUBRIC):
        return ""
    return f"Position bias is not measured yet: pramana judge swap {run_id}"


def describe_drawn_replies(bias: PositionBiasView) -> str:
    """Return how many replies a judge judged again, and what it cost."""
    cost = f"; cost ${bias.cost_usd:.4f}" if bias.cost_usd else ""
    return f"{_format_reply_count(bias.replies)} judged again, {bias.earlier_no:,} of them with the verdict NO{cost}"


def describe_verdict_changes(changes: VerdictChangesView) -> str:
    """Return how many verdicts changed with prompts in one order."""
    name = _ORDER_NAMES[changes.order]
    if not changes.replies:
        return f"{name}: no verdicts."
    verdicts = f"{changes.changed:,} of {pluralise(changes.replies, 'verdict')} changed"
    directions = f", {changes.to_yes:,} to YES and {changes.to_no:,} to NO" if changes.changed else ""
    share = f"{format_percent(changes.changed / changes.replies)} (95 % interval {format_interval(changes.interval)})"
    return f"{name}, {verdicts}{directions}: {share}."


def format_position_bias(bias: PositionBiasView) -> Iterator[str]:
    """Yield the lines on how far the verdicts of a judge depend on the order of its prompt."""
    yield wrap_text(f"position bias: {describe_drawn_replies(bias)}", MAX_COLUMNS, "  ", "    ")
    if bias.unreadable:
        answers = f"{pluralise(bias.unreadable, 'answer')} without a readable verdict, not counted."
        yield wrap_text(answers, MAX_COLUMNS, "    ", "      ")
    yield wrap_text(describe_verdict_changes(bias.repetition), MAX_COLUMNS, "    ", "      ")
    for each in bias.effects:
        yield wrap_text(describe_verdict_changes(each.changes), MAX_COLUMNS, "    ", "      ")
        yield wrap_text(each.finding, MAX_COLUMNS, "      ", "      ")


def describe_rejudging(view: RejudgingView) -> str:
    """Return what it takes to judge the drawn replies of a run again."""
    drawn = f"Run {view.run_id}: {view.drawn:,} of {view.judged:,} judged replies drawn."
    unreadable = f", {view.unreadable:,} of them unreadable" if view.unreadable else ""
    known = f" {pluralise(view.stored, 'answer')} stored already{unreadable}." if view.stored else ""
    if not view.calls:
        return f"{drawn}{known} Nothing to ask."
    usd = view.estimated_cost_usd
    cost = "cost unknown" if usd is None else f"about ${usd:.4f}" if usd else "no cost"
    judges = ", ".join(map(shorten_name, view.judges))
    return f"{drawn}{known} {pluralise(view.calls, 'call')} to {judges}: {cost}."


def _format_row(name: str, *cells: object) -> str:
    return f"  {name:<12}{''.join(f'{each!s:>{_SHOWN_LABEL_COLUMNS}}' for each in cells)}"


def _describe_agreement(agreement: AgreementView) -> str:
    labels = pluralise(agreement.labels, "label")
    if agreement.accuracy is None or agreement.accuracy_interval is None:
        return f"{labels}, too few"
    return f"{format_percent(agreement.accuracy)} ({format_interval(agreement.accuracy_interval)}, {labels})"


def _format_rate(rate: CorrectedRateView) -> Iterator[str]:
    by_judge = f"{format_percent(rate.judge_pass_rate)} of {_format_reply_count(rate.verdicts)} by the judge"
    yield wrap_text(f"{shorten_name(rate.model)}: {by_judge}", MAX_COLUMNS, "    ", "      ")
    if rate.corrected is None or rate.interval is None:
        yield wrap_text(f"not corrected: {rate.refusal}", MAX_COLUMNS, "      ", "      ")
        more = (
            "More labels alone would not do: the run has too few replies."
            if rate.missing_labels is None
            else f"About {pluralise(rate.missing_labels, 'more label')} would do."
        )
        yield wrap_text(more, MAX_COLUMNS, "      ", "      ")
        return
    how = (
        f"with {pluralise(rate.other_labels, 'label')} of other replies judged by this judge"
        if rate.method == "rogan-gladen"
        else f"by {pluralise(rate.labels, 'label')}"
    )
    said = f"corrected {how}: {format_percent(rate.corrected)} (95 % interval {format_interval(rate.interval)})"
    yield wrap_text(said, MAX_COLUMNS, "      ", "      ")


def _format_bounds(interval: tuple[float, float] | None) -> str:
    return f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else ""
