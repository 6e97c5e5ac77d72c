"""Gemini's Live API: its own SDK referees server and adapter; then turns, interruptions, faults and broken frames."""

import asyncio
import base64
import json
import typing
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from google import genai
from google.genai import errors, types

from pramana import clock
from pramana.errors import (
    AuthenticationFailed,
    BrokenReply,
    ProviderError,
    RateLimited,
    Rejected,
    Unavailable,
)
from pramana.loopback.script import make_answer_sound
from pramana.loopback.voice import ReceivedRequest, Script, VoiceLoopback
from pramana.model import Line, Target, Utterance
from pramana.providers.accounts import Account
from pramana.providers.voice.live import TOP_LEVEL_PARAMETERS, LiveProvider, LiveWire
from pramana.providers.voice.socket import SocketChannel
from pramana.providers.voice.vocabulary import Dial, Event, Format, Message, ReceivedEvents
from pramana.run.call import Conversation, FinishedCall, Patience

from ...loopback.fuzz import rehearse, survive
from ...loopback.live import MESSAGES, SETUP, LiveAgent, camel
from . import callers
from .callers import QUICK, events, frames, quick, sound, tone, turn

KEY = "AIza-test-0123456789abcdef"
MODEL = "gemini-live-2.5-flash"
DIAL = Dial(MODEL, "Be brief.", "en", {"voice": "Kore", "temperature": 0.3, "max_tokens": 99, "seed": 3})
CONFIG = types.LiveConnectConfig(
    response_modalities=[types.Modality.AUDIO],
    system_instruction="Be brief.",
    temperature=0.3,
    max_output_tokens=99,
    seed=3,
    speech_config=types.SpeechConfig(
        voice_config=types.VoiceConfig(prebuilt_voice_config=types.PrebuiltVoiceConfig(voice_name="Kore"))
    ),
    input_audio_transcription=types.AudioTranscriptionConfig(),
    output_audio_transcription=types.AudioTranscriptionConfig(),
)
MIME = "audio/pcm;rate=16000"
T = typing.TypeVar("T")
# The referee's own business with the HTTP library beneath it.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    pytest.mark.usefixtures("virtual_time"),
]
SPEECH, SILENCE = frames(tone(0.3, 16000), 16000), bytes(640)


def serve(use: Callable[[VoiceLoopback], Awaitable[T]], script: Script = QUICK, agent: Any = LiveAgent) -> T:
    return callers.serve(agent, use, script, KEY)


async def dialled(server: VoiceLoopback, dial: Dial = DIAL, key: str | None = KEY) -> SocketChannel:
    return await LiveProvider(Account(server.url, key, variable="GEMINI_API_KEY")).dial(dial)


def called(script: Script = QUICK, agent: Any = LiveAgent, **given: Any) -> list[ReceivedEvents]:
    async def use(server: VoiceLoopback) -> list[ReceivedEvents]:
        channel = await dialled(server)
        try:
            return await turn(channel, **given)
        finally:
            await channel.close()

    return serve(use, script, agent)


def refused(script: Script = QUICK, agent: Any = LiveAgent, **given: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        serve(lambda server: dialled(server, **given), script, agent)
    assert KEY not in str(caught.value)
    return caught.value


@asynccontextmanager
async def referee(server: VoiceLoopback) -> typing.AsyncIterator[Any]:
    client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=server.url))
    # It speaks TLS only, and a server on this machine has no certificate.
    inner: Any = client._api_client
    inner._websocket_ssl_ctx = {}
    inner._websocket_base_url = lambda *_: server.url.replace("http://", "ws://")
    try:
        async with client.aio.live.connect(model=MODEL, config=CONFIG) as session:
            yield session
    finally:
        await client.aio.aclose()


def normal(message: Message) -> Any:
    """Return a message as protobuf reads it: names in one case, bytes as bytes."""
    found = camel(json.loads(message))
    if blob := found.get("realtimeInput", {}).get("audio"):
        blob["data"] = base64.urlsafe_b64decode(blob["data"].translate(str.maketrans("+/", "-_")))
    return found


