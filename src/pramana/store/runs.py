"""The store's questions and answers: a plan and its cases in, runs, cases, results and counts out.

Everything long is streamed: each chunk is read in a short transaction of its own, so memory stays flat and nobody's
write waits for a reader. Runs are made in one transaction or not at all. Results are written by `writer.py` alone.
"""

import hashlib
import json
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain, product
from typing import Any, Literal, TypeVar

from sqlalchemy import Connection, RowMapping, and_, case, delete, func, insert, or_, select, update

from pramana import settings
from pramana.errors import AlreadyRunning, NotFound, StoreFailed, did_you_mean, quote
from pramana.hash import PREFIX, case_digest
from pramana.jsonl import canonical
from pramana.model import Case, Key, Outcome, Plan, Result, Run, RunStatus, Spent
from pramana.store import lease, records
from pramana.store.blobs import Blobs
from pramana.store.changes import Changes
from pramana.store.engine import CHUNK, Database, chunks
from pramana.store.lease import Lease
from pramana.store.preferences import Decisions
from pramana.store.schema import cases, checks, results, run_cases, runs, scorings
from pramana.store.scoring import (
    Rescoring,
    count_outcomes,
    finished_scorings,
    newest_checks,
    spent_on_checks,
    timestamp,
)
from pramana.store.sounds import Sounds
from pramana.store.text import restored_or_none, stored, stored_or_none
from pramana.store.tokens import Tokens
from pramana.store.writer import Writer

_INSERT_CASES = "INSERT INTO cases (digest, body) VALUES (?, ?) ON CONFLICT DO NOTHING"
_INSERT_RUN_CASES = (
    "INSERT INTO run_cases (run_no, position, case_no, source_file, source_line)"
    " SELECT ?, ?, case_no, ?, ? FROM cases WHERE digest = ? ON CONFLICT DO NOTHING"
)


_Column = TypeVar("_Column")
_CaseRow = tuple[int, str, str, str | None, int | None]
"""Position, digest and body of a case of a run, and where it was read."""
_Prepared = tuple[str, str, str | None, int | None]
"""Digest and body of a case, and where it was read."""


