"""Embeddings: server and adapter checked with OpenAI's own SDK; then every fault, and malformed answers."""

import asyncio
import json
import math
import typing
from collections.abc import Awaitable, Callable
from typing import Any

import openai
import pytest
from openai.types import CreateEmbeddingResponse
from openai.types.embedding_create_params import EmbeddingCreateParams

from pramana.errors import (
    AuthenticationFailed,
    BrokenReply,
    InvalidInput,
    OutOfCredit,
    ProviderError,
    RateLimited,
    Rejected,
    Unavailable,
    UnknownModel,
)
from pramana.loopback.voice import ReceivedRequest
from pramana.model import Reply, Request, Turn, Usage
from pramana.providers.accounts import Account
from pramana.providers.names import resolve_embedder, resolve_target
from pramana.providers.text.openai import OpenAI

from ...loopback.embeddings import embed_text, encode_base64
from ...loopback.openai import EMBEDDING_FIELDS, OpenAIWire
from ...loopback.server import Answer, Fault, FaultKind, Loopback, Wire

pytestmark = pytest.mark.usefixtures("virtual_time")
KEY = "sk-test-0123456789"
MODEL = "text-embedding-3-small"
TEXTS = ["The cat sleeps.", "A lone \ud83d, 🙂 and \x00", "The cat sleeps."]
T = typing.TypeVar("T")


def serve(use: Callable[[Loopback], Awaitable[T]], wire: Wire | None = None, **given: Any) -> T:
    async def go() -> T:
        async with Loopback(wire or OpenAIWire(key=KEY), **given) as server:
            return await use(server)

    return asyncio.run(go())


async def embed(server: Loopback, *texts: str, compatible: bool = False, timeout_s: float = 20.0, **more: Any) -> Reply:
    provider = OpenAI(Account(server.url, KEY, timeout_s), compatible=compatible)
    try:
        turns = tuple(Turn("user", text) for text in texts or TEXTS)
        return await provider.embed(Request(MODEL, turns, more, purpose="embedding"))
    finally:
        await provider.close()


def relevant_parts(got: ReceivedRequest) -> tuple[Any, ...]:
    names = ("Authorization", "Content-Type", "Accept")
    return got.method, got.path, dict(got.query), got.body, [got.headers.get(name) for name in names]


# The vendor SDK


@pytest.mark.parametrize("encoding", [None, "float", "base64"])
def test_the_sdk_completes_a_call(encoding: Any) -> None:
    async def use(server: Loopback) -> CreateEmbeddingResponse:
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            how = {"encoding_format": encoding} if encoding else {}
            return await client.embeddings.create(model=MODEL, input=TEXTS[:1] * 2, dimensions=64, **how)

    answer = serve(use)
    assert not answer.model_extra
    assert (answer.model, answer.usage.prompt_tokens) == (MODEL, 6)
    assert [each.index for each in answer.data] == [0, 1]
    if encoding != "base64":  # an explicit encoding is returned unchanged
        assert answer.data[0].embedding == pytest.approx(embed_text(TEXTS[0], 64), rel=1e-6)


def test_our_request_equals_that_of_the_sdk() -> None:
    async def use(server: Loopback) -> list[ReceivedRequest]:
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            await client.embeddings.create(model=MODEL, input=["a", "b"])
            await client.embeddings.create(model=MODEL, input=["a", "b"], encoding_format="float")
            await client.embeddings.create(model=MODEL, input=["a"], dimensions=64)
        await embed(server, "a", "b")
        await embed(server, "a", "b", compatible=True)
        await embed(server, "a", dimensions=64)
        return server.requests

    theirs, their_plain, their_short, ours, our_plain, our_short = map(relevant_parts, serve(use))
    assert (ours, our_plain, our_short) == (theirs, their_plain, their_short)
    assert ours[3] == {"model": MODEL, "input": ["a", "b"], "encoding_format": "base64"}


