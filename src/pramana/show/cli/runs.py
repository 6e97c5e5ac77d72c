"""`pramana runs`, `show` and `export`: what was run, what came of it, and how to take it elsewhere."""

import errno
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from secrets import token_hex
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any

import click

from pramana.errors import PramanaError, StoreFailed
from pramana.model import Case, Result, Run
from pramana.report import terminal
from pramana.report.exports import FORMATS, Format, recording_name
from pramana.show.cli.options import selecting
from pramana.show.cli.outputs import Output
from pramana.show.cli.stores import local_store

if TYPE_CHECKING:
    from pramana.request import Selection
    from pramana.store.runs import Store

SHOWN_CONVERSATIONS = 20
"""Of the cases that were chosen by their ids."""


def _as_data(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "status": run.status,
        "suite": run.plan.suite,
        "suite_hash": run.plan.suite_hash,
        "selection": dict(run.plan.selection),
        "models": [target.typed for target in run.plan.targets],
        "repeats": run.plan.repeats,
        "variants": list(run.plan.variants),
        "caller_voice": None if run.plan.variants == ("text",) else run.plan.voice,
        "stt": run.plan.stt.typed if run.plan.stt else None,
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
    with local_store() as store:
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
    """Show the summary of RUN: an id, the beginning of one, or `latest`; of all its cases, or of a selection.

    With --id also what was said, when and as what it was heard, and every check with its reason.
    """
    from itertools import islice

    from pramana.report import conversation
    from pramana.report.selection import select
    from pramana.report.summary import decide, print_summary, summary_of_results

    with local_store() as store:
        selected = select(store, store.run(run), selection)
        found = selected.run
        summary = summary_of_results(found, selected.results())
        sentence = decide(found, summary).sentence
        chosen = islice(selected.results(), SHOWN_CONVERSATIONS) if selection.ids else ()
        if as_json:
            said = [conversation.as_data(found, *each, store.blobs.get) for each in chosen]
            data = {**_as_data(found), "notes": dict(found.notes), "sentence": sentence, **summary.as_data()}
            terminal.print_json({**data, "conversations": said} if selection.ids else data)
            return
        print_summary(found, summary, sentence)
        for each in chosen:
            conversation.print_conversation(found, *each, store.blobs.get)
        more = summary.overall.total - SHOWN_CONVERSATIONS
        if selection.ids and more > 0:
            click.echo(f"\n… and {more:,} more: pramana export {found.id} has them all.")
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
    help="The recording and the event log of every call, into this folder; with --output the file too.",
)
def export(run: str, *, format_: Format, selection: "Selection", output: Path | None, audio: Path | None) -> None:
    """Write the results of RUN as JSON, CSV, JUnit, Markdown or one HTML page; all of them, or of a selection."""
    from pramana.report.exports import export as write
    from pramana.report.selection import select

    damaged: list[str] = []
    if audio is not None:
        with local_store() as store:
            selected = select(store, store.run(run), selection)
            damaged = _export_audio(store, selected.results(), audio)
    if output is not None:
        with local_store() as store:
            selected = select(store, store.run(run), selection)
            heard = _recordings(audio or output.parent, output.parent)
            with output.open("w", encoding="utf-8", newline="") as out:
                write(format_, selected.run, selected.results(), out, heard)
    elif audio is None:
        if sys.stdout is None:
            raise OSError(errno.EBADF, "standard output is closed; name a file with --output")
        with local_store() as store:
            selected = select(store, store.run(run), selection)
            write(format_, selected.run, selected.results(), sys.stdout)
    if damaged:
        files = terminal.counted(len(damaged), "file")
        raise StoreFailed("\n  ".join([f"{files} could not be exported:", *damaged]))


def _recordings(folder: Path, page: Path) -> "Callable[[Case, Result], str | None]":
    """Return who knows the address of a recording from a page's folder, where it was exported; None where not."""

    def found(case: Case, result: Result) -> str | None:
        wav = folder / f"{name}.wav" if (name := recording_name(case, result)) else None
        return os.path.relpath(wav, page).replace(os.sep, "/") if wav and wav.is_file() else None

    return found


def _export_audio(store: "Store", results: "Iterable[tuple[Case, Result]]", folder: Path) -> list[str]:
    """Write a stereo WAV and a log for each call, named so that one finds it: case, model, variant, repeat.

    Return what could not be read: one damaged file is no reason to keep the others back.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    damaged: list[str] = []
    for case, result in results:
        name = recording_name(case, result)
        if name is None or result.reply is None or result.reply.call is None:
            continue
        call = result.reply.call
        before = len(damaged)
        for file, digest in ((f"{name}.wav", call.recording), (f"{name}.jsonl", call.log)):
            try:
                data = store.blobs.get(digest)
            except PramanaError as error:
                damaged.append(f"{file}: {error}")
            else:
                _write_whole(folder / file, data)
        written += len(damaged) == before
    if written:
        calls = terminal.counted(written, "call")
        click.echo(f"{calls}: a stereo WAV (caller left, agent right) and an event log each, in {folder}")
    elif not damaged:
        click.echo("No result of this run was spoken, so there is nothing to hear.", err=True)
    return damaged


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file so that its name stands for all of it, or is not there."""
    unfinished = path.with_name(f".{token_hex(8)}.part")
    try:
        unfinished.write_bytes(data)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
