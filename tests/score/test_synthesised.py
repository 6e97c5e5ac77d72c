"""The evidence guard on audio synthesised by the bench: recognition is skipped, all other checks apply."""

from typing import Any

import numpy as np
import pytest

from pramana import audio
from pramana.score.evidence import EVIDENCE_GUARD_VERSION, SYNTHESISED_HERE_REASON, GuardResult, check_evidence
from pramana.score.log import CallLog

RATE = audio.CALLER_SAMPLE_RATE
TRANSCRIPT = "We are open from nine in the morning until six in the evening, every day of the week."
MISHEARD = "The train to the coast leaves from platform two, and there are still many seats in it."
TONE = (6000 * np.sin(np.arange(5 * RATE) / 9)).astype(np.int16)


def check_synthesised(
    speech: Any, transcript: str, recorded: str | None, *, synthesised: bool, cuts: int = 0
) -> GuardResult:
    return check_evidence(
        speech, transcript, recorded, "en", sample_rate=RATE, interruption_count=cuts, synthesised_here=synthesised
    )


@pytest.mark.parametrize("recorded", [MISHEARD, TRANSCRIPT, "", "and so " * 60, None])
def test_recognition_does_not_decide_on_synthesised_audio(recorded: str | None) -> None:
    assert check_synthesised(TONE, TRANSCRIPT, recorded, synthesised=True) == GuardResult(
        "not checked", SYNTHESISED_HERE_REASON
    )
    assert check_synthesised(TONE, TRANSCRIPT, recorded, synthesised=True, cuts=1).state == "not checked"
    assert not check_synthesised(TONE, TRANSCRIPT, recorded, synthesised=True).is_tripped


@pytest.mark.parametrize(
    "transcript", ["Well" + "." * 320, "Yes. " + "-" * 240, "Name: " + "_" * 240, "A" + "\u0301" * 300]
)
def test_text_without_speakable_content_needs_no_audio(transcript: str) -> None:
    assert check_synthesised(TONE[: RATE // 2], transcript, None, synthesised=True).state == "not checked"


def test_recognition_decides_for_all_other_agents() -> None:
    assert check_synthesised(TONE, TRANSCRIPT, MISHEARD, synthesised=False).state == "contradicts"
    assert check_synthesised(TONE, TRANSCRIPT, TRANSCRIPT, synthesised=False).state == "ok"
    assert check_evidence(TONE, TRANSCRIPT, MISHEARD, "en", sample_rate=RATE).state == "contradicts"  # the default


@pytest.mark.parametrize(
    ("speech", "transcript", "state"),
    [
        (TONE[:0], TRANSCRIPT, "silent"),
        (np.where(TONE < 0, -32768, 32767).astype(np.int16), TRANSCRIPT, "clipped"),
        (TONE[:RATE], TRANSCRIPT * 3, "contradicts"),
        (TONE, "", "not checked"),
    ],
)
def test_broken_audio_is_an_error_whatever_its_source(speech: Any, transcript: str, state: str) -> None:
    assert check_synthesised(speech, transcript, TRANSCRIPT, synthesised=True).state == state
    assert check_synthesised(speech, transcript, TRANSCRIPT, synthesised=False).state == state


@pytest.mark.parametrize(
    ("stated", "synthesised"), [(True, True), (False, False), (1, False), ("true", False), (None, False)]
)
def test_audio_counts_as_synthesised_only_if_the_log_says_so(stated: object, synthesised: bool) -> None:
    assert (
        CallLog([{"t": 0, "event": "call", "version": 3, "synthesised_here": stated}]).synthesised_here is synthesised
    )
    assert not CallLog([{"t": 0, "event": "call", "version": 2}]).synthesised_here
    assert EVIDENCE_GUARD_VERSION == "3"
