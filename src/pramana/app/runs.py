"""Runs and their results: create, list, read, follow, cancel, resume and delete them.

Runs are executed elsewhere: by a server's jobs or by a command line.
"""

import math
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import asdict, fields, force_setattr

from pramana import planning
from pramana.analyse.judges import PANEL_SEPARATOR, describe_calibrations_briefly
from pramana.analyse.rates import make_model_rates, make_rate
from pramana.analyse.scores import read_rubric_ratings
from pramana.analyse.spread import RunTimes
from pramana.analyse.summary import Rate, Summary
from pramana.app import App, User, use_case
from pramana.app.calibrations import with_calibrations
from pramana.app.providers import make_server_reach
from pramana.app.tail import ChangeEvent, RunEvent
from pramana.app.views import (
    AssertionView,
    AudioView,
    CaseView,
    CheckView,
    EstimateView,
    ExpectedView,
    FailureView,
    LimitsView,
    LineView,
    ListPage,
    ModelEstimateView,
    ModelRateView,
    OutcomesView,
    PageRequest,
    PlannedScorerView,
    PlanView,
    ReplyView,
    ResultDetailView,
    ResultView,
    RunDetailView,
    RunView,
    TargetView,
    TurnView,
    UnjudgedView,
    result_view,
    tool_call_views,
)
from pramana.errors import InvalidInput, Problem
from pramana.model import Assertion, Case, Outcome, Reply, Result, Run, RunStatus, Target
from pramana.request import Limits, RunEdit, RunRequest, SearchText, format_cost_limit, get_published_name
from pramana.run.accounts import ProviderAccess
from pramana.store.history import RunOutcomeCounts
from pramana.store.queue import format_holder
from pramana.store.store import Store

_Rendered = TypeVar("_Rendered")
SELECTION_NAMES = {
    "categories": "type",
    "tags": "tag",
    "difficulties": "difficulty",
    "languages": "language",
    "all_tags": "allTags",
}
"""The names of a plan's filters in a request."""
PUBLISHED_LIMIT_NAMES = {each.name: get_published_name(each) for each in fields(Limits)}
"""The name of each limit in the API."""
LIMITS_ACROSS_SITTINGS = {"max_cost_usd": "limits.maxCost", "max_total_tokens": "limits.maxTotalTokens"}
"""The limits that span all sittings of a run, with their names in requests."""


class RunFilter(PageRequest, frozen=True, kw_only=True):
    """Which runs of the list, newest first."""

    status: RunStatus | None = None
    model: SearchText | None = None
    suite: SearchText | None = None
    text: SearchText | None = None
    outcomes: bool = False
    """Whether to count the outcomes of each run, and to include `cases_digest`, equal for runs of the same cases."""


class ResultFilter(PageRequest, frozen=True, kw_only=True):
    """Filters for the results of a run, which are listed in the order they were stored."""

    outcome: Outcome | None = None
    model: SearchText | None = None
    case: SearchText | None = None
    """The id or the digest of a case."""
    text: SearchText | None = None
    """A part of a case id; upper and lower case are equal."""
    tag: SearchText | None = None
    """A tag of the case."""


ALL_RESULTS = ResultFilter()


class ResultWithNeighbours(NamedTuple):
    """A result, and the numbers of the previous and the next one."""

    result: ResultDetailView
    previous: int | None
    next: int | None


@use_case("editor")
def create_run(app: App, user: User, request: RunRequest) -> RunView:
    """Queue a run; a server executes it."""
    made = planning.create_run(app.store, request, make_server_reach(app), user.name)
    app.on_run_queued()
    return _run_view(made)


@use_case("editor")
def estimate_run(app: App, _: User, request: RunRequest) -> EstimateView:
    """Return an estimate of a run; nothing is stored and no request is sent."""
    return estimate_view(app.store, request, make_server_reach(app))


@use_case("viewer")
def list_runs(app: App, _: User, filter_: RunFilter) -> ListPage[RunView]:
    """Return runs, newest first."""
    found, total = app.store.runs.read_page(
        status=filter_.status,
        model=filter_.model,
        suite=filter_.suite,
        text=filter_.text,
        limit=filter_.page_size,
        offset=filter_.offset,
    )
    history = app.store.history
    ended: Sequence[RunOutcomeCounts | None] = (
        history.count_run_outcomes(found) if filter_.outcomes else [None] * len(found)
    )
    digests: Sequence[str | None] = history.hash_cases(found) if filter_.outcomes else [None] * len(found)
    marks = app.judge_marks.describe(found, ended)
    return ListPage([_run_view(*each) for each in zip(found, ended, digests, marks, strict=True)], total)


