"""Blobs are read back unchanged or not at all: across processes, SIGKILL, a full disk and a read-only folder."""

import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pramana.errors import InvalidInput, StoreFailed
from pramana.store.blobs import ABANDONED_AFTER_S, UNFINISHED_SUFFIX, Blobs


def compute_digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def run(code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("data", [b"", b"\0", b"sound", bytes(range(256)) * 5000])
def test_a_blob_is_read_back_by_its_digest(tmp_path: Path, data: bytes) -> None:
    blobs = Blobs(tmp_path / "not" / "there" / "yet")
    digest = blobs.put(data)
    assert digest == compute_digest(data)
    assert blobs.get(digest) == data
    assert Blobs(blobs.folder).get(digest) == data
    name = digest.removeprefix("sha256:")
    assert list_files(tmp_path) == [blobs.path(digest)] == [blobs.folder / name[:2] / name[2:]]


def test_the_same_bytes_are_written_once(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    before = blobs.path(blobs.put(b"once")).stat()
    for again in (blobs, Blobs(tmp_path)):
        after = again.path(again.put(b"once")).stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_missing_blob_is_named_with_its_path(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    digest = compute_digest(b"never put")
    with pytest.raises(StoreFailed, match="restore the file") as caught:
        blobs.get(digest)
    assert digest in str(caught.value)
    assert str(blobs.path(digest)) in str(caught.value)
    assert list_files(tmp_path) == []


@pytest.mark.parametrize("damage", [b"", b"sounc", b"sound and more"])
def test_a_damaged_blob_is_never_returned_and_is_repaired_on_the_next_put(tmp_path: Path, damage: bytes) -> None:
    digest = Blobs(tmp_path).put(b"sound")
    Blobs(tmp_path).path(digest).write_bytes(damage)
    with pytest.raises(StoreFailed, match="is damaged"):
        Blobs(tmp_path).get(digest)
    assert Blobs(tmp_path).put(b"sound") == digest
    assert Blobs(tmp_path).get(digest) == b"sound"


def test_a_removed_blob_can_be_put_again(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    digest = blobs.put(b"sound")
    blobs.path(digest).unlink()
    blobs.path(digest).parent.rmdir()
    assert blobs.put(b"sound") == digest
    assert blobs.get(digest) == b"sound"


@pytest.mark.parametrize(
    "digest",
    [
        *("", "sha256:", "x", "../../etc/passwd", "sha256:../../../../etc/passwd", "/etc/passwd", "sha256:" + "../" * 21 + "a"),
        *("sha256:" + "a" * 63, "sha256:" + "a" * 65, "sha256:" + "A" * 64, "sha256:" + "a" * 63 + "g", "a" * 64),
        *("sha512:" + "a" * 64, "sha256:" + "a" * 64 + "\n", " sha256:" + "a" * 64, "sha256:" + "a" * 63 + "\0"),
        *("sha256:" + "٣" * 64, "sha256:" + "a" * 62 + "/.", "\ud800"),
    ],
)  # fmt: skip
def test_only_a_well_formed_digest_has_a_path(tmp_path: Path, digest: str) -> None:
    blobs = Blobs(tmp_path)
    for look in (blobs.path, blobs.get):
        with pytest.raises(InvalidInput, match="is not a digest; expected sha256:"):
            look(digest)


def test_a_folder_in_place_of_a_blob_is_our_own_error(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    blobs.path(compute_digest(b"sound")).mkdir(parents=True)
    with pytest.raises(StoreFailed, match="cannot be read"):
        blobs.get(compute_digest(b"sound"))
    with pytest.raises(StoreFailed, match="cannot store the recording"):
        blobs.put(b"sound")
    assert list_files(tmp_path) == []


def test_a_file_in_place_of_the_folder_is_our_own_error(tmp_path: Path) -> None:
    (tmp_path / "blobs").write_bytes(b"")
    blobs = Blobs(tmp_path / "blobs")
    with pytest.raises(StoreFailed):
        blobs.put(b"sound")
    with pytest.raises(StoreFailed):
        blobs.get(compute_digest(b"sound"))


@contextmanager
def without_root_rights() -> Iterator[None]:
    """Drop root privileges, since no folder is read-only for root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_read_only_folder_is_reported_on_write_and_can_be_read() -> None:
    with tempfile.TemporaryDirectory() as parent:
        Path(parent).chmod(0o755)
        blobs = Blobs(Path(parent, "blobs"))
        there = blobs.put(b"there")
        for folder in (blobs.folder, blobs.path(there).parent):
            folder.chmod(0o555)
        blobs.path(there).chmod(0o444)  # so that the unprivileged user can read it
        try:
            with without_root_rights():
                again = Blobs(blobs.folder)
                with pytest.raises(StoreFailed, match=r"blobs cannot store the recording: Permission denied"):
                    again.put(b"new")
                assert again.put(b"there") == there
                assert again.get(there) == b"there"
        finally:
            for folder in (blobs.folder, blobs.path(there).parent):
                folder.chmod(0o755)
        assert len(list_files(blobs.folder)) == 1


FULL = """
import resource, signal, sys
from pathlib import Path
from pramana.errors import StoreFailed
from pramana.store.blobs import Blobs

resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
blobs = Blobs(Path(sys.argv[1]))
try:
    blobs.put(b"x" * 1_000_000)
except StoreFailed as failed:
    print(failed)
print(blobs.put(b"small"))
"""


def test_a_full_disk_leaves_no_files(tmp_path: Path) -> None:
    done = run(FULL, str(tmp_path))
    assert done.stderr == ""
    said, small = done.stdout.splitlines()
    assert said == f"{tmp_path} cannot store the recording: File too large"
    assert list_files(tmp_path) == [Blobs(tmp_path).path(small)]
    with pytest.raises(StoreFailed, match="is not in"):
        Blobs(tmp_path).get(compute_digest(b"x" * 1_000_000))


PUT = """
import sys
from pathlib import Path
from pramana.store.blobs import Blobs

blobs, number = Blobs(Path(sys.argv[1])), 0
while number < int(sys.argv[2]):
    print(blobs.put(str(number).encode() * int(sys.argv[3])), flush=True)
    number += 1
"""


def test_two_processes_put_the_same_blobs_at_once(tmp_path: Path) -> None:
    both = [
        subprocess.Popen([sys.executable, "-c", PUT, str(tmp_path), "60", "20000"], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    said = [process.communicate()[0].decode().split() for process in both]
    expected = [compute_digest(str(number).encode() * 20_000) for number in range(60)]
    assert said == [expected, expected]
    assert sorted(map(str, list_files(tmp_path))) == sorted(str(Blobs(tmp_path).path(each)) for each in expected)
    assert all(compute_digest(Blobs(tmp_path).get(each)) == each for each in expected)


def test_a_process_killed_while_writing_leaves_no_damaged_blob(tmp_path: Path) -> None:
    cut_off = 0
    for attempt in range(6):
        folder, output = tmp_path / str(attempt), tmp_path / f"{attempt}.txt"
        with output.open("wb") as file:
            process = subprocess.Popen([sys.executable, "-c", PUT, str(folder), "100000", "4000000"], stdout=file)
        give_up = time.monotonic() + 30
        while not list(folder.glob(f"*/*{UNFINISHED_SUFFIX}")) and time.monotonic() < give_up:
            pass  # to meet it in the middle
        process.send_signal(signal.SIGKILL)
        process.wait()
        left = list_files(folder)
        whole = [path for path in left if path.suffix != UNFINISHED_SUFFIX]
        cut_off += len(left) - len(whole)
        told = output.read_text().split()
        assert {str(Blobs(folder).path(digest)) for digest in told} <= {str(path) for path in whole}
        for path in whole:
            assert compute_digest(path.read_bytes()) == f"sha256:{path.parent.name}{path.name}"
        again = Blobs(folder)
        assert again.get(again.put(b"0" * 4_000_000)) == b"0" * 4_000_000
        if cut_off:
            break
    assert cut_off, "none was met while it wrote"


def test_old_leftovers_of_killed_processes_are_removed(tmp_path: Path) -> None:
    place = Blobs(tmp_path).path(compute_digest(b"sound"))
    place.parent.mkdir()
    old, fresh = place.parent / f"old{UNFINISHED_SUFFIX}", place.parent / f"fresh{UNFINISHED_SUFFIX}"
    for each in (old, fresh):
        each.write_bytes(b"so")
    long_ago = time.time() - 2 * ABANDONED_AFTER_S
    os.utime(old, (long_ago, long_ago))
    Blobs(tmp_path).put(b"sound")
    assert list_files(tmp_path) == sorted([place, fresh])
