"""`pramana runs`, `show` and `export`: what was run, what came of it, and how to take it elsewhere."""

import errno
import re
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click

from pramana import settings
from pramana.model import Case, Result, Run
from pramana.show import terminal
from pramana.show.cli.options import selecting
from pramana.show.cli.outputs import Output
from pramana.show.exports import FORMATS, Format

if TYPE_CHECKING:
    from pramana.load.selection import Selection
    from pramana.store.runs import Store


def _store() -> "closing[Store]":
    """Return the store, to be entered as a context: it is closed however the command ends."""
    from pramana.store import open_store

    return closing(open_store(settings.database_url()))


def _as_data(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "status": run.status,
        "suite": run.plan.suite,
        "suite_hash": run.plan.suite_hash,
        "selection": dict(run.plan.selection),
        "models": [target.typed for target in run.plan.targets],
        "repeats": run.plan.repeats,
        "created": run.created,
        "finished": run.finished,
        "expected": run.expected,
        "stored": run.stored,
        "reason": run.reason,
    }


@click.command()
@click.option("--limit", default=20, show_default=True, type=click.IntRange(1, 1_000_000), metavar="N")
@click.option("--json", "as_json", is_flag=True, help="Print a list, newest first.")
def runs(*, limit: int, as_json: bool) -> None:
    """List runs, newest first."""
    with _store() as store:
        found = store.runs(limit)
    if as_json:
        terminal.print_json([_as_data(run) for run in found])
    elif not found:
        click.echo("No runs yet: `pramana run` makes the first.")
    columns = get_terminal_size().columns
    for run in [] if as_json else found:
        models = ", ".join(target.typed for target in run.plan.targets)
        line = f"{run.id}  {run.status:11} {run.stored:>7,}/{run.expected:<7,} {run.plan.suite}  {models}"
        click.echo(terminal.fitted(line, max(columns, 60)))


@click.command()
@click.argument("run", default="latest")
@selecting
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(run: str, *, selection: "Selection", as_json: bool) -> None:
    """Show the summary of RUN: an id, the beginning of one, or `latest`; of all its cases, or of a selection."""
    from pramana.show.selection import select
    from pramana.show.summary import decide, print_summary, summary_of_results

    with _store() as store:
        selected = select(store, store.run(run), selection)
        found = selected.run
        summary = summary_of_results(found, selected.results())
    sentence = decide(found, summary).sentence
    if as_json:
        terminal.print_json({**_as_data(found), "notes": dict(found.notes), "sentence": sentence, **summary.as_data()})
    else:
        print_summary(found, summary, sentence)
        if found.stored < found.expected and not selection:
            click.echo(f"Unless it is under way, go on with: pramana run --resume {found.id}", err=True)


@click.command()
@click.argument("run", default="latest")
@click.option("--format", "format_", type=click.Choice(FORMATS), default="json", show_default=True)
@selecting
@click.option("--output", type=Output(), help="A file [default: standard output]")
@click.option(
    "--audio",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    metavar="DIR",
    help="Instead: the recording and the event log of every call, into this folder.",
)
def export(run: str, *, format_: Format, selection: "Selection", output: Path | None, audio: Path | None) -> None:
    """Write the results of RUN as JSON, CSV, JUnit, Markdown or one HTML page; all of them, or of a selection."""
    from pramana.show.exports import export as write
    from pramana.show.selection import select

    if audio is not None:
        with _store() as store:
            selected = select(store, store.run(run), selection)
            _export_audio(store, selected.results(), audio)
        return
    if output is None and sys.stdout is None:
        raise OSError(errno.EBADF, "standard output is closed; name a file with --output")
    with _store() as store:
        selected = select(store, store.run(run), selection)
        if output is None:
            write(format_, selected.run, selected.results(), sys.stdout)
        else:
            with output.open("w", encoding="utf-8", newline="") as out:
                write(format_, selected.run, selected.results(), out)


def _export_audio(store: "Store", results: "Iterable[tuple[Case, Result]]", folder: Path) -> None:
    """Write a stereo WAV and a log for each call, named so that one finds it: case, model, variant, repeat."""
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    for case, result in results:
        if result.reply is None or result.reply.call is None:
            continue
        key, call = result.key, result.reply.call
        parts = [case.id, key.model, key.variant, *([f"repeat-{key.repeat + 1}"] if key.repeat else [])]
        name = re.sub(r"[^\w.+=-]+", "_", "__".join(parts), flags=re.ASCII).lstrip("._-")[:120]
        name = f"{name}__{call.log.removeprefix('sha256:')[:8]}"  # no two calls have one log
        (folder / f"{name}.wav").write_bytes(store.blobs.get(call.recording))
        (folder / f"{name}.jsonl").write_bytes(store.blobs.get(call.log))
        written += 1
    if written:
        click.echo(f"{written:,} calls: a stereo WAV (caller left, agent right) and an event log each, in {folder}")
    else:
        click.echo("No result of this run was spoken, so there is nothing to hear.", err=True)
