"""`/api/runs` and `/api/compare`: create, read, compare, cancel, resume, delete and export runs.

Readers see no difference between runs of this server, of another process, or of a command line.
"""

import io
import sys
from collections.abc import Collection, Iterator, Mapping
from tempfile import SpooledTemporaryFile
from typing import IO, Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse
from msgspec.structs import replace
from pydantic import Field
from pydantic.alias_generators import to_camel, to_snake

from pramana.analyse.comparison import FailOn
from pramana.analyse.joint_comparison import MAX_SIDES_WITH_REFERENCE
from pramana.analyse.summary import Summary
from pramana.app import Credential, baselines, calls, comparison_tables, comparisons, rescoring, runs
from pramana.app.baselines import BaselineCheckView
from pramana.app.comparison_tables import ComparisonTableView
from pramana.app.comparisons import ComparisonView
from pramana.app.views import EstimateView, ResultDetailView, ResultView, RunDetailView, RunView
from pramana.errors import InvalidInput
from pramana.load.scenario import ScenarioType
from pramana.model import Case, Difficulty, Outcome, Result, Run, RunStatus
from pramana.report import export
from pramana.report.exporters import find_exporter
from pramana.report.exports import Format
from pramana.request import MAX_NAME_CHARS, Limits, RunEdit, RunRequest, Selection
from pramana.show.api.envelope import (
    AppDependency,
    Body,
    PageNumber,
    PageSize,
    add_fields_of,
    document_route,
    make_envelope_model,
    make_page_meta,
    make_success_response,
    read_chunks,
    require_caller,
    to_camel_case,
)

router = APIRouter(tags=["runs"])
compare_router = APIRouter(tags=["compare"])
RunId = Annotated[str, Path(description="ID of the run, the beginning of the ID, or latest")]
"""The run to read. Routes that change a run accept only a full id: `latest` may be another run by then."""
RunIdWithScoring = Annotated[
    str, Path(description="ID of the run, the beginning of the ID, or latest; with @1 at the end, with its scoring 1")
]
"""The run to read, by its current scoring or by another."""
MAX_IDS = 1_000
MAX_NAME_LENGTH = MAX_NAME_CHARS
_EXPORT_MEDIA_TYPES: Mapping[Format, tuple[str, str]] = {
    "json": ("application/json", "json"),
    "jsonl": ("application/x-ndjson", "jsonl"),
    "parquet": ("application/vnd.apache.parquet", "parquet"),
    "csv": ("text/csv; charset=utf-8", "csv"),
    "junit": ("application/xml", "xml"),
    "markdown": ("text/markdown; charset=utf-8", "md"),
    "html": ("text/html; charset=utf-8", "html"),
}
_Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)]
_OneOrMoreNames = _Name | Annotated[list[_Name], Field(max_length=100)] | None


# ── Bodies ──


@add_fields_of(Limits)
class LimitsBody(Body):
    """The limits of a run: cost and tokens for all its sittings together, time, and concurrency."""

    def to_limits(self) -> Limits:
        """Return the body as `Limits`."""
        return Limits(**self._collect_limits(runs.PUBLISHED_LIMIT_NAMES.values()))

    def to_changed_limits(self) -> dict[str, Any]:
        """Return the fields that were sent, under the names of `Limits`."""
        return self._collect_limits(self.model_fields_set)

    def _collect_limits(self, published_names: Collection[str]) -> dict[str, Any]:
        named = runs.PUBLISHED_LIMIT_NAMES.items()
        return {name: getattr(self, published) for name, published in named if published in published_names}


class ScenariosBody(Body):
    """Filters for the scenarios of this server. Within one filter any value matches, except in `allTags`."""

    ids: Annotated[list[_Name], Field(max_length=MAX_IDS)] = Field(default_factory=list)
    type: ScenarioType | list[ScenarioType] | None = None
    difficulty: Difficulty | list[Difficulty] | None = None
    language: _OneOrMoreNames = None
    tag: _OneOrMoreNames = Field(
        default=None, description="Any of these tags; `domain:` matches every tag that starts with it"
    )
    all_tags: _OneOrMoreNames = Field(default=None, description="All of these tags")
    text: Annotated[str, Field(max_length=MAX_NAME_LENGTH)] = ""


