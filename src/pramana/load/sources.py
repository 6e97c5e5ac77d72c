"""What a run is made of: files, folders or a tier of a suite, checked as a whole, then read case by case."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pramana import load
from pramana.errors import HashMismatch
from pramana.hash import hash_suite
from pramana.load.manifest import built_in_or_published, find_version, no_tier, no_version
from pramana.load.suite import read_cases
from pramana.model import Case
from pramana.request import Selection


class Uploads(Protocol):
    """Suites that are kept elsewhere than in files: a store's."""

    def hashes(self, version: str) -> Mapping[str, str]:
        """Return the hashes of a version's tiers by name; none where there is no such version."""
        ...

    def content(self, version: str, tier: str) -> bytes:
        """Return the JSONL of a tier."""
        ...


@dataclass(frozen=True, slots=True)
class Sources:
    """Files or a tier, checked, and which of their cases are wanted."""

    paths: tuple[Path, ...]
    name: str
    hash: str | None
    selection: Selection = field(default_factory=Selection)
    content: bytes | None = field(default=None, repr=False)
    """Of a tier that is kept elsewhere than in a file."""

    @classmethod
    def tier(cls, suite: str, tier: str, selection: Selection, uploads: Uploads | None = None) -> "Sources":
        """Take a tier of a suite version, built in, published or uploaded; one that differs from its pin is refused."""
        if uploads and not built_in_or_published(suite):
            return cls._uploaded(suite, tier, selection, uploads)
        found = find_version(suite)
        path = found.path(tier)
        return cls((path,), f"{suite}-{tier}", found.manifest.tiers[tier].hash, selection)

    @classmethod
    def _uploaded(cls, suite: str, tier: str, selection: Selection, uploads: Uploads) -> "Sources":
        hashes = uploads.hashes(suite)
        if not hashes:
            raise no_version(suite)
        if tier not in hashes:
            raise no_tier(suite, tier, hashes)
        content = uploads.content(suite, tier)
        path = Path(suite, f"{tier}.jsonl")
        if (actual := hash_suite(path, content)) != hashes[tier]:
            raise HashMismatch(f"{suite} {tier} (uploaded)", pinned=hashes[tier], found=actual)
        return cls((path,), f"{suite}-{tier}", hashes[tier], selection, content)

    @classmethod
    def files(cls, paths: Sequence[Path], selection: Selection) -> "Sources":
        """Take files and folders; any problem in any of them is refused before anyone is asked."""
        found = tuple(load.find_files(paths))
        report = load.validate(found)
        report.problems.raise_errors()
        hashes = [*report.hashes.values()]
        name = "+".join(dict.fromkeys(path.stem for path in found[:5])) + ("+…" if len(found) > 5 else "")
        return cls(found, name, hashes[0] if len(found) == 1 and hashes else None, selection)

    def cases(self) -> Iterator[Case]:
        """Yield the cases that are wanted, streaming."""
        if self.content is not None:
            return self.selection.pick(read_cases(self.paths[0], self.content))
        # Suites were checked when they were taken; to check them again would read each file once more.
        every: Iterable[Case] = (
            case for path in self.paths for case in (read_cases(path) if load.is_suite(path) else load.cases_of(path))
        )
        return self.selection.pick(every)
