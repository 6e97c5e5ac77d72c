"""Google's generateContent: server and adapter checked with its own SDK; then replies, and every fault."""

import asyncio
import itertools
import json
import typing
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google import genai
from google.genai import errors, types

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
from pramana.providers.text.google import Google

from ...loopback.google import CONFIG, GoogleWire
from ...loopback.server import Answer, Fault, FaultKind, Loopback, Wire, make_event

KEY = "AIza-test-0123456789"
TURNS = (
    Turn("system", "Be brief."),
    Turn("user", "Is it so?"),
    Turn("assistant", "It may be — 🙂"),
    Turn("user", "Well?"),
)
ROLES = {"user": "user", "assistant": "model"}
CONTENTS: Any = [
    types.Content(role=ROLES[turn.role], parts=[types.Part(text=turn.text)]) for turn in TURNS if turn.role in ROLES
]
MODEL = "gemini-2.5-pro"
TOKEN = "b25l"
T = typing.TypeVar("T")
# Warnings between the SDK and its HTTP library.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    pytest.mark.usefixtures("virtual_time"),
]


def serve(use: Callable[[Loopback], Awaitable[T]], wire: Wire | None = None, **given: Any) -> T:
    async def go() -> T:
        async with Loopback(wire or GoogleWire(key=KEY), **given) as server:
            return await use(server)

    return asyncio.run(go())


async def ask(
    server: Loopback, request: Request | None = None, *, key: str | None = KEY, timeout_s: float = 20.0
) -> Reply:
    provider = Google(Account(server.url, key, timeout_s, variable="GEMINI_API_KEY"))
    try:
        return await provider.ask(request or Request(MODEL, TURNS))
    finally:
        await provider.close()


def ask_server(request: Request | None = None, *, wire: Wire | None = None, **given: Any) -> Reply:
    return serve(lambda server: ask(server, request), wire, **given)


@asynccontextmanager
async def open_sdk_client(server: Loopback) -> typing.AsyncIterator[Any]:
    client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=server.url))
    try:
        yield client.aio.models
    finally:
        await client.aio.aclose()


def relevant_parts(got: ReceivedRequest) -> tuple[Any, ...]:
    names = ("x-goog-api-key", "Authorization", "Content-Type")
    return got.method, got.path, dict(got.query), got.body, [got.headers.get(name) for name in names]


class FixedAnswers(GoogleWire):
    """A server that answers requests with the given events in turn."""

    def __init__(self, *answers: Any, streamed: bool = True, status: int = 200) -> None:
        super().__init__()
        self.answers, self.streamed, self.status = list(answers), streamed, status

    def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:  # noqa: ARG002
        said = self.answers.pop(0)
        if not self.streamed:
            return Answer.of(said, self.status)
        return Answer(tuple(make_event(each) for each in said), streamed=True)


def make_chunk(*parts: Any, finish: str | None = None, token: str | None = None, **more: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}}
    if finish:
        candidate["finishReason"] = finish
    if token:
        candidate["continuationToken"] = token
    return {"candidates": [candidate], **more}


# The vendor SDK


def test_the_sdk_completes_a_streamed_call() -> None:
    async def use(server: Loopback) -> list[types.GenerateContentResponse]:
        async with open_sdk_client(server) as models:
            stream = await models.generate_content_stream(
                model=MODEL, contents=CONTENTS, config=types.GenerateContentConfig(system_instruction="Be brief.")
            )
            return [each async for each in stream]

    chunks = serve(use, GoogleWire("It is so, they say.", key=KEY))
    assert "".join(each.text or "" for each in chunks) == "It is so, they say."
    last = chunks[-1]
    assert last.usage_metadata is not None
    assert (last.usage_metadata.prompt_token_count, last.usage_metadata.candidates_token_count) == (11, 5)
    assert last.candidates is not None
    assert last.candidates[0].finish_reason == types.FinishReason.STOP
    assert last.model_version == MODEL


