"""A Pipecat bot from the server's side: protobuf frames over a WebSocket, RTVI's messages within them.

Sound goes both ways as frames with their rate; `client-ready` is answered by `bot-ready`, and the bot tells what it
hears and does as RTVI has it. What a client sends is taken to be right: the servers of our tests check it.
"""

import json
from typing import Any

from pramana.loopback.script import Script
from pramana.loopback.voice import Agent, Got
from pramana.providers.voice import pipecat
from pramana.providers.voice.vocabulary import Format, Message

LABEL = "rtvi-ai"
VERSION = "1.4.0"


class PipecatAgent(Agent):
    """One bot."""

    path = r"/.*"

    def __init__(self, script: Script, got: Got) -> None:
        super().__init__(script, got)
        self.asked = f"ws://{got.headers['Host']}{got.path}"
        self.downlink = Format("pcm", script.wrong_rate or 24000)
        self._frames = 0
        self._words = False

    def take(self, message: Message) -> list[Message]:
        kind, fields = pipecat.decode(message) if isinstance(message, bytes) else ("message", {"data": message})
        if kind == "audio":
            sound = fields.get("audio", b"")
            self.hear(sound if isinstance(sound, bytes) else b"")
            return []
        data = json.loads(str(fields["data"]))
        self.be_ready()
        return [self._told("bot-ready", {"version": VERSION, "about": {"library": "loopback"}}, data["id"])]

    def speech_started(self) -> list[Message]:
        return [self._told("user-started-speaking")]

    def speech_stopped(self) -> list[Message]:
        return [self._told("user-stopped-speaking")]

    def answer_begins(self) -> list[Message]:
        self._words = False
        return [self._told("bot-started-speaking")]

    def sound(self, chunk: bytes) -> list[Message]:
        self._frames += 1
        fields: pipecat.Fields = {"id": self._frames, "name": f"OutputAudioRawFrame#{self._frames}", "audio": chunk}
        return [pipecat.encode("audio", {**fields, "sample_rate": self.downlink.rate, "num_channels": 1})]

    def said(self, text: str, *, final: bool) -> list[Message]:
        if final and self._words:
            return []
        self._words = True
        return [self._told("bot-tts-text", {"text": text.strip()})]

    def heard(self, text: str) -> list[Message]:
        words = {"text": text, "user_id": "", "timestamp": "2026-01-01T00:00:00.000+00:00", "final": True}
        return [
            self._told("user-transcription", {**words, "text": text[:4], "final": False}),
            pipecat.encode("transcription", {"id": 1, "name": "TranscriptionFrame#1", "text": text}),
            self._told("user-transcription", words),
        ]

    def answer_ends(self) -> list[Message]:
        tokens = {"tokens": [{"processor": "llm", "prompt_tokens": 21, "completion_tokens": 8}]}
        return [self._told("metrics", tokens), self._told("bot-stopped-speaking")]

    def interrupted(self, *, sending: bool) -> list[Message]:  # noqa: ARG002
        frame = pipecat.encode("interruption", {"id": 2, "name": "InterruptionFrame#2"})
        return [frame, self._told("bot-interrupted")]

    def odd(self, filler: str) -> list[Message]:
        return [self._told("unheard-of", {"filler": filler})]

    def _told(self, kind: str, data: Any = None, number: str | None = None) -> bytes:
        message = {"label": LABEL, "type": kind}
        more = {name: value for name, value in (("id", number), ("data", data)) if value is not None}
        return pipecat.encode("message", {"data": json.dumps({**message, **more})})
