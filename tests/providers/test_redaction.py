"""No key is stored, whether whole, in pieces or JSON-escaped, and the model's answers are never changed."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pramana.errors import ApiKeyInReply
from pramana.loopback.voice import ReceivedRequest
from pramana.model import Provider, Reply, Request, Turn
from pramana.providers.accounts import Account
from pramana.providers.redaction import Secrets
from pramana.providers.text.anthropic import Anthropic
from pramana.providers.text.google import Google
from pramana.providers.text.openai import OpenAI, OpenAIResponses

from ..loopback.openai import OpenAIWire
from ..loopback.server import Answer, Fault, Loopback

pytestmark = pytest.mark.usefixtures("virtual_time")
KEY = "sk-secret/0123456789"
HALVES = (KEY[:7], KEY[7:])
Make = Callable[[Account], Provider]


class FixedAnswer(OpenAIWire):
    """A server that answers every request with these bytes: the events of a stream, or one piece."""

    def __init__(self, *parts: Any, streamed: bool = True) -> None:
        super().__init__()
        self.base_path = ""
        self.parts, self.streamed = parts, streamed

    def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:  # noqa: ARG002
        texts = [each if isinstance(each, str) else json.dumps(each) for each in self.parts]
        if not self.streamed:
            return Answer((texts[0].encode(),))
        events = [f"event: {each['type']}\n" if "type" in each else "" for each in map(json.loads, texts)]
        frames = tuple(f"{event}data: {text}\n\n".encode() for event, text in zip(events, texts, strict=True))
        return Answer(frames, streamed=True)


def ask(make: Make, wire: FixedAnswer, key: str = KEY) -> Reply:
    async def go() -> Reply:
        async with Loopback(wire) as server:
            provider = make(Account(server.url, key))
            try:
                return await provider.ask(Request("m", (Turn("user", "hi"),)))
            finally:
                await provider.close()

    return asyncio.run(go())


def make_chat(*deltas: Any, **more: Any) -> FixedAnswer:
    events = [{"choices": [{"index": 0, "delta": delta}], **more} for delta in deltas]
    return FixedAnswer(*events, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})


def escape_text(text: str) -> str:
    """The text as PHP and others may write it."""
    return text.replace("/", r"\/").replace("s", r"\u0073").replace("k", r"\u006B")


# In the text


MESSAGE: dict[str, Any] = {"model": "m", "content": [], "stop_reason": None, "usage": {}}
TEXTS: dict[str, tuple[Make, FixedAnswer]] = {
    "chat, whole": (OpenAI, make_chat({"content": f"It is {KEY}."})),
    "chat, in halves": (OpenAI, make_chat({"content": f"It is {HALVES[0]}"}, {"content": HALVES[1]})),
    "chat, letter by letter": (OpenAI, make_chat(*({"content": each} for each in KEY))),
    "chat, thoughts in halves": (
        OpenAI,
        make_chat(*({"reasoning_content": each} for each in HALVES), {"content": "yes"}),
    ),
    "chat, thoughts beside an empty text": (
        OpenAI,
        make_chat(*({"content": "", "reasoning": each} for each in HALVES)),
    ),
    "chat, a call in halves": (
        OpenAI,
        make_chat(*({"tool_calls": [{"function": {"arguments": each}}]} for each in HALVES)),
    ),
    "chat, another choice": (
        OpenAI,
        FixedAnswer(
            *({"choices": [{"index": 1, "delta": {"content": each}}]} for each in HALVES),
            {"choices": [{"index": 0, "delta": {"content": "yes"}, "finish_reason": "stop"}]},
        ),
    ),
    "chat, hidden": (
        OpenAI,
        FixedAnswer(f'{{"choices": [{{"delta": {{"content": "{escape_text(KEY)}"}}, "finish_reason": "stop"}}]}}'),
    ),
    "chat, hidden in one piece": (
        OpenAI,
        FixedAnswer(
            f'{{"choices": [{{"message": {{"content": "{escape_text(KEY)}"}}, "finish_reason": "stop"}}]}}',
            streamed=False,
        ),
    ),
    "responses": (
        OpenAIResponses,
        FixedAnswer(
            *({"type": "response.output_text.delta", "delta": each} for each in HALVES),
            {"type": "response.completed", "response": {"output": [], "status": "completed"}},
        ),
    ),
    "responses, thoughts": (
        OpenAIResponses,
        FixedAnswer(
            *({"type": "response.reasoning_text.delta", "delta": each} for each in HALVES),
            {"type": "response.completed", "response": {"output": [], "status": "completed"}},
        ),
    ),
    "messages": (
        Anthropic,
        FixedAnswer(
            {"type": "message_start", "message": MESSAGE},
            *({"type": "content_block_delta", "delta": {"type": "text_delta", "text": each}} for each in HALVES),
            {"type": "message_stop"},
        ),
    ),
    "messages, thoughts": (
        Anthropic,
        FixedAnswer(
            {"type": "message_start", "message": MESSAGE},
            *(
                {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": each}}
                for each in HALVES
            ),
            {"type": "message_stop"},
        ),
    ),
    "content": (
        Google,
        FixedAnswer(
            *({"candidates": [{"content": {"parts": [{"text": each}]}, "finishReason": "STOP"}]} for each in HALVES)
        ),
    ),
    "content, thoughts": (
        Google,
        FixedAnswer(
            *(
                {"candidates": [{"content": {"parts": [{"text": each, "thought": True}]}, "finishReason": "STOP"}]}
                for each in HALVES
            )
        ),
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_an_answer_that_contains_the_key_is_an_error_and_not_stored(name: str) -> None:
    with pytest.raises(ApiKeyInReply, match="contains the account's API key, and keys are never stored") as caught:
        ask(*TEXTS[name])
    assert KEY not in str(caught.value)
    assert (caught.value.transient, caught.value.fatal) == (False, False)


def test_an_answer_is_never_changed() -> None:
    """A word of 16 letters that is the key is not replaced and then called wrong."""
    word = "placeholder-key-not-needed"
    with pytest.raises(ApiKeyInReply, match="if it is not a secret, set OPENAI_API_KEY to one of fewer than 16"):
        ask(OpenAI, make_chat({"content": f"Set it to {word}."}), word)
    assert ask(OpenAI, make_chat({"content": "[key]"})).text == "[key]"


@pytest.mark.parametrize("key", ["ollama", "test", "none", "fifteen-letters"])
def test_a_reply_may_contain_a_key_that_is_a_plain_word(key: str) -> None:
    reply = ask(OpenAI, make_chat({"content": f"It runs on {key}."}), key)
    assert reply.text == f"It runs on {key}."
    assert key in json.dumps(reply.response())


# Beside the text


@pytest.mark.parametrize("written", [KEY, escape_text(KEY), KEY.replace("-", r"\u002d"), KEY.replace("/", r"\u002F")])
def test_a_key_outside_the_text_is_redacted(written: str) -> None:
    """A gateway that repeats our headers in each answer can be used all the same."""
    event = (
        f'{{"debug": {{"key": "Bearer {written}", "{written}": 1}}, "system_fingerprint": "fp {written}",'
        f'"model": "{written}", "choices": [{{"delta": {{"content": "so\\n\\u00e9"}}, "finish_reason": "stop"}}]}}'
    )
    reply = ask(OpenAI, FixedAnswer(event))
    assert (reply.text, reply.served_model, reply.fingerprint) == ("so\né", "[key]", "fp [key]")
    assert reply.response()[0]["debug"] == {"key": "Bearer [key]", "[key]": 1}
    assert KEY not in repr(reply)
    assert KEY not in json.dumps(reply.response())


def test_a_numeric_key_in_place_of_a_number_is_an_error() -> None:
    with pytest.raises(ApiKeyInReply):
        ask(OpenAI, make_chat({"content": "so"}, number=1234567890123456), "1234567890123456")


def test_a_list_of_models_is_redacted() -> None:
    async def go() -> list[str]:
        said = f'{{"data": [{{"id": "{escape_text(KEY)}"}}]}}'
        async with Loopback(FixedAnswer(said, streamed=False)) as server:
            provider = OpenAI(Account(server.url, KEY))
            try:
                return await provider.models()
            finally:
                await provider.close()

    assert asyncio.run(go()) == ["[key]"]


@given(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=16, max_size=40), st.lists(st.booleans()), st.booleans()
)
def test_every_json_spelling_of_a_secret_is_found(secret: str, escapes: list[bool], twice: bool) -> None:
    def write(letter: str, escape: bool) -> str:
        plain = json.dumps(letter, ensure_ascii=False)[1:-1]
        units = letter.encode("utf-16-be").hex()
        return "".join(rf"\u{units[place : place + 4]}" for place in range(0, len(units), 4)) if escape else plain

    chosen = [*escapes, *[False] * len(secret)]
    written = "".join(map(write, secret, chosen))
    secrets = Secrets([secret, secret + "and more" if twice else None])
    data = f'{{"a": "<{written}>"}}'.encode()
    assert secret not in json.loads(secrets.redact_json(data))["a"]
    assert json.loads(data) == {"a": f"<{secret}>"}
    assert secret not in secrets.redact(f"{secret} and {written}")
    assert written not in secrets.redact(written)
    assert secrets.occur_in(json.loads(data)["a"])
