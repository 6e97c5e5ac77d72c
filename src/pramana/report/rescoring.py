"""Re-scorings as text: views in, lines for a terminal or a notebook out."""

from collections.abc import Iterator, Sequence
from shutil import get_terminal_size

import click

from pramana.analyse.labels import shorten_names
from pramana.analyse.numbers import pluralise
from pramana.app.rescoring import ChangedVerdictView, KeptVerdictView, RescoringView, ScoringView
from pramana.errors import escape_control_characters
from pramana.model import Key, Outcome, Run
from pramana.report import figures
from pramana.report.terminal import fit_to_width, text_width, wrap_text

NO_NEW_VERDICT = "No reply has a new verdict: the rescoring is inconclusive."
SHOWN_CHANGES = 20
SHOWN_REASON = 160
"""Columns shown of a reason."""
MAX_NAME_LENGTH = 40
"""Columns of a case's id."""


def render_rescoring(run: Run, rescoring: RescoringView) -> str:
    """Return the changes of a re-scoring: the counts, the changed cases, and those without a new verdict."""
    return "\n".join(_rescoring_lines(run, rescoring))


def _rescoring_lines(run: Run, rescoring: RescoringView) -> Iterator[str]:
    if not rescoring.judged:
        yield "No reply was scored again."
        return
    verdicts = pluralise(rescoring.judged, "verdict")
    counts = ", ".join(f"{each.count:,} {each.before.value} -> {each.after.value}" for each in rescoring.counts)
    if rescoring.changed:
        yield f"{rescoring.changed:,} of {verdicts} changed: {counts}"
    else:
        yield f"None of {verdicts} changed." if rescoring.new_verdicts else NO_NEW_VERDICT
    for changed in rescoring.changes[:SHOWN_CHANGES]:
        yield _verdict_line(run, changed, f"{changed.before.value} -> {changed.after.value}")
    yield from _more_line(rescoring.changed)
    if rescoring.kept:
        has = "reply has no new verdict and keeps" if rescoring.kept == 1 else "replies have no new verdict and keep"
        yield f"{rescoring.kept:,} {has} the earlier one:"
    for kept in rescoring.kept_verdicts[:SHOWN_CHANGES]:
        yield _verdict_line(run, kept, f"still {kept.verdict.value}")
    yield from _more_line(rescoring.kept)


def _verdict_line(run: Run, each: ChangedVerdictView | KeptVerdictView, what: str) -> str:
    key = Key("", each.model, each.variant, each.repeat)
    which = figures.describe_variation(run.plan.targets, run.plan.variants, run.plan.repeats, key)
    beside = f" ({fit_to_width(which, 2 * MAX_NAME_LENGTH)})" if which else ""
    name = f"{fit_to_width(each.case_id, MAX_NAME_LENGTH)}{beside}"
    return f"  {name}: {what}: {fit_to_width(escape_control_characters(' '.join(each.reason.split())), SHOWN_REASON)}"


def _more_line(count: int) -> Iterator[str]:
    if count > SHOWN_CHANGES:
        yield f"  … and {count - SHOWN_CHANGES:,} more"


def render_scorings(scorings: Sequence[ScoringView]) -> str:
    """Return the scorings of a run, at least two lines each: name, date, judge and other settings, and pass rates."""
    return "\n".join(line for each in scorings for line in _scoring_lines(each))


def print_scorings(scorings: Sequence[ScoringView]) -> None:
    """Print the scorings of a run within the terminal's width."""
    columns = max(get_terminal_size().columns, 60)
    for line in render_scorings(scorings).split("\n"):
        click.echo(wrap_text(line.lstrip(), columns, "  " if line.startswith(" ") else "", "    "))


def _scoring_lines(each: ScoringView) -> Iterator[str]:
    made = f"{each.created_at[:16].replace('T', ' ')} UTC"
    yield " · ".join(
        [each.reference, made, escape_control_characters(each.label), *(["current"] if each.current else [])]
    )
    for model, words in describe_scored_models(each):
        yield f"  {model}: {words}" if model else f"  {words}"


def describe_scored_models(scoring: ScoringView) -> Iterator[tuple[str, str]]:
    """Yield the outcomes of each model by a scoring in words, after its name; a single model needs no name."""
    names = shorten_names([row.model for row in scoring.models], MAX_NAME_LENGTH, text_width)
    for row in scoring.models:
        outcomes = row.outcomes
        scored = outcomes.passed + outcomes.failed
        rate = (
            f"{outcomes.passed:,}/{scored:,} passed ({figures.format_percent(row.pass_rate)})"
            if scored
            else "no verdict"
        )
        others = (Outcome.ERRORED, Outcome.UNSCORED, Outcome.SKIPPED)
        apart = [f"{count:,} {name.value}" for name in others if (count := getattr(outcomes, name.value))]
        yield names[row.model] if len(scoring.models) > 1 else "", ", ".join([rate, *apart])
