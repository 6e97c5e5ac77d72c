"""The server side of Gemini's Live API: client messages come in, the messages of a scripted session go out.

Accepts either base64 alphabet, as protobuf's JSON does. Sends everything as binary frames that hold JSON, as Google
does. `VoiceLoopback` detects speech, waits and sends sound; this module only builds the messages. Client messages are
not validated: the servers in our tests do that.
"""

import binascii
import json
from collections.abc import Mapping
from typing import Any, ClassVar

from pramana.loopback.script import Script
from pramana.loopback.voice import Agent, ReceivedRequest
from pramana.providers.voice.vocabulary import Format, Message

_URL_SAFE_TO_STANDARD = str.maketrans("-_", "+/")


class LiveAgent(Agent):
    """One session."""

    upgrade_path_pattern: ClassVar[str] = (
        r"/ws/google\.ai\.generativelanguage\.v1(alpha|beta)?\.GenerativeService\.BidiGenerateContent"
    )

    def __init__(self, script: Script, got: ReceivedRequest) -> None:
        super().__init__(script, got)
        self.uplink = Format("pcm", 16000)
        self.downlink = Format("pcm", script.wrong_rate or 24000)
        self.setup: Mapping[str, Any] | None = None

    # Client messages

    def handle_message(self, message: Message) -> list[Message]:
        """Handle one client message."""
        ((name, body),) = json.loads(message).items()
        if name == "setup":
            self.setup, self.requested_model = body, body["model"].removeprefix("models/")
            self.mark_ready()
            return [_encode_message({"setupComplete": {"sessionId": "session_1"}})]
        if "text" in body or body.get("turnComplete"):
            self.request_answer()
        for blob in [body["audio"]] if "audio" in body else body.get("mediaChunks", ()):
            self.uplink = Format("pcm", int(blob["mimeType"].partition("rate=")[2] or 16000))
            self.receive_sound(binascii.a2b_base64(blob["data"].translate(_URL_SAFE_TO_STANDARD)))
        return []

    # Server messages

    def sound_messages(self, chunk: bytes) -> list[Message]:
        """Return a part of the model's turn with sound."""
        data = binascii.b2a_base64(chunk, newline=False).decode()
        blob = {"mimeType": f"audio/pcm;rate={self.downlink.rate}", "data": data}
        return [_encode_server_content(modelTurn={"parts": [{"inlineData": blob}]})]

    def agent_transcript_messages(self, text: str, *, final: bool) -> list[Message]:
        """Return a piece of the transcript, if the setup requested one; an empty piece marks its end."""
        if self.setup is None or "outputAudioTranscription" not in self.setup:
            return []
        if not final:
            return [_encode_server_content(outputTranscription={"text": text})]
        late = {"text": text} if self.script.transcript == "late" else {}
        return [_encode_server_content(outputTranscription={**late, "finished": True})]

    def caller_transcript_messages(self, text: str) -> list[Message]:
        """Return the caller's words in two pieces, if the setup requested them."""
        if self.setup is None or "inputAudioTranscription" not in self.setup:
            return []
        half = len(text) // 2
        return [_encode_server_content(inputTranscription={"text": piece}) for piece in (text[:half], text[half:])]

    def answer_end_messages(self) -> list[Message]:
        """Return "generation complete", then "turn complete" with the token usage."""
        words = len(self.script.text.split())
        used: dict[str, Any] = {"promptTokenCount": 20, "responseTokenCount": words, "totalTokenCount": 20 + words}
        used["promptTokensDetails"] = [{"modality": "AUDIO", "tokenCount": 15}]
        used["responseTokensDetails"] = [{"modality": "AUDIO", "tokenCount": words}]
        done = {"serverContent": {"turnComplete": True}, "usageMetadata": used}
        return [_encode_server_content(generationComplete=True), _encode_message(done)]

    def on_interruption(self, *, is_sending: bool) -> list[Message]:  # noqa: ARG002 - unused: both cases send the same message
        """Return the interruption, which also ends the turn; as at Google, more of its words come between and after."""
        said = [each for word in (" and", " so on") for each in self.agent_transcript_messages(word, final=False)]
        between, after = said[:1], said[1:]
        return [_encode_server_content(interrupted=True), *between, _encode_server_content(turnComplete=True), *after]

    def unknown_event_messages(self, filler: str) -> list[Message]:
        """Return a message of an unknown type."""
        return [_encode_message({"loopbackUnheardOf": {"filler": filler}})]


def _encode_server_content(**content: Any) -> bytes:
    return _encode_message({"serverContent": content})


def _encode_message(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body).encode()
