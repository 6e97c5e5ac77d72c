"""A user's function: text or messages in, text out, and what it raises ends as an error of that reply."""

import asyncio
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pramana.errors import InvalidInput, ProviderError, RateLimited
from pramana.model import Reply, Request, Turn
from pramana.providers.function import Function
from pramana.providers.names import resolve

MODULE = """
import asyncio, threading, time
from pramana.errors import RateLimited

def shout(prompt): return prompt.upper()
async def later(prompt):
    await asyncio.sleep(0)
    return prompt + "!"
def roles(messages): return " ".join(f"{each['role']}={each['content']}" for each in messages)
def hot(prompt, parameters): return str(parameters["temperature"])
def where(prompt): return threading.current_thread().name
def nap(prompt):
    time.sleep(0.2)
    return prompt
def crash(prompt): raise ValueError("two\\nlines")
def quiet(prompt): raise KeyError
def leave(prompt): raise SystemExit(3)
def limited(prompt): raise RateLimited("slow down", retry_after=2.0)
def number(prompt): return 42
def lazy(prompt): return later(prompt)
class Model:
    def answer(self, prompt): return "method " + prompt
    async def __call__(self, prompt): return "called " + prompt
model = Model()
constant = 3
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "my_functions.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "broken_module.py").write_text("raise RuntimeError('at import')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("my_functions", None)


def ask(name: str, *turns: Turn, **parameters: Any) -> Reply:
    async def go() -> Reply:
        provider = Function.open(resolve(f"python:my_functions:{name}"))
        try:
            return await provider.ask(Request("x", turns or (Turn("user", "hi"),), parameters))
        finally:
            await provider.close()

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("shout", "HI"),
        ("later", "hi!"),
        ("lazy", "hi!"),
        ("roles", "user=hi"),
        ("model.answer", "method hi"),
        ("model", "called hi"),
    ],
)
def test_each_kind_of_function_answers(name: str, text: str) -> None:
    reply = ask(name)
    assert (reply.text, reply.served_model) == (text, f"my_functions:{name}")
    assert reply.total_s > 0
    assert reply.first_token_s is None
    assert reply.usage.input_tokens is None


def test_a_conversation_as_text_and_as_messages() -> None:
    turns = (Turn("system", "Be brief."), Turn("user", "Is it?"), Turn("assistant", "Yes."), Turn("user", "So?"))
    assert ask("shout", *turns).text == "BE BRIEF.\n\nIS IT?\n\nYES.\n\nSO?"
    assert ask("roles", *turns).text == "system=Be brief. user=Is it? assistant=Yes. user=So?"


def test_parameters_go_to_who_takes_them_and_are_dropped_elsewhere() -> None:
    given = ask("hot", temperature=0.5, seed=42)
    assert (given.text, given.dropped) == ("0.5", ())
    assert ask("shout", temperature=0.5, seed=None).dropped == ("temperature",)


def test_a_plain_function_runs_in_a_thread_and_many_run_at_once() -> None:
    assert ask("where").text.startswith("pramana-function")

    async def many() -> float:
        provider = Function("my_functions:nap")
        start = time.perf_counter()
        asked = [provider.ask(Request("x", (Turn("user", str(number)),))) for number in range(20)]
        assert [reply.text for reply in await asyncio.gather(*asked)] == [str(number) for number in range(20)]
        await provider.close()
        return time.perf_counter() - start

    assert asyncio.run(many()) < 20 * 0.2 / 2  # one after the other would take four seconds


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("crash", r"my_functions:crash raised ValueError: two\\nlines$"),
        ("quiet", "my_functions:quiet raised KeyError$"),
        ("leave", "my_functions:leave raised SystemExit: 3$"),
        ("number", r"my_functions:number returned int; expected text \(str\)"),
        ("roles.missing", None),
    ],
)
def test_what_goes_wrong_inside_is_an_error_of_the_reply(name: str, says: str | None) -> None:
    if says is None:
        with pytest.raises(InvalidInput, match="has no attribute 'missing'"):
            ask(name)
        return
    with pytest.raises(ProviderError, match=says) as caught:
        ask(name)
    assert type(caught.value) is ProviderError
    assert not caught.value.transient


def test_a_function_may_speak_our_errors() -> None:
    with pytest.raises(RateLimited, match="slow down") as caught:
        ask("limited")
    assert caught.value.retry_after == 2.0


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("no_such_module:f", "cannot be loaded: ModuleNotFoundError"),
        ("broken_module:f", "cannot be loaded: RuntimeError: at import"),
        ("my_functions:constant", 'is "int", which cannot be called'),
        ("my_functions", "names no function"),
        (":f", "names no function"),
    ],
)
def test_a_path_that_leads_nowhere_says_so_at_once(path: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        Function(path)


def test_a_builtin_that_says_nothing_of_itself_is_called_with_the_text() -> None:
    provider = Function("builtins:str")
    reply = asyncio.run(provider.ask(Request("x", (Turn("user", "hi"),))))
    asyncio.run(provider.close())
    assert reply.text == "hi"
    assert asyncio.run(provider.models()) == ["builtins:str"]


def test_closing_does_not_wait_for_a_function_that_hangs() -> None:
    released = threading.Event()
    sys.modules["my_functions"] = module = type(sys)("my_functions")
    module.hang = lambda _: released.wait(30) and "late"  # type: ignore[attr-defined]

    async def go() -> float:
        provider = Function("my_functions:hang")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(provider.ask(Request("x", (Turn("user", "hi"),))), 0.1)
        start = time.perf_counter()
        await provider.close()
        return time.perf_counter() - start

    assert asyncio.run(go()) < 5
    released.set()