def test_the_sdk_completes_a_plain_call_and_sees_a_block() -> None:
    async def use(server: Loopback) -> types.GenerateContentResponse:
        async with open_sdk_client(server) as models:
            config = types.GenerateContentConfig(max_output_tokens=2)
            answer: types.GenerateContentResponse = await models.generate_content(
                model=MODEL, contents=CONTENTS, config=config
            )
            return answer

    answer = serve(use)
    assert answer.text == "It is"
    assert answer.candidates is not None
    assert answer.candidates[0].finish_reason == types.FinishReason.MAX_TOKENS
    blocked = serve(use, faults=[Fault("blocked")])
    assert blocked.prompt_feedback is not None
    assert blocked.prompt_feedback.block_reason == types.BlockedReason.PROHIBITED_CONTENT


def test_our_request_equals_that_of_the_sdk() -> None:
    async def use(server: Loopback) -> list[ReceivedRequest]:
        config = types.GenerateContentConfig(
            system_instruction="Be brief.",
            temperature=0,
            seed=42,
            top_p=0.9,
            top_k=3,
            max_output_tokens=100,
            stop_sequences=["END", "STOP"],
            service_tier=types.ServiceTier("flex"),
        )
        async with open_sdk_client(server) as models:
            stream = await models.generate_content_stream(model=MODEL, contents=CONTENTS, config=config)
            assert [each async for each in stream]
            await models.generate_content(model=MODEL, contents=CONTENTS)
            await models.list(config={"page_size": 1000})
        provider = Google(Account(server.url, KEY))
        parameters = {"temperature": 0, "seed": 42, "top_p": 0.9, "topK": 3, "max_tokens": 100}
        stop = {"stop": ["END", "STOP"], "serviceTier": "flex"}
        await provider.ask(Request(MODEL, TURNS, {**parameters, **stop}))
        await provider.ask(Request(MODEL, TURNS[1:], {"stream": False}))
        assert await provider.models() == ["loopback-large", "loopback-small"]
        await provider.close()
        return server.requests

    streamed, plain, models, our_streamed, our_plain, our_models = serve(use)
    assert relevant_parts(our_streamed) == relevant_parts(streamed)
    assert relevant_parts(our_plain) == relevant_parts(plain)
    assert relevant_parts(our_models) == relevant_parts(models)


def test_the_server_accepts_every_field_of_the_sdk_configuration() -> None:
    fields = {field.alias or name for name, field in types.GenerationConfig.model_fields.items()}
    only_elsewhere = {"audioTimestamp", "routingConfig", "modelSelectionConfig", "modelConfig", "translationConfig"}
    assert fields - only_elsewhere - CONFIG.keys() <= {"responseFormat", "enableAffectiveDialog"}


def test_every_answer_fits_the_types_of_the_sdk() -> None:
    async def get_answers(server: Loopback) -> list[Any]:
        plain = Request(MODEL, TURNS, {"stream": False})
        return [*(await ask(server)).response(), (await ask(server, plain)).response()]

    for kind in (None, "filtered", "empty", "refusal", "long_line", "blocked"):
        for event in serve(get_answers, faults=[Fault(kind)] if kind else []):
            types.GenerateContentResponse.model_validate(event)  # forbids what it does not know


@pytest.mark.parametrize(
    ("kind", "raised", "status"),
    [
        ("unauthorized", errors.ClientError, "UNAUTHENTICATED"),
        ("unknown_model", errors.ClientError, "NOT_FOUND"),
        ("rate_limited", errors.ClientError, "RESOURCE_EXHAUSTED"),
        ("error", errors.ServerError, "INTERNAL"),
        ("parameter", errors.ClientError, "INVALID_ARGUMENT"),
    ],
)
def test_the_sdk_understands_every_refusal(kind: FaultKind, raised: type[errors.APIError], status: str) -> None:
    async def use(server: Loopback) -> None:
        async with open_sdk_client(server) as models:
            await models.generate_content(model=MODEL, contents=CONTENTS)

    with pytest.raises(raised) as caught:
        serve(use, faults=[Fault(kind, parameter="seed")])
    assert caught.value.status == status


