"""The sockets of pages: each takes part only in pages of the same session, and what is malformed is dropped unheard.

NiceGUI knows a page by its id alone, which nobody can guess. That an id may be read in a proxy's log is reason enough
not to leave it at that: whoever speaks for a page must have opened it, by the session or the token that they show. A
socket ends when that ends or loses its role: its page is led to sign in.
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
TAB_LIFETIME_S = 600.0
_UPLOAD = "/_nicegui/client/"
_WATCHED_SOCKETS: dict[str, ExitStack] = {}
"""Of each open socket, what ends its being watched."""


def install_socket_rules(serving: App) -> None:
    """Put the rule before what NiceGUI does with messages."""
    app.storage.max_tab_storage_age = TAB_LIFETIME_S
    core.sio.eio.cors_allowed_origins = []
    handlers: dict[str, Callable[..., Any]] = core.sio.handlers["/"]
    for name in ("event", "javascript_response", "ack", "handshake"):
        handlers[name] = _wrap_handler(handlers[name])
    handlers["connect"] = _wrap_connect(handlers["connect"], serving)
    handlers["disconnect"] = _wrap_disconnect(handlers["disconnect"])
    handlers["log"] = lambda *_: None  # a browser writes nothing into the log of a server


def may_upload(scope: Scope) -> bool:
    """Tell whether a request that brings a file to a page comes from whoever opened the page."""
    path: str = scope["path"]
    if not path.startswith(_UPLOAD):
        return True
    return _is_own_client(path.removeprefix(_UPLOAD).partition("/")[0], scope)


def _wrap_connect(connect: Callable[..., Any], serving: App) -> Callable[..., Any]:
    async def handle_connect(sid: str, environ: dict[str, Any], *more: Any) -> None:
        query = {name: values[0] for name, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
        fits = len(query.get("tab_id", "")) <= MAX_TAB_ID_LENGTH
        scope = environ["asgi.scope"]
        if "client_id" in query and not (fits and _is_own_client(query["client_id"], scope)):
            raise Turned("this page is not yours")
        await connect(sid, environ, *more)
        watched = _WATCHED_SOCKETS[sid] = ExitStack()
        watched.enter_context(serving.streams.watch_user(_socket_user(scope), lambda: _redirect_to_sign_in(sid)))

    return handle_connect


def _wrap_disconnect(disconnect: Callable[..., Any]) -> Callable[..., Any]:
    def handle_disconnect(sid: str, *more: Any) -> Any:
        if watched := _WATCHED_SOCKETS.pop(sid, None):
            watched.close()
        return disconnect(sid, *more)

    return handle_disconnect


def _redirect_to_sign_in(sid: str) -> None:
    """Lead the page of a socket to sign in; the gate closes the socket, whether the page goes or not."""
    if watched := _WATCHED_SOCKETS.pop(sid, None):
        watched.close()
        for client in [Client.instances[room] for room in core.sio.rooms(sid) if room in Client.instances]:
            with client:
                ui.navigate.to(make_sign_in_url(client.request))


def _wrap_handler(handle: Callable[..., Any]) -> Callable[..., Any]:
    async def handle_message(sid: str, message: Any = None) -> Any:
        if not isinstance(message, dict) or len(str(message.get("tab_id", ""))) > MAX_TAB_ID_LENGTH:
            return False
        environ = core.sio.get_environ(sid)
        if environ is None or not _is_own_client(message.get("client_id"), environ["asgi.scope"]):
            return False
        try:
            found = handle(sid, message)
            return await found if isawaitable(found) else found
        except (KeyError, TypeError, ValueError, AttributeError):  # no browser of ours has written it
            return False

    return handle_message


def _is_own_client(client_id: Any, scope: Scope) -> bool:
    client = Client.instances.get(client_id) if isinstance(client_id, str) else None
    if client is None or client.request is None:
        return True  # there is no such page, and nothing is done
    user, opener = _socket_user(scope), _socket_user(client.request.scope)
    return (user.token_id, user.session) == (opener.token_id, opener.session)


def _socket_user(scope: Any) -> User:
    found: User = scope.get("pramana.user", ANONYMOUS)
    return found
