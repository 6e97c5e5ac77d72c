"""One day of a watch: its calls are made, measured, stored and compared with the baseline. Nothing here prints.

`measure_day` may be called at any time and from several processes. A day's run is created in the transaction that
claims the day, before any call; its features, its decision and its alerts are stored in one transaction after the last
call. So a process that is killed anywhere leaves a day that the next call continues: every day is measured once, within
its budget, and no alert is lost or raised twice.
"""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace as replaced
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from pramana import settings
from pramana.analyse.features import make_features
from pramana.analyse.instruments import DayFeatures, MeasuredDay, is_day_usable
from pramana.analyse.numbers import pluralise
from pramana.analyse.watch import InstrumentFinding, find_highest_level, find_instrument_findings
from pramana.bench import ProgressCallback, execute
from pramana.day_runs import (
    SIDE_PURPOSES,
    design_day_run,
    find_day_run,
    make_day_request,
    make_period_basis,
    read_run,
    read_side_features,
)
from pramana.errors import NotFound, StateConflict, quote_text
from pramana.model import Result, Run
from pramana.planning import create_run
from pramana.run.accounts import ProviderAccess
from pramana.run.asking import UNKNOWN_COST_REASON
from pramana.run.engine import Stop
from pramana.store.queue import make_process_name
from pramana.store.store import Store
from pramana.store.watches import EndedDay, NewAlert, RunPurpose, Watch, WatchDay, WatchPeriod, find_today

BUDGET_REASON = "the budget of the day was used up"
UNKNOWN_COST_ADVICE = (
    "the cost of a reply is unknown, and the day has a budget; set the price of the model, or let the function state "
    "the cost"
)
_MAX_DECISION_ATTEMPTS = 5
"""Attempts to decide a day while other processes end earlier ones."""


class DayMeasurement(Struct, frozen=True):
    """What came of measuring a day."""

    day: WatchDay
    """Still `measuring` if its run was interrupted or ended by an error."""
    run: Run | None = None
    """The run of the day, if this process executed it."""
    error: Exception | None = None
    """What ended the run."""


async def measure_day(
    store: Store,
    watch: Watch,
    *,
    on_progress: ProgressCallback | None = None,
    stop: Stop | None = None,
    reach: ProviderAccess | None = None,
) -> DayMeasurement:
    """Measure the current day of a watch, or continue where a process was interrupted; a complete day stays as it is.

    Raises `AlreadyRunning` while another process measures this day.
    """
    end_unfinished_past_days(store, watch)
    today = find_today()
    day = store.watches.find_day(watch, today)
    if day is not None and day.status != "measuring":
        return DayMeasurement(day)
    stop = Stop() if stop is None else stop
    reach = _restrict_provider_access(watch, reach or ProviderAccess())
    try:
        run, is_claimed = _find_or_create_run(store, watch, today, reach)
    except StateConflict:  # the watch was stopped, or another process has just measured the day
        day = store.watches.find_day(watch, today)
        if day is None or day.status == "measuring":
            raise
        return DayMeasurement(day)
    run, is_over = await _continue_run(store, watch, today, run, on_progress, stop, reach, is_claimed=is_claimed)
    last = run
    for purpose in SIDE_PURPOSES:
        if not is_over or remaining_budget(store, watch, today) <= 0:
            break
        last, is_over = await _send_side_run(store, watch, today, purpose, last, on_progress, stop, reach)
    day = store.watches.find_day(watch, today)
    if day is None:
        raise NotFound(f"{today} of watch {watch.shown_name} was deleted while it was measured")
    if not is_over:
        return DayMeasurement(day, last, stop.error)
    return DayMeasurement(_end_day(store, watch, day, run), run)


async def _send_side_run(
    store: Store,
    watch: Watch,
    day: str,
    purpose: RunPurpose,
    last: Run,
    on_progress: ProgressCallback | None,
    stop: Stop,
    reach: ProviderAccess,
) -> tuple[Run, bool]:
    """Send a run beside that of the cases, if the day has one; return it or the last one, and whether it is over."""
    if find_day_run(store, watch, day, purpose) is None and not design_day_run(store, watch, day, purpose, reach):
        return last, True
    run, is_claimed = _find_or_create_run(store, watch, day, reach, purpose)
    return await _continue_run(store, watch, day, run, on_progress, stop, reach, is_claimed=is_claimed)


async def _continue_run(
    store: Store,
    watch: Watch,
    day: str,
    run: Run,
    on_progress: ProgressCallback | None,
    stop: Stop,
    reach: ProviderAccess,
    *,
    is_claimed: bool,
) -> tuple[Run, bool]:
    """Send what a run of a day still lacks, within the day's budget; return the run, and whether it is over."""
    if _is_run_over(run):
        return run, True
    left = remaining_budget(store, watch, day, besides=run.id)
    if left <= 0:
        return run, True
    limits = replace(watch.request.limits, max_cost_usd=None if left == math.inf else left)
    run = await execute(store, run, limits, on_progress, stop, reach=reach, is_claimed=is_claimed)
    return run, _is_run_over(run)


