"""Watches: start, list, read, check, accept and stop them. Views come out, which front ends only render.

A plain function for each, for the command line and Python, which work on their own store; the use cases call the same
functions for users of a server.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import replace

from pramana import planning, settings
from pramana.alerting import make_channel, read_channel
from pramana.analyse.instruments import INSTRUMENT_GROUPS, INSTRUMENTS, TEXT_GROUPS, VOICE_GROUPS
from pramana.analyse.watch import (
    InstrumentFinding,
    Level,
    decide_state,
    find_instrument_findings,
)
from pramana.analyse.watch_family import adjust_for_false_discoveries, bound_p_value
from pramana.analyse.watch_sentences import describe_alert, describe_proof, describe_state, read_reached_level
from pramana.app import App, User, use_case
from pramana.app.judge_marks import JudgeMarks
from pramana.app.providers import make_server_reach
from pramana.app.views import View
from pramana.app.watch_calibrations import CALIBRATION_DESCRIPTION, describe_watch_judges
from pramana.app.watch_calls import (
    InstrumentCallsView,
    count_calls_of_day,
    estimate_instrument_calls,
    explain_unfinished_search,
    explain_unusable_instruments,
    measure_instrument_calls,
)
from pramana.app.watch_forecasts import AssumedForecastView, forecast_watch
from pramana.app.watch_warnings import find_start_warnings
from pramana.day_runs import count_search_calls
from pramana.errors import InvalidInput, PramanaError, Problem, quote_text, set_field_path_if_missing, suggest_similar
from pramana.model import Plan
from pramana.plan_scoring import refuse_unknown_prices
from pramana.providers.logprobs import logprob_parameters
from pramana.providers.names import is_voice_agent
from pramana.providers.prices import Prices
from pramana.request import Limits
from pramana.run.accounts import ProviderAccess
from pramana.store.store import Store
from pramana.store.watches import DayStatus, Watch, WatchAlert, WatchDay, WatchPeriod
from pramana.watch_request import WatchRequest
from pramana.watching import confirm_watch, read_feature_days

PROVIDERS_WITHOUT_LATENCY_INSTRUMENTS = frozenset({"fake", "local", "local-voice", "python", "command"})
"""Providers on this machine: how fast they reply says more about the machine than about the model."""
FIRST_DAYS_DESCRIPTION = (
    "The 95 % interval of the first day of the change: the earliest and the latest day on which it may have begun"
)


class BaselineView(View, frozen=True, kw_only=True):
    """The scores of the baseline's days."""

    days: int
    first_day: str
    last_day: str
    mean: float
    low: float
    high: float
    day_standard_deviation: Annotated[
        float, Meta(description="Standard deviation of the days beyond what their number of calls explains")
    ]
    next_day_rank_correlation: float


class DayScoreView(View, frozen=True, kw_only=True):
    """The score of an instrument on a day, in the unit that users see."""

    day: str
    value: float
    score: Annotated[float, Meta(description="Higher is further in the direction that the instrument watches")]


class InstrumentView(View, frozen=True, kw_only=True):
    """What one instrument says."""

    name: str
    title: str
    unit: str
    level: Level
    collected_days: int
    needed_days: int
    latest: DayScoreView | None
    baseline: BaselineView | None
    baseline_value: float | None
    baseline_band: tuple[float, float] | None
    notice_statistic: float
    alarm_statistic: float
    notice_threshold: float
    alarm_threshold: float
    notice_tolerance: float
    alarm_tolerance: float
    first_day: Annotated[str | None, Meta(description="The likeliest first day of the change")]
    first_days: Annotated[tuple[str, str] | None, Meta(description=FIRST_DAYS_DESCRIPTION)]
    is_today_outside: Annotated[
        bool | None,
        Meta(description="Whether the calls of the last day alone are outside the tolerance; null: not compared"),
    ]
    today_p_value: float | None
    note: Annotated[str | None, Meta(description="Why nothing is measured with it; null: it is measured")] = None
    scores: tuple[DayScoreView, ...]


