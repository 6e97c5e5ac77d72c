"""Settings in sections with addresses of their own: overview with theme, server, and tokens.

A new token is shown once.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from msgspec.structs import asdict
from nicegui import ui

from pramana.analyse.numbers import pluralise
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
from pramana.report.markup import (
    Column,
    HtmlChild,
    SafeHtml,
    join_html,
    render_link,
    render_tiles,
    render_time,
    render_untrusted_text,
    tag,
)
from pramana.show.web.kit import PageContext, UseCaseRefused, frame, parts
from pramana.show.web.kit.forms import Form, add_unclamped_number_field
from pramana.show.web.kit.style import THEME_COOKIE_NAME
from pramana.store.tokens import EXPIRES_DAYS

SECTION_LINKS = (
    ("/settings", "Overview"),
    ("/settings/providers", "Providers"),
    ("/settings/tokens", "Tokens"),
    ("/settings/prices", "Prices"),
    ("/settings/server", "Server"),
)
THEME_LABELS = {"system": "System", "light": "Light", "dark": "Dark"}
_CHOOSE_THEME_HANDLER = f"""(value) => {{
  Quasar.Dark.set(value === "system" ? "auto" : value === "dark");
  const lasts = value === "system" ? 0 : 31536000;
  document.cookie = `{THEME_COOKIE_NAME}=${{value}}; path=/; max-age=${{lasts}}; samesite=lax`;
}}"""


def add_section_heading(context: PageContext, title: str, description: HtmlChild = None) -> ui.element:
    """Add a section's heading and the tabs; elements created in the returned container appear beside the heading."""
    beside = frame.add_page_heading(title, description)
    ways = (
        tag("a", words, href=to, aria_current="page" if to == context.address else None) for to, words in SECTION_LINKS
    )
    parts.add_markup(tag("nav", ways, class_="tabs", aria_label="Settings"))
    return beside


def draw_action_table(
    caption: str, columns: Sequence[Column], rows: Iterable[tuple[Sequence[HtmlChild], Callable[[], None]]]
) -> None:
    """Add a table whose rows end with actions; on a narrow screen each row is stacked."""
    with ui.element("table").classes("data folds"):
        with ui.element("caption").classes("visually-hidden"):
            ui.label(caption)
        with ui.element("thead"), ui.element("tr"):
            for each in (*columns, Column("")):
                with ui.element("th").props("scope=col").classes("number" if each.is_numeric else ""):
                    parts.add_markup(tag("span", each.label or tag("span", "Actions", class_="visually-hidden")))
        with ui.element("tbody"):
            for cells, put in rows:
                with ui.element("tr"):
                    for column, cell in zip(columns, cells, strict=True):
                        made = ui.element("th" if column.is_row_header else "td").classes(
                            "number" if column.is_numeric else ""
                        )
                        name, value = ("scope", "row") if column.is_row_header else ("data-label", column.label)
                        made.props[name] = value
                        with made:
                            parts.add_markup(tag("span", cell))
                    with ui.element("td").classes("does"), parts.open_box("row"):
                        put()


# ── Overview ──


@frame.register_page("/settings", "Settings")
async def show_settings_page(context: PageContext) -> None:
    """Show a line about each section, and the choice of theme."""
    add_section_heading(context, "Settings", "Providers, access, prices and appearance.")
    with parts.open_box("halves even"):
        for to, title, told in (
            ("/settings/providers", "Providers", _summarise_providers),
            ("/settings/tokens", "Tokens", _summarise_tokens),
            ("/settings/prices", "Prices", _summarise_prices),
            ("/settings/server", "Server", _summarise_server),
        ):
            with parts.open_box("card"):
                try:
                    said = tag("span", await told(context))
                except UseCaseRefused as error:
                    said = tag("span", parts.describe_refusal(error), ".", class_="quiet")
                parts.add_markup(join_html([tag("h2", render_link(to, title), class_="card-title"), tag("p", said)]))
    parts.add_heading("Appearance")
    chosen = context.theme if context.theme in ("light", "dark") else "system"
    looks = ui.radio(THEME_LABELS, value=chosen).props('inline aria-label="Theme"')
    looks.on_value_change(lambda event: ui.run_javascript(f"({_CHOOSE_THEME_HANDLER})({event.value!r})"))
    parts.add_paragraph("Saved in this browser for one year.", quiet=True)


async def _summarise_providers(context: PageContext) -> str:
    found = await context.call(list_providers)
    keys = sum(each.set for each in found.environment)
    registered = pluralise(len(found.items), "provider")
    return f"{registered} registered; {pluralise(keys, 'key')} set in the server’s environment."


async def _summarise_tokens(context: PageContext) -> str:
    found = await context.call(list_tokens)
    if not found:
        return "No tokens yet: only the account that runs the server has access."
    return f"{pluralise(sum(each.is_valid for each in found), 'token')} in use."


async def _summarise_prices(context: PageContext) -> str:
    found = (await context.call(list_prices)).items
    unknown = sum(each.origin is None for each in found)
    set_here = sum(each.origin == "set" for each in found)
    return (
        f"{pluralise(set_here, 'price')} set here; of {pluralise(unknown, 'model')} that ran recently no price is "
        "known."
    )


