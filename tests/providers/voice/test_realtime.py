"""OpenAI's Realtime API: server and adapter checked with its SDK; then turns, barge-in, faults and broken frames."""

import asyncio
import base64
import json
import subprocess
import sys
import typing
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from openai import AsyncOpenAI
from openai.types.realtime import RealtimeClientEvent, RealtimeServerEvent
from pydantic import TypeAdapter

from pramana import clock
from pramana.errors import (
    AuthenticationFailed,
    BrokenReply,
    ProviderError,
    RateLimited,
    Rejected,
    Unavailable,
    Unreachable,
)
from pramana.loopback.script import make_answer_sound
from pramana.loopback.voice import ReceivedRequest, Script, VoiceLoopback
from pramana.model import Line, Target, Utterance
from pramana.providers.accounts import Account
from pramana.providers.voice.realtime import RealtimeProvider, RealtimeWire
from pramana.providers.voice.socket import SocketChannel
from pramana.providers.voice.vocabulary import CallSetup, Event, Format, Message, ReceivedEvents
from pramana.run.call import Conversation, FinishedCall, Patience

from ...loopback.fuzz import read_broken_frames, record_agent_messages
from ...loopback.realtime import EVENTS, RealtimeAgent
from ...virtual_time import real_time
from . import callers
from .callers import QUICK, flatten_events, join_sound, make_tone, quick_script, split_frames, take_turn

pytestmark = pytest.mark.usefixtures("virtual_time")
KEY = "sk-test-0123456789abcdef"
MODEL = "gpt-realtime"
DIAL = CallSetup(MODEL, "Be brief.", "en-GB", {"voice": "marin"})
SESSION: Any = {
    "type": "realtime",
    "output_modalities": ["audio"],
    "instructions": "Be brief.",
    "audio": {
        "input": {
            "format": {"type": "audio/pcm", "rate": 24000},
            "transcription": {"model": "gpt-4o-mini-transcribe", "language": "en"},
            "turn_detection": {"type": "server_vad"},
        },
        "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "marin"},
    },
}
T = typing.TypeVar("T")


SPEECH, SILENCE = split_frames(make_tone(0.3, 24000), 24000), bytes(960)


def serve(use: Callable[[VoiceLoopback], Awaitable[T]], script: Script = QUICK, agent: Any = RealtimeAgent) -> T:
    return callers.serve(agent, use, script, KEY)


async def open_channel(server: VoiceLoopback, dial: CallSetup = DIAL, key: str | None = KEY) -> SocketChannel:
    return await RealtimeProvider(Account(server.url, key)).dial(dial)


def call_agent(script: Script = QUICK, agent: Any = RealtimeAgent, **given: Any) -> list[ReceivedEvents]:
    async def use(server: VoiceLoopback) -> list[ReceivedEvents]:
        channel = await open_channel(server)
        try:
            return await take_turn(channel, **given)
        finally:
            await channel.close()

    return serve(use, script, agent)


