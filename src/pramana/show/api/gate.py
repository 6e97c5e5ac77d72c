"""The gate before every route: checks host and origin, authenticates, and limits rates and body sizes.

Plain ASGI, for the API and the workbench alike. A page of another host cannot use this server through its visitor's
browser: the Host header must name this server, and the Origin of a request that changes something, or opens a
WebSocket, must be this server's or an allowed one.

Callers authenticate by a token or a browser session. A loopback connection from the account that the server runs as,
as reported by the kernel, needs neither, unless the request was forwarded or made by a page of another host.
"""

import asyncio
from contextlib import suppress
from functools import partial
from http.cookies import CookieError, SimpleCookie
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pramana.app import App, Credential, is_loopback
from pramana.app.access import ANONYMOUS, NO_TOKEN, RateLimitBucket
from pramana.errors import PramanaError
from pramana.show.api.envelope import make_error_response, make_pramana_error_response, make_unexpected_error_response
from pramana.show.api.peer import is_forwarded, is_from_own_os_account

if TYPE_CHECKING:
    from starlette.responses import Response

SESSION_COOKIE_NAME = "pramana_session"
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
UPLOAD_PATH = "/audio"
HEALTH_PATH = "/api/health"
"""For monitoring: needs no authentication and is not rate-limited."""
SUBMISSION_PATHS = "/api/submit", "/api/submit/batch", "/api/data/watch"
BADGE_PATH_PREFIX = "/api/badge/"
PUBLIC_PATH_PREFIX = "/api/public/"
"""What anyone may read; a use case decides what is public."""
STATIC_PATH_PREFIX, SOCKET_PATH_PREFIX = "/_nicegui/", "/_nicegui_ws"
SOCKET_CLOSE_DELAY_S = 1.0
"""How long a page has to follow a redirect before its WebSocket is closed."""
BODY_STALL_TIMEOUT_S = 30.0
"""How long a request body may pause; a client that sends a byte a minute would occupy a slot for ever."""
_SECURITY_HEADERS = (
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
)
STRICT_CONTENT_POLICY = "default-src 'none'; frame-ancestors 'none'"
"""The content security policy of responses that are not pages; a page sets its own."""


class BodyRefused(HTTPException):
    """The body is too large or has stalled. An `HTTPException`, since the framework hides others while it reads."""


