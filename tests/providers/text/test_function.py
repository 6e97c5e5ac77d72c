"""A user's function: text or messages in, text out, and exceptions that become errors of the reply."""

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from pramana import settings
from pramana.bench import execute
from pramana.errors import ApiKeyInReply, InvalidInput, ProviderError, RateLimited
from pramana.model import Reply, Request, ToolCall, Turn
from pramana.planning import create_run
from pramana.providers.names import resolve_target
from pramana.providers.text import function
from pramana.providers.text.function import FunctionProvider
from pramana.request import Limits, RunRequest
from pramana.store import open_store

MODULE = """
import asyncio, functools, json, threading, time
from pramana.errors import RateLimited

def shout(prompt): return prompt.upper()
async def later(prompt):
    await asyncio.sleep(0)
    return prompt + "!"
def roles(messages): return " ".join(f"{each['role']}={each['content']}" for each in messages)
def hot(prompt, parameters): return str(parameters["temperature"])
def seeded(prompt, *, seed, heat=0.7): return f"seed {seed}, heat {heat}"
def where(prompt): return threading.current_thread().name
def nap(prompt):
    time.sleep(0.2)
    return prompt
def crash(prompt): raise ValueError("two\\nlines")
def quiet(prompt): raise KeyError
def leave(prompt): raise SystemExit(3)
def limited(prompt): raise RateLimited("slow down", retry_after=2.0)
def number(prompt): return 42
class Own(BaseException): pass
class Dumb(Exception):
    def __str__(self): raise ValueError
class Said(str):
    def __str__(self): return "another"
RAISED = {each.__name__: each for each in (
    GeneratorExit, SystemExit, StopIteration, StopAsyncIteration, asyncio.CancelledError, KeyboardInterrupt, Own, Dumb)}
def raises(prompt): raise RAISED[prompt]("so")
async def raises_later(prompt):
    await asyncio.sleep(0)
    raise RAISED[prompt]("so")
async def cancels_itself(prompt):
    asyncio.current_task().cancel()
    await asyncio.sleep(1)
def waits(prompt): raise RateLimited("slow down", retry_after=eval(prompt))
def says(prompt): return Said(prompt)
def leaks(prompt): raise ValueError(prompt)
def leaks_ours(prompt): raise RateLimited(prompt)
def hang(prompt):
    if prompt == "hang": time.sleep(10**6)
    return prompt
async def never_ends(prompt):
    while prompt == "hang":
        try: await asyncio.sleep(10**6)
        except BaseException: pass
    return prompt
async def blocks(prompt):
    time.sleep(1)
    return prompt
def lazy(prompt): return later(prompt)
@functools.wraps(later)
def runs_itself(prompt): return asyncio.run(later(prompt))
class Model:
    def answer(self, prompt): return "method " + prompt
    async def __call__(self, prompt): return "called " + prompt
model = Model()
constant = 3
def client(messages, **kwargs): return json.dumps(kwargs)
def reader(prompt, *, seed=1, **others): return json.dumps({"seed": seed, **others})
warm = functools.partial(reader, temperature=0.3)
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "my_functions.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "broken_module.py").write_text("raise RuntimeError('at import')", encoding="utf-8")
    (tmp_path / "leaving_module.py").write_text("import sys; sys.exit('no GPU')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("my_functions", None)


def ask(name: str, *turns: Turn, **parameters: Any) -> Reply:
    async def go() -> Reply:
        provider = FunctionProvider.open(resolve_target(f"python:my_functions:{name}"))
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
        ("runs_itself", "hi!"),
        ("roles", "user=hi"),
        ("model.answer", "method hi"),
        ("model", "called hi"),
    ],
)
def test_each_kind_of_function_is_called(name: str, text: str) -> None:
    reply = ask(name)
    assert (reply.text, reply.served_model) == (text, f"my_functions:{name}")
    assert reply.total_s > 0
    assert reply.first_token_s is None
    assert reply.usage.input_tokens is None


def test_a_conversation_is_passed_as_text_or_messages() -> None:
    turns = (Turn("system", "Be brief."), Turn("user", "Is it?"), Turn("assistant", "Yes."), Turn("user", "So?"))
    assert ask("shout", *turns).text == "BE BRIEF.\n\nIS IT?\n\nYES.\n\nSO?"
    assert ask("roles", *turns).text == "system=Be brief. user=Is it? assistant=Yes. user=So?"


def test_parameters_are_passed_if_declared_and_listed_as_dropped_otherwise() -> None:
    given = ask("hot", temperature=0.5, seed=42)
    assert (given.text, given.dropped) == ("0.5", ())
    given = ask("seeded", temperature=0.5, seed=42)
    assert (given.text, given.dropped) == ("seed 42, heat 0.7", ("temperature",))
    assert ask("shout", temperature=0.5, seed=42, top_p=None).dropped == ("temperature", "seed")
    assert ask("later", seed=42).dropped == ("seed",)


def test_functions_with_kwargs_get_every_given_parameter() -> None:
    given = ask("client", temperature=0.7, seed=7, max_tokens=9, top_p=None, stop=["."])
    assert json.loads(given.text) == {"temperature": 0.7, "seed": 7, "max_tokens": 9, "stop": ["."]}
    assert given.dropped == ()
    assert json.loads(ask("reader", seed=7, top_p=0.5).text) == {"seed": 7, "top_p": 0.5}


def test_a_parameter_named_like_the_prompt_is_not_passed_twice() -> None:
    given = ask("reader", prompt="another", seed=7)
    assert (json.loads(given.text), given.dropped) == ({"seed": 7}, ("prompt",))


def test_arguments_bound_by_a_partial_are_kept_and_the_value_of_the_run_is_dropped() -> None:
    given = ask("warm", temperature=0.7, seed=7)
    assert json.loads(given.text) == {"seed": 7, "temperature": 0.3}
    assert given.dropped == ("temperature",)


def test_a_plain_function_runs_in_a_thread_and_many_run_at_once() -> None:
    assert ask("where").text.startswith("pramana-function")

    async def ask_many() -> float:
        provider = FunctionProvider("my_functions:nap")
        start = time.perf_counter()
        asked = [provider.ask(Request("x", (Turn("user", str(number)),))) for number in range(20)]
        assert [reply.text for reply in await asyncio.gather(*asked)] == [str(number) for number in range(20)]
        await provider.close()
        return time.perf_counter() - start

    assert asyncio.run(ask_many()) < 20 * 0.2 / 2  # one after the other would take four seconds


def test_concurrent_calls_are_not_limited_by_a_thread_pool() -> None:
    """How many may be made is the limiter's business: `concurrency=150` means 150."""
    all_called = threading.Barrier(100)

    def meet(prompt: str) -> str:
        all_called.wait(20)
        return prompt

    async def go() -> int:
        provider = FunctionProvider("tests:meet", meet)
        replies = await asyncio.gather(*(provider.ask(Request("x", (Turn("user", "hi"),))) for _ in range(100)))
        await provider.close()
        return len(replies)

    assert asyncio.run(go()) == 100


