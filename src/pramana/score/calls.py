"""The check of a call: its recording and its log in, one check with everything measured of them out.

Both are read by their digests, so that a call is scored again, in a year or with other ears, from what was stored and
nothing else. It works in a thread: to listen takes longer than the event loop may wait; and not while an embedded agent
is in a call, whose times it would lengthen. Ears that fail cost what needs words, and never the times.
"""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec.structs import replace

from pramana.errors import InvalidInput, PramanaError
from pramana.model import Call, Case, Check, Outcome, Reply
from pramana.providers.voice.machine import machine
from pramana.providers.voice.vocabulary import Ears
from pramana.score.speech import NAME, Measured, as_check, measure_call

MEASURED_AT_ONCE = 2
_measuring = ThreadPoolExecutor(MEASURED_AT_ONCE, "pramana-measures")
"""Threads of their own: each waits for ears, which work in the threads that everybody shares. Were these the same, all
of them could wait for one that none is left to be."""


class _Unheard(Exception):
    """The ears have failed; it says why."""


class CallScoring:
    """Implements `ScoresCalls`."""

    def __init__(self, blob: Callable[[str], bytes], ears: Ears, *, by_whisper: bool = False) -> None:
        """`by_whisper` says that the ears are the embedded ones, whose engine is recorded with what they hear."""
        self._blob, self._ears, self._by_whisper = blob, ears, by_whisper

    async def score(self, case: Case, reply: Reply) -> Check:
        """Measure the call of a reply; evidence that is damaged is no wrong answer, and ends no run."""
        assert reply.call is not None  # noqa: S101 - only calls come here
        loop = asyncio.get_running_loop()
        try:
            async with machine.work:
                return await loop.run_in_executor(_measuring, self._measured, case, reply.call, loop)
        except PramanaError as error:
            return _unmeasured(str(error))
        except RecursionError:
            return _unmeasured("its event log is nested too deep")
        except Exception as error:  # noqa: BLE001 - a defect here must not take along what was asked and paid for
            return _unmeasured(f"{type(error).__name__}: {error}")

    def _measured(self, case: Case, call: Call, loop: asyncio.AbstractEventLoop) -> Check:
        from pramana import audio
        from pramana.embedded import activity, quality

        language = case.facets.language or "en"
        samples, rate = audio.read_wav(self._blob(call.recording))
        events = _events(self._blob(call.log))

        def transcribe(clip: Any) -> str:
            try:
                return asyncio.run_coroutine_threadsafe(self._ears.transcribe(clip, language), loop).result()
            except Exception as error:
                why = str(error) if isinstance(error, PramanaError) else f"{type(error).__name__}: {error}"
                raise _Unheard(f"the recording could not be transcribed: {why}") from error

        def measured(*languages: str) -> Measured:
            return measure_call(
                samples,
                rate,
                events,
                transcribe=transcribe,
                languages=languages,
                language=language,
                references=[line.reference for line in case.script],
                confirm=activity.speech_spans,
                vad=activity.SETTINGS,
                estimate=quality.estimate,
                lines=max(1, len(case.script)),
            )

        try:
            found = measured(language) if self._ears.covers(language) else measured()
        except _Unheard as unheard:
            found = _because(measured(), str(unheard))
        # Why an answer has no words was told when the call was held, and no ear of today can tell it better.
        told = [event["text"] for event in events if event.get("event") == "not_written_down" and event.get("text")]
        check = as_check(replace(found, words=replace(found.words, why_not=str(told[0]))) if told else found)
        if self._by_whisper and found.words.recorded is not None:
            from pramana.embedded.ears import engine_info

            check = replace(check, evidence={**check.evidence, "engine": str(engine_info())})
        return check


def _events(log: bytes) -> list[Any]:
    """Return the events of a log; a line that is none is named by its number."""
    events = []
    for number, line in enumerate(log.splitlines(), 1):
        try:
            events.append(json.loads(line))
        except RecursionError:
            raise InvalidInput(f"line {number} of the event log is nested too deep") from None
        except ValueError:
            raise InvalidInput(f"line {number} of the event log is not JSON") from None
    return events


def _because(measured: Measured, why: str) -> Measured:
    """Return the measurement of a call that nobody has heard, with another reason for that."""
    guard, before = measured.guard, measured.words.why_not
    guard = replace(guard, reason=guard.reason.replace(before, why)) if guard.state == "not checked" else guard
    return replace(measured, words=replace(measured.words, why_not=why), guard=guard)


def _unmeasured(why: str) -> Check:
    return Check(NAME, "1", Outcome.ERRORED, f"the call could not be measured: {why}")
