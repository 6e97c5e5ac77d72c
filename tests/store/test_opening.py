"""Opening a store: the file is at its named path, and every obstacle is reported with advice."""

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from pramana import settings
from pramana.errors import NotFound, StoreFailed
from pramana.store import make_url_absolute, open_store
from pramana.store.schema import runs
from pramana.store.store import Store

from .. import programs
from .samples import list_pending, make_case, make_plan


@pytest.mark.parametrize("name", ["a?b", "a#b", "a%b", "a%3Fb", "100%25?x=1#y", "a+b c", "ü:@ &=", "日本"])
def test_the_file_is_in_the_data_folder_whatever_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "odd" / name
    monkeypatch.setenv("PRAMANA_HOME", str(home))
    with closing(open_store(settings.database_url())) as store:
        run = store.runs.create(make_plan(), [make_case(1)])
    with closing(open_store(settings.database_url())) as store:
        assert store.runs.find("latest").id == run.id
    assert [each.name for each in (tmp_path / "odd").iterdir()] == [name]
    assert (home / "pramana.sqlite3").is_file()


def test_a_custom_sqlite_url_is_parsed_as_a_url(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/a%20b.sqlite3?timeout=5").close()
    assert (tmp_path / "a b.sqlite3").is_file()


@pytest.mark.parametrize("damage", ["", "{", "[]", "5", '{"suite": "x"}', "[" * 100_000])
def test_a_damaged_plan_is_reported_in_one_sentence(store: Store, damage: str) -> None:
    run = store.runs.create(make_plan(), [make_case(1)])
    with store._database.write_transaction() as connection:
        connection.execute(update(runs), {"plan": damage})
    for ask in (lambda: store.runs.find("latest"), store.runs.read_page, lambda: list(list_pending(store, run.id))):
        with pytest.raises(StoreFailed, match=f'the column plan of run "{run.id}" cannot be read'):
            ask()


def test_damaged_notes_are_reported_in_one_sentence(store: Store) -> None:
    run = store.runs.create(make_plan(), [make_case(1)])
    with store._database.write_transaction() as connection:
        connection.execute(update(runs), {"notes": "{"})
    with pytest.raises(StoreFailed, match=f'the column notes of run "{run.id}" cannot be read'):
        store.runs.find("latest")


def test_an_empty_name_finds_no_run_even_if_there_is_only_one(store: Store) -> None:
    run = store.runs.create(make_plan(), [make_case(1)])
    with pytest.raises(NotFound, match="no run is named"):
        store.runs.find("")
    assert store.runs.find("r").id == run.id


def test_a_store_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    path = tmp_path / "home" / "pramana.sqlite3"
    path.mkdir(parents=True)
    with pytest.raises(StoreFailed) as caught:
        open_store(f"sqlite:///{path}")
    assert str(caught.value) == (
        f"the database failed: unable to open database file; the store is {path}, which is a folder, not a file; name "
        "another folder in PRAMANA_HOME"
    )


READ_ONLY = """
import os, sys, tempfile
from contextlib import closing
from pramana.errors import StoreFailed
from pramana.store import open_store

with tempfile.TemporaryDirectory() as folder, closing(open_store(f"sqlite:///{folder}/x")) as store:
    store.runs.read_page()[0]  # so that all is imported, which nobody else may be able to do
if os.geteuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
try:
    open_store(f"sqlite:///{sys.argv[1]}")
except StoreFailed as error:
    print(error)
"""


@pytest.mark.parametrize("name", ["odd %3F#", "plain"])
def test_a_relative_url_is_made_absolute(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / name)
    for relative in ("sqlite:///a%23b.sqlite3", settings.sqlite_url(Path("a#b.sqlite3"))):
        url = make_url_absolute(relative)
        monkeypatch.chdir(tmp_path)
        open_store(url).close()
        assert (tmp_path / name / "a#b.sqlite3").is_file()
        assert make_url_absolute(url) == url
        monkeypatch.chdir(tmp_path / name)
    assert make_url_absolute("sqlite:///:memory:") == "sqlite:///:memory:"


def test_a_read_only_store_is_named_with_advice() -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # not below pytest's: others may not enter
        path = Path(folder, "pramana.sqlite3")
        open_store(f"sqlite:///{path}").close()
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        try:
            done = programs.run(["-c", READ_ONLY, str(path)])
            done.check_returncode()
        finally:
            Path(folder).chmod(0o755)
    assert f"; the store is {path}; this file and its folder must be writable" in done.stdout
    assert "PRAMANA_HOME" in done.stdout
    assert os.linesep not in done.stdout.strip()


def test_a_connection_in_use_is_closed_on_return(url: str) -> None:
    store = open_store(url)
    with store._database.read_transaction() as connection:
        driver: Any = connection.connection.driver_connection
        store.close()
        assert connection.exec_driver_sql("SELECT 1").scalar() == 1
    if isinstance(driver, sqlite3.Connection):
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            driver.execute("SELECT 1")
    else:
        assert driver.closed
