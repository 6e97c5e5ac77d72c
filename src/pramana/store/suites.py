"""Suites that were uploaded: JSONL in, the same JSONL out, under a version that never changes once it is there.

The content is stored packed, a tier a row, with the hash by which everybody knows it. Whether it is a good suite is for
`load` to say, before it comes here.
"""

import zlib
from collections.abc import Collection, Mapping

import msgspec
from sqlalchemy import insert, select

from pramana.errors import AlreadyExists, NotFound, StoreFailed, quote_text, suggest_similar
from pramana.store.engine import Lock, StorePart, record_change, split_into_chunks, timestamp
from pramana.store.records import escape_text
from pramana.store.schema import suite_tiers

_TIER_COLUMNS = [
    suite_tiers.c[name] for name in ("version", "tier", "hash", "test_count", "estimated_tokens", "created")
]


class Upload(msgspec.Struct, frozen=True):
    """A tier as it is uploaded."""

    content: bytes
    """JSONL."""
    hash: str
    test_count: int
    estimated_tokens: int


class Tier(msgspec.Struct, frozen=True):
    """What is known of a tier that was uploaded."""

    version: str
    tier: str
    hash: str
    test_count: int
    estimated_tokens: int
    created: str


class Suites(StorePart):
    """The uploaded suites of a store."""

    def list(self) -> list[Tier]:
        """Return every tier, by version, in the order of uploading within it."""
        query = select(*_TIER_COLUMNS).order_by(suite_tiers.c.version, suite_tiers.c.created, suite_tiers.c.tier)
        return [Tier(*row) for row in self._rows(query)]

    def tiers(self, version: str) -> dict[str, Tier]:
        """Return the tiers of a version by name; none where no such version was uploaded."""
        query = select(*_TIER_COLUMNS).where(suite_tiers.c.version == escape_text(version)).order_by(suite_tiers.c.tier)
        return {row.tier: Tier(*row) for row in self._rows(query)}

    def hashes(self, version: str) -> Mapping[str, str]:
        """Return the hashes of a version's tiers by name; none where no such version was uploaded."""
        return {name: tier.hash for name, tier in self.tiers(version).items()}

    def content(self, version: str, tier: str) -> bytes:
        """Return the JSONL of a tier, byte by byte as it was uploaded."""
        where = (suite_tiers.c.version == escape_text(version), suite_tiers.c.tier == escape_text(tier))
        packed = self._value(select(suite_tiers.c.content).where(*where))
        if packed is None:
            known = [f"{each.version} {each.tier}" for each in self.list()]
            name = f"{version} {tier}"
            raise NotFound(f"no suite {quote_text(name)} was uploaded{suggest_similar(name, known)}")
        return _decompress(packed, f"{version} {tier}")

    def find_known_hashes(self, hashes: Collection[str]) -> set[str]:
        """Return those of some hashes that a tier has which was uploaded."""
        wanted = {escape_text(each): each for each in hashes}
        found: set[str] = set()
        with self._database.read_transaction() as connection:
            for some in split_into_chunks(wanted):
                query = select(suite_tiers.c.hash).where(suite_tiers.c.hash.in_(some)).distinct()
                found.update(wanted[each] for each in connection.scalars(query))
        return found

    def read_by_hash(self, suite_hash: str) -> bytes | None:
        """Return the JSONL of a tier of that hash; None where none was uploaded."""
        query = select(suite_tiers.c.content).where(suite_tiers.c.hash == escape_text(suite_hash)).limit(1)
        packed = self._value(query)
        return None if packed is None else _decompress(packed, suite_hash)

    def upload(self, version: str, tiers: Mapping[str, Upload]) -> bool:
        """Keep a version, whole or not at all; tell whether it is new. Its name with other content is refused."""
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
            self._database.lock(connection, Lock.SUITES)
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


def _decompress(packed: bytes, what: str) -> bytes:
    try:
        return zlib.decompress(packed)
    except zlib.error:
        raise StoreFailed(f"the content of {what} is damaged in the store; restore the store from a backup") from None
