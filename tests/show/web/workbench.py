"""Servers for page tests: `pramana serve` as a process, at ports that are used again.

A server at the address of one before it finds browsers that have its scripts already.
"""

import atexit
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ..api.served import Client, program


@dataclass
class Ports:
    """Ports that are held for the servers of this process: nobody else is given them meanwhile."""

    _idle: list[socket.socket] = field(default_factory=list)

    @contextmanager
    def taken(self) -> Iterator[int]:
        if sys.platform != "linux":  # only there may another process listen at a port that is held
            yield 0
            return
        held = self._idle.pop() if self._idle else _held()
        try:
            yield held.getsockname()[1]
        finally:
            self._idle.append(held)


def _held() -> socket.socket:
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(("127.0.0.1", 0))
    atexit.register(found.close)
    return found


PORTS = Ports()


@contextmanager
def workbench(*options: str, **environment: str) -> Iterator[Client]:
    """Serve the workbench in a process until the context ends."""
    with PORTS.taken() as port, program("--port", str(port), *options, **environment) as started:
        yield started.client
