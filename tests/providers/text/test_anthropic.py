"""Anthropic's messages: server and adapter checked with its own SDK; then replies, and every fault."""

import asyncio
import itertools
import json
import typing
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from anthropic.types.shared import ErrorResponse
from pydantic import TypeAdapter

from pramana.errors import (
    ApiKeyInReply,
    AuthenticationFailed,
    BrokenReply,
    ProviderError,
    RateLimited,
    Rejected,
    Unavailable,
    UnknownModel,
)
from pramana.loopback.voice import ReceivedRequest
from pramana.model import Reply, Request, Target, Turn, Usage
from pramana.providers.accounts import Account
from pramana.providers.text.anthropic import Anthropic

from ...loopback.anthropic import FIELDS, AnthropicWire
from ...loopback.server import Answer, Fault, FaultKind, Loopback, Wire, make_event

pytestmark = pytest.mark.usefixtures("virtual_time")
KEY = "sk-ant-test-0123456789"
TURNS = (
    Turn("system", "Be brief."),
    Turn("user", "Is it so?"),
    Turn("assistant", "It may be — 🙂"),
    Turn("user", "Well?"),
)
MESSAGES: Any = [{"role": turn.role, "content": turn.text} for turn in TURNS[1:]]
IN_HEADERS = {"user_profile_id", "workspace_id"}
T = typing.TypeVar("T")


def serve(use: Callable[[Loopback], Awaitable[T]], wire: Wire | None = None, **given: Any) -> T:
    async def go() -> T:
        async with Loopback(wire or AnthropicWire(key=KEY), **given) as server:
            return await use(server)

    return asyncio.run(go())


async def ask(
    server: Loopback, request: Request | None = None, *, key: str | None = KEY, timeout_s: float = 20.0
) -> Reply:
    provider = Anthropic(Account(server.url, key, timeout_s))
    try:
        return await provider.ask(request or Request("claude-opus-4-6", TURNS))
    finally:
        await provider.close()


def ask_server(request: Request | None = None, *, wire: Wire | None = None, **given: Any) -> Reply:
    return serve(lambda server: ask(server, request), wire, **given)


def open_sdk_client(server: Loopback) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=server.url, api_key=KEY, max_retries=0)


def relevant_parts(got: ReceivedRequest) -> tuple[Any, ...]:
    names = ("Authorization", "x-api-key", "anthropic-version", "Content-Type", "Accept")
    return got.method, got.path, dict(got.query), got.body, [got.headers.get(name) for name in names]


class FixedAnswer(AnthropicWire):
    """A server that answers every request with the given events."""

    def __init__(self, *events: Any, whole: Any = None) -> None:
        super().__init__()
        self.events, self.whole = events, whole

    def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:  # noqa: ARG002
        if self.whole is not None:
            return Answer.of(self.whole)
        return Answer(tuple(make_event(each, each.get("type")) for each in self.events), streamed=True)


def make_start(**usage: Any) -> dict[str, Any]:
    message: dict[str, Any] = {
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": 10, **usage},
    }
    return {"type": "message_start", "message": message}


def make_delta(text: str, kind: str = "text_delta", name: str = "text") -> dict[str, Any]:
    return {"type": "content_block_delta", "index": 0, "delta": {"type": kind, name: text}}


ENDED = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 7}}
STOPPED = {"type": "message_stop"}


# The vendor SDK


def test_the_sdk_completes_a_streamed_call() -> None:
    async def use(server: Loopback) -> Message:
        async with (
            open_sdk_client(server) as client,
            client.messages.stream(
                model="claude-opus-4-6", max_tokens=100, system="Be brief.", messages=MESSAGES
            ) as stream,
        ):
            return await stream.get_final_message()

    message = serve(use, AnthropicWire("It is so, they say.", key=KEY))
    assert [block.text for block in message.content if block.type == "text"] == ["It is so, they say."]
    assert (message.usage.input_tokens, message.usage.output_tokens) == (11, 5)
    assert (message.stop_reason, message.model) == ("end_turn", "claude-opus-4-6")


