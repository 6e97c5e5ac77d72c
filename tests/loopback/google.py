"""Google's wire format from the server's side: generateContent, streamed and not, and the list of models.

A request is checked field by field against what Google documents; an invalid one is answered with Google's own
error. Tokens are counted as words, answers are prepared once and sent many times. It remembers nothing.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pramana.loopback.voice import ReceivedRequest

from .responses import split_pieces
from .server import Answer, Fault, ScriptedToolCall, Vendor, make_event

FIELDS = (
    "contents",
    "systemInstruction",
    "generationConfig",
    "safetySettings",
    "tools",
    "toolConfig",
    "cachedContent",
    "continuationToken",
    "labels",
    "serviceTier",
    "store",
)
_NUMBER = ("TYPE_FLOAT", lambda value: type(value) in (int, float))
_INTEGER = ("TYPE_INT32", lambda value: type(value) in (int, float) and value == int(value))
_TEXTS = ("TYPE_STRING", lambda value: type(value) is list and all(type(each) is str for each in value))
_ANY = ("", lambda _: True)
CONFIG: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "temperature": _NUMBER,
    "topP": _NUMBER,
    "topK": _NUMBER,
    "candidateCount": _INTEGER,
    "maxOutputTokens": _INTEGER,
    "stopSequences": _TEXTS,
    "responseLogprobs": ("TYPE_BOOL", lambda value: type(value) is bool),
    "logprobs": _INTEGER,
    "presencePenalty": _NUMBER,
    "frequencyPenalty": _NUMBER,
    "seed": _INTEGER,
    "responseMimeType": ("TYPE_STRING", lambda value: type(value) is str),
    "responseSchema": _ANY,
    "responseJsonSchema": _ANY,
    "responseModalities": _TEXTS,
    "mediaResolution": _ANY,
    "speechConfig": _ANY,
    "thinkingConfig": _ANY,
    "imageConfig": _ANY,
    "enableEnhancedCivicAnswers": _ANY,
    "audioTranscriptionConfig": _ANY,
}
RANGES: Mapping[str, tuple[float, float]] = {"temperature": (0, 2), "topP": (0, 1), "maxOutputTokens": (1, 1 << 30)}
_ASKED = re.compile(r"/v1/(?P<model>[^:]+):(?P<method>generateContent|streamGenerateContent)")
_WORDS: Mapping[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
}


class GoogleWire(Vendor):
    """What Google's server answers: one text to all, or what a function makes of the contents."""

    base_path = ""

    def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:
        """Check the request field by field and answer it."""
        if self.key is not None and (given := got.headers.get("x-goog-api-key")) != self.key:
            if given is None:
                return self._refuse(403, "Method doesn't allow unregistered callers. Please use API Key.")
            return self._refuse(400, "API key not valid. Please pass a valid API key.")
        if (got.method, got.path) == ("GET", "/v1/models"):
            return self._list_models(got)
        asked = _ASKED.fullmatch(got.path)
        if got.method != "POST" or asked is None:
            return self._refuse(404, "The requested URL was not found on this server.")
        body = got.body
        if not isinstance(body, dict) or not got.headers.get("Content-Type", "").startswith("application/json"):
            return self._refuse(400, "Invalid JSON payload received.")
        if wrong := find_invalid_field(body):
            return self._refuse(400, wrong)
        model = asked["model"].removeprefix("models/")
        if not self.has_model(model):
            return self._refuse(404, f"models/{model} is not found for API version v1")
        kind = fault.kind if fault else None
        if kind == "unpaid":
            unpaid = self.make_error_body(
                403, "This API method requires billing to be enabled. Please enable it on project #7."
            )
            kind_of_detail = "type.googleapis.com/google.rpc.ErrorInfo"
            detail = {"@type": kind_of_detail, "reason": "BILLING_DISABLED", "domain": "googleapis.com"}
            unpaid["error"]["details"] = [{**detail, "metadata": {"consumer": "projects/7"}}]
            return Answer.of(unpaid, 403)
        stream = asked["method"] == "streamGenerateContent" and kind != "plain"
        system = (body.get("systemInstruction") or {}).get("parts") or []
        words = _count_words(system) + sum(_count_words(each["parts"]) for each in body["contents"])
        limit = (body.get("generationConfig") or {}).get("maxOutputTokens")
        if stream and got.query.get("alt") != "sse":
            return self._refuse(501, "Only server-sent events are served here: alt=sse")
        return _make_answer(model, self.text(body["contents"], fault), words, limit, stream, kind, self.calls)

    def make_error_body(self, status: int, message: str, *, parameter: str | None = None) -> Any:
        """Return the body Google sends with such a status."""
        if parameter:
            name = re.sub(r"_(\w)", lambda found: found[1].upper(), parameter)
            message = (
                f"Invalid JSON payload received. Unknown name \"{name}\" at 'generation_config': Cannot find field."
            )
        return {"error": {"code": status, "message": message, "status": _WORDS.get(status, "UNKNOWN")}}

    def _refuse(self, status: int, message: str) -> Answer:
        return Answer.of(self.make_error_body(status, message), status)

    def _list_models(self, got: ReceivedRequest) -> Answer:
        size = min(int(got.query.get("pageSize", "50")), self.page)
        begin = int(got.query.get("pageToken", "0"))
        methods = ["generateContent", "countTokens"]
        shown = [
            {"name": f"models/{each}", "version": "1", "displayName": each, "supportedGenerationMethods": methods}
            for each in self.models
        ]
        shown.append({"name": "models/loopback-embedding", "supportedGenerationMethods": ["embedContent"]})
        more = {"nextPageToken": str(begin + size)} if begin + size < len(shown) else {}
        return Answer.of({"models": shown[begin : begin + size], **more})


