"""`/api/runs`: runs made, shown, cancelled, resumed, deleted and taken elsewhere; a server carries them out.

Which one does, or whether it is the command line of some machine, makes no difference to who looks at them.
"""

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from msgspec.structs import fields
from pydantic import Field
from pydantic.alias_generators import to_camel
from starlette.concurrency import run_in_threadpool

from pramana import planning
from pramana.app import App
from pramana.errors import InvalidInput, NotFound
from pramana.load.scenario import ScenarioType
from pramana.model import Difficulty, Outcome, Run, RunStatus
from pramana.request import Limits, RunRequest, Selection, published_name
from pramana.run.accounts import Reach
from pramana.show.api.envelope import Answered, Body, PageNumber, PageSize, answer, body_of, documented, page_meta
from pramana.show.api.run_shapes import (
    EstimateShape,
    ResultDetailShape,
    ResultShape,
    RunDetailShape,
    RunShape,
    brief,
    of_estimate,
    of_plan,
    of_run,
    of_spread,
    of_summary,
    whole,
)
from pramana.show.api.serving import Editor, Here, Viewer
from pramana.show.exports import Format, export
from pramana.show.findings import Findings
from pramana.store.lease import shown

router = APIRouter(tags=["runs"])
MOST_IDS = 1_000
MOST_MODELS = 50
LONGEST_NAME = 500
_PIECE = 1 << 18
_COMMAND = re.compile(r"; [a-z ]+: pramana [a-z]+$")
_EXPORTED: Mapping[Format, tuple[str, str]] = {
    "json": ("application/json", "json"),
    "csv": ("text/csv; charset=utf-8", "csv"),
    "junit": ("application/xml", "xml"),
    "markdown": ("text/markdown; charset=utf-8", "md"),
    "html": ("text/html; charset=utf-8", "html"),
}
_Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
_Several = _Name | Annotated[list[_Name], Field(max_length=100)] | None


# ── What is sent ──


class _LimitsBody(Body):
    """What a run may spend, all its sittings together, and how hard it may press."""

    def limits(self) -> Limits:
        """Return them under our own names."""
        return Limits(**{name: getattr(self, published) for name, published in _PUBLISHED_LIMITS.items()})


_PUBLISHED_LIMITS = {each.name: published_name(each) for each in fields(Limits)}
"""What the API calls each limit."""


class ScenariosBody(Body):
    """Which scenarios of this server. Within one filter any value matches, but for `allTags`."""

    ids: Annotated[list[_Name], Field(max_length=MOST_IDS)] = Field(default_factory=list)
    type: ScenarioType | list[ScenarioType] | None = None
    difficulty: Difficulty | list[Difficulty] | None = None
    language: _Several = None
    tag: _Several = Field(default=None, description="Any of these; `domain:` stands for its branch")
    all_tags: _Several = Field(default=None, description="All of these")
    text: Annotated[str, Field(max_length=LONGEST_NAME)] = ""


class _RunBody(Body):
    """The run that is wanted."""

    dry_run: bool = Field(default=False, description="Only estimate what it would take")

    def request(self) -> RunRequest:
        """Return it as everyone else makes it."""
        sent = {name: getattr(self, name) for name in type(self).model_fields if name in RunRequest.__struct_fields__}
        sent |= {"models": tuple(sent["models"]), "scenarios": _selection(sent["scenarios"])}
        limits: _LimitsBody | None = sent["limits"]
        sent["limits"] = limits.limits() if limits else Limits()
        modality = _listed(getattr(self, "modality"))  # noqa: B009 - a field that is made below
        return RunRequest(**sent, modalities=tuple(modality) if modality else None)


if TYPE_CHECKING:
    LimitsBody = _LimitsBody
    RunBody = _RunBody