def test_the_sdk_completes_a_plain_call() -> None:
    async def use(server: Loopback) -> Message:
        async with open_sdk_client(server) as client:
            return await client.messages.create(model="claude-opus-4-6", max_tokens=2, messages=MESSAGES)

    message = serve(use)
    assert [block.text for block in message.content if block.type == "text"] == ["It is"]
    assert message.stop_reason == "max_tokens"


def test_our_request_equals_that_of_the_sdk() -> None:
    async def use(server: Loopback) -> list[ReceivedRequest]:
        async with open_sdk_client(server) as client:
            stream = await client.messages.create(
                model="claude-opus-4-6",
                max_tokens=100,
                system="Be brief.",
                messages=MESSAGES,
                stop_sequences=["END", "STOP"],
                metadata={"user_id": "someone"},
                stream=True,
            )
            assert [event.type async for event in stream][-1] == "message_stop"
            await client.models.list(limit=1000)
        provider = Anthropic(Account(server.url, KEY))
        parameters = {"max_tokens": 100, "stop": ["END", "STOP"], "metadata": {"user_id": "someone"}}
        await provider.ask(Request("claude-opus-4-6", TURNS, parameters))
        assert await provider.models() == ["loopback-large", "loopback-small"]
        await provider.close()
        return server.requests

    messages, models, our_messages, our_models = serve(use)
    assert relevant_parts(our_messages) == relevant_parts(messages)
    assert relevant_parts(our_models) == relevant_parts(models)


def test_a_later_system_turn_is_placed_like_in_the_sdk() -> None:
    turns = (*TURNS, Turn("system", "Be briefer."), Turn("user", "Now?"))
    messages: Any = [{"role": turn.role, "content": turn.text} for turn in turns[1:]]

    async def use(server: Loopback) -> list[ReceivedRequest]:
        async with open_sdk_client(server) as client:
            await client.messages.create(
                model="claude-opus-4-6", max_tokens=1024, system="Be brief.", messages=messages, stream=False
            )
        await ask(server, Request("claude-opus-4-6", turns, {"stream": False}))
        return server.requests

    theirs, ours = serve(use)
    assert relevant_parts(ours) == relevant_parts(theirs)


def test_leading_system_turns_become_separate_blocks() -> None:
    async def use(server: Loopback) -> Any:
        await ask(server, Request("m", (Turn("system", "One."), Turn("system", "Two."), Turn("user", "Go."))))
        return server.requests[0].body

    assert serve(use) == {
        "model": "m",
        "max_tokens": 1024,
        "stream": True,
        "system": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}],
        "messages": [{"role": "user", "content": "Go."}],
    }


def test_the_server_accepts_every_field_of_the_sdk() -> None:
    assert FIELDS.keys() == typing.get_type_hints(MessageCreateParamsStreaming).keys() - IN_HEADERS


def test_every_answer_fits_the_types_of_the_sdk() -> None:
    async def get_answers(server: Loopback) -> list[Any]:
        plain = Request("claude-opus-4-6", TURNS, {"stream": False})
        return [(await ask(server)).response(), (await ask(server, plain)).response()]

    events_of: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
    for kind in (None, "filtered", "empty", "refusal", "long_line"):
        events, whole = serve(get_answers, faults=[Fault(kind)] if kind else [])
        for event in events:
            if event["type"] != "ping":
                assert not events_of.validate_python(event).model_extra
        assert not Message.model_validate(whole).model_extra


@pytest.mark.parametrize(
    ("kind", "raised", "named"),
    [
        ("unauthorized", anthropic.AuthenticationError, "authentication_error"),
        ("unknown_model", anthropic.NotFoundError, "not_found_error"),
        ("rate_limited", anthropic.RateLimitError, "rate_limit_error"),
        ("error", anthropic.InternalServerError, "api_error"),
        ("overloaded", anthropic.APIStatusError, "overloaded_error"),
        ("parameter", anthropic.BadRequestError, "invalid_request_error"),
        ("blocked", anthropic.BadRequestError, "invalid_request_error"),
    ],
)
def test_the_sdk_understands_every_refusal(kind: FaultKind, raised: type[anthropic.APIStatusError], named: str) -> None:
    async def use(server: Loopback) -> None:
        async with open_sdk_client(server) as client:
            await client.messages.create(model="claude-opus-4-6", max_tokens=5, messages=MESSAGES)

    with pytest.raises(raised) as caught:
        serve(use, faults=[Fault(kind, parameter="metadata")])
    answer = ErrorResponse.model_validate(caught.value.body)
    assert answer.error.type == named


