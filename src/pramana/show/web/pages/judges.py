"""Judges: which runs a judge model judged, what people's labels say about it, corrected pass rates, position bias."""

from collections.abc import Sequence

from pramana.analyse.numbers import pluralise
from pramana.app.calibrations import (
    AgreementView,
    CorrectedRateView,
    JudgeReportView,
    JudgeView,
    LabelCountsView,
)
from pramana.app.judged_runs import JudgedRunView, list_judged_runs
from pramana.app.judging import read_judge_report, read_labelling, save_label
from pramana.app.runs import read_progress
from pramana.report.figures import format_interval, format_percent
from pramana.report.judging import (
    describe_drawn_replies,
    describe_judge_agreement,
    describe_kappa,
    describe_verdict_changes,
    make_swap_advice,
)
from pramana.report.markup import (
    Column,
    HtmlChild,
    SafeHtml,
    join_html,
    render_link,
    render_rate_bar,
    render_table,
    render_time,
    render_untrusted_text,
    tag,
)
from pramana.show.web.kit import PageContext, frame, make_url, parts
from pramana.show.web.pages.judge_swap import PositionBiasPanel, can_measure_position_bias


@frame.register_page("/judges", "Judges")
async def show_judges_page(context: PageContext) -> None:
    """Show the newest runs that have ended, with links to label their replies and to the report on their judges."""
    about = "A judge model passes some bad replies and fails some good ones. Label replies to see how often."
    frame.add_page_heading("Judges", about)
    runs = await context.call(list_judged_runs)
    if not runs:
        about = "Labels belong to replies that a judge model has judged, such as those to cases with llm_judge."
        with parts.open_empty_state("No judged replies yet", about):
            parts.add_link_button("Runs", "/runs")
        return
    may_label = context.may(read_labelling, save_label)
    columns = (
        Column("Run", is_row_header=True),
        Column("Judge"),
        Column("Results", is_numeric=True),
        Column("Labelled replies", is_numeric=True),
        Column("Started (UTC)"),
        Column("Open"),
    )
    rows = (_render_run_row(each, may_label=may_label) for each in runs)
    parts.add_markup(render_table("Newest runs with judged replies", columns, rows, hide_caption=True))


def _render_run_row(run: JudgedRunView, *, may_label: bool) -> tuple[HtmlChild, ...]:
    judge = render_untrusted_text(run.judge, 120) if run.judge else tag("span", "each model itself", class_="quiet")
    name = render_untrusted_text(run.name or run.suite, 200)
    links = [("Report", make_url(f"/judges/{run.id}"), f"Report on the judges of run {run.id}")]
    if may_label:
        links.insert(0, ("Label replies", _make_label_url(run.id), f"Label replies of run {run.id}"))
    models = join_html((render_untrusted_text(each, 80) for each in run.models[:3]), ", ")
    people = (
        tag("small", f"by {run.raters:,} {'person' if run.raters == 1 else 'people'}", class_="quiet")
        if run.raters
        else None
    )
    return (
        tag("div", render_link(make_url(f"/runs/{run.id}"), name), tag("small", models, class_="quiet"), class_="cell"),
        judge,
        f"{run.stored:,}",
        tag("div", tag("span", f"{run.labelled:,}"), people, class_="cell"),
        render_time(run.created_at),
        tag("span", (tag("a", words, href=to, aria_label=label) for words, to, label in links), class_="acts"),
    )


def _make_label_url(run_id: str) -> str:
    return make_url(f"/judges/{run_id}/label")


# ── The report of a run ──


