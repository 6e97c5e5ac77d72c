"""Runs and failures in brief: what a reader with a small context, such as a coding agent, needs for its next step.

The view of a whole run comes in, its few most important numbers go out. Failed results include the input and the
expectation, so that they need not be read one by one.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import asdict, replace

from pramana.analyse.summary import BREAKDOWNS, Dimension, Rate
from pramana.app import App, User, use_case
from pramana.app.runs import LIMITS_ACROSS_SITTINGS, result_detail_view
from pramana.app.views import (
    ListPage,
    PageRequest,
    ResultDetailView,
    RunDetailView,
    RunView,
    ToolCallView,
    View,
    result_view,
)
from pramana.model import Case, Outcome, Result

_TOKEN_SUM_DESCRIPTION = "Sum over the replies that did not come from the cache; null if a count is unknown"
MAX_NAMED_FAILURES = 10
"""Most failed results and reasons that a brief lists; its counts include all."""
MAX_TEXT_LENGTH = 2_000
"""Most characters of a prompt or a reply in a list of failures."""

_P95_BOUND_DESCRIPTION = "What p95 is at most, at 95 % confidence; null for fewer than 59 cases"


class RateView(View, frozen=True, kw_only=True):
    """The number of results per outcome, and the pass rate of those with a verdict."""

    passed: int
    failed: int
    errored: int
    unscored: int
    skipped: int
    pass_rate: Annotated[float | None, Meta(description="passed / (passed + failed); null without any verdict")]
    interval: Annotated[
        tuple[float, float] | None, Meta(description="95 % interval of the pass rate, with cases as the units")
    ]


class ReasonView(View, frozen=True, kw_only=True):
    """Why results have no verdict."""

    outcome: Outcome
    reason: str
    count: int
    cases: Annotated[tuple[str, ...], Meta(description="First cases with this reason")]


class FailedView(View, frozen=True, kw_only=True):
    """A result that failed, and why."""

    case: str
    model: str
    reason: str


class LatencyView(View, frozen=True, kw_only=True):
    """The latency of one model's replies."""

    p50_seconds: float | None
    p95_seconds: float | None
    p95_at_most_seconds: Annotated[float | None, Meta(description=_P95_BOUND_DESCRIPTION)]


class RunBriefView(RunView, frozen=True, kw_only=True):
    """A run in brief. Where it has several models, `pass_rate`, `interval` and `latency_…` are null: see each model."""

    cost_usd: Annotated[
        float | None, Meta(description="Cost including judges; null if a price or a token count is unknown")
    ]
    input_tokens: Annotated[float | None, Meta(description=_TOKEN_SUM_DESCRIPTION)]
    output_tokens: Annotated[float | None, Meta(description=_TOKEN_SUM_DESCRIPTION)]
    latency_p50_seconds: Annotated[float | None, Meta(description="null with several models")]
    latency_p95_seconds: float | None
    latency_p95_at_most_seconds: Annotated[float | None, Meta(description=_P95_BOUND_DESCRIPTION)]
    latency_by_model: Annotated[
        Mapping[str, LatencyView], Meta(description="The latency of each model, where there are several")
    ]
    by: Annotated[
        Mapping[str, Mapping[str, RateView]],
        Meta(
            description="By model; where there is one model, also by category, difficulty, tag, language, check and "
            "variant, each where it has several values"
        ),
    ]
    by_model: Annotated[
        Mapping[str, Mapping[str, Mapping[str, RateView]]],
        Meta(description="Where there are several models, the breakdowns of each: model, dimension, value"),
    ]
    without_verdict: Annotated[tuple[ReasonView, ...], Meta(description="Most frequent first")]
    failed: Annotated[tuple[FailedView, ...], Meta(description=f"The first {MAX_NAMED_FAILURES}")]
    judged_by: Annotated[str | None, Meta(description="Judge models, in a sentence")]
    notes: Annotated[tuple[str, ...], Meta(description="What limits how far the numbers can be trusted")]


class FailureFilter(PageRequest, frozen=True, kw_only=True):
    """Filters for the results that did not pass."""

    outcome: Literal["failed", "errored", "unscored", "skipped"] = "failed"
    model: str | None = None


class FailedResultView(View, frozen=True, kw_only=True):
    """A result that did not pass, with the input and the expectation."""

    seq: Annotated[int, Meta(description="Number of the result in the run")]
    case_id: str
    model: str
    variant: str
    repeat: int
    outcome: Outcome
    prompt: Annotated[str, Meta(description=f"The last message that was sent; at most {MAX_TEXT_LENGTH:,} characters")]
    expected: Annotated[tuple[str, ...], Meta(description="The expected texts or outcome")]
    assertion: Annotated[str | None, Meta(description="Check that compared the reply with the expected texts")]
    reply: Annotated[str | None, Meta(description=f"At most {MAX_TEXT_LENGTH:,} characters; null without one")]
    tool_calls: Annotated[tuple[ToolCallView, ...], Meta(description="Tools that the model called")]
    reason: str | None
    failure_code: Annotated[str | None, Meta(description="Why there is no reply")]


