"""Sound files: the bytes of a WAV, FLAC, OGG or MP3 go in, 16-bit samples come out; and samples become a WAV.

A file is checked before it is decoded: one that is truncated, states a wrong length or is not sound raises `BadAudio`
with the reason. Nothing is guessed or repaired, and no more than `MAX_PROMPT_S` seconds are ever decoded.
"""

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pramana.audio.faults import BadAudio, explain_missing_library
from pramana.audio.pcm import FULL_SCALE, HIGHEST_RATE, LOWEST_RATE, MAX_PROMPT_S, Samples, round_to_samples

if TYPE_CHECKING:
    import soundfile  # type: ignore[import-untyped]

MAX_CHANNELS = 8
_BLOCK_FRAMES = 1 << 16
_UNKNOWN_WAV_SIZE = 0xFFFFFFFF
"""The size in a WAV that was written before its length was known: it extends to the end of the file."""
_PCM, _EXTENSIBLE = 1, 0xFFFE
_FORMATS_TEXT = "WAV, FLAC, OGG or MP3"


@dataclass(frozen=True, slots=True)
class DecodedSound:
    """One channel of 16-bit samples, and the sample rate."""

    samples: Samples
    rate: int

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate


def read_sound(data: bytes) -> DecodedSound:
    """Return the sound of a file, with its channels mixed into one."""
    _check_file_complete(data)
    with explain_missing_library("reading a sound file"):
        import soundfile
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            return _decode_sound(file)
    except soundfile.SoundFileError as error:
        said = str(getattr(error, "error_string", "") or "no reason given").rstrip(".")
        raise BadAudio(f"the audio cannot be decoded ({said}): the file is damaged or ends too early") from None


def write_wav(samples: Samples, rate: int) -> bytes:
    """Return samples as a WAV file, with one channel per column of the array."""
    channels = samples.shape[1] if samples.ndim == 2 else 1
    body = samples.astype("<i2", copy=False).tobytes()
    width = 2 * channels
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, _PCM, channels, rate, rate * width, width, 16)
    return (
        struct.pack("<4sI4s", b"RIFF", 36 + len(body), b"WAVE") + form + struct.pack("<4sI", b"data", len(body)) + body
    )


def read_wav(data: bytes) -> tuple[Samples, int]:
    """Return the samples of a 16-bit WAV, one column per channel if there are several, and its rate."""
    chunks = dict(_iterate_wav_chunks(data))
    form, body = chunks.get(b"fmt "), chunks.get(b"data")
    if form is None or body is None or len(form) < 16:
        raise BadAudio("the WAV lacks a complete fmt chunk or its data chunk")
    kind, channels, rate, _, width, bits = struct.unpack_from("<HHIIHH", form)
    if kind == _EXTENSIBLE and len(form) >= 26:
        (kind,) = struct.unpack_from("<H", form, 24)
    if kind != _PCM or bits != 16 or not channels or width != 2 * channels or not rate:
        raise BadAudio(f"the WAV is of format {kind} with {bits} bits in {channels} channels, not 16-bit PCM")
    if len(body) % width:
        raise BadAudio(f"the WAV ends in the middle of a sample: {len(body)} bytes are not a multiple of {width}")
    samples = np.frombuffer(body, "<i2").astype(np.int16)
    return (samples if channels == 1 else samples.reshape(-1, channels)), rate


def _decode_sound(file: "soundfile.DecodedSound") -> DecodedSound:
    rate, channels = int(file.samplerate), int(file.channels)
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise BadAudio(f"the audio has {rate} samples per second, outside {LOWEST_RATE} to {HIGHEST_RATE}")
    if channels > MAX_CHANNELS:
        raise BadAudio(f"the audio has {channels} channels, and at most {MAX_CHANNELS} are supported")
    longest = int(MAX_PROMPT_S * rate)
    if file.frames > longest:
        raise BadAudio(
            f"the audio states a length of {file.frames / rate:,.0f} s, and at most {MAX_PROMPT_S:.0f} s are read"
        )
    blocks, frames = [], 0
    while len(block := file.read(_BLOCK_FRAMES, dtype="float64", always_2d=True)):
        if not np.isfinite(block).all():
            raise BadAudio("the audio contains samples that are not numbers (NaN or infinite)")
        blocks.append(round_to_samples(block.mean(axis=1) * FULL_SCALE))
        frames += len(block)
        if frames > longest:
            raise BadAudio(f"the audio is longer than {MAX_PROMPT_S:.0f} s")
    if frames < file.frames:
        raise BadAudio(
            f"the audio is cut off: {file.frames / rate:.2f} s are declared, {frames / rate:.2f} s are there"
        )
    if not frames:
        raise BadAudio("the audio contains no samples")
    return DecodedSound(np.concatenate(blocks), rate)


# ── Checks before decoding ──


