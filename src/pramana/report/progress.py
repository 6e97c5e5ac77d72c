"""A run as it happens: a live bar in a terminal or a notebook, plain lines elsewhere, failures as they come.

Only stored results count.

Both show the same: the number of results, their outcomes, the rate, the cost, the time left, the stages of calls under
way, and whether the run is waiting for a provider's rate limit. A plain line is printed every five seconds while there
is news, and every thirty seconds in any case.
"""

import math
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import click

from pramana import clock
from pramana.errors import escape_control_characters
from pramana.model import Outcome, Plan, Result, Run
from pramana.report import figures, terminal

if TYPE_CHECKING:
    from pramana.bench import Progress

LINE_INTERVAL_S = 5.0
UNCHANGED_LINE_INTERVAL_S = 30.0
"""Interval of lines without news: a log has no bar that shows that the run is still waiting."""
MAX_SHOWN_FAILURES = 10
REDRAW_INTERVAL_S = 0.2


class LiveProgress:
    """Shows the progress of a run. Use as a context manager; call `update` after each commit and from time to time."""

    def __init__(
        self,
        expected: int,
        counts: Mapping[Outcome, int] | None = None,
        *,
        quiet: bool = False,
        heading: str = "",
        failures: bool = True,
        clock: Callable[[], float] = clock.monotonic,
    ) -> None:
        """Show a run with `counts` of results already stored, by outcome.

        The heading is printed at the first update, at most a second after the start, so a run that cannot start prints
        none. Without `failures`, failures are only counted: a summary that follows has them.
        """
        self.counts: dict[Outcome, int] = dict(counts or {})
        stored = sum(self.counts.values())
        self.expected, self.stored, self.quiet, self._heading = expected, stored, quiet, heading
        self._clock, self._shows_failures = clock, failures
        self.stored_at_start, self.start = stored, clock()
        self._plan: Plan | None = None
        self.failures = 0
        self._last_line_at, self._last_line = self.start, (stored, False, "")
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if not self.quiet and sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}", markup=False))
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=self.expected, completed=self.stored, note="")
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            with suppress(OSError):
                self._bar.stop()

    def set_expected_count(self, expected: int) -> None:
        """Set the number of results, for a run that does not exist when the progress is opened."""
        self.expected = expected
        if self._bar:
            self._bar.update(self._task, total=expected)

    def refresh(self, *, at_once: bool = False) -> None:
        """Redraw, where the waiting thread has to; a terminal's bar redraws itself."""

    def __call__(self, progress: "Progress") -> None:
        """Update from a run's progress; makes this a `bench.ProgressCallback`."""
        self._plan = progress.run.plan
        self.update(
            list(progress.new_results),
            progress.budget.cost_usd,
            unknown_cost=progress.budget.unknown_cost,
            rate_limit_wait_s=progress.get_rate_limit_wait_s(),
            call_stages=figures.describe_call_stages(progress.count_calls()),
        )

    def update(
        self,
        results: list[Result],
        cost_usd: float,
        *,
        unknown_cost: bool,
        rate_limit_wait_s: float = 0.0,
        call_stages: str = "",
    ) -> None:
        """Count newly stored results, if any, and show the progress and the stages of calls."""
        try:
            self._update(
                results,
                cost_usd,
                unknown_cost=unknown_cost,
                rate_limit_wait_s=rate_limit_wait_s,
                call_stages=call_stages,
            )
        except OSError:  # the terminal is gone; the run goes on
            self.quiet = True

    def _update(
        self, results: list[Result], cost_usd: float, *, unknown_cost: bool, rate_limit_wait_s: float, call_stages: str
    ) -> None:
        self.stored += len(results)
        if self.quiet:
            return
        if self._heading:
            click.echo(self._heading, err=True)
            self._heading = ""
        for result in results:
            self.counts[result.outcome] = self.counts.get(result.outcome, 0) + 1
            if result.outcome in (Outcome.FAILED, Outcome.ERRORED):
                self._print_failure(result)
        note = self._format_progress_note(
            cost_usd, unknown_cost=unknown_cost, rate_limit_wait_s=rate_limit_wait_s, call_stages=call_stages
        )
        if self._bar:
            self._bar.update(self._task, completed=self.stored, note=note)
            return
        now, news = self._clock(), (self.stored, rate_limit_wait_s > 0, call_stages)
        if now - self._last_line_at >= (LINE_INTERVAL_S if news != self._last_line else UNCHANGED_LINE_INTERVAL_S):
            self._last_line_at, self._last_line = now, news
            click.echo(f"{self.stored:,} of {self.expected:,}  {note}", err=True)

    def _format_progress_note(
        self, cost_usd: float, *, unknown_cost: bool, rate_limit_wait_s: float = 0.0, call_stages: str = ""
    ) -> str:
        took = max(self._clock() - self.start, 0.001)
        rate = (self.stored - self.stored_at_start) / took
        known = [f"{self.counts[each]:,} {each}" for each in Outcome if self.counts.get(each)]
        spent = f"${cost_usd:.4f}" if cost_usd else ""
        cost = f"{spent} + unknown" if spent and unknown_cost else "cost unknown" if unknown_cost else spent
        left = f"{_format_wait((self.expected - self.stored) / rate)} left" if rate else "time left unknown"
        waiting = f"waiting {_format_wait(rate_limit_wait_s)} as the provider asks" if rate_limit_wait_s > 0 else ""
        speed = f"{rate * 60:,.1f}/min" if 0 < rate < 0.1 else f"{rate:,.1f}/s"
        return "  ".join(part for part in (", ".join(known), call_stages, speed, cost, left, waiting) if part)

    def _print_failure(self, result: Result) -> None:
        self.failures += 1
        if self.quiet or not self._shows_failures or self.failures > MAX_SHOWN_FAILURES:
            return
        why = (
            result.failure.message
            if result.failure
            else next((check.reason for check in result.checks if check.outcome == result.outcome), "")
        )
        plan, which = self._plan, ""
        if plan:
            which = figures.describe_model_variant_and_repeat(
                plan.targets, plan.variants, plan.repeats, result.key, with_model=False
            )
        text = escape_control_characters(
            f"{result.outcome} {result.key.model} {result.case_id}{f' ({which})' if which else ''}: {why}"
        )
        shown = text if len(text) <= 300 else text[:299] + "…"
        if self.failures == MAX_SHOWN_FAILURES:
            shown += "\n… further failures are counted only; see them all with: pramana export --format csv"
        if self._bar:
            self._bar.console.print(shown, markup=False, highlight=False)
        else:
            click.echo(terminal.wrap_for_terminal(shown), err=True)


