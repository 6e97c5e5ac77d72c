"""A run's summary at the terminal: pass rates with their intervals first, then what it cost, how long, and why not."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from pramana.analyse.gate import Decision, exit_code
from pramana.analyse.summary import Rate, Summary
from pramana.errors import visible
from pramana.model import Run
from pramana.show import figures
from pramana.show.exports import Results, models_of, tally_for

if TYPE_CHECKING:
    from pramana.store.runs import Store

SHOWN_REASONS = 8
SHOWN_ROWS = 12
BAR = 10


def summary_of(store: "Store", run: Run) -> Summary:
    """Add up a run from what is stored."""
    return summary_of_results(run, store.pairs(run.id))


def summary_of_results(run: Run, results: Results) -> Summary:
    """Add up these results of a run."""
    tally = tally_for(run)
    for case, result in results:
        tally.add(case, result)
    return tally.summary()


def decide(run: Run, summary: Summary, fail_under: float | None = None) -> Decision:
    """Say how a program that shows this run exits, and why: each model by itself, with what it was not asked yet."""
    models = models_of(run)
    there, each = summary.by["model"], run.expected // max(1, len(models))
    return exit_code(
        summary,
        fail_under,
        {model: max(0, each - (there[model].total if model in there else 0)) for model in models},
    )


def print_summary(run: Run, summary: Summary, sentence: str) -> None:
    """Print it within 80 columns."""
    click.echo()
    click.echo(click.style(visible(f"{run.plan.suite} · run {run.id}"), bold=True))
    if run.plan.selection:
        _wrapped(f"a selection, not the whole suite: {figures.selection(run.plan.selection)}")
    _rates("", {"all": summary.overall})
    for title, rows in summary.by.items():
        if len(rows) > 1:
            _rates(title, rows)
    click.echo()
    _wrapped(figures.spent(summary))
    for reason in summary.reasons[:SHOWN_REASONS]:
        cases = ", ".join(reason.cases) + (" …" if reason.more else "")
        _wrapped(f"{reason.count:,} {reason.outcome}: {reason.text} ({cases})")
    if len(summary.reasons) > SHOWN_REASONS:
        _wrapped(f"… and {len(summary.reasons) - SHOWN_REASONS} further reasons")
    for note in summary.not_reproducible:
        _wrapped(f"not reproducible: {note}")
    if run.reason and run.status != "finished":
        _wrapped(f"{run.status}: {run.reason}")
    click.echo()
    click.echo(click.wrap_text(visible(sentence), 80))


def _wrapped(text: str) -> None:
    click.echo(click.wrap_text(visible(text), 78, "  ", "    "))


def _rates(title: str, rows: Mapping[str, Rate]) -> None:
    if title:
        click.echo(f"\n  by {title}")
    for name, rate in list(rows.items())[:SHOWN_ROWS]:
        share = rate.value or 0.0
        bar = ("█" * round(share * BAR)).ljust(BAR, "·") if rate.scored else " " * BAR
        counts = f"{rate.passed:,}/{rate.scored:,}" if rate.scored else "–"
        shown = f"{figures.percent(rate.value):>7} ({figures.span(rate)})" if rate.scored else ""
        line = f"    {visible(name)[:22]:22} {bar} {counts:>9} {shown}".rstrip()
        apart = [f"{getattr(rate, each)} {each}" for each in ("errored", "unscored", "skipped") if getattr(rate, each)]
        if apart and len(line) + len(", ".join(apart)) < 78:
            line += f" {', '.join(apart)}"
        elif apart:
            line += f"\n{'':27}{', '.join(apart)}"
        click.echo(line)
    if len(rows) > SHOWN_ROWS:
        click.echo(f"    … and {len(rows) - SHOWN_ROWS} more; --json shows all")