class WatchDayView(View, frozen=True, kw_only=True):
    """One UTC day of a watch."""

    day: str
    period: int
    status: DayStatus
    reason: str | None
    planned: int
    answered: int
    level: Level | None
    runs: tuple[str, ...]
    confirming_runs: tuple[str, ...]


class WatchPeriodView(View, frozen=True, kw_only=True):
    """Days that share one baseline."""

    number: int
    begins: str
    reason: str
    note: str | None
    days: int


class WatchAlertView(View, frozen=True, kw_only=True):
    """An alert, raised once for each period and level."""

    id: str
    period: int
    level: str
    day: str
    created_at: str
    delivered_at: str | None
    attempts: Annotated[int, Meta(description="Number of attempts to deliver the alert")]
    next_attempt_at: Annotated[str | None, Meta(description="When it is tried again; null: not again")]
    error: Annotated[str | None, Meta(description="Why the last attempt to deliver the alert failed")]
    sentence: str
    body: Mapping[str, Any]


class AlertChannelView(View, frozen=True, kw_only=True):
    """Where the alerts of a watch are sent; URLs and secrets are never shown."""

    kind: Literal["webhook", "command"]
    name: Annotated[str, Meta(description="Host of the webhook, or name of the command")]
    is_signed: Annotated[bool, Meta(description="Whether what is sent to the webhook is signed")]


class WatchView(View, frozen=True, kw_only=True):
    """A watch in a list."""

    id: str
    name: str | None
    note: str | None
    model: str
    is_active: bool
    level: Level
    sentence: str
    created_at: str
    stopped_at: str | None
    budget_usd_per_day: float | None
    at: str | None
    baseline_days: int
    instruments: tuple[str, ...]
    measured_days: int
    missing_days: int
    last_day: str | None
    calls_per_day: Annotated[
        int | None,
        Meta(
            description="Calls to the model on the last measured day, those beside the cases included; null: no day is "
            "measured yet, or runs of that day were deleted"
        ),
    ]
    last_day_cost_usd: Annotated[
        float | None, Meta(description="Cost of the runs of the last day, as far as known; null: one was deleted")
    ]
    is_last_day_cost_unknown: Annotated[bool, Meta(description="Whether the cost of a call of that day is unknown")]
    creator: str | None
    calibration: Annotated[str | None, Meta(description=CALIBRATION_DESCRIPTION)]
    p_value: Annotated[
        float | None,
        Meta(
            description="Largest share of unchanged watches whose statistic gets as high as this one's in as many "
            "days, if days are exchangeable; null: no day is compared with the baseline, or no instrument can tell"
        ),
    ] = None
    adjusted_p_value: Annotated[
        float | None,
        Meta(
            description="In a list: `pValue` adjusted for all active watches (Benjamini-Yekutieli). At most 5 % of the "
            "watches with 0.05 or less are expected to be false"
        ),
    ] = None

    @property
    def shown_name(self) -> str:
        """Its name, or its ID."""
        return self.name or self.id


class WatchDetailView(WatchView, frozen=True, kw_only=True):
    """A watch in full."""

    proof: Annotated[str, Meta(description="What is proven about false alarms")]
    period: Annotated[int, Meta(description="Number of the period that the findings are about")]
    findings: tuple[InstrumentView, ...]
    calls: Annotated[
        tuple[InstrumentCallsView, ...],
        Meta(description="Calls and cost of the instruments on the last day; before the first day, an estimate"),
    ]
    days: tuple[WatchDayView, ...]
    periods: tuple[WatchPeriodView, ...]
    alerts: tuple[WatchAlertView, ...]
    is_public: Annotated[bool, Meta(description="Whether anyone may read the watch without a token")]
    alerts_to: Annotated[AlertChannelView | None, Meta(description="Where alerts are sent; null: nowhere")]
    warnings: Annotated[
        tuple[str, ...], Meta(description="What may keep the days from counting, when the watch is started")
    ] = ()
    forecast: Annotated[
        AssumedForecastView | None,
        Meta(
            description="What the watch could see after its baseline, as assumed, when the watch is started and in its "
            "report; null once its own days say so"
        ),
    ] = None


