"""The declarative adapter: each feature of a description, handling of keys, and malformed answers."""

import asyncio
import base64
import json
import typing
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from aiohttp import web

from pramana.errors import AuthenticationFailed, BrokenReply, InvalidInput, Rejected, Unavailable
from pramana.loopback.voice import Agent, ReceivedRequest, VoiceLoopback
from pramana.model import Target
from pramana.providers.accounts import Account
from pramana.providers.voice.declared import DeclaredProvider, load_shipped_description, parse_description
from pramana.providers.voice.declared_wire import DeclaredWire
from pramana.providers.voice.templates import (
    BadTemplate,
    MissingValue,
    fill_template,
    fill_url,
    find_at_path,
    parse_path,
    parse_template,
)
from pramana.providers.voice.vocabulary import CallSetup, Event, Format, Message

from . import callers
from .callers import QUICK

pytestmark = pytest.mark.usefixtures("virtual_time")
KEY = "sk-test-0123456789abcdef"
T = typing.TypeVar("T")
SOUND: dict[str, Any] = {"match": {"type": "sound"}, "event": ["agent_audio"], "audio": "data"}
DESCRIPTION: dict[str, Any] = {
    "name": "Desk",
    "url": "{base_url}/talk/{model}",
    "uplink": {},
    "downlink": {"rules": [SOUND]},
    "turn_end": {"silence_ms": 800},
}
VALUES = {"model": "m", "base_url": "", "key": KEY, "language": "en", "call_id": "c" * 32, "parameters": {}}


def make_description(*rules: Any, downlink: Any = None, **changed: Any) -> dict[str, Any]:
    return {**DESCRIPTION, "downlink": {"rules": [*rules, SOUND], **(downlink or {})}, **changed}


def make_wire(*rules: Any, values: Any = None, answer: Any = None, **changed: Any) -> DeclaredWire:
    return DeclaredWire(parse_description(make_description(*rules, **changed)), {**VALUES, **(values or {})}, answer)


def make_rule(kind: str, *events: str, **more: Any) -> dict[str, Any]:
    return {"match": {"type": kind}, "event": [*events], **more}


def make_message(kind: str, **more: Any) -> str:
    return json.dumps({"type": kind, **more})


def encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


# Templates


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("plain", "plain"),
        ("{rate}", 16000),
        ("{rate:text}", "16000"),
        ("at {rate} Hz", "at 16000 Hz"),
        ("{who}", {"a": [1]}),
        ("{who.a[0]}", 1),
        ("is {who}", 'is {"a":[1]}'),
        ("{{rate}} {{", "{rate} {"),
        ("{none|calm}", "calm"),
        ("{none|0.5}", 0.5),
        ("{none|true}", True),
        ("{none|}", ""),
        ("{none|a|b}", "a|b"),
        ("{null|x}", "x"),
        ({"a?": "{none}", "b?": "{rate}", "c": {"d?": {"e": ["{none}"]}}}, {"b": 16000, "c": {}}),
        ([1, None, True, "{rate}"], [1, None, True, 16000]),
    ],
)
def test_a_template_is_filled(template: Any, filled: Any) -> None:
    values = {"rate": 16000, "who": {"a": [1]}, "null": None}
    made = fill_template(template, values)
    assert made == filled
    assert type(made) is type(filled)


def test_a_missing_value_is_named() -> None:
    with pytest.raises(MissingValue, match=r"who\.b"):
        fill_template({"a": "{who.b}"}, {"who": {"a": 1}})


