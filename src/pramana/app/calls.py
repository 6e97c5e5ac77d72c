"""Calls and transcripts: one result in; its conversation with times, and the peaks of both sides of a call, out.

The call player draws and seeks with this data; the sound itself is served at `/audio/…`, in ranges. Times come from the
log and from the check that measured the call, words from the log and the reply; only the peaks are computed here.
"""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, field
from msgspec.structs import replace

from pramana.analyse.numbers import format_duration
from pramana.analyse.voice import CALL_CHECK, MeasuredLine, read_measured_lines
from pramana.app import App, User, use_case
from pramana.app.views import View
from pramana.errors import EngineMissing, NotFound, PramanaError, StoreFailed
from pramana.model import Case, RecordedCall, Reply, Result
from pramana.score.log import CallLog

if TYPE_CHECKING:
    from pramana.audio import Samples

MIN_COLUMNS, MAX_COLUMNS = 100, 4_000
_PEAK_DECIMALS = 4


class TranscriptEntryView(View, frozen=True):
    """One utterance, as spoken or as recognised."""

    who: str
    text: str
    at_s: float | None = field(default=None, name="atSeconds")
    """On the recording's clock; None if it was typed or not measured."""
    note: str = ""


class TurnTakenView(View, frozen=True, kw_only=True):
    """When a party was talking; null if not measured."""

    who: Literal["caller", "agent"]
    start_seconds: float
    end_seconds: float | None


class PeaksView(View, frozen=True, kw_only=True):
    """The peak of each of equally long parts of the recording, from 0 to 1."""

    caller: tuple[float, ...]
    agent: tuple[float, ...]


class CallView(View, frozen=True, kw_only=True):
    """A call."""

    duration_seconds: float
    conversation: tuple[TranscriptEntryView, ...]
    turns: tuple[TurnTakenView, ...]
    peaks: PeaksView
    recording: str
    log: str


@use_case("viewer", "heavy")
def read_call(
    app: App, _: User, run_id: str, seq: int, columns: Annotated[int, Meta(ge=MIN_COLUMNS, le=MAX_COLUMNS)] = 800
) -> CallView:
    """Return a call's conversation, its turns, and the peaks of both sides in `columns` parts."""
    found = app.store.runs.find_as_of_scoring(run_id)
    case, result = app.store.results.read(found, seq)
    call = result.reply.call if result.reply else None
    if call is None:
        raise NotFound(f"result {seq} of run {found.id} is not a call, so it has no recording")
    blob = app.store.blobs.get
    samples, rate = _read_recording(call, blob)
    return CallView(
        duration_seconds=round(len(samples) / rate, 6),
        conversation=tuple(make_transcript(case, result, blob)),
        turns=tuple(list_turns(result, call, blob)),
        peaks=PeaksView(caller=measure_peaks(samples[:, 0], columns), agent=measure_peaks(samples[:, 1], columns)),
        recording=f"/audio/{call.recording}",
        log=f"/audio/{call.log}",
    )


def _read_recording(call: RecordedCall, read_blob: Callable[[str], bytes]) -> "tuple[Samples, int]":
    """Return the samples of a call, the caller's first; raises `NotFound` if there is no readable recording."""
    from pramana import audio

    try:
        samples, rate = audio.read_wav(read_blob(call.recording))
    except EngineMissing:
        raise
    except StoreFailed:
        raise NotFound(
            "the recording of this call is missing or damaged; recordings are stored below blobs/ in the data folder "
            "of the machine that made the call: restore the file from a backup, or open the call on that machine"
        ) from None
    except PramanaError as error:
        raise NotFound(f"the recording of this call cannot be read: {error}") from None
    if samples.ndim != 2 or samples.shape[1] != 2:
        raise NotFound(
            "the recording of this call cannot be read: it does not have two channels, the caller's and the agent's"
        )
    return samples, rate


# ── The transcript ──


