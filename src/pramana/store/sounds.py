"""Recordings that people bring: files below one folder, found by the path they were given or by their content.

What a scenario names as `/audio/…` is looked for here. A path is taken as it is written and never leads outside the
folder, also not by a link. A file is written beside its place, made durable and then given its name: nobody finds half
of one, and of two who bring one at once only one has the name. What a call has recorded is a blob; by its digest it is
found here too.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from pramana import settings
from pramana.errors import AlreadyExists, InvalidInput, NotFound, StoreFailed, quote, visible
from pramana.hash import PREFIX
from pramana.store.blobs import Blobs, make_durable, written_beside

LONGEST_NAME = 200
ENDINGS = (".wav", ".flac", ".ogg", ".mp3")
_PART = re.compile(r"[^\W_][\w .()+=,@-]*")
_DIGEST = re.compile(rf"{PREFIX}[0-9a-f]{{64}}")


class Kept(msgspec.Struct, frozen=True):
    """A file that is there."""

    name: str
    """Its path below the folder."""
    size: int
    changed: str


class Sounds:
    """The folder of recordings, made when the first one is brought."""

    def __init__(self, folder: Path, blobs: Blobs) -> None:
        self.folder, self._blobs = folder, blobs

    def put(self, name: str | None, data: bytes, *, replace: bool = False) -> tuple[Kept, bool]:
        """Keep a file under a name, or under its digest where it has none; tell whether it is new.

        A name that has other content is taken only to replace it.
        """
        path = self._place(PREFIX + hashlib.sha256(data).hexdigest() if name is None else _checked(name))
        try:
            if self._is_there(path, data, replace=replace):
                return self._kept(path), False
            new_folders = [each.parent for each in path.parents if not each.exists()]
            settings.make_private(path.parent)
            new = self._write(path, data, replace=replace)
            for folder in (path.parent, *new_folders):
                make_durable(folder)
            return self._kept(path), new
        except OSError as error:
            raise StoreFailed(f"/audio/{visible(str(name))} cannot be kept: {error.strerror or error}") from None

    def _write(self, path: Path, data: bytes, *, replace: bool) -> bool:
        """Write a file and tell whether it is new: of several who bring one at once, the first has the name."""
        with written_beside(path, data) as unfinished:
            if replace:
                unfinished.replace(path)
                return True
            while True:
                try:
                    path.hardlink_to(unfinished)
                except FileExistsError:
                    if self._is_there(path, data):
                        return False  # else it has just been removed
                else:
                    return True

    def _is_there(self, path: Path, data: bytes, *, replace: bool = False) -> bool:
        """Tell whether a file has this content; one with another is refused, unless it is to be replaced."""
        try:
            same = path.read_bytes() == data
        except FileNotFoundError:
            return False
        if not same and not replace:
            name = path.relative_to(self.folder.resolve()).as_posix()
            raise AlreadyExists(f"/audio/{name} holds another recording; send replace=true to replace it")
        return same

    def find(self, name: str) -> Path:
        """Return the file of a path or a digest; `NotFound` where there is none."""
        missing = NotFound(f"there is no recording /audio/{visible(name)[:LONGEST_NAME]}")
        try:
            found = self._place(name)
            if _DIGEST.fullmatch(name) and not found.is_file():
                found = self._blobs.path(name)
            if not stat.S_ISREG(found.stat().st_mode):
                raise missing
        except (OSError, ValueError, InvalidInput):
            raise missing from None
        return found

    def remove(self, name: str) -> None:
        """Take a file away; what a call has recorded stays with its run."""
        path = self._place(name)
        try:
            there = path.is_file()
        except OSError:  # too long for any file
            there = False
        if not there:
            raise NotFound(f"there is no recording /audio/{visible(name)[:LONGEST_NAME]} that somebody brought")
        path.unlink(missing_ok=True)

    def list(self) -> Iterator[Kept]:
        """Yield every file that somebody brought, by name."""
        for parent, folders, files in os.walk(self.folder):
            folders.sort()
            for each in sorted(files):
                path = Path(parent, each)
                if not each.startswith(".") and path.is_file() and not path.is_symlink():
                    with suppress(FileNotFoundError):  # somebody has just removed it
                        yield self._kept(path)

    def _place(self, name: str) -> Path:
        """Return where a name leads, once it is sure that it stays inside."""
        try:
            root = self.folder.resolve()
            path = (root / name).resolve()
        except (OSError, RuntimeError, ValueError):
            raise InvalidInput(f"{quote(name)} is no path of a recording") from None
        if not path.is_relative_to(root) or path == root:
            raise InvalidInput(f"{quote(name)} leads outside the folder of recordings")
        return path

    def _kept(self, path: Path) -> Kept:
        found = path.stat()
        changed = datetime.fromtimestamp(found.st_mtime, UTC).isoformat(timespec="seconds")
        return Kept(path.relative_to(self.folder.resolve()).as_posix(), found.st_size, changed)


def _checked(name: str) -> str:
    parts = name.split("/")
    if len(name) > LONGEST_NAME or not all(_PART.fullmatch(part) for part in parts):
        raise InvalidInput(
            f"{quote(name)} is no name for a recording; use letters, digits and hyphens, folders by /, "
            f"{LONGEST_NAME} characters at most"
        )
    if not name.lower().endswith(ENDINGS):
        raise InvalidInput(f"{quote(name)} does not end in {', '.join(ENDINGS)}")
    return name
