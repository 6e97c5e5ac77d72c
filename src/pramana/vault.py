"""The vault: encrypts secrets for storage, and decrypts them.

It uses Fernet (AES and HMAC, from the package `cryptography`) with keys from the environment, otherwise from a file in
the data folder, which is created on first use and private to its user. With several keys, the first encrypts and all
decrypt, so that a new key can take over: `reencrypt` encrypts again with the first key. Nothing here knows what a
secret is for.
"""

import os
import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from pramana import settings
from pramana.errors import SecretsLocked
from pramana.installation import make_install_command

MAX_KEY_FILE_BYTES = 64 << 10
_MAKE_KEY_ADVICE = "create one: openssl rand -base64 32"
_KEY_RE = re.compile(r"[A-Za-z0-9+/_-]{43}=")


class Vault:
    """Encrypts with the first of its keys and decrypts with any."""

    def __init__(self, keys: Sequence[str], origin: str) -> None:
        """Take the keys, the one that encrypts first; `origin` names their source in messages."""
        try:
            from cryptography.fernet import Fernet, MultiFernet
        except ModuleNotFoundError:
            raise SecretsLocked(
                f"stored API keys are encrypted, which needs an extra: {make_install_command('server')}"
            ) from None

        for number, key in enumerate(keys, 1):
            if not _KEY_RE.fullmatch(key):
                raise SecretsLocked(f"key {number} of {origin} is not 32 bytes in base64; {_MAKE_KEY_ADVICE}")
        if not keys:
            raise SecretsLocked(f"{origin} contains no key; {_MAKE_KEY_ADVICE}")
        self._origin = origin
        usual = str.maketrans("+/", "-_")  # openssl writes the standard alphabet of base64, Fernet the URL-safe one
        self._fernet = MultiFernet([Fernet(key.translate(usual)) for key in keys])

    def encrypt(self, secret: str) -> str:
        """Return an encrypted secret, for storage."""
        return self._fernet.encrypt(secret.encode("utf-8", "surrogatepass")).decode()

    def decrypt(self, encrypted: str) -> str:
        """Return the decrypted secret; raise `SecretsLocked` if none of the keys encrypted it."""
        return self._decrypt_or_raise(lambda: self._fernet.decrypt(encrypted.encode()).decode("utf-8", "surrogatepass"))

    def reencrypt(self, encrypted: str) -> str:
        """Encrypt again, with the first key, what any of the keys has encrypted."""
        return self._decrypt_or_raise(lambda: self._fernet.rotate(encrypted.encode()).decode())

    def _decrypt_or_raise(self, decrypt: Callable[[], str]) -> str:
        from cryptography.fernet import InvalidToken

        try:
            return decrypt()
        except (InvalidToken, ValueError):
            raise SecretsLocked(
                f"a stored API key was encrypted with another key than the one in {self._origin}; add the earlier key "
                "there, after the new one, or set the provider's API key again"
            ) from None


def open_vault() -> Vault:
    """Return this machine's vault, with `PRAMANA_SECRET_KEY` or with the key file, which is created if missing.

    A key file still decrypts when the variable is set, so that a team can move from one to the other.
    """
    path = settings.encryption_key_file_path()
    if stated := settings.read_encryption_keys():
        return Vault([*stated, *(_read_key_file(path) or ())], "PRAMANA_SECRET_KEY")
    found = _read_key_file(path)
    if found is None:
        _make_key_file(path)
        found = _read_key_file(path)
    return Vault(found or (), str(path))


def _read_key_file(path: Path) -> list[str] | None:
    """Return the keys of a file, one per line; None if there is no file."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if os.name == "posix" and mode & 0o077:
                raise SecretsLocked(
                    f"{path} can be read or written by others (mode {mode & 0o777:04o}), and anyone who reads it can "
                    f"decrypt every stored key; run: chmod 600 {path}, and rotate the key if others may have read it"
                )
            data = file.read(MAX_KEY_FILE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SecretsLocked(f"the key file {path} cannot be read: {error.strerror}") from None
    return data.decode("utf-8", "replace").split()


def _make_key_file(path: Path) -> None:
    """Create a key file atomically if there is none; of several processes, the first one's file stays."""
    from cryptography.fernet import Fernet

    staged = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    try:
        settings.make_private_folder(path.parent)
        try:
            with settings.open_private_file(staged) as file:
                file.write(Fernet.generate_key() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):  # another process was faster, and its key is used
                os.link(staged, path)
        finally:
            staged.unlink(missing_ok=True)
    except OSError as error:
        raise SecretsLocked(
            f"the key file {path} cannot be created: {error.strerror}; make it writable, or set PRAMANA_SECRET_KEY "
            f"({_MAKE_KEY_ADVICE})"
        ) from None
