"""Checks and small calculations on replies: what a provider reports goes in, values that can be stored come out.

Any provider, and any function of a user, makes replies: nothing here trusts a field's annotation. The types are in
`model`.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec.structs import astuple

from pramana.model import Reply, ToolCall, Usage

# ── Tokens ──

MAX_TOKEN_COUNT = 10**12
"""Maximum per reply: far above any real count, yet a database can add up millions of such replies."""


def parse_token_count(reported_count: object) -> int | None:
    """Return a provider's token count, or None (unknown) if it is not a valid count.

    >>> *map(parse_token_count, (7, -1, 10**400, True, "7")),
    (7, None, None, None, None)
    """
    return reported_count if type(reported_count) is int and 0 <= reported_count <= MAX_TOKEN_COUNT else None


def drop_invalid_token_counts(usage: Usage) -> Usage:
    """Return the usage with every invalid count set to None (unknown)."""
    asked, answered, cached = usage.input_tokens, usage.output_tokens, usage.cached_tokens
    if (
        parse_token_count(asked) is asked
        and parse_token_count(answered) is answered
        and parse_token_count(cached) is cached
    ):
        return usage
    return Usage(parse_token_count(asked), parse_token_count(answered), parse_token_count(cached))


def add_usage(tokens: int | None, usage: Usage) -> int | None:
    """Add a usage's tokens to a count; return None (unknown) if either is unknown."""
    if tokens is None or (usage.input_tokens is None and usage.output_tokens is None):
        return None
    return tokens + (usage.input_tokens or 0) + (usage.output_tokens or 0)


# ── Tool calls and raw responses ──


class ToolCallLike(Protocol):
    """A tool call, or a view of one."""

    @property
    def name(self) -> str: ...

    @property
    def arguments(self) -> str: ...


MAX_SHOWN_TOOL_CALL_LENGTH = 160
"""Characters of a tool call in a list or a reason."""


def describe_tool_calls(calls: Iterable[ToolCallLike], max_length: int | None = MAX_SHOWN_TOOL_CALL_LENGTH) -> str:
    """Return tool calls on one line, each cut to `max_length` characters; None cuts none.

    >>> describe_tool_calls([ToolCall("get_weather", '{"city": "Paris"}'), ToolCall("get_time")])
    'called get_weather({"city": "Paris"}), get_time({})'
    """
    lines = (" ".join(f"{each.name}({each.arguments})".split()) for each in calls)
    if max_length is not None:
        lines = (line if len(line) <= max_length else f"{line[: max_length - 1]}…" for line in lines)
    return f"called {', '.join(lines)}"


def describe_reply(
    text: str, calls: Sequence[ToolCallLike], max_tool_call_length: int | None = MAX_SHOWN_TOOL_CALL_LENGTH
) -> str:
    """Return the text of a reply, or the tools that it called instead; empty if there is neither.

    Who decides by it, a judge or a comparison, needs whole calls: `max_tool_call_length` None.

    >>> describe_reply(" ", [ToolCall("get_time")]), describe_reply("Noon.", [ToolCall("get_time")])
    ('(no text; called get_time({}))', 'Noon.')
    """
    return text if text.strip() or not calls else f"(no text; {describe_tool_calls(calls, max_tool_call_length)})"


def encode_raw_response(response: Any) -> bytes:
    """Encode plain data as the JSON of a `Reply.raw`; lone surrogates, which models do emit, are kept."""
    return json.dumps(response, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def describe_invalid_reply(reply: object) -> str | None:
    """Describe the first field of a reply with a wrong type, or return None; any provider can make replies.

    >>> *map(describe_invalid_reply, (Reply("yes"), Reply("yes", finish_reason={"a": 1}), "yes")),
    (None, 'finish_reason is a dict', 'it is a str')
    """
    if not isinstance(reply, Reply):
        return f"it is a {type(reply).__name__}"
    for name, fits in _REPLY_FIELD_CHECKS.items():
        value: Any = getattr(reply, name)  # whatever its annotations are
        if not fits(value):
            number = isinstance(value, float) or (isinstance(value, int) and fits(0))
            return f"{name} is {value:.6g}" if number else f"{name} is a {type(value).__name__}"
    return None


# Tuples rather than unions: every reply is validated, and a union of types would be created each time.
def _is_text_or_none(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_tool_call(value: object) -> bool:
    if not isinstance(value, ToolCall):
        return False
    name, arguments = astuple(value)[:2]
    return isinstance(name, str) and isinstance(arguments, str) and _is_text_or_none(value.id)


def _is_duration(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 <= value <= 10**9


_REPLY_FIELD_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda it: isinstance(it, str),
    "usage": lambda it: isinstance(it, Usage),
    "served_model": _is_text_or_none,
    "fingerprint": _is_text_or_none,
    "finish_reason": _is_text_or_none,
    "raw": lambda it: it is None or isinstance(it, bytes),
    "dropped": lambda it: isinstance(it, (tuple, list)) and all(isinstance(each, str) for each in it),
    "cached": lambda it: isinstance(it, bool),
    "vectors": lambda it: isinstance(it, (tuple, list)),
    "tool_calls": lambda it: not it or (isinstance(it, (tuple, list)) and all(map(_is_tool_call, it))),
    "total_s": _is_duration,
    **dict.fromkeys(("first_token_s", "cost_usd"), lambda it: it is None or _is_duration(it)),
}
