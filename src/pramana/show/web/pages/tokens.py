"""Tokens: who has one, a new one that is shown this once, and the end of one."""

from nicegui import ui

from pramana.app import server
from pramana.app import tokens as token_cases
from pramana.app.views import NewTokenView, ServerView, TokenView
from pramana.report.markup import Child, Column, Safe, foreign, join, link, tag, when
from pramana.show.web.kit import frame, parts
from pramana.show.web.kit.desk import Desk, Refused
from pramana.show.web.kit.forms import Form
from pramana.show.web.pages.settings import PRIVATE_ADDRESSES, section, table_to_act_on
from pramana.store.tokens import EXPIRES_DAYS

ROLES = {"viewer": "Viewer", "editor": "Editor", "admin": "Administrator"}
EXPIRES = {30: "In 30 days", EXPIRES_DAYS: "In 90 days", 365: "In a year", 0: "Never"}
_SETTING = tag("span", "Change it in ", link("/settings/server", "Server settings"), ".")
_FIRST = (
    "This is the first token. Your own account on this machine still needs none. Until now, models may be on this "
    "machine and in your network; choose whether they may be when others use the server too. "
)
_MAY = (
    "A viewer reads everything but settings and tokens. An editor also changes scenarios and starts runs. An "
    "administrator also decides about providers, prices, tokens and settings."
)


@frame.page("/settings/tokens", "Tokens")
async def tokens(desk: Desk) -> None:
    """Show who has a token, make one, end one."""
    section(desk, "Tokens", "Who may use this server, and what they may do.")
    page = ui.element("div")
    with page:
        _New(desk, page, await desk.call(server.describe_server))
        parts.heading("Who has one")
        try:
            found = await desk.call(token_cases.list_tokens)
        except Refused as error:
            if error.status == 401:
                raise
            parts.trouble(error)
            return
        _list(desk, found)


class _New:
    """The form that makes a token."""

    def __init__(self, desk: Desk, page: ui.element, found: ServerView) -> None:
        self._desk, self._page = desk, page
        parts.heading("Make a token")
        with Form(self._make) as self._form:
            with parts.box("grid"):
                self._name = parts.field("Name", hint="whose it is, or what for")
                self._role = parts.choice("Role", ROLES, "admin" if found.for_this_machine_alone else "editor")
                self._expires = parts.choice("Expires", EXPIRES, EXPIRES_DAYS)
            parts.paragraph(_MAY, quiet=True).classes("small")
            self._private = None
            if found.for_this_machine_alone:
                parts.paragraph(_FIRST, _SETTING)
                self._private = parts.tick(PRIVATE_ADDRESSES)
            with parts.box("row"):
                self._form.submit("Make it")

    async def _make(self) -> None:
        wanted = token_cases.TokenRequest(
            name=(self._name.value or "").strip(), role=self._role.value, expires_in_days=self._expires.value or None
        )
        with self._form.told_at({"name": self._name, "role": self._role}):
            made = await self._desk.call(token_cases.create_token, wanted)
            if self._private and self._private.value:
                await self._desk.call(server.change_settings, {"allow_private_addresses": True})
            self._page.clear()
            with self._page:
                _show_once(made, refuses_private=self._private is not None and not self._private.value)


def _an(role: str) -> str:
    return f"an {role}" if role[0] in "ae" else f"a {role}"


def _show_once(made: NewTokenView, *, refuses_private: bool) -> None:
    """Show a token, this once."""
    with parts.box("card stack", role="region", label="The new token"):
        parts.show(join([tag("h2", "The token of ", foreign(made.name), class_="card-title")]))
        with parts.box("warn", role="alert"):
            parts.paragraph("Copy it now: it is not shown again, and nobody can read it from here later.")
        parts.show(tag("label", f"Token, {_an(made.role)}’s", for_="secret"))
        with parts.box("row"):
            shown = ui.element("input").classes("native mono secret").props("id=secret type=text readonly")
            shown.props["value"] = made.token
            copy = ui.button("Copy", color=None).props("unelevated no-caps").classes("btn primary")
            copy.props["data-copy"] = made.token
            copy.on("click", js_handler=parts.COPY)
        if refuses_private:
            parts.paragraph("Models and recordings at private addresses are refused from now on. ", _SETTING)
        with parts.box("row"):
            parts.link_button("I have copied it", "/settings/tokens")


# ── Those there are ──


def _list(desk: Desk, found: list[TokenView]) -> None:
    if not found:
        parts.paragraph("Nobody yet: only the account that the server runs as can use it.", quiet=True)
        return
    names = ("Role", "Made", "Last used", "Expires", "Revoked")
    columns = (Column("Name", head=True), *map(Column, names))
    holding = [each for each in found if each.is_valid]
    ordered = [*holding, *(each for each in found if not each.is_valid)]
    table_to_act_on("Tokens", columns, [(_cells(desk, each), _Revoke(desk, each, holding).put) for each in ordered])


def _cells(desk: Desk, token: TokenView) -> tuple[Child, ...]:
    mine = tag("small", " yours", class_="quiet") if token.id == desk.who.token_id else None
    used: Safe | str = token.last_used or tag("span", "never", class_="quiet")
    name = join([foreign(token.name), mine])
    expires = when(token.expires_at) if token.expires_at else "never"
    revoked = when(token.revoked_at) if token.revoked_at else "no"
    return name, token.role, when(token.created_at), used, expires, revoked


class _Revoke:
    """The end of one token."""

    def __init__(self, desk: Desk, token: TokenView, holding: list[TokenView]) -> None:
        self._desk, self._token = desk, token
        self._others = [each for each in holding if each.id != token.id]

    def put(self) -> None:
        if self._token.is_valid:
            parts.button("Revoke", self._revoke, "danger", small=True, label=f"Revoke {self._token.name}")

    async def _revoke(self) -> None:
        if await parts.confirm(f"Revoke the token of {self._token.name}?", self._consequence(), "Revoke"):
            await self._desk.call(token_cases.revoke_token, self._token.id)
            ui.navigate.to("/settings/tokens")

    def _consequence(self) -> str:
        words = "Whoever has it is turned away within seconds. It cannot be taken back; a new token can be made."
        if self._token.id == self._desk.who.token_id:
            words = f"It is the one you are signed in with: you will need another. {words}"
        if self._token.role == "admin" and not any(each.role == "admin" for each in self._others):
            words += (
                " No other administrator has one: after this, only the command line of the server can make tokens, or "
                "the account that it runs as."
            )
        return words