@pytest.mark.parametrize("text", ["{", "}", "{a", "a}", "{a b}", "{}", "{1}", "{a.}", "{a..b}", "{a[x]}", "{a{b}}"])
def test_an_invalid_placeholder_is_refused(text: str) -> None:
    with pytest.raises(BadTemplate):
        parse_template(text)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a[", "a[b]", "a[-1]", "[0]b", "a[0]b"])
def test_an_invalid_path_is_refused(text: str) -> None:
    with pytest.raises(BadTemplate):
        parse_path(text)


def test_a_path_finds_existing_values_only() -> None:
    data = {"a": [{"b": None}], "": 1, "x-y": {"ü": 2}}
    assert find_at_path(data, parse_path("a[0].b")) is None
    assert find_at_path(data, parse_path("x-y.ü")) == 2
    missing = find_at_path(data, parse_path("a[1].b"))
    for path in ("b", "a.b", "a[0][0]", "a[0].b.c", "x-y[0]"):
        assert find_at_path(data, parse_path(path)) is missing


def test_values_in_a_url_are_encoded_and_cannot_change_the_host() -> None:
    values = {"base_url": "https://host/a", "model": "../x?y=&z#é/@evil"}
    assert fill_url("{base_url}/t/{model}", values) == "https://host/a/t/..%2Fx%3Fy%3D%26z%23%C3%A9%2F%40evil"
    assert fill_url("{model}", {"model": "wss://host/p?q=1"}) == "wss://host/p?q=1"


# What goes out


def test_a_handshake_waits_and_sends_in_order() -> None:
    steps = [
        {"send": [{"n": 1}, "HELLO {model}"]},
        {"wait": {"type": "welcome"}, "send": [{"n": 2}]},
        {"send": [{"n": 3}]},
        {"wait": {"type": "ready"}},
    ]
    call = make_wire(handshake=steps)
    assert not call.capabilities.ready_on_connect
    assert call.opening_messages() == ['{"n":1}', "HELLO m"]
    assert [event.kind for event in call.read_events(make_message("ready"))] == ["unknown"]  # it is not its turn yet
    [event] = call.read_events(make_message("welcome"))
    assert (event.kind, event.messages_to_send) == ("unknown", ('{"n":2}', '{"n":3}'))
    assert [event.kind for event in call.read_events(make_message("ready"))] == ["ready"]
    assert [event.kind for event in call.read_events(make_message("ready"))] == ["unknown"]


def test_an_error_before_the_call_is_ready_is_reported() -> None:
    call = make_wire(make_rule("no", "error", text="why", error="quota"), handshake=[{"wait": {"type": "ready"}}])
    assert [(event.kind, event.error, event.text) for event in call.read_events(make_message("no", why="spent"))] == [
        ("error", "quota", "spent")
    ]


def test_frames_are_counted_and_numbered() -> None:
    template = {"a": "{audio}", "f": "{frame}", "ms": "{milliseconds:text}", "s": "{sequence}", "r": "{uplink.rate}"}
    call = make_wire(
        uplink={"send": template, "codec": "mulaw", "rate": 8000},
        handshake=[{"send": [{"s": "{sequence}"}, {"t": 1}]}],
        bye=[{"s": "{sequence}"}],
    )
    assert call.opening_messages() == ['{"s":1}', '{"t":1}']
    [first], [second] = call.sound_messages(bytes(160)), call.sound_messages(bytes(160))
    assert isinstance(first, str)
    assert json.loads(first) == {"a": encode_base64(bytes(160)), "f": 1, "ms": "0", "s": 2, "r": 8000}
    assert isinstance(second, str)
    assert json.loads(second) == {"a": encode_base64(bytes(160)), "f": 2, "ms": "20", "s": 3, "r": 8000}
    assert call.closing_messages() == ['{"s":4}']
    assert make_wire().sound_messages(b"ab") == [b"ab"]


def test_an_interruption_message_states_how_much_was_played() -> None:
    call = make_wire(interrupt=[{"cut": "{played_ms}"}])
    assert [call.interruption_messages(seconds) for seconds in (0.1234, -1.0, 2)] == [
        ['{"cut":123}'],
        ['{"cut":0}'],
        ['{"cut":2000}'],
    ]
    assert make_wire().interruption_messages(1.0) == []


def test_a_message_that_json_cannot_represent_is_our_own_error() -> None:
    for odd in (float("nan"), object(), {1, 2}):
        call = make_wire(values={"parameters": {"x": odd}}, bye=[{"x?": "{parameters.x}"}])
        with pytest.raises(Rejected, match="cannot be written as JSON"):
            call.closing_messages()
    assert make_wire(values={"parameters": {"x": "\ud800"}}, bye=["{parameters.x|}"]).closing_messages() == ["?"]


# What comes in


@pytest.mark.parametrize(
    ("match", "message", "holds"),
    [
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": None}, {"a": None}, True),
        ({"a": None}, {}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"a.b[0]": "x"}, {"a": {"b": ["x"]}}, True),
        ({"a": 1, "b": 2}, {"a": 1}, False),
        ({"a": {"one_of": [1, "x"]}}, {"a": "x"}, True),
        ({"a": {"one_of": [1, "x"]}}, {"a": "y"}, False),
        ({"a": {"present": True}}, {"a": None}, True),
        ({"a": {"present": False}}, {"a": None}, False),
        ({"a": {"present": False}}, {}, True),
        ({"[0].a": 1}, [{"a": 1}], True),
        ({"a": {"present": False}}, 7, True),
    ],
)
def test_rules_match_messages(match: Any, message: Any, *, holds: bool) -> None:
    call = make_wire({"match": match, "event": ["user_speech_start"]})
    kind = "user_speech_start" if holds else "unknown"
    assert [event.kind for event in call.read_events(json.dumps(message))] == [kind]


