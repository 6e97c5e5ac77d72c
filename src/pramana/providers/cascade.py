"""A voice agent made of three parts: speech recognition, a text model and a voice, with an ear for the end of a turn.

Frames of sound come in, the words heard, the answer and its sound go out as events. It is a real agent with a real
agent's delays: it waits until the caller has been quiet for a while, then hears, thinks and speaks, one after another.
Talked into, it stops. What its text model raises leaves as it is: whoever calls may try again.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from pramana import settings
from pramana.errors import InvalidInput, ProviderError, did_you_mean, quote
from pramana.model import Provider, Reply, Request, Target, Turn
from pramana.providers.voice import FRAME_S, Dial, Ears, Event, Format, Heard

if TYPE_CHECKING:
    from pramana.audio import Samples
    from pramana.embedded.ears import Ears as Whisper
    from pramana.providers.http import Account

PREROLL_S = 0.3
"""Kept from before speech was noticed: words begin softly."""
LONGEST_TURN_S = 120.0
"""Without a pause: who hears only a part of what is said would answer something else."""
SPOKEN = (
    "You are talking with someone on the telephone. Answer in one to three short sentences, in plain words, without "
    "lists, headings or symbols."
)
"""What the text model is told besides, for what it writes is spoken."""


class Mouth(Protocol):
    """Speaks."""

    rate: int

    async def say(self, text: str, language: str, take: Callable[[bytes], None]) -> None:
        """Speak a text in a language; `take` is given 16-bit samples as they come."""
        ...


@dataclass(frozen=True, slots=True)
class Cascade:
    """Implements `Voice` around any text model."""

    ears: Ears
    mind: Provider
    mouth: Mouth
    silence_s: float = 0.5
    takes_history = True

    @classmethod
    def open(cls, target: Target, account: "Account | None" = None) -> "Cascade":
        """Return the embedded agent (Whisper, the embedded language model, espeak), or one of a server's endpoints."""
        if target.provider == "local-voice":
            from pramana.providers.local import Local

            return around(Local.open(target))
        return _of_endpoints(target.arguments, account)

    def covers(self, language: str) -> bool:
        """Tell whether it understands a language."""
        return self.ears.covers(language)

    async def dial(self, dial: Dial) -> "CascadeChannel":
        """Open a call, once everything it needs is loaded: no caller waits for that."""
        for part in (self.ears, self.mind, self.mouth):
            if prepare := getattr(part, "prepare", None):
                await prepare()
        return CascadeChannel(self, dial)

    async def models(self) -> list[str]:
        """Return the names of the text models on offer."""
        return await self.mind.models()

    async def close(self) -> None:
        """Close every part."""
        for part in (self.ears, self.mind, self.mouth):
            if close := getattr(part, "close", None):
                await close()


PARTS = ("stt", "chat", "tts", "voice")


def parse(written: str) -> dict[str, Any]:
    """Return the parts that were written after `cascade:`, each a model, or a server's address with one.

    >>> parse("stt=whisper-1,chat=gpt-5-mini,tts=http://localhost:8000/v1#kokoro")["tts"]
    'http://localhost:8000/v1#kokoro'
    """
    parts: dict[str, Any] = {}
    for option in written.split(","):
        name, _, value = option.strip().partition("=")
        if name not in PARTS or not value:
            hint = did_you_mean(name, PARTS)
            raise InvalidInput(f"cascade: {quote(option)} is no part of it{hint}; {_CASCADE}")
        parts[name] = value
    if missing := [name for name in ("stt", "chat", "tts") if name not in parts]:
        raise InvalidInput(
            f"cascade: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; {_CASCADE}"
        )
    return parts


_CASCADE = (
    "write cascade:stt=MODEL,chat=MODEL,tts=MODEL and perhaps voice=NAME, each MODEL a name or http://HOST/v1#NAME"
)


