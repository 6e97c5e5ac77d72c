"""OpenAI's Realtime API: a caller's sound goes up in events, the answer's sound and words come down in others.

Only translation. The session is set up once the server says that it exists, and the call is ready once it says what
became of that. The names of the beta are understood too. The server talks faster than real time, and a caller who
talks into what still plays interrupts it even if all of it was sent; what then still comes of it, sound or words, was
never heard and is no answer. A request of ours that the server does not like ends no call: most have no effect on it.
"""

import json
from binascii import b2a_base64
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from msgspec.structs import replace

from pramana.model import count
from pramana.providers.accounts import Account
from pramana.providers.failures import MALFORMED_RESPONSE_ERRORS
from pramana.providers.http import Vendor
from pramana.providers.text.openai import BASE_URL, headers_of, models_of
from pramana.providers.voice.frames import (
    LONGEST_NAME,
    SessionWire,
    error_class,
    misfit,
    parse,
    socket_url,
    sound,
    text_of,
    unknown,
    usage_event,
)
from pramana.providers.voice.socket import SocketChannel, connect
from pramana.providers.voice.vocabulary import (
    ChannelCapabilities,
    Dial,
    ErrorClass,
    Event,
    Format,
    Message,
    VoiceCapabilities,
)

VENDOR = "OpenAI"
TRANSCRIBES = "gpt-4o-mini-transcribe"
"""Who writes down the caller, if the parameter `transcription` does not say otherwise."""
_PCM = {"type": "audio/pcm", "rate": 24000}
_FORMATS: Mapping[object, Format] = {
    "audio/pcmu": Format("mulaw", 8000),
    "audio/pcma": Format("alaw", 8000),
    "pcm16": Format("pcm", 24000),
    "g711_ulaw": Format("mulaw", 8000),
    "g711_alaw": Format("alaw", 8000),
}
_RATES = range(8000, 48001)
_MOST_PARTS = 1000
"""Of one response: what is remembered of it may not grow for ever."""
_FORMAT: ErrorClass = "unsupported_format"
_HEARD = "conversation.item.input_audio_transcription"
_OF_A_REQUEST = "invalid_request_error"
"""Of an event that we sent, such as a cut longer than the answer: the session goes on without it."""


NEVER_TAKES = frozenset({"temperature", "top_p", "seed", "stop"})
"""What a session has no place for, though a text model of the same vendor does."""


class Realtime(Vendor):
    """An account at OpenAI, or at whoever speaks its Realtime API."""

    capabilities = VoiceCapabilities(never_takes=NEVER_TAKES)

    vendor, base_url = VENDOR, BASE_URL

    def __init__(self, account: Account) -> None:
        super().__init__(account)
        self._headers = headers_of(account)

    async def dial(self, dial: Dial) -> SocketChannel:
        """Open a call."""
        url = socket_url(self._http.account.base_url, "/realtime", model=dial.model)
        headers = {name: value for name, value in self._headers.items() if name == "Authorization"}
        return await connect(self._http, url, headers, RealtimeWire(dial))

    async def models(self) -> list[str]:
        """Return the names of the models that can be called."""
        names = await models_of(self._http, self._headers)
        others = ("transcribe", "whisper", "translate")
        return [name for name in names if "realtime" in name and not any(other in name for other in others)]


