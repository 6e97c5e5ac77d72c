"""How many commits have changed what a claim measures, since it was measured.

As `git rev-list --count COMMIT..HEAD -- PATHS` counts them, with two differences: a file that was only moved has not
changed, and what happened to a file under its earlier names counts too.
"""

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple


class MissingHistory(Exception):
    """The commits since a measurement are not in this checkout."""


class Change(NamedTuple):
    """What a commit did to one file."""

    status: str
    """A letter of git's: `A`, `M`, `D`, `T`; `R` and the percentage that stayed the same."""
    old: str
    new: str


def commits_since(repository: Path, commit: str, paths: Sequence[str]) -> int:
    """Return how many commits after `commit` changed files of `paths`, which are files and folders of today."""
    _require_history(repository, commit)
    names: set[str] = set()
    """Earlier names of files that are below `paths` today."""

    def is_measured(name: str) -> bool:
        return name in names or any(name == path or name.startswith(f"{path.rstrip('/')}/") for path in paths)

    count = 0
    for changes in _newest_first(repository, commit):
        mine = [change for change in changes if is_measured(change.new) or is_measured(change.old)]
        count += any(change.status != "R100" for change in mine)
        names |= {change.old for change in mine if is_measured(change.new)}
    return count


def _newest_first(repository: Path, commit: str) -> Iterator[list[Change]]:
    """Yield what each commit changed; a merge changes nothing that its parents did not."""
    options = ["-c", "core.quotePath=false", "-c", "diff.renameLimit=10000"]
    log = ["log", "--topo-order", "--no-merges", "--format=tformat:commit", "--name-status", "-M50%", f"{commit}..HEAD"]
    changes: list[Change] | None = None
    for line in _git(repository, *options, *log).splitlines():
        if line == "commit":
            if changes is not None:
                yield changes
            changes = []
        elif line and changes is not None:
            status, *files = line.split("\t")
            changes.append(Change(status, files[0], files[-1]))
    if changes is not None:
        yield changes


def _require_history(repository: Path, commit: str) -> None:
    if not (repository / ".git").exists():
        raise MissingHistory(
            f"{repository} has no .git: it is an archive; clone the repository to check how old claims are"
        )
    try:
        _git(repository, "merge-base", "--is-ancestor", commit, "HEAD")
    except subprocess.CalledProcessError as error:
        if _git(repository, "rev-parse", "--is-shallow-repository").strip() == "true":
            raise MissingHistory(f"this clone is shallow and ends before {commit}: git fetch --unshallow") from error
        raise AssertionError(f"{commit} is no ancestor of HEAD: a claim names a commit of this branch") from error


def _git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