def remaining_budget(store: Store, watch: Watch, day: str, besides: str | None = None) -> float:
    """Return what the runs of a day, without one if `besides` names it, leave of the day's budget in US dollars.

    Without a budget, infinity is left.
    """
    if watch.budget_usd_per_day is None:
        return math.inf
    counted = (
        each.run_id
        for each in store.watches.list_runs(watch, day)
        if each.purpose != "confirm" and each.run_id != besides
    )
    return watch.budget_usd_per_day - sum(store.results.sum_spending(each).cost_usd for each in counted)


async def confirm_watch(
    store: Store,
    watch: Watch,
    *,
    budget_usd: float | None = None,
    on_progress: ProgressCallback | None = None,
    stop: Stop | None = None,
    reach: ProviderAccess | None = None,
) -> Run:
    """Run the cases of a watch once more, beside its days: the statistic does not use them. Return the run.

    It costs at most `budget_usd`, or as much as a day of the watch may cost.
    """
    today = find_today()
    reach = _restrict_provider_access(watch, reach or ProviderAccess())
    hook = store.watches.make_claim(watch, today, "confirm", 0.0)
    request = make_day_request(watch, today)
    most = watch.budget_usd_per_day if budget_usd is None else budget_usd
    request = replace(
        request, name=f"{request.name} (confirming)"[-100:], limits=replace(request.limits, max_cost_usd=most)
    )
    run = create_run(store, request, reach, watch.creator, holder=make_process_name(), hook=hook)
    return await execute(store, run, request.limits, on_progress, stop, reach=reach, is_claimed=True)


def end_unfinished_past_days(store: Store, watch: Watch) -> None:
    """End earlier days that were begun and never ended, with the answers that they have; nothing is sent for them."""
    today = find_today()
    for day in store.watches.list_days(watch):
        if day.status == "measuring" and day.day < today:
            runs = [find_day_run(store, watch, day.day, purpose) for purpose in ("batch", *SIDE_PURPOSES)]
            if not any(each and each.status == "running" and each.holder for each in runs):
                _end_day(store, watch, day, runs[0])


def _restrict_provider_access(watch: Watch, reach: ProviderAccess) -> ProviderAccess:
    """Return a reach that is restricted if the watch belongs to users of a server, wherever it is measured."""
    if watch.owner == "cli" or reach.is_for_other_users:
        return reach
    allowed = settings.are_private_addresses_allowed()
    return replaced(reach, is_for_other_users=True, allow_private_addresses=allowed)


def _find_or_create_run(
    store: Store, watch: Watch, day: str, reach: ProviderAccess, purpose: RunPurpose = "batch"
) -> tuple[Run, bool]:
    """Return the run of a day for one purpose, and whether this process has just created and claimed it."""
    run = find_day_run(store, watch, day, purpose)
    if run is not None:
        return run, False
    design = design_day_run(store, watch, day, purpose, reach)
    if design is None:
        raise StateConflict(f"watch {watch.shown_name} has no {purpose} run on {day}")
    hook = store.watches.make_claim(watch, day, purpose, random.SystemRandom().uniform(-0.5, 0.5))
    run = create_run(
        store,
        design.request,
        reach,
        watch.creator,
        holder=make_process_name(),
        hook=hook,
        built_in_cases=design.cases,
        search=design.search,
    )
    return run, True


def _is_run_over(run: Run) -> bool:
    """Return whether no further call of a run will be made on its day: it is complete, or a limit was reached."""
    return run.status == "finished" or (run.status == "stopped" and "reached_limit" in run.notes)


# ── From the results of a run to the decision of a day ──


def _end_day(store: Store, watch: Watch, day: WatchDay, run: Run | None) -> WatchDay:
    """Store the features, the decision and the alerts of a day."""
    if run is None:
        ended = EndedDay(status="missing", reason="no call was made")
        return store.watches.end_day(watch, day.day, ended)
    cases, results = read_run(store, run)
    features = make_features(cases, run.plan.variants, run.plan.repeats, results)
    planned, answered = (sum(getattr(each, name) for each in features.prompts) for name in ("planned", "answered"))
    counts = {"planned": planned, "answered": answered}
    beside = read_side_features(store, watch, day.day)
    features = replace(features, prompts=(*features.prompts, *beside.prompts))
    encoded = msgspec.json.encode(features).decode()
    if not is_day_usable(features):
        reason = f"{answered:,} of {planned:,} calls were answered, fewer than 80 %{_explain_end(run, results)}"
        missing = EndedDay(status="missing", reason=reason, features_json=encoded, **counts)
        return store.watches.end_day(watch, day.day, missing)
    basis = {**make_period_basis(run.plan, cases, results), **beside.basis_additions}
    for attempt in range(_MAX_DECISION_ATTEMPTS):
        period = next(each for each in store.watches.list_periods(watch) if each.number == day.period)
        reason_for_period = explain_new_period(period.basis, basis)
        earlier = [] if reason_for_period else read_feature_days(store, watch, period, before=day.day)
        findings = find_instrument_findings(
            watch.instruments, [*earlier, MeasuredDay(day.day, day.tie_break, features)], watch.baseline_days
        )
        ended = EndedDay(
            status="measured",
            features_json=encoded,
            decision=make_decision(findings),
            basis=basis,
            new_period_reason=reason_for_period,
            alerts=_make_alerts(watch, day.day, findings),
            **counts,
        )
        try:
            return store.watches.end_day(watch, day.day, ended, len(earlier))
        except StateConflict:
            if attempt == _MAX_DECISION_ATTEMPTS - 1:
                raise
    raise AssertionError  # the loop returns or raises


