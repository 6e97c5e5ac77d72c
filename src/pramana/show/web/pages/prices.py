"""Prices: what models cost, who says so, and what is set here for everyone."""

from typing import Any

from nicegui import ui

from pramana.app import prices as price_cases
from pramana.app.prices import NewPrice, PriceList
from pramana.app.views import PriceView
from pramana.report.markup import Child, Column, Safe, foreign, join, tag, when
from pramana.show.web.kit import frame, parts
from pramana.show.web.kit.desk import Desk
from pramana.show.web.kit.forms import Form, number
from pramana.show.web.pages.settings import section, table_to_act_on

_FIELDS = {
    "input_per_million": ("Input", "dollars a million tokens"),
    "output_per_million": ("Output", "dollars a million tokens"),
    "cached_per_million": ("Cached input (optional)", "what the provider had in its cache; empty: as input"),
}


@frame.page("/settings/prices", "Prices")
async def prices(desk: Desk) -> None:
    """Show what models cost, and let prices be set."""
    section(desk, "Prices", "What is asked for a million tokens. A price that nobody knows is unknown, never 0.")
    wanted = desk.query.get("model", "").strip()
    form = _Set(desk, wanted, await _now(desk, wanted))
    parts.heading("Models of the newest runs, and prices that were set")
    notes, listed = parts.show(Safe("")), ui.element("div")

    shown: list[Any] = []

    async def again() -> None:
        found = await desk.call(price_cases.list_prices)
        notes.set_content(_notes(found))
        if shown == [found.items]:
            return  # whoever is about to press a button finds it where it was
        shown[:] = [found.items]
        listed.clear()
        with listed:
            _list(desk, found.items, found.published)

    async def heard() -> None:
        await form.again()
        await again()

    await again()
    desk.when_new({"price", "run"}, heard)


async def _now(desk: Desk, model: str) -> PriceView | None:
    return (await desk.call(price_cases.list_prices, [model])).items[0] if model else None


class _Set:
    """The form that sets a price."""

    def __init__(self, desk: Desk, model: str, now: PriceView | None) -> None:
        self._desk, self._told = desk, model
        """Of which model the line above the form tells."""
        first = now.steps[0] if now and now.steps else None
        parts.heading("Set a price")
        with Form(self._save) as self._form:
            self._said = parts.show(Safe(""))
            self._say(now)
            self._model = parts.field("Model", model, hint="as it is typed for a run, or provider:model")
            self._model.props("autocomplete=off spellcheck=false autocapitalize=off")
            with parts.box("grid"):
                self._dollars = {
                    name: number(label, getattr(first, name, None), hint) for name, (label, hint) in _FIELDS.items()
                }
            with parts.box("row"):
                self._form.submit("Set the price")
                parts.button("Look it up", self._look_up)

    def _say(self, now: PriceView | None) -> None:
        self._said.set_content(tag("p", _said_of(now), class_="quiet") if now else Safe(""))
        self._said.set_visibility(now is not None)

    async def again(self) -> None:
        """Tell what holds now, whoever set it or took it back."""
        told = self._told
        now = await _now(self._desk, told)
        if told == self._told:
            self._say(now)

    def _look_up(self) -> None:
        ui.navigate.to(self._desk.here(model=(self._model.value or "").strip()))

    async def _save(self) -> None:
        model = (self._model.value or "").strip()
        with self._form.told_at({"model": self._model, **self._dollars}):
            body = {name: made.value for name, made in self._dollars.items()}
            if not model:
                self._model.error = "Say which model is meant"
                return
            now = await self._desk.call(price_cases.set_price, model, NewPrice(**body))
            self._told = model
            self._say(now)
            parts.tell(f"The price of {model} is set: runs that begin from now on are counted by it.", "positive")


# ── Those that are known ──


