"""The server side of agents that Pramana calls by a description: ElevenLabs, Deepgram, Vapi, Twilio, Pipecat.

They follow the script and generate nothing. Client messages are not validated: the servers in our tests do that.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import quote
from uuid import uuid4

from aiohttp import web

from pramana import clock
from pramana.loopback.script import Script
from pramana.loopback.voice import Agent, ReceivedRequest
from pramana.providers.voice import pipecat
from pramana.providers.voice.vocabulary import Codec, Format, Message

SIGNED_URL_TOKEN = "cvtkn_loopback"
"""The signature in an address that ElevenLabs signed."""
CODEC_BY_NAME: Mapping[str, Codec] = {"linear16": "pcm", "pcm_s16le": "pcm", "mulaw": "mulaw", "alaw": "alaw"}


class ElevenLabsAgent(Agent):
    """A conversation with ElevenLabs: a signed address, a handshake, base64 sound both ways."""

    upgrade_path_pattern = "/v1/convai/conversation"
    uplink = Format("pcm", 16000)
    downlink = Format("pcm", 16000)

    def __init__(self, script: Script, got: ReceivedRequest) -> None:
        super().__init__(script, got)
        self.requested_model = got.query.get("agent_id", "")
        self.downlink = Format("pcm", script.wrong_rate or 16000)
        self.pongs: list[int] = []
        self._event = 0
        self._transcript_sent = False

    @classmethod
    def make_upgrade_refusal(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response | None:  # noqa: ARG003 - unused: the signed URL replaces the key
        return None

    @classmethod
    def answer_http(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response:
        asked = f"agent_id={quote(request.query['agent_id'], safe='')}&conversation_signature={SIGNED_URL_TOKEN}"
        signed = web.json_response({"signed_url": f"ws://{request.headers['Host']}{cls.upgrade_path_pattern}?{asked}"})
        return super().make_upgrade_refusal(request, accepted_key) or signed

    def handle_message(self, message: Message) -> list[Message]:
        data = json.loads(message)
        if "user_audio_chunk" in data:
            self.receive_sound(base64.b64decode(data["user_audio_chunk"]))
        if data.get("type") == "pong":
            self.pongs.append(data["event_id"])
        if data.get("type") != "conversation_initiation_client_data":
            return []
        self.mark_ready()
        event = {
            "conversation_id": "conv_loopback",
            "agent_output_audio_format": f"pcm_{self.downlink.rate}",
            "user_input_audio_format": f"pcm_{self.uplink.rate}",
        }
        begun = {"type": "conversation_initiation_metadata", "conversation_initiation_metadata_event": event}
        return [json.dumps(begun), self._next_ping_message()]

    def answer_start_messages(self) -> list[Message]:
        self._transcript_sent = self.script.transcript == "with"  # the words come before the sound, all at once
        return [self._agent_response_message()] if self._transcript_sent else []

    def sound_messages(self, chunk: bytes) -> list[Message]:
        self._event += 1
        return [self._audio_message(chunk, self._event)]

    def agent_transcript_messages(self, text: str, *, final: bool) -> list[Message]:  # noqa: ARG002 - unused: the script has the words
        return [self._agent_response_message()] if final and not self._transcript_sent else []

    def caller_transcript_messages(self, text: str) -> list[Message]:
        return [json.dumps({"type": "user_transcript", "user_transcription_event": {"user_transcript": text}})]

    def on_speech_start(self) -> list[Message]:
        return [json.dumps({"type": "vad_score", "vad_score_event": {"vad_score": 0.97}})]

    def answer_end_messages(self) -> list[Message]:
        return [json.dumps({"type": "agent_response_complete"}), self._next_ping_message()]

    def on_interruption(self, *, is_sending: bool) -> list[Message]:  # noqa: ARG002 - unused: both cases send the same message
        before = self._event
        self._event += 1
        said = {"original_agent_response": self.script.text, "corrected_agent_response": self.script.text[:5]}
        return [
            json.dumps({"type": "interruption", "interruption_event": {"event_id": self._event}}),
            self._audio_message(b"\1\2" * 160, before),  # was in flight, and must not be played
            json.dumps({"type": "agent_response_correction", "agent_response_correction_event": said}),
        ]

    def _audio_message(self, chunk: bytes, event_id: int) -> str:
        event = {"audio_base_64": base64.b64encode(chunk).decode(), "event_id": event_id}
        return json.dumps({"type": "audio", "audio_event": event})

    def _agent_response_message(self) -> str:
        event = {"agent_response": self.script.text}
        return json.dumps({"type": "agent_response", "agent_response_event": event})

    def _next_ping_message(self) -> str:
        self._event += 1
        return json.dumps({"type": "ping", "ping_event": {"event_id": self._event, "ping_ms": 40}})


class DeepgramAgent(Agent):
    """A conversation with Deepgram: welcome, settings, then raw sound and JSON events."""

    upgrade_path_pattern = "/v1/agent/converse"

    def __init__(self, script: Script, got: ReceivedRequest) -> None:
        super().__init__(script, got)
        self.settings: dict[str, Any] = {}

    def on_open(self) -> list[Message]:
        return [json.dumps({"type": "Welcome", "request_id": "5e0d2c31-0000-4000-8000-000000000000"})]

    def handle_message(self, message: Message) -> list[Message]:
        if isinstance(message, bytes):
            self.receive_sound(message)
            return []
        data = json.loads(message)
        if data["type"] != "Settings":
            return []
        self.settings = data
        heard, spoken = data["audio"]["input"], data["audio"]["output"]
        self.uplink = Format(CODEC_BY_NAME[heard["encoding"]], heard["sample_rate"])
        self.downlink = Format(CODEC_BY_NAME[spoken["encoding"]], self.script.wrong_rate or spoken["sample_rate"])
        self.requested_model = data["agent"]["think"]["provider"]["model"]
        self.mark_ready()
        return [json.dumps({"type": "SettingsApplied"})]

    def on_speech_start(self) -> list[Message]:
        return [json.dumps({"type": "UserStartedSpeaking"})]

    def answer_start_messages(self) -> list[Message]:
        took = {"total_latency": 0.31, "tts_latency": 0.11, "ttt_latency": 0.2}
        return [json.dumps({"type": "AgentStartedSpeaking", **took})]

    def sound_messages(self, chunk: bytes) -> list[Message]:
        return [chunk]

    def agent_transcript_messages(self, text: str, *, final: bool) -> list[Message]:
        return self._conversation_text("assistant", text) if final else []

    def caller_transcript_messages(self, text: str) -> list[Message]:
        return self._conversation_text("user", text)

    def answer_end_messages(self) -> list[Message]:
        return [json.dumps({"type": "AgentAudioDone"})]

    def _conversation_text(self, role: str, text: str) -> list[Message]:
        said = {"type": "ConversationText", "role": role, "content": text, "conversational_behavior": "default"}
        return [json.dumps(said)]


class VapiAgent(Agent):
    """A call over Vapi's WebSocket transport: created by a request, then raw sound with JSON messages in between.

    As with Vapi, some messages come bare and some wrapped in `message`. No message announces that the call is ready: it
    is ready once sound arrives.
    """

    upgrade_path_pattern = r"/[\w-]+/transport"
    downlink = Format("pcm", 16000)
    _creation_body_by_call_id: ClassVar[dict[str, dict[str, Any]]] = {}
    """The requests that created calls, by call id."""

    def __init__(self, script: Script, got: ReceivedRequest) -> None:
        super().__init__(script, got)
        request = self._creation_body_by_call_id.get(got.path.split("/")[1], {})
        self.requested_model = request.get("assistantId", "")
        form = request.get("transport", {}).get("audioFormat", {})
        codec, rate = CODEC_BY_NAME.get(form.get("format", ""), "pcm"), form.get("sampleRate", 16000)
        self.uplink, self.downlink = Format(codec, rate), Format(codec, script.wrong_rate or rate)
        self.goodbyes: list[str] = []

    @classmethod
    def make_upgrade_refusal(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response | None:  # noqa: ARG003 - unused: the signed URL replaces the key
        return None

    @classmethod
    def answer_http(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response:
        call = str(uuid4())
        cls._creation_body_by_call_id[call] = request.body
        transport = {
            **request.body["transport"],
            "websocketCallUrl": f"ws://{request.headers['Host']}/{call}/transport",
        }
        told = {
            "id": call,
            "assistantId": request.body["assistantId"],
            "type": "vapi.websocketCall",
            "status": "queued",
        }
        return super().make_upgrade_refusal(request, accepted_key) or web.json_response(
            {**told, "transport": transport}, status=201
        )

    def handle_message(self, message: Message) -> list[Message]:
        if isinstance(message, bytes):
            self.mark_ready()
            self.receive_sound(message)
        else:
            self.goodbyes.append(json.loads(message)["type"])
        return []

    def on_speech_start(self) -> list[Message]:
        return self._make_speech_update_messages("user", "started")

    def on_speech_stop(self) -> list[Message]:
        return self._make_speech_update_messages("user", "stopped")

    def answer_start_messages(self) -> list[Message]:
        return self._make_speech_update_messages("assistant", "started")

    def sound_messages(self, chunk: bytes) -> list[Message]:
        return [chunk]

    def agent_transcript_messages(self, text: str, *, final: bool) -> list[Message]:
        return [self._transcript_message("assistant", text, "final" if final else "partial")]

    def caller_transcript_messages(self, text: str) -> list[Message]:
        return [json.dumps({"message": json.loads(self._transcript_message("user", text, "final"))})]

    def answer_end_messages(self) -> list[Message]:
        return self._make_speech_update_messages("assistant", "stopped")

    def on_interruption(self, *, is_sending: bool) -> list[Message]:  # noqa: ARG002
        return [json.dumps({"type": "user-interrupted"}), *self._make_speech_update_messages("assistant", "stopped")]

    def _make_speech_update_messages(self, role: str, status: str) -> list[Message]:
        return [json.dumps({"type": "speech-update", "role": role, "status": status, "turn": 0})]

    def _transcript_message(self, role: str, text: str, transcript_type: str) -> str:
        return json.dumps({"type": "transcript", "role": role, "transcriptType": transcript_type, "transcript": text})


class TwilioAgent(Agent):
    """An agent's server as Twilio Media Streams calls it: the client is Twilio, base64 μ-law goes both ways.

    Sends a mark after each answer and keeps those that come back.
    """

    upgrade_path_pattern = r"/.*"
    uplink = Format("mulaw", 8000)
    downlink = Format("mulaw", 8000)

    def __init__(self, script: Script, got: ReceivedRequest) -> None:
        super().__init__(script, got)
        self.requested_model = f"ws://{got.headers['Host']}{got.path}"
        self.downlink = Format("mulaw", script.wrong_rate or 8000)
        self.stream = ""
        self.marks: list[tuple[str, float]] = []
        """The marks that came back, and when."""
        self.stopped = False
        self._asked_marks = 0

    def handle_message(self, message: Message) -> list[Message]:
        data = json.loads(message)
        match data["event"]:
            case "start":
                self.stream = data["start"]["streamSid"]
                self.mark_ready()
            case "media":
                self.receive_sound(base64.b64decode(data["media"]["payload"]))
            case "mark":
                self.marks.append((data["mark"]["name"], clock.monotonic()))
            case "stop":
                self.stopped = True
        return []

    def sound_messages(self, chunk: bytes) -> list[Message]:
        return [self._encode_message(event="media", media={"payload": base64.b64encode(chunk).decode()})]

    def answer_end_messages(self) -> list[Message]:
        self._asked_marks += 1
        return [self._encode_message(event="mark", mark={"name": f"answer {self._asked_marks}"})]

    def on_interruption(self, *, is_sending: bool) -> list[Message]:  # noqa: ARG002
        return [self._encode_message(event="clear")]

    def unknown_event_messages(self, filler: str) -> list[Message]:
        return [self._encode_message(event="unheard-of", filler=filler)]

    def _encode_message(self, **message: Any) -> str:
        return json.dumps({**message, "streamSid": self.stream})


class PipecatAgent(Agent):
    """A Pipecat bot: protobuf frames over a WebSocket, with RTVI messages inside.

    Sound goes both ways as frames that state their rate. The bot replies to `client-ready` with `bot-ready` and reports
    recognised text and its own state as RTVI messages.
    """

    upgrade_path_pattern = r"/.*"

    def __init__(self, script: Script, got: ReceivedRequest) -> None:
        super().__init__(script, got)
        self.requested_model = f"ws://{got.headers['Host']}{got.path}"
        self.downlink = Format("pcm", script.wrong_rate or 24000)
        self._frames = 0
        self._words = False

    def handle_message(self, message: Message) -> list[Message]:
        kind, fields = pipecat.decode_frame(message) if isinstance(message, bytes) else ("message", {"data": message})
        if kind == "audio":
            sound = fields.get("audio", b"")
            self.receive_sound(sound if isinstance(sound, bytes) else b"")
            return []
        data = json.loads(str(fields["data"]))
        self.mark_ready()
        return [self._rtvi_message("bot-ready", {"version": "1.4.0", "about": {"library": "loopback"}}, data["id"])]

    def on_speech_start(self) -> list[Message]:
        return [self._rtvi_message("user-started-speaking")]

    def on_speech_stop(self) -> list[Message]:
        return [self._rtvi_message("user-stopped-speaking")]

    def answer_start_messages(self) -> list[Message]:
        self._words = False
        return [self._rtvi_message("bot-started-speaking")]

    def sound_messages(self, chunk: bytes) -> list[Message]:
        self._frames += 1
        fields: pipecat.Fields = {"id": self._frames, "name": f"OutputAudioRawFrame#{self._frames}", "audio": chunk}
        return [pipecat.encode_frame("audio", {**fields, "sample_rate": self.downlink.rate, "num_channels": 1})]

    def agent_transcript_messages(self, text: str, *, final: bool) -> list[Message]:
        if final and self._words:
            return []
        self._words = True
        return [self._rtvi_message("bot-tts-text", {"text": text.strip()})]

    def caller_transcript_messages(self, text: str) -> list[Message]:
        words = {"text": text, "user_id": "", "timestamp": "2026-01-01T00:00:00.000+00:00", "final": True}
        return [
            self._rtvi_message("user-transcription", {**words, "text": text[:4], "final": False}),
            pipecat.encode_frame("transcription", {"id": 1, "name": "TranscriptionFrame#1", "text": text}),
            self._rtvi_message("user-transcription", words),
        ]

    def answer_end_messages(self) -> list[Message]:
        tokens = {"tokens": [{"processor": "llm", "prompt_tokens": 21, "completion_tokens": 8}]}
        return [self._rtvi_message("metrics", tokens), self._rtvi_message("bot-stopped-speaking")]

    def on_interruption(self, *, is_sending: bool) -> list[Message]:  # noqa: ARG002
        frame = pipecat.encode_frame("interruption", {"id": 2, "name": "InterruptionFrame#2"})
        return [frame, self._rtvi_message("bot-interrupted")]

    def unknown_event_messages(self, filler: str) -> list[Message]:
        return [self._rtvi_message("unheard-of", {"filler": filler})]

    def _rtvi_message(self, kind: str, data: Any = None, message_id: str | None = None) -> bytes:
        message = {"label": "rtvi-ai", "type": kind}
        more = {name: value for name, value in (("id", message_id), ("data", data)) if value is not None}
        return pipecat.encode_frame("message", {"data": json.dumps({**message, **more})})
