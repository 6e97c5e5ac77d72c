"""Anthropic's wire format from the server's side: messages and the list of models.

A request is checked field by field against what Anthropic documents; an invalid one is answered with Anthropic's own
error. Tokens are counted as words, answers are prepared once and sent many times. It remembers nothing.
"""

import json
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from pramana.loopback.voice import ReceivedRequest

from .responses import split_pieces
from .server import Answer, Fault, ScriptedToolCall, Vendor, make_event

VERSIONS = ("2023-06-01", "2026-10-21")
CREATED = "2026-01-01T00:00:00Z"

Field = tuple[str, Callable[[Any], bool]]
_INTEGER: Field = ("a valid integer", lambda value: type(value) is int)
_STRING: Field = ("a valid string", lambda value: type(value) is str)
_OBJECT: Field = ("a valid dictionary", lambda value: type(value) is dict)
_LIST: Field = ("a valid list", lambda value: type(value) is list)
_BOOLEAN: Field = ("a valid boolean", lambda value: type(value) is bool)
_TEXTS: Field = ("a valid list", lambda value: type(value) is list and all(type(each) is str for each in value))
_CONTENT: Field = ("a valid string or list", lambda value: type(value) in (str, list))

FIELDS: Mapping[str, Field] = {
    "max_tokens": _INTEGER,
    "messages": _LIST,
    "model": _STRING,
    "cache_control": _OBJECT,
    "container": ("a valid string or dictionary", lambda value: type(value) in (str, dict)),
    "diagnostics": _OBJECT,
    "inference_geo": _STRING,
    "metadata": _OBJECT,
    "output_config": _OBJECT,
    "service_tier": _STRING,
    "speed": _STRING,
    "stop_sequences": _TEXTS,
    "stream": _BOOLEAN,
    "system": _CONTENT,
    "thinking": _OBJECT,
    "tool_choice": _OBJECT,
    "tools": _LIST,
}
REQUIRED = ("model", "max_tokens", "messages")
ROLES = ("user", "assistant", "system")
_KINDS: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicWire(Vendor):
    """What Anthropic's server answers: one text to all, or what a function makes of the messages."""

    base_path = ""

    def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:
        """Check the request field by field and answer it."""
        if (version := got.headers.get("anthropic-version")) not in VERSIONS:
            said = "header is required" if version is None else f"{version!r} is not a valid version"
            return self._refuse(400, f"anthropic-version: {said}")
        if self.key is not None and got.headers.get("Authorization") != f"Bearer {self.key}":
            return self._refuse(401, "invalid bearer token" if got.headers.get("Authorization") else "no credentials")
        match got.method, got.path:
            case "POST", "/v1/messages":
                pass
            case "GET", "/v1/models":
                return self._list_models(got)
            case _:
                return self._refuse(404, "Not Found")
        body = got.body
        if not isinstance(body, dict) or not got.headers.get("Content-Type", "").startswith("application/json"):
            return self._refuse(400, "The request body is not valid JSON")
        if wrong := find_invalid_field(body):
            return self._refuse(400, wrong)
        if not self.has_model(body["model"]):
            return self._refuse(404, f"model: {body['model']}")
        kind = fault.kind if fault else None
        if kind == "unpaid":
            return self._refuse(
                400, "Your credit balance is too low to access the Anthropic API. Please go to billing."
            )
        if kind == "blocked":
            return self._refuse(400, "Output blocked by content filtering policy")
        stream = bool(body.get("stream")) and kind != "plain"
        asked = _count_words(body.get("system") or "") + sum(_count_words(each["content"]) for each in body["messages"])
        text = self.text(body["messages"], fault)
        return _make_answer(body["model"], text, asked, body["max_tokens"], stream, kind, self.calls)

    def make_error_body(self, status: int, message: str, *, parameter: str | None = None) -> Any:
        """Return the body Anthropic sends with such a status."""
        message = f"{parameter}: Extra inputs are not permitted" if parameter else message
        return {
            "type": "error",
            "error": {"type": _KINDS.get(status, "api_error"), "message": message},
            "request_id": "req_loopback",
        }

    def _refuse(self, status: int, message: str) -> Answer:
        return Answer.of(self.make_error_body(status, message), status)

    def _list_models(self, got: ReceivedRequest) -> Answer:
        size = min(int(got.query.get("limit", "20")), self.page)
        after = got.query.get("after_id")
        begin = self.models.index(after) + 1 if after in self.models else 0
        shown = self.models[begin : begin + size]
        data = [
            {"type": "model", "id": each, "display_name": each, "created_at": CREATED, "lifecycle": "active"}
            for each in shown
        ]
        more = begin + size < len(self.models)
        ends = {"first_id": shown[0] if shown else None, "last_id": shown[-1] if shown else None}
        return Answer.of({"data": data, "has_more": more, **ends})


