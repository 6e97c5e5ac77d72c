"""The answers of OpenAI's responses API: model and text in, the events of a stream or the whole object out.

The events come in OpenAI's order and count their own `sequence_number`. Requests are checked in `openai.py`.
"""

from functools import lru_cache
from typing import Any

from .server import Answer, ScriptedToolCall, make_event

CREATED = 1_750_000_000
PIECES = 16


def split_pieces(text: str) -> list[str]:
    """Return the text in a few pieces, as a stream sends it.

    >>> split_pieces("It is so.")
    ['It', ' is', ' so.']
    """
    words = text.split(" ")
    parts = [words[0], *(f" {word}" for word in words[1:])]
    each = -(-len(parts) // PIECES)
    joined = ("".join(parts[start : start + each]) for start in range(0, len(parts), each))
    return [part for part in joined if part]


@lru_cache(4096)
def answer(
    model: str,
    text: str,
    asked: int,
    limit: int | None,
    stream: bool,
    kind: str | None,
    calls: tuple[ScriptedToolCall, ...] = (),
) -> Answer:
    """Answer with the text; `kind` names the fault to shape."""
    words = text.split()
    cause = "content_filter" if kind == "filtered" else None
    if limit is not None and len(words) > limit:
        text, words, cause = " ".join(words[:limit]), words[:limit], "max_output_tokens"
    content = _make_content(text, refusal=kind == "refusal")
    item = {"id": "msg_loopback", "type": "message", "role": "assistant", "content": [content]}
    item["status"] = "incomplete" if cause else "completed"
    said = [item] if text or not calls else []
    called = [_make_function_call(number, each, each.arguments) for number, each in enumerate(calls)]
    whole = _make_response(model, "incomplete" if cause else "completed", [*said, *called]) | {
        "incomplete_details": {"reason": cause} if cause else None,
        "usage": {
            "input_tokens": asked,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": len(words),
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": asked + len(words),
        },
    }
    if not stream:
        return Answer.of(whole)
    frames: list[bytes] = []

    def emit(name: str, **data: Any) -> None:
        frames.append(make_event({"type": name, "sequence_number": len(frames), **data}, event=name))

    at = {"output_index": 0, "item_id": "msg_loopback", "content_index": 0}
    started = _make_response(model, "in_progress", [])
    emit("response.created", response=started)
    emit("response.in_progress", response=started)
    name = "refusal" if kind == "refusal" else "output_text"
    more: dict[str, Any] = {} if kind == "refusal" else {"logprobs": []}
    if said:
        emit("response.output_item.added", output_index=0, item=item | {"status": "in_progress", "content": []})
        emit("response.content_part.added", **at, part=_make_content("", refusal=kind == "refusal"))
    for piece in [text] if kind == "long_line" else split_pieces(text):
        emit(f"response.{name}.delta", **at, delta=piece, **more)
    if kind == "error_midway":
        error = {"code": "server_error", "message": "The server had an error while processing your request."}
        emit("response.failed", response=_make_response(model, "failed", []) | {"error": error})
        return Answer(tuple(frames), streamed=True)
    if said:
        emit(f"response.{name}.done", **at, **({"refusal": text} if kind == "refusal" else {"text": text}), **more)
        emit("response.content_part.done", **at, part=content)
        emit("response.output_item.done", output_index=0, item=item)
    for number, (each, done) in enumerate(zip(calls, called, strict=True)):
        place = {"output_index": len(said) + number, "item_id": done["id"]}
        begun = _make_function_call(number, each, "") | {"status": "in_progress"}
        emit("response.output_item.added", output_index=place["output_index"], item=begun)
        for piece in each.split_arguments():
            emit("response.function_call_arguments.delta", **place, delta=piece)
        emit("response.function_call_arguments.done", **place, arguments=each.arguments)
        emit("response.output_item.done", output_index=place["output_index"], item=done)
    emit("response.incomplete" if cause else "response.completed", response=whole)
    return Answer(tuple(frames), streamed=True)


def _make_function_call(number: int, called: ScriptedToolCall, arguments: str) -> dict[str, Any]:
    return {
        "id": f"fc_loopback_{number}",
        "type": "function_call",
        "call_id": called.id,
        "name": called.name,
        "arguments": arguments,
        "status": "completed",
    }


def _make_content(text: str, *, refusal: bool) -> dict[str, Any]:
    if refusal:
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _make_response(model: str, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": "resp_loopback",
        "object": "response",
        "created_at": CREATED,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "metadata": {},
        "model": model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "service_tier": "default",
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
    }
