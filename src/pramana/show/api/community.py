"""`/api/submit`, `/api/data/chart` and `/api/badge`: results of anyone's runs in, what models said day by day out.

These routes speak as the community's client does: names as in files (camelCase is read too), and `status` beside
`success`. Bodies are read by msgspec straight from their bytes; only what does not fit is read a second time, to say
where and why. A 400 always means that nothing was stored.
"""

import hashlib
import re
from collections.abc import Iterator
from datetime import date
from html import escape
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import create_model
from pydantic.alias_generators import to_camel

from pramana import jsonl
from pramana.app import Credential, submissions
from pramana.app.submissions import (
    BADGE_DAYS,
    KNOWN_SUITE,
    BatchSubmittedView,
    ChartPointView,
    ChartRequest,
    SubmittedView,
    Verification,
)
from pramana.errors import InvalidInput, Problem, did_you_mean, quote, visible
from pramana.show.api.envelope import Here, answer, caller_of, documented, envelope_of, inlined
from pramana.store.submissions import MOST_PROBLEMS, MOST_RESULTS, Batch, Passed, Status, Submission

router = APIRouter(tags=["community"])
_Read = TypeVar("_Read", Submission, Batch)
_TOO_DEEP = f"nested more than {jsonl.MAX_DEPTH} levels deep"
_encode = msgspec.json.Encoder().encode
FRESH_S = 300
LONGEST = 40
"""Letters of a model that are shown."""
_KIND = "image/svg+xml"
_COLOURS = ((0.9, "#2d7d46"), (0.7, "#8a6d00"), (0.0, "#b3392f"))
_UNKNOWN = "#5f6368"
_PICTURE = """\
<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{label}: {said}">\
<title>{title}</title>\
<rect width="{left}" height="20" fill="#3c4043"/><rect x="{left}" width="{right}" height="20" fill="{colour}"/>\
<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">\
<text x="{left_middle}" y="14" textLength="{left_text}">{label}</text>\
<text x="{right_middle}" y="14" textLength="{right_text}">{said}</text></g></svg>
"""


# ── What is sent and answered ──


def _sent(kind: type) -> dict[str, Any]:
    """Return what a route says of its body: the very rules by which it is read."""
    (found,), defined = msgspec.json.schema_components((kind,))
    content = {"application/json": {"schema": inlined(found, defined)}}
    return {"requestBody": {"required": True, "content": content}}


def _with_status(view: type[msgspec.Struct], name: str) -> dict[str, Any]:
    """Return what a route says of its answers, with the status where the client looks for it."""
    model = create_model(name, __base__=envelope_of(view), status=(Status, ...))
    return documented(view, status_200={"model": model, "description": "Done"})


async def _body(request: Request) -> bytes:
    return await request.body()


_Bytes = Annotated[bytes, Depends(_body)]


# ── Routes ──


@router.post(
    "/api/submit",
    summary="Submit one result",
    openapi_extra=_sent(Submission),
    **_with_status(SubmittedView, "SubmittedAnswer"),
)
async def submit(here: Here, caller: Annotated[Credential, caller_of(submissions.submit)], body: _Bytes) -> Response:
    """Store one result, marked by whether its suite is known here; a prompt that a known suite lacks is refused.

    `verified` means only that: the output and the score are as they were sent, and are not checked.
    """
    found = await submissions.submit(here, caller, await here.work(lambda: _read(body, Submission)))
    return _answer(found.status, found)


@router.post(
    "/api/submit/batch",
    summary="Submit up to 1,000 results",
    openapi_extra=_sent(Batch),
    **_with_status(BatchSubmittedView, "BatchAnswer"),
)
async def submit_batch(
    here: Here, caller: Annotated[Credential, caller_of(submissions.submit_batch)], body: _Bytes
) -> Response:
    """Store the results of a batch in one transaction.

    What does not fit the format is told by its number, and nothing is stored. A result that fits and is refused (its
    suite has no such prompt) stands alone: the others are stored. When all are refused, that is a 400. The status is
    `duplicate` when nothing in it was new.
    """
    found = await submissions.submit_batch(here, caller, await here.work(lambda: _read(body, Batch)))
    return _answer("accepted" if found.accepted else "duplicate", found)