def expect_refusal(script: Script = QUICK, agent: Any = RealtimeAgent, **given: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        serve(lambda server: open_channel(server, **given), script, agent)
    assert KEY not in str(caught.value)
    return caught.value


# The vendor SDK


@asynccontextmanager
async def open_sdk_session(server: VoiceLoopback) -> typing.AsyncIterator[Any]:
    async with (
        AsyncOpenAI(api_key=KEY, base_url=server.url) as client,
        client.realtime.connect(model=MODEL) as connection,
    ):
        yield connection


def test_the_sdk_holds_a_conversation_and_knows_every_event() -> None:
    async def use(server: VoiceLoopback) -> tuple[list[Any], list[Message]]:
        got: list[Any] = []
        async with open_sdk_session(server) as connection:
            got.append(await connection.recv())
            await connection.session.update(session=SESSION)
            for frame in [*SPEECH, *[SILENCE] * 10]:
                await connection.input_audio_buffer.append(audio=base64.b64encode(frame).decode())
            async for event in connection:
                got.append(event)
                if event.type == "rate_limits.updated":
                    break
        return got, server.calls[0].sent

    got, sent = serve(use)
    assert [event.type for event in got[:2]] == ["session.created", "session.updated"]
    said = b"".join(base64.b64decode(event.delta) for event in got if event.type == "response.output_audio.delta")
    assert said == b"".join(make_answer_sound(QUICK, Format("pcm", 24000)))
    done = {event.type: event for event in got}
    assert done["response.output_audio_transcript.done"].transcript == QUICK.text
    assert done["conversation.item.input_audio_transcription.completed"].transcript == QUICK.heard
    assert done["response.done"].response.status == "completed"
    assert done["response.done"].response.usage.input_tokens == 20
    known: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
    for message in sent:
        event = known.validate_json(message)
        assert not event.model_extra, event.type


def test_our_messages_equal_those_of_the_sdk() -> None:
    frame, cut = SPEECH[0], {"item_id": "item_7", "content_index": 0, "audio_end_ms": 120}

    async def use(server: VoiceLoopback) -> tuple[Any, Any]:
        async with open_sdk_session(server) as connection:
            await connection.recv()
            await connection.session.update(session=SESSION)
            await connection.input_audio_buffer.append(audio=base64.b64encode(frame).decode())
            await connection.conversation.item.truncate(item_id="item_7", content_index=0, audio_end_ms=120)
            await connection.recv()
        channel = await open_channel(server)
        await channel.send(frame)
        channel._wire.read_events(make_audio_delta("item_7", 0.12))
        await channel.interrupt(5.0)
        await channel.close()
        await asyncio.sleep(0.05)
        theirs, ours = server.calls
        return theirs, ours

    theirs, ours = serve(use)
    assert [json.loads(each) for each in ours.received] == [json.loads(each) for each in theirs.received]
    assert json.loads(ours.received[-1]) == {"type": "conversation.item.truncate", **cut}
    assert (
        (ours.request.path, dict(ours.request.query))
        == (theirs.request.path, dict(theirs.request.query))
        == (
            "/realtime",
            {"model": MODEL},
        )
    )
    for name in ("Authorization", "OpenAI-Beta", "OpenAI-Organization", "OpenAI-Project"):
        assert ours.request.headers.get(name) == theirs.request.headers.get(name)
    assert ours.request.headers["Authorization"] == f"Bearer {KEY}"
    assert ours.close_code == theirs.close_code == 1000
    known: TypeAdapter[Any] = TypeAdapter(RealtimeClientEvent)
    for message in ours.received:
        assert known.validate_json(message).to_dict(exclude_unset=True) == json.loads(message)


@pytest.mark.parametrize(
    ("sent", "code", "parameter"),
    [
        ("{", "invalid_json", None),
        ("[" * 100_000, "invalid_json", None),
        ("[]", "invalid_event", None),
        ("{}", "invalid_value", "type"),
        ('{"type":"session.delete"}', "invalid_value", "type"),
        ('{"type":"session.update"}', "missing_required_parameter", "session"),
        ('{"type":"session.update","session":{}}', "missing_required_parameter", "session.type"),
        ('{"type":"session.update","session":7}', "invalid_type", "session"),
        ('{"type":"session.update","session":{"type":"realtime","colour":1}}', "unknown_parameter", "session.colour"),
        (
            '{"type":"session.update","session":{"type":"realtime","audio":{"input":{"format":{"type":"audio/pcm",'
            '"rate":16000}}}}}',
            "invalid_value",
            "session.audio.input.format",
        ),
        (
            '{"type":"session.update","session":{"type":"realtime","output_modalities":["audio","text"]}}',
            "invalid_value",
            "session.output_modalities",
        ),
        ('{"type":"session.update","session":{"type":"realtime","model":"gpt-5"}}', "invalid_value", "session.model"),
        ('{"type":"input_audio_buffer.append"}', "missing_required_parameter", "audio"),
        ('{"type":"input_audio_buffer.append","audio":"?"}', "invalid_value", "audio"),
        (
            '{"type":"conversation.item.truncate","item_id":"a","content_index":0,"audio_end_ms":1}',
            "item_truncate_invalid_item_id",
            "item_id",
        ),
        (
            '{"type":"conversation.item.truncate","item_id":"a","content_index":-1,"audio_end_ms":1}',
            "invalid_value",
            "content_index",
        ),
    ],
)
def test_the_server_answers_an_invalid_event_with_an_error(sent: str, code: str, parameter: str) -> None:
    agent = RealtimeAgent(QUICK, ReceivedRequest("GET", "/realtime", {"model": MODEL}, {}, None))
    (said,) = agent.handle_message(sent)
    error = json.loads(said)["error"]
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", code, parameter)
    assert agent.close_request is None
    assert not agent.ready


def test_the_server_refuses_to_truncate_beyond_what_it_sent() -> None:
    agent = RealtimeAgent(QUICK, ReceivedRequest("GET", "/realtime", {"model": MODEL}, {}, None))
    agent.answer_start_messages()
    item = json.loads(agent.sound_messages(bytes(4800))[0])["item_id"]
    cut = {"type": "conversation.item.truncate", "item_id": item, "content_index": 0}
    (said,) = agent.handle_message(json.dumps({**cut, "audio_end_ms": 101}))
    assert "already shorter than 101ms" in json.loads(said)["error"]["message"]
    (said,) = agent.handle_message(json.dumps({**cut, "audio_end_ms": 100}))
    assert json.loads(said)["type"] == "conversation.item.truncated"


def test_the_server_knows_every_client_event_of_the_sdk() -> None:
    variants = typing.get_args(typing.get_args(RealtimeClientEvent)[0])
    assert {typing.get_args(each.model_fields["type"].annotation)[0] for each in variants} == set(EVENTS)
    fields = {typing.get_args(each.model_fields["type"].annotation)[0]: set(each.model_fields) for each in variants}
    for kind, known in EVENTS.items():
        assert {name.rstrip("!") for name in known} | {"type", "event_id"} == fields[kind]


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
        Format("pcm", 24000),
        Format("pcm", 24000),
        False,
    )
    order = [event.kind for event in found if event.kind not in ("agent_audio", "agent_text", "user_text")]
    assert order == ["unknown", "ready", "user_speech_start", "user_speech_stop", "usage", "turn_done"]
    assert found[0].detail == {"event": "session.created"}
    assert join_sound(heard) == b"".join(make_answer_sound(QUICK, Format("pcm", 24000)))
    assert [event.text for event in found if event.kind == "agent_text" and event.final] == [QUICK.text]
    assert "".join(event.text for event in found if event.kind == "agent_text" and not event.final) == QUICK.text
    assert [event.text for event in found if event.kind == "user_text" and event.final] == [QUICK.heard]
    (usage,) = flatten_events(heard, "usage")
    assert usage.detail == {
        "input_tokens": 20,
        "output_tokens": 5,
        "cached_tokens": 2,
        "input_audio_tokens": 15,
        "output_audio_tokens": 4,
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
    assert logged.speech_end_at is not None
    assert 0.25 <= logged.sent_at - logged.speech_end_at < 0.5
    assert 0 <= at - logged.sent_at < 0.1
    assert logged.speech_end_within_s == pytest.approx(0.02, abs=0.002)


@pytest.mark.parametrize("transcript", ["late", "missing"])
def test_a_transcript_may_be_late_or_missing(transcript: Any) -> None:
    heard = call_agent(quick_script(transcript=transcript), linger_s=0.3)
    kinds = [event.kind for event in flatten_events(heard)]
    told = {event.kind: event.text for event in flatten_events(heard, "agent_text", "user_text") if event.final}
    assert "turn_done" in kinds
    if transcript == "missing":
        assert told == {}
    else:
        assert told == {"agent_text": QUICK.text, "user_text": QUICK.heard}
        assert kinds.index("turn_done") < kinds.index("agent_text")


def test_several_turns_in_one_call() -> None:
    async def use(server: VoiceLoopback) -> list[list[ReceivedEvents]]:
        channel = await open_channel(server)
        heard = [await take_turn(channel, linger_s=0.1) for _ in range(3)]
        await channel.close()
        return heard

    script = quick_script(interrupt=False)
    for heard in serve(use, script):
        assert [event.text for event in flatten_events(heard, "turn_done")] == ["completed"]
        assert len(join_sound(heard)) == int(0.45 * 48000)


def test_an_agent_may_speak_first() -> None:
    async def use(server: VoiceLoopback) -> tuple[list[str], Any]:
        channel = await open_channel(server)
        kinds: list[str] = []
        while "turn_done" not in kinds:
            kinds += [event.kind for event in (await channel.receive()).events]
        await channel.close()
        return kinds, server.logged_answers()[0]

    kinds, logged = serve(use, quick_script(greets=True))
    assert "agent_audio" in kinds
    assert logged.speech_end_at is None


def test_another_codec_is_taken_from_the_session() -> None:
    law = {"format": {"type": "audio/pcmu"}}

    async def use(server: VoiceLoopback) -> tuple[SocketChannel, list[ReceivedEvents]]:
        audio = {"input": {**law, "turn_detection": {"type": "server_vad"}}, "output": law}
        channel = await open_channel(server, CallSetup(MODEL, parameters={"audio": audio}))
        heard: list[ReceivedEvents] = []
        for frame in [b"\x00"] * 15 + [b"\xff"] * 10:
            await channel.send(frame * 160)
        while not flatten_events(heard, "turn_done"):
            heard.append(await channel.receive())
        await channel.close()
        return channel, heard

    channel, heard = serve(use)
    assert channel.uplink == channel.downlink == Format("mulaw", 8000)
    assert len(join_sound(heard)) == int(0.45 * 8000)


# Talking into the answer


def test_barge_in_interrupts_the_answer() -> None:
    async def use(server: VoiceLoopback) -> tuple[list[ReceivedEvents], Any]:
        channel = await open_channel(server)
        before = await take_turn(channel, last="agent_audio")
        after = await take_turn(channel, last="interrupted")
        await channel.interrupt(0.1)
        after += await take_turn(channel)
        await channel.close()
        return before + after, server.calls[0]

    heard, call = serve(use, Script(first_byte_s=0.02, hangover_s=0.1, audible_answer_s=3.0, sending_speed=2.0))
    found = [event.kind for event in flatten_events(heard, "user_speech_start", "interrupted", "turn_done", "error")]
    assert found[:4] == ["user_speech_start", "user_speech_start", "interrupted", "turn_done"]
    assert flatten_events(heard, "turn_done")[0].text == "cancelled"
    assert flatten_events(heard, "turn_done")[0].detail == {"reason": "turn_detected"}
    assert not flatten_events(heard, "error")
    (cut,) = [each for each in map(json.loads, call.received) if each["type"] == "conversation.item.truncate"]
    assert cut["audio_end_ms"] == 100
    assert any(json.loads(each)["type"] == "conversation.item.truncated" for each in call.sent)


def test_an_answer_that_is_sent_but_still_playing_is_interrupted() -> None:
    async def use(server: VoiceLoopback) -> list[ReceivedEvents]:
        channel = await open_channel(server)
        before = await take_turn(channel)
        after = await take_turn(channel, last="user_speech_start")
        await channel.interrupt(0.2)
        await channel.close()
        return before + after

    heard = serve(use, Script(first_byte_s=0.02, hangover_s=0.1, audible_answer_s=20.0, sending_speed=1000.0))
    kinds = [event.kind for event in flatten_events(heard, "turn_done", "interrupted")]
    assert kinds == ["turn_done", "interrupted"]


def test_an_answer_is_interrupted_once_and_the_call_knows_whether_anything_was_left_of_it() -> None:
    wire, started = RealtimeWire(DIAL), make_event("input_audio_buffer.speech_started")
    assert [event.kind for event in wire.read_events(started)] == ["user_speech_start"]
    wire.read_events(make_audio_delta("item_1", 0.1))
    assert [event.kind for event in wire.read_events(started)] == ["user_speech_start", "interrupted"]
    assert [event.kind for event in wire.read_events(started)] == ["user_speech_start"]


def test_an_agent_configured_not_to_yield_is_not_interrupted() -> None:
    dial = CallSetup(MODEL, parameters={"turn_detection": {"type": "server_vad", "interrupt_response": False}})
    wire = RealtimeWire(dial)
    wire.read_events(make_audio_delta("item_1", 0.1))
    assert [event.kind for event in wire.read_events(make_event("input_audio_buffer.speech_started"))] == [
        "user_speech_start"
    ]


def test_late_audio_of_an_interrupted_answer_is_dropped() -> None:
    wire = RealtimeWire(DIAL)
    wire.read_events(make_event("response.created", response={"id": "resp_1"}))
    wire.read_events(make_audio_delta("item_1", 0.1))
    kinds = [event.kind for event in wire.read_events(make_event("input_audio_buffer.speech_started"))]
    assert kinds == ["user_speech_start", "interrupted"]
    assert wire.read_events(make_audio_delta("item_1", 0.1)) == []
    assert wire.read_events(make_audio_delta("item_2", 0.1, response_id="resp_2"))


@pytest.mark.parametrize("done", [False, True])
def test_text_of_an_interrupted_answer_is_logged_but_no_answer(done: bool) -> None:
    wire = RealtimeWire(DIAL)
    wire.read_events(make_event("response.created", response={"id": "resp_1"}))
    wire.read_events(make_audio_delta("item_1", 3.0))
    if done:  # all was sent, and still plays
        wire.read_events(make_event("response.done", response={"id": "resp_1", "status": "completed"}))
    wire.read_events(make_event("input_audio_buffer.speech_started"))
    place = {"item_id": "item_1", "content_index": 0, "response_id": "resp_1"}
    name = "response.output_audio_transcript"
    (piece,) = wire.read_events(make_event(f"{name}.delta", **place, delta=" and"))
    (whole,) = wire.read_events(make_event(f"{name}.done", **place, transcript="One and"))
    assert (piece.kind, piece.detail) == ("unknown", {"event": f"{name}.delta", "text": " and"})
    assert (whole.kind, whole.detail) == ("unknown", {"event": f"{name}.done", "text": "One and"})
    del place["response_id"]  # as look-alikes of the server have it
    assert wire.read_events(make_event(f"{name}.done", **place, transcript="One and"))[0].kind == "unknown"
    wire.read_events(make_event("response.created", response={"id": "resp_2"}))
    (said,) = wire.read_events(make_event(f"{name}.done", item_id="item_2", response_id="resp_2", transcript="Two."))
    assert said == Event("agent_text", "Two.", final=True)


def test_no_text_of_an_interrupted_answer_leaks_into_the_next() -> None:
    """In OpenAI's order: a cancelled answer is transcribed to its end after the caller was recognised."""
    line = (8000 * np.sin(np.arange(6400) / 9)).astype(np.int16)
    lines = [Utterance(Line("one"), line, "a"), Utterance(Line("stop", barge_in_s=0.4), line, "b")]

    async def use(server: VoiceLoopback) -> tuple[FinishedCall, list[str]]:
        held = await Conversation(await open_channel(server), lines, {"rate": 24000}, Patience(5, 30)).hold_call()
        return held, [json.loads(each)["type"] for each in server.calls[0].sent]

    script = Script(
        first_byte_s=0.05, hangover_s=0.1, audible_answer_s=2.0, sending_speed=1.2, text="So it is, and so it was."
    )
    held, sent = serve(use, script)
    after = sent[len(sent) - sent[::-1].index("input_audio_buffer.speech_started") :]
    assert after[:5] == [
        "response.output_audio.delta",
        "response.output_audio_transcript.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
    ]
    assert held.answers[1] == script.text
    log = [json.loads(each) for each in held.log.splitlines()]
    stale = [each["detail"]["text"] for each in log if each["event"] == "unknown" and "text" in each["detail"]]
    assert stale[0] == " and"
    assert stale[1].endswith(" and")


@pytest.mark.parametrize(
    ("played_s", "cuts"),
    [
        (0.25, [("item_1", 250)]),
        (9.0, [("item_2", 500)]),
        (-1.0, [("item_1", 0), ("item_2", 0)]),
        (1.2, [("item_2", 200)]),
        (0.0, [("item_1", 0), ("item_2", 0)]),
    ],
)
def test_truncation_never_exceeds_what_was_sent(played_s: float, cuts: list[tuple[str, int]]) -> None:
    wire = RealtimeWire(DIAL)
    assert wire.interruption_messages(1.0) == []
    wire.read_events(make_audio_delta("item_1", 0.4))
    wire.read_events(make_audio_delta("item_1", 0.6))
    wire.read_events(make_audio_delta("item_2", 0.5))
    found = [json.loads(each) for each in wire.interruption_messages(played_s)]
    if played_s == 0.25:
        cuts = [*cuts, ("item_2", 0)]
    assert [(each["item_id"], each["audio_end_ms"]) for each in found] == cuts
    assert wire.interruption_messages(played_s) == []


# Faults


def test_a_close_in_mid_turn_is_a_classified_event() -> None:
    for close, kind in (
        ((1011, "Internal error"), "provider"),
        ((1001, "Your session hit the maximum duration of 60 minutes."), "timeout"),
    ):
        heard = call_agent(quick_script(close_mid_turn=close))
        found = flatten_events(heard)
        assert found[-1].kind == "closed"
        assert (found[-1].error, found[-1].detail) == (kind, {"code": close[0]})
        assert close[1] in found[-1].text
        assert any(event.audio for event in found)


def test_unknown_events_are_logged_and_ignored() -> None:
    for large in (False, True):
        heard = call_agent(quick_script(unknown_event=True, large_unknown_event=large))
        names = [event.detail["event"] for event in flatten_events(heard, "unknown")]
        assert names == ["session.created", "loopback.unheard_of", "loopback.unheard_of"]
        assert flatten_events(heard, "turn_done")
        assert not flatten_events(heard, "error")


def test_an_invalid_json_frame_is_an_error_and_the_call_continues() -> None:
    heard = call_agent(quick_script(bad_json=True))
    (error,) = flatten_events(heard, "error")
    assert error.error == "protocol"
    assert error.text == "a message of OpenAI of 33 characters is not JSON"
    assert flatten_events(heard, "turn_done")


def test_an_announced_sample_rate_is_used() -> None:
    async def use(server: VoiceLoopback) -> tuple[SocketChannel, list[ReceivedEvents]]:
        channel = await open_channel(server)
        heard = await take_turn(channel)
        await channel.close()
        return channel, heard

    channel, heard = serve(use, quick_script(wrong_rate=16000))
    assert (channel.uplink.rate, channel.downlink.rate) == (24000, 16000)
    assert len(join_sound(heard)) == int(0.45 * 32000)
    wrong = expect_refusal(quick_script(wrong_rate=96000))
    assert isinstance(wrong, Rejected)
    assert "sound format" in str(wrong)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(401, AuthenticationFailed), (403, AuthenticationFailed), (429, RateLimited), (500, Unavailable)],
)
def test_a_refused_upgrade_is_classified_by_its_status(status: int, kind: type[ProviderError]) -> None:
    error = expect_refusal(Script(status=status))
    assert isinstance(error, kind)
    assert error.status == status


