"""A voice agent of three parts: recognition, model and voice, how it yields to the caller, and how its parts fail."""

import asyncio
import json
import threading
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from pramana import audio
from pramana.embedded.voice import speak
from pramana.errors import InvalidInput, ProviderError, RateLimited, Unavailable
from pramana.model import Line, Turn, Utterance
from pramana.providers.accounts import Account
from pramana.providers.names import resolve_target
from pramana.providers.text.fake import FakeProvider, parse_fake
from pramana.providers.voice import embedded
from pramana.providers.voice.cascade import (
    SPOKEN_STYLE_PROMPT,
    Cascade,
    CascadeChannel,
    RecognitionByLanguage,
    make_embedded_cascade,
)
from pramana.providers.voice.embedded import EmbeddedRecognition, EmbeddedSynthesis, ProcessSlots, Slot
from pramana.providers.voice.vocabulary import CallSetup
from pramana.run.call import Conversation, FinishedCall, Patience

from ...loopback.openai import OpenAIWire
from ...loopback.server import Fault, Loopback, ReplyFunction
from ...loopback.speech import SpeechLoopback
from ...virtual_time import real_time, virtual_time

pytestmark = pytest.mark.usefixtures("virtual_time")
ASKED = "When do you open?"
LONG = "It takes a while to tell when all of us open."
HISTORY = (Turn("user", "Hello."), Turn("assistant", "Good day."))


class FailingModel(FakeProvider):
    """A model with a defect."""

    async def ask(self, request: Any) -> Any:
        raise ZeroDivisionError(request.model)


class SlowModel(FakeProvider):
    """A slow model that records its requests."""

    def __init__(self) -> None:
        super().__init__(**parse_fake("latency=1,fixed=It is so."))
        self.asked: list[list[str]] = []

    async def ask(self, request: Any) -> Any:
        self.asked.append([turn.text for turn in request.turns])
        return await super().ask(request)


def speak_line(text: str = ASKED, barge_in_s: float | None = None) -> Utterance:
    return Utterance(Line(text, barge_in_s=barge_in_s), speak(text, "en"), "sha256:x")


def speak_with_pause(text: str, pause_s: float, more: str) -> Utterance:
    silence = np.zeros(round(16000 * pause_s), np.int16)
    samples = np.concatenate([speak(text, "en"), silence, speak(more, "en")])
    return Utterance(Line(f"{text} {more}"), samples, "sha256:x")


@dataclass
class Scenario:
    """The lines of a call, and its result."""

    spoken: Sequence[Utterance] = field(default_factory=lambda: [speak_line()])
    says: str | ReplyFunction = "It is so."
    heard: str = ASKED
    status: int | None = None
    faults: dict[int, Fault] = field(default_factory=dict)
    mind: FakeProvider | None = None
    failed: list[Exception] = field(default_factory=list)
    requests: list[Any] = field(default_factory=list)
    asked: list[Any] = field(default_factory=list)
    _held: FinishedCall | None = None

    @property
    def finished_call(self) -> FinishedCall:
        assert self._held is not None, self.failed
        return self._held

    async def play(self) -> None:
        """Serve a model, ears and a mouth, and call the agent made of them, as often as it raises, twice at most."""
        async with AsyncExitStack() as stack:
            chat = await stack.enter_async_context(Loopback(OpenAIWire(self.says), script=self.faults))
            sound = await stack.enter_async_context(SpeechLoopback(self.heard, status=self.status))
            parts = f"cascade:stt={sound.url}#ears,chat={chat.url}#mind,tts={sound.url}#mouth"
            opened = Cascade.open(resolve_target(parts), Account(sound.url))
            stack.push_async_callback(opened.close)
            agent = Cascade(
                opened.recognition, self.mind or opened.text_model, opened.synthesis, turn_end_silence_s=0.3
            )
            self.requests, self.asked = chat.requests, sound.asked
            for _ in range(2):
                channel = await agent.dial(CallSetup("x", "Be kind.", parameters={"temperature": 0}, history=HISTORY))
                call = Conversation(channel, self.spoken, {"rate": 24000}, Patience(answer_within_s=4))
                try:
                    self._held = await call.hold_call()
                except ProviderError as error:
                    self.failed.append(error)
                else:
                    return


