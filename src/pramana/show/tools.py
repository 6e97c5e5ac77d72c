"""The tools of `pramana mcp`: their descriptions, arguments, implementations and results.

A tool reads its arguments, awaits a use case with the credential of the account that started the server, and returns
the view and a short text. It decides nothing: roles, limits and prices belong to the application layer. Nothing here
depends on the protocol.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple

import anyio
import msgspec
from msgspec import Meta, Struct
from msgspec.structs import fields

from pramana.analyse.comparison import FailOn
from pramana.app import App, Credential
from pramana.app.baselines import BaselineCheckView, BaselineRequest, check_run_against_baseline
from pramana.app.briefs import (
    FailedResultView,
    FailureFilter,
    RunBriefView,
    list_failures,
    list_results_of_case,
    make_brief,
    without_pooled_rate,
    without_raw_response,
)
from pramana.app.comparison_tables import CompareSeveralRequest, ComparisonTableView, compare_several_runs
from pramana.app.comparisons import CompareRequest, ComparisonView, Margin, compare_runs
from pramana.app.local import CANCEL_GRACE_S, ValidationView, continue_run, start_run, validate_files, validate_text
from pramana.app.runs import RunFilter, list_runs, read_progress, read_result, read_run
from pramana.app.views import PageRequest, ResultDetailView, RunDetailView, RunView, View
from pramana.app.watches import WatchAlertView, WatchView, as_listed
from pramana.app.watches import list_all as list_watches
from pramana.app.watches import read as read_watch
from pramana.bench import Progress, ProgressCallback
from pramana.errors import BudgetSpent, InvalidInput, NotFound, PramanaError, Problem, quote_text
from pramana.model import Outcome, RunStatus
from pramana.report import briefs
from pramana.report.comparison_table import render_comparison_table
from pramana.report.watches import render_list as render_watches
from pramana.request import Limits, PageNumber, RunRequest, Selection
from pramana.run.engine import INTERRUPTED_BY_USER_REASON, Stop
from pramana.show.tool_arguments import (
    arguments_to_request,
    collect_changes,
    make_arguments_struct,
    make_changes_struct,
)

PROGRESS_INTERVAL_S = 0.25
MAX_CASE_RESULTS = 20
"""Most results of one case that `show` returns: one for each model, variant and repeat."""


class ToolAnswer(NamedTuple):
    """The result of a tool: structured content, and the same as a few lines of text."""

    structured_result: Struct
    text: str
    error: PramanaError | None = None
    """The error that ended a run early, if any."""


class ToolCallContext(NamedTuple):
    """The context of a tool call, besides its arguments."""

    app: App
    credential: Credential
    send_progress: Callable[[float, float, str], Awaitable[None]]
    """Sends a progress notification: progress, total and message."""
    active_runs: "dict[asyncio.Future[RunDetailView], Stop]"
    """The runs that this process executes, and the `Stop` of each."""


class Tool(NamedTuple):
    """A tool: its description, its arguments and its result."""

    title: str
    description: str
    arguments_type: type[Struct]
    result_type: type[Struct] | UnionType
    """The type of the result, or the types of two kinds of results."""
    execute: Callable[[ToolCallContext, Any], Awaitable[ToolAnswer]]
    read_only: bool = True


# ── Arguments ──

_RunId = Annotated[
    str, Meta(min_length=1, max_length=200, description="Id of a run, the beginning of an id, or latest")
]
_ModelFilter = Annotated[str | None, Meta(description="Filter by model, as named in the run")]
_Page = Annotated[PageNumber, Meta(description="Number of the page, from 1")]
_PageSize = Annotated[int, Meta(ge=1, le=100, description="Items per page")]


class _Arguments(Struct, frozen=True, kw_only=True, rename="camel"):
    """The base of a tool's arguments."""


