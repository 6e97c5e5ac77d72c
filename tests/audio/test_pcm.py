"""Levels, audible bounds, G.711 and digests of 16-bit samples."""

import hashlib
import io
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import soundfile  # type: ignore[import-untyped]

from pramana import audio
from pramana.audio import BadAudio, Samples
from pramana.installation import make_install_command

RATE = 16_000


def make_tone(seconds: float = 1.0, amplitude: float = 10_000, rate: int = RATE) -> Samples:
    return np.rint(amplitude * np.sin(2 * np.pi * 440 * np.arange(int(seconds * rate)) / rate)).astype(np.int16)


def make_silence(seconds: float, rate: int = RATE) -> Samples:
    return np.zeros(int(seconds * rate), np.int16)


# ── Levels ──


def test_a_full_scale_sine_is_three_decibels_below_a_full_scale_square() -> None:
    square = np.where(np.arange(RATE) % 50 < 25, 32767, -32767).astype(np.int16)
    assert audio.level_dbfs(square) == pytest.approx(0, abs=0.001)
    assert audio.level_dbfs(make_tone(amplitude=32767)) == pytest.approx(-3.01, abs=0.01)


def test_silence_and_empty_input_have_level_minus_120_not_minus_infinity() -> None:
    assert audio.level_dbfs(make_silence(1)) == audio.level_dbfs(make_silence(0)) == -120.0
    assert audio.active_level_dbfs(make_silence(1), RATE) == audio.active_level_dbfs(make_silence(0), RATE) == -120.0


def test_the_active_level_ignores_pauses() -> None:
    spoken = np.concatenate([make_silence(3), make_tone(1), make_silence(6)])
    assert audio.active_level_dbfs(spoken, RATE) == pytest.approx(audio.level_dbfs(make_tone(1)), abs=0.01)
    assert audio.level_dbfs(spoken) == pytest.approx(audio.level_dbfs(make_tone(1)) - 10, abs=0.01)


# ── Audible bounds ──


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 48_000])
@pytest.mark.parametrize("lead", [0, 1, 777, 20_001])
def test_audible_bounds_are_exact_to_the_sample(rate: int, lead: int) -> None:
    sound = np.concatenate([np.zeros(lead, np.int16), np.full(1000, 5000, np.int16), np.zeros(lead, np.int16)])
    assert audio.find_first_audible(sound, rate) == lead
    assert audio.find_last_audible(sound, rate) == lead + 999


def test_hiss_dither_and_line_noise_are_not_audible() -> None:
    dice = np.random.default_rng(1)
    hiss = dice.normal(0, 32, 16_000).astype(np.int16)  # -60 dBFS: single samples reach -48
    assert audio.find_first_audible(hiss, RATE) is None
    assert audio.find_last_audible(dice.integers(-1, 2, 16_000).astype(np.int16), RATE) is None
    assert audio.find_first_audible(audio.decode("mulaw", b"\x7f\xff\x7e\xfe" * 4000), 8_000) is None
    loud = np.concatenate([hiss, make_tone(0.5), hiss])
    assert audio.find_first_audible(loud, RATE) == pytest.approx(16_000, abs=8)
    assert audio.find_last_audible(loud, RATE) == pytest.approx(23_999, abs=8)


def test_empty_input_has_no_audible_part() -> None:
    assert audio.find_first_audible(make_silence(0), RATE) is None
    assert audio.find_last_audible(make_silence(1), RATE) is None
    assert audio.find_first_audible(np.array([9000], np.int16), RATE) == 0


# ── Why it cannot be used ──


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        (make_silence(0), "empty"),
        (make_tone(0.09), "too short: 0.090 s"),
        (make_silence(1), "silent: its level is -120 dBFS"),
        (make_tone(1, 20), "silent: its level is -67 dBFS"),
        (np.clip(make_tone(1, 32767).astype(int) * 3, -32768, 32767).astype(np.int16), "clipped: 78"),
        (np.full(5 * 60 * RATE + 1, 1000, np.int16), "too long: 300 s"),
    ],
)
def test_an_unusable_prompt_gives_a_reason(samples: Samples, reason: str) -> None:
    assert reason in (audio.find_prompt_problem(samples, RATE) or "")


