"""Tests the bench's clock: known delays go in, the error of every measured voice-to-voice time comes out.

Each wire format is tested against its loopback agent, a separate process that logs when the caller's last audible
sample arrived and when it sent its answer, on the clock that all processes of a machine share. Calls are held, recorded
and measured exactly as in a run, several at once, while a finished call is scored over and over. The error is the time
from the recording minus the time from that log; the lateness of a plain 20 ms ticker in the same process shows the
machine's share of it. Configured delays are not used, because they prove nothing.
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

from pramana.analyse.intervals import bound_percentile
from pramana.errors import InvalidInput, Unavailable, quote_text, suggest_similar
from pramana.loopback.ticker import PROCESSOR_WAIT_LOOKBACK_S, TICK_S, Ticker
from pramana.model import Case, Facets, Line, Outcome, RecordedCall, Reply, Target, Utterance
from pramana.providers.accounts import Account
from pramana.providers.kinds import providers
from pramana.providers.voice.embedded import EmbeddedRecognition
from pramana.providers.voice.vocabulary import FRAME_S, CallSetup, VoiceProvider
from pramana.run.call import LOG_VERSION, Conversation, FinishedCall, Patience
from pramana.score.speech import CallScorer
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
"""The loopback agent of each provider that is called over a wire."""
WIRES_CALLED_BY_ADDRESS = ("twilio", "pipecat")
"""Providers whose calls go to a server of the user's own."""
ALLOWED_ERROR_S = 0.020
"""Beyond the ticker's lateness, at the 95th percentile."""
FIRST_BYTE_S, LEADING_S, ANSWER_S = 0.35, 0.12, 0.25
SHORT_S, LONG_S = (0.25, 0.4), (2.0, 4.0)
"""Length of a line; one in five is long, as in real speech."""
SCORED_CALL_TEXTS = (
    "When do you open tomorrow, and may I pay by card?",
    "We open at nine in the morning, and cards are welcome.",
)
"""The lines of the call that is scored meanwhile."""
STARTUP_S = 30.0
SELFTEST_KEY = "selftest-0123456789abcdef"


@dataclass(frozen=True, slots=True)
class ClockErrors:
    """The error of measured times for one wire format, in seconds."""

    wire: str
    turns: int
    """Turns that were measured and found in the agent's log."""
    expected: int
    """Turns that should have been measured."""
    median: float
    """The median error, with its sign."""
    p95: float
    """The 95th percentile of the absolute error."""
    worst: float
    """The largest absolute error."""
    ticker_p95: float
    """The 95th percentile of the lateness of a bare ticker, which is the machine's share."""
    unexplained_p95: float
    """The 95th percentile of the absolute error, minus the time that the bench and the agent waited for a processor in
    that turn."""
    p95_at_most: float | None = None
    """What `p95` is at most, at 95 % confidence, with turns as the units; None for fewer than 59 turns."""

    @property
    def is_within_limits(self) -> bool:
        """Return whether every turn was measured, and 95 of 100 are within the allowed error."""
        return self.turns == self.expected and self.p95 <= self.ticker_p95 + ALLOWED_ERROR_S

    @classmethod
    def from_calls(cls, wire: str, measured_calls: "MeasuredCalls") -> "ClockErrors":
        sizes = sorted(map(abs, measured_calls.errors_s))
        return cls(
            wire,
            len(measured_calls.errors_s),
            measured_calls.expected_turn_count,
            _percentile(sorted(measured_calls.errors_s), 0.5),
            _percentile(sizes, 0.95),
            sizes[-1] if sizes else 0.0,
            _percentile(sorted(measured_calls.ticker_lateness_s), 0.95),
            measured_calls.unexplained_p95_s,
            bound_percentile(sizes, len(sizes), 0.95),
        )


@dataclass(frozen=True, slots=True)
class MeasuredCalls:
    """Measurements of calls over one wire format, in seconds."""

    errors_s: list[float]
    """For each turn: the measured time minus the true one."""
    processor_wait_s: list[float]
    """For each turn: how long the bench and the agent were ready to run and got no processor."""
    expected_turn_count: int
    ticker_lateness_s: list[float]
    """The ticker's lateness meanwhile."""

    @property
    def unexplained_p95_s(self) -> float:
        """Return the 95th percentile of the error without the part caused by other processes on a busy machine."""
        pairs = zip(self.errors_s, self.processor_wait_s, strict=True)
        return _percentile(sorted(max(0.0, abs(error) - waited) for error, waited in pairs), 0.95)


def select_wires(wires: Sequence[str]) -> list[str]:
    """Return the selected wire formats; all if none is named."""
    for wire in wires:
        if wire not in LOOPBACK_AGENTS:
            hint = suggest_similar(wire, LOOPBACK_AGENTS)
            raise InvalidInput(
                f"unknown wire format {quote_text(wire)}{hint}; known formats: {', '.join(LOOPBACK_AGENTS)}"
            )
    return list(dict.fromkeys(wires)) or list(LOOPBACK_AGENTS)


async def measure_clock(
    wire: str, turn_count: int, call_count: int, on_call_done: Callable[[int], None] | None = None
) -> ClockErrors:
    """Hold calls over one wire format for that many turns; `on_call_done` receives the turns of each finished call."""
    async with _background_load():
        return ClockErrors.from_calls(wire, await measure_calls(wire, turn_count, call_count, on_call_done))