# Replies


def test_a_streamed_reply_is_read() -> None:
    reply = ask_server(pace_s=0.01)
    assert (reply.text, reply.finish_reason, reply.served_model) == ("It is so.", "end_turn", "claude-opus-4-6")
    assert reply.usage == Usage(11, 3, 0)
    waits = len(reply.response()) - 1
    assert (reply.first_token_s, reply.total_s) == pytest.approx((0.03, waits * 0.01), abs=1e-4)
    assert [event["type"] for event in reply.response()][:3] == ["message_start", "content_block_start", "ping"]
    assert reply.dropped == ()


def test_unsupported_parameters_are_dropped_and_listed() -> None:
    async def use(server: Loopback) -> tuple[Reply, Any]:
        parameters = {"temperature": 0, "seed": 42, "top_p": None, "stop": "END"}
        reply = await ask(server, Request("claude-opus-4-6", TURNS, parameters))
        return reply, server.requests[0].body

    reply, body = serve(use)
    assert reply.dropped == ("temperature", "seed")
    assert body["stop_sequences"] == ["END"]
    assert not body.keys() & {"temperature", "seed", "top_p", "stop"}


def test_cached_tokens_count_as_input() -> None:
    start = make_start(cache_read_input_tokens=4, cache_creation_input_tokens=100, output_tokens=1)
    reply = ask_server(wire=FixedAnswer(start, make_delta("a"), ENDED, STOPPED))
    assert reply.usage == Usage(114, 7, 4)


def test_thinking_is_not_part_of_the_text() -> None:
    thought = make_delta("hm", "thinking_delta", "thinking")
    assert (
        ask_server(wire=FixedAnswer(make_start(), thought, make_delta("a"), make_delta("b"), ENDED, STOPPED)).text
        == "ab"
    )


def test_plain_json_answers_a_streaming_request() -> None:
    reply = ask_server(faults=[Fault("plain")])
    assert (reply.text, reply.first_token_s, reply.finish_reason) == ("It is so.", None, "end_turn")
    assert reply.usage == Usage(11, 3, 0)
    assert isinstance(reply.response(), dict)


def test_empty_refused_and_filtered_answers_are_read() -> None:
    empty = ask_server(faults=[Fault("empty")])
    assert (empty.text, empty.first_token_s, empty.usage.output_tokens) == ("", None, 0)
    assert ask_server(faults=[Fault("refusal")]).text == "I cannot help with that."
    assert ask_server(faults=[Fault("filtered")]).finish_reason == "refusal"


def test_a_line_of_a_megabyte_is_read() -> None:
    assert ask_server(faults=[Fault("long_line")]).text == "a" * (1 << 20)


def test_any_reply_text_is_read_unchanged() -> None:
    text = 'line\r\nnext  two blanks\t"quoted" \u2028 🙂 \ud83d e\u0301 \x00'
    assert ask_server(wire=AnthropicWire(text, key=KEY)).text == text


def test_models_are_listed_from_every_page() -> None:
    async def use(server: Loopback) -> list[str]:
        provider = Anthropic.open(Target("x", "anthropic", "x"), Account(server.url, KEY))
        try:
            return await provider.models()
        finally:
            await provider.close()

    assert serve(use, AnthropicWire(key=KEY, models=["c", "a", "d", "b"], page=3)) == ["a", "b", "c", "d"]


class EndlessPages(AnthropicWire):
    """A server with an endless list of models."""

    def __init__(self, ids: typing.Iterator[str]) -> None:
        super().__init__()
        self.ids, self.asked = ids, 0

    def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:  # noqa: ARG002
        self.asked += 1
        name = next(self.ids)
        return Answer.of({"data": [{"id": name}], "has_more": True, "last_id": name})


