"""Voice agents in this process: their calls, the embedded engines as their parts, and the limits on concurrent work.

Whisper recognises and espeak-ng speaks, both in threads. Calls and the work of embedded engines take turns: each waits
for a slot, and `ProcessSlots` does not know what it is used for.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from pramana import clock
from pramana.errors import ProviderError
from pramana.providers.voice.vocabulary import Event, ReceivedEvents

if TYPE_CHECKING:
    from pramana.audio import Samples
    from pramana.embedded.ears import WhisperModel as Whisper

MAX_WORDS_PER_S = 4.0
"""Above the embedded voice's words per second."""


class InProcessChannel:
    """A call whose agent is in this process: events are queued until the caller receives them."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[ReceivedEvents | ProviderError] = asyncio.Queue()
        self._answering: asyncio.Task[None] | None = None
        self._working: asyncio.Task[Any] | None = None
        """The task that runs beside the answer."""

    def is_key_in_text(self, text: str) -> bool:  # noqa: ARG002 - unused: no key of its own; its parts check their own answers
        return False

    async def receive(self) -> ReceivedEvents:
        """Return the next events."""
        heard = await self._events.get()
        if isinstance(heard, ProviderError):
            raise heard
        return heard

    async def interrupt(self, played_s: float) -> None:
        """Do nothing: it stopped when it heard the caller."""

    async def close(self) -> None:
        """Hang up."""
        tasks = [task for task in (self._working, self._answering) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _put_events(self, *events: Event) -> None:
        self._events.put_nowait(ReceivedEvents(clock.monotonic(), events))


class EmbeddedRecognition:
    """Whisper tiny.en in this process.

    Agents share one model and the bench has another, so that no agent waits for a recording that is being measured.
    """

    name = "whisper-tiny.en"

    def __init__(self, owner: Literal["agent", "bench"] = "agent") -> None:
        self._owner = owner

    def supports_language(self, language: str) -> bool:
        from pramana.embedded.ears import LANGUAGES

        return language.partition("-")[0].lower() in LANGUAGES

    async def prepare(self) -> None:
        """Load the model."""
        await asyncio.to_thread(_load_whisper, self._owner)

    async def transcribe(self, samples: "Samples", language: str) -> str:  # noqa: ARG002 - unused: the model supports one language only
        return await asyncio.to_thread(lambda: _load_whisper(self._owner).transcribe(samples))


class BenchRecognition(EmbeddedRecognition):
    """The bench's recognition, which pauses while an embedded agent is in a call."""

    def __init__(self) -> None:
        super().__init__("bench")

    async def transcribe(self, samples: "Samples", language: str) -> str:
        async with process_slots.engine_work:
            return await super().transcribe(samples, language)


@cache
def _load_whisper(owner: str) -> "Whisper":  # noqa: ARG001 - unused here: a key of the cache
    """Return this process's model for an owner; loading takes half a second."""
    from pramana.embedded.ears import WhisperModel as Whisper

    return Whisper.open()


class EmbeddedSynthesis:
    """espeak-ng in this process."""

    sample_rate = 16000

    async def fit_text(self, text: str, language: str, max_duration_s: float) -> str:
        """Return the words to speak for a text: without markup, and no more than fit in `max_duration_s`."""
        from pramana.embedded.speakable import make_speakable

        return await asyncio.to_thread(lambda: _fit_to_duration(make_speakable(text), language, max_duration_s))

    async def synthesise(self, text: str, language: str, on_sound: Callable[[bytes], None]) -> None:
        """Speak a text; one that cannot be read aloud is an error of the agent."""
        from pramana import audio
        from pramana.embedded.voice import CannotSpeak, speak

        try:
            on_sound(audio.encode("pcm", await asyncio.to_thread(speak, text, language)))
        except CannotSpeak as refused:
            raise ProviderError(f"the agent's voice cannot speak the answer: {refused}") from None


