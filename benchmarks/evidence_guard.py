"""When does a recording contradict its transcript? Measures the threshold of the evidence guard.

English sentences (prompts and expected outcomes of the scenario library, prompts of the comprehensive tier) are spoken
by the embedded voice and transcribed by the embedded speech recognition. A clean pair is a sentence and its own
transcript; a mismatched pair is a sentence and the transcript of another. A threshold causes false alarms on clean
pairs and misses on mismatched ones. The most accurate threshold on every other sentence is then evaluated on the
remaining sentences, which had no part in choosing it. Interrupted answers are modelled as two sentences of which the
first stops half way. Finally, it measures how much amplification speech takes before clipping costs words.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np

import pramana
from pramana import audio
from pramana.analyse.intervals import percentile
from pramana.analyse.mean_bounds import rate_interval
from pramana.embedded import voice
from pramana.embedded.ears import WhisperModel
from pramana.load import cases_of, find_case_files
from pramana.score.evidence import (
    MAX_CHARACTER_ERROR_RATE,
    MAX_CLIPPED_SHARE,
    MAX_COMPRESSION_RATIO,
    MIN_COMPARED_CHARACTERS,
    check_evidence,
    compute_compression_ratio,
    compute_transcript_error_rate,
)
from pramana.score.words import normalise_text

if TYPE_CHECKING:
    from pramana.audio import Samples

STEPS = [step / 100 for step in range(20, 100)]
SHIFTS = (1, 17, 41, 73, 101)
"""Offsets to the sentences whose transcripts make mismatched pairs."""
GAINS_DB = (0, 12, 18, 24, 30, 36)
CUT_OFF, CLIPPED = 60, 25
"""Number of sentences that are cut off, and of those that are amplified."""
NEAR = 0.05
"""Tolerance between the constant and the best threshold here: processors transcribe a few words differently."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A sentence, its audio and its transcript."""

    text: str
    samples: "Samples"
    heard: str

    @property
    def characters(self) -> int:
        return len("".join(normalise_text(self.text, "en")))

    @property
    def usable(self) -> bool:
        """Return whether the guard would compare it at all."""
        return (
            self.characters >= MIN_COMPARED_CHARACTERS
            and compute_compression_ratio(self.heard) <= MAX_COMPRESSION_RATIO
        )


def list_sentences() -> list[str]:
    """Return the distinct English texts."""
    root = Path(pramana.__file__).parent
    found: list[str] = []
    for path in find_case_files([root / "scenarios", root / "suites" / "v1.0" / "comprehensive.jsonl"]):
        for case in cases_of(path):
            if case.facets.language in (None, "en"):
                found += [case.turns[-1].text, case.expected_outcome or ""]
                found += list(case.ideals[:1])
    return [text for text in dict.fromkeys(found) if text.strip()]


def speak_sentences(ears: WhisperModel) -> list[Spoken]:
    """Speak and transcribe every sentence that the voice can speak."""
    found = []
    for text in list_sentences():
        try:
            samples = voice.speak(text, "en")
        except voice.CannotSpeak:
            continue
        found.append(Spoken(text, samples, ears.transcribe(samples)))
    return found


def print_row(name: str, rates: Sequence[float]) -> None:
    """Print a row of percentiles."""
    ordered = sorted(rates)
    shown = [percentile(ordered, share) for share in (0, 0.01, 0.05, 0.5, 0.95, 0.99, 1)]
    print(f"| {name} | {len(rates)} | " + " | ".join("–" if each is None else f"{each:.2f}" for each in shown) + " |")


def format_share(hits: Iterable[bool], each: int = 1) -> str:
    """Return a share with its 95 % interval; `each` pairs of one sentence count as one observation."""
    counted = list(hits)
    interval = rate_interval(sum(counted) / each, len(counted) / each)
    return f"{fmean(counted):.1%} ({interval.low:.1%} to {interval.high:.1%})"


def find_best_thresholds(clean: Sequence[float], mismatched: Sequence[float]) -> tuple[float, float]:
    """Return the lowest and the highest of the most accurate thresholds; both kinds of pairs have equal weight."""
    scores = [
        round(fmean(rate <= step for rate in clean) + fmean(rate > step for rate in mismatched), 9) for step in STEPS
    ]
    winners = [step for step, score in zip(STEPS, scores, strict=True) if score == max(scores)]
    return winners[0], winners[-1]


