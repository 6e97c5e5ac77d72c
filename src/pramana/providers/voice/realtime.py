"""OpenAI's Realtime API: a caller's sound goes up as events, the answer's sound and words come down as events.

Only translates. The session is configured once the server reports that it was created, and the call is ready once the
server confirms the configuration. The event names of the beta are understood too. The server sends faster than real
time, and a caller who talks while sound still plays interrupts it even if all of it was sent; any sound or words of it
that arrive later were never heard and are no answer. A request that the server rejects does not end the call: most have
no effect on it.
"""

import json
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from msgspec.structs import replace

from pramana.providers.accounts import Account
from pramana.providers.failures import MALFORMED_RESPONSE_ERRORS
from pramana.providers.http import VendorProvider
from pramana.providers.text.openai import BASE_URL, fetch_model_names, make_headers
from pramana.providers.voice.frames import (
    MAX_EVENT_NAME_LENGTH,
    SessionWire,
    classify_error,
    decode_sound,
    make_malformed_error,
    make_socket_url,
    make_unknown_event,
    make_usage_event,
    parse_message,
    require_text,
)
from pramana.providers.voice.socket import SocketChannel, connect
from pramana.providers.voice.vocabulary import (
    CallSetup,
    ChannelCapabilities,
    ErrorClass,
    Event,
    Format,
    Message,
    VoiceCapabilities,
)
from pramana.replies import parse_token_count

VENDOR = "OpenAI"
DEFAULT_TRANSCRIPTION_MODEL = "gpt-4o-mini-transcribe"
"""The model that transcribes the caller, unless the parameter `transcription` names another."""
_PCM_FORMAT = {"type": "audio/pcm", "rate": 24000}
_FORMAT_BY_NAME: Mapping[object, Format] = {
    "audio/pcmu": Format("mulaw", 8000),
    "audio/pcma": Format("alaw", 8000),
    "pcm16": Format("pcm", 24000),
    "g711_ulaw": Format("mulaw", 8000),
    "g711_alaw": Format("alaw", 8000),
}
_SUPPORTED_SAMPLE_RATES = range(8000, 48001)
_MAX_PARTS_PER_RESPONSE = 1000
"""Limit on parts per response, so that memory stays bounded."""
_UNSUPPORTED_FORMAT: ErrorClass = "unsupported_format"
_TRANSCRIPTION_EVENT = "conversation.item.input_audio_transcription"
_REQUEST_ERROR_TYPE = "invalid_request_error"
"""Type of the error for an event that we sent, such as truncation beyond the answer: the session continues."""


UNSUPPORTED_PARAMETERS = frozenset({"temperature", "top_p", "seed", "stop"})
"""Parameters that a session does not have, though a text model of the same vendor does."""


class RealtimeProvider(VendorProvider):
    """An account at OpenAI, or at any server that speaks its Realtime API."""

    capabilities = VoiceCapabilities(unsupported_parameters=UNSUPPORTED_PARAMETERS)

    vendor, base_url = VENDOR, BASE_URL

    def __init__(self, account: Account) -> None:
        super().__init__(account)
        self._headers = make_headers(account)

    async def dial(self, setup: CallSetup) -> SocketChannel:
        """Open a call."""
        url = make_socket_url(self._http.account.base_url, "/realtime", model=setup.model)
        headers = {name: value for name, value in self._headers.items() if name == "Authorization"}
        return await connect(self._http, url, headers, RealtimeWire(setup))

    async def models(self) -> list[str]:
        """Return the names of the models that can be called."""
        names = await fetch_model_names(self._http, self._headers)
        others = ("transcribe", "whisper", "translate")
        return [name for name in names if "realtime" in name and not any(other in name for other in others)]