# The referee


def test_the_referee_holds_a_conversation_and_knows_every_message() -> None:
    async def use(server: VoiceLoopback) -> tuple[list[types.LiveServerMessage], list[Message]]:
        got: list[types.LiveServerMessage] = []
        async with referee(server) as session:
            assert session.session_id == "session_1"
            for frame in [*SPEECH, *[SILENCE] * 10]:
                await session.send_realtime_input(audio=types.Blob(data=frame, mime_type=MIME))
            got.extend([message async for message in session.receive()])
        return got, server.calls[0].sent

    got, sent = serve(use)
    assert b"".join(message.data or b"" for message in got) == b"".join(make_answer_sound(QUICK, Format("pcm", 24000)))
    contents = [message.server_content for message in got if message.server_content]
    assert "".join(each.output_transcription.text or "" for each in contents if each.output_transcription) == QUICK.text
    assert "".join(each.input_transcription.text or "" for each in contents if each.input_transcription) == QUICK.heard
    assert contents[-1].turn_complete
    assert got[-1].usage_metadata
    assert got[-1].usage_metadata.prompt_token_count == 20
    for message in sent:  # its types forbid what they do not know
        assert isinstance(message, bytes)
        types.LiveServerMessage.model_validate_json(message)


def test_the_referee_can_write_and_is_answered_by_voice() -> None:
    async def use(server: VoiceLoopback) -> bytes:
        async with referee(server) as session:
            await session.send_client_content(turns=types.Content(role="user", parts=[types.Part(text="Hello.")]))
            return b"".join([message.data or b"" async for message in session.receive()])

    assert serve(use) == b"".join(make_answer_sound(QUICK, Format("pcm", 24000)))


def test_our_messages_equal_the_referees() -> None:
    frame = SPEECH[1]

    async def use(server: VoiceLoopback) -> tuple[Any, Any]:
        async with referee(server) as session:
            await session.send_realtime_input(audio=types.Blob(data=frame, mime_type=MIME))
        channel = await dialled(server)
        await channel.send(frame)
        await channel.interrupt(0.1)
        await channel.close()
        await asyncio.sleep(0.05)
        theirs, ours = server.calls
        return theirs, ours

    theirs, ours = serve(use)
    assert [normal(each) for each in ours.received] == [normal(each) for each in theirs.received]
    assert (ours.request.path, dict(ours.request.query)) == (theirs.request.path, dict(theirs.request.query))
    assert dict(ours.request.query) == {}
    assert ours.request.headers["x-goog-api-key"] == theirs.request.headers["x-goog-api-key"] == KEY
    assert (ours.request.headers.get("Authorization"), theirs.request.headers.get("Authorization")) == (None, None)
    assert ours.close_code == theirs.close_code == 1000


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (["{"], "Invalid JSON payload received."),
        (["[" * 100_000], "Invalid JSON payload received."),
        (["[]"], "Request contains an invalid argument."),
        (["{}"], "Request contains an invalid argument."),
        (['{"hello":{}}'], 'Unknown name "hello"'),
        (['{"realtimeInput":{"audioStreamEnd":true}}'], "Request contains an invalid argument."),
        (['{"setup":7}'], "Invalid value at 'setup'"),
        (['{"setup":{"model":"models/m","colour":1}}'], "Unknown name \"colour\" at 'setup'"),
        (['{"setup":{"model":"m"}}'], "Request contains an invalid argument."),
        (['{"setup":{"model":"models/m","generationConfig":{"temperature":"hot"}}}'], "'setup.generationConfig"),
        (
            ['{"setup":{"model":"models/m","generationConfig":{"responseModalities":["TEXT"]}}}'],
            "Cannot extract voices",
        ),
        (['{"setup":{"model":"models/m"}}'] * 2, "Request contains an invalid argument."),
        (
            ['{"setup":{"model":"models/m"}}', '{"realtimeInput":{"audio":{"mimeType":"audio/mp3","data":""}}}'],
            "Unsupported MIME type",
        ),
        (
            ['{"setup":{"model":"models/m"}}', '{"realtimeInput":{"audio":{"mimeType":"audio/pcm","data":"?"}}}'],
            "Base64 decoding failed",
        ),
    ],
)
def test_the_server_ends_the_call_at_a_message_that_does_not_fit(sent: list[str], reason: str) -> None:
    agent = LiveAgent(QUICK, ReceivedRequest("GET", "/", {}, {}, None))
    for message in sent:
        agent.handle_message(message)
    assert agent.close_request
    assert agent.close_request[0] == 1007
    assert reason in agent.close_request[1]


