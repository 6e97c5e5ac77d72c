"""ElevenLabs' agents as strict as the vendor: a client's message is checked against what ElevenLabs' own SDK sends.

An invalid message ends the call. With a key the agent is private: only an address that was signed for it is answered.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from pramana.loopback import declared
from pramana.loopback.declared import SIGNED_URL_TOKEN
from pramana.loopback.voice import ReceivedRequest
from pramana.providers.voice.vocabulary import Message

SIGNED_URL = "/v1/convai/conversation/get-signed-url"
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


class ElevenLabsAgent(declared.ElevenLabsAgent):
    """One conversation."""

    @classmethod
    def make_upgrade_refusal(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response | None:
        if not request.query.get("agent_id"):
            return web.json_response(cls.make_error_body(422, "agent_id is required"), status=422)
        if accepted_key is not None and request.query.get("conversation_signature") != SIGNED_URL_TOKEN:
            return web.json_response(cls.make_error_body(403, "This agent is private; use a signed URL"), status=403)
        return None

    @classmethod
    def answer_http(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response:
        if (request.method, request.path) != ("GET", SIGNED_URL):
            return web.json_response(cls.make_error_body(404, "Not found"), status=404)
        if accepted_key is not None and request.headers.get("xi-api-key") != accepted_key:
            return web.json_response(cls.make_error_body(401, "Invalid API key"), status=401)
        if not request.query.get("agent_id"):
            return web.json_response(cls.make_error_body(422, "agent_id is required"), status=422)
        return super().answer_http(request, accepted_key)

    @classmethod
    def make_error_body(cls, status: int, message: str) -> Any:
        kinds = {401: "invalid_api_key", 403: "forbidden", 429: "too_many_concurrent_requests"}
        return {"detail": {"status": kinds.get(status, "error"), "message": message}}

    def handle_message(self, message: Message) -> list[Message]:
        try:
            data = json.loads(message) if isinstance(message, str) else None
        except ValueError:
            data = None
        wrong = (
            self._find_sound_problem(data)
            if isinstance(data, dict) and "user_audio_chunk" in data
            else self._find_problem(data)
        )
        if wrong:
            self.hang_up(POLICY_VIOLATION, wrong)
            return []
        return super().handle_message(message)

    def _find_problem(self, data: Any) -> str | None:
        if not isinstance(data, dict):
            return "a message is no JSON object"
        kind = data.get("type")
        fields = FIELDS.get(kind) if isinstance(kind, str) else None
        if fields is None:
            return f"unknown type {kind}"
        for name, value in data.items():
            if name != "type" and not (name in fields and isinstance(value, fields[name])):
                return f"{kind}.{name} does not fit"
        if kind == "conversation_initiation_client_data" and self.ready:
            return "the conversation has begun already"
        return None

    def _find_sound_problem(self, data: Mapping[str, Any]) -> str | None:
        try:
            base64.b64decode(data["user_audio_chunk"], validate=True)
        except (binascii.Error, TypeError, ValueError):
            return "user_audio_chunk is no base64"
        if not self.ready or len(data) > 1:
            return "sound before the conversation has begun, or with more beside it"
        return None
