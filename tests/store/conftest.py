"""Fixtures `url` and `store` on both engines: a SQLite file, or a database in a real PostgreSQL server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pramana.store import open_store
from pramana.store.store import Store

from ..stores import postgres_store, sqlite_store


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a store that does not exist yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/a folder/pramana.sqlite3"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store."""
    if request.param == "sqlite":
        yield sqlite_store(tmp_path / "a folder" / "pramana.sqlite3")
    else:
        with postgres_store(request.getfixturevalue("postgres")) as lent:
            yield lent


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    opened = open_store(url)
    yield opened
    opened.close()