def test_every_field_the_referee_knows_is_known_to_the_server() -> None:
    def names(kind: Any) -> set[str]:
        return set(camel(dict.fromkeys(kind.model_fields)))

    assert names(types.LiveClientMessage) == set(MESSAGES)
    assert names(types.LiveClientRealtimeInput) == set(MESSAGES["realtimeInput"])
    assert names(types.LiveClientContent) == set(MESSAGES["clientContent"])
    assert names(types.AudioTranscriptionConfig) == set(SETUP["inputAudioTranscription"])
    enterprise_only = {"labels"}
    assert names(types.LiveClientSetup) - enterprise_only <= set(SETUP)
    assert set(SETUP) >= TOP_LEVEL_PARAMETERS


# A turn


def test_a_turn_is_heard_and_answered() -> None:
    async def use(server: VoiceLoopback) -> tuple[list[ReceivedEvents], SocketChannel, VoiceLoopback]:
        channel = await dialled(server)
        heard = await turn(channel)
        await channel.close()
        return heard, channel, server

    heard, channel, server = serve(use)
    found = events(heard)
    assert (channel.uplink, channel.downlink, channel.capabilities.greets) == (
        Format("pcm", 16000),
        Format("pcm", 24000),
        False,
    )
    order = [event.kind for event in found if event.kind not in ("agent_audio", "agent_text", "user_text")]
    assert order == ["ready", "usage", "turn_done"]
    assert sound(heard) == b"".join(make_answer_sound(QUICK, Format("pcm", 24000)))
    assert "".join(event.text for event in events(heard, "agent_text") if not event.final) == QUICK.text
    assert [event.text for event in events(heard, "agent_text") if event.final] == [QUICK.text]
    assert "".join(event.text for event in events(heard, "user_text")) == QUICK.heard
    (usage,) = events(heard, "usage")
    assert usage.detail == {
        "input_tokens": 20,
        "output_tokens": 5,
        "input_audio_tokens": 15,
        "output_audio_tokens": 5,
    }
    assert found[-1].text == "completed"
    (logged,) = server.turns()
    assert (logged.call, logged.asked, logged.leading_silence_s) == (0, MODEL, 0.05)


def test_the_servers_log_and_our_clock_agree() -> None:
    async def use(server: VoiceLoopback) -> tuple[float, Any]:
        channel = await dialled(server)
        heard = await turn(channel, pace_s=0.02)
        await channel.close()
        return next(each.at for each in heard if any(event.audio for event in each.events)), server.turns()[0]

    at, logged = serve(use, Script(first_byte_s=0.25, hangover_s=0.1, answer_s=0.1))
    assert 0.25 <= logged.sent_at - logged.speech_end_at < 0.5
    assert 0 <= at - logged.sent_at < 0.1


@pytest.mark.parametrize("transcript", ["late", "missing"])
def test_a_transcript_may_be_late_or_missing(transcript: str) -> None:
    heard = called(quick(transcript=transcript), linger_s=0.3)
    kinds = [event.kind for event in events(heard)]
    told = {event.kind: event.text for event in events(heard, "agent_text", "user_text") if event.final}
    assert "turn_done" in kinds
    if transcript == "missing":
        assert "agent_text" not in kinds
    else:
        assert told == {"agent_text": QUICK.text}
        assert "".join(event.text for event in events(heard, "user_text")) == QUICK.heard
        assert kinds.index("turn_done") < kinds.index("agent_text")


