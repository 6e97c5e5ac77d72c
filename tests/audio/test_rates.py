"""Resampling: the same sound at another rate, in one piece or in many."""

import re
import sys

import numpy as np
import pytest

from pramana import audio
from pramana.audio import BadAudio, Samples
from pramana.errors import EngineMissing
from pramana.installation import make_install_command


def make_tone(rate: int, hertz: float = 440, seconds: float = 1.0) -> Samples:
    waves: Samples = np.rint(12_000 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)).astype(
        np.int16
    )
    return waves


@pytest.mark.parametrize(("source", "target"), [(16_000, 24_000), (24_000, 16_000), (8_000, 16_000), (44_100, 16_000)])
def test_resampling_keeps_a_tone(source: int, target: int) -> None:
    there = audio.resample(make_tone(source), source, target)
    inner = slice(target // 20, -target // 20)
    assert len(there) == target
    assert np.abs(there[inner].astype(int) - make_tone(target)[inner]).max() <= 2


def test_silence_stays_silent_and_resampling_is_deterministic() -> None:
    assert not audio.resample(np.zeros(16_000, np.int16), 16_000, 24_000).any()
    assert np.array_equal(
        audio.resample(make_tone(16_000), 16_000, 24_000), audio.resample(make_tone(16_000), 16_000, 24_000)
    )


def test_overshoots_are_clamped_and_never_wrap_around() -> None:
    square = np.where(np.arange(16_000) % 40 < 20, 32767, -32768).astype(np.int16)
    there = audio.resample(square, 16_000, 24_000).astype(int)
    assert there.max() == 32767
    assert np.abs(np.diff(there[1000:-1000])).max() < 50_000


def test_the_same_rate_and_empty_input_are_returned_unchanged() -> None:
    assert np.array_equal(audio.resample(make_tone(16_000), 16_000, 16_000), make_tone(16_000))
    assert audio.resample(np.zeros(0, np.int16), 16_000, 24_000).size == 0


@pytest.mark.parametrize("rates", [(0, 16_000), (16_000, -1), (10**9, 16_000)])
def test_an_invalid_rate_is_refused(rates: tuple[int, int]) -> None:
    with pytest.raises(BadAudio, match="samples per second"):
        audio.resample(make_tone(16_000), *rates)


def test_without_soxr_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soxr", None)
    with pytest.raises(EngineMissing, match=re.escape(make_install_command("voice"))):
        audio.resample(make_tone(16_000), 16_000, 24_000)
