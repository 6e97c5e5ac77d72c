"""Gemini's Live API as strict as the vendor: names are taken in either case, as protobuf's JSON has it.

An invalid message ends the connection with code 1007 and Google's words, because the format has no error message.
"""

import binascii
import json
import re
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from pramana.loopback import live
from pramana.loopback.voice import ReceivedRequest
from pramana.providers.voice.vocabulary import Message

from . import fields as checks

MODELS = ("gemini-live-2.5-flash", "gemini-2.5-flash-native-audio")
_MIME = re.compile(r"audio/pcm(?:;rate=(\d{4,5}))?")
_URL_SAFE = str.maketrans("-_", "+/")
_TRANSCRIPTION = {
    "languageCodes": checks.is_texts,
    "languageHints": checks.is_object,
    "languageAuto": checks.is_object,
    "customVocabulary": checks.is_texts,
    "adaptationPhrases": checks.is_texts,
    "wordTimestamp": checks.is_flag,
    "diarization": checks.is_flag,
    "mode": checks.is_text,
    "sourceText": checks.is_text,
}
_CONTENT = {"role": checks.is_text, "parts": checks.is_objects}
_BLOB = {"data": checks.is_text, "mimeType": checks.is_text, "displayName": checks.is_text}
SETUP: Mapping[str, Any] = {
    "model": checks.is_text,
    "generationConfig": {
        "responseModalities": checks.is_texts,
        "speechConfig": {
            "voiceConfig": {
                "prebuiltVoiceConfig": {"voiceName": checks.is_text},
                "replicatedVoiceConfig": checks.is_object,
            },
            "languageCode": checks.is_text,
            "multiSpeakerVoiceConfig": checks.is_object,
        },
        "temperature": checks.is_number,
        "topP": checks.is_number,
        "topK": checks.is_number,
        "maxOutputTokens": checks.is_number,
        "seed": checks.is_number,
        "mediaResolution": checks.is_text,
        "thinkingConfig": checks.is_object,
        "enableAffectiveDialog": checks.is_flag,
    },
    "systemInstruction": _CONTENT,
    "tools": checks.is_objects,
    "realtimeInputConfig": {
        "automaticActivityDetection": {
            "disabled": checks.is_flag,
            "startOfSpeechSensitivity": checks.is_text,
            "endOfSpeechSensitivity": checks.is_text,
            "prefixPaddingMs": checks.is_number,
            "silenceDurationMs": checks.is_number,
        },
        "activityHandling": checks.is_text,
        "turnCoverage": checks.is_text,
        "interimTranscriptTimestampEnabled": checks.is_flag,
    },
    "sessionResumption": checks.is_object,
    "contextWindowCompression": checks.is_object,
    "inputAudioTranscription": _TRANSCRIPTION,
    "outputAudioTranscription": _TRANSCRIPTION,
    "proactivity": checks.is_object,
    "explicitVadSignal": checks.is_flag,
    "historyConfig": checks.is_object,
    "avatarConfig": checks.is_object,
    "safetySettings": checks.is_objects,
    "translationConfig": checks.is_object,
}
MESSAGES: Mapping[str, Mapping[str, Any]] = {
    "setup": SETUP,
    "clientContent": {"turns": checks.is_objects, "turnComplete": checks.is_flag},
    "realtimeInput": {
        "audio": _BLOB,
        "video": _BLOB,
        "mediaChunks": checks.is_objects,
        "audioStreamEnd": checks.is_flag,
        "text": checks.is_text,
        "activityStart": {},
        "activityEnd": {},
    },
    "toolResponse": {"functionResponses": checks.is_objects},
    "contextUpdate": {"systemInstruction": checks.is_object, "tools": checks.is_anything},
}


