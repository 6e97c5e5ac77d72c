"""A voice agent made of speech recognition, a text model and a voice, with its own end-of-turn detection.

Frames of sound come in; recognised text, the answer and its sound go out as events. It is a real agent with a real
agent's delays: it waits until the caller has been quiet for a while, then recognises, generates and speaks in sequence.
Interrupted, it stops; a caller who pauses and goes on before it has made a sound gets one answer to all of it. Errors
of its text model are raised unchanged, so that the caller may retry. `FailureBehaviour` defines what it does when it
recognises nothing, has no answer, or takes too long; an agent made of other parts does nothing about that.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as replaced
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from msgspec.structs import replace

from pramana.errors import InvalidInput, ProviderError, Rejected, quote_text, suggest_similar
from pramana.model import Provider, Reply, Request, Target, Turn
from pramana.providers.voice.embedded import EmbeddedRecognition, EmbeddedSynthesis, InProcessChannel
from pramana.providers.voice.vocabulary import (
    FRAME_S,
    CallSetup,
    ChannelCapabilities,
    Event,
    Format,
    SpeechRecognition,
    VoiceCapabilities,
)

if TYPE_CHECKING:
    from pramana.audio import Samples
    from pramana.embedded.engines import EngineInfo
    from pramana.providers.accounts import Account

_Made = TypeVar("_Made")
SPEECH_PREROLL_S = 0.3
"""Sound kept from before speech was detected: words begin softly."""
MAX_TURN_S = 120.0
"""Longest turn without a pause: recognising only a part of it would answer something else."""
SPOKEN_STYLE_PROMPT = (
    "You are talking with someone on the telephone. Answer in one to three short sentences, in plain words, without "
    "lists, headings or symbols."
)
"""Added to the text model's system prompt, since its output is spoken."""
NOT_UNDERSTOOD_APOLOGY = "Sorry, I didn't catch that."
NO_ANSWER_APOLOGY = "Sorry, I don't have an answer to that."
TRANSCRIPTION_TIMEOUT_S, REPLY_TIMEOUT_S, FITTING_TIMEOUT_S = 6.0, 5.0, 1.5
"""Timeouts of the embedded agent for recognition, for its model, and for finding out how much of an answer it can
speak, before it apologises. Together with the voice itself that is less than the 15 s a caller waits, on a slow
machine too."""
MAX_ANSWER_S = 8.0
"""Longest answer of the embedded agent."""


class SpeechSynthesis(Protocol):
    """A synthetic voice."""

    sample_rate: int

    async def synthesise(self, text: str, language: str, on_sound: Callable[[bytes], None]) -> None:
        """Speak a text in a language; `on_sound` receives 16-bit samples as they are made."""
        ...


@runtime_checkable
class Preparable(Protocol):
    """A part that must be loaded before a call."""

    async def prepare(self) -> None: ...


@runtime_checkable
class Closable(Protocol):
    """A part that must be closed."""

    async def close(self) -> None: ...


@runtime_checkable
class EmbeddedModel(Protocol):
    """A text model in this process."""

    @property
    def engine_info(self) -> "EngineInfo | None": ...

    def for_speech(self) -> Provider:
        """Return the model configured for a voice agent."""
        ...


@dataclass(frozen=True, slots=True)
class FailureBehaviour:
    """An agent's behaviour when a part of it fails or takes too long."""

    apologises: bool = False
    """Whether it apologises when it recognised no words; with `max_answer_s`, also when it has no answer."""
    recognition_timeout_s: float | None = None
    """Timeout for recognition, after which nothing was recognised; None is no limit."""
    reply_timeout_s: float | None = None
    """Timeout for the text model, after which there is no answer."""
    shortening_timeout_s: float | None = None
    """Timeout for shortening an answer, after which nothing of it is spoken."""
    max_answer_s: float | None = None
    """Longest answer; a longer one is cut after a sentence or a clause."""


