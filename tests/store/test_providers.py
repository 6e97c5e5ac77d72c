"""Registered providers on either engine: their fields, and keys that only the vault can read."""

import threading
from pathlib import Path

import pytest
from sqlalchemy import text

from pramana import settings
from pramana.errors import AlreadyExists, NotFound, SecretsLocked
from pramana.providers.accounts import RegisteredProvider
from pramana.store import open_store
from pramana.store.providers import StoredProvider
from pramana.store.store import Store

KEY = "sk-somebodys-key-0123456789"
MINE = RegisteredProvider("my-vllm", "compatible", "http://models.example/v1", "llama", None)


def test_a_provider_round_trips_without_its_key(store: Store) -> None:
    known = store.providers.create(MINE, KEY)
    assert (known.id, known.kind, known.base_url, known.model, known.key_set) == (
        "my-vllm", "compatible", "http://models.example/v1", "llama", True,
    )  # fmt: skip
    assert store.providers.list() == [known] == [store.providers.read("my-vllm")]
    found = store.providers.find_registered("my-vllm")
    assert found is not None
    assert found == MINE
    assert found.read_key() == KEY
    assert KEY not in repr(found) + repr(known)
    assert store.providers.find_registered("my-vlm") is None
    assert [(each.kind, each.subject, each.action) for each in store.changes.list_after(0)] == [
        ("provider", "my-vllm", "created")
    ]


def test_no_file_of_the_store_contains_a_key(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/s.sqlite3")
    store.providers.create(MINE, KEY)
    store.close()
    assert KEY.encode() not in b"".join(each.read_bytes() for each in tmp_path.glob("s.sqlite3*"))


def test_a_key_can_be_changed_kept_and_removed(store: Store) -> None:
    store.providers.create(MINE, KEY)

    def make_same(known: StoredProvider) -> RegisteredProvider:
        return RegisteredProvider(known.id, known.kind, known.base_url, "other", None)

    def read_key() -> str | None:
        found = store.providers.find_registered("my-vllm")
        assert found
        return found.read_key()

    assert store.providers.change("my-vllm", make_same).model == "other"
    assert read_key() == KEY
    store.providers.change("my-vllm", make_same, key="sk-another")
    assert read_key() == "sk-another"
    assert store.providers.change("my-vllm", make_same, key=None).key_set is False
    assert read_key() is None
    with pytest.raises(NotFound, match='no provider "my-vlm" is registered; did you mean "my-vllm"'):
        store.providers.change("my-vlm", make_same)


def test_one_of_many_concurrent_registrations_of_an_id_wins(store: Store) -> None:
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


def test_deleting_removes_the_key_and_an_unknown_id_is_reported(store: Store) -> None:
    store.providers.create(MINE, KEY)
    store.providers.delete("my-vllm")
    assert store.providers.list() == []
    for act in (store.providers.delete, store.providers.read):
        with pytest.raises(NotFound):
            act("my-vllm")


def test_rotation_encrypts_all_keys_again_or_none(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = "A" * 43 + "=", "B" * 42 + "A="
    monkeypatch.setenv("PRAMANA_SECRET_KEY", old)
    for number in range(3):
        store.providers.create(RegisteredProvider(f"p{number}", "openai"), f"{KEY}{number}")
    store.providers.create(RegisteredProvider("keyless", "compatible", "http://h/v1"))
    monkeypatch.setenv("PRAMANA_SECRET_KEY", new)
    with pytest.raises(SecretsLocked):
        store.providers.reencrypt_keys()
    monkeypatch.setenv("PRAMANA_SECRET_KEY", f"{new},{old}")
    assert store.providers.reencrypt_keys() == 3
    monkeypatch.setenv("PRAMANA_SECRET_KEY", new)
    found = [store.providers.find_registered(f"p{number}") for number in range(3)]
    assert [each.read_key() for each in found if each] == [f"{KEY}{number}" for number in range(3)]
    assert store.providers.reencrypt_keys() == 3


def test_a_damaged_secret_is_reported_only_when_it_is_used(store: Store) -> None:
    store.providers.create(MINE, KEY)
    with store._database.write_transaction() as connection:
        connection.execute(text("UPDATE providers SET secret = 'no token'"))
    assert store.providers.read("my-vllm").key_set
    found = store.providers.find_registered("my-vllm")
    assert found
    with pytest.raises(SecretsLocked, match=str(settings.encryption_key_file_path())):
        found.read_key()
