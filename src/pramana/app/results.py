"""Results of a run: listed, and read one by one with the evidence."""

from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from pramana.app import App
from pramana.app.access import User, use_case
from pramana.app.views import (
    AssertionView,
    AudioView,
    CaseView,
    CheckView,
    ExpectedView,
    FailureView,
    LineView,
    ReplyView,
    ResultDetailView,
    ResultView,
    TurnView,
    result_view,
)
from pramana.model import Assertion, Case, Outcome, Reply, Result
from pramana.request import PageNumber, PageSize, Searched


class ResultFilter(Struct, frozen=True, kw_only=True):
    """Which results of a run, in the order they were stored."""

    outcome: Outcome | None = None
    model: Searched | None = None
    case: Searched | None = None
    """The id of a case, or its digest."""
    page: PageNumber = 1
    page_size: PageSize = 50


class Results(NamedTuple):
    """One page of a list of results."""

    items: list[ResultView]
    total: int


class ResultBesides(NamedTuple):
    """A result, and the numbers of those before and after it."""

    result: ResultDetailView
    previous: int | None
    next: int | None


@use_case("viewer")
async def list_results(app: App, _: User, run_id: str, wanted: ResultFilter) -> Results:
    """Return results in the order they were stored, each with the beginning of its answer."""
    return await app.work(lambda: _list_results(app, run_id, wanted))


@use_case("viewer")
async def read_result(app: App, _: User, run_id: str, seq: int, outcome: Outcome | None = None) -> ResultBesides:
    """Return all of a result: what was asked, what came back, and how it was judged.

    With `outcome`, those beside it are the nearest that ended so.
    """
    return await app.work(lambda: _read_result(app, run_id, seq, outcome))


def _list_results(app: App, named: str, wanted: ResultFilter) -> Results:
    found, total = app.store.results.page(
        app.store.runs.find(named),
        outcome=wanted.outcome,
        model=wanted.model,
        case=wanted.case,
        limit=wanted.page_size,
        offset=(wanted.page - 1) * wanted.page_size,
    )
    return Results([result_view(seq, result) for seq, result in found], total)


def _read_result(app: App, named: str, seq: int, outcome: Outcome | None) -> ResultBesides:
    run = app.store.runs.find(named)
    case, result = app.store.results.read(run, seq)
    before, after = app.store.results.beside(run, seq, outcome)
    return ResultBesides(result_detail_view(seq, case, result, run.plan.system_prompt), before, after)


# ── Views ──


def result_detail_view(seq: int, case: Case, result: Result, system_prompt: str | None = None) -> ResultDetailView:
    """Return all of a result."""
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
            )
            for each in result.checks
        ),
        audio=AudioView(
            recording=_address(call.recording), log=_address(call.log), caller=tuple(map(_address, call.caller))
        )
        if call
        else None,
        result_hash=result.result_hash,
        digest=result.digest,
    )


def _reply_view(reply: Reply) -> ReplyView:
    return ReplyView(
        text=reply.text,
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
    return CaseView(
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


def _assertion_view(stated: Assertion | None) -> AssertionView | None:
    if stated is None:
        return None
    return AssertionView(
        type=stated.type,
        case_sensitive=stated.case_sensitive,
        threshold=stated.threshold,
        judge_prompt=stated.judge_prompt,
        schema=stated.schema,
    )


def _address(digest: str) -> str:
    return f"/audio/{digest}"