# ── Starting ──


def start_watch(
    store: Store, request: WatchRequest, reach: ProviderAccess | None = None, creator: str | None = None
) -> WatchDetailView:
    """Check a request and store its watch; nothing is sent to a model yet."""
    request.check()
    reach = reach or ProviderAccess()
    is_local = not reach.is_for_other_users
    plan = planning.make_plan(store, request.run, reach)
    planning.estimate(store, request.run, reach)  # refuses a selection without cases
    prices = Prices.load(settings.prices_file_path(), store.prices.read_rates())
    refuse_unknown_prices(plan, prices, Limits(max_cost_usd=request.budget_usd_per_day), reach)
    instruments = choose_instruments(plan, request.instruments)
    _refuse_unusable_instruments(plan, instruments)
    channel = None
    if request.delivery is not None:
        allow_private = is_local or reach.allow_private_addresses
        try:
            channel = make_channel(store, request.delivery, is_local=is_local, allow_private=allow_private)
        except PramanaError as error:
            set_field_path_if_missing(error, "webhook")
            raise
    watch = store.watches.create(
        request, instruments, owner="cli" if is_local else "server", creator=creator, channel=channel
    )
    calls = estimate_instrument_calls(store, request.run, instruments, reach)
    warnings = find_start_warnings(request, plan, prices, reach, calls)
    return replace(read_watch(store, watch, calls), warnings=warnings, forecast=forecast_watch(store, watch))


def _refuse_unusable_instruments(plan: Plan, instruments: Sequence[str]) -> None:
    """Refuse instruments with prompts of their own where these cannot be sent, or where nothing would come of them."""
    target = plan.targets[0]
    is_spoken = is_voice_agent(target) or plan.variants != ("text",)
    if is_spoken and (named := [each for each in ("answers", "logprobs") if each in instruments]):
        message = f"the prompts of {named[0]} are sent as text; leave out {named[0]} for a watch of calls"
    elif "logprobs" in instruments and not logprob_parameters(target.provider):
        message = f"no logprobs can be requested from the provider {target.provider}; leave out logprobs"
    else:
        return
    raise InvalidInput.from_problems([Problem(message, "instruments")])


def choose_instruments(plan: Plan, wanted: Sequence[str] | None) -> tuple[str, ...]:
    """Return the instruments of a watch: those that its user names, by name or by group, or all that apply."""
    if wanted is None:
        target = plan.targets[0]
        is_spoken = is_voice_agent(target) or plan.variants != ("text",)
        left_out = {"answers", "logprobs"} | {
            name for group in (TEXT_GROUPS if is_spoken else VOICE_GROUPS).values() for name in group
        }
        if target.provider in PROVIDERS_WITHOUT_LATENCY_INSTRUMENTS:
            left_out.update(INSTRUMENT_GROUPS["latency"])
        if plan.parameters.get("temperature") != 0 and plan.parameters.get("seed") is None:
            left_out.update(INSTRUMENT_GROUPS["replies"])
        return tuple(name for name in INSTRUMENTS if name not in left_out)
    chosen = list[str]()
    for each in wanted:
        name = each.strip().replace("-", "_")
        if name not in INSTRUMENTS and name not in INSTRUMENT_GROUPS:
            known = [*INSTRUMENT_GROUPS, *INSTRUMENTS]
            raise InvalidInput.from_problems(
                [
                    Problem(
                        f"there is no instrument {quote_text(each)}{suggest_similar(name, known)}; choose from "
                        f"{', '.join(INSTRUMENT_GROUPS)}",
                        "instruments",
                    )
                ]
            )
        chosen.extend(INSTRUMENT_GROUPS.get(name, (name,)))
    if not chosen:
        raise InvalidInput.from_problems([Problem("no instrument is named", "instruments")])
    return tuple(name for name in INSTRUMENTS if name in chosen)


