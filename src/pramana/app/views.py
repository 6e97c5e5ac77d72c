"""The views that use cases return: typed structs, the same for every front end.

Field names are snake_case here and camelCase in JSON, converted by the serialiser; units are in the names. The
description of a field is published in the documentation of the API.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from pramana.analyse.estimate import Purpose
from pramana.analyse.spread import RunTimes
from pramana.analyse.summary import Summary, explain_outcome
from pramana.model import Outcome, Result, RunStatus, ToolCall
from pramana.request import PageNumber, PageSize

_Item = TypeVar("_Item")


class View(Struct, frozen=True, kw_only=True, rename="camel"):
    """The base of all views."""


class PageRequest(Struct, frozen=True, kw_only=True):
    """The page of a list to return."""

    page: PageNumber = 1
    page_size: PageSize = 50

    @property
    def offset(self) -> int:
        """The number of items before the page."""
        return (self.page - 1) * self.page_size


class ListPage(NamedTuple, Generic[_Item]):
    """One page of a list, and the total number of items."""

    items: list[_Item]
    total: int


# ── Runs ──


class OutcomesView(View, frozen=True, kw_only=True):
    """The number of results per outcome."""

    passed: int
    failed: int
    errored: int
    unscored: int
    skipped: int


class ModelRateView(View, frozen=True, kw_only=True):
    """The outcomes of one model of a run."""

    model: str
    outcomes: OutcomesView
    pass_rate: Annotated[
        float | None, Meta(description="Pass rate of the results with a verdict; null if there are none")
    ]
    interval: Annotated[
        tuple[float, float] | None, Meta(description="95 % interval of the pass rate, with cases as the units")
    ]


class RunView(View, frozen=True, kw_only=True):
    """A run in a list."""

    id: str
    name: Annotated[str | None, Meta(description="Name given by the user")]
    note: Annotated[str | None, Meta(description="Note written by the user")]
    status: RunStatus
    suite: str
    suite_hash: str | None
    cases_digest: Annotated[
        str | None,
        Meta(
            description="Digest of all cases, equal for runs of the same cases, independent of model, suite and "
            "order; null in lists without `outcomes=true`"
        ),
    ]
    selection: Annotated[
        Mapping[str, Any],
        Meta(description="Filters on the cases, with the field names of `scenarios` in POST /api/runs"),
    ]
    models: tuple[str, ...]
    variants: tuple[str, ...]
    repeats: int
    is_endpoint_test: Annotated[
        bool,
        Meta(
            description="Whether the run is a test of two endpoints (GET /api/same/{id} has its answer): it ends when "
            "it has its answer, and its pass rates are none of a suite"
        ),
    ]
    judge: Annotated[
        str | None, Meta(description="Judge model, or the models of a panel; null: each model judges itself")
    ]
    created_at: str
    finished_at: str | None
    expected: int
    stored: int
    progress: float
    reason: str | None
    owner: Literal["cli", "server"]
    creator: str | None
    cancel_requested: bool
    outcomes: Annotated[
        OutcomesView | None,
        Meta(description="Number of results by outcome; null in lists without `outcomes=true`"),
    ]
    pass_rate: Annotated[
        float | None, Meta(description="Pass rate of the results with a verdict; null if there are none")
    ]
    interval: Annotated[
        tuple[float, float] | None, Meta(description="95 % interval of the pass rate, with cases as the units")
    ]
    model_rates: Annotated[
        tuple[ModelRateView, ...] | None,
        Meta(description="Rates of each model, in the order of `models`; null in lists without `outcomes=true`"),
    ]
    calibration: Annotated[
        str | None,
        Meta(
            description="How far the judges of the verdicts agree with people: `judge agrees 92 %` (of several, the "
            "least) or `uncalibrated`; null if no model judged, and in lists without `outcomes=true`"
        ),
    ]

    @property
    def reference(self) -> str:
        """What names the run where runs are read: its id, or `RUN@1` if it is read by a scoring that was named."""
        return self.id


class TargetView(View, frozen=True, kw_only=True):
    """A model as it was typed, and the target that it resolved to."""

    typed: str
    provider: str
    model: str


class PlannedScorerView(View, frozen=True, kw_only=True):
    """A scorer as it was requested, and its version when the run began."""

    typed: str
    name: str
    version: str


class PlanView(View, frozen=True, kw_only=True):
    """The plan of a run."""

    targets: tuple[TargetView, ...]
    parameters: Mapping[str, Any]
    system_prompt: str | None
    judge: TargetView | None
    other_judges: Annotated[tuple[TargetView, ...], Meta(description="The judges that form a panel with `judge`")]
    embedder: TargetView | None
    stt: TargetView | None
    voice: str
    scorers: tuple[PlannedScorerView, ...]
    runner_version: str


class LimitsView(View, frozen=True, kw_only=True):
    """The limits of a run, as far as its first sitting recorded them."""

    max_cost: Annotated[float | UnsetType, Meta(description="US dollars")] = UNSET
    max_total_tokens: int | UnsetType = UNSET
    deadline_seconds: Annotated[
        float | UnsetType, Meta(description="Time limit; a resumed run gets the full time again")
    ] = UNSET
    concurrency: Annotated[int | UnsetType, Meta(description="Concurrent requests per provider")] = UNSET
    timeout_seconds: Annotated[float | UnsetType, Meta(description="Time limit per request")] = UNSET


class RunDetailView(RunView, frozen=True, kw_only=True):
    """A run in full, without its results."""

    scoring: Annotated[
        int | None,
        Meta(
            description="Number of the scoring shown, if the request named it as in `RUN@1`; null: the current scoring"
        ),
    ] = None
    plan: PlanView
    judges: Annotated[
        tuple[str, ...] | None, Meta(description="Judges of the current verdicts; null without the summary")
    ]
    limits: LimitsView
    holder: Annotated[str | None, Meta(description="Process that is executing the run")]
    attempts: Annotated[int, Meta(description="How many times a process started to work on the run")]
    notes: Annotated[
        Mapping[str, Any],
        Meta(
            description="What the program recorded about the run: version of the prices, changes of the request "
            "limits, retries, parameters that a model rejected, each sitting, the limit that it reached"
        ),
    ]
    summary: Annotated[
        Summary | None, Meta(description="Pass rates with their intervals, tokens, cost, times, reasons")
    ]
    aggregates: Annotated[
        RunTimes | None,
        Meta(
            description="count, mean, median, p95, p95AtMost (its upper bound at 95 % confidence; null for fewer than "
            "59 cases), standardDeviation, min and max of latencySeconds and, of calls, of "
            "voiceToVoiceSeconds: overall, byProvider, byModel; histogram and histogramByModel: from, to and count of "
            "bins"
        ),
    ]

    @property
    def reference(self) -> str:
        """What names the run where runs are read: its id, or `RUN@1` if it is read by a scoring that was named."""
        return self.id if self.scoring is None else f"{self.id}@{self.scoring}"


class ModelEstimateView(View, frozen=True, kw_only=True):
    """The calls, tokens and cost of one model for one purpose, within an estimate."""

    model: str
    purpose: Purpose
    calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None


class UnjudgedView(View, frozen=True, kw_only=True):
    """Cases of one model that need a judge, where none is set."""

    model: str
    cases: int


class EstimateView(View, frozen=True, kw_only=True):
    """An estimate of a run's calls, tokens and cost."""

    dry_run: Literal[True]
    cases: int
    results: int
    calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: Annotated[float | None, Meta(description="Estimated cost; null if a price is unknown")]
    cost_range_usd: Annotated[
        tuple[float, float] | None,
        Meta(description="Cost if replies are a third, or three times, as long as estimated; null: a price is unknown"),
    ]
    unknown_prices: tuple[str, ...]
    unjudged: Annotated[
        tuple[UnjudgedView, ...], Meta(description="Cases that will have no verdict unless a judge is named")
    ]
    self_judged: Annotated[tuple[str, ...], Meta(description="Models that would judge their own replies")]
    missing_keys: Annotated[
        tuple[str, ...], Meta(description="Providers that need a key and have none on this machine")
    ]
    warnings: Annotated[tuple[str, ...], Meta(description="Warnings in sentences; the run can still be started")]
    shares: tuple[ModelEstimateView, ...]
    note: str


