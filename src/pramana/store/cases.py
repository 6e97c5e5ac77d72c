"""The cases of runs: each is stored once by its digest, and a run points at its own by their position.

Everything long is streamed: each chunk is read in a short transaction of its own, so memory stays flat and nobody's
write waits for a reader.
"""

import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, product
from typing import Any

from sqlalchemy import Connection, and_, select

from pramana.hash import case_digest
from pramana.model import Case, Key
from pramana.store import records
from pramana.store.engine import CHUNK, Database, Part, chunks
from pramana.store.row import RunRef, read_run
from pramana.store.schema import cases, results, run_cases
from pramana.store.text import stored

_INSERT_CASES = "INSERT INTO cases (digest, body) VALUES (?, ?) ON CONFLICT DO NOTHING"
_INSERT_RUN_CASES = (
    "INSERT INTO run_cases (run_no, position, case_no, source_file, source_line)"
    " SELECT ?, ?, case_no, ?, ? FROM cases WHERE digest = ? ON CONFLICT DO NOTHING"
)
_CaseRow = tuple[int, str, str, str | None, int | None]
"""Position, digest and body of a case of a run, and where it was read."""
Prepared = tuple[str, str, str | None, int | None]
"""Digest and body of a case, and where it was read."""


class Cases(Part):
    """What the runs of a store ask."""

    def of(self, run: RunRef) -> Iterator[Case]:
        """Yield the cases of a run in order."""
        with self._database.reading() as connection:
            run_no = read_run(connection, run).number
        for chunk in self._chunks(run_no):
            for _, _, body, file, line in chunk:
                yield records.case_from_json(body, file, line)

    def pending(self, run: RunRef, model: str | None = None) -> Iterator[tuple[Key, Case]]:
        """Yield what has no result yet: for each case in order, each model (or the one typed so), each repeat."""
        return chain.from_iterable(self.pending_chunks(run, model))

    def pending_chunks(self, run: RunRef, model: str | None = None) -> Iterator[Iterator[tuple[Key, Case]]]:
        """Yield the same by the chunk: what blocks is done when a chunk is drawn, cases are made as it is read."""
        with self._database.reading() as connection:
            found = read_run(connection, run if isinstance(run, str) else run.id)  # how much is stored has changed
        plan = found.plan
        models = tuple(dict.fromkeys(target.typed for target in plan.targets if model in (None, target.typed)))
        asked = run_cases.join(
            results, and_(results.c.case_no == run_cases.c.case_no, results.c.run_no == run_cases.c.run_no)
        )
        columns = (run_cases.c.position, results.c.model, results.c.variant, results.c.repeat)
        there = select(*columns).select_from(asked).where(run_cases.c.run_no == found.number)

        def lacking(rows: Sequence[_CaseRow], done: set[tuple[Any, ...]]) -> Iterator[tuple[Key, Case]]:
            for position, digest, body, file, line in rows:
                one = None
                for typed, variant, repeat in product(models, plan.variants, range(plan.repeats)):
                    if not done or (position, stored(typed), stored(variant), repeat) not in done:
                        one = one or records.case_from_json(body, file, line)
                        yield Key(digest, typed, variant, repeat), one

        done: set[tuple[Any, ...]] = set()
        for chunk in self._chunks(found.number, 2 * CHUNK):
            if found.stored:  # else nobody has asked anything yet, and what is asked from now on was drawn here
                within = there.where(run_cases.c.position.between(chunk[0][0], chunk[-1][0]))
                with self._database.reading() as connection:
                    done = {tuple(row) for row in connection.execute(within)}
            yield lacking(chunk, done)

    def _chunks(self, run_no: int, size: int = CHUNK) -> Iterator[list[_CaseRow]]:
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
def prepared(given: Iterable[Case]) -> Iterator[Iterator[Prepared]]:
    """Give the rows of cases from a file beside: nobody who writes must wait while they are read and checked."""
    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        for each in given:
            source = each.source
            read = (None, None) if source is None else (stored(source.file), source.line)
            file.write(json.dumps((case_digest(each), records.case_to_json(each), *read)) + "\n")
        file.seek(0)
        yield (tuple(json.loads(line)) for line in file)


def add_cases(database: Database, connection: Connection, run_no: int, rows: Iterator[Prepared]) -> Iterator[str]:
    """Store the cases of a new run, each once however often it is given; yield their digests in order."""
    position = 0
    for some in chunks(rows):
        shared, mine = [], []
        for digest, body, file, line in some:
            shared.append((digest, body))
            mine.append((run_no, position, file, line, digest))
            position += 1
        database.run_many(connection, _INSERT_CASES, shared)
        database.run_many(connection, _INSERT_RUN_CASES, mine)
    position = -1
    query = select(run_cases.c.position, cases.c.digest).join_from(run_cases, cases)
    query = query.where(run_cases.c.run_no == run_no).order_by(run_cases.c.position).limit(CHUNK)
    while found := connection.execute(query.where(run_cases.c.position > position)).all():
        yield from (row.digest for row in found)
        position = found[-1].position