else:
    LimitsBody = body_of(Limits, _LimitsBody, "LimitsBody")
    RunBody = body_of(
        RunRequest,
        _RunBody,
        "RunBody",
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


def _usual(body: type[Body], within: str = "") -> dict[str, Any]:
    stated = ((to_camel(name), each) for name, each in body.model_fields.items() if not each.is_required())
    return {f"{within}{name}": each.get_default(call_default_factory=True) for name, each in stated}


USUAL: Mapping[str, Any] = {**_usual(RunBody), **_usual(LimitsBody, "limits.")}
"""What is sent, by its path (`limits.concurrency`), and what it is unless somebody says otherwise."""


class ResumeBody(Body):
    """How a run goes on; without limits, within those it had."""

    limits: LimitsBody | None = None


def _listed(given: Any) -> list[Any] | None:
    return given if given is None or isinstance(given, list) else [given]


def _selection(given: Any) -> Selection | None:
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
        categories=tuple(_listed(given.type) or ()),
        difficulties=tuple(_listed(given.difficulty) or ()),
        languages=tuple(_listed(given.language) or ()),
        tags=tuple(_listed(given.tag) or ()),
        all_tags=tuple(_listed(given.all_tags) or ()),
        text=given.text,
    )


# ── Which run ──


@contextmanager
def _in_our_words() -> Iterator[None]:
    """Say of a run that is not there where to look for runs here, instead of by which command."""
    try:
        yield
    except NotFound as error:
        raise NotFound(f"{_COMMAND.sub('', str(error))}; see GET /api/runs") from None


def _named(
    run_id: Annotated[str, Path(description="Its id, the beginning of one, or latest")], here: Here, _: Viewer
) -> str:
    with _in_our_words():
        return here.store.run(run_id).id


Named = Annotated[str, Depends(_named)]
"""The run that is read. What changes a run takes its whole id alone: `latest` may be another one by then."""


# ── Routes ──


def _starting() -> dict[str, Any]:
    told = documented(RunShape, 404, status=202, description="Queued: a server carries it out")
    told["responses"][200] = {"model": Answered[EstimateShape], "description": "What it would take (dryRun)"}
    return told


@router.post("/api/runs", summary="Start a run", **_starting())
def create_run(body: RunBody, here: Here, who: Editor) -> Response:
    """Queue a run, or with `dryRun` say what it would take. Follow it at `/api/runs/{id}/events`."""
    reach = Reach(for_others=True, allow_private=here.private_addresses_allowed())
    request = body.request()
    if body.dry_run:
        missing = planning.providers_missing_keys(here.store, request, reach)
        return answer(of_estimate(planning.estimate(here.store, request, reach), missing))
    made = planning.create_run(here.store, request, reach, who.name)
    here.on_queued()
    return answer(of_run(made), status=202)


