"""Registered providers on either store: what is known of them, and keys that only the vault can read."""

import threading
from pathlib import Path

import pytest
from sqlalchemy import text

from pramana import settings
from pramana.errors import AlreadyExists, Locked, NotFound
from pramana.providers.accounts import Registered
from pramana.store import open_store
from pramana.store.providers import KnownProvider
from pramana.store.store import Store

KEY = "sk-somebodys-key-0123456789"
MINE = Registered("my-vllm", "compatible", "http://models.example/v1", "llama", None)


def test_what_goes_in_comes_out_but_for_the_key(store: Store) -> None:
    known = store.providers.create(MINE, KEY)
    assert (known.id, known.kind, known.base_url, known.model, known.key_set) == (
        "my-vllm", "compatible", "http://models.example/v1", "llama", True,
    )  # fmt: skip
    assert store.providers.list() == [known] == [store.providers.read("my-vllm")]
    found = store.providers.find_registered("my-vllm")
    assert found is not None
    assert found == MINE
    assert found.unlock() == KEY
    assert KEY not in repr(found) + repr(known)
    assert store.providers.find_registered("my-vlm") is None
    assert [(each.kind, each.subject, each.action) for each in store.changes.after(0)] == [
        ("provider", "my-vllm", "created")
    ]


def test_no_file_of_the_store_holds_a_key(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/s.sqlite3")
    store.providers.create(MINE, KEY)
    store.close()
    assert KEY.encode() not in b"".join(each.read_bytes() for each in tmp_path.glob("s.sqlite3*"))


def test_a_key_can_be_changed_kept_and_taken_away(store: Store) -> None:
    store.providers.create(MINE, KEY)

    def same(known: KnownProvider) -> Registered:
        return Registered(known.id, known.kind, known.base_url, "other", None)

    def key() -> str | None:
        found = store.providers.find_registered("my-vllm")
        assert found
        return found.unlock()

    assert store.providers.change("my-vllm", same).model == "other"
    assert key() == KEY
    store.providers.change("my-vllm", same, key="sk-another")
    assert key() == "sk-another"
    assert store.providers.change("my-vllm", same, key=None).key_set is False
    assert key() is None
    with pytest.raises(NotFound, match='no provider "my-vlm" is registered; did you mean "my-vllm"'):
        store.providers.change("my-vlm", same)


def test_one_of_many_registers_an_id(store: Store) -> None:
    made, refused = [], []

    def create() -> None:
        try:
            made.append(store.providers.create(MINE, KEY))
        except AlreadyExists as error:
            refused.append(str(error))

    threads = [threading.Thread(target=create) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert (len(made), len(refused)) == (1, 7)
    assert 'a provider "my-vllm" already exists' in refused[0]


def test_deleting_forgets_the_key_and_deleting_nothing_is_told(store: Store) -> None:
    store.providers.create(MINE, KEY)
    store.providers.delete("my-vllm")
    assert store.providers.list() == []
    for act in (store.providers.delete, store.providers.read):
        with pytest.raises(NotFound):
            act("my-vllm")


def test_rotation_locks_every_key_anew_or_none(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = "A" * 43 + "=", "B" * 42 + "A="
    monkeypatch.setenv("PRAMANA_SECRET_KEY", old)
    for number in range(3):
        store.providers.create(Registered(f"p{number}", "openai"), f"{KEY}{number}")
    store.providers.create(Registered("keyless", "compatible", "http://h/v1"))
    monkeypatch.setenv("PRAMANA_SECRET_KEY", new)
    with pytest.raises(Locked):
        store.providers.rotate_keys()
    monkeypatch.setenv("PRAMANA_SECRET_KEY", f"{new},{old}")
    assert store.providers.rotate_keys() == 3
    monkeypatch.setenv("PRAMANA_SECRET_KEY", new)
    found = [store.providers.find_registered(f"p{number}") for number in range(3)]
    assert [each.unlock() for each in found if each] == [f"{KEY}{number}" for number in range(3)]
    assert store.providers.rotate_keys() == 3


def test_a_damaged_secret_is_told_when_it_is_needed_and_not_before(store: Store) -> None:
    store.providers.create(MINE, KEY)
    with store._database.write_transaction() as connection:
        connection.execute(text("UPDATE providers SET secret = 'no token'"))
    assert store.providers.read("my-vllm").key_set
    found = store.providers.find_registered("my-vllm")
    assert found
    with pytest.raises(Locked, match=str(settings.key_file_path())):
        found.unlock()