@frame.register_page("/judges/{judged_id}", "Report on judges")
async def show_judge_report_page(context: PageContext) -> None:
    """Show how far the judges of a run agree with people."""
    report = await context.call(read_judge_report, context.path["judged_id"])
    run = await context.call(read_progress, report.reference)
    crumbs = (("/judges", "Judges"), (make_url(f"/runs/{report.reference}"), run.name or report.suite))

    async def measure() -> None:
        await panel.ask_and_start()

    with frame.add_page_heading("Report on judges", "How far do the judges of this run agree with people?", crumbs):
        if context.may(read_labelling, save_label) and report.judges:
            parts.add_link_button("Label replies", _make_label_url(report.run_id), "primary")
        if can_measure_position_bias(context, report):
            parts.add_button("Measure position bias", measure)
        parts.add_link_button("Run", make_url(f"/runs/{report.reference}"))
    if not report.judges:
        with parts.open_empty_state("No judged replies", "No reply of this run was judged by a model."):
            parts.add_link_button("Other runs", "/judges")
        return

    async def draw_again() -> None:
        found = await context.call(read_judge_report, report.reference)
        if not shown.is_deleted:
            shown.set_content(_render_judges(found))

    panel = PositionBiasPanel(context, report.run_id, draw_again)
    await panel.load()
    shown = parts.add_markup(_render_judges(report))


def _render_judges(report: JudgeReportView) -> SafeHtml:
    judges = (render_judge(each, report.run_id) for each in report.judges)
    return join_html([render_label_summary(report), *judges])


def render_label_summary(report: JudgeReportView) -> SafeHtml:
    """Return who has labelled how many replies, and how far they agree with each other."""
    if not report.raters:
        return tag("p", "No labels yet: every number of this judge is uncalibrated.", class_="warn")
    raters = join_html((render_untrusted_text(each, 100) for each in report.raters), ", ")
    apart = [f"{report.unsure:,} unsure"] if report.unsure else []
    apart += [f"{report.tied:,} on which the raters disagree"] if report.tied else []
    beside = f"; not counted: {', '.join(apart)}" if apart else ""
    alpha = (
        tag(
            "p",
            f"Agreement of the raters with each other: Krippendorff’s alpha {report.alpha:.2f} ",
            "(1: always, 0: as by chance).",
        )
        if report.alpha is not None
        else None
    )
    replies = "1 reply" if report.labelled == 1 else f"{report.labelled:,} replies"
    return tag("div", tag("p", f"{replies} labelled by ", raters, f"{beside}."), alpha)


def render_judge(judge: JudgeView, run_id: str) -> SafeHtml:
    """Return how far one judge agrees with people, the pass rates corrected by labels, and its position bias."""
    agreement = judge.agreement
    kappa: HtmlChild = None
    if agreement.kappa is not None:
        bounds = agreement.kappa_interval
        interval = f" (95 % interval {bounds[0]:.2f} to {bounds[1]:.2f})" if bounds else None
        kappa = tag("p", f"Cohen’s kappa {agreement.kappa:.2f}", interval, "; 1: always agrees, 0: as by chance.")
    elif judge.labels:
        kappa_note = describe_kappa(judge)
        kappa = tag("p", f"{kappa_note[:1].upper()}{kappa_note[1:]}.", class_="quiet")
    own = [
        tag(
            "p",
            render_untrusted_text(each, 120),
            " judges its own replies. Models tend to prefer their own replies; labels show by how much.",
            class_="warn below",
        )
        for each in judge.self_judged_models
    ]
    return tag(
        "section",
        tag("h2", "Judge ", render_untrusted_text(judge.judge, 200)),
        tag("p", render_untrusted_text(describe_judge_agreement(judge), 500)),
        kappa,
        own,
        tag(
            "div",
            _render_counts(judge.counts, judge.labels),
            _render_categories(judge.categories, judge.labels),
            class_="halves",
        ),
        tag("h3", "Pass rates"),
        _render_rates(judge.models),
        _render_position_bias(judge, run_id),
        tag(
            "p",
            f"Check {judge.check}, version {judge.version}; ",
            f"{judge.passed:,} of {pluralise(judge.verdicts, 'verdict')} passed.",
            class_="small quiet",
        ),
        aria_label=f"Judge {judge.judge[:100]}",
    )


