"""A case as sound: its recordings or the embedded voice, then the conditions.

A case comes in, the samples of each of its lines go out, kept by digest and the same for every agent. What cannot be
spoken is refused with the reason and never replaced. Nothing here sends or measures anything.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

from pramana import audio
from pramana.errors import escape_control_characters
from pramana.model import Case, Line, Speech, Utterance
from pramana.providers.voice.embedded import process_slots

if TYPE_CHECKING:
    from pramana.audio import Samples

StoreBlob = Callable[[bytes], str]
"""Stores a blob and returns its digest."""
FetchRecording = Callable[[str, Case], Awaitable[bytes]]
"""Returns the file of a recording."""

MAX_CACHED_LINES = 128
"""Lines kept in memory: the same case goes to several models, several times."""
CONDITIONS_VERSION = 2
"""The version of how conditions are applied to a line; a new version means different sound. 2: from the first word, not
from the first sample of the file."""
WRITTEN_ONLY_ASSERTIONS = ("is_json", "json_schema")
PLAIN, NOISY = "voice", "noise=10dB"
"""The variant for `--modality voice`, and the conditions that `noisy` adds to it."""


class CannotBeSpoken(Exception):
    """The case cannot be spoken; the message says why."""


def make_caller_script(case: Case) -> tuple[Line, ...]:
    """Return what the caller says: the script, or the user's last message."""
    if case.script:
        return case.script
    return (Line(case.turns[-1].text, case.prompt_audio_url),)


def parse_variant_conditions(variant: str) -> str:
    """Return the conditions in a variant's name.

    >>> parse_variant_conditions("voice+noise=10dB,phone"), parse_variant_conditions("voice")
    ('noise=10dB,phone', '')
    """
    return variant.partition("+")[2]


def merge_conditions(case: Case, variant: str) -> str:
    """Return the conditions of a case in a variant: those of both; where both set one, the variant's."""
    stated = [
        each
        for each in (case.conditions, parse_variant_conditions(variant))
        if each not in ("", audio.conditions.NO_CONDITIONS)
    ]
    parts = {part.partition("=")[0]: part for each in stated for part in each.split(",")}
    return str(audio.conditions.parse_conditions(",".join(parts.values()))) if parts else ""


def find_speech_obstacle(case: Case) -> str | None:
    """Return why a case cannot be spoken, or None."""
    stated = [case.assertion, *(expected.assertion for line in case.script for expected in line.expected)]
    for each in stated:
        if each is not None and each.type in WRITTEN_ONLY_ASSERTIONS:
            return f"{each.type} checks written text, which cannot be spoken"
    if case.facets.category == "coding" or any("```" in line.text for line in make_caller_script(case)):
        return "the case is about code, which cannot be spoken"
    if case.turns and case.turns[-1].role != "user":
        return "the last turn of the case is not the user's, so the caller has nothing to say"
    return None


class SpeechMaker:
    """Turns cases into speech."""

    def __init__(self, store_blob: StoreBlob, fetch_recording: FetchRecording, voice: str = "espeak") -> None:
        self._keep, self._fetch, self._voice = store_blob, fetch_recording, voice
        self._cache: OrderedDict[tuple[str, ...], asyncio.Future[tuple[Samples, str]]] = OrderedDict()

    async def make_speech(self, case: Case, variant: str) -> Speech:
        """Return a case's speech; raise `CannotBeSpoken`, or a `PramanaError` for an unusable recording."""
        if reason := find_speech_obstacle(case):
            raise CannotBeSpoken(reason)
        language = case.facets.language or "en"
        conditions = merge_conditions(case, variant)
        said = []
        for line in make_caller_script(case):
            samples, digest = await self._get_line_sound(case, line, language, conditions)
            said.append(Utterance(line, samples, digest))
        return Speech(tuple(said), language, variant, conditions)

    async def _get_line_sound(self, case: Case, line: Line, language: str, conditions: str) -> "tuple[Samples, str]":
        where = case.source.file if case.source and line.audio_url else ""
        key = (line.text, line.audio_url or "", where, language, conditions)
        if key in self._cache:
            self._cache.move_to_end(key)
        else:
            self._cache[key] = asyncio.ensure_future(self._make_sound(case, line, language, conditions))
            if len(self._cache) > MAX_CACHED_LINES:
                self._cache.popitem(last=False)
        try:
            return await asyncio.shield(self._cache[key])
        except Exception:
            self._cache.pop(key, None)  # forget a failure: a file that is missing now may exist on the next request
            raise

    async def _make_sound(self, case: Case, line: Line, language: str, conditions: str) -> "tuple[Samples, str]":
        recorded = await self._fetch(line.audio_url, case) if line.audio_url else None
        # espeak-ng takes a thousandth of the time it speaks; a neural voice would affect the times of agents.
        async with process_slots.engine_work if self._voice == "piper" and recorded is None else nullcontext():
            return await asyncio.to_thread(self._render_line, line, recorded, language, conditions)

    def _render_line(self, line: Line, recorded: bytes | None, language: str, conditions: str) -> "tuple[Samples, str]":
        samples = (
            _synthesise(line.text, language, self._voice)
            if recorded is None
            else _decode_recording(recorded, str(line.audio_url))
        )
        if conditions:
            samples = _apply_conditions(samples, conditions)
        return samples, self._keep(audio.write_wav(samples, audio.CALLER_SAMPLE_RATE))


def _apply_conditions(samples: "Samples", conditions: str) -> "Samples":
    """Apply conditions to a line from its first word to its last: noise around them would count as speech.

    Silence before and after keeps its length and stays silent.
    """
    import numpy as np

    first, last = (
        find(samples, audio.CALLER_SAMPLE_RATE) for find in (audio.find_first_audible, audio.find_last_audible)
    )
    if first is None or last is None:
        return samples
    words = samples[first : last + 1]
    clean = audio.digest_sound(words, audio.CALLER_SAMPLE_RATE)
    seed = int.from_bytes(hashlib.sha256(f"{clean}|{conditions}|{CONDITIONS_VERSION}".encode()).digest()[:4])
    disturbed = audio.apply_conditions(audio.conditions.parse_conditions(conditions), words, seed)
    return np.pad(disturbed, (first, len(samples) - last - 1))


def _synthesise(text: str, language: str, voice: str) -> "Samples":
    from pramana.embedded.voice import CannotSpeak, speak

    try:
        if voice == "piper":
            from pramana.embedded import piper

            return piper.speak(text, language)
        return speak(text, language)
    except CannotSpeak as refused:
        raise CannotBeSpoken(str(refused)) from None


def _decode_recording(recorded: bytes, url: str) -> "Samples":
    from pramana.providers import guard

    shown = (
        guard.strip_credentials_and_query(url) if "://" in url else escape_control_characters(url)
    )  # the query of a URL may be a signature
    try:
        sound = audio.read_sound(recorded)
    except audio.BadAudio as bad:
        raise audio.BadAudio(f"the recording {shown} cannot be used: {bad}") from None
    samples = audio.resample(sound.samples, sound.rate, audio.CALLER_SAMPLE_RATE)
    if wrong := audio.find_prompt_problem(samples, audio.CALLER_SAMPLE_RATE):
        raise audio.BadAudio(f"the recording {shown} cannot be used: {wrong}")
    return samples
