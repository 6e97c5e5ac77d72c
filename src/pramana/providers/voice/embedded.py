"""Voice agents in this process: a call to one, the embedded engines as its parts, and what one process does at once.

Whisper hears, espeak-ng speaks, both in threads. Calls, and the work of embedded engines, take turns: who wants to be
busy comes in and waits for a place, and `ProcessLimits` does not know what they do in it.
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

FASTEST_WORDS_S = 4.0
"""More words a second than the embedded voice says."""


class InProcessChannel:
    """A call whose agent is in this process: what happens is queued, and whoever calls takes it from there."""

    def __init__(self) -> None:
        self._events: asyncio.Queue[ReceivedEvents | ProviderError] = asyncio.Queue()
        self._answering: asyncio.Task[None] | None = None
        self._working: asyncio.Task[Any] | None = None
        """What goes on beside the answer."""

    def holds_key(self, text: str) -> bool:  # noqa: ARG002 - it has none; its parts refuse an answer with one
        return False

    async def receive(self) -> ReceivedEvents:
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
        self._events.put_nowait(ReceivedEvents(clock.monotonic(), events))


class EmbeddedRecognition:
    """Whisper tiny.en in this process.

    Agents share one model, and whoever measures calls has another: no agent waits for a clip that is measured.
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

    async def transcribe(self, samples: "Samples", language: str) -> str:  # noqa: ARG002 - it knows one only
        return await asyncio.to_thread(lambda: _load_whisper(self._owner).transcribe(samples))


class BenchRecognition(EmbeddedRecognition):
    """Those of the bench, which hear nothing while an embedded agent is in a call."""

    def __init__(self) -> None:
        super().__init__("bench")

    async def transcribe(self, samples: "Samples", language: str) -> str:
        async with machine.work:
            return await super().transcribe(samples, language)


@cache
def _load_whisper(owner: str) -> "Whisper":  # noqa: ARG001 - it is what they are told apart by
    """Return the one model of this process for some purpose: it takes half a second to load."""
    from pramana.embedded.ears import WhisperModel as Whisper

    return Whisper.open()


class EmbeddedSynthesis:
    """espeak-ng in this process."""

    rate = 16000

    async def fit_text(self, text: str, language: str, longest_s: float) -> str:
        """Return the words in which it says a text: without markup, and no more than fit in so many seconds."""
        from pramana.embedded.speakable import make_speakable

        return await asyncio.to_thread(lambda: _fit_to_duration(make_speakable(text), language, longest_s))

    async def synthesise(self, text: str, language: str, take: Callable[[bytes], None]) -> None:
        """Speak; what cannot be read aloud is an error of the agent."""
        from pramana import audio
        from pramana.embedded.voice import CannotSpeak, speak

        try:
            take(audio.encode("pcm", await asyncio.to_thread(speak, text, language)))
        except CannotSpeak as refused:
            raise ProviderError(f"the agent's voice cannot say its answer: {refused}") from None


def _fit_to_duration(text: str, language: str, longest_s: float) -> str:
    """Return as much of a text as is said in a time; nothing where it cannot be said."""
    from pramana.embedded.speakable import shorten_to_words
    from pramana.embedded.voice import CannotSpeak, speak

    words = min(len(text.split()), round(longest_s * FASTEST_WORDS_S))
    while words > 0:
        head = shorten_to_words(text, words)
        try:
            seconds = len(speak(head, language)) / EmbeddedSynthesis.rate
        except CannotSpeak:
            return ""
        if seconds <= longest_s:
            return head
        words = min(len(head.split()) - 1, int(words * longest_s / seconds))
    return ""


CALLS_AT_ONCE = 8
"""In one process, whoever is called: as many as the clock is proven with."""
_Kind = Literal["call", "alone", "work"]


class ProcessLimits:
    """What one process does at once, so that the times of a call are the agent's and not those of a queue of ours.

    A call takes one of a few places. One whose agent hears or speaks by the embedded engines is `alone`: beside it is
    no other such call, and no other `work` of those engines either (measuring calls, writing them down, asking the
    embedded model). They take turns, so that neither waits for long: after a call comes the work that waits by then,
    and after that the next call. It knows several event loops, as a process may have.
    """

    def __init__(self, most: int = CALLS_AT_ONCE) -> None:
        self.call, self.alone, self.work = (Slot(self, kind) for kind in ("call", "alone", "work"))
        self._most = most
        self._in_use: dict[_Kind, int] = {"call": 0, "alone": 0, "work": 0}
        self._waiting: list[_Waiting] = []
        self._lock = threading.Lock()

    async def enter(self, kind: _Kind) -> None:
        """Wait for one's turn; then `leave`."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(kind, loop, loop.create_future())
        with self._lock:
            self._waiting.append(waiting)
            self._admit_waiting()
        if waiting.admitted:
            return
        try:
            await waiting.turn
        except asyncio.CancelledError:
            with self._lock:
                if waiting in self._waiting:
                    self._waiting.remove(waiting)
                else:  # admitted in the same moment
                    self._in_use[kind] -= 1
                self._admit_waiting()
            raise

    def leave(self, kind: _Kind) -> None:
        """Let the next ones in."""
        with self._lock:
            self._in_use[kind] -= 1
            if kind == "alone":  # the work of this call waits by now or soon, and it goes before the next one
                self._waiting.sort(key=lambda each: each.kind != "work")
            self._admit_waiting()

    def _admit_waiting(self) -> None:
        someone_wants_to_be_alone = False
        for waiting in list(self._waiting):
            taken = self._in_use
            place = taken["call"] + taken["alone"] < self._most
            if waiting.kind == "call":
                free = place
            elif waiting.kind == "alone":
                free = place and not taken["alone"] and not taken["work"] and not someone_wants_to_be_alone
                someone_wants_to_be_alone = True
            else:
                free = not taken["alone"] and not someone_wants_to_be_alone
            if free:
                self._waiting.remove(waiting)
                with suppress(RuntimeError):  # its loop is closed: nobody is there any more
                    waiting.loop.call_soon_threadsafe(_wake, waiting.turn)
                    waiting.admitted = True
                    taken[waiting.kind] += 1


class Slot:
    """One way of being busy, `async with` it."""

    def __init__(self, machine: ProcessLimits, kind: _Kind) -> None:
        self._machine, self._kind = machine, kind

    async def __aenter__(self) -> None:
        await self._machine.enter(self._kind)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._machine.leave(self._kind)


@dataclass(eq=False, slots=True)
class _Waiting:
    kind: _Kind
    loop: asyncio.AbstractEventLoop
    turn: asyncio.Future[None]
    admitted: bool = False


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


machine = ProcessLimits()
"""This process's."""