async def _summarise_server(context: PageContext) -> str:
    found = await context.call(describe_server)
    reached = "for this machine only" if found.for_this_machine_alone else "for anyone with a token"
    return f"Pramana {found.version} on {_DATABASE_NAMES[found.database]}, {reached}."


# ── Server ──

_DATABASE_NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
PRIVATE_ADDRESSES_LABEL = "Allow private addresses for models and recordings, such as 192.168.0.5 or localhost"
_CHECKBOX_LABELS = {
    "anonymous_submission": "Accept results and show badges without a token",
    "refuse_unverified": "Reject results of unknown suites instead of storing them separately",
    "allow_private_addresses": PRIVATE_ADDRESSES_LABEL,
}
_NUMBER_LABELS_AND_HINTS = {
    "requests_per_minute": ("Requests per minute", "per token, or per address without a token"),
    "largest_body_mb": ("Maximum request size (MB)", "one request, such as an import"),
    "largest_upload_mb": ("Maximum recording size (MB)", "one upload"),
}


@frame.register_page("/settings/server", "Server settings")
async def show_server_page(context: PageContext) -> None:
    """Show the server's state, and the settings that administrators change for everyone."""
    add_section_heading(context, "Server")
    found = await context.call(describe_server)
    hosts = ", ".join(found.allowed_hosts)
    parts.add_markup(
        render_tiles(
            [
                ("Version", found.version, None),
                ("Store", _DATABASE_NAMES[found.database], None),
                (
                    "Address",
                    render_untrusted_text(found.address),
                    f"also accepts requests for the host names {hosts}" if hosts else None,
                ),
                (
                    "Access",
                    "this machine only" if found.for_this_machine_alone else "anyone with a token",
                    None if found.tokens_required else "the account that runs the server needs no token",
                ),
            ]
        )
    )
    parts.add_heading("Server settings")
    try:
        now, defaults = await context.call(read_settings)
    except UseCaseRefused as error:
        parts.add_refusal_box(error)
        return
    _draw_server_settings(context, asdict(now), asdict(defaults), is_for_this_machine_only=found.for_this_machine_alone)


def _draw_server_settings(
    context: PageContext, current_settings: dict[str, Any], defaults: dict[str, Any], *, is_for_this_machine_only: bool
) -> None:
    fields: dict[str, Any] = {}

    async def save() -> None:
        found = {name: made.value for name, made in fields.items()}
        found["cors_origins"] = tuple(
            line.strip() for line in (found["cors_origins"] or "").splitlines() if line.strip()
        )
        for name in _NUMBER_LABELS_AND_HINTS:
            value = found[name]
            found[name] = int(value) if isinstance(value, float) and value.is_integer() else value
        changed = {name: value for name, value in found.items() if value != current_settings[name]}
        if not changed:
            parts.show_notification("No changes to save.")
            return
        with form.show_errors_at({name: made for name, made in fields.items() if name not in _CHECKBOX_LABELS}):
            current_settings.update(asdict(await context.call(change_settings, changed)))
            for name in _NUMBER_LABELS_AND_HINTS:
                fields[name].value = current_settings[name]
            parts.show_notification("Saved.", "positive")

    with Form(save) as form:
        for name, label in _CHECKBOX_LABELS.items():
            fields[name] = parts.add_checkbox(label, current_settings[name])
        if is_for_this_machine_only:
            parts.add_paragraph("Private addresses are always allowed until the first token is created.", quiet=True)
        with parts.open_box("grid"):
            for name, (label, hint) in _NUMBER_LABELS_AND_HINTS.items():
                fields[name] = add_unclamped_number_field(
                    label, current_settings[name], f"{hint}; empty: {defaults[name]:,}"
                )
        fields["cors_origins"] = parts.add_text_field(
            "Allowed CORS origins",
            "\n".join(current_settings["cors_origins"]),
            hint="one origin per line, such as https://bench.example; empty: none",
            multiline=True,
        )
        with parts.open_box("row"):
            form.add_submit_button("Save")


# ── Tokens ──

ROLE_LABELS = {"viewer": "Viewer", "editor": "Editor", "admin": "Administrator"}
EXPIRY_LABELS_BY_DAYS = {30: "In 30 days", EXPIRES_DAYS: "In 90 days", 365: "In a year", 0: "Never"}
_SETTING_LINK_NOTE = tag("span", "Change it in ", render_link("/settings/server", "Server settings"), ".")
_FIRST_TOKEN_NOTE = (
    "This is the first token. Your own account on this machine still needs no token. So far, runs may use models on "
    "this machine and in your network; choose whether this stays allowed when other users have access. "
)
_ROLE_DESCRIPTIONS = (
    "A viewer reads everything but settings and tokens. An editor also changes scenarios and starts runs. An "
    "administrator also manages providers, prices, tokens and settings."
)