def test_every_answer_fits_the_types_of_the_sdk() -> None:
    for encoding in ("float", "base64"):
        body = {"model": MODEL, "input": TEXTS, "encoding_format": encoding}
        got = ReceivedRequest("POST", "/embeddings", {}, {"Content-Type": "application/json"}, body)
        whole = json.loads(OpenAIWire().answer(got, None).whole)
        if encoding == "base64":  # the SDK's model is of what it has unpacked
            assert whole["data"][0]["embedding"] == encode_base64(embed_text(TEXTS[0], 256))
            whole["data"] = [{**each, "embedding": [0.0]} for each in whole["data"]]
        answer = CreateEmbeddingResponse.model_validate(whole)
        assert not answer.model_extra
        assert not answer.data[0].model_extra


def test_the_server_accepts_every_field_of_the_sdk() -> None:
    assert EMBEDDING_FIELDS.keys() == typing.get_type_hints(EmbeddingCreateParams).keys()


@pytest.mark.parametrize(
    ("kind", "raised", "code"),
    [
        ("unauthorized", openai.AuthenticationError, "invalid_api_key"),
        ("unknown_model", openai.NotFoundError, "model_not_found"),
        ("rate_limited", openai.RateLimitError, "rate_limit_exceeded"),
        ("unpaid", openai.RateLimitError, "insufficient_quota"),
        ("error", openai.InternalServerError, None),
    ],
)
def test_the_sdk_understands_every_refusal(
    kind: FaultKind, raised: type[openai.APIStatusError], code: str | None
) -> None:
    async def use(server: Loopback) -> None:
        async with openai.AsyncOpenAI(base_url=server.url, api_key=KEY, max_retries=0) as client:
            await client.embeddings.create(model=MODEL, input="a")

    with pytest.raises(raised) as caught:
        serve(use, faults=[Fault(kind)])
    assert caught.value.code == code


# Vectors


@pytest.mark.parametrize("compatible", [False, True])
def test_texts_are_embedded_in_their_order(compatible: bool) -> None:
    reply = serve(lambda server: embed(server, compatible=compatible), latency_s=0.1)
    assert [list(vector) for vector in reply.vectors] == [
        pytest.approx(embed_text(text, 256), rel=1e-6) for text in TEXTS
    ]
    assert (reply.text, reply.served_model, reply.usage) == ("", MODEL, Usage(12, 0))
    assert reply.total_s == pytest.approx(0.1, abs=1e-4)
    assert all(math.isclose(math.hypot(*vector), 1, rel_tol=1e-6) for vector in reply.vectors)


def answer_with(answer: Any) -> Wire:
    class OddWire(OpenAIWire):
        def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:  # noqa: ARG002
            return Answer.of(answer)

    return OddWire()


@pytest.mark.parametrize("usage", [{"prompt_tokens": "few"}, {"prompt_tokens": -3}, {"prompt_tokens": 2**63}, 3, None])
def test_vectors_may_come_in_any_order_and_without_usage(usage: Any) -> None:
    data = [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": encode_base64([1.0, 0.0])}]
    reply = serve(lambda server: embed(server, "a", "b"), answer_with({"data": data, "usage": usage}))
    assert [list(vector) for vector in reply.vectors] == [[1.0, 0.0], [0.0, 1.0]]
    assert (reply.usage, reply.served_model) == (Usage(), None)


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {},
        {"data": 3},
        {"data": []},
        {"data": [{"index": 0}]},
        {"data": [{"index": 1, "embedding": [1.0]}]},
        {"data": [{"index": 0, "embedding": 3}]},
        {"data": [{"index": 0, "embedding": [1.0, None]}]},
        {"data": [{"index": 0, "embedding": ["1"]}]},
        {"data": [{"index": 0, "embedding": "not base64!"}]},
        {"data": [{"index": 0, "embedding": "AAA="}]},
        {"data": [{"index": 0, "embedding": [10**400]}]},
    ],
    ids=lambda answer: json.dumps(answer)[:60],
)
def test_an_answer_of_another_shape_breaks_the_reply(answer: Any) -> None:
    with pytest.raises(BrokenReply, match="does not fit the format of embeddings"):
        serve(lambda server: embed(server, "a"), answer_with(answer))


