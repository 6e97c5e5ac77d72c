"""One spoken conversation: a script and an open channel in, a stereo recording and an event log out.

All timing of a call is here and in its parts. The microphone sends a frame every 20 ms by one monotonic clock, speech
or silence; incoming sound is placed on the playout clock; a line starts when the previous answer is over, or interrupts
it; no wait exceeds the deadline. Nothing is measured here: all times are computed from the recording and the log, at
any later time. Each call moves through the stages of `StageCounter`, only to show progress.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import Struct

from pramana import audio, clock
from pramana.errors import ApiKeyInReply, BrokenReply
from pramana.model import Usage, Utterance
from pramana.providers.voice.vocabulary import FRAME_S, Channel, Event, ReceivedEvents, is_backchannel
from pramana.replies import parse_token_count
from pramana.run.answers import CallAnswers
from pramana.run.sound import FramePacer, Microphone, Playout

Stage = Literal["ringing", "caller", "waiting", "agent", "scoring"]
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
"""In the order of a call with one line; with more lines, the middle three repeat."""
EnterStage = Callable[[Stage], None]
"""Called with the stage that a call enters."""


class StageCounter:
    """The calls of one run in flight, by stage. For one event loop only."""

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.on_change = on_change
        self._calls: dict[int, Stage] = {}
        self._next = 0

    @contextmanager
    def track_call(self, first_stage: Stage = "ringing") -> Iterator[EnterStage]:
        """Count a call for the duration of a block; the yielded function moves it to another stage."""
        number, self._next = self._next, self._next + 1

        def enter(stage: Stage) -> None:
            if self._calls.get(number) != stage:
                self._calls[number] = stage
                self.on_change()

        enter(first_stage)
        try:
            yield enter
        finally:
            del self._calls[number]
            self.on_change()

    def counts(self) -> Mapping[Stage, int]:
        """Return the number of calls at each stage, in the order of the stages; empty if there are none.

        >>> stages = StageCounter()
        >>> with stages.track_call(), stages.track_call() as enter:
        ...     enter("agent")
        ...     stages.counts()
        {'ringing': 1, 'agent': 1}
        """
        found = Counter(self._calls.values())
        return {stage: found[stage] for stage in STAGES if found[stage]}


# ── One call ──

LOG_VERSION = 3
"""2: lines record whether they are backchannels, the pacing is logged, and interrupting silence does not count. 3: the
call records whether the agent's sound was synthesised in this process from the words of its `agent_text` events."""
MAX_GREETING_WAIT_S = 8.0
"""Longest wait for the greeting of an agent that speaks first."""
LEAD_SILENCE_S = 0.2
"""Silence before the first word."""
PAUSE_BEFORE_LINE_S = 0.3
"""Between the end of an answer and the next line, as in human conversation."""
ANSWER_END_SILENCE_S = 5.0
"""An answer is over after this much silence, if its end was not declared; a wire format that never declares the end
sets its own `quiet_s`."""
MAX_TRANSCRIPT_WAIT_S = 2.0
"""Longest wait for the words of an answer after its sound."""
SEND_TIMEOUT_S = 5.0
THREAD_SWITCH_INTERVAL_S = 0.0005
"""How long a thread may hold the interpreter's lock during a call."""
MAX_EVENTS, MAX_TEXT = 100_000, 10_000_000
"""Limits on the log of one call: events, and characters of all texts. An agent that sends more is broken, and must not
exhaust memory."""


class Patience(Struct, frozen=True):
    """How long a caller waits."""

    answer_within_s: float = 15.0
    """Maximum time from the last sound of a line to the first of the answer."""
    max_call_s: float = 300.0
    """For the whole call, not counting what the caller says: a prompt alone may take that long."""


class FinishedCall(Struct, frozen=True):
    """A finished call."""

    recording: bytes
    """A stereo WAV: the caller left, the agent right."""
    log: bytes
    """JSON Lines."""
    answers: tuple[str, ...]
    """The agent's transcript of its answer to each line; empty where it sent none."""
    were_answers_interrupted: tuple[bool, ...]
    """For each answer: whether it was interrupted while some of it was left to play, which was dropped or never
    arrived. `answers` may then contain words that were not heard."""
    end_reason: str
    """Why the call ended: `done`, `closed`, `error`, `no_answer`, `deadline`."""
    usage: Usage


