"""`/api/runs/RUN/results/SEQ/call`: one call to look at: who said what and when, and how loud both sides were.

What is drawn and sought in comes from here; the sound itself is fetched at `/audio/…`, in ranges. Times are those of
the log and of the check that measured the call, words those of `conversation`; only the peaks are found here.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path, Query, Response
from msgspec import Struct

from pramana.analyse.voice import CALL
from pramana.app import App
from pramana.errors import EngineMissing, NotFound, PramanaError, StoreFailed
from pramana.model import Call, Result
from pramana.report.conversation import Said, transcript
from pramana.score.log import Log
from pramana.show.api.envelope import Shape, answer, documented
from pramana.show.api.runs import Named
from pramana.show.api.serving import Here, Viewer

if TYPE_CHECKING:
    from pramana.audio import Samples

router = APIRouter(tags=["runs"])
FEWEST, MOST = 100, 4_000
_DIGITS = 4


class SaidShape(Shape):
    """One thing that somebody said, or heard."""

    who: str
    text: str
    at_seconds: float | None
    note: str


class TurnShape(Shape):
    """When somebody was talking; null where that was not measured."""

    who: Literal["caller", "agent"]
    start_seconds: float
    end_seconds: float | None


class PeaksShape(Shape):
    """The loudest of each of so many equal parts of the recording, from 0 to 1."""

    caller: list[float]
    agent: list[float]


class CallShape(Shape):
    """A call."""

    duration_seconds: float
    conversation: list[SaidShape]
    turns: list[TurnShape]
    peaks: PeaksShape
    recording: str
    log: str


@router.get("/api/runs/{run_id}/results/{seq}/call", summary="Read a call", **documented(CallShape, 404))
async def read_call(
    run_id: Named,
    seq: Annotated[int, Path(ge=0, lt=2**63)],
    here: Here,
    _: Viewer,
    columns: Annotated[int, Query(ge=FEWEST, le=MOST, description="Parts of which the peaks are")] = 800,
) -> Response:
    """Return its conversation, its turns and the peaks of both sides, to be drawn and sought in."""
    return answer(await here.heavy(lambda: _read(here, run_id, seq, columns)))


def _read(here: App, run_id: str, seq: int, columns: int) -> dict[str, Any]:
    case, result = here.store.pages.result(run_id, seq)
    call = result.reply.call if result.reply else None
    if call is None:
        raise NotFound(f"result {seq} of run {run_id} is no call: nothing was spoken, so there is nothing to hear")
    blob = here.store.blobs.get
    samples, rate = _recorded(call, blob)
    return {
        "durationSeconds": round(len(samples) / rate, 6),
        "conversation": [_said(each) for each in transcript(case, result, blob)],
        "turns": turns(result, call, blob),
        "peaks": {"caller": peaks(samples[:, 0], columns), "agent": peaks(samples[:, 1], columns)},
        "recording": f"/audio/{call.recording}",
        "log": f"/audio/{call.log}",
    }


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


def _said(each: Said) -> dict[str, Any]:
    return {"who": each.who, "text": each.text, "atSeconds": each.at_s, "note": each.note}


# ── Turns ──


class _Answered(Struct, frozen=True):
    """Where an answer is heard, as the check of a call has it."""

    first_audible_s: float | None = None
    answer_end_s: float | None = None


class _Times(Struct, frozen=True):
    lines: tuple[_Answered, ...] = ()


def turns(result: Result, call: Call, blob: Callable[[str], bytes]) -> list[dict[str, Any]]:
    """Return when who talked, in the order of beginning: lines as they were played, answers as they were measured."""
    try:
        log = Log([json.loads(line) for line in blob(call.log).splitlines()])
    except (PramanaError, ValueError):
        return []  # the conversation says so
    found: list[dict[str, Any]] = [
        {"who": "caller", "startSeconds": line.start, "endSeconds": line.end} for line in log.lines
    ]
    found += [
        {"who": "agent", "startSeconds": each.first_audible_s, "endSeconds": each.answer_end_s}
        for each in _answered(result)
        if each.first_audible_s is not None
    ]
    return sorted(found, key=lambda turn: (turn["startSeconds"], turn["who"]))


def _answered(result: Result) -> tuple[_Answered, ...]:
    for check in result.checks:
        if check.name == CALL and check.evidence:
            try:
                return msgspec.convert(check.evidence.get("times"), _Times).lines
            except msgspec.ValidationError:
                return ()
    return ()


# ── Peaks ──


def peaks(samples: "Samples", columns: int) -> list[float]:
    """Return the loudest sample of each of so many equal parts, from 0 to 1; no part is left out, however short.

    >>> import numpy as np
    >>> peaks(np.array([0, 16384, -32768, 8192], np.int16), 2)
    [0.5, 1.0]
    """
    import numpy as np

    if not samples.size:
        return [0.0] * columns
    starts = np.arange(columns) * len(samples) // columns
    loudest = np.maximum(
        np.maximum.reduceat(samples, starts).astype(np.int32), -np.minimum.reduceat(samples, starts).astype(np.int32)
    )
    return [round(float(each), _DIGITS) for each in np.clip(loudest, 0, None) / 32768]
