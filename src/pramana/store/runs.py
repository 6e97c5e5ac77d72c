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
from itertools import chain, product
from typing import Any, Literal

from sqlalchemy import Connection, and_, case, delete, func, insert, null, select, update

from pramana import clock, settings
from pramana.errors import Hint, NotFound, did_you_mean, quote
from pramana.hash import PREFIX, case_digest
from pramana.jsonl import canonical
from pramana.model import Case, Key, Outcome, Plan, Result, Run, Spent
from pramana.store import records
from pramana.store.blobs import Blobs
from pramana.store.changes import Changes, record
from pramana.store.engine import CHUNK, Database, chunks
from pramana.store.history import History
from pramana.store.pages import Pages
from pramana.store.preferences import Decisions
from pramana.store.prices import SetPrices
from pramana.store.providers import Providers
from pramana.store.queue import Queue
from pramana.store.row import plan_of, row_of, run_of
from pramana.store.scenarios import Scenarios
from pramana.store.schema import cases, checks, results, run_cases, run_models, runs, scorings
from pramana.store.scoring import (
    Rescoring,
    count_outcomes,
    finished_scorings,
    newest_checks,
    spent_on_checks,
    timestamp,
)
from pramana.store.sounds import Sounds
from pramana.store.submissions import Submissions
from pramana.store.suites import Suites
from pramana.store.text import stored, stored_or_none
from pramana.store.tokens import Tokens
from pramana.store.writer import Writer

_INSERT_CASES = "INSERT INTO cases (digest, body) VALUES (?, ?) ON CONFLICT DO NOTHING"
_INSERT_RUN_CASES = (
    "INSERT INTO run_cases (run_no, position, case_no, source_file, source_line)"
    " SELECT ?, ?, case_no, ?, ? FROM cases WHERE digest = ? ON CONFLICT DO NOTHING"
)


_CaseRow = tuple[int, str, str, str | None, int | None]
"""Position, digest and body of a case of a run, and where it was read."""
_Prepared = tuple[str, str, str | None, int | None]
"""Digest and body of a case, and where it was read."""