class Store:
    """Every run, case, result and check there is. Safe to share among threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.blobs = Blobs(settings.home() / "blobs")
        """Recordings and logs: files, wherever the rows are."""
        self.sounds = Sounds(settings.home() / "audio", self.blobs)
        self.changes = Changes(database)
        self.decisions = Decisions(database)
        self.tokens = Tokens(database)

    @property
    def kind(self) -> Literal["sqlite", "postgresql"]:
        return "sqlite" if self._database.is_sqlite else "postgresql"

    def close(self) -> None:
        self._database.close()

    # ── Runs ──

    def create_run(self, plan: Plan, cases: Iterable[Case], *, owner: Literal["cli", "server"] = "cli") -> Run:
        """Store a plan and its cases, each case once however often it is given, and return the run to be done."""
        with _set_down(cases) as prepared, self._database.writing() as connection:
            self._database.lock_cases(connection)
            created = timestamp()
            row = {
                "id": _new_id(connection),
                "owner": owner,
                "status": "running",
                "created": created,
                "notes": "{}",
                "plan": records.to_json(records.plan_to_plain(plan)),
                "plan_digest": "",
                "expected": 0,
                "stored": 0,
                "attempts": 0,
            }
            (run_no,) = connection.execute(insert(runs), row).inserted_primary_key or (0,)
            first = {"run_no": run_no, "scoring": 0, "label": "run", "created": created, "finished": created}
            connection.execute(insert(scorings), first)
            self._add_cases(connection, run_no, prepared)
            digest, count = hashlib.sha256(canonical(records.plan_to_plain(plan))), 0
            for each in _digests(connection, run_no):
                digest.update(each.encode())
                count += 1
            models = {target.typed for target in plan.targets}
            expected = count * len(models) * len(plan.variants) * plan.repeats
            row |= {"plan_digest": PREFIX + digest.hexdigest(), "expected": expected}
            connection.execute(update(runs).where(runs.c.run_no == run_no), row)
        return self.run(str(row["id"]))

    def run(self, reference: str) -> Run:
        """Return the run of an id, of the beginning of one, or the `latest`."""
        if not reference:
            raise NotFound("a run is named by its id, by the beginning of one, or as latest; the name is empty")
        newest = select(runs).order_by(runs.c.run_no.desc())
        with self._database.reading() as connection:
            if reference == "latest":
                if found := connection.execute(newest.limit(1)).mappings().first():
                    return _run(found)
                raise NotFound("there is no run yet; start one: pramana run")
            beginning = runs.c.id.startswith(stored(reference), autoescape=True)
            matches = connection.execute(newest.where(beginning).limit(4)).mappings().all()
            for found in matches:
                if found["id"] == reference or len(matches) == 1:
                    return _run(found)
            if matches:
                some = ", ".join(found["id"] for found in matches[:3])
                raise NotFound(f"{quote(reference)} begins the ids of several runs ({some} …); type more of it")
            known = connection.scalars(select(runs.c.id).order_by(runs.c.run_no.desc()).limit(200))
            raise NotFound(f"there is no run {quote(reference)}{did_you_mean(reference, known)}; see: pramana runs")

    def runs(self, limit: int = 50) -> list[Run]:
        """Return the runs, newest first."""
        with self._database.reading() as connection:
            newest = select(runs).order_by(runs.c.run_no.desc()).limit(limit)
            return [_run(row) for row in connection.execute(newest).mappings()]

    def finish(
        self, run_id: str, status: RunStatus, reason: str | None = None, notes: Mapping[str, Any] | None = None
    ) -> None:
        """Record how a run ended; notes are added to those there are. Its lease ends too."""
        with self._database.writing() as connection:
            row = _row(connection, run_id, lock=True)
            kept = records.from_json(row["notes"]) | dict(notes or {})
            values = {
                "status": status,
                "finished": None if status == "running" else timestamp(),
                "reason": stored_or_none(reason),
                "notes": records.to_json(kept),
                "lease_holder": None,
                "lease_until": None,
            }
            connection.execute(update(runs).where(runs.c.run_no == row["run_no"]), values)

    def delete_run(self, run_id: str) -> None:
        """Delete a run, its results and their checks, and each case that no other run uses."""
        with self._database.writing() as connection:
            self._database.lock_cases(connection)
            run_no = _row(connection, run_id, lock=True)["run_no"]
            mine = select(results.c.seq).where(results.c.run_no == run_no)
            others = run_cases.alias()
            shared = select(1).where(others.c.case_no == run_cases.c.case_no, others.c.run_no != run_no).exists()
            asked = select(run_cases.c.case_no).where(run_cases.c.run_no == run_no)
            orphans = connection.scalars(asked.where(~shared)).all()
            connection.execute(delete(checks).where(checks.c.seq.in_(mine)))
            for table in (results, scorings, run_cases, runs):
                connection.execute(delete(table).where(table.c.run_no == run_no))
            for some in chunks(orphans):
                connection.execute(delete(cases).where(cases.c.case_no.in_(some)))

    # ── The lease: who is working on a run ──

    def hold(self, run_id: str, on_lost: Callable[[AlreadyRunning], None]) -> Lease:
        """Return this process's hold on a run, to be entered as a context; told when another process has taken it."""
        return Lease(self, run_id, on_lost)

    def claim(self, run_id: str, owner: str, seconds: float = lease.SECONDS) -> bool:
        """Take an unfinished run that nobody holds, or whose holder is gone or late; exactly one of many succeeds.

        `owner` names the holder, one process. A claimed run is `running` again; each claim counts as an attempt.
        """
        with self._database.writing() as connection:
            row = _row(connection, run_id, lock=True)
            now = self._database.now(connection)
            until, holder = row["lease_until"], restored_or_none(row["lease_holder"])
            free = until is None or until <= now or holder is None or lease.is_gone(holder)
            if row["status"] == "finished" or not free:
                return False
            values = {
                "status": "running",
                "finished": None,
                "reason": None,
                "lease_holder": stored(owner),
                "lease_until": now + seconds,
                "heartbeat": now,
                "attempts": row["attempts"] + 1,
            }
            connection.execute(update(runs).where(runs.c.run_no == row["run_no"]), values)
            return True

    def heartbeat(self, run_id: str, owner: str | None = None, seconds: float = lease.SECONDS) -> bool:
        """Say that the run is still worked on, and prolong its lease; False when the owner named holds it no more."""
        with self._database.writing() as connection:
            row = _row(connection, run_id, lock=True)
            now = self._database.now(connection)
            values: dict[str, Any] = {"heartbeat": now}
            if owner is not None and row["lease_holder"] != stored(owner):
                return False
            if row["lease_holder"] is not None:
                values["lease_until"] = now + seconds
            connection.execute(update(runs).where(runs.c.run_no == row["run_no"]), values)
            return True

    def release(self, run_id: str, owner: str) -> None:
        """End the lease, if it is still the owner's: the next need not wait."""
        with self._database.writing() as connection:
            mine = update(runs).where(runs.c.id == stored(run_id), runs.c.lease_holder == stored(owner))
            connection.execute(mine, {"lease_holder": None, "lease_until": None})

    def holder(self, run_id: str) -> str | None:
        """Return the name of who holds the run; None when nobody does."""
        with self._database.reading() as connection:
            return restored_or_none(_row(connection, run_id)["lease_holder"])

    def attempts(self, run_id: str) -> int:
        """Return how often the run was claimed."""
        with self._database.reading() as connection:
            return int(_row(connection, run_id)["attempts"])

    def expired(self, owner: Literal["cli", "server"] = "server") -> list[Run]:
        """Return the running runs of a kind of owner that nobody holds any more, oldest first."""
        with self._database.reading() as connection:
            over = or_(runs.c.lease_until.is_(None), runs.c.lease_until <= self._database.now(connection))
            left = select(runs).where(runs.c.owner == owner, runs.c.status == "running", over)
            return [_run(row) for row in connection.execute(left.order_by(runs.c.run_no)).mappings()]

    # ── Cases ──

    def cases(self, run_id: str) -> Iterator[Case]:
        """Yield the cases of a run in order."""
        for chunk in self._case_chunks(self._number(run_id)):
            for _, _, body, file, line in chunk:
                yield records.case_from_json(body, file, line)

    def pending(self, run_id: str, model: str | None = None) -> Iterator[tuple[Key, Case]]:
        """Yield what has no result yet: for each case in order, each model (or the one typed so), each repeat."""
        return chain.from_iterable(self.pending_chunks(run_id, model))

    def pending_chunks(self, run_id: str, model: str | None = None) -> Iterator[Iterator[tuple[Key, Case]]]:
        """Yield the same by the chunk: what blocks is done when a chunk is drawn, cases are made as it is read."""
        with self._database.reading() as connection:
            found = _row(connection, run_id)
        plan = _plan(found)
        models = tuple(dict.fromkeys(target.typed for target in plan.targets if model in (None, target.typed)))
        asked = run_cases.join(
            results, and_(results.c.case_no == run_cases.c.case_no, results.c.run_no == run_cases.c.run_no)
        )
        columns = (run_cases.c.position, results.c.model, results.c.variant, results.c.repeat)
        there = select(*columns).select_from(asked).where(run_cases.c.run_no == found["run_no"])

        def lacking(rows: Sequence[_CaseRow], done: set[tuple[Any, ...]]) -> Iterator[tuple[Key, Case]]:
            for position, digest, body, file, line in rows:
                one = None
                for typed, variant, repeat in product(models, plan.variants, range(plan.repeats)):
                    if not done or (position, stored(typed), stored(variant), repeat) not in done:
                        one = one or records.case_from_json(body, file, line)
                        yield Key(digest, typed, variant, repeat), one

        done: set[tuple[Any, ...]] = set()
        for chunk in self._case_chunks(found["run_no"], 2 * CHUNK):
            if found["stored"]:  # else nobody has asked anything yet, and what is asked from now on was drawn here
                within = there.where(run_cases.c.position.between(chunk[0][0], chunk[-1][0]))
                with self._database.reading() as connection:
                    done = {tuple(row) for row in connection.execute(within)}
            yield lacking(chunk, done)

    # ── Results ──

    def results(self, run_id: str, after: int = 0, scoring: int | None = None) -> Iterator[tuple[int, Result]]:
        """Yield the results stored after a sequence number, with the checks each had last, or had as of a scoring."""
        with self._database.reading() as connection:
            run_no = _row(connection, run_id)["run_no"]
            among = finished_scorings(connection, run_no, scoring)
        columns = [results.c[name] for name in records.RESULT_COLUMNS]
        query = select(results.c.seq, cases.c.digest, *columns)
        query = query.join_from(results, cases, cases.c.case_no == results.c.case_no)
        query = query.where(results.c.run_no == run_no).order_by(results.c.seq).limit(CHUNK)
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(query.where(results.c.seq > after)).all()
                judged = newest_checks(connection, [row[0] for row in rows], among) if rows else {}
            if not rows:
                return
            for row in rows:
                yield row[0], records.result_from_row(row[1], row[2:], tuple(judged.get(row[0], ())))
            after = rows[-1][0]

    def pairs(self, run_id: str, scoring: int | None = None) -> Iterator[tuple[Case, Result]]:
        """Yield each result with its case, in the order of storing."""
        for some in chunks(self.results(run_id, scoring=scoring)):
            digests = {result.key.case for _, result in some}
            with self._database.reading() as connection:
                rows = connection.execute(select(cases.c.digest, cases.c.body).where(cases.c.digest.in_(digests)))
                known = {digest: records.case_from_json(body, None, None) for digest, body in rows}
            for _, result in some:
                yield known[result.key.case], result

    def counts(self, run_id: str, scoring: int | None = None) -> Mapping[Outcome, int]:
        """Return how many results ended how, by the checks each had last, or had as of a scoring."""
        with self._database.reading() as connection:
            found = count_outcomes(connection, _row(connection, run_id)["run_no"], scoring)
        return {outcome: found.get(outcome, 0) for outcome in Outcome}

    def scoring(self, run_id: str, label: str) -> Rescoring:
        """Return a new scoring, to be entered as a context: its checks are added beside those there are.

        Nobody sees them until the context ends. A result without new checks keeps those it had.
        """
        return Rescoring(self._database, self._number(run_id), label)

    def spent(self, run_id: str) -> Spent:
        """Return what the replies of a run have cost, with the checks that came with them."""
        unknown_tokens = and_(results.c.input_tokens.is_(None), results.c.output_tokens.is_(None))
        tokens = func.coalesce(results.c.input_tokens, 0) + func.coalesce(results.c.output_tokens, 0)
        sums = (
            func.coalesce(func.sum(results.c.cost_usd), 0.0),
            func.coalesce(func.sum(tokens), 0),
            func.coalesce(func.sum(case((results.c.cost_usd.is_(None), 1), else_=0)), 0),
            func.coalesce(func.sum(case((unknown_tokens, 1), else_=0)), 0),
        )
        with self._database.reading() as connection:
            run_no = _row(connection, run_id)["run_no"]
            replies = select(*sums).where(
                results.c.run_no == run_no, results.c.output.is_not(None), results.c.cached.is_(False)
            )
            cost, used, unpriced, uncounted = connection.execute(replies).one()
            judged = spent_on_checks(connection, run_no)
        return Spent(
            float(cost) + judged.cost_usd,
            int(used) + judged.tokens,
            bool(unpriced) or judged.unknown_cost,
            bool(uncounted) or judged.unknown_tokens,
        )

    def scorings(self, run_id: str) -> Mapping[int, str]:
        """Return the labels of the finished scorings by number; the first, number 0, came with the replies."""
        with self._database.reading() as connection:
            return finished_scorings(connection, _row(connection, run_id)["run_no"])

    def writer(self, run_id: str, on_stored: Callable[[list[tuple[int, Result]]], None]) -> Writer:
        """Return the writer of a run's results, to be entered as a context."""
        return Writer(self._database, self._number(run_id), on_stored)

    # ── Inside ──

    def _number(self, run_id: str) -> int:
        with self._database.reading() as connection:
            return int(_row(connection, run_id)["run_no"])

    def _add_cases(self, connection: Connection, run_no: int, prepared: Iterator[_Prepared]) -> None:
        position = 0
        for some in chunks(prepared):
            shared, mine = [], []
            for digest, body, file, line in some:
                shared.append((digest, body))
                mine.append((run_no, position, file, line, digest))
                position += 1
            self._database.run_many(connection, _INSERT_CASES, shared)
            self._database.run_many(connection, _INSERT_RUN_CASES, mine)

    def _case_chunks(self, run_no: int, size: int = CHUNK) -> Iterator[list[_CaseRow]]:
        position = -1
        columns = (run_cases.c.position, cases.c.digest, cases.c.body)
        read = (run_cases.c.source_file, run_cases.c.source_line)
        query = select(*columns, *read).join_from(run_cases, cases).where(run_cases.c.run_no == run_no)
        query = query.order_by(run_cases.c.position).limit(size)
        while True:
            with self._database.reading() as connection:
                found = self._database.in_one_row(connection, query.where(run_cases.c.position > position))
            if not found:
                return
            yield sorted(found)  # each is a list, and positions differ
            position = max(row[0] for row in found)


