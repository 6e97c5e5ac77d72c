"""Sockets of pages: each can use only pages of its own session; malformed messages are dropped.

NiceGUI identifies a page by an unguessable id alone. An id may still be read in a proxy's log, so a socket must also
prove that its session or token opened the page. A socket ends when that session or token ends or loses its role, and
its page is redirected to sign in.
"""

from collections.abc import Callable
from contextlib import ExitStack
from inspect import isawaitable
from typing import Any
from urllib.parse import parse_qs

from nicegui import Client, app, core, ui
from socketio.exceptions import ConnectionRefusedError as Turned
from starlette.types import Scope

from pramana.app import App
from pramana.app.access import ANONYMOUS, User
from pramana.show.web.kit.page_context import make_sign_in_url

MAX_TAB_ID_LENGTH = 100
"""Characters of a tab's id; a browser's has 36."""
TAB_STORAGE_LIFETIME_S = 600.0
_UPLOAD_PATH_PREFIX = "/_nicegui/client/"
_CLEANUP_BY_SOCKET_ID: dict[str, ExitStack] = {}
"""The watch on the user of each open socket; closing it ends the watch."""


def install_socket_rules(serving: App) -> None:
    """Wrap NiceGUI's message handlers with these checks."""
    app.storage.max_tab_storage_age = TAB_STORAGE_LIFETIME_S
    core.sio.eio.cors_allowed_origins = []
    handlers: dict[str, Callable[..., Any]] = core.sio.handlers["/"]
    for name in ("event", "javascript_response", "ack", "handshake"):
        handlers[name] = _wrap_to_ignore_foreign_messages(handlers[name])
    handlers["connect"] = _wrap_connect(handlers["connect"], serving)
    handlers["disconnect"] = _wrap_disconnect(handlers["disconnect"])
    handlers["log"] = lambda *_: None  # a browser must not write into the server's log


def is_request_allowed(scope: Scope) -> bool:
    """Return whether a request may pass: a file upload must come from the session or token that opened the page."""
    path: str = scope["path"]
    if not path.startswith(_UPLOAD_PATH_PREFIX):
        return True
    return _is_own_client(path.removeprefix(_UPLOAD_PATH_PREFIX).partition("/")[0], scope)


def _wrap_connect(connect: Callable[..., Any], serving: App) -> Callable[..., Any]:
    async def handle_connect(sid: str, environ: dict[str, Any], *more: Any) -> None:
        query = {name: values[0] for name, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
        fits = len(query.get("tab_id", "")) <= MAX_TAB_ID_LENGTH
        scope = environ["asgi.scope"]
        if "client_id" in query and not (fits and _is_own_client(query["client_id"], scope)):
            raise Turned("this page belongs to another session")
        await connect(sid, environ, *more)
        watched = _CLEANUP_BY_SOCKET_ID[sid] = ExitStack()
        watched.enter_context(
            serving.streams.register_stream(_read_socket_user(scope), lambda: _redirect_to_sign_in(sid))
        )

    return handle_connect


def _wrap_disconnect(disconnect: Callable[..., Any]) -> Callable[..., Any]:
    def handle_disconnect(sid: str, *more: Any) -> Any:
        if watched := _CLEANUP_BY_SOCKET_ID.pop(sid, None):
            watched.close()
        return disconnect(sid, *more)

    return handle_disconnect


def _redirect_to_sign_in(sid: str) -> None:
    """Redirect the pages of a socket to sign in; the gate closes the socket whether or not they follow."""
    if watched := _CLEANUP_BY_SOCKET_ID.pop(sid, None):
        watched.close()
        for client in [Client.instances[room] for room in core.sio.rooms(sid) if room in Client.instances]:
            with client:
                ui.navigate.to(make_sign_in_url(client.request))


def _wrap_to_ignore_foreign_messages(handle: Callable[..., Any]) -> Callable[..., Any]:
    async def handle_message(sid: str, message: Any = None) -> Any:
        if not isinstance(message, dict) or len(str(message.get("tab_id", ""))) > MAX_TAB_ID_LENGTH:
            return False
        environ = core.sio.get_environ(sid)
        if environ is None or not _is_own_client(message.get("client_id"), environ["asgi.scope"]):
            return False
        try:
            found = handle(sid, message)
            return await found if isawaitable(found) else found
        except (KeyError, TypeError, ValueError, AttributeError):  # not written by NiceGUI's own client
            return False

    return handle_message


def _is_own_client(client_id: Any, scope: Scope) -> bool:
    client = Client.instances.get(client_id) if isinstance(client_id, str) else None
    if client is None or client.request is None:
        return True  # there is no such page, so the message has no effect
    user, opener = _read_socket_user(scope), _read_socket_user(client.request.scope)
    return (user.token_id, user.session_hash) == (opener.token_id, opener.session_hash)


def _read_socket_user(scope: Any) -> User:
    found: User = scope.get("pramana.user", ANONYMOUS)
    return found
