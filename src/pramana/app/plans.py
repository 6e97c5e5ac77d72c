"""What it takes to see a change, before anything is spent: a request in; cases, repeats, days, calls and cost out.

A plan answers for one comparison of two runs and for a watch over days. It sends nothing and stores nothing: power is
computed, days come from seeded simulations of the shipped rule, calls and cost from the estimate of a run.
"""

import math
import re
from collections.abc import Iterator
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct
from msgspec.structs import replace

from pramana import planning
from pramana.analyse.delays import SIMULATED_MONTHS, simulate_watch_delay
from pramana.analyse.drift import MONTH_DAYS
from pramana.analyse.estimate import Estimate
from pramana.analyse.numbers import format_loss, pluralise
from pramana.analyse.own_endpoint import MIN_MEASURED_DAYS, report_endpoint
from pramana.analyse.power import (
    POWER,
    AssumedModel,
    cases_to_detect,
    cases_to_exclude,
    detectable_loss,
    fit_model,
    measure_case_difference,
)
from pramana.app import App, User, use_case
from pramana.app.providers import make_server_reach
from pramana.app.views import View
from pramana.app.watch_forecasts import ASSUMED_DAY_SD, ASSUMED_PASS_RATE
from pramana.app.watches import read_watch
from pramana.errors import InvalidInput, Problem, quote_text
from pramana.request import RunRequest, check_struct_values
from pramana.run.accounts import ProviderAccess
from pramana.store.store import Store
from pramana.watch_request import BASELINE_DAYS, MAX_BASELINE_DAYS, MIN_BASELINE_DAYS
from pramana.watching import read_feature_days

DEFAULT_TEXT_INSTRUMENT_COUNT = 8
"""Instruments of a watch of a text model, unless its user chooses some."""
DEFAULT_TIER = "moderate"
"""The tier whose cases are planned with, unless cases are chosen."""
Share = Annotated[float, Meta(ge=0.001, le=0.999)]
TABLE_CASES, TABLE_REPEATS = (25, 50, 100, 200, 400, 800), (1, 3, 5, 10)
WATCH_LOSSES = (0.05, 0.1, 0.2)
"""Changes whose delay is shown beside the one to detect."""
HARDLY_SOONER_DAYS = 2
TRIED_REPEATS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 50, 100)
_SHARE_RE = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(%|points?)?\s*", re.IGNORECASE)
_BUDGET_RE = re.compile(
    r"\s*(\$)?\s*(\d+(?:\.\d*)?|\.\d+)\s*(USD|calls?)?\s*(?:/\s*(day)|(a day|per day))?\s*", re.IGNORECASE
)


# ── What is asked ──


class Budget(Struct, frozen=True):
    """What may be spent."""

    amount: float
    unit: Literal["USD", "calls"]
    is_per_day: bool

    def __str__(self) -> str:
        amount = f"${self.amount:,.2f}" if self.unit == "USD" else pluralise(int(self.amount), "call")
        return f"{amount} a day" if self.is_per_day else amount


def parse_share(text: str) -> float:
    """Parse a share of cases, such as `5%`, `0.05` or `5 points`.

    >>> parse_share("5%"), parse_share("0.05"), parse_share("5 points")
    (0.05, 0.05, 0.05)
    """
    found = _SHARE_RE.fullmatch(text)
    if found is None:
        raise InvalidInput(f"{quote_text(text)} is not a share of cases; write a share such as 5%, 0.05 or '5 points'")
    number = float(found[1])
    if found[2] is None and number > 1:
        raise InvalidInput(f"{quote_text(text)} is larger than 1; write {number:g}% for {number:g} in a hundred cases")
    return number / 100 if found[2] else number