def test_a_wrong_key_is_refused_and_never_shown() -> None:
    error = expect_refusal(key="sk-wrong-0123456789")
    assert isinstance(error, AuthenticationFailed)
    assert "OPENAI_API_KEY" in str(error)
    assert "sk-wrong" not in str(error)
    assert isinstance(expect_refusal(key=None), AuthenticationFailed)


def test_a_server_that_never_becomes_ready_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pramana.providers.voice.socket.HANDSHAKE_TIMEOUT_S", 0.2)
    began = clock.monotonic()
    error = expect_refusal(Script(hang="ready"))
    assert isinstance(error, Unavailable)
    assert "within 0.2 s" in str(error)
    assert clock.monotonic() - began < 2


def test_a_silent_server_gives_no_answer() -> None:
    async def use(server: VoiceLoopback) -> list[str]:
        channel = await open_channel(server)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.4):
                await take_turn(channel)
        await channel.close()
        return [json.loads(each)["type"] for each in server.calls[0].sent]

    assert "response.created" not in serve(use, quick_script(hang="answer"))


def test_an_unreachable_address_is_unavailable() -> None:
    async def use(server: VoiceLoopback) -> str:
        return server.url

    gone = serve(use)
    with pytest.raises(Unreachable):
        asyncio.run(RealtimeProvider(Account(gone, KEY)).dial(DIAL))


