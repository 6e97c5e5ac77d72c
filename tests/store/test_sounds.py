"""Imported recordings: one name has one content, even with concurrent imports."""

import threading
from contextlib import suppress
from pathlib import Path

import pytest

from pramana.errors import AlreadyExists
from pramana.store.blobs import Blobs, UploadedRecordings


@pytest.fixture
def sounds(tmp_path: Path) -> UploadedRecordings:
    return UploadedRecordings(tmp_path / "audio", Blobs(tmp_path / "blobs"))


def import_at_once(sounds: UploadedRecordings, name: str, every: list[bytes]) -> list[bool | None]:
    """Import several files under one name at once; return for each whether it is new, or None if it was refused."""
    start = threading.Barrier(len(every))
    told: list[bool | None] = [None] * len(every)

    def put(number: int) -> None:
        start.wait()
        with suppress(AlreadyExists):
            told[number] = sounds.put(name, every[number])[1]

    threads = [threading.Thread(target=put, args=(number,)) for number in range(len(every))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


def test_one_of_many_concurrent_imports_of_different_content_wins(sounds: UploadedRecordings) -> None:
    for attempt in range(20):
        name, every = f"folder/{attempt}.wav", [bytes([number]) * 200_000 for number in range(4)]
        told = import_at_once(sounds, name, every)
        assert sorted(told, key=str) == [None, None, None, True]
        assert sounds.find(name).read_bytes() == every[told.index(True)], "whoever was told so, has it"


def test_one_of_many_concurrent_imports_of_equal_content_is_reported_as_new(sounds: UploadedRecordings) -> None:
    for attempt in range(20):
        told = import_at_once(sounds, f"{attempt}.wav", [b"x" * 200_000] * 4)
        assert sorted(told, key=str) == [False, False, False, True]
    assert not list(sounds.folder.rglob(".*")), "nothing is left beside them"


def test_a_replacement_is_complete(sounds: UploadedRecordings) -> None:
    assert sounds.put("a.wav", b"one") == (next(sounds.list()), True)
    assert sounds.put("a.wav", b"two", replace=True)[1] is True
    assert sounds.put("a.wav", b"two", replace=True)[1] is False
    with pytest.raises(AlreadyExists):
        sounds.put("a.wav", b"one")
    assert sounds.find("a.wav").read_bytes() == b"two"
