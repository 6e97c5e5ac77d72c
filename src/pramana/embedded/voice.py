"""espeak-ng in this process: a text and its language go in, 16-bit samples at the caller's rate come out. No network.

The same text gives the same samples, in any process and after any other text: the library has internal state that
cannot be reset, so it is loaded again for each text, which takes three milliseconds. One text at a time. Text with
letters that the voice would spell out or mispronounce is refused with `CannotSpeak` before any sound is made. Every
voice speaks at the same level, the reference level of telephony. espeak-ng is free software under the GPL, version 3.
"""

import ctypes
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pramana.audio import CALLER_SAMPLE_RATE
from pramana.audio.faults import explain_missing_library
from pramana.embedded.scripts import CannotSpeak, Voice, find_voice, prepare_text
from pramana.errors import EngineMissing
from pramana.installation import make_install_command

if TYPE_CHECKING:
    from pramana.audio import Samples

__all__ = ["NAME", "SPEECH_LEVEL_DBFS", "CannotSpeak", "Clause", "normalise_level", "speak", "to_phonemes"]

NAME = "espeak-ng 1.52.0"
SPEECH_LEVEL_DBFS = -26.0
"""The level of the speech without its pauses."""
WORDS_A_MINUTE, WORD_GAP_MS = 150, 20
"""Slower and clearer than the library's defaults, 175 and 0: the embedded recognition makes half as many mistakes."""
_SYNCHRONOUS, _DO_NOT_EXIT, _UTF8, _IPA = 2, 0x8000, 1, 2
_RATE, _WORD_GAP = 1, 7
_ERROR_MESSAGES = {-1: "an internal error", 1: "its buffer is full", 2: "the voice is unknown"}
_CLOSING_MARK_RE = re.compile(r"([.,;:!?…–—])\W*\w?$")
"""A mark at the end of the text read, perhaps with the first letter of the next clause."""
_ABBREVIATION_RE = re.compile(r"\b(?:Dr|Mr|Mrs|Ms|Prof|St)\.\W*\w?$")
_EQUIVALENT_MARKS = {"…": ".", "–": ",", "—": ","}
_LANGUAGE_SWITCH_RE = re.compile(r"\([a-z][a-z-]+\)")
_SoundCallback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_library_lock = threading.Lock()


class Clause(NamedTuple):
    """A part of a text between two pauses."""

    phonemes: str
    """In the International Phonetic Alphabet."""
    closing_mark: str
    """The mark after it, one of `.,;:!?`; empty if there is none."""


def speak(text: str, language: str) -> "Samples":
    """Return the text as speech."""
    with explain_missing_library("the embedded voice"):
        from pramana import audio

    plain, voice = prepare_text(text, language), find_voice(language)
    with _library_lock, _load_library() as library:
        rate = _initialise_voice(library, voice)
        if "Latin" not in voice.writing_systems:
            _refuse_unknown_letters(library, plain, language)
        spoken = _synthesise(library, plain, int(rate * audio.MAX_PROMPT_S))
        _check_status("ending", library.espeak_Terminate())
    if not spoken:
        raise CannotSpeak("the text contains nothing that can be spoken")
    return normalise_level(audio.resample(audio.decode("pcm", spoken), rate, CALLER_SAMPLE_RATE))


def to_phonemes(text: str, language: str) -> list[Clause]:
    """Return the pronunciation of the text, clause by clause, with numbers and signs as words."""
    plain, voice = prepare_text(text, language), find_voice(language)
    with _library_lock, _load_library() as library:
        _initialise_voice(library, voice)
        read = list(_read_clauses(library, plain))
        if "Latin" not in voice.writing_systems:
            _refuse_unknown_letters(library, plain, language)
        _check_status("ending", library.espeak_Terminate())
    return [Clause(_LANGUAGE_SWITCH_RE.sub("", said).strip(), _find_closing_mark(written)) for said, written in read]


def normalise_level(samples: "Samples") -> "Samples":
    """Return speech at the level of every voice, or as close as its loudest sample allows."""
    from pramana import audio
    from pramana.audio.pcm import FULL_SCALE, round_to_samples

    louder = 10 ** ((SPEECH_LEVEL_DBFS - audio.active_level_dbfs(samples, CALLER_SAMPLE_RATE)) / 20)
    peak = int(abs(samples.astype("int32")).max())
    return round_to_samples(samples * min(louder, (FULL_SCALE - 1) / max(peak, 1)))


