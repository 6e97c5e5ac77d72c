"""Sound files: what is read, what is refused, and that our WAV files are identical everywhere."""

import io
import random
import re
import struct
import sys
import time

import numpy as np
import pytest
import soundfile  # type: ignore[import-untyped]

from pramana import audio
from pramana.audio import BadAudio, Samples
from pramana.errors import EngineMissing, InvalidInput
from pramana.installation import make_install_command

RATE = 16_000
TONE: Samples = np.rint(8000 * np.sin(np.arange(2 * RATE) * 0.17)).astype(np.int16)
FORMATS = [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("OGG", "VORBIS"), ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III")]


def encode_file(form: str, subtype: str, samples: object = TONE, rate: int = RATE) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format=form, subtype=subtype)
    return file.getvalue()


def make_wav(body: bytes, stated: int, rate: int = RATE, channels: int = 1, bits: int = 16, kind: int = 1) -> bytes:
    width = channels * bits // 8
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, kind, channels, rate, rate * width, width, bits)
    return struct.pack("<4sI4s", b"RIFF", 36 + len(body), b"WAVE") + form + struct.pack("<4sI", b"data", stated) + body


# ── Read ──


@pytest.mark.parametrize(("form", "subtype"), FORMATS)
def test_every_format_is_read(form: str, subtype: str) -> None:
    sound = audio.read_sound(encode_file(form, subtype))
    assert sound.rate == RATE
    assert sound.seconds == pytest.approx(2, abs=0.05)
    assert sound.samples.dtype == np.int16
    assert audio.level_dbfs(sound.samples) == pytest.approx(audio.level_dbfs(TONE), abs=0.5)


@pytest.mark.parametrize(
    ("form", "subtype"), [("WAV", "PCM_16"), ("FLAC", "PCM_16"), ("WAV", "FLOAT"), ("WAV", "PCM_24")]
)
def test_16_bit_samples_come_back_bit_for_bit(form: str, subtype: str) -> None:
    full = np.arange(-32768, 32768, 7).astype(np.int16)
    assert np.array_equal(audio.read_sound(encode_file(form, subtype, full / 32768)).samples, full)


def test_channels_are_mixed_to_mono() -> None:
    both = np.stack([np.full(RATE, 1000), np.full(RATE, 3000)], axis=1).astype(np.int16)
    assert (audio.read_sound(encode_file("WAV", "PCM_16", both)).samples == 2000).all()


def test_a_streamed_wav_without_length_is_read_to_its_end() -> None:
    assert len(audio.read_sound(make_wav(TONE.tobytes(), 0xFFFFFFFF)).samples) == len(TONE)


# ── Written ──


def test_our_wav_equals_that_of_another_writer() -> None:
    assert audio.write_wav(TONE, RATE) == encode_file("WAV", "PCM_16")
    both = np.stack([TONE, TONE[::-1]], axis=1)
    assert audio.write_wav(both, 24_000) == encode_file("WAV", "PCM_16", both, 24_000)


@pytest.mark.parametrize("channels", [1, 2])
def test_a_wav_round_trips_with_its_channels(channels: int) -> None:
    written = TONE if channels == 1 else np.stack([TONE, -TONE], axis=1)
    samples, rate = audio.read_wav(audio.write_wav(written, 24_000))
    assert rate == 24_000
    assert np.array_equal(samples, written)


def test_an_empty_recording_is_a_valid_wav() -> None:
    samples, _ = audio.read_wav(audio.write_wav(np.zeros((0, 2), np.int16), 24_000))
    assert samples.shape == (0, 2)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a WAV file"),
        (make_wav(b"\0" * 8, 100), "cut off"),
        (make_wav(b"\0" * 3, 3), "middle of a sample"),
        (make_wav(b"\0" * 8, 8, bits=8), "not 16-bit PCM"),
        (make_wav(b"\0" * 8, 8, kind=3, bits=32), "not 16-bit PCM"),
        (make_wav(b"\0" * 8, 8, channels=0), "not 16-bit PCM"),
        (make_wav(b"", 0)[:36], "its data chunk"),
    ],
)
def test_a_recording_other_than_16_bit_wav_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(BadAudio, match=reason):
        audio.read_wav(data)


