"""OpenAI's Realtime API from the server's side: client events come in, a scripted session's events go out.

Every client event is checked field by field against what OpenAI's own types say; one that does not fit is answered
with OpenAI's `error` event, and the session goes on. `VoiceLoopback` hears, waits and speaks; this only finds the
words, and remembers its session, its items and how long they sound.
"""

import binascii
import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from aiohttp import web

from pramana.loopback import fields as is_
from pramana.loopback.script import Script, answer, bytes_a_second
from pramana.loopback.voice import Agent, Got
from pramana.providers.voice.vocabulary import Format, Message

MODELS = ("gpt-realtime", "gpt-realtime-mini")
LARGEST_AUDIO = 15 << 20
Check = Callable[[Any], bool] | Mapping[str, Any]
"""Whether a value fits, or the fields of an object; one whose name ends with `!` must be there."""


def _sound_format(value: Any) -> bool:
    if not isinstance(value, dict) or value.keys() - {"type", "rate"}:
        return False
    kind, rate = value.get("type"), value.get("rate")
    return rate in (None, 24000) if kind == "audio/pcm" else kind in ("audio/pcmu", "audio/pcma") and rate is None


_SESSION: Check = {
    "type!": is_.one_of("realtime"),
    "audio": {
        "input": {
            "format": _sound_format,
            "noise_reduction": {"type": is_.one_of("near_field", "far_field"), "strength": is_.number},
            "transcription": {
                "model": is_.text,
                "language": is_.text,
                "languages": is_.anything,
                "prompt": is_.text,
                "keywords": is_.anything,
                "delay": is_.one_of("minimal", "low", "medium", "high", "xhigh"),
            },
            "turn_detection": {
                "type!": is_.one_of("server_vad", "semantic_vad"),
                "create_response": is_.flag,
                "interrupt_response": is_.flag,
                "idle_timeout_ms": is_.whole,
                "prefix_padding_ms": is_.whole,
                "silence_duration_ms": is_.whole,
                "threshold": is_.number,
                "eagerness": is_.one_of("low", "medium", "high", "auto"),
            },
        },
        "output": {"format": _sound_format, "speed": is_.number, "voice": is_.text_or_thing},
    },
    "include": is_.anything,
    "instructions": is_.text,
    "max_output_tokens": lambda value: value == "inf" or is_.whole(value),
    "model": is_.text,
    "output_modalities": is_.one_of(["audio"], ["text"]),
    "parallel_tool_calls": is_.flag,
    "prompt": is_.thing,
    "reasoning": is_.thing,
    "tool_choice": is_.text_or_thing,
    "tools": is_.things,
    "tracing": is_.text_or_thing,
    "truncation": is_.text_or_thing,
}
EVENTS: Mapping[str, Mapping[str, Any]] = {
    "session.update": {"session!": _SESSION},
    "input_audio_buffer.append": {"audio!": is_.text},
    "input_audio_buffer.commit": {},
    "input_audio_buffer.clear": {},
    "output_audio_buffer.clear": {},
    "conversation.item.create": {"item!": is_.thing, "previous_item_id": is_.text},
    "conversation.item.delete": {"item_id!": is_.text},
    "conversation.item.retrieve": {"item_id!": is_.text},
    "conversation.item.truncate": {"item_id!": is_.text, "content_index!": is_.whole, "audio_end_ms!": is_.whole},
    "response.create": {"response": is_.thing},
    "response.cancel": {"response_id": is_.text},
}