@pytest.fixture(scope="module")
def scenes() -> dict[str, Scenario]:
    """Hold every call of this file, at once, for many tests each."""
    found = {
        "two lines": Scenario([speak_line(), speak_line("And close?")]),
        "talked into": Scenario(  # in one breath: where there is a pause, it is talked into twice
            [speak_line(), speak_line("Stop that right now.", barge_in_s=0.6)],
            lambda turns: LONG if len(turns) < 5 else "So.",
        ),
        "paused": Scenario([speak_with_pause(ASKED, 0.6, "And close?")], mind=SlowModel()),
        "a noise": Scenario(heard=" "),
        "nothing that can be spoken": Scenario(says=""),
        "rate limited": Scenario(faults={0: Fault("rate_limited")}),
        "deaf": Scenario(status=500),
        "broken": Scenario(mind=FailingModel(**parse_fake("echo"))),
    }

    async def play() -> None:
        async with asyncio.timeout(30):
            await asyncio.gather(*(each.play() for each in found.values()))

    with virtual_time():
        asyncio.run(play())
    return found


def find_events(of: FinishedCall, kind: str) -> list[dict[str, Any]]:
    return [each for each in map(json.loads, of.log.splitlines()) if each["event"] == kind]


# ── Ears ──


class LanguageRecognition:
    """Speech recognition with a list of languages."""

    def __init__(self, name: str, *languages: str) -> None:
        self.name, self.languages = name, languages

    def supports_language(self, language: str) -> bool:
        return language in self.languages

    async def transcribe(self, _samples: Any, language: str) -> str:
        return f"{self.name} {language}"


def test_the_first_recognition_that_supports_the_language_is_used() -> None:
    ears = RecognitionByLanguage(LanguageRecognition("first", "de"), LanguageRecognition("second", "de", "en"))
    heard = [asyncio.run(ears.transcribe(np.zeros(1, np.int16), each)) for each in ("de", "en")]
    assert heard == ["first de", "second en"]
    assert [ears.supports_language(each) for each in ("de", "en", "fr")] == [True, True, False]
    with pytest.raises(InvalidInput, match="no STT for fr"):
        asyncio.run(ears.transcribe(np.zeros(1, np.int16), "fr"))


@pytest.mark.parametrize(("language", "covered"), [("en", True), ("en-GB", True), ("EN", True), ("de", False)])
def test_the_embedded_recognition_supports_english_only(language: str, covered: bool) -> None:
    assert EmbeddedRecognition().supports_language(language) is covered
    assert make_embedded_cascade(FakeProvider()).capabilities.supports_language(language) is covered


# ── A conversation ──


def test_the_model_gets_the_history_and_the_transcript(scenes: dict[str, Scenario]) -> None:
    scene = scenes["two lines"]
    assert scene.finished_call.answers == ("It is so.", "It is so.")
    first, second = (each.body for each in scene.requests)
    assert (first["model"], first["temperature"]) == ("mind", 0)
    assert [(each["role"], each["content"]) for each in first["messages"]] == [
        ("system", f"Be kind.\n\n{SPOKEN_STYLE_PROMPT}"),
        ("user", "Hello."),
        ("assistant", "Good day."),
        ("user", ASKED),
    ]
    assert [each["content"] for each in second["messages"][-3:]] == [ASKED, "It is so.", ASKED]
    heard, _ = audio.read_wav(scene.asked[0][2]["file"][2])
    whole = len(speak_line().samples)
    assert whole * 0.9 < len(heard) < whole + 16000  # all of the line, with the silence that ended it


def test_barge_in_stops_the_answer_and_the_new_line_is_answered(scenes: dict[str, Scenario]) -> None:
    call = scenes["talked into"].finished_call
    (cut,) = find_events(call, "interrupted")
    _, second = find_events(call, "line")
    assert second["start"] < cut["t"] < second["end"]
    assert cut["dropped_s"] > 0.5
    assert call.answers[1] == "So."
    samples, rate = audio.read_wav(call.recording)
    quiet = samples[round((cut["t"] + 0.05) * rate) : round(second["end"] * rate), 1]
    assert audio.level_dbfs(quiet) < -60