class ValidateArguments(_Arguments, frozen=True, kw_only=True):
    """Files, or a text that is not in a file yet."""

    paths: Annotated[
        tuple[str, ...],
        Meta(description="Suites (.jsonl), scenarios, descriptions of voice agents (.yaml, .yml), or folders"),
    ] = ()
    text: Annotated[str | None, Meta(description="Text to check instead of files")] = None
    kind: Annotated[
        Literal["suite", "scenarios"], Meta(description="Format of the text: a suite (JSONL) or scenarios (YAML)")
    ] = "suite"
    lint: Annotated[bool, Meta(description="Also warn about style: vague IDs, short outcomes, mixed tags")] = False
    max_errors: Annotated[int, Meta(ge=1, le=1_000, description="Maximum number of problems to return")] = 50


_RUN_DESCRIPTIONS = {
    "paths": "Suites (.jsonl), scenarios (.yaml) and folders of them on this machine; or name a suite and its tier",
    "selection": "Filters on these cases",
    "suite": "A suite version such as v1.0, instead of paths; `pramana suite list` prints them",
    "tier": "A tier of the suite: cheap, moderate or comprehensive; without paths, suite or tier, none is run",
    "scenarios": "Run the stored scenarios that match these filters; {} runs all of them",
    "models": "Models to test: names, python:package.module:function, command:NAME, local, fake:echo",
    "repeats": "Repeats per case",
    "modality": "How cases are sent: text, voice, noisy; default: text to text models, voice to voice agents",
    "condition": "Sound effects on speech: noise=10dB,phone,loss=5%,reverb=0.4s",
    "judge": "Judge model; default: each model judges its own replies",
    "embedder": "Embedding model for semantic_similarity; default: MiniLM, embedded",
    "stt": "Speech-to-text model that transcribes the replies of calls",
    "voice": "Voice for prompts without a recording",
    "scorers": "Installed scorers, or python:package.module:function, that also check every reply",
    "system_prompt": "System prompt for every case",
    "temperature": "Sampling temperature; null sends none",
    "seed": "Random seed; null sends none",
    "max_tokens": "Max output tokens per reply",
    "top_p": "Nucleus sampling; null sends none",
    "parameters": "Other parameters, by the provider's names for them",
    "name": "Name of the run in lists",
    "note": "Note on the run",
    "limits": "Limits on cost, tokens, time and concurrency",
    "cache": "Reuse cached replies to identical requests; never for functions and commands",
}
_SELECTION_DESCRIPTIONS = {
    "ids": "Filter by case ID",
    "categories": "Filter by category of test cases, or type of scenarios",
    "tags": "Filter by tag; any must match; `domain:` matches every tag that starts with it",
    "all_tags": "Filter by tag; all must match",
    "difficulties": "Filter by difficulty",
    "languages": "Filter by scenario language",
    "text": "Filter by text in ID, name, prompt or expected outcome",
    "limit": "Maximum number of cases",
}
_LIMIT_DESCRIPTIONS = {
    "max_cost": "Cost limit of the run in US dollars, judges included; at most what this server may still spend",
    "max_total_tokens": "Token limit, input and output together; requests in flight are finished",
    "deadline_seconds": "Time limit in seconds",
    "concurrency": "Concurrent requests per provider",
    "timeout_seconds": "Time limit per request",
}
SelectionArguments = make_arguments_struct(
    Selection, _SELECTION_DESCRIPTIONS, types={"limit": Annotated[int, Meta(ge=1)] | None}
)  # fmt: skip
_ARGUMENT_NAMES_BY_FILTER = {each.name: each.encode_name for each in fields(SelectionArguments)}
"""The names of the filters in the arguments."""
LimitsArguments = make_arguments_struct(Limits, _LIMIT_DESCRIPTIONS, types={})
LimitChanges = make_changes_struct(LimitsArguments)
RunArguments = make_arguments_struct(
    RunRequest,
    _RUN_DESCRIPTIONS,
    types={
        "paths": tuple[str, ...],
        "selection": SelectionArguments,
        "scenarios": SelectionArguments | None,
        "limits": LimitsArguments,
    },
    omit=("cases",),
)


