"""The bench proves its own clock: known delays go in, the error of every measured voice-to-voice time comes out.

Each wire format is spoken to its loopback agent, a process of its own that logs on the clock all processes of a machine
share when the caller's last audible sample reached it and when it sent its answer. Calls are held, recorded and
measured exactly as in a run, several at once, while a finished call is scored over and over. The error is what the
recording says, less what that log says; the lateness of a mere 20 ms ticker in the same process says how much of it is
the machine's. Configured delays prove nothing and are not looked at.
"""

import asyncio
import json
import random
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pramana.errors import InvalidInput, Unavailable, quote_text, suggest_similar
from pramana.loopback.ticker import TICK_S, WAITED_BEFORE_S, Ticker
from pramana.model import Call, Case, Facets, Line, Outcome, Reply, Target, Utterance
from pramana.providers.accounts import Account
from pramana.providers.kinds import providers
from pramana.providers.voice.embedded import EmbeddedRecognition
from pramana.providers.voice.vocabulary import FRAME_S, Dial, VoiceProvider
from pramana.run.call import LOG_VERSION, Conversation, FinishedCall, Patience
from pramana.score.speech import CallScoring
from pramana.score.timing import measure_times

if TYPE_CHECKING:
    from pramana.audio import Samples

LOOPBACK_AGENTS = {
    "openai-realtime": "realtime",
    "gemini-live": "live",
    "elevenlabs": "elevenlabs",
    "deepgram": "deepgram",
    "vapi": "vapi",
    "twilio": "twilio",
    "pipecat": "pipecat",
}
"""Each provider that is called over a wire, and the loopback agent that speaks it."""
CALLED_BY_ADDRESS = ("twilio", "pipecat")
"""Who is called there is a server of the user's own."""
ALLOWED_ERROR_S = 0.020
"""Beyond the lateness of the ticker, at the 95th percentile."""
FIRST_BYTE_S, LEADING_S, ANSWER_S = 0.35, 0.12, 0.25
SHORT_S, LONG_S = (0.25, 0.4), (2.0, 4.0)
"""Of a line; one in five is a long one, as people say them."""
SCORED_CALL_TEXTS = (
    "When do you open tomorrow, and may I pay by card?",
    "We open at nine in the morning, and cards are welcome.",
)
"""What is said in the call that is scored meanwhile."""
STARTUP_S = 30.0
SELFTEST_KEY = "selftest-0123456789abcdef"


@dataclass(frozen=True, slots=True)
class ClockError:
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
    unexplained_p95: float
    """Of the error's size, less what the bench and the agent waited for a processor in that turn."""

    @property
    def is_within_limits(self) -> bool:
        """Every turn was measured, and 95 of a hundred are as near as is allowed."""
        return self.turns == self.expected and self.p95 <= self.ticker_p95 + ALLOWED_ERROR_S

    @classmethod
    def from_times(cls, wire: str, times: "MeasuredCalls") -> "ClockError":
        sizes = sorted(map(abs, times.errors))
        return cls(
            wire,
            len(times.errors),
            times.expected,
            _percentile(sorted(times.errors), 0.5),
            _percentile(sizes, 0.95),
            sizes[-1] if sizes else 0.0,
            _percentile(sorted(times.lateness), 0.95),
            times.unexplained_p95,
        )


@dataclass(frozen=True, slots=True)
class MeasuredCalls:
    """What calls over one wire format have shown; seconds."""

    errors: list[float]
    """Of each turn: what was measured, less what is true."""
    waited: list[float]
    """Of each turn: how long the bench and the agent were ready to run and got no processor."""
    expected: int
    lateness: list[float]
    """Of the ticker, meanwhile."""

    @property
    def unexplained_p95(self) -> float:
        """Return how large errors are beyond what other processes made of them, on a machine busy with those."""
        pairs = zip(self.errors, self.waited, strict=True)
        return _percentile(sorted(max(0.0, abs(error) - waited) for error, waited in pairs), 0.95)


