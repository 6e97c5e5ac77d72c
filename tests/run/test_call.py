"""Calls: paced like a microphone, played like a loudspeaker, recorded on one clock, and always ended."""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from pramana import audio, clock
from pramana.errors import ApiKeyInReply, BrokenReply, Unavailable
from pramana.loopback.script import Script
from pramana.loopback.voice import VoiceLoopback
from pramana.model import Line, Outcome, Target, Utterance
from pramana.providers.accounts import Account
from pramana.providers.kinds import providers
from pramana.providers.voice.fake import FakeVoice, parse_fake_voice
from pramana.providers.voice.vocabulary import FRAME_S, CallSetup, ChannelCapabilities, Event, Format, ReceivedEvents
from pramana.run import call, sound
from pramana.run.call import Conversation, FinishedCall, Patience
from pramana.run.sound import (
    CATCH_UP_INTERVAL_S,
    MAX_BURST_FRAMES,
    MAX_FRAME_LATENESS_S,
    FramePacer,
    Microphone,
    Playout,
)
from pramana.score.speech import make_call_check, measure_call
from pramana.score.timing import CallTimes, measure_times

from ..loopback.twilio import TwilioAgent

pytestmark = pytest.mark.usefixtures("virtual_time")
RATE = audio.CALLER_SAMPLE_RATE
PCM, PATIENT = Format(), Patience(answer_within_s=2)


def make_tone(seconds: float, rate: int = RATE, pitch: float = 300) -> Any:
    return (9000 * np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate)).astype(np.int16)


def make_utterance(
    seconds: float = 0.3, barge_in_s: float | None = None, *, text: str = "hello", lead_s: float = 0.0
) -> Utterance:
    samples = np.concatenate([np.zeros(round(lead_s * RATE), np.int16), make_tone(seconds)])
    return Utterance(Line(text, barge_in_s=barge_in_s), samples, "sha256:x")


class ScriptedChannel:
    """A channel that does something each time the caller has been quiet for a while."""

    capabilities = ChannelCapabilities()
    keys: tuple[str, ...] = ()

    def is_key_in_text(self, text: str) -> bool:
        return any(key in text for key in self.keys)

    def __init__(
        self, act: "Callable[[ScriptedChannel, int], None]", *, uplink: Format = PCM, downlink: Format = PCM
    ) -> None:
        self.uplink, self.downlink = uplink, downlink
        self.act, self.turn, self.spoke, self.quiet = act, 0, False, 0
        self.sent: list[tuple[float, bytes]] = []
        self.events: asyncio.Queue[ReceivedEvents | Exception] = asyncio.Queue()
        self.interruptions: list[float] = []
        self.is_closed = False

    async def send(self, frame: bytes) -> None:
        self.sent.append((clock.monotonic(), frame))
        sounding = audio.level_dbfs(audio.decode(self.uplink.codec, frame)) > -50
        self.quiet = 0 if sounding else self.quiet + 1
        self.spoke = self.spoke or sounding
        if self.spoke and self.quiet == 5:
            self.spoke = False
            self.turn += 1
            self.act(self, self.turn)

    def emit(self, *events: Event) -> None:
        self.events.put_nowait(ReceivedEvents(clock.monotonic(), events))

    def answer(self, seconds: float = 0.2, text: str = "yes", *, done: bool = True) -> None:
        sound = audio.encode(self.downlink.codec, make_tone(seconds, self.downlink.rate))
        ended = [Event("turn_done", "completed")] if done else []
        self.emit(Event("agent_audio", audio=sound), Event("agent_text", text, final=True), *ended)

    async def receive(self) -> ReceivedEvents:
        heard = await self.events.get()
        if isinstance(heard, Exception):
            raise heard
        return heard

    async def interrupt(self, played_s: float) -> None:
        self.interruptions.append(played_s)

    async def close(self) -> None:
        self.is_closed = True


def hold_call(channel: Any, spoken: Sequence[Utterance], patience: Patience = PATIENT) -> FinishedCall:
    async def main() -> FinishedCall:
        async with asyncio.timeout(30):
            return await Conversation(channel, spoken, {"rate": 24000}, patience).hold_call()

    return asyncio.run(main())


def read_events(of: FinishedCall, kind: str | None = None) -> list[dict[str, Any]]:
    every = [json.loads(line) for line in of.log.splitlines()]
    return [each for each in every if kind in (None, each["event"])]


def read_tracks(of: FinishedCall) -> tuple[Any, Any]:
    samples, rate = audio.read_wav(of.recording)
    assert rate == audio.RECORDING_SAMPLE_RATE
    return samples[:, 0], samples[:, 1]


def measure_call_times(of: FinishedCall) -> CallTimes:
    samples, rate = audio.read_wav(of.recording)
    return measure_times(samples, rate, read_events(of))