@add_fields_of(
    RunRequest,
    scenarios=(
        Literal["all"] | Annotated[list[_Name], Field(max_length=MAX_IDS)] | ScenariosBody | None,
        Field(
            default=None,
            description="Scenarios stored on this server: all, a list of IDs, or filters",
        ),
    ),
    modality=(_OneOrMoreNames, Field(default=None, description="text, voice, noisy; several as a list")),
    limits=(LimitsBody | None, None),
)
class RunBody(Body):
    """A run to create."""

    dry_run: bool = Field(default=False, description="Only estimate the run; send and store nothing")

    def to_request(self) -> RunRequest:
        """Return the body as a `RunRequest`."""
        sent = {name: getattr(self, name) for name in type(self).model_fields if name in RunRequest.__struct_fields__}
        sent |= {"models": tuple(sent["models"]), "scenarios": make_selection(sent["scenarios"])}
        limits: LimitsBody | None = sent["limits"]
        sent["limits"] = limits.to_limits() if limits else Limits()
        modality = getattr(self, "modality")  # noqa: B009 - a field created by the decorator
        return RunRequest(**sent, modalities=tuple(_as_list(modality)) if modality else None)


def _collect_defaults(body: type[Body], path_prefix: str = "") -> dict[str, Any]:
    stated = ((to_camel(name), each) for name, each in body.model_fields.items() if not each.is_required())
    return {f"{path_prefix}{name}": each.get_default(call_default_factory=True) for name, each in stated}


DEFAULTS_BY_PATH: Mapping[str, Any] = {**_collect_defaults(RunBody), **_collect_defaults(LimitsBody, "limits.")}
"""The default of each field of the body, by its path (`limits.concurrency`)."""


@add_fields_of(RunEdit)
class RunEditBody(Body):
    """The changes to a run; fields that are left out or null stay as they are."""

    def to_run_edit(self) -> RunEdit:
        """Return the body as a `RunEdit`."""
        return RunEdit(**{name: getattr(self, name) for name in self.model_fields_set})


class ResumeBody(Body):
    """How to resume a run: it keeps its limits, except those sent here."""

    limits: LimitsBody | None = None


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def make_selection(scenarios: Any) -> Selection | None:
    """Return the filters on stored scenarios that a body states; None for no scenarios."""
    if scenarios is None:
        return None
    if scenarios == "all":
        return Selection()
    if isinstance(scenarios, list):
        if not scenarios:
            raise InvalidInput('scenarios is an empty list; name scenarios by ID, or write "all"')
        return Selection(ids=tuple(scenarios))
    names = {name: to_snake(runs.SELECTION_NAMES.get(name, name)) for name in Selection.__struct_fields__}
    sent = {name: getattr(scenarios, field) for name, field in names.items() if field in scenarios.model_fields_set}
    filters: dict[str, Any] = {
        name: value if name == "text" else tuple(_as_list(value)) for name, value in sent.items() if value is not None
    }
    selection = Selection(**filters)
    selection.refuse_empty_filters("scenarios", runs.SELECTION_NAMES)
    return selection


# ── Routes ──


@router.post(
    "/api/runs",
    summary="Start a run",
    **document_route(
        RunView,
        404,
        status=202,
        description="The run is queued; a server will execute it",
        status_200={"model": make_envelope_model(EstimateView), "description": "Estimate of the run (dryRun)"},
    ),
)
async def create_run(
    body: RunBody, app: AppDependency, caller: Annotated[Credential, require_caller(runs.create_run)]
) -> Response:
    """Queue a run, or with `dryRun` return an estimate. Follow its progress at `/api/runs/{id}/events`."""
    if body.dry_run:
        return make_success_response(await runs.estimate_run(app, caller, body.to_request()))
    return make_success_response(await runs.create_run(app, caller, body.to_request()), status=202)


@router.get("/api/runs", summary="List runs", **document_route(list[RunView]))
async def list_runs(
    app: AppDependency,
    caller: Annotated[Credential, require_caller(runs.list_runs)],
    page: PageNumber = 1,
    page_size: PageSize = 50,
    status: RunStatus | None = None,
    model: Annotated[str | None, Query(max_length=MAX_NAME_LENGTH)] = None,
    suite: Annotated[str | None, Query(max_length=MAX_NAME_LENGTH, description="Suite name, or its beginning")] = None,
    text: Annotated[str | None, Query(max_length=MAX_NAME_LENGTH)] = None,
    *,
    outcomes: Annotated[
        bool, Query(description="Include outcome counts and `casesDigest`, which is equal for runs of the same cases")
    ] = False,
) -> Response:
    """Return runs, newest first."""
    wanted = runs.RunFilter(
        status=status, model=model, suite=suite, text=text, outcomes=outcomes, page=page, page_size=page_size
    )
    found = await runs.list_runs(app, caller, wanted)
    return make_success_response(found.items, make_page_meta(page, page_size, found.total))