def test_an_invalid_session_is_refused_with_the_vendor_message() -> None:
    error = expect_refusal(dial=CallSetup(MODEL, parameters={"temperature": 0.5}))
    assert isinstance(error, Rejected)
    assert "Unknown parameter: 'session.temperature'" in str(error)


class KeyLeakingAgent(RealtimeAgent):
    """A server that repeats the key it was given, wherever it can."""

    def on_speech_start(self) -> list[Message]:
        key = self.request.headers["Authorization"].removeprefix("Bearer ")
        error = {"type": "server_error", "code": key, "message": f"I know {key}", "param": None}
        return [
            self._encode_event("error", error=error),
            self._encode_event(f"told.{key}"),
            self._encode_event("response.output_audio_transcript.done", item_id=key, content_index=0, transcript=key),
            self._encode_event("input_audio_buffer.speech_started", item_id=key, audio_start_ms=0),
            f'{{"cut": "{key}',
        ]

    def on_speech_stop(self) -> list[Message]:
        self.hang_up(1011, self.request.headers["Authorization"])
        return []


def test_the_key_is_in_no_event() -> None:
    heard = call_agent(QUICK, KeyLeakingAgent)
    found = flatten_events(heard)
    assert {"error", "unknown", "agent_text", "user_speech_start", "closed"} <= {event.kind for event in found}
    assert KEY not in repr(found)


