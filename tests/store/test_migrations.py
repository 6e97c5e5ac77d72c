"""Migrations lead to the current schema, once, for any number of processes, and never backwards."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from msgspec.structs import replace
from sqlalchemy import Connection, event, inspect, make_url, text

from pramana.errors import StoreFailed
from pramana.model import Plan, ScenarioTurn, StatedAssertion, Target
from pramana.request import RunEdit, Selection
from pramana.store import engine as engine_module
from pramana.store import open_store, records
from pramana.store.engine import Database, _open_postgresql, _open_sqlite, _upgrade_schema, timestamp
from pramana.store.scenarios import StoredScenario
from pramana.store.schema import LATEST_MIGRATION, metadata
from pramana.store.store import Store

from .. import programs


@contextmanager
def open_without_migrating(url: str) -> Iterator[Connection]:
    """Open the database without migrating it."""
    parsed = make_url(url)
    database = Database(_open_sqlite(parsed) if url.startswith("sqlite") else _open_postgresql(parsed))
    try:
        with database.write_transaction() as connection:
            yield connection
    finally:
        database.close()


def describe_tables(connection: Connection) -> dict[str, Any]:
    """Describe all tables except Alembic's own."""
    engine = inspect(connection)

    def to_plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: to_plain(each) for name, each in value.items() if name != "comment"}
        if isinstance(value, list):
            return sorted((to_plain(each) for each in value), key=str)
        return value if isinstance(value, str | int | None) else str(value)

    tables = {
        name: to_plain(
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
            # An added column is on the line of the one before it.
            name: sorted(
                re.split(
                    r",?\s*\n\s*|, (?=(?:conversation|limits|cancelled|creator|suite|selection|expires|name|note) TEXT"
                    r"|(?:base|chosen) INTEGER|public BOOLEAN)",
                    sql,
                )
            )
            for name, sql in connection.execute(text(query))
        }
    return tables


def describe_version(connection: Connection) -> Any:
    """Return what there is of Alembic's own table, and the version in it."""
    columns = [
        (each["name"], str(each["type"]), each["nullable"])
        for each in inspect(connection).get_columns("alembic_version")
    ]
    key = inspect(connection).get_pk_constraint("alembic_version")
    return columns, key, connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()


def test_an_upgraded_schema_equals_a_fresh_one(empty_url: str) -> None:
    open_store(empty_url).close()
    with open_without_migrating(empty_url) as connection:
        fresh, version = describe_tables(connection), describe_version(connection)
        metadata.drop_all(connection)
        connection.execute(text("DROP TABLE alembic_version"))
        assert describe_tables(connection).keys() <= {"statements"}
    with open_without_migrating(empty_url) as connection:
        _upgrade_schema(connection)
    with open_without_migrating(empty_url) as connection:
        assert set(fresh) >= {"runs", "cases", "run_cases", "results", "checks", "scorings"}
        assert describe_tables(connection) == fresh
        assert describe_version(connection) == version
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []


def make_tables_at(url: str, revision: str) -> None:
    """Make the tables as an earlier version of the program did."""
    config = Config()
    config.set_main_option("script_location", str(Path(engine_module.__file__).parent / "migrations"))
    with open_without_migrating(url) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def test_scenarios_of_older_versions_are_read_with_current_field_names(empty_url: str) -> None:
    make_tables_at(empty_url, "0004")
    turn = {"say": "And?", "audioUrl": "a.wav", "bargeIn": 0.5, "assert": None, "reference": None}
    stated = [
        {"type": "json_schema", "schema": {"expectedOutcome": {"const": 1.0}}},
        {"type": "exact", "ideal": ["a", "b"]},
    ]
    body = {
        "id": "a", "name": "N", "type": "task-completion", "prompt": "Grüße \0 \ufdd0fdd0", "expectedOutcome": "o",
        "promptAudioUrl": "p.wav", "tags": ["t"], "language": "en", "difficulty": "hard", "assert": stated,
        "reference": None, "turns": [turn], "conditions": "phone",
    }  # fmt: skip
    bare_one = {**body, "id": "b", "assert": None, "turns": None, "promptAudioUrl": None, "conditions": None}
    times = {"created": "2026-11-01T00:00:00.000+00:00", "updated": "2026-11-02T00:00:00.000+00:00"}
    with open_without_migrating(empty_url) as connection:
        for each in (body, bare_one):
            row = {name: each[name] for name in ("id", "name", "type", "difficulty", "language")} | times
            row |= {"tags": '[\n"t"\n]', "body": json.dumps(each, ensure_ascii=False, separators=(",", ":"))}
            names = ", ".join(row)
            values = ", ".join(f":{name}" for name in row)
            connection.execute(text(f"INSERT INTO scenarios ({names}) VALUES ({values})"), row)  # noqa: S608
        gone = {"id": "c", "body": json.dumps({**body, "id": "c"}), "deleted": timestamp()} | times
        values = ", ".join(f":{name}" for name in gone)
        connection.execute(text(f"INSERT INTO deleted_scenarios ({', '.join(gone)}) VALUES ({values})"), gone)  # noqa: S608
    store = open_store(empty_url)
    page, _ = store.scenarios.read_page(Selection(), 0, 10)
    assertions = (
        StatedAssertion("json_schema", schema={"expectedOutcome": {"const": 1.0}}), StatedAssertion("exact", ideal=("a", "b"))
    )  # fmt: skip
    expected = StoredScenario(
        "a", "N", "task-completion", "Grüße \0 \ufdd0", "o", "p.wav", ("t",), "en", "hard", assertions, None,
        (ScenarioTurn("And?", "a.wav", 0.5),), "phone", created_at=times["created"], updated_at=times["updated"],
    )  # fmt: skip
    plain = replace(expected, id="b", assert_=None, turns=None, prompt_audio_url=None, conditions=None)
    assert page == [expected, plain]
    assert store.scenarios.read_page(Selection(text="o", tags=("t",)), 0, 10)[1] == 2
    assert store.scenarios.restore("c").turns == (ScenarioTurn("And?", "a.wav", 0.5),)
    store.close()


def test_runs_of_older_versions_are_found_by_suite_selection_and_models(empty_url: str) -> None:
    make_tables_at(empty_url, "0005")
    odd, b, seeded = Target("odd \0 name", "fake", "o"), Target("b", "fake", "b"), Target("b", "fake", "b", {"seed": 1})
    plans = [
        Plan("v1.0-cheap", None, (Target("a", "fake", "a"),)),
        Plan("V1 50%", None, (odd, b), judge=Target("a judge", "fake", "j")),
        Plan("v2", None, (b, seeded), selection={"tags": ["größe"]}),
    ]
    row = {
        "owner": "cli", "status": "finished", "created": "", "notes": "{}", "plan_digest": "", "expected": 0, "stored": 0,
        "attempts": 0,
    }  # fmt: skip
    columns = ("id", "plan", *row)
    insert = f"INSERT INTO runs ({', '.join(columns)}) VALUES ({', '.join(f':{name}' for name in columns)})"  # noqa: S608
    texts = [records.encode_json_column(records.plan_to_plain(each)) for each in plans]
    with open_without_migrating(empty_url) as connection:
        for number, each in enumerate([*texts, "damaged", "[]"]):
            connection.execute(text(insert), {"id": f"r{number}", "plan": each, **row})
    store = open_store(empty_url)

    def find_runs(**wanted: Any) -> list[str]:
        runs, total = store.runs.read_page(**wanted)
        assert total == len(runs)
        return [run.id for run in runs]

    assert find_runs(suite="v1") == ["r0"]
    assert (find_runs(suite="v"), find_runs(suite="V1 5"), find_runs(suite="1")) == (["r2", "r0"], ["r1"], [])
    assert (find_runs(model="b"), find_runs(model="odd \0 name"), find_runs(model="a judge")) == (
        ["r2", "r1"],
        ["r1"],
        [],
    )
    assert (find_runs(text="A JUDGE"), find_runs(text="größe"), find_runs(text="50%"), find_runs(text="5_%")) == (
        ["r1"],
        ["r2"],
        ["r1"],
        [],
    )
    assert store.runs.find("r1").plan == plans[1]
    store.runs.delete("r1")
    assert find_runs(model="odd \0 name") == []
    store.close()


def test_runs_of_older_versions_have_no_name_and_can_be_renamed(empty_url: str) -> None:
    make_tables_at(empty_url, "0007")
    row = {
        "id": "r1", "plan": records.encode_json_column(records.plan_to_plain(Plan("s", None, (Target("a", "fake", "a"),)))),
        "owner": "cli", "status": "finished", "created": "", "notes": "{}", "plan_digest": "", "expected": 0, "stored": 0,
        "attempts": 0, "suite": "s",
    }  # fmt: skip
    with open_without_migrating(empty_url) as connection:
        values = ", ".join(f":{name}" for name in row)
        connection.execute(text(f"INSERT INTO runs ({', '.join(row)}) VALUES ({values})"), row)  # noqa: S608
    store = open_store(empty_url)
    assert (store.runs.read("r1").name, store.runs.read("r1").note) == (None, None)
    changed = store.runs.edit("r1", RunEdit(name="first", note="before the upgrade"))
    assert (changed.name, changed.note) == ("first", "before the upgrade")
    store.close()


def test_a_run_is_found_by_an_index(store: Store) -> None:
    if not store._database.is_sqlite:
        return  # which has no rows to speak of here, so that PostgreSQL reads them all
    asked: list[tuple[str, Any]] = []
    event.listen(store._database._engine, "before_cursor_execute", lambda _, __, *given: asked.append(given[:2]))
    store.runs.read_page(model="a", suite="v1")
    with store._database.read_transaction() as connection:
        statement, values = asked[-1]
        plan = " ".join(row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values))
    assert "SEARCH run_models USING" in plan
    assert "SCAN" not in plan


