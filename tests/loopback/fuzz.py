"""Frames that no vendor sends: real messages of an agent are broken and fed to wires.

Only a `ProviderError` may leave a wire that reads one, and only plain data may be in its events. Everything follows
from the seed; nothing is sent anywhere.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, get_args

from pramana.errors import ProviderError
from pramana.loopback.voice import Agent
from pramana.providers.voice.vocabulary import ErrorClass, Event, EventKind, Message, Wire

DEEP = 100_000
HUGE = 1 << 20
UNUSUAL_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    2**63,
    10**400,
    float("nan"),
    float("inf"),
    "",
    "a",
    "AAA",
    "AAAA",
    "\ud800",
    "\x00",
    [],
    {},
    [None],
    [[]],
    {"": {}},
    "error",
    "response.done",
)
_KINDS, _CLASSES = frozenset(get_args(EventKind)), frozenset((None, *get_args(ErrorClass)))


def record_agent_messages(agent: Agent, wire: Wire) -> list[Message]:
    """Perform the handshake and one turn of each sort; return all messages of the agent."""
    said: list[Message] = []

    def read_and_reply(messages: Sequence[Message]) -> None:
        said.extend(messages)
        for message in messages:
            for event in wire.read_events(message):
                for owed in event.messages_to_send:
                    read_and_reply(agent.handle_message(owed))

    read_and_reply(agent.on_open())
    for message in wire.opening_messages():
        read_and_reply(agent.handle_message(message))
    for stopped in (False, True):
        read_and_reply(agent.on_speech_start())
        read_and_reply(agent.on_speech_stop())
        read_and_reply(agent.caller_transcript_messages("Is it so?"))
        read_and_reply(agent.answer_start_messages())
        read_and_reply(agent.sound_messages(bytes(960)))
        read_and_reply(agent.agent_transcript_messages("It is so.", final=False))
        read_and_reply(agent.agent_transcript_messages("It is so.", final=True))
        read_and_reply(agent.on_interruption(is_sending=True) if stopped else agent.answer_end_messages())
    read_and_reply(agent.unknown_event_messages("a"))
    read_and_reply(agent.handle_message("{"))
    return said


def generate_frames(samples: Sequence[Message], seed: int) -> Iterator[Message]:
    """Return broken frames without end."""
    chance = random.Random(seed)
    parsed = [json.loads(sample) for sample in samples if _is_json(sample)]
    while True:
        match chance.randrange(12):
            case 0:
                yield chance.randbytes(chance.randrange(200))
            case 1:
                yield "".join(chr(chance.randrange(1, 0xD800)) for _ in range(chance.randrange(100)))
            case 2:
                sample = chance.choice(samples)
                yield sample[: chance.randrange(len(sample) + 1)]
            case 3:
                spoilt = bytearray(_as_bytes(chance.choice(samples)))
                for _ in range(chance.randrange(1, 4)):
                    spoilt[chance.randrange(len(spoilt))] = chance.randrange(256)
                yield bytes(spoilt)
            case 4:
                yield _serialise(chance.choice(UNUSUAL_VALUES), chance)
            case 5 if chance.random() < 0.02:
                yield _make_large_frame(chance)
            case _ if parsed:
                found = deepcopy(chance.choice(parsed))
                for _ in range(chance.randrange(1, 4)):
                    found = _mutate(found, chance)
                yield _serialise(found, chance)
            case _:
                yield chance.choice(samples)


def read_broken_frames(wire: Callable[[], Wire], samples: Sequence[Message], count: int, seed: int = 0) -> Counter[str]:
    """Let wires read so many broken frames, a call of a hundred each; return how often which kind of event came.

    What was refused counts as `refused`. Any other exception, and an event that cannot be logged, is raised.
    """
    chance = random.Random(seed)
    met: Counter[str] = Counter()
    broken = generate_frames(samples, seed)
    call = wire()
    for number in range(count):
        if number % 100 == 0:
            call = wire()
            for sample in samples[: chance.randrange(len(samples) + 1)]:
                call.read_events(sample)
        try:
            events = call.read_events(next(broken))
        except ProviderError as error:
            met["refused"] += 1
            str(error).encode("utf-8", "surrogatepass")
        else:
            for event in events:
                met[_check_event(event)] += 1
        if number % 10 == 0:
            call.sound_messages(bytes(640))
            call.interruption_messages(chance.choice((-1.0, 0.0, 0.5, 1e9)))
            _check_event(call.read_close(chance.randrange(999, 5000), chance.choice(("", "a", "\ud800", "a" * 200))))
    return met


def _check_event(event: Event) -> str:
    if event.kind not in _KINDS or event.error not in _CLASSES:
        raise TypeError(f"an event of kind {event.kind} and class {event.error}")
    if (type(event.text), type(event.audio), type(event.final)) != (str, bytes, bool):
        raise TypeError(f"an event of kind {event.kind} that holds something else")
    json.dumps(dict(event.detail))
    return event.kind


def _mutate(message: Any, chance: random.Random) -> Any:
    """Return JSON with one value changed, at any depth."""
    if not isinstance(message, dict | list) or not message or chance.random() < 0.05:
        return deepcopy(chance.choice(UNUSUAL_VALUES))
    name: Any = chance.choice(list(message)) if isinstance(message, dict) else chance.randrange(len(message))
    inside: Any = message
    if isinstance(inside[name], dict | list) and chance.random() < 0.7:
        inside[name] = _mutate(inside[name], chance)
    elif isinstance(message, dict) and chance.random() < 0.2:
        message[chance.choice(("type", "error", "", "serverContent", "\ud800", "a" * 300))] = message.pop(name)
    elif chance.random() < 0.2:
        del inside[name]
    else:
        inside[name] = deepcopy(chance.choice(UNUSUAL_VALUES))
    return message


def _make_large_frame(chance: random.Random) -> Message:
    if chance.random() < 0.5:
        return '{"type":"error","serverContent":' + "[" * DEEP
    return json.dumps({"type": "a" * HUGE, "serverContent": {"modelTurn": "a" * HUGE}})


def _serialise(message: Any, chance: random.Random) -> Message:
    text = json.dumps(message, ensure_ascii=chance.random() < 0.5)
    return text if chance.random() < 0.7 else text.encode("utf-8", "surrogatepass")


def _is_json(sample: Message) -> bool:
    try:
        json.loads(sample)
    except ValueError:
        return False
    return True


def _as_bytes(sample: Message) -> bytes:
    return sample if isinstance(sample, bytes) else sample.encode()
