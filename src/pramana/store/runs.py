"""The store's questions and answers: a plan and its cases in, runs, cases, results and counts out.

Everything long is streamed: each chunk is read in a short transaction of its own, so memory stays flat and nobody's
write waits for a reader. Runs are made in one transaction or not at all. Results are written by `writer.py` alone.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import product
from typing import Any, Literal

from sqlalchemy import Connection, RowMapping, and_, delete, insert, or_, select, update

from pramana.errors import NotFound, did_you_mean, quote
from pramana.hash import PREFIX, case_digest
from pramana.jsonl import canonical
from pramana.model import Case, Check, Key, Outcome, Plan, Result, Run, RunStatus
from pramana.store import records
from pramana.store.engine import CHUNK, Database, chunks
from pramana.store.schema import cases, checks, results, run_cases, runs, scorings
from pramana.store.scoring import add_scoring, count_outcomes, finished_scorings, newest_checks, timestamp
from pramana.store.text import restored_or_none, stored, stored_or_none
from pramana.store.writer import Writer

LEASE_SECONDS = 60.0

_INSERT_CASES = "INSERT INTO cases (digest, body) VALUES (?, ?) ON CONFLICT DO NOTHING"
_INSERT_RUN_CASES = (
    "INSERT INTO run_cases (run_no, position, case_no, source_file, source_line)"
    " SELECT ?, ?, case_no, ?, ? FROM cases WHERE digest = ? ON CONFLICT DO NOTHING"
)


class Store:
    """Every run, case, result and check there is. Safe to share among threads."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def close(self) -> None:
        self._database.close()

    # ── Runs ──

    def create_run(self, plan: Plan, cases: Iterable[Case], *, owner: Literal["cli", "server"] = "cli") -> Run:
        """Store a plan and its cases, each case once however often it is given, and return the run to be done."""
        with self._database.writing() as connection:
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
            self._add_cases(connection, run_no, cases)
            digest, count = hashlib.sha256(canonical(records.plan_to_plain(plan))), 0
            for each in _digests(connection, run_no):
                digest.update(each.encode())
                count += 1
            models = {target.typed for target in plan.targets}
            row |= {"plan_digest": PREFIX + digest.hexdigest(), "expected": count * len(models) * plan.repeats}
            connection.execute(update(runs).where(runs.c.run_no == run_no), row)
        return self.run(str(row["id"]))

    def run(self, reference: str) -> Run:
        """Return the run of an id, of the beginning of one, or the `latest`."""
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

    def claim(self, run_id: str, owner: str, seconds: float = LEASE_SECONDS) -> bool:
        """Take an unfinished run that nobody holds, or whose holder's time is over; exactly one of many succeeds.

        `owner` names the holder, one process. A claimed run is `running` again; each claim counts as an attempt.
        """
        with self._database.writing() as connection:
            row = _row(connection, run_id, lock=True)
            now = self._database.now(connection)
            free = row["lease_until"] is None or row["lease_until"] <= now
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

    def heartbeat(self, run_id: str, owner: str | None = None, seconds: float = LEASE_SECONDS) -> bool:
        """Say that the run is still worked on, and prolong its lease; False when another has claimed it."""
        with self._database.writing() as connection:
            row = _row(connection, run_id, lock=True)
            now = self._database.now(connection)
            values: dict[str, Any] = {"heartbeat": now}
            if row["lease_holder"] is not None:
                if owner is not None and row["lease_holder"] != stored(owner):
                    return False
                values["lease_until"] = now + seconds
            connection.execute(update(runs).where(runs.c.run_no == row["run_no"]), values)
            return True

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
            for row in chunk:
                yield records.case_from_json(row.body, row.source_file, row.source_line)

    def pending(self, run_id: str, model: str | None = None) -> Iterator[tuple[Key, Case]]:
        """Yield what has no result yet: for each case in order, each model (or the one typed so), each repeat."""
        with self._database.reading() as connection:
            found = _row(connection, run_id)
        plan = records.plan_from_json(found["plan"])
        models = tuple(dict.fromkeys(target.typed for target in plan.targets if model in (None, target.typed)))
        asked = run_cases.join(
            results, and_(results.c.case_no == run_cases.c.case_no, results.c.run_no == run_cases.c.run_no)
        )
        columns = (run_cases.c.position, results.c.model, results.c.variant, results.c.repeat)
        there = select(*columns).select_from(asked).where(run_cases.c.run_no == found["run_no"])
        for chunk in self._case_chunks(found["run_no"]):
            first, last = chunk[0].position, chunk[-1].position
            with self._database.reading() as connection:
                done = {
                    tuple(row) for row in connection.execute(there.where(run_cases.c.position.between(first, last)))
                }
            for row in chunk:
                wanted = [
                    Key(row.digest, model, "text", repeat)
                    for model, repeat in product(models, range(plan.repeats))
                    if (row.position, stored(model), "text", repeat) not in done
                ]
                if wanted:
                    one = records.case_from_json(row.body, row.source_file, row.source_line)
                    for key in wanted:
                        yield key, one

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

    def add_scoring(self, run_id: str, label: str, checks: Iterable[tuple[Key, tuple[Check, ...]]]) -> int:
        """Add checks beside those there are and return the scoring's number.

        Nobody sees them until the last is stored. A result without new checks keeps those it had.
        """
        return add_scoring(self._database, self._number(run_id), label, checks)

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

    def _add_cases(self, connection: Connection, run_no: int, given: Iterable[Case]) -> None:
        position = 0
        for some in chunks(given):
            shared, mine = [], []
            for each in some:
                digest, source = case_digest(each), each.source
                shared.append((digest, records.case_to_json(each)))
                read = (None, None) if source is None else (stored(source.file), source.line)
                mine.append((run_no, position, *read, digest))
                position += 1
            self._database.run_many(connection, _INSERT_CASES, shared)
            self._database.run_many(connection, _INSERT_RUN_CASES, mine)

    def _case_chunks(self, run_no: int) -> Iterator[Sequence[Any]]:
        position = -1
        columns = (run_cases.c.position, cases.c.digest, cases.c.body)
        read = (run_cases.c.source_file, run_cases.c.source_line)
        query = select(*columns, *read).join_from(run_cases, cases).where(run_cases.c.run_no == run_no)
        query = query.order_by(run_cases.c.position).limit(CHUNK)
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(query.where(run_cases.c.position > position)).all()
            if not rows:
                return
            yield rows
            position = rows[-1].position


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
        plan=records.plan_from_json(row["plan"]),
        status=row["status"],
        created=row["created"],
        expected=row["expected"],
        stored=row["stored"],
        finished=row["finished"],
        reason=restored_or_none(row["reason"]),
        notes=records.from_json(row["notes"]),
    )
