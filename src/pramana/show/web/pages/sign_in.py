"""Sign in with a token: the browser gets a session cookie that no script can read, and never stores the token.

A plain form, so that password managers recognise it and only the browser sends it. A submitted token is authenticated
like that of any request, which includes the limit on failed attempts. Only the start-up token, in the URL that the
server prints, is also accepted as a query parameter.
"""

from contextlib import suppress
from typing import Literal

import nicegui
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from pramana.app import App, server
from pramana.app.access import Credential
from pramana.report.markup import tag
from pramana.show.api.envelope import get_request_user
from pramana.show.api.gate import SESSION_COOKIE_NAME
from pramana.show.web.kit import PageContext, UseCaseRefused, make_url
from pramana.show.web.kit.style import render_plain_page
from pramana.store.tokens import SESSION_DAYS

COOKIE_LIFETIME_S = SESSION_DAYS * 24 * 3600
MAX_URL_LENGTH = 2_000
"""Maximum length of the URL to return to."""
FailureReason = Literal["invalid_token", "too_many_attempts", "unavailable"]
_MESSAGES_BY_REASON: dict[FailureReason, str] = {
    "invalid_token": "This token is not valid. It may be mistyped, revoked or expired.",
    "too_many_attempts": "Too many sign-in attempts from your address. Wait a minute and try again.",
    "unavailable": "The server cannot check tokens at the moment. Try again in a minute.",
}


@nicegui.app.get("/sign-in", include_in_schema=False)
async def show_sign_in_form(request: Request) -> Response:
    """Show the sign-in form."""
    to = _local_url_or_root(request.query_params.get("to"))
    if get_request_user(request).role is not None:
        return RedirectResponse(to, 303)
    serving: App = nicegui.app.state.app_layer
    secret = request.query_params.get("token", "")
    if serving.access.is_startup_token(secret):
        return await _start_session(request, secret, to)
    why = _MESSAGES_BY_REASON.get(request.query_params.get("why"))  # type: ignore[call-overload] # whatever an address says
    form = tag(
        "form",
        tag("label", "Your token", for_="token"),
        tag(
            "input", id="token", name="token", type="password", required=True, autofocus=True,
            autocomplete="current-password", spellcheck="false",
        ),
        # Hidden and pre-filled: password managers store the token under this name.
        tag(
            "input", class_="visually-hidden", name="username", autocomplete="username", tabindex=-1,
            aria_hidden="true", value="Pramana",
        ),
        tag("input", type="hidden", name="to", value=to),
        tag("div", tag("button", "Sign in", type="submit", class_="native primary"), class_="row"),
        method="post", action="/sign-in", class_="stack",
    )  # fmt: skip
    told = (
        "All tokens of this server are revoked or expired. Create one on the server’s machine:"
        if serving.have_all_tokens_ended
        else "Ask an administrator of this server for a token, or create one on the server’s machine:"
    )
    return render_plain_page(
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
async def submit_token(request: Request) -> Response:
    """Sign in with the submitted token."""
    form = await request.form()
    return await _start_session(
        request, str(form.get("token", "")).strip(), _local_url_or_root(str(form.get("to", "/")))
    )


async def _start_session(request: Request, secret: str, redirect_url: str) -> Response:
    """Start a session; a user who is already signed in is redirected even if the token is invalid."""
    shown: Credential = request.scope["pramana.credential"]
    try:
        session = await PageContext(request, Credential(secret or "none", address=shown.address)).call(
            server.begin_session
        )
    except UseCaseRefused as error:
        if get_request_user(request).role is not None:
            return RedirectResponse(redirect_url, 303)
        why: FailureReason = {401: "invalid_token", 429: "too_many_attempts"}.get(error.status, "unavailable")  # type: ignore[assignment] # one of them
        return RedirectResponse(make_url("/sign-in", to=redirect_url, why=why), 303)
    answer = RedirectResponse(redirect_url, 303)
    answer.set_cookie(
        SESSION_COOKIE_NAME, session, COOKIE_LIFETIME_S, httponly=True, samesite="lax", secure=_uses_https(request)
    )
    return answer


@nicegui.app.post("/sign-out", include_in_schema=False)
async def sign_out(request: Request) -> Response:
    """End the session of this browser."""
    with suppress(UseCaseRefused):  # the session has ended already
        await PageContext(request).call(server.end_session)
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(SESSION_COOKIE_NAME, httponly=True, samesite="lax", secure=_uses_https(request))
    return answer


def _local_url_or_root(url: str | None) -> str:
    """Return the path if it stays on this server, otherwise `/`.

    Browsers treat a backslash as a slash, and strip line breaks and tabs before parsing.

    >>> _local_url_or_root("/runs?page=2"), _local_url_or_root("//elsewhere.example"), _local_url_or_root("https://elsewhere.example")
    ('/runs?page=2', '/', '/')
    >>> hostile = ("/\\\\elsewhere.example", "/\\t/elsewhere.example", "javascript:alert(1)")
    >>> [_local_url_or_root(each) for each in hostile]
    ['/', '/', '/']
    """
    if not url or len(url) > MAX_URL_LENGTH or not url.isprintable() or "\\" in url:
        return "/"
    return url if url.startswith("/") and not url.startswith("//") else "/"


def _uses_https(request: Request) -> bool:
    """Return whether the browser uses HTTPS, directly or up to the first proxy."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", "").partition(",")[0].strip())