def parse_budget(text: str) -> Budget:
    """Parse a budget, such as `2USD`, `$2`, `2USD/day` or `500 calls/day`.

    >>> str(parse_budget("2USD/day")), str(parse_budget("500 calls"))
    ('$2.00 a day', '500 calls')
    """
    found = _BUDGET_RE.fullmatch(text)
    is_calls = bool(found and (found[3] or "").lower().startswith("call"))
    if found is None or (found[1] and is_calls) or not (found[1] or found[3]) or not float(found[2]):
        raise InvalidInput(f"{quote_text(text)} is not a budget; write a budget such as 2USD, 2USD/day or 500calls/day")
    return Budget(float(found[2]), "calls" if is_calls else "USD", bool(found[4] or found[5]))


class DetectionPlanRequest(Struct, frozen=True, kw_only=True):
    """The change to detect, how the model's replies vary, and what is asked of which models."""

    detect: Annotated[
        Share,
        Meta(title="Loss to detect", description="Loss of the pass rate to detect, as a share: 0.05 is five points"),
    ]
    pass_rate: Annotated[Share, Meta(title="Pass rate", description="Pass rate before the change")] = ASSUMED_PASS_RATE
    repeats: Annotated[int, Meta(ge=1, le=1_000, title="Repeats per case", description="Repeats per case")] = 1
    flips: Annotated[
        Annotated[float, Meta(ge=0, le=0.5)] | None,
        Meta(
            title="Flips by chance",
            description="Share of the cases whose verdict differs between two runs of the unchanged model; null: as "
            "if the logits of the cases had a standard deviation of 2",
        ),
    ] = None
    day_sd: Annotated[
        Annotated[float, Meta(ge=0, le=5)],
        Meta(
            title="Day-to-day deviation",
            description="Standard deviation, in logits, between days on which nothing changed",
        ),
    ] = ASSUMED_DAY_SD
    margin: Annotated[
        Share,
        Meta(title="Margin", description="Loss that a comparison should rule out if nothing changed, as a share"),
    ] = 0.05
    case_count: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | None,
        Meta(title="Number of cases", description="Number of cases; null: those that `run` chooses"),
    ] = None
    instruments: Annotated[
        Annotated[int, Meta(ge=1, le=100)],
        Meta(
            title="Instruments",
            description="Number of instruments of the watch, which together keep one false-alarm rate",
        ),
    ] = DEFAULT_TEXT_INSTRUMENT_COUNT
    baseline_days: Annotated[
        int,
        Meta(
            ge=MIN_BASELINE_DAYS,
            le=MAX_BASELINE_DAYS,
            title="Days of the baseline",
            description="Days of the baseline of the watch",
        ),
    ] = BASELINE_DAYS
    budget: Budget | None = None
    watch: Annotated[
        Annotated[str, Meta(min_length=1, max_length=100)] | None,
        Meta(
            title="Watch",
            description="Name or ID of a watch, whose measured days set the pass rate, the flips, the day-to-day "
            "deviation, the cases, the repeats, the instruments, the days of the baseline and the model",
        ),
    ] = None
    run: RunRequest | None = None
    """The models whose prices count, and the cases that are sent to them. Without models, no cost is computed."""

    def check(self) -> None:
        """Raise `InvalidInput` with every invalid value, field by field."""
        check_struct_values(self)
        if self.detect >= self.pass_rate:
            problem = (
                f"a pass rate of {self.pass_rate:.0%} cannot fall by {format_loss(self.detect)}; detect a smaller loss"
            )
            raise InvalidInput.from_problems([Problem(problem, "detect")])


# ── What is answered ──


class SpendingView(View, frozen=True, kw_only=True):
    """Calls, tokens and cost; null where a price or a length is unknown or no model is named."""

    calls: Annotated[int, Meta(description="Calls to all models and judges; without a model, one call per reply")]
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


class DetectableView(View, frozen=True, kw_only=True):
    """The smallest loss that one comparison detects with a probability of 80 %."""

    cases: int
    repeats: int
    loss: Annotated[float | None, Meta(description="As a share; null: not even a total loss is detected")]


