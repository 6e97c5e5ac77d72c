"""Deepgram's voice agent from the server's side: welcome, settings, then sound as it is and events as JSON.

The settings are checked field by field against what Deepgram documents; what does not fit is answered by its own error
and ends the call. It thinks nothing: the script says what it says.
"""

import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from pramana.loopback.script import Script
from pramana.loopback.voice import Agent, Got
from pramana.providers.voice.vocabulary import Codec, Format, Message

CODECS: Mapping[str, Codec] = {"linear16": "pcm", "mulaw": "mulaw", "alaw": "alaw"}
SETTINGS = ("type", "audio", "agent", "tags", "experimental", "flags", "mip_opt_out")
AGENT = ("language", "context", "listen", "think", "think_live", "speak", "greeting")
MESSAGES = ("KeepAlive", "UpdatePrompt", "UpdateSpeak", "UpdateThink", "InjectUserMessage", "InjectAgentMessage")
"""What a client may send beside its settings and sound."""


class DeepgramAgent(Agent):
    """One conversation."""

    path = "/v1/agent/converse"

    def __init__(self, script: Script, got: Got) -> None:
        super().__init__(script, got)
        self.settings: dict[str, Any] = {}

    @classmethod
    def refuse(cls, got: Got, key: str | None) -> web.Response | None:
        if key is not None and got.headers.get("Authorization") not in (f"Token {key}", f"Bearer {key}"):
            return web.json_response(cls.error(401, "Invalid credentials."), status=401)
        return None

    @classmethod
    def error(cls, status: int, message: str) -> Any:
        codes = {401: "INVALID_AUTH", 402: "ASR_PAYMENT_REQUIRED", 429: "TOO_MANY_REQUESTS"}
        return {"err_code": codes.get(status, "INTERNAL_SERVER_ERROR"), "err_msg": message, "request_id": "loopback"}

    def opened(self) -> list[Message]:
        return [json.dumps({"type": "Welcome", "request_id": "5e0d2c31-0000-4000-8000-000000000000"})]

    def take(self, message: Message) -> list[Message]:
        if isinstance(message, bytes):
            if not self.ready:
                return self._refuse("BINARY_MESSAGE_BEFORE_SETTINGS", "Sound came before the settings.")
            self.hear(message)
            return []
        try:
            data = json.loads(message)
        except ValueError:
            data = None
        if not isinstance(data, dict) or data.get("type") not in ("Settings", *MESSAGES):
            return self._refuse("UNPARSABLE_CLIENT_MESSAGE", "The message fits no type that is known.")
        if data["type"] != "Settings":
            return []
        if self.ready:
            return self._refuse("SETTINGS_ALREADY_APPLIED", "Settings are sent once.")
        if wrong := misfit(data):
            return self._refuse("UNPARSABLE_CLIENT_MESSAGE", wrong)
        self.settings = data
        heard, spoken = data["audio"]["input"], data["audio"]["output"]
        self.uplink = Format(CODECS[heard["encoding"]], heard["sample_rate"])
        self.downlink = Format(CODECS[spoken["encoding"]], self.script.wrong_rate or spoken["sample_rate"])
        self.asked = data["agent"]["think"]["provider"]["model"]
        self.be_ready()
        return [json.dumps({"type": "SettingsApplied"})]

    def speech_started(self) -> list[Message]:
        return [json.dumps({"type": "UserStartedSpeaking"})]

    def answer_begins(self) -> list[Message]:
        took = {"total_latency": 0.31, "tts_latency": 0.11, "ttt_latency": 0.2}
        return [json.dumps({"type": "AgentStartedSpeaking", **took})]

    def sound(self, chunk: bytes) -> list[Message]:
        return [chunk]

    def said(self, text: str, *, final: bool) -> list[Message]:
        return self._words("assistant", text) if final else []

    def heard(self, text: str) -> list[Message]:
        return self._words("user", text)

    def answer_ends(self) -> list[Message]:
        return [json.dumps({"type": "AgentAudioDone"})]

    def _words(self, role: str, text: str) -> list[Message]:
        said = {"type": "ConversationText", "role": role, "content": text, "conversational_behavior": "default"}
        return [json.dumps(said)]

    def _refuse(self, code: str, why: str) -> list[Message]:
        self.hang_up(1008, code)
        return [json.dumps({"type": "Error", "description": why, "code": code})]


def misfit(settings: Mapping[str, Any]) -> str | None:
    """Return what is wrong with settings, or None."""
    if extra := settings.keys() - {*SETTINGS}:
        return f"unknown field {min(extra)}"
    audio, agent = settings.get("audio"), settings.get("agent")
    if not isinstance(audio, dict) or not isinstance(agent, dict):
        return "audio and agent are required"
    for side in ("input", "output"):
        form = audio.get(side)
        if not isinstance(form, dict) or form.get("encoding") not in CODECS or type(form.get("sample_rate")) is not int:
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