# The wire alone


def make_event(kind: str, **fields: Any) -> str:
    return json.dumps({"type": kind, "event_id": "event_1", **fields})


def make_audio_delta(
    item: str, seconds: float, kind: str = "response.output_audio.delta", response_id: str = "resp_1"
) -> str:
    audio = base64.b64encode(bytes(round(seconds * 24000) * 2)).decode()
    return make_event(kind, item_id=item, content_index=0, response_id=response_id, output_index=0, delta=audio)


def read_message(message: str | bytes, parameters: dict[str, Any] | None = None) -> list[Event]:
    return RealtimeWire(CallSetup(MODEL, parameters=parameters or {})).read_events(message)


def test_beta_event_names_are_understood() -> None:
    assert read_message(make_audio_delta("item_1", 0.1, "response.audio.delta"))[0].audio == bytes(4800)
    assert read_message(make_event("response.audio_transcript.delta", delta="It"))[0] == Event("agent_text", "It")
    said = read_message(make_event("response.audio_transcript.done", item_id="a", content_index=0, transcript="It is."))
    assert said == [Event("agent_text", "It is.", final=True)]
    assert read_message(make_event("response.text.done", item_id="a", content_index=0, text="It is."))[0].final
    wire = RealtimeWire(DIAL)
    beta = {"id": "sess_1", "input_audio_format": "g711_ulaw", "output_audio_format": "pcm16"}
    assert wire.read_events(make_event("session.updated", session=beta))[0].kind == "ready"
    assert (wire.uplink, wire.downlink) == (Format("mulaw", 8000), Format("pcm", 24000))


