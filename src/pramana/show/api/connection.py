"""Limits on connections before authentication: the size of a request head, and the time that it may take.

Before the gate sees a request, uvicorn alone would keep any number of headers in memory and wait any time for the first
byte. Here a head has at most 64 KiB and 100 headers and must arrive within ten seconds. When the process runs short of
file descriptors, the connection that has waited longest for its head is closed.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    from uvicorn.config import Config
    from uvicorn.server import ServerState

MAX_HEAD_BYTES = 64 << 10
MAX_HEADERS = 100
HEAD_TIMEOUT_S = 10.0
RESERVED_FILE_DESCRIPTORS = 128
"""File descriptors reserved for the store, for provider requests and for libraries."""
MAX_CONNECTIONS = 10_000
MAX_ACCEPTED_PER_TURN, KERNEL_BACKLOG = 100, 2048
"""Connections that the event loop accepts in one turn, before any is counted (fewer than are reserved), and the backlog
of the kernel."""


class TooManyHeaders(Exception):
    """Raised in a parser callback to stop parsing."""


class Connection(HttpToolsProtocol):
    """uvicorn's protocol, with limits on the head of a request."""

    def __init__(self, config: "Config", server_state: "ServerState", *given: Any, **named: Any) -> None:
        super().__init__(config, server_state, *given, **named)
        self._in_head, self._head_bytes = True, 0
        self._refused = False
        self._deadline: asyncio.TimerHandle | None = None
        self.gate_cache: dict[str, bool] = {}
        """What the gate knows about this connection, cached for its later requests."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self._deadline = self.loop.call_later(HEAD_TIMEOUT_S, self._on_head_timeout)
        if len(self.connections) > max_connections():
            self._close_longest_waiting_connection()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head_timeout()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._head_bytes += len(data) if self._in_head else 0
        super().data_received(data)
        if self._in_head and self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._refuse_head()

    # ── What the parser finds ──

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["pramana.connection"] = self.gate_cache  # type: ignore[typeddict-unknown-key] # ours
        if self._deadline is None:  # another request on the same connection
            self._deadline = self.loop.call_later(HEAD_TIMEOUT_S, self._on_head_timeout)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            raise TooManyHeaders

    def on_headers_complete(self) -> None:
        self._cancel_head_timeout()
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_head, self._head_bytes = True, 0

    def send_400_response(self, msg: str) -> None:
        """Refuse a head that cannot be parsed, or that has too many headers."""
        if self._in_head and len(self.headers or ()) > MAX_HEADERS:  # None before the first byte of a request
            self._refuse_head()
        else:
            super().send_400_response(msg)

    # ── Ends ──

    def _refuse_head(self) -> None:
        self._refused = True
        said = f"the head of a request may have at most {MAX_HEAD_BYTES >> 10} KiB and {MAX_HEADERS} headers".encode()
        self._send_error(b"431 Request Header Fields Too Large", said)

    def _on_head_timeout(self) -> None:
        self._deadline = None
        if not self.transport.is_closing():
            self._send_error(
                b"408 Request Timeout", f"the request was not complete within {HEAD_TIMEOUT_S:g} seconds".encode()
            )

    def _send_error(self, status: bytes, message: bytes) -> None:
        head = b"HTTP/1.1 %b\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
        self.transport.write(head % (status, len(message)) + message)
        self.transport.close()

    def _close_longest_waiting_connection(self) -> None:
        """Close the connection that has waited longest for its head, or this one if none is waiting."""
        waiting = [each for each in self.connections if isinstance(each, Connection) and each._deadline]  # noqa: SLF001
        oldest = min(waiting, key=lambda each: each._deadline.when() if each._deadline else 0.0, default=self)  # noqa: SLF001
        oldest._cancel_head_timeout()  # noqa: SLF001 - it ends in the loop's next iteration and is chosen only once
        oldest.transport.abort()

    def _cancel_head_timeout(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def max_connections() -> int:
    """Return the limit of concurrent connections, derived from the process's limit of open files."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return MAX_CONNECTIONS
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        MAX_CONNECTIONS
        if soft == resource.RLIM_INFINITY
        else max(16, min(MAX_CONNECTIONS, soft - RESERVED_FILE_DESCRIPTORS))
    )
