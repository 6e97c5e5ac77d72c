"""Stage 1, load: files in, cases out, and every problem with file, line and column.

`validate()` reads whole files and folders and reports everything at once; `cases_of()` yields the cases of one file,
and `CaseSources` those of a run: files, folders or a tier of a suite. Nothing here sends requests, scores a reply or
writes a result.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from msgspec.structs import replace

from pramana.errors import (
    HashMismatch,
    InvalidInput,
    NotFound,
    Problem,
    describe_value,
    escape_control_characters,
    quote_text,
    suggest_similar,
)
from pramana.hash import hash_suite
from pramana.load.agent import is_agent_description, read_agent
from pramana.load.lint import lint_scenarios
from pramana.load.manifest import find_version, find_version_folder, make_no_tier_error, make_no_version_error
from pramana.load.problems import MAX_ERRORS, Problems
from pramana.load.scenario import read_bounded_file, read_scenarios
from pramana.load.suite import check_suite, read_cases
from pramana.model import Case, SourceLocation
from pramana.request import Selection

if TYPE_CHECKING:
    from pramana.model import PublicCase

CASE_FILE_EXTENSIONS = (".jsonl", ".yaml", ".yml")
BUILT_IN_SCENARIOS_FOLDER = Path(__file__).parent.parent / "scenarios"
MAX_SHOWN_PATH_LENGTH = 1_000
LIBRARY_PREFIX = "library:"
"""The name of the built-in scenarios in a request; `library:multilingual` for one folder of them."""


@dataclass(slots=True)
class ValidationReport:
    """The errors and warnings of a validation, for all files."""

    problems: Problems
    files: int = 0
    test_cases: int = 0
    """Number of valid test cases."""
    scenarios: int = 0
    """Number of valid scenarios."""
    agents: int = 0
    """Number of valid descriptions of voice agents."""
    hashes: dict[str, str] = field(default_factory=dict)
    """The suite hash of each suite file without errors."""

    @property
    def ok(self) -> bool:
        """True if the validation found no errors; warnings are allowed."""
        return self.problems.errors == 0


def validate(
    paths: str | Path | Sequence[str | Path], *, max_errors: int = MAX_ERRORS, lint: bool = False
) -> ValidationReport:
    """Check every suite and scenario file among the paths; folders are searched recursively."""
    paths = [paths] if isinstance(paths, str | Path) or not isinstance(paths, Iterable) else list(paths)
    report = ValidationReport(Problems(max_errors))
    first_seen: dict[str, str] = {}
    for path in find_case_files(paths):
        report.files += 1
        already = len(report.problems.kept)
        try:
            if is_suite_path(path):
                suite = check_suite(path, report.problems)
                report.test_cases += suite.valid_case_count
                if suite.suite_hash:
                    report.hashes[str(path)] = suite.suite_hash
            else:
                data = read_bounded_file(path)
                if is_agent_description(data):
                    report.agents += read_agent(data, report.problems, str(path)) is not None
                    continue
                located = read_scenarios(data, report.problems, str(path))
                report.scenarios += len(located)
                text = data.decode("utf-8-sig") if located else ""
                for warning in lint_scenarios(located, path, text, first_seen, check_style=lint):
                    report.problems.add(warning)
        except OSError as error:
            report.problems.add(Problem(f"cannot be read: {error.strerror}", file=str(path)))
        report.problems.kept[already:] = sorted(
            report.problems.kept[already:], key=lambda each: (each.line, each.column)
        )
    return report


def path_exists(path: str | Path) -> bool:
    """Return whether there is a file or folder; a name that no file can have names none."""
    try:
        return Path(path).exists()
    except OSError:  # too long, or not readable
        return False


def parse_case_path(typed_path: str | Path) -> Path:
    """Return a path of cases; refuse a prompt that was given in its place."""
    looks_like_prompt = isinstance(typed_path, str) and (" " in typed_path.strip() or "\n" in typed_path)
    if (
        looks_like_prompt
        and Path(typed_path).suffix.lower() not in CASE_FILE_EXTENSIONS
        and not path_exists(typed_path)
    ):
        raise InvalidInput(
            f"cases: there is no file {quote_text(str(typed_path))}; a text is the path of a file or folder, and a "
            "case "
            'with this prompt is {"input": "…", "ideal": "…"}'
        )
    return Path(typed_path)


def find_case_files(paths: Sequence[str | Path]) -> Iterator[Path]:
    """Yield each file once, in order; a missing path raises before anything is read."""
    for stated in paths:
        if not isinstance(stated, str | PathLike):
            raise InvalidInput(f"expected the path of a file or folder, found {describe_value(stated)}")
    given = [_expand_library_path(Path(path)) for path in paths]
    for path in given:
        if not path_exists(path):
            name = str(path) if len(str(path)) < MAX_SHOWN_PATH_LENGTH else quote_text(str(path))
            raise NotFound(f"{name} does not exist{_suggest_library_path(path)}")
        if path.is_file() and path.suffix.lower() not in CASE_FILE_EXTENSIONS:
            raise InvalidInput(f"{path} is neither a suite (.jsonl) nor a scenario file (.yaml, .yml)")
        if not path.is_file() and not path.is_dir():
            raise InvalidInput(f"{path} is neither a file nor a folder")
    seen: set[Path] = set()
    for path in given:
        try:
            found = [path] if path.is_file() else list(_list_files_below(path))
        except RecursionError:
            raise InvalidInput(f"{path} has folders nested too deeply to search") from None
        if not found:
            raise NotFound(f"{path} contains no .jsonl, .yaml or .yml file")
        for each in found:
            if (real := each.resolve()) not in seen:
                seen.add(real)
                yield each


def _expand_library_path(path: Path) -> Path:
    """Return a path; a name that begins with `library:` becomes the path of built-in scenarios.

    >>> _expand_library_path(Path("library:task-completion/booking")).name
    'booking.yaml'
    """
    begins, colon, part = path.as_posix().partition(":")
    if f"{begins}{colon}" != LIBRARY_PREFIX:
        return path
    known = {
        each.relative_to(BUILT_IN_SCENARIOS_FOLDER).with_suffix("").as_posix(): each
        for each in sorted(BUILT_IN_SCENARIOS_FOLDER.rglob("*.yaml"))
    }
    known |= {
        each.name: each
        for each in BUILT_IN_SCENARIOS_FOLDER.iterdir()
        if each.is_dir() and not each.name.startswith("_")
    }
    found = known.get(part.removesuffix(".yaml").strip("/")) if part else BUILT_IN_SCENARIOS_FOLDER
    if found is None:
        names = ", ".join(name for name in known if "/" not in name)
        raise NotFound(
            f'no built-in scenarios are named "{escape_control_characters(part)}"; there are {names}'
            f"{suggest_similar(part, known)}"
        )
    return found


def is_built_in_scenario_path(path: str | Path) -> bool:
    """Return whether a path names built-in scenarios: `library:` or `library:multilingual`."""
    return str(path).startswith(LIBRARY_PREFIX)


def _suggest_library_path(path: Path) -> str:
    """Return what to do about a missing path: a bare name may mean one of the built-in scenarios.

    >>> _suggest_library_path(Path("gone.jsonl")), _suggest_library_path(Path("task-completion"))
    ('; check the path', '; check the path; for the built-in scenarios, write library:')
    """
    if str(path).startswith("store:"):
        return "; only pramana run accepts store: names; to get a file, run: pramana scenarios export"
    bare = path.parent == Path() and not path.suffix
    return f"; check the path{f'; for the built-in scenarios, write {LIBRARY_PREFIX}' if bare else ''}"


def _list_files_below(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder, onerror=_raise_unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if path.suffix.lower() in CASE_FILE_EXTENSIONS and not name.startswith(".") and path.is_file():
                yield path


def _raise_unreadable(error: OSError) -> None:
    raise error  # a folder that cannot be searched may contain errors


def cases_of(path: str | Path) -> "Iterator[PublicCase]":
    """Yield the cases of one suite or scenario file; raise `InvalidInput` with every problem."""
    (file,) = find_case_files([path])
    problems = Problems()
    if is_suite_path(file):
        check_suite(file, problems)
        problems.raise_errors()
        yield from cast("Iterator[PublicCase]", read_cases(file))
        return
    located = read_scenarios(read_bounded_file(file), problems, str(file))
    problems.raise_errors()
    for each in located:
        case = each.scenario.to_case(SourceLocation(str(file), each.line))
        # Recordings are relative to this file, even if the run is resumed in another folder.
        recorded = case.prompt_audio_url or any(line.audio_url for line in case.script)
        placed = replace(case, source=SourceLocation(str(file.absolute()), each.line)) if recorded else case
        yield cast("PublicCase", placed)


def is_suite_path(path: Path) -> bool:
    """Return whether a path is a suite's, by its extension."""
    return path.suffix.lower() == ".jsonl"


