"""Gemini's Live API: a caller's sound goes up in JSON, the answer's sound and words come down in JSON.

Only translation. The key travels in a header and never in the address. Messages may come in binary frames. The format
has no error message: what is wrong is told by how the connection ends. A turn that is over without any sound, as an
interruption leaves it, is no answer; nor are words that come after it was interrupted and before it sounds again.
"""

import json
import re
from binascii import b2a_base64
from collections.abc import Mapping, Sized
from typing import Any, Literal, TypeVar

from pramana.providers.accounts import Account
from pramana.providers.failures import MALFORMED_RESPONSE_ERRORS
from pramana.providers.http import Vendor
from pramana.providers.text.google import BASE_URL, models_for
from pramana.providers.voice.frames import SessionWire, misfit, parse, socket_url, sound, text_of, unknown, usage_event
from pramana.providers.voice.socket import SocketChannel, connect
from pramana.providers.voice.vocabulary import ChannelCapabilities, Dial, Event, Format, Message, VoiceCapabilities

_Things = TypeVar("_Things", bound=Sized)

VENDOR = "Google"
VERSION = "v1"
METHOD = "bidiGenerateContent"
MOST_AT_ONCE = 100
"""Things in one message, parts of an answer, or calls of tools: each becomes an event, and 16 MB hold millions."""
_RENAMED = {"top_p": "topP", "top_k": "topK", "max_tokens": "maxOutputTokens", "stop": "stopSequences"}
BESIDE = frozenset(
    {
        "contextWindowCompression",
        "explicitVadSignal",
        "historyConfig",
        "inputAudioTranscription",
        "outputAudioTranscription",
        "proactivity",
        "realtimeInputConfig",
        "safetySettings",
        "sessionResumption",
        "tools",
    }
)
"""Parameters that stand beside `generationConfig`."""
_RATE = re.compile(r"audio/(?:pcm|l16)\b.*?\brate=(\d{1,6})\b", re.IGNORECASE)
_OVER = (None, "INTERACTION_STATUS_UNSPECIFIED", "IDLE")
"""Of an interaction: after any other status, the model goes on by itself."""
_ACTIVITY = {
    "ACTIVITY_START": "user_speech_start",
    "VAD_SIGNAL_TYPE_SOS": "user_speech_start",
    "ACTIVITY_END": "user_speech_stop",
    "VAD_SIGNAL_TYPE_EOS": "user_speech_stop",
}


class Live(Vendor):
    """An account at Google's Gemini API."""

    vendor, base_url = VENDOR, BASE_URL
    capabilities = VoiceCapabilities()

    def __init__(self, account: Account) -> None:
        super().__init__(account)
        self._headers = {"x-goog-api-key": account.key} if account.key else {}

    async def dial(self, dial: Dial) -> SocketChannel:
        """Open a call."""
        path = f"/ws/google.ai.generativelanguage.{VERSION}.GenerativeService.BidiGenerateContent"
        url = socket_url(self._http.account.base_url, path)
        return await connect(self._http, url, self._headers, LiveWire(dial))

    async def models(self) -> list[str]:
        """Return the names of the models that can be called."""
        return await models_for(self._http, self._headers, METHOD)


