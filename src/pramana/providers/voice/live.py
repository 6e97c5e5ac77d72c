"""Gemini's Live API: a caller's sound goes up in JSON, the answer's sound and words come down in JSON.

Only translates. The key is sent in a header and never in the address. Messages may come in binary frames. The format
has no error message: errors are reported by how the connection closes. A turn that ends without any sound, as after an
interruption, is no answer; nor are words that arrive between an interruption and the next sound.
"""

import json
import re
from binascii import b2a_base64
from collections.abc import Mapping, Sized
from typing import Any, Literal, TypeVar

from pramana.providers.accounts import Account
from pramana.providers.failures import MALFORMED_RESPONSE_ERRORS
from pramana.providers.http import VendorProvider
from pramana.providers.text.google import BASE_URL, list_models_with_method
from pramana.providers.voice.frames import (
    SessionWire,
    decode_sound,
    make_malformed_error,
    make_socket_url,
    make_unknown_event,
    make_usage_event,
    parse_message,
    require_text,
)
from pramana.providers.voice.socket import SocketChannel, connect
from pramana.providers.voice.vocabulary import CallSetup, ChannelCapabilities, Event, Format, Message, VoiceCapabilities

_Things = TypeVar("_Things", bound=Sized)

VENDOR = "Google"
API_VERSION = "v1"
LIVE_METHOD = "bidiGenerateContent"
MAX_ITEMS_PER_MESSAGE = 100
"""Limit on items per message (parts of an answer, or tool calls): each becomes an event, and 16 MB hold millions."""
_VENDOR_PARAMETER_NAMES = {"top_p": "topP", "top_k": "topK", "max_tokens": "maxOutputTokens", "stop": "stopSequences"}
TOP_LEVEL_PARAMETERS = frozenset(
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
"""Parameters beside `generationConfig`."""
_SAMPLE_RATE_RE = re.compile(r"audio/(?:pcm|l16)\b.*?\brate=(\d{1,6})\b", re.IGNORECASE)
_FINISHED_STATUSES = (None, "INTERACTION_STATUS_UNSPECIFIED", "IDLE")
"""Statuses of an interaction that is over; after any other, the model continues without the caller."""
_EVENT_BY_ACTIVITY = {
    "ACTIVITY_START": "user_speech_start",
    "VAD_SIGNAL_TYPE_SOS": "user_speech_start",
    "ACTIVITY_END": "user_speech_stop",
    "VAD_SIGNAL_TYPE_EOS": "user_speech_stop",
}


class LiveProvider(VendorProvider):
    """An account at Google's Gemini API."""

    vendor, base_url = VENDOR, BASE_URL
    capabilities = VoiceCapabilities()

    def __init__(self, account: Account) -> None:
        super().__init__(account)
        self._headers = {"x-goog-api-key": account.key} if account.key else {}

    async def dial(self, setup: CallSetup) -> SocketChannel:
        """Open a call."""
        path = f"/ws/google.ai.generativelanguage.{API_VERSION}.GenerativeService.BidiGenerateContent"
        url = make_socket_url(self._http.account.base_url, path)
        return await connect(self._http, url, self._headers, LiveWire(setup))

    async def models(self) -> list[str]:
        """Return the names of the models that can be called."""
        return await list_models_with_method(self._http, self._headers, LIVE_METHOD)


class LiveWire(SessionWire):
    """One call in Gemini's wire format."""

    capabilities = ChannelCapabilities(reports_interruptions=True)

    def __init__(self, dial: CallSetup) -> None:
        self.uplink, self.downlink = Format("pcm", 16000), Format("pcm", 24000)
        self._setup = json.dumps({"setup": _make_setup_message(dial)})
        self._ready = self._has_sounded = self._stopped = False
        self._is_stale = False
        """Whether it was interrupted and has made no sound since: words that arrive now belong to an answer that was
        never heard."""
        self._agent_transcript, self._user_transcript = _Transcript("agent_text"), _Transcript("user_text")
        self._may_play = False
        """Whether sound was sent since the last interruption. How much of it is still playing, only the call knows."""

    def opening_messages(self) -> list[Message]:
        """Return the setup."""
        return [self._setup]

    def sound_messages(self, frame: bytes) -> list[Message]:
        """Return the message that carries one frame."""
        audio = b2a_base64(frame, newline=False).decode()
        return [f'{{"realtimeInput":{{"audio":{{"mimeType":"audio/pcm;rate=16000","data":"{audio}"}}}}}}']

    def read_events(self, message: Message) -> list[Event]:
        """Translate a message, which may contain several events."""
        data = parse_message(VENDOR, message)
        events: list[Event] = []
        try:
            for name, body in _refuse_too_many_items(data).items():
                events += self._read_field(name, body)
        except MALFORMED_RESPONSE_ERRORS:
            raise make_malformed_error(VENDOR, "does not fit the format of the Live API") from None
        # Token usage arrives with a turn's last message, and must be counted before the turn is over.
        return sorted(events, key=lambda event: event.kind == "turn_done")

    def _read_field(self, name: str, body: Any) -> list[Event]:
        match name:
            case "setupComplete":
                if self._ready:
                    return []
                self._ready = True
                return [Event("ready", detail={"session": require_text(body.get("sessionId") or "")})]
            case "serverContent":
                return self._read_content(body)
            case "toolCall":
                return [
                    Event("tool_call", detail=_make_tool_call_detail(call))
                    for call in _refuse_too_many_items(body["functionCalls"])
                ]
            case "usageMetadata":
                return [_convert_usage(body)]
            case "goAway":
                return [make_unknown_event(name, time_left=require_text(body.get("timeLeft") or ""))]
            case "voiceActivity" | "voiceActivityDetectionSignal":
                kind = _EVENT_BY_ACTIVITY.get(body.get("voiceActivityType") or body.get("vadSignalType"))
                return [Event(kind)] if kind else []  # type: ignore[arg-type] # the table has kinds only
            case "sessionResumptionUpdate":
                return []
        return [make_unknown_event(name)]

    def _read_content(self, content: Mapping[str, Any]) -> list[Event]:
        events: list[Event] = []
        if heard := content.get("inputTranscription"):
            events += self._user_transcript.add_piece(heard)
        for part in _refuse_too_many_items((content.get("modelTurn") or {}).get("parts") or ()):
            events += self._read_part(part)
        if said := content.get("outputTranscription"):
            if self._is_stale:
                events.append(make_unknown_event("outputTranscription", text=require_text(said.get("text") or "")))
            else:
                events += self._agent_transcript.add_piece(said)
        if content.get("interrupted") is True and self._may_play:
            self._stopped = self._is_stale = True
            self._agent_transcript.begin()
            self._may_play = False
            events.append(Event("interrupted"))
        if content.get("turnComplete") is True and content.get("interactionStatus") in _FINISHED_STATUSES:
            events += self._end_turn(content)
        return events

    def _read_part(self, part: Mapping[str, Any]) -> list[Event]:
        blob = part.get("inlineData")
        if blob is None:
            # Text without sound is a thought, or the answer of a model that was not set to generate text.
            return [make_unknown_event("modelTurn.text")] if part.get("text") else []
        mime = require_text(blob.get("mimeType") or "audio/pcm")
        if not mime.lower().startswith("audio/"):
            return [make_unknown_event("modelTurn.inlineData", mime_type=mime)]
        found = decode_sound(blob["data"], self.downlink)
        rate = _SAMPLE_RATE_RE.match(mime)
        if rate and int(rate[1]) != self.downlink.rate:
            said = f"the agent sent sound with {rate[1]} samples per second, expected {self.downlink.rate}"
            return [Event("error", said, error="unsupported_format", detail={"mime_type": mime})]
        if not found:
            return []
        self._has_sounded, self._may_play, self._is_stale = True, True, False
        return [Event("agent_audio", audio=found)]

    def _end_turn(self, content: Mapping[str, Any]) -> list[Event]:
        sounded, stopped = self._has_sounded, self._stopped
        self._has_sounded = self._stopped = False
        if not sounded:
            return []
        self._agent_transcript.begin(old_pieces_may_follow=True)
        self._user_transcript.begin(old_pieces_may_follow=True)
        reason = content.get("turnCompleteReason")
        how = "interrupted" if stopped else "completed"
        return [Event("turn_done", how, detail={"reason": require_text(reason)} if reason else {})]


class _Transcript:
    """The transcript of one side in a turn, received in pieces."""

    def __init__(self, kind: Literal["agent_text", "user_text"]) -> None:
        self._kind, self._pieces, self._cut = kind, list[str](), False

    def add_piece(self, transcription: Mapping[str, Any]) -> list[Event]:
        """Return the next piece, and the whole transcript once it is finished."""
        events = []
        if text := transcription.get("text"):
            self._pieces.append(require_text(text))
            events.append(Event(self._kind, text))
        if transcription.get("finished") is True:
            if not self._cut:
                events.append(Event(self._kind, "".join(self._pieces), final=True))
            self._cut = False
            self._pieces.clear()
        return events

    def begin(self, *, old_pieces_may_follow: bool = False) -> None:
        """Start a new transcript; with `old_pieces_may_follow` the old one is never taken as complete.

        The rest of an interrupted answer never arrives.
        """
        self._cut = old_pieces_may_follow and bool(self._pieces)
        self._pieces.clear()


def _make_setup_message(call_setup: CallSetup) -> dict[str, Any]:
    given = {
        _VENDOR_PARAMETER_NAMES.get(name, name): value
        for name, value in call_setup.parameters.items()
        if value is not None
    }
    voice = given.pop("voice", None)
    beside = {name: given.pop(name) for name in TOP_LEVEL_PARAMETERS & given.keys()}
    config: dict[str, Any] = {"responseModalities": ["AUDIO"], **given}
    if voice is not None:
        config["speechConfig"] = {"voiceConfig": {"prebuiltVoiceConfig": {"voiceName": voice}}}
    setup: dict[str, Any] = {
        "model": call_setup.model if "/" in call_setup.model else f"models/{call_setup.model}",
        "generationConfig": config,
        "inputAudioTranscription": {},
        "outputAudioTranscription": {},
    }
    if call_setup.system_prompt is not None:
        setup["systemInstruction"] = {"parts": [{"text": call_setup.system_prompt}], "role": "user"}
    return {**setup, **beside}


def _make_tool_call_detail(call: Mapping[str, Any]) -> dict[str, Any]:
    named = {"name": require_text(call.get("name") or ""), "call_id": require_text(call.get("id") or "")}
    return {**named, "arguments": json.dumps(call.get("args") or {})}


def _convert_usage(usage: Mapping[str, Any]) -> Event:
    return make_usage_event(
        input_tokens=usage.get("promptTokenCount"),
        output_tokens=usage.get("responseTokenCount"),
        cached_tokens=usage.get("cachedContentTokenCount"),
        input_audio_tokens=_find_audio_token_count(usage.get("promptTokensDetails")),
        output_audio_tokens=_find_audio_token_count(usage.get("responseTokensDetails")),
    )


def _refuse_too_many_items(items: _Things) -> _Things:
    if len(items) > MAX_ITEMS_PER_MESSAGE:
        raise ValueError(len(items))
    return items


def _find_audio_token_count(details: Any) -> Any:
    return next((each.get("tokenCount") for each in details or () if each.get("modality") == "AUDIO"), None)
