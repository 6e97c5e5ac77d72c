"""`/api/prices`: what a model costs, who says so, and what an administrator sets for it."""

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Response

from pramana.app import prices
from pramana.app.access import Credential
from pramana.app.prices import NewPrice
from pramana.app.views import PriceView
from pramana.show.api.envelope import Body, answer, body_of, documented
from pramana.show.api.serving import Here, caller_of

router = APIRouter(tags=["prices"])
MOST = 200
"""Models that can be asked for at once."""


class _PriceBody(Body):
    """A price that is set."""

    def price(self) -> NewPrice:
        """Return it as everyone else sets it."""
        return NewPrice(**{name: getattr(self, name) for name in NewPrice.__struct_fields__})


if TYPE_CHECKING:
    PriceBody = _PriceBody
else:
    PriceBody = body_of(NewPrice, _PriceBody, "PriceBody")


@router.get("/api/prices", summary="What models cost", **documented(list[PriceView]))
async def list_prices(
    here: Here,
    caller: Annotated[Credential, caller_of(prices.list_prices)],
    model: Annotated[list[str] | None, Query(max_length=MOST, description="As it is typed; repeat for several")] = None,
) -> Response:
    """Return what the named models cost; when none is named, those of the newest runs and those with a set price.

    `meta` says which list of published prices is installed, and whether this machine's own file can be read.
    """
    found = await prices.list_prices(here, caller, model or ())
    file = {"exists": found.file_exists, "problem": found.file_problem}
    return answer(found.items, {"published": found.published, "file": file})


@router.put("/api/prices/{model:path}", summary="Set a price", **documented(PriceView))
async def set_price(
    model: str, body: PriceBody, here: Here, caller: Annotated[Credential, caller_of(prices.set_price)]
) -> Response:
    """Set what a model costs, by the name that is typed or as `provider:model`; it goes before all others.

    Runs that begin or go on from now on are counted by it; what was counted stays.
    """
    return answer(await prices.set_price(here, caller, model, body.price()))


@router.delete("/api/prices/{model:path}", summary="Take a price back", **documented(PriceView, 404))
async def forget_price(
    model: str, here: Here, caller: Annotated[Credential, caller_of(prices.forget_price)]
) -> Response:
    """Take back what was set for a model; return what it costs then."""
    return answer(await prices.forget_price(here, caller, model))
