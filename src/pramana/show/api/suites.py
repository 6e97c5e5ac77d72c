"""`/api/suites`: list, read and upload suites; a version never changes."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from pramana.app import Credential, suites
from pramana.app.suites import ListedSuiteView, SuiteView, TierHashesView, TierHashView
from pramana.show.api.envelope import (
    AppDependency,
    Body,
    PageNumber,
    PageSize,
    document_route,
    make_envelope_model,
    make_page_meta,
    make_success_response,
    require_caller,
)

router = APIRouter(tags=["suites"])
_JSONL_MEDIA_TYPE = "application/jsonl"
_TEXT_DESCRIPTION = "Only cases with this text in their ID or input, ignoring case; jsonl always returns the whole file"


class SuiteBody(Body):
    """A version to upload."""

    version: str = Field(max_length=64)
    tiers: dict[str, str] = Field(
        description="JSONL text of each tier, by tier name", min_length=1, max_length=suites.MAX_TIERS
    )


@router.get("/api/suites", summary="List suites", **document_route(list[ListedSuiteView]))
async def list_suites(
    app: AppDependency, caller: Annotated[Credential, require_caller(suites.list_suites)]
) -> Response:
    """Return all versions: built in, published, uploaded."""
    return make_success_response(await suites.list_suites(app, caller))


@router.post(
    "/api/suites",
    summary="Upload a suite",
    **document_route(
        SuiteView,
        409,
        status=201,
        description="The suite was stored",
        status_200={"model": make_envelope_model(SuiteView), "description": "The same suite already exists"},
    ),
)
async def upload_suite(
    body: SuiteBody, app: AppDependency, caller: Annotated[Credential, require_caller(suites.upload_suite)]
) -> Response:
    """Store a version: 201 if it is new, 200 if it exists with the same content, 409 if with different content."""
    done = await suites.upload_suite(app, caller, body.version, body.tiers)
    return make_success_response(done.suite, status=201 if done.is_new else 200)


@router.get("/api/suites/{version}", summary="Read a suite", **document_route(SuiteView, 404, 409))
async def read_suite(
    version: str, app: AppDependency, caller: Annotated[Credential, require_caller(suites.read_suite)]
) -> Response:
    """Return a version, as described by its manifest."""
    return make_success_response(await suites.read_suite(app, caller, version))


@router.get("/api/suites/{version}/hash", summary="Get the hashes of a suite", **document_route(TierHashesView, 404))
async def suite_hashes(
    version: str, app: AppDependency, caller: Annotated[Credential, require_caller(suites.read_hashes)]
) -> Response:
    """Return the hash of each tier."""
    return make_success_response(await suites.read_hashes(app, caller, version))


@router.get(
    "/api/suites/{version}/{tier}",
    summary="List the cases of a tier",
    **document_route(
        list[dict[str, Any]],
        404,
        409,
        status_200={
            "model": make_envelope_model(list[dict[str, Any]]),
            "description": "Done",
            "content": {_JSONL_MEDIA_TYPE: {"schema": {"type": "string"}}},
        },
    ),
)
async def read_tier(
    version: str,
    tier: str,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(suites.list_cases)],
    page: PageNumber = 1,
    page_size: PageSize = 50,
    kind: Annotated[Literal["json", "jsonl"], Query(alias="format", description="jsonl returns the file")] = "json",
    text: Annotated[str, Query(max_length=suites.MAX_SEARCH_TEXT_CHARS, description=_TEXT_DESCRIPTION)] = "",
) -> Response:
    """Return a page of a tier's cases, with field names as in the file, or the whole file."""
    if kind == "jsonl":
        named = {"Content-Disposition": f'attachment; filename="{tier}.jsonl"'}
        return Response(
            await suites.read_tier_file(app, caller, version, tier), media_type=_JSONL_MEDIA_TYPE, headers=named
        )
    wanted = suites.CaseFilter(text=text, page=page, page_size=page_size)
    found = await suites.list_cases(app, caller, version, tier, wanted)
    return make_success_response(found.items, make_page_meta(page, page_size, found.total))


@router.get("/api/suites/{version}/{tier}/hash", summary="Get the hash of a tier", **document_route(TierHashView, 404))
async def tier_hash(
    version: str, tier: str, app: AppDependency, caller: Annotated[Credential, require_caller(suites.read_tier_hash)]
) -> Response:
    """Return the suite hash of a tier."""
    return make_success_response(await suites.read_tier_hash(app, caller, version, tier))
