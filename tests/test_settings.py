"""Settings: the environment and the configuration file, which no other module reads."""

import re
from pathlib import Path

import pytest

from pramana import settings
from pramana.errors import InvalidInput

GOOD = '[commands.a]\nargv = ["ls", "-l"]\n'
SOURCE = Path(settings.__file__).parent


def test_the_data_folder_is_configurable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRAMANA_HOME", str(tmp_path))
    assert settings.data_folder() == tmp_path
    assert settings.database_url() == f"sqlite:///{tmp_path / 'pramana.sqlite3'}"
    monkeypatch.setenv("PRAMANA_DATABASE_URL", "postgresql://host/db")
    assert settings.database_url() == "postgresql://host/db"
    monkeypatch.delenv("PRAMANA_HOME")
    assert settings.data_folder().name == "pramana"
    monkeypatch.setenv("PRAMANA_HOME", "~nobody-of-that-name/x")
    with pytest.raises(InvalidInput, match="that user does not exist"):
        settings.data_folder()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[commands", "not valid TOML"),
        ("commands = 5", "write a command as argv"),
        ("[commands.a]\nargv = []", "commands.a.argv: write a command as argv"),
        ("[commands.a]\nargv = [1]", "commands.a.argv: write a command as argv"),
        ("[commands]\na = 5", "commands.a: write a command as argv"),
        ("[commands.a]", "commands.a: write a command as argv"),
        ('[commands.a]\nargv = "ls"', "commands.a.argv: write a command as argv"),
        ('[commands.a]\nargv = ["l\\u0000s"]', "commands.a.argv: write a command as argv"),
        (GOOD + 'timeout_s = "abc"', 'commands.a.timeout_s: is "abc"; expected seconds'),
        (GOOD + "timeout_s = true", 'commands.a.timeout_s: is "True"'),
        (GOOD + "timeout_s = -1", 'commands.a.timeout_s: is "-1"'),
        (GOOD + "timeout_s = 0", 'commands.a.timeout_s: is "0"'),
        (GOOD + "timeout_s = nan", 'commands.a.timeout_s: is "nan"'),
        (GOOD + "timeout_s = inf", 'commands.a.timeout_s: is "inf"'),
        (GOOD + "timeout = 5", r'commands.a.timeout: unknown key "timeout"; did you mean "timeout_s"\?'),
        ("[command.a]\nargv = []", r'command: unknown key "command"; did you mean "commands"\?'),
        ("x = " + "9" * 5000, "not valid TOML"),
        ("x = " + "[" * 5000, "not valid TOML"),
    ],
)
def test_a_bad_configuration_is_reported_with_its_position(text: str, message: str) -> None:
    settings.data_folder().mkdir(parents=True)
    assert settings.read_agent_command_settings() == {}
    (settings.data_folder() / "config.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=message) as caught:
        settings.read_agent_command_settings()
    assert all(problem.file == str(settings.data_folder() / "config.toml") for problem in caught.value.problems)


def test_all_problems_of_the_configuration_are_reported_at_once() -> None:
    settings.data_folder().mkdir(parents=True)
    text = '[commands.a]\nargv = []\ntimeout_s = 0\n[commands.b]\nshell = "x"\n[commands.c]\nargv = ["c"]\n[other]'
    (settings.data_folder() / "config.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput) as caught:
        settings.read_agent_command_settings()
    paths = {problem.path for problem in caught.value.problems}
    assert paths == {"commands.a.argv", "commands.a.timeout_s", "commands.b", "commands.b.shell", "other"}


def test_a_valid_configuration_is_read() -> None:
    settings.data_folder().mkdir(parents=True)
    (settings.data_folder() / "config.toml").write_text(GOOD + "timeout_s = 2.5", encoding="utf-8")
    assert settings.read_agent_command_settings() == {"a": {"argv": ["ls", "-l"], "timeout_s": 2.5}}


def test_no_other_module_reads_the_environment() -> None:
    readers = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"os\.(environ|getenv)", path.read_text(encoding="utf-8"))
    }
    assert readers <= {"settings.py", "providers/command.py", "embedded/weights.py"}  # two give it on to a child
    assert "settings.py" in readers