class ComparisonPlanView(View, frozen=True, kw_only=True):
    """What one comparison of two runs takes."""

    cases: Annotated[int | None, Meta(description="Cases that detect the loss; null: more than a million")]
    cases_to_exclude_margin: Annotated[
        int, Meta(description="Cases that exclude a loss of the margin, if nothing changed")
    ]
    repeats_with_these_cases: Annotated[
        int | None, Meta(description="Repeats with which the chosen cases detect the loss; null: 100 are not enough")
    ]
    with_these_cases: Annotated[DetectableView, Meta(description="What the chosen cases and repeats detect")]
    spending: Annotated[SpendingView | None, Meta(description="Of both runs, with the cases that detect the loss")]
    table: tuple[DetectableView, ...]


class LossDelayView(View, frozen=True, kw_only=True):
    """Days until half of the simulated months see a loss."""

    loss: float
    notice_days: Annotated[int | None, Meta(description="Median; null: more than 30")]
    notice_share: Annotated[float, Meta(description="Share of the months with a notice within 30 days")]
    alarm_days: Annotated[int | None, Meta(description="Median; null: more than 30")]
    alarm_share: float


class WatchPlanView(View, frozen=True, kw_only=True):
    """What a watch takes that sends the chosen cases every day."""

    delays: tuple[LossDelayView, ...]
    with_unlimited_calls: Annotated[
        LossDelayView, Meta(description="The days until the loss to detect is seen, with unlimited calls a day")
    ]
    day_sd_points: Annotated[
        float,
        Meta(
            description="Standard deviation of the pass rate between days on which nothing changed, as a share: 0.05 "
            "is five points"
        ),
    ]
    baseline_days: int
    instruments: int
    spending_per_day: SpendingView
    spending_with_baseline: Annotated[SpendingView, Meta(description="Of the baseline and 30 further days")]


class MeasuredWatchView(View, frozen=True, kw_only=True):
    """The measured days of a watch."""

    name: str
    days: int
    next_day_rank_correlation: float


class DetectionPlanView(View, frozen=True, kw_only=True):
    """What it takes to see a change."""

    detect: float
    pass_rate: float
    repeats: int
    margin: float
    flips: Annotated[float, Meta(description="Share of the cases that flips by chance, as assumed")]
    day_sd: float
    power: float
    models: tuple[str, ...]
    cases: int
    case_source: Annotated[
        str | None, Meta(description="The name of the chosen cases; null: only a number of cases was given")
    ]
    priced_cases: Annotated[
        str | None, Meta(description="The cases whose mean calls, tokens and cost are used; null without a model")
    ]
    comparison: ComparisonPlanView
    watch: WatchPlanView
    measured: Annotated[MeasuredWatchView | None, Meta(description="The watch whose days were used")]
    unknown_prices: tuple[str, ...]
    advice: Annotated[tuple[str, ...], Meta(description="What to do if the change cannot be seen or paid for")]


# ── The plan ──


@use_case("editor", "heavy")
def plan_detection(app: App, _: User, request: DetectionPlanRequest) -> DetectionPlanView:
    """Return what it takes to see a change; nothing is sent and nothing is stored."""
    return make_plan_view(app.store, request, make_server_reach(app))


class _ChosenCases(NamedTuple):
    """The cases of a plan, and the estimate of one run of them; None without a model."""

    case_count: int
    source: str | None
    estimate: Estimate | None

    def estimate_spending(self, cases: float, repeats: int) -> SpendingView:
        """Return what so many cases take, at the mean of the chosen ones."""
        found = self.estimate
        if found is None:
            calls = math.ceil(cases * repeats)
            return SpendingView(calls=calls, input_tokens=None, output_tokens=None, cost_usd=None)
        scale = cases / found.case_count
        tokens = found.input_tokens, found.output_tokens
        return SpendingView(
            calls=math.ceil(found.calls * scale),
            input_tokens=None if tokens[0] is None else math.ceil(tokens[0] * scale),
            output_tokens=None if tokens[1] is None else math.ceil(tokens[1] * scale),
            cost_usd=None if found.cost_usd is None else found.cost_usd * scale,
        )