def check_call(of: FinishedCall, lines: int = 1) -> Any:
    samples, rate = audio.read_wav(of.recording)
    nobody: Any = {"transcribe": None, "transcribable_languages": (), "language": "en"}
    return make_call_check(measure_call(samples, rate, read_events(of), line_count=lines, **nobody))


class ActingChannel(ScriptedChannel):
    """A channel that acts on each frame, given its loudness and the number of quiet frames since."""

    def __init__(self, each: "Callable[[ActingChannel, bool], None]", **formats: Any) -> None:
        super().__init__(lambda *_: None, **formats)
        self.each, self.count = each, 0

    async def send(self, frame: bytes) -> None:
        self.count += 1
        loud = audio.level_dbfs(audio.decode(self.uplink.codec, frame)) > -50
        self.quiet = 0 if loud else self.quiet + 1
        self.spoke = self.spoke or loud
        self.each(self, loud)


def test_frames_go_out_at_the_pace_of_a_microphone_and_silence_follows_speech() -> None:
    channel = ScriptedChannel(lambda it, _: it.answer())
    hold_call(channel, [make_utterance(0.5)])
    times = np.array([at for at, _ in channel.sent])
    late = times - times[0] - np.arange(len(times)) * FRAME_S
    assert len(times) > 40
    assert np.abs(np.median(late)) < 0.01
    assert {len(frame) for _, frame in channel.sent} == {640}
    assert channel.sent[-1][1] == bytes(640)
    assert channel.is_closed


def test_every_agent_is_sent_the_same_samples_in_its_own_format() -> None:
    for uplink in (Format("pcm", 24000), Format("mulaw", 8000)):
        channel = ScriptedChannel(lambda it, _: it.answer(), uplink=uplink)
        hold_call(channel, [make_utterance(0.5)])
        heard = np.concatenate([audio.decode(uplink.codec, frame) for _, frame in channel.sent])
        expected = audio.resample(make_tone(0.5), RATE, uplink.rate)
        start = round(0.2 * uplink.rate)
        close = np.abs(heard[start : start + len(expected)].astype(int) - expected)
        assert close.max() <= (0 if uplink.codec == "pcm" else 512)  # the steps of mu-law at this level


def test_the_recording_has_the_caller_left_and_the_agent_right_on_one_clock() -> None:
    channel = ScriptedChannel(lambda it, _: it.answer(0.2), downlink=Format("pcm", 24000))
    call_ = hold_call(channel, [make_utterance(0.3)])
    left, right = read_tracks(call_)
    (line,) = read_events(call_, "line")
    (sound,) = read_events(call_, "agent_audio")
    assert (line["start"], line["end"]) == (0.2, 0.5)
    assert audio.find_first_audible(left, 24000) == pytest.approx(0.2 * 24000, abs=30)
    assert audio.find_last_audible(left, 24000) == pytest.approx(0.5 * 24000, abs=30)
    assert audio.find_first_audible(right, 24000) == pytest.approx(sound["plays"] * 24000, abs=30)
    assert sound["t"] == pytest.approx(sound["plays"], abs=0.001)
    assert call_.end_reason == "done"
    assert call_.answers == ("yes",)


def test_audio_that_arrives_faster_than_real_time_is_queued() -> None:
    def answer_three_times(it: ScriptedChannel, _: int) -> None:
        for _ in range(2):
            it.answer(0.4, "", done=False)
        it.answer(0.4)

    call_ = hold_call(ScriptedChannel(answer_three_times), [make_utterance()])
    sounds = read_events(call_, "agent_audio")
    assert np.diff([each["plays"] for each in sounds]) == pytest.approx([0.4, 0.4], abs=1e-4)
    assert sounds[2]["t"] - sounds[0]["t"] < 0.1
    (end,) = read_events(call_, "end")
    assert end["t"] >= sounds[0]["plays"] + 1.2  # the caller does not hang up before the answer was played


def test_the_next_line_waits_for_the_end_of_the_answer_and_a_pause() -> None:
    call_ = hold_call(
        ScriptedChannel(lambda it, turn: it.answer(0.5, f"answer {turn}")),
        [make_utterance(), make_utterance(), make_utterance()],
    )
    lines, sounds = read_events(call_, "line"), read_events(call_, "agent_audio")
    for heard, following in zip(sounds, lines[1:], strict=False):
        assert following["start"] >= heard["plays"] + 0.5 + call.PAUSE_BEFORE_LINE_S - 1e-6
    assert call_.answers == ("answer 1", "answer 2", "answer 3")


