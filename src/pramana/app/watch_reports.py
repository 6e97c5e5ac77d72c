"""The report of a watch: its state, what it could see, and after a change what changed and what did not.

A watch and its stored days and runs in, one view out. Nothing is sent to a model.
"""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from pramana.analyse.instruments import INSTRUMENTS, MeasuredDay
from pramana.analyse.own_endpoint import EndpointReport, report_endpoint
from pramana.analyse.watch import find_instrument_findings
from pramana.analyse.watch_facts import find_reported_changes, measure_category_shifts, measure_hash_consistency
from pramana.app import App, User, use_case
from pramana.app.comparison_sides import compare_sides
from pramana.app.comparisons import comparison_view
from pramana.app.judge_marks import JudgeMarks
from pramana.app.references import make_run_reference, resolve_sides
from pramana.app.replies import ReplyPairView
from pramana.app.views import View
from pramana.app.watch_forecasts import PASS_RATE_INSTRUMENTS, forecast_watch
from pramana.app.watches import FIRST_DAYS_DESCRIPTION, WatchDetailView, read_watch
from pramana.errors import PramanaError
from pramana.store.store import Store
from pramana.store.watches import Watch, WatchRun
from pramana.watching import read_feature_days, read_run_features

DEFAULT_EXAMPLE_COUNT = 3


class DelayView(View, frozen=True, kw_only=True):
    """In how many days a drop of the pass rate would be seen, in half of all cases; null: not within 30 days."""

    change: float
    notice_days: int | None
    alarm_days: int | None


class EndpointView(View, frozen=True, kw_only=True):
    """How much the days of this endpoint differ, and what a watch with these calls could see."""

    days: int
    prompts: int
    repeats: int
    day_standard_deviation: Annotated[
        float, Meta(description="Of the pass rate, beyond what the number of calls explains")
    ]
    call_standard_deviation: Annotated[
        float, Meta(description="Of the pass rate of a day, explained by its number of calls")
    ]
    next_day_rank_correlation: float
    is_baseline_complete: bool
    delays: Annotated[tuple[DelayView, ...], Meta(description="Simulated, with the rule that the watch uses")]


class HashConsistencyView(View, frozen=True, kw_only=True):
    """Replies of the last day that equal the usual reply of their prompt on the baseline's days, to the letter."""

    equal: int
    compared: int
    share: float
    word: Annotated[str, Meta(description="The community's word: stable, watch or drifting")]


class CategoryShiftView(View, frozen=True, kw_only=True):
    """The mean of one category before and since a change."""

    instrument: str
    category: str
    prompts: int
    before: float
    since: float


class ChangeReportView(View, frozen=True, kw_only=True):
    """What changed, and what did not."""

    instruments: Annotated[tuple[str, ...], Meta(description="The instruments that saw the change")]
    unchanged: Annotated[tuple[str, ...], Meta(description="Titles of the instruments that saw no change")]
    first_day: Annotated[str | None, Meta(description="The likeliest first day of the change")]
    first_days: Annotated[tuple[str, str] | None, Meta(description=FIRST_DAYS_DESCRIPTION)]
    categories: tuple[CategoryShiftView, ...]
    base_run: Annotated[str | None, Meta(description="A run of a day of the baseline; null: all were deleted")]
    new_run: Annotated[str | None, Meta(description="The run of the last day")]
    comparison: Annotated[str | None, Meta(description="How the verdicts of these two runs differ, in a sentence")]
    examples: Annotated[tuple[ReplyPairView, ...], Meta(description="Cases with the replies of both runs")]


class ConfirmingMeasurementView(View, frozen=True, kw_only=True):
    """What one instrument measured in a confirming batch."""

    name: str
    title: str
    unit: str
    value: float
    baseline_band: tuple[float, float] | None
    is_outside: Annotated[bool | None, Meta(description="Whether it is outside the tolerance; null: not compared")]
    p_value: float | None


class ConfirmationView(View, frozen=True, kw_only=True):
    """A confirming batch: beside the statistic, which does not use it."""

    run: str
    day: str
    planned: int
    answered: int
    values: tuple[ConfirmingMeasurementView, ...]


class WatchReportView(View, frozen=True, kw_only=True):
    """A watch, and what is known beside its statistic."""

    watch: WatchDetailView
    endpoint: EndpointView | None
    hash_consistency: HashConsistencyView | None
    reported_changes: Annotated[
        tuple[str, ...], Meta(description="Models and fingerprints that the provider reports since the baseline")
    ]
    change: Annotated[
        ChangeReportView | None, Meta(description="What changed; null unless there is a notice or an alarm")
    ]
    confirmations: tuple[ConfirmationView, ...]


def report_watch(
    store: Store, watch: Watch, examples: int = DEFAULT_EXAMPLE_COUNT, marks: JudgeMarks | None = None
) -> WatchReportView:
    """Return the report of a watch, with the replies of so many cases after a change."""
    view = read_watch(store, watch, marks=marks)
    days = read_feature_days(store, watch, view.period)
    count = min(len(days), watch.baseline_days)
    baseline, later = days[:count], days[count:]
    endpoint = report_endpoint(days, watch.baseline_days, len(watch.instruments)) if _has_pass_rate(watch) else None
    if view.level == "collecting" and endpoint is None and view.is_active:
        view = replace(view, forecast=forecast_watch(store, watch))
    return WatchReportView(
        watch=view,
        endpoint=_make_endpoint_view(endpoint) if endpoint else None,
        hash_consistency=_make_consistency_view(baseline, later),
        reported_changes=tuple(each.sentence for each in find_reported_changes(baseline, later)),
        change=_explain_change(store, watch, view, baseline, later, examples),
        confirmations=tuple(
            _make_confirmation_view(store, watch, days, each)
            for each in store.watches.list_runs(watch)
            if each.purpose == "confirm"
        ),
    )


