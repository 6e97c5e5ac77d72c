"""A loopback server as a separate program: `python -m tests.loopback openai --latency 0.05` prints its URL.

It serves until it is stopped. A benchmark needs it in another process, so that client and server do not share a core.
"""

import argparse
import asyncio
import sys
from typing import get_args

from .anthropic import AnthropicWire
from .google import GoogleWire
from .openai import OpenAIWire
from .server import Fault, FaultKind, Loopback

WIRES: dict[str, type[OpenAIWire | AnthropicWire | GoogleWire]] = {
    "openai": OpenAIWire,
    "anthropic": AnthropicWire,
    "google": GoogleWire,
}


async def serve(given: argparse.Namespace) -> None:
    """Serve until cancelled."""
    make = WIRES[given.wire]
    wire = make(given.says) if given.says is not None else make()
    faults = [Fault(given.fault)] if given.fault else []
    async with Loopback(wire, port=given.port, latency_s=given.latency, faults=faults, keep=False) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m tests.loopback", description=__doc__)
    parser.add_argument("wire", choices=WIRES)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--says", help="the text of every answer")
    parser.add_argument("--fault", choices=get_args(FaultKind), help="what every request meets")
    try:
        asyncio.run(serve(parser.parse_args()))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