@dataclass(frozen=True, slots=True)
class Cascade:
    """Implements `VoiceProvider` around any text model."""

    recognition: SpeechRecognition
    text_model: Provider
    synthesis: SpeechSynthesis
    turn_end_silence_s: float = 0.5
    failure_behaviour: FailureBehaviour = FailureBehaviour()

    @property
    def capabilities(self) -> VoiceCapabilities:
        """Return what it accepts and understands, which depends on its recognition."""
        embedded = isinstance(self.recognition, EmbeddedRecognition) or isinstance(self.synthesis, EmbeddedSynthesis)
        return VoiceCapabilities(
            takes_history=True,
            is_embedded=embedded,
            supports_language=self.recognition.supports_language,
            engines=self._embedded_engines,
        )

    def _embedded_engines(self) -> "Iterator[EngineInfo]":
        if isinstance(self.recognition, EmbeddedRecognition):
            from pramana.embedded.ears import engine_info

            yield engine_info()
        if isinstance(self.text_model, EmbeddedModel) and (info := self.text_model.engine_info):
            yield info

    @classmethod
    def open(cls, target: Target, account: "Account | None" = None) -> "Cascade":
        """Return the embedded agent (Whisper, the embedded language model, espeak), or one of a server's endpoints."""
        if target.provider == "local-voice":
            from pramana.providers.text.local import LocalProvider

            return make_embedded_cascade(LocalProvider.open(target))
        return _make_endpoint_cascade(target.arguments, account)

    async def dial(self, setup: CallSetup) -> "CascadeChannel":
        """Open a call, after loading all parts so that no caller waits for that."""
        for part in (self.recognition, self.text_model, self.synthesis):
            if isinstance(part, Preparable):
                await part.prepare()
        return CascadeChannel(self, setup)

    async def models(self) -> list[str]:
        """Return the names of the available text models."""
        return await self.text_model.models()

    async def close(self) -> None:
        """Close every part."""
        for part in (self.recognition, self.text_model, self.synthesis):
            if isinstance(part, Closable):
                await part.close()


CASCADE_PARTS = ("stt", "chat", "tts", "voice")


def parse_cascade(parts_text: str) -> dict[str, Any]:
    """Return the parts given after `cascade:`, each a model, or a server's address with one.

    >>> parse_cascade("stt=whisper-1,chat=gpt-5-mini,tts=http://localhost:8000/v1#kokoro")["tts"]
    'http://localhost:8000/v1#kokoro'
    """
    parts: dict[str, Any] = {}
    for option in parts_text.split(","):
        name, _, value = option.strip().partition("=")
        if name not in CASCADE_PARTS or not value:
            hint = suggest_similar(name, CASCADE_PARTS)
            raise InvalidInput(f"cascade: {quote_text(option)} is not an option of a cascade{hint}; {_SYNTAX_HINT}")
        _check_part_address(name, value)
        parts[name] = value
    if missing := [name for name in ("stt", "chat", "tts") if name not in parts]:
        raise InvalidInput(
            f"cascade: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing; {_SYNTAX_HINT}"
        )
    return parts


def _check_part_address(name: str, value: str) -> None:
    """Reject an address that may hold a secret or is not a server's: addresses are stored."""
    from pramana.providers.kinds import check_url

    address, _, model = value.rpartition("#")
    if "://" not in value and (name == "voice" or not address):
        return  # a bare name
    if name == "voice" or not model or not re.match("https?://", address):
        raise InvalidInput(f"cascade: {name} is neither a model name nor a server address with a model; {_SYNTAX_HINT}")
    check_url(address, f"write {name}=http://HOST/v1#NAME", "set COMPATIBLE_API_KEY")


_SYNTAX_HINT = (
    "write cascade:stt=MODEL,chat=MODEL,tts=MODEL, optionally with voice=NAME; a MODEL is a name or http://HOST/v1#NAME"
)


def _make_endpoint_cascade(parts: Mapping[str, Any], account: "Account | None") -> Cascade:
    """Return the agent made of OpenAI's endpoints, or those of compatible servers."""
    from pramana.providers.accounts import Account
    from pramana.providers.text.openai import OpenAI
    from pramana.providers.voice.speech import DEFAULT_VOICE, RecognitionEndpoint, SynthesisEndpoint

    whole = account or Account("https://api.openai.com/v1")

    def account_at(part: str) -> tuple["Account", str, bool]:
        address, _, model = str(parts[part]).rpartition("#")
        if address:
            there = replaced(
                whole, base_url=address.rstrip("/"), key=whole.part_server_key, variable="COMPATIBLE_API_KEY",
                is_trusted_address=False, timeout_s=None, headers={}, proxy=None,
            )  # fmt: skip
            return there, model, True
        return whole, model, False

    (ears, ears_model, _), (mind, mind_model, compatible), (mouth, mouth_model, _) = map(
        account_at, ("stt", "chat", "tts")
    )
    return Cascade(
        RecognitionEndpoint(ears, ears_model),
        _FixedModelProvider(OpenAI(mind, compatible=compatible), mind_model),
        SynthesisEndpoint(mouth, mouth_model, parts.get("voice", DEFAULT_VOICE)),
    )