class Gate:
    """The ASGI middleware before an application."""

    def __init__(self, app: ASGIApp, serving: App) -> None:
        self._app, self._serving = app, serving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request to the application, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            refused = await self._authorize_or_refuse(scope)
        except PramanaError as error:  # not allowed, or the store cannot be read
            refused = make_pramana_error_response(error)
        except Exception as error:  # noqa: BLE001 - logged with a number and answered like any other internal error
            refused = make_unexpected_error_response(error)
        guarded = self._wrap_send_with_headers(scope, send)
        if refused is not None:
            await self._send_refusal(refused, scope, receive, guarded)
        elif scope["type"] == "websocket":
            await self._serve_socket(scope, receive, guarded)
        else:
            await self._serve_request(scope, receive, guarded)

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a WebSocket to the application, and close it soon after its token or session has ended."""
        async with self._serving.streams.cancel_when_ended(scope["pramana.user"], SOCKET_CLOSE_DELAY_S) as limit:
            await self._serve_request(scope, receive, send)
        if limit.expired():
            with suppress(RuntimeError):  # already closed
                await send({"type": "websocket.close", "code": 1008})

    async def _serve_request(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def send_with_note(message: Message) -> None:
            nonlocal begun
            begun = begun or message["type"] in ("http.response.start", "websocket.accept")
            await send(message)

        try:
            await self._app(scope, self._wrap_receive_with_limits(scope, receive), send_with_note)
        except BodyRefused as error:
            await self._send_refusal(make_error_response(error.status_code, error.detail), scope, receive, send)
        except Exception as error:
            if "pramana.told" in scope:
                return
            if begun:
                raise  # part of the response is sent already: the connection ends, and uvicorn logs it
            await self._send_refusal(make_unexpected_error_response(error), scope, receive, send)

    async def _authorize_or_refuse(self, scope: Scope) -> "Response | None":
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_allowed_host(host):
            return make_error_response(
                421,
                "host not allowed: use the server's own address, or start the server with --allow-host NAME",
                code="unknown_host",
            )
        origin = headers.get("origin")
        is_own = origin is None or _is_origin_of(origin, host)
        if not is_own and origin not in self._serving.preferences().cors_origins:
            changes = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
            if changes or _is_preflight(scope, headers):
                return make_error_response(
                    403, "origin not allowed; an administrator can add it to the setting corsOrigins"
                )
        if scope["type"] == "http" and _is_preflight(scope, headers):
            from starlette.responses import Response

            return Response(status_code=204, headers=_PREFLIGHT_HEADERS)
        if scope["path"] == HEALTH_PATH:
            return None
        await self._authorize(scope, headers, is_foreign=not is_own)
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._max_body_bytes(scope):
            return make_error_response(413, self._too_large_message(scope))
        return None

    # ── Hosts and origins ──

    def _is_allowed_host(self, host: str) -> bool:
        name = _parse_host_name(host)
        if name is None:
            return False
        if name in self._serving.allowed_hosts or name == self._serving.host:
            return True
        if is_loopback(self._serving.host):
            return is_loopback(name)
        return is_loopback(name) or _is_ip_address(
            name
        )  # a page cannot make a browser send an IP address of its choice

    # ── Authentication ──

    async def _authorize(self, scope: Scope, headers: Headers, *, is_foreign: bool) -> None:
        """Authenticate the caller; refuse anonymous callers and those over their rate limit before reading the body."""
        if _is_page_asset(scope):
            scope["pramana.user"] = ANONYMOUS
            return
        credential = self._read_credential(scope, headers, is_foreign=is_foreign)
        access, scope["pramana.credential"] = self._serving.access, credential
        user = await access.authenticate_and_count(credential, partial(scope.__setitem__, "pramana.limits"))
        scope["pramana.user"] = user
        if user.role is None and not self._is_open_to_anonymous(scope["path"]):
            raise access.make_unauthorized(NO_TOKEN)

    def _read_credential(self, scope: Scope, headers: Headers, *, is_foreign: bool) -> Credential:
        kind, _, shown = headers.get("authorization", "").partition(" ")
        secret = shown.strip() if kind.lower() == "bearer" else ""
        own = not (secret or is_foreign or is_forwarded(headers.keys())) and self._is_from_own_os_account(scope)
        return Credential(
            secret or None,
            _read_session_secret(headers),
            is_from_server_account=own,
            address=self._client_address(scope),
        )

    def _is_from_own_os_account(self, scope: Scope) -> bool:
        """Return whether the server's own account is connected; asks the kernel once per connection."""
        if not self._serving.trusts_server_account:
            return False
        connection: dict[str, bool] = scope.get("pramana.connection", {})
        if "own_account" not in connection:
            connection["own_account"] = is_from_own_os_account(scope.get("client"), scope.get("server"))
        return connection["own_account"]

    def _is_open_to_anonymous(self, path: str) -> bool:
        """Return whether a path needs no token: pages, and submissions and badges if an administrator has opened them.

        The API's documentation is public, and the sign-in page must be reachable without a token.
        """
        if path.startswith(PUBLIC_PATH_PREFIX):
            return True
        if path in SUBMISSION_PATHS or path.startswith(BADGE_PATH_PREFIX):
            return self._serving.preferences().anonymous_submission
        return not _is_below(path, "/api", UPLOAD_PATH) and not path.startswith(SOCKET_PATH_PREFIX)

    # ── Rates and sizes ──

    def _client_address(self, scope: Scope) -> str:
        """Return the client's IP address; behind trusted proxies, the one that the outermost of them reported."""
        client = scope.get("client")
        nearest = _parse_ip_address(client[0]) if client else None
        if nearest is None:
            return "?"
        hops = ",".join(Headers(scope=scope).getlist("x-forwarded-for")).split(",")
        while hops and any(nearest in each for each in self._serving.trusted_proxies):
            hop = _parse_ip_address(hops.pop().strip())
            if hop is None:
                break
            nearest = hop
        # A client with one IPv6 address usually has 2^64 of them.
        return str(IPv6Network((nearest, 64), strict=False) if isinstance(nearest, IPv6Address) else nearest)

    def _max_body_bytes(self, scope: Scope) -> int:
        decided = self._serving.preferences()
        return (decided.largest_upload_mb if _is_below(scope["path"], UPLOAD_PATH) else decided.largest_body_mb) << 20

    def _too_large_message(self, scope: Scope) -> str:
        what = "recording" if _is_below(scope["path"], UPLOAD_PATH) else "request"
        return f"a {what} may have at most {self._max_body_bytes(scope) >> 20} MB; send a smaller {what}"

    def _wrap_receive_with_limits(self, scope: Scope, receive: Receive) -> Receive:
        most, taken, whole = self._max_body_bytes(scope), 0, scope["type"] != "http"

        async def receive_limited() -> Message:
            nonlocal taken, whole
            if whole:  # the only message still to come is the disconnect
                return await receive()
            try:
                async with asyncio.timeout(BODY_STALL_TIMEOUT_S):
                    message = await receive()
            except TimeoutError:
                raise BodyRefused(408, f"no more data of this request arrived for {BODY_STALL_TIMEOUT_S:g} s") from None
            if message["type"] == "http.request":
                taken += len(message.get("body", b""))
                whole = not message.get("more_body", False)
                if taken > most:
                    raise BodyRefused(413, self._too_large_message(scope))
            return message

        return receive_limited

    # ── Responses ──

    def _wrap_send_with_headers(self, scope: Scope, send: Send) -> Send:
        origin = Headers(scope=scope).get("origin")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _SECURITY_HEADERS:
                    headers.setdefault(name, value)
                headers.setdefault("content-security-policy", STRICT_CONTENT_POLICY)
                if scope["path"].startswith("/api/"):
                    headers.setdefault("cache-control", "no-store")
                if "pramana.limits" in scope:
                    bucket: RateLimitBucket = scope["pramana.limits"]
                    headers["x-ratelimit-limit"], headers["x-ratelimit-remaining"] = map(str, bucket[:2])
                    headers["x-ratelimit-reset"] = str(round(bucket.full_in_s + 0.5))
                if origin in self._serving.preferences().cors_origins:
                    headers["access-control-allow-origin"], headers["vary"] = str(origin), "Origin"
                    headers["access-control-expose-headers"] = "Retry-After, X-RateLimit-Remaining"
                    headers["cross-origin-resource-policy"] = "cross-origin"
            await send(message)

        return send_with_headers

    async def _send_refusal(self, response: "Response", scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await response(scope, receive, send)


_PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Last-Event-ID, Range",
    "Access-Control-Max-Age": "600",
}


