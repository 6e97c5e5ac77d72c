"""Content-addressed storage for sound and logs: bytes in, `sha256:…` out; reading returns the same bytes or raises.

A blob is a file. It is written to a temporary file, synced to disk, and only then renamed, so that a file with its
final name is always complete, even after a crash. Several processes may store the same blob at once. Blobs are never
changed or removed, and no digest leads outside the folder.

Uploaded recordings are files below one folder, found by their path or by their content; the `/audio/…` paths of
scenarios are looked up there. A path is used exactly as given and never leads outside the folder, not even through a
symbolic link. When two uploads of one name race, only one gets the name. Recordings of calls are blobs, and can be
found by their digest too.
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
from pramana.hash import HASH_PREFIX

UNFINISHED_SUFFIX = ".part"
ABANDONED_AFTER_S = 3600.0
"""Age in seconds after which a temporary file counts as left behind by a dead process."""

_DIGEST_RE = re.compile(rf"{HASH_PREFIX}([0-9a-f]{{64}})")


class Blobs:
    """A folder of blobs, created with the first one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known_folders: set[Path] = set()
        """Folders that are synced to disk."""
        self._verified_digests: set[str] = set()
        """Digests whose content was verified on disk."""

    def put(self, data: bytes) -> str:
        """Store the bytes and return their digest; once it returns, they survive a power failure.

        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     blobs = Blobs(Path(folder))
        ...     digest = blobs.put(b"a wave")
        ...     blobs.get(digest), digest[:15]
        (b'a wave', 'sha256:44307b3d')
        """
        digest = HASH_PREFIX + hashlib.sha256(data).hexdigest()
        path = self.path(digest)
        try:
            if digest in self._verified_digests and path.exists():
                return digest
            self._create_folder(path.parent)
            if not _file_has_content(path, data):  # a damaged file is rewritten, since the right bytes are at hand
                with write_temporary(path, data) as unfinished:
                    unfinished.replace(path)
            sync_folder(path.parent)  # also when another process has just renamed the file
        except OSError as error:
            raise StoreFailed(f"{self.folder} cannot store the recording: {error.strerror or error}") from None
        self._verified_digests.add(digest)
        return digest

    def get(self, digest: str) -> bytes:
        """Return the bytes of a digest; raise `StoreFailed` if they are missing or do not match it."""
        path = self.path(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise StoreFailed(f"{digest} is not in {self.folder}; restore the file {path} from a backup") from None
        except OSError as error:
            raise StoreFailed(f"{digest} cannot be read from {path}: {error.strerror}") from None
        if HASH_PREFIX + hashlib.sha256(data).hexdigest() != digest:
            raise StoreFailed(f"{digest} is damaged: the content of {path} has changed; restore the file from a backup")
        return data

    def path(self, digest: str) -> Path:
        """Return the path of a digest's blob, whether it exists or not."""
        found = _DIGEST_RE.fullmatch(digest)
        if not found:
            raise InvalidInput(f"{quote_text(digest, 80)} is not a digest; expected sha256: and 64 digits of 0-9a-f")
        return self.folder / found[1][:2] / found[1][2:]

    def _create_folder(self, folder: Path) -> None:
        """Create a folder of blobs and sync it to disk; delete what killed processes left there."""
        if folder in self._known_folders and folder.is_dir():
            return
        holders = {self.folder, *(each.parent for each in folder.parents if not each.exists())}
        settings.make_private_folder(folder)
        for holder in holders:
            sync_folder(holder)
        long_ago = clock.timestamp() - ABANDONED_AFTER_S
        for left in folder.glob(f"*{UNFINISHED_SUFFIX}"):
            with suppress(OSError):
                if left.stat().st_mtime < long_ago:
                    left.unlink()
        self._known_folders.add(folder)


@contextmanager
def write_temporary(path: Path, data: bytes) -> Iterator[Path]:
    """Write the data to a synced temporary file beside a path; delete it afterwards unless it was renamed."""
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


def _file_has_content(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
        return False


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk; do nothing on systems without such a call, which sync by themselves."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno != EINVAL:  # the error of filesystems that cannot sync folders
            raise
    finally:
        os.close(opened)


# ── Uploaded recordings ──

MAX_NAME_LENGTH = 200
RECORDING_EXTENSIONS = (".wav", ".flac", ".ogg", ".mp3")
_NAME_PART_RE = re.compile(r"[^\W_][\w .()+=,@-]*")


class UploadedRecordingFile(msgspec.Struct, frozen=True):
    """An uploaded file."""

    name: str
    """Path below the folder."""
    size: int
    changed: str


class UploadedRecordings:
    """The folder of uploaded recordings, created with the first one."""

    def __init__(self, folder: Path, blobs: Blobs) -> None:
        self.folder, self._blobs = folder, blobs

    def put(self, name: str | None, data: bytes, *, replace: bool = False) -> tuple[UploadedRecordingFile, bool]:
        """Store a file by name, or by digest if it has no name; return it and whether it is new.

        A name that already has other content raises `AlreadyExists`, unless `replace` is set.
        """
        path = self._resolve_path(HASH_PREFIX + hashlib.sha256(data).hexdigest() if name is None else _check_name(name))
        try:
            if self._check_same_content(path, data, replace=replace):
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
        """Write a file and return whether it is new; when uploads of one name race, the first wins."""
        with write_temporary(path, data) as unfinished:
            if replace:
                unfinished.replace(path)
                return True
            while True:
                try:
                    path.hardlink_to(unfinished)
                except FileExistsError:
                    if self._check_same_content(path, data):
                        return False  # otherwise it was removed in the meantime
                else:
                    return True

    def _check_same_content(self, path: Path, data: bytes, *, replace: bool = False) -> bool:
        """Return whether a file has this content; raise `AlreadyExists` if it has another, unless `replace` is set."""
        try:
            same = path.read_bytes() == data
        except FileNotFoundError:
            return False
        if not same and not replace:
            name = path.relative_to(self.folder.resolve()).as_posix()
            raise AlreadyExists(
                f"/audio/{name} already exists with another recording; to overwrite it, send replace=true"
            )
        return same

    def find(self, name: str) -> Path:
        """Return the file of a path or a digest; raise `NotFound` if there is none."""
        missing = NotFound(f"there is no recording /audio/{escape_control_characters(name)[:MAX_NAME_LENGTH]}")
        try:
            found = self._resolve_path(name)
            if _DIGEST_RE.fullmatch(name) and not found.is_file():
                found = self._blobs.path(name)
            if not stat.S_ISREG(found.stat().st_mode):
                raise missing
        except (OSError, ValueError, InvalidInput):
            raise missing from None
        return found

    def remove(self, name: str) -> None:
        """Delete an uploaded file; recordings of calls stay with their run."""
        path = self._resolve_path(name)
        try:
            there = path.is_file()
        except OSError:  # the name is too long for the filesystem
            there = False
        if not there:
            raise NotFound(f"there is no uploaded recording /audio/{escape_control_characters(name)[:MAX_NAME_LENGTH]}")
        path.unlink(missing_ok=True)

    def list(self) -> Iterator[UploadedRecordingFile]:
        """Yield all uploaded files, by name."""
        for parent, folders, files in os.walk(self.folder):
            folders.sort()
            for each in sorted(files):
                path = Path(parent, each)
                if not each.startswith(".") and path.is_file() and not path.is_symlink():
                    with suppress(FileNotFoundError):  # removed in the meantime
                        yield self._describe_file(path)

    def _resolve_path(self, name: str) -> Path:
        """Return the path of a name; raise `InvalidInput` if it leads outside the folder."""
        try:
            root = self.folder.resolve()
            path = (root / name).resolve()
        except (OSError, RuntimeError, ValueError):
            raise InvalidInput(f"{quote_text(name)} is not a path of a recording") from None
        if not path.is_relative_to(root) or path == root:
            raise InvalidInput(f"{quote_text(name)} is outside the folder of recordings")
        return path

    def _describe_file(self, path: Path) -> UploadedRecordingFile:
        found = path.stat()
        changed = datetime.fromtimestamp(found.st_mtime, UTC).isoformat(timespec="seconds")
        return UploadedRecordingFile(path.relative_to(self.folder.resolve()).as_posix(), found.st_size, changed)


def _check_name(name: str) -> str:
    parts = name.split("/")
    if len(name) > MAX_NAME_LENGTH or not all(_NAME_PART_RE.fullmatch(part) for part in parts):
        raise InvalidInput(
            f"{quote_text(name)} is not a valid recording name; use letters, digits and hyphens, folders by /, "
            f"{MAX_NAME_LENGTH} characters at most"
        )
    if not name.lower().endswith(RECORDING_EXTENSIONS):
        raise InvalidInput(f"{quote_text(name)} does not end in {', '.join(RECORDING_EXTENSIONS)}")
    return name
