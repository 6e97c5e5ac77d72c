"""ElevenLabs' agents from the server's side: the signed address, the handshake, sound in base64 both ways.

What a client sends is taken to be right: the servers of our tests check it.
"""

import base64
import json
from urllib.parse import quote

from aiohttp import web

from pramana.loopback.script import Script
from pramana.loopback.voice import Agent, Got
from pramana.providers.voice.vocabulary import Format, Message

SIGNATURE = "cvtkn_loopback"


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
    def refuse(cls, got: Got, key: str | None) -> web.Response | None:  # noqa: ARG003 - the address is signed
        return None

    @classmethod
    def http(cls, got: Got, key: str | None) -> web.Response:
        asked = f"agent_id={quote(got.query['agent_id'], safe='')}&conversation_signature={SIGNATURE}"
        signed = web.json_response({"signed_url": f"ws://{got.headers['Host']}{cls.path}?{asked}"})
        return super().refuse(got, key) or signed

    def take(self, message: Message) -> list[Message]:
        data = json.loads(message)
        if "user_audio_chunk" in data:
            self.hear(base64.b64decode(data["user_audio_chunk"]))
        if data.get("type") == "pong":
            self.pongs.append(data["event_id"])
        if data.get("type") != "conversation_initiation_client_data":
            return []
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

    def _audio(self, chunk: bytes, number: int) -> str:
        event = {"audio_base_64": base64.b64encode(chunk).decode(), "event_id": number}
        return json.dumps({"type": "audio", "audio_event": event})

    def _words(self) -> str:
        event = {"agent_response": self.script.text}
        return json.dumps({"type": "agent_response", "agent_response_event": event})

    def _ping(self) -> str:
        self._event += 1
        return json.dumps({"type": "ping", "ping_event": {"event_id": self._event, "ping_ms": 40}})
