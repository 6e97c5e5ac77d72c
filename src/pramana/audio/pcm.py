"""16-bit samples: level, audibility, faults, G.711, resampling and digest. Pure functions on numpy arrays.

Levels are in dBFS: 0 is the power of a full-scale square wave, so a full-scale sine has -3. Silence is -120, never
minus infinity. Nothing here modifies its arguments.
"""

import hashlib
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pramana.audio.faults import BadAudio, explain_missing_library

Samples = NDArray[np.int16]
Codec = Literal["pcm", "mulaw", "alaw"]

FULL_SCALE = 32768
QUIETEST_DBFS = -120.0
"""The level reported for digital silence."""
AUDIBLE_DBFS = -50.0
"""A sample is audible if it has this magnitude and is within 5 ms of this power: above the hiss of a telephone line and
any dither, far below the quietest speech."""
_AUDIBLE_WINDOW_S = 0.005
SILENT_DBFS = -60.0
MIN_PROMPT_S = 0.1
MAX_PROMPT_S = 300.0
MAX_CLIPPED_SHARE = 0.001
"""With a larger share of samples at full scale, the sound is clipped; one that merely peaks there has a few."""
_ACTIVE_FRAME_S, _ACTIVE_RANGE_DB = 0.02, 30.0


# ── Levels ──


def level_dbfs(samples: Samples) -> float:
    """Return the level of all samples together."""
    if not samples.size:
        return QUIETEST_DBFS
    return _power_to_dbfs(float(np.mean(np.square(samples, dtype=np.float64))))


def active_level_dbfs(samples: Samples, rate: int) -> float:
    """Return the level of the speech without its pauses: of the 20 ms frames within 30 dB of the loudest."""
    frame = max(1, round(rate * _ACTIVE_FRAME_S))
    whole = len(samples) // frame * frame
    if not whole:
        return level_dbfs(samples)
    powers = np.mean(np.square(samples[:whole].reshape(-1, frame), dtype=np.float64), axis=1)
    active = powers[powers >= powers.max() * 10 ** (-_ACTIVE_RANGE_DB / 10)]
    return _power_to_dbfs(float(active.mean()))


def clipped_share(samples: Samples) -> float:
    """Return the share of samples at full scale."""
    return float(np.mean((samples == FULL_SCALE - 1) | (samples <= 1 - FULL_SCALE))) if samples.size else 0.0


def find_first_audible(samples: Samples, rate: int) -> int | None:
    """Return the index of the first audible sample, or None (see `AUDIBLE_DBFS`)."""
    if not samples.size:
        return None
    window = max(1, min(len(samples), round(rate * _AUDIBLE_WINDOW_S)))
    magnitudes = np.abs(samples.astype(np.int64))
    so_far = np.concatenate(([0], np.cumsum(np.square(magnitudes))))
    audible = FULL_SCALE * 10 ** (AUDIBLE_DBFS / 20)
    loud = so_far[window:] - so_far[:-window] >= audible**2 * window
    start = int(np.argmax(loud))
    if not loud[start]:
        return None
    return start + int(np.argmax(magnitudes[start : start + window] >= audible))


def find_last_audible(samples: Samples, rate: int) -> int | None:
    """Return the index of the last audible sample, or None."""
    behind = find_first_audible(samples[::-1], rate)
    return None if behind is None else len(samples) - 1 - behind


def find_prompt_problem(samples: Samples, rate: int) -> str | None:
    """Return why the sound cannot be used as a prompt, or None if it can."""
    seconds = len(samples) / rate
    if not samples.size:
        return "empty: the audio contains no samples"
    if seconds < MIN_PROMPT_S:
        return f"too short: {seconds:.3f} s, and speech takes at least {MIN_PROMPT_S} s"
    if seconds > MAX_PROMPT_S:
        return f"too long: {seconds:.0f} s, and a prompt may be at most {MAX_PROMPT_S:.0f} s"
    if (level := level_dbfs(samples)) < SILENT_DBFS:
        return f"silent: its level is {level:.0f} dBFS, below {SILENT_DBFS:.0f}"
    if (share := clipped_share(samples)) > MAX_CLIPPED_SHARE:
        return f"clipped: {share:.1%} of its samples are at full scale, above {MAX_CLIPPED_SHARE:.1%}"
    return None