_request_id: ContextVar[str] = ContextVar("request_id", default="none")


def read_request_id(_: str) -> str:
    return _request_id.get()


async def read_request_id_async(_: str) -> str:
    await asyncio.sleep(0)
    return _request_id.get()


@pytest.mark.parametrize("reads", [read_request_id, read_request_id_async])
def test_a_function_sees_the_context_variables_of_its_caller(reads: Any) -> None:
    async def answer(provider: FunctionProvider, name: str) -> str:
        _request_id.set(name)
        return (await provider.ask(Request("x", (Turn("user", "hi"),)))).text

    async def go() -> list[str]:
        provider = FunctionProvider("tests:reads", reads)
        found = [await asyncio.create_task(answer(provider, name)) for name in ("first", "second")]
        await provider.close()
        return found

    assert asyncio.run(go()) == ["first", "second"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("crash", r"my_functions:crash raised ValueError: two\\nlines \(my_functions\.py, line 16, in crash\)$"),
        ("quiet", r"my_functions:quiet raised KeyError \(my_functions\.py, line 17, in quiet\)$"),
        ("leave", r"my_functions:leave raised SystemExit: 3 \(my_functions\.py, line 18, in leave\)$"),
        ("number", r"my_functions:number returned int; expected text \(str\)"),
        ("roles.missing", None),
    ],
)
def test_failures_inside_a_function_are_errors_of_the_reply(name: str, says: str | None) -> None:
    if says is None:
        with pytest.raises(InvalidInput, match="has no attribute 'missing'"):
            ask(name)
        return
    with pytest.raises(ProviderError, match=says) as caught:
        ask(name)
    assert type(caught.value) is ProviderError
    assert not caught.value.transient