@router.get("/api/runs", summary="List runs", **documented(list[RunShape]))
def list_runs(
    here: Here,
    _: Viewer,
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
    found, total = here.store.pages.runs(
        status=status, model=model, suite=suite, text=text, limit=page_size, offset=(page - 1) * page_size
    )
    history, unknown = here.store.history, [None] * len(found)
    ended = history.ended(found) if outcomes else unknown
    digests = history.cases_digests(found) if outcomes else unknown
    return answer(
        [of_run(*each) for each in zip(found, ended, digests, strict=True)], page_meta(page, page_size, total)
    )


@router.get("/api/runs/{run_id}", summary="Read a run", **documented(RunDetailShape, 404))
async def read_run(
    run_id: Named,
    request: Request,
    here: Here,
    _: Viewer,
    *,
    summary: Annotated[bool, Query(description="false: only how far it is, which takes no adding up")] = True,
) -> Response:
    """Return its plan, how far it is, what it amounts to, and how its times are spread."""
    findings: Findings = request.app.state.findings
    if summary:
        return await here.heavy(lambda: _read_run(run_id, here, findings))
    return await run_in_threadpool(_read_run, run_id, here, None)


def _read_run(run_id: str, here: App, findings: Findings | None) -> Response:
    run = here.store.pages.run(run_id)
    amounts, spread = findings.of(run) if findings else (None, None)
    holder, history = here.store.holder(run_id), here.store.history
    return answer(
        {
            **of_run(run, amounts.overall if amounts else history.ended([run])[0], history.cases_digests([run])[0]),
            "judges": amounts.judge_names if amounts else None,
            "plan": of_plan(run),
            "limits": {to_camel(_PUBLISHED_LIMITS[name]): value for name, value in run.limits.items()},
            "holder": shown(holder) if holder else None,
            "attempts": here.store.attempts(run_id),
            "notes": dict(run.notes),
            "summary": amounts and of_summary(amounts),
            "aggregates": spread and of_spread(spread),
        }
    )


@router.get("/api/runs/{run_id}/results", summary="List results", **documented(list[ResultShape], 404))
def list_results(
    run_id: Named,
    here: Here,
    _: Viewer,
    page: PageNumber = 1,
    page_size: PageSize = 50,
    outcome: Outcome | None = None,
    model: Annotated[str | None, Query(max_length=LONGEST_NAME)] = None,
    case: Annotated[str | None, Query(max_length=LONGEST_NAME, description="The id of a case, or its digest")] = None,
) -> Response:
    """Return results in the order they were stored, each with the beginning of its answer."""
    found, total = here.store.pages.results(
        run_id, outcome=outcome, model=model, case=case, limit=page_size, offset=(page - 1) * page_size
    )
    return answer([brief(seq, result) for seq, result in found], page_meta(page, page_size, total))


@router.get("/api/runs/{run_id}/results/{seq}", summary="Read a result", **documented(ResultDetailShape, 404))
def read_result(
    run_id: Named, seq: Annotated[int, Path(ge=0, lt=2**63)], here: Here, _: Viewer, outcome: Outcome | None = None
) -> Response:
    """Return all of it: what was asked, what came back, and how it was judged, with the evidence.

    `meta` has the numbers of the results before and after it, with `outcome` of the nearest that ended so.
    """
    case, result = here.store.pages.result(run_id, seq)
    prompt = here.store.pages.run(run_id).plan.system_prompt
    before, after = here.store.pages.beside(run_id, seq, outcome)
    return answer(
        {**brief(seq, result), **whole(case, result), "systemPrompt": prompt}, {"previous": before, "next": after}
    )


@router.post("/api/runs/{run_id}/cancel", summary="Cancel a run", **documented(RunShape, 404, 409))
def cancel_run(run_id: str, here: Here, _: Editor) -> Response:
    """Ask that it end. What is stored stays; whoever carries it out stops within seconds."""
    with _in_our_words():
        return answer(of_run(here.store.cancel(run_id)))


@router.post("/api/runs/{run_id}/resume", summary="Go on with a run", **documented(RunShape, 404, 409, status=202))
def resume_run(run_id: str, here: Here, _: Editor, body: ResumeBody | None = None) -> Response:
    """Queue a run again that was stopped, interrupted or cancelled: it goes on with what is missing."""
    limits = body.limits.limits().stored() if body and body.limits else None
    with _in_our_words():
        run = here.store.requeue(run_id, limits)
    here.on_queued()
    return answer(of_run(run), status=202)


@router.delete("/api/runs/{run_id}", summary="Delete a run", **documented(None, 404, 409))
def delete_run(run_id: str, here: Here, _: Editor) -> Response:
    """Delete it with all of its results; while somebody works on it, it must be cancelled first."""
    with _in_our_words():
        here.store.delete_run(run_id, unless_held=True)
    return answer(None)


def _exporting() -> dict[str, Any]:
    told = documented(None, 404)
    kinds = {kind.partition(";")[0]: {"schema": {"type": "string"}} for kind, _ in _EXPORTED.values()}
    told["responses"][200] = {"description": "The file", "content": {**kinds, "application/json": {"schema": {}}}}
    return told


@router.get("/api/runs/{run_id}/export", summary="Export a run", **_exporting())
async def export_run(
    run_id: Named, here: Here, _: Viewer, format_: Annotated[Format, Query(alias="format")] = "json"
) -> Response:
    """Return its results as a file: `results.json` as others use it, CSV, JUnit, Markdown or one HTML page."""
    kind, ending = _EXPORTED[format_]
    run, file = await here.heavy(lambda: _written(here, run_id, format_))
    headers = {"content-disposition": f'attachment; filename="{run.id}.{ending}"'}
    return StreamingResponse(_pieces(file), 200, headers, kind)


def _written(here: App, run_id: str, format_: Format) -> tuple[Run, IO[bytes]]:
    """Write the whole file aside, so that what goes wrong can still be said."""
    run = here.store.pages.run(run_id)
    file = SpooledTemporaryFile(4 << 20)  # noqa: SIM115 - whoever sends it closes it
    out = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
    try:
        export(format_, run, here.store.pairs(run.id), out)
        out.flush()
        out.detach()
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return run, file


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while piece := file.read(_PIECE):
            yield piece
