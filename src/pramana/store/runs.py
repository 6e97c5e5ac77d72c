"""Runs: a plan and its cases in; a run by its ID, or a page of runs out. A page never reads the notes of runs.

A run is created in one transaction or not at all. A case is stored once by its digest; a run refers to its cases by
position. Long reads are streamed: each chunk is read in a short transaction, so memory stays flat and readers do not
block writers.
"""

import hashlib
import json
import re
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict, replace
from sqlalchemy import ColumnElement, Connection, RowMapping, and_, delete, func, insert, or_, select, true, update

from pramana import clock
from pramana.errors import Hint, NotFound, quote_text, suggest_similar
from pramana.hash import HASH_PREFIX, hash_case
from pramana.jsonl import to_canonical_json
from pramana.model import Case, Plan, ResultKey, Run, RunStatus
from pramana.request import RunEdit, check_struct_values
from pramana.store.engine import CHUNK_ROWS, Database, LockKey, StorePart, record_change, split_into_chunks, timestamp
from pramana.store.queue import (
    LEASE_S,
    find_current_reason,
    find_current_status,
    is_abandoned,
    make_current_run,
    refuse_if_held,
)
from pramana.store.records import (
    RunRef,
    case_from_json,
    case_to_json,
    encode_json_column,
    escape_optional_text,
    escape_or_none_if_blank,
    escape_text,
    plan_to_plain,
    read_run,
    read_run_row,
    unescape_text,
)
from pramana.store.schema import cases, checks, labels, rejudgements, results, run_cases, run_models, runs, scorings
from pramana.store.scoring import read_effective_scoring_labels

_INSERT_CASES = "INSERT INTO cases (digest, body) VALUES (?, ?) ON CONFLICT DO NOTHING"
_INSERT_RUN_CASES = (
    "INSERT INTO run_cases (run_no, position, case_no, source_file, source_line)"
    " SELECT ?, ?, case_no, ?, ? FROM cases WHERE digest = ? ON CONFLICT DO NOTHING"
)
_CaseRow = tuple[int, str, str, str | None, int | None]
"""Position, digest, body, source file and source line of a case of a run."""
PreparedCase = tuple[str, str, str | None, int | None]
"""Digest, body, source file and source line of a case."""


class Cases(StorePart):
    """The cases of runs."""

    def iterate(self, run: RunRef) -> Iterator[Case]:
        """Yield the cases of a run in order."""
        with self._database.read_transaction() as connection:
            run_no = read_run(connection, run).number
        for chunk in self._iterate_chunks(run_no):
            for _, _, body, file, line in chunk:
                yield case_from_json(body, file, line)

    def iterate_pending_chunks(
        self, run: RunRef, model: str | None = None
    ) -> Iterator[Iterator[tuple[ResultKey, Case]]]:
        """Yield pending keys with their cases, in chunks: by case, model (only `model` if set), variant and repeat.

        Fetching a chunk blocks on the database; iterating over it only decodes cases.
        """
        with self._database.read_transaction() as connection:
            found = read_run(connection, run if isinstance(run, str) else run.id)  # more may be stored by now
        plan = found.plan
        models = tuple(dict.fromkeys(target.typed for target in plan.targets if model in (None, target.typed)))
        asked = run_cases.join(
            results, and_(results.c.case_no == run_cases.c.case_no, results.c.run_no == run_cases.c.run_no)
        )
        columns = (run_cases.c.position, results.c.model, results.c.variant, results.c.repeat)
        there = select(*columns).select_from(asked).where(run_cases.c.run_no == found.number)

        def iterate_missing(rows: Sequence[_CaseRow], done: set[tuple[Any, ...]]) -> Iterator[tuple[ResultKey, Case]]:
            for position, digest, body, file, line in rows:
                one = None
                for typed, variant, repeat in product(models, plan.variants, range(plan.repeats)):
                    if not done or (position, escape_text(typed), escape_text(variant), repeat) not in done:
                        one = one or case_from_json(body, file, line)
                        yield ResultKey(digest, typed, variant, repeat), one

        done: set[tuple[Any, ...]] = set()
        for chunk in self._iterate_chunks(found.number, 2 * CHUNK_ROWS):
            if found.stored:  # else the run is new, and all later requests come from this iterator
                within = there.where(run_cases.c.position.between(chunk[0][0], chunk[-1][0]))
                with self._database.read_transaction() as connection:
                    done = {tuple(row) for row in connection.execute(within)}
            yield iterate_missing(chunk, done)

    def _iterate_chunks(self, run_no: int, row_count: int = CHUNK_ROWS) -> Iterator[list[_CaseRow]]:
        position = -1
        columns = (run_cases.c.position, cases.c.digest, cases.c.body)
        read = (run_cases.c.source_file, run_cases.c.source_line)
        query = select(*columns, *read).join_from(run_cases, cases).where(run_cases.c.run_no == run_no)
        query = query.order_by(run_cases.c.position).limit(row_count)
        while True:
            with self._database.read_transaction() as connection:
                found = self._database.fetch_as_json(connection, query.where(run_cases.c.position > position))
            if not found:
                return
            yield sorted(found)  # rows are lists and positions are unique, so this sorts by position
            position = max(row[0] for row in found)

    def find_positions(self, run: RunRef, digests: Iterable[str]) -> dict[str, int]:
        """Return the positions of some cases in the run's order of cases, by digest."""
        columns = select(cases.c.digest, run_cases.c.position).join_from(run_cases, cases)
        found: dict[str, int] = {}
        with self._database.read_transaction() as connection:
            mine = columns.where(run_cases.c.run_no == read_run(connection, run).number)
            for some in split_into_chunks(digests):
                rows = connection.execute(mine.where(cases.c.digest.in_(some)))
                found.update((row.digest, row.position) for row in rows)
        return found


