"""Applies conditions to a sound: a signal and random numbers go in, a signal of the same length and position comes out.

Signals are in units of 16-bit samples but not limited to them; only the telephone, which is digital, rounds. If an
effect exceeds full scale, the whole signal is attenuated, so that nothing is clipped and no ratio changes; a stated
gain that would clip is refused instead, since attenuation would change it.
"""

import numpy as np
from numpy.typing import NDArray

from pramana.audio.conditions import CONDITIONS_VERSION, Conditions
from pramana.audio.faults import BadAudio
from pramana.audio.noises import RandomNumbers, Signal, make_babble, make_music, make_street_noise, rms
from pramana.audio.pcm import FULL_SCALE, Samples, active_level_dbfs, decode, encode, resample, round_to_samples

SAMPLE_RATE = 16_000
PACKET_S = 0.02
MEAN_LOST_PACKETS_IN_A_ROW = 3
"""Average number of packets lost in a row."""
PHONE_RATE = 8_000
PHONE_BAND_HZ = (300, 3400)
_PEAK_LEVEL = FULL_SCALE - 1
_NOISE_MAKERS = {"babble": make_babble, "street": make_street_noise, "music": make_music}


def apply_conditions(conditions: Conditions, samples: Samples, seed: int) -> Samples:
    """Return the sound, at the caller's rate, under the conditions; speech keeps its position."""
    if not samples.size or not conditions:
        return samples.astype(np.int16)

    def make_dice(purpose: str) -> RandomNumbers:
        return RandomNumbers(seed, f"pramana conditions {CONDITIONS_VERSION} {purpose}")

    signal = samples.astype(np.float64)
    if conditions.reverb is not None:
        signal = _scale_below_peak(_add_reverb(signal, conditions.reverb, make_dice("reverb")))
    if conditions.noise is not None:
        kind = conditions.noise_kind
        speech_db = active_level_dbfs(round_to_samples(signal), SAMPLE_RATE)
        wanted = FULL_SCALE * float(10 ** ((speech_db - conditions.noise) / 20))
        noise = _NOISE_MAKERS[kind](len(signal), SAMPLE_RATE, make_dice(f"noise {kind}"))
        signal = _scale_below_peak(signal + noise * (wanted / rms(noise)))
    if conditions.gain is not None:
        signal = _apply_gain(signal, conditions.gain)
    if conditions.phone:
        signal = _apply_phone(signal)
    if conditions.loss is not None:
        signal = _drop_packets(signal, conditions.loss / 100, make_dice("loss"))
    return round_to_samples(signal)


def _add_reverb(signal: Signal, seconds: float, dice: RandomNumbers) -> Signal:
    """Return the sound in a room: direct sound, and echoes of the same power that lose 60 dB in the given time."""
    size = int(seconds * SAMPLE_RATE)
    echoes = dice.draw_white_noise(size) * 10 ** (-3 * np.arange(size) / size)
    echoes[: int(0.003 * SAMPLE_RATE)] = 0  # the nearest wall is half a metre away
    echoes /= np.sqrt(np.sum(np.square(echoes)))
    echoes[0] = 1
    length = len(signal) + size
    heard = np.fft.irfft(np.fft.rfft(signal, length) * np.fft.rfft(echoes, length), length)[: len(signal)]
    heard *= np.sqrt(0.5)  # direct sound and echoes have equal power: together twice the power
    fade = min(len(signal), int(0.01 * SAMPLE_RATE))
    heard[-fade:] *= np.linspace(1, 0, fade)  # otherwise the echo would end in a click
    return heard


def _apply_gain(signal: Signal, decibels: float) -> Signal:
    louder = signal * 10 ** (decibels / 20)
    peak = float(np.max(np.abs(louder)))
    if peak > _PEAK_LEVEL and decibels > 0:
        room = np.floor(10 * (decibels - 20 * np.log10(peak / _PEAK_LEVEL))) / 10
        raise BadAudio(f"gain={decibels:g}dB would clip this sound: at most {max(room, 0):g} dB is possible")
    return louder


def _apply_phone(signal: Signal) -> Signal:
    low, high = PHONE_BAND_HZ
    apart = len(signal) + SAMPLE_RATE // 5  # otherwise the filter would wrap the end around to the beginning
    hertz = np.fft.rfftfreq(apart, 1 / SAMPLE_RATE)
    # Smooth edges of 100 and 300 Hz outside the band: steep ones ring audibly.
    curve = _make_ramp(hertz, low - 100, low) * (1 - _make_ramp(hertz, high, high + 300))
    band = np.fft.irfft(np.fft.rfft(signal, apart) * curve, apart)[: len(signal)]
    line = decode(
        "mulaw",
        encode(
            "mulaw", resample(round_to_samples(_scale_below_peak(band, 0.9 * _PEAK_LEVEL)), SAMPLE_RATE, PHONE_RATE)
        ),
    )
    heard = resample(line, PHONE_RATE, SAMPLE_RATE)[: len(signal)].astype(np.float64)
    return np.pad(heard, (0, len(signal) - len(heard)))


def _drop_packets(signal: Signal, share: float, dice: RandomNumbers) -> Signal:
    """Return the sound with packets lost in bursts, by Gilbert's two-state model."""
    packet = int(PACKET_S * SAMPLE_RATE)
    recover = 1 / MEAN_LOST_PACKETS_IN_A_ROW
    fail = recover * share / (1 - share)
    rolls = dice.draw_many(-(-len(signal) // packet))
    heard, down = signal.copy(), False
    for number, roll in enumerate(rolls):
        chance = share if number == 0 else 1 - recover if down else fail
        down = bool(roll < chance)
        if down:
            heard[number * packet : (number + 1) * packet] = 0
    return heard


def _scale_below_peak(signal: Signal, maximum: float = _PEAK_LEVEL) -> Signal:
    peak = float(np.max(np.abs(signal)))
    return signal * (maximum / peak) if peak > maximum else signal


def _make_ramp(hertz: NDArray[np.floating], begin: float, end: float) -> Signal:
    risen: Signal = np.sin(np.clip((hertz - begin) / (end - begin), 0, 1) * (np.pi / 2)) ** 2
    return risen