@pytest.mark.parametrize(("ids", "most"), [(["a", "b"], 4), (map(str, itertools.count()), 100)])
def test_an_endless_list_of_models_is_aborted(ids: typing.Iterable[str], most: int) -> None:
    wire = EndlessPages(itertools.cycle(ids) if isinstance(ids, list) else iter(ids))

    async def use(server: Loopback) -> list[str]:
        provider = Anthropic(Account(server.url))
        try:
            return await provider.models()
        finally:
            await provider.close()

    with pytest.raises(BrokenReply, match="an endless list of models"):
        serve(use, wire)
    assert wire.asked <= most


# Faults


@pytest.mark.parametrize(
    ("fault", "kind", "says", "retry_after"),
    [
        (Fault("unauthorized"), AuthenticationFailed, "rejected the API key (401)", None),
        (Fault("unknown_model"), UnknownModel, "has no such model", None),
        (Fault("rate_limited"), RateLimited, "rate limit exceeded (429)", None),
        (Fault("rate_limited", retry_after="7"), RateLimited, "rate limit exceeded (429)", 7.0),
        (Fault("error"), Unavailable, "is unavailable (500)", None),
        (Fault("overloaded"), Unavailable, "is unavailable (529): Overloaded", None),
        (Fault("cut"), BrokenReply, "was cut off before its end", None),
        (Fault("short"), BrokenReply, "was cut off before its end", None),
        (Fault("bad_json"), BrokenReply, "is not JSON", None),
        (Fault("error_midway"), Unavailable, "is unavailable (529): Overloaded", None),
        (Fault("parameter", parameter="metadata"), Rejected, "Extra inputs are not permitted", None),
        (Fault("blocked"), Rejected, "content filtering policy", None),
    ],
)
def test_each_fault_raises_its_error(
    fault: Fault, kind: type[ProviderError], says: str, retry_after: float | None
) -> None:
    with pytest.raises(ProviderError) as caught:
        ask_server(faults=[fault])
    assert type(caught.value) is kind
    assert says in str(caught.value)
    assert "Anthropic (127.0.0.1:" in str(caught.value)
    assert caught.value.retry_after == retry_after
    assert KEY not in str(caught.value)
    if isinstance(caught.value, Rejected):
        assert caught.value.parameter == fault.parameter


def test_a_hanging_request_ends_with_the_timeout() -> None:
    with pytest.raises(Unavailable, match=r"no complete reply from Anthropic \(.*\) within 0.2 s"):
        serve(lambda server: ask(server, timeout_s=0.2), faults=[Fault("hang")])


@pytest.mark.parametrize(
    ("named", "kind"),
    [
        ("overloaded_error", Unavailable),
        ("api_error", Unavailable),
        ("timeout_error", Unavailable),
        ("rate_limit_error", RateLimited),
        ("authentication_error", AuthenticationFailed),
        ("invalid_request_error", Rejected),
        ("something_new", Unavailable),
    ],
)
def test_an_error_in_mid_stream_is_classified_by_its_type(named: str, kind: type[ProviderError]) -> None:
    failed = {"type": "error", "error": {"type": named, "message": "sorry"}}
    with pytest.raises(ProviderError, match="sorry") as caught:
        ask_server(wire=FixedAnswer(make_start(), make_delta("a"), failed))
    assert type(caught.value) is kind


def test_a_wrong_or_missing_key_says_what_to_set() -> None:
    for key, says in (("wrong", "rejected the API key (401)"), (None, "requires an API key, and none is set (401)")):
        with pytest.raises(AuthenticationFailed) as caught:
            serve(lambda server, key=key: ask(server, key=key))  # type: ignore[misc]
        assert says in str(caught.value)
        assert str(caught.value).endswith("; set ANTHROPIC_API_KEY")


def test_a_refused_parameter_is_named_in_our_words() -> None:
    with pytest.raises(Rejected, match="stop_sequences: Input should be a valid list"):
        ask_server(Request("m", TURNS, {"stop": 3}))
    with pytest.raises(Rejected) as caught:
        ask_server(Request("m", TURNS, {"shoe_size": 43}))
    assert caught.value.parameter == "shoe_size"


