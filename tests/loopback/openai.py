"""OpenAI's wire format from the server's side: chat completions, responses, embeddings and the list of models.

A request is checked field by field against what OpenAI documents; an invalid one is answered with OpenAI's own
error. Tokens are counted as words, answers are prepared once and sent many times. It remembers nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pramana.loopback.voice import ReceivedRequest

from . import embeddings, responses
from .server import Answer, Fault, ReplyFunction, ScriptedToolCall, Vendor, make_event

CREATED = 1_750_000_000
FINGERPRINT = "fp_loopback"

_NUMBER = ("a decimal", lambda value: type(value) in (int, float))
_INTEGER = ("an integer", lambda value: type(value) is int)
_BOOLEAN = ("a boolean", lambda value: type(value) is bool)
_STRING = ("a string", lambda value: type(value) is str)
_OBJECT = ("an object", lambda value: type(value) is dict)
_ARRAY = ("an array", lambda value: type(value) is list)
_TEXTS = ("a string or an array of strings", lambda value: type(value) in (str, list))
_ANY = ("anything", lambda _: True)
Field = tuple[str, Callable[[Any], bool]]

CHAT_FIELDS: Mapping[str, Field] = {
    "messages": _ARRAY,
    "model": _STRING,
    "audio": _OBJECT,
    "frequency_penalty": _NUMBER,
    "function_call": _ANY,
    "functions": _ARRAY,
    "logit_bias": _OBJECT,
    "logprobs": _BOOLEAN,
    "max_completion_tokens": _INTEGER,
    "max_tokens": _INTEGER,
    "metadata": _OBJECT,
    "modalities": _ARRAY,
    "moderation": _OBJECT,
    "n": _INTEGER,
    "parallel_tool_calls": _BOOLEAN,
    "prediction": _OBJECT,
    "presence_penalty": _NUMBER,
    "prompt_cache_key": _STRING,
    "prompt_cache_options": _OBJECT,
    "prompt_cache_retention": _STRING,
    "reasoning_effort": _STRING,
    "response_format": _OBJECT,
    "safety_identifier": _STRING,
    "seed": _INTEGER,
    "service_tier": _STRING,
    "stop": _TEXTS,
    "store": _BOOLEAN,
    "stream": _BOOLEAN,
    "stream_options": _OBJECT,
    "temperature": _NUMBER,
    "tool_choice": _ANY,
    "tools": _ARRAY,
    "top_logprobs": _INTEGER,
    "top_p": _NUMBER,
    "user": _STRING,
    "verbosity": _STRING,
    "web_search_options": _OBJECT,
}
RESPONSES_FIELDS: Mapping[str, Field] = {
    "access_programs": _OBJECT,
    "background": _BOOLEAN,
    "context_management": _ARRAY,
    "conversation": _ANY,
    "image": _OBJECT,
    "include": _ARRAY,
    "input": ("a string or an array of input items", lambda value: type(value) in (str, list)),
    "instructions": _STRING,
    "max_output_tokens": _INTEGER,
    "max_tool_calls": _INTEGER,
    "metadata": _OBJECT,
    "model": _STRING,
    "moderation": _OBJECT,
    "parallel_tool_calls": _BOOLEAN,
    "previous_response_id": _STRING,
    "prompt": _OBJECT,
    "prompt_cache_key": _STRING,
    "prompt_cache_options": _OBJECT,
    "prompt_cache_retention": _STRING,
    "reasoning": _OBJECT,
    "safety_identifier": _STRING,
    "service_tier": _STRING,
    "store": _BOOLEAN,
    "stream": _BOOLEAN,
    "stream_options": _OBJECT,
    "temperature": _NUMBER,
    "text": _OBJECT,
    "tool_choice": _ANY,
    "tools": _ARRAY,
    "top_logprobs": _INTEGER,
    "top_p": _NUMBER,
    "truncation": _STRING,
    "user": _STRING,
}
EMBEDDING_FIELDS: Mapping[str, Field] = {
    "input": ("a string or an array", lambda value: type(value) in (str, list)),
    "model": _STRING,
    "dimensions": _INTEGER,
    "encoding_format": ("'float' or 'base64'", lambda value: value in ("float", "base64")),
    "user": _STRING,
}
CHAT_ROLES = ("developer", "system", "user", "assistant", "tool", "function")
RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
    "max_completion_tokens": (1, 1 << 30),
    "max_tokens": (1, 1 << 30),
    "max_output_tokens": (16, 1 << 30),
    "n": (1, 128),
    "dimensions": (1, 1 << 16),
}


class OpenAIWire(Vendor):
    """What OpenAI's server answers: one text to all, or what a function makes of the messages."""

    base_path = "/v1"

    def __init__(
        self, says: str | ReplyFunction = "It is so.", *, embeds: embeddings.Embed | None = None, **options: Any
    ) -> None:
        """`embeds` gives the vector of a text; without it, texts that share words are near each other."""
        super().__init__(says, **options)
        self.embeds = embeds

    def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:
        """Check the request field by field and answer it."""
        if self.key is not None and (wrong := self._find_key_problem(got.headers.get("Authorization"))):
            return Answer.of(wrong, 401)
        match got.method, got.path:
            case "POST", "/chat/completions":
                fields, required = CHAT_FIELDS, ("model", "messages")
            case "POST", "/responses":
                fields, required = RESPONSES_FIELDS, ("model", "input")
            case "POST", "/embeddings":
                fields, required = EMBEDDING_FIELDS, ("input", "model")
            case "GET", "/models":
                return Answer.of({"object": "list", "data": [_make_model_entry(each) for each in self.models]})
            case _:
                return Answer.of(_make_error(f"Invalid URL ({got.method} {self.base_path}{got.path})"), 404)
        body = got.body
        if not isinstance(body, dict) or not got.headers.get("Content-Type", "").startswith("application/json"):
            return Answer.of(_make_error("We could not parse the JSON body of your request."), 400)
        if wrong := find_invalid_field(body, fields, required):
            return Answer.of(wrong, 400)
        if not self.has_model(body["model"]):
            message = f"The model `{body['model']}` does not exist or you do not have access to it."
            return Answer.of(_make_error(message, code="model_not_found"), 404)
        if fault and fault.kind == "unpaid":
            message = "You exceeded your current quota, please check your plan and billing details."
            return Answer.of(_make_error(message, kind="insufficient_quota", code="insufficient_quota"), 429)
        if fields is EMBEDDING_FIELDS:
            return embeddings.answer(body, self.embeds)
        if fault and fault.kind == "blocked":
            message = "The response was filtered due to the prompt triggering the content management policy."
            return Answer.of(_make_error(message, kind=None, parameter="prompt", code="content_filter"), 400)
        return self._answer_chat(body, fault) if fields is CHAT_FIELDS else self._answer_response(body, fault)

    def make_error_body(self, status: int, message: str, *, parameter: str | None = None) -> Any:
        """Return the body OpenAI sends with such a status."""
        match status:
            case 401:
                return _make_error(message, code="invalid_api_key")
            case 404:
                return _make_error(message, code="model_not_found")
            case 429:
                return _make_error(message, kind="requests", code="rate_limit_exceeded")
            case _ if status >= 500:
                return _make_error(message, kind="server_error")
            case _:
                return _make_error(message, parameter=parameter, code="unsupported_parameter" if parameter else None)

    def _find_key_problem(self, header: str | None) -> Any:
        if not header:
            return _make_error(
                "You didn't provide an API key. You need to provide your API key in an Authorization header."
            )
        given = header.removeprefix("Bearer ")
        if header.startswith("Bearer ") and given == self.key:
            return None
        masked = f"{given[:3]}{'*' * 8}{given[-4:]}" if len(given) > 12 else "***"
        return _make_error(f"Incorrect API key provided: {masked}.", code="invalid_api_key")

    def _answer_chat(self, body: Mapping[str, Any], fault: Fault | None) -> Answer:
        messages = body["messages"]
        text = self.text(messages, fault)
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        kind = fault.kind if fault else None
        stream = bool(body.get("stream")) and kind != "plain"
        usage = bool((body.get("stream_options") or {}).get("include_usage"))
        return _make_chat_answer(body["model"], text, _count_words(messages), limit, stream, usage, kind, self.calls)

    def _answer_response(self, body: Mapping[str, Any], fault: Fault | None) -> Answer:
        items = body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]
        if body.get("instructions"):
            items = [{"role": "system", "content": body["instructions"]}, *items]
        text = self.text(items, fault)
        kind = fault.kind if fault else None
        stream = bool(body.get("stream")) and kind != "plain"
        limit = body.get("max_output_tokens")
        return responses.answer(body["model"], text, _count_words(items), limit, stream, kind, self.calls)


