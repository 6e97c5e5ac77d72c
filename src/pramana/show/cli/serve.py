"""`pramana serve`: the workbench and the API, and the runs they start."""

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING

import click

from pramana.errors import InvalidInput, PramanaError, quote_text
from pramana.installation import make_install_command
from pramana.show.cli.options import GroupedCommand, open_local_store

if TYPE_CHECKING:
    from pramana.app import App


_SHUTDOWN_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CannotListen(PramanaError, code="cannot_listen", exit_code=3):
    """The server cannot listen at this address."""


@click.command(
    cls=GroupedCommand,
    groups={"Network": "--host --port --allow-host --trust-proxy", "Access": "--no-auth", "Server": "--api-only"},
    exit_codes={
        0: "Stopped by Ctrl-C or SIGTERM",
        2: "Refused to start: invalid or unsafe options",
        3: "Could not start, for example because the port is in use",
    },
    examples=(
        "pramana serve",
        "pramana serve --host 0.0.0.0 --port 8080",
        "pramana serve --allow-host bench.example.com --trust-proxy 127.0.0.1",
    ),
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on")
@click.option(
    "--port",
    default=3000,
    show_default=True,
    type=click.IntRange(0, 65_535),
    metavar="N",
    help="Port to listen on; 0 for any free one",
)
@click.option("--api-only", is_flag=True, help="Serve only the API; another server executes the runs")
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Further host name to accept requests for (repeatable)",
)
@click.option(
    "--trust-proxy",
    "trusted_proxies",
    multiple=True,
    metavar="ADDRESS",
    help="Proxy whose X-Forwarded-For is trusted (repeatable)",
)
@click.option("--no-auth", is_flag=True, help="Let all users of this machine in without a token")
def serve(
    *,
    host: str,
    port: int,
    api_only: bool,
    allowed_hosts: tuple[str, ...],
    trusted_proxies: tuple[str, ...],
    no_auth: bool,
) -> int:
    """Start the web workbench and the HTTP API, and carry out the runs they start, until Ctrl-C.

    On Linux, your own account on this machine needs no token. Everyone else needs a token; the printed URL contains a
    token that is valid until the server stops. A server that other machines can reach requires a token of everyone:
    create a token first with `pramana token create`.
    """
    from pramana.app import App, is_loopback

    if find_spec("uvicorn") is None:
        raise InvalidInput(f"pramana serve needs the server's packages; install them: {make_install_command('server')}")
    trusted = tuple(map(_parse_network, trusted_proxies))
    with open_local_store() as store:
        if api_only and store.database_kind == "sqlite":
            raise InvalidInput(
                "--api-only is for a team's PostgreSQL, where another process executes the runs; set "
                "PRAMANA_DATABASE_URL, or remove --api-only"
            )
        for_others = not is_loopback(host) or bool(allowed_hosts) or bool(trusted)
        if for_others:
            whom = (
                f"listening at {host}"
                if not is_loopback(host)
                else f"answering as {allowed_hosts[0]}"
                if allowed_hosts
                else f"answering for the proxy {trusted_proxies[0]}"
            )
            if no_auth:
                raise InvalidInput(
                    f"{whom} makes the server reachable for others, and with --no-auth they could do everything; "
                    "remove --no-auth"
                )
            if not store.tokens.has_valid_token():
                why = (
                    "every token is revoked or expired"
                    if store.tokens.has_ever_had_token()
                    else "there is no token yet"
                )
                raise InvalidInput(
                    f"{whom} makes the server reachable for others, and {why}; create a token first: pramana token "
                    "create NAME --role admin"
                )
        serving = App(
            store,
            host,
            port,
            server_account_needs_token=for_others,
            open_to_all=no_auth,
            api_only=api_only,
            allowed_hosts=tuple(map(str.lower, allowed_hosts)),
            trusted_proxies=trusted,
        )
        with _open_listening_socket(host, port) as listening:
            serving.port = listening.getsockname()[1]
            _run_server(serving, listening)
    return 0


def _parse_network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise InvalidInput(
            f"--trust-proxy takes an address or a network, such as 127.0.0.1 or 10.0.0.0/24, found {quote_text(text)}"
        ) from None


def _open_listening_socket(host: str, port: int) -> socket.socket:
    found: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as error:
        if found:
            found.close()
        hint = "; is another server running? choose another port with --port" if port else ""
        raise CannotListen(f"cannot listen at {host}:{port}: {error.strerror or error}{hint}") from None
    return found


def _run_server(serving: "App", listening_socket: socket.socket) -> None:
    import uvicorn

    from pramana.report.terminal import wrap_for_terminal
    from pramana.show.api.connection import KERNEL_BACKLOG, MAX_ACCEPTED_PER_TURN, Connection

    if serving.api_only:
        from pramana.show.api import make_app
    else:
        from pramana.show.web import make_app

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            gc.freeze()  # collecting all imported objects again blocked the event loop for over 100 ms
            listening_socket.listen(
                KERNEL_BACKLOG
            )  # uvicorn uses one number for the backlog and for the connections accepted at once
            if self.started:
                shown = f"[{serving.host}]" if ":" in serving.host else serving.host
                url = f"http://{shown}:{serving.port}"
                what = "API" if serving.api_only else "workbench"
                who = "Everyone needs a token"
                if serving.open_to_all:
                    who = "No token is needed: everyone on this machine can do everything"
                elif serving.trusts_server_account:
                    if sys.platform == "linux":  # its kernel reports the account of a connection
                        who = "Your own account on this machine needs no token; everyone else needs one"
                    if not serving.api_only:  # as Jupyter does: the URL signs its reader in
                        url += f"/sign-in?token={serving.access.make_startup_token()}"
                        who += " (the one in this URL is valid until the server stops)"
                about = wrap_for_terminal(f"{who}. API at /docs. Press Ctrl-C to stop.", on_stderr=False)
                click.echo(f"Pramana serves its {what}: {url}\n{about}")

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Shut down gracefully on each shutdown signal, without raising it again: the exit code stays 0."""
            before = {each: signal.signal(each, self.handle_exit) for each in _SHUTDOWN_SIGNALS}
            try:
                yield
            finally:
                for each, handler in before.items():
                    signal.signal(each, handler)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            serving.closing.set()
            await super().shutdown(sockets)

    config = uvicorn.Config(
        make_app(serving),
        http=Connection,
        backlog=MAX_ACCEPTED_PER_TURN,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_graceful_shutdown=5,
        ws="none" if serving.api_only else "websockets-sansio",
    )
    server = Server(config)
    gc.collect()  # before there is an event loop to block; what is left is frozen at start-up
    asyncio.run(server.serve([listening_socket]))
    if not server.started:
        raise CannotListen("the server could not start; see its output above")
