"""Deepgram's voice agent as strict as the vendor: the settings are checked field by field against what it documents.

Invalid settings are answered with its own error and end the call.
"""

import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from pramana.loopback import declared
from pramana.loopback.declared import CODEC_BY_NAME
from pramana.loopback.voice import ReceivedRequest
from pramana.providers.voice.vocabulary import Message

SETTINGS = ("type", "audio", "agent", "tags", "experimental", "flags", "mip_opt_out")
AGENT = ("language", "context", "listen", "think", "think_live", "speak", "greeting")
MESSAGES = ("KeepAlive", "UpdatePrompt", "UpdateSpeak", "UpdateThink", "InjectUserMessage", "InjectAgentMessage")
"""What a client may send beside its settings and sound."""


class DeepgramAgent(declared.DeepgramAgent):
    """One conversation."""

    @classmethod
    def make_upgrade_refusal(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response | None:
        if accepted_key is not None and request.headers.get("Authorization") not in (
            f"Token {accepted_key}",
            f"Bearer {accepted_key}",
        ):
            return web.json_response(cls.make_error_body(401, "Invalid credentials."), status=401)
        return None

    @classmethod
    def make_error_body(cls, status: int, message: str) -> Any:
        codes = {401: "INVALID_AUTH", 402: "ASR_PAYMENT_REQUIRED", 429: "TOO_MANY_REQUESTS"}
        return {"err_code": codes.get(status, "INTERNAL_SERVER_ERROR"), "err_msg": message, "request_id": "loopback"}

    def handle_message(self, message: Message) -> list[Message]:
        if isinstance(message, bytes):
            if not self.ready:
                return self._refuse("BINARY_MESSAGE_BEFORE_SETTINGS", "Sound came before the settings.")
            return super().handle_message(message)
        try:
            data = json.loads(message)
        except ValueError:
            data = None
        if not isinstance(data, dict) or data.get("type") not in ("Settings", *MESSAGES):
            return self._refuse("UNPARSABLE_CLIENT_MESSAGE", "The message fits no type that is known.")
        if data["type"] == "Settings" and self.ready:
            return self._refuse("SETTINGS_ALREADY_APPLIED", "Settings are sent once.")
        if data["type"] == "Settings" and (wrong := find_settings_problem(data)):
            return self._refuse("UNPARSABLE_CLIENT_MESSAGE", wrong)
        return super().handle_message(message)

    def _refuse(self, code: str, why: str) -> list[Message]:
        self.hang_up(1008, code)
        return [json.dumps({"type": "Error", "description": why, "code": code})]


def find_settings_problem(settings: Mapping[str, Any]) -> str | None:
    """Return what is wrong with settings, or None."""
    if extra := settings.keys() - {*SETTINGS}:
        return f"unknown field {min(extra)}"
    audio, agent = settings.get("audio"), settings.get("agent")
    if not isinstance(audio, dict) or not isinstance(agent, dict):
        return "audio and agent are required"
    for side in ("input", "output"):
        form = audio.get(side)
        if (
            not isinstance(form, dict)
            or form.get("encoding") not in CODEC_BY_NAME
            or type(form.get("sample_rate")) is not int
        ):
            return f"audio.{side} needs an encoding and a sample_rate that is an integer"
    if audio["output"].get("container", "none") != "none":
        return "this server sends no container"
    if extra := agent.keys() - {*AGENT}:
        return f"unknown field agent.{min(extra)}"
    for name in ("listen", "think", "speak"):
        provider = agent.get(name, {}).get("provider") if isinstance(agent.get(name), dict) else None
        if not isinstance(provider, dict) or not isinstance(provider.get("type"), str):
            return f"agent.{name}.provider needs a type"
        if not isinstance(provider.get("model"), str):
            return f"agent.{name}.provider needs a model"
    return None