def test_the_first_matching_rule_applies_and_may_give_several_events() -> None:
    call = make_wire(make_rule("x", "user_speech_start", "interrupted"), make_rule("x", "error"))
    assert [event.kind for event in call.read_events(make_message("x"))] == ["user_speech_start", "interrupted"]


def test_a_rule_without_an_event_gives_none() -> None:
    assert make_wire(make_rule("x")).read_events(make_message("x")) == []


def test_text_is_read_and_final_where_a_path_says_so() -> None:
    call = make_wire(make_rule("w", "agent_text", text="t.w", final="t.done"))
    assert call.read_events(make_message("w", t={"w": "a", "done": True})) == [Event("agent_text", "a", final=True)]
    assert call.read_events(make_message("w", t={"w": "a", "done": "yes"})) == [Event("agent_text", "a")]
    assert call.read_events(make_message("w")) == [Event("agent_text")]
    assert call.read_events('{"type":"w","t":{"w":"\\ud800!"}}') == [Event("agent_text", "?!")]
    with pytest.raises(BrokenReply, match=r"t\.w is a int, expected text"):
        call.read_events(make_message("w", t={"w": 7}))


def test_half_a_sample_waits_for_its_other_half() -> None:
    call = make_wire()
    heard = [
        call.read_events(make_message("sound", data=encode_base64(part))) for part in (b"abc", b"d", b"", b"ef", b"g")
    ]
    assert [event.audio for events in heard for event in events] == [b"ab", b"cd", b"ef"]
    spoilt = make_wire(make_rule("stop", "interrupted"))
    spoilt.read_events(make_message("sound", data=encode_base64(b"abc")))
    spoilt.read_events(make_message("stop"))
    assert spoilt.read_events(make_message("sound", data=encode_base64(b"de")))[0].audio == b"de"
    law = make_wire(downlink={"codec": "alaw", "rate": 8000})
    assert law.read_events(make_message("sound", data=encode_base64(b"abc")))[0].audio == b"abc"


def test_invalid_base64_audio_is_a_broken_reply() -> None:
    for data in ("a", "äöü", 7, {"a": 1}, "AAAA\nAAAA", "_-__"):
        with pytest.raises(BrokenReply):
            make_wire().read_events(make_message("sound", data=data))
    assert make_wire().read_events(make_message("sound")) == []


def test_audio_from_before_the_last_interruption_is_dropped() -> None:
    call = make_wire(make_rule("stop", "interrupted", id="n"), {**SOUND, "match": {"type": "s"}, "id": "n"})
    assert call.read_events(make_message("s", data=encode_base64(b"ab"), n=-1))[0].kind == "agent_audio"
    call.read_events(make_message("stop", n="7"))
    kinds = [call.read_events(make_message("s", data=encode_base64(b"ab"), n=number))[0].kind for number in (6, "7", 8)]
    assert kinds == ["unknown", "unknown", "agent_audio"]
    for number in (None, 1.5, "x", "9" * 99, True, [1]):
        with pytest.raises(BrokenReply, match="expected a number"):
            call.read_events(make_message("s", data=encode_base64(b"ab"), n=number))


def test_a_response_template_that_cannot_be_filled_is_a_broken_reply() -> None:
    call = make_wire(make_rule("ping", reply=[{"pong": "{message.id}"}]))
    [event] = call.read_events(make_message("ping", id=[1]))
    assert event.messages_to_send == ('{"pong":[1]}',)
    with pytest.raises(BrokenReply, match=r"has no message\.id"):
        call.read_events(make_message("ping"))


