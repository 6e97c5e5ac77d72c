"""The five shipped descriptions, each against its own server: turns, interruptions, faults, broken frames; then the vendor
SDKs, where they exist, check server and messages."""

import asyncio
import base64
import gc
import json
import random
import threading
import time
import typing
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest

from pramana import audio
from pramana.errors import AuthenticationFailed, ProviderError, RateLimited, Rejected, Unavailable, Unreachable
from pramana.loopback.declared import SIGNED_URL_TOKEN
from pramana.loopback.script import make_answer_sound
from pramana.loopback.voice import Agent, Call, ReceivedRequest, Script, VoiceLoopback
from pramana.model import Target
from pramana.providers.accounts import Account
from pramana.providers.voice import pipecat
from pramana.providers.voice import socket as seam
from pramana.providers.voice.declared import DeclaredProvider, find_template_names, load_shipped_description
from pramana.providers.voice.declared_wire import DeclaredWire
from pramana.providers.voice.socket import SocketChannel
from pramana.providers.voice.vocabulary import CallSetup, Format, Message, ReceivedEvents

from ...loopback.deepgram import DeepgramAgent
from ...loopback.elevenlabs import ElevenLabsAgent
from ...loopback.fuzz import read_broken_frames
from ...loopback.pipecat import PipecatAgent
from ...loopback.twilio import TwilioAgent
from ...loopback.vapi import VapiAgent

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the SDKs use what their own library calls old
    import deepgram.agent.v1.client  # noqa: F401 - imported late by the SDK, where its warnings count
    from deepgram import DeepgramClient
    from deepgram.agent.v1.socket_client import V1SocketClientResponse
    from deepgram.agent.v1.types import AgentV1Settings
    from deepgram.environment import DeepgramClientEnvironment
    from elevenlabs import ElevenLabs
    from elevenlabs.conversational_ai.conversation import AudioInterface, Conversation, ConversationInitiationData
    from elevenlabs.types.client_event import ClientEvent

from ...virtual_time import real_time
from . import callers
from .callers import QUICK, flatten_events, join_sound, make_tone, quick_script, split_frames

pytestmark = pytest.mark.usefixtures("virtual_time")
KEY = "sk-test-0123456789abcdef"
T = typing.TypeVar("T")


@dataclass(frozen=True)
class ShippedAgent:
    """A description that ships, and who answers it."""

    name: str
    agent: type[Agent]
    model: str | None
    """None: the address is the model."""
    uplink: Format
    downlink: Format
    system_prompt: str | None = None
    declares_end: bool = True
    writes: bool = True
    """It sends transcripts of both sides."""

    def __str__(self) -> str:
        return self.name


PCM16, PCM24, MULAW = Format("pcm", 16000), Format("pcm", 24000), Format("mulaw", 8000)
ELEVENLABS = ShippedAgent("elevenlabs", ElevenLabsAgent, "agent_7", PCM16, PCM16, "Be brief.")
DEEPGRAM = ShippedAgent("deepgram", DeepgramAgent, "gpt-4o-mini", PCM16, PCM24, "Be brief.")
VAPI = ShippedAgent("vapi", VapiAgent, "0d2c31", PCM16, PCM16)
TWILIO = ShippedAgent("twilio", TwilioAgent, None, MULAW, MULAW, declares_end=False, writes=False)
PIPECAT = ShippedAgent("pipecat", PipecatAgent, None, PCM16, PCM24)
ALL = (ELEVENLABS, DEEPGRAM, VAPI, TWILIO, PIPECAT)
WRITING = tuple(each for each in ALL if each.writes)
each_of = pytest.mark.parametrize


class EncodedChannel:
    """A channel for a caller that speaks PCM."""

    def __init__(self, channel: SocketChannel) -> None:
        self.channel, self.uplink = channel, channel.uplink
        self.receive, self.interrupt, self.close = channel.receive, channel.interrupt, channel.close
        self.downlink, self.capabilities = channel.downlink, channel.capabilities
        self.is_key_in_text = channel.is_key_in_text

    async def send(self, frame: bytes) -> None:
        await self.channel.send(audio.encode(self.uplink.codec, np.frombuffer(frame, "<i2")))


def make_call_url(server: VoiceLoopback) -> str:
    return f"{server.url.replace('http', 'ws')}/call"


async def open_channel(ready: ShippedAgent, server: VoiceLoopback, key: str | None = KEY, **more: Any) -> SocketChannel:
    model = ready.model or make_call_url(server)
    account = Account(server.url, key) if ready.model else None
    voice = DeclaredProvider.open(Target(f"{ready.name}:{model}", ready.name, model), account)
    try:
        return await voice.dial(CallSetup(model, **{"system_prompt": ready.system_prompt, **more}))
    finally:
        await voice.close()


