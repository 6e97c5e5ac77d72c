"""The stage of a running call: every stage once, in order, and the origin of its audio."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from pramana.errors import Unavailable
from pramana.model import Line, Request, Speech, Utterance
from pramana.providers.text.fake import FakeProvider, parse_fake
from pramana.providers.voice.cascade import make_embedded_cascade
from pramana.providers.voice.fake import FakeChannel, FakeVoice, parse_fake_voice
from pramana.providers.voice.vocabulary import CallSetup
from pramana.run.call import Patience, StageCounter
from pramana.run.calling import CallProvider

pytestmark = pytest.mark.usefixtures("virtual_time")
TONE = (9000 * np.sin(np.arange(4800) / 9)).astype(np.int16)
AGENT = "latency=0.3,tone"


def make_request(*lines: Line) -> Request:
    spoken = tuple(Utterance(line, TONE, "sha256:x") for line in lines)
    return Request("x", (), {}, "case", 0, Speech(spoken, "en"))


class WatchedCalls:
    """A voice agent whose calls are recorded."""

    def __init__(self, voice: Any) -> None:
        self.seen: list[str] = []
        self.blobs: list[bytes] = []
        self.stages = StageCounter(lambda: self.seen.append(" ".join(self.stages.counts())))
        self.calls = CallProvider(voice, "x", self.keep, patience=Patience(answer_within_s=3), stages=self.stages)

    def keep(self, data: bytes) -> str:
        self.blobs.append(data)
        return f"sha256:{len(self.blobs)}"

    def ask(self, *lines: Line) -> Any:
        return asyncio.run(self.calls.ask(make_request(*lines)))

    @property
    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.blobs[-1].splitlines()]


def test_a_call_passes_all_stages_in_order() -> None:
    watched = WatchedCalls(FakeVoice(**parse_fake_voice(AGENT)))
    watched.ask(Line("Hello."))
    assert watched.seen == ["ringing", "caller", "waiting", "agent", ""]
    assert watched.stages.counts() == {}


def test_caller_and_agent_take_turns_over_several_lines() -> None:
    watched = WatchedCalls(FakeVoice(**parse_fake_voice(AGENT)))
    watched.ask(Line("Hello."), Line("And now?"))
    assert watched.seen == ["ringing", *["caller", "waiting", "agent"] * 2, ""]


def test_the_caller_is_the_speaker_during_barge_in() -> None:
    watched = WatchedCalls(FakeVoice(**parse_fake_voice(AGENT)))
    watched.ask(Line("Hello."), Line("Stop that.", barge_in_s=0.5))
    assert watched.seen[:5] == ["ringing", "caller", "waiting", "agent", "caller"]


def test_a_failed_call_leaves_its_stage() -> None:
    class UnavailableAgent(FakeVoice):
        async def dial(self, _dial: CallSetup) -> FakeChannel:
            raise Unavailable("gone")

    watched = WatchedCalls(UnavailableAgent(**parse_fake_voice(AGENT)))
    with pytest.raises(Unavailable):
        watched.ask(Line("Hello."))
    assert watched.seen == ["ringing", ""]


def test_calls_at_once_are_counted_by_stage() -> None:
    stages = StageCounter()
    with stages.track_call(), stages.track_call() as second, stages.track_call("scoring"):
        second("agent")
        second("agent")
        assert stages.counts() == {"ringing": 1, "agent": 1, "scoring": 1}
    assert stages.counts() == {}


# ── Origin of audio ──


def test_the_log_marks_audio_synthesised_here() -> None:
    ours, theirs = (
        WatchedCalls(make_embedded_cascade(FakeProvider(**parse_fake("fixed=Nine.")))),
        WatchedCalls(FakeVoice(**parse_fake_voice(AGENT))),
    )
    for each in (ours, theirs):
        each.ask(Line("Hello."))
    assert (ours.log[0]["version"], ours.log[0]["synthesised_here"]) == (3, True)
    assert theirs.log[0]["synthesised_here"] is False


def test_a_third_party_agent_cannot_mark_its_audio_as_synthesised_here() -> None:
    class PretendingAgent(FakeVoice):
        async def dial(self, setup: CallSetup) -> FakeChannel:
            channel = await super().dial(setup)
            channel.is_synthesised_in_process = True  # type: ignore[attr-defined]
            return channel

    watched = WatchedCalls(PretendingAgent(**parse_fake_voice(AGENT)))
    watched.ask(Line("Hello."))
    assert watched.log[0]["synthesised_here"] is False