def _is_below(path: str, *roots: str) -> bool:
    return any(path == each or path.startswith(f"{each}/") for each in roots)


def _is_page_asset(scope: Scope) -> bool:
    """Return whether this is a script or style. A page has dozens, the same for every user; they are not counted."""
    return scope["type"] == "http" and scope["method"] in SAFE_METHODS and scope["path"].startswith(STATIC_PATH_PREFIX)


def _is_preflight(scope: Scope, headers: Headers) -> bool:
    return scope["type"] == "http" and scope["method"] == "OPTIONS" and "access-control-request-method" in headers


def _read_session_secret(headers: Headers) -> str | None:
    """Return the session secret in a browser's cookie."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(SESSION_COOKIE_NAME)
    except CookieError:
        return None
    return found.value if found and found.value else None


def _is_origin_of(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False


def _parse_host_name(host: str) -> str | None:
    """Return the name in a Host header, without its port.

    >>> _parse_host_name("localhost:3000"), _parse_host_name("[::1]:3000"), _parse_host_name("a b")
    ('localhost', '::1', None)
    """
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
    except ValueError:
        return None
    return parts.hostname if parts.netloc == host and not parts.username and " " not in host else None


def _parse_ip_address(text: str) -> IPv4Address | IPv6Address | None:
    """Return the IP address in a forwarding header's entry, with or without its port.

    >>> [str(_parse_ip_address(each)) for each in ("203.0.113.7:4711", "[2001:db8::1]:80", "::ffff:192.0.2.1")]
    ['203.0.113.7', '2001:db8::1', '192.0.2.1']
    """
    bare = text[1:].partition("]")[0] if text.startswith("[") else text
    if bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        found = ip_address(bare.partition("%")[0])
    except ValueError:
        return None
    return (isinstance(found, IPv6Address) and found.ipv4_mapped) or found


def _is_ip_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
