"""Checks by scoring: those that came with the replies are number 0, each judging again is one more beside them.

A scoring is seen only when it is finished. The newest one is current, unless an earlier one was made current by choice.
What a result is judged by is its newest checks: those of the current scoring or, for a result that it did not judge, of
the scoring that it was added to, so that judging some results again leaves the others as they were. New checks that
give no verdict, for a result that has one, are kept under the scoring's negative number, where they hide nothing. What
its other checks have cost was paid all the same; the newest check says how much.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from msgspec.structs import replace
from sqlalchemy import ColumnElement, Connection, Select, and_, case, delete, func, insert, select, update

from pramana.errors import NotFound
from pramana.model import OUTCOMES_BY_SEVERITY, Check, Key, Outcome, Spent
from pramana.store.engine import Database, StorePart, timestamp
from pramana.store.records import (
    CHECK_COLUMNS,
    MEASURED_OUTCOME,
    RunRef,
    check_from_row,
    check_to_row,
    escape_text,
    from_json,
    read_run,
    unescape_text,
)
from pramana.store.schema import cases, checks, results, runs, scorings

_COLUMNS = ("seq", "scoring", "position", *CHECK_COLUMNS)
INSERT_CHECKS = f"INSERT INTO checks ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' for _ in _COLUMNS)})"  # noqa: S608

Judged = tuple[Key, tuple[Check, ...]]


class Link(NamedTuple):
    """A finished scoring, as far as it decides which scorings a run is read by."""

    number: int
    base: int | None
    """The scoring that it was added to; None for the one before it."""
    chosen: int | None
    """The newest scoring when this one was made current; None where it was not."""


def current_scoring(links: Sequence[Link]) -> int:
    """Return the scoring that was made current by choice, else the newest.

    >>> current_scoring([Link(0, None, 1), Link(1, None, None)])
    0
    >>> current_scoring([Link(0, None, 1), Link(1, None, None), Link(2, 0, None)])
    2
    """
    newest = max(each.number for each in links)
    return next((each.number for each in links if each.chosen == newest), newest)


def read_by(links: Sequence[Link], scoring: int | None = None) -> list[int]:
    """Return the scorings that a run is read by, in ascending order: one, by default the current, and what it extends.

    >>> read_by([Link(0, None, None), Link(1, None, None), Link(2, 0, None)])
    [0, 2]
    """
    if not links:
        return []
    bases = {each.number: each.base for each in links}
    found = [current_scoring(links) if scoring is None else scoring]
    while earlier := [number for number in bases if number < found[-1]]:
        base = bases[found[-1]]
        found.append(max(earlier) if base is None else base)
    return found[::-1]


LINK_COLUMNS = (scorings.c.scoring, scorings.c.base, scorings.c.chosen)


def list_finished_scorings(connection: Connection, run_no: int, scoring: int | None = None) -> dict[int, str]:
    """Return number and label of the finished scorings that a run is read by: as of one, by default the current."""
    labels, links = _read_finished(connection, run_no)
    if scoring is not None and scoring not in labels:
        raise NotFound(f"the run has no scoring {scoring}; it has {', '.join(map(str, labels))}")
    return {number: labels[number] for number in read_by(links, scoring)}


def scorings_before(connection: Connection, run_no: int, scoring: int) -> list[int]:
    """Return the scorings that a run was read by before a re-scoring, which need not be finished."""
    labels, links = _read_finished(connection, run_no)
    return [number for number in read_by(links, scoring if scoring in labels else None) if number != scoring]


def _read_finished(connection: Connection, run_no: int) -> tuple[dict[int, str], list[Link]]:
    """Return the labels of all finished scorings of a run, and how they are linked."""
    query = select(scorings.c.label, *LINK_COLUMNS).where(scorings.c.run_no == run_no, scorings.c.finished.is_not(None))
    rows = connection.execute(query.order_by(scorings.c.scoring)).all()
    return {row.scoring: unescape_text(row.label) for row in rows}, [
        Link(row.scoring, row.base, row.chosen) for row in rows
    ]


def read_newest_checks(connection: Connection, seqs: Sequence[int], among: Iterable[int]) -> dict[int, list[Check]]:
    """Return the newest checks of some results, among the scorings named.

    Where a model was asked for other checks of a result, for older ones or in a scoring that nobody sees, the first of
    its newest has the sum of that in its evidence, as `other_scorings`: what was paid for does not become free.
    """
    columns, seen = [checks.c[name] for name in _COLUMNS], frozenset(among)
    query = select(*columns).where(checks.c.seq.in_(seqs))
    newest: dict[int, list[Check]] = {}
    others: dict[int, list[Check]] = {}
    scored: dict[int, int] = {}
    for row in connection.execute(query.order_by(checks.c.seq, checks.c.scoring, checks.c.position)):
        seq, scoring, made = row[0], row[1], check_from_row(row[3:])
        if scoring not in seen:
            others.setdefault(seq, []).append(made)
            continue
        if scored.get(seq) != scoring:
            if seq in newest:
                others.setdefault(seq, []).extend(newest[seq])
            scored[seq], newest[seq] = scoring, []
        newest[seq].append(made)
    for seq, made_before in others.items():
        asked = [each.evidence for each in made_before if "cost_usd" in each.evidence]
        if asked and (shown := newest.get(seq)):
            paid = {"cost_usd": _sum_evidence(asked, "cost_usd"), "tokens": _sum_evidence(asked, "tokens")}
            shown[0] = replace(shown[0], evidence={**shown[0].evidence, "other_scorings": paid})
    return newest


def find_rescored(connection: Connection, seqs: Sequence[int], scoring: int) -> set[int]:
    """Return which of some results have checks of a scoring."""
    query = select(checks.c.seq).where(checks.c.seq.in_(seqs), checks.c.scoring == scoring)
    return set(connection.scalars(query))


def _sum_evidence(evidence: Sequence[Mapping[str, object]], name: str) -> float | None:
    """Return the sum of what each has under a name; None when any has no number there."""
    known = [value for each in evidence if isinstance(value := each.get(name), int | float)]
    return sum(known) if len(known) == len(evidence) else None


def count_outcomes(
    connection: Connection,
    run_no: int,
    among: Iterable[int],
    *by: ColumnElement[Any],
    where: Iterable[ColumnElement[bool]] = (),
) -> Iterator[tuple[Any, ...]]:
    """Yield how many results ended how by some columns: their values, the outcome, the number and the last result.

    `Result.outcome` in SQL wherever there was a second scoring.
    """
    scored = list(among)
    judged = outcome_levels_query(run_no, scored).subquery()
    once = scored == [0]
    ended: ColumnElement[Any] = results.c.outcome if once else judged.c.level
    query = select(*by, ended, func.count(), func.max(results.c.seq)).where(results.c.run_no == run_no, *where)
    query = query.select_from(results if once else results.join(judged, judged.c.seq == results.c.seq))
    for *values, outcome, number, last in connection.execute(query.group_by(*by, ended)):
        yield *values, Outcome(outcome) if once else OUTCOMES_BY_SEVERITY[outcome], number, last


def outcome_levels_query(run_no: int, among: Sequence[int]) -> Select[tuple[int, int]]:
    """Return the query of each result's number and outcome, an index in `OUTCOMES_BY_SEVERITY`, by newest checks."""
    each = checks.alias()
    newest = select(func.max(each.c.scoring)).where(each.c.seq == results.c.seq, each.c.scoring.in_(among))
    places = {outcome.value: level for level, outcome in enumerate(OUTCOMES_BY_SEVERITY)} | {MEASURED_OUTCOME: -1}
    severity = case(places, value=checks.c.outcome)
    errored, unscored = OUTCOMES_BY_SEVERITY.index(Outcome.ERRORED), OUTCOMES_BY_SEVERITY.index(Outcome.UNSCORED)
    nothing = and_(results.c.output.is_(None), results.c.outcome != Outcome.SKIPPED.value)
    worst = case(
        (nothing, errored), (func.max(severity) == -1, unscored), else_=func.coalesce(func.max(severity), errored)
    )
    judged = results.outerjoin(
        checks, and_(checks.c.seq == results.c.seq, checks.c.scoring == newest.scalar_subquery())
    )
    found = select(results.c.seq, worst.label("level")).select_from(judged).where(results.c.run_no == run_no)
    return found.group_by(results.c.seq)