@pytest.mark.parametrize("kind", ["GeneratorExit", "SystemExit", "StopIteration", "StopAsyncIteration", "Own", "Dumb"])
@pytest.mark.parametrize("name", ["raises", "raises_later"])
def test_any_exception_is_an_error_of_the_reply(name: str, kind: str) -> None:
    with pytest.raises(ProviderError, match=f"my_functions:{name} raised ") as caught:
        ask(name, Turn("user", kind))
    assert not caught.value.fatal
    # A coroutine cannot raise StopIteration: Python makes another error of it.
    assert kind in str(caught.value) or (name, kind) == ("raises_later", "StopIteration")


@pytest.mark.parametrize("name", ["raises", "raises_later", "cancels_itself"])
def test_a_function_that_cancels_itself_cancels_no_other_call(name: str) -> None:
    with pytest.raises(ProviderError, match=f"my_functions:{name} raised CancelledError"):
        ask(name, Turn("user", "CancelledError"))


@pytest.mark.parametrize("name", ["raises", "raises_later"])
def test_ctrl_c_in_a_function_ends_the_program(name: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        ask(name, Turn("user", "KeyboardInterrupt"))


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("'5'", 5.0),
        ("2", 2.0),
        ("'soon'", None),
        ("[]", None),
        ("-1", None),
        ("float('nan')", None),
        ("float('inf')", None),
        ("10**400", None),
    ],
)
def test_retry_after_is_seconds_or_unknown(given: str, seconds: float | None) -> None:
    with pytest.raises(RateLimited) as caught:
        ask("waits", Turn("user", given))
    assert caught.value.retry_after == seconds


def test_a_str_subclass_is_read_as_plain_text() -> None:
    reply = ask("says")
    assert (reply.text, type(reply.text)) == ("hi", str)


def test_keys_of_the_environment_are_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "sk-of-the-environment"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    monkeypatch.setenv("COMPATIBLE_API_KEY", "a word")
    turn = Turn("user", f"it is {key}, a word")
    with pytest.raises(ApiKeyInReply, match="contains an API key from the environment, and keys are never stored"):
        ask("hang", turn)
    with pytest.raises(
        ProviderError, match=r"leaks raised ValueError: it is \[key\], a word \(my_functions\.py, line \d+, in leaks\)$"
    ):
        ask("leaks", turn)
    with pytest.raises(RateLimited, match=r"^it is \[key\], a word$"):
        ask("leaks_ours", turn)
    assert ask("hang", Turn("user", "a word")).text == "a word"


