"""`/api/submit` and `/api/data/chart`: results of anyone's runs in, what models said day by day out.

These routes speak as the community's client does: names as in files (camelCase is read too), and `status` beside
`success`. Bodies are read by msgspec straight from their bytes; only what does not fit is read a second time, to say
where and why. A 400 always means that nothing was stored.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field
from pydantic.alias_generators import to_camel

from pramana import clock, jsonl
from pramana.app import App
from pramana.app.access import Unauthorized, User
from pramana.errors import InvalidInput, Problem, did_you_mean, quote, visible
from pramana.show.api.envelope import Answered, Shape, answer, documented
from pramana.show.api.serving import Here, Viewer, user_of
from pramana.store.submissions import ANONYMOUS, MOST_PROBLEMS, MOST_RESULTS, Batch, Submission

router = APIRouter(tags=["community"])
MOST_DAYS = 366
HINTED = 1_000
"""Prompts of a suite among which the one that was meant is looked for."""
_Read = TypeVar("_Read", Submission, Batch)
_Verification = Literal["verified", "unverified"]
_HASH = re.compile("sha256:[0-9a-f]{64}")
_TOO_DEEP = f"nested more than {jsonl.MAX_DEPTH} levels deep"
_encode = msgspec.json.Encoder().encode


# ── What is sent and answered ──


class Submitted(BaseModel):
    """What became of one result."""

    id: str = Field(description="Of what is stored; a duplicate of the same day has the id of the first")
    status: Literal["accepted", "duplicate"]
    verification: _Verification
    time: str
    batch: str


class Told(BaseModel):
    """What became of one result of a batch."""

    id: str | None
    status: Literal["accepted", "duplicate", "refused"]
    verification: _Verification | None
    reason: str | None = Field(description="Why it was refused")


class BatchSubmitted(BaseModel):
    """What became of a batch."""

    batch: str
    time: str
    accepted: int
    duplicates: int
    refused: int
    results: list[Told] = Field(description="In the order in which they were sent")


class SubmittedAnswer(Answered[Submitted]):
    """An answer with the status where the client looks for it."""

    status: Literal["accepted", "duplicate"]


class BatchAnswer(Answered[BatchSubmitted]):
    """An answer with the status of the whole: `duplicate` when nothing in it was new."""

    status: Literal["accepted", "duplicate"]


class ChartPoint(Shape):
    """One model on one day."""

    model: str
    day: str
    submissions: int = Field(description="Different content: each contributor's once")
    duplicates: int = Field(description="How often such content was sent again on this day")
    prompts: int
    distinct_outputs: int = Field(description="Of each prompt, added up")
    changed_prompts: int = Field(description="Whose outputs differ from those of the last day before that has any")
    consistency: float = Field(description="The share of prompts with one output only")


def _sent(kind: type) -> dict[str, Any]:
    """Return what a route says of its body: the very rules by which it is read."""
    (found,), defined = msgspec.json.schema_components((kind,))

    def whole(part: Any) -> Any:
        if isinstance(part, dict):
            if "$ref" in part:
                return whole(defined[part["$ref"].rpartition("/")[2]])
            return {name: whole(each) for name, each in part.items()}
        return [whole(each) for each in part] if isinstance(part, list) else part

    content = {"application/json": {"schema": whole(found)}}
    return {"requestBody": {"required": True, "content": content}}


def _told(shape: Any, model: type) -> dict[str, Any]:
    said = documented(shape)
    said["responses"][200]["model"] = model
    return said


async def _body(request: Request) -> bytes:
    return await request.body()


async def _submitter(request: Request, here: Here) -> User:
    """Return whoever submits: anyone with a token; without one, where an administrator allows it."""
    found = user_of(request)
    if found.role is None and not here.preferences().anonymous_submission:
        raise Unauthorized("to submit needs a token: send it as Authorization: Bearer TOKEN")
    return found


_Bytes = Annotated[bytes, Depends(_body)]
_Submitter = Annotated[User, Depends(_submitter)]


# ── Routes ──


@router.post(
    "/api/submit",
    summary="Submit one result",
    openapi_extra=_sent(Submission),
    **_told(Submitted, SubmittedAnswer),
)
def submit(body: _Bytes, here: Here, who: _Submitter) -> Response:
    """Store one result. Of a suite that is known here it is verified; a prompt which that suite has not is refused."""
    result = _read(body, Submission)
    batch = Batch([result])
    (found,) = _verified(here, batch)
    if isinstance(found, str):
        raise InvalidInput(found, [Problem(found, "prompt_id" if result.suite_hash else "suite_hash")])
    try:
        receipt = here.store.submissions.add(batch, [found], who.token_id or ANONYMOUS)
    except InvalidInput as error:
        problems = [Problem(each.message, each.path.partition(".")[2]) for each in error.problems]
        raise InvalidInput.of(problems) from None
    (status,) = receipt.statuses
    data = {
        "id": receipt.ids[0],
        "status": status,
        "verification": _word(found),
        "time": receipt.received,
        "batch": receipt.batch,
    }
    return _answer(status, data)


@router.post(
    "/api/submit/batch",
    summary="Submit up to 1,000 results",
    openapi_extra=_sent(Batch),
    **_told(BatchSubmitted, BatchAnswer),
)
def submit_batch(body: _Bytes, here: Here, who: _Submitter) -> Response:
    """Store the results of a batch in one transaction.

    What does not fit the format is told by its number, and nothing is stored. A result that fits and is refused (its
    suite has no such prompt) stands alone: the others are stored. When all are refused, that is a 400.
    """
    batch = _read(body, Batch)
    found = _verified(here, batch)
    taken = [each for each in found if not isinstance(each, str)]
    if not taken:
        problems = [Problem(str(why), f"results[{index}]") for index, why in enumerate(found)]
        raise InvalidInput(f"none of the results can be taken: {found[0]}", problems)
    kept = batch
    if len(taken) < len(found):
        some = [each for each, fits in zip(batch.results, found, strict=True) if not isinstance(fits, str)]
        kept = msgspec.structs.replace(batch, results=some)
    receipt = here.store.submissions.add(kept, taken, who.token_id or ANONYMOUS)
    stored = zip(receipt.ids, receipt.statuses, strict=True)
    results = []
    for each in found:
        if isinstance(each, str):
            results.append({"id": None, "status": "refused", "verification": None, "reason": each})
        else:
            number, status = next(stored)
            results.append({"id": number, "status": status, "verification": _word(each), "reason": None})
    accepted = receipt.statuses.count("accepted")
    data = {
        "batch": receipt.batch,
        "time": receipt.received,
        "accepted": accepted,
        "duplicates": len(taken) - accepted,
        "refused": len(found) - len(taken),
        "results": results,
    }
    return _answer("accepted" if accepted else "duplicate", data)


@router.get("/api/data/chart", summary="What models said, day by day", **documented(list[ChartPoint]))
def chart(
    here: Here,
    _: Viewer,
    verification: Annotated[_Verification, Query(description="Never both: they are kept apart")] = "verified",
    model: Annotated[str | None, Query(min_length=1, max_length=256)] = None,
    first: Annotated[
        date | None, Query(alias="from", description="A day, in UTC; by default 89 days before to")
    ] = None,
    last: Annotated[date | None, Query(alias="to", description="A day, in UTC; by default today")] = None,
    models: Annotated[int, Query(ge=1, le=100, description="At most so many: those with the most submissions")] = 20,
) -> Response:
    """Return a point for each model and day with submissions, by model and day."""
    last = last or clock.now().date()
    first = first or last - min(timedelta(days=89), last - date.min)
    if not 0 <= (last - first).days < MOST_DAYS:
        raise InvalidInput(f"from must not be after to, and at most {MOST_DAYS} days are shown at once")
    points, there = here.store.submissions.chart(
        verified=verification == "verified",
        first=first.isoformat(),
        last=last.isoformat(),
        model=model,
        models=models,
    )
    shown = [
        {
            "model": each.model,
            "day": each.day,
            "submissions": each.submissions,
            "duplicates": each.duplicates,
            "prompts": each.prompts,
            "distinctOutputs": each.outputs,
            "changedPrompts": each.changed,
            "consistency": each.consistency,
        }
        for each in points
    ]
    return answer(
        shown, {"verification": verification, "from": first.isoformat(), "to": last.isoformat(), "models": there}
    )


def _answer(status: str, data: Mapping[str, Any]) -> Response:
    return Response(_encode({"success": True, "status": status, "data": data}), media_type="application/json")


def _word(verified: bool) -> _Verification:
    return "verified" if verified else "unverified"


# ── Whether results can be taken ──


def _verified(here: App, batch: Batch) -> list[bool | str]:
    """Return of each result whether its suite is known here; or why it cannot be taken."""
    named = {suite for suite in map(batch.suite_of, batch.results) if _HASH.fullmatch(suite)}
    suites = here.known_suites.facts_of(named)
    strict = here.preferences().refuse_unverified
    found: list[bool | str] = []
    hinted = False
    for each in batch.results:
        suite = batch.suite_of(each)
        facts = suites.get(suite)
        if facts is None:
            what = f"the suite {quote(suite, 80)} is" if suite else "without a suite_hash the suite is"
            found.append(f"{what} not known here, and only results of known suites are taken" if strict else False)
        elif each.prompt_id in facts.prompts:
            found.append(True)
        else:
            # Once: to compare a thousand names with a suite's thousands takes minutes.
            hint = "" if hinted or len(facts.prompts) > HINTED else did_you_mean(each.prompt_id, facts.prompts)
            hinted = True
            found.append(f"the suite {suite} has no prompt {quote(each.prompt_id)}{hint}")
    return found


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