class FinishedScoring(NamedTuple):
    """A finished scoring of a run."""

    number: int
    label: str
    created: str
    current: bool
    """Whether the run is read by it unless another is named."""


class Scorings(StorePart):
    """The scorings of the runs of a store."""

    def describe(self, run: RunRef) -> Sequence[FinishedScoring]:
        """Return the finished scorings of a run, with their labels and the times they began."""
        with self._database.read_transaction() as connection:
            run_no = read_run(connection, run).number
            labels, links = _read_finished(connection, run_no)
            current = current_scoring(links) if links else None
            times = select(scorings.c.scoring, scorings.c.created).where(scorings.c.run_no == run_no)
            created = {row.scoring: row.created for row in connection.execute(times)}
        return [FinishedScoring(number, label, created[number], number == current) for number, label in labels.items()]

    def use(self, run: RunRef, number: int) -> None:
        """Make a finished scoring current: the run is read by it until the next re-scoring, or the next choice."""
        with self._database.write_transaction() as connection:
            run_no = read_run(connection, run).number
            connection.execute(select(runs.c.run_no).where(runs.c.run_no == run_no).with_for_update())
            list_finished_scorings(connection, run_no, number)
            newest = max(_read_finished(connection, run_no)[0])
            mine = scorings.c.run_no == run_no
            connection.execute(update(scorings).where(mine), {"chosen": None})
            if number != newest:
                connection.execute(update(scorings).where(mine, scorings.c.scoring == number), {"chosen": newest})

    def list(self, run: RunRef) -> Mapping[int, str]:
        """Return the labels, by number, of the scorings that the run is read by; number 0 came with the replies."""
        with self._database.read_transaction() as connection:
            return list_finished_scorings(connection, read_run(connection, run).number)

    def begin(self, run: RunRef, label: str) -> "Rescoring":
        """Return a new scoring, to be entered as a context: its checks are added beside those there are.

        Nobody sees them until the context ends. A result without new checks keeps those it had.
        """
        with self._database.read_transaction() as connection:
            return Rescoring(self._database, read_run(connection, run).number, label)