def find_invalid_field(body: Mapping[str, Any], fields: Mapping[str, Field], required: Sequence[str]) -> Any:
    """Return OpenAI's error for the first invalid field, or None."""
    for name in required:
        if name not in body:
            return _make_error(
                f"Missing required parameter: '{name}'.", parameter=name, code="missing_required_parameter"
            )
    for name, value in body.items():
        if (known := fields.get(name)) is None:
            return _make_error(f"Unknown parameter: '{name}'.", parameter=name, code="unknown_parameter")
        if value is None and name not in required:
            continue
        expected, fits = known
        if not fits(value):
            message = f"Invalid type for '{name}': expected {expected}."
            return _make_error(message, parameter=name, code="invalid_type")
        if (bounds := RANGES.get(name)) and not bounds[0] <= value <= bounds[1]:
            message = f"Invalid '{name}': expected a value between {bounds[0]} and {bounds[1]}, but got {value}."
            return _make_error(message, parameter=name, code="invalid_value")
    if body.get("stream_options") and not body.get("stream"):
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        return _make_error(message, parameter="stream_options")
    if "max_tokens" in body and "max_completion_tokens" in body:
        message = "Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported."
        return _make_error(message, parameter="max_tokens", code="invalid_parameter_combination")
    if fields is EMBEDDING_FIELDS:
        if not embeddings.is_valid_input(body["input"]):
            return _make_error("'$.input' is invalid. Please check the API reference.")
        if len(body["input"]) > embeddings.MAX_INPUTS and isinstance(body["input"], list):
            message = f"Invalid 'input': expected an array with maximum length {embeddings.MAX_INPUTS}."
            return _make_error(message, parameter="input", code="array_above_max_length")
        return None
    place = required[1]
    turns = body[place]
    if not turns and fields is CHAT_FIELDS:
        return _make_error("Invalid 'messages': empty array.", parameter="messages", code="empty_array")
    for number, turn in enumerate(turns if isinstance(turns, list) else ()):
        if not isinstance(turn, dict):
            return _make_error(
                f"Invalid type for '{place}[{number}]': expected an object.", parameter=f"{place}[{number}]"
            )
        if "role" not in turn and fields is RESPONSES_FIELDS and turn.get("type", "message") != "message":
            continue  # an item of another kind: a call of a tool and the like
        if turn.get("role") not in CHAT_ROLES:
            found = f"{place}[{number}].role"
            return _make_error(f"Invalid value for '{found}'.", parameter=found, code="invalid_value")
        if type(turn.get("content")) not in (str, list) and turn["role"] != "assistant":
            found = f"{place}[{number}].content"
            return _make_error(f"Invalid type for '{found}': expected a string.", parameter=found, code="invalid_type")
    return None