def find_invalid_field(body: Mapping[str, Any]) -> str | None:
    """Return what Anthropic says about the first invalid field, or None."""
    for name in REQUIRED:
        if name not in body:
            return f"{name}: Field required"
    for name, value in body.items():
        if (known := FIELDS.get(name)) is None:
            return f"{name}: Extra inputs are not permitted"
        expected, fits = known
        if not fits(value):
            return f"{name}: Input should be {expected}"
    if body["max_tokens"] < 0:
        return "max_tokens: Input should be greater than or equal to 0"
    if not body["messages"]:
        return "messages: at least one message is required"
    for number, message in enumerate(body["messages"]):
        place = f"messages.{number}"
        if not isinstance(message, dict):
            return f"{place}: Input should be a valid dictionary"
        if message.get("role") not in ROLES:
            return f"{place}.role: Input should be 'user', 'assistant' or 'system'"
        if not _CONTENT[1](message.get("content")):
            return f"{place}.content: Input should be {_CONTENT[0]}"
        if extra := message.keys() - {"role", "content"}:
            return f"{place}.{min(extra)}: Extra inputs are not permitted"
    return None


def _count_words(content: str | list[Any]) -> int:
    if isinstance(content, str):
        return len(content.split())
    return sum(len(str(each.get("text", "")).split()) for each in content if isinstance(each, dict))


def _make_tool_use(called: ScriptedToolCall, given: dict[str, Any]) -> dict[str, Any]:
    return {"type": "tool_use", "id": called.id, "name": called.name, "input": given, "caller": {"type": "direct"}}


@lru_cache(4096)
def _make_answer(
    model: str,
    text: str,
    asked: int,
    limit: int,
    stream: bool,
    kind: str | None,
    calls: tuple[ScriptedToolCall, ...] = (),
) -> Answer:
    words = text.split()
    finish = "refusal" if kind in ("filtered", "refusal") else "tool_use" if calls else "end_turn"
    if len(words) > limit:
        text, words, finish = " ".join(words[:limit]), words[:limit], "max_tokens"
    usage = {
        "input_tokens": asked,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": len(words),
        "service_tier": "standard",
    }
    message = {
        "id": "msg_loopback",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [
            *([{"type": "text", "text": text}] if text else []),
            *(_make_tool_use(each, json.loads(each.arguments)) for each in calls),
        ],
        "stop_reason": finish,
        "stop_sequence": None,
        "usage": usage,
    }
    if not stream:
        return Answer.of(message)

    def make_named_event(name: str, **data: Any) -> bytes:
        return make_event({"type": name, **data}, name)

    begun = {**message, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    frames = [make_named_event("message_start", message=begun)]
    if text:
        frames += [
            make_named_event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
            make_named_event("ping"),
        ]
        for piece in [text] if kind == "long_line" else split_pieces(text):
            frames.append(make_named_event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece}))
        if kind == "error_midway":
            broken = {"type": "overloaded_error", "message": "Overloaded"}
            return Answer((*frames[:-1], make_named_event("error", error=broken)), streamed=True)
        frames.append(make_named_event("content_block_stop", index=0))
    for index, each in enumerate(calls, start=1 if text else 0):
        frames.append(make_named_event("content_block_start", index=index, content_block=_make_tool_use(each, {})))
        for piece in each.split_arguments() if each.arguments != "{}" else [""]:
            delta = {"type": "input_json_delta", "partial_json": piece}
            frames.append(make_named_event("content_block_delta", index=index, delta=delta))
        frames.append(make_named_event("content_block_stop", index=index))
    ended = {"stop_reason": finish, "stop_sequence": None}
    frames.append(make_named_event("message_delta", delta=ended, usage={"output_tokens": len(words)}))
    return Answer((*frames, make_named_event("message_stop")), streamed=True)