# ── Results ──


class ToolCallView(View, frozen=True, kw_only=True):
    """A tool call in the model's reply."""

    id: Annotated[str | None, Meta(description="The provider's ID of the call, for the tool's result")]
    name: str
    arguments: Annotated[str, Meta(description="JSON text as the model wrote it; it may be invalid")]


def tool_call_views(calls: Iterable[ToolCall]) -> tuple[ToolCallView, ...]:
    """Return the tool calls of a reply as views."""
    return tuple(ToolCallView(id=each.id, name=each.name, arguments=each.arguments) for each in calls)


class ResultView(View, frozen=True, kw_only=True):
    """A result in a list."""

    seq: int
    case_id: str
    case_digest: str
    model: str
    variant: str
    repeat: int
    outcome: Outcome
    reason: Annotated[str | None, Meta(description="Why the result did not pass")]
    output: Annotated[str | None, Meta(description="The beginning of the reply; null without a reply")]
    latency_seconds: float | None
    first_token_seconds: float | None
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    cached: bool
    failure_code: str | None
    tool_calls: Annotated[tuple[ToolCallView, ...], Meta(description="Tools that the model called")]


def result_view(seq: int, result: Result) -> ResultView:
    """Return a result for a list, or for the event stream of its run."""
    key, reply = result.key, result.reply
    return ResultView(
        seq=seq,
        case_id=result.case_id,
        case_digest=key.case,
        model=key.model,
        variant=key.variant,
        repeat=key.repeat,
        outcome=result.outcome,
        reason=None if result.outcome is Outcome.PASSED else explain_outcome(result),
        output=reply.text if reply else None,
        latency_seconds=reply.total_s if reply else None,
        first_token_seconds=reply.first_token_s if reply else None,
        input_tokens=reply.usage.input_tokens if reply else None,
        output_tokens=reply.usage.output_tokens if reply else None,
        cost_usd=reply.cost_usd if reply else None,
        cached=bool(reply and reply.cached),
        failure_code=result.failure.code if result.failure else None,
        tool_calls=tool_call_views(reply.tool_calls) if reply else (),
    )


