"""Runs: a plan and its cases in, the run of an id or a page of them out. A list of runs never reads their notes.

Runs are made in one transaction or not at all.
"""

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import Struct
from sqlalchemy import Connection, and_, delete, func, insert, or_, select, update

from pramana import clock
from pramana.errors import Hint, NotFound, did_you_mean, quote
from pramana.hash import PREFIX
from pramana.jsonl import canonical
from pramana.model import Case, Plan, Run, RunStatus
from pramana.store import records
from pramana.store.cases import add_cases, prepared
from pramana.store.changes import record
from pramana.store.engine import Part, chunks
from pramana.store.queue import refuse_if_held
from pramana.store.row import row_of, run_of
from pramana.store.schema import cases, checks, results, run_cases, run_models, runs, scorings
from pramana.store.scoring import timestamp
from pramana.store.text import stored, stored_or_none

_INSERT_MODELS = "INSERT INTO run_models (run_no, role, model) VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_LAST_CHARACTER = "\U0010ffff"


class State(Struct, frozen=True):
    """How far a run is."""

    run_no: int
    status: RunStatus
    stored: int
    expected: int
    reason: str | None
    cancelled: bool


class Runs(Part):
    """The runs of a store."""

    def create(
        self,
        plan: Plan,
        cases: Iterable[Case],
        *,
        owner: Literal["cli", "server"] = "cli",
        creator: str | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> Run:
        """Store a plan and its cases, each case once however often it is given, and return the run to be done.

        One of a server is queued, with what it may spend, until a server takes it.
        """
        with prepared(cases) as rows, self._database.writing() as connection:
            self._database.lock_cases(connection)
            created = timestamp()
            row = {
                "id": _new_id(connection),
                "owner": owner,
                "status": "queued" if owner == "server" else "running",
                "created": created,
                "notes": "{}",
                "plan": records.to_json(records.plan_to_plain(plan)),
                "plan_digest": "",
                "expected": 0,
                "stored": 0,
                "attempts": 0,
                "creator": stored_or_none(creator),
                "limits": None if limits is None else records.to_json(dict(limits)),
                "suite": stored(plan.suite),
                "selection": records.to_json(dict(plan.selection)) if plan.selection else None,
            }
            (run_no,) = connection.execute(insert(runs), row).inserted_primary_key or (0,)
            first = {"run_no": run_no, "scoring": 0, "label": "run", "created": created, "finished": created}
            connection.execute(insert(scorings), first)
            self._database.run_many(connection, _INSERT_MODELS, _models(run_no, plan))
            digest, count = hashlib.sha256(canonical(records.plan_to_plain(plan))), 0
            for each in add_cases(self._database, connection, run_no, rows):
                digest.update(each.encode())
                count += 1
            models = {target.typed for target in plan.targets}
            expected = count * len(models) * len(plan.variants) * plan.repeats
            row |= {"plan_digest": PREFIX + digest.hexdigest(), "expected": expected}
            connection.execute(update(runs).where(runs.c.run_no == run_no), row)
            record(connection, "run", str(row["id"]), "created")
        return self.read(str(row["id"]))

    def read(self, run_id: str) -> Run:
        """Return the run of an id; only a whole id will do."""
        with self._database.reading() as connection:
            return run_of(row_of(connection, run_id))

    def find(self, reference: str) -> Run:
        """Return the run of an id, of the beginning of one, or the `latest`."""
        if not reference:
            raise NotFound("a run is named by its id, by the beginning of one, or as latest; the name is empty")
        newest = select(runs).order_by(runs.c.run_no.desc())
        with self._database.reading() as connection:
            if reference == "latest":
                if found := connection.execute(newest.limit(1)).mappings().first():
                    return run_of(found)
                raise NotFound("there is no run yet", hint=Hint("start_run"))
            beginning = runs.c.id.startswith(stored(reference), autoescape=True)
            matches = connection.execute(newest.where(beginning).limit(4)).mappings().all()
            for found in matches:
                if found["id"] == reference or len(matches) == 1:
                    return run_of(found)
            if matches:
                some = ", ".join(found["id"] for found in matches[:3])
                raise NotFound(f"{quote(reference)} begins the ids of several runs ({some} …); type more of it")
            known = connection.scalars(select(runs.c.id).order_by(runs.c.run_no.desc()).limit(200))
            message = f"there is no run {quote(reference)}{did_you_mean(reference, known)}"
            raise NotFound(message, hint=Hint("list_runs"))

    def page(
        self,
        *,
        status: str | None = None,
        model: str | None = None,
        suite: str | None = None,
        text: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> tuple[list[Run], int]:
        """Return some runs, newest first, and how many there are in all; without their notes."""
        wanted = []
        if status is not None:
            wanted.append(runs.c.status == status)
        if model is not None:
            of_model = and_(run_models.c.model == stored(model), run_models.c.role == "target")
            wanted.append(runs.c.run_no.in_(select(run_models.c.run_no).where(of_model)))
        if suite:
            begins = stored(suite)
            wanted.append(and_(runs.c.suite >= begins, runs.c.suite < begins + _LAST_CHARACTER))
        if text is not None:
            in_json, plain = (f"%{_like(each)}%" for each in (records.to_json(text)[1:-1], stored(text)))
            columns = (runs.c.id, runs.c.suite, runs.c.reason, runs.c.creator)
            named = select(run_models.c.run_no).where(run_models.c.model.ilike(plain, escape="\\"))
            some = [column.ilike(plain, escape="\\") for column in columns]
            wanted.append(or_(runs.c.selection.ilike(in_json, escape="\\"), runs.c.run_no.in_(named), *some))
        page = select(*[column for column in runs.c if column.name != "notes"])
        page = page.where(*wanted).order_by(runs.c.run_no.desc()).limit(limit).offset(offset)
        with self._database.reading() as connection:
            total = connection.execute(select(func.count()).select_from(runs).where(*wanted)).scalar_one()
            return [run_of(row) for row in connection.execute(page).mappings()], int(total)

    def states(self, run_ids: Iterable[str]) -> dict[str, State]:
        """Return how far some runs are; those that are gone are left out."""
        columns = [runs.c[name] for name in ("id", "run_no", "status", "stored", "expected", "reason")]
        query = select(*columns, runs.c.cancelled.is_not(None))
        with self._database.reading() as connection:
            rows = connection.execute(query.where(runs.c.id.in_([stored(each) for each in run_ids])))
            return {run_id: State(*rest) for run_id, *rest in rows}

    def delete(self, run_id: str, *, unless_held: bool = False) -> None:
        """Delete a run, its results and their checks, and each case that no other run uses.

        `unless_held` refuses that while somebody works on it.
        """
        with self._database.writing() as connection:
            self._database.lock_cases(connection)
            row = row_of(connection, run_id, lock=True)
            if unless_held:
                refuse_if_held(row, self._database.now(connection))
            run_no = row["run_no"]
            mine = select(results.c.seq).where(results.c.run_no == run_no)
            others = run_cases.alias()
            shared = select(1).where(others.c.case_no == run_cases.c.case_no, others.c.run_no != run_no).exists()
            asked = select(run_cases.c.case_no).where(run_cases.c.run_no == run_no)
            orphans = connection.scalars(asked.where(~shared)).all()
            connection.execute(delete(checks).where(checks.c.seq.in_(mine)))
            for table in (results, scorings, run_cases, run_models, runs):
                connection.execute(delete(table).where(table.c.run_no == run_no))
            for some in chunks(orphans):
                connection.execute(delete(cases).where(cases.c.case_no.in_(some)))
            record(connection, "run", row["id"], "deleted")


def _models(run_no: int, plan: Plan) -> list[tuple[int, str, str]]:
    """Return the rows of the models of a plan."""
    others = (("judge", plan.judge), ("embedder", plan.embedder), ("stt", plan.stt))
    named = (*(("target", each) for each in plan.targets), *others)
    return [(run_no, role, stored(each.typed)) for role, each in named if each]


def _new_id(connection: Connection) -> str:
    """Return an id that sorts by time and can be typed: date, time, and four digits against coincidence."""
    while True:
        new = f"r{clock.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        if connection.execute(select(runs.c.run_no).where(runs.c.id == new)).first() is None:
            return new


def _like(text: str) -> str:
    """Return a text as a pattern that finds it alone."""
    return re.sub(r"([\\%_])", r"\\\1", text)
