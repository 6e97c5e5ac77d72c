"""Gemini's Live API: server and adapter checked with its SDK; then turns, interruptions, faults and broken frames."""

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
from pramana.providers.voice.vocabulary import CallSetup, Event, Format, Message, ReceivedEvents
from pramana.run.call import Conversation, FinishedCall, Patience

from ...loopback.fuzz import read_broken_frames, record_agent_messages
from ...loopback.live import MESSAGES, SETUP, LiveAgent, to_camel_case
from . import callers
from .callers import QUICK, flatten_events, join_sound, make_tone, quick_script, split_frames, take_turn

KEY = "AIza-test-0123456789abcdef"
MODEL = "gemini-live-2.5-flash"
DIAL = CallSetup(MODEL, "Be brief.", "en", {"voice": "Kore", "temperature": 0.3, "max_tokens": 99, "seed": 3})
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
# Warnings between the SDK and its HTTP library.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    pytest.mark.usefixtures("virtual_time"),
]
SPEECH, SILENCE = split_frames(make_tone(0.3, 16000), 16000), bytes(640)


def serve(use: Callable[[VoiceLoopback], Awaitable[T]], script: Script = QUICK, agent: Any = LiveAgent) -> T:
    return callers.serve(agent, use, script, KEY)


async def open_channel(server: VoiceLoopback, dial: CallSetup = DIAL, key: str | None = KEY) -> SocketChannel:
    return await LiveProvider(Account(server.url, key, variable="GEMINI_API_KEY")).dial(dial)


def call_agent(script: Script = QUICK, agent: Any = LiveAgent, **given: Any) -> list[ReceivedEvents]:
    async def use(server: VoiceLoopback) -> list[ReceivedEvents]:
        channel = await open_channel(server)
        try:
            return await take_turn(channel, **given)
        finally:
            await channel.close()

    return serve(use, script, agent)