class LiveWire(SessionWire):
    """One call, in Gemini's words."""

    capabilities = ChannelCapabilities(says_interrupted=True)

    def __init__(self, dial: Dial) -> None:
        self.uplink, self.downlink = Format("pcm", 16000), Format("pcm", 24000)
        self._setup = json.dumps({"setup": _setup(dial)})
        self._ready = self._sounded = self._stopped = False
        self._stale = False
        """It was interrupted and has made no sound since: words that come are of what nobody heard."""
        self._said, self._heard = _Transcript("agent_text"), _Transcript("user_text")
        self._may_play = False
        """Sound was sent since it was last interrupted: how much of it is still to be heard, the call knows."""

    def hello(self) -> list[Message]:
        """Return the setup."""
        return [self._setup]

    def speak(self, frame: bytes) -> list[Message]:
        """Return the message that carries one frame."""
        audio = b2a_base64(frame, newline=False).decode()
        return [f'{{"realtimeInput":{{"audio":{{"mimeType":"audio/pcm;rate=16000","data":"{audio}"}}}}}}']

    def read(self, message: Message) -> list[Event]:
        """Return what a message means; one may hold several things."""
        data = parse(VENDOR, message)
        events: list[Event] = []
        try:
            for name, body in _few(data).items():
                events += self._read(name, body)
        except MALFORMED_RESPONSE_ERRORS:
            raise misfit(VENDOR, "does not fit the format of the Live API") from None
        # The last of a turn comes with its tokens: they are counted before it is over.
        return sorted(events, key=lambda event: event.kind == "turn_done")

    def _read(self, name: str, body: Any) -> list[Event]:
        match name:
            case "setupComplete":
                if self._ready:
                    return []
                self._ready = True
                return [Event("ready", detail={"session": text_of(body.get("sessionId") or "")})]
            case "serverContent":
                return self._content(body)
            case "toolCall":
                return [Event("tool_call", detail=_call(call)) for call in _few(body["functionCalls"])]
            case "usageMetadata":
                return [_usage(body)]
            case "goAway":
                return [unknown(name, time_left=text_of(body.get("timeLeft") or ""))]
            case "voiceActivity" | "voiceActivityDetectionSignal":
                kind = _ACTIVITY.get(body.get("voiceActivityType") or body.get("vadSignalType"))
                return [Event(kind)] if kind else []  # type: ignore[arg-type] # the table has kinds only
            case "sessionResumptionUpdate":
                return []
        return [unknown(name)]

    def _content(self, content: Mapping[str, Any]) -> list[Event]:
        events: list[Event] = []
        if heard := content.get("inputTranscription"):
            events += self._heard.take(heard)
        for part in _few((content.get("modelTurn") or {}).get("parts") or ()):
            events += self._part(part)
        if said := content.get("outputTranscription"):
            if self._stale:
                events.append(unknown("outputTranscription", text=text_of(said.get("text") or "")))
            else:
                events += self._said.take(said)
        if content.get("interrupted") is True and self._may_play:
            self._stopped = self._stale = True
            self._said.begin()
            self._may_play = False
            events.append(Event("interrupted"))
        if content.get("turnComplete") is True and content.get("interactionStatus") in _OVER:
            events += self._turn_done(content)
        return events

    def _part(self, part: Mapping[str, Any]) -> list[Event]:
        blob = part.get("inlineData")
        if blob is None:
            # Words without sound are thoughts, or the answer of a model that was not asked to write.
            return [unknown("modelTurn.text")] if part.get("text") else []
        mime = text_of(blob.get("mimeType") or "audio/pcm")
        if not mime.lower().startswith("audio/"):
            return [unknown("modelTurn.inlineData", mime_type=mime)]
        found = sound(blob["data"], self.downlink)
        rate = _RATE.match(mime)
        if rate and int(rate[1]) != self.downlink.rate:
            said = f"sound came with {rate[1]} samples a second, where {self.downlink.rate} were expected"
            return [Event("error", said, error="unsupported_format", detail={"mime_type": mime})]
        if not found:
            return []
        self._sounded, self._may_play, self._stale = True, True, False
        return [Event("agent_audio", audio=found)]

    def _turn_done(self, content: Mapping[str, Any]) -> list[Event]:
        sounded, stopped = self._sounded, self._stopped
        self._sounded = self._stopped = False
        if not sounded:
            return []
        self._said.begin(more_comes=True)
        self._heard.begin(more_comes=True)
        reason = content.get("turnCompleteReason")
        how = "interrupted" if stopped else "completed"
        return [Event("turn_done", how, detail={"reason": text_of(reason)} if reason else {})]


class _Transcript:
    """What one side said in a turn, as it comes in pieces."""

    def __init__(self, kind: Literal["agent_text", "user_text"]) -> None:
        self._kind, self._pieces, self._cut = kind, list[str](), False

    def take(self, transcription: Mapping[str, Any]) -> list[Event]:
        """Return the next piece, and the whole where it says that it is finished."""
        events = []
        if text := transcription.get("text"):
            self._pieces.append(text_of(text))
            events.append(Event(self._kind, text))
        if transcription.get("finished") is True:
            if not self._cut:
                events.append(Event(self._kind, "".join(self._pieces), final=True))
            self._cut = False
            self._pieces.clear()
        return events

    def begin(self, *, more_comes: bool = False) -> None:
        """Forget what was said; where more of it comes after its turn's end, the whole is not known then.

        Of an answer that was interrupted, no whole will be told.
        """
        self._cut = more_comes and bool(self._pieces)
        self._pieces.clear()


def _setup(dial: Dial) -> dict[str, Any]:
    given = {_RENAMED.get(name, name): value for name, value in dial.parameters.items() if value is not None}
    voice = given.pop("voice", None)
    beside = {name: given.pop(name) for name in BESIDE & given.keys()}
    config: dict[str, Any] = {"responseModalities": ["AUDIO"], **given}
    if voice is not None:
        config["speechConfig"] = {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": voice}}}
    setup: dict[str, Any] = {
        "model": dial.model if "/" in dial.model else f"models/{dial.model}",
        "generationConfig": config,
        "inputAudioTranscription": {},
        "outputAudioTranscription": {},
    }
    if dial.system_prompt is not None:
        setup["systemInstruction"] = {"parts": [{"text": dial.system_prompt}], "role": "user"}
    return {**setup, **beside}


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    named = {"name": text_of(call.get("name") or ""), "call_id": text_of(call.get("id") or "")}
    return {**named, "arguments": json.dumps(call.get("args") or {})}


def _usage(used: Mapping[str, Any]) -> Event:
    return usage_event(
        input_tokens=used.get("promptTokenCount"),
        output_tokens=used.get("responseTokenCount"),
        cached_tokens=used.get("cachedContentTokenCount"),
        input_audio_tokens=_of_audio(used.get("promptTokensDetails")),
        output_audio_tokens=_of_audio(used.get("responseTokensDetails")),
    )


def _few(things: _Things) -> _Things:
    if len(things) > MOST_AT_ONCE:
        raise ValueError(len(things))
    return things


def _of_audio(details: Any) -> Any:
    return next((each.get("tokenCount") for each in details or () if each.get("modality") == "AUDIO"), None)
