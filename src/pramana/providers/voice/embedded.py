"""Voice agents in this process: a call to one, and the embedded engines as its parts.

Whisper hears, espeak-ng speaks, both in threads.
"""

import asyncio
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from pramana import clock
from pramana.errors import ProviderError
from pramana.providers.voice.machine import machine
from pramana.providers.voice.vocabulary import Event, Heard

if TYPE_CHECKING:
    from pramana.audio import Samples
    from pramana.embedded.ears import Ears as Whisper

FASTEST_WORDS_S = 4.0
"""More words a second than the embedded voice says."""


class InProcessChannel:
    """A call whose agent is in this process: what happens is queued, and whoever calls takes it from there."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[Heard | ProviderError] = asyncio.Queue()
        self._answering: asyncio.Task[None] | None = None
        self._working: asyncio.Task[Any] | None = None
        """What goes on beside the answer."""

    def holds_key(self, text: str) -> bool:  # noqa: ARG002 - it has none; its parts refuse an answer with one
        return False

    async def receive(self) -> Heard:
        """Return what happens next."""
        heard = await self._events.get()
        if isinstance(heard, ProviderError):
            raise heard
        return heard

    async def interrupt(self, played_s: float) -> None:
        """Nothing more to do: it stopped when it heard the caller."""

    async def close(self) -> None:
        """Hang up."""
        tasks = [task for task in (self._working, self._answering) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _tell(self, *events: Event) -> None:
        self._events.put_nowait(Heard(clock.monotonic(), events))


class EmbeddedEars:
    """Whisper tiny.en in this process.

    Agents share one model, and whoever measures calls has another: no agent waits for a clip that is measured.
    """

    name = "whisper-tiny.en"

    def __init__(self, whose: Literal["agent", "bench"] = "agent") -> None:
        self._whose = whose

    def covers(self, language: str) -> bool:
        from pramana.embedded.ears import LANGUAGES

        return language.partition("-")[0].lower() in LANGUAGES

    async def prepare(self) -> None:
        """Load the model."""
        await asyncio.to_thread(_whisper, self._whose)

    async def transcribe(self, samples: "Samples", language: str) -> str:  # noqa: ARG002 - it knows one only
        return await asyncio.to_thread(lambda: _whisper(self._whose).transcribe(samples))


class PatientEars(EmbeddedEars):
    """Those of the bench, which hear nothing while an embedded agent is in a call."""

    def __init__(self) -> None:
        super().__init__("bench")

    async def transcribe(self, samples: "Samples", language: str) -> str:
        async with machine.work:
            return await super().transcribe(samples, language)


@cache
def _whisper(whose: str) -> "Whisper":  # noqa: ARG001 - it is what they are told apart by
    """Return the one model of this process for some purpose: it takes half a second to load."""
    from pramana.embedded.ears import Ears as Whisper

    return Whisper.open()


class EmbeddedMouth:
    """espeak-ng in this process."""

    rate = 16000

    async def wording(self, text: str, language: str, longest_s: float) -> str:
        """Return the words in which it says a text: without markup, and no more than fit in so many seconds."""
        from pramana.embedded.speakable import speakable

        return await asyncio.to_thread(lambda: _fitted(speakable(text), language, longest_s))

    async def say(self, text: str, language: str, take: Callable[[bytes], None]) -> None:
        """Speak; what cannot be read aloud is an error of the agent."""
        from pramana import audio
        from pramana.embedded.voice import CannotSpeak, speak

        try:
            take(audio.encode("pcm", await asyncio.to_thread(speak, text, language)))
        except CannotSpeak as refused:
            raise ProviderError(f"the agent's voice cannot say its answer: {refused}") from None


def _fitted(text: str, language: str, longest_s: float) -> str:
    """Return as much of a text as is said in a time; nothing where it cannot be said."""
    from pramana.embedded.speakable import shortened
    from pramana.embedded.voice import CannotSpeak, speak

    words = min(len(text.split()), round(longest_s * FASTEST_WORDS_S))
    while words > 0:
        head = shortened(text, words)
        try:
            seconds = len(speak(head, language)) / EmbeddedMouth.rate
        except CannotSpeak:
            return ""
        if seconds <= longest_s:
            return head
        words = min(len(head.split()) - 1, int(words * longest_s / seconds))
    return ""
