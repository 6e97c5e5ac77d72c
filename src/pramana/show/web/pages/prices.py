"""Prices of models: their values, their sources, and the prices set on this server."""

from functools import partial

from nicegui import ui

from pramana.app.prices import NewPrice, PriceList, PriceView, delete_price, list_prices, set_price
from pramana.report.markup import Column, HtmlChild, SafeHtml, join_html, render_time, render_untrusted_text, tag
from pramana.show.web.kit import PageContext, frame, parts
from pramana.show.web.kit.forms import Form, add_unclamped_number_field
from pramana.show.web.pages.settings import add_section_heading, draw_action_table

_FIELD_LABELS_AND_HINTS = {
    "input_per_million": ("Input price", "US dollars per million tokens"),
    "output_per_million": ("Output price", "US dollars per million tokens"),
    "cached_per_million": (
        "Cached input price (optional)",
        "per input token read from the provider’s cache; empty: the input price",
    ),
}


@frame.register_page("/settings/prices", "Prices")
async def show_prices_page(context: PageContext) -> None:
    """Show the known prices, and the form to set one."""
    add_section_heading(
        context, "Prices", "US dollars per million tokens. A missing price is shown as unknown, never as 0."
    )
    wanted = context.query.get("model", "").strip()
    form = _PriceForm(context, wanted, await _read_price(context, wanted))
    parts.add_heading("Prices in use")
    notes, listed = parts.add_markup(SafeHtml("")), parts.Panel()

    async def refresh() -> None:
        found = await context.call(list_prices)
        notes.set_content(_render_notes(found))
        listed.redraw_if_changed(found.items, partial(_draw_price_table, context, found.items, found.published_source))

    async def on_news() -> None:
        await form.refresh()
        await refresh()

    await refresh()
    context.on_change({"price", "run"}, on_news)


async def _read_price(context: PageContext, model: str) -> PriceView | None:
    return (await context.call(list_prices, [model])).items[0] if model else None


class _PriceForm:
    """The form to set a price."""

    def __init__(self, context: PageContext, model: str, now: PriceView | None) -> None:
        self._context, self._shown_model = context, model
        """The model whose current price is shown above the form."""
        first = now.steps[0] if now and now.steps else None
        parts.add_heading("Set a price")
        with Form(self._save) as self._form:
            self._current_price = parts.add_markup(SafeHtml(""))
            self._show_current_price(now)
            self._model = parts.add_text_field("Model", model, hint="as in a run, or PROVIDER:MODEL")
            self._model.props("autocomplete=off spellcheck=false autocapitalize=off")
            with parts.open_box("grid"):
                self._dollars = {
                    name: add_unclamped_number_field(label, getattr(first, name, None), hint)
                    for name, (label, hint) in _FIELD_LABELS_AND_HINTS.items()
                }
            with parts.open_box("row"):
                if context.may(set_price):
                    self._form.add_submit_button("Set price")
                parts.add_button(
                    "Look up", lambda: ui.navigate.to(context.make_page_url(model=self._read_typed_model()))
                )

    def _show_current_price(self, price: PriceView | None) -> None:
        self._current_price.set_content(
            tag("p", _render_current_price(price), class_="quiet") if price else SafeHtml("")
        )
        self._current_price.set_visibility(price is not None)

    async def refresh(self) -> None:
        """Show the current price again, after any user has set or removed one."""
        told = self._shown_model
        now = await _read_price(self._context, told)
        if told == self._shown_model:
            self._show_current_price(now)

    def _read_typed_model(self) -> str:
        return (self._model.value or "").strip()

    async def _save(self) -> None:
        model = self._read_typed_model()
        with self._form.show_errors_at({"model": self._model, **self._dollars}):
            body = {name: made.value for name, made in self._dollars.items()}
            if not model:
                self._model.error = "Model: enter the name of a model"
                return
            now = await self._context.call(set_price, model, NewPrice(**body))
            self._shown_model = model
            self._show_current_price(now)
            parts.show_notification(f"The price of {model} is set: new runs use this price.", "positive")


# ── Known prices ──