def expect_refusal(script: Script = QUICK, agent: Any = LiveAgent, **given: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        serve(lambda server: open_channel(server, **given), script, agent)
    assert KEY not in str(caught.value)
    return caught.value


@asynccontextmanager
async def open_sdk_session(server: VoiceLoopback) -> typing.AsyncIterator[Any]:
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


def normalise(message: Message) -> Any:
    """Return a message as protobuf reads it: names in one case, bytes as bytes."""
    found = to_camel_case(json.loads(message))
    if blob := found.get("realtimeInput", {}).get("audio"):
        blob["data"] = base64.urlsafe_b64decode(blob["data"].translate(str.maketrans("+/", "-_")))
    return found


# The vendor SDK


def test_the_sdk_holds_a_conversation_and_knows_every_message() -> None:
    async def use(server: VoiceLoopback) -> tuple[list[types.LiveServerMessage], list[Message]]:
        got: list[types.LiveServerMessage] = []
        async with open_sdk_session(server) as session:
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


def test_the_sdk_can_send_text_and_gets_a_spoken_answer() -> None:
    async def use(server: VoiceLoopback) -> bytes:
        async with open_sdk_session(server) as session:
            await session.send_client_content(turns=types.Content(role="user", parts=[types.Part(text="Hello.")]))
            return b"".join([message.data or b"" async for message in session.receive()])

    assert serve(use) == b"".join(make_answer_sound(QUICK, Format("pcm", 24000)))


def test_our_messages_equal_those_of_the_sdk() -> None:
    frame = SPEECH[1]

    async def use(server: VoiceLoopback) -> tuple[Any, Any]:
        async with open_sdk_session(server) as session:
            await session.send_realtime_input(audio=types.Blob(data=frame, mime_type=MIME))
        channel = await open_channel(server)
        await channel.send(frame)
        await channel.interrupt(0.1)
        await channel.close()
        await asyncio.sleep(0.05)
        theirs, ours = server.calls
        return theirs, ours

    theirs, ours = serve(use)
    assert [normalise(each) for each in ours.received] == [normalise(each) for each in theirs.received]
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
def test_the_server_ends_the_call_on_an_invalid_message(sent: list[str], reason: str) -> None:
    agent = LiveAgent(QUICK, ReceivedRequest("GET", "/", {}, {}, None))
    for message in sent:
        agent.handle_message(message)
    assert agent.close_request
    assert agent.close_request[0] == 1007
    assert reason in agent.close_request[1]


def test_the_server_knows_every_field_of_the_sdk() -> None:
    def names(kind: Any) -> set[str]:
        return set(to_camel_case(dict.fromkeys(kind.model_fields)))

    assert names(types.LiveClientMessage) == set(MESSAGES)
    assert names(types.LiveClientRealtimeInput) == set(MESSAGES["realtimeInput"])
    assert names(types.LiveClientContent) == set(MESSAGES["clientContent"])
    assert names(types.AudioTranscriptionConfig) == set(SETUP["inputAudioTranscription"])
    enterprise_only = {"labels"}
    assert names(types.LiveClientSetup) - enterprise_only <= set(SETUP)
    assert set(SETUP) >= TOP_LEVEL_PARAMETERS


# A turn


def test_a_turn_is_recognised_and_answered() -> None:
    async def use(server: VoiceLoopback) -> tuple[list[ReceivedEvents], SocketChannel, VoiceLoopback]:
        channel = await open_channel(server)
        heard = await take_turn(channel)
        await channel.close()
        return heard, channel, server

    heard, channel, server = serve(use)
    found = flatten_events(heard)
    assert (channel.uplink, channel.downlink, channel.capabilities.greets) == (
        Format("pcm", 16000),
        Format("pcm", 24000),
        False,
    )
    order = [event.kind for event in found if event.kind not in ("agent_audio", "agent_text", "user_text")]
    assert order == ["ready", "usage", "turn_done"]
    assert join_sound(heard) == b"".join(make_answer_sound(QUICK, Format("pcm", 24000)))
    assert "".join(event.text for event in flatten_events(heard, "agent_text") if not event.final) == QUICK.text
    assert [event.text for event in flatten_events(heard, "agent_text") if event.final] == [QUICK.text]
    assert "".join(event.text for event in flatten_events(heard, "user_text")) == QUICK.heard
    (usage,) = flatten_events(heard, "usage")
    assert usage.detail == {
        "input_tokens": 20,
        "output_tokens": 5,
        "input_audio_tokens": 15,
        "output_audio_tokens": 5,
    }
    assert found[-1].text == "completed"
    (logged,) = server.logged_answers()
    assert (logged.call, logged.asked, logged.leading_silence_s) == (0, MODEL, 0.05)


def test_the_server_log_and_our_clock_agree() -> None:
    async def use(server: VoiceLoopback) -> tuple[float, Any]:
        channel = await open_channel(server)
        heard = await take_turn(channel, pace_s=0.02)
        await channel.close()
        return next(
            each.received_at for each in heard if any(event.audio for event in each.events)
        ), server.logged_answers()[0]

    at, logged = serve(use, Script(first_byte_s=0.25, hangover_s=0.1, audible_answer_s=0.1))
    assert 0.25 <= logged.sent_at - logged.speech_end_at < 0.5
    assert 0 <= at - logged.sent_at < 0.1


@pytest.mark.parametrize("transcript", ["late", "missing"])
def test_a_transcript_may_be_late_or_missing(transcript: str) -> None:
    heard = call_agent(quick_script(transcript=transcript), linger_s=0.3)
    kinds = [event.kind for event in flatten_events(heard)]
    told = {event.kind: event.text for event in flatten_events(heard, "agent_text", "user_text") if event.final}
    assert "turn_done" in kinds
    if transcript == "missing":
        assert "agent_text" not in kinds
    else:
        assert told == {"agent_text": QUICK.text}
        assert "".join(event.text for event in flatten_events(heard, "user_text")) == QUICK.heard
        assert kinds.index("turn_done") < kinds.index("agent_text")


def test_an_agent_may_speak_first() -> None:
    async def use(server: VoiceLoopback) -> list[str]:
        channel = await open_channel(server)
        kinds: list[str] = []
        while "turn_done" not in kinds:
            kinds += [event.kind for event in (await channel.receive()).events]
        await channel.close()
        return kinds

    assert "agent_audio" in serve(use, quick_script(greets=True))


# Talking into the answer


def test_barge_in_interrupts_the_answer() -> None:
    async def use(server: VoiceLoopback) -> tuple[list[ReceivedEvents], list[Message]]:
        channel = await open_channel(server)
        heard = await take_turn(channel, last="agent_audio")
        heard += await take_turn(channel, last="interrupted")
        said = len(server.calls[0].received)
        await channel.interrupt(0.1)
        sent = server.calls[0].received[said:]
        heard += await take_turn(channel)
        await channel.close()
        return heard, sent

    heard, sent = serve(use, Script(first_byte_s=0.02, hangover_s=0.1, audible_answer_s=3.0, sending_speed=2.0))
    found = [(event.kind, event.text) for event in flatten_events(heard, "interrupted", "turn_done")]
    assert found[:2] == [("interrupted", ""), ("turn_done", "interrupted")]
    assert not sent


def test_an_answer_that_is_sent_but_still_playing_is_interrupted() -> None:
    async def use(server: VoiceLoopback) -> list[ReceivedEvents]:
        channel = await open_channel(server)
        before = await take_turn(channel)
        after = await take_turn(channel, last="interrupted")
        await channel.close()
        return before + after

    heard = serve(use, Script(first_byte_s=0.02, hangover_s=0.1, audible_answer_s=20.0, sending_speed=1000.0))
    assert [event.kind for event in flatten_events(heard, "turn_done", "interrupted")] == ["turn_done", "interrupted"]


def test_text_after_an_interruption_is_no_answer_until_audio_follows() -> None:
    def read_transcription(**given: Any) -> list[Event]:
        return wire.read_events(json.dumps({"serverContent": {"outputTranscription": given}}))

    wire = LiveWire(DIAL)
    wire.read_events(make_part())
    read_transcription(text="One")
    wire.read_events('{"serverContent":{"interrupted":true}}')
    assert read_transcription(text=" and") == [
        Event("unknown", detail={"event": "outputTranscription", "text": " and"})
    ]
    wire.read_events('{"serverContent":{"turnComplete":true}}')
    assert [event.kind for event in read_transcription(text=" so on") + read_transcription(finished=True)] == [
        "unknown",
        "unknown",
    ]
    wire.read_events(make_part())
    assert read_transcription(text="Two.") == [Event("agent_text", "Two.")]
    assert read_transcription(finished=True) == [Event("agent_text", "Two.", final=True)]


def test_no_text_of_an_interrupted_answer_leaks_into_the_next() -> None:
    line = (8000 * np.sin(np.arange(6400) / 9)).astype(np.int16)
    lines = [Utterance(Line("one"), line, "a"), Utterance(Line("stop", barge_in_s=0.4), line, "b")]

    async def use(server: VoiceLoopback) -> FinishedCall:
        return await Conversation(await open_channel(server), lines, {"rate": 24000}, Patience(5, 30)).hold_call()

    script = Script(
        first_byte_s=0.05, hangover_s=0.1, audible_answer_s=2.0, sending_speed=1.2, text="So it is, and so it was."
    )
    held = serve(use, script)
    assert held.answers[1] == script.text
    log = [json.loads(each) for each in held.log.splitlines()]
    stale = [each["detail"].get("text") for each in log if each["event"] == "unknown"]
    assert [each for each in stale if each] == [" and", " so on"]


def test_interruption_and_turn_end_without_audio_are_ignored() -> None:
    wire = LiveWire(DIAL)
    assert wire.read_events('{"serverContent":{"interrupted":true}}') == []
    assert wire.read_events('{"serverContent":{"turnComplete":true}}') == []


def test_a_turn_lasts_until_the_interaction_is_idle() -> None:
    wire = LiveWire(DIAL)
    wire.read_events(make_part())
    assert wire.read_events('{"serverContent":{"turnComplete":true,"interactionStatus":"IN_PROGRESS"}}') == []
    (done,) = wire.read_events('{"serverContent":{"turnComplete":true,"interactionStatus":"IDLE"}}')
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
def test_a_close_is_classified(close: tuple[int, str], kind: str | None) -> None:
    found = LiveWire(DIAL).read_close(*close)
    assert (found.kind, found.error, found.detail) == ("closed", kind, {"code": close[0]})


def test_a_close_in_mid_turn_is_an_event() -> None:
    heard = call_agent(quick_script(close_mid_turn=(1011, "Internal error encountered.")))
    assert join_sound(heard)
    last = flatten_events(heard)[-1]
    assert (last.kind, last.error, last.text) == ("closed", "provider", "Internal error encountered. (1011)")


def test_unknown_messages_are_logged_and_ignored() -> None:
    for large in (False, True):
        heard = call_agent(quick_script(unknown_event=True, large_unknown_event=large))
        assert [event.detail for event in flatten_events(heard, "unknown")] == [{"event": "loopbackUnheardOf"}] * 2
        assert flatten_events(heard, "turn_done")
        assert not flatten_events(heard, "error")


def test_an_invalid_json_frame_is_an_error_and_the_call_continues() -> None:
    heard = call_agent(quick_script(bad_json=True))
    (error,) = flatten_events(heard, "error")
    assert (error.error, error.text) == ("protocol", "a message of Google of 33 characters is not JSON")
    assert flatten_events(heard, "turn_done")


def test_audio_of_another_rate_is_an_error_and_not_played() -> None:
    heard = call_agent(quick_script(wrong_rate=16000), last="error")
    error = flatten_events(heard, "error")[0]
    assert error.error == "unsupported_format"
    assert "16000 samples per second, expected 24000" in error.text
    assert not join_sound(heard)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, AuthenticationFailed), (403, AuthenticationFailed), (429, RateLimited), (500, Unavailable)],
)
def test_a_refused_upgrade_is_classified_by_its_status(status: int, kind: type[ProviderError]) -> None:
    error = expect_refusal(Script(status=status))
    assert isinstance(error, kind)
    assert error.status == status


