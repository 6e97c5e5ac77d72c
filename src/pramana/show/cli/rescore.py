"""`pramana rescore`: score the stored replies of a run again, without calling its models, and show what changed."""

from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from pramana.errors import PramanaError
from pramana.model import Run
from pramana.report import terminal
from pramana.show.cli.options import (
    CASE_OPTION_NAMES,
    CONCURRENCY_OPTION,
    JSON_OPTION,
    QUIET_OPTION,
    GroupedCommand,
    add_cost_limit_options,
    add_scoring_options,
    add_selection_options,
    open_local_store,
)
from pramana.show.cli.run import name_options_in_errors

if TYPE_CHECKING:
    from pramana.app.rescoring import RescoringView
    from pramana.request import Selection
    from pramana.store.store import Store

OUTPUT_WIDTH_CHARS = 80
_ENDED_EARLY_NOTE = "Ended early: replies that were not scored again keep their earlier verdicts."


@click.command(
    cls=GroupedCommand,
    groups={
        "Scoring": "--judge --embedder --scorer --use",
        "Cases": CASE_OPTION_NAMES,
        "Limits": "--max-cost --max-total-tokens --concurrency",
        "Output": "--quiet --json",
    },
    exit_codes={
        0: "No reply errored",
        3: "Some replies errored, or scoring them failed",
        4: "Inconclusive: no reply has a new verdict",
        130: "Interrupted; replies not scored again keep their verdicts",
    },
    examples=(
        "pramana rescore latest --judge gpt-5-mini",
        "pramana rescore latest --judge gpt-5-mini --type task-completion --max-cost 1",
    ),
)
@click.argument("run", default="latest")
@add_scoring_options(judge_default_note="the run's", embedder_default_note="as in the run")
@add_selection_options
@add_cost_limit_options()
@CONCURRENCY_OPTION
@click.option(
    "--use", "scoring_number", type=click.IntRange(0), metavar="N", help="Make scoring N current again; score nothing"
)
@QUIET_OPTION
@JSON_OPTION
def rescore(
    run: str,
    *,
    judges: tuple[str, ...],
    embedder: str | None,
    scorers: tuple[str, ...],
    selection: "Selection",
    concurrency: int,
    max_cost_usd: float | None,
    max_total_tokens: int | None,
    scoring_number: int | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Score the stored replies of RUN [default: latest] again, with another judge, embedder or scorer.

    The tested models get no new calls. The verdicts that changed are listed at the end, and `show`, `export` and
    `compare` use the new verdicts. `show RUN --scorings` lists all scorings, RUN@0 is the run with its first scoring,
    and --use makes an earlier scoring current again, until the next `rescore`. A reply that gets no new verdict keeps
    its old verdict.

    """
    import asyncio

    from pramana.app.calibrations import with_calibrations
    from pramana.app.rescoring import rescoring_view
    from pramana.bench import add_scoring_to_run
    from pramana.report.progress import LiveProgress
    from pramana.report.rescoring import NO_NEW_VERDICT
    from pramana.report.selection import select_results
    from pramana.report.summary import decide_run_exit, print_summary, summarise_results
    from pramana.request import Limits
    from pramana.run.engine import Stop
    from pramana.show.cli.signals import SignalHandler

    if scoring_number is not None:
        _check_use_option_conflicts(click.get_current_context())
        _make_scoring_current(run, scoring_number, as_json=as_json)
        return 0
    with open_local_store() as store:
        selected = select_results(store, store.runs.find(run), selection)
        found = selected.run
        limits = Limits(concurrency=concurrency, max_cost_usd=max_cost_usd, max_total_tokens=max_total_tokens)
        earlier = store.scorings.list_finished(found)[-1].number
        stop, expected = Stop(), sum(1 for _ in selected.results()) if selection else found.stored
        with LiveProgress(expected, quiet=quiet or as_json) as live, SignalHandler(stop):
            work = add_scoring_to_run(
                store,
                found,
                judges[0] if judges else None,
                limits,
                other_judges=judges[1:],
                embedder=embedder,
                scorers=scorers,
                results_to_rescore=selected.results(),
                on_progress=live,
                stop=stop,
            )
            try:
                with name_options_in_errors(click.get_current_context()):
                    made = asyncio.run(work)
            except (PramanaError, KeyboardInterrupt):
                if stop:
                    _print_ended_early(store, found, earlier, as_json=as_json)
                raise
        summary = summarise_results(with_calibrations(store, found), selected.results())
        decision = decide_run_exit(found, summary)
        changed = rescoring_view(store, found, made)
        code = 130 if stop else 3 if changed.errored else 4 if not changed.new_verdicts else decision.exit_code
        if as_json:
            sentence = decision.sentence if changed.new_verdicts else NO_NEW_VERDICT
            said = {"run": found.id, "sentence": sentence, "exit_code": code}
            terminal.print_json({**said, "rescoring": terminal.views_to_plain(changed), **summary.as_data()})
        else:
            print_summary(found, summary, decision.sentence)
            _print_rescoring(found, changed)
        if stop:
            click.echo(_ENDED_EARLY_NOTE, err=True)
        return code


def _check_use_option_conflicts(context: click.Context) -> None:
    """Refuse scoring options together with --use, which scores nothing."""
    may_stand = {"run", "scoring_number", "quiet", "as_json"}
    typed = [
        each.opts[0]
        for each in context.command.params
        if each.name not in may_stand and context.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE
    ]
    if typed:
        raise click.UsageError(f"{', '.join(typed)} cannot be combined with --use, which scores nothing")


def _make_scoring_current(run: str, scoring_number: int, *, as_json: bool) -> None:
    """Make a scoring of a run current, and list all of them."""
    from pramana.app.rescoring import make_scoring_current
    from pramana.report.rescoring import print_scorings

    with open_local_store() as store:
        found = make_scoring_current(store, store.runs.find(run), scoring_number)
    if as_json:
        terminal.print_json(terminal.views_to_plain(found))
    else:
        print_scorings(found)


def _print_rescoring(run: Run, view: "RescoringView", *, err: bool = False) -> None:
    from pramana.report.rescoring import render_rescoring

    click.echo(err=err)
    for line in render_rescoring(run, view).split("\n"):
        click.echo(
            terminal.wrap_text(line.lstrip(), OUTPUT_WIDTH_CHARS, "  " if line.startswith(" ") else "", "    "), err=err
        )
    if not err:
        click.echo(terminal.wrap_text(f"Earlier scorings: pramana show {run.id} --scorings", OUTPUT_WIDTH_CHARS))


def _print_ended_early(store: "Store", run: Run, previous_scoring_number: int, *, as_json: bool) -> None:
    """Print what changed before an error or Ctrl-C ended a rescoring, and what applies to the other verdicts."""
    from pramana.app.rescoring import rescoring_view

    number = store.scorings.list_finished(run)[-1].number
    if number > previous_scoring_number and not as_json:
        _print_rescoring(run, rescoring_view(store, run, number), err=True)
    click.echo(_ENDED_EARLY_NOTE, err=True)