def digest_sound(samples: Samples, rate: int) -> str:
    """Return the digest of a sound: of its rate and samples, whatever its file format."""
    head = f"pcm16 mono {rate}\n".encode()
    return "sha256:" + hashlib.sha256(head + encode("pcm", samples)).hexdigest()


def _power_to_dbfs(power: float) -> float:
    return max(QUIETEST_DBFS, 10 * float(np.log10(max(power, 1e-9) / FULL_SCALE**2)))


def round_to_samples(signal: NDArray[np.floating]) -> Samples:
    """Return a signal, in units of 16-bit samples, rounded and clipped to their range."""
    held: Samples = np.clip(np.rint(signal), -FULL_SCALE, FULL_SCALE - 1).astype(np.int16)
    return held


# ── Codecs ──


def encode(codec: Codec, samples: Samples) -> bytes:
    """Encode samples for transmission: 16-bit little-endian, or one byte of G.711 each."""
    if codec == "pcm":
        return samples.astype("<i2", copy=False).tobytes()
    if codec in {"mulaw", "alaw"}:
        return _make_encoding_table(codec)[samples.astype(np.int16, copy=False).view(np.uint16)].tobytes()
    raise BadAudio(f'codec "{codec}" is not known; supported are pcm, mulaw and alaw')


def decode(codec: Codec, data: bytes) -> Samples:
    """Decode transmitted samples."""
    if codec == "pcm":
        if len(data) % 2:
            raise BadAudio(f"16-bit samples take an even number of bytes, found {len(data)} bytes")
        return np.frombuffer(data, "<i2").astype(np.int16)
    if codec in {"mulaw", "alaw"}:
        return _make_decoding_table(codec)[np.frombuffer(data, np.uint8)]
    raise BadAudio(f'codec "{codec}" is not known; supported are pcm, mulaw and alaw')


@lru_cache(maxsize=2)
def _make_encoding_table(codec: Codec) -> NDArray[np.uint8]:
    """Return the code of every 16-bit sample, indexed by the sample as an unsigned number."""
    samples = np.arange(1 << 16).astype(np.uint16).view(np.int16).astype(np.int64)
    sign = (samples >= 0).astype(np.int64) << 7
    sizes = np.where(samples >= 0, samples, ~samples)
    powers = 1 << np.arange(7)
    codes: NDArray[np.int64]
    if codec == "mulaw":
        biased = np.minimum((sizes >> 2) + 33, 0x1FFF)
        segment = 1 + np.searchsorted(powers, biased >> 6, side="right")
        codes = sign | (8 - segment) << 4 | 15 - (biased >> segment & 15)
    else:
        steps = sizes >> 4
        segment = np.searchsorted(powers, steps >> 4, side="right")
        codes = (sign | segment << 4 | steps >> np.maximum(segment - 1, 0) & 15) ^ 0x55
    return codes.astype(np.uint8)


@lru_cache(maxsize=2)
def _make_decoding_table(codec: Codec) -> Samples:
    """Return the sample of every code."""
    codes = np.arange(256) ^ (0xFF if codec == "mulaw" else 0x55)
    segment, step = codes >> 4 & 7, codes & 15
    if codec == "mulaw":
        sizes = (((step << 3) + 132) << segment) - 132
        return np.where(codes & 0x80, -sizes, sizes).astype(np.int16)
    sizes = np.where(segment == 0, (step << 4) + 8, ((step << 4) + 264) << np.maximum(segment - 1, 0))
    return np.where(codes & 0x80, sizes, -sizes).astype(np.int16)


LOWEST_RATE, HIGHEST_RATE = 4_000, 384_000
_RESAMPLING_QUALITY = "HQ"


def resample(samples: Samples, source_rate: int, target_rate: int) -> Samples:
    """Return the sound at another rate; pass all of it, since pieces would click where they meet.

    No dither is added: silence stays silent, and the same input gives the same bytes.
    """
    for rate in (source_rate, target_rate):
        if not LOWEST_RATE <= rate <= HIGHEST_RATE:
            raise BadAudio(f"a rate of {rate} samples per second is outside {LOWEST_RATE} to {HIGHEST_RATE}")
    if source_rate == target_rate or not samples.size:
        return samples.astype(np.int16)
    with explain_missing_library("another sample rate"):
        import soxr  # type: ignore[import-untyped]
    return round_to_samples(
        soxr.resample(samples.astype(np.float32), source_rate, target_rate, quality=_RESAMPLING_QUALITY)
    )
