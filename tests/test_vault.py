"""The vault: text is readable with the right key only; the key file is created once, for one user."""

import os
from contextlib import ExitStack
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st

from pramana import settings
from pramana.errors import PramanaError, SecretsLocked
from pramana.vault import Vault, open_vault

from . import programs

SECRET = "sk-a-key-of-somebody-0123456789"


def new_key() -> str:
    return Fernet.generate_key().decode()


@given(st.text(st.characters(codec=None)))
def test_any_text_round_trips(text: str) -> None:
    vault = Vault([Fernet.generate_key().decode()], "here")
    assert vault.decrypt(vault.encrypt(text)) == text


def test_locked_text_reveals_nothing_and_differs_every_time() -> None:
    vault = open_vault()
    first, second = vault.encrypt(SECRET), vault.encrypt(SECRET)
    assert first != second
    assert SECRET not in first
    assert SECRET not in repr(vault)


def test_a_wrong_key_unlocks_nothing_and_the_error_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    locked = open_vault().encrypt(SECRET)
    settings.encryption_key_file_path().unlink()
    with pytest.raises(
        SecretsLocked, match=r"encrypted with another key than the one in .*secret\.key; add the earlier key there"
    ) as told:
        open_vault().decrypt(locked)
    assert SECRET not in str(told.value)
    assert told.value.__cause__ is None
    monkeypatch.setenv("PRAMANA_SECRET_KEY", new_key())
    with pytest.raises(SecretsLocked, match="encrypted with another key than the one in PRAMANA_SECRET_KEY"):
        open_vault().decrypt(locked)


@pytest.mark.parametrize("damage", ["", "x", "é", "gAAAA", "\0"])
def test_text_that_was_never_locked_is_distinguished_from_damage(damage: str) -> None:
    for act in (open_vault().decrypt, open_vault().reencrypt):
        with pytest.raises(SecretsLocked):
            act(damage)


def test_a_new_key_replaces_an_old_one(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = new_key(), new_key()
    monkeypatch.setenv("PRAMANA_SECRET_KEY", old)
    locked = open_vault().encrypt(SECRET)
    monkeypatch.setenv("PRAMANA_SECRET_KEY", f" {new} , {old},")
    assert open_vault().decrypt(locked) == SECRET
    renewed = open_vault().reencrypt(locked)
    monkeypatch.setenv("PRAMANA_SECRET_KEY", new)
    assert open_vault().decrypt(renewed) == SECRET
    with pytest.raises(SecretsLocked):
        open_vault().decrypt(locked)


def test_the_key_can_move_from_the_file_to_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    locked = open_vault().encrypt(SECRET)
    monkeypatch.setenv("PRAMANA_SECRET_KEY", new_key())
    assert open_vault().decrypt(locked) == SECRET
    settings.encryption_key_file_path().unlink()
    with pytest.raises(SecretsLocked):
        open_vault().decrypt(locked)
    assert not settings.encryption_key_file_path().exists()


def test_a_key_made_by_openssl_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAMANA_SECRET_KEY", "+/" * 21 + "8=")
    assert open_vault().decrypt(open_vault().encrypt(SECRET)) == SECRET


@pytest.mark.parametrize("wrong", ["hunter2", "A" * 43, "A" * 44 + "=", "A" * 42 + "é="])
def test_an_invalid_key_is_refused_without_showing_it(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAMANA_SECRET_KEY", wrong)
    with pytest.raises(
        SecretsLocked, match="key 1 of PRAMANA_SECRET_KEY is not 32 bytes in base64; create one: openssl"
    ) as told:
        open_vault()
    assert wrong not in str(told.value)


# ── The key file ──


def test_the_key_file_is_private_to_its_user() -> None:
    before = os.umask(0)
    try:
        locked = open_vault().encrypt(SECRET)
    finally:
        os.umask(before)
    path = settings.encryption_key_file_path()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert open_vault().decrypt(locked) == SECRET


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_key_file_accessible_to_others_is_refused_with_advice(mode: int) -> None:
    open_vault()
    path = settings.encryption_key_file_path()
    path.chmod(mode)
    with pytest.raises(SecretsLocked, match=rf"\(mode {mode:04o}\).*run: chmod 600 {path}"):
        open_vault()
    path.chmod(0o600)
    open_vault()


def test_an_empty_or_foreign_key_file_is_not_replaced() -> None:
    path = settings.encryption_key_file_path()
    path.parent.mkdir(parents=True)
    path.touch(0o600)
    with pytest.raises(SecretsLocked, match="contains no key"):
        open_vault()
    path.write_bytes(b"\xff\xfe not a key")
    with pytest.raises(SecretsLocked, match=r"key 1 of .* is not 32 bytes"):
        open_vault()
    assert path.read_bytes() == b"\xff\xfe not a key"


def test_many_processes_share_the_first_created_key(tmp_path: Path) -> None:
    code = "from pramana.vault import open_vault; print(open_vault().encrypt('x'))"
    environment = {**os.environ, "PRAMANA_HOME": str(tmp_path / "shared")}  # noqa: TID251 - a child gets what it gets
    many = [programs.start(["-c", code], env=environment) for _ in range(8)]
    with ExitStack() as stack:
        for process in many:
            stack.enter_context(process)
        assert [process.wait(60) for process in many] == [0] * 8
        locked = [process.stdout.read().strip() for process in many if process.stdout]
    keys = (tmp_path / "shared" / "secret.key").read_text().split()
    assert [Vault(keys, "there").decrypt(each) for each in locked] == ["x"] * 8
    assert len(list((tmp_path / "shared").iterdir())) == 1


def test_a_read_only_folder_is_named_in_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("PRAMANA_HOME", str(tmp_path / "file" / "below"))
    with pytest.raises(PramanaError, match=r"cannot be (made|read)"):
        open_vault()
