"""One spoken conversation: a script and an open channel in, a stereo recording and an event log out.

Everything about time is here and nowhere else. A microphone sends a frame each 20 ms from one monotonic clock, speech
or silence; what arrives is laid on a playout clock, because agents send faster than anyone can listen; a line is said
when the answer before it is over, or into it; nobody waits beyond the deadline. It measures nothing: whoever wants to
know a time reads it from the recording and the log, now or in a year.
"""

import asyncio
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from pramana.errors import BrokenReply
from pramana.model import Usage, Utterance, count
from pramana.providers.voice import BACKCHANNELS, FRAME_S, Channel, Event, Format, Heard

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.int16]

LOG_VERSION = 1
GREETING_S = 8.0
"""How long an agent that speaks first may take to begin."""
LEAD_S = 0.2
"""Of silence before the first word."""
PAUSE_S = 0.3
"""Between the end of an answer and the next line, as people make it."""
QUIET_S = 5.0
"""An answer is over when so long nothing came after its last sound was played, though its end was not declared; a wire
format that never declares one says how long by its `quiet_s`."""
TRANSCRIPT_S = 2.0
"""How long the words of an answer may come after its sound."""
STUCK_S = 5.0
MOST_EVENTS, MOST_TEXT = 100_000, 10_000_000
"""In the log of one call; characters of all texts. An agent that says more is broken, and may not fill our memory."""
MOST_AHEAD_S = 600.0
"""Of sound waiting to be played: no answer is that long."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a caller waits."""

    answer_within_s: float = 15.0
    """From the last sound of a line to the first of the answer."""
    longest_s: float = 300.0
    """For the whole call."""


@dataclass(frozen=True, slots=True)
class Held:
    """A call that is over."""

    recording: bytes
    """WAV, stereo: the caller left, the agent right."""
    log: bytes
    """JSON lines."""
    answers: tuple[str, ...]
    """What the agent said to each line, in its own transcript; empty where it gave none."""
    reason: str
    """Why it ended: `done`, `closed`, `error`, `no_answer`, `deadline`."""
    usage: Usage


@dataclass(slots=True)
class _Sound:
    """A piece of the agent's sound and when it is played."""

    start: float
    data: bytes


