"""Generated background noise: babble, a street, music. Length and random numbers go in, a signal comes out.

Nothing is recorded, so no licence is needed. The random numbers are raw bits of a generator whose stream numpy
guarantees: the same seed gives the same noise with every version of numpy.
"""

import hashlib
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Signal = NDArray[np.float64]

TALKER_COUNT = 8
_MIDDLE_C_HZ = 261.63
_SCALE_HALF_TONES = (0, 2, 4, 7, 9)  # five notes that never clash
_CHORDS_HALF_TONES = ((0, 4, 7), (9, 12, 16), (5, 9, 12), (7, 11, 14))


class RandomNumbers:
    """Numbers between 0 and 1 that depend only on the seed and the purpose."""

    def __init__(self, seed: int, purpose: str) -> None:
        name = hashlib.sha256(f"{purpose}:{seed}".encode()).digest()
        self._bits = np.random.PCG64(int.from_bytes(name, "big"))

    def draw_many(self, count: int) -> Signal:
        return (self._bits.random_raw(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def draw(self, minimum: float = 0.0, maximum: float = 1.0) -> float:
        return minimum + (maximum - minimum) * float(self.draw_many(1)[0])

    def draw_white_noise(self, count: int) -> Signal:
        """Return white noise."""
        return 2 * self.draw_many(count) - 1


def make_babble(sample_count: int, rate: int, dice: RandomNumbers) -> Signal:
    """Return several simultaneous talkers: voiced syllables with changing formants, and hissing consonants.

    It has the spectrum, the pitch and the rhythm of speech, three to six syllables a second, and no words.
    """
    heard = np.zeros(sample_count)
    for _ in range(TALKER_COUNT):
        pitch, loudness = dice.draw(85, 230), dice.draw(0.5, 1.0)
        place = -int(dice.draw(0, 0.4) * rate)
        while place < sample_count:
            if dice.draw() < 0.12:
                place += int(dice.draw(0.15, 0.5) * rate)  # a pause for breath
            size = int(dice.draw(0.12, 0.28) * rate)
            voiced = dice.draw() < 0.8
            syllable = _make_syllable(size, rate, pitch * dice.draw(0.85, 1.2) if voiced else 0.0, dice)
            begin, end = max(0, place), min(sample_count, place + size)
            if begin < end:
                heard[begin:end] += loudness * syllable[begin - place : end - place]
            place += int(size * dice.draw(0.8, 1.0))
    return heard


def _make_syllable(sample_count: int, rate: int, pitch_hz: float, dice: RandomNumbers) -> Signal:
    """Return one syllable: a pulse per pitch period, or hiss where there is no pitch, shaped by formants."""
    hertz = np.fft.rfftfreq(sample_count, 1 / rate)
    source = dice.draw_white_noise(sample_count)
    formants: tuple[tuple[float, float, float], ...]  # middle and half width in hertz, weight
    if pitch_hz:
        glide = pitch_hz * np.linspace(1, dice.draw(0.85, 1.15), sample_count)
        cycles = np.cumsum(glide) / rate
        source = np.diff(np.floor(cycles), prepend=0.0) + 0.02 * source
        formants = (
            (dice.draw(280, 800), 80, 1.0),
            (dice.draw(900, 2300), 110, 0.6),
            (dice.draw(2400, 3100), 160, 0.25),
        )
    else:
        formants = ((dice.draw(2500, 5500), 1500, 0.3),)
    mouth = sum(weight / (1 + ((hertz - middle) / width) ** 2) for middle, width, weight in formants)
    shaped = np.fft.irfft(np.fft.rfft(source) * mouth, sample_count) * np.hanning(sample_count)
    return shaped * ((1.0 if pitch_hz else 0.35) / rms(shaped))


def make_street_noise(sample_count: int, rate: int, dice: RandomNumbers) -> Signal:
    """Return street noise: a constant rumble, passing vehicles, and an occasional horn."""
    rumble = _shape_spectrum(dice.draw_white_noise(sample_count), rate, lambda hertz: 1 / (1 + (hertz / 120) ** 1.5))
    heard = rumble / rms(rumble)
    seconds = np.arange(sample_count) / rate
    wind = _shape_spectrum(dice.draw_white_noise(sample_count), rate, lambda hertz: hertz / (1 + (hertz / 500) ** 2.2))
    wind /= rms(wind)
    at = dice.draw(-2, 2)
    while at < sample_count / rate + 2:
        swell = np.exp(-(((seconds - at) / dice.draw(0.6, 1.6)) ** 2))
        heard += dice.draw(0.8, 2.0) * swell * wind
        if dice.draw() < 0.15:
            horn = dice.draw(350, 450)
            honk = np.clip(1 - np.abs(seconds - at) / 0.25, 0, 1)
            heard += honk * (np.sin(2 * np.pi * horn * seconds) + np.sin(2 * np.pi * 1.26 * horn * seconds))
        at += dice.draw(1.0, 3.0)
    return heard


def make_music(sample_count: int, rate: int, dice: RandomNumbers) -> Signal:
    """Return music: four chords in turn, a bass below and a melody above, plucked."""
    heard = np.zeros(sample_count)
    beat = 60 / dice.draw(84, 126)
    start, key = dice.draw(0, 4), dice.draw(-5, 6)
    for number in range(int(sample_count / rate / beat) + 1):
        at = int(number * beat * rate)
        bar = int(start + number / 4) % len(_CHORDS_HALF_TONES)
        if number % 2 == 0:
            for step in _CHORDS_HALF_TONES[bar]:
                _add_note(heard, at, rate, key + step, 0.5)
            _add_note(heard, at, rate, key + _CHORDS_HALF_TONES[bar][0] - 24, 0.9)
        if dice.draw() < 0.75:
            melody = _SCALE_HALF_TONES[int(dice.draw(0, len(_SCALE_HALF_TONES)))] + 12
            _add_note(heard, at + int(dice.draw() < 0.3) * int(beat * rate / 2), rate, key + melody, 0.7)
    return heard


def _add_note(signal: Signal, start_index: int, rate: int, half_tones: float, amplitude: float) -> None:
    """Add one note: six harmonics that decay, the high ones first."""
    size = min(int(1.2 * rate), len(signal) - start_index)
    if size <= 0:
        return
    seconds = np.arange(size) / rate
    hertz = _MIDDLE_C_HZ * 2 ** (half_tones / 12)
    rise = np.minimum(1, seconds / 0.008)
    for harmonic in range(1, 7):
        if harmonic * hertz < rate / 2.2:
            fade = np.exp(-seconds * (2.2 + 1.3 * harmonic))
            signal[start_index : start_index + size] += (
                amplitude / harmonic * rise * fade * np.sin(2 * np.pi * harmonic * hertz * seconds)
            )


def _shape_spectrum(signal: Signal, rate: int, curve: Callable[[NDArray[np.floating]], NDArray[np.floating]]) -> Signal:
    return np.fft.irfft(np.fft.rfft(signal) * curve(np.fft.rfftfreq(len(signal), 1 / rate)), len(signal))


def rms(signal: Signal) -> float:
    """Return the root mean square; 1 for silence, so that it is safe to divide by."""
    return float(np.sqrt(np.mean(np.square(signal)))) or 1.0
