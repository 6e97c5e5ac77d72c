"""Give every test, including doctests in `src/`, its own data folder."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the test from reading and writing the user's data folder."""
    monkeypatch.setenv("PRAMANA_HOME", str(tmp_path / "pramana-home"))
