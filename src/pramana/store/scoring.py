"""Checks by scoring: number 0 came with the replies, and each rescoring adds another number beside it.

A scoring is visible only when it is finished. The newest one is current, unless an earlier one was chosen. A result is
judged by its newest checks: those of the current scoring or, if it has none there, of the scoring that the current one
extends, so that rescoring some results leaves the others unchanged. If rescoring gives no verdict for a result that has
one, the new checks are stored under the scoring's negative number, where they hide nothing. Their cost and that of
older checks still counts; the evidence of the newest check states it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from msgspec.structs import replace
from sqlalchemy import ColumnElement, Connection, Select, and_, case, delete, func, insert, not_, select, update

from pramana.errors import NotFound
from pramana.model import OUTCOMES_BY_SEVERITY, Check, Outcome, ResultKey, Run, Spent
from pramana.store.engine import CHUNK_ROWS, Database, StorePart, record_change, timestamp
from pramana.store.records import (
    CHECK_COLUMNS,
    UNDECIDING_OUTCOME,
    RunRef,
    check_from_row,
    check_to_row,
    decode_json_column,
    escape_text,
    read_run,
    unescape_text,
)
from pramana.store.schema import cases, checks, results, runs, scorings

_CHECK_TABLE_COLUMNS = ("seq", "scoring", "position", *CHECK_COLUMNS)
INSERT_CHECKS = (
    f"INSERT INTO checks ({', '.join(_CHECK_TABLE_COLUMNS)}) VALUES ({', '.join('?' for _ in _CHECK_TABLE_COLUMNS)})"  # noqa: S608
)

KeyedChecks = tuple[ResultKey, tuple[Check, ...]]


class ScoringPrecedence(NamedTuple):
    """The columns of a finished scoring that decide which scorings a run is read by."""

    number: int
    extended_scoring: int | None
    """The scoring that it extends; None for the one before it."""
    newest_when_chosen: int | None
    """The newest scoring when this one was chosen as current; None if it was not chosen."""


def find_current_scoring(precedences: Sequence[ScoringPrecedence]) -> int:
    """Return the scoring that was chosen as current, else the newest.

    >>> find_current_scoring([ScoringPrecedence(0, None, 1), ScoringPrecedence(1, None, None)])
    0
    >>> first, second = ScoringPrecedence(0, None, 1), ScoringPrecedence(1, None, None)
    >>> find_current_scoring([first, second, ScoringPrecedence(2, 0, None)])
    2
    """
    newest = max(each.number for each in precedences)
    return next((each.number for each in precedences if each.newest_when_chosen == newest), newest)


def list_scorings_in_effect(precedences: Sequence[ScoringPrecedence], scoring: int | None = None) -> list[int]:
    """Return the scorings that a run is read by, ascending: one (by default the current) and those that it extends.

    >>> first, second = ScoringPrecedence(0, None, None), ScoringPrecedence(1, None, None)
    >>> list_scorings_in_effect([first, second, ScoringPrecedence(2, 0, None)])
    [0, 2]
    """
    if not precedences:
        return []
    bases = {each.number: each.extended_scoring for each in precedences}
    found = [find_current_scoring(precedences) if scoring is None else scoring]
    while earlier := [number for number in bases if number < found[-1]]:
        base = bases[found[-1]]
        found.append(max(earlier) if base is None else base)
    return found[::-1]


SCORING_PRECEDENCE_COLUMNS = (scorings.c.scoring, scorings.c.base, scorings.c.chosen)


def read_effective_scoring_labels(connection: Connection, run_no: int, scoring: int | None = None) -> dict[int, str]:
    """Return number and label of the finished scorings that a run is read by, as of one (by default the current)."""
    labels, precedences = _read_finished(connection, run_no)
    if scoring is not None and scoring not in labels:
        raise NotFound(f"the run has no scoring {scoring}; it has {', '.join(map(str, labels))}")
    return {number: labels[number] for number in list_scorings_in_effect(precedences, scoring)}


def list_scorings_replaced_by(connection: Connection, run_no: int, scoring: int) -> list[int]:
    """Return the scorings that a rescoring, which may be unfinished, takes over from: those in effect before it."""
    labels, precedences = _read_finished(connection, run_no)
    return [
        number
        for number in list_scorings_in_effect(precedences, scoring if scoring in labels else None)
        if number != scoring
    ]


def _read_finished(connection: Connection, run_no: int) -> tuple[dict[int, str], list[ScoringPrecedence]]:
    """Return the labels of a run's finished scorings, and what decides which of them the run is read by."""
    query = select(scorings.c.label, *SCORING_PRECEDENCE_COLUMNS).where(
        scorings.c.run_no == run_no, scorings.c.finished.is_not(None)
    )
    rows = connection.execute(query.order_by(scorings.c.scoring)).all()
    return {row.scoring: unescape_text(row.label) for row in rows}, [
        ScoringPrecedence(row.scoring, row.base, row.chosen) for row in rows
    ]


