"""Stored runs in brief, for Python, to find yesterday's run. Results stay in the store; `load_report` reads them."""

from typing import TYPE_CHECKING

from msgspec import Struct

from pramana.model import Outcome, RunStatus
from pramana.report import figures

if TYPE_CHECKING:
    from pramana.store.store import Store


class RunRecord(Struct, frozen=True, kw_only=True):
    """A stored run in brief; `pramana.load_report(record.id)` returns its report."""

    id: str
    date: str
    """When it was created: ISO 8601, UTC."""
    status: RunStatus
    suite: str
    models: tuple[str, ...]
    stored: int
    """Results so far."""
    expected: int
    """Results once it has finished."""
    passed: int
    failed: int

    @property
    def pass_rate(self) -> float | None:
        """The share of results with a verdict that passed, of all models together; None without any."""
        scored = self.passed + self.failed
        return self.passed / scored if scored else None

    def __str__(self) -> str:
        rate = "no verdict" if self.pass_rate is None else f"{figures.format_percent(self.pass_rate)} passed"
        counts = f"{self.stored:,}/{self.expected:,}"
        when = self.date[:16].replace("T", " ")
        return f"{self.id}  {when}  {self.status}  {counts}  {rate}  {self.suite}  {', '.join(self.models)}"


class RunList(list[RunRecord]):
    """Stored runs, newest first; as text, a line for each."""

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "No runs yet."


def list_runs(store: "Store", limit: int, model: str | None, suite: str | None) -> RunList:
    """Return the newest runs of a store."""
    found = store.runs.page(limit=limit, model=model, suite=suite)[0]
    counts = (each.outcomes if each else {} for each in store.history.count_ended(found))
    return RunList(
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
        )
        for run, outcomes in zip(found, counts, strict=True)
    )