def select_wires(wires: Sequence[str]) -> list[str]:
    """Return the wire formats that are meant; all where none is named."""
    for wire in wires:
        if wire not in LOOPBACK_AGENTS:
            hint = suggest_similar(wire, LOOPBACK_AGENTS)
            raise InvalidInput(
                f"there is no wire format {quote_text(wire)}{hint}; there are {', '.join(LOOPBACK_AGENTS)}"
            )
    return list(dict.fromkeys(wires)) or list(LOOPBACK_AGENTS)


async def measure_clock(
    wire: str, turns: int, calls: int, on_call_done: Callable[[int], None] | None = None
) -> ClockError:
    """Hold calls over one wire format until there are so many turns; `on_call_done` is told of each that is over."""
    async with _background_load():
        return ClockError.from_times(wire, await measure_calls(wire, turns, calls, on_call_done))


async def measure_calls(
    wire: str, turns: int, calls: int, on_call_done: Callable[[int], None] | None = None
) -> MeasuredCalls:
    """Hold the calls, and compare every measured time with the agent's log."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "turns.jsonl")
        async with _run_agent(wire, log) as url, Ticker(FRAME_S) as ticker, Ticker(TICK_S) as watch:
            provider: VoiceProvider = providers.load(wire).open(
                Target(wire, wire, _call_name(wire, url, 0)), Account(url, SELFTEST_KEY)
            )
            try:
                shares = [turns // calls + (number < turns % calls) for number in range(calls)]
                held = await asyncio.gather(
                    *(
                        _hold_call(provider, _call_name(wire, url, number), share, on_call_done)
                        for number, share in enumerate(shares)
                        if share
                    )
                )
            finally:
                await provider.close()
        sent = [json.loads(line) for line in (await asyncio.to_thread(log.read_bytes)).splitlines()]
    turned = [
        each
        for name, call in held
        for each in _timing_errors(call, [turn for turn in sent if turn["asked"] == name], watch)
    ]
    errors, waited = [error for error, _ in turned], [waited for _, waited in turned]
    return MeasuredCalls(errors, waited, turns, ticker.list_lateness)


def _call_name(wire: str, url: str, number: int) -> str:
    """Return whom a call is for, by which the agent's log tells calls apart."""
    return f"{url.replace('http', 'ws', 1)}/call-{number}" if wire in CALLED_BY_ADDRESS else f"call-{number}"


async def _hold_call(
    provider: VoiceProvider, name: str, turns: int, on_call_done: Callable[[int], None] | None
) -> "tuple[str, FinishedCall]":
    chance = random.Random(name.rpartition("-")[2])
    lengths = [chance.uniform(*(SHORT_S if each % 5 else LONG_S)) for each in range(turns)]
    tones = await asyncio.to_thread(lambda: [_make_tone(each) for each in lengths])
    spoken = [Utterance(Line(f"line {each}"), tone, f"line {each}") for each, tone in enumerate(tones)]
    channel = await provider.dial(Dial(name))
    patience = Patience(answer_within_s=5.0, longest_s=30.0 + 5.0 * turns)
    held = await Conversation(channel, spoken, {"rate": 24000}, patience).hold()
    if on_call_done:
        on_call_done(turns)
    return name, held


def _timing_errors(held: FinishedCall, logged: Sequence[dict[str, Any]], ticker: Ticker) -> list[tuple[float, float]]:
    """Return what was measured less what is true, and how long both sides waited for a processor, for each turn."""
    from pramana import audio

    samples, rate = audio.read_wav(held.recording)
    events = [json.loads(line) for line in held.log.splitlines()]
    measured = measure_times(samples, rate, events).lines
    errors = []
    for line, turn in zip(measured, logged, strict=False):
        if line.voice_to_voice_s is not None and turn["speech_end_at"] is not None:
            heard = turn["speech_end_at"] - FRAME_S + turn["speech_end_within_s"]
            error = line.voice_to_voice_s - (turn["sent_at"] + turn["leading_silence_s"] - heard)
            waited = turn["waited_s"] + ticker.waited_for_processor_s(
                heard - WAITED_BEFORE_S, turn["sent_at"] + WAITED_BEFORE_S
            )
            errors.append((error, waited))
    return errors