def test_an_agent_may_speak_first() -> None:
    async def use(server: VoiceLoopback) -> list[str]:
        channel = await dialled(server)
        kinds: list[str] = []
        while "turn_done" not in kinds:
            kinds += [event.kind for event in (await channel.receive()).events]
        await channel.close()
        return kinds

    assert "agent_audio" in serve(use, quick(greets=True))


# Talking into the answer


def test_a_caller_who_talks_into_an_answer_interrupts_it() -> None:
    async def use(server: VoiceLoopback) -> tuple[list[ReceivedEvents], list[Message]]:
        channel = await dialled(server)
        heard = await turn(channel, last="agent_audio")
        heard += await turn(channel, last="interrupted")
        said = len(server.calls[0].received)
        await channel.interrupt(0.1)
        sent = server.calls[0].received[said:]
        heard += await turn(channel)
        await channel.close()
        return heard, sent

    heard, sent = serve(use, Script(first_byte_s=0.02, hangover_s=0.1, answer_s=3.0, speed=2.0))
    found = [(event.kind, event.text) for event in events(heard, "interrupted", "turn_done")]
    assert found[:2] == [("interrupted", ""), ("turn_done", "interrupted")]
    assert not sent


def test_an_answer_that_was_all_sent_but_still_plays_is_interrupted_too() -> None:
    async def use(server: VoiceLoopback) -> list[ReceivedEvents]:
        channel = await dialled(server)
        before = await turn(channel)
        after = await turn(channel, last="interrupted")
        await channel.close()
        return before + after

    heard = serve(use, Script(first_byte_s=0.02, hangover_s=0.1, answer_s=20.0, speed=1000.0))
    assert [event.kind for event in events(heard, "turn_done", "interrupted")] == ["turn_done", "interrupted"]


def test_words_after_an_interruption_are_no_answer_until_there_is_sound_again() -> None:
    def said(**given: Any) -> list[Event]:
        return wire.read(json.dumps({"serverContent": {"outputTranscription": given}}))

    wire = LiveWire(DIAL)
    wire.read(part())
    said(text="One")
    wire.read('{"serverContent":{"interrupted":true}}')
    assert said(text=" and") == [Event("unknown", detail={"event": "outputTranscription", "text": " and"})]
    wire.read('{"serverContent":{"turnComplete":true}}')
    assert [event.kind for event in said(text=" so on") + said(finished=True)] == ["unknown", "unknown"]
    wire.read(part())
    assert said(text="Two.") == [Event("agent_text", "Two.")]
    assert said(finished=True) == [Event("agent_text", "Two.", final=True)]


def test_in_the_servers_order_an_interrupted_answer_leaves_no_word_in_the_next() -> None:
    line = (8000 * np.sin(np.arange(6400) / 9)).astype(np.int16)
    lines = [Utterance(Line("one"), line, "a"), Utterance(Line("stop", barge_in_s=0.4), line, "b")]

    async def use(server: VoiceLoopback) -> FinishedCall:
        return await Conversation(await dialled(server), lines, {"rate": 24000}, Patience(5, 30)).hold()

    script = Script(first_byte_s=0.05, hangover_s=0.1, answer_s=2.0, speed=1.2, text="So it is, and so it was.")
    held = serve(use, script)
    assert held.answers[1] == script.text
    log = [json.loads(each) for each in held.log.splitlines()]
    stale = [each["detail"].get("text") for each in log if each["event"] == "unknown"]
    assert [each for each in stale if each] == [" and", " so on"]