@use_case("viewer", "heavy")
def read_run(app: App, _: User, run_id: str) -> RunDetailView:
    """Return a run's plan, its progress, its summary and the distribution of its times."""
    run = app.store.runs.find_as_of_scoring(run_id)
    return _read_run_detail(app, run, *app.run_summaries.summarise(run))


@use_case("viewer")
def read_progress(app: App, _: User, run_id: str) -> RunDetailView:
    """Return a run's plan and its progress, without the summary, which takes longer to compute."""
    return _read_run_detail(app, app.store.runs.find_as_of_scoring(run_id))


@use_case("viewer", "heavy")
def render_run(
    app: App, _: User, run_id: str, render: Callable[[Run, Iterator[tuple[Case, Result]]], _Rendered]
) -> _Rendered:
    """Return the output of a renderer, which gets a run and an iterator of its results."""
    run = with_calibrations(app.store, app.store.runs.find_as_of_scoring(run_id))
    return render(run, app.store.results.iterate_with_cases(run))


@use_case("editor")
def cancel_run(app: App, _: User, run_id: str) -> RunView:
    """Request that a run be cancelled. It stops within seconds; stored results are kept."""
    return _run_view(app.store.queue.cancel(run_id))


@use_case("editor")
def resume_run(app: App, _: User, run_id: str, limits: Mapping[str, Any] | None = None) -> RunView:
    """Queue a stopped, interrupted or cancelled run again; it keeps its limits, except those given here.

    `limits` are fields of `Limits`; None as a value removes one.
    """
    stopped = app.store.runs.read(run_id)
    resumed = Limits.for_resumed_run(stopped.limits, limits).to_stored() if limits else None
    _refuse_reached_limit(stopped, stopped.limits if resumed is None else resumed)
    run = app.store.queue.requeue(run_id, resumed)
    app.on_run_queued()
    return _run_view(run)


def _refuse_reached_limit(run: Run, limits: Mapping[str, Any]) -> None:
    """Refuse to resume a run under the limit that ended it, which would end it again before any request."""
    reached = run.notes.get("reached_limit") or ""
    path, kept = LIMITS_ACROSS_SITTINGS.get(reached), run.limits.get(reached)
    if run.status == "stopped" and path and kept is not None and limits.get(reached, math.inf) <= kept:
        limit = format_cost_limit(kept) if reached == "max_cost_usd" else f"{kept:,} tokens"
        message = f"the run reached its limit of {limit} and would end again at once; send a higher one, or null"
        raise InvalidInput(f"{path}: {message}", [Problem(message, path)])


@use_case("editor")
def edit_run(app: App, _: User, run_id: str, changes: RunEdit) -> RunView:
    """Change the name or the note of a run."""
    return _run_view(app.store.runs.edit(run_id, changes))


@use_case("editor")
def delete_run(app: App, _: User, run_id: str) -> None:
    """Delete a run with all of its results; an active run must be cancelled first."""
    app.store.runs.delete(run_id, unless_held=True)


def _read_run_detail(
    app: App, run: Run, summary: Summary | None = None, times: RunTimes | None = None
) -> RunDetailView:
    history = app.store.history
    (cases_digest,) = history.hash_cases([run])
    if summary:
        return run_detail_view(run, summary, times, _run_view(run, summary, cases_digest))
    counts = history.count_run_outcomes([run])
    (mark,) = app.judge_marks.describe([run], counts)
    return run_detail_view(run, None, times, _run_view(run, counts[0], cases_digest, mark))


# ── Results ──


@use_case("viewer")
def list_results(app: App, _: User, run_id: str, filter_: ResultFilter) -> ListPage[ResultView]:
    """Return results in the order they were stored, each with the beginning of its reply."""
    found, total = app.store.results.read_page(
        app.store.runs.find_as_of_scoring(run_id),
        outcome=filter_.outcome,
        model=filter_.model,
        case=filter_.case,
        text=filter_.text,
        tag=filter_.tag,
        limit=filter_.page_size,
        offset=filter_.offset,
    )
    return ListPage([result_view(seq, result) for seq, result in found], total)


@use_case("viewer")
def read_result(
    app: App, _: User, run_id: str, seq: int, result_filter: ResultFilter = ALL_RESULTS
) -> ResultWithNeighbours:
    """Return a full result: the request, the reply and its checks.

    Its neighbours are the nearest results that pass the filters, on whatever page.
    """
    run = app.store.runs.find_as_of_scoring(run_id)
    case, result = app.store.results.read(run, seq)
    before, after = app.store.results.find_neighbours(
        run,
        seq,
        result_filter.outcome,
        model=result_filter.model,
        case=result_filter.case,
        text=result_filter.text,
        tag=result_filter.tag,
    )
    return ResultWithNeighbours(result_detail_view(seq, case, result, run.plan.system_prompt), before, after)


# ── Events ──


