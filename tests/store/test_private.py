"""Stored files are private to their owner for any umask, and folders of earlier versions are made private."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from pramana import settings
from pramana.model import Reply, Request, Target
from pramana.run.asking import ReplyCache
from pramana.store import open_store
from pramana.vault import open_vault

from .. import old_stores

pytestmark = pytest.mark.skipif(os.name != "posix", reason="other systems have no modes")


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a new" / "home"
    monkeypatch.setenv("PRAMANA_HOME", str(folder))
    return folder


def find_public_paths(folder: Path) -> list[str]:
    every = (folder, *folder.rglob("*"))
    return [f"{each} {each.stat().st_mode & 0o777:o}" for each in every if each.stat().st_mode & 0o077]


def use_store(home: Path) -> None:
    store = open_store(settings.database_url())
    store.tokens.create("somebody", "admin")
    store.blobs.put(b"a call")
    store.recordings.put("desk/hello.wav", b"RIFF")
    assert (home / "pramana.sqlite3-wal").exists()
    store.close()
    open_vault().encrypt("a key")
    ReplyCache(home / "cache").put(Target("a", "fake", "a"), "", Request("a", ()), Reply("hello"))
    settings.write_private_file(home / "cache" / "models.json", "{}")


def test_a_file_in_place_of_the_folder_keeps_its_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "null"
    file.touch(0o666)
    file.chmod(0o666)
    monkeypatch.setenv("PRAMANA_HOME", str(file))
    settings.restrict_data_folder()
    assert stat.S_IMODE(file.stat().st_mode) == 0o666


def test_a_new_data_folder_is_private_to_its_owner(home: Path) -> None:
    use_store(home)
    assert {each.name for each in home.iterdir()} == {"pramana.sqlite3", "blobs", "audio", "cache", "secret.key"}
    assert find_public_paths(home) == []
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "pramana.sqlite3").stat().st_mode) == 0o600
    assert stat.S_IMODE(home.parent.stat().st_mode) == 0o700  # it was made on the way


def test_a_data_folder_of_an_earlier_version_is_made_private_on_open(home: Path) -> None:
    url = old_stores.unpack(old_stores.NOVEMBER, home)
    (home / "config.toml").write_text("")
    elsewhere = home.parent / "elsewhere.wav"
    elsewhere.write_bytes(b"RIFF")
    (home / "audio").mkdir(exist_ok=True)
    (home / "audio" / "linked.wav").symlink_to(elsewhere)
    (home / "notes.txt").write_text("not ours")
    (home / "pramana.sqlite3-shm").touch()
    before = {Path(each.rpartition(" ")[0]).name for each in find_public_paths(home)}
    assert before >= {"home", "pramana.sqlite3", "pramana.sqlite3-shm", "blobs", "config.toml"}
    open_store(url).close()
    assert find_public_paths(home) == [f"{home}/notes.txt 644", f"{home}/audio/linked.wav 644"]
    assert elsewhere.stat().st_mode & 0o777 == 0o644
    assert home.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("kind", ["sticky", "own", "missing"])
def test_a_shared_folder_keeps_its_mode(home: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(0o755, parents=True)
    if kind == "sticky":
        home.chmod(0o1777)
    elif kind == "own":
        monkeypatch.setenv("HOME", str(home))
    else:
        shutil.rmtree(home)
    before = home.stat().st_mode if home.exists() else None
    settings.restrict_data_folder()
    assert (home.stat().st_mode if home.exists() else None) == before


def test_a_key_file_readable_by_others_is_refused(home: Path) -> None:
    """Mending it silently would hide that the keys may be known."""
    use_store(home)
    (home / "secret.key").chmod(0o644)
    home.chmod(0o755)
    open_store(settings.database_url()).close()
    assert find_public_paths(home) == [f"{home}/secret.key 644"]