def _notes(found: PriceList) -> Safe:
    words = (
        f"Prices that are set here hold for every process on this store, and go before all others. Then comes the file "
        f"prices.toml of the machine that a run is on, then {found.published}, as installed."
    )
    problem = found.file_problem
    wrong = (
        tag("div", "This server’s own prices.toml cannot be read, and no run begins until it can: ", foreign(problem))
        if problem
        else None
    )
    return join([tag("p", words, class_="quiet"), tag("div", wrong, class_="warn trouble") if wrong else None])


def _list(desk: Desk, found: list[PriceView], published: str) -> None:
    if not found:
        parts.paragraph("None yet. After the first run, its models stand here.", quiet=True)
        return
    columns = (
        Column("Model", head=True),
        Column("Input", number=True),
        Column("Output", number=True),
        Column("Cached input", number=True),
        Column("Who says so"),
    )
    rows = [(_cells(each, published), _Row(desk, each).put) for each in found]
    table_to_act_on("Prices in dollars a million tokens", columns, rows)


def _cells(price: PriceView, published: str) -> tuple[Child, ...]:
    steps = price.steps
    first = steps[0] if steps else None
    more = None
    if len(steps) > 1:
        above = (
            f"above {each.above:,} tokens: {dollars(each.input_per_million)} in, {dollars(each.output_per_million)} out"
            for each in steps[1:]
        )
        more = tag("small", "; ".join(above), class_="quiet")
    return (
        join([tag("span", foreign(price.model), class_="mono"), more], " "),
        dollars(first.input_per_million if first else None),
        dollars(first.output_per_million if first else None),
        dollars(first.cached_per_million if first else None),
        _origin(price, published),
    )


def _origin(price: PriceView, published: str) -> Safe:
    by_name = price.name and price.name != price.model
    named = join([" as ", tag("span", foreign(price.name), class_="mono")]) if by_name else None
    match price.origin:
        case "set":
            return tag("span", "set here", named, ", ", when(price.updated_at))
        case "file":
            return tag("span", "prices.toml of this server’s machine", named)
        case "published":
            return tag("span", published)
        case "free":
            return tag("span", "costs nothing")
        case _:
            return tag("span", "nobody: unknown", class_="errored")


def _said_of(price: PriceView) -> Safe:
    if price.problem:
        return tag("span", foreign(price.problem))
    if not price.steps:
        return tag("span", "No price is known for ", tag("b", foreign(price.model)), ".")
    first = price.steps[0]
    cost = f"{dollars(first.input_per_million)} in and {dollars(first.output_per_million)} out"
    return tag("span", "Now ", tag("b", foreign(price.model)), f": {cost} a million tokens.")


def dollars(value: float | None) -> str:
    """Return a price for people; unknown is never 0.

    >>> dollars(1.25), dollars(0.075), dollars(0), dollars(None), dollars(12000), dollars(4e-7)
    ('$1.25', '$0.075', '$0', 'unknown', '$12,000.00', 'under $0.000001')
    """
    if value is None:
        return "unknown"
    if 0 < value < 0.000001:
        return "under $0.000001"
    whole, _, rest = f"{value:,.6f}".rstrip("0").partition(".")
    return f"${whole}.{rest:0<2}" if value else "$0"


class _Row:
    """What can be done about the price of one model."""

    def __init__(self, desk: Desk, price: PriceView) -> None:
        self._desk, self._price = desk, price

    def put(self) -> None:
        model = self._price.model
        if self._price.origin != "free":
            named = self._price.name if self._price.origin == "set" else model
            to = self._desk.here(model=named)
            parts.show(tag("a", "Set", href=to, class_="btn small", aria_label=f"Set the price of {model}"))
        if self._price.origin == "set":
            parts.button("Remove", self._forget, "danger", small=True, label=f"Remove the price of {model}")

    async def _forget(self) -> None:
        name = self._price.name or self._price.model
        consequence = "Runs that begin from now on are counted by what others say of it. What was counted stays."
        if await parts.confirm(f"Remove the price of {name}?", consequence, "Remove it"):
            then = await self._desk.call(price_cases.forget_price, name)
            now = "unknown" if not then.steps else f"{dollars(then.steps[0].input_per_million)} in"
            parts.tell(f"Removed. {name} is now {now}.", "positive")