@use_case("viewer")
def follow_run(app: App, _: User, run_id: str, after_result_number: int = 0) -> AsyncGenerator[RunEvent]:
    """Yield the results of a run after a result number, and its progress, until it ends."""
    return app.event_tail.follow_run(app.store.runs.find(run_id).id, after_result_number)


@use_case("viewer", "event_loop")
def follow_changes(app: App, _: User, after_change_number: int | None = None) -> AsyncGenerator[ChangeEvent]:
    """Yield everything created, changed or deleted after a change number; without one, from now on."""
    return app.event_tail.follow_changes(after_change_number)


# ── Views ──


def _run_view(
    run: Run,
    counts_or_summary: RunOutcomeCounts | Summary | None = None,
    cases_digest: str | None = None,
    calibration: str | None = None,
) -> RunView:
    plan, rate = run.plan, None
    if isinstance(counts_or_summary, Summary):
        rate, calibration = counts_or_summary.overall, describe_calibrations_briefly(counts_or_summary.calibrations)
    if isinstance(counts_or_summary, RunOutcomeCounts):
        rate = make_rate(run, counts_or_summary.outcome_counts, len(counts_or_summary.scored_model_variants))
    return RunView(
        id=run.id,
        name=run.name,
        note=run.note,
        status=run.status,
        suite=plan.suite,
        suite_hash=plan.suite_hash,
        cases_digest=cases_digest,
        selection={SELECTION_NAMES.get(name, name): value for name, value in plan.selection.items()},
        models=tuple(target.typed for target in plan.targets),
        variants=plan.variants,
        repeats=plan.repeats,
        is_endpoint_test=plan.pairing is not None,
        judge=PANEL_SEPARATOR.join(each.typed for each in plan.judges) or None,
        created_at=run.created,
        finished_at=run.finished,
        expected=run.expected,
        stored=run.stored,
        progress=run.stored / run.expected if run.expected else 1.0,
        reason=run.reason,
        owner=run.owner,
        creator=run.creator,
        cancel_requested=run.cancelled is not None,
        outcomes=_outcomes_view(rate) if rate else None,
        pass_rate=rate.value if rate else None,
        interval=(rate.interval.low, rate.interval.high) if rate and rate.interval else None,
        model_rates=_model_rate_views(run, counts_or_summary),
        calibration=calibration,
    )


def run_detail_view(
    run: Run, summary: Summary | None, times: RunTimes | None, run_view: RunView | None = None
) -> RunDetailView:
    """Return the detail view of a run."""
    return RunDetailView(
        **asdict(run_view or _run_view(run, summary)),
        scoring=run.scoring,
        judges=tuple(summary.judge_names) if summary else None,
        plan=_plan_view(run),
        limits=LimitsView(**{PUBLISHED_LIMIT_NAMES[name]: value for name, value in run.limits.items()}),
        holder=format_holder(run.holder) if run.holder else None,
        attempts=run.attempts,
        notes=dict(run.notes),
        summary=summary,
        aggregates=times,
    )


def _model_rate_views(
    run: Run, counts_or_summary: RunOutcomeCounts | Summary | None
) -> tuple[ModelRateView, ...] | None:
    """Return the outcomes of each model of a run."""
    if counts_or_summary is None:
        return None
    if isinstance(counts_or_summary, RunOutcomeCounts):
        rates = make_model_rates(
            run, counts_or_summary.outcome_counts, counts_or_summary.by_model, counts_or_summary.scored_model_variants
        )
    else:
        rates = {target.typed: counts_or_summary.by["model"].get(target.typed, Rate()) for target in run.plan.targets}
    return tuple(
        ModelRateView(
            model=model,
            outcomes=_outcomes_view(rate),
            pass_rate=rate.value,
            interval=(rate.interval.low, rate.interval.high) if rate.interval else None,
        )
        for model, rate in rates.items()
    )


def _outcomes_view(rate: Rate) -> OutcomesView:
    return OutcomesView(**{each.value: getattr(rate, each.value) for each in Outcome})


def _plan_view(run: Run) -> PlanView:
    plan = run.plan
    return PlanView(
        targets=tuple(_target_view(each) for each in plan.targets),
        parameters=dict(plan.parameters),
        system_prompt=plan.system_prompt,
        judge=_target_view(plan.judge) if plan.judge else None,
        other_judges=tuple(map(_target_view, plan.other_judges)),
        embedder=_target_view(plan.embedder) if plan.embedder else None,
        stt=_target_view(plan.stt) if plan.stt else None,
        voice=plan.voice,
        scorers=tuple(PlannedScorerView(**asdict(each)) for each in plan.scorers),
        runner_version=plan.runner_version,
    )


def _target_view(target: Target) -> TargetView:
    return TargetView(typed=target.typed, provider=target.provider, model=target.model)