class RealtimeAgent(Agent):
    """One session."""

    prefix: ClassVar[str] = "/v1"
    path: ClassVar[str] = "/realtime"

    def __init__(self, script: Script, got: Got) -> None:
        super().__init__(script, got)
        self.uplink = Format("pcm", 24000)
        self.downlink = Format("pcm", script.wrong_rate or 24000)
        self.asked = got.query["model"]
        self._ids = itertools.count(1)
        spoken = {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "marin", "speed": 1.0}
        heard = {"format": {"type": "audio/pcm", "rate": 24000}, "transcription": None, "noise_reduction": None}
        self.session: dict[str, Any] = {
            "id": self._id("sess"),
            "object": "realtime.session",
            "type": "realtime",
            "model": self.asked,
            "output_modalities": ["audio"],
            "instructions": "",
            "audio": {"input": {**heard, "turn_detection": {"type": "server_vad"}}, "output": spoken},
            "tools": [],
            "tool_choice": "auto",
            "max_output_tokens": "inf",
        }
        self.lasts_s: dict[str, float] = {}
        """Of every item with sound."""
        self._heard_s = 0.0
        self._asked_item = self._response = self._item = ""
        self._sending, self._transcript = False, ""

    @classmethod
    def refuse(cls, got: Got, key: str | None) -> web.Response | None:
        """Return OpenAI's refusal of an upgrade that does not fit, or None."""
        header = got.headers.get("Authorization")
        if key is not None and header != f"Bearer {key}":
            said = "Incorrect API key provided." if header else "Missing bearer or basic authentication in header"
            return web.json_response(cls.error(401, said), status=401)
        if not got.query.get("model"):
            return web.json_response(cls.error(400, "You must provide a model parameter."), status=400)
        return None

    @classmethod
    def http(cls, got: Got, key: str | None) -> web.Response:
        """Answer for the list of models."""
        if key is not None and got.headers.get("Authorization") != f"Bearer {key}":
            return web.json_response(cls.error(401, "Incorrect API key provided."), status=401)
        if (got.method, got.path) != ("GET", "/models"):
            return web.json_response(cls.error(404, f"Invalid URL ({got.method} {got.path})"), status=404)
        names = (*MODELS, "gpt-4o-transcribe", "gpt-realtime-whisper", "gpt-5")
        listed = [{"id": name, "object": "model", "created": 0, "owned_by": "loopback"} for name in names]
        return web.json_response({"object": "list", "data": listed})

    @classmethod
    def error(cls, status: int, message: str) -> Any:
        """Return the body OpenAI sends with such a status."""
        code = {401: "invalid_api_key", 429: "rate_limit_exceeded"}.get(status)
        kind = "server_error" if status >= 500 else "invalid_request_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": code}}

    # What the client sends

    def opened(self) -> list[Message]:
        """Say that the session exists."""
        return [self._event("session.created", session=self.session)]

    def take(self, message: Message) -> list[Message]:
        """Check one client event and do as it says."""
        try:
            event = json.loads(message)
        except (ValueError, RecursionError):
            return [self._refusal("The event is not valid JSON.", code="invalid_json")]
        if not isinstance(event, dict):
            return [self._refusal("Invalid event: expected an object.", code="invalid_event")]
        own = event.get("event_id")
        kind = event.get("type")
        if not isinstance(kind, str) or kind not in EVENTS:
            said = f"Invalid value: '{kind}'. Supported values are: {', '.join(map(repr, EVENTS))}."
            return [self._refusal(said, code="invalid_value", param="type", event_id=own)]
        fields = {"type": is_.text, "event_id": is_.text, **EVENTS[kind]}
        if wrong := misfit(event, fields):
            return [self._refusal(wrong[0], code=wrong[1], param=wrong[2], event_id=own)]
        return self._obey(kind, event)

    def _obey(self, kind: str, event: Mapping[str, Any]) -> list[Message]:
        match kind:
            case "session.update":
                return self._update(event["session"])
            case "input_audio_buffer.append":
                return self._append(event["audio"])
            case "conversation.item.truncate":
                return self._truncate(event)
            case "conversation.item.create":
                item = {"id": self._id("item"), "object": "realtime.item", "status": "completed", **event["item"]}
                return [self._event(f"conversation.item.{what}", item=item) for what in ("added", "done")]
            case "response.create":
                self.be_ready()
                self.reply()
            case "input_audio_buffer.clear":
                return [self._event("input_audio_buffer.cleared")]
            case "input_audio_buffer.commit":
                self._asked_item = self._id("item")
                return self._committed()
        return []

    def _update(self, given: Mapping[str, Any]) -> list[Message]:
        if given.get("model", self.asked) != self.asked:
            return [self._refusal("The model cannot be changed.", code="invalid_value", param="session.model")]
        self.session = _merged(self.session, given)
        if self.script.wrong_rate:
            self.session["audio"]["output"]["format"] = {"type": "audio/pcm", "rate": self.script.wrong_rate}
        else:
            self.downlink = _format_of(self.session["audio"]["output"]["format"])
        self.uplink = _format_of(self.session["audio"]["input"]["format"])
        self.be_ready()
        return [self._event("session.updated", session=self.session)]

    def _append(self, audio: str) -> list[Message]:
        try:
            frame = binascii.a2b_base64(audio, strict_mode=True)
        except ValueError:
            said = "Invalid 'audio'. Expected base64-encoded audio bytes, but got an invalid value."
            return [self._refusal(said, code="invalid_value", param="audio")]
        if len(frame) > LARGEST_AUDIO:
            return [self._refusal("Invalid 'audio': too long.", code="string_above_max_length", param="audio")]
        self.be_ready()
        self._heard_s += len(frame) / bytes_a_second(self.uplink)
        if self.session["audio"]["input"]["turn_detection"] is not None:
            self.hear(frame)
        return []

    def _truncate(self, event: Mapping[str, Any]) -> list[Message]:
        item, end_ms = event["item_id"], event["audio_end_ms"]
        if item not in self.lasts_s:
            said = f"Item with item_id '{item}' does not exist or has no audio."
            return [self._refusal(said, code="item_truncate_invalid_item_id", param="item_id")]
        if end_ms > (lasts_ms := round(self.lasts_s[item] * 1000)):
            said = f"Audio content of {lasts_ms}ms is already shorter than {end_ms}ms"
            return [self._refusal(said, code="invalid_value", param="audio_end_ms")]
        self.lasts_s[item] = end_ms / 1000
        place = {"item_id": item, "content_index": event["content_index"], "audio_end_ms": end_ms}
        return [self._event("conversation.item.truncated", **place)]

    # What the script lets happen

    def speech_started(self) -> list[Message]:
        """Say where in the caller's sound speech began."""
        self._asked_item = self._id("item")
        at = round(self._heard_s * 1000)
        return [self._event("input_audio_buffer.speech_started", audio_start_ms=at, item_id=self._asked_item)]

    def speech_stopped(self) -> list[Message]:
        """Say where it ended, and take it as an item."""
        at = round(self._heard_s * 1000)
        stopped = self._event("input_audio_buffer.speech_stopped", audio_end_ms=at, item_id=self._asked_item)
        return [stopped, *self._committed()]

    def answer_begins(self) -> list[Message]:
        """Create the response and its item."""
        self._response, self._item, self._sending = self._id("resp"), self._id("item"), True
        self._transcript = ""
        self.lasts_s[self._item] = 0.0
        item = self._answer_item("in_progress", [])
        return [
            self._event("response.created", response=self._response_as("in_progress")),
            self._event("response.output_item.added", response_id=self._response, output_index=0, item=item),
            self._event("conversation.item.added", previous_item_id=self._asked_item or None, item=item),
            self._event("response.content_part.added", **self._place(), part={"type": "audio", "transcript": ""}),
        ]

    def sound(self, chunk: bytes) -> list[Message]:
        """Return a delta of sound."""
        self.lasts_s[self._item] += len(chunk) / bytes_a_second(self.downlink)
        delta = binascii.b2a_base64(chunk, newline=False).decode()
        return [self._event("response.output_audio.delta", **self._place(), delta=delta)]

    def said(self, text: str, *, final: bool) -> list[Message]:
        """Return a delta of the transcript, or all of it."""
        if final:
            return [self._event("response.output_audio_transcript.done", **self._place(), transcript=text)]
        self._transcript += text
        return [self._event("response.output_audio_transcript.delta", **self._place(), delta=text)]

    def heard(self, text: str) -> list[Message]:
        """Return what the caller said, if the session asks for it."""
        if self.session["audio"]["input"]["transcription"] is None:
            return []
        usage = {"type": "tokens", "input_tokens": 10, "output_tokens": len(text.split()), "total_tokens": 10}
        place = {"item_id": self._asked_item, "content_index": 0}
        kind = "conversation.item.input_audio_transcription"
        return [
            self._event(f"{kind}.delta", **place, delta=text),
            self._event(f"{kind}.completed", **place, transcript=text, usage=usage),
        ]

    def answer_ends(self) -> list[Message]:
        """Say of every part that it is done."""
        self._sending = False
        text = self.script.text if self.script.transcript == "with" else ""
        item = self._answer_item("completed", [{"type": "output_audio", "transcript": text}])
        limits = [{"name": "requests", "limit": 1000, "remaining": 999, "reset_seconds": 0.06}]
        return [
            self._event("response.output_audio.done", **self._place()),
            self._event("response.content_part.done", **self._place(), part={"type": "audio", "transcript": text}),
            self._event("response.output_item.done", response_id=self._response, output_index=0, item=item),
            self._event("conversation.item.done", previous_item_id=self._asked_item or None, item=item),
            self._event("response.done", response=self._response_as("completed", item)),
            self._event("rate_limits.updated", rate_limits=limits),
        ]

    def interrupted(self, *, sending: bool) -> list[Message]:
        """Say that the response was cancelled, after what was on its way; of one that was all sent, nothing is said.

        As OpenAI does: the caller's speech is told first, then sound and words of the old response still come, its
        transcript as far as it was written (further than it was heard) and its parts, and last that it is cancelled.
        """
        if not sending or not self._sending:
            return []
        late = [*self.sound(answer(self.script, self.downlink)[-1]), *self.said(" and", final=False)]
        self._sending = False
        item = self._answer_item("incomplete", [{"type": "output_audio", "transcript": self._transcript}])
        part = {"type": "audio", "transcript": self._transcript}
        return [
            *late,
            self._event("response.output_audio.done", **self._place()),
            *self.said(self._transcript, final=True),
            self._event("response.content_part.done", **self._place(), part=part),
            self._event("response.output_item.done", response_id=self._response, output_index=0, item=item),
            self._event("response.done", response=self._response_as("cancelled", item)),
        ]

    # The shapes

    def _committed(self) -> list[Message]:
        content = [{"type": "input_audio", "transcript": None}]
        item: dict[str, Any] = {"id": self._asked_item, "object": "realtime.item", "type": "message", "role": "user"}
        item |= {"status": "completed", "content": content}
        return [
            self._event("input_audio_buffer.committed", previous_item_id=self._item or None, item_id=item["id"]),
            self._event("conversation.item.added", previous_item_id=self._item or None, item=item),
            self._event("conversation.item.done", previous_item_id=self._item or None, item=item),
        ]

    def _answer_item(self, status: str, content: list[Any]) -> dict[str, Any]:
        kind = {"id": self._item, "object": "realtime.item", "type": "message", "role": "assistant"}
        return {**kind, "status": status, "content": content}

    def _response_as(self, status: str, *output: Any) -> dict[str, Any]:
        details: dict[str, Any] | None = None
        usage: dict[str, Any] | None = None
        if status == "cancelled":
            details = {"type": "cancelled", "reason": "turn_detected"}
        if status != "in_progress":
            words = len(self.script.text.split())
            usage = {"total_tokens": 20 + words, "input_tokens": 20, "output_tokens": words}
            usage |= {"input_token_details": {"text_tokens": 5, "audio_tokens": 15, "cached_tokens": 2}}
            usage |= {"output_token_details": {"text_tokens": 1, "audio_tokens": max(0, words - 1)}}
        kind = {"id": self._response, "object": "realtime.response", "status": status, "status_details": details}
        return {**kind, "output": list(output), "output_modalities": ["audio"], "usage": usage, "metadata": None}

    def _place(self) -> dict[str, Any]:
        return {"response_id": self._response, "item_id": self._item, "output_index": 0, "content_index": 0}

    def _id(self, kind: str) -> str:
        return f"{kind}_{next(self._ids)}"

    def _event(self, kind: str, **fields: Any) -> str:
        return json.dumps({"type": kind, "event_id": self._id("event"), **fields})

    def _refusal(self, message: str, *, code: str, param: str | None = None, event_id: Any = None) -> str:
        own = event_id if isinstance(event_id, str) else None
        error = {"type": "invalid_request_error", "code": code, "message": message, "param": param, "event_id": own}
        return self._event("error", error=error)


def misfit(given: Mapping[str, Any], fields: Mapping[str, Any], place: str = "") -> tuple[str, str, str] | None:
    """Return message, code and parameter of OpenAI's error for the first field that does not fit, or None."""
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
            if wrong := misfit(value, check, f"{where}."):
                return wrong
        elif not check(value):
            return f"Invalid value for '{where}'.", "invalid_value", where
    return None


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the old fields with the new ones; only what is given changes, but for what stands whole."""
    whole = ("format", "turn_detection", "transcription", "noise_reduction")
    merged = dict(old)
    for name, value in new.items():
        if value is None and name not in whole[1:]:
            continue
        deeper = isinstance(value, dict) and isinstance(old.get(name), dict) and name not in whole
        merged[name] = _merged(old[name], value) if deeper else value
    return merged


def _format_of(given: Mapping[str, Any]) -> Format:
    codecs = {"audio/pcmu": Format("mulaw", 8000), "audio/pcma": Format("alaw", 8000)}
    return codecs.get(given["type"], Format("pcm", 24000))
