"""Another number of samples a second, by soxr, a whole sound at once: cut into pieces first, it would click.

No dither is added, so that silence stays silent and the same input gives the same bytes.
"""

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


def _checked(*rates: int) -> None:
    for rate in rates:
        if not LOWEST_RATE <= rate <= HIGHEST_RATE:
            raise BadAudio(f"a rate of {rate} samples a second is outside {LOWEST_RATE} to {HIGHEST_RATE}")