def test_barge_in_cuts_the_agent_off_and_reports_how_much_was_heard() -> None:
    class InterruptibleChannel(ScriptedChannel):
        async def send(self, frame: bytes) -> None:
            await super().send(frame)
            if self.turn == 1 and self.spoke and not self.interruptions:
                self.emit(Event("user_speech_start"), Event("interrupted"))
                self.emit(Event("turn_done", "cancelled"))

    channel = InterruptibleChannel(lambda it, turn: it.answer(2.0 if turn == 1 else 0.3, f"answer {turn}"))
    call_ = hold_call(channel, [make_utterance(), make_utterance(0.4, barge_in_s=0.5)])
    first, second = read_events(call_, "line")
    sound = read_events(call_, "agent_audio")[0]
    assert second["start"] == pytest.approx(sound["plays"] + 0.5, abs=0.025)
    assert second["barge_in"]
    (cut, *_) = read_events(call_, "interrupted")
    assert cut["t"] - second["start"] < 0.06
    assert cut["dropped_s"] == pytest.approx(2.0 - cut["played_s"], abs=0.005)
    assert channel.interruptions[0] == pytest.approx(cut["played_s"], abs=1e-5)
    _, right = read_tracks(call_)
    silent_after = right[round((cut["t"] + 0.01) * 24000) : round(second["end"] * 24000)]
    assert audio.level_dbfs(silent_after) < -60
    assert call_.answers[-1] == "answer 2"
    assert first["barge_in"] is False


def test_an_agent_that_does_not_yield_answers_the_new_line_only_after_its_old_answer() -> None:
    channel = ScriptedChannel(lambda it, turn: it.answer(1.5 if turn == 1 else 0.3, f"answer {turn}"))
    call_ = hold_call(channel, [make_utterance(), make_utterance(0.2, barge_in_s=0.3)])
    assert call_.answers == ("answer 1", "answer 2")
    sounds = read_events(call_, "agent_audio")
    assert sounds[1]["plays"] == pytest.approx(sounds[0]["plays"] + 1.5, abs=0.02)


def test_no_answer_by_the_deadline_ends_the_call_and_is_recorded() -> None:
    call_ = hold_call(
        ScriptedChannel(lambda *_: None), [make_utterance(), make_utterance()], Patience(answer_within_s=0.5)
    )
    (missing,) = read_events(call_, "no_answer")
    assert missing["line"] == 0
    assert 0.5 < missing["waited_s"] < 0.6
    assert (call_.end_reason, read_events(call_, "end")[0]["reason"]) == ("no_answer", "no_answer")
    assert len(read_events(call_, "line")) == 1


def test_any_amount_of_silence_is_no_answer() -> None:
    def answer_with_silence(it: ScriptedChannel, _: int) -> None:
        it.emit(Event("agent_audio", audio=bytes(16000)), Event("turn_done", "completed"))

    assert (
        hold_call(ScriptedChannel(answer_with_silence), [make_utterance()], Patience(answer_within_s=0.8)).end_reason
        == "no_answer"
    )


@pytest.mark.parametrize(("event", "reason"), [("closed", "closed"), ("error", "error")])
def test_a_broken_call_is_recorded_up_to_the_break(event: Any, reason: str) -> None:
    def break_off(it: ScriptedChannel, _: int) -> None:
        it.answer(0.5, "half an ans", done=False)
        it.emit(Event(event, "gone", error="network"))

    call_ = hold_call(ScriptedChannel(break_off), [make_utterance(), make_utterance()])
    assert call_.end_reason == reason
    assert read_events(call_, event)[0]["text"] == "gone"
    assert read_events(call_, event)[0]["class"] == "network"
    assert audio.find_first_audible(read_tracks(call_)[1], 24000) is not None
    assert call_.answers[0] == "half an ans"


def test_an_error_of_an_agent_leaves_the_call_and_can_be_retried() -> None:
    channel = ScriptedChannel(lambda it, _: it.events.put_nowait(Unavailable("its model is down")))
    with pytest.raises(Unavailable, match="its model is down"):
        hold_call(channel, [make_utterance()])
    assert channel.is_closed


def test_a_call_ends_at_its_own_deadline() -> None:
    call_ = hold_call(
        ScriptedChannel(lambda it, _: it.answer(5.0)), [make_utterance()], Patience(answer_within_s=2, max_call_s=1.5)
    )
    assert call_.end_reason == "deadline"


def test_more_audio_than_a_call_can_play_is_a_broken_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sound, "MAX_BUFFERED_S", 1.0)

    def flood(it: ScriptedChannel, _: int) -> None:
        for _ in range(10):
            it.answer(0.5, done=False)

    call_ = hold_call(ScriptedChannel(flood), [make_utterance()])
    assert call_.end_reason == "error"
    assert "more sound than was played" in read_events(call_, "error")[0]["text"]


