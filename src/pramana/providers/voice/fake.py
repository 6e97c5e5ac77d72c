"""A voice agent that calls no model: it answers with an exact delay after the caller stops, the same every time.

For tests, documentation and trying things out. The delay counts from the caller's last audible sample. Words and
failures depend only on the seed and the turn. Its voice is the embedded one, or a tone.

| written | answers with |
| --- | --- |
| `fake-voice` | words chosen by seed and turn |
| `fake-voice:fixed=TEXT` | TEXT, everything up to the end: commas are part of it |
| `fake-voice:tone` | a second of a tone, and no words |

Options come before the answer, separated by commas: `fake-voice:latency=0.8,jitter=0.2,leading=0.1,fixed=Yes.`
`seed`, `tokens` (words), `latency` and `jitter` (seconds; between none and all of the jitter is added; no answer
comes before 0.2 s, when the end of a turn is detected), `leading` (seconds of silence before the sound), and the share
of turns, 0 to 1, that go wrong: `silent` (no answer), `cut` (the call ends in the middle of the answer), `wordless` (no
transcript), `garbled` (the transcript differs from the voice).
"""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pramana import clock
from pramana.errors import InvalidInput
from pramana.model import Target
from pramana.providers.text.fake import REPLY_WORDS, draw_fault, parse_fake_options
from pramana.providers.voice.embedded import InProcessChannel
from pramana.providers.voice.vocabulary import (
    FRAME_S,
    CallSetup,
    ChannelCapabilities,
    Event,
    Format,
    VoiceCapabilities,
)

if TYPE_CHECKING:
    from pramana.audio import Samples

TURN_END_SILENCE_S = 0.2
FAULTS = ("silent", "cut", "wordless", "garbled")
_OPTION_MAXIMUMS: Mapping[str, float] = {
    "seed": 10**9,
    "tokens": 1000,
    "latency": 60,
    "jitter": 60,
    "leading": 10,
    **dict.fromkeys(FAULTS, 1),
}


@dataclass(frozen=True, slots=True)
class FakeVoice:
    """The fake provider; its arguments are those of `parse_fake_voice`."""

    answer: str = "words"
    text: str = ""
    seed: int = 0
    tokens: int = 6
    latency: float = 0.3
    jitter: float = 0.0
    leading: float = 0.0
    faults: Mapping[str, float] = field(default_factory=dict)
    capabilities = VoiceCapabilities()

    @classmethod
    def open(cls, target: Target, account: object = None) -> "FakeVoice":  # noqa: ARG003 - unused: this provider has no account
        """Return the provider for the target."""
        return cls(**target.arguments)

    async def dial(self, setup: CallSetup) -> "FakeChannel":
        """Open a call."""
        return FakeChannel(self, setup)

    async def models(self) -> list[str]:
        """Return the kinds of answers."""
        return ["fixed", "tone", "words"]

    async def close(self) -> None:
        """Do nothing: nothing is open."""


class FakeChannel(InProcessChannel):
    """Implements `Channel`."""

    uplink = downlink = Format("pcm", 16000)
    capabilities = ChannelCapabilities(reports_interruptions=True)

    def __init__(self, agent: FakeVoice, dial: CallSetup) -> None:
        super().__init__()
        self._agent, self._dial = agent, dial
        self._turn = 0
        self._last_sound: float | None = None
        self._may_play = False
        """Whether sound was sent since the caller last spoke; how much of it is heard, only the call knows."""
        self._put_events(Event("ready"))
        self._prepare_next_answer()

    async def send(self, frame: bytes) -> None:
        """Process one frame."""
        from pramana import audio

        now = clock.monotonic()
        samples = audio.decode("pcm", frame)
        if (last := audio.find_last_audible(samples, self.uplink.rate)) is not None:
            if self._last_sound is None:
                self._on_speech_start()
            self._last_sound = now - (len(samples) - 1 - last) / self.uplink.rate
        elif self._last_sound is not None and now - self._last_sound >= TURN_END_SILENCE_S - FRAME_S:
            self._put_events(Event("user_speech_stop"))
            self._answering = asyncio.create_task(self._answer(self._last_sound))
            self._last_sound = None

    def _on_speech_start(self) -> None:
        self._put_events(Event("user_speech_start"))
        if self._answering and not self._answering.done():
            self._answering.cancel()
        if self._may_play:
            self._may_play = False
            self._put_events(Event("interrupted"))

    def _prepare_next_answer(self) -> None:
        """Prepare the sound of the next answer, so that making it adds nothing to the delay."""
        self._working = self._ready = asyncio.create_task(asyncio.to_thread(self._make_answer, self._turn))

    def _make_answer(self, turn_index: int) -> "tuple[str, Samples]":
        import numpy as np

        agent = self._agent
        chance = random.Random(f"{agent.seed} {turn_index}")
        words = " ".join(chance.choice(REPLY_WORDS) for _ in range(agent.tokens))
        text = {"words": words, "fixed": agent.text, "tone": ""}[agent.answer]
        if text:
            from pramana.embedded.voice import speak

            samples = speak(text, self._dial.language)
        else:
            time_s = np.arange(self.downlink.rate) / self.downlink.rate
            samples = (8000 * np.sin(2 * np.pi * 440 * time_s)).astype(np.int16)
        return text, np.concatenate([np.zeros(round(agent.leading * self.downlink.rate), np.int16), samples])

    async def _answer(self, last_sound_at: float) -> None:
        from pramana import audio

        try:
            text, samples = await self._ready
        except InvalidInput as refused:  # the voice cannot speak these words
            self._put_events(Event("error", str(refused), error="provider"))
            return
        agent, chance = self._agent, random.Random(f"{self._agent.seed} {self._turn} fate")
        self._turn += 1
        self._prepare_next_answer()
        fate = draw_fault(agent.faults, chance)
        delay = agent.latency + agent.jitter * chance.random()
        await asyncio.sleep(max(0.0, last_sound_at + delay - clock.monotonic()))
        if fate == "silent":
            return
        if fate == "garbled":
            text = " ".join(chance.choice(REPLY_WORDS) for _ in range(agent.tokens))
        data = audio.encode("pcm", samples)
        if fate == "cut":
            self._put_events(Event("agent_audio", audio=data[: len(data) // 4 * 2]))
            self._put_events(Event("closed", "cut off on purpose", error="network"))
            return
        self._may_play = True
        words = [] if fate == "wordless" or not text else [Event("agent_text", text, final=True)]
        self._put_events(Event("agent_audio", audio=data), *words, Event("turn_done", "completed"))


def parse_fake_voice(options_text: str) -> dict[str, Any]:
    """Return the arguments of `FakeVoice` for the text after `fake-voice:`.

    >>> parse_fake_voice("latency=0.8,silent=0.5,fixed=yes, surely")
    {'latency': 0.8, 'faults': {'silent': 0.5}, 'answer': 'fixed', 'text': 'yes, surely'}
    """
    return parse_fake_options(
        options_text,
        "fake-voice",
        ("tone", "words"),
        _OPTION_MAXIMUMS,
        {"faults": FAULTS},
        "agent",
        "fake-voice:latency=0.5,tone",
    )