def test_a_response_is_due_after_the_preceding_audio_was_played() -> None:
    call = make_wire(make_rule("mark", reply=[{"mark": "{message.n}"}], when="played"), downlink={"rate": 16000})
    assert call.read_events(make_message("mark", n=0))[0].messages_to_send == ('{"mark":0}',)
    call.sound_messages(bytes(640))
    call.read_events(make_message("sound", data=encode_base64(bytes(1280))))  # 40 ms
    assert call.read_events(make_message("mark", n=1)) == []
    call.read_events(make_message("sound", data=encode_base64(bytes(640))))
    assert call.read_events(make_message("mark", n=2)) == []
    sent = [call.sound_messages(bytes(640))[:-1] for _ in range(5)]
    assert sent == [[], [], ['{"mark":1}'], ['{"mark":2}'], []]


def test_a_wire_reports_interrupted_whenever_the_agent_does() -> None:
    call = make_wire(make_rule("talk", "user_speech_start", "interrupted"), downlink={"rate": 16000})
    kinds = [event.kind for event in call.read_events(make_message("talk"))]
    call.read_events(make_message("sound", data=encode_base64(bytes(1280))))
    assert (
        [event.kind for event in call.read_events(make_message("talk"))]
        == kinds
        == ["user_speech_start", "interrupted"]
    )
    assert call.capabilities.reports_interruptions
    assert not make_wire(make_rule("talk", "user_speech_start")).capabilities.reports_interruptions


def test_a_turn_ends_by_message_silence_or_both() -> None:
    both = make_wire(
        make_rule("over", "usage", detail={"output_tokens": "n"}),
        turn_end={"match": {"type": "over"}, "silence_ms": 600},
    )
    assert [event.kind for event in both.read_events(make_message("over", n=3))] == ["usage", "turn_done"]
    assert both.capabilities.answer_end_silence_s == 0.6
    assert make_wire(turn_end={"match": {"type": "over"}}).capabilities.answer_end_silence_s is None


def test_details_are_bounded_and_serialisable() -> None:
    call = make_wire(make_rule("t", "tool_call", detail={"a": "a", "b": "b"}))
    deep: Any = "x"
    for _ in range(50):
        deep = [deep]
    [event] = call.read_events(
        make_message("t", a={"n": 10**400, "deep": deep, "many": list(range(1000)), "odd": "\ud800"})
    )
    detail: Any = event.detail
    assert "b" not in detail
    assert (detail["a"]["n"], len(detail["a"]["many"]), detail["a"]["odd"]) == (str(10**400), 100, "?")
    assert "…" in json.dumps(detail["a"]["deep"], ensure_ascii=False)


def test_an_error_without_a_path_shows_the_message() -> None:
    [event] = make_wire(make_rule("bad", "error")).read_events(make_message("bad", why="so"))
    assert (event.text, event.error) == ('{"type": "bad", "why": "so"}', "provider")


def test_unknown_messages_are_named_by_their_type_if_they_have_one() -> None:
    call = make_wire(make_rule("a"), make_rule("b"))
    assert call.read_events(make_message("c" * 999, x=1))[0].detail == {
        "type": "(999 characters)"
    }  # cut off, a key in it would pass
    assert call.read_events('{"y":1}')[0].detail == {"keys": ["y"]}
    assert call.read_events("7")[0].detail == {}
    assert call.read_events("null")[0].kind == "unknown"
    both = make_wire({"binary": True, "event": []})
    assert both.read_events(b"\x00\x01") == []


def test_json_may_be_binary_unless_audio_is() -> None:
    assert make_wire().read_events(make_message("sound", data=encode_base64(b"ab")).encode())[0].audio == b"ab"
    with pytest.raises(BrokenReply, match="is not JSON"):
        make_wire().read_events(b"\xff\xfe")


def test_an_envelope_is_unwrapped() -> None:
    call = make_wire(make_rule("x", "user_speech_start"), downlink={"envelope": "message"})
    for message in ({"message": {"type": "x"}}, {"type": "x"}, {"type": "x", "message": "words"}):
        assert call.read_events(json.dumps(message))[0].kind == "user_speech_start"


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"a":' * 5000, "\x00", "pong", "'"])
def test_invalid_json_is_a_broken_reply_shown_in_full_or_not_at_all(text: str) -> None:
    with pytest.raises(BrokenReply, match="a message of Desk is not JSON: ") as caught:
        make_wire().read_events(text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1000, None),
        (1001, None),
        (1005, None),
        (1006, "network"),
        (1011, "provider"),
        (1007, "bad_request"),
        (4001, "auth"),
        (4444, "provider"),
    ],
)
def test_a_closed_connection_is_classified(code: int, kind: str | None) -> None:
    event = make_wire(close={"4001": "auth"}).read_close(code, "why")
    assert (event.kind, event.text, event.error) == ("closed", f"closed with {code}: why", kind)
    assert make_wire().read_close(1000, "\ud800").text == "closed with 1000: ?"