def test_continued_answers_are_joined_like_in_the_sdk() -> None:
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 2}
    answers = (
        [
            make_chunk({"text": "It "}, usageMetadata=usage),
            make_chunk({"text": "is "}, finish="CONTINUATION", token=TOKEN),
        ],
        [make_chunk({"text": "so."}, finish="STOP", usageMetadata={"promptTokenCount": 12, "candidatesTokenCount": 1})],
    )

    async def send_by_sdk(server: Loopback) -> tuple[str, list[ReceivedRequest], Any]:
        async with open_sdk_client(server) as models:
            config = types.GenerateContentConfig(temperature=0)
            stream = await models.generate_content_stream(model=MODEL, contents=CONTENTS, config=config)
            chunks = [each async for each in stream]
            return "".join(each.text or "" for each in chunks), server.requests, chunks[-1].usage_metadata

    async def send_by_adapter(server: Loopback) -> tuple[Reply, list[ReceivedRequest]]:
        return await ask(server, Request(MODEL, TURNS[1:], {"temperature": 0})), server.requests

    text, requests, counted = serve(send_by_sdk, FixedAnswers(*answers))
    reply, our_requests = serve(send_by_adapter, FixedAnswers(*answers))
    assert reply.text == text == "It is so."
    assert [got.body for got in our_requests] == [got.body for got in requests]
    assert our_requests[1].body["continuationToken"] == TOKEN
    assert reply.usage == Usage(counted.prompt_token_count, counted.candidates_token_count, 0) == Usage(22, 3, 0)
    assert (reply.finish_reason, len(reply.response())) == ("STOP", 3)


def test_a_repeated_continuation_ends_the_answer() -> None:
    same = [make_chunk({"text": "a"}, finish="CONTINUATION", token=TOKEN)]
    reply = ask_server(wire=FixedAnswers(same, same))
    assert (reply.text, reply.finish_reason) == ("aa", "CONTINUATION")


# Replies


def test_a_streamed_reply_is_read() -> None:
    reply = ask_server(latency_s=0.1, pace_s=0.01)
    assert (reply.text, reply.finish_reason, reply.served_model) == ("It is so.", "STOP", MODEL)
    assert reply.usage == Usage(11, 3, 0)
    assert (reply.first_token_s, reply.total_s) == pytest.approx((0.1, 0.13), abs=1e-4)
    assert len(reply.response()) == 4
    assert reply.dropped == ()


def test_thinking_is_not_part_of_the_text_but_is_counted() -> None:
    counted = {
        "promptTokenCount": 10,
        "candidatesTokenCount": 2,
        "thoughtsTokenCount": 30,
        "cachedContentTokenCount": 4,
    }
    thought = {"text": "hm", "thought": True}
    reply = ask_server(
        wire=FixedAnswers([make_chunk(thought, {"text": "a"}, {"text": "b"}, finish="STOP", usageMetadata=counted)])
    )
    assert (reply.text, reply.usage) == ("ab", Usage(10, 32, 4))


def test_a_blocked_prompt_is_an_empty_text_with_the_reason() -> None:
    for parameters in ({}, {"stream": False}):
        reply = ask_server(Request(MODEL, TURNS, parameters), faults=[Fault("blocked")])
        assert (reply.text, reply.finish_reason) == ("", "blocked: PROHIBITED_CONTENT")
        assert reply.usage == Usage(11, 0, 0)


def test_plain_json_answers_a_streaming_request() -> None:
    reply = ask_server(faults=[Fault("plain")])
    assert (reply.text, reply.first_token_s, reply.finish_reason) == ("It is so.", None, "STOP")
    assert isinstance(reply.response(), dict)


def test_empty_refused_and_filtered_answers_are_read() -> None:
    empty = ask_server(faults=[Fault("empty")])
    assert (empty.text, empty.first_token_s, empty.usage.output_tokens) == ("", None, 0)
    assert ask_server(faults=[Fault("refusal")]).text == "I cannot help with that."
    assert ask_server(faults=[Fault("filtered")]).finish_reason == "SAFETY"


