"""`/api/runs`: runs made, shown, cancelled, resumed, deleted and taken elsewhere; a server carries them out.

Which one does, or whether it is the command line of some machine, makes no difference to who looks at them.
"""

import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from tempfile import SpooledTemporaryFile
from typing import IO, Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field
from pydantic.alias_generators import to_camel, to_snake
from starlette.concurrency import run_in_threadpool

from pramana import jobs
from pramana.bench import PARAMETERS, Limits, Reach, keyless
from pramana.errors import InvalidInput, NotFound, Problem
from pramana.jsonl import MAX_DEPTH, is_deeper
from pramana.load.scenario import ScenarioType
from pramana.model import Difficulty, Outcome, Run, RunStatus
from pramana.request import Selection
from pramana.show.api.envelope import Answered, Body, PageNumber, PageSize, answer, documented, page_meta
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
from pramana.show.api.serving import Editor, Here, Serving, Viewer
from pramana.show.exports import Format, export
from pramana.show.findings import Findings
from pramana.show.variants import variants
from pramana.store.lease import shown

router = APIRouter(tags=["runs"])
MOST_IDS = 1_000
MOST_MODELS = 50
LONGEST_NAME = 500
_PIECE = 1 << 18
_COMMAND = re.compile(r"; [a-z ]+: pramana [a-z]+$")
_LIMITS = {
    "maxCost": "max_cost_usd",
    "maxTotalTokens": "max_total_tokens",
    "deadlineSeconds": "deadline_s",
    "concurrency": "concurrency",
    "timeoutSeconds": "timeout_s",
}
_USUAL_LIMITS = Limits()
"""What holds where nobody names a limit."""
_EXPORTED: Mapping[Format, tuple[str, str]] = {
    "json": ("application/json", "json"),
    "csv": ("text/csv; charset=utf-8", "csv"),
    "junit": ("application/xml", "xml"),
    "markdown": ("text/markdown; charset=utf-8", "md"),
    "html": ("text/html; charset=utf-8", "html"),
}
_Name = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
_Several = _Name | Annotated[list[_Name], Field(max_length=100)] | None
_Seconds = Annotated[float, Field(gt=0, le=10**9, allow_inf_nan=False)]


# ── What is sent ──


class LimitsBody(Body):
    """What a run may spend, all its sittings together, and how hard it may press."""

    max_cost: Annotated[float, Field(gt=0, le=10**9, allow_inf_nan=False)] | None = Field(
        default=None, description="US dollars"
    )
    max_total_tokens: Annotated[int, Field(ge=1, le=10**15)] | None = None
    deadline_seconds: _Seconds | None = Field(default=None, description="Of one sitting")
    concurrency: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=_USUAL_LIMITS.concurrency, description="Requests under way at one provider"
    )
    timeout_seconds: _Seconds = Field(default=_USUAL_LIMITS.timeout_s, description="Of one request")

    def stored(self) -> dict[str, Any]:
        """Return those that were given, as a run keeps them."""
        found = {name: getattr(self, field) for field, name in ((to_snake(each), _LIMITS[each]) for each in _LIMITS)}
        return {name: value for name, value in found.items() if value is not None}


class ScenariosBody(Body):
    """Which scenarios of this server. Within one filter any value matches, but for `allTags`."""

    ids: Annotated[list[_Name], Field(max_length=MOST_IDS)] = Field(default_factory=list)
    type: ScenarioType | list[ScenarioType] | None = None
    difficulty: Difficulty | list[Difficulty] | None = None
    language: _Several = None
    tag: _Several = Field(default=None, description="Any of these; `domain:` stands for its branch")
    all_tags: _Several = Field(default=None, description="All of these")
    text: Annotated[str, Field(max_length=LONGEST_NAME)] = ""


