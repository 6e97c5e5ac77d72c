"""Uploaded suites: JSONL in, the same JSONL out, under a version that never changes.

The content is stored compressed, one row per tier, with the suite hash. `load` validates it beforehand.
"""

import zlib
from collections.abc import Collection, Mapping

import msgspec
from sqlalchemy import insert, select

from pramana.errors import AlreadyExists, NotFound, StoreFailed, quote_text, suggest_similar
from pramana.store.engine import LockKey, StorePart, record_change, split_into_chunks, timestamp
from pramana.store.records import escape_text
from pramana.store.schema import suite_tiers

_TIER_COLUMNS = [
    suite_tiers.c[name] for name in ("version", "tier", "hash", "test_count", "estimated_tokens", "created")
]


class TierUpload(msgspec.Struct, frozen=True):
    """A tier to upload."""

    content: bytes
    """JSONL."""
    hash: str
    test_count: int
    estimated_tokens: int


class Tier(msgspec.Struct, frozen=True):
    """An uploaded tier, without its content."""

    version: str
    tier: str
    hash: str
    test_count: int
    estimated_tokens: int
    created: str


class Suites(StorePart):
    """The uploaded suites of a store."""

    def list(self) -> list[Tier]:
        """Return all tiers by version, in the order of their upload."""
        query = select(*_TIER_COLUMNS).order_by(suite_tiers.c.version, suite_tiers.c.created, suite_tiers.c.tier)
        return [Tier(*row) for row in self._fetch_rows(query)]

    def read_tiers(self, version: str) -> dict[str, Tier]:
        """Return the tiers of a version by name; empty if the version does not exist."""
        query = select(*_TIER_COLUMNS).where(suite_tiers.c.version == escape_text(version)).order_by(suite_tiers.c.tier)
        return {row.tier: Tier(*row) for row in self._fetch_rows(query)}

    def read_tier_hashes(self, version: str) -> Mapping[str, str]:
        """Return the hashes of a version's tiers by name; empty if the version does not exist."""
        return {name: tier.hash for name, tier in self.read_tiers(version).items()}

    def read_tier(self, version: str, tier: str) -> bytes:
        """Return the JSONL of a tier, byte for byte as uploaded."""
        where = (suite_tiers.c.version == escape_text(version), suite_tiers.c.tier == escape_text(tier))
        packed = self._fetch_value(select(suite_tiers.c.content).where(*where))
        if packed is None:
            known = [f"{each.version} {each.tier}" for each in self.list()]
            name = f"{version} {tier}"
            raise NotFound(f"no suite {quote_text(name)} was uploaded{suggest_similar(name, known)}")
        return _decompress(packed, f"{version} {tier}")

    def find_known_hashes(self, hashes: Collection[str]) -> set[str]:
        """Return those hashes that belong to an uploaded tier."""
        wanted = {escape_text(each): each for each in hashes}
        found: set[str] = set()
        with self._database.read_transaction() as connection:
            for some in split_into_chunks(wanted):
                query = select(suite_tiers.c.hash).where(suite_tiers.c.hash.in_(some)).distinct()
                found.update(wanted[each] for each in connection.scalars(query))
        return found

    def read_by_hash(self, suite_hash: str) -> bytes | None:
        """Return the JSONL of the tier with that hash; None if there is none."""
        query = select(suite_tiers.c.content).where(suite_tiers.c.hash == escape_text(suite_hash)).limit(1)
        packed = self._fetch_value(query)
        return None if packed is None else _decompress(packed, suite_hash)

    def upload(self, version: str, tiers: Mapping[str, TierUpload]) -> bool:
        """Store a version, all or nothing; return whether it is new. Raise `AlreadyExists` if its content differs."""
        now = timestamp()
        rows = [
            {
                "version": version,
                "tier": name,
                "hash": tier.hash,
                "test_count": tier.test_count,
                "estimated_tokens": tier.estimated_tokens,
                "content": zlib.compress(tier.content),
                "created": now,
            }
            for name, tier in tiers.items()
        ]
        with self._database.write_transaction() as connection:
            self._database.lock(connection, LockKey.SUITES)
            query = select(suite_tiers.c.tier, suite_tiers.c.hash).where(suite_tiers.c.version == version)
            there = {row.tier: row.hash for row in connection.execute(query)}
            if there and there != {name: tier.hash for name, tier in tiers.items()}:
                raise AlreadyExists(
                    f"{version} already exists with other content, and versions never change; choose a new version"
                )
            if not there:
                connection.execute(insert(suite_tiers), rows)
                record_change(connection, "suite", version, "created")
        return not there


def _decompress(compressed: bytes, tier_label: str) -> bytes:
    try:
        return zlib.decompress(compressed)
    except zlib.error:
        raise StoreFailed(
            f"the content of {tier_label} is damaged in the store; restore the store from a backup"
        ) from None
