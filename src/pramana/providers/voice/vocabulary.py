"""The shared vocabulary of voice agents: the types between wire formats and the call.

A wire format only translates: its handshake, a frame of sound to a message, a message to events. It never waits, paces,
plays or measures; `run/call.py` does, for all of them alike. A message it does not know becomes an `unknown` event:
logged and ignored.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct, field

from pramana.model import Turn

if TYPE_CHECKING:
    from pramana.audio import Samples
    from pramana.embedded.engines import EngineInfo

FRAME_S = 0.02
"""Sound per message, as from a microphone."""

Codec = Literal["pcm", "mulaw", "alaw"]
Message = str | bytes
"""A text or binary frame of a WebSocket."""

BACKCHANNELS = frozenset(
    {
        "mhm", "mm", "mmm", "hmm", "hm", "uh huh", "mm hmm", "mm hm", "aha", "ah", "oh", "ok", "okay", "right", "yeah",
        "yes", "yep", "sure", "i see", "got it",
    }
)  # fmt: skip
"""Utterances that signal listening without taking the turn, as bare words."""
CORRECTED_WORDS_KEY = "corrects"
"""Key in the detail of an `agent_text`: the words that the text replaces, as after an answer was cut off."""

EventKind = Literal[
    "ready",  # sound may be sent from now on
    "user_speech_start",  # as the provider detects it
    "user_speech_stop",
    "agent_audio",
    "agent_text",
    "user_text",  # the provider's transcript of the caller
    "tool_call",
    "interrupted",  # the agent stops: unplayed sound is dropped
    "turn_done",
    "usage",
    "error",
    "closed",
    "unknown",
]
ErrorClass = Literal[
    "auth", "rate_limit", "quota", "bad_request", "unsupported_format", "timeout", "provider", "network", "protocol"
]


def is_backchannel(text: str) -> bool:
    """Return whether a text is only a backchannel.

    >>> is_backchannel("Uh-huh."), is_backchannel("OK."), is_backchannel("Okay, stop!")
    (True, True, False)
    """
    return " ".join(re.sub(r"[^\w\s]", " ", text.casefold()).split()) in BACKCHANNELS


class Format(Struct, frozen=True):
    """The format of sound: one channel; 16-bit little-endian samples for PCM."""

    codec: Codec = "pcm"
    rate: int = 16000

    @property
    def bytes_per_second(self) -> int:
        """Return the bytes per second."""
        return self.rate * (2 if self.codec == "pcm" else 1)


class Event(Struct, frozen=True):
    """One thing that happened at the other end."""

    kind: EventKind
    text: str = ""
    """For `agent_text` and `user_text`: the words; for `error` and `closed`: why; for `turn_done`: how it ended."""
    final: bool = False
    """Whether a text is the whole transcript of the turn, not the next piece of it."""
    audio: bytes = b""
    """Sound in the channel's downlink format."""
    error: ErrorClass | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Plain data for the log: ids, tokens, a tool's name and arguments, the name of an unknown event."""
    messages_to_send: tuple[Message, ...] = ()
    """Messages to send back at once: the reply to a ping, the settings after a welcome."""


class CallSetup(Struct, frozen=True):
    """The arguments of a call: the model to call, and how to set it up."""

    model: str
    """The vendor's name of the model, or the agent's id."""
    system_prompt: str | None = None
    language: str = "en"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Parameters by their neutral names; `voice` is the agent's."""
    history: tuple[Turn, ...] = ()
    """The turns before the call, for agents that accept them: see `VoiceCapabilities`."""


class ChannelCapabilities(Struct, frozen=True):
    """What a channel can do and what it does not report, as its wire format defines."""

    greets: bool = False
    """Whether the agent speaks first, so that the caller listens before talking."""
    greeting_timeout_s: float | None = None
    """How long to wait for a greeting if it is unknown whether there is one; None: as long as for any answer."""
    answer_end_silence_s: float | None = None
    """How long silence lasts before an answer counts as over, if the format never reports that."""
    reports_interruptions: bool | None = None
    """Whether the format reports interruptions; None if unknown."""
    ready_on_connect: bool = False
    """Whether the call is ready without a message."""


class VoiceCapabilities(Struct, frozen=True):
    """What a voice provider accepts and supports."""

    takes_history: bool = False
    """Whether earlier turns are passed as turns instead of in the system prompt."""
    unsupported_parameters: frozenset[str] = frozenset()
    """Parameters to leave out."""
    is_embedded: bool = False
    """Whether it recognises or speaks in this process, where two concurrent calls would delay each other."""
    supports_language: Callable[[str], bool] = lambda _: True
    """Returns whether it supports a language, as far as it knows."""
    engines: "Callable[[], Iterable[EngineInfo]]" = tuple
    """Returns the engines that computed its last call in this process."""


class Wire(Protocol):
    """One call in one vendor's wire format; one instance per call, so it may keep state.

    It has no clock and cannot know whether an answer is still heard. It therefore returns `interruption_messages`
    whenever the format has them, and `run/call.py` decides what is left to cut off.
    """

    uplink: Format
    """Read only once the channel is ready: a handshake may change it."""
    downlink: Format
    capabilities: ChannelCapabilities

    def opening_messages(self) -> list[Message]:
        """Return the messages to send as soon as the connection is open."""
        ...

    def sound_messages(self, frame: bytes) -> list[Message]:
        """Return the messages that carry one frame in the uplink's format."""
        ...

    def read_events(self, message: Message) -> list[Event]:
        """Translate a message to events; raise `ProviderError` if it violates the format."""
        ...

    def read_close(self, code: int, reason: str) -> Event:
        """Translate the close of the connection to an event."""
        ...

    def interruption_messages(self, played_s: float) -> list[Message]:
        """Return the messages to send when the caller interrupts an answer after `played_s` seconds of it."""
        ...

    def closing_messages(self) -> list[Message]:
        """Return the messages to send before hanging up."""
        ...


class ReceivedEvents(Struct, frozen=True):
    """Events and their arrival time."""

    received_at: float
    """`clock.monotonic()`."""
    events: tuple[Event, ...]


class Channel(Protocol):
    """An open call over any transport."""

    @property
    def uplink(self) -> Format: ...

    @property
    def downlink(self) -> Format: ...

    @property
    def capabilities(self) -> ChannelCapabilities: ...

    def is_key_in_text(self, text: str) -> bool:
        """Return whether a text contains a key of the account, for instance one that arrived in pieces."""
        ...

    async def send(self, frame: bytes) -> None:
        """Send one frame in the uplink's format."""
        ...

    async def receive(self) -> ReceivedEvents:
        """Wait for the next events; nothing follows `closed`."""
        ...

    async def interrupt(self, played_s: float) -> None:
        """Notify the agent that the caller interrupted its answer after `played_s` seconds of it."""
        ...

    async def close(self) -> None:
        """Hang up."""
        ...


class SpeechRecognition(Protocol):
    """Speech recognition: turns sound into words."""

    def supports_language(self, language: str) -> bool:
        """Return whether it supports a language."""
        ...

    async def transcribe(self, samples: "Samples", language: str) -> str:
        """Return the words in samples at `pramana.audio.CALLER_SAMPLE_RATE`."""
        ...


class VoiceProvider(Protocol):
    """A provider that can be called."""

    @property
    def capabilities(self) -> VoiceCapabilities: ...

    async def dial(self, setup: CallSetup) -> Channel:
        """Open a call and return it once it is ready; raise `ProviderError` if that fails."""
        ...

    async def models(self) -> list[str]:
        """Return the names of the available models."""
        ...

    async def close(self) -> None: ...
