"""The call: paced like a microphone, played like a loudspeaker, recorded on one clock, ended whatever happens."""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from pramana import audio
from pramana.errors import Unavailable
from pramana.model import Line, Utterance
from pramana.providers.fake_voice import FakeVoice, parse
from pramana.providers.voice import FRAME_S, Dial, Event, Format, Heard
from pramana.run import call
from pramana.run.call import Conversation, Held, Patience

RATE = audio.CALLER_RATE
PCM, PATIENT = Format(), Patience(answer_within_s=2)


def tone(seconds: float, rate: int = RATE, pitch: float = 300) -> Any:
    return (9000 * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate)).astype(np.int16)


def said(seconds: float = 0.3, barge_in_s: float | None = None) -> Utterance:
    return Utterance(Line("hello", barge_in_s=barge_in_s), tone(seconds), "sha256:x")


class Scripted:
    """A channel that does something each time the caller has been quiet for a while."""

    def __init__(self, act: "Callable[[Scripted, int], None]", *, uplink: Format = PCM, downlink: Format = PCM) -> None:
        self.uplink, self.downlink, self.greets = uplink, downlink, False
        self.act, self.turn, self.spoke, self.quiet = act, 0, False, 0
        self.sent: list[tuple[float, bytes]] = []
        self.events: asyncio.Queue[Heard | Exception] = asyncio.Queue()
        self.interruptions: list[float] = []
        self.is_closed = False

    async def send(self, frame: bytes) -> None:
        self.sent.append((time.monotonic(), frame))
        sounding = audio.level_dbfs(audio.decode(self.uplink.codec, frame)) > -50
        self.quiet = 0 if sounding else self.quiet + 1
        self.spoke = self.spoke or sounding
        if self.spoke and self.quiet == 5:
            self.spoke = False
            self.turn += 1
            self.act(self, self.turn)

    def tell(self, *events: Event) -> None:
        self.events.put_nowait(Heard(time.monotonic(), events))

    def answer(self, seconds: float = 0.2, text: str = "yes", *, done: bool = True) -> None:
        sound = audio.encode(self.downlink.codec, tone(seconds, self.downlink.rate))
        ended = [Event("turn_done", "completed")] if done else []
        self.tell(Event("agent_audio", audio=sound), Event("agent_text", text, final=True), *ended)

    async def receive(self) -> Heard:
        heard = await self.events.get()
        if isinstance(heard, Exception):
            raise heard
        return heard

    async def interrupt(self, played_s: float) -> None:
        self.interruptions.append(played_s)

    async def close(self) -> None:
        self.is_closed = True


def held(channel: Any, spoken: Sequence[Utterance], patience: Patience = PATIENT) -> Held:
    async def main() -> Held:
        async with asyncio.timeout(30):
            return await Conversation(channel, spoken, {"rate": 24000}, patience).hold()

    return asyncio.run(main())


def events(of: Held, kind: str | None = None) -> list[dict[str, Any]]:
    every = [json.loads(line) for line in of.log.splitlines()]
    return [each for each in every if kind in (None, each["event"])]


def tracks(of: Held) -> tuple[Any, Any]:
    samples, rate = audio.read_wav(of.recording)
    assert rate == audio.RECORDING_RATE
    return samples[:, 0], samples[:, 1]


def test_frames_go_out_at_the_pace_of_a_microphone_and_silence_follows_speech() -> None:
    channel = Scripted(lambda it, _: it.answer())
    held(channel, [said(0.5)])
    times = np.array([at for at, _ in channel.sent])
    late = times - times[0] - np.arange(len(times)) * FRAME_S
    assert len(times) > 40
    assert np.abs(np.median(late)) < 0.01
    assert {len(frame) for _, frame in channel.sent} == {640}
    assert channel.sent[-1][1] == bytes(640)
    assert channel.is_closed


def test_every_agent_is_sent_the_same_samples_in_its_own_format() -> None:
    for uplink in (Format("pcm", 24000), Format("mulaw", 8000)):
        channel = Scripted(lambda it, _: it.answer(), uplink=uplink)
        held(channel, [said(0.5)])
        heard = np.concatenate([audio.decode(uplink.codec, frame) for _, frame in channel.sent])
        expected = audio.resample(tone(0.5), RATE, uplink.rate)
        start = round(0.2 * uplink.rate)
        close = np.abs(heard[start : start + len(expected)].astype(int) - expected)
        assert close.max() <= (0 if uplink.codec == "pcm" else 512)  # the steps of mu-law at this level


def test_the_recording_has_the_caller_left_and_the_agent_right_on_one_clock() -> None:
    channel = Scripted(lambda it, _: it.answer(0.2), downlink=Format("pcm", 24000))
    call_ = held(channel, [said(0.3)])
    left, right = tracks(call_)
    (line,) = events(call_, "line")
    (sound,) = events(call_, "agent_audio")
    assert (line["start"], line["end"]) == (0.2, 0.5)
    assert audio.first_audible(left, 24000) == pytest.approx(0.2 * 24000, abs=30)
    assert audio.last_audible(left, 24000) == pytest.approx(0.5 * 24000, abs=30)
    assert audio.first_audible(right, 24000) == pytest.approx(sound["plays"] * 24000, abs=30)
    assert sound["t"] == pytest.approx(sound["plays"], abs=0.001)
    assert call_.reason == "done"
    assert call_.answers == ("yes",)


