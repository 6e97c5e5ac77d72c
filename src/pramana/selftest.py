"""The bench proves its own clock: known delays go in, the error of every measured voice-to-voice time comes out.

Each wire format is spoken to its loopback agent, a process of its own that logs on the clock all processes of a machine
share when the caller's last audible sample reached it and when it sent its answer. Calls are held, recorded and
measured exactly as in a run, several at once, while speech recognition keeps the machine busy. The error is what the
recording says, less what that log says; the lateness of a mere 20 ms ticker in the same process says how much of it is
the machine's. Configured delays prove nothing and are not looked at.
"""

import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pramana.errors import InvalidInput, Unavailable, did_you_mean, quote
from pramana.model import Line, Target, Utterance
from pramana.providers.http import Account
from pramana.providers.names import providers
from pramana.providers.voice import FRAME_S, Dial, Voice
from pramana.run.call import Conversation, Held, Patience
from pramana.score.timing import measure

if TYPE_CHECKING:
    from pramana.audio import Samples

WIRES = {
    "openai-realtime": "realtime",
    "gemini-live": "live",
    "elevenlabs": "elevenlabs",
    "deepgram": "deepgram",
    "vapi": "vapi",
    "twilio": "twilio",
    "pipecat": "pipecat",
}
"""Each provider that is called over a wire, and the loopback agent that speaks it."""
BY_ADDRESS = ("twilio", "pipecat")
"""Who is called there is a server of the user's own."""
TURNS, CALLS = 200, 8
ALLOWED_S = 0.020
"""Beyond the lateness of the ticker, at the 95th percentile."""
FIRST_BYTE_S, LEADING_S, ANSWER_S = 0.35, 0.12, 0.25
STARTUP_S = 30.0
KEY = "selftest-0123456789abcdef"


@dataclass(frozen=True, slots=True)
class Clock:
    """How far measured times are from true ones, for one wire format; seconds."""

    wire: str
    turns: int
    """Measured and found in the agent's log."""
    expected: int
    median: float
    """Of the error, with its sign."""
    p95: float
    """Of the error's size."""
    worst: float
    ticker_p95: float

    @property
    def proven(self) -> bool:
        """Every turn was measured, and 95 of a hundred are as near as is allowed."""
        return self.turns == self.expected and self.p95 <= self.ticker_p95 + ALLOWED_S


def chosen(wires: Sequence[str]) -> list[str]:
    """Return the wire formats that are meant; all where none is named."""
    for wire in wires:
        if wire not in WIRES:
            hint = did_you_mean(wire, WIRES)
            raise InvalidInput(f"there is no wire format {quote(wire)}{hint}; there are {', '.join(WIRES)}")
    return list(dict.fromkeys(wires)) or list(WIRES)


async def prove(wire: str, turns: int = TURNS, calls: int = CALLS, done: Callable[[int], None] | None = None) -> Clock:
    """Hold calls over one wire format until there are so many turns; `done` is told of each that is over."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "turns.jsonl")
        async with _agent(wire, log) as url, _ticking() as lateness, _working():
            provider: Voice = providers.load(wire).open(Target(wire, wire, _name(wire, url, 0)), Account(url, KEY))
            try:
                shares = [turns // calls + (number < turns % calls) for number in range(calls)]
                held = await asyncio.gather(
                    *(
                        _call(provider, _name(wire, url, number), share, done)
                        for number, share in enumerate(shares)
                        if share
                    )
                )
            finally:
                await provider.close()
        sent = [json.loads(line) for line in (await asyncio.to_thread(log.read_bytes)).splitlines()]
    errors = [error for name, call in held for error in _errors(call, [turn for turn in sent if turn["asked"] == name])]
    sizes = sorted(abs(error) for error in errors)
    return Clock(
        wire,
        len(errors),
        turns,
        _percentile(sorted(errors), 0.5),
        _percentile(sizes, 0.95),
        sizes[-1] if sizes else 0.0,
        _percentile(sorted(lateness), 0.95),
    )


def _name(wire: str, url: str, number: int) -> str:
    """Return whom a call is for, by which the agent's log tells calls apart."""
    return f"{url.replace('http', 'ws', 1)}/call-{number}" if wire in BY_ADDRESS else f"call-{number}"


