"""`/api/models`: what can be asked now, and how a model did over time."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from pramana.app import models
from pramana.app.access import Credential
from pramana.app.models import HistoryRequest, HistoryView
from pramana.app.offers import OfferView
from pramana.show.api.envelope import answer, documented
from pramana.show.api.serving import Here, caller_of

router = APIRouter(tags=["models"])


@router.get("/api/models", summary="List models", **documented(list[OfferView]))
async def list_models(
    here: Here, caller: Annotated[Credential, caller_of(models.list_models)], *, refresh: bool = False
) -> Response:
    """Return what each provider offers that is registered or set up; what one has said is believed for a day."""
    return answer(await models.list_models(here, caller, refresh=refresh))


@router.get("/api/models/history", summary="A model over time", **documented(HistoryView))
async def model_history(
    here: Here,
    caller: Annotated[Credential, caller_of(models.model_history)],
    model: Annotated[str, Query(min_length=1, max_length=2_000, description="As it was typed")],
    limit: Annotated[int, Query(ge=1, le=500, description="Of runs, the newest")] = 100,
) -> Response:
    """Return pass rate and latency of a model, a run and a day."""
    found = await models.model_history(here, caller, HistoryRequest(model=model, limit=limit))
    return answer(found.history, {"total": found.total, "shown": found.shown})