async def measure_calls(
    wire: str, turn_count: int, call_count: int, on_call_done: Callable[[int], None] | None = None
) -> MeasuredCalls:
    """Hold the calls and compare every measured time with the agent's log."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "turns.jsonl")
        async with _run_agent(wire, log) as url, Ticker(FRAME_S) as ticker, Ticker(TICK_S) as watch:
            provider: VoiceProvider = providers.load(wire).open(
                Target(wire, wire, _make_call_name(wire, url, 0)), Account(url, SELFTEST_KEY)
            )
            try:
                shares = [turn_count // call_count + (number < turn_count % call_count) for number in range(call_count)]
                held = await asyncio.gather(
                    *(
                        _hold_call(provider, _make_call_name(wire, url, number), share, on_call_done)
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
        for each in _measure_timing_errors(call, [turn for turn in sent if turn["asked"] == name], watch)
    ]
    errors, waited = [error for error, _ in turned], [waited for _, waited in turned]
    return MeasuredCalls(errors, waited, turn_count, ticker.list_lateness_s)


def _make_call_name(wire: str, url: str, number: int) -> str:
    """Return the name of a call, which identifies it in the agent's log."""
    return f"{url.replace('http', 'ws', 1)}/call-{number}" if wire in WIRES_CALLED_BY_ADDRESS else f"call-{number}"


async def _hold_call(
    provider: VoiceProvider, name: str, turns: int, on_call_done: Callable[[int], None] | None
) -> "tuple[str, FinishedCall]":
    chance = random.Random(name.rpartition("-")[2])
    lengths = [chance.uniform(*(SHORT_S if each % 5 else LONG_S)) for each in range(turns)]
    tones = await asyncio.to_thread(lambda: [_make_tone(each) for each in lengths])
    spoken = [Utterance(Line(f"line {each}"), tone, f"line {each}") for each, tone in enumerate(tones)]
    channel = await provider.dial(CallSetup(name))
    patience = Patience(answer_within_s=5.0, max_call_s=30.0 + 5.0 * turns)
    held = await Conversation(channel, spoken, {"rate": 24000}, patience).hold_call()
    if on_call_done:
        on_call_done(turns)
    return name, held


def _measure_timing_errors(
    finished_call: FinishedCall, agent_turns: Sequence[dict[str, Any]], ticker: Ticker
) -> list[tuple[float, float]]:
    """Return for each turn the measured time minus the true one, and how long both sides waited for a processor."""
    from pramana import audio

    samples, rate = audio.read_wav(finished_call.recording)
    events = [json.loads(line) for line in finished_call.log.splitlines()]
    measured = measure_times(samples, rate, events).lines
    errors = []
    for line, turn in zip(measured, agent_turns, strict=False):
        if line.voice_to_voice_s is not None and turn["speech_end_at"] is not None:
            heard = turn["speech_end_at"] - FRAME_S + turn["speech_end_within_s"]
            error = line.voice_to_voice_s - (turn["sent_at"] + turn["leading_silence_s"] - heard)
            waited = turn["waited_s"] + ticker.processor_wait_s(
                heard - PROCESSOR_WAIT_LOOKBACK_S, turn["sent_at"] + PROCESSOR_WAIT_LOOKBACK_S
            )
            errors.append((error, waited))
    return errors


@asynccontextmanager
async def _run_agent(wire: str, log: Path) -> AsyncIterator[str]:
    """Run a loopback agent in its own process; yield its URL."""
    arguments = ("--first-byte", FIRST_BYTE_S, "--leading-silence", LEADING_S, "--answer", ANSWER_S, "--log", log)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "pramana.loopback", LOOPBACK_AGENTS[wire], *map(str, arguments)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None  # noqa: S101 - stdout=PIPE above
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
    """Keep the machine as busy as scoring does: measure and transcribe a finished call again and again."""
    recording, log = await asyncio.to_thread(_make_recording_and_log)
    ears = EmbeddedRecognition("bench")
    await ears.prepare()
    scoring = CallScorer({"recording": recording, "log": log}.__getitem__, ears)
    case = Case("scored", "scenario", (), Facets("information", "easy", "en"), script=(Line(SCORED_CALL_TEXTS[0]),))
    reply = Reply(SCORED_CALL_TEXTS[1], call=RecordedCall("recording", "log"))
    first = await scoring.score(case, reply)  # loads every model before any time is measured
    if first.outcome is not Outcome.PASSED:
        raise Unavailable(
            f"scoring does not work on this machine, and a run scores while calls are in progress: {first.reason}"
        )

    over = asyncio.Event()

    async def do_work() -> None:
        while not over.is_set():
            await scoring.score(case, reply)

    working = asyncio.create_task(do_work())
    try:
        yield
    finally:
        over.set()  # not cancelled: its thread would go on, and use ears of a closed loop
        await asyncio.gather(working, return_exceptions=True)


@cache
def _make_recording_and_log() -> tuple[bytes, bytes]:
    """Return the recording and the log of a finished call: a question and its answer, in the embedded voice."""
    import numpy as np

    from pramana import audio
    from pramana.embedded.voice import speak

    rate = audio.RECORDING_SAMPLE_RATE
    asked, answered = (audio.resample(speak(text, "en"), audio.CALLER_SAMPLE_RATE, rate) for text in SCORED_CALL_TEXTS)
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

    at = np.arange(round(seconds * audio.CALLER_SAMPLE_RATE)) / audio.CALLER_SAMPLE_RATE
    return (9000 * np.cos(2 * np.pi * 330 * at)).astype(np.int16)


def _percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least this share does not exceed."""
    return ordered[ceil(share * len(ordered)) - 1] if ordered else float("inf")