def _make_error(
    message: str, *, kind: str | None = "invalid_request_error", parameter: str | None = None, code: str | None = None
) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": parameter, "code": code}}


def _make_model_entry(model: str) -> dict[str, Any]:
    return {"id": model, "object": "model", "created": CREATED, "owned_by": "loopback"}


def _count_words(messages: Sequence[Mapping[str, Any]]) -> int:
    return sum(len(each["content"].split()) for each in messages if isinstance(each.get("content"), str))


def _make_tool_call(called: ScriptedToolCall, arguments: str) -> dict[str, Any]:
    return {"id": called.id, "type": "function", "function": {"name": called.name, "arguments": arguments}}


@lru_cache(4096)
def _make_chat_answer(
    model: str,
    text: str,
    asked: int,
    limit: int | None,
    stream: bool,
    with_usage: bool,
    kind: str | None,
    calls: tuple[ScriptedToolCall, ...] = (),
) -> Answer:
    words = text.split()
    finish = "content_filter" if kind == "filtered" else "tool_calls" if calls else "stop"
    if limit is not None and len(words) > limit:
        text, words, finish = " ".join(words[:limit]), words[:limit], "length"
    usage = {
        "prompt_tokens": asked,
        "completion_tokens": len(words),
        "total_tokens": asked + len(words),
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }
    where = "refusal" if kind == "refusal" else "content"
    head = {"id": "chatcmpl-loopback", "created": CREATED, "model": model, "service_tier": "default"}
    if not stream:
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, "annotations": []}
        message[where] = text if text or not calls else None
        if calls:
            message["tool_calls"] = [_make_tool_call(each, each.arguments) for each in calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        whole = {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        return Answer.of({**whole, "system_fingerprint": FINGERPRINT})
    head |= {"object": "chat.completion.chunk", "system_fingerprint": FINGERPRINT}

    def make_chunk(delta: Mapping[str, Any], ended: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": ended}
        return make_event({**head, "choices": [choice], **({"usage": None} if with_usage else {})})

    pieces = [text] if kind == "long_line" else responses.split_pieces(text)
    frames = [make_chunk({"role": "assistant", "content": "", "refusal": None})]
    frames += [make_chunk({where: piece}) for piece in pieces]
    for number, each in enumerate(calls):
        frames.append(make_chunk({"tool_calls": [{"index": number, **_make_tool_call(each, "")}]}))
        for piece in each.split_arguments():
            frames.append(make_chunk({"tool_calls": [{"index": number, "function": {"arguments": piece}}]}))
    if kind == "error_midway":
        broken = _make_error("The server had an error while processing your request.", kind="server_error")
        return Answer((*frames[:-1], make_event(broken)), streamed=True)
    frames.append(make_chunk({}, finish))
    if with_usage:
        frames.append(make_event({**head, "choices": [], "usage": usage}))
    return Answer((*frames, make_event("[DONE]")), streamed=True)
