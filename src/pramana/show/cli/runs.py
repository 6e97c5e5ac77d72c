"""`pramana runs`, `show` and `export`: what was run, what came of it, and how to take it elsewhere."""

import sys
from pathlib import Path
from typing import Any

import click

from pramana import settings
from pramana.errors import visible
from pramana.show import terminal

FORMATS = ("json", "csv", "junit", "markdown", "html")


def _store() -> Any:
    from pramana.store import open_store

    return open_store(settings.database_url())


def _as_data(run: Any) -> dict[str, Any]:
    return {
        "id": run.id,
        "status": run.status,
        "suite": run.plan.suite,
        "suite_hash": run.plan.suite_hash,
        "models": [target.typed for target in run.plan.targets],
        "repeats": run.plan.repeats,
        "created": run.created,
        "finished": run.finished,
        "expected": run.expected,
        "stored": run.stored,
        "reason": run.reason,
    }


@click.command()
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1), metavar="N")
@click.option("--json", "as_json", is_flag=True, help="Print a list, newest first.")
def runs(*, limit: int, as_json: bool) -> None:
    """List runs, newest first."""
    store = _store()
    found = store.runs(limit)
    if as_json:
        terminal.print_json([_as_data(run) for run in found])
    elif not found:
        click.echo("No runs yet: `pramana run` makes the first.")
    for run in [] if as_json else found:
        models = ", ".join(target.typed for target in run.plan.targets)
        line = f"{run.id}  {run.status:11} {run.stored:>7,}/{run.expected:<7,} {run.plan.suite}  {models}"
        click.echo(visible(line)[:160])
    store.close()


@click.command()
@click.argument("run", default="latest")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(run: str, *, as_json: bool) -> None:
    """Show the summary of RUN: an id, the beginning of one, or `latest`."""
    from pramana.analyse.gate import exit_code
    from pramana.show.summary import print_summary, summary_of

    store = _store()
    found = store.run(run)
    summary = summary_of(store, found)
    if as_json:
        terminal.print_json({**_as_data(found), "notes": dict(found.notes), **summary.as_data()})
    else:
        ended = found.stored >= found.expected
        print_summary(
            found, summary, exit_code(summary, None, ended=ended, missing=found.expected - found.stored).sentence
        )
    store.close()


@click.command()
@click.argument("run", default="latest")
@click.option("--format", "format_", type=click.Choice(FORMATS), default="json", show_default=True)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="A file [default: standard output]")
def export(run: str, *, format_: Any, output: Path | None) -> None:
    """Write the results of RUN as JSON, CSV, JUnit, Markdown or one HTML page."""
    from pramana.show.exports import export as write

    store = _store()
    found = store.run(run)
    if output is None:
        write(format_, found, store.pairs(found.id), sys.stdout)
    else:
        with output.open("w", encoding="utf-8", newline="") as out:
            write(format_, found, store.pairs(found.id), out)
    store.close()
