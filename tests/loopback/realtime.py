"""OpenAI's Realtime API as strict as the vendor: every client event is checked field by field against OpenAI's own types.

An invalid one is answered with OpenAI's `error` event, and the session goes on.
"""

import binascii
import json
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from pramana.loopback import realtime
from pramana.loopback.script import Script
from pramana.loopback.voice import ReceivedRequest
from pramana.providers.voice.vocabulary import Message

from . import fields as checks

MODELS = ("gpt-realtime", "gpt-realtime-mini")
LARGEST_AUDIO = 15 << 20
Check = Callable[[Any], bool] | Mapping[str, Any]
"""A check of a value, or the fields of an object; one whose name ends with `!` must be there."""


def _is_sound_format(value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() - {"type", "rate"}:
        return False
    kind, rate = value.get("type"), value.get("rate")
    return rate in (None, 24000) if kind == "audio/pcm" else kind in ("audio/pcmu", "audio/pcma") and rate is None


_SESSION: Check = {
    "type!": checks.one_of("realtime"),
    "audio": {
        "input": {
            "format": _is_sound_format,
            "noise_reduction": {"type": checks.one_of("near_field", "far_field"), "strength": checks.is_number},
            "transcription": {
                "model": checks.is_text,
                "language": checks.is_text,
                "languages": checks.is_anything,
                "prompt": checks.is_text,
                "keywords": checks.is_anything,
                "delay": checks.one_of("minimal", "low", "medium", "high", "xhigh"),
            },
            "turn_detection": {
                "type!": checks.one_of("server_vad", "semantic_vad"),
                "create_response": checks.is_flag,
                "interrupt_response": checks.is_flag,
                "idle_timeout_ms": checks.is_whole_number,
                "prefix_padding_ms": checks.is_whole_number,
                "silence_duration_ms": checks.is_whole_number,
                "threshold": checks.is_number,
                "eagerness": checks.one_of("low", "medium", "high", "auto"),
            },
        },
        "output": {"format": _is_sound_format, "speed": checks.is_number, "voice": checks.is_text_or_object},
    },
    "include": checks.is_anything,
    "instructions": checks.is_text,
    "max_output_tokens": lambda value: value == "inf" or checks.is_whole_number(value),
    "model": checks.is_text,
    "output_modalities": checks.one_of(["audio"], ["text"]),
    "parallel_tool_calls": checks.is_flag,
    "prompt": checks.is_object,
    "reasoning": checks.is_object,
    "tool_choice": checks.is_text_or_object,
    "tools": checks.is_objects,
    "tracing": checks.is_text_or_object,
    "truncation": checks.is_text_or_object,
}
EVENTS: Mapping[str, Mapping[str, Any]] = {
    "session.update": {"session!": _SESSION},
    "input_audio_buffer.append": {"audio!": checks.is_text},
    "input_audio_buffer.commit": {},
    "input_audio_buffer.clear": {},
    "output_audio_buffer.clear": {},
    "conversation.item.create": {"item!": checks.is_object, "previous_item_id": checks.is_text},
    "conversation.item.delete": {"item_id!": checks.is_text},
    "conversation.item.retrieve": {"item_id!": checks.is_text},
    "conversation.item.truncate": {
        "item_id!": checks.is_text,
        "content_index!": checks.is_whole_number,
        "audio_end_ms!": checks.is_whole_number,
    },
    "response.create": {"response": checks.is_object},
    "response.cancel": {"response_id": checks.is_text},
}


class RealtimeAgent(realtime.RealtimeAgent):
    """One session."""

    def __init__(self, script: Script, got: ReceivedRequest) -> None:
        super().__init__(script, got)
        self.lasts_s: dict[str, float] = {}
        """Of every item with sound."""

    @classmethod
    def make_upgrade_refusal(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response | None:
        """Return OpenAI's refusal of an invalid upgrade, or None."""
        header = request.headers.get("Authorization")
        if accepted_key is not None and header != f"Bearer {accepted_key}":
            said = "Incorrect API key provided." if header else "Missing bearer or basic authentication in header"
            return web.json_response(cls.make_error_body(401, said), status=401)
        if not request.query.get("model"):
            return web.json_response(cls.make_error_body(400, "You must provide a model parameter."), status=400)
        return None

    @classmethod
    def answer_http(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response:
        """Answer for the list of models."""
        if accepted_key is not None and request.headers.get("Authorization") != f"Bearer {accepted_key}":
            return web.json_response(cls.make_error_body(401, "Incorrect API key provided."), status=401)
        if (request.method, request.path) != ("GET", "/models"):
            return web.json_response(
                cls.make_error_body(404, f"Invalid URL ({request.method} {request.path})"), status=404
            )
        names = (*MODELS, "gpt-4o-transcribe", "gpt-realtime-whisper", "gpt-5")
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "loopback"} for name in names]
        return web.json_response({"object": "list", "data": listed})

    @classmethod
    def make_error_body(cls, status: int, message: str) -> Any:
        """Return the body OpenAI sends with such a status."""
        code = {401: "invalid_api_key", 429: "rate_limit_exceeded"}.get(status)
        kind = "server_error" if status >= 500 else "invalid_request_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    def handle_message(self, message: Message) -> list[Message]:
        """Check one client event and do as it says."""
        try:
            event = json.loads(message)
        except (ValueError, RecursionError):
            return [self._make_error_event("The event is not valid JSON.", code="invalid_json")]
        if not isinstance(event, dict):
            return [self._make_error_event("Invalid event: expected an object.", code="invalid_event")]
        own = event.get("event_id")
        kind = event.get("type")
        if not isinstance(kind, str) or kind not in EVENTS:
            said = f"Invalid value: '{kind}'. Supported values are: {', '.join(map(repr, EVENTS))}."
            return [self._make_error_event(said, code="invalid_value", param="type", event_id=own)]
        fields = {"type": checks.is_text, "event_id": checks.is_text, **EVENTS[kind]}
        if wrong := find_invalid_field(event, fields):
            return [self._make_error_event(wrong[0], code=wrong[1], param=wrong[2], event_id=own)]
        return self.handle_event(kind, event)

    def handle_event(self, kind: str, event: Mapping[str, Any]) -> list[Message]:
        match kind:
            case "session.update" if event["session"].get("model", self.requested_model) != self.requested_model:
                return [
                    self._make_error_event("The model cannot be changed.", code="invalid_value", param="session.model")
                ]
            case "input_audio_buffer.append":
                try:
                    frame = binascii.a2b_base64(event["audio"], strict_mode=True)
                except ValueError:
                    said = "Invalid 'audio'. Expected base64-encoded audio bytes, but got an invalid value."
                    return [self._make_error_event(said, code="invalid_value", param="audio")]
                if len(frame) > LARGEST_AUDIO:
                    return [
                        self._make_error_event(
                            "Invalid 'audio': too long.", code="string_above_max_length", param="audio"
                        )
                    ]
            case "conversation.item.truncate":
                return self._truncate(event)
            case "conversation.item.create":
                item = {"id": self._next_id("item"), "object": "realtime.item", "status": "completed", **event["item"]}
                return [self._encode_event(f"conversation.item.{what}", item=item) for what in ("added", "done")]
            case "input_audio_buffer.clear":
                return [self._encode_event("input_audio_buffer.cleared")]
            case "input_audio_buffer.commit":
                self._asked_item = self._next_id("item")
                return self._make_caller_item_messages()
        return super().handle_event(kind, event)

    def _truncate(self, event: Mapping[str, Any]) -> list[Message]:
        item, end_ms = event["item_id"], event["audio_end_ms"]
        if item not in self.lasts_s:
            said = f"Item with item_id '{item}' does not exist or has no audio."
            return [self._make_error_event(said, code="item_truncate_invalid_item_id", param="item_id")]
        if end_ms > (lasts_ms := round(self.lasts_s[item] * 1000)):
            said = f"Audio content of {lasts_ms}ms is already shorter than {end_ms}ms"
            return [self._make_error_event(said, code="invalid_value", param="audio_end_ms")]
        self.lasts_s[item] = end_ms / 1000
        place = {"item_id": item, "content_index": event["content_index"], "audio_end_ms": end_ms}
        return [self._encode_event("conversation.item.truncated", **place)]

    def answer_start_messages(self) -> list[Message]:
        messages = super().answer_start_messages()
        self.lasts_s[self._item] = 0.0
        return messages

    def sound_messages(self, chunk: bytes) -> list[Message]:
        self.lasts_s[self._item] += len(chunk) / self.downlink.bytes_per_second
        return super().sound_messages(chunk)

    def _make_error_event(self, message: str, *, code: str, param: str | None = None, event_id: Any = None) -> str:
        own = event_id if isinstance(event_id, str) else None
        error = {"type": "invalid_request_error", "code": code, "message": message, "param": param, "event_id": own}
        return self._encode_event("error", error=error)


def find_invalid_field(
    given: Mapping[str, Any], fields: Mapping[str, Any], place: str = ""
) -> tuple[str, str, str] | None:
    """Return message, code and parameter of OpenAI's error for the first invalid field, or None."""
    known = {name.rstrip("!"): check for name, check in fields.items()}
    for name in fields:
        if name.endswith("!") and name[:-1] not in given:
            where = place + name[:-1]
            return f"Missing required parameter: '{where}'.", "missing_required_parameter", where
    for name, value in given.items():
        where = place + name
        if (check := known.get(name)) is None:
            return f"Unknown parameter: '{where}'.", "unknown_parameter", where
        if value is None:
            continue
        if isinstance(check, Mapping):
            if not isinstance(value, dict):
                return f"Invalid type for '{where}': expected an object.", "invalid_type", where
            if wrong := find_invalid_field(value, check, f"{where}."):
                return wrong
        elif not check(value):
            return f"Invalid value for '{where}'.", "invalid_value", where
    return None