def test_a_late_transcript_is_awaited_but_not_forever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "MAX_TRANSCRIPT_WAIT_S", 0.5)

    def answer_with_late_transcript(it: ScriptedChannel, _: int) -> None:
        it.answer(0.2, "", done=True)
        asyncio.get_running_loop().call_later(0.4, it.emit, Event("agent_text", "late words", final=True))

    assert hold_call(ScriptedChannel(answer_with_late_transcript), [make_utterance()]).answers == ("late words",)
    assert hold_call(ScriptedChannel(lambda it, _: it.answer(0.2, "")), [make_utterance()]).answers == ("",)


def test_an_agent_without_turn_end_messages_is_done_after_silence() -> None:
    channel = ScriptedChannel(lambda it, _: it.answer(0.2, done=False))
    channel.capabilities = ChannelCapabilities(answer_end_silence_s=0.4)
    call_ = hold_call(channel, [make_utterance()])
    (end,), (sound,) = read_events(call_, "end"), read_events(call_, "agent_audio")
    assert end["t"] - (sound["plays"] + 0.2) == pytest.approx(0.4, abs=0.06)


def test_a_greeting_is_awaited_before_the_first_line() -> None:
    channel = ScriptedChannel(lambda it, _: it.answer(0.2, "an answer"))
    channel.capabilities = ChannelCapabilities(greets=True)

    async def main() -> FinishedCall:
        asyncio.get_running_loop().call_later(0.3, channel.answer, 0.5, "welcome")
        return await Conversation(channel, [make_utterance()], {"rate": 24000}, Patience(answer_within_s=2)).hold_call()

    call_ = asyncio.run(main())
    greeting = read_events(call_, "agent_audio")[0]
    (line,) = read_events(call_, "line")
    assert line["start"] >= greeting["plays"] + 0.5
    assert call_.answers == ("an answer",)


def test_the_fake_agent_answers_after_exactly_its_delay() -> None:
    async def main() -> FinishedCall:
        agent = FakeVoice(**parse_fake_voice("latency=0.6,leading=0.15,tone"))
        spoken = [make_utterance(0.31), make_utterance(0.222)]
        return await Conversation(await agent.dial(CallSetup("x")), spoken, {"rate": 24000}, Patience()).hold_call()

    call_ = asyncio.run(main())
    left, right = read_tracks(call_)
    for line in read_events(call_, "line"):
        window = slice(round(line["start"] * 24000), round(line["end"] * 24000) + 480)
        ended = audio.find_last_audible(left[window], 24000)
        begins = audio.find_first_audible(right[window.stop :], 24000)
        assert ended is not None
        assert begins is not None
        voice_to_voice = (window.stop + begins - window.start - ended) / 24000
        assert voice_to_voice == pytest.approx(0.75, abs=0.03)


def test_a_backchannel_does_not_replace_the_answer() -> None:
    listening = Utterance(Line("Mm-hmm.", barge_in_s=0.3), make_tone(0.2), "sha256:y")
    channel = ScriptedChannel(lambda it, turn: it.answer(1.5, f"answer {turn}") if turn != 2 else None)
    call_ = hold_call(channel, [make_utterance(), listening, make_utterance()])
    first, second, third = read_events(call_, "line")
    sounds = read_events(call_, "agent_audio")
    assert call_.end_reason == "done"
    assert call_.answers == ("answer 1", "", "answer 3")
    assert second["start"] == pytest.approx(sounds[0]["plays"] + 0.3, abs=0.025)
    assert third["start"] >= sounds[0]["plays"] + 1.5
    assert first["end"] < second["start"]


def test_an_agent_that_floods_or_blocks_ends_its_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "MAX_EVENTS", 200)
    monkeypatch.setattr(call, "SEND_TIMEOUT_S", 0.2)

    def flood(it: ScriptedChannel, _: int) -> None:
        for _ in range(500):
            it.emit(Event("unknown", detail={"name": "x"}))

    call_ = hold_call(ScriptedChannel(flood), [make_utterance()])
    assert call_.end_reason == "error"
    assert "more events or words" in read_events(call_, "error")[0]["text"]

    class StuckChannel(ScriptedChannel):
        async def send(self, frame: bytes) -> None:
            await super().send(frame)
            if len(self.sent) > 20:
                await asyncio.sleep(60)

    stuck = hold_call(StuckChannel(lambda *_: None), [make_utterance()], Patience(max_call_s=60))
    assert (stuck.end_reason, read_events(stuck, "error")[0]["text"]) == (
        "error",
        "the agent accepted no audio for 0.2 s",
    )


# ── What is an answer ──


def test_agent_speech_during_a_line_is_no_answer_to_it() -> None:
    def murmur_then_answer(it: ActingChannel, _: bool) -> None:
        if it.count == 50:
            it.answer(0.3, "Mhm.")
        if it.spoke and it.quiet == 35:
            it.answer(0.5, "We open at nine.")

    call_ = hold_call(ActingChannel(murmur_then_answer), [make_utterance(2.0)])
    assert (call_.end_reason, call_.answers) == ("done", ("We open at nine.",))
    (line,) = measure_call_times(call_).lines
    assert (line.cut_in, line.censored) == (True, False)
    assert line.voice_to_voice_s == pytest.approx(0.7, abs=0.06)