def estimate_view(store: Store, request: RunRequest, reach: ProviderAccess | None = None) -> EstimateView:
    """Return an estimate of a run; nothing is sent and nothing is stored."""
    reach = reach or ProviderAccess()
    found = planning.estimate(store, request, reach)
    missing_keys = planning.explain_missing_provider_keys(store, request, reach)
    return EstimateView(
        dry_run=True,
        cases=found.case_count,
        results=found.result_count,
        calls=found.calls,
        input_tokens=found.input_tokens,
        output_tokens=found.output_tokens,
        cost_usd=found.cost_usd,
        cost_range_usd=found.cost_range_usd,
        unknown_prices=tuple(found.models_without_price),
        unjudged=tuple(
            UnjudgedView(model=model, cases=cases) for model, cases in found.unjudged_cases_by_model.items()
        ),
        self_judged=found.self_judged_models,
        missing_keys=tuple(missing_keys),
        warnings=(*found.warnings, *_warn_about_limits(found.cost_usd, request), *missing_keys.values()),
        shares=tuple(
            ModelEstimateView(
                model=each.model,
                purpose=each.purpose,
                calls=each.calls,
                input_tokens=each.input_tokens,
                output_tokens=each.output_tokens,
                cost_usd=each.cost_usd,
            )
            for each in found.model_estimates
        ),
        note="Token counts are approximate and do not include hidden reasoning. The cost range assumes answers a "
        "third to three times as long as estimated.",
    )


def _warn_about_limits(cost_usd: float | None, request: RunRequest) -> list[str]:
    limit = request.limits.max_cost_usd
    if limit is None or cost_usd is None or cost_usd <= limit:
        return []
    shown = format_cost_limit(limit)
    return [f"the cost limit of {shown} is below the estimate, so the run may end before every case has been run"]


def result_detail_view(seq: int, case: Case, result: Result, system_prompt: str | None = None) -> ResultDetailView:
    """Return the detail view of a result."""
    reply, failure = result.reply, result.failure
    call = reply.call if reply else None
    return ResultDetailView(
        **asdict(result_view(seq, result)),
        system_prompt=system_prompt,
        case=_case_view(case),
        reply=_reply_view(reply) if reply else None,
        failure=FailureView(code=failure.code, message=failure.message) if failure else None,
        checks=tuple(
            CheckView(
                name=each.name,
                version=each.version,
                outcome=each.outcome,
                reason=each.reason,
                value=each.value,
                evidence=each.evidence,
                decides=each.decides,
                rubric_scores=read_rubric_ratings(each),
            )
            for each in result.checks
        ),
        audio=AudioView(
            recording=_recording_url(call.recording),
            log=_recording_url(call.log),
            caller=tuple(map(_recording_url, call.caller)),
        )
        if call
        else None,
        result_hash=result.result_hash,
        digest=result.digest,
    )


def _reply_view(reply: Reply) -> ReplyView:
    return ReplyView(
        text=reply.text,
        tool_calls=tool_call_views(reply.tool_calls),
        answers=reply.answers,
        served_model=reply.served_model,
        fingerprint=reply.fingerprint,
        finish_reason=reply.finish_reason,
        cached_tokens=reply.usage.cached_tokens,
        dropped_parameters=tuple(reply.dropped),
        raw=reply.response(),
    )


def _case_view(case: Case) -> CaseView:
    facets = case.facets
    view = CaseView(
        id=case.id,
        kind=case.kind,
        name=case.name,
        turns=tuple(TurnView(role=turn.role, text=turn.text) for turn in case.turns),
        script=tuple(
            LineView(
                text=line.text,
                audio_url=line.audio_url,
                barge_in_seconds=line.barge_in_s,
                reference=line.reference,
                expected=tuple(
                    ExpectedView(assertion=_assertion_view(each.assertion), ideals=each.ideals)
                    for each in line.expected
                ),
            )
            for line in case.script
        ),
        category=facets.category,
        difficulty=facets.difficulty,
        language=facets.language,
        tags=facets.tags,
        assertion=_assertion_view(case.assertion),
        ideals=case.ideals,
        expected_outcome=case.expected_outcome,
        prompt_audio_url=case.prompt_audio_url,
        conditions=case.conditions,
    )
    force_setattr(view, "original", case)
    return view


def _assertion_view(assertion: Assertion | None) -> AssertionView | None:
    if assertion is None:
        return None
    return AssertionView(
        type=assertion.type,
        case_sensitive=assertion.case_sensitive,
        threshold=assertion.threshold,
        judge_prompt=assertion.judge_prompt,
        schema=assertion.schema,
    )


def _recording_url(digest: str) -> str:
    return f"/audio/{digest}"
