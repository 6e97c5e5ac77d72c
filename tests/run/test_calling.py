"""Spoken requests: the history an agent gets, the result of the call, and its transcription."""

import asyncio
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pramana import audio, clock
from pramana.embedded import ears
from pramana.embedded.engines import EngineInfo
from pramana.errors import ApiKeyInReply, AuthenticationFailed, ProviderError, RateLimited, Rejected, Unavailable
from pramana.model import Line, RecordedCall, Reply, Request, Speech, Target, Turn, Usage, Utterance
from pramana.providers.voice.cascade import Cascade
from pramana.providers.voice.embedded import EmbeddedRecognition, EmbeddedSynthesis
from pramana.providers.voice.fake import FakeVoice, parse_fake_voice
from pramana.providers.voice.vocabulary import (
    CallSetup,
    Channel,
    ChannelCapabilities,
    Event,
    Format,
    ReceivedEvents,
    VoiceCapabilities,
)
from pramana.run import asking, call
from pramana.run.asking import Budget, RecognitionAdapter, RecognitionClient, TargetClient
from pramana.run.call import FinishedCall, Patience
from pramana.run.calling import (
    CUT_OFF_ANSWER_REASON,
    UNCERTAIN_GREETING_WAIT_S,
    CallProvider,
    UntranscribedReply,
    VoiceClient,
)
from pramana.run.engine import Stop
from pramana.run.limiter import Limiter

from ..virtual_time import virtual_time

pytestmark = pytest.mark.usefixtures("virtual_time")
TONE = (9000 * np.sin(np.arange(4800) / 9)).astype(np.int16)
BEFORE = (Turn("system", "Be brief."), Turn("user", "Hello."), Turn("assistant", "Good day."))


class Agent:
    """The fake agent, which records its dials."""

    def __init__(self, written: str, *, takes_history: bool = False, refuses: Exception | None = None) -> None:
        self.agent, self.refuses = FakeVoice(**parse_fake_voice(written)), refuses
        self.capabilities = VoiceCapabilities(takes_history=takes_history)
        self.dials: list[CallSetup] = []

    async def dial(self, dial: CallSetup) -> Channel:
        self.dials.append(dial)
        if self.refuses:
            raise self.refuses
        return await self.agent.dial(dial)

    async def models(self) -> list[str]:
        return await self.agent.models()

    async def close(self) -> None:
        await self.agent.close()


class FakeRecognition:
    """Returns the audible seconds of each clip as its transcript."""

    def __init__(self, *languages: str, fails: Exception | None = None, times: int = 10**6) -> None:
        self.languages, self.fails, self.times = languages, fails, times
        self.clips: list[float] = []
        self.asked = 0

    def supports_language(self, language: str) -> bool:
        return language in self.languages

    async def transcribe(self, samples: Any, language: str) -> str:
        assert self.supports_language(language)
        self.asked += 1
        if self.fails and self.asked <= self.times:
            raise self.fails
        first, last = audio.find_first_audible(samples, 16000), audio.find_last_audible(samples, 16000)
        assert first is not None
        assert last is not None
        self.clips.append((last - first) / 16000)
        return f"clip {len(self.clips)}"


def make_utterances(*lines: Line) -> tuple[Utterance, ...]:
    return tuple(Utterance(line, TONE, f"sha256:{place}") for place, line in enumerate(lines))


@dataclass
class SpokenRequest:
    """One request, and what came of it."""

    agent: Agent
    lines: tuple[Line, ...] = (Line("hello"),)
    language: str = "en"
    scribe: FakeRecognition = field(default_factory=lambda: FakeRecognition("en"))
    blobs: dict[str, bytes] = field(default_factory=dict)
    failure: Exception | None = None
    stored: int = 0
    """Stored blobs, before the transcription."""
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
        calls = CallProvider(self.agent, "fake-voice", self.keep, self.scribe, Patience(answer_within_s=1))
        speech = Speech(make_utterances(*self.lines), self.language, "voice+phone")
        try:
            held = await calls.ask(Request("words", BEFORE, {"temperature": 0}, speech=speech))
            self.stored = len(self.blobs)
            self._reply = await calls.transcribe_reply(held)
        except ProviderError as error:
            self.failure = error


