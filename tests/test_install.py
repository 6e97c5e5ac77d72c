"""The locked packages are installed by two concurrent pips: each package once, with all of its hashes."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
spec = importlib.util.spec_from_file_location("install", ROOT / ".ci" / "install.py")
assert spec
assert spec.loader
install = importlib.util.module_from_spec(spec)
spec.loader.exec_module(install)


@pytest.mark.parametrize("name", ["run.txt", "dev.txt"])
def test_every_package_is_installed_once_with_its_hashes(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    blocks = install.packages(text)
    assert len(blocks) == len(re.findall(r"(?m)^[a-z0-9].*==", text)) > 20
    assert "".join(blocks).count("--hash=sha256:") == text.count("--hash=sha256:")
    assert all(re.fullmatch(r"[^\s=]+==\S+.*?( \\\n    --hash=sha256:[0-9a-f]{64})+\n", each) for each in blocks)


def test_one_failing_pip_fails_the_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = iter((0, 7))

    class Pip:
        def __init__(self, command: list[str]) -> None:
            assert command[-2:-1] == ["-r"]

        def wait(self) -> int:
            return next(ended)

    monkeypatch.setattr(install.subprocess, "Popen", Pip)
    locked = tmp_path / "locked.txt"
    locked.write_text("".join(f"{name}==1 \\\n    --hash=sha256:00\n" for name in "abc"))
    assert install.main([str(locked)]) == 7
