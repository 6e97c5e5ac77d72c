"""`/api/submit`, `/api/data/chart` and `/api/badge`: results of other people's runs in, daily charts and badges out.

These routes use the conventions of the community's client: names as in files (camelCase is accepted too), and `status`
beside `success`. msgspec decodes bodies straight from their bytes; only an invalid body is parsed a second time, to
report where and why. A 400 always means that nothing was stored.
"""

import re
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import create_model
from pydantic.alias_generators import to_camel

from pramana import jsonl
from pramana.app import Credential, community_watches, submissions
from pramana.app.community_watches import CommunityWatchRequest, CommunityWatchView
from pramana.app.submissions import (
    BADGE_PERIOD_DAYS,
    VERIFICATION_FIELD_DESCRIPTION,
    BatchSubmittedView,
    ChartPointView,
    ChartRequest,
    SubmittedView,
    SuiteVerification,
)
from pramana.errors import InvalidInput, Problem, escape_control_characters, quote_text, suggest_similar
from pramana.show.api.badges import BADGE_DOCUMENTATION, GREEN, GREY, RED, YELLOW, draw_badge, make_badge_response
from pramana.show.api.envelope import (
    AppDependency,
    document_route,
    inline_references,
    make_envelope_model,
    make_success_response,
    require_caller,
)
from pramana.store.submissions import (
    MAX_REPORTED_PROBLEMS,
    MAX_RESULTS_PER_BATCH,
    Batch,
    PassCounts,
    Status,
    Submission,
)

router = APIRouter(tags=["community"])
_Submitted = TypeVar("_Submitted", Submission, Batch)
_TOO_DEEP_MESSAGE = f"nested more than {jsonl.MAX_JSON_DEPTH} levels deep"
_encode = msgspec.json.Encoder().encode
_COLOURS_BY_MIN_PASS_RATE = ((0.9, GREEN), (0.7, YELLOW), (0.0, RED))


# ── Bodies and responses ──


def _document_request_body(body_type: type) -> dict[str, Any]:
    """Return the documentation of a body, made from the types that decode it."""
    (found,), defined = msgspec.json.schema_components((body_type,))
    content = {"application/json": {"schema": inline_references(found, defined)}}
    return {"requestBody": {"required": True, "content": content}}


def _document_response(view: type[msgspec.Struct], name: str) -> dict[str, Any]:
    """Return the documentation of a response, with `status` where the client expects it."""
    model = create_model(name, __base__=make_envelope_model(view), status=(Status, ...))
    return document_route(view, status_200={"model": model, "description": "Done"})


async def _read_request_body(request: Request) -> bytes:
    return await request.body()


_RequestBytes = Annotated[bytes, Depends(_read_request_body)]


# ── Routes ──


@router.post(
    "/api/submit",
    summary="Submit one result",
    openapi_extra=_document_request_body(Submission),
    **_document_response(SubmittedView, "SubmittedAnswer"),
)
async def submit(
    app: AppDependency, caller: Annotated[Credential, require_caller(submissions.submit)], body: _RequestBytes
) -> Response:
    """Store one result, marked by whether its suite is known; a prompt that a known suite does not have is refused.

    `verified` means only that the suite is known: the output and the score are stored as sent, and are not checked.
    """
    found = await submissions.submit(app, caller, await app.run_in_thread(lambda: _read_body(body, Submission)))
    return _status_response(found.status, found)


@router.post(
    "/api/submit/batch",
    summary="Submit up to 1,000 results",
    openapi_extra=_document_request_body(Batch),
    **_document_response(BatchSubmittedView, "BatchAnswer"),
)
async def submit_batch(
    app: AppDependency, caller: Annotated[Credential, require_caller(submissions.submit_batch)], body: _RequestBytes
) -> Response:
    """Store the results of a batch in one transaction.

    If a result does not fit the format, the error gives its number, and nothing is stored. A valid result that is
    refused (its suite has no such prompt) does not affect the others, which are stored; if all are refused, the
    response is a 400. The status is `duplicate` if nothing in the batch was new.
    """
    found = await submissions.submit_batch(app, caller, await app.run_in_thread(lambda: _read_body(body, Batch)))
    return _status_response("accepted" if found.accepted else "duplicate", found)


