"""`/api/models`, `/api/prices` and `/api/weights`: which models there are, what they cost and what they need here."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from pramana.app import Credential
from pramana.app import models as model_cases
from pramana.app import prices as price_cases
from pramana.app import weights as weight_cases
from pramana.app.models import HistoryRequest, HistoryView, OfferView
from pramana.app.prices import NewPrice, PriceView
from pramana.app.weights import WeightsView
from pramana.show.api.envelope import (
    AppDependency,
    Body,
    add_fields_of,
    document_route,
    make_answer,
    make_envelope_model,
    require_caller,
)

router = APIRouter(tags=["models"])
prices = APIRouter(tags=["prices"])
weights = APIRouter(tags=["weights"])
MAX_PRICED_MODELS = 200
"""Models whose prices can be asked for at once."""


@router.get("/api/models", summary="List models", **document_route(list[OfferView]))
async def list_models(
    app: AppDependency, caller: Annotated[Credential, require_caller(model_cases.list_models)], *, refresh: bool = False
) -> Response:
    """Return what each provider offers that is registered or set up; what one has said is believed for a day."""
    return make_answer(await model_cases.list_models(app, caller, refresh=refresh))


@router.get("/api/models/history", summary="A model over time", **document_route(HistoryView))
async def model_history(
    app: AppDependency,
    caller: Annotated[Credential, require_caller(model_cases.model_history)],
    model: Annotated[str, Query(min_length=1, max_length=2_000, description="As it was typed")],
    limit: Annotated[int, Query(ge=1, le=500, description="Of runs, the newest")] = 100,
) -> Response:
    """Return pass rate and latency of a model, a run and a day."""
    found = await model_cases.model_history(app, caller, HistoryRequest(model=model, limit=limit))
    return make_answer(found.history, {"total": found.total, "shown": found.shown_runs})


# ── Prices ──


@add_fields_of(NewPrice)
class PriceBody(Body):
    """A price that is set."""

    def price(self) -> NewPrice:
        """Return it as everyone else sets it."""
        return NewPrice(**{name: getattr(self, name) for name in NewPrice.__struct_fields__})


@prices.get("/api/prices", summary="What models cost", **document_route(list[PriceView]))
async def list_prices(
    app: AppDependency,
    caller: Annotated[Credential, require_caller(price_cases.list_prices)],
    model: Annotated[
        list[str] | None, Query(max_length=MAX_PRICED_MODELS, description="As it is typed; repeat for several")
    ] = None,
) -> Response:
    """Return what the named models cost; when none is named, those of the newest runs and those with a set price.

    `meta` says which list of published prices is installed, and whether this machine's own file can be read.
    """
    found = await price_cases.list_prices(app, caller, model or ())
    file = {"exists": found.file_exists, "problem": found.file_problem}
    return make_answer(found.items, {"published": found.published, "file": file})


@prices.put("/api/prices/{model:path}", summary="Set a price", **document_route(PriceView))
async def set_price(
    model: str,
    body: PriceBody,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(price_cases.set_price)],
) -> Response:
    """Set what a model costs, by the name that is typed or as `provider:model`; it goes before all others.

    Runs that begin or go on from now on are counted by it; what was counted stays.
    """
    return make_answer(await price_cases.set_price(app, caller, model, body.price()))


@prices.delete("/api/prices/{model:path}", summary="Take a price back", **document_route(PriceView, 404))
async def forget_price(
    model: str, app: AppDependency, caller: Annotated[Credential, require_caller(price_cases.forget_price)]
) -> Response:
    """Take back what was set for a model; return what it costs then."""
    return make_answer(await price_cases.forget_price(app, caller, model))


# ── Weights ──


@weights.get("/api/weights", summary="List the weights of the embedded models", **document_route(list[WeightsView]))
async def list_weights(
    app: AppDependency, caller: Annotated[Credential, require_caller(weight_cases.list_weights)]
) -> Response:
    """Return what each embedded model needs, whether it is here, and how far its download is."""
    return make_answer(await weight_cases.list_weights(app, caller))


@weights.post(
    "/api/weights/{name}/pull",
    summary="Download weights",
    **document_route(
        WeightsView,
        404,
        status=202,
        description="Under way: look again how far it is",
        status_200={"model": make_envelope_model(WeightsView), "description": "They are here already"},
    ),
)
async def pull_weights(
    name: Annotated[str, Path(max_length=200)],
    app: AppDependency,
    caller: Annotated[Credential, require_caller(weight_cases.pull_weights)],
) -> Response:
    """Bring weights to this machine; whoever asks while that is under way watches the same download."""
    found = await weight_cases.pull_weights(app, caller, name)
    return make_answer(found, status=200 if found.present else 202)