@dataclass(frozen=True, slots=True)
class _FixedModelProvider:
    """A text model that is called by its own name, whatever the agent's."""

    provider: Provider
    model: str

    async def ask(self, request: Request) -> Reply:
        return await self.provider.ask(replace(request, model=self.model))

    async def models(self) -> list[str]:
        return await self.provider.models()

    async def close(self) -> None:
        await self.provider.close()


class RecognitionByLanguage:
    """Several speech recognition engines; the first that supports the language is used."""

    def __init__(self, *ears: SpeechRecognition) -> None:
        self._ears = ears

    def supports_language(self, language: str) -> bool:
        return any(each.supports_language(language) for each in self._ears)

    async def transcribe(self, samples: "Samples", language: str) -> str:
        for each in self._ears:
            if each.supports_language(language):
                return await each.transcribe(samples, language)
        raise InvalidInput(f"no STT for {language}")


def make_embedded_cascade(model: Provider) -> Cascade:
    """Return the agent that recognises and speaks for a text model with the embedded engines.

    With the embedded model it also has time limits, so that a call ends in time on any machine. The answers of other
    models are spoken word for word, since they are under test.
    """
    if not isinstance(model, EmbeddedModel):
        return Cascade(
            EmbeddedRecognition(), model, EmbeddedSynthesis(), failure_behaviour=FailureBehaviour(apologises=True)
        )
    manner = FailureBehaviour(
        apologises=True,
        recognition_timeout_s=TRANSCRIPTION_TIMEOUT_S,
        reply_timeout_s=REPLY_TIMEOUT_S,
        shortening_timeout_s=FITTING_TIMEOUT_S,
        max_answer_s=MAX_ANSWER_S,
    )
    return Cascade(EmbeddedRecognition(), model.for_speech(), EmbeddedSynthesis(), failure_behaviour=manner)