def measure_cut_off(ears: WhisperModel, pairs: Sequence[Spoken]) -> tuple[list[float], list[float]]:
    """Return error rates of answers cut off half way: against their own transcripts, and against those of others."""
    texts, heard = [], []
    for first, second in zip(pairs[:CUT_OFF], pairs[CUT_OFF : 2 * CUT_OFF], strict=False):
        texts.append(f"{first.text} {second.text}")
        heard.append(f"{ears.transcribe(first.samples[: len(first.samples) // 2])} {second.heard}")
    clean = [
        compute_transcript_error_rate(text, said, "en", interruption_count=1)
        for text, said in zip(texts, heard, strict=True)
    ]
    others = [
        compute_transcript_error_rate(text, said, "en", interruption_count=1)
        for text, said in zip(texts, heard[1:] + heard[:1], strict=True)
    ]
    return clean, others


def print_clipped(ears: WhisperModel, pairs: Sequence[Spoken]) -> None:
    """Print the error rates of speech amplified until it clips."""
    print("\n| louder by | samples at full scale | character error rate |\n| --- | --- | --- |")
    for gain in GAINS_DB:
        loud = [np.clip(each.samples * 10 ** (gain / 20), -32768, 32767).astype(np.int16) for each in pairs[:CLIPPED]]
        shares = [audio.clipped_share(each) for each in loud]
        rates = [
            compute_transcript_error_rate(each.text, ears.transcribe(samples), "en")
            for each, samples in zip(pairs, loud, strict=False)
        ]
        print(f"| {gain} dB | {fmean(shares):.1%} | {fmean(rates):.2f} |")


def main() -> int:
    """Print the tables; return 1 if the guard's threshold is not near the best one."""
    ears = WhisperModel.open()
    every = speak_sentences(ears)
    pairs = [each for each in every if each.usable]
    lost = sum(compute_compression_ratio(each.heard) > MAX_COMPRESSION_RATIO for each in every)
    print(f"{len(every)} sentences spoken and heard; in {lost} the ears lost themselves.\n")
    print("| texts | n | min | p1 | p5 | p50 | p95 | p99 | max |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    bounds = (0, 15, MIN_COMPARED_CHARACTERS, 80, 200, 10**6)
    for fewest, more in pairwise(bounds):
        sized = [
            each
            for each in every
            if fewest <= each.characters < more and compute_compression_ratio(each.heard) <= MAX_COMPRESSION_RATIO
        ]
        print_row(
            f"clean, {fewest} to {more} characters",
            [compute_transcript_error_rate(each.text, each.heard, "en") for each in sized],
        )
    clean = [compute_transcript_error_rate(each.text, each.heard, "en") for each in pairs]
    print_row(f"clean, {MIN_COMPARED_CHARACTERS} characters and more", clean)
    mismatched = [
        [compute_transcript_error_rate(each.text, pairs[(place + shift) % len(pairs)].heard, "en") for shift in SHIFTS]
        for place, each in enumerate(pairs)
    ]
    print_row("mismatched", [rate for rates in mismatched for rate in rates])
    cut_clean, cut_mismatched = measure_cut_off(ears, pairs)
    print_row("cut off", cut_clean)
    print_row("cut off, mismatched", cut_mismatched)
    low, high = find_best_thresholds(clean[::2], [rate for rates in mismatched[::2] for rate in rates])
    held_clean, held_mismatched = clean[1::2], [rate for rates in mismatched[1::2] for rate in rates]
    print(f"\nBest on every other sentence: {low} to {high}. On the other {len(held_clean)}:\n")
    print("| threshold | false alarms | misses | false alarms, cut off | misses, cut off |")
    print("| --- | --- | --- | --- | --- |")
    for step in sorted({0.3, 0.4, 0.5, 0.55, 0.6, 0.65, 0.7, MAX_CHARACTER_ERROR_RATE}):
        cells = [
            format_share(rate > step for rate in held_clean),
            format_share((rate <= step for rate in held_mismatched), len(SHIFTS)),
            format_share(rate > step for rate in cut_clean),
            format_share(rate <= step for rate in cut_mismatched),
        ]
        print(f"| {step} | " + " | ".join(cells) + " |")
    states = [
        check_evidence(each.samples, each.text, each.heard, "en", sample_rate=audio.CALLER_SAMPLE_RATE).state
        for each in every
    ]
    print(f"\nThe guard on all {len(every)} clean calls: " + ", ".join(f"{n} {s}" for s, n in _count_states(states)))
    print_clipped(ears, pairs)
    print(f"\nThe guard calls sound clipped above {MAX_CLIPPED_SHARE:.0%}.")
    if not low - NEAR <= MAX_CHARACTER_ERROR_RATE <= high + NEAR:
        print(f"\nThe guard's threshold is {MAX_CHARACTER_ERROR_RATE}, but {low} to {high} is best here.")
        return 1
    return 0


def _count_states(states: Sequence[str]) -> list[tuple[str, int]]:
    return [(state, states.count(state)) for state in dict.fromkeys(states)]


if __name__ == "__main__":
    sys.exit(main())