def test_an_unknown_model_is_reported() -> None:
    with pytest.raises(UnknownModel, match="model: claude-0"):
        ask_server(Request("claude-0", TURNS), wire=AnthropicWire(key=KEY, any_model=False))


@pytest.mark.parametrize(
    "wire",
    [
        FixedAnswer(whole=[]),
        FixedAnswer(whole={}),
        FixedAnswer(whole={"type": "message"}),
        FixedAnswer(whole={"type": "message", "model": "m", "stop_reason": None, "usage": {}, "content": [3]}),
        FixedAnswer({"type": "message_start", "message": 3}, STOPPED),
        FixedAnswer(make_start(), make_delta("a"), {"type": "message_delta", "delta": 3}, STOPPED),
        FixedAnswer(make_start(), {"type": "content_block_delta", "delta": {"text": 3}}, STOPPED),
        FixedAnswer(make_start(), make_delta("a"), ENDED),
        FixedAnswer(make_delta("a"), ENDED, STOPPED),
        FixedAnswer(),
    ],
)
def test_an_answer_of_another_shape_breaks_the_reply(wire: Wire) -> None:
    with pytest.raises(BrokenReply):
        ask_server(wire=wire)


def test_a_list_of_models_of_another_shape_breaks_the_reply() -> None:
    async def use(server: Loopback) -> list[str]:
        provider = Anthropic(Account(server.url))
        try:
            return await provider.models()
        finally:
            await provider.close()

    with pytest.raises(BrokenReply, match="is not a list of models"):
        serve(use, FixedAnswer(whole={"data": [{"name": "x"}]}))


def test_the_key_is_never_shown() -> None:
    with pytest.raises(ApiKeyInReply) as caught:
        ask_server(wire=AnthropicWire(lambda messages: f"you are {KEY} and said {messages[-1]['content']}", key=KEY))
    assert KEY not in str(caught.value)
    provider = Anthropic(Account("http://host", KEY))
    assert KEY not in f"{provider!r} {provider._http!r} {provider._http.account!r}"


# The server itself


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": None}, "model: Input should be a valid string"),
        ({"max_tokens": "many"}, "max_tokens: Input should be a valid integer"),
        ({"max_tokens": -1}, "max_tokens: Input should be greater than or equal to 0"),
        ({"temperature": 0}, "temperature: Extra inputs are not permitted"),
        ({"messages": []}, "messages: at least one message is required"),
        ({"messages": [3]}, "messages.0: Input should be a valid dictionary"),
        ({"messages": [{"role": "boss", "content": "x"}]}, "messages.0.role: Input should be"),
        ({"messages": [{"role": "user"}]}, "messages.0.content: Input should be"),
        ({"messages": [{"role": "user", "content": "x", "name": "y"}]}, "messages.0.name: Extra inputs"),
    ],
)
def test_the_server_checks_field_by_field(change: dict[str, Any], says: str) -> None:
    headers = {"Content-Type": "application/json", "anthropic-version": "2026-10-21"}
    body = {"model": "m", "max_tokens": 1, "messages": MESSAGES, **change}
    answer = AnthropicWire().answer(ReceivedRequest("POST", "/v1/messages", {}, headers, body), None)
    assert answer.status == 400
    assert json.loads(answer.whole)["error"]["message"].startswith(says)


def test_the_server_requires_version_type_path_and_fields() -> None:
    version = {"anthropic-version": "2026-10-21"}
    typed = {**version, "Content-Type": "application/json"}
    for status, headers, path, body in (
        (400, {"Content-Type": "application/json"}, "/v1/messages", {}),
        (400, {**typed, "anthropic-version": "1999-01-01"}, "/v1/messages", {}),
        (400, version, "/v1/messages", {}),
        (400, typed, "/v1/messages", None),
        (400, typed, "/v1/messages", {"model": "m", "messages": MESSAGES}),
        (404, typed, "/v1/nowhere", {}),
    ):
        assert AnthropicWire().answer(ReceivedRequest("POST", path, {}, headers, body), None).status == status
