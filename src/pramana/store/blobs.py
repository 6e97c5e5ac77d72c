"""Sound and logs by their digest: bytes go in, `sha256:…` comes out, and the same bytes come back for it or an error.

A blob is a file, written beside its place, made durable, and only then renamed to its name: whoever finds the name
finds the whole content, whatever was killed in between. Any number of processes may put the same blob at once. No
blob is changed or removed, and no digest leads outside the folder.

Recordings that people bring are files below one folder, found by the path they were given or by their content; what a
scenario names as `/audio/…` is looked for there. A path is taken as it is written and never leads outside the folder,
also not by a link. Of two who bring one at once only one has the name. What a call has recorded is a blob; its digest
finds it as a recording too.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from errno import EINVAL
from pathlib import Path
from secrets import token_hex

import msgspec

from pramana import clock, settings
from pramana.errors import AlreadyExists, InvalidInput, NotFound, StoreFailed, escape_control_characters, quote_text
from pramana.hash import PREFIX

UNFINISHED_SUFFIX = ".part"
ABANDONED_S = 3600.0
"""A file that is this long unfinished belongs to nobody any more."""

_DIGEST = re.compile(rf"{PREFIX}([0-9a-f]{{64}})")


class Blobs:
    """A folder of blobs; it is made when the first one is put."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known_folders: set[Path] = set()
        """Folders known to be on the disk."""
        self._verified_digests: set[str] = set()
        """Digests known to be on the disk, every byte of them."""

    def put(self, data: bytes) -> str:
        """Keep the bytes and return their digest; when it returns, they survive a loss of power.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     blobs = Blobs(Path(folder))
        ...     digest = blobs.put(b"a wave")
        ...     blobs.get(digest), digest[:15]
        (b'a wave', 'sha256:44307b3d')
        """
        digest = PREFIX + hashlib.sha256(data).hexdigest()
        path = self.path(digest)
        try:
            if digest in self._verified_digests and path.exists():
                return digest
            self._make(path.parent)
            if not _has_content(path, data):  # a damaged one is written again: the right bytes are at hand
                with write_temporary(path, data) as unfinished:
                    unfinished.replace(path)
            sync_folder(path.parent)  # also when another process has just renamed it there
        except OSError as error:
            raise StoreFailed(f"{self.folder} cannot store the recording: {error.strerror or error}") from None
        self._verified_digests.add(digest)
        return digest

    def get(self, digest: str) -> bytes:
        """Return the bytes of a digest; nothing that differs from it is ever returned."""
        path = self.path(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise StoreFailed(f"{digest} is not in {self.folder}; restore the file {path} from a backup") from None
        except OSError as error:
            raise StoreFailed(f"{digest} cannot be read from {path}: {error.strerror}") from None
        if PREFIX + hashlib.sha256(data).hexdigest() != digest:
            raise StoreFailed(f"{digest} is damaged: the content of {path} has changed; restore the file from a backup")
        return data

    def path(self, digest: str) -> Path:
        """Return where the blob of a digest is, or would be."""
        found = _DIGEST.fullmatch(digest)
        if not found:
            raise InvalidInput(f"{quote_text(digest, 80)} is not a digest; expected sha256: and 64 digits of 0-9a-f")
        return self.folder / found[1][:2] / found[1][2:]

    def _make(self, folder: Path) -> None:
        """Make a folder of blobs, and be sure that it stays; sweep out what killed processes have left there."""
        if folder in self._known_folders and folder.is_dir():
            return
        holders = {self.folder, *(each.parent for each in folder.parents if not each.exists())}
        settings.make_private_folder(folder)
        for holder in holders:
            sync_folder(holder)
        long_ago = clock.timestamp() - ABANDONED_S
        for left in folder.glob(f"*{UNFINISHED_SUFFIX}"):
            with suppress(OSError):
                if left.stat().st_mtime < long_ago:
                    left.unlink()
        self._known_folders.add(folder)


@contextmanager
def write_temporary(path: Path, data: bytes) -> Iterator[Path]:
    """Give a file beside a path that has the data, on the disk; removed afterwards unless it was renamed."""
    unfinished = path.with_name(f".{token_hex(8)}{UNFINISHED_SUFFIX}")
    try:
        with settings.open_private_file(unfinished) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield unfinished
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _has_content(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
        return False


def sync_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk; where the system has no such call, it does so by itself."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno != EINVAL:  # which is how a filesystem says that it cannot
            raise
    finally:
        os.close(opened)


# ── Recordings that people bring ──

MAX_NAME_LENGTH = 200
ENDINGS = (".wav", ".flac", ".ogg", ".mp3")
_NAME_PART_RE = re.compile(r"[^\W_][\w .()+=,@-]*")


class KeptFile(msgspec.Struct, frozen=True):
    """A file that is there."""

    name: str
    """Its path below the folder."""
    size: int
    changed: str


class Recordings:
    """The folder of recordings, made when the first one is brought."""

    def __init__(self, folder: Path, blobs: Blobs) -> None:
        self.folder, self._blobs = folder, blobs

    def put(self, name: str | None, data: bytes, *, replace: bool = False) -> tuple[KeptFile, bool]:
        """Keep a file under a name, or under its digest where it has none; tell whether it is new.

        A name that has other content is taken only to replace it.
        """
        path = self._resolve_path(PREFIX + hashlib.sha256(data).hexdigest() if name is None else _check_name(name))
        try:
            if self._has_same_content(path, data, replace=replace):
                return self._describe_file(path), False
            new_folders = [each.parent for each in path.parents if not each.exists()]
            settings.make_private_folder(path.parent)
            new = self._write(path, data, replace=replace)
            for folder in (path.parent, *new_folders):
                sync_folder(folder)
            return self._describe_file(path), new
        except OSError as error:
            raise StoreFailed(
                f"/audio/{escape_control_characters(str(name))} cannot be stored: {error.strerror or error}"
            ) from None

    def _write(self, path: Path, data: bytes, *, replace: bool) -> bool:
        """Write a file and tell whether it is new: of several who bring one at once, the first has the name."""
        with write_temporary(path, data) as unfinished:
            if replace:
                unfinished.replace(path)
                return True
            while True:
                try:
                    path.hardlink_to(unfinished)
                except FileExistsError:
                    if self._has_same_content(path, data):
                        return False  # else it has just been removed
                else:
                    return True

    def _has_same_content(self, path: Path, data: bytes, *, replace: bool = False) -> bool:
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
        missing = NotFound(f"there is no recording /audio/{escape_control_characters(name)[:MAX_NAME_LENGTH]}")
        try:
            found = self._resolve_path(name)
            if _DIGEST.fullmatch(name) and not found.is_file():
                found = self._blobs.path(name)
            if not stat.S_ISREG(found.stat().st_mode):
                raise missing
        except (OSError, ValueError, InvalidInput):
            raise missing from None
        return found

    def remove(self, name: str) -> None:
        """Take a file away; what a call has recorded stays with its run."""
        path = self._resolve_path(name)
        try:
            there = path.is_file()
        except OSError:  # too long for any file
            there = False
        if not there:
            raise NotFound(
                f"there is no recording /audio/{escape_control_characters(name)[:MAX_NAME_LENGTH]} that was uploaded"
            )
        path.unlink(missing_ok=True)

    def list(self) -> Iterator[KeptFile]:
        """Yield every file that was uploaded, by name."""
        for parent, folders, files in os.walk(self.folder):
            folders.sort()
            for each in sorted(files):
                path = Path(parent, each)
                if not each.startswith(".") and path.is_file() and not path.is_symlink():
                    with suppress(FileNotFoundError):  # somebody has just removed it
                        yield self._describe_file(path)

    def _resolve_path(self, name: str) -> Path:
        """Return where a name leads, once it is sure that it stays inside."""
        try:
            root = self.folder.resolve()
            path = (root / name).resolve()
        except (OSError, RuntimeError, ValueError):
            raise InvalidInput(f"{quote_text(name)} is not a path of a recording") from None
        if not path.is_relative_to(root) or path == root:
            raise InvalidInput(f"{quote_text(name)} leads outside the folder of recordings")
        return path

    def _describe_file(self, path: Path) -> KeptFile:
        found = path.stat()
        changed = datetime.fromtimestamp(found.st_mtime, UTC).isoformat(timespec="seconds")
        return KeptFile(path.relative_to(self.folder.resolve()).as_posix(), found.st_size, changed)


def _check_name(name: str) -> str:
    parts = name.split("/")
    if len(name) > MAX_NAME_LENGTH or not all(_NAME_PART_RE.fullmatch(part) for part in parts):
        raise InvalidInput(
            f"{quote_text(name)} is not a valid recording name; use letters, digits and hyphens, folders by /, "
            f"{MAX_NAME_LENGTH} characters at most"
        )
    if not name.lower().endswith(ENDINGS):
        raise InvalidInput(f"{quote_text(name)} does not end in {', '.join(ENDINGS)}")
    return name
