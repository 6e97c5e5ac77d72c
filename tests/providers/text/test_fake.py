"""The fake provider: deterministic replies, faults by seed, and latency only on request."""

import asyncio
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from pramana import clock
from pramana.errors import InvalidInput, ProviderError, RateLimited
from pramana.model import Reply, Request, Turn, Usage
from pramana.providers.names import resolve_target
from pramana.providers.text.fake import ERROR_BY_CODE, REPLY_WORDS, FakeProvider, parse_fake

pytestmark = pytest.mark.usefixtures("virtual_time")


def make_request(text: str = "Is it so?", **parameters: Any) -> Request:
    return Request("words", (Turn("system", "Be brief."), Turn("user", text)), parameters)


def ask(written: str = "", asked: Request | None = None) -> Reply:
    return asyncio.run(FakeProvider(**parse_fake(written)).ask(asked or make_request()))


def test_the_same_request_gets_the_same_reply() -> None:
    reply = ask()
    assert reply.text == ask().text
    assert len(reply.text.split()) == 12
    assert set(reply.text.split()) <= set(REPLY_WORDS)
    assert reply.usage == Usage(5, 12, 0)
    assert (reply.finish_reason, reply.served_model) == ("stop", "fake-1")


def test_another_process_gets_the_same_reply() -> None:
    code = (
        "import asyncio; from pramana.model import *; from pramana.providers.text.fake import FakeProvider\n"
        "asked = Request('words', (Turn('system', 'Be brief.'), Turn('user', 'Is it so?')))\n"
        "print(asyncio.run(FakeProvider().ask(asked)).text)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == ask().text


def test_a_different_request_seed_or_parameter_gets_a_different_reply() -> None:
    others = [ask("seed=1"), ask(asked=make_request("And now?")), ask(asked=make_request(temperature=1))]
    assert len({ask().text, *(reply.text for reply in others)}) == 4


def test_echo_fixed_and_tokens_determine_the_reply() -> None:
    assert ask("echo", make_request("What I said")).text == "What I said"
    assert ask("echo", Request("echo", (Turn("assistant", "x"),))).text == ""
    assert ask("fixed=Yes, surely: 1=1").text == "Yes, surely: 1=1"
    assert ask("fixed=").text == ""
    assert len(ask("tokens=3").text.split()) == 3


def test_the_reply_respects_max_tokens() -> None:
    reply = ask("fixed=one two three", make_request(max_tokens=2))
    assert (reply.text, reply.finish_reason, reply.usage.output_tokens) == ("one two", "length", 2)


def test_replies_are_delayed_only_by_the_given_latency() -> None:
    assert ask("latency=0.05,echo").total_s == pytest.approx(0.05, abs=1e-4)
    assert 0.02 <= ask("latency=0.02,jitter=0.03,echo").total_s <= 0.0501

    async def ask_many() -> float:
        fake = FakeProvider()
        start = clock.monotonic()
        for number in range(200):
            await fake.ask(make_request(str(number)))
        return clock.monotonic() - start

    assert asyncio.run(ask_many()) == 0


def collect_outcomes(written: str, count: int = 400) -> list[str]:
    async def go() -> list[str]:
        fake, found = FakeProvider(**parse_fake(written)), []
        for number in range(count):
            try:
                await fake.ask(make_request(str(number)))
                found.append("answered")
            except ProviderError as error:
                found.append(error.code)
        return found

    return asyncio.run(go())


def test_errors_occur_at_the_given_rates_by_seed() -> None:
    found = collect_outcomes("rate_limited=0.2,unavailable=0.1,echo")
    counts = Counter(found)
    assert 50 < counts["rate_limited"] < 110
    assert 20 < counts["unavailable"] < 65
    assert counts["answered"] == 400 - counts["rate_limited"] - counts["unavailable"]
    assert found == collect_outcomes("rate_limited=0.2,unavailable=0.1,echo")
    assert found != collect_outcomes("seed=9,rate_limited=0.2,unavailable=0.1,echo")


@pytest.mark.parametrize("code", ERROR_BY_CODE)
def test_every_kind_of_error_can_be_raised(code: str) -> None:
    with pytest.raises(ERROR_BY_CODE[code], match=f"error requested from the fake provider: {code}"):
        ask(f"{code}=1")


def test_a_retry_can_succeed_and_memory_stays_flat() -> None:
    async def go() -> int:
        fake = FakeProvider(**parse_fake("rate_limited=0.5,echo"))
        tries = 0
        for number in range(100):
            while True:
                tries += 1
                try:
                    assert (await fake.ask(make_request(str(number)))).text == str(number)
                    break
                except RateLimited:
                    pass
        assert not fake._failed
        return tries

    tries = asyncio.run(go())
    assert 140 < tries < 280
    assert asyncio.run(go()) == tries


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("ecco", r'"ecco" is not an option .*did you mean "echo"\?'),
        ("latency=soon", r'latency is "soon"; expected a number between 0 and 3,600'),
        ("tokens=1.5", "expected a whole number"),
        ("seed=-1", "expected a whole number"),
        ("rate_limited=1.5", "expected a number between 0 and 1"),
        ("latency=nan", "expected a number"),
        ("rate_limited=0.7,unavailable=0.7", "add up to 1.4"),
        ("echo,", None),
    ],
)
def test_an_invalid_option_says_what_to_write(written: str, says: str | None) -> None:
    if says is None:
        assert parse_fake(written) == {"answer": "echo"}
        return
    with pytest.raises(InvalidInput, match=says):
        parse_fake(written)


def test_the_fake_provider_opens_by_target_and_lists_its_models() -> None:
    fake = FakeProvider.open(resolve_target("fake:seed=2,echo"))
    assert asyncio.run(fake.models()) == ["echo", "fixed", "words"]
    assert asyncio.run(fake.ask(make_request("hello"))).text == "hello"
    assert asyncio.run(fake.ask(make_request("hello"))).fingerprint == "seed-2"
    asyncio.run(fake.close())
