"""A database URL in, a database with the latest schema out: connections, transactions and the log of changes.

One SQLite file is shared by several processes: write-ahead log, `synchronous=FULL`, and write transactions that start
with BEGIN IMMEDIATE, so that two writers wait for each other instead of failing. No driver exception leaves this stage:
database errors are raised as `StoreFailed`.

Everything created, changed or deleted adds a numbered row (`record_change`), so that watchers can fetch what is newer
than the last row they have. It is written in the same transaction as the change, so a rolled-back change is never
announced. Only the latest rows are kept; a watcher that has missed more reloads everything.
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
from pramana.installation import make_install_command
from pramana.store.records import escape_text, unescape_text
from pramana.store.schema import LATEST_MIGRATION, changes, metadata

_Item = TypeVar("_Item")

BUSY_TIMEOUT_S = 30
CHECKPOINT_PAGES = 8_192
"""Pages of SQLite's write-ahead log (32 MB) before a checkpoint: eight times the default, so fewer checkpoints."""
CHUNK_ROWS = 256
"""Rows per query: few enough not to block an event loop noticeably, many enough to make the query's overhead
negligible."""
_BAD_URL_MESSAGE = "the database URL is neither sqlite:////path/to/file nor postgresql://user@host/name"
_FIRST_LOCK_KEY = 0x5072616D
"""The letters "Pram" as a prefix, because other programs may use advisory locks in the same database."""


@unique
class LockKey(IntEnum):
    """Keys of PostgreSQL's advisory locks; each is unique.

    SQLite needs none: it has one writer at a time.
    """

    MIGRATING = _FIRST_LOCK_KEY
    SHARING_CASES = _FIRST_LOCK_KEY + 1
    CHANGES = _FIRST_LOCK_KEY + 2
    SCENARIOS = _FIRST_LOCK_KEY + 3
    SUBMISSIONS = _FIRST_LOCK_KEY + 4
    SUITES = _FIRST_LOCK_KEY + 5


SQLITE_POOL = {"pool_size": 20, "max_overflow": 40, "pool_use_lifo": True}
POSTGRESQL_POOL = {"pool_size": 10, "max_overflow": 20, "pool_use_lifo": True}
"""Connections to keep, and how many more to allow: enough for all threads of a server, its runs and its maintenance, so
that none waits for a connection. PostgreSQL allows a hundred in total for all processes."""
CONNECT_TIMEOUT_S = 10


_CREATE_VERSION_TABLE = (
    "CREATE TABLE alembic_version"
    " (version_num VARCHAR(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num))"
)
"""The statement that Alembic uses."""
_TAKE_LOCK_QUERY = text("SELECT pg_advisory_xact_lock(:key)")
ROWS_PER_INSERT = (100, 20, 4)
"""Rows per INSERT statement in SQLite. At 25 values a row, 100 rows stay well under its limit of 32,766 values;
remaining rows use smaller batches."""


@cache
def _make_multi_row_statement(statement: str, row_count: int) -> str | None:
    """Return the statement for `row_count` rows at once; None if it does not have the form `… VALUES (…) …`."""
    head, values, rest = statement.partition(" VALUES ")
    row, conflict, tail = rest.partition(" ON CONFLICT")
    return f"{head}{values}{', '.join([row] * row_count)}{conflict}{tail}" if values else None