def _render_position_bias(judge: JudgeView, run_id: str) -> SafeHtml | None:
    """Return how far the order of the prompt changes the verdicts of a judge, or how to measure it."""
    bias = judge.position_bias
    if bias is None:
        advice = make_swap_advice(judge, run_id)
        return tag("p", advice, class_="small quiet") if advice else None
    effects = (
        tag("div", tag("p", describe_verdict_changes(each.changes)), tag("p", each.finding, class_="small quiet"))
        for each in bias.effects
    )
    return tag(
        "section",
        tag("h3", "Position bias"),
        tag("p", f"{describe_drawn_replies(bias)}.", class_="small quiet"),
        tag("p", describe_verdict_changes(bias.repetition)),
        effects,
    )


def _render_counts(counts: LabelCountsView, label_count: int) -> SafeHtml | None:
    if not label_count:
        return None
    columns = (
        Column("Judge", is_row_header=True),
        Column("People: yes", is_numeric=True),
        Column("People: no", is_numeric=True),
    )
    rows = (
        ("Yes", f"{counts.judge_yes_people_yes:,}", f"{counts.judge_yes_people_no:,}"),
        ("No", f"{counts.judge_no_people_yes:,}", f"{counts.judge_no_people_no:,}"),
    )
    return tag(
        "section",
        tag("h3", "Labelled replies"),
        render_table("Labelled replies by both verdicts", columns, rows, hide_caption=True),
    )


def _render_categories(categories: Sequence[AgreementView], label_count: int) -> SafeHtml | None:
    if not categories or not label_count:
        return None
    columns = (
        Column("Category", is_row_header=True),
        Column("Chart"),
        Column("Agrees", is_numeric=True),
        Column("Labels", is_numeric=True),
    )
    rows = (
        (
            render_untrusted_text(each.category, 120),
            render_rate_bar(each.accuracy, each.accuracy_interval),
            _format_rate(each.accuracy, each.accuracy_interval, "too few labels"),
            pluralise(each.labels, "label"),
        )
        for each in categories
    )
    table = render_table("Agreement by category", columns, rows, hide_caption=True)
    return tag("section", tag("h3", "Agreement by category"), tag("div", table, class_="rates"))


def _format_rate(value: float | None, interval: Sequence[float] | None, missing: str) -> SafeHtml:
    if value is None:
        return tag("span", missing, class_="quiet")
    return tag(
        "span", format_percent(value), tag("small", format_interval(interval), class_="quiet"), class_="number rate"
    )


def _render_rates(rates: Sequence[CorrectedRateView]) -> SafeHtml:
    columns = (
        Column("Model", is_row_header=True),
        Column("By the judge", is_numeric=True),
        Column("Corrected", is_numeric=True),
        Column("How"),
    )
    rows = (
        (
            render_untrusted_text(each.model, 200),
            f"{format_percent(each.judge_pass_rate)} of {each.verdicts:,}",
            _format_rate(each.corrected, each.interval, "not corrected"),
            describe_correction(each),
        )
        for each in rates
    )
    return render_table("Pass rates by the judge, and corrected by labels", columns, rows, hide_caption=True)


def describe_correction(rate: CorrectedRateView) -> str:
    """Return which labels a corrected rate uses, or why there is none."""
    if rate.corrected is None:
        more = (
            "More labels alone would not do: the run has too few replies."
            if rate.missing_labels is None
            else f"About {pluralise(rate.missing_labels, 'more label')} would do."
        )
        reason = (rate.refusal or "").rstrip(".")
        return f"{reason[:1].upper()}{reason[1:]}. {more}"
    if rate.method == "rogan-gladen":
        return f"by {pluralise(rate.other_labels, 'label')} of other replies judged by this judge"
    return f"by {pluralise(rate.labels, 'label')} of this run"
