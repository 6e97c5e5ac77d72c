"""A spoken request: a request with speech goes in, one call is held, a reply with its recording comes out.

`CallProvider` implements `Provider`, so that limits, retries and budgets apply to calls as to any request. The
recording is stored before anything else can fail. Then, outside those limits, speech recognition transcribes answers
without a transcript, and interrupted answers, whose transcripts say more than was heard. If recognition fails, the
reply has no words, but the call is kept: the log has the reason.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct, to_builtins
from msgspec.structs import astuple, replace

from pramana import audio, clock
from pramana.embedded.engines import format_engines
from pramana.errors import PramanaError, ProviderError, Rejected
from pramana.model import RecordedCall, Reply, Request, Turn
from pramana.providers.voice.cascade import CascadeChannel
from pramana.providers.voice.vocabulary import (
    CallSetup,
    Channel,
    Event,
    ReceivedEvents,
    SpeechRecognition,
    VoiceProvider,
    is_backchannel,
)
from pramana.run.asking import TargetClient
from pramana.run.call import Conversation, EnterStage, FinishedCall, Patience, StageCounter

if TYPE_CHECKING:
    from pramana.audio import Samples

GREETS_PARAMETER = "greets"
UNCERTAIN_GREETING_WAIT_S = 3.0
"""For an agent that may speak first, as most vendors' defaults do; a known greeting is waited for longer."""
CUT_OFF_ANSWER_REASON = "the answer was cut off, and the part that was played is unknown"


class UntranscribedReply(Reply, frozen=True):
    """The reply of a call whose answers are not yet transcribed."""

    finished_call: FinishedCall | None = None
    language: str = "en"


