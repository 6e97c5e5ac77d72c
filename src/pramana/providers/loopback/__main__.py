"""A loopback server as a program of its own: which wire, which port and how slow come in, its URL is printed.

It serves until it is stopped. A benchmark needs it in another process, so that client and server do not share a core;
a voice agent's own log then proves what the bench measured.
"""

import argparse
import asyncio
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

from pramana.providers.loopback.server import Fault, FaultKind, Loopback

WIRES = {
    "openai": "pramana.providers.loopback.openai:OpenAIWire",
    "anthropic": "pramana.providers.loopback.anthropic:AnthropicWire",
    "google": "pramana.providers.loopback.google:GoogleWire",
}
VOICES = {
    "realtime": "pramana.providers.loopback.realtime:RealtimeAgent",
    "live": "pramana.providers.loopback.live:LiveAgent",
    "elevenlabs": "pramana.providers.loopback.elevenlabs:ElevenLabsAgent",
    "deepgram": "pramana.providers.loopback.deepgram:DeepgramAgent",
    "vapi": "pramana.providers.loopback.vapi:VapiAgent",
    "twilio": "pramana.providers.loopback.twilio:TwilioAgent",
    "pipecat": "pramana.providers.loopback.pipecat:PipecatAgent",
}


async def serve(given: argparse.Namespace) -> None:
    """Serve until cancelled."""
    make = _named((WIRES | VOICES)[given.wire])
    async with _spoken_server(make, given) if given.wire in VOICES else _server(make, given) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m pramana.providers.loopback", description=__doc__)
    kinds = parser.add_subparsers(dest="wire", required=True)
    for name in WIRES:
        _asked(kinds.add_parser(name))
    for name in VOICES:
        _spoken(kinds.add_parser(name))
    given = parser.parse_args()
    try:
        asyncio.run(serve(given))
    except KeyboardInterrupt:
        return


def _asked(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before each answer")
    parser.add_argument("--says", help="the text of every answer")
    parser.add_argument("--fault", choices=get_args(FaultKind), help="what every request meets")


def _spoken(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--port", type=int, default=0, help="0 takes a free one")
    add("--log", type=Path, help="the file that gets each turn as a line of JSON, when it happened")
    add("--key", help="the only one accepted; any, if not given")
    add("--first-byte", type=float, dest="first_byte_s", metavar="S", help="after the caller's last audible sample")
    add("--leading-silence", type=float, dest="leading_silence_s", metavar="S", help="before the audible answer")
    add("--answer", type=float, dest="answer_s", metavar="S", help="of audible answer")
    add("--hangover", type=float, dest="hangover_s", metavar="S", help="of silence that end the caller's turn")
    add("--text", help="what the agent says it said")
    add("--heard", help="what the agent says it heard")
    add("--transcript", choices=("with", "late", "missing"))
    add("--greets", action="store_true", default=None, help="the agent speaks first")
    add("--no-interrupt", action="store_false", default=None, dest="interrupt", help="it cannot be talked into")
    add("--unknown-event", action="store_true", default=None)
    add("--wrong-rate", type=int, metavar="HZ")
    add("--status", type=int, help="of every upgrade")
    add("--hang", choices=("ready", "answer"))


def _named(place: str) -> Any:
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def _server(make: Any, given: argparse.Namespace) -> Loopback:
    wire = make(given.says) if given.says is not None else make()
    faults = [Fault(given.fault)] if given.fault else []
    return Loopback(wire, port=given.port, latency_s=given.latency, faults=faults, keep=False)


def _spoken_server(make: Any, given: argparse.Namespace) -> Any:
    from pramana.providers.loopback.script import script_of
    from pramana.providers.loopback.voice import VoiceLoopback

    return VoiceLoopback(make, script_of(vars(given)), key=given.key, port=given.port, log=given.log, keep=False)


if __name__ == "__main__":
    main()
