"""Settings: the environment and the configuration file, and nothing read elsewhere."""

import re
from pathlib import Path

import pytest

from pramana import settings
from pramana.errors import InvalidInput

SOURCE = Path(settings.__file__).parent


def test_the_data_folder_is_where_the_user_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAMANA_HOME", str(tmp_path))
    assert settings.home() == tmp_path
    assert settings.database_url() == f"sqlite:///{tmp_path / 'pramana.sqlite3'}"
    monkeypatch.setenv("PRAMANA_DATABASE_URL", "postgresql://host/db")
    assert settings.database_url() == "postgresql://host/db"
    monkeypatch.delenv("PRAMANA_HOME")
    assert settings.home().name == "pramana"
    monkeypatch.setenv("PRAMANA_HOME", "~nobody-of-that-name/x")
    with pytest.raises(InvalidInput, match="there is no such user"):
        settings.home()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[commands", "not valid TOML"),
        ("commands = 5", "a command is argv"),
        ("[commands.a]\nargv = []", "commands.a: a command is argv"),
        ("[commands.a]\nargv = [1]", "commands.a: a command is argv"),
        ("[commands]\na = 5", "commands.a: a command is argv"),
    ],
)
def test_a_bad_configuration_says_where(text: str, message: str) -> None:
    settings.home().mkdir(parents=True)
    assert settings.commands() == {}
    (settings.home() / "config.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=message):
        settings.commands()


def test_nobody_else_reads_the_environment() -> None:
    readers = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"os\.(environ|getenv)", path.read_text(encoding="utf-8"))
    }
    assert readers <= {"settings.py", "providers/command.py", "embedded/weights.py"}  # two give it on to a child
    assert "settings.py" in readers
