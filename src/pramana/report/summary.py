"""A run's summary at the terminal: pass rates with their intervals first, then what it cost, how long, and why not."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from pramana.analyse.gate import Decision, exit_code, no_verdicts_sentence
from pramana.analyse.summary import Rate, Summary, Tally
from pramana.model import Run
from pramana.report import figures
from pramana.report.exports import Results, models_of
from pramana.report.selection import MARK
from pramana.report.terminal import fitted, padded, width, wrapped

if TYPE_CHECKING:
    from pramana.store.store import Store

SHOWN_REASONS = 8
SHOWN_REASON = 160
"""Columns of why one result failed."""
SHOWN_PROMPT = 300
"""Columns of a system prompt, and of parameters."""
SHOWN_ROWS = 12
COLUMNS = 80
LONGEST_NAME = 40
"""Of a case, in columns; `--json` has all of it."""
BAR = 10


def summary_of(store: "Store", run: Run) -> Summary:
    """Add up a run from what is stored."""
    return summary_of_results(run, ((case, result) for _, case, result in store.results.numbered_pairs(run)))


def summary_of_results(run: Run, results: Results) -> Summary:
    """Add up these results of a run."""
    tally = Tally.of(run)
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


def print_summary(run: Run, summary: Summary, sentence: str, *, with_plan: bool = False) -> None:
    """Print it within 80 columns; `with_plan` also what was sent with every case."""
    click.echo()
    click.echo(click.style(_title(run), bold=True))
    no_verdicts = _print_no_verdicts(run, summary)
    if run.plan.selection:
        _wrapped(f"a selection, not the whole suite: {figures.selection(run.plan.selection)}")
    if with_plan:
        _plan(run)
    models = [target.typed for target in run.plan.targets]
    several = len(models) > 1
    by_model = {name: summary.by["model"].get(name, Rate()) for name in models}
    _rates("", by_model if several else {"all": summary.overall})
    if counted := figures.units(run):
        _wrapped(counted)
    for sentence_of_judges in summary.mixed_judges:
        _wrapped(f"several judges: {sentence_of_judges}")
    if summary.judged_by:
        _wrapped(summary.judged_by)
    for title, rows in summary.by.items():
        if len(rows) > 1 and title != "model":
            _rates(f"{title}, all {len(models)} models together" if several else title, rows)
    if summary.scores:
        click.echo("\n  scores")
    for name, model, measured in figures.scores(summary.scores):
        on = f" on {fitted(model, LONGEST_NAME)}" if len(run.plan.targets) > 1 else ""
        click.echo(wrapped(f"{fitted(name, LONGEST_NAME)}{on}: {measured}", COLUMNS - 2, "    ", "      "))
    _rubric(run, summary)
    click.echo()
    if spent := figures.spent(run, summary):
        _wrapped(spent)
    for who, how, measured in figures.voice(summary.voice) if summary.voice else ():
        _wrapped(f"{fitted(who, LONGEST_NAME)}, {how}: {measured}")
    if summary.voice and (heard := figures.by_ear(run, summary.voice)):
        _wrapped(heard)
    if engines := figures.engines(summary.engines):
        _wrapped(engines)
    _failures(run, summary)
    for reason in summary.reasons[:SHOWN_REASONS]:
        cases = ", ".join(fitted(case, LONGEST_NAME) for case in reason.cases) + (" …" if reason.more else "")
        _wrapped(f"{reason.count:,} {reason.outcome}: {reason.text} ({cases})")
    if len(summary.reasons) > SHOWN_REASONS:
        _wrapped(f"… and {len(summary.reasons) - SHOWN_REASONS} further reasons")
    first = next((reason.cases[0] for reason in summary.reasons if reason.cases), "CASE")
    if summary.overall.errored and not summary.failures and not summary.voice:
        _wrapped(f"One in full: pramana show {run.reference} --id {_typed(first)}")
    if summary.voice:
        _wrapped(f"Read a call: pramana show {run.reference} --id {_typed(first)}")
        _wrapped(f"Hear the calls: pramana export {run.reference} --audio DIR")
    for note in summary.not_reproducible:
        _wrapped(f"not reproducible: {note}")
    if run.reason and run.status != "finished":
        _wrapped(f"{run.status}: {run.reason}")
    if sentence != no_verdicts:  # which already stands at the top
        click.echo()
        click.echo(wrapped(sentence, COLUMNS))


def _print_no_verdicts(run: Run, summary: Summary) -> str:
    """Print that no result has a verdict, and how to get verdicts; return the sentence, empty where one has."""
    from pramana.score.scoring import NO_JUDGE, NOT_WRITTEN_TO

    sentence = no_verdicts_sentence(summary.overall)
    if sentence:
        click.echo(click.style(wrapped(sentence, COLUMNS), fg="yellow", bold=True))
        if any(text in reason.text for reason in summary.reasons for text in (NO_JUDGE, NOT_WRITTEN_TO)):
            click.echo(wrapped(f"Judge the stored replies: pramana rescore {run.id} --judge MODEL", COLUMNS))
    return sentence


def _rubric(run: Run, summary: Summary) -> None:
    """Print the means of a judge's rubric scores."""
    rows = figures.rubric_rows(summary.rubric)
    if rows:
        click.echo(f"\n  {figures.RUBRIC_TITLE[:1].lower()}{figures.RUBRIC_TITLE[1:]}")
    for each in rows[:SHOWN_ROWS]:
        on = f" on {fitted(each.model, LONGEST_NAME)}" if len(run.plan.targets) > 1 else ""
        click.echo(wrapped(f"{fitted(each.group, LONGEST_NAME)}{on}: {each.sentence}", COLUMNS - 2, "    ", "      "))
    if len(rows) > SHOWN_ROWS:
        click.echo(f"    … and {len(rows) - SHOWN_ROWS} more; --json shows all")


