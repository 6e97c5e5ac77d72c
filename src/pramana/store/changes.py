"""What is new: a line for each thing made, changed or removed, numbered, so that whoever watches asks what came after.

It is written in the transaction that makes the change: nobody hears of what was undone. Only the last lines are kept;
who was away for longer looks at everything anyway.
"""

from typing import Literal

import msgspec
from sqlalchemy import Connection, delete, func, insert, select

from pramana.store.engine import Database, Lock, Part
from pramana.store.schema import changes
from pramana.store.scoring import timestamp
from pramana.store.text import restored, stored

KEPT = 10_000
Kind = Literal["scenario", "suite", "provider", "run", "submission", "settings", "price"]


class Change(msgspec.Struct, frozen=True):
    """One thing that changed."""

    number: int
    at: str
    kind: str
    subject: str
    """Its id; of many at once, how many."""
    action: str
    """In one word: created, updated, deleted, imported, finished …"""


def record(connection: Connection, kind: Kind, subject: str, action: str) -> None:
    """Write a line in the transaction at hand, as the last thing it does: lines of others wait until it ends.

    Or a line could become visible after one with a higher number, and whoever has read that would never see it.
    """
    Database.lock(connection, Lock.CHANGES)
    row = {"at": timestamp(), "kind": kind, "subject": stored(subject), "action": action}
    (number,) = connection.execute(insert(changes), row).inserted_primary_key or (0,)
    if number % 100 == 0:
        connection.execute(delete(changes).where(changes.c.change_no <= number - KEPT))


class Changes(Part):
    """The lines of a store."""

    def first(self) -> int:
        """Return the oldest number that is kept; 0 where there is none."""
        with self._database.reading() as connection:
            return int(connection.execute(select(func.coalesce(func.min(changes.c.change_no), 0))).scalar_one())

    def last(self) -> int:
        """Return the newest number; 0 where nothing has changed yet."""
        with self._database.reading() as connection:
            return int(connection.execute(select(func.coalesce(func.max(changes.c.change_no), 0))).scalar_one())

    def after(self, number: int, limit: int = 500) -> list[Change]:
        """Return what came after a number, oldest first."""
        query = select(changes).where(changes.c.change_no > number).order_by(changes.c.change_no).limit(limit)
        with self._database.reading() as connection:
            rows = connection.execute(query).all()
        return [Change(row[0], row[1], row[2], restored(row[3]), row[4]) for row in rows]
