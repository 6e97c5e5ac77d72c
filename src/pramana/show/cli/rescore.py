"""`pramana rescore`: judge the stored replies of a run again, without asking its models, and show what changed."""

from typing import TYPE_CHECKING

import click

from pramana.errors import PramanaError
from pramana.model import Run
from pramana.report import terminal
from pramana.show.cli.options import POSITIVE, local_store, selecting
from pramana.show.cli.run import named_by_options

if TYPE_CHECKING:
    from pramana.app.rescoring import RescoringView
    from pramana.request import Selection
    from pramana.store.store import Store

COLUMNS = 80
_ENDED_EARLY = "Ended early: replies that were not judged again keep the verdict they had."


@click.command()
@click.argument("run", default="latest")
@click.option("--judge", default=None, metavar="MODEL", help="Judge model [default: as in the run]")
@click.option(
    "--embedder",
    default=None,
    metavar="MODEL",
    help="Embedding model; `local` for MiniLM here [default: as in the run]",
)
@click.option(
    "--scorer",
    "scorers",
    multiple=True,
    metavar="NAME",
    help="Installed scorer, or python:module:function, besides those of the run (repeatable)",
)
@selecting
@click.option("--concurrency", default=32, show_default=True, type=click.IntRange(1, 10_000))
@click.option(
    "--max-cost", type=POSITIVE, default=None, metavar="USD", help="Ask nothing more once this has cost so much."
)
@click.option(
    "--max-total-tokens",
    type=click.IntRange(1),
    default=None,
    metavar="N",
    help="Ask nothing more once this has used so many tokens.",
)
@click.option("--quiet", is_flag=True, help="No progress, only the summary.")
@click.option("--json", "as_json", is_flag=True, help="Print the new summary as JSON.")
def rescore(
    run: str,
    *,
    judge: str | None,
    embedder: str | None,
    scorers: tuple[str, ...],
    selection: "Selection",
    concurrency: int,
    max_cost: float | None,
    max_total_tokens: int | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Check the stored replies of RUN, or of a selection, again: with another judge, embedder or scorer.

    The verdicts that changed are listed at the end. `show`, `export` and `compare` use the new verdicts from then on;
    RUN@0 names the run by its first scoring, and `show RUN --scorings` lists all of them. A reply that gets no new
    verdict keeps the one it had: after Ctrl-C or a spent budget, and where judging failed. Exit code: as of `run`
    without a bar, and 3 where judging a reply failed with an error; 130 on Ctrl-C, SIGTERM and SIGHUP.
    """
    import asyncio

    from pramana.app.rescoring import rescoring_view
    from pramana.bench import judge_again
    from pramana.report.progress import Live
    from pramana.report.selection import select
    from pramana.report.summary import decide, print_summary, summary_of_results
    from pramana.request import Limits
    from pramana.run.engine import Stop
    from pramana.show.cli.signals import Interruptible

    with local_store() as store:
        selected = select(store, store.runs.find(run), selection)
        found = selected.run
        limits = Limits(concurrency=concurrency, max_cost_usd=max_cost, max_total_tokens=max_total_tokens)
        earlier = store.scorings.describe(found)[-1].number
        stop, expected = Stop(), sum(1 for _ in selected.results()) if selection else found.stored
        with Live(expected, quiet=quiet or as_json) as live, Interruptible(stop):
            work = judge_again(
                store,
                found,
                judge,
                limits,
                embedder=embedder,
                scorers=scorers,
                results=selected.results(),
                watch=live,
                stop=stop,
            )
            try:
                with named_by_options(click.get_current_context()):
                    number = asyncio.run(work)
            except (PramanaError, KeyboardInterrupt):
                if stop:
                    _print_ended_early(store, found, earlier, as_json=as_json)
                raise
        summary = summary_of_results(found, selected.results())
        decision = decide(found, summary)
        changed = rescoring_view(store, found, number)
        code = 130 if stop else 3 if changed.errored else decision.code
        if as_json:
            said = {"run": found.id, "sentence": decision.sentence, "exit_code": code}
            terminal.print_json({**said, "rescoring": terminal.plain(changed), **summary.as_data()})
        else:
            print_summary(found, summary, decision.sentence)
            _print_changes(found, changed)
        if stop:
            click.echo(_ENDED_EARLY, err=True)
        return code


def _print_changes(run: Run, changed: "RescoringView", *, err: bool = False) -> None:
    from pramana.report.rescoring import render_rescoring

    click.echo(err=err)
    for line in render_rescoring(run, changed).split("\n"):
        click.echo(terminal.wrapped(line.lstrip(), COLUMNS, "  " if line.startswith(" ") else "", "    "), err=err)
    if not err:
        click.echo(terminal.wrapped(f"Earlier scorings: pramana show {run.id} --scorings", COLUMNS))


def _print_ended_early(store: "Store", run: Run, earlier: int, *, as_json: bool) -> None:
    """Print what changed before an error or Ctrl-C ended a re-scoring, and what became of the other verdicts."""
    from pramana.app.rescoring import rescoring_view

    number = store.scorings.describe(run)[-1].number
    if number > earlier and not as_json:
        _print_changes(run, rescoring_view(store, run, number), err=True)
    click.echo(_ENDED_EARLY, err=True)