class RealtimeWire(SessionWire):
    """One call, in OpenAI's words."""

    capabilities = ChannelCapabilities(says_interrupted=True)

    def __init__(self, dial: Dial) -> None:
        self.uplink = self.downlink = Format("pcm", 24000)
        self._update = json.dumps({"type": "session.update", "session": _session(dial)})
        detection = dial.parameters.get("turn_detection")
        self._yields = not (isinstance(detection, dict) and detection.get("interrupt_response") is False)
        self._ready = False
        self._response: object = None
        """The id of the response under way."""
        self._last: object = None
        """The id of the response that came last, under way or not."""
        self._stopped: set[object] = set()
        """The ids of responses that were talked into, and of their items: what is still on its way is not heard."""
        self._items: dict[tuple[str, int], float] = {}
        """The response's parts with sound, and their seconds."""
        self._said: set[tuple[str, int]] = set()
        """The response's parts whose words are told."""
        self._sounded = False
        """Sound was sent since the caller last spoke: how much of it is still to be heard, the call knows."""

    def speak(self, frame: bytes) -> list[Message]:
        """Return the message that carries one frame."""
        audio = b2a_base64(frame, newline=False).decode()
        return [f'{{"type":"input_audio_buffer.append","audio":"{audio}"}}']

    def read(self, message: Message) -> list[Event]:
        """Return what a message means."""
        data = parse(VENDOR, message)
        name = data.get("type")
        try:
            if isinstance(name, str):
                if name in _SILENT:
                    return []
                if take := self._READERS.get(name):
                    return take(self, data)
        except MALFORMED_RESPONSE_ERRORS:
            raise misfit(VENDOR, f"does not fit the format of {name}") from None
        return [unknown(name)]

    def interrupted(self, played_s: float) -> list[Message]:
        """Return how much of the answer was heard, so that the model does not take the rest as said."""
        parts, self._items = list(self._items.items()), {}
        cut: list[Message] = []
        for number, ((item, index), sent_s) in enumerate(parts):
            heard_s = min(max(played_s, 0.0), sent_s)
            played_s -= sent_s
            if played_s < 0 or number == len(parts) - 1:
                place = {"audio_end_ms": int(heard_s * 1000 + 1e-6), "content_index": index, "item_id": item}
                cut.append(json.dumps({"type": "conversation.item.truncate", **place}))
        return cut

    def _created(self, data: Mapping[str, Any]) -> list[Event]:
        return [replace(unknown(data["type"]), send=(self._update,))]

    def _updated(self, data: Mapping[str, Any]) -> list[Event]:
        if self._ready:
            return []
        session = data["session"]
        audio = session.get("audio") or {}
        up = _format((audio.get("input") or {}).get("format") or session.get("input_audio_format"))
        down = _format((audio.get("output") or {}).get("format") or session.get("output_audio_format"))
        if up is None or down is None:
            return [Event("error", "the session has a format of sound that is not known here", error=_FORMAT)]
        self.uplink, self.downlink, self._ready = up, down, True
        return [Event("ready", detail={"session": text_of(session.get("id") or "")})]

    def _speech_started(self, data: Mapping[str, Any]) -> list[Event]:
        started = Event("user_speech_start", detail=_places(data, "audio_start_ms"))
        if not self._yields or not (self._response or self._sounded):
            return [started]
        self._stopped |= {self._last, *(item for item, _ in self._items)} - {None}
        self._response, self._sounded = None, False
        return [started, Event("interrupted")]

    def _speech_stopped(self, data: Mapping[str, Any]) -> list[Event]:
        return [Event("user_speech_stop", detail=_places(data, "audio_end_ms"))]

    def _response_created(self, data: Mapping[str, Any]) -> list[Event]:
        self._response = self._last = _id(data["response"]["id"])
        self._items, self._said = {}, set()
        return []

    def _audio(self, data: Mapping[str, Any]) -> list[Event]:
        found = sound(data["delta"], self.downlink)
        if not found or self._is_stopped(data):
            return []
        part = (_id(data["item_id"]), _number(data.get("content_index", 0)))
        self._items[part] = self._items.get(part, 0.0) + len(found) / self.downlink.bytes_a_second
        if len(self._items) > _MOST_PARTS:
            raise ValueError(data["type"])
        self._sounded = True
        return [Event("agent_audio", audio=found)]

    def _words(self, data: Mapping[str, Any]) -> list[Event]:
        said = text_of(data["delta"])
        return [unknown(data["type"], text=said)] if self._is_stopped(data) else [Event("agent_text", said)]

    def _all_words(self, data: Mapping[str, Any]) -> list[Event]:
        """Return the words of one part: a response may have several, and each is told once."""
        said = text_of(data["transcript"] if "transcript" in data else data["text"])
        part = (_id(data.get("item_id", "")), _number(data.get("content_index", 0)))
        if self._is_stopped(data) or part in self._said or len(self._said) > _MOST_PARTS:
            return [unknown(data["type"], text=said)]
        self._said.add(part)
        return [Event("agent_text", said, final=True)]

    def _is_stopped(self, data: Mapping[str, Any]) -> bool:
        named = [data[name] for name in ("response_id", "item_id") if isinstance(data.get(name), str)]
        return not self._stopped.isdisjoint(named)

    def _heard(self, data: Mapping[str, Any]) -> list[Event]:
        delta = data.get("delta")
        return [Event("user_text", text_of(delta), detail=_places(data))] if delta else []

    def _all_heard(self, data: Mapping[str, Any]) -> list[Event]:
        return [Event("user_text", text_of(data["transcript"]), final=True, detail=_places(data))]

    def _not_heard(self, data: Mapping[str, Any]) -> list[Event]:
        return [unknown(data["type"], message=text_of(data["error"].get("message") or ""))]

    def _tool(self, data: Mapping[str, Any]) -> list[Event]:
        asked = {name: text_of(data.get(name) or "") for name in ("name", "call_id", "arguments")}
        return [Event("tool_call", detail=asked)]

    def _done(self, data: Mapping[str, Any]) -> list[Event]:
        response = data["response"]
        status, details = text_of(response.get("status") or "completed"), response.get("status_details") or {}
        reason, failed = details.get("reason"), details.get("error") or {}
        if self._response == response.get("id"):
            self._response = None
        events = []
        if used := response.get("usage"):
            events.append(_usage(used))
        if status == "failed":
            events.append(_error(failed))
        detail = {"reason": text_of(reason)} if reason else {}
        return [*events, Event("turn_done", status, detail=detail)]

    def _error(self, data: Mapping[str, Any]) -> list[Event]:
        found = _error(data["error"])
        if self._ready and found.error == "bad_request" and found.detail.get("type") == _OF_A_REQUEST:
            return [unknown(data["type"], message=found.text, **found.detail)]
        return [found]

    _READERS: ClassVar[Mapping[str, Callable[[Any, Mapping[str, Any]], list[Event]]]] = {
        "session.created": _created,
        "session.updated": _updated,
        "input_audio_buffer.speech_started": _speech_started,
        "input_audio_buffer.speech_stopped": _speech_stopped,
        "response.created": _response_created,
        "response.output_audio.delta": _audio,
        "response.audio.delta": _audio,
        "response.output_audio_transcript.delta": _words,
        "response.audio_transcript.delta": _words,
        "response.output_text.delta": _words,
        "response.text.delta": _words,
        "response.output_audio_transcript.done": _all_words,
        "response.audio_transcript.done": _all_words,
        "response.output_text.done": _all_words,
        "response.text.done": _all_words,
        f"{_HEARD}.delta": _heard,
        f"{_HEARD}.completed": _all_heard,
        f"{_HEARD}.failed": _not_heard,
        "response.function_call_arguments.done": _tool,
        "response.done": _done,
        "error": _error,
    }