def read_newest_checks(
    connection: Connection, seqs: Sequence[int], scoring_numbers: Iterable[int]
) -> dict[int, list[Check]]:
    """Return the newest checks of some results, among the given scorings.

    If a model was called for other checks of a result (older ones, or those of a hidden scoring), their total cost and
    tokens are added to the evidence of the first newest check as `other_scorings`, so that no cost is lost.
    """
    columns, seen = [checks.c[name] for name in _CHECK_TABLE_COLUMNS], frozenset(scoring_numbers)
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


def find_rescored_seqs(connection: Connection, seqs: Sequence[int], scoring: int) -> set[int]:
    """Return those of some results that have checks of a scoring."""
    query = select(checks.c.seq).where(checks.c.seq.in_(seqs), checks.c.scoring == scoring)
    return set(connection.scalars(query))


def _sum_evidence(evidence: Sequence[Mapping[str, object]], field_name: str) -> float | None:
    """Return the sum of one evidence field; None if any has no number there."""
    known = [value for each in evidence if isinstance(value := each.get(field_name), int | float)]
    return sum(known) if len(known) == len(evidence) else None


def count_outcomes(
    connection: Connection,
    run_no: int,
    scoring_numbers: Iterable[int],
    *group_columns: ColumnElement[Any],
    conditions: Iterable[ColumnElement[bool]] = (),
) -> Iterator[tuple[Any, ...]]:
    """Yield counts of results grouped by columns: their values, the outcome, the count and the highest sequence number.

    If there is more than one scoring, this is `Result.outcome` in SQL.
    """
    scored = list(scoring_numbers)
    judged = make_outcome_query(run_no, scored).subquery()
    once = scored == [0]
    ended: ColumnElement[Any] = results.c.outcome if once else judged.c.level
    query = select(*group_columns, ended, func.count(), func.max(results.c.seq)).where(
        results.c.run_no == run_no, *conditions
    )
    query = query.select_from(results if once else results.join(judged, judged.c.seq == results.c.seq))
    for *values, outcome, number, last in connection.execute(query.group_by(*group_columns, ended)):
        yield *values, Outcome(outcome) if once else OUTCOMES_BY_SEVERITY[outcome], number, last


def make_outcome_query(run_no: int, scoring_numbers: Sequence[int]) -> Select[tuple[int, int]]:
    """Return the query of each result's number and outcome (index in `OUTCOMES_BY_SEVERITY`) by newest checks."""
    each = checks.alias()
    newest = select(func.max(each.c.scoring)).where(each.c.seq == results.c.seq, each.c.scoring.in_(scoring_numbers))
    places = {outcome.value: level for level, outcome in enumerate(OUTCOMES_BY_SEVERITY)} | {UNDECIDING_OUTCOME: -1}
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


class VerdictJudge(NamedTuple):
    """A judge of some verdicts of a run: a model, and the version of the check that used it."""

    check: str
    version: str
    judge: str
    """As typed."""


_JUDGE_KEY = '"judge":"'
"""How evidence names the judge in JSON; within a text of the evidence, the quotes would be escaped."""
_EVIDENCE_START = "{" + _JUDGE_KEY
"""How the evidence of a judge begins. Elsewhere the key may belong to an object within the evidence."""
MAX_JUDGE_LENGTH = 4_000
_BACKSLASH, _QUOTE = ("\\\\", "\x02"), ('\\"', "\x01")
"""Escaped characters of JSON that would hide the end of a name, and what stands for them: JSON escapes both signs."""


