"""A run as it happens: a live bar in a terminal, plain lines elsewhere, failures as they come. Only what is stored."""

import sys
import time
from typing import Any, Self

import click

from pramana.errors import visible
from pramana.model import Outcome, Result

LINE_EVERY_S = 5.0
FAILURES_SHOWN = 10


class Live:
    """Watches a run. Use as a context manager; `update` is called after each commit."""

    def __init__(self, expected: int, stored: int, *, quiet: bool = False) -> None:
        self.expected, self.stored, self.quiet = expected, stored, quiet
        self.begun_with, self.start = stored, time.monotonic()
        self.counts: dict[Outcome, int] = {}
        self.failures = 0
        self._next_line = self.start + LINE_EVERY_S
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if not self.quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=self.expected, completed=self.stored, note="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def update(self, results: list[Result], cost_usd: float, *, unknown_cost: bool) -> None:
        """Count what was stored and show it."""
        self.stored += len(results)
        for result in results:
            self.counts[result.outcome] = self.counts.get(result.outcome, 0) + 1
            if result.outcome in (Outcome.FAILED, Outcome.ERRORED):
                self._failure(result)
        if self.quiet:
            return
        note = self._note(cost_usd, unknown_cost=unknown_cost)
        if self._bar:
            self._bar.update(self._task, completed=self.stored, note=note)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY_S
            click.echo(f"{self.stored:,} of {self.expected:,}  {note}", err=True)

    def _note(self, cost_usd: float, *, unknown_cost: bool) -> str:
        took = max(time.monotonic() - self.start, 0.001)
        rate = (self.stored - self.begun_with) / took
        known = [f"{self.counts[each]:,} {each}" for each in Outcome if self.counts.get(each)]
        spent = f"${cost_usd:.4f}" if cost_usd else ""
        cost = f"{spent} + unknown" if spent and unknown_cost else "cost unknown" if unknown_cost else spent
        return "  ".join(part for part in (", ".join(known), f"{rate:,.1f}/s", cost) if part)

    def _failure(self, result: Result) -> None:
        self.failures += 1
        if self.quiet or self.failures > FAILURES_SHOWN:
            return
        why = (
            result.failure.message
            if result.failure
            else next((check.reason for check in result.checks if check.outcome == result.outcome), "")
        )
        text = visible(f"{result.outcome} {result.key.model} {result.case_id}: {why}")
        shown = text if len(text) <= 300 else text[:299] + "…"
        if self.failures == FAILURES_SHOWN:
            shown += "\n… further failures are in the summary"
        if self._bar:
            self._bar.console.print(shown, markup=False, highlight=False)
        else:
            click.echo(shown, err=True)