def make_plan_view(
    store: Store, request: DetectionPlanRequest, reach: ProviderAccess | None = None
) -> DetectionPlanView:
    """Return what it takes to see a change; nothing is sent and nothing is stored."""
    request.check()
    measured = None
    if request.watch is not None:
        request, measured = _take_values_from_watch(store, request, request.watch)
        request.check()
    chosen = _choose_cases(store, request, reach)
    if request.budget:
        _refuse_unknown_cost(request.budget, chosen)
    model = fit_model(request.pass_rate, request.flips, request.day_sd)
    comparison = _plan_comparison(request, model, chosen)
    watch = _plan_watch(request, model, chosen)
    return DetectionPlanView(
        detect=request.detect,
        pass_rate=request.pass_rate,
        repeats=request.repeats,
        margin=request.margin,
        flips=model.flip_share(),
        day_sd=request.day_sd,
        power=POWER,
        models=request.run.models if request.run else (),
        cases=chosen.case_count,
        case_source=None if request.case_count else chosen.source,
        priced_cases=chosen.source if chosen.estimate else None,
        comparison=comparison,
        watch=watch,
        measured=measured,
        unknown_prices=tuple(chosen.estimate.models_without_price) if chosen.estimate else (),
        advice=tuple(_advise(request, model, chosen, comparison, watch)),
    )


def _take_values_from_watch(
    store: Store, request: DetectionPlanRequest, reference: str
) -> tuple[DetectionPlanRequest, MeasuredWatchView]:
    """Return the request with what the measured days of a watch show."""
    watch = store.watches.find(reference)
    days = read_feature_days(store, watch, read_watch(store, watch).period)
    report = report_endpoint(days, watch.baseline_days, len(watch.instruments))
    if report is None:
        problem = f"the watch {watch.shown_name} has {pluralise(len(days), 'measured day')}, and the pass rates of at "
        raise InvalidInput.from_problems([Problem(f"{problem}least {MIN_MEASURED_DAYS} are needed", "watch")])
    made = replace(
        request,
        pass_rate=report.pass_rate,
        flips=report.flip_share,
        day_sd=report.day_sd_logits,
        repeats=report.repeats,
        case_count=report.prompts,
        instruments=len(watch.instruments),
        baseline_days=watch.baseline_days,
        run=watch.request,
    )
    return made, MeasuredWatchView(
        name=watch.shown_name, days=report.days, next_day_rank_correlation=report.next_day_rank_correlation
    )


def _choose_cases(store: Store, request: DetectionPlanRequest, reach: ProviderAccess | None) -> _ChosenCases:
    run = replace(request.run or RunRequest(models=()), repeats=request.repeats)
    if run.suite is None and run.tier is None and run.scenarios is None and not run.paths and not run.cases:
        if request.case_count is not None and not run.models:
            return _ChosenCases(request.case_count, None, None)
        run = replace(run, suite=planning.DEFAULT_SUITE, tier=DEFAULT_TIER)
    counted = planning.count_cases(store, run)
    estimate = planning.estimate(store, run, reach) if run.models else None
    return _ChosenCases(request.case_count or counted.case_count, counted.name, estimate)


def _plan_comparison(request: DetectionPlanRequest, model: AssumedModel, chosen: _ChosenCases) -> ComparisonPlanView:
    cases = cases_to_detect(model, request.detect, request.repeats)
    return ComparisonPlanView(
        cases=cases,
        cases_to_exclude_margin=cases_to_exclude(model, request.margin, request.repeats),
        repeats_with_these_cases=next(
            (
                repeats
                for repeats in TRIED_REPEATS
                if measure_case_difference(model, request.detect, repeats).power(chosen.case_count) >= POWER
            ),
            None,
        ),
        with_these_cases=_find_detectable(model, chosen.case_count, request.repeats),
        spending=None if cases is None else _double(chosen.estimate_spending(cases, request.repeats)),
        table=tuple(_find_detectable(model, cases, repeats) for cases in TABLE_CASES for repeats in TABLE_REPEATS),
    )


def _find_detectable(model: AssumedModel, cases: int, repeats: int) -> DetectableView:
    on_one_day = replace(model, day_spread=0.0)
    return DetectableView(cases=cases, repeats=repeats, loss=detectable_loss(on_one_day, cases, repeats))


