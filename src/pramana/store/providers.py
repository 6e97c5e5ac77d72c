"""Registered providers: their IDs, settings and keys, which only the vault can decrypt.

A key enters as plain text and is stored encrypted; only `RegisteredProvider.read_key` decrypts it, when an account is
opened. A run records what it needs of a provider, so changing or deleting a provider never changes an earlier run.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from sqlalchemy import delete, select, text, update

from pramana.errors import AlreadyExists, NotFound, quote_text, suggest_similar
from pramana.providers.accounts import RegisteredProvider
from pramana.store.engine import Database, StorePart, record_change, timestamp
from pramana.store.records import decode_json_column, encode_json_column, escape_text
from pramana.store.schema import providers, watches
from pramana.vault import Vault, open_vault

_INSERT_PROVIDER = text(
    "INSERT INTO providers (id, kind, arguments, secret, created, updated)"
    " VALUES (:id, :kind, :arguments, :secret, :created, :updated) ON CONFLICT DO NOTHING"
)


class StoredProvider(msgspec.Struct, frozen=True):
    """A registered provider, as it may be shown: without its key."""

    id: str
    kind: str
    base_url: str | None
    model: str | None
    description: Mapping[str, Any] | None
    key_set: bool
    created: str
    updated: str


class Providers(StorePart):
    """The registered providers of a store."""

    def __init__(self, database: Database, vault: Callable[[], Vault] = open_vault) -> None:
        super().__init__(database)
        self._vault = vault

    def list(self) -> list[StoredProvider]:
        """Return all providers, by ID."""
        return [_row_to_provider(row) for row in self._fetch_rows(select(providers).order_by(providers.c.id))]

    def read(self, provider_id: str) -> StoredProvider:
        """Return a provider; raise `NotFound` if there is none."""
        row = self._find_row(provider_id)
        if row is None:
            raise self._make_not_found(provider_id)
        return _row_to_provider(row)

    def find_registered(self, provider_id: str) -> RegisteredProvider | None:
        """Return a provider with access to its key; None if none is registered under the ID."""
        row = self._find_row(provider_id)
        if row is None:
            return None
        found, locked = _row_to_provider(row), row.secret
        return RegisteredProvider(
            found.id,
            found.kind,
            found.base_url,
            found.model,
            found.description,
            lambda: None if locked is None else self._vault().decrypt(locked),
        )

    def create(self, provider: RegisteredProvider, key: str | None = None) -> StoredProvider:
        """Register a provider; raise `AlreadyExists` if the ID is taken."""
        now = timestamp()
        row = {
            "id": provider.id,
            "kind": provider.kind,
            "arguments": _encode_arguments(provider),
            "secret": self._encrypt_key(key),
        }
        row |= {"created": now, "updated": now}
        with self._database.write_transaction() as connection:
            if not connection.execute(_INSERT_PROVIDER, row).rowcount:
                raise AlreadyExists(
                    f"a provider {quote_text(provider.id)} already exists; update that provider, or choose another id"
                )
            record_change(connection, "provider", provider.id, "created")
        return self.read(provider.id)

    def change(
        self,
        provider_id: str,
        make_changed: Callable[[StoredProvider], RegisteredProvider],
        *,
        key: str | bool | None = True,
    ) -> StoredProvider:
        """Replace a provider by what `make_changed` returns; `key` is a new key, None to remove it, True to keep it."""
        locked = self._encrypt_key(key)
        with self._database.write_transaction() as connection:
            mine = providers.c.id == escape_text(provider_id)
            row = connection.execute(select(providers).where(mine).with_for_update()).first()
            if row is None:
                raise self._make_not_found(provider_id)
            values: dict[str, str | None] = {
                "arguments": _encode_arguments(make_changed(_row_to_provider(row))),
                "updated": timestamp(),
            }
            if key is not True:
                values["secret"] = locked
            connection.execute(update(providers).where(mine), values)
            record_change(connection, "provider", provider_id, "updated")
        return self.read(provider_id)

    def delete(self, provider_id: str) -> None:
        """Delete a provider and its key."""
        with self._database.write_transaction() as connection:
            gone = connection.execute(delete(providers).where(providers.c.id == escape_text(provider_id)))
            if not gone.rowcount:
                raise self._make_not_found(provider_id)
            record_change(connection, "provider", provider_id, "deleted")

    def reencrypt_keys(self) -> int:
        """Re-encrypt all keys and webhooks with the vault's first key, all or none; return how many there are."""
        vault = self._vault()
        with self._database.write_transaction() as connection:
            query = select(providers.c.id, providers.c.secret).where(providers.c.secret.is_not(None))
            rows = connection.execute(query.with_for_update()).all()
            for provider_id, locked in rows:
                row = {"secret": vault.reencrypt(locked)}
                connection.execute(update(providers).where(providers.c.id == provider_id), row)
            hooks = select(watches.c.watch_no, watches.c.delivery_secret).where(watches.c.delivery_secret.is_not(None))
            hook_rows = connection.execute(hooks.with_for_update()).all()
            for watch_no, locked in hook_rows:
                row = {"delivery_secret": vault.reencrypt(locked)}
                connection.execute(update(watches).where(watches.c.watch_no == watch_no), row)
        return len(rows) + len(hook_rows)

    def _encrypt_key(self, key: str | bool | None) -> str | None:
        return self._vault().encrypt(key) if isinstance(key, str) else None

    def _find_row(self, provider_id: str) -> Any:
        """Return the row of a provider; None if there is none."""
        return next(iter(self._fetch_rows(select(providers).where(providers.c.id == escape_text(provider_id)))), None)

    def _make_not_found(self, provider_id: str) -> NotFound:
        known = [each.id for each in self.list()]
        return NotFound(f"no provider {quote_text(provider_id)} is registered{suggest_similar(provider_id, known)}")


def _encode_arguments(provider: RegisteredProvider) -> str:
    said = {"base_url": provider.base_url, "model": provider.model, "description": provider.description}
    return encode_json_column({name: value for name, value in said.items() if value is not None})


def _row_to_provider(row: Any) -> StoredProvider:
    said = decode_json_column(row.arguments)
    return StoredProvider(
        row.id,
        row.kind,
        said.get("base_url"),
        said.get("model"),
        said.get("description"),
        row.secret is not None,
        row.created,
        row.updated,
    )