@pytest.fixture(scope="module")
def spoken_requests() -> dict[str, SpokenRequest]:
    """Hold the calls that many tests look at, at once."""
    hello, later = Line("hello"), Line("and then?")
    found = {
        "plain": SpokenRequest(Agent("fixed=Yes.")),
        "takes history": SpokenRequest(Agent("fixed=Yes.", takes_history=True)),
        "wordless": SpokenRequest(Agent("tone"), (hello, later)),
        "talked into": SpokenRequest(Agent("tone"), (hello, Line("stop", barge_in_s=0.4))),
        "listened to": SpokenRequest(Agent("tone"), (hello, Line("Uh-huh.", barge_in_s=0.4))),
        "German": SpokenRequest(Agent("tone"), language="de"),
        "deaf": SpokenRequest(
            Agent("tone"), (hello, later), scribe=FakeRecognition("en", fails=RateLimited("429 from --stt"))
        ),
        "broken ears": SpokenRequest(Agent("tone"), scribe=FakeRecognition("en", fails=ZeroDivisionError("oops"))),
        "silent": SpokenRequest(Agent("silent=1,tone")),
        "refused": SpokenRequest(Agent("tone", refuses=AuthenticationFailed("wrong key"))),
    }

    async def ask() -> None:
        async with asyncio.timeout(30):
            await asyncio.gather(*(each.ask() for each in found.values()))

    with pytest.MonkeyPatch.context() as patch, virtual_time():
        patch.setattr(call, "MAX_TRANSCRIPT_WAIT_S", 0.1)  # do not wait for text that will not come
        asyncio.run(ask())
    return found


def test_the_history_is_part_of_the_system_prompt(spoken_requests: dict[str, SpokenRequest]) -> None:
    (dial,) = spoken_requests["plain"].agent.dials
    assert dial.history == ()
    assert dial.system_prompt == "Be brief.\n\nWhat was said until now:\nThe user: Hello.\nYou: Good day."
    assert (dial.model, dial.language, dial.parameters) == ("words", "en", {"temperature": 0})


def test_agents_that_accept_history_get_it_as_turns(spoken_requests: dict[str, SpokenRequest]) -> None:
    (dial,) = spoken_requests["takes history"].agent.dials
    assert dial.history == BEFORE[1:]
    assert dial.system_prompt == "Be brief."


def test_a_reply_has_text_recording_and_played_audio(spoken_requests: dict[str, SpokenRequest]) -> None:
    plain = spoken_requests["plain"]
    reply, blobs = plain.reply, plain.blobs
    assert (reply.text, reply.answers, reply.finish_reason) == ("Yes.", ("Yes.",), "done")
    assert plain.scribe.clips == []  # transcripts sent by the agent are not replaced
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


def test_each_answer_without_text_is_transcribed_separately(spoken_requests: dict[str, SpokenRequest]) -> None:
    wordless = spoken_requests["wordless"]
    assert wordless.reply.answers == ("clip 1", "clip 2")
    assert wordless.reply.text == "clip 1\nclip 2"
    assert wordless.scribe.clips == pytest.approx([1.0, 1.0], abs=0.01)


def test_an_interrupted_answer_is_transcribed_as_far_as_it_was_heard(spoken_requests: dict[str, SpokenRequest]) -> None:
    into = spoken_requests["talked into"]
    assert into.reply.answers == ("clip 1", "clip 2")
    assert into.scribe.clips == pytest.approx([0.5, 1.0], abs=0.2)


def test_a_backchannel_has_no_answer_to_transcribe(spoken_requests: dict[str, SpokenRequest]) -> None:
    assert spoken_requests["listened to"].reply.answers == ("clip 1", "")
    assert len(spoken_requests["listened to"].scribe.clips) == 1