@frame.register_page("/settings/tokens", "Tokens", list_tokens, create_token)
async def show_tokens_page(context: PageContext) -> None:
    """Show the tokens; create and revoke them."""
    add_section_heading(context, "Tokens", "Access to this server and the role of each token.")
    page = ui.element("div")
    with page:
        _add_token_form(context, page, await context.call(describe_server))
        parts.add_heading("Active and revoked tokens")
        try:
            found = await context.call(list_tokens)
        except UseCaseRefused as error:
            if error.status == 401:
                raise
            parts.add_refusal_box(error)
            return
        _draw_token_table(context, found)


def _add_token_form(context: PageContext, container: ui.element, server_view: ServerView) -> None:
    """Add the form that creates a token."""

    async def make() -> None:
        wanted = TokenRequest(name=(name.value or "").strip(), role=role.value, expires_in_days=expires.value or None)
        with form.show_errors_at({"name": name, "role": role}):
            made = await context.call(create_token, wanted)
            if private and private.value:
                await context.call(change_settings, {"allow_private_addresses": True})
            with parts.redraw(container):
                _show_new_token(made, refuses_private_addresses=private is not None and not private.value)

    parts.add_heading("Create a token")
    with Form(make) as form:
        with parts.open_box("grid"):
            name = parts.add_text_field("Name", hint="person or purpose")
            role = parts.add_select("Role", ROLE_LABELS, "admin" if server_view.for_this_machine_alone else "editor")
            expires = parts.add_select("Expires", EXPIRY_LABELS_BY_DAYS, EXPIRES_DAYS)
        parts.add_paragraph(_ROLE_DESCRIPTIONS, quiet=True).classes("small")
        private = None
        if server_view.for_this_machine_alone:
            parts.add_paragraph(_FIRST_TOKEN_NOTE, _SETTING_LINK_NOTE)
            private = parts.add_checkbox(PRIVATE_ADDRESSES_LABEL)
        with parts.open_box("row"):
            form.add_submit_button("Create token")


def _show_new_token(token: NewTokenView, *, refuses_private_addresses: bool) -> None:
    """Show a new token, this once."""
    with parts.open_box("card stack", role="region", label="The new token"):
        parts.add_markup(tag("h2", "The token of ", render_untrusted_text(token.name), class_="card-title"))
        with parts.open_box("warn", role="alert"):
            parts.add_paragraph("Copy the token now. It is not shown again.")
        whose = f"{'an' if token.role[0] in 'ae' else 'a'} {token.role}’s"
        parts.add_markup(tag("label", f"Token, {whose}", for_="secret"))
        with parts.open_box("row"):
            shown = ui.element("input").classes("native mono secret").props("id=secret type=text readonly")
            shown.props["value"] = token.token
            copy = ui.button("Copy", color=None).props("unelevated no-caps").classes("btn primary")
            copy.props["data-copy"] = token.token
            copy.on("click", js_handler=parts.COPY_SCRIPT)
        if refuses_private_addresses:
            parts.add_paragraph(
                "Models and recordings at private addresses are refused from now on. ", _SETTING_LINK_NOTE
            )
        with parts.open_box("row"):
            parts.add_link_button("Done", "/settings/tokens")


def _draw_token_table(context: PageContext, tokens_: list[TokenView]) -> None:
    if not tokens_:
        parts.add_paragraph("No tokens yet: only the account that runs the server has access.", quiet=True)
        return
    names = ("Role", "Made", "Last used", "Expires", "Revoked")
    columns = (Column("Name", is_row_header=True), *map(Column, names))
    holding = [each for each in tokens_ if each.is_valid]
    ordered = [*holding, *(each for each in tokens_ if not each.is_valid)]
    draw_action_table(
        "Tokens",
        columns,
        [(_render_token_cells(context, each), partial(_add_revoke_button, context, each, holding)) for each in ordered],
    )


def _render_token_cells(context: PageContext, token: TokenView) -> tuple[HtmlChild, ...]:
    mine = tag("small", " yours", class_="quiet") if token.id == context.user.token_id else None
    used: SafeHtml | str = token.last_used or tag("span", "never", class_="quiet")
    name = join_html([render_untrusted_text(token.name), mine])
    expires = render_time(token.expires_at) if token.expires_at else "never"
    revoked = render_time(token.revoked_at) if token.revoked_at else "no"
    return name, token.role, render_time(token.created_at), used, expires, revoked


def _add_revoke_button(context: PageContext, token: TokenView, valid_tokens: Sequence[TokenView]) -> None:
    """Add the button that revokes a token, with the consequences in its confirmation."""
    words = "The token stops working within seconds. This cannot be undone; you can create a new token."
    if token.id == context.user.token_id:
        words = f"You are signed in with this token and will need another token. {words}"
    if token.role == "admin" and not any(each.role == "admin" for each in valid_tokens if each.id != token.id):
        words += (
            " This is the last administrator token: afterwards, only the account that runs the server can create "
            "tokens, for example with pramana token create."
        )

    async def revoke() -> None:
        if await parts.ask_confirmation(f"Revoke the token of {token.name}?", words, "Revoke"):
            await context.call(revoke_token, token.id)
            ui.navigate.to("/settings/tokens")

    if token.is_valid:
        parts.add_button("Revoke", revoke, "danger", small=True, accessible_label=f"Revoke {token.name}")