@use_case("viewer")
def list_failures(app: App, _: User, run_id: str, wanted: FailureFilter) -> ListPage[FailedResultView]:
    """Return results that did not pass, in the order they were stored."""
    run = app.store.runs.find_as_of_scoring(run_id)
    found, total = app.store.results.read_page(
        run, outcome=Outcome(wanted.outcome), model=wanted.model, limit=wanted.page_size, offset=wanted.offset
    )
    return ListPage([_failed_result_view(seq, *app.store.results.read(run, seq)) for seq, _ in found], total)


@use_case("viewer")
def list_results_of_case(
    app: App, _: User, run_id: str, case: str, page_request: PageRequest
) -> ListPage[ResultDetailView]:
    """Return the full results of one case, by its id or digest: one for each model, variant and repeat."""
    run = app.store.runs.find_as_of_scoring(run_id)
    found, total = app.store.results.read_page(run, case=case, limit=page_request.page_size, offset=page_request.offset)
    read = [(seq, *app.store.results.read(run, seq)) for seq, _ in found]
    return ListPage([result_detail_view(*each, run.plan.system_prompt) for each in read], total)


def make_brief(run: RunDetailView) -> RunBriefView:
    """Return a run in brief; the run must include its summary."""
    summary = run.summary
    assert summary is not None  # noqa: S101 - set by `read_run` and `start_run`
    several = len(run.models) > 1  # rates and times of several models are never pooled
    broken_down = [each for each in BREAKDOWNS if len(summary.by[each]) > 1]
    listed = without_pooled_rate(run)
    return RunBriefView(
        **{name: getattr(listed, name) for name in RunView.__struct_fields__},
        cost_usd=summary.cost_usd.value,
        input_tokens=summary.input_tokens.value,
        output_tokens=summary.output_tokens.value,
        latency_p50_seconds=None if several else summary.latency.p50,
        latency_p95_seconds=None if several else summary.latency.p95,
        latency_p95_at_most_seconds=None if several else summary.latency.p95_at_most,
        latency_by_model=_latency_by_model(run) if several else {},
        by=_rate_views(summary.by, ["model", *([] if several else broken_down)]),
        by_model={model: _rate_views(by, broken_down) for model, by in summary.by_model.items()} if several else {},
        without_verdict=tuple(
            ReasonView(outcome=each.outcome, reason=each.text, count=each.count, cases=each.cases)
            for each in summary.reasons[:MAX_NAMED_FAILURES]
        ),
        failed=tuple(
            FailedView(case=each.case, model=each.model, reason=each.reason)
            for each in summary.failures[:MAX_NAMED_FAILURES]
        ),
        judged_by=summary.judged_by or None,
        notes=(*_advise_raising_limit(run), *summary.mixed_judges, *summary.not_reproducible),
    )


def without_pooled_rate(run: RunView) -> RunView:
    """Return a run without the pass rate over all of its models, if it has several; `model_rates` has each."""
    return replace(run, pass_rate=None, interval=None) if len(run.models) > 1 else run


def _rate_views(
    rates_by_dimension: Mapping[Dimension, Mapping[str, Rate]], dimensions: Iterable[Dimension]
) -> dict[str, dict[str, RateView]]:
    return {
        name: {value: rate_view(rate) for value, rate in rates_by_dimension.get(name, {}).items()}
        for name in dimensions
    }


def _latency_by_model(run: RunDetailView) -> dict[str, LatencyView]:
    times = run.aggregates.latency_seconds if run.aggregates else None
    return {
        model: LatencyView(p50_seconds=spread.median, p95_seconds=spread.p95, p95_at_most_seconds=spread.p95_at_most)
        for model, spread in (times.by_model if times else {}).items()
    }


def _advise_raising_limit(run: RunDetailView) -> list[str]:
    """Return the advice to raise the limit that would end a resumed run again; empty if there is none."""
    name = LIMITS_ACROSS_SITTINGS.get(run.notes.get("reached_limit", ""))
    if name is None or run.status == "finished":
        return []
    return [f"A resumed run keeps its limits: resume this one with a higher {name}"]


def without_raw_response(result: ResultDetailView) -> ResultDetailView:
    """Return a result without the provider's raw response, which repeats the reply at length."""
    return replace(result, reply=replace(result.reply, raw=None)) if result.reply else result


def rate_view(rate: Rate) -> RateView:
    """Return a rate with its value and its interval."""
    interval = rate.interval
    return RateView(
        **{each.value: getattr(rate, each.value) for each in Outcome},
        pass_rate=rate.value,
        interval=(interval.low, interval.high) if interval else None,
    )


def _failed_result_view(seq: int, case: Case, result: Result) -> FailedResultView:
    found = asdict(result_view(seq, result))
    reply = result.reply.text if result.reply else None
    return FailedResultView(
        **{name: found[name] for name in FailedResultView.__struct_fields__ if name in found},
        prompt=_shorten_text(case.turns[-1].text),
        expected=(case.expected_outcome,) if case.expected_outcome else case.ideals,
        assertion=case.assertion.type if case.assertion else None,
        reply=None if reply is None else _shorten_text(reply),
    )


def _shorten_text(text: str) -> str:
    return text if len(text) <= MAX_TEXT_LENGTH else f"{text[: MAX_TEXT_LENGTH - 1]}…"
