"""Recordings of prompts: a `prompt_audio_url` comes in, the bytes of the file or an error that names it go out.

`/audio/…` is a file of the data folder, wherever the scenario came from. A relative path is resolved against the
scenario's file, and any other absolute path is taken literally: both only on the command line, where the scenario's
author can read the files anyway. A path is used as written: nothing in it is decoded or expanded. Never falls back to a
synthetic voice when a recording is missing, and never blocks on what is not a regular file.
"""

import asyncio
import os
import re
import stat
from pathlib import Path
from urllib.parse import urlsplit

from pramana.errors import InvalidInput, NotFound, PramanaError, escape_control_characters, quote_text
from pramana.providers import guard

MAX_RECORDING_BYTES = 50 << 20
"""Maximum size of a recording in bytes: half an hour of speech as calls need it, and no file can fill our memory."""
MAX_PATH_LENGTH = 4096
SHARED_URL_PREFIX = "/audio/"

_DRIVE_RE = re.compile("[A-Za-z]:")
_PATH_HINT = f"put the recording in the data folder's audio/ and write {SHARED_URL_PREFIX}NAME"


async def read_prompt_audio(
    url: str, *, scenario_file: Path | None, audio_folder: Path, from_api: bool, allow_private: bool
) -> bytes:
    """Return the recording that a scenario names."""
    try:
        scheme = urlsplit(url).scheme
    except ValueError:
        scheme = "?"
    if scheme in ("http", "https"):
        return await guard.fetch(url, limit_bytes=MAX_RECORDING_BYTES, allow_private=allow_private)
    drive = bool(_DRIVE_RE.match(url))
    if not url.strip() or "\0" in url or (scheme and not drive) or "://" in url or len(url) > MAX_PATH_LENGTH:
        raise InvalidInput(f"prompt_audio_url must be an http(s) URL or a path, found {quote_text(url, 120)}")
    if url == SHARED_URL_PREFIX.rstrip("/") or url.startswith(SHARED_URL_PREFIX):
        return await asyncio.to_thread(_read_shared_recording, url, audio_folder)
    absolute = drive or url.startswith(("/", "\\"))
    if from_api:
        kind = "an absolute path" if absolute else "a relative path"
        raise InvalidInput(f"{quote_text(url, 120)} is {kind}, which only the command line can read; {_PATH_HINT}")
    if drive and os.name != "nt":
        raise InvalidInput(f"{quote_text(url, 120)} names a Windows drive, which this machine does not have")
    if not absolute and scenario_file is None:
        raise InvalidInput(
            f"{quote_text(url, 120)} is relative to the scenario's file, but the scenario has no file; {_PATH_HINT}"
        )
    path = scenario_file.parent / url if scenario_file and not absolute else Path(url)
    return await asyncio.to_thread(_read_regular_file, path, escape_control_characters(str(path)))


def _read_shared_recording(url: str, folder: Path) -> bytes:
    """Read a file of the data folder. Messages name it as it was written, so that they do not reveal the folder."""
    try:
        root = folder.resolve()
        path = (root / url[len(SHARED_URL_PREFIX) :]).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links; half a surrogate pair
        raise _make_unreadable_error(quote_text(url, 120), error) from None
    if not path.is_relative_to(root):
        raise InvalidInput(f"{quote_text(url, 120)} leads outside the data folder's audio/; {_PATH_HINT}")
    return _read_regular_file(path, escape_control_characters(url), follow_links=False)


def _read_regular_file(path: Path, label: str, *, follow_links: bool = True) -> bytes:
    """Read a regular file; reject anything else without blocking on it."""
    # It may become a link after the check, and opening a pipe without a writer would block.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    flags |= 0 if follow_links else getattr(os, "O_NOFOLLOW", 0)
    try:
        _check_regular_file(path.stat(), label)  # opening some devices has side effects
        with os.fdopen(os.open(path, flags), "rb") as file:
            _check_regular_file(os.fstat(file.fileno()), label)
            data = file.read(MAX_RECORDING_BYTES + 1)
    except (OSError, ValueError) as error:
        raise _make_unreadable_error(label, error) from None
    if len(data) > MAX_RECORDING_BYTES:
        raise _make_too_large_error(label)
    return data


def _check_regular_file(status: os.stat_result, label: str) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise InvalidInput(f"{label} is a folder; expected a recording")
    if not stat.S_ISREG(status.st_mode):
        raise InvalidInput(f"{label} is not a regular file; expected a recording")
    if status.st_size > MAX_RECORDING_BYTES:
        raise _make_too_large_error(label)


def _make_too_large_error(label: str) -> InvalidInput:
    return InvalidInput(f"{label} is larger than {MAX_RECORDING_BYTES >> 20} MB, the limit for a recording")


def _make_unreadable_error(label: str, error: Exception) -> PramanaError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NotFound(f"{label} does not exist; a missing recording is never replaced by a synthetic voice")
    why = error.strerror if isinstance(error, OSError) else "it is not a valid path"
    if isinstance(error, RuntimeError):
        why = "its symbolic links form a loop"
    return InvalidInput(f"{label} cannot be read: {why}")
