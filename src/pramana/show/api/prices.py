"""`/api/prices`: what a model costs, who says so, and what an administrator sets for it.

What is set is kept in the store: every process of it, and every `pramana run` on it, counts by the same. The file
`prices.toml` is one machine's own, and each process reads that of the machine it runs on.
"""

from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from pramana import settings
from pramana.app import App
from pramana.errors import InvalidInput, Problem, visible
from pramana.model import Target
from pramana.providers.names import RUNS_CODE, resolve
from pramana.providers.prices import DEAREST, FREE, Prices, Rates
from pramana.providers.registered import LONGEST
from pramana.show.api.envelope import Body, Shape, answer, documented
from pramana.show.api.serving import Admin, Here, Viewer
from pramana.store.prices import SetPrice

router = APIRouter(tags=["prices"])
RECENT = 100
"""Runs whose models are listed."""
MOST = 200
"""Models that can be asked for at once."""
Dollars = Annotated[float, Field(ge=0, le=DEAREST, allow_inf_nan=False, description="Dollars a million tokens")]


class StepShape(Shape):
    """Dollars a million tokens of each kind; null is unknown."""

    above: int = Field(description="For requests of more input tokens than this")
    input_per_million: float | None
    output_per_million: float | None
    cached_per_million: float | None = Field(description="Of input that the provider had in its cache")
    per_request: float = Field(description="Dollars a request, whatever its tokens")


class PriceShape(Shape):
    """What a model costs. Nothing in `steps`: nobody knows, which is not the same as nothing."""

    model: str = Field(description="As it is typed")
    origin: Literal["set", "file", "published", "free"] | None = Field(
        description="Set here, the file prices.toml of this machine, genai-prices, or it costs nothing"
    )
    name: str | None = Field(description="The name that it was set for or that the file has")
    steps: list[StepShape]
    updated_at: str | None = Field(description="When it was set")
    problem: str | None = Field(description="Why nothing can be said of this model")


class PriceBody(Body):
    """A price that is set."""

    input_per_million: Dollars
    output_per_million: Dollars
    cached_per_million: Dollars | None = Field(None, description="As input when left out")


@router.get("/api/prices", summary="What models cost", **documented(list[PriceShape]))
def list_prices(
    here: Here,
    _: Viewer,
    model: Annotated[list[str] | None, Query(max_length=MOST, description="As it is typed; repeat for several")] = None,
) -> Response:
    """Return what the named models cost; when none is named, those of the newest runs and those with a set price.

    `meta` says which list of published prices is installed, and whether this machine's own file can be read.
    """
    kept = here.store.prices.list()
    prices, problem = _loaded(kept)
    if model:
        found = [_asked(here, prices, kept, each) for each in dict.fromkeys(model)]
    else:
        targets = _recent(here)
        found = [_priced(prices, kept, each) for each in targets.values()]
        told = {each["name"] for each in found} | targets.keys()
        found += [_asked(here, prices, kept, each.model) for each in kept if each.model not in told]
        found.sort(key=lambda each: str(each["model"]))
    meta = {
        "published": f"genai-prices {version('genai-prices')}",
        "file": {"exists": settings.prices_file().exists(), "problem": problem},
    }
    return answer(found, meta)


@router.put("/api/prices/{model:path}", summary="Set a price", **documented(PriceShape))
def set_price(model: str, body: PriceBody, here: Here, _: Admin) -> Response:
    """Set what a model costs, by the name that is typed or as `provider:model`; it goes before all others.

    Runs that begin or go on from now on are counted by it; what was counted stays.
    """
    name = model.strip()
    _check_name(here, name)
    cached = body.input_per_million if body.cached_per_million is None else body.cached_per_million
    here.store.prices.put(name, Rates(0, body.input_per_million, body.output_per_million, cached))
    kept = here.store.prices.list()
    return answer(_asked(here, _loaded(kept)[0], kept, name))


@router.delete("/api/prices/{model:path}", summary="Take a price back", **documented(PriceShape, 404))
def forget_price(model: str, here: Here, _: Admin) -> Response:
    """Take back what was set for a model; return what it costs then."""
    name = model.strip()
    here.store.prices.delete(name)
    kept = here.store.prices.list()
    return answer(_asked(here, _loaded(kept)[0], kept, name))


def _check_name(here: App, name: str) -> None:
    """Refuse names under which a price would hold for nothing, and nobody would see: slips, and what is free."""
    if not name or len(name) > LONGEST or not name.isprintable():
        message = f"a model's name has 1 to {LONGEST:,} printable characters"
        raise InvalidInput(message, [Problem(message, "model")])
    if name.partition(":")[0] in RUNS_CODE:
        return  # of another machine's command line, which may use this store
    try:
        target = _resolved(here, name)
    except InvalidInput as error:
        raise InvalidInput(str(error), [Problem(str(error), "model")]) from None
    if target.provider in FREE:
        message = f"{target.provider} runs in this process and costs nothing"
        raise InvalidInput(message, [Problem(message, "model")])


def _resolved(here: App, typed: str) -> Target:
    return resolve(typed, registered=here.store.providers.registered)


def _loaded(kept: Sequence[SetPrice]) -> tuple[Prices, str | None]:
    """Return the prices that hold in this process, and why its own file cannot be among them."""
    rates = {each.model: each.rates for each in kept}
    try:
        return Prices.load(settings.prices_file(), rates), None
    except InvalidInput as error:  # no run begins then either; where the file is, is nobody's business here
        return Prices(kept=rates), visible(str(error).replace(str(settings.prices_file()), "prices.toml"))


def _recent(here: App) -> dict[str, Target]:
    """Return who was asked, judged, embedded or heard in the newest runs."""
    runs, _ = here.store.pages.runs(limit=RECENT)
    plans = [run.plan for run in runs]
    every: Iterable[Target | None] = (
        target for plan in plans for target in (*plan.targets, plan.judge, plan.embedder, plan.stt)
    )
    return {target.typed: target for target in every if target}


def _asked(here: App, prices: Prices, kept: Sequence[SetPrice], typed: str) -> dict[str, Any]:
    try:
        return _priced(prices, kept, _resolved(here, typed))
    except InvalidInput as error:
        mine = [each for each in kept if each.model == typed]
        steps = [_step(each.rates) for each in mine]
        return {
            "model": typed,
            "origin": "set" if mine else None,
            "name": typed if mine else None,
            "steps": steps,
            "updatedAt": mine[0].updated if mine else None,
            "problem": visible(str(error)),
        }


def _priced(prices: Prices, kept: Sequence[SetPrice], target: Target) -> dict[str, Any]:
    found = prices.of(target)
    when = {each.model: each.updated for each in kept}
    return {
        "model": target.typed,
        "origin": found.origin if found else None,
        "name": found.name if found else None,
        "steps": [_step(each) for each in found.steps] if found else [],
        "updatedAt": when.get(found.name) if found and found.origin == "set" and found.name else None,
        "problem": None,
    }


def _step(rates: Rates) -> dict[str, Any]:
    return {
        "above": rates.above,
        "inputPerMillion": rates.input,
        "outputPerMillion": rates.output,
        "cachedPerMillion": rates.cached,
        "perRequest": rates.request,
    }
