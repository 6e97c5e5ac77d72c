"""The command to install an extra depends on how this distribution was installed; it never names a foreign package."""

import re
import subprocess
from pathlib import Path

import pytest

from pramana.installation import make_command_for_origin, make_install_command

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'pramana[voice]'"),
        ({"url": "file:///home/ada/pramana", "dir_info": {}}, "pip install '/home/ada/pramana[voice]'"),
        (
            {"url": "file:///home/ada/pramana", "dir_info": {"editable": True}},
            "pip install -e '/home/ada/pramana[voice]'",
        ),
        (
            {"url": "file:///tmp/my%20wheels/pramana-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install '/tmp/my wheels/pramana-0.1.0-py3-none-any.whl[voice]'",
        ),
        ({"url": "file:///C:/bench/pramana", "dir_info": {}}, "pip install 'C:/bench/pramana[voice]'"),
        (
            {"url": "https://git.example/p.git", "vcs_info": {"vcs": "git", "commit_id": "4f1c"}},
            "pip install 'pramana[voice] @ git+https://git.example/p.git@4f1c'",
        ),
        (
            {"url": "https://example/pramana-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'pramana[voice] @ https://example/pramana-0.1.0-py3-none-any.whl'",
        ),
        ({"broken": 1}, "pip install 'pramana[voice]'"),
    ],
)
def test_the_install_command_depends_on_the_source_of_the_distribution(origin: dict[str, object], command: str) -> None:
    assert make_command_for_origin("voice", origin) == command


def test_this_checkout_is_installed_from_its_folder() -> None:
    assert make_install_command("mcp").startswith("pip install ")
    assert make_install_command("mcp").rstrip("'").endswith("[mcp]")


def test_the_bare_public_name_is_never_suggested() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    texts = [each for each in listed if each.endswith((".md", ".txt", ".py", ".toml", ".yml", ".ipynb"))]
    advised = re.compile(r"""pip install (?:--upgrade )?["']?pramana(?:\[|["'`\s]|$)|dependencies = \["pramana"\]""")
    named = [each for each in texts if advised.search((ROOT / each).read_text(encoding="utf-8"))]
    assert named == ["src/pramana/installation.py", "tests/test_installation.py"]