def test_a_line_continued_before_the_answer_is_answered_once_as_a_whole(scenes: dict[str, Scenario]) -> None:
    scene, (line,) = scenes["paused"], scenes["paused"].spoken
    assert scene.finished_call.answers == ("It is so.",)
    assert [each["text"] for each in find_events(scene.finished_call, "agent_text")] == ["It is so."]
    assert len([each for each in find_events(scene.finished_call, "user_text") if each["final"]]) == 1
    first, second = (audio.read_wav(fields["file"][2])[0] for path, _, fields in scene.asked if "file" in fields)
    assert len(first) < len(line.samples) / 2 + 16000
    assert len(second) > len(line.samples) * 0.85  # the whole line, except the middle of the pause
    assert isinstance(scene.mind, SlowModel)
    assert scene.mind.asked[-1][1:] == ["Hello.", "Good day.", ASKED]  # the question that was dropped left no trace
    assert not find_events(scene.finished_call, "interrupted")


def test_noise_is_not_answered(scenes: dict[str, Scenario]) -> None:
    scene = scenes["a noise"]
    assert (scene.finished_call.end_reason, scene.requests) == ("no_answer", [])
    assert [each["text"] for each in find_events(scene.finished_call, "user_text")] == [""]


def test_an_empty_reply_is_waited_for_no_longer_than_any_other(scenes: dict[str, Scenario]) -> None:
    call = scenes["nothing that can be spoken"].finished_call
    assert call.end_reason == "no_answer"
    assert [each["text"] for each in find_events(call, "turn_done")] == ["empty"]


# ── Failures ──


def test_an_error_of_the_model_leaves_the_call_and_can_be_retried(scenes: dict[str, Scenario]) -> None:
    scene = scenes["rate limited"]
    assert [type(each) for each in scene.failed] == [RateLimited]
    assert (scene.finished_call.answers, scene.finished_call.end_reason, len(scene.requests)) == (
        ("It is so.",),
        "done",
        2,
    )


def test_an_error_of_the_recognition_leaves_the_call(scenes: dict[str, Scenario]) -> None:
    assert [type(each) for each in scenes["deaf"].failed] == [Unavailable] * 2
    assert scenes["deaf"].requests == []


def test_a_defect_in_a_part_is_reported_as_such(scenes: dict[str, Scenario]) -> None:
    assert [str(each) for each in scenes["broken"].failed] == ["the agent failed: ZeroDivisionError: x"] * 2


def test_an_unspeakable_answer_is_an_error_of_the_agent() -> None:
    with pytest.raises(ProviderError, match=r"the agent's voice cannot speak the answer: .*a symbol"):
        asyncio.run(EmbeddedSynthesis().synthesise("🙂", "en", lambda _: None))


def test_a_too_long_turn_is_an_error_and_never_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pramana.providers.voice.cascade.MAX_TURN_S", 0.8)
    scene = Scenario([speak_line("I would like to know when all of you open tomorrow.")])
    asyncio.run(scene.play())
    assert [str(each) for each in scene.failed] == ["the caller spoke for more than 0.8 s without a pause"] * 2
    assert scene.requests == []


# ── One machine ──


def test_measurements_use_their_own_recognition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pramana.embedded.ears.WhisperModel.open", object)
    embedded._load_whisper.cache_clear()
    try:
        assert embedded._load_whisper("agent") is embedded._load_whisper("agent")
        assert embedded._load_whisper("agent") is not embedded._load_whisper("bench")
    finally:
        embedded._load_whisper.cache_clear()


def test_an_agent_of_embedded_parts_is_marked_as_embedded() -> None:
    assert make_embedded_cascade(FakeProvider()).capabilities.is_embedded
    parts = "cascade:stt=a,chat=b,tts=c"
    assert not Cascade.open(resolve_target(parts), Account("http://127.0.0.1:1")).capabilities.is_embedded


