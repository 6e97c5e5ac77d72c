"""Does the first call end in time, whatever the embedded models hear and say on this machine?

Runs the built-in first call (`library:information-retrieval/first-call`) 20 times with the embedded voice agent: five
possible transcripts of the question (the true words and four mishearings) times four sampling settings for the answer.
Everything else is real: the caller's voice, the agent's model and voice, the clock, the recording, the scoring. Bars,
for each call: the whole run takes at most 30 s, the result is not errored, and the agent does not repeat itself. This
file has its own rule for repetition, independent of the agent's: no three words occur three times, and the answer does
not compress better than Whisper allows. Two things are printed for comparison: this machine's own transcript of the
question, and its load, since the bar is for a machine with a processor to spare. Method: one run per call, one after
another in one process; the first one loads the models.
"""

import argparse
import asyncio
import os
import re
import sys
import tempfile
import zlib
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from unittest.mock import patch

import pramana
from pramana.bench import execute
from pramana.embedded import voice
from pramana.embedded.ears import WhisperModel
from pramana.load import cases_of
from pramana.model import Outcome, Result
from pramana.planning import create_run
from pramana.providers.voice import embedded
from pramana.request import Limits, RunRequest
from pramana.store import open_store

FILE = Path(pramana.__file__).parent / "scenarios" / "information-retrieval" / "first-call.yaml"
LONGEST_S = 30.0
LOOP_RATIO = 2.4
HEARD = (
    None,
    "What is the largest motion on Earth?",
    "What is the large sociable on earth?",
    "Which can species allowed to jump over the others?",
    "what is",
)
"""What the agent's speech recognition returns for the question; None is the true words."""
SAMPLING = (
    {"temperature": 0, "seed": 42},
    {"temperature": 0.7, "seed": 1},
    {"temperature": 1.0, "seed": 2},
    {"temperature": 1.5, "seed": 3},
)


@dataclass(frozen=True, slots=True)
class Call:
    """One call and its outcome."""

    heard: str
    temperature: float
    seconds: float
    outcome: Outcome
    answer: str
    speech_s: float

    @property
    def missed(self) -> list[str]:
        """The bars that the call misses."""
        bars = {
            f"over {LONGEST_S:g} s": self.seconds > LONGEST_S,
            "errored": self.outcome is Outcome.ERRORED,
            "loops": is_loop(self.answer),
            "silent": not self.answer.strip(),
        }
        return [bar for bar, is_missed in bars.items() if is_missed]


def is_loop(text: str) -> bool:
    """Return whether a text repeats itself: three words occur three times, or the text compresses too well."""
    words = re.findall(r"\w+", text.casefold())
    threes = Counter(zip(words, words[1:], words[2:], strict=False))
    data = text.encode()
    return max(threes.values(), default=0) > 2 or len(data) > LOOP_RATIO * len(zlib.compress(data))


def make_call(home: Path, heard: str, sampling: dict[str, float]) -> Call:
    """Make one call in its own run."""
    real = WhisperModel.transcribe

    def transcribe(self: WhisperModel, samples: object) -> str:
        words = real(self, samples)  # type: ignore[arg-type] # it takes as long as it takes
        return heard if self is embedded._load_whisper("agent") else words  # noqa: SLF001 - the bench's own stay as they are

    with (
        closing(open_store(f"sqlite:///{home}/pramana.db")) as store,
        patch.object(WhisperModel, "transcribe", transcribe),
    ):
        began = perf_counter()
        run = create_run(store, RunRequest(paths=(FILE,), models=("local-voice",), parameters=dict(sampling)))
        asyncio.run(execute(store, run, Limits()))
        seconds = perf_counter() - began
        ((_, result),) = store.results.iterate_with_cases(run.id)
    return Call(heard, sampling["temperature"], seconds, result.outcome, _reply_text(result), _speech_seconds(result))


def _reply_text(result: Result) -> str:
    return result.reply.text if result.reply else ""


def _speech_seconds(result: Result) -> float:
    for check in result.checks:
        if check.name == "call" and isinstance(check.evidence, dict):
            return float(check.evidence["sound"]["speaking_s"] or 0.0)
    return 0.0


def _load_average() -> str:
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def main(transcripts: int, samplings: int) -> int:
    """Print a row per call; return 1 if a call misses a bar."""
    (case,) = cases_of(FILE)
    question = case.turns[-1].text
    print(
        f"Asked: {question} This machine's ears hear: {WhisperModel.open().transcribe(voice.speak(question, 'en'))}\n"
    )
    print(f"{os.cpu_count()} processors, load average {_load_average()} at the start.\n")
    print("| heard | temperature | run | outcome | speech | answer | missed |")
    print("| --- | --: | --: | --- | --: | --- | --- |")
    calls = []
    with tempfile.TemporaryDirectory() as folder, patch.dict("os.environ", {"PRAMANA_HOME": folder}):
        for heard in HEARD[:transcripts]:
            for sampling in SAMPLING[:samplings]:
                call = make_call(Path(folder), heard or question, dict(sampling))
                calls.append(call)
                print(
                    f"| {call.heard} | {call.temperature} | {call.seconds:.1f} s | {call.outcome} "
                    f"| {call.speech_s:.1f} s | {' '.join(call.answer.split())} | {', '.join(call.missed) or '–'} |",
                    flush=True,
                )
    longest, missed = max(call.seconds for call in calls), [call for call in calls if call.missed]
    print(
        f"\n{len(calls)} calls, the longest run {longest:.1f} s of {LONGEST_S:g} s allowed; {len(missed)} miss a bar."
    )
    return 1 if missed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--transcripts", type=int, default=len(HEARD), help="only the first of them")
    parser.add_argument("--samplings", type=int, default=len(SAMPLING), help="only the first of them")
    given = parser.parse_args()
    sys.exit(main(given.transcripts, given.samplings))
