"""The evidence guard: does the sound of a call match its transcript? Samples and texts in; a state and its reason out.

A transcript is evidence only if the recording says the same. So the recording is transcribed again by independent
speech recognition, and both texts are compared by character. How much they may differ was measured, not chosen: see
`MAX_CHARACTER_ERROR_RATE`. Where speech recognition cannot decide (an unsupported language, a short text, output that
loops), the state is "not checked", with the reason, and this never counts as a check. Nor are words compared if this
process synthesised the agent's sound from the transcript: any difference is then an error of recognition. Silence,
clipping and sound too short for its words are detected in all cases.
"""

import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from pramana import audio
from pramana.score.words import count_character_errors, is_compared_by_character, normalise_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.int16]

EVIDENCE_GUARD_VERSION: Final = "3"
"""Since 3, words are not compared if this process synthesised the sound from the transcript."""
GuardState = Literal["ok", "not checked", "silent", "clipped", "contradicts"]
MAX_CHARACTER_ERROR_RATE = 0.55
"""Character error rate above which the recording contradicts the transcript, as measured by
`benchmarks/evidence_guard.py`. Of 260 sentences of the embedded voice, 95 % stay below 0.32 and two exceed this limit;
of 1,300 mismatched pairs, none is below 0.57. Half of the sentences were not used for the choice."""
MIN_COMPARED_CHARACTERS = 40
"""Minimum length of the longer text: single words are misheard too often to prove anything."""
MAX_COMPARED_CHARACTERS = 40_000
"""Maximum length of both texts together, half an hour of speech; the comparison takes quadratic time."""
MAX_CHARACTERS_PER_SECOND = 60
"""Three times the rate of the fastest speakers; a longer transcript cannot belong to this sound."""
MAX_CLIPPED_SHARE = 0.05
"""Share of audible samples at full scale: speech 20 dB too loud. Its words survive that, but the sound is broken."""
MAX_COMPRESSION_RATIO = 2.4
"""Compression ratio above which recognised text counts as looping: Whisper's own limit."""
MAX_CUTS_CONSIDERED = 4
SYNTHESISED_HERE_REASON = "not checked: this process synthesised the agent's speech from the transcript"


class GuardResult(Struct, frozen=True):
    """The guard's result: whether the sound matches the transcript."""

    state: GuardState
    reason: str
    rate: float | None = None
    """The character error rate that decided; None if none did."""

    @property
    def is_tripped(self) -> bool:
        return self.state not in ("ok", "not checked")


def check_evidence(
    speech: "Samples",
    transcript: str,
    recording_transcript: str | None,
    language: str,
    *,
    sample_rate: int,
    interruption_count: int = 0,
    no_transcript_reason: str = "there is no transcript of the recording",
    synthesised_here: bool = False,
) -> GuardResult:
    """Compare an agent's transcript with its recording.

    `speech` is the audible part of the agent's channel, at `sample_rate` samples per second. `recording_transcript` is
    its transcript by speech recognition, or None for the reason `no_transcript_reason`. `interruption_count` says how
    often the caller interrupted the agent, so that a part of its words was never played. `synthesised_here` is set if
    this process synthesised the sound from `transcript`.
    """
    seconds = speech.size / sample_rate
    if not speech.size:
        return GuardResult("silent", "the agent's channel of the recording is silent")
    if (share := audio.clipped_share(speech)) > MAX_CLIPPED_SHARE:
        return GuardResult(
            "clipped", f"{share:.1%} of the agent's sound is at full scale, above {MAX_CLIPPED_SHARE:.0%}"
        )
    if not transcript.strip():
        return GuardResult("not checked", "not checked: the agent gave no transcript of what it said")
    # The embedded voice skips characters without a sound; other agents are responsible for their transcripts.
    length = sum(map(str.isalnum, transcript)) if synthesised_here else len(transcript)
    fast = f"the recording contradicts the transcript: {length:,} characters cannot be spoken in {seconds:.1f} s"
    is_too_fast = not interruption_count and length > MIN_COMPARED_CHARACTERS + MAX_CHARACTERS_PER_SECOND * seconds
    if synthesised_here:
        return GuardResult("contradicts", fast) if is_too_fast else GuardResult("not checked", SYNTHESISED_HERE_REASON)
    if recording_transcript is None:
        return GuardResult("not checked", f"not checked: {no_transcript_reason}")
    if compute_compression_ratio(recording_transcript) > MAX_COMPRESSION_RATIO >= compute_compression_ratio(transcript):
        return GuardResult(
            "not checked", "not checked: the speech recognition is stuck in a loop and repeats the same words"
        )
    if is_too_fast:
        return GuardResult("contradicts", fast)
    if len(transcript) + len(recording_transcript) > MAX_COMPARED_CHARACTERS:
        return GuardResult("not checked", f"not checked: {len(transcript):,} characters are too many to compare")
    lengths = [len("".join(normalise_text(text, language))) for text in (transcript, recording_transcript)]
    if max(lengths) < MIN_COMPARED_CHARACTERS:
        return GuardResult("not checked", f"not checked: {max(lengths)} characters are too few to compare")
    if interruption_count and lengths[1] < MIN_COMPARED_CHARACTERS:
        few = f"not checked: {lengths[1]} characters were transcribed of an answer that was cut off, too few to compare"
        return GuardResult("not checked", few)
    wrong = compute_transcript_error_rate(
        transcript, recording_transcript, language, interruption_count=interruption_count
    )
    if wrong > MAX_CHARACTER_ERROR_RATE:
        return GuardResult(
            "contradicts",
            f"the recording contradicts the transcript: character error rate {wrong:.0%}, above "
            f"{MAX_CHARACTER_ERROR_RATE:.0%}",
            wrong,
        )
    return GuardResult("ok", f"the recording matches the transcript: character error rate {wrong:.0%}", wrong)