def test_a_murmur_during_a_line_is_no_answer() -> None:
    def murmur(it: ActingChannel, _: bool) -> None:
        if it.count == 30:
            it.answer(0.3, "Mhm.")

    call_ = hold_call(ActingChannel(murmur), [make_utterance(1.0)], Patience(answer_within_s=0.5))
    assert (call_.end_reason, call_.answers) == ("no_answer", ("",))
    (line,) = measure_call_times(call_).lines
    assert (line.cut_in, line.censored, line.voice_to_voice_s) == (True, True, None)
    assert check_call(call_).outcome is Outcome.ERRORED


def test_an_answer_that_starts_during_the_line_and_continues_counts() -> None:
    def cut_in(it: ActingChannel, _: bool) -> None:
        if it.count == 20:
            it.answer(0.1, "Mhm.")
        if it.count == 40:
            it.answer(1.0, "We open at nine.")

    call_ = hold_call(ActingChannel(cut_in), [make_utterance(1.0)])
    assert (call_.end_reason, call_.answers) == ("done", ("We open at nine.",))
    assert measure_call_times(call_).lines[0].cut_in


def test_an_agent_that_streams_silence_without_greeting_is_spoken_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "MAX_GREETING_WAIT_S", 0.5)
    channel = ActingChannel(lambda it, _: it.emit(Event("agent_audio", audio=bytes(640))))
    channel.capabilities = ChannelCapabilities(greets=True)
    call_ = hold_call(channel, [make_utterance()], Patience(answer_within_s=0.5))
    assert call_.end_reason == "no_answer"
    assert read_events(call_, "line")[0]["start"] == pytest.approx(0.52, abs=0.03)


def test_the_channel_determines_how_long_a_greeting_is_awaited() -> None:
    channel = ScriptedChannel(lambda it, _: it.answer())
    channel.capabilities = ChannelCapabilities(greets=True, greeting_timeout_s=0.4)
    assert read_events(hold_call(channel, [make_utterance()]), "line")[0]["start"] == pytest.approx(0.42, abs=0.03)


def test_an_agent_that_streams_silence_is_timed_by_its_audible_speech() -> None:
    speech = make_tone(1.0).tobytes()

    def stream_silence(it: ActingChannel, _: bool) -> None:
        at = it.quiet - 26
        if it.spoke and 0 <= at < 50:
            it.emit(Event("agent_audio", audio=speech[at * 640 : (at + 1) * 640]))
            if at == 49:
                it.emit(Event("agent_text", "hi there", final=True), Event("turn_done"))
        else:
            it.emit(Event("agent_audio", audio=bytes(640)))

    call_ = hold_call(ActingChannel(stream_silence), [make_utterance(0.5, lead_s=0.1)])
    assert (call_.end_reason, call_.answers) == ("done", ("hi there",))
    (line,) = measure_call_times(call_).lines
    assert line.voice_to_voice_s == pytest.approx(0.52, abs=0.06)
    assert line.answer_end_s is not None
    assert line.answer_end_s - (line.first_audible_s or 0) == pytest.approx(1.0, abs=0.05)


def test_a_noisy_telephone_line_is_called_like_any_other() -> None:
    async def main() -> tuple[FinishedCall, list[Any]]:
        script = Script(first_byte_s=0.4, audible_answer_s=0.5, streams_silence=True, hangover_s=0.2)
        async with VoiceLoopback(TwilioAgent, script) as server:
            url = server.url.replace("http", "ws", 1) + "/call"
            provider: Any = providers.load("twilio").open(Target("twilio", "twilio", url), Account(server.url))
            channel = await provider.dial(CallSetup(url))
            channel._wire.capabilities = replace(channel.capabilities, greets=False)
            held_ = await Conversation(
                channel, [make_utterance(), make_utterance()], {"rate": 24000}, PATIENT
            ).hold_call()
            await provider.close()
            return held_, server.logged_answers()

    call_, turns = asyncio.run(main())
    assert call_.end_reason == "done"
    lines = measure_call_times(call_).lines
    for line, turn in zip(lines, turns, strict=True):
        assert turn.speech_end_at is not None
        true = turn.sent_at - (turn.speech_end_at - FRAME_S + turn.speech_end_within_s)
        assert line.voice_to_voice_s == pytest.approx(true, abs=0.06)


