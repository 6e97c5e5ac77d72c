"""The fake voice agent: its options, its answers, its faults, and barge-in."""

import asyncio
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from pramana import audio
from pramana.errors import InvalidInput
from pramana.providers.accounts import Accounts
from pramana.providers.names import is_voice_agent, open_provider, resolve_target
from pramana.providers.text.fake import REPLY_WORDS
from pramana.providers.voice.fake import FAULTS, FakeVoice, parse_fake_voice
from pramana.providers.voice.vocabulary import FRAME_S, CallSetup, Event

from ...virtual_time import virtual_time

pytestmark = pytest.mark.usefixtures("virtual_time")
SPEECH = (9000 * np.sin(np.arange(320) / 8)).astype("<i2").tobytes()
SILENCE = bytes(640)


SCENES: Mapping[str, tuple[str, int, CallSetup]] = {
    **{name: (f"seed={name[-1]},tokens=2", 2, CallSetup("x")) for name in ("seed 1", "again 1", "seed 2")},
    **{name: (f"{name}=1,fixed=Yes.", 1, CallSetup("x")) for name in FAULTS},
    "leading": ("leading=0.25,fixed=Yes.", 1, CallSetup("x")),
    "whole tone": ("tone", 1, CallSetup("x")),
    "half a tone": ("cut=1,tone", 1, CallSetup("x")),
    "talked into": ("fixed=This takes a while to say.", 2, CallSetup("x")),
    "Japanese": ("fixed=Good morning.", 1, CallSetup("x", language="ja")),
}
"""What is written, how many turns are taken, and who is called how."""


async def hold_conversation(written: str, turns: int, dial: CallSetup) -> list[list[Event]]:
    """Speak until an answer arrives, then barge in with the next line, and so on; return the events of each turn."""
    channel = await FakeVoice(**parse_fake_voice(written)).dial(dial)
    try:
        return [await take_turn(channel) for _ in range(turns)]
    finally:
        await channel.close()


async def take_turn(channel: Any) -> list[Event]:
    events: list[Event] = []

    async def listen() -> None:
        while not {"turn_done", "closed", "error"} & {event.kind for event in events}:
            events.extend((await channel.receive()).events)

    for _ in range(5):
        await channel.send(SPEECH)
        await asyncio.sleep(FRAME_S)
    listening = asyncio.create_task(listen())
    for _ in range(100):
        await channel.send(SILENCE)
        await asyncio.sleep(FRAME_S)
        if listening.done():
            break
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    return events


@pytest.fixture(scope="module")
def events_by_scene() -> dict[str, list[list[Event]]]:
    """Hold all conversations at once, for all tests of this file."""

    async def main() -> list[list[list[Event]]]:
        return await asyncio.gather(*(hold_conversation(*each) for each in SCENES.values()))

    with virtual_time():
        return dict(zip(SCENES, asyncio.run(main()), strict=True))


def list_kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


def join_text(events: list[Event]) -> str:
    return "".join(event.text for event in events if event.kind == "agent_text")


def join_sound(events: list[Event]) -> Any:
    return audio.decode("pcm", b"".join(event.audio for event in events))


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("latncy=1", 'did you mean "latency"'),
        ("latency=fast", "latency is .fast.; expected a number between 0 and 60"),
        ("latency=-1", "expected a number between 0 and 60"),
        ("latency=nan", "expected a number between 0 and 60"),
        ("latency=inf", "expected a number between 0 and 60"),
        ("tokens=1.5", "expected a whole number between 0 and 1,000"),
        ("seed=", "expected a whole number"),
        ("silent=2", "silent is .2.; expected a number between 0 and 1"),
        ("silent=0.6,cut=0.6", "the shares of faults add up to 1.2, which is more than 1"),
        ("tone=1", "is not an option"),
        ("fixed", "is not an option"),
        (",", "is not an option"),
        ("silent", "is not an option"),
    ],
)
def test_an_invalid_option_is_refused_with_the_valid_ones(written: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_fake_voice(written)
    with pytest.raises(InvalidInput, match=r"^fake-voice: "):
        resolve_target(f"fake-voice:{written}")


def test_options_are_applied() -> None:
    target = resolve_target("fake-voice:latency=0.5,seed=3,cut=0.25,fixed=Yes, surely.")
    assert is_voice_agent(target)
    assert (target.provider, target.model) == ("fake-voice", "fixed")
    agent: Any = open_provider(target, Accounts(lambda _: None))
    assert agent == FakeVoice("fixed", "Yes, surely.", seed=3, latency=0.5, faults={"cut": 0.25})
    assert asyncio.run(agent.models()) == ["fixed", "tone", "words"]


Scenes = dict[str, list[list[Event]]]


def test_words_depend_on_seed_and_turn_only(events_by_scene: Scenes) -> None:
    first, again, other = events_by_scene["seed 1"], events_by_scene["again 1"], events_by_scene["seed 2"]
    said = [join_text(each) for each in first]
    assert said == [join_text(each) for each in again]
    assert said != [join_text(each) for each in other]
    assert said[0] != said[1]
    assert all(word in REPLY_WORDS for word in " ".join(said).split())
    assert np.array_equal(join_sound(first[0]), join_sound(again[0]))


def test_an_answer_consists_of_silence_audio_and_text(events_by_scene: Scenes) -> None:
    (events,) = events_by_scene["leading"]
    assert list_kinds(events) == [
        "ready",
        "user_speech_start",
        "user_speech_stop",
        "agent_audio",
        "agent_text",
        "turn_done",
    ]
    assert join_text(events) == "Yes."
    first = audio.find_first_audible(join_sound(events), 16000)
    assert first is not None
    assert 0.25 <= first / 16000 < 0.4


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("silent", []),
        ("cut", ["agent_audio", "closed"]),
        ("wordless", ["agent_audio", "turn_done"]),
        ("garbled", ["agent_audio", "agent_text", "turn_done"]),
    ],
)
def test_each_fault_has_its_own_events(events_by_scene: Scenes, fault: str, expected: list[str]) -> None:
    (events,) = events_by_scene[fault]
    assert list_kinds(events)[3:] == expected
    assert join_text(events) != "Yes."
    if fault == "garbled":
        assert re.fullmatch(f"({'|'.join(REPLY_WORDS)})( ({'|'.join(REPLY_WORDS)})){{5}}", join_text(events))


def test_a_dropped_call_has_half_an_answer(events_by_scene: Scenes) -> None:
    (whole,), (half,) = events_by_scene["whole tone"], events_by_scene["half a tone"]
    assert len(join_sound(half)) == len(join_sound(whole)) // 2
    assert (half[-1].text, half[-1].error) == ("cut off on purpose", "network")


def test_barge_in_silences_the_agent(events_by_scene: Scenes) -> None:
    _, second = events_by_scene["talked into"]
    assert list_kinds(second)[:2] == ["user_speech_start", "interrupted"]
    assert list_kinds(second)[-1] == "turn_done"


def test_unspeakable_words_end_the_call_with_a_reason(events_by_scene: Scenes) -> None:
    (events,) = events_by_scene["Japanese"]
    assert list_kinds(events)[-1] == "error"
    assert "reads Hiragana and Katakana script" in events[-1].text
