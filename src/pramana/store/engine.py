"""A database URL in, a database at the newest schema out: connections, transactions, and a line for each change.

One SQLite file is shared by processes from the first day: write-ahead log, `synchronous=FULL`, and write transactions
that begin IMMEDIATE, so that two writers wait for each other instead of failing. No exception of a driver leaves this
stage: what the database says becomes a `StoreFailed`.

Each thing made, changed or removed is a numbered line (`record_change`), so that whoever watches asks what came after.
It is written in the transaction that makes the change: nobody hears of what was undone. Only the last lines are kept;
who was away for longer looks at everything anyway.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum, unique
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from sqlalchemy import (
    URL,
    Connection,
    Engine,
    Select,
    Text,
    cast,
    create_engine,
    delete,
    event,
    func,
    insert,
    inspect,
    make_url,
    select,
    text,
)
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from pramana import clock, settings
from pramana.errors import InvalidInput, StoreFailed
from pramana.installation import install_command
from pramana.store.records import escape_text, unescape_text
from pramana.store.schema import LATEST_MIGRATION, changes, metadata

_Each = TypeVar("_Each")

BUSY_SECONDS = 30
LOG_PAGES = 8_192
"""Pages of SQLite's log (32 MB) before they are copied into the file: eight times the usual, and less copying."""
CHUNK_ROWS = 256
"""Rows a query: small enough that an event loop hardly notices, large enough that the query hardly counts."""
_BAD_URL_MESSAGE = "the database URL is neither sqlite:////path/to/file nor postgresql://user@host/name"
_FIRST_LOCK = 0x5072616D
"""Others may use advisory locks in the same database; these begin with the letters Pram."""


@unique
class Lock(IntEnum):
    """What PostgreSQL's advisory locks are for; no two have the same number.

    SQLite needs none: it has one writer at a time.
    """

    MIGRATING = _FIRST_LOCK
    SHARING_CASES = _FIRST_LOCK + 1
    CHANGES = _FIRST_LOCK + 2
    SCENARIOS = _FIRST_LOCK + 3
    SUBMISSIONS = _FIRST_LOCK + 4
    SUITES = _FIRST_LOCK + 5


SQLITE_POOL = {"pool_size": 20, "max_overflow": 40, "pool_use_lifo": True}
POSTGRESQL_POOL = {"pool_size": 10, "max_overflow": 20, "pool_use_lifo": True}
"""Connections that are kept, and how many more there may be: enough for every thread of a server, its runs and what
looks after it, so that nobody waits for one. PostgreSQL takes a hundred of all processes together."""
CONNECT_SECONDS = 10


