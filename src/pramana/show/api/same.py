"""`/api/same`: start a test whether two endpoints are the same model, list tests, and read their answers.

A test is a run: it is followed, cancelled, resumed and deleted at `/api/runs/{id}`.
"""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from pramana.app import Credential, sameness
from pramana.app.sameness import SameListView, SameView
from pramana.app.views import PageRequest
from pramana.errors import InvalidInput
from pramana.request import Limits
from pramana.sameness import SamenessRequest
from pramana.show.api.envelope import (
    AppDependency,
    Body,
    PageNumber,
    PageSize,
    add_fields_of,
    document_route,
    make_page_meta,
    make_success_response,
    require_caller,
)
from pramana.show.api.runs import MAX_NAME_LENGTH, LimitsBody, RunBody, RunId, make_selection

router = APIRouter(tags=["same"])


@add_fields_of(
    SamenessRequest,
    scenarios=(RunBody.model_fields["scenarios"].annotation, RunBody.model_fields["scenarios"]),
    limits=(LimitsBody | None, None),
)
class SameBody(Body):
    """A test of two endpoints to start."""

    def to_request(self) -> SamenessRequest:
        """Return the body as a `SamenessRequest`."""
        sent = {
            name: getattr(self, name) for name in type(self).model_fields if name in SamenessRequest.__struct_fields__
        }
        limits: LimitsBody | None = sent["limits"]
        sent |= {"models": tuple(sent["models"]), "scenarios": make_selection(sent["scenarios"])}
        return SamenessRequest(**{**sent, "limits": limits.to_limits() if limits else Limits()})


@router.post(
    "/api/same",
    summary="Start a test of two endpoints",
    **document_route(SameListView, 404, status=202, description="The test is queued; a server will execute it"),
)
async def start_test(
    body: SameBody, app: AppDependency, caller: Annotated[Credential, require_caller(sameness.start_test)]
) -> Response:
    """Queue a test whether two endpoints are the same. Follow its calls at `/api/runs/{id}/events`."""
    return make_success_response(await sameness.start_test(app, caller, body.to_request()), status=202)


@router.get("/api/same", summary="List tests of two endpoints", **document_route(list[SameListView]))
async def list_tests(
    app: AppDependency,
    caller: Annotated[Credential, require_caller(sameness.list_tests)],
    page: PageNumber = 1,
    page_size: PageSize = 50,
) -> Response:
    """Return the tests of two endpoints, newest first."""
    found = await sameness.list_tests(app, caller, PageRequest(page=page, page_size=page_size))
    return make_success_response(found.items, make_page_meta(page, page_size, found.total))


@router.get("/api/same/{run_id}", summary="Read the answer of a test", **document_route(SameView, 404))
async def read_test(
    run_id: RunId,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(sameness.read_test)],
    model_a: Annotated[str | None, Query(alias="modelA", max_length=MAX_NAME_LENGTH)] = None,
    model_b: Annotated[str | None, Query(alias="modelB", max_length=MAX_NAME_LENGTH)] = None,
) -> Response:
    """Return the answer so far of a test, or of any run: of its two models, or of the two that are named."""
    if (model_a is None) != (model_b is None):
        raise InvalidInput("name both models, with modelA and modelB, or none of them")
    models = None if model_a is None or model_b is None else (model_a, model_b)
    return make_success_response(await sameness.read_test(app, caller, run_id, models))