class TurnView(View, frozen=True, kw_only=True):
    """One message of a chat."""

    role: str
    text: str


class AssertionView(View, frozen=True, kw_only=True):
    """An assertion about a reply."""

    type: str
    case_sensitive: bool | None
    threshold: float | None
    judge_prompt: str | None
    schema: Any


class ExpectedView(View, frozen=True, kw_only=True):
    """An assertion about one answer, and the texts that it expects."""

    assertion: AssertionView | None
    ideals: tuple[str, ...]


class LineView(View, frozen=True, kw_only=True):
    """A line of the caller, and the assertions about the answer to it."""

    text: str
    audio_url: str | None
    barge_in_seconds: Annotated[
        float | None,
        Meta(
            description="Seconds after the agent's answer becomes audible at which this line begins; null: after the "
            "answer"
        ),
    ]
    reference: Annotated[str | None, Meta(description="The exact words that the agent must say in answer to this line")]
    expected: tuple[ExpectedView, ...]


class CaseView(View, frozen=True, kw_only=True, dict=True):
    """A test case or scenario, as it was sent.

    A view made from a case keeps it as `original`, which is not a field: a Python caller can run it again.
    """

    id: str
    kind: str
    name: str | None
    turns: tuple[TurnView, ...]
    script: tuple[LineView, ...]
    category: str | None
    difficulty: str | None
    language: str | None
    tags: tuple[str, ...]
    assertion: AssertionView | None
    ideals: tuple[str, ...]
    expected_outcome: str | None
    prompt_audio_url: str | None
    conditions: str | None


class ReplyView(View, frozen=True, kw_only=True):
    """A reply."""

    text: Annotated[str, Meta(description="Empty if the model only calls tools")]
    tool_calls: tuple[ToolCallView, ...]
    answers: tuple[str, ...]
    served_model: str | None
    fingerprint: str | None
    finish_reason: str | None
    cached_tokens: int | None
    dropped_parameters: tuple[str, ...]
    raw: Any


class FailureView(View, frozen=True, kw_only=True):
    """Why there is no reply."""

    code: str
    message: str


class CheckView(View, frozen=True, kw_only=True):
    """A check of a reply, with its evidence."""

    name: str
    version: str
    outcome: Outcome
    reason: str
    value: float | None
    evidence: Mapping[str, Any]
    decides: bool
    """False for a measurement by a scorer, on which the result's outcome does not depend."""
    rubric_scores: Annotated[
        Mapping[str, float],
        Meta(description="accuracy, helpfulness, naturalness and efficiency from 1 to 10, if a judge scored them"),
    ]


class AudioView(View, frozen=True, kw_only=True):
    """The URLs of a call's recording and log."""

    recording: str
    log: str
    caller: tuple[str, ...]


class ResultDetailView(ResultView, frozen=True, kw_only=True):
    """One result with its case, reply and checks in full."""

    system_prompt: str | None
    case: CaseView
    reply: ReplyView | None
    failure: FailureView | None
    checks: tuple[CheckView, ...]
    audio: Annotated[
        AudioView | None, Meta(description="Addresses of the recording, the event log and the caller's sound")
    ]
    result_hash: str | None
    digest: str | None