_VERSION_TABLE = (
    "CREATE TABLE alembic_version"
    " (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)
"""As Alembic creates it."""
_TAKE_LOCK = text("SELECT pg_advisory_xact_lock(:key)")
INSERT_BATCH_SIZES = (100, 20, 4)
"""Rows of one statement in SQLite: at 25 values a row, well under its limit of 32,766; what is left goes by fewer."""


@cache
def _multi_row_statement(statement: str, count: int) -> str | None:
    """Return the statement for so many rows at once; None when it is not of the form `… VALUES (…) …`."""
    head, values, rest = statement.partition(" VALUES ")
    row, conflict, tail = rest.partition(" ON CONFLICT")
    return f"{head}{values}{', '.join([row] * count)}{conflict}{tail}" if values else None


class Database:
    """An engine and how it is read and written."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writer = engine.execution_options(pramana_writes=True)
        self._once = engine.execution_options(pramana_once=True)
        self.is_sqlite = engine.dialect.name == "sqlite"
        self.on_commit: list[Callable[[], None]] = []
        """Called, in whichever thread it was, after something was committed here: whoever watches need not wait."""

    @contextmanager
    def read_transaction(self) -> Iterator[Connection]:
        """Give a connection in a read transaction: keep it short, a long one stops the log from shrinking."""
        with _explain_errors(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def read_once(self) -> Iterator[Connection]:
        """Give a connection for one statement: in SQLite no transaction is begun around it, which costs as much again.

        Nor is the interpreter's lock given up for that, which beside a busy event loop costs far more.
        """
        with _explain_errors(), self._once.connect() as connection:
            yield connection

    @contextmanager
    def write_transaction(self) -> Iterator[Connection]:
        """Give a connection in a write transaction, committed when the block ends and undone when it raises."""
        with _explain_errors(), self._writer.begin() as connection:
            yield connection
        for each in self.on_commit:
            each()

    def run(self, connection: Connection, statement: str, values: Any) -> Any:
        """Run a statement with `?` for values, once or for each row of a list, by the driver itself."""
        return connection.exec_driver_sql(statement if self.is_sqlite else statement.replace("?", "%s"), values)

    def run_many(self, connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run a statement with `?` for values once for each row, by the driver itself: nothing is faster."""
        if not self.is_sqlite:
            if rows:
                self.run(connection, statement, list(rows))
            return
        # Python's sqlite3 gives up the interpreter's lock for each row, and the event loop takes it: with many rows a
        # statement, the two threads fight for it a hundred times less.
        done = 0
        for size in INSERT_BATCH_SIZES:
            while len(rows) - done >= size and (many := _multi_row_statement(statement, size)):
                connection.exec_driver_sql(many, tuple(chain.from_iterable(rows[done : done + size])))
                done += size
        if done < len(rows):
            connection.exec_driver_sql(statement, list(rows[done:]))

    def fetch_as_json(self, connection: Connection, query: Select[Any]) -> Sequence[Any]:
        """Return the rows of a query as lists: the database writes all of them as one JSON text.

        Python's sqlite3 gives up the interpreter's lock for each row that it reads, too, and a thread that reads many
        beside a busy event loop waits for it each time.
        """
        rows = query.subquery()
        array, gather = ("json_array", "json_group_array") if self.is_sqlite else ("json_build_array", "json_agg")
        as_text = select(cast(getattr(func, gather)(getattr(func, array)(*rows.c)), Text)).select_from(rows)
        found = connection.execute(as_text).scalar_one()
        decoded: list[Any] = msgspec.json.decode(found) if found else []
        return decoded

    @staticmethod
    def lock(connection: Connection, key: Lock) -> None:
        """Wait until no other transaction holds that lock: PostgreSQL's, since SQLite has one writer."""
        if connection.dialect.name == "postgresql":
            connection.execute(_TAKE_LOCK, {"key": int(key)})

    def now(self, connection: Connection) -> float:
        """Return the time leases are measured by: of the database server, where machines share one."""
        if self.is_sqlite:
            return clock.timestamp()
        return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())

    def migrate(self) -> None:
        """Bring the schema to the newest version, once, however many processes open the store at the same time."""
        with self.read_transaction() as connection:
            if _schema_version(connection) == LATEST_MIGRATION:
                return
        with self.write_transaction() as connection:
            self.lock(connection, Lock.MIGRATING)
            if (version := _schema_version(connection)) is None:
                _create_schema(connection)
            elif version != LATEST_MIGRATION:
                _upgrade_schema(connection)

    def release_connections(self) -> None:
        """Close the connections that nobody uses, with the memory of their caches and statements."""
        self._engine.dispose()

    def close(self) -> None:
        """Close every connection; one that a thread still works with, when it is given back."""
        event.listen(self._engine, "checkin", lambda _, entry: entry.invalidate())
        self.release_connections()


class StorePart:
    """A part of a store, by noun: all of them read and write one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def _rows(self, query: Select[Any]) -> Sequence[Any]:
        """Return the rows of a query that is read alone."""
        with self._database.read_transaction() as connection:
            return connection.execute(query).all()

    def _value(self, query: Select[Any]) -> Any:
        """Return the first value of a query that is read alone; None where there is no row."""
        with self._database.read_transaction() as connection:
            return connection.execute(query).scalar()


def open_database(url: str | URL) -> Database:
    """Connect, create the folder of an SQLite file, and migrate."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # the latter of a port that is no number
        raise InvalidInput(_BAD_URL_MESSAGE) from None
    make = {"sqlite": _open_sqlite, "postgresql": _open_postgresql, "postgres": _open_postgresql}.get(
        parsed.get_backend_name()
    )
    if make is None:
        raise InvalidInput(_BAD_URL_MESSAGE)
    database = Database(make(parsed))
    try:
        database.migrate()
    except BaseException:
        database.close()
        raise
    return database


