"""`pramana rescore`: judge again without asking again."""

from typing import TYPE_CHECKING

import click

from pramana.errors import PramanaError
from pramana.report import terminal
from pramana.show.cli.options import POSITIVE, local_store, selecting

if TYPE_CHECKING:
    from pramana.request import Selection


_ENDED_EARLY = "Ended early: replies that were not judged again keep the verdict they had."


@click.command()
@click.argument("run", default="latest")
@click.option("--judge", default=None, metavar="MODEL", help="Who judges [default: as in the run]")
@click.option(
    "--embedder", default=None, metavar="MODEL", help="Who embeds; `local` for MiniLM, here [default: as in the run]"
)
@selecting
@click.option("--concurrency", default=32, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--max-cost", type=POSITIVE, default=None, metavar="USD")
@click.option("--max-total-tokens", type=click.IntRange(1), default=None, metavar="N")
@click.option("--quiet", is_flag=True, help="No progress, only the summary.")
@click.option("--json", "as_json", is_flag=True, help="Print the new summary as JSON.")
def rescore(
    run: str,
    *,
    judge: str | None,
    embedder: str | None,
    selection: "Selection",
    concurrency: int,
    max_cost: float | None,
    max_total_tokens: int | None,
    quiet: bool,
    as_json: bool,
) -> int:
    """Make new checks from the stored replies of RUN, or of a selection, beside the old ones, which stay.

    The newest checks are what `show`, `export` and `compare` use from then on. Ended early, by Ctrl-C or a budget, it
    keeps those that were made, and the summary says which verdicts are whose. Exit code: as of `run` without a bar; 130
    on Ctrl-C, SIGTERM and SIGHUP.
    """
    import asyncio

    from pramana.bench import judge_again
    from pramana.report.selection import select
    from pramana.report.summary import decide, print_summary, summary_of_results
    from pramana.request import Limits
    from pramana.run.engine import Stop
    from pramana.show.progress import Interruptible, Live

    with local_store() as store:
        selected = select(store, store.runs.find(run), selection)
        found = selected.run
        limits = Limits(concurrency=concurrency, max_cost_usd=max_cost, max_total_tokens=max_total_tokens)
        stop, expected = Stop(), sum(1 for _ in selected.results()) if selection else found.stored
        with Live(expected, quiet=quiet or as_json) as live, Interruptible(stop):
            work = judge_again(
                store, found, judge, limits, embedder=embedder, results=selected.results(), watch=live, stop=stop
            )
            try:
                asyncio.run(work)
            except (PramanaError, KeyboardInterrupt):
                if stop:
                    click.echo(_ENDED_EARLY, err=True)
                raise
        summary = summary_of_results(found, selected.results())
        decision = decide(found, summary)
        if as_json:
            terminal.print_json({"run": found.id, "sentence": decision.sentence, **summary.as_data()})
        else:
            print_summary(found, summary, decision.sentence)
        if stop:
            click.echo(_ENDED_EARLY, err=True)
            return 130
        return decision.code