@router.get("/api/runs/{run_id}", summary="Read a run", **document_route(RunDetailView, 404))
async def read_run(
    run_id: RunIdWithScoring,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(runs.read_run)],
    *,
    summary: Annotated[
        bool, Query(description="false: return only the progress, without the summary, which is faster")
    ] = True,
) -> Response:
    """Return a run's plan, progress, summary and distribution of times."""
    read = runs.read_run if summary else runs.read_progress
    found = await read(app, caller, run_id)
    said = msgspec.to_builtins(replace(found, summary=None))
    return make_success_response({**said, "summary": _summary_to_data(found.summary) if found.summary else None})


def _summary_to_data(summary: Summary) -> dict[str, Any]:
    """Return a summary with its names in camelCase; the names of categories, tags and models are unchanged."""
    data = summary.as_data()
    by = {name: {value: to_camel_case(rate) for value, rate in rows.items()} for name, rows in data.pop("by").items()}
    rubric = {"rubric": data.pop("rubric")} if "rubric" in data else {}
    by_model = {
        model: {name: {value: to_camel_case(rate) for value, rate in rows.items()} for name, rows in each.items()}
        for model, each in data.pop("by_model", {}).items()
    }
    return {**to_camel_case(data), **rubric, "by": by, **({"byModel": by_model} if by_model else {})}


_CASE_DESCRIPTION = "ID or digest of a case"
_TEXT_DESCRIPTION = "Part of a case's ID"
_TAG_DESCRIPTION = "Tag of the case"


@router.get("/api/runs/{run_id}/results", summary="List results", **document_route(list[ResultView], 404))
async def list_results(
    run_id: RunIdWithScoring,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(runs.list_results)],
    page: PageNumber = 1,
    page_size: PageSize = 50,
    outcome: Outcome | None = None,
    model: Annotated[str | None, Query(max_length=MAX_NAME_LENGTH)] = None,
    case: Annotated[str | None, Query(max_length=MAX_NAME_LENGTH, description=_CASE_DESCRIPTION)] = None,
    text: Annotated[str | None, Query(max_length=MAX_NAME_LENGTH, description=_TEXT_DESCRIPTION)] = None,
    tag: Annotated[str | None, Query(max_length=MAX_NAME_LENGTH, description=_TAG_DESCRIPTION)] = None,
) -> Response:
    """Return results in the order they were stored, each with the beginning of its reply."""
    wanted = runs.ResultFilter(
        outcome=outcome, model=model, case=case, text=text, tag=tag, page=page, page_size=page_size
    )
    found = await runs.list_results(app, caller, run_id, wanted)
    return make_success_response(found.items, make_page_meta(page, page_size, found.total))


@router.get("/api/runs/{run_id}/results/{seq}", summary="Read a result", **document_route(ResultDetailView, 404))
async def read_result(
    run_id: RunIdWithScoring,
    seq: Annotated[int, Path(ge=0, lt=2**63)],
    app: AppDependency,
    caller: Annotated[Credential, require_caller(runs.read_result)],
    outcome: Outcome | None = None,
    model: Annotated[str | None, Query(max_length=MAX_NAME_LENGTH)] = None,
    case: Annotated[str | None, Query(max_length=MAX_NAME_LENGTH, description=_CASE_DESCRIPTION)] = None,
    text: Annotated[str | None, Query(max_length=MAX_NAME_LENGTH, description=_TEXT_DESCRIPTION)] = None,
    tag: Annotated[str | None, Query(max_length=MAX_NAME_LENGTH, description=_TAG_DESCRIPTION)] = None,
) -> Response:
    """Return a full result: the request, the reply, and the checks with their evidence.

    `meta` has the numbers of the previous and the next result; with filters, of the nearest that pass them.
    """
    among = runs.ResultFilter(outcome=outcome, model=model, case=case, text=text, tag=tag)
    found = await runs.read_result(app, caller, run_id, seq, among)
    return make_success_response(found.result, {"previous": found.previous, "next": found.next})


