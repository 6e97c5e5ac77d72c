"""`/api/suites`: which suites there are, what is in them, and a way to add one; a version never changes."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from pramana.app import Credential, suites
from pramana.app.suites import HashView, ListedView, SuiteView, TierHashView
from pramana.show.api.envelope import (
    Body,
    Here,
    PageNumber,
    PageSize,
    answer,
    caller_of,
    documented,
    envelope_of,
    page_meta,
)

router = APIRouter(tags=["suites"])
_JSONL = "application/jsonl"
_TEXT = "Only cases with this in their id or input, in capitals or not; the whole file is always whole"


class SuiteBody(Body):
    """A version to be kept."""

    version: str = Field(max_length=64)
    tiers: dict[str, str] = Field(
        description="JSONL text by the name of its tier", min_length=1, max_length=suites.MAX_TIERS
    )


@router.get("/api/suites", summary="List suites", **documented(list[ListedView]))
async def list_suites(here: Here, caller: Annotated[Credential, caller_of(suites.list_suites)]) -> Response:
    """Return every version: built in, published, uploaded."""
    return answer(await suites.list_suites(here, caller))


@router.post(
    "/api/suites",
    summary="Upload a suite",
    **documented(
        SuiteView,
        409,
        status=201,
        description="It is new",
        status_200={"model": envelope_of(SuiteView), "description": "It is there already, and the same"},
    ),
)
async def upload_suite(
    body: SuiteBody, here: Here, caller: Annotated[Credential, caller_of(suites.upload_suite)]
) -> Response:
    """Keep a version: 201 when it is new, 200 when it is there with the same content, 409 when that is another."""
    done = await suites.upload_suite(here, caller, body.version, body.tiers)
    return answer(done.suite, status=201 if done.new else 200)


@router.get("/api/suites/{version}", summary="Read a suite", **documented(SuiteView, 404, 409))
async def read_suite(version: str, here: Here, caller: Annotated[Credential, caller_of(suites.read_suite)]) -> Response:
    """Return what a version's manifest says."""
    return answer(await suites.read_suite(here, caller, version))


@router.get("/api/suites/{version}/hash", summary="The hashes of a suite", **documented(HashView, 404))
async def suite_hashes(
    version: str, here: Here, caller: Annotated[Credential, caller_of(suites.read_hashes)]
) -> Response:
    """Return the hash of each tier."""
    return answer(await suites.read_hashes(here, caller, version))


@router.get(
    "/api/suites/{version}/{tier}",
    summary="The cases of a tier",
    **documented(
        list[dict[str, Any]],
        404,
        409,
        status_200={
            "model": envelope_of(list[dict[str, Any]]),
            "description": "Done",
            "content": {_JSONL: {"schema": {"type": "string"}}},
        },
    ),
)
async def read_tier(
    version: str,
    tier: str,
    here: Here,
    caller: Annotated[Credential, caller_of(suites.list_cases)],
    page: PageNumber = 1,
    page_size: PageSize = 50,
    kind: Annotated[Literal["json", "jsonl"], Query(alias="format", description="jsonl: the file itself")] = "json",
    text: Annotated[str, Query(max_length=suites.MAX_TEXT_CHARS, description=_TEXT)] = "",
) -> Response:
    """Return the cases of a tier, in the names of the file, by the page; or the whole file."""
    if kind == "jsonl":
        named = {"Content-Disposition": f'attachment; filename="{tier}.jsonl"'}
        return Response(await suites.read_file(here, caller, version, tier), media_type=_JSONL, headers=named)
    wanted = suites.CaseFilter(text=text, page=page, page_size=page_size)
    found = await suites.list_cases(here, caller, version, tier, wanted)
    return answer(found.items, page_meta(page, page_size, found.total))


@router.get("/api/suites/{version}/{tier}/hash", summary="The hash of a tier", **documented(TierHashView, 404))
async def tier_hash(
    version: str, tier: str, here: Here, caller: Annotated[Credential, caller_of(suites.read_tier_hash)]
) -> Response:
    """Return the hash by which everybody knows the tier."""
    return answer(await suites.read_tier_hash(here, caller, version, tier))