def _double(once: SpendingView) -> SpendingView:
    return _multiply(once, 2)


def _multiply(once: SpendingView, times: int) -> SpendingView:
    return SpendingView(
        calls=times * once.calls,
        input_tokens=None if once.input_tokens is None else times * once.input_tokens,
        output_tokens=None if once.output_tokens is None else times * once.output_tokens,
        cost_usd=None if once.cost_usd is None else times * once.cost_usd,
    )


def _plan_watch(request: DetectionPlanRequest, model: AssumedModel, chosen: _ChosenCases) -> WatchPlanView:
    losses = sorted({request.detect, *(loss for loss in WATCH_LOSSES if loss < request.pass_rate)})
    per_day = chosen.estimate_spending(chosen.case_count, request.repeats)
    return WatchPlanView(
        delays=tuple(
            _simulate_watch_delay(request, model, loss, chosen.case_count, request.repeats) for loss in losses
        ),
        with_unlimited_calls=_simulate_watch_delay(request, model, request.detect, None, 1),
        day_sd_points=model.day_difference() / math.sqrt(2),
        baseline_days=request.baseline_days,
        instruments=request.instruments,
        spending_per_day=per_day,
        spending_with_baseline=_multiply(per_day, request.baseline_days + MONTH_DAYS),
    )


def _simulate_watch_delay(
    request: DetectionPlanRequest, model: AssumedModel, loss: float, cases: int | None, repeats: int
) -> LossDelayView:
    found = simulate_watch_delay(
        model,
        cases,
        repeats,
        loss,
        instruments=request.instruments,
        baseline_days=request.baseline_days,
        months=SIMULATED_MONTHS,
    )
    return LossDelayView(
        loss=loss,
        notice_days=found.notice.median_days,
        notice_share=found.notice.seen_share,
        alarm_days=found.alarm.median_days,
        alarm_share=found.alarm.seen_share,
    )


# ── Advice ──


def _advise(
    request: DetectionPlanRequest,
    model: AssumedModel,
    chosen: _ChosenCases,
    comparison: ComparisonPlanView,
    watch: WatchPlanView,
) -> Iterator[str]:
    """Yield what to do if the change cannot be seen, or not be paid for."""
    yield from _advise_on_comparison(request, chosen, comparison)
    yield from _advise_on_watch(request, watch)
    if request.budget:
        fitting = _advise_on_day_budget if request.budget.is_per_day else _advise_on_budget
        yield from fitting(request, request.budget, model, chosen, comparison)


def _advise_on_comparison(
    request: DetectionPlanRequest, chosen: _ChosenCases, comparison: ComparisonPlanView
) -> Iterator[str]:
    if comparison.cases is not None and chosen.case_count >= comparison.cases:
        return
    cases, enough = pluralise(chosen.case_count, "case"), comparison.repeats_with_these_cases
    if enough is None:
        yield f"{cases} are too few to detect {format_loss(request.detect)}, however often each is repeated: add cases."
    elif enough > request.repeats:
        yield (
            f"{cases} detect {format_loss(request.detect)} if each is repeated {enough} times; more cases also show "
            "whether the loss holds beyond these."
        )


def _advise_on_watch(request: DetectionPlanRequest, watch: WatchPlanView) -> Iterator[str]:
    delay, unlimited = _find_delay(watch, request.detect), watch.with_unlimited_calls
    if delay.notice_days is None and unlimited.notice_days is None:
        yield (
            f"No number of calls a day shows a loss of {format_loss(request.detect)} within {MONTH_DAYS} days, because "
            f"days differ by {format_loss(watch.day_sd_points)} without any change. Buy days, not calls: longer "
            "watches, or two endpoints that are asked at the same time."
        )
    elif delay.notice_days is None and unlimited.notice_days is not None:
        yield (
            f"A watch needs more calls a day to see {format_loss(request.detect)} within {MONTH_DAYS} days. With "
            f"unlimited calls, half of the months have a notice by day {unlimited.notice_days}."
        )
    elif delay.notice_days is not None and delay.notice_days - (unlimited.notice_days or 0) <= HARDLY_SOONER_DAYS:
        yield "More calls a day hardly make the watch faster: how days differ decides, not how many calls they have."