def test_a_telephone_agent_may_hang_up_after_its_answer() -> None:
    def answer_and_hang_up(it: ScriptedChannel, _: int) -> None:
        it.answer(0.3, "", done=False)
        asyncio.get_running_loop().call_later(0.5, it.emit, Event("closed", "1000", detail={"code": 1000}))

    polite = ScriptedChannel(answer_and_hang_up)
    polite.capabilities = ChannelCapabilities(answer_end_silence_s=0.8)  # no message ends a turn there
    call_ = hold_call(polite, [make_utterance()])
    assert (call_.end_reason, check_call(call_).outcome) == ("closed", Outcome.PASSED)
    assert check_call(call_, lines=2).outcome is Outcome.ERRORED
    declares = hold_call(
        ScriptedChannel(answer_and_hang_up), [make_utterance()]
    )  # which has a word for the end of an answer, and did not say it
    assert check_call(declares).outcome is Outcome.ERRORED


# ── Talking into an answer ──


class YieldingChannel(ScriptedChannel):
    """Falls silent, and reports it, on barge-in."""

    capabilities = ChannelCapabilities(reports_interruptions=True)
    late: tuple[Event, ...] = ()
    """Comes right behind the interruption."""

    async def send(self, frame: bytes) -> None:
        before = self.spoke
        await super().send(frame)
        if self.turn == 1 and self.spoke and not before:
            self.emit(Event("interrupted"), *self.late)


def test_a_partly_unheard_answer_is_marked() -> None:
    channel = YieldingChannel(
        lambda it, turn: it.answer(8.0 if turn == 1 else 0.3, "Well. It is ninety." if turn == 1 else "Ok")
    )
    call_ = hold_call(channel, [make_utterance(), make_utterance(0.3, barge_in_s=0.5)])
    assert (call_.answers, call_.were_answers_interrupted) == (("Well. It is ninety.", "Ok"), (True, False))
    talks_on = ScriptedChannel(lambda it, turn: it.answer(1.0 if turn == 1 else 0.3, f"answer {turn}"))
    whole = hold_call(talks_on, [make_utterance(), make_utterance(0.2, barge_in_s=0.3)])
    assert (whole.answers, whole.were_answers_interrupted) == (("answer 1", "answer 2"), (False, False))


def test_late_text_belongs_to_the_interrupted_answer() -> None:
    channel = YieldingChannel(lambda it, turn: it.answer(8.0 if turn == 1 else 0.3, "" if turn == 1 else "Fine."))
    channel.late = (Event("agent_text", "Well, let me", final=True), Event("turn_done", "cancelled"))
    call_ = hold_call(channel, [make_utterance(), make_utterance(0.3, barge_in_s=0.5)])
    assert (call_.answers, call_.were_answers_interrupted) == (("Well, let me", "Fine."), (True, False))


def test_a_corrected_transcript_replaces_the_first() -> None:
    whole = "Well, let me see. It is ninety."
    channel = YieldingChannel(lambda it, turn: it.answer(8.0 if turn == 1 else 0.3, whole if turn == 1 else "Fine."))
    channel.late = (Event("agent_text", "Well, let", final=True, detail={"corrects": whole}),)
    call_ = hold_call(channel, [make_utterance(), make_utterance(0.3, barge_in_s=0.5)])
    assert call_.answers == ("Well, let", "Fine.")


def test_an_interruption_without_an_answer_is_ignored() -> None:
    class ClearingChannel(ScriptedChannel):
        async def send(self, frame: bytes) -> None:
            before = self.spoke
            await super().send(frame)
            if self.spoke and not before:
                self.emit(Event("user_speech_start"), Event("interrupted"))

    channel = ClearingChannel(lambda it, turn: it.answer(0.3, f"answer {turn}"))
    call_ = hold_call(channel, [make_utterance(), make_utterance()])
    assert (call_.end_reason, call_.answers, call_.were_answers_interrupted) == (
        "done",
        ("answer 1", "answer 2"),
        (False, False),
    )
    assert (read_events(call_, "interrupted"), channel.interruptions) == ([], [])
    assert [each["detail"]["event"] for each in read_events(call_, "unknown")] == ["interrupted"] * 2


@pytest.mark.parametrize("text", ["Mm-hmm.", "OK."])
def test_backchannels_are_classified_once_and_logged(text: str) -> None:
    channel = ScriptedChannel(lambda it, turn: it.answer(1.2, f"answer {turn}") if turn != 2 else None)
    call_ = hold_call(channel, [make_utterance(), make_utterance(0.2, barge_in_s=0.3, text=text), make_utterance()])
    assert (call_.end_reason, call_.answers) == ("done", ("answer 1", "", "answer 3"))
    assert [line["backchannel"] for line in read_events(call_, "line")] == [False, True, False]
    assert [line.backchannel for line in measure_call_times(call_).lines] == [False, True, False]


