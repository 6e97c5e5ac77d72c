"""`/api/runs/{id}/labelling`, `/labels`, `/judge-report` and `/rejudging`.

Replies to label, labels and what they say of judges, and judges that are asked again to measure their position bias.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response

from pramana.app import Credential, judging, rejudging
from pramana.app.calibrations import JudgeReportView
from pramana.app.judging import LabellingRequest, LabellingView, LabelRequest, LabelView
from pramana.app.rejudging import RejudgeRequest, RejudgingView
from pramana.request import Limits
from pramana.show.api.envelope import (
    AppDependency,
    Body,
    add_fields_of,
    document_query,
    document_route,
    make_success_response,
    read_query,
    require_caller,
)
from pramana.show.api.runs import LimitsBody, RunId, RunIdWithScoring

router = APIRouter(tags=["judges"])


@add_fields_of(LabelRequest)
class LabelBody(Body):
    """A label of one reply."""

    def to_request(self) -> LabelRequest:
        """Return the body as a `LabelRequest`."""
        return LabelRequest(**{name: getattr(self, name) for name in LabelRequest.__struct_fields__})


@add_fields_of(RejudgeRequest)
class RejudgeBody(Body):
    """Which judged replies are judged again, and within which limits."""

    limits: LimitsBody | None = None

    def to_request(self) -> RejudgeRequest:
        """Return the body as a `RejudgeRequest`."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in RejudgeRequest.__struct_fields__}
        return RejudgeRequest(**fields)

    def to_limits(self) -> Limits:
        """Return the limits of the body."""
        return self.limits.to_limits() if self.limits else Limits()


@router.get(
    "/api/runs/{run_id}/labelling",
    summary="Read the next reply to label",
    openapi_extra=document_query(LabellingRequest),
    **document_route(LabellingView, 404, 409),
)
async def read_labelling(
    run_id: RunId,
    request: Request,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(judging.read_labelling)],
) -> Response:
    """Return the next reply without its model and without the judge's verdict; half are drawn among the judge's NO."""
    return make_success_response(
        await judging.read_labelling(app, caller, run_id, read_query(LabellingRequest, request))
    )


@router.get("/api/runs/{run_id}/labels", summary="List labels", **document_route(list[LabelView], 404))
async def list_labels(
    run_id: RunId, app: AppDependency, caller: Annotated[Credential, require_caller(judging.list_labels)]
) -> Response:
    """Return the labels of a run, of all raters."""
    return make_success_response(await judging.list_labels(app, caller, run_id))


@router.post("/api/runs/{run_id}/labels", summary="Save a label", **document_route(LabelView | None, 404))
async def save_label(
    run_id: str, body: LabelBody, app: AppDependency, caller: Annotated[Credential, require_caller(judging.save_label)]
) -> Response:
    """Save a label in place of the rater's earlier one of the same reply; `label: null` removes it."""
    return make_success_response(await judging.save_label(app, caller, run_id, body.to_request()))


@router.get(
    "/api/runs/{run_id}/judge-report", summary="Read the judges' report", **document_route(JudgeReportView, 404)
)
async def read_judge_report(
    run_id: RunIdWithScoring,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(judging.read_judge_report)],
) -> Response:
    """Return how far the judges of a run agree with people, and the pass rates corrected by labels."""
    return make_success_response(await judging.read_judge_report(app, caller, run_id))


@router.get(
    "/api/runs/{run_id}/rejudging",
    summary="Plan a measurement of position bias",
    openapi_extra=document_query(RejudgeRequest),
    **document_route(RejudgingView, 404, 409),
)
async def read_rejudging(
    run_id: RunIdWithScoring,
    request: Request,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(rejudging.read_rejudging)],
) -> Response:
    """Return the calls and the estimated cost of asking the judges again, and the progress of the job; send nothing."""
    wanted = read_query(RejudgeRequest, request)
    return make_success_response(await rejudging.read_rejudging(app, caller, run_id, wanted))


@router.post(
    "/api/runs/{run_id}/rejudging",
    summary="Measure position bias",
    **document_route(
        RejudgingView, 404, 409, status=202, description="The judges are asked again, or nothing is left to ask"
    ),
)
async def start_rejudging(
    run_id: str,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(rejudging.start_rejudging)],
    body: RejudgeBody | None = None,
) -> Response:
    """Ask the judges of a run again, with swapped answers. Verdicts that are stored are not asked for again."""
    body = body or RejudgeBody()
    found = await rejudging.start_rejudging(app, caller, run_id, body.to_request(), body.to_limits())
    return make_success_response(found, status=202)


@router.post(
    "/api/runs/{run_id}/rejudging/stop",
    summary="Stop measuring position bias",
    **document_route(RejudgingView, 404, 409),
)
async def stop_rejudging(
    run_id: str, app: AppDependency, caller: Annotated[Credential, require_caller(rejudging.stop_rejudging)]
) -> Response:
    """Stop asking the judges of a run again within seconds; the verdicts so far are kept."""
    return make_success_response(await rejudging.stop_rejudging(app, caller, run_id))
