"""A run as it happens: a live bar in a terminal, plain lines elsewhere, failures as they come. Only what is stored.

Both say the same: how many, how they ended, the rate, the cost, the time left, where the calls under way are, and when
nothing happens because a provider wants nobody to ask. A plain line comes every five seconds while there is news, and
every thirty in any case.
"""

import math
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import click

from pramana import clock
from pramana.errors import visible
from pramana.model import Outcome, Plan, Result
from pramana.report import figures, terminal

if TYPE_CHECKING:
    from pramana.bench import Progress
    from pramana.run.engine import Stop

LINE_EVERY_S = 5.0
QUIET_LINE_EVERY_S = 30.0
"""A run that stands still says so: whoever reads a log cannot see a bar that does not move."""
FAILURES_SHOWN = 10
IMPATIENT_S = 2.0
"""How long an end at once may take before yet another signal hurries it: what was stored is written down in that."""


class Live:
    """Watches a run. Use as a context manager; `update` is called after each commit, and now and then besides."""

    def __init__(
        self,
        expected: int,
        counts: Mapping[Outcome, int] | None = None,
        *,
        quiet: bool = False,
        clock: Callable[[], float] = clock.monotonic,
    ) -> None:
        """Watch a run of which results are stored already, `counts` of each outcome."""
        self.counts: dict[Outcome, int] = dict(counts or {})
        stored = sum(self.counts.values())
        self.expected, self.stored, self.quiet = expected, stored, quiet
        self._clock = clock
        self.begun_with, self.start = stored, clock()
        self._plan: Plan | None = None
        self.failures = 0
        self._said_at, self._said = self.start, (stored, False, "")
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

    def __call__(self, progress: "Progress") -> None:
        """Watch a run: a `bench.Watch`."""
        self._plan = progress.run.plan
        self.update(
            list(progress.results),
            progress.budget.cost_usd,
            unknown_cost=progress.budget.unknown_cost,
            waiting_s=progress.waiting_s(),
            calls=figures.call_stages(progress.calls()),
        )

    def update(
        self, results: list[Result], cost_usd: float, *, unknown_cost: bool, waiting_s: float = 0.0, calls: str = ""
    ) -> None:
        """Count what was stored, perhaps nothing, and show how far the run is and where its calls are."""
        try:
            self._update(results, cost_usd, unknown_cost=unknown_cost, waiting_s=waiting_s, calls=calls)
        except OSError:  # the terminal is gone: the run need not end for that
            self.quiet = True

    def _update(
        self, results: list[Result], cost_usd: float, *, unknown_cost: bool, waiting_s: float, calls: str
    ) -> None:
        self.stored += len(results)
        if self.quiet:
            return
        for result in results:
            self.counts[result.outcome] = self.counts.get(result.outcome, 0) + 1
            if result.outcome in (Outcome.FAILED, Outcome.ERRORED):
                self._failure(result)
        note = self._note(cost_usd, unknown_cost=unknown_cost, waiting_s=waiting_s, calls=calls)
        if self._bar:
            self._bar.update(self._task, completed=self.stored, note=note)
            return
        now, news = self._clock(), (self.stored, waiting_s > 0, calls)
        if now - self._said_at >= (LINE_EVERY_S if news != self._said else QUIET_LINE_EVERY_S):
            self._said_at, self._said = now, news
            click.echo(f"{self.stored:,} of {self.expected:,}  {note}", err=True)

    def _note(self, cost_usd: float, *, unknown_cost: bool, waiting_s: float = 0.0, calls: str = "") -> str:
        took = max(self._clock() - self.start, 0.001)
        rate = (self.stored - self.begun_with) / took
        known = [f"{self.counts[each]:,} {each}" for each in Outcome if self.counts.get(each)]
        spent = f"${cost_usd:.4f}" if cost_usd else ""
        cost = f"{spent} + unknown" if spent and unknown_cost else "cost unknown" if unknown_cost else spent
        left = f"{_span((self.expected - self.stored) / rate)} left" if rate else "time left unknown"
        waiting = f"waiting {_span(waiting_s)} as the provider asks" if waiting_s > 0 else ""
        speed = f"{rate * 60:,.1f}/min" if 0 < rate < 0.1 else f"{rate:,.1f}/s"
        return "  ".join(part for part in (", ".join(known), calls, speed, cost, left, waiting) if part)

    def _failure(self, result: Result) -> None:
        self.failures += 1
        if self.quiet or self.failures > FAILURES_SHOWN:
            return
        why = (
            result.failure.message
            if result.failure
            else next((check.reason for check in result.checks if check.outcome == result.outcome), "")
        )
        plan, which = self._plan, ""
        if plan:
            which = figures.which(plan.targets, plan.variants, plan.repeats, result.key, named=False)
        text = visible(f"{result.outcome} {result.key.model} {result.case_id}{f' ({which})' if which else ''}: {why}")
        shown = text if len(text) <= 300 else text[:299] + "…"
        if self.failures == FAILURES_SHOWN:
            shown += "\n… further failures are counted only; see them all with: pramana export --format csv"
        if self._bar:
            self._bar.console.print(shown, markup=False, highlight=False)
        else:
            click.echo(terminal.told(shown), err=True)


class Interruptible:
    """The first Ctrl-C finishes what is under way, and so does the first SIGTERM or SIGHUP; the next ends at once.

    Whoever ignores SIGHUP, as `nohup` does, wants a run to survive its terminal.
    """

    def __init__(self, stop: "Stop", clock: Callable[[], float] = clock.monotonic) -> None:
        self._stop, self._clock = stop, clock
        self._before: dict[signal.Signals, Any] = {}
        self._times, self._last = 0, -math.inf

    def __enter__(self) -> None:
        for each in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", None)):  # not every system has the last
            if each and (each is signal.SIGINT or signal.getsignal(each) is not signal.SIG_IGN):
                self._before[each] = signal.signal(each, self._told)

    def __exit__(self, *_: object) -> None:
        for each, before in self._before.items():
            signal.signal(each, before)

    def _told(self, number: int, _: object) -> None:
        from pramana.bench import INTERRUPTED

        self._stop(INTERRUPTED)
        self._times += 1
        if self._times == 1:
            again = "press Ctrl-C again" if number == signal.SIGINT else "signal again"
            with suppress(OSError, RuntimeError):  # no terminal any more, or we were just writing to it
                click.echo(f"Finishing what is under way; {again} to stop at once.", err=True)
        elif self._clock() - self._last > IMPATIENT_S:  # who hammers on the key means it once
            self._last = self._clock()
            raise KeyboardInterrupt


def _span(seconds: float) -> str:
    """Return a time to wait, in two units at most.

    >>> _span(0.2), _span(90), _span(601), _span(7300)
    ('1 s', '90 s', '10 min', '2 h 01 min')
    """
    if seconds < 120:
        return f"{math.ceil(seconds)} s"
    minutes = int(seconds) // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60:,} h {minutes % 60:02} min"