def test_a_line_of_a_megabyte_is_read() -> None:
    assert ask_server(faults=[Fault("long_line")]).text == "a" * (1 << 20)


def test_any_reply_text_is_read_unchanged() -> None:
    text = 'line\r\nnext  two blanks\t"quoted" \u2028 🙂 \ud83d e\u0301 \x00'
    assert ask_server(wire=GoogleWire(text, key=KEY)).text == text


def test_a_full_model_name_and_a_single_stop_sequence_are_accepted() -> None:
    async def use(server: Loopback) -> ReceivedRequest:
        await ask(server, Request("tunedModels/mine 1", TURNS, {"stop": "END"}))
        return server.requests[0]

    got = serve(use)
    assert got.path == "/v1/tunedModels/mine 1:streamGenerateContent"
    assert got.body["generationConfig"] == {"stopSequences": ["END"]}


def test_models_are_listed_from_every_page() -> None:
    async def use(server: Loopback) -> list[str]:
        provider = Google.open(Target("x", "google", "x"), Account(server.url, KEY))
        try:
            return await provider.models()
        finally:
            await provider.close()

    assert serve(use, GoogleWire(key=KEY, models=["c", "a", "d", "b"], page=3)) == ["a", "b", "c", "d"]
    with pytest.raises(BrokenReply, match="is not a list of models"):
        serve(use, FixedAnswers({"models": [{"id": "x"}]}, streamed=False))


class EndlessPages(GoogleWire):
    """A server with an endless list of models."""

    def __init__(self, tokens: typing.Iterator[str]) -> None:
        super().__init__()
        self.tokens, self.asked = tokens, 0

    def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:  # noqa: ARG002
        self.asked += 1
        return Answer.of({"models": [{"name": f"models/m{self.asked}"}], "nextPageToken": next(self.tokens)})


@pytest.mark.parametrize(("tokens", "most"), [(["a", "b"], 4), (map(str, itertools.count()), 100)])
def test_an_endless_list_of_models_is_aborted(tokens: typing.Iterable[str], most: int) -> None:
    wire = EndlessPages(itertools.cycle(tokens) if isinstance(tokens, list) else iter(tokens))

    async def use(server: Loopback) -> list[str]:
        provider = Google(Account(server.url))
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
        (Fault("error_midway"), Unavailable, "is unavailable (503): The model is overloaded", None),
        (Fault("parameter", parameter="top_p"), Rejected, 'Unknown name "topP"', None),
    ],
)
def test_each_fault_raises_its_error(
    fault: Fault, kind: type[ProviderError], says: str, retry_after: float | None
) -> None:
    with pytest.raises(ProviderError) as caught:
        ask_server(faults=[fault])
    assert type(caught.value) is kind
    assert says in str(caught.value)
    assert "Google (127.0.0.1:" in str(caught.value)
    assert caught.value.retry_after == retry_after
    assert KEY not in str(caught.value)
    if isinstance(caught.value, Rejected):
        assert caught.value.parameter == fault.parameter


def test_a_hanging_request_ends_with_the_timeout() -> None:
    with pytest.raises(Unavailable, match=r"no complete reply from Google \(.*\) within 0.2 s"):
        serve(lambda server: ask(server, timeout_s=0.2), faults=[Fault("hang")])