class Rescoring:
    """Checks added beside those there are, chunk by chunk, so that nobody waits for a judge.

    They are seen when its context ends, however it ends: what was judged was paid for. One without any leaves nothing;
    one that only failed is never seen.
    """

    def __init__(self, database: Database, run_no: int, label: str) -> None:
        self._database, self._run_no, self.label = database, run_no, label
        self.number = 0
        self._added, self._failed = 0, 0

    def __enter__(self) -> Self:
        with self._database.write_transaction() as connection:
            connection.execute(select(runs.c.run_no).where(runs.c.run_no == self._run_no).with_for_update())
            highest = select(func.max(scorings.c.scoring)).where(scorings.c.run_no == self._run_no)
            self.number = int(connection.execute(highest).scalar_one()) + 1
            labels, links = _read_finished(connection, self._run_no)
            current = current_scoring(links) if links else None
            connection.execute(
                insert(scorings),
                {
                    "run_no": self._run_no,
                    "scoring": self.number,
                    "label": escape_text(self.label),
                    "created": timestamp(),
                    "base": None if current == max(labels, default=None) else current,
                },
            )
        return self

    def add(self, judged: Sequence[Judged]) -> None:
        """Store some new checks; all of them or, when a result is not there, none."""
        with self._database.write_transaction() as connection:
            rows = _make_check_rows(connection, self._run_no, self.number, judged)
            self._database.run_many(connection, INSERT_CHECKS, rows)
        self._added += len(judged)

    def add_failed(self, judged: Sequence[Judged]) -> None:
        """Store checks that gave no verdict for results that have one: they count for what they cost, and hide none."""
        with self._database.write_transaction() as connection:
            rows = _make_check_rows(connection, self._run_no, -self.number, judged)
            self._database.run_many(connection, INSERT_CHECKS, rows)
        self._failed += len(judged)

    def __exit__(self, *_: object) -> None:
        try:
            self._end()
        except KeyboardInterrupt:  # what was judged is kept even from who cannot wait
            self._end()
            raise

    def _end(self) -> None:
        this = and_(scorings.c.run_no == self._run_no, scorings.c.scoring == self.number)
        with self._database.write_transaction() as connection:
            if self._added:
                connection.execute(
                    update(scorings).where(this), {"finished": timestamp(), "label": escape_text(self.label)}
                )
            elif not self._failed:
                connection.execute(delete(scorings).where(this))


def sum_check_spending(connection: Connection, run_no: int) -> Spent:
    """Return what judges and embedders have cost that were asked while the run was."""
    asked = checks.c.evidence.like('%"cost_usd"%')
    query = select(checks.c.evidence).join_from(checks, results, results.c.seq == checks.c.seq)
    cost, tokens, unknown_cost, unknown_tokens = 0.0, 0, False, False
    for (text,) in connection.execute(query.where(results.c.run_no == run_no, checks.c.scoring == 0, asked)):
        evidence = from_json(text)
        paid, used = evidence.get("cost_usd"), evidence.get("tokens")
        cost, tokens = cost + (paid or 0.0), tokens + (used or 0)
        unknown_cost, unknown_tokens = unknown_cost or paid is None, unknown_tokens or used is None
    return Spent(cost, tokens, unknown_cost, unknown_tokens)


def _make_check_rows(
    connection: Connection, run_no: int, scoring: int, some: Sequence[Judged]
) -> list[tuple[object, ...]]:
    columns = (cases.c.digest, results.c.model, results.c.variant, results.c.repeat, results.c.seq)
    query = select(*columns).join_from(results, cases, cases.c.case_no == results.c.case_no)
    query = query.where(results.c.run_no == run_no, cases.c.digest.in_(list({key.case for key, _ in some})))
    seqs = {tuple(row[:4]): row[4] for row in connection.execute(query)}
    rows = []
    for key, made in some:
        seq = seqs.get((key.case, escape_text(key.model), escape_text(key.variant), key.repeat))
        if seq is None:
            raise NotFound(f"the run has no result of {key}, so there is nothing to score again")
        rows += [(seq, scoring, at, *check_to_row(check)) for at, check in enumerate(made)]
    return rows
