"""What a loopback voice agent does in every turn, and its sound: a script comes in, chunks of sound go out.

Also takes the caller's sound and reports when speech begins and ends, by level alone. Never sends, waits or understands
anything.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from pramana import audio
from pramana.providers.voice.vocabulary import Format

if TYPE_CHECKING:
    from pramana.audio import Samples

LEVEL_WINDOW_S = 0.01
ONSET_WINDOWS = 3
"""Consecutive loud windows that count as speech; a click is shorter."""
SCRIPT_SAMPLE_RATE = 24000
"""The sample rate of `Script.sound`."""
TONE_AMPLITUDE = 8000
"""The answer's amplitude, of 32,768, from its first sample on, so that its beginning is known to the sample."""


class Script(Struct, frozen=True):
    """What the agent does in every turn of every call."""

    first_byte_s: float = 0.3
    """From the arrival of the caller's last audible sample to the first byte; never before the end of the turn is
    detected."""
    leading_silence_s: float = 0.0
    """Silence at the beginning of the answer's sound."""
    audible_answer_s: float = 1.0
    """Length of audible sound: of `sound`, or else of a tone."""
    sound: bytes = b""
    """The audible part as 16-bit PCM at 24 kHz; empty: the tone."""
    text: str = "It is so, they say."
    """The agent's transcript of its answer."""
    heard: str = "Is it so?"
    """The agent's transcript of the caller."""
    transcript: Literal["with", "late", "missing"] = "with"
    """When both transcripts are sent: with the sound, `transcript_delay_s` after the turn ends, or never."""
    transcript_delay_s: float = 0.3
    interrupt: bool = True
    """Whether the agent stops and reports an interruption when the caller talks while it sends or while its sound
    still plays."""
    greets: bool = False
    """Whether the agent speaks as soon as the call is ready."""
    close_mid_turn: tuple[int, str] | None = None
    """The code and reason for closing in the middle of the first answer."""
    unknown_event: bool = False
    """Send an event of an unknown type after the handshake and in the middle of each answer."""
    bad_json: bool = False
    """Send a truncated frame in the middle of each answer."""
    large_unknown_event: bool = False
    """Make the event of `unknown_event` 1 MB long."""
    wrong_rate: int | None = None
    """The rate to announce or send instead of the requested one."""
    status: int | None = None
    """The status with which every upgrade is refused: 401, 429, 500."""
    hang: Literal["ready", "answer"] | None = None
    """Where the agent hangs: it never sends anything, or becomes ready and never answers."""
    hangover_s: float = 0.2
    """The silence in the caller's own sound that ends a turn."""
    chunk_s: float = 0.1
    """Sound per message."""
    sending_speed: float = 5.0
    """Sending speed, as a multiple of real time."""
    streams_silence: bool = False
    """Stream silence in real time between answers, as a telephone line does."""


class LoggedAnswer(Struct, frozen=True):
    """One answer of the agent as it happened: a line of its log. Moments are those of `clock.monotonic()`."""

    call: int
    """The number of its call, from zero, in order of arrival."""
    asked: str
    """The model or agent that the client asked for, which distinguishes concurrent calls."""
    speech_end_at: float | None
    """When the message with the caller's last audible sample arrived; None: no spoken turn came before."""
    speech_end_within_s: float
    """The position of that sample within the message, in seconds from the beginning of the message's sound."""
    sent_at: float
    """When the first message with sound was handed to the socket."""
    leading_silence_s: float
    waited_s: float = 0.0
    """How long this process waited for a processor meanwhile, although it could run; 0 where that is not logged."""


class SpeechDetector:
    """Detects where speech begins and ends in the caller's sound."""

    def __init__(self, hangover_s: float) -> None:
        self._hangover_s, self._quiet_s, self._loud = hangover_s, 0.0, 0
        self.speaking = False
        self.last_at = self.last_within_s = 0.0
        """When the message with the last audible sample arrived, and the sample's position within it."""

    def feed(self, samples: "Samples", rate: int, received_at: float) -> list[Literal["start", "stop"]]:
        found: list[Literal["start", "stop"]] = []
        size = max(1, int(rate * LEVEL_WINDOW_S))
        for begin in range(0, len(samples), size):
            window = samples[begin : begin + size]
            if (last := audio.find_last_audible(window, rate)) is not None:
                self._loud += 1
                self._quiet_s = 0.0
                self.last_at, self.last_within_s = received_at, (begin + last) / rate
                if not self.speaking and self._loud >= ONSET_WINDOWS:
                    self.speaking = True
                    found.append("start")
                continue
            self._loud = 0
            self._quiet_s += len(window) / rate
            if self.speaking and self._quiet_s >= self._hangover_s - 1e-9:
                self.speaking = False
                found.append("stop")
        return found


_answer_cache: dict[tuple[Script, Format], list[bytes]] = {}


def make_answer_sound(script: Script, downlink: Format) -> list[bytes]:
    """Return the sound of every answer in messages: silence, then the tone or the given sound. Cached."""
    if (made := _answer_cache.get((script, downlink))) is None:
        import numpy as np

        rate = downlink.rate
        if script.sound:
            audible = np.frombuffer(script.sound, "<i2")
            if rate != SCRIPT_SAMPLE_RATE:
                audible = audio.resample(audible, SCRIPT_SAMPLE_RATE, rate)
        else:
            at = np.arange(round(script.audible_answer_s * rate)) / rate
            # Syllables of a quarter of a second with no silence in between: the level falls to a third.
            loud = TONE_AMPLITUDE * (2 + np.cos(2 * np.pi * 4 * at)) / 3
            audible = (loud * np.cos(2 * np.pi * 440 * at)).astype("<i2")
        silence = np.zeros(round(script.leading_silence_s * rate), "<i2")
        data = audio.encode(downlink.codec, np.concatenate([silence, audible]).astype("<i2"))
        size = max(1, round(script.chunk_s * rate)) * (2 if downlink.codec == "pcm" else 1)
        made = _answer_cache[script, downlink] = [data[begin : begin + size] for begin in range(0, len(data), size)]
    return made


def make_silence(seconds: float, downlink: Format) -> bytes:
    """Return silence of the given length, encoded for the downlink."""
    import numpy as np

    return audio.encode(downlink.codec, np.zeros(round(seconds * downlink.rate), "<i2"))


def decode_frame(sound_format: Format, data: bytes) -> "Samples":
    """Return the samples of a frame; half a sample at its end is dropped."""
    whole = data[: len(data) // 2 * 2] if sound_format.codec == "pcm" else data
    return audio.decode(sound_format.codec, whole)


def spread_words(text: str, count: int) -> list[str]:
    """Split a text into as many pieces of whole words as there are chunks of sound."""
    words = [word if number == 0 else f" {word}" for number, word in enumerate(text.split())]
    each = -(-len(words) // max(1, count)) or 1
    return ["".join(words[number * each : (number + 1) * each]) for number in range(count)]


def make_script(arguments: Mapping[str, Any]) -> Script:
    """Return a script from command-line arguments; None means not given."""
    known = {name: value for name, value in arguments.items() if name in Script.__struct_fields__ and value is not None}
    return Script(**known)
