"""`pramana export`: runs, and the recordings of their calls, as files."""

import errno
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

import click

from pramana.app.calibrations import with_calibrations
from pramana.errors import PramanaError, StoreFailed
from pramana.model import Case, Result
from pramana.plugins import exporters
from pramana.report import terminal
from pramana.report.exporters import FORMAT_ALIASES, get_multi_run_writer, write_file, write_run, write_runs_file
from pramana.report.exports import FORMATS, make_recording_name
from pramana.report.selection import SelectedRun, select_results
from pramana.show.cli.options import (
    CASE_OPTION_NAMES,
    GroupedCommand,
    OutputPath,
    add_selection_options,
    choose_exporter,
    open_local_store,
)

if TYPE_CHECKING:
    from pramana.report.exporters import Exporter
    from pramana.request import Selection
    from pramana.store.store import Store


class ExportFormat(click.Choice[str]):
    """A built-in or installed format; installed ones are looked up only for a name that is not built in."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        value = FORMAT_ALIASES.get(value, value)
        if value in self.choices:
            return value
        known = exporters.names()  # scans what is installed
        named = [*self.choices, *(each for each in known if each not in self.choices)]
        return value if value in known else click.Choice(named).convert(value, param, ctx)


@click.command(
    cls=GroupedCommand,
    groups={"Cases": CASE_OPTION_NAMES, "Output": "--format --output --audio"},
    examples=(
        "pramana export latest --output results.csv",
        "pramana export latest --format markdown --category coding",
        "pramana export latest --audio calls",
    ),
)
@click.argument("runs", metavar="[RUN]...", nargs=-1)
@click.option(
    "--format",
    "format_",
    type=ExportFormat(FORMATS),
    default=None,
    metavar="NAME",
    help="Format, such as csv or html [default: by FILE's ending]",
)
@add_selection_options
@click.option("--output", type=OutputPath(), metavar="FILE", help="Output file [default: standard output]")
@click.option(
    "--audio",
    type=click.Path(file_okay=False, path_type=Path),
    default=None,
    metavar="DIR",
    help="Folder for the recording and event log of each call",
)
def export(
    runs: tuple[str, ...],
    *,
    format_: str | None,
    selection: "Selection",
    output: Path | None,
    audio: Path | None,
) -> None:
    """Export the results of RUN [default: latest] as JSON, JSON Lines, CSV, Parquet, JUnit, Markdown or one HTML page.

    RUN is an ID, the beginning of an ID, a run's name, or `latest`; RUN@0 is the run with its first scoring. JSON,
    JSON Lines, CSV and Parquet take several runs in one file.
    """
    if output is None and audio is None and sys.stdout is None:
        raise OSError(errno.EBADF, "standard output is closed; name a file with --output")
    found = choose_exporter(output, format_)
    if found.binary and output is None and audio is None and sys.stdout.isatty():
        raise click.UsageError(f"{found.name} is binary and cannot be printed; name a file: --output RUN{found.ending}")
    with open_local_store() as store:
        found_runs = map(store.runs.find_as_of_scoring, runs or ("latest",))
        chosen = {each.reference: with_calibrations(store, each) for each in found_runs}
        if len(chosen) > 1:
            get_multi_run_writer(found)  # raises before anything is written
        several = [select_results(store, each, selection) for each in chosen.values()]
        results = chain.from_iterable(each.results() for each in several)
        damaged = _export_audio_and_list_damaged(store, results, audio) if audio else []
        _write_runs(found, several, output, audio)
    if damaged:
        files = terminal.pluralise(len(damaged), "file")
        raise StoreFailed("\n  ".join([f"{files} could not be exported:", *damaged]))


def _write_runs(
    exporter_: "Exporter", selected_runs: Sequence[SelectedRun], output: Path | None, audio_folder: Path | None
) -> None:
    """Write the runs to a file, or to standard output if neither a file nor --audio was given."""
    only = selected_runs[0] if len(selected_runs) == 1 else None
    out = sys.stdout.buffer if exporter_.binary else sys.stdout
    if output and only:
        heard = _make_recording_finder(audio_folder or output.parent, output.parent)
        write_file(exporter_, output, only.run, only.results(), heard)
    elif output:
        write_runs_file(exporter_, output, ((each.run, each.results()) for each in selected_runs))
    elif only and not audio_folder:
        write_run(exporter_, only.run, only.results(), out)
    elif not audio_folder:
        get_multi_run_writer(exporter_)(((each.run, each.results()) for each in selected_runs), out)


def _make_recording_finder(audio_folder: Path, page_folder: Path) -> "Callable[[Case, Result], str | None]":
    """Return a function for a recording's address relative to the page; it returns None if it was not exported."""

    def find_recording(case: Case, result: Result) -> str | None:
        wav = audio_folder / f"{name}.wav" if (name := make_recording_name(case, result)) else None
        return os.path.relpath(wav, page_folder).replace(os.sep, "/") if wav and wav.is_file() else None

    return find_recording


def _export_audio_and_list_damaged(store: "Store", results: "Iterable[tuple[Case, Result]]", folder: Path) -> list[str]:
    """Write a stereo WAV and a log for each call, named by case, model, variant and repeat.

    Return the recordings that could not be read; one damaged file does not stop the export of the others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    damaged: list[str] = []
    for case, result in results:
        name = make_recording_name(case, result)
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
                _write_atomically(folder / file, data)
        written += len(damaged) == before
    if written:
        calls = terminal.pluralise(written, "call")
        click.echo(f"{calls}: a stereo WAV (caller left, agent right) and an event log each, in {folder}")
    elif not damaged:
        click.echo("No result of this run is a call, so there are no recordings.", err=True)
    return damaged


def _write_atomically(path: Path, data: bytes) -> None:
    """Write a file atomically: it appears complete or not at all."""
    unfinished = path.with_name(f".{token_hex(8)}.part")
    try:
        unfinished.write_bytes(data)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