class LiveAgent(live.LiveAgent):
    """One session."""

    @classmethod
    def make_upgrade_refusal(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response | None:
        """Return Google's refusal of an upgrade without a key, or None; a wrong one is refused at the setup."""
        given = request.headers.get("x-goog-api-key") or request.query.get("key")
        if accepted_key is not None and given is None:
            said = "Method doesn't allow unregistered callers (callers without established identity)."
            return web.json_response(cls.make_error_body(403, said), status=403)
        return None

    @classmethod
    def answer_http(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response:
        """Answer for the list of models, in pages of two."""
        if accepted_key is not None and request.headers.get("x-goog-api-key") != accepted_key:
            return web.json_response(
                cls.make_error_body(400, "API key not valid. Please pass a valid API key."), status=400
            )
        if request.method != "GET" or not re.fullmatch(r"/v1(alpha|beta)?/models", request.path):
            said = "The requested URL was not found on this server."
            return web.json_response(cls.make_error_body(404, said), status=404)
        listed = [{"name": f"models/{name}", "supportedGenerationMethods": ["bidiGenerateContent"]} for name in MODELS]
        listed.insert(1, {"name": "models/gemini-2.5-pro", "supportedGenerationMethods": ["generateContent"]})
        begin = int(request.query.get("pageToken", "0"))
        more = {"nextPageToken": str(begin + 2)} if begin + 2 < len(listed) else {}
        return web.json_response({"models": listed[begin : begin + 2], **more})

    @classmethod
    def make_error_body(cls, status: int, message: str) -> Any:
        """Return the body Google sends with such a status."""
        words = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
        words |= {429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"}
        return {"error": {"code": status, "message": message, "status": words.get(status, "UNKNOWN")}}

    def handle_message(self, message: Message) -> list[Message]:
        """Check one message and do as it says."""
        try:
            given = to_camel_case(json.loads(message))
        except (ValueError, RecursionError):
            return self._refuse("Invalid JSON payload received. Unexpected token.")
        if not isinstance(given, dict) or len(given) != 1:
            return self._refuse("Request contains an invalid argument.")
        ((name, body),) = given.items()
        if name not in MESSAGES:
            return self._refuse(f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.')
        if not isinstance(body, dict):
            return self._refuse(f"Invalid value at '{name}'")
        if wrong := find_invalid_field(body, MESSAGES[name], name):
            return self._refuse(wrong)
        if (name == "setup") == (self.setup is not None):
            return self._refuse("Request contains an invalid argument.")
        wrong = self._find_setup_problem(body) if name == "setup" else self._find_input_problem(name, body)
        return self._refuse(wrong) if wrong else super().handle_message(json.dumps(given))

    def _find_setup_problem(self, setup: Mapping[str, Any]) -> str | None:
        given = self.request.headers.get("x-goog-api-key") or self.request.query.get("key")
        if self.key is not None and given != self.key:
            return "API key not valid. Please pass a valid API key."
        if not re.fullmatch(r"models/[\w.\-]+", setup.get("model", "")):
            return "Request contains an invalid argument."
        if setup.get("generationConfig", {}).get("responseModalities", ["AUDIO"]) != ["AUDIO"]:
            return "Cannot extract voices from a non-audio request."
        return None

    def _find_input_problem(self, name: str, body: Mapping[str, Any]) -> str | None:
        if name != "realtimeInput":
            return None
        if len(body) != 1:
            return "Request contains an invalid argument."
        for blob in [body["audio"]] if "audio" in body else body.get("mediaChunks", ()):
            if _MIME.fullmatch(str(blob.get("mimeType", ""))) is None:
                return "Unsupported MIME type of the audio"
            try:
                binascii.a2b_base64(str(blob.get("data", "")).translate(_URL_SAFE), strict_mode=True)
            except ValueError:
                return "Invalid value at 'realtime_input.audio.data' (TYPE_BYTES), Base64 decoding failed"
        return None

    def _refuse(self, reason: str, code: int = 1007) -> list[Message]:
        self.hang_up(code, reason)
        return []


def to_camel_case(given: Any) -> Any:
    """Return JSON with every name as protobuf writes it, from either of the ways in which it reads it."""
    if isinstance(given, list):
        return [to_camel_case(each) for each in given]
    if not isinstance(given, dict):
        return given
    return {
        re.sub(r"_([a-z])", lambda found: found[1].upper(), name): to_camel_case(each) for name, each in given.items()
    }


def find_invalid_field(given: Mapping[str, Any], fields: Mapping[str, Any], place: str) -> str | None:
    """Return what Google says about the first invalid field, or None."""
    for name, value in given.items():
        if (check := fields.get(name)) is None:
            return f"Invalid JSON payload received. Unknown name \"{name}\" at '{place}': Cannot find field."
        if isinstance(check, Mapping):
            if not isinstance(value, dict):
                return f"Invalid value at '{place}.{name}'"
            if wrong := find_invalid_field(value, check, f"{place}.{name}"):
                return wrong
        elif not check(value):
            return f"Invalid value at '{place}.{name}'"
    return None
