"""Whether the sound of a call bears out its transcript: samples and texts in; ok, why not, or "not checked" out.

What was written down is only evidence when the recording says it too. So the recording is transcribed again by an ear
of our own, and both texts are compared by character. How far they may differ was measured, not chosen: see
`MAX_CHARACTER_ERROR_RATE`. Where the ear cannot tell (a language it does not know, a text too short, a recogniser that
has lost itself) the guard says "not checked" and why; it never passes for a check. Nor is anything proven by ear of an
agent whose sound the bench itself synthesised from the transcript: the words are the source of that sound, so that an
ear which hears others is wrong. Silence, clipping and a sound too short for its words are held against it all the same.
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

GUARD_VERSION: Final = "3"
"""3: sound that the bench synthesised from the transcript is not checked by ear."""
State = Literal["ok", "not checked", "silent", "clipped", "contradicts"]
MAX_CHARACTER_ERROR_RATE = 0.55
"""Character error rate above which the recording says something else than the transcript, as measured by
`benchmarks/evidence_guard.py`. Of 260 sentences of the embedded voice 95 % stay below 0.32 and two are above this, of
1,300 pairs that do not belong together none is below 0.57; half of the sentences had no say in the choice."""
MIN_CHARACTERS = 40
"""On one side at least: a word alone is misheard too often to prove anything."""
MAX_CHARACTERS = 40_000
"""Of both together, which is half an hour of speech; comparing takes time with their square."""
MAX_CHARACTERS_A_SECOND = 60
"""Characters a second: three times what the fastest people say. A transcript beyond is not of this sound."""
CLIPPED_SHARE = 0.05
"""Of audible samples at full scale: speech made 20 dB too loud. Its words outlive that; as a sound it is broken."""
LOOP_COMPRESSION = 2.4
"""How many times smaller a text can be packed when a recogniser has said the same again and again: Whisper's rule."""
MAX_CUTS = 4
SYNTHESISED_HERE_REASON = "not checked by ear: the agent's sound was synthesised in this process from its transcript"


class GuardResult(Struct, frozen=True):
    """What the sound says about the transcript."""

    state: State
    reason: str
    rate: float | None = None
    """The character error rate that decided; None where none did."""

    @property
    def is_tripped(self) -> bool:
        return self.state not in ("ok", "not checked")


def check_evidence(
    speech: "Samples",
    transcript: str,
    recorded: str | None,
    language: str,
    *,
    rate: int,
    cuts: int = 0,
    unheard: str = "nobody has transcribed the recording",
    synthesised_here: bool = False,
) -> GuardResult:
    """Compare what an agent says it said with what was recorded.

    `speech` is the audible part of its channel at `rate` samples a second, and `recorded` what an ear made of it, None
    for the reason `unheard`. `cuts` is how often it fell silent because the caller talked: so many stretches of its
    words were never heard. `synthesised_here`: the bench made the sound from the words of `transcript`.
    """
    seconds = speech.size / rate
    if not speech.size:
        return GuardResult("silent", "nothing is audible in the agent's channel of the recording")
    if (share := audio.clipped_share(speech)) > CLIPPED_SHARE:
        return GuardResult("clipped", f"{share:.1%} of the agent's sound is at full scale, above {CLIPPED_SHARE:.0%}")
    if not transcript.strip():
        return GuardResult("not checked", "not checked: the agent gave no transcript of what it said")
    # The embedded voice leaves out what has no sound; how others transcribe their speech is theirs to answer for.
    length = sum(map(str.isalnum, transcript)) if synthesised_here else len(transcript)
    fast = f"the recording contradicts the transcript: {length:,} characters were not said in {seconds:.1f} s"
    is_too_fast = not cuts and length > MIN_CHARACTERS + MAX_CHARACTERS_A_SECOND * seconds
    if synthesised_here:
        return GuardResult("contradicts", fast) if is_too_fast else GuardResult("not checked", SYNTHESISED_HERE_REASON)
    if recorded is None:
        return GuardResult("not checked", f"not checked: {unheard}")
    if compression_ratio(recorded) > LOOP_COMPRESSION >= compression_ratio(transcript):
        return GuardResult(
            "not checked", "not checked: the ear has lost itself, it hears the same words again and again"
        )
    if is_too_fast:
        return GuardResult("contradicts", fast)
    if len(transcript) + len(recorded) > MAX_CHARACTERS:
        return GuardResult("not checked", f"not checked: {len(transcript):,} characters are too many to compare")
    lengths = [len("".join(normalise_text(text, language))) for text in (transcript, recorded)]
    if max(lengths) < MIN_CHARACTERS:
        return GuardResult("not checked", f"not checked: {max(lengths)} characters are too few to compare by ear")
    if cuts and lengths[1] < MIN_CHARACTERS:
        few = f"not checked: of an answer that was cut off, {lengths[1]} characters were heard, too few to compare"
        return GuardResult("not checked", few)
    wrong = transcript_error_rate(transcript, recorded, language, cuts=cuts)
    if wrong > MAX_CHARACTER_ERROR_RATE:
        return GuardResult(
            "contradicts",
            f"the recording contradicts the transcript: character error rate {wrong:.0%}, above "
            f"{MAX_CHARACTER_ERROR_RATE:.0%}",
            wrong,
        )
    return GuardResult("ok", f"the recording bears out the transcript: character error rate {wrong:.0%}", wrong)


def compression_ratio(text: str) -> float:
    """Return how many times smaller a text can be packed.

    >>> answer = "We open at nine on weekdays, and at ten on Saturdays."
    >>> compression_ratio("so it is " * 40) > LOOP_COMPRESSION > compression_ratio(answer)
    True
    """
    data = text.encode("utf-8", "replace")
    return len(data) / len(zlib.compress(data)) if data else 0.0


def transcript_error_rate(transcript: str, recorded: str, language: str, *, cuts: int = 0) -> float:
    """Return the character error rate of a recording against its transcript; 1 where there is no transcript.

    Where the agent was cut off, as many stretches of the transcript may be missing without counting, and the rate is
    that of the characters heard.
    """
    if not cuts:
        rate = count_character_errors(transcript, recorded, language).rate
        return 1.0 if rate is None else rate
    between = "" if is_compared_by_character(language) else " "
    reference, heard = (between.join(normalise_text(text, language)) for text in (transcript, recorded))
    return _edit_distance(reference, heard, min(cuts, MAX_CUTS)) / max(1, len(heard))


def _edit_distance(reference: str, recognised: str, cuts: int) -> int:
    """Return the least number of edits between two texts when so many stretches of the first may be left out free.

    One row of the usual table for each character of the reference, in a copy for each stretch left out so far, and one
    for each that is being left out: there a character of the reference costs nothing.
    """
    import numpy as np

    letters = np.fromiter(map(ord, recognised), np.int64, len(recognised))
    columns = np.arange(len(recognised) + 1)
    never = np.full(len(recognised) + 1, len(recognised) + len(reference) + 1)
    kept, left = [columns, *[never] * cuts], [columns, *[never] * (cuts - 1)]
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
    samples: "Samples", rate: int, spans: Sequence[tuple[float, float]], margin_s: float = 0.25
) -> "Samples":
    """Return a channel without its long silences: what is audible, with a little of what is beside it."""
    import numpy as np

    places: list[list[int]] = []
    for start, end in spans:
        first, last = max(0, round((start - margin_s) * rate)), min(len(samples), round((end + margin_s) * rate) + 1)
        if places and first <= places[-1][1]:
            places[-1][1] = last
        else:
            places.append([first, last])
    return np.concatenate([samples[first:last] for first, last in places]) if places else samples[:0]
