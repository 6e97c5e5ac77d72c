"""How well does the embedded speech recognition understand the embedded voice, and how much does noise take away?

Every speakable English prompt of the scenario library and the comprehensive tier is spoken by espeak-ng, or by Piper
(`--voice piper`, after `pramana models pull piper`), clean and under each condition, and transcribed by Whisper
tiny.en. Bar: at least 100 clips, and the pooled word error rate rises strictly from clean to 20, 10 and 0 dB of babble.
Telephone and loss are reported without a claimed order. Method: errors are counted by `pramana.score.words`; the pooled
rate is all errors over all words, its interval the middle 95 % of 2,000 seeded bootstraps over clips; every condition
sees the same clips, each with its own seed. One thread. Other languages are not transcribed: a second table counts the
prompts that the voice speaks and refuses.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter

import numpy as np

import pramana
from pramana.audio import CALLER_SAMPLE_RATE, Samples
from pramana.audio.conditions import parse_conditions
from pramana.audio.effects import apply_conditions
from pramana.embedded import ears, piper, voice
from pramana.load import cases_of, find_case_files
from pramana.load.manifest import find_version
from pramana.model import Case
from pramana.run.speech import find_speech_obstacle, make_caller_script
from pramana.score.words import NORMALISER_VERSION, Errors, count_word_errors

CONDITIONS = ("clean", "noise=20dB", "noise=10dB", "noise=0dB", "phone", "loss=5%")
RISING = CONDITIONS[:4]
FEWEST, BOOTSTRAPS = 100, 2_000
VOICES = {"espeak": voice, "piper": piper}
LIBRARY = Path(pramana.__file__).parent / "scenarios"


def pooled_rate(several: Sequence[Errors]) -> float | None:
    """Return all errors over all words, so that every word has the same weight; None without words.

    >>> pooled_rate([Errors(1, 0, 0, 2), Errors(0, 0, 0, 8)]), mean_rate([Errors(1, 0, 0, 2), Errors(0, 0, 0, 8)])
    (0.1, 0.25)
    """
    words = sum(each.reference_words for each in several)
    return sum(each.count for each in several) / words if words else None


def mean_rate(several: Sequence[Errors]) -> float | None:
    """Return the mean of the rates, so that every text has the same weight; None without rates."""
    rates = [each.rate for each in several if each.rate is not None]
    return sum(rates) / len(rates) if rates else None


@dataclass(frozen=True, slots=True)
class Clip:
    """A prompt and its audio."""

    text: str
    samples: Samples


def iterate_prompts(left_out: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield language and text of every prompt that a caller would say; count the others by reason."""
    files = [*find_case_files([LIBRARY]), find_version("v1.0").verified_tier_path("comprehensive")]
    said = set()
    for case in (case for path in files for case in cases_of(path)):
        if reason := find_speech_obstacle(case):
            left_out[reason] += 1
            continue
        for prompt in _iterate_texts(case):
            if prompt not in said:
                said.add(prompt)
                yield prompt


def _iterate_texts(case: Case) -> Iterator[tuple[str, str]]:
    for line in make_caller_script(case):
        yield case.facets.language or "en", line.text


def speak_texts(texts: Sequence[str], by: str, left_out: Counter[str]) -> list[Clip]:
    """Speak each text; count those that cannot be spoken by reason."""
    clips = []
    for text in texts:
        try:
            clips.append(Clip(text, VOICES[by].speak(text, "en")))
        except voice.CannotSpeak as refused:
            left_out[str(refused)] += 1
    return clips


def count_errors(clips: Sequence[Clip], condition: str, whisper: ears.WhisperModel) -> list[Errors]:
    """Return the word errors of each clip's transcript under a condition."""
    conditions = parse_conditions(condition)
    return [
        count_word_errors(clip.text, whisper.transcribe(apply_conditions(conditions, clip.samples, seed)), "en")
        for seed, clip in enumerate(clips)
    ]


def bootstrap_interval(several: Sequence[Errors]) -> tuple[float, float]:
    """Return the 95 % interval of the pooled rate, by bootstrapping over clips."""
    draws = np.random.default_rng(0).integers(0, len(several), (BOOTSTRAPS, len(several)))
    counts = np.array([each.count for each in several])[draws].sum(axis=1)
    words = np.array([each.reference_words for each in several])[draws].sum(axis=1)
    low, high = np.quantile(counts / words, [0.025, 0.975])
    return float(low), float(high)


def format_row(condition: str, several: Sequence[Errors]) -> str:
    """Return a row of the table."""
    low, high = bootstrap_interval(several)
    words = sum(each.reference_words for each in several)
    return (
        f"| {condition} | {len(several)} | {words:,} | {pooled_rate(several):.1%} | {low:.1%} – {high:.1%} "
        f"| {mean_rate(several):.1%} |"
    )


def list_other_languages(said: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield a row per language: the number of prompts, how many are spoken and refused, and the first reason."""
    for language in sorted({language for language, _ in said} - {"en"}):
        texts = [text for each, text in said if each == language]
        refused = []
        for text in texts:
            try:
                voice.speak(text, language)
            except voice.CannotSpeak as refusal:
                refused.append(str(refusal))
        example = f"{refused[0]}" if refused else ""
        yield f"| {language} | {len(texts)} | {len(texts) - len(refused)} | {len(refused)} | {example} |"


def main(by: str, limit: int | None, threads: int) -> int:
    """Print both tables; return 1 if the rates do not rise as required, or too few clips were spoken."""
    left_out: Counter[str] = Counter()
    said = list(iterate_prompts(left_out))
    start = perf_counter()
    VOICES[by].speak("Hello.", "en")
    loaded = perf_counter()
    clips = speak_texts([text for language, text in said if language == "en"][:limit], by, left_out)
    took, seconds = perf_counter() - loaded, sum(len(clip.samples) for clip in clips) / CALLER_SAMPLE_RATE
    print(f"loaded in {loaded - start:.1f} s; spoke {seconds:.0f} s in {took:.0f} s", file=sys.stderr)
    whisper = ears.WhisperModel.open(threads)
    print(f"Spoken by {VOICES[by].NAME}, heard by {ears.NAME}, words as normaliser {NORMALISER_VERSION} writes them.\n")
    print(
        "| condition | clips | words | pooled WER | 95 % interval | mean WER |\n| --- | --: | --: | --: | --: | --: |"
    )
    rates = {}
    for condition in CONDITIONS:
        start = perf_counter()
        several = count_errors(clips, condition, whisper)
        rates[condition] = pooled_rate(several) or 0.0
        print(format_row(condition, several), flush=True)
        print(f"{condition}: {perf_counter() - start:.0f} s", file=sys.stderr)
    for reason, count in left_out.most_common():
        print(f"\nNot said: {count} prompts: {reason}")
    if by == "espeak":
        print("\n| language | prompts | spoken | refused | why, the first |\n| --- | --: | --: | --: | --- |")
        for line in list_other_languages(said):
            print(line)
    rises = all(rates[one] < rates[other] for one, other in pairwise(RISING))
    enough = limit is not None or len(clips) >= FEWEST
    print(
        f"\nThe rate rises with the noise: {'yes' if rises else 'NO'}. {len(clips)} clips, {FEWEST} at least: ", end=""
    )
    print("yes" if len(clips) >= FEWEST else "NO")
    return 0 if rises and enough else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--voice", choices=VOICES, default="espeak", help="who speaks")
    parser.add_argument("--limit", type=int, help="so many clips only")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    sys.exit(main(given.voice, given.limit, given.threads))