def test_an_answer_in_two_parts_is_read_part_by_part() -> None:
    wire = RealtimeWire(DIAL)
    told = [
        make_event("response.output_audio_transcript.done", item_id=item, content_index=0, transcript=text)
        for item, text in (("a", "One."), ("b", "Two."))
    ]
    assert [wire.read_events(each) for each in told] == [
        [Event("agent_text", each, final=True)] for each in ("One.", "Two.")
    ]
    assert wire.read_events(told[1])[0].kind == "unknown"  # it is reported


def test_a_tool_call_is_an_event() -> None:
    (call,) = read_message(
        make_event("response.function_call_arguments.done", call_id="c", name="f", arguments='{"a":1}')
    )
    assert (call.kind, call.detail) == ("tool_call", {"name": "f", "call_id": "c", "arguments": '{"a":1}'})


def test_a_failed_response_is_an_error_and_ends_the_turn() -> None:
    failed = {"type": "server_error", "code": "insufficient_quota", "message": "You have no money left."}
    response = {"id": "r", "status": "failed", "status_details": {"type": "failed", "error": failed}, "usage": None}
    error, done = read_message(make_event("response.done", response=response))
    assert (error.kind, error.error, error.text) == ("error", "quota", "You have no money left.")
    assert (done.kind, done.text) == ("turn_done", "failed")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "invalid_request_error", "code": "invalid_api_key", "message": "m"}, "auth"),
        ({"type": "invalid_request_error", "code": "unknown_parameter", "message": "m", "param": "a"}, "bad_request"),
        (
            {"type": "invalid_request_error", "code": "invalid_value", "param": "session.audio.input.format.rate"},
            "unsupported_format",
        ),
        ({"type": "invalid_request_error", "code": "session_expired", "message": "m"}, "timeout"),
        ({"type": "rate_limit_error", "code": "rate_limit_exceeded", "message": "m"}, "rate_limit"),
        ({"type": "insufficient_quota", "code": "insufficient_quota", "message": "m"}, "quota"),
        ({"type": "server_error", "code": None, "message": "m"}, "provider"),
    ],
)
def test_errors_are_classified(error: dict[str, Any], kind: str) -> None:
    (found,) = read_message(make_event("error", error=error))
    assert (found.kind, found.error) == ("error", kind)


