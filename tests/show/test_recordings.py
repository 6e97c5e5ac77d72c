"""Exported recordings: each complete or absent, and a damaged one does not block the others."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pramana import audio, settings
from pramana.bench import run_sync
from pramana.errors import StoreFailed
from pramana.model import RecordedCall
from pramana.planning import create_run
from pramana.request import Limits, RunRequest
from pramana.show.cli import pramana
from pramana.show.cli.export import _write_atomically
from pramana.store import open_store
from pramana.store.store import Store

pytestmark = pytest.mark.usefixtures("virtual_time")
SCENARIOS = """\
version: "1.0"
scenarios:
  - {id: one, name: One, type: task-completion, prompt: Hello., expected_outcome: Says yes}
  - {id: two, name: Two, type: task-completion, prompt: Good day., expected_outcome: Says yes}
"""


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store(settings.database_url())
    yield opened
    opened.close()


@pytest.fixture
def calls(tmp_path: Path, store: Store) -> dict[str, RecordedCall]:
    """Make two calls; return them by case id."""
    file = tmp_path / "desk.yaml"
    file.write_text(SCENARIOS, encoding="utf-8")
    run = create_run(
        store, RunRequest(paths=(file,), models=("fake-voice:latency=0.1,tokens=1",), modalities=("voice",))
    )
    found = run_sync(store, run, Limits())
    pairs = [(case.id, result.reply) for case, result in store.results.iterate_with_cases(found.id)]
    return {name: reply.call for name, reply in pairs if reply and reply.call}


def export_audio(folder: Path, *more: str) -> Result:
    return CliRunner().invoke(pramana, ["export", "--audio", str(folder), *more])


def test_a_damaged_recording_does_not_block_the_others(
    calls: dict[str, RecordedCall], store: Store, tmp_path: Path
) -> None:
    assert set(calls) == {"one", "two"}
    store.blobs.path(calls["one"].recording).write_bytes(b"rot")
    store.blobs.path(calls["one"].log).unlink()
    folder, table = tmp_path / "audio", tmp_path / "table.csv"
    ended = export_audio(folder, "--format", "csv", "--output", str(table))
    assert isinstance(ended.exception, StoreFailed)
    assert ended.exception.exit_code == 3
    assert "1 call: a stereo WAV" in ended.stdout
    head, first, second = str(ended.exception).splitlines()
    assert head == "2 files could not be exported:"
    assert f".wav: {calls['one'].recording} is damaged" in first
    assert f".jsonl: {calls['one'].log} is not in" in second
    wav, log = sorted(folder.iterdir(), key=lambda path: path.suffix, reverse=True)  # and nothing unfinished
    assert (wav.suffix, log.suffix, wav.name[:3]) == (".wav", ".jsonl", "two")
    assert audio.read_wav(wav.read_bytes())[1] == audio.RECORDING_SAMPLE_RATE
    assert len(table.read_text(encoding="utf-8").splitlines()) == 3
    store.blobs.path(calls["two"].log).write_bytes(b"rot")
    none = export_audio(tmp_path / "again", "--id", "one")
    assert (type(none.exception), none.stdout) == (StoreFailed, "")


def test_a_partly_written_recording_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_to_full_disk(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", write_to_full_disk)
    (tmp_path / "a.wav").write_text("before", encoding="utf-8")
    with pytest.raises(OSError, match="No space left"):
        _write_atomically(tmp_path / "a.wav", b"all of it")
    assert [path.name for path in tmp_path.iterdir()] == ["a.wav"]
    assert (tmp_path / "a.wav").read_text(encoding="utf-8") == "before"