# How sound travels


@pytest.mark.parametrize(
    ("announced", "form"),
    [
        ("pcm_16000", Format("pcm", 16000)),
        ("ulaw_8000", Format("mulaw", 8000)),
        ("ALAW_8000", Format("alaw", 8000)),
        ("pcm_s16le_44100", Format("pcm", 44100)),
    ],
)
def test_an_announced_audio_format_is_used(announced: str, form: Format) -> None:
    told = {"match": {"type": "ready"}, "format": "sound"}
    call = make_wire(downlink={"announced": told}, uplink={"announced": told}, handshake=[{"wait": {"type": "ready"}}])
    assert [event.kind for event in call.read_events(make_message("ready", sound=announced))] == ["ready"]
    assert call.uplink == call.downlink == form


@pytest.mark.parametrize(
    "announced", ["opus_48000", "pcm", "pcm_", "pcm_0", "pcm_999999999", "pcm_x", 16000, None, "", {"a": 1}]
)
def test_an_unknown_audio_format_is_an_error(announced: Any) -> None:
    told = {"match": {"type": "ready"}, "format": "sound"}
    call = make_wire(downlink={"announced": told}, handshake=[{"wait": {"type": "ready"}}])
    [event] = call.read_events(make_message("ready", sound=announced))
    assert (event.kind, event.error) == ("error", "unsupported_format")
    assert call.downlink == Format("pcm", 16000)
    [event] = call.read_events(make_message("ready"))
    assert event.text == "sound, which should announce the sound format, is missing"


def test_codec_and_rate_may_be_announced_separately_or_before_the_call() -> None:
    dial = {"path": "/call", "socket": "url", "method": "POST"}
    told = {"codec": "as.codec", "rate": "as.rate"}
    call = make_wire(dial=dial, downlink={"announced": told}, answer={"as": {"codec": "PCMU", "rate": "8000"}})
    assert (call.uplink, call.downlink) == (Format("pcm", 16000), Format("mulaw", 8000))
    with pytest.raises(Rejected, match=r"supported are pcm, mulaw and alaw"):
        make_wire(dial=dial, downlink={"announced": told}, answer={"as": {"codec": "mp3", "rate": 8000}})


def test_the_rate_may_come_from_a_custom_pattern_or_a_parameter() -> None:
    told = {"match": {"type": "ready"}, "format": "sound", "pattern": "{rate} Hz, mono"}
    call = make_wire(downlink={"announced": told, "codec": "alaw"}, handshake=[{"wait": {"type": "ready"}}])
    call.read_events(make_message("ready", sound="8000 Hz, mono"))
    assert call.downlink == Format("alaw", 8000)
    assert make_wire(uplink={"rate": "{parameters.rate|8000}"}).uplink.rate == 8000
    assert (
        make_wire(uplink={"rate": "{parameters.rate|8000}"}, values={"parameters": {"rate": 48000}}).uplink.rate
        == 48000
    )
    for odd in ("fast", 0, 1.5, True, None, [8000]):
        values = {"parameters": {"rate": odd}}
        if odd is None:
            assert make_wire(uplink={"rate": "{parameters.rate|8000}"}, values=values).uplink.rate == 8000
            continue
        with pytest.raises(Rejected, match="the announced sample rate is"):
            make_wire(uplink={"rate": "{parameters.rate|8000}"}, values=values)


def test_a_changed_audio_format_in_mid_call_is_an_error() -> None:
    call = make_wire(downlink={"announced": {"match": {"type": "sound"}, "rate": "rate"}})
    assert call.read_events(make_message("sound", data=encode_base64(b"ab"), rate=16000))[0].kind == "agent_audio"
    [event] = call.read_events(make_message("sound", data=encode_base64(b"ab"), rate=24000))
    assert (event.error, call.downlink.rate) == ("unsupported_format", 16000)
    assert event.text.endswith("in the description, set downlink.rate to 24000")