@dataclass(frozen=True, slots=True)
class CallProvider:
    """Sends requests by holding calls."""

    voice_provider: VoiceProvider
    provider_name: str
    """The provider's name, for the log."""
    store_blob: Callable[[bytes], str]
    """Stores a blob and returns its digest."""
    recognition: SpeechRecognition | None = None
    patience: Patience = field(default_factory=Patience)
    _failed_calls: WeakKeyDictionary[ProviderError, UntranscribedReply] = field(default_factory=WeakKeyDictionary)
    """What was recorded of calls in which the agent failed: most are retried, and only the last is kept."""
    agent_was_ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the agent has been ready for a call, even if no call is over yet."""
    stages: StageCounter = field(default_factory=StageCounter)
    """The stages of the calls in flight."""

    async def ask(self, request: Request) -> UntranscribedReply:
        """Hold the call, store it and return the agent's own transcript; call `transcribe_reply` next."""
        with self.stages.track_call() as enter:
            return await self._hold_call(request, enter)

    async def _hold_call(self, request: Request, enter: EnterStage) -> UntranscribedReply:
        assert request.speech is not None  # noqa: S101 - text requests are handled above
        speech, start = request.speech, clock.monotonic()
        greets, request = _split_greets_parameter(request)
        can = self.voice_provider.capabilities
        refused = can.unsupported_parameters
        left_out = tuple(sorted(refused & {name for name, value in request.parameters.items() if value is not None}))
        if left_out:
            taken = {name: value for name, value in request.parameters.items() if name not in refused}
            request = replace(request, parameters=taken)
        channel = await self.voice_provider.dial(_make_call_setup(request, takes_history=can.takes_history))
        self.agent_was_ready.set()
        about = {
            "rate": audio.RECORDING_SAMPLE_RATE,
            "provider": self.provider_name,
            "model": request.model,
            "variant": speech.variant,
            "conditions": speech.conditions,
            "language": speech.language,
            "uplink": to_builtins(channel.uplink),
            "downlink": to_builtins(channel.downlink),
            # Only Pramana's own cascade sets this; the sound of all others is transcribed.
            "synthesised_here": isinstance(channel, CascadeChannel) and channel.is_synthesised_in_process,
        }
        listened = _FailureReportingChannel(channel, greets)
        held = await Conversation(listened, speech.utterances, about, self.patience, enter).hold_call()
        reply = UntranscribedReply(
            "\n".join(answer for answer in held.answers if answer),
            held.usage,
            fingerprint=format_engines(can.engines()),
            finish_reason=held.end_reason,
            dropped=left_out,
            total_s=clock.monotonic() - start,
            answers=held.answers,
            call=RecordedCall("", "", tuple(each.digest for each in speech.utterances)),
            finished_call=held,
            language=speech.language,
        )
        if listened.failure:
            self._failed_calls[listened.failure] = reply
            raise listened.failure
        return await self._store_call(reply)

    async def partial_reply(self, failure: ProviderError) -> Reply | None:
        """Return what was recorded before the agent failed, stored; None if it failed outside a call."""
        broken = self._failed_calls.pop(failure, None)
        return None if broken is None else _to_plain_reply(await self._store_call(broken))

    async def transcribe_reply(self, reply: Reply) -> Reply:
        """Return the reply with transcripts of answers that came without words, or with more than was heard."""
        if not isinstance(reply, UntranscribedReply) or (held := reply.finished_call) is None:
            return reply
        cut = {number for number, was in enumerate(held.were_answers_interrupted) if was}
        wanted = [number for number, words in enumerate(held.answers) if number in cut or not words]
        answers, unwritten = list(held.answers), dict[int, str]()
        if wanted and self.recognition is not None and self.recognition.supports_language(reply.language):
            clips = await asyncio.to_thread(_extract_answer_clips, held)
            for number in wanted:
                answers[number] = ""
                if number in clips:
                    try:
                        answers[number] = await self.recognition.transcribe(clips[number], reply.language)
                    except Exception as error:  # noqa: BLE001 - a failure here must not lose the finished call
                        why = str(error) if isinstance(error, PramanaError) else f"{type(error).__name__}: {error}"
                        unwritten[number] = f"the answer could not be transcribed: {why}"
        else:
            unwritten = {number: CUT_OFF_ANSWER_REASON for number in wanted if held.answers[number]}
            for number in unwritten:
                answers[number] = ""
        # The agent's own transcript stays for readers; no assertion uses it.
        said = [held.answers[number] if number in unwritten else words for number, words in enumerate(answers)]
        found = replace(reply, text="\n".join(filter(None, said)), answers=tuple(answers))
        if unwritten:
            log = _add_reasons_to_log(held.log, unwritten)
            found = await self._store_call(replace(found, finished_call=replace(held, log=log)))
        return _to_plain_reply(found)

    async def _store_call(self, reply: UntranscribedReply) -> UntranscribedReply:
        held, call = reply.finished_call, reply.call
        assert held is not None  # noqa: S101 - the call has taken place
        assert call is not None  # noqa: S101
        recording, log = await asyncio.to_thread(lambda: (self.store_blob(held.recording), self.store_blob(held.log)))
        return replace(reply, call=replace(call, recording=recording, log=log))

    async def models(self) -> list[str]:
        """Return the names of the available models."""
        return await self.voice_provider.models()

    async def close(self) -> None:
        """Close the provider."""
        await self.voice_provider.close()


class VoiceClient(Struct, frozen=True):
    """The voice client of a target: the call within the agent's limits, then its transcription; implements `Ask`."""

    client: TargetClient
    call_provider: CallProvider

    def __post_init__(self) -> None:
        self.client.agent_was_ready = self.call_provider.agent_was_ready

    async def __call__(self, request: Request) -> Reply:
        """Return the reply; if the agent failed for good during the call, what was recorded until then."""
        try:
            reply = await self.client(request)
        except ProviderError as error:
            if error.fatal or (broken := await self.call_provider.partial_reply(error)) is None:
                raise
            return broken
        return await self.call_provider.transcribe_reply(reply)


