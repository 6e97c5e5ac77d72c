"""What every voice agent says and is told, in one vocabulary: the nouns between wire formats and the call.

A wire format only translates: its handshake, a frame of sound into a message, a message into events. It never waits,
paces, plays or measures; `run/call.py` does, for all of them alike. What it does not know is `unknown`: it is logged
and ignored.
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
"""Of sound in one message, as a microphone gives it."""

Codec = Literal["pcm", "mulaw", "alaw"]
Message = str | bytes
"""Of a WebSocket: a text or a binary frame."""

BACKCHANNELS = frozenset(
    {
        "mhm", "mm", "mmm", "hmm", "hm", "uh huh", "mm hmm", "mm hm", "aha", "ah", "oh", "ok", "okay", "right", "yeah",
        "yes", "yep", "sure", "i see", "got it",
    }
)  # fmt: skip
"""What a listener says without wanting the floor, as words alone."""
CORRECTION_KEY = "corrects"
"""In the detail of an `agent_text`: the words whose place it takes, as when an answer was cut off."""

Kind = Literal[
    "ready",  # sound may be sent from now on
    "user_speech_start",  # as the provider sees it
    "user_speech_stop",
    "agent_audio",
    "agent_text",
    "user_text",  # what the provider heard
    "tool_call",
    "interrupted",  # the agent stops: what was not played is dropped
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
    """Tell whether somebody says no more than that they listen.

    >>> is_backchannel("Uh-huh."), is_backchannel("OK."), is_backchannel("Okay, stop!")
    (True, True, False)
    """
    return " ".join(re.sub(r"[^\w\s]", " ", text.casefold()).split()) in BACKCHANNELS


class Format(Struct, frozen=True):
    """How sound travels: one channel; 16-bit little-endian samples where it is PCM."""

    codec: Codec = "pcm"
    rate: int = 16000

    @property
    def bytes_a_second(self) -> int:
        """How much of it a second takes."""
        return self.rate * (2 if self.codec == "pcm" else 1)


class Event(Struct, frozen=True):
    """One thing that happened at the other end."""

    kind: Kind
    text: str = ""
    """Of `agent_text` and `user_text`: the words; of `error` and `closed`: why; of `turn_done`: how it ended."""
    final: bool = False
    """Of a text: it is the whole of what was said in the turn, not the next piece of it."""
    audio: bytes = b""
    """In the channel's downlink format."""
    error: ErrorClass | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    """Plain data for the log: ids, tokens, a tool's name and arguments, the name of an unknown event."""
    send: tuple[Message, ...] = ()
    """Owed to the other end at once: the answer to a ping, the settings after a welcome."""


class Dial(Struct, frozen=True):
    """Who is called, and how the agent is set up."""

    model: str
    """The vendor's name of the model, or the agent's id."""
    system_prompt: str | None = None
    language: str = "en"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Neutral names; `voice` is the agent's."""
    history: tuple[Turn, ...] = ()
    """What was said before the call, for who can take it: see `VoiceCapabilities`."""


class ChannelCapabilities(Struct, frozen=True):
    """What a channel can do and what it never says, as its wire format has it."""

    greets: bool = False
    """The agent speaks first, so that whoever calls listens before they talk."""
    greeting_s: float | None = None
    """How long it is worth waiting for a greeting, where nobody knows whether there is one; None: as long as any."""
    quiet_s: float | None = None
    """How long an answer is silent before it is over, where the format never says that one is."""
    says_interrupted: bool | None = None
    """Whether the format has a word for an interruption; None where that is not known."""
    ready_on_connect: bool = False
    """The call is ready without a word about it."""


class VoiceCapabilities(Struct, frozen=True):
    """What a provider that can be called takes and understands."""

    takes_history: bool = False
    """It is given what went before as turns instead of in its system prompt."""
    unsupported_parameters: frozenset[str] = frozenset()
    """Parameters to leave out."""
    embedded: bool = False
    """It hears or speaks in this process, where two at once would wait for each other."""
    supports_language: Callable[[str], bool] = lambda _: True
    """Whether it understands a language, as far as it knows."""
    engines: "Callable[[], Iterable[EngineInfo]]" = tuple
    """What its last call was computed with in this process."""


class Wire(Protocol):
    """One call in one vendor's words. Made anew for each call: it may remember what it was told.

    It has no clock: whether an answer is still heard it cannot know, so that it says `interruption_messages` whenever
    the format does, and `run/call.py` knows what is left to be cut off.
    """

    uplink: Format
    """Read once the channel is ready: a handshake may settle it."""
    downlink: Format
    capabilities: ChannelCapabilities

    def opening_messages(self) -> list[Message]:
        """Return what is sent as soon as the connection stands."""
        ...

    def speak(self, frame: bytes) -> list[Message]:
        """Return the messages that carry one frame in the uplink's format."""
        ...

    def read(self, message: Message) -> list[Event]:
        """Return what a message means; a `ProviderError` for one that does not fit the format."""
        ...

    def read_close(self, code: int, reason: str) -> Event:
        """Return what the end of the connection means."""
        ...

    def interruption_messages(self, played_s: float) -> list[Message]:
        """Return what is sent when the caller talks into an answer of which so many seconds were played."""
        ...

    def closing_messages(self) -> list[Message]:
        """Return what is sent before hanging up."""
        ...


class ReceivedEvents(Struct, frozen=True):
    """Events, and when they arrived."""

    at: float
    """`clock.monotonic()`."""
    events: tuple[Event, ...]


class Channel(Protocol):
    """An open call, whatever carries it."""

    @property
    def uplink(self) -> Format: ...

    @property
    def downlink(self) -> Format: ...

    @property
    def capabilities(self) -> ChannelCapabilities: ...

    def holds_key(self, text: str) -> bool:
        """Tell whether a text holds a key of the account, as when one was said in pieces."""
        ...

    async def send(self, frame: bytes) -> None:
        """Send one frame in the uplink's format."""
        ...

    async def receive(self) -> ReceivedEvents:
        """Wait for what happens next; after `closed` there is nothing more."""
        ...

    async def interrupt(self, played_s: float) -> None:
        """Tell the agent that the caller talks into its answer, of which so many seconds were played."""
        ...

    async def close(self) -> None:
        """Hang up."""
        ...


class SpeechRecognition(Protocol):
    """Writes down what was said."""

    def supports_language(self, language: str) -> bool:
        """Tell whether it understands a language."""
        ...

    async def transcribe(self, samples: "Samples", language: str) -> str:
        """Return the words of samples at `pramana.audio.CALLER_RATE`."""
        ...


class VoiceProvider(Protocol):
    """A provider that can be called."""

    @property
    def capabilities(self) -> VoiceCapabilities: ...

    async def dial(self, dial: Dial) -> Channel:
        """Open a call and return it once it is ready; a `ProviderError` where that cannot be."""
        ...

    async def models(self) -> list[str]:
        """Return the names of the models on offer."""
        ...

    async def close(self) -> None: ...