def _of_endpoints(parts: Mapping[str, Any], account: "Account | None") -> Cascade:
    """Return the agent whose parts are OpenAI's endpoints, or those of compatible servers."""
    from pramana.providers.http import Account
    from pramana.providers.openai import OpenAI
    from pramana.providers.speech import VOICE, Recognition, Speech

    def at(part: str) -> tuple["Account", str, bool]:
        address, _, model = str(parts[part]).rpartition("#")
        if address:
            key = settings.variable("COMPATIBLE_API_KEY")
            return Account(address.rstrip("/"), key, None, variable="COMPATIBLE_API_KEY"), model, True
        return account or Account("https://api.openai.com/v1"), model, False

    (ears, ears_model, _), (mind, mind_model, compatible), (mouth, mouth_model, _) = map(at, ("stt", "chat", "tts"))
    return Cascade(
        Recognition(ears, ears_model),
        _Named(OpenAI(mind, compatible=compatible), mind_model),
        Speech(mouth, mouth_model, parts.get("voice", VOICE)),
    )


@dataclass(frozen=True, slots=True)
class _Named:
    """A text model that is asked by its own name, whatever the agent is called."""

    provider: Provider
    model: str

    async def ask(self, request: Request) -> Reply:
        return await self.provider.ask(replace(request, model=self.model))

    async def models(self) -> list[str]:
        return await self.provider.models()

    async def close(self) -> None:
        await self.provider.close()


class Hearing:
    """Several who can hear: the first that knows the language does."""

    def __init__(self, *ears: Ears) -> None:
        self._ears = ears

    def covers(self, language: str) -> bool:
        return any(each.covers(language) for each in self._ears)

    async def transcribe(self, samples: "Samples", language: str) -> str:
        for each in self._ears:
            if each.covers(language):
                return await each.transcribe(samples, language)
        raise InvalidInput(f"no STT for {language}")


def around(mind: Provider) -> Cascade:
    """Return the agent that hears and speaks for a text model by the embedded engines."""
    return Cascade(EmbeddedEars(), mind, EmbeddedMouth())


class EmbeddedEars:
    """Whisper tiny.en in this process."""

    name = "whisper-tiny.en"

    def covers(self, language: str) -> bool:
        from pramana.embedded.ears import LANGUAGES

        return language.partition("-")[0].lower() in LANGUAGES

    async def prepare(self) -> None:
        """Load the model."""
        await asyncio.to_thread(_whisper)

    async def transcribe(self, samples: "Samples", language: str) -> str:  # noqa: ARG002 - it knows one only
        return await asyncio.to_thread(lambda: _whisper().transcribe(samples))


@cache
def _whisper() -> "Whisper":
    """Return the one model of this process: it takes half a second to load."""
    from pramana.embedded.ears import Ears as Whisper

    return Whisper.open()


class EmbeddedMouth:
    """espeak-ng in this process."""

    rate = 16000

    async def say(self, text: str, language: str, take: Callable[[bytes], None]) -> None:
        """Speak; what cannot be read aloud is an error of the agent."""
        from pramana import audio
        from pramana.embedded.voice import CannotSpeak, speak

        try:
            take(audio.encode("pcm", await asyncio.to_thread(speak, text, language)))
        except CannotSpeak as refused:
            raise ProviderError(f"the agent's voice cannot say its answer: {refused}") from None


