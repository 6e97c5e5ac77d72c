"""Prices of models: list them with their sources, and set or remove a price.

Set prices are stored, so every process and every `pramana run` on that store uses the same ones. The file `prices.toml`
belongs to one machine, and each process reads that of the machine it runs on.
"""

from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

from pramana import settings
from pramana.app import App, User, use_case
from pramana.app.views import View
from pramana.errors import InvalidInput, Problem, escape_control_characters
from pramana.model import Target
from pramana.providers.kinds import CODE_RUNNING_KINDS
from pramana.providers.names import MAX_ADDRESS_OR_MODEL_LENGTH, resolve_target
from pramana.providers.prices import FREE_KINDS, MAX_USD_PER_MILLION, Prices, Rates
from pramana.request import check_struct_values
from pramana.store.preferences import CustomPrice

MAX_RECENT_RUNS = 100
"""Newest runs whose models are listed."""
UsdPerMillionTokens = Annotated[float, Meta(ge=0, le=MAX_USD_PER_MILLION)]


class NewPrice(Struct, frozen=True, kw_only=True):
    """A price to set, in US dollars per million tokens."""

    input_per_million: Annotated[UsdPerMillionTokens, Meta(description="US dollars per million tokens")]
    output_per_million: Annotated[UsdPerMillionTokens, Meta(description="US dollars per million tokens")]
    cached_per_million: Annotated[
        UsdPerMillionTokens | None, Meta(description="Price of cached input tokens; if omitted, the input price")
    ] = None


class StepView(View, frozen=True, kw_only=True):
    """US dollars per million tokens of each kind; null means unknown."""

    above: Annotated[int, Meta(description="Applies to requests with more input tokens than this")]
    input_per_million: float | None
    output_per_million: float | None
    cached_per_million: Annotated[
        float | None, Meta(description="Price of input tokens read from the provider's cache")
    ]
    per_request: Annotated[float, Meta(description="US dollars per request, independent of tokens")]


class PriceView(View, frozen=True, kw_only=True):
    """The price of a model. If `steps` is empty, the price is unknown, which does not mean free."""

    model: Annotated[str, Meta(description="Model, as typed in runs")]
    origin: Annotated[
        Literal["set", "file", "published", "free"] | None,
        Meta(
            description="Source of the price: set on this server, prices.toml of this machine, genai-prices, or free "
            "of charge"
        ),
    ]
    name: Annotated[str | None, Meta(description="Name of the model in the source of the price")]
    steps: tuple[StepView, ...]
    updated_at: Annotated[str | None, Meta(description="When the price was set")]
    problem: Annotated[str | None, Meta(description="Why the price of this model is unknown")]


class PriceList(NamedTuple):
    """Prices of models, and their sources."""

    items: list[PriceView]
    published_source: str
    """The installed list of published prices."""
    prices_file_exists: bool
    prices_file_problem: str | None
    """Why this machine's `prices.toml` cannot be read."""


@use_case("viewer")
def list_prices(app: App, _: User, models: Sequence[str] = ()) -> PriceList:
    """Return the prices of the named models; by default, of those in the newest runs and those with a set price."""
    kept = app.store.prices.list()
    prices, problem = _load_prices(kept)
    if models:
        found = [_make_price_view_by_name(app, prices, kept, each) for each in dict.fromkeys(models)]
    else:
        targets = _recent_targets(app)
        found = [_price_view(prices, kept, each) for each in targets.values()]
        told = {each.name for each in found} | targets.keys()
        found += [_make_price_view_by_name(app, prices, kept, each.model) for each in kept if each.model not in told]
        found.sort(key=lambda each: each.model)
    return PriceList(found, f"genai-prices {version('genai-prices')}", settings.prices_file_path().exists(), problem)


@use_case("admin")
def set_price(app: App, _: User, model: str, price: NewPrice) -> PriceView:
    """Set the price of a model, by its name as typed or as `provider:model`; it takes precedence over all others.

    It applies to runs started or resumed from now on; costs that are already stored do not change.
    """
    check_struct_values(price)
    name = model.strip()
    _check_model_name(app, name)
    cached = price.input_per_million if price.cached_per_million is None else price.cached_per_million
    app.store.prices.put(name, Rates(0, price.input_per_million, price.output_per_million, cached))
    return _current_price_view(app, name)