class _FailureReportingChannel:
    """A channel that reports its failure as an event, so that what was said until then is recorded.

    Whether the agent greets is taken from the caller, which knows better than a vendor's description.
    """

    def __init__(self, channel: Channel, greets: bool | None) -> None:
        self._channel, can = channel, channel.capabilities
        if greets is None:
            self.capabilities = replace(can, greeting_timeout_s=UNCERTAIN_GREETING_WAIT_S)
        else:
            self.capabilities = replace(can, greets=greets, greeting_timeout_s=None)
        self.uplink, self.downlink = channel.uplink, channel.downlink
        self.send, self.interrupt, self.close = channel.send, channel.interrupt, channel.close
        self.is_key_in_text = channel.is_key_in_text
        self.failure: ProviderError | None = None

    async def receive(self) -> ReceivedEvents:
        try:
            return await self._channel.receive()
        except ProviderError as failure:
            self.failure = failure
            return ReceivedEvents(clock.monotonic(), (Event("error", str(failure), error="provider"),))


def _split_greets_parameter(request: Request) -> tuple[bool | None, Request]:
    """Return whether the agent greets, if a parameter says so, and the request without that parameter."""
    greets = request.parameters.get(GREETS_PARAMETER)
    if greets is not None and not isinstance(greets, bool):
        raise Rejected(
            f"the parameter {GREETS_PARAMETER} (whether the agent speaks first) must be true or false, found {greets!r}"
        )
    others = {name: value for name, value in request.parameters.items() if name != GREETS_PARAMETER}
    return greets, replace(request, parameters=others) if GREETS_PARAMETER in request.parameters else request


def _to_plain_reply(reply: UntranscribedReply) -> Reply:
    return Reply(*astuple(reply)[: len(Reply.__struct_fields__)])


def _add_reasons_to_log(log: bytes, reasons_by_line: Mapping[int, str]) -> bytes:
    """Return the log with the reasons why answers have no words, inserted before its last event."""
    *before, end = log.splitlines(keepends=True)
    at = msgspec.json.decode(end)["t"]
    said = [
        msgspec.json.encode({"t": at, "event": "not_written_down", "line": number, "text": why}) + b"\n"
        for number, why in reasons_by_line.items()
    ]
    return b"".join([*before, *said, end])


def _make_call_setup(request: Request, *, takes_history: bool) -> CallSetup:
    assert request.speech is not None  # noqa: S101
    system = [turn.text for turn in request.turns if turn.role == "system"]
    before = tuple(turn for turn in request.turns if turn.role != "system")
    dial = CallSetup(request.model, "\n\n".join(system) or None, request.speech.language, request.parameters, before)
    if before and not takes_history:
        told = "\n\n".join([*system, f"What was said until now:\n{_format_history(before)}"])
        return replace(dial, system_prompt=told, history=())
    return dial


def _format_history(turns: tuple[Turn, ...]) -> str:
    return "\n".join(f"{'You' if turn.role == 'assistant' else 'The user'}: {turn.text}" for turn in turns)


def _extract_answer_clips(finished_call: FinishedCall) -> "dict[int, Samples]":
    """Return the audible sound of the agent's answer to each line, as input for speech recognition.

    An answer lasts until the next line begins; an interrupted one until that line is over, and longer if the line is a
    backchannel.
    """
    samples, rate = audio.read_wav(finished_call.recording)
    agent: Any = samples[:, 1]
    events = [msgspec.json.decode(line) for line in finished_call.log.splitlines()]
    every = [each for each in events if each["event"] == "line"]
    lines = [each for each in every if not each.get("backchannel", each["barge_in"] and is_backchannel(each["text"]))]
    starts = [round(rate * each["end" if each["barge_in"] else "start"]) for each in lines]
    clips = [agent[start:end] for start, end in pairwise([*starts, len(agent)])]
    return {
        line["line"]: audio.resample(clip, rate, audio.CALLER_SAMPLE_RATE)
        for line, clip in zip(lines, clips, strict=True)
        if audio.find_first_audible(clip, rate) is not None
    }
