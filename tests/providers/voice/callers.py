"""A caller for tests: speaks into a channel, falls silent, and records the events it receives."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from pramana.loopback.voice import Agent, Script, VoiceLoopback
from pramana.providers.voice.socket import SocketChannel
from pramana.providers.voice.vocabulary import Event, ReceivedEvents

T = TypeVar("T")
QUICK_FIELDS: Any = {
    "first_byte_s": 0.02,
    "hangover_s": 0.1,
    "audible_answer_s": 0.4,
    "leading_silence_s": 0.05,
    "sending_speed": 50.0,
    "transcript_delay_s": 0.05,
}
QUICK = Script(**QUICK_FIELDS)


def quick_script(**changed: Any) -> Script:
    """Return a script without long waits."""
    return Script(**{**QUICK_FIELDS, **changed})


def make_tone(seconds: float, rate: int) -> bytes:
    """Return PCM that counts as speech."""
    at = np.arange(round(seconds * rate)) / rate
    return (8000 * np.sin(2 * np.pi * 300 * at)).astype("<i2").tobytes()


def split_frames(sound: bytes, rate: int) -> list[bytes]:
    """Return PCM in frames of 20 ms."""
    size = rate // 50 * 2
    return [sound[begin : begin + size] for begin in range(0, len(sound), size)]


def serve(agent: type[Agent], use: Callable[[VoiceLoopback], Awaitable[T]], script: Script, key: str) -> T:
    """Serve while a function uses it."""

    async def go() -> T:
        async with asyncio.timeout(20), VoiceLoopback(agent, script, key=key) as server:
            return await use(server)

    return asyncio.run(go())


async def take_turn(
    channel: SocketChannel, *, last: str = "turn_done", linger_s: float = 0.0, pace_s: float = 0.002
) -> list[ReceivedEvents]:
    """Speak, then send silence until the named event arrives, and for `linger_s` beyond it."""
    rate = channel.uplink.rate
    speech, silence = split_frames(make_tone(0.3, rate), rate), bytes(rate // 50 * 2)
    heard: list[ReceivedEvents] = []

    async def talk() -> None:
        for frame in speech:
            await channel.send(frame)
            await asyncio.sleep(pace_s)
        while True:
            await channel.send(silence)
            await asyncio.sleep(pace_s)

    async def listen(until: str) -> None:
        while True:
            heard.append(await channel.receive())
            if any(event.kind in (until, "closed") for event in heard[-1].events):
                return

    talking = asyncio.create_task(talk())
    try:
        await listen(last)
        if linger_s:
            with suppress(TimeoutError):
                async with asyncio.timeout(linger_s):
                    await listen("closed")
    finally:
        talking.cancel()
        await asyncio.wait([talking])
    return heard


def flatten_events(heard: list[ReceivedEvents], *kinds: str) -> list[Event]:
    """Return all events, or only those of the given kinds."""
    return [event for each in heard for event in each.events if not kinds or event.kind in kinds]


def join_sound(heard: list[ReceivedEvents]) -> bytes:
    """Return all of the agent's sound."""
    return b"".join(event.audio for event in flatten_events(heard))