class Database:
    """A database engine with its read and write transactions."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writer = engine.execution_options(pramana_writes=True)
        self._single_statement_engine = engine.execution_options(pramana_once=True)
        self.is_sqlite = engine.dialect.name == "sqlite"
        self.on_commit: list[Callable[[], None]] = []
        """Callbacks to run after each commit of this process, in the thread that committed: watchers need not poll."""

    @contextmanager
    def read_transaction(self) -> Iterator[Connection]:
        """Open a read transaction; keep it short, because a long one stops the write-ahead log from shrinking."""
        with _explain_errors(), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def connect_for_one_statement(self) -> Iterator[Connection]:
        """Open a connection for one statement; in SQLite without a transaction, which would double the cost.

        It also avoids releasing the GIL for BEGIN, which costs far more beside a busy event loop.
        """
        with _explain_errors(), self._single_statement_engine.connect() as connection:
            yield connection

    @contextmanager
    def write_transaction(self) -> Iterator[Connection]:
        """Open a write transaction; commit it when the block ends, roll it back when the block raises."""
        with _explain_errors(), self._writer.begin() as connection:
            yield connection
        for each in self.on_commit:
            each()

    def run(self, connection: Connection, statement: str, values: Any) -> Any:
        """Run a statement with `?` placeholders through the driver, once or for each row of a list."""
        return connection.exec_driver_sql(statement if self.is_sqlite else statement.replace("?", "%s"), values)

    def run_many(self, connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run a statement with `?` placeholders for each row through the driver, the fastest way."""
        if not self.is_sqlite:
            if rows:
                self.run(connection, statement, list(rows))
            return
        # Python's sqlite3 releases the GIL for each row, and the event loop takes it. With many rows per statement, the
        # two threads contend for it a hundred times less.
        done = 0
        for size in ROWS_PER_INSERT:
            while len(rows) - done >= size and (many := _make_multi_row_statement(statement, size)):
                connection.exec_driver_sql(many, tuple(chain.from_iterable(rows[done : done + size])))
                done += size
        if done < len(rows):
            connection.exec_driver_sql(statement, list(rows[done:]))

    def fetch_as_json(self, connection: Connection, query: Select[Any]) -> Sequence[Any]:
        """Return the rows of a query as lists; the database serialises all of them into one JSON text.

        Python's sqlite3 also releases the GIL for each row that it reads, and beside a busy event loop a thread waits
        each time to get it back.
        """
        rows = query.subquery()
        array, gather = ("json_array", "json_group_array") if self.is_sqlite else ("json_build_array", "json_agg")
        as_text = select(cast(getattr(func, gather)(getattr(func, array)(*rows.c)), Text)).select_from(rows)
        found = connection.execute(as_text).scalar_one()
        decoded: list[Any] = msgspec.json.decode(found) if found else []
        return decoded

    @staticmethod
    def lock(connection: Connection, key: LockKey) -> None:
        """Wait for an advisory lock of PostgreSQL; does nothing in SQLite, which has one writer."""
        if connection.dialect.name == "postgresql":
            connection.execute(_TAKE_LOCK_QUERY, {"key": int(key)})

    def read_clock(self, connection: Connection) -> float:
        """Return the clock for leases: that of the database server, because several machines may share it."""
        if self.is_sqlite:
            return clock.timestamp()
        return float(connection.execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())

    def migrate(self) -> None:
        """Migrate the schema to the latest version, once, even if several processes open the store at the same time."""
        with self.read_transaction() as connection:
            if _read_schema_version(connection) == LATEST_MIGRATION:
                return
        with self.write_transaction() as connection:
            self.lock(connection, LockKey.MIGRATING)
            if (version := _read_schema_version(connection)) is None:
                _create_schema(connection)
            elif version != LATEST_MIGRATION:
                _upgrade_schema(connection)

    def release_connections(self) -> None:
        """Close idle connections, and free their caches and prepared statements."""
        self._engine.dispose()

    def close(self) -> None:
        """Close all connections; one that a thread still uses is closed when it is returned."""
        event.listen(self._engine, "checkin", lambda _, entry: entry.invalidate())
        self.release_connections()


class StorePart:
    """One part of a store, such as its runs; all parts share one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def _fetch_rows(self, query: Select[Any]) -> Sequence[Any]:
        """Return the rows of a query, run in a read transaction by itself."""
        with self._database.read_transaction() as connection:
            return connection.execute(query).all()

    def _fetch_value(self, query: Select[Any]) -> Any:
        """Return the first value of a query, run in a read transaction by itself; None if there is no row."""
        with self._database.read_transaction() as connection:
            return connection.execute(query).scalar()


def open_database(url: str | URL) -> Database:
    """Connect, create the folder of an SQLite file, and migrate the schema."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # ValueError: the port is not a number
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
    with suppress(OSError):  # it exists, or SQLite reports why it cannot; its log gets the file's mode
        settings.open_private_file(path).close()
    engine = create_engine(
        url.set(drivername="sqlite+pysqlite"),
        connect_args={"timeout": BUSY_TIMEOUT_S},
        **SQLITE_POOL,
    )

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None  # the driver must not start transactions itself
        try:
            _enable_write_ahead_log(connection)
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
            connection.execute("PRAGMA foreign_keys=ON")
        except sqlite3.Error:
            connection.close()  # the pool never gets this connection, so would not close it
            raise

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if not options.get("pramana_once"):
            connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("pramana_writes") else "BEGIN")

    return engine