@use_case("admin")
def delete_price(app: App, _: User, model: str) -> PriceView:
    """Remove the price that was set for a model; return the price that applies then."""
    app.store.prices.delete(model.strip())
    return _current_price_view(app, model.strip())


def _check_model_name(app: App, model_name: str) -> None:
    """Refuse names for which a price would silently have no effect: misspelt ones, and free models."""
    if not model_name or len(model_name) > MAX_ADDRESS_OR_MODEL_LENGTH or not model_name.isprintable():
        message = f"a model's name has 1 to {MAX_ADDRESS_OR_MODEL_LENGTH:,} printable characters"
        raise InvalidInput(message, [Problem(message, "model")])
    if model_name.partition(":")[0] in CODE_RUNNING_KINDS:
        return  # may come from a command line on another machine with this store
    try:
        target = _resolve_target(app, model_name)
    except InvalidInput as error:
        raise InvalidInput(str(error), [Problem(str(error), "model")]) from None
    if target.provider in FREE_KINDS:
        message = f"{target.provider} runs on this machine and costs nothing, so no price can be set for it"
        raise InvalidInput(message, [Problem(message, "model")])


def _resolve_target(app: App, typed: str) -> Target:
    return resolve_target(typed, find_registered_provider=app.store.providers.find_registered)


def _load_prices(custom_prices: Sequence[CustomPrice]) -> tuple[Prices, str | None]:
    """Return the prices that this process uses, and why its `prices.toml` could not be read, if so."""
    rates = {each.model: each.rates for each in custom_prices}
    try:
        return Prices.load(settings.prices_file_path(), rates), None
    except InvalidInput as error:  # no run starts then either; the path of the file stays private
        return Prices(stored_rates=rates), escape_control_characters(
            str(error).replace(str(settings.prices_file_path()), "prices.toml")
        )


def _recent_targets(app: App) -> dict[str, Target]:
    """Return the models of the newest runs: tested models, judges, embedders and speech recognition."""
    runs, _ = app.store.runs.read_page(limit=MAX_RECENT_RUNS)
    plans = [run.plan for run in runs]
    every: Iterable[Target | None] = (
        target for plan in plans for target in (*plan.targets, *plan.judges, plan.embedder, plan.stt)
    )
    return {target.typed: target for target in every if target}


def _current_price_view(app: App, name: str) -> PriceView:
    kept = app.store.prices.list()
    return _make_price_view_by_name(app, _load_prices(kept)[0], kept, name)


def _make_price_view_by_name(app: App, prices: Prices, custom_prices: Sequence[CustomPrice], typed: str) -> PriceView:
    try:
        return _price_view(prices, custom_prices, _resolve_target(app, typed))
    except InvalidInput as error:
        mine = [each for each in custom_prices if each.model == typed]
        return PriceView(
            model=typed,
            origin="set" if mine else None,
            name=typed if mine else None,
            steps=tuple(_step_view(each.rates) for each in mine),
            updated_at=mine[0].updated if mine else None,
            problem=escape_control_characters(str(error)),
        )


def _price_view(prices: Prices, custom_prices: Sequence[CustomPrice], target: Target) -> PriceView:
    found = prices.find_price(target)
    when = {each.model: each.updated for each in custom_prices}
    return PriceView(
        model=target.typed,
        origin=found.origin if found else None,
        name=found.matched_name if found else None,
        steps=tuple(_step_view(each) for each in found.tiers) if found else (),
        updated_at=when.get(found.matched_name) if found and found.origin == "set" and found.matched_name else None,
        problem=None,
    )


def _step_view(rates: Rates) -> StepView:
    return StepView(
        above=rates.above_tokens,
        input_per_million=rates.input_per_million,
        output_per_million=rates.output_per_million,
        cached_per_million=rates.cached_per_million,
        per_request=rates.per_request,
    )
