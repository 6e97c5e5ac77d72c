"""Labels: people's verdicts on replies that a judge judged, and the judged checks beside which they are read.

A label belongs to a reply and to one of its criteria, not to a scoring: it stays when another judge judges the reply.
Several people may label the same reply; each has one label of it, and a new one replaces the old. Nothing here draws
replies or counts agreement.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from sqlalchemy import Select, and_, delete, func, insert, select, update

from pramana.errors import NotFound, quote_text
from pramana.model import Check, Outcome
from pramana.store.engine import CHUNK_ROWS, StorePart, record_change, split_into_chunks, timestamp
from pramana.store.queue import ACTIVE_STATUSES
from pramana.store.records import RunRef, escape_text, read_run, unescape_text
from pramana.store.schema import cases, checks, labels, results, runs
from pramana.store.scoring import (
    VerdictJudge,
    count_verdicts_by_judge,
    read_effective_scoring_labels,
    read_newest_checks,
)

LabelVerdict = Literal["yes", "no", "unsure"]
MAX_SEARCHED_RUNS, SEARCHED_RESULTS = 200, 100
"""Runs, and results of each, among which judged replies are looked for."""


class Label(Struct, frozen=True):
    """One person's verdict on one reply by one criterion."""

    seq: int
    """The number of the result."""
    criterion: str
    """Which judged check of the result, such as `llm_judge`, or `llm_judge:1` for the second line of a script."""
    rater: str
    verdict: LabelVerdict
    note: str = ""
    scoring: int | None = None
    """The scoring by whose verdicts the reply was drawn; None for a reply that was not drawn."""
    labelled_at: str = ""
    """Set by the store."""


class CheckedResult(NamedTuple):
    """A result with its checks, without its reply."""

    seq: int
    case_digest: str
    model: str
    checks: Sequence[Check]


class JudgedRun(NamedTuple):
    """A run with judged replies, and how many of them people have labelled."""

    id: str
    labelled_count: int
    rater_count: int


class LabelsState(NamedTuple):
    """What changes whenever a label is saved or removed, as the key of a cache."""

    label_count: int
    last_labelled: str