# ── The cases of a run ──


class UploadedSuites(Protocol):
    """Suites that are stored elsewhere than in files: in a database."""

    def read_tier_hashes(self, version: str) -> Mapping[str, str]:
        """Return the hashes of a version's tiers by name; empty if there is no such version."""
        ...

    def read_tier(self, version: str, tier: str) -> bytes:
        """Return the JSONL of a tier."""
        ...


@dataclass(frozen=True, slots=True)
class CaseSources:
    """Validated files or a tier, and the filters on their cases."""

    paths: tuple[Path, ...]
    name: str
    suite_hash: str | None
    selection: Selection = field(default_factory=Selection)
    tier_content: bytes | None = field(default=None, repr=False)
    """The content of a tier that is not a file."""
    warnings: tuple[Problem, ...] = field(default=(), repr=False)
    """The warnings about the files."""

    @classmethod
    def from_tier(
        cls, suite: str, tier: str, selection: Selection, uploads: UploadedSuites | None = None
    ) -> "CaseSources":
        """Take a tier of a suite version, built in, published or uploaded; refuse one that does not match its pin."""
        if uploads and not find_version_folder(suite):
            return cls._from_uploaded(suite, tier, selection, uploads)
        found = find_version(suite)
        path = found.verified_tier_path(tier)
        return cls((path,), f"{suite}-{tier}", found.manifest.tiers[tier].hash, selection)

    @classmethod
    def _from_uploaded(cls, suite: str, tier: str, selection: Selection, uploads: UploadedSuites) -> "CaseSources":
        hashes = uploads.read_tier_hashes(suite)
        if not hashes:
            raise make_no_version_error(suite)
        if tier not in hashes:
            raise make_no_tier_error(suite, tier, hashes)
        content = uploads.read_tier(suite, tier)
        path = Path(suite, f"{tier}.jsonl")
        if (actual := hash_suite(path, content)) != hashes[tier]:
            raise HashMismatch(f"{suite} {tier} (uploaded)", pinned=hashes[tier], actual=actual)
        return cls((path,), f"{suite}-{tier}", hashes[tier], selection, content)

    @classmethod
    def from_files(cls, paths: Sequence[Path], selection: Selection) -> "CaseSources":
        """Take files and folders; any problem in them is refused before a request is sent."""
        found = tuple(find_case_files(paths))
        report = validate(found)
        report.problems.raise_errors()
        hashes = [*report.hashes.values()]
        name = "+".join(dict.fromkeys(path.stem for path in found[:5])) + ("+…" if len(found) > 5 else "")
        pinned = hashes[0] if len(found) == 1 and hashes else None
        return cls(found, name, pinned, selection, warnings=tuple(report.problems))

    def iterate_cases(self) -> Iterator[Case]:
        """Yield the cases that pass the filters, as a stream."""
        if self.tier_content is not None:
            return self.selection.select_cases(read_cases(self.paths[0], self.tier_content))
        # Suites were validated on construction; validating again would read each file once more.
        readers = (read_cases(path) if is_suite_path(path) else cases_of(path) for path in self.paths)
        return self.selection.select_cases(chain.from_iterable(readers))


__all__ = [
    "BUILT_IN_SCENARIOS_FOLDER",
    "CaseSources",
    "ValidationReport",
    "cases_of",
    "find_case_files",
    "is_suite_path",
    "validate",
]
