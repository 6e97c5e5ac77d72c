"""Sound as samples: files, levels, rates, codecs and the conditions of a call. No model, no network.

Samples are 16-bit mono in numpy, unless a name says otherwise. `pcm` measures, encodes and resamples them, `files`
reads and writes them, `conditions` and `effects` apply effects to them, `noises` makes background noise. Nothing here
plays, records or waits. Public names are imported on first use, so that importing the package costs nothing and works
where numpy is missing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pramana.audio.faults import BadAudio, explain_missing_library

if TYPE_CHECKING:
    from pramana.audio import conditions
    from pramana.audio.effects import apply_conditions
    from pramana.audio.files import DecodedSound, read_sound, read_wav, write_wav
    from pramana.audio.pcm import (
        AUDIBLE_DBFS,
        MAX_PROMPT_S,
        MIN_PROMPT_S,
        SILENT_DBFS,
        Samples,
        active_level_dbfs,
        clipped_share,
        decode,
        digest_sound,
        encode,
        find_first_audible,
        find_last_audible,
        find_prompt_problem,
        level_dbfs,
        resample,
    )

CALLER_SAMPLE_RATE = 16_000
"""Samples per second of the caller's sound."""
RECORDING_SAMPLE_RATE = 24_000
"""Samples per second of a call's recording."""

_MODULES = {
    "AUDIBLE_DBFS": "pcm",
    "MAX_PROMPT_S": "pcm",
    "MIN_PROMPT_S": "pcm",
    "SILENT_DBFS": "pcm",
    "Samples": "pcm",
    "DecodedSound": "files",
    "active_level_dbfs": "pcm",
    "apply_conditions": "effects",
    "clipped_share": "pcm",
    "decode": "pcm",
    "digest_sound": "pcm",
    "encode": "pcm",
    "find_first_audible": "pcm",
    "find_last_audible": "pcm",
    "level_dbfs": "pcm",
    "find_prompt_problem": "pcm",
    "read_sound": "files",
    "read_wav": "files",
    "resample": "pcm",
    "write_wav": "files",
}

__all__ = [
    "AUDIBLE_DBFS",
    "CALLER_SAMPLE_RATE",
    "MAX_PROMPT_S",
    "MIN_PROMPT_S",
    "RECORDING_SAMPLE_RATE",
    "SILENT_DBFS",
    "BadAudio",
    "DecodedSound",
    "Samples",
    "active_level_dbfs",
    "apply_conditions",
    "clipped_share",
    "conditions",
    "decode",
    "digest_sound",
    "encode",
    "find_first_audible",
    "find_last_audible",
    "find_prompt_problem",
    "level_dbfs",
    "read_sound",
    "read_wav",
    "resample",
    "write_wav",
]


def __getattr__(name: str) -> Any:
    if name == "conditions":
        return import_module("pramana.audio.conditions")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with explain_missing_library("sound"):
        found = getattr(import_module(f"pramana.audio.{_MODULES[name]}"), name)
    globals()[name] = found  # cached, because every frame of a call uses it
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
