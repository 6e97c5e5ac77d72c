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
from weakref import WeakKeyDictionary

from pramana import clock, jsonl, settings
from pramana.app import App
from pramana.app.access import FRESH_S
from pramana.load.manifest import BUILT_IN, MANIFEST, Version, versions
from pramana.store.runs import Store

KNOWN = 64
"""Suites whose facts are kept in memory."""
UNKNOWN = 10_000
"""Hashes of each store that are remembered as nobody's."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the cases of a tier are."""

    prompts: frozenset[str]
    categories: frozenset[str]
    assertion_types: frozenset[str]


def prompts_of(serving: App, suite_hash: str) -> frozenset[str] | None:
    """Return the ids of the cases of the tier that has this hash; None where nobody here knows it."""
    return prompts_of_many(serving, [suite_hash]).get(suite_hash)


def prompts_of_many(serving: App, hashes: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the ids of the cases of tiers by their hashes; those that nobody here knows are left out."""
    return {suite_hash: facts.prompts for suite_hash, facts in facts_of(serving, hashes).items()}


def facts_of(serving: App, hashes: Iterable[str]) -> dict[str, Facts]:
    """Return what is known of tiers by their hashes; those that nobody here knows are left out."""
    found: dict[str, Facts] = {}
    store, wanted = serving.store, set(hashes)
    with _lock:
        known = _known.setdefault(store, OrderedDict())
        for each in wanted & known.keys():
            known.move_to_end(each)
            found[each] = known[each]
        now, unknown = clock.monotonic(), _unknown.setdefault(store, OrderedDict())
        wanted = {each for each in wanted - found.keys() if unknown.get(each, 0.0) <= now}
    if not wanted:
        return found
    files = _in_files()
    for each in wanted & files.keys():
        version, tier = files[each]
        found[each] = _keep(known, each, version.path(tier).read_bytes())
    uploaded = store.suites.there(wanted - found.keys())
    for each in uploaded:
        if (content := store.suites.by_hash(each)) is not None:
            found[each] = _keep(known, each, content)
    with _lock:
        for each in wanted - found.keys():
            unknown[each] = now + FRESH_S
            unknown.move_to_end(each)
        while len(unknown) > UNKNOWN:
            unknown.popitem(last=False)
    return found


def forget_unknown(store: Store) -> None:
    """Look again for what nobody knew: this process has just stored a suite."""
    with _lock:
        _unknown.pop(store, None)


def lines_of(content: bytes) -> Iterator[bytes]:
    """Yield the cases of a tier, each as it stands in its file."""
    return (line.data for line in jsonl.read_lines(BytesIO(content)) if not line.blank)


_lock = threading.Lock()
_known: WeakKeyDictionary[Store, OrderedDict[str, Facts]] = WeakKeyDictionary()
"""By hash; what was used last stands last. A suite that one store has may be unknown to another."""
_unknown: WeakKeyDictionary[Store, OrderedDict[str, float]] = WeakKeyDictionary()
"""Until when a hash is believed to be nobody's."""
_pins: tuple[tuple[object, ...], Mapping[str, tuple[Version, str]]] = ((), {})
"""Manifests as they were when they were read last, and the tiers they name by their hashes."""


def _keep(known: "OrderedDict[str, Facts]", suite_hash: str, content: bytes) -> Facts:
    cases = [json.loads(line) for line in lines_of(content)]
    found = Facts(
        frozenset(str(case["id"]) for case in cases),
        frozenset(str(case["category"]) for case in cases),
        frozenset(str(case["assertion"]["type"]) for case in cases),
    )
    with _lock:
        known[suite_hash] = found
        known.move_to_end(suite_hash)
        while len(known) > KNOWN:
            known.popitem(last=False)
    return found


def _in_files() -> Mapping[str, tuple[Version, str]]:
    """Return the tiers of built-in and published suites by the hashes they are pinned with."""
    global _pins  # noqa: PLW0603 - one reading for all threads
    stamp = tuple(_stamps(BUILT_IN)) + tuple(_stamps(settings.published_suites()))
    with _lock:
        if _pins[0] == stamp:
            return _pins[1]
    found: dict[str, tuple[Version, str]] = {}
    for version in versions():
        for name, tier in version.manifest.tiers.items():
            found.setdefault(tier.hash, (version, name))
    with _lock:
        _pins = (stamp, found)
    return found


def _stamps(root: Path) -> Iterator[tuple[str, int, int]]:
    """Yield what changes when a manifest does."""
    for each in sorted(root.glob(f"*/{MANIFEST}")):
        try:
            said = each.stat()
        except OSError:
            continue
        yield str(each), said.st_mtime_ns, said.st_size
