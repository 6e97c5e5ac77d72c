"""Sound and logs by their digest: bytes go in, `sha256:…` comes out, and the same bytes come back for it or an error.

A blob is a file, written beside its place, made durable, and only then renamed to its name: whoever finds the name
finds the whole content, whatever was killed in between. Any number of processes may put the same blob at once. Nothing
here changes or removes a blob, and no digest leads outside the folder.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import EINVAL
from pathlib import Path
from secrets import token_hex

from pramana import clock, settings
from pramana.errors import InvalidInput, StoreFailed, quote
from pramana.hash import PREFIX

UNFINISHED = ".part"
ABANDONED_S = 3600.0
"""A file that is this long unfinished belongs to nobody any more."""

_DIGEST = re.compile(rf"{PREFIX}([0-9a-f]{{64}})")


class Blobs:
    """A folder of blobs; it is made when the first one is put."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: set[Path] = set()
        """Folders known to be on the disk."""
        self._whole: set[str] = set()
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
        with _explained(f"{self.folder} cannot hold what was recorded"):
            if digest in self._whole and path.exists():
                return digest
            self._make(path.parent)
            if not _holds(path, data):  # a damaged one is written again: the right bytes are at hand
                with written_beside(path, data) as unfinished:
                    unfinished.replace(path)
            make_durable(path.parent)  # also when another process has just renamed it there
        self._whole.add(digest)
        return digest

    def get(self, digest: str) -> bytes:
        """Return the bytes of a digest; nothing that differs from it is ever returned."""
        path = self.path(digest)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise StoreFailed(f"{digest} is not in {self.folder}; restore the file {path} from a copy") from None
        except OSError as error:
            raise StoreFailed(f"{digest} cannot be read from {path}: {error.strerror}") from None
        if PREFIX + hashlib.sha256(data).hexdigest() != digest:
            raise StoreFailed(f"{digest} is damaged: {path} holds other bytes; restore the file from a copy")
        return data

    def path(self, digest: str) -> Path:
        """Return where the blob of a digest is, or would be."""
        found = _DIGEST.fullmatch(digest)
        if not found:
            raise InvalidInput(f"{quote(digest, 80)} is no digest; expected sha256: and 64 digits of 0-9a-f")
        return self.folder / found[1][:2] / found[1][2:]

    def _make(self, folder: Path) -> None:
        """Make a folder of blobs, and be sure that it stays; sweep out what killed processes have left there."""
        if folder in self._made and folder.is_dir():
            return
        holders = {self.folder, *(each.parent for each in folder.parents if not each.exists())}
        settings.make_private(folder)
        for holder in holders:
            make_durable(holder)
        long_ago = clock.timestamp() - ABANDONED_S
        for left in folder.glob(f"*{UNFINISHED}"):
            with suppress(OSError):
                if left.stat().st_mtime < long_ago:
                    left.unlink()
        self._made.add(folder)


@contextmanager
def written_beside(path: Path, data: bytes) -> Iterator[Path]:
    """Give a file beside a path that has the data, on the disk; removed afterwards unless it was renamed."""
    unfinished = path.with_name(f".{token_hex(8)}{UNFINISHED}")
    try:
        with settings.create_private(unfinished) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield unfinished
    finally:
        with suppress(OSError):
            unfinished.unlink()


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.stat().st_size == len(data) and path.read_bytes() == data
    except FileNotFoundError:
        return False


def make_durable(folder: Path) -> None:
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


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreFailed(f"{what}: {error.strerror or error}") from None
