"""Bringing one's token: it goes into a cookie that no script can read, and out of it again."""

import nicegui
from nicegui import ui
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pramana.show.api.gate import COOKIE
from pramana.show.web import frame, parts
from pramana.show.web.desk import Desk, Refused, address
from pramana.show.web.markup import tag

LASTS_S = 30 * 24 * 3600
"""How long a browser keeps a token; whoever revokes it ends it at once."""


@ui.page("/sign-in", title="Sign in · Pramana")
async def sign_in(request: Request) -> Response | None:
    """Ask for a token."""
    desk, to = Desk(request), _within(request.query_params.get("to"))
    if desk.who.role is not None:
        return RedirectResponse(to, 303)
    frame.themed(desk)
    with ui.element("main").classes("main narrow").props("id=main"), parts.box("card stack"):
        parts.show(tag("h1", "Sign in"))
        if "wrong" in request.query_params:
            with parts.box("warn trouble", role="alert"):
                parts.paragraph("Nobody knows this token. It may be mistyped, or revoked.")
        parts.paragraph("This server asks who you are. An administrator makes a token for you with ", quiet=True)
        parts.show(tag("p", tag("span", "pramana token create NAME --role editor", class_="mono")))
        with ui.element("form").props('method=post action="/sign-in"').classes("stack"):
            parts.show(tag("label", "Your token", for_="token"))
            ui.element("input").props("id=token name=token type=password required autocomplete=current-password")
            hidden = ui.element("input").props("type=hidden name=to")
            hidden.props["value"] = to
            parts.native_button("Sign in")
    return None


@nicegui.app.post("/sign-in", include_in_schema=False)
async def bring(request: Request) -> Response:
    """Take a token that somebody knows."""
    form = await request.form()
    secret, to = str(form.get("token", "")).strip(), _within(str(form.get("to", "/")))
    try:
        await Desk(request, secret or "none").get("/api/me")
    except Refused:
        return RedirectResponse(address("/sign-in", to=to, wrong=1), 303)
    answer = RedirectResponse(to, 303)
    answer.set_cookie(COOKIE, secret, LASTS_S, httponly=True, samesite="lax", secure=_is_secure(request))
    return answer


@nicegui.app.post("/sign-out", include_in_schema=False)
async def leave() -> Response:
    """Forget the token of this browser."""
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(COOKIE)
    return answer


def _within(to: str | None) -> str:
    """Return an address of this server, whatever a link has asked for.

    >>> _within("/runs?page=2"), _within("//elsewhere.example"), _within("https://elsewhere.example")
    ('/runs?page=2', '/', '/')
    """
    return to if to and to.startswith("/") and not to.startswith(("//", "/\\")) and "\n" not in to else "/"


def _is_secure(request: Request) -> bool:
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))