# Bare RTVI, which has no frames of protobuf


def test_rtvi_can_be_described_without_its_frames() -> None:
    bare = {
        "name": "Bot",
        "url": "{model}",
        "handshake": [
            {"send": [{"label": "rtvi-ai", "type": "client-ready", "id": "1", "data": {"version": "1.0.0"}}]},
            {"wait": {"type": "bot-ready"}},
        ],
        "uplink": {
            "send": {
                "label": "rtvi-ai",
                "type": "raw-audio",
                "id": "{frame:text}",
                "data": {"base64Audio": "{audio}", "sampleRate": "{uplink.rate}", "numChannels": 1},
            }
        },
        "downlink": {
            "rate": 24000,
            "announced": {"match": {"type": "bot-tts-audio"}, "rate": "data.sample_rate"},
            "rules": [{"match": {"type": "bot-tts-audio"}, "event": ["agent_audio"], "audio": "data.audio"}],
        },
        "turn_end": {"match": {"type": "bot-stopped-speaking"}},
    }
    call = DeclaredWire(parse_description(bare), {**VALUES, "model": "ws://bot"})
    assert json.loads(str(call.opening_messages()[0]))["type"] == "client-ready"
    assert call.read_events(make_message("bot-ready"))[0].kind == "ready"
    assert json.loads(str(call.sound_messages(b"ab")[0]))["data"] == {
        "base64Audio": "YWI=",
        "sampleRate": 16000,
        "numChannels": 1,
    }
    audio = {"audio": encode_base64(b"abcd"), "sample_rate": 24000, "num_channels": 1}
    assert call.read_events(make_message("bot-tts-audio", data=audio))[0].audio == b"abcd"
    assert call.read_events(make_message("bot-stopped-speaking"))[0].kind == "turn_done"


# Calls


