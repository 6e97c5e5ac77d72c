"""Checks by scoring: those that came with the replies are number 0, each judging again is one more beside them.

A scoring is seen only when it is finished. What a result is judged by is its newest checks: those of the highest
finished scoring that has any for it, so that judging some results again leaves the others as they were.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from sqlalchemy import Connection, and_, case, delete, func, insert, select, update

from pramana.errors import NotFound
from pramana.model import SEVERITY, Check, Key, Outcome
from pramana.store import records
from pramana.store.engine import Database, chunks
from pramana.store.schema import cases, checks, results, runs, scorings
from pramana.store.text import restored, stored

_COLUMNS = ("seq", "scoring", "position", *records.CHECK_COLUMNS)
INSERT_CHECKS = f"INSERT INTO checks ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' for _ in _COLUMNS)})"  # noqa: S608

Judged = tuple[Key, tuple[Check, ...]]


def finished_scorings(connection: Connection, run_no: int, scoring: int | None = None) -> dict[int, str]:
    """Return number and label of each finished scoring of a run, up to the one named."""
    query = select(scorings.c.scoring, scorings.c.label).where(
        scorings.c.run_no == run_no, scorings.c.finished.is_not(None)
    )
    found = {number: restored(label) for number, label in connection.execute(query.order_by(scorings.c.scoring))}
    if scoring is None:
        return found
    if scoring not in found:
        raise NotFound(f"the run has no scoring {scoring}; it has {', '.join(map(str, found))}")
    return {number: label for number, label in found.items() if number <= scoring}


def newest_checks(connection: Connection, seqs: Sequence[int], among: Iterable[int]) -> dict[int, list[Check]]:
    """Return the newest checks of some results, among the scorings named."""
    columns = [checks.c[name] for name in _COLUMNS]
    query = select(*columns).where(checks.c.seq.in_(seqs), checks.c.scoring.in_(list(among)))
    newest: dict[int, list[Check]] = {}
    scored: dict[int, int] = {}
    for row in connection.execute(query.order_by(checks.c.seq, checks.c.scoring, checks.c.position)):
        seq, scoring = row[0], row[1]
        if scored.get(seq) != scoring:
            scored[seq], newest[seq] = scoring, []
        newest[seq].append(records.check_from_row(row[3:]))
    return newest


def count_outcomes(connection: Connection, run_no: int, scoring: int | None) -> dict[Outcome, int]:
    """Return how many results ended how; `Result.outcome` in SQL wherever there was a second scoring."""
    among = list(finished_scorings(connection, run_no, scoring))
    if among == [0]:
        stated = select(results.c.outcome, func.count()).where(results.c.run_no == run_no)
        return {Outcome(name): number for name, number in connection.execute(stated.group_by(results.c.outcome))}
    each = checks.alias()
    newest = select(func.max(each.c.scoring)).where(each.c.seq == results.c.seq, each.c.scoring.in_(among))
    severity = case({outcome.value: level for level, outcome in enumerate(SEVERITY)}, value=checks.c.outcome)
    errored = SEVERITY.index(Outcome.ERRORED)
    worst = case((results.c.output.is_(None), errored), else_=func.coalesce(func.max(severity), errored))
    judged = results.outerjoin(
        checks, and_(checks.c.seq == results.c.seq, checks.c.scoring == newest.scalar_subquery())
    )
    levels = select(worst.label("level")).select_from(judged).where(results.c.run_no == run_no)
    found = levels.group_by(results.c.seq).subquery()
    counted = connection.execute(select(found.c.level, func.count()).group_by(found.c.level))
    return {SEVERITY[level]: number for level, number in counted}


def add_scoring(database: Database, run_no: int, label: str, judged: Iterable[Judged]) -> int:
    """Store new checks chunk by chunk, so that nobody waits for a judge, and show them when all are there."""
    with database.writing() as connection:
        connection.execute(select(runs.c.run_no).where(runs.c.run_no == run_no).with_for_update())
        highest = select(func.max(scorings.c.scoring)).where(scorings.c.run_no == run_no)
        scoring = int(connection.execute(highest).scalar_one()) + 1
        row = {"run_no": run_no, "scoring": scoring, "label": stored(label), "created": timestamp()}
        connection.execute(insert(scorings), row)
    this = and_(scorings.c.run_no == run_no, scorings.c.scoring == scoring)
    try:
        for some in chunks(judged):
            with database.writing() as connection:
                database.run_many(connection, INSERT_CHECKS, _check_rows(connection, run_no, scoring, some))
    except BaseException:
        mine = select(results.c.seq).where(results.c.run_no == run_no)
        with database.writing() as connection:
            connection.execute(delete(checks).where(checks.c.scoring == scoring, checks.c.seq.in_(mine)))
            connection.execute(delete(scorings).where(this))
        raise
    with database.writing() as connection:
        connection.execute(update(scorings).where(this), {"finished": timestamp()})
    return scoring


def timestamp() -> str:
    """Return the time, ISO 8601 in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _check_rows(connection: Connection, run_no: int, scoring: int, some: Sequence[Judged]) -> list[tuple[object, ...]]:
    columns = (cases.c.digest, results.c.model, results.c.variant, results.c.repeat, results.c.seq)
    query = select(*columns).join_from(results, cases, cases.c.case_no == results.c.case_no)
    query = query.where(results.c.run_no == run_no, cases.c.digest.in_(list({key.case for key, _ in some})))
    seqs = {tuple(row[:4]): row[4] for row in connection.execute(query)}
    rows = []
    for key, made in some:
        seq = seqs.get((key.case, stored(key.model), stored(key.variant), key.repeat))
        if seq is None:
            raise NotFound(f"the run has no result of {key}, so there is nothing to be scored again")
        rows += [(seq, scoring, at, *records.check_to_row(check)) for at, check in enumerate(made)]
    return rows