def count_verdicts_by_judge(
    connection: Connection, run_nos: Sequence[int], scoring_numbers: Sequence[int], after_seq: int = 0
) -> Iterator[tuple[int, VerdictJudge, Outcome, int]]:
    """Yield how often each judge passed and failed replies of a run, after a result number and by the given scorings.

    The database finds the names in the evidence, so that no check is read into memory: a list of runs needs this too.
    Only evidence that has the key elsewhere than at its start is read and decoded, one check at a time.
    """
    find = func.instr if connection.dialect.name == "sqlite" else func.strpos
    is_at_start = func.substr(checks.c.evidence, 1, len(_EVIDENCE_START)) == _EVIDENCE_START
    rest = func.substr(checks.c.evidence, len(_EVIDENCE_START) + 1, MAX_JUDGE_LENGTH)
    rest = func.replace(func.replace(rest, *_BACKSLASH), *_QUOTE)
    end = find(rest, '"')
    name = func.substr(rest, 1, case((end > 0, end - 1), else_=MAX_JUDGE_LENGTH))
    judge = case((is_at_start, name), else_=None).label("judge")
    conditions = [
        results.c.seq > after_seq,
        checks.c.outcome.in_((Outcome.PASSED.value, Outcome.FAILED.value)),
        find(checks.c.evidence, _JUDGE_KEY) > 0,
    ]
    if len(scoring_numbers) == 1:
        conditions.append(checks.c.scoring == scoring_numbers[0])
    else:
        each = checks.alias()
        newest = select(func.max(each.c.scoring)).where(
            each.c.seq == results.c.seq, each.c.scoring.in_(scoring_numbers)
        )
        conditions.append(checks.c.scoring == newest.scalar_subquery())
    columns = results.c.run_no, checks.c.name, checks.c.version, checks.c.outcome
    verdicts = select(*columns, judge).join_from(results, checks, checks.c.seq == results.c.seq)
    found = verdicts.where(results.c.run_no.in_(run_nos), *conditions).subquery()
    # PostgreSQL cannot see that two equal expressions with parameters are one group, hence the subquery.
    query = select(*found.c, func.count()).group_by(*found.c)
    others = set[int]()
    rows: Iterable[Any] = connection.execute(query)
    for run_no, check, version, outcome, spelling, count in rows:
        if spelling is None:
            others.add(run_no)
        elif typed := _decode_judge_name(spelling):
            yield run_no, VerdictJudge(unescape_text(check), unescape_text(version), typed), Outcome(outcome), count
    if not others:
        return
    elsewhere = select(*columns, checks.c.evidence).join_from(results, checks, checks.c.seq == results.c.seq)
    counts: Counter[tuple[int, VerdictJudge, Outcome]] = Counter()
    elsewhere = elsewhere.where(results.c.run_no.in_(others), *conditions, not_(is_at_start))
    for run_no, check, version, outcome, evidence in connection.execute(
        elsewhere.execution_options(yield_per=CHUNK_ROWS)
    ):
        typed = decode_json_column(evidence).get("judge")
        if typed and typed.__class__ is str:
            counts[run_no, VerdictJudge(unescape_text(check), unescape_text(version), typed), Outcome(outcome)] += 1
    for (run_no, found_judge, decided), count in counts.items():
        yield run_no, found_judge, decided, count


def _decode_judge_name(spelling: str) -> str:
    """Return the name of a judge as typed; a name that was cut off stays as it is spelt."""
    text = spelling.replace(*_BACKSLASH[::-1]).replace(*_QUOTE[::-1])
    try:
        return str(decode_json_column(f'"{text}"'))
    except ValueError:
        return text


class FinishedScoring(NamedTuple):
    """A finished scoring of a run."""

    number: int
    label: str
    created: str
    is_current: bool
    """Whether the run is read by it by default."""


class Scorings(StorePart):
    """The scorings of runs."""

    def list_finished(self, run: RunRef) -> Sequence[FinishedScoring]:
        """Return a run's finished scorings, with their labels and start times."""
        with self._database.read_transaction() as connection:
            run_no = read_run(connection, run).number
            labels, precedences = _read_finished(connection, run_no)
            current = find_current_scoring(precedences) if precedences else None
            times = select(scorings.c.scoring, scorings.c.created).where(scorings.c.run_no == run_no)
            created = {row.scoring: row.created for row in connection.execute(times)}
        return [FinishedScoring(number, label, created[number], number == current) for number, label in labels.items()]

    def make_current(self, run: RunRef, number: int) -> None:
        """Make a finished scoring current, until the next rescoring or the next choice."""
        with self._database.write_transaction() as connection:
            found = read_run(connection, run)
            run_no = found.number
            connection.execute(select(runs.c.run_no).where(runs.c.run_no == run_no).with_for_update())
            read_effective_scoring_labels(connection, run_no, number)
            newest = max(_read_finished(connection, run_no)[0])
            mine = scorings.c.run_no == run_no
            connection.execute(update(scorings).where(mine), {"chosen": None})
            if number != newest:
                connection.execute(update(scorings).where(mine, scorings.c.scoring == number), {"chosen": newest})
            record_change(connection, "run", found.id, "updated")

    def read_scoring_labels(self, run: RunRef) -> Mapping[int, str]:
        """Return the labels, by number, of the scorings that the run is read by; number 0 came with the replies."""
        with self._database.read_transaction() as connection:
            found = read_run(connection, run)
            return read_effective_scoring_labels(connection, found.number, found.scoring)

    def begin_rescoring(self, run: RunRef, label: str) -> "Rescoring":
        """Return a new scoring, as a context manager, which adds checks beside those there are.

        They are hidden until the context ends. A result without new checks keeps the earlier ones.
        """
        with self._database.read_transaction() as connection:
            return Rescoring(self._database, read_run(connection, run), label)