@router.get("/api/data/chart", summary="Results of models by day", **document_route(list[ChartPointView]))
async def chart(
    app: AppDependency,
    caller: Annotated[Credential, require_caller(submissions.read_chart)],
    verification: Annotated[
        SuiteVerification, Query(description=f"{VERIFICATION_FIELD_DESCRIPTION}; a chart never mixes them")
    ] = "verified",
    model: Annotated[str | None, Query(min_length=1, max_length=256)] = None,
    first: Annotated[
        date | None, Query(alias="from", description="First day (UTC); default: 89 days before `to`")
    ] = None,
    last: Annotated[date | None, Query(alias="to", description="Last day (UTC); default: today")] = None,
    models: Annotated[
        int, Query(ge=1, le=100, description="Maximum number of models, those with the most submissions first")
    ] = 20,
) -> Response:
    """Return a point for each model and day with submissions, by model and day."""
    wanted = ChartRequest(verification=verification, model=model, first=first, last=last, max_models=models)
    found = await submissions.read_chart(app, caller, wanted)
    days = {"from": found.first_day.isoformat(), "to": found.last_day.isoformat()}
    return make_success_response(
        found.points, {"verification": verification, **days, "models": found.total_model_count}
    )


def _status_response(status: Status, data: msgspec.Struct) -> Response:
    return Response(_encode({"success": True, "status": status, "data": data}), media_type="application/json")


# ── Reading ──


def _read_body(body: bytes, body_type: type[_Submitted]) -> _Submitted:
    """Return the decoded body; raises `InvalidInput` with every problem and its place."""
    try:
        found = msgspec.json.decode(body, type=body_type)
    except RecursionError:
        raise InvalidInput.from_problems([Problem(_TOO_DEEP_MESSAGE, "body")]) from None
    except msgspec.DecodeError:
        found = _read_and_collect_problems(body, body_type)
    problems = list(_find_nesting_problems(found))
    if problems:
        raise InvalidInput.from_problems(problems[:MAX_REPORTED_PROBLEMS], len(problems))
    return found


def _find_nesting_problems(body: Submission | Batch) -> Iterator[Problem]:
    """Yield a problem for each value nested too deeply for its later readers; most results have none to check."""
    several = isinstance(body, Batch)
    for index, each in enumerate(body.results if isinstance(body, Batch) else (body,)):
        verdict = each.assertion_result
        if each.metadata is None and (verdict is None or verdict.details is None):
            continue
        place = f"results[{index}]." if several else ""
        if jsonl.is_nested_deeper(each.metadata, jsonl.MAX_JSON_DEPTH):
            yield Problem(_TOO_DEEP_MESSAGE, f"{place}metadata")
        if verdict is not None and jsonl.is_nested_deeper(verdict.details, jsonl.MAX_JSON_DEPTH):
            yield Problem(_TOO_DEEP_MESSAGE, f"{place}assertion_result.details")


def _read_and_collect_problems(body: bytes, body_type: type[_Submitted]) -> _Submitted:
    try:
        value = jsonl.parse_rfc8259(body.decode(), refuse_infinite=True)
    except UnicodeDecodeError as error:
        raise InvalidInput.from_problems([Problem(f"not UTF-8, from byte {error.start + 1:,}", "body")]) from None
    except jsonl.BadJson as bad:
        raise InvalidInput.from_problems([Problem(f"not valid JSON: {bad.message}", "body", 1, bad.column)]) from None
    problems: list[Problem] = []
    value = _convert_to_snake_case(value, body_type, "", problems)
    if body_type is Batch and isinstance(value, dict) and isinstance(value.get("results"), list):
        sent = value["results"]
        if len(sent) > MAX_RESULTS_PER_BATCH:
            many = f"one request may contain at most {MAX_RESULTS_PER_BATCH:,} results, found {len(sent):,}"
            raise InvalidInput.from_problems([Problem(many, "results")])
        places = [f"results[{index}]" for index in range(len(sent))]
        value["results"] = [
            _convert_to_snake_case(each, Submission, place, problems) for each, place in zip(sent, places, strict=True)
        ]
        for each, place in zip(value["results"], places, strict=True):
            problems += _find_type_problems(each, Submission, place)
    problems = problems or list(_find_type_problems(value, body_type, ""))
    if problems:
        raise InvalidInput.from_problems(problems[:MAX_REPORTED_PROBLEMS], len(problems))
    return msgspec.convert(value, body_type)


