"""Another number of samples a second, by soxr: a whole sound at once, or a stream in pieces of any length.

Both give the same samples. No dither is added, so that silence stays silent and the same input gives the same bytes.
"""

from typing import Any

import numpy as np

from pramana.audio.faults import BadAudio, needed
from pramana.audio.pcm import Samples, from_float

LOWEST_RATE, HIGHEST_RATE = 4_000, 384_000
_QUALITY = "HQ"


def resample(samples: Samples, source_rate: int, target_rate: int) -> Samples:
    """Return the sound at another rate."""
    _checked(source_rate, target_rate)
    if source_rate == target_rate or not samples.size:
        return samples.astype(np.int16)
    with needed("another sample rate"):
        import soxr  # type: ignore[import-untyped]
    return from_float(soxr.resample(samples.astype(np.float32), source_rate, target_rate, quality=_QUALITY))


class Resampler:
    """A stream at another rate. Some hundredths of a second stay inside until more comes, or the last piece."""

    def __init__(self, source_rate: int, target_rate: int) -> None:
        _checked(source_rate, target_rate)
        self.source_rate, self.target_rate = source_rate, target_rate
        self._stream: Any = None

    def feed(self, samples: Samples, *, last: bool = False) -> Samples:
        """Return what can be said now; after the last piece the next one begins a new stream."""
        if self.source_rate == self.target_rate:
            return samples.astype(np.int16)
        if self._stream is None:
            if not samples.size:
                return np.zeros(0, np.int16)
            with needed("another sample rate"):
                import soxr
            self._stream = soxr.ResampleStream(self.source_rate, self.target_rate, 1, "float32", _QUALITY)
        said = self._stream.resample_chunk(samples.astype(np.float32), last)
        if last:
            self._stream = None
        return from_float(said)


def _checked(*rates: int) -> None:
    for rate in rates:
        if not LOWEST_RATE <= rate <= HIGHEST_RATE:
            raise BadAudio(f"a rate of {rate} samples a second is outside {LOWEST_RATE} to {HIGHEST_RATE}")