def _plan(run: Run) -> None:
    """Print the beginning of the system prompt, and the parameters."""
    if run.plan.system_prompt:
        _wrapped(f"system prompt: {fitted(' '.join(run.plan.system_prompt.split()), SHOWN_PROMPT)}")
    if parameters := figures.sent(run):
        _wrapped(f"parameters: {fitted(parameters, SHOWN_PROMPT)}")


def _title(run: Run) -> str:
    """Return the head: suite, run, and how it was asked aloud; what does not fit beside the suite stands below it."""
    said = figures.asked_aloud(run.plan)
    which = f"run {run.reference}{f' · {said}' if said else ''}"
    suite = run.plan.suite
    mark = MARK if suite.endswith(MARK) else ""
    beside = COLUMNS - width(f" · {which}{mark}")
    stem = suite.removesuffix(mark)
    if len(stem) <= beside and width(stem) <= beside:
        return f"{fitted(stem, beside)}{mark} · {which}"
    return f"{fitted(stem, COLUMNS - width(mark))}{mark}\n{wrapped(which, COLUMNS)}"


def _failures(run: Run, summary: Summary) -> None:
    """List what failed and why, a bounded number of it, and how to see the rest."""
    count, shown = summary.overall.failed, summary.failures[:SHOWN_REASONS]
    if not shown:
        return
    for each in shown:
        which = figures.which(run.plan.targets, run.plan.variants, run.plan.repeats, each)
        name = f"{fitted(each.case, LONGEST_NAME)}{f' ({which})' if which else ''}"
        _wrapped(f"failed {fitted(name, COLUMNS)}: {fitted(' '.join(each.reason.split()), SHOWN_REASON)}")
    more = f"… and {count - len(shown):,} more failed: pramana export {run.reference} --format csv has them all. "
    one = f"One in full: pramana show {run.reference} --id {_typed(shown[0].case)}"
    _wrapped(f"{more if count > len(shown) else ''}{one}")


def _typed(case: str) -> str:
    """Return the id of a case for a command to copy; a placeholder where it is too long to show."""
    return case if fitted(case, LONGEST_NAME) == case else "CASE"


def _wrapped(text: str) -> None:
    click.echo(wrapped(text, COLUMNS - 2, "  ", "    "))


def _rates(title: str, rows: Mapping[str, Rate]) -> None:
    if title:
        click.echo(f"\n  by {title}")
    for name, rate in list(rows.items())[:SHOWN_ROWS]:
        share = rate.value or 0.0
        bar = ("█" * round(share * BAR)).ljust(BAR, "·") if rate.scored else " " * BAR
        counts = f"{rate.passed:,}/{rate.scored:,}" if rate.scored else "–"
        shown = f"{figures.percent(rate.value):>7} ({figures.span(rate)})" if rate.scored else ""
        line = f"    {padded(name, 22)} {bar} {counts:>9} {shown}".rstrip()
        apart = [f"{getattr(rate, each)} {each}" for each in ("errored", "unscored", "skipped") if getattr(rate, each)]
        if apart and width(line) + len(", ".join(apart)) < COLUMNS - 2:
            line += f" {', '.join(apart)}"
        elif apart:
            line += f"\n{'':27}{', '.join(apart)}"
        click.echo(line)
    if len(rows) > SHOWN_ROWS:
        click.echo(f"    … and {len(rows) - SHOWN_ROWS} more; --json shows all")
