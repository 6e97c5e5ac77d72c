"""Chat completions: server and adapter checked with OpenAI's SDK; then every fault, for both of OpenAI's formats."""

import asyncio
import json
import subprocess
import sys
import typing
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming

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
from pramana.model import Provider, Reply, Request, Turn, Usage
from pramana.providers.accounts import Account
from pramana.providers.text.openai import OpenAI, OpenAIResponses

from ...loopback.openai import CHAT_FIELDS, RESPONSES_FIELDS, OpenAIWire
from ...loopback.server import Answer, Fault, FaultKind, Loopback, Wire
from ...virtual_time import real_time

pytestmark = pytest.mark.usefixtures("virtual_time")
KEY = "sk-test-0123456789"
TURNS = (
    Turn("system", "Be brief."),
    Turn("user", "Is it so?"),
    Turn("assistant", "It may be — 🙂"),
    Turn("system", "Be briefer."),
    Turn("user", "Well?"),
)
MESSAGES: Any = [{"role": turn.role, "content": turn.text} for turn in TURNS]
T = typing.TypeVar("T")
Make = Callable[[Account], Provider]
CHAT: Make = OpenAI
BOTH = pytest.mark.parametrize("make", [OpenAI, OpenAIResponses])


def serve(use: Callable[[Loopback], Awaitable[T]], wire: Wire | None = None, **given: Any) -> T:
    async def go() -> T:
        async with Loopback(wire or OpenAIWire(key=KEY), **given) as server:
            return await use(server)

    return asyncio.run(go())


async def ask(
    server: Loopback,
    request: Request | None = None,
    *,
    make: Make = CHAT,
    key: str | None = KEY,
    timeout_s: float = 20.0,
) -> Reply:
    provider = make(Account(server.url, key, timeout_s))
    try:
        return await provider.ask(request or Request("gpt-5", TURNS, {"temperature": 0}))
    finally:
        await provider.close()


def ask_server(request: Request | None = None, *, make: Make = CHAT, wire: Wire | None = None, **given: Any) -> Reply:
    return serve(lambda server: ask(server, request, make=make), wire, **given)


def open_compatible(account: Account) -> Provider:
    return OpenAI(account, compatible=True)


def relevant_parts(got: ReceivedRequest) -> tuple[Any, ...]:
    names = ("Authorization", "Content-Type", "Accept")
    return got.method, got.path, dict(got.query), got.body, [got.headers.get(name) for name in names]


# The vendor SDK


def test_the_sdk_completes_a_streamed_call() -> None:
    async def use(server: Loopback) -> tuple[str, list[ChatCompletionChunk]]:
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="gpt-5", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
            )
            chunks = [chunk async for chunk in stream]
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), chunks

    text, chunks = serve(use, OpenAIWire("It is so, they say.", key=KEY))
    assert text == "It is so, they say."
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (13, 5)
    assert chunks[-2].choices[0].finish_reason == "stop"


def test_the_sdk_completes_a_plain_call() -> None:
    async def use(server: Loopback) -> ChatCompletion:
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            return await client.chat.completions.create(model="gpt-5", messages=MESSAGES, max_tokens=2)

    answer = serve(use, OpenAIWire("It is so.", key=KEY))
    assert answer.choices[0].message.content == "It is"
    assert answer.choices[0].finish_reason == "length"


def test_every_answer_fits_the_types_of_the_sdk() -> None:
    async def get_answers(server: Loopback) -> list[Any]:
        plain = Request("gpt-5", TURNS, {"stream": False})
        return [(await ask(server)).response(), (await ask(server, plain)).response()]

    for kind in (None, "filtered", "empty", "refusal", "long_line"):
        events, whole = serve(get_answers, faults=[Fault(kind)] if kind else [])
        for event in events:
            assert not ChatCompletionChunk.model_validate(event).model_extra
        assert not ChatCompletion.model_validate(whole).model_extra


