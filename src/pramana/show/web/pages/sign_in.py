"""Bringing one's token: it goes into a cookie that no script can read, and out of it again.

A plain form, so that password managers know it and nothing but the browser sends it. What it brings is looked up as the
token of any request is, by the gate, which also counts who tries too many.
"""

from typing import Literal

import nicegui
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pramana.app import server
from pramana.report.markup import tag
from pramana.show.api.gate import COOKIE
from pramana.show.api.serving import user_of
from pramana.show.web.kit.desk import Desk, Refused, address
from pramana.show.web.kit.plain import plain

LASTS_S = 30 * 24 * 3600
"""How long a browser keeps a token; whoever revokes it ends it at once."""
LONGEST = 2_000
"""Characters of an address that one is led back to."""
Why = Literal["wrong", "often", "away"]
_SAID: dict[Why, str] = {
    "wrong": "Nobody knows this token. It may be mistyped, or revoked.",
    "often": "Too many tokens were tried from here. Wait a minute, and try again.",
    "away": "The server cannot look up tokens now. Try again in a minute.",
}


@nicegui.app.get("/sign-in", include_in_schema=False)
async def sign_in(request: Request) -> Response:
    """Ask for a token."""
    to = _within(request.query_params.get("to"))
    if user_of(request).role is not None:
        return RedirectResponse(to, 303)
    why = _SAID.get(request.query_params.get("why"))  # type: ignore[call-overload] # whatever an address says
    form = tag(
        "form",
        tag("label", "Your token", for_="token"),
        tag(
            "input", id="token", name="token", type="password", required=True, autofocus=True,
            autocomplete="current-password", spellcheck="false",
        ),
        # A name that nobody fills in, by which password managers keep the token.
        tag(
            "input", class_="visually-hidden", name="username", autocomplete="username", tabindex=-1,
            aria_hidden="true", value="Pramana",
        ),
        tag("input", type="hidden", name="to", value=to),
        tag("div", tag("button", "Sign in", type="submit", class_="native primary"), class_="row"),
        method="post", action="/sign-in", class_="stack",
    )  # fmt: skip
    told = "This server asks who you are. An administrator makes a token for you in Settings, or on its machine:"
    return plain(
        request,
        "Sign in",
        tag(
            "div",
            tag("h1", "Sign in to Pramana"),
            tag("div", tag("p", why), class_="warn trouble", role="alert") if why else None,
            form,
            tag("p", told, class_="quiet"),
            tag("p", tag("code", "pramana token create NAME --role editor", class_="mono")),
            class_="card stack",
        ),
    )


@nicegui.app.post("/sign-in", include_in_schema=False)
async def bring(request: Request) -> Response:
    """Take a token that somebody knows."""
    form = await request.form()
    secret, to = str(form.get("token", "")).strip(), _within(str(form.get("to", "/")))
    try:
        me = await Desk(request, secret or "none").call(server.who_am_i)
    except Refused as error:
        why: Why = {401: "wrong", 429: "often"}.get(error.status, "away")  # type: ignore[assignment] # one of them
        return RedirectResponse(address("/sign-in", to=to, why=why), 303)
    answer = RedirectResponse(to, 303)
    if me.tokens_required:  # elsewhere anything will do, and nobody has looked whose it is
        answer.set_cookie(COOKIE, secret, LASTS_S, httponly=True, samesite="lax", secure=_is_secure(request))
    return answer


@nicegui.app.post("/sign-out", include_in_schema=False)
async def leave(request: Request) -> Response:
    """Forget the token of this browser."""
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(COOKIE, httponly=True, samesite="lax", secure=_is_secure(request))
    return answer


def _within(to: str | None) -> str:
    """Return an address of this server, whatever a link has asked for.

    Browsers read a backslash as a slash, and leave out line breaks and tabs before they read.

    >>> _within("/runs?page=2"), _within("//elsewhere.example"), _within("https://elsewhere.example")
    ('/runs?page=2', '/', '/')
    >>> _within("/\\\\elsewhere.example"), _within("/\\t/elsewhere.example"), _within("javascript:alert(1)")
    ('/', '/', '/')
    """
    if not to or len(to) > LONGEST or not to.isprintable() or "\\" in to:
        return "/"
    return to if to.startswith("/") and not to.startswith("//") else "/"


def _is_secure(request: Request) -> bool:
    """Tell whether the browser came by https, itself or to the first proxy before us."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", "").partition(",")[0].strip())