@pytest.mark.parametrize(
    "reply",
    [
        Reply("yes", raw=b"no JSON: sk-of-the-environment"),
        Reply("yes", raw=b'{"key": sk-of-the-environment}'),
        Reply("yes", raw=b'{"key": "\\u0073k-of-the-environment"}'),
        Reply("", tool_calls=(ToolCall("send", '{"key": "\\u0073k-of-the-environment"}'),)),
    ],
)
def test_a_key_is_found_in_any_raw_response_and_in_escaped_arguments(
    reply: Reply, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go(key: str) -> Reply:
        monkeypatch.setenv("OPENAI_API_KEY", key)
        provider = FunctionProvider("tests:answers", lambda _: reply)
        try:
            return await provider.ask(Request("x", (Turn("user", "hi"),)))
        finally:
            await provider.close()

    with pytest.raises(ApiKeyInReply):
        asyncio.run(go("sk-of-the-environment"))
    assert asyncio.run(go("sk-another-of-the-environment")).text == reply.text


def test_a_function_may_raise_our_errors() -> None:
    with pytest.raises(RateLimited, match="slow down") as caught:
        ask("limited")
    assert caught.value.retry_after == 2.0


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("no_such_module:f", "cannot be loaded: ModuleNotFoundError"),
        ("broken_module:f", "cannot be loaded: RuntimeError: at import"),
        ("leaving_module:f", "cannot be loaded: SystemExit: no GPU"),
        ("my_functions:constant", 'is "int", which cannot be called'),
        ("my_functions", "lacks a function"),
        (":f", "lacks a function"),
    ],
)
def test_a_missing_function_is_reported_at_once(path: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        FunctionProvider(path)


def test_a_builtin_without_a_signature_is_called_with_the_text() -> None:
    provider = FunctionProvider("builtins:str")
    reply = asyncio.run(provider.ask(Request("x", (Turn("user", "hi"),))))
    asyncio.run(provider.close())
    assert reply.text == "hi"
    assert asyncio.run(provider.models()) == ["builtins:str"]


def test_closing_does_not_wait_for_a_function_that_hangs() -> None:
    released = threading.Event()
    sys.modules["my_functions"] = module = type(sys)("my_functions")
    module.hang = lambda _: released.wait(30) and "late"  # type: ignore[attr-defined]

    async def go() -> float:
        provider = FunctionProvider("my_functions:hang")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(provider.ask(Request("x", (Turn("user", "hi"),))), 0.1)
        start = time.perf_counter()
        await provider.close()
        return time.perf_counter() - start

    assert asyncio.run(go()) < 5
    released.set()


def test_two_functions_of_one_run_are_separate_models(tmp_path: Path) -> None:
    suite = tmp_path / "mine.jsonl"
    suite.write_text(json.dumps(make_case(1, "hi", "HI")) + "\n", encoding="utf-8")
    models = ("python:my_functions:shout", "python:my_functions:later")
    with closing(open_store(settings.database_url())) as store:
        begun = create_run(store, RunRequest(paths=(suite,), models=models))
        asyncio.run(execute(store, begun, Limits()))
        said = {each.key.model: each.reply.text for _, each in store.results.iterate(begun.id) if each.reply}
    assert said == {models[0]: "HI", models[1]: "hi!"}


def make_case(number: int, prompt: str, ideal: str) -> dict[str, Any]:
    return {
        "id": f"coding-{number:03}",
        "category": "coding",
        "input": prompt,
        "ideal": ideal,
        "assertion": {"type": "contains"},
        "metadata": {"difficulty": "easy", "tokens_est": 1},
    }


@pytest.mark.parametrize("name", ["hang", "never_ends"])
def test_abandoned_calls_do_not_occupy_a_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "MAX_THREADS", 2)

    async def go() -> str:
        provider = FunctionProvider(f"my_functions:{name}")
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(provider.ask(Request("x", (Turn("user", "hang"),))), 0.05)
        try:
            return (await asyncio.wait_for(provider.ask(Request("x", (Turn("user", "hi"),))), 10)).text
        finally:
            await provider.close()

    assert asyncio.run(go()) == "hi"


def test_a_blocking_coroutine_does_not_delay_others() -> None:
    async def go() -> float:
        provider = FunctionProvider("my_functions:blocks")
        asked = asyncio.ensure_future(provider.ask(Request("x", (Turn("user", "hi"),))))
        longest, before = 0.0, time.perf_counter()
        while not asked.done():
            await asyncio.sleep(0.001)
            now = time.perf_counter()
            longest, before = max(longest, now - before), now
        await provider.close()
        assert asked.result().text == "hi"
        return longest

    assert asyncio.run(go()) < 0.8


@pytest.mark.parametrize("name", ["hang", "never_ends"])
def test_a_hanging_function_does_not_keep_the_process_alive(name: str, tmp_path: Path) -> None:
    suite = tmp_path / "mine.jsonl"
    cases = [make_case(number, text, "hi") for number, text in enumerate(["hang", "hi"])]
    suite.write_text("".join(json.dumps(case) + "\n" for case in cases), encoding="utf-8")
    command = [sys.executable, "-m", "pramana", "run", str(suite), "--model", f"python:my_functions:{name}"]
    done = subprocess.run(
        [*command, "--timeout", "1", "--deadline", "1"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "time limit of 1 s is reached" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
