"""What is known of suites by their hashes: hashes in, the prompts, categories and types of assertions of each out.

Whoever submits results names hashes, and may invent a thousand of them: files are looked through once for all of them
and the store is asked once, and whoever asks again within seconds is told what was found then.
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
from pramana.load.manifest import BUILT_IN, MANIFEST, Version, iterate_versions
from pramana.store.store import Store

MAX_KNOWN = 64
"""Suites whose facts are kept in memory."""
MAX_UNKNOWN = 10_000
"""Hashes that are remembered as nobody's."""


@dataclass(frozen=True, slots=True)
class SuiteFacts:
    """What the cases of a tier are."""

    prompts: frozenset[str]
    categories: frozenset[str]
    assertion_types: frozenset[str]


class KnownSuites:
    """The suites that a store has and that this machine's files hold, by the hashes of their tiers."""

    def __init__(self, store: Store) -> None:
        self._store, self._lock = store, threading.Lock()
        self._known: OrderedDict[str, SuiteFacts] = OrderedDict()
        """By hash; what was used last stands last."""
        self._unknown: OrderedDict[str, float] = OrderedDict()
        """Until when a hash is believed to be nobody's."""
        self._pins: tuple[tuple[object, ...], Mapping[str, tuple[Version, str]]] = ((), {})
        """Manifests as they were when they were read last, and the tiers they name by their hashes."""

    def find_facts(self, hashes: Iterable[str]) -> dict[str, SuiteFacts]:
        """Return what is known of tiers by their hashes; those that nobody here knows are left out."""
        found: dict[str, SuiteFacts] = {}
        wanted, now = set(hashes), clock.monotonic()
        with self._lock:
            for each in wanted & self._known.keys():
                self._known.move_to_end(each)
                found[each] = self._known[each]
            wanted = {each for each in wanted - found.keys() if self._unknown.get(each, 0.0) <= now}
        if not wanted:
            return found
        files = self._pinned_tiers()
        for each in wanted & files.keys():
            version, tier = files[each]
            found[each] = self._remember_facts(each, version.path(tier).read_bytes())
        for each in self._store.suites.find_known_hashes(wanted - found.keys()):
            if (content := self._store.suites.read_by_hash(each)) is not None:
                found[each] = self._remember_facts(each, content)
        with self._lock:
            for each in wanted - found.keys():
                put_in_cache(self._unknown, each, now + LOOKUP_CACHE_S, MAX_UNKNOWN)
        return found

    def forget_unknown(self) -> None:
        """Look again for what nobody knew: this process has just stored a suite."""
        with self._lock:
            self._unknown.clear()

    def _remember_facts(self, suite_hash: str, content: bytes) -> SuiteFacts:
        cases = [json.loads(line) for line in iterate_case_lines(content)]
        found = SuiteFacts(
            frozenset(str(case["id"]) for case in cases),
            frozenset(str(case["category"]) for case in cases),
            frozenset(str(case["assertion"]["type"]) for case in cases),
        )
        with self._lock:
            put_in_cache(self._known, suite_hash, found, MAX_KNOWN)
        return found

    def _pinned_tiers(self) -> Mapping[str, tuple[Version, str]]:
        """Return the tiers of built-in and published suites by the hashes they are pinned with."""
        stamp = tuple(_manifest_stamps(BUILT_IN)) + tuple(_manifest_stamps(settings.published_suites_folder()))
        if self._pins[0] != stamp:
            found: dict[str, tuple[Version, str]] = {}
            for version in iterate_versions():
                for name, tier in version.manifest.tiers.items():
                    found.setdefault(tier.hash, (version, name))
            self._pins = stamp, found
        return self._pins[1]


def iterate_case_lines(content: bytes) -> Iterator[bytes]:
    """Yield the cases of a tier, each as it stands in its file."""
    return (line.data for line in jsonl.read_lines(BytesIO(content)) if not line.blank)


def _manifest_stamps(root: Path) -> Iterator[tuple[str, int, int]]:
    """Yield what changes when a manifest does."""
    for each in sorted(root.glob(f"*/{MANIFEST}")):
        try:
            said = each.stat()
        except OSError:
            continue
        yield str(each), said.st_mtime_ns, said.st_size
