"""What a run is made of: files, folders or a tier of a suite, checked as a whole, then read case by case."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pramana import load
from pramana.errors import InvalidInput
from pramana.load.manifest import find_version
from pramana.load.problems import Problems
from pramana.load.selection import Selection
from pramana.load.suite import check_suite, read_cases
from pramana.model import Case


@dataclass(frozen=True, slots=True)
class Sources:
    """Files or a tier, checked, and which of their cases are wanted."""

    paths: tuple[Path, ...]
    name: str
    hash: str | None
    selection: Selection = field(default_factory=Selection)

    @classmethod
    def tier(cls, suite: str, tier: str, selection: Selection) -> "Sources":
        """Take a tier of a suite version; one that differs from its pin is refused."""
        found = find_version(suite)
        path = found.path(tier)
        return cls((path,), f"{suite}-{tier}", found.manifest.tiers[tier].hash, selection)

    @classmethod
    def files(cls, paths: Sequence[Path], selection: Selection) -> "Sources":
        """Take files and folders; any problem in any of them is refused before anyone is asked."""
        found = tuple(load.find_files(paths))
        problems = Problems()
        hashes = [check_suite(path, problems).hash for path in found if load.is_suite(path)]
        scenarios = [path for path in found if not load.is_suite(path)]
        if scenarios:
            for problem in load.validate(scenarios).problems:
                problems.add(problem)
        if problems.errors:
            raise InvalidInput.of([each for each in problems if each.severity == "error"], problems.errors)
        name = "+".join(dict.fromkeys(path.stem for path in found[:5])) + ("+…" if len(found) > 5 else "")
        return cls(found, name, hashes[0] if len(found) == 1 and hashes else None, selection)

    def cases(self) -> Iterator[Case]:
        """Yield the cases that are wanted, streaming."""
        # Suites were checked when they were taken; to check them again would read each file once more.
        every: Iterable[Case] = (
            case for path in self.paths for case in (read_cases(path) if load.is_suite(path) else load.cases_of(path))
        )
        return self.selection.pick(every)
