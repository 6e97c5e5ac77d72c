"""Any field of an answer may have any value: the reply can be stored, or the error is limited to that reply."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pramana.errors import ProviderError
from pramana.loopback.voice import ReceivedRequest
from pramana.model import Provider, Reply, Request, Target, Turn
from pramana.providers.accounts import Account
from pramana.providers.prices import Prices
from pramana.providers.text.anthropic import Anthropic
from pramana.providers.text.google import Google
from pramana.providers.text.openai import OpenAI, OpenAIResponses
from pramana.replies import describe_invalid_reply, drop_invalid_token_counts

from ..loopback.anthropic import AnthropicWire
from ..loopback.google import GoogleWire
from ..loopback.openai import OpenAIWire
from ..loopback.server import Answer, Fault, Loopback, Wire

pytestmark = pytest.mark.usefixtures("virtual_time")
UNUSUAL_VALUES: tuple[Any, ...] = ({"a": 1}, ["a"], 5, -5, 2**63, 10**400, 1.5e308, True, "", "\ud800\x00", None)
REQUEST = Request("m", (Turn("user", "Is it so?"),))
WHOLE = Request("m", (Turn("user", "Is it so?"),), {"stream": False})
Path = tuple[str | int, ...]
CASES: dict[str, tuple[Callable[[Account], Provider], Callable[[], Wire], Request]] = {
    "chat": (OpenAI, OpenAIWire, REQUEST),
    "chat whole": (OpenAI, OpenAIWire, WHOLE),
    "responses": (OpenAIResponses, OpenAIWire, REQUEST),
    "responses whole": (OpenAIResponses, OpenAIWire, WHOLE),
    "messages": (Anthropic, AnthropicWire, REQUEST),
    "messages whole": (Anthropic, AnthropicWire, WHOLE),
    "content": (Google, GoogleWire, REQUEST),
    "content whole": (Google, GoogleWire, WHOLE),
    "embeddings": (OpenAI, OpenAIWire, Request("m", (Turn("user", "a"), Turn("user", "b")), purpose="embedding")),
}


class OddWire:
    """A server that changes one place of one event of its answer."""

    def __init__(self, wire: Wire) -> None:
        self.wire, self.base_path, self.make_error_body = wire, wire.base_path, wire.make_error_body
        self.change: tuple[int, Path, Any] | None = None
        self.events: list[Any] = []

    def answer(self, got: ReceivedRequest, fault: Fault | None) -> Answer:
        answer = self.wire.answer(got, fault)
        frames = [*answer.frames]
        self.events = [_parse_event(each) for each in frames]
        if self.change:
            number, path, value = self.change
            said = self.events[number]
            holder = said
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = value
            new = json.dumps(said).encode()
            frames[number] = frames[number].replace(frames[number].partition(b"data: ")[2].strip(), new)
            frames[number] = frames[number] if answer.streamed else new
        return Answer(tuple(frames), answer.status, answer.streamed, answer.headers)


def _parse_event(frame: bytes) -> Any:
    data = frame.partition(b"data: ")[2] or frame
    return json.loads(data) if data.strip() != b"[DONE]" else None


def find_paths(value: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(value, dict | list):
        for step, inner in value.items() if isinstance(value, dict) else enumerate(value[:2]):
            if not isinstance(inner, float):
                yield (*path, step)
                yield from find_paths(inner, (*path, step))


@pytest.mark.parametrize("name", CASES)
def test_any_field_may_have_any_value(name: str) -> None:
    make, wire, request = CASES[name]

    async def ask(provider: Any) -> Reply:
        reply: Reply = await (provider.embed(request) if request.purpose == "embedding" else provider.ask(request))
        return reply

    async def go() -> tuple[int, int]:
        odd = OddWire(wire())
        replies = errors = 0
        async with Loopback(odd, keep=False) as server:
            provider = make(Account(server.url, timeout_s=20))
            await ask(provider)
            seen: set[tuple[Path, ...]] = set()
            for number, said in enumerate(odd.events):
                found = tuple(find_paths(said))
                if found in seen:
                    continue
                seen.add(found)
                for path in found:
                    for value in UNUSUAL_VALUES:
                        odd.change = (number, path, value)
                        try:
                            reply = await ask(provider)
                        except ProviderError:
                            errors += 1
                            continue
                        replies += 1
                        assert describe_invalid_reply(reply) is None, (path, value)
                        assert drop_invalid_token_counts(reply.usage) == reply.usage, (path, value)
                        Prices().cost(Target("gpt-5", "openai", "gpt-5"), reply.served_model, reply.usage)
                        if reply.raw is not None:
                            reply.response()
            await provider.close()
        return replies, errors

    replies, errors = asyncio.run(go())
    assert replies > 50
    assert errors > 5


@pytest.mark.parametrize(
    ("name", "path", "field"),
    [
        ("chat whole", ("choices", 0, "finish_reason"), "finish_reason"),
        ("chat whole", ("system_fingerprint",), "fingerprint"),
        ("chat whole", ("model",), "served_model"),
        ("responses whole", ("status",), "finish_reason"),
        ("messages whole", ("stop_reason",), "finish_reason"),
        ("messages whole", ("model",), "served_model"),
        ("content whole", ("candidates", 0, "finishReason"), "finish_reason"),
        ("content whole", ("modelVersion",), "served_model"),
    ],
)
@pytest.mark.parametrize("value", [{"a": 1}, ["a"], 5])
def test_non_text_metadata_of_an_answer_is_unknown(name: str, path: Path, field: str, value: Any) -> None:
    make, wire, request = CASES[name]

    async def go() -> Reply:
        odd = OddWire(wire())
        odd.change = (0, path, value)
        async with Loopback(odd) as server:
            provider = make(Account(server.url))
            try:
                return await provider.ask(request)
            finally:
                await provider.close()

    reply = asyncio.run(go())
    assert reply.text == "It is so."
    assert getattr(reply, field) is None