def test_a_pair_without_sound_is_no_turn() -> None:
    wire = LiveWire(DIAL)
    assert wire.read('{"serverContent":{"interrupted":true}}') == []
    assert wire.read('{"serverContent":{"turnComplete":true}}') == []


def test_a_turn_goes_on_until_the_interaction_is_idle() -> None:
    wire = LiveWire(DIAL)
    wire.read(part())
    assert wire.read('{"serverContent":{"turnComplete":true,"interactionStatus":"IN_PROGRESS"}}') == []
    (done,) = wire.read('{"serverContent":{"turnComplete":true,"interactionStatus":"IDLE"}}')
    assert (done.kind, done.text) == ("turn_done", "completed")


# Faults


@pytest.mark.parametrize(
    ("close", "kind"),
    [
        ((1011, "Internal error encountered."), "provider"),
        ((1007, "Request contains an invalid argument."), "bad_request"),
        ((1008, "models/m is not found for API version v1, or is not supported"), "bad_request"),
        ((1008, "API keys are not supported by this API."), "auth"),
        ((1007, "API key not valid. Please pass a valid API key."), "auth"),
        ((1011, "You exceeded your current quota, please check your plan and billing details."), "rate_limit"),
        ((1011, "Your prepayment credits are depleted."), "quota"),
        ((1008, "The session timed out."), "timeout"),
        ((1000, ""), None),
        ((1000, "Good bye."), None),
        ((1006, ""), "network"),
        ((4711, "Oops"), "provider"),
    ],
)
def test_a_close_has_its_class(close: tuple[int, str], kind: str | None) -> None:
    found = LiveWire(DIAL).read_close(*close)
    assert (found.kind, found.error, found.detail) == ("closed", kind, {"code": close[0]})


def test_a_close_in_mid_turn_is_an_event() -> None:
    heard = called(quick(close_mid_turn=(1011, "Internal error encountered.")))
    assert sound(heard)
    last = events(heard)[-1]
    assert (last.kind, last.error, last.text) == ("closed", "provider", "Internal error encountered. (1011)")


def test_unknown_messages_are_logged_and_ignored() -> None:
    for large in (False, True):
        heard = called(quick(unknown_event=True, large_event=large))
        assert [event.detail for event in events(heard, "unknown")] == [{"event": "loopbackUnheardOf"}] * 2
        assert events(heard, "turn_done")
        assert not events(heard, "error")


def test_a_frame_that_is_no_json_is_an_error_and_the_call_goes_on() -> None:
    heard = called(quick(bad_json=True))
    (error,) = events(heard, "error")
    assert (error.error, error.text) == ("protocol", "a message of Google of 33 characters is not JSON")
    assert events(heard, "turn_done")


def test_sound_of_another_rate_is_an_error_and_not_heard() -> None:
    heard = called(quick(wrong_rate=16000), last="error")
    error = events(heard, "error")[0]
    assert error.error == "unsupported_format"
    assert "16000 samples per second, expected 24000" in error.text
    assert not sound(heard)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, AuthenticationFailed), (403, AuthenticationFailed), (429, RateLimited), (500, Unavailable)],
)
def test_an_upgrade_refused_is_the_error_its_status_says(status: int, kind: type[ProviderError]) -> None:
    error = refused(Script(status=status))
    assert isinstance(error, kind)
    assert error.status == status


def test_a_wrong_key_is_refused_and_never_shown() -> None:
    error = refused(key="AIza-wrong-0123456789")
    assert isinstance(error, AuthenticationFailed)
    assert "API key not valid" in str(error)
    assert "GEMINI_API_KEY" in str(error)
    assert "AIza-wrong" not in str(error)
    assert isinstance(refused(key=None), AuthenticationFailed)


def test_a_server_that_never_gets_ready_is_left_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pramana.providers.voice.socket.READY_S", 0.2)

    async def use(server: VoiceLoopback) -> int | None:
        with pytest.raises(Unavailable, match=r"not ready for the call within 0\.2 s"):
            await dialled(server)
        await asyncio.sleep(0.05)
        return server.calls[0].close_code

    began = clock.monotonic()
    assert serve(use, Script(hang="ready")) == 1000
    assert clock.monotonic() - began < 2