@pytest.mark.parametrize(
    "code", ["conversation_already_has_active_response", "response_cancel_not_active", "invalid_value", None]
)
def test_a_refused_request_does_not_end_the_call(code: str | None) -> None:
    error = {"type": "invalid_request_error", "code": code, "message": "No.", "param": None}
    wire = RealtimeWire(DIAL)
    assert wire.read_events(make_event("error", error=error))[0].kind == "error"  # the session could not be set up
    wire.read_events(make_event("session.updated", session={"id": "sess_1"}))
    (found,) = wire.read_events(make_event("error", error=error))
    named = {"code": code} if code else {}
    assert found == Event(
        "unknown", detail={"event": "error", "message": "No.", "type": "invalid_request_error", **named}
    )


@pytest.mark.parametrize(
    "error",
    [
        {"type": "invalid_request_error", "code": "invalid_api_key", "message": "m"},
        {"type": "invalid_request_error", "code": "insufficient_quota", "message": "m"},
        {"type": "invalid_request_error", "code": "session_expired", "message": "m"},
        {"type": "server_error", "code": None, "message": "m"},
    ],
)
def test_fatal_errors_end_the_call(error: dict[str, Any]) -> None:
    wire = RealtimeWire(DIAL)
    wire.read_events(make_event("session.updated", session={"id": "sess_1"}))
    assert wire.read_events(make_event("error", error=error))[0].kind == "error"


@pytest.mark.parametrize(
    "message",
    [
        "",
        "nonsense",
        "[]",
        "7",
        b"\xff\xfe",
        b"\x00" * 100,
        "[" * 100_000,
        '{"type":"error"}',
        '{"type":"error","error":null}',
        '{"type":"error","error":{"message":7}}',
        '{"type":"session.updated"}',
        '{"type":"session.updated","session":[]}',
        '{"type":"response.output_audio.delta"}',
        '{"type":"response.output_audio.delta","item_id":"a","delta":"?"}',
        '{"type":"response.output_audio.delta","item_id":"a","delta":"AAAA"}',
        '{"type":"response.output_audio.delta","item_id":{},"delta":"AAA="}',
        '{"type":"response.done","response":"done"}',
        '{"type":"response.done","response":{"status":["completed"]}}',
    ],
)
def test_a_malformed_message_is_a_broken_reply_that_does_not_show_it(message: str | bytes) -> None:
    with pytest.raises(BrokenReply, match=r"^a message of OpenAI ") as caught:
        read_message(message)
    assert len(str(caught.value)) < 120