def test_an_unsupported_language_gives_no_transcript(spoken_requests: dict[str, SpokenRequest]) -> None:
    reply = spoken_requests["German"].reply
    assert (reply.text, reply.answers) == ("", ("",))


def test_silence_is_not_transcribed(spoken_requests: dict[str, SpokenRequest]) -> None:
    silent = spoken_requests["silent"]
    assert (silent.reply.text, silent.reply.finish_reason, silent.scribe.clips) == ("", "no_answer", [])


def test_a_failed_call_is_an_error_without_a_reply(spoken_requests: dict[str, SpokenRequest]) -> None:
    assert isinstance(spoken_requests["refused"].failure, AuthenticationFailed)
    assert spoken_requests["refused"].blobs == {}


# ── Failing speech recognition ──


def test_a_call_records_the_embedded_engines_of_its_agent_and_no_others() -> None:
    smol = EngineInfo("xllamacpp", "1.0", "SmolLM2", "sha256:b179c952…", ("AVX2",), 1)
    whisper = ears.engine_info()

    def record_engines(agent: Agent) -> str | None:
        one = SpokenRequest(agent)
        asyncio.run(one.ask())
        return one.reply.fingerprint

    cascade, other_mind, other_ears = Agent("words"), Agent("words"), Agent("words")
    for agent, hears, thinks in (
        (cascade, EmbeddedRecognition(), smol),
        (other_mind, EmbeddedRecognition(), None),
        (other_ears, FakeRecognition("en"), smol),
    ):
        mind: Any = SimpleNamespace(engine_info=thinks, for_speech=lambda: None)
        agent.capabilities = Cascade(hears, mind, EmbeddedSynthesis()).capabilities
    assert record_engines(cascade) == f"{whisper} | {smol}"
    assert record_engines(other_mind) == str(whisper)
    assert record_engines(other_ears) == str(smol)
    assert record_engines(Agent("words")) is None


def find_events(log: bytes, kind: str) -> list[dict[str, Any]]:
    return [each for each in map(json.loads, log.splitlines()) if each["event"] == kind]


def test_a_failing_recognition_loses_the_transcript_not_the_call(spoken_requests: dict[str, SpokenRequest]) -> None:
    deaf = spoken_requests["deaf"]
    assert (len(deaf.agent.dials), deaf.stored) == (1, 2)  # recording and log, before the transcription
    assert (deaf.reply.text, deaf.reply.answers, deaf.reply.finish_reason) == ("", ("", ""), "done")
    assert deaf.reply.call is not None
    assert type(deaf.reply) is Reply
    log = deaf.blobs[deaf.reply.call.log]
    why = "the answer could not be transcribed: 429 from --stt"
    assert [(each["line"], each["text"]) for each in find_events(log, "not_written_down")] == [(0, why), (1, why)]
    assert json.loads(log.splitlines()[-1])["event"] == "end"
    assert audio.read_wav(deaf.blobs[deaf.reply.call.recording])[1] == 24000
    broken = spoken_requests["broken ears"].reply
    assert broken.call is not None
    (event,) = find_events(spoken_requests["broken ears"].blobs[broken.call.log], "not_written_down")
    assert event["text"] == "the answer could not be transcribed: ZeroDivisionError: oops"


def make_recognition(scribe: FakeRecognition, stop: Stop | None = None) -> RecognitionClient:
    target = Target("stt", "openai", "whisper-1")
    within = TargetClient(
        target, RecognitionAdapter(scribe), Limiter(4), Budget(), lambda *_: None, stop=Stop() if stop is None else stop
    )
    return RecognitionClient(scribe, within)


@pytest.fixture
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "FIRST_RETRY_WAIT_S", 0.001)


@pytest.mark.usefixtures("_short_waits")
def test_speech_recognition_has_its_own_retries_and_limiter() -> None:
    scribe = FakeRecognition("en", fails=RateLimited("slow down"), times=2)
    ears = make_recognition(scribe)
    assert asyncio.run(ears.transcribe(TONE, "en")) == "clip 1"
    assert (scribe.asked, ears.limited_client.retry_count) == (3, 2)
    assert ears.supports_language("en")
    assert not ears.supports_language("de")
    assert any(change.cause == "rate limit" for change in ears.limited_client.limiter.history)


