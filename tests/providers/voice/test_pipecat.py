"""Pipecat's frames against the protobuf library: each reads what the other writes, and invalid frames are refused."""

import random
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # type: ignore[import-untyped]

from pramana.providers.voice.pipecat import FIELDS_BY_FRAME_KIND, decode_frame, encode_frame

TYPES = {"id": 4, "pts": 4, "sample_rate": 13, "num_channels": 13, "audio": 12}
"""Of protobuf: 64 and 32 bits without a sign, bytes; all others are text."""
MESSAGES = {
    "text": "TextFrame",
    "audio": "AudioRawFrame",
    "transcription": "TranscriptionFrame",
    "message": "MessageFrame",
    "interruption": "InterruptionFrame",
}


def make_frame_class() -> Any:
    """Return protobuf's own class of a frame, as `frames.proto` of Pipecat describes it."""
    file = descriptor_pb2.FileDescriptorProto(name="frames.proto", package="pipecat", syntax="proto3")
    frame = descriptor_pb2.DescriptorProto(name="Frame")
    frame.oneof_decl.add(name="frame")
    for kind, (number, fields) in FIELDS_BY_FRAME_KIND.items():
        message = file.message_type.add(name=MESSAGES[kind])
        for name, (place, _) in fields.items():
            message.field.add(name=name, number=place, type=TYPES.get(name, 9), label=1)
        frame.field.add(
            name=kind, number=number, type=11, label=1, type_name=f".pipecat.{MESSAGES[kind]}", oneof_index=0
        )
    file.message_type.add().CopyFrom(frame)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("pipecat.Frame"))


FRAME = make_frame_class()


def random_values(kind: str, chance: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, (_, of) in FIELDS_BY_FRAME_KIND[kind][1].items():
        if chance.random() < 0.2:
            continue
        most = 2**63 if name in ("id", "pts") else 2**32 - 1
        if of is int:
            made[name] = chance.choice([1, 127, 128, 16000, most])
        elif of is bytes:
            made[name] = chance.randbytes(chance.randrange(1, 300))
        else:
            made[name] = chance.choice(["a", "wörter — 🙂", "x" * 300])
    return made


def test_protobuf_reads_our_frames_and_writes_the_same_bytes() -> None:
    chance = random.Random(7)
    for _ in range(300):
        for kind in FIELDS_BY_FRAME_KIND:
            given = random_values(kind, chance)
            theirs = FRAME()
            getattr(theirs, kind).SetInParent()
            for name, value in given.items():
                setattr(getattr(theirs, kind), name, value)
            assert encode_frame(kind, given) == theirs.SerializeToString(deterministic=True)
            assert decode_frame(theirs.SerializeToString()) == (kind, given)


def test_unknown_fields_are_skipped() -> None:
    newer = b"\x48\x01" + encode_frame("audio", {"audio": b"ab"}) + b"\x7d\x01\x02\x03\x04"
    assert decode_frame(newer) == ("audio", {"audio": b"ab"})
    assert FRAME.FromString(newer).audio.audio == b"ab"


def test_the_last_of_several_frames_counts() -> None:
    both = encode_frame("text", {"text": "a"}) + encode_frame("message", {"data": "{}"})
    assert decode_frame(both) == ("message", {"data": "{}"})
    assert FRAME.FromString(both).WhichOneof("frame") == "message"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x12",
        b"\x12\x05ab",
        b"\x10\x01",
        b"\xff" * 11,
        b"\x13\x14",
        b"\x00\x01",
        b"\x12\x02\x1a\x05",
        b"\x22\x03\x0a\x01\xff",
        b"\x12\x02\x18\x01",
        b"\x12\x03\x22\x01a",
    ],
)
def test_data_that_is_not_a_frame_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_frame(data)


def test_broken_frames_are_refused_or_read_like_protobuf() -> None:
    chance = random.Random(11)
    for _ in range(3000):
        kind = chance.choice(list(FIELDS_BY_FRAME_KIND))
        spoilt = bytearray(
            encode_frame(kind, {**random_values(kind, chance), "id": 1} if kind != "message" else {"data": "{}"})
        )
        spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
        try:
            found, fields = decode_frame(bytes(spoilt))
        except ValueError:
            continue
        theirs = FRAME.FromString(bytes(spoilt))
        assert theirs.WhichOneof("frame") == found
        for name, value in fields.items():
            expected = getattr(getattr(theirs, found), name)
            assert value == expected or (isinstance(value, int) and value & 0xFFFF_FFFF == expected)
