"""One call to look at: who said what and when, and how loud both sides were.

What is drawn and sought in comes from here; the sound itself is fetched at `/audio/…`, in ranges. Times are those of
the log and of the check that measured the call, words those of its transcript; only the peaks are found here.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from pramana.analyse.voice import CALL
from pramana.app import App
from pramana.app.access import User, use_case
from pramana.app.transcripts import SaidView, transcript
from pramana.app.views import View
from pramana.errors import EngineMissing, NotFound, PramanaError, StoreFailed
from pramana.model import Call, Result
from pramana.score.log import Log

if TYPE_CHECKING:
    from pramana.audio import Samples

FEWEST, MOST = 100, 4_000
_DIGITS = 4


class TurnTakenView(View, frozen=True, kw_only=True):
    """When somebody was talking; null where that was not measured."""

    who: Literal["caller", "agent"]
    start_seconds: float
    end_seconds: float | None


class PeaksView(View, frozen=True, kw_only=True):
    """The loudest of each of so many equal parts of the recording, from 0 to 1."""

    caller: tuple[float, ...]
    agent: tuple[float, ...]


class CallView(View, frozen=True, kw_only=True):
    """A call."""

    duration_seconds: float
    conversation: tuple[SaidView, ...]
    turns: tuple[TurnTakenView, ...]
    peaks: PeaksView
    recording: str
    log: str


@use_case("viewer")
async def read_call(
    app: App, _: User, run_id: str, seq: int, columns: Annotated[int, Meta(ge=FEWEST, le=MOST)] = 800
) -> CallView:
    """Return a call's conversation, its turns and the peaks of both sides in so many columns."""
    return await app.heavy(lambda: _read(app, run_id, seq, columns))


def _read(app: App, named: str, seq: int, columns: int) -> CallView:
    run_id = app.store.runs.find(named).id
    case, result = app.store.results.read(run_id, seq)
    call = result.reply.call if result.reply else None
    if call is None:
        raise NotFound(f"result {seq} of run {run_id} is no call: nothing was spoken, so there is nothing to hear")
    blob = app.store.blobs.get
    samples, rate = _recorded(call, blob)
    return CallView(
        duration_seconds=round(len(samples) / rate, 6),
        conversation=tuple(transcript(case, result, blob)),
        turns=tuple(turns(result, call, blob)),
        peaks=PeaksView(caller=peaks(samples[:, 0], columns), agent=peaks(samples[:, 1], columns)),
        recording=f"/audio/{call.recording}",
        log=f"/audio/{call.log}",
    )


def _recorded(call: Call, blob: Callable[[str], bytes]) -> "tuple[Samples, int]":
    """Return the samples of a call, the caller's first; what cannot be heard is not found."""
    from pramana import audio

    try:
        samples, rate = audio.read_wav(blob(call.recording))
    except EngineMissing:
        raise
    except StoreFailed:
        raise NotFound(
            "the recording of this call is not here, or damaged; it stays on the machine that called, below blobs/ in "
            "its data folder, so restore it from a copy or look there"
        ) from None
    except PramanaError as error:
        raise NotFound(f"the recording of this call cannot be read: {error}") from None
    if samples.ndim != 2 or samples.shape[1] != 2:
        raise NotFound("the recording of this call cannot be read: it has not two channels, a caller's and an agent's")
    return samples, rate


# ── Turns ──


class _Answered(Struct, frozen=True):
    """Where an answer is heard, as the check of a call has it."""

    first_audible_s: float | None = None
    answer_end_s: float | None = None


class _Times(Struct, frozen=True):
    lines: tuple[_Answered, ...] = ()


def turns(result: Result, call: Call, blob: Callable[[str], bytes]) -> list[TurnTakenView]:
    """Return when who talked, in the order of beginning: lines as they were played, answers as they were measured."""
    try:
        log = Log([json.loads(line) for line in blob(call.log).splitlines()])
    except (PramanaError, ValueError):
        return []  # the conversation says so
    found = [TurnTakenView(who="caller", start_seconds=line.start, end_seconds=line.end) for line in log.lines]
    found += [
        TurnTakenView(who="agent", start_seconds=each.first_audible_s, end_seconds=each.answer_end_s)
        for each in _answered(result)
        if each.first_audible_s is not None
    ]
    return sorted(found, key=lambda turn: (turn.start_seconds, turn.who))


def _answered(result: Result) -> tuple[_Answered, ...]:
    for check in result.checks:
        if check.name == CALL and check.evidence:
            try:
                return msgspec.convert(check.evidence.get("times"), _Times).lines
            except msgspec.ValidationError:
                return ()
    return ()


# ── Peaks ──


def peaks(samples: "Samples", columns: int) -> tuple[float, ...]:
    """Return the loudest sample of each of so many equal parts, from 0 to 1; no part is left out, however short.

    >>> import numpy as np
    >>> peaks(np.array([0, 16384, -32768, 8192], np.int16), 2)
    (0.5, 1.0)
    """
    import numpy as np

    if not samples.size:
        return (0.0,) * columns
    starts = np.arange(columns) * len(samples) // columns
    loudest = np.maximum(
        np.maximum.reduceat(samples, starts).astype(np.int32), -np.minimum.reduceat(samples, starts).astype(np.int32)
    )
    return tuple(round(float(each), _DIGITS) for each in np.clip(loudest, 0, None) / 32768)