@pytest.mark.usefixtures("_short_waits")
def test_a_wrong_key_for_speech_recognition_ends_the_run_but_not_the_call() -> None:
    stop = Stop()
    ears = make_recognition(FakeRecognition("en", fails=AuthenticationFailed("wrong key")), stop)
    with pytest.raises(AuthenticationFailed):
        asyncio.run(ears.transcribe(TONE, "en"))
    assert (stop.reason, type(stop.error)) == ("wrong key", AuthenticationFailed)


# ── Cut off ──


def make_interrupted_call(cut: tuple[bool, ...]) -> FinishedCall:
    """Return a call with two answers of one second; the transcript of the first is longer than the part that was heard."""
    track = np.zeros((24000 * 5, 2), np.int16)
    for start in (0.5, 3.5):
        track[int(start * 24000) : int((start + 1) * 24000), 1] = 8000
    lines = [
        {"t": 0.4, "event": "line", "line": 0, "text": "one", "start": 0.1, "end": 0.4, "barge_in": False},
        {"t": 3.0, "event": "line", "line": 1, "text": "stop", "start": 2.0, "end": 3.0, "barge_in": True},
        {"t": 5.0, "event": "end", "reason": "done"},
    ]
    log = b"".join(json.dumps(each).encode() + b"\n" for each in lines)
    return FinishedCall(
        recording=audio.write_wav(track, 24000),
        log=log,
        answers=("Ninety euros in all.", "Sorry."),
        were_answers_interrupted=cut,
        end_reason="done",
        usage=Usage(),
    )


def transcribe_call(held: FinishedCall, language: str, scribe: FakeRecognition) -> tuple[Reply, Mapping[str, bytes]]:
    blobs: dict[str, bytes] = {}

    def keep(data: bytes) -> str:
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return digest

    async def go() -> Reply:
        calls = CallProvider(FakeVoice(), "fake-voice", keep, scribe)
        reply = UntranscribedReply(
            "", answers=held.answers, call=RecordedCall("", ""), finished_call=held, language=language
        )
        return await calls.transcribe_reply(await calls._store_call(reply))

    return asyncio.run(go()), blobs


def test_only_the_heard_part_of_an_interrupted_answer_counts() -> None:
    reply, _ = transcribe_call(make_interrupted_call((True, False)), "en", FakeRecognition("en"))
    assert reply.answers == ("clip 1", "Sorry.")
    assert reply.text == "clip 1\nSorry."
    whole, _ = transcribe_call(make_interrupted_call((False, False)), "en", FakeRecognition("en"))
    assert whole.answers == ("Ninety euros in all.", "Sorry.")


def test_if_the_heard_part_is_unknown_it_is_not_asserted() -> None:
    reply, blobs = transcribe_call(make_interrupted_call((True, False)), "de", FakeRecognition("en"))
    assert reply.answers == ("", "Sorry.")
    assert reply.text == "Ninety euros in all.\nSorry."
    assert reply.call is not None
    (event,) = find_events(blobs[reply.call.log], "not_written_down")
    assert (event["line"], event["text"]) == (0, CUT_OFF_ANSWER_REASON)


# ── The agent fails ──


class FailingAgent:
    """An agent that answers with a sound, and then raises."""

    capabilities = VoiceCapabilities()
    keys: tuple[str, ...] = ()

    def __init__(self, error: ProviderError) -> None:
        self.error, self.dialled = error, 0
        self.events: asyncio.Queue[ReceivedEvents] = asyncio.Queue()

    async def dial(self, _dial: CallSetup) -> Any:
        self.dialled += 1
        for event in (Event("ready"), Event("agent_audio", audio=TONE.tobytes())):
            self.events.put_nowait(ReceivedEvents(clock.monotonic(), (event,)))
        return FailingChannel(self)

    async def models(self) -> list[str]:
        return []

    async def close(self) -> None: ...


