"""Can a broken agent break Pramana? Feeds 100,000 broken frames to every wire format, and their events to whole calls.

Bar: a wire raises only our own errors, none hangs, and every event is plain data; calls that receive such events come
to an end, and their recording and log can be measured. The frames are mutations (cut, corrupted, with other types and
keys, huge, deep, binary) of what each loopback agent really sends in two calls, from a fixed seed. Synthetic by nature.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tests.loopback.fuzz import generate_frames, read_broken_frames

from pramana import audio
from pramana.errors import ProviderError
from pramana.loopback.__main__ import AGENTS
from pramana.loopback.voice import Script, VoiceLoopback
from pramana.model import Line, Target, Utterance
from pramana.providers.accounts import Account
from pramana.providers.kinds import providers
from pramana.providers.voice.declared import load_shipped_description
from pramana.providers.voice.declared_wire import DeclaredWire
from pramana.providers.voice.live import LiveWire
from pramana.providers.voice.realtime import RealtimeWire
from pramana.providers.voice.vocabulary import CallSetup, ChannelCapabilities, Event, Message, ReceivedEvents, Wire
from pramana.run.call import Conversation, Patience
from pramana.score.speech import make_call_check, measure_call
from pramana.selftest import LOOPBACK_AGENTS, SELFTEST_KEY, WIRES_CALLED_BY_ADDRESS

FRAMES = 100_000
CALLS, EVENTS = 100, 200
"""Number of concurrent calls, and of broken frames in each."""
LONGEST_S = 4.0
LONGEST = 10_000
"""Maximum bytes of a frame used as a sample: long audio in every frame would only cost time."""


class Broken:
    """A channel that delivers the events of broken frames while the caller talks."""

    capabilities = ChannelCapabilities()

    def __init__(self, wire: Wire, messages: Sequence[Message]) -> None:
        self._wire, self._messages, self._count = wire, messages, 0
        self.uplink, self.downlink = wire.uplink, wire.downlink
        self._heard: asyncio.Queue[ReceivedEvents] = asyncio.Queue()

    def is_key_in_text(self, text: str) -> bool:  # noqa: ARG002
        """Return False: this channel has no key."""
        return False

    async def send(self, frame: bytes) -> None:
        """Accept a frame of the caller, and deliver the events of three messages."""
        self._wire.sound_messages(frame)
        for message in self._messages[self._count : self._count + 3]:
            try:
                found = tuple(self._wire.read_events(message))
            except ProviderError as error:
                found = (Event("unknown", str(error)),)
            # Most broken messages are errors, and the first error would end the call.
            self._heard.put_nowait(
                ReceivedEvents(time.monotonic(), tuple(e for e in found if e.kind not in ("error", "closed")))
            )
        self._count += 3

    async def receive(self) -> ReceivedEvents:
        """Return the next events."""
        return await self._heard.get()

    async def interrupt(self, played_s: float) -> None:
        """Build the messages of an interruption, and send nothing."""
        self._wire.interruption_messages(played_s)

    async def close(self) -> None:
        """Close the channel."""


async def run_broken_calls(wire: Callable[[], Wire], samples: Sequence[Message], calls: int) -> Counter[str]:
    """Make calls that receive broken frames, measure them, and return the outcomes of their checks, counted."""
    chance = iter(generate_frames(samples, 1))

    async def one() -> str:
        broken = [next(chance) for _ in range(EVENTS)]
        mixed = [each for pair in zip(broken, list(samples) * EVENTS, strict=False) for each in pair]
        patience = Patience(answer_within_s=0.5, max_call_s=LONGEST_S)
        held = await Conversation(Broken(wire(), mixed), _make_lines(), {"rate": 24000}, patience).hold_call()
        return str(await asyncio.to_thread(check_outcome, held.recording, held.log))

    return Counter(await asyncio.gather(*(one() for _ in range(calls))))


def check_outcome(recording: bytes, log: bytes) -> str:
    """Return the outcome of a call's check."""
    found, rate = audio.read_wav(recording)
    events = [json.loads(line) for line in log.splitlines()]
    nobody: Any = {"transcribe": None, "transcribable_languages": (), "language": "en"}
    check = make_call_check(measure_call(found, rate, events, line_count=2, **nobody))
    json.dumps(check.evidence, allow_nan=False)
    return check.outcome.value


def _make_lines() -> list[Utterance]:
    tone = (9000 * np.sin(np.arange(5000) / 8)).astype(np.int16)
    return [Utterance(Line("one"), tone, "one"), Utterance(Line("two", barge_in_s=0.2), tone, "two")]


async def record_messages(name: str) -> list[Message]:
    """Return the messages that a format's loopback agent sends in two calls, one of each kind."""
    agent = AGENTS[LOOPBACK_AGENTS[name]]
    spoken = _make_lines()
    messages: list[Message] = []
    for transcript in ("with", "late"):
        script = Script(first_byte_s=0.25, audible_answer_s=0.6, transcript=transcript, unknown_event=True)
        async with VoiceLoopback(agent, script) as server:
            model = f"{server.url.replace('http', 'ws', 1)}/call" if name in WIRES_CALLED_BY_ADDRESS else "call"
            provider: Any = providers.load(name).open(Target(name, name, model), Account(server.url, SELFTEST_KEY))
            channel = await provider.dial(CallSetup(model))
            await Conversation(channel, spoken, {"rate": 24000}, Patience(answer_within_s=5)).hold_call()
            await provider.close()
            messages += [message for call in server.calls for message in call.sent]
    kinds = {message if isinstance(message, str) else message[:12]: message for message in messages}
    return [message for message in kinds.values() if len(message) < LONGEST]


def wire_factory(name: str) -> Callable[[], Wire]:
    """Return a factory for the wire of a new call."""
    if name == "openai-realtime":
        return lambda: RealtimeWire(CallSetup("call"))
    if name == "gemini-live":
        return lambda: LiveWire(CallSetup("call"))
    values = {
        "model": "ws://host/call",
        "base_url": "",
        "key": SELFTEST_KEY,
        "language": "en",
        "call_id": "0" * 32,
        "parameters": {},
    }
    return lambda: DeclaredWire(load_shipped_description(name), values)


def main() -> int:
    """Print the table; any exception but our own errors ends the program with a traceback."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.frames", description=__doc__)
    parser.add_argument("--frames", type=int, default=FRAMES)
    parser.add_argument("--calls", type=int, default=CALLS)
    given = parser.parse_args()
    count = given.frames
    print("| wire format | frames | refused | unknown events | other events | seconds | calls held and measured |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in LOOPBACK_AGENTS:
        samples = asyncio.run(record_messages(name))
        start = time.perf_counter()
        met = read_broken_frames(wire_factory(name), samples, count)
        took = time.perf_counter() - start
        others = sum(met.values()) - met["refused"] - met["unknown"]
        ended = asyncio.run(run_broken_calls(wire_factory(name), samples, given.calls))
        told = ", ".join(f"{number} {outcome}" for outcome, number in sorted(ended.items()))
        cells = (name, f"{count:,}", f"{met['refused']:,}", f"{met['unknown']:,}", f"{others:,}", f"{took:.1f}", told)
        print(f"| {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