def _has_pass_rate(watch: Watch) -> bool:
    return bool(PASS_RATE_INSTRUMENTS & {*watch.instruments})


def _make_endpoint_view(report: EndpointReport) -> EndpointView:
    return EndpointView(
        days=report.days,
        prompts=report.prompts,
        repeats=report.repeats,
        day_standard_deviation=report.day_standard_deviation,
        call_standard_deviation=report.call_standard_deviation,
        next_day_rank_correlation=report.next_day_rank_correlation,
        is_baseline_complete=report.is_baseline_complete,
        delays=tuple(
            DelayView(change=each.change, notice_days=each.notice_days, alarm_days=each.alarm_days)
            for each in report.delays
        ),
    )


def _make_consistency_view(baseline: Sequence[MeasuredDay], later: Sequence[MeasuredDay]) -> HashConsistencyView | None:
    measured = measure_hash_consistency(baseline, later[-1]) if later else None
    if measured is None:
        return None
    return HashConsistencyView(
        equal=measured.equal, compared=measured.compared, share=measured.share, word=measured.word
    )


# ── After a change ──


def _explain_change(
    store: Store,
    watch: Watch,
    view: WatchDetailView,
    baseline: Sequence[MeasuredDay],
    later: Sequence[MeasuredDay],
    examples: int,
) -> ChangeReportView | None:
    if view.level not in ("notice", "alarm"):
        return None
    seen = [each for each in view.findings if each.level in ("notice", "alarm")]
    alerts = [each for each in view.alerts if each.period == view.period]
    names = [each.name for each in seen]
    if not names and alerts:  # reached earlier in this period, and below the level by now
        names = [str(each.get("instrument")) for each in alerts[-1].body.get("instruments", ())]
    dated = max(seen, key=lambda each: each.alarm_statistic, default=None)
    since = [each for each in later if dated is None or dated.first_day is None or each.day >= dated.first_day]
    base_run, new_run = _find_runs_to_compare(store, watch, baseline, later)
    sentence, pairs = _compare_runs(store, base_run, new_run, examples)
    return ChangeReportView(
        instruments=tuple(names),
        unchanged=tuple(each.title for each in view.findings if each.level == "quiet"),
        first_day=dated.first_day if dated else None,
        first_days=dated.first_days if dated else None,
        categories=tuple(
            CategoryShiftView(
                instrument=name,
                category=each.category,
                prompts=each.prompts,
                before=each.before,
                since=each.since,
            )
            for name in names
            if name in INSTRUMENTS
            for each in measure_category_shifts(name, baseline, since)
        ),
        base_run=base_run,
        new_run=new_run,
        comparison=sentence,
        examples=pairs,
    )


def _find_runs_to_compare(
    store: Store, watch: Watch, baseline: Sequence[MeasuredDay], later: Sequence[MeasuredDay]
) -> tuple[str | None, str | None]:
    """Return the stored run of the last day of the baseline that has one, and that of the last day."""
    runs = {each.day: each.run_id for each in store.watches.list_runs(watch) if each.purpose == "batch"}
    base = next((runs[each.day] for each in reversed(baseline) if each.day in runs), None)
    return base, runs.get(later[-1].day) if later else None


def _compare_runs(
    store: Store, base: str | None, new: str | None, examples: int
) -> tuple[str | None, tuple[ReplyPairView, ...]]:
    if base is None or new is None:
        return None, ()
    try:
        sides = resolve_sides(make_run_reference(store, base), make_run_reference(store, new), None, None)
        view = comparison_view(compare_sides(*sides, any_suite=True, any_judge=False), examples)
    except PramanaError as error:  # such as two runs that have no case in common
        return str(error), ()
    return view.sentence, view.examples


# ── Confirming batches ──


def _make_confirmation_view(
    store: Store, watch: Watch, days: Sequence[MeasuredDay], linked: WatchRun
) -> ConfirmationView:
    run = store.runs.read(linked.run_id)
    features = read_run_features(store, run)
    findings = find_instrument_findings(
        watch.instruments, [*days, MeasuredDay("confirm", 0.0, features)], watch.baseline_days
    )
    values = []
    for name, finding in findings.items():
        if not finding.days or finding.days[-1] != "confirm":
            continue
        show, baseline = INSTRUMENTS[name].to_shown, finding.baseline
        band = sorted((show(baseline.low), show(baseline.high))) if baseline else []
        values.append(
            ConfirmingMeasurementView(
                name=name,
                title=INSTRUMENTS[name].title,
                unit=INSTRUMENTS[name].unit,
                value=show(finding.scores_without_tie_breaks[-1]),
                baseline_band=(band[0], band[1]) if band else None,
                is_outside=finding.today.is_outside if finding.today else None,
                p_value=finding.today.p_value if finding.today else None,
            )
        )
    return ConfirmationView(
        run=run.id,
        day=linked.day,
        planned=sum(each.planned for each in features.prompts),
        answered=sum(each.answered for each in features.prompts),
        values=tuple(values),
    )


@use_case("viewer", "heavy")
def read_report(app: App, _: User, reference: str, examples: int = DEFAULT_EXAMPLE_COUNT) -> WatchReportView:
    """Return the report of a watch."""
    return report_watch(app.store, app.store.watches.find(reference), examples, app.judge_marks)