def test_a_redirect_is_refused_and_the_key_stays() -> None:
    class Redirecting(LiveAgent):
        @classmethod
        def refuse(cls, got: ReceivedRequest, key: str | None) -> web.Response | None:  # noqa: ARG003
            if "again" in got.query:
                return None
            raise web.HTTPFound(f"http://{got.headers['Host']}{got.path}?again=1")

    async def use(server: VoiceLoopback) -> int:
        with pytest.raises(Rejected, match="redirects"):
            await dialled(server)
        return len(server.requests)

    assert serve(use, agent=Redirecting) == 1


def test_what_the_setup_does_not_take_is_refused_in_the_vendors_words() -> None:
    error = refused(dial=Dial(MODEL, parameters={"colour": "red"}))
    assert isinstance(error, Rejected)
    assert 'Unknown name "colour"' in str(error)


class Telling(LiveAgent):
    """A server that repeats the key it was given, wherever it can."""

    def on_speech_start(self) -> list[Message]:
        key = self.request.headers["x-goog-api-key"]
        said = {"outputTranscription": {"text": key}, "modelTurn": {"parts": [{"inlineData": {"mimeType": key}}]}}
        call = {"functionCalls": [{"id": key, "name": key, "args": {key: [key]}}]}
        told: list[Any] = [{"serverContent": said}, {"toolCall": call}, {key: {}}, {"goAway": {"timeLeft": key}}]
        return [*map(json.dumps, told), f'{{"cut": "{key}']

    def on_speech_stop(self) -> list[Message]:
        self.hang_up(1011, self.request.headers["x-goog-api-key"])
        return []


def test_the_key_is_in_no_event() -> None:
    found = events(called(QUICK, Telling))
    assert {"error", "unknown", "agent_text", "tool_call", "closed"} <= {event.kind for event in found}
    assert KEY not in repr(found)


# The wire alone


def part(data: str = "AAAA" * 8, mime: str | None = "audio/pcm;rate=24000") -> str:
    blob = {"data": data, **({"mimeType": mime} if mime else {})}
    return json.dumps({"serverContent": {"modelTurn": {"parts": [{"inlineData": blob}]}}})


def read(message: str | bytes) -> list[Event]:
    return LiveWire(DIAL).read(message)


def test_sound_is_read_whichever_way_it_is_written() -> None:
    for mime in ("audio/pcm;rate=24000", "audio/pcm", None, "audio/L16;codec=pcm;rate=24000"):
        assert read(part(mime=mime))[0].audio == bytes(24)
    assert read(part().encode())[0].audio == bytes(24)
    assert read(part("_-__" * 2))[0].audio == base64.b64decode("/+//" * 2)
    assert read(part("")) == []


def test_what_else_a_session_says_is_told() -> None:
    assert read('{"goAway":{"timeLeft":"10s"}}') == [Event("unknown", detail={"event": "goAway", "time_left": "10s"})]
    assert read('{"voiceActivity":{"voiceActivityType":"ACTIVITY_START"}}') == [Event("user_speech_start")]
    assert read('{"voiceActivityDetectionSignal":{"vadSignalType":"VAD_SIGNAL_TYPE_EOS"}}') == [
        Event("user_speech_stop")
    ]
    assert read('{"sessionResumptionUpdate":{"newHandle":"h"}}') == []
    (call,) = read('{"toolCall":{"functionCalls":[{"id":"c","name":"f","args":{"a":1}}]}}')
    assert (call.kind, call.detail) == ("tool_call", {"name": "f", "call_id": "c", "arguments": '{"a": 1}'})
    assert read('{"serverContent":{"modelTurn":{"parts":[{"text":"Hm."}]}}}')[0].kind == "unknown"