def serve(ready: ShippedAgent, use: Callable[[VoiceLoopback], Awaitable[T]], script: Script = QUICK) -> T:
    return callers.serve(ready.agent, use, script, KEY)


async def take_turn(ready: ShippedAgent, channel: SocketChannel, **given: Any) -> list[ReceivedEvents]:
    if ready.declares_end:
        return await callers.take_turn(typing.cast("Any", EncodedChannel(channel)), **given)
    given = {"last": "agent_audio", **given}
    return await callers.take_turn(typing.cast("Any", EncodedChannel(channel)), **{"linger_s": 0.3, **given})


def call_agent(ready: ShippedAgent, script: Script = QUICK, **given: Any) -> tuple[list[ReceivedEvents], Call]:
    async def use(server: VoiceLoopback) -> tuple[list[ReceivedEvents], Call]:
        channel = await open_channel(ready, server)
        try:
            return await take_turn(ready, channel, **given), server.calls[0]
        finally:
            await channel.close()

    return serve(ready, use, script)


def expect_refusal(ready: ShippedAgent, script: Script = QUICK, **given: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        serve(ready, lambda server: open_channel(ready, server, **given), script)
    assert KEY not in str(caught.value)
    return caught.value


# Turns


@each_of("ready", ALL, ids=str)
def test_a_turn_is_recognised_and_answered(ready: ShippedAgent) -> None:
    async def use(server: VoiceLoopback) -> tuple[SocketChannel, list[ReceivedEvents], VoiceLoopback]:
        channel = await open_channel(ready, server)
        heard = await take_turn(ready, channel)
        await channel.close()
        return channel, heard, server

    channel, heard, server = serve(ready, use)
    assert (channel.uplink, channel.downlink) == (ready.uplink, ready.downlink)
    assert join_sound(heard) == b"".join(make_answer_sound(QUICK, ready.downlink))
    assert not flatten_events(heard, "error", "closed")
    assert flatten_events(heard, "ready")
    assert bool(flatten_events(heard, "turn_done")) is ready.declares_end
    if ready.writes:
        said = " ".join(event.text for event in flatten_events(heard, "agent_text"))
        assert said == QUICK.text
        assert all(event.final for event in flatten_events(heard, "agent_text"))
        assert [event.text for event in flatten_events(heard, "user_text")] == [QUICK.heard]
    assert server.calls[0].agent.requested_model == (ready.model or make_call_url(server))


@each_of("ready", ALL, ids=str)
def test_the_server_log_and_our_clock_agree(ready: ShippedAgent) -> None:
    script = quick_script(first_byte_s=0.15, leading_silence_s=0.1)

    async def use(server: VoiceLoopback) -> tuple[list[ReceivedEvents], Any]:
        channel = await open_channel(ready, server)
        heard = await take_turn(ready, channel)
        await channel.close()
        return heard, server.logged_answers()[0]

    heard, logged = serve(ready, use, script)
    first = next(each.received_at for each in heard if any(event.audio for event in each.events))
    assert first - logged.sent_at == pytest.approx(0, abs=1e-4)
    assert logged.sent_at - logged.speech_end_at == pytest.approx(0.15, abs=1e-4)
    samples = audio.decode(ready.downlink.codec, join_sound(heard))
    audible = audio.find_first_audible(samples, ready.downlink.rate)
    assert audible is not None
    assert abs(audible / ready.downlink.rate - 0.1) < 0.005


@each_of("ready", WRITING, ids=str)
@each_of("transcript", ["late", "missing"])
def test_a_transcript_may_be_late_or_missing(ready: ShippedAgent, transcript: Any) -> None:
    heard, _ = call_agent(ready, quick_script(transcript=transcript), linger_s=0.12)
    words = [event.text for event in flatten_events(heard, "agent_text")]
    assert words == ([QUICK.text] if transcript == "late" else [])
    assert len(flatten_events(heard, "user_text")) == (transcript == "late")
    done = next(number for number, each in enumerate(heard) if any(event.kind == "turn_done" for event in each.events))
    assert all(event.kind not in ("agent_text", "user_text") for each in heard[:done] for event in each.events)


@each_of("ready", ALL, ids=str)
def test_an_agent_may_speak_first(ready: ShippedAgent) -> None:
    async def use(server: VoiceLoopback) -> list[ReceivedEvents]:
        channel = EncodedChannel(await open_channel(ready, server))
        assert channel.capabilities.greets is (ready is not DEEPGRAM)  # which greets where a parameter says how
        silence = bytes(ready.uplink.rate // 50 * 2)
        await channel.send(silence)
        heard: list[ReceivedEvents] = []
        while not join_sound(heard):
            heard.append(await channel.receive())
        await channel.close()
        return heard

    assert not flatten_events(serve(ready, use, quick_script(greets=True)), "user_text")


@each_of(("greeting", "greets"), [("Hello.", True), ("", False), (None, False)])
def test_an_agent_that_is_given_a_greeting_speaks_first(greeting: str | None, greets: bool) -> None:
    async def use(server: VoiceLoopback) -> tuple[bool, Any]:
        channel = await open_channel(DEEPGRAM, server, parameters={"greeting": greeting})
        await channel.close()
        return channel.capabilities.greets, json.loads(server.calls[0].received[0])["agent"].get("greeting")

    assert serve(DEEPGRAM, use) == (greets, greeting)


@each_of("ready", ALL, ids=str)
def test_barge_in_interrupts_the_answer(ready: ShippedAgent) -> None:
    script = quick_script(audible_answer_s=3.0, sending_speed=4.0)

    async def use(server: VoiceLoopback) -> list[ReceivedEvents]:
        channel = EncodedChannel(await open_channel(ready, server))
        heard: list[ReceivedEvents] = []
        rate = ready.uplink.rate
        speech, silence = split_frames(make_tone(0.2, rate), rate), bytes(rate // 50 * 2)

        async def listen() -> None:
            while not flatten_events(heard, "interrupted"):
                heard.append(await channel.receive())
                if not begun.is_set() and join_sound(heard):
                    begun.set()
                    heard[:] = heard[-1:]  # drop what Deepgram sends for any speech, even without an answer
                elif not begun.is_set():
                    heard.clear()

        begun = asyncio.Event()
        listening = asyncio.create_task(listen())
        for frame in [*speech, *[silence] * 6]:
            await channel.send(frame)
        await asyncio.wait_for(begun.wait(), 5)
        while not listening.done():
            for frame in speech:
                await channel.send(frame)
                await asyncio.sleep(0.02)  # as people speak: what is left to be played counts
        await channel.interrupt(0.2)
        await channel.close()
        return heard

    heard = serve(ready, use, script)
    assert len(flatten_events(heard, "interrupted")) == 1
    assert len(join_sound(heard)) < len(b"".join(make_answer_sound(script, ready.downlink)))


@each_of("ready", [VAPI, DEEPGRAM, PIPECAT], ids=str)
def test_speech_detected_by_the_provider_is_an_event(ready: ShippedAgent) -> None:
    heard, _ = call_agent(ready)
    assert len(flatten_events(heard, "user_speech_start")) == 1
    assert len(flatten_events(heard, "user_speech_stop")) == (ready is not DEEPGRAM)
    # Deepgram has one event for both; the call knows whether the agent was speaking.
    assert len(flatten_events(heard, "interrupted")) == (ready is DEEPGRAM)


# Faults


@each_of("ready", ALL, ids=str)
def test_a_close_in_mid_turn_is_a_classified_event(ready: ShippedAgent) -> None:
    heard, _ = call_agent(ready, quick_script(close_mid_turn=(1011, "internal error")), last="closed", linger_s=0.0)
    closed = flatten_events(heard, "closed")
    assert [(each.text, each.error, each.detail) for each in closed] == [
        ("closed with 1011: internal error", "provider", {"code": 1011})
    ]
    assert 0 < len(join_sound(heard)) < len(b"".join(make_answer_sound(QUICK, ready.downlink)))


@each_of("ready", ALL, ids=str)
def test_unknown_events_are_logged_and_ignored(ready: ShippedAgent) -> None:
    heard, _ = call_agent(ready, quick_script(unknown_event=True, large_unknown_event=True))
    names = [[*event.detail.values()] for event in flatten_events(heard, "unknown")]
    assert [name for [name, *_] in names if "unheard" in str(name)] == [
        "unheard-of" if ready in (TWILIO, PIPECAT) else "loopback.unheard_of"
    ] * 2
    assert join_sound(heard) == b"".join(make_answer_sound(QUICK, ready.downlink))


@each_of("ready", ALL, ids=str)
def test_an_invalid_json_frame_is_an_error(ready: ShippedAgent) -> None:
    heard, _ = call_agent(ready, quick_script(bad_json=True))
    [error] = flatten_events(heard, "error")
    assert error.error == "protocol"
    assert "is not JSON: " in error.text


def test_an_announced_sample_rate_is_used() -> None:
    async def use(server: VoiceLoopback) -> tuple[Format, list[ReceivedEvents]]:
        channel = await open_channel(ELEVENLABS, server)
        heard = await take_turn(ELEVENLABS, channel)
        await channel.close()
        return channel.downlink, heard

    form, heard = serve(ELEVENLABS, use, quick_script(wrong_rate=22050))
    assert form == Format("pcm", 22050)
    assert join_sound(heard) == b"".join(make_answer_sound(quick_script(wrong_rate=22050), form))


def test_an_unexpected_sample_rate_is_an_error_that_says_what_to_set() -> None:
    heard, _ = call_agent(PIPECAT, quick_script(wrong_rate=8000), last="error")
    assert not join_sound(heard)
    [error] = flatten_events(heard, "error")
    assert error.error == "unsupported_format"
    assert error.text == (
        "the sound of Pipecat is pcm of 8000 Hz, but pcm of 24000 Hz was agreed; set the parameter downlink_rate to 8000"
    )

    async def use(server: VoiceLoopback) -> bytes:
        channel = await open_channel(PIPECAT, server, parameters={"downlink_rate": 8000})
        heard = await take_turn(PIPECAT, channel)
        await channel.close()
        return join_sound(heard)

    assert serve(PIPECAT, use, quick_script(wrong_rate=8000)) == b"".join(
        make_answer_sound(quick_script(wrong_rate=8000), Format("pcm", 8000))
    )


@each_of("ready", [DEEPGRAM, VAPI, TWILIO], ids=str)
def test_an_unannounced_sample_rate_cannot_be_detected(ready: ShippedAgent) -> None:
    heard, _ = call_agent(ready, quick_script(wrong_rate=11025))
    wrong = Format(ready.downlink.codec, 11025)
    assert join_sound(heard) == b"".join(make_answer_sound(quick_script(wrong_rate=11025), wrong))


@each_of("ready", ALL, ids=str)
def test_a_missing_key_is_refused_at_the_upgrade(ready: ShippedAgent) -> None:
    error = expect_refusal(ready, quick_script(status=401))
    assert (type(error), error.status) == (AuthenticationFailed, 401)


@each_of("ready", [DEEPGRAM, TWILIO], ids=str)
def test_a_refused_upgrade_is_classified_by_its_status(ready: ShippedAgent) -> None:
    for status, kind in ((429, RateLimited), (500, Unavailable), (400, Rejected)):
        error = expect_refusal(ready, quick_script(status=status))
        assert (type(error), error.status) == (kind, status)


@each_of("ready", [ELEVENLABS, DEEPGRAM, VAPI], ids=str)
@each_of("key", ["sk-wrong-0123456789abcdef", None])
def test_a_wrong_key_is_refused_and_never_shown(ready: ShippedAgent, key: str | None) -> None:
    error = expect_refusal(ready, key=key)
    assert isinstance(error, AuthenticationFailed)
    assert f"{ready.name.upper()}_API_KEY" in str(error)
    assert str(key) not in str(error)


@each_of("ready", [ELEVENLABS, DEEPGRAM, PIPECAT], ids=str)
def test_a_server_that_never_becomes_ready_times_out(ready: ShippedAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "HANDSHAKE_TIMEOUT_S", 0.2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # a hanging server does not answer a close either
        assert isinstance(expect_refusal(ready, quick_script(hang="ready")), Unavailable)
        gc.collect()


@each_of("ready", [TWILIO, VAPI], ids=str)
def test_without_a_ready_message_the_call_is_ready_at_once(ready: ShippedAgent) -> None:
    async def use(server: VoiceLoopback) -> list[ReceivedEvents]:
        channel = await open_channel(ready, server)
        heard = [await channel.receive()]
        await channel.close()
        return heard

    assert [event.kind for event in flatten_events(serve(ready, use, quick_script(hang="ready")))] == ["ready"]


@each_of("ready", [PIPECAT, TWILIO], ids=str)
def test_an_unreachable_address_is_unavailable(ready: ShippedAgent) -> None:
    async def use(server: VoiceLoopback) -> VoiceLoopback:
        return server

    gone = serve(ready, use)
    with pytest.raises(Unreachable, match="cannot reach"):
        asyncio.run(open_channel(ready, gone))


def test_a_hanging_address_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "HANDSHAKE_TIMEOUT_S", 0.2)

    async def use() -> None:
        hanging = await asyncio.start_server(lambda _, writer: waiting.append(writer), "127.0.0.1", 0)
        url = f"ws://127.0.0.1:{hanging.sockets[0].getsockname()[1]}"
        try:
            voice = DeclaredProvider.open(Target(f"twilio:{url}", "twilio", url), None)
            with pytest.raises(Unavailable, match="was not ready for the call within"):
                await voice.dial(CallSetup(url))
        finally:
            for writer in waiting:
                writer.close()
            hanging.close()

    waiting: list[asyncio.StreamWriter] = []
    asyncio.run(use())


# What is each one's own


def test_elevenlabs_requests_a_signed_url_with_a_key() -> None:
    async def use(server: VoiceLoopback) -> list[ReceivedRequest]:
        channel = await open_channel(ELEVENLABS, server)
        await channel.close()
        return server.requests

    asked, upgrade = serve(ELEVENLABS, use)
    assert (asked.path, dict(asked.query), asked.headers["xi-api-key"]) == (
        "/v1/convai/conversation/get-signed-url",
        {"agent_id": "agent_7"},
        KEY,
    )
    assert dict(upgrade.query) == {"agent_id": "agent_7", "conversation_signature": SIGNED_URL_TOKEN}
    assert "xi-api-key" not in upgrade.headers


def test_elevenlabs_calls_a_public_agent_without_a_key() -> None:
    async def go() -> list[ReceivedRequest]:
        async with VoiceLoopback(ElevenLabsAgent, QUICK) as server:
            channel = await open_channel(ELEVENLABS, server, key=None)
            await channel.close()
            return server.requests

    [upgrade] = asyncio.run(go())
    assert (upgrade.path, dict(upgrade.query)) == ("/v1/convai/conversation", {"agent_id": "agent_7"})


def test_elevenlabs_pings_are_answered_and_stale_audio_is_dropped() -> None:
    wire = DeclaredWire(load_shipped_description("elevenlabs"), make_values("agent_7"))
    agent = ElevenLabsAgent(QUICK, ReceivedRequest("GET", "/", {"agent_id": "agent_7"}, {}, None))
    [hello] = wire.opening_messages()
    begun, ping = agent.handle_message(hello)
    assert wire.read_events(begun)[0].kind == "ready"
    [pong] = wire.read_events(ping)[0].messages_to_send
    agent.handle_message(pong)
    assert agent.pongs == [1]
    assert wire.read_events(agent.sound_messages(b"\1\0" * 10)[0])[0].kind == "agent_audio"
    told = [event for message in agent.on_interruption(is_sending=True) for event in wire.read_events(message)]
    assert [event.kind for event in told] == ["interrupted", "unknown", "agent_text"]
    assert told[1].detail == {"dropped": 2}
    assert (told[2].text, told[2].final) == (QUICK.text[:5], True)
    assert told[2].detail == {"corrects": QUICK.text}
    assert wire.read_events(agent.sound_messages(b"\1\0" * 10)[0])[0].kind == "agent_audio"


def test_twilio_marks_are_returned_after_playback() -> None:
    async def use(server: VoiceLoopback) -> tuple[list[tuple[str, float]], int, Call]:
        channel = await open_channel(TWILIO, server)
        encoded, call = EncodedChannel(channel), server.calls[0]
        silence = bytes(8000 // 50 * 2)
        heard = await take_turn(TWILIO, channel)
        agent = typing.cast("TwilioAgent", call.agent)
        before = list(agent.marks)
        spoken = 0
        while not agent.marks and spoken < 200:
            await encoded.send(silence)
            await asyncio.sleep(0.002)
            spoken += 1
        await channel.close()
        await asyncio.sleep(0.05)
        assert join_sound(heard)
        assert agent.stopped
        return [*before, *agent.marks], spoken, call

    marks, _, call = serve(TWILIO, use, quick_script(audible_answer_s=5.0, leading_silence_s=0.0))
    assert [name for name, _ in marks] == ["answer 1"]
    # 5 s of sound arrive within 0.1 s; the mark goes back 5 s of the caller's frames after the first of them.
    frames_of = [json.loads(each) for each in call.received]
    place = next(number for number, each in enumerate(frames_of) if each["event"] == "mark")
    assert sum(each["event"] == "media" for each in frames_of[:place]) > 250


def test_twilio_marks_are_returned_at_once_on_clear() -> None:
    wire = DeclaredWire(load_shipped_description("twilio"), make_values("ws://host"))
    wire.opening_messages()
    wire.sound_messages(bytes(160))
    assert wire.read_events(
        json.dumps({"event": "media", "media": {"payload": base64.b64encode(bytes(8000)).decode()}})
    )
    for name in ("a", "b"):
        assert wire.read_events(json.dumps({"event": "mark", "mark": {"name": name}})) == []
    assert len(wire.sound_messages(bytes(160))) == 1
    cleared, owed = wire.read_events(json.dumps({"event": "clear"}))
    assert cleared.kind == "interrupted"
    assert [json.loads(each)["mark"]["name"] for each in owed.messages_to_send] == ["a", "b"]
    assert [json.loads(each)["sequenceNumber"] for each in owed.messages_to_send] == ["4", "5"]
    [now] = wire.read_events(json.dumps({"event": "mark", "mark": {"name": "c"}}))  # nothing is left to be played
    assert json.loads(now.messages_to_send[0])["mark"] == {"name": "c"}
    assert json.loads(wire.closing_messages()[0])["sequenceNumber"] == "7"


def test_vapi_calls_end_with_both_of_its_end_messages() -> None:
    async def use(server: VoiceLoopback) -> tuple[list[str], ReceivedRequest]:
        channel = await open_channel(VAPI, server)
        await channel.send(bytes(640))
        await channel.close()
        await asyncio.sleep(0.05)
        return typing.cast("VapiAgent", server.calls[0].agent).goodbyes, server.requests[0]

    goodbyes, asked = serve(VAPI, use)
    assert goodbyes == ["hangup", "end-call"]
    assert (asked.method, asked.path, asked.headers["Authorization"]) == ("POST", "/call", f"Bearer {KEY}")
    assert asked.body == {
        "assistantId": "0d2c31",
        "transport": {
            "provider": "vapi.websocket",
            "audioFormat": {"format": "pcm_s16le", "container": "raw", "sampleRate": 16000},
        },
    }


def test_pipecat_messages_without_an_envelope_are_read() -> None:
    wire = DeclaredWire(load_shipped_description("pipecat"), make_values("ws://host"))
    [hello] = wire.opening_messages()
    assert isinstance(hello, bytes)
    kind, fields = pipecat.decode_frame(hello)
    assert (kind, json.loads(str(fields["data"]))["type"]) == ("message", "client-ready")
    assert (
        wire.read_events(json.dumps({"label": "rtvi-ai", "type": "bot-ready", "id": "1", "data": {}}))[0].kind
        == "ready"
    )
    heard = {"label": "rtvi-ai", "type": "user-transcription", "data": {"text": "Hi", "final": True}}
    assert wire.read_events(json.dumps(heard))[0].text == "Hi"
    assert pipecat.decode_frame(typing.cast("bytes", wire.sound_messages(b"\1\2")[0])) == (
        "audio",
        {"audio": b"\1\2", "sample_rate": 16000, "num_channels": 1},
    )


def test_usage_reported_by_a_pipecat_bot_is_an_event() -> None:
    heard, _ = call_agent(PIPECAT)
    assert [event.detail for event in flatten_events(heard, "usage")] == [{"input_tokens": 21, "output_tokens": 8}]


@each_of("ready", [VAPI, TWILIO, PIPECAT], ids=str)
def test_an_agent_with_its_own_prompt_refuses_a_system_prompt(ready: ShippedAgent) -> None:
    error = expect_refusal(ready, system_prompt="Be brief.")
    assert isinstance(error, Rejected)
    assert error.parameter == "system_prompt"


def test_parameters_are_sent_in_their_fields() -> None:
    used = {name: find_template_names(load_shipped_description(name)) for name in map(str, ALL)}
    names = {
        agent: {name.removeprefix("parameters.") for name in found if name == "voice" or name.startswith("parameters.")}
        for agent, found in used.items()
    }
    assert names == {
        "elevenlabs": {"voice"},
        "deepgram": {"voice", "think_provider", "listen_model", "greeting"},
        "vapi": set(),
        "twilio": set(),
        "pipecat": {"uplink_rate", "downlink_rate"},
    }


def test_the_key_is_in_no_event() -> None:
    class KeyLeakingAgent(DeepgramAgent):
        def caller_transcript_messages(self, text: str) -> list[Message]:
            return super().caller_transcript_messages(f"{text} {KEY}")

    async def use(server: VoiceLoopback) -> list[ReceivedEvents]:
        channel = await open_channel(DEEPGRAM, server)
        heard = await take_turn(DEEPGRAM, channel)
        await channel.close()
        return heard

    heard = callers.serve(KeyLeakingAgent, use, QUICK, KEY)
    [event] = flatten_events(heard, "user_text")
    assert event.text == f"{QUICK.heard} [key]"


# Broken frames


def make_values(model: str) -> dict[str, Any]:
    return {"model": model, "base_url": "", "key": KEY, "language": "en", "call_id": "0" * 32, "parameters": {}}


def record_messages(ready: ShippedAgent) -> list[Message]:
    """Return what the agent says in a whole call."""
    said: list[Message] = []

    async def use(server: VoiceLoopback) -> None:
        for script in (QUICK, quick_script(transcript="late")):
            server.script = script
            channel = await open_channel(ready, server)
            await take_turn(ready, channel, linger_s=0.1)
            await channel.close()
        said.extend(message for call in server.calls for message in call.sent)

    serve(ready, use)
    unlike = {message if isinstance(message, str) else message[:12]: message for message in said}
    return list(unlike.values())


@each_of("ready", ALL, ids=str)
def test_broken_frames_raise_only_our_errors(ready: ShippedAgent) -> None:
    samples = [each for each in record_messages(ready) if len(each) < 10_000]
    met = read_broken_frames(
        lambda: DeclaredWire(load_shipped_description(ready.name), make_values("ws://host")), samples, 2000
    )
    assert met["refused"] > 100
    assert met["unknown"] > 100
    assert sum(met.values()) > 1500


def test_broken_protobuf_frames_raise_only_our_errors() -> None:
    chance = random.Random(4)
    good = [each for each in record_messages(PIPECAT) if isinstance(each, bytes)]
    wire = DeclaredWire(load_shipped_description("pipecat"), make_values("ws://host"))
    refusals = 0
    for _ in range(2000):
        spoilt = bytearray(chance.choice(good)[:400])
        for _ in range(chance.randrange(1, 6)):
            spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
        try:
            json.dumps([dict(event.detail) for event in wire.read_events(bytes(spoilt))])
        except ProviderError:
            refusals += 1
    assert refusals > 500


# The SDK of ElevenLabs


@real_time()  # the SDK calls from its own threads
def test_the_elevenlabs_sdk_holds_a_conversation_with_our_server() -> None:
    heard: list[bytes] = []
    said: list[str] = []
    ended, begun, interrupted = threading.Event(), threading.Event(), threading.Event()

    class FakeAudioInterface(AudioInterface):
        def start(self, input_callback: Callable[[bytes], None]) -> None:
            def talk() -> None:
                for frame in split_frames(make_tone(0.3, 16000), 16000):
                    input_callback(frame)
                while not ended.wait(0.002):
                    input_callback(bytes(640))

            threading.Thread(target=talk, daemon=True).start()

        def stop(self) -> None:
            ended.set()

        def output(self, audio: bytes) -> None:  # the SDK's name
            heard.append(audio)
            begun.set()

        def interrupt(self) -> None:
            interrupted.set()

    def hold(server: VoiceLoopback) -> None:
        client = ElevenLabs(api_key=KEY, base_url=server.url)
        call: Any = Conversation(
            client,
            "agent_7",
            requires_auth=True,
            audio_interface=FakeAudioInterface(),
            callback_agent_response=said.append,
            callback_user_transcript=said.append,
        )
        call.start_session()
        deadline = time.monotonic() + 10
        whole = len(b"".join(make_answer_sound(QUICK, PCM16)))
        while len(b"".join(heard)) < whole and time.monotonic() < deadline:
            time.sleep(0.01)
        call.end_session()
        assert call.wait_for_session_end() == "conv_loopback"
        client._client_wrapper.httpx_client.httpx_client.close()

    async def use(server: VoiceLoopback) -> Call:
        await asyncio.to_thread(hold, server)
        return server.calls[0]

    call = serve(ELEVENLABS, use)
    assert b"".join(heard) == b"".join(make_answer_sound(QUICK, PCM16))
    assert sorted(said) == sorted([QUICK.text, QUICK.heard])
    assert typing.cast("ElevenLabsAgent", call.agent).pongs
    assert call.agent.close_request is None


def test_our_messages_equal_those_of_the_elevenlabs_sdk() -> None:
    override: Any = {"agent": {"prompt": {"prompt": "Be brief."}}, "tts": {"voice_id": "v1"}}

    async def use(server: VoiceLoopback) -> tuple[Any, list[ReceivedRequest], list[ReceivedRequest], list[Message]]:
        client = ElevenLabs(api_key=KEY, base_url=server.url)
        told = ConversationInitiationData(conversation_config_override=override)
        theirs: Any = Conversation(
            client, "agent_7", requires_auth=True, audio_interface=typing.cast("Any", object()), config=told
        )
        signed = await asyncio.to_thread(theirs._get_signed_url)
        client._client_wrapper.httpx_client.httpx_client.close()
        theirs.client_tools.stop()
        asked = list(server.requests)
        channel = await open_channel(ELEVENLABS, server, parameters={"voice": "v1"})
        await channel.send(b"\1\2" * 320)
        await channel.close()
        await asyncio.sleep(0.05)
        initiation = json.loads(theirs._create_initiation_message())
        return (initiation, signed), asked, server.requests[len(asked) :], server.calls[0].received

    (initiation, signed), [theirs], [ours, upgrade], received = serve(ELEVENLABS, use)
    assert (ours.method, ours.path, dict(ours.query)) == (theirs.method, theirs.path, dict(theirs.query))
    assert ours.headers["xi-api-key"] == theirs.headers["xi-api-key"] == KEY
    names_itself = {"source": "python_sdk", "version": initiation["source_info"]["version"]}
    assert initiation.pop("source_info") == names_itself  # which we are not
    assert json.loads(received[0]) == initiation
    assert json.loads(received[1]) == {"user_audio_chunk": base64.b64encode(b"\1\2" * 320).decode()}
    address, _, query = signed.partition("?")
    assert address.endswith(upgrade.path)
    assert dict(part.split("=") for part in query.split("&")) == {**dict(upgrade.query), **names_itself}


# The SDK of Deepgram


def make_settings() -> dict[str, Any]:
    return {
        "type": "Settings",
        "audio": {
            "input": {"encoding": "linear16", "sample_rate": 16000},
            "output": {"encoding": "linear16", "sample_rate": 24000, "container": "none"},
        },
        "agent": {
            "listen": {"provider": {"version": "v1", "type": "deepgram", "model": "nova-3", "language": "en"}},
            "think": {"provider": {"type": "open_ai", "model": "gpt-4o-mini"}, "prompt": "Be brief."},
            "speak": {"provider": {"type": "deepgram", "model": "aura-2-thalia-en"}},
        },
    }


def make_deepgram_client(server: VoiceLoopback) -> Any:
    there = server.url.replace("http", "ws")
    environment = DeepgramClientEnvironment(base=server.url, production=there, agent=there, agent_rest=server.url)
    return DeepgramClient(api_key=KEY, environment=environment)


@real_time()  # the SDK calls from its own thread
def test_the_deepgram_sdk_holds_a_conversation_and_sends_the_same_messages() -> None:
    got: list[Any] = []

    def hold(server: VoiceLoopback) -> None:
        client = make_deepgram_client(server)
        with client.agent.v1.connect() as connection:
            got.append(connection.recv())
            connection.send_settings(AgentV1Settings.model_validate(make_settings()))
            got.append(connection.recv())
            for frame in [*split_frames(make_tone(0.3, 16000), 16000), *[bytes(640)] * 8]:
                connection.send_media(frame)
            while getattr(got[-1], "type", "") != "AgentAudioDone":
                got.append(connection.recv())
        client._client_wrapper.httpx_client.httpx_client.close()

    async def use(server: VoiceLoopback) -> tuple[Call, Call]:
        await asyncio.to_thread(hold, server)
        channel = await open_channel(DEEPGRAM, server)
        await channel.send(split_frames(make_tone(0.3, 16000), 16000)[0])
        await channel.close()
        await asyncio.sleep(0.05)
        theirs, ours = server.calls
        return theirs, ours

    theirs, ours = serve(DEEPGRAM, use)
    assert b"".join(each for each in got if isinstance(each, bytes)) == b"".join(make_answer_sound(QUICK, PCM24))
    told = [each for each in got if not isinstance(each, bytes)]
    assert [each.type for each in told[:2]] == ["Welcome", "SettingsApplied"]
    words = {each.role: each.content for each in told if each.type == "ConversationText"}
    assert words == {"assistant": QUICK.text, "user": QUICK.heard}
    assert not any(each.model_extra for each in told), told
    assert (ours.request.path, dict(ours.request.query)) == (theirs.request.path, dict(theirs.request.query))
    assert ours.request.headers["Authorization"] == theirs.request.headers["Authorization"] == f"Token {KEY}"
    assert json.loads(ours.received[0]) == json.loads(theirs.received[0]) == make_settings()
    assert ours.received[1] == theirs.received[1]


def test_every_message_of_our_deepgram_server_is_known_to_its_sdk() -> None:
    known = {
        model.model_fields["type"].default: model
        for model in typing.get_args(V1SocketClientResponse)
        if hasattr(model, "model_fields") and "type" in model.model_fields
    }
    sent = [json.loads(each) for each in record_messages(DEEPGRAM) if isinstance(each, str)]
    for message in sent:
        model = known[message["type"]]
        assert {*message} <= {*model.model_fields}, message
        for name, field in model.model_fields.items():
            assert not field.is_required() or name in message, message
    named = {
        rule.match["type"]
        for rule in load_shipped_description("deepgram").downlink.rules
        if rule.match and isinstance(rule.match["type"], str)
    }
    assert named <= {*known}


def test_every_event_of_the_elevenlabs_sdk_is_known_or_logged() -> None:
    listed = {*typing.get_args(typing.get_args(ClientEvent)[0])}
    rules = load_shipped_description("elevenlabs").downlink.rules
    known: set[str] = set()
    for rule in rules:
        kind = (rule.match or {})["type"]
        known |= {*kind["one_of"]} if isinstance(kind, dict) else {kind}
    assert known <= listed
    wire = DeclaredWire(load_shipped_description("elevenlabs"), make_values("agent_7"))
    for name in sorted(listed - known):
        [event] = wire.read_events(json.dumps({"type": name}))
        assert (event.kind, event.detail) == ("unknown", {"type": name})


def test_a_description_round_trips_through_plain_data() -> None:
    for ready in ALL:
        given = load_shipped_description(ready.name)
        plain = json.loads(json.dumps(msgspec.to_builtins(given)))
        opened = DeclaredProvider.open(Target("", ready.name, "ws://host", {"description": plain}), None)
        assert opened._description == given
    gc.collect()