def test_a_wrong_key_is_refused_and_never_shown() -> None:
    error = expect_refusal(key="AIza-wrong-0123456789")
    assert isinstance(error, AuthenticationFailed)
    assert "API key not valid" in str(error)
    assert "GEMINI_API_KEY" in str(error)
    assert "AIza-wrong" not in str(error)
    assert isinstance(expect_refusal(key=None), AuthenticationFailed)


def test_a_server_that_never_becomes_ready_times_out_cleanly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pramana.providers.voice.socket.HANDSHAKE_TIMEOUT_S", 0.2)

    async def use(server: VoiceLoopback) -> int | None:
        with pytest.raises(Unavailable, match=r"not ready for the call within 0\.2 s"):
            await open_channel(server)
        await asyncio.sleep(0.05)
        return server.calls[0].close_code

    began = clock.monotonic()
    assert serve(use, Script(hang="ready")) == 1000
    assert clock.monotonic() - began < 2


def test_a_redirect_is_refused_without_sending_the_key() -> None:
    class RedirectingAgent(LiveAgent):
        @classmethod
        def make_upgrade_refusal(cls, request: ReceivedRequest, key: str | None) -> web.Response | None:  # noqa: ARG003
            if "again" in request.query:
                return None
            raise web.HTTPFound(f"http://{request.headers['Host']}{request.path}?again=1")

    async def use(server: VoiceLoopback) -> int:
        with pytest.raises(Rejected, match="redirects"):
            await open_channel(server)
        return len(server.requests)

    assert serve(use, agent=RedirectingAgent) == 1