class ResumeArguments(_Arguments, frozen=True, kw_only=True):
    """A run that has not finished."""

    run: _RunId
    limits: Annotated[
        LimitChanges,  # type: ignore[valid-type]
        Meta(description="Limits to change; the others stay. Raise the limit that stopped the run"),
    ] = msgspec.field(default_factory=LimitChanges)


class RunsArguments(_Arguments, frozen=True, kw_only=True):
    """The runs to list."""

    status: Annotated[RunStatus | None, Meta(description="Filter by status")] = None
    model: Annotated[str | None, Meta(description="Filter by model")] = None
    suite: Annotated[str | None, Meta(description="Filter by the name of the suite or file")] = None
    page: _Page = 1
    page_size: _PageSize = 20


class WatchesArguments(_Arguments, frozen=True, kw_only=True):
    """The watches to list."""

    watch: Annotated[str | None, Meta(description="Id or name of one watch, to read its alerts too; default: all")] = (
        None
    )
    active: Annotated[bool, Meta(description="Only watches that were not stopped")] = True


class ShowArguments(_Arguments, frozen=True, kw_only=True):
    """A run, and optionally one of its results."""

    run: _RunId
    result: Annotated[
        Annotated[int, Meta(ge=1, le=2**53)] | None, Meta(description="Number of a result (seq), to return it in full")
    ] = None
    case: Annotated[str | None, Meta(description="Id of a case, to return its results in full")] = None


class FailuresArguments(_Arguments, frozen=True, kw_only=True):
    """Filters for the results that did not pass."""

    run: _RunId = "latest"
    outcome: Annotated[
        Literal["failed", "errored", "unscored", "skipped"],
        Meta(description="failed: a wrong reply; errored: no reply, or a check broke; unscored: no verdict"),
    ] = "failed"
    model: _ModelFilter = None
    page: _Page = 1
    page_size: _PageSize = 10


class CompareArguments(_Arguments, frozen=True, kw_only=True):
    """The runs to compare: two, or more for a table."""

    base: _RunId
    new: Annotated[
        _RunId | None, Meta(description="Run to compare with base; if omitted, the models of base are compared")
    ] = None
    more: Annotated[
        tuple[_RunId, ...], Meta(max_length=98, description="Further runs; three and more runs make a table of pairs")
    ] = ()
    against: Annotated[
        str | None, Meta(description="In a table: run, or model of the only run, to compare every other side with")
    ] = None
    model: Annotated[str | None, Meta(description="Model to compare, if runs have several")] = None
    new_model: Annotated[str | None, Meta(description="Model to compare on the new side; default: as model")] = None
    any_suite: Annotated[bool, Meta(description="Compare although the suites differ; cases are still paired")] = False
    any_judge: Annotated[bool, Meta(description="Compare verdicts although different judges gave them")] = False
    margin: Margin = 5.0
    page: _Page = 1
    page_size: _PageSize = 50


class BaselineArguments(_Arguments, frozen=True, kw_only=True):
    """The run to check, and its baseline."""

    run: _RunId = "latest"
    baseline: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=200,
            description="Id or name of an earlier run; of several with the name, the newest finished one but `run`",
        ),
    ]
    fail_on: Annotated[
        FailOn, Meta(description="inconclusive: exit code 4 unless a loss as large as the margin is excluded")
    ] = "regression"
    margin: Margin = 5.0


# ── Results ──


class _PageView(View, frozen=True, kw_only=True):
    total: Annotated[int, Meta(description="Number of items on all pages")]
    page: int
    page_size: int


class WatchListView(View, frozen=True, kw_only=True):
    """Watches, newest first, and the alerts of one that was named."""

    watches: tuple[WatchView, ...]
    alerts: tuple[WatchAlertView, ...]


class RunListView(_PageView, frozen=True, kw_only=True):
    """Runs, newest first."""

    runs: tuple[RunView, ...]