@contextmanager
def prepare_cases(cases: Iterable[Case]) -> Iterator[Iterator[PreparedCase]]:
    """Yield the rows of cases from a temporary file, so that no writer waits while cases are read and validated."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        for each in cases:
            source = each.source
            read = (None, None) if source is None else (escape_text(source.file), source.line)
            file.write(json.dumps((hash_case(each), case_to_json(each), *read)) + "\n")
        file.seek(0)
        yield (tuple(json.loads(line)) for line in file)


def add_cases_and_yield_digests(
    database: Database, connection: Connection, run_no: int, rows: Iterator[PreparedCase]
) -> Iterator[str]:
    """Store the cases of a new run, each once even if it is repeated; yield their digests in order."""
    position = 0
    for some in split_into_chunks(rows):
        shared, mine = [], []
        for digest, body, file, line in some:
            shared.append((digest, body))
            mine.append((run_no, position, file, line, digest))
            position += 1
        database.run_many(connection, _INSERT_CASES, shared)
        database.run_many(connection, _INSERT_RUN_CASES, mine)
    position = -1
    query = select(run_cases.c.position, cases.c.digest).join_from(run_cases, cases)
    query = query.where(run_cases.c.run_no == run_no).order_by(run_cases.c.position).limit(CHUNK_ROWS)
    while found := connection.execute(query.where(run_cases.c.position > position)).all():
        yield from (row.digest for row in found)
        position = found[-1].position


# ── Runs ──

_INSERT_MODELS = "INSERT INTO run_models (run_no, role, model) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_LEASE_COLUMNS = ("status", "owner", "lease_holder", "lease_until")
"""The columns that decide whether a process still works on a run."""
_HIGHEST_CHARACTER = "\U0010ffff"
MAX_REFERENCE_LENGTH = 1_000
"""Characters of a reference to a run: more than an id or the name of a run has."""


class RunState(Struct, frozen=True):
    """Status and progress of a run."""

    run_no: int
    status: RunStatus
    stored_count: int
    expected_count: int
    reason: str | None
    is_cancel_requested: bool


def _make_name_part_condition(name_part: str) -> ColumnElement[bool]:
    """Return the condition that a run's name has some part, in upper or lower case."""
    return runs.c.name.ilike(f"%{_escape_like_pattern(escape_text(name_part))}%", escape="\\")