def test_the_retry_delay_is_read_from_the_body() -> None:
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "13.5s"}
    error = {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": [detail]}
    with pytest.raises(RateLimited) as caught:
        ask_server(wire=FixedAnswers([{"error": error}], streamed=False, status=429))
    assert caught.value.retry_after == 13.5


@pytest.mark.parametrize("listing", [False, True])
def test_a_wrong_or_missing_key_says_what_to_set(listing: bool) -> None:
    async def use(server: Loopback, key: str | None) -> None:
        provider = Google(Account(server.url, key, variable="GEMINI_API_KEY"))
        try:
            await (provider.models() if listing else provider.ask(Request(MODEL, TURNS)))
        finally:
            await provider.close()

    for key, says in (("wrong", "API key not valid"), (None, "requires an API key, and none is set (403)")):
        with pytest.raises(AuthenticationFailed) as caught:
            serve(lambda server, key=key: use(server, key))  # type: ignore[misc]
        assert says in str(caught.value)
        assert str(caught.value).endswith("; set GEMINI_API_KEY")


def test_an_unknown_model_is_reported() -> None:
    with pytest.raises(UnknownModel, match="models/gemini-0 is not found"):
        ask_server(Request("gemini-0", TURNS), wire=GoogleWire(key=KEY, any_model=False))


@pytest.mark.parametrize(
    "wire",
    [
        FixedAnswers([], streamed=False),
        FixedAnswers({}, streamed=False),
        FixedAnswers({"candidates": 3}, streamed=False),
        FixedAnswers({"candidates": [3]}, streamed=False),
        FixedAnswers({"candidates": [{"content": {"parts": [3]}}]}, streamed=False),
        FixedAnswers({"candidates": [{"content": {"parts": [{"text": 3}]}, "finishReason": "STOP"}]}, streamed=False),
        FixedAnswers([make_chunk({"text": "a"})]),
        FixedAnswers([]),
    ],
)
def test_an_answer_of_another_shape_breaks_the_reply(wire: Wire) -> None:
    with pytest.raises(BrokenReply):
        ask_server(wire=wire)


def test_invalid_token_counts_are_unknown() -> None:
    odd = {"promptTokenCount": 3, "candidatesTokenCount": "many"}
    assert ask_server(wire=FixedAnswers([make_chunk({"text": "a"}, finish="STOP", usageMetadata=odd)])).usage == Usage(
        3, None, 0
    )
    assert ask_server(wire=FixedAnswers([make_chunk({"text": "a"}, finish="STOP")])).usage == Usage()


def test_the_key_is_never_shown() -> None:
    with pytest.raises(ApiKeyInReply) as caught:
        ask_server(wire=GoogleWire(lambda contents: f"you are {KEY} and said {contents[-1]['parts']}", key=KEY))
    assert KEY not in str(caught.value)
    provider = Google(Account("http://host", KEY))
    assert KEY not in f"{provider!r} {provider._http!r} {provider._http.account!r}"


# The server itself


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shoeSize": 1}, 'Invalid JSON payload received. Unknown name "shoeSize"'),
        ({"generationConfig": {"shoeSize": 1}}, 'Invalid JSON payload received. Unknown name "shoeSize" at'),
        ({"generationConfig": {"topP": "x"}}, "Invalid value at 'generation_config.top_p' (TYPE_FLOAT)"),
        ({"generationConfig": {"temperature": 3}}, "* GenerateContentRequest.generation_config.temperature"),
        ({"contents": []}, "* GenerateContentRequest.contents: contents is not specified"),
        ({"contents": [3]}, "Invalid value at 'contents[0]'"),
        ({"contents": [{"role": "assistant", "parts": [{"text": "x"}]}]}, "Please use a valid role: user, model."),
        ({"contents": [{"parts": []}]}, "* GenerateContentRequest.contents[0].parts"),
    ],
)
def test_the_server_checks_field_by_field(change: dict[str, Any], says: str) -> None:
    body = {"contents": [{"role": "user", "parts": [{"text": "x"}]}], **change}
    headers = {"Content-Type": "application/json"}
    answer = GoogleWire().answer(ReceivedRequest("POST", "/v1/models/m:generateContent", {}, headers, body), None)
    assert answer.status == 400
    assert json.loads(answer.whole)["error"]["message"].startswith(says)


def test_the_server_requires_type_path_and_sse() -> None:
    typed = {"Content-Type": "application/json"}
    body = {"contents": [{"parts": [{"text": "x"}]}]}
    for status, headers, path in (
        (400, {}, "/v1/models/m:generateContent"),
        (404, typed, "/v1/models/m:explain"),
        (501, typed, "/v1/models/m:streamGenerateContent"),
        (200, typed, "/v1/models/m:generateContent"),
    ):
        assert GoogleWire().answer(ReceivedRequest("POST", path, {}, headers, body), None).status == status
