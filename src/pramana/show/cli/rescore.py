"""`pramana rescore`: judge again without asking again."""

import click

from pramana import settings
from pramana.show import terminal


@click.command()
@click.argument("run", default="latest")
@click.option("--judge", default=None, metavar="MODEL", help="Who judges [default: as in the run]")
@click.option("--concurrency", default=32, show_default=True, type=click.IntRange(1, 10_000))
@click.option("--max-cost", type=click.FloatRange(min=0, min_open=True), default=None, metavar="USD")
@click.option("--json", "as_json", is_flag=True, help="Print the new summary as JSON.")
def rescore(run: str, *, judge: str | None, concurrency: int, max_cost: float | None, as_json: bool) -> int:
    """Make new checks from the stored replies of RUN, beside the old ones, which stay.

    The newest checks are what `show`, `export` and `compare` use from then on. Exit code: as of `run` without a bar.
    """
    import asyncio

    from pramana.analyse.gate import exit_code
    from pramana.bench import Limits, judge_again
    from pramana.show.summary import print_summary, summary_of
    from pramana.store import open_store

    store = open_store(settings.database_url())
    try:
        found = store.run(run)
        asyncio.run(judge_again(store, found, judge, Limits(concurrency, max_cost)))
        summary = summary_of(store, found)
        ended = found.stored >= found.expected
        decision = exit_code(summary, None, ended=ended, missing=found.expected - found.stored)
        if as_json:
            terminal.print_json({"run": found.id, **summary.as_data()})
        else:
            print_summary(found, summary, decision.sentence)
        return decision.code
    finally:
        store.close()
