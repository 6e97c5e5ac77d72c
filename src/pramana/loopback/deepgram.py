"""Deepgram's voice agent from the server's side: welcome, settings, then sound as it is and events as JSON.

It thinks nothing: the script says what it says. What a client sends is taken to be right: the servers of our tests
check it.
"""

import json
from collections.abc import Mapping
from typing import Any

from pramana.loopback.script import Script
from pramana.loopback.voice import Agent, Got
from pramana.providers.voice.vocabulary import Codec, Format, Message

CODECS: Mapping[str, Codec] = {"linear16": "pcm", "mulaw": "mulaw", "alaw": "alaw"}


class DeepgramAgent(Agent):
    """One conversation."""

    path = "/v1/agent/converse"

    def __init__(self, script: Script, got: Got) -> None:
        super().__init__(script, got)
        self.settings: dict[str, Any] = {}

    def opened(self) -> list[Message]:
        return [json.dumps({"type": "Welcome", "request_id": "5e0d2c31-0000-4000-8000-000000000000"})]

    def take(self, message: Message) -> list[Message]:
        if isinstance(message, bytes):
            self.hear(message)
            return []
        data = json.loads(message)
        if data["type"] != "Settings":
            return []
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