def compute_compression_ratio(text: str) -> float:
    """Return the compression ratio of a text.

    >>> answer = "We open at nine on weekdays, and at ten on Saturdays."
    >>> compute_compression_ratio("so it is " * 40) > MAX_COMPRESSION_RATIO > compute_compression_ratio(answer)
    True
    """
    data = text.encode("utf-8", "replace")
    return len(data) / len(zlib.compress(data)) if data else 0.0


def compute_transcript_error_rate(
    transcript: str, recording_transcript: str, language: str, *, interruption_count: int = 0
) -> float:
    """Return the character error rate of a recording against its transcript; 1 for an empty transcript.

    For each of `interruption_count` interruptions, a passage of the transcript may be missing without counting, and the
    rate is per character recognised.
    """
    if not interruption_count:
        rate = count_character_errors(transcript, recording_transcript, language).rate
        return 1.0 if rate is None else rate
    between = "" if is_compared_by_character(language) else " "
    reference, heard = (between.join(normalise_text(text, language)) for text in (transcript, recording_transcript))
    return _compute_edit_distance(reference, heard, min(interruption_count, MAX_CUTS_CONSIDERED)) / max(1, len(heard))


def _compute_edit_distance(reference: str, recognised: str, omittable_passage_count: int) -> int:
    """Return the edit distance of two texts; that many passages of the first may be left out at no cost.

    One row of the usual table per character of the reference, in one copy for each number of passages left out so far,
    and one for each passage being left out, where a character of the reference costs nothing.
    """
    import numpy as np

    letters = np.fromiter(map(ord, recognised), np.int64, len(recognised))
    columns = np.arange(len(recognised) + 1)
    never = np.full(len(recognised) + 1, len(recognised) + len(reference) + 1)
    kept, left = [columns, *[never] * omittable_passage_count], [columns, *[never] * (omittable_passage_count - 1)]
    for letter in map(ord, reference):
        before = kept
        left = [np.minimum(row, was) for row, was in zip(left, before[:-1], strict=True)]
        kept = []
        for number, row in enumerate(before):
            edited = np.concatenate(([row[0] + 1], np.minimum(row[:-1] + (letters != letter), row[1:] + 1)))
            if number:
                edited = np.minimum(edited, left[number - 1])
            kept.append(np.minimum.accumulate(edited - columns) + columns)
    return int(min(row[-1] for row in (*kept, *left)))


def trim_silences(
    samples: "Samples", sample_rate: int, audible_spans_s: Sequence[tuple[float, float]], margin_s: float = 0.25
) -> "Samples":
    """Return a channel without its long silences: audible passages with a margin on both sides."""
    import numpy as np

    places: list[list[int]] = []
    for start, end in audible_spans_s:
        first, last = (
            max(0, round((start - margin_s) * sample_rate)),
            min(len(samples), round((end + margin_s) * sample_rate) + 1),
        )
        if places and first <= places[-1][1]:
            places[-1][1] = last
        else:
            places.append([first, last])
    return np.concatenate([samples[first:last] for first, last in places]) if places else samples[:0]