def test_a_transcript_cut_by_the_end_of_its_turn_is_never_told_as_whole() -> None:
    wire = LiveWire(DIAL)
    wire.read(part())
    wire.read('{"serverContent":{"outputTranscription":{"text":"One "}}}')
    wire.read('{"serverContent":{"turnComplete":true}}')
    found = wire.read('{"serverContent":{"outputTranscription":{"text":"two.","finished":true}}}')
    assert found == [Event("agent_text", "two.")]


def test_parameters_stand_where_the_setup_has_them() -> None:
    given = {
        "top_p": 0.5,
        "tools": [],
        "sessionResumption": {},
        "stop": None,
        "inputAudioTranscription": {"mode": "SMART"},
    }
    (hello,) = LiveWire(Dial("tunedModels/m", None, "en", given)).opening_messages()
    assert json.loads(hello)["setup"] == {
        "model": "tunedModels/m",
        "generationConfig": {"responseModalities": ["AUDIO"], "topP": 0.5},
        "inputAudioTranscription": {"mode": "SMART"},
        "outputAudioTranscription": {},
        "tools": [],
        "sessionResumption": {},
    }


@pytest.mark.parametrize(
    "message",
    [
        "",
        "nonsense",
        "[]",
        b"\xff\xfe",
        "[" * 100_000,
        '{"setupComplete":7}',
        '{"serverContent":7}',
        '{"serverContent":{"modelTurn":7}}',
        '{"serverContent":{"modelTurn":{"parts":[7]}}}',
        '{"serverContent":{"modelTurn":{"parts":[{"inlineData":{}}]}}}',
        part("?"),
        part("AA"),
        part("AAAA"),
        '{"serverContent":{"outputTranscription":{"text":7}}}',
        '{"toolCall":{}}',
        '{"usageMetadata":[]}',
    ],
)
def test_what_does_not_fit_is_a_broken_reply_that_shows_nothing_of_it(message: str | bytes) -> None:
    with pytest.raises(BrokenReply, match=r"^a message of Google ") as caught:
        read(message)
    assert len(str(caught.value)) < 120


def test_broken_frames_meet_errors_of_ours_only() -> None:
    def wire() -> LiveWire:
        return LiveWire(DIAL)

    samples = rehearse(LiveAgent(QUICK, ReceivedRequest("GET", "/", {}, {}, None)), wire())
    met = survive(wire, samples, 2000)
    assert met["refused"] > 500
    assert met["agent_text"] > 5


# The account


def test_the_models_that_can_be_called_are_listed_from_every_page() -> None:
    async def use(server: VoiceLoopback) -> list[str]:
        provider = LiveProvider.open(Target("gemini-live:x", "gemini-live", "x"), Account(server.url, KEY))
        wrong = LiveProvider(Account(server.url, "AIza-wrong-0123456789"))
        try:
            with pytest.raises(AuthenticationFailed):
                await wrong.models()
            return await provider.models()
        finally:
            await provider.close()
            await wrong.close()

    assert serve(use) == ["gemini-2.5-flash-native-audio", "gemini-live-2.5-flash"]


def test_a_call_of_the_referee_without_a_key_is_refused() -> None:
    async def use(server: VoiceLoopback) -> None:
        server.key = "another"
        with pytest.raises(errors.APIError, match="API key not valid"):
            async with referee(server):
                pass

    serve(use)


# ── Memory ──


@pytest.mark.parametrize(
    "message",
    [
        {"toolCall": {"functionCalls": [{}] * 101}},
        {"serverContent": {"modelTurn": {"parts": [{"text": "a"}] * 101}}},
        {f"unknown{number}": 1 for number in range(101)},
    ],
)
def test_a_message_of_thousands_of_things_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(BrokenReply, match="does not fit the format"):
        LiveWire(DIAL).read(json.dumps(message))
    assert len(LiveWire(DIAL).read(json.dumps({"toolCall": {"functionCalls": [{}] * 100}}))) == 100