def _find_delay(watch: WatchPlanView, loss: float) -> LossDelayView:
    return next(each for each in watch.delays if each.loss == loss)


def _refuse_unknown_cost(budget: Budget, chosen: _ChosenCases) -> None:
    if budget.unit == "calls" or (chosen.estimate and chosen.estimate.cost_usd is not None):
        return
    if chosen.estimate is None:
        problem = "a budget in US dollars needs a model, whose prices are known; name a model, or budget calls"
    else:
        names = ", ".join(chosen.estimate.models_without_price)
        problem = f"no price is known for {names}; set its price, or write the budget in calls, such as 500calls"
    raise InvalidInput.from_problems([Problem(problem, "budget")])


def _count_affordable(budget: Budget, chosen: _ChosenCases, repeats: int, request: DetectionPlanRequest) -> float:
    """Return how many cases one run can have within the budget."""
    once = chosen.estimate_spending(chosen.case_count, repeats)
    if request.repeats != repeats:  # the estimate is that of the request's repeats
        once = chosen.estimate_spending(chosen.case_count * repeats / request.repeats, request.repeats)
    price = once.calls if budget.unit == "calls" else once.cost_usd
    return math.inf if not price else budget.amount / price * chosen.case_count


def _advise_on_budget(
    request: DetectionPlanRequest,
    budget: Budget,
    model: AssumedModel,
    chosen: _ChosenCases,
    comparison: ComparisonPlanView,
) -> Iterator[str]:
    affordable = _count_affordable(budget, chosen, request.repeats, request) / 2
    if comparison.cases is not None and affordable >= comparison.cases:
        yield f"The budget of {budget} is enough for the comparison."
    else:
        yield f"The budget of {budget} pays for {_describe_detectable(model, math.floor(affordable), request.repeats)}."
        once = math.floor(_count_affordable(budget, chosen, 1, request) / 2)
        if request.repeats > 1 and comparison.cases is not None:
            yield f"Without repeats, it pays for {_describe_detectable(model, once, 1)}."
    days = _count_affordable(budget, chosen, request.repeats, request) / chosen.case_count
    if days < request.baseline_days + MONTH_DAYS:
        yield (
            f"It pays for {pluralise(math.floor(days), 'day')} of the watch; the baseline and {MONTH_DAYS} days take "
            f"{request.baseline_days + MONTH_DAYS} days: plan fewer calls a day."
        )


def _describe_detectable(model: AssumedModel, cases: int, repeats: int) -> str:
    loss = detectable_loss(model, cases, repeats) if cases else None
    repeated = f", each repeated {repeats} times" if repeats > 1 else ""
    power = "too few to detect any loss" if loss is None else f"enough to detect {format_loss(loss)}"
    return f"{pluralise(cases, 'case')} in each of two runs{repeated}, which is {power}"


def _advise_on_day_budget(
    request: DetectionPlanRequest, budget: Budget, model: AssumedModel, chosen: _ChosenCases, _: ComparisonPlanView
) -> Iterator[str]:
    affordable = _count_affordable(budget, chosen, request.repeats, request)
    if affordable >= chosen.case_count:
        yield f"The budget of {budget} is enough for the watch."
        return
    if affordable < 1:
        yield f"The budget of {budget} does not pay for a single case a day."
        return
    cases = math.floor(affordable)
    delay = _simulate_watch_delay(request, model, request.detect, cases, request.repeats)
    seen = (
        f"half of the months then have a notice by day {delay.notice_days} after"
        if delay.notice_days
        else f"fewer than half of the months then have a notice within {MONTH_DAYS} days of"
    )
    yield (
        f"The budget of {budget} pays for {pluralise(cases, 'case')} a day instead of {chosen.case_count:,}: "
        f"{seen} a loss of {format_loss(request.detect)}."
    )
