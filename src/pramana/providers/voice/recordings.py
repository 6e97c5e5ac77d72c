"""Where a prompt was recorded: a `prompt_audio_url` goes in, the bytes of the file come out, or an error that names it.

`/audio/…` is a file of the data folder, wherever the scenario came from. A relative path counts from the scenario's
file, and any other absolute path is what it says: both only on the command line, where whoever wrote the scenario may
read the files anyway. A path is taken as it is written: nothing in it is decoded or expanded. Never a synthetic voice
in the place of a recording that is missing, and never a wait for a file that is none.
"""

import asyncio
import os
import re
import stat
from pathlib import Path
from urllib.parse import urlsplit

from pramana.errors import InvalidInput, NotFound, PramanaError, quote, visible
from pramana.providers import guard

LARGEST = 50 << 20
"""Bytes of a recording: half an hour of speech as the calls need it, and no file can fill our memory."""
LONGEST_PATH = 4096
SHARED = "/audio/"

_DRIVE = re.compile("[A-Za-z]:")
_ELSEWHERE = f"put the recording in the data folder's audio/ and write {SHARED}NAME"


async def prompt_audio(
    url: str, *, scenario_file: Path | None, audio_folder: Path, from_api: bool, allow_private: bool
) -> bytes:
    """Return the recording that a scenario names."""
    try:
        scheme = urlsplit(url).scheme
    except ValueError:
        scheme = "?"
    if scheme in ("http", "https"):
        return await guard.fetch(url, limit_bytes=LARGEST, allow_private=allow_private)
    drive = bool(_DRIVE.match(url))
    if not url.strip() or "\0" in url or (scheme and not drive) or "://" in url or len(url) > LONGEST_PATH:
        raise InvalidInput(f"prompt_audio_url must be an http(s) URL or a path, found {quote(url, 120)}")
    if url == SHARED.rstrip("/") or url.startswith(SHARED):
        return await asyncio.to_thread(_shared, url, audio_folder)
    absolute = drive or url.startswith(("/", "\\"))
    if from_api:
        kind = "an absolute path" if absolute else "a relative path"
        raise InvalidInput(f"{quote(url, 120)} is {kind}, which only the command line can read; {_ELSEWHERE}")
    if drive and os.name != "nt":
        raise InvalidInput(f"{quote(url, 120)} names a Windows drive, which this machine does not have")
    if not absolute and scenario_file is None:
        raise InvalidInput(f"{quote(url, 120)} is relative to the scenario's file, and there is none; {_ELSEWHERE}")
    path = scenario_file.parent / url if scenario_file and not absolute else Path(url)
    return await asyncio.to_thread(_read, path, visible(str(path)))


def _shared(url: str, folder: Path) -> bytes:
    """Read a file of the data folder. It is named as it was written: a stranger need not know where the folder is."""
    try:
        root = folder.resolve()
        path = (root / url[len(SHARED) :]).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a circle of links; half of a surrogate pair
        raise _unreadable(quote(url, 120), error) from None
    if not path.is_relative_to(root):
        raise InvalidInput(f"{quote(url, 120)} leads outside the data folder's audio/; {_ELSEWHERE}")
    return _read(path, visible(url), follow=False)


def _read(path: Path, shown: str, *, follow: bool = True) -> bytes:
    """Read a regular file; anything else is refused without waiting for it."""
    # What is no link now may be one in a moment, and a pipe that nobody writes to would be waited for.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    flags |= 0 if follow else getattr(os, "O_NOFOLLOW", 0)
    try:
        _check(path.stat(), shown)  # some devices do something when they are opened
        with os.fdopen(os.open(path, flags), "rb") as file:
            _check(os.fstat(file.fileno()), shown)
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(shown, error) from None
    if len(data) > LARGEST:
        raise _too_large(shown)
    return data


def _check(found: os.stat_result, shown: str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise InvalidInput(f"{shown} is a folder; expected a recording")
    if not stat.S_ISREG(found.st_mode):
        raise InvalidInput(f"{shown} is not a regular file; expected a recording")
    if found.st_size > LARGEST:
        raise _too_large(shown)


def _too_large(shown: str) -> InvalidInput:
    return InvalidInput(f"{shown} is larger than {LARGEST >> 20} MB, the limit for a recording")


def _unreadable(shown: str, error: Exception) -> PramanaError:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return NotFound(f"{shown} does not exist; a missing recording is never replaced by a synthetic voice")
    why = error.strerror if isinstance(error, OSError) else "it is no path"
    if isinstance(error, RuntimeError):
        why = "its links go in a circle"
    return InvalidInput(f"{shown} cannot be read: {why}")