# ── Reading ──


def list_watches(store: Store, *, active_only: bool = False, marks: JudgeMarks | None = None) -> list[WatchView]:
    """Return watches, newest first, each with its state; p-values are adjusted for all active watches together."""
    watches = store.watches.list_all(active_only=active_only)
    calibrations = describe_watch_judges(store, watches, marks)
    views = [_make_watch_view(store, *each) for each in zip(watches, calibrations, strict=True)]
    p_values = {each.id: each.p_value for each in views if each.is_active and each.p_value is not None}
    adjusted = dict(zip(p_values, adjust_for_false_discoveries([*p_values.values()]), strict=True))
    return [replace(each, adjusted_p_value=adjusted.get(each.id)) for each in views]


def read_watch(
    store: Store,
    watch: Watch,
    calls: tuple[InstrumentCallsView, ...] | None = None,
    marks: JudgeMarks | None = None,
) -> WatchDetailView:
    """Return a watch with its days, and what each instrument says on the last one; `calls` are those of a day."""
    periods, days = store.watches.list_periods(watch), store.watches.list_days(watch)
    period = _find_current_period(periods, days)
    findings = find_instrument_findings(watch.instruments, read_feature_days(store, watch, period), watch.baseline_days)
    alerts = store.watches.list_alerts(watch)
    unusable = _explain_unusable_instruments(periods, period, watch.instruments)
    notes = dict(unusable)
    if days and "answers" in watch.instruments and (sent := count_search_calls(store, watch, days[-1].day)):
        notes.setdefault("answers", explain_unfinished_search(sent))
    (calibration,) = describe_watch_judges(store, [watch], marks)
    raised = [each for each in alerts if each.period == period]
    listed = _make_listed_view(store, watch, findings, raised, days, period, unusable, calibration)
    correlation = max(
        (each.baseline.next_day_rank_correlation for each in findings.values() if each.baseline), default=None
    )
    return WatchDetailView(
        **{name: getattr(listed, name) for name in WatchView.__struct_fields__},
        period=period,
        proof=describe_proof(len(watch.instruments), correlation),
        findings=tuple(_make_instrument_view(each, notes.get(each.instrument)) for each in findings.values()),
        calls=calls or measure_instrument_calls(store, watch, days),
        days=tuple(_make_day_views(store, watch, days)),
        periods=tuple(
            WatchPeriodView(
                number=each.number,
                begins=each.begins,
                reason=each.reason,
                note=each.note,
                days=sum(day.period == each.number and day.status == "measured" for day in days),
            )
            for each in periods
        ),
        alerts=tuple(_make_alert_view(each) for each in alerts),
        is_public=watch.is_public,
        alerts_to=_make_channel_view(watch),
    )


def as_listed(view: WatchDetailView) -> WatchView:
    """Return a watch as lists show it."""
    return WatchView(**{name: getattr(view, name) for name in WatchView.__struct_fields__})


def _find_current_period(periods: Sequence[WatchPeriod], days: Sequence[WatchDay]) -> int:
    """Return the period of the last day, or the first period before any day."""
    return days[-1].period if days else periods[0].number


def _make_watch_view(store: Store, watch: Watch, calibration: str | None) -> WatchView:
    periods, days = store.watches.list_periods(watch), store.watches.list_days(watch)
    period = _find_current_period(periods, days)
    findings = find_instrument_findings(watch.instruments, read_feature_days(store, watch, period), watch.baseline_days)
    alerts = store.watches.list_alerts(watch, period)
    unusable = _explain_unusable_instruments(periods, period, watch.instruments)
    return _make_listed_view(store, watch, findings, alerts, days, period, unusable, calibration)


def _explain_unusable_instruments(
    periods: Sequence[WatchPeriod], period: int, instruments: Sequence[str]
) -> dict[str, str]:
    return explain_unusable_instruments(next(each.basis for each in periods if each.number == period), instruments)