def make_transcript(case: Case, result: Result, read_blob: Callable[[str], bytes]) -> list[TranscriptEntryView]:
    """Return the conversation, ordered by start time; without a reply, the planned lines."""
    reply = result.reply
    if reply is None or reply.call is None:
        return _make_written_conversation(case, reply)
    try:
        log = CallLog([json.loads(line) for line in read_blob(reply.call.log).splitlines()])
    except (PramanaError, ValueError) as error:
        return [TranscriptEntryView("answer", reply.text, note=f"the event log of this call cannot be read: {error}")]
    measured = _find_measured_lines(result)
    told, heard = log.list_transcripts("agent_text"), log.list_transcripts("user_text")
    found = [TranscriptEntryView("agent", told[0], 0.0, "before the caller")] if told[0] else []
    for place, line in enumerate(log.lines):
        times = measured.get(place, MeasuredLine())
        found.append(
            TranscriptEntryView(
                "caller", line.text, line.start_s, _describe_interruption(times) if line.barge_in else ""
            )
        )
        if heard[place + 1]:
            found.append(TranscriptEntryView("heard as", heard[place + 1], line.start_s))
        written = reply.answers[place] if place < len(reply.answers) else ""
        said, at = told[place + 1], times.first_audible_s
        if said or written or at is not None:
            by_ear = "as the speech recognition heard it" if not said and written else ""
            note = "; ".join(each for each in (_describe_wait(times), by_ear) if each)
            found.append(TranscriptEntryView("agent", said or written or "(no words)", at or line.end_s, note))
            if said and written and written != said:
                found.append(TranscriptEntryView("our ear", written, at or line.end_s))
        elif not line.backchannel:  # a backchannel needs no answer
            found.append(TranscriptEntryView("agent", "(nothing)", line.end_s, _describe_wait(times)))
    return sorted(found, key=lambda each: each.at_s or 0.0)


def _make_written_conversation(case: Case, reply: Reply | None) -> list[TranscriptEntryView]:
    """Return a typed conversation: each line of the script, starting with the prompt, with its answer."""
    asked = [TranscriptEntryView("user", line.text) for line in case.script] or [
        TranscriptEntryView(turn.role, turn.text) for turn in case.turns
    ]
    if reply is None:
        return asked
    took = "" if reply.cached else f"after {format_duration(reply.total_s)}"
    called = [TranscriptEntryView("called", str(each)) for each in reply.tool_calls]
    if len(case.script) < 2 or not reply.answers:
        text = reply.text if reply.text.strip() or not called else "(no text)"
        return [*asked, TranscriptEntryView("answer", text, note=took), *called]
    answers = [TranscriptEntryView("answer", each) for each in reply.answers]
    answers[-1] = replace(answers[-1], note=f"{took} in all" if took else "")
    both = [each for pair in zip(asked, answers, strict=False) for each in pair]
    return [*both, *asked[len(answers) :], *called]  # includes lines without an answer


def _find_measured_lines(result: Result) -> Mapping[int, MeasuredLine]:
    for check in result.checks:
        if check.name == CALL_CHECK and check.evidence:
            return dict(enumerate(read_measured_lines(check.evidence)))
    return {}


def _describe_wait(times: MeasuredLine) -> str:
    if times.censored:
        return f"no answer in {format_duration(times.waited_s)}"
    if times.cut_in:
        return "cut in"
    return "" if times.voice_to_voice_s is None else f"voice to voice {format_duration(times.voice_to_voice_s)}"


def _describe_interruption(times: MeasuredLine) -> str:
    """Return a description of how the agent reacted to a barge-in."""
    if times.false_interruption is not None:
        return (
            "during the answer: the agent "
            f"{'stopped, though it should not' if times.false_interruption else 'kept talking, as it should'}"
        )
    if times.yield_s is not None:
        return f"during the answer: the agent stopped after {format_duration(times.yield_s)}"
    if times.yield_censored_s is not None:
        return f"during the answer: the agent kept talking for {format_duration(times.yield_censored_s)} or more"
    return "during the answer"


# ── Turns ──


def list_turns(result: Result, call: RecordedCall, read_blob: Callable[[str], bytes]) -> list[TurnTakenView]:
    """Return who talked when, ordered by start time: lines as played, answers as measured."""
    try:
        log = CallLog([json.loads(line) for line in read_blob(call.log).splitlines()])
    except (PramanaError, ValueError):
        return []  # the conversation shows it
    found = [TurnTakenView(who="caller", start_seconds=line.start_s, end_seconds=line.end_s) for line in log.lines]
    found += [
        TurnTakenView(who="agent", start_seconds=each.first_audible_s, end_seconds=each.answer_end_s)
        for each in _find_measured_lines(result).values()
        if each.first_audible_s is not None
    ]
    return sorted(found, key=lambda turn: (turn.start_seconds, turn.who))


# ── Peaks ──


def measure_peaks(samples: "Samples", columns: int) -> tuple[float, ...]:
    """Return the loudest sample of each of `columns` equal parts, from 0 to 1; no part is left out, however short.

    >>> import numpy as np
    >>> measure_peaks(np.array([0, 16384, -32768, 8192], np.int16), 2)
    (0.5, 1.0)
    """
    import numpy as np

    if not samples.size:
        return (0.0,) * columns
    starts = np.arange(columns) * len(samples) // columns
    loudest = np.maximum(
        np.maximum.reduceat(samples, starts).astype(np.int32), -np.minimum.reduceat(samples, starts).astype(np.int32)
    )
    return tuple(round(float(each), _PEAK_DECIMALS) for each in np.clip(loudest, 0, None) / 32768)