@router.get("/api/data/chart", summary="What models said, day by day", **documented(list[ChartPointView]))
async def chart(
    here: Here,
    caller: Annotated[Credential, caller_of(submissions.chart)],
    verification: Annotated[Verification, Query(description=f"{KNOWN_SUITE}; a chart never mixes them")] = "verified",
    model: Annotated[str | None, Query(min_length=1, max_length=256)] = None,
    first: Annotated[
        date | None, Query(alias="from", description="A day, in UTC; by default 89 days before to")
    ] = None,
    last: Annotated[date | None, Query(alias="to", description="A day, in UTC; by default today")] = None,
    models: Annotated[int, Query(ge=1, le=100, description="At most so many: those with the most submissions")] = 20,
) -> Response:
    """Return a point for each model and day with submissions, by model and day."""
    wanted = ChartRequest(verification=verification, model=model, first=first, last=last, models=models)
    found = await submissions.chart(here, caller, wanted)
    days = {"from": found.first.isoformat(), "to": found.last.isoformat()}
    return answer(found.points, {"verification": verification, **days, "models": found.models})


def _answer(status: Status, data: msgspec.Struct) -> Response:
    return Response(_encode({"success": True, "status": status, "data": data}), media_type="application/json")


# ── Reading ──


def _read(body: bytes, kind: type[_Read]) -> _Read:
    """Return what was sent; InvalidInput with every problem and its place when it does not fit."""
    try:
        found = msgspec.json.decode(body, type=kind)
    except RecursionError:
        raise InvalidInput.of([Problem(_TOO_DEEP, "body")]) from None
    except msgspec.DecodeError:
        found = _read_closely(body, kind)
    problems = list(_too_deep(found))
    if problems:
        raise InvalidInput.of(problems[:MOST_PROBLEMS], len(problems))
    return found


def _too_deep(read: Submission | Batch) -> Iterator[Problem]:
    """Yield what is nested deeper than anybody after us can take; of most results there is nothing to look into."""
    several = isinstance(read, Batch)
    for index, each in enumerate(read.results if isinstance(read, Batch) else (read,)):
        verdict = each.assertion_result
        if each.metadata is None and (verdict is None or verdict.details is None):
            continue
        place = f"results[{index}]." if several else ""
        if jsonl.is_deeper(each.metadata, jsonl.MAX_DEPTH):
            yield Problem(_TOO_DEEP, f"{place}metadata")
        if verdict is not None and jsonl.is_deeper(verdict.details, jsonl.MAX_DEPTH):
            yield Problem(_TOO_DEEP, f"{place}assertion_result.details")


def _read_closely(body: bytes, kind: type[_Read]) -> _Read:
    try:
        value = jsonl.parse_rfc8259(body.decode(), finite=True)
    except UnicodeDecodeError as error:
        raise InvalidInput.of([Problem(f"not UTF-8, from byte {error.start + 1:,}", "body")]) from None
    except jsonl.BadLine as bad:
        raise InvalidInput.of([Problem(f"this is no JSON: {bad.message}", "body", 1, bad.column)]) from None
    problems: list[Problem] = []
    value = _as_in_files(value, kind, "", problems)
    if kind is Batch and isinstance(value, dict) and isinstance(value.get("results"), list):
        sent = value["results"]
        if len(sent) > MOST_RESULTS:
            many = f"at most {MOST_RESULTS:,} results are taken at once, found {len(sent):,}"
            raise InvalidInput.of([Problem(many, "results")])
        places = [f"results[{index}]" for index in range(len(sent))]
        value["results"] = [
            _as_in_files(each, Submission, place, problems) for each, place in zip(sent, places, strict=True)
        ]
        for each, place in zip(value["results"], places, strict=True):
            problems += _misfits(each, Submission, place)
    problems = problems or list(_misfits(value, kind, ""))
    if problems:
        raise InvalidInput.of(problems[:MOST_PROBLEMS], len(problems))
    return msgspec.convert(value, kind)


