"""ElevenLabs' agents from the server's side: the signed address, the handshake, sound in base64 both ways.

A client's message is checked field by field against what ElevenLabs' own SDK sends; what does not fit ends the call, as
there. With a key the agent is private: only an address that was signed for it is answered.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from aiohttp import web

from pramana.loopback.script import Script
from pramana.loopback.voice import Agent, Got
from pramana.providers.voice.vocabulary import Format, Message

SIGNED_URL = "/v1/convai/conversation/get-signed-url"
SIGNATURE = "cvtkn_loopback"
POLICY_VIOLATION = 1008
FIELDS: Mapping[str, Mapping[str, type]] = {
    "conversation_initiation_client_data": {
        "custom_llm_extra_body": dict,
        "conversation_config_override": dict,
        "dynamic_variables": dict,
        "source_info": dict,
        "user_id": str,
    },
    "pong": {"event_id": int},
    "user_message": {"text": str},
    "user_activity": {},
    "contextual_update": {"text": str},
    "client_tool_result": {"tool_call_id": str, "result": object, "is_error": bool},
    "feedback": {"event_id": int, "score": str},
}
"""What a client may send beside sound, and the types of its fields."""


class ElevenLabsAgent(Agent):
    """One conversation."""

    path = "/v1/convai/conversation"
    uplink = Format("pcm", 16000)
    downlink = Format("pcm", 16000)

    def __init__(self, script: Script, got: Got) -> None:
        super().__init__(script, got)
        self.asked = got.query.get("agent_id", "")
        self.downlink = Format("pcm", script.wrong_rate or 16000)
        self.pongs: list[int] = []
        self._event = 0
        self._said = False

    @classmethod
    def refuse(cls, got: Got, key: str | None) -> web.Response | None:
        if not got.query.get("agent_id"):
            return web.json_response(cls.error(422, "agent_id is required"), status=422)
        if key is not None and got.query.get("conversation_signature") != SIGNATURE:
            return web.json_response(cls.error(403, "This agent is private; use a signed URL"), status=403)
        return None

    @classmethod
    def http(cls, got: Got, key: str | None) -> web.Response:
        if (got.method, got.path) != ("GET", SIGNED_URL):
            return super().http(got, key)
        if key is not None and got.headers.get("xi-api-key") != key:
            return web.json_response(cls.error(401, "Invalid API key"), status=401)
        if not (agent := got.query.get("agent_id")):
            return web.json_response(cls.error(422, "agent_id is required"), status=422)
        asked = f"agent_id={quote(agent, safe='')}&conversation_signature={SIGNATURE}"
        return web.json_response({"signed_url": f"ws://{got.headers['Host']}{cls.path}?{asked}"})

    @classmethod
    def error(cls, status: int, message: str) -> Any:
        kinds = {401: "invalid_api_key", 403: "forbidden", 429: "too_many_concurrent_requests"}
        return {"detail": {"status": kinds.get(status, "error"), "message": message}}

    def take(self, message: Message) -> list[Message]:
        try:
            data = json.loads(message) if isinstance(message, str) else None
        except ValueError:
            data = None
        if not isinstance(data, dict):
            return self._refuse("a message is no JSON object")
        if "user_audio_chunk" in data:
            return self._take_sound(data)
        kind = data.get("type")
        fields = FIELDS.get(kind) if isinstance(kind, str) else None
        if fields is None:
            return self._refuse(f"unknown type {kind}")
        for name, value in data.items():
            if name != "type" and not (name in fields and isinstance(value, fields[name])):
                return self._refuse(f"{kind}.{name} does not fit")
        if kind == "pong":
            self.pongs.append(data["event_id"])
        if kind != "conversation_initiation_client_data":
            return []
        if self.ready:
            return self._refuse("the conversation has begun already")
        self.be_ready()
        event = {
            "conversation_id": "conv_loopback",
            "agent_output_audio_format": f"pcm_{self.downlink.rate}",
            "user_input_audio_format": f"pcm_{self.uplink.rate}",
        }
        begun = {"type": "conversation_initiation_metadata", "conversation_initiation_metadata_event": event}
        return [json.dumps(begun), self._ping()]

    def answer_begins(self) -> list[Message]:
        self._said = self.script.transcript == "with"  # the words come before the sound, and all at once
        return [self._words()] if self._said else []

    def sound(self, chunk: bytes) -> list[Message]:
        self._event += 1
        return [self._audio(chunk, self._event)]

    def said(self, text: str, *, final: bool) -> list[Message]:  # noqa: ARG002 - the words are known
        return [self._words()] if final and not self._said else []

    def heard(self, text: str) -> list[Message]:
        return [json.dumps({"type": "user_transcript", "user_transcription_event": {"user_transcript": text}})]

    def speech_started(self) -> list[Message]:
        return [json.dumps({"type": "vad_score", "vad_score_event": {"vad_score": 0.97}})]

    def answer_ends(self) -> list[Message]:
        return [json.dumps({"type": "agent_response_complete"}), self._ping()]

    def interrupted(self, *, sending: bool) -> list[Message]:  # noqa: ARG002 - one word for both
        before = self._event
        self._event += 1
        said = {"original_agent_response": self.script.text, "corrected_agent_response": self.script.text[:5]}
        return [
            json.dumps({"type": "interruption", "interruption_event": {"event_id": self._event}}),
            self._audio(b"\1\2" * 160, before),  # was under way, and must not be played
            json.dumps({"type": "agent_response_correction", "agent_response_correction_event": said}),
        ]

    def _take_sound(self, data: dict[str, Any]) -> list[Message]:
        try:
            frame = base64.b64decode(data["user_audio_chunk"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            return self._refuse("user_audio_chunk is no base64")
        if not self.ready or len(data) > 1:
            return self._refuse("sound before the conversation has begun, or with more beside it")
        self.hear(frame)
        return []

    def _audio(self, chunk: bytes, number: int) -> str:
        event = {"audio_base_64": base64.b64encode(chunk).decode(), "event_id": number}
        return json.dumps({"type": "audio", "audio_event": event})

    def _words(self) -> str:
        event = {"agent_response": self.script.text}
        return json.dumps({"type": "agent_response", "agent_response_event": event})

    def _ping(self) -> str:
        self._event += 1
        return json.dumps({"type": "ping", "ping_event": {"event_id": self._event, "ping_ms": 40}})

    def _refuse(self, why: str) -> list[Message]:
        self.hang_up(POLICY_VIOLATION, why)
        return []