def _make_listed_view(
    store: Store,
    watch: Watch,
    findings: Mapping[str, InstrumentFinding],
    alerts: Sequence[WatchAlert],
    days: Sequence[WatchDay],
    period: int,
    unusable: Collection[str],
    calibration: str | None,
) -> WatchView:
    reached = [read_reached_level(each.level, each.day, each.body) for each in alerts]
    level = decide_state(findings, reached, unusable)
    mine = [each for each in days if each.period == period]
    spent = []
    if days and not any(each.calls is None for each in store.watches.list_calls(watch, days[-1].day)):
        spent = [store.results.sum_spending(each.run_id) for each in store.watches.list_runs(watch, days[-1].day)]
    return WatchView(
        id=watch.id,
        name=watch.name,
        note=watch.note,
        model=watch.model,
        is_active=watch.stopped is None,
        level=level,
        sentence=describe_state(level, findings, reached, unusable),
        created_at=watch.created,
        stopped_at=watch.stopped,
        budget_usd_per_day=watch.budget_usd_per_day,
        at=watch.at,
        baseline_days=watch.baseline_days,
        instruments=watch.instruments,
        measured_days=sum(each.status == "measured" for each in mine),
        missing_days=sum(each.status == "missing" for each in mine),
        last_day=days[-1].day if days else None,
        calls_per_day=count_calls_of_day(store, watch, days),
        last_day_cost_usd=sum(each.cost_usd for each in spent) if spent else None,
        is_last_day_cost_unknown=any(each.unknown_cost for each in spent),
        creator=watch.creator,
        calibration=calibration,
        p_value=_bound_watch_p_value(watch, findings, mine),
    )


def _bound_watch_p_value(
    watch: Watch, findings: Mapping[str, InstrumentFinding], period_days: Sequence[WatchDay]
) -> float | None:
    """Return the p-value of a watch in its period: by the highest statistic that any of its days has had.

    Instruments that cannot tell are left out, since their days are not exchangeable; None if none can tell.
    """
    telling = {
        name: each for name, each in findings.items() if each.baseline is not None and each.level != "cannot_tell"
    }
    compared = max((len(each.scores) - each.baseline.days for each in telling.values() if each.baseline), default=0)
    if compared == 0:
        return None
    stored = [each.decision["instruments"] for each in period_days if each.decision]
    highest = max((day[name]["notice_statistic"] for day in stored for name in telling if name in day), default=0.0)
    highest = max([highest, *(each.notice_statistic for each in telling.values())])
    return bound_p_value(highest, len(watch.instruments), compared)


def _make_instrument_view(finding: InstrumentFinding, note: str | None = None) -> InstrumentView:
    instrument = INSTRUMENTS[finding.instrument]
    show = instrument.to_shown
    scores = tuple(
        DayScoreView(day=day, value=show(plain), score=score)
        for day, score, plain in zip(finding.days, finding.scores, finding.scores_without_tie_breaks, strict=True)
    )
    baseline, today = finding.baseline, finding.today
    band = sorted((show(baseline.low), show(baseline.high))) if baseline else []
    return InstrumentView(
        name=finding.instrument,
        title=instrument.title,
        unit=instrument.unit,
        level=finding.level,
        collected_days=finding.collected_days,
        needed_days=finding.needed_days,
        latest=scores[-1] if scores else None,
        baseline=BaselineView(**{name: getattr(baseline, name) for name in BaselineView.__struct_fields__})
        if baseline
        else None,
        baseline_value=show(baseline.mean) if baseline else None,
        baseline_band=(band[0], band[1]) if band else None,
        notice_statistic=finding.notice_statistic,
        alarm_statistic=finding.alarm_statistic,
        notice_threshold=finding.notice_threshold,
        alarm_threshold=finding.alarm_threshold,
        notice_tolerance=finding.notice_tolerance,
        alarm_tolerance=finding.alarm_tolerance,
        first_day=finding.first_day,
        first_days=finding.first_days,
        is_today_outside=today.is_outside if today else None,
        today_p_value=today.p_value if today else None,
        note=note,
        scores=scores,
    )