def _check_file_complete(data: bytes) -> None:
    if not data:
        raise BadAudio("the file is empty")
    if data[:4] in {b"RIFF", b"RIFX"}:
        for _ in _iterate_wav_chunks(data):
            pass
    elif data[:4] == b"OggS":
        _check_ogg(data)
    elif data[:3] == b"ID3" or (data[0] == 0xFF and len(data) > 1 and data[1] >= 0xE0):
        _check_mp3(data)
    elif data[:4] != b"fLaC":
        raise BadAudio(f"the audio is not a {_FORMATS_TEXT} file: it begins with {data[:8]!r}")


def _iterate_wav_chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the chunks of a WAV, each complete."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise BadAudio(f"the audio is not a WAV file: it begins with {data[:12]!r}")
    place = 12
    while place + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, place)
        there = len(data) - place - 8
        if name == b"data" and size == _UNKNOWN_WAV_SIZE:
            size = there
        if size > there:
            raise BadAudio(
                f"the audio is cut off: its {name.decode('latin-1').strip()} chunk declares {size:,} bytes, "
                f"{there:,} are there"
            )
        yield name, data[place + 8 : place + 8 + size]
        place += 8 + size + size % 2


def _check_ogg(data: bytes) -> None:
    """Refuse an OGG whose last page is not marked as the last."""
    place, last = 0, False
    while place < len(data):
        head = data[place : place + 27]
        if len(head) < 27 or head[:4] != b"OggS":
            raise BadAudio(f"the audio is cut off or damaged: no OGG page begins at byte {place:,}")
        table = data[place + 27 : place + 27 + head[26]]
        end = place + 27 + head[26] + sum(table)
        if len(table) < head[26] or end > len(data):
            raise BadAudio(f"the audio is cut off: its last page, at byte {place:,}, is not whole")
        place, last = end, bool(head[5] & 4)
    if not last:
        raise BadAudio("the audio is cut off: its last page does not end the stream")


_MP3_BITRATES = {  # kbit/s of layer III by index: of MPEG 1, and of MPEG 2 and 2.5
    3: (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    2: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
_MP3_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
_MP3_TAGS = (b"TAG", b"APETAGEX", b"ID3", b"LYRICSBEGIN")


def _check_mp3(data: bytes) -> None:
    """Refuse an MP3 that is not a sequence of whole frames; a decoder would search on, and print warnings."""
    place = 0
    if data[:3] == b"ID3":
        size = int.from_bytes(data[6:10], "big")
        place = 10 + sum((size >> 8 * at & 0x7F) << 7 * at for at in range(4)) + (10 if data[5:6] >= b"\x10" else 0)
    promised, frames, seconds = 0, 0, 0.0
    end = len(data.rstrip(b"\0"))  # once: megabytes of zeros may follow the last frame
    while place < end and not data.startswith(_MP3_TAGS, place):
        frame = _parse_mp3_frame_header(data, place)
        if frame is None:
            raise BadAudio(f"the audio is not an MP3, or damaged: no layer III frame begins at byte {place:,}")
        length, lasts_s = frame
        if place + length > len(data):
            raise BadAudio(f"the audio is cut off: its last frame, at byte {place:,}, is not whole")
        if not frames:
            promised = _read_stated_frame_count(data[place : place + length])
        seconds += lasts_s
        if seconds > MAX_PROMPT_S:
            raise BadAudio(f"the audio is longer than {MAX_PROMPT_S:.0f} s")
        frames, place = frames + 1, place + length
    if frames < 2:
        raise BadAudio("the audio is not an MP3, or cut off: it has fewer than two frames")
    if promised > frames:
        raise BadAudio(f"the audio is cut off: it declares {promised:,} frames, {frames:,} are there")


def _parse_mp3_frame_header(data: bytes, offset: int) -> tuple[int, float] | None:
    """Return the length and the duration of the frame at this position, or None.

    A frame of MPEG 1 has 1,152 samples, of the others half as many.
    """
    head = int.from_bytes(data[offset : offset + 4], "big")
    version, layer, bitrate, rate = head >> 19 & 3, head >> 17 & 3, head >> 12 & 15, head >> 10 & 3
    if head >> 21 != 0x7FF or version == 1 or layer != 1 or bitrate in {0, 15} or rate == 3:
        return None
    bits = _MP3_BITRATES[3 if version == 3 else 2][bitrate - 1] * 1000
    hertz = _MP3_RATES[version][rate]
    samples = 1152 if version == 3 else 576
    return samples // 8 * bits // hertz + (head >> 9 & 1), samples / hertz


def _read_stated_frame_count(first_frame: bytes) -> int:
    """Return the number of frames that the first frame states; 0 if it states none."""
    for name in (b"Xing", b"Info"):
        place = first_frame.find(name, 4, 48)
        if place >= 0 and len(first_frame) >= place + 12 and first_frame[place + 7] & 1:
            return int.from_bytes(first_frame[place + 8 : place + 12], "big")
    return 0