class RealtimeWire(SessionWire):
    """One call in OpenAI's wire format."""

    capabilities = ChannelCapabilities(reports_interruptions=True)

    def __init__(self, dial: CallSetup) -> None:
        self.uplink = self.downlink = Format("pcm", 24000)
        self._update_message = json.dumps({"type": "session.update", "session": _make_session_settings(dial)})
        detection = dial.parameters.get("turn_detection")
        self._allows_interruption = not (isinstance(detection, dict) and detection.get("interrupt_response") is False)
        self._ready = False
        self._response: object = None
        """The id of the current response."""
        self._last_response: object = None
        """The id of the latest response, finished or not."""
        self._stopped: set[object] = set()
        """The ids of interrupted responses and of their items: what still arrives of them is not heard."""
        self._items: dict[tuple[str, int], float] = {}
        """The response's parts with sound, and their lengths in seconds."""
        self._transcribed_parts: set[tuple[str, int]] = set()
        """The response's parts whose transcript was reported."""
        self._has_sounded = False
        """Whether sound was sent since the caller last spoke. How much of it is still playing, only the call knows."""

    def sound_messages(self, frame: bytes) -> list[Message]:
        """Return the message that carries one frame."""
        audio = b2a_base64(frame, newline=False).decode()
        return [f'{{"type":"input_audio_buffer.append","audio":"{audio}"}}']

    def read_events(self, message: Message) -> list[Event]:
        """Translate a message to events."""
        data = parse_message(VENDOR, message)
        name = data.get("type")
        try:
            if isinstance(name, str):
                if name in _IGNORED_EVENTS:
                    return []
                if take := self._READERS.get(name):
                    return take(self, data)
        except MALFORMED_RESPONSE_ERRORS:
            raise make_malformed_error(VENDOR, f"does not fit the format of {name}") from None
        return [make_unknown_event(name)]

    def interruption_messages(self, played_s: float) -> list[Message]:
        """Return how much of the answer was heard, so that the model does not treat the rest as spoken."""
        parts, self._items = list(self._items.items()), {}
        cut: list[Message] = []
        for number, ((item, index), sent_s) in enumerate(parts):
            heard_s = min(max(played_s, 0.0), sent_s)
            played_s -= sent_s
            if played_s < 0 or number == len(parts) - 1:
                place = {"audio_end_ms": int(heard_s * 1000 + 1e-6), "content_index": index, "item_id": item}
                cut.append(json.dumps({"type": "conversation.item.truncate", **place}))
        return cut

    def _on_session_created(self, data: Mapping[str, Any]) -> list[Event]:
        return [replace(make_unknown_event(data["type"]), messages_to_send=(self._update_message,))]

    def _on_session_updated(self, data: Mapping[str, Any]) -> list[Event]:
        if self._ready:
            return []
        session = data["session"]
        audio = session.get("audio") or {}
        up = _parse_format((audio.get("input") or {}).get("format") or session.get("input_audio_format"))
        down = _parse_format((audio.get("output") or {}).get("format") or session.get("output_audio_format"))
        if up is None or down is None:
            return [
                Event(
                    "error", "the session has a sound format that Pramana does not support", error=_UNSUPPORTED_FORMAT
                )
            ]
        self.uplink, self.downlink, self._ready = up, down, True
        return [Event("ready", detail={"session": require_text(session.get("id") or "")})]

    def _on_speech_started(self, data: Mapping[str, Any]) -> list[Event]:
        started = Event("user_speech_start", detail=_find_event_position(data, "audio_start_ms"))
        if not self._allows_interruption or not (self._response or self._has_sounded):
            return [started]
        self._stopped |= {self._last_response, *(item for item, _ in self._items)} - {None}
        self._response, self._has_sounded = None, False
        return [started, Event("interrupted")]

    def _on_speech_stopped(self, data: Mapping[str, Any]) -> list[Event]:
        return [Event("user_speech_stop", detail=_find_event_position(data, "audio_end_ms"))]

    def _on_response_created(self, data: Mapping[str, Any]) -> list[Event]:
        self._response = self._last_response = _require_id(data["response"]["id"])
        self._items, self._transcribed_parts = {}, set()
        return []

    def _on_audio(self, data: Mapping[str, Any]) -> list[Event]:
        found = decode_sound(data["delta"], self.downlink)
        if not found or self._belongs_to_stopped_response(data):
            return []
        part = (_require_id(data["item_id"]), _require_count(data.get("content_index", 0)))
        self._items[part] = self._items.get(part, 0.0) + len(found) / self.downlink.bytes_per_second
        if len(self._items) > _MAX_PARTS_PER_RESPONSE:
            raise ValueError(data["type"])
        self._has_sounded = True
        return [Event("agent_audio", audio=found)]

    def _on_agent_transcript_delta(self, data: Mapping[str, Any]) -> list[Event]:
        said = require_text(data["delta"])
        return (
            [make_unknown_event(data["type"], text=said)]
            if self._belongs_to_stopped_response(data)
            else [Event("agent_text", said)]
        )

    def _on_agent_transcript(self, data: Mapping[str, Any]) -> list[Event]:
        """Return the transcript of one part: a response may have several, and each is reported once."""
        said = require_text(data["transcript"] if "transcript" in data else data["text"])
        part = (_require_id(data.get("item_id", "")), _require_count(data.get("content_index", 0)))
        if (
            self._belongs_to_stopped_response(data)
            or part in self._transcribed_parts
            or len(self._transcribed_parts) > _MAX_PARTS_PER_RESPONSE
        ):
            return [make_unknown_event(data["type"], text=said)]
        self._transcribed_parts.add(part)
        return [Event("agent_text", said, final=True)]

    def _belongs_to_stopped_response(self, data: Mapping[str, Any]) -> bool:
        named = [data[name] for name in ("response_id", "item_id") if isinstance(data.get(name), str)]
        return not self._stopped.isdisjoint(named)

    def _on_user_transcript_delta(self, data: Mapping[str, Any]) -> list[Event]:
        delta = data.get("delta")
        return [Event("user_text", require_text(delta), detail=_find_event_position(data))] if delta else []

    def _on_user_transcript(self, data: Mapping[str, Any]) -> list[Event]:
        return [Event("user_text", require_text(data["transcript"]), final=True, detail=_find_event_position(data))]

    def _on_user_transcript_failed(self, data: Mapping[str, Any]) -> list[Event]:
        return [make_unknown_event(data["type"], message=require_text(data["error"].get("message") or ""))]

    def _on_tool_call(self, data: Mapping[str, Any]) -> list[Event]:
        asked = {name: require_text(data.get(name) or "") for name in ("name", "call_id", "arguments")}
        return [Event("tool_call", detail=asked)]

    def _on_response_done(self, data: Mapping[str, Any]) -> list[Event]:
        response = data["response"]
        status, details = require_text(response.get("status") or "completed"), response.get("status_details") or {}
        reason, failed = details.get("reason"), details.get("error") or {}
        if self._response == response.get("id"):
            self._response = None
        events = []
        if used := response.get("usage"):
            events.append(_convert_usage(used))
        if status == "failed":
            events.append(_make_error_event(failed))
        detail = {"reason": require_text(reason)} if reason else {}
        return [*events, Event("turn_done", status, detail=detail)]

    def _on_error(self, data: Mapping[str, Any]) -> list[Event]:
        found = _make_error_event(data["error"])
        if self._ready and found.error == "bad_request" and found.detail.get("type") == _REQUEST_ERROR_TYPE:
            return [make_unknown_event(data["type"], message=found.text, **found.detail)]
        return [found]

    _READERS: ClassVar[Mapping[str, Callable[[Any, Mapping[str, Any]], list[Event]]]] = {
        "session.created": _on_session_created,
        "session.updated": _on_session_updated,
        "input_audio_buffer.speech_started": _on_speech_started,
        "input_audio_buffer.speech_stopped": _on_speech_stopped,
        "response.created": _on_response_created,
        "response.output_audio.delta": _on_audio,
        "response.audio.delta": _on_audio,
        "response.output_audio_transcript.delta": _on_agent_transcript_delta,
        "response.audio_transcript.delta": _on_agent_transcript_delta,
        "response.output_text.delta": _on_agent_transcript_delta,
        "response.text.delta": _on_agent_transcript_delta,
        "response.output_audio_transcript.done": _on_agent_transcript,
        "response.audio_transcript.done": _on_agent_transcript,
        "response.output_text.done": _on_agent_transcript,
        "response.text.done": _on_agent_transcript,
        f"{_TRANSCRIPTION_EVENT}.delta": _on_user_transcript_delta,
        f"{_TRANSCRIPTION_EVENT}.completed": _on_user_transcript,
        f"{_TRANSCRIPTION_EVENT}.failed": _on_user_transcript_failed,
        "response.function_call_arguments.done": _on_tool_call,
        "response.done": _on_response_done,
        "error": _on_error,
    }


