"""The only reader of the environment: where Pramana keeps its data."""

import os
from pathlib import Path


def home() -> Path:
    """Return the data folder: `PRAMANA_HOME`, or the platform's usual place for a user's data."""
    if chosen := os.environ.get("PRAMANA_HOME"):  # noqa: TID251
        return Path(chosen).expanduser()
    from platformdirs import user_data_path

    return user_data_path("pramana", appauthor=False)


def published_suites() -> Path:
    """Return the folder that `pramana suite publish` writes to; it need not exist."""
    return home() / "suites"
