"""What is decided here, in sections with addresses of their own: the way to them, looks, the server, and its tokens.

A new token is shown once.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import asdict
from nicegui import ui

from pramana.analyse.numbers import counted
from pramana.app.prices import list_prices
from pramana.app.providers import list_providers
from pramana.app.server import (
    NewTokenView,
    ServerView,
    TokenRequest,
    TokenView,
    change_settings,
    create_token,
    describe_server,
    list_tokens,
    read_settings,
    revoke_token,
)
from pramana.report.markup import Child, Column, Safe, foreign, join, link, tag, tiles, when
from pramana.show.web.kit import Desk, Refused, frame, parts
from pramana.show.web.kit.forms import Form, number
from pramana.show.web.kit.style import THEME
from pramana.store.tokens import EXPIRES_DAYS

SECTIONS = (
    ("/settings", "Overview"),
    ("/settings/providers", "Providers"),
    ("/settings/tokens", "Tokens"),
    ("/settings/prices", "Prices"),
    ("/settings/server", "Server"),
)
LOOKS = {"system": "System", "light": "Light", "dark": "Dark"}
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
    section(desk, "Settings", "Providers, access, prices and appearance.")
    with parts.box("halves even"):
        for to, title, told in (
            ("/settings/providers", "Providers", _of_providers),
            ("/settings/tokens", "Tokens", _of_tokens),
            ("/settings/prices", "Prices", _of_prices),
            ("/settings/server", "Server", _of_server),
        ):
            with parts.box("card"):
                try:
                    said = tag("span", await told(desk))
                except Refused as error:
                    said = tag("span", parts.sentence(error), ".", class_="quiet")
                parts.show(join([tag("h2", link(to, title), class_="card-title"), tag("p", said)]))
    parts.heading("Appearance")
    chosen = desk.theme if desk.theme in ("light", "dark") else "system"
    looks = ui.radio(LOOKS, value=chosen).props('inline aria-label="Theme"')
    looks.on_value_change(lambda event: ui.run_javascript(f"({_CHOOSE})({event.value!r})"))
    parts.paragraph("Saved in this browser for one year.", quiet=True)


async def _of_providers(desk: Desk) -> str:
    found = await desk.call(list_providers)
    keys = sum(each.set for each in found.environment)
    return (
        f"{counted(len(found.items), 'provider')} registered; {counted(keys, 'key')} set in the server’s environment."
    )


async def _of_tokens(desk: Desk) -> str:
    found = await desk.call(list_tokens)
    if not found:
        return "No tokens yet: only the account that runs the server has access."
    return f"{counted(sum(each.is_valid for each in found), 'token')} in use."


async def _of_prices(desk: Desk) -> str:
    found = (await desk.call(list_prices)).items
    unknown = sum(each.origin is None for each in found)
    set_here = sum(each.origin == "set" for each in found)
    return f"{counted(set_here, 'price')} set here; of {counted(unknown, 'model')} that ran lately no price is known."


async def _of_server(desk: Desk) -> str:
    found = await desk.call(describe_server)
    reached = "for this machine only" if found.for_this_machine_alone else "for anyone with a token"
    return f"Pramana {found.version} on {_DATABASES[found.database]}, {reached}."


# ── Server ──

_DATABASES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
PRIVATE_ADDRESSES = "Allow private addresses for models and recordings, such as 192.168.0.5 or localhost"
_TICKS = {
    "anonymous_submission": "Accept results and show badges without a token",
    "refuse_unverified": "Reject results of unknown suites instead of storing them apart",
    "allow_private_addresses": PRIVATE_ADDRESSES,
}
_NUMBERS = {
    "requests_per_minute": ("Requests per minute", "per token, or per address without a token"),
    "largest_body_mb": ("Maximum request size (MB)", "one request, such as an import"),
    "largest_upload_mb": ("Maximum recording size (MB)", "one upload"),
}


@frame.page("/settings/server", "Server settings")
async def server(desk: Desk) -> None:
    """Show what the server is, and what an administrator decides for everyone."""
    section(desk, "Server")
    found = await desk.call(describe_server)
    hosts = ", ".join(found.allowed_hosts)
    parts.show(
        tiles(
            [
                ("Version", found.version, None),
                ("Store", _DATABASES[found.database], None),
                ("Address", found.address, f"also called {hosts}" if hosts else None),
                (
                    "Access",
                    "this machine only" if found.for_this_machine_alone else "anyone with a token",
                    None if found.tokens_required else "its own account needs no token",
                ),
            ]
        )
    )
    parts.heading("Server settings")
    try:
        now, defaults = await desk.call(read_settings)
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
            parts.tell("No changes to save.")
            return
        with form.told_at({name: made for name, made in fields.items() if name not in _TICKS}):
            now.update(asdict(await desk.call(change_settings, changed)))
            for name in _NUMBERS:
                fields[name].value = now[name]
            parts.tell("Saved.", "positive")

    with Form(save) as form:
        for name, label in _TICKS.items():
            fields[name] = parts.tick(label, now[name])
        if alone:
            parts.paragraph("Always allowed until the first token is created.", quiet=True)
        with parts.box("grid"):
            for name, (label, hint) in _NUMBERS.items():
                fields[name] = number(label, now[name], f"{hint}; empty: {defaults[name]:,}")
        fields["cors_origins"] = parts.field(
            "Allowed CORS origins",
            "\n".join(now["cors_origins"]),
            hint="one origin per line, such as https://bench.example; empty: none",
            lines=True,
        )
        with parts.box("row"):
            form.submit("Save")


# ── Tokens ──

ROLES = {"viewer": "Viewer", "editor": "Editor", "admin": "Administrator"}
EXPIRES = {30: "In 30 days", EXPIRES_DAYS: "In 90 days", 365: "In a year", 0: "Never"}
_SETTING = tag("span", "Change it in ", link("/settings/server", "Server settings"), ".")
_FIRST = (
    "This is the first token. Your own account on this machine still needs none. Until now, models may be on this "
    "machine and in your network; choose whether they may be when others use the server too. "
)
_MAY = (
    "A viewer reads everything but settings and tokens. An editor also changes scenarios and starts runs. An "
    "administrator also manages providers, prices, tokens and settings."
)


@frame.page("/settings/tokens", "Tokens", list_tokens, create_token)
async def tokens(desk: Desk) -> None:
    """Show who has a token, make one, end one."""
    section(desk, "Tokens", "Access to this server and the role of each token.")
    page = ui.element("div")
    with page:
        _new_token(desk, page, await desk.call(describe_server))
        parts.heading("Active and revoked tokens")
        try:
            found = await desk.call(list_tokens)
        except Refused as error:
            if error.status == 401:
                raise
            parts.trouble(error)
            return
        _list(desk, found)


def _new_token(desk: Desk, page: ui.element, found: ServerView) -> None:
    """Put the form that makes a token."""

    async def make() -> None:
        wanted = TokenRequest(name=(name.value or "").strip(), role=role.value, expires_in_days=expires.value or None)
        with form.told_at({"name": name, "role": role}):
            made = await desk.call(create_token, wanted)
            if private and private.value:
                await desk.call(change_settings, {"allow_private_addresses": True})
            with parts.redrawn(page):
                _show_once(made, refuses_private=private is not None and not private.value)

    parts.heading("Create a token")
    with Form(make) as form:
        with parts.box("grid"):
            name = parts.field("Name", hint="person or purpose")
            role = parts.choice("Role", ROLES, "admin" if found.for_this_machine_alone else "editor")
            expires = parts.choice("Expires", EXPIRES, EXPIRES_DAYS)
        parts.paragraph(_MAY, quiet=True).classes("small")
        private = None
        if found.for_this_machine_alone:
            parts.paragraph(_FIRST, _SETTING)
            private = parts.tick(PRIVATE_ADDRESSES)
        with parts.box("row"):
            form.submit("Create token")


def _show_once(made: NewTokenView, *, refuses_private: bool) -> None:
    """Show a token, this once."""
    with parts.box("card stack", role="region", label="The new token"):
        parts.show(tag("h2", "The token of ", foreign(made.name), class_="card-title"))
        with parts.box("warn", role="alert"):
            parts.paragraph("Copy the token now. It is not shown again.")
        whose = f"{'an' if made.role[0] in 'ae' else 'a'} {made.role}’s"
        parts.show(tag("label", f"Token, {whose}", for_="secret"))
        with parts.box("row"):
            shown = ui.element("input").classes("native mono secret").props("id=secret type=text readonly")
            shown.props["value"] = made.token
            copy = ui.button("Copy", color=None).props("unelevated no-caps").classes("btn primary")
            copy.props["data-copy"] = made.token
            copy.on("click", js_handler=parts.COPY)
        if refuses_private:
            parts.paragraph("Models and recordings at private addresses are refused from now on. ", _SETTING)
        with parts.box("row"):
            parts.link_button("Done", "/settings/tokens")


def _list(desk: Desk, found: list[TokenView]) -> None:
    if not found:
        parts.paragraph("No tokens yet: only the account that runs the server has access.", quiet=True)
        return
    names = ("Role", "Made", "Last used", "Expires", "Revoked")
    columns = (Column("Name", head=True), *map(Column, names))
    holding = [each for each in found if each.is_valid]
    ordered = [*holding, *(each for each in found if not each.is_valid)]
    table_to_act_on(
        "Tokens", columns, [(_cells(desk, each), partial(_put_revoke, desk, each, holding)) for each in ordered]
    )


def _cells(desk: Desk, token: TokenView) -> tuple[Child, ...]:
    mine = tag("small", " yours", class_="quiet") if token.id == desk.who.token_id else None
    used: Safe | str = token.last_used or tag("span", "never", class_="quiet")
    name = join([foreign(token.name), mine])
    expires = when(token.expires_at) if token.expires_at else "never"
    revoked = when(token.revoked_at) if token.revoked_at else "no"
    return name, token.role, when(token.created_at), used, expires, revoked


def _put_revoke(desk: Desk, token: TokenView, holding: Sequence[TokenView]) -> None:
    """Put the button that ends a token, and say what comes of that."""
    words = "It stops working within seconds. This cannot be undone; you can create a new token."
    if token.id == desk.who.token_id:
        words = f"It is the one you are signed in with: you will need another. {words}"
    if token.role == "admin" and not any(each.role == "admin" for each in holding if each.id != token.id):
        words += (
            " No other administrator has one: after this, only the command line of the server can make tokens, or "
            "the account that it runs as."
        )

    async def revoke() -> None:
        if await parts.confirm(f"Revoke the token of {token.name}?", words, "Revoke"):
            await desk.call(revoke_token, token.id)
            ui.navigate.to("/settings/tokens")

    if token.is_valid:
        parts.button("Revoke", revoke, "danger", small=True, label=f"Revoke {token.name}")