def _make_whole_name_condition(name: str) -> ColumnElement[bool]:
    """Return the condition that a run has this whole name, in upper or lower case."""
    return runs.c.name.ilike(_escape_like_pattern(escape_text(name)), escape="\\")


RunHook = Callable[[Connection, str], None]
"""Called with the ID of a new run in the transaction that creates it; an exception undoes everything."""


class Runs(StorePart):
    """The runs of a store."""

    def create(
        self,
        plan: Plan,
        cases: Iterable[Case],
        *,
        owner: Literal["cli", "server"] = "cli",
        creator: str | None = None,
        limits: Mapping[str, Any] | None = None,
        name: str | None = None,
        note: str | None = None,
        holder: str | None = None,
        hook: RunHook | None = None,
    ) -> Run:
        """Store a plan and its cases, each case once even if it is repeated, and return the new run.

        A server's run is queued, with its limits, until a server takes it. With a `holder`, the run is claimed for that
        process from the start. `hook` stores what must exist exactly if the run does.
        """
        with prepare_cases(cases) as rows, self._database.write_transaction() as connection:
            self._database.lock(connection, LockKey.SHARING_CASES)
            created = timestamp()
            row: dict[str, Any] = {
                "id": _make_run_id(connection),
                "owner": owner,
                "status": "queued" if owner == "server" and holder is None else "running",
                "created": created,
                "notes": "{}",
                "plan": encode_json_column(plan_to_plain(plan)),
                "plan_digest": "",
                "expected": 0,
                "stored": 0,
                "attempts": 0,
                "creator": escape_optional_text(creator),
                "limits": None if limits is None else encode_json_column(dict(limits)),
                "suite": escape_text(plan.suite),
                "selection": encode_json_column(dict(plan.selection)) if plan.selection else None,
                "name": escape_or_none_if_blank(name),
                "note": escape_or_none_if_blank(note),
            }
            if holder is not None:
                now = self._database.read_clock(connection)
                row |= {
                    "lease_holder": escape_text(holder),
                    "lease_until": now + LEASE_S,
                    "heartbeat": now,
                    "attempts": 1,
                }
            (run_no,) = connection.execute(insert(runs), row).inserted_primary_key or (0,)
            first = {"run_no": run_no, "scoring": 0, "label": "run", "created": created, "finished": created}
            connection.execute(insert(scorings), first)
            self._database.run_many(connection, _INSERT_MODELS, _make_model_rows(run_no, plan))
            digest, count = hashlib.sha256(to_canonical_json(plan_to_plain(plan))), 0
            for each in add_cases_and_yield_digests(self._database, connection, run_no, rows):
                digest.update(each.encode())
                count += 1
            models = {target.typed for target in plan.targets}
            expected = count * len(models) * len(plan.variants) * plan.repeats
            if plan.pairing:  # which prompts are sent again is drawn while it runs
                expected = plan.pairing.max_calls
            elif plan.search:
                expected = plan.search.max_calls
            row |= {"plan_digest": HASH_PREFIX + digest.hexdigest(), "expected": expected}
            connection.execute(update(runs).where(runs.c.run_no == run_no), row)
            if hook is not None:
                hook(connection, str(row["id"]))
            record_change(connection, "run", str(row["id"]), "created")
        return self.read(str(row["id"]))

    def read(self, run_id: str) -> Run:
        """Return a run by its complete ID."""
        with self._database.read_transaction() as connection:
            return self._run_from_row(connection, read_run_row(connection, run_id))

    def find(self, reference: str) -> Run:
        """Return a run by its ID, by the start of its ID, by its name in upper or lower case, or as `latest`.

        An ID, or a start that only one ID has, is preferred to a name.
        """
        if not reference:
            raise NotFound("no run is named; pass an ID, the beginning of an ID, a name, or latest")
        if len(reference) > MAX_REFERENCE_LENGTH:
            raise NotFound(f"there is no run {quote_text(reference)}", hint=Hint("list_runs"))
        newest = select(runs).order_by(runs.c.run_no.desc())
        with self._database.read_transaction() as connection:
            if reference == "latest":
                if found := connection.execute(newest.limit(1)).mappings().first():
                    return self._run_from_row(connection, found)
                raise NotFound("there is no run yet", hint=Hint("start_run"))
            beginning = runs.c.id.startswith(escape_text(reference), autoescape=True)
            matches = connection.execute(newest.where(beginning).limit(4)).mappings().all()
            for found in matches:
                if found["id"] == reference or len(matches) == 1:
                    return self._run_from_row(connection, found)
            same_name = (
                connection.execute(newest.where(_make_whole_name_condition(reference)).limit(4)).mappings().all()
            )
            if len(same_name) == 1:
                return self._run_from_row(connection, same_name[0])
            if same_name:
                some = ", ".join(found["id"] for found in same_name[:3]) + (" …" if len(same_name) > 3 else "")
                raise NotFound(f"several runs are named {quote_text(reference)} ({some}); pass the ID of one")
            if matches:
                some = ", ".join(found["id"] for found in matches[:3])
                raise NotFound(f"{quote_text(reference)} matches several runs ({some} …); type more of the ID")
            message = f"there is no run {quote_text(reference)}"
            if (
                named := connection.execute(newest.where(_make_name_part_condition(reference)).limit(1))
                .mappings()
                .first()
            ):
                name = quote_text(unescape_text(named["name"]))
                raise NotFound(f"{message}; did you mean {named['id']}, the run named {name}?", hint=Hint("list_runs"))
            known = connection.scalars(select(runs.c.id).order_by(runs.c.run_no.desc()).limit(200))
            raise NotFound(f"{message}{suggest_similar(reference, known)}", hint=Hint("list_runs"))

    def find_baseline(self, reference: str, other_than: str | None = None) -> Run:
        """Return the run to compare others with: if several have this name, the newest finished one.

        So a name is a baseline that moves with each run that gets it. `other_than` is the ID of a run to leave out.
        """
        try:
            return self.find_as_of_scoring(reference)
        except NotFound:
            found = self._find_newest_finished(reference, runs.c.id != other_than if other_than is not None else true())
            if found is None:
                raise
            return found

    def find_earlier_baseline(self, reference: str, checked: Run) -> Run:
        """Return the baseline of a run: of those with this name that began before it, the newest finished one.

        So the baseline stays when later runs get the name. An ID, or its beginning, may name a later run.
        """
        try:
            found = self.find_as_of_scoring(reference)
        except NotFound:
            earlier = self._find_newest_finished(reference, self._make_began_before_condition(checked))
            if earlier is None:
                raise
            return earlier
        named_by_id = reference == "latest" or found.id.startswith(reference.rpartition("@")[0] or reference)
        if not named_by_id and found.id != checked.id and not self._began_before(found, checked):
            raise NotFound(
                f"no run named {quote_text(reference)} began before run {checked.id}; to check it against the later "
                f"run {found.id}, pass this ID"
            )
        return found

    def _find_newest_finished(self, name: str, condition: ColumnElement[bool]) -> Run | None:
        """Return the newest finished run of this name that meets a condition."""
        named = select(runs).where(
            _make_whole_name_condition(name[:MAX_REFERENCE_LENGTH]), runs.c.status == "finished", condition
        )
        with self._database.read_transaction() as connection:
            found = connection.execute(named.order_by(runs.c.run_no.desc()).limit(1)).mappings().first()
            return None if found is None else self._run_from_row(connection, found)

    def _began_before(self, run: Run, checked: Run) -> bool:
        condition = and_(runs.c.id == run.id, self._make_began_before_condition(checked))
        with self._database.read_transaction() as connection:
            return connection.execute(select(runs.c.run_no).where(condition)).first() is not None

    def _make_began_before_condition(self, checked: Run) -> ColumnElement[bool]:
        """Return the condition that a run began before another one, which may be in another store."""
        with self._database.read_transaction() as connection:
            number = connection.scalar(select(runs.c.run_no).where(runs.c.id == checked.id))
        return runs.c.created < checked.created if number is None else runs.c.run_no < number

    def find_as_of_scoring(self, reference: str) -> Run:
        """Return a run by a reference; `RUN@1` is the run as of its scoring 1.

        A name may end in `@1` too; the scoring of another run is preferred to it.
        """
        name, mark, number = reference.rpartition("@")
        if not mark:
            return self.find(reference)
        try:
            return self._find_run_as_of_scoring(reference, name, number)
        except NotFound:
            if not self._is_name(reference):
                raise
        return self.find(reference)

    def _find_run_as_of_scoring(self, reference: str, run_reference: str, scoring_number: str) -> Run:
        """Return a run as of one of its scorings."""
        if not re.fullmatch(r"[0-9]{1,9}", scoring_number):
            raise NotFound(
                f"{quote_text(reference)} is not a scoring; write RUN@1",
                hint=Hint("list_scorings", run_reference or "RUN"),
            )
        run = self.find(run_reference)
        with self._database.read_transaction() as connection:
            read_effective_scoring_labels(connection, run.number, int(scoring_number))
        return replace(run, scoring=int(scoring_number))

    def _is_name(self, reference: str) -> bool:
        """Return whether a reference is the whole name of a run, or of several."""
        if len(reference) > MAX_REFERENCE_LENGTH:
            return False
        with self._database.read_transaction() as connection:
            return (
                connection.execute(select(runs.c.run_no).where(_make_whole_name_condition(reference)).limit(1)).first()
                is not None
            )

    def read_page(
        self,
        *,
        status: str | None = None,
        model: str | None = None,
        suite: str | None = None,
        text: str | None = None,
        name: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> tuple[list[Run], int]:
        """Return a page of runs, newest first and without notes, and the total.

        `name` is a part of the name that a user gave a run, in upper or lower case.
        """
        wanted: list[ColumnElement[bool]] = []
        if name:
            wanted.append(_make_name_part_condition(name))
        if model is not None:
            of_model = and_(run_models.c.model == escape_text(model), run_models.c.role == "target")
            wanted.append(runs.c.run_no.in_(select(run_models.c.run_no).where(of_model)))
        if suite:
            begins = escape_text(suite)
            wanted.append(and_(runs.c.suite >= begins, runs.c.suite < begins + _HIGHEST_CHARACTER))
        if text is not None:
            in_json, plain = (
                f"%{_escape_like_pattern(each)}%" for each in (encode_json_column(text)[1:-1], escape_text(text))
            )
            columns = (runs.c.id, runs.c.suite, runs.c.reason, runs.c.creator, runs.c.name, runs.c.note)
            named = select(run_models.c.run_no).where(run_models.c.model.ilike(plain, escape="\\"))
            some = [column.ilike(plain, escape="\\") for column in columns]
            wanted.append(or_(runs.c.selection.ilike(in_json, escape="\\"), runs.c.run_no.in_(named), *some))
        page = select(*[column for column in runs.c if column.name != "notes"])
        page = page.order_by(runs.c.run_no.desc()).limit(limit).offset(offset)
        with self._database.read_transaction() as connection:
            wanted += [self._make_status_condition(connection, status)] if status is not None else []
            total = connection.execute(select(func.count()).select_from(runs).where(*wanted)).scalar_one()
            found = connection.execute(page.where(*wanted)).mappings().all()
            return [self._run_from_row(connection, row) for row in found], int(total)

    def _make_status_condition(self, connection: Connection, status: str) -> ColumnElement[bool]:
        """Return the SQL condition for a status. Abandoned runs are queried first, as only Python can detect them."""
        columns = [runs.c[name] for name in ("run_no", *_LEASE_COLUMNS)]
        rows = connection.execute(select(*columns).where(runs.c.status == "running")).mappings().all()
        now = self._read_lease_clock(connection, rows)
        abandoned = {row["run_no"]: find_current_status(row, now) for row in rows if is_abandoned(row, now)}
        recorded = and_(runs.c.status == status, runs.c.run_no.not_in(abandoned))
        return or_(recorded, runs.c.run_no.in_([number for number, each in abandoned.items() if each == status]))

    def _run_from_row(self, connection: Connection, row: RowMapping) -> Run:
        """Return the run of a row, with its current status."""
        return make_current_run(row, self._read_lease_clock(connection, [row]))

    def _read_lease_clock(self, connection: Connection, rows: Sequence[RowMapping]) -> float:
        """Return the clock for leases; 0 if none of the runs can have a lease, which saves a query."""
        return self._database.read_clock(connection) if any(row["status"] == "running" for row in rows) else 0.0

    def read_states(self, run_ids: Iterable[str]) -> dict[str, RunState]:
        """Return status and progress of some runs; deleted runs are left out."""
        names = ("id", "run_no", "stored", "expected", "reason", "cancelled", *_LEASE_COLUMNS)
        query = select(*[runs.c[name] for name in names])
        with self._database.read_transaction() as connection:
            query = query.where(runs.c.id.in_([escape_text(each) for each in run_ids]))
            rows = connection.execute(query).mappings().all()
            now = self._read_lease_clock(connection, rows)
        return {
            row["id"]: RunState(
                run_no=row["run_no"],
                status=find_current_status(row, now),
                stored_count=row["stored"],
                expected_count=row["expected"],
                reason=find_current_reason(row, now),
                is_cancel_requested=row["cancelled"] is not None,
            )
            for row in rows
        }

    def edit(self, run_id: str, changes: RunEdit) -> Run:
        """Change the name or the note of a run; empty text removes it."""
        check_struct_values(changes)
        stated = {
            field: escape_or_none_if_blank(value) for field, value in asdict(changes).items() if value is not None
        }
        with self._database.write_transaction() as connection:
            row = read_run_row(connection, run_id, lock=True)
            if stated:
                connection.execute(update(runs).where(runs.c.run_no == row["run_no"]), stated)
                record_change(connection, "run", row["id"], "updated")
        return self.read(run_id)

    def list_models(self) -> list[str]:
        """Return the models that runs have tested, as they were typed."""
        query = select(run_models.c.model).where(run_models.c.role == "target").distinct()
        with self._database.read_transaction() as connection:
            return sorted(map(unescape_text, connection.scalars(query)))

    def delete(self, run_id: str, *, unless_held: bool = False) -> None:
        """Delete a run, its results and their checks, and each case that no other run uses.

        `unless_held` raises `AlreadyRunning` while a process works on the run.
        """
        with self._database.write_transaction() as connection:
            self._database.lock(connection, LockKey.SHARING_CASES)
            row = read_run_row(connection, run_id, lock=True)
            if unless_held:
                refuse_if_held(row, self._database.read_clock(connection))
            run_no = row["run_no"]
            mine = select(results.c.seq).where(results.c.run_no == run_no)
            others = run_cases.alias()
            shared = select(1).where(others.c.case_no == run_cases.c.case_no, others.c.run_no != run_no).exists()
            asked = select(run_cases.c.case_no).where(run_cases.c.run_no == run_no)
            orphans = connection.scalars(asked.where(~shared)).all()
            connection.execute(delete(checks).where(checks.c.seq.in_(mine)))
            connection.execute(delete(labels).where(labels.c.seq.in_(mine)))
            connection.execute(delete(rejudgements).where(rejudgements.c.seq.in_(mine)))
            for table in (results, scorings, run_cases, run_models, runs):
                connection.execute(delete(table).where(table.c.run_no == run_no))
            for some in split_into_chunks(orphans):
                connection.execute(delete(cases).where(cases.c.case_no.in_(some)))
            record_change(connection, "run", row["id"], "deleted")


def _make_model_rows(run_no: int, plan: Plan) -> list[tuple[int, str, str]]:
    """Return the rows of a plan's models."""
    others = (*(("judge", each) for each in plan.judges), ("embedder", plan.embedder), ("stt", plan.stt))
    named = (*(("target", each) for each in plan.targets), *others)
    return [(run_no, role, escape_text(each.typed)) for role, each in named if each]


def _make_run_id(connection: Connection) -> str:
    """Return an ID that sorts by time and can be typed: date, time, and four random digits."""
    while True:
        new = f"r{clock.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        if connection.execute(select(runs.c.run_no).where(runs.c.id == new)).first() is None:
            return new


def _escape_like_pattern(text: str) -> str:
    """Escape a text for LIKE, so that it matches itself only."""
    return re.sub(r"([\\%_])", r"\\\1", text)