class Worker:
    """Tasks that need a slot, in the order in which they got one."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.most = self.now = 0

    async def work(self, place: Slot, name: str, seconds: float = 0.02) -> None:
        async with place:
            self.began.append(name)
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(seconds)
            self.now -= 1


def test_concurrent_embedded_calls_are_limited_to_the_verified_number() -> None:
    slots, busy = ProcessSlots(8), Worker()

    async def go() -> None:
        places = [slots.call if number % 4 else slots.embedded_call for number in range(24)]
        await asyncio.gather(*(busy.work(place, str(number)) for number, place in enumerate(places)))

    asyncio.run(go())
    assert busy.most == 8
    assert len(busy.began) == 24


def test_embedded_calls_and_other_embedded_work_take_turns() -> None:
    slots, busy = ProcessSlots(), Worker()

    async def go() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(busy.work(slots.embedded_call, f"call {number}"))
            await asyncio.sleep(0)
            for number in range(2):  # while the first call is held
                group.create_task(busy.work(slots.engine_work, f"work {number}"))
            await asyncio.sleep(0.03)  # they go on by now
            assert busy.began == ["call 0", "work 0", "work 1"]
            group.create_task(busy.work(slots.engine_work, "later"))

    asyncio.run(go())
    assert busy.began == ["call 0", "work 0", "work 1", "call 1", "later", "call 2"]
    assert busy.most == 2  # of work, beside each other


def test_a_cancelled_waiter_blocks_no_one_else() -> None:
    slots, busy = ProcessSlots(), Worker()

    async def go() -> None:
        async with slots.engine_work:
            impatient = asyncio.create_task(busy.work(slots.embedded_call, "impatient"))
            await asyncio.sleep(0)
            patient = asyncio.create_task(busy.work(slots.engine_work, "patient"))
            await asyncio.sleep(0)
            assert busy.began == []
            impatient.cancel()
            await patient
        admitted = asyncio.create_task(busy.work(slots.embedded_call, "never"))
        async with slots.engine_work:
            await asyncio.sleep(0)
        admitted.cancel()  # admitted by now, though it does not know it yet
        await asyncio.gather(admitted, impatient, return_exceptions=True)
        await busy.work(slots.embedded_call, "last")

    asyncio.run(asyncio.wait_for(go(), 5))
    assert busy.began == ["patient", "last"]


@real_time()
def test_two_event_loops_of_one_process_share_the_machine() -> None:
    slots, busy = ProcessSlots(), Worker()
    both = [
        threading.Thread(target=lambda name=name: asyncio.run(busy.work(slots.embedded_call, name, 0.1)))
        for name in ("one", "two")
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join(5)
    assert (sorted(busy.began), busy.most) == (["one", "two"], 1)


def test_the_channel_reports_interrupted_on_every_barge_in() -> None:
    async def go() -> list[list[str]]:
        channel = CascadeChannel(make_embedded_cascade(FakeProvider()), CallSetup("x"))
        await channel.receive()  # ready

        async def next_kinds() -> list[str]:
            channel._on_speech_start()
            found: list[str] = [(await channel.receive()).events[0].kind]
            while not channel._events.empty():
                found.append((await channel.receive()).events[0].kind)
            return found

        try:
            before = await next_kinds()  # without any speech
            channel._report_sound(bytes(32))  # a millisecond, over at once: the call knows whether it was heard
            await channel.receive()
            await asyncio.sleep(0.02)
            sent = await next_kinds()
            again = await next_kinds()
            channel._answering = asyncio.create_task(asyncio.sleep(60))
            await asyncio.sleep(0)
            produced = await next_kinds()
            await asyncio.wait([channel._answering])
            assert channel._answering.cancelled()
            return [before, sent, again, produced]
        finally:
            await channel.close()

    start, stops = ["user_speech_start"], ["user_speech_start", "interrupted"]
    assert asyncio.run(go()) == [start, stops, start, stops]


def test_an_interruption_after_the_end_of_an_answer_is_ignored(scenes: dict[str, Scenario]) -> None:
    scene = scenes["two lines"]
    assert not find_events(scene.finished_call, "interrupted")
    ignored = [each["detail"] for each in find_events(scene.finished_call, "unknown")]
    assert [each["event"] for each in ignored] == ["interrupted"]
    assert scene.finished_call.were_answers_interrupted == (False, False)