@pytest.mark.parametrize(
    ("kind", "raised", "code"),
    [
        ("unauthorized", openai.AuthenticationError, "invalid_api_key"),
        ("unknown_model", openai.NotFoundError, "model_not_found"),
        ("rate_limited", openai.RateLimitError, "rate_limit_exceeded"),
        ("error", openai.InternalServerError, None),
        ("overloaded", openai.InternalServerError, None),
        ("parameter", openai.BadRequestError, "unsupported_parameter"),
        ("blocked", openai.BadRequestError, "content_filter"),
    ],
)
def test_the_sdk_understands_every_refusal(
    kind: FaultKind, raised: type[openai.APIStatusError], code: str | None
) -> None:
    async def use(server: Loopback) -> None:
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            await client.chat.completions.create(model="gpt-5", messages=MESSAGES)

    with pytest.raises(raised) as caught:
        serve(use, faults=[Fault(kind, parameter="seed")])
    assert caught.value.code == code
    assert caught.value.param == {"parameter": "seed", "blocked": "prompt"}.get(kind)


def test_our_request_equals_that_of_the_sdk() -> None:
    async def use(server: Loopback) -> list[ReceivedRequest]:
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            await client.chat.completions.create(
                model="gpt-5",
                messages=MESSAGES,
                temperature=0,
                seed=42,
                top_p=0.9,
                stop=["END", "STOP"],
                max_completion_tokens=100,
                reasoning_effort="low",
                stream=True,
                stream_options={"include_usage": True},
            )
            await client.models.list()
        parameters = {"temperature": 0, "seed": 42, "top_p": 0.9, "stop": ["END", "STOP"]}
        provider = OpenAI(Account(server.url, KEY))
        await provider.ask(Request("gpt-5", TURNS, {**parameters, "max_tokens": 100, "reasoning_effort": "low"}))
        assert await provider.models() == ["loopback-large", "loopback-small"]
        await provider.close()
        return server.requests

    chat, models, our_chat, our_models = serve(use)
    assert relevant_parts(our_chat) == relevant_parts(chat)
    assert relevant_parts(our_models) == relevant_parts(models)
    assert our_chat.headers["Accept-Encoding"].startswith("gzip, deflate")


def test_the_server_accepts_every_field_of_the_sdk() -> None:
    assert CHAT_FIELDS.keys() == typing.get_type_hints(CompletionCreateParamsStreaming).keys()
    assert RESPONSES_FIELDS.keys() == typing.get_type_hints(ResponseCreateParamsStreaming).keys()


# Replies


def test_a_streamed_reply_is_read() -> None:
    reply = ask_server(wire=OpenAIWire("It is so.", key=KEY), pace_s=0.01)
    assert (reply.text, reply.finish_reason, reply.served_model) == ("It is so.", "stop", "gpt-5")
    assert reply.fingerprint == "fp_loopback"
    assert reply.usage == Usage(13, 3, 0)
    assert (reply.first_token_s, reply.total_s) == pytest.approx((0.01, 0.05), abs=1e-4)
    assert [len(event["choices"]) for event in reply.response()] == [1, 1, 1, 1, 1, 0]


def test_time_to_first_token_ends_at_the_first_text_not_the_first_event() -> None:
    reply = ask_server(pace_s=0.05)
    assert reply.first_token_s == pytest.approx(0.05, abs=1e-4)  # the event before it says only who speaks


@BOTH
def test_plain_json_answers_a_streaming_request(make: Make) -> None:
    reply = ask_server(make=make, faults=[Fault("plain")], latency_s=0.1)
    assert (reply.text, reply.first_token_s) == ("It is so.", None)
    assert reply.total_s == pytest.approx(0.1, abs=1e-4)
    assert reply.usage == Usage(13, 3, 0)
    assert isinstance(reply.response(), dict)


@BOTH
def test_an_unstreamed_answer_is_read(make: Make) -> None:
    reply = ask_server(Request("gpt-5", TURNS, {"stream": False}), make=make)
    assert (reply.text, reply.first_token_s) == ("It is so.", None)


@BOTH
def test_an_empty_answer_is_an_empty_text(make: Make) -> None:
    reply = ask_server(make=make, faults=[Fault("empty")])
    assert (reply.text, reply.first_token_s, reply.usage.output_tokens) == ("", None, 0)


@BOTH
def test_a_refusal_is_the_reply_text(make: Make) -> None:
    assert ask_server(make=make, faults=[Fault("refusal")]).text == "I cannot help with that."
    plain = Request("gpt-5", TURNS, {"stream": False})
    assert ask_server(plain, make=make, faults=[Fault("refusal")]).text == "I cannot help with that."


