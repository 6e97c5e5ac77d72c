"""Servers for page tests: `pramana serve` as a process, on reused ports.

A server on the port of an earlier one benefits from scripts that browsers have cached.
"""

import atexit
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..api.served import Client, start_program


@dataclass
class Ports:
    """Ports reserved for the servers of this process."""

    _idle: list[socket.socket] = field(default_factory=list)

    @contextmanager
    def hold(self) -> Iterator[int]:
        if sys.platform != "linux":  # only there can another process listen on a reserved port
            yield 0
            return
        held = self._idle.pop() if self._idle else _hold_port()
        try:
            yield held.getsockname()[1]
        finally:
            self._idle.append(held)


def _hold_port() -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("127.0.0.1", 0))
    atexit.register(found.close)
    return found


PORTS = Ports()


@contextmanager
def workbench(*options: str, **environment: str) -> Iterator[Client]:
    """Serve the workbench in a process until the context ends."""
    with PORTS.hold() as port, start_program("--port", str(port), *options, **environment) as started:
        yield started.client