_IGNORED_EVENTS = frozenset(
    {
        "conversation.created",
        "conversation.item.added",
        "conversation.item.created",
        "conversation.item.done",
        "conversation.item.truncated",
        "input_audio_buffer.committed",
        "rate_limits.updated",
        "response.audio.done",
        "response.content_part.added",
        "response.content_part.done",
        "response.function_call_arguments.delta",
        "response.output_audio.done",
        "response.output_item.added",
        "response.output_item.done",
    }
)
"""Known events that mean nothing to a call."""


def _make_session_settings(call_setup: CallSetup) -> dict[str, Any]:
    given = {name: value for name, value in call_setup.parameters.items() if value is not None}
    heard = given.pop(
        "transcription",
        {"model": DEFAULT_TRANSCRIPTION_MODEL, "language": call_setup.language.partition("-")[0].lower()},
    )
    detection = given.pop("turn_detection", {"type": "server_vad"})
    spoken = {name: given.pop(name) for name in ("voice", "speed") if name in given}
    if "max_tokens" in given:
        given["max_output_tokens"] = given.pop("max_tokens")
    return {
        "type": "realtime",
        "output_modalities": ["audio"],
        "audio": {
            "input": {"format": _PCM_FORMAT, "transcription": heard, "turn_detection": detection},
            "output": {"format": _PCM_FORMAT, **spoken},
        },
        **({"instructions": call_setup.system_prompt} if call_setup.system_prompt is not None else {}),
        **given,
    }