@BOTH
def test_a_filtered_answer_is_marked(make: Make) -> None:
    assert ask_server(make=make, faults=[Fault("filtered")]).finish_reason == "content_filter"


@BOTH
def test_a_line_of_a_megabyte_is_read(make: Make) -> None:
    assert ask_server(make=make, faults=[Fault("long_line")]).text == "a" * (1 << 20)


@BOTH
def test_any_reply_text_is_read_unchanged(make: Make) -> None:
    said = 'line\r\nnext  two blanks\t"quoted" \u2028 🙂 \ud83d e\u0301 \x00'
    assert ask_server(make=make, wire=OpenAIWire(said, key=KEY)).text == said


@BOTH
def test_any_turn_is_sent_unchanged(make: Make) -> None:
    text = "a lone \ud83d surrogate, \x00, \u2028 and 🙂"

    async def use(server: Loopback) -> Any:
        await ask(server, Request("gpt-5", (Turn("user", text),)), make=make)
        body = server.requests[0].body
        return (body.get("messages") or body["input"])[0]["content"]

    assert serve(use) == text


# Faults


@BOTH
@pytest.mark.parametrize(
    ("fault", "kind", "says", "retry_after"),
    [
        (Fault("unauthorized"), AuthenticationFailed, "rejected the API key (401)", None),
        (Fault("unknown_model"), UnknownModel, "has no such model: The model does not exist", None),
        (Fault("rate_limited"), RateLimited, "rate limit exceeded (429): Rate limit reached", None),
        (Fault("rate_limited", retry_after="7"), RateLimited, "rate limit exceeded (429)", 7.0),
        (Fault("error"), Unavailable, "is unavailable (500): The server had an error", None),
        (Fault("error", retry_after="2"), Unavailable, "is unavailable (500)", 2.0),
        (Fault("overloaded"), Unavailable, "is unavailable (529): Overloaded", None),
        (Fault("cut"), BrokenReply, "was cut off before its end", None),
        (Fault("short"), BrokenReply, "was cut off before its end", None),
        (Fault("bad_json"), BrokenReply, 'is not JSON; it begins "{"oops": "', None),
        (Fault("error_midway"), Unavailable, "is unavailable (500): The server had an error", None),
        (Fault("parameter", parameter="temperature"), Rejected, "Unsupported parameter: 'temperature'", None),
        (Fault("blocked"), Rejected, "rejected the prompt: content filter", None),
    ],
)
def test_each_fault_raises_its_error(
    make: Make, fault: Fault, kind: type[ProviderError], says: str, retry_after: float | None
) -> None:
    with pytest.raises(ProviderError) as caught:
        ask_server(make=make, faults=[fault])
    assert type(caught.value) is kind
    assert says in str(caught.value)
    assert str(caught.value).count("OpenAI (127.0.0.1:") == 1
    assert caught.value.retry_after == retry_after
    assert KEY not in str(caught.value)
    if isinstance(caught.value, Rejected):
        assert caught.value.parameter == fault.parameter


@BOTH
def test_a_hanging_request_ends_with_the_timeout(make: Make) -> None:
    with pytest.raises(Unavailable, match=r"no complete reply from OpenAI \(.*\) within 0.2 s"):
        serve(lambda server: ask(server, make=make, timeout_s=0.2), faults=[Fault("hang")])


def test_a_retry_after_date_is_read() -> None:
    until = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    with pytest.raises(RateLimited) as caught:
        ask_server(faults=[Fault("rate_limited", retry_after=until)])
    assert caught.value.retry_after is not None
    assert 3000 < caught.value.retry_after <= 3600


@BOTH
def test_a_wrong_or_missing_key_says_what_to_set(make: Make) -> None:
    for key, says in (
        ("sk-wrong-987654321", "rejected the API key (401)"),
        (None, "requires an API key, and none is set (401)"),
    ):
        with pytest.raises(AuthenticationFailed) as caught:
            serve(lambda server, key=key: ask(server, make=make, key=key))  # type: ignore[misc]
        assert says in str(caught.value)
        assert str(caught.value).endswith("; set OPENAI_API_KEY")


@BOTH
def test_an_unknown_model_is_reported(make: Make) -> None:
    with pytest.raises(UnknownModel, match="The model `gpt-0` does not exist"):
        ask_server(Request("gpt-0", TURNS), make=make, wire=OpenAIWire(key=KEY, any_model=False))