class Labels(StorePart):
    """The labels of runs."""

    def save(self, run: RunRef, given: Sequence[Label]) -> None:
        """Store labels, all or none; each replaces the rater's earlier label of the same reply and criterion."""
        with self._database.write_transaction() as connection:
            found = read_run(connection, run)
            # Lock the run's row, so that two labels of one rater for one reply are not both inserted.
            connection.execute(select(runs.c.run_no).where(runs.c.run_no == found.number).with_for_update())
            wanted = {each.seq for each in given}
            mine = and_(results.c.run_no == found.number, results.c.seq.in_(wanted))
            if missing := wanted - set(connection.scalars(select(results.c.seq).where(mine))):
                raise NotFound(f"run {quote_text(found.id)} has no result {min(missing)}")
            now = timestamp()
            for each in given:
                row = {
                    "seq": each.seq,
                    "criterion": escape_text(each.criterion),
                    "rater": escape_text(each.rater),
                    "run_no": found.number,
                    "verdict": each.verdict,
                    "note": escape_text(each.note),
                    "scoring": each.scoring,
                    "labelled": each.labelled_at or now,
                }
                known = and_(*(labels.c[name] == row[name] for name in ("seq", "criterion", "rater")))
                if not connection.execute(update(labels).where(known), row).rowcount:
                    connection.execute(insert(labels), row)
            record_change(connection, "run", found.id, "updated")

    def remove(self, run: RunRef, seq: int, criterion: str, rater: str) -> bool:
        """Remove a label; return whether there was one."""
        with self._database.write_transaction() as connection:
            found = read_run(connection, run)
            this = and_(
                labels.c.run_no == found.number,
                labels.c.seq == seq,
                labels.c.criterion == escape_text(criterion),
                labels.c.rater == escape_text(rater),
            )
            removed = connection.execute(delete(labels).where(this)).rowcount > 0
            if removed:
                record_change(connection, "run", found.id, "updated")
        return removed

    def list_of_run(self, run: RunRef) -> list[Label]:
        """Return the labels of a run, by result, criterion and rater."""
        with self._database.read_transaction() as connection:
            run_no = read_run(connection, run).number
            query = select(labels).where(labels.c.run_no == run_no)
            rows = connection.execute(query.order_by(labels.c.seq, labels.c.criterion, labels.c.rater)).mappings()
            return [
                Label(
                    row["seq"],
                    unescape_text(row["criterion"]),
                    unescape_text(row["rater"]),
                    row["verdict"],
                    unescape_text(row["note"]),
                    row["scoring"],
                    row["labelled"],
                )
                for row in rows
            ]

    def list_labelled_run_ids(self) -> list[str]:
        """Return the IDs of the runs with labels, newest first."""
        query: Select[Any] = (
            select(runs.c.id).where(runs.c.run_no.in_(select(labels.c.run_no))).order_by(runs.c.run_no.desc())
        )
        return [row.id for row in self._fetch_rows(query)]

    def list_judged_runs(self, check_names: Sequence[str], limit: int) -> list[JudgedRun]:
        """Return the newest runs that have ended and whose first results have a verdict of these checks, newest first.

        A run whose first hundred results have none is left out: reading all results of a long run takes seconds.
        """
        found: list[JudgedRun] = []
        ended = select(runs.c.run_no, runs.c.id).where(runs.c.status.not_in(ACTIVE_STATUSES))
        with self._database.read_transaction() as connection:
            newest = connection.execute(ended.order_by(runs.c.run_no.desc()).limit(MAX_SEARCHED_RUNS)).all()
            for run_no, run_id in newest:
                first = select(results.c.seq).where(results.c.run_no == run_no).order_by(results.c.seq)
                some = first.limit(SEARCHED_RESULTS).subquery()
                judged = select(checks.c.seq).where(
                    checks.c.seq.in_(select(some.c.seq)),
                    checks.c.name.in_(check_names),
                    checks.c.outcome.in_((Outcome.PASSED.value, Outcome.FAILED.value)),
                )
                if connection.execute(judged.limit(1)).first() is None:
                    continue
                counts = select(func.count(labels.c.seq.distinct()), func.count(labels.c.rater.distinct()))
                labelled, raters = connection.execute(counts.where(labels.c.run_no == run_no)).one()
                found.append(JudgedRun(run_id, labelled, raters))
                if len(found) == limit:
                    break
        return found

    def read_state(self) -> LabelsState:
        """Return what changes with every label."""
        with self._database.read_transaction() as connection:
            count, last = connection.execute(select(func.count(labels.c.seq), func.max(labels.c.labelled))).one()
        return LabelsState(count, last or "")

    def count_verdicts(self, run: RunRef) -> list[tuple[VerdictJudge, bool, int]]:
        """Return how many replies of a run each judge passed (True) and failed; no check is read into memory."""
        with self._database.read_transaction() as connection:
            found = read_run(connection, run)
            among = list(read_effective_scoring_labels(connection, found.number, found.scoring))
            counts = count_verdicts_by_judge(connection, [found.number], among) if among else ()
            return [(judge, outcome is Outcome.PASSED, count) for _, judge, outcome, count in counts]

    def iterate_checks(
        self, run: RunRef, scoring: int | None = None, *, seqs: Sequence[int] | None = None
    ) -> Iterator[CheckedResult]:
        """Yield each result with its newest checks, or those as of a scoring, and without its reply.

        `seqs` are the numbers of the only results to yield.
        """
        for some in [None] if seqs is None else split_into_chunks(seqs):
            yield from self._iterate_checks(run, scoring, some)

    def _iterate_checks(self, run: RunRef, scoring: int | None, seqs: Sequence[int] | None) -> Iterator[CheckedResult]:
        with self._database.read_transaction() as connection:
            found = read_run(connection, run)
            among = read_effective_scoring_labels(
                connection, found.number, found.scoring if scoring is None else scoring
            )
        query = select(results.c.seq, cases.c.digest, results.c.model)
        query = query.join_from(results, cases, cases.c.case_no == results.c.case_no).order_by(results.c.seq)
        after = 0
        while True:
            mine = and_(results.c.run_no == found.number, results.c.seq > after)
            mine = mine if seqs is None else and_(mine, results.c.seq.in_(seqs))
            with self._database.read_transaction() as connection:
                rows = connection.execute(query.where(mine).limit(CHUNK_ROWS)).all()
                made = read_newest_checks(connection, [row.seq for row in rows], among) if rows else {}
            if not rows:
                return
            for row in rows:
                yield CheckedResult(row.seq, row.digest, unescape_text(row.model), made.get(row.seq, ()))
            after = rows[-1].seq