class DeskAgent(Agent):
    """A server that answers a request by whatever the test says, and any call by nothing."""

    upgrade_path_pattern = r"/.*"
    answer: typing.ClassVar[Any] = {}
    status: typing.ClassVar[int] = 200

    @classmethod
    def make_upgrade_refusal(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response | None:  # noqa: ARG003
        return None

    @classmethod
    def answer_http(cls, request: ReceivedRequest, accepted_key: str | None) -> web.Response:  # noqa: ARG003
        told = json.dumps(cls.answer).replace("HOST", request.headers["Host"].replace("127.0.0.1", "localhost"))
        return web.Response(
            text=told.replace("HERE", request.headers["Host"]), content_type="application/json", status=cls.status
        )

    def handle_message(self, message: Message) -> list[Message]:  # noqa: ARG002
        return []


@pytest.fixture(autouse=True)
def _reset_desk() -> Iterator[None]:
    yield
    DeskAgent.answer, DeskAgent.status = {}, 200


def open_provider(plain: Any, url: str, key: str | None = KEY, **more: Any) -> DeclaredProvider:
    return DeclaredProvider.open(
        Target("websocket:a.yaml", "websocket", "m x", {"description": plain}), Account(url, key, **more)
    )


def call_desk(plain: Any, key: str | None = KEY, dial: CallSetup | None = None, **more: Any) -> list[ReceivedRequest]:
    async def use(server: VoiceLoopback) -> list[ReceivedRequest]:
        voice = open_provider(plain, server.url, key, **more)
        try:
            channel = await voice.dial(dial or CallSetup("m x"))
            await channel.close()
        finally:
            await voice.close()
        return server.requests

    return serve(use)


def serve(use: Callable[[VoiceLoopback], Awaitable[T]]) -> T:
    return callers.serve(DeskAgent, use, QUICK, KEY)


def test_the_address_and_the_headers_are_filled() -> None:
    [got] = call_desk(
        make_description(headers={"X-Key": "Key {key}", "X-Language": "{language}"}),
        dial=CallSetup("m x", language="no"),
    )
    assert (got.path, got.headers["X-Key"], got.headers["X-Language"]) == ("/talk/m x", f"Key {KEY}", "no")
    [got] = call_desk(make_description(headers={"X-Key": "Key {key}"}), key=None)
    assert "X-Key" not in got.headers


def test_a_key_may_be_part_of_the_url_and_is_never_shown() -> None:
    [got] = call_desk(make_description(url="{base_url}/talk?token={key|}"))
    assert got.query["token"] == KEY
    voice = open_provider(make_description(url="{base_url}/talk?token={key|}"), "http://127.0.0.1:1")
    with pytest.raises(Unavailable) as caught:
        asyncio.run(voice.dial(CallSetup("m")))
    assert KEY not in str(caught.value)
    assert KEY not in repr(voice._http.account)


def test_a_key_with_a_line_break_is_refused_before_the_call() -> None:
    voice = open_provider(make_description(headers={"X": "{key}"}), "http://127.0.0.1:1", key="sk\nX-Evil: 1")
    with pytest.raises(AuthenticationFailed, match="a line break") as caught:
        asyncio.run(voice.dial(CallSetup("m")))
    assert "Evil" not in str(caught.value)
    voice = open_provider(make_description(headers={"X": "{model}"}), "http://127.0.0.1:1")
    with pytest.raises(Rejected, match="the header X for Desk contains a line break"):
        asyncio.run(voice.dial(CallSetup("m\r\nX-Evil: 1")))


@pytest.mark.parametrize("url", ["", "desk", "ftp://desk", "wss://", "wss:///a", "ws://[", "ws://" + "a" * 70 + ".b"])
def test_an_invalid_address_as_model_is_refused(url: str) -> None:
    async def use() -> None:
        await DeclaredProvider.open(Target("", "twilio", url), None).dial(CallSetup(url))

    with pytest.raises((InvalidInput, Rejected)):
        asyncio.run(use())


DIAL = {"path": "/calls/{model}", "socket": "at.url", "headers": {"X-Key": "{key}"}}


def test_the_call_url_comes_from_the_answer() -> None:
    DeskAgent.answer = {"at": {"url": "ws://HERE/elsewhere?s=1"}}
    asked, call = call_desk(make_description(dial=DIAL, headers={"X-Key": "{key}"}))
    assert (asked.method, asked.path, asked.headers["X-Key"]) == ("GET", "/calls/m x", KEY)
    assert (call.path, call.query["s"], call.headers["X-Key"]) == ("/elsewhere", "1", KEY)


def test_a_request_may_have_a_body() -> None:
    DeskAgent.answer = {"at": {"url": "ws://HERE/elsewhere"}}
    body = {"who": "{model}", "note?": "{voice}", "say?": "{system_prompt}", "n": 1}
    dial = CallSetup("m x", "Be brief.")
    asked, _ = call_desk(make_description(dial={**DIAL, "method": "POST", "body": body}), dial=dial)
    assert (asked.method, asked.body) == ("POST", {"who": "m x", "say": "Be brief.", "n": 1})


def test_key_and_headers_are_not_sent_to_another_host_named_in_an_answer() -> None:
    DeskAgent.answer = {"at": {"url": "ws://HOST/elsewhere"}}  # by another name
    headers = {"X-Key": "{key}", "X-Open": "yes"}
    asked, call = call_desk(make_description(dial=DIAL, headers=headers), headers={"X-Own": "secret"})
    assert (asked.headers["X-Key"], asked.headers["X-Own"]) == (KEY, "secret")
    assert call.headers["X-Open"] == "yes"
    assert "X-Key" not in call.headers
    assert "X-Own" not in call.headers


@pytest.mark.parametrize("answer", [{}, [], None, 7, {"at": 1}, {"at": {"url": None}}, {"at": {"url": {}}}])
def test_an_answer_without_an_address_is_a_broken_reply(answer: Any) -> None:
    DeskAgent.answer = answer
    for method in ("GET", "POST"):
        with pytest.raises(BrokenReply, match=r"has no call address at at\.url"):
            call_desk(make_description(dial={**DIAL, "method": method}))


@pytest.mark.parametrize("url", ["", "elsewhere", "ftp://a/b", "javascript:1", "ws://"])
def test_an_answer_with_an_invalid_address_is_refused(url: str) -> None:
    DeskAgent.answer = {"at": {"url": url}}
    with pytest.raises(Rejected, match="expected one such as wss://host/path"):
        call_desk(make_description(dial=DIAL))


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_request_is_classified_by_its_status(status: int) -> None:
    DeskAgent.answer, DeskAgent.status = {"message": f"no {KEY}"}, status
    with pytest.raises(AuthenticationFailed, match="rejected the API key") as caught:
        call_desk(make_description(dial=DIAL))
    assert KEY not in str(caught.value)


def test_a_request_can_be_limited_to_calls_with_a_key() -> None:
    DeskAgent.answer = {"at": {"url": "ws://HERE/elsewhere"}}
    plain = make_description(dial={**DIAL, "when": "key"})
    assert [got.path for got in call_desk(plain)] == ["/calls/m x", "/elsewhere"]
    assert [got.path for got in call_desk(plain, key=None)] == ["/talk/m x"]


def test_an_invalid_description_is_refused_on_open() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    odd: list[Any] = [
        7,
        {},
        [],
        {**DESCRIPTION, "colour": 1},
        {**DESCRIPTION, "url": "{x}"},
        {**DESCRIPTION, "uplink": 7},
        {**DESCRIPTION, "bye": [deep]},
    ]
    for plain in odd:
        with pytest.raises(InvalidInput, match="the agent's description does not fit"):
            open_provider(plain, "http://127.0.0.1:1")
    with pytest.raises(InvalidInput, match='no description of "nobody" was passed'):
        DeclaredProvider.open(Target("", "nobody", "m"), None)
    with pytest.raises(InvalidInput, match="needs a base_url, and none is set"):
        DeclaredProvider.open(Target("", "websocket", "m", {"description": DESCRIPTION}), None)


def test_a_description_with_its_own_address_needs_no_base_url() -> None:
    voice = DeclaredProvider.open(
        Target("", "websocket", "m", {"description": make_description(url="wss://desk.example/{model}?k={key|}")}), None
    )
    assert voice._http.failures.provider_label.endswith(" (desk.example)")
    assert load_shipped_description("twilio").base_url == ""
    named = DeclaredProvider.open(
        Target("", "twilio", "wss://user:secret-word@desk.example/a?token=0123456789abcdefgh"), None
    )
    assert named._http.failures.secrets.redact_message("secret-word 0123456789abcdefgh") == "[key] [key]"


def test_an_invalid_greeting_fails_before_the_call() -> None:
    plain = make_description(handshake=[{"send": [{"x?": "{parameters.x}"}]}])
    with pytest.raises(Rejected, match="cannot be written as JSON"):
        call_desk(plain, dial=CallSetup("m x", parameters={"x": float("nan")}))


def test_agents_cannot_be_listed() -> None:
    assert asyncio.run(open_provider(DESCRIPTION, "http://127.0.0.1:1").models()) == []


def test_pending_responses_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    mark = make_rule("mark", reply=[{"mark": "{message.n}"}], when="played")
    call = make_wire(mark, make_rule("stop", "interrupted"), downlink={"rate": 16000})
    call.read_events(make_message("sound", data=encode_base64(bytes(64000))))
    monkeypatch.setattr("pramana.providers.voice.declared_wire.MAX_DUE_BYTES", 10_000)
    for _ in range(2):
        assert call.read_events(make_message("mark", n="x" * 4000)) == []
    with pytest.raises(BrokenReply, match="Desk sent too many messages that need a reply"):
        call.read_events(make_message("mark", n="x" * 4000))
    stopped, replies = call.read_events(make_message("stop"))
    assert (stopped.kind, len(replies.messages_to_send), call._due_bytes) == ("interrupted", 2, 0)
    call = make_wire(mark, downlink={"rate": 16000})
    for number in range(30):  # paid as they fall due, they are owed no more
        call.read_events(make_message("sound", data=encode_base64(bytes(640))))
        assert call.read_events(make_message("mark", n=f"{number}{'x' * 4000}")) == []
        assert len(call.sound_messages(bytes(640))) == (1 if number == 0 else 2)
    monkeypatch.setattr("pramana.providers.voice.declared_wire.MAX_DUE_REPLIES", 5)
    call = make_wire(mark, downlink={"rate": 16000})
    call.read_events(make_message("sound", data=encode_base64(bytes(64000))))
    for _ in range(5):
        call.read_events(make_message("mark", n=1))
    with pytest.raises(BrokenReply, match="too many messages that need a reply"):
        call.read_events(make_message("mark", n=1))


def test_a_header_may_select_a_websocket_subprotocol() -> None:
    [got] = call_desk(make_description(headers={"Sec-WebSocket-Protocol": "desk"}))
    assert got.headers["Sec-WebSocket-Protocol"] == "desk"