def test_what_comes_faster_than_it_is_spoken_is_played_one_after_another() -> None:
    def three_at_once(it: Scripted, _: int) -> None:
        for _ in range(2):
            it.answer(0.4, "", done=False)
        it.answer(0.4)

    call_ = held(Scripted(three_at_once), [said()])
    sounds = events(call_, "agent_audio")
    assert np.diff([each["plays"] for each in sounds]) == pytest.approx([0.4, 0.4], abs=1e-4)
    assert sounds[2]["t"] - sounds[0]["t"] < 0.1
    (end,) = events(call_, "end")
    assert end["t"] >= sounds[0]["plays"] + 1.2  # nobody hangs up before they have listened


def test_the_next_line_waits_for_the_end_of_the_answer_and_a_pause() -> None:
    call_ = held(Scripted(lambda it, turn: it.answer(0.5, f"answer {turn}")), [said(), said(), said()])
    lines, sounds = events(call_, "line"), events(call_, "agent_audio")
    for sound, following in zip(sounds, lines[1:], strict=False):
        assert following["start"] >= sound["plays"] + 0.5 + call.PAUSE_S - 1e-6
    assert call_.answers == ("answer 1", "answer 2", "answer 3")


def test_talked_into_the_agent_is_cut_off_where_it_was_heard_and_told_how_far() -> None:
    class Yields(Scripted):
        async def send(self, frame: bytes) -> None:
            await super().send(frame)
            if self.turn == 1 and self.spoke and not self.interruptions:
                self.tell(Event("user_speech_start"), Event("interrupted"))
                self.tell(Event("turn_done", "cancelled"))

    channel = Yields(lambda it, turn: it.answer(2.0 if turn == 1 else 0.3, f"answer {turn}"))
    call_ = held(channel, [said(), said(0.4, barge_in_s=0.5)])
    first, second = events(call_, "line")
    sound = events(call_, "agent_audio")[0]
    assert second["start"] == pytest.approx(sound["plays"] + 0.5, abs=0.025)
    assert second["barge_in"]
    (cut, *_) = events(call_, "interrupted")
    assert cut["t"] - second["start"] < 0.06
    assert cut["dropped_s"] == pytest.approx(2.0 - cut["played_s"], abs=0.005)
    assert channel.interruptions[0] == pytest.approx(cut["played_s"], abs=1e-5)
    _, right = tracks(call_)
    silent_after = right[round((cut["t"] + 0.01) * 24000) : round(second["end"] * 24000)]
    assert audio.level_dbfs(silent_after) < -60
    assert call_.answers[-1] == "answer 2"
    assert first["barge_in"] is False


def test_an_agent_that_does_not_yield_answers_the_new_line_only_after_its_old_answer() -> None:
    channel = Scripted(lambda it, turn: it.answer(1.5 if turn == 1 else 0.3, f"answer {turn}"))
    call_ = held(channel, [said(), said(0.2, barge_in_s=0.3)])
    assert call_.answers == ("answer 1", "answer 2")
    sounds = events(call_, "agent_audio")
    assert sounds[1]["plays"] == pytest.approx(sounds[0]["plays"] + 1.5, abs=0.02)


def test_no_answer_by_the_deadline_ends_the_call_and_is_written_down() -> None:
    call_ = held(Scripted(lambda *_: None), [said(), said()], Patience(answer_within_s=0.5))
    (missing,) = events(call_, "no_answer")
    assert missing["line"] == 0
    assert 0.5 < missing["waited_s"] < 0.6
    assert (call_.reason, events(call_, "end")[0]["reason"]) == ("no_answer", "no_answer")
    assert len(events(call_, "line")) == 1


def test_silence_is_no_answer_however_much_of_it_comes() -> None:
    def silence(it: Scripted, _: int) -> None:
        it.tell(Event("agent_audio", audio=bytes(16000)), Event("turn_done", "completed"))

    assert held(Scripted(silence), [said()], Patience(answer_within_s=0.8)).reason == "no_answer"


@pytest.mark.parametrize(("event", "reason"), [("closed", "closed"), ("error", "error")])
def test_a_call_that_breaks_is_recorded_until_there(event: Any, reason: str) -> None:
    def breaks(it: Scripted, _: int) -> None:
        it.answer(0.5, "half an ans", done=False)
        it.tell(Event(event, "gone", error="network"))

    call_ = held(Scripted(breaks), [said(), said()])
    assert call_.reason == reason
    assert events(call_, event)[0]["text"] == "gone"
    assert events(call_, event)[0]["class"] == "network"
    assert audio.first_audible(tracks(call_)[1], 24000) is not None
    assert call_.answers[0] == "half an ans"