def read_run_features(store: Store, run: Run) -> DayFeatures:
    """Return the features of a run's results."""
    cases, results = read_run(store, run)
    return make_features(cases, run.plan.variants, run.plan.repeats, results)


def _explain_end(run: Run, results: Sequence[Result]) -> str:
    """Return why a run has too few answers: its limit, or the most frequent error of its calls."""
    if run.notes.get("reached_limit") == "max_cost_usd":
        return f": {UNKNOWN_COST_ADVICE if UNKNOWN_COST_REASON in (run.reason or '') else BUDGET_REASON}"
    errors = Counter(each.failure.message for each in results if each.failure is not None)
    if errors:
        message, count = errors.most_common(1)[0]
        return f": {pluralise(count, 'call')} failed with {quote_text(message, 200)}"
    return f": {run.reason}" if run.reason else ""


def read_feature_days(
    store: Store, watch: Watch, period: WatchPeriod | int, *, before: str | None = None
) -> list[MeasuredDay]:
    """Return the measured days of a period in order, all or those before a day."""
    number = period if isinstance(period, int) else period.number
    return [
        MeasuredDay(each.day, each.tie_break, decode_features(each.features_json))
        for each in store.watches.list_days(watch, number)
        if each.status == "measured" and (before is None or each.day < before)
    ]


def decode_features(stored: str | None) -> DayFeatures:
    """Return the features of a day from their JSON."""
    return DayFeatures() if stored is None else msgspec.json.decode(stored, type=DayFeatures)


def make_decision(findings: Mapping[str, InstrumentFinding]) -> dict[str, Any]:
    """Return what is stored of a day's decision, as plain data."""
    return {
        "level": find_highest_level([each.level for each in findings.values()]),
        "instruments": {
            name: {
                "level": each.level,
                "score": each.score,
                "notice_statistic": each.notice_statistic,
                "alarm_statistic": each.alarm_statistic,
            }
            for name, each in findings.items()
        },
    }


def _make_alerts(watch: Watch, day: str, findings: Mapping[str, InstrumentFinding]) -> tuple[NewAlert, ...]:
    level = find_highest_level([each.level for each in findings.values()])
    if level not in ("notice", "alarm"):
        return ()
    reached = [each for each in findings.values() if each.level == level]
    body = {
        "watch": watch.id,
        "name": watch.name,
        "model": watch.model,
        "level": level,
        "day": day,
        "instruments": [
            {
                "instrument": each.instrument,
                "statistic": each.alarm_statistic if level == "alarm" else each.notice_statistic,
                "threshold": each.alarm_threshold if level == "alarm" else each.notice_threshold,
                "first_day": each.first_day,
                "first_days": list(each.first_days or ()),
            }
            for each in reached
        ],
    }
    return (NewAlert(level, body),)


# ── What the days of a period have in common ──


def explain_new_period(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> str | None:
    """Return why a day cannot be compared with the days before it; None if it can.

    >>> explain_new_period({"plan": {"repeats": 1}, "cases": "a"}, {"plan": {"repeats": 3}, "cases": "a"})
    'repeats changed'
    """
    if before is None:
        return None
    old, new = before["plan"], now["plan"]
    names = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    reasons = [f"{_PLAN_WORDS.get(name, name.replace('_', ' '))} changed" for name in names if name != "suite_hash"]
    if before["cases"] != now["cases"]:
        reasons.append("the cases changed")
    elif "suite_hash" in names:
        reasons.append("the suite changed")
    versions = before.get("checks", {})
    reasons += [
        f"{words} changed"
        for name, words in _PROMPT_WORDS.items()
        if name in before and name in now and before[name] != now[name]
    ]
    changed = [name for name, found in now.get("checks", {}).items() if versions.get(name, found) != found]
    reasons += [f"the check {name} has another version" for name in changed]
    return ", ".join(reasons) or None


_PROMPT_WORDS = {"border_prompts": "the border prompts", "logprob_prompts": "the prompts for logprobs"}
_PLAN_WORDS = {
    "targets": "the model or its address",
    "parameters": "the parameters",
    "system_prompt": "the system prompt",
    "judge": "the judge",
    "other_judges": "the other judges of the panel",
    "embedder": "the embedding model",
    "stt": "the speech recognition",
    "scorers": "the scorers",
    "variants": "the modality or the audio condition",
    "suite": "the name of the suite",
    "voice": "the caller's voice",
}