def test_a_sound_with_peaks_at_full_scale_is_accepted() -> None:
    peaking = make_tone(1)
    peaking[100:110] = 32767
    assert audio.find_prompt_problem(peaking, RATE) is None
    assert audio.clipped_share(peaking) == 10 / RATE
    assert audio.find_prompt_problem(make_tone(0.1), RATE) is None


# ── G.711 ──


@pytest.mark.parametrize(("law", "subtype"), [("mulaw", "ULAW"), ("alaw", "ALAW")])
def test_every_g711_code_decodes_like_another_decoder(law: Any, subtype: str) -> None:
    codes = bytes(range(256))
    wav = io.BytesIO(codes)
    read, _ = soundfile.read(wav, dtype="int16", format="RAW", subtype=subtype, channels=1, samplerate=8000)
    assert np.array_equal(audio.decode(law, codes), read)


@pytest.mark.parametrize("law", ["mulaw", "alaw"])
def test_every_g711_code_round_trips(law: Any) -> None:
    codes = bytes(range(256))
    again = audio.encode(law, audio.decode(law, codes))
    differing = {one: other for one, other in zip(codes, again, strict=True) if one != other}
    assert differing == ({0x7F: 0xFF} if law == "mulaw" else {})  # mu-law has two zeros


@pytest.mark.parametrize("law", ["mulaw", "alaw"])
def test_encoding_error_is_at_most_half_a_step(law: Any) -> None:
    samples = np.arange(-32768, 32768).astype(np.int16)
    decoded = audio.decode(law, audio.encode(law, samples)).astype(int)
    bias, finest = (132, 8) if law == "mulaw" else (1, 16)
    steps = np.maximum(finest, 2.0 ** np.floor(np.log2(np.abs(samples.astype(int)) + bias) - 4))
    held = np.clip(samples.astype(int), decoded.min(), decoded.max())
    assert (np.abs(decoded - held) <= steps / 2 + 1).all()
    assert (np.diff(decoded) >= 0).all()


def test_codes_match_the_standard() -> None:
    known = np.array([0, -1, 32767, -32768, 1000, -1000], np.int16)
    assert audio.encode("mulaw", known).hex() == "ff7f8000ce4e"
    assert audio.encode("alaw", known).hex() == "d555aa2afa7a"


def test_pcm_is_little_endian_and_round_trips() -> None:
    samples = np.array([1, -2, 32767], np.int16)
    assert audio.encode("pcm", samples) == b"\x01\x00\xfe\xff\xff\x7f"
    assert np.array_equal(audio.decode("pcm", audio.encode("pcm", samples)), samples)
    assert audio.decode("pcm", b"").size == audio.decode("mulaw", b"").size == 0


@pytest.mark.parametrize(("codec", "data", "reason"), [("pcm", b"\x00", "even"), ("opus", b"", "opus")])
def test_data_that_no_codec_wrote_is_an_error(codec: Any, data: bytes, reason: str) -> None:
    with pytest.raises(BadAudio, match=reason):
        audio.decode(codec, data)


def test_an_unknown_codec_cannot_be_encoded() -> None:
    with pytest.raises(BadAudio, match="pcm, mulaw and alaw"):
        audio.encode("opus", make_tone())  # type: ignore[arg-type]


# ── Digests ──


def test_a_digest_covers_samples_and_rate_only() -> None:
    assert audio.digest_sound(make_tone(), RATE) == audio.digest_sound(make_tone().copy(), RATE)
    assert audio.digest_sound(make_tone(), RATE) != audio.digest_sound(make_tone(), 8_000)
    assert audio.digest_sound(make_tone(), RATE) != audio.digest_sound(make_tone(amplitude=9_999), RATE)
    assert audio.digest_sound(make_tone().astype(">i2"), RATE) == audio.digest_sound(make_tone(), RATE)
    assert audio.digest_sound(np.array([1], np.int16), 16_000) == (
        "sha256:" + hashlib.sha256(b"pcm16 mono 16000\n\x01\x00").hexdigest()
    )


def test_importing_the_package_imports_no_numpy() -> None:
    code = "import sys, pramana.audio, pramana.audio.conditions as c; c.parse_conditions('phone'); print('numpy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"


def test_without_numpy_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['numpy'] = None\n"
        "from pramana import audio, errors\n"
        "try: audio.level_dbfs\n"
        "except errors.EngineMissing as error: print(error)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert make_install_command("voice") in run.stdout
