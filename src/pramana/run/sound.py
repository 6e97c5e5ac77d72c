"""The sound of a call in both directions: outgoing frames, and incoming sound placed where it is heard.

The microphone does all slow work, above all resampling, when it is created, so create it in a thread. Frames last 20 ms
at any rate: if that is not a whole number of samples, frames differ by one sample, and none is lost.

Playout: agents send faster than real time, so each piece plays after all earlier ones; an interruption drops what was
not played. Some agents send silence whenever they do not speak: the queue's length means little, so audible sound is
tracked separately. Positions are seconds since the call's first frame. Nothing is decided or measured here.
"""

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pramana import audio
from pramana.errors import BrokenReply
from pramana.model import Utterance
from pramana.providers.voice.vocabulary import FRAME_S, Format

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.int16]


FRAMES_PER_SECOND = round(1 / FRAME_S)
MAX_FRAME_LATENESS_S = 0.02
"""A frame later than this makes the times around it unreliable: the tolerance of the self-test."""
MAX_BURST_FRAMES, CATCH_UP_INTERVAL_S = 5, FRAME_S / 4
"""`MAX_BURST_FRAMES` late frames are sent together, the rest `CATCH_UP_INTERVAL_S` apart: at four times real time,
never all in a burst. With one at a time, a machine that always wakes late would never catch up."""
MAX_RECORDED_STALLS = 1000


class _CallerLine(Struct, frozen=True):
    samples: "Samples"
    """At `audio.CALLER_SAMPLE_RATE`, padded with silence to the end of the last frame."""
    encoded_frames: bytes
    """The encoded frames."""
    frame_count: int
    audible_end_s: float
    """Until the end of its last audible sample; the whole length if none is audible."""