def test_parameters_are_sent_in_the_session_fields() -> None:
    given = {"voice": "cedar", "speed": 1.2, "max_tokens": 99, "turn_detection": {"type": "semantic_vad"}, "seed": None}
    (created,) = RealtimeWire(CallSetup(MODEL, None, "no", given)).read_events(make_event("session.created"))
    session = json.loads(str(created.messages_to_send[0]))["session"]
    assert session["audio"]["output"] == {
        "format": {"type": "audio/pcm", "rate": 24000},
        "voice": "cedar",
        "speed": 1.2,
    }
    assert session["audio"]["input"]["turn_detection"] == {"type": "semantic_vad"}
    assert session["audio"]["input"]["transcription"]["language"] == "no"
    assert session["max_output_tokens"] == 99
    assert session.keys() == {"type", "output_modalities", "audio", "max_output_tokens"}


def test_broken_frames_raise_only_our_errors() -> None:
    def make_wire() -> RealtimeWire:
        return RealtimeWire(DIAL)

    samples = record_agent_messages(
        RealtimeAgent(QUICK, ReceivedRequest("GET", "/realtime", {"model": MODEL}, {}, None)), make_wire()
    )
    assert {json.loads(each)["type"] for each in samples} >= {"session.created", "response.done", "error"}
    met = read_broken_frames(make_wire, samples, 2000)
    assert met["refused"] > 500
    assert met["agent_text"] > 10


# The account


def test_callable_models_are_listed() -> None:
    async def use(server: VoiceLoopback) -> list[str]:
        provider = RealtimeProvider.open(Target("openai-realtime:x", "openai-realtime", "x"), Account(server.url, KEY))
        try:
            return await provider.models()
        finally:
            await provider.close()

    assert serve(use) == ["gpt-realtime", "gpt-realtime-mini"]


@real_time()  # the server is another process
def test_the_server_runs_as_a_program_and_writes_its_log(tmp_path: Path) -> None:
    log = tmp_path / "turns.jsonl"
    command = [sys.executable, "-m", "pramana.loopback", "realtime", "--first-byte", "0.05"]
    command += ["--hangover", "0.1", "--answer", "0.2", "--leading-silence", "0.1", "--log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            url = process.stdout.readline().strip()

            async def use() -> float:
                channel = await RealtimeProvider(Account(url, KEY)).dial(CallSetup("call-7"))
                heard = await take_turn(channel)
                await channel.close()
                return next(each.received_at for each in heard if any(event.audio for event in each.events))

            at = asyncio.run(use())
        finally:
            process.terminate()
    (logged,) = map(json.loads, log.read_text().splitlines())
    assert logged.keys() == {
        "call",
        "asked",
        "speech_end_at",
        "speech_end_within_s",
        "sent_at",
        "leading_silence_s",
        "waited_s",
    }
    assert (logged["call"], logged["asked"], logged["leading_silence_s"]) == (0, "call-7", 0.1)
    assert 0 <= at - logged["sent_at"] < 0.1


# ── Memory ──


def make_part(item: str, data: str = "AAA=", index: int = 0) -> str:
    return json.dumps({"type": "response.output_audio.delta", "item_id": item, "delta": data, "content_index": index})


def test_empty_audio_is_not_remembered() -> None:
    wire = RealtimeWire(DIAL)
    for number in range(50):
        assert wire.read_events(make_part(f"{number}", "")) == []
    assert (wire._items, wire._has_sounded) == ({}, False)
    started = wire.read_events('{"type":"input_audio_buffer.speech_started"}')
    assert [event.kind for event in started] == ["user_speech_start"]


@pytest.mark.parametrize(
    "message",
    [
        {"type": "response.output_audio.delta", "delta": "AAA=", "item_id": "x" * 201},
        {"type": "response.created", "response": {"id": "x" * 201}},
        {"type": "response.output_audio_transcript.done", "transcript": "a", "item_id": "x" * 201},
    ],
)
def test_an_oversized_id_is_refused(message: dict[str, Any]) -> None:
    wire = RealtimeWire(DIAL)
    with pytest.raises(BrokenReply, match="does not fit the format"):
        wire.read_events(json.dumps(message))
    assert (wire._items, wire._transcribed_parts, wire._last_response) == ({}, set(), None)


def test_the_number_of_parts_of_a_response_is_bounded() -> None:
    wire = RealtimeWire(DIAL)
    for number in range(1000):
        wire.read_events(make_part("i", index=number))
    with pytest.raises(BrokenReply, match="does not fit the format"):
        wire.read_events(make_part("i", index=1000))
    for number in range(2000):
        said = {"type": "response.output_audio_transcript.done", "transcript": "a", "content_index": number}
        wire.read_events(json.dumps(said))
    assert len(wire._items) < 1100
    assert len(wire._transcribed_parts) < 1100
