"""A loopback server as a program of its own: which wire, which port and how slow come in, its URL is printed.

It serves until it is stopped. A benchmark needs it in another process, so that client and server do not share a core.
"""

import argparse
import asyncio
import sys
from importlib import import_module
from typing import get_args

from pramana.providers.loopback.server import Fault, FaultKind, Loopback, Wire

WIRES = {
    "openai": "pramana.providers.loopback.openai:OpenAIWire",
    "anthropic": "pramana.providers.loopback.anthropic:AnthropicWire",
    "google": "pramana.providers.loopback.google:GoogleWire",
}


async def serve(wire: Wire, port: int, latency_s: float, fault: FaultKind | None) -> None:
    """Serve until cancelled."""
    faults = [Fault(fault)] if fault else []
    async with Loopback(wire, port=port, latency_s=latency_s, faults=faults, keep=False) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m pramana.providers.loopback", description=__doc__)
    parser.add_argument("wire", choices=WIRES)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--says", help="the text of every answer")
    parser.add_argument("--fault", choices=get_args(FaultKind), help="what every request meets")
    given = parser.parse_args()
    module, _, attribute = WIRES[given.wire].partition(":")
    make = getattr(import_module(module), attribute)
    wire = make(given.says) if given.says is not None else make()
    try:
        asyncio.run(serve(wire, given.port, given.latency, given.fault))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
