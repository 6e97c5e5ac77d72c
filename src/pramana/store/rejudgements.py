"""Rejudgements: verdicts of judges that were asked again, each beside the earlier verdict of the same judge.

They measure how far a verdict depends on the order of the prompt, and on chance. They are no scoring of the run: what
is current, and every pass rate, stays as it is. A rejudgement belongs to its run and is deleted with it. Nothing here
calls a judge or counts changes.
"""

from collections.abc import Sequence

from msgspec import Struct
from sqlalchemy import and_, insert, select, update

from pramana.errors import NotFound, quote_text
from pramana.model import Check, Outcome, PromptOrder
from pramana.store.engine import StorePart, record_change, timestamp
from pramana.store.records import (
    CHECK_COLUMNS,
    RunRef,
    check_from_row,
    check_to_row,
    escape_text,
    read_run,
    unescape_text,
)
from pramana.store.schema import cases, rejudgements, results, runs


class Rejudgement(Struct, frozen=True):
    """A verdict of a judge that was asked again, and its earlier one."""

    seq: int
    """The number of the result."""
    criterion: str
    judge: str
    """As typed; of a panel, all its judges."""
    prompt_order: PromptOrder
    """How the prompt was ordered: `usual` for the same prompt as before."""
    earlier_version: str
    """Version of the check that made the earlier verdict."""
    earlier_passed: bool
    check: Check
    case_digest: str = ""
    """Set by the store."""

    @property
    def key(self) -> tuple[int, str, str, str, PromptOrder]:
        """What tells it apart from the others of its run."""
        return self.seq, self.criterion, self.judge, self.earlier_version, self.prompt_order


class Rejudgements(StorePart):
    """The rejudgements of runs."""

    def add(self, run: RunRef, made: Sequence[Rejudgement]) -> None:
        """Store rejudgements, all or none; each replaces one of the same verdict by the same order."""
        with self._database.write_transaction() as connection:
            found = read_run(connection, run)
            # Lock the run's row, so that two processes that judge the same reply do not both insert.
            connection.execute(select(runs.c.run_no).where(runs.c.run_no == found.number).with_for_update())
            wanted = {each.seq for each in made}
            mine = and_(results.c.run_no == found.number, results.c.seq.in_(wanted))
            if missing := wanted - set(connection.scalars(select(results.c.seq).where(mine))):
                raise NotFound(f"run {quote_text(found.id)} has no result {min(missing)}")
            now = timestamp()
            for each in made:
                row = {
                    "seq": each.seq,
                    "criterion": escape_text(each.criterion),
                    "judge": escape_text(each.judge),
                    "run_no": found.number,
                    "prompt_order": each.prompt_order,
                    "earlier_version": escape_text(each.earlier_version),
                    "earlier_outcome": (Outcome.PASSED if each.earlier_passed else Outcome.FAILED).value,
                    **dict(zip(CHECK_COLUMNS, check_to_row(each.check), strict=True)),
                    "created": now,
                }
                key = ("seq", "criterion", "judge", "earlier_version", "prompt_order")
                known = and_(*(rejudgements.c[name] == row[name] for name in key))
                if not connection.execute(update(rejudgements).where(known), row).rowcount:
                    connection.execute(insert(rejudgements), row)
            record_change(connection, "run", found.id, "updated")

    def list_of_run(self, run: RunRef) -> list[Rejudgement]:
        """Return the rejudgements of a run, by result, criterion, judge and order of the prompt."""
        table = rejudgements.c
        with self._database.read_transaction() as connection:
            query = select(rejudgements, cases.c.digest)
            query = query.join_from(rejudgements, results, results.c.seq == table.seq)
            query = query.join(cases, cases.c.case_no == results.c.case_no)
            query = query.where(table.run_no == read_run(connection, run).number)
            rows = connection.execute(
                query.order_by(table.seq, table.criterion, table.judge, table.prompt_order)
            ).mappings()
            return [
                Rejudgement(
                    row["seq"],
                    unescape_text(row["criterion"]),
                    unescape_text(row["judge"]),
                    row["prompt_order"],
                    unescape_text(row["earlier_version"]),
                    row["earlier_outcome"] == Outcome.PASSED.value,
                    check_from_row([row[name] for name in CHECK_COLUMNS]),
                    row["digest"],
                )
                for row in rows
            ]
