"""Stage 1, load: files in, cases out, and every problem with file, line and column.

`validate()` reads whole files and folders and reports everything at once; `cases_of()` yields the cases of one file
for a run. Nothing here asks a model, scores a reply or writes a result.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from pramana.errors import InvalidInput, NotFound, Problem, did_you_mean, visible
from pramana.load.agent import describes_agent, read_agent
from pramana.load.lint import warnings
from pramana.load.problems import MAX_ERRORS, Problems
from pramana.load.scenario import read_bounded, read_scenarios
from pramana.load.suite import check_suite, read_cases
from pramana.model import Case, Source

SUITE_ENDINGS = (".jsonl",)
SCENARIO_ENDINGS = (".yaml", ".yml")
ENDINGS = SUITE_ENDINGS + SCENARIO_ENDINGS
LIBRARY = Path(__file__).parent.parent / "scenarios"
LIBRARY_NAME = "library:"
"""What is typed for the built-in scenarios; `library:multilingual` for a folder of them."""


@dataclass(slots=True)
class Report:
    """What a validation found, over all files."""

    problems: Problems
    files: int = 0
    test_cases: int = 0
    """Those that are valid."""
    scenarios: int = 0
    """Those that are valid."""
    agents: int = 0
    """Descriptions of voice agents that are valid."""
    hashes: dict[str, str] = field(default_factory=dict)
    """Of each suite file without errors."""

    @property
    def ok(self) -> bool:
        return self.problems.errors == 0


def validate(paths: str | Path | Sequence[str | Path], *, max_errors: int = MAX_ERRORS, lint: bool = False) -> Report:
    """Check every suite and scenario file among the paths; folders are searched to the bottom."""
    paths = [paths] if isinstance(paths, str | Path) else paths
    report = Report(Problems(max_errors))
    first_seen: dict[str, str] = {}
    for path in find_files(paths):
        report.files += 1
        already = len(report.problems.kept)
        try:
            if is_suite(path):
                suite = check_suite(path, report.problems)
                report.test_cases += suite.valid
                if suite.hash:
                    report.hashes[str(path)] = suite.hash
            else:
                data = read_bounded(path)
                if describes_agent(data):
                    report.agents += read_agent(data, report.problems, str(path)) is not None
                    continue
                located = read_scenarios(data, report.problems, str(path))
                report.scenarios += len(located)
                text = data.decode("utf-8-sig") if located else ""
                for warning in warnings(located, path, text, first_seen, lint=lint):
                    report.problems.add(warning)
        except OSError as error:
            report.problems.add(Problem(f"cannot be read: {error.strerror}", file=str(path)))
        report.problems.kept[already:] = sorted(
            report.problems.kept[already:], key=lambda each: (each.line, each.column)
        )
    return report


def find_files(paths: Sequence[str | Path]) -> Iterator[Path]:
    """Yield each file once, in order; a path that leads nowhere raises before anything is read."""
    given = [_meant(Path(path)) for path in paths]
    for path in given:
        if not path.exists():
            raise NotFound(f"{path} does not exist; the built-in scenarios are called {LIBRARY_NAME}")
        if path.is_file() and path.suffix.lower() not in ENDINGS:
            raise InvalidInput(f"{path} is neither a suite (.jsonl) nor scenarios (.yaml, .yml)")
        if not path.is_file() and not path.is_dir():
            raise InvalidInput(f"{path} is neither a file nor a folder")
    seen: set[Path] = set()
    for path in given:
        try:
            found = [path] if path.is_file() else list(_below(path))
        except RecursionError:
            raise InvalidInput(f"{path} holds folders nested too deeply to be searched") from None
        if not found:
            raise NotFound(f"{path} holds no .jsonl, .yaml or .yml file")
        for each in found:
            if (real := each.resolve()) not in seen:
                seen.add(real)
                yield each


def _meant(path: Path) -> Path:
    """Return a path; of a name that begins with `library:`, the built-in scenarios or a part of them.

    >>> _meant(Path("library:task-completion/booking")).name
    'booking.yaml'
    """
    begins, colon, part = path.as_posix().partition(":")
    if f"{begins}{colon}" != LIBRARY_NAME:
        return path
    known = {each.relative_to(LIBRARY).with_suffix("").as_posix(): each for each in sorted(LIBRARY.rglob("*.yaml"))}
    known |= {each.name: each for each in LIBRARY.iterdir() if each.is_dir() and not each.name.startswith("_")}
    found = known.get(part.removesuffix(".yaml").strip("/")) if part else LIBRARY
    if found is None:
        names = ", ".join(name for name in known if "/" not in name)
        raise NotFound(f'the library has no "{visible(part)}"; it has {names}{did_you_mean(part, known)}')
    return found


def _below(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder, onerror=_unreadable):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if path.suffix.lower() in ENDINGS and not name.startswith(".") and path.is_file():
                yield path


def _unreadable(error: OSError) -> None:
    raise error  # a folder that cannot be searched may hold what is wrong


def cases_of(path: str | Path) -> Iterator[Case]:
    """Yield the cases of one suite or scenario file; what does not fit raises `InvalidInput` with every problem."""
    (file,) = find_files([path])
    problems = Problems()
    if is_suite(file):
        check_suite(file, problems)
        problems.raise_errors()
        yield from read_cases(file)
        return
    located = read_scenarios(read_bounded(file), problems, str(file))
    problems.raise_errors()
    for each in located:
        case = each.scenario.to_case(Source(str(file), each.line))
        # Recordings count from this file, also when the run goes on from another folder than it was begun in.
        recorded = case.prompt_audio_url or any(line.audio_url for line in case.script)
        yield replace(case, source=Source(str(file.absolute()), each.line)) if recorded else case


def is_suite(path: Path) -> bool:
    """Tell a suite from scenarios by its ending."""
    return path.suffix.lower() in SUITE_ENDINGS


__all__ = ["LIBRARY", "Report", "cases_of", "find_files", "is_suite", "validate"]
