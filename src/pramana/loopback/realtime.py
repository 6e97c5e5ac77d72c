"""The server side of OpenAI's Realtime API: client events come in, the events of a scripted session go out.

`VoiceLoopback` detects speech, waits and sends sound; this module only builds the events and keeps the session. Client
events are not validated: the servers in our tests do that.
"""

import binascii
import itertools
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from pramana.loopback.script import Script, make_answer_sound
from pramana.loopback.voice import Agent, ReceivedRequest
from pramana.providers.voice.vocabulary import Format, Message


class RealtimeAgent(Agent):
    """One session."""

    base_path: ClassVar[str] = "/v1"
    upgrade_path_pattern: ClassVar[str] = "/realtime"

    def __init__(self, script: Script, got: ReceivedRequest) -> None:
        super().__init__(script, got)
        self.uplink = Format("pcm", 24000)
        self.downlink = Format("pcm", script.wrong_rate or 24000)
        self.requested_model = got.query["model"]
        self._ids = itertools.count(1)
        spoken = {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "marin", "speed": 1.0}
        heard = {"format": {"type": "audio/pcm", "rate": 24000}, "transcription": None, "noise_reduction": None}
        self.session: dict[str, Any] = {
            "id": self._next_id("sess"),
            "object": "realtime.session",
            "type": "realtime",
            "model": self.requested_model,
            "output_modalities": ["audio"],
            "instructions": "",
            "audio": {"input": {**heard, "turn_detection": {"type": "server_vad"}}, "output": spoken},
            "tools": [],
            "tool_choice": "auto",
            "max_output_tokens": "inf",
        }
        self._heard_s = 0.0
        self._asked_item = self._response = self._item = ""
        self._sending, self._transcript = False, ""

    # Client events

    def on_open(self) -> list[Message]:
        """Return the event that the session was created."""
        return [self._encode_event("session.created", session=self.session)]

    def handle_message(self, message: Message) -> list[Message]:
        """Handle one client event."""
        event = json.loads(message)
        return self.handle_event(event["type"], event)

    def handle_event(self, kind: str, event: Mapping[str, Any]) -> list[Message]:
        """Handle a client event of the given type."""
        if kind == "session.update":
            return self._update_session(event["session"])
        if kind == "input_audio_buffer.append":
            self._append_audio(binascii.a2b_base64(event["audio"]))
        elif kind == "response.create":
            self.mark_ready()
            self.request_answer()
        return []

    def _update_session(self, changes: Mapping[str, Any]) -> list[Message]:
        self.session = _merge_session(self.session, changes)
        if self.script.wrong_rate:
            self.session["audio"]["output"]["format"] = {"type": "audio/pcm", "rate": self.script.wrong_rate}
        else:
            self.downlink = _parse_format(self.session["audio"]["output"]["format"])
        self.uplink = _parse_format(self.session["audio"]["input"]["format"])
        self.mark_ready()
        return [self._encode_event("session.updated", session=self.session)]

    def _append_audio(self, frame: bytes) -> None:
        self.mark_ready()
        self._heard_s += len(frame) / self.uplink.bytes_per_second
        if self.session["audio"]["input"]["turn_detection"] is not None:
            self.receive_sound(frame)

    # Server events

    def on_speech_start(self) -> list[Message]:
        """Return the event that speech began, at its position in the caller's sound."""
        self._asked_item = self._next_id("item")
        at = round(self._heard_s * 1000)
        return [self._encode_event("input_audio_buffer.speech_started", audio_start_ms=at, item_id=self._asked_item)]

    def on_speech_stop(self) -> list[Message]:
        """Return the event that speech ended, at its position, and commit the sound as an item."""
        at = round(self._heard_s * 1000)
        stopped = self._encode_event("input_audio_buffer.speech_stopped", audio_end_ms=at, item_id=self._asked_item)
        return [stopped, *self._make_caller_item_messages()]

    def answer_start_messages(self) -> list[Message]:
        """Create the response and its item."""
        self._response, self._item, self._sending = self._next_id("resp"), self._next_id("item"), True
        self._transcript = ""
        item = self._make_answer_item("in_progress", [])
        return [
            self._encode_event("response.created", response=self._make_response_resource("in_progress")),
            self._encode_event("response.output_item.added", response_id=self._response, output_index=0, item=item),
            self._encode_event("conversation.item.added", previous_item_id=self._asked_item or None, item=item),
            self._encode_event(
                "response.content_part.added", **self._make_audio_part_ids(), part={"type": "audio", "transcript": ""}
            ),
        ]

    def sound_messages(self, chunk: bytes) -> list[Message]:
        """Return an audio delta."""
        delta = binascii.b2a_base64(chunk, newline=False).decode()
        return [self._encode_event("response.output_audio.delta", **self._make_audio_part_ids(), delta=delta)]

    def agent_transcript_messages(self, text: str, *, final: bool) -> list[Message]:
        """Return a transcript delta, or the whole transcript."""
        if final:
            return [
                self._encode_event(
                    "response.output_audio_transcript.done", **self._make_audio_part_ids(), transcript=text
                )
            ]
        self._transcript += text
        return [self._encode_event("response.output_audio_transcript.delta", **self._make_audio_part_ids(), delta=text)]

    def caller_transcript_messages(self, text: str) -> list[Message]:
        """Return the caller's words, if the session requested transcription."""
        if self.session["audio"]["input"]["transcription"] is None:
            return []
        usage = {"type": "tokens", "input_tokens": 10, "output_tokens": len(text.split()), "total_tokens": 10}
        place = {"item_id": self._asked_item, "content_index": 0}
        kind = "conversation.item.input_audio_transcription"
        return [
            self._encode_event(f"{kind}.delta", **place, delta=text),
            self._encode_event(f"{kind}.completed", **place, transcript=text, usage=usage),
        ]

    def answer_end_messages(self) -> list[Message]:
        """Return the done events of every part."""
        self._sending = False
        text = self.script.text if self.script.transcript == "with" else ""
        item = self._make_answer_item("completed", [{"type": "output_audio", "transcript": text}])
        limits = [{"name": "requests", "limit": 1000, "remaining": 999, "reset_seconds": 0.06}]
        return [
            self._encode_event("response.output_audio.done", **self._make_audio_part_ids()),
            self._encode_event(
                "response.content_part.done", **self._make_audio_part_ids(), part={"type": "audio", "transcript": text}
            ),
            self._encode_event("response.output_item.done", response_id=self._response, output_index=0, item=item),
            self._encode_event("conversation.item.done", previous_item_id=self._asked_item or None, item=item),
            self._encode_event("response.done", response=self._make_response_resource("completed", item)),
            self._encode_event("rate_limits.updated", rate_limits=limits),
        ]

    def on_interruption(self, *, is_sending: bool) -> list[Message]:
        """Return the events of a cancelled response; none about it if it was sent completely.

        The order is OpenAI's: first the caller's speech, then sound and words of the old response that were in flight,
        its transcript as far as it was generated (further than it was heard) and its parts, and last the cancellation.
        """
        if not is_sending or not self._sending:
            return []
        late = [
            *self.sound_messages(make_answer_sound(self.script, self.downlink)[-1]),
            *self.agent_transcript_messages(" and", final=False),
        ]
        self._sending = False
        item = self._make_answer_item("incomplete", [{"type": "output_audio", "transcript": self._transcript}])
        part = {"type": "audio", "transcript": self._transcript}
        return [
            *late,
            self._encode_event("response.output_audio.done", **self._make_audio_part_ids()),
            *self.agent_transcript_messages(self._transcript, final=True),
            self._encode_event("response.content_part.done", **self._make_audio_part_ids(), part=part),
            self._encode_event("response.output_item.done", response_id=self._response, output_index=0, item=item),
            self._encode_event("response.done", response=self._make_response_resource("cancelled", item)),
        ]

    # Message shapes

    def _make_caller_item_messages(self) -> list[Message]:
        content = [{"type": "input_audio", "transcript": None}]
        item: dict[str, Any] = {"id": self._asked_item, "object": "realtime.item", "type": "message", "role": "user"}
        item |= {"status": "completed", "content": content}
        return [
            self._encode_event("input_audio_buffer.committed", previous_item_id=self._item or None, item_id=item["id"]),
            self._encode_event("conversation.item.added", previous_item_id=self._item or None, item=item),
            self._encode_event("conversation.item.done", previous_item_id=self._item or None, item=item),
        ]

    def _make_answer_item(self, status: str, content: list[Any]) -> dict[str, Any]:
        kind = {"id": self._item, "object": "realtime.item", "type": "message", "role": "assistant"}
        return {**kind, "status": status, "content": content}

    def _make_response_resource(self, status: str, *output: Any) -> dict[str, Any]:
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

    def _make_audio_part_ids(self) -> dict[str, Any]:
        return {"response_id": self._response, "item_id": self._item, "output_index": 0, "content_index": 0}

    def _next_id(self, kind: str) -> str:
        return f"{kind}_{next(self._ids)}"

    def _encode_event(self, kind: str, **fields: Any) -> str:
        return json.dumps({"type": kind, "event_id": self._next_id("event"), **fields})


def _merge_session(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the session with the new fields merged in; those in `whole` are replaced entirely, absent ones kept."""
    whole = ("format", "turn_detection", "transcription", "noise_reduction")
    merged = dict(old)
    for name, value in new.items():
        if value is None and name not in whole[1:]:
            continue
        deeper = isinstance(value, dict) and isinstance(old.get(name), dict) and name not in whole
        merged[name] = _merge_session(old[name], value) if deeper else value
    return merged


def _parse_format(audio_format: Mapping[str, Any]) -> Format:
    codecs = {"audio/pcmu": Format("mulaw", 8000), "audio/pcma": Format("alaw", 8000)}
    return codecs.get(audio_format["type"], Format("pcm", 24000))