class _Playout:
    """What a listener hears of a stream that comes faster than it is spoken."""

    def __init__(self, downlink: Format) -> None:
        self.downlink = downlink
        self._second = downlink.rate * (2 if downlink.codec == "pcm" else 1)
        self.pieces: list[_Sound] = []
        self.end = 0.0
        self.began: float | None = None
        """When the answer at hand was first played, silence included."""

    def add(self, data: bytes, now: float) -> tuple[float, float]:
        """Queue sound that arrives now; return when it is played and for how long."""
        data = data[: len(data) // 2 * 2] if self.downlink.codec == "pcm" else data
        start, seconds = max(now, self.end), len(data) / self._second
        if start - now > MOST_AHEAD_S:
            raise BrokenReply(f"the agent has sent {MOST_AHEAD_S:g} s more of sound than could be played")
        self.pieces.append(_Sound(start, data))
        self.end = start + seconds
        self.began = start if self.began is None else self.began
        return start, seconds

    def drop(self, now: float) -> float:
        """Forget what would be played from now on; return how many seconds that is."""
        dropped = max(0.0, self.end - now)
        while self.pieces and self.pieces[-1].start >= now:
            self.pieces.pop()
        if self.pieces and dropped:
            last = self.pieces[-1]
            width = 2 if self.downlink.codec == "pcm" else 1
            keep = int((now - last.start) * self.downlink.rate) * width
            last.data = last.data[:keep]
        self.end = min(self.end, now)
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

    def _joined(self) -> Iterator[tuple[float, bytes]]:
        start, end = 0.0, -1.0
        parts: list[bytes] = []
        for piece in self.pieces:
            if parts and abs(piece.start - end) > 1e-6:
                yield start, b"".join(parts)
                parts = []
            if not parts:
                start = piece.start
            parts.append(piece.data)
            end = piece.start + len(piece.data) / self._second
        if parts:
            yield start, b"".join(parts)


class _Microphone:
    """The caller's side: frame after frame, of the line being said or of silence."""

    def __init__(self, uplink: Format, spoken: Sequence[Utterance]) -> None:
        import numpy as np

        from pramana import audio

        self._frame = round(audio.CALLER_RATE * FRAME_S)
        self._wide = round(uplink.rate * FRAME_S)
        self._codec = uplink.codec
        self._lines = [
            (_whole(each.samples, self._frame), _whole(_at(each.samples, uplink.rate), self._wide)) for each in spoken
        ]
        self._quiet = audio.encode(uplink.codec, np.zeros(self._wide, np.int16))
        self._said: list[tuple[int, Samples]] = []
        """First frame and samples of each line, as said."""
        self._line: int | None = None
        self._place = 0
        self.frames = 0

    def say(self, line: int) -> None:
        """Begin a line with the next frame."""
        self._line, self._place = line, 0
        self._said.append((self.frames, self._lines[line][0]))

    @property
    def saying(self) -> bool:
        return self._line is not None

    def next(self) -> bytes:
        """Return the next frame."""
        from pramana import audio

        self.frames += 1
        if self._line is None:
            return self._quiet
        narrow, wide = self._lines[self._line]
        piece = wide[self._place * self._wide : (self._place + 1) * self._wide]
        self._place += 1
        if self._place * self._frame >= len(narrow):
            self._line = None
        return audio.encode(self._codec, piece)

    def rendered(self, rate: int, length: int) -> "Samples":
        """Return what was said on the recording's clock."""
        import numpy as np

        track: Samples = np.zeros(length, np.int16)
        for frame, samples in self._said:
            first = round(frame * FRAME_S * rate)
            told = _at(samples, rate)[: max(0, length - first)]
            track[first : first + len(told)] = told
        return track


def only_listens(text: str) -> bool:
    """Tell whether a line says no more than that somebody listens."""
    words = re.sub(r"[^\w\s]", " ", text.casefold()).split()
    return " ".join(words) in BACKCHANNELS


def _at(samples: "Samples", rate: int) -> "Samples":
    from pramana import audio

    return audio.resample(samples, audio.CALLER_RATE, rate)


def _whole(samples: "Samples", frame: int) -> "Samples":
    """Return the samples with silence to the end of their last frame."""
    import numpy as np

    return np.pad(samples, (0, -len(samples) % frame))


@dataclass(slots=True)
class _Answer:
    """What the agent does about the line at hand."""

    asked: float
    """When the line's last sound was said; infinite while it is being said."""
    first: float | None = None
    """When its first sound arrived."""
    audible: float | None = None
    """When its first audible sound is played."""
    done: bool = False
    last_arrival: float = 0.0
    final: str = ""
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.final or "".join(self.parts)


class _Over(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Conversation:
    """One call from its first frame to its end."""

    def __init__(
        self, channel: Channel, spoken: Sequence[Utterance], about: Mapping[str, Any], patience: Patience
    ) -> None:
        self._channel, self._spoken, self._patience = channel, spoken, patience
        self._microphone = _Microphone(channel.uplink, spoken)
        self._playout = _Playout(channel.downlink)
        self._quiet_s: float = getattr(channel, "quiet_s", None) or QUIET_S
        self._log: list[dict[str, Any]] = []
        self._answers: list[_Answer] = []
        self._line = -1
        self._line_started = 0.0
        self._greeted = not channel.greets
        self._wants_none = False
        """The line at hand says only that somebody listens: the agent goes on with what it says."""
        self._old_goes_on = False
        """The caller talks into an answer, and it has not stopped yet: what is heard is no answer to the new line."""
        self._usage = [0, 0]
        self._text = 0
        self._ended: str | None = None
        self._start = time.monotonic()
        self._log_event(0.0, "call", version=LOG_VERSION, **about, answer_within_s=patience.answer_within_s)
        self._answer = _Answer(asked=0.0)
        """To nothing yet: a greeting."""

    async def hold(self) -> Held:
        """Say every line, hear every answer, hang up."""
        self._start = time.monotonic()
        listening = asyncio.create_task(self._listen())
        listening.add_done_callback(lambda _: self._end("error"))
        try:
            async with asyncio.timeout(
                self._patience.longest_s + STUCK_S
            ):  # who takes nothing any more holds up a send
                await self._talk()
            reason = "done"
        except _Over as over:
            reason = over.reason
        except TimeoutError:
            reason = "deadline"
        finally:
            listening.cancel()
            (failure,) = await asyncio.gather(listening, return_exceptions=True)
            await self._channel.close()
        if isinstance(failure, Exception):
            raise failure  # the agent could not go on, and says why: whoever asked may ask again
        return await asyncio.to_thread(self._held, reason)

    # ── The caller ──

    async def _talk(self) -> None:
        while True:
            due = self._start + (self._microphone.frames + 1) * FRAME_S  # a frame is sent when it has been heard
            if (wait := due - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            if not self._microphone.saying:
                self._decide(self._microphone.frames * FRAME_S)
            was_saying = self._microphone.saying
            await self._channel.send(self._microphone.next())
            if was_saying and not self._microphone.saying:
                self._line_said()
            if self._ended:
                raise _Over(self._ended)
            if self._now() > self._patience.longest_s:
                raise _Over("deadline")

    def _decide(self, now: float) -> None:
        """Say the next line if it is time to; end the call if all is said."""
        following = self._line + 1
        if following < len(self._spoken) and self._may_speak(following, now):
            if following:
                self._keep_answer()
            self._line, self._line_started = following, now
            self._wants_none = (
                following > 0 and now < self._playout.end and only_listens(self._spoken[following].line.text)
            )
            if not self._wants_none:
                self._old_goes_on = self._answer.first is not None and not self._answer.done and not self._over(now)
                self._answer = _Answer(asked=float("inf"))
            self._microphone.say(following)
        elif following == len(self._spoken) and self._over(now):
            self._keep_answer()
            raise _Over("done")
        waited = now - self._answer.asked
        if self._line >= 0 and self._answer.audible is None and waited > self._patience.answer_within_s:
            self._log_event(now, "no_answer", line=self._line, waited_s=round(waited, 6))
            self._keep_answer()
            raise _Over("no_answer")

    def _keep_answer(self) -> None:
        """Keep what was said to the line at hand; to one that wants no answer, nothing was."""
        self._answers.append(_Answer(0.0) if self._wants_none else self._answer)

    def _may_speak(self, following: int, now: float) -> bool:
        if following == 0:
            if self._greeted:
                return now >= LEAD_S
            self._greeted = self._over(now) if self._answer.first is not None else now > GREETING_S
            return self._greeted
        barge_in = self._spoken[following].line.barge_in_s
        if barge_in is not None and self._answer.audible is not None and now >= self._answer.audible + barge_in:
            return True
        return self._over(now) and now >= self._playout.end + PAUSE_S

    def _over(self, now: float) -> bool:
        """Tell whether the answer is over for someone who listens, and its words have come or will not."""
        answer = self._answer
        if answer.audible is None or now < self._playout.end:
            return False
        since = now - max(self._playout.end, answer.last_arrival)
        if not answer.done and since < self._quiet_s:
            return False
        return bool(answer.text) or since >= TRANSCRIPT_S

    def _line_said(self) -> None:
        from pramana import audio

        said = self._spoken[self._line]
        sounding = audio.last_audible(said.samples, audio.CALLER_RATE)
        last = len(said.samples) if sounding is None else sounding + 1
        end = self._line_started + last / audio.CALLER_RATE
        self._answer.asked = end
        self._log_event(
            self._now(),
            "line",
            line=self._line,
            text=said.line.text,
            digest=said.digest,
            start=round(self._line_started, 6),
            end=round(self._line_started + len(said.samples) / audio.CALLER_RATE, 6),
            barge_in=said.line.barge_in_s is not None,
        )

    # ── The agent ──

    async def _listen(self) -> None:
        while not self._ended:
            heard = await self._channel.receive()
            try:
                await self._take(heard)
            except BrokenReply as broken:
                self._log_event(self._now(), "error", **{"class": "protocol", "text": str(broken)})
                self._end("error")

    def _end(self, reason: str) -> None:
        self._ended = self._ended or reason

    async def _take(self, heard: Heard) -> None:
        now = max(0.0, heard.at - self._start)  # the handshake came before the first frame
        for event in heard.events:
            self._text += len(event.text)
            if len(self._log) > MOST_EVENTS or self._text > MOST_TEXT:
                raise BrokenReply("the agent has sent more events or words than any call has")
            if event.kind == "agent_audio":
                self._play(event, now)
            elif event.kind == "interrupted":
                await self._interrupted(now)
            else:
                self._note(event, now)

    def _play(self, event: Event, now: float) -> None:
        if not event.audio:
            return
        if self._old_goes_on and now > self._playout.end + FRAME_S:
            self._old_goes_on = False  # it had run out
        if not self._old_goes_on and self._answer.first is None:
            self._playout.began = None
        plays, seconds = self._playout.add(event.audio, now)
        self._log_event(now, "agent_audio", plays=round(plays, 6), seconds=round(seconds, 6))
        if self._old_goes_on:
            return
        answer = self._answer
        answer.first = now if answer.first is None else answer.first
        answer.last_arrival = now
        if answer.audible is None:
            from pramana import audio

            samples = audio.decode(self._playout.downlink.codec, event.audio)
            sounding = audio.first_audible(samples, self._playout.downlink.rate)
            if sounding is not None:
                answer.audible = plays + sounding / self._playout.downlink.rate

    async def _interrupted(self, now: float) -> None:
        began = self._playout.began
        played = 0.0 if began is None else max(0.0, min(now, self._playout.end) - began)
        dropped = self._playout.drop(now)
        self._log_event(now, "interrupted", dropped_s=round(dropped, 6), played_s=round(played, 6))
        self._playout.began = None
        self._old_goes_on = False
        self._answer = _Answer(asked=self._answer.asked)
        await self._channel.interrupt(played)

    def _note(self, event: Event, now: float) -> None:
        answer = self._answer
        more: dict[str, Any] = {"detail": dict(event.detail)} if event.detail else {}
        if event.kind in ("agent_text", "user_text"):
            more |= {"text": event.text, "final": event.final}
            if event.kind == "agent_text" and not self._old_goes_on:
                if event.final:
                    answer.final = f"{answer.final} {event.text}".strip()
                else:
                    answer.parts.append(event.text)
        elif event.kind == "turn_done":
            more["text"] = event.text
            if self._old_goes_on:
                self._old_goes_on = False
            else:
                answer.done = answer.done or answer.first is not None
        elif event.kind in ("error", "closed"):
            more |= {"text": event.text, "class": event.error}
            self._end(event.kind)
        elif event.kind == "usage":
            for place, name in enumerate(("input_tokens", "output_tokens")):
                self._usage[place] += count(event.detail.get(name)) or 0
        self._log_event(now, event.kind, **more)

    # ── The evidence ──

    def _now(self) -> float:
        return time.monotonic() - self._start

    def _log_event(self, at: float, kind: str, **more: Any) -> None:
        self._log.append({"t": round(at, 6), "event": kind, **more})

    def _held(self, reason: str) -> Held:
        import numpy as np

        from pramana import audio

        self._log_event(self._now(), "end", reason=reason)
        if len(self._answers) <= self._line:
            self._keep_answer()
        seconds = max(self._microphone.frames * FRAME_S, self._playout.end)
        length = round(seconds * audio.RECORDING_RATE)
        tracks = [each.rendered(audio.RECORDING_RATE, length) for each in (self._microphone, self._playout)]
        return Held(
            recording=audio.write_wav(np.stack(tracks, axis=1), audio.RECORDING_RATE),
            log=b"".join(msgspec.json.encode(each) + b"\n" for each in self._log),
            answers=tuple(answer.text for answer in self._answers),
            reason=reason,
            usage=Usage(*(total or None for total in self._usage)),
        )
