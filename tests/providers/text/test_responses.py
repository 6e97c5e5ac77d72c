"""The responses API: server and adapter checked with OpenAI's own SDK. Its faults are tested with those of chat."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from pramana.errors import BrokenReply, RateLimited, Rejected, Unavailable
from pramana.loopback.voice import ReceivedRequest
from pramana.model import Reply, Request, Turn, Usage
from pramana.providers.accounts import Account
from pramana.providers.text.openai import OpenAIResponses

from ...loopback.openai import OpenAIWire
from ...loopback.server import Answer, Fault, Loopback, Wire, make_event

pytestmark = pytest.mark.usefixtures("virtual_time")
KEY = "sk-test-0123456789"
TURNS = (
    Turn("system", "Be brief."),
    Turn("user", "Is it so?"),
    Turn("assistant", "It may be — 🙂"),
    Turn("system", "Be briefer."),
    Turn("user", "Well?"),
)
ITEMS: Any = [{"role": turn.role, "content": turn.text} for turn in TURNS]
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
T = TypeVar("T")


def serve(use: Callable[[Loopback], Awaitable[T]], wire: Wire | None = None, **given: Any) -> T:
    async def go() -> T:
        async with Loopback(wire or OpenAIWire(key=KEY), **given) as server:
            return await use(server)

    return asyncio.run(go())


async def ask(server: Loopback, request: Request | None = None) -> Reply:
    provider = OpenAIResponses(Account(server.url, KEY, 20.0))
    try:
        return await provider.ask(request or Request("gpt-5", TURNS, {"temperature": 0}))
    finally:
        await provider.close()


def relevant_parts(got: ReceivedRequest) -> tuple[Any, ...]:
    names = ("Authorization", "Content-Type", "Accept")
    return got.method, got.path, dict(got.query), got.body, [got.headers.get(name) for name in names]


def test_the_sdk_completes_a_streamed_call() -> None:
    async def use(server: Loopback) -> tuple[str, Any]:
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            events = [each async for each in await client.responses.create(model="gpt-5", input=ITEMS, stream=True)]
            return "".join(each.delta for each in events if each.type == "response.output_text.delta"), events[-1]

    text, last = serve(use, OpenAIWire("It is so, they say.", key=KEY))
    assert text == "It is so, they say."
    assert last.type == "response.completed"
    assert last.response.output_text == text
    assert (last.response.usage.input_tokens, last.response.usage.output_tokens) == (13, 5)


def test_the_sdk_completes_a_call_with_its_accumulator() -> None:
    async def use(server: Loopback) -> str:
        async with (
            openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client,
            client.responses.stream(model="gpt-5", input=ITEMS) as stream,
        ):
            return (await stream.get_final_response()).output_text

    assert serve(use) == "It is so."


def test_the_sdk_completes_a_plain_call() -> None:
    async def use(server: Loopback) -> Response:
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            return await client.responses.create(
                model="gpt-5", input="Is it so?", instructions="Be brief.", max_output_tokens=16
            )

    answer = serve(use, OpenAIWire("word " * 20, key=KEY))
    assert answer.output_text == " ".join(["word"] * 16)
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.usage is not None
    assert answer.usage.input_tokens == 5


@pytest.mark.parametrize("kind", [None, "filtered", "empty", "refusal", "long_line"])
def test_every_answer_fits_the_types_of_the_sdk(kind: Any) -> None:
    async def get_answers(server: Loopback) -> list[Any]:
        plain = Request("gpt-5", TURNS, {"stream": False})
        return [(await ask(server)).response(), (await ask(server, plain)).response()]

    events, whole = serve(get_answers, faults=[Fault(kind)] if kind else [])
    for number, event in enumerate(events):
        parsed = EVENT.validate_python(event)
        assert (parsed.type, parsed.sequence_number) == (event["type"], number)
        assert not parsed.model_extra
    assert not Response.model_validate(whole).model_extra


def test_a_failure_in_mid_stream_fits_the_types_of_the_sdk() -> None:
    got = ReceivedRequest(
        "POST", "/responses", {}, {"Content-Type": "application/json"}, {"model": "m", "input": "x", "stream": True}
    )
    answer = OpenAIWire().answer(got, Fault("error_midway"))
    failed = EVENT.validate_python(json.loads(answer.frames[-1].split(b"data: ")[1]))
    assert failed.type == "response.failed"
    assert failed.response.error.code == "server_error"


def test_our_request_equals_that_of_the_sdk() -> None:
    async def use(server: Loopback) -> list[ReceivedRequest]:
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            await client.responses.create(
                model="gpt-5",
                input=ITEMS,
                temperature=0,
                top_p=0.9,
                max_output_tokens=100,
                reasoning={"effort": "low"},
                stream=True,
            )
            await client.models.list()
        parameters = {"temperature": 0, "top_p": 0.9, "max_tokens": 100, "reasoning": {"effort": "low"}}
        provider = OpenAIResponses(Account(server.url, KEY))
        await provider.ask(Request("gpt-5", TURNS, parameters))
        assert await provider.models() == ["loopback-large", "loopback-small"]
        await provider.close()
        return server.requests

    theirs, their_models, ours, our_models = serve(use)
    assert relevant_parts(ours) == relevant_parts(theirs)
    assert relevant_parts(our_models) == relevant_parts(their_models)


def test_a_streamed_reply_is_read() -> None:
    reply = serve(ask, pace_s=0.01)
    assert (reply.text, reply.finish_reason, reply.served_model) == ("It is so.", "completed", "gpt-5")
    assert reply.usage == Usage(13, 3, 0)
    waits = len(reply.response()) - 1
    assert (reply.first_token_s, reply.total_s) == pytest.approx((0.04, waits * 0.01), abs=1e-4)
    assert [event["sequence_number"] for event in reply.response()] == list(range(waits + 1))


def test_a_reply_cut_at_max_tokens_is_marked() -> None:
    limited = Request("gpt-5", TURNS, {"max_tokens": 16})
    reply = serve(lambda server: ask(server, limited), OpenAIWire("word " * 20, key=KEY))
    assert (reply.text, reply.finish_reason) == (" ".join(["word"] * 16), "max_output_tokens")


@pytest.mark.parametrize(("name", "value"), [("seed", 42), ("stop", ["END"])])
def test_unsupported_parameters_are_refused_by_name(name: str, value: Any) -> None:
    async def use(server: Loopback) -> int:
        with pytest.raises(Rejected, match=f"has no parameter {name}") as caught:
            await ask(server, Request("gpt-5", TURNS, {name: value}))
        assert caught.value.parameter == name
        await ask(server, Request("gpt-5", TURNS, {name: None}))
        return len(server.requests)

    assert serve(use) == 1


class FixedAnswer(OpenAIWire):
    """Answers every request with the same frames, or the same object."""

    def __init__(self, parts: Any) -> None:
        super().__init__()
        self.parts = parts

    def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:  # noqa: ARG002
        return Answer(tuple(self.parts), streamed=True) if isinstance(self.parts, list) else Answer.of(self.parts)


@pytest.mark.parametrize(
    ("code", "kind"),
    [("server_error", Unavailable), ("rate_limit_exceeded", RateLimited), ("invalid_prompt", Rejected)],
)
@pytest.mark.parametrize("shape", ["event", "failed", "whole"])
def test_an_error_in_mid_stream_is_classified(code: str, kind: type[Exception], shape: str) -> None:
    error = {"code": code, "message": "it went wrong"}
    said: dict[str, Any] = {
        "event": [make_event({"type": "error", "param": None, "sequence_number": 0, **error}, "error")],
        "failed": [make_event({"type": "response.failed", "response": {"error": error}}, "response.failed")],
        "whole": {"object": "response", "status": "failed", "error": error},
    }
    with pytest.raises(kind, match="it went wrong"):
        serve(ask, FixedAnswer(said[shape]))


@pytest.mark.parametrize(
    "answer",
    [
        [],
        [make_event({"type": "response.completed"}, "response.completed")],
        [make_event([1])],
        [make_event({"type": "response.output_text.delta"})],
        [
            make_event({"type": "response.output_text.delta", "delta": 3}),
            make_event({"type": "response.completed", "response": {}}),
        ],
        {},
        {"output": 3},
        {"output": [3]},
    ],
)
def test_an_answer_of_another_shape_breaks_the_reply(answer: Any) -> None:
    with pytest.raises(BrokenReply):
        serve(ask, FixedAnswer(answer))


def test_without_deltas_the_text_comes_from_the_last_event() -> None:
    output = [{"type": "reasoning", "content": [{"text": "hm"}]}, {"type": "message", "content": [{"text": "So."}]}]
    said = [make_event({"type": "response.completed", "response": {"status": "completed", "output": output}})]
    assert serve(ask, FixedAnswer(said)).text == "So."


def test_a_list_of_models_of_another_shape_breaks_the_reply() -> None:
    async def use(server: Loopback) -> list[str]:
        provider = OpenAIResponses(Account(server.url, KEY))
        try:
            return await provider.models()
        finally:
            await provider.close()

    for said in ({}, {"data": [3]}, {"data": 3}):
        with pytest.raises(BrokenReply, match="is not a list of models"):
            serve(use, FixedAnswer(said))