class NotebookBar(LiveProgress):
    """A bar below a notebook's cell. `refresh` draws it, in the thread whose output the cell shows."""

    def __init__(
        self, expected: int, counts: Mapping[Outcome, int] | None = None, *, runs_in_other_thread: bool = False
    ) -> None:
        """Show a run; `runs_in_other_thread` means that it runs in another thread while this one calls `refresh`."""
        super().__init__(expected, counts)
        self._beside, self._note_shown, self._drawn_at = runs_in_other_thread, "", -math.inf
        self._handle: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._beside:
            self.refresh(at_once=True)

    def set_expected_count(self, expected: int) -> None:
        """Set the number of results, for a run that does not exist when the progress is opened."""
        self.expected = expected
        if self._bar:
            self._bar.update(self._task, total=expected)

    def refresh(self, *, at_once: bool = False) -> None:
        """Draw the bar, five times a second at most."""
        from html import escape

        from IPython.display import HTML, display

        if not at_once and self._clock() - self._drawn_at < REDRAW_INTERVAL_S:
            return
        self._drawn_at = self._clock()
        bar = f'<progress value="{self.stored}" max="{max(1, self.expected)}"></progress>'
        shown = HTML(f"{bar} {self.stored:,} of {self.expected:,} {escape(self._note_shown)}")  # type: ignore[no-untyped-call]
        if self._handle is None:
            self._handle = display(shown, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(shown)

    def _update(
        self, results: list[Result], cost_usd: float, *, unknown_cost: bool, rate_limit_wait_s: float, call_stages: str
    ) -> None:
        self.stored += len(results)
        for result in results:
            self.counts[result.outcome] = self.counts.get(result.outcome, 0) + 1
        self._note_shown = self._format_progress_note(
            cost_usd, unknown_cost=unknown_cost, rate_limit_wait_s=rate_limit_wait_s, call_stages=call_stages
        )
        if not self._beside:
            self.refresh()


def make_progress_display(
    run: Run, counts: Mapping[Outcome, int] | None, is_shown: bool | None, *, runs_in_other_thread: bool = False
) -> "LiveProgress":
    """Return the progress display of a run started from Python; None shows it in a terminal or a notebook only."""
    if is_shown is not False and _is_in_notebook():
        return NotebookBar(run.expected, counts, runs_in_other_thread=runs_in_other_thread)
    writable = sys.stderr is not None and not getattr(sys.stderr, "closed", False)
    visible = writable and (sys.stderr.isatty() if is_shown is None else is_shown)
    return LiveProgress(run.expected, counts, quiet=not visible)


def _is_in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return any(each.__name__ == "ZMQInteractiveShell" for each in type(shell).__mro__)  # Colab's is a subclass


def _format_wait(seconds: float) -> str:
    """Format a waiting time in at most two units.

    >>> _format_wait(0.2), _format_wait(90), _format_wait(601), _format_wait(7300)
    ('1 s', '90 s', '10 min', '2 h 01 min')
    """
    if seconds < 120:
        return f"{math.ceil(seconds)} s"
    minutes = int(seconds) // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60:,} h {minutes % 60:02} min"