@router.get("/api/runs/{run_id}/results/{seq}/call", summary="Read a call", **document_route(calls.CallView, 404))
async def read_call(
    run_id: RunIdWithScoring,
    seq: Annotated[int, Path(ge=0, lt=2**63)],
    app: AppDependency,
    caller: Annotated[Credential, require_caller(calls.read_call)],
    columns: Annotated[
        int, Query(ge=calls.MIN_COLUMNS, le=calls.MAX_COLUMNS, description="Number of peaks to return")
    ] = 800,
) -> Response:
    """Return a call's conversation, its turns, and the peaks of both sides, for drawing and seeking."""
    return make_success_response(await calls.read_call(app, caller, run_id, seq, columns))


@router.post("/api/runs/{run_id}/cancel", summary="Cancel a run", **document_route(RunView, 404, 409))
async def cancel_run(
    run_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(runs.cancel_run)]
) -> Response:
    """Request that a run be cancelled. It stops within seconds; stored results are kept."""
    return make_success_response(await runs.cancel_run(app, caller, run_id))


@router.post("/api/runs/{run_id}/resume", summary="Resume a run", **document_route(RunView, 404, 409, status=202))
async def resume_run(
    run_id: str,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(runs.resume_run)],
    body: ResumeBody | None = None,
) -> Response:
    """Queue a stopped, interrupted or cancelled run again; it continues with the missing results."""
    limits = body.limits.to_changed_limits() if body and body.limits else None
    return make_success_response(await runs.resume_run(app, caller, run_id, limits), status=202)


@router.get("/api/runs/{run_id}/scorings", summary="List scorings", **document_route(list[rescoring.ScoringView], 404))
async def list_scorings(
    run_id: RunId,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(rescoring.list_scorings)],
) -> Response:
    """Return the scorings of a run, oldest first. Number 0 came with the replies, and each `rescore` adds one."""
    return make_success_response(await rescoring.list_scorings(app, caller, run_id))


@router.post(
    "/api/runs/{run_id}/scorings/{number}/use",
    summary="Make a scoring current",
    **document_route(list[rescoring.ScoringView], 404),
)
async def use_scoring(
    run_id: str,
    number: Annotated[int, Path(ge=0, lt=2**31)],
    app: AppDependency,
    caller: Annotated[Credential, require_caller(rescoring.use_scoring)],
) -> Response:
    """Read a run by this scoring until it is rescored, and return all of its scorings."""
    return make_success_response(await rescoring.use_scoring(app, caller, run_id, number))


@router.patch("/api/runs/{run_id}", summary="Change a run", **document_route(RunView, 404))
async def edit_run(
    run_id: str, body: RunEditBody, app: AppDependency, caller: Annotated[Credential, require_caller(runs.edit_run)]
) -> Response:
    """Change the name or the note of a run; fields left out stay as they are, and an empty text removes one."""
    return make_success_response(await runs.edit_run(app, caller, run_id, body.to_run_edit()))


@router.delete("/api/runs/{run_id}", summary="Delete a run", **document_route(None, 404, 409))
async def delete_run(
    run_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(runs.delete_run)]
) -> Response:
    """Delete a run with all of its results; an active run must be cancelled first."""
    await runs.delete_run(app, caller, run_id)
    return make_success_response(None)


@router.get(
    "/api/runs/{run_id}/export",
    summary="Export a run",
    **document_route(
        None,
        404,
        status_200={
            "description": "The file",
            "content": {
                **{kind.partition(";")[0]: {"schema": {"type": "string"}} for kind, _ in _EXPORT_MEDIA_TYPES.values()},
                "application/vnd.apache.parquet": {"schema": {"type": "string", "format": "binary"}},
                "application/json": {"schema": {}},
            },
        },
    ),
)
async def export_run(
    run_id: RunIdWithScoring,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(runs.render_run)],
    format_: Annotated[Format, Query(alias="format")] = "json",
) -> Response:
    """Return a run's results as a file: `results.json`, JSON Lines, CSV, Parquet, JUnit, Markdown or one HTML page."""
    kind, ending = _EXPORT_MEDIA_TYPES[format_]
    found, file = await runs.render_run(app, caller, run_id, lambda *given: _write_export(format_, *given))
    headers = {"content-disposition": f'attachment; filename="{found}.{ending}"'}
    return StreamingResponse(read_chunks(file, sys.maxsize), 200, headers, kind)


def _write_export(format_: Format, run: Run, results: Iterator[tuple[Case, Result]]) -> tuple[str, IO[bytes]]:
    """Write the file to a temporary one, so that a failure can still be reported; return the run's id and the file."""
    file = SpooledTemporaryFile(4 << 20)  # noqa: SIM115 - closed after sending
    try:
        if find_exporter(format_).binary:
            export(format_, run, results, file)
        else:
            out = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
            export(format_, run, results, out)
            out.flush()
            out.detach()
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return run.id, file


