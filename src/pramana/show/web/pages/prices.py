"""Prices: what models cost, who says so, and what is set here for everyone."""

from functools import partial

from nicegui import ui

from pramana.app.prices import NewPrice, PriceList, PriceView, forget_price, list_prices, set_price
from pramana.report.markup import Child, Column, Safe, foreign, join, tag, when
from pramana.show.web.kit import Desk, frame, parts
from pramana.show.web.kit.forms import Form, number
from pramana.show.web.pages.settings import section, table_to_act_on

_FIELDS = {
    "input_per_million": ("Input price", "US dollars per million tokens"),
    "output_per_million": ("Output price", "US dollars per million tokens"),
    "cached_per_million": (
        "Cached input price (optional)",
        "input tokens from the provider’s cache; empty: the input price",
    ),
}


@frame.page("/settings/prices", "Prices")
async def prices(desk: Desk) -> None:
    """Show what models cost, and let prices be set."""
    section(desk, "Prices", "US dollars per million tokens. A missing price is shown as unknown, never as 0.")
    wanted = desk.query.get("model", "").strip()
    form = _Set(desk, wanted, await _now(desk, wanted))
    parts.heading("Prices in use")
    notes, listed = parts.show(Safe("")), parts.Panel()

    async def again() -> None:
        found = await desk.call(list_prices)
        notes.set_content(_notes(found))
        listed.show(found.items, partial(_list, desk, found.items, found.published))

    async def heard() -> None:
        await form.again()
        await again()

    await again()
    desk.when_new({"price", "run"}, heard)


async def _now(desk: Desk, model: str) -> PriceView | None:
    return (await desk.call(list_prices, [model])).items[0] if model else None


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
            self._model = parts.field("Model", model, hint="as in a run, or PROVIDER:MODEL")
            self._model.props("autocomplete=off spellcheck=false autocapitalize=off")
            with parts.box("grid"):
                self._dollars = {
                    name: number(label, getattr(first, name, None), hint) for name, (label, hint) in _FIELDS.items()
                }
            with parts.box("row"):
                if desk.may(set_price):
                    self._form.submit("Set price")
                parts.button("Look up", lambda: ui.navigate.to(desk.here(model=self._typed())))

    def _say(self, now: PriceView | None) -> None:
        self._said.set_content(tag("p", _said_of(now), class_="quiet") if now else Safe(""))
        self._said.set_visibility(now is not None)

    async def again(self) -> None:
        """Tell what holds now, whoever set it or took it back."""
        told = self._told
        now = await _now(self._desk, told)
        if told == self._told:
            self._say(now)

    def _typed(self) -> str:
        return (self._model.value or "").strip()

    async def _save(self) -> None:
        model = self._typed()
        with self._form.told_at({"model": self._model, **self._dollars}):
            body = {name: made.value for name, made in self._dollars.items()}
            if not model:
                self._model.error = "Model: enter the name of a model"
                return
            now = await self._desk.call(set_price, model, NewPrice(**body))
            self._told = model
            self._say(now)
            parts.tell(f"The price of {model} is set: runs that begin from now on are counted by it.", "positive")


# ── Those that are known ──


def _notes(found: PriceList) -> Safe:
    words = (
        f"Prices set here apply to every process on this store. They take precedence over prices.toml on the machine "
        f"that runs it, and that file over {found.published}."
    )
    said = [tag("p", words, class_="quiet")]
    if found.file_problem:
        wrong = "This server’s own prices.toml cannot be read, and no run begins until it can: "
        said.append(tag("div", tag("div", wrong, foreign(found.file_problem)), class_="warn trouble"))
    return join(said)


def _list(desk: Desk, found: list[PriceView], published: str) -> None:
    if not found:
        parts.paragraph("No models yet. The models of your runs are listed here.", quiet=True)
        return
    columns = (
        Column("Model", head=True),
        Column("Input", number=True),
        Column("Output", number=True),
        Column("Cached input", number=True),
        Column("Source"),
    )
    rows = [(_cells(each, published), partial(_put_actions, desk, each)) for each in found]
    table_to_act_on("Prices in dollars a million tokens", columns, rows)


def _cells(price: PriceView, published: str) -> tuple[Child, ...]:
    first = price.steps[0] if price.steps else None
    above = [
        f"above {each.above:,} tokens: {dollars(each.input_per_million)} in, {dollars(each.output_per_million)} out"
        for each in price.steps[1:]
    ]
    more = tag("small", "; ".join(above), class_="quiet") if above else None
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
    return tag("span", "unknown", class_="errored")


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


def _put_actions(desk: Desk, price: PriceView) -> None:
    """Put what can be done about the price of one model."""
    model = price.model
    name = price.name or model

    async def forget() -> None:
        consequence = "Runs that begin from now on are counted by what others say of it. What was counted stays."
        if await parts.confirm(f"Remove the price of {name}?", consequence, "Remove it"):
            then = await desk.call(forget_price, name)
            now = "unknown" if not then.steps else f"{dollars(then.steps[0].input_per_million)} in"
            parts.tell(f"Removed. {name} is now {now}.", "positive")

    if price.origin != "free" and desk.may(set_price):
        to = desk.here(model=price.name if price.origin == "set" else model)
        parts.show(tag("a", "Set", href=to, class_="btn small", aria_label=f"Set the price of {model}"))
    if price.origin == "set" and desk.may(forget_price):
        parts.button("Remove", forget, "danger", small=True, label=f"Remove the price of {model}")