class FailingChannel:
    uplink = downlink = Format("pcm", 16000)
    capabilities = ChannelCapabilities()

    def __init__(self, agent: FailingAgent) -> None:
        self.agent = agent

    def is_key_in_text(self, text: str) -> bool:
        return any(key in text for key in self.agent.keys)

    async def send(self, _frame: bytes) -> None: ...

    async def receive(self) -> ReceivedEvents:
        if self.agent.events.empty():
            await asyncio.sleep(0.3)
            raise self.agent.error
        return self.agent.events.get_nowait()

    async def interrupt(self, _played_s: float) -> None: ...

    async def close(self) -> None: ...


def call_failing_agent(error: ProviderError, **parameters: Any) -> tuple[Reply, dict[str, bytes], int]:
    agent, blobs = FailingAgent(error), dict[str, bytes]()

    def keep(data: bytes) -> str:
        blobs[str(len(blobs))] = data
        return str(len(blobs) - 1)

    async def go() -> Reply:
        calls = CallProvider(agent, "failing", keep, None, Patience(answer_within_s=1))
        within = TargetClient(Target("a", "failing", "a"), calls, Limiter(1), Budget(), lambda *_: None)
        speech = Speech(make_utterances(Line("hello")), "en", "voice")
        return await VoiceClient(within, calls)(Request("a", (), parameters, speech=speech))

    return asyncio.run(go()), blobs, agent.dialled


@pytest.mark.usefixtures("_short_waits")
@pytest.mark.parametrize(
    ("error", "dials"),
    [(ProviderError("it broke"), 1), (Unavailable("come back later"), asking.MAX_ATTEMPTS_BEFORE_FIRST_REPLY)],
)
def test_a_call_with_a_permanently_failing_agent_is_recorded_up_to_the_failure(
    error: ProviderError, dials: int
) -> None:
    reply, blobs, dialled = call_failing_agent(error)
    assert dialled == dials
    assert (reply.finish_reason, type(reply)) == ("error", Reply)
    assert reply.call is not None
    assert len(blobs) == 2  # of calls that are held again, nothing is kept
    (event,) = find_events(blobs[reply.call.log], "error")
    assert event["text"] == str(error)
    samples, rate = audio.read_wav(blobs[reply.call.recording])
    assert audio.find_first_audible(samples[:, 1], rate) is not None


def test_a_fatal_failure_stays_fatal() -> None:
    with pytest.raises(AuthenticationFailed):
        call_failing_agent(AuthenticationFailed("wrong key"))


# ── Greetings ──


