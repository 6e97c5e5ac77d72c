"""The only reader of the environment and of the configuration file: where data is kept, how providers are reached."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pramana.errors import InvalidInput, Problem


def variable(name: str) -> str | None:
    """Return an environment variable; empty counts as not set."""
    return os.environ.get(name) or None  # noqa: TID251 - here, and nowhere else


def home() -> Path:
    """Return the data folder: `PRAMANA_HOME`, or the platform's usual place for a user's data."""
    if chosen := variable("PRAMANA_HOME"):
        try:
            return Path(chosen).expanduser()
        except RuntimeError:
            raise InvalidInput(f"PRAMANA_HOME is {chosen}, and there is no such user") from None
    from platformdirs import user_data_path

    return user_data_path("pramana", appauthor=False)


def published_suites() -> Path:
    """Return the folder that `pramana suite publish` writes to; it need not exist."""
    return home() / "suites"


def database_url() -> str:
    """Return where results are stored: `PRAMANA_DATABASE_URL`, or a SQLite file in the data folder."""
    return variable("PRAMANA_DATABASE_URL") or f"sqlite:///{home() / 'pramana.sqlite3'}"


def prices_file() -> Path:
    """Return the user's own prices; the file need not exist."""
    return home() / "prices.toml"


def in_ci() -> bool:
    """Tell whether this is a continuous integration machine, whose cores are shared."""
    return variable("CI") is not None


def commands() -> Mapping[str, Mapping[str, Any]]:
    """Return the commands of `config.toml` in the data folder: `[commands.NAME]` with `argv` and perhaps `timeout_s`.

    Only this file of this machine can name a command: nothing that arrives from elsewhere makes a machine run one.
    """
    path = home() / "config.toml"
    try:
        stated = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput.of([Problem(f"not valid TOML: {error}", file=str(path))]) from None
    found = stated.get("commands", {})
    for name, command in found.items() if isinstance(found, dict) else (("", None),):
        argv = command.get("argv") if isinstance(command, dict) else None
        if not (isinstance(argv, list) and argv and all(isinstance(each, str) for each in argv)):
            message = 'a command is argv = ["program", "argument"], and perhaps timeout_s = 60'
            raise InvalidInput.of([Problem(message, f"commands.{name}", file=str(path))])
    return dict(found)
