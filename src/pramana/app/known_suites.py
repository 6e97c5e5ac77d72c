"""Look up suites by hash: hashes in; the prompts, categories and assertion types of each known suite out.

Submitted results name suite hashes, possibly a thousand made-up ones. So one search of the files and one query of the
store serves all hashes of a request, and an unknown hash is cached for some seconds.
"""

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from pramana import clock, jsonl, settings
from pramana.app.access import LOOKUP_CACHE_S, put_in_cache
from pramana.load.manifest import BUILT_IN_SUITES_FOLDER, MANIFEST_FILE_NAME, SuiteVersion, iterate_versions
from pramana.store.store import Store

MAX_CACHED_SUITES = 64
"""Suites whose facts are kept in memory."""
MAX_CACHED_UNKNOWN_HASHES = 10_000
"""Hashes that are cached as unknown."""


@dataclass(frozen=True, slots=True)
class SuiteFacts:
    """The facts about a tier's cases that submissions are checked against."""

    prompt_ids: frozenset[str]
    categories: frozenset[str]
    assertion_types: frozenset[str]


class KnownSuites:
    """The suites in the store and in this machine's files, by the hashes of their tiers."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, threading.Lock()
        self._known: OrderedDict[str, SuiteFacts] = OrderedDict()
        """By hash, the most recently used last."""
        self._unknown: OrderedDict[str, float] = OrderedDict()
        """The time until which each hash counts as unknown."""
        self._pins: tuple[tuple[object, ...], Mapping[str, tuple[SuiteVersion, str]]] = ((), {})
        """The stamps of the manifests when last read, and their tiers by hash."""

    def find_facts(self, suite_hashes: Iterable[str]) -> dict[str, SuiteFacts]:
        """Return the facts about tiers by hash; unknown hashes are left out."""
        found: dict[str, SuiteFacts] = {}
        wanted, now = set(suite_hashes), clock.monotonic()
        with self._lock:
            for each in wanted & self._known.keys():
                self._known.move_to_end(each)
                found[each] = self._known[each]
            wanted = {each for each in wanted - found.keys() if self._unknown.get(each, 0.0) <= now}
        if not wanted:
            return found
        files = self._read_tiers_by_hash()
        for each in wanted & files.keys():
            version, tier = files[each]
            found[each] = self._cache_facts(each, version.verified_tier_path(tier).read_bytes())
        for each in self._store.suites.find_known_hashes(wanted - found.keys()):
            if (content := self._store.suites.read_by_hash(each)) is not None:
                found[each] = self._cache_facts(each, content)
        with self._lock:
            for each in wanted - found.keys():
                put_in_cache(self._unknown, each, now + LOOKUP_CACHE_S, MAX_CACHED_UNKNOWN_HASHES)
        return found

    def forget_unknown_hashes(self) -> None:
        """Clear the cache of unknown hashes; called after this process has stored a suite."""
        with self._lock:
            self._unknown.clear()

    def _cache_facts(self, suite_hash: str, content: bytes) -> SuiteFacts:
        cases = [json.loads(line) for line in iterate_case_lines(content)]
        found = SuiteFacts(
            frozenset(str(case["id"]) for case in cases),
            frozenset(str(case["category"]) for case in cases),
            frozenset(str(case["assertion"]["type"]) for case in cases),
        )
        with self._lock:
            put_in_cache(self._known, suite_hash, found, MAX_CACHED_SUITES)
        return found

    def _read_tiers_by_hash(self) -> Mapping[str, tuple[SuiteVersion, str]]:
        """Return the tiers of built-in and published suites by the hashes in their manifests."""
        stamp = tuple(_iterate_manifest_stamps(BUILT_IN_SUITES_FOLDER)) + tuple(
            _iterate_manifest_stamps(settings.published_suites_folder())
        )
        if self._pins[0] != stamp:
            found: dict[str, tuple[SuiteVersion, str]] = {}
            for version in iterate_versions():
                for name, tier in version.manifest.tiers.items():
                    found.setdefault(tier.hash, (version, name))
            self._pins = stamp, found
        return self._pins[1]


def iterate_case_lines(content: bytes) -> Iterator[bytes]:
    """Yield the cases of a tier as raw lines of its file."""
    return (line.data for line in jsonl.read_lines(BytesIO(content)) if not line.is_blank)


def _iterate_manifest_stamps(root: Path) -> Iterator[tuple[str, int, int]]:
    """Yield a stamp for each manifest, which changes when the manifest does."""
    for each in sorted(root.glob(f"*/{MANIFEST_FILE_NAME}")):
        try:
            said = each.stat()
        except OSError:
            continue
        yield str(each), said.st_mtime_ns, said.st_size