@BOTH
@pytest.mark.parametrize(
    ("parameters", "named", "says"),
    [
        ({"max_tokens": 0}, "max_tokens", "expected a value between"),
        ({"temperature": "hot"}, "temperature", "expected a decimal"),
        ({"temperature": 3}, "temperature", "between 0 and 2"),
        ({"shoe_size": 43}, "shoe_size", "Unknown parameter: 'shoe_size'"),
    ],
)
def test_a_refused_parameter_is_named_in_our_words(
    make: Make, parameters: dict[str, Any], named: str, says: str
) -> None:
    with pytest.raises(Rejected, match=says) as caught:
        ask_server(Request("gpt-5", TURNS, parameters), make=make)
    assert (caught.value.parameter, caught.value.status) == (named, 400)


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {},
        {"choices": []},
        {"choices": 3},
        {"choices": [3]},
        {"choices": [{"message": 3}]},
        {"choices": [{"message": {"content": 3}, "finish_reason": "stop"}]},
        {"choices": [{"message": {"content": ["a"]}, "finish_reason": "stop"}]},
    ],
)
def test_an_answer_of_another_shape_breaks_the_reply(answer: Any) -> None:
    class OddWire(OpenAIWire):
        def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:  # noqa: ARG002
            return Answer.of(answer)

    with pytest.raises(BrokenReply):
        ask_server(wire=OddWire())


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens": "many", "completion_tokens": 1.5},
        {"prompt_tokens": -(10**6), "completion_tokens": -1, "prompt_tokens_details": {"cached_tokens": -1}},
        {"prompt_tokens": 2**63, "completion_tokens": 10**400},
        {"prompt_tokens": True, "prompt_tokens_details": 3},
        3,
        [1],
    ],
)
def test_invalid_token_counts_are_unknown(usage: Any) -> None:
    class OddWire(OpenAIWire):
        def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:  # noqa: ARG002
            choice = {"message": {"content": "a"}, "finish_reason": "stop"}
            return Answer.of({"choices": [choice], "usage": usage})

    assert ask_server(wire=OddWire()).usage == Usage()


def test_the_key_is_never_shown() -> None:
    with pytest.raises(ApiKeyInReply) as caught:
        ask_server(wire=OpenAIWire(lambda messages: f"you are {KEY} and said {messages[-1]['content']}", key=KEY))
    assert KEY not in str(caught.value)
    provider = OpenAI(Account("http://host/v1", KEY))
    assert KEY not in f"{provider!r} {provider._http!r} {provider._http.account!r}"


# Compatible servers


def test_a_compatible_server_needs_no_key_and_gets_max_tokens() -> None:
    async def use(server: Loopback) -> ReceivedRequest:
        await ask(server, Request("llama", TURNS, {"max_tokens": 2}), make=open_compatible, key=None)
        return server.requests[0]

    got = serve(use, OpenAIWire())
    assert "Authorization" not in got.headers
    assert got.body["max_tokens"] == 2
    assert "max_completion_tokens" not in got.body


def test_parameters_of_none_are_omitted() -> None:
    async def use(server: Loopback) -> Any:
        await ask(server, Request("llama", TURNS, {"stream_options": None, "seed": None}), make=open_compatible)
        return server.requests[0].body

    assert serve(use) == {"model": "llama", "messages": MESSAGES, "stream": True}


def test_parameters_cannot_override_the_conversation() -> None:
    async def use(server: Loopback) -> Any:
        await ask(server, Request("gpt-5", TURNS, {"model": "other", "messages": []}))
        return server.requests[0].body

    body = serve(use)
    assert (body["model"], body["messages"]) == ("gpt-5", MESSAGES)


def test_the_first_of_several_choices_is_the_reply() -> None:
    class TwoChoices(OpenAIWire):
        def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:  # noqa: ARG002
            texts = enumerate(("first", "second"))
            choices = [{"index": at, "message": {"content": text}, "finish_reason": "stop"} for at, text in texts]
            return Answer.of({"choices": choices})

    assert ask_server(wire=TwoChoices()).text == "first"


def test_a_refusal_by_a_compatible_server_names_the_variable_to_set() -> None:
    with pytest.raises(
        AuthenticationFailed, match=r"the server \(127.0.0.1:\d+\) requires an API key.*; set OPENAI_API_KEY"
    ):
        serve(lambda server: ask(server, make=open_compatible, key=None))