def test_the_newest_migration_is_the_revision_the_program_expects() -> None:
    script = ScriptDirectory(str(Path(engine_module.__file__).parent / "migrations"))
    assert script.get_heads() == [LATEST_MIGRATION]


def test_neither_a_new_store_nor_an_existing_one_needs_alembic(empty_url: str) -> None:
    code = "import sys; from pramana.store import open_store; open_store(sys.argv[1]).close(); sys.exit('alembic' in sys.modules)"
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", code, empty_url], check=False).returncode == 0


def test_a_store_of_a_newer_version_is_not_modified(empty_url: str) -> None:
    open_store(empty_url).close()
    with open_without_migrating(empty_url) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreFailed, match="written by a newer Pramana"):
        open_store(empty_url)


OPEN_WHEN_TOLD = """
import os, sys, time, warnings
from pramana.store import open_store, records
warnings.simplefilter("error")
while not os.path.exists(sys.argv[2]):
    time.sleep(0.001)
open_store(sys.argv[1]).close()
"""


def test_many_processes_can_open_a_new_store_at_once(empty_url: str, tmp_path: Path) -> None:
    go = tmp_path / "go"
    opening = [programs.start(["-c", OPEN_WHEN_TOLD, empty_url, str(go)]) for _ in range(5)]
    go.touch()
    for process in opening:
        assert process.wait(60) == 0
        assert process.stdout
        assert process.stdout.read() == ""
        process.stdout.close()
    with open_without_migrating(empty_url) as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all() == [LATEST_MIGRATION]