def _open_sqlite(url: URL) -> Engine:
    if not url.database or url.database == ":memory:":
        raise InvalidInput("the store must be a file that several processes can open: sqlite:////path/to/file")
    path = Path(url.database)
    try:
        settings.make_private_folder(path.parent)
    except OSError as error:
        raise StoreFailed(f"the folder {path.parent} cannot be created: {error.strerror}") from error
    with suppress(OSError):  # it is there, or SQLite says why it cannot be; its log gets the mode of the file
        settings.open_private_file(path).close()
    engine = create_engine(
        url.set(drivername="sqlite+pysqlite"),
        connect_args={"timeout": BUSY_SECONDS},
        **SQLITE_POOL,
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # the driver must not begin transactions of its own
        try:
            _enable_write_ahead_log(connection)
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint={LOG_PAGES}")
            connection.execute("PRAGMA foreign_keys=ON")
        except sqlite3.Error:
            connection.close()  # the pool never gets it, and would not
            raise

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if not options.get("pramana_once"):
            connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("pramana_writes") else "BEGIN")

    return engine


def _enable_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch the file to a write-ahead log. SQLite does not wait here as it does elsewhere, so we do."""
    give_up = clock.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or clock.monotonic() > give_up:
                raise
            clock.sleep(0.01)
        else:
            return


def _open_postgresql(url: URL) -> Engine:
    try:
        return create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args={} if "connect_timeout" in url.query else {"connect_timeout": CONNECT_SECONDS},
            pool_pre_ping=True,
            **POSTGRESQL_POOL,
        )
    except ModuleNotFoundError as error:
        raise StoreFailed(f"PostgreSQL needs one more package: {install_command('postgres')}") from error


def _schema_version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def _create_schema(connection: Connection) -> None:
    """Create the newest schema in an empty database, as all migrations together would, without importing Alembic."""
    metadata.create_all(connection, checkfirst=False)
    connection.execute(text(_VERSION_TABLE))
    connection.execute(text("INSERT INTO alembic_version (version_num) VALUES (:head)"), {"head": LATEST_MIGRATION})


def _upgrade_schema(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    folder = Path(__file__).parent / "migrations"
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
    except CommandError as error:
        message = "the store was written by a newer Pramana than this one; update Pramana from where you installed it"
        raise StoreFailed(message) from error


def timestamp() -> str:
    """Return the time, ISO 8601 in UTC."""
    return clock.now().isoformat(timespec="milliseconds")


def split_into_chunks(items: Iterable[_Each]) -> Iterator[list[_Each]]:
    """Yield things by the chunk."""
    iterator = iter(items)
    while some := list(islice(iterator, CHUNK_ROWS)):
        yield some


@contextmanager
def _explain_errors() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        said = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        raise StoreFailed(f"the database failed: {said}") from error


# ── What is new ──

KEPT_CHANGES = 10_000
ChangeKind = Literal["scenario", "suite", "provider", "run", "submission", "settings", "price"]


class Change(msgspec.Struct, frozen=True):
    """One thing that changed."""

    number: int
    at: str
    kind: str
    subject: str
    """Its id; of many at once, how many."""
    action: str
    """In one word: created, updated, deleted, imported, finished …"""


def record_change(connection: Connection, kind: ChangeKind, subject: str, action: str) -> None:
    """Write a line in the transaction at hand, as the last thing it does: lines of others wait until it ends.

    Or a line could become visible after one with a higher number, and whoever has read that would never see it.
    """
    Database.lock(connection, Lock.CHANGES)
    row = {"at": timestamp(), "kind": kind, "subject": escape_text(subject), "action": action}
    (number,) = connection.execute(insert(changes), row).inserted_primary_key or (0,)
    if number % 100 == 0:
        connection.execute(delete(changes).where(changes.c.change_no <= number - KEPT_CHANGES))


class Changes(StorePart):
    """The lines of a store."""

    def first(self) -> int:
        """Return the oldest number that is kept; 0 where there is none."""
        return int(self._value(select(func.coalesce(func.min(changes.c.change_no), 0))))

    def last(self) -> int:
        """Return the newest number; 0 where nothing has changed yet."""
        return int(self._value(select(func.coalesce(func.max(changes.c.change_no), 0))))

    def after(self, number: int, limit: int = 500) -> list[Change]:
        """Return what came after a number, oldest first."""
        query = select(changes).where(changes.c.change_no > number).order_by(changes.c.change_no).limit(limit)
        return [Change(row[0], row[1], row[2], unescape_text(row[3]), row[4]) for row in self._rows(query)]