def _fit_to_duration(text: str, language: str, max_duration_s: float) -> str:
    """Return as much of a text as can be spoken in a time; empty if it cannot be spoken."""
    from pramana.embedded.speakable import shorten_to_words
    from pramana.embedded.voice import CannotSpeak, speak

    words = min(len(text.split()), round(max_duration_s * MAX_WORDS_PER_S))
    while words > 0:
        head = shorten_to_words(text, words)
        try:
            seconds = len(speak(head, language)) / EmbeddedSynthesis.sample_rate
        except CannotSpeak:
            return ""
        if seconds <= max_duration_s:
            return head
        words = min(len(head.split()) - 1, int(words * max_duration_s / seconds))
    return ""


MAX_CALLS_PER_PROCESS = 8
"""Calls per process, of any provider: the clock is proven for as many."""
_SlotKind = Literal["call", "embedded_call", "engine_work"]


class ProcessSlots:
    """Limits concurrent work in one process, so that a call's times are the agent's and not those of our queue.

    A call takes one of a few slots. A call whose agent uses the embedded engines is an `embedded_call`: no other such
    call runs beside it, and no `engine_work` (measuring calls, transcribing them, prompting the embedded model). They
    take turns, so that neither waits for long: after a call comes the work that is waiting by then, and after that the
    next call. It supports several event loops, as a process may have.
    """

    def __init__(self, max_calls: int = MAX_CALLS_PER_PROCESS) -> None:
        self.call, self.embedded_call, self.engine_work = (
            Slot(self, kind) for kind in ("call", "embedded_call", "engine_work")
        )
        self._most = max_calls
        self._in_use: dict[_SlotKind, int] = {"call": 0, "embedded_call": 0, "engine_work": 0}
        self._waiting: list[_SlotRequest] = []
        self._lock = threading.Lock()

    async def acquire(self, kind: _SlotKind) -> None:
        """Wait for a slot; release it with `release`."""
        loop = asyncio.get_running_loop()
        waiting = _SlotRequest(kind, loop, loop.create_future())
        with self._lock:
            self._waiting.append(waiting)
            self._admit_waiting()
        if waiting.is_admitted:
            return
        try:
            await waiting.future
        except asyncio.CancelledError:
            with self._lock:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
                else:  # admitted at the same moment
                    self._in_use[kind] -= 1
                self._admit_waiting()
            raise

    def release(self, kind: _SlotKind) -> None:
        """Release a slot and admit those waiting."""
        with self._lock:
            self._in_use[kind] -= 1
            if kind == "embedded_call":  # this call's work is waiting or soon will be, and goes before the next call
                self._waiting.sort(key=lambda each: each.kind != "engine_work")
            self._admit_waiting()

    def _admit_waiting(self) -> None:
        embedded_call_waits = False
        for waiting in list(self._waiting):
            taken = self._in_use
            place = taken["call"] + taken["embedded_call"] < self._most
            if waiting.kind == "call":
                free = place
            elif waiting.kind == "embedded_call":
                free = place and not taken["embedded_call"] and not taken["engine_work"] and not embedded_call_waits
                embedded_call_waits = True
            else:
                free = not taken["embedded_call"] and not embedded_call_waits
            if free:
                self._waiting.remove(waiting)
                with suppress(RuntimeError):  # its event loop is closed
                    waiting.loop.call_soon_threadsafe(_admit, waiting.future)
                    waiting.is_admitted = True
                    taken[waiting.kind] += 1


class Slot:
    """A slot of one kind, for `async with`."""

    def __init__(self, slots: ProcessSlots, kind: _SlotKind) -> None:
        self._slots, self._kind = slots, kind

    async def __aenter__(self) -> None:
        await self._slots.acquire(self._kind)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._slots.release(self._kind)


@dataclass(eq=False, slots=True)
class _SlotRequest:
    kind: _SlotKind
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]
    is_admitted: bool = False


def _admit(admission: asyncio.Future[None]) -> None:
    if not admission.done():
        admission.set_result(None)


process_slots = ProcessSlots()
"""The slots of this process."""