def _make_day_views(store: Store, watch: Watch, days: Sequence[WatchDay]) -> list[WatchDayView]:
    linked = store.watches.list_runs(watch)
    return [
        WatchDayView(
            day=each.day,
            period=each.period,
            status=each.status,
            reason=each.reason,
            planned=each.planned,
            answered=each.answered,
            level=each.decision.get("level") if each.decision else None,
            runs=tuple(run.run_id for run in linked if run.day == each.day and run.purpose != "confirm"),
            confirming_runs=tuple(run.run_id for run in linked if run.day == each.day and run.purpose == "confirm"),
        )
        for each in days
    ]


def _make_alert_view(alert: WatchAlert) -> WatchAlertView:
    return WatchAlertView(
        id=alert.id,
        period=alert.period,
        level=alert.level,
        day=alert.day,
        created_at=alert.created,
        delivered_at=alert.delivered,
        attempts=alert.attempts,
        next_attempt_at=None if alert.next_attempt is None else _format_timestamp(alert.next_attempt),
        error=alert.error,
        sentence=describe_alert(alert.level, alert.day, alert.body),
        body=alert.body,
    )


def _make_channel_view(watch: Watch) -> AlertChannelView | None:
    channel = read_channel(watch)
    if channel is None:
        return None
    return AlertChannelView(kind=channel.kind, name=channel.shown_name, is_signed=channel.is_signed)


def _format_timestamp(timestamp_s: float) -> str:
    return datetime.fromtimestamp(timestamp_s, UTC).isoformat(timespec="seconds")


# ── Use cases of a server ──


@use_case("editor")
def start(app: App, user: User, request: WatchRequest) -> WatchDetailView:
    """Start a watch; the scheduler measures its days."""
    started = start_watch(app.store, request, make_server_reach(app), user.name)
    app.on_watch_started()
    return started


@use_case("editor", "heavy")
def estimate_day(app: App, _: User, request: WatchRequest) -> tuple[InstrumentCallsView, ...]:
    """Return the calls and the cost of each instrument of a watch that is not started yet; nothing is sent."""
    reach = make_server_reach(app)
    plan = planning.make_plan(app.store, request.run, reach)
    instruments = choose_instruments(plan, request.instruments)
    _refuse_unusable_instruments(plan, instruments)
    return estimate_instrument_calls(app.store, request.run, instruments, reach)


@use_case("viewer", "heavy")
def list_all(app: App, _: User, *, active_only: bool = False) -> list[WatchView]:
    """Return watches, newest first, each with its state."""
    return list_watches(app.store, active_only=active_only, marks=app.judge_marks)


@use_case("viewer", "heavy")
def read(app: App, _: User, reference: str) -> WatchDetailView:
    """Return a watch with its days, and what each instrument says on the last one."""
    return read_watch(app.store, app.store.watches.find(reference), marks=app.judge_marks)


@use_case("editor", "runs")
def confirm(app: App, _: User, reference: str, budget_usd: float | None = None) -> WatchDetailView:
    """Run a confirming batch, which the statistic does not use, and return the watch once it has ended."""
    watch = app.store.watches.find(reference)
    asyncio.run(confirm_watch(app.store, watch, budget_usd=budget_usd, reach=make_server_reach(app)))
    return read_watch(app.store, watch)


@use_case("editor")
def accept(app: App, _: User, reference: str, note: str | None = None) -> WatchDetailView:
    """Begin a new baseline with the next day."""
    watch = app.store.watches.find(reference)
    app.store.watches.accept(watch, note)
    return read_watch(app.store, watch)


@use_case("editor")
def stop(app: App, _: User, reference: str) -> WatchDetailView:
    """Stop a watch; its days and runs are kept."""
    watch = app.store.watches.stop(app.store.watches.find(reference))
    return read_watch(app.store, watch)
