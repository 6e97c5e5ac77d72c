"""The only reader of the environment: where Pramana keeps its data, and how providers are reached."""

import os
from pathlib import Path


def variable(name: str) -> str | None:
    """Return an environment variable; empty counts as not set."""
    return os.environ.get(name) or None  # noqa: TID251 - here, and nowhere else


def home() -> Path:
    """Return the data folder: `PRAMANA_HOME`, or the platform's usual place for a user's data."""
    if chosen := variable("PRAMANA_HOME"):
        return Path(chosen).expanduser()
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