class ShowView(View, frozen=True, kw_only=True):
    """A run, and the requested results."""

    run: RunBriefView
    results: tuple[ResultDetailView, ...]


class FailureListView(_PageView, frozen=True, kw_only=True):
    """Results that did not pass, in the order they were stored."""

    run: str
    failures: tuple[FailedResultView, ...]


# ── Tools ──


async def _call_validate(call: ToolCallContext, arguments: ValidateArguments) -> ToolAnswer:
    if bool(arguments.paths) == (arguments.text is not None):
        raise InvalidInput.from_problems([Problem("pass either paths or text", "paths")])
    if arguments.text is not None:
        found = await validate_text(
            call.app, call.credential, arguments.text, arguments.kind, max_errors=arguments.max_errors
        )
    else:
        paths = tuple(map(Path, arguments.paths))
        found = await validate_files(
            call.app, call.credential, paths, max_errors=arguments.max_errors, lint=arguments.lint
        )  # fmt: skip
    return ToolAnswer(found, briefs.render_validation(found))


async def _call_run(call: ToolCallContext, arguments: Any) -> ToolAnswer:
    request = arguments_to_request(
        RunRequest,
        arguments,
        paths=tuple(map(Path, arguments.paths)),
        selection=_read_selection("selection", arguments.selection),
        scenarios=None if arguments.scenarios is None else _read_selection("scenarios", arguments.scenarios),
        limits=arguments_to_request(Limits, arguments.limits),
    )
    return await _execute_run(call, partial(start_run, call.app, call.credential, request))


def _read_selection(argument_name: str, arguments: Struct) -> Selection:
    """Return the filters of a selection; refuse an empty list, which must not select everything."""
    selection = arguments_to_request(Selection, arguments)
    selection.refuse_empty_filters(argument_name, _ARGUMENT_NAMES_BY_FILTER)
    return selection


async def _call_resume(call: ToolCallContext, arguments: ResumeArguments) -> ToolAnswer:
    limits = collect_changes(Limits, arguments.limits)
    return await _execute_run(call, partial(continue_run, call.app, call.credential, arguments.run, limits))


async def _execute_run(
    call: ToolCallContext, execute: Callable[[ProgressCallback, Stop], Awaitable[RunDetailView]]
) -> ToolAnswer:
    """Execute a run, report its progress, and stop it if the client cancels the call or disconnects."""
    stop, latest, counts = Stop(), list[Progress](), Counter[Outcome]()

    def on_progress(progress: Progress) -> None:  # called in the thread of the run
        counts.update(each.outcome for each in progress.new_results)
        latest[:] = [progress]

    working = asyncio.ensure_future(execute(on_progress, stop))
    call.active_runs[working] = stop
    working.add_done_callback(call.active_runs.pop)
    shown = -1
    try:
        while not working.done():
            await asyncio.wait({working}, timeout=PROGRESS_INTERVAL_S)
            if latest and latest[0].stored_count != shown:
                shown = latest[0].stored_count
                await call.send_progress(shown, latest[0].run.expected, _format_progress(latest[0], counts))
    except BaseException:  # cancelled, or progress could not be sent: the client no longer waits for the run
        working.add_done_callback(_ignore_result)
        stop(INTERRUPTED_BY_USER_REASON)
        with anyio.CancelScope(shield=True):
            await asyncio.wait({working}, timeout=2 * CANCEL_GRACE_S)
        raise
    found = make_brief(await working)
    failed = None if isinstance(stop.error, BudgetSpent) else stop.error  # a limit that ends a run is not an error
    return ToolAnswer(found, briefs.render_run(found), failed)


def _format_progress(progress: Progress, counts: Mapping[Outcome, int]) -> str:
    ended = ", ".join(f"{counts[each]:,} {each.value}" for each in Outcome if counts.get(each))
    cost = f", ${progress.budget.cost_usd:.4f}" if progress.budget.cost_usd else ""
    return f"run {progress.run.id}: {progress.stored_count:,} of {progress.run.expected:,} results ({ended}){cost}"