class Store(Queue):
    """Every run, case, result and check there is. Safe to share among threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.blobs = Blobs(settings.home() / "blobs")
        """Recordings and logs: files, wherever the rows are."""
        self.sounds = Sounds(settings.home() / "audio", self.blobs)
        self.changes = Changes(database)
        self.decisions = Decisions(database)
        self.history = History(database)
        self.pages = Pages(database)
        self.prices = SetPrices(database)
        self.providers = Providers(database)
        self.scenarios = Scenarios(database)
        self.submissions = Submissions(database)
        self.suites = Suites(database)
        self.tokens = Tokens(database)

    @property
    def kind(self) -> Literal["sqlite", "postgresql"]:
        return "sqlite" if self._database.is_sqlite else "postgresql"

    def when_written(self, tell: Callable[[], None]) -> None:
        """Have somebody told, in whichever thread it happens, whenever this process has written something."""
        self._database.on_written.append(tell)

    def close(self) -> None:
        self._database.close()

    # ── Runs ──

    def create_run(
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
        with _set_down(cases) as prepared, self._database.writing() as connection:
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
            connection.execute(insert(run_models), _models(run_no, plan))
            self._add_cases(connection, run_no, prepared)
            digest, count = hashlib.sha256(canonical(records.plan_to_plain(plan))), 0
            for each in _digests(connection, run_no):
                digest.update(each.encode())
                count += 1
            models = {target.typed for target in plan.targets}
            expected = count * len(models) * len(plan.variants) * plan.repeats
            row |= {"plan_digest": PREFIX + digest.hexdigest(), "expected": expected}
            connection.execute(update(runs).where(runs.c.run_no == run_no), row)
            record(connection, "run", str(row["id"]), "created")
        return self.run(str(row["id"]))

    def run(self, reference: str) -> Run:
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

    def runs(self, limit: int = 50) -> list[Run]:
        """Return the runs, newest first."""
        with self._database.reading() as connection:
            newest = select(runs).order_by(runs.c.run_no.desc()).limit(limit)
            return [run_of(row) for row in connection.execute(newest).mappings()]

    def delete_run(self, run_id: str, *, unless_held: bool = False) -> None:
        """Delete a run, its results and their checks, and each case that no other run uses.

        `unless_held` refuses that while somebody works on it.
        """
        with self._database.writing() as connection:
            self._database.lock_cases(connection)
            row = row_of(connection, run_id, lock=True)
            if unless_held:
                self.refuse_if_held(connection, row)
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
            found = row_of(connection, run_id)
        plan = plan_of(found)
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

    def results(
        self, run_id: str, after: int = 0, scoring: int | None = None, *, raw: bool = True
    ) -> Iterator[tuple[int, Result]]:
        """Yield the results stored after a sequence number, with the checks each had last, or had as of a scoring.

        The raw responses, which nobody adds up, can be left out.
        """
        with self._database.reading() as connection:
            run_no = row_of(connection, run_id)["run_no"]
            among = finished_scorings(connection, run_no, scoring)
        columns = [results.c[name] if raw or name != "raw" else null() for name in records.RESULT_COLUMNS]
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
        for _, asked, result in self._paired(self.results(run_id, scoring=scoring)):
            yield asked, result

    def numbered_pairs(self, run_id: str, after: int = 0) -> Iterator[tuple[int, Case, Result]]:
        """Yield each result stored after a sequence number with that and its case; without the raw response."""
        return self._paired(self.results(run_id, after, raw=False))

    def _paired(self, found: Iterable[tuple[int, Result]]) -> Iterator[tuple[int, Case, Result]]:
        for some in chunks(found):
            digests = {result.key.case for _, result in some}
            with self._database.reading() as connection:
                rows = connection.execute(select(cases.c.digest, cases.c.body).where(cases.c.digest.in_(digests)))
                known = {digest: records.case_from_json(body, None, None) for digest, body in rows}
            for seq, result in some:
                yield seq, known[result.key.case], result

    def counts(self, run_id: str, scoring: int | None = None) -> Mapping[Outcome, int]:
        """Return how many results ended how, by the checks each had last, or had as of a scoring."""
        with self._database.reading() as connection:
            found = count_outcomes(connection, row_of(connection, run_id)["run_no"], scoring)
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
            run_no = row_of(connection, run_id)["run_no"]
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
            return finished_scorings(connection, row_of(connection, run_id)["run_no"])

    def writer(
        self, run_id: str, on_stored: Callable[[list[tuple[int, Result]]], None], owner: str | None = None
    ) -> Writer:
        """Return the writer of a run's results, to be entered as a context; it stores while the owner holds the run.

        Without an owner, while nobody does.
        """
        return Writer(self._database, self._number(run_id), on_stored, owner)

    # ── Inside ──

    def _number(self, run_id: str) -> int:
        with self._database.reading() as connection:
            return int(row_of(connection, run_id)["run_no"])

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


def _models(run_no: int, plan: Plan) -> list[dict[str, Any]]:
    """Return the rows of the models of a plan, each once."""
    targets = [("target", each) for each in plan.targets]
    others = [("judge", plan.judge), ("embedder", plan.embedder), ("stt", plan.stt)]
    named = {(role, stored(each.typed)): None for role, each in (*targets, *others) if each}
    return [{"run_no": run_no, "role": role, "model": model} for role, model in named]


def _digests(connection: Connection, run_no: int) -> Iterator[str]:
    position = -1
    query = select(run_cases.c.position, cases.c.digest).join_from(run_cases, cases)
    query = query.where(run_cases.c.run_no == run_no).order_by(run_cases.c.position).limit(CHUNK)
    while rows := connection.execute(query.where(run_cases.c.position > position)).all():
        yield from (row.digest for row in rows)
        position = rows[-1].position


def _new_id(connection: Connection) -> str:
    """Return an id that sorts by time and can be typed: date, time, and four digits against coincidence."""
    while True:
        new = f"r{clock.now():%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        if connection.execute(select(runs.c.run_no).where(runs.c.id == new)).first() is None:
            return new
