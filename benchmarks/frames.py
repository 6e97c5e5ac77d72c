"""Can a broken agent break us? 100,000 broken frames into every wire format.

Bar: only errors of ours leave a wire, none hangs, and every event is plain data. The frames are made of what each
loopback agent really sends in two calls (cut, spoilt, with other types and keys, huge, deep, binary), from a fixed
seed. Synthetic by nature.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from pramana.model import Line, Target, Utterance
from pramana.providers.declared import shipped
from pramana.providers.declared_wire import DeclaredWire
from pramana.providers.http import Account
from pramana.providers.live import LiveWire
from pramana.providers.loopback.__main__ import VOICES
from pramana.providers.loopback.fuzz import survive
from pramana.providers.loopback.voice import Script, VoiceLoopback
from pramana.providers.names import providers
from pramana.providers.realtime import RealtimeWire
from pramana.providers.voice import Dial, Message, Wire
from pramana.run.call import Conversation, Patience
from pramana.selftest import BY_ADDRESS, KEY, WIRES

FRAMES = 100_000
LONGEST = 10_000
"""Bytes of a frame that is taken as a sample: a long sound in every one would only take time."""


async def said(name: str) -> list[Message]:
    """Return what the loopback agent of a wire format says in two calls, each kind of message once."""
    module, _, attribute = VOICES[WIRES[name]].partition(":")
    agent = getattr(import_module(module), attribute)
    tone = (9000 * np.sin(np.arange(5000) / 8)).astype(np.int16)
    spoken = [Utterance(Line("one"), tone, "one"), Utterance(Line("two", barge_in_s=0.2), tone, "two")]
    messages: list[Message] = []
    for transcript in ("with", "late"):
        script = Script(first_byte_s=0.25, answer_s=0.6, transcript=transcript, unknown_event=True)
        async with VoiceLoopback(agent, script) as server:
            model = f"{server.url.replace('http', 'ws', 1)}/call" if name in BY_ADDRESS else "call"
            provider: Any = providers.load(name).open(Target(name, name, model), Account(server.url, KEY))
            channel = await provider.dial(Dial(model))
            await Conversation(channel, spoken, {"rate": 24000}, Patience(answer_within_s=5)).hold()
            await provider.close()
            messages += [message for call in server.calls for message in call.sent]
    kinds = {message if isinstance(message, str) else message[:12]: message for message in messages}
    return [message for message in kinds.values() if len(message) < LONGEST]


def wire_of(name: str) -> Callable[[], Wire]:
    """Return what makes the wire of a new call."""
    if name == "openai-realtime":
        return lambda: RealtimeWire(Dial("call"))
    if name == "gemini-live":
        return lambda: LiveWire(Dial("call"))
    values = {
        "model": "ws://host/call",
        "base_url": "",
        "key": KEY,
        "language": "en",
        "call_id": "0" * 32,
        "parameters": {},
    }
    return lambda: DeclaredWire(shipped(name), values)


def main() -> int:
    """Print the table; anything but an error of ours ends the program with a traceback."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frames", description=__doc__)
    parser.add_argument("--frames", type=int, default=FRAMES)
    count = parser.parse_args().frames
    print("| wire format | frames | refused | unknown events | other events | seconds |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in WIRES:
        samples = asyncio.run(said(name))
        start = time.perf_counter()
        met = survive(wire_of(name), samples, count)
        took = time.perf_counter() - start
        others = sum(met.values()) - met["refused"] - met["unknown"]
        cells = (name, f"{count:,}", f"{met['refused']:,}", f"{met['unknown']:,}", f"{others:,}", f"{took:.1f}")
        print(f"| {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
