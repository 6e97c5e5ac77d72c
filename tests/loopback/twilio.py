"""An agent's server as Twilio Media Streams meets it, strict as a reader of Twilio's pages would be.

Every number is a text, the sequence has no gap, each frame is 20 ms. Anything else ends the call.
"""

import base64
import binascii
import json
from typing import Any

from aiohttp import web

from pramana.loopback import declared
from pramana.loopback.script import Script
from pramana.loopback.voice import ReceivedRequest
from pramana.providers.voice.vocabulary import Message

FRAME_BYTES = 160
FRAME_MS = 20
FORMAT = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}


class TwilioAgent(declared.TwilioAgent):
    """One stream."""

    def __init__(self, script: Script, got: ReceivedRequest) -> None:
        super().__init__(script, got)
        self._connected = False
        self._sequence = self._chunks = 0

    @classmethod
    def make_upgrade_refusal(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response | None:  # noqa: ARG003 - Twilio is let in
        return None

    def handle_message(self, message: Message) -> list[Message]:
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
            wrong = _find_start_problem(data)
            return self._refuse(wrong) if wrong else super().handle_message(message)
        if data.get("streamSid") != self.stream or kind == "start":
            return self._refuse("another stream")
        match kind:
            case "media":
                if wrong := self._find_media_problem(data.get("media")):
                    return self._refuse(wrong)
            case "mark" if isinstance(data.get("mark"), dict) and isinstance(data["mark"].get("name"), str):
                pass
            case "stop" if {"accountSid", "callSid"} == {*data.get("stop", {})}:
                pass
            case _:
                return self._refuse(f"the event {kind} does not fit")
        return super().handle_message(message)

    def _find_media_problem(self, media: Any) -> str | None:
        self._chunks += 1
        expected = {
            "track": "inbound",
            "chunk": str(self._chunks),
            "timestamp": str((self._chunks - 1) * FRAME_MS),
        }
        if not isinstance(media, dict) or {name: media.get(name) for name in expected} != expected:
            return f"media does not fit, expected {expected}"
        try:
            frame = base64.b64decode(media.get("payload", ""), validate=True)
        except (binascii.Error, TypeError, ValueError):
            frame = b""
        if len(frame) != FRAME_BYTES:
            return f"a payload has {len(frame)} bytes, expected {FRAME_BYTES}"
        return None

    def _refuse(self, why: str) -> list[Message]:
        self.hang_up(1008, why[:120])
        return []


def _find_start_problem(data: dict[str, Any]) -> str | None:
    start = data.get("start")
    if data.get("event") != "start" or not isinstance(start, dict) or start.get("mediaFormat") != FORMAT:
        return "the second message must be start, in Twilio's only format"
    known = {"accountSid", "streamSid", "callSid", "tracks", "customParameters", "mediaFormat"}
    if known != {*start} or start["tracks"] != ["inbound"] or start["streamSid"] != data.get("streamSid"):
        return "start does not fit"
    if not all(len(start[name]) == 34 for name in ("accountSid", "streamSid", "callSid")):
        return "a sid has 34 characters"
    return None