class Microphone:
    """The caller's sound: frame after frame, of the current line or of silence."""

    def __init__(self, uplink: Format, spoken: Sequence[Utterance]) -> None:
        import numpy as np

        self._rate, self._width = uplink.rate, 2 if uplink.codec == "pcm" else 1
        frame = audio.CALLER_SAMPLE_RATE // FRAMES_PER_SECOND
        self._lines = []
        for each in spoken:
            samples: Samples = np.pad(each.samples, (0, -len(each.samples) % frame))
            last = audio.find_last_audible(each.samples, audio.CALLER_SAMPLE_RATE)
            heard = len(each.samples) if last is None else last + 1
            sent = audio.encode(uplink.codec, audio.resample(samples, audio.CALLER_SAMPLE_RATE, uplink.rate))
            self._lines.append(_CallerLine(samples, sent, len(samples) // frame, heard / audio.CALLER_SAMPLE_RATE))
        # One extra sample, for rates at which some frames are longer.
        self._quiet = audio.encode(uplink.codec, np.zeros(uplink.rate // FRAMES_PER_SECOND + 1, np.int16))
        self._spoken_lines: list[tuple[int, Samples]] = []
        """First frame and samples of each spoken line."""
        self._line: _CallerLine | None = None
        self._line_start = 0
        self.frames = 0

    def begin_line(self, line_index: int) -> float:
        """Begin a line with the next frame; return the position where its last audible sample will end."""
        self._line, self._line_start = self._lines[line_index], self.frames
        self._spoken_lines.append((self.frames, self._line.samples))
        return self.frames * FRAME_S + self._line.audible_end_s

    @property
    def is_speaking(self) -> bool:
        return self._line is not None

    def next_frame(self) -> bytes:
        """Return the next frame."""
        start, end = self._frame_offset(self.frames), self._frame_offset(self.frames + 1)
        self.frames += 1
        if self._line is None:
            return self._quiet[: end - start]
        before = self._frame_offset(self._line_start)
        piece = self._line.encoded_frames[start - before : end - before]
        if self.frames - self._line_start >= self._line.frame_count:
            self._line = None
        return piece + self._quiet[: end - start - len(piece)]

    def render_caller_channel(self, rate: int, sample_count: int) -> "Samples":
        """Return the caller's sound on the recording's clock."""
        import numpy as np

        track: Samples = np.zeros(sample_count, np.int16)
        for frame, samples in self._spoken_lines:
            first = round(frame * FRAME_S * rate)
            told = audio.resample(samples, audio.CALLER_SAMPLE_RATE, rate)[: max(0, sample_count - first)]
            track[first : first + len(told)] = told
        return track

    def _frame_offset(self, frame: int) -> int:
        """Return the byte offset of a frame in all that is sent."""
        return frame * self._rate // FRAMES_PER_SECOND * self._width


class FramePacer:
    """Records how late frames were sent, so that readers of a log know whether its clock is reliable."""

    def __init__(self) -> None:
        self._lateness: list[float] = []
        self._longest_gap = 0.0
        self._last: float | None = None
        self._paced_until = 0.0
        """When all frames so far would have been sent at one per `CATCH_UP_INTERVAL_S`."""
        self._stalls: list[list[float]] = []
        """Intervals in which frames were later than `MAX_FRAME_LATENESS_S`, each with the maximum lateness."""

    def find_send_time_s(self, frame: int) -> float:
        """Return when to send a frame: when its sound is over, and not in one burst with other late frames."""
        return max((frame + 1) * FRAME_S, self._paced_until - (MAX_BURST_FRAMES - 1) * CATCH_UP_INTERVAL_S)

    def record_sent(self, frame: int, now: float) -> None:
        """Record that a frame is sent now."""
        due = (frame + 1) * FRAME_S
        late = max(0.0, now - due)
        self._lateness.append(late)
        if self._last is not None:
            self._longest_gap = max(self._longest_gap, now - self._last)
        self._last = now
        self._paced_until = max(self._paced_until, now) + CATCH_UP_INTERVAL_S
        if late <= MAX_FRAME_LATENESS_S:
            return
        if self._stalls and (due <= self._stalls[-1][1] + FRAME_S or len(self._stalls) == MAX_RECORDED_STALLS):
            last = self._stalls[-1]
            last[1:] = [now, max(last[2], late)]
        else:
            self._stalls.append([due, now, late])

    def to_log(self) -> dict[str, Any]:
        """Return the pacing for the log."""
        ordered = sorted(self._lateness)
        p95 = ordered[math.ceil(0.95 * len(ordered)) - 1] if ordered else 0.0
        return {
            "frames": len(ordered),
            "late_p95_s": round(p95, 6),
            "late_most_s": round(max(ordered, default=0.0), 6),
            "longest_gap_s": round(self._longest_gap, 6),
            "stalls": [[round(each, 6) for each in stall] for stall in self._stalls],
        }


# ── Playout ──

MAX_BUFFERED_S = 600.0
"""Maximum sound waiting to be played: no answer is that long."""
_SEARCH_CHUNK_S = 0.25
"""Length of sound searched at a time: searching a long piece in one go would delay frames."""


class SoundPiece(Struct):
    """A piece of the agent's sound, and when it plays."""

    start_s: float
    duration_s: float
    data: bytes
    audible_range_s: tuple[float, float] | None
    """Positions of its first audible sample and of the end of its last; None if it is silent."""

    @property
    def end_s(self) -> float:
        return self.start_s + self.duration_s


class Playout:
    """What a listener hears of a stream that arrives faster than real time."""

    def __init__(self, downlink: Format) -> None:
        self.downlink = downlink
        self._width = 2 if downlink.codec == "pcm" else 1
        self._pieces: list[SoundPiece] = []
        self._answer = 0
        """Index of the current answer's first piece."""
        self.end = 0.0
        """When all sound has been played."""
        self.audible_end = 0.0
        """When all audible sound has been played."""

    def add(self, data: bytes, now: float) -> SoundPiece:
        """Queue sound that arrives now; half a sample at its end is dropped."""
        data = data[: len(data) // self._width * self._width]
        start, seconds = max(now, self.end), len(data) / self._width / self.downlink.rate
        if start + seconds - now > MAX_BUFFERED_S:
            raise BrokenReply(f"the agent has sent {MAX_BUFFERED_S:g} s more sound than was played")
        piece = SoundPiece(start, seconds, data, self._find_audible_range(data, start))
        self._pieces.append(piece)
        self.end = piece.end_s
        if piece.audible_range_s:
            self.audible_end = piece.audible_range_s[1]
        return piece

    def begin_answer(self) -> None:
        """Start counting `measure_played_answer_s` with the next piece."""
        self._answer = len(self._pieces)

    def measure_played_answer_s(self, now: float) -> float:
        """Return how many seconds of the current answer have been played, without gaps."""
        return sum(max(0.0, min(piece.end_s, now) - piece.start_s) for piece in self._pieces[self._answer :])

    def drop_unplayed(self, now: float) -> float:
        """Drop sound not yet played; return its length in seconds."""
        dropped = sum(max(0.0, piece.end_s - max(piece.start_s, now)) for piece in reversed(self._pieces))
        while self._pieces and self._pieces[-1].start_s >= now:
            self._pieces.pop()
        if self._pieces and (last := self._pieces[-1]).end_s > now:
            last.data = last.data[: int((now - last.start_s) * self.downlink.rate) * self._width]
            last.duration_s = len(last.data) / self._width / self.downlink.rate
            if last.audible_range_s:
                last.audible_range_s = (
                    (last.audible_range_s[0], min(last.audible_range_s[1], now))
                    if last.audible_range_s[0] < now
                    else None
                )
        self._answer = min(self._answer, len(self._pieces))
        self.end = min(self.end, now)
        if self.audible_end > now:
            self.audible_end = next(
                (each.audible_range_s[1] for each in reversed(self._pieces) if each.audible_range_s), 0.0
            )
        return dropped

    def render_agent_channel(self, rate: int, sample_count: int) -> "Samples":
        """Return all sound of the agent on the recording's clock; contiguous pieces are resampled as one."""
        import numpy as np

        track: Samples = np.zeros(sample_count, np.int16)
        for start, data in self._join_pieces():
            samples = audio.resample(audio.decode(self.downlink.codec, data), self.downlink.rate, rate)
            first = round(start * rate)
            samples = samples[: max(0, sample_count - first)]
            track[first : first + len(samples)] = samples
        return track

    def _find_audible_range(self, data: bytes, start: float) -> tuple[float, float] | None:
        """Return the interval in which sound that starts at a position is audible, or None."""
        rate = self.downlink.rate
        samples = audio.decode(self.downlink.codec, data)
        first = _find_first_audible(samples, rate)
        if first is None:
            return None
        behind = _find_first_audible(samples[::-1], rate) or 0
        return start + first / rate, start + (len(samples) - behind) / rate

    def _join_pieces(self) -> Iterator[tuple[float, bytes]]:
        start, end = 0.0, -1.0
        parts: list[bytes] = []
        for piece in self._pieces:
            if parts and abs(piece.start_s - end) > 1e-6:
                yield start, b"".join(parts)
                parts = []
            if not parts:
                start = piece.start_s
            parts.append(piece.data)
            end = piece.end_s
        if parts:
            yield start, b"".join(parts)


def _find_first_audible(samples: "Samples", rate: int) -> int | None:
    """Return the same as `audio.find_first_audible`, but stop at the first match."""
    step = max(1, round(_SEARCH_CHUNK_S * rate))
    beside = round(0.01 * rate)  # two windows of the audibility rule, so that none is cut in half
    for begin in range(0, len(samples), step):
        found = audio.find_first_audible(samples[begin : begin + step + beside], rate)
        if found is not None:
            return begin + found
    return None
