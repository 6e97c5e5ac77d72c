"""A model asked aloud: what the agent is told before, what becomes of the call, and who writes down what was said."""

import asyncio
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from pramana import audio
from pramana.errors import AuthenticationFailed, ProviderError
from pramana.model import Line, Reply, Request, Speech, Turn, Utterance
from pramana.providers.fake_voice import FakeVoice, parse
from pramana.providers.voice import Channel, Dial
from pramana.run import call
from pramana.run.call import Patience
from pramana.run.calling import Calls

TONE = (9000 * np.sin(np.arange(4800) / 9)).astype(np.int16)
BEFORE = (Turn("system", "Be brief."), Turn("user", "Hello."), Turn("assistant", "Good day."))


class Agent:
    """The fake agent, with a memory of what it was told."""

    def __init__(self, written: str, *, takes_history: bool = False, refuses: Exception | None = None) -> None:
        self.agent, self.takes_history, self.refuses = FakeVoice(**parse(written)), takes_history, refuses
        self.dials: list[Dial] = []

    async def dial(self, dial: Dial) -> Channel:
        self.dials.append(dial)
        if self.refuses:
            raise self.refuses
        return await self.agent.dial(dial)

    async def models(self) -> list[str]:
        return await self.agent.models()

    async def close(self) -> None:
        await self.agent.close()


class Scribe:
    """Writes down how many seconds of each clip are audible."""

    def __init__(self, *languages: str) -> None:
        self.languages = languages
        self.clips: list[float] = []

    def covers(self, language: str) -> bool:
        return language in self.languages

    async def transcribe(self, samples: Any, language: str) -> str:
        assert self.covers(language)
        first, last = audio.first_audible(samples, 16000), audio.last_audible(samples, 16000)
        assert first is not None
        assert last is not None
        self.clips.append((last - first) / 16000)
        return f"clip {len(self.clips)}"


def spoken(*lines: Line) -> tuple[Utterance, ...]:
    return tuple(Utterance(line, TONE, f"sha256:{place}") for place, line in enumerate(lines))


@dataclass
class Asked:
    """One request, and what came of it."""

    agent: Agent
    lines: tuple[Line, ...] = (Line("hello"),)
    language: str = "en"
    scribe: Scribe = field(default_factory=lambda: Scribe("en"))
    blobs: dict[str, bytes] = field(default_factory=dict)
    failure: Exception | None = None
    _reply: Reply | None = None

    @property
    def reply(self) -> Reply:
        assert self._reply is not None, self.failure
        return self._reply

    def keep(self, data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return digest

    async def ask(self) -> None:
        calls = Calls(self.agent, "fake-voice", self.keep, self.scribe, Patience(answer_within_s=1))
        speech = Speech(spoken(*self.lines), self.language, "voice+phone")
        try:
            self._reply = await calls.ask(Request("words", BEFORE, {"temperature": 0}, speech=speech))
        except ProviderError as error:
            self.failure = error


@pytest.fixture(scope="module")
def asked() -> dict[str, Asked]:
    """Hold every call of this file at once: each lasts real seconds."""
    hello, later = Line("hello"), Line("and then?")
    found = {
        "plain": Asked(Agent("fixed=Yes.")),
        "takes history": Asked(Agent("fixed=Yes.", takes_history=True)),
        "wordless": Asked(Agent("tone"), (hello, later)),
        "talked into": Asked(Agent("tone"), (hello, Line("stop", barge_in_s=0.4))),
        "listened to": Asked(Agent("tone"), (hello, Line("Uh-huh.", barge_in_s=0.4))),
        "German": Asked(Agent("tone"), language="de"),
        "silent": Asked(Agent("silent=1,tone")),
        "refused": Asked(Agent("tone", refuses=AuthenticationFailed("wrong key"))),
    }

    async def ask() -> None:
        async with asyncio.timeout(30):
            await asyncio.gather(*(each.ask() for each in found.values()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(call, "TRANSCRIPT_S", 0.1)  # nobody waits for words that will not come
        asyncio.run(ask())
    return found


def test_what_went_before_is_told_in_the_system_prompt(asked: dict[str, Asked]) -> None:
    (dial,) = asked["plain"].agent.dials
    assert dial.history == ()
    assert dial.system_prompt == "Be brief.\n\nWhat was said until now:\nThe user: Hello.\nYou: Good day."
    assert (dial.model, dial.language, dial.parameters) == ("words", "en", {"temperature": 0})


def test_who_takes_what_went_before_as_turns_is_given_it_so(asked: dict[str, Asked]) -> None:
    (dial,) = asked["takes history"].agent.dials
    assert dial.history == BEFORE[1:]
    assert dial.system_prompt == "Be brief."


def test_a_reply_has_its_words_its_recording_and_what_was_played_to_it(asked: dict[str, Asked]) -> None:
    plain = asked["plain"]
    reply, blobs = plain.reply, plain.blobs
    assert (reply.text, reply.answers, reply.finish_reason) == ("Yes.", ("Yes.",), "done")
    assert plain.scribe.clips == []  # who says what they said is taken at their word
    assert 1 < reply.total_s < 10
    assert reply.call is not None
    assert reply.call.caller == ("sha256:0",)
    samples, rate = audio.read_wav(blobs[reply.call.recording])
    assert (rate, samples.shape[1]) == (24000, 2)
    first = json.loads(blobs[reply.call.log].splitlines()[0])
    assert {name: first[name] for name in ("event", "rate", "provider", "model", "variant", "language")} == {
        "event": "call",
        "rate": 24000,
        "provider": "fake-voice",
        "model": "words",
        "variant": "voice+phone",
        "language": "en",
    }
    assert first["uplink"] == first["downlink"] == {"codec": "pcm", "rate": 16000}
    assert first["answer_within_s"] == 1


def test_each_answer_without_words_is_written_down_by_itself(asked: dict[str, Asked]) -> None:
    wordless = asked["wordless"]
    assert wordless.reply.answers == ("clip 1", "clip 2")
    assert wordless.reply.text == "clip 1\nclip 2"
    assert wordless.scribe.clips == pytest.approx([1.0, 1.0], abs=0.01)


def test_an_answer_that_is_talked_into_is_written_down_as_far_as_it_was_heard(asked: dict[str, Asked]) -> None:
    into = asked["talked into"]
    assert into.reply.answers == ("clip 1", "clip 2")
    assert into.scribe.clips == pytest.approx([0.5, 1.0], abs=0.2)


def test_who_only_listens_is_given_no_answer_to_write_down(asked: dict[str, Asked]) -> None:
    assert asked["listened to"].reply.answers == ("clip 1", "")
    assert len(asked["listened to"].scribe.clips) == 1


def test_where_nobody_knows_the_language_there_are_no_words(asked: dict[str, Asked]) -> None:
    reply = asked["German"].reply
    assert (reply.text, reply.answers) == ("", ("",))


def test_silence_is_not_given_to_anyone_to_write_down(asked: dict[str, Asked]) -> None:
    silent = asked["silent"]
    assert (silent.reply.text, silent.reply.finish_reason, silent.scribe.clips) == ("", "no_answer", [])


def test_who_cannot_be_called_is_an_error_and_no_reply(asked: dict[str, Asked]) -> None:
    assert isinstance(asked["refused"].failure, AuthenticationFailed)
    assert asked["refused"].blobs == {}
