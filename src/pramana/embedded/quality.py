"""DNSMOS in this process, by onnxruntime: samples at the caller's rate go in, an estimate of how they sound comes out.

It estimates listeners' ratings from 1 to 5, of the sound as a whole, of the speech and of the background, with the
models of Microsoft's noise suppression challenge. A diagnosis, never a score: the models know little of synthetic
voices and ignore what is said. They are read from the folder of the package `speechmos`, which is never imported.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pramana.audio import CALLER_SAMPLE_RATE, BadAudio
from pramana.embedded.ears import make_mel_filters
from pramana.embedded.engines import find_package_folder, open_onnx_session

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from pramana.audio import Samples

NAME = "DNSMOS P.835 and P.808 by speechmos 0.0.1.1"
WINDOW_S = 9.01
MAX_WINDOWS = 3
"""Spread evenly over the sound; the published method starts one every second. Each takes a quarter of a second to
rate."""
_WINDOW_SAMPLES = int(WINDOW_S * CALLER_SAMPLE_RATE)
_FRAME, _STEP, _BANDS = 321, 160, 120
_OVERALL_POLYNOMIAL = (-0.06766283, 1.11546468, 0.04602535)
_SIGNAL_POLYNOMIAL = (-0.08397278, 1.22083953, 0.0052439)
_BACKGROUND_POLYNOMIAL = (-0.13166888, 1.60915514, -0.39604546)


@dataclass(frozen=True, slots=True)
class Quality:
    """Estimated ratings from 1 (bad) to 5 (excellent)."""

    overall: float
    signal: float
    """Of the speech only."""
    background: float
    """Of the background: 5 is silence."""
    p808: float
    """Of the whole sound, as estimated by the other model."""


def estimate_quality(samples: "Samples") -> Quality:
    """Return the estimated ratings of listeners."""
    from pramana import audio

    if audio.level_dbfs(samples) < audio.SILENT_DBFS:
        raise BadAudio("the sound is silent, so it has no quality score")
    import numpy as np

    signal = samples.astype(np.float32) / np.float32(32768)
    while len(signal) < _WINDOW_SAMPLES:
        signal = np.concatenate((signal, signal))
    last = max(0, int(len(signal) // CALLER_SAMPLE_RATE - WINDOW_S))
    begins = sorted({round(at) for at in np.linspace(0, last, min(last + 1, MAX_WINDOWS))})
    heard = np.mean([_estimate_window(signal[at * CALLER_SAMPLE_RATE :][:_WINDOW_SAMPLES]) for at in begins], axis=0)
    return Quality(*(round(float(each), 4) for each in heard))


def _estimate_window(window: "NDArray[float32]") -> tuple[float, ...]:
    import numpy as np

    whole, other = _load_models()
    [[[signal, background, overall]]] = whole.run(None, {"input_1": window[np.newaxis]})
    [[[p808]]] = other.run(None, {"input_1": _compute_mel_levels(window[:-_STEP])[np.newaxis]})
    fitted = zip(
        (_OVERALL_POLYNOMIAL, _SIGNAL_POLYNOMIAL, _BACKGROUND_POLYNOMIAL), (overall, signal, background), strict=True
    )
    return (*(float(np.polyval(curve, raw)) for curve, raw in fitted), float(p808))


def _compute_mel_levels(window: "NDArray[float32]") -> "NDArray[float32]":
    """Return the level of 120 bands every 10 ms, relative to the loudest, as the model expects."""
    import numpy as np

    frames = np.lib.stride_tricks.sliding_window_view(np.pad(window, _FRAME // 2), _FRAME)[::_STEP]
    hann = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_FRAME) / _FRAME)).astype(np.float32)
    power = np.square(np.abs(np.fft.rfft(frames * hann, axis=1))) @ make_mel_filters(_FRAME, _BANDS).T
    decibels = 10 * np.log10(np.maximum(power, 1e-10) / max(float(power.max()), 1e-10))
    bands: NDArray[float32] = ((np.maximum(decibels, decibels.max() - 80) + 40) / 40).astype(np.float32)
    return bands


@lru_cache(maxsize=1)
def _load_models() -> tuple[Any, Any]:
    folder = find_package_folder("speechmos", "dnsmos_models", "the models of DNSMOS")
    whole, other = (
        open_onnx_session(folder / name, "the estimate of speech quality")
        for name in ("sig_bak_ovr.onnx", "model_v8.onnx")
    )
    return whole, other
