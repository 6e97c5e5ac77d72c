"""Stored runs in brief, for Python, to find yesterday's run. Results stay in the store; `load_report` reads them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from pramana.errors import InvalidInput, describe_value, escape_control_characters
from pramana.model import Outcome, RunStatus
from pramana.report import figures
from pramana.report.run_list import mark_judged_runs
from pramana.request import MAX_NAME_CHARS

if TYPE_CHECKING:
    from pramana.store.store import Store

MAX_LISTED = 2**31


class RunRecord(Struct, frozen=True, kw_only=True):
    """A summary of one stored run; `pramana.load_report(record.id)` returns the run's report."""

    id: str
    date: str
    """When it was created: ISO 8601, UTC."""
    status: RunStatus
    suite: str
    models: tuple[str, ...]
    stored: int
    """Number of results stored so far."""
    expected: int
    """Number of results of the finished run."""
    passed: int
    failed: int
    name: str | None = None
    note: str | None = None
    calibration: str | None = None
    """How far the judges of the verdicts agree with people: `judge agrees 92 %`, or `uncalibrated`; None if no model
    judged."""

    @property
    def pass_rate(self) -> float | None:
        """The share of results with a verdict that passed, over all models; None if no result has a verdict."""
        scored = self.passed + self.failed
        return self.passed / scored if scored else None

    def __str__(self) -> str:
        rate = "no verdict" if self.pass_rate is None else f"{figures.format_percent(self.pass_rate)} passed"
        rate += f", {self.calibration}" if self.calibration and self.pass_rate is not None else ""
        counts = f"{self.stored:,}/{self.expected:,}"
        when = self.date[:16].replace("T", " ")
        name = f"  {escape_control_characters(self.name)}" if self.name else ""
        return f"{self.id}  {when}  {self.status}  {counts}  {rate}  {self.suite}  {', '.join(self.models)}{name}"


class RunList(list[RunRecord]):
    """The list of stored runs that `pramana.runs` returns, newest first.

    As text, the list has one line per run, and the total number of runs if more are stored.
    """

    def __init__(self, runs: Iterable[RunRecord], total: int) -> None:
        super().__init__(runs)
        self.total = total
        """How many stored runs match, listed or not."""

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        more = [f"{len(self):,} of {self.total:,} runs; limit={self.total} lists all"] if len(self) < self.total else []
        return "\n".join([*map(str, self), *more]) or "No runs yet."


def list_runs(
    store: "Store", limit: int, model: str | None, suite_prefix: str | None, run_name_part: str | None
) -> RunList:
    """Return the newest runs of a store."""
    if type(limit) is not int or not 0 <= limit < MAX_LISTED:
        raise InvalidInput(f"limit: expected a whole number from 0, found {describe_value(limit)}")
    texts: dict[str, Any] = {"model": model, "suite": suite_prefix, "name": run_name_part}
    for argument, value in texts.items():
        if not isinstance(value, str | None) or len(value or "") > MAX_NAME_CHARS:
            expected = f"text of at most {MAX_NAME_CHARS} characters"
            raise InvalidInput(f"{argument}: expected {expected}, found {describe_value(value)}")
    found, total = store.runs.read_page(limit=limit, model=model, suite=suite_prefix, name=run_name_part)
    ended = store.history.count_run_outcomes(found)
    counts = (each.outcome_counts if each else {} for each in ended)
    marks = mark_judged_runs(store, found, ended)
    records = (
        RunRecord(
            id=run.id,
            date=run.created,
            status=run.status,
            suite=run.plan.suite,
            models=tuple(target.typed for target in run.plan.targets),
            stored=run.stored,
            expected=run.expected,
            passed=outcomes.get(Outcome.PASSED, 0),
            failed=outcomes.get(Outcome.FAILED, 0),
            name=run.name,
            note=run.note,
            calibration=mark,
        )
        for run, outcomes, mark in zip(found, counts, marks, strict=True)
    )
    return RunList(records, total)