class Rescoring:
    """Adds checks beside those there are, in chunks, so that no transaction is open while a judge is called.

    They become visible when the context ends, even by an exception, because they have been paid for. A scoring without
    checks is deleted; one with only failed checks is never visible.
    """

    def __init__(self, database: Database, run: Run, label: str) -> None:
        self._database, self._run_id, self._run_no, self.label = database, run.id, run.number, label
        self.number = 0
        self._added, self._failed = 0, 0

    def __enter__(self) -> Self:
        with self._database.write_transaction() as connection:
            connection.execute(select(runs.c.run_no).where(runs.c.run_no == self._run_no).with_for_update())
            highest = select(func.max(scorings.c.scoring)).where(scorings.c.run_no == self._run_no)
            self.number = int(connection.execute(highest).scalar_one()) + 1
            labels, precedences = _read_finished(connection, self._run_no)
            current = find_current_scoring(precedences) if precedences else None
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

    def add(self, keyed_checks: Sequence[KeyedChecks]) -> None:
        """Store new checks, all or none; raise `NotFound` if a result does not exist."""
        with self._database.write_transaction() as connection:
            rows = _make_check_rows(connection, self._run_no, self.number, keyed_checks)
            self._database.run_many(connection, INSERT_CHECKS, rows)
        self._added += len(keyed_checks)

    def add_checks_without_verdict(self, keyed_checks: Sequence[KeyedChecks]) -> None:
        """Store checks without a verdict for results that have one: their cost counts, and they hide nothing."""
        with self._database.write_transaction() as connection:
            rows = _make_check_rows(connection, self._run_no, -self.number, keyed_checks)
            self._database.run_many(connection, INSERT_CHECKS, rows)
        self._failed += len(keyed_checks)

    def __exit__(self, *_: object) -> None:
        try:
            self._record_end()
        except KeyboardInterrupt:  # keep the checks even if the user is impatient
            self._record_end()
            raise

    def _record_end(self) -> None:
        this = and_(scorings.c.run_no == self._run_no, scorings.c.scoring == self.number)
        with self._database.write_transaction() as connection:
            if self._added:
                # A choice made while this rescoring ran ends here, even if one that began later has ended first.
                connection.execute(update(scorings).where(scorings.c.run_no == self._run_no), {"chosen": None})
                connection.execute(
                    update(scorings).where(this), {"finished": timestamp(), "label": escape_text(self.label)}
                )
                record_change(connection, "run", self._run_id, "updated")
            elif not self._failed:
                connection.execute(delete(scorings).where(this))


def sum_check_spending(connection: Connection, run_no: int) -> Spent:
    """Return what judges and embedders have cost during the run itself."""
    asked = checks.c.evidence.like('%"cost_usd"%')
    query = select(checks.c.evidence).join_from(checks, results, results.c.seq == checks.c.seq)
    cost, tokens, unknown_cost, unknown_tokens = 0.0, 0, False, False
    for (text,) in connection.execute(query.where(results.c.run_no == run_no, checks.c.scoring == 0, asked)):
        evidence = decode_json_column(text)
        paid, used = evidence.get("cost_usd"), evidence.get("tokens")
        cost, tokens = cost + (paid or 0.0), tokens + (used or 0)
        unknown_cost, unknown_tokens = unknown_cost or paid is None, unknown_tokens or used is None
    return Spent(cost, tokens, unknown_cost, unknown_tokens)


def _make_check_rows(
    connection: Connection, run_no: int, scoring: int, keyed_checks: Sequence[KeyedChecks]
) -> list[tuple[object, ...]]:
    columns = (cases.c.digest, results.c.model, results.c.variant, results.c.repeat, results.c.seq)
    query = select(*columns).join_from(results, cases, cases.c.case_no == results.c.case_no)
    query = query.where(results.c.run_no == run_no, cases.c.digest.in_(list({key.case for key, _ in keyed_checks})))
    seqs = {tuple(row[:4]): row[4] for row in connection.execute(query)}
    rows = []
    for key, made in keyed_checks:
        seq = seqs.get((key.case, escape_text(key.model), escape_text(key.variant), key.repeat))
        if seq is None:
            raise NotFound(
                f"the run has no result of case {key.case} with {key.model} ({key.variant}, repeat {key.repeat}), so "
                "that result cannot be scored again"
            )
        rows += [(seq, scoring, at, *check_to_row(check)) for at, check in enumerate(made)]
    return rows