def _enable_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch the file to a write-ahead log; retry while it is locked, as SQLite's timeout does not apply here."""
    give_up = clock.monotonic() + BUSY_TIMEOUT_S
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
            connect_args={} if "connect_timeout" in url.query else {"connect_timeout": CONNECT_TIMEOUT_S},
            pool_pre_ping=True,
            **POSTGRESQL_POOL,
        )
    except ModuleNotFoundError as error:
        raise StoreFailed(f"PostgreSQL needs one more package: {make_install_command('postgres')}") from error


def _read_schema_version(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def _create_schema(connection: Connection) -> None:
    """Create the latest schema in an empty database, equal to all migrations together, without importing Alembic."""
    metadata.create_all(connection, checkfirst=False)
    connection.execute(text(_CREATE_VERSION_TABLE))
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
    """Return the current time in UTC, as ISO 8601."""
    return clock.now().isoformat(timespec="milliseconds")


def split_into_chunks(items: Iterable[_Item]) -> Iterator[list[_Item]]:
    """Yield the items in lists of `CHUNK_ROWS`."""
    iterator = iter(items)
    while some := list(islice(iterator, CHUNK_ROWS)):
        yield some


@contextmanager
def _explain_errors() -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        said = str(getattr(error, "orig", None) or error).strip().partition("\n")[0]
        advice = next((advice for message, advice in _ADVICE_BY_MESSAGE.items() if message in said), "")
        raise StoreFailed(f"the database failed: {said}{advice}") from error


_ADVICE_BY_MESSAGE = {
    "database or disk is full": "; free some space: stored data is kept",
    "database is locked": "; another program is writing to it: try again when that program has ended",
}
"""What to do about an error of the database, by its message."""


# ── The log of changes ──

MAX_STORED_CHANGES = 10_000
ChangeKind = Literal["scenario", "suite", "provider", "run", "submission", "settings", "price", "watch"]


class Change(msgspec.Struct, frozen=True):
    """One change of the store."""

    number: int
    at: str
    kind: str
    subject: str
    """ID of what changed; for several at once, their number."""
    action: str
    """One word: created, updated, deleted, imported, finished …"""


def record_change(connection: Connection, kind: ChangeKind, subject: str, action: str) -> None:
    """Record a change in the current transaction. Call it last, because it locks out other changes until the commit.

    Without the lock, a row could become visible after one with a higher number, and watchers would miss it.
    """
    Database.lock(connection, LockKey.CHANGES)
    row = {"at": timestamp(), "kind": kind, "subject": escape_text(subject), "action": action}
    (number,) = connection.execute(insert(changes), row).inserted_primary_key or (0,)
    if number % 100 == 0:
        connection.execute(delete(changes).where(changes.c.change_no <= number - MAX_STORED_CHANGES))


class Changes(StorePart):
    """The log of changes of a store."""

    def first_number(self) -> int:
        """Return the number of the oldest change kept; 0 if there is none."""
        return int(self._fetch_value(select(func.coalesce(func.min(changes.c.change_no), 0))))

    def last_number(self) -> int:
        """Return the number of the latest change; 0 if there is none."""
        return int(self._fetch_value(select(func.coalesce(func.max(changes.c.change_no), 0))))

    def list_after(self, change_number: int, limit: int = 500) -> list[Change]:
        """Return the changes after a number, oldest first."""
        query = select(changes).where(changes.c.change_no > change_number).order_by(changes.c.change_no).limit(limit)
        return [Change(row[0], row[1], row[2], unescape_text(row[3]), row[4]) for row in self._fetch_rows(query)]
