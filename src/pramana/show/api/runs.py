"""`/api/runs` and `/api/compare`: runs made, shown, compared, cancelled, resumed, deleted and exported.

Which one does, or whether it is the command line of some machine, makes no difference to who looks at them.
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
from pydantic.alias_generators import to_camel

from pramana.analyse.summary import Summary
from pramana.app import Credential, calls, comparisons, runs
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
    make_answer,
    make_envelope_model,
    make_page_meta,
    read_pieces,
    require_caller,
    to_camel_case,
)

router = APIRouter(tags=["runs"])
compare = APIRouter(tags=["compare"])
RunId = Annotated[str, Path(description="Its id, the beginning of one, or latest")]
"""The run that is read. What changes a run takes its whole id alone: `latest` may be another one by then."""
MOST_IDS = 1_000
LONGEST_NAME = MAX_NAME_CHARS
_EXPORT_MEDIA_TYPES: Mapping[Format, tuple[str, str]] = {
    "json": ("application/json", "json"),
    "jsonl": ("application/x-ndjson", "jsonl"),
    "parquet": ("application/vnd.apache.parquet", "parquet"),
    "csv": ("text/csv; charset=utf-8", "csv"),
    "junit": ("application/xml", "xml"),
    "markdown": ("text/markdown; charset=utf-8", "md"),
    "html": ("text/html; charset=utf-8", "html"),
}
_Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
_Several = _Name | Annotated[list[_Name], Field(max_length=100)] | None


# ── What is sent ──


@add_fields_of(Limits)
class LimitsBody(Body):
    """What a run may spend, all its sittings together, and how hard it may press."""

    def to_limits(self) -> Limits:
        """Return them under our own names."""
        return Limits(**self._with_own_names(runs.PUBLISHED_LIMITS.values()))

    def to_changed_limits(self) -> dict[str, Any]:
        """Return those that were sent, under our own names."""
        return self._with_own_names(self.model_fields_set)

    def _with_own_names(self, wanted: Collection[str]) -> dict[str, Any]:
        named = runs.PUBLISHED_LIMITS.items()
        return {name: getattr(self, published) for name, published in named if published in wanted}


class ScenariosBody(Body):
    """Which scenarios of this server. Within one filter any value matches, but for `allTags`."""

    ids: Annotated[list[_Name], Field(max_length=MOST_IDS)] = Field(default_factory=list)
    type: ScenarioType | list[ScenarioType] | None = None
    difficulty: Difficulty | list[Difficulty] | None = None
    language: _Several = None
    tag: _Several = Field(default=None, description="Any of these; `domain:` stands for its branch")
    all_tags: _Several = Field(default=None, description="All of these")
    text: Annotated[str, Field(max_length=LONGEST_NAME)] = ""


@add_fields_of(
    RunRequest,
    scenarios=(
        Literal["all"] | Annotated[list[_Name], Field(max_length=MOST_IDS)] | ScenariosBody | None,
        Field(
            default=None,
            description="Scenarios of this server: all, some by their ids, or those that pass filters",
        ),
    ),
    modality=(_Several, Field(default=None, description="text, voice, noisy; several as a list")),
    limits=(LimitsBody | None, None),
)
class RunBody(Body):
    """The run that is wanted."""

    dry_run: bool = Field(default=False, description="Only estimate what it would take")

    def to_request(self) -> RunRequest:
        """Return it as everyone else makes it."""
        sent = {name: getattr(self, name) for name in type(self).model_fields if name in RunRequest.__struct_fields__}
        sent |= {"models": tuple(sent["models"]), "scenarios": _make_selection(sent["scenarios"])}
        limits: LimitsBody | None = sent["limits"]
        sent["limits"] = limits.to_limits() if limits else Limits()
        modality = _as_list(getattr(self, "modality"))  # noqa: B009 - a field that the decorator makes
        return RunRequest(**sent, modalities=tuple(modality) if modality else None)


def _body_defaults(body: type[Body], within: str = "") -> dict[str, Any]:
    stated = ((to_camel(name), each) for name, each in body.model_fields.items() if not each.is_required())
    return {f"{within}{name}": each.get_default(call_default_factory=True) for name, each in stated}


DEFAULTS: Mapping[str, Any] = {**_body_defaults(RunBody), **_body_defaults(LimitsBody, "limits.")}
"""What is sent, by its path (`limits.concurrency`), and what it is unless somebody says otherwise."""


@add_fields_of(RunEdit)
class RunEditBody(Body):
    """What changes of a run; what is left out or null stays as it is."""

    def changes(self) -> RunEdit:
        """Return them under our own names."""
        return RunEdit(**{name: getattr(self, name) for name in self.model_fields_set})


class ResumeBody(Body):
    """How a run goes on: it keeps its limits, except those that are sent."""

    limits: LimitsBody | None = None


def _as_list(given: Any) -> list[Any] | None:
    return given if given is None or isinstance(given, list) else [given]


def _make_selection(given: Any) -> Selection | None:
    if given is None:
        return None
    if given == "all":
        return Selection()
    if isinstance(given, list):
        if not given:
            raise InvalidInput('scenarios is an empty list; name some, or write "all"')
        return Selection(ids=tuple(given))
    return Selection(
        ids=tuple(given.ids),
        categories=tuple(_as_list(given.type) or ()),
        difficulties=tuple(_as_list(given.difficulty) or ()),
        languages=tuple(_as_list(given.language) or ()),
        tags=tuple(_as_list(given.tag) or ()),
        all_tags=tuple(_as_list(given.all_tags) or ()),
        text=given.text,
    )


# ── Routes ──


@router.post(
    "/api/runs",
    summary="Start a run",
    **document_route(
        RunView,
        404,
        status=202,
        description="Queued: a server carries it out",
        status_200={"model": make_envelope_model(EstimateView), "description": "What it would take (dryRun)"},
    ),
)
async def create_run(
    body: RunBody, app: AppDependency, caller: Annotated[Credential, require_caller(runs.create_run)]
) -> Response:
    """Queue a run, or with `dryRun` say what it would take. Follow it at `/api/runs/{id}/events`."""
    if body.dry_run:
        return make_answer(await runs.estimate_run(app, caller, body.to_request()))
    return make_answer(await runs.create_run(app, caller, body.to_request()), status=202)


@router.get("/api/runs", summary="List runs", **document_route(list[RunView]))
async def list_runs(
    app: AppDependency,
    caller: Annotated[Credential, require_caller(runs.list_runs)],
    page: PageNumber = 1,
    page_size: PageSize = 50,
    status: RunStatus | None = None,
    model: Annotated[str | None, Query(max_length=LONGEST_NAME)] = None,
    suite: Annotated[str | None, Query(max_length=LONGEST_NAME, description="Its name, or the beginning")] = None,
    text: Annotated[str | None, Query(max_length=LONGEST_NAME)] = None,
    *,
    outcomes: Annotated[
        bool, Query(description="Count how the results of each ended, and say by `casesDigest` which asked the same")
    ] = False,
) -> Response:
    """Return runs, newest first."""
    wanted = runs.RunFilter(
        status=status, model=model, suite=suite, text=text, outcomes=outcomes, page=page, page_size=page_size
    )
    found = await runs.list_runs(app, caller, wanted)
    return make_answer(found.items, make_page_meta(page, page_size, found.total))


@router.get("/api/runs/{run_id}", summary="Read a run", **document_route(RunDetailView, 404))
async def read_run(
    run_id: RunId,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(runs.read_run)],
    *,
    summary: Annotated[bool, Query(description="false: only how far it is, which takes no adding up")] = True,
) -> Response:
    """Return its plan, how far it is, what it amounts to, and how its times are spread."""
    read = runs.read_run if summary else runs.read_progress
    found = await read(app, caller, run_id)
    said = msgspec.to_builtins(replace(found, summary=None))
    return make_answer({**said, "summary": _summary_data(found.summary) if found.summary else None})


def _summary_data(summary: Summary) -> dict[str, Any]:
    """Return a summary in the names of the API; categories, tags and models keep their own."""
    data = summary.as_data()
    by = {name: {value: to_camel_case(rate) for value, rate in rows.items()} for name, rows in data.pop("by").items()}
    rubric = {"rubric": data.pop("rubric")} if "rubric" in data else {}
    by_model = {
        model: {name: {value: to_camel_case(rate) for value, rate in rows.items()} for name, rows in each.items()}
        for model, each in data.pop("by_model", {}).items()
    }
    return {**to_camel_case(data), **rubric, "by": by, **({"byModel": by_model} if by_model else {})}


_CASE = "The id of a case, or its digest"
_TEXT = "A part of the id of a case"
_TAG = "A tag of the case"


@router.get("/api/runs/{run_id}/results", summary="List results", **document_route(list[ResultView], 404))
async def list_results(
    run_id: RunId,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(runs.list_results)],
    page: PageNumber = 1,
    page_size: PageSize = 50,
    outcome: Outcome | None = None,
    model: Annotated[str | None, Query(max_length=LONGEST_NAME)] = None,
    case: Annotated[str | None, Query(max_length=LONGEST_NAME, description=_CASE)] = None,
    text: Annotated[str | None, Query(max_length=LONGEST_NAME, description=_TEXT)] = None,
    tag: Annotated[str | None, Query(max_length=LONGEST_NAME, description=_TAG)] = None,
) -> Response:
    """Return results in the order they were stored, each with the beginning of its answer."""
    wanted = runs.ResultFilter(
        outcome=outcome, model=model, case=case, text=text, tag=tag, page=page, page_size=page_size
    )
    found = await runs.list_results(app, caller, run_id, wanted)
    return make_answer(found.items, make_page_meta(page, page_size, found.total))


@router.get("/api/runs/{run_id}/results/{seq}", summary="Read a result", **document_route(ResultDetailView, 404))
async def read_result(
    run_id: RunId,
    seq: Annotated[int, Path(ge=0, lt=2**63)],
    app: AppDependency,
    caller: Annotated[Credential, require_caller(runs.read_result)],
    outcome: Outcome | None = None,
    model: Annotated[str | None, Query(max_length=LONGEST_NAME)] = None,
    case: Annotated[str | None, Query(max_length=LONGEST_NAME, description=_CASE)] = None,
    text: Annotated[str | None, Query(max_length=LONGEST_NAME, description=_TEXT)] = None,
    tag: Annotated[str | None, Query(max_length=LONGEST_NAME, description=_TAG)] = None,
) -> Response:
    """Return all of it: what was asked, what came back, and how it was judged, with the evidence.

    `meta` has the numbers of the results before and after it; with filters, of the nearest that pass them.
    """
    among = runs.ResultFilter(outcome=outcome, model=model, case=case, text=text, tag=tag)
    found = await runs.read_result(app, caller, run_id, seq, among)
    return make_answer(found.result, {"previous": found.previous, "next": found.next})


@router.get("/api/runs/{run_id}/results/{seq}/call", summary="Read a call", **document_route(calls.CallView, 404))
async def read_call(
    run_id: RunId,
    seq: Annotated[int, Path(ge=0, lt=2**63)],
    app: AppDependency,
    caller: Annotated[Credential, require_caller(calls.read_call)],
    columns: Annotated[int, Query(ge=calls.FEWEST, le=calls.MOST, description="Parts of which the peaks are")] = 800,
) -> Response:
    """Return its conversation, its turns and the peaks of both sides, to be drawn and sought in."""
    return make_answer(await calls.read_call(app, caller, run_id, seq, columns))


@router.post("/api/runs/{run_id}/cancel", summary="Cancel a run", **document_route(RunView, 404, 409))
async def cancel_run(
    run_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(runs.cancel_run)]
) -> Response:
    """Ask that it end. What is stored stays; whoever carries it out stops within seconds."""
    return make_answer(await runs.cancel_run(app, caller, run_id))


@router.post("/api/runs/{run_id}/resume", summary="Resume a run", **document_route(RunView, 404, 409, status=202))
async def resume_run(
    run_id: str,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(runs.resume_run)],
    body: ResumeBody | None = None,
) -> Response:
    """Queue a run again that was stopped, interrupted or cancelled: it goes on with what is missing."""
    limits = body.limits.to_changed_limits() if body and body.limits else None
    return make_answer(await runs.resume_run(app, caller, run_id, limits), status=202)


@router.patch("/api/runs/{run_id}", summary="Change a run", **document_route(RunView, 404))
async def edit_run(
    run_id: str, body: RunEditBody, app: AppDependency, caller: Annotated[Credential, require_caller(runs.edit_run)]
) -> Response:
    """Change its name or its note; what is left out stays, and an empty text removes."""
    return make_answer(await runs.edit_run(app, caller, run_id, body.changes()))


@router.delete("/api/runs/{run_id}", summary="Delete a run", **document_route(None, 404, 409))
async def delete_run(
    run_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(runs.delete_run)]
) -> Response:
    """Delete it with all of its results; while somebody works on it, it must be cancelled first."""
    await runs.delete_run(app, caller, run_id)
    return make_answer(None)


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
    run_id: RunId,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(runs.render_run)],
    format_: Annotated[Format, Query(alias="format")] = "json",
) -> Response:
    """Return its results as a file: `results.json`, JSON Lines, CSV, Parquet, JUnit, Markdown or one HTML page."""
    kind, ending = _EXPORT_MEDIA_TYPES[format_]
    found, file = await runs.render_run(app, caller, run_id, lambda *given: _write_export(format_, *given))
    headers = {"content-disposition": f'attachment; filename="{found}.{ending}"'}
    return StreamingResponse(read_pieces(file, sys.maxsize), 200, headers, kind)


def _write_export(format_: Format, run: Run, results: Iterator[tuple[Case, Result]]) -> tuple[str, IO[bytes]]:
    """Write the whole file aside, so that what goes wrong can still be said; return the run's id and the file."""
    file = SpooledTemporaryFile(4 << 20)  # noqa: SIM115 - whoever sends it closes it
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


@compare.get("/api/compare", summary="Compare two runs", **document_route(ComparisonView, 404))
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
) -> Response:
    """Pair the cases of two runs and weigh the evidence; of runs with several models, name one.

    Cases that changed come in pages, those that pass less often first. What has to be chosen before they can be
    compared is the `path` of a refusal's details: model, newModel or anySuite.
    """
    wanted = comparisons.CompareRequest(
        base=base,
        new=new,
        model=model,
        new_model=new_model,
        any_suite=any_suite,
        any_judge=any_judge,
        page=page,
        page_size=page_size,
    )
    found = await comparisons.compare_runs(app, caller, wanted)
    return make_answer(found, make_page_meta(page, page_size, found.lost + found.gained))