# The server itself


@pytest.mark.parametrize(
    ("body", "param", "code"),
    [
        ({}, "model", "missing_required_parameter"),
        ({"model": "m"}, "messages", "missing_required_parameter"),
        ({"model": 3, "messages": MESSAGES}, "model", "invalid_type"),
        ({"model": "m", "messages": []}, "messages", "empty_array"),
        ({"model": "m", "messages": [3]}, "messages[0]", None),
        ({"model": "m", "messages": [{"role": "boss", "content": "x"}]}, "messages[0].role", "invalid_value"),
        ({"model": "m", "messages": [{"role": "user"}]}, "messages[0].content", "invalid_type"),
        ({"model": "m", "messages": MESSAGES, "seed": "a"}, "seed", "invalid_type"),
        ({"model": "m", "messages": MESSAGES, "stream_options": {"include_usage": True}}, "stream_options", None),
        (
            {"model": "m", "messages": MESSAGES, "max_tokens": 1, "max_completion_tokens": 1},
            "max_tokens",
            "invalid_parameter_combination",
        ),
    ],
)
def test_the_server_checks_field_by_field(body: Any, param: str, code: str | None) -> None:
    got = ReceivedRequest("POST", "/chat/completions", {}, {"Content-Type": "application/json"}, body)
    answer = OpenAIWire().answer(got, None)
    error = json.loads(answer.whole)["error"]
    assert answer.status == 400
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", param, code)


def test_the_server_answers_unknown_paths_and_bodies_as_openai_does() -> None:
    kind = {"Content-Type": "application/json"}
    assert OpenAIWire().answer(ReceivedRequest("POST", "/nowhere", {}, kind, {}), None).status == 404
    assert OpenAIWire().answer(ReceivedRequest("POST", "/chat/completions", {}, kind, None), None).status == 400
    assert OpenAIWire().answer(ReceivedRequest("POST", "/chat/completions", {}, {}, {"model": "m"}), None).status == 400


def test_scripted_and_random_faults_hit_the_intended_requests() -> None:
    async def use(server: Loopback) -> list[str]:
        outcomes = []
        for _ in range(40):
            try:
                outcomes.append((await ask(server)).text)
            except ProviderError as error:
                outcomes.append(error.code)
        return outcomes

    given: Any = {"script": {0: Fault("error"), 2: Fault("rate_limited")}, "faults": [Fault("cut")], "chance": 0.3}
    first = serve(use, seed=5, **given)
    assert first[0] == "unavailable"
    assert first[2] == "rate_limited"
    assert 2 < first.count("broken_reply") < 25
    assert serve(use, seed=5, **given) == first
    assert serve(use, seed=6, **given) != first


def test_the_server_delays_answers_and_records_peak_concurrency() -> None:
    async def use(server: Loopback) -> list[Reply]:
        return await asyncio.gather(*(ask(server) for _ in range(5)))

    async def use_and_count(server: Loopback) -> tuple[list[Reply], int, int]:
        return await use(server), server.count, server.busiest

    replies, count, busiest = serve(use_and_count, latency_s=0.1)
    assert [reply.total_s for reply in replies] == [pytest.approx(0.1, abs=1e-4)] * 5
    assert (count, busiest) == (5, 5)


@real_time()  # the server is another process
def test_the_server_runs_as_a_program() -> None:
    async def use(url: str) -> tuple[str, Any, Any]:
        import aiohttp

        provider = OpenAI(Account(url), compatible=True)
        text = (await provider.ask(Request("m", TURNS))).text
        await provider.close()
        async with aiohttp.ClientSession() as session:
            address = url.removesuffix("/v1") + "/loopback"
            async with session.delete(address) as told, session.get(address) as after:
                return text, await told.json(), await after.json()

    command = [sys.executable, "-m", "tests.loopback", "openai", "--says", "Hello.", "--latency", "0.01"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as process:
        assert process.stdout is not None
        try:
            text, told, after = asyncio.run(use(process.stdout.readline().strip()))
        finally:
            process.terminate()
    assert text == "Hello."
    assert told == {"requests": 1, "seconds": 0.0, "at_once": 1}
    assert after["requests"] == 0
