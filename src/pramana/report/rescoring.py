"""Re-scorings as text: views in, lines for a terminal or a notebook out."""

from collections.abc import Iterator, Sequence
from shutil import get_terminal_size

import click

from pramana.analyse.labels import shorten_names
from pramana.analyse.numbers import pluralise
from pramana.app.rescoring import ChangedVerdictView, KeptVerdictView, RescoringView, ScoringView
from pramana.errors import escape_control_characters
from pramana.model import Outcome, ResultKey, Run
from pramana.report import figures
from pramana.report.terminal import count_columns, fit_to_width, wrap_text

NO_NEW_VERDICT = "No reply has a new verdict: the rescoring is inconclusive."
MAX_SHOWN_CHANGES = 20
MAX_REASON_COLUMNS = 160
"""Columns shown of a reason."""
MAX_CASE_ID_COLUMNS = 40
"""Columns of a case's id."""


def render_rescoring(run: Run, rescoring: RescoringView) -> str:
    """Return the changes of a re-scoring: the counts, the changed cases, and those without a new verdict."""
    return "\n".join(_format_rescoring(run, rescoring))


def _format_rescoring(run: Run, rescoring: RescoringView) -> Iterator[str]:
    if not rescoring.judged:
        yield "No reply was scored again."
        return
    verdicts = pluralise(rescoring.judged, "verdict")
    counts = ", ".join(f"{each.count:,} {each.before.value} -> {each.after.value}" for each in rescoring.counts)
    if rescoring.changed:
        yield f"{rescoring.changed:,} of {verdicts} changed: {counts}"
    else:
        yield f"None of {verdicts} changed." if rescoring.new_verdicts else NO_NEW_VERDICT
    for changed in rescoring.changes[:MAX_SHOWN_CHANGES]:
        yield _format_verdict(run, changed, f"{changed.before.value} -> {changed.after.value}")
    yield from _format_more_line(rescoring.changed)
    if rescoring.kept:
        has = "reply has no new verdict and keeps" if rescoring.kept == 1 else "replies have no new verdict and keep"
        yield f"{rescoring.kept:,} {has} the earlier one:"
    for kept in rescoring.kept_verdicts[:MAX_SHOWN_CHANGES]:
        yield _format_verdict(run, kept, f"still {kept.verdict.value}")
    yield from _format_more_line(rescoring.kept)


def _format_verdict(run: Run, verdict: ChangedVerdictView | KeptVerdictView, change: str) -> str:
    key = ResultKey("", verdict.model, verdict.variant, verdict.repeat)
    which = figures.describe_model_variant_and_repeat(run.plan.targets, run.plan.variants, run.plan.repeats, key)
    beside = f" ({fit_to_width(which, 2 * MAX_CASE_ID_COLUMNS)})" if which else ""
    name = f"{fit_to_width(verdict.case_id, MAX_CASE_ID_COLUMNS)}{beside}"
    reason = escape_control_characters(" ".join(verdict.reason.split()))
    return f"  {name}: {change}: {fit_to_width(reason, MAX_REASON_COLUMNS)}"


def _format_more_line(total: int) -> Iterator[str]:
    if total > MAX_SHOWN_CHANGES:
        yield f"  … and {total - MAX_SHOWN_CHANGES:,} more"


def render_scorings(scorings: Sequence[ScoringView]) -> str:
    """Return the scorings of a run, at least two lines each: name, date, judge and other settings, and pass rates."""
    return "\n".join(line for each in scorings for line in _format_scoring(each))


def print_scorings(scorings: Sequence[ScoringView]) -> None:
    """Print the scorings of a run within the terminal's width."""
    columns = max(get_terminal_size().columns, 60)
    for line in render_scorings(scorings).split("\n"):
        click.echo(wrap_text(line.lstrip(), columns, "  " if line.startswith(" ") else "", "    "))


def _format_scoring(scoring: ScoringView) -> Iterator[str]:
    made = f"{scoring.created_at[:16].replace('T', ' ')} UTC"
    yield " · ".join(
        [scoring.reference, made, escape_control_characters(scoring.label), *(["current"] if scoring.current else [])]
    )
    for model, words in describe_scored_models(scoring):
        yield f"  {model}: {words}" if model else f"  {words}"


def describe_scored_models(scoring: ScoringView) -> Iterator[tuple[str, str]]:
    """Yield the outcomes of each model by a scoring in words, after its name; a single model needs no name."""
    names = shorten_names([row.model for row in scoring.models], MAX_CASE_ID_COLUMNS, count_columns)
    for row in scoring.models:
        outcomes = row.outcomes
        scored = outcomes.passed + outcomes.failed
        mark = f", {scoring.calibration}" if scoring.calibration else ""
        rate = (
            f"{outcomes.passed:,}/{scored:,} passed ({figures.format_percent(row.pass_rate)}){mark}"
            if scored
            else "no verdict"
        )
        others = (Outcome.ERRORED, Outcome.UNSCORED, Outcome.SKIPPED)
        apart = [f"{count:,} {name.value}" for name in others if (count := getattr(outcomes, name.value))]
        yield names[row.model] if len(scoring.models) > 1 else "", ", ".join([rate, *apart])