@contextmanager
def _load_library() -> Iterator[Any]:
    """Load a fresh copy of the library, and unload it afterwards."""
    with explain_missing_library("the embedded voice"):
        import _ctypes

        import espeakng_loader  # type: ignore[import-untyped]
    try:
        library = ctypes.CDLL(espeakng_loader.get_library_path())
    except OSError as error:
        raise EngineMissing(f"espeak-ng cannot be loaded ({error}): {make_install_command('voice')}") from error
    try:
        yield library
    finally:
        if sys.platform == "win32":
            _ctypes.FreeLibrary(library._handle)  # noqa: SLF001 - ctypes has no public way to unload a library
        else:
            _ctypes.dlclose(library._handle)  # noqa: SLF001


def _initialise_voice(library: Any, voice: Voice) -> int:
    """Initialise the library for a voice, and return its sample rate."""
    import espeakng_loader

    data = Path(espeakng_loader.get_library_path()).with_name("espeak-ng-data")
    if not (data / "phondata").is_file():
        raise EngineMissing(
            f"the data of espeak-ng is missing at {data}; reinstall it: pip install --force-reinstall espeakng-loader"
        )
    rate = library.espeak_Initialize(_SYNCHRONOUS, 0, str(data).encode(), _DO_NOT_EXIT)
    if rate <= 0:
        raise EngineMissing(f"espeak-ng cannot be started with its data at {data} (it returned {rate})")
    _check_status(f"setting voice {voice.espeak_file}", library.espeak_SetVoiceByName(voice.espeak_file.encode()))
    for parameter, value in ((_RATE, WORDS_A_MINUTE), (_WORD_GAP, WORD_GAP_MS // 10)):
        _check_status("setting its pace", library.espeak_SetParameter(parameter, value, 0))
    return int(rate)


def _refuse_unknown_letters(library: Any, text: str, language: str) -> None:
    """Refuse letters of the voice's script that it does not know and would leave to an English voice."""
    if not _switches_language(library, text):
        return
    unknown = [each for each in dict.fromkeys(text) if not each.isspace() and _switches_language(library, each)]
    which = " ".join(unknown[:5]) or "some of the text"
    raise CannotSpeak(f'the voice for "{language}" does not know {which} and would read it as English')


def _switches_language(library: Any, text: str) -> bool:
    return any(_LANGUAGE_SWITCH_RE.search(said) for said, _ in _read_clauses(library, text))


def _read_clauses(library: Any, text: str) -> Iterator[tuple[str, str]]:
    """Yield the phonemes of each clause, and the text read for them."""
    library.espeak_TextToPhonemes.restype = ctypes.c_char_p
    data = text.encode()
    buffer = ctypes.create_string_buffer(data)
    begin = ctypes.addressof(buffer)
    place = ctypes.c_void_p(begin)
    while place.value:
        before = place.value - begin
        said = library.espeak_TextToPhonemes(ctypes.byref(place), _UTF8, _IPA) or b""
        after = place.value - begin if place.value else len(data)
        yield said.decode(errors="replace"), data[before:after].decode(errors="ignore")


def _find_closing_mark(text_read: str) -> str:
    found = None if _ABBREVIATION_RE.search(text_read) else _CLOSING_MARK_RE.search(text_read)
    return _EQUIVALENT_MARKS.get(found[1], found[1]) if found else ""


def _synthesise(library: Any, text: str, max_samples: int) -> bytes:
    pieces: list[bytes] = []
    length = 0

    def hear(wave: int | None, count: int, _events: int | None) -> int:
        nonlocal length
        if wave and count > 0:
            pieces.append(ctypes.string_at(wave, 2 * count))
            length += count
        return int(length > max_samples)

    callback = _SoundCallback(hear)
    library.espeak_SetSynthCallback(callback)
    data = text.encode() + b"\0"
    said = library.espeak_Synth(data, ctypes.c_size_t(len(data)), 0, 0, 0, _UTF8, None, None)
    if length > max_samples:
        raise CannotSpeak("the text is too long: its speech would exceed the limit for a prompt")
    _check_status("speaking", said)
    _check_status("waiting", library.espeak_Synchronize())
    return b"".join(pieces)


def _check_status(action: str, code: int) -> None:
    if code:
        raise CannotSpeak(f"espeak-ng failed in {action}: {_ERROR_MESSAGES.get(code, f'error {code:#x}')}")
