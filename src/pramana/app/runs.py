"""Runs: started, listed, read, cancelled, resumed and deleted. A server or a command line carries them out."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, fields

from pramana import planning
from pramana.analyse.estimate import Estimate
from pramana.analyse.spread import RunTimes
from pramana.analyse.summary import Rate, Summary
from pramana.app import App
from pramana.app.access import User, use_case
from pramana.app.providers import reach_of
from pramana.app.views import (
    EstimateView,
    LimitsView,
    OutcomesView,
    PlanView,
    RunDetailView,
    RunView,
    ShareView,
    TargetView,
    UnjudgedView,
)
from pramana.model import Case, Outcome, Result, Run, RunStatus, Target
from pramana.request import Limits, PageNumber, PageSize, RunRequest, Searched, published_name
from pramana.store.history import Ended
from pramana.store.queue import shown

_Rendered = TypeVar("_Rendered")
SELECTION_NAMES = {
    "categories": "type",
    "tags": "tag",
    "difficulties": "difficulty",
    "languages": "language",
    "all_tags": "allTags",
}
"""What a plan's filters are called where a run is asked for."""
PUBLISHED_LIMITS = {each.name: published_name(each) for each in fields(Limits)}
"""What the API calls each limit."""


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs of the list, newest first."""

    status: RunStatus | None = None
    model: Searched | None = None
    suite: Searched | None = None
    text: Searched | None = None
    outcomes: bool = False
    """Whether to count how the results of each ended, and to tell by `cases_digest` which asked the same."""
    page: PageNumber = 1
    page_size: PageSize = 50


class Runs(NamedTuple):
    """One page of a list of runs."""

    items: list[RunView]
    total: int


@use_case("editor")
async def create_run(app: App, user: User, request: RunRequest) -> RunView:
    """Queue a run: a server carries it out."""
    reach = reach_of(app)
    made = await app.work(lambda: planning.create_run(app.store, request, reach, user.name))
    app.on_queued()
    return _run_view(made)


@use_case("editor")
async def estimate_run(app: App, _: User, request: RunRequest) -> EstimateView:
    """Return what a run would take; nothing is stored, and no model is asked."""
    reach = reach_of(app)
    missing = await app.work(lambda: planning.providers_missing_keys(app.store, request, reach))
    return _estimate_view(await app.work(lambda: planning.estimate(app.store, request, reach)), missing)


@use_case("viewer")
async def list_runs(app: App, _: User, wanted: RunFilter) -> Runs:
    """Return runs, newest first."""
    return await app.work(lambda: _list_runs(app, wanted))


@use_case("viewer")
async def read_run(app: App, _: User, run_id: str, *, summary: bool = True) -> RunDetailView:
    """Return a run's plan, how far it is, what it amounts to and how its times are spread.

    Without the summary, only how far it is: nothing need be added up.
    """
    if summary:
        return await app.heavy(lambda: _read_run(app, run_id, summary=True))
    return await app.work(lambda: _read_run(app, run_id, summary=False))


@use_case("viewer")
async def render_run(
    app: App, _: User, run_id: str, render: Callable[[Run, Iterator[tuple[Case, Result]]], _Rendered]
) -> _Rendered:
    """Return what a renderer makes of a run and its results, one by one."""

    def work() -> _Rendered:
        run = app.store.runs.find(run_id)
        return render(run, app.store.results.pairs(run))

    return await app.heavy(work)


@use_case("editor")
async def cancel_run(app: App, _: User, run_id: str) -> RunView:
    """Ask that a run end. What is stored stays; whoever carries it out stops within seconds."""
    return _run_view(await app.work(lambda: app.store.queue.cancel(run_id)))


@use_case("editor")
async def resume_run(app: App, _: User, run_id: str, limits: Limits | None = None) -> RunView:
    """Queue a run again that was stopped, interrupted or cancelled; without limits, within those it had."""
    run = await app.work(lambda: app.store.queue.requeue(run_id, limits.stored() if limits else None))
    app.on_queued()
    return _run_view(run)


@use_case("editor")
async def delete_run(app: App, _: User, run_id: str) -> None:
    """Delete a run with all of its results; while somebody works on it, it must be cancelled first."""
    await app.work(lambda: app.store.runs.delete(run_id, unless_held=True))


def _list_runs(app: App, wanted: RunFilter) -> Runs:
    found, total = app.store.runs.page(
        status=wanted.status,
        model=wanted.model,
        suite=wanted.suite,
        text=wanted.text,
        limit=wanted.page_size,
        offset=(wanted.page - 1) * wanted.page_size,
    )
    history = app.store.history
    ended: Sequence[Ended | None] = history.ended(found) if wanted.outcomes else [None] * len(found)
    digests: Sequence[str | None] = history.cases_digests(found) if wanted.outcomes else [None] * len(found)
    return Runs([_run_view(*each) for each in zip(found, ended, digests, strict=True)], total)


def _read_run(app: App, named: str, *, summary: bool) -> RunDetailView:
    run = app.store.runs.find(named)
    amounts, times = app.findings.of(run) if summary else (None, None)
    history = app.store.history
    listed = _run_view(run, amounts.overall if amounts else history.ended([run])[0], history.cases_digests([run])[0])
    return run_detail_view(run, amounts, times, listed)


# ── Views ──


def _run_view(run: Run, ended: Ended | Rate | None = None, cases_digest: str | None = None) -> RunView:
    plan = run.plan
    rate = ended if ended is None or isinstance(ended, Rate) else _rate(run, ended)
    return RunView(
        id=run.id,
        status=run.status,
        suite=plan.suite,
        suite_hash=plan.suite_hash,
        cases_digest=cases_digest,
        selection={SELECTION_NAMES.get(name, name): value for name, value in plan.selection.items()},
        models=tuple(target.typed for target in plan.targets),
        variants=plan.variants,
        repeats=plan.repeats,
        judge=plan.judge.typed if plan.judge else None,
        created_at=run.created,
        finished_at=run.finished,
        expected=run.expected,
        stored=run.stored,
        progress=run.stored / run.expected if run.expected else 1.0,
        reason=run.reason,
        owner=run.owner,
        creator=run.creator,
        cancel_requested=run.cancelled is not None,
        outcomes=OutcomesView(**{each.value: getattr(rate, each.value) for each in Outcome}) if rate else None,
        pass_rate=rate.value if rate else None,
        interval=(rate.interval.low, rate.interval.high) if rate and rate.interval else None,
    )


def run_detail_view(
    run: Run, summary: Summary | None, times: RunTimes | None, listed: RunView | None = None
) -> RunDetailView:
    """Return all that a view of a run says."""
    return RunDetailView(
        **asdict(listed or _run_view(run, summary.overall if summary else None)),
        judges=tuple(summary.judge_names) if summary else None,
        plan=_plan_view(run),
        limits=LimitsView(**{PUBLISHED_LIMITS[name]: value for name, value in run.limits.items()}),
        holder=shown(run.holder) if run.holder else None,
        attempts=run.attempts,
        notes=dict(run.notes),
        summary=summary,
        aggregates=times,
    )


def _rate(run: Run, ended: Ended) -> Rate:
    counts = {outcome.value: ended.outcomes.get(outcome, 0) for outcome in Outcome}
    return Rate(**counts, per_case=run.plan.repeats * max(1, len(ended.ways)))


def _plan_view(run: Run) -> PlanView:
    plan = run.plan
    return PlanView(
        targets=tuple(_target_view(each) for each in plan.targets),
        parameters=dict(plan.parameters),
        system_prompt=plan.system_prompt,
        judge=_target_view(plan.judge) if plan.judge else None,
        embedder=_target_view(plan.embedder) if plan.embedder else None,
        stt=_target_view(plan.stt) if plan.stt else None,
        voice=plan.voice,
        runner_version=plan.runner_version,
    )


def _target_view(target: Target) -> TargetView:
    return TargetView(typed=target.typed, provider=target.provider, model=target.model)


def _estimate_view(found: Estimate, missing_keys: dict[str, str]) -> EstimateView:
    return EstimateView(
        dry_run=True,
        cases=found.cases,
        results=found.results,
        calls=found.calls,
        input_tokens=found.input_tokens,
        output_tokens=found.output_tokens,
        cost_usd=found.cost_usd,
        unknown_prices=tuple(found.unpriced),
        unjudged=tuple(UnjudgedView(model=model, cases=cases) for model, cases in found.unjudged.items()),
        missing_keys=tuple(missing_keys),
        warnings=(*found.warnings, *missing_keys.values()),
        shares=tuple(
            ShareView(
                model=each.model,
                purpose=each.purpose,
                calls=each.calls,
                input_tokens=each.input_tokens,
                output_tokens=each.output_tokens,
                cost_usd=each.cost_usd,
            )
            for each in found.shares
        ),
        note="An estimate: tokens are counted by a rule, and nobody knows how long answers will be; none is stored.",
    )