def _ignore_result(run_task: "asyncio.Future[RunDetailView]") -> None:
    """Retrieve the exception of an abandoned run, so that asyncio does not log it."""
    if not run_task.cancelled():
        run_task.exception()


async def _call_list_watches(call: ToolCallContext, arguments: WatchesArguments) -> ToolAnswer:
    if arguments.watch is None:
        found = await list_watches(call.app, call.credential, active_only=arguments.active)
        listed = WatchListView(watches=tuple(found), alerts=())
    else:
        one = await read_watch(call.app, call.credential, arguments.watch)
        listed = WatchListView(watches=(as_listed(one),), alerts=one.alerts)
    return ToolAnswer(listed, render_watches(listed.watches) if listed.watches else "No watches yet.")


async def _call_list_runs(call: ToolCallContext, arguments: RunsArguments) -> ToolAnswer:
    wanted = RunFilter(
        status=arguments.status,
        model=arguments.model,
        suite=arguments.suite,
        outcomes=True,
        page=arguments.page,
        page_size=arguments.page_size,
    )
    found = await list_runs(call.app, call.credential, wanted)
    items = tuple(map(without_pooled_rate, found.items))
    listed = RunListView(runs=items, total=found.total, page=arguments.page, page_size=arguments.page_size)
    return ToolAnswer(listed, briefs.render_runs(found))


async def _call_show(call: ToolCallContext, arguments: ShowArguments) -> ToolAnswer:
    results: list[ResultDetailView] = []
    if arguments.result is not None:
        results = [(await read_result(call.app, call.credential, arguments.run, arguments.result)).result]
    elif arguments.case is not None:
        page = PageRequest(page_size=MAX_CASE_RESULTS)
        results = (await list_results_of_case(call.app, call.credential, arguments.run, arguments.case, page)).items
        if not results:
            raise NotFound(
                f"run {arguments.run} has no result of a case {quote_text(arguments.case)}; the tool failures lists "
                "case IDs"
            )
    run = make_brief(await read_run(call.app, call.credential, arguments.run))
    found = ShowView(run=run, results=tuple(map(without_raw_response, results)))
    return ToolAnswer(found, briefs.render_results(results) if results else briefs.render_run(run))


async def _call_list_failures(call: ToolCallContext, arguments: FailuresArguments) -> ToolAnswer:
    wanted = FailureFilter(
        outcome=arguments.outcome, model=arguments.model, page=arguments.page, page_size=arguments.page_size
    )
    found = await list_failures(call.app, call.credential, arguments.run, wanted)
    listed = FailureListView(
        run=arguments.run,
        failures=tuple(found.items),
        total=found.total,
        page=arguments.page,
        page_size=arguments.page_size,
    )
    return ToolAnswer(listed, briefs.render_failures(found, wanted.offset + 1, arguments.outcome))


async def _call_compare(call: ToolCallContext, arguments: CompareArguments) -> ToolAnswer:
    if await _has_several_sides(call, arguments):
        runs = tuple(each for each in (arguments.base, arguments.new, *arguments.more) if each is not None)
        names = [name for name in CompareSeveralRequest.__struct_fields__ if name != "run"]
        several = CompareSeveralRequest(run=runs, **{name: getattr(arguments, name) for name in names})
        table = await compare_several_runs(call.app, call.credential, several)
        return ToolAnswer(table, render_comparison_table(table))
    fields = {name: getattr(arguments, name) for name in CompareRequest.__struct_fields__}
    wanted = CompareRequest(**fields | {"new": arguments.new or arguments.base})
    found = await compare_runs(call.app, call.credential, wanted)
    return ToolAnswer(found, briefs.render_comparison(found))