def test_an_invalid_setup_is_refused_with_the_vendor_message() -> None:
    error = expect_refusal(dial=CallSetup(MODEL, parameters={"colour": "red"}))
    assert isinstance(error, Rejected)
    assert 'Unknown name "colour"' in str(error)


class KeyLeakingAgent(LiveAgent):
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
    found = flatten_events(call_agent(QUICK, KeyLeakingAgent))
    assert {"error", "unknown", "agent_text", "tool_call", "closed"} <= {event.kind for event in found}
    assert KEY not in repr(found)


# The wire alone


def make_part(data: str = "AAAA" * 8, mime: str | None = "audio/pcm;rate=24000") -> str:
    blob = {"data": data, **({"mimeType": mime} if mime else {})}
    return json.dumps({"serverContent": {"modelTurn": {"parts": [{"inlineData": blob}]}}})


def read_message(message: str | bytes) -> list[Event]:
    return LiveWire(DIAL).read_events(message)


def test_audio_is_read_in_every_encoding() -> None:
    for mime in ("audio/pcm;rate=24000", "audio/pcm", None, "audio/L16;codec=pcm;rate=24000"):
        assert read_message(make_part(mime=mime))[0].audio == bytes(24)
    assert read_message(make_part().encode())[0].audio == bytes(24)
    assert read_message(make_part("_-__" * 2))[0].audio == base64.b64decode("/+//" * 2)
    assert read_message(make_part("")) == []


