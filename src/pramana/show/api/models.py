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
from pramana.show.api.envelope import Body, Here, answer, caller_of, documented, envelope_of, with_fields_of

router = APIRouter(tags=["models"])
prices = APIRouter(tags=["prices"])
weights = APIRouter(tags=["weights"])
MOST = 200
"""Models whose prices can be asked for at once."""


@router.get("/api/models", summary="List models", **documented(list[OfferView]))
async def list_models(
    here: Here, caller: Annotated[Credential, caller_of(model_cases.list_models)], *, refresh: bool = False
) -> Response:
    """Return what each provider offers that is registered or set up; what one has said is believed for a day."""
    return answer(await model_cases.list_models(here, caller, refresh=refresh))


@router.get("/api/models/history", summary="A model over time", **documented(HistoryView))
async def model_history(
    here: Here,
    caller: Annotated[Credential, caller_of(model_cases.model_history)],
    model: Annotated[str, Query(min_length=1, max_length=2_000, description="As it was typed")],
    limit: Annotated[int, Query(ge=1, le=500, description="Of runs, the newest")] = 100,
) -> Response:
    """Return pass rate and latency of a model, a run and a day."""
    found = await model_cases.model_history(here, caller, HistoryRequest(model=model, limit=limit))
    return answer(found.history, {"total": found.total, "shown": found.shown})


# ── Prices ──


@with_fields_of(NewPrice)
class PriceBody(Body):
    """A price that is set."""

    def price(self) -> NewPrice:
        """Return it as everyone else sets it."""
        return NewPrice(**{name: getattr(self, name) for name in NewPrice.__struct_fields__})


@prices.get("/api/prices", summary="What models cost", **documented(list[PriceView]))
async def list_prices(
    here: Here,
    caller: Annotated[Credential, caller_of(price_cases.list_prices)],
    model: Annotated[list[str] | None, Query(max_length=MOST, description="As it is typed; repeat for several")] = None,
) -> Response:
    """Return what the named models cost; when none is named, those of the newest runs and those with a set price.

    `meta` says which list of published prices is installed, and whether this machine's own file can be read.
    """
    found = await price_cases.list_prices(here, caller, model or ())
    file = {"exists": found.file_exists, "problem": found.file_problem}
    return answer(found.items, {"published": found.published, "file": file})


@prices.put("/api/prices/{model:path}", summary="Set a price", **documented(PriceView))
async def set_price(
    model: str, body: PriceBody, here: Here, caller: Annotated[Credential, caller_of(price_cases.set_price)]
) -> Response:
    """Set what a model costs, by the name that is typed or as `provider:model`; it goes before all others.

    Runs that begin or go on from now on are counted by it; what was counted stays.
    """
    return answer(await price_cases.set_price(here, caller, model, body.price()))


@prices.delete("/api/prices/{model:path}", summary="Take a price back", **documented(PriceView, 404))
async def forget_price(
    model: str, here: Here, caller: Annotated[Credential, caller_of(price_cases.forget_price)]
) -> Response:
    """Take back what was set for a model; return what it costs then."""
    return answer(await price_cases.forget_price(here, caller, model))


# ── Weights ──


@weights.get("/api/weights", summary="List the weights of the embedded models", **documented(list[WeightsView]))
async def list_weights(here: Here, caller: Annotated[Credential, caller_of(weight_cases.list_weights)]) -> Response:
    """Return what each embedded model needs, whether it is here, and how far its download is."""
    return answer(await weight_cases.list_weights(here, caller))


@weights.post(
    "/api/weights/{name}/pull",
    summary="Download weights",
    **documented(
        WeightsView,
        404,
        status=202,
        description="Under way: look again how far it is",
        status_200={"model": envelope_of(WeightsView), "description": "They are here already"},
    ),
)
async def pull_weights(
    name: Annotated[str, Path(max_length=200)],
    here: Here,
    caller: Annotated[Credential, caller_of(weight_cases.pull_weights)],
) -> Response:
    """Bring weights to this machine; whoever asks while that is under way watches the same download."""
    found = await weight_cases.pull_weights(here, caller, name)
    return answer(found, status=200 if found.present else 202)
