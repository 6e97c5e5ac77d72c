"""Tool calls in replies: the server is checked with each vendor's SDK, and the adapter reads what the SDK reads."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anthropic
import openai
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from google import genai
from google.genai import types
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from pramana.errors import ApiKeyInReply
from pramana.loopback.voice import ReceivedRequest
from pramana.model import Provider, Reply, Request, ToolCall, Turn
from pramana.providers.accounts import Account
from pramana.providers.text.anthropic import Anthropic
from pramana.providers.text.google import Google
from pramana.providers.text.openai import OpenAI, OpenAIResponses

from ...loopback.anthropic import AnthropicWire
from ...loopback.google import GoogleWire
from ...loopback.openai import OpenAIWire
from ...loopback.server import Answer, Fault, Loopback, ScriptedToolCall, Wire, make_event

pytestmark = [
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    pytest.mark.usefixtures("virtual_time"),
]
KEY = "sk-test-0123456789"
CALLED = (
    ScriptedToolCall("get_weather", '{"city": "Paris — 🙂", "days": 3}', "call_1"),
    ScriptedToolCall("get_time", "{}", "call_2"),
)
CALLS = tuple(ToolCall(each.name, each.arguments, each.id) for each in CALLED)
ASKED: Any = [{"role": "user", "content": "Weather?"}]
REQUEST = Request("m", (Turn("user", "Weather?"),))
WHOLE = Request("m", (Turn("user", "Weather?"),), {"stream": False})
PROVIDERS: dict[str, tuple[Callable[[Account], Provider], type[OpenAIWire | AnthropicWire | GoogleWire]]] = {
    "chat": (OpenAI, OpenAIWire),
    "responses": (OpenAIResponses, OpenAIWire),
    "anthropic": (Anthropic, AnthropicWire),
    "google": (Google, GoogleWire),
}
EACH = pytest.mark.parametrize("name", PROVIDERS)
T = TypeVar("T")


def serve(use: Callable[[Loopback], Awaitable[T]], wire: Wire) -> T:
    async def go() -> T:
        async with Loopback(wire) as server:
            return await use(server)

    return asyncio.run(go())


def get_reply(name: str, wire: Wire, request: Request = REQUEST) -> Reply:
    async def use(server: Loopback) -> Reply:
        provider = PROVIDERS[name][0](Account(server.url, KEY, 20.0))
        try:
            return await provider.ask(request)
        finally:
            await provider.close()

    return serve(use, wire)


class FixedAnswer(OpenAIWire):
    """A server that gives every request the same answer."""

    def __init__(self, *deltas: Any, whole: Any = None, frames: tuple[bytes, ...] = ()) -> None:
        super().__init__()
        self.deltas, self.whole, self.frames = deltas, whole, frames

    def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:  # noqa: ARG002
        if self.whole is not None:
            return Answer.of(self.whole)
        chunks = [{"choices": [{"index": 0, "delta": each}]} for each in self.deltas]
        chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
        return Answer(self.frames or tuple(map(make_event, chunks)), streamed=True)


def make_delta(**call: Any) -> dict[str, Any]:
    return {"tool_calls": [call]}


# What each SDK reads


def ask_by_chat_sdk(server: Loopback) -> Awaitable[list[tuple[str | None, str, Any]]]:
    async def ask() -> list[tuple[str | None, str, Any]]:
        async with (
            openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client,
            client.chat.completions.stream(model="m", messages=ASKED) as stream,
        ):
            message = (await stream.get_final_completion()).choices[0].message
            return [(each.id, each.function.name, json.loads(each.function.arguments)) for each in message.tool_calls]  # type: ignore[union-attr]

    return ask()


def ask_by_responses_sdk(server: Loopback) -> Awaitable[list[tuple[str | None, str, Any]]]:
    async def ask() -> list[tuple[str | None, str, Any]]:
        async with (
            openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client,
            client.responses.stream(model="m", input=ASKED) as stream,
        ):
            output = (await stream.get_final_response()).output
            calls = [each for each in output if each.type == "function_call"]
            return [(each.call_id, each.name, json.loads(each.arguments)) for each in calls]

    return ask()


def ask_by_anthropic_sdk(server: Loopback) -> Awaitable[list[tuple[str | None, str, Any]]]:
    async def ask() -> list[tuple[str | None, str, Any]]:
        client = anthropic.AsyncAnthropic(base_url=server.url, api_key=KEY, max_retries=0)
        async with client, client.messages.stream(model="m", max_tokens=100, messages=ASKED) as stream:
            content = (await stream.get_final_message()).content
            return [(each.id, each.name, each.input) for each in content if each.type == "tool_use"]

    return ask()


def ask_by_google_sdk(server: Loopback) -> Awaitable[list[tuple[str | None, str, Any]]]:
    async def ask() -> list[tuple[str | None, str, Any]]:
        client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=server.url))
        try:
            stream = await client.aio.models.generate_content_stream(model="m", contents="Weather?")
            calls = [call async for each in stream for call in each.function_calls or ()]
            return [(each.id, str(each.name), each.args) for each in calls]
        finally:
            await client.aio.aclose()

    return ask()


REFEREES: dict[str, Callable[[Loopback], Awaitable[list[tuple[str | None, str, Any]]]]] = {
    "chat": ask_by_chat_sdk,
    "responses": ask_by_responses_sdk,
    "anthropic": ask_by_anthropic_sdk,
    "google": ask_by_google_sdk,
}


@EACH
@pytest.mark.parametrize("text", ["", "Let me look."])
@pytest.mark.parametrize("request_", [REQUEST, WHOLE])
def test_the_adapter_reads_the_same_calls_as_the_vendor_sdk(name: str, text: str, request_: Request) -> None:
    wire = PROVIDERS[name][1]
    theirs = serve(REFEREES[name], wire(text, calls=CALLED))
    reply = get_reply(name, wire(text, calls=CALLED), request_)
    assert theirs == [(each.id, each.name, json.loads(each.arguments)) for each in reply.tool_calls]
    assert (reply.text, reply.tool_calls) == (text, CALLS)


@EACH
def test_a_reply_without_tool_calls_has_none(name: str) -> None:
    assert get_reply(name, PROVIDERS[name][1]("It is so.")).tool_calls == ()


def test_every_answer_with_calls_fits_the_types_of_the_sdk() -> None:
    shapes: dict[str, tuple[Any, Any]] = {
        "chat": (TypeAdapter(ChatCompletionChunk), ChatCompletion),
        "responses": (TypeAdapter(ResponseStreamEvent), Response),
        "anthropic": (TypeAdapter(RawMessageStreamEvent), Message),
        "google": (TypeAdapter(types.GenerateContentResponse), types.GenerateContentResponse),
    }
    for name, (event_type, whole_type) in shapes.items():
        wire = PROVIDERS[name][1]
        for event in get_reply(name, wire("", calls=CALLED)).response():
            if event.get("type") != "ping":
                assert not event_type.validate_python(event).model_extra
        assert not whole_type.model_validate(get_reply(name, wire("", calls=CALLED), WHOLE).response()).model_extra


@EACH
def test_a_key_in_a_tool_call_is_never_stored(name: str) -> None:
    leak = ScriptedToolCall("send", json.dumps({"key": KEY}), "call_1")
    for request in (REQUEST, WHOLE):
        with pytest.raises(ApiKeyInReply):
            get_reply(name, PROVIDERS[name][1]("", calls=[leak]), request)


# What other servers send


def test_unnumbered_calls_start_with_a_name() -> None:
    pieces = [
        make_delta(id="a", function={"name": "one", "arguments": '{"x":'}),
        make_delta(function={"arguments": "1}"}),
        make_delta(id="b", function={"name": "two", "arguments": "{}"}),
    ]
    assert get_reply("chat", FixedAnswer(*pieces)).tool_calls == (
        ToolCall("one", '{"x":1}', "a"),
        ToolCall("two", "{}", "b"),
    )


def test_calls_with_equal_numbers_are_distinguished_by_id() -> None:
    pieces = [make_delta(index=0, id=each, function={"name": each, "arguments": "{}"}) for each in ("a", "b")]
    assert [each.id for each in get_reply("chat", FixedAnswer(*pieces)).tool_calls] == ["a", "b"]


def test_legacy_function_calls_and_non_text_arguments_are_read() -> None:
    old = [{"function_call": {"name": "one", "arguments": '{"x"'}}, {"function_call": {"arguments": ":1}"}}]
    assert get_reply("chat", FixedAnswer(*old)).tool_calls == (ToolCall("one", '{"x":1}'),)
    given = make_delta(index=0, id=7, function={"name": "one", "arguments": {"x": 1}})
    assert get_reply("chat", FixedAnswer(given)).tool_calls == (ToolCall("one", '{"x": 1}'),)
    custom = {"tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "run", "input": "print(1)"}}]}
    whole = {"choices": [{"index": 0, "message": {"content": None, **custom}, "finish_reason": "tool_calls"}]}
    assert get_reply("chat", FixedAnswer(whole=whole)).tool_calls == (ToolCall("run", "print(1)", "a"),)


@pytest.mark.parametrize(
    "malformed", [3, "x", {}, [3], [None], [{}], [{"function": 3}], [{"function": None, "index": 0}]]
)
def test_malformed_calls_do_not_fail_the_reply(malformed: Any) -> None:
    reply = get_reply("chat", FixedAnswer({"content": "So."}, {"tool_calls": malformed}))
    assert (reply.text, reply.tool_calls) == ("So.", ())


def test_a_tool_run_by_the_vendor_is_not_a_tool_call() -> None:
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    message: dict[str, Any] = {"model": "m", "content": [], "stop_reason": None, "usage": {"input_tokens": 1}}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": search},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]

    class Searching(AnthropicWire):
        def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:  # noqa: ARG002
            return Answer(tuple(make_event(each, each["type"]) for each in events), streamed=True)

    assert get_reply("anthropic", Searching()).tool_calls == ()
