"""Runs and results by the page, and what is new of a run: short questions that stay short in a large store.

A list of runs never reads their notes, a list of results neither the raw responses nor all of an answer. Results are
found by the index of their run first, and only those of the page are read.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, Select, and_, func, null, or_, select

from pramana.errors import NotFound, quote
from pramana.model import SEVERITY, Case, Outcome, Result, Run, RunStatus
from pramana.store import records
from pramana.store.engine import Database
from pramana.store.row import plan_of, row_of, run_of
from pramana.store.schema import cases, results, run_models, runs
from pramana.store.scoring import finished_scorings, levels, newest_checks
from pramana.store.text import stored

EXCERPT = 400
"""Characters of an answer that a list shows."""
_CUT_OFF = re.compile("\ufdd0[0-9a-f]{0,3}$")
_LAST_CHARACTER = "\U0010ffff"
_Seqs = Select[Any]


class State(Struct, frozen=True):
    """How far a run is."""

    run_no: int
    status: RunStatus
    stored: int
    expected: int
    reason: str | None
    cancelled: bool


class Pages:
    """Lists of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def run(self, run_id: str) -> Run:
        """Return the run of an id; only a whole id will do."""
        with self._database.reading() as connection:
            return run_of(row_of(connection, run_id))

    def runs(
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
        page = (
            select(*[column for column in runs.c if column.name != "notes"])
            .where(*wanted)
            .order_by(runs.c.run_no.desc())
            .limit(limit)
            .offset(offset)
        )
        with self._database.reading() as connection:
            total = connection.execute(select(func.count()).select_from(runs).where(*wanted)).scalar_one()
            return [run_of(row) for row in connection.execute(page).mappings()], int(total)

    def results(
        self,
        run_id: str,
        *,
        outcome: Outcome | None = None,
        model: str | None = None,
        case: str | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> tuple[list[tuple[int, Result]], int]:
        """Return some results of a run in the order of storing, each with the start of its answer, and the total."""
        with self._database.reading() as connection:
            run = row_of(connection, run_id)
            run_no, whole = int(run["run_no"]), int(run["stored"])
            among = finished_scorings(connection, run_no)
            models = {target.typed for target in plan_of(run).targets}
            if model is not None and model not in models:
                return [], 0
            model = None if models == {model} else model  # all of them are: the index alone will do
            wanted = self._wanted(run_no, list(among), outcome, model, case)
            judged_again = outcome is not None and list(among) != [0]
            if case is not None or judged_again:  # no index has that: to count them and to find them is one look
                every = connection.scalars(wanted.order_by(results.c.seq)).all()
                return _read(connection, every[offset : offset + limit], among), len(every)
            if outcome is None and model is None:
                total = whole
            else:
                total = int(connection.execute(select(func.count()).select_from(wanted.subquery())).scalar_one())
            seqs = [row[0] for row in connection.execute(wanted.order_by(results.c.seq).limit(limit).offset(offset))]
            return _read(connection, seqs, among), total

    def _wanted(
        self, run_no: int, among: Sequence[int], outcome: Outcome | None, model: str | None, case: str | None
    ) -> _Seqs:
        """Return the query of the numbers that are wanted; without a filter on texts, the index alone answers it."""
        query = select(results.c.seq).where(results.c.run_no == run_no)
        if outcome is not None and among == [0]:
            query = query.where(results.c.outcome == outcome.value)
        elif outcome is not None:
            judged = levels(run_no, among).subquery()
            query = query.join(judged, judged.c.seq == results.c.seq).where(judged.c.level == SEVERITY.index(outcome))
        if model is not None:
            query = query.where(results.c.model == stored(model))
        if case is not None and case.startswith("sha256:"):
            query = query.where(
                results.c.case_no == select(cases.c.case_no).where(cases.c.digest == stored(case)).scalar_subquery()
            )
        elif case is not None:
            query = query.where(results.c.case_id == stored(case))
        return query

    def result(self, run_id: str, seq: int) -> tuple[Case, Result]:
        """Return a result of a run, all of it, and its case."""
        with self._database.reading() as connection:
            run_no = int(row_of(connection, run_id)["run_no"])
            mine = select(results.c.case_no).where(results.c.seq == seq, results.c.run_no == run_no)
            case_no = connection.execute(mine).scalar_one_or_none()
            if case_no is None:
                raise NotFound(f"run {quote(run_id)} has no result {seq}")
            body = connection.execute(select(cases.c.body).where(cases.c.case_no == case_no)).scalar_one()
            among = finished_scorings(connection, run_no)
            ((_, found),) = _read(connection, [seq], among, whole=True)
        return records.case_from_json(body), found

    def beside(self, run_id: str, seq: int, outcome: Outcome | None = None) -> tuple[int | None, int | None]:
        """Return the numbers of the results before and after one, or of the nearest that ended so; None at an end."""
        with self._database.reading() as connection:
            run_no = int(row_of(connection, run_id)["run_no"])
            among = list(finished_scorings(connection, run_no))
            if outcome is not None and among != [0]:
                query: _Seqs = levels(run_no, among)
                query = query.having(query.selected_columns.level == SEVERITY.index(outcome))
            else:
                query = self._wanted(run_no, among, outcome, None, None)
            before = query.where(results.c.seq < seq).order_by(results.c.seq.desc()).limit(1)
            after = query.where(results.c.seq > seq).order_by(results.c.seq).limit(1)
            return connection.execute(before).scalar(), connection.execute(after).scalar()

    # ── What is new ──

    def states(self, run_ids: Iterable[str]) -> dict[str, State]:
        """Return how far some runs are; those that are gone are left out."""
        columns = (
            runs.c.id,
            runs.c.run_no,
            runs.c.status,
            runs.c.stored,
            runs.c.expected,
            runs.c.reason,
            runs.c.cancelled,
        )
        query = select(*columns).where(runs.c.id.in_([stored(each) for each in run_ids]))
        with self._database.reading() as connection:
            return {row[0]: State(*row[1:6], row[6] is not None) for row in connection.execute(query)}

    def last(self, run_no: int) -> int:
        """Return the number of the newest result of a run; 0 where there is none."""
        newest = select(func.coalesce(func.max(results.c.seq), 0)).where(results.c.run_no == run_no)
        with self._database.reading() as connection:
            return int(connection.execute(newest).scalar_one())

    def after(self, run_no: int, seq: int, limit: int = 500) -> list[tuple[int, Result]]:
        """Return the results of a run that were stored after a number, each with the beginning of its answer."""
        mine = select(results.c.seq).where(results.c.run_no == run_no, results.c.seq > seq)
        with self._database.reading() as connection:
            seqs = connection.scalars(mine.order_by(results.c.seq).limit(limit)).all()
            return _read(connection, seqs, [0]) if seqs else []


def _read(
    connection: Connection, seqs: Sequence[int], among: Iterable[int], *, whole: bool = False
) -> list[tuple[int, Result]]:
    columns = [results.c[name] for name in records.RESULT_COLUMNS]
    if not whole:
        brief = {"output": func.substr(results.c.output, 1, EXCERPT), "raw": null()}
        columns = [brief.get(name, results.c[name]) for name in records.RESULT_COLUMNS]  # type: ignore[misc]
    query = select(results.c.seq, cases.c.digest, *columns)
    query = query.join_from(results, cases, cases.c.case_no == results.c.case_no).where(results.c.seq.in_(seqs))
    rows = connection.execute(query.order_by(results.c.seq)).all()
    judged = newest_checks(connection, [row[0] for row in rows], among) if rows else {}
    found = []
    for row in rows:
        values = list(row[2:])
        if not whole and values[_OUTPUT] is not None:
            values[_OUTPUT] = _CUT_OFF.sub("", values[_OUTPUT])
        found.append((row[0], records.result_from_row(row[1], values, tuple(judged.get(row[0], ())))))
    return found


_OUTPUT = records.RESULT_COLUMNS.index("output")


def _like(text: str) -> str:
    """Return a text as a pattern that finds it alone."""
    return re.sub(r"([\\%_])", r"\\\1", text)