class RunBody(Body):
    """The run that is wanted."""

    suite: _Name | None = Field(default=None, description="A suite version: v1.0")
    tier: _Name | None = Field(default=None, description="A tier of it: cheap")
    scenarios: Literal["all"] | Annotated[list[_Name], Field(max_length=MOST_IDS)] | ScenariosBody | None = Field(
        default=None, description="Scenarios of this server: all, some by their ids, or those that pass filters"
    )
    models: Annotated[list[_Name], Field(min_length=1, max_length=MOST_MODELS)]
    repeats: Annotated[int, Field(ge=1, le=1_000)] = 1
    modality: _Several = Field(default=None, description="text, voice, noisy; several as a list")
    condition: Annotated[str, Field(max_length=LONGEST_NAME)] | None = Field(
        default=None, description="noise=10dB,phone"
    )
    judge: _Name | None = Field(default=None, description="Who judges; null: each model itself")
    embedder: _Name | None = None
    stt: _Name | None = None
    voice: Literal["espeak", "piper"] = "espeak"
    system_prompt: Annotated[str, Field(max_length=1_000_000)] | None = None
    temperature: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] | None = Field(
        default=float(PARAMETERS["temperature"]), description="null sends none"
    )
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = Field(
        default=PARAMETERS["seed"], description="null sends none"
    )
    max_tokens: Annotated[int, Field(ge=1, le=10**9)] | None = Field(default=None, description="Of one reply")
    parameters: dict[str, Any] = Field(default_factory=dict, description="Any other, as the provider calls it")
    limits: LimitsBody | None = None
    dry_run: bool = Field(default=False, description="Only estimate what it would take")

    def wanted(self) -> jobs.Wanted:
        """Return it as `jobs` has it."""
        if is_deeper(self.parameters, MAX_DEPTH):
            raise InvalidInput.of([Problem(f"nested more than {MAX_DEPTH} levels deep", "parameters")])
        try:
            size = len(json.dumps(self.parameters, allow_nan=False))
        except ValueError:
            raise InvalidInput("parameters hold a number that JSON does not have (NaN, Infinity)") from None
        if size > MOST_PARAMETERS:  # every list of runs reads them
            raise InvalidInput(f"parameters have {size:,} characters as JSON, and {MOST_PARAMETERS:,} are the most")
        parameters = {**self.parameters, "temperature": self.temperature, "seed": self.seed}
        if self.max_tokens is not None:
            parameters["max_tokens"] = self.max_tokens
        found = variants(_listed(self.modality), self.condition) if self.modality or self.condition else None
        return jobs.Wanted(
            models=tuple(self.models),
            suite=self.suite,
            tier=self.tier,
            scenarios=_selection(self.scenarios),
            repeats=self.repeats,
            variants=None if found is None else tuple(found),
            judge=self.judge,
            embedder=self.embedder,
            stt=self.stt,
            voice=self.voice,
            system_prompt=self.system_prompt,
            parameters=parameters,
            limits=(self.limits or LimitsBody()).stored(),
        )


MOST_PARAMETERS = 64_000


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
    if body.dry_run:
        found = jobs.estimate(here.store, body.wanted(), reach)
        asked = [*body.models, *(each for each in (body.judge, body.embedder, body.stt) if each)]
        return answer(of_estimate(found, keyless(here.store, asked, reach)))
    made = jobs.create(here.store, body.wanted(), who.name, reach)
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


def _read_run(run_id: str, here: Serving, findings: Findings | None) -> Response:
    run = here.store.pages.run(run_id)
    amounts, spread = findings.of(run) if findings else (None, None)
    holder, history = here.store.holder(run_id), here.store.history
    return answer(
        {
            **of_run(run, amounts.overall if amounts else history.ended([run])[0], history.cases_digests([run])[0]),
            "judges": amounts.judge_names if amounts else None,
            "plan": of_plan(run),
            "limits": {name: run.limits[stored] for name, stored in _LIMITS.items() if stored in run.limits},
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
    limits = body.limits.stored() if body and body.limits else None
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


def _written(here: Serving, run_id: str, format_: Format) -> tuple[Run, IO[bytes]]:
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