# Faults


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        (Fault("unauthorized"), AuthenticationFailed, "rejected the API key (401)"),
        (Fault("unknown_model"), UnknownModel, "has no such model"),
        (Fault("rate_limited", retry_after="7"), RateLimited, "rate limit exceeded (429)"),
        (Fault("unpaid"), OutOfCredit, "is out of credit"),
        (Fault("error"), Unavailable, "is unavailable (500)"),
        (Fault("cut"), BrokenReply, "was cut off before its end"),
        (Fault("short"), BrokenReply, "is not JSON"),
        (Fault("bad_json"), BrokenReply, "is not JSON"),
    ],
)
def test_each_fault_raises_its_error(fault: Fault, kind: type[ProviderError], says: str) -> None:
    with pytest.raises(ProviderError) as caught:
        serve(embed, faults=[fault])
    assert type(caught.value) is kind
    assert says in str(caught.value)
    assert KEY not in str(caught.value)


def test_a_hanging_request_ends_with_the_timeout() -> None:
    with pytest.raises(Unavailable, match="no complete reply"):
        serve(lambda server: embed(server, timeout_s=0.2), faults=[Fault("hang")])


@pytest.mark.parametrize(
    ("given", "param", "code"),
    [
        ({}, "input", "missing_required_parameter"),
        ({"input": "a"}, "model", "missing_required_parameter"),
        ({"input": 3, "model": "m"}, "input", "invalid_type"),
        ({"input": "a", "model": "m", "encoding_format": "hex"}, "encoding_format", "invalid_type"),
        ({"input": "a", "model": "m", "dimensions": 0}, "dimensions", "invalid_value"),
        ({"input": "a", "model": "m", "stream": True}, "stream", "unknown_parameter"),
        ({"input": "", "model": "m"}, None, None),
        ({"input": [], "model": "m"}, None, None),
        ({"input": ["a", ""], "model": "m"}, None, None),
        ({"input": ["a", 3.5], "model": "m"}, None, None),
        ({"input": ["a"] * 2049, "model": "m"}, "input", "array_above_max_length"),
    ],
    ids=lambda given: str(given)[:50],
)
def test_the_server_checks_field_by_field(given: Any, param: str | None, code: str | None) -> None:
    got = ReceivedRequest("POST", "/embeddings", {}, {"Content-Type": "application/json"}, given)
    answer = OpenAIWire().answer(got, None)
    error = json.loads(answer.whole)["error"]
    assert (answer.status, error["type"], error["param"], error["code"]) == (400, "invalid_request_error", param, code)


@pytest.mark.parametrize(("given", "count", "used"), [([1, 2, 3], 1, 3), ([[1, 2], [3]], 2, 3), ("a b", 1, 2)])
def test_the_server_accepts_tokens(given: Any, count: int, used: int) -> None:
    body = {"input": given, "model": "m"}
    got = ReceivedRequest("POST", "/embeddings", {}, {"Content-Type": "application/json"}, body)
    answer = json.loads(OpenAIWire().answer(got, None).whole)
    assert (len(answer["data"]), answer["usage"]["total_tokens"]) == (count, used)


def test_input_that_cannot_be_embedded_is_rejected() -> None:
    with pytest.raises(Rejected, match="input"):
        serve(lambda server: embed(server, ""))


# Names


def test_embedder_names_resolve_to_their_provider() -> None:
    assert resolve_embedder("text-embedding-3-small").provider == "openai"
    assert resolve_embedder("openai:anything") == resolve_target("openai:anything")
    assert resolve_embedder("http://localhost:8000/v1#nomic").arguments == {"base_url": "http://localhost:8000/v1"}


@pytest.mark.parametrize("typed", ["opus", "gemini-embedding-001", "fake:echo", "openai-responses:gpt-5"])
def test_a_provider_that_cannot_embed_is_refused_with_advice(typed: str) -> None:
    with pytest.raises(
        InvalidInput, match=r"is not an embedding model.*openai:text-embedding-3-small.*http://HOST:PORT/v1#MODEL"
    ):
        resolve_embedder(typed)
