"""The schema's history leads to the schema, once, whoever opens the store, and never backwards."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect, make_url, text

from pramana.errors import StoreFailed
from pramana.store import engine as engine_module
from pramana.store import open_store
from pramana.store.engine import Database, _postgresql, _sqlite, _upgrade
from pramana.store.schema import HEAD, metadata

from .. import programs


@contextmanager
def bare(url: str) -> Iterator[Connection]:
    """Open the database without migrating it."""
    parsed = make_url(url)
    database = Database(_sqlite(parsed) if url.startswith("sqlite") else _postgresql(parsed))
    try:
        with database.writing() as connection:
            yield connection
    finally:
        database.close()


def described(connection: Connection) -> dict[str, Any]:
    """Return everything the engine tells about the tables but Alembic's own."""
    engine = inspect(connection)

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items() if name != "comment"}
        if isinstance(value, list):
            return sorted((plain(each) for each in value), key=str)
        return value if isinstance(value, str | int | None) else str(value)

    tables = {
        name: plain(
            {
                "columns": engine.get_columns(name),
                "key": engine.get_pk_constraint(name),
                "foreign": engine.get_foreign_keys(name),
                "unique": engine.get_unique_constraints(name),
                "indexes": engine.get_indexes(name),
                "checks": engine.get_check_constraints(name),
            }
        )
        for name in engine.get_table_names()
        if name != "alembic_version"
    }
    if connection.dialect.name == "sqlite":
        query = "SELECT name, sql FROM sqlite_master WHERE sql NOT NULL AND name NOT LIKE 'alembic%' ORDER BY name"
        tables["statements"] = {
            # A column that was added stands on the line of the last one before it.
            name: sorted(re.split(r",?\s*\n\s*|, (?=(?:conversation|limits|cancelled|creator) TEXT)", sql))
            for name, sql in connection.execute(text(query))
        }
    return tables


def described_version(connection: Connection) -> Any:
    """Return what there is of Alembic's own table, and the version in it."""
    columns = [
        (each["name"], str(each["type"]), each["nullable"])
        for each in inspect(connection).get_columns("alembic_version")
    ]
    key = inspect(connection).get_pk_constraint("alembic_version")
    return columns, key, connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()


def test_an_upgraded_schema_equals_a_fresh_one(empty_url: str) -> None:
    open_store(empty_url).close()
    with bare(empty_url) as connection:
        fresh, version = described(connection), described_version(connection)
        metadata.drop_all(connection)
        connection.execute(text("DROP TABLE alembic_version"))
        assert described(connection).keys() <= {"statements"}
    with bare(empty_url) as connection:
        _upgrade(connection)
    with bare(empty_url) as connection:
        assert set(fresh) >= {"runs", "cases", "run_cases", "results", "checks", "scorings"}
        assert described(connection) == fresh
        assert described_version(connection) == version
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []


def test_the_newest_step_is_the_one_the_program_expects() -> None:
    script = ScriptDirectory(str(Path(engine_module.__file__).parent / "migrations"))
    assert script.get_heads() == [HEAD]


def test_neither_a_new_store_nor_an_existing_one_needs_alembic(empty_url: str) -> None:
    code = "import sys; from pramana.store import open_store; open_store(sys.argv[1]).close(); sys.exit('alembic' in sys.modules)"
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", code, empty_url], check=False).returncode == 0


def test_a_store_of_a_newer_program_is_left_alone(empty_url: str) -> None:
    open_store(empty_url).close()
    with bare(empty_url) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreFailed, match="written by a newer Pramana"):
        open_store(empty_url)


OPEN_WHEN_TOLD = """
import os, sys, time, warnings
from pramana.store import open_store
warnings.simplefilter("error")
while not os.path.exists(sys.argv[2]):
    time.sleep(0.001)
open_store(sys.argv[1]).close()
"""


def test_many_processes_may_open_a_new_store_at_once(empty_url: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    opening = [programs.start(["-c", OPEN_WHEN_TOLD, empty_url, str(go)]) for _ in range(5)]
    go.touch()
    for process in opening:
        assert process.wait(60) == 0
        assert process.stdout
        assert process.stdout.read() == ""
        process.stdout.close()
    with bare(empty_url) as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all() == [HEAD]
