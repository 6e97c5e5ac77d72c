"""Empty stores at the newest schema, copied or emptied instead of migrated, which costs ten times as much.

The migrations themselves are tested in `tests/store/test_migrations.py`, which starts from scratch.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from uuid import uuid4

from sqlalchemy import URL, Connection, NullPool, create_engine, make_url, text
from sqlalchemy.exc import OperationalError

from pramana import settings
from pramana.store import open_store
from pramana.store.schema import metadata


@cache
def _migrated_file() -> bytes:
    with tempfile.TemporaryDirectory(prefix="pramana-template-") as folder:
        path = Path(folder, "template.sqlite3")
        open_store(f"sqlite:///{path}").close()
        return path.read_bytes()


def sqlite_store(path: Path) -> str:
    """Make an empty store unless there is a file already; return its URL."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_migrated_file())
    return f"sqlite:///{path}"


def home_store() -> str:
    """Make an empty store in the data folder of the test unless there is one; return its URL."""
    url = settings.database_url()
    return sqlite_store(Path(url.removeprefix("sqlite:///"))) if url.startswith("sqlite:///") else url


@contextmanager
def postgres_store(server: str) -> Iterator[str]:
    """Yield the URL of an empty store in a PostgreSQL server. Afterwards it is emptied and reused.

    A database is three hundred files that a server has to create, write and remove; emptying one is a single statement.
    """
    free = _free_databases(server)
    url = free.pop() if free else _create_database(server)
    yield url
    if _empty_database(url):
        free.append(url)


@cache
def _free_databases(server: str) -> list[str]:
    with _connect(make_url(server)) as connection:  # no data here has to survive a power cut
        for option in ("fsync", "full_page_writes", "synchronous_commit"):
            connection.execute(text(f"ALTER SYSTEM SET {option} = off"))
        connection.execute(text("SELECT pg_reload_conf()"))
    return []


def _create_database(server: str) -> str:
    url, name = make_url(server), f"t{uuid4().hex}"
    with _connect(url) as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    made = url.set(database=name)
    open_store(made.render_as_string(hide_password=False)).close()
    with _connect(made) as connection:
        for table in metadata.tables:
            assert not connection.execute(text(f"SELECT 1 FROM {table}")).all(), f"a new {table} is not empty"  # noqa: S608
    return made.render_as_string(hide_password=False)


def _empty_database(url: str) -> bool:
    others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
    try:
        with _connect(make_url(url)) as connection:
            connection.execute(text(f"{others} AND pid <> pg_backend_pid()"))
            connection.execute(text("SET lock_timeout = '5s'"))
            connection.execute(text(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY"))
    except OperationalError:  # another connection still holds a lock
        return False
    return True


@contextmanager
def _connect(url: URL) -> Iterator[Connection]:
    engine = create_engine(url.set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with engine.connect() as connection:
        yield connection
    engine.dispose()