def _convert_to_snake_case(value: Any, struct: type[msgspec.Struct], path_prefix: str, problems: list[Problem]) -> Any:
    """Return an object with its names as in files; a name in both spellings is a problem."""
    if not isinstance(value, dict):
        return value
    spelled: dict[str, str] = {to_camel(name): name for name in struct.__struct_fields__}
    read: dict[str, Any] = {}
    for name, each in value.items():
        known = spelled.get(str(name), str(name))
        if known in read:
            problems.append(Problem(f"{name} appears twice", f"{path_prefix}.{known}".removeprefix(".")))
        read[known] = each
    return read


def _find_type_problems(value: Any, struct: type[msgspec.Struct], path_prefix: str) -> Iterator[Problem]:
    try:
        msgspec.convert(value, struct)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        path = path_prefix + where.rstrip("`")
        if unknown := re.fullmatch("Object contains unknown field `(.*)`", message, re.DOTALL):
            hint = suggest_similar(unknown[1], struct.__struct_fields__) if not where else ""
            message = f"there is no field {quote_text(unknown[1])}{hint}"
        yield Problem(
            escape_control_characters(message.replace("`", "")),
            escape_control_characters(path.removeprefix(".")[:200]) or "body",
        )


# ── The public watch ──


@router.get("/api/data/watch", summary="Has a model become worse?", **document_route(CommunityWatchView, 404))
async def community_watch(
    app: AppDependency,
    caller: Annotated[Credential, require_caller(community_watches.read_community_watch)],
    model: Annotated[str, Query(min_length=1, max_length=256)],
    suite: Annotated[
        str | None, Query(max_length=100, description="Hash of the suite; default: the one with the most contributors")
    ] = None,
) -> Response:
    """Return whether a model became worse, by the submitted results of at least five contributors.

    Each contributor, a token of this server, has their own baseline and statistic; up to three in ten may report what
    they like. Anonymous results and those of unknown suites do not count, nor does a day before it is over (UTC).
    """
    wanted = CommunityWatchRequest(model=model, suite_hash=suite)
    return make_success_response(await community_watches.read_community_watch(app, caller, wanted))


# ── Badges ──


@router.get("/api/badge/{model:path}", summary="A badge for a model", **BADGE_DOCUMENTATION)
async def badge(
    model: str,
    request: Request,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(submissions.count_badge_passes)],
) -> Response:
    """Return the share of scored results of known suites that passed in the last 30 days, and how many there were.

    Scores are as they were submitted. A server that accepts anonymous results shows badges to anonymous callers too,
    because a badge is embedded in pages that have no token.
    """
    counts = await submissions.count_badge_passes(app, caller, model)
    public = app.preferences().anonymous_submission
    return make_badge_response(request, draw_model_badge(model, counts), is_public=public)


def draw_model_badge(model: str, counts: PassCounts) -> str:
    """Return a model's badge as SVG; the model's name is escaped.

    >>> "unknown" in draw_model_badge("m", PassCounts(0, 0)), "60 % of 5" in draw_model_badge("m", PassCounts(3, 5))
    (True, True)
    """
    if not counts.scored:
        return draw_badge(model, "unknown", f"no results of known suites in {BADGE_PERIOD_DAYS} days", GREY)
    share = counts.passed / counts.scored
    colour = next(each for bar, each in _COLOURS_BY_MIN_PASS_RATE if share >= bar)
    passed = f"{counts.passed:,} of {counts.scored:,} results of known suites passed in {BADGE_PERIOD_DAYS} days"
    # Rounded down, so that 100 % means no failure at all.
    return draw_badge(model, f"{int(share * 100)} % of {counts.scored:,}", passed, colour)
