"""A measurement expires after too many commits to what it measures; moving a file does not count."""

import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from .freshness import MissingHistory, commits_since

ROOT = Path(__file__).parents[2]
CLAIMS: list[dict[str, Any]] = tomllib.loads((ROOT / "docs" / "claims.toml").read_text(encoding="utf-8"))["claim"]
MEASURED = [claim for claim in CLAIMS if "command" in claim]
MAX_COMMITS = 40
TEXT = "".join(f"line {number}\n" for number in range(40))


@pytest.mark.parametrize("claim", MEASURED, ids=lambda claim: claim["claim"][:40])
def test_a_measured_claim_is_at_most_40_commits_old(claim: dict[str, Any]) -> None:
    for path in claim["paths"]:
        assert (ROOT / path).exists(), f"{path} is measured by {claim['command']}, and not there"
    try:
        count = commits_since(ROOT, claim["commit"], claim["paths"])
    except MissingHistory as error:
        pytest.skip(str(error))  # with --claims, as in `make test`, a skipped proof is a failure
    hint = f"run {claim['command']}, and record value, date and commit in docs/proofs.md and docs/claims.toml"
    assert count <= MAX_COMMITS, f"{count} commits have changed what was measured at {claim['commit']}: {hint}"


class Repository:
    """A temporary Git repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "-q", "-b", "main")
        for name in ("user.name", "user.email"):
            self.git("config", name, "nobody")
        self.commit(**{"src/a.py": TEXT, "src/b.py": TEXT.upper(), "other.py": "1\n"})
        self.first = self.git("rev-parse", "HEAD").strip()

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.folder), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def commit(self, **files: str) -> None:
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a change")

    def move(self, old: str, new: str) -> None:
        (self.folder / new).parent.mkdir(parents=True, exist_ok=True)
        self.git("mv", old, new)

    def count(self, *paths: str) -> int:
        return commits_since(self.folder, self.first, paths)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    (tmp_path / "repository").mkdir()
    return Repository(tmp_path / "repository")


def test_only_commits_that_touch_the_paths_are_counted(repository: Repository) -> None:
    assert repository.count("src") == 0
    repository.commit(**{"src/a.py": TEXT + "more\n", "src/b.py": "less\n"})
    repository.commit(**{"other.py": "2\n"})
    repository.commit(**{"src/c.py": "new\n", "src.py": "no file of the folder\n"})
    assert (repository.count("src"), repository.count("src/a.py"), repository.count("other.py")) == (2, 1, 1)
    assert repository.count("src/a.py", "src/c.py") == 2
    (repository.folder / "src" / "c.py").unlink()
    repository.commit()
    assert (repository.count("src"), repository.count("src/a.py")) == (3, 1)


def test_moving_a_file_is_not_a_change(repository: Repository) -> None:
    repository.move("src/a.py", "src/room/a.py")
    repository.move("src/b.py", "elsewhere/b.py")
    repository.commit()
    assert [repository.count(path) for path in ("src", "src/room", "src/room/a.py", "elsewhere")] == [0, 0, 0, 0]


def test_moving_and_editing_a_file_is_a_change(repository: Repository) -> None:
    repository.move("src/a.py", "src/room/a.py")
    repository.commit(**{"src/room/a.py": TEXT + "more\n"})
    assert (repository.count("src/room"), repository.count("src")) == (1, 1)


def test_changes_under_an_earlier_name_are_counted(repository: Repository) -> None:
    repository.commit(**{"src/a.py": TEXT + "more\n"})
    repository.move("src/a.py", "first/a.py")
    repository.commit()
    repository.commit(**{"first/a.py": TEXT})
    repository.move("first/a.py", "second/a.py")
    repository.commit()
    assert repository.count("second") == 2
    assert repository.count("second/a.py", "other.py") == 2


def test_commits_of_a_branch_are_counted_without_the_merge_commit(repository: Repository) -> None:
    repository.git("checkout", "-q", "-b", "branch")
    repository.commit(**{"src/a.py": TEXT + "more\n"})
    repository.git("checkout", "-q", "main")
    repository.commit(**{"src/b.py": "less\n"})
    repository.git("merge", "-q", "--no-edit", "branch")
    assert repository.count("src") == 2


def test_a_shallow_checkout_reports_the_missing_history(repository: Repository, tmp_path: Path) -> None:
    repository.commit(**{"src/a.py": "1\n"})
    shallow = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth=1", f"file://{repository.folder}", str(shallow)], check=True)
    with pytest.raises(MissingHistory, match=r"shallow and ends before .*git fetch --unshallow"):
        commits_since(shallow, repository.first, ["src"])
    with pytest.raises(MissingHistory, match=r"no \.git: it is an archive; clone the repository"):
        commits_since(tmp_path, repository.first, ["src"])
    with pytest.raises(AssertionError, match="no ancestor of HEAD"):
        commits_since(repository.folder, "0" * 40, ["src"])
