"""`/api/plan`: what it takes to see a change, before anything is spent."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import Field
from pydantic.alias_generators import to_camel

from pramana.app import Credential, plans
from pramana.app.plans import DetectionPlanRequest, DetectionPlanView, parse_budget, parse_share
from pramana.errors import InvalidInput, Problem
from pramana.show.api.envelope import (
    AppDependency,
    Body,
    add_fields_of,
    document_route,
    make_success_response,
    require_caller,
)
from pramana.show.api.runs import RunBody

router = APIRouter(tags=["plan"])
_ShareOrText = Annotated[float, Field(ge=0.001, le=0.999, allow_inf_nan=False)] | Annotated[str, Field(max_length=40)]
_SHARE_FORMS = "as a share (`0.05`), or as text (`5%`, `5 points`)"


@add_fields_of(
    DetectionPlanRequest,
    detect=(_ShareOrText, Field(description=f"Loss of the pass rate to detect, {_SHARE_FORMS}")),
    pass_rate=(_ShareOrText, Field(default=0.9, description=f"Pass rate before the change, {_SHARE_FORMS}")),
    margin=(_ShareOrText, Field(default=0.05, description=f"Loss to rule out if nothing changed, {_SHARE_FORMS}")),
    budget=(
        Annotated[str, Field(max_length=40)] | None,
        Field(default=None, description="`2USD`, `2USD/day`, `500calls` or `500calls/day`"),
    ),
    run=(
        RunBody | None,
        Field(default=None, description="Models whose prices count, and the cases; null: 25 cases, and no cost"),
    ),
)
class PlanBody(Body):
    """The change to detect, how replies vary, and what is sent to which models."""

    def to_request(self) -> DetectionPlanRequest:
        """Return the body as a `DetectionPlanRequest`."""
        sent: dict[str, Any] = {name: getattr(self, name) for name in type(self).model_fields}
        for name in ("detect", "pass_rate", "margin"):
            if isinstance(sent[name], str):
                sent[name] = _parse(name, parse_share, sent[name])
        if sent["budget"] is not None:
            sent["budget"] = _parse("budget", parse_budget, sent["budget"])
        run: RunBody | None = sent["run"]
        sent["run"] = run.to_request() if run else None
        return DetectionPlanRequest(**sent)


def _parse(name: str, parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except InvalidInput as error:
        raise InvalidInput.from_problems([Problem(str(error), to_camel(name))]) from None


@router.post(
    "/api/plan",
    summary="Plan what shows a change",
    **document_route(DetectionPlanView, 404, description="What it takes to see the change; nothing was sent or stored"),
)
async def plan_detection(
    body: PlanBody, app: AppDependency, caller: Annotated[Credential, require_caller(plans.plan_detection)]
) -> Response:
    """Return cases, repeats, days, calls and cost that show a loss of the pass rate; nothing is sent or stored."""
    return make_success_response(await plans.plan_detection(app, caller, body.to_request()))