def test_an_agent_that_stops_for_a_backchannel_is_not_waited_for_in_vain() -> None:
    channel = YieldingChannel(
        lambda it, turn: it.answer(3.0 if turn == 1 else 0.3, f"answer {turn}") if turn != 2 else None
    )
    channel.capabilities = replace(channel.capabilities, answer_end_silence_s=0.5)
    call_ = hold_call(channel, [make_utterance(), make_utterance(0.2, barge_in_s=0.3, text="mhm"), make_utterance()])
    assert (call_.end_reason, call_.answers, call_.were_answers_interrupted) == (
        "done",
        ("answer 1", "", "answer 3"),
        (True, False, False),
    )
    assert [line.false_interruption for line in measure_call_times(call_).lines] == [None, True, None]


# ── The loudspeaker ──


def test_played_audio_excludes_the_gaps() -> None:
    made = Playout(PCM)
    made.begin_answer()
    for at in (1.0, 2.0, 3.0):
        made.add(make_tone(0.2).tobytes(), at)
    assert made.measure_played_answer_s(3.1) == pytest.approx(0.5)
    assert made.drop_unplayed(3.1) == pytest.approx(0.1)
    assert made.end == pytest.approx(3.1)
    made.begin_answer()
    made.add(make_tone(0.2).tobytes(), 4.0)
    assert made.measure_played_answer_s(4.1) == pytest.approx(0.1)


def test_the_audible_part_of_the_queue_is_tracked_separately() -> None:
    made = Playout(PCM)
    made.add(bytes(32000), 1.0)
    assert (made.end, made.audible_end) == (2.0, 0.0)
    made.add(np.concatenate([np.zeros(8000, np.int16), make_tone(1.0), np.zeros(16000, np.int16)]).tobytes(), 1.0)
    assert made.end == 4.5
    assert made.audible_end == pytest.approx(3.5, abs=0.002)
    made.add(make_tone(0.5).tobytes(), 1.0)
    made.drop_unplayed(4.2)  # in the silence between
    assert made.end == 4.2
    assert made.audible_end == pytest.approx(3.5, abs=0.002)
    made.drop_unplayed(3.0)
    assert made.audible_end == 3.0
    made.drop_unplayed(2.4)
    assert made.audible_end == 0.0


# ── The microphone ──


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 22050, 24000, 44100])
def test_no_sample_is_lost_at_any_rate(rate: int) -> None:
    microphone = Microphone(Format("pcm", rate), [make_utterance(2.0)])
    quiet = [len(microphone.next_frame()) for _ in range(7)]
    until = microphone.begin_line(0)
    sent = b""
    while microphone.is_speaking:
        sent += microphone.next_frame()
    assert until == pytest.approx(0.14 + 2.0, abs=0.002)
    assert sum(quiet) // 2 == 7 * rate // 50
    samples = np.frombuffer(sent, "<i2")
    assert len(samples) / rate == pytest.approx(2.0, abs=1 / rate)
    expected = audio.resample(make_tone(2.0), RATE, rate)
    length = min(len(samples), len(expected))
    assert np.array_equal(samples[:length], expected[:length])


def test_a_prompt_as_long_as_a_call_does_not_end_it() -> None:
    channel = ScriptedChannel(lambda it, _: it.answer(0.2))
    assert hold_call(channel, [make_utterance(1.0)], Patience(answer_within_s=2, max_call_s=1.0)).end_reason == "done"


