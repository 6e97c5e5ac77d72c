"""A loopback voice agent: a test server for one wire format, with the given delays and faults.

It prints its URL and runs until it is stopped. It is a separate process, so that it does not share a core with its
caller; its log shows what Pramana should have measured.
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


async def serve(arguments: argparse.Namespace) -> None:
    """Serve one agent until cancelled."""
    agent, script = AGENTS[arguments.wire], make_script(vars(arguments))
    async with VoiceLoopback(
        agent, script, key=arguments.key, port=arguments.port, log=arguments.log, keep=False
    ) as server:
        sys.stdout.write(f"{server.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m pramana.loopback", description=__doc__)
    add = parser.add_argument
    add("wire", choices=AGENTS)
    add("--port", type=int, default=0, help="port to listen on; 0 (the default) chooses a free one")
    add("--log", type=Path, help="file to which each turn is written, as a line of JSON with its times")
    add("--key", help="key to accept; without it, the server accepts any key")
    add(
        "--first-byte",
        type=float,
        dest="first_byte_s",
        metavar="S",
        help="delay from the caller's last audible sample to the first sound, in seconds",
    )
    add(
        "--leading-silence",
        type=float,
        dest="leading_silence_s",
        metavar="S",
        help="silence at the beginning of the answer, in seconds",
    )
    add("--answer", type=float, dest="audible_answer_s", metavar="S", help="length of the audible answer, in seconds")
    add(
        "--hangover", type=float, dest="hangover_s", metavar="S", help="silence that ends the caller's turn, in seconds"
    )
    add("--text", help="transcript of the answer that the agent reports")
    add("--heard", help="transcript of the caller that the agent reports")
    add(
        "--transcript",
        choices=("with", "late", "missing"),
        help="when the agent sends its transcripts of the caller and of its answer",
    )
    add("--greets", action="store_true", default=None, help="the agent speaks first")
    add(
        "--no-interrupt",
        action="store_false",
        default=None,
        dest="interrupt",
        help="the agent does not stop when the caller interrupts",
    )
    add("--unknown-event", action="store_true", default=None, help="also send unknown events")
    add(
        "--wrong-rate",
        type=int,
        metavar="HZ",
        help="announce or send sound at this sample rate, not at the requested rate",
    )
    add("--status", type=int, help="refuse every connection with this HTTP status")
    add("--hang", choices=("ready", "answer"), help="never send anything, or never answer")
    try:
        asyncio.run(serve(parser.parse_args()))
    except KeyboardInterrupt:
        return


if __name__ == "__main__":
    main()