def _parse_format(audio_format: Any) -> Format | None:
    """Return a format as a session names it: an object, or a string in the beta; absent means PCM, the default."""
    if audio_format is None:
        return Format("pcm", 24000)
    if isinstance(audio_format, str):
        return _FORMAT_BY_NAME.get(audio_format)
    if audio_format.get("type") != "audio/pcm":
        return _FORMAT_BY_NAME.get(audio_format.get("type"))
    rate = audio_format.get("rate", 24000)
    return Format("pcm", rate) if type(rate) is int and rate in _SUPPORTED_SAMPLE_RATES else None


def _make_error_event(error: Mapping[str, Any]) -> Event:
    code, kind, parameter = (str(error.get(name) or "") for name in ("code", "type", "param"))
    message = require_text(error.get("message") or "")
    found: ErrorClass
    if "audio" in parameter and "format" in parameter:
        found = _UNSUPPORTED_FORMAT
    elif "quota" in code or "billing" in code:
        found = "quota"
    elif kind == _REQUEST_ERROR_TYPE:
        found = classify_error(code, "bad_request")
    else:
        found = classify_error(f"{code} {kind}")
    detail = {"code": code, "type": kind, "param": parameter}
    return Event("error", message, error=found, detail={name: each for name, each in detail.items() if each})


def _convert_usage(usage: Mapping[str, Any]) -> Event:
    asked, answered = usage.get("input_token_details") or {}, usage.get("output_token_details") or {}
    return make_usage_event(
        input_tokens=usage.get("input_tokens"),
        output_tokens=usage.get("output_tokens"),
        cached_tokens=asked.get("cached_tokens"),
        input_audio_tokens=asked.get("audio_tokens"),
        output_audio_tokens=answered.get("audio_tokens"),
    )


def _find_event_position(data: Mapping[str, Any], *position_field_names: str) -> dict[str, Any]:
    found: dict[str, Any] = {"item_id": require_text(data["item_id"])} if "item_id" in data else {}
    return {**found, **{name: _require_count(data[name]) for name in position_field_names if name in data}}


def _require_id(given: object) -> str:
    """Return the id of a response or an item; raise `ValueError` if it is too long to keep."""
    if len(found := require_text(given)) > MAX_EVENT_NAME_LENGTH:
        raise ValueError(len(found))
    return found


def _require_count(value: object) -> int:
    if (found := parse_token_count(value)) is None:
        raise TypeError(value)
    return found
