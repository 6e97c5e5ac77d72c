"""The check of a call: its recording and its log in, one check with everything measured of them out.

Both are read by their digests, so that a call is scored again, in a year or with other ears, from what was stored and
nothing else. It works in a thread: to listen takes longer than the event loop may wait.
"""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pramana.errors import PramanaError, ProviderError
from pramana.model import Call, Case, Check, Outcome, Reply
from pramana.providers.voice import Ears
from pramana.score.speech import NAME, as_check, measure_call

MEASURED_AT_ONCE = 2
_measuring = ThreadPoolExecutor(MEASURED_AT_ONCE, "pramana-measures")
"""Threads of their own: each waits for ears, which work in the threads that everybody shares. Were these the same, all
of them could wait for one that none is left to be."""


class CallScoring:
    """Implements `ScoresCalls`."""

    def __init__(self, blob: Callable[[str], bytes], ears: Ears) -> None:
        self._blob, self._ears = blob, ears

    async def score(self, case: Case, reply: Reply) -> Check:
        """Measure the call of a reply; evidence that is damaged is no wrong answer, and ends no run."""
        assert reply.call is not None  # noqa: S101 - only calls come here
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(_measuring, self._measured, case, reply.call, loop)
        except ProviderError as error:
            if error.fatal:
                raise
            return _unmeasured(str(error))
        except PramanaError as error:
            return _unmeasured(str(error))
        except Exception as error:  # noqa: BLE001 - a defect here must not take along what was asked and paid for
            return _unmeasured(f"{type(error).__name__}: {error}")

    def _measured(self, case: Case, call: Call, loop: asyncio.AbstractEventLoop) -> Check:
        from pramana import audio
        from pramana.embedded import activity, quality

        language = case.facets.language or "en"
        samples, rate = audio.read_wav(self._blob(call.recording))
        events = [json.loads(line) for line in self._blob(call.log).splitlines()]

        def transcribe(clip: Any) -> str:
            return asyncio.run_coroutine_threadsafe(self._ears.transcribe(clip, language), loop).result()

        measured = measure_call(
            samples,
            rate,
            events,
            transcribe=transcribe,
            languages=(language,) if self._ears.covers(language) else (),
            language=language,
            references=[line.reference for line in case.script],
            confirm=activity.speech_spans,
            vad=activity.SETTINGS,
            estimate=quality.estimate,
            lines=max(1, len(case.script)),
        )
        return as_check(measured)


def _unmeasured(why: str) -> Check:
    return Check(NAME, "1", Outcome.ERRORED, f"the call could not be measured: {why}")
