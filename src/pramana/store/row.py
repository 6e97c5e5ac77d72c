"""A run's row: found by its id, and read into a `Run`."""

from collections.abc import Callable
from typing import TypeVar

import msgspec
from sqlalchemy import Connection, RowMapping, select

from pramana.errors import Hint, NotFound, StoreFailed, quote
from pramana.model import Run
from pramana.store import records
from pramana.store.schema import runs
from pramana.store.text import restored_or_none, stored

_Column = TypeVar("_Column")
RunRef = Run | str
"""A run that was read, whose row need not be read again, or the id of one."""


def row_of(connection: Connection, run_id: str, *, lock: bool = False) -> RowMapping:
    """Return the row of a run; locked, nobody else changes it in the meantime."""
    query = select(runs).where(runs.c.id == stored(run_id))
    found = connection.execute(query.with_for_update() if lock else query).mappings().first()
    if found is None:
        raise NotFound(f"there is no run {quote(run_id)}", hint=Hint("list_runs"))
    return found


def read_run(connection: Connection, run: RunRef) -> Run:
    """Return a run; it is read only where an id is given."""
    return run if isinstance(run, Run) else run_of(row_of(connection, run))


def run_of(row: RowMapping) -> Run:
    """Return the run of a row; without its notes where they were not read."""
    return Run(
        id=row["id"],
        plan=_read(row, "plan", records.plan_from_json),
        status=row["status"],
        created=row["created"],
        expected=row["expected"],
        stored=row["stored"],
        finished=row["finished"],
        reason=restored_or_none(row["reason"]),
        notes=_read(row, "notes", records.from_json) if "notes" in row else {},
        owner=row["owner"],
        creator=restored_or_none(row["creator"]),
        limits={} if row["limits"] is None else _read(row, "limits", records.from_json),
        cancelled=row["cancelled"],
        attempts=row["attempts"],
        holder=restored_or_none(row["lease_holder"]),
        number=row["run_no"],
    )


def _read(row: RowMapping, column: str, read: Callable[[str], _Column]) -> _Column:
    """Read what is JSON in a run's row; others can write to the database too, and disks fail."""
    try:
        return read(row[column])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, msgspec.ValidationError) as error:
        raise StoreFailed(
            f"the column {column} of run {quote(str(row['id']))} is not as Pramana writes it "
            f"({type(error).__name__}): the store is damaged; go back to a copy of it"
        ) from error
