"""Vapi's WebSocket transport from the server's side: a call is made by a request, then sound as it is and JSON beside.

Some messages come bare and some within `message`, as there. Nobody says that the call is ready: it is when sound comes.
What a client sends is taken to be right: the servers of our tests check it.
"""

import json
from typing import Any, ClassVar
from uuid import uuid4

from aiohttp import web

from pramana.loopback.script import Script
from pramana.loopback.voice import Agent, Got
from pramana.providers.voice.vocabulary import Codec, Format, Message

CODECS: dict[str, Codec] = {"pcm_s16le": "pcm", "mulaw": "mulaw"}


class VapiAgent(Agent):
    """One call."""

    path = r"/[\w-]+/transport"
    downlink = Format("pcm", 16000)
    _made: ClassVar[dict[str, dict[str, Any]]] = {}
    """The requests that calls were made by, by the ids of the calls."""

    def __init__(self, script: Script, got: Got) -> None:
        super().__init__(script, got)
        request = self._made.get(got.path.split("/")[1], {})
        self.asked = request.get("assistantId", "")
        form = request.get("transport", {}).get("audioFormat", {})
        codec, rate = CODECS.get(form.get("format", ""), "pcm"), form.get("sampleRate", 16000)
        self.uplink, self.downlink = Format(codec, rate), Format(codec, script.wrong_rate or rate)
        self.goodbyes: list[str] = []

    @classmethod
    def refuse(cls, got: Got, key: str | None) -> web.Response | None:  # noqa: ARG003 - the address is the proof
        return None

    @classmethod
    def http(cls, got: Got, key: str | None) -> web.Response:
        call = str(uuid4())
        cls._made[call] = got.body
        transport = {**got.body["transport"], "websocketCallUrl": f"ws://{got.headers['Host']}/{call}/transport"}
        told = {"id": call, "assistantId": got.body["assistantId"], "type": "vapi.websocketCall", "status": "queued"}
        return super().refuse(got, key) or web.json_response({**told, "transport": transport}, status=201)

    def take(self, message: Message) -> list[Message]:
        if isinstance(message, bytes):
            self.be_ready()
            self.hear(message)
        else:
            self.goodbyes.append(json.loads(message)["type"])
        return []

    def speech_started(self) -> list[Message]:
        return self._speech("user", "started")

    def speech_stopped(self) -> list[Message]:
        return self._speech("user", "stopped")

    def answer_begins(self) -> list[Message]:
        return self._speech("assistant", "started")

    def sound(self, chunk: bytes) -> list[Message]:
        return [chunk]

    def said(self, text: str, *, final: bool) -> list[Message]:
        return [self._words("assistant", text, "final" if final else "partial")]

    def heard(self, text: str) -> list[Message]:
        return [json.dumps({"message": json.loads(self._words("user", text, "final"))})]

    def answer_ends(self) -> list[Message]:
        return self._speech("assistant", "stopped")

    def interrupted(self, *, sending: bool) -> list[Message]:  # noqa: ARG002
        return [json.dumps({"type": "user-interrupted"}), *self._speech("assistant", "stopped")]

    def _speech(self, role: str, status: str) -> list[Message]:
        return [json.dumps({"type": "speech-update", "role": role, "status": status, "turn": 0})]

    def _words(self, role: str, text: str, kind: str) -> str:
        return json.dumps({"type": "transcript", "role": role, "transcriptType": kind, "transcript": text})
