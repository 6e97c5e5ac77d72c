"""Server fixtures for the tests in this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ...stores import postgres_store
from .served import Client, serve


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.sqlite3'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, sqlite_url: str) -> Iterator[str]:
    """The URL of each supported store, for tests that depend on it."""
    if request.param == "sqlite":
        yield sqlite_url
    else:
        with postgres_store(request.getfixturevalue("postgres")) as lent:
            yield lent


@pytest.fixture
def client(sqlite_url: str) -> Iterator[Client]:
    """A single-user server on SQLite."""
    with serve(sqlite_url) as found:
        yield found


@pytest.fixture
def client_per_store(store_url: str) -> Iterator[Client]:
    """A single-user server on each store."""
    with serve(store_url) as found:
        yield found


@pytest.fixture
def secure_client(sqlite_url: str) -> Iterator[Client]:
    """A server that requires tokens; `with_token(role)` creates one."""
    with serve(sqlite_url, server_account_needs_token=True) as found:
        yield found