def test_other_session_messages_become_events() -> None:
    assert read_message('{"goAway":{"timeLeft":"10s"}}') == [
        Event("unknown", detail={"event": "goAway", "time_left": "10s"})
    ]
    assert read_message('{"voiceActivity":{"voiceActivityType":"ACTIVITY_START"}}') == [Event("user_speech_start")]
    assert read_message('{"voiceActivityDetectionSignal":{"vadSignalType":"VAD_SIGNAL_TYPE_EOS"}}') == [
        Event("user_speech_stop")
    ]
    assert read_message('{"sessionResumptionUpdate":{"newHandle":"h"}}') == []
    (call,) = read_message('{"toolCall":{"functionCalls":[{"id":"c","name":"f","args":{"a":1}}]}}')
    assert (call.kind, call.detail) == ("tool_call", {"name": "f", "call_id": "c", "arguments": '{"a": 1}'})
    assert read_message('{"serverContent":{"modelTurn":{"parts":[{"text":"Hm."}]}}}')[0].kind == "unknown"


def test_a_truncated_transcript_is_never_reported_as_final() -> None:
    wire = LiveWire(DIAL)
    wire.read_events(make_part())
    wire.read_events('{"serverContent":{"outputTranscription":{"text":"One "}}}')
    wire.read_events('{"serverContent":{"turnComplete":true}}')
    found = wire.read_events('{"serverContent":{"outputTranscription":{"text":"two.","finished":true}}}')
    assert found == [Event("agent_text", "two.")]


def test_parameters_are_sent_in_the_setup_fields() -> None:
    given = {
        "top_p": 0.5,
        "tools": [],
        "sessionResumption": {},
        "stop": None,
        "inputAudioTranscription": {"mode": "SMART"},
    }
    (hello,) = LiveWire(CallSetup("tunedModels/m", None, "en", given)).opening_messages()
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
        make_part("?"),
        make_part("AA"),
        make_part("AAAA"),
        '{"serverContent":{"outputTranscription":{"text":7}}}',
        '{"toolCall":{}}',
        '{"usageMetadata":[]}',
    ],
)
def test_a_malformed_message_is_a_broken_reply_that_does_not_show_it(message: str | bytes) -> None:
    with pytest.raises(BrokenReply, match=r"^a message of Google ") as caught:
        read_message(message)
    assert len(str(caught.value)) < 120


def test_broken_frames_raise_only_our_errors() -> None:
    def make_wire() -> LiveWire:
        return LiveWire(DIAL)

    samples = record_agent_messages(LiveAgent(QUICK, ReceivedRequest("GET", "/", {}, {}, None)), make_wire())
    met = read_broken_frames(make_wire, samples, 2000)
    assert met["refused"] > 500
    assert met["agent_text"] > 5


# The account


def test_callable_models_are_listed_from_every_page() -> None:
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


def test_an_sdk_call_without_a_key_is_refused() -> None:
    async def use(server: VoiceLoopback) -> None:
        server.key = "another"
        with pytest.raises(errors.APIError, match="API key not valid"):
            async with open_sdk_session(server):
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
def test_a_message_of_thousands_of_items_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(BrokenReply, match="does not fit the format"):
        LiveWire(DIAL).read_events(json.dumps(message))
    assert len(LiveWire(DIAL).read_events(json.dumps({"toolCall": {"functionCalls": [{}] * 100}}))) == 100
