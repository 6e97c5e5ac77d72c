"""Export formats: a name or the ending of a file in, what writes a run in that format out.

`@exporter` makes one of a function. The formats of this package come through the same registry as those that others
install. Nothing here reads a store.
"""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import copymode
from typing import IO, TYPE_CHECKING, Any

from msgspec import Struct

from pramana.errors import BrokenPlugin, InvalidInput, PramanaError, describe_exception
from pramana.model import Case, Result, Run
from pramana.plugins import exporters

if TYPE_CHECKING:
    from pramana.app.views import ResultDetailView

ALIASES = {"xml": "junit", "md": "markdown"}
"""Names that a format may be given by its ending."""
Pairs = Iterable[tuple[Case, Result]]
ExportFunction = Callable[[Run, "Iterator[ResultDetailView]", Any], None]
"""Writes a run and its results, one by one, into a file that is open for text, or for bytes."""


class Exporter(Struct, frozen=True):
    """A format that a run can be written in."""

    name: str
    ending: str
    """Of its files: `.xlsx`."""
    write: Callable[..., None]
    """Called with the run, pairs of a case and its result, and an open file."""
    binary: bool = False
    """Whether the file is open for bytes instead of text."""
    links_recordings: bool = False
    """Whether it is called with the places of recordings too."""
    write_several: Callable[..., None] | None = None
    """Called with pairs of a run and its results, and an open file; None where a file holds one run."""


def exporter(name: str, *, ending: str, binary: bool = False) -> Callable[[ExportFunction], Exporter]:
    """Make an export format of a function, which is called with the run, its results and an open file.

    >>> @exporter("ids", ending=".ids")
    ... def ids(run, results, out):
    ...     for result in results:
    ...         print(result.case_id, file=out)
    >>> ids.name, ids.ending, ids.binary
    ('ids', '.ids', False)
    """
    if not ending.startswith(".") or len(ending) < 2:
        raise InvalidInput(f'the ending of an export format begins with a dot, such as ".xlsx"; found {ending!r:.80}')

    def make(function: ExportFunction) -> Exporter:
        return Exporter(name, ending.lower(), partial(_call_exporter, name, function), binary)

    return make


def _call_exporter(name: str, function: ExportFunction, run: Run, results: Pairs, out: IO[Any]) -> None:
    from pramana.app.runs import result_detail_view

    views = (
        result_detail_view(number, case, result, run.plan.system_prompt)
        for number, (case, result) in enumerate(results, start=1)
    )
    try:
        function(run, views, out)
    except (PramanaError, OSError):
        raise
    except Exception as error:  # whatever a stranger's function raises
        raise BrokenPlugin(
            f'the export format "{name}" could not write the run: {describe_exception(error)}'
        ) from error


def find_exporter(name: str) -> Exporter:
    """Return the export format of a name; `xml` is junit, and `md` is markdown."""
    name = ALIASES.get(name, name)
    found = exporters.load(name)
    if not isinstance(found, Exporter):
        kind = type(found).__name__
        raise BrokenPlugin(f'the export format "{name}" is a {kind}, not an Exporter; use @pramana.exporter')
    if found.name != name:
        raise BrokenPlugin(f'the export format registered as "{name}" calls itself "{found.name}"')
    return found


def exporter_for_path(path: Path) -> Exporter:
    """Return the export format that a file's ending stands for; raises `InvalidInput` where none does.

    >>> exporter_for_path(Path("report.HTML")).name
    'html'
    """
    known = []
    for name in _format_names():
        if found := _find_usable_exporter(name):
            if found.ending == path.suffix.lower():
                return found
            known.append(found.ending)
    ending = f'unknown file ending "{path.suffix}"' if path.suffix else "the file name has no ending"
    raise InvalidInput(f"{path.name}: {ending}; use {', '.join(known[:-1])} or {known[-1]}")


def _format_names() -> Iterator[str]:
    """Yield the names of all formats, ours first: what is installed cannot take their endings."""
    yield from exporters.builtin
    yield from (name for name in exporters.names() if name not in exporters.builtin)


def _find_usable_exporter(name: str) -> Exporter | None:
    try:
        return find_exporter(name)
    except BrokenPlugin:  # one that cannot be used must not keep another from writing
        return None


def write_file(
    exporter_: Exporter,
    path: Path,
    run: Run,
    results: Pairs,
    recordings: Callable[[Case, Result], str | None] | None = None,
) -> None:
    """Write a run to a file. One that is there already is replaced only once the new one is complete."""
    with _open_output(exporter_, path) as out:
        write_run(exporter_, run, results, out, recordings)


def write_runs_file(exporter_: Exporter, path: Path, runs: Iterable[tuple[Run, Pairs]]) -> None:
    """Write several runs to one file, as `write_file` does; raises `InvalidInput` where a file holds one run."""
    write = writer_of_several(exporter_)
    with _open_output(exporter_, path) as out:
        write(runs, out)


def writer_of_several(exporter_: Exporter) -> Callable[[Iterable[tuple[Run, Pairs]], IO[Any]], None]:
    """Return what writes several runs in a format; raises `InvalidInput` where a file holds one run."""
    if exporter_.write_several is None:
        able = [name for name in exporters.builtin if find_exporter(name).write_several]
        raise InvalidInput(
            f"{exporter_.name} files hold one run each; export each run to its own file, or use "
            f"{', '.join(able[:-1])} or {able[-1]}"
        )
    return exporter_.write_several


@contextmanager
def _open_output(exporter_: Exporter, path: Path) -> Iterator[IO[Any]]:
    with _replace_atomically(path) as unfinished:
        opened: IO[Any] = (
            unfinished.open("wb") if exporter_.binary else unfinished.open("w", encoding="utf-8", newline="")
        )
        with opened as out:
            yield out


@contextmanager
def _replace_atomically(path: Path) -> Iterator[Path]:
    """Give the path of a file that takes a file's place at the end, or is removed when something is raised.

    What is no file, such as `/dev/stdout`, is written to as it is.
    """
    path = path.resolve()  # a link goes on to lead where it led
    if path.exists() and not path.is_file():
        yield path
        return
    unfinished = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    try:
        yield unfinished
        if path.exists():
            copymode(path, unfinished)
        unfinished.replace(path)
    except OSError as error:
        if error.filename == str(unfinished):
            error.filename = str(path)
        raise
    finally:
        unfinished.unlink(missing_ok=True)


def write_run(
    exporter_: Exporter,
    run: Run,
    results: Pairs,
    out: IO[Any],
    recordings: Callable[[Case, Result], str | None] | None = None,
) -> None:
    """Write a run to an open file."""
    if exporter_.links_recordings:
        exporter_.write(run, results, out, recordings)
    else:
        exporter_.write(run, results, out)