# ── Refused ──


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"Hello, this is text.", "not a WAV, FLAC, OGG or MP3 file"),
        (b"\x00" * 4096, "not a WAV, FLAC, OGG or MP3 file"),
        (b"RIFF", "not a WAV file"),
        (b"RIFF\x00\x00\x00\x00AVI LIST", "not a WAV file"),
        (make_wav(b"", 0)[:36], "cannot be decoded"),
        (make_wav(TONE.tobytes(), 1 << 30), "declares 1,073,741,824 bytes, 64,000 are there"),
        (make_wav(TONE.tobytes()[:-2], len(TONE) * 2), "cut off"),
        (make_wav(b"", 0), "no sample"),
        (make_wav(TONE.tobytes(), len(TONE) * 2, rate=1), "1 samples per second"),
        (make_wav(TONE.tobytes(), len(TONE) * 2, channels=16), "16 channels"),
        (make_wav(b"\1\0" * 8_000 * 301, 2 * 8_000 * 301, rate=8_000), "301 s"),
        (b"\xff\xfb", "not an MP3"),
        (b"\xff\xfb\x90\x64" + b"\0" * 40, "cut off"),
        (b"ID3\x04\x00\x00\x7f\x7f\x7f\x7f", "two frames"),
        (b"OggS" + b"\0" * 10, "no OGG page"),
        (b"fLaC" + b"\xff" * 64, "cannot be decoded"),
    ],
)
def test_a_file_without_sound_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(BadAudio, match=reason) as caught:
        audio.read_sound(data)
    assert isinstance(caught.value, InvalidInput)


@pytest.mark.parametrize(("form", "subtype"), FORMATS)
@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.9, 0.995])
def test_a_truncated_file_is_never_read_as_a_shorter_one(
    form: str, subtype: str, share: float, capfd: pytest.CaptureFixture[str]
) -> None:
    data = encode_file(form, subtype)
    with pytest.raises(BadAudio):
        audio.read_sound(data[: int(len(data) * share)])
    assert capfd.readouterr().err == ""  # decoders complain aloud


def test_a_flac_header_claiming_hours_is_refused_before_decoding() -> None:
    data = bytearray(encode_file("FLAC", "PCM_16"))
    data[21] |= 0x0F  # the upper bits of the number of samples
    with pytest.raises(BadAudio, match="states a length of"):
        audio.read_sound(bytes(data))


def test_an_mp3_with_tags_at_both_ends_is_read() -> None:
    data = encode_file("MP3", "MPEG_LAYER_III")
    tagged = b"ID3\x04\x00\x00\x00\x00\x01\x00" + b"\0" * 128 + data + b"TAG" + b"\0" * 125
    assert audio.read_sound(tagged).seconds == pytest.approx(2, abs=0.05)


def test_an_mp3_of_many_small_frames_is_refused_quickly() -> None:
    frame = bytes([0xFF, 0xF3, 0x14, 0xC0]) + b"\1" * 20
    start = time.perf_counter()
    with pytest.raises(BadAudio, match="longer than 300 s"):
        audio.read_sound(frame * (40_000_000 // len(frame)) + b"\0" * 5_000_000)
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
def test_nan_samples_are_refused_not_repaired(strange: float) -> None:
    samples = np.sin(np.arange(RATE) * 0.17).astype(np.float32) / 4
    samples[100] = strange
    with pytest.raises(BadAudio, match="not numbers"):
        audio.read_sound(encode_file("WAV", "FLOAT", samples))


@pytest.mark.parametrize(("form", "subtype"), FORMATS)
def test_corrupted_files_are_read_or_refused_without_crashing(form: str, subtype: str) -> None:
    data, dice = encode_file(form, subtype, TONE[:8000]), random.Random(form + subtype)
    for _ in range(60):
        broken = bytearray(data)
        for _ in range(dice.randint(1, 8)):
            broken[dice.randrange(len(broken) if dice.random() < 0.5 else 64)] = dice.randrange(256)
        try:
            assert audio.read_sound(bytes(broken)).samples.dtype == np.int16
        except BadAudio as refused:
            assert str(refused)  # noqa: PT017 - being read is fine too


def test_random_bytes_after_a_valid_header_are_refused() -> None:
    dice = random.Random(4)
    for head in (b"RIFF\xff\xff\x00\x00WAVE", b"fLaC", b"OggS", b"ID3", b"\xff\xfb", b""):
        for _ in range(40):
            with pytest.raises(BadAudio):
                audio.read_sound(head + dice.randbytes(dice.randint(0, 3000)))


def test_without_soundfile_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(EngineMissing, match=re.escape(make_install_command("voice"))):
        audio.read_sound(make_wav(TONE.tobytes(), 2 * len(TONE)))