def test_lines_are_analysed_and_resampled_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_loop: list[int] = []

    def watch(name: str) -> None:
        real = getattr(audio, name)

        def record_thread(samples: Any, *more: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                on_the_loop.append(len(samples))
            return real(samples, *more)

        monkeypatch.setattr(audio, name, record_thread)

    channel = ScriptedChannel(lambda it, _: it.answer(), uplink=Format("pcm", 24000))
    for name in ("resample", "find_last_audible", "find_first_audible"):
        watch(name)
    hold_call(channel, [make_utterance(2.0)])
    assert on_the_loop  # what arrives is looked at, a little at a time
    assert max(on_the_loop) < 0.3 * RATE


# ── The pace ──


def test_delayed_frames_are_sent_a_few_at_a_time_not_in_one_burst() -> None:
    pace, now, times = FramePacer(), 0.0, []
    for frame in range(60):
        now = max(now, pace.find_send_time_s(frame))
        if frame == 10:
            now += 0.3  # the machine did something else
        pace.record_sent(frame, now)
        times.append(now)
    spread = np.array(times[MAX_BURST_FRAMES:]) - np.array(times[:-MAX_BURST_FRAMES])
    assert spread.min() == pytest.approx(CATCH_UP_INTERVAL_S)
    assert times[-1] == pytest.approx(60 * FRAME_S)  # lateness does not add up
    told = pace.to_log()
    assert told["late_most_s"] == pytest.approx(0.3)
    assert told["longest_gap_s"] == pytest.approx(0.32)
    ((start, end, late),) = told["stalls"]
    assert (start, late) == (pytest.approx(0.22), pytest.approx(0.3))
    assert 0.5 < end < 0.64
    assert told["late_p95_s"] <= 0.3


def test_times_measured_on_a_delayed_machine_are_marked_unreliable() -> None:
    async def main(*, stalls: bool) -> FinishedCall:
        channel = await FakeVoice(**parse_fake_voice("latency=0.5,tone")).dial(CallSetup("x"))
        if stalls:
            asyncio.get_running_loop().call_later(1.0, clock.sleep, 0.3)
        return await Conversation(channel, [make_utterance(0.5)], {"rate": 24000}, PATIENT).hold_call()

    late = asyncio.run(main(stalls=True))
    (line,) = measure_call_times(late).lines
    assert line.reliable is False
    assert line.late_s > 0.2
    pace = measure_call_times(late).pace
    assert pace is not None
    assert pace.late_most_s >= line.late_s > MAX_FRAME_LATENESS_S
    assert "unreliable: this machine was up to" in check_call(late).reason
    assert check_call(late).evidence["times"]["pace"]["frames"] > 50
    calm = asyncio.run(main(stalls=False))
    (line,) = measure_call_times(calm).lines
    assert line.reliable is (line.late_s <= MAX_FRAME_LATENESS_S)
    assert [each["event"] for each in read_events(calm)[-2:]] == ["pace", "end"]


def test_an_unserialisable_event_does_not_end_the_call() -> None:
    def emit_unserialisable(it: ScriptedChannel, _: int) -> None:
        it.emit(Event("unknown", detail={"half": "\ud800", "huge": 10**400, "\ud800": [object()]}))
        it.answer(0.2, "y\ud800s")

    call_ = hold_call(ScriptedChannel(emit_unserialisable), [make_utterance()])
    assert call_.end_reason == "done"
    detail = read_events(call_, "unknown")[0]["detail"]
    assert (detail["half"], detail["huge"]) == ("?", str(10**400))
    assert read_events(call_, "agent_text")[0]["text"] == "y?s"


# ── What a hostile agent says ──


def test_a_single_oversized_audio_piece_is_refused_before_it_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sound, "MAX_BUFFERED_S", 1.0)
    made = Playout(PCM)
    with pytest.raises(BrokenReply, match="1 s more sound than was played"):
        made.add(make_tone(1.1).tobytes(), 0.0)
    assert made.end == 0.0
    made.add(make_tone(0.9).tobytes(), 0.0)


def test_surrogate_halves_in_two_pieces_are_joined() -> None:
    def emit_halves(it: ScriptedChannel, _: int) -> None:
        it.answer(0.2, "", done=False)
        it.emit(*(Event("agent_text", piece) for piece in ("At nine ", "\ud83d", "\ude00")), Event("turn_done"))

    call_ = hold_call(ScriptedChannel(emit_halves), [make_utterance()])
    assert (call_.end_reason, call_.answers) == ("done", ("At nine \U0001f600",))
    assert [each["text"] for each in read_events(call_, "agent_text")[1:]] == ["At nine ", "?", "?"]
    alone = hold_call(ScriptedChannel(lambda it, _: it.answer(0.2, "At \ud800 nine")), [make_utterance()])
    assert alone.answers == ("At \ufffd nine",)
    assert alone.answers[0].encode()


KEY = "sk-secret-ABCDEFGHIJKLMNOP0123456789"


@pytest.mark.parametrize(
    "pieces",
    [
        [Event("agent_text", "It is "), Event("agent_text", KEY[:20]), Event("agent_text", KEY[20:])],
        [Event("agent_text", KEY[:20], final=True), Event("agent_text", KEY[20:], final=True)],
        [Event("user_text", KEY[:20]), Event("agent_text", "well"), Event("user_text", KEY[20:], final=True)],
        [Event("unknown", detail={"event": "delta", "text": each}) for each in (KEY[:9], KEY[9:])],
    ],
)
def test_a_call_with_a_key_spoken_in_pieces_is_not_stored(pieces: list[Event]) -> None:
    def emit_pieces(it: ScriptedChannel, _: int) -> None:
        it.emit(*pieces)
        it.answer(0.2, "yes")

    channel = ScriptedChannel(emit_pieces)
    channel.keys = (KEY,)
    with pytest.raises(ApiKeyInReply, match="the call is not stored") as caught:
        hold_call(channel, [make_utterance()])
    assert KEY[:20] not in str(caught.value)
    assert not caught.value.transient
    assert channel.is_closed


def test_event_details_count_towards_the_text_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call, "MAX_TEXT", 10_000)

    def emit_long_details(it: ScriptedChannel, _: int) -> None:
        for _ in range(5):
            it.emit(Event("user_speech_stop", detail={"item_id": "x" * 4000}))

    call_ = hold_call(ScriptedChannel(emit_long_details), [make_utterance()])
    assert call_.end_reason == "error"
    assert len(read_events(call_, "user_speech_stop")) == 2