class _CallEnded(Exception):
    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class _FastThreadSwitching:
    """During calls, makes scoring threads release the interpreter's lock ten times as often.

    At Python's default of 5 ms, a frame that is due may wait for several threads in turn. Measured by the self-test on
    two busy cores: 95 of 100 times were off by at most 14 to 17 ms, and by 6 to 9 ms with this setting.
    """

    def __init__(self) -> None:
        self._calls, self._usual = 0, sys.getswitchinterval()

    def enter(self) -> None:
        if not self._calls:
            self._usual = sys.getswitchinterval()
            sys.setswitchinterval(min(self._usual, THREAD_SWITCH_INTERVAL_S))
        self._calls += 1

    def leave(self) -> None:
        self._calls -= 1
        if not self._calls:
            sys.setswitchinterval(self._usual)


_fast_thread_switching = _FastThreadSwitching()


class Conversation:
    """One call from its first frame to its end."""

    _microphone: Microphone

    def __init__(
        self,
        channel: Channel,
        spoken: Sequence[Utterance],
        about: Mapping[str, Any],
        patience: Patience,
        enter: EnterStage = lambda _: None,
    ) -> None:
        self._channel, self._spoken, self._patience, self._enter = channel, spoken, patience, enter
        self._playout, self._pace = Playout(channel.downlink), FramePacer()
        can = channel.capabilities
        self._answers = CallAnswers(self._playout, says_interrupted=can.reports_interruptions)
        self._quiet_s = can.answer_end_silence_s or ANSWER_END_SILENCE_S
        self._log: list[dict[str, Any]] = []
        self._line = -1
        self._line_started = 0.0
        self._backchannel = False
        self._greeted = not can.greets
        self._usage = [0, 0]
        self._text = 0
        self._ended: str | None = None
        self._start = clock.monotonic()
        self._log_event(
            0.0,
            "call",
            version=LOG_VERSION,
            **about,
            answer_within_s=patience.answer_within_s,
            quiet_s=can.answer_end_silence_s,
            says_interrupted=can.reports_interruptions,
        )

    async def hold_call(self) -> FinishedCall:
        """Say every line, record every answer, hang up."""
        said_s = sum(len(each.samples) for each in self._spoken) / audio.CALLER_SAMPLE_RATE
        longest_s = self._patience.max_call_s + said_s
        # Resample before the first frame, in a thread: on the event loop it would delay other calls.
        self._microphone = await asyncio.to_thread(Microphone, self._channel.uplink, self._spoken)
        self._start = clock.monotonic()
        _fast_thread_switching.enter()
        listening = asyncio.create_task(self._receive_events())
        listening.add_done_callback(lambda _: self._record_end_reason("error"))
        try:
            async with asyncio.timeout(longest_s + SEND_TIMEOUT_S):  # an agent that stops receiving would block `send`
                await self._send_frames(longest_s)
            reason = "done"
        except _CallEnded as over:
            reason = over.reason
        except TimeoutError:
            reason = "deadline"
        finally:
            _fast_thread_switching.leave()
            listening.cancel()
            (failure,) = await asyncio.gather(listening, return_exceptions=True)
            await self._channel.close()
        if isinstance(failure, Exception):
            raise failure  # the agent failed and reported why: the caller may retry
        return await asyncio.to_thread(self._make_finished_call, reason)

    # ── The caller ──

    async def _send_frames(self, max_call_s: float) -> None:
        while True:
            frame = self._microphone.frames
            if (wait := self._pace.find_send_time_s(frame) - self._now()) > 0:
                await asyncio.sleep(wait)
            if not self._microphone.is_speaking:
                self._begin_line_or_end(frame * FRAME_S)
            was_saying = self._microphone.is_speaking
            self._pace.record_sent(frame, self._now())
            await self._send_frame(self._microphone.next_frame())
            if was_saying and not self._microphone.is_speaking:
                self._record_spoken_line()
            if self._ended:
                raise _CallEnded(self._ended)
            if self._now() > max_call_s:
                raise _CallEnded("deadline")

    async def _send_frame(self, frame: bytes) -> None:
        """Send a frame; an agent that stops receiving does not hold up the call until its end."""
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._channel.send(frame)
        except TimeoutError:
            stuck = f"the agent accepted no audio for {SEND_TIMEOUT_S:g} s"
            self._log_event(self._now(), "error", **{"class": "timeout", "text": stuck})
            raise _CallEnded("error") from None

    def _begin_line_or_end(self, now: float) -> None:
        """Start the next line if it is time, or end the call after the last one."""
        following = self._line + 1
        if following < len(self._spoken) and self._may_begin_line(following, now):
            self._line, self._line_started = following, now
            self._backchannel = (
                following > 0
                and self._answers.is_agent_speaking(now)
                and is_backchannel(self._spoken[following].line.text)
            )
            ends = self._microphone.begin_line(following)
            self._enter("caller")
            self._answers.begin_line(now, ends, is_backchannel=self._backchannel)
        elif following == len(self._spoken) and self._is_answer_over(now):
            raise _CallEnded("done")
        answer = self._answers.current
        waited = now - answer.line_end_s
        if self._line >= 0 and answer.first_audible_s is None and waited > self._patience.answer_within_s:
            self._log_event(now, "no_answer", line=self._line, waited_s=round(waited, 6))
            raise _CallEnded("no_answer")

    def _may_begin_line(self, line_index: int, now: float) -> bool:
        audible = self._answers.current.first_audible_s
        if line_index == 0:
            if self._greeted:
                return now >= LEAD_SILENCE_S
            longest_s = min(self._channel.capabilities.greeting_timeout_s or MAX_GREETING_WAIT_S, MAX_GREETING_WAIT_S)
            self._greeted = now > longest_s if audible is None else self._is_answer_over(now)
            return self._greeted
        barge_in = self._spoken[line_index].line.barge_in_s
        if barge_in is not None and audible is not None and now >= audible + barge_in:
            return True
        return self._is_answer_over(now) and now >= self._playout.audible_end + PAUSE_BEFORE_LINE_S

    def _is_answer_over(self, now: float) -> bool:
        """Return whether the answer is over for a listener, and its words have arrived or will not."""
        silent_s = self._answers.silence_s(now)
        answer = self._answers.current
        if silent_s is None or (not answer.is_declared_over and silent_s < self._quiet_s):
            return False
        return bool(answer.text) or silent_s >= MAX_TRANSCRIPT_WAIT_S

    def _record_spoken_line(self) -> None:
        self._enter("agent" if self._answers.is_agent_speaking(self._now()) else "waiting")

        said = self._spoken[self._line]
        self._log_event(
            self._now(),
            "line",
            line=self._line,
            text=said.line.text,
            digest=said.digest,
            start=round(self._line_started, 6),
            end=round(self._line_started + len(said.samples) / audio.CALLER_SAMPLE_RATE, 6),
            barge_in=said.line.barge_in_s is not None,
            backchannel=self._backchannel,
        )

    # ── The agent ──

    async def _receive_events(self) -> None:
        while not self._ended:
            heard = await self._channel.receive()
            try:
                await self._handle_event(heard)
            except BrokenReply as broken:
                self._log_event(self._now(), "error", **{"class": "protocol", "text": str(broken)})
                self._record_end_reason("error")

    def _record_end_reason(self, reason: str) -> None:
        self._ended = self._ended or reason

    async def _handle_event(self, received: ReceivedEvents) -> None:
        now = max(0.0, received.received_at - self._start)  # the handshake arrives before the first frame
        for event in received.events:
            self._text += len(event.text) + (len(repr(event.detail)) if event.detail else 0)
            if len(self._log) > MAX_EVENTS or self._text > MAX_TEXT:
                raise BrokenReply("the agent sent more events or words than a call may have")
            if event.kind == "agent_audio":
                if event.audio:
                    piece = self._answers.add_sound(event.audio, now)
                    plays, seconds = round(piece.start_s, 6), round(piece.duration_s, 6)
                    self._log_event(now, "agent_audio", plays=plays, seconds=seconds)
                    if not self._microphone.is_speaking and self._answers.current.first_audible_s is not None:
                        self._enter("agent")
            elif event.kind == "interrupted":
                await self._handle_reported_interruption(now)
            else:
                self._log_and_apply_event(event, now)

    async def _handle_reported_interruption(self, now: float) -> None:
        found = self._answers.record_interruption(now)
        dropped = round(found.dropped_s, 6)
        if found.played_s is None:
            detail = {
                "event": "interrupted",
                "ignored": "the agent neither sent an answer nor had one left to play",
                "dropped_s": dropped,
            }
            self._log_event(now, "unknown", detail=detail)
            return
        self._log_event(now, "interrupted", dropped_s=dropped, played_s=round(found.played_s, 6))
        await self._channel.interrupt(found.played_s)

    def _log_and_apply_event(self, event: Event, now: float) -> None:
        more: dict[str, Any] = {"detail": dict(event.detail)} if event.detail else {}
        if event.kind in ("agent_text", "user_text"):
            more |= {"text": event.text, "final": event.final}
            if event.kind == "agent_text":
                self._answers.add_words(event, now)
        elif event.kind == "turn_done":
            more["text"] = event.text
            self._answers.record_answer_end(now)
        elif event.kind in ("error", "closed"):
            more |= {"text": event.text, "class": event.error}
            self._record_end_reason(event.kind)
        elif event.kind == "usage":
            for place, name in enumerate(("input_tokens", "output_tokens")):
                self._usage[place] += parse_token_count(event.detail.get(name)) or 0
        self._log_event(now, event.kind, **more)

    # ── The evidence ──

    def _now(self) -> float:
        return clock.monotonic() - self._start

    def _log_event(self, call_time_s: float, kind: str, **more: Any) -> None:
        self._log.append({"t": round(call_time_s, 6), "event": kind, **more})

    def _make_finished_call(self, reason: str) -> FinishedCall:
        import numpy as np

        self._refuse_keys_spoken_by_agent()
        self._log_event(self._now(), "pace", **self._pace.to_log())
        self._log_event(self._now(), "end", reason=reason)
        seconds = max(self._microphone.frames * FRAME_S, self._playout.end)
        length = round(seconds * audio.RECORDING_SAMPLE_RATE)
        caller = self._microphone.render_caller_channel(audio.RECORDING_SAMPLE_RATE, length)
        agent = self._playout.render_agent_channel(audio.RECORDING_SAMPLE_RATE, length)
        return FinishedCall(
            recording=audio.write_wav(np.stack((caller, agent), axis=1), audio.RECORDING_SAMPLE_RATE),
            log=b"".join(_encode_log_line(each) for each in self._log),
            answers=tuple(answer.text for answer in self._answers.all),
            were_answers_interrupted=tuple(answer.was_interrupted for answer in self._answers.all),
            end_reason=reason,
            usage=Usage(*(total or None for total in self._usage)),
        )

    def _refuse_keys_spoken_by_agent(self) -> None:
        """Refuse a call in which the agent said a key in pieces: each is clean, but together they hold the key."""
        pieces: dict[tuple[str, bool, str], list[str]] = {}
        for event in self._log:
            for is_detail, values in enumerate((event, event.get("detail", {}))):
                for name, value in values.items():
                    if isinstance(value, str):
                        pieces.setdefault((event["event"], bool(is_detail), name), []).append(value)
        said = (*map("".join, pieces.values()), *(answer.text for answer in self._answers.all))
        if any(map(self._channel.is_key_in_text, said)):
            raise ApiKeyInReply("the agent spoke an API key, so the call is not stored")


def _encode_log_line(event: Mapping[str, Any]) -> bytes:
    """Return an event as a line of the log; lone surrogates are replaced, and numbers out of range become text."""
    try:
        return msgspec.json.encode(event) + b"\n"
    except (UnicodeEncodeError, OverflowError, TypeError):
        return msgspec.json.encode(_to_plain(event)) + b"\n"


def _to_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(_to_plain(str(name))): _to_plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(each) for each in value]
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    known = value is None or isinstance(value, bool | float) or (type(value) is int and -(2**63) <= value < 2**63)
    return value if known else str(value)