def _as_in_files(value: Any, kind: type[msgspec.Struct], place: str, problems: list[Problem]) -> Any:
    """Return an object with its names as in files; one that stands there in both spellings is a problem."""
    if not isinstance(value, dict):
        return value
    spelled: dict[str, str] = {to_camel(name): name for name in kind.__struct_fields__}
    read: dict[str, Any] = {}
    for name, each in value.items():
        known = spelled.get(str(name), str(name))
        if known in read:
            problems.append(Problem(f"{name} is stated twice", f"{place}.{known}".removeprefix(".")))
        read[known] = each
    return read


def _misfits(value: Any, kind: type[msgspec.Struct], place: str) -> Iterator[Problem]:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$")
        path = place + where.rstrip("`")
        if unknown := re.fullmatch("Object contains unknown field `(.*)`", message, re.DOTALL):
            hint = did_you_mean(unknown[1], kind.__struct_fields__) if not where else ""
            message = f"there is no field {quote(unknown[1])}{hint}"
        yield Problem(visible(message.replace("`", "")), visible(path.removeprefix(".")[:200]) or "body")


# ── Badges ──


@router.get(
    "/api/badge/{model:path}",
    summary="A badge for a model",
    **documented(
        None,
        404,
        status_200={"description": "The badge", "content": {_KIND: {"schema": {"type": "string"}}}},
        status_304={"description": "As it was"},
    )
    | {"response_class": Response},
)
async def badge(
    model: str, request: Request, here: Here, caller: Annotated[Credential, caller_of(submissions.badge)]
) -> Response:
    """Return the share of scored results of known suites that passed in the last 30 days, and how many there were.

    Scores are as they were submitted. A server that takes results from anybody shows it to anybody: a badge stands on
    pages that have no token.
    """
    public = here.preferences().anonymous_submission
    picture = draw(model, await submissions.badge(here, caller, model)).encode()
    tag = f'"{hashlib.sha256(picture).hexdigest()[:32]}"'
    headers = {
        "Cache-Control": f"{'public' if public else 'private'}, max-age={FRESH_S}",
        "ETag": tag,
        "Cross-Origin-Resource-Policy": "cross-origin",
    }
    if tag in (each.strip() for each in request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=headers)
    return Response(picture, media_type=_KIND, headers=headers)


def draw(model: str, found: Passed) -> str:
    """Return a badge as SVG; whatever a model is called, it is text.

    >>> "unknown" in draw("<script>", Passed(0, 0)), "<script>" in draw("<script>", Passed(0, 0))
    (True, False)
    """
    name = visible(model)
    name = name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
    if found.scored:
        share = found.passed / found.scored
        # Rounded down: only what has no failure at all is 100 %.
        said, colour = f"{int(share * 100)} % of {found.scored:,}", next(each for bar, each in _COLOURS if share >= bar)
        title = f"{name}: {found.passed:,} of {found.scored:,} results of known suites passed in {BADGE_DAYS} days"
    else:
        said, colour, title = "unknown", _UNKNOWN, f"{name}: no results of known suites in {BADGE_DAYS} days"
    left_text, right_text = _width(name), _width(said)
    left, right = left_text + 12, right_text + 12
    return _PICTURE.format(
        width=left + right,
        left=left,
        right=right,
        left_text=left_text,
        right_text=right_text,
        left_middle=left / 2,
        right_middle=left + right / 2,
        label=escape(name),
        said=escape(said),
        title=escape(title),
        colour=colour,
    )


def _width(text: str) -> int:
    """Return about how wide a text is; the picture stretches it to fit."""
    return sum(11 if ord(each) > 0x2E80 else 7 for each in text) or 1