async def _call(provider: Voice, name: str, turns: int, done: Callable[[int], None] | None) -> "tuple[str, Held]":
    chance = random.Random(name.rpartition("-")[2])
    spoken = [
        Utterance(Line(f"line {each}"), await asyncio.to_thread(_tone, chance.uniform(0.25, 0.4)), f"line {each}")
        for each in range(turns)
    ]
    channel = await provider.dial(Dial(name))
    patience = Patience(answer_within_s=5.0, longest_s=30.0 + 5.0 * turns)
    held = await Conversation(channel, spoken, {"rate": 24000}, patience).hold()
    if done:
        done(turns)
    return name, held


def _errors(held: Held, sent: Sequence[dict[str, Any]]) -> list[float]:
    """Return what was measured less what is true, for each turn that both sides know of."""
    from pramana import audio

    samples, rate = audio.read_wav(held.recording)
    events = [json.loads(line) for line in held.log.splitlines()]
    measured = measure(samples, rate, events).lines
    errors = []
    for line, turn in zip(measured, sent, strict=False):
        if line.voice_to_voice_s is not None and turn["speech_end_at"] is not None:
            heard = turn["speech_end_at"] - FRAME_S + turn["speech_end_within_s"]
            errors.append(line.voice_to_voice_s - (turn["sent_at"] + turn["leading_silence_s"] - heard))
    return errors


@asynccontextmanager
async def _agent(wire: str, log: Path) -> AsyncIterator[str]:
    """Run a loopback agent in a process of its own; give its URL."""
    arguments = ("--first-byte", FIRST_BYTE_S, "--leading-silence", LEADING_S, "--answer", ANSWER_S, "--log", log)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "pramana.providers.loopback", WIRES[wire], *map(str, arguments)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None  # noqa: S101 - asked for above
    try:
        async with asyncio.timeout(STARTUP_S):
            url = (await process.stdout.readline()).decode().strip()
        if not url:
            raise Unavailable(f"the loopback agent of {wire} did not start")
        yield url
    except TimeoutError:
        raise Unavailable(f"the loopback agent of {wire} did not start within {STARTUP_S:g} s") from None
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def _ticking() -> AsyncIterator[list[float]]:
    """Measure how late a task is that wants to run each 20 ms and does nothing else."""
    lateness: list[float] = []

    async def tick() -> None:
        start = time.monotonic()
        number = 1
        while True:
            due = start + number * FRAME_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            lateness.append(time.monotonic() - due)
            number = max(number + 1, int((time.monotonic() - start) / FRAME_S) + 1)

    ticking = asyncio.create_task(tick())
    try:
        yield lateness
    finally:
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)


@asynccontextmanager
async def _working() -> AsyncIterator[None]:
    """Keep the machine as busy as scoring does: speech recognition in a thread, clip after clip."""
    from pramana.embedded.ears import Ears
    from pramana.embedded.voice import speak

    ears = await asyncio.to_thread(Ears.open)
    clip = await asyncio.to_thread(speak, "The quick brown fox jumps over the lazy dog.", "en")

    async def work() -> None:
        while True:
            await asyncio.to_thread(ears.transcribe, clip)

    working = asyncio.create_task(work())
    try:
        yield
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


def _tone(seconds: float) -> "Samples":
    import numpy as np

    from pramana import audio

    at = np.arange(round(seconds * audio.CALLER_RATE)) / audio.CALLER_RATE
    return (9000 * np.cos(2 * np.pi * 330 * at)).astype(np.int16)


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that so many are not above."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("inf")
