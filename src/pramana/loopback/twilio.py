"""An agent's server as Twilio Media Streams meets it: whoever calls is Twilio, μ-law in base64 goes both ways.

What comes is checked as a strict reader of Twilio's pages would: every number a text, the sequence without a gap, each
frame 20 ms. What does not fit ends the call. After each answer it asks for a mark, and keeps those that came back.
"""

import base64
import binascii
import json
from typing import Any

from pramana import clock
from pramana.loopback.script import Script
from pramana.loopback.voice import Agent, Got
from pramana.providers.voice.vocabulary import Format, Message

FRAME_BYTES = 160
FRAME_MS = 20
FORMAT = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}


class TwilioAgent(Agent):
    """One stream."""

    path = r"/.*"
    uplink = Format("mulaw", 8000)
    downlink = Format("mulaw", 8000)

    def __init__(self, script: Script, got: Got) -> None:
        super().__init__(script, got)
        self.asked = f"ws://{got.headers['Host']}{got.path}"
        self.downlink = Format("mulaw", script.wrong_rate or 8000)
        self.stream = ""
        self.marks: list[tuple[str, float]] = []
        """Those that came back, and when."""
        self.stopped = False
        self._connected = False
        self._sequence = self._chunks = self._asked_marks = 0

    def take(self, message: Message) -> list[Message]:
        try:
            data = json.loads(message) if isinstance(message, str) else None
        except ValueError:
            data = None
        if not isinstance(data, dict):
            return self._refuse("a message is no JSON object")
        kind = data.get("event")
        if not self._connected:
            if data != {"event": "connected", "protocol": "Call", "version": "1.0.0"}:
                return self._refuse("the first message must be connected")
            self._connected = True
            return []
        self._sequence += 1
        if data.get("sequenceNumber") != str(self._sequence):
            return self._refuse(f"sequenceNumber is {data.get('sequenceNumber')!r}, expected text {self._sequence}")
        if not self.stream:
            return self._start(data)
        if data.get("streamSid") != self.stream or kind == "start":
            return self._refuse("another stream")
        match kind:
            case "media":
                return self._media(data.get("media"))
            case "mark" if isinstance(data.get("mark"), dict) and isinstance(data["mark"].get("name"), str):
                self.marks.append((data["mark"]["name"], clock.monotonic()))
            case "stop" if {"accountSid", "callSid"} == {*data.get("stop", {})}:
                self.stopped = True
            case _:
                return self._refuse(f"the event {kind} does not fit")
        return []

    def sound(self, chunk: bytes) -> list[Message]:
        return [self._said(event="media", media={"payload": base64.b64encode(chunk).decode()})]

    def answer_ends(self) -> list[Message]:
        self._asked_marks += 1
        return [self._said(event="mark", mark={"name": f"answer {self._asked_marks}"})]

    def interrupted(self, *, sending: bool) -> list[Message]:  # noqa: ARG002
        return [self._said(event="clear")]

    def odd(self, filler: str) -> list[Message]:
        return [self._said(event="unheard-of", filler=filler)]

    def _start(self, data: dict[str, Any]) -> list[Message]:
        start = data.get("start")
        if data.get("event") != "start" or not isinstance(start, dict) or start.get("mediaFormat") != FORMAT:
            return self._refuse("the second message must be start, in Twilio's only format")
        known = {"accountSid", "streamSid", "callSid", "tracks", "customParameters", "mediaFormat"}
        if known != {*start} or start["tracks"] != ["inbound"] or start["streamSid"] != data.get("streamSid"):
            return self._refuse("start does not fit")
        if not all(len(start[name]) == 34 for name in ("accountSid", "streamSid", "callSid")):
            return self._refuse("a sid has 34 characters")
        self.stream = start["streamSid"]
        self.be_ready()
        return []

    def _media(self, media: Any) -> list[Message]:
        self._chunks += 1
        expected = {
            "track": "inbound",
            "chunk": str(self._chunks),
            "timestamp": str((self._chunks - 1) * FRAME_MS),
        }
        if not isinstance(media, dict) or {name: media.get(name) for name in expected} != expected:
            return self._refuse(f"media does not fit, expected {expected}")
        try:
            frame = base64.b64decode(media.get("payload", ""), validate=True)
        except (binascii.Error, TypeError, ValueError):
            frame = b""
        if len(frame) != FRAME_BYTES:
            return self._refuse(f"a payload has {len(frame)} bytes, expected {FRAME_BYTES}")
        self.hear(frame)
        return []

    def _said(self, **message: Any) -> str:
        return json.dumps({**message, "streamSid": self.stream})

    def _refuse(self, why: str) -> list[Message]:
        self.hang_up(1008, why[:120])
        return []