# ── Comparisons ──


@router.get(
    "/api/runs/{run_id}/baseline",
    summary="Check a run against a baseline",
    **document_route(BaselineCheckView, 404, 409),
)
async def check_run_against_baseline(
    run_id: RunIdWithScoring,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(baselines.check_run_against_baseline)],
    baseline: Annotated[
        str,
        Query(
            min_length=1,
            max_length=200,
            description="ID of a run, or a name: of those with the name that began before this run, the newest "
            "finished one",
        ),
    ],
    fail_on: Annotated[
        FailOn,
        Query(alias="failOn", description="inconclusive: exit code 4 unless a loss as large as the margin is excluded"),
    ] = "regression",
    margin: Annotated[float, Query(ge=0, le=100, description="Largest acceptable loss, in points")] = 5.0,
) -> Response:
    """Compare a run that has ended with a baseline, model by model, and decide whether it got worse.

    `exitCode` is the exit code of `pramana run --baseline`, for a script to end with.
    """
    wanted = baselines.BaselineRequest(baseline=baseline, fail_on=fail_on, margin=margin)
    return make_success_response(await baselines.check_run_against_baseline(app, caller, run_id, wanted))


@compare_router.get("/api/compare", summary="Compare two runs", **document_route(ComparisonView, 404))
async def compare_runs(
    app: AppDependency,
    caller: Annotated[Credential, require_caller(comparisons.compare_runs)],
    base: Annotated[str, Query(min_length=1, max_length=200)],
    new: Annotated[str, Query(min_length=1, max_length=200)],
    page: PageNumber = 1,
    page_size: PageSize = 50,
    model: Annotated[str | None, Query(max_length=500)] = None,
    new_model: Annotated[str | None, Query(alias="newModel", max_length=500)] = None,
    *,
    any_suite: Annotated[bool, Query(alias="anySuite")] = False,
    any_judge: Annotated[bool, Query(alias="anyJudge")] = False,
    margin: Annotated[float, Query(ge=0, le=100, description="Largest acceptable loss, in points")] = 5.0,
) -> Response:
    """Compare two runs case by case; if a run has several models, name one.

    Changed cases come in pages, those that pass less often first. If a choice is missing, the error's details name it
    as their `path`: model, newModel or anySuite.
    """
    wanted = comparisons.CompareRequest(
        base=base,
        new=new,
        model=model,
        new_model=new_model,
        any_suite=any_suite,
        any_judge=any_judge,
        margin=margin,
        page=page,
        page_size=page_size,
    )
    found = await comparisons.compare_runs(app, caller, wanted)
    return make_success_response(found, make_page_meta(page, page_size, found.lost + found.gained))


@compare_router.get(
    "/api/compare/table", summary="Compare three and more runs or models", **document_route(ComparisonTableView, 404)
)
async def compare_several_runs(
    app: AppDependency,
    caller: Annotated[Credential, require_caller(comparison_tables.compare_several_runs)],
    run: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=200)]],
        Query(max_length=MAX_SIDES_WITH_REFERENCE, description="Run; repeat for several, or one with several models"),
    ],
    against: Annotated[
        str | None, Query(max_length=500, description="Run, or model of the only run, to compare every other side with")
    ] = None,
    model: Annotated[str | None, Query(max_length=500)] = None,
    new_model: Annotated[str | None, Query(alias="newModel", max_length=500)] = None,
    *,
    any_suite: Annotated[bool, Query(alias="anySuite")] = False,
    any_judge: Annotated[bool, Query(alias="anyJudge")] = False,
    margin: Annotated[float, Query(ge=0, le=100, description="Largest acceptable loss, in points")] = 5.0,
) -> Response:
    """Compare every two of up to ten sides, or each side with one of them; all pairs are decided together (Holm).

    The sides are all models of one run, or one model of each run. If a choice is missing, the error's details name it
    as their `path`: model, against or anySuite.
    """
    wanted = comparison_tables.CompareSeveralRequest(
        run=tuple(run),
        against=against,
        model=model,
        new_model=new_model,
        any_suite=any_suite,
        any_judge=any_judge,
        margin=margin,
    )
    return make_success_response(await comparison_tables.compare_several_runs(app, caller, wanted))
