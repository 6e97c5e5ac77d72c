"""A loopback agent as a separate program: takes a wire format, a port and the delays, and prints its URL.

It serves until it is stopped. In a separate process it does not share a core with its caller, and its log proves what
the bench measured.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

from pramana.loopback.declared import DeepgramAgent, ElevenLabsAgent, PipecatAgent, TwilioAgent, VapiAgent
from pramana.loopback.live import LiveAgent
from pramana.loopback.realtime import RealtimeAgent
from pramana.loopback.script import make_script
from pramana.loopback.voice import Agent, VoiceLoopback

AGENTS: Mapping[str, type[Agent]] = {
    "realtime": RealtimeAgent,
    "live": LiveAgent,
    "elevenlabs": ElevenLabsAgent,
    "deepgram": DeepgramAgent,
    "vapi": VapiAgent,
    "twilio": TwilioAgent,
    "pipecat": PipecatAgent,
}
"""The agent of each wire format."""


async def serve(given: argparse.Namespace) -> None:
    """Serve one agent until cancelled."""
    agent, script = AGENTS[given.wire], make_script(vars(given))
    async with VoiceLoopback(agent, script, key=given.key, port=given.port, log=given.log, keep=False) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m pramana.loopback", description=__doc__)
    add = parser.add_argument
    add("wire", choices=AGENTS)
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
    try:
        asyncio.run(serve(parser.parse_args()))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