@pytest.mark.parametrize(
    ("given", "greets", "greeting_s"),
    [({}, True, UNCERTAIN_GREETING_WAIT_S), ({"greets": False}, False, None), ({"greets": True}, True, None)],
)
def test_the_caller_can_state_whether_the_agent_greets(
    given: dict[str, Any], greets: bool, greeting_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    class RecordingChannel(call.Conversation):
        def __init__(self, channel: Channel, *rest: Any) -> None:
            seen.append((channel.capabilities.greets, channel.capabilities.greeting_timeout_s))
            super().__init__(channel, *rest)

    class GreetingAgent(Agent):
        async def dial(self, dial: CallSetup) -> Channel:
            channel = await super().dial(dial)
            vars(channel)["capabilities"] = ChannelCapabilities(greets=True)
            return channel

    async def go() -> None:
        agent = GreetingAgent("fixed=Yes.")
        calls = CallProvider(agent, "fake-voice", lambda _: "", None, Patience(answer_within_s=1, max_call_s=0.2))
        await calls.ask(Request("words", (), given, speech=Speech(make_utterances(Line("hello")))))
        assert agent.dials[0].parameters == {}  # it concerns the call and is not sent to the agent

    monkeypatch.setattr("pramana.run.calling.Conversation", RecordingChannel)
    asyncio.run(go())
    assert seen == [(greets, greeting_s)]


def test_an_invalid_greeting_option_is_refused() -> None:
    with pytest.raises(Rejected, match="must be true or false, found 'maybe'"):
        call_failing_agent(ProviderError("x"), greets="maybe")


# ── Keys, and who never answers ──

KEY = "sk-secret-ABCDEFGHIJKLMNOP0123456789"


class KeyLeakingAgent(FailingAgent):
    """An agent that says its own key in two pieces, and may then fail."""

    keys = (KEY,)

    async def dial(self, dial: CallSetup) -> Any:
        channel = await super().dial(dial)
        said = (Event("agent_text", KEY[:20]), Event("agent_text", KEY[20:]), Event("turn_done"))
        self.events.put_nowait(ReceivedEvents(clock.monotonic(), said))
        return channel


@pytest.mark.parametrize("error", [ProviderError("it broke"), Unavailable("come back later")])
def test_nothing_of_a_call_with_a_key_is_stored_even_if_the_agent_fails(error: ProviderError) -> None:
    agent, kept = KeyLeakingAgent(error), list[bytes]()

    def keep(data: bytes) -> str:
        kept.append(data)
        return "x"

    async def go() -> None:
        calls = CallProvider(agent, "failing", keep, None, Patience(answer_within_s=1))
        within = TargetClient(Target("a", "failing", "a"), calls, Limiter(1), Budget(), lambda *_: None)
        try:
            await VoiceClient(within, calls)(
                Request("a", (), {}, speech=Speech(make_utterances(Line("hello")), "en", "voice"))
            )
        finally:
            assert not calls._failed_calls

    with pytest.raises(ApiKeyInReply) as caught:
        asyncio.run(go())
    assert (caught.value.code, caught.value.fatal) == ("key_in_answer", False)
    assert (kept, agent.dialled) == ([], 1)


def make_silent_error() -> Unavailable:
    """Return what is raised where an agent takes the connection and says nothing."""
    error = Unavailable("Desk (desk.example) was not ready for the call within 30 s")
    error.__cause__ = TimeoutError()
    return error


@pytest.mark.usefixtures("_short_waits")
def test_an_agent_that_never_became_ready_is_not_retried() -> None:
    agent = Agent("tone", refuses=make_silent_error())

    async def go(calls: CallProvider) -> None:
        within = TargetClient(Target("a", "a", "a"), calls, Limiter(1), Budget(), lambda *_: None)
        await VoiceClient(within, calls)(
            Request("a", (), {}, speech=Speech(make_utterances(Line("hello")), "en", "voice"))
        )

    calls = CallProvider(agent, "a", lambda _: "", None)
    with pytest.raises(Unavailable, match="within 30 s") as caught:
        asyncio.run(go(calls))
    assert (len(agent.dials), caught.value.fatal) == (1, True)
    # One that has been ready for another call may have no place for one more: it is called again.
    agent.refuses = make_silent_error()
    calls.agent_was_ready.set()
    with pytest.raises(Unavailable) as again:
        asyncio.run(go(calls))
    assert (len(agent.dials), again.value.fatal) == (1 + asking.MAX_ATTEMPTS_BEFORE_FIRST_REPLY, False)
    # A message of a server in trouble is not silence.
    agent.refuses = Unavailable("busy")
    with pytest.raises(Unavailable):
        asyncio.run(go(CallProvider(agent, "a", lambda _: "", None)))
    assert len(agent.dials) == 1 + 2 * asking.MAX_ATTEMPTS_BEFORE_FIRST_REPLY


def test_an_agent_that_was_ready_once_counts_as_reached() -> None:
    async def go() -> bool:
        calls = CallProvider(Agent("fixed=Yes."), "a", lambda _: "", None, Patience(max_call_s=0.1))
        assert not calls.agent_was_ready.is_set()
        await calls.ask(Request("words", (), {}, speech=Speech(make_utterances(Line("hello")))))
        return calls.agent_was_ready.is_set()

    assert asyncio.run(go())
