"""The check of a call with an edited log: each problem is reported with its line, in plain words."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from pramana import audio
from pramana.embedded.ears import engine_info
from pramana.model import Case, Check, Facets, Outcome, RecordedCall, Reply, Turn
from pramana.score.speech import CallScorer

GOOD = b'{"t":0,"event":"call","version":2,"rate":24000}'
DEEP = b'{"t":0,"event":"unknown","detail":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


class UnsupportedRecognition:
    """Speech recognition without languages."""

    def supports_language(self, _language: str) -> bool:
        return False

    async def transcribe(self, _samples: Any, _language: str) -> str:
        raise AssertionError


def check_log(log: bytes) -> Check:
    blobs = {"recording": audio.write_wav(np.zeros((24000, 2), np.int16), 24000), "log": log}
    reply = Reply("", call=RecordedCall("recording", "log"))
    case = Case("a", "scenario", (Turn("user", "hello"),), Facets("task", "easy"))
    return asyncio.run(CallScorer(blobs.__getitem__, UnsupportedRecognition()).score(case, reply))


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (GOOD + b"\n" + GOOD[:-3], "line 2 of the event log is not JSON"),
        (b"\xff\xfe\n" + GOOD, "line 1 of the event log is not JSON"),
        (GOOD + b"\n\n" + GOOD, "line 2 of the event log is not JSON"),
        (GOOD + b'\n{"t":' + b"1" * 5000 + b"}", "line 2 of the event log is not JSON"),
        (GOOD + b"\n" + DEEP, "line 2 of the event log is nested too deep"),
        (
            GOOD + b'\n{"t":1,"event":"agent_audio","plays":40,"seconds":1}',
            "event 2 of the log has sound of the agent until 41 s, and the recording ends at 1 s",
        ),
    ],
)
def test_an_edited_log_is_refused_with_its_line(log: bytes, message: str) -> None:
    check = check_log(log)
    assert (check.outcome, check.reason) == (Outcome.ERRORED, f"the call could not be measured: {message}")


def test_no_reason_shows_a_python_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    def recurse(*_: Any, **__: Any) -> Any:
        raise RecursionError("maximum recursion depth exceeded")

    monkeypatch.setattr("pramana.score.speech.measure_call", recurse)
    assert check_log(GOOD).reason == "the call could not be measured: its event log is nested too deep"


def test_a_valid_log_is_measured() -> None:
    assert "could not be measured" not in check_log(json.dumps(json.loads(GOOD)).encode() + b"\n").reason


class FixedRecognition(UnsupportedRecognition):
    """Returns the same transcript for any audio."""

    def supports_language(self, _language: str) -> bool:
        return True

    async def transcribe(self, _samples: Any, _language: str) -> str:
        return "hello"


@pytest.mark.parametrize("by_whisper", [True, False])
def test_the_embedded_recognition_engine_is_recorded_with_its_transcript(by_whisper: bool) -> None:
    tone = (9000 * np.sin(np.arange(24000) / 9)).astype(np.int16)
    blobs = {"recording": audio.write_wav(np.stack((np.zeros_like(tone), tone), axis=1), 24000), "log": GOOD}
    case = Case("a", "scenario", (Turn("user", "hello"),), Facets("task", "easy"))
    scoring = CallScorer(blobs.__getitem__, FixedRecognition(), by_whisper=by_whisper)
    check = asyncio.run(scoring.score(case, Reply("", call=RecordedCall("recording", "log"))))
    assert check.evidence["words"]["recorded"] == "hello"  # type: ignore[index]
    assert check.evidence.get("engine") == (str(engine_info()) if by_whisper else None)


def test_no_engine_is_recorded_without_a_transcript() -> None:
    assert "engine" not in check_log(GOOD).evidence