@asynccontextmanager
async def _run_agent(wire: str, log: Path) -> AsyncIterator[str]:
    """Run a loopback agent in a process of its own; give its URL."""
    arguments = ("--first-byte", FIRST_BYTE_S, "--leading-silence", LEADING_S, "--answer", ANSWER_S, "--log", log)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "pramana.loopback", LOOPBACK_AGENTS[wire], *map(str, arguments)),
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
async def _background_load() -> AsyncIterator[None]:
    """Keep the machine as busy as scoring does: a finished call is measured and listened to, again and again."""
    recording, log = await asyncio.to_thread(_make_finished_call)
    ears = EmbeddedRecognition("bench")
    await ears.prepare()
    scoring = CallScoring({"recording": recording, "log": log}.__getitem__, ears)
    case = Case("scored", "scenario", (), Facets("information", "easy", "en"), script=(Line(SCORED_CALL_TEXTS[0]),))
    reply = Reply(SCORED_CALL_TEXTS[1], call=Call("recording", "log"))
    first = await scoring.score(case, reply)  # every model is loaded before anyone is timed
    if first.outcome is not Outcome.PASSED:
        raise Unavailable(f"nothing can be scored here, as a run would do beside its calls: {first.reason}")

    over = asyncio.Event()

    async def do_work() -> None:
        while not over.is_set():
            await scoring.score(case, reply)

    working = asyncio.create_task(do_work())
    try:
        yield
    finally:
        over.set()  # not cancelled: its thread would go on, and ask ears of a loop that is closed
        await asyncio.gather(working, return_exceptions=True)


@cache
def _make_finished_call() -> tuple[bytes, bytes]:
    """Return recording and log of a call that is over: a question and its answer, as the embedded voice says them."""
    import numpy as np

    from pramana import audio
    from pramana.embedded.voice import speak

    rate = audio.RECORDING_RATE
    asked, answered = (audio.resample(speak(text, "en"), audio.CALLER_RATE, rate) for text in SCORED_CALL_TEXTS)
    end = len(asked) / rate
    plays = end + FIRST_BYTE_S
    samples: Samples = np.zeros((round(plays * rate) + len(answered), 2), np.int16)
    samples[: len(asked), 0], samples[-len(answered) :, 1] = asked, answered
    line = {"line": 0, "text": SCORED_CALL_TEXTS[0], "start": 0.0, "end": end, "barge_in": False, "backchannel": False}
    events: list[dict[str, Any]] = [
        {"t": 0.0, "event": "call", "version": LOG_VERSION, "rate": rate},
        {"t": end, "event": "line", **line},
        {"t": plays, "event": "agent_audio", "plays": plays, "seconds": len(answered) / rate},
        {"t": plays, "event": "agent_text", "text": SCORED_CALL_TEXTS[1], "final": True},
        {"t": plays, "event": "turn_done", "text": ""},
        {"t": len(samples) / rate, "event": "end", "reason": "done"},
    ]
    return audio.write_wav(samples, rate), "".join(json.dumps(each) + "\n" for each in events).encode()


def _make_tone(seconds: float) -> "Samples":
    import numpy as np

    from pramana import audio

    at = np.arange(round(seconds * audio.CALLER_RATE)) / audio.CALLER_RATE
    return (9000 * np.cos(2 * np.pi * 330 * at)).astype(np.int16)


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that so many are not above."""
    return ordered[ceil(share * len(ordered)) - 1] if ordered else float("inf")
