"""What a loopback voice agent does in every turn, and the sound of it: a script comes in, chunks of sound go out.

The caller's sound comes in too, and what leaves is when speech begins and ends, by level alone. Nothing is sent,
awaited or understood here.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from pramana import audio
from pramana.providers.voice.vocabulary import Format

if TYPE_CHECKING:
    from pramana.audio import Samples

WINDOW_S = 0.01
ONSET_WINDOWS = 3
"""Loud ones in a row that make speech: a click makes none."""
SOUND_RATE = 24000
"""Of `Script.sound`."""
TONE = 8000
"""The answer's amplitude of 32,768: from its first sample on, so that its beginning is known to the sample."""


class Script(Struct, frozen=True):
    """What the agent does in every turn of every call."""

    first_byte_s: float = 0.3
    """From the arrival of the caller's last audible sample to the first byte; never before the turn's end is known."""
    leading_silence_s: float = 0.0
    """At the beginning of the answer's sound."""
    answer_s: float = 1.0
    """Of audible sound: a tone, if `sound` gives none."""
    sound: bytes = b""
    """The audible part as 16-bit PCM at 24 kHz; the tone where it is empty."""
    text: str = "It is so, they say."
    """What the agent says it said."""
    heard: str = "Is it so?"
    """What the agent says it heard."""
    transcript: Literal["with", "late", "missing"] = "with"
    """Both texts come along with the sound, `late_s` after the turn is over, or never."""
    late_s: float = 0.3
    interrupt: bool = True
    """The agent falls silent, and says so, when the caller talks while it sends or while its sound still plays."""
    greets: bool = False
    """It speaks as soon as the call is ready."""
    close_mid_turn: tuple[int, str] | None = None
    """The code and reason of a close in the middle of the first answer."""
    unknown_event: bool = False
    """After the handshake and in the middle of each answer comes an event that nobody knows."""
    bad_json: bool = False
    """In the middle of each answer comes a frame cut in half."""
    large_event: bool = False
    """The unknown event has 1 MB."""
    wrong_rate: int | None = None
    """The rate that is announced or sent instead of the one asked for."""
    status: int | None = None
    """Answers every upgrade: 401, 429, 500."""
    hang: Literal["ready", "answer"] | None = None
    """Never says anything, or is ready and never answers."""
    hangover_s: float = 0.2
    """Of silence, in the caller's own sound, that end a turn."""
    chunk_s: float = 0.1
    """Of sound in one message."""
    speed: float = 5.0
    """Of sending, against real time."""
    continuous: bool = False
    """Silence is streamed in real time whenever nothing is said, as a telephone line does."""


class Turn(Struct, frozen=True):
    """One answer as it happened, on `clock.monotonic()`."""

    call: int
    """Counted from zero, in the order in which the calls came."""
    asked: str
    """The model or agent that was called, which tells apart calls that run at once."""
    speech_end_at: float | None
    """When the message with the caller's last audible sample arrived; None: there was no spoken turn before."""
    speech_end_within_s: float
    """Where in that message the sample stands."""
    sent_at: float
    """When the first message with sound was handed to the socket."""
    leading_silence_s: float
    waited_s: float = 0.0
    """How long this process was ready to run meanwhile and got no processor, where that is logged."""


class SpeechDetector:
    """The caller's sound comes in, the beginnings and ends of speech go out."""

    def __init__(self, hangover_s: float) -> None:
        self._hangover_s, self._quiet_s, self._loud = hangover_s, 0.0, 0
        self.speaking = False
        self.last_at = self.last_within_s = 0.0
        """When the message with the last audible sample arrived, and where in it the sample stands."""

    def feed(self, samples: "Samples", rate: int, at: float) -> list[Literal["start", "stop"]]:
        found: list[Literal["start", "stop"]] = []
        size = max(1, int(rate * WINDOW_S))
        for begin in range(0, len(samples), size):
            window = samples[begin : begin + size]
            if (last := audio.last_audible(window, rate)) is not None:
                self._loud += 1
                self._quiet_s = 0.0
                self.last_at, self.last_within_s = at, (begin + last) / rate
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


_answers: dict[tuple[Script, Format], list[bytes]] = {}


def make_answer_sound(script: Script, downlink: Format) -> list[bytes]:
    """Return the sound of every answer in messages: silence, then the tone or the given sound; made once."""
    if (made := _answers.get((script, downlink))) is None:
        import numpy as np

        rate = downlink.rate
        if script.sound:
            audible = np.frombuffer(script.sound, "<i2")
            if rate != SOUND_RATE:
                audible = audio.resample(audible, SOUND_RATE, rate)
        else:
            at = np.arange(round(script.answer_s * rate)) / rate
            # Syllables of a quarter of a second, never silent between: the level falls to a third.
            loud = TONE * (2 + np.cos(2 * np.pi * 4 * at)) / 3
            audible = (loud * np.cos(2 * np.pi * 440 * at)).astype("<i2")
        silence = np.zeros(round(script.leading_silence_s * rate), "<i2")
        data = audio.encode(downlink.codec, np.concatenate([silence, audible]).astype("<i2"))
        size = max(1, round(script.chunk_s * rate)) * (2 if downlink.codec == "pcm" else 1)
        made = _answers[script, downlink] = [data[begin : begin + size] for begin in range(0, len(data), size)]
    return made


def make_silence(seconds: float, downlink: Format) -> bytes:
    """Return so much silence as it travels."""
    import numpy as np

    return audio.encode(downlink.codec, np.zeros(round(seconds * downlink.rate), "<i2"))


def decode_frame(form: Format, data: bytes) -> "Samples":
    """Return samples of a frame; half a sample at its end is none."""
    whole = data[: len(data) // 2 * 2] if form.codec == "pcm" else data
    return audio.decode(form.codec, whole)


def spread_words(text: str, count: int) -> list[str]:
    """Return the words of a text as the pieces that go along with so many chunks of sound."""
    words = [word if number == 0 else f" {word}" for number, word in enumerate(text.split())]
    each = -(-len(words) // max(1, count)) or 1
    return ["".join(words[number * each : (number + 1) * each]) for number in range(count)]


def make_script(arguments: Mapping[str, Any]) -> Script:
    """Return a script of what a command line gave; what is None was not given."""
    known = {name: value for name, value in arguments.items() if name in Script.__struct_fields__ and value is not None}
    return Script(**known)