async def _has_several_sides(call: ToolCallContext, arguments: CompareArguments) -> bool:
    """Return whether a comparison has three or more sides, or names a reference, which only a table has."""
    if arguments.more or arguments.against is not None:
        return True
    if arguments.new is not None or arguments.model is not None or arguments.new_model is not None:
        return False
    return len((await read_progress(call.app, call.credential, arguments.base)).models) > 2


async def _call_check_baseline(call: ToolCallContext, arguments: BaselineArguments) -> ToolAnswer:
    wanted = BaselineRequest(baseline=arguments.baseline, fail_on=arguments.fail_on, margin=arguments.margin)
    found = await check_run_against_baseline(call.app, call.credential, arguments.run, wanted)
    return ToolAnswer(found, briefs.render_baseline_check(found))


TOOLS: Mapping[str, Tool] = {
    "validate": Tool(
        "Validate cases",
        "Check suites (.jsonl), scenarios and descriptions of voice agents (.yaml) before a run, as files or as text. "
        "Returns every error and warning with file, line, column and path in the document. Sends nothing to a model.",
        ValidateArguments,
        ValidationView,
        _call_validate,
    ),
    "run": Tool(
        "Run an evaluation",
        "Send the cases of files or of a built-in suite tier to models, check every reply, store every result, and "
        "return pass rates with 95 % intervals, cost, times, the first failures, and why results have no verdict. "
        "Waits until the run ends and sends progress. If the call is cancelled, stored results are kept, and the tool "
        "`resume` continues the run. Models that cost money need a cost limit that the user has set for this server; "
        "local, fake:, python: and command: models need none. Your own code is a model too: "
        "python:package.module:function is called with each prompt.",
        RunArguments,
        RunBriefView,
        _call_run,
        read_only=False,
    ),
    "resume": Tool(
        "Resume a run",
        "Continue a run that was interrupted, cancelled or stopped by a limit: only the missing cases are sent. "
        "Returns what `run` returns, for the whole run.",
        ResumeArguments,
        RunBriefView,
        _call_resume,
        read_only=False,
    ),
    "runs": Tool(
        "List runs",
        "List stored runs, newest first, with id, status, suite, models, counts and pass rate. Use it to find ids.",
        RunsArguments,
        RunListView,
        _call_list_runs,
    ),
    "watches": Tool(
        "List watches",
        "List the watches of models over days, each with its state in a sentence: collecting, quiet, notice (it may "
        "have changed), alarm (it has changed). With `watch`, return its alerts too. Sends nothing to a model.",
        WatchesArguments,
        WatchListView,
        _call_list_watches,
    ),
    "show": Tool(
        "Show a run or a result",
        "Return a run in brief, also while it is in progress. With `case` or `result`, also return those results in "
        "full: prompt, reply, every check with its reason and evidence, times and tokens.",
        ShowArguments,
        ShowView,
        _call_show,
    ),
    "failures": Tool(
        "List failures",
        "Return the failed results of a run, in pages: case id, prompt, expected answer, reply and reason. With "
        "`outcome`, return results that are errored or have no verdict instead.",
        FailuresArguments,
        FailureListView,
        _call_list_failures,
    ),
    "compare": Tool(
        "Compare runs or models",
        "Say which of two runs of the same cases is better, case by case: the answer in a sentence, the difference "
        "with its 95 % interval and p-value, and the cases that flipped, losses first. `verdict` is a regression, an "
        "improvement, or not proven. For a run of three and more models, or with `more` runs, return a table instead: "
        "`sides` by pass rate, and `pairs` with what is proven of all of them together.",
        CompareArguments,
        ComparisonView | ComparisonTableView,
        _call_compare,
    ),
    "baseline": Tool(
        "Check a run against a baseline",
        "Say whether a run that has ended is worse than an earlier one, model by model, as a gate of a build does: "
        "`passed`, and the exit code of `pramana run --baseline` (1: a proven loss beyond the margin; 3: results are "
        "missing or errored; 4: undecided). Use it before you call a change good.",
        BaselineArguments,
        BaselineCheckView,
        _call_check_baseline,
    ),
}