_SILENT = frozenset(
    {
        "conversation.created",
        "conversation.item.added",
        "conversation.item.created",
        "conversation.item.done",
        "conversation.item.truncated",
        "input_audio_buffer.committed",
        "rate_limits.updated",
        "response.audio.done",
        "response.content_part.added",
        "response.content_part.done",
        "response.function_call_arguments.delta",
        "response.output_audio.done",
        "response.output_item.added",
        "response.output_item.done",
    }
)
"""Known, and nothing happened to the caller."""


def _session(dial: Dial) -> dict[str, Any]:
    given = {name: value for name, value in dial.parameters.items() if value is not None}
    heard = given.pop("transcription", {"model": TRANSCRIBES, "language": dial.language.partition("-")[0].lower()})
    detection = given.pop("turn_detection", {"type": "server_vad"})
    spoken = {name: given.pop(name) for name in ("voice", "speed") if name in given}
    if "max_tokens" in given:
        given["max_output_tokens"] = given.pop("max_tokens")
    return {
        "type": "realtime",
        "output_modalities": ["audio"],
        "audio": {
            "input": {"format": _PCM, "transcription": heard, "turn_detection": detection},
            "output": {"format": _PCM, **spoken},
        },
        **({"instructions": dial.system_prompt} if dial.system_prompt is not None else {}),
        **given,
    }


def _format(given: Any) -> Format | None:
    """Return a format as a session names it: an object, or in the beta a word; none is PCM, which is the default."""
    if given is None:
        return Format("pcm", 24000)
    if isinstance(given, str):
        return _FORMATS.get(given)
    if given.get("type") != "audio/pcm":
        return _FORMATS.get(given.get("type"))
    rate = given.get("rate", 24000)
    return Format("pcm", rate) if type(rate) is int and rate in _RATES else None


def _error(error: Mapping[str, Any]) -> Event:
    code, kind, parameter = (str(error.get(name) or "") for name in ("code", "type", "param"))
    message = text_of(error.get("message") or "")
    found: ErrorClass
    if "audio" in parameter and "format" in parameter:
        found = _FORMAT
    elif "quota" in code or "billing" in code:
        found = "quota"
    elif kind == _OF_A_REQUEST:
        found = error_class(code, "bad_request")
    else:
        found = error_class(f"{code} {kind}")
    detail = {"code": code, "type": kind, "param": parameter}
    return Event("error", message, error=found, detail={name: each for name, each in detail.items() if each})


def _usage(used: Mapping[str, Any]) -> Event:
    asked, answered = used.get("input_token_details") or {}, used.get("output_token_details") or {}
    return usage_event(
        input_tokens=used.get("input_tokens"),
        output_tokens=used.get("output_tokens"),
        cached_tokens=asked.get("cached_tokens"),
        input_audio_tokens=asked.get("audio_tokens"),
        output_audio_tokens=answered.get("audio_tokens"),
    )


def _places(data: Mapping[str, Any], *more: str) -> dict[str, Any]:
    found: dict[str, Any] = {"item_id": text_of(data["item_id"])} if "item_id" in data else {}
    return {**found, **{name: _number(data[name]) for name in more if name in data}}


def _id(given: object) -> str:
    """Return the name of a response or an item, which is remembered: none is long."""
    if len(found := text_of(given)) > LONGEST_NAME:
        raise ValueError(len(found))
    return found


def _number(given: object) -> int:
    if (found := count(given)) is None:
        raise TypeError(given)
    return found