class CascadeChannel:
    """Implements `Channel`."""

    uplink = Format("pcm", 16000)
    greets = False

    def __init__(self, agent: Cascade, dial: Dial) -> None:
        self._agent, self._dial = agent, dial
        self.downlink = Format("pcm", agent.mouth.rate)
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._events: asyncio.Queue[Heard | ProviderError] = asyncio.Queue()
        system = "\n\n".join(part for part in (dial.system_prompt, SPOKEN) if part)
        self._turns = [Turn("system", system), *dial.history]
        self._answering: asyncio.Task[None] | None = None
        self._plays_until = 0.0
        self._tell(Event("ready"))
        self._hearing = asyncio.create_task(self._hear())

    async def send(self, frame: bytes) -> None:
        """Take one frame; it is listened to beside."""
        self._frames.put_nowait(frame)

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
        tasks = [task for task in (self._hearing, self._answering) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _tell(self, *events: Event) -> None:
        self._events.put_nowait(Heard(time.monotonic(), events))

    async def _hear(self) -> None:
        try:
            await self._listen()
        except ProviderError as error:
            self._events.put_nowait(error)
        except Exception as error:  # noqa: BLE001 - told to whoever waits for an answer, who would wait forever
            self._events.put_nowait(ProviderError(f"the agent failed to listen: {type(error).__name__}: {error}"))

    async def _listen(self) -> None:
        from pramana.embedded.activity import Endpointer

        endpointer = await asyncio.to_thread(Endpointer, self._agent.silence_s)
        said: list[bytes] = []
        speaking = False
        before, most = round(PREROLL_S / FRAME_S), round(LONGEST_TURN_S / FRAME_S)
        while True:
            frames = [await self._frames.get()]
            with suppress(asyncio.QueueEmpty):
                while True:
                    frames.append(self._frames.get_nowait())
            for frame, signal in zip(frames, await asyncio.to_thread(_signals, endpointer, frames), strict=True):
                said.append(frame)
                if signal == "start":
                    speaking = True
                    self._caller_speaks()
                elif speaking and len(said) > most:
                    raise ProviderError(f"the agent hears no turn of more than {LONGEST_TURN_S:g} s without a pause")
                elif speaking and signal == "end":
                    speaking = False
                    self._tell(Event("user_speech_stop"))
                    self._answering = asyncio.create_task(self._answer(b"".join(said)))
                    said = []
                elif not speaking:
                    del said[:-before]

    def _caller_speaks(self) -> None:
        self._tell(Event("user_speech_start"))
        if self._answering and not self._answering.done():
            self._answering.cancel()
        if time.monotonic() < self._plays_until:
            self._plays_until = 0.0
            self._tell(Event("interrupted"))

    async def _answer(self, data: bytes) -> None:
        try:
            await self._hear_think_speak(data)
        except ProviderError as error:
            self._events.put_nowait(error)
        except Exception as error:  # noqa: BLE001 - as above
            self._events.put_nowait(ProviderError(f"the agent failed: {type(error).__name__}: {error}"))

    async def _hear_think_speak(self, data: bytes) -> None:
        from pramana import audio

        heard = await self._agent.ears.transcribe(audio.decode("pcm", data), self._dial.language)
        self._tell(Event("user_text", heard, final=True))
        if not heard.strip():
            return  # it heard a noise
        reply = await self._agent.mind.ask(
            Request(self._dial.model, (*self._turns, Turn("user", heard)), self._dial.parameters)
        )
        self._turns += [Turn("user", heard), Turn("assistant", reply.text)]
        self._tell(Event("agent_text", reply.text, final=True), _usage(reply))
        if not reply.text.strip():
            self._tell(Event("turn_done", "empty"))
            return
        await self._agent.mouth.say(reply.text, self._dial.language, self._play)
        self._tell(Event("turn_done", "completed"))

    def _play(self, data: bytes) -> None:
        self._plays_until = max(time.monotonic(), self._plays_until) + len(data) / 2 / self.downlink.rate
        self._tell(Event("agent_audio", audio=data))


def _signals(endpointer: Any, frames: list[bytes]) -> list[str | None]:
    from pramana import audio

    return [endpointer.feed(audio.decode("pcm", frame)) for frame in frames]


def _usage(reply: Reply) -> Event:
    detail: Mapping[str, Any] = {
        "input_tokens": reply.usage.input_tokens,
        "output_tokens": reply.usage.output_tokens,
        "served_model": reply.served_model,
    }
    return Event("usage", detail=detail)
