"""README and docs: every command shown is run, every Python example executed, every reference compared."""

import doctest
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(path for path in DOCS.glob("*.md") if path.name not in ("claims.md", "cli.md"))]
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the example files, where a reader would type."""
    folder = tmp_path / "desk"
    folder.mkdir()
    for path in (DOCS / "examples").iterdir():
        if path.is_file():  # a reader who has followed the README there left a folder of her own
            shutil.copy(path, folder)
    monkeypatch.chdir(folder)
    return folder


def sessions(page: Path) -> list[tuple[str, str]]:
    """Return each command that is shown, with the output shown below it."""
    shown = []
    for block in CONSOLE.findall(page.read_text(encoding="utf-8")):
        for part in ("\n" + block).split("\n$ ")[1:]:
            command, _, output = part.partition("\n")
            shown.append((command, output.strip("\n")))
    return shown


@pytest.mark.parametrize("page", [page for page in PAGES if sessions(page)], ids=lambda page: page.stem)
def test_console_blocks(page: Path, desk: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}  # noqa: TID251
    ran = 0
    for command, output in sessions(page):
        if command.startswith("cd docs/examples"):  # where these tests are already
            continue
        if command.startswith("make "):
            target = command.split()[1]
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            continue
        done = subprocess.run(
            ["bash", "-c", command],
            capture_output=True,
            text=True,
            encoding="utf-8",
            env=environment,
            cwd=desk,
            check=False,
        )
        said = (done.stdout + done.stderr).strip("\n")
        pattern = re.escape(output).replace("…", ".*")
        assert re.fullmatch(pattern, said, re.DOTALL), f"$ {command}\n{said}"
        ran += 1
    assert ran > 0


@pytest.mark.parametrize(
    "page", [page for page in PAGES if ">>> " in page.read_text(encoding="utf-8")], ids=lambda page: page.stem
)
@pytest.mark.usefixtures("desk")
def test_python_blocks(page: Path) -> None:
    result = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", ["cli.md", "claims.md"])
def test_pages_made_from_the_program_are_up_to_date(name: str) -> None:
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    assert (DOCS / name).read_text(encoding="utf-8") == reference.PAGES[name]()


def test_links_between_our_files_lead_somewhere() -> None:
    pages = [path for path in ROOT.rglob("*.md") if not {".venv", "_build"} & {*path.parts}]
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert len(pages) > 15
    assert broken == []


def test_every_public_name_is_documented() -> None:
    import pramana

    page = (DOCS / "python.md").read_text(encoding="utf-8")
    assert [name for name in pramana.__all__ if f"pramana.{name}(" not in page] == []
    assert [name for name in pramana.__all__ if not callable(getattr(pramana, name))] == []


def test_every_assertion_type_is_documented() -> None:
    from pramana.plugins import assertion_types

    page = (DOCS / "assertions.md").read_text(encoding="utf-8")
    assert [name for name in assertion_types.names() if f"| `{name}`" not in page] == []
