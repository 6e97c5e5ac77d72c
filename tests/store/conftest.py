"""Both engines for every test that asks for `url` or `store`: a file of its own, or a database of its own in a real server."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pramana.store import open_store
from pramana.store.runs import Store

settings.register_profile(  # the same examples on every machine, and no deadline that load could miss
    "store", max_examples=60, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)
settings.load_profile("store")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/a folder/pramana.sqlite3"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()
