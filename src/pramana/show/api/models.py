"""`/api/models`, `/api/prices` and `/api/weights`: models, their prices, and the weights of embedded ones."""

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
    make_envelope_model,
    make_success_response,
    require_caller,
)

router = APIRouter(tags=["models"])
prices_router = APIRouter(tags=["prices"])
weights_router = APIRouter(tags=["weights"])
MAX_MODELS_PER_PRICE_REQUEST = 200
"""Most models in one request for prices."""


@router.get("/api/models", summary="List models", **document_route(list[OfferView]))
async def list_models(
    app: AppDependency, caller: Annotated[Credential, require_caller(model_cases.list_models)], *, refresh: bool = False
) -> Response:
    """Return the models of each registered or configured provider; a provider's list is cached for a day."""
    return make_success_response(await model_cases.list_models(app, caller, refresh=refresh))


@router.get("/api/models/history", summary="Get the history of a model", **document_route(HistoryView))
async def read_model_history(
    app: AppDependency,
    caller: Annotated[Credential, require_caller(model_cases.read_model_history)],
    model: Annotated[str, Query(min_length=1, max_length=2_000, description="Model, as typed in its runs")],
    limit: Annotated[int, Query(ge=1, le=500, description="Maximum number of runs, newest first")] = 100,
) -> Response:
    """Return pass rate and latency of a model, per run and per day."""
    found = await model_cases.read_model_history(app, caller, HistoryRequest(model=model, limit=limit))
    return make_success_response(found.history, {"total": found.total_run_count, "shown": found.shown_run_count})


# ── Prices ──


@add_fields_of(NewPrice)
class PriceBody(Body):
    """A price to set."""

    def to_price(self) -> NewPrice:
        """Return the price as the use case takes it."""
        return NewPrice(**{name: getattr(self, name) for name in NewPrice.__struct_fields__})


@prices_router.get("/api/prices", summary="List prices of models", **document_route(list[PriceView]))
async def list_prices(
    app: AppDependency,
    caller: Annotated[Credential, require_caller(price_cases.list_prices)],
    model: Annotated[
        list[str] | None,
        Query(max_length=MAX_MODELS_PER_PRICE_REQUEST, description="Model as typed in runs; repeat for several"),
    ] = None,
) -> Response:
    """Return the prices of the named models; by default, of those in the newest runs and those with a set price.

    `meta` names the installed list of published prices, and reports whether the server's own file can be read.
    """
    found = await price_cases.list_prices(app, caller, model or ())
    file = {"exists": found.prices_file_exists, "problem": found.prices_file_problem}
    return make_success_response(found.items, {"published": found.published_source, "file": file})


@prices_router.put("/api/prices/{model:path}", summary="Set a price", **document_route(PriceView))
async def set_price(
    model: str,
    body: PriceBody,
    app: AppDependency,
    caller: Annotated[Credential, require_caller(price_cases.set_price)],
) -> Response:
    """Set the price of a model, by its name as typed or as `provider:model`; it takes precedence over all others.

    It applies to runs started or resumed from now on; costs that are already stored do not change.
    """
    return make_success_response(await price_cases.set_price(app, caller, model, body.to_price()))


@prices_router.delete("/api/prices/{model:path}", summary="Delete a price", **document_route(PriceView, 404))
async def delete_price(
    model: str, app: AppDependency, caller: Annotated[Credential, require_caller(price_cases.delete_price)]
) -> Response:
    """Remove the price that was set for a model; return the price that applies then."""
    return make_success_response(await price_cases.delete_price(app, caller, model))


# ── Weights ──


@weights_router.get(
    "/api/weights", summary="List the weights of the embedded models", **document_route(list[WeightsView])
)
async def list_weights(
    app: AppDependency, caller: Annotated[Credential, require_caller(weight_cases.list_weights)]
) -> Response:
    """Return the weights of each embedded model, whether the server has them, and any download's progress."""
    return make_success_response(await weight_cases.list_weights(app, caller))


@weights_router.post(
    "/api/weights/{name}/pull",
    summary="Download weights",
    **document_route(
        WeightsView,
        404,
        status=202,
        description="Download in progress; request this address again for its progress",
        status_200={"model": make_envelope_model(WeightsView), "description": "The weights are already downloaded"},
    ),
)
async def pull_weights(
    name: Annotated[str, Path(max_length=200)],
    app: AppDependency,
    caller: Annotated[Credential, require_caller(weight_cases.pull_weights)],
) -> Response:
    """Start the download of weights to the server, unless one is in progress; return their state."""
    found = await weight_cases.pull_weights(app, caller, name)
    return make_success_response(found, status=200 if found.present else 202)
