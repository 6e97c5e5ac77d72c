"""Re-scorings as text: the views come in, lines for a terminal or a notebook go out."""

from collections.abc import Iterator, Sequence
from shutil import get_terminal_size

import click

from pramana.analyse.labels import shorten_names
from pramana.analyse.numbers import counted
from pramana.app.rescoring import ChangedVerdictView, KeptVerdictView, RescoringView, ScoringView
from pramana.errors import visible
from pramana.model import Key, Outcome, Run
from pramana.report import figures
from pramana.report.terminal import fitted, width, wrapped

SHOWN_CHANGES = 20
SHOWN_REASON = 160
"""Columns of a reason."""
LONGEST_NAME = 40
"""Columns of the id of a case."""


def render_rescoring(run: Run, found: RescoringView) -> str:
    """Return what a re-scoring changed: the counts, the changed cases, and those without a new verdict."""
    return "\n".join(_lines(run, found))


def _lines(run: Run, found: RescoringView) -> Iterator[str]:
    if not found.judged:
        yield "No reply was judged again."
        return
    verdicts = counted(found.judged, "verdict")
    counts = ", ".join(f"{each.count:,} {each.before.value} -> {each.after.value}" for each in found.counts)
    yield f"{found.changed:,} of {verdicts} changed: {counts}" if found.changed else f"None of {verdicts} changed."
    for changed in found.changes[:SHOWN_CHANGES]:
        yield _line(run, changed, f"{changed.before.value} -> {changed.after.value}")
    yield from _rest(found.changed)
    if found.kept:
        has = "reply has no new verdict and keeps" if found.kept == 1 else "replies have no new verdict and keep"
        yield f"{found.kept:,} {has} the earlier one:"
    for kept in found.kept_verdicts[:SHOWN_CHANGES]:
        yield _line(run, kept, f"still {kept.verdict.value}")
    yield from _rest(found.kept)


def _line(run: Run, each: ChangedVerdictView | KeptVerdictView, what: str) -> str:
    key = Key("", each.model, each.variant, each.repeat)
    which = figures.which(run.plan.targets, run.plan.variants, run.plan.repeats, key)
    name = f"{fitted(each.case_id, LONGEST_NAME)}{f' ({fitted(which, 2 * LONGEST_NAME)})' if which else ''}"
    return f"  {name}: {what}: {fitted(visible(' '.join(each.reason.split())), SHOWN_REASON)}"


def _rest(count: int) -> Iterator[str]:
    if count > SHOWN_CHANGES:
        yield f"  … and {count - SHOWN_CHANGES:,} more"


def render_scorings(found: Sequence[ScoringView]) -> str:
    """Return the scorings of a run, two lines or more each: its name, its date, what it used, and the pass rates."""
    return "\n".join(line for each in found for line in _scoring(each))


def print_scorings(found: Sequence[ScoringView]) -> None:
    """Print the scorings of a run as wide as the terminal."""
    columns = max(get_terminal_size().columns, 60)
    for line in render_scorings(found).split("\n"):
        click.echo(wrapped(line.lstrip(), columns, "  " if line.startswith(" ") else "", "    "))


def _scoring(each: ScoringView) -> Iterator[str]:
    made = f"{each.created_at[:16].replace('T', ' ')} UTC"
    yield " · ".join([each.reference, made, visible(each.label), *(["current"] if each.current else [])])
    names = shorten_names([row.model for row in each.models], LONGEST_NAME, width)
    for row in each.models:
        outcomes = row.outcomes
        scored = outcomes.passed + outcomes.failed
        rate = f"{outcomes.passed:,}/{scored:,} passed ({figures.percent(row.pass_rate)})" if scored else "no verdict"
        others = (Outcome.ERRORED, Outcome.UNSCORED, Outcome.SKIPPED)
        apart = [f"{count:,} {name.value}" for name in others if (count := getattr(outcomes, name.value))]
        model = f"{names[row.model]}: " if len(each.models) > 1 else ""
        yield f"  {model}{', '.join([rate, *apart])}"
