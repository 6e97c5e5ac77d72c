"""The loudspeaker of a call: sound comes in as it arrives, and goes out where on the call's clock it is heard.

Agents send faster than anyone can listen, so that each piece is played when all before it has been; an interruption
drops what was not. Some agents send silence whenever they say nothing: what is queued says little, and what is audible
of it is known apart. Positions are seconds since the call's first frame. It decides nothing and measures nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pramana.errors import BrokenReply
from pramana.providers.voice.vocabulary import Format

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.int16]

MOST_AHEAD_S = 600.0
"""Of sound waiting to be played: no answer is that long."""
_LOOK_S = 0.25
"""Of sound looked through at a time for what is audible: to look through all of a long piece would hold up frames."""


@dataclass(slots=True)
class Piece:
    """A piece of the agent's sound, and when it is played."""

    start: float
    seconds: float
    data: bytes
    audible: tuple[float, float] | None
    """Positions of its first audible sample and of the end of its last; None where it is silence."""

    @property
    def end(self) -> float:
        return self.start + self.seconds


class Playout:
    """What a listener hears of a stream that comes faster than it is spoken."""

    def __init__(self, downlink: Format) -> None:
        self.downlink = downlink
        self._width = 2 if downlink.codec == "pcm" else 1
        self._pieces: list[Piece] = []
        self._answer = 0
        """The place of the first piece of the answer at hand."""
        self.end = 0.0
        """When all sound has been played."""
        self.audible_end = 0.0
        """When all sound that can be heard has been."""

    def add(self, data: bytes, now: float) -> Piece:
        """Queue sound that arrives now; half a sample at its end is none."""
        data = data[: len(data) // self._width * self._width]
        start, seconds = max(now, self.end), len(data) / self._width / self.downlink.rate
        if start + seconds - now > MOST_AHEAD_S:
            raise BrokenReply(f"the agent has sent {MOST_AHEAD_S:g} s more of sound than could be played")
        piece = Piece(start, seconds, data, self._audible(data, start))
        self._pieces.append(piece)
        self.end = piece.end
        if piece.audible:
            self.audible_end = piece.audible[1]
        return piece

    def begin_answer(self) -> None:
        """Count what is played from the next piece on."""
        self._answer = len(self._pieces)

    def played_s(self, now: float) -> float:
        """Return how much of the answer at hand has been played: its sound, without the gaps between."""
        return sum(max(0.0, min(piece.end, now) - piece.start) for piece in self._pieces[self._answer :])

    def drop(self, now: float) -> float:
        """Forget what would be played from now on; return how many seconds that is."""
        dropped = sum(max(0.0, piece.end - max(piece.start, now)) for piece in self._unplayed(now))
        while self._pieces and self._pieces[-1].start >= now:
            self._pieces.pop()
        if self._pieces and (last := self._pieces[-1]).end > now:
            last.data = last.data[: int((now - last.start) * self.downlink.rate) * self._width]
            last.seconds = len(last.data) / self._width / self.downlink.rate
            if last.audible:
                last.audible = (last.audible[0], min(last.audible[1], now)) if last.audible[0] < now else None
        self._answer = min(self._answer, len(self._pieces))
        self.end = min(self.end, now)
        if self.audible_end > now:
            self.audible_end = next((each.audible[1] for each in reversed(self._pieces) if each.audible), 0.0)
        return dropped

    def rendered(self, rate: int, length: int) -> "Samples":
        """Return all of it on the recording's clock; what belongs together is resampled in one piece."""
        import numpy as np

        from pramana import audio

        track: Samples = np.zeros(length, np.int16)
        for start, data in self._joined():
            samples = audio.resample(audio.decode(self.downlink.codec, data), self.downlink.rate, rate)
            first = round(start * rate)
            samples = samples[: max(0, length - first)]
            track[first : first + len(samples)] = samples
        return track

    def _unplayed(self, now: float) -> Iterator[Piece]:
        for piece in reversed(self._pieces):
            if piece.end <= now:
                return
            yield piece

    def _audible(self, data: bytes, start: float) -> tuple[float, float] | None:
        """Return from when until when something is heard in sound that begins at a position."""
        from pramana import audio

        rate = self.downlink.rate
        samples = audio.decode(self.downlink.codec, data)
        first = _first_audible(samples, rate)
        if first is None:
            return None
        behind = _first_audible(samples[::-1], rate) or 0
        return start + first / rate, start + (len(samples) - behind) / rate

    def _joined(self) -> Iterator[tuple[float, bytes]]:
        start, end = 0.0, -1.0
        parts: list[bytes] = []
        for piece in self._pieces:
            if parts and abs(piece.start - end) > 1e-6:
                yield start, b"".join(parts)
                parts = []
            if not parts:
                start = piece.start
            parts.append(piece.data)
            end = piece.end
        if parts:
            yield start, b"".join(parts)


def _first_audible(samples: "Samples", rate: int) -> int | None:
    """Return what `audio.first_audible` does, without going on behind it."""
    from pramana import audio

    step = max(1, round(_LOOK_S * rate))
    beside = round(0.01 * rate)  # two windows of the rule, so that none is cut in half
    for begin in range(0, len(samples), step):
        found = audio.first_audible(samples[begin : begin + step + beside], rate)
        if found is not None:
            return begin + found
    return None
