"""Pipecat's frames, as its WebSocket transport encodes them: bytes come in, the kind and fields of a frame go out.

Implements the five kinds of its `frames.proto` in protobuf's encoding by hand: every field is just a number or bytes.
Fields of newer versions are skipped, as protobuf requires; invalid protobuf raises `ValueError`.
"""

from collections.abc import Iterator, Mapping

Fields = Mapping[str, int | str | bytes]

FIELDS_BY_FRAME_KIND: Mapping[str, tuple[int, Mapping[str, tuple[int, type]]]] = {
    "text": (1, {"id": (1, int), "name": (2, str), "text": (3, str)}),
    "audio": (
        2,
        {
            "id": (1, int),
            "name": (2, str),
            "audio": (3, bytes),
            "sample_rate": (4, int),
            "num_channels": (5, int),
            "pts": (6, int),
        },
    ),
    "transcription": (
        3,
        {"id": (1, int), "name": (2, str), "text": (3, str), "user_id": (4, str), "timestamp": (5, str)},
    ),
    "message": (4, {"data": (1, str)}),
    "interruption": (5, {"id": (1, int), "name": (2, str)}),
}
_FIELDS_BY_FRAME_NUMBER = {
    number: (kind, {at: (name, of) for name, (at, of) in known.items()})
    for kind, (number, known) in FIELDS_BY_FRAME_KIND.items()
}
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


def encode_frame(kind: str, fields: Fields) -> bytes:
    """Return the bytes of a frame; empty fields are omitted, as in protobuf.

    >>> encode_frame("message", {"data": "{}"})
    b'"\\x04\\n\\x02{}'
    """
    number, known = FIELDS_BY_FRAME_KIND[kind]
    body = b"".join(_encode_field(known[name][0], value) for name, value in fields.items() if value)
    return _encode_varint(number << 3 | _LENGTH) + _encode_varint(len(body)) + body


def decode_frame(data: bytes) -> tuple[str, dict[str, int | str | bytes]]:
    """Return the kind of a frame and the fields that are set in it.

    >>> decode_frame(encode_frame("audio", {"audio": b"ab", "sample_rate": 16000}))
    ('audio', {'audio': b'ab', 'sample_rate': 16000})
    """
    kind = ""
    fields: dict[str, int | str | bytes] = {}
    for number, value in _iterate_fields(data):
        if number not in _FIELDS_BY_FRAME_NUMBER:
            continue
        if not isinstance(value, bytes):
            raise ValueError(f"field {number} is no frame")  # noqa: TRY004 - every malformed frame raises ValueError
        found, known = _FIELDS_BY_FRAME_NUMBER[number]
        if found != kind:  # of several kinds the last counts; two of one kind are merged
            kind, fields = found, {}
        for place, each in _iterate_fields(value):
            if place in known:
                name, expected = known[place]
                fields[name] = _convert_field(each, expected, name)
    if not kind:
        raise ValueError("there is no frame of a known kind")
    return kind, fields


def _convert_field(value: int | bytes, expected: type, name: str) -> int | str | bytes:
    if expected is str and isinstance(value, bytes):
        return value.decode()  # invalid UTF-8 raises a ValueError
    if not isinstance(value, expected):
        raise ValueError(f"the field {name} has the wrong type")  # noqa: TRY004
    return value


def _encode_field(field_number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return _encode_varint(field_number << 3 | _VARINT) + _encode_varint(value)
    data = value.encode() if isinstance(value, str) else value
    return _encode_varint(field_number << 3 | _LENGTH) + _encode_varint(len(data)) + data


def _encode_varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _iterate_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    place = 0
    while place < len(data):
        tag, place = _read_varint(data, place)
        number, wire = tag >> 3, tag & 7
        if not number:
            raise ValueError("a field has the number 0")
        if wire == _VARINT:
            value, place = _read_varint(data, place)
            yield number, value
            continue
        if wire == _LENGTH:
            size, place = _read_varint(data, place)
        elif wire in (_EIGHT_BYTES, _FOUR_BYTES):
            size = 8 if wire == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"a field is of the unknown type {wire}")
        if place + size > len(data):
            raise ValueError("a field is cut off")
        if wire == _LENGTH:  # our fields use neither of the other two types
            yield number, data[place : place + size]
        place += size


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for count in range(_MAX_VARINT_BYTES):
        if offset + count >= len(data):
            raise ValueError("a number is cut off")
        byte = data[offset + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, offset + count + 1
    raise ValueError(f"a number is longer than {_MAX_VARINT_BYTES} bytes")