def test_what_an_agent_raises_leaves_the_call_so_that_it_can_be_tried_again() -> None:
    channel = Scripted(lambda it, _: it.events.put_nowait(Unavailable("its model is down")))
    with pytest.raises(Unavailable, match="its model is down"):
        held(channel, [said()])
    assert channel.is_closed


def test_a_call_ends_at_its_own_deadline() -> None:
    call_ = held(Scripted(lambda it, _: it.answer(5.0)), [said()], Patience(answer_within_s=2, longest_s=1.5))
    assert call_.reason == "deadline"


def test_more_sound_than_could_ever_be_played_is_a_broken_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "MOST_AHEAD_S", 1.0)

    def floods(it: Scripted, _: int) -> None:
        for _ in range(10):
            it.answer(0.5, done=False)

    call_ = held(Scripted(floods), [said()])
    assert call_.reason == "error"
    assert "more of sound than could be played" in events(call_, "error")[0]["text"]


def test_a_late_transcript_is_waited_for_and_a_missing_one_is_not_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "TRANSCRIPT_S", 0.5)

    def late(it: Scripted, _: int) -> None:
        it.answer(0.2, "", done=True)
        asyncio.get_running_loop().call_later(0.4, it.tell, Event("agent_text", "late words", final=True))

    assert held(Scripted(late), [said()]).answers == ("late words",)
    assert held(Scripted(lambda it, _: it.answer(0.2, "")), [said()]).answers == ("",)


def test_an_agent_that_never_says_it_is_done_is_done_when_it_has_been_quiet() -> None:
    channel = Scripted(lambda it, _: it.answer(0.2, done=False))
    channel.quiet_s = 0.4  # type: ignore[attr-defined]
    call_ = held(channel, [said()])
    (end,), (sound,) = events(call_, "end"), events(call_, "agent_audio")
    assert end["t"] - (sound["plays"] + 0.2) == pytest.approx(0.4, abs=0.06)


def test_who_greets_is_listened_to_first() -> None:
    channel = Scripted(lambda it, _: it.answer(0.2, "an answer"))
    channel.greets = True

    async def main() -> Held:
        asyncio.get_running_loop().call_later(0.3, channel.answer, 0.5, "welcome")
        return await Conversation(channel, [said()], {"rate": 24000}, Patience(answer_within_s=2)).hold()

    call_ = asyncio.run(main())
    greeting = events(call_, "agent_audio")[0]
    (line,) = events(call_, "line")
    assert line["start"] >= greeting["plays"] + 0.5
    assert call_.answers == ("an answer",)


def test_the_fake_agent_answers_after_its_exact_delay() -> None:
    async def main() -> Held:
        agent = FakeVoice(**parse("latency=0.6,leading=0.15,tone"))
        spoken = [said(0.31), said(0.222)]
        return await Conversation(await agent.dial(Dial("x")), spoken, {"rate": 24000}, Patience()).hold()

    call_ = asyncio.run(main())
    left, right = tracks(call_)
    for line in events(call_, "line"):
        window = slice(round(line["start"] * 24000), round(line["end"] * 24000) + 480)
        ended = audio.last_audible(left[window], 24000)
        begins = audio.first_audible(right[window.stop :], 24000)
        assert ended is not None
        assert begins is not None
        voice_to_voice = (window.stop + begins - window.start - ended) / 24000
        assert voice_to_voice == pytest.approx(0.75, abs=0.03)


def test_who_only_says_that_they_listen_is_not_answered_and_the_next_line_comes_after_the_answer() -> None:
    listening = Utterance(Line("Mm-hmm.", barge_in_s=0.3), tone(0.2), "sha256:y")
    channel = Scripted(lambda it, turn: it.answer(1.5, f"answer {turn}") if turn != 2 else None)
    call_ = held(channel, [said(), listening, said()])
    first, second, third = events(call_, "line")
    sounds = events(call_, "agent_audio")
    assert call_.reason == "done"
    assert call_.answers == ("answer 1", "", "answer 3")
    assert second["start"] == pytest.approx(sounds[0]["plays"] + 0.3, abs=0.025)
    assert third["start"] >= sounds[0]["plays"] + 1.5
    assert first["end"] < second["start"]


def test_an_agent_that_floods_or_takes_nothing_ends_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "MOST_EVENTS", 200)
    monkeypatch.setattr(call, "STUCK_S", 0.2)

    def floods(it: Scripted, _: int) -> None:
        for _ in range(500):
            it.tell(Event("unknown", detail={"name": "x"}))

    call_ = held(Scripted(floods), [said()])
    assert call_.reason == "error"
    assert "more events or words" in events(call_, "error")[0]["text"]

    class Stuck(Scripted):
        async def send(self, frame: bytes) -> None:
            await super().send(frame)
            if len(self.sent) > 20:
                await asyncio.sleep(60)

    assert held(Stuck(lambda *_: None), [said()], Patience(longest_s=0.5)).reason == "deadline"