def _render_notes(price_list: PriceList) -> SafeHtml:
    words = (
        f"Prices set here apply to every process on this store. They take precedence over prices.toml on the machine "
        f"that runs it, and that file takes precedence over {price_list.published_source}."
    )
    said = [tag("p", words, class_="quiet")]
    if price_list.prices_file_problem:
        wrong = "This server’s prices.toml cannot be read, and no run can start until it is fixed: "
        said.append(
            tag("div", tag("div", wrong, render_untrusted_text(price_list.prices_file_problem)), class_="warn trouble")
        )
    return join_html(said)


def _draw_price_table(context: PageContext, prices_: list[PriceView], published_label: str) -> None:
    if not prices_:
        parts.add_paragraph("No models yet. The models of your runs are listed here.", quiet=True)
        return
    columns = (
        Column("Model", is_row_header=True),
        Column("Input", is_numeric=True),
        Column("Output", is_numeric=True),
        Column("Cached input", is_numeric=True),
        Column("Source"),
    )
    rows = [(_render_price_cells(each, published_label), partial(_draw_actions, context, each)) for each in prices_]
    draw_action_table("Prices in US dollars per million tokens", columns, rows)


def _render_price_cells(price: PriceView, published_label: str) -> tuple[HtmlChild, ...]:
    first = price.steps[0] if price.steps else None
    above = [
        f"above {each.above:,} tokens: {format_price(each.input_per_million)} in, "
        f"{format_price(each.output_per_million)} out"
        for each in price.steps[1:]
    ]
    more = tag("small", "; ".join(above), class_="quiet") if above else None
    return (
        join_html([tag("span", render_untrusted_text(price.model), class_="mono"), more], " "),
        format_price(first.input_per_million if first else None),
        format_price(first.output_per_million if first else None),
        format_price(first.cached_per_million if first else None),
        _render_origin(price, published_label),
    )


def _render_origin(price: PriceView, published_label: str) -> SafeHtml:
    by_name = price.name and price.name != price.model
    named = join_html([" as ", tag("span", render_untrusted_text(price.name), class_="mono")]) if by_name else None
    match price.origin:
        case "set":
            return tag("span", "set here", named, ", ", render_time(price.updated_at))
        case "file":
            return tag("span", "prices.toml on the server’s machine", named)
        case "published":
            return tag("span", published_label)
        case "free":
            return tag("span", "costs nothing")
    return tag("span", "unknown", class_="errored")


def _render_current_price(price: PriceView) -> SafeHtml:
    if price.problem:
        return tag("span", render_untrusted_text(price.problem))
    if not price.steps:
        return tag("span", "No price is known for ", tag("b", render_untrusted_text(price.model)), ".")
    first = price.steps[0]
    cost = f"{format_price(first.input_per_million)} in and {format_price(first.output_per_million)} out"
    return tag("span", "Now ", tag("b", render_untrusted_text(price.model)), f": {cost} per million tokens.")


def format_price(value: float | None) -> str:
    """Return a price as text; unknown is never shown as 0.

    >>> *map(format_price, (1.25, 0.075, 0, None, 12000, 4e-7)),
    ('$1.25', '$0.075', '$0', 'unknown', '$12,000.00', 'under $0.000001')
    """
    if value is None:
        return "unknown"
    if 0 < value < 0.000001:
        return "under $0.000001"
    whole, _, rest = f"{value:,.6f}".rstrip("0").partition(".")
    return f"${whole}.{rest:0<2}" if value else "$0"


def _draw_actions(context: PageContext, price: PriceView) -> None:
    """Add the actions on a model's price."""
    model = price.model
    name = price.name or model

    async def forget() -> None:
        consequence = (
            "New runs use the price from prices.toml or the published list, if any. Costs of earlier runs do not "
            "change."
        )
        if await parts.ask_confirmation(f"Remove the price of {name}?", consequence, "Remove it"):
            then = await context.call(delete_price, name)
            now = "unknown" if not then.steps else f"{format_price(then.steps[0].input_per_million)} in"
            parts.show_notification(f"Removed. {name} is now {now}.", "positive")

    if price.origin != "free" and context.may(set_price):
        to = context.make_page_url(model=price.name if price.origin == "set" else model)
        parts.add_markup(tag("a", "Set", href=to, class_="btn small", aria_label=f"Set the price of {model}"))
    if price.origin == "set" and context.may(delete_price):
        parts.add_button("Remove", forget, "danger", small=True, accessible_label=f"Remove the price of {model}")
