"""What is decided here, in sections with addresses of their own; this module has the way to them, looks and server."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import asdict
from nicegui import ui

from pramana.app import server as server_cases
from pramana.app.prices import list_prices
from pramana.app.providers import list_providers
from pramana.app.tokens import list_tokens
from pramana.report.markup import Child, Column, Safe, join, link, tag, tiles
from pramana.show.web.kit import frame, parts
from pramana.show.web.kit.desk import Desk, Refused
from pramana.show.web.kit.forms import Form, number
from pramana.show.web.kit.plain import THEME

SECTIONS = (
    ("/settings", "Overview"),
    ("/settings/providers", "Providers"),
    ("/settings/tokens", "Tokens"),
    ("/settings/prices", "Prices"),
    ("/settings/server", "Server"),
)
LOOKS = {"system": "As the system", "light": "Light", "dark": "Dark"}
_CHOOSE = f"""(value) => {{
  Quasar.Dark.set(value === "system" ? "auto" : value === "dark");
  const lasts = value === "system" ? 0 : 31536000;
  document.cookie = `{THEME}=${{value}}; path=/; max-age=${{lasts}}; samesite=lax`;
}}"""


def section(desk: Desk, title: str, about: Child = None) -> ui.element:
    """Put the heading of a section and the way to the others; what is made within what it returns stands beside."""
    beside = frame.head(title, about)
    ways = (tag("a", words, href=to, aria_current="page" if to == desk.address else None) for to, words in SECTIONS)
    parts.show(tag("nav", ways, class_="tabs", aria_label="Settings"))
    return beside


def table_to_act_on(
    caption: str, columns: Sequence[Column], rows: Iterable[tuple[Sequence[Child], Callable[[], None]]]
) -> None:
    """Put a table whose rows end with what can be done about them; on a narrow screen each folds into lines."""
    with ui.element("table").classes("data folds"):
        with ui.element("caption").classes("visually-hidden"):
            ui.label(caption)
        with ui.element("thead"), ui.element("tr"):
            for each in (*columns, Column("")):
                with ui.element("th").props("scope=col").classes("number" if each.number else ""):
                    parts.show(tag("span", each.label or tag("span", "Actions", class_="visually-hidden")))
        with ui.element("tbody"):
            for cells, put in rows:
                with ui.element("tr"):
                    for column, cell in zip(columns, cells, strict=True):
                        made = ui.element("th" if column.head else "td").classes("number" if column.number else "")
                        name, value = ("scope", "row") if column.head else ("data-label", column.label)
                        made.props[name] = value
                        with made:
                            parts.show(tag("span", cell))
                    with ui.element("td").classes("does"), parts.box("row"):
                        put()


# ── Overview ──


@frame.page("/settings", "Settings")
async def overview(desk: Desk) -> None:
    """Show what is decided, in a line each, and let looks be chosen."""
    section(desk, "Settings", "Who is asked, who may ask, what it costs, and how it looks.")
    with parts.box("halves even"):
        for to, title, told in (
            ("/settings/providers", "Providers", _of_providers),
            ("/settings/tokens", "Tokens", _of_tokens),
            ("/settings/prices", "Prices", _of_prices),
            ("/settings/server", "Server", _of_server),
        ):
            with parts.box("card"):
                parts.show(join([tag("h2", link(to, title), class_="card-title"), tag("p", await _told(desk, told))]))
    parts.heading("Looks")
    _looks(desk)


async def _told(desk: Desk, told: Callable[[Desk], Any]) -> Safe:
    try:
        words: str = await told(desk)
    except Refused as error:
        return tag("span", parts.sentence(error), ".", class_="quiet")
    return tag("span", words)


async def _of_providers(desk: Desk) -> str:
    found = await desk.call(list_providers)
    keys = sum(each.set for each in found.environment)
    return f"{_many(len(found.items), 'provider')} registered; {_many(keys, 'key')} set in the server’s environment."


async def _of_tokens(desk: Desk) -> str:
    found = await desk.call(list_tokens)
    if not found:
        return "None yet: only the account that the server runs as can use it."
    return f"{_many(sum(each.is_valid for each in found), 'token')} in use."


async def _of_prices(desk: Desk) -> str:
    found = (await desk.call(list_prices)).items
    unknown = sum(each.origin is None for each in found)
    set_here = sum(each.origin == "set" for each in found)
    return f"{_many(set_here, 'price')} set here; of {_many(unknown, 'model')} that ran lately no price is known."


async def _of_server(desk: Desk) -> str:
    found = await desk.call(server_cases.describe_server)
    reached = "for this machine alone" if found.for_this_machine_alone else "for everybody with a token"
    return f"Pramana {found.version} on {_DATABASES[found.database]}, {reached}."


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _looks(desk: Desk) -> None:
    chosen = desk.theme if desk.theme in ("light", "dark") else "system"

    def choose(value: str) -> None:
        ui.run_javascript(f"({_CHOOSE})({value!r})")

    made = ui.radio(LOOKS, value=chosen).props('inline aria-label="Looks"')
    made.on_value_change(lambda event: choose(event.value))
    parts.paragraph("Kept in this browser, for a year.", quiet=True)


# ── Server ──

_DATABASES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
PRIVATE_ADDRESSES = "Models and recordings may be at private addresses, such as 192.168.0.5 or localhost"
_TICKS = {
    "anonymous_submission": "Take results, and show badges, without a token",
    "refuse_unverified": "Refuse results of suites that nobody here knows, instead of keeping them apart",
    "allow_private_addresses": PRIVATE_ADDRESSES,
}
_NUMBERS = {
    "requests_per_minute": ("Requests a minute", "of one token, and of one address without"),
    "largest_body_mb": ("Largest request, in MB", "what is sent at once, as an import"),
    "largest_upload_mb": ("Largest recording, in MB", "of one upload"),
}


@frame.page("/settings/server", "Server settings")
async def server(desk: Desk) -> None:
    """Show what the server is, and what an administrator decides for everyone."""
    section(desk, "Server")
    found = await desk.call(server_cases.describe_server)
    hosts = ", ".join(found.allowed_hosts)
    parts.show(
        tiles(
            [
                ("Version", found.version, None),
                ("Store", _DATABASES[found.database], None),
                ("Listens at", found.address, f"also called {hosts}" if hosts else None),
                (
                    "Reached by",
                    "this machine alone" if found.for_this_machine_alone else "everybody with a token",
                    None if found.tokens_required else "its own account needs no token",
                ),
            ]
        )
    )
    parts.heading("Decided for everyone")
    try:
        now, defaults = await desk.call(server_cases.read_settings)
    except Refused as error:
        parts.trouble(error)
        return
    _decisions(desk, asdict(now), asdict(defaults), alone=found.for_this_machine_alone)


def _decisions(desk: Desk, now: dict[str, Any], defaults: dict[str, Any], *, alone: bool) -> None:
    fields: dict[str, Any] = {}

    async def save() -> None:
        found = {name: made.value for name, made in fields.items()}
        found["cors_origins"] = tuple(
            line.strip() for line in (found["cors_origins"] or "").splitlines() if line.strip()
        )
        for name in _NUMBERS:
            value = found[name]
            found[name] = int(value) if isinstance(value, float) and value.is_integer() else value
        changed = {name: value for name, value in found.items() if value != now[name]}
        if not changed:
            parts.tell("Nothing has changed.")
            return
        with form.told_at({name: made for name, made in fields.items() if name not in _TICKS}):
            now.update(asdict(await desk.call(server_cases.change_settings, changed)))
            for name in _NUMBERS:
                fields[name].value = now[name]
            parts.tell("Saved.", "positive")

    with Form(save) as form:
        for name, label in _TICKS.items():
            fields[name] = parts.tick(label, now[name])
        if alone:
            parts.paragraph("While there has been no token, they always may.", quiet=True)
        with parts.box("grid"):
            for name, (label, hint) in _NUMBERS.items():
                fields[name] = number(label, now[name], f"{hint}; empty: {defaults[name]:,}")
        fields["cors_origins"] = parts.field(
            "Other hosts’ pages that may ask",
            "\n".join(now["cors_origins"]),
            hint="one address a line, such as https://bench.example; empty: none",
            lines=True,
        )
        with parts.box("row"):
            form.submit("Save")
