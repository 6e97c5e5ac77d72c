"""The one writer of a run: results in from the event loop, groups committed in a thread, sequence numbers out.

A result is committed at most 200 ms after it was put, in groups of at most 1,000, each group one transaction; only then
is it reported. Putting waits while 2,000 are queued. A second result of the same key is ignored and never reported.
Once another process holds the run, nothing more is stored. What could not be done surfaces at the next put and at the
end; a result that is no plain data costs itself alone and is told at the end. Nothing is swallowed, nothing is retried
here.

Rows are made on the event loop, which has just had the result in its hands: made in the thread, where every step waits
for the interpreter's lock, they cost four times as much. The thread only gives them to the database.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, Row, and_, bindparam, func, select, update

from pramana.errors import AlreadyRunning, NotFound, StoreFailed
from pramana.model import Key, Result
from pramana.store import records
from pramana.store.engine import Database
from pramana.store.lease import shown
from pramana.store.schema import cases, results, runs
from pramana.store.scoring import INSERT_CHECKS
from pramana.store.text import restored, restored_or_none, stored_or_none

QUEUE = 1_500
GROUP = 1_000
LINGER_SECONDS = 0.1
"""How long the first of a group waits for company: half of what is promised, the commit has the other half."""

Stored = list[tuple[int, Result]]

_INSERT_RESULTS = (
    f"INSERT INTO results (run_no, case_no, {', '.join(records.RESULT_COLUMNS)})"  # noqa: S608 - names of ours
    f" VALUES (?, (SELECT case_no FROM cases WHERE digest = ?), {', '.join('?' for _ in records.RESULT_COLUMNS)})"
    " ON CONFLICT DO NOTHING"
)

_run = bindparam("run", type_=results.c.run_no.type)
_HELD_BY = select(runs.c.id, runs.c.lease_holder).where(runs.c.run_no == _run).with_for_update()
"""The row is locked as well; in SQLite the whole file is."""
_LAST = select(func.coalesce(func.max(results.c.seq), 0)).where(results.c.run_no == _run)
_new = and_(results.c.run_no == _run, results.c.seq > bindparam("before"))
_NEW_RANGE = select(func.count(), func.min(results.c.seq), func.max(results.c.seq)).where(_new)
_NEW_SEQS = select(results.c.seq).where(_new).order_by(results.c.seq)
_NEW_KEYS = (
    select(cases.c.digest, results.c.model, results.c.variant, results.c.repeat)
    .join_from(results, cases, cases.c.case_no == results.c.case_no)
    .where(_new)
    .order_by(results.c.seq)
)
_COUNT = update(runs).where(runs.c.run_no == _run).values(stored=runs.c.stored + bindparam("more"))

_Kept = tuple[Result, tuple[Any, ...], list[tuple[Any, ...]]]
"""A result, its row and the rows of its checks."""


class Writer:
    """Takes the results of one run; leaving its context stores what is still queued."""

    def __init__(
        self, database: Database, run_no: int, on_stored: Callable[[Stored], None], owner: str | None = None
    ) -> None:
        self._database, self._run_no, self._on_stored = database, run_no, on_stored
        self._owner = stored_or_none(owner)
        self._queue: list[_Kept] = []
        self._error: Exception | None = None
        self._flaw: StoreFailed | None = None
        self._closing = False
        self._something, self._enough, self._room = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "pramana-store")
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._work())
        return self

    async def put(self, results: Sequence[Result]) -> None:
        """Queue results; waits only while the queue is full."""
        queue = self._queue
        while len(queue) >= QUEUE and self._error is None:
            self._room.clear()
            await self._room.wait()
        if self._error is not None:
            raise self._error
        for result in results:
            try:
                row = (self._run_no, result.key.case, *records.result_to_row(result))
                queue.append((result, row, [records.check_to_row(check) for check in result.checks]))
            except (TypeError, ValueError, RecursionError) as found:
                told = f"the result of {result.key} is not plain data and was not stored: {found}"
                self._flaw = self._flaw or StoreFailed(told)
        if queue:
            self._something.set()
        if len(queue) >= GROUP:
            self._enough.set()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._something.set()
        self._enough.set()
        cancelled: asyncio.CancelledError | None = None
        while self._task and not self._task.done():
            try:
                await asyncio.wait({self._task})
            except asyncio.CancelledError as again:  # what was put is stored first, however often we are told to stop
                cancelled = again
        self._thread.shutdown()
        if self._error is not None and self._error is not error:
            raise self._error
        if cancelled:
            raise cancelled
        if self._flaw and error is None:
            raise self._flaw

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        queue, oldest = self._queue, 0.0
        try:
            while self._error is None:
                if not queue:
                    await self._something.wait()
                    if not queue:
                        return
                    oldest = loop.time()
                if len(queue) < GROUP and not self._closing:
                    self._enough.clear()
                    alarm = loop.call_at(oldest + LINGER_SECONDS, self._enough.set)
                    await self._enough.wait()
                    alarm.cancel()
                oldest = loop.time()  # of what is left or comes while this group is committed
                group = queue[:GROUP]
                stored = await loop.run_in_executor(self._thread, self._commit, group)
                del queue[: len(group)]  # only now: until it is stored it counts as queued
                if not queue and not self._closing:
                    self._something.clear()
                self._room.set()
                if stored:
                    self._on_stored(stored)
        except Exception as error:  # noqa: BLE001 - handed to whoever puts next, and to whoever leaves
            self._error = error
        finally:
            self._room.set()

    def _commit(self, kept: Sequence[_Kept]) -> Stored:
        with self._database.writing() as connection:
            # The run's row is locked first: with one writer at a time, whatever is new afterwards is ours.
            self._refuse_if_lost(connection)
            this = {"run": self._run_no, "before": connection.execute(_LAST, {"run": self._run_no}).scalar_one()}
            self._database.run_many(connection, _INSERT_RESULTS, [row for _, row, _ in kept])
            number, first, last = connection.execute(_NEW_RANGE, this).one()
            whole = number > 0 and last - first + 1 == number
            seqs = range(first, last + 1) if whole else connection.scalars(_NEW_SEQS, this).all()
            if number != len(kept):
                by_key = {each[0].key: each for each in reversed(kept)}  # of two that are alike the first was stored
                kept = [by_key[_key(row)] for row in connection.execute(_NEW_KEYS, this)]
            made = [
                (seq, 0, position, *check)
                for seq, (_, _, of_it) in zip(seqs, kept, strict=True)
                for position, check in enumerate(of_it)
            ]
            self._database.run_many(connection, INSERT_CHECKS, made)
            connection.execute(_COUNT, {"run": self._run_no, "more": number})
        return [(seq, result) for seq, (result, _, _) in zip(seqs, kept, strict=True)]

    def _refuse_if_lost(self, connection: Connection) -> None:
        """Raise when the run is another's by now: what it holds is asked and stored by that one."""
        run = connection.execute(_HELD_BY, {"run": self._run_no}).one_or_none()
        if run is None:
            raise NotFound("the run was deleted while its results were stored")
        if run.lease_holder != self._owner:
            holder = restored_or_none(run.lease_holder)
            who = shown(holder) if holder else "nobody"
            raise AlreadyRunning(f"{who} works on run {run.id} now: this process stores nothing more of it")


def _key(row: Row[Any, Any, Any, Any]) -> Key:
    case, model, variant, repeat = row
    return Key(case, restored(model), restored(variant), repeat)