@contextmanager
def _set_down(given: Iterable[Case]) -> Iterator[Iterator[_Prepared]]:
    """Give the rows of cases from a file beside: nobody who writes must wait while they are read and checked."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        for each in given:
            source = each.source
            read = (None, None) if source is None else (stored(source.file), source.line)
            file.write(json.dumps((case_digest(each), records.case_to_json(each), *read)) + "\n")
        file.seek(0)
        yield (tuple(json.loads(line)) for line in file)


def _digests(connection: Connection, run_no: int) -> Iterator[str]:
    position = -1
    query = select(run_cases.c.position, cases.c.digest).join_from(run_cases, cases)
    query = query.where(run_cases.c.run_no == run_no).order_by(run_cases.c.position).limit(CHUNK)
    while rows := connection.execute(query.where(run_cases.c.position > position)).all():
        yield from (row.digest for row in rows)
        position = rows[-1].position


def _row(connection: Connection, run_id: str, *, lock: bool = False) -> RowMapping:
    query = select(runs).where(runs.c.id == stored(run_id))
    found = connection.execute(query.with_for_update() if lock else query).mappings().first()
    if found is None:
        raise NotFound(f"there is no run {quote(run_id)}; see: pramana runs")
    return found


def _new_id(connection: Connection) -> str:
    """Return an id that sorts by time and can be typed: date, time, and four digits against coincidence."""
    while True:
        new = f"r{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        if connection.execute(select(runs.c.run_no).where(runs.c.id == new)).first() is None:
            return new


def _run(row: RowMapping) -> Run:
    return Run(
        id=row["id"],
        plan=_plan(row),
        status=row["status"],
        created=row["created"],
        expected=row["expected"],
        stored=row["stored"],
        finished=row["finished"],
        reason=restored_or_none(row["reason"]),
        notes=_read(row, "notes", records.from_json),
    )


def _plan(row: RowMapping) -> Plan:
    return _read(row, "plan", records.plan_from_json)


def _read(row: RowMapping, column: str, read: Callable[[str], _Column]) -> _Column:
    """Read what is JSON in a run's row; others can write to the database too, and disks fail."""
    try:
        return read(row[column])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise StoreFailed(
            f"the column {column} of run {quote(str(row['id']))} is not as Pramana writes it "
            f"({type(error).__name__}): the store is damaged; go back to a copy of it"
        ) from error