def find_invalid_field(body: Mapping[str, Any]) -> str | None:
    """Return what Google says about the first invalid field, or None."""
    for name in body:
        if name not in FIELDS:
            return f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
    config = body.get("generationConfig", {})
    for name, value in config.items() if isinstance(config, dict) else ():
        if (known := CONFIG.get(name)) is None:
            return f"Invalid JSON payload received. Unknown name \"{name}\" at 'generation_config': Cannot find field."
        expected, fits = known
        if not fits(value):
            return f"Invalid value at 'generation_config.{_to_snake_case(name)}' ({expected}), {str(value)[:40]!r}"
        if (bounds := RANGES.get(name)) and not bounds[0] <= value <= bounds[1]:
            field = f"GenerateContentRequest.generation_config.{_to_snake_case(name)}"
            return f"* {field}: {name} must be in the range [{bounds[0]}, {bounds[1]}]."
    contents = body.get("contents")
    if not isinstance(contents, list) or not contents:
        return "* GenerateContentRequest.contents: contents is not specified"
    for number, content in enumerate([*contents, body.get("systemInstruction", contents[0])]):
        if not isinstance(content, dict) or content.keys() - {"parts", "role"}:
            return f"Invalid value at 'contents[{number}]' (type.googleapis.com/google.ai.generativelanguage.Content)"
        if content.get("role", "user") not in ("user", "model"):
            return "Please use a valid role: user, model."
        parts = content.get("parts")
        if not isinstance(parts, list) or not parts or not all(isinstance(each, dict) for each in parts):
            return f"* GenerateContentRequest.contents[{number}].parts: contents.parts must not be empty."
    return None


def _to_snake_case(name: str) -> str:
    return re.sub(r"([A-Z])", lambda found: f"_{found[1].lower()}", name)


def _count_words(parts: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(str(each.get("text", "")).split()) for each in parts)


def _make_function_call(called: ScriptedToolCall) -> dict[str, Any]:
    return {"functionCall": {"id": called.id, "name": called.name, "args": json.loads(called.arguments)}}


@lru_cache(4096)
def _make_answer(
    model: str,
    text: str,
    asked: int,
    limit: int | None,
    stream: bool,
    kind: str | None,
    calls: tuple[ScriptedToolCall, ...] = (),
) -> Answer:
    words = text.split()
    finish = "SAFETY" if kind == "filtered" else "STOP"
    if limit is not None and len(words) > limit:
        text, words, finish = " ".join(words[:limit]), words[:limit], "MAX_TOKENS"
    usage = {"promptTokenCount": asked, "totalTokenCount": asked + len(words)}
    if words:  # a count of zero is left out
        usage["candidatesTokenCount"] = len(words)
    head = {"usageMetadata": usage, "modelVersion": model, "responseId": "loopback"}

    def make_chunk(
        piece: str | None, ended: str | None = None, called: tuple[ScriptedToolCall, ...] = ()
    ) -> dict[str, Any]:
        content: dict[str, Any] = {"role": "model"}
        if piece or called:
            content["parts"] = [*([{"text": piece}] if piece else []), *map(_make_function_call, called)]
        candidate = {"content": content, "index": 0, **({"finishReason": ended} if ended else {})}
        return {"candidates": [candidate], **head}

    if kind == "blocked":
        counted = {"promptTokenCount": asked, "totalTokenCount": asked}
        blocked = {**head, "promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": counted}
        return Answer((make_event(blocked),), streamed=True) if stream else Answer.of(blocked)
    if not stream:
        return Answer.of(make_chunk(text, finish, calls))
    if kind == "long_line" or not text:
        return Answer((make_event(make_chunk(text, finish, calls)),), streamed=True)
    said = split_pieces(text)
    frames = [
        *(make_event(make_chunk(piece)) for piece in said),
        *(make_event(make_chunk(None, None, (each,))) for each in calls),
    ]
    if kind == "error_midway":
        broken = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
        return Answer((*frames[:-1], make_event(broken)), streamed=True)
    return Answer((*frames, make_event(make_chunk(None, finish))), streamed=True)