class CascadeChannel(InProcessChannel):
    """Implements `Channel`."""

    uplink = Format("pcm", 16000)
    capabilities = ChannelCapabilities(reports_interruptions=True)

    def __init__(self, agent: Cascade, dial: CallSetup) -> None:
        super().__init__()
        self._agent, self._dial = agent, dial
        self.downlink = Format("pcm", agent.synthesis.sample_rate)
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()
        system = "\n\n".join(part for part in (dial.system_prompt, SPOKEN_STYLE_PROMPT) if part)
        self._turns = [Turn("system", system), *dial.history]
        self._unanswered = b""
        """The caller's sound since the agent last made a sound: after a pause, the caller may continue the same
        turn."""
        self._has_sounded = False
        """Whether sound was sent since the caller last spoke. How much of it is still playing, only the call knows."""
        self._put_events(Event("ready"))
        self._working = asyncio.create_task(
            self._run_reporting_failure("the agent's speech recognition failed", self._detect_turns)
        )

    @property
    def is_synthesised_in_process(self) -> bool:
        """Return whether its sound is synthesised in this process, from the exact words of its `agent_text` events."""
        return isinstance(self._agent.synthesis, EmbeddedSynthesis)

    async def send(self, frame: bytes) -> None:
        """Queue one frame for the listening task."""
        self._frames.put_nowait(frame)

    async def _run_reporting_failure(self, failure_prefix: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run the work; queue an exception as an event, since the receiver would otherwise wait forever."""
        try:
            await work()
        except ProviderError as error:
            self._events.put_nowait(error)
        except Exception as error:  # noqa: BLE001
            self._events.put_nowait(ProviderError(f"{failure_prefix}: {type(error).__name__}: {error}"))

    async def _detect_turns(self) -> None:
        from pramana.embedded.activity import Endpointer

        endpointer = await asyncio.to_thread(Endpointer, self._agent.turn_end_silence_s)
        said: list[bytes] = []
        speaking = False
        before, most = round(SPEECH_PREROLL_S / FRAME_S), round(MAX_TURN_S / FRAME_S)
        while True:
            frames = [await self._frames.get()]
            with suppress(asyncio.QueueEmpty):
                while True:
                    frames.append(self._frames.get_nowait())
            for frame, signal in zip(
                frames, await asyncio.to_thread(_feed_endpointer, endpointer, frames), strict=True
            ):
                said.append(frame)
                if signal == "start":
                    speaking = True
                    self._on_speech_start()
                elif speaking and len(said) > most:
                    raise ProviderError(f"the caller spoke for more than {MAX_TURN_S:g} s without a pause")
                elif speaking and signal == "end":
                    speaking = False
                    self._put_events(Event("user_speech_stop"))
                    self._unanswered += b"".join(said)
                    answer = partial(self._answer, self._unanswered)
                    self._answering = asyncio.create_task(self._run_reporting_failure("the agent failed", answer))
                    said = []
                elif not speaking:
                    del said[:-before]

    def _on_speech_start(self) -> None:
        self._put_events(Event("user_speech_start"))
        answering = self._answering if self._answering and not self._answering.done() else None
        if answering:
            answering.cancel()
        if answering or self._has_sounded:
            self._has_sounded = False
            self._put_events(Event("interrupted"))

    async def _answer(self, turn_sound: bytes) -> None:
        heard = await self._transcribe(turn_sound)
        if not heard.strip() and not self._agent.failure_behaviour.apologises:
            self._report_answer(Event("user_text", heard, final=True))  # only noise was recognised
            return
        if heard.strip():
            self._put_events(Event("user_text", heard))
            asked = Turn("user", heard)
            words = await self._choose_spoken_text(await self._ask_text_model(asked))
            said = [asked, Turn("assistant", words)]
        else:
            words, said = NOT_UNDERSTOOD_APOLOGY, []  # no model accepts an answer without a question
        begun = False

        def begin() -> None:
            """Report question and answer; not before the first sound, since a caller who goes on may change both."""
            nonlocal begun
            if not begun:
                begun = True
                self._turns += said
                self._report_answer(Event("user_text", heard, final=True), Event("agent_text", words, final=True))

        def play(sound: bytes) -> None:
            begin()
            self._report_sound(sound)

        if words.strip():
            await self._agent.synthesis.synthesise(words, self._dial.language, play)
        else:
            begin()
        self._put_events(Event("turn_done", "completed" if words.strip() else "empty"))

    async def _transcribe(self, turn_sound: bytes) -> str:
        """Return the caller's words; empty if recognition times out."""
        from pramana import audio

        transcribed = self._agent.recognition.transcribe(audio.decode("pcm", turn_sound), self._dial.language)
        return await _run_with_timeout(self._agent.failure_behaviour.recognition_timeout_s, transcribed) or ""

    async def _ask_text_model(self, turn: Turn) -> str:
        """Return the model's reply; empty if it times out."""
        request = Request(self._dial.model, (*self._turns, turn), self._dial.parameters)
        try:
            reply = await _run_with_timeout(
                self._agent.failure_behaviour.reply_timeout_s, self._agent.text_model.ask(request)
            )
        except Rejected:  # the conversation has become too long for the model
            if self._agent.failure_behaviour.max_answer_s is None:
                raise
            return ""
        if reply is None:
            return ""
        usage = {"input_tokens": reply.usage.input_tokens, "output_tokens": reply.usage.output_tokens}
        self._put_events(Event("usage", detail={**usage, "served_model": reply.served_model}))
        return reply.text

    async def _choose_spoken_text(self, reply: str) -> str:
        """Return the words to speak: the whole reply, or if answers are limited what fits, or else an apology."""
        longest_s, mouth = self._agent.failure_behaviour.max_answer_s, self._agent.synthesis
        if longest_s is None or not isinstance(mouth, EmbeddedSynthesis):
            return reply
        wording = mouth.fit_text(reply, self._dial.language, longest_s)
        return await _run_with_timeout(self._agent.failure_behaviour.shortening_timeout_s, wording) or NO_ANSWER_APOLOGY

    def _report_answer(self, *events: Event) -> None:
        """Report a final answer: the caller's turn is answered, and not recognised again."""
        self._unanswered = b""
        self._put_events(*events)

    def _report_sound(self, sound: bytes) -> None:
        self._has_sounded = True
        self._put_events(Event("agent_audio", audio=sound))


async def _run_with_timeout(seconds: float | None, work: Awaitable[_Made]) -> _Made | None:
    """Return the result of the work; None if it times out."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if not limit.expired():  # raised by the work itself
            raise
        return None


def _feed_endpointer(endpointer: Any, frames: list[bytes]) -> list[str | None]:
    from pramana import audio

    return [endpointer.feed(audio.decode("pcm", frame)) for frame in frames]
